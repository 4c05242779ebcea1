"""One axis of a region: its elements in a window as a nest, and as an interval or a progression where they are one.

What two axes share is found in closed form where both are progressions, as slices are.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from tapestry_sets.integers import EMPTY, Nest, explicit, ranks
from tapestry_sets.integers import nest as nests

Interval = tuple[int, int]
"""The interval ``lo <= z < hi``."""
EvenSteps = tuple[int, int, int]
"""Elements at equal distances: (first, last, step)."""
VIEWS = "views (allocate(shape)[...].reshape(...)[...]) hold it unlisted"

AxisForm = tuple[Nest, Interval | None, EvenSteps | None]
"""The elements of an axis: a nest, and the interval and the progression that they are, if any."""


@lru_cache(maxsize=1 << 16)
def interval(span: Interval, extent: int) -> Nest:
    """Return the normal form of an interval in a window of this extent that holds it."""
    lo, hi = span
    return ((hi - lo, extent, lo % extent),) if hi - lo < extent else ()


@lru_cache(maxsize=1 << 14)
def normal(s: Nest, lo: int, hi: int) -> AxisForm:
    """Return the normal form of a nest in a window, and the interval and progression that it is there, if any."""
    item = nests.clip(s, lo, hi)
    if item is None:
        return EMPTY, (lo, lo), None
    inside, first, last = nests.in_window(s, lo, hi), item.start, item.start + item.length - 1
    if not item.tail:
        return inside, (first, last + 1), (first, last, 1)
    if nests.count(item.tail, 0, item.length) == item.length:  # blocks that touch where the pattern restarts
        return interval((first, last + 1), hi - lo), (first, last + 1), (first, last, 1)
    (on, period, _), *deeper = item.tail
    return inside, None, ((first, last, period) if on == 1 and not deeper else None)


def common_progression(p: EvenSteps, q: EvenSteps) -> EvenSteps | None:
    """Return the common elements of two progressions, by the Chinese remainder theorem."""
    # p: 0 by 4   x . . . x . . . x . . . x . . . x . . . x
    # q: 2 by 6   . . x . . . . . x . . . . . x . . . . . x
    # common      . . . . . . . . z . . . . . . . . . . . x      from z on by lcm(4, 6) = 12
    #
    # z = a + c·k is in q where c·k = d - a modulo f: with g = gcd(c, f), k = (d - a)/g · (c/g)⁻¹ modulo f/g. Equal
    # steps and steps of 1, which are most of all, need no inverse and come first.
    (a, b, c), (d, e, f) = p, q
    first = a if a > d else d
    last = b if b < e else e
    step = c
    if c == f:
        if (a - d) % c:
            return None
    elif c == 1:
        first += (d - first) % f
        step = f
    elif f == 1:
        first += (a - first) % c
    else:
        g = gcd(c, f)
        if (d - a) % g:
            return None
        step = c // g * f
        z = a + c * ((d - a) // g * pow(c // g, -1, f // g) % (f // g))
        first += (z - first) % step
    return (first, last, step) if first <= last else None


def nest_of_steps(p: EvenSteps, extent: int) -> Nest:
    """Return the elements of a progression in a window of this extent that holds them."""
    first, last, step = p
    return nests.repeat(last - first + 1, extent, first, ((1, step, 0),) if first < last and step > 1 else ())


@lru_cache(maxsize=1 << 12)
def _meet_cached(x: Nest, y: Nest, lo: int, hi: int) -> tuple[Nest, ...]:
    return tuple(explicit.meet_within(x, y, lo, hi))


def meet_axis(x: Nest, y: Nest, lo: int, hi: int) -> list[Nest]:
    """Return the common elements in a window as nests that are right there."""
    if not x or x == y:
        return [y]
    if not y:
        return [x]
    return list(_meet_cached(x, y, lo, hi))


def sample_axis(s: Nest, at: Nest, lo: int, hi: int, many: int) -> list[Nest]:
    """Return the numbers, counted from the window's first, of the `many` elements of `at` in it that are in s."""
    return ranks.sample_within([s], [at], lo, hi, 0, many, VIEWS)


def fill_axis(at: Nest, ink: Nest, lo: int, hi: int) -> list[Nest]:
    """Return the elements of `at` in a window whose numbers, counted from the window's first, are in the ink."""
    return ranks.fill_within([at], 0, [ink], lo, hi, VIEWS)
