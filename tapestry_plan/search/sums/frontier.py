"""The least sum of picoseconds within a cap on bytes: sums of both at once, carried along the elimination tree.

Eliminating a variable sends its least sum on (see `pruning`). Where bytes must keep a cap the least sum is not enough:
a dearer part that holds less may leave room for others. So a bucket sends labels, sums of picoseconds and bytes of all
that is below it, for each place of the tables that it shares with the bucket above. Most never make a plan, and go::

    bytes │ a                    cap on bytes less what everything else holds at least: above it none fits
          │─ ─ ─ ─ ─ ─ ─ ─ ─
          │     b      ╲   d     d costs more than b and holds no less
          │        c    ╲
          │              ╲ e     weighed bytes and picoseconds, with the least of everything else, are above the limit
          └────────────────── picoseconds

What is left is exact while it is little. Where it is much, labels whose bytes are in the same unit become one, with the
least picoseconds and the least bytes of them: sums are then lower bounds, as good a proof that there is no plan below.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.search import tuning
from tapestry_plan.search.sums.pruning import Part, Tree, build_tree
from tapestry_plan.search.sums.reduction import Factor, IntArray

WEIGHT = 1 << 16
"""Weights of moments are whole numbers of picoseconds for so many bytes, so that bounds are exact."""


class Row(Struct, frozen=True):
    """Bytes at one moment, in tables in place of picoseconds, and how many picoseconds `WEIGHT` of them weigh."""

    tables: list[Factor]
    weight: int


class Labels(Struct):
    """Sums of picoseconds and bytes, of a part and of all below it.

    Parameters
    ----------
    at : array of int64, (labels,)
        The place in the tables that are shared with the part above, ascending.
    ticks, weighed : array of int64, (labels,)
        Picoseconds, and these with weighed bytes.
    nbytes : array of int64, (labels, rows)
    place : array of int64, (labels,)
        The place in the part's own tables.
    below : list of array of int64, (labels,)
        For each part below the number of the label that is in the sum.
    """

    at: IntArray
    ticks: IntArray
    weighed: IntArray
    nbytes: IntArray
    place: IntArray
    below: list[IntArray]

    def take(self, which: IntArray) -> Labels:
        """Some of them."""
        below = [column[which] for column in self.below]
        return Labels(
            self.at[which], self.ticks[which], self.weighed[which], self.nbytes[which], self.place[which], below
        )


class TooManyLabels(Exception):
    """More sums than are gone through."""


class Frontier:
    """Sums of picoseconds and bytes that no others are better than, of all variables.

    Parameters
    ----------
    sizes : sequence of int
        Number of values of each variable.
    factors : sequence of Factor
    rows : sequence of Row
    cap : int
        Bytes that each row may have.
    ticks : int
        Assignments of more picoseconds are not looked for.
    unit : int
        Bytes that are told apart; 0 where not even sums of the same bytes are: all assignments are listed then.
    most : int
        Labels that are gone through at once.

    Raises
    ------
    TooManyLabels
    """

    def __init__(
        self,
        sizes: Sequence[int],
        factors: Sequence[Factor],
        rows: Sequence[Row],
        cap: int,
        ticks: int,
        *,
        unit: int = 1,
        most: int = tuning.MAX_LABELS,
    ) -> None:
        self.sizes, self.rows, self.cap, self.unit = sizes, rows, cap, unit
        self.most, self.gone = most, 0
        weighed = [
            Factor(f.scope, f.ticks * row.weight // WEIGHT, np.zeros_like(f.ticks)) for row in rows for f in row.tables
        ]
        self.tree: Tree = build_tree(sizes, [*factors, *weighed])
        if not self.tree.exact:
            raise TooManyLabels
        for _ in self.tree.go_down(sizes):
            pass
        self.limit = ticks + sum(row.weight for row in rows) * cap // WEIGHT
        self._rank = {part.variable: k for k, part in enumerate(self.tree.parts)}
        self.constant = sum(int(f.ticks) for f in factors if not f.scope)
        self._own = self._list_own([f for f in factors if f.scope])
        own_rows = [self._list_own(row.tables) for row in rows]
        self._own_nbytes = own_rows
        self._count_ranges()
        self.labels: dict[int, Labels] = {}
        for part in self.tree.parts:
            self.labels[id(part)] = self._send(part)
        self.all = self._join_roots()

    # -- tables ------------------------------------------------------------------------------------------

    def _list_own(self, factors: Sequence[Factor]) -> list[list[Factor]]:
        """For each part the tables that are its own."""
        out: list[list[Factor]] = [[] for _ in self.tree.parts]
        for factor in factors:
            out[min(self._rank[v] for v in factor.scope)].append(factor)
        return out

    def _shape(self, part: Part) -> list[int]:
        return [self.sizes[v] for v in part.scope]

    def _sum(self, part: Part, factors: Sequence[Factor]) -> IntArray:
        """Some tables as one over a part's variables, flat."""
        total = np.zeros(self._shape(part), np.int64)
        for factor in factors:
            total += factor.ticks.reshape([self.sizes[v] if v in factor.scope else 1 for v in part.scope])
        return total.reshape(-1)

    def _count_ranges(self) -> None:
        """The least and the most bytes of each part and of all below it, and of everything else."""
        many = len(self.tree.parts)
        least, most = (np.zeros((many, len(self.rows)), np.int64) for _ in range(2))
        for r, own in enumerate(self._own_nbytes):
            for k, factors in enumerate(own):
                least[k, r] = sum(int(f.ticks.min()) for f in factors)
                most[k, r] = sum(int(f.ticks.max()) for f in factors)
        total_least, total_most = least.sum(axis=0), most.sum(axis=0)
        for k, part in enumerate(self.tree.parts):
            for sender in part.senders.values():
                least[k] += least[self._rank[sender.variable]]
                most[k] += most[self._rank[sender.variable]]
        self._least, self._most = least, most
        self._least_beside, self._most_beside = total_least - least, total_most - most

    # -- labels ------------------------------------------------------------------------------------------

    def _send(self, part: Part) -> Labels:
        """The labels of a part, of which none is better than another one at the same place of what it shares."""
        k = self._rank[part.variable]
        own = self._sum(part, self._own[k])
        nbytes = np.zeros((own.size, len(self.rows)), np.int64)
        for r, rows in enumerate(self._own_nbytes):
            nbytes[:, r] = self._sum(part, rows[k])
        weighed = self._sum(part, [f for n, f in enumerate(part.tables) if n not in part.senders])
        every = part.sum_up(self.sizes)
        every += np.expand_dims(part.outside, part.scope.index(part.variable)) + part.base
        place = np.flatnonzero(every.reshape(-1) <= self.limit)
        labels = Labels(place, own[place], weighed[place], nbytes[place], place, [])
        rest = every.reshape(-1)[place] - weighed[place]
        least = self._least_beside[k] + sum(self._least[self._rank[s.variable]] for s in part.senders.values())
        where = np.unravel_index(place, self._shape(part))
        for number, sender in part.senders.items():
            scope, message = part.tables[number].scope, part.tables[number].ticks + sender.below
            axes = [part.scope.index(v) for v in scope]
            shared = np.ravel_multi_index([where[a] for a in axes], message.shape)
            least = least - self._least[self._rank[sender.variable]]
            labels, kept = self._join(labels, shared, message.reshape(-1), self.labels[id(sender)], rest, least)
            where, rest = tuple(w[kept] for w in where), (rest - message.reshape(-1)[shared])[kept]
        axes = [a for a, v in enumerate(part.scope) if v != part.variable]
        labels.at = np.zeros(len(labels.at), np.int64)
        if axes:
            labels.at = np.ravel_multi_index([where[a] for a in axes], [self._shape(part)[a] for a in axes])
        return self._reduce(labels, k)

    def _join(
        self,
        labels: Labels,
        shared: IntArray,
        message: IntArray,
        others: Labels,
        rest: IntArray,
        least: IntArray,
    ) -> tuple[Labels, IntArray]:
        """Each label with each of those below that are at its place, and which label each was."""
        starts = np.searchsorted(others.at, shared, side="left")
        counts = np.searchsorted(others.at, shared, side="right") - starts
        many = int(counts.sum())
        self.gone += many
        if many > self.most or self.gone > tuning.LABEL_ROUNDS * self.most:
            raise TooManyLabels
        mine = np.repeat(np.arange(len(shared)), counts)
        theirs = np.arange(many) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(starts, counts)
        weighed = labels.weighed[mine] + others.weighed[theirs]
        keeps = weighed + (rest - message[shared])[mine] <= self.limit
        mine, theirs, weighed = mine[keeps], theirs[keeps], weighed[keeps]
        nbytes = labels.nbytes[mine] + others.nbytes[theirs]
        keeps = (nbytes + least <= self.cap).all(axis=1)
        mine, theirs = mine[keeps], theirs[keeps]
        below = [*(column[mine] for column in labels.below), theirs]
        ticks = labels.ticks[mine] + others.ticks[theirs]
        made = Labels(labels.at[mine], ticks, weighed[keeps], nbytes[keeps], labels.place[mine], below)
        return made, mine

    def _join_roots(self) -> Labels:
        """The labels of all variables, the least picoseconds first."""
        zero = np.zeros(1, np.int64)
        labels = Labels(
            zero, zero + self.constant, zero + self.constant, np.zeros((1, len(self.rows)), np.int64), zero, []
        )
        rest = zero + (self.tree.bound_ticks - self.constant)
        least = self._least_beside[:1] * 0
        for root, ticks in self.tree.roots:
            message = zero + ticks
            labels, kept = self._join(labels, labels.at * 0, message, self.labels[id(root)], rest, least[0])
            labels.at = labels.at * 0
            rest = (rest - message)[kept]
        return labels.take(np.argsort(labels.ticks, kind="stable"))

    def _reduce(self, labels: Labels, k: int) -> Labels:
        """Leave out labels that others at the same place are better than, and those of the same units."""
        if not self.unit:
            return labels.take(np.argsort(labels.at, kind="stable"))
        # Below these bytes all else fits beside, whatever it is. No more than there may be here: two parts share room.
        enough = np.clip(self.cap - self._most_beside[k], 0, self._most[k])
        nbytes = np.maximum(labels.nbytes, enough)
        labels.nbytes = nbytes
        if self.unit > 1:
            labels = _unite(labels, self.unit)
        return labels.take(_list_better(labels.at, labels.ticks, list_columns(labels.nbytes)))

    # -- answers -----------------------------------------------------------------------------------------

    def find_choice(self, number: int) -> tuple[int, ...]:
        """The values of a label of all variables."""
        choice = [0] * len(self.sizes)
        found = [(root, int(self.all.below[k][number])) for k, (root, _) in enumerate(self.tree.roots)]
        while found:
            part, at = found.pop()
            labels = self.labels[id(part)]
            where = np.unravel_index(int(labels.place[at]), self._shape(part))
            choice[part.variable] = int(where[part.scope.index(part.variable)])
            found += [(s, int(labels.below[k][at])) for k, s in enumerate(part.senders.values())]
        return tuple(choice)


def _unite(labels: Labels, unit: int) -> Labels:
    """Labels at one place whose bytes are in the same units as one: with the least of each."""
    units = np.column_stack([labels.at, labels.nbytes // unit])
    order = np.lexsort((labels.ticks, *units.T[::-1]))
    units = units[order]
    first = np.flatnonzero(np.concatenate([[True], (units[1:] != units[:-1]).any(axis=1)])) if len(order) else order
    made = labels.take(order[first])
    if len(order):
        made.nbytes = np.minimum.reduceat(labels.nbytes[order], first, axis=0)
        made.weighed = np.minimum.reduceat(labels.weighed[order], first)
    return made


def list_columns(nbytes: IntArray) -> IntArray:
    """The columns that tell labels apart, each once."""
    across = np.ascontiguousarray(nbytes.T)
    varies = across[np.ptp(across, axis=1) > 0] if across.size else across[:0]
    different = {row.tobytes(): row for row in varies}
    return np.array([*different.values()], np.int64).reshape(len(different), len(nbytes)).T


def _list_better(at: IntArray, ticks: IntArray, nbytes: IntArray) -> IntArray:
    """Those that no other one at the same place is better than, ordered by place."""
    order = np.lexsort((nbytes.sum(axis=1), ticks, at))
    at, nbytes = at[order], nbytes[order]
    if not len(order):
        return order
    first = np.concatenate([[True], at[1:] != at[:-1]])
    if nbytes.shape[1] == 0:
        return np.asarray(order[first])
    group = np.cumsum(first) - 1
    if nbytes.shape[1] == 1:
        # Of each place those that hold less than all before them, which take less time.
        high = int(nbytes.max()) + 1
        low = np.minimum.accumulate(nbytes[:, 0] - group * high)
        return np.asarray(order[np.concatenate([[True], low[1:] < low[:-1]])])
    starts = np.flatnonzero(first)
    counts = np.diff(np.append(starts, len(order)))
    kept = np.ones(len(order), bool)
    for size in np.unique(counts[counts > 1]):
        some = starts[counts == size]
        step = max(1, tuning.MAX_LABELS // (int(size) ** 2))
        for few in (some[k : k + step] for k in range(0, len(some), step)):
            rows = few[:, None] + np.arange(size)
            kept[rows.reshape(-1)] = ~_find_worse(nbytes[rows]).reshape(-1)
    return np.asarray(order[kept])


def _find_worse(nbytes: IntArray) -> NDArray[np.bool_]:
    """Of groups of labels, ordered by time, those that hold at least what one before them does: (groups, labels)."""
    groups, size, _ = nbytes.shape
    if size > 512:  # one after the other, of groups that are large
        out = np.zeros((groups, size), bool)
        for g in range(groups):
            better = nbytes[g, :0]
            for k in range(0, size, 128):
                block = nbytes[g, k : k + 128]
                inside = np.all(better[None] <= block[:, None], axis=2)
                worse = np.any(inside, axis=1) | _find_worse(block[None])[0]
                out[g, k : k + 128] = worse
                better = np.concatenate([better, block[~worse]])
        return out
    below = np.broadcast_to(np.tril(np.ones((size, size), bool), -1), (groups, size, size))
    for column in np.moveaxis(nbytes, 2, 0):
        below = below & (column[:, None, :] <= column[:, :, None])
    return np.asarray(below.any(axis=2))
