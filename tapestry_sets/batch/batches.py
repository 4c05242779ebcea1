"""Batches: many stripes or boxes as columns of integers, and every pair of them answered at once.

A batch holds one array for each number of its items, so that one pass over the columns answers for all pairs.
Batches broadcast as NumPy arrays do: ``a[:, None]`` against ``b`` is every pair. Columns may be arrays of NumPy
or of any library that follows the Array API standard, CuPy among them; answers are arrays of the same library.

Every answer is exact: int64 where all of it fits, else a NumPy array of Python integers; see `kernels`. Pairs are
answered block by block, so that beside the answers little memory is needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from tapestry_sets.batch import kernels, tuning
from tapestry_sets.batch.kernels import Array, Form, Namespace
from tapestry_sets.integers import Level, Stripe
from tapestry_sets.limits import Frozen, as_items, check_type, make_unchecked, put_fields, quote
from tapestry_sets.regions import Box


class FirstCommon(NamedTuple):
    """The first common elements of pairs.

    Attributes
    ----------
    found : array of bool
        Whether there is one.
    value : array of int64, or of Python integers where one does not fit
        The elements, 0 where there is none. Points of regions and boxes have one more axis, of length rank.
    """

    found: Array
    value: Array


# ----------------------------------------------------------------------------------------------------- batches


def _first_row(bad: Array) -> str:
    """Return how an error names the first row of which something holds."""
    at = np.argwhere(kernels.to_host(bad))[0].tolist()
    return f"row {at[0]}" if len(at) == 1 else f"row {tuple(at)}" if at else "the only row"


def refuse(bad: Array, what: str, values: Array, need: str) -> None:
    """Raise ValueError if something holds of a row, naming the row and its value."""
    if bool(kernels.namespace(bad).any(bad)):
        value = kernels.to_host(values)[kernels.to_host(bad)].tolist()[0]
        raise ValueError(f"{what} is {value} in {_first_row(bad)}; {need}")


def as_key(key: object) -> Any:
    """Return an index of a batch as one of its columns with an axis more."""
    if kernels.is_array(key) or isinstance(key, list):
        return key
    return (*key, slice(None)) if isinstance(key, tuple) else (key, slice(None))


class Batch(Frozen, ABC):
    """The base of batches of stripes, boxes and regions."""

    __slots__ = ()

    @property
    @abstractmethod
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch: ``(n,)`` for a list of n."""

    @abstractmethod
    def __getitem__(self, key: Any) -> Any:
        """Return the item at an integer, or the batch at any other index that an array takes."""

    def _at(self, column: Array, key: Any) -> Any:
        """Return what one column has at an index of the batch."""
        try:
            return column[key]
        except Exception as error:  # of whichever library the column is
            raise IndexError(
                f"{type(self).__name__}: key {quote(key)} into batch shape {self.batch_shape}: {error}"
            ) from None

    @abstractmethod
    def overlaps(self, other: Self) -> Array:
        """Return which items share an element."""

    def __len__(self) -> int:
        if not self.batch_shape:
            raise TypeError(f"{type(self).__name__}: a batch of no axes has no length")
        return self.batch_shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of batch shape {self.batch_shape}>"

    def isdisjoint(self, other: Self) -> Array:
        """Return which items share no element; see `overlaps`."""
        return ~self.overlaps(other)

    def overlap_matrix(self, other: Self | None = None) -> Array:
        """Return for all pairs whether they share an element, as a matrix of bool.

        Parameters
        ----------
        other : batch, optional
            Of the same kind and one axis; the batch itself by default, of which each pair is asked about once.

        Raises
        ------
        ValueError
            If a batch has not one axis.

        Examples
        --------
        >>> from tapestry_sets import StripeArray
        >>> batch = StripeArray(1, [2, 4, 6], [0, 2, 1])
        >>> batch.overlap_matrix().astype(int).tolist()
        [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
        """
        columns = self if other is None else other
        (
            self._listed("overlap_matrix"),
            check_type(columns, type(self), "overlap_matrix: other")._listed("overlap_matrix"),
        )
        if other is not None or not len(self):
            return self[:, None].overlaps(columns)
        n, rows = len(self), max(1, 2 * tuning.PAIRS_AT_ONCE // len(self))
        out: Array = None
        for at in range(0, n, rows):
            end = min(at + rows, n)
            found = self[at:end, None].overlaps(self[at:])
            if out is None:
                xp = kernels.namespace(found)
                out = xp.empty((n, n), dtype=found.dtype)
            out[at:end, at:] = found
            out[at:, at:end] = found.T
        return out

    def overlapping_pairs(self, other: Self | None = None) -> tuple[Array, Array]:
        """Return the pairs that share an element, as their positions in both batches, in order.

        Parameters
        ----------
        other : batch, optional
            Of the same kind and one axis; by default the batch itself, and the pairs are those of i < j.

        Raises
        ------
        ValueError
            If a batch has not one axis.

        Notes
        -----
        Memory grows with the number of the pairs that are returned, not with that of all.

        Examples
        --------
        >>> from tapestry_sets import StripeArray
        >>> i, j = StripeArray(1, [2, 4, 6], [0, 2, 1]).overlapping_pairs()
        >>> i.tolist(), j.tolist()
        ([0], [1])
        """
        columns = self if other is None else other
        check_type(columns, type(self), "overlapping_pairs: other")
        self._listed("overlapping_pairs"), columns._listed("overlapping_pairs")
        n, rows = len(self), max(1, 8 * tuning.PAIRS_AT_ONCE // max(1, len(columns)))
        parts = []
        for at in range(0, max(1, n), rows):
            left = at if other is None else 0
            found = self[at : min(at + rows, n), None].overlaps(columns[left:])
            xp = kernels.namespace(found)
            i, j = xp.nonzero(found)
            i, j = i + at, j + left
            keep = i < j if other is None else i == i
            parts.append((i[keep], j[keep]))
        return tuple(_joined(xp, column) for column in zip(*parts, strict=True))

    def _listed(self, verb: str) -> None:
        if len(self.batch_shape) != 1:
            raise ValueError(
                f"{verb}: takes batches of one axis, not of shape {quote(self.batch_shape)}; reshape the columns"
            )


def _joined(xp: Namespace, parts: Sequence[Array]) -> Array:
    return xp.concat(parts) if hasattr(xp, "concat") else xp.concatenate(parts)


class StripeArray(Batch):
    """Stripes {z : (z - phase) mod period < on} as three columns of integers.

    Parameters
    ----------
    on, period, phase : int, sequence or array of integers
        Columns that broadcast to one shape, ``0 <= on <= period`` and ``period > 0``; phases are kept reduced
        modulo the period. NumPy arrays, or those of any library that follows the Array API standard.

    Raises
    ------
    TypeError
        If a column does not hold integers.
    ValueError
        If a value is out of its range, or the shapes do not broadcast.

    Examples
    --------
    >>> from tapestry_sets import Stripe, StripeArray
    >>> batch = StripeArray.of([Stripe(1, 1), Stripe(1, 3, 1), Stripe(2, 4, 2)])
    >>> batch[1], len(batch)
    (Stripe(1, 3, phase=1), 3)
    >>> batch[:, None].overlaps(batch).astype(int).tolist()
    [[1, 0, 1], [0, 1, 1], [1, 1, 1]]
    >>> batch[:, None].count_common(batch, 0, 1200).tolist()
    [[600, 0, 200], [0, 300, 100], [200, 100, 400]]

    References
    ----------
    Tapestry's document on nested striding, "The stripe", for each of the stripes.
    """

    __slots__ = ("on", "period", "phase")
    on: Array
    period: Array
    phase: Array

    def __init__(self, on: object, period: object, phase: object = 0) -> None:
        named = {"on": on, "period": period, "phase": phase}
        xp, columns = kernels.together(
            *(kernels.as_column(values, f"StripeArray: {name}") for name, values in named.items())
        )
        shape = kernels.broadcast_shape("StripeArray: on, period, phase", *(x.shape for x in columns))
        a, P, p = (xp.broadcast_to(kernels.own(x), shape) for x in columns)
        refuse(P <= 0, "StripeArray: period", P, "periods must be >= 1")
        refuse(a < 0, "StripeArray: on", a, "give how many elements a block has, >= 0")
        refuse(a > P, "StripeArray: on", a, "on must be at most the period")
        # of one stripe in Python integers NumPy's remainder is a number
        put_fields(self, **kernels.frozen(on=a, period=P, phase=xp.asarray(p % P, dtype=P.dtype)))

    @classmethod
    def of(cls, stripes: Iterable[Stripe]) -> StripeArray:
        """Return stripes as a batch of one axis.

        Raises
        ------
        TypeError
            If an item is not a Stripe.
        """
        items = as_items(stripes, "StripeArray.of: stripes", "sequence of stripes")
        for k, s in enumerate(items):
            if not isinstance(s, Stripe):
                raise TypeError(f"StripeArray.of: item {k} must be a Stripe, not {quote(s)}")
        levels: list[Level] = [s.level for s in items]
        return cls(*([level[k] for level in levels] for k in range(3)))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch: ``(n,)`` for a list of n."""
        return tuple(self.on.shape)

    def __getitem__(self, key: Any) -> Any:
        columns = [self._at(x, key) for x in self._columns]
        if not columns[0].shape if hasattr(columns[0], "shape") else True:
            a, P, p = map(int, columns)
            return Stripe(a, P - a, p)
        return make_unchecked(StripeArray, **kernels.frozen(on=columns[0], period=columns[1], phase=columns[2]))

    @property
    def _columns(self) -> tuple[Array, Array, Array]:
        return self.on, self.period, self.phase

    def _with(self, other: object, verb: str) -> tuple[Array, ...]:
        if not isinstance(other, StripeArray):
            raise TypeError(f"{verb}: takes a StripeArray, not {type(other).__name__}; StripeArray.of makes one")
        return (*self._columns, *other._columns)

    def overlaps(self, other: StripeArray) -> Array:
        """Return which stripes share an integer, pair by pair as the batches broadcast.

        Examples
        --------
        >>> from tapestry_sets import StripeArray
        >>> StripeArray(1, [6, 6, 7]).overlaps(StripeArray(1, 4, [3, 2, 3])).tolist()
        [False, True, True]
        """
        return kernels.solve("overlaps", kernels.STRIPES_MEET, self._with(other, "overlaps"))[0]

    def first_common(self, other: StripeArray, start: object) -> FirstCommon:
        """Return the smallest common elements >= start.

        Parameters
        ----------
        other : StripeArray
        start : int, sequence or array of integers
            Broadcasts with the batches.

        Examples
        --------
        >>> from tapestry_sets import StripeArray
        >>> found, value = StripeArray(1, 4294967291).first_common(StripeArray(1, 4294967279), [0, 1])
        >>> found.tolist(), value.tolist()
        ([True, True], [0, 18446743979220271189])
        """
        columns = (*self._with(other, "first_common"), kernels.as_column(start, "first_common: start"))
        return FirstCommon(*kernels.solve("first_common", kernels.STRIPES_FIRST, columns))

    def count_common(self, other: StripeArray, start: object, stop: object) -> Array:
        """Return how many common elements lie in [start, stop).

        Parameters
        ----------
        other : StripeArray
        start, stop : int, sequence or array of integers
            ``start <= stop``; they broadcast with the batches.

        Raises
        ------
        ValueError
            If a start is after its stop.

        Examples
        --------
        >>> from tapestry_sets import StripeArray
        >>> StripeArray([1, 50001], [2, 100003]).count_common(StripeArray(50009, 100019), 0, 10**12).tolist()
        [249997509500, 249978719600]
        """
        columns = (*self._with(other, "count_common"), *_range_columns(start, stop, "count_common"))
        return kernels.solve("count_common", kernels.STRIPES_COUNT, columns)[0]

    def count(self, start: object, stop: object) -> Array:
        """Return how many elements lie in [start, stop).

        Raises
        ------
        ValueError
            If a start is after its stop.

        Examples
        --------
        >>> from tapestry_sets import StripeArray
        >>> StripeArray(2, [3, 4], 1).count(0, [10, 11]).tolist()
        [6, 6]
        """
        columns = (*self._columns, *_range_columns(start, stop, "count"))
        return kernels.solve("count", kernels.STRIPE_COUNT, columns)[0]


def _range_columns(start: object, stop: object, verb: str) -> tuple[Array, Array]:
    lo, hi = kernels.as_column(start, f"{verb}: start"), kernels.as_column(stop, f"{verb}: stop")
    shape = kernels.broadcast_shape(f"{verb}: start, stop", lo.shape, hi.shape)
    xp, (u, v) = kernels.together(lo, hi)
    bad = xp.broadcast_to(u > v, shape)
    refuse(bad, f"{verb}: start", xp.broadcast_to(u, shape), "start must not be after stop")
    return u, v


def axes_columns(columns: dict[str, object], what: str) -> tuple[Namespace, tuple[Array, ...], tuple[int, ...]]:
    """Return columns with a last axis for the axes of points, broadcast to one shape."""
    xp, made = kernels.together(*(kernels.as_column(values, f"{what}: {name}") for name, values in columns.items()))
    shape = kernels.broadcast_shape(f"{what}: {', '.join(columns)}", *(x.shape for x in made))
    if not shape:
        raise ValueError(f"{what}: {', '.join(columns)} need a last axis, one entry for each axis of the points")
    return xp, tuple(xp.broadcast_to(x, shape) for x in made), shape


def total_of(what: str, factors: Sequence[Array], shape: tuple[int, ...], xp: Namespace) -> Array:
    """Return the product of counts, 1 where there are none."""
    if not factors:
        return xp.ones(shape, dtype=xp.int64)
    return kernels.solve(what, kernels.PRODUCT, factors)[0]


def stack_points(found: Array, values: Sequence[Array], xp: Namespace) -> FirstCommon:
    """Return points from their coordinates, zeros where none was found."""
    shape = tuple(found.shape)
    if not values:
        return FirstCommon(found, xp.zeros((*shape, 0), dtype=xp.int64))
    if any(x.dtype == object for x in values):
        point = np.stack([np.broadcast_to(kernels.to_host(x).astype(object), shape) for x in values], axis=-1)
        return FirstCommon(found, kernels.narrow(np.where(kernels.to_host(found)[..., None], point, 0), xp))
    point = xp.stack([xp.broadcast_to(x, shape) for x in values], axis=-1)
    return FirstCommon(found, xp.where(found[..., None], point, xp.zeros_like(point)))


class BoxArray(Batch):
    """Boxes start + [0, shape) of one rank as two columns of shape ``(..., rank)``.

    Parameters
    ----------
    start, shape : sequence or array of integers
        Columns that broadcast to one shape; extents are >= 0, and a box with an extent of 0 has no points.

    Raises
    ------
    TypeError
        If a column does not hold integers.
    ValueError
        If an extent is negative, or the shapes do not broadcast.

    Examples
    --------
    >>> from tapestry_sets import BoxArray
    >>> boxes = BoxArray([[0, 0], [2, 3], [4, 4]], [[3, 4], [2, 2], [9, 9]])
    >>> boxes[1]
    Box(start=(2, 3), shape=(2, 2))
    >>> boxes[:, None].count_common(boxes).tolist()
    [[12, 1, 0], [1, 4, 0], [0, 0, 81]]
    >>> boxes.bounds()
    Box(start=(0, 0), shape=(13, 13))

    References
    ----------
    Tapestry, "Index Projection Functions": ZRange(start, shape), for each of the boxes.
    """

    __slots__ = ("shape", "start")
    start: Array
    shape: Array

    def __init__(self, start: object, shape: object) -> None:
        _, (low, extent), _ = axes_columns({"start": start, "shape": shape}, "BoxArray")
        refuse(extent < 0, "BoxArray: an extent", extent, "extents must be >= 0")
        put_fields(self, **kernels.frozen(start=kernels.own(low), shape=kernels.own(extent)))

    @classmethod
    def of(cls, boxes: Iterable[Box]) -> BoxArray:
        """Return boxes of one rank, at least one of them, as a batch of one axis.

        Raises
        ------
        TypeError
            If an item is not a Box.
        ValueError
            If there is none, or the ranks differ.
        """
        items = as_items(boxes, "BoxArray.of: boxes", "sequence of boxes")
        for k, box in enumerate(items):
            if not isinstance(box, Box):
                raise TypeError(f"BoxArray.of: item {k} must be a Box, not {quote(box)}")
            if box.rank != items[0].rank:
                raise ValueError(f"BoxArray.of: item {k} has rank {box.rank} but item 0 has rank {items[0].rank}")
        if not items:
            raise ValueError("BoxArray.of: no boxes, so that no rank is known; write BoxArray(zeros((0, rank)), 0)")
        return cls([box.start for box in items], [box.shape for box in items])

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch: ``(n,)`` for a list of n."""
        return tuple(self.start.shape[:-1])

    @property
    def rank(self) -> int:
        """How many axes each box has."""
        return int(self.start.shape[-1])

    @property
    def stop(self) -> Array:
        """One past the last point of each box on each axis."""
        return kernels.solve("BoxArray.stop", SUM, (self.start, self.shape))[0]

    @property
    def size(self) -> Array:
        """How many points each box has."""
        factors = [self.shape[..., axis] for axis in range(self.rank)]
        return total_of("BoxArray.size", factors, self.batch_shape, kernels.namespace(self.shape))

    def __getitem__(self, key: Any) -> Any:
        start, shape = self._at(self.start, as_key(key)), self._at(self.shape, as_key(key))
        if len(start.shape) == 1:
            return Box(tuple(kernels.to_host(start).tolist()), tuple(kernels.to_host(shape).tolist()))
        return make_unchecked(BoxArray, **kernels.frozen(start=start, shape=shape))

    def bounds(self) -> Box | None:
        """Return the smallest box that holds all points, None without points."""
        low, extent, high = kernels.to_host(self.start), kernels.to_host(self.shape), kernels.to_host(self.stop)
        filled = (extent > 0).all(axis=-1)
        if not filled.any():
            return None
        return Box.from_bounds(low[filled].min(axis=0).tolist(), high[filled].max(axis=0).tolist())

    def intersection(self, other: BoxArray) -> BoxArray:
        """Return the boxes of the common points; where there are none, an extent is 0.

        Raises
        ------
        ValueError
            If the ranks differ.
        """
        if not isinstance(other, BoxArray):
            raise TypeError(f"intersection: takes a BoxArray, not {type(other).__name__}; BoxArray.of makes one")
        if self.rank != other.rank:
            raise ValueError(f"intersection: boxes of rank {self.rank} and boxes of rank {other.rank}")
        columns = (self.start, self.stop, other.start, other.stop)
        return BoxArray(*kernels.solve("intersection", COMMON_BOX, columns))

    def overlaps(self, other: BoxArray) -> Array:
        """Return which boxes share a point.

        Raises
        ------
        ValueError
            If the ranks differ.
        """
        common = self.intersection(other)
        return kernels.namespace(common.shape).all(common.shape > 0, axis=-1)

    def count_common(self, other: BoxArray) -> Array:
        """Return how many points pairs of boxes share.

        Raises
        ------
        ValueError
            If the ranks differ.
        """
        return self.intersection(other).size

    def first_common(self, other: BoxArray) -> FirstCommon:
        """Return the first common points in row-major order.

        Raises
        ------
        ValueError
            If the ranks differ.
        """
        common = self.intersection(other)
        xp = kernels.namespace(common.start)
        found = xp.all(common.shape > 0, axis=-1)
        return FirstCommon(found, xp.where(found[..., None], common.start, xp.zeros_like(common.start)))


def _sum(xp: Namespace, x: Array, y: Array) -> tuple[Array]:
    return (x + y,)


def _common_box(xp: Namespace, a: Array, end: Array, b: Array, stop: Array) -> tuple[Array, Array]:
    low = xp.maximum(a, b)
    return low, xp.maximum(xp.minimum(end, stop) - low, xp.zeros_like(low))


SUM = Form(_sum, lambda x, y: x + y)
COMMON_BOX = Form(_common_box, lambda a, end, b, stop: a + end + b + stop)
