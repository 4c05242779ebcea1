"""The cells of a view as few products of sets of indices, one an axis: no pieces, no row-major numbers.

    B = pad(A, 1, "wrap")[:4, 2:]      A of 5 x 6
    B reads on A's axes                {4, 0, 1, 2}  x  {1, 2, 3, 4, 5, 0}

From the view down to its allocations each kind takes the sets that are read of it to sets of its sources; see
`kinds.axis_maps`. Where all kinds of a chain do so, the cells are a union of products, mostly of one, and what two
such views share is found axis by axis. The indices that read cells are found the other way around, from the allocation
up to the view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, islice, product
from math import prod
from typing import Any, Protocol

from msgspec import Struct

from tapestry_sets.digits import Ints
from tapestry_sets.limits import OPEN, Open, freeze_array
from tapestry_sets.regions import AxisSet, AxisSets, axis_products, axis_sets
from tapestry_sets.views import tuning
from tapestry_sets.views.kinds.axis_maps import AxisMap, AxisMaps
from tapestry_sets.views.kinds.kind import Shapes
from tapestry_sets.views.pieces.maps import INT64_MAX, Shape, put_extents

ReadLevel = tuple[AxisMaps, AxisSets]
"""What a kind of the chain does, and the view's indices that are read there."""


class Readable(Protocol):
    """A view, or an allocation, whose kind is not asked for."""

    @property
    def shape(self) -> Shape: ...
    @property
    def sources(self) -> Sequence[Any]: ...


class IndexProduct(Struct, frozen=True):
    """Indices that a view reads on each axis of an allocation, all combined.

    Parameters
    ----------
    sets : tuple of AxisSet
        One for each axis of the allocation, none of them empty.
    levels : tuple of ReadLevel
        From the view down to the last kind over the allocation.
    """

    sets: AxisSets
    levels: tuple[ReadLevel, ...] = ()

    def through(self, maps: AxisMaps) -> list[IndexProduct] | Open:
        """Return what is read of a source through maps of its axes."""
        mine = self.sets
        read: list[AxisSet] = []
        for m in maps:
            if m.is_plain:
                read.append(mine[m.axes[0]])
                continue
            each = m.read([mine[axis] for axis in m.axes])
            if each is OPEN:
                return OPEN
            if len(each) != 1:
                return self._through_many(maps)
            read += each[0]
        return [IndexProduct(tuple(read), (*self.levels, (maps, mine)))] if all(map(len, read)) else []

    def _through_many(self, maps: AxisMaps) -> list[IndexProduct] | Open:
        """The same where a map reads several products, or nothing."""
        found: list[AxisSets] = [()]
        for m in maps:
            each = m.read([self.sets[axis] for axis in m.axes])
            if each is OPEN:
                return OPEN
            found = [sets + more for sets in found for more in each]
        levels = (*self.levels, (maps, self.sets))
        return [IndexProduct(sets, levels) for sets in found if all(map(len, sets))]

    def index_of(self, cell: Sequence[int]) -> tuple[int, ...] | Open | None:
        """Return an index of the view that reads a cell, or None."""
        return self._back(cell, len(self.levels)) if axis_products.hold(self.sets, cell) else None

    def _back(self, at: Sequence[int], level: int) -> tuple[int, ...] | Open:
        """An index of the view that reads an index of what stands below some levels."""
        index = tuple(at)
        for maps, sets in reversed(self.levels[:level]):
            found = [axis_sets.least(s) for s in sets]  # an axis that reads nothing is anywhere
            first = 0
            for m in maps:
                back = m.back(index[first : first + m.width], [sets[a] for a in m.axes])
                if back is OPEN or back is None:
                    return OPEN
                for axis, x in zip(m.axes, back, strict=True):
                    found[axis] = x
                first += m.width
            index = tuple(found)
        return index

    def find_twice(self) -> tuple[Ints, Ints] | Open | None:
        """Return two indices of the view that read one cell; or None.

        Some cells are tried: amid the view, where windows read twice, at its ends and next to them, where pads do. Else
        two are sought on the first level that takes two to one; above that level no two indices are one, so that these
        come from two of the view, whichever. They may read a constant below.
        """
        if all(_reads_once(*level) for level in self.levels):
            return None
        for near in (lambda n: n // 2, lambda n: 0, lambda n: -1, lambda n: min(n - 1, 1), lambda n: max(-n, -2)):
            cell = [axis_sets.nth(s, near(axis_sets.size_of(s))) for s in self.sets]
            read = list(islice(_indices_in(self.readers(tuple(map(axis_sets.one, cell)))), 2))
            if len(read) == 2:
                return read[0], read[1]
        for k, (maps, sets) in enumerate(self.levels):
            found = _find_twice(maps, sets)
            if found is OPEN:
                return OPEN
            if found is not None:
                one, two = (self._back(index, k) for index in found)
                return OPEN if one is OPEN or two is OPEN else (one, two)
        return None

    def readers(self, wanted: AxisSets) -> Iterator[AxisSets | Open]:
        """Yield the indices that read wanted cells, as products that share none; last `OPEN` if they are too many.

        Parameters
        ----------
        wanted : tuple of AxisSet
            One for each axis of the allocation, and in `sets`.
        """
        levels, ways = self.levels, [iter([wanted])]
        while ways:
            sets = next(ways[-1], None)
            if sets is None:
                ways.pop()
            elif len(ways) > len(levels):
                yield sets
            else:
                more = _readers_of(levels[-len(ways)], sets)
                if more is OPEN:
                    yield OPEN
                    return
                ways.append(more)


class IndexProducts(Struct, frozen=True, dict=True):
    """The cells of one allocation that a view reads, as products of indices; they may share cells.

    Parameters
    ----------
    parts : tuple of IndexProduct
    """

    parts: tuple[IndexProduct, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is read."""
        return not self.parts

    @cached_property
    def each(self) -> tuple[AxisSets, ...]:
        """The cells as products, fewer than the parts where some differ on one axis alone."""
        found = axis_products.join([part.sets for part in self.parts])
        for s in chain.from_iterable(found):
            if axis_sets.is_column(s):
                freeze_array(s)
        return tuple(found)

    @property
    def size(self) -> int:
        """How many different cells are read; TooHard if too many products share cells."""
        return axis_products.count_union(self.each)

    @property
    def has_column(self) -> bool:
        """Whether the indices on some axis are a column."""
        return any(axis_sets.is_column(s) for sets in self.each for s in sets)

    @property
    def is_best(self) -> bool:
        """Whether questions are best asked of the products: there is one, or what else is known has pieces for runs."""
        return len(self.each) == 1 or self.has_column

    def find_twice(self) -> tuple[Ints, Ints] | Open | None:
        """Return two indices of the view that read one cell; None if there are none."""
        each = [part.find_twice() for part in self.parts]
        share = sum([axis_products.size_of(part.sets) for part in self.parts]) > self.size
        for k, one in enumerate(self.parts if share else ()):
            for two in self.parts[:k]:
                met = axis_products.meet(one.sets, two.sets)
                if met is not None:
                    cell = tuple(map(axis_sets.least, met))
                    i, j = one.index_of(cell), two.index_of(cell)
                    each.append(OPEN if i is OPEN or j is OPEN or i is None or j is None else (i, j))
        found = [pair for pair in each if pair is not None]
        return next((pair for pair in found if pair is not OPEN), OPEN if found else None)

    def readers(self, wanted: AxisSets) -> Iterator[AxisSets | Open]:
        """Yield the indices that read wanted cells, as products that share none; last `OPEN` if they are too many."""
        for part in self.parts:
            met = axis_products.meet(part.sets, wanted)
            if met is not None:
                yield from part.readers(met)

    def index_of(self, cell: Sequence[int]) -> tuple[int, ...] | Open | None:
        """Return an index of the view that reads a cell, or None."""
        found = [part.index_of(cell) for part in self.parts]
        indices = [index for index in found if index is not None]
        return next((index for index in indices if index is not OPEN), OPEN if indices else None)


def _readers_of(level: ReadLevel, wanted: AxisSets) -> Iterator[AxisSets] | Open:
    """The indices of a level's view that read wanted ones of its source, as products that share none."""
    maps, sets = level
    each, at = [], 0
    for m in maps:
        readers = m.readers(wanted[at : at + m.width], [sets[axis] for axis in m.axes])
        if readers is OPEN:
            return OPEN
        each.append(readers)
        at += m.width

    def products() -> Iterator[AxisSets]:
        for choice in product(*each):
            found = list(sets)  # an axis that reads nothing is anywhere
            for m, one in zip(maps, choice, strict=True):
                for axis, s in zip(m.axes, one, strict=True):
                    found[axis] = s
            yield tuple(found)

    return products()


def _indices_in(products: Iterator[AxisSets | Open]) -> Iterator[Ints]:
    """Some indices of products that share none: of each the least, and the greatest if that is another."""
    for sets in products:
        if sets is OPEN:
            return
        least, greatest = (tuple(map(end, sets)) for end in (axis_sets.least, axis_sets.greatest))
        yield from dict.fromkeys((least, greatest))


def reads_each_once(view: Readable) -> bool:
    """Return whether surely no cell is read at two indices, as no kind of a chain of one allocation does that.

    What is read may be too many products, such as of a pad whose rows are renumbered.

    Examples
    --------
    >>> from tapestry_sets.views import allocate, pad
    >>> shifted = pad(allocate((6, 9)), ((0, 0), (1, 0))).reshape(10, 6)[1:].reshape(6, 9)
    >>> reads_each_once(shifted), reads_each_once(shifted[None].broadcast_to((2, 6, 9)))
    (True, False)
    """
    here: Any = view
    while here.sources:
        if len(here.sources) > 1:
            return False
        (source,) = here.sources
        every = None if 0 in here.shape else maps_of(here.kind, (source.shape,))
        if every is None or not _reads_once(every[0], tuple([((0, n - 1, 1),) for n in here.shape])):
            return False
        here = source
    return True


def _reads_once(maps: AxisMaps, sets: AxisSets) -> bool:
    """Whether surely no two indices of a level's view read the same."""
    used = {axis for m in maps for axis in m.axes}
    if any(axis_sets.size_of(s) > 1 for axis, s in enumerate(sets) if axis not in used):
        return False
    return all(m.reads_once(tuple([sets[axis] for axis in m.axes])) for m in maps)


def _find_twice(maps: AxisMaps, sets: AxisSets) -> tuple[Ints, Ints] | Open | None:
    """Two indices that maps take to one."""
    corner = tuple(map(axis_sets.least, sets))
    free = set(range(len(sets))) - {axis for m in maps for axis in m.axes}
    for axis in free:  # moves along nothing
        if axis_sets.size_of(sets[axis]) > 1:
            return corner, put_extents(corner, axis, axis_sets.greatest(sets[axis]))
    for m in maps:
        mine = tuple([sets[axis] for axis in m.axes])
        found = None if m.is_injective or m.is_plain else _find_pair(m, mine)
        if found is OPEN:
            return OPEN
        if found is not None:
            one, two = ({**dict(enumerate(corner)), **dict(zip(m.axes, at, strict=True))} for at in found)
            return tuple(one.values()), tuple(two.values())
    return None


def _find_pair(m: AxisMap, sets: AxisSets) -> tuple[Ints, Ints] | Open | None:
    """Two indices that one map takes to one: halves that read fewer than they hold are halved, then two that meet."""
    read = m.read(sets)
    if read is OPEN:
        return OPEN
    if axis_products.count_union(read) == axis_products.size_of(sets):
        return None
    axis = max(range(len(sets)), key=lambda a: axis_sets.size_of(sets[a]))
    halves = [tuple(half if a == axis else s for a, s in enumerate(sets)) for half in axis_sets.halve(sets[axis])]
    for half in halves:
        found = _find_pair(m, half)
        if found is not None:
            return found
    low, high = (m.read(half) for half in halves)
    if low is OPEN or high is OPEN:
        return OPEN
    at = next(tuple(map(axis_sets.least, met)) for one in low for met in axis_products.meet_each(one, high))
    one, two = (m.back(at, half) for half in halves)
    return OPEN if one is OPEN or two is OPEN or one is None or two is None else (one, two)


def read_index(view: Readable, index: Ints) -> tuple[Any, Ints] | None:
    """Return the allocation and the cell that an index of a view reads; None where that is a constant, or not seen.

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> read_index(allocate((5, 6), name="A").reshape(30)[3:], (9,))
    (Allocation((5, 6), name='A', itemsize=1), (2, 0))
    """
    found = read_products(view, tuple([((x, x, 1),) for x in index]))
    for home, products in (found or {}).items():
        return home, tuple(map(axis_sets.least, products.parts[0].sets))
    return None


def read_products(view: Readable, sets: AxisSets | None = None) -> dict[Any, IndexProducts] | None:
    """Return what a view reads of each allocation as products of indices; None where they are not few, or not seen.

    Parameters
    ----------
    view : View
    sets : tuple of AxisSet, optional
        At what indices; by default at all.

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((5, 6))
    >>> read_products(A.reshape(30)[3:14])[A].each
    ((((0, 0, 1),), ((3, 5, 1),)), (((2, 2, 1),), ((0, 1, 1),)), (((1, 1, 1),), ((0, 5, 1),)))
    """
    first = IndexProduct(tuple([((0, n - 1, 1),) for n in view.shape]) if sets is None else sets)
    work: list[tuple[Any, list[IndexProduct]]] = [(view, [] if 0 in view.shape else [first])]
    found: dict[Any, list[IndexProduct]] = {}
    many = 1  # parts, of all that is on the way and at its end
    while work:
        here, parts = work.pop()
        sources = here.sources
        if not parts:
            continue
        if not sources:
            found[here] = [*found[here], *parts] if here in found else parts
            continue
        shapes = tuple([source.shape for source in sources])
        every = maps_of(here.kind, shapes)
        if every is None:
            return None
        many -= len(parts)
        for source, shape, maps in zip(reversed(sources), reversed(shapes), reversed(every), strict=True):
            read = [] if 0 in shape else _read_source(parts, shape, maps)
            if read is OPEN:
                return None
            work.append((source, read))
            many += len(read)
        if many > tuning.MAX_READ:
            return None
    every_home = {home: IndexProducts(tuple(parts)) for home, parts in found.items()}
    return None if any(len(products.each) > tuning.MAX_PARTS for products in every_home.values()) else every_home


def _read_source(parts: list[IndexProduct], shape: Shape, maps: AxisMaps) -> list[IndexProduct] | Open:
    """What products of a view's indices read of a source."""
    below: list[IndexProduct] = []
    for part in parts:
        if prod(shape) >= INT64_MAX // 4 and any(map(axis_sets.is_column, part.sets)):
            return OPEN  # int64 might not hold what is on the way
        each = part.through(maps)
        if each is OPEN:
            return OPEN
        below += each
    return below


def maps_of(kind: Any, shapes: Shapes) -> tuple[AxisMaps, ...] | None:
    """Return for each source how a kind reads its axes; None if it does not say, or one axis moves along two."""
    by_axis = getattr(kind, "by_axis", None)
    if by_axis is None:
        return None
    if len(shapes) == 1 and 0 in shapes[0]:
        return ((),)  # nothing is read
    every: tuple[AxisMaps, ...] | None = by_axis(shapes)
    for maps in every or ():
        used = [axis for m in maps for axis in m.axes]
        if len(used) > 1 and len(set(used)) < len(used):
            return None
    return every
