"""What a problem's tables are made of: variables, stored tensors with who makes and who reads them, known facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from tapestry_plan.ir import Axis, Stored
from tapestry_plan.search.prices.costs.merging import Merges
from tapestry_plan.search.prices.costs.variants import Given
from tapestry_plan.search.prices.moves import BESIDE, FLAT, HOSTED, PARTED, Held, RegionTable
from tapestry_plan.search.sums.elimination import Factor, IntArray
from tapestry_plan.steps import Facts, Layout
from tapestry_sets.regions import DisjointRegions

Kind = Literal["operator", "source", "output", "landing"]


class Known(Facts):
    """Facts that problems of one mesh share: each is worked out once for all operators and tensors of one structure.

    Arrays are known by their identity, so equal ones are one object (`share`), and are kept with what was made of them.
    """

    tables: dict[tuple[int, ...], RegionTable] = field(default_factory=dict)
    """By shape: regions of all tensors of a shape have one numbering."""
    shared: dict[tuple[tuple[int, ...], bytes], list[IntArray]] = field(default_factory=dict)
    """Arrays by their shape and `_add_rows`: the few that have both in common are compared."""
    is_lowered: bool = False
    """Whether tables were made when the time was over, so that some are below what layouts cost."""

    def share(self, array: IntArray) -> IntArray:
        """The one object for all arrays that are equal to one."""
        alike = self.shared.setdefault((array.shape, _add_rows(array)), [])
        for one in alike:
            if np.array_equal(one, array):
                return one
        alike.append(array)
        return array


def _add_rows(array: IntArray) -> bytes:
    """Sums over the last axis, each entry times a number of its own: a short sign by which arrays are told apart."""
    # Bytes of the array itself, which for a thousand devices are megabytes, take longer to look up, and stay.
    return (array @ _list_weights(array.shape[-1]) if array.ndim else array).tobytes()


@lru_cache(maxsize=256)
def _list_weights(count: int) -> IntArray:
    """Odd numbers that look drawn (Steele et al., "SplitMix", 2014): rows that are alike have other sums."""
    found = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    return (found | np.uint64(1)).view(np.int64)


class Variable(Struct):
    """Something that has a layout: an operator, a source tensor that starts somewhere, or an output."""

    name: str
    kind: Kind
    axes: tuple[Axis, ...]
    layouts: tuple[Layout, ...]


class Use(Struct):
    """How a consumer reads one stored tensor: region numbers by (layout, device)."""

    variable: int
    numbers: IntArray
    given: Given = ()
    """What is chosen where it reads so."""
    tied: str = ""
    """The graph output that is brought to where its input lies, if that is what reads the tensor."""
    viewed: bool = False
    """Whether an operator reads it through a view."""
    free: IntArray | None = None
    """1 for layouts in which it has the tensor at no cost, as that is counted elsewhere; none by default."""
    apart: tuple[IntArray, ...] = ()
    """What each operand reads of it, where several operands of one operator do."""
    ways: tuple[IntArray, ...] = ()
    """For each operand that reads it how it has its block, see `OperandBlocks`."""
    loose: tuple[IntArray, ...] = ()
    """For each operand that reads it on which axes its buffer reaches further than what it takes, likewise."""

    @property
    def structure(self) -> tuple[int, ...]:
        """All that tables depend on: arrays are shared, so ids say which."""
        free = () if self.free is None else (-1, id(self.free))
        return (id(self.numbers), *map(id, self.apart), *map(id, self.ways), *map(id, self.loose), *free)

    def cut(self, take: Callable[[IntArray], IntArray]) -> Use:
        """The same in some layouts, whose rows of an array are taken."""
        free = None if self.free is None else take(self.free)
        apart, ways, loose = (tuple(map(take, every)) for every in (self.apart, self.ways, self.loose))
        return replace(self, numbers=take(self.numbers), free=free, apart=apart, ways=ways, loose=loose)

    def loosen(self, share: Callable[[IntArray], IntArray], bits: int) -> Use:
        """The same with no more copied than others may copy instead: nothing in blocks of views, and with more bits."""
        ways = self.ways or (np.zeros_like(self.numbers),) * max(1, len(self.apart))
        return replace(self, ways=tuple(share((way & ~(HOSTED | BESIDE)) | bits) for way in ways))

    def double(self, share: Callable[[IntArray], IntArray]) -> Use:
        """The same where the tensor lies in two places."""
        ways = (np.where(way & HOSTED, way | BESIDE, way) & ~(PARTED | FLAT) for way in self.ways)
        return replace(self, ways=tuple(map(share, ways)))


class TensorCost(Struct):
    """The costs of moving one stored tensor, for all layouts."""

    tensor: Stored
    table: RegionTable
    producer: int
    held: Held
    part_itemsize: int
    """Bytes of a cell of a partial result."""
    uses: list[Use] = field(default_factory=list)
    only_partial: frozenset[int] = frozenset()
    """Consumers (by position) that want the tensor only where it is in partial results: graph outputs."""
    given: Given = ()
    """What is chosen where the producer makes it."""
    landing: Use | None = None
    """Where it lands before others read it: it reads nothing where that is nowhere."""
    shares: bool = False
    """Whether it may land where it is complete too, because some devices are given less of it than others."""
    merges: Merges | None = None
    """How partial results may be merged in stages to where it lands."""
    made: dict[tuple[int, ...], Factor] = field(default_factory=dict)
    """Tables of the last of some consumers, by position, that were made already."""

    @property
    def variables(self) -> list[int]:
        """Of who makes it, of who reads it, and of where it lands."""
        landing = [] if self.landing is None else [self.landing.variable]
        return [self.producer, *(use.variable for use in self.uses), *landing]

    @property
    def structure(self) -> tuple[int | tuple[int, ...], ...]:
        """All that its tables depend on besides consumers, and where it lands: arrays are shared, so ids say which."""
        held = self.held
        ids = id(held.numbers), id(held.parts), id(held.groups)
        merges = id(self.merges.ticks) if self.merges else 0
        return self.tensor.shape, self.tensor.itemsize, self.part_itemsize, self.shares, merges, *ids

    @property
    def lands(self) -> NDArray[np.bool_]:
        """Whether it lands somewhere, by layouts of its producer and of where that is."""
        assert self.landing is not None, "it may land"
        somewhere = np.any(self.table.sizes(self.landing.numbers) > 0, axis=1)
        may: NDArray[np.bool_] = self.held.parts > 1
        if self.shares:
            cells = self.table.sizes(self.held.numbers)
            may = may | (cells.min(axis=1) < cells.max(axis=1))
        found: NDArray[np.bool_] = may[:, None] & somewhere
        return found

    def lands_in(self, choice: Sequence[int]) -> bool:
        """Whether it lands somewhere in chosen layouts."""
        place, row = self.landing, choice[self.producer]
        if place is None or not self.table.sizes(place.numbers[choice[place.variable]]).any():
            return False
        if self.held.parts[row] > 1 or not self.shares:
            return bool(self.held.parts[row] > 1)
        cells = self.table.sizes(self.held.numbers[row])
        return bool(cells.min() < cells.max())

    def split(self, meet: Callable[[Use, Use], bool]) -> list[TensorCost]:
        """The costs of consumers that may receive cells for each other, and of others apart from them.

        What a consumer receives depends on those before it only where they read the same cells: of a tensor of which
        three operators read a third each, three tables of pairs say it all. Whether two `meet` is said by
        `share_cells`, once for all that read alike.
        """
        groups: list[list[int]] = []
        for k, use in enumerate(self.uses):
            near = [group for group in groups if any(meet(self.uses[other], use) for other in group)]
            groups = [group for group in groups if group not in near]
            groups.append(sorted([k, *(other for group in near for other in group)]))
        return [self._with_uses(group) for group in sorted(groups)] if len(groups) > 1 else [self]

    def share_cells(self, one: Use, two: Use) -> bool:
        """Whether two consumers read the same cells in any of their layouts."""
        first, second = (self.list_largest(use) for use in (one, two))
        few = self.table.sizes(first[:1], second[:1])
        return bool(few.any() or self.table.sizes(first[:, None], second[None, :]).any())

    def list_largest(self, use: Use) -> IntArray:
        """The regions that a consumer reads in any layout, the largest first: where any two meet, these mostly do."""
        numbers = np.unique(use.numbers)
        return numbers[np.argsort(-self.table.sizes(numbers), kind="stable")]

    def _with_uses(self, group: Sequence[int]) -> TensorCost:
        partial = frozenset(at for at, k in enumerate(group) if k in self.only_partial)
        return replace(self, uses=[self.uses[k] for k in group], only_partial=partial, made={})

    def itemsizes(self, parts: IntArray) -> IntArray:
        """Bytes of a cell that moves, for each number of parts."""
        sizes: IntArray = np.where(parts > 1, self.part_itemsize, self.tensor.itemsize)
        return sizes


def hold_parts(known: Known, numbers: IntArray, parts: IntArray, which: IntArray, empty: int) -> Held:
    """What devices hold, from the regions, the numbers of partial results, and which of these each device has."""
    rows, devices = np.indices(numbers.shape)
    held = np.ravel_multi_index(
        (rows, numbers, which), (len(numbers), int(numbers.max(initial=0)) + 1, int(parts.max(initial=1)))
    )
    _, first, places = np.unique(held, return_index=True, return_inverse=True)
    groups = np.where(numbers == empty, -1, devices.ravel()[first][places.reshape(numbers.shape)])
    return Held(numbers, known.share(parts.astype(np.int64)), known.share(groups))


def hold_whole(known: Known, table: RegionTable, numbers: IntArray) -> Held:
    """What devices hold of complete values, from the regions."""
    empty = table.number(DisjointRegions(table.shape))
    return hold_parts(known, numbers, np.ones(len(numbers), np.int64), np.zeros_like(numbers), empty)
