"""Equal constants are one, equal operators run once: the same bits, never a plan that costs more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapestry_exec import evaluate, run
from tapestry_plan import Device, Graph, Link, Mesh, ShardPlan, plan
from tapestry_plan.ir import NotApplicable, same_graph
from tapestry_plan.ops import exp, relu, softmax, uniform
from tapestry_plan.rewrite import find, unify, unify_equal
from tests.graph_recipes import STEPS, Recipe, recipes

Twins = tuple[Recipe, list[bool]]
SLOW_LINK = Mesh((2,), link=Link(1e-3, 1e6), device=Device(1e9, 1e9))


@st.composite
def recipes_with_twins(draw: st.DrawFn) -> Twins:
    """A recipe, and which of its steps are done twice, on operands of which either of two equal ones is taken."""
    recipe = draw(recipes(longest=5))
    return recipe, draw(st.lists(st.booleans(), min_size=4 * len(recipe[0]), max_size=4 * len(recipe[0])))


def built_twice(recipe: Recipe, coins: list[bool]) -> Graph:
    g, flips = Graph(), iter(coins)
    twins = [(x, x) for x in (g.input("x", (3, 3)), g.input("y", (3, 3)))]
    for step, a, b in recipe[0]:
        one = STEPS[step](g, twins[a][next(flips)], twins[b][next(flips)])
        two = STEPS[step](g, twins[a][next(flips)], twins[b][next(flips)])
        twins.append((one, two))
    for k in recipe[1]:
        g.output(twins[k][0], f"out{k}")
        g.output(twins[k][1], f"twin{k}")
    return g


FEEDS = {name: np.random.default_rng(k).normal(size=(3, 3)).astype(np.float32) for k, name in enumerate("xy")}


@given(recipes_with_twins())
@example((([(6, 0, 1), (0, 2, 2)], [3]), [False, True] * 4))
def test_what_is_done_twice_is_done_once_and_gives_the_same_bits(made: Twins) -> None:
    g = built_twice(*made)
    once, unified = unify_equal(g)
    once.validate()
    assert len(g.nodes) - len(once.nodes) == sum(name in g.nodes for name in unified)
    assert unify_equal(once) == (once, {})
    for k in made[0][1]:
        if k > 1 and once.outputs[f"out{k}"] in once.stored:
            assert once.outputs[f"out{k}"] == once.outputs[f"twin{k}"]
    before, after = evaluate(g, FEEDS), evaluate(once, FEEDS)
    for label, array in before.items():
        assert after[label].tobytes() == array.tobytes()


@pytest.mark.heavy(2)
@settings(max_examples=max(20, settings.default.max_examples // 4))
@given(recipes_with_twins(), st.sampled_from(["free", "single"]), st.sampled_from([Mesh((2,)), SLOW_LINK]))
def test_a_plan_with_equal_ones_unified_costs_no_more(made: Twins, placement: str, mesh: Mesh) -> None:
    g = built_twice(*made)
    once, apart = (plan(g, mesh, placement=placement, unify=one, expand=False) for one in (True, False))
    costs = [(p.seconds, p.nbytes_moved, sum(p.nbytes_placed)) for p in (once, apart)]
    assert costs[0] <= costs[1]
    assert once.gap == 0 and once.bound <= costs[1][0]
    assert same_graph(once.derivation.replay(g), once.graph)
    assert ShardPlan.from_json(once.to_json()) == once
    outputs = run(once, FEEDS).outputs
    for label, array in run(apart, FEEDS).outputs.items():
        np.testing.assert_array_equal(outputs[label], array)


def test_views_are_compared_by_the_cells_that_they_show() -> None:
    g = Graph()
    x = g.input("x", (8, 4))
    g.output(relu(x[::2][1:]), "a")
    g.output(relu(x[2:][::2]), "b")
    g.output(relu(x[1::2][1:]), "c")
    assert unify_equal(g)[1] == {"relu_1": "relu"}


def test_numbers_drawn_from_one_stream_are_one_and_others_are_not() -> None:
    g = Graph()
    for k, stream in enumerate((0, 1, 0)):
        g.output(uniform(g, (4,), seed=7, stream=stream, name=f"u{k}"))
    g.output(uniform(g, (4,), seed=8, stream=0, name="other"))
    once, unified = unify_equal(g)
    assert unified == {"u2": "u0"} and once.outputs == {"u0": "u0", "u1": "u1", "u2": "u0", "other": "other"}


def test_attributes_that_compare_equal_and_differ_are_told_apart() -> None:
    g = Graph()
    x = g.input("x", (4,))
    for k, alpha in enumerate((0.0, -0.0)):
        g.output(g.op("leaky_relu", x, alpha=alpha, name=f"y{k}"))
    assert unify_equal(g)[1] == {}


def test_constants_are_equal_by_their_bytes() -> None:
    g = Graph()
    values = {"zero": np.zeros(3), "minus": -np.zeros(3), "single": np.zeros(3, "f4"), "row": np.zeros((1, 3))}
    nans = {"nan": np.full(3, np.nan), "nan too": np.full(3, np.nan), "zero too": np.zeros(3)}
    for name, array in {**values, **nans}.items():
        g.output(g.constant(name, array), name)
    assert unify_equal(g)[1] == {"zero too": "zero", "nan too": "nan"}
    assert unify_equal(g, ["zero"])[1] == {"nan too": "nan"}


def test_long_constants_that_differ_in_one_cell_are_two() -> None:
    g, cells = Graph(), np.zeros(100_003, np.uint8)
    for name in ("a", "b", "c"):
        cells[54_321] = name == "b"
        g.output(g.constant(name, cells.copy()))
    assert unify_equal(g)[1] == {"c": "a"}


def twice() -> Graph:
    """One product with equal weights, done twice, and what is made of it."""
    g = Graph()
    x = g.input("x", (8, 6))
    for k in "12":
        w = g.constant(f"w{k}", np.full((6, 4), 0.5, np.float32))
        g.output(relu(g.op("matmul", x, w, name=f"mm{k}"), name=f"act{k}"), f"y{k}")
    return g


def test_a_plan_places_equal_weights_once_and_tells_so() -> None:
    once, apart = (plan(twice(), Mesh((2,)), unify=unify, fuse=False) for unify in (True, False))
    assert once.unified == {"w2": "w1", "mm2": "mm1", "act2": "act1"} and apart.unified == {}
    assert sum(apart.nbytes_placed) - sum(once.nbytes_placed) >= 6 * 4 * 4
    assert once.seconds < apart.seconds
    assert once.explain("act2").startswith("act2: the same as act1")
    assert "mm2: m:2 -> as mm1" in str(apart.diff(once))
    assert once.explain("w2").startswith("w2: the same as w1") and "w1: constant" in once.explain("w2")


@pytest.mark.parametrize(
    "asked, unified",
    [
        ({"fix": {"mm2": {"m": 2}}}, {"w2": "w1"}),
        ({"forbid": {"act1": {"i0": 2}}}, {"w2": "w1", "mm2": "mm1"}),
        ({"layout": {"w1": {1: 2}}}, {}),
        ({"layout": {"y2": {0: 2}}}, {"w2": "w1", "mm2": "mm1"}),
    ],
)
def test_what_the_user_names_stays_apart(asked: dict, unified: dict) -> None:
    p = plan(twice(), Mesh((2,)), **asked)
    assert p.unified == unified
    for name in asked.get("fix", ()):
        assert p.sharding[name] == asked["fix"][name]


def test_a_weight_that_an_output_is_tied_to_stays_apart() -> None:
    g = Graph()
    w, v = (g.constant(name, np.ones((4, 4), np.float32)) for name in "wv")
    g.output(w + g.input("x", (4, 4)) @ v, "new_w")
    assert plan(g, Mesh((2,)), tie={"new_w": "w"}).unified == {}


@pytest.mark.heavy(2)
@pytest.mark.parametrize("most", [64, 0], ids=["planned again", "looked at near the plan"])
def test_what_is_cheaper_done_twice_is_done_twice(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of exp(x) are wanted whole, and columns: one of them would have to be moved."""
    monkeypatch.setattr("tapestry_plan.search.tuning.MAX_APART", most)
    g = Graph()
    x = g.input("x", (64, 64))
    g.output(softmax(exp(x), axis=1), "rows")
    g.output(softmax(exp(x), axis=0), "columns")
    mesh = Mesh((4,), link=Link(1e-3, 1e6), device=Device(1e9, 1e9))
    p, q = plan(g, mesh), plan(g, mesh, unify=False)
    assert (p.nbytes_moved, p.unified, p.gap) == (0, {}, 0)
    assert p.seconds == q.seconds
    quick = Mesh((2,), link=Link(0, 1e15), device=Device(1e9, 1e9))
    assert plan(g, quick, fuse=False).unified == {"exp_1": "exp"}
    assert plan(g, quick).seconds <= plan(g, quick, fuse=False).seconds  # or each exp is one block with its reader


def test_a_run_is_refused_where_one_of_two_equal_constants_was_written_to() -> None:
    g, arrays = Graph(), [np.ones(4, np.float32) for _ in range(2)]
    x = g.input("x", (4,))
    for k, array in enumerate(arrays):
        g.output(x + g.constant(f"c{k}", array), f"y{k}")
    p, feeds = plan(g, Mesh((2,))), {"x": np.arange(4, dtype=np.float32)}
    np.testing.assert_array_equal(run(p, feeds, verify=True).outputs["y1"], feeds["x"] + 1)
    arrays[1][2] = 5
    with pytest.raises(ValueError, match="constants 'c1' and 'c0' were equal when the plan was made"):
        run(p, feeds)
    arrays[0][2] = 5
    np.testing.assert_array_equal(run(p, feeds).outputs["y1"], feeds["x"] + arrays[1])


def test_a_document_needs_the_values_of_one_of_equal_constants() -> None:
    g, array = Graph(), np.arange(2000, dtype=np.float32)
    x = g.input("x", (2000,))
    for k in range(2):
        g.output(x * g.constant(f"c{k}", array.copy()), f"y{k}")
    p, feeds = ShardPlan.from_json(plan(g, Mesh((2,))).to_json()), {"x": np.ones(2000, np.float32)}
    for given_ in ({"c0": array}, {"c0": array, "c1": array}):
        np.testing.assert_array_equal(run(p, feeds, constants=given_, verify=True).outputs["y1"], array)
    with pytest.raises(ValueError, match="'c1' has other values than the plan was made for"):
        run(p, feeds, constants={"c0": array, "c1": array + 1})


def test_under_a_cap_equal_operators_are_there_once_too() -> None:
    g = Graph()
    x, w, v = g.input("x", (16, 64)), g.input("w", (64, 256)), g.input("v", (256, 64))
    for k in range(2):
        g.output(relu(x @ w) @ v, f"y{k}")
    mesh = Mesh((4,), link=Link(1e-8, 1e9), device=Device(1e9, 1e10))
    fastest, p = plan(g, mesh, fuse=False), plan(g, mesh, memory_nbytes=90_000, fuse=False)
    assert max(fastest.peak_nbytes) > 90_000 >= max(p.peak_nbytes)
    assert len(p.graph.nodes) == 3 and p.unified == fastest.unified
    assert fastest.seconds <= p.bound <= p.seconds


def test_the_rule_finds_what_is_equal_and_says_what_is_not() -> None:
    g = twice()
    assert find(g, unify) == ["w2"]  # operators on equal constants read different ones so far
    once = unify.apply(g, "w2")
    assert find(once, unify) == ["mm2", "w2"]
    assert list(unify.apply(once, "mm2", other="mm1").nodes) == ["mm1", "act1", "act2"]
    for at, other, why in [
        ("mm1", "act1", "'act1' has another operator, attributes or operands"),
        ("mm1", None, "there is no equal one before it"),
        ("mm1", "mm1", "it cannot stand for itself"),
        ("w1", "x", "there is no operator and no constant 'x'"),
    ]:
        with pytest.raises(NotApplicable, match=why):
            unify.apply(g, at, other=other)
