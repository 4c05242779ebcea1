"""Which cells of memory two views share: decided on sets, never by listing cells.

Each view's cells of an allocation become setts of row-major numbers, straight from its pieces; two views are then
compared in closed form. Where the explicit form would shatter, isl decides on the chains themselves. The cost does
not grow with the sizes of the views.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tapestry_sets import isl
from tapestry_sets.affine import AffineMap, Box, grid_of
from tapestry_sets.arrays import as_view
from tapestry_sets.maps import (
    IndexMap,
    Piece,
    Relinearize,
    flatten_grid,
    image_to_isl,
    piece_domain,
    piece_to_isl,
    push,
)
from tapestry_sets.nest import TooHard, TooManyPieces
from tapestry_sets.progression import Progression
from tapestry_sets.region import Regions, unflatten
from tapestry_sets.sett import Setts, progression_set
from tapestry_sets.views import Allocation, View

COUNT_LIMIT = 2_000_000
"""How many cells may be counted one by one, where nothing better answers, before `TooHard` is raised."""


class Witness(NamedTuple):
    """A shared cell: its index in the first view, in the second, and in the allocation."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    cell: tuple[int, ...]


# ------------------------------------------------------------------------------------------ cells as flat numbers


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of one allocation that a view reads, by row-major number.

    `setts` is None where an explicit set would need too many pieces; isl then answers.
    """

    view: View
    allocation: Allocation
    number: int
    setts: Setts | None

    def to_isl(self) -> Any:
        """Return the cells' row-major numbers as an islpy.Set."""
        if self.setts is not None:
            return isl.to_isl(self.setts).intersect(isl.box_set((0,), (self.allocation.size,)))
        found = image_to_isl(self.view.pieces, self.number, Box.of(self.view.shape))
        assert found is not None, "a view names only allocations that it reads"
        return found.apply(isl.relinearize_map(self.allocation.shape, (self.allocation.size,)))

    @property
    def size(self) -> int:
        """How many different cells there are."""
        if self.setts is not None:
            return self.setts.count(0, self.allocation.size)
        return _counted(self.to_isl(), f"the cells of {self.view}")

    def explicit(self) -> Setts:
        """Return the setts, or raise TooManyPieces."""
        if self.setts is None:
            raise TooManyPieces(
                f"the cells of {self.view} need too many setts to be written out; overlaps() and "
                "overlap(…).witness answer without"
            )
        return self.setts


def _counted(points: Any, what: str) -> int:
    count = isl.count_points(points, COUNT_LIMIT)
    if count is None:
        raise TooHard(
            f"counting {what} needs a scan of more than {COUNT_LIMIT} candidates; overlaps() and the witness do not"
        )
    return count


def cells_of(view: View) -> Mapping[Allocation, Cells]:
    """Return the cells that a view reads, for each allocation that it reads at all."""
    found = view._cache.get("cells")
    if found is None:
        found = {}
        for number, allocation in enumerate(view.allocations):
            setts = _flat_setts(view, number, allocation)
            if setts is None or not setts.is_empty:
                found[allocation] = Cells(view, allocation, number, setts)
        view._cache["cells"] = found
    return found  # type: ignore[return-value]


def _flat_setts(view: View, number: int, allocation: Allocation) -> Setts | None:
    """The row-major numbers of the cells of one allocation that a view reads, None where they shatter."""
    if not view.size or not allocation.size:
        return Setts()
    try:
        runs = dict.fromkeys(
            run
            for piece in view.pieces
            if piece.source == number
            for run in _flat_runs(piece, view, allocation)
        )
        window = (0, allocation.size)
        total: Setts | None = None
        for first, levels in runs:
            part = progression_set(first, levels, extent=allocation.size)
            total = part if total is None else total.union(part, within=window)
    except TooManyPieces:
        return None
    return Setts() if total is None else total


def _flat_runs(piece: Piece, view: View, allocation: Allocation) -> Iterable[Progression]:
    """The row-major numbers of the cells that one piece reads, as progressions that may share elements."""
    steps = piece.map.steps
    box = Box.of(view.shape)
    last = steps[-1] if steps else None
    numbered = isinstance(last, Relinearize) and last.to_shape[1:] == allocation.shape[1:]
    if isinstance(last, Relinearize) and numbered and all(g.prefix < len(steps) for g in piece.guards):
        # the renumbering keeps row-major numbers: no need to split them into the allocation's axes
        return (
            flatten_grid(grid, last.from_shape) for grid in push(piece, [grid_of(box)], stop=len(steps) - 1)
        )
    return (flatten_grid(grid, allocation.shape) for grid in push(piece, [grid_of(box)]))


# ---------------------------------------------------------------------------------------------------- questions


def overlaps(a: object, b: object) -> bool:
    """Return whether two views read a common cell.

    Parameters
    ----------
    a, b : View or array
        Views of `allocate`d memory, or real arrays (compared by address, byte for byte).

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((27,))
    >>> overlaps(A.reshape(3, 3, 3)[:2, :2, :2], A[2::5])
    True
    >>> overlaps(A[0::2], A[1::2])
    False

    References
    ----------
    Tapestry's document on nested striding, "Alias analysis"; numpy.shares_memory.
    """
    x, y = cells_of(as_view(a)), cells_of(as_view(b))
    return any(_meet(cells, y[allocation]) for allocation, cells in x.items() if allocation in y)


def _meet(x: Cells, y: Cells) -> bool:
    if x.setts is None or y.setts is None:
        return not x.to_isl().is_disjoint(y.to_isl())
    return not x.setts.isdisjoint(y.setts, within=(0, x.allocation.size))


def overlap(a: object, b: object) -> Overlap:
    """Return what two views share: size, bytes, regions, and a witness. Each is computed when asked.

    Parameters
    ----------
    a, b : View or array

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((24,), dtype="float32")
    >>> o = overlap(A.reshape(4, 6)[:, 3:6], A[0::7])
    >>> o.size, o.nbytes, o.witness
    (1, 4, Witness(a=(3, 0), b=(3,), cell=(21,)))
    """
    return Overlap(as_view(a), as_view(b))


@dataclass(frozen=True, slots=True)
class Overlap:
    """What two views share; true if anything.

    Parameters
    ----------
    a, b : View
    """

    a: View
    b: View
    _pairs: tuple[tuple[Cells, Cells], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        x, y = cells_of(self.a), cells_of(self.b)
        pairs = tuple((cells, y[allocation]) for allocation, cells in x.items() if allocation in y)
        object.__setattr__(self, "_pairs", tuple(pair for pair in pairs if _meet(*pair)))

    def __bool__(self) -> bool:
        return bool(self._pairs)

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """The allocations with shared cells."""
        return tuple(x.allocation for x, _ in self._pairs)

    @property
    def size(self) -> int:
        """How many different cells both views read.

        Raises
        ------
        TooHard
            If they would have to be counted one by one and may be more than `COUNT_LIMIT`.
        """
        return sum(map(self._size, self._pairs))

    @property
    def nbytes(self) -> int:
        """How many bytes both views read."""
        return sum(self._size(pair) * pair[0].allocation.itemsize for pair in self._pairs)

    def _size(self, pair: tuple[Cells, Cells]) -> int:
        x, y = pair
        if x.setts is not None and y.setts is not None:
            return x.setts.count_common(y.setts, 0, x.allocation.size)
        return _counted(x.to_isl().intersect(y.to_isl()), f"the cells shared by {self.a} and {self.b}")

    @property
    def regions(self) -> dict[Allocation, Regions]:
        """The shared cells of each allocation, in its coordinates.

        Raises
        ------
        TooManyPieces
            If they need more regions than can be written out.
        """
        found = {}
        for x, y in self._pairs:
            common = (x.explicit() & y.explicit()).setts(within=(0, x.allocation.size))
            found[x.allocation] = unflatten(common, x.allocation.shape)
        return found

    @property
    def witness(self) -> Witness | None:
        """Some shared cell: its index in `a`, in `b`, and in the first allocation of `allocations`."""
        if not self._pairs:
            return None
        x, y = self._pairs[0]
        z = _first_common(x, y)
        cell = Relinearize((x.allocation.size,), x.allocation.shape).apply((z,))
        return Witness(_locate(x, cell), _locate(y, cell), cell)


def _first_common(x: Cells, y: Cells) -> int:
    if x.setts is None or y.setts is None:
        point = isl.a_point(x.to_isl().intersect(y.to_isl()))
        assert point is not None, "the cells meet"
        return point[0]
    z = x.setts.first_common(y.setts, 0, x.allocation.size)
    assert z is not None, "the cells meet"
    return z


# ------------------------------------------------------------------------------------------------------- witness


def _locate(cells: Cells, cell: tuple[int, ...]) -> tuple[int, ...]:
    """An index of the view that reads a cell which it is known to read."""
    pieces = [piece for piece in cells.view.pieces if piece.source == cells.number]
    for piece in pieces:
        guess = _invert(piece.map, cell, cells.view.shape)
        if guess is not None and _reads(piece, guess, cell, cells.view.shape):
            return guess
    box = isl.box_set((0,) * cells.view.rank, cells.view.shape)
    for piece in pieces:
        found = isl.a_point(isl.point_set(cell).apply(piece_to_isl(piece).reverse()).intersect(box))
        if found is not None:
            return found
    raise AssertionError(f"no index of {cells.view} reads {cell}")


def _invert(chain: IndexMap, cell: tuple[int, ...], shape: Sequence[int]) -> tuple[int, ...] | None:
    """A point that the chain may take to a cell: right for chains of single terms, a guess to be checked for others."""
    at = cell
    for k in range(len(chain.steps) - 1, -1, -1):
        step = chain.steps[k]
        if isinstance(step, Relinearize):
            at = Relinearize(step.to_shape, step.from_shape).apply(at)
            continue
        before = _solve(step, at)
        if before is None:
            return None
        at = before
    return at


def _solve(step: AffineMap, target: tuple[int, ...]) -> tuple[int, ...] | None:
    """A point x >= 0 with step(x) = target, found row by row; None if this way finds none."""
    point: list[int | None] = [None] * step.in_rank
    for row, b, y in zip(step.terms(), step.offset, target, strict=True):
        rest = y - b - sum(c * x for j, c in row if (x := point[j]) is not None)
        free = [(j, c) for j, c in row if point[j] is None]
        for j, c in sorted(
            free, key=lambda term: -abs(term[1])
        ):  # large steps first, the smallest takes the rest
            point[j] = max(0, rest // c)
            rest -= c * max(0, rest // c)
        if rest:
            return None
    return tuple(x or 0 for x in point)


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


# ------------------------------------------------------------------------------------------- one view on its own


def origins(view: object) -> dict[Allocation, Regions]:
    """Return the cells that a view reads of each allocation, in the allocation's coordinates.

    Raises
    ------
    TooManyPieces
        If they need more regions than can be written out.

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((4, 6), name="A")
    >>> print(origins(A[:, 1:5:3])[A])
    .1..1.
    .1..1.
    .1..1.
    .1..1.

    References
    ----------
    poprithms, memory/alias: Tensor::regions.
    """
    cells = cells_of(as_view(view))
    return {allocation: unflatten(c.explicit(), allocation.shape) for allocation, c in cells.items()}


def contains(a: object, b: object) -> bool:
    """Return whether `a` reads every cell of memory that `b` reads.

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((10,))
    >>> contains(A[::2], A[2::4]), contains(A[2::4], A[::2])
    (True, False)
    """
    x, y = cells_of(as_view(a)), cells_of(as_view(b))
    return all(allocation in x and _within(cells, x[allocation]) for allocation, cells in y.items())


def _within(inner: Cells, outer: Cells) -> bool:
    if inner.setts is None or outer.setts is None:
        return bool(inner.to_isl().is_subset(outer.to_isl()))
    return inner.setts.issubset(outer.setts, within=(0, inner.allocation.size))


def same_elements(a: object, b: object) -> bool:
    """Return whether two views read the same cells of memory, in whatever order and number."""
    return contains(a, b) and contains(b, a)


def has_internal_overlap(view: object) -> bool:
    """Return whether a view reads some cell of memory at two of its indices.

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((10,))
    >>> has_internal_overlap(A.sliding_windows(3)), has_internal_overlap(A[::-3])
    (True, False)
    """
    v = as_view(view)
    constant = [piece_domain(p, Box.of(v.shape)).size for p in v.pieces if p.source < 0]
    return v.size - sum(constant) > sum(cells.size for cells in cells_of(v).values())


def is_contiguous(view: object) -> bool:
    """Return whether the cells that a view reads are one gapless run of one allocation, in whatever order.

    Examples
    --------
    >>> from tapestry_sets.views import allocate, concatenate
    >>> A = allocate((10,))
    >>> is_contiguous(concatenate([A[5:10], A[0:5]])), is_contiguous(A[::2])
    (True, False)
    """
    found = list(cells_of(as_view(view)).values())
    if len(found) != 1:
        return not found
    (cells,) = found
    if cells.setts is None:
        numbers = cells.to_isl()
        bounds = isl.bounds_of(numbers)
        assert bounds is not None, "cells that shatter are not empty"
        return bool(isl.box_set(*bounds).is_subset(numbers))
    first, last = cells.setts.find(0), _last(cells.setts, cells.allocation.size)
    return first is not None and cells.setts.count(0, cells.allocation.size) == last - first + 1


def _last(setts: Setts, size: int) -> int:
    """The largest element below `size` of setts that have one at or above 0."""
    return setts.nth(setts.count(0, size) - 1)


def overlap_matrix(views: Sequence[object]) -> npt.NDArray[np.bool_]:
    """Return which pairs of views read a common cell, as a symmetric matrix.

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((10,))
    >>> overlap_matrix([A[:4], A[3:6], A[6:]]).astype(int).tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    found = [cells_of(as_view(v)) for v in views]
    matrix = np.zeros((len(found), len(found)), np.bool_)
    for i, x in enumerate(found):
        for j in range(i + 1):
            y = found[j]
            matrix[i, j] = matrix[j, i] = any(
                _meet(c, y[allocation]) for allocation, c in x.items() if allocation in y
            )
    return matrix
