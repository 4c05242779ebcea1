"""Selections are maps: each cell of a view is one cell of one source, or a constant; checked for every view kind.

A kind is known by its pieces alone: their domains must partition the view, and each piece must read inside its source.
Sets decide, however large the tensors are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from math import prod

from tapestry_plan.ir import tuning
from tapestry_plan.ir.signature import Shape
from tapestry_sets.limits import OPEN, REFUSALS, TooHard, TooManyPieces, ask_one, quote, retell
from tapestry_sets.regions import Box, DisjointRegions, Region, Reshaped
from tapestry_sets.views import Assembled, Piece, Relinearize, ViewKind, piece_domain

Domain = Region | DisjointRegions | Reshaped


def check_selection(kind: ViewKind, shapes: Sequence[Shape]) -> None:
    """Check that each cell of a kind's view is one cell of one source.

    Parameters
    ----------
    kind : ViewKind
        Any class with `out_shape` and `pieces`.
    shapes : sequence of tuple of int
        Of its sources.

    Raises
    ------
    ValueError
        If a cell is read by no piece or by two, or reads outside its source; the message names it. Also whatever
        the kind itself says of the shapes.
    TooHard
        If the pieces are too entangled to decide.

    Examples
    --------
    >>> from tapestry_sets.views import Concat, Interleave
    >>> check_selection(Concat(0), [(4, 10**9), (3, 10**9)])
    >>> check_selection(Interleave(1), [(4, 10**9), (4, 10**9)])

    References
    ----------
    Tapestry, "Tensor View Selections": a selection maps each coordinate to a (tensor, coordinate) pair of exactly
    one source tensor.
    """
    given = tuple(tuple(shape) for shape in shapes)
    check_pieces(kind.pieces(given), kind.out_shape(given), given, label_of(kind))


def label_of(kind: ViewKind) -> str:
    """Return the name of a view kind in graphs: its ``label``, else its class in lower case, ``permute_dims``."""
    return getattr(kind, "label", None) or re.sub(r"(?<!^)(?=[A-Z])", "_", type(kind).__name__).lower()


def check_pieces(pieces: Sequence[Piece], shape: Shape, shapes: Sequence[Shape], what: str) -> None:
    """Check pieces as `check_selection` does; `what` is what the messages call them.

    Examples
    --------
    >>> from tapestry_sets import AffineMap
    >>> from tapestry_sets.views import IndexMap
    >>> shift = Piece(0, (), IndexMap((AffineMap(((1,),), (2,)),)))
    >>> check_pieces([shift], (4,), [(6,)], "shift")
    >>> check_pieces([shift], (5,), [(6,)], "shift")
    Traceback (most recent call last):
    ...
    ValueError: shift: cell (4,) reads (6,) of source 0 of shape (6,), through piece 0; it must read inside its source
    """

    def tell(error: ValueError) -> ValueError:
        said = f"{what}: {str(error).removeprefix('assembled: ')}"
        if isinstance(error, REFUSALS):
            return TooHard(f"{said}; make the view of several simpler selections")
        return ValueError(said)

    retell(tell, _assembled, tuple(shape), tuple(pieces), tuple(shapes), refusals=ValueError)


_assembled = lru_cache(maxsize=tuning.KEPT_CHECKS)(Assembled)
"""Checks views without a name; those that are right are remembered."""


def domain_of(piece: Piece, shape: Shape) -> Domain:
    """Return the cells of a view of this shape that read through a piece.

    They are held by their row-major numbers where products would be too many.

    Raises
    ------
    TooHard
        If guards stand behind maps through which they cannot be seen.

    Examples
    --------
    >>> from tapestry_sets.views import Guard, IndexMap
    >>> n = 10**9
    >>> guard = Guard(1, Region.from_slices((n, n + 1), (slice(None), slice(n // 2))))
    >>> domain_of(Piece(0, (guard,), IndexMap((Relinearize((n + 1, n), (n, n + 1)),))), (n + 1, n)).size == n * n // 2
    True
    """
    if not piece.guards:
        return Region.full(shape)
    found = ask_one((TooManyPieces,), piece_domain, piece, Box.of(shape))
    return _domain_by_number(piece, shape) if found is OPEN else found


def _domain_by_number(piece: Piece, shape: Shape) -> Domain:
    """The domain of a piece whose guards stand behind renumberings of the whole view, which keep row-major numbers."""
    domain: Domain = Region.full(shape)
    for guard in piece.guards:
        steps = piece.map.steps[: guard.prefix]
        size = prod(shape)
        keeps = all(isinstance(step, Relinearize) and prod(step.from_shape) == size for step in steps)
        home = steps[-1].to_shape if steps and isinstance(steps[-1], Relinearize) else shape
        if not keeps or guard.region.shape != home or any(guard.region.start):
            raise TooHard(
                f"the cells of a view of shape {quote(shape)} that read through {piece} make too many products"
            )
        domain = domain & guard.region.reshape(shape)
    return domain
