"""Every operator on small operands: what it is given, and what ONNX Runtime or NumPy says comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import erf
from typing import Any

import numpy as np

from tests.cutting import Array, Case, ort
from tests.oracles import drawn


def by(function: Callable[..., Any]) -> Callable[[str, dict[str, Any], Sequence[Array]], Any]:
    """NumPy's function of the operands as the oracle."""
    return lambda op, attrs, arrays: function(*arrays)


f32 = np.float32
KEY = {"seed": 3, "stream": 5}
CASES = [
    Case("add", ((3, 4, 5), (4, 1)), onnx="Add"),
    Case("add", ((4, 5), (2, 1, 5)), onnx="Add"),
    Case("add", ((), ()), onnx="Add"),
    Case("add", ((5, 3), (5, 3)), onnx="Add", dtype="int64"),
    Case("subtract", ((1, 4), (3, 1)), onnx="Sub"),
    Case("multiply", ((2, 3, 4), (3, 1)), onnx="Mul", dtype="float64"),
    Case("divide", ((5, 3), (3,)), onnx="Div", positive=(1,)),
    Case("add_n", ((3, 4), (4,), (3, 1), (1, 1)), onnx="Sum"),
    Case("add_n", ((3, 4),), onnx="Sum"),
    Case("relu", ((7, 5),), onnx="Relu"),
    Case("leaky_relu", ((7, 5),), {"alpha": 0.2}, "LeakyRelu", {"alpha": 0.2}),
    Case("leaky_relu", ((7, 5),), {"alpha": -1.5}, "LeakyRelu", {"alpha": -1.5}),
    Case("clip", ((7, 5),), {"min": -0.5, "max": 0.25}, "Clip", onnx_extra=(f32(-0.5), f32(0.25))),
    Case("clip", ((7, 5),), {"min": 0.1}, "Clip", onnx_extra=(f32(0.1),)),
    Case("sigmoid", ((6, 5),), onnx="Sigmoid"),
    Case("tanh", ((6, 5),), onnx="Tanh"),
    Case("exp", ((6, 5),), onnx="Exp"),
    Case("sqrt", ((6, 5),), onnx="Sqrt", positive=(0,)),
    Case("negative", ((6, 5),), onnx="Neg"),
    Case("abs", ((6, 5),), onnx="Abs"),
    Case("matmul", ((5, 7), (7, 6)), onnx="MatMul"),
    Case("matmul", ((2, 1, 5, 7), (3, 7, 6)), onnx="MatMul"),
    Case("matmul", ((4, 5, 3), (3, 2)), onnx="MatMul", dtype="float64"),
    Case("linear", ((5, 7), (7, 6), (6,)), onnx="Gemm"),
    Case("linear", ((5, 7), (7, 6)), onnx="Gemm"),
    Case("linear", ((3, 4, 7), (7, 6)), onnx="MatMul"),
    Case("linear", ((2, 3, 4, 7), (7, 5), (5,)), oracle=by(lambda x, w, b: x @ w + b)),
    Case(
        "gemm",
        ((7, 5), (6, 7), (5, 1)),
        {"alpha": 0.5, "beta": 2.0, "trans_a": True, "trans_b": True},
        "Gemm",
        {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1},
    ),
    Case("gemm", ((5, 7), (7, 6), ()), onnx="Gemm"),
    Case("gemm", ((5, 7), (7, 6), (1, 6)), {"beta": 0.5}, "Gemm", {"beta": 0.5}),
    Case("conv", ((2, 4, 8, 7), (6, 4, 3, 3), (6,)), {"pads": 1}, "Conv", {"pads": [1, 1, 1, 1]}),
    Case("conv", ((2, 4, 9, 9), (6, 4, 1, 1), (6,)), {}, "Conv"),
    Case("conv", ((1, 4, 9, 9), (6, 4, 1, 1)), {"strides": 2}, "Conv", {"strides": [2, 2]}),
    Case(
        "conv",
        ((2, 6, 9, 8), (9, 2, 3, 2), (9,)),
        {"groups": 3, "strides": (2, 1), "pads": (0, 1, 2, 1)},
        "Conv",
        {"group": 3, "strides": [2, 1], "pads": [0, 1, 2, 1]},
    ),
    Case(
        "conv",
        ((2, 5, 7, 7), (5, 1, 3, 3), (5,)),
        {"groups": 5, "dilations": 2, "pads": 2},
        "Conv",
        {"group": 5, "dilations": [2, 2], "pads": [2, 2, 2, 2]},
    ),
    Case(
        "conv",
        ((2, 3, 11), (4, 3, 4), (4,)),
        {"strides": 3, "pads": (2, 1)},
        "Conv",
        {"strides": [3], "pads": [2, 1]},
    ),
    Case(
        "conv",
        ((2, 2, 5, 6, 5), (4, 2, 2, 3, 1), (4,)),
        {"strides": (1, 2, 2), "pads": (1, 0, 0, 0, 1, 0)},
        "Conv",
        {"strides": [1, 2, 2], "pads": [1, 0, 0, 0, 1, 0]},
    ),
    Case("conv", ((1, 2, 3, 3, 3), (4, 2, 1, 1, 1)), {}, "Conv"),
    Case(
        "max_pool",
        ((2, 3, 9, 8),),
        {"kernel": 3, "strides": 2, "pads": 1},
        "MaxPool",
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    Case(
        "max_pool",
        ((2, 3, 8, 8),),
        {"kernel": (3, 2), "strides": (2, 3), "ceil_mode": True},
        "MaxPool",
        {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1},
    ),
    Case(
        "max_pool",
        ((1, 2, 12),),
        {"kernel": 3, "dilations": 2, "pads": (1, 2)},
        "MaxPool",
        {"kernel_shape": [3], "dilations": [2], "pads": [1, 2]},
    ),
    Case(
        "average_pool",
        ((2, 3, 9, 8),),
        {"kernel": 3, "strides": 2, "pads": 1},
        "AveragePool",
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    Case(
        "average_pool",
        ((2, 3, 9, 8),),
        {"kernel": 3, "strides": 2, "pads": 1, "count_include_pad": True},
        "AveragePool",
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    Case(
        "average_pool",
        ((1, 2, 8, 8),),
        {"kernel": 3, "strides": 2, "ceil_mode": True},
        "AveragePool",
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    ),
    Case("average_pool", ((1, 2, 7, 7),), {"kernel": 7}, "AveragePool", {"kernel_shape": [7, 7]}),
    Case("average_pool", ((1, 2, 4, 5, 6),), {"kernel": (2, 2, 3)}, "AveragePool", {"kernel_shape": [2, 2, 3]}),
    Case("global_average_pool", ((2, 5, 7, 3),), onnx="GlobalAveragePool"),
    Case("global_average_pool", ((2, 5, 7),), onnx="GlobalAveragePool"),
    Case("global_max_pool", ((2, 5, 7, 3),), onnx="GlobalMaxPool"),
    Case("sum", ((3, 5, 7),), {"axis": (0, -1), "keepdims": True}, "ReduceSum", onnx_extra=(np.array([0, 2]),)),
    Case("sum", ((3, 5),), {"keepdims": False}, "ReduceSum", {"keepdims": 0}),
    Case("sum", ((3, 5),), {"axis": (1,), "keepdims": True}, "ReduceSum", onnx_extra=(np.array([1]),), dtype="int64"),
    Case(
        "mean",
        ((3, 5, 7),),
        {"axis": (1,), "keepdims": False},
        "ReduceMean",
        {"keepdims": 0},
        onnx_extra=(np.array([1]),),
    ),
    Case("max", ((3, 5, 7),), {"axis": (2,), "keepdims": True}, "ReduceMax", onnx_extra=(np.array([2]),)),
    Case(
        "batch_normalization",
        ((2, 5, 4, 3), (5,), (5,), (5,), (5,)),
        {"epsilon": 1e-3},
        "BatchNormalization",
        {"epsilon": 1e-3},
        positive=(4,),
    ),
    Case("batch_normalization", ((6, 5), (5,), (5,), (5,), (5,)), {}, "BatchNormalization", positive=(4,)),
    Case(
        "local_response_normalization",
        ((2, 7, 3, 4),),
        {"size": 5, "alpha": 0.5, "beta": 0.75, "bias": 2.0},
        "LRN",
        {"size": 5, "alpha": 0.5, "beta": 0.75, "bias": 2.0},
    ),
    Case("local_response_normalization", ((1, 4, 3, 3),), {"size": 1, "alpha": 0.5}, "LRN", {"size": 1, "alpha": 0.5}),
    Case("softmax", ((3, 7, 4),), {"axis": 1}, "Softmax", {"axis": 1}),
    Case("softmax", ((7,),), {"axis": -1}, "Softmax"),
    Case("log_softmax", ((3, 7),), {"axis": -1}, "LogSoftmax"),
    Case(
        "layer_normalization",
        ((3, 5, 4), (5, 4), (5, 4)),
        {"axis": 1},
        "LayerNormalization",
        {"axis": 1},
    ),
    Case(
        "layer_normalization",
        ((3, 5), (5,)),
        {"axis": -1, "epsilon": 1e-2},
        "LayerNormalization",
        {"epsilon": 1e-2},
    ),
    Case("uniform", (), {"shape": (5, 6), "dtype": "float32", **KEY, "low": -1.0, "high": 2.0}, oracle=drawn),
    Case("uniform", (), {"shape": (7,), "dtype": "float64", **KEY, "low": 0.0, "high": 1.0}, oracle=drawn),
    Case("normal", (), {"shape": (5, 6), "dtype": "float32", **KEY, "loc": 1.0, "scale": 2.0}, oracle=drawn),
    Case("normal", (), {"shape": (3, 7), "dtype": "float64", **KEY, "loc": 0.0, "scale": 1.0}, oracle=drawn),
    Case("bernoulli", (), {"shape": (5, 6), **KEY, "p": 0.4}, oracle=drawn),
    Case("integers", (), {"shape": (5, 6), "dtype": "int64", **KEY, "low": -9, "high": 2**31}, oracle=drawn),
    Case("dropout", ((5, 6),), {"rate": 0.3, **KEY}, oracle=drawn),
]

# -- cell by cell ------------------------------------------------------------------------------------------

CASES += [
    Case("log", ((6, 5),), onnx="Log", positive=(0,)),
    Case("log1p", ((6, 5),), oracle=by(np.log1p), positive=(0,)),
    Case("expm1", ((6, 5),), oracle=by(np.expm1)),
    Case("sin", ((6, 5),), onnx="Sin"),
    Case("cos", ((6, 5),), onnx="Cos", dtype="float64"),
    Case("tan", ((6, 5),), onnx="Tan"),
    Case("asin", ((6, 5),), onnx="Asin", within=(0,)),
    Case("acos", ((6, 5),), onnx="Acos", within=(0,)),
    Case("atan", ((6, 5),), onnx="Atan"),
    Case("sinh", ((6, 5),), onnx="Sinh"),
    Case("cosh", ((6, 5),), onnx="Cosh"),
    Case("asinh", ((6, 5),), onnx="Asinh"),
    Case("acosh", ((6, 5),), onnx="Acosh", ranges={0: (1, 9)}),
    Case("atanh", ((6, 5),), onnx="Atanh", within=(0,)),
    Case("floor", ((7, 5),), onnx="Floor"),
    Case("ceil", ((7, 5),), onnx="Ceil"),
    Case("round", ((7, 5),), onnx="Round"),
    Case("sign", ((7, 5),), onnx="Sign"),
    Case("sign", ((7, 5),), onnx="Sign", dtype="int32"),
    Case("reciprocal", ((7, 5),), onnx="Reciprocal", positive=(0,)),
    Case("isnan", ((7, 5),), onnx="IsNaN", onnx_dtype="bool"),
    Case("isinf", ((7, 5),), onnx="IsInf", onnx_dtype="bool"),
    Case("logical_not", ((7, 5),), onnx="Not", dtype="bool"),
    Case("bitwise_invert", ((7, 5),), onnx="BitwiseNot", dtype="int32"),
    Case("bitwise_invert", ((7, 5),), oracle=by(np.invert), dtype="bool"),
    Case("erf", ((7, 5),), onnx="Erf"),
    Case("erf", ((7, 5),), oracle=by(np.vectorize(erf)), dtype="float64"),
    Case("erf", ((),), onnx="Erf"),
    Case("gelu", ((7, 5),), {"approximate": "none"}, "Gelu"),
    Case("gelu", ((7, 5),), {"approximate": "tanh"}, "Gelu", {"approximate": "tanh"}),
    Case("silu", ((7, 5),), oracle=by(lambda x: x / (1 + np.exp(-x)))),
    Case("softplus", ((7, 5),), onnx="Softplus"),
    Case("mish", ((7, 5),), onnx="Mish"),
    Case("softsign", ((7, 5),), onnx="Softsign"),
    Case("elu", ((7, 5),), {"alpha": 0.7}, "Elu", {"alpha": 0.7}),
    Case("selu", ((7, 5),), onnx="Selu"),
    Case("selu", ((7, 5),), {"alpha": 1.5, "gamma": 2.0}, "Selu", {"alpha": 1.5, "gamma": 2.0}),
    Case("celu", ((7, 5),), {"alpha": 0.5}, "Celu", {"alpha": 0.5}),
    Case("hard_sigmoid", ((7, 5),), {"alpha": 0.3, "beta": 0.4}, "HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    Case("hard_swish", ((7, 5),), onnx="HardSwish"),
    Case("thresholded_relu", ((7, 5),), {"alpha": 0.4}, "ThresholdedRelu", {"alpha": 0.4}),
    Case("prelu", ((2, 7, 5), (7, 1)), onnx="PRelu"),
    Case("pow", ((3, 5), (5,)), onnx="Pow", positive=(0,)),
    Case("pow", ((3, 5), (5,)), onnx="Pow", dtype="int64", ranges={1: (0, 4)}),
    Case("maximum", ((7, 1), (5,)), onnx="Max"),
    Case("maximum", ((7, 1), (5,)), onnx="Max", dtype="int32"),
    Case("minimum", ((7, 1), (5,)), onnx="Min", dtype="float64"),
    Case("remainder", ((7, 5), (5,)), onnx="Mod", dtype="int64", ranges={1: (1, 5)}),
    Case("remainder", ((7, 5), (5,)), {"truncate": True}, "Mod", {"fmod": 1}, positive=(1,)),
    Case("remainder", ((7, 5), (5,)), {"truncate": True}, "Mod", {"fmod": 1}, dtype="int64", ranges={1: (-5, 0)}),
    Case("equal", ((7, 1), (5,)), onnx="Equal", dtype="int64", ranges={0: (0, 3), 1: (0, 3)}, onnx_dtype="bool"),
    Case("not_equal", ((7, 1), (5,)), oracle=by(np.not_equal), dtype="int64", ranges={0: (0, 3), 1: (0, 3)}),
    Case("less", ((7, 5), (5,)), onnx="Less", onnx_dtype="bool"),
    Case("less_equal", ((7, 5), (5,)), onnx="LessOrEqual", dtype="int64", onnx_dtype="bool"),
    Case("greater", ((7, 5), (5,)), onnx="Greater", onnx_dtype="bool"),
    Case("greater_equal", ((7, 5), (5,)), onnx="GreaterOrEqual", dtype="int64", onnx_dtype="bool"),
    Case("logical_and", ((7, 1), (5,)), onnx="And", dtype="bool"),
    Case("logical_or", ((7, 1), (5,)), onnx="Or", dtype="bool"),
    Case("logical_xor", ((7, 1), (5,)), onnx="Xor", dtype="bool"),
    Case("bitwise_and", ((7, 1), (5,)), onnx="BitwiseAnd", dtype="int32"),
    Case("bitwise_or", ((7, 1), (5,)), onnx="BitwiseOr", dtype="uint8"),
    Case("bitwise_xor", ((7, 1), (5,)), onnx="BitwiseXor", dtype="int64"),
    Case(
        "bitwise_left_shift",
        ((7, 1), (5,)),
        onnx="BitShift",
        onnx_attrs={"direction": "LEFT"},
        dtype="uint32",
        ranges={1: (0, 9)},
    ),
    Case(
        "bitwise_right_shift",
        ((7, 1), (5,)),
        onnx="BitShift",
        onnx_attrs={"direction": "RIGHT"},
        dtype="uint8",
        ranges={1: (0, 5)},
    ),
    Case("bitwise_right_shift", ((7, 1), (5,)), oracle=by(np.right_shift), dtype="int32", ranges={1: (0, 5)}),
    Case("where", ((7, 1), (3, 1, 5), (5,)), oracle=by(np.where), dtypes=("bool", "float32", "float32")),
    Case("where", ((7, 5), (), (5,)), oracle=by(np.where), dtypes=("bool", "int64", "int64")),
    Case("astype", ((7, 5),), {"dtype": "int32"}, oracle=by(lambda x: x.astype("int32"))),
    Case("astype", ((7, 5),), {"dtype": "bool"}, oracle=by(lambda x: x.astype("bool")), dtype="int64"),
    Case("astype", ((7, 5),), {"dtype": "float16"}, oracle=by(lambda x: x.astype("float16")), dtype="bool"),
    Case("bitcast", ((7, 5),), {"dtype": "int32"}, oracle=by(lambda x: x.view("int32"))),
    Case("bitcast", ((7, 5),), {"dtype": "float64"}, oracle=by(lambda x: x.view("float64")), dtype="uint64"),
    Case("add", ((7, 5), (5,)), onnx="Add", dtype="float16"),
    # -- products ------------------------------------------------------------------------------------------
    Case("einsum", ((2, 5, 3), (2, 3, 7)), {"equation": "bik,bkj->bij"}, "Einsum", {"equation": "bik,bkj->bij"}),
    Case("einsum", ((5, 7),), {"equation": "ij->ji"}, "Einsum", {"equation": "ij->ji"}),
    Case("einsum", ((5, 7),), {"equation": "ij->"}, "Einsum", {"equation": "ij->"}),
    Case("einsum", ((3, 5), (5, 7)), {"equation": "ij,jk"}, "Einsum", {"equation": "ij,jk"}),
    Case(
        "einsum",
        ((2, 1, 5, 3), (7, 3, 2)),
        {"equation": "...ij,...jk->...ki"},
        oracle=by(lambda a, b: np.einsum("...ij,...jk->...ki", a, b)),
        dtype="float64",
    ),
    Case(
        "einsum",
        ((3, 5), (5, 2), (7, 2)),
        {"equation": "ab, bc, dc -> ad"},
        oracle=by(lambda a, b, c: np.einsum("ab,bc,dc->ad", a, b, c)),
        dtype="int64",
    ),
    Case(
        "matrix_products",
        ((2, 1, 5, 3), (3, 3, 7)),
        oracle=by(lambda a, b: a[..., :, None, :] * b.swapaxes(-1, -2)[..., None, :, :]),
    ),
    Case("det", ((3, 7, 4, 4),), onnx="Det"),
    *(
        Case(
            "unpack_blocks",
            ((5, 7, 4), (5, 7), *zeros),
            {"bits": bits, **({"zeros_packed": kind == "uint8"} if zeros else {})},
            oracle=lambda op, attrs, arrays: unpacked(attrs["bits"], *arrays),
            dtypes=("uint8", "float32", kind)[: 2 + len(zeros)],
            ranges={0: (0, 256), 2: (0, 256)} if kind == "uint8" else {0: (0, 256)},
        )
        for bits, kind, zeros in (
            (4, "", ()),
            (4, "uint8", ((5, 4),)),
            (2, "float32", ((5, 7),)),
            (8, "uint8", ((5, 7),)),
            (1, "uint8", ((5, 1),)),
        )
    ),
    Case("det", ((5, 1, 1),), oracle=by(np.linalg.det), dtype="float64"),
    Case(
        "quantize",
        ((3, 4, 5), (), ()),
        {"dtype": "uint8"},
        "QuantizeLinear",
        positive=(1,),
        dtypes=("float32", "float32", "uint8"),
        onnx_dtype="uint8",
    ),
    Case(
        "quantize",
        ((3, 4, 5), (4,), (4,)),
        {"dtype": "int8", "axis": 1},
        "QuantizeLinear",
        {"axis": 1},
        positive=(1,),
        dtypes=("float32", "float32", "int8"),
        onnx_dtype="int8",
    ),
    Case(
        "quantize",
        ((5, 7), (7,), (5, 1)),
        {"dtype": "int16", "precision": "float64", "axis": -1, "rounds_last": True, "saturate": True},
        oracle=by(lambda x, s, z: np.rint(x.astype(float) / s + z).astype(np.int16)),
        positive=(1,),
        dtypes=("float16", "float32", "int16"),
    ),
    Case(
        "requantize",
        ((3, 5, 7), (5,), ()),
        {"dtype": "int8", "axis": 1},
        oracle=by(lambda x, r, z: (np.rint(x.astype(f32) * r[:, None]) + z).clip(-128, 127).astype(np.int8)),
        dtypes=("int32", "float32", "int8"),
        ranges={0: (-200, 200)},
    ),
    Case(
        "requantize",
        ((5, 7), ()),
        {"dtype": "uint8"},
        oracle=by(lambda x, r: np.rint(x.astype(f32) * r).clip(0, 255).astype(np.uint8)),
        dtypes=("float64", "float32"),
        ranges={0: (-200, 200)},
    ),
    Case(
        "dequantize",
        ((3, 4, 5), (4,), (4,)),
        {"axis": 1},
        "DequantizeLinear",
        {"axis": 1},
        dtypes=("uint8", "float32", "uint8"),
        ranges={0: (0, 256), 2: (0, 256)},
        onnx_dtype="float32",
    ),
    Case(
        "dequantize",
        ((5, 7), (5, 1), (7,)),
        {"dtype": "float64", "axis": -1},
        oracle=by(lambda x, s, z: (x.astype(float) - z) * s),
        dtypes=("int32", "float32", "int32"),
        ranges={0: (-(2**31), 2**31), 2: (-(2**31), 2**31)},
    ),
    Case(
        "center",
        ((5, 7, 3), (5,)),
        {"dtype": "float64", "axis": 0},
        oracle=by(lambda x, z: x.astype(float) - z[:, None, None]),
        dtypes=("int8", "int8"),
        ranges={0: (-128, 128), 1: (-128, 128)},
    ),
    Case("min", ((3, 5, 7),), {"axis": (2,), "keepdims": True}, "ReduceMin", onnx_extra=(np.array([2]),)),
    Case("prod", ((3, 5, 7),), {"axis": (0, 2), "keepdims": True}, "ReduceProd", onnx_extra=(np.array([0, 2]),)),
    Case(
        "any", ((7, 5),), {"axis": (0,), "keepdims": True}, oracle=by(lambda x: x.any(0, keepdims=True)), dtype="bool"
    ),
    Case("all", ((2, 7),), {"keepdims": False}, oracle=by(np.all), dtype="bool"),
    Case("sum_pool", ((2, 3, 9, 8),), {"kernel": 3, "strides": 2, "pads": (1, 0, 1, 2)}, oracle=by(lambda x: nine(x))),
]


def unpacked(bits: int, packed: Array, scales: Array, zeros: Array | None = None) -> Array:
    """Numbers bit by bit, as integers of Python."""

    def numbers(row: Array) -> list[int]:
        whole = int.from_bytes(row.tobytes(), "little")
        return [whole >> k & 2**bits - 1 for k in range(0, 8 * row.size, bits)]

    made = np.array([[numbers(block) for block in row] for row in packed], np.float32)
    if zeros is None:
        zeros = np.full(scales.shape, 2 ** (bits - 1))
    elif zeros.dtype == np.uint8:
        zeros = np.array([numbers(row)[: scales.shape[1]] for row in zeros])
    return (made - zeros[..., None].astype(f32)) * scales[..., None]


def nine(x: Array) -> Array:
    """Nine times the average of 3 × 3 cells, padding counted."""
    attrs = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 2], "count_include_pad": 1}
    return ort("AveragePool", [x], **attrs) * f32(9)


# -- windows, rows and attention ---------------------------------------------------------------------------

CASES += [
    Case(
        "conv_transpose",
        ((2, 4, 5, 7), (4, 3, 3, 2), (3,)),
        {"strides": (2, 3), "pads": (1, 0, 0, 1), "output_padding": (1, 0)},
        "ConvTranspose",
        {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 0]},
    ),
    Case(
        "conv_transpose",
        ((1, 6, 4, 5), (6, 2, 3, 3)),
        {"groups": 3, "dilations": 2, "strides": 2, "pads": 1},
        "ConvTranspose",
        {"group": 3, "dilations": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    Case("conv_transpose", ((2, 7, 9), (7, 1, 4)), {"strides": 4}, "ConvTranspose", {"strides": [4]}),
    Case(
        "conv_transpose",
        ((1, 2, 3, 4, 3), (2, 2, 2, 3, 1), (2,)),
        {"strides": (1, 2, 2)},
        "ConvTranspose",
        {"strides": [1, 2, 2]},
    ),
    Case("rms_normalization", ((3, 5, 4), (5, 4)), {"axis": 1}, oracle=by(lambda x, s: rms(x, (1, 2)) * s)),
    Case(
        "group_normalization",
        ((3, 10, 4, 3), (10,), (10,)),
        {"groups": 5, "epsilon": 1e-3},
        "GroupNormalization",
        {"num_groups": 5, "epsilon": 1e-3},
    ),
    Case("group_normalization", ((3, 6, 4), (6,), (6,)), {"groups": 2}, "GroupNormalization", {"num_groups": 2}),
    Case("instance_normalization", ((2, 7, 4, 3), (7,), (7,)), {}, "InstanceNormalization"),
    Case(
        "attention",
        ((2, 6, 7, 8), (2, 2, 5, 8), (2, 2, 5, 3)),
        oracle=by(lambda q, k, v: attended(q, k, v)),
    ),
    Case(
        "attention",
        ((2, 3, 7, 8), (2, 3, 7, 8), (2, 3, 7, 8)),
        {"causal": True, "scale": 0.5},
        oracle=by(lambda q, k, v: attended(q, k, v, np.tril(np.ones((7, 7), bool)), 0.5)),
    ),
    Case(
        "attention",
        ((2, 4, 7, 8), (2, 2, 5, 8), (2, 2, 5, 8), (2, 1, 7, 5)),
        oracle=by(lambda q, k, v, m: attended(q, k, v, m)),
        dtype="float64",
    ),
    Case(
        "attention",
        ((2, 4, 7, 8), (2, 1, 9, 8), (2, 1, 9, 8), (4, 1, 9)),
        oracle=by(lambda q, k, v, m: attended(q, k, v, m)),
        dtypes=("float32",) * 3 + ("bool",),
    ),
    Case(
        "attention",
        ((1, 2, 7, 8), (1, 1, 5, 8), (1, 1, 5, 3)),
        {"left": 1, "right": 0},  # the last query sees no key
        oracle=by(lambda q, k, v: attended(q, k, v, within(7, 5, 1, 0))),
    ),
    Case(
        "attention",
        ((2, 2, 5, 8), (2, 1, 5, 8), (2, 1, 5, 4), (1, 1, 5, 5)),
        {"left": 2, "right": 1},
        oracle=by(lambda q, k, v, m: attended(q, k, v, m & within(5, 5, 2, 1))),
        dtypes=("float32",) * 3 + ("bool",),
    ),
    Case(
        "attention",
        ((1, 2, 5, 4), (1, 2, 5, 4), (1, 2, 5, 4)),
        {"softcap": 0.5, "left": 3},
        oracle=by(lambda q, k, v: attended(q, k, v, within(5, 5, 3, 9), cap=0.5)),
    ),
    Case("cumulative_sum", ((3, 7),), {"axis": 1}, "CumSum", onnx_extra=(np.array(1),)),
    Case(
        "cumulative_sum",
        ((7, 3),),
        {"axis": 0, "exclusive": True, "reverse": True},
        "CumSum",
        {"exclusive": 1, "reverse": 1},
        (np.array(0),),
        dtype="int64",
    ),
    Case("top_k", ((3, 7, 5),), {"k": 3, "axis": 1}, oracle=by(lambda x: largest(x, 3, 1))),
    Case(
        "top_k",
        ((7, 9),),
        {"k": 4, "largest": False},
        oracle=by(lambda x: largest(-x, 4, 1, -1)),
        dtype="int32",
        ranges={0: (0, 4)},
    ),
    Case(
        "top_k",
        ((7, 9),),
        {"k": 9, "largest": True},
        oracle=by(lambda x: largest(x, 9, 1)),
        dtype="int32",
        ranges={0: (0, 4)},
    ),
]


def rms(x: Array, axes: tuple[int, ...]) -> Array:
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + f32(1e-5))


def attended(q: Array, k: Array, v: Array, mask: Any = None, scale: float | None = None, cap: float = 0) -> Array:
    """Attention by its definition, every head of keys repeated for its group; zeros for queries that see no key."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    scores = (q.astype(np.float64) @ k.swapaxes(2, 3)) * (scale or q.shape[3] ** -0.5)
    scores = np.tanh(scores / cap) * cap if cap else scores
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    top = scores.max(-1, keepdims=True)
    shares = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = shares.sum(-1, keepdims=True)
    made: Array = (shares / np.where(total == 0, 1, total) @ v).astype(q.dtype)
    return made


def within(queries: int, keys: int, left: int, right: int) -> Array:
    """Which keys lie in each query's window."""
    return np.array([[-left <= j - i <= right for j in range(keys)] for i in range(queries)])


def largest(x: Array, k: int, axis: int, sign: int = 1) -> tuple[Array, Array]:
    """The k largest by Python's own sort, the first of equals first."""
    rows = np.moveaxis(x, axis, -1)
    places = np.empty((*rows.shape[:-1], k), np.int64)
    for at in np.ndindex(rows.shape[:-1]):
        places[at] = sorted(range(rows.shape[-1]), key=lambda n: (-rows[at][n], n))[:k]
    values = np.take_along_axis(rows, places, -1)
    return sign * np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)


# -- indices -----------------------------------------------------------------------------------------------

F_I = ("float32", "int64")
F_I_F = ("float32", "int64", "float32")
CASES += [
    Case("take", ((5, 7, 3), (2, 4)), {"axis": 1}, "Gather", {"axis": 1}, dtypes=F_I, ranges={1: (-7, 7)}),
    Case("take", ((7, 3), (5,)), {}, "Gather", dtypes=("int32", "int32"), ranges={1: (-7, 7)}),
    Case("take", ((7, 3), ()), {"axis": -1}, "Gather", {"axis": -1}, dtypes=F_I, ranges={1: (0, 3)}),
    Case(
        "take_along_axis",
        ((5, 7), (4, 3)),
        {"axis": 1},
        "GatherElements",
        {"axis": 1},
        dtypes=F_I,
        ranges={1: (-7, 7)},
    ),
    Case("gather_nd", ((5, 3, 7), (2, 5, 2)), {}, "GatherND", dtypes=F_I, ranges={1: (-3, 3)}),
    Case("gather_nd", ((5, 3), (7, 2)), {}, "GatherND", dtypes=F_I, ranges={1: (0, 3)}),
    Case(
        "put_along_axis",
        ((5, 7, 3), (5, 4, 2), (5, 4, 2)),
        {"axis": 1, "reduction": "add"},
        "ScatterElements",
        {"axis": 1, "reduction": "add"},
        dtypes=F_I_F,
        ranges={1: (-7, 7)},
    ),
    Case(
        "put_along_axis",
        ((7, 5), (1, 5), (1, 5)),
        {},
        "ScatterElements",
        dtypes=("int64",) * 3,
        ranges={1: (-7, 7)},
    ),
    Case(
        "scatter_nd",
        ((5, 7, 3), (6, 1), (6, 7, 3)),
        {"reduction": "max"},
        "ScatterND",
        {"reduction": "max"},
        dtypes=F_I_F,
        ranges={1: (0, 5)},
    ),
    Case(
        "scatter_nd",
        ((5, 7), (6, 1), (6, 7)),
        {"reduction": "mul"},
        "ScatterND",
        {"reduction": "mul"},
        dtypes=F_I_F,
        ranges={1: (-5, 5)},
    ),
    Case(
        "one_hot",
        ((7, 3),),
        {"depth": 5, "axis": 1, "on": 2.0, "off": -1.0, "dtype": "float64"},
        oracle=by(lambda i: np.where(np.arange(5)[:, None] == np.where(i < 0, i + 5, i)[:, None, :], 2.0, -1.0)),
        dtype="int64",
    ),
    Case(
        "one_hot",
        ((3,),),
        {"depth": 7},
        oracle=by(lambda i: (np.arange(7) == np.where(i < 0, i + 7, i)[:, None]).astype(np.float32)),
        dtype="int32",
    ),
]


# -- numbers in steps --------------------------------------------------------------------------------------


def counted(op: str, attrs: dict[str, Any], arrays: Sequence[Array]) -> Array:
    """NumPy's own numbers in steps."""
    first, step = attrs["start"], attrs["step"]
    return np.arange(first, first + (attrs["size"] - 0.5) * step, step).astype(attrs["dtype"])


def numbers(size: int, start: float, step: float, dtype: str) -> Case:
    return Case("iota", (), {"size": size, "start": start, "step": step, "dtype": dtype}, oracle=counted, dtype=dtype)


CASES += [
    numbers(11, 10, -3, "int64"),
    numbers(5, 9, -2, "uint64"),
    numbers(7, 0.1, 0.3, "float32"),
    numbers(9, 1.0, 0.1, "float64"),
    numbers(9, 0.5, 0.25, "float16"),
]


# -- resizing ----------------------------------------------------------------------------------------------


def resized(shape: tuple[int, ...], sizes: tuple[int, ...], dtype: str = "float32", **attrs: Any) -> Case:
    """A resize, with ONNX's names of its attributes."""
    names = {
        "coordinates": "coordinate_transformation_mode",
        "nearest": "nearest_mode",
        "mode": "mode",
        "cubic": "cubic_coeff_a",
    }
    onnx = {names[key]: value for key, value in attrs.items() if key in names}
    extra = (None, None, np.array(sizes))
    return Case("resize", (shape,), {"sizes": sizes, **attrs}, "Resize", onnx, extra, dtype)


CASES += [
    resized((1, 2, 5, 4), (1, 2, 10, 12), mode="nearest"),
    resized((1, 2, 5, 4), (1, 2, 10, 12), mode="nearest", coordinates="asymmetric", nearest="floor"),
    resized((6, 4), (9, 7), "int32", mode="nearest", nearest="ceil", coordinates="asymmetric"),
    resized((7, 12), (4, 8), mode="nearest", nearest="round_prefer_ceil"),
    resized((1, 3, 6, 4), (1, 3, 9, 12), mode="linear"),
    resized((1, 1, 9, 8), (1, 1, 3, 7), mode="linear", coordinates="align_corners"),
    resized((1, 1, 9, 8), (1, 1, 4, 1), mode="linear", coordinates="pytorch_half_pixel"),
    resized((3, 8), (3, 16), mode="linear", coordinates="asymmetric"),
    resized((1, 2, 6, 5), (1, 2, 9, 7), mode="cubic"),
    resized((1, 1, 9, 8), (1, 1, 4, 5), mode="cubic", coordinates="align_corners", cubic=-0.5),
]


# -- recurrences -------------------------------------------------------------------------------------------


def walked(op: str, attrs: dict[str, Any], arrays: Sequence[Array]) -> Any:
    """The states after each step, and for "lstm" the cells, by ONNX Runtime: one run for each direction and step.

    What the input adds is given, so that its weights are the unit matrix.
    """
    x, r, first, *more = arrays
    kind, width = attrs["kind"], first.shape[-1]
    behind = more[-1] if len(more) == (2 if kind == "lstm" else 1) else None
    given = {"hidden_size": width, **{key: attrs[key] for key in ("clip", "input_forget") if key in attrs}}
    if "activations" in attrs:
        names = {"relu": "Relu", "hardsigmoid": "HardSigmoid", "softsign": "Softsign", "tanh": "Tanh"}
        given["activations"] = [names[name] for name in attrs["activations"]]
    made = []
    for d in range(x.shape[1]):
        rows, bias = r.shape[1], np.zeros((1, 2 * r.shape[1]), x.dtype)
        operands = [np.eye(rows, dtype=x.dtype)[None], r[d : d + 1], bias, None, first[d : d + 1]]
        if kind == "gru" and behind is not None:
            bias[0, -width:] = behind[d]
            given["linear_before_reset"] = 1
        if kind == "lstm":
            operands += [more[0][d : d + 1], None if behind is None else behind[d : d + 1]]
        count = 3 if kind == "lstm" else 2
        steps = [ort(kind.upper(), [x[: t + 1, d], *operands], outputs=count, **given)[1:] for t in range(len(x))]
        made.append([np.concatenate(one) for one in zip(*steps, strict=True)])
    results = tuple(np.stack(one, axis=1) for one in zip(*made, strict=True))
    return results if kind == "lstm" else results[0]


CASES += [
    Case("recurrence", ((4, 2, 3, 5), (2, 5, 5), (2, 3, 5)), {"kind": "rnn"}, oracle=walked),
    Case(
        "recurrence",
        ((3, 2, 3, 6), (2, 6, 2), (2, 3, 2)),
        {"kind": "gru", "activations": ("hardsigmoid", "softsign"), "alphas": (0.2, 0.0), "betas": (0.5, 0.0)},
        oracle=walked,
    ),
    Case("recurrence", ((3, 1, 3, 6), (1, 6, 2), (1, 3, 2), (1, 2)), {"kind": "gru"}, oracle=walked),
    Case("recurrence", ((3, 2, 3, 8), (2, 8, 2), (2, 3, 2), (2, 3, 2)), {"kind": "lstm", "clip": 0.8}, oracle=walked),
    Case(
        "recurrence",
        ((3, 2, 2, 12), (2, 12, 3), (2, 2, 3), (2, 2, 3), (2, 9)),
        {"kind": "lstm", "input_forget": True},
        oracle=walked,
    ),
]


def stepped(op: str, attrs: dict[str, Any], arrays: Sequence[Array]) -> Any:
    """One step, by ONNX Runtime; of a "gru" that keeps a part of another state than it multiplies, by its formulas."""
    x, w, h, *more = arrays
    directions, batch, gates, width = x.shape
    flat = x.reshape(1, directions, batch, gates * width), w.reshape(directions, gates * width, width), h
    if attrs["kind"] == "gru":
        own, behind = more
        z, r, fresh = (np.einsum("dbk,djk->dbj", h.astype(float), w[:, k].astype(float)) for k in range(3))
        z, r = (1 / (1 + np.exp(-one - x[:, :, k])) for k, one in enumerate((z, r)))
        kept = (1 - z) * np.tanh(x[:, :, 2] + r * (fresh + behind[:, None])) + z * own
        return kept.astype(x.dtype)
    made = walked("recurrence", attrs, [*flat, *more[:1], *(one.reshape(directions, -1) for one in more[1:])])
    return tuple(one[0] for one in made) if isinstance(made, tuple) else made[0]


CASES += [
    Case("recurrence_step", ((2, 3, 1, 5), (2, 1, 5, 5), (2, 3, 5)), {"kind": "rnn"}, oracle=stepped),
    Case(
        "recurrence_step",
        ((2, 3, 3, 4), (2, 3, 4, 4), (2, 3, 4), (2, 3, 4), (2, 4)),
        {"kind": "gru"},
        oracle=stepped,
    ),
    Case(
        "recurrence_step",
        ((2, 3, 4, 5), (2, 4, 5, 5), (2, 3, 5), (2, 3, 5)),
        {"kind": "lstm", "clip": 0.8},
        oracle=stepped,
    ),
    Case(
        "recurrence_step",
        ((1, 2, 4, 3), (1, 4, 3, 3), (1, 2, 3), (1, 2, 3), (1, 3, 3)),
        {"kind": "lstm", "input_forget": True},
        oracle=stepped,
    ),
]


# -- what runs whole ---------------------------------------------------------------------------------------

HARDMAX_OF_4X6 = "CAg6QAoRCgF4EgF5IgdIYXJkbWF4OgASAWdaEwoBeBIOCgwIARIICgIIBAoCCAZiEwoBeRIOCgwIARIICgIIBAoCCAZCBAoAEBU="
"""A model in base64, so that a machine without ONNX can read this module."""

CASES.append(
    Case(
        "opaque",
        ((4, 6),),
        {"model": HARDMAX_OF_4X6, "shapes": ((4, 6),), "dtypes": ("float32",), "why": "as an example"},
        oracle=by(lambda x: (np.arange(6) == x.argmax(1)[:, None]).astype(np.float32)),
    )
)
