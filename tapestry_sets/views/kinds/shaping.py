"""Kinds that give all cells of one source another shape or order, or repeat them: reshapes, permutations, pads."""

from __future__ import annotations

from itertools import groupby, product
from math import prod

from msgspec import Struct

from tapestry_sets.digits import Levels, Strided, flip_axis, renumber
from tapestry_sets.limits import check_pieces, quote
from tapestry_sets.regions import AffineMap, Region
from tapestry_sets.views.kinds import kind
from tapestry_sets.views.kinds.axis_maps import (
    AxisMap,
    AxisMaps,
    Clamped,
    Folded,
    InBlocks,
    Inside,
    as_it_is,
    put_map,
    regroup,
)
from tapestry_sets.views.kinds.kind import AxisRow, OneMap, PadMode, Shapes
from tapestry_sets.views.pieces.maps import IndexMap, Relinearize, Shape, Step, is_identity, put_extents
from tapestry_sets.views.pieces.piece import Guard, Piece, identity_piece


class ExpandDims(OneMap, Struct, frozen=True):
    """New axes of extent 1 at the given positions of the result.

    References
    ----------
    NumPy expand_dims and newaxis; ONNX Unsqueeze.
    """

    axes: tuple[int, ...]
    reads_all = True

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = kind.only_shape(shapes, "expand_dims")
        rank = len(shape) + len(self.axes)
        new = kind.axes_of(self.axes, rank, "expand_dims")
        old = iter(shape)
        return tuple(1 if axis in new else next(old) for axis in range(rank))

    def rows(self, shape: Shape) -> list[AxisRow]:
        rank = len(shape) + len(self.axes)
        new = kind.axes_of(self.axes, rank, "expand_dims")
        return [(0, (axis, 1)) for axis in range(rank) if axis not in new]

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        axes = list(source[1])
        for axis in sorted(kind.axes_of(self.axes, len(axes) + len(self.axes), "expand_dims")):
            axes.insert(axis, ((1, 0),))
        return source[0], tuple(axes)


class Squeeze(OneMap, Struct, frozen=True):
    """Drop axes of extent 1: the given ones, or all.

    References
    ----------
    NumPy squeeze; ONNX Squeeze.
    """

    axes: tuple[int, ...] | None = None
    reads_all = True

    def _gone(self, shape: Shape) -> Shape:
        if self.axes is None:
            return tuple(axis for axis, n in enumerate(shape) if n == 1)
        gone = kind.axes_of(self.axes, len(shape), "squeeze")
        for axis in gone:
            if shape[axis] != 1:
                raise ValueError(
                    f"squeeze: axis {axis} of shape {quote(shape)} has extent {quote(shape[axis])}; only extent 1 can "
                    "be dropped"
                )
        return gone

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = kind.only_shape(shapes, "squeeze")
        gone = self._gone(shape)
        return tuple(n for axis, n in enumerate(shape) if axis not in gone)

    def rows(self, shape: Shape) -> list[AxisRow]:
        return kind.kept_rows(len(shape), self._gone(shape))


class PermuteDims(OneMap, Struct, frozen=True):
    """Axis k of the view is axis axes[k] of the source.

    References
    ----------
    NumPy transpose, Array API permute_dims; ONNX Transpose; poprithms dimShuffle.
    """

    axes: tuple[int, ...]
    reads_all = True

    def _order(self, shape: Shape) -> Shape:
        axes = kind.axes_of(self.axes, len(shape), "permute_dims")
        if len(axes) != len(shape):
            raise ValueError(
                f"permute_dims: axes {quote(self.axes)} are {len(axes)} for shape {quote(shape)}; name each axis once"
            )
        return axes

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = kind.only_shape(shapes, "permute_dims")
        return tuple(shape[a] for a in self._order(shape))

    def rows(self, shape: Shape) -> list[AxisRow]:
        order = self._order(shape)
        return [(0, (order.index(axis), 1)) for axis in range(len(shape))]

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        return source[0], tuple([source[1][a] for a in self.axes])  # `out_shape` has checked them


class Flip(OneMap, Struct, frozen=True):
    """Reverse the given axes.

    References
    ----------
    NumPy flip; poprithms reverse.
    """

    axes: tuple[int, ...]
    reads_all = True

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = kind.only_shape(shapes, "flip")
        kind.axes_of(self.axes, len(shape), "flip")
        return shape

    def rows(self, shape: Shape) -> list[AxisRow]:
        axes = kind.axes_of(self.axes, len(shape), "flip")
        return [(n - 1, (axis, -1)) if axis in axes else (0, (axis, 1)) for axis, n in enumerate(shape)]

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        offset, out = source[0], list(source[1])
        for axis in self.axes:  # which `out_shape` has checked
            more, out[axis] = flip_axis(out[axis])
            offset += more
        return offset, tuple(out)


class Reshape(Struct, frozen=True):
    """The same cells in row-major order under another shape; one extent may be -1. Never a copy.

    References
    ----------
    NumPy reshape; ONNX Reshape; Tapestry's document on nested striding.
    """

    shape: tuple[int, ...]
    reads_all = True

    def out_shape(self, shapes: Shapes) -> Shape:
        old = kind.only_shape(shapes, "reshape")
        size = prod(old)
        if prod(self.shape) == size and (not self.shape or min(self.shape) >= 0):
            return self.shape
        known = prod(n for n in self.shape if n != -1)
        free = self.shape.count(-1)
        if free > 1 or any(n < -1 for n in self.shape):
            raise ValueError(f"reshape: shape {quote(self.shape)} may hold one -1, and otherwise extents >= 0")
        if free and known and size % known == 0:
            return tuple(size // known if n == -1 else n for n in self.shape)
        if free or known != size:
            count = "a multiple of " if free else ""
            raise ValueError(
                f"reshape: cannot view shape {old} [{size} elements] as {quote(self.shape)} [{count}{known}]"
            )
        return self.shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        new = self.out_shape(shapes)
        return (kind.one_piece([Relinearize._of(new, shapes[0])]),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided | None:
        shape = self.out_shape(shapes) if -1 in self.shape else self.shape
        axes = renumber(source[1], shape)
        return None if axes is None else (source[0], axes)

    def by_axis(self, shapes: Shapes) -> tuple[AxisMaps]:
        return (regroup(shapes[0], self.out_shape(shapes)),)


class Broadcast(OneMap, Struct, frozen=True):
    """Axes of extent 1, and new leading axes, repeated to a shape.

    References
    ----------
    NumPy broadcast_to; ONNX Expand.
    """

    shape: tuple[int, ...]
    reads_all = True

    def out_shape(self, shapes: Shapes) -> Shape:
        old = kind.only_shape(shapes, "broadcast_to")
        extra = len(self.shape) - len(old)
        if any(n < 0 for n in self.shape):
            raise ValueError(f"broadcast_to: extents of shape {quote(self.shape)} must be >= 0")
        if extra < 0 or any(n not in (1, m) for n, m in zip(old, self.shape[max(extra, 0) :], strict=False)):
            raise ValueError(
                f"broadcast_to: shape {quote(old)} cannot become {quote(self.shape)}; aligned at the right, each "
                "extent must stay or be 1"
            )
        return self.shape

    def rows(self, shape: Shape) -> list[AxisRow]:
        both = enumerate(shape, len(self.shape) - len(shape))
        return [(0,) if n == 1 and self.shape[axis] != 1 else (0, (axis, 1)) for axis, n in both]

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        extra = len(self.shape) - len(shapes[0])
        both = enumerate(zip(source[1], shapes[0], strict=True), extra)
        kept = [levels if n == self.shape[axis] else ((self.shape[axis], 0),) for axis, (levels, n) in both]
        return source[0], (*[((n, 0),) for n in self.shape[:extra]], *kept)


class Pad(Struct, frozen=True):
    """Cells around the source: constants, or cells of the source itself.

    Parameters
    ----------
    widths : tuple of (before, after)
        One pair for each axis, >= 0.
    mode : str
        "constant", "edge", "reflect", "symmetric" or "wrap".
    value : float, or tuple of (before, after)
        For mode "constant": one value, or a pair for each axis. A corner has the value of its last axis.

    References
    ----------
    NumPy pad; ONNX Pad.
    """

    widths: tuple[tuple[int, int], ...]
    mode: PadMode = "constant"
    value: float | tuple[tuple[float, float], ...] = 0
    reads_all = True

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = kind.only_shape(shapes, "pad")
        if self.mode not in ("constant", "edge", "reflect", "symmetric", "wrap"):
            raise ValueError(
                f"pad: mode {quote(self.mode)} must be constant, edge, reflect, symmetric or wrap; others make new "
                "values"
            )
        if len(self.widths) != len(shape):
            raise ValueError(
                f"pad: {len(self.widths)} widths for shape {quote(shape)}; give (before, after) for each axis"
            )
        if isinstance(self.value, tuple) and len(self.value) != len(shape):
            raise ValueError(f"pad: {len(self.value)} pairs of values for shape {quote(shape)}; give one for each axis")
        for axis, (before, after) in enumerate(self.widths):
            if before < 0 or after < 0:
                raise ValueError(f"pad: widths {before, after} of axis {axis} must be >= 0")
            if self.mode != "constant" and before + after and not shape[axis]:
                raise ValueError(
                    f"pad: axis {axis} of shape {quote(shape)} is empty; only mode 'constant' can extend it"
                )
        return tuple(n + before + after for n, (before, after) in zip(shape, self.widths, strict=True))

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape, out = shapes[0], self.out_shape(shapes)
        if self.mode == "constant":
            return self._constant_pieces(shape, out)
        around = [self._turns(n, w) for n, w in zip(shape, self.widths, strict=True) if n > 1 and self.mode != "edge"]
        most = prod([k.stop - k.start for k in around])
        check_pieces(most, f"pad, mode {self.mode}", "questions about its cells need none")
        pieces = []
        for choice in product(*(self._segments(n, w) for n, w in zip(shape, self.widths, strict=True))):
            region = Region.from_bounds(out, [s[0] for s in choice], [s[1] for s in choice])
            terms = [(axis, s[2]) if s[2] else None for axis, s in enumerate(choice)]
            m = AffineMap.select(len(shape), terms, [s[3] for s in choice])
            pieces.append(kind.one_piece([m], 0, Guard(0, region)))
        return tuple(pieces)

    def by_axis(self, shapes: Shapes) -> tuple[AxisMaps]:
        each = enumerate(zip(shapes[0], self.widths, strict=True))
        return (tuple([self._axis_map(axis, n, *w) for axis, (n, w) in each]),)

    def _axis_map(self, axis: int, n: int, before: int, after: int) -> AxisMap:
        if not before + after:
            return as_it_is(axis)
        if self.mode == "constant":
            return Inside((axis,), before, n)
        if self.mode == "edge" or (self.mode == "reflect" and n == 1):
            return Clamped((axis,), before, n)
        return Folded((axis,), before, n, n - (self.mode == "reflect"), self.mode != "wrap")

    def _constant_pieces(self, shape: Shape, out: Shape) -> tuple[Piece, ...]:
        """The source, then for each axis the cells before and after it that no later axis takes."""
        low = [before for before, _ in self.widths]
        high = [before + n for n, (before, _) in zip(shape, self.widths, strict=True)]
        m = AffineMap.select(len(shape), [(a, 1) for a in range(len(shape))], [-b for b in low])
        pieces = [kind.one_piece([m], 0, Guard(0, Region.from_bounds(out, low, high)))]
        nowhere = IndexMap((AffineMap((), (), len(shape)),))
        values = self.value if isinstance(self.value, tuple) else ((self.value, self.value),) * len(shape)
        for axis, n in enumerate(out):
            for start, stop, value in ((0, low[axis], values[axis][0]), (high[axis], n, values[axis][1])):
                a = [*(0,) * axis, start, *low[axis + 1 :]]
                b = [*out[:axis], stop, *high[axis + 1 :]]
                if all(x < y for x, y in zip(a, b, strict=True)):
                    pieces.append(Piece(-1, (Guard(0, Region.from_bounds(out, a, b)),), nowhere, value))
        return tuple(pieces)

    def _turns(self, n: int, widths: tuple[int, int]) -> range:
        """How often the view runs through the source, or back: the run in place has the number 0."""
        turn = n - (self.mode == "reflect")
        return range(-widths[0] // turn, (n + widths[1] - 1) // turn + 1)

    def _segments(self, n: int, widths: tuple[int, int]) -> list[tuple[int, int, int, int]]:
        """(start, stop, coefficient, offset): where the view runs through the source in one direction."""
        before, after = widths
        end = before + n + after
        if not end:
            return []
        if self.mode == "edge" or (self.mode == "reflect" and n == 1):
            parts = [(0, before, 0, 0), (before, before + n, 1, -before), (before + n, end, 0, n - 1)]
            return [p for p in parts if p[0] < p[1]]
        turn, segments = n - (self.mode == "reflect"), []
        for k in self._turns(n, widths):
            start, stop = max(0, before + k * turn), min(end, before + (k + 1) * turn)
            if self.mode == "wrap" or k % 2 == 0:
                segments.append((start, stop, 1, -before - k * turn))
            else:  # backwards, from the far end of the source
                segments.append((start, stop, -1, before + k * turn + (n - 1)))
        return segments


class Repeat(Struct, frozen=True):
    """Each cell along an axis `count` times in a row.

    References
    ----------
    NumPy repeat; ONNX Resize, nearest and integer scales.
    """

    count: int
    axis: int
    reads_all = True

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = kind.only_shape(shapes, "repeat")
        axis = kind.axis_of(self.axis, len(shape), "repeat")
        if self.count < 0:
            raise ValueError(f"repeat: count {self.count} must be >= 0")
        return put_extents(shape, axis, shape[axis] * self.count)

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape, out = shapes[0], self.out_shape(shapes)
        axis = kind.axis_of(self.axis, len(shape), "repeat")
        split = Relinearize(out, put_extents(shape, axis, shape[axis], self.count))
        return (kind.one_piece([split, kind.drop_axis(len(shape) + 1, axis + 1)]),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        axes, axis = list(source[1]), kind.axis_of(self.axis, len(shapes[0]), "repeat")
        if self.count > 1:
            axes[axis] = (*axes[axis], (self.count, 0)) if shapes[0][axis] > 1 else ((self.count, 0),)
        return source[0], tuple(axes)

    def by_axis(self, shapes: Shapes) -> tuple[AxisMaps]:
        axis = kind.axis_of(self.axis, len(shapes[0]), "repeat")
        return (put_map(len(shapes[0]), axis, InBlocks((axis,), self.count)),)


class Tile(Struct, frozen=True):
    """The whole source `reps[k]` times along axis k; missing leading reps are 1.

    References
    ----------
    NumPy tile; ONNX Tile.
    """

    reps: tuple[int, ...]
    reads_all = True

    def _plan(self, shape: Shape) -> tuple[Shape, Shape]:
        """Source shape and reps, of equal rank."""
        rank = max(len(shape), len(self.reps))
        if any(r < 0 for r in self.reps):
            raise ValueError(f"tile: reps {quote(self.reps)} must be >= 0")
        return (1,) * (rank - len(shape)) + shape, (1,) * (rank - len(self.reps)) + self.reps

    def out_shape(self, shapes: Shapes) -> Shape:
        shape, reps = self._plan(kind.only_shape(shapes, "tile"))
        return tuple(n * r for n, r in zip(shape, reps, strict=True))

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape, reps = self._plan(shapes[0])
        split = tuple(n for pair in zip(reps, shape, strict=True) for n in pair)
        new = len(shape) - len(shapes[0])
        kept: list[tuple[int, int] | None] = [(2 * a + 1, 1) for a in range(new, len(shape))]
        steps: list[Step] = [Relinearize(self.out_shape(shapes), split), AffineMap.select(len(split), kept)]
        return (kind.one_piece(steps),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        shape, reps = self._plan(shapes[0])
        old: tuple[Levels, ...] = (((1, 0),),) * (len(shape) - len(shapes[0])) + source[1]
        axes = [((r, 0), *levels) if r > 1 else levels for levels, r in zip(old, reps, strict=True)]
        return source[0], tuple([a[:1] if n == 1 else a for a, n in zip(axes, shape, strict=True)])

    def by_axis(self, shapes: Shapes) -> tuple[AxisMaps]:
        (shape,) = shapes
        new = len(self._plan(shape)[0]) - len(shape)
        return (tuple([Folded((new + axis,), 0, n, n) for axis, n in enumerate(shape)]),)


class Roll(Struct, frozen=True):
    """Cells moved by `shift` along an axis, around its end.

    References
    ----------
    NumPy roll.
    """

    shift: int
    axis: int
    reads_all = True

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = kind.only_shape(shapes, "roll")
        kind.axis_of(self.axis, len(shape), "roll")
        return shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape = shapes[0]
        axis = kind.axis_of(self.axis, len(shape), "roll")
        n = shape[axis]
        k = self.shift % n if n else 0
        if not k:
            return (identity_piece(len(shape)),)
        parts = ((0, k, n - k), (k, n, -k))
        moved = ((kind.move_axis(len(shape), axis, by), kind.band(shape, axis, a, b)) for a, b, by in parts)
        return tuple(kind.one_piece([step], 0, guard) for step, guard in moved)

    def by_axis(self, shapes: Shapes) -> tuple[AxisMaps]:
        (shape,) = shapes
        axis = kind.axis_of(self.axis, len(shape), "roll")
        n = shape[axis]
        return (put_map(len(shape), axis, Folded((axis,), self.shift % n, n, n)),)


class Swizzle(Struct, frozen=True):
    """Some bits of a cell's row-major number flipped by others: index x reads cell x ^ (x's bits in the mask, moved).

    Parameters
    ----------
    bits : int
        How many bits flip as many others.
    base : int
        The lowest bits that neither flip nor are flipped: neighbors that stay neighbors.
    shift : int
        How far above the flipped bits those are that flip them, or below, where it is negative; at least `bits`.

    Examples
    --------
    >>> pieces = Swizzle(2, 0, 2).pieces(((4, 4),))  # column ^ row
    >>> [pieces[3].map.apply((3, column)) for column in range(4)]
    [(3, 3), (3, 2), (3, 1), (3, 0)]

    References
    ----------
    CUTLASS, CuTe: ``Swizzle<BBits, MBase, SShift>``.
    """

    bits: int
    base: int
    shift: int
    reads_all = True

    @property
    def flipped(self) -> int:
        """The lowest of the bits that are flipped."""
        return self.base + max(0, -self.shift)

    @property
    def flipping(self) -> int:
        """The lowest of the bits that flip them."""
        return self.base + max(0, self.shift)

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = kind.only_shape(shapes, "swizzle")
        if min(self.bits, self.base) < 0:
            raise ValueError(f"swizzle: bits {self.bits} and base {self.base} must be >= 0")
        if abs(self.shift) < self.bits:
            raise ValueError(
                f"swizzle: a shift of {self.shift} for {self.bits} bits would flip bits by themselves; it must be "
                f">= {self.bits}, or <= -{self.bits}"
            )
        whole, size = self.flipped + self.bits if self.bits else 0, prod(shape)
        if size and (whole >= size.bit_length() or size & (1 << whole) - 1):
            raise ValueError(
                f"swizzle: shape {quote(shape)} has {size} cells, not a multiple of 2**{whole}: bits {self.flipped} to "
                f"{whole - 1} are flipped, and every number must stay inside; pad to whole tiles first"
            )
        return shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        # the bits that flip, here 01, are fixed in each piece; then each flipped bit is an axis as it is, or backwards
        #
        #     number     outer | 0 1 | between | z1 z0 | base          piece 01
        #     reads      outer | 0 1 | between | z1 1-z0 | base        neighbors that flip alike are one axis: z1 | z0
        shape = self.out_shape(shapes)
        if 0 in shape:
            return ()
        most = min(1 << self.bits, -(-prod(shape) >> self.flipping) if self.shift > 0 else 1 << self.bits)
        check_pieces(most, f"swizzle of {self.bits} bits", "take fewer bits, or a part of the view")
        return tuple([self._piece(shape, pattern) for pattern in range(most)])

    def _piece(self, shape: Shape, pattern: int) -> Piece:
        """The piece for one value of the bits that flip."""
        runs, free = self._runs(pattern), (1 << self.bits, False)
        between = (1 << abs(self.shift) - self.bits, False)
        below = [free, between, *runs] if self.shift > 0 else [*runs, between, free]
        below.append((1 << min(self.flipped, self.flipping), False))
        inner, size = prod([n for n, _ in below]), prod(shape)
        digits = [(-(-size // inner), False), *below]
        extents = tuple([n for n, _ in digits])
        if size % inner:  # the last block is not whole
            flat, padded = (size,), (prod(extents),)
            to = [Relinearize._of(shape, flat), Relinearize._of(padded, extents)]
            back = [Relinearize._of(extents, padded), Relinearize._of(flat, shape)]
        else:
            to, back = [Relinearize._of(shape, extents)], [Relinearize._of(extents, shape)]
        to = [step for step in to if not is_identity(step)]
        guard = kind.band(extents, 1 if self.shift > 0 else len(digits) - 2, pattern, pattern + 1, len(to))
        turned = [(k, -1 if flips else 1) for k, (_, flips) in enumerate(digits)]
        flip = AffineMap.select(len(digits), turned, [n - 1 if flips else 0 for n, flips in digits])
        steps: list[Step] = [*to, flip, *back]
        return Piece(0, (guard,), IndexMap._of(tuple([s for s in steps if not is_identity(s)]), steps[0].in_rank))

    def _runs(self, pattern: int) -> list[tuple[int, bool]]:
        """The flipped bits, highest first, as axes: an extent for neighbors that flip alike, and whether they do."""
        each = [bool(pattern >> k & 1) for k in reversed(range(self.bits))]
        return [(1 << len(list(alike)), flips) for flips, alike in groupby(each)]


class Triangle(Struct, frozen=True):
    """Cells on one side of a diagonal of the last two axes, that with x[-1] - x[-2] = k among them; else a constant.

    Parameters
    ----------
    k : int
    upper : bool
        Whether the cells above the diagonal are kept, not those below.
    value : float
        What is read elsewhere.

    References
    ----------
    NumPy tril and triu; ONNX Trilu.
    """

    k: int = 0
    upper: bool = False
    value: float = 0

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = kind.only_shape(shapes, "triangle")
        if len(shape) < 2:
            raise ValueError(f"tril, triu: shape {quote(shape)} has rank {len(shape)}; a triangle needs 2 axes or more")
        return shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        # a map puts x[-1] - x[-2] behind the coordinates, a guard holds it to one side, and it is dropped again
        shape = self.out_shape(shapes)
        rank, (n, m) = len(shape), shape[-2:]
        cut = min(max(self.k if self.upper else self.k + 1, 1 - n), m)  # the first that is above
        every = [tuple([int(a == b) for b in range(rank)]) for a in range(rank)]
        apart = AffineMap._of((*every, (*(0,) * (rank - 2), -1, 1)), (0,) * (rank + 1), rank)
        keep = AffineMap.select(rank + 1, [(a, 1) for a in range(rank)])
        nowhere = AffineMap._of((), (), rank + 1)
        found = []
        for low, high, is_kept in ((1 - n, cut, not self.upper), (cut, m, self.upper)):
            if low == 1 - n and high == m:
                return (
                    identity_piece(rank)
                    if is_kept
                    else Piece(-1, (), IndexMap((AffineMap((), (), rank),)), self.value),
                )
            if low < high:
                box, start = (*shape, n + m - 1), (*(0,) * rank, 1 - n)
                side = Region.from_bounds(box, (*(0,) * rank, low), (*shape, high), start)
                chain = IndexMap._of((apart, keep if is_kept else nowhere), rank)
                found.append(Piece(0 if is_kept else -1, (Guard(1, side),), chain, None if is_kept else self.value))
        return tuple(found)
