"""Unions: intersections, differences and unions of lists of disjoint nests, as lists of disjoint nests.

A window is a pair ``lo, hi``: the integers ``lo <= z < hi``. Nests are canonical; see `nest.canonical`. An
operation gives up when it has tried more blocks than are worth the pieces allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import gcd

from tapestry_sets.integers import explicit, tuning
from tapestry_sets.integers.nest import EMPTY, Nest, complement, count, period
from tapestry_sets.integers.pairs import surely_disjoint
from tapestry_sets.limits import Budget, TooManyPieces, check_pieces, current

Within = tuple[int, int]
"""A window: the integers start <= z < stop."""


class _Blocks:
    """The blocks that an operation may try, all pairs of members together."""

    __slots__ = ("budget", "met", "what", "within")

    def __init__(self, what: str, within: Within | None, met: Callable[[Nest], list[Nest]]) -> None:
        self.what = what
        self.within = within
        self.met = met
        self.budget = Budget(max(tuning.MIN_BLOCKS, tuning.BLOCKS_A_PIECE * current().max_pieces))

    def are_apart(self, x: Nest, y: Nest) -> bool:
        """Return whether x and y are seen to be apart; else take what x and all that it is met with cost."""
        if is_apart := surely_disjoint(x, 0, y, 0):
            blocks = 1
        else:
            blocks = sum([_blocks(x, t) for t in self.met(y)])
            if self.within is not None:
                blocks = min(blocks, (self.within[1] - self.within[0]) // max(period(x), period(y)))
            blocks += tuning.PAIR
        if not self.budget.spend(blocks):
            most = current().max_pieces
            raise TooManyPieces(
                f"{self.what}: lists too many blocks for {most} pieces; count_common, first_common and isdisjoint "
                f"need none, and limits(max_pieces={4 * most}) allows more"
            )
        return is_apart


def _blocks(s: Nest, t: Nest) -> int:
    """Return how many blocks `explicit.meet` tries to begin with."""
    if not s or not t:
        return 1
    (a, P, _), (b, Q, _) = s[0], t[0]
    g = gcd(P, Q)
    return min(Q // g, P // g, (a + b - 1) // g)


def meet(xs: Sequence[Nest], ys: Sequence[Nest], within: Within | None = None) -> list[Nest]:
    """Return the common elements of two disjoint unions.

    Raises
    ------
    TooManyPieces
        If more than the pieces allowed are needed, or too many blocks are tried.

    Examples
    --------
    >>> meet([((1, 6, 0),), ((1, 6, 1),)], [((1, 2, 0),)])
    [((1, 6, 0),)]
    """
    if len(xs) == 1 == len(ys):
        return explicit.meet(xs[0], ys[0]) if within is None else explicit.meet_within(xs[0], ys[0], *within)
    blocks = _Blocks("intersection", within, lambda y: [y])
    out: list[Nest] = []
    for x in xs:
        for y in ys:
            if not blocks.are_apart(x, y):
                out += explicit.meet(x, y) if within is None else explicit.meet_within(x, y, *within)
                check_pieces(len(out), "intersection")
    return explicit.merge_nests(out)


def subtract(xs: Sequence[Nest], ys: Sequence[Nest], within: Within | None = None) -> list[Nest]:
    """Return the elements of one disjoint union that are not in another.

    Raises
    ------
    TooManyPieces
        If more than the pieces allowed are needed, or too many blocks are tried.

    Examples
    --------
    >>> subtract([()], [((1, 6, 0),), ((2, 6, 4),)])
    [((3, 6, 1),)]
    """
    left = list(xs) if within is None else [t for x in xs for t in explicit.meet_within(x, (), *within)]
    blocks = _Blocks("difference", within, complement)
    for y in ys:
        kept: list[Nest] = []
        for x in left:
            if blocks.are_apart(x, y):
                kept.append(x)
            else:
                kept += explicit.subtract(x, y) if within is None else explicit.subtract_within(x, y, *within)
                check_pieces(len(kept), "difference")
        left = kept
    return explicit.merge_nests(left)


def union(xs: Sequence[Nest], ys: Sequence[Nest], within: Within | None = None) -> list[Nest]:
    """Return the shorter of xs + (ys - xs) and ys + (xs - ys), merged.

    Raises
    ------
    TooManyPieces
        If more than the pieces allowed are needed, or too many blocks are tried.

    Examples
    --------
    >>> union([((1, 3, 0),)], [((2, 6, 0),)])
    [((1, 3, 0),), ((1, 6, 1),)]
    """
    if within is not None:
        xs, ys = subtract(xs, (), within), subtract(ys, (), within)
    one = explicit.merge_nests([*xs, *subtract(ys, xs, within)])
    if len(one) < 2:
        return one
    two = explicit.merge_nests([*ys, *subtract(xs, ys, within)])
    return min(one, two, key=len)


# ------------------------------------------------------------------ no two members make one


def joined(s: Nest, t: Nest) -> Nest | None:
    """Return one nest for two disjoint ones, whose blocks in a common period join into it; None if they do not.

    Blocks join where they touch, and where equal ones are at equal distances. They are looked at if they are
    at most 64 in the common period.

    Examples
    --------
    >>> joined(((1, 6, 0),), ((1, 6, 3),)), joined(((1, 6, 0),), ((1, 7, 3),))
    (((1, 3, 0),), None)
    """
    if not s or not t or not _may_join(s, t):
        return None
    P, Q = s[0][1], t[0][1]
    common = P // gcd(P, Q) * Q
    if common // P + common // Q > tuning.SPREAD:
        return None
    found = explicit._with_period(explicit._spread([s, t], common), common)
    return found[0] if len(found) == 1 else None


def _may_join(s: Nest, t: Nest) -> bool:
    """Return whether blocks of two nests are equal or touch; else each nest's blocks join among themselves alone."""
    (a, P, p), (b, Q, q) = s[0], t[0]
    if a == b and s[1:] == t[1:]:
        return True
    if len(s) > 1 or len(t) > 1:
        return False
    g = gcd(P, Q)
    return (p + a - q) % g == 0 or (q + b - p) % g == 0


def settled(met: list[Nest]) -> list[Nest]:
    """Reduce as `reduced` does, sooner, the common elements of two nests as `explicit.meet` returns them.

    There the blocks of one period are joined already, but for equal ones that are interleaved.
    """
    if len(met) < 2:
        return met
    common, blocks = met[0][0][1], set()
    for s in met:
        on, P, _ = s[0]
        if common != P:
            return reduced(met)
        blocks.add((on, s[1:]))
    return met if len(blocks) == len(met) else reduced(met)


def reduced(every: Iterable[Nest]) -> list[Nest]:
    """Return disjoint nests no two of which are `joined`, if they are no more than 64.

    Examples
    --------
    >>> reduced([((1, 6, 0),), ((1, 7, 3),), ((1, 6, 3),)])
    [((1, 7, 3),), ((1, 3, 0),)]
    """
    left = [s for s in every if s != EMPTY]
    if len(left) == 2 and _are_everything(*left):
        return [()]
    if len(left) > tuning.MAX_JOINED_MEMBERS:
        return left
    return fold(left, joined)


def fold(left: list[Nest], join: Callable[[Nest, Nest], Nest | None]) -> list[Nest]:
    """Return nests no two of which `join` makes one."""
    kept: list[Nest] = []
    while left:
        t = left.pop(0)
        for i, s in enumerate(kept):
            one = join(s, t)
            if one is not None:
                del kept[i]
                left.insert(0, one)
                break
        else:
            kept.append(t)
    return kept


def _are_everything(s: Nest, t: Nest) -> bool:
    """Return whether two disjoint nests hold every integer."""
    if not s or not t:
        return True
    (_, P, _), (_, Q, _) = s[0], t[0]
    common = P // gcd(P, Q) * Q
    return count(s, 0, P) * (common // P) + count(t, 0, Q) * (common // Q) == common
