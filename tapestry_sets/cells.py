"""The cells of one allocation that a view reads, as a set of row-major numbers.

The numbers come straight from the view's pieces, as setts where they are few. Where an explicit set would shatter,
the cells of a small view are listed, and for a large one isl decides on the chains themselves, within a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, TypeVar

import numpy as np

from tapestry_sets import isl
from tapestry_sets.affine import AffineMap, Box
from tapestry_sets.explicit import merge_nests
from tapestry_sets.limits import TooHard, TooManyPieces
from tapestry_sets.maps import (
    INT64_MAX,
    IndexMap,
    Piece,
    Relinearize,
    flatten_affine,
    flatten_grid,
    image_to_isl,
    is_injective,
    push,
    read_points,
    stays_injective,
)
from tapestry_sets.nest import contains_each
from tapestry_sets.progression import Progression, combine, explicit_setts, interval
from tapestry_sets.region import Regions, unflatten
from tapestry_sets.sett import Setts
from tapestry_sets.stripe import Int64Array

T = TypeVar("T")

COUNT_LIMIT = 2_000_000
"""How many cells may be counted one by one, where nothing better answers, before `TooHard` is raised."""
LIST_LIMIT = 100_000
"""A view of at most so many cells is listed rather than handed to isl, where its cells are no few setts."""
MAX_CORNER_RANK = 10
"""Views of a higher rank have too many corners to look at."""


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
        if self.setts is not None:
            return self.setts.is_empty
        numbers = self.listed(LIST_LIMIT)
        if numbers is not None:
            return not len(numbers)
        points = self.to_isl()
        return bool(self._ask("whether a view reads anything", points.is_empty))

    @property
    def size(self) -> int:
        """How many different cells there are; TooHard if they are too many to count one by one."""
        if self.setts is not None:
            return self.setts.count(0, self.extent)
        if len(self.pieces) == 1 and not self.pieces[0].guards and stays_injective(self.pieces[0], Box.of(self.shape)):
            return prod(self.shape)
        numbers = self.listed(COUNT_LIMIT)
        if numbers is not None:
            return len(numbers)
        return self._counted(self.to_isl(), f"the cells that {self._name} reads")

    def _counted(self, points: Any, what: str) -> int:
        refusal = TooHard(
            f"counting {what} needs a scan of more than {COUNT_LIMIT} candidates; overlaps() and the witness do not"
        )
        operations = isl.COUNT_OPERATIONS * len(self.pieces)
        count = isl.bounded(lambda: isl.count_points(points, COUNT_LIMIT), refusal, operations)
        if count is None:
            raise refusal
        return count

    @property
    def _name(self) -> str:
        return f"a view of shape {self.shape}"

    def _ask(self, what: str, question: Callable[[], T], operations: int = isl.MAX_OPERATIONS) -> T:
        """What isl answers within its limit for each of the pieces."""
        refusal = TooHard(
            f"{what}: the cells that {self._name} reads of an allocation of shape {self.home} are no few setts, they "
            f"are too many to list, and isl needs more than {operations} operations; ask about a part of the view"
        )
        return isl.bounded(question, refusal, operations * len(self.pieces))

    def listed(self, limit: int) -> Int64Array | None:
        """Return the different row-major numbers, ascending; None if the view has more than `limit` cells.

        Also None where a number may exceed 64 bits.
        """
        if prod(self.shape) > limit:
            return None
        points = np.indices(self.shape, np.int64).reshape(len(self.shape), prod(self.shape)).T
        try:
            each = [_numbers(read_points(piece, points), self.home) for piece in self.pieces]
        except OverflowError:
            return None
        return np.unique(np.concatenate([np.empty(0, np.int64), *each]))

    def _listed_common(self, other: Cells, limit: int) -> Int64Array | None:
        """The numbers in both, listed from one whose setts are too many; None if that cannot be done."""
        one, two = (self, other) if self.setts is None else (other, self)
        numbers = one.listed(limit)
        if numbers is None:
            return None
        if two.setts is not None:
            keep = np.zeros(len(numbers), bool)
            for member in two.setts.members:
                keep |= contains_each(member.nest, numbers)
            return numbers[keep]
        others = two.listed(limit)
        return None if others is None else np.intersect1d(numbers, others, assume_unique=True)

    def to_isl(self) -> Any:
        """Return the row-major numbers as an islpy.Set."""
        if self.setts is not None:
            return isl.to_isl(self.setts).intersect(isl.box_set((0,), (self.extent,)))
        return self._ask("the cells as isl's set", self._isl_numbers, isl.BUILD_OPERATIONS)

    def _isl_numbers(self) -> Any:
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
        if self.setts is not None and other.setts is not None:
            return not self.setts.isdisjoint(other.setts, within=(0, self.extent))
        common = self._listed_common(other, LIST_LIMIT)
        if common is not None:
            return len(common) > 0
        mine, theirs = self.to_isl(), other.to_isl()
        return not self._ask("whether two views overlap", lambda: mine.is_disjoint(theirs))

    def issubset(self, other: Cells) -> bool:
        """Return whether every cell is in `other`."""
        if self.setts is not None and other.setts is not None:
            return self.setts.issubset(other.setts, within=(0, self.extent))
        common = self._listed_common(other, LIST_LIMIT)
        if common is not None:
            return len(common) == self.size
        mine, theirs = self.to_isl(), other.to_isl()
        return bool(self._ask("whether a view contains another", lambda: mine.is_subset(theirs)))

    def count_common(self, other: Cells) -> int:
        """Return how many cells are in both; TooHard if they are too many to count one by one."""
        if self.setts is not None and other.setts is not None:
            return self.setts.count_common(other.setts, 0, self.extent)
        common = self._listed_common(other, COUNT_LIMIT)
        if common is not None:
            return len(common)
        return self._counted(self.to_isl().intersect(other.to_isl()), "the cells that two views share")

    def common_regions(self, other: Cells) -> Regions:
        """Return the cells in both, in the allocation's coordinates."""
        common = (self.explicit() & other.explicit()).setts(within=(0, self.extent))
        return unflatten(common, self.home)

    def a_common_cell(self, other: Cells) -> tuple[int, ...] | None:
        """Return a cell in both, or None."""
        if self.setts is not None and other.setts is not None:
            z = self.setts.first_common(other.setts, 0, self.extent)
        elif (common := self._listed_common(other, LIST_LIMIT)) is not None:
            z = int(common[0]) if len(common) else None
        else:
            both = self.to_isl().intersect(other.to_isl())
            point = self._ask("a common cell", lambda: isl.a_point(both))
            z = None if point is None else point[0]
        return None if z is None else Relinearize((self.extent,), self.home).apply((z,))

    # -- the view's side ------------------------------------------------------------------------------

    def is_run(self) -> bool:
        """Return whether the cells are one gapless run of the allocation."""
        if self.setts is not None:
            first, count = self.setts.find(0), self.setts.count(0, self.extent)
            return first is None or not count or self.setts.nth(count - 1) - first + 1 == count
        corners = self._corners()
        if corners and max(corners) - min(corners) >= prod(self.shape):
            return False  # farther apart than all cells together are long
        z = self.listed(COUNT_LIMIT)
        if z is not None:
            return not len(z) or int(z[-1]) - int(z[0]) + 1 == len(z)
        what = "whether a view is contiguous"
        numbers = self.to_isl()
        bounds = self._ask(what, lambda: isl.bounds_of(numbers))
        if bounds is None:
            return True
        return bool(self._ask(what, lambda: isl.box_set(*bounds).is_subset(numbers), isl.COUNT_OPERATIONS))

    def _corners(self) -> list[int]:
        """The numbers read at the view's corners, where it has not too many."""
        if len(self.shape) > MAX_CORNER_RANK or 0 in self.shape:
            return []
        flatten = Relinearize(self.home, (self.extent,))
        corners = product(*({0, n - 1} for n in self.shape))
        read = (_cell_read(piece, at) for at in corners for piece in self.pieces)
        return [flatten.apply(cell)[0] for cell in read if cell is not None]

    def index_of(self, cell: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return an index of the view that reads a cell of the allocation, or None."""
        for piece in self.pieces:
            guess = _invert(piece.map, cell)
            if guess is not None and _reads(piece, guess, cell, self.shape):
                return guess
        return self._ask("an index that reads a cell", lambda: self._isl_index(cell), isl.BUILD_OPERATIONS)

    def _isl_index(self, cell: tuple[int, ...]) -> tuple[int, ...] | None:
        box, target = isl.box_set((0,) * len(self.shape), self.shape), isl.point_set(cell)
        found = (isl.a_point(target.apply(isl.to_isl(piece).reverse()).intersect(box)) for piece in self.pieces)
        return next((index for index in found if index is not None), None)


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
        if len(runs) == len(pieces) == 1:  # a plain chain
            return explicit_setts(runs[0], extent)
        parts = [explicit_setts(run, extent) for run in dict.fromkeys(runs)]
        if apart and len(parts) > 1:
            parts = [Setts._of(merge_nests(member.nest for part in parts for member in part.members))]
        for part in parts:
            total = part if total is None else total.union(part, within=(0, extent))
    return Setts() if total is None else total


def _flat_runs(piece: Piece, shape: tuple[int, ...], home: tuple[int, ...]) -> tuple[list[Progression], bool]:
    """The row-major numbers of the cells that one piece reads, and whether no number is in two progressions."""
    steps = piece.map.steps
    grid = tuple([interval(0, n) for n in shape])
    stop, last_guard = len(steps), max([g.prefix for g in piece.guards], default=0)
    if stop > last_guard:
        last = steps[-1]
        if isinstance(last, Relinearize) and last.to_shape[1:] == home[1:]:
            # the renumbering keeps row-major numbers: no need to split them into the allocation's axes
            stop, home = stop - 1, last.from_shape
    form = steps[stop - 1] if stop > last_guard else None
    if not isinstance(form, AffineMap):
        grids, apart = push(piece, [grid], stop)
        return [flatten_grid(grid, home) for grid in grids], apart
    grids, apart = push(piece, [grid], stop - 1)
    # the numbers are one linear form of the coordinates, also where these share axes
    offset, terms = flatten_affine(form, home)
    runs = [combine(offset, [(c, grid[k]) for k, c in terms]) for grid in grids]
    return runs, apart and (len(grids) < 2 or is_injective(form, grids))


def _numbers(cells: Int64Array, home: tuple[int, ...]) -> Int64Array:
    """The row-major numbers of cells of an allocation."""
    if len(home) == 1:
        return cells[:, 0]
    if prod(home) > INT64_MAX:
        raise OverflowError(f"an allocation of shape {home} has more cells than int64 can number")
    numbers = np.zeros(len(cells), np.int64)
    for n, x in zip(home, cells.T, strict=True):
        numbers = numbers * n + x
    return numbers


def _invert(chain: IndexMap, cell: tuple[int, ...]) -> tuple[int, ...] | None:
    """A point that the chain may take to a cell: sure for chains of single terms, for others a guess to check."""
    at: tuple[int, ...] | None = cell
    for step in reversed(chain.steps):
        if at is None:
            return None
        if isinstance(step, Relinearize):
            at = Relinearize(step.to_shape, step.from_shape).apply(at)
        else:
            at = _invert_affine(step, at)
    return at


def _invert_affine(step: AffineMap, target: tuple[int, ...]) -> tuple[int, ...] | None:
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
    return all(0 <= x < n for x, n in zip(point, shape, strict=True)) and _cell_read(piece, point) == cell


def _cell_read(piece: Piece, point: tuple[int, ...]) -> tuple[int, ...] | None:
    """The source's cell that a view's index reads through this piece, None if a guard does not hold."""
    at = point
    for prefix in range(len(piece.map.steps) + 1):
        if any(g.prefix == prefix and at not in g.region for g in piece.guards):
            return None
        if prefix < len(piece.map.steps):
            at = piece.map.steps[prefix].apply(at)
    return at
