"""Places within places: where a block lies inside an array that holds other cells, too.

What an operator reads is often put together of what devices made, itself or others. A block that is made where it is
read need not be copied::

    rows 0-4 of x, made here         the array of rows 0-5, to be read       ██████
                                     its first five rows are the block       ██████
                                     one row comes from the device beside    ▒▒▒▒▒▒

    heads 2 and 3, (2, s, d)         the array of y, (s, 4 · d)              ··░░··░░··
                                     two runs of each row are the block

A place is strides and a first element, as of any strided array. Through a view it is found by trying, cell for cell
along each axis, and then proved: the view's map, at all cells of the place, says the block's own coordinates.
"""

from __future__ import annotations

from functools import lru_cache

from tapestry_plan.steps import tuning
from tapestry_plan.steps.layouts.local import Linear, linearize
from tapestry_plan.steps.step import row_major
from tapestry_sets.digits import Ints
from tapestry_sets.limits import OPEN, REFUSALS, ask_one
from tapestry_sets.regions import AffineMap, Box, DisjointRegions, Region
from tapestry_sets.views import Guard, IndexMap, Piece, Relinearize, piece_domain, piece_image


@lru_cache(maxsize=tuning.KEPT_FORMS)
def find_place(host: Box, guest: Box, piece: Piece | None = None, shape: Ints = ()) -> Linear | None:
    """Where all of a block lies in the row-major array of another one, in elements; None where it does not.

    Parameters
    ----------
    host : Box
        What the array holds.
    guest : Box
        The block, in the same coordinates; with a piece, in those of the tensor behind it.
    piece : Piece, optional
        Of the view whose coordinates the host has. It reads the block's cells.
    shape : tuple of int
        Of the tensor behind the piece.

    Examples
    --------
    >>> find_place(Box((0, 0), (6, 4)), Box((1, 0), (4, 4)))
    ((4, 1), 4)
    """
    if not guest.size:
        return None
    if piece is None:
        if not host.contains(guest):
            return None
        strides = row_major(host.shape)
        return strides, sum((a - b) * s for a, b, s in zip(guest.start, host.start, strides, strict=True))
    first = _find_cell(host, guest.start, piece, shape)
    if first is None:
        return None
    found = []
    for axis, extent in enumerate(guest.shape):
        beside = tuple(a + (k == axis) for k, a in enumerate(guest.start))
        at = _find_cell(host, beside, piece, shape) if extent > 1 else first + row_major(guest.shape)[axis]
        if at is None or at <= first:
            return None
        found.append(at - first)
    place = tuple(found), first
    return place if is_place(host, guest, place, piece, shape) else None


def _find_cell(host: Box, cell: Ints, piece: Piece, shape: Ints) -> int | None:
    """The element of an array over a box of a view that reads a cell; None where not just one does."""
    only = Region.from_bounds(shape, cell, tuple(a + 1 for a in cell))
    read = Piece(piece.source, (*piece.guards, Guard(len(piece.map.steps), only)), piece.map, piece.fill)
    cells = ask_one(REFUSALS, piece_domain, read, host)
    bounds = None if cells is OPEN or cells.size != 1 else cells.bounds()
    if bounds is None:
        return None
    return sum((a - b) * s for a, b, s in zip(bounds[0], host.start, row_major(host.shape), strict=True))


def is_place(host: Box, guest: Box, place: Linear, piece: Piece, shape: Ints) -> bool:
    """Whether a piece that reads its tensor at all cells of a place reads the block there, each cell in its turn."""
    # Numbers of the whole tensor tell its cells apart, also those that are not of the block.
    strides, (steps, first) = row_major(shape), place
    reach = first + sum(s * (n - 1) for s, n in zip(steps, guest.shape, strict=True))
    if first < 0 or reach >= host.size:
        return False
    chain = IndexMap((*_list_steps(host, place), *piece.map.steps), len(steps)).simplify()
    found = ask_one(REFUSALS, linearize, Piece(0, (), chain), Box.of(shape), Box.of(guest.shape))
    if found is OPEN or found is None:
        return False
    begin = sum(a * s for a, s in zip(guest.start, strides, strict=True))
    same = (a == b for a, b, n in zip(found[0], strides, guest.shape, strict=True) if n > 1)
    return found[1] == begin and all(same)


@lru_cache(maxsize=tuning.KEPT_FORMS)
def list_place(host: Box, extents: Ints, place: Linear, shape: Ints) -> DisjointRegions | None:
    """The cells of a place, in the coordinates of the array that it is in; None where they are too many regions.

    Parameters
    ----------
    host : Box
        What the array holds.
    extents : tuple of int
        Of the block that lies at the place.
    place : tuple
        As `find_place` says it.
    shape : tuple of int
        Of the tensor, or view, that the array is of.

    Examples
    --------
    >>> list_place(Box((0, 0), (2, 4)), (2, 2), ((4, 1), 2), (2, 4)).size
    4
    """
    piece = Piece(0, (), IndexMap(_list_steps(host, place), len(extents)))
    found = ask_one(REFUSALS, piece_image, piece, DisjointRegions.full(extents), shape)
    return None if found is OPEN else found


def _list_steps(host: Box, place: Linear) -> tuple[AffineMap | Relinearize, ...]:
    """From a block's own coordinates, from 0, to those of the array that it lies in."""
    strides, first = place
    number = AffineMap((strides,), (first,), len(strides))
    moved = AffineMap(AffineMap.identity(len(host.shape)).matrix, host.start, len(host.shape))
    return number, Relinearize((host.size,), host.shape), moved
