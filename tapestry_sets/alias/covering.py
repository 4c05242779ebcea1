"""Several views together: do they read all that another one reads, what do they leave out, and what is read twice?

products    of each view as of the other, its indices axis by axis: what is left is looked for axis by axis
bits        of short allocations: one integer each, and one operation of it for each view
counts      of views that share no cell: what each shares with the other adds up to its size
as one      else the views are put together as one view, which is asked as any other is
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import NamedTuple, cast

import numpy as np

from tapestry_sets.alias import tuning
from tapestry_sets.alias.every_pair import meeting
from tapestry_sets.alias.ladder.cells import Cells
from tapestry_sets.alias.memory.arrays import MEMORY, ViewLike, read_view, read_views
from tapestry_sets.digits import point_of
from tapestry_sets.draw import views as draw_views
from tapestry_sets.limits import (
    OPEN,
    Asked,
    Open,
    Public,
    TooHard,
    TooManyPieces,
    ask_one,
    attempt,
    current,
    cut_text,
    limits,
    quote,
)
from tapestry_sets.regions import AxisSets, DisjointRegions, axis_products
from tapestry_sets.views import Allocation, InternalOverlap, View, concatenate


class Missing(NamedTuple):
    """A cell that one view reads and another does not.

    Attributes
    ----------
    at : tuple of int
        An index of the view that reads it.
    allocation : Allocation
    cell : tuple of int
        In the allocation.
    """

    at: tuple[int, ...]
    allocation: Allocation
    cell: tuple[int, ...]


class Twice(NamedTuple):
    """A cell that two views read, or one view at two indices.

    Attributes
    ----------
    first, second : int
        Which views, as they were given; the same number where one view reads the cell twice.
    a, b : tuple of int
        An index of the first that reads it, and one of the second.
    allocation : Allocation
    cell : tuple of int
        In the allocation.
    """

    first: int
    second: int
    a: tuple[int, ...]
    b: tuple[int, ...]
    allocation: Allocation
    cell: tuple[int, ...]


class Coverage(Asked, frozen=True, eq=False, metaclass=Public):
    """What some views read of others' cells; true if they read all of them. Made by `covers`.

    Parameters
    ----------
    views : tuple of View
    of : tuple of View
        What is to be covered.

    Examples
    --------
    >>> from tapestry_sets import allocate, covers
    >>> A = allocate((6, 4), name="A")
    >>> covers([A[:3], A[3:]])
    Coverage(exactly once, by 2 views)
    >>> found = covers([A[:4], A[3:, :2]])
    >>> bool(found), found.gap.cell, found.twice.cell
    (False, (4, 2), (3, 0))
    """

    views: tuple[View, ...]
    of: tuple[View, ...]

    def __bool__(self) -> bool:
        return bool(self._ask("covers", self._covers))

    def __repr__(self) -> str:
        """Whether each cell is read exactly once, or where one is not read, and where one is read twice."""
        told = attempt(self._tell)
        return f"Coverage({cut_text('too hard to tell in a line' if isinstance(told, Open) else told, 180)})"

    def _tell(self) -> str:
        gap, twice = self.gap, self.twice
        parts = []
        if gap is not None:
            parts.append(f"gap at {_name(gap.allocation)}{quote(list(gap.cell))}")
        if twice is not None:
            one, two = (f"views[{k}]{quote(list(at))}" for k, at in ((twice.first, twice.a), (twice.second, twice.b)))
            parts.append(f"twice at {_name(twice.allocation)}{quote(list(twice.cell))} = {one} = {two}")
        many = len(self.views)
        return "; ".join(parts) or f"exactly once, by {many} {'view' if many == 1 else 'views'}"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        said = repr(self)
        return draw_views.views_mimebundle(*self.views, title=said, notes=self._notes())

    @property
    def exactly_once(self) -> bool:
        """Whether each cell is read by one of the views, at one index."""
        return bool(self) and self.twice is None

    @property
    def gap(self) -> Missing | None:
        """A cell that no view reads, and an index of what is to be covered that reads it; None if there is none."""
        return cast("Missing | None", self._ask("gap", self._find_gap))

    @property
    def twice(self) -> Twice | None:
        """A cell that is read twice, by which views and at which indices; None if there is none.

        What the views read beside the cells that are to be covered does not count.

        Raises
        ------
        TooHard, TooManyPieces
            If a part of an allocation is to be covered, of which two views read cells beside, and what they share is
            neither decided nor few regions.
        """
        return cast("Twice | None", self._ask("twice", self._find_twice))

    def _covers(self) -> bool:
        return all(lies_in_all(self.views, view) for view in self.of)

    def _find_gap(self) -> Missing | None:
        for view in self.of:
            found = find_lacking(self.views, view)
            if found is not None:
                allocation, cell = found
                at = view.cells[allocation].index_of(cell)
                assert at is not None, "a cell that is read has an index"
                return Missing(at, allocation, cell)
        return None

    def _find_twice(self) -> Twice | None:
        with limits(max_pieces=min(tuning.MAX_SETTS, current().max_pieces)):
            return self._find_twice_in_few()

    def _find_twice_in_few(self) -> Twice | None:
        wanted = {home: cells for view in self.of for home, cells in view.cells.items()}
        if not self.views:
            return None
        pairs = np.argwhere(np.triu(meeting(self.views), 1)).tolist()
        for i, j in pairs:
            one, two = self.views[i].cells, self.views[j].cells
            for home in one.keys() & two.keys() & wanted.keys():
                cell = _common_within(one[home], two[home], wanted[home])
                if cell is not None:
                    at, to = one[home].index_of(cell), two[home].index_of(cell)
                    assert at is not None and to is not None, "a cell that is read has an index"
                    return Twice(i, j, at, to, home, cell)
        return next(
            (twice for k in range(len(self.views)) if (twice := self._find_inside(k, wanted)) is not None), None
        )

    def _find_inside(self, k: int, wanted: Mapping[Allocation, Cells]) -> Twice | None:
        """A wanted cell that one view reads at two indices."""
        found = self.views[k].internal_overlap()
        if found is not None and not _holds(wanted, found):
            found = _twice_within(self.views[k], wanted)
        return None if found is None else Twice(k, k, found.a, found.b, cast(Allocation, found.allocation), found.cell)


def covers(views: Iterable[ViewLike], of: ViewLike | None = None) -> Coverage:
    """Return whether some views together read every cell of another: exactly once, a gap where, twice where.

    The value is true if there is no gap; `Coverage.exactly_once` asks for more.

    Parameters
    ----------
    views : iterable of View or array
        Of the same memory or not, overlapping or not, in any order.
    of : View or array, optional
        What is to be covered; by default all memory of which the views read some. Arrays have no end of theirs, so
        give it where the views are arrays.

    Raises
    ------
    TypeError, ValueError
        As for `overlaps`.
    TooHard
        When the value is asked, if neither closed forms nor isl decide, and cells are too many to list.

    Examples
    --------
    >>> from tapestry_sets import allocate, covers
    >>> A = allocate((10**9, 10**9), name="A")
    >>> covers([A[::2], A[1::2, :7], A[1::2, 7:]]), covers([A[::2], A[1::3]])
    (Coverage(exactly once, by 3 views), Coverage(gap at A[3, 0]; twice at A[4, 0] = views[0][2, 0] = views[1][1, 0]))
    >>> covers([A[:7], A[5:]]).exactly_once, bool(covers([A[:7], A[5:]])), bool(covers([A[:7]], A[2:5]))
    (False, True, True)
    >>> covers([A[:, ::2]], A[2, :3]).gap
    Missing(at=(1,), allocation=Allocation((1000000000, 1000000000), name='A', itemsize=1), cell=(2, 1))
    """
    given = tuple(read_views(views, "covers"))
    if of is not None:
        return Coverage(given, (read_view(of, "covers: of"),))
    homes = tuple(dict.fromkeys([home for view in given for home in view.allocations]))
    vast = [home for home in homes if home.memory is MEMORY.memory]
    if vast:
        raise ValueError(
            "covers: of: the views are of real arrays, whose memory has no end that is known; give the array that they "
            "are to cover"
        )
    return Coverage(given, homes)


def _name(allocation: Allocation) -> str:
    return allocation.name or "memory"


def _holds(wanted: Mapping[Allocation, Cells], found: InternalOverlap) -> bool:
    cells = wanted.get(cast(Allocation, found.allocation))
    return cells is not None and cells.index_of(found.cell) is not None


def _common_within(one: Cells, two: Cells, wanted: Cells) -> tuple[int, ...] | None:
    """A wanted cell that two views share, which share some."""
    cell = one.a_common_cell(two)
    if cell is None or wanted.index_of(cell) is not None:
        return cell
    return one.common(two).a_common_cell(wanted)


def _twice_within(view: View, wanted: Mapping[Allocation, Cells]) -> InternalOverlap | None:
    """The same of one view at two indices, by its indices that read wanted cells, part by part."""
    homes = [home for home in view.cells if home in wanted]
    few = ask_one((TooManyPieces,), lambda: {home: wanted[home].regions() for home in homes})
    is_few = few is not OPEN and sum(len(cells.regions) for cells in few.values()) <= current().max_pieces
    regions = view.preimage(few) if few is not OPEN and is_few else OPEN
    if not isinstance(regions, DisjointRegions) or any(None in region.progressions for region in regions.regions):
        raise TooHard(
            f"covers: {quote(view)} reads cells twice beside those that are to be covered, and the indices that read "
            "these are not few products; slice it to what is to be covered"
        )
    each = [[range(p[0], p[1] + 1, p[2]) for p in region.progressions if p] for region in regions.regions]
    parts = [indices for indices in each if all(indices)]
    if not parts:
        return None
    joined = concatenate([view[tuple([slice(r.start, r.stop, r.step) for r in part])].ravel() for part in parts])
    found = joined.internal_overlap()
    if found is None:
        return None
    one, two = (_index_in(parts, at[0]) for at in (found.a, found.b))
    return found._replace(a=min(one, two), b=max(one, two))


def _index_in(parts: Sequence[Sequence[range]], number: int) -> tuple[int, ...]:
    """The index of a place in parts that are laid end to end."""
    for each in parts:
        shape = tuple([(r.stop - 1 - r.start) // r.step + 1 for r in each])
        size = prod(shape)
        if number < size:
            return tuple([r.start + r.step * k for r, k in zip(each, point_of(number, shape), strict=True)])
        number -= size
    raise AssertionError("a place lies in one of the parts")


Lacking = tuple[Allocation, tuple[int, ...]]
"""A cell that is left out: of which allocation, and where in it."""


def lies_in_all(views: Sequence[View], other: View) -> bool:
    """Return whether some views together read every cell that another one reads.

    Raises
    ------
    TooHard
        As `View.contains`.
    """
    found = ask_one((TooHard,), _lacking_by_products, views, other)
    if found is not OPEN:
        return found is None
    found = _lacking_by_bits(views, other) if len(views) > 1 else OPEN
    if found is not OPEN:
        return found is None
    all_in = ask_one((TooHard,), _lies_in_by_counts, views, other) if len(views) > 1 else OPEN
    return _as_one(views, other).contains(other) if all_in is OPEN else all_in


def find_lacking(views: Sequence[View], other: View) -> Lacking | None:
    """Return a cell that a view reads and none of others does, None if there is none.

    Raises
    ------
    TooHard
        As `View.contains`.
    """
    found = ask_one((TooHard,), _lacking_by_products, views, other) if len(views) > 1 else OPEN
    if found is OPEN and len(views) > 1:
        found = _lacking_by_bits(views, other)
    if found is not OPEN:
        return found
    if len(views) > 1 and ask_one((TooHard,), _lies_in_by_counts, views, other) is True:
        return None
    mine = _as_one(views, other).cells
    for allocation, theirs in other.cells.items():
        cell = theirs.cell_beside(mine.get(allocation))
        if cell is not None:
            return allocation, cell
    return None


def _lacking_by_products(views: Sequence[View], other: View) -> Lacking | Open | None:
    """Such a cell, from the products of indices that the views read."""
    for allocation, theirs in other.cells.items():
        each = [cells for view in views if (cells := view.cells.get(allocation)) is not None]
        if theirs.axes is None or any(cells.axes is None for cells in each):
            return OPEN
        many: list[AxisSets] = [sets for cells in each for sets in cells.axes or ()]
        for one in theirs.axes:
            at = axis_products.find_beside(one, many)
            if at is not None:
                return allocation, at
    return None


def _lacking_by_bits(views: Sequence[View], other: View) -> Lacking | Open | None:
    """Such a cell, from the row-major numbers as bits."""
    for allocation, theirs in other.cells.items():
        left = theirs.bits
        if left is None:
            return OPEN
        for cells in [view.cells[allocation] for view in views if allocation in view.cells]:
            bits = cells.bits  # one integer at a time: each may be 2 MB
            if bits is None:
                return OPEN
            left &= ~bits
        if left:
            return allocation, theirs.cell_of((left & -left).bit_length() - 1)
    return None


def _lies_in_by_counts(views: Sequence[View], other: View) -> bool | Open:
    """Whether views that share no cell share as many with another as that reads, all counted in closed form."""
    for allocation, theirs in other.cells.items():
        each = [cells for view in views if (cells := view.cells.get(allocation)) is not None]
        counts = [cells.closed_common(theirs) for cells in each]
        size = theirs.closed_size
        if size is None or None in counts or len(each) > tuning.FEW_COUNTED:
            return OPEN
        if any(one.closed_common(two) != 0 for one, two in combinations(each, 2)):
            return OPEN
        if sum(filter(None, counts)) < size:
            return False
    return True


def _as_one(views: Sequence[View], other: View) -> View:
    """One view that reads what several do of the memory of another."""
    homes = set(other.allocations)
    parts = [view for view in views if view.size and not homes.isdisjoint(view.allocations)]
    if len(parts) < 2:
        return parts[0] if parts else other.ravel()[:0]
    return concatenate([part.ravel() for part in parts])
