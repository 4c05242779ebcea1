"""Unions: intersections, differences and unions of lists of disjoint nests, as lists of disjoint nests.

A window is a pair ``lo, hi``: the integers ``lo <= z < hi``. Nests are canonical; see `nest.canonical`. An
operation gives up when it has tried more blocks than are worth the pieces allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, pairwise, product
from math import gcd, lcm

from tapestry_sets.integers import blocks, explicit, ranks, tuning
from tapestry_sets.integers.nest import EMPTY, Nest, complement, count, period
from tapestry_sets.integers.pairs import surely_disjoint
from tapestry_sets.limits import Budget, Question, TooHard, TooManyPieces, check_pieces, current

Within = tuple[int, int]
"""A window: the integers start <= z < stop."""


class _Tries:
    """The blocks that an operation may try, all pairs of members together."""

    __slots__ = ("budget", "what", "within")

    def __init__(self, what: str, within: Within | None) -> None:
        self.what = what
        self.within = within
        self.budget = Budget(max(tuning.MIN_BLOCKS, tuning.BLOCKS_A_PIECE * current().max_pieces))

    def spend(self, tried: int) -> None:
        """Take blocks from the budget, or raise `TooManyPieces`."""
        if not self.budget.spend(tried):
            most = current().max_pieces
            raise TooManyPieces(
                f"{self.what}: lists too many blocks for {most} pieces; count_common, first_common and isdisjoint "
                f"need none, and limits(max_pieces={4 * most}) allows more"
            )

    def meet(self, every: Sequence[tuple[Nest, Sequence[Nest]]]) -> list[Nest]:
        """Return what nests share each with parts of which no two touch; what all take is spent before one is met."""
        for x, parts in every:
            tried = sum([_blocks(x, t) for t in parts])
            if self.within is not None:
                length = self.within[1] - self.within[0]
                tried = min(tried, sum([length // max(period(x), period(t)) for t in parts]))
            self.spend(tried + tuning.PAIR)
        out: list[Nest] = []
        for x, parts in every:
            out += (
                explicit.meet_each(x, parts)
                if self.within is None
                else explicit.meet_each_within(x, parts, *self.within)
            )
            check_pieces(len(out), self.what)
        return out


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
    listed = _by_blocks(xs, ys, within, blocks.COMMON, "intersection")
    if listed is not None:
        return settled(listed)
    budget = _Tries("intersection", within)
    return joined_cheaply(budget.meet([(x, [y]) for x, near in _met_by(xs, ys, budget) for y in near]))


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
    return settled(_without(xs, ys, within))


def _without(xs: Sequence[Nest], ys: Sequence[Nest], within: Within | None) -> list[Nest]:
    """Return what `subtract` does, with the blocks of one period joined."""
    if len(xs) == 1 == len(ys) and within is None:
        return explicit.subtract(xs[0], ys[0])
    listed = _by_blocks(xs, ys, within, blocks.OUTSIDE, "difference")
    if listed is not None:
        return listed
    left = list(xs) if within is None else [t for x in xs for t in explicit.meet_within(x, (), *within)]
    budget = _Tries("union or difference", within)
    for group in _by_period(ys).values():
        apart: list[Nest] = []
        cut: list[tuple[Nest, Sequence[Nest]]] = []
        outside: dict[tuple[Nest, ...], list[Nest]] = {}
        for x, near in _met_by(left, group, budget):
            if not near:
                apart.append(x)
                continue
            if 2 * len(near) > len(group):
                near = tuple(group)  # once for all that meet most of them
            if near not in outside:
                outside[near] = _outside(near, budget)
            cut.append((x, outside[near]))
        left = [*apart, *budget.meet(cut)]
    return explicit.merge_alike(left)


def _by_period(every: Iterable[Nest]) -> dict[int, list[Nest]]:
    groups: dict[int, list[Nest]] = {}
    for s in every:
        groups.setdefault(period(s), []).append(s)
    return groups


def _numbered_by_period(every: Iterable[Nest]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for i, s in enumerate(every):
        if s != EMPTY:
            groups.setdefault(period(s), []).append(i)
    return groups


def _met_by(xs: Sequence[Nest], ys: Sequence[Nest], budget: _Tries) -> Iterator[tuple[Nest, tuple[Nest, ...]]]:
    """Yield each nest of a disjoint union with those of another that are not seen to be apart from it."""
    near: list[dict[int, Nest]] = [{} for _ in xs]
    for (P, one), (Q, two) in product(_numbered_by_period(xs).items(), _numbered_by_period(ys).items()):
        if gcd(P, Q) == 1:  # what is in one period of each meets
            budget.spend(len(one) * len(two))
            for i in one:
                near[i].update([(j, ys[j]) for j in two])
            continue
        every = [*[xs[i] for i in one], *[ys[j] for j in two]]
        for i, j in close_pairs(every, len(one)):
            budget.spend(1)
            if len(every[i]) < 2 > len(every[j]) or not surely_disjoint(every[i], 0, every[j], 0):
                near[one[i]][two[j - len(one)]] = every[j]
    for x, found in zip(xs, near, strict=True):
        yield x, tuple(found.values())


def _outside(every: Sequence[Nest], budget: _Tries) -> list[Nest]:
    """Return what lies outside disjoint nests of one period, as disjoint nests of which no two touch.

    It lies between their outermost blocks, and in the gaps inside of these. A nest in whose gaps others lie is taken
    apart into its blocks without an inside first, if these are few::

        a.b.a.......c.c.c.....      the gaps around a, b, a and all of c, and those inside of c as one nest
    """
    if len(every) == 1:
        return complement(every[0])
    P = period(every[0])
    members = sorted(every, key=lambda s: s[0][2])
    starts = [s[0][2] for s in members]
    end = max([p + a for (a, _, p), *_ in members]) - P  # of what begins in the period before
    spans: list[tuple[int, int]] = []
    inside: list[Nest] = []
    entered: list[Nest] = []
    for s, following in zip(members, [*starts[1:], starts[0] + P], strict=True):
        a, _, p = s[0]
        if end <= p and p + a <= following:
            spans.append((p, p + a))
            inside += complement(s)[1:]
        else:
            entered.append(s)
        end = max(end, p + a)
    if blocks.many(entered, 0, P) > tuning.MAX_LISTED_BLOCKS:  # one after the other
        outside: list[Nest] = [()]
        for s in every:
            outside = budget.meet([(x, complement(s)) for x in outside])
        return outside
    if entered:
        spans = sorted([*spans, *zip(*[ends.tolist() for ends in blocks.listed(entered, 0, P)], strict=True)])
    around = pairwise([*spans, (spans[0][0] + P, 0)])
    gaps = [(stop, start - stop, ()) for (_, stop), (start, _) in around if stop < start]
    return [*explicit.repeat_found(explicit.by_kind(gaps), P, are_apart=True), *inside]


def _by_blocks(
    xs: Sequence[Nest], ys: Sequence[Nest], within: Within | None, wanted: blocks.Wanted, what: str
) -> list[Nest] | None:
    """Return what lies in one or in both of two disjoint unions, by their blocks; None if pairs are few or blocks many.

    The pieces of few members are fewer where these are met one by one, since levels of theirs stay whole.
    """
    if len(xs) * len(ys) <= tuning.MAX_MET_PAIRS:
        return None
    lo, hi = within or (0, lcm(*map(period, (*xs, *ys))))
    # in a window of a few periods long runs would lie within each other, and not be joined any more
    distances = blocks.common_periods((*xs, *ys)) if within is None else []

    def list_between(start: int, stop: int, repeats: bool = False) -> list[Nest]:
        left = blocks.sweep(blocks.listed(xs, start, stop), blocks.listed(ys, start, stop), wanted)
        return blocks.joined(left, start, stop, distances, repeats)

    many = blocks.many((*xs, *ys), lo, hi)
    if many > tuning.MAX_LISTED_BLOCKS:
        length = (hi - lo) * tuning.SAMPLED_BLOCKS // many
        if blocks.many((*xs, *ys), 0, length) <= tuning.MAX_LISTED_BLOCKS // 4:  # else they are close together
            _foresee(list_between, lo, hi, length, what)
        if many > tuning.MAX_SWEPT_BLOCKS:
            return None
    found = list_between(lo, hi, within is None)
    check_pieces(len(found), what)
    return found


def _foresee(list_between: Callable[[int, int], list[Nest]], lo: int, hi: int, length: int, what: str) -> None:
    """Raise `TooManyPieces` where a sample of a length tells that a window, of many blocks, will have too many pieces.

    A nest has one piece in any window. So what a few members hold has no more pieces in a longer window, and what has
    four times as many in one four times as long goes on like that.
    """
    if length < 4:
        return
    start = lo + (hi - lo) // 3  # where no phase is likely to be
    few, some = (len(list_between(start, start + each)) for each in (length // 4, length))
    about, most = some * (hi - lo) // length, current().max_pieces
    if some > tuning.SAMPLED_PIECES and some > 3 * few and about > 2 * most:
        raise TooManyPieces(
            f"{what}: about {about} pieces, since {length} integers have {some}, more than {most}; count_common, "
            f"first_common and isdisjoint need none, and limits(max_pieces={2 * about}) allows more"
        )


def either(xs: Sequence[Nest], ys: Sequence[Nest], within: Within | None = None) -> list[Nest]:
    """Return the elements of exactly one of two disjoint unions.

    Raises
    ------
    TooManyPieces
        If more than the pieces allowed are needed, or too many blocks are tried.

    Examples
    --------
    >>> either([((2, 4, 0),)], [((2, 4, 1),)])
    [((1, 2, 0),)]
    """
    listed = _by_blocks(xs, ys, within, blocks.EITHER, "symmetric difference")
    if listed is not None:
        return settled(listed)
    return joined_cheaply([*subtract(xs, ys, within), *subtract(ys, xs, within)])


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
    beside = _without(ys, xs, within)
    every = [*xs, *beside]
    if one + two > tuning.NEARLY_ALL and _are_everything(every):
        return [()]
    periods = {period(s) for s in xs}
    return settled(every if periods.isdisjoint(map(period, beside)) else explicit.merge_alike(every))


def _density(every: Iterable[Nest]) -> float:
    """Return about which part of all integers disjoint nests hold."""
    return sum([count(s[1:], 0, s[0][0]) / s[0][1] if s else 1.0 for s in every])


def close_pairs(every: Sequence[Nest], n: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the numbers of nests whose outermost blocks meet: no others can share an element.

    Blocks of two periods meet if they do modulo the gcd of both. So the nests are sorted by their blocks' starts, for
    each two periods, and each is compared with those that start before its block ends. With `n` the pairs are of one
    of the first n and one of the others; a pair may come twice.

    Examples
    --------
    >>> every = [((1, 6, 0),), ((2, 6, 1),), ((1, 9, 2),)]
    >>> list(close_pairs(every)), list(close_pairs(every, 1))
    ([(1, 2)], [])
    """
    by_period: dict[int, list[int]] = {}
    for i, s in enumerate(every[:n]):
        if s != EMPTY:
            by_period.setdefault(period(s), []).append(i)
    if n is None:
        for P, own in by_period.items():
            yield from _close_blocks(every, own, (), P)
        for (P, one), (Q, two) in combinations(by_period.items(), 2):
            yield from _close_blocks(every, one, two, gcd(P, Q))
    else:
        others: dict[int, list[int]] = {}
        for j in range(n, len(every)):
            if every[j] != EMPTY:
                others.setdefault(period(every[j]), []).append(j)
        for (P, one), (Q, two) in product(by_period.items(), others.items()):
            yield from _close_blocks(every, one, two, gcd(P, Q))


def _close_blocks(every: Sequence[Nest], one: Sequence[int], two: Sequence[int], P: int) -> Iterator[tuple[int, int]]:
    """The pairs of some nests, or of some with others, whose outermost blocks meet modulo P."""
    ours = _blocks_modulo(every, one, P)
    if not two:
        yield from _meeting(ours, ours, P, own=True)
        return
    # Each list looks among the other's starts alone: modulo a small P blocks of one list lie on each other, and none
    # of those pairs, which may be all, is asked for.
    theirs = _blocks_modulo(every, two, P)
    yield from _meeting(ours, theirs, P)
    yield from _meeting(theirs, ours, P)


def _blocks_modulo(every: Sequence[Nest], some: Sequence[int], P: int) -> list[tuple[int, int, int]]:
    """The outermost blocks of some nests modulo P, in ascending order: (start, length, number of the nest)."""
    return sorted([(every[i][0][2] % P, every[i][0][0], i) if every[i] else (0, 1, i) for i in some])


def _meeting(
    ours: Sequence[tuple[int, int, int]], theirs: Sequence[tuple[int, int, int]], P: int, own: bool = False
) -> Iterator[tuple[int, int]]:
    """The pairs of blocks of which the second begins within the first, modulo P; of one list behind it there."""
    n = len(theirs)
    around = [*theirs, *[(start + P, on, j) for start, on, j in theirs]]
    k = 0
    for at, (start, on, i) in enumerate(ours):
        while k < n and theirs[k][0] < start:
            k += 1
        stop = start + on
        for m in range(at + 1, at + n) if own else range(k, k + n):
            begins, _, j = around[m]
            if begins >= stop:
                break
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
    if not s or not t or _blocks_together(s[0][1], t[0][1]) > tuning.SPREAD:
        return None
    # Blocks that differ must touch, and all in the same way, so that the joined ones are equal. As many blocks in a
    # row as there are in a common period, one of s and one of t in turn: one of each, or two around one.
    are_alike = s[0][0] == t[0][0] and s[1:] == t[1:]
    if not are_alike and (len(s) > 1 or len(t) > 1 or not _are_simple(s[0][1], t[0][1])):
        return None
    common = lcm(s[0][1], t[0][1])
    found = explicit.repeat_found(explicit.spread([s, t], common), common)
    return found[0] if len(found) == 1 else None


def _are_simple(P: int, Q: int) -> bool:
    """Return whether two periods are equal, or one is twice the other."""
    return P == Q or P == 2 * Q or Q == 2 * P


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
    return [()] if _are_everything(left) else settled(left)


def settled(met: list[Nest]) -> list[Nest]:
    """Return what `joined_cheaply` does, sooner, for nests whose blocks of one period are joined already."""
    if len(met) < 2:
        return met
    kinds: dict[int, set[tuple[int, Nest]]] = {}
    for s in met:
        P = s[0][1]
        if P not in kinds:
            kinds[P] = set()
        kinds[P].add((s[0][0], s[1:]))
    if len(kinds) == 1 or len(met) > tuning.MAX_JOINED_MEMBERS:
        return met
    for (P, ones), (Q, twos) in combinations(kinds.items(), 2):
        if _blocks_together(P, Q) <= tuning.SPREAD and (_are_simple(P, Q) or not ones.isdisjoint(twos)):
            return fold(met, joined)
    return met


def _blocks_together(P: int, Q: int) -> int:
    """Return how many blocks stripes of two periods have in a common one."""
    return (P + Q) // gcd(P, Q)


def simplified(every: Iterable[Nest]) -> list[Nest]:
    """Return as few disjoint nests as the search for one nest of two finds: no two of those returned make one.

    Examples
    --------
    >>> simplified([((4, 10, 0), (1, 3, 0)), ((1, 10, 6),)])
    [((7, 10, 0), (1, 3, 0))]
    """
    found = joined_cheaply(explicit.merge_nests(every))
    with Question() as budget:
        return fold(found, _Search(len(found), budget).join)


class _Search:
    """The search for one nest of each two of some, within the budget of a question."""

    __slots__ = ("budget", "left", "members", "pairs")

    def __init__(self, members: int, budget: Budget) -> None:
        self.members = self.left = members
        self.pairs = 0
        self.budget = budget

    def join(self, s: Nest, t: Nest) -> Nest | None:
        """Return what `ranks.join` does."""
        attempts = Budget(tuning.ATTEMPTS)
        found = ranks.join(s, t, attempts)
        self.pairs += 1
        self.left -= found is not None
        if not self.budget.spend(tuning.BRANCHES_AN_ATTEMPT * (1 + attempts.spent)):
            # every pair of those left may be looked at once more, and none of them make one
            most = self.left * self.left // 2 * tuning.BRANCHES_AN_ATTEMPT * (1 + tuning.ATTEMPTS)
            enough = max(most, 2 * current().budget)
            raise TooHard(
                f"simplify: {self.pairs} pairs of {self.members} members were looked at, and made them {self.left}, "
                f"when more than {current().budget} branches were taken; limits(budget={enough}) lets the search "
                "end, and the set as it is answers every question"
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
    if sum([s[0][0] / s[0][1] if s else 1.0 for s in every]) < tuning.NEARLY_ALL or _density(every) < tuning.NEARLY_ALL:
        return False  # which floats tell of most: their outermost blocks, and then their elements, are too few
    common = lcm(*map(period, every))
    return sum([count(s, 0, period(s)) * (common // period(s)) for s in every]) == common
