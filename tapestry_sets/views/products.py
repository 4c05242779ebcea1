"""The cells of a view of one allocation as a product of sets of indices, one an axis: no pieces, no row-major numbers.

    B = pad(A, 1, "wrap")[:4, 2:]      A of 5 x 6
    B reads on A's axes                {4, 0, 1, 2}  x  {1, 2, 3, 4, 5, 0}

From the view down to its allocation each kind takes the sets that are read of it to sets of its source; see
`kinds.axis_maps`. Where all kinds of a chain do so, the size is a product, and what two such views share is found axis
by axis. An index that reads a cell is found the other way around, from the allocation up to the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from msgspec import Struct

from tapestry_sets.limits import OPEN, Open
from tapestry_sets.regions import AxisSet, axis_sets
from tapestry_sets.views.kinds.axis_maps import AxisMap
from tapestry_sets.views.kinds.kind import ViewKind
from tapestry_sets.views.pieces.maps import INT64_MAX, Shape

ReadLevel = tuple[tuple[AxisMap, ...], tuple[AxisSet, ...]]
"""What a kind of the chain does, and the view's indices that are read there."""


class IndexProduct(Struct, frozen=True):
    """The indices that a view reads on each axis of its allocation.

    Parameters
    ----------
    sets : tuple of AxisSet
        One for each axis of the allocation; all of them empty if nothing is read.
    levels : tuple of ReadLevel
        From the view down to the last kind over the allocation.
    """

    sets: tuple[AxisSet, ...]
    levels: tuple[ReadLevel, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is read."""
        return any(map(axis_sets.is_nothing, self.sets))

    @property
    def size(self) -> int:
        """How many different cells are read."""
        return prod([axis_sets.size_of(s) for s in self.sets])

    @property
    def has_column(self) -> bool:
        """Whether the indices on some axis are a column."""
        return any(map(axis_sets.is_column, self.sets))

    def index_of(self, cell: Sequence[int]) -> tuple[int, ...] | Open | None:
        """Return an index of the view that reads a cell, or None."""
        if not all(axis_sets.hold(s, x) for s, x in zip(self.sets, cell, strict=True)):
            return None
        index = tuple(cell)
        for maps, sets in reversed(self.levels):
            found = [axis_sets.least(s) for s in sets]  # an axis that reads nothing is anywhere
            at = 0
            for m in maps:
                back = m.back(index[at : at + m.width], [sets[a] for a in m.axes])
                if back is OPEN or back is None:
                    return OPEN
                for axis, x in zip(m.axes, back, strict=True):
                    found[axis] = x
                at += m.width
            index = tuple(found)
        return index


def read_product(shape: Shape, chain: Iterable[tuple[ViewKind, Shape]]) -> IndexProduct | None:
    """Return the product of indices that a view of a shape reads; None where it is none, or that is not seen.

    Parameters
    ----------
    shape : tuple of int
        Of the view.
    chain : iterable of (kind, shape)
        From the view down to the allocation: each kind, and the shape of its one source.

    Examples
    --------
    >>> from tapestry_sets.views import Pad, Slice
    >>> pad, part = Pad(((1, 1),), "wrap"), Slice(((0, 4, None),))
    >>> read_product((4,), [(part, (7,)), (pad, (5,))]).sets
    (((0, 2, 1), (4, 4, 1)),)
    """
    sets: tuple[AxisSet, ...] = tuple([((0, n - 1, 1),) if n else () for n in shape])
    levels: list[ReadLevel] = []
    for kind, source in chain:
        by_axis = getattr(kind, "by_axis", None)
        maps = None if by_axis is None or 0 in source else by_axis(source)
        used = [] if maps is None else [axis for m in maps for axis in m.axes]
        if maps is None or len(set(used)) < len(used):  # an axis of the view moves along two of the source
            return None
        if not all(map(len, sets)):
            if not source:  # one cell, and no axis that could say that it is not read
                return None
            sets = ((),) * len(source)
            continue
        if any(map(axis_sets.is_column, sets)) and prod(source) >= INT64_MAX // 4:
            return None  # int64 might not hold what is on the way
        levels.append((maps, sets))
        below: list[AxisSet] = []
        for m in maps:
            if m.is_plain:
                below.append(sets[m.axes[0]])
                continue
            found = m.read([sets[axis] for axis in m.axes])
            if found is OPEN:
                return None
            below += found
        sets = tuple(below)
    return IndexProduct(sets, tuple(levels))
