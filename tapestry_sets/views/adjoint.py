"""Adjoints of views: every cell of a view gives its value back to its source.

A view's pieces say which source cell each index reads; the adjoint sums, for each source cell, the values at all
indices that read it. It is found from the pieces alone, whatever kinds made them, as a few terms: cells of the view
read by strides, summed over the digits that stay at one source cell, and put in their places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod

from msgspec import Struct

from tapestry_sets.digits import Digit, Digits, join_digits, make_steps_positive
from tapestry_sets.integers import nest_of
from tapestry_sets.limits import OPEN, TooManyPieces, current, quote
from tapestry_sets.regions import AffineMap, DisjointRegions, Region
from tapestry_sets.views.kinds.choosing import AsStrided
from tapestry_sets.views.kinds.joining import Assembled, Fill
from tapestry_sets.views.normal.patches import read_patches
from tapestry_sets.views.pieces.maps import IndexMap
from tapestry_sets.views.pieces.piece import Piece


class Term(Struct, frozen=True):
    """Values of a view that source cells receive.

    Attributes
    ----------
    read : AsStrided
        Of the view: those cells of it, with one axis for each digit.
    summed : tuple of int
        Axes to sum over: their cells all read the same source cell.
    place : Region
        Where the sums, in row-major order, belong, in ascending order: row-major numbers of the source, of rank 1.
    """

    read: AsStrided
    summed: tuple[int, ...]
    place: Region


def scatter_terms(pieces: Iterable[Piece], shape: Sequence[int], home: Sequence[int], source: int = 0) -> list[Term]:
    """Return the terms whose sum is the adjoint of a view for one of its sources.

    Parameters
    ----------
    pieces : iterable of Piece
        Of the view.
    shape, home : sequence of int
        Of the view and of the source.
    source : int
        Its position.

    Raises
    ------
    TooManyPieces
        If more terms are needed than the limits allow.

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> windows = allocate((6,)).sliding_windows(3)
    >>> for term in scatter_terms(windows.pieces, windows.shape, (6,)):
    ...     print(term.read.offset, term.read.strides, term.place)
    0 (3,) 1111..
    1 (3,) .1111.
    2 (3,) ..1111
    >>> rows = allocate((3,)).broadcast_to((4, 3))
    >>> scatter_terms(rows.pieces, rows.shape, (3,))[0].summed
    (1,)

    References
    ----------
    The adjoint of a gather is a scatter-sum.
    """
    most = current().max_pieces
    if 0 in shape or 0 in home:
        return []
    terms: list[Term] = []
    for piece in pieces:
        if piece.source != source:
            continue
        boxes = read_patches(piece, shape, home, most)
        if boxes is OPEN:
            raise TooManyPieces(
                f"the adjoint of a view of shape {quote(tuple(shape))} needs more than {most} terms; "
                "limits(max_pieces=…)"
            )
        for box in boxes:
            terms += _terms_of(box, prod(home), most - len(terms))
    return terms


def _terms_of(box: Digits, size: int, most: int) -> list[Term]:
    """The terms of one patch: one for each value of the digits that would interleave."""
    (at, cell), digits = make_steps_positive(*box, form=1)
    still = [digit for digit in digits if not digit[2]]
    moving, fixed = _apart([digit for digit in digits if digit[2]])
    many = prod(count for count, _, _ in fixed)
    if many > most:
        raise TooManyPieces(f"the adjoint of a view needs {many} terms for cells that are read again and again")
    return [_term(at + by, cell + step, moving, still, size) for by, step in _values(fixed)]


def _apart(digits: list[Digit]) -> tuple[list[Digit], list[Digit]]:
    """Digits by descending cell steps, no sum of which comes twice, and those that had to be left out for it."""
    moving: list[Digit] = []
    fixed: list[Digit] = []
    reach = 0
    for digit in sorted(digits, key=lambda d: d[2]):
        while moving and digit[2] <= reach:
            small = min(moving, key=lambda d: d[0])
            if small[0] >= digit[0]:
                break
            moving.remove(small)
            fixed.append(small)
            reach = sum((count - 1) * step for count, _, step in moving)
        if digit[2] > reach:
            moving.append(digit)
            reach += (digit[0] - 1) * digit[2]
        else:
            fixed.append(digit)
    return list(join_digits(moving[::-1])), fixed


def _values(digits: Sequence[Digit]) -> Iterator[tuple[int, int]]:
    """The offsets of index and cell for each choice of the digits' values."""
    for js in product(*(range(count) for count, _, _ in digits)):
        each = list(zip(js, digits, strict=True))
        yield sum([j * by for j, (_, by, _) in each]), sum([j * step for j, (_, _, step) in each])


def _term(at: int, cell: int, moving: Sequence[Digit], still: Sequence[Digit], size: int) -> Term:
    every = (*moving, *still)
    read = AsStrided(tuple(count for count, _, _ in every), tuple(by for _, by, _ in every), at)
    nest = nest_of((cell, tuple(((count, step),) for count, _, step in moving)), size)
    assert nest is not None, "the digits' sums are apart"
    place = Region._of((size,), (nest,), (0,))
    return Term(read, tuple(range(len(moving), len(every))), place)


def assemble_at(places: Sequence[Region], fill: float = 0.0) -> Assembled:
    """Return the kind that puts sources of rank 1 in disjoint places of one box, and a constant elsewhere.

    Examples
    --------
    >>> from tapestry_sets.integers import Stripe
    >>> kind = assemble_at([Region((7,), [Stripe(1, 2)])])
    >>> kind.out_shape(((3,),)), [piece.fill for piece in kind.pieces(((3,),))]
    ((7,), [None, 0.0])
    """
    rest = (~DisjointRegions(places[0].shape, places)).members
    every = (*places, *rest)
    shapes = tuple(region.counts for region in every)
    parts = []
    for piece in Fill(every).pieces(shapes):
        if piece.source >= len(places):
            nowhere = AffineMap((), (), piece.map.out_rank)
            piece = Piece(-1, piece.guards, IndexMap((*piece.map.steps, nowhere)), fill)
        parts.append(piece)
    return Assembled(places[0].shape, tuple(parts), shapes[: len(places)])
