"""Digits as sets: the nests and setts of the numbers that progressions and strided forms reach."""

from __future__ import annotations

from collections.abc import Sequence

from tapestry_sets.digits import MAX_COPIES, Progression, Strided, as_interval, interleaved_copies, reach
from tapestry_sets.integers import explicit, tuning, unions
from tapestry_sets.integers import nest as nests
from tapestry_sets.integers.nest import Item, Nest, repeat
from tapestry_sets.integers.sett import DisjointSetts, Sett
from tapestry_sets.limits import TooManyPieces, as_int, current, quote


def nest_of(strided: Strided, extent: int) -> Nest | None:
    """Return the numbers that a strided view without empty axes reads, as a nest that repeats with period `extent`.

    None where copies of a pattern lie within each other, so that one nest does not hold them.

    Examples
    --------
    >>> nest_of((0, (((2, 9),), ((2, 3),), ((2, 1),))), 27)
    ((14, 27, 0), (5, 9, 0), (2, 3, 0))
    """
    offset, axes = strided
    steps: list[tuple[int, int]] = []
    for levels in axes:  # `make_steps_positive` takes 1 us more, of the 11 that two NumPy arrays take in bench_alias
        for count, by in levels:
            if count > 1 and by:
                if by < 0:
                    offset += (count - 1) * by
                    by = -by
                steps.append((by, count))
    steps.sort()
    length = 1
    tail: Nest = ()
    for by, count in steps:
        if by > length and not (tail and by % tail[0][1] == 0):
            tail = ((length, by, 0), *tail)
        elif tail:
            if by < length:
                return None
            tail = repeat(length, by, 0, tail)  # which may be what the tail goes on to do by itself
        length += (count - 1) * by
    return repeat(length, extent, offset, tail)


def explicit_setts(p: Progression, extent: int) -> DisjointSetts:
    """Return the progression as setts of period `extent`, at least its own span.

    Raises
    ------
    TooManyPieces
        If too many copies of a long pattern interleave: to merge them would cost more than any answer is worth.
    """
    first, levels = p
    copies = interleaved_copies(levels)
    if copies > MAX_COPIES and reach(levels) > tuning.LONG_SPAN:
        raise TooManyPieces(
            f"the sums of steps {quote(levels)} interleave {copies} copies of a pattern; "
            "ask overlaps() or isdisjoint(), which need no explicit set"
        )
    return progression_set(first, levels, extent=extent)


def axis_setts(p: Progression, start: int, extent: int) -> tuple[Sett, ...]:
    """Return the progression, clipped to [start, start + extent), as disjoint setts of a box's axis."""
    stop = start + extent
    first, levels = p
    last = first + reach(levels)
    solid = as_interval(p)
    if solid is not None:
        a, b = max(solid[0], start), min(solid[1], stop)
        return (Sett.interval(a, b, extent),) if a < b else ()
    if last < start or first >= stop:
        return ()
    # the period must span both the box and what sticks out of it, else the repetition would show in the box
    return tuple(explicit_setts(p, max(last + 1, stop) - min(first, start)).members)


def progression_set(
    first: int, levels: Sequence[tuple[int, int]], width: int = 1, extent: int | None = None
) -> DisjointSetts:
    """Return {first + sum(j * step) + t : 0 <= j < count for each level, 0 <= t < width}, exactly.

    The set is bounded; the setts returned repeat it with period `extent`, so they hold it in any window of
    `extent` integers that contains it.

    Parameters
    ----------
    first : int
        The element of j = 0, t = 0.
    levels : sequence of (count, step)
        In any order; steps may be negative or 0, counts are >= 0.
    width : int
        The length of each block, >= 0.
    extent : int, optional
        The period, at least the distance from the smallest element to past the largest; by default one more.

    Raises
    ------
    ValueError
        If a count or the width is negative, or `extent` is too short.
    TooManyPieces
        If more than 10,000 pieces are needed.

    Examples
    --------
    >>> progression_set(0, [(8, 2)], width=3, extent=32)  # windows of a convolution overlap
    DisjointSetts([Sett(Stripe(17, 15))])
    >>> progression_set(1, [(4, 10), (2, 3)], extent=64)
    DisjointSetts([Sett(Stripe(34, 30, phase=1), Stripe(4, 6), Stripe(1, 2))])
    >>> progression_set(3, [(4, -1), (4, 1)], extent=16).elements(0, 16).tolist()
    [0, 1, 2, 3, 4, 5, 6]

    References
    ----------
    The image of a box under one row of an index projection, in Tapestry's documents on index projections.
    """
    first, width = as_int(first, "progression_set: first"), as_int(width, "progression_set: width")
    if width < 0:
        raise ValueError(f"progression_set: width must be >= 0, not {width}")
    steps: list[tuple[int, int]] = []
    empty = width == 0
    for at, (n, step) in enumerate(levels):
        if type(n) is not int or type(step) is not int:
            n = as_int(n, f"progression_set: count of level {at}")
            step = as_int(step, f"progression_set: step of level {at}")
        if n < 0:
            raise ValueError(f"progression_set: count of level {at} must be >= 0, not {n}")
        empty = empty or n == 0
        if step < 0:
            first, step = first + (n - 1) * step, -step
        if n > 1 and step:
            steps.append((step, n))
    if empty:
        return DisjointSetts()
    span = width + sum([step * (n - 1) for step, n in steps])
    extent = span + 1 if extent is None else as_int(extent, "progression_set: extent")
    if extent < span:
        raise ValueError(f"progression_set: extent {extent} is shorter than the set, which spans {span}")
    steps.sort()
    items = _sum_of_steps(Item(0, width, ()), steps, span)
    moved = [Item(first + item.start, item.length, item.tail) for item in items]
    return DisjointSetts._of(explicit.from_items(moved, first, first + extent))


def _sum_of_steps(item: Item, steps: list[tuple[int, int]], span: int) -> list[Item]:
    """Return the item moved by every sum of steps; the steps ascend."""
    for at, (step, n) in enumerate(steps):
        _, length, tail = item
        reach = (n - 1) * step
        if step >= length and not (step == length and not tail):
            item = Item(0, reach + length, nests.repeat(length, step, 0, tail))
        elif not tail or _goes_on(length, tail, step):
            item = Item(0, reach + length, tail)
        else:
            return _overlapping(item, steps[at:], span)
    return [item]


def _goes_on(length: int, tail: Nest, step: int) -> bool:
    """Return whether copies of the item at this step only lengthen it."""
    block, distance, _ = tail[0]
    return step % distance == 0 and step <= length - block + distance


def _overlapping(item: Item, steps: list[tuple[int, int]], span: int) -> list[Item]:
    """Return the union of interleaved copies: as a bit mask if short, else copy by copy."""
    if span <= tuning.SUM_SPAN:
        mask = nests.bits(item.tail, 0, item.length)
        for step, n in steps:
            done = 1
            while done < n:
                more = min(done, n - done)
                mask |= mask << (more * step)
                done += more
        return explicit.from_bits(mask)
    copies = [0]
    for step, n in steps:
        many = len(copies) * n
        if many > MAX_COPIES:
            raise TooManyPieces(
                f"progression_set: steps {quote(steps)} put {many} copies of a pattern within each other, more than "
                f"{MAX_COPIES}; overlaps() and isdisjoint() of views and images need no explicit set"
            )
        copies = [at + j * step for at in copies for j in range(n)]
    one = explicit.from_items([item], 0, span)
    union: list[Nest] = []
    for at in sorted(set(copies)):
        union = unions.union(union, [nests.shift(one[0], at)], (0, span))
        if len(union) > current().max_pieces:
            raise TooManyPieces(f"progression_set: more than {current().max_pieces} pieces for steps {quote(steps)}")
    clipped = (nests.clip(s, 0, span) for s in union)
    return [piece for piece in clipped if piece is not None]
