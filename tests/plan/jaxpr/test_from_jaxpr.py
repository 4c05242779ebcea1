"""Functions that JAX traced, as graphs: the values that JAX has, on one device and on several."""

from __future__ import annotations

from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_exec import evaluate, run
from tapestry_plan import Graph, Mesh, UnsupportedOp, from_jaxpr, plan
from tapestry_plan.jaxpr import PRIMITIVES, tuning
from tests.traced_functions import Array, Variable, arguments, as_array, functions, read, record, recorded

RECORDED = recorded()


def compare(graph: Graph, feeds: dict[str, Array], wanted: list[Array]) -> None:
    values = evaluate(graph, feeds)
    for k, array in enumerate(wanted):
        made = values[f"y{k}"]
        assert (made.dtype, made.shape) == (array.dtype, array.shape)
        np.testing.assert_allclose(made, array, rtol=2e-4, atol=2e-5 * max(1.0, float(np.abs(array).max())))


@pytest.mark.heavy
@pytest.mark.parametrize("name", RECORDED)
def test_a_traced_function_has_the_values_of_jax(name: str) -> None:
    one = RECORDED[name]
    traced = SimpleNamespace(jaxpr=read(one["jaxpr"]), consts=[as_array(const) for const in one["consts"]])
    feeds = arguments({word: tuple(shape) for word, shape in one["shapes"].items()})
    graph = from_jaxpr(traced, list(feeds))
    compare(graph, feeds, [as_array(result) for result in one["results"]])
    p = plan(graph, Mesh(2))
    assert run(p, feeds, verify=True).outputs.keys() == graph.outputs.keys()


def test_the_record_has_every_function_and_most_primitives() -> None:
    told = {eqn["primitive"] for one in RECORDED.values() for eqn in list_equations(one["jaxpr"])}
    assert len(RECORDED) >= 17 and len(told & PRIMITIVES.keys()) >= 50
    assert "scan" in told


def list_equations(data: Any) -> list[dict[str, Any]]:
    found = []
    for eqn in data["eqns"]:
        found.append(eqn)
        for value in eqn["params"].values():
            inside = value if isinstance(value, dict) else {}
            for key in ("closed", "open"):
                found += list_equations(inside[key]) if key in inside else []
    return found


def test_jax_itself_gives_the_same() -> None:
    """With JAX installed: its own jaxprs, and records that are of today's version."""
    jax = pytest.importorskip("jax", reason="JAX is not installed; `.ci/run --all` runs this where it is")
    for name, (f, shapes) in functions().items():
        feeds = arguments(shapes)
        graph = from_jaxpr(jax.make_jaxpr(f)(*feeds.values()), list(feeds), name)
        compare(graph, feeds, [np.asarray(one) for one in jax.tree.leaves(jax.jit(f)(*feeds.values()))])
    assert record().keys() == RECORDED.keys()


def one_equation(primitive: str, operands: list[Array], shape: tuple[int, ...], dtype: str, **params: Any) -> Any:
    """A traced function of one equation."""
    given = [Variable(x.shape, x.dtype.name) for x in operands]
    made = Variable(shape, dtype)
    eqn = SimpleNamespace(primitive=SimpleNamespace(name=primitive), params=params, invars=list(given), outvars=[made])
    inner = SimpleNamespace(constvars=[], invars=given, eqns=[eqn], outvars=[made])
    return SimpleNamespace(jaxpr=inner, consts=[])


@given(st.lists(st.integers(1, 3), max_size=2), *[st.lists(st.integers(1, 4), max_size=2)] * 3, st.randoms())
def test_products_along_any_axes(
    along: list[int], summed: list[int], own_a: list[int], own_b: list[int], rng: Any
) -> None:
    """``dot_general`` of axes in any order, against NumPy's einsum."""
    letters = "abcdefgh"
    named = dict(zip(letters, [*along, *summed, *own_a, *own_b], strict=False))
    parts = [len(along), len(summed), len(own_a), len(own_b)]
    begins = np.cumsum([0, *parts])
    words = [letters[begins[k] : begins[k + 1]] for k in range(4)]
    of_a, of_b = ("".join(rng.sample(words[0] + words[1] + own, k=len(words[0] + words[1] + own))) for own in words[2:])
    values = np.random.default_rng(rng.randrange(100))
    x, y = (values.standard_normal([named[c] for c in word]).astype(np.float64) for word in (of_a, of_b))
    out = words[0] + "".join(c for c in of_a if c in words[2]) + "".join(c for c in of_b if c in words[3])
    numbers = tuple(tuple(tuple(of.index(c) for c in word) for of in (of_a, of_b)) for word in (words[1], words[0]))
    shape = tuple(named[c] for c in out)
    g = from_jaxpr(one_equation("dot_general", [x, y], shape, "float64", dimension_numbers=numbers))
    made = evaluate(g, {"x0": x, "x1": y})["y0"]
    np.testing.assert_allclose(made, np.einsum(f"{of_a},{of_b}->{out}", x, y), atol=1e-12)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 2), st.lists(st.integers(1, 3), max_size=2))
def test_whole_slices_at_indices(sizes: list[int], axis: int, many: list[int]) -> None:
    """``gather`` as ``numpy.take`` has it."""
    axis %= len(sizes)
    table = np.arange(prod(sizes), dtype=np.float32).reshape(sizes)
    at = np.random.default_rng(prod(many)).integers(0, sizes[axis], (*many, 1)).astype(np.int32)
    wanted = np.take(table, at[..., 0], axis=axis)
    numbers = SimpleNamespace(
        offset_dims=tuple(k for k in range(wanted.ndim) if not axis <= k < axis + len(many)),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    slices = tuple(1 if k == axis else n for k, n in enumerate(sizes))
    traced = one_equation("gather", [table, at], wanted.shape, "float32", dimension_numbers=numbers, slice_sizes=slices)
    assert np.array_equal(evaluate(from_jaxpr(traced), {"x0": table, "x1": at})["y0"], wanted)


X = np.ones((4, 6), np.float32)
WRONG: dict[str, tuple[Any, str]] = {
    "a loop": (one_equation("while", [X], (4, 6), "float32", cond_jaxpr=None), "there is no operator for 'while'"),
    "a name": (one_equation("dot_genral", [X], (4, 6), "float32"), "dot_general"),
    "spread apart": (
        one_equation("pad", [X, X[0, 0]], (9, 6), "float32", padding_config=((0, 0, 1), (0, 0, 0))),
        "spread apart",
    ),
    "values": (one_equation("select_n", [X, X, X, X], (4, 6), "float32"), "chooses among 3 by float32"),
    "bits": (one_equation("reduce_precision", [X], (4, 6), "float32"), "there is no operator for 'reduce_precision'"),
    "windows": (
        one_equation(
            "gather",
            [X, np.zeros((2, 2), np.int32)],
            (2, 2),
            "float32",
            dimension_numbers=SimpleNamespace(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0, 1)),
            slice_sizes=(1, 2),
        ),
        "gathers windows",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_no_operator_does_is_refused_by_equation(name: str) -> None:
    traced, words = WRONG[name]
    with pytest.raises(UnsupportedOp, match=r"^equation 1 \(") as error:
        from_jaxpr(traced)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(TypeError, match=r"jaxpr is a function; trace a function, as jax\.make_jaxpr"):
        from_jaxpr(lambda x: x)
    traced = one_equation("neg", [X], (4, 6), "float32")
    with pytest.raises(ValueError, match="names has 2; the inputs are 1"):
        from_jaxpr(traced, ["x", "y"])


def test_a_loop_of_too_many_rounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one = RECORDED["recurrent"]
    traced = SimpleNamespace(jaxpr=read(one["jaxpr"]), consts=[])
    monkeypatch.setattr(tuning, "MAX_EQUATIONS", 10)
    with pytest.raises(UnsupportedOp, match="more than 10 equations; trace fewer rounds"):
        from_jaxpr(traced)


def test_a_loop_without_rounds_is_refused() -> None:
    scan = one_equation("scan", [X], (4, 6), "float32", length=0, num_consts=0, num_carry=1, reverse=False, jaxpr=None)
    with pytest.raises(UnsupportedOp, match=r"^equation 1 \(scan\): it has no rounds; "):
        from_jaxpr(scan)
