"""Min-marginals: for every value of every variable the least sum that has it, from one pass up and one pass down.

Where a plan is there already, every value whose least sum is above the plan's cost is left out with proof: no plan that
has it is better. Often so few values are left that tables fit which were too large before, and the search over them is
exact.

Eliminating variables leaves a tree: each bucket of tables sends one message, its minimum over its own variable, to the
bucket of the next variable in that message. Down the tree each bucket is told what all others cost at least, given the
values that it shares with them::

          c        up:    m(b) = min over a of T(a, b),  n(c) = min over b of U(b, c) + m(b)
          │
          b        down:  outside of b's bucket, given c: what c's bucket and all above it cost, without n
          │               outside of a's bucket, given b: min over c of U(b, c) and what is outside of b's
          a        least sums with a = 0, 1, …: min over b of T(a, b) and what is outside of a's

What stands many times is gone through once: parts of the same tables, placed alike, have the same sum and send the same
message, and where the same is outside of them too, all that they tell is the same. For that each message, and what is
outside of a part, is told as what it has more than its least entry, and that as one number beside it: layer after layer
of a network adds to the number, and soon nothing to the table.

Where a bucket is split (see `elimination`), its variable may take another value in each part: every sum is then a lower
bound, which is as good a reason to leave a value out. By these sums costs are shifted between the parts, and the next
pass has higher ones, in tables as small: so a few passes over small tables say more than one over large ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import groupby
from math import inf, prod

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tapestry_plan.search import tuning
from tapestry_plan.search.sums.elimination import (
    Balance,
    Factor,
    IntArray,
    Shared,
    count_joint,
    find_least_sum,
    list_blocks,
    list_order,
    settle,
    split_bucket,
    spread_out,
)
from tapestry_plan.search.sums.minima import add_small, find_least_over
from tapestry_plan.search.sums.reduction import cut_table


class Marginals(Struct, frozen=True):
    """Lower bounds in picoseconds: of every assignment, and of those that have a value.

    Parameters
    ----------
    bound_ticks : int
        Of every assignment.
    least : list of array of int64
        For each variable, of the assignments that have each of its values; the least sums themselves if `exact`, as far
        as they are of interest.
    exact : bool
        Whether no bucket was split.
    """

    bound_ticks: int
    least: list[IntArray]
    exact: bool

    def list_kept(self, ticks: int) -> list[IntArray]:
        """For each variable the values, ascending, that an assignment of so many picoseconds or fewer may have."""
        return [np.flatnonzero(least <= ticks) for least in self.least]


def is_worth_a_round(sizes: Sequence[int], kept: Sequence[IntArray]) -> bool:
    """Whether so many values are left out that it pays to look at the others again."""
    return sum(map(len, kept)) <= tuning.MAX_KEPT_SHARE * sum(sizes)


class Part(Struct):
    """A bucket, or a part of one that is split: the tables around a variable, messages among them."""

    variable: int
    scope: tuple[int, ...]
    tables: list[Factor]
    alike: int
    """The number of all parts with the same tables, placed alike."""
    senders: dict[int, Part] = field(default_factory=dict)
    """The parts that sent messages, by the message's place among the tables."""
    lowered: int = 0
    """What its message was lowered by, so that its least entry is 0."""
    below: int = 0
    """That and what all messages below it were lowered by."""
    outside: IntArray | int = 0
    """What everything that is not below the part costs at least, given its variables without its own, beside `base`."""
    base: int = 0
    """What sums of its tables and of what is outside are lower by than sums of all tables."""
    met: tuple[int, ...] = ()
    """The variables that all parts of its bucket have, if costs are shifted between these."""

    def sum_up(self, sizes: Sequence[int]) -> IntArray:
        """Its tables and messages as one table."""
        total = np.zeros([sizes[v] for v in self.scope], np.int64)
        for factor in self.tables:
            total += factor.ticks.reshape([sizes[v] if v in factor.scope else 1 for v in self.scope])
        return total

    def send(self, sizes: Sequence[int]) -> IntArray:
        """The least sums over its own variable. Of many entries the whole table is never there."""
        if prod(sizes[v] for v in self.scope) <= tuning.BLOCK_ENTRIES:
            return find_least_over(self.sum_up(sizes), [k for k, v in enumerate(self.scope) if v != self.variable])
        rest = [v for v in self.scope if v != self.variable]
        tables = [spread_out(factor, factor.ticks, rest, self.variable) for factor in self.tables]
        return find_least_sum(tables, tuple(sizes[v] for v in rest), sizes[self.variable])

    def find_least(self, sizes: Sequence[int], kept: Sequence[Sequence[int]]) -> list[IntArray]:
        """For each of some choices of its axes the least sums, with what is outside of it, of their values."""
        shape = tuple(sizes[v] for v in self.scope)
        tables = [f.ticks.reshape([sizes[v] if v in f.scope else 1 for v in self.scope]) for f in self.tables]
        outside = np.expand_dims(self.outside, self.scope.index(self.variable))
        tables.append(outside.reshape(outside.shape if outside.ndim == len(shape) else (1,) * len(shape)))
        if prod(shape) <= tuning.BLOCK_ENTRIES:
            total = np.broadcast_to(reduce(np.add, sorted(tables, key=lambda table: table.size)), shape)
            return [find_least_over(total, axes) for axes in kept]
        # Block by block of the leading axes, so that what is added and compared stays in the processor's cache.
        tables = sorted(add_small(tables, shape), key=lambda table: table.size)
        found = [np.full([shape[axis] for axis in axes], np.iinfo(np.int64).max) for axes in kept]
        for at in list_blocks(shape):
            within = [*at, *(slice(None) for _ in shape[len(at) :])]
            block = reduce(np.add, [table[_meet(within, table)] for table in tables])
            block = np.broadcast_to(block, [len(range(n)[one]) for n, one in zip(shape, within, strict=True)])
            for least, axes in zip(found, kept, strict=True):
                some = least[tuple(within[axis] for axis in axes)]
                np.minimum(some, find_least_over(block, axes), out=some)
        return found


def _meet(within: Sequence[slice], table: IntArray) -> tuple[slice, ...]:
    """The same part of a table; axes of length 1 stand for any."""
    return tuple(one if n > 1 else slice(None) for one, n in zip(within, table.shape, strict=True))


def find_marginals(
    sizes: Sequence[int],
    factors: Sequence[Factor],
    *,
    cap: int = tuning.MAX_PRUNING_ENTRIES,
    most: int | Callable[[Marginals], int] | None = None,
    stop: float = inf,
) -> Marginals:
    """The least sum of picoseconds that has each value of each variable.

    Parameters
    ----------
    sizes : sequence of int
        Number of values of each variable.
    factors : sequence of Factor
    cap : int
        Entries of the largest table to build; a bucket whose table would be larger is split, and the sums are lower
        bounds.
    most : int or callable, optional
        Picoseconds up to which assignments are of interest, or what gives them for the sums of a first pass. Where
        buckets are split there are further passes then, over small tables first, while they bring the bound nearer;
        of larger sums it is said only that they are larger.
    stop : float
        Of the monotonic clock: from then on there are none.

    References
    ----------
    Dechter and Rish, "Mini-buckets: a general scheme for bounded inference", 2003.

    Examples
    --------
    >>> table = np.array([[4, 9], [2, 3]])
    >>> [least.tolist() for least in find_marginals([2, 2], [Factor((0, 1), table, table)]).least]
    [[4, 2], [2, 3]]
    """
    open_ = [v for v, size in enumerate(sizes) if size > 1]
    number = {v: k for k, v in enumerate(open_)}
    settled = [
        Factor(tuple(number[v] for v in f.scope), f.ticks, f.nbytes) for f in settle(sizes, factors, frozenset())
    ]

    def spread(found: Marginals) -> Marginals:
        least = [np.full(size, found.bound_ticks, np.int64) for size in sizes]
        for k, v in enumerate(open_):
            least[v] = found.least[k]
        return replace(found, least=least)

    passes = _Passes([sizes[v] for v in open_], settled)
    passes.split_anew(cap if most is None else tuning.FIRST_PRUNING_ENTRIES, cap)
    first = passes.go()
    if most is None:
        return spread(first)
    return spread(_go_on(passes, first, most(spread(first)) if callable(most) else most, cap, stop))


def _go_on(passes: _Passes, found: Marginals, ticks: int, cap: int, stop: float) -> Marginals:
    """Further passes after a first one, while they bring the bound nearer to some picoseconds."""
    bound, least, missing = found.bound_ticks, found.least, inf
    while not found.exact and bound <= ticks and time.monotonic() < stop:
        before, missing = missing, ticks - bound
        kept = [np.flatnonzero(mine[rows] <= ticks) for mine, rows in zip(least, passes.rows, strict=True)]
        is_stuck = missing >= tuning.MAX_MISSING_SHARE * before and not is_worth_a_round(passes.sizes, kept)
        if not all(map(len, kept)) or (is_stuck and passes.cap >= cap and not is_worth_a_round(passes.split_as, kept)):
            break
        passes.keep(kept)
        if is_stuck or 2 * sum(map(len, kept)) < sum(passes.split_as):
            passes.split_anew(passes.cap * tuning.PRUNING_GROWTH, cap)
        found = passes.go()
        bound = max(bound, found.bound_ticks)
        for mine, rows, those in zip(least, passes.rows, found.least, strict=True):
            mine[rows] = np.maximum(mine[rows], those)
    # What was left out on the way has larger sums than `ticks`, and nothing else is known of it.
    bound = min(bound, ticks + 1) if missing < inf else bound
    return Marginals(bound, [np.minimum(mine, ticks + 1) for mine in least] if missing < inf else least, found.exact)


class _Passes:
    """Passes over tables, of which less is left from one to the next, and whose split buckets are balanced."""

    def __init__(self, sizes: Sequence[int], factors: Sequence[Factor]) -> None:
        self.factors, self.rows = list(factors), [np.arange(size) for size in sizes]
        self.cap = 0
        self._order, self._balance = list_order(sizes, factors), Balance()
        self.split_as = self.sizes
        """Those that were left when it was last said how buckets are split."""

    @property
    def sizes(self) -> list[int]:
        """Values of each variable that are left."""
        return list(map(len, self.rows))

    def split_anew(self, least: int, most: int) -> None:
        """Split buckets by some cap, or by larger ones, up to a last one, while tables have few entries together."""
        self.cap, self.split_as = min(least, most), self.sizes
        while self.cap < most:
            wider = min(self.cap * tuning.PRUNING_GROWTH, most)
            if count_joint(self.split_as, self.factors, wider) > tuning.WIDER_PRUNING_ENTRIES:
                break
            self.cap = wider

    def keep(self, kept: Sequence[IntArray]) -> None:
        """Leave values out, and shift costs in split buckets by the pass that was made."""
        same: dict[bytes, IntArray] = {}
        kept = [same.setdefault(values.tobytes(), values) for values in kept]
        cut: dict[tuple[int, ...], tuple[IntArray, IntArray]] = {}
        self.factors = [cut_table(factor, [kept[v] for v in factor.scope], cut) for factor in self.factors]
        self.rows = [rows[values] for rows, values in zip(self.rows, kept, strict=True)]
        self._balance.follow(kept)

    def go(self) -> Marginals:
        """One pass up and one down. Buckets stay split as they were, so that shifts go on."""
        sizes = self.sizes
        tree = build_tree(sizes, self.factors, self._order, (self.cap, self.split_as), self._balance)
        least = [np.full(size, tree.bound_ticks, np.int64) for size in sizes]
        # The parts of a variable come together.
        for variable, parts in groupby(tree.go_down(sizes), key=lambda each: each[0].variable):
            apart = []
            for part, told in parts:
                np.maximum(least[variable], told.own + part.base, out=least[variable])
                if told.met is not None:
                    apart.append(told.met + part.base)
                part.tables, part.senders = [], {}
            if apart:
                self._balance.note(variable, apart[::-1])  # they go down in the other order
        return Marginals(tree.bound_ticks, least, tree.exact)


class Tree(Struct):
    """Buckets in a tree, or in several: the tables of each, and the messages that it sends and gets.

    Parameters
    ----------
    parts : list of Part
        Each before the one that it sends to.
    roots : list of (Part, int)
        Those that send to none, with the least sums of themselves and of all below them.
    bound_ticks : int
        The least sum of all tables, or less where a bucket is split.
    exact : bool
        Whether none is.
    """

    parts: list[Part]
    roots: list[tuple[Part, int]]
    bound_ticks: int
    exact: bool

    def go_down(self, sizes: Sequence[int]) -> Iterator[tuple[Part, _PartBounds]]:
        """Tell each part what is outside of it, and give it with what it tells; each after the one that it sends to."""
        down = _Down(sizes)
        for part in reversed(self.parts):
            told = down.tell(part)
            for k, sender in part.senders.items():
                sender.outside, more = told.outside[k]
                # What the sender's message was lowered by, and not those below it, is not in its tables.
                sender.base = part.base + more - sender.lowered
            yield part, told


def build_tree(
    sizes: Sequence[int],
    factors: Sequence[Factor],
    order: Sequence[int] | None = None,
    split_as: tuple[int, Sequence[int]] | None = None,
    balance: Balance | None = None,
) -> Tree:
    """The buckets of tables and their messages; `find_marginals` says more.

    Parameters
    ----------
    sizes, factors
        As there.
    order : sequence of int, optional
        In which variables are eliminated, where it was found before.
    split_as : tuple of int and sequence of int, optional
        The cap, and the numbers of values with which tables have more entries than that.
    balance : Balance, optional
        What split buckets were shifted by in passes before.
    """
    order, balance = order or list_order(sizes, factors), balance or Balance()
    parts, roots, bound = _go_up(sizes, factors, order, split_as or (tuning.MAX_PRUNING_ENTRIES, sizes), balance)
    for root, _ in roots:
        root.base = bound - root.lowered
    return Tree(parts, roots, bound, len(parts) == len(sizes))


def _go_up(
    sizes: Sequence[int],
    factors: Sequence[Factor],
    order: Sequence[int],
    split_as: tuple[int, Sequence[int]],
    balance: Balance,
) -> tuple[list[Part], list[tuple[Part, int]], int]:
    """Parts, each before the one that it sends to; those that send to none, with their least sums; the sum of all."""
    bound = sum(int(factor.ticks) for factor in factors if not factor.scope)
    cap, as_of = split_as
    rank = {variable: k for k, variable in enumerate(order)}
    buckets: list[list[tuple[Factor, Part | None]]] = [[] for _ in sizes]
    for factor in factors:
        if factor.scope:
            buckets[min(factor.scope, key=rank.__getitem__)].append((factor, None))
    parts: list[Part] = []
    made: dict[tuple[object, ...], tuple[int, IntArray, int]] = {}
    shared = Shared()
    zeros: dict[int, IntArray] = {}
    roots: list[tuple[Part, int]] = []
    for variable in order:
        senders = {id(factor): sender for factor, sender in buckets[variable] if sender is not None}
        bucket = [factor for factor, _ in buckets[variable]]
        if not bucket:
            zero = zeros.setdefault(sizes[variable], np.zeros(sizes[variable], np.int64))
            bucket = [Factor((variable,), zero, zero)]
        groups = balance.shift(split_bucket(bucket, as_of, cap), variable, sizes)
        met = balance.list_met(variable)
        for group in groups:
            scope = tuple(sorted({v for factor in group for v in factor.scope}))
            sent = {k: senders[id(factor)] for k, factor in enumerate(group) if id(factor) in senders}
            # The order of the tables counts too: by their places it is said what each of them is told.
            key = scope.index(variable), *((id(f.ticks), *map(scope.index, f.scope)) for f in group)
            part = Part(variable, scope, group, len(made), sent, met=met)
            if key not in made:
                made[key] = part.alike, *shared.lower(part.send(sizes))
            part.alike, ticks, part.lowered = made[key]
            part.below = part.lowered + sum(sender.below for sender in sent.values())
            parts.append(part)
            if ticks.ndim:
                rest = tuple(v for v in scope if v != variable)
                buckets[min(rest, key=rank.__getitem__)].append((Factor(rest, ticks, ticks), part))
            else:
                roots.append((part, part.below))
                bound += part.below
        buckets[variable] = []
    return parts, roots, bound


class _PartBounds(Struct):
    """What a part says once it is known what is outside of it."""

    own: IntArray
    """Lower bounds for the values of its variable, beside its base.

    For a variable that it has from a message of another part, it has the same as that variable's own part further up.
    """
    outside: dict[int, tuple[IntArray, int]]
    """By the place of a message among the tables: what is outside of who sent it, and what that is lowered by."""
    met: IntArray | None = None
    """Lower bounds for the variables that all parts of its bucket have, if costs are shifted between these."""


class _Down:
    """The way down: what each part tells, of alike ones once."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._told: dict[tuple[object, ...], _PartBounds] = {}
        self._shared = Shared()

    def tell(self, part: Part) -> _PartBounds:
        places = tuple(part.senders)
        outside = part.outside if isinstance(part.outside, int) else id(part.outside)
        key = part.alike, outside, isinstance(part.outside, int), places
        if key not in self._told:
            self._told[key] = self._tell_now(part)
        return self._told[key]

    def _tell_now(self, part: Part) -> _PartBounds:
        scope, own = part.scope, part.variable
        kept = [part.tables[k].scope for k in part.senders] + ([part.met] if part.met else [])
        each = part.find_least(self._sizes, [[scope.index(v) for v in some] for some in kept or [(own,)]])
        # All that meets in a part has its variable.
        told = _PartBounds(find_least_over(each[0], [kept[0].index(own) if kept else 0]), {})
        told.met = each.pop() if part.met else None
        for k, shared in zip(part.senders, each, strict=False):
            told.outside[k] = self._shared.lower(shared - part.tables[k].ticks)
        return told
