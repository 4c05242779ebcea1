"""Ranks: the numbers of a nest's elements, for fill, sample and rows.

The elements of a set are numbered from the first that is not negative; negative numbers count back from the
element before 0. *Filling* a set with ink keeps the elements whose numbers are in the ink; *sampling* a set
at another returns the numbers, in the other, of the elements of both. They are poprithms' composition by
multiplication and by division. What is listed here is listed block by block within the pieces allowed.

    set        .111..111..111..    element 1 has the number 0, element 6 the number 3
    numbers     012  345  678
    ink        11.11.11.           numbers 0, 1, 3, 4, 6, 7
    filled     .11...11...11...    sampled at the set, this is the ink again

Nests are canonical; see `nest.canonical`. A list of nests is a disjoint union.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import gcd, lcm

from tapestry_sets.integers import explicit, tuning
from tapestry_sets.integers.nest import (
    EMPTY,
    Item,
    Nest,
    canonical,
    clip,
    count,
    find,
    in_window,
    nth,
    period,
    repeat,
    shift,
)
from tapestry_sets.integers.pair_counts import descend
from tapestry_sets.integers.pairs import is_subset, surely_disjoint
from tapestry_sets.limits import Budget, attempt, check_pieces, current


def rank(s: Nest, x: int) -> int:
    """Return how many elements lie in [0, x), or less those in [x, 0) for negative x.

    Examples
    --------
    >>> [rank(((2, 3, 0),), x) for x in (-3, -1, 0, 1, 7)]
    [-2, 0, 0, 1, 5]
    """
    return count(s, 0, x) if x >= 0 else -count(s, x, 0)


def _numbering(s: Nest) -> tuple[int, int]:
    """Return the elements in a block of the outermost level and the number of the first of block 0."""
    a, _, p = s[0]
    return count(s[1:], 0, a), count(s, 0, p)


class _Lister:
    """A listing, whose budget has two steps for each piece allowed."""

    __slots__ = ("budget", "instead", "what")

    def __init__(self, what: str, instead: str) -> None:
        self.what = what
        self.instead = instead
        self.budget = Budget(2 * current().max_pieces)

    def spend(self, steps: int) -> None:
        """Take steps, or raise `TooManyPieces`."""
        if not self.budget.spend(steps):
            check_pieces(current().max_pieces + 1, self.what, self.instead)


def _of_period(items: Iterable[Item], common: int) -> list[Nest]:
    return explicit.merge_nests(explicit.from_items(items, 0, common))


# --------------------------------------------------------------------------------------------------------- fill

FILL_INSTEAD = "in, find, nth and count of the filled set need none, and setts(within=) lists a part"


class _FillRanks(_Lister):
    """The elements of one nest whose numbers are in another, listed block by block."""

    __slots__ = ()

    def whole(self, s: Nest, t: Nest) -> list[Nest]:
        """Return the elements on the whole line."""
        if s == EMPTY or t == EMPTY:
            return []
        if not s or not t:
            return [s or t]
        (_, P, p), (b, R, q) = s[0], t[0]
        n, first = _numbering(s)
        g = gcd(n, R)
        check_pieces(min(R, n) // g, self.what, self.instead)
        found: list[Item] = []
        # A block of s has n numbers and the ink repeats after R of them: R/g blocks of s, or n/g of the ink's, make
        # one common period. The fewer ones are gone through, each with what lies inside it.
        if n >= R:  # by the blocks of s
            for u in range(R // g):
                k = first + u * n
                self.collect(s[1:], p + u * P, k, t, 0, k, k + n, found)
        else:
            for k in range(q, q + n // g * R, R):
                self.collect(s, 0, 0, t[1:], k, k, k + b, found)
        return _of_period(found, R // g * P)

    def collect(self, s: Nest, si: int, k0: int, t: Nest, tj: int, lo: int, hi: int, out: list[Item]) -> None:
        """Append the elements of s + si whose numbers are in t + tj and in [lo, hi); that of number k0 is s's 0th."""
        self.spend(1)
        while lo < hi:
            lo = tj + find(t, lo - tj)
            if lo >= hi:
                return
            if not t or not s:
                break
            b, R, q = t[0]
            v = lo - (lo - tj - q) % R
            if hi <= v + R:  # one block of t
                t, tj, hi = t[1:], v, min(hi, v + b)
                continue
            _, P, p = s[0]
            n, first = _numbering(s)
            u, r = divmod(lo - k0 - first, n)
            if hi > lo - r + n:
                self.blocks(s, si, k0, t, tj, lo, hi, out)
                return
            s, si, k0 = s[1:], si + p + u * P, lo - r  # one block of s
        else:
            return
        out += _one_filled(s, si, k0, t, tj, lo, hi)

    def blocks(self, s: Nest, si: int, k0: int, t: Nest, tj: int, lo: int, hi: int, out: list[Item]) -> None:
        """Append the items of a window of numbers that spans several blocks of both."""
        (_, P, p), (b, R, q) = s[0], t[0]
        n, first = _numbering(s)
        if hi - lo > lcm(n, R):  # the whole line's answer, clipped, is shorter than block by block
            z = nth(s, lo - k0)
            last = nth(s, hi - 1 - k0)
            nests = self.whole(shift(s, -z), shift(t, tj - lo))
            out += _clipped(nests, last + 1 - z, si + z)
            return
        found: list[Item] = []
        self.spend((hi - lo) // max(n, R))
        if n <= R:
            for v in range(lo - (lo - tj - q) % R, hi, R):
                self.collect(s, si, k0, t[1:], v, max(lo, v), min(hi, v + b), found)
        else:
            u, r = divmod(lo - k0 - first, n)
            for k in range(lo - r, hi, n):
                self.collect(s[1:], si + p + u * P, k, t, tj, max(lo, k), min(hi, k + n), found)
                u += 1
        out += explicit.merge(found)


def _clipped(nests: Iterable[Nest], length: int, offset: int) -> Iterator[Item]:
    """Yield nests as items of the window [0, length), moved by an offset."""
    for nest in nests:
        item = clip(nest, 0, length)
        if item is not None:
            yield item._replace(start=item.start + offset)


def _one_filled(s: Nest, si: int, k0: int, t: Nest, tj: int, lo: int, hi: int) -> Iterator[Item]:
    """Yield what `_FillRanks.collect` appends where one of the nests is every integer."""
    if s:
        z = nth(s, lo - k0)
        return _clipped([shift(s, -z)], nth(s, hi - 1 - k0) + 1 - z, si + z)
    return _clipped([shift(t, tj - lo)], hi - lo, si + lo - k0)


def fill(outer: Sequence[Nest], ink: Sequence[Nest]) -> list[Nest]:
    """Return the elements of a set whose numbers are in `ink`, on the whole line.

    Raises
    ------
    TooManyPieces
        If more than the pieces allowed are needed.

    Examples
    --------
    >>> fill([((6, 7, 0),)], [((2, 3, 0),)])
    [((5, 7, 0), (2, 3, 0))]
    """
    steps = _FillRanks("setts of a filled set", FILL_INSTEAD)
    if len(outer) == 1:
        return explicit.merge_nests(z for t in ink for z in steps.whole(outer[0], t))
    L = lcm(*map(period, outer))
    n = sum(count(s, 0, L) for s in outer)
    out: list[Nest] = []
    for t in ink if n else ():
        common = period(t) // gcd(n, period(t)) * L
        found: list[Item] = []
        for item, k, many in _in_order(outer, 0, common, 0, steps):
            steps.collect(item.tail, item.start, k, t, 0, k, k + many, found)
        out += _of_period(found, common)
    return explicit.merge_nests(out)


def fill_within(
    outer: Sequence[Nest], first: int, ink: Sequence[Nest], lo: int, hi: int, instead: str = FILL_INSTEAD
) -> list[Nest]:
    """Fill as `fill` does; the nests are right in a window, whose first element has the number `first`.

    The nests need to be right in the window, and in its numbers, alone. `instead` is what an error names to ask.

    Examples
    --------
    >>> fill_within([((1, 2, 0),)], 0, [((1, 3, 0),)], 4, 16)  # 4, 10: the elements 0 and 3 of those from 4 on
    [((1, 6, 4),)]
    """
    steps = _FillRanks(f"setts of a filled set in [{lo}, {hi})", instead)
    found: list[Item] = []
    for item, k, many in _in_order(outer, lo, hi, first, steps):
        for t in ink:
            steps.collect(item.tail, item.start, k, t, 0, k, k + many, found)
    return explicit.from_items(explicit.merge(found), lo, hi)


# ------------------------------------------------------------------------------------------------------- sample

SAMPLE_INSTEAD = "in, find, nth and count of the sampled set need none, and setts(within=) lists a part"


class _SampleRanks(_Lister):
    """The numbers, in one nest, of the elements that it shares with another, listed block by block."""

    __slots__ = ()

    def whole(self, s: Nest, at: Nest) -> list[Nest]:
        """Return the numbers on the whole line."""
        if s == EMPTY or at == EMPTY:
            return []
        if not s:
            return [()]
        if not at:
            return [s]
        (a, P, p), (b, Q, q) = s[0], at[0]
        n, first = _numbering(at)
        g = gcd(P, Q)
        check_pieces(min(P, Q) // g, self.what, self.instead)
        # P/g blocks of `at`, or Q/g of s, make one common period
        found: list[Item] = []
        if P <= Q:  # by the blocks of `at`
            for v in range(P // g):
                z = q + v * Q
                self.collect(s, 0, at[1:], z, z, z + b, first + v * n, found)
        else:
            for z in range(p, p + Q // g * P, P):
                self.collect(s[1:], z, at, 0, z, z + a, rank(at, z), found)
        return _of_period(found, P // g * n)

    def collect(self, s: Nest, si: int, at: Nest, aj: int, lo: int, hi: int, k: int, out: list[Item]) -> None:
        """Append the numbers of the common elements of s + si and at + aj in [lo, hi); k is at's first number."""
        self.spend(1)
        pair = descend(s, si, at, aj, lo, hi)
        if pair is None:
            return
        k += count(at, lo - aj, pair[4] - aj)
        s, si, at, aj, lo, hi = pair
        if s and at:
            self.blocks(s, si, at, aj, lo, hi, k, out)
        elif at:
            many = count(at, lo - aj, hi - aj)
            out += [Item(k, many, ())] if many else []
        else:
            out += _clipped([shift(s, si - lo)], hi - lo, k)

    def blocks(self, s: Nest, si: int, at: Nest, aj: int, lo: int, hi: int, k: int, out: list[Item]) -> None:
        """Append the items of a window that spans several blocks of both."""
        if surely_disjoint(s, si, at, aj):
            return
        (a, P, p), (b, Q, q) = s[0], at[0]
        if hi - lo > lcm(P, Q):  # the whole line's answer, clipped, is shorter than block by block
            nests = self.whole(shift(s, si - lo), shift(at, aj - lo))
            out += _clipped(nests, count(at, lo - aj, hi - aj), k)
            return
        found: list[Item] = []
        self.spend((hi - lo) // max(P, Q))
        if P >= Q:
            for z in range(lo - (lo - p - si) % P, hi, P):
                low = max(lo, z)
                self.collect(s[1:], z, at, aj, low, min(hi, z + a), k + count(at, lo - aj, low - aj), found)
        else:
            for z in range(lo - (lo - q - aj) % Q, hi, Q):
                low = max(lo, z)
                self.collect(s, si, at[1:], z, low, min(hi, z + b), k + count(at, lo - aj, low - aj), found)
        out += explicit.merge(found)


def sample(inner: Sequence[Nest], at: Sequence[Nest]) -> list[Nest]:
    """Return the numbers, in `at`, of the elements of both sets, on the whole line.

    Raises
    ------
    TooManyPieces
        If more than the pieces allowed are needed.

    Examples
    --------
    >>> sample([((5, 7, 0), (2, 3, 0))], [((6, 7, 0),)])
    [((2, 3, 0),)]
    """
    steps = _SampleRanks("setts of a sampled set", SAMPLE_INSTEAD)
    if len(at) == 1:
        return explicit.merge_nests(z for s in inner for z in steps.whole(s, at[0]))
    L = lcm(*map(period, at))
    n = sum(count(s, 0, L) for s in at)
    out: list[Nest] = []
    for s in inner if n else ():
        common = lcm(L, period(s))
        found: list[Item] = []
        for item, k, _ in _in_order(at, 0, common, 0, steps):
            steps.collect(s, 0, item.tail, item.start, item.start, item.start + item.length, k, found)
        out += _of_period(found, common // L * n)
    return explicit.merge_nests(out)


def sample_within(
    inner: Sequence[Nest], at: Sequence[Nest], lo: int, hi: int, first: int, last: int, instead: str = SAMPLE_INSTEAD
) -> list[Nest]:
    """Sample as `sample` does; the nests are right for the numbers [first, last), whose elements are in [lo, hi).

    The nests need to be right in the window [lo, hi) alone. `instead` is what an error names to ask.

    Examples
    --------
    >>> sample_within([((1, 3, 0),)], [((1, 2, 0),)], 0, 12, 0, 6)  # multiples of three among the even numbers
    [((1, 3, 0),)]
    """
    steps = _SampleRanks(f"setts of a sampled set in [{first}, {last})", instead)
    found: list[Item] = []
    for item, k, _ in _in_order(at, lo, hi, first, steps):
        for s in inner:
            steps.collect(s, 0, item.tail, item.start, item.start, item.start + item.length, k, found)
    return explicit.from_items(explicit.merge(found), first, last)


# --------------------------------------------------------------------------------------- numbers in a union


def _in_order(every: Sequence[Nest], lo: int, hi: int, first: int, steps: _Lister) -> Iterator[tuple[Item, int, int]]:
    """Yield a union's elements in a window as items one behind the other, with their first number and how many."""
    items = [item for item in (clip(s, lo, hi) for s in every) if item is not None]
    for item in sorted(_apart(items, steps)):
        many = count(item.tail, 0, item.length)
        yield item, first, many
        first += many


def _apart(items: list[Item], steps: _Lister) -> list[Item]:
    """Return items none of which begins inside another: those that do are taken apart, block by block."""
    out: list[Item] = []
    together: list[Item] = []
    end: int | None = None
    for item in [*sorted(items), None]:
        if item is None or (end is not None and item.start >= end):
            steps.spend(len(together))
            if len(together) > 1:
                together = _apart([b for one in together for b in _blocks(one, steps)], steps)
            out += together
            together = []
        if item is not None:
            together.append(item)
            end = item.start + item.length if end is None else max(end, item.start + item.length)
    return out


def _blocks(item: Item, steps: _Lister) -> Iterator[Item]:
    """Yield an item's blocks of the outermost level; a solid item as it is."""
    if not item.tail:
        yield item
        return
    a, P, p = item.tail[0]
    blocks = range(p - P if p else 0, item.length, P)
    steps.spend(max(0, -((blocks.start - item.length) // P)))  # len() of a range stops at the machine's word
    for z in blocks:
        block = clip(item.tail, max(0, z), min(item.length, z + a))
        if block is not None:
            yield block._replace(start=block.start + item.start)


# ---------------------------------------------------------------------------------------------- rows and columns

Pairs = list[tuple[Nest, Nest]]
"""A disjoint union of (rows) x (columns)."""


SPLIT_INSTEAD = "divmod of elements, and sample, need none"


def split(s: Nest, n: int, rows: int | None = None, instead: str = SPLIT_INSTEAD) -> Pairs:
    """Return s as a disjoint union of {n*y + x : y in rows, x in columns, 0 <= x < n}.

    Parameters
    ----------
    s : Nest
    n : int
        The length of a row, >= 1.
    rows : int, optional
        Only rows 0 to this count; by default the whole line. The rows returned are right among these alone.
    instead : str, optional
        What an error names to ask.

    Raises
    ------
    TooManyPieces
        If more than the pieces allowed are needed.

    Examples
    --------
    >>> split(((1, 3, 0),), 4)
    [(((1, 3, 0),), ((1, 3, 0),)), (((1, 3, 1),), ((1, 4, 2),)), (((1, 3, 2),), ((1, 4, 1),))]
    """
    if s == EMPTY or rows == 0:
        return []
    if not s or n % s[0][1] == 0:
        return [((), in_window(s, 0, n))]
    a, P, p = s[0]
    g = gcd(P, n)
    found: Pairs = []
    if n <= P:
        starts = _starts(a, P, p, None if rows is None else rows * n, n // g)
        check_pieces((starts.stop - starts.start) // P, f"split into rows of {n}", instead)
        for start in starts:
            found += _split_block(a, P // g * n, start, s[1:], n, instead)
            check_pieces(len(found), f"split into rows of {n}", instead)
    else:
        distinct = P // g if rows is None else min(rows, P // g)
        check_pieces(distinct, f"split into rows of {n}", instead)
        for row in range(distinct):
            found += _row(s, row * n, n, (1, P // g, row))
    return join_rows(found)


def _starts(a: int, P: int, p: int, end: int | None, in_common: int) -> range:
    """Return the starts of the blocks that meet [0, end), or of one common period if these are fewer."""
    first = -((p + a - 1) // P) if end is not None else 0
    blocks = in_common if end is None else min(-(-(end - p) // P) - first, in_common)
    return range(p + first * P, p + (first + blocks) * P, P)


def _row(s: Nest, at: int, n: int, level: tuple[int, int, int], lo: int = 0, hi: int | None = None) -> Pairs:
    """Return the one row [at, at + n) of s, clipped to [lo, hi)."""
    item = clip(s, max(at, lo) if hi is not None else at, at + n if hi is None else min(at + n, hi))
    if item is None:
        return []
    column = in_window(explicit.from_items([item._replace(start=item.start - at)], 0, n)[0], 0, n)
    return [(canonical([level]), column)]


def _split_block(a: int, P: int, p: int, tail: Nest, n: int, instead: str) -> Pairs:
    """Split the blocks (a, P, p) with `tail` inside, where n divides P: first row, whole rows, last row."""
    # A block [p, p + a) written in rows of n:
    #
    #     · · · p ■ ■      first row, a part of one
    #     ■ ■ ■ ■ ■ ■      whole_from: rows whose columns are all in the block, told by `tail` alone
    #     ■ ■ ■ ■ ■ ■
    #     ■ ■ · · · ·      whole_to: the last row, a part of one
    #
    # As n divides P, all blocks lie alike and come again every P // n rows.
    found: Pairs = []
    whole_from, whole_to = -(-p // n), (p + a) // n
    if whole_from < whole_to:
        level = (whole_to - whole_from, P // n, whole_from)
        inside = split(shift(tail, p - whole_from * n), n, whole_to - whole_from, instead)
        found += [(canonical([level, *rows]), columns) for rows, columns in inside]
    for row in sorted({p // n, (p + a - 1) // n}):
        if not whole_from <= row < whole_to:
            found += _row(tail, row * n - p, n, (1, P // n, row), 0, a)
    return found


def join_rows(found: Pairs) -> Pairs:
    """Return fewer pairs: those of the same columns are joined, then those of the same rows."""
    if len(found) < 2:
        return [pair for pair in found if pair[0] != EMPTY]
    by_columns: dict[Nest, list[Nest]] = {}
    for rows, columns in found:
        if rows != EMPTY:
            by_columns.setdefault(columns, []).append(rows)
    by_rows: dict[Nest, list[Nest]] = {}
    for columns, group in by_columns.items():
        for rows in explicit.merge_nests(group):
            by_rows.setdefault(rows, []).append(columns)
    return [(rows, columns) for rows, group in by_rows.items() for columns in explicit.merge_nests(group)]


# ------------------------------------------------------------------------------------------------------- unions


def join(s: Nest, t: Nest, budget: Budget | None = None) -> Nest | None:
    """Return one nest that holds the elements of two disjoint nests, or None if none is found.

    Of nests of up to four levels in which every block begins with a whole block of the next level, what one cut
    parts is found: the blocks of any one level cut into two at one place, or the outermost blocks dealt out in
    turn, one here and one there. Other unions are found often; every answer is checked.

    Examples
    --------
    >>> join(((4, 10, 0), (1, 3, 0)), ((1, 10, 6),))
    ((7, 10, 0), (1, 3, 0))
    """
    return _Join(budget or Budget(tuning.ATTEMPTS)).nests(s, t, len(s) + len(t))


class _Join:
    """The search for one nest that holds what two hold, within a number of attempts."""

    __slots__ = ("budget",)

    def __init__(self, budget: Budget) -> None:
        self.budget = budget

    def nests(self, s: Nest, t: Nest, depth: int) -> Nest | None:
        """Return one nest for two, seen from where blocks of theirs begin."""
        alike = explicit.merge_nests([s, t])
        if len(alike) < 2:
            return alike[0] if alike else EMPTY
        common = lcm(period(s), period(t))
        for z in _begins(s, t, common):
            items = [item for u in (s, t) if (item := clip(shift(u, -z), 0, common))]
            item = self.items(items, depth)
            if item is not None:
                return repeat(item.length, common, z + item.start, item.tail)
        return None

    def items(self, items: list[Item], depth: int) -> Item | None:
        """Return one item for several that are disjoint."""
        items = sorted(explicit.merge(items))
        if len(items) == 1:
            return items[0]
        if not self.budget.spend():
            return None
        lo, hi = items[0].start, max(map(_end, items))
        many = sum(count(item.tail, 0, item.length) for item in items)
        for tail in self.tails(items, depth):
            whole = shift(tail, lo)
            if count(whole, lo, hi) == many and all(_holds(whole, item) for item in items):
                return clip(whole, lo, hi)
        return self.parts(items, depth) if depth > 0 else None

    def tails(self, items: list[Item], depth: int) -> Iterator[Nest]:
        """Yield nests, relative to the first item's start, that may hold what all of the items hold."""
        lo = items[0].start
        for item in items[: tuning.ORIGINS]:
            if item.tail:  # its pattern goes on where the others are
                yield shift(item.tail, item.start - lo)
        if all(_end(one) <= two.start for one, two in pairwise(items)):
            starts = {two.start - one.start for one, two in pairwise(items)}
            ends = {_end(two) - _end(one) for one, two in pairwise(items)}  # where the first is cut at its start
            for d in sorted(starts | ends):
                for item in items:
                    if item.length <= d:
                        yield repeat(item.length, d, item.start - lo, item.tail)
        elif len(items) == 2 and depth > 0 and items[0].tail and items[1].tail:  # one lies in the other's gaps
            one, two = (shift(item.tail, item.start - lo) for item in items)
            nest = self.nests(one, two, depth - 1)
            if nest is not None:
                yield nest

    def parts(self, items: list[Item], depth: int) -> Item | None:
        """Return one item made of the blocks of the items in which others begin, or of all; if they are few."""
        around = [item for item in items if any(item.start < other.start < _end(item) for other in items)] or items
        if sum(item.length // item.tail[0][1] + 2 for item in around if item.tail) > tuning.PARTS:
            return None
        steps = _Lister("union of two", "")
        blocks = [block for item in around for block in _blocks(item, steps)]
        groups: list[list[Item]] = []
        end = items[0].start
        for part in sorted([*blocks, *(item for item in items if item not in around)]):
            if part.start >= end:
                groups.append([])
            groups[-1].append(part)
            end = max(end, _end(part))
        joined = [self.items(group, depth - 1) for group in groups]
        kept = [item for item in joined if item is not None]
        return self.items(kept, depth - 1) if len(kept) == len(joined) else None


def _begins(s: Nest, t: Nest, common: int) -> list[int]:
    """Return where a block of the union may begin, at the first blocks of each nest: the likeliest first."""
    (a, P, p), (b, Q, q) = s[0], t[0]
    firsts = {(u[0][2] + i * u[0][1]) % common for u in (s, t) for i in range(min(tuning.ORIGINS, common // u[0][1]))}
    return sorted(firsts, key=lambda z: (max((p - z) % P + a, (q - z) % Q + b), z))


def _end(item: Item) -> int:
    return item.start + item.length


def _holds(s: Nest, item: Item) -> bool:
    return attempt(lambda: is_subset(shift(item.tail, item.start), s, item.start, _end(item))) is True
