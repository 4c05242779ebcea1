"""Progressions: sums of arithmetic steps, the one-dimensional images of boxes under affine maps.

A progression is a pair of plain tuples, so that images cost the same at every size and little at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import gcd, prod

from tapestry_sets.integers import DisjointSetts, Item, Nest, Sett, explicit, unions
from tapestry_sets.integers import nest as nests
from tapestry_sets.limits import TooManyPieces, as_int, current

Levels = tuple[tuple[int, int], ...]
Progression = tuple[int, Levels]
"""(first, ((count, step), …)): the set {first + Σ j_k·step_k : 0 <= j_k < count_k}, see `progression`."""
Grid = tuple[Progression, ...]
"""A product of progressions, one for each axis."""

MAX_GRIDS = 10_000
"""How many grids an explicit answer may have before `TooManyPieces` is raised."""
COUNT_LIMIT = 2_000_000
"""How many elements may be counted one by one, where nothing better answers."""
LONG_SPAN = 1 << 22
"""Interleaved progressions up to this span are merged explicitly, whatever their copies."""
MAX_COPIES = 64
"""How many interleaved copies of a longer progression are merged explicitly; isl takes over beyond."""


def progression(first: int, levels: Iterable[tuple[int, int]]) -> Progression:
    """Return the canonical form of {first + Σ j_k·step_k : 0 <= j_k < count_k}; all counts >= 1.

    Steps become positive and descend, levels of one element go, and two levels whose sum has no gaps become
    one. The value is a set: an element that several j reach counts once.

    Examples
    --------
    >>> progression(0, [(4, 2), (3, 1)])
    (0, ((9, 1),))
    >>> progression(0, [(1, 5), (4, -3)])
    (-9, ((4, 3),))
    """
    todo = []
    for count, step in levels:
        if count > 1 and step:
            if step < 0:
                first += (count - 1) * step
                step = -step
            todo.append((step, count))
    if len(todo) < 2:
        return first, ((todo[0][1], todo[0][0]),) if todo else ()
    todo.sort()
    merged = [todo[0]]
    for step, count in todo[1:]:
        inner, n = merged[-1]
        if step % inner == 0 and step <= n * inner:  # the copies of the inner run touch or overlap
            merged[-1] = (inner, n + (count - 1) * (step // inner))
        else:
            merged.append((step, count))
    return first, tuple((count, step) for step, count in reversed(merged))


def reach(levels: Levels) -> int:
    """Return the distance from the first element to the last."""
    return sum((count - 1) * step for count, step in levels)


def interleaved_copies(levels: Levels) -> int:
    """Return how many copies of an inner pattern lie within each other, 1 where levels do not interleave.

    Examples
    --------
    >>> interleaved_copies(((4, 10), (3, 2))), interleaved_copies(((4, 3), (3, 2)))
    (1, 4)
    """
    length = 1
    for at in range(len(levels) - 1, -1, -1):
        count, step = levels[at]
        if step < length:
            return prod(n for n, _ in levels[: at + 1])
        length += (count - 1) * step
    return 1


def separated(p: Progression) -> list[Progression]:
    """Return progressions of the same elements whose copies do not lie within each other, as far as few of them do.

    Two steps s and d, of n and k elements, make copies within each other, as windows with a step and a dilation do.
    The copies j and j + s/g of n elements each, with g = gcd(s, d), go on in steps of s and touch if n >= d/g: so
    min(k, s/g) runs of step s hold the same elements, none twice.

    Examples
    --------
    >>> separated((0, ((10**9, 3), (5, 2))))
    [(0, ((1500000002, 2),)), (3, ((1500000002, 2),))]
    >>> separated((0, ((4, 10), (3, 2))))
    [(0, ((4, 10), (3, 2)))]
    """
    todo, done = [p], []
    while todo:
        one = todo.pop()
        parts = _separated_once(one)
        if parts is None:
            done.append(one)
        else:
            todo += parts[::-1]
        if len(todo) + len(done) > MAX_COPIES:
            return [p]
    return done


def _separated_once(p: Progression) -> list[Progression] | None:
    first, levels = p
    length = 1
    for at in range(len(levels) - 1, -1, -1):
        count, step = levels[at]
        if step < length:
            rest = (*levels[:at], *levels[at + 2 :])
            pair = levels[at : at + 2]
            runs = _runs_of_pair(*pair) or _runs_of_pair(*pair[::-1])
            return None if runs is None else [progression(first + start, (*rest, run)) for start, run in runs]
        length += (count - 1) * step
    return None


def _runs_of_pair(copies: tuple[int, int], run: tuple[int, int]) -> list[tuple[int, tuple[int, int]]] | None:
    """(start, (count, step)) of disjoint runs that copies of a run make up, None if many or they do not touch."""
    (k, d), (n, s) = copies, run
    g = gcd(s, d)
    classes = min(k, s // g)
    if n < d // g or classes > MAX_COPIES:
        return None
    return [(d * j, (n + d // g * ((k - 1 - j) // (s // g)), s)) for j in range(classes)]


def as_interval(p: Progression) -> tuple[int, int] | None:
    """Return (start, stop) if the progression is solid, else None."""
    first, levels = p
    if not levels:
        return first, first + 1
    if len(levels) == 1 and levels[0][1] == 1:
        return first, first + levels[0][0]
    return None


def interval(start: int, stop: int) -> Progression:
    """Return the solid progression [start, stop), which must not be empty."""
    return start, (((stop - start, 1),) if stop - start > 1 else ())


def combine(offset: int, terms: Sequence[tuple[int, Progression]], width: int = 1) -> Progression:
    """Return offset + Σ coefficient·progression + [0, width).

    Examples
    --------
    >>> combine(-1, [(2, interval(0, 5)), (1, interval(0, 3))])
    (-1, ((11, 1),))
    """
    if len(terms) == 1 and width == 1 and terms[0][0] > 0:  # scaled levels merge no more than before
        c, (first, steps) = terms[0]
        return offset + c * first, steps if c == 1 else tuple([(count, c * step) for count, step in steps])
    levels = [(width, 1)]
    for c, (first, steps) in terms:
        offset += c * first
        levels += [(count, c * step) for count, step in steps]
    return progression(offset, levels)


def split_progression(p: Progression, q: int) -> list[tuple[Progression, Progression]]:
    """Return products (quotients, remainders) whose disjoint union is {(v // q, v % q) : v in p}.

    Raises
    ------
    TooManyPieces
        If more than `MAX_GRIDS` products are needed.

    Examples
    --------
    >>> split_progression(interval(2, 9), 4)
    [((0, ()), (2, ((2, 1),))), ((1, ()), (0, ((4, 1),))), ((2, ()), (0, ()))]
    >>> split_progression((0, ((6, 2),)), 4)
    [((0, ((3, 1),)), (0, ((2, 2),)))]
    """
    if q == 1:
        return [(p, (0, ()))]
    out: list[tuple[Progression, Progression]] = []
    todo: list[tuple[int, Levels, Levels]] = [(p[0], p[1], ())]
    while todo:
        first, levels, high = todo.pop()
        if len(out) + len(todo) > MAX_GRIDS:
            raise TooManyPieces(
                f"splitting {p} into rows of {q} needs more than {MAX_GRIDS} products; "
                "ask overlaps() or isdisjoint(), which need no explicit set"
            )
        while levels and levels[0][1] % q == 0:  # whole rows: the quotient alone moves
            high += ((levels[0][0], levels[0][1] // q),)
            levels = levels[1:]
        row, rest = divmod(first, q)
        if rest + reach(levels) < q:  # inside one row
            out.append((progression(row, high), (rest, levels)))
            continue
        (count, step), inner = levels[0], levels[1:]
        if q % step == 0 and rest % step + reach(inner) < step:
            out += _split_aligned(first, count, step, inner, q, high)
            continue
        todo += [(f, lv, high) for f, lv in _expand(first, count, step, inner, q)]
    return out


def _split_aligned(
    first: int, count: int, step: int, inner: Levels, q: int, high: Levels
) -> Iterator[tuple[Progression, Progression]]:
    """Split a run whose step divides the row length: a head, whole rows and a tail."""
    per_row = q // step
    row, rest = divmod(first, q)
    at, phase = divmod(rest, step)

    def part(row: int, rows: int, at: int, n: int) -> tuple[Progression, Progression]:
        return progression(row, (*high, (rows, 1))), progression(at * step + phase, ((n, step), *inner))

    if at:
        head = min(count, per_row - at)
        yield part(row, 1, at, head)
        count -= head
        row += 1
    whole, tail = divmod(count, per_row)
    if whole:
        yield part(row, whole, 0, per_row)
    if tail:
        yield part(row + whole, 1, 0, tail)


def _expand(first: int, count: int, step: int, inner: Levels, q: int) -> Iterator[tuple[int, Levels]]:
    """Cut the outermost level so that what repeats after lcm(step, q) becomes a level of whole rows."""
    cycle = q // gcd(step, q)  # steps after which the position in the row comes back
    cycles, tail = divmod(count, cycle)
    if cycle > MAX_GRIDS and min(count, cycle) > MAX_GRIDS and (inner or step >= q):
        raise TooManyPieces(
            f"steps of {step} in rows of {q} meet {min(count, cycle)} positions, more than {MAX_GRIDS}; "
            "ask overlaps() or isdisjoint(), which need no explicit set"
        )
    for start, n, repeats in ((first, cycle, cycles), (first + cycles * cycle * step, tail, 1)):
        if not repeats or not n:
            continue
        outer = ((repeats, cycle * step),) if repeats > 1 else ()
        if inner or step >= q:
            yield from ((start + j * step, (*outer, *inner)) for j in range(n))
        else:
            yield from ((f, (*outer, (m, step))) for f, m in _rows(start, n, step, q))


def _rows(first: int, n: int, step: int, q: int) -> Iterator[tuple[int, int]]:
    """Cut n elements of a plain run at the ends of rows of q: (first, count) for each row."""
    rows = (first + (n - 1) * step) // q - first // q + 1
    if rows > MAX_GRIDS:
        raise TooManyPieces(
            f"steps of {step} in rows of {q} fill {rows} different rows, more than {MAX_GRIDS}; "
            "ask overlaps() or isdisjoint(), which need no explicit set"
        )
    while n:
        m = min(n, -(-(q - first % q) // step))
        yield first, m
        first += m * step
        n -= m


def clip_progression(p: Progression, start: int, stop: int) -> list[Progression]:
    """Return progressions whose union is the part of `p` in [start, stop).

    They share no element if no element of `p` is reached by two different sums of steps.

    Raises
    ------
    TooManyPieces
        If more than `MAX_GRIDS` copies of an inner pattern are cut.

    Examples
    --------
    >>> clip_progression((0, ((3, 10), (4, 1))), 2, 22)
    [(10, ((4, 1),)), (2, ((2, 1),)), (20, ((2, 1),))]
    """
    first, levels = p
    last = first + reach(levels)
    if start <= first and last < stop:
        return [p]
    if last < start or stop <= first:
        return []
    (count, step), inner = levels[0], levels[1:]
    span = reach(inner)

    def copies_from(z: int) -> int:
        """The first copy that starts at or after z."""
        return min(count, max(0, -((first - z) // step)))

    touched, whole = copies_from(start - span), copies_from(start)
    whole_end, touched_end = copies_from(stop - span), copies_from(stop)
    out = []
    if whole < whole_end:
        out.append(progression(first + whole * step, ((whole_end - whole, step), *inner)))
    else:
        whole = whole_end = touched_end
    if whole - touched + touched_end - whole_end > MAX_GRIDS:
        raise TooManyPieces(f"[{start}, {stop}) cuts more than {MAX_GRIDS} copies of the pattern of {p}")
    for j in (*range(touched, whole), *range(whole_end, touched_end)):
        out += clip_progression((first + j * step, inner), start, stop)
    return out


def explicit_setts(p: Progression, extent: int) -> DisjointSetts:
    """Return the progression as setts of period `extent`, at least its own span.

    Raises
    ------
    TooManyPieces
        If too many copies of a long pattern interleave: to merge them would cost more than any answer is worth.
    """
    first, levels = p
    copies = interleaved_copies(levels)
    if copies > MAX_COPIES and reach(levels) > LONG_SPAN:
        raise TooManyPieces(
            f"the sums of steps {levels} interleave {copies} copies of a pattern; "
            "ask overlaps() or isdisjoint(), which need no explicit set"
        )
    return progression_set(first, levels, extent=extent)


def count_distinct(p: Progression) -> int | None:
    """Return how many different elements the progression has, or None if more than `COUNT_LIMIT` sums interleave.

    Examples
    --------
    >>> count_distinct((0, ((3, 3), (4, 2)))), count_distinct((0, ((10**9, 10), (4, 2))))
    (11, 4000000000)
    """
    first, levels = p
    sums = prod(count for count, _ in levels)
    if interleaved_copies(levels) == 1:
        return sums
    if sums > COUNT_LIMIT:
        return None
    values = {first}
    for count, step in reversed(levels):
        values = {v + j * step for v in values for j in range(count)}
    return len(values)


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


MASK_SPAN = 1 << 22
"""Sums of progressions up to this long are made as bit masks where their copies interleave."""


def _overlapping(item: Item, steps: list[tuple[int, int]], span: int) -> list[Item]:
    """Return the union of interleaved copies: as a bit mask if short, else copy by copy."""
    if span <= MASK_SPAN:
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
                f"progression_set: steps {steps} put {many} copies of a pattern within each other, more than "
                f"{MAX_COPIES}; overlaps() and isdisjoint() of views and images need no explicit set"
            )
        copies = [at + j * step for at in copies for j in range(n)]
    one = explicit.from_items([item], 0, span)
    union: list[Nest] = []
    for at in sorted(set(copies)):
        union = unions.union(union, [nests.shift(one[0], at)], (0, span))
        if len(union) > current().max_pieces:
            raise TooManyPieces(f"progression_set: more than {current().max_pieces} pieces for steps {steps}")
    clipped = (nests.clip(s, 0, span) for s in union)
    return [piece for piece in clipped if piece is not None]
