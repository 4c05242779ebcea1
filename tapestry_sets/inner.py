"""Sets within sets on one axis: what a part of an axis sees of a set, and a set put into a part.

The elements of a nest in a window are numbered from zero: their ranks. `sample` takes a set to the ranks that
it has there, `fill` takes ranks back to elements. Both go down into whichever side has the fewer blocks, and
list one common period only.
"""

from __future__ import annotations

from math import lcm

from tapestry_sets import explicit
from tapestry_sets import nest as nests
from tapestry_sets.limits import check_pieces, current
from tapestry_sets.nest import EMPTY, Item, Nest
from tapestry_sets.pairs import surely_disjoint

VIEWS = "views (allocate(shape)[...].reshape(...)[...]) hold it unlisted"


def sample(s: Nest, at: Nest, lo: int, hi: int) -> list[Nest]:
    """Return {k : the k-th element of `at` in the window is in s}, right in [0, count of `at` in the window).

    Returns
    -------
    list of nests
        Disjoint in that range.

    Raises
    ------
    TooManyPieces
        If more than the pieces allowed are needed.

    Examples
    --------
    >>> sample(((1, 3, 0),), ((1, 2, 0),), 0, 12)  # multiples of three among the even numbers
    [((1, 3, 0),)]
    """
    n = nests.count(at, lo, hi)
    if s == EMPTY or not n:
        return []
    items: list[Item] = []
    _Sample(s, at, lo).collect(s, 0, at, 0, lo, hi, items)
    return explicit.from_items(explicit.merge(items), 0, n)


def fill(at: Nest, ink: Nest, lo: int, hi: int) -> list[Nest]:
    """Return the elements of `at` in the window whose ranks there are in `ink`, right in the window.

    Returns
    -------
    list of nests
        Disjoint in the window.

    Raises
    ------
    TooManyPieces
        If more than the pieces allowed are needed.

    Examples
    --------
    >>> fill(((1, 2, 0),), ((1, 3, 0),), 0, 12)
    [((1, 6, 0),)]
    """
    n = nests.count(at, lo, hi)
    if ink == EMPTY or not n:
        return []
    first = nests.find(at, lo)
    items: list[Item] = []
    _Fill(ink, at).collect(nests.shift(at, -first), 0, 0, ink, 0, 0, n, items)
    moved = [Item(start + first, length, tail) for start, length, tail in explicit.merge(items)]
    return explicit.from_items(moved, lo, hi)


class _Pieces:
    """A budget of steps: an explicit answer of too many pieces is given up before it is listed."""

    __slots__ = ("left", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.left = 2 * current().max_pieces

    def spend(self, steps: int) -> None:
        """Take steps from the budget, or raise `TooManyPieces`."""
        self.left -= steps
        if self.left < 0:
            most = current().max_pieces
            check_pieces(most + 1, self.what, VIEWS)


def _repeated(items: list[Item], period: int, lo: int, hi: int) -> list[Item]:
    """Return items in [0, period) as they lie in the window, repeated with the period."""
    again = (nests.clip(s, lo, hi) for s in explicit.merge_nests(explicit.from_items(items, 0, period)))
    return [item for item in again if item is not None]


class _Sample(_Pieces):
    """The ranks in a window of one nest of its common elements with another."""

    __slots__ = ("at", "lo")

    def __init__(self, s: Nest, at: Nest, lo: int) -> None:
        super().__init__(f"sample of {s} at {at}")
        self.at = at
        self.lo = lo

    def rank(self, z: int) -> int:
        """Return how many elements of the sampled places lie before z."""
        return nests.count(self.at, self.lo, z)

    def collect(self, s: Nest, si: int, at: Nest, ai: int, lo: int, hi: int, out: list[Item]) -> None:
        """Append the ranks of the common elements of s + si and at + ai in the window to `out`."""
        self.spend(1)
        while s and at:  # go down while the window meets one block
            (a, P, p), (b, Q, q) = s[0], at[0]
            u, v = lo - (lo - p - si) % P, lo - (lo - q - ai) % Q
            if hi <= u + P:
                s, si, hi = s[1:], u, min(hi, u + a)
            elif hi <= v + Q:
                at, ai, hi = at[1:], v, min(hi, v + b)
            else:
                self.blocks(s, si, at, ai, lo, hi, out)
                return
            if lo >= hi:
                return
        base = self.rank(lo)
        if not s:
            count = nests.count(at, lo - ai, hi - ai)
            out += [Item(base, count, ())] if count else []
            return
        item = nests.clip(s, lo - si, hi - si)
        if item is not None:
            out.append(item._replace(start=base + item.start + si - lo))

    def blocks(self, s: Nest, si: int, at: Nest, ai: int, lo: int, hi: int, out: list[Item]) -> None:
        """Append what a window holds that spans several blocks of both."""
        if surely_disjoint(s, si, at, ai):
            return
        (a, P, p), (b, Q, q) = s[0], at[0]
        common = lcm(P, Q)
        found: list[Item] = []
        if hi - lo >= 2 * common:  # one period, and the ranks repeat
            one = _Sample(s, nests.shift(at, ai), lo)
            one.left = self.left
            one.collect(s, si, at, ai, lo, lo + common, found)
            self.left = one.left
            base, n = self.rank(lo), self.rank(hi) - self.rank(lo)
            again = _repeated(explicit.merge(found), one.rank(lo + common), 0, n) if found else []
            out += [item._replace(start=item.start + base) for item in again]
            return
        self.spend((hi - lo) // max(P, Q))
        if P >= Q:
            for block in range(lo - (lo - p - si) % P, hi, P):
                self.inside(s[1:], block, at, ai, max(lo, block), min(hi, block + a), found)
        else:
            for block in range(lo - (lo - q - ai) % Q, hi, Q):
                self.inside(s, si, at[1:], block, max(lo, block), min(hi, block + b), found)
        out += explicit.merge(found)

    def inside(self, s: Nest, si: int, at: Nest, ai: int, lo: int, hi: int, out: list[Item]) -> None:
        """Do as `collect` unless the window is empty."""
        if lo < hi:
            self.collect(s, si, at, ai, lo, hi, out)


class _Fill(_Pieces):
    """The elements of a nest whose ranks another nest holds."""

    __slots__ = ()

    def __init__(self, ink: Nest, at: Nest) -> None:
        super().__init__(f"fill of {at} with {ink}")

    def collect(self, at: Nest, ai: int, rank: int, ink: Nest, ki: int, lo: int, hi: int, out: list[Item]) -> None:
        """Append to `out` the elements of at + ai whose ranks are in ink + ki and in the window.

        Element 0 of `at` or the first after it has rank `rank`; the window is one of ranks.
        """
        self.spend(1)
        while at and ink:  # go down while the window meets one block
            b, Q, q = ink[0]
            u = lo - (lo - q - ki) % Q
            if hi <= u + Q:
                ink, ki, hi = ink[1:], u, min(hi, u + b)
            elif (down := _one_block(at, ai, rank, lo, hi)) is not None:
                at, ai, rank = down
            else:
                self.blocks(at, ai, rank, ink, ki, lo, hi, out)
                return
            if lo >= hi:
                return
        if not at:
            item = nests.clip(ink, lo - ki, hi - ki)
            if item is not None:
                out.append(item._replace(start=item.start + ki - rank + ai))
            return
        first, last = nests.nth(at, lo - rank), nests.nth(at, hi - 1 - rank)
        item = nests.clip(at, first, last + 1)
        if item is not None:
            out.append(item._replace(start=item.start + ai))

    def blocks(self, at: Nest, ai: int, rank: int, ink: Nest, ki: int, lo: int, hi: int, out: list[Item]) -> None:
        """Append what a window of ranks holds that spans several blocks of both."""
        (a, P, _), (b, Q, q) = at[0], ink[0]
        each = nests.count(at[1:], 0, a)
        common = lcm(each, Q)
        found: list[Item] = []
        if hi - lo >= 2 * common:  # one period of ranks, and the elements repeat
            self.collect(at, ai, rank, ink, ki, lo, lo + common, found)
            first = nests.nth(at, lo - rank) + ai
            length = nests.nth(at, hi - 1 - rank) + ai + 1 - first
            moved = [item._replace(start=item.start - first) for item in explicit.merge(found)]
            again = _repeated(moved, common // each * P, 0, length) if moved else []
            out += [item._replace(start=item.start + first) for item in again]
            return
        self.spend((hi - lo) // max(each, Q))
        if each <= Q:
            for block in range(lo - (lo - q - ki) % Q, hi, Q):
                low, high = max(lo, block), min(hi, block + b)
                if low < high:
                    self.collect(at, ai, rank, ink[1:], block, low, high, found)
        else:
            low = lo
            while low < hi:
                tail, at_block, base = _block_of(at, ai, rank, low)
                high = min(hi, _ranks_end(tail, base, a))
                self.collect(tail, at_block, base, ink, ki, low, high, found)
                low = high
        out += explicit.merge(found)


def _block_of(at: Nest, ai: int, rank: int, k: int) -> tuple[Nest, int, int]:
    """Return the inside of the block that holds the element of rank k, where it starts, and the rank of its first."""
    _, P, p = at[0]
    z = nests.nth(at, k - rank)
    block = z - (z - p) % P
    base = rank + nests.count(at, 0, block) if block >= 0 else rank - nests.count(at, block, 0)
    return at[1:], block + ai, base


def _ranks_end(tail: Nest, base: int, a: int) -> int:
    return base + nests.count(tail, 0, a)


def _one_block(at: Nest, ai: int, rank: int, lo: int, hi: int) -> tuple[Nest, int, int] | None:
    """Return the inside of the block that holds all elements of the ranks in the window, if one does."""
    down = _block_of(at, ai, rank, lo)
    return down if hi <= _ranks_end(down[0], down[2], at[0][0]) else None
