"""The cells of one allocation that a view reads, as a set of row-major numbers.

The numbers come straight from the view's pieces, as setts where they are few; where an explicit set would shatter,
isl decides on the chains themselves. Nothing here lists cells, and no cost grows with sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tapestry_sets import isl
from tapestry_sets.affine import AffineMap, Box, grid_of
from tapestry_sets.maps import IndexMap, Piece, Relinearize, flatten_grid, image_to_isl, piece_to_isl, push
from tapestry_sets.nest import TooHard, TooManyPieces, merge_nests
from tapestry_sets.progression import Progression, explicit_setts
from tapestry_sets.region import Regions, unflatten
from tapestry_sets.sett import Setts

COUNT_LIMIT = 2_000_000
"""How many cells may be counted one by one, where nothing better answers, before `TooHard` is raised."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of an allocation that a view reads.

    Parameters
    ----------
    shape : tuple of int
        Of the view.
    pieces : tuple of Piece
        Those that read the allocation.
    home : tuple of int
        The allocation's shape.
    extent : int
        Its number of cells.
    setts : Setts or None
        The cells' row-major numbers in [0, extent); None where they need too many setts.
    """

    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    home: tuple[int, ...]
    extent: int
    setts: Setts | None

    @property
    def is_empty(self) -> bool:
        """Whether no cell is read."""
        return self.setts.is_empty if self.setts is not None else bool(self.to_isl().is_empty())

    @property
    def size(self) -> int:
        """How many different cells there are; TooHard if they are too many to count one by one."""
        if self.setts is not None:
            return self.setts.count(0, self.extent)
        return _counted(self.to_isl(), f"the cells that a view of shape {self.shape} reads")

    def to_isl(self) -> Any:
        """Return the row-major numbers as an islpy.Set."""
        if self.setts is not None:
            return isl.to_isl(self.setts).intersect(isl.box_set((0,), (self.extent,)))
        found = image_to_isl(self.pieces, Box.of(self.shape))
        return found.apply(isl.relinearize_map(self.home, (self.extent,)))

    def explicit(self) -> Setts:
        """Return the setts, or raise TooManyPieces."""
        if self.setts is None:
            raise TooManyPieces(
                f"the cells that a view of shape {self.shape} reads need too many setts to be written out; "
                "overlaps() and overlap(…).witness answer without"
            )
        return self.setts

    def regions(self) -> Regions:
        """Return the cells in the allocation's coordinates."""
        return unflatten(self.explicit(), self.home)

    # -- two sets of cells of one allocation ----------------------------------------------------------

    def meets(self, other: Cells) -> bool:
        """Return whether some cell is in both."""
        if self.setts is None or other.setts is None:
            return not self.to_isl().is_disjoint(other.to_isl())
        return not self.setts.isdisjoint(other.setts, within=(0, self.extent))

    def issubset(self, other: Cells) -> bool:
        """Return whether every cell is in `other`."""
        if self.setts is None or other.setts is None:
            return bool(self.to_isl().is_subset(other.to_isl()))
        return self.setts.issubset(other.setts, within=(0, self.extent))

    def count_common(self, other: Cells) -> int:
        """Return how many cells are in both; TooHard if they are too many to count one by one."""
        if self.setts is None or other.setts is None:
            return _counted(self.to_isl().intersect(other.to_isl()), "the cells that two views share")
        return self.setts.count_common(other.setts, 0, self.extent)

    def common_regions(self, other: Cells) -> Regions:
        """Return the cells in both, in the allocation's coordinates."""
        common = (self.explicit() & other.explicit()).setts(within=(0, self.extent))
        return unflatten(common, self.home)

    def a_common_cell(self, other: Cells) -> tuple[int, ...] | None:
        """Return a cell in both, or None."""
        if self.setts is None or other.setts is None:
            point = isl.a_point(self.to_isl().intersect(other.to_isl()))
            z = None if point is None else point[0]
        else:
            z = self.setts.first_common(other.setts, 0, self.extent)
        return None if z is None else Relinearize((self.extent,), self.home).apply((z,))

    # -- the view's side ------------------------------------------------------------------------------

    def is_run(self) -> bool:
        """Return whether the cells are one gapless run of the allocation."""
        if self.setts is None:
            numbers = self.to_isl()
            bounds = isl.bounds_of(numbers)
            return bounds is None or bool(isl.box_set(*bounds).is_subset(numbers))
        first, count = self.setts.find(0), self.setts.count(0, self.extent)
        return first is None or not count or self.setts.nth(count - 1) - first + 1 == count

    def index_of(self, cell: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return an index of the view that reads a cell of the allocation, or None."""
        for piece in self.pieces:
            guess = _invert(piece.map, cell)
            if guess is not None and _reads(piece, guess, cell, self.shape):
                return guess
        box = isl.box_set((0,) * len(self.shape), self.shape)
        for piece in self.pieces:
            found = isl.a_point(isl.point_set(cell).apply(piece_to_isl(piece).reverse()).intersect(box))
            if found is not None:
                return found
        return None


def read_cells(pieces: Iterable[Piece], source: int, shape: Sequence[int], home: Sequence[int], extent: int) -> Cells:
    """Return the cells of source number `source`, an allocation of shape `home`, that a view reads.

    Parameters
    ----------
    pieces : iterable of Piece
        Of the view.
    source : int
    shape, home : sequence of int
        Of the view and of the allocation.
    extent : int
        The allocation's number of cells.
    """
    mine = tuple(piece for piece in pieces if piece.source == source)
    try:
        setts: Setts | None = _flat_setts(mine, tuple(shape), tuple(home), extent)
    except TooManyPieces:
        setts = None
    return Cells(tuple(shape), mine, tuple(home), extent, setts)


def _flat_setts(pieces: tuple[Piece, ...], shape: tuple[int, ...], home: tuple[int, ...], extent: int) -> Setts:
    if 0 in shape or not extent:
        return Setts()
    total: Setts | None = None
    for piece in pieces:
        runs, apart = _flat_runs(piece, shape, home)
        parts = [explicit_setts(run, extent) for run in dict.fromkeys(runs)]
        if apart and len(parts) > 1:
            parts = [Setts._of(merge_nests(member.nest for part in parts for member in part.members))]
        for part in parts:
            total = part if total is None else total.union(part, within=(0, extent))
    return Setts() if total is None else total


def _flat_runs(piece: Piece, shape: tuple[int, ...], home: tuple[int, ...]) -> tuple[list[Progression], bool]:
    """The row-major numbers of the cells that one piece reads, and whether no number is in two progressions."""
    steps = piece.map.steps
    grids = [grid_of(Box.of(shape))]
    if steps and all(g.prefix < len(steps) for g in piece.guards):
        last = steps[-1]
        if isinstance(last, Relinearize) and last.to_shape[1:] == home[1:]:
            # the renumbering keeps row-major numbers: no need to split them into the allocation's axes
            grids, apart = push(piece, grids, stop=len(steps) - 1)
            return [flatten_grid(grid, last.from_shape) for grid in grids], apart
    grids, apart = push(piece, grids)
    return [flatten_grid(grid, home) for grid in grids], apart


def _counted(points: Any, what: str) -> int:
    count = isl.count_points(points, COUNT_LIMIT)
    if count is None:
        raise TooHard(
            f"counting {what} needs a scan of more than {COUNT_LIMIT} candidates; overlaps() and the witness do not"
        )
    return count


def _invert(chain: IndexMap, cell: tuple[int, ...]) -> tuple[int, ...] | None:
    """A point that the chain may take to a cell: sure for chains of single terms, for others a guess to check."""
    at: tuple[int, ...] | None = cell
    for step in reversed(chain.steps):
        if at is None:
            return None
        if isinstance(step, Relinearize):
            at = Relinearize(step.to_shape, step.from_shape).apply(at)
        else:
            at = _solve(step, at)
    return at


def _solve(step: AffineMap, target: tuple[int, ...]) -> tuple[int, ...] | None:
    """A point x >= 0 with step(x) = target, found row by row; None if this way finds none."""
    point: dict[int, int] = {}
    for row, b, y in zip(step.terms(), step.offset, target, strict=True):
        rest = y - b - sum(c * point[j] for j, c in row if j in point)
        free = [(j, c) for j, c in row if j not in point]
        for j, c in sorted(free, key=lambda term: -abs(term[1])):  # the large steps first, the small ones fill up
            point[j] = max(0, rest // c)
            rest -= c * point[j]
        if rest:
            return None
    return tuple(point.get(j, 0) for j in range(step.in_rank))


def _reads(piece: Piece, point: tuple[int, ...], cell: tuple[int, ...], shape: Sequence[int]) -> bool:
    """Whether the view's index `point` reads `cell` through this piece."""
    if not all(0 <= x < n for x, n in zip(point, shape, strict=True)):
        return False
    at = point
    for prefix in range(len(piece.map.steps) + 1):
        if any(g.prefix == prefix and at not in g.region for g in piece.guards):
            return False
        if prefix < len(piece.map.steps):
            at = piece.map.steps[prefix].apply(at)
    return at == cell
