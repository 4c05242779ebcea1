"""Progressions: sums of arithmetic steps, the one-dimensional images of boxes under affine maps.

A progression is a pair of plain tuples, so that images cost the same at every size and little at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import gcd, prod

from tapestry_sets.digits import tuning
from tapestry_sets.digits.cutting import clip_ascending
from tapestry_sets.digits.digits import Digit, Digits, Levels
from tapestry_sets.limits import TooManyPieces

Progression = tuple[int, Levels]
"""(first, ((count, step), …)): the set {first + Σ j_k·step_k : 0 <= j_k < count_k}, see `progression`."""
Grid = tuple[Progression, ...]
"""A product of progressions, one for each axis."""


def progression(first: int, levels: Iterable[Digit]) -> Progression:
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
    for count, step in levels:  # the package says why not by `make_steps_positive`
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


def sum_bits(levels: Levels) -> int:
    """Return the sums of steps above 0 as bits of an integer.

    Examples
    --------
    >>> bin(sum_bits(((2, 5), (3, 2))))
    '0b1010110101'
    """
    bits = 1
    for count, step in levels:
        done = 1
        while done < count:  # copies by doubling
            more = min(done, count - done)
            bits |= bits << (more * step)
            done += more
    return bits


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


def separate(p: Progression) -> list[Progression]:
    """Return progressions of the same elements whose copies do not lie within each other, as far as few of them do.

    Two steps s and d, of n and k elements, make copies within each other, as windows with a step and a dilation do.
    The copies j and j + s/g of n elements each, with g = gcd(s, d), go on in steps of s and touch if n >= d/g: so
    min(k, s/g) runs of step s hold the same elements, none twice.

    Examples
    --------
    >>> separate((0, ((10**9, 3), (5, 2))))
    [(0, ((1500000002, 2),)), (3, ((1500000002, 2),))]
    >>> separate((0, ((4, 10), (3, 2))))
    [(0, ((4, 10), (3, 2)))]
    """
    todo, done = [p], []
    while todo:
        one = todo.pop()
        parts = _separate_once(one)
        if parts is None:
            done.append(one)
        else:
            todo += parts[::-1]
        if len(todo) + len(done) > tuning.MAX_COPIES:
            return [p]
    return done


def _separate_once(p: Progression) -> list[Progression] | None:
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
    if n < d // g or classes > tuning.MAX_COPIES:
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
        if len(out) + len(todo) > tuning.MAX_GRIDS:
            raise TooManyPieces(
                f"splitting {p} into rows of {q} needs more than {tuning.MAX_GRIDS} products; "
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
    if cycle > tuning.MAX_GRIDS and min(count, cycle) > tuning.MAX_GRIDS and (inner or step >= q):
        raise TooManyPieces(
            f"steps of {step} in rows of {q} meet {min(count, cycle)} positions, more than {tuning.MAX_GRIDS}; "
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
    if rows > tuning.MAX_GRIDS:
        raise TooManyPieces(
            f"steps of {step} in rows of {q} fill {rows} different rows, more than {tuning.MAX_GRIDS}; "
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
    if start <= first and first + reach(levels) < stop:
        return [p]
    parts: list[Digits] = []
    if not clip_ascending((first,), levels, (), (0, start, stop, tuning.MAX_GRIDS), parts):
        raise TooManyPieces(f"[{start}, {stop}) cuts more than {tuning.MAX_GRIDS} copies of the pattern of {p}")
    return [progression(part.origin[0], part.digits) for part in parts]


def count_distinct(p: Progression) -> int | None:
    """Return how many different elements the progression has, or None if more than `MAX_SCAN` sums interleave.

    Examples
    --------
    >>> count_distinct((0, ((3, 3), (4, 2)))), count_distinct((0, ((10**9, 10), (4, 2))))
    (11, 4000000000)
    """
    first, levels = p
    sums = prod(count for count, _ in levels)
    if interleaved_copies(levels) == 1:
        return sums
    if sums > tuning.MAX_SCAN:
        return None
    values = {first}
    for count, step in reversed(levels):
        values = {v + j * step for v in values for j in range(count)}
    return len(values)
