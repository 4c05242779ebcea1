"""The protocol of a view kind, and the helpers that several kinds share."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import count
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from msgspec import Struct

from tapestry_sets.digits import Levels, Strided, at_index, cut_axis
from tapestry_sets.limits import as_int, quote
from tapestry_sets.regions import AffineMap, Region
from tapestry_sets.views.kinds.axis_maps import AxisMaps, Sum
from tapestry_sets.views.pieces.maps import IndexMap, Shape, Step
from tapestry_sets.views.pieces.piece import Guard, Piece

Shapes = tuple[Shape, ...]
PadMode = Literal["constant", "edge", "reflect", "symmetric", "wrap"]
Triple = tuple[int | None, int | None, int | None]


@runtime_checkable
class ViewKind(Protocol):
    """A way to make a view of one or more sources. Any class with these two methods is one.

    A kind of one source may also have ``strided(shapes, source)``, which takes the source's strided form to its own
    or returns None (see `tapestry_sets.digits`): a short way to the same answers. From the strided form of a source
    that lies in memory row by row it also says which of the source's cells the view reads, by their row-major
    numbers, so that chains which need too many setts are still answered (see `tapestry_sets.alias`).

    A kind of several sources may have ``join_strided(shapes, forms)``, of those that have cells: the strided form of
    all together, None if they have none, and `OPEN` where that is left to the pieces.

    A kind of which each view that has cells reads all cells of its sources, in whatever order and however often, says
    so by ``reads_all = True``: then questions about its cells may go to the sources.

    It may also have ``by_axis(shapes)``: for each source a map for each of its axes, or for some neighbors, where
    each reads it through axes of the view of its own; see `tapestry_sets.views.kinds.axis_maps`.

    Examples
    --------
    >>> from tapestry_sets import AffineMap, allocate
    >>> from tapestry_sets.views import IndexMap, Piece
    >>> class Shear:  # the diagonals of a wide matrix: (i, j) reads (i, i + j)
    ...     def out_shape(self, shapes):
    ...         ((rows, columns),) = shapes
    ...         return rows, columns - rows + 1
    ...     def pieces(self, shapes):
    ...         return (Piece(0, (), IndexMap((AffineMap(((1, 0), (1, 1)), (0, 0)),))),)
    >>> A = allocate((4, 9), name="A")
    >>> print(A.apply(Shear())[:, ::-1][:, :4].origins()[A])
    ..1111...
    ...1111..
    ....1111.
    .....1111
    """

    def out_shape(self, shapes: Shapes) -> Shape:
        """Return the view's shape from its sources' shapes, or raise a ValueError that says what is wrong."""

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        """Return the pieces of the view; their domains must partition it."""


# ------------------------------------------------------------------------------- what several kinds have in common

AxisRow = tuple[int, *tuple[tuple[int, int], ...]]
"""(start, (axis of the view, step), …): a source's axis is read at start + Σ step·index."""


class OneMap(Struct, frozen=True):
    """A kind that reads its one source through one affine map, with a row for each of the source's axes."""

    def out_shape(self, shapes: Shapes) -> Shape:
        """Return the view's shape."""
        raise NotImplementedError(f"{type(self).__name__}: a kind of one map says its `out_shape`; define it")

    def rows(self, shape: Shape) -> list[AxisRow]:
        """Return where each axis of a source of this shape is read."""
        raise NotImplementedError(f"{type(self).__name__}: a kind of one map says its `rows`; define them")

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        """Return the one piece, which reads through the map."""
        rank, rows = len(self.out_shape(shapes)), self.rows(shapes[0])
        matrix = tuple([tuple([dict(terms).get(axis, 0) for axis in range(rank)]) for _, *terms in rows])
        return (one_piece([AffineMap._of(matrix, tuple([row[0] for row in rows]), rank)]),)

    def by_axis(self, shapes: Shapes) -> tuple[AxisMaps]:
        """Return how each axis of the source is read."""
        rows = self.rows(shapes[0])
        return (
            tuple([Sum(tuple([a for a, _ in terms]), start, tuple([by for _, by in terms])) for start, *terms in rows]),
        )

    def strided(self, shapes: Shapes, source: Strided) -> Strided | None:
        """Return the view's strided form from the source's; None where the map cuts levels that do not align."""
        offset, shape = source[0], self.out_shape(shapes)
        out: list[Levels] = [((n, 0),) for n in shape]
        for levels, (start, *terms) in zip(source[1], self.rows(shapes[0]), strict=True):
            if len(levels) == 1 or not terms:
                offset += at_index(levels, start)
                for axis, step in terms:
                    if len(out[axis]) > 1:
                        return None
                    out[axis] = ((shape[axis], out[axis][0][1] + step * levels[0][1]),)
                continue
            ((axis, step), *more) = terms
            cut = None if more or out[axis] != ((shape[axis], 0),) else cut_axis(levels, start, shape[axis], step)
            if cut is None:
                return None
            offset, out[axis] = offset + cut[0], cut[1]
        return offset, tuple(out)


def axis_of(axis: int, rank: int, what: str) -> int:
    """Return an axis counted from the first; negative ones count from the end."""
    a = as_int(axis, f"{what}: axis")
    if not -rank <= a < rank:
        mend = f"give one in [{-rank}, {rank})" if rank else "rank 0 has no axes"
        raise np.exceptions.AxisError(f"{what}: axis {a} is out of range for a shape of rank {rank}; {mend}")
    return a % rank


def axes_of(axes: Iterable[int], rank: int, what: str) -> Shape:
    """Return axes counted from the first, of which none may come twice."""
    if type(axes) is tuple and all(type(a) is int and 0 <= a < rank for a in axes) and len(set(axes)) == len(axes):
        return axes  # the usual case, sooner
    found = tuple(axis_of(a, rank, what) for a in axes)
    if len(set(found)) < len(found):
        raise ValueError(f"{what}: axes {quote(found)} name an axis twice; name each once")
    return found


def only_shape(shapes: Shapes, what: str) -> Shape:
    if len(shapes) != 1:
        raise ValueError(f"{what}: takes one source, not {len(shapes)}")
    return shapes[0]


def one_piece(steps: Sequence[Step], source: int = 0, *guards: Guard) -> Piece:
    return Piece(source, guards, IndexMap._of(tuple(steps), steps[0].in_rank))


def count_range(start: int, stop: int, step: int) -> int:
    """How many integers range(start, stop, step) holds; len() of a range has a limit of 63 bits."""
    return max(0, -((start - stop) // step))


def band(shape: Shape, axis: int, start: int, stop: int, prefix: int = 0) -> Guard:
    """The guard start <= x[axis] < stop."""
    low, high = [0] * len(shape), list(shape)
    low[axis], high[axis] = start, stop
    return Guard(prefix, Region.from_bounds(shape, low, high))


def kept_rows(rank: int, gone: Container[int]) -> list[AxisRow]:
    """The rows of a source's axes of which some are gone from the view: they are read at 0."""
    at = count()
    return [(0,) if axis in gone else (0, (next(at), 1)) for axis in range(rank)]


def drop_axis(rank: int, axis: int) -> AffineMap:
    """The map that forgets one axis."""
    return AffineMap.select(rank, [(a, 1) for a in range(rank) if a != axis])


def move_axis(rank: int, axis: int, offset: int) -> AffineMap:
    """The map x[axis] -> x[axis] + offset."""
    every = range(rank)
    return AffineMap.select(rank, [(a, 1) for a in every], [offset if a == axis else 0 for a in every])


def check_from_zero(region: object, what: str) -> None:
    if not isinstance(region, Region):
        raise TypeError(f"{what} must be a Region, not {type(region).__name__}; Region(shape, setts) makes one")
    if any(region.start):
        raise ValueError(
            f"{what} must be in a box that starts at zero, not at {quote(region.start)}; "
            f"shift it by {quote(tuple(-s for s in region.start))}"
        )


def check_out_shape(kind: ViewKind, shapes: Shapes) -> Shape:
    """Return the shape that a kind gives, or raise TypeError if it is not a kind or does not give integers."""
    try:
        out_shape = kind.out_shape
    except AttributeError:
        raise TypeError(
            f"apply: {quote(kind)} is not a view kind, which has the methods out_shape and pieces"
        ) from None
    shape = out_shape(shapes)
    for n in shape:
        if type(n) is not int:
            raise TypeError(
                f"apply: {quote(kind)} makes the shape {quote(shape)}, of which {quote(n)} is not an int; give integers"
            )
    return shape
