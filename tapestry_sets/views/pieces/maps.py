"""Index maps: chains of affine maps, renumberings and tables, from a view's coordinates to its source's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import ClassVar, TypeVar, cast

import numpy as np
from msgspec import Struct

from tapestry_sets.digits import number_of, point_of, points_of
from tapestry_sets.integers import Int64Array
from tapestry_sets.limits import Checked, as_ints, quote
from tapestry_sets.regions import AffineMap
from tapestry_sets.views.pieces.lookup import Lookup

Shape = tuple[int, ...]
INT64_MAX = 2**63 - 1
G = TypeVar("G")


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
                raise ValueError(f"Relinearize: {what} {quote(shape)} has a negative extent; extents are >= 0")
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


Step = AffineMap | Relinearize | Lookup


class IndexMap(Struct, frozen=True, metaclass=Checked):
    """A chain of affine maps, renumberings and lookups, applied first to last.

    Parameters
    ----------
    steps : tuple of AffineMap, Relinearize or Lookup
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
        if in_rank < -1:
            raise ValueError(f"IndexMap: in_rank is {quote(in_rank)}; give the number of input axes, or leave it out")
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
            raise ValueError(f"IndexMap.apply_array: shape {quote(x.shape)} where (n, {self.in_rank}) is needed")
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
            while steps and (merged := merge_steps(steps[-1], step)) is not None:
                if len(merged) == 2:  # two steps changed places: what stood before them may merge now
                    every = list(self.steps)
                    shorten(every, [[] for _ in range(len(every) + 1)])
                    return IndexMap._of(tuple(every), self.in_rank)
                (step,) = merged  # which may merge with what stands before it
                steps.pop()
            if not is_identity(step):
                steps.append(step)
        return IndexMap._of(tuple(steps), self.in_rank) if len(steps) < len(self.steps) else self


def put_extents(shape: Shape, axis: int, *extents: int) -> Shape:
    """Return the shape, or the point, with one axis replaced by others."""
    return (*shape[:axis], *extents, *shape[axis + 1 :])


def shorten(steps: list[Step], guards: list[list[G]]) -> None:
    """Merge neighboring steps where no guard stands between them, and drop those that change nothing, in place.

    Parameters
    ----------
    steps : list of Step
    guards : list of lists
        What stands before each step, and behind the last.
    """
    k = 0
    while k < len(steps):
        if is_identity(steps[k]):
            del steps[k]
            guards[k : k + 2] = [guards[k] + guards[k + 1]]
            k = max(k - 1, 0)
            continue
        merged = merge_steps(steps[k], steps[k + 1]) if k + 1 < len(steps) and not guards[k + 1] else None
        if merged is None:
            k += 1
            continue
        steps[k : k + 2] = merged
        if len(merged) == 1:
            del guards[k + 1]
        k = max(k - 1, 0)


def merge_steps(first: Step, second: Step) -> tuple[Step, ...] | None:
    """The step that does what two neighbors do, or two with a lookup before the other; None where they stay."""
    if isinstance(first, AffineMap) and isinstance(second, AffineMap):
        return (first.then(second),)
    if isinstance(first, Relinearize) and isinstance(second, Relinearize) and first.to_shape == second.from_shape:
        return (Relinearize._of(first.from_shape, second.to_shape),)
    if isinstance(second, Lookup):
        if isinstance(first, Lookup):
            return _merge_lookups(first, second)
        return _look_up_before(first, second) if isinstance(first, AffineMap) else None
    return _change_table(first, second) if isinstance(first, Lookup) and isinstance(second, AffineMap) else None


def _merge_lookups(first: Lookup, second: Lookup) -> tuple[Step, ...] | None:
    if first.axis != second.axis:
        return (second, first) if second.axis < first.axis else None
    column = first.column
    if column.min() < 0 or column.max() >= len(second.table):  # where guards will not hold
        return None
    return (look_up(first.rank, first.axis, second.column[column]),)


def _look_up_before(m: AffineMap, second: Lookup) -> tuple[Step, ...] | None:
    """A lookup behind a map as one before it, of every second entry, say, where its coordinate is of one term."""
    (*terms,), b, last = m.terms()[second.axis], m.offset[second.axis], len(second.table) - 1
    if not 0 <= b <= last:
        return None
    if not terms:
        return (_put_row(m, second.axis, (), second.table[b]),)
    ((j, c), *more) = terms
    if more or sum([1 for row in m.matrix if row[j]]) > 1:
        return None
    return look_up(m.in_rank, j, second.column[b::c]), _put_row(m, second.axis, ((j, 1),), 0)


def _change_table(first: Lookup, m: AffineMap) -> tuple[Step, ...] | None:
    """A lookup before a map that scales and moves its entries as one of the entries scaled and moved."""
    rows = [i for i, row in enumerate(m.matrix) if row[first.axis]]
    if not rows:
        return (m,)
    ((i, *more), c) = rows, m.matrix[rows[0]][first.axis]
    if more or len(m.terms()[i]) > 1 or (c, m.offset[i]) == (1, 0):
        return None
    if max(abs(int(first.column.min())), abs(int(first.column.max()))) * abs(c) + abs(m.offset[i]) > INT64_MAX:
        return None
    table = look_up(first.rank, first.axis, first.column * c + m.offset[i])
    return table, _put_row(m, i, ((first.axis, 1),), 0)


def _put_row(m: AffineMap, i: int, terms: Iterable[tuple[int, int]], offset: int) -> AffineMap:
    """The map with another row i."""
    row = [0] * m.in_rank
    for j, c in terms:
        row[j] = c
    return AffineMap._of((*m.matrix[:i], tuple(row), *m.matrix[i + 1 :]), put_extents(m.offset, i, offset), m.in_rank)


def look_up(rank: int, axis: int, column: Int64Array) -> Step:
    """Return the step that reads a coordinate from a table: a map where its entries go on in equal steps."""
    first = int(column[0])
    step = int(column[1]) - first if len(column) > 1 else 1
    if (np.diff(column) == step).all():
        kept = [(k, step if k == axis else 1) for k in range(rank)]
        return AffineMap.select(rank, kept, [first if k == axis else 0 for k in range(rank)])
    return Lookup(rank, axis, column.tolist())


def trim_tables(chain: IndexMap, shape: Sequence[int]) -> IndexMap:
    """Return a chain that takes indices of a shape alone, its first tables without entries behind these."""
    steps = list(chain.steps)
    k = 0
    while k < len(steps) and isinstance(step := steps[k], Lookup):
        if len(step.table) > shape[step.axis]:
            steps[k] = look_up(step.rank, step.axis, step.column[: shape[step.axis]])
        k += 1
    if all(one is two for one, two in zip(steps, chain.steps, strict=True)):
        return chain
    return IndexMap._of(tuple(steps), chain.in_rank).simplify()


def is_identity(step: Step) -> bool:
    if isinstance(step, Lookup):
        return False  # `look_up` makes maps of tables that change nothing
    return step.is_identity if isinstance(step, AffineMap) else step.from_shape == step.to_shape


def map_points(step: Step, x: Int64Array) -> Int64Array:
    if isinstance(step, Lookup):
        return step.apply_array(x)
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
        raise OverflowError(f"IndexMap.apply_array: {quote(step.from_shape)} has more elements than int64 can number")
    flat = np.zeros(len(x), np.int64) + number_of(x.T, step.from_shape)
    return points_of(flat, [max(n, 1) for n in step.to_shape])
