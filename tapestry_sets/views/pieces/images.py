"""Images and domains of pieces: which cells of a source view cells read, and which view cells read through a piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import islice, product
from math import prod
from typing import Any, TypeVar, cast

import numpy as np

from tapestry_sets.digits import (
    MAX_GRIDS,
    Bools,
    Grid,
    Progression,
    clip_progression,
    combine,
    interleaved_copies,
    split_progression,
)
from tapestry_sets.integers import Int64Array, contains_each
from tapestry_sets.limits import TooManyPieces, current, quote
from tapestry_sets.regions import (
    AffineMap,
    Box,
    DisjointRegions,
    IndexProjection,
    Region,
    as_box,
    grid_hull,
    grid_of,
    grids_of,
    matrix_rank,
    regions_of,
)
from tapestry_sets.solvers import isl
from tapestry_sets.views.pieces.lookup import Lookup, have_no_twins, progressions_of
from tapestry_sets.views.pieces.maps import Relinearize, Step, map_points, put_extents
from tapestry_sets.views.pieces.piece import Piece, bounding_boxes, find_hull_after

T = TypeVar("T")


def piece_image(
    piece: Piece, box: Box | Region | DisjointRegions, within: Box | Sequence[int] | None = None
) -> DisjointRegions:
    """Return the source's cells that a view's cells in `box` read through one piece.

    Parameters
    ----------
    piece : Piece
    box : Box, Region or DisjointRegions
        Cells of the view; those outside the piece's domain read nothing here.
    within : Box or shape, optional
        The source's box; by default the image's bounding box.

    Returns
    -------
    DisjointRegions
        Exact, in the source's coordinates.

    Raises
    ------
    TooManyPieces
        If the image shatters into too many products.

    Examples
    --------
    >>> from tapestry_sets.views import IndexMap
    >>> tail = Piece(0, (), IndexMap((AffineMap(((1,),), (5,)),)))
    >>> piece_image(tail, Box((0,), (3,)), (10,)).bounds()
    ((5,), (8,))
    """
    grids, apart = push(piece, grids_of(box))
    if within is not None:
        return regions_of(grids, as_box(within, Box((), ())), apart)
    hull = grid_hull(grids)
    return DisjointRegions((0,) * piece.map.out_rank, ()) if hull is None else regions_of(grids, hull, apart)


def read_points(piece: Piece, points: Int64Array) -> Int64Array:
    """Return the source's cells that a list of view cells read through one piece.

    Parameters
    ----------
    piece : Piece
    points : int64 array of shape (n, in_rank)
        Cells of the view; those outside the piece's domain read nothing here.

    Returns
    -------
    int64 array of shape (m, out_rank)

    Raises
    ------
    OverflowError
        If a coordinate may not fit 64 bits.

    Examples
    --------
    >>> from tapestry_sets.views import Guard, IndexMap
    >>> guard = Guard(0, Region.from_slices((8,), (slice(0, 2),)))
    >>> head = Piece(0, (guard,), IndexMap((AffineMap(((3,),), (5,)),)))
    >>> read_points(head, np.array([[0], [1], [2]])).tolist()
    [[5], [8]]
    """
    for prefix in range(len(piece.map.steps) + 1):
        for guard in piece.guards:
            if guard.prefix == prefix:
                points = points[_inside(points, guard.region)]
        if prefix < len(piece.map.steps):
            points = map_points(piece.map.steps[prefix], points)
    return points


def _inside(points: Int64Array, region: Region) -> Bools:
    """Say for each point whether it is in a region."""
    keep = np.ones(len(points), bool)
    for x, sett, low, n in zip(points.T, region.setts, region.start, region.shape, strict=True):
        keep &= (x >= low) & (x < low + n) & contains_each(sett.nest, x)
    return keep


def stays_injective(piece: Piece, box: Box) -> bool:
    """Return whether a piece surely takes different view cells in `box` to different cells of its source.

    Examples
    --------
    >>> from tapestry_sets.views import IndexMap
    >>> evens = Piece(0, (), IndexMap((AffineMap(((2,),), (0,)), Relinearize((6,), (2, 3)))))
    >>> stays_injective(evens, Box.of((3,)))
    True
    """
    for step in piece.map.simplify().steps:
        if isinstance(step, AffineMap) and not is_injective(step, [grid_of(box)]):
            return False
        if isinstance(step, Lookup) and not have_no_twins(step.between(box.start[step.axis], box.stop[step.axis])):
            return False
        box = find_hull_after(step, box)
    return True


def push(piece: Piece, grids: list[Grid], stop: int | None = None) -> tuple[list[Grid], bool]:
    """Return the images of disjoint grids of view cells under `piece` after `stop` steps (default all).

    Returns
    -------
    grids : list of Grid
    apart : bool
        Whether they are known to share no point: false where a step may take two points to one.
    """
    end = len(piece.map.steps) if stop is None else stop
    if stop is None:
        piece, grids = guards_first(piece, grids)
        end = len(piece.map.steps)
    apart = True
    for prefix in range(end + 1):
        for guard in piece.guards:
            if guard.prefix == prefix:
                grids = [g for grid in grids for g in restrict(grid, guard.region)]
        if prefix == end or not grids:
            continue
        step = piece.map.steps[prefix]
        if isinstance(step, AffineMap):
            apart = apart and is_injective(step, grids)
            grids = _few(g for grid in grids for g in affine_image(grid, step))
        elif isinstance(step, Lookup):
            apart = apart and (len(grids) == 1 or step.is_injective)
            grids = _few(g for grid in grids for g in looked_up(grid, step))
        else:
            grids = _few(g for grid in grids for g in renumbered(grid, step))
        if not apart:
            grids = list(dict.fromkeys(grids))
    return grids, apart


def guards_first(piece: Piece, grids: list[Grid]) -> tuple[Piece, list[Grid]]:
    """Return a piece of affine maps alone without guards, and what of disjoint grids its guards let through.

    So coordinates that only a guard looks at, as the distance from a diagonal, are not in the way of an image. Other
    pieces, and those whose guards stand in front, stay as they are.
    """
    steps = piece.map.steps
    if not any(g.prefix for g in piece.guards) or any(not isinstance(s, AffineMap) for s in steps):
        return piece, grids
    hull = grid_hull(grids)
    if hull is None:
        return piece, grids
    held = piece_domain(piece, hull).members
    parts = [part for region in held for grid in grids for part in restrict(grid, region)]
    return Piece(piece.source, (), piece.map.simplify(), piece.fill), parts


def _few(grids: Iterable[T]) -> list[T]:
    """The grids, unless they are too many: then no more of them are made."""
    found = list(islice(grids, MAX_GRIDS + 1))
    if len(found) > MAX_GRIDS:
        raise TooManyPieces(
            f"the image needs more than {MAX_GRIDS} products of progressions; ask overlaps(), which needs none of them"
        )
    return found


def is_injective(m: AffineMap, grids: Sequence[Grid]) -> bool:
    """Return whether a map surely takes different points of the grids to different places."""
    if len(grids) == 1:
        varying = [j for j, p in enumerate(grids[0]) if p[1]]
    else:
        one = grids[0]
        varying = [j for j in range(m.in_rank) if any(g[j][1] or g[j][0] != one[j][0] for g in grids)]
    columns = [[row[j] for row in m.matrix] for j in varying]
    return _is_selection(columns) or matrix_rank(columns) == len(columns)


def _is_selection(columns: list[list[int]]) -> bool:
    """Whether each column has one entry, each in a row of its own: the usual case, and surely independent."""
    rows = [k for column in columns for k, c in enumerate(column) if c]
    return len(rows) == len(columns) == len(set(rows)) and all(map(any, columns))


def renumbered(grid: Grid, step: Relinearize) -> list[Grid]:
    """Return a grid under a renumbering, as disjoint grids."""
    return unflatten_grid(flatten_grid(grid, step.from_shape), step.to_shape)


def looked_up(grid: Grid, step: Lookup) -> list[Grid]:
    """Return a grid under a lookup, as disjoint grids: one for each run of equal steps of the entries in order."""
    places = np.arange(len(step.table), dtype=np.int64)
    read = progressions_of(step.column[_are_in(places, grid[step.axis])])
    return [(*grid[: step.axis], p, *grid[step.axis + 1 :]) for p in read]


def _are_in(z: Int64Array, p: Progression) -> Bools:
    """Say which integers, of 62 bits, a progression holds."""
    parts = clip_progression(p, int(z.min()), int(z.max()) + 1) if len(z) else []
    return reduce(np.logical_or, [_hold_each(part, z) for part in parts], np.zeros(len(z), np.bool_))


def _hold_each(p: Progression, z: Int64Array) -> Bools:
    first, levels = p
    if interleaved_copies(levels) > 1:  # one integer may be several sums
        if prod([count for count, _ in levels]) > MAX_GRIDS:
            raise TooManyPieces(
                f"{quote(p)}, whose copies lie within each other, has more than {MAX_GRIDS} elements to look up"
            )
        return np.isin(z, _values(p))
    rest = z - first
    for count, step in levels:
        rest = rest - np.clip(rest // step, 0, count - 1) * step
    return cast(Bools, rest == 0)


def restrict(grid: Grid, region: Region) -> list[Grid]:
    """Return the part of a grid inside a region, as disjoint grids."""
    if not region.is_box:
        hull = grid_hull([grid])
        assert hull is not None
        frame = hull.hull(Box(region.start, region.shape))
        return grids_of(regions_of([grid], frame) & regions_of(grids_of(region), frame))
    axes = []
    for p, span in zip(grid, region.spans, strict=True):
        inside = clip_progression(p, *span) if span else []
        if not inside:
            return []  # one of many tensors that are joined along an axis: most are missed on it
        axes.append(inside)
    return list(product(*axes))


def affine_image(grid: Grid, m: AffineMap) -> list[Grid]:
    """Return the image of a grid under an affine map.

    Raises
    ------
    TooManyPieces
        If coordinates share axes (a diagonal) whose values are too many to list.
    """
    terms = m.terms()
    varying = [j for row in terms for j, _ in row if grid[j][1]]
    if len(varying) == len(set(varying)):
        return [_along_rows(terms, m.offset, grid)]
    shared = sorted({j for j in varying if varying.count(j) > 1})
    points = prod(prod(n for n, _ in grid[j][1]) for j in shared)
    if points > MAX_GRIDS:
        raise TooManyPieces(
            f"the image under {m} has a product for each of {quote(points)} values of axes {quote(shared)}, more than "
            f"{MAX_GRIDS}; ask overlaps(), which needs no explicit set"
        )
    images = []
    for values in product(*(_values(grid[j]) for j in shared)):
        fixed = dict(zip(shared, values, strict=True))
        axes = [(fixed[j], ()) if j in fixed else p for j, p in enumerate(grid)]
        images.append(_along_rows(terms, m.offset, axes))
    return images


def _along_rows(
    terms: Iterable[tuple[tuple[int, int], ...]], offset: tuple[int, ...], axes: Sequence[Progression]
) -> Grid:
    """The image of axes that no two coordinates share."""
    return tuple([combine(b, [(c, axes[j]) for j, c in row]) for row, b in zip(terms, offset, strict=True)])


def _values(p: Progression) -> list[int]:
    values = [p[0]]
    for n, step in p[1]:
        values = [v + j * step for v in values for j in range(n)]
    return values


def flatten_grid(grid: Grid, shape: Sequence[int]) -> Progression:
    """Return the row-major numbers of a grid's points."""
    weight = 1
    terms = []
    for p, n in zip(reversed(grid), reversed(shape), strict=True):
        terms.append((weight, p))
        weight *= n
    return combine(0, terms)


def flatten_affine(m: AffineMap, shape: Sequence[int]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return the row-major number of m(x) in `shape` as offset + Σ coefficient·x[axis]: (offset, (axis, coefficient)s).

    Examples
    --------
    >>> flatten_affine(AffineMap(((1, 0), (0, 2)), (0, 1)), (4, 6))
    (1, ((0, 6), (1, 2)))
    """
    offset, weight = 0, 1
    total = [0] * max(m.in_rank, 0)
    for row, b, n in zip(reversed(m.matrix), reversed(m.offset), reversed(shape), strict=True):
        offset += weight * b
        for j, c in enumerate(row):
            if c:
                total[j] += weight * c
        weight *= n
    return offset, tuple([(j, c) for j, c in enumerate(total) if c])


def unflatten_grid(p: Progression, shape: Sequence[int]) -> list[Grid]:
    """Return the points with the given row-major numbers, as disjoint grids; the outermost extent is free."""
    if not shape:
        return [()]
    partial: list[tuple[Progression, Grid]] = [(p, ())]
    for n in shape[:0:-1]:
        partial = _few((high, (low, *done)) for rest, done in partial for high, low in split_progression(rest, n))
    return [(high, *done) for high, done in partial]


# --------------------------------------------------------------------------------------------------- domains


def piece_domain(piece: Piece, box: Box) -> DisjointRegions:
    """Return the view's cells in `box` that read through this piece, in the coordinates of `box`.

    Raises
    ------
    TooManyPieces
        If the domain shatters into too many products.

    Examples
    --------
    >>> from tapestry_sets.views import Guard, IndexMap
    >>> guard = Guard(0, Region.from_slices((8,), (slice(0, 5),)))
    >>> head = Piece(0, (guard,), IndexMap((), 1))
    >>> piece_domain(head, Box((2,), (6,))).bounds()
    ((2,), (5,))
    """
    domain = DisjointRegions(box.shape, (box.to_region(),), box.start)
    if box.is_empty:
        return DisjointRegions(box.shape, (), box.start)
    for guard in piece.guards:
        boxes = bounding_boxes(piece.map, box, guard.prefix)
        inside = grids_of(guard.region)
        for k in range(guard.prefix - 1, -1, -1):
            inside = _pull(piece.map.steps[k], inside, boxes[k])
        domain = domain & regions_of(inside, box, apart=True)  # no point comes to two places
    return domain


def _pull(step: Step, inside: list[Grid], box: Box) -> list[Grid]:
    """The points of `box` that a step takes into the given disjoint grids."""
    if isinstance(step, Relinearize):
        numbers = [flatten_grid(grid, step.to_shape) for grid in inside]
        # a renumbering may hold more than arrives: the last round of a deal may be partial
        return [cut for p in numbers for grid in unflatten_grid(p, step.from_shape) for cut in _clipped(grid, box)]
    if isinstance(step, Lookup):
        return [cut for grid in inside for cut in _look_back(step, grid, box)]
    hull = grid_hull(inside)
    if hull is None:
        return []
    return _pull_affine(IndexProjection(step, (1,) * step.out_rank), regions_of(inside, hull), hull, box)


def _look_back(step: Lookup, grid: Grid, box: Box) -> Iterable[Grid]:
    """The points of a box that a lookup takes into a grid, as disjoint grids."""
    low = max(box.start[step.axis], 0)
    read = step.between(low, box.stop[step.axis])
    places = progressions_of(low + np.flatnonzero(_are_in(read, grid[step.axis])))
    others = [clip_progression(p, a, a + n) for p, a, n in zip(grid, box.start, box.shape, strict=True)]
    return product(*others[: step.axis], places, *others[step.axis + 1 :])


def _clipped(grid: Grid, box: Box) -> Iterable[Grid]:
    """The part of a grid in a box, as disjoint grids."""
    return product(*[clip_progression(p, a, a + n) for p, a, n in zip(grid, box.start, box.shape, strict=True)])


def _pull_affine(projection: IndexProjection, inside: DisjointRegions, around: Box, box: Box) -> list[Grid]:
    """As `_pull`, listing the values of a short axis where the points are not a product.

    Of these values most come nowhere near the box around what is asked for, where that is small: they are passed over.
    """
    hull = find_hull_after(projection.map, box)
    sides = zip(hull.start, hull.shape, around.start, around.shape, strict=True)
    if any(low >= first + n or first >= low + many for low, many, first, n in sides):
        return []
    used = _find_slanted(projection.map, inside, hull, box)
    if not used:
        found = projection.preimage(inside, box)
        if isinstance(found, DisjointRegions):
            return grids_of(found)
        used = {j for row in projection.map.terms() for j, _ in row}
    axis = min((j for j in used if box.shape[j] > 1), key=lambda j: box.shape[j])
    most = min(MAX_GRIDS, current().max_pieces)
    if box.shape[axis] > most:
        raise TooManyPieces(
            f"the domain under {projection.map} has a product for each of {quote(box.shape[axis])} values of axis "
            f"{axis}, more than {most}"
        )
    grids = []
    for x in range(box.start[axis], box.stop[axis]):
        slab = Box(put_extents(box.start, axis, x), put_extents(box.shape, axis, 1))
        grids += _pull_affine(projection, inside, around, slab)
    return grids


def _find_slanted(m: AffineMap, inside: DisjointRegions, hull: Box, box: Box) -> set[int]:
    """The axes of a row of several that vary in a box, where it is not within regions anyway; none if there is none."""
    for k, row in enumerate(m.terms()):
        varying = {j for j, _ in row if box.shape[j] > 1}
        low, high = hull.start[k], hull.stop[k]
        spans = [region.spans[k] for region in inside.regions]
        if len(varying) > 1 and any(span is None or span[0] > low or span[1] < high for span in spans):
            return varying
    return set()


# -------------------------------------------------------------------------------------------------------- isl


def image_to_isl(pieces: Iterable[Piece], box: Box) -> Any:
    """Return the cells that a view's cells in `box` read, as an islpy.Set; the pieces, one or more, share a source."""
    cells = isl.box_set(box.start, box.stop)
    parts = [cells.apply(isl.to_isl(piece)) for piece in pieces]
    total = parts[0]
    for part in parts[1:]:
        total = total.union(part)
    return total
