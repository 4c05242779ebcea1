"""Plans at other sizes of open axes: the choices are kept, the bytes are those of a run, the values ONNX's."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser, printer

from tapestry_exec import run
from tapestry_plan import Device, Graph, Mesh, NotFound, Placed, ShardPlan, load_onnx, ops, plan
from tests.onnx_models import ort, random
from tests.open_models import open_attention, open_batch

SIZES = {"batch": 2, "seq": 6}
APART = {"fuse": False, "expand": False}
WAYS: dict[str, tuple[Mesh, dict[str, Any]]] = {
    "two devices": (Mesh(2), {}),
    "rows of scores": (Mesh(3), {"fix": {"scores": {"m": 3}, "shares": {"i2": 3}}, **APART}),
    "columns of scores": (Mesh(3), {"fix": {"scores": {"n": 3}, "shares": {"i2": 3}, "mixed": {"k": 3}}, **APART}),
    "parts merged in stages": (Mesh(4), {"fix": {"scores": {"k": 4}, "shares": {"i2": 4}}, **APART}),
    "one copy of inputs": (Mesh((2, 2)), {"placement": "single", "fix": {"y": {"m": 4}}}),
    "an output brought home": (Mesh(2), {"layout": {"y": {1: 2}}, "fix": {"y": {"b0": 2}}}),
    "unlike devices": (
        Mesh(2, device=[Device(1e12, 1e11), Device(3e12, 3e11)]),
        {"fix": {"scores": {"m": 2}}, "expand": False},
    ),
}


def attention(**sizes: int) -> Graph:
    return load_onnx(open_attention(), shapes={**SIZES, **sizes})


def cells_of(p: ShardPlan) -> dict[tuple[str, str], Any]:
    return {place: layout.cells for place, layout in p.choices.layouts.items()}


def check_kept(p: ShardPlan, bound: ShardPlan) -> None:
    """Each part is on the device on which it was."""
    assert bound.sharding == p.sharding and cells_of(bound) == cells_of(p)
    for name in ("fan_in", "merged", "asked_outputs", "memory_nbytes", "spill_nbytes"):
        assert getattr(bound.choices, name) == getattr(p.choices, name)
    for name in ("mesh", "fused", "unified", "recomputed", "space", "made_by"):
        assert getattr(bound, name) == getattr(p, name)


@pytest.mark.heavy(2)
@pytest.mark.parametrize("way", WAYS)
def test_a_bound_plan_runs_as_onnx_runtime_does(way: str) -> None:
    mesh, options = WAYS[way]
    p = plan(attention(), mesh, **options)
    assert p.bind(batch=2) == p and p.bind(batch=2, seq=6).bound == p.bound
    for batch, seq in ((2, 7), (3, 12), (4, 9)):
        bound = p.bind(batch=batch, seq=seq)
        check_kept(p, bound)
        assert bound.graph.sizes == {"batch": batch, "seq": seq} and bound.bound == 0.0
        x = np.random.default_rng(batch).standard_normal((batch, seq, 8)).astype(np.float32)
        found = run(bound, {"x": x}, backend="serial")
        assert found.nbytes_moved == bound.nbytes_moved and found.peak_nbytes == bound.peak_nbytes
        (wanted,) = ort(open_attention(), {"x": x})
        np.testing.assert_allclose(found.outputs["y"], wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))
        if way != "unlike devices":  # whose shares are rounded to cells
            again = bound.bind(SIZES)
            assert (again.choices, again.steps, again.seconds) == (p.choices, p.steps, p.seconds)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_transformers_of_any_batch(name: str) -> None:
    model = open_batch(name)
    p = plan(load_onnx(model, shapes={"batch": 2}), Mesh(2))
    bound = p.bind(batch=5)
    check_kept(p, bound)
    ids = np.random.default_rng(5).integers(0, 100, (5, 16))
    found = run(bound, {"input_ids": ids})
    assert found.nbytes_moved == bound.nbytes_moved
    for label, wanted in zip(bound.graph.outputs, ort(model, {"input_ids": ids}), strict=True):
        np.testing.assert_allclose(found.outputs[label], wanted, rtol=0, atol=2e-5 * float(np.abs(wanted).max()))


def test_uneven_parts_keep_their_proportions() -> None:
    mesh, _ = WAYS["unlike devices"]
    p = plan(attention(batch=1, seq=400), mesh)
    bound, uneven = p.bind(seq=4000), 0
    for place, layout in p.choices.layouts.items():
        for mine, n, there in zip(layout.sizes, layout.extents, bound.choices.layouts[place].sizes, strict=False):
            assert there == (tuple(10 * k for k in mine) if n == 400 else mine)
            uneven += n == 400 and len(set(mine)) > 1
    assert uneven


def test_a_graph_is_read_again_as_it_was_first(tmp_path: Any) -> None:
    """By whichever way sizes were said, with the outputs and the values that were asked for."""
    onnx.save(open_attention(), tmp_path / "m.onnx")
    for shapes in (SIZES, {"x": (2, 6, 8)}, {"x": [2, 6, 8], "batch": 2}, {"seq": np.int64(6), "batch": 2}):
        g = load_onnx(tmp_path / "m.onnx", shapes=shapes, outputs=["scores"])
        assert g.sizes == SIZES
        again = g.bind(seq=7)
        assert again.sizes == {"batch": 2, "seq": 7} and list(again.outputs) == ["scores"]
        assert again.stored["x"].shape == (2, 7, 8) and again.bind(seq=6).stored["x"].shape == (2, 6, 8)
    assert load_onnx(tmp_path / "m.onnx", shapes=SIZES).stored["wq"].path == f"{tmp_path / 'm.onnx'}#wq"


def test_graphs_with_their_models_are_copied_and_pickled() -> None:
    g = attention()
    for copied in (pickle.loads(pickle.dumps(g)), deepcopy(g)):
        assert copied.bind(batch=3).stored["x"].shape == (3, 6, 8)
    p = pickle.loads(pickle.dumps(plan(g, Mesh(2))))
    assert p.bind(batch=3).graph.sizes["batch"] == 3


def test_a_saved_plan_is_bound_to_a_graph() -> None:
    p = plan(attention(), Mesh(2))
    saved = ShardPlan.from_json(p.to_json())
    with pytest.raises(ValueError, match=r"bind: this graph was not read .* document, .*give that graph to ShardPlan"):
        saved.bind(batch=4)
    with pytest.raises(ValueError, match=r"symbolic_transfers: .*read from a document; load the model"):
        saved.symbolic_transfers()
    bound = saved.bind(attention(batch=4))
    assert bound == p.bind(batch=4)
    assert bound.bind(batch=3) == p.bind(batch=3)  # it knows its model again


def test_a_changed_graph_is_bound_by_one_changed_alike() -> None:
    def changed(**sizes: int) -> Graph:
        g = attention(**sizes)
        g.output(ops.relu(g.tensor("y"), name="more"), "z")
        return g

    p = plan(changed(), Mesh(2))
    with pytest.raises(ValueError, match=r"has not the operators that the plan is of; where it was changed"):
        p.bind(batch=4)
    assert p.bind(changed(batch=4)).sharding == p.sharding


VANISHING = {
    "slice": (
        "(float[S,8] x, float[64,8] pe) => (float[S,8] y) { sh = Shape<start=0, end=1>(x)"
        " z = Constant<value_ints=[0]>() p = Slice(pe, z, sh) y = Add(x, p) }"
    ),
    "pad": (
        "(float[S,8] x) => (float[T,8] y) { sh = Shape<start=0, end=1>(x) k = Constant<value_ints=[64]>()"
        " left = Mod(sh, k) more = Sub(k, left) n = Mod(more, k)"
        " two = Constant<value_ints=[0,0]>() one = Constant<value_ints=[0]>()"
        " w = Concat<axis=0>(two, n, one) wide = Pad(x, w) y = Relu(wide) }"
    ),
}
"""Models of which a view has all cells of its tensor at 64 rows, and others at others."""


@pytest.mark.parametrize("what", VANISHING)
@pytest.mark.parametrize(("planned", "bound"), [(6, 64), (64, 6), (63, 64)])
def test_a_size_at_which_a_view_changes_nothing(what: str, planned: int, bound: int) -> None:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {VANISHING[what]}')
    p = plan(load_onnx(model, shapes={"S": planned}), Mesh(3))
    feeds = {"x": random(bound, 8), "pe": random(64, 8, seed=2)}
    feeds = {value.name: feeds[value.name] for value in model.graph.input}
    (wanted,) = ort(model, feeds)
    again = p.bind(S=bound)
    assert again.sharding == p.sharding
    np.testing.assert_allclose(run(again, feeds).outputs["y"], wanted, rtol=1e-6)


def test_numbers_made_of_sizes_that_equal_a_constant_at_one_of_them() -> None:
    """They are two constants in a plan of a model with open axes, where they are two at other sizes."""
    text = (
        "(float[N,4] x) => (float[N,4] y) <float one = {1.0}> { s = Shape<start=0, end=1>(x) n = Cast<to=1>(s)"
        " k = Squeeze(n) a = Div(x, k) y = Add(a, one) }"
    )
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    for planned, bound in ((1, 6), (2, 6), (6, 1), (1, 1)):
        feeds = {"x": random(bound, 4)}
        p = plan(load_onnx(model, shapes={"N": planned}), Mesh(2)).bind(N=bound)
        np.testing.assert_allclose(run(p, feeds).outputs["y"], ort(model, feeds)[0], rtol=1e-6)
    fixed = load_onnx(parser.parse_model(printer.to_text(model).replace("[N,4]", "[1,4]")))
    assert plan(fixed, Mesh(2)).unified, "which is never read at other sizes"


def test_a_plan_that_cannot_be_rewritten_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a model could not be read with one point more."""
    monkeypatch.setattr("tapestry_plan.search.planner.list_equal_by_chance", lambda *_: frozenset())
    text = (
        "(float[N,4] x) => (float[N,4] y) <float one = {1.0}> { s = Shape<start=0, end=1>(x) n = Cast<to=1>(s)"
        " k = Squeeze(n) a = Div(x, k) y = Add(a, one) }"
    )
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    said = r"bind: at N=6 the graph cannot be rewritten as the plan's was \(step 0: unify at .*; .* unify=False"
    with pytest.raises(ValueError, match=said):
        plan(load_onnx(model, shapes={"N": 1}), Mesh(2)).bind(N=6)


def test_sizes_at_which_a_model_has_other_operators() -> None:
    text = (
        "(float[N,4] x) => (float[N,4] y) { n = Shape<start=0, end=1>(x) z = Constant<value_ints=[0]>()"
        " k = Squeeze(n, z) t = Constant<value = bool {1}>() y = Loop(k, t, x)"
        " <body = b (int64 i, bool go, float[N,4] a) => (bool on, float[N,4] o) { on = Identity(go) o = Mul(a, a) }> }"
    )
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    p = plan(load_onnx(model, shapes={"N": 3}), Mesh(2))
    more, fewer = (
        r"it has an operator 'Loop_0/3/.*multiply\) there, which the plan has not",
        r"no operator 'Loop_0/2/.* there",
    )
    for size, says in ((5, more), (2, fewer)):
        said = rf"bind: at N={size} the model comes to other operators than the plan has: .*{says}; plan the graph at"
        with pytest.raises(ValueError, match=said):
            p.bind(N=size)
        with pytest.raises(ValueError, match=said):
            p.bind(load_onnx(model, shapes={"N": size}))


WRONG: dict[str, tuple[Callable[[ShardPlan], Any], str]] = {
    "unknown": (lambda p: p.bind(bach=3), "'bach' is not a symbol; known symbols: 'batch', 'seq'"),
    "zero": (lambda p: p.bind(batch=0), "bind: at batch=0, seq=6 the model comes to other operators than the plan has"),
    "negative": (lambda p: p.bind({"seq": -4}), "bind: seq must be at least 0, not -4"),
    "twice": (lambda p: p.bind({"batch": 3}, batch=4), "the symbol 'batch' is given twice, as 3 and 4; give it once"),
    "none": (lambda p: p.bind(), "no size is given; give some by symbol, as batch=32"),
    "graph and sizes": (lambda p: p.bind(p.graph, batch=3), "a graph is given, which has its sizes, and sizes too"),
    "too few points": (
        lambda p: p.bind(seq=2),
        r"into 3 parts along axis '\w+', which has 2 points at batch=2, seq=2; bind larger",
    ),
    "written steps": (lambda p: p.with_steps(steps=p.steps[1:]).bind(batch=3), "whose steps somebody wrote"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_sizes(what: str) -> None:
    mesh, options = WAYS["rows of scores"]
    ask, said = WRONG[what]
    with pytest.raises(ValueError, match=said):
        ask(plan(attention(), mesh, **options))


def test_sizes_that_are_no_integers() -> None:
    p = plan(attention(), Mesh(2))
    for wrong in (2.5, True, "3", None):
        with pytest.raises(TypeError, match=r"batch'?\]? must be an integer"):
            p.bind({"batch": wrong})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"bind: to.*give sizes by symbol"):
        p.bind(3)  # type: ignore[arg-type]


def test_a_symbol_that_is_left_open() -> None:
    with pytest.raises(ValueError, match=r"dynamic on axis 1 \(seq\); fix it with .* shapes=\{'seq': …\}"):
        load_onnx(open_attention(), shapes={"batch": 2})
    with pytest.raises(ValueError, match=r"the symbol 'batch' is 3 by .* and 2 by .*it stands for one size"):
        load_onnx(open_attention(), shapes={"batch": 3, "x": (2, 6, 8)})


def test_boxes_by_device_say_nothing_of_other_shapes() -> None:
    corners = [(slice(0, 1), slice(0, 3)), (slice(1, 2), slice(3, 6))]
    others = [(slice(0, 1), slice(3, 6)), (slice(1, 2), slice(0, 3))]
    placed = Placed({0: corners, 1: others})
    p = plan(attention(), Mesh(2), layout={"x": placed})
    assert p.bind(batch=2) == p
    with pytest.raises(ValueError, match=r"bind: source 'x' was placed in boxes by device"):
        p.bind(batch=4)


def test_axes_that_are_cut_into_equal_parts_only() -> None:
    """A kernel of grouped queries: 2 parts of heads are no parts of 3 of them; of sequences there are always."""
    g = attention()
    p = plan(g, Mesh(2), fix={"mixed": {"b0": 2}})
    assert p.bind(batch=3).choices.layouts["operator", "mixed"].cuts[0] == ((0, 2), (2, 3))


def test_leaves_of_the_same_bits_follow_from_sizes() -> None:
    """So that not all sizes have the plan's parts; where they are kept, bits are those of one device."""
    p, kept = plan(attention(), Mesh(2), same_bits=True), []
    for batch, seq in ((2, 6), (2, 7), (4, 6), (1, 4), (1, 6), (5, 6)):
        try:
            bound = p.bind(batch=batch, seq=seq)
        except ValueError as error:
            assert re.search("not a multiple of that|as leaves of the same bits follow from sizes", str(error))
            continue
        kept.append((batch, seq))
        alone = plan(attention(batch=batch, seq=seq), Mesh(1), same_bits=True)
        x = np.random.default_rng(3).standard_normal((batch, seq, 8)).astype(np.float32)
        found = [run(one, {"x": x}, backend="serial").outputs["y"] for one in (bound, alone)]
        np.testing.assert_array_equal(*found)
    assert kept == [(2, 6), (1, 4), (1, 6), (5, 6)]


def test_memory_that_a_device_has() -> None:
    """Arenas are laid out anew within the memory; where that is too little the plan is told."""
    mesh = Mesh(2, device=Device(1e12, 1e11, memory_nbytes=4096))
    p = plan(attention(), mesh)
    assert max(p.bind(batch=3).peak_nbytes) <= 4096
    with pytest.raises(NotFound, match=r"need .* bytes on a device") as caught:
        p.bind(batch=64)
    assert caught.value.fastest.graph.sizes["batch"] == 64


def test_memory_that_was_asked_for() -> None:
    """It is asked of the plan at the new sizes too, and of what keeps its choices."""
    p = plan(attention(), Mesh(2), memory_nbytes=3500)
    assert p.limit_nbytes == (3500, 3500) and p.bind(batch=2) == p
    small = p.bind(seq=5)
    assert small.limit_nbytes == p.limit_nbytes and max(small.peak_nbytes) <= 3500
    with pytest.raises(NotFound, match=r"bind: the plan's choices at batch=64, seq=6 need .*, and 3,500 may") as caught:
        p.bind(batch=64)
    beyond = caught.value.fastest
    assert max(beyond.peak_nbytes) > 3500 and beyond.sharding == p.sharding
    tight = plan(attention(), Mesh(2, device=Device(1e12, 1e11, memory_nbytes=3000)), memory_nbytes=3500)
    assert tight.limit_nbytes == (3000, 3000)
    with pytest.raises(NotFound, match="and 3,000 may be had"):
        tight.bind(batch=64)
    apart = plan(attention(batch=64), Mesh(2), like=beyond)
    assert apart.limit_nbytes is None  # nothing was asked for, and what was before is not kept
    assert p.symbolic_transfers("batch", confirm=[64]).confirmed == (2, 64)  # which say nothing of memory


def test_nothing_is_proved_of_a_plan_that_was_bound() -> None:
    p = plan(attention(), Mesh(2))
    bound = p.bind(batch=3)
    assert "gap" in repr(p) and "no bound" not in repr(p)
    assert "no bound" in repr(bound) and "gap" not in repr(bound)
    page = bound.report().html
    assert "nothing was searched" in page and "gap 100" not in page
