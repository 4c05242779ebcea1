"""Nodes of ONNX with operands of any dtype: one or more for each operator that the importer takes beyond floats."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
f32 = np.float32


@dataclass(frozen=True)
class NodeCase:
    """One node on arrays, some of them constants of the model; inputs called "" are left out."""

    op: str
    inputs: dict[str, Array]
    constants: dict[str, Array] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)
    opset: int = 21
    reads: tuple[str, ...] = ()
    domain: str = ""

    @property
    def key(self) -> str:
        """The operator in the importer's table."""
        return f"{self.domain}::{self.op}" if self.domain else self.op

    @property
    def model(self) -> Any:
        """The model of the one node; its outputs' types are left to the runtime."""
        reads = self.reads or (*self.inputs, *self.constants)
        node = helper.make_node(self.op, reads, self.outputs, domain=self.domain, **self.attrs)
        graph = helper.make_graph(
            [node],
            "one",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in self.inputs.items()
            ],
            [onnx.ValueInfoProto(name=name) for name in self.outputs if name],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", self.opset), *([helper.make_opsetid(self.domain, 1)] if self.domain else [])]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def __str__(self) -> str:
        attrs = ",".join(f"{key}={value}" for key, value in self.attrs.items())
        return f"{self.op}({','.join(a.dtype.name for a in self.inputs.values())}){attrs}".replace(" ", "")


def floats(*shape: int, seed: int = 1, dtype: Any = f32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def ints(low: int, high: int, *shape: int, seed: int = 1, dtype: Any = np.int64) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


def one(op: str, x: Array, **attrs: Any) -> NodeCase:
    return NodeCase(op, {"x": x}, {}, attrs)


def two(op: str, a: Array, b: Array, **attrs: Any) -> NodeCase:
    return NodeCase(op, {"a": a, "b": b}, {}, attrs)


X = floats(3, 4)
ROW = floats(4, seed=2)
SMALL = np.tanh(X)
TRUE, OTHER = X > 0, ROW > 0
N, M = ints(0, 4, 3, 4), ints(1, 5, 4, seed=2)
IMAGE = floats(2, 4, 5, 6)
CHANNEL = floats(4, seed=3)
BYTES, BYTES_2 = ints(0, 256, 3, 4, dtype=np.uint8), ints(0, 256, 4, 5, seed=2, dtype=np.uint8)
SCALES = {"sx": f32(0.01), "zx": np.uint8(120), "sw": np.abs(floats(4)) / f32(50), "zw": np.zeros(4, np.int8)}
SCALES |= {"sy": f32(0.03), "zy": np.uint8(90)}
CELLS = i64(0, 3, 9, 14, 16, 19, 24, 31).reshape(1, 2, 2, 2)
CIRCULAR = {"mode": "circular"}
MICROSOFT = "com.microsoft"
BLOCKS = "com.microsoft.nchwc"
"""ONNX Runtime's domain of operators whose tensors have channels in blocks."""
TURNED = {"q": (1, 5, 64), "k": (1, 5, 32), "v": (1, 5, 32), "past": (1, 2, 3, 16), "before": (1, 2, 3, 16)}
ANGLES = (np.arange(8)[:, None] * 0.3 ** np.arange(8)).astype(np.float32)
HEADS = ((1, 3, 8), (1, 3, 8), (1, 3, 8), (1, 2, 3, 7), (1, 2, 4, 4), (1, 2, 4, 4))
"""Shapes of an attention's operands with keys of before."""
LOOKING = ((4, 2, 3), (1, 20, 3), (1, 20, 5), (1, 2, 5), (1, 2, 5), (1, 15))
"""Shapes of an LSTM's operands, whose gates look at the cell."""

NODES = [
    *(
        one(op, X)
        for op in [
            "Sin",
            "Cos",
            "Tan",
            "Sinh",
            "Cosh",
            "Asinh",
            "Atan",
            "Ceil",
            "Floor",
            "Round",
            "Sign",
            "Erf",
            "Softplus",
            "Softsign",
        ]
    ),
    *(
        one(op, X)
        for op in [
            "Mish",
            "HardSwish",
            "HardSigmoid",
            "Elu",
            "Selu",
            "Celu",
            "ThresholdedRelu",
            "Gelu",
            "IsNaN",
            "IsInf",
        ]
    ),
    *(one(op, SMALL) for op in ("Asin", "Acos", "Atanh")),
    *(one(op, np.abs(X) + 1) for op in ("Acosh", "Log", "Reciprocal")),
    one("Gelu", X, approximate="tanh"),
    one("IsInf", np.array([1, np.inf, -np.inf], f32), detect_negative=0),
    one("IsInf", np.array([1, np.inf, -np.inf], f32), detect_positive=0),
    one("HardSigmoid", X, alpha=0.3, beta=0.6),
    one("Not", TRUE),
    one("BitwiseNot", N),
    *(two(op, TRUE, OTHER) for op in ("And", "Or", "Xor")),
    *(two(op, N, M) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    *(two(op, X, ROW) for op in ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "PRelu")),
    two("Equal", N, M),
    two("BitShift", N.astype(np.uint32), M.astype(np.uint32), direction="LEFT"),
    two("BitShift", N.astype(np.uint8), M.astype(np.uint8), direction="RIGHT"),
    two("Mod", N, M),
    two("Mod", X, ROW, fmod=1),
    two("Pow", np.abs(X), ROW),
    two("Pow", X, np.array(2, np.int64)),
    NodeCase("Max", {"a": X, "b": ROW, "c": floats(3, 1, seed=4)}),
    NodeCase("Min", {"a": N, "b": M}),
    NodeCase("Max", {"a": X}),
    NodeCase("Mean", {"a": X, "b": ROW, "c": floats(3, 1, seed=4)}),
    NodeCase("Where", {"c": TRUE, "a": X, "b": ROW}),
    one("Cast", X, to=TensorProto.INT32),
    one("Cast", N, to=TensorProto.BOOL),
    one("Cast", TRUE, to=TensorProto.DOUBLE),
    two("CastLike", N, X),
    two("Einsum", floats(2, 3, 4), floats(4, 5), equation="bij,jk->bki"),
    one("Einsum", floats(4, 4, 2), equation="iij->j"),
    one("Trilu", floats(2, 4, 5)),
    NodeCase("Trilu", {"x": N}, {"k": np.array(-1)}, {"upper": 0}),
    *(NodeCase(op, {"x": np.abs(X) + f32(0.5)}, {"axes": i64(1)}) for op in ("ReduceL1", "ReduceL2", "ReduceLogSum")),
    NodeCase("ReduceSumSquare", {"x": X}, {"axes": i64(0)}, {"keepdims": 0}),
    NodeCase("ReduceLogSumExp", {"x": X}, {"axes": i64(-1)}),
    NodeCase("ReduceMin", {"x": X}, {"axes": i64(0)}),
    NodeCase("ReduceProd", {"x": X}, {"axes": i64(0)}),
    one("ArgMax", X, axis=1, keepdims=0),
    one("ArgMin", N, axis=0),
    NodeCase(
        "ConvTranspose",
        {"x": IMAGE, "w": floats(4, 3, 3, 2), "b": floats(6)},
        {},
        {"group": 2, "strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 2]},
    ),
    two("ConvTranspose", IMAGE, floats(4, 2, 3, 4), strides=[2, 2], auto_pad="SAME_UPPER"),
    two("ConvTranspose", IMAGE, floats(4, 2, 3, 3), strides=[2, 2], output_shape=[10, 13]),
    one("LpPool", IMAGE, kernel_shape=[2, 3], strides=[2, 1], p=2),
    one("LpPool", IMAGE, kernel_shape=[2, 3], p=1),
    one("LpPool", IMAGE, kernel_shape=[2, 3], p=3, pads=[1, 1, 0, 1]),
    one("GlobalLpPool", IMAGE, p=2),
    one("LpNormalization", X, axis=1),
    one("LpNormalization", X, axis=0, p=1),
    NodeCase("GroupNormalization", {"x": IMAGE}, {"s": CHANNEL, "b": floats(4)}, {"num_groups": 2}),
    NodeCase("GroupNormalization", {"x": IMAGE}, {"s": floats(2), "b": floats(2, seed=5)}, {"num_groups": 2}, opset=18),
    NodeCase("InstanceNormalization", {"x": IMAGE}, {"s": CHANNEL, "b": floats(4)}, {"epsilon": 1e-3}),
    NodeCase("RMSNormalization", {"x": X}, {"s": ROW}, {"axis": -1}, opset=23),
    NodeCase(
        "Attention",
        {"q": floats(2, 6, 5, 8), "k": floats(2, 2, 7, 8, seed=2), "v": floats(2, 2, 7, 4, seed=3), "m": floats(5, 7)},
        {},
        {"scale": 0.4},
        opset=23,
    ),
    NodeCase(
        "Attention",
        {"q": floats(2, 5, 24), "k": floats(2, 5, 12, seed=2), "v": floats(2, 5, 8, seed=3)},
        {},
        {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1},
        opset=23,
    ),
    NodeCase("Gather", {"x": X}, {"i": ints(-4, 4, 2, 3)}, {"axis": 1}),
    NodeCase("Gather", {"x": X}, {"i": np.array(2)}),
    NodeCase("Gather", {"x": X, "i": ints(-3, 3, 5)}),
    NodeCase("GatherElements", {"x": X, "i": ints(-4, 4, 3, 2)}, {}, {"axis": 1}),
    NodeCase("GatherND", {"x": X, "i": ints(0, 3, 5, 1)}),
    NodeCase("ScatterElements", {"x": X, "i": i64(2, 0)[None, :], "u": floats(1, 2, seed=6)}, {}, {"axis": 1}),
    NodeCase("ScatterElements", {"x": X, "i": ints(0, 3, 6, 4), "u": floats(6, 4, seed=6)}, {}, {"reduction": "mul"}),
    NodeCase("ScatterND", {"x": X, "i": ints(0, 3, 5, 1), "u": floats(5, 4, seed=6)}, {}, {"reduction": "add"}),
    NodeCase("OneHot", {"i": ints(-5, 5, 3, 2)}, {"depth": np.array(5), "values": np.array([-1, 2], f32)}, {"axis": 1}),
    NodeCase("CumSum", {"x": X}, {"axis": np.array(1)}, {"reverse": 1, "exclusive": 1}),
    NodeCase("TopK", {"x": X}, {"k": i64(3)}, {"axis": 0}, ("values", "places")),
    NodeCase("TopK", {"x": N}, {"k": i64(2)}, {"largest": 0}, ("values", "places")),
    NodeCase("Resize", {"x": IMAGE}, {"sizes": i64(2, 4, 10, 9)}, {"mode": "linear"}, reads=("x", "", "", "sizes")),
    NodeCase(
        "Resize",
        {"x": IMAGE},
        {"scales": np.array([1.0, 1.0, 2.0, 1.5], f32)},
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        reads=("x", "", "scales"),
    ),
    *(
        NodeCase(
            "Resize",
            {"x": IMAGE},
            {"scales": np.array([1.0, 1.0, up, down], f32)},
            {"coordinate_transformation_mode": how, "mode": "linear"},
            reads=("x", "", "scales"),
        )
        for how, factors in {
            "half_pixel": ((1.3, 0.7), (2.6, 1 / 3)),
            "asymmetric": ((1.3, 0.7), (2.6, 1 / 3)),
            "align_corners": ((1.4, 0.5), (2.6, 1 / 3)),  # whole extents: ONNX Runtime rounds others first
            "pytorch_half_pixel": ((1.3, 0.7), (2.6, 1 / 3)),
        }.items()
        for up, down in factors
    ),
    NodeCase("Resize", {"x": IMAGE}, {"sizes": i64(3, 4)}, {"axes": [2, 3]}, reads=("x", "", "", "sizes")),
    *(
        NodeCase("Resize", {"x": IMAGE}, {"sizes": i64(3, 8)}, {"axes": [2, 3], **attrs}, reads=("x", "", "", "sizes"))
        for attrs in (
            {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
            {"mode": "cubic", "antialias": 1},
            {"mode": "linear", "keep_aspect_ratio_policy": "not_smaller"},
            {"mode": "nearest", "keep_aspect_ratio_policy": "not_larger"},
        )
    ),
    NodeCase(
        "Resize",
        {"x": IMAGE},
        {"roi": np.array([0, 0, 0.25, -0.25, 1, 1, 0.75, 1.25], f32), "sizes": i64(2, 4, 3, 7)},
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0},
        reads=("x", "roi", "", "sizes"),
    ),
    NodeCase("OneHot", {"i": ints(-5, 5, 3), "v": np.array([-1, 2], f32)}, {"d": i64(5)}, reads=("i", "d", "v")),
    one("DepthToSpace", floats(1, 8, 2, 3), blocksize=2, mode="CRD"),
    one("SpaceToDepth", floats(1, 2, 4, 6), blocksize=2),
    NodeCase("Tile", {"x": N}, {"repeats": i64(2, 3)}),
    *(
        NodeCase("QuantizeLinear", {"x": X}, {"s": f32(0.02), "z": np.array(zero, kind)}, opset=13)
        for zero, kind in ((100, np.uint8), (-3, np.int8), (0, np.int8))
    ),
    NodeCase("QuantizeLinear", {"x": X, "s": np.abs(floats(4, seed=5)) / f32(50)}, {}, {"axis": -1}, opset=13),
    NodeCase(
        "QuantizeLinear",
        {"x": floats(3, 5), "s": np.abs(floats(3, 3, seed=5)), "z": ints(0, 9, 3, 3, dtype=np.uint16)},
        {},
        {"block_size": 2},
        opset=21,
    ),
    NodeCase(
        "DequantizeLinear", {"x": ints(0, 256, 3, 4, dtype=np.uint8)}, {"s": f32(0.02), "z": np.uint8(7)}, opset=13
    ),
    NodeCase("DequantizeLinear", {"x": ints(-(2**20), 2**20, 3, 4, dtype=np.int32)}, {"s": f32(0.5)}, opset=13),
    NodeCase(
        "DequantizeLinear",
        {"x": ints(-128, 128, 3, 4, dtype=np.int8), "s": np.abs(floats(3)), "z": ints(-9, 9, 3, dtype=np.int8)},
        {},
        {"axis": 0},
        opset=13,
    ),
    NodeCase("MatMulInteger", {"a": BYTES, "b": BYTES_2}, {"az": np.uint8(9), "bz": ints(0, 255, 5, dtype=np.uint8)}),
    NodeCase("MatMulInteger", {"a": BYTES[0], "b": BYTES_2.astype(np.int8)}),
    NodeCase("MatMulInteger", {"a": np.full((2, 300), 255, np.uint8), "b": np.full((300, 2), 255, np.uint8)}),
    NodeCase(
        "ConvInteger",
        {"x": ints(0, 256, 2, 4, 5, 6, dtype=np.uint8), "w": ints(0, 256, 6, 2, 3, 3, dtype=np.uint8)},
        {"xz": np.uint8(120), "wz": np.uint8(11)},
        {"group": 2, "pads": [1, 0, 1, 1]},
    ),
    NodeCase(
        "QLinearMatMul",
        {"a": BYTES, "b": BYTES_2},
        {f"s{one}": f32(0.01 + k / 100) for k, one in enumerate("aby")}
        | {f"z{one}": np.uint8(120 - 10 * k) for k, one in enumerate("aby")},
        reads=("a", "sa", "za", "b", "sb", "zb", "sy", "zy"),
    ),
    NodeCase(
        "QLinearConv",
        {"x": ints(0, 256, 2, 3, 5, 6, dtype=np.uint8), "w": ints(-128, 128, 4, 3, 3, 3, dtype=np.int8)},
        SCALES | {"b": ints(-(2**15), 2**15, 4, dtype=np.int32)},
        {"strides": [2, 1], "pads": [1, 1, 1, 1]},
        reads=("x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"),
    ),
    *(
        NodeCase(
            kind,
            {"x": floats(5, 3, 4), "w": floats(2, gates * 6, 4, seed=2), "r": floats(2, gates * 6, 6, seed=3)},
            {"b": floats(2, 2 * gates * 6, seed=4), "n": np.array([5, 2, 3], np.int32)},
            {"hidden_size": 6, "direction": "bidirectional", **more},
            outputs,
            reads=("x", "w", "r", "b", "n"),
        )
        for kind, gates, outputs, more in (
            ("LSTM", 4, ("y", "y_h", "y_c"), {"input_forget": 1, "clip": 0.7}),
            ("GRU", 3, ("y", "y_h"), {"linear_before_reset": 1}),
            ("RNN", 1, ("y", "y_h"), {"activations": ["LeakyRelu"] * 2, "activation_alpha": [0.3, 0.3]}),
        )
    ),
    NodeCase(
        "LSTM",
        dict(zip("xwrhcp", (floats(*shape, seed=k) for k, shape in enumerate(LOOKING)), strict=True)),
        {},
        {"hidden_size": 5, "direction": "reverse", "activations": ["HardSigmoid", "Softsign", "Relu"]},
        ("y", "y_h", "y_c"),
        reads=("x", "w", "r", "", "", "h", "c", "p"),
    ),
    NodeCase(
        "GRU",
        {"x": floats(4, 2, 3), "w": floats(1, 15, 3, seed=2), "r": floats(1, 15, 5, seed=3)},
        {},
        {"hidden_size": 5},
        ("y", "y_h"),
    ),
    NodeCase("ArgMax", {"x": N}, {}, {"axis": 1, "select_last_index": 1}),
    NodeCase("ArgMin", {"x": N}, {}, {"axis": 0, "select_last_index": 1, "keepdims": 0}),
    one("Hardmax", N.astype(f32)),
    NodeCase("BitCast", {"x": X}, {}, {"to": TensorProto.INT32}, opset=26),
    NodeCase("BitCast", {"x": floats(3, 5, dtype=np.float64)}, {}, {"to": TensorProto.UINT64}, opset=26),
    one("Det", floats(2, 3, 4, 4)),
    one("Det", floats(1, 5, 5)),
    NodeCase(
        "MelWeightMatrix",
        {"rate": np.array(8192), "low": np.array(0, f32), "high": np.array(4096, f32)},
        {"n": np.array(8), "d": np.array(16)},
        reads=("n", "d", "rate", "low", "high"),
    ),
    NodeCase(
        "MelWeightMatrix",
        {"low": np.array(85, f32)},
        {"n": np.array(20, np.int32), "d": np.array(400, np.int32), "r": np.array(16000, np.int32), "h": f32(7000)},
        {"output_datatype": TensorProto.DOUBLE},
        reads=("n", "d", "r", "low", "h"),
    ),
    NodeCase("CumProd", {"x": X}, {"axis": np.array(1)}, {"reverse": 1, "exclusive": 1}, opset=26),
    NodeCase("CumProd", {"x": M}, {"axis": np.array(0)}, opset=26),
    one("EyeLike", X, k=1, dtype=TensorProto.INT32),
    two("ReverseSequence", floats(4, 3, 2), i64(2, 4, 1)),
    two("ReverseSequence", floats(3, 4, 2), i64(2, 4, 1), time_axis=1, batch_axis=0),
    NodeCase(
        "TensorScatter", {"x": floats(2, 3, 5, 4), "u": floats(2, 3, 2, 4), "at": i64(3, 4)}, {}, CIRCULAR, opset=24
    ),
    NodeCase("GatherND", {"x": floats(2, 3, 4), "i": ints(0, 3, 2, 5, 1)}, {}, {"batch_dims": 1}),
    NodeCase("MaxPool", {"x": IMAGE}, {}, {"kernel_shape": [2, 3], "pads": [1, 0, 0, 1]}, ("y", "i")),
    NodeCase("MaxPool", {"x": IMAGE}, {}, {"kernel_shape": [2, 2], "strides": [2, 2], "storage_order": 1}, ("y", "i")),
    NodeCase("MaxPool", {"x": BYTES[None]}, {}, {"kernel_shape": [2]}),
    NodeCase("MaxUnpool", {"x": floats(1, 2, 2, 2), "i": CELLS}, {}, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    NodeCase("Col2Im", {"x": floats(1, 12, 12)}, {"i": i64(4, 5), "b": i64(2, 2)}, opset=18),
    NodeCase("Col2Im", {"x": floats(2, 4, 6)}, {"i": i64(5, 6), "b": i64(2, 2)}, {"strides": [2, 2]}, opset=18),
    *(
        NodeCase(
            "GridSample",
            {"x": IMAGE, "g": floats(2, 3, 4, 2) * f32(0.8)},
            {},
            {"mode": mode, "padding_mode": padding, "align_corners": corners},
            opset=20,
        )
        for mode, padding, corners in (
            ("linear", "zeros", 0),
            ("cubic", "border", 1),
            ("nearest", "reflection", 0),
            ("linear", "reflection", 1),
        )
    ),
    NodeCase("GridSample", {"x": IMAGE, "g": floats(2, 3, 4, 2)}, {}, {"mode": "bicubic"}, opset=16),
    NodeCase("GridSample", {"x": floats(1, 2, 3, 4, 5), "g": floats(1, 2, 2, 3, 3)}, opset=20),
    *(
        NodeCase(
            "RoiAlign",
            {"x": IMAGE, "r": np.array([[0, 1, 4, 3], [1, 0, 3, 9], [-2, 1, 1, 2]], f32), "b": i64(1, 0, 1)},
            {},
            {"sampling_ratio": 2, "output_height": 2, "output_width": 3, "spatial_scale": 0.9, "mode": mode},
            opset=16,
        )
        for mode in ("avg", "max")
    ),
    NodeCase(
        "DeformConv",
        {"x": IMAGE, "w": floats(6, 2, 2, 2, seed=2), "o": floats(2, 16, 5, 5, seed=3), "b": floats(6, seed=4)}
        | {"m": np.abs(floats(2, 8, 5, 5, seed=5))},
        {},
        {"group": 2, "offset_group": 2, "pads": [1, 0, 0, 0]},
        opset=19,
    ),
    NodeCase("DFT", {"x": floats(2, 5, 3, 1)}, {"n": np.array(6), "axis": np.array(1)}, {"onesided": 1}, opset=20),
    NodeCase("DFT", {"x": floats(2, 4, 2)}, {}, {"axis": 1, "inverse": 1}, opset=17),
    NodeCase(
        "STFT", {"x": floats(2, 20, 1), "w": floats(8)}, {"step": np.array(3)}, reads=("x", "step", "w"), opset=17
    ),
    NodeCase(
        "STFT", {"x": floats(1, 20, 1)}, {"step": np.array(4), "n": np.array(6)}, reads=("x", "step", "", "n"), opset=17
    ),
    *(NodeCase(op, {"x": X, "b": ROW}, domain=MICROSOFT) for op in ("BiasGelu", "FastGelu")),
    NodeCase("QuickGelu", {"x": X}, {}, {"alpha": 1.3}, domain=MICROSOFT),
    NodeCase(
        "FusedMatMul",
        {"a": floats(2, 3, 4), "b": floats(2, 3, 5)},
        {},
        {"alpha": 0.5, "transA": 1},
        domain=MICROSOFT,
    ),
    NodeCase(
        "SkipLayerNormalization",
        {"x": floats(2, 3, 4), "s": floats(2, 3, 4, seed=2), "g": ROW, "b": floats(4, seed=3), "c": floats(4, seed=4)},
        {},
        {"epsilon": 1e-5},
        ("y", "", "", "total"),
        domain=MICROSOFT,
    ),
    NodeCase(
        "SkipSimplifiedLayerNormalization",
        {"x": floats(2, 3, 4), "s": floats(2, 3, 4, seed=2), "g": ROW},
        {},
        {"epsilon": 1e-5},
        domain=MICROSOFT,
    ),
    NodeCase(
        "MultiHeadAttention",
        {"q": floats(2, 3, 8), "k": floats(2, 5, 8, seed=2), "v": floats(2, 5, 12, seed=3), "b": floats(28, seed=4)}
        | {"pad": ints(0, 2, 2, 5, dtype=np.int32) | np.eye(2, 5, dtype=np.int32)},
        {},
        {"num_heads": 4},
        domain=MICROSOFT,
    ),
    NodeCase(
        "MultiHeadAttention",
        dict(zip("qkvmpr", (floats(*shape, seed=k) for k, shape in enumerate(HEADS)), strict=True)),
        {},
        {"num_heads": 2, "scale": 0.3},
        ("y", "keys", "values"),
        reads=("q", "k", "v", "", "", "m", "p", "r"),
        domain=MICROSOFT,
    ),
    *(
        NodeCase(
            "GroupQueryAttention",
            {name: floats(*shape, seed=k) for k, (name, shape) in enumerate(TURNED.items())},
            {
                "ends": np.full(1, 7, np.int32),
                "all": np.array(8, np.int32),
                "cos": np.cos(ANGLES),
                "sin": np.sin(ANGLES),
            },
            {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "rotary_interleaved": way, **more},
            ("y", "keys", "values"),
            reads=("q", "k", "v", "past", "before", "ends", "all", "cos", "sin"),
            domain=MICROSOFT,
        )
        for way, more in enumerate(({"local_window_size": 2}, {"softcap": 5.0, "scale": 0.4}))
    ),
    NodeCase("SimplifiedLayerNormalization", {"x": floats(2, 3, 4), "s": ROW}, {}, {"epsilon": 1e-3}),
    NodeCase("Gelu", {"x": X}, domain=MICROSOFT),
    NodeCase(
        "EmbedLayerNormalization",
        {
            "i": ints(0, 9, 2, 5, dtype=np.int32),
            "s": ints(0, 2, 2, 5, dtype=np.int32),
            "m": ints(0, 2, 2, 5, dtype=np.int32),
        },
        {"w": floats(9, 4), "p": floats(7, 4, seed=2), "t": floats(2, 4, seed=3), "g": ROW, "b": floats(4, seed=4)},
        {},
        ("y", "ends", "total"),
        reads=("i", "s", "w", "p", "t", "g", "b", "m"),
        domain=MICROSOFT,
    ),
    NodeCase(
        "EmbedLayerNormalization",
        {"i": ints(0, 9, 2, 5, dtype=np.int32), "w": floats(9, 4), "p": floats(7, 4, seed=2), "g": ROW}
        | {"b": floats(4, seed=4), "n": ints(0, 7, 2, 5, dtype=np.int32)},
        {},
        {"epsilon": 1e-3},
        ("y", "ends"),
        reads=("i", "", "w", "p", "", "g", "b", "", "n"),
        domain=MICROSOFT,
    ),
    NodeCase(
        "RotaryEmbedding",
        {"x": floats(2, 3, 32), "i": i64(4), "c": np.cos(ANGLES), "s": np.sin(ANGLES)},
        {},
        {"interleaved": 1},
        domain=MICROSOFT,
    ),
    NodeCase(
        "RotaryEmbedding",
        {"x": floats(2, 2, 3, 16)},
        {"i": ints(0, 8, 2, 3), "c": np.cos(ANGLES), "s": np.sin(ANGLES)},
        domain=MICROSOFT,
    ),
    NodeCase(
        "RotaryEmbedding",
        {"x": floats(2, 3, 40), "i": ints(0, 8, 2, 3)},
        {"c": np.cos(ANGLES), "s": np.sin(ANGLES)},
        {"num_heads": 2, "rotary_embedding_dim": 16},
        domain=MICROSOFT,
    ),
    NodeCase(
        "MatMulIntegerToFloat",
        {"a": ints(0, 256, 2, 3, 4, dtype=np.uint8), "b": ints(-128, 128, 4, 5, dtype=np.int8)},
        {
            "s": f32(0.02),
            "t": np.abs(floats(5)),
            "az": np.uint8(7),
            "bz": ints(-9, 9, 5, dtype=np.int8),
            "c": floats(5),
        },
        domain=MICROSOFT,
    ),
    *(
        NodeCase(
            "MatMulNBits",
            {"x": floats(2, 3, summed), "w": ints(0, 256, 6, blocks, 2 * bits, dtype=np.uint8)},
            {"s": floats(6 * blocks, seed=3), **more},
            {"K": summed, "N": 6, "bits": bits, "block_size": 16},
            reads=(
                "x",
                "w",
                "s",
                *(("z",) if "z" in more else ()),
                *(("", "", "b")[2 * ("z" in more) - 1 :] if "b" in more else ()),
            ),
            domain=MICROSOFT,
        )
        for bits, summed, blocks, more in (
            (4, 32, 2, {}),
            (4, 40, 3, {"z": ints(0, 256, 12, dtype=np.uint8)}),
            (8, 32, 2, {"z": ints(0, 256, 12, dtype=np.uint8)}),
            (2, 32, 2, {}),
        )
    ),
    NodeCase(
        "QGemm",
        {"a": BYTES, "b": BYTES_2},
        {"as": f32(0.02), "az": np.uint8(9), "bs": np.abs(floats(5)), "bz": ints(0, 255, 5, dtype=np.uint8)}
        | {"c": ints(-999, 999, 5, dtype=np.int32)},
        reads=("a", "as", "az", "b", "bs", "bz", "c"),
        domain=MICROSOFT,
    ),
    NodeCase(
        "QGemm",
        {"a": BYTES.T.copy(), "b": ints(-128, 128, 5, 4, dtype=np.int8)},
        {"as": f32(0.02), "az": np.uint8(130), "bs": f32(0.01), "bz": np.int8(4), "ys": f32(0.03), "yz": np.uint8(99)},
        {"transA": 1, "transB": 1},
        reads=("a", "as", "az", "b", "bs", "bz", "", "ys", "yz"),
        domain=MICROSOFT,
    ),
    *(
        NodeCase(
            op,
            {"a": BYTES, "b": ints(0, 256, 4, seed=7, dtype=np.uint8)},
            {
                "as": f32(0.021),
                "az": np.uint8(120),
                "bs": f32(0.013),
                "bz": np.uint8(99),
                "ys": f32(0.05),
                "yz": np.uint8(130),
            },
            reads=("a", "as", "az", "b", "bs", "bz", "ys", "yz"),
            domain=MICROSOFT,
        )
        for op in ("QLinearAdd", "QLinearMul")
    ),
    *(
        NodeCase(
            op,
            {"x": ints(-128, 128, 2, 3, 5, 4, dtype=np.int8)},
            {"s": f32(0.021), "z": np.int8(-20), "ys": f32(0.005), "yz": np.int8(5)},
            attrs,
            domain=MICROSOFT,
        )
        for op, attrs in (
            ("QLinearSigmoid", {}),
            ("QLinearLeakyRelu", {"alpha": 0.2}),
            ("QLinearGlobalAveragePool", {}),
            ("QLinearAveragePool", {"kernel_shape": [2, 3]}),
            ("QLinearSoftmax", {"opset": 13}),
        )
    ),
    NodeCase(
        "QLinearConcat",
        {"a": BYTES, "b": ints(0, 256, 2, 4, seed=7, dtype=np.uint8)},
        {
            "ys": f32(0.05),
            "yz": np.uint8(130),
            "as": f32(0.021),
            "az": np.uint8(120),
            "bs": f32(0.013),
            "bz": np.uint8(99),
        },
        {"axis": 0},
        reads=("ys", "yz", "a", "as", "az", "b", "bs", "bz"),
        domain=MICROSOFT,
    ),
    NodeCase(
        "Attention",
        {"x": floats(2, 4, 8), "w": floats(8, 24, seed=2), "b": floats(24, seed=3), "ends": np.array([4, 2], np.int32)},
        {},
        {"num_heads": 2},
        domain=MICROSOFT,
    ),
    NodeCase(
        "QAttention",
        {"x": ints(0, 255, 2, 4, 8, dtype=np.uint8)},
        {
            "w": ints(-90, 90, 8, 24, seed=2, dtype=np.int8),
            "b": floats(24),
            "xs": np.float32(0.02),
            "ws": np.float32(0.01),
            "xz": np.uint8(120),
            "wz": np.int8(3),
        },
        {"num_heads": 2, "unidirectional": 1},
        reads=("x", "w", "b", "xs", "ws", "", "xz", "wz"),
        domain=MICROSOFT,
    ),
    NodeCase(
        "FusedConv",
        {"x": IMAGE, "w": floats(6, 4, 3, 3), "b": floats(6), "z": floats(2, 6, 3, 4)},
        {},
        {"activation": "LeakyRelu", "activation_params": [0.2]},
        domain=MICROSOFT,
    ),
    NodeCase(
        "FusedGemm",
        {"a": floats(3, 4), "b": floats(4, 5), "c": floats(5)},
        {},
        {"activation": "Tanh"},
        domain=MICROSOFT,
    ),
    NodeCase("QuantizeLinear", {"x": X}, {"s": f32(0.02), "z": np.uint8(120)}, domain=MICROSOFT),
    NodeCase("DequantizeLinear", {"x": BYTES}, {"s": f32(0.02), "z": np.uint8(120)}, domain=MICROSOFT),
    NodeCase("DynamicQuantizeLinear", {"x": X}, outputs=("y", "s", "z")),
    NodeCase("DynamicQuantizeMatMul", {"a": X, "b": BYTES_2}, {"s": f32(0.02), "z": np.uint8(120)}, domain=MICROSOFT),
    NodeCase("Trilu", {"x": N}, {"k": np.array(-1)}, {"upper": 0}, domain=MICROSOFT),
    NodeCase("GatherND", {"x": X, "i": ints(-3, 3, 5, 1)}, domain=MICROSOFT),
    NodeCase("GridSample", {"x": IMAGE, "g": floats(2, 3, 4, 2)}, {}, {"mode": "bicubic"}, domain=MICROSOFT),
    NodeCase("ExpandDims", {"x": BYTES}, {"k": np.array(-1, np.int32)}, domain=MICROSOFT),
    NodeCase("Pad", {"x": X}, {"pads": i64(1, 0, 2, -1), "v": f32(0.5)}, domain=MICROSOFT),
    NodeCase("NhwcMaxPool", {"x": BYTES.reshape(1, 2, 3, 2)}, {}, {"kernel_shape": [2, 2]}, domain=MICROSOFT),
    NodeCase(
        "QLinearConv",
        {"x": ints(0, 256, 2, 5, 6, 3, dtype=np.uint8), "w": ints(-128, 128, 4, 3, 3, 3, dtype=np.int8)},
        SCALES | {"b": ints(-(2**15), 2**15, 4, dtype=np.int32)},
        {"strides": [2, 1], "pads": [1, 1, 1, 1], "channels_last": 1},
        reads=("x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"),
        domain=MICROSOFT,
    ),
    NodeCase(
        "QLinearWhere",
        {"c": TRUE, "a": BYTES, "b": ints(0, 256, 4, seed=7, dtype=np.uint8)},
        {f"{n}s": f32(0.02 + k / 300) for k, n in enumerate("aby")}
        | {f"{n}z": np.uint8(120 - k) for k, n in enumerate("aby")},
        reads=("c", "a", "as", "az", "b", "bs", "bz", "ys", "yz"),
        domain=MICROSOFT,
    ),
    NodeCase(
        "GatherBlockQuantized",
        {"i": ints(-9, 9, 2, 3)},
        {"x": ints(0, 256, 9, 16, dtype=np.uint8), "s": floats(9, 2), "z": ints(0, 256, 9, 1, dtype=np.uint8)},
        {"bits": 4, "block_size": 16},
        reads=("x", "i", "s", "z"),
        domain=MICROSOFT,
    ),
    NodeCase("ReorderInput", {"x": IMAGE}, domain=BLOCKS),
    NodeCase("ReorderOutput", {"x": floats(1, 16, 3, 3)}, {}, {"channels": 16}, domain=BLOCKS),
    NodeCase("Conv", {"x": floats(1, 16, 5, 5), "w": floats(16, 16, 3, 3)}, domain=BLOCKS),
    *(
        NodeCase(op, {"x": floats(1, 16, 5, 5)}, {}, attrs, domain=BLOCKS)
        for op, attrs in (
            ("MaxPool", {"kernel_shape": [2, 2]}),
            ("AveragePool", {"kernel_shape": [2, 2]}),
            ("GlobalMaxPool", {}),
            ("GlobalAveragePool", {}),
            ("Upsample", {"scales": [1, 1, 2, 2]}),
        )
    ),
]
