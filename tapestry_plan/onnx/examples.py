"""A small node of each operator that is imported, in the words of ONNX's parser: what it becomes is looked at there.

operator, opset, graph; longer ones go on in lines that are indented
"""

from __future__ import annotations

import re
from typing import Any

_TEXTS = """
Abs 13 (float[3,4,5] x) => (y) { y = Abs (x) }
Acos 22 (float[3,4,5] x) => (y) { y = Acos (x) }
Acosh 22 (float[3,4,5] x) => (y) { y = Acosh (x) }
Add 14 (float[3,4,5] x, float[5] y) => (sum) { sum = Add (x, y) }
AffineGrid 20 (float[2,3,4] theta) => (grid) <int64[5] size = {2,3,4,5,6}> { grid = AffineGrid <align_corners = 0>
  (theta, size) }
And 7 (bool[3,4,5,6] x, bool[5,6] y) => (and) { and = And (x, y) }
ArgMax 13 (float[2,3,4] data) => (result) { result = ArgMax <keepdims = 1> (data) }
ArgMin 13 (float[2,3,4] data) => (result) { result = ArgMin <keepdims = 1> (data) }
Asin 22 (float[3,4,5] x) => (y) { y = Asin (x) }
Asinh 22 (float[3,4,5] x) => (y) { y = Asinh (x) }
Atan 22 (float[3,4,5] x) => (y) { y = Atan (x) }
Atanh 22 (float[3,4,5] x) => (y) { y = Atanh (x) }
Attention 23 (float[2,3,4,8] Q, float[2,3,6,8] K, float[2,3,6,8] V) => (Y, qk_matmul_output) { Y, "", "",
  qk_matmul_output = Attention (Q, K, V) }
AveragePool 21 (float[1,4,8,8] x) => (y) { y = AveragePool <kernel_shape: ints = [2, 2], strides: ints = [2, 2]> (x) }
BatchNormalization 15 (float[2,3,4,5] x, float[3] s, float[3] bias, float[3] mean, float[3] var) => (y) { y =
  BatchNormalization (x, s, bias, mean, var) }
Bernoulli 22 (float[3,4] x) => (y) { y = Bernoulli (x) }
BitCast 26 (float[3,4] x) => (y) { y = BitCast <to = 6> (x) }
BitShift 21 (uint8[3,4] a, uint8[4] b) => (y) { y = BitShift <direction = "RIGHT"> (a, b) }
BitwiseAnd 18 (uint8[3,4,5,6] x, uint8[4,5,6] y) => (bitwiseand) { bitwiseand = BitwiseAnd (x, y) }
BitwiseNot 18 (uint8[3,4,5,6] x) => (bitwise_not) { bitwise_not = BitwiseNot (x) }
BitwiseOr 18 (int8[3,4,5,6] x, int8[3,4,5,6] y) => (bitwiseor) { bitwiseor = BitwiseOr (x, y) }
BitwiseXor 18 (uint8[3,4,5,6] x, uint8[4,5,6] y) => (bitwisexor) { bitwisexor = BitwiseXor (x, y) }
BlackmanWindow 21 () => (y) <int64 n = {4}> { y = BlackmanWindow (n) }
Cast 21 (float[3,4] x) => (y) { y = Cast <to = 6> (x) }
CastLike 21 (int64[3,4] a, float[3,4] b) => (y) { y = CastLike (a, b) }
CausalConvWithState 27 (float[2,4,8] input, float[4,1,4] weight) => (output, present_state) { output, present_state =
  CausalConvWithState (input, weight) }
Ceil 13 (float[3,4,5] x) => (y) { y = Ceil (x) }
Celu 28 (float[3,3,3,1] X) => (Y) { Y = Celu <alpha: float = 2> (X) }
CenterCropPad 18 (float[20,10,3] x) => (y) <int64[3] shape = {10,7,3}> { y = CenterCropPad (x, shape) }
Clip 13 (int8[3,4,5] x) => (y) <int8 min = {0}> { y = Clip (x, min) }
Col2Im 18 (float[1,12,12] x) => (y) <int64[2] i = {4,5}, int64[2] b = {2,2}> { y = Col2Im (x, i, b) }
Concat 13 (float[2] value0, float[2] value1) => (output) { output = Concat <axis = 0> (value0, value1) }
ConcatFromSequence 21 (float[3,4] x, float[2,4] z) => (y) { s = SequenceConstruct (x, z) y = ConcatFromSequence <axis =
  0> (s) }
Constant 25 () => (values) { values = Constant <value: tensor = float[5,5] const_tensor
  {1.7640524,0.4001572,0.978738,2.2408931,1.867558,-0.9772779,0.95008844,-0.1513572,-0.10321885,0.41059852,0.14404356,1.4542735,0.7610377,0.121675014,0.44386324,0.33367434,1.4940791,-0.20515826,0.3130677,-0.85409576,-2.5529897,0.6536186,0.8644362,-0.742165,2.2697546}>
  () }
ConstantOfShape 21 () => (y) <int64[2] s = {2,3}> { y = ConstantOfShape (s) }
Conv 22 (float[1,1,5,5] x, float[1,1,3,3] W) => (y) { y = Conv <kernel_shape: ints = [3, 3], pads: ints = [1, 1, 1,
  1]> (x, W) }
ConvInteger 10 (uint8[1,1,3,3] x, uint8[1,1,2,2] w, uint8 x_zero_point) => (y) { y = ConvInteger (x, w, x_zero_point)
  }
ConvTranspose 22 (float[1,1,3,4,5] X, float[1,2,3,3,3] W) => (Y) { Y = ConvTranspose (X, W) }
Cos 22 (float[3,4,5] x) => (y) { y = Cos (x) }
Cosh 22 (float[3,4,5] x) => (y) { y = Cosh (x) }
CumProd 26 (int32[2,3] x) => (y) <int32 axis = {0}> { y = CumProd (x, axis) }
CumSum 14 (int32[2,3] x) => (y) <int32 axis = {0}> { y = CumSum (x, axis) }
DFT 20 (float[2,5,3,1] x) => (y) <int64 n = {6}, int64 axis = {1}> { y = DFT <onesided = 1> (x, n, axis) }
DeformConv 22 (float[1,2,3,3] X, float[1,2,2,2] W, float[1,16,2,2] offset) => (Y) { Y = DeformConv <kernel_shape: ints
  = [2, 2], offset_group = 2, pads: ints = [0, 0, 0, 0]> (X, W, offset) }
DepthToSpace 21 (float[1,8,2,3] x) => (y) { y = DepthToSpace <blocksize = 2, mode = "CRD"> (x) }
DequantizeLinear 28 (uint8[1,3,3,2] x, float[3] x_scale, uint8[3] x_zero_point) => (y) { y = DequantizeLinear (x,
  x_scale, x_zero_point) }
Det 22 (float[3,2,2] x) => (y) { y = Det (x) }
Div 14 (float[3,4,5] x, float[5] y) => (z) { z = Div (x, y) }
Dropout 11 (float[3] x) => (y) { y = Dropout (x) }
DynamicQuantizeLinear 11 (float[3,4] x) => (y, y_scale, y_zero_point) { y, y_scale, y_zero_point =
  DynamicQuantizeLinear (x) }
Einsum 21 (float[2,3,4] a, float[4,5] b) => (y) { y = Einsum <equation = "bij,jk->bki"> (a, b) }
Elu 22 (float[3,4,5] x) => (y) { y = Elu (x) }
Equal 19 (int32[3,4,5] x, int32[5] y) => (z) { z = Equal (x, y) }
Erf 13 (float[1,3,32,32] x) => (y) { y = Erf (x) }
Exp 13 (float[3,4,5] x) => (y) { y = Exp (x) }
Expand 13 (float[3,1] data) => (expanded) <int64[2] new_shape = {3,4}> { expanded = Expand (data, new_shape) }
EyeLike 22 (int32[4,4] x) => (y) { y = EyeLike (x) }
Flatten 25 (float[5,4,3,2] a) => (b) { b = Flatten (a) }
Floor 13 (float[3,4,5] x) => (y) { y = Floor (x) }
GRU 21 (float[4,2,3] x, float[1,15,3] w, float[1,15,5] r) => (y, y_h) { y, y_h = GRU <hidden_size = 5> (x, w, r) }
Gather 13 (float[5,4,3,2] data, int64[3] indices) => (y) { y = Gather <axis = 0> (data, indices) }
GatherElements 21 (float[3,4] x, int64[3,2] i) => (y) { y = GatherElements <axis = 1> (x, i) }
GatherND 21 (float[2,3,4] x, int64[2,5,1] i) => (y) { y = GatherND <batch_dims = 1> (x, i) }
Gelu 20 (float[3,4,5] x) => (y) { y = Gelu (x) }
Gemm 13 (float[2,10] a, float[10,3] b) => (y) { y = Gemm (a, b) }
GlobalAveragePool 22 (float[1,3,5,5] x) => (y) { y = GlobalAveragePool (x) }
GlobalLpPool 21 (float[2,4,5,6] x) => (y) { y = GlobalLpPool <p = 2> (x) }
GlobalMaxPool 22 (float[1,3,5,5] x) => (y) { y = GlobalMaxPool (x) }
Greater 13 (float[3,4,5] x, float[5] y) => (greater) { greater = Greater (x, y) }
GreaterOrEqual 16 (float[3,4,5] x, float[5] y) => (greater_equal) { greater_equal = GreaterOrEqual (x, y) }
GridSample 20 (float[2,4,5,6] x, float[2,3,4,2] g) => (y) { y = GridSample <align_corners = 0, mode = "linear",
  padding_mode = "zeros"> (x, g) }
GroupNormalization 21 (float[3,4,2,2] x, float[4] scale, float[4] bias) => (y) { y = GroupNormalization <num_groups =
  2> (x, scale, bias) }
HammingWindow 21 () => (y) <int64 n = {4}> { y = HammingWindow (n) }
HannWindow 21 () => (y) <int64 n = {4}> { y = HannWindow (n) }
HardSigmoid 22 (float[3,4,5] x) => (y) { y = HardSigmoid (x) }
HardSwish 22 (float[3,4,5] x) => (y) { y = HardSwish (x) }
Hardmax 13 (float[3,4,5] x) => (y) { y = Hardmax (x) }
Identity 25 (float[1,1,2,2] x) => (y) { y = Identity (x) }
If 21 (float[4] x, bool c) => (y) { y = If (c) <then_branch = a () => (float[4] t) { t = Relu (x) }, else_branch = b
  () => (float[4] u) { u = Neg (x) }> }
InstanceNormalization 22 (float[2,3,4,5] x, float[3] s, float[3] bias) => (y) { y = InstanceNormalization <epsilon:
  float = 0.01> (x, s, bias) }
IsInf 21 (float[3,4] x) => (y) { y = IsInf (x) }
IsNaN 21 (float[3,4] x) => (y) { y = IsNaN (x) }
LRN 13 (float[5,5,5,5] x) => (y) { y = LRN <size = 3> (x) }
LSTM 22 (float[3,1,2] X, float[2,12,2] W, float[2,12,3] R) => (Y_h, Y_c) { "", Y_h, Y_c = LSTM <direction =
  "bidirectional", hidden_size = 3> (X, W, R) }
LayerNormalization 17 (float[2,3,4,5] X, float[5] W, float[5] B) => (Y, Mean, InvStdDev) { Y, Mean, InvStdDev =
  LayerNormalization (X, W, B) }
LeakyRelu 16 (float[3,4,5] x) => (y) { y = LeakyRelu (x) }
Less 13 (float[3,4,5] x, float[5] y) => (less) { less = Less (x, y) }
LessOrEqual 16 (float[3,4,5] x, float[5] y) => (less_equal) { less_equal = LessOrEqual (x, y) }
LinearAttention 27 (float[2,1,32] query, float[2,1,32] key, float[2,1,32] value) => (output, present_state) { output,
  present_state = LinearAttention <kv_num_heads = 4, q_num_heads = 4, update_rule = "linear"> (query, key, value) }
Log 13 (float[3,4,5] x) => (y) { y = Log (x) }
LogSoftmax 13 (float[3,4,5] x) => (y) { y = LogSoftmax (x) }
Loop 21 (float[4] x) => (y) <int64 n = {3}> { y = Loop (n, "", x) <body = b (int64 i, bool c, float[4] s) => (bool d,
  float[4] t) { d = Identity (c) t = Add (s, s) }> }
LpNormalization 22 (float[2,2,3] x) => (y) { y = LpNormalization <axis = -1, p = 1> (x) }
LpPool 21 (float[2,4,5,6] x) => (y) { y = LpPool <kernel_shape: ints = [2, 3], p = 1> (x) }
MatMul 13 (float[2,3,4] a, float[2,4,3] b) => (c) { c = MatMul (a, b) }
MatMulInteger 21 (uint8[2,300] a, uint8[300,2] b) => (y) { y = MatMulInteger (a, b) }
Max 21 (float[3,4] a, float[4] b, float[3,1] c) => (y) { y = Max (a, b, c) }
MaxPool 21 (float[2,4,5,6] x) => (y, i) { y, i = MaxPool <kernel_shape: ints = [2, 3], pads: ints = [1, 0, 0, 1]> (x)
  }
MaxRoiPool 21 (float[1,2,6,6] x) => (y) <float[1,5] rois = {0,0,0,3,3}> { y = MaxRoiPool <pooled_shape: ints = [2, 2]>
  (x, rois) }
MaxUnpool 21 (float[1,2,2,2] x, int64[1,2,2,2] i) => (y) { y = MaxUnpool <kernel_shape: ints = [2, 2], strides: ints =
  [2, 2]> (x, i) }
Mean 21 (float[3,4] a, float[4] b, float[3,1] c) => (y) { y = Mean (a, b, c) }
MeanVarianceNormalization 13 (float[3,3,3,1] X) => (Y) { Y = MeanVarianceNormalization (X) }
MelWeightMatrix 17 (int64 rate, float low, float high) => (y) <int64 n = {8}, int64 m = {16}> { y = MelWeightMatrix
  (n, m, rate, low, high) }
Min 21 (int64[3,4] a, int64[4] b) => (y) { y = Min (a, b) }
Mish 21 (float[3,4] x) => (y) { y = Mish (x) }
Mod 28 (int32[3,2,5] x, int32[1] y) => (z) { z = Mod (x, y) }
Mul 14 (float[3,4,5] x, float[5] y) => (z) { z = Mul (x, y) }
Multinomial 22 (float[3,4] x) => (y) { y = Multinomial <sample_size = 5> (x) }
Neg 13 (float[3,4,5] x) => (y) { y = Neg (x) }
NegativeLogLikelihoodLoss 22 (float[3,5,6,6,5,3,4] input, int64[3,6,6,5,3,4] target) => (loss) { loss =
  NegativeLogLikelihoodLoss <reduction = "none"> (input, target) }
Not 1 (bool[3,4,5,6] x) => (not) { not = Not (x) }
OneHot 21 (int64[3,2] i) => (y) <int64 depth = {5}, float[2] values = {-1,2}> { y = OneHot <axis = 1> (i, depth,
  values) }
Or 7 (bool[3,4,5,6] x, bool[5,6] y) => (or) { or = Or (x, y) }
PRelu 16 (float[3,4,5] x, float[5] slope) => (y) { y = PRelu (x, slope) }
Pad 25 (int32[1,3,4,5] x) => (y) <int64[8] pads = {0,0,1,1,0,0,1,1}> { y = Pad <mode = "edge"> (x, pads) }
Pow 15 (float[3,4,5] x, float[3,4,5] y) => (z) { z = Pow (x, y) }
QLinearConv 10 (uint8[1,1,7,7] x, float x_scale, uint8 x_zero_point, uint8[1,1,1,1] w, float[1] w_scale, uint8[1]
  w_zero_point, float y_scale, uint8 y_zero_point) => (y) { y = QLinearConv (x, x_scale, x_zero_point, w, w_scale,
  w_zero_point, y_scale, y_zero_point) }
QLinearMatMul 21 (int8[2,2,4] a, float[1] a_scale, int8[1] a_zero_point, int8[2,4,3] b, float[1] b_scale, int8[1]
  b_zero_point, float[1] y_scale, int8[1] y_zero_point) => (y) { y = QLinearMatMul (a, a_scale, a_zero_point, b,
  b_scale, b_zero_point, y_scale, y_zero_point) }
QuantizeLinear 28 (float[1,3,3,2] x, float[3] y_scale, uint8[3] y_zero_point) => (y) { y = QuantizeLinear (x, y_scale,
  y_zero_point) }
RMSNormalization 23 (float[2,3,4,5] X, float[5] W) => (Y) { Y = RMSNormalization (X, W) }
RNN 22 (float[3,1,2] X, float[2,4,2] W, float[2,4,4] R) => (Y_h) { "", Y_h = RNN <direction = "bidirectional",
  hidden_size = 4> (X, W, R) }
RandomNormal 22 () => (y) { y = RandomNormal <shape: ints = [3, 4]> () }
RandomNormalLike 22 (float[3,4] x) => (y) { y = RandomNormalLike (x) }
RandomUniform 22 () => (y) { y = RandomUniform <shape: ints = [3, 4]> () }
RandomUniformLike 22 (float[3,4] x) => (y) { y = RandomUniformLike (x) }
Range 21 () => (y) <int64 a = {0}, int64 b = {4}, int64 c = {1}> { y = Range (a, b, c) }
Reciprocal 13 (float[3,4,5] x) => (y) { y = Reciprocal (x) }
ReduceL1 18 (float[3,2,2] data, int64[0] axes) => (reduced) { reduced = ReduceL1 <keepdims = 1> (data, axes) }
ReduceL2 18 (float[3,2,2] data, int64[0] axes) => (reduced) { reduced = ReduceL2 <keepdims = 1> (data, axes) }
ReduceLogSum 28 (float[3,4,5] data, int64[0] axes) => (reduced) { reduced = ReduceLogSum (data, axes) }
ReduceLogSumExp 28 (double[3,2,2] data, int64[0] axes) => (reduced) { reduced = ReduceLogSumExp <keepdims = 1> (data,
  axes) }
ReduceMax 18 (float[3,2,2] data) => (reduced) { reduced = ReduceMax <keepdims = 1> (data) }
ReduceMean 18 (float[3,2,2] data, int64[0] axes) => (reduced) { reduced = ReduceMean <keepdims = 1> (data, axes) }
ReduceMin 18 (float[3,2,2] data) => (reduced) { reduced = ReduceMin <keepdims = 1> (data) }
ReduceProd 18 (float[3,2,2] data) => (reduced) { reduced = ReduceProd <keepdims = 1> (data) }
ReduceSum 13 (float[3,2,2] data, int64[0] axes) => (reduced) { reduced = ReduceSum <keepdims = 1> (data, axes) }
ReduceSumSquare 18 (float[3,2,2] data, int64[0] axes) => (reduced) { reduced = ReduceSumSquare <keepdims = 1> (data,
  axes) }
Relu 14 (float[3,4,5] x) => (y) { y = Relu (x) }
Reshape 25 (float[2,3,4] data) => (reshaped) <int64[1] shape = {24}> { reshaped = Reshape (data, shape) }
Resize 21 (float[2,4,5,6] x) => (y) <int64[2] sizes = {3,4}> { y = Resize <axes: ints = [2, 3]> (x, "", "", sizes) }
ReverseSequence 21 (float[4,3,2] a, int64[3] b) => (y) { y = ReverseSequence (a, b) }
RoiAlign 16 (float[2,4,5,6] x, float[3,4] r, int64[3] b) => (y) { y = RoiAlign <mode = "max", output_height = 2,
  output_width = 3, sampling_ratio = 2, spatial_scale: float = 0.9> (x, r, b) }
RotaryEmbedding 23 (float[2,4,3,8] input, float[2,3,4] cos_cache, float[2,3,4] sin_cache) => (output) { output =
  RotaryEmbedding (input, cos_cache, sin_cache) }
Round 21 (float[3,4] x) => (y) { y = Round (x) }
STFT 17 (float[2,20,1] x, float[8] w) => (y) <int64 step = {3}> { y = STFT (x, step, w) }
Scan 9 (float[2] initial, float[3,2] x) => (y, z) { y, z = Scan (initial, x) <num_scan_inputs = 1, body = scan_body
  (float[2] sum_in, float[2] next) => (float[2] sum_out, float[2] scan_out) { sum_out = Add (sum_in, next) scan_out =
  Identity (sum_out) }> }
ScatterElements 21 (float[3,4] x, int64[6,4] i, float[6,4] u) => (y) { y = ScatterElements <reduction = "mul"> (x, i,
  u) }
ScatterND 18 (float[4,4,4] data, int64[2,1] indices, float[2,4,4] updates) => (y) { y = ScatterND (data, indices,
  updates) }
Selu 22 (float[3,4,5] x) => (y) { y = Selu (x) }
SequenceAt 21 (float[3,4] x, float[2,4] z) => (y) <int64 i = {1}> { s = SequenceConstruct (x, z) y = SequenceAt (s, i)
  }
SequenceConstruct 21 (float[3,4] x, float[2,4] z) => (y) { s = SequenceConstruct (x, z) y = ConcatFromSequence <axis =
  0> (s) }
SequenceEmpty 21 (float[3,4] x) => (y) <int64 i = {0}> { s = SequenceEmpty () t = SequenceInsert (s, x) y = SequenceAt
  (t, i) }
SequenceErase 21 (float[3,4] x, float[2,4] z) => (y) <int64 i = {0}> { s = SequenceConstruct (x, z) t = SequenceErase
  (s) y = SequenceAt (t, i) }
SequenceInsert 21 (float[3,4] x) => (y) <int64 i = {0}> { s = SequenceEmpty () t = SequenceInsert (s, x) y = SequenceAt
  (t, i) }
SequenceLength 21 (float[3,4] x) => (y) { s = SequenceConstruct (x, x) y = SequenceLength (s) }
Shape 25 (float[2,3] x) => (y) { y = Shape (x) }
Shrink 9 (float[5] x) => (y) { y = Shrink <lambd: float = 1.5> (x) }
Sigmoid 13 (float[3,4,5] x) => (y) { y = Sigmoid (x) }
Sign 21 (float[3,4] x) => (y) { y = Sign (x) }
SimplifiedLayerNormalization 21 (float[2,3,4] x, float[4] s) => (y) { y = SimplifiedLayerNormalization (x, s) }
Sin 22 (float[3,4,5] x) => (y) { y = Sin (x) }
Sinh 22 (float[3,4,5] x) => (y) { y = Sinh (x) }
Size 25 (float[2,3] x) => (y) { y = Size (x) }
Slice 13 (float[20,10,5] x) => (y) <int64[3] starts = {0,0,3}, int64[3] ends = {20,10,4}> { y = Slice (x, starts,
  ends) }
Softmax 21 (float[3,4,5] x) => (y) { y = Softmax (x) }
SoftmaxCrossEntropyLoss 13 (float[3,5,6,6,5,3,4] x, int64[3,6,6,5,3,4] y) => (z) { z = SoftmaxCrossEntropyLoss
  <reduction = "none"> (x, y) }
Softplus 22 (float[3,4,5] x) => (y) { y = Softplus (x) }
Softsign 22 (float[3,4,5] x) => (y) { y = Softsign (x) }
SpaceToDepth 21 (float[1,2,4,6] x) => (y) { y = SpaceToDepth <blocksize = 2> (x) }
Split 13 (float[2,6] input) => (output_1, output_2) { output_1, output_2 = Split <axis = 1> (input) }
SplitToSequence 21 (float[3,4] x) => (y) <int64 i = {2}> { s = SplitToSequence (x) y = SequenceAt (s, i) }
Sqrt 13 (float[3,4,5] x) => (y) { y = Sqrt (x) }
Squeeze 25 (float[1,3,4,5] x) => (y) <int64[1] axes = {0}> { y = Squeeze (x, axes) }
Sub 14 (float[3,4,5] x, float[5] y) => (z) { z = Sub (x, y) }
Sum 13 (float[3] data_0) => (result) { result = Sum (data_0) }
SwiGLU 28 (float[2,4] a, float[2,4] b) => (y) { y = SwiGLU (a, b) }
Swish 24 (float[3] x) => (y) { y = Swish <alpha: float = 1> (x) }
Tan 22 (float[3,4,5] x) => (y) { y = Tan (x) }
Tanh 13 (float[3,4,5] x) => (y) { y = Tanh (x) }
TensorScatter 24 (float[2,3,5,4] x, float[2,3,2,4] u, int64[2] at) => (y) { y = TensorScatter <mode = "circular"> (x,
  u, at) }
ThresholdedRelu 22 (float[3,4,5] x) => (y) { y = ThresholdedRelu (x) }
Tile 13 (float[2,2] x) => (z) <int64[2] y = {2,2}> { z = Tile (x, y) }
TopK 21 (float[3,4] x) => (values, places) <int64[1] k = {3}> { values, places = TopK <axis = 0> (x, k) }
Transpose 25 (float[2,3,4] data) => (transposed) { transposed = Transpose (data) }
Trilu 21 (float[2,4,5] x) => (y) { y = Trilu (x) }
Unsqueeze 25 (float[3,4,5] x) => (y) <int64[1] axes = {0}> { y = Unsqueeze (x, axes) }
Where 21 (bool[3,4] c, float[3,4] a, float[4] b) => (y) { y = Where (c, a, b) }
Xor 7 (bool[3,4,5,6] x, bool[5,6] y) => (xor) { xor = Xor (x, y) }
ai.onnx.ml::ArrayFeatureExtractor 21 (float[3,4] x, int64[2] i) => (y) { y = ai.onnx.ml.ArrayFeatureExtractor (x, i) }
ai.onnx.ml::Binarizer 21 (float[3,4] x) => (y) { y = ai.onnx.ml.Binarizer <threshold: float = 0.5> (x) }
ai.onnx.ml::FeatureVectorizer 21 (float[3,4] a, float[3,2] b) => (y) { y = ai.onnx.ml.FeatureVectorizer
  <inputdimensions = [3, 4]> (a, b) }
ai.onnx.ml::Imputer 21 (float[3,2] x) => (y) { y = ai.onnx.ml.Imputer <imputed_value_floats: floats = [1.5, 2],
  replaced_value_float: float = 0> (x) }
ai.onnx.ml::LinearClassifier 21 (float[3,2] x) => (label, y) { label, y = ai.onnx.ml.LinearClassifier
  <classlabels_ints = [5, 7], coefficients: floats = [1, 2, 3, 4], intercepts: floats = [0.5, 1], post_transform =
  "SOFTMAX"> (x) }
ai.onnx.ml::LinearRegressor 21 (float[3,2] x) => (y) { y = ai.onnx.ml.LinearRegressor <coefficients: floats = [1, 2, 3,
  4], intercepts: floats = [0.5, 1], targets = 2> (x) }
ai.onnx.ml::Normalizer 21 (float[3,4] x) => (y) { y = ai.onnx.ml.Normalizer <norm = "L2"> (x) }
ai.onnx.ml::OneHotEncoder 21 (int64[3,4] x) => (y) { y = ai.onnx.ml.OneHotEncoder <cats_int64s = [3, 1, 2]> (x) }
ai.onnx.ml::Scaler 21 (float[3,2] x) => (y) { y = ai.onnx.ml.Scaler <offset: floats = [1, 2], scale: floats = [0.5, 4]>
  (x) }
com.microsoft::Attention 21 (float[2,4,8] x, float[8,24] w, float[24] b, int32[2] ends) => (y) { y =
  com.microsoft.Attention <num_heads = 2> (x, w, b, ends) }
com.microsoft::BiasGelu 21 (float[3,4] x, float[4] b) => (y) { y = com.microsoft.BiasGelu (x, b) }
com.microsoft::FastGelu 21 (float[3,4] x, float[4] b) => (y) { y = com.microsoft.FastGelu (x, b) }
com.microsoft::DequantizeLinear 21 (uint8[3,4] x) => (y) <float s = {0.02}, uint8 z = {120}> { y =
  com.microsoft.DequantizeLinear (x, s, z) }
com.microsoft::DynamicQuantizeMatMul 21 (float[3,4] a, uint8[4,5] b) => (y) <float s = {0.02}> { y =
  com.microsoft.DynamicQuantizeMatMul (a, b, s) }
com.microsoft::ExpandDims 21 (float[3,4] x) => (y) <int32 k = {1}> { y = com.microsoft.ExpandDims (x, k) }
com.microsoft::FusedConv 21 (float[1,3,5,5] x, float[4,3,3,3] w, float[4] b) => (y) { y = com.microsoft.FusedConv
  <activation = "Relu"> (x, w, b) }
com.microsoft::FusedGemm 21 (float[3,4] a, float[4,5] b) => (y) { y = com.microsoft.FusedGemm <activation = "Relu">
  (a, b) }
com.microsoft::FusedMatMul 21 (float[2,3,4] a, float[2,3,5] b) => (y) { y = com.microsoft.FusedMatMul <alpha: float =
  0.5, transA = 1> (a, b) }
com.microsoft::GroupQueryAttention 21 (float[2,3,16] q, float[2,3,8] k, float[2,3,8] v) => (y) <int32[2] ends = {2,2},
  int32 all = {3}> { y = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2> (q, k, v, "", "", ends,
  all) }
com.microsoft::QAttention 21 (uint8[2,4,8] x, int8[8,24] w, float[24] b) => (y) <float xs = {0.02}, float ws = {0.01},
  uint8 xz = {120}, int8 wz = {3}> { y = com.microsoft.QAttention <num_heads = 2> (x, w, b, xs, ws, "", xz, wz) }
com.microsoft::EmbedLayerNormalization 21 (int32[2,3] i, int32[2,3] s, float[9,4] w, float[5,4] p, float[2,4] t,
  float[4] g, float[4] b, int32[2,3] m) => (y, n) { y, n = com.microsoft.EmbedLayerNormalization (i, s, w, p, t, g, b,
  m) }
com.microsoft::GatherBlockQuantized 21 (uint8[9,16] x, int64[2,3] i, float[9,2] s) => (y) { y =
  com.microsoft.GatherBlockQuantized <bits = 4, block_size = 16> (x, i, s) }
com.microsoft::GatherND 21 (float[3,4] x, int64[2,1] i) => (y) { y = com.microsoft.GatherND (x, i) }
com.microsoft::Gelu 21 (float[3,4] x) => (y) { y = com.microsoft.Gelu (x) }
com.microsoft::GridSample 21 (float[2,3,4,5] x, float[2,3,3,2] g) => (y) { y = com.microsoft.GridSample (x, g) }
com.microsoft::MatMulIntegerToFloat 21 (uint8[2,3,4] a, int8[4,5] b, float s, float[5] t) => (y) { y =
  com.microsoft.MatMulIntegerToFloat (a, b, s, t) }
com.microsoft::MatMulNBits 21 (float[2,3,32] x, uint8[6,2,8] w, float[12] s) => (y) { y = com.microsoft.MatMulNBits
  <K = 32, N = 6, bits = 4, block_size = 16> (x, w, s) }
com.microsoft::MultiHeadAttention 21 (float[2,3,8] q, float[2,5,8] k, float[2,5,12] v, float[28] b, int32[2,5] pad) =>
  (y) { y = com.microsoft.MultiHeadAttention <num_heads = 4> (q, k, v, b, pad) }
com.microsoft::NhwcMaxPool 21 (uint8[1,5,5,3] x) => (y) { y = com.microsoft.NhwcMaxPool <kernel_shape: ints = [2, 2]>
  (x) }
com.microsoft::Pad 21 (float[3,4] x) => (y) <int64[4] pads = {0, 1, 1, 0}> { y = com.microsoft.Pad (x, pads) }
com.microsoft::QGemm 21 (uint8[3,4] a, uint8[4,5] b) => (y) <float s = {0.02}, uint8 z = {120}> { y =
  com.microsoft.QGemm (a, s, z, b, s, z, "", s, z) }
com.microsoft::QLinearAdd 21 (uint8[3,4] a, uint8[4] b) => (y) <float s = {0.02}, uint8 z = {120}> { y =
  com.microsoft.QLinearAdd (a, s, z, b, s, z, s, z) }
com.microsoft::QLinearAveragePool 21 (uint8[2,3,4,4] x) => (y) <float s = {0.02}, uint8 z = {120}> { y =
  com.microsoft.QLinearAveragePool <kernel_shape: ints = [2, 2]> (x, s, z, s, z) }
com.microsoft::QLinearConv 21 (uint8[1,5,5,3] x, int8[4,3,3,3] w) => (y) <float s = {0.02}, uint8 z = {120}, int8 o =
  {0}> { y = com.microsoft.QLinearConv <channels_last = 1> (x, s, z, w, s, o, s, z) }
com.microsoft::QLinearConcat 21 (uint8[3,4] a, uint8[2,4] b) => (y) <float s = {0.02}, uint8 z = {120}> { y =
  com.microsoft.QLinearConcat <axis = 0> (s, z, a, s, z, b, s, z) }
com.microsoft::QLinearGlobalAveragePool 21 (uint8[2,3,4,4] x) => (y) <float s = {0.02}, uint8 z = {120}> { y =
  com.microsoft.QLinearGlobalAveragePool (x, s, z, s, z) }
com.microsoft::QLinearLeakyRelu 21 (uint8[3,4] x) => (y) <float s = {0.02}, uint8 z = {120}> { y =
  com.microsoft.QLinearLeakyRelu <alpha: float = 0.1> (x, s, z, s, z) }
com.microsoft::QLinearMul 21 (uint8[3,4] a, uint8[4] b) => (y) <float s = {0.02}, uint8 z = {120}> { y =
  com.microsoft.QLinearMul (a, s, z, b, s, z, s, z) }
com.microsoft::QLinearSoftmax 21 (uint8[3,4] x) => (y) <float s = {0.02}, uint8 z = {120}> { y =
  com.microsoft.QLinearSoftmax <opset = 13> (x, s, z, s, z) }
com.microsoft::QLinearWhere 21 (bool[3,4] c, uint8[3,4] a, uint8[4] b) => (y) <float s = {0.02}, uint8 z = {120}> { y =
  com.microsoft.QLinearWhere (c, a, s, z, b, s, z, s, z) }
com.microsoft::QuantizeLinear 21 (float[3,4] x) => (y) <float s = {0.02}, uint8 z = {120}> { y =
  com.microsoft.QuantizeLinear (x, s, z) }
com.microsoft::QLinearSigmoid 21 (uint8[3,4] x) => (y) <float s = {0.02}, uint8 z = {120}> { y =
  com.microsoft.QLinearSigmoid (x, s, z, s, z) }
com.microsoft::QuickGelu 21 (float[3,4] x) => (y) { y = com.microsoft.QuickGelu <alpha: float = 1.3> (x) }
com.microsoft::RotaryEmbedding 21 (float[2,3,16] x, int64[2,3] i, float[9,4] c, float[9,4] s) => (y) { y =
  com.microsoft.RotaryEmbedding (x, i, c, s) }
com.microsoft::SkipLayerNormalization 21 (float[2,3,4] x, float[2,3,4] s, float[4] g, float[4] b, float[4] c) => (y,
  total) { y, "", "", total = com.microsoft.SkipLayerNormalization <epsilon: float = 1e-05> (x, s, g, b, c) }
com.microsoft::SkipSimplifiedLayerNormalization 21 (float[2,3,4] x, float[2,3,4] s, float[4] g) => (y) { y =
  com.microsoft.SkipSimplifiedLayerNormalization <epsilon: float = 1e-05> (x, s, g) }
com.microsoft::Trilu 21 (float[3,4] x) => (y) { y = com.microsoft.Trilu (x) }
com.microsoft.nchwc::AveragePool 21 (float[1,16,5,5] x) => (y) { y = com.microsoft.nchwc.AveragePool <kernel_shape:
  ints = [2, 2]> (x) }
com.microsoft.nchwc::Conv 21 (float[1,16,5,5] x, float[16,16,3,3] w) => (y) { y = com.microsoft.nchwc.Conv (x, w) }
com.microsoft.nchwc::GlobalAveragePool 21 (float[1,16,5,5] x) => (y) { y = com.microsoft.nchwc.GlobalAveragePool (x) }
com.microsoft.nchwc::GlobalMaxPool 21 (float[1,16,5,5] x) => (y) { y = com.microsoft.nchwc.GlobalMaxPool (x) }
com.microsoft.nchwc::MaxPool 21 (float[1,16,5,5] x) => (y) { y = com.microsoft.nchwc.MaxPool <kernel_shape: ints =
  [2, 2]> (x) }
com.microsoft.nchwc::ReorderInput 21 (float[1,16,5,5] x) => (y) { y = com.microsoft.nchwc.ReorderInput (x) }
com.microsoft.nchwc::ReorderOutput 21 (float[1,16,5,5] x) => (y) { y = com.microsoft.nchwc.ReorderOutput <channels =
  16> (x) }
com.microsoft.nchwc::Upsample 21 (float[1,16,5,5] x) => (y) { y = com.microsoft.nchwc.Upsample <scales: ints =
  [1, 1, 2, 2]> (x) }
"""
_PARTS = {
    name: (opset, graph) for name, opset, graph in re.findall(r"^(\S+) (\d+) (.+(?:\n  .+)*)$", _TEXTS, re.MULTILINE)
}


def has_example(operator: str) -> bool:
    """Whether there is an example of an operator: a graph has it in parts, not as opaque alone."""
    return operator in _PARTS


def read_example(operator: str) -> Any:
    """A model of one node of an operator, for one of sequences with those that make them and take them apart.

    None of one that has none here, since no graph has it but as opaque.

    Examples
    --------
    >>> [node.op_type for node in read_example("Conv").graph.node], read_example("NonZero")
    (['Conv'], None)
    """
    from onnx import parser

    if operator not in _PARTS:
        return None
    opset, graph = _PARTS[operator]
    domain = operator.rpartition("::")[0]
    also = f', "{domain}": 1' if domain else ""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}{also}]> one {graph}')
