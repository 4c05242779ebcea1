"""Index maps: chains of affine maps and row-major renumberings, from a view's coordinates to its source's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import ClassVar, cast

import numpy as np
from msgspec import Struct

from tapestry_sets.digits import number_of, point_of, points_of
from tapestry_sets.integers import Int64Array
from tapestry_sets.limits import Checked, as_ints
from tapestry_sets.regions import AffineMap

Shape = tuple[int, ...]
INT64_MAX = 2**63 - 1


class Relinearize(Struct, frozen=True, metaclass=Checked):
    """Row-major renumbering: the coordinates of the same cell after a reshape.

    The outermost extents bound nothing: guards and the view's own box do.

    Parameters
    ----------
    from_shape, to_shape : tuple of int
        Shapes of equal size.

    Raises
    ------
    ValueError
        If an extent is negative or the sizes differ.

    Examples
    --------
    >>> Relinearize((2, 6), (4, 3)).apply((1, 2))
    (2, 2)

    References
    ----------
    ONNX Reshape; Tapestry's document on nested striding: reshape always aliases.
    """

    from_shape: tuple[int, ...]
    to_shape: tuple[int, ...]
    _of: ClassVar[Callable[[Shape, Shape], Relinearize]]
    """Takes shapes that are known to be plain integers >= 0 and of equal size."""

    @classmethod
    def _check(cls, from_shape: Sequence[int], to_shape: Sequence[int]) -> tuple[Shape, Shape]:
        old = as_ints(from_shape, "Relinearize: from_shape")
        new = as_ints(to_shape, "Relinearize: to_shape")
        for what, shape in (("from_shape", old), ("to_shape", new)):
            if min(shape, default=0) < 0:
                raise ValueError(f"Relinearize: {what} {shape} has a negative extent; extents are >= 0")
        if prod(old) != prod(new):
            raise ValueError(f"Relinearize: {old} has {prod(old)} elements and {new} has {prod(new)}; they must agree")
        return old, new

    @property
    def in_rank(self) -> int:
        """Number of input axes."""
        return len(self.from_shape)

    @property
    def out_rank(self) -> int:
        """Number of output axes."""
        return len(self.to_shape)

    def apply(self, point: Sequence[int]) -> tuple[int, ...]:
        """Return the renumbered point, in exact integers."""
        return point_of(number_of(point, self.from_shape), self.to_shape)


Step = AffineMap | Relinearize


class IndexMap(Struct, frozen=True, metaclass=Checked):
    """A chain of affine maps and renumberings, applied first to last.

    Parameters
    ----------
    steps : tuple of AffineMap or Relinearize
        Each step takes what the one before gives.
    in_rank : int, optional
        Number of input axes; needed only without steps.

    Raises
    ------
    ValueError
        If the ranks of neighboring steps do not match.

    Examples
    --------
    >>> m = IndexMap((AffineMap(((1, 0), (0, 2)), (0, 1)), Relinearize((4, 6), (24,))))
    >>> m.apply((1, 1))
    (9,)
    """

    steps: tuple[Step, ...] = ()
    in_rank: int = -1
    _of: ClassVar[Callable[[tuple[Step, ...], int], IndexMap]]
    """Takes steps whose ranks are known to match."""

    @classmethod
    def _check(cls, steps: Iterable[Step] = (), in_rank: int = -1) -> tuple[tuple[Step, ...], int]:
        chain = tuple(steps)
        rank = in_rank if in_rank >= 0 or not chain else chain[0].in_rank
        if rank < 0:
            raise ValueError("IndexMap: the number of input axes is unknown; give in_rank")
        at = rank
        for k, step in enumerate(chain):
            if step.in_rank != at:
                raise ValueError(f"IndexMap: step {k} takes rank {step.in_rank} where rank {at} arrives: {step}")
            at = step.out_rank
        return chain, rank

    @property
    def out_rank(self) -> int:
        """Number of output axes."""
        return self.steps[-1].out_rank if self.steps else self.in_rank

    def apply(self, point: Sequence[int]) -> tuple[int, ...]:
        """Return the image of one point, in exact integers."""
        at = as_ints(point, "IndexMap.apply: point")
        if len(at) != self.in_rank:
            raise ValueError(f"IndexMap.apply: point {at} has rank {len(at)}; the map takes rank {self.in_rank}")
        for step in self.steps:
            at = step.apply(at)
        return at

    def apply_array(self, points: Int64Array) -> Int64Array:
        """Return the images of many points.

        Parameters
        ----------
        points : int64 array of shape (n, in_rank)

        Returns
        -------
        int64 array of shape (n, out_rank)

        Raises
        ------
        ValueError
            If the array's shape does not fit.
        OverflowError
            If a coordinate may not fit 64 bits; `apply` has no such bound.

        Examples
        --------
        >>> flip = IndexMap((AffineMap(((-1,),), (4,)),))
        >>> flip.apply_array(np.array([[0], [3]])).tolist()
        [[4], [1]]
        """
        x = np.asarray(points, np.int64)
        if x.ndim != 2 or x.shape[1] != self.in_rank:
            raise ValueError(f"IndexMap.apply_array: shape {x.shape} where (n, {self.in_rank}) is needed")
        for step in self.steps:
            x = map_points(step, x)
        return x

    def then(self, other: IndexMap) -> IndexMap:
        """Return the chain of this map and then `other`."""
        if other.in_rank != self.out_rank:
            raise ValueError(f"IndexMap.then: rank {self.out_rank} arrives where rank {other.in_rank} is taken")
        return IndexMap._of(self.steps + other.steps, self.in_rank)

    def simplify(self) -> IndexMap:
        """Return the same map with neighboring steps of a kind merged and identities removed.

        Examples
        --------
        >>> there, back = Relinearize((6,), (2, 3)), Relinearize((2, 3), (6,))
        >>> IndexMap((there, back)).simplify()
        IndexMap(steps=(), in_rank=1)
        """
        steps: list[Step] = []
        for step in self.steps:
            merged = merge_steps(steps[-1], step) if steps else None
            if merged is not None:
                steps[-1] = merged
            else:
                steps.append(step)
            if is_identity(steps[-1]):
                steps.pop()
        return IndexMap._of(tuple(steps), self.in_rank) if len(steps) < len(self.steps) else self


def put_extents(shape: Shape, axis: int, *extents: int) -> Shape:
    """Return the shape, or the point, with one axis replaced by others."""
    return (*shape[:axis], *extents, *shape[axis + 1 :])


def merge_steps(first: Step, second: Step) -> Step | None:
    """One step for two neighbors of a kind, else None."""
    if isinstance(first, AffineMap) and isinstance(second, AffineMap):
        return first.then(second)
    if isinstance(first, Relinearize) and isinstance(second, Relinearize) and first.to_shape == second.from_shape:
        return Relinearize._of(first.from_shape, second.to_shape)
    return None


def is_identity(step: Step) -> bool:
    return step.is_identity if isinstance(step, AffineMap) else step.from_shape == step.to_shape


def map_points(step: Step, x: Int64Array) -> Int64Array:
    return _apply_affine_array(step, x) if isinstance(step, AffineMap) else _relinearize_array(step, x)


def _apply_affine_array(step: AffineMap, x: Int64Array) -> Int64Array:
    top = int(np.abs(x).max()) if x.size else 0
    for row, b in zip(step.matrix, step.offset, strict=True):
        if abs(b) + sum(map(abs, row)) * top > INT64_MAX:
            raise OverflowError(f"IndexMap.apply_array: coordinates up to {top} times {row} plus {b} exceed int64")
    matrix = np.array(step.matrix, np.int64).reshape(step.out_rank, x.shape[1])
    return cast(Int64Array, x @ matrix.T + np.array(step.offset, np.int64))


def _relinearize_array(step: Relinearize, x: Int64Array) -> Int64Array:
    if prod(step.from_shape) > INT64_MAX:
        raise OverflowError(f"IndexMap.apply_array: {step.from_shape} has more elements than int64 can number")
    flat = np.zeros(len(x), np.int64) + number_of(x.T, step.from_shape)
    return points_of(flat, [max(n, 1) for n in step.to_shape])
