"""Arenas that are filled as steps are written, against a list of what is taken."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_plan.steps.arenas.first_fit import Arena


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 9)), max_size=40))
@example([(64, 9), (64, 9), (64, 9), (1, 0), (1, 0), (128, 9)])
@example([(64, 9), (64, 9), (64, 9), (64, 1), (64, 9), (64, 0), (64, 0), (192, 9)])
def test_each_buffer_takes_the_lowest_place_that_is_large_enough(words: list[tuple[int, int]]) -> None:
    """A word takes so many bytes, where the second number is large, or gives back the place of that number."""
    arena, taken, peak = Arena(), list[tuple[int, int, int]](), 0
    for nbytes, at in words:
        if at < 5 and taken:
            low, _, given_back = taken.pop(at % len(taken))
            arena.give(low, given_back)
        else:
            size = -(-nbytes // 64) * 64
            ends = [0, *(high for _, high, _ in taken)]
            lowest = min(a for a in ends if all(a + size <= low or high <= a for low, high, _ in taken if low < high))
            assert arena.take(nbytes) == lowest
            taken.append((lowest, lowest + size, nbytes))
            peak = max(peak, lowest + size)
        assert arena.peak == peak
        free = list(zip(arena.starts, arena.stops, strict=True))
        assert all(a < b for a, b in free) and all(one[1] < two[0] for one, two in pairwise(free))
        inside = sorted((low, high) for low, high, _ in taken if low < high)
        gaps, end = [], 0
        for low, high in inside:
            gaps += [(end, low)] if end < low else []
            end = high
        assert free == [*gaps, (end, float("inf"))]


def test_what_is_empty_takes_no_place() -> None:
    arena = Arena()
    assert (arena.take(0), arena.take(64), arena.take(0)) == (0, 0, 64)
    arena.give(0, 0)
    assert (arena.starts, arena.stops, arena.peak) == ([64], [float("inf")], 64)
