"""Every small axis of levels: what is cut, joined or renumbered reads what a list of the same numbers reads."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest

from tapestry_sets.digits.digits import Levels
from tapestry_sets.digits.strided import at_index, contiguous, cut_axis, flip_axis, join_runs, renumber


def numbers(levels: Levels, offset: int = 0) -> list[int]:
    """What an axis reads, digit by digit."""
    found = [offset]
    for n, by in levels:
        found = [z + digit * by for z in found for digit in range(n)]
    return found


AXES: list[Levels] = [
    ((7, 3),),
    ((3, 100), (4, 1)),
    ((2, 7), (6, -50)),
    ((3, 1000), (2, 100), (4, 1)),
    ((1, 0), (6, 5)),
]


@pytest.mark.parametrize("levels", AXES)
def test_every_cut_of_a_small_axis(levels: Levels) -> None:
    """A cut is found where it stays within a row, or takes the same of rows that follow each other."""
    whole = numbers(levels)
    width = prod(n for n, _ in levels[1:]) if len(levels) > 1 else len(whole)
    for start, step in product(range(len(whole)), (1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -6)):
        for count in range(1, len(whole) + 1):
            at = [start + k * step for k in range(count)]
            if not 0 <= at[-1] < len(whole):
                break
            found = cut_axis(levels, start, count, step)
            if found is not None:
                assert numbers(found[1], found[0]) == [whole[i] for i in at]
            rows = {i // width for i in at}
            each = {row: sorted(i % width for i in at if i // width == row) for row in rows}
            filled = width % abs(step) == 0 and all(len(it) == width // abs(step) for it in each.values())
            if len(levels) <= 2 and (len(rows) == 1 or filled):
                assert found is not None
            if len(levels) == 2 and not filled and len(rows) > 1:
                assert found is None


@pytest.mark.parametrize("levels", AXES)
def test_every_index_and_the_other_end_of_a_small_axis(levels: Levels) -> None:
    whole = numbers(levels)
    assert [at_index(levels, i) for i in range(len(whole))] == whole
    offset, turned = flip_axis(levels)
    assert numbers(turned, offset) == whole[::-1]


@pytest.mark.parametrize("counts", list(product((1, 2, 3, 4), (1, 2, 3), (1, 2, 5))))
def test_runs_of_levels_are_joined_to_levels(counts: tuple[int, ...]) -> None:
    for steps in ((1000, 100, 1), (1000, 100, -7), (-1000, 10, 2), (50, 10, 2), (6, 3, 1), (15, 5, 1)):
        levels = tuple(zip(counts, steps, strict=True))
        starts = numbers(levels[:2])
        for runs in ([(at, *levels[2]) for at in starts], [(z, 1, 0) for z in numbers(levels[1:])]):
            found = join_runs(runs)
            whole = [at + k * by for at, n, by in runs for k in range(n)]
            if found is not None:
                assert numbers(found, runs[0][0]) == whole
            if runs[0][1] > 1:
                assert found is not None
            if counts[2] == 1 and counts[0] == 1:
                assert found == ((len(whole), levels[1][1] if len(whole) > 1 else found[0][1]),)


def test_runs_that_are_no_levels_are_left() -> None:
    for runs in (
        [(0, 2, 1), (10, 3, 1)],
        [(0, 2, 1), (10, 2, 2)],
        [(0, 2, 1), (10, 2, 1), (25, 2, 1)],
        [(0, 6, 1), (20, 2, 1)],
        [(0, 1, 0), (5, 1, 0), (6, 1, 0)],
        [(0, 2, 1), (10, 5, 1), (30, 4, 1)],
    ):
        assert join_runs(runs) is None
    # 0 1 . 3 4 5 6 . 8 9: two blocks of two that touch are one run
    for runs in ([(0, 2, 1), (3, 4, 1), (8, 2, 1)], [(0, 2, 1), (3, 2, 1), (5, 2, 1), (8, 2, 1)]):
        assert join_runs(runs) == ((2, 5), (2, 3), (2, 1))
        for by in (2, -3):
            assert join_runs([(7 + at * by, n, by) for at, n, _ in runs]) == ((2, 5 * by), (2, 3 * by), (2, by))
    assert join_runs([(0, 2, 1), (5, 4, 1), (9, 2, 1)]) is None


def factorings(n: int, depth: int) -> list[tuple[int, ...]]:
    if not depth:
        return [()] if n == 1 else []
    return [(k, *rest) for k in range(1, n + 1) if n % k == 0 for rest in factorings(n // k, depth - 1)]


@pytest.mark.parametrize("size", [1, 4, 12, 30])
def test_every_reshape_of_contiguous_memory_is_found(size: int) -> None:
    shapes = [shape for depth in range(4) for shape in factorings(size, depth)]
    whole = np.arange(size)
    for old, new in product(shapes, shapes):
        found = renumber(contiguous(old)[1], new)
        assert found is not None
        cells = [sum(at) for at in product(*map(numbers, found))]
        assert cells == whole.tolist()
        assert [len(numbers(levels)) for levels in found] == list(new)


def test_every_reshape_of_small_axes_is_that_of_numpy() -> None:
    for axes in ((((4, 10),), ((6, 1),)), (((2, 100), (3, 20)), ((4, 1),)), (((4, -6),), ((3, 2), (2, 1)))):
        whole = np.array([sum(at) for at in product(*map(numbers, axes))])
        outer, inner = (prod(n for n, _ in levels) for levels in axes)
        for depth in (1, 2, 3):
            for new in factorings(whole.size, depth):
                found = renumber(axes, new)
                if found is not None:
                    assert [sum(at) for at in product(*map(numbers, found))] == whole.tolist()
                if new in ((outer, inner), (outer * inner,), (1, outer, inner), (outer, 1, inner)):
                    assert found is not None
