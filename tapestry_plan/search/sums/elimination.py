"""Exact minimization of a sum of tables by eliminating one variable after another.

Costs are pairs (picoseconds, bytes) of integers compared in this order, so results are exact and ties go to
fewer bytes. With tables that fit, the result is its own proof of optimality. Where a table would grow past
the cap, the bucket is split (mini-bucket elimination, Dechter and Rish 2003): the result of the elimination
is then a lower bound, and the assignment can be improved by moves of one variable at a time.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import lru_cache, reduce
from heapq import heapify, heappop, heappush
from itertools import product
from math import inf, prod
from typing import Any

import numpy as np
from msgspec import Struct

from tapestry_plan.search import tuning
from tapestry_plan.search.sums.minima import add_small, find_least_over
from tapestry_plan.search.sums.reduction import Factor, IntArray, leave_out_dominated

_WORST = int(np.iinfo(np.int64).max)


class Minimum(Struct, frozen=True):
    """An assignment, its cost, and a proven lower bound on every assignment's cost.

    `exact` says whether no table was split: the cost and the bound are then equal. `entries` are those of all joint
    tables that were gone through, of alike ones once. Assignments of `bound_ticks` have `bound_nbytes` at least.
    """

    choice: tuple[int, ...]
    ticks: int
    nbytes: int
    bound_ticks: int
    bound_nbytes: int
    exact: bool
    entries: int


def minimize(
    sizes: Sequence[int],
    factors: Sequence[Factor],
    *,
    cap: int = tuning.MAX_TABLE_ENTRIES,
    total: int = tuning.MAX_ENTRIES,
    rough: int = tuning.MAX_ENTRIES,
    reduces: bool = True,
    tell: Callable[[int, int], None] | None = None,
) -> Minimum:
    """Choose a value for each variable so that the factors' sum is least.

    Parameters
    ----------
    sizes : sequence of int
        Number of values of each variable.
    factors : sequence of Factor
    cap : int
        Entries of the largest joint table to go through.
    total : int
        Entries of all of them; as they are used up, tables are split earlier.
    rough : int
        The same where some must be split in any case, so that nothing is proved.
    reduces : bool
        Whether dominated values are looked for first: it pays where tables are large.
    tell : callable, optional
        ``(done, total)``: told how many variables are eliminated.

    Returns
    -------
    Minimum

    References
    ----------
    Bertelè and Brioschi, "Nonserial Dynamic Programming", 1972; min-fill order as in Koller and Friedman.
    """
    every = factors
    kept: list[IntArray] | None = None
    rehearsed = _sweep(sizes, factors, cap, total, project=_rehearse) if reduces else None
    # Where all is gone through and that is little, it costs less than to reduce it.
    if rehearsed and not (rehearsed.exact and rehearsed.entries <= tuning.FEW_ENTRIES):
        kept, factors = leave_out_dominated(sizes, factors)
        sizes = [len(values) for values in kept]
        if rough < total and not _sweep(sizes, factors, cap, total, project=_rehearse).exact:
            total = rough
    swept = _sweep(sizes, factors, cap, total, tell=tell)
    # Backwards: what a variable's tables share with others was eliminated after it, and is chosen by now.
    choice = [0] * len(sizes)
    for var, bucket in reversed(swept.chosen):
        choice[var] = _best_value(*alternatives(var, choice, bucket, sizes[var]))
    if kept is not None:
        choice = [int(values[value]) for values, value in zip(kept, choice, strict=True)]
    ticks, nbytes = evaluate(choice, every)
    assert ticks >= swept.ticks, "an assignment cannot cost less than the bound"
    return Minimum(tuple(choice), ticks, nbytes, swept.ticks, swept.nbytes, swept.exact, swept.entries)


def fits(sizes: Sequence[int], factors: Sequence[Factor], total: int) -> bool:
    """Whether elimination needs no more than so many entries, and splits no table."""
    swept = _sweep(sizes, factors, tuning.MAX_TABLE_ENTRIES, tuning.MAX_ENTRIES, project=_rehearse)
    return swept.exact and swept.entries <= total


def count_joint(sizes: Sequence[int], factors: Sequence[Factor], cap: int) -> int:
    """Entries that elimination goes through, of alike tables once, where larger ones than a cap are split."""
    return _sweep(sizes, factors, cap, cap * tuning.SHARES * (len(sizes) + 1), project=_rehearse).entries


class _Swept(Struct):
    """What elimination came to: what each variable's tables were, the least sum, and tables of variables that stay."""

    chosen: list[tuple[int, list[Factor]]]
    left: list[Factor]
    ticks: int
    nbytes: int
    exact: bool
    entries: int


def _sweep(
    sizes: Sequence[int],
    factors: Sequence[Factor],
    cap: int,
    total: int,
    beside: frozenset[int] = frozenset(),
    project: Callable[[Sequence[Factor], Sequence[int], int, Sequence[int]], Factor] | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> _Swept:
    """Eliminate every variable but some; `project` takes one out of the sum of some tables."""
    project = project or _project_out
    factors = settle(sizes, factors, beside)
    done = [factor for factor in factors if not factor.scope]
    tables = _Buckets(sizes, factors)
    chosen: list[tuple[int, list[Factor]]] = []
    exact = True
    made: dict[Hashable, Factor] = {}
    balance = None if project is _rehearse else Balance()
    entries, room = 0, tuning.MAX_KEPT_ENTRIES
    for k, var in enumerate(_find_order(tuple(sizes), frozenset(factor.scope for factor in factors), beside)):
        if tell is not None:
            tell(k, len(sizes))
        if sizes[var] == 1:
            continue
        bucket = tables.take(var)
        chosen.append((var, bucket))
        # As work is used up, and the memory of what is kept, tables are split earlier.
        least = tuning.MIN_SPLIT_ENTRIES
        widest = min(cap, max((total - entries) // tuning.SHARES, least))
        groups = split_bucket(bucket, sizes, widest, sizes[var] * max(room // tuning.SHARES, least))
        exact = exact and len(groups) <= 1
        for group in balance.shift(groups, var, sizes) if balance else groups:
            scope = tuple(sorted({v for factor in group for v in factor.scope}))
            # What stands many times is projected once: where the same tables meet in the same way, so do their minima.
            alike = scope.index(var), tuple((id(f.ticks), id(f.nbytes), *map(scope.index, f.scope)) for f in group)
            if alike not in made:
                made[alike] = message = project(group, scope, var, sizes)
                entries += prod([sizes[v] for v in scope])
                room -= message.ticks.size
            found = made[alike]
            if len(scope) > 1:
                tables.add(Factor(tuple(v for v in scope if v != var), found.ticks, found.nbytes))
            else:
                done.append(found)
    left = [factor for var in sorted(beside) for factor in tables.take(var)]
    ticks, nbytes = (sum(int(one) for one in each) for each in ([f.ticks for f in done], [f.nbytes for f in done]))
    return _Swept(chosen, left, ticks, nbytes, exact, entries)


def settle(sizes: Sequence[int], factors: Sequence[Factor], beside: frozenset[int]) -> list[Factor]:
    """The tables without axes of variables that have one value; alike ones stay one object."""
    cut: dict[tuple[int, ...], tuple[IntArray, IntArray]] = {}
    one = {v for v, size in enumerate(sizes) if size == 1}.difference(beside)
    out = []
    for factor in factors:
        if not one.isdisjoint(factor.scope):
            axes = tuple([axis for axis, v in enumerate(factor.scope) if v in one])
            key = id(factor.ticks), id(factor.nbytes), *axes
            if key not in cut:
                cut[key] = factor.ticks.squeeze(axes), factor.nbytes.squeeze(axes)
            factor = Factor(tuple([v for v in factor.scope if v not in one]), *cut[key])
        out.append(factor)
    return out


def minimize_beside(
    sizes: Sequence[int], factors: Sequence[Factor], beside: Sequence[int]
) -> tuple[IntArray, IntArray]:
    """The least sum, or no more than that, for the values of some variables: ticks and bytes, an axis for each.

    All other variables are eliminated.
    """
    swept = _sweep(sizes, factors, tuning.MAX_TABLE_ENTRIES, tuning.MAX_ENTRIES, beside=frozenset(beside))
    shape = tuple(sizes[v] for v in beside)
    ticks, nbytes = np.full(shape, swept.ticks), np.full(shape, swept.nbytes)
    for factor in swept.left:
        order = sorted(range(len(factor.scope)), key=lambda axis: beside.index(factor.scope[axis]))
        around = [sizes[v] if v in factor.scope else 1 for v in beside]
        ticks += factor.ticks.transpose(order).reshape(around)
        nbytes += factor.nbytes.transpose(order).reshape(around)
    return ticks, nbytes


def evaluate(choice: Sequence[int], factors: Sequence[Factor]) -> tuple[int, int]:
    """Cost (picoseconds, bytes) of an assignment."""
    ticks = nbytes = 0
    for factor in factors:
        at = tuple(choice[var] for var in factor.scope)
        ticks += int(factor.ticks[at])
        nbytes += int(factor.nbytes[at])
    return ticks, nbytes


def alternatives(var: int, choice: Sequence[int], factors: Sequence[Factor], size: int) -> tuple[IntArray, IntArray]:
    """Cost of every value of one variable, all others as chosen: arrays (ticks, nbytes)."""
    ticks = np.zeros(size, np.int64)
    nbytes = np.zeros(size, np.int64)
    for factor in factors:
        at = tuple(slice(None) if v == var else choice[v] for v in factor.scope)
        ticks += factor.ticks[at]
        nbytes += factor.nbytes[at]
    return ticks, nbytes


def list_order(sizes: Sequence[int], factors: Sequence[Factor]) -> list[int]:
    """The variables in the order in which they are eliminated."""
    return list(_find_order(tuple(sizes), frozenset(factor.scope for factor in factors), frozenset()))


@lru_cache(maxsize=tuning.KEPT_ORDERS)
def _find_order(sizes: tuple[int, ...], scopes: frozenset[tuple[int, ...]], beside: frozenset[int]) -> tuple[int, ...]:
    """The variables beside some in their order: of tables that are weighed anew it stays the same."""
    return tuple(iter(_Order(sizes, scopes, beside).pop, None))


class _Buckets:
    """The tables that are left, by variable."""

    def __init__(self, sizes: Sequence[int], factors: Sequence[Factor]) -> None:
        self._of: list[dict[int, Factor]] = [{} for _ in sizes]
        self._many = 0
        for factor in factors:
            self.add(factor)

    def add(self, factor: Factor) -> None:
        for var in factor.scope:
            self._of[var][self._many] = factor
        self._many += 1

    def take(self, var: int) -> list[Factor]:
        """All tables of a variable, in the order in which they came; they are here no more."""
        found = self._of[var]
        for number, factor in found.items():
            for other in factor.scope:
                if other != var:
                    del self._of[other][number]
        self._of[var] = {}
        return list(found.values())


class _Order:
    """Which variable goes next: who adds the fewest edges (min-fill), then has the smallest table, then by number."""

    def __init__(self, sizes: Sequence[int], scopes: Collection[tuple[int, ...]], beside: frozenset[int]) -> None:
        self._sizes, self._beside = sizes, beside
        self._around: dict[int, set[int]] = {var: set() for var in range(len(sizes))}
        for scope in scopes:
            for var in scope:
                self._around[var].update(v for v in scope if v != var)
        self._keys = {var: self._fill(var) for var in self._around if var not in beside}
        self._heap = list(self._keys.values())
        heapify(self._heap)

    def _fill(self, var: int) -> tuple[int, int, int]:
        around = self._around[var]
        missing = sum([len(around - self._around[v]) for v in around]) - len(around)  # each edge twice
        return missing, prod([self._sizes[v] for v in around]), var

    def pop(self) -> int | None:
        """The next variable, which is gone then; None after the last one."""
        while self._heap:
            key = heappop(self._heap)
            if self._keys.get(key[-1]) == key:  # else a newer key is there, or the variable is gone
                del self._keys[key[-1]]
                if key[0]:
                    self._eliminate(key[-1])
                else:
                    self._eliminate_leaf(key[-1])
                return key[-1]
        return None

    def _eliminate_leaf(self, var: int) -> None:
        """Take out a variable whose neighbors all are neighbors of each other: of these one is less, nothing else."""
        around = self._around.pop(var)
        for v in around:
            mine = self._around[v]
            mine.remove(var)
            if v in self._keys:  # it misses no edge between that variable and others any more
                missing, entries, _ = self._keys[v]
                self._put(v, (missing - 2 * len(mine - around), entries // self._sizes[var], v))

    def _eliminate(self, var: int) -> None:
        # a ── var ── b       its neighbors meet in the table that stands for it:       a ───── b
        #       │                                                                         ╲   ╱
        #       c                                                                           c
        around = self._around.pop(var)
        changed = set(around)
        for v in around:
            for other in around - self._around[v]:
                if v < other:  # an edge changes what the two, and those around both, add
                    changed |= self._around[v] & self._around[other]
        for v in around:
            self._around[v] |= around
            self._around[v] -= {v, var}
        for v in changed:
            if v in self._keys:
                self._put(v, self._fill(v))

    def _put(self, var: int, key: tuple[int, int, int]) -> None:
        if key != self._keys[var]:
            self._keys[var] = key
            heappush(self._heap, key)


def split_bucket(bucket: Sequence[Factor], sizes: Sequence[int], *caps: int) -> list[list[Factor]]:
    """The bucket in one group, or first-fit in groups whose joint tables stay below the caps."""
    # min over v of (f + g) >= min over v of f + min over v of g: a bucket in several groups gives a lower bound, as
    # each group may choose another v. The largest tables come first, so that small ones fill what is left.
    groups: list[tuple[set[int], list[Factor]]] = []
    cap, ordered = min(caps), sorted(bucket, key=lambda f: -prod([sizes[v] for v in f.scope]))
    if prod([sizes[v] for v in {v for factor in bucket for v in factor.scope}]) <= cap:
        return [ordered] if ordered else []
    for factor in ordered:
        for scope, members in groups:
            if prod([sizes[v] for v in scope.union(factor.scope)]) <= cap:
                scope.update(factor.scope)
                members.append(factor)
                break
        else:
            groups.append((set(factor.scope), [factor]))
    return [members for _, members in groups]


class Shared:
    """Tables without their least entry: of equal ones one object, kept so that no other has its number."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, ...], bytes], IntArray] = {}

    def lower(self, table: IntArray) -> tuple[IntArray, int]:
        """What a table has more than its least entry, and that entry."""
        least = int(table.min())
        made: IntArray = table - least
        said = made.tobytes() if made.size <= tuning.MAX_SHARED_ENTRIES else str(id(made)).encode()
        return self._known.setdefault((made.shape, said), made), least


class Balance:
    """Shifts what the groups of a split bucket cost, so that a value costs each of them the same at best.

    What one group gives another one takes, so that the sum of all tables stays as it is; but the groups choose apart
    from each other then, and their sum is highest where none of them can be better off with another value::

                    x = 0  1        each at its best             balanced     at its best
        group f         0  8        0                            2  4         2
        group g         4  0        0, so 0 together             2  4         2, so 4 together

    At first only what is below the groups counts. Once a pass has told what all tables cost at least, as each group
    has it, more is given to those by which it is less, and so on from pass to pass.

    References
    ----------
    Ihler, Flerova, Dechter, Otten, "Join-graph based cost-shifting schemes", 2012.
    """

    def __init__(self) -> None:
        self._of: dict[int, tuple[list[tuple[int, ...]], tuple[int, ...], list[IntArray]]] = {}
        """For each variable the scopes of its groups, what all of them have, and their shifts: of alike ones once."""
        self._made: dict[Hashable, list[IntArray]] = {}
        self._noted: dict[int, list[list[IntArray]]] = {}
        self._nothing: dict[tuple[int, ...], IntArray] = {}
        """Of each shape one table of no bytes, so that alike groups stay alike."""

    def shift(self, groups: Sequence[Sequence[Factor]], variable: int, sizes: Sequence[int]) -> list[list[Factor]]:
        """The groups of a variable's bucket, each with a table more over the variables that all of them have.

        As they are where there is one, or where a single table is larger than those that are summed up for this.
        """
        scopes = [tuple(sorted({v for factor in group for v in factor.scope})) for group in groups]
        entries = [prod([sizes[v] for v in scope]) for scope in scopes]
        if len(groups) < 2 or max(entries) > tuning.MAX_PRUNING_ENTRIES:
            self._of.pop(variable, None)
            return [list(group) for group in groups]
        every = sorted({v for scope in scopes for v in scope})
        both = tuple(v for v in every if all(v in scope for scope in scopes))
        if variable not in self._of or self._of[variable][0] != scopes:
            # Alike ones are shifted alike, so that they stay alike.
            key = tuple(tuple((id(f.ticks), *map(every.index, f.scope)) for f in group) for group in groups)
            if key not in self._made:
                least = [_find_least(group, scope, both, sizes) for group, scope in zip(groups, scopes, strict=True)]
                total = sum(least)
                shifts = [total // len(least) - each for each in least]
                shifts[0] += total % len(least)
                self._made[key] = shifts
            self._of[variable] = scopes, both, self._made[key]
        shifts = self._of[variable][2]
        shape = shifts[0].shape
        if shape not in self._nothing:
            self._nothing[shape] = np.zeros(shape, np.int64)
        nothing = self._nothing[shape]
        return [[*group, Factor(both, each, nothing)] for group, each in zip(groups, shifts, strict=True)]

    def list_met(self, variable: int) -> tuple[int, ...]:
        """The variables that all groups of a variable's bucket have; none where nothing was shifted between them."""
        return self._of[variable][1] if variable in self._of else ()

    def note(self, variable: int, least: list[IntArray]) -> None:
        """Keep what all tables cost at least, as each group of a variable has it, by what all of them have."""
        self._noted.setdefault(id(self._of[variable][2]), []).append(least)

    def follow(self, kept: Sequence[IntArray]) -> None:
        """Change the shifts by all that was noted, of alike ones by their mean; of each variable some values are kept.

        Arrays of the same values are one object.
        """
        changed: dict[tuple[int, ...], list[IntArray]] = {}
        for variable, (scopes, both, shifts) in self._of.items():
            key = id(shifts), *(id(kept[v]) for v in both)
            if key not in changed:
                noted = self._noted[id(shifts)]
                each = [sum(some) / len(noted) for some in zip(*noted, strict=True)]
                middle = sum(each) / len(each)
                steps = [np.rint(tuning.SHIFTED * (middle - one)).astype(np.int64) for one in each]
                steps[0] -= sum(steps)
                at = np.ix_(*(kept[v] for v in both))
                changed[key] = [(shift + step)[at] for shift, step in zip(shifts, steps, strict=True)]
            self._of[variable] = scopes, both, changed[key]
        self._made, self._noted = {}, {}


def _find_least(group: Sequence[Factor], scope: Sequence[int], both: Sequence[int], sizes: Sequence[int]) -> IntArray:
    """The least sum of a group's tables for the values of some of its variables."""
    return find_least_over(sum_up(group, scope, sizes), [axis for axis, v in enumerate(scope) if v in both])


def sum_up(tables: Sequence[Factor], scope: Sequence[int], sizes: Sequence[int]) -> IntArray:
    """The picoseconds of some tables as one table over a scope."""
    total = np.zeros([sizes[v] for v in scope], np.int64)
    for factor in tables:
        total += factor.ticks.reshape([sizes[v] if v in factor.scope else 1 for v in scope])
    return total


def _project_out(group: Sequence[Factor], scope: Sequence[int], var: int, sizes: Sequence[int]) -> Factor:
    """The lexicographic minimum over one variable of the sum of some tables."""
    # The sum itself is never there, which has an axis more: it is made for one value of the variable after the other,
    # and the least so far is kept.
    rest = [v for v in scope if v != var]
    shape = tuple(sizes[v] for v in rest)
    pairs = _pack(group) if prod(shape) * sizes[var] >= tuning.MIN_PACKED_ENTRIES else None
    if pairs is None:
        return _project_pairs(group, rest, shape, var, sizes[var])
    packed, unpack = pairs
    tables = [spread_out(factor, table, rest, var) for factor, table in zip(group, packed, strict=True)]
    return Factor(tuple(rest), *unpack(find_least_sum(tables, shape, sizes[var])))


def spread_out(factor: Factor, table: IntArray, rest: Sequence[int], var: int) -> IntArray:
    """A table with an axis for a variable and then one for each of others, of length 1 where it has none."""
    order = sorted(range(len(factor.scope)), key=lambda axis: (factor.scope[axis] != var, axis))
    lengths = dict(zip(factor.scope, table.shape, strict=True))
    return np.ascontiguousarray(table.transpose(order)).reshape(lengths[var], *(lengths.get(v, 1) for v in rest))


def find_least_sum(tables: Sequence[IntArray], shape: tuple[int, ...], size: int) -> IntArray:
    """The least over the first axis of a sum of tables that broadcast together."""
    # Block by block of the leading axes, so that what is added and compared stays in the processor's cache. Small
    # tables come first: all of them but the last are then summed at the size of few axes.
    *few, last = sorted(add_small(tables, (size, *shape)), key=lambda table: table.size)
    best = np.full(shape, _WORST)
    for at in list_blocks(shape):
        within: tuple[Any, ...] = (*at, ...)  # so that a table of no axes is one too
        block = best[within]
        small = [table[(slice(None), *_within(at, table))] for table in few]
        large = last[(slice(None), *_within(at, last))]
        room = np.empty_like(block)
        for value in range(size):
            total = large[value]
            if small:
                total = np.add(total, reduce(np.add, [table[value] for table in small]), out=room)
            np.minimum(block, total, out=block)
    return best


def list_blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Ranges of the leading axes that cut a table in blocks of few entries."""
    steps: list[int] = []
    inside = prod(shape)
    for n in shape:
        if inside <= tuning.BLOCK_ENTRIES:
            break
        inside //= n
        steps.append(max(1, tuning.BLOCK_ENTRIES // inside))
    ranges = [[slice(k, k + step) for k in range(0, n, step)] for n, step in zip(shape, steps, strict=False)]
    return product(*ranges)


def _within(at: Sequence[slice], table: IntArray) -> tuple[slice, ...]:
    """The ranges of a table's axes after its first; axes of length 1 stand for any."""
    return tuple(one if n > 1 else slice(None) for one, n in zip(at, table.shape[1:], strict=False))


def _rehearse(group: Sequence[Factor], scope: Sequence[int], var: int, sizes: Sequence[int]) -> Factor:
    """As `_project_out`, of tables that are not looked at: one cell stands for all."""
    rest = tuple(v for v in scope if v != var)
    cells = np.broadcast_to(np.zeros((), np.int64), tuple(sizes[v] for v in rest))
    return Factor(rest, cells, cells)


def _project_pairs(group: Sequence[Factor], rest: Sequence[int], shape: tuple[int, ...], var: int, size: int) -> Factor:
    every_ticks = [spread_out(factor, factor.ticks, rest, var) for factor in group]
    every_nbytes = [spread_out(factor, factor.nbytes, rest, var) for factor in group]
    ticks, nbytes = np.full(shape, _WORST), np.full(shape, _WORST)
    for value in range(size):
        t, n = (_sum_at(tables, shape, value) for tables in (every_ticks, every_nbytes))
        better = (t < ticks) | ((t == ticks) & (n < nbytes))
        ticks, nbytes = np.where(better, t, ticks), np.where(better, n, nbytes)
    return Factor(tuple(rest), ticks, nbytes)


def _sum_at(tables: Sequence[IntArray], shape: tuple[int, ...], value: int) -> IntArray:
    """The sum of some tables at a place of their first axis."""
    # The small ones first: all of them but the last are then summed at the size of few axes.
    slices = sorted((table[value] for table in tables), key=lambda one: one.size)
    return np.broadcast_to(reduce(np.add, slices), shape)


def _pack(group: Sequence[Factor]) -> tuple[list[IntArray], Callable[[IntArray], tuple[IntArray, IntArray]]] | None:
    """Pairs of ticks and bytes as single numbers in the same order, if their sums fit 63 bits; else None."""
    # Bytes, which are mostly multiples of a power of two, take the low bits, ticks the ones above them.
    low = [(int(f.ticks.min()), int(f.nbytes.min())) for f in group]
    high_ticks = sum(int(f.ticks.max()) - t for f, (t, _) in zip(group, low, strict=True))
    high_nbytes = sum(int(f.nbytes.max()) - n for f, (_, n) in zip(group, low, strict=True))
    bits = reduce(operator.or_, (int(np.bitwise_or.reduce(f.nbytes, axis=None)) for f in group))
    unit = max(0, (bits & -bits).bit_length() - 1)
    width = (high_nbytes >> unit).bit_length()
    if high_ticks.bit_length() + width > _WORST.bit_length():
        return None
    packed = [((f.ticks - t) << width) + ((f.nbytes - n) >> unit) for f, (t, n) in zip(group, low, strict=True)]
    ticks, nbytes = sum(t for t, _ in low), sum(n for _, n in low)

    def unpack(sums: IntArray) -> tuple[IntArray, IntArray]:
        return (sums >> width) + ticks, ((sums & ((1 << width) - 1)) << unit) + nbytes

    return packed, unpack


def _best_value(ticks: IntArray, nbytes: IntArray) -> int:
    return int(np.lexsort((nbytes, ticks))[0])


def improve(
    choice: Sequence[int],
    costs: Callable[[int, Sequence[int]], tuple[IntArray, IntArray]],
    *,
    seed: int = 0,
    values: int = tuning.IMPROVING_VALUES,
    stop: float = inf,
) -> tuple[int, ...]:
    """Move one variable at a time to its best value until nothing improves, or many values were looked at.

    Parameters
    ----------
    choice : sequence of int
        The assignment to begin with.
    costs : callable
        ``(variable, choice) -> (ticks, nbytes)`` of every value of the variable, all others as chosen.
    seed : int
        Order of the variables.
    values : int
        How many are looked at.
    stop : float
        Of the monotonic clock: from then on what is there is given.
    """
    import random  # loaded with the first such search, not with the package

    best = list(choice)
    order = list(range(len(best)))
    random.Random(seed).shuffle(order)
    improved = True
    while improved:
        improved = False
        for var in order:
            if values <= 0 or time.monotonic() >= stop:
                return tuple(best)
            ticks, nbytes = costs(var, best)
            values -= len(ticks)
            value = _best_value(ticks, nbytes)
            if (ticks[value], nbytes[value]) < (ticks[best[var]], nbytes[best[var]]):
                best[var] = value
                improved = True
    return tuple(best)
