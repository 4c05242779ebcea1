"""Layouts that neighbors ask for: what views ask, by listed cells; nothing moves where blocks lie with blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise, product
from math import prod
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_exec import run
from tapestry_plan import Device, Graph, Link, Mesh, Tensor, plan
from tapestry_plan.ops import cos, exp, log, relu, sin, tanh
from tapestry_plan.search.prices.added import derived
from tapestry_sets import concatenate, roll

WORK = {"device": Device(1e9, 1e30), "link": Link(1e-6, 1e9)}
"""A mesh on which work is divided first."""
MESH = Mesh((4,), **WORK)  # type: ignore[arg-type]
View = Callable[[Tensor], Tensor]


def planned(view: View, shape: tuple[int, ...]) -> tuple[Graph, list[str]]:
    g = Graph()
    g.output(tanh(view(exp(g.input("x", shape), name="e")), name="t"), "y")
    return g, ["e", "t"]


@pytest.mark.parametrize(
    ("view", "blocks"),
    [
        (lambda e: e[::-1], [3, 2, 1, 0]),
        (lambda e: roll(e, e.shape[0] // 2), [2, 3, 0, 1]),
        (lambda e: roll(e, e.shape[0] // 4), [3, 0, 1, 2]),
        (lambda e: concatenate([e[e.shape[0] // 2 :], e[: e.shape[0] // 2]]), [2, 3, 0, 1]),
    ],
)
@pytest.mark.parametrize("n", [32, 4 * 10**9])
def test_views_that_permute_blocks_move_nothing(view: View, blocks: list[int], n: int) -> None:
    g, names = planned(view, (n,))
    p = plan(g, MESH)
    assert p.nbytes_moved == 0 and p.gap == 0
    assert all(len(p.placement[name]) == 4 for name in names)
    e, t = ([p.placement[name][d][0].start[0] * 4 // n for d in range(4)] for name in names)
    assert e == [blocks[block] for block in t]
    if n < 100:
        x = np.random.default_rng(0).random(n, np.float32)
        e_read = np.exp(x).reshape(4, n // 4)[blocks]  # reversed rows are reversed within blocks too
        wanted = np.tanh(e_read[:, ::-1] if blocks == [3, 2, 1, 0] else e_read)
        found = run(p, {"x": x})
        assert np.allclose(found.outputs["y"], wanted.ravel(), atol=1e-6) and found.nbytes_moved == 0


def test_layouts_are_carried_along_chains_and_through_what_is_read_twice() -> None:
    g = Graph()
    e = log(exp(g.input("x", (64, 3))))
    g.output(relu(cos(e[::-1]) + sin(e)[::-1]), "y")
    p = plan(g, MESH)
    assert p.nbytes_moved == 0 and p.gap == 0
    assert {len(places) for places in p.placement.values()} == {4}
    x = np.random.default_rng(0).random((64, 3), np.float32)
    assert np.allclose(run(p, {"x": x}).outputs["y"], np.maximum(np.cos(x[::-1]) + np.sin(x[::-1]), 0), atol=1e-6)


def test_halves_of_a_tensor_are_read_on_halves_of_the_mesh() -> None:
    g = Graph()
    e = exp(g.input("x", (32,)), name="e")
    g.output(tanh(e[:16], name="low"), "a")
    g.output(sin(e[16:], name="high"), "b")
    p = plan(g, MESH, fix={"e": {"i0": 4}})
    assert p.nbytes_moved == 0
    assert sorted(p.placement["low"]) == [0, 1] and sorted(p.placement["high"]) == [2, 3]


def test_fixed_operators_ask_others_and_are_not_asked() -> None:
    g, _ = planned(lambda e: e[::-1], (32,))
    both = plan(g, MESH, fix={"e": {"i0": 4}, "t": {"i0": 4}})
    assert both.nbytes_moved == 4 * 32
    one = plan(g, MESH, fix={"e": {"i0": 4}})
    assert one.nbytes_moved == 0 and [box.start for (box,) in one.placement["e"].values()] == [(0,), (8,), (16,), (24,)]


def test_a_layout_asked_for_an_input_is_carried_on() -> None:
    g = Graph()
    g.output(tanh(g.input("x", (4, 6))[::-1], name="t"), "y")
    p = plan(g, MESH, layout={"x": {0: 4}})
    assert p.nbytes_moved == 0 and len(p.placement["t"]) == 4


# ------------------------------------------------------------------------------------ by listed cells


def even(n: int, k: int) -> list[range]:
    """The k parts of n positions, as even as possible, larger ones first."""
    ends = [sum(n // k + (i < n % k) for i in range(at)) for at in range(k + 1)]
    return [range(a, b) for a, b in pairwise(ends)]


def every_cut(cells: np.ndarray, parts: int) -> Iterator[set[frozenset[int]]]:
    """The blocks of cells of each cut of an array into so many parts."""
    for each in product(range(1, parts + 1), repeat=cells.ndim):
        if prod(each) == parts and all(k <= n for k, n in zip(each, cells.shape, strict=True)):
            cuts = [even(n, k) for n, k in zip(cells.shape, each, strict=True)]
            yield {frozenset(cells[np.ix_(*block)].ravel().tolist()) for block in product(*cuts)}


@st.composite
def permuted(draw: st.DrawFn) -> tuple[list[tuple[str, tuple[int, ...]]], tuple[int, ...]]:
    """Bijective views, one after the other, and the shape that they begin with."""
    shape = draw(st.sampled_from([(8,), (16,), (4, 4), (4, 6), (2, 4, 2), (12,)]))
    steps, now = [], shape
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["flip", "roll", "transpose", "reshape", "swap"]))
        axis = draw(st.integers(0, len(now) - 1))
        if kind == "transpose":
            steps.append((kind, tuple(draw(st.permutations(range(len(now)))))))
            now = tuple(now[k] for k in steps[-1][1])
        elif kind == "reshape":
            size = prod(now)
            rows = draw(st.sampled_from([k for k in range(1, size + 1) if size % k == 0]))
            now = draw(st.sampled_from([(size,), (rows, size // rows)]))
            steps.append((kind, now))
        else:
            steps.append((kind, (axis, draw(st.integers(0, now[axis] - 1)))))
    return steps, shape


def seen(x: Tensor, steps: list[tuple[str, tuple[int, ...]]]) -> Tensor:
    for kind, at in steps:
        if kind == "transpose":
            x = x.permute_dims(at)
        elif kind == "reshape":
            x = x.reshape(at)
        elif kind == "flip":
            x = x.flip(at[0])
        elif kind == "roll":
            x = roll(x, at[1], axis=at[0])
        else:
            here: list[slice] = [slice(None)] * at[0]
            x = concatenate([x[(*here, slice(at[1], None))], x[(*here, slice(0, at[1]))]], axis=at[0])
    return x


def seen_by_numpy(x: np.ndarray, steps: list[tuple[str, tuple[int, ...]]]) -> np.ndarray:
    for kind, at in steps:
        if kind == "transpose":
            x = x.transpose(at)
        elif kind == "reshape":
            x = x.reshape(at)
        elif kind == "flip":
            x = np.flip(x, at[0])
        elif kind == "roll":
            x = np.roll(x, at[1], at[0])
        else:
            x = np.roll(x, -at[1], at[0])
    return x


@pytest.mark.heavy(2)
@given(permuted())
@example(([("flip", (0, 0))], (8,)))
@example(([("reshape", (4, 4)), ("transpose", (1, 0)), ("flip", (0, 0))], (16,)))
def test_nothing_moves_where_blocks_lie_with_blocks(
    drawn: tuple[list[tuple[str, tuple[int, ...]]], tuple[int, ...]],
) -> None:
    """Where some cut of the one operator has the blocks of some cut of the other, by listed cells, nothing moves."""
    steps, shape = drawn
    made = np.arange(prod(shape)).reshape(shape)
    read = seen_by_numpy(made, steps)
    p = plan(planned(lambda e: seen(e, steps), shape)[0], MESH)
    theirs = list(every_cut(read, 4))
    if any(blocks in theirs for blocks in every_cut(made, 4)) and prod(shape) % 4 == 0:
        assert p.nbytes_moved == 0 and all(len(places) == 4 for places in p.placement.values())
    x = np.random.default_rng(0).random(shape, np.float32)
    found = run(p, {"x": x})
    assert np.allclose(found.outputs["y"], np.tanh(seen_by_numpy(np.exp(x), steps)), atol=1e-6)
    assert found.nbytes_moved == p.nbytes_moved


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4), st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data()
)
def test_parts_lie_with_each_other_where_each_has_one_partner(
    makers: list[int], readers: list[int], data: st.DataObject
) -> None:
    """Of a maker and a reader with cuts of so many parts, pair by pair of cuts, and all of one end at once."""
    ends = []
    for counts in (makers, readers):
        cuts = derived.Cuts(cast(Any, None), 0)
        for k, count in enumerate(counts):
            cuts.first[(), (k,), ()] = len(cuts.places)
            cuts.places += [(0, 0)] * count
        ends.append(cuts)
    maker, reader = ends
    few = st.sampled_from([False, False, True])
    row = st.lists(few, min_size=sum(readers), max_size=sum(readers))
    fits = np.array(data.draw(st.lists(row, min_size=sum(makers), max_size=sum(makers))))
    edge = derived.Edge(*cast(Any, (None, None, None, None)), maker, reader)
    edge.__dict__["fits"] = fits
    for one, other in product(maker.first, reader.first):
        holds = fits[maker.span(one), reader.span(other)].tolist()
        by_reader = [[k for k, line in enumerate(holds) if line[j]] for j in range(len(holds[0]))]
        by_maker = [[j for j, is_held in enumerate(line) if is_held] for line in holds]
        pairs = all(len(each) == 1 for each in by_reader) and all(len(each) <= 1 for each in by_maker)
        down = dict(edge.list_partners(True, one)).get(other)
        up = dict(edge.list_partners(False, other)).get(one)
        assert down == ([each[0] if each else None for each in by_maker] if pairs else None)
        assert up == ([each[0] for each in by_reader] if pairs and len(holds) <= len(by_reader) else None)
    assert edge.list_partners(True, ((), (9,), ())) == []
