"""Tables whose sum is the cost of a plan, or nearly: consumers of one tensor that are too many are counted one by one.

What such consumers take together is no more than the sum of what they take alone, and no less than any mean of that.
Which mean says most is not known before: where the least sum has one that receives much beside others that receive
nothing, a mean that counts it alone says more, so weights are shifted to it::

    q  60 us        a third each: 40        q and k, a half each: 60        at most 60 together, if k is as q
    k  60
    v   0
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct, field

from tapestry_plan.search import tuning
from tapestry_plan.search.sums.reduction import Factor, IntArray
from tapestry_plan.steps import Facts

Weights = dict[tuple[tuple[int, ...], ...], tuple[int, ...]]
"""Of a tensor's consumers, by the scopes of their tables: parts of `tuning.WEIGHT`, with no larger sum than that."""


class Tables(Struct):
    """Cost tables whose sum is the cost of a plan, or nearly."""

    shared: list[Factor]
    """Exact ones: for the search and for the bound."""
    alone: list[Factor] = field(default_factory=list)
    """For the search: mostly too much, as they count consumers as if there were no other."""
    below: list[Factor] = field(default_factory=list)
    """For the bound: too little."""
    groups: list[Sequence[Factor]] = field(default_factory=list)
    """Those of `alone` of which the bound has a mean, of one tensor's consumers each."""
    weights: Weights = field(default_factory=dict)
    """Those that are not all the same."""
    rounded: int = 0
    """Picoseconds by which the tables of `below` are less than the largest consumers, as all are rounded."""

    def count_alone(self, single: Sequence[Factor]) -> None:
        """Add tables of one tensor's consumers that are counted one by one."""
        self.alone += single
        self.groups.append(single)

    def count_largest(self, single: Sequence[Factor], sizes: Sequence[int], known: Facts) -> None:
        """Add one table of a tensor's consumers: together they take no less than each alone, and mostly no more."""
        every = list_scope(single)
        scope = [v for v in every if sizes[v] > 1] or every[:1]  # of hundreds of readers most may have one layout left
        places = [tuple(scope.index(v) for v in factor.scope if v in scope) for factor in single]

        def made() -> tuple[IntArray, IntArray]:
            ticks, nbytes = (np.zeros([sizes[v] for v in scope], np.int64) for _ in range(2))
            for factor, mine in zip(single, places, strict=True):
                around = [n if at in mine else 1 for at, n in enumerate(ticks.shape)]
                np.maximum(ticks, factor.ticks.reshape(around), out=ticks)
                np.maximum(nbytes, factor.nbytes.reshape(around), out=nbytes)
            # Sums of whole picoseconds may be below that of the sum by what each was rounded by.
            return np.maximum(ticks - count_rounding(len(single)), 0), nbytes

        self.rounded += count_rounding(len(single))
        identity = known.identity
        said = (((identity(f.ticks), identity(f.nbytes)), mine) for f, mine in zip(single, places, strict=True))
        largest = Factor(tuple(scope), *known.fact(("largest", len(scope), *said), made))
        self.alone.append(largest)
        self.below.append(largest)

    def list_bound(self, known: Facts) -> list[Factor]:
        """The tables of the bound, with means by the weights there are."""
        means = (one for group in self.groups for one in self._weigh(group, known))
        return [*self.shared, *self.below, *means]

    def _weigh(self, group: Sequence[Factor], known: Facts) -> Iterator[Factor]:
        for weight, f in zip(self._list_weights(group), group, strict=True):

            def made(f: Factor = f, weight: int = weight) -> tuple[IntArray, ...]:
                # In two steps, as a product of the two might not fit 64 bits.
                return tuple(
                    each // tuning.WEIGHT * weight + each % tuning.WEIGHT * weight // tuning.WEIGHT
                    for each in (f.ticks, f.nbytes)
                )

            key = "weighed", known.identity(f.ticks), known.identity(f.nbytes), weight
            yield Factor(f.scope, *known.fact(key, made))

    def _list_weights(self, group: Sequence[Factor]) -> tuple[int, ...]:
        return self.weights.get(_name(group)) or (tuning.WEIGHT // len(group),) * len(group)

    def shift_weights(self, choice: Sequence[int], step: float) -> bool:
        """Give more weight to consumers that receive much in a choice, and less to those that receive little.

        Of tensors with the same tables the weights stay the same. The result says whether there are others now.
        """
        kinds: dict[tuple[int, ...], list[Sequence[Factor]]] = {}
        for group in self.groups:
            kinds.setdefault(tuple(id(f.ticks) for f in group), []).append(group)
        before = dict(self.weights)
        for alike in kinds.values():
            received = np.zeros(len(alike[0]))
            for group in alike:
                received += [int(f.ticks[tuple(choice[v] for v in f.scope)]) for f in group]
            slope = received - received.mean()
            far = np.abs(slope).max()
            if far > 0:
                shares = np.array(self._list_weights(alike[0])) / tuning.WEIGHT
                shares = np.maximum(shares + step * slope / far, 0)
                whole = tuple((shares / shares.sum() * tuning.WEIGHT).astype(np.int64).tolist())
                self.weights |= {_name(group): whole for group in alike}
        return self.weights != before


def count_rounding(consumers: int) -> int:
    """Whole picoseconds by which the sum of what consumers take may be below what one of them takes alone.

    Each of them exchanges, merges and copies, and each of these is rounded, by half a picosecond.
    """
    return -(-3 * (consumers + 1) // 2)


def list_scope(factors: Sequence[Factor]) -> list[int]:
    """The variables of some tables, ascending."""
    return sorted({v for factor in factors for v in factor.scope})


def _name(group: Sequence[Factor]) -> tuple[tuple[int, ...], ...]:
    return tuple(f.scope for f in group)
