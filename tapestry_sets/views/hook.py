"""The one hook through which views ask about memory: the wing `alias`, which knows cells, stands above views.

    views     View.cells, View.internal_overlap, View.is_contiguous ──┐ call `memory`
    alias     cells, one_view: fills `memory` when it is imported   ◄─┘

The package's root imports both, so that no view meets the hook unfilled.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct

from tapestry_sets.digits import Ints, Strided
from tapestry_sets.integers import DisjointSetts

if TYPE_CHECKING:
    from tapestry_sets.alias import Cells

Order = Literal["C", "F"]


class InternalOverlap(NamedTuple):
    """A cell that a view reads at two of its indices.

    Attributes
    ----------
    a, b : tuple of int
        Two different indices of the view.
    allocation : Allocation
    cell : tuple of int
        The cell of the allocation at both.
    """

    a: Ints
    b: Ints
    allocation: Hashable
    cell: Ints


class MemoryQueries(Struct, frozen=True):
    """The questions that `alias` answers for views; each field is the function of that name there."""

    read_cells: Callable[..., Cells]
    filled_cells: Callable[..., Cells]
    product_cells: Callable[..., Cells]
    local_setts: Callable[..., DisjointSetts | None]
    twice: Callable[[Any], InternalOverlap | None]
    twice_by_strides: Callable[[Strided], tuple[Ints, Ints, int] | None]
    is_ordered: Callable[[Cells], bool]
    is_ordered_by_strides: Callable[[Strided, Order], bool]


memory: MemoryQueries


def fill_memory(queries: MemoryQueries) -> None:
    """Let views ask these; `alias` calls it once."""
    global memory
    memory = queries
