"""Explicit answers: intersections, differences and unions of nests as disjoint nests, few where they are regular.

A window is a pair ``lo, hi``: the integers ``lo <= z < hi``. Nests are canonical; see `nest.canonical`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd, lcm

from tapestry_sets.limits import check_pieces, current
from tapestry_sets.nest import (
    EMPTY,
    MASK_BITS,
    Item,
    Nest,
    bits,
    canonical,
    clip,
    complement,
    count,
    repeat,
    reverse,
    shift,
    solid_items,
)
from tapestry_sets.pairs import descend, surely_disjoint


def strided(s: Nest, first: int, step: int) -> list[Nest]:
    """Return {k : first + step*k in s} as disjoint nests, for any step but 0.

    The common elements of s and the progression are a union of tight nests in which all distances are
    multiples of the step, so that every level can be divided by it.
    """
    if step < 0:
        return [canonical(reverse(t, 1)) for t in strided(s, first, -step)]
    if step == 1:
        return [shift(s, -first)]
    return [_divide(t, step) for t in meet(shift(s, -first), ((1, step, 0),))]


def _divide(s: Nest, f: int) -> Nest:
    return canonical(((a - 1) // f + 1, P // f, p // f) for a, P, p in s)


def from_bits(mask: int) -> list[Item]:
    """Return the set bits as items, few where they are regular."""
    return merge(solid_items(mask))


# ------------------------------------------------------------------ explicit answers


def meet(s: Nest, t: Nest) -> list[Nest]:
    """Return the intersection on the whole line as disjoint nests.

    Raises
    ------
    TooManyPieces
        If more than the pieces allowed are needed before merging.
    """
    return _Meet(s, t).whole(s, t)


def _cells(s: Nest, t: Nest) -> Iterator[tuple[Nest, int, Nest, int, int, int]]:
    """Yield the windows whose contents make up one common period: the fewest of three ways to cut it."""
    (a, P, p), (b, Q, q) = s[0], t[0]
    g = gcd(P, Q)
    blocks_s, blocks_t, shifts = Q // g, P // g, (a + b - 1) // g
    check_pieces(min(blocks_s, blocks_t, shifts), f"intersection of {s} and {t}")
    if shifts < blocks_s and shifts < blocks_t:
        common, inverse = P // g * Q, pow(P // g, -1, Q // g)
        for d in range(1 - b + (q - p + b - 1) % g, a, g):
            block = (p + P * ((q - p - d) // g * inverse % blocks_s)) % common
            yield s[1:], block, t[1:], block + d, block + max(0, d), block + min(a, d + b)
    elif blocks_s <= blocks_t:
        for k in range(blocks_s):
            block = p + k * P
            yield s[1:], block, t, 0, block, block + a
    else:
        for k in range(blocks_t):
            block = q + k * Q
            yield s, 0, t[1:], block, block, block + b


class _Meet:
    """The common elements of two nests, listed block by block within a budget of steps."""

    __slots__ = ("left", "s", "t")

    def __init__(self, s: Nest, t: Nest) -> None:
        self.s = s
        self.t = t
        self.left = 2 * current().max_pieces

    def spend(self, steps: int) -> None:
        """Take steps from the budget, or raise `TooManyPieces`."""
        self.left -= steps
        if self.left < 0:
            check_pieces(current().max_pieces + 1, f"intersection of {self.s} and {self.t}")

    def whole(self, s: Nest, t: Nest) -> list[Nest]:
        """Return the common elements on the whole line."""
        if s == EMPTY or t == EMPTY:
            return []
        if not s or not t:
            return [s or t]
        found: list[Item] = []
        for x, si, y, tj, lo, hi in _cells(s, t):
            self.collect(x, si, y, tj, lo, hi, found)
        return _with_period(found, lcm(s[0][1], t[0][1]))

    def collect(self, s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int, out: list[Item]) -> None:
        """Append the common elements of s + si and t + tj in the window to `out`, as items."""
        self.spend(1)
        pair = descend(s, si, t, tj, lo, hi)
        if pair is None:
            return
        s, si, t, tj, lo, hi = pair
        if s and t:
            self.blocks(s, si, t, tj, lo, hi, out)
            return
        item = clip(t, lo - tj, hi - tj) if not s else clip(s, lo - si, hi - si)
        if item is not None:
            out.append(item._replace(start=item.start + (si if s else tj)))

    def blocks(self, s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int, out: list[Item]) -> None:
        """Append the items of a window that spans several blocks of both."""
        if surely_disjoint(s, si, t, tj):
            return
        (a, P, p), (b, Q, q) = s[0], t[0]
        if hi - lo >= 2 * lcm(P, Q):  # the whole line's answer, clipped, is shorter than block by block
            for nest in self.whole(shift(s, si - lo), shift(t, tj - lo)):
                item = clip(nest, 0, hi - lo)
                if item is not None:
                    out.append(item._replace(start=item.start + lo))
            return
        found: list[Item] = []
        self.spend((hi - lo) // max(P, Q))
        if P >= Q:
            for block in range(lo - (lo - p - si) % P, hi, P):
                self.collect(s[1:], block, t, tj, max(lo, block), min(hi, block + a), found)
        else:
            for block in range(lo - (lo - q - tj) % Q, hi, Q):
                self.collect(s, si, t[1:], block, max(lo, block), min(hi, block + b), found)
        out += merge(found)


def merge(items: list[Item]) -> list[Item]:
    """Return fewer items: touching intervals are one, and so are equal items at equal distances."""
    while len(items) > 1:
        joined = _join_equidistant(_join_touching(items), 0)
        fewer = [Item(start, length, tail) for start, length, tail, _ in joined]
        if len(fewer) == len(items):
            return fewer
        items = fewer
    return items


def _join_touching(items: list[Item]) -> list[Item]:
    solid = sorted(item for item in items if not item.tail)
    out = [item for item in items if item.tail]
    for item in solid:
        if out and not out[-1].tail and out[-1].start + out[-1].length == item.start:
            out[-1] = Item(out[-1].start, out[-1].length + item.length, ())
        else:
            out.append(item)
    return out


def _join_equidistant(items: list[Item], common: int) -> list[tuple[int, int, Nest, int]]:
    """Return (start, length, tail, period) for runs of equal items; period 0 where the item does not repeat.

    With a `common` period the items repeat with it, and a run that fills it becomes one item of a shorter
    period.
    """
    groups: dict[tuple[int, Nest], list[int]] = {}
    for start, length, tail in items:
        groups.setdefault((length, tail), []).append(start)
    out: list[tuple[int, int, Nest, int]] = []
    for (length, tail), starts in groups.items():
        starts.sort()
        i = 0
        while i < len(starts):
            n, d = _equidistant(starts, i, length, common)
            if n == 1:
                out.append((starts[i], length, tail, 0))
            elif n * d == common:
                out.append((starts[i], length, tail, d))
            else:
                out.append((starts[i], (n - 1) * d + length, repeat(length, d, 0, tail), 0))
            i += n
    return out


def _equidistant(starts: list[int], i: int, length: int, common: int) -> tuple[int, int]:
    """Return how many items from number i on are joined, and their distance."""
    if i + 1 == len(starts):
        return 1, 0
    d = starts[i + 1] - starts[i]
    if d < length:  # interleaved with itself: no nest
        return 1, 0
    n = 2
    while i + n < len(starts) and starts[i + n] - starts[i + n - 1] == d:
        n += 1
    if n == 2 and i + 3 < len(starts) and starts[i + 3] - starts[i + 2] == starts[i + 2] - starts[i + 1]:
        return 1, 0  # leave the start of a longer run alone
    if common and n * d != common and (n - 1) * d + length > common:
        return 1, 0
    return n, d


def _with_period(items: list[Item], common: int) -> list[Nest]:
    """Return items that repeat with period `common` as nests, merged."""
    items = [Item(start % common, length, tail) for start, length, tail in items]
    out = []
    for start, length, tail, shorter in _merge_periodic(items, common):
        out.append(repeat(length, shorter or common, start, tail))
    return out


def _merge_periodic(items: list[Item], common: int) -> list[tuple[int, int, Nest, int]]:
    done: list[tuple[int, int, Nest, int]] = []
    while True:
        joined = _join_equidistant(_join_touching(items), common)
        done += [j for j in joined if j[3]]
        fewer = [Item(start, length, tail) for start, length, tail, shorter in joined if not shorter]
        if len(joined) == len(items):
            return done + [(*item, 0) for item in fewer]
        items = fewer


def meet_within(s: Nest, t: Nest, lo: int, hi: int) -> list[Nest]:
    """Return the intersection in a window as nests that are right there, and disjoint there."""
    items: list[Item] = []
    if s != EMPTY and t != EMPTY:
        _Meet(s, t).collect(s, 0, t, 0, lo, hi, items)
    return from_items(merge(items), lo, hi)


def subtract_within(s: Nest, t: Nest, lo: int, hi: int) -> list[Nest]:
    """Return the difference in a window as nests that are right there, and disjoint there."""
    items: list[Item] = []
    if s != EMPTY:
        for c in complement(t):
            _Meet(s, t).collect(s, 0, c, 0, lo, hi, items)
    return from_items(merge(items), lo, hi)


def from_items(items: Iterable[Item], lo: int, hi: int) -> list[Nest]:
    """Return items in a window as nests whose period is the window's length."""
    return [repeat(length, hi - lo, start, tail) for start, length, tail in items]


def subtract(s: Nest, t: Nest) -> list[Nest]:
    """Return the difference on the whole line as disjoint nests."""
    out: list[Nest] = []
    for c in complement(t):
        out += meet(s, c)
    return merge_nests(out)


def merge_nests(nests: Iterable[Nest]) -> list[Nest]:
    """Return fewer nests for the same elements, given disjoint nests."""
    current = _merge_alike([s for s in nests if s != EMPTY])
    if len(current) < 2:
        return current
    common = lcm(*(s[0][1] for s in current))
    if sum(count(s, 0, common) for s in current) == common:
        return [()]
    if common <= MASK_BITS:  # short: begin again from the blocks, and take the shorter answer
        mask = 0
        for s in current:
            mask |= bits(s, 0, common)
        solid = _join_around(solid_items(mask), common)
        again = _merge_alike(_with_period(solid, common))
        current = min(current, again, key=len)
    return current


def _merge_alike(current: list[Nest]) -> list[Nest]:
    """Join nests of equal period and inside, until none are left."""
    while len(current) > 1:
        by_period: dict[int, list[Item]] = {}
        for s in current:
            a, P, p = s[0]
            by_period.setdefault(P, []).append(Item(p, a, s[1:]))
        fewer: list[Nest] = []
        for common, items in by_period.items():
            fewer += _with_period(_join_around(items, common), common)
        if len(fewer) == len(current):
            return fewer
        current = fewer
    return current


def _join_around(items: list[Item], common: int) -> list[Item]:
    """Join a solid item that ends at the common period's end with one that starts at its beginning."""
    solid = sorted(item for item in _join_touching(items) if not item.tail)
    if len(solid) < 2 or (solid[-1].start + solid[-1].length) % common != solid[0].start:
        return items
    rest = [item for item in items if item.tail]
    last = Item(solid[-1].start, solid[-1].length + solid[0].length, ())
    return [*rest, *solid[1:-1], last]
