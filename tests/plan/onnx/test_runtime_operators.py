"""What ONNX Runtime's optimizer writes: fused, quantized and blocked operators equal its own, whole and cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tapestry_exec import run
from tapestry_plan import Graph, Mesh, UnsupportedOp, plan
from tapestry_plan.onnx import load_onnx
from tests.onnx_cases import ANGLES, BLOCKS, MICROSOFT, NodeCase, f32, floats, i64, ints
from tests.onnx_models import difference, model_of, ort

U8, S8 = np.uint8, np.int8


def check(case: NodeCase, unit: float = 0) -> Graph:
    """The graph of a case without opaque nodes, which equals ONNX Runtime on 1 and 3 devices, but for `unit`."""
    graph = load_onnx(case.model, opaque=False)
    wanted = dict(zip(filter(None, case.outputs), ort(case.model, case.inputs), strict=True))
    for devices in (1, 3):
        found = run(plan(graph, Mesh(devices)), case.inputs, verify=True).outputs
        for name, array in wanted.items():
            assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype)
            if array.dtype.kind in "iu":
                apart = np.abs(found[name].astype(int) - array)
                assert apart.max() <= unit and (apart > 0).mean() <= 0.02
            else:
                assert difference(found[name], array) < (2e-3 if array.dtype == np.float16 else 2e-6)
    return graph


def of(op: str, inputs: dict[str, Any], known: dict[str, Any] | None = None, **attrs: Any) -> NodeCase:
    """A case of com.microsoft; `reads` may name inputs in another order."""
    reads = tuple(attrs.pop("reads", ()))
    return NodeCase(op, inputs, known or {}, attrs, reads=reads, domain=attrs.pop("domain", MICROSOFT))


IMAGE, WEIGHTS = floats(2, 4, 6, 7), floats(6, 2, 3, 2, seed=2)
CURVES: list[tuple[str, list[float]]] = [
    ("Relu", []), ("Sigmoid", []), ("Tanh", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.7]),
    ("HardSigmoid", [0.3, 0.4]), ("HardSwish", []), ("HardSwish", [1 / 6, 0.5]), ("", []),
]  # fmt: skip


@pytest.mark.heavy(2)
@pytest.mark.parametrize(("kind", "numbers"), CURVES)
def test_convolutions_with_a_sum_and_a_curve(kind: str, numbers: list[float]) -> None:
    more = {"activation": kind, **({"activation_params": numbers} if numbers else {})} if kind else {}
    window = {"group": 2, "pads": [1, 0, 0, 1], "strides": [2, 1], "dilations": [1, 2]}
    inputs = {"x": IMAGE, "w": WEIGHTS, "b": floats(6), "z": floats(2, 6, 3, 6, seed=5)}
    check(of("FusedConv", inputs, **window, **more))
    check(of("FusedConv", {"x": IMAGE, "w": WEIGHTS}, group=2, auto_pad="SAME_LOWER", **more))
    if not kind.startswith("Hard"):  # along one axis
        check(of("FusedConv", {"x": floats(2, 3, 9), "w": floats(4, 3, 3)}, **more))


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("Relu", {}),
        ("Sigmoid", {}),
        ("Tanh", {}),
        ("Softplus", {}),
        ("Softsign", {}),
        *((kind, {"activation_alpha": 0.3}) for kind in ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu")),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
        ("Selu", {"activation_alpha": 1.3, "activation_gamma": 1.1}),
    ],
)
def test_products_with_a_curve(kind: str, numbers: dict[str, float]) -> None:
    check(of("FusedGemm", {"a": floats(5, 7), "b": floats(7, 4)}, activation=kind, **numbers))
    inputs = {"a": floats(7, 5), "b": floats(4, 7), "c": floats(4)}
    check(of("FusedGemm", inputs, activation=kind, transA=1, transB=1, alpha=0.5, beta=2.0, **numbers))


def test_curves_that_are_not_known_or_lack_numbers_are_refused() -> None:
    for says, attrs in {
        "activation 'Cosine' is not supported, only": {"activation": "Cosine"},
        "activation Clip takes 2 numbers": {"activation": "Clip", "activation_params": [1.0]},
        "HardSwish of .* is not supported": {"activation": "HardSwish", "activation_params": [0.3, 0.5]},
    }.items():
        with pytest.raises(ValueError, match=says):
            load_onnx(of("FusedConv", {"x": IMAGE, "w": WEIGHTS}, group=2, **attrs).model, opaque=False)
    wrong = of("FusedConv", {"x": IMAGE, "w": WEIGHTS, "z": floats(2, 6, 1, 1)}, group=2, reads=("x", "w", "", "z"))
    with pytest.raises(ValueError, match=r"its input 3 has shape \(2, 6, 1, 1\); that of the result"):
        load_onnx(wrong.model)


@pytest.mark.parametrize(
    ("a", "b", "attrs"),
    [
        ((3, 4), (4, 5), {}),
        ((2, 4, 3), (2, 5, 4), {"transA": 1, "transB": 1, "alpha": 0.3}),
        ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
        ((2, 3, 4), (4, 2, 5), {"transBatchB": 1}),
        ((4, 2, 3), (2, 4, 5), {"transBatchA": 1, "transA": 1}),
        ((3, 2, 6, 4), (5, 2, 6, 4), {"transBatchA": 1, "transBatchB": 1, "transB": 1}),
    ],
)
def test_products_whose_axes_are_exchanged(a: Any, b: Any, attrs: dict[str, Any]) -> None:
    check(of("FusedMatMul", {"a": floats(*a), "b": floats(*b, seed=2)}, **attrs))


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(("shape", "heads"), [((2, 2, 3, 40), 2), ((2, 2, 3, 40), 4), ((2, 3, 80), 2)])
def test_rotations_of_a_part_of_each_head(shape: Any, heads: int, interleaved: int) -> None:
    tables = {"c": np.cos(ANGLES), "s": np.sin(ANGLES)}  # of 8 pairs
    attrs = {"rotary_embedding_dim": 16, "num_heads": heads, "interleaved": interleaved}
    check(of("RotaryEmbedding", {"x": floats(*shape), "i": ints(0, 8, 2, 3)}, tables, **attrs))
    with pytest.raises(ValueError, match="rotary_embedding_dim is 8; cos_cache of shape"):
        load_onnx(
            of(
                "RotaryEmbedding", {"x": floats(*shape)}, {"i": i64(0), **tables}, **attrs | {"rotary_embedding_dim": 8}
            ).model
        )


# -- as ONNX has them ----------------------------------------------------------------------------------------


@pytest.mark.heavy(3)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
@pytest.mark.parametrize("upper", [{}, {"upper": 0}, {"upper": 1}])
def test_triangles(upper: dict[str, int], dtype: Any) -> None:
    x = floats(2, 4, 5).astype(dtype)
    check(of("Trilu", {"x": x}, **upper))
    for k in (-2, 1, 9):
        check(of("Trilu", {"x": x}, {"k": np.array(k)}, **upper))


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_slices_at_indices(kind: Any) -> None:
    x = floats(3, 4, 5)
    for indices in (ints(0, 3, 6, 1), ints(-3, 3, 2, 6, 2), ints(0, 3, 3), ints(0, 3, 2, 2, 3)):
        check(of("GatherND", {"x": x, "i": indices.astype(kind)}))


@pytest.mark.heavy(6)
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_samples_of_a_grid(mode: str, padding: str, corners: int) -> None:
    """Its modes are called as before opset 20, in a model of any opset."""
    inputs = {"x": floats(2, 3, 5, 4), "g": floats(2, 4, 3, 2, seed=3)}
    check(of("GridSample", inputs, mode=mode, padding_mode=padding, align_corners=corners))


def test_modes_of_samples() -> None:
    inputs = {"x": floats(2, 3, 5, 4), "g": floats(2, 4, 3, 2)}
    check(of("GridSample", inputs))
    with pytest.raises(ValueError, match=r"mode is 'linear' .*\['bilinear', 'bicubic', 'nearest'\] are known"):
        load_onnx(of("GridSample", inputs, mode="linear").model)


def test_axes_of_extent_1() -> None:
    for axis in (0, 1, 2, -1, -2, -3):
        check(of("ExpandDims", {"x": floats(3, 4)}, {"k": np.array(axis, np.int32)}))
    with pytest.raises(ValueError, match=r"axis is \[0, 1\]; one number is needed"):
        load_onnx(of("ExpandDims", {"x": floats(3, 4)}, {"k": np.array([0, 1], np.int32)}).model, opaque=False)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pads_of_every_mode(mode: str, dtype: Any) -> None:
    x, pads = floats(3, 4, dtype=dtype), i64(1, 0, 2, 3)
    check(of("Pad", {"x": x}, {"pads": pads}, mode=mode))
    check(of("Pad", {"x": x}, {"pads": pads.reshape(1, 4), "v": dtype(0.5)}, mode=mode))
    if mode == "constant":
        check(of("Pad", {"x": x}, {"pads": i64(1, -1, 0, 2)}))


# -- quantized -----------------------------------------------------------------------------------------------


def numbers(dtype: Any, *names: str) -> dict[str, Any]:
    """Scales `…s` and zero points `…z` of some operands; no share of scales has a half, which either rounds by."""
    middle = 128 if dtype == U8 else 3
    parts = [{f"{n}s": f32(0.02 * np.sqrt(k + 1)), f"{n}z": dtype(middle - 9 * k)} for k, n in enumerate(names)]
    return {key: value for part in parts for key, value in part.items()}


def bytes_of(dtype: Any, *shape: int, seed: int = 1) -> np.ndarray:
    ends = np.iinfo(dtype)
    return ints(ends.min, ends.max + 1, *shape, seed=seed, dtype=dtype)


@pytest.mark.heavy(2)
@pytest.mark.parametrize("dtype", [U8, S8])
@pytest.mark.parametrize(
    ("shape", "attrs"),
    [((4, 9), {}), ((2, 5, 6), {"axis": 1}), ((2, 3, 4), {"opset": 12, "axis": 1}), ((2, 3, 4), {"opset": 12})],
)
def test_softmax_of_bytes(shape: Any, attrs: dict[str, int], dtype: Any) -> None:
    known = {**numbers(dtype, "x"), "ys": f32(1 / 256), "yz": dtype(0 if dtype == U8 else -128)}
    check(of("QLinearSoftmax", {"x": bytes_of(dtype, *shape)}, known, **{"opset": 13, **attrs}), unit=1)


@pytest.mark.heavy(4)
@pytest.mark.parametrize("dtype", [U8, S8])
@pytest.mark.parametrize("zero", [7, 8])
@pytest.mark.parametrize(
    ("op", "shapes", "scale", "attrs"),
    [
        ("QLinearAdd", [(6, 40), (40,)], 1 / 2, {}),
        ("QLinearMul", [(6, 40), (40,)], 1 / 2, {}),
        ("QLinearMul", [(6, 40), (40,)], 16, {}),
        ("QLinearAveragePool", [(1, 3, 8, 8)], 1 / 4, {"kernel_shape": [2, 2]}),
        ("QLinearAveragePool", [(1, 8, 8, 3)], 1 / 4, {"kernel_shape": [1, 2], "channels_last": 1}),
        ("QLinearGlobalAveragePool", [(9, 30, 1, 2)], 1 / 4, {}),
        ("QLinearLeakyRelu", [(8, 32)], 1 / 2, {"alpha": 0.25}),
        ("QLinearSigmoid", [(8, 32)], 1, {}),
        ("QLinearSigmoid", [(8, 32)], 1 / 5, {}),
    ],
)
def test_halves_of_bytes_go_where_onnx_runtime_has_them(
    op: str, shapes: list[Any], scale: float, attrs: dict[str, Any], zero: int, dtype: Any
) -> None:
    """An odd zero point turns an even half into an odd one: whether it is added before the rounding shows."""
    inputs = {name: bytes_of(dtype, *shape, seed=k) for k, (name, shape) in enumerate(zip("ab", shapes, strict=False))}
    known = {"s": f32(1 / 4), "z": dtype(zero), "ys": f32(scale)}
    reads = [name for one in inputs for name in (one, "s", "z")]
    check(of(op, inputs, known, reads=[*reads, "ys", "z"], **attrs))


@pytest.mark.parametrize("dtype", [U8, S8])
@pytest.mark.parametrize("zero", [0, 7])
def test_halves_of_shares_go_where_onnx_runtime_has_them(zero: int, dtype: Any) -> None:
    for equal, scale in ((2, 1.0), (4, 0.5), (2, 1 / 3), (4, 0.1)):  # ONNX Runtime's table makes others inexact
        known, reads = {"s": f32(1 / 4), "z": dtype(zero), "ys": f32(scale)}, ("a", "s", "z", "ys", "z")
        check(of("QLinearSoftmax", {"a": np.full((3, equal), 9, dtype)}, known, reads=reads, opset=13))


POOL = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}


@pytest.mark.heavy(2)
@pytest.mark.parametrize("dtype", [U8, S8])
@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        *(
            ("QLinearAveragePool", {**POOL, **more})
            for more in (
                {},
                {"count_include_pad": 1},
                {"channels_last": 1},
                {"ceil_mode": 1, "pads": [0, 0, 0, 0]},
            )
        ),
        *(("QLinearGlobalAveragePool", {"channels_last": last}) for last in (0, 1)),
        *(("NhwcMaxPool", {**POOL, **more}) for more in ({}, {"ceil_mode": 1}, {"dilations": [2, 1]})),
    ],
)
def test_pools_of_bytes(op: str, attrs: dict[str, Any], dtype: Any) -> None:
    known = {} if op == "NhwcMaxPool" else numbers(dtype, "x", "y")
    check(of(op, {"x": bytes_of(dtype, 2, 5, 7, 6)}, known, **attrs), unit=op != "NhwcMaxPool")


@pytest.mark.parametrize("more", [{"ceil_mode": 1}, {"dilations": [2, 1]}])
def test_the_largest_of_bytes(more: dict[str, Any]) -> None:
    """Padding is below the lowest byte, also where something reads the numbers of cells."""
    x = bytes_of(S8, 1, 2, 7, 6)
    check(NodeCase("MaxPool", {"x": x}, {}, {**POOL, **more}))
    lowest = np.where(x < 100, S8(-128), x)
    check(NodeCase("MaxPool", {"x": lowest}, {}, POOL, ("y", "i")))
    with pytest.raises(ValueError, match="its input 0 is int64; floating numbers, or integers of 8 bits, are needed"):
        load_onnx(of("NhwcMaxPool", {"x": ints(0, 9, 1, 5, 5, 2)}, **POOL).model)


@pytest.mark.heavy(2)
@pytest.mark.parametrize("dtype", [U8, S8])
@pytest.mark.parametrize("is_last", [0, 1])
def test_convolutions_of_bytes_with_channels_last(dtype: Any, is_last: int) -> None:
    x = bytes_of(dtype, *((2, 6, 5, 4) if is_last else (2, 4, 6, 5)))
    known = numbers(dtype, "x") | {"w": bytes_of(S8, 6, 2, 3, 3), "ws": np.abs(floats(6)) / f32(50)}
    known |= {"wz": np.zeros(6, S8), "ys": f32(0.4), "yz": dtype(7), "b": ints(-999, 999, 6, dtype=np.int32)}
    reads = ("x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b")
    window = {"group": 2, "pads": [1, 1, 0, 1], "strides": [2, 1]}
    check(of("QLinearConv", {"x": x}, known, reads=reads, channels_last=is_last, **window))


@pytest.mark.parametrize("dtype", [U8, S8])
def test_choices_of_bytes(dtype: Any) -> None:
    inputs = {"c": floats(3, 1) > 0, "a": bytes_of(dtype, 3, 4), "b": bytes_of(dtype, 4, seed=2)}
    reads = ("c", "a", "as", "az", "b", "bs", "bz", "ys", "yz")
    check(of("QLinearWhere", inputs, numbers(dtype, "a", "b", "y"), reads=reads))


@pytest.mark.parametrize(
    ("x", "known", "attrs"),
    [
        (floats(3, 4), {"s": f32(0.02), "z": U8(99)}, {}),
        (floats(3, 4), {"s": f32(0.02)}, {}),
        (floats(3, 4), {"s": np.abs(floats(3)), "z": ints(-5, 5, 3, dtype=S8)}, {"axis": 0}),
        (floats(3, 4, dtype=np.float16), {"s": np.float16(0.02), "z": S8(-3)}, {}),
        (floats(3, 4), {"s": f32(0.001), "z": np.uint16(4000)}, {}),
        (floats(3, 4), {"s": f32(0.001), "z": np.int16(-40)}, {}),
    ],
)
def test_numbers_become_integers(x: np.ndarray, known: dict[str, Any], attrs: dict[str, Any]) -> None:
    check(of("QuantizeLinear", {"x": x}, known, **attrs))


@pytest.mark.parametrize(
    ("x", "known", "attrs"),
    [
        (bytes_of(U8, 3, 4), {"s": f32(0.02), "z": U8(99)}, {}),
        (bytes_of(S8, 3, 4), {"s": np.abs(floats(4)), "z": ints(-5, 5, 4, dtype=S8)}, {"axis": 1}),
        (bytes_of(S8, 3, 4), {"s": np.float16(0.02), "z": S8(7)}, {}),
        (ints(-(2**20), 2**20, 3, 4, dtype=np.int32), {"s": f32(0.5)}, {}),
        (ints(0, 2**16, 3, 4, dtype=np.uint16), {"s": f32(0.5), "z": np.uint16(2**15)}, {}),
    ],
)
def test_integers_become_numbers(x: np.ndarray, known: dict[str, Any], attrs: dict[str, Any]) -> None:
    check(of("DequantizeLinear", {"x": x}, known, **attrs))


@pytest.mark.heavy(2)
@pytest.mark.parametrize("dtype", [U8, S8])
@pytest.mark.parametrize("x", [floats(4, 6), np.abs(floats(2, 3, 6)), np.zeros((2, 6), np.float32)])
def test_products_that_quantize_their_operand(x: np.ndarray, dtype: Any) -> None:
    b = bytes_of(dtype, 6, 5)
    check(of("DynamicQuantizeMatMul", {"a": x, "b": b}, {"s": f32(0.02)}))
    known = {"b": b, "s": np.abs(floats(5)), "z": np.full(5, 4, dtype), "c": floats(5)}
    check(of("DynamicQuantizeMatMul", {"a": x}, known))


@pytest.mark.heavy(2)
@pytest.mark.parametrize(
    "x", [floats(4, 6), np.abs(floats(3, 5)), -np.abs(floats(7)), np.zeros((2, 3), np.float32), np.zeros(1, np.float32)]
)
def test_bytes_by_the_range_of_a_run(x: np.ndarray) -> None:
    """Of zeros alone the scale is 1, as in ONNX Runtime, and no cell is divided by 0."""
    graph = check(NodeCase("DynamicQuantizeLinear", {"x": x}, {}, {}, ("y", "s", "z")))
    with np.errstate(all="raise"):
        found = run(plan(graph, Mesh(2)), {"x": x}).outputs
    assert x.any() or (found["s"], found["z"]) == (1, 0)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_rows_of_few_bits_at_indices(bits: int, kind: Any) -> None:
    """Also beyond the rows, where ONNX Runtime has zeros; a row has 3 blocks, whose zeros fill no byte."""
    known = {"x": bytes_of(U8, 9, 6 * bits), "s": floats(9, 3, dtype=kind)}
    for places in (ints(-9, 9, 2, 3), i64(8, 9, -10, 0)):
        for zeros in ({}, {"z": bytes_of(U8, 9, -(-3 * bits // 8))}):
            reads = ("x", "i", "s", *zeros)
            case = of("GatherBlockQuantized", {"i": places}, known | zeros, reads=reads, bits=bits, block_size=16)
            check(case)
    check(
        of(
            "GatherBlockQuantized",
            {"j": i64(0)},
            {**known, "i": i64(8, 9, -1)},
            reads=("x", "i", "s"),
            bits=bits,
            block_size=16,
        )
    )


@pytest.mark.parametrize("kind", ["int4", "uint4", "float8_e4m3fn"])
@pytest.mark.parametrize(("axis", "along"), [(0, 1), (1, 0), (1, 2), (0, 2)])
def test_short_numbers_at_indices(kind: str, axis: int, along: int) -> None:
    shape = [5, 6, 7][: max(axis, along, 1) + 1]
    shape[along] = 40
    scales = [-(-n // 16) if k == along else n for k, n in enumerate(shape)]
    data = ints(0, 8, *shape).astype(
        helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind.upper().replace("_", "")))
    )
    known = {"x": data, "s": floats(*scales)}
    if not kind.startswith("float"):
        known["z"] = ints(0, 4, *scales).astype(data.dtype)
    attrs = {"gather_axis": axis, "quantize_axis": along, "block_size": 16}
    check(of("GatherBlockQuantized", {"i": ints(-5, 5, 2, 3)}, known, reads=("x", "i", *list(known)[1:]), **attrs))


def test_one_scale_of_all_rows() -> None:
    data = floats(5, 40).astype(helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT8E4M3FN))
    known = {"x": data, "s": f32([[0.3]])}
    check(of("GatherBlockQuantized", {"i": ints(-5, 5, 2, 3)}, known, reads=("x", "i", "s"), block_size=0))


# -- blocks of channels --------------------------------------------------------------------------------------


def blocked(op: str, inputs: dict[str, Any], known: dict[str, Any] | None = None, **attrs: Any) -> NodeCase:
    return NodeCase(op, inputs, known or {}, attrs, reads=tuple(attrs.pop("reads", ())), domain=BLOCKS)


@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((1, 3, 7, 6), (16, 3, 3, 3), {"pads": [1, 1, 1, 1]}),  # as many channels as fill no block: not in blocks
        ((2, 32, 5, 6), (16, 32, 3, 2), {"strides": [2, 1]}),
        ((1, 16, 5, 5), (16, 1, 3, 3), {"group": 16, "dilations": [2, 1]}),
        ((1, 32, 4, 4), (32, 16, 1, 1), {"group": 2}),
    ],
)
def test_convolutions_of_blocks(x: Any, w: Any, attrs: dict[str, Any]) -> None:
    inputs = {"x": floats(*x), "b": floats(w[0], seed=3)}
    reads = ("x", "w", "b")
    case = blocked("Conv", inputs, {"w": floats(*w, seed=2)}, reads=reads, activation="Relu", **attrs)
    check(case)
    (made,) = ort(case.model, case.inputs)
    more = {"x": inputs["x"], "w": floats(*w, seed=2), "z": floats(*made.shape, seed=4)}
    check(blocked("Conv", more, reads=("x", "w", "", "z"), **attrs))  # weights that the run is given


@pytest.mark.parametrize("channels", [4, 16, 20])
@pytest.mark.parametrize("is_last", [0, 1])
def test_tensors_go_into_blocks_and_out(channels: int, is_last: int) -> None:
    x = floats(2, 5, 3, channels) if is_last else floats(2, channels, 5, 3)
    case = blocked("ReorderInput", {"x": x}, channels_last=is_last)
    assert not check(case).nodes
    y = floats(*ort(case.model, case.inputs)[0].shape, seed=2)
    assert not check(blocked("ReorderOutput", {"x": y}, channels=channels, channels_last=is_last)).nodes


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
        ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
        ("AveragePool", {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}),
        ("AveragePool", {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}),
        ("GlobalMaxPool", {}),
        ("GlobalAveragePool", {}),
        ("Upsample", {"scales": [1, 1, 2, 3], "mode": "nearest"}),
        ("Upsample", {"scales": [1, 1, 2, 2], "mode": "linear", "coordinate_transformation_mode": "half_pixel"}),
        ("Upsample", {"scales": [1, 1, 2, 2], "mode": "linear", "coordinate_transformation_mode": "align_corners"}),
        ("Upsample", {"scales": [1, 1, 3, 2], "mode": "linear", "coordinate_transformation_mode": "asymmetric"}),
    ],
)
def test_windows_over_blocks(op: str, attrs: dict[str, Any]) -> None:
    check(blocked(op, {"x": floats(2, 32, 5, 7)}, **attrs))


def test_what_lies_between_blocks_reorders_nothing() -> None:
    """A sum, a curve and what is joined by channels are made in the usual order; a reshape sees the cells in blocks."""
    make, x = helper.make_node, floats(1, 16, 4, 4)
    nodes = [
        make("ReorderInput", ["x"], ["a"], domain=BLOCKS),
        make("MaxPool", ["a"], ["b"], domain=BLOCKS, kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1]),
        make("Add", ["a", "b"], ["c"]),
        make("Clip", ["c", "low", "high"], ["d"]),
        make("Concat", ["d", "b"], ["e"], axis=1),
        make("Identity", ["e"], ["f"]),
        make("ReorderOutput", ["f"], ["y"], domain=BLOCKS, channels=30),
        make("Reshape", ["d", "shape"], ["z"]),
    ]
    known = {"low": f32(-0.5), "high": f32(0.5), "shape": i64(2, 8, 16)}
    model = model_of(nodes, {"x": x.shape}, ("y", "z"), known)
    model.opset_import.append(helper.make_opsetid(BLOCKS, 1))
    graph = load_onnx(model, opaque=False)
    assert [node.op for node in graph.nodes.values()] == ["max_pool", "add", "clip"]
    wanted = ort(model, {"x": x})
    p = plan(graph, Mesh(2))
    assert all(p.sharding[name] for name in graph.nodes)
    for name, array in zip(("y", "z"), wanted, strict=True):
        np.testing.assert_array_equal(run(p, {"x": x}).outputs[name], array)


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (blocked("MaxPool", {"x": floats(1, 12, 4, 4)}, kernel_shape=[2, 2]), r"its input 0 has shape \(1, 12, 4, 4\)"),
        (blocked("ReorderInput", {"x": floats(1, 16, 4)}), r"its input 0 is float32\(1, 16, 4\); float32\(batch"),
        (blocked("Conv", {"x": floats(1, 3, 4, 4), "w": floats(12, 3, 1, 1)}), r"its weights have shape \(12, 3, 1, 1"),
        (blocked("ReorderOutput", {"x": floats(1, 16, 4, 4)}, channels=17), "channels is 17; its input of"),
    ],
)
def test_what_does_not_fit_blocks_is_refused(case: NodeCase, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        load_onnx(case.model)


def test_without_onnx_runtime_nobody_knows_how_large_blocks_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from tapestry_plan.onnx.importers import blocked as importer

    def fails() -> int:
        raise ValueError("No module named 'onnxruntime'")

    monkeypatch.setattr(importer, "_find_block", fails)
    with pytest.raises(UnsupportedOp, match="how many channels are in a block is not known: No module"):
        load_onnx(blocked("ReorderInput", {"x": floats(1, 16, 4, 4)}).model, opaque=False)


@pytest.mark.parametrize("level", ["ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet"])
@pytest.mark.heavy(2)
def test_optimized_networks_have_no_opaque_nodes(name: str, level: str, tmp_path: Any) -> None:
    import onnx

    from tests.test_networks import RESNET

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 4
    path = str(RESNET.parent / f"{name}.onnx")
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    model = onnx.load(options.optimized_model_filepath)
    assert any(node.domain.startswith(MICROSOFT) for node in model.graph.node)
    graph = load_onnx(model, opaque=False)
    rng = np.random.default_rng(1)
    feeds = {
        one.name: rng.integers(0, 2, one.shape) if one.dtype == "int64" else floats(*one.shape)
        for one in graph.stored.values()
        if one.kind == "input"
    }
    found = run(plan(graph, Mesh(3)), feeds).outputs
    for value, wanted in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        assert difference(found[value.name], wanted) < 1e-5
