"""Loops and Scans of too many rounds to put in place: one operator, in parts along the axes that rounds keep apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import parser
from onnx.reference import ReferenceEvaluator

from tapestry_exec import StepFailed, run
from tapestry_plan import Graph, Mesh, ShardPlan, load_onnx, ops, plan
from tapestry_plan.onnx import to_onnx, tuning
from tapestry_plan.onnx.replacing import rounds
from tests.onnx_models import ort
from tests.operator_cases import HARDMAX_OF_4X6

HEAD = '<ir_version: 8, opset_import: ["" : 21]>'


def scan(body: str, *, steps: int, state: str = "6, 8", given: str = "6, 8") -> Any:
    """A Scan of one state `s` and one slice `v`, whose body makes the next state `n` and `o`."""
    return parser.parse_model(
        f"""{HEAD} m (float[{state}] h, float[{steps}, {given}] x) => (float[{state}] last, float[a, {given}] all) {{
          last, all = Scan <num_scan_inputs: int = 1, body: graph = step
            (float[{state}] s, float[{given}] v) => (float[{state}] n, float[{given}] o) {{ {body} }}> (h, x)
        }}"""
    )


def numbers(model: Any, seed: int = 0) -> dict[str, Any]:
    """What a model is given: small numbers, so that long recurrences stay finite."""
    random = np.random.default_rng(seed)
    shapes = {one.name: [dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in model.graph.input}
    return {name: random.uniform(-0.5, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def axes_of(graph: Graph) -> tuple[str, dict[str, int]]:
    """The only operator that runs rounds, and its index axes."""
    (name,) = [node.name for node in graph.nodes.values() if node.op == "opaque"]
    return name, {axis.name: axis.size for axis in graph.signature(name).axes}


def check_counts(p: ShardPlan, feeds: dict[str, Any]) -> dict[str, Any]:
    """What a run gives, after its bytes were compared with those of the plan."""
    found = run(p, feeds, backend="serial")
    assert found.nbytes_moved == p.nbytes_moved
    assert found.nbytes_placed == p.nbytes_placed
    assert found.nbytes_copied == p.nbytes_copied
    assert found.peak_nbytes == p.peak_nbytes
    return dict(found.outputs)


def check_parts(model: Any, wanted: list[Any], *, rtol: float = 2e-5) -> dict[str, int]:
    """Run a model in parts along each index axis that its rounds claim; returns these."""
    graph, feeds = load_onnx(model), numbers(model)
    name, sizes = axes_of(graph)
    cuts = [{axis: parts} for axis, n in sizes.items() for parts in sorted({2, n}) if n < 9]
    for cut in [{}, *cuts]:
        p = plan(graph, Mesh(max([1, *cut.values()])), fix={name: cut})
        assert dict(p.sharding[name]) == cut
        for found, one in zip(check_counts(p, feeds).values(), wanted, strict=True):
            np.testing.assert_allclose(found, one, rtol=rtol, atol=2e-6)
    return sizes


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may unroll to no nodes."""
    monkeypatch.setattr(tuning, "MAX_INLINED_NODES", 0)
    monkeypatch.setattr(tuning, "INLINED_TIMES", 0)


AVERAGE = """a = Constant <value = float {0.9}> () b = Constant <value = float {0.1}> ()
    p = Mul (s, a) q = Mul (v, b) n = Add (p, q) o = Identity (n)"""


@pytest.fixture(scope="module")
def average() -> tuple[Any, Graph, dict[str, Any], list[Any]]:
    """A moving average of 6,000 rounds."""
    model = scan(AVERAGE, steps=6000)
    feeds = numbers(model)
    return model, load_onnx(model), feeds, ort(model, feeds)


@pytest.mark.parametrize(("mesh", "cut"), [((3,), {"i0": 3}), ((3,), {"i1": 3}), ((2, 2), {"i0": 2, "i1": 2})])
def test_a_long_average_is_split_along_both_axes(average: Any, mesh: tuple[int, ...], cut: dict[str, int]) -> None:
    model, graph, feeds, wanted = average
    p = plan(graph, Mesh(mesh), fix={"Scan_0": cut})
    assert dict(p.sharding["Scan_0"]) == cut
    assert p.opaque["Scan_0"].devices == np.prod(list(cut.values()))
    for found, one in zip(check_counts(p, feeds).values(), wanted, strict=True):
        np.testing.assert_array_equal(found, one)
    for found, one in zip(wanted, ReferenceEvaluator(model).run(None, feeds), strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-5, atol=1e-6)


def test_the_search_splits_it_by_itself(average: Any) -> None:
    p = plan(average[1], Mesh(4))
    assert np.prod(list(p.sharding["Scan_0"].values())) == 4
    assert "6,000 rounds on 4 devices" in p.explain("Scan_0")


@pytest.mark.parametrize("backend", ["numpy", "processes"])
def test_all_ways_of_running_give_the_same_bits(average: Any, backend: str) -> None:
    _, graph, feeds, wanted = average
    p = plan(graph, Mesh(2), fix={"Scan_0": {"i1": 2}})
    for found, one in zip(run(p, feeds, backend=backend).outputs.values(), wanted, strict=True):
        np.testing.assert_array_equal(found, one)


def test_it_goes_through_documents_and_onnx(average: Any) -> None:
    _, graph, feeds, wanted = average
    p = ShardPlan.from_json(plan(graph, Mesh(2), fix={"Scan_0": {"i0": 2}}).to_json())
    np.testing.assert_array_equal(run(p, feeds, backend="serial").outputs["all"], wanted[1])
    again = load_onnx(to_onnx(graph))
    assert again.nodes["Scan_0"].attrs == graph.nodes["Scan_0"].attrs


# -- which axes ----------------------------------------------------------------------------------------------

WEIGHTS = ", ".join(str(round(float(x), 3)) for x in np.random.default_rng(5).uniform(-0.3, 0.3, 64))
ROW = ", ".join(str(k / 8) for k in range(8))
SHAPED = "d = Shape (s) e = Expand (v, d)"
BODIES = {
    "a product mixes the hidden cells": (
        f"w = Constant <value = float[8, 8] {{{WEIGHTS}}}> () m = MatMul (s, w) t = Add (m, v) n = Tanh (t) "
        "o = Identity (t)",
        {"i0": 6},
    ),
    "a constant with an axis is cut": (
        f"w = Constant <value = float[8] {{{ROW}}}> () m = Mul (s, w) n = Add (m, v) o = Sub (n, w)",
        {"i0": 6, "i1": 8},
    ),
    "a constant that others follow from is not": (
        f"w = Constant <value = float[8] {{{ROW}}}> () c = ReduceMax (w) m = Mul (s, w) n = Add (m, v) o = Mul (v, c)",
        {"i0": 6},
    ),
    "a reshape to fixed extents": (
        "k = Constant <value = int64[2] {8, 6}> () j = Constant <value = int64[2] {6, 8}> () r = Reshape (s, k) "
        "u = Reshape (r, j) n = Add (u, v) o = Neg (n)",
        {},
    ),
    "a reshape that fixes one": (
        "k = Constant <value = int64[3] {6, 2, 4}> () j = Constant <value = int64[2] {0, -1}> () r = Reshape (s, k) "
        "u = Reshape (r, j) n = Add (u, v) o = Neg (n)",
        {},
    ),
    "a reshape that keeps one": (
        "k = Constant <value = int64[3] {0, 2, 4}> () j = Constant <value = int64[2] {0, -1}> () r = Reshape (s, k) "
        "u = Reshape (r, j) n = Add (u, v) o = Neg (n)",
        {"i0": 6},
    ),
    "a sum": ("t = ReduceSum <keepdims: int = 1> (s) n = Add (t, v) p = Tanh (v) o = Identity (p)", {}),
    "a mean of rows": (
        "k = Constant <value = int64[1] {1}> () t = ReduceMean (s, k) u = Sub (v, t) n = Tanh (u) o = Identity (u)",
        {"i0": 6},
    ),
    "a transposition there and back": (
        "a = Transpose (s) b = Transpose (v) c = Add (a, b) t = Tanh (c) n = Transpose (t) o = Neg (n)",
        {"i0": 6, "i1": 8},
    ),
    "a shift of cells": (
        "k = Constant <value = int64[2] {2, 6}> () a, b = Split <axis: int = 1> (s, k) "
        "c = Concat <axis: int = 1> (b, a) d = Mul (c, v) n = Tanh (d) o = Identity (d)",
        {"i0": 6},
    ),
    "the reverse of rows": (
        "a = Constant <value = int64[1] {-1}> () b = Constant <value = int64[1] {-9}> () "
        "z = Constant <value = int64[1] {0}> () c = Slice (s, a, b, z, a) d = Mul (c, v) n = Tanh (d) o = Identity (d)",
        {"i1": 8},
    ),
    "running totals": (
        "k = Constant <value = int64 {1}> () c = CumSum (s, k) d = Mul (c, v) n = Tanh (d) o = Identity (d)",
        {"i0": 6},
    ),
    "numbers of cells": (
        "k = Constant <value = int64 {1}> () a = Constant <value = float {0}> () b = Constant <value = float {8}> () "
        "e = Constant <value = float {1}> () r = Range (a, b, e) d = Add (r, v) c = Mul (d, s) n = Tanh (c) "
        "o = Identity (c)",
        {"i0": 6},
    ),
    "shapes, of which too many would have to be tried": (
        f"{SHAPED} c = Mul (e, s) n = Tanh (c) o = Identity (c)",
        {"i0": 6, "i1": 8},
    ),
    "a number of cells that is computed with": (
        "z = Size (s) f = Cast <to: int = 1> (z) c = Div (s, f) n = Add (c, v) o = Identity (n)",
        {},
    ),
    "largest cells": (
        "k = Constant <value = int64[1] {8}> () m, j = TopK <axis: int = 1> (s, k) c = Mul (m, v) n = Tanh (c) "
        "o = Identity (c)",
        {"i0": 6},
    ),
    "softmax of rows": ("a = Add (s, v) n = Softmax <axis: int = -1> (a) o = Identity (a)", {"i0": 6}),
}


@pytest.mark.parametrize("label", BODIES)
@pytest.mark.usefixtures("few")
def test_axes_that_rounds_keep_apart(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, wanted = BODIES[label]
    model = scan(body, steps=5)
    if "shapes" in label:
        graph = load_onnx(model)
        assert axes_of(graph)[1] == wanted, "extents of 48 are all tried"
        monkeypatch.setattr(tuning, "TRIED_EXTENTS", 47)
        wanted = {}
    sizes = check_parts(model, ort(model, numbers(model)))
    assert list(sizes.values()) == list(wanted.values())
    (cost,) = plan(load_onnx(model), Mesh(1)).opaque.values()
    assert (cost.rounds, cost.devices, cost.is_known) == (5, 1, True)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(("back", "out"), [(0, 1), (1, 0), (1, 1)])
def test_directions_and_axes_of_scans(back: int, out: int) -> None:
    model = parser.parse_model(
        f"""{HEAD} m (float[6] h, float[6, 4, 3] x) => (float[6] last, float[a, b, c] all) {{
          last, all = Scan <num_scan_inputs: int = 1, scan_input_axes: ints = [1], scan_output_axes: ints = [-1],
            scan_input_directions: ints = [{back}], scan_output_directions: ints = [{out}], body: graph = step
            (float[6] s, float[6, 3] v) => (float[6] n, float[3, 6] o) {{
              k = Constant <value = int64[1] {{1}}> () m = ReduceMean <keepdims: int = 0> (v, k)
              n = Sub (m, s) t = Transpose (v) o = Add (t, n) }}> (h, x)
        }}"""
    )
    assert check_parts(model, ort(model, numbers(model))) == {"i0": 6}


LOOP = """{head} m (float[6, 8] h, float[8] w) => (float[6, 8] last, float[a, 6, 8] all) {{
  trips = Constant <value = int64 {{{trips}}}> () true = Constant <value = bool {{1}}> ()
  last, all = Loop <body: graph = step (int64 i, bool go, float[6, 8] s) => (bool on, float[6, 8] n, float[6, 8] o) {{
    {condition} f = Cast <to: int = 1> (i) k = Constant <value = float {{0.01}}> () g = Mul (f, k) a = Mul (s, w)
    b = Add (a, g) n = Tanh (b) o = Neg (b) }}> (trips, true, h)
}}"""


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("condition", "sizes"),
    [
        ("on = Identity (go)", {"i0": 6, "i1": 8}),
        ("on = Constant <value = bool {1}> ()", {"i0": 6, "i1": 8}),
        ("z = Constant <value = int64 {900}> () on = Less (i, z)", {"i0": 6, "i1": 8}),
        ("z = Constant <value = int64 {3}> () on = Less (i, z)", {}),
    ],
)
def test_loops_whose_rounds_all_take_place(condition: str, sizes: dict[str, int]) -> None:
    model = parser.parse_model(LOOP.format(head=HEAD, trips=7, condition=condition))
    if not sizes:  # how many rounds there are is not known from their number: it stays whole
        model = parser.parse_model(
            LOOP.format(head=HEAD, trips=7, condition=condition).replace("float[a, 6, 8] all", "float[4, 6, 8] all")
        )
    assert check_parts(model, ort(model, numbers(model))) == sizes


# -- small random bodies -------------------------------------------------------------------------------------

STEPS: tuple[Callable[[str, str, str, str], str], ...] = (
    lambda to, a, b, w: f"{to} = Add ({a}, {b})",
    lambda to, a, b, w: f"{to} = Mul ({a}, {b})",
    lambda to, a, b, w: f"{to} = Tanh ({a})",
    lambda to, a, b, w: f"{to} = MatMul ({a}, {w})",
    lambda to, a, b, w: f"{to} = MatMul ({w}, {a})",
    lambda to, a, b, w: f"{to} = Transpose ({a})",
    lambda to, a, b, w: f"r{to} = ReduceMean <keepdims: int = 1> ({a}, first) {to} = Sub ({b}, r{to})",
    lambda to, a, b, w: f"r{to} = ReduceMax <keepdims: int = 1> ({a}, second) {to} = Sub ({b}, r{to})",
    lambda to, a, b, w: (
        f"p{to}, q{to} = Split <axis: int = 0> ({a}, parts) {to} = Concat <axis: int = 0> (q{to}, p{to})"
    ),
    lambda to, a, b, w: f"r{to} = Slice ({a}, first, second, second) {to} = Add ({b}, r{to})",
    lambda to, a, b, w: f"r{to} = Reshape ({a}, flat) {to} = Reshape (r{to}, square)",
    lambda to, a, b, w: f"{to} = Mul ({a}, row)",
    lambda to, a, b, w: f"{to} = Softmax <axis: int = 0> ({a})",
)
"""Of 4 by 4 cells each, so that all fit all, and axes are told from each other by what is done along them alone."""


@st.composite
def bodies(draw: st.DrawFn) -> str:
    made = ["s", "v"]
    lines = [
        f"w = Constant <value = float[4, 4] {{{', '.join(WEIGHTS.split(', ')[:16])}}}> ()",
        "row = Constant <value = float[4] {0.1, -0.2, 0.3, 0.4}> ()",
        "first = Constant <value = int64[1] {0}> () second = Constant <value = int64[1] {1}> ()",
        "parts = Constant <value = int64[2] {1, 3}> () flat = Constant <value = int64[1] {-1}> ()",
        "square = Constant <value = int64[2] {4, 4}> ()",
    ]
    for k in range(draw(st.integers(1, 4))):
        kind, one, other = draw(st.sampled_from(STEPS)), draw(st.sampled_from(made)), draw(st.sampled_from(made))
        lines.append(kind(f"t{k}", one, other, "w"))
        made.append(f"t{k}")
    lines.append(f"n = Tanh ({made[-1]}) o = Identity ({draw(st.sampled_from(made[1:]))})")
    return " ".join(lines)


def body_of(*lines: str) -> str:
    """The body that `bodies` makes of these lines."""
    head = f"w = Constant <value = float[4, 4] {{{', '.join(WEIGHTS.split(', ')[:16])}}}> ()"
    return " ".join([head, "first = Constant <value = int64[1] {0}> ()", *lines])


@settings(max_examples=25)
@example(  # ONNX Runtime puts two Reshapes together, and runs the one that nobody reads
    body_of(
        "flat = Constant <value = int64[1] {-1}> () square = Constant <value = int64[2] {4, 4}> ()",
        "r = Reshape (s, flat) t = Reshape (r, square) a = Add (s, v) n = Tanh (a) o = Identity (v)",
    )
)
@example(body_of("n = Transpose (s) o = Add (n, v)"))
@example(body_of("t = MatMul (s, w) n = Tanh (t) o = Identity (v)"))
@example(body_of("r = ReduceMean <keepdims: int = 1> (s, first) n = Sub (v, r) o = Identity (s)"))
@given(bodies())
def test_parts_of_random_bodies_give_what_rounds_in_place_do(body: str) -> None:
    model = scan(body, steps=3, state="4, 4", given="4, 4")
    feeds, whole = numbers(model), load_onnx(model)
    assert "opaque" not in whole.ops
    wanted = list(run(plan(whole, Mesh(1)), feeds, backend="serial").outputs.values())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "MAX_INLINED_NODES", 0)
        patch.setattr(tuning, "INLINED_TIMES", 0)
        check_parts(model, wanted, rtol=1e-4)


# -- planted faults ------------------------------------------------------------------------------------------


def keep_reductions(classes: Any, graph: Any, node: Any) -> None:
    """Join what follows an index axis, and spoil nothing."""
    signature, index = graph.signature(node.name), f"{node.name}()"
    sides = (node.inputs, signature.inputs), (node.outputs, signature.outputs)
    for names, operands in sides:
        for name, operand in zip(names, operands, strict=True):
            for k, n in enumerate(graph.tensor(name).shape):
                axis = rounds._followed(signature, operand, k, n)
                if axis is not None:
                    classes.join((name, k), (index, axis))


def join_nothing(classes: Any, graph: Any, view: Any) -> None:
    """Leave views out, as if they tied nothing."""


class Unspoiled(rounds._Walked):
    """Classes of which none is spoiled."""

    def spoil(self, *axes: Any) -> None:
        """Nothing."""


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "sums are not seen": ({"join_operator": keep_reductions}, "a sum"),
    "whole reads are not seen, nor compared": (
        {"join_operator": keep_reductions, "_does_same": lambda *args: True},
        "running totals",
    ),
    "views move cells, and are not compared": (
        {"join_view": join_nothing, "_reads_same": lambda *args: True},
        "a shift of cells",
    ),
    "nothing is spoiled": ({"_Walked": Unspoiled}, "a constant that others follow from is not"),
    "nothing is spoiled, and sums are taken over parts": ({"_Walked": Unspoiled}, "a sum"),
}
"""What is planted in `rounds`, and a body on which it shows."""


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("label", FAULTS)
def test_planted_faults_are_found(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faults, body = FAULTS[label]
    model = scan(BODIES[body][0], steps=5)
    wanted, sizes = ort(model, numbers(model)), list(BODIES[body][1].values())
    assert list(check_parts(model, wanted).values()) == sizes
    for place, fault in faults.items():
        monkeypatch.setattr(rounds, place, fault)
    with pytest.raises((AssertionError, StepFailed, ValueError)):
        assert list(check_parts(model, wanted).values()) == sizes


def test_bodies_that_nobody_splits_run_whole() -> None:
    """A body whose operator nobody splits leaves no axis."""
    model = scan("k = Hardmax (s) n = Add (k, v) o = Identity (v)", steps=5000)
    p = plan(load_onnx(model), Mesh(2))
    assert list(p.opaque) == ["Scan_0"] and not p.sharding["Scan_0"]


@pytest.mark.parametrize(
    ("follows", "says"),
    [
        ((("i0",), ("i0", "")), "give a name or '' for each axis"),
        ((("i0", "i0"), ("i0", "")), r"follows\[0\]: axis 'i0' has extent 4 before, here 6"),
        ((("i0", ""), ("", "")), "each cell must be written exactly once"),
    ],
)
def test_axes_that_do_not_fit_are_refused(follows: Any, says: str) -> None:
    graph = Graph()
    x = graph.input("x", (4, 6))
    with pytest.raises(ValueError, match=says):
        ops.opaque(x, model=HARDMAX_OF_4X6, shapes=[(4, 6)], dtypes=["float32"], follows=follows)
