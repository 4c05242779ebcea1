"""Kinds that make one view of several sources: concatenations, interleavings, regions filled, pieces as given."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import force_setattr

from tapestry_sets.digits import Levels, Strided, join_digits, join_runs
from tapestry_sets.limits import OPEN, Open, as_ints, quote
from tapestry_sets.regions import Region
from tapestry_sets.views.kinds import kind
from tapestry_sets.views.kinds.axis_maps import AxisMaps, Inside, Picked, as_it_is, put_map
from tapestry_sets.views.kinds.kind import Shapes
from tapestry_sets.views.pieces import numbering
from tapestry_sets.views.pieces.maps import Relinearize, Shape, Step, put_extents
from tapestry_sets.views.pieces.partition import check_regions, check_view
from tapestry_sets.views.pieces.piece import Piece


class Concat(Struct, frozen=True):
    """Sources one after the other along an axis.

    References
    ----------
    NumPy concatenate; ONNX Concat.
    """

    axis: int = 0
    reads_all = True

    def out_shape(self, shapes: Shapes) -> Shape:
        return _join_extents(shapes, self.axis, "concatenate")[1]

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        axis, out = _join_extents(shapes, self.axis, "concatenate")
        pieces, start = [], 0
        for source, shape in enumerate(shapes):
            stop = start + shape[axis]
            if start < stop:
                guard = kind.band(out, axis, start, stop)
                pieces.append(kind.one_piece([kind.move_axis(len(out), axis, -start)], source, guard))
            start = stop
        return tuple(pieces)

    def by_axis(self, shapes: Shapes) -> tuple[AxisMaps, ...]:
        axis, starts = kind.axis_of(self.axis, len(shapes[0]), "concatenate"), [0]
        for shape in shapes:
            starts.append(starts[-1] + shape[axis])
        each = zip(shapes, starts, strict=False)
        return tuple([put_map(len(shape), axis, Inside((axis,), at, shape[axis])) for shape, at in each])

    def join_strided(self, shapes: Shapes, forms: Sequence[Strided]) -> Strided | Open | None:
        """Return the strided form of sources that have theirs; `OPEN` where that is not seen axis by axis."""
        at = kind.axis_of(self.axis, len(shapes[0]), "concatenate")
        axis = _common_axis(forms, at)
        if axis is None:
            return None
        if max(map(len, axis)) < 2:
            each = zip(forms, shapes, axis, strict=True)
            joined = join_runs([(first, shape[at], sum([by for _, by in one])) for (first, _), shape, one in each])
        elif axis.count(axis[0]) < len(axis):
            return OPEN
        else:
            joined = join_runs([(first, 1, 0) for first, _ in forms])
            joined = None if joined is None else join_digits(joined + axis[0])
        return None if joined is None else (forms[0][0], put_levels(forms[0][1], at, joined))


def _common_axis(forms: Sequence[Strided], at: int) -> list[Levels] | None:
    """The levels of one axis of each of some strided forms, which agree on all others; None if they do not."""
    plain = forms[0][1]
    others = [join_digits(levels) for k, levels in enumerate(plain) if k != at]
    for _, axes in forms[1:]:
        for k, levels in enumerate(axes):
            if k != at and levels != plain[k] and join_digits(levels) != others[k - (k > at)]:
                return None
    return [join_digits(axes[at]) if at < len(axes) else () for _, axes in forms]


def put_levels(axes: tuple[Levels, ...], at: int, levels: Levels) -> tuple[Levels, ...]:
    """Return the axes of a strided form with one of them anew."""
    return (*axes[:at], levels or ((1, 0),), *axes[at + 1 :])


def _join_extents(shapes: Shapes, axis: int, what: str) -> tuple[int, Shape]:
    """An axis of sources that agree on all others, counted from the first, and the shape of all together."""
    if not shapes:
        raise ValueError(f"{what}: needs at least one source")
    at = kind.axis_of(axis, len(shapes[0]), what)
    for k, shape in enumerate(shapes):
        if len(shape) != len(shapes[0]) or put_extents(shape, at, 0) != put_extents(shapes[0], at, 0):
            raise ValueError(
                f"{what}: source {k} has shape {quote(shape)}, source 0 has {quote(shapes[0])}; they must agree "
                f"except on axis {at}"
            )
    return at, put_extents(shapes[0], at, sum([shape[at] for shape in shapes]))


class Stack(Struct, frozen=True):
    """Sources of one shape along a new axis.

    References
    ----------
    NumPy stack; ONNX ConcatFromSequence with new_axis = 1.
    """

    axis: int = 0
    reads_all = True

    def _plan(self, shapes: Shapes) -> int:
        if not shapes:
            raise ValueError("stack: needs at least one source")
        for k, shape in enumerate(shapes):
            if shape != shapes[0]:
                raise ValueError(
                    f"stack: source {k} has shape {quote(shape)}, source 0 has {quote(shapes[0])}; they must agree"
                )
        return kind.axis_of(self.axis, len(shapes[0]) + 1, "stack")

    def out_shape(self, shapes: Shapes) -> Shape:
        axis = self._plan(shapes)
        return (*shapes[0][:axis], len(shapes), *shapes[0][axis:])

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        axis, out = self._plan(shapes), self.out_shape(shapes)
        step = kind.drop_axis(len(out), axis)
        return tuple(kind.one_piece([step], k, kind.band(out, axis, k, k + 1)) for k in range(len(shapes)))

    def join_strided(self, shapes: Shapes, forms: Sequence[Strided]) -> Strided | Open | None:
        """Return the strided form of sources that have theirs."""
        if _common_axis(forms, len(shapes[0])) is None:
            return None
        joined, axis = join_runs([(first, 1, 0) for first, _ in forms]), self._plan(shapes)
        first, axes = forms[0]
        return None if joined is None else (first, (*axes[:axis], joined, *axes[axis:]))

    def by_axis(self, shapes: Shapes) -> tuple[AxisMaps, ...]:
        axis, rank = self._plan(shapes), len(shapes[0])
        others = tuple([as_it_is(a) for a in range(rank + 1) if a != axis])
        return tuple([(Picked((axis,), k), *others) for k in range(len(shapes))])


class Interleave(Struct, frozen=True):
    """Cells of k sources in turn along an axis: cell i of source s becomes cell i·k + s.

    The sources' extents on the axis must be what is left by ``y[s::k]``: equal, or one more for the first few.

    References
    ----------
    Tapestry, "Tensor View Selections": interleave.
    """

    axis: int = 0
    reads_all = True

    def out_shape(self, shapes: Shapes) -> Shape:
        axis, out = _join_extents(shapes, self.axis, "interleave")
        extents, total = [shape[axis] for shape in shapes], out[axis]
        wanted = [kind.count_range(s, total, len(shapes)) for s in range(len(shapes))]
        if extents != wanted:
            raise ValueError(
                f"interleave: extents {quote(extents)} on axis {axis} do not take turns; {total} cells in "
                f"{len(shapes)} sources need {quote(wanted)}"
            )
        return out

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        rank, k = len(shapes[0]), len(shapes)
        axis = kind.axis_of(self.axis, rank, "interleave")
        rounds = shapes[0][axis]
        # the last round may be partial: the renumbering is that of the full rounds
        split = put_extents(shapes[0], axis, rounds, k)
        steps: list[Step] = [
            Relinearize(put_extents(shapes[0], axis, rounds * k), split),
            kind.drop_axis(rank + 1, axis + 1),
        ]
        return tuple(
            kind.one_piece(steps, source, kind.band(split, axis + 1, source, source + 1, prefix=1))
            for source in range(k)
            if shapes[source][axis]
        )

    def by_axis(self, shapes: Shapes) -> tuple[AxisMaps, ...]:
        rank, many = len(shapes[0]), len(shapes)
        axis = kind.axis_of(self.axis, rank, "interleave")
        return tuple([put_map(rank, axis, Inside((axis,), k, s[axis], many)) for k, s in enumerate(shapes)])


class Fill(Struct, frozen=True):
    """Sources assembled by regions: source k's cells take the places of regions[k], in ascending order on each axis.

    Parameters
    ----------
    regions : tuple of Region
        A partition of one box, which starts at zero and is the view's. Source k has the shape `regions[k].counts`;
        where the region has no points, any shape of that rank without cells.

    Raises
    ------
    ValueError
        If the regions are not in one box, two of them share a point, or a point is in none.

    Examples
    --------
    >>> from tapestry_sets import Stripe
    >>> evens = Region((7,), [Stripe(1, 1)])
    >>> Fill((evens, Region((7,), [Stripe(1, 1, phase=1)]))).out_shape(((4,), (3,)))
    (7,)

    References
    ----------
    poprithms, memory/alias: settfill; Tapestry, "Tensor View Selections": interleave.
    """

    regions: tuple[Region, ...]

    def __post_init__(self) -> None:
        regions = tuple(self.regions)
        if not regions:
            raise ValueError("fill_into: needs at least one region")
        for k, region in enumerate(regions):
            kind.check_from_zero(region, f"fill_into: region {k}")
            if region.shape != regions[0].shape:
                raise ValueError(
                    f"fill_into: region {k} is in a box of shape {quote(region.shape)}, region 0 in one of "
                    f"{quote(regions[0].shape)}; they must be in one box"
                )
        check_regions(regions, "fill_into")
        force_setattr(self, "regions", regions)

    def out_shape(self, shapes: Shapes) -> Shape:
        if len(shapes) != len(self.regions):
            raise ValueError(f"fill_into: {len(shapes)} sources for {len(self.regions)} regions; give one for each")
        for k, (shape, region) in enumerate(zip(shapes, self.regions, strict=True)):
            if shape != region.counts and not (region.is_empty and len(shape) == region.rank and 0 in shape):
                raise ValueError(
                    f"fill_into: source {k} has shape {quote(shape)}; region {k} has places for the shape "
                    f"{quote(region.counts)}"
                )
        return self.regions[0].shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape = self.regions[0].shape
        made = []
        for source, region in enumerate(self.regions):
            if not region.is_empty:
                readings = [numbering.reading_of_ranks(s, n) for s, n in zip(region.nests, shape, strict=True)]
                made.append(numbering.piece_of(shape, readings, source))
        return tuple(made)

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        return source  # one region that is the whole box


class Assembled(Struct, frozen=True):
    """A view of a kind without a name, given by its shape and pieces.

    Parameters
    ----------
    shape : tuple of int
        Of the view.
    parts : tuple of Piece
        Their domains partition the view, and each reads inside its source.
    sources : tuple of tuple of int
        The sources' shapes.

    Raises
    ------
    ValueError
        If a cell is read by two pieces or none, or reads outside its source; decided exactly, without listing cells.

    Examples
    --------
    >>> from tapestry_sets import AffineMap
    >>> from tapestry_sets.views import IndexMap
    >>> shift = Piece(0, (), IndexMap((AffineMap(((1,),), (2,)),)))
    >>> Assembled((4,), (shift,), ((6,),)).out_shape(((6,),))
    (4,)
    """

    shape: tuple[int, ...]
    parts: tuple[Piece, ...]
    sources: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        shape = as_ints(self.shape, "assembled: shape")
        sources = tuple(as_ints(source, f"assembled: sources[{k}]") for k, source in enumerate(self.sources))
        for what, one in (("shape", shape), *((f"sources[{k}]", source) for k, source in enumerate(sources))):
            if min(one, default=0) < 0:
                raise ValueError(f"assembled: {what} {quote(one)} has a negative extent; extents are >= 0")
        parts = tuple(self.parts)
        for k, part in enumerate(parts):
            if not isinstance(part, Piece):
                raise TypeError(f"assembled: parts[{k}] must be a Piece, not {type(part).__name__}")
        check_view(parts, shape, sources, "assembled")
        force_setattr(self, "shape", shape)
        force_setattr(self, "parts", parts)
        force_setattr(self, "sources", sources)

    def out_shape(self, shapes: Shapes) -> Shape:
        if shapes != self.sources:
            raise ValueError(f"assembled: its sources have the shapes {quote(self.sources)}, not {quote(shapes)}")
        return self.shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        return self.parts
