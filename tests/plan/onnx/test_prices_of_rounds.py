"""What a Loop or Scan that is one operator costs: the work of its body, as often as there are rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import parser

from tapestry_exec import run
from tapestry_plan import Device, Graph, Mesh, ShardPlan, load_onnx, ops, plan
from tapestry_plan.onnx import to_onnx, tuning
from tapestry_plan.ops.evaluators import encode_model
from tests.onnx_models import ort
from tests.operator_cases import HARDMAX_OF_4X6
from tests.plan.onnx.test_many_rounds import BODIES, bodies, body_of, numbers, scan

HEAD = '<ir_version: 8, opset_import: ["" : 21]>'
ROWS, WIDTH = 64, 256
PRODUCT, CELLS = 2 * ROWS * WIDTH * WIDTH, ROWS * WIDTH
"""Operations of a MatMul of 64×256 by 256×256, and cells of its result."""


def products(trips: int, rows: int = ROWS, width: int = WIDTH) -> Any:
    """A Loop of products with the same weights, each followed by a Tanh."""
    state = f"float[{rows}, {width}]"
    return parser.parse_model(
        f"""{HEAD} m ({state} h, float[{width}, {width}] w) => ({state} y) {{
          trips = Constant <value = int64 {{{trips}}}> () true = Constant <value = bool {{1}}> ()
          y = Loop <body: graph = step (int64 i, bool go, {state} s) => (bool on, {state} t) {{
            on = Identity (go) m = MatMul (s, w) t = Tanh (m) }}> (trips, true, h) }}"""
    )


def unrolled_to(nodes: int, model: Any) -> Graph:
    """The graph of a model that may unroll to so many nodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "MAX_INLINED_NODES", nodes)
        patch.setattr(tuning, "INLINED_TIMES", 0)
        return load_onnx(model)


# -- counts by hand ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trips", [10, 5_000, 500_000])
def test_flop_of_a_loop_of_products(trips: int) -> None:
    wanted = trips * (PRODUCT + CELLS)
    graph = load_onnx(products(trips))
    assert ("opaque" in graph.ops) is (trips > 10)
    assert graph.flop() == wanted
    p = plan(graph, Mesh(4))
    assert p.flop == (wanted / 4,) * 4
    if trips > 10:
        cost = p.opaque["Loop_0"]
        assert (cost.flop, cost.rounds, cost.devices, cost.is_known) == (wanted, trips, 4, True)
        assert cost.seconds == p.seconds


def test_seconds_of_a_loop_by_hand() -> None:
    """Each round is a product, bound by arithmetic, and a Tanh, bound by memory: on all rows, or a fourth of them."""
    device = Device(flop_per_second=1e11, memory_nbytes_per_second=2e10, launch_seconds=1e-6, operand_seconds=1e-8)
    graph = load_onnx(products(5000))
    for parts in (1, 4):
        p = plan(graph, Mesh(parts, device=device), fix={"Loop_0": {"i0": parts}})
        product, cells = PRODUCT / parts / 1e11, 2 * 4 * CELLS / parts / 2e10
        assert 4 * (2 * CELLS / parts + WIDTH * WIDTH) / 2e10 < product, "all parts read all weights"
        once = 1e-6 + 3e-8  # the operator itself
        assert p.seconds == pytest.approx(once + 5000 * (product + cells + 2e-6 + 5e-8), rel=1e-9)
        assert p.bound <= p.seconds


def test_what_parts_do_not_cut_each_does() -> None:
    """Rounds square the weights, which all parts read: these operations are of each of them."""
    text = f"""{HEAD} m (float[6, 8] h, float[8, 8] w) => (float[6, 8] y) {{
      trips = Constant <value = int64 {{5000}}> () true = Constant <value = bool {{1}}> ()
      y = Loop <body: graph = step (int64 i, bool go, float[6, 8] s) => (bool on, float[6, 8] t) {{
        on = Identity (go) v = Mul (w, w) m = MatMul (s, v) t = Tanh (m) }}> (trips, true, h) }}"""
    model = parser.parse_model(text)
    graph = load_onnx(model)
    rows, all_of_it = 2 * 6 * 8 * 8 + 6 * 8, 8 * 8
    for parts in (1, 2, 3):
        p = plan(graph, Mesh(parts), fix={"Loop_0": {"i0": parts}})
        assert p.flop == (5000 * (rows / parts + all_of_it),) * parts
        feeds = numbers(model)
        found = run(p, feeds, backend="serial")
        np.testing.assert_allclose(found.outputs["y"], ort(model, feeds)[0], rtol=2e-5, atol=2e-6)
        assert found.flop == p.flop


def test_a_scan_of_3000_steps() -> None:
    """Results are ONNX Runtime's; its operations are those of its three operators on 48 cells, at each step."""
    model = scan("a = Add (s, v) n = Tanh (a) o = Mul (n, v)", steps=3000)
    graph, feeds = load_onnx(model), numbers(model)
    p = plan(graph, Mesh(2))
    assert sum(p.flop) == graph.flop() == 3000 * 3 * 48
    assert p.opaque["Scan_0"].rounds == 3000
    found = run(p, feeds, backend="serial").outputs
    for one, other in zip(found.values(), ort(model, feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("outer", "inner"), [(5000, 3), (3, 5000), (100, 100)])
def test_nested_loops_multiply(outer: int, inner: int) -> None:
    text = f"""{HEAD} m (float[6, 8] h, float[8, 8] w) => (float[6, 8] y) {{
      trips = Constant <value = int64 {{{outer}}}> () true = Constant <value = bool {{1}}> ()
      y = Loop <body: graph = step (int64 i, bool go, float[6, 8] s) => (bool on, float[6, 8] t) {{
        on = Identity (go) few = Constant <value = int64 {{{inner}}}> ()
        t = Loop <body: graph = inside (int64 j, bool goes, float[6, 8] r) => (bool yet, float[6, 8] q) {{
          yet = Identity (goes) m = MatMul (r, w) q = Tanh (m) }}> (few, go, s) }}> (trips, true, h) }}"""
    graph = load_onnx(parser.parse_model(text))
    assert graph.flop() == outer * inner * (2 * 6 * 8 * 8 + 6 * 8)
    assert sum(plan(graph, Mesh(2)).flop) == graph.flop()


def test_rounds_that_a_run_counts_are_priced_once() -> None:
    text = f"""{HEAD} m (float[6, 8] h) => (float[6, 8] y) {{
      trips = Constant <value = int64 {{100000}}> () true = Constant <value = bool {{1}}> ()
      y = Loop <body: graph = step (int64 i, bool go, float[6, 8] s) => (bool on, float[6, 8] t) {{
        t = Tanh (s) k = ReduceMax <keepdims: int = 0> (s) c = Constant <value = float {{0.1}}> ()
        on = Greater (k, c) }}> (trips, true, h) }}"""
    model = parser.parse_model(text)
    graph, feeds = load_onnx(model), numbers(model)
    p = plan(graph, Mesh(2))
    cost = p.opaque["Loop_0"]
    assert (cost.rounds, cost.is_known, cost.devices) == (None, True, 1)
    assert cost.flop == 48 + 48 + 1
    assert "of one round, since how many there are is known in a run alone" in p.explain("Loop_0")
    np.testing.assert_allclose(run(p, feeds).outputs["y"], ort(model, feeds)[0], rtol=1e-5, atol=1e-6)


def test_rounds_that_end_early_are_counted() -> None:
    text = f"""{HEAD} m (float[6, 8] h) => (float[6, 8] y) {{
      trips = Constant <value = int64 {{9000}}> () true = Constant <value = bool {{1}}> ()
      y = Loop <body: graph = step (int64 i, bool go, float[6, 8] s) => (bool on, float[6, 8] t) {{
        z = Constant <value = int64 {{6999}}> () on = Less (i, z) t = Tanh (s) }}> (trips, true, h) }}"""
    (cost,) = plan(load_onnx(parser.parse_model(text)), Mesh(1)).opaque.values()
    assert cost.rounds == 7000
    assert cost.flop == 7000 * (48 + 1), "a Tanh, and a Less of one number"


# -- laws ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", BODIES)
def test_rounds_in_place_do_as_much_as_rounds_in_one_operator(label: str) -> None:
    model = scan(BODIES[label][0], steps=5)
    whole, one = load_onnx(model), unrolled_to(0, model)
    assert "opaque" not in whole.ops and "opaque" in one.ops
    again = 5 * 8 * (label == "a constant that others follow from is not")  # its maximum, which rounds find each time
    assert one.flop() == whole.flop() + again


@settings(max_examples=25)
@example(body_of("t = MatMul (s, w) n = Tanh (t) o = Identity (v)"), 3)
@given(bodies(), st.integers(1, 4))
def test_random_bodies_do_as_much_either_way(body: str, steps: int) -> None:
    model = scan(body, steps=steps, state="4, 4", given="4, 4")
    assert unrolled_to(0, model).flop() == pytest.approx(load_onnx(model).flop(), rel=0.2)


def test_time_grows_with_rounds() -> None:
    """By as much as there are more of them; from 10 in place, whose pairs are blocks, by as much within a tenth."""
    few = plan(load_onnx(products(10)), Mesh(4)).seconds
    seconds = [plan(load_onnx(products(trips)), Mesh(4)).seconds for trips in (5_000, 10_000, 500_000)]
    assert few < seconds[0] < seconds[1] < seconds[2]
    assert seconds[0] / few == pytest.approx(500, rel=0.1)
    assert seconds[1] / seconds[0] == pytest.approx(2, rel=1e-6)
    assert seconds[2] / seconds[0] == pytest.approx(100, rel=1e-6)


def test_long_rounds_are_worth_a_split() -> None:
    """Few cells that a device can bring together at once, and rounds that take far longer: they are split."""
    graph = load_onnx(products(5000, 64, 64))
    p = plan(graph, Mesh(4))
    whole = plan(graph, Mesh(4), fix={"Loop_0": {}})
    assert p.opaque["Loop_0"].devices == 4
    assert whole.opaque["Loop_0"].devices == 1
    assert p.seconds < whole.seconds / 2
    assert sum(p.flop) == sum(whole.flop)


# -- where it is written -------------------------------------------------------------------------------------


def test_documents_and_onnx_keep_it() -> None:
    graph = load_onnx(products(5000))
    p = plan(graph, Mesh(4))
    again = ShardPlan.from_json(p.to_json())
    assert again.opaque == p.opaque and again.graph.flop() == graph.flop()
    assert Graph.from_json(graph.to_json()).flop() == graph.flop()
    assert load_onnx(to_onnx(graph)).flop() == graph.flop()


@pytest.mark.parametrize(
    ("inside", "rounds"),
    [
        ([(1, False, 24.0, ("i7",), ())], 2),
        ([(1, False, -1.0, (), ())], 2),
        ([(1, False, float("nan"), (), ())], 2),
        ([(-1, False, 24.0, (), ())], 2),
        ([(1, False, 24.0, ())], 2),
        ([(1, False, 24.0, (), ((24, 4, 0),))], 2),
        ([(1, False, 24.0, (), ((24, "4", 0, ()),))], 2),
        ([(1, False, 24.0, (), ())], 0),
    ],
)
def test_work_that_is_none_is_refused(inside: Any, rounds: int) -> None:
    x = Graph().input("x", (4, 6))
    with pytest.raises(
        ValueError, match=r"rounds is 0; give" if not rounds else r"inside\[0\] is .*; give \(times, is_"
    ):
        ops.opaque(
            x, model=HARDMAX_OF_4X6, shapes=[(4, 6)], dtypes=["float32"], follows=[("i0", "")] * 2, inside=inside,
            rounds=rounds,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("inside", "rounds", "says"),
    [
        ([(1, "no", 1.0, (), ())], None, r"inside\[0\] is .*; give \(times, is_contraction, flop, axes, operands\)"),
        ([(1, True, 1.0, ("z",), ())], None, r"inside\[0\] is .* index axes of \['n'\]"),
        ([(1, True, 1.0, ("n",), ((4, 4, -1, ()),))], None, r"inside\[0\] is "),
        ([(1, True, -1.0, (), ())], None, r"inside\[0\] is "),
        ([(1, True)], None, r"inside\[0\] is "),
        ([], 0, "rounds is 0; give how many there are, 1 or more"),
    ],
)
def test_work_inside_that_is_none_is_refused(inside: Any, rounds: int | None, says: str) -> None:
    relu = parser.parse_model(f"{HEAD} m (float[N, 4] x) => (float[N, 4] y) {{ y = Relu (x) }}")
    x = Graph().input("x", (6, 4))
    how: dict[str, Any] = {"shapes": [(6, 4)], "dtypes": ["float32"], "follows": [("n", ""), ("n", "")]}
    with pytest.raises(ValueError, match=says):
        ops.opaque(x, model=encode_model(relu), inside=inside, rounds=rounds, **how)
