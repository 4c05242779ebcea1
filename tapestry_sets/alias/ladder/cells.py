"""The cells of one allocation that a view reads, and the questions about them.

    view ──► pieces ──► KnownCells        setts, sums of steps, or a set around them      `known`, `flat`, `preimage`
                           │
                         Cells            size, meets, issubset, count_common, …          this module
                           │
                         RUNGS            for each question the ways to answer it         `ladder`, run by `climb`

The numbers come straight from the view's pieces, as setts where they are few. Where an explicit set would shatter,
they are the elements of one set whose numbers are in the next, and so on, as far as a chain of views reads its sources
in order; where copies of a pattern lie within each other, they are sums of steps, and linear equations answer. A
view that is none of these is asked before its last renumbering, where it may be plain (see `preimage`). What these do
not decide isl does, within a limit.

Cells are listed as the last resort alone: decided so where isl has refused or is not installed, and counted so where
sums of steps or chains of views lie within each other in no order, for which no other counter is known. `tally` tells
how often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import cast

from tapestry_sets.alias import tuning
from tapestry_sets.alias.ladder.flat import flatten_pieces
from tapestry_sets.alias.ladder.known import KnownCells, find_bands, no_products, setts_of
from tapestry_sets.alias.ladder.rungs import RUNGS, CellQuestion
from tapestry_sets.digits import Strided
from tapestry_sets.integers import DisjointSetts, Integers, Sett
from tapestry_sets.limits import OPEN, TooManyPieces, ask_one, climb, current, limits
from tapestry_sets.regions import DisjointRegions, axis_products, unflatten
from tapestry_sets.views import IndexProducts, Piece


class Cells(KnownCells, frozen=True):
    """The cells of an allocation that a view reads; see `KnownCells` for the parameters.

    Each question is asked of the rungs of its ladder, in turn. It raises TooHard, or TooManyPieces where the answer is
    explicit, if none of them answers.
    """

    @property
    def is_empty(self) -> bool:
        """Whether no cell is read."""
        return cast(bool, climb(RUNGS[CellQuestion.EMPTY], self))

    @property
    def size(self) -> int:
        """How many different cells there are; TooHard if they are too many to count one by one."""
        return cast(int, climb(RUNGS[CellQuestion.SIZE], self))

    @property
    def closed_size(self) -> int | None:
        """How many different cells there are, None if that is not known without a list."""
        size = climb(RUNGS[CellQuestion.SIZE], self, closed=True)
        return None if size is OPEN else size

    def explicit(self) -> DisjointSetts:
        """Return the setts, or raise TooManyPieces."""
        setts = climb(RUNGS[CellQuestion.EXPLICIT], self, closed=True)
        if setts is OPEN:
            raise TooManyPieces(
                f"the cells that {self.name} reads need too many setts to be written out; "
                "overlaps() and overlap(…).witness answer without"
            )
        return cast(DisjointSetts, setts)

    def regions(self) -> DisjointRegions:
        """Return the cells in the allocation's coordinates."""
        return unflatten(self.explicit(), self.home)

    def is_run(self) -> bool:
        """Return whether the cells are one gapless run of the allocation."""
        return cast(bool, climb(RUNGS[CellQuestion.RUN], self))

    def index_of(self, cell: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return an index of the view that reads a cell of the allocation, or None."""
        return cast("tuple[int, ...] | None", climb(RUNGS[CellQuestion.INDEX], self, cell))

    # -- two sets of cells of one allocation ----------------------------------------------------------

    def meets(self, other: Cells) -> bool:
        """Return whether some cell is in both."""
        return cast(bool, climb(RUNGS[CellQuestion.MEETS], self, other))

    def issubset(self, other: Cells) -> bool:
        """Return whether every cell is in `other`."""
        return cast(bool, climb(RUNGS[CellQuestion.SUBSET], self, other))

    def count_common(self, other: Cells) -> int:
        """Return how many cells are in both; TooHard if they are too many to count one by one."""
        return cast(int, climb(RUNGS[CellQuestion.COUNT], self, other))

    def closed_common(self, other: Cells) -> int | None:
        """Return how many cells are in both, None if that is not known without isl or a list."""
        count = climb(RUNGS[CellQuestion.COUNT], self, other, closed=True)
        return None if count is OPEN else count

    def a_common_cell(self, other: Cells) -> tuple[int, ...] | None:
        """Return a cell in both, or None."""
        z = climb(RUNGS[CellQuestion.NUMBER], self, other)
        return None if z is None else self.cell_of(z)

    def cell_beside(self, other: Cells | None) -> tuple[int, ...] | None:
        """Return a cell that is not in `other`, None if there is none; without an other, any cell."""
        if other is None:
            return self.a_common_cell(self)
        z = climb(RUNGS[CellQuestion.BESIDE], self, other)
        return None if z is None else self.cell_of(z)

    def common_regions(self, other: Cells) -> DisjointRegions:
        """Return the cells in both, in the allocation's coordinates."""
        return unflatten(self._common_setts(other), self.home)

    def common(self, other: Cells) -> Cells:
        """Return the cells in both, or raise TooManyPieces."""
        setts = self._common_setts(other)
        return Cells((setts.count(0, self.extent),), (), self.home, self.extent, setts)

    def _common_setts(self, other: Cells) -> DisjointSetts:
        if (self.products or other.products) is not None and self.axes is not None and other.axes is not None:
            met = [both for sets in self.axes for both in axis_products.meet_each(sets, other.axes)]
            return setts_of(met, self.home)
        one, two = self.setts, other.setts
        if one is None or two is None:
            one, two = self.explicit(), other.explicit()  # one of which says why it cannot
        lo, hi = self._span(other, one, two)
        common = (one & two).setts(within=(lo, hi))
        if hi - lo < self.extent:  # the setts are right in the window alone
            common = common.intersection(Sett.interval(lo, hi, self.extent), within=(0, self.extent))
        return common

    def _span(self, other: Cells, one: Integers, two: Integers) -> tuple[int, int]:
        """A range that holds all common cells: where the set of either is held by its chain, the shortest."""
        if isinstance(one, DisjointSetts) and isinstance(two, DisjointSetts):
            return 0, self.extent
        if self.ends is None or other.ends is None:
            return 0, 0
        lo, hi = max(self.ends[0], other.ends[0]), min(self.ends[1], other.ends[1]) + 1
        return lo, max(lo, hi)


def read_cells(
    pieces: Iterable[Piece],
    source: int,
    shape: Sequence[int],
    home: Sequence[int],
    extent: int,
    find_products: Callable[[], IndexProducts | None] = no_products,
) -> Cells:
    """Return the cells of source number `source`, an allocation of shape `home`, that a view reads.

    Parameters
    ----------
    pieces : iterable of Piece
        Of the view.
    source : int
    shape, home : sequence of int
        Of the view and of the allocation.
    extent : int
        The allocation's number of cells.
    find_products : callable, optional
        Returns the products of indices that the view reads, if they are few.
    """
    mine = tuple(piece for piece in pieces if piece.source == source)
    return Cells.of_pieces(mine, tuple(shape), tuple(home), extent, find_products)


def filled_cells(
    chain: Sequence[DisjointSetts],
    pieces: Sequence[Piece],
    shape: tuple[int, ...],
    home: tuple[int, ...],
    strides: Strided | None,
    find_products: Callable[[], IndexProducts | None] = no_products,
) -> Cells:
    """Return the cells of an allocation of shape `home` that a view reads, where sets are known.

    Parameters
    ----------
    chain : sequence of DisjointSetts
        Each of them is filled with the next, so that the first holds the view's cells.
    pieces : sequence of Piece
        Of the view, those that read the allocation; they are not looked at here.
    shape, home : tuple of int
        Of the view and of the allocation.
    strides : Strided or None
        The view as strides over the row-major numbers, if it is strided.
    find_products : callable, optional
        Returns the products of indices that the view reads, if they are few.
    """
    extent = prod(home)
    setts = chain[0] if len(chain) == 1 else in_few_setts(filled(chain), extent)
    return Cells(shape, pieces, home, extent, setts, strides=strides, find_products=find_products)


def product_cells(
    found: IndexProducts, pieces: Sequence[Piece], shape: tuple[int, ...], home: tuple[int, ...]
) -> Cells:
    """Return the cells of an allocation of shape `home` that a view of `shape` reads: few products of indices."""
    return Cells(shape, pieces, home, prod(home), None, products=found)


def filled(chain: Sequence[Integers]) -> Integers:
    """Return the first set filled with the second, that with the third, and so on.

    They are filled from the last on, so that a question goes down the chain once.

    Examples
    --------
    >>> from tapestry_sets.integers import Stripe
    >>> print(filled([Sett(Stripe(6, 1)), Sett(Stripe(2, 1)), Sett(Stripe(1, 1))]))
    1..1...
    """
    *outers, ink = chain
    for outer in reversed(outers):
        ink = outer.fill(ink)
    return ink


def in_few_setts(s: Integers, extent: int) -> Integers:
    """Return the set listed, where that is quickly done; else questions go down its chain."""
    if isinstance(s, DisjointSetts):
        return s
    with limits(max_pieces=min(tuning.FEW_SETTS, current().max_pieces)):
        found = ask_one((TooManyPieces,), s.setts, (0, extent))
    return s if found is OPEN else found


def local_setts(pieces: tuple[Piece, ...], shape: tuple[int, ...], home: tuple[int, ...]) -> DisjointSetts | None:
    """Return the row-major numbers of the cells that a view's pieces read of its one source, None if not few setts."""
    mine = tuple(piece for piece in pieces if piece.source == 0)
    if find_bands(mine, shape) is not None:
        return None  # a sett for each row
    with limits(max_pieces=min(tuning.MAX_SETTS, current().max_pieces)):
        found = ask_one((TooManyPieces,), flatten_pieces, mine, shape, home, prod(home))
    return found if isinstance(found, DisjointSetts) else None
