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
bound, which is as good a reason to leave a value out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import groupby
from math import prod

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tapestry_plan.search import tuning
from tapestry_plan.search.sums.elimination import (
    Balance,
    Factor,
    IntArray,
    Shared,
    find_least_sum,
    list_blocks,
    list_order,
    settle,
    split_bucket,
    spread_out,
)
from tapestry_plan.search.sums.minima import add_small, find_least_over


class Marginals(Struct, frozen=True):
    """Lower bounds in picoseconds: of every assignment, and of those that have a value.

    Parameters
    ----------
    bound_ticks : int
        Of every assignment.
    least : list of array of int64
        For each variable, of the assignments that have each of its values; the least sums themselves if `exact`.
    exact : bool
        Whether no bucket was split.
    choice : tuple of int
        An assignment that takes `bound_ticks` if `exact`, and often few more otherwise; empty unless asked for.
    """

    bound_ticks: int
    least: list[IntArray]
    exact: bool
    choice: tuple[int, ...] = ()

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
        # Block by block of the leading axes, so that what is added and compared stays in the processor's cache.
        shape = tuple(sizes[v] for v in self.scope)
        tables = [f.ticks.reshape([sizes[v] if v in f.scope else 1 for v in self.scope]) for f in self.tables]
        outside = np.expand_dims(self.outside, self.scope.index(self.variable))
        tables.append(outside.reshape(outside.shape if outside.ndim == len(shape) else (1,) * len(shape)))
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
    chooses: bool = False,
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
    chooses : bool
        Whether an assignment is wanted too.

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
    found = _find_marginals([sizes[v] for v in open_], settled, cap, chooses)
    least = [np.full(size, found.bound_ticks, np.int64) for size in sizes]
    choice = [0] * len(sizes)
    for k, v in enumerate(open_):
        least[v] = found.least[k]
        choice[v] = found.choice[k] if chooses else 0
    return replace(found, least=least, choice=tuple(choice) if chooses else ())


def _find_marginals(sizes: Sequence[int], factors: Sequence[Factor], cap: int, chooses: bool) -> Marginals:
    """The same of variables that all have several values."""
    tree = build_tree(sizes, factors, cap)
    least = [np.full(size, tree.bound_ticks, np.int64) for size in sizes]
    choice = [0] * len(sizes)
    # The parts of a variable come together, after those of all variables that they have beside it.
    for variable, parts in groupby(tree.go_down(sizes), key=lambda each: each[0].variable):
        alone = np.zeros(sizes[variable], np.int64)
        for part, told in parts:
            for at, found in told.bounds:
                np.maximum(least[part.scope[at]], found + part.base, out=least[part.scope[at]])
            for table in part.tables if chooses else ():
                alone += table.ticks[tuple(slice(None) if v == variable else choice[v] for v in table.scope)]
            part.tables, part.senders = [], {}
        choice[variable] = int(alone.argmin())
    return Marginals(tree.bound_ticks, least, tree.exact, tuple(choice) if chooses else ())


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


def build_tree(sizes: Sequence[int], factors: Sequence[Factor], cap: int = tuning.MAX_PRUNING_ENTRIES) -> Tree:
    """The buckets of tables and their messages, with tables of so many entries at most; `find_marginals` says more."""
    parts, roots, bound = _go_up(sizes, factors, cap)
    for root, _ in roots:
        root.base = bound - root.lowered
    return Tree(parts, roots, bound, len(parts) == len(sizes))


def _go_up(sizes: Sequence[int], factors: Sequence[Factor], cap: int) -> tuple[list[Part], list[tuple[Part, int]], int]:
    """Parts, each before the one that it sends to; those that send to none, with their least sums; the sum of all."""
    bound = sum(int(factor.ticks) for factor in factors if not factor.scope)
    order = list_order(sizes, factors)
    rank = {variable: k for k, variable in enumerate(order)}
    buckets: list[list[tuple[Factor, Part | None]]] = [[] for _ in sizes]
    for factor in factors:
        if factor.scope:
            buckets[min(factor.scope, key=rank.__getitem__)].append((factor, None))
    parts: list[Part] = []
    made: dict[tuple[object, ...], tuple[int, IntArray, int]] = {}
    shared = Shared()
    zeros: dict[int, IntArray] = {}
    balance = Balance(sizes)
    roots: list[tuple[Part, int]] = []
    for variable in order:
        senders = {id(factor): sender for factor, sender in buckets[variable] if sender is not None}
        bucket = [factor for factor, _ in buckets[variable]]
        if not bucket:
            zero = zeros.setdefault(sizes[variable], np.zeros(sizes[variable], np.int64))
            bucket = [Factor((variable,), zero, zero)]
        for group in balance.shift(split_bucket(bucket, sizes, cap)):
            scope = tuple(sorted({v for factor in group for v in factor.scope}))
            sent = {k: senders[id(factor)] for k, factor in enumerate(group) if id(factor) in senders}
            # The order of the tables counts too: by their places it is said what each of them is told.
            key = scope.index(variable), *((id(f.ticks), *map(scope.index, f.scope)) for f in group)
            part = Part(variable, scope, group, len(made), sent)
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

    bounds: list[tuple[int, IntArray]]
    """The place of a variable in the part's scope, and lower bounds for its values, beside the part's base."""
    outside: dict[int, tuple[IntArray, int]]
    """By the place of a message among the tables: what is outside of who sent it, and what that is lowered by."""


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
        scope, own = part.scope, part.scope.index(part.variable)
        axes = [[scope.index(v) for v in part.tables[k].scope] for k in part.senders]
        mine, *each = part.find_least(self._sizes, [[own], *axes])
        told = _PartBounds([(own, mine)], {})
        for k, shared in zip(part.senders, each, strict=True):
            message = part.tables[k]
            told.bounds += _list_bounds(shared, message.scope, message.scope, scope)
            told.outside[k] = self._shared.lower(shared - message.ticks)
        return told


def _list_bounds(
    total: IntArray, of: Sequence[int], variables: Sequence[int], scope: Sequence[int]
) -> Iterator[tuple[int, IntArray]]:
    """Lower bounds of some variables, by their places in a scope, from a table of some variables."""
    for variable in variables:
        yield scope.index(variable), find_least_over(total, [of.index(variable)])
