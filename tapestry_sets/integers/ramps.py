"""Sums of ramps, of many at once: what two stripes share in a range, summed in as many steps as Euclid's algorithm has.

`stripe` has the same sum of one ramp, with a picture of it. Here the numbers that differ are columns. A column is an
array of int64 or uint64, whose sums and products may wrap, or of Python integers, where int64 would be too short.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd, log
from operator import mul
from typing import Any

import numpy as np

from tapestry_sets.integers import nest as nests
from tapestry_sets.integers import tuning
from tapestry_sets.integers.nest import Nest

Column = np.ndarray[Any, np.dtype[Any]]
"""An array of int64, or of Python integers where int64 would be too short."""

THIRD = 12297829382473034411
"""What 3 is multiplied by to be 1 modulo 2**64."""


def _triangle(x: Any) -> Any:
    """Return x(x - 1)/2, exact also modulo 2**64: one of the factors is halved, the other is odd."""
    return (x >> 1) * ((x - 1) | 1)


def _third(x: Any) -> Any:
    """Return a multiple of 3 by 3, exact also modulo 2**64, where 3 has an inverse."""
    return x // 3 if x.dtype == object else x * THIRD


def _round(c: Any, n: Any, d: Any, P: Any, Q: Any) -> tuple[Any, Any]:
    """Return what y is multiplied by in a round, and what is added to that; see `stripe.sum_ramp`."""
    if isinstance(P, int) and c.dtype != object and len(n) > tuning.TABLED:
        # few numbers differ: a table of all of them is shorter than the columns
        low, most = int(n.min()), int(c.max()) + 1
        wide = int(n.max()) - low + 1
        if wide * most * tuning.TABLED <= len(n):
            every_c = np.repeat(np.arange(most, dtype=c.dtype), wide)
            every_n = np.tile(np.arange(low, low + wide, dtype=n.dtype), most)
            at = (c * wide + (n - low)).view(np.int64)
            return tuple(column[at] for column in _round_of_each(every_c, every_n, d, P, Q))
    return _round_of_each(c, n, d, P, Q)


def _round_of_each(c: Any, n: Any, d: Any, P: Any, Q: Any) -> tuple[Any, Any]:
    s1 = _triangle(n)
    s3 = _third(s1 * (n + 1))
    s2 = 2 * s3 - s1  # s1, s2, s3 are the sums over k < n of k, k*k and k(k + 1)/2
    twice = _triangle(d)
    if isinstance(twice, int) and n.dtype != object:
        twice %= 1 << 64
    return (c + 1) * n + d * s1, P * ((c + 1) * s1 + d * s2) + Q * (
        _triangle(c + 1) * n + d * (c * s1 + s3) + twice * s2
    )


def _divided(n: Any, P: int, y: Any, Q: int) -> tuple[Any, Any]:
    """Return divmod(y + P*n, Q), where P*n wraps; P and Q are below 2**52, and P*n is below 2**100."""
    about = (n * (P / Q)).astype(np.uint64)  # the quotient, but for its last places
    rest = (y + P * n - about * Q).view(np.int64)
    more = rest // Q
    return about + more.view(np.uint64), (rest - more * Q).view(np.uint64)


@lru_cache(maxsize=4)
def _table_rest(low: int, wide: int, P: int, Q: int) -> tuple[Column, Column]:
    """Return tables of what is left of steps and ramps, see `sum_steps`, from j = 1 on: for n from `low` on, one row
    after another, and 0 <= y < Q, where P < Q.

    As y grows, one step more is reached where y + P*k is a multiple of Q for a k, once for each; sums of steps are
    ramps::

        multiples     |   k=2    k=4   k=1    k=3 |
        steps         |22233333334444445555555666 |
    """
    k = np.arange(low) * P
    over = k // Q
    steps = np.bincount(-k % Q, minlength=Q)
    steps[0] = over.sum()
    steps = np.cumsum(steps)
    ramps = np.cumsum(steps) - steps + (over * k - Q * _triangle(over + 1)).sum()
    every = [(steps, ramps)]
    for more in range(low, low + wide - 1):
        y = np.arange(Q) + P * more
        over = y // Q
        steps, ramps = steps + over, ramps + over * y - Q * _triangle(over + 1)
        every.append((steps, ramps))
    every_step, every_ramp = (np.concatenate(rows).astype(np.uint64) for rows in zip(*every, strict=True))
    return every_step, every_ramp


def sum_ramps(n: Any, P: Any, y: Any, Q: Any, is_wide: bool = False, xp: Any = np) -> Any:
    """Return the sum over 0 <= k < n and j >= 0 of max(0, y + P*k - Q*j), for each entry of columns.

    Parameters
    ----------
    n, y : array
        Columns of one length, of uint64 or of Python integers; n >= 1, y >= 0, and y + P*n is below 2**63.
    P, Q : int or array
        One number for all entries, or columns; Q > 0.
    is_wide : bool
        Whether P*n may be longer, below 2**100; P and Q are one number each, below 2**52, then.

    xp : module
        The columns' library, NumPy or another of the Array API where P and Q are columns.

    Returns
    -------
    array
        In uint64 modulo 2**64: only sums and products may wrap, and what is divided is below 2**63, so that the
        difference of such sums is right where it is below 2**64.
    """
    return sum_steps(n, P, y, Q, is_wide, xp, steps=False)[0]


def sum_steps(n: Any, P: Any, y: Any, Q: Any, is_wide: bool = False, xp: Any = np, steps: bool = True) -> list[Any]:
    """Return what `sum_ramps` does, and if `steps` how many k and j have y + P*k - Q*j >= 0: what it grows by where y
    grows by 1."""
    sums: list[tuple[list[Any], Any]] = []  # of each round, and for which entries the next one goes on
    while True:
        c, d = y // Q, P // Q
        y, P = y - c * Q, P - d * Q
        slope, rise = _round(c, n, d, P, Q)
        totals = [slope * y + rise, slope] if steps else [slope * y + rise]
        if isinstance(Q, int) and (listed := max(tuning.LISTED_RAMPS, min(len(n), tuning.COLUMN))) >= Q:
            low = int(n.min())
            wide = int(n.max()) - low + 1
            if wide * Q <= 2 * listed and low <= 2 * Q:
                every_step, every_ramp = _table_rest(low, wide, P, Q)
                at = ((n - low) * Q + y).astype(np.int64)
                totals[0] = totals[0] + every_ramp[at]
                if steps:
                    totals[1] = slope + every_step[at]
                break
        if is_wide:
            n, y = _divided(n - 1, P, y, Q)
        else:
            y = y + P * n - P
            n = y // Q
            y = y - n * Q
        going = n != 0
        if not bool(xp.any(going)):
            break
        sums.append((totals, going))
        if not bool(xp.all(going)):
            n, y = n[going], y[going]
            if not isinstance(P, int):
                P, Q = P[going], Q[going]
        P, Q = Q, P
    while sums:
        inner = totals
        totals, going = sums.pop()
        for at, more in enumerate(inner):
            if more.shape == totals[at].shape:
                totals[at] = totals[at] + more
            else:
                totals[at][going] = totals[at][going] + more
    return totals


def count_rounds(n: int, Q: int) -> float:
    """Return about how many rounds a sum of n ramps has, at steps of Q."""
    return min(log(n + 1), log(Q // tuning.LISTED_RAMPS + 1)) + 2


def multiply_modulo(x: Column, by: int, n: int) -> Column:
    """Return x*by mod n for 0 <= x, by < n; n is below 2**56 where x is of int64."""
    if n < 1 << 31 or x.dtype == object:
        return (x * by) % n
    about = (x * (by / n)).astype(np.int64)  # the quotient, but for some last places
    rest = x * by - about * n
    return rest - rest // n * n


def sum_overlaps(columns: Sequence[Column], P: int, Q: int, length: int) -> int:
    """Return the sum, over the entries n, y, a, b of columns and over 0 <= k < n, of the elements of stripe (b, Q, 0)
    in [y + P*k, y + P*k + a), for n >= 1, y >= b and P*n at most `length`."""
    n, y, a, b = columns
    is_wide = n.dtype != object and length + P >= 1 << 62
    if is_wide and 2.0 * float(np.minimum(a, b).sum(dtype=float)) * _sum_of_quotients(P, Q) > 2.0**61:
        n = n.astype(object)
    ends, half = np.concatenate([y + a, y - b, y + a - b, y]), 2 * len(y)
    if n.dtype == object:
        sums = sum_ramps(np.tile(n, 4), P, ends.astype(object), Q)
        return int(sums[:half].sum() - sums[half:].sum())
    sums = sum_ramps(np.tile(n, 4).astype(np.uint64), P, ends.astype(np.uint64), Q, is_wide)
    total = (int(sums[:half].sum()) - int(sums[half:].sum())) % (1 << 64)
    return _nearest(total, int((n * (a / Q) * b).sum())) if is_wide else total


def _sum_of_quotients(P: int, Q: int) -> int:
    """Return the sum of the partial quotients of P/Q."""
    total = 0
    while Q:
        total += P // Q
        P, Q = Q, P % Q
    return total


def _nearest(found: int, about: int) -> int:
    """Return the number next to `about` that is `found` modulo 2**64.

    What a sum of overlaps is, is nowhere further from the product of densities than 2**62, so that this is exact: as k
    grows, the place of P*k modulo Q is spread so evenly that the sum over k of a function differs from its mean times n
    by no more than its variation times the sum of the partial quotients of P/Q (Denjoy and Koksma). The overlap of
    blocks a and b varies by 2*min(a, b).
    """
    half = 1 << 63
    return about + (found - about + half) % (2 * half) - half


def sum_residues(
    n: int, P: int, c: Column, Q: int, m: int, lo: Column, hi: Column, dtype: Any
) -> tuple[Column, Column, Column, Column]:
    """Return how often lo <= d < hi is each residue modulo m, where d is all that is c - P*i modulo Q for an i with
    0 <= i < n, for each entry of columns c, lo and hi.

    Parameters
    ----------
    dtype : type
        np.int64, where n*(P + Q) and n*(hi - lo) are below 2**61; or object.

    Returns
    -------
    entry, residue, times, total : array
        For each entry the residues that may occur, how often each does, and the sum of all these d.
    """
    # d is r + m*k. That asks for k = (c - P*i - r)/m modulo Q, which is a progression in i as well, but for what Q
    # and m have in common: this says to which class of i the residue r belongs.
    h = gcd(Q, m)
    both = gcd(P, h)
    turn, modulus = h // both, Q // h
    r = ((c % both)[:, None] + np.arange(0, m, both).astype(dtype)).ravel()
    entry = np.repeat(np.arange(len(c)), m // both)
    first = multiply_modulo((c[entry] - r) // both % turn, pow(P // both, -1, turn), turn)
    times = (n - 1 - first) // turn + 1
    if turn > n:  # not every class
        some = times > 0
        entry, r, first, times = entry[some], r[some], first[some], times[some]
    inverse = pow(m // h, -1, modulus)
    k = multiply_modulo((c[entry] - r - P * first) // h % modulus, inverse, modulus)
    step = P * turn // h * inverse % modulus
    low, high = -((r - lo[entry]) // m), -((r - hi[entry]) // m)
    y = (low - 1 - k) % modulus
    kind: Any = np.uint64 if dtype == np.int64 else object
    ends = np.concatenate([y, y + high - low]).astype(kind)
    # how many k lie before `low` and `high`, from some place on, and how far before they do
    sums = sum_steps(np.tile(times, 2).astype(kind), step, ends, modulus)
    (far_low, far_high), (before, up_to) = (column.astype(dtype).reshape(2, -1) for column in sums)
    counts = up_to - before
    # `far` is counted from `low` - 1 and `high` - 1
    total = r * counts + m * ((high - 1) * counts - (far_high - far_low - (high - low) * before))
    return entry, r.astype(np.int64), counts, total


# ------------------------------------------------------------------ blocks with short periods inside

BlockColumns = tuple[Column, Column, Column, int]
"""Blocks, as columns: where what is inside of them begins, where they do and where they end; and their period."""


def fold_distances(one: BlockColumns, s: Nest, two: BlockColumns, t: Nest, n: int, dtype: Any) -> int:
    """Return how many elements n periods of blocks share with blocks that go on; s and t are inside of them.

    Inside of two blocks the common elements repeat, with a period L. Up to a place x they are (N*x + more)/L, where N
    is how many a period has and `more` repeats as they do::

        s   |x..x..x..x..x..x..          a block of the first, elements with a period of 3
        t        |x.x.x.x.x.x.x.x.x      a block of the second, d behind it, with one of 2
                 ^         ^             from here to there: N times the way, and what is `more` there than here

    The way goes from where a block begins to where one ends. Where it is one of s, `more` depends on d modulo the
    period of t alone, and where it is one of t, on d modulo that of s. So all distances that are the same modulo one
    of these periods are counted as one, however many there are.

    Parameters
    ----------
    dtype : type
        np.int64, where n times both periods and blocks is below 2**60; or object.
    """
    m, k = (inside[0][1] if inside else 1 for inside in (s, t))
    (begin, start, end, P), (origin, first, stop, Q) = one, two
    a, a_end, b, b_end = start - begin, end - begin, first - origin, stop - origin
    g = gcd(m, k)
    each, of_s, (at_a, at_a_end) = _count_up_to(s, m, t, k, -1, (a, a_end))
    _, of_t, (at_b, at_b_end) = _count_up_to(t, k, s, m, 1, (b, b_end))
    # the start of a block of t, as counted from a place where both periods begin, is d modulo g
    ahead = np.arange(g)
    of_t += (_count_each(s, ahead, t, -ahead) * (m // g * k) - each * ahead)[np.arange(m) % g]
    total, pairs = 0, len(begin) * len(origin)
    few = max(1, tuning.COLUMN // (4 * max(m, k)))
    for pair in range(0, pairs, few):
        i, j = np.divmod(np.arange(pair, min(pair + few, pairs)), len(origin))
        c, low, high, before, behind = origin[j] - begin[i], a[i], a_end[i], b[j], b_end[j]
        for sign, modulus, more, row, place, lo, hi in (
            (1, k, of_s, at_a_end[i], high, high - behind + 1, high - before),
            (-1, k, of_s, at_a[i], low, low - behind + 1, low - before),
            (1, m, of_t, at_b_end[j], behind, low - behind + 1, high - behind + 1),
            (-1, m, of_t, at_b[j], before, low - before, high - before),
        ):
            entry, d, times, distances = sum_residues(n, P, c, Q, modulus, lo, hi, dtype)
            way = times * place[entry]
            if more is of_t:
                way += distances
            total += sign * (_dot(times, more[row[entry], d]) + _dot(way, each[d % g]))
    return total // (m // g * k)


def _count_up_to(
    s: Nest, m: int, t: Nest, k: int, sign: int, places: tuple[Column, Column]
) -> tuple[Column, Column, list[Column]]:
    """Return how many elements s and t have in common in a common period, and how many more than as many on average
    there are up to places in a block of s, times the period, for each distance modulo k.

    Both are counted from where a period m of s begins, and one of t as far behind it (before it, where `sign` is 1) as
    the distance is more than a multiple of g, the greatest common divisor of m and k.

    Returns
    -------
    each : array
        For each distance modulo g.
    more : array
        A row for each place that differs.
    rows : list of array
        For each place its row.
    """
    g = gcd(m, k)
    turns = k // g
    row, number = np.arange(k) % g, np.arange(k) // g
    shifts = sign * np.arange(g)[:, None] + m * np.arange(turns)  # of each period of s, for each distance modulo g
    inside = _count_each(s, np.array([m]), t, shifts.ravel()).reshape(g, turns)
    before, each = np.cumsum(inside, axis=1) - inside, inside.sum(axis=1)
    long = m * turns
    if long >= 1 << 30:
        before, each = before.astype(object), each.astype(object)
    turned = sign * number * pow(m // g, -1, turns)
    differing, rows = np.unique(np.concatenate(places), return_inverse=True)
    more = []
    for place in differing.tolist():
        whole, rest = divmod(place, m)
        at = (turned + whole % turns) % turns
        held = before[row, at] + _count_each(s, np.array([rest]), t, shifts[row, at])
        more.append(held * long - each[row] * (m * at + rest))
    return each, np.array(more), np.split(rows, [len(places[0])])


def _count_each(s: Nest, length: Column, t: Nest, shift: Column) -> Column:
    """Return how many z in [0, length) are in s while z + shift is in t, for columns of both."""
    total = np.zeros(len(shift), np.int64)
    for start, end in nests.solid_runs(s, 0, int(length.max())):
        low, high = np.minimum(start, length), np.minimum(end, length)
        total += nests.rank_each(t, shift + high) - nests.rank_each(t, shift + low)
    return total


def _dot(x: Column, y: Column) -> int:
    """Return the sum of products of integers, which may be longer than int64."""
    return sum(map(mul, x.tolist(), y.tolist()))
