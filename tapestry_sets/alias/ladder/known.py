"""Known cells: those of a view as setts, sums of steps, or a set around them, before any question.

Each of these is found when it is first asked for, and kept. What cannot be found is None; nothing here raises because
a set is too large. The questions stand in `cells`, the ways to answer them in `ladder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, reduce
from itertools import product
from math import prod
from typing import Self, cast

import numpy as np
from msgspec import Struct

from tapestry_sets.alias import tuning
from tapestry_sets.alias.ladder.bands import Banded, read_bands
from tapestry_sets.alias.ladder.flat import flatten_pieces, set_around
from tapestry_sets.alias.ladder.preimage import Turn, turned
from tapestry_sets.digits import Digits, Progression, Strided, number_of, point_of, reach, sum_bits
from tapestry_sets.integers import (
    Bools,
    DisjointSetts,
    Int64Array,
    Integers,
    Nest,
    NestSpan,
    contains_each,
    ends_of,
    members,
)
from tapestry_sets.integers import nest as nests
from tapestry_sets.limits import OPEN, Open, TooManyPieces, ask_one, check_pieces, current, freeze_array, limits
from tapestry_sets.regions import AxisSet, AxisSets, Box, axis_products, axis_sets, flat
from tapestry_sets.views import INT64_MAX, IndexProducts, Piece, images, read_patches, reading


def no_products() -> IndexProducts | None:
    """Return that no products of indices are known."""
    return None


class KnownCells(Struct, frozen=True, dict=True, eq=False):
    """The cells of an allocation that a view reads, as far as they are known; equal to themselves alone.

    Parameters
    ----------
    shape : tuple of int
        Of the view.
    pieces : sequence of Piece
        Those that read the allocation.
    home : tuple of int
        The allocation's shape.
    extent : int
        Its number of cells.
    held : DisjointSetts, Filled or None
        The cells' row-major numbers in [0, extent); None where they need too many setts and are not filled sets.
    sums : progression, optional
        The same numbers where many copies of a pattern lie within each other, and setts are not made of them.
    strides : Strided, optional
        The view as strides over the row-major numbers, where it is known to be strided.
    products : IndexProducts, optional
        Few products of indices that the view reads, where questions are best asked of these.
    find_products : callable, optional
        Returns the products of other views, or None: for questions with a view that is known by its own.
    banded : Banded, optional
        The cells between diagonals of a product of indices, where the view reads such; setts are made if need be.
    """

    shape: tuple[int, ...]
    pieces: Sequence[Piece]
    home: tuple[int, ...]
    extent: int
    held: Integers | None
    sums: Progression | None = None
    strides: Strided | None = None
    products: IndexProducts | None = None
    find_products: Callable[[], IndexProducts | None] = no_products
    banded: Banded | None = None

    @classmethod
    def of_pieces(
        cls,
        pieces: Sequence[Piece],
        shape: tuple[int, ...],
        home: tuple[int, ...],
        extent: int,
        find_products: Callable[[], IndexProducts | None] = no_products,
    ) -> Self:
        """Return the known facts on the cells that pieces of one source read."""
        bands = find_bands(pieces, shape)
        if bands is not None:
            return cls(shape, pieces, home, extent, None, find_products=find_products, banded=bands)
        found = ask_one((TooManyPieces,), flatten_pieces, pieces, shape, home, extent)
        setts = found if isinstance(found, DisjointSetts) else None
        sums = None if found is OPEN or isinstance(found, DisjointSetts) else found
        return cls(shape, pieces, home, extent, setts, sums, find_products=find_products)

    @cached_property
    def axes(self) -> tuple[AxisSets, ...] | None:
        """The products of indices that the view reads, if they are few."""
        found = self.find_products() if self.products is None else self.products
        return None if found is None else found.each

    @cached_property
    def setts(self) -> Integers | None:
        """The row-major numbers that are held, or those of a product of few progressions, or between diagonals."""
        if self.banded is not None:
            with limits(max_pieces=min(tuning.MAX_SETTS, current().max_pieces)):
                made = ask_one((TooManyPieces,), flatten_pieces, self.pieces, self.shape, self.home, self.extent)
            return made if isinstance(made, DisjointSetts) else None
        found = None if self.held is not None else self.products
        if found is None or found.has_column or sum([prod(map(len, sets)) for sets in found.each]) > tuning.MAX_SETTS:
            return self.held
        joined = ask_one((TooManyPieces,), setts_of, found.each, self.home)
        return None if joined is OPEN else joined

    @cached_property
    def bands(self) -> Banded | None:
        """The cells as bands in a product of indices, none at least, if the view reads such."""
        if self.banded is not None or len(self.pieces) != 1:
            return self.banded
        return read_bands(self.pieces[0], self.shape)

    def __repr__(self) -> str:
        return f"<the cells that {self.name} reads of an allocation of shape {self.home}>"

    @property
    def name(self) -> str:
        """The view, for messages."""
        return f"a view of shape {self.shape}"

    @property
    def shatters(self) -> bool:
        """Whether the numbers are neither setts nor sums, nor a product of indices."""
        return self.products is None and self.banded is None and self.setts is None and self.sums is None

    @cached_property
    def spans(self) -> tuple[NestSpan, ...] | None:
        """The nests of the numbers, and where each begins and ends; None where they are not explicit setts."""
        if not isinstance(self.setts, DisjointSetts):
            return None
        return tuple(members.spans_of(self.setts._nests, 0, self.extent))

    @cached_property
    def ends(self) -> tuple[int, int] | None:
        """The least and the greatest number; None if none is read, or they are not known."""
        if self.spans:
            return min([first for first, _, _ in self.spans]), max([last for _, last, _ in self.spans])
        if self.setts is not None:
            return ends_of(self.setts, self.extent)
        if self.products is not None:
            return ends_of_products(self.products.each, self.home)
        return None if self.sums is None else (self.sums[0], self.sums[0] + reach(self.sums[1]))

    @cached_property
    def progressions(self) -> tuple[Progression, ...] | None:
        """The row-major numbers as few progressions; None where they are not few.

        Those of setts are disjoint, and all sums of their steps differ; those of sums that lie within each other may
        be equal.
        """
        if self.sums is not None:
            return (self.sums,)
        if not isinstance(self.setts, DisjointSetts) or len(self.setts.members) > tuning.MAX_SETTS:
            return None
        found = ask_one((TooManyPieces,), lambda: tuple(self.split()))
        return None if found is OPEN else found

    def split(self) -> Iterator[Progression]:
        """Yield setts as disjoint progressions; TooManyPieces if a sett is not few."""
        assert isinstance(self.setts, DisjointSetts), "only setts are split"
        return (p for m in self.setts.members for p in members.sums_of(m.nest, 0, self.extent))

    @property
    def bits(self) -> int | None:
        """The numbers as bits of an integer, made anew; None in long allocations and of neither sums nor few setts."""
        if self.extent > tuning.BIT_SPAN:
            return None
        if self.sums is not None:
            return sum_bits(self.sums[1]) << self.sums[0]
        if not isinstance(self.setts, DisjointSetts) or len(self.setts.members) > tuning.FEW_HELD:
            return None
        return nests.union_bits(self.setts._nests, 0, self.extent)

    # -- through the pieces ---------------------------------------------------------------------------

    def list_numbers(self, limit: int) -> Int64Array | None:
        """Return the different row-major numbers, ascending; None if the view has more than `limit` cells.

        Also None where a number may exceed 64 bits.
        """
        if self.products is not None:
            few = sum(map(axis_products.size_of, self.products.each)) <= limit and self.extent <= INT64_MAX
            return list_products(self.products.each, self.home) if few else None
        if prod(self.shape) > limit:
            return None
        with suppress(OverflowError):
            return reading.listed(self.pieces, self.shape, self.home)
        return None

    def hold_each(self, numbers: Int64Array) -> Bools | None:
        """Return which of some numbers are those of cells; None if that is not known."""
        if isinstance(self.setts, DisjointSetts):
            keep = np.zeros(len(numbers), np.bool_)
            for member in self.setts.members:
                keep |= contains_each(member.nest, numbers)
            return keep
        if self.products is not None:
            return axis_products.hold_each(self.products.each, point_of(numbers, self.home))
        with suppress(OverflowError):
            return reading.are_read(self.pieces, self.shape, self.home, numbers)
        return None

    @cached_property
    def sample(self) -> Int64Array | None:
        """The numbers of some cells, from all over the view; None where int64 may not hold them."""
        with suppress(OverflowError):
            return freeze_array(reading.sampled(self.pieces, self.shape, self.home, tuning.SAMPLE))
        return None

    @cached_property
    def around(self) -> Integers:
        """A set that holds the numbers of all cells: they themselves if they are held, else as few more as is known."""
        return set_around(self.pieces, self.shape, self.home, self.extent) if self.setts is None else self.setts

    @cached_property
    def diagonal(self) -> tuple[Piece, tuple[int, ...]] | None:
        """The cells as one skew piece and its shape, if the view is a diagonal or more."""
        if isinstance(self.setts, DisjointSetts) and self.setts.count(0, self.extent) == self.extent:
            return None  # a product, whatever the pieces
        if len(self.pieces) == 1 and reading.is_skew(self.pieces[0]):
            return self.pieces[0], self.shape
        if isinstance(self.setts, DisjointSetts) and len(self.setts.members) > 1:
            return None  # several progressions, of which none is a diagonal by itself
        if self.progressions is None or len(self.progressions) != 1:
            return None
        found = reading.in_coordinates(self.progressions[0], self.home)
        return found if found is not None and reading.is_skew(found[0]) else None

    @cached_property
    def turned(self) -> tuple[KnownCells, Turn] | None:
        """The numbers read before the last renumbering, and the steps from there on; see `preimage`."""
        parts = turned(self.pieces[0], self.shape, self.home) if len(self.pieces) == 1 else None
        if parts is None:
            return None
        piece, turn = parts
        return KnownCells.of_pieces((piece,), self.shape, turn.renumbering.from_shape, turn.extent), turn

    @cached_property
    def boxes(self) -> tuple[Digits, ...] | Open:
        """The view's reads as digits of (index, cell), both row-major numbers; `OPEN` where they are not few."""
        found: list[Digits] = []
        for piece in () if 0 in self.shape else self.pieces:
            boxes = read_patches(piece, self.shape, self.home, tuning.MAX_BOXES)
            if boxes is OPEN or len(found) + len(boxes) > tuning.MAX_BOXES:
                return OPEN
            found += boxes
        return tuple(found)

    @property
    def is_injective(self) -> bool:
        """Whether the view surely reads no cell twice."""
        one = self.pieces[0] if len(self.pieces) == 1 else None
        return one is not None and not one.guards and images.stays_injective(one, Box.of(self.shape))

    @property
    def corners(self) -> list[int]:
        """The numbers read at the view's corners, where it has not too many."""
        if len(self.shape) > tuning.MAX_CORNER_RANK or 0 in self.shape:
            return []
        corners = product(*({0, n - 1} for n in self.shape))
        read = (reading.cell_read(piece, at) for at in corners for piece in self.pieces)
        return [self.number_of(cell) for cell in read if cell is not None]

    def cell_of(self, number: int) -> tuple[int, ...]:
        """Return the cell of a row-major number."""
        return point_of(number, self.home)

    def number_of(self, cell: tuple[int, ...]) -> int:
        """Return the row-major number of a cell."""
        return cast(int, number_of(cell, self.home))


def find_bands(pieces: Sequence[Piece], shape: tuple[int, ...]) -> Banded | None:
    """Return the cells of one piece that is cut along diagonals as bands in a product, None if it is not."""
    found = read_bands(pieces[0], shape) if len(pieces) == 1 and any(g.prefix for g in pieces[0].guards) else None
    return None if found is None or not found.bands else found


def nests_of(sets: Sequence[AxisSet], shape: Sequence[int]) -> list[Nest]:
    """Return the row-major numbers of a product of indices in a box from zero as disjoint nests.

    Raises
    ------
    TooManyPieces
        If they are too many.
    """
    each = [axis_sets.nests_of(s, n) for s, n in zip(sets, shape, strict=True)]
    check_pieces(prod(map(len, each)), "the cells of a view")
    return [flat(choice, tuple(shape)) for choice in product(*each)]


def setts_of(each: Sequence[AxisSets], shape: Sequence[int]) -> DisjointSetts:
    """Return the row-major numbers of some products of indices, which may share some.

    Raises
    ------
    TooManyPieces
        If they are too many setts.
    """
    every = [DisjointSetts._joined(nests_of(sets, shape)) for sets in each]
    return reduce(lambda x, y: x.union(y, within=(0, prod(shape))), every, DisjointSetts._joined(()))


def ends_of_products(each: Sequence[AxisSets], shape: Sequence[int]) -> tuple[int, int] | None:
    """Return the least and the greatest row-major number of some products of indices, None if there are none."""
    if not each:
        return None
    low = min([number_of(tuple(map(axis_sets.least, sets)), shape) for sets in each])
    return low, max([number_of(tuple(map(axis_sets.greatest, sets)), shape) for sets in each])


def list_products(each: Sequence[AxisSets], home: tuple[int, ...]) -> Int64Array:
    """Return the row-major numbers of some products of indices, ascending."""
    found = []
    for sets in each:
        numbers = np.zeros(1, np.int64)
        for s, n in zip(sets, home, strict=True):
            numbers = np.add.outer(numbers * n, axis_sets.to_array(s)).ravel()
        found.append(numbers)
    return found[0] if len(found) == 1 else np.unique(np.concatenate([np.empty(0, np.int64), *found]))


def join_digits(digits: Sequence[int], strides: Strided) -> tuple[int, ...]:
    """Return the index whose axes have the given digits, one after another."""
    flat = iter(digits)
    index = []
    for levels in strides[1]:
        x = 0
        for count, _ in levels:
            x = x * count + next(flat)
        index.append(x)
    return tuple(index)
