"""Reductions with a state: monoids against NumPy, whatever parts the work is cut into."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec import InvalidPlan, evaluate, run
from tapestry_plan import MONOIDS, Graph, Mesh, Monoid, NoMonoid, Op, ShardPlan, Tensor, ops, plan
from tapestry_plan.ir import check_monoid, merge_states
from tapestry_plan.ops import argmax, argmin, logsumexp, mean, reduce_with, std, var
from tapestry_plan.steps import Reduce

Array = np.ndarray
CUTS = st.lists(st.integers(0, 40), max_size=6)


def logsumexp_of(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """By the definition, in a wider float."""
    with np.errstate(all="ignore"):
        return np.log(np.exp(x.astype(np.longdouble)).sum(axis=axis, keepdims=keepdims)).astype(x.dtype)


NUMPY: dict[str, Callable[..., Array]] = {
    "sum": np.sum,
    "prod": np.prod,
    "min": np.min,
    "max": np.max,
    "any": np.any,
    "all": np.all,
    "mean": np.mean,
    "variance": np.var,
    "std": np.std,
    "logsumexp": logsumexp_of,
    "argmax": np.argmax,
    "argmin": np.argmin,
}


def state_of(monoid: Monoid, x: Array, first: int, whole: bool) -> tuple[Array, ...]:
    """The state of a stretch of values that begins at index `first`; of none, the zero."""
    if not len(x):
        kinds = monoid.components(x.dtype.name)
        return tuple(np.full(x.shape[1:], z, k) for z, k in zip(monoid.zero, kinds, strict=True))
    chosen = monoid if whole else replace(monoid, fold=None)
    index = np.arange(first, first + len(x)).reshape(-1, *(1,) * (x.ndim - 1))
    return chosen.reduced(np, x, index)


@pytest.mark.parametrize("name", NUMPY)
@given(st.integers(1, 40), CUTS, st.integers(0, 2**31), st.sampled_from([None, 2, 3]), st.booleans())
@example(5, [], 0, None, True)
def test_parts_merge_to_what_numpy_reduces(
    name: str, n: int, cuts: list[int], seed: int, fan_in: int | None, whole: bool
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (n, 5)).astype(bool if name in ("any", "all") else np.float64)
    ends = sorted({0, n, *(c for c in cuts if c <= n)} | {n})
    states = [state_of(MONOIDS[name], x[a:b], a, whole) for a, b in pairwise(ends)]
    if name not in ("min", "max"):
        states.insert(len(states) // 2, state_of(MONOIDS[name], x[:0], 0, whole))
    found = MONOIDS[name].unwrap(np, merge_states(MONOIDS[name], np, states, fan_in), {})
    np.testing.assert_allclose(found, NUMPY[name](x, axis=0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_the_monoids_are_monoids(name: str, dtype: str) -> None:
    if (dtype == "bool") != (name in ("any", "all")) or (dtype == "int64" and name == "logsumexp"):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_monoid(MONOIDS[name], dtype)


SHAPE = (7, 6, 5)
CASES: dict[str, tuple[Callable[..., Tensor], Callable[..., Array], dict[str, Any]]] = {
    "variance": (var, np.var, {}),
    "sample variance": (var, np.var, {"correction": 1}),
    "std": (std, np.std, {}),
    "logsumexp": (logsumexp, logsumexp_of, {}),
    "argmax": (argmax, np.argmax, {}),
    "argmin": (argmin, np.argmin, {}),
}


def planned(make: Callable[[Tensor], Tensor], x: Array, parts: dict[str, int], fan_in: int | None = None) -> ShardPlan:
    g = Graph()
    out = g.output(make(g.input("x", x.shape, x.dtype.name)), "out")
    op = next(name for name, node in g.nodes.items() if out.name in node.outputs)
    return plan(g, Mesh((prod(parts.values()),)), fix={op: parts}, fan_in=fan_in)


def ran(made: ShardPlan, x: Array) -> Array:
    """Run with every check: bytes and peaks as predicted, results as unsharded."""
    result = run(made, {"x": x}, verify=bool(np.isfinite(x).all()))
    assert result.nbytes_moved == made.nbytes_moved and result.peak_nbytes == made.peak_nbytes
    return result.outputs["out"]


@pytest.mark.heavy(2)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("axes", [0, 1, 2, None])
@pytest.mark.parametrize("keepdims", [False, True])
def test_every_cut_of_every_axis_equals_numpy(case: str, axes: int | None, keepdims: bool) -> None:
    make, reference, extra = CASES[case]
    rng = np.random.default_rng(3)
    x = (rng.integers(-4, 5, SHAPE) + (50 if case == "logsumexp" else 0)).astype(np.float32)
    options = {"ddof": extra["correction"]} if extra else {}
    wanted = reference(x.astype(np.float64), axis=axes, keepdims=keepdims, **options)
    for parts in ({}, {"i0": 2}, {"i0": 3}, {"i0": 7}, {"i1": 5}, {"i2": 5}, {"i0": 2, "i1": 3}, {"i1": 2, "i2": 2}):
        made = planned(lambda t: make(t, axes, keepdims=keepdims, **extra), x, parts)
        np.testing.assert_allclose(ran(made, x), wanted, rtol=2e-6)


@pytest.mark.heavy(2)
def test_an_argmax_with_ties_nans_and_infinities_is_numpys() -> None:
    rng = np.random.default_rng(1)
    some = [0.0, 1.0, 2.0, np.inf, -np.inf, np.nan]
    each = [rng.choice(some, size=(4, 9), p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.1]) for _ in range(20)]
    for make, reference in ((argmax, np.argmax), (argmin, np.argmin)):
        for parts in ({"i1": 2}, {"i1": 4}, {"i1": 9}, {"i0": 2, "i1": 2}):
            made = planned(lambda t, make=make: make(t, 1), each[0], parts)
            for x in each:
                np.testing.assert_array_equal(ran(made, x), reference(x, axis=1))
        made = planned(lambda t, make=make: make(t), each[0], {"i0": 2, "i1": 3})
        for x in each:
            assert int(ran(made, x)) == int(reference(x))


def test_argmax_of_integers_beyond_a_float() -> None:
    x = np.array([[2**62, 2**62 + 1, 2**62 - 1], [-(2**62), -(2**62) + 1, -(2**62)]])
    np.testing.assert_array_equal(ran(planned(lambda t: argmax(t, 1), x, {"i1": 3}), x), [1, 1])


def test_variance_is_stable_far_from_zero() -> None:
    """The sum of squares minus the square of the sum has no correct digit here."""
    x = np.linspace(0, 1, 700).reshape(7, 100) + 1e9
    for parts in ({}, {"i1": 2}, {"i1": 7}):
        made = planned(lambda t: var(t, 1, keepdims=False), x, parts)
        found = run(made, {"x": x}).outputs["out"]  # other roundings than the whole run's
        np.testing.assert_allclose(found, np.var(x - 1e9, axis=1), rtol=1e-5)


def test_logsumexp_of_infinities() -> None:
    x = np.array([[-np.inf, -np.inf, -np.inf], [1000.0, 1000.0, -np.inf], [np.inf, 0.0, 1.0], [np.nan, 0.0, 1.0]])
    with np.errstate(all="ignore"):
        found = ran(planned(lambda t: logsumexp(t, 1, keepdims=False), x, {"i1": 3}), x)
    np.testing.assert_array_equal(found, [-np.inf, 1000 + np.log(2), np.inf, np.nan])


def test_the_bits_do_not_depend_on_the_number_of_devices() -> None:
    """Parts are merged in their order: which devices made them, and for whom, means nothing."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(6, 64)).astype(np.float32)
    for fan_in in (None, 2, 3):
        found = set()
        for devices in (4, 8, 16):  # replicas of the four parts
            g = Graph()
            g.output(var(g.input("x", x.shape), 1, keepdims=True), "out")
            made = plan(g, Mesh((devices,)), fix={"var": {"i1": 4}}, fan_in=fan_in)
            found.add(ran(made, x).tobytes())
        assert len(found) == 1


def test_fan_in_is_a_tree_of_neighbors() -> None:
    x = np.array([[1e16, 1.0, -1e16, 1.0, 1.0, 1.0, 1.0]])
    one_by_one, by_twos = (
        run(planned(lambda t: ops.sum(t, 1, keepdims=True), x, {"i1": 7}, fan_in), {"x": x}).outputs["out"]
        for fan_in in (None, 2)
    )
    assert float(one_by_one[0, 0]) == ((((1e16 + 1) - 1e16) + 1) + 1) + 1 + 1
    assert float(by_twos[0, 0]) == ((1e16 + 1) + (-1e16 + 1)) + ((1.0 + 1.0) + 1.0)
    made = planned(lambda t: ops.sum(t, 1, keepdims=True), x, {"i1": 7}, fan_in=3)
    assert {step.fan_in for step in made.steps if isinstance(step, Reduce)} == {3}
    assert ShardPlan.from_json(made.to_json()).to_json() == made.to_json()


@pytest.mark.parametrize("fan_in", [1, 0, -2])
def test_a_fan_in_that_is_none_is_refused(fan_in: Any) -> None:
    g = Graph()
    g.output(ops.sum(g.input("x", (4,)), keepdims=True))
    with pytest.raises(ValueError, match=r"fan_in is .*; it is an integer >= 2, or None"):
        plan(g, Mesh((2,)), fan_in=fan_in)


def test_states_are_what_moves() -> None:
    """A variance's state is 24 bytes, its result 4: parts that go to three other devices."""
    x = np.ones((8, 12), np.float32)
    made = planned(lambda t: var(t, 1, keepdims=True), x, {"i1": 4})
    assert made.nbytes_moved % 24 == 0 and made.nbytes_moved == 3 * 8 * 24
    assert planned(lambda t: var(t, 1, keepdims=True), x, {"i0": 4}).nbytes_moved == 0
    assert ran(made, x).tolist() == [[0.0]] * 8


def test_a_plan_that_merges_states_otherwise_is_refused() -> None:
    x = np.ones((8, 12), np.float32)
    made = planned(lambda t: var(t, 1, keepdims=True), x, {"i1": 3})
    at, step = next((k, s) for k, s in enumerate(made.steps) if isinstance(s, Reduce))
    for wrong, message in (
        (Reduce(step.node, "std", step.inputs, step.output, step.regions), "merges by 'std'"),
        (Reduce(step.node, "variance", step.inputs[:2], step.output, step.regions), "not the whole reduction"),
        (Reduce(step.node, "variance", step.inputs, step.output, step.regions, 1), "2 or more are needed"),
    ):
        with pytest.raises(InvalidPlan, match=message):
            run(made.with_steps(steps=(*made.steps[:at], wrong, *made.steps[at + 1 :])), {"x": x})


# -- monoids of users ---------------------------------------------------------------------------------------

SPAN = Monoid(
    "span",
    lambda xp, a, b: (xp.minimum(a[0], b[0]), xp.maximum(a[1], b[1])),
    (float("inf"), float("-inf")),
    lambda dtype: (dtype, dtype),
    lambda xp, x, index: (x, x),
    lambda xp, state, attrs: state[1] - state[0],
)
LAST = Monoid("last", lambda xp, a, b: b, (float("nan"),), is_commutative=False)


def test_a_monoid_of_ones_own_shards_plans_and_runs() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(9, 10, 4))
    for parts in ({}, {"i1": 3}, {"i0": 2, "i1": 5}, {"i2": 4}):
        made = planned(lambda t: reduce_with(SPAN, t, (0, 1), keepdims=False), x, parts)
        np.testing.assert_array_equal(ran(made, x), np.ptp(x, axis=(0, 1)))


def test_a_monoid_whose_order_matters_keeps_it() -> None:
    x = np.arange(24.0).reshape(4, 6)
    with pytest.warns(NoMonoid, match="zero is not neutral: a·zero"):
        planned(lambda t: reduce_with(LAST, t, 1, keepdims=True), x, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoMonoid)
        for parts in ({"i1": 2}, {"i1": 4}, {"i1": 6}):
            made = planned(lambda t: reduce_with(LAST, t, 1, keepdims=False), x, parts, fan_in=2)
            np.testing.assert_array_equal(ran(made, x), x[:, -1])
        with pytest.raises(ValueError, match="last is not commutative: its values have an order along one axis only"):
            planned(lambda t: reduce_with(LAST, t, keepdims=True), x, {})


def test_what_is_not_a_monoid_is_said() -> None:
    halfway = Monoid("halfway", lambda xp, a, b: ((a[0] + b[0]) / 2,), (0,))
    with pytest.warns(NoMonoid, match=r"monoid halfway: merge is not associative: \(a·b\)·c gives"):
        check_monoid(halfway)
    with pytest.warns(NoMonoid, match="merge is not commutative"):
        check_monoid(Monoid("first", lambda xp, a, b: (xp.where(xp.isnan(a[0]), b[0], a[0]),), (float("nan"),)))


def test_a_reduction_of_no_name_is_refused() -> None:
    with pytest.raises(ValueError, match="operator 'x': reduction 'average' is not one of"):
        Op("x", lambda shapes, attrs: None, lambda *a: None, reduction="average")  # type: ignore[arg-type, return-value]


def test_consumers_read_what_is_unwrapped() -> None:
    """A normalization by sharded statistics: mean and standard deviation are read by every part."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(8, 12)).astype(np.float32)
    g = Graph()
    t = g.input("x", x.shape)
    g.output((t - mean(t, 1, keepdims=True)) / std(t, 1, keepdims=True), "out")
    made = plan(g, Mesh((4,)), fix={name: {"i1": 4} for name in g.nodes})
    np.testing.assert_allclose(ran(made, x), (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True), atol=2e-6)
    np.testing.assert_array_equal(evaluate(g, {"x": x})["out"].shape, x.shape)


def test_states_of_integers_are_refused_where_results_are_not_integers() -> None:
    g = Graph()
    with pytest.raises(ValueError, match="operand 0 is int64, but the result is not int64; cast it"):
        var(g.input("x", (4,), "int64"), keepdims=True)
    assert not g.nodes
