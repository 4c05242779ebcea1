"""Index projections: which cells an index box touches, exactly.

An index projection sends a point i to the box ``A·i + b + [0, shape)``. Each coordinate of its image is a
`Progression`, a sum of arithmetic steps, so images cost the same at every size; what is not a small union of
products is an `ImplicitRegion`, decided by isl.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import lcm, prod
from operator import add, sub
from typing import Any

import numpy as np

from tapestry_sets.digits import Grid, Progression, as_interval, combine, count_distinct, interval, number_of, reach
from tapestry_sets.integers import Int64Array
from tapestry_sets.limits import (
    OPEN,
    TooManyPieces,
    Value,
    as_int,
    as_ints,
    as_items,
    ask_one,
    check_type,
    put_fields,
    quote,
)
from tapestry_sets.regions import affine, tuning
from tapestry_sets.regions.affine import AffineMap, Box, ImplicitRegion
from tapestry_sets.regions.coordinates import CoordinateCut, along_box, bounds_of, meets, plan_columns, solve
from tapestry_sets.regions.projection_pictures import projection_picture
from tapestry_sets.regions.region import Region
from tapestry_sets.regions.regions import DisjointRegions, unite
from tapestry_sets.solvers import isl, read_exprs


class IndexProjection(Value):
    """The block that each point of an index space touches: P(i) = box(start: A·i + b, shape).

    Parameters
    ----------
    map : AffineMap
        From index points to the block's start. Its columns are the index axes and then, for each split,
        its quotient and its remainder.
    shape : tuple of int
        The block's extents, >= 1.
    splits : tuple of (axis, q)
        Derived index coordinates i[axis] // q and i[axis] % q, two columns each.

    Raises
    ------
    ValueError
        If ranks differ, an extent is below 1, or a split names no axis or a divisor below 1.

    Examples
    --------
    Rows h of a convolution, 3 kernel rows, stride 2, padding 1:

    >>> from tapestry_sets import AffineMap, Box, IndexProjection
    >>> rows = IndexProjection(AffineMap(((2,),), (-1,)), (3,))
    >>> rows((1,))
    Box(start=(1,), shape=(3,))
    >>> rows.bounding_box(Box((0,), (4,)))
    Box(start=(-1,), shape=(9,))
    >>> rows.shared(Box((0,), (2,)), Box((2,), (2,))).size
    1

    References
    ----------
    Tapestry, "Index Projection Functions".
    """

    __match_args__ = ("map", "shape", "splits")
    __slots__ = (*__match_args__, "index_rank", "is_separable", "_rows", "_cuts")
    map: AffineMap
    shape: tuple[int, ...]
    splits: tuple[tuple[int, int], ...]
    index_rank: int
    is_separable: bool
    _rows: tuple[tuple[tuple[int, int], ...], ...]
    _cuts: tuple[CoordinateCut, ...]

    def __init__(self, map: AffineMap, shape: Sequence[int], splits: Iterable[tuple[int, int]] = ()) -> None:
        extents = as_ints(shape, "IndexProjection: shape")
        pairs = () if type(splits) is tuple and not splits else _checked_splits(splits)
        if len(extents) != check_type(map, AffineMap, "IndexProjection: map").out_rank:
            raise ValueError(
                f"IndexProjection: shape {quote(extents)} has {len(extents)} extents but the map has {map.out_rank} "
                "coordinates"
            )
        for k, n in enumerate(extents):
            if n < 1:
                raise ValueError(
                    f"IndexProjection: extent {n} of coordinate {k} in shape {quote(extents)} must be >= 1"
                )
        rank = map.in_rank - 2 * len(pairs) if map.in_rank >= 0 else -1
        for a, q in pairs:
            if not 0 <= a < rank or q < 1:
                raise ValueError(f"IndexProjection: split ({a}, {q}) needs an axis in [0, {rank}) and a divisor >= 1")
        rows, cuts, separable = plan_columns(map.terms(), rank, pairs)
        put_fields(self, map=map, shape=extents, splits=pairs, index_rank=rank)
        put_fields(self, is_separable=separable, _rows=rows, _cuts=cuts)

    @classmethod
    def from_exprs(cls, index: Sequence[Any], *, start: Sequence[Any], shape: Sequence[int]) -> IndexProjection:
        """Return the projection whose start is given by sympy expressions of the index symbols.

        ``floor(i/q)`` and ``Mod(i, q)`` of an index symbol and a positive integer are understood as splits.

        Parameters
        ----------
        index : sequence of sympy.Symbol
            The index axes, in order.
        start : sequence of sympy expression or int
            The block's start, one for each coordinate.
        shape : sequence of int
            The block's extents.

        Raises
        ------
        ValueError
            If an expression is not affine with integer coefficients; the message names it and says why.

        Examples
        --------
        >>> from sympy import symbols
        >>> from tapestry_sets import IndexProjection
        >>> i, n = symbols("i n", integer=True)
        >>> IndexProjection.from_exprs([i, n], start=[2 * i, n - 1], shape=[3, 1])((1, 1))
        Box(start=(2, 0), shape=(3, 1))
        """
        what = "IndexProjection.from_exprs"
        symbols = as_items(index, f"{what}: index", "sequence of sympy symbols")
        forms = as_items(start, f"{what}: start", "sequence of sympy expressions, one for each coordinate")
        extents = as_ints(shape, f"{what}: shape")
        if len(forms) != len(extents):
            raise ValueError(f"{what}: start has {len(forms)} coordinates, but shape {len(extents)}; give as many")
        matrix, offset, splits = read_exprs(list(symbols), list(forms))
        return cls(AffineMap(matrix, offset, len(symbols) + 2 * len(splits)), extents, splits)

    # -- one point ------------------------------------------------------------------------------------

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return projection_picture(self).bundle(repr(self))

    def __call__(self, point: Sequence[int]) -> Box:
        """Return the block of one index point."""
        return Box(self.map.apply(self._columns_of_point(point)), self.shape)

    def _columns_of_point(self, point: Sequence[int]) -> tuple[int, ...]:
        at = as_ints(point, "IndexProjection: point")
        if self.index_rank >= 0:
            affine.same_rank("IndexProjection: point", len(at), self.index_rank, at)
        return at + tuple(x for a, q in self.splits for x in divmod(at[a], q))

    def marginal(self, axis: int) -> tuple[int, ...]:
        """Return how the block's start moves with one step along an index axis.

        Raises
        ------
        ValueError
            If the projection lacks the axis, or it is split (its step is not constant).

        Examples
        --------
        >>> from tapestry_sets import AffineMap, IndexProjection
        >>> IndexProjection(AffineMap(((2, 0), (0, 1)), (0, 0)), (3, 1)).marginal(0)
        (2, 0)
        """
        axis = self._axis(axis, "IndexProjection.marginal")
        for k, (a, q) in enumerate(self.splits):
            used = any(row[self.index_rank + 2 * k + j] for row in self.map.matrix for j in (0, 1))
            if a == axis and used:
                raise ValueError(f"IndexProjection.marginal: axis {axis} is split by {q}, so its step varies")
        return tuple(row[axis] for row in self.map.matrix)

    def _axis(self, axis: object, what: str) -> int:
        """One of the index axes."""
        at = as_int(axis, f"{what}: axis")
        if not 0 <= at < self.index_rank:
            raise ValueError(f"{what}: axis {quote(at)} is not in [0, {self.index_rank})")
        return at

    # -- counting backwards ---------------------------------------------------------------------------

    @classmethod
    def from_relative_start(
        cls,
        matrix: Sequence[Sequence[int]],
        relative: Sequence[int],
        shape: Sequence[int],
        extents: Sequence[int],
        splits: Sequence[tuple[int, int]] = (),
    ) -> IndexProjection:
        """Return the projection of a window that starts `relative` to where each index point is mapped.

        A negative coefficient counts backwards: its last index point is mapped to 0. What that adds to the
        offset, the bound's adjustment, follows from the matrix and the index's extents.

        Parameters
        ----------
        matrix : sequence of sequence of int
            One row for each coordinate, columns as those of `map`.
        relative : sequence of int
            Start of the window, seen from the point that the index point is mapped to.
        shape : sequence of int
            The window's extents.
        extents : sequence of int
            Extents of the index space.
        splits : sequence of (axis, q)
            As the class has them.

        Examples
        --------
        Windows of 3 cells around every second cell, forwards and backwards:

        >>> from tapestry_sets import IndexProjection
        >>> IndexProjection.from_relative_start([[2]], [-1], [3], [4]).map
        AffineMap(matrix=((2,),), offset=(-1,), in_rank=1)
        >>> IndexProjection.from_relative_start([[-2]], [-1], [3], [4]).map
        AffineMap(matrix=((-2,),), offset=(5,), in_rank=1)

        References
        ----------
        Tapestry, "Offset is composite: projection offset + relative start offset".
        """
        what = "IndexProjection.from_relative_start"
        given = as_items(matrix, f"{what}: matrix", "sequence of rows")
        rows = tuple([as_ints(row, f"{what}: matrix[{r}]") for r, row in enumerate(given)])
        space, pairs = as_ints(extents, f"{what}: extents"), _checked_splits(splits)
        start, counts = as_ints(relative, f"{what}: relative"), as_ints(shape, f"{what}: shape")
        plain = cls(AffineMap(rows, start, len(space) + 2 * len(pairs)), counts, pairs)
        adjusted = map(add, plain.map.offset, plain.bound_adjustment(space))
        return cls(AffineMap(rows, tuple(adjusted), plain.map.in_rank), plain.shape, plain.splits)

    def bound_adjustment(self, extents: Sequence[int]) -> tuple[int, ...]:
        """Return the part of the offset that lets columns with negative coefficients begin at their far ends."""
        last = self._last_columns(extents)
        return tuple(sum(-c * n for c, n in zip(row, last, strict=True) if c < 0) for row in self.map.matrix)

    def relative_start(self, extents: Sequence[int]) -> tuple[int, ...]:
        """Return the offset without the bound's adjustment: where the window starts, seen from the mapped point.

        Examples
        --------
        >>> from tapestry_sets import AffineMap, IndexProjection
        >>> rows = IndexProjection(AffineMap(((2,),), (-1,)), (3,))
        >>> rows.relative_start((4,)), rows.reversed(0, 4).relative_start((4,))
        ((-1,), (-1,))
        """
        return tuple(map(sub, self.map.offset, self.bound_adjustment(extents)))

    def _last_columns(self, extents: Sequence[int]) -> list[int]:
        """The largest value of each column over an index space."""
        space = self._space(extents)
        last = [n - 1 for n in space]
        for axis, q in self.splits:
            last += [(space[axis] - 1) // q, min(space[axis], q) - 1]
        return last

    def _space(self, extents: Sequence[int]) -> tuple[int, ...]:
        """The extents of an index space."""
        space = as_ints(extents, "IndexProjection: extents")
        affine.same_rank("IndexProjection: index extents", len(space), self.index_rank, space)
        return space

    def reversed(self, axis: int, extent: int) -> IndexProjection:
        """Return the projection whose index i along an axis touches what extent − 1 − i touches here.

        Raises
        ------
        ValueError
            If the projection lacks the axis, or it is split by a divisor that does not divide `extent`.

        Examples
        --------
        >>> from tapestry_sets import AffineMap, IndexProjection
        >>> rows = IndexProjection(AffineMap(((2,),), (-1,)), (3,))
        >>> back = rows.reversed(0, 4)
        >>> back((0,)) == rows((3,)), back.reversed(0, 4) == rows
        (True, True)
        """
        axis, extent = self._axis(axis, "IndexProjection.reversed"), as_int(extent, "IndexProjection.reversed: extent")
        columns = {axis: extent - 1}
        for s, (a, q) in enumerate(self.splits):
            if a == axis and extent % q and any(any(row[self.index_rank + 2 * s :][:2]) for row in self.map.matrix):
                raise ValueError(
                    f"IndexProjection.reversed: axis {axis} of extent {extent} is split by {q}, which does not divide "
                    "it, so its parts would not stay parts; give an extent that is a multiple"
                )
            if a == axis:
                columns |= {self.index_rank + 2 * s: extent // q - 1, self.index_rank + 2 * s + 1: q - 1}
        rows = tuple(tuple(-c if k in columns else c for k, c in enumerate(row)) for row in self.map.matrix)
        offset = [
            b + sum(row[k] * last for k, last in columns.items())
            for row, b in zip(self.map.matrix, self.map.offset, strict=True)
        ]
        return IndexProjection(AffineMap(rows, tuple(offset), self.map.in_rank), self.shape, self.splits)

    # -- neighbors -----------------------------------------------------------------------------------

    def first_incoherence(self, extents: Sequence[int]) -> tuple[int, tuple[int, ...]] | None:
        """Return an axis and an index point whose block leaves a gap to the next one's along it; None if none does.

        Blocks of neighboring index points overlap or adjoin when no coordinate lies between them.

        Parameters
        ----------
        extents : sequence of int
            Extents of the index space [0, extents).

        Examples
        --------
        >>> from tapestry_sets import AffineMap, IndexProjection
        >>> IndexProjection(AffineMap(((2,),), (0,)), (2,)).first_incoherence((9,))
        >>> IndexProjection(AffineMap(((2,),), (0,)), (1,)).first_incoherence((9,))
        (0, (0,))

        References
        ----------
        Tapestry, "Index Projection Functions": coherent index ranges map to coherent regions.
        """
        space = self._space(extents)
        if 0 in space:
            return None
        for axis, extent in enumerate(space):
            divisors = sorted({q for a, q in self.splits if a == axis})
            for following in sorted(_first_multiples(divisors)):
                if following >= extent:
                    break
                point = [0] * len(space)
                point[axis] = following - 1
                here = self(point).start
                point[axis] = following
                steps = map(sub, self(point).start, here)
                if any(abs(step) > n for step, n in zip(steps, self.shape, strict=True)):
                    return axis, tuple(following - 1 if k == axis else 0 for k in range(len(space)))
        return None

    # -- images ---------------------------------------------------------------------------------------

    def image(
        self, selection: Box | Region | DisjointRegions, within: Box | Sequence[int] | None = None
    ) -> DisjointRegions | ImplicitRegion:
        """Return every cell that the index points of `selection` touch.

        Parameters
        ----------
        selection : Box, Region or DisjointRegions
            Index points.
        within : Box or shape, optional
            The tensor's box; the image is clipped to it. By default the image's bounding box.

        Returns
        -------
        DisjointRegions
            Where no two output coordinates share an index axis that varies in `selection`.
        ImplicitRegion
            Otherwise: exact too, decided by isl.

        Examples
        --------
        >>> from tapestry_sets import AffineMap, Box, IndexProjection
        >>> difference = IndexProjection(AffineMap(((1, -1),), (0,)), (1,))
        >>> difference.image(Box.of((4, 4))).bounds()
        ((-3,), (4,))
        """
        if within is not None:
            within = affine.as_box(within, Box((), ()))
            affine.same_rank("IndexProjection.image: within", within.rank, self.map.out_rank)
        if isinstance(selection, Box) and self.is_separable and not self._cuts:
            out = [] if selection.is_empty else [self._project_box(selection)]
        else:
            grids = self._column_grids(selection)
            if not grids:
                nowhere = within or Box.of((0,) * self.map.out_rank)
                return DisjointRegions(nowhere.shape, (), nowhere.start)
            if not self.is_separable and self._entangled(grids):
                hull = affine.grid_hull(map(self._project, grids))
                return self._implicit_image(selection, hull, within, self._injective_size(grids))
            out = [self._project(grid) for grid in grids]
        frame = affine.grid_hull(out) if within is None else within
        if frame is None:
            return DisjointRegions((0,) * self.map.out_rank, ())
        regions = ask_one((TooManyPieces,), affine.regions_of, out, frame)
        if regions is OPEN:
            return self._implicit_image(selection, affine.grid_hull(out), frame, _product_size(out))
        return regions

    def images(self, boxes: Iterable[Box], within: Box | Sequence[int]) -> list[DisjointRegions | ImplicitRegion]:
        """Return the image of each of many boxes, as `image` does, but each interval of a coordinate is made once.

        Examples
        --------
        >>> from tapestry_sets import AffineMap, Box, IndexProjection
        >>> window = IndexProjection(AffineMap(((1, 0), (0, 1)), (0, 0)), (3, 1))
        >>> [image.size for image in window.images([Box((h, w), (1, 4)) for h in (0, 1) for w in (0, 4)], (4, 8))]
        [12, 12, 12, 12]
        """
        frame = affine.as_box(within, Box((), ()))
        boxes = as_items(boxes, "IndexProjection.images: boxes", "sequence of boxes")
        for k, box in enumerate(boxes):
            check_type(box, Box, f"IndexProjection.images: boxes[{k}]", affine.BOXES)
        if not self.is_separable or self._cuts or len(frame.shape) != len(self.shape):
            return [self.image(box, frame) for box in boxes]
        rows = list(zip(self.map.offset, self._rows, self.shape, frame.start, frame.stop, strict=True))
        known: list[dict[Any, tuple[int, int] | None]] = [{} for _ in rows]
        found: list[DisjointRegions | ImplicitRegion] = []
        for box in boxes:
            spans: list[tuple[int, int]] = []
            start, shape = box.start, box.shape
            for (offset, terms, width, low, high), spans_of in zip(rows, known, strict=True):
                key = tuple([(start[k], shape[k]) for k, _ in terms])
                if key not in spans_of:
                    solid = None if box.is_empty else as_interval(along_box(offset, terms, width, box))
                    spans_of[key] = None if solid is None else (max(solid[0], low), min(solid[1], high))
                span = spans_of[key]
                if span is None or span[0] >= span[1]:
                    break
                spans.append(span)
            if len(spans) < len(rows) or box.is_empty or self.index_rank not in (-1, len(shape)):
                found.append(self.image(box, frame))
            else:
                found.append(
                    DisjointRegions._of(
                        frame.shape, (Region._spanning(frame.shape, tuple(spans), frame.start),), frame.start
                    )
                )
        return found

    def bounding_box(self, box: Box) -> Box:
        """Return the smallest box around the image of a box.

        Raises
        ------
        ValueError
            If `box` is empty: its image has no bounds.
        """
        if check_type(box, Box, "IndexProjection.bounding_box: box", affine.BOXES).is_empty:
            raise ValueError(f"IndexProjection.bounding_box: {quote(box)} is empty, so its image has no bounds")
        if any(cut.is_extra for cut in self._cuts):
            return self._bounding_box_of_splits(box)
        if not self._cuts:
            return self._bounds_along_rows(box)
        hull = affine.grid_hull(map(self._project, self._column_grids(box)))
        assert hull is not None, "a box that is not empty has an image"
        return hull

    def _bounds_along_rows(self, box: Box) -> Box:
        """The bounding box of a projection without splits: each coordinate is least and greatest at corners."""
        if self.index_rank >= 0:
            affine.same_rank("IndexProjection: index selection", box.rank, self.index_rank)
        start, shape = [], []
        for low, terms, width in zip(self.map.offset, self._rows, self.shape, strict=True):
            for k, c in terms:
                n = box.shape[k] - 1
                low += c * (box.start[k] if c > 0 else box.start[k] + n)
                width += abs(c) * n
            start.append(low)
            shape.append(width)
        return Box(tuple(start), tuple(shape))

    def _bounding_box_of_splits(self, box: Box) -> Box:
        """The bounding box where one axis is split twice: its parts are not independent, so isl or a list decides."""
        bounds = self.image(box).bounds()
        assert bounds is not None, "a box that is not empty has an image"
        return Box.from_bounds(*bounds)

    def shared(
        self, one: Box, other: Box, within: Box | Sequence[int] | None = None
    ) -> DisjointRegions | ImplicitRegion:
        """Return the cells that both index boxes touch: none where one of them is empty.

        Examples
        --------
        >>> from tapestry_sets import AffineMap, Box, IndexProjection
        >>> window = IndexProjection(AffineMap(((1,),), (0,)), (3,))
        >>> window.shared(Box((0,), (4,)), Box((4,), (4,))).bounds()
        ((4,), (6,))
        >>> window.shared(Box((0,), (4,)), Box((4,), (0,))).is_empty
        True
        """
        for what, box in (("one", one), ("other", other)):
            check_type(box, Box, f"IndexProjection.shared: {what}", affine.BOXES)
        around = [self.bounding_box(box) for box in (one, other) if not box.is_empty]
        if len(around) < 2:
            for what, box in (("one", one), ("other", other)):
                if self.index_rank >= 0:
                    affine.same_rank(f"IndexProjection.shared: {what}", box.rank, self.index_rank)
            nowhere = affine.as_box(within, around[0] if around else Box.of((0,) * self.map.out_rank))
            return DisjointRegions(nowhere.shape, (), nowhere.start)
        frame = affine.as_box(within, around[0].hull(around[1]))
        a, b = self.image(one, frame), self.image(other, frame)
        if isinstance(a, DisjointRegions):
            return a & b if isinstance(b, DisjointRegions) else b & a
        return a & b

    def _column_grids(self, selection: Box | Region | DisjointRegions) -> list[Grid]:
        grids = affine.grids_of(selection)
        if self.index_rank >= 0 and grids:
            affine.same_rank("IndexProjection: index selection", len(grids[0]), self.index_rank)
        for cut in self._cuts:
            grids = [grid + columns for grid in grids for columns in cut.columns(grid[cut.axis])]
        return grids

    def _project_box(self, box: Box) -> Grid:
        """The image of a box, which is not empty, by a projection without splits."""
        if self.index_rank >= 0:
            affine.same_rank("IndexProjection: index selection", box.rank, self.index_rank)
        return tuple(
            along_box(b, terms, w, box) for b, terms, w in zip(self.map.offset, self._rows, self.shape, strict=True)
        )

    def _project(self, grid: Grid) -> Grid:
        return tuple(
            combine(b, [(c, grid[k]) for k, c in terms], w)
            for b, terms, w in zip(self.map.offset, self._rows, self.shape, strict=True)
        )

    def _entangled(self, grids: list[Grid]) -> bool:
        """Whether two coordinates depend on one column that varies."""
        if any(cut.is_extra for cut in self._cuts):
            return True
        for grid in grids:
            varying = [k for terms in self._rows for k, _ in terms if grid[k][1]]
            if len(varying) != len(set(varying)):
                return True
        return False

    def _implicit_image(
        self, selection: Box | Region | DisjointRegions, hull: Box | None, within: Box | None, size: int | None
    ) -> ImplicitRegion:
        """The image by its constraints; `size` is that of the whole image, where known."""
        assert hull is not None, "an empty selection has an explicit image"
        frame = within or hull
        image = affine.isl_of(selection).apply(isl.to_isl(self)).intersect(isl.box_set(frame.start, frame.stop))
        points = self._listed_image(selection, hull, frame)
        return ImplicitRegion(frame.start, frame.shape, str(image), size if frame.contains(hull) else None, points)

    def _listed_image(self, selection: Box | Region | DisjointRegions, hull: Box, frame: Box) -> Int64Array | None:
        """The image's points in row-major order, None where they are too many to list or exceed 64 bits."""
        far = max(map(abs, (*hull.start, *hull.stop, *frame.start, *frame.stop)), default=0)
        is_far = far * (1 + len(self.shape)) >= 2**62 or hull.size >= 2**62
        if is_far or selection.size * prod(self.shape) > tuning.MAX_LISTED:
            return None
        starts = np.array([self(point).start for point in _points_of(selection)], np.int64)
        inner = np.indices(self.shape, np.int64).reshape(len(self.shape), prod(self.shape)).T
        cells = (starts[:, None, :] + inner).reshape(-1, len(self.shape))
        held = (cells >= frame.start).all(axis=1) & (cells < frame.stop).all(axis=1)
        numbers = np.zeros(len(cells), np.int64) + number_of((cells - hull.start).T, hull.shape)
        _, first = np.unique(numbers[held], return_index=True)
        return cells[held][first]

    def _injective_size(self, grids: list[Grid]) -> int | None:
        """The image's size if every index point and every offset in the block gives a cell of its own."""
        if len(grids) != 1 or self._cuts:
            return None
        grid = grids[0]
        varying = sorted({k for terms in self._rows for k, _ in terms if grid[k][1]})
        wide = [k for k, n in enumerate(self.shape) if n > 1]
        columns = [[row[k] for row in self.map.matrix] for k in varying]
        columns += [[int(k == j) for j in range(self.map.out_rank)] for k in wide]
        if affine.matrix_rank(columns) < len(columns):
            return None
        return prod(prod(n for n, _ in grid[k][1]) for k in varying) * prod(self.shape)

    # -- the other way, and chains --------------------------------------------------------------------

    def preimage(
        self, region: Box | Region | DisjointRegions, index: Box | Sequence[int]
    ) -> DisjointRegions | ImplicitRegion:
        """Return the index points of the box `index` whose block meets `region`.

        Returns
        -------
        DisjointRegions
            Where each coordinate that restricts the index depends on one index axis only.
        ImplicitRegion
            Otherwise: exact too, decided by isl.

        Examples
        --------
        >>> from tapestry_sets import AffineMap, Box, IndexProjection
        >>> rows = IndexProjection(AffineMap(((2,),), (-1,)), (3,))
        >>> rows.preimage(Box((4,), (2,)), (8,)).bounds()
        ((2,), (4,))
        """
        space = affine.as_box(index, Box((), ()), "index")
        if self.index_rank >= 0:
            affine.same_rank("IndexProjection.preimage: index box", space.rank, self.index_rank)
        if space.is_empty:
            return DisjointRegions(space.shape, (), space.start)
        parts: list[Sequence[Region]] = []
        for target in affine.grids_of(region, "region"):
            affine.same_rank("IndexProjection.preimage: region", len(target), self.map.out_rank)
            part = self._preimage_of_grid(target, space)
            if part is None:
                points = isl.to_isl(self).reverse()
                found = affine.isl_of(region).apply(points).intersect(isl.box_set(space.start, space.stop))
                return ImplicitRegion(space.start, space.shape, str(found))
            parts.append(part.regions)
        return unite(space.shape, parts, space.start)

    def _preimage_of_grid(self, target: Grid, space: Box) -> DisjointRegions | None:
        """The index points whose block meets a grid, None where that is not a product of the axes."""
        # One coordinate at a time, the block [b + Σ c·x, … + w) against the goal, whose elements are ●:
        #
        #     goal           ● ● ● ●                 what this says of the index
        #     blocks           [──]                  all lie in a goal without gaps: nothing
        #     blocks   [──]                          none can reach it: no point at all
        #     blocks        [──]→ [──]→              one column moves them: its values, by solving one equation
        #     blocks        [──]↗ [──]→              several do: None, as what fits is not a product of axes
        found = DisjointRegions(space.shape, (space.to_region(),), space.start)
        domain = affine.grid_of(space)
        for terms, b, w, goal in zip(self.map.terms(), self.map.offset, self.shape, target, strict=True):
            columns = [(self._domain_of(k, domain), c) for k, c in terms]
            whole = combine(b, [(c, p) for p, c in columns], w)
            solid = as_interval(goal)
            if solid is not None and solid[0] <= whole[0] and whole[0] + reach(whole[1]) < solid[1]:
                continue
            if whole[0] + reach(whole[1]) < goal[0] or goal[0] + reach(goal[1]) < whole[0]:
                return DisjointRegions(space.shape, (), space.start)
            varying = [(k, c, p) for (k, c), (p, _) in zip(terms, columns, strict=True) if p[1]]
            if len(varying) > 1:
                return None
            constant = b + sum(c * p[0] for p, c in columns if not p[1])
            if not varying:
                if not meets(goal, interval(constant, constant + w)):
                    return DisjointRegions(space.shape, (), space.start)
                continue
            k, c, p = varying[0]
            values = [self._axis_values(k, v, domain) for v in solve(goal, c, constant, w, p)]
            axis = k if k < self.index_rank else self.splits[(k - self.index_rank) // 2][0]
            found = found & affine.regions_of([(*domain[:axis], v, *domain[axis + 1 :]) for v in values], space)
        return found

    def _domain_of(self, column: int, domain: Grid) -> Progression:
        """The values of one column over an index box (a hull of the remainders where they wrap)."""
        # A split axis has two columns, here for q = 4 and a box from 6 to 13:
        #
        #     x         6 7 | 8 9 10 11 | 12        quotients 1 … 3
        #     x % 4     2 3 | 0 1  2  3 |  0        remainders wrap, so 0 … 3; in one block they would be an interval
        if column < self.index_rank:
            return domain[column]
        a, q = self.splits[(column - self.index_rank) // 2]
        start, stop = bounds_of(domain[a])
        if (column - self.index_rank) % 2 == 0:
            return interval(start // q, (stop - 1) // q + 1)
        if start // q == (stop - 1) // q:
            return interval(start % q, (stop - 1) % q + 1)
        return interval(0, q)

    def _axis_values(self, column: int, values: Progression, domain: Grid) -> Progression:
        """The index values whose column takes one of `values`."""
        if column < self.index_rank:
            return values
        a, q = self.splits[(column - self.index_rank) // 2]
        start, stop = bounds_of(domain[a])
        if (column - self.index_rank) % 2 == 0:
            return combine(0, [(q, values)], q)
        return combine(0, [(q, interval(start // q, (stop - 1) // q + 1)), (1, values)])

    def then(self, other: IndexProjection) -> IndexProjection:
        """Return the projection from an index point to all cells that `other` touches from its block.

        Raises
        ------
        ValueError
            If those cells are not a box, or `other` has splits.

        Examples
        --------
        >>> from tapestry_sets import AffineMap, IndexProjection
        >>> window = IndexProjection(AffineMap(((1,),), (0,)), (3,))
        >>> window.then(window)
        IndexProjection(map=AffineMap(matrix=((1,),), offset=(0,), in_rank=1), shape=(5,), splits=())
        """
        if check_type(other, IndexProjection, "IndexProjection.then: other").splits:
            raise ValueError(f"IndexProjection.then: the second projection has splits {quote(other.splits)}")
        block = other.image(Box((0,) * len(self.shape), self.shape))
        bounds = other.bounding_box(Box((0,) * len(self.shape), self.shape))
        if block.size != bounds.size:
            raise ValueError(
                f"IndexProjection.then: the image of a block of shape {quote(self.shape)} has {block.size} cells in a "
                f"bounding box of {bounds.size}; only boxes can be chained"
            )
        moved = AffineMap(other.map.matrix, bounds.start, other.map.in_rank)
        return IndexProjection(self.map.then(moved), bounds.shape, self.splits)


def _checked_splits(splits: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Splits as pairs of integers."""
    found = []
    for k, split in enumerate(as_items(splits, "IndexProjection: splits", "sequence of (axis, divisor)")):
        pair = as_ints(split, f"IndexProjection: splits[{k}]")
        if len(pair) != 2:
            raise ValueError(f"IndexProjection: splits[{k}] must be (axis, divisor), not {quote(pair)}")
        found.append((pair[0], pair[1]))
    return tuple(found)


def _points_of(selection: Box | Region | DisjointRegions) -> Iterable[tuple[int, ...]]:
    return selection.points() if isinstance(selection, Box) else map(tuple, selection.points().tolist())


def _product_size(grids: list[Grid]) -> int | None:
    """The number of points of a single grid, None if unknown."""
    if len(grids) != 1:
        return None
    counts = [count_distinct(p) for p in grids[0]]
    return None if None in counts else prod(n for n in counts if n is not None)


def _first_multiples(divisors: list[int]) -> set[int]:
    """For each set of divisors that some number above 0 has, and has alone, the first such number."""
    firsts = {1}
    for q in divisors:
        firsts |= {lcm(one, q) for one in firsts}
    return firsts
