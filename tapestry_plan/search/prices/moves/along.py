"""What devices exchange, counted along the axes of a mesh: for 1,024 devices no table has 1,024 × 1,024 entries.

In most layouts the cells of a device are a product, each of whose sets depends on the device's coordinates on some axes
of the mesh, and no axis matters for two of them. What one device holds and another one needs is a product then too, and
what a device receives from all others, a sum over their coordinates, is a product of sums over few of them::

    mesh (8, 8, 16)     holds  rows by x, columns by z          cells(s, d) = rows(s.x, d.y) · columns(s.z, d.z)
                        needs  rows by y, columns by z          received(d) = Σ_x rows(x, d.y) · Σ_z columns(z, d.z)

Where parts are numbered across two axes of a tensor, an axis of 16 devices may matter for both: then it is taken as
four axes of 2. Of replicas a device reads from that with its own coordinates on the axes along which they lie, as
`list_senders` says, so that these are not summed over; nor are the outer axes when links differ: what comes over the
link of an axis is what comes from devices that agree on all axes outside of it, less what comes from those that agree
on it too. Messages are counted in the same way, of sets that meet.

Tensors of one shape are made and read in mostly the same ways, so a pair of these is counted once for all tables
(`Pairs`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import reduce
from itertools import accumulate
from math import prod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.search.sums.elimination import IntArray
from tapestry_plan.steps import Mesh, list_factors

MeshAxes = tuple[int, ...]
"""Some axes of a mesh, ascending."""
Working = NDArray[np.bool_]
"""Which devices have something, in the shape of the mesh."""


class Spread(Struct, frozen=True):
    """A number for each device that depends on its coordinates on some axes of the mesh alone."""

    axes: MeshAxes
    numbers: IntArray
    """In the shape of the mesh, with one entry along all other axes."""


class Along(Struct, frozen=True):
    """A class of layouts as a product of sets that depend on different axes of the mesh.

    Parameters
    ----------
    sets : tuple of int
        For each axis of the tensor the place of its `Spread` in `Spreads`: numbers of sets, 0 for none.
    busy : int
        The same for the axes of the mesh that only say who has nothing: 1 for who has something, 0 for who has not.
    replicas : tuple of int
        Axes of the mesh along which devices hold the same, the same part of a sum too.
    rest : tuple of int
        Axes of the mesh on which no set depends, those of replicas among them.
    """

    sets: tuple[int, ...]
    busy: int
    replicas: MeshAxes
    rest: MeshAxes


class Pairs:
    """Numbers that belong to pairs, of one of some things and one of others, each worked out once.

    Parameters
    ----------
    many : int
        Numbers of each pair.
    """

    def __init__(self, many: int) -> None:
        self.found: IntArray = np.full((many, 0, 0), -1)
        """By number, one and other, -1 where nobody has asked."""
        self._ones: dict[Hashable, int] = {}
        self._others: dict[Hashable, int] = {}

    def place(self, ones: Sequence[Hashable], others: Sequence[Hashable]) -> tuple[IntArray, IntArray]:
        """The places of some of both in `found`, which has room for them then."""
        rows, columns = (
            np.array([known.setdefault(each, len(known)) for each in some], np.int64)
            for known, some in ((self._ones, ones), (self._others, others))
        )
        many, *sides = self.found.shape
        if len(self._ones) > sides[0] or len(self._others) > sides[1]:
            # It grows by half: a table of many has little room that nobody needs.
            both = zip(sides, (self._ones, self._others), strict=True)
            room = [max(side, len(known) + len(known) // 2) if len(known) > side else side for side, known in both]
            found = np.full((many, *room), -1)
            found[:, : sides[0], : sides[1]] = self.found
            self.found = found
        return rows, columns


class Spreads:
    """The different ways in which one axis of a tensor is laid along the axes of a mesh, each once.

    Tensors of one shape share them, and with them the sums of what two of them have in common.

    Parameters
    ----------
    shape : tuple of int
        Of the mesh.
    finely : bool
        Whether an axis of the mesh is taken as axes of prime numbers of devices.
    """

    def __init__(self, shape: tuple[int, ...], *, finely: bool = False) -> None:
        digits = [list_factors(n) if finely and n > 1 else (n,) for n in shape]
        self.shape = tuple(n for each in digits for n in each)
        self.outer = (0, *accumulate(map(len, digits)))
        """How many axes lie before each axis of the mesh, and how many there are."""
        self.all: list[Spread] = []
        self.sums: dict[tuple[object, ...], tuple[IntArray, IntArray]] = {}
        """What holders and consumers have in common along an axis of the tensor, summed over devices."""
        self._pairs: dict[tuple[str, int], Pairs] = {}
        self._places: dict[tuple[MeshAxes, bytes], int] = {}
        self._found: dict[tuple[bytes, bytes | None], Along | None] = {}

    def add(self, axes: MeshAxes, numbers: IntArray) -> int:
        """The place of what depends on some axes."""
        key = axes, numbers.tobytes()
        if key not in self._places:
            self._places[key] = len(self.all)
            self.all.append(Spread(axes, numbers))
        return self._places[key]

    def pair(self, what: str, many: int) -> Pairs:
        """What is known of pairs: so many numbers of each."""
        return self._pairs.setdefault((what, many), Pairs(many))

    def find(self, sets: IntArray, groups: IntArray | None = None) -> Along | None:
        """A class of layouts along the axes of the mesh, or None where it is not such a product.

        Parameters
        ----------
        sets : array of int64, (devices, rank)
            For each device the numbers of the sets whose product it has, all 0 for nothing, -1 for no one product.
        groups : array of int64, (devices,)
            Of holders, as in `Held`.
        """
        key = sets.tobytes(), None if groups is None else groups.tobytes()
        if key not in self._found:
            self._found[key] = self._find_now(sets, groups)
        return self._found[key]

    def find_taken(
        self, sets: IntArray, takes: Sequence[bool], consumers: Sequence[Along | None]
    ) -> list[Along | None]:
        """What an operand takes in some classes; where it takes nothing, what its consumer does."""
        rows = zip(sets, takes, consumers, strict=True)
        return [one if one is None or not some else self.find(mine) for mine, some, one in rows]

    def _find_now(self, sets: IntArray, groups: IntArray | None) -> Along | None:
        shape = self.shape
        grids = sets.T.reshape(-1, *shape)
        works: Working = np.logical_and.reduce(grids > 0, axis=0)
        if not works.flat[0] or (sets < 0).any():
            return None
        axes = range(len(shape))
        varies = [tuple(k for k in axes if _varies(grid, works, k)) for grid in grids]
        taken = [k for each in varies for k in each]
        if len(set(taken)) < len(taken):
            return None
        idle = tuple(k for k in axes if k not in taken and (works != works.take([0], k)).any())
        numbers = [_take_first(grid, each) for grid, each in zip(grids, varies, strict=True)]
        busy = _take_first(np.asarray(works, np.int64), idle)
        made = reduce(np.logical_and, (each > 0 for each in numbers), busy > 0)
        if (made != works).any() or any(
            ((each != grid) & works).any() for each, grid in zip(numbers, grids, strict=True)
        ):
            return None
        rest = tuple(k for k in axes if k not in taken and k not in idle)
        replicas = rest
        if groups is not None:
            grid = groups.reshape(shape)
            replicas = tuple(k for k in rest if not _varies(grid, works, k))
            alike = prod(shape[k] for k in replicas)
            if len(np.unique(grid[works])) * alike != works.sum():
                return None
        places = tuple(self.add(each, one) for each, one in zip(varies, numbers, strict=True))
        return Along(places, self.add(idle, busy), replicas, rest)


def _varies(grid: IntArray, works: Working, axis: int) -> bool:
    """Whether what devices have that have something depends on their coordinate on an axis."""
    return bool(((grid != grid.take([0], axis)) & works & works.take([0], axis)).any())


def _take_first(grid: IntArray, axes: MeshAxes) -> IntArray:
    """What depends on some axes, at the first coordinate on all others."""
    return np.ascontiguousarray(grid[tuple(slice(None) if k in axes else slice(0, 1) for k in range(grid.ndim))])


class Exchanged(Struct, frozen=True):
    """What devices exchange, for each class of holders and each of consumers: as the fields of `Transfers`."""

    cells: IntArray
    busiest: IntArray
    rounds: IntArray
    runs: IntArray


def count_along(
    holders: Sequence[Along],
    consumers: Sequence[Along],
    spreads: Spreads,
    mesh: Mesh,
    sizes: Callable[[int, IntArray, IntArray], IntArray],
) -> Exchanged:
    """What devices exchange where holders and consumers are products along the axes of the mesh.

    Parameters
    ----------
    holders, consumers : sequence of Along
    spreads : Spreads
        Their sets.
    mesh : Mesh
    sizes : callable
        Cells along an axis of the tensor that sets have in common, by their numbers: arrays that broadcast.
    """
    ports = len(mesh.ports)
    pairs = spreads.pair("exchanged", 1 + 2 * ports)
    rows, columns = pairs.place(holders, consumers)
    counter = Sums(holders, consumers, spreads, sizes)
    of_level = mesh.ports_of_axes if ports > 1 else (0,)
    outer, whole = spreads.outer, spreads.outer[-1]
    for row, holder in zip(rows, holders, strict=True):
        some = np.flatnonzero(pairs.found[0, row, columns] < 0)
        if not some.size:
            continue
        alike = counter.count(holder, whole, True, some)
        busiest, rounds = np.zeros((2, ports, some.size), np.int64)
        moved = np.zeros(some.size, np.int64)
        for received in (True, False):
            ends = [*(counter.count(holder, outer[level], received, some) for level in range(len(of_level))), alike]
            for port in range(ports):
                levels = [k for k, one in enumerate(of_level) if one == port]
                cells, messages = (reduce(np.add, [ends[k][at] - ends[k + 1][at] for k in levels]) for at in (0, 1))
                np.maximum(busiest[port], cells.max(axis=1), out=busiest[port])
                np.maximum(rounds[port], messages.max(axis=1), out=rounds[port])
                if received:
                    moved += cells.sum(axis=1) * (mesh.size // cells.shape[1])
        pairs.found[:, row, columns[some]] = np.concatenate([moved[None], busiest, rounds])
    cells, *found = pairs.found[:, rows[:, None], columns]
    return Exchanged(cells, np.array(found[:ports]), np.array(found[ports:]), np.zeros_like(found[:ports]))


def part_operands(
    numbers: Sequence[IntArray], sizes: Callable[..., IntArray]
) -> tuple[list[NDArray[np.bool_]], NDArray[np.bool_]]:
    """Whether the operands of a consumer take cells apart from each other, by class.

    Parameters
    ----------
    numbers : sequence of arrays (classes, devices)
        For each operand the numbers of the regions that it takes.
    sizes : callable
        Cells that regions have in common, by their numbers.

    Returns
    -------
    new, is_apart
        For each operand where it takes cells and none before takes the same; and where no other two have any in common.
    """
    if len(numbers) == 1:
        return [np.ones(len(numbers[0]), bool)], np.ones(len(numbers[0]), bool)
    new, is_apart = list[NDArray[np.bool_]](), np.ones(len(numbers[0]), bool)
    for k, mine in enumerate(numbers):
        takes: NDArray[np.bool_] = np.any(sizes(mine), axis=1)
        for before in numbers[:k]:
            again = (before == mine).all(axis=1)
            takes &= ~again
            is_apart &= again | ~sizes(before, mine).any(axis=1)
        new.append(takes)
    return new, is_apart


class Sums:
    """Sums over devices as products of sums over few coordinates, each of which is made once."""

    def __init__(
        self,
        holders: Sequence[Along],
        consumers: Sequence[Along],
        spreads: Spreads,
        sizes: Callable[[int, IntArray, IntArray], IntArray],
    ) -> None:
        self.spreads, self.sizes, self.shape = spreads, sizes, spreads.shape
        self.consumers = consumers
        axes = range(len(holders[0].sets))
        wanted = np.array([[*one.sets, one.busy] for one in consumers]).T
        self.wanted = [np.unique(row, return_inverse=True) for row in wanted]
        """For each factor the different spreads of consumers, and which of them each consumer has."""
        self.factors = [*axes, -1]
        self.made: dict[tuple[object, ...], tuple[IntArray, IntArray]] = {}

    def count(self, holder: Along, level: int, received: bool, some: IntArray) -> tuple[IntArray, IntArray]:
        """Cells, and messages, by consumer and device, where senders agree with receivers on some axes.

        One column stands for all devices where they do not differ. The axes are those along which the holder has
        replicas, and so many of the outer ones. `received` says whether it is a sum over senders, by receiver, or over
        receivers, by sender. Of the consumers it is of some, by number.
        """
        tied = frozenset(holder.replicas) | frozenset(range(level))
        rests = [holder.rest if received else self.consumers[k].rest for k in some.tolist()]
        alike = np.array([prod(self.shape[k] for k in rest if k not in tied) for rest in rests])
        cells = messages = alike[:, None]
        for sums, which in self._list_sums(holder, tied, received):
            cells, messages = cells * sums[0][which[some]], messages * sums[1][which[some]]
        return cells, messages

    def count_own(self, holder: Along, some: IntArray) -> IntArray:
        """Cells that devices need and have themselves, (some of the consumers, devices), or one column for all."""
        tied = frozenset(range(len(self.shape)))
        sums = [each[0][which[some]] for each, which in self._list_sums(holder, tied, received=True)]
        return reduce(np.multiply, sums)

    def _list_sums(
        self, holder: Along, tied: frozenset[int], received: bool
    ) -> Iterator[tuple[tuple[IntArray, IntArray], IntArray]]:
        """For each factor the sums of its different spreads, and which of these each consumer has."""
        for factor, mine, (_, which) in zip(self.factors, (*holder.sets, holder.busy), self.wanted, strict=True):
            yield self._sum_of(factor, mine, tied, received), which

    def _sum_of(self, factor: int, mine: int, tied: frozenset[int], received: bool) -> tuple[IntArray, IntArray]:
        """One factor of such a sum, for each different spread of consumers: (spreads, devices), or (spreads, 1)."""
        key = factor, mine, tied, received
        if key not in self.made:
            different = self.wanted[factor][0].tolist()
            each = [self._sum_one(factor, mine, theirs, tied, received) for theirs in different]
            whole = any(cells.size > 1 for cells, _ in each)
            shape = self.shape if whole else (1,) * len(self.shape)
            cells, messages = (
                np.array([np.broadcast_to(one[what], shape).reshape(-1) for one in each]) for what in (0, 1)
            )
            self.made[key] = cells, messages
        return self.made[key]

    def _sum_one(
        self, factor: int, mine: int, theirs: int, tied: frozenset[int], received: bool
    ) -> tuple[IntArray, IntArray]:
        key = factor, mine, theirs, tied, received
        if key not in self.spreads.sums:
            self.spreads.sums[key] = self._sum_now(factor, mine, theirs, tied, received)
        return self.spreads.sums[key]

    def _sum_now(
        self, factor: int, mine: int, theirs: int, tied: frozenset[int], received: bool
    ) -> tuple[IntArray, IntArray]:
        held, wanted = self.spreads.all[mine], self.spreads.all[theirs]
        stays, summed = (wanted, held) if received else (held, wanted)
        # The device that is asked about has the first axes, who is summed over the others, but for what they agree on.
        here = stays.numbers.reshape(*stays.numbers.shape, *(1,) * len(self.shape))
        agreed = [k for k in range(len(self.shape)) if k in tied]
        free = [k for k in range(len(self.shape)) if k not in tied]
        there = summed.numbers
        first = [n if k in tied else 1 for k, n in enumerate(there.shape)]
        last = [1 if k in tied else n for k, n in enumerate(there.shape)]
        there = there.transpose(*agreed, *free).reshape(*first, *last)
        cells = here * there if factor < 0 else self.sizes(factor, here, there)
        over = tuple(range(len(self.shape), 2 * len(self.shape)))
        return cells.sum(axis=over), (cells > 0).sum(axis=over)
