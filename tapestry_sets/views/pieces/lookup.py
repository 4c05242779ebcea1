"""A step of index maps that reads one coordinate from a table: lists of indices that follow no rule, as they are.

    x[axis]     0  1  2  3  4
    becomes     7  3 60  3  9       table (7, 3, 60, 3, 9)

So a view at ten thousand pages is one piece, whatever the pages. What needs products of progressions (explicit sets,
isl, gradients) takes the table by its runs of equal steps, and only then, and only of the part that is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import numpy as np

from tapestry_sets.digits import Progression
from tapestry_sets.integers import Int64Array
from tapestry_sets.limits import Value, as_int, as_ints, freeze_array, put_fields, quote


class Lookup(Value):
    """x[axis] becomes table[x[axis]]; the other coordinates stay.

    Guards and the view's own box keep x[axis] in [0, len(table)).

    Parameters
    ----------
    rank : int
        Number of coordinates.
    axis : int
        In [0, rank).
    table : tuple of int
        At least one, each of 62 bits and a sign, so that int64 holds their differences.

    Raises
    ------
    ValueError
        If there is no such axis, or the table is empty or holds larger integers.

    Examples
    --------
    >>> Lookup(2, 0, (7, 3, 60)).apply((2, 5))
    (60, 5)

    References
    ----------
    NumPy take; ONNX Gather.
    """

    rank: int
    axis: int
    table: tuple[int, ...]
    column: Int64Array
    """The table as an array, which is not to be written."""
    _hash: int
    __match_args__ = ("rank", "axis", "table")
    __slots__ = (*__match_args__, "_hash", "column")

    def __init__(self, rank: int, axis: int, table: Sequence[int]) -> None:
        ranks, at, entries = as_int(rank, "Lookup: rank"), as_int(axis, "Lookup: axis"), as_ints(table, "Lookup: table")
        if not 0 <= at < ranks:
            raise ValueError(f"Lookup: axis {at} is not one of {ranks}; give one in [0, {ranks})")
        if not entries:
            raise ValueError("Lookup: the table is empty; a view that reads nothing needs no step")
        if max(entries) >= 1 << 62 or min(entries) < -(1 << 62):
            raise ValueError(f"Lookup: the table holds {max(entries, key=abs)}; its entries must be in [-2**62, 2**62)")
        column = freeze_array(np.array(entries, np.int64))
        put_fields(self, rank=ranks, axis=at, table=entries, column=column, _hash=hash((ranks, at, entries)))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.table[:8])) + (f", … {len(self.table)} in all" if len(self.table) > 8 else "")
        return f"Lookup(rank={self.rank}, axis={self.axis}, table=({shown}))"

    @property
    def in_rank(self) -> int:
        """Number of input axes."""
        return self.rank

    @property
    def out_rank(self) -> int:
        """Number of output axes."""
        return self.rank

    def apply(self, point: Sequence[int]) -> tuple[int, ...]:
        """Return the point with one coordinate looked up; IndexError if the table ends before it."""
        at = point[self.axis]
        if not 0 <= at < len(self.table):
            raise IndexError(
                f"Lookup: {at} is not in [0, {len(self.table)}), the places of the table; point {quote(point)}"
            )
        return (*point[: self.axis], self.table[at], *point[self.axis + 1 :])

    def apply_array(self, points: Int64Array) -> Int64Array:
        """Return the images of points, of shape (n, rank); where a guard will not hold, of any."""
        out = points.copy()
        out[:, self.axis] = self.column.take(points[:, self.axis], mode="clip")
        return out

    def runs(self) -> Iterator[EntryRun]:
        """Yield the table as runs of equal steps."""
        return runs_of(self.table)

    def between(self, low: int, high: int) -> Int64Array:
        """Return the entries at the places in [low, high)."""
        return self.column[max(low, 0) : max(high, 0)]

    def find(self, entry: int) -> int | None:
        """Return the first place of an entry, None if it is not in the table."""
        at = np.flatnonzero(self.column == entry) if abs(entry) >> 62 == 0 else np.empty(0, np.int64)
        return int(at[0]) if len(at) else None

    def find_each(self, entries: Int64Array) -> Int64Array:
        """Return the first place of each of some entries; that of any other for those that are not in the table."""
        known, first = np.unique(self.column, return_index=True)
        return cast(Int64Array, first[np.minimum(np.searchsorted(known, entries), len(known) - 1)])

    @property
    def is_injective(self) -> bool:
        """Whether no entry comes twice."""
        return have_no_twins(self.column)


def have_no_twins(column: Int64Array) -> bool:
    """Return whether all entries differ."""
    return len(np.unique(column)) == len(column)


class EntryRun(NamedTuple):
    """Entries `first`, `first` + `step`, … of a table at the places `at`, `at` + 1, …, `length` of them."""

    at: int
    first: int
    length: int
    step: int


def runs_of(entries: Sequence[int]) -> Iterator[EntryRun]:
    """Yield a table as runs of equal steps, each as long as it can be; a run of one entry has step 1.

    Examples
    --------
    >>> [tuple(run) for run in runs_of([5, 5, 5, 3, 2, 1, 9])]
    [(0, 5, 3, 0), (3, 3, 3, -1), (6, 9, 1, 1)]
    """
    at, m = 0, len(entries)
    while at < m:
        end = at + 1
        step = entries[end] - entries[at] if end < m else 1
        while end < m and entries[end] - entries[end - 1] == step:
            end += 1
        yield EntryRun(at, entries[at], end - at, step if end - at > 1 else 1)
        at = end


def progressions_of(values: Int64Array) -> list[Progression]:
    """Return different integers, in any order, as few disjoint progressions.

    Examples
    --------
    >>> progressions_of(np.array([9, 1, 3, 5, 10]))
    [(1, ((3, 2),)), (9, ((2, 1),))]
    """
    runs = runs_of(np.unique(values).tolist())
    return [(run.first, ((run.length, run.step),) if run.length > 1 else ()) for run in runs]
