"""Sums of products of short integers are exact, so that every split gives the same bits."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tapestry_exec import evaluate, run
from tapestry_plan import Graph, Mesh, Tensor, UnsupportedOp, ops, plan, same_graph
from tapestry_plan.ir import SHORT_FLOATS
from tapestry_plan.onnx import load_onnx, to_onnx, tuning
from tapestry_plan.ops.quantized import limits_of
from tests.onnx_cases import MICROSOFT, NodeCase, f32, floats, i64, ints
from tests.onnx_models import difference, model_of, ort
from tests.plan.onnx.test_writing import depends_on_constants

# -- cell by cell ------------------------------------------------------------------------------------------


def saturated(x: Tensor, zero: Tensor | None, dtype: str, rounds_last: bool = False) -> Tensor:
    """What ONNX defines in operators of one step each: rounding, an offset, bounds and a cast."""
    wide, bounds = np.promote_types(x.dtype, "float32").name, limits_of(dtype)
    made = ops.astype(x if rounds_last else ops.round(x), wide)
    made = made if zero is None else made + ops.astype(zero, wide)
    return ops.astype(ops.clip(ops.round(made) if rounds_last else made, float(bounds.min), float(bounds.max)), dtype)


def by_steps(op: str, x: Tensor, scale: Tensor, zero: Tensor | None, made: str, how: dict[str, Any]) -> Tensor:
    """What `quantize`, `requantize`, `dequantize` and `center` say, in operators of one step each."""
    if op == "center":
        assert zero is not None
        return ops.astype(x, made) - ops.astype(zero, made)
    if op == "requantize":
        return saturated(ops.astype(x, "float32") * scale, zero, made)
    if op == "quantize":
        floats = (one.dtype for one in (x, scale) if one.dtype in ("float16", "float32", "float64"))
        kind = how.get("precision") or next(floats, "float32")
        share = ops.astype(x, kind) / ops.astype(scale, kind)
        if made not in SHORT_FLOATS:
            return saturated(share, zero, made, how.get("rounds_last", False))
        most = float(limits_of(made).max)
        is_cast = made == "float4_e2m1fn" or not how.get("saturate", True)
        return ops.astype(share if is_cast else ops.clip(share, -most, most), made)
    wide = np.promote_types(made, "float32").name
    held = wide if np.dtype(x.dtype).itemsize < 4 or zero is None else "int64"
    left = ops.astype(x, held)
    left = left if zero is None else left - ops.astype(zero, held)
    return ops.astype(ops.astype(left, wide) * ops.astype(scale, wide), made)


SHORT = ("int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16")
FLOATS8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn")
STEPS: list[tuple[str, str, str, str, bool, dict[str, Any]]] = [
    *(("quantize", x, x, made, True, {}) for x in ("float16", "float32", "float64") for made in SHORT),
    *(("quantize", "float32", "float32", made, False, {"rounds_last": True}) for made in ("int8", "uint8")),
    *(("quantize", x, "float32", "int8", True, {"rounds_last": True}) for x in ("float16", "float32", "int32")),
    *(("quantize", "float32", "float32", "uint8", True, {"precision": kind}) for kind in ("float16", "float64")),
    *(("quantize", x, x, made, False, {}) for x in ("float16", "float32") for made in FLOATS8),
    *(("quantize", "float32", "float32", made, False, {"saturate": False}) for made in FLOATS8),
    *(
        ("requantize", x, "float32", made, True, {})
        for x in ("float32", "float64", "int32")
        for made in ("int8", "uint8")
    ),
    *(("dequantize", x, "float32", "float32", True, {}) for x in (*SHORT, "int32", "uint32")),
    *(("dequantize", x, "float16", made, True, {}) for x in ("int8", "int32") for made in ("float16", "float64")),
    *(("dequantize", x, "float32", made, False, {}) for x in (*FLOATS8, "int32") for made in ("float32", "bfloat16")),
    *(("center", x, "float32", made, True, {}) for x in SHORT for made in ("float32", "float64")),
]


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], is_scale: bool = False) -> np.ndarray:
    """Numbers of a dtype: halves, large ones and ends too."""
    if is_scale:
        return rng.choice([0.25, 0.5, 1, 0.3, 0.0123], shape).astype(dtype)
    if dtype in SHORT_FLOATS or np.dtype(dtype).kind == "f":
        drawn = rng.choice([0, 0.5, 1.5, 2.5, -0.5, -3.5, 1e3, -1e3, 6e4], shape) * rng.choice([1, 0.25], shape)
        most = float(limits_of(dtype).max) if dtype in SHORT_FLOATS else np.inf
        return (drawn + rng.choice([0, 0, 0.1], shape)).clip(-most, most).astype(dtype)
    ends = limits_of(dtype)
    wide = rng.choice([int(ends.min), int(ends.max), 0, 1, int(ends.max) // 2, int(ends.max) // 3], shape)
    return wide.astype(dtype)


@pytest.mark.heavy(4)
@pytest.mark.parametrize("axis", [None, -1, 1, 0])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: "-".join(map(str, step)))
def test_operators_have_the_bits_of_their_steps(
    step: tuple[str, str, str, str, bool, dict[str, Any]], axis: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one scale, or of those along an axis; whole, in few cells at a time, and on three devices."""
    op, x_kind, scale_kind, made, has_zero, how = step
    rng, g, shape = np.random.default_rng(7), Graph(), (3, 5, 4)
    size = () if axis is None else (shape[axis],)
    column = () if axis is None else (*size, *(1,) * (2 - axis % 3))
    feeds = {"x": numbers(rng, x_kind, shape), "s": numbers(rng, scale_kind, size, True)}
    feeds |= {"z": numbers(rng, x_kind if op in ("dequantize", "center") else made, size)} if has_zero else {}
    x, scale, *zeros = (g.input(name, array.shape, array.dtype.name) for name, array in feeds.items())
    wanted = by_steps(op, x, scale.reshape(column), zeros[0].reshape(column) if zeros else None, made, how)
    operands = (x, *zeros) if op == "center" else (x, scale, *zeros)
    found = g.op(op, *operands, dtype=made, axis=-1 if axis is None else axis, **how)
    assert found.dtype == made
    g.output(wanted, "wanted")
    g.output(found, "found")
    with np.errstate(all="ignore"):
        one = evaluate(g, feeds)
        monkeypatch.setattr(ops.tuning, "TILE_CELLS", 8)
        others = evaluate(g, feeds), run(plan(g, Mesh((3,)), fix={found.name: {"i1": 3}}), feeds).outputs
    for each in (one, *others):
        assert each["found"].dtype == each["wanted"].dtype and each["found"].tobytes() == one["wanted"].tobytes()


def run_split(graph: Any, feeds: dict[str, Any], parts: int, axis: str) -> np.ndarray:
    """The result where the operator with that axis is split along it."""
    fix = {name: {axis: parts} for name in graph.nodes if axis in {one.name for one in graph.signature(name).axes}}
    assert fix or parts == 1
    found: np.ndarray = run(plan(graph, Mesh((parts,)), fix=fix, expand=False), feeds).outputs["y"]
    return found


def drawn(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Integers of 8 bits, most of them at the ends."""
    rng, ends = np.random.default_rng(seed), np.iinfo(kind)
    return np.where(rng.random(shape) < 0.8, rng.choice([ends.min, ends.max], shape), rng.integers(0, 9, shape)).astype(
        kind
    )


@pytest.mark.parametrize(
    ("a_kind", "b_kind", "k"), [("uint8", "uint8", 700), ("int8", "uint8", 260), ("int8", "int8", 3)]
)
def test_products_of_integers_are_exact_however_they_are_split(a_kind: str, b_kind: str, k: int) -> None:
    seed = k
    a, b = drawn(a_kind, (3, k), seed), drawn(b_kind, (k, 4), seed + 1)
    zeros = {"za": drawn(a_kind, (), seed + 2), "zb": drawn(b_kind, (), seed + 3)}
    graph = load_onnx(NodeCase("MatMulInteger", {"a": a, "b": b}, zeros).model)
    wanted = (a.astype(int) - int(zeros["za"])) @ (b.astype(int) - int(zeros["zb"]))
    for parts in (1, 3):
        found = run_split(graph, {"a": a, "b": b}, parts, "k")
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(
    ("a_shape", "b_shape", "a_scales", "b_scales"),
    [
        ((3, 8), (8, 3), (3,), (3,)),
        ((3, 8), (8, 5), (3,), ()),
        ((3, 3, 8), (3, 8, 3), (3, 3, 1), (3, 1, 3)),
        ((2, 3, 8), (2, 8, 5), (2, 3, 1), (1,)),
        ((3, 8), (8,), (3,), ()),
        ((2, 3, 8), (8,), (2, 3, 1), ()),
        ((8,), (8, 5), (), (5,)),
    ],
)
def test_scales_of_rows_and_columns_lie_along_these(
    a_shape: tuple[int, ...],
    b_shape: tuple[int, ...],
    a_scales: tuple[int, ...],
    b_scales: tuple[int, ...],
    is_known: bool,
) -> None:
    """Square ones too; by ONNX's text, as neither ONNX Runtime nor the reference runs all of them."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 9, a_shape, np.uint8), rng.integers(-9, 9, b_shape, np.int8)
    of_a, of_b = (rng.random(shape, f32) * f32(0.3) + f32(0.01) for shape in (a_scales, b_scales))
    scales = {"sa": of_a, "sb": of_b, "sy": f32(0.5)}
    zeros = {"za": np.uint8(3), "zb": np.int8(-2), "zy": np.uint8(99)}
    given = {"a": a, "b": b} if is_known else {"a": a, "b": b, **scales}
    known = {**scales, **zeros} if is_known else zeros
    graph = load_onnx(
        NodeCase("QLinearMatMul", given, known, reads=("a", "sa", "za", "b", "sb", "zb", "sy", "zy")).model
    )
    sums = (a.astype(int) - 3) @ (b.astype(int) + 2)
    rows = of_a.reshape(-1, 1) if of_a.ndim == 1 and len(b_shape) > 1 else of_a
    ratio = (rows[..., 0] if len(b_shape) == 1 and rows.ndim > 1 else rows) * of_b / f32(0.5)
    wanted = np.clip(np.rint(sums.astype(f32) * ratio) + 99, 0, 255).astype(np.uint8)
    found = run(plan(graph, Mesh(2)), given).outputs["y"]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("op", ["MatMulInteger", "MatMulIntegerToFloat"])
def test_vectors_have_zero_points_too(op: str) -> None:
    a, b = ints(0, 256, 20, dtype=np.uint8), ints(-128, 128, 20, 5, dtype=np.int8)
    sums = (a.astype(int) - 7) @ (b.astype(int) - 2)
    zeros = {"za": np.uint8(7), "zb": np.int8(2)}
    if op == "MatMulInteger":
        case = NodeCase(op, {"a": a, "b": b}, zeros)
    else:
        scales = {"sa": f32(0.5), "sb": f32(0.25)}
        case = NodeCase(
            op, {"a": a, "b": b}, {**scales, **zeros}, reads=("a", "b", "sa", "sb", "za", "zb"), domain=MICROSOFT
        )
    found = run(plan(load_onnx(case.model), Mesh(2)), {"a": a, "b": b}).outputs["y"]
    np.testing.assert_array_equal(found, sums if op == "MatMulInteger" else (sums * 0.125).astype(f32))


def test_sums_beyond_32_bits_wrap_around() -> None:
    """As ONNX Runtime's do."""
    a, b = np.full((1, 70_000), 255, np.uint8), np.full((70_000, 1), 0, np.uint8)
    case = NodeCase("MatMulInteger", {"a": a, "b": b}, {"za": np.uint8(0), "zb": np.uint8(255)})
    found = run(plan(load_onnx(case.model), Mesh(2)), {"a": a, "b": b}).outputs["y"]
    np.testing.assert_array_equal(found, np.array([[-255 * 255 * 70_000]]).astype(np.int32))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_what_is_no_number_is_the_least(dtype: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -0.0], f32)
    case = NodeCase("QuantizeLinear", {"x": x}, {"s": f32(0.5), "z": np.array(3, dtype)})
    found = run(plan(load_onnx(case.model), Mesh(2)), {"x": x}).outputs["y"]
    ends = np.iinfo(dtype)
    assert found.tolist() == [ends.min, ends.max, ends.min, ends.max, 3]


def test_convolutions_of_integers_are_the_same_bits_on_any_split() -> None:
    x, w = ints(0, 256, 1, 6, 5, 5, dtype=np.uint8), ints(-128, 128, 4, 6, 3, 3, dtype=np.int8)
    known = {"sx": f32(0.3), "zx": np.uint8(77), "sw": f32(0.01), "zw": np.int8(5), "sy": f32(9), "zy": np.uint8(99)}
    reads = ("x", "sx", "zx", "w", "sw", "zw", "sy", "zy")
    graph = load_onnx(NodeCase("QLinearConv", {"x": x, "w": w}, known, {"pads": [1, 1, 1, 1]}, reads=reads).model)
    whole = run_split(graph, {"x": x, "w": w}, 1, "c")
    assert len(np.unique(whole)) > 30
    for axis in ("c", "h", "ci", "kh"):
        np.testing.assert_array_equal(run_split(graph, {"x": x, "w": w}, 2, axis), whole)


@pytest.mark.parametrize("op", ["QLinearConv", "QGemm"])
@pytest.mark.parametrize("is_known", [True, False])
def test_what_is_added_is_exact_too(op: str, is_known: bool) -> None:
    """1 beside 2^24 + 1, where the nearest number of single precision to that is 2^24, and a scale that tells."""
    total, off, bias = f32(2**24 + 2), f32(2**24), np.array([2**24 + 1], np.int32)
    near = [f32(total / f32(100.5))]
    for _ in range(64):
        near.append(np.nextafter(near[-1], f32(0)))
    scale = next(one for one in near if np.round(total * (f32(1) / one)) != np.round(off * (f32(1) / one)))
    shape, reads = (
        ((1, 1, 1, 1), "x sx zx w sw zw sy zy b") if op == "QLinearConv" else ((1, 1), "x sx zx w sw zw b sy zy")
    )
    known = {"sx": f32(1), "zx": np.uint8(0), "sw": f32(1), "zw": np.uint8(0), "sy": scale, "zy": np.uint8(0)}
    inputs = {"x": np.ones(shape, np.uint8), "w": np.ones(shape, np.uint8)}
    (known if is_known else inputs)["b"] = bias
    domain = "" if op == "QLinearConv" else MICROSOFT
    case = NodeCase(op, inputs, known, reads=tuple(reads.split()), domain=domain)
    found = run_split(load_onnx(case.model), inputs, 1, "n")
    assert found.item() == np.round(total * (f32(1) / scale)) == ort(case.model, inputs)[0].item()


@pytest.mark.parametrize(("beside", "kind"), [(0, "float32"), (1, "float64")])
@pytest.mark.parametrize("op", ["MatMulInteger", "ConvInteger"])
def test_known_weights_say_in_what_they_are_summed(op: str, beside: int, kind: str) -> None:
    """In float32 up to 2^24 − 1, however they are split: 255 · 65,793 is that, and one more is not."""
    sizes = np.array([127] * 518 + [7] + [1] * beside)
    assert sizes.sum() == 65_793 + beside and 255 * 65_793 == 2**24 - 1
    signs = np.where(np.arange(sizes.size) % 5 == 0, -1, 1)
    w = np.stack([sizes * signs, sizes, -sizes], 1).astype(np.int8)
    x = np.random.default_rng(0).choice([0, 255], (4, sizes.size)).astype(np.uint8)
    x[0] = 255
    wanted = x.astype(int) @ w.astype(int)
    if op == "ConvInteger":
        x, w, wanted = x[:, :, None], np.ascontiguousarray(w.T)[:, :, None], wanted[:, :, None]
    graph = load_onnx(NodeCase(op, {"x": x}, {"w": w}).model)
    (product,) = [node for node in graph.nodes.values() if node.op in ("matmul", "conv")]
    assert graph.tensor(product.outputs[0]).dtype == kind
    for parts in (1, 3):
        np.testing.assert_array_equal(run_split(graph, {"x": x}, parts, "k" if op == "MatMulInteger" else "ci"), wanted)


def known_nodes() -> list[tuple[NodeCase, list[str]]]:
    """Nodes with what they become."""
    x, w = ints(0, 256, 2, 6, 5, 5, dtype=np.uint8), ints(-128, 128, 4, 6, 3, 3, dtype=np.int8)
    scales = {"sx": f32(0.3), "zx": np.uint8(77), "sw": np.array([0.01, 0.02, 0.03, 0.04], f32), "zw": np.int8(0)}
    known = scales | {"w": w, "sy": f32(9), "zy": np.uint8(99), "b": np.arange(4, dtype=np.int32)}
    reads = ("x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b")
    sums = {"a": ints(0, 256, 2, 3, dtype=np.uint8), "b": ints(0, 256, 2, 3, dtype=np.uint8)}
    one = {"s": f32(0.1), "z": np.uint8(3), "t": f32(0.2)}
    a, b = ints(0, 256, 4, 6, dtype=np.uint8), ints(-128, 128, 6, 3, dtype=np.int8)
    parts = {"sa": f32(0.1), "za": np.uint8(9), "sb": f32(0.1), "zb": np.int8(2), "sy": f32(20), "zy": np.uint8(99)}
    scaled = {"s": np.array([0.5, 0.2, 0.3], f32), "z": np.array([1, 2, 3], np.uint8)}
    blocked = {"s": np.full((3, 2), 0.5, f32), "z": np.ones((3, 2), np.uint8)}
    return [
        (
            NodeCase("QLinearConv", {"x": x}, known, {"pads": [1] * 4}, reads=reads),
            ["astype", "center", "conv", "requantize"],
        ),
        (
            NodeCase("QLinearMatMul", {"a": a, "b": b}, parts, reads=("a", "sa", "za", "b", "sb", "zb", "sy", "zy")),
            ["center", "center", "matmul", "requantize"],
        ),
        (
            NodeCase("QLinearAdd", sums, one, reads=(*"aszbtzsz",), domain=MICROSOFT),
            ["add", "dequantize", "dequantize", "quantize"],
        ),
        (NodeCase("QuantizeLinear", {"x": floats(4, 3, 2)}, scaled, {"axis": 1}), ["quantize"]),
        (
            NodeCase("DequantizeLinear", {"x": ints(0, 256, 4, 3, 2, dtype=np.uint8)}, scaled, {"axis": 1}),
            ["dequantize"],
        ),
        (
            NodeCase(
                "DequantizeLinear", {"x": ints(0, 256, 3, 2, dtype=np.uint8)}, blocked, {"axis": 1, "block_size": 1}
            ),
            ["dequantize"],
        ),
        (NodeCase("DequantizeLinear", {"x": ints(-9, 9, 4, dtype=np.int32)}, {"s": f32(0.5)}), ["dequantize"]),
    ]


@pytest.mark.parametrize(("case", "becomes"), known_nodes(), ids=lambda x: getattr(x, "op", ""))
def test_nodes_become_few_operators_which_are_written_as_they_are(case: NodeCase, becomes: list[str]) -> None:
    """An operator of its own for each operand, and one behind; a model of them comes back the same, and runs there."""
    reads, given = case.reads or (*case.inputs, *case.constants), case.inputs | case.constants
    given = {name: np.asarray(array) for name, array in given.items()}
    known_bias = {"b": given.pop("b")} if case.op == "QLinearConv" else {}  # else the sums may need float64
    everything = NodeCase(case.op, given, known_bias, case.attrs, reads=reads, domain=case.domain)
    known = load_onnx(case.model, opaque=False)
    assert sorted(node.op for node in known.nodes.values()) == becomes
    for one in (case, everything):
        graph = load_onnx(one.model, opaque=False)
        written = to_onnx(graph)
        is_same = same_graph(load_onnx(written), graph)
        assert is_same or any(depends_on_constants(graph, node) for node in graph.nodes.values())
        found = run(plan(graph, Mesh(1)), one.inputs).outputs["y"]
        np.testing.assert_array_equal(found, ort(one.model, one.inputs)[0])
        np.testing.assert_array_equal(found, ort(written, one.inputs)[0])


@pytest.mark.parametrize("said", [{"axis": -(10**12)}, {"rank": 10**12}, {"dtype": "word"}, {"operator": "quantize"}])
def test_a_function_that_says_another_operator_is_what_its_nodes_are(said: dict[str, Any]) -> None:
    """Nothing is made of what it says: neither a shape of that rank nor the other operator."""
    case, _ = known_nodes()[1]
    written = to_onnx(load_onnx(case.model))
    assert {function.name for function in written.functions} == {"center_0", "center_1", "requantize_2"}
    for function in written.functions:
        declared = json.loads(function.doc_string)
        declared["attrs"] |= {key: value for key, value in said.items() if key == "axis"}
        declared |= {key: value for key, value in said.items() if key in ("dtype", "operator")}
        declared["operands"][0][1] = said.get("rank", declared["operands"][0][1])
        function.doc_string = json.dumps(declared, sort_keys=True)
    graph = load_onnx(written)
    assert not {"center", "requantize", "quantize"} & {node.op for node in graph.nodes.values()}
    found = run(plan(graph, Mesh(1)), case.inputs).outputs["y"]
    np.testing.assert_array_equal(found, ort(case.model, case.inputs)[0])


def test_the_scale_may_be_computed() -> None:
    """As of DynamicQuantizeLinear, whose body quantizes by the largest and the smallest cell."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    x = floats(6, 8)
    for parts in (1, 3):
        graph = load_onnx(model_of(nodes, {"x": x.shape}))
        fix = {name: {"i0": parts} for name in graph.nodes if graph.signature(name).axes and parts > 1}
        fix = {name: cut for name, cut in fix.items() if "i0" in {axis.name for axis in graph.signature(name).axes}}
        found = run(plan(graph, Mesh((parts,)), fix=fix, expand=False), {"x": x}).outputs["y"]
        assert abs(found - x).max() <= (x.max() - x.min()) / 255


def few_bits(**more: np.ndarray) -> NodeCase:
    """A product with weights of 4 bits in 2 blocks, and zeros `z` or a bias `b`."""
    known = {"w": np.ones((6, 2, 8), np.uint8), "s": floats(12), **more}
    reads = ("x", "w", "s", "z" if "z" in more else "", "", "b" if "b" in more else "")
    shape = {"K": 32, "N": 6, "block_size": 16}
    return NodeCase("MatMulNBits", {"x": floats(3, 32)}, known, shape, reads=reads, domain=MICROSOFT)


def added(**others: Any) -> NodeCase:
    """A sum of bytes, some of them others."""
    given = {"a": np.ones((2, 3), np.uint8), "b": np.ones((2, 3), np.uint8), "yz": np.uint8(0), **others}
    known = {"s": f32(0.1), "z": np.uint8(0), "yz": given.pop("yz")}
    return NodeCase("QLinearAdd", given, known, reads=("a", "s", "z", "b", "s", "z", "s", "yz"), domain=MICROSOFT)


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (NodeCase("QuantizeLinear", {"x": floats(3, 4), "s": floats(3)}, {}, {"axis": 1}), "do not stand for axis 1"),
        (NodeCase("QuantizeLinear", {"x": floats(3, 4), "s": floats(3, 3)}, {}, {"block_size": 2}), "for blocks of 2"),
        (
            NodeCase(
                "QuantizeLinear",
                {"x": floats(3, 4), "s": f32(1).reshape(())},
                {"z": np.uint8(1)},
                {"output_dtype": TensorProto.INT8},
            ),
            "output_dtype is int8, the zero point has uint8",
        ),
        (few_bits(b=floats(1, 6)), r"its bias has shape \(1, 6\); \(6,\) is needed"),
        (
            few_bits(z=np.full(12, 8, np.uint8)),
            r"\(6, 2\); zeros packed by 2 in a byte of uint8 have \(6, 1\), by zeros_packed: pack them",
        ),
        (few_bits(z=floats(6)), r"\(6, 1\); zeros that are one for each block have \(6, 2\)"),
        (added(a=floats(2, 3)), "node .* its input 0 is float32; all operands and zero points are int8, or all uint8"),
        (added(b=np.ones((2, 3), np.int8)), "its input 3 is int8 and its input 0 uint8; .* quantize them alike"),
        (
            NodeCase(
                "MatMulInteger", {"a": np.ones((2, 3), np.uint8), "b": np.ones((3, 2), np.int8)}, {"z": np.int8(1)}
            ),
            "its input 2 is int8, a zero point of input 0, which is uint8: cast it",
        ),
        (
            NodeCase(
                "QLinearGlobalAveragePool",
                {"x": np.ones((2, 3), np.uint8)},
                {"s": f32(1), "z": np.uint8(1)},
                reads=("x", "s", "z", "s", "z"),
                domain=MICROSOFT,
            ),
            r"its input 0 has shape \(2, 3\); \(batch",
        ),
        (
            NodeCase(
                "RotaryEmbedding",
                {"x": floats(2, 3, 16), "i": i64(0), "c": floats(4, 8), "s": floats(4, 8)},
                {},
                {"interleaved": 2},
                domain=MICROSOFT,
            ),
            "interleaved is 2; 0 and 1 are known",
        ),
        (added(yz=np.int8(0)), "its input 7 is int8 and its input 0 uint8"),
        (NodeCase("SimplifiedLayerNormalization", {"x": i64(1, 2), "s": i64(1, 2)}), "its input 0 is int64; floating"),
        (
            NodeCase(
                "RotaryEmbedding",
                {"x": floats(3, 16), "i": i64(0), "c": floats(4, 8), "s": floats(4, 8)},
                domain=MICROSOFT,
            ),
            r"its input 0 has shape \(3, 16\); \(batch, positions, heads · width\) or",
        ),
    ],
)
def test_what_does_not_fit_is_refused(case: NodeCase, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        load_onnx(case.model)


def test_integers_of_more_bits_are_refused() -> None:
    case = NodeCase(
        "QLinearMatMul", {"a": ints(0, 9, 2, 2, dtype=np.int16)}, reads=("a", "s", "z", "a", "s", "z", "s", "z")
    )
    model = NodeCase(
        "QLinearMatMul",
        {**case.inputs, "s": np.array(1, np.float32), "z": np.array(0, np.int16)},
        reads=case.reads,
    ).model
    with pytest.raises(UnsupportedOp, match="its input 0 is int16; integers of 8 bits are supported"):
        load_onnx(model)


def of_bits(bits: int, kind: Any = np.float32) -> NodeCase:
    """A product with 12 rows of weights in 3 blocks, the last one cut, and zeros that are packed."""
    rng = np.random.default_rng(bits)
    packed = rng.integers(0, 256, (12, 3, 2 * bits), np.uint8)
    scales = rng.uniform(0.01, 0.1, 36).astype(kind)
    known = {"w": packed, "s": scales, "z": rng.integers(0, 256, 12 * -(-3 * bits // 8), np.uint8)}
    attrs = {"K": 40, "N": 12, "bits": bits, "block_size": 16}
    return NodeCase("MatMulNBits", {"x": floats(2, 5, 40, dtype=kind)}, known, attrs, domain=MICROSOFT)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_of_few_bits_are_unpacked_at_import(bits: int, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all of a model's do not take too many bytes: to the bits that each run makes of them else."""
    case = of_bits(bits, kind)
    graph = load_onnx(case.model, opaque=False)
    assert [node.op for node in graph.nodes.values()] == ["matmul"]
    nbytes = 12 * 40 * np.dtype(kind).itemsize
    assert (graph.folded.nodes, graph.folded.nbytes) == (1, nbytes)
    found = run(plan(graph, Mesh(1)), case.inputs).outputs["y"]
    assert difference(found, ort(case.model, case.inputs)[0]) < (1e-5 if kind == np.float32 else 2e-3)
    monkeypatch.setattr(tuning, "FOLDED_NBYTES", nbytes - 1)
    monkeypatch.setattr(ops.tuning, "TILE_CELLS", 64)
    packed = load_onnx(case.model, opaque=False)
    assert [node.op for node in packed.nodes.values()] == ["unpack_blocks", "matmul"]
    np.testing.assert_array_equal(run(plan(packed, Mesh(1)), case.inputs).outputs["y"], found)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_of_few_bits_are_unpacked_where_their_rows_are_multiplied(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each device reads the bytes of its own rows, and no other ones move."""
    monkeypatch.setattr(tuning, "FOLDED_NBYTES", 0)
    case = of_bits(bits)
    graph = load_onnx(case.model, opaque=False)
    (product,) = [node.name for node in graph.order() if node.op == "matmul"]
    made = plan(graph, Mesh((3,)), fix={product: {"n": 3}}, layout={"w": {0: 3}})
    found = run(made, case.inputs)
    assert difference(found.outputs["y"], ort(case.model, case.inputs)[0]) < 1e-5
    assert made.nbytes_moved == 0 and all(made.sharding.values())


def layer_of_few_bits(width: int = 64, heads: int = 4, groups: int = 2, inner: int = 96) -> Any:
    """A layer of a language model as ONNX Runtime's builder of such writes it, weights in 4 bits."""
    rng, make, each = np.random.default_rng(4), helper.make_node, width // heads
    constants: dict[str, np.ndarray] = {name: rng.uniform(0.5, 1.5, width).astype(f32) for name in ("n1", "n2")}
    angles = np.arange(8)[:, None] * 0.3 ** np.arange(each // 2)
    constants |= {"cos": np.cos(angles).astype(f32), "sin": np.sin(angles).astype(f32)}
    constants |= {"ends": np.full(2, 4, np.int32), "all": np.array(5, np.int32)}

    def product(reads: str, makes: str, summed: int, rows: int) -> Any:
        blocks = summed // 16
        constants[f"{makes}.w"] = rng.integers(0, 256, (rows, blocks, 8), np.uint8)
        constants[f"{makes}.s"] = rng.uniform(0.01, 0.03, (rows, blocks)).astype(f32)
        constants[f"{makes}.z"] = rng.integers(0, 256, rows * -(-blocks // 2), np.uint8)
        weights = [f"{makes}.{part}" for part in "wsz"]
        shape = {"K": summed, "N": rows, "bits": 4, "block_size": 16}
        return make("MatMulNBits", [reads, *weights], [makes], domain=MICROSOFT, **shape)

    attention = {"num_heads": heads, "kv_num_heads": groups, "do_rotary": 1}
    held = ["", "", "ends", "all", "cos", "sin"]
    nodes = [
        make("SimplifiedLayerNormalization", ["x", "n1"], ["a"]),
        *(product("a", name, width, n * each) for name, n in (("q", heads), ("k", groups), ("v", groups))),
        make("GroupQueryAttention", ["q", "k", "v", *held], ["o", "keys", "values"], domain=MICROSOFT, **attention),
        product("o", "p", width, width),
        make("SkipSimplifiedLayerNormalization", ["p", "x", "n2"], ["b", "", "", "t"], domain=MICROSOFT),
        *(product("b", name, width, inner) for name in ("gate", "up")),
        make("QuickGelu", ["gate"], ["g"], domain=MICROSOFT, alpha=1.0),
        make("Mul", ["g", "up"], ["m"]),
        product("m", "d", inner, width),
        make("Add", ["d", "t"], ["y"]),
    ]
    model = model_of(nodes, {"x": (2, 5, width)}, ("y", "keys", "values"), constants)
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return model


@pytest.mark.heavy(4)
def test_a_language_model_of_few_bits_is_split_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "FOLDED_NBYTES", 0)
    model, x = layer_of_few_bits(), floats(2, 5, 64)
    made = plan(load_onnx(model, opaque=False), Mesh((2,)))
    found = run(made, {"x": x})
    assert found.nbytes_moved == made.nbytes_moved
    heavy = [node.name for node in made.graph.order() if node.op in ("attention", "matmul", "unpack_blocks")]
    assert len(heavy) >= 14 and all(made.sharding[name] for name in heavy)
    for name, wanted in zip(("y", "keys", "values"), ort(model, {"x": x}), strict=True):
        assert difference(found.outputs[name], wanted) < 1e-5


def test_unpacked_weights_take_no_name_of_the_model() -> None:
    case = of_bits(4)
    model = case.model
    model.graph.node[0].name = "p"
    model.graph.node.extend([helper.make_node("Neg", ["y"], ["p.weights"]), helper.make_node("Abs", ["y"], ["p"])])
    for name in ("p.weights", "p"):
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    found = run(plan(load_onnx(model, opaque=False), Mesh(2)), case.inputs).outputs
    for name, array in zip(("y", "p.weights", "p"), ort(model, case.inputs), strict=True):
        assert difference(found[name], array) < 1e-5
