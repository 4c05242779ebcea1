"""Answers found for a view, kept for the next question."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, NoReturn

from tapestry_sets.integers import Nest
from tapestry_sets.limits import quote
from tapestry_sets.views.normal.patches import Flat
from tapestry_sets.views.pieces.piece import Piece
from tapestry_sets.views.ranked import Ranked

if TYPE_CHECKING:
    from tapestry_sets.alias import Cells
    from tapestry_sets.views.view import Allocation, View


class Unasked(Enum):
    """Not found out yet; None would be an answer."""

    UNASKED = 0


UNASKED: Final = Unasked.UNASKED


class Known:
    """The answers found for a view of a kind, kept for the next question.

    The class's own values are those of a view that nothing was asked about yet: such views share `NOTHING`, so that
    a chain of thousands of views is made without a thousand of these.
    """

    ranked: Ranked | Unasked | None = UNASKED
    normal: Flat | None = None
    nest: tuple[Allocation, Nest] | Unasked | None = UNASKED
    cells: Mapping[Allocation, Cells] | None = None
    composed: tuple[tuple[Allocation, ...], tuple[Piece, ...]] | None = None
    refused: tuple[int, str] = (-1, "")  # the budget under which the pieces were too many, and why
    simple: View | Unasked | None = UNASKED  # None is the view itself: it would hold itself


class _Nothing(Known):
    """What is known of all views that nothing was asked about yet: nothing is ever written down here."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name} = {quote(value)}: what all fresh views share is never written to")


NOTHING = _Nothing()
