"""Unions: intersections, differences and unions of lists of disjoint nests, as lists of disjoint nests.

A window is a pair ``lo, hi``: the integers ``lo <= z < hi``. Nests are canonical; see `nest.canonical`. An
operation gives up when it has tried more blocks than are worth the pieces allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, islice
from math import gcd, lcm

from tapestry_sets.integers import explicit, ranks, tuning
from tapestry_sets.integers.nest import EMPTY, Nest, complement, count, period
from tapestry_sets.integers.pairs import surely_disjoint
from tapestry_sets.limits import Budget, Question, TooHard, TooManyPieces, check_pieces, current

Within = tuple[int, int]
"""A window: the integers start <= z < stop."""


class _Blocks:
    """The blocks that an operation may try, all pairs of members together."""

    __slots__ = ("budget", "what", "within")

    def __init__(self, what: str, within: Within | None) -> None:
        self.what = what
        self.within = within
        self.budget = Budget(max(tuning.MIN_BLOCKS, tuning.BLOCKS_A_PIECE * current().max_pieces))

    def are_apart(self, x: Nest, y: Nest, met: Iterable[Nest]) -> bool:
        """Return whether x and y are seen to be apart; else take what x and all that it is `met` with cost."""
        if is_apart := surely_disjoint(x, 0, y, 0):
            blocks = 1
        else:
            blocks = sum([_blocks(x, t) for t in met])
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
    blocks = _Blocks("intersection", within)
    out: list[Nest] = []
    for x in xs:
        for y in ys:
            if not blocks.are_apart(x, y, [y]):
                out += explicit.meet(x, y) if within is None else explicit.meet_within(x, y, *within)
                check_pieces(len(out), "intersection")
    return joined_cheaply(out)


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
    if len(xs) == 1 == len(ys) and within is None:
        return settled(explicit.subtract(xs[0], ys[0]))
    left = list(xs) if within is None else [t for x in xs for t in explicit.meet_within(x, (), *within)]
    blocks = _Blocks("difference", within)
    for y in ys:
        outside = complement(y)
        kept: list[Nest] = []
        for x in left:
            if blocks.are_apart(x, y, outside):
                kept.append(x)
            else:
                kept += explicit.subtract(x, y) if within is None else explicit.subtract_within(x, y, *within)
                check_pieces(len(kept), "difference")
        left = kept
    return settled(explicit.merge_alike(left))


def union(xs: Sequence[Nest], ys: Sequence[Nest], within: Within | None = None) -> list[Nest]:
    """Return the elements of either of two disjoint unions: all of the denser one, and what the other has beside it.

    The pieces are cut out of the sparser one, since most of it lies in the denser one and leaves few of them.

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
    one, two = _density(xs), _density(ys)
    if one < two:
        xs, ys = ys, xs
    beside = subtract(ys, xs, within)
    if one + two > tuning.NEARLY_ALL:
        return joined_cheaply([*xs, *beside])
    periods = {period(s) for s in xs}
    every = [*xs, *beside]
    return settled(explicit.merge_alike(every) if not periods.isdisjoint(map(period, beside)) else every)


def _density(every: Iterable[Nest]) -> float:
    """Return about which part of all integers disjoint nests hold."""
    return sum([count(s[1:], 0, s[0][0]) / s[0][1] if s else 1.0 for s in every])


def close_pairs(every: Sequence[Nest]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of nests whose outermost blocks meet: no others can share an element.

    Blocks of two periods meet if they do modulo the gcd of both. So the nests are sorted by their blocks' starts, for
    each two periods, and each is compared with those that start before its block ends.

    Examples
    --------
    >>> list(close_pairs([((1, 6, 0),), ((2, 6, 1),), ((1, 9, 2),)]))
    [(1, 2)]
    """
    by_period: dict[int, list[int]] = {}
    for i, s in enumerate(every):
        if s != EMPTY:
            by_period.setdefault(period(s), []).append(i)
    for P, own in by_period.items():
        yield from _close_blocks(every, own, (), P)
    for (P, one), (Q, two) in combinations(by_period.items(), 2):
        yield from _close_blocks(every, one, two, gcd(P, Q))


def _close_blocks(every: Sequence[Nest], one: Sequence[int], two: Sequence[int], P: int) -> Iterator[tuple[int, int]]:
    """The pairs of some nests, or of some with others, whose outermost blocks meet modulo P."""
    blocks = [(every[i][0][2] % P, every[i][0][0], i) if every[i] else (0, 1, i) for i in (*one, *two)]
    blocks.sort()
    theirs = set(two)
    around = [*blocks, *[(start + P, on, i) for start, on, i in blocks]]
    for k, (start, on, i) in enumerate(blocks):
        for at, _, j in islice(around, k + 1, k + len(blocks)):
            if at >= start + on:
                break
            if not two or (i in theirs) != (j in theirs):
                yield min(i, j), max(i, j)


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
    if _blocks_together(s, t) > tuning.SPREAD:
        return None
    common = lcm(s[0][1], t[0][1])
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


def joined_cheaply(every: Iterable[Nest]) -> list[Nest]:
    """Return fewer disjoint nests: blocks of one period are joined, and few blocks of several where they make one nest.

    Blocks of one period join where they touch and where equal ones are at equal distances; nests that hold every
    integer together are one. All of this takes microseconds; `simplified` looks for what is left.

    Examples
    --------
    >>> joined_cheaply([((1, 6, 0),), ((1, 7, 3),), ((1, 6, 3),)])
    [((1, 3, 0),), ((1, 7, 3),)]
    """
    left = explicit.merge_alike([s for s in every if s != EMPTY])
    if len(left) < 2:
        return left
    return [()] if _density(left) > tuning.NEARLY_ALL and _are_everything(left) else settled(left)


def settled(met: list[Nest]) -> list[Nest]:
    """Return what `joined_cheaply` does, sooner, for nests whose blocks of one period are joined already."""
    if len(met) < 2:
        return met
    by_period: dict[int, list[Nest]] = {}
    for s in met:
        by_period.setdefault(s[0][1], []).append(s)
    if len(by_period) == 1 or len(met) > tuning.MAX_JOINED_MEMBERS:
        return met
    for ones, twos in combinations(by_period.values(), 2):
        if _blocks_together(ones[0], twos[0]) <= tuning.SPREAD and any(joined(s, t) for s in ones for t in twos):
            return fold(met, joined)
    return met


def _blocks_together(s: Nest, t: Nest) -> int:
    """Return how many blocks of the outermost levels of two nests lie in a common period."""
    P, Q = s[0][1], t[0][1]
    return (P + Q) // gcd(P, Q)


def simplified(every: Iterable[Nest]) -> list[Nest]:
    """Return as few disjoint nests as the search for one nest of two finds: no two of those returned make one.

    Examples
    --------
    >>> simplified([((4, 10, 0), (1, 3, 0)), ((1, 10, 6),)])
    [((7, 10, 0), (1, 3, 0))]
    """
    with Question() as budget:
        return fold(joined_cheaply(explicit.merge_nests(every)), lambda s, t: _sought(s, t, budget))


def _sought(s: Nest, t: Nest, budget: Budget) -> Nest | None:
    """Return what `ranks.join` does, within the budget of a question."""
    attempts = Budget(tuning.ATTEMPTS)
    found = ranks.join(s, t, attempts)
    if not budget.spend(tuning.BRANCHES_AN_ATTEMPT * (1 + attempts.spent)):
        raise TooHard(
            f"simplify: the search for one nest of {s} and {t}, and of pairs before them, took more than "
            f"{current().budget} branches; limits(budget={4 * current().budget}) allows more, and the set as it is "
            "answers every question"
        )
    return found


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


def _are_everything(every: Sequence[Nest]) -> bool:
    """Return whether disjoint nests hold every integer."""
    common = lcm(*map(period, every))
    return sum([count(s, 0, period(s)) * (common // period(s)) for s in every]) == common
