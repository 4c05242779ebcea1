"""Iterators as shapes and collections as names: taken as they mean, or refused with what to give instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapestry_plan import Graph, Mesh, ops, plan
from tapestry_sets import AliasGraph, allocate, symbolic_allocate

A = allocate((4, 6), name="A")

SHAPES: dict[str, Callable[[Any], Any]] = {
    "allocate": lambda shape: allocate(shape).shape,
    "symbolic_allocate": lambda shape: symbolic_allocate(shape).shape,
    "AliasGraph.allocate": lambda shape: AliasGraph().allocate(shape).shape,
    "View.reshape": lambda shape: A.reshape(shape).shape,
    "Tensor.reshape": lambda shape: Graph().input("x", (4, 6)).reshape(shape).shape,
}


@pytest.mark.parametrize("name", list(SHAPES))
def test_an_iterator_is_a_shape_once(name: str) -> None:
    ask = SHAPES[name]
    assert ask(iter((6, 4))) == ask(map(int, "64")) == ask(n for n in (6, 4)) == ask((6, 4)) == (6, 4)
    with pytest.raises(TypeError, match=r"(shape|extent)\S* must be an? (integer|sequence)"):
        ask({6: 0, 4: 0})
    with pytest.raises(TypeError, match=r"(shape|extent).* must be an integer.* '6'"):
        ask(iter("64"))


def test_an_iterator_is_a_row_of_axes() -> None:
    assert A.transpose(iter((1, 0))).shape == A.transpose(axis for axis in (1, 0)).shape == (6, 4)


@pytest.mark.parametrize("make", [iter, lambda shape: map(int, shape), set])
def test_where_an_iterator_is_no_shape_it_is_named_with_the_mend(make: Any) -> None:
    for what, ask in {"Graph.input: shape": lambda s: Graph().input("x", s), "Mesh: shape": Mesh}.items():
        with pytest.raises(TypeError, match=rf"{what} must be .*sequence of integers.*, not") as caught:
            ask(make((2, 3)))
        assert ("make it a tuple" in str(caught.value)) == (make is not set)


def softmax() -> Graph:
    g = Graph()
    g.output(ops.softmax(g.input("x", (64, 4096)), axis=1), "y")
    return g


@pytest.mark.parametrize(
    "names", [{"exp_sum"}, frozenset({"exp_sum"}), {"exp_sum": 1}.keys(), np.array(["exp_sum"]), ("exp_sum",)]
)
def test_expansions_may_be_any_collection_of_names(names: Any) -> None:
    wanted = plan(softmax(), Mesh((2,)), expand=["exp_sum"])
    assert plan(softmax(), Mesh((2,)), expand=names).to_json() == wanted.to_json()
    assert wanted.to_json() != plan(softmax(), Mesh((2,)), expand=False).to_json()


@pytest.mark.parametrize("empty", [set(), frozenset(), [], (), {}.keys()])
def test_no_names_are_no_expansions(empty: Any) -> None:
    assert plan(softmax(), Mesh((2,)), expand=empty).to_json() == plan(softmax(), Mesh((2,)), expand=False).to_json()


@pytest.mark.parametrize("wrong", ["exp_sum", {"exp_sum": 1}, iter(["exp_sum"]), [1], {None}, 3])
def test_what_names_no_expansions_is_refused_with_the_mend(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"plan: expand.* give True, False, or names of expansions as \['exp_sum'\]"):
        plan(softmax(), Mesh((2,)), expand=wrong)
