"""Alias queries: which cells of memory two views share, decided on sets and never by listing cells.

All of them take views of allocations and real arrays, in any mix.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tapestry_sets import draw, pairs
from tapestry_sets.arrays import as_view
from tapestry_sets.cells import Cells
from tapestry_sets.limits import TooHard
from tapestry_sets.region import Regions
from tapestry_sets.views import Allocation, View


class Witness(NamedTuple):
    """A shared cell: its index in the first view, in the second, and in the allocation."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    cell: tuple[int, ...]


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
    x, y = as_view(a), as_view(b)
    one, two = x.as_nest(), y.as_nest()
    if one is not None and two is not None:
        return one[0]._cache is two[0]._cache and pairs.first_common(one[1], two[1], 0, prod(one[0].shape)) is not None
    return any(mine.meets(theirs) for _, mine, theirs in _pairs(x, y))


def _pairs(a: View, b: View) -> list[tuple[Allocation, Cells, Cells]]:
    x, y = a.cells, b.cells
    return [(allocation, cells, y[allocation]) for allocation, cells in x.items() if allocation in y]


def overlap(a: object, b: object) -> Overlap:
    """Return what two views share: size, bytes, regions and a witness, each computed when asked for.

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
    x, y = as_view(a), as_view(b)
    return Overlap(x, y, tuple(pair for pair in _pairs(x, y) if pair[1].meets(pair[2])))


@dataclass(frozen=True, slots=True)
class Overlap:
    """What two views share; true if they share anything. Made by `overlap`.

    Parameters
    ----------
    a, b : View
    shared : tuple of (Allocation, Cells, Cells)
        The allocations with common cells, and what each view reads of them.
    """

    a: View
    b: View
    shared: tuple[tuple[Allocation, Cells, Cells], ...] = field(repr=False)

    def __bool__(self) -> bool:
        return bool(self.shared)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return draw.views_mimebundle(self.a, self.b, title=repr(self))

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """The allocations with shared cells."""
        return tuple(allocation for allocation, _, _ in self.shared)

    @property
    def size(self) -> int:
        """How many different cells both views read.

        Raises
        ------
        TooHard
            If they would have to be counted one by one and may be too many for that.
        """
        return sum(x.count_common(y) for _, x, y in self.shared)

    @property
    def nbytes(self) -> int:
        """How many bytes both views read."""
        return sum(x.count_common(y) * allocation.itemsize for allocation, x, y in self.shared)

    @property
    def regions(self) -> dict[Allocation, Regions]:
        """The shared cells of each allocation, in its coordinates.

        Raises
        ------
        TooManyPieces
            If they need more regions than can be written out.
        """
        return {allocation: x.common_regions(y) for allocation, x, y in self.shared}

    @property
    def witness(self) -> Witness | None:
        """Some shared cell: its index in `a`, in `b`, and in the first of `allocations`; None if there is none."""
        if not self.shared:
            return None
        _, x, y = self.shared[0]
        cell = x.a_common_cell(y)
        assert cell is not None, "cells that meet have a common one"
        i, j = x.index_of(cell), y.index_of(cell)
        assert i is not None and j is not None, "a cell that is read has an index"
        return Witness(i, j, cell)


def overlap_matrix(views: Sequence[object]) -> npt.NDArray[np.bool_]:
    """Return which pairs of views read a common cell, as a symmetric matrix.

    Parameters
    ----------
    views : sequence of View or array

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((10,))
    >>> overlap_matrix([A[:4], A[3:6], A[6:]]).astype(int).tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    found = [as_view(v) for v in views]
    matrix = np.zeros((len(found), len(found)), np.bool_)
    for i, a in enumerate(found):
        for j in range(i + 1):
            matrix[i, j] = matrix[j, i] = overlaps(a, found[j])
    return matrix


def overlap_sizes(views: Sequence[object]) -> npt.NDArray[Any]:
    """Return how many different cells each pair of views shares, as a symmetric matrix.

    The diagonal has each view's own number of different cells.

    Parameters
    ----------
    views : sequence of View or array
        For a pair of real arrays the cells are bytes.

    Returns
    -------
    array of int64, or of object
        Python integers, of dtype object, if one of them does not fit int64.

    Raises
    ------
    TooHard
        If cells would have to be counted one by one and may be too many for that.

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((10,))
    >>> overlap_sizes([A[:4], A[3:6], A[6:]]).tolist()
    [[4, 1, 0], [1, 3, 0], [0, 0, 4]]
    >>> overlap_sizes([allocate((10**10, 10**10))]).tolist()
    [[100000000000000000000]]
    """
    found = [as_view(v) for v in views]
    matrix = np.zeros((len(found), len(found)), object)
    for i, a in enumerate(found):
        for j in range(i + 1):
            matrix[i, j] = matrix[j, i] = _shared_size(a, found[j])
    fits = all(n <= np.iinfo(np.int64).max for n in matrix.flat)
    return matrix.astype(np.int64) if fits else matrix


def _shared_size(a: View, b: View) -> int:
    one, two = a.as_nest(), b.as_nest()
    if one is not None and two is not None:
        with suppress(TooHard):
            return pairs.count_common(one[1], two[1], 0, one[0].size) if one[0]._cache is two[0]._cache else 0
    return sum(mine.count_common(theirs) for _, mine, theirs in _pairs(a, b))


def origins(view: object) -> dict[Allocation, Regions]:
    """Return the cells that a view or an array reads of each allocation; see `View.origins`."""
    return as_view(view).origins()


def contains(a: object, b: object) -> bool:
    """Return whether `a` reads every cell of memory that `b` reads; see `View.contains`."""
    return as_view(a).contains(as_view(b))


def same_elements(a: object, b: object) -> bool:
    """Return whether `a` and `b` read the same cells of memory; see `View.same_elements`."""
    return as_view(a).same_elements(as_view(b))


def has_internal_overlap(view: object) -> bool:
    """Return whether a view or an array reads some cell twice; see `View.has_internal_overlap`.

    Examples
    --------
    >>> has_internal_overlap(np.broadcast_to(np.zeros(3), (2, 3)))
    True
    """
    return as_view(view).has_internal_overlap()


def is_contiguous(view: object) -> bool:
    """Return whether a view or an array reads one gapless run of memory; see `View.is_contiguous`.

    Examples
    --------
    >>> is_contiguous(np.zeros((4, 4)).T), is_contiguous(np.zeros((4, 4))[:, 1:])
    (True, False)
    """
    return as_view(view).is_contiguous()
