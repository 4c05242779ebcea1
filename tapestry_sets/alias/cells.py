"""The cells of one allocation that a view reads, as a set of row-major numbers.

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

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, TypeVar

import numpy as np

from tapestry_sets.alias.cell_sets import (
    FEW,
    count_common,
    ends_of,
    filled,
    first_beside,
    in_few_setts,
    is_subset,
    some_common,
    sums_common,
    sums_count,
    sums_of,
)
from tapestry_sets.alias.preimage import MOST_PRODUCTS, Turn, turned
from tapestry_sets.digits import Digits, Progression, combine, interleaved_copies, interval, reach, separated
from tapestry_sets.integers import (
    DisjointSetts,
    Int64Array,
    Integers,
    Nest,
    Sett,
    contains_each,
    explicit_setts,
    merge_nests,
    pairs,
    unions,
)
from tapestry_sets.integers import nest as nests
from tapestry_sets.limits import OPEN, Open, TooHard, TooManyPieces, current, limits
from tapestry_sets.regions import AffineMap, Box, DisjointRegions, unflatten
from tapestry_sets.solvers import equation, isl
from tapestry_sets.views import (
    Axis,
    Bools,
    IndexMap,
    Piece,
    Relinearize,
    are_read,
    bounding_boxes,
    cell_read,
    count_cells,
    first_within,
    flatten_affine,
    flatten_grid,
    has_one_inverse,
    image_to_isl,
    in_coordinates,
    indices_within,
    invert,
    is_injective,
    is_skew,
    listed,
    push,
    read_patches,
    reads_at,
    sampled,
    stays_injective,
)

T = TypeVar("T")

COUNT_LIMIT = 2_000_000
"""How many cells may be listed or counted one by one, where nothing better answers, before `TooHard` is raised."""
MAX_CORNER_RANK = 10
"""Views of a higher rank have too many corners to look at."""
MOST_COPIES = 8
"""Of a pattern whose copies lie within each other, how many are made one set of setts."""
MOST_PAIRS = 10_000
"""How many pairs of progressions are compared by equations."""
SAMPLE = 2_000
"""How many cells are tried for one in another view, where a set around those of a view is all that is held."""
TRIED = 48
"""How many common elements of such sets are tried."""
MOST_BOXES = 1_000
"""How many products of indices are looked at for those that read a cell."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of an allocation that a view reads.

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
    setts : DisjointSetts, Filled or None
        The cells' row-major numbers in [0, extent); None where they need too many setts and are no filled sets.
    sums : progression, optional
        The same numbers where many copies of a pattern lie within each other, and setts are not made of them.
    """

    shape: tuple[int, ...]
    pieces: Sequence[Piece]
    home: tuple[int, ...]
    extent: int
    setts: Integers | None
    sums: Progression | None = None
    _known: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether no cell is read."""
        if self.setts is not None:
            return self.setts.first(0, self.extent) is None
        if self.sums is not None or (0 not in self.shape and any(not piece.guards for piece in self.pieces)):
            return False
        return self._decided(self._none, lambda numbers: bool(numbers.is_empty()), "whether a view reads anything")

    def _none(self) -> bool | None:
        numbers = self.listed(COUNT_LIMIT)
        return None if numbers is None else not len(numbers)

    @property
    def size(self) -> int:
        """How many different cells there are; TooHard if they are too many to count one by one."""
        found = self.closed_size
        if found is not None:
            return found
        numbers = self.listed(COUNT_LIMIT)
        if numbers is not None:
            return len(numbers)
        mine = self.to_isl()
        return self._counted(lambda: mine, f"the cells that {self._name} reads")

    @property
    def closed_size(self) -> int | None:
        """How many different cells there are, None if that is not known without a list."""
        if self.setts is not None:
            return self.setts.count(0, self.extent)
        if self.sums is not None:
            with suppress(TooHard):
                if equation.equal_sums(self.sums[1]) is None:
                    return prod([count for count, _ in self.sums[1]])
            with suppress(TooManyPieces):
                return self.explicit().count(0, self.extent)
        if len(self.pieces) == 1 and not self.pieces[0].guards and stays_injective(self.pieces[0], Box.of(self.shape)):
            return prod(self.shape)
        return None

    def _counted(self, points: Callable[[], Any], what: str) -> int:
        refusal = TooHard(
            f"counting {what} needs a scan of more than {COUNT_LIMIT} candidates; overlaps() and the witness do not"
        )
        operations = isl.COUNT_OPERATIONS * len(self.pieces)
        count = isl.bounded(lambda: isl.count_points(points(), COUNT_LIMIT), refusal, operations)
        if count is None:
            raise refusal
        return count

    @property
    def _name(self) -> str:
        return f"a view of shape {self.shape}"

    def _ask(self, what: str, question: Callable[[], T], operations: int) -> T:
        """What isl answers within its limit for each of the pieces."""
        why = (
            f"{what}: the cells that {self._name} reads of an allocation of shape {self.home} are no few setts and too "
            "many to list"
        )
        if not isl.available():
            raise TooHard(f"{why}, and isl, which might decide it, is not installed: pip install islpy")
        refusal = TooHard(f"{why}, and isl needs more than {operations} operations; ask about a part of the view")
        return isl.bounded(question, refusal, operations * len(self.pieces))

    def _decided(self, by_list: Callable[[], T | None], by_isl: Callable[..., T], what: str, *others: Cells) -> T:
        """What isl answers about the numbers, else a list of them; `by_list` returns None where they are too many."""
        try:
            numbers = [cells.to_isl() for cells in (self, *others)]
            return self._ask(what, lambda: by_isl(*numbers), isl.MAX_OPERATIONS)
        except TooHard:
            found = by_list()
            if found is None:
                raise
            return found

    def listed(self, limit: int) -> Int64Array | None:
        """Return the different row-major numbers, ascending; None if the view has more than `limit` cells.

        Also None where a number may exceed 64 bits.
        """
        if prod(self.shape) > limit:
            return None
        with suppress(OverflowError):
            return listed(self.pieces, self.shape, self.home)
        return None

    def _listed_common(self, other: Cells) -> Int64Array | None:
        """The numbers in both, listed from one of them; None if that cannot be done."""
        sides = ((self, other), (other, self))
        for one, two in sorted(sides, key=lambda side: (isinstance(side[0].setts, DisjointSetts), prod(side[0].shape))):
            numbers = one.listed(COUNT_LIMIT)
            if numbers is None:
                continue
            keep = two._hold(numbers)
            if keep is not None:
                return numbers[keep]
            others = two.listed(COUNT_LIMIT)
            if others is not None:
                return np.intersect1d(numbers, others, assume_unique=True)
        return None

    def _hold(self, numbers: Int64Array) -> Bools | None:
        """Which of some numbers are those of cells; None if that is not known."""
        if isinstance(self.setts, DisjointSetts):
            keep = np.zeros(len(numbers), np.bool_)
            for member in self.setts.members:
                keep |= contains_each(member.nest, numbers)
            return keep
        with suppress(OverflowError):
            return are_read(self.pieces, self.shape, self.home, numbers)
        return None

    def to_isl(self, operations: int = isl.BUILD_OPERATIONS) -> Any:
        """Return the row-major numbers as an islpy.Set, made in at most so many of isl's operations."""
        if isinstance(self.setts, DisjointSetts) and isl.available():
            return isl.to_isl(self.setts).intersect(isl.box_set((0,), (self.extent,)))
        return self._ask("the cells as isl's set", self._isl_numbers, operations)

    def _isl_numbers(self) -> Any:
        found = image_to_isl(self.pieces, Box.of(self.shape))
        return found.apply(isl.relinearize_map(self.home, (self.extent,)))

    def explicit(self) -> DisjointSetts:
        """Return the setts, or raise TooManyPieces."""
        if isinstance(self.setts, DisjointSetts):
            return self.setts
        if self.setts is not None:
            with suppress(TooManyPieces):
                return self.setts.setts(within=(0, self.extent))
            with suppress(TooManyPieces):
                found = _flat_cells(self.pieces, self.shape, self.home, self.extent)
                if isinstance(found, DisjointSetts):
                    return found
        if self.sums is not None:
            with suppress(TooManyPieces):
                return explicit_setts(self.sums, self.extent)
        raise TooManyPieces(
            f"the cells that a view of shape {self.shape} reads need too many setts to be written out; "
            "overlaps() and overlap(…).witness answer without"
        )

    def progressions(self) -> list[Progression]:
        """Return the row-major numbers as few progressions.

        Those of setts are disjoint, and all sums of their steps differ; those of sums that lie within each other may
        be equal.

        Raises
        ------
        TooManyPieces
            If they are not few.
        """
        if self.sums is not None:
            return [self.sums]
        if not isinstance(self.setts, DisjointSetts) or len(self.setts.members) > FEW:
            raise TooManyPieces(f"the cells that {self._name} reads are no few progressions")
        return [p for member in self.setts.members for p in sums_of(member.nest, 0, self.extent)]

    def regions(self) -> DisjointRegions:
        """Return the cells in the allocation's coordinates."""
        return unflatten(self.explicit(), self.home)

    # -- two sets of cells of one allocation ----------------------------------------------------------

    def meets(self, other: Cells) -> bool:
        """Return whether some cell is in both."""
        with suppress(TooHard, TooManyPieces):
            return self._closed_common(other) is not None

        def by_list() -> bool | None:
            with suppress(TooHard, TooManyPieces):
                if self.setts is not None and other.setts is not None:
                    return some_common(self.setts, other.setts, 0, self.extent) is not None
            common = self._listed_common(other)
            return None if common is None else len(common) > 0

        return self._decided(by_list, lambda a, b: not a.is_disjoint(b), "whether two views overlap", other)

    def _closed_common(self, other: Cells) -> int | None:
        """Some number in both, or None; TooHard or TooManyPieces where that is open."""
        both = self.setts is not None and other.setts is not None
        with suppress(TooHard, TooManyPieces):
            if both:
                return some_common(self.around, other.around, 0, self.extent, may_list=False, by_isl=False)
        with suppress(TooHard, TooManyPieces):
            return self._common_within(other)
        if self._shatters or other._shatters:
            z = self._sampled_common(other)
            if z is not None:
                return z
        with suppress(TooHard, TooManyPieces):
            return self._common_before(other)
        if both:
            return some_common(self.around, other.around, 0, self.extent, may_list=False)
        if self._shatters or other._shatters:
            return self._tried_common(other)
        for p, q in self._pairs_with(other):
            z = sums_common(p, q)
            if z is not None:
                return z
        return None

    # -- a diagonal and a product of setts, in the allocation's coordinates

    @property
    def _diagonal(self) -> tuple[Piece, tuple[int, ...]] | None:
        """The cells as one skew piece and its shape, if the view is a diagonal or more."""
        if "diagonal" not in self._known:
            self._known["diagonal"] = self._found_diagonal()
        found: tuple[Piece, tuple[int, ...]] | None = self._known["diagonal"]
        return found

    def _found_diagonal(self) -> tuple[Piece, tuple[int, ...]] | None:
        if isinstance(self.setts, DisjointSetts) and self.setts.count(0, self.extent) == self.extent:
            return None  # a product, whatever the pieces
        if len(self.pieces) == 1 and is_skew(self.pieces[0]):
            return self.pieces[0], self.shape
        with suppress(TooManyPieces):
            runs = self.progressions()
            found = in_coordinates(runs[0], self.home) if len(runs) == 1 else None
            return found if found is not None and is_skew(found[0]) else None
        return None

    def _within(self, other: Cells) -> Iterator[tuple[Piece, list[Axis]]]:
        """The indices at which the diagonal of one reads within each region of the other.

        Raises
        ------
        TooManyPieces
            If none or both are diagonals, or the regions are not few.
        """
        one, two = (self, other) if self._diagonal is not None else (other, self)
        if one._diagonal is None or two._diagonal is not None:
            raise TooManyPieces("not one diagonal and one product")
        piece, shape = one._diagonal
        with limits(max_pieces=min(FEW, current().max_pieces)):
            regions = two.regions().members
            return iter([(piece, indices_within(piece, shape, region)) for region in regions])

    def _common_within(self, other: Cells) -> int | None:
        """The number of a cell that a diagonal reads within a product, or None; TooManyPieces as for `_within`."""
        for piece, axes in self._within(other):
            index = first_within(axes)
            if index is not None:
                return Relinearize(self.home, (self.extent,)).apply(piece.map.apply(index))[0]
        return None

    def _pairs_with(self, other: Cells) -> Iterable[tuple[Progression, Progression]]:
        mine, theirs = self.progressions(), other.progressions()
        if len(mine) * len(theirs) > MOST_PAIRS:
            raise TooManyPieces(f"two views of {len(mine)} and {len(theirs)} progressions are too many pairs")
        return product(mine, theirs)

    # -- where the cells are no few setts: the same question before the view's last renumbering

    @property
    def _turned(self) -> tuple[Cells, Turn] | None:
        """The numbers read before the last renumbering, and the steps from there on; see `preimage`."""
        if "turned" not in self._known:
            self._known["turned"] = None
            parts = turned(self.pieces[0], self.shape, self.home) if len(self.pieces) == 1 else None
            if parts is not None:
                piece, turn = parts
                inner = turn.renumbering.from_shape
                self._known["turned"] = read_cells((piece,), piece.source, self.shape, inner, turn.extent), turn
        known: tuple[Cells, Turn] | None = self._known["turned"]
        return known

    def _before(self, other: Cells) -> tuple[Cells, Cells, Turn]:
        """These cells and others by their numbers before this view's last turn, and the turn.

        The others' are all numbers that the turn takes to their cells.

        Raises
        ------
        TooManyPieces
            If these are setts, there is no turn, or the others' are not few.
        """
        if isinstance(self.setts, DisjointSetts) or self._turned is None:
            raise TooManyPieces(f"{self._name} is not asked before its last renumbering")
        head, turn = self._turned
        if other._turned is not None and not isinstance(other.setts, DisjointSetts) and other._turned[1].is_like(turn):
            return head, other._turned[0], turn
        with limits(max_pieces=min(MOST_PRODUCTS, current().max_pieces)):
            pulled = DisjointSetts._of(turn.pull(other._runs()))
        return head, Cells((pulled.count(0, turn.extent),), (), head.home, head.extent, pulled), turn

    def _runs(self) -> Iterator[Progression]:
        """The row-major numbers as disjoint progressions."""
        if not isinstance(self.setts, DisjointSetts):
            raise TooManyPieces(f"the cells that {self._name} reads are no setts")
        return (p for member in self.setts.members for p in sums_of(member.nest, 0, self.extent))

    def _common_before(self, other: Cells) -> int | None:
        """A common number, found before the last turn of one of the views, or None; TooManyPieces as for `_before`."""
        try:
            head, others, turn = self._before(other)
        except TooManyPieces:
            head, others, turn = other._before(self)
        z = head._closed_common(others)
        return None if z is None else turn.apply(z)

    def _is_subset_before(self, other: Cells) -> bool:
        """Whether others hold all these cells, told before the last turn of one; TooManyPieces as for `_before`."""
        with suppress(TooManyPieces):
            head, others, _ = self._before(other)
            return head._closed_subset(others)
        head, others, turn = other._before(self)
        if not turn.is_injective:
            raise TooManyPieces(f"a cell that {self._name} reads has several numbers")
        return others.closed_size == self.closed_size and others._closed_subset(head)

    def _count_before(self, other: Cells) -> int:
        """How many numbers are in both, counted before the last turn of one view; TooManyPieces as for `_before`."""
        try:
            head, others, turn = self._before(other)
        except TooManyPieces:
            head, others, turn = other._before(self)
        if not turn.is_injective:
            raise TooManyPieces(f"a cell that {self._name} reads has several numbers")
        return head._closed_count(others)

    # -- where the cells are no few setts: what is known of a set around them

    @property
    def _shatters(self) -> bool:
        return self.setts is None and self.sums is None

    @property
    def around(self) -> Integers:
        """A set that holds the numbers of all cells: they themselves if they are held, else as few more as is known."""
        if self.setts is not None:
            return self.setts
        if "around" not in self._known:
            self._known["around"] = _around(self.pieces, self.shape, self.home, self.extent)
        found: DisjointSetts = self._known["around"]
        return found

    def holds(self, number: int) -> bool:
        """Return whether a row-major number is that of a cell."""
        if self.setts is not None:
            return number in self.setts
        if self.sums is not None:
            return sums_common(self.sums, (number, ())) is not None
        return self.index_of(Relinearize((self.extent,), self.home).apply((number,))) is not None

    def _sampled_common(self, other: Cells) -> int | None:
        """A common number among some of each; None where none of these is."""
        for cells, others in ((self, other), (other, self)):
            sample = cells.sample
            keep = None if sample is None else others._hold(sample)
            if sample is not None and keep is not None and keep.any():
                return int(sample[keep][0])
        return None

    def _tried_common(self, other: Cells) -> int | None:
        """A common number among those that the sets around both share here and there; None if these share none."""
        one, two = self.around, other.around
        z = some_common(one, two, 0, self.extent, may_list=False)
        if z is None:
            return None
        last = min([ends[1] for s in (one, two) if (ends := ends_of(s, self.extent))])
        for k in range(TRIED):
            z = some_common(one, two, z + (last - z) * k // TRIED, last + 1, may_list=False)
            if z is None:
                break
            if self.holds(z) and other.holds(z):
                return z
        raise TooHard("no common cell is found among those tried")

    def _tried_subset(self, other: Cells) -> bool:
        """Whether a set around these cells is in others, or one of some cells is not; TooHard if both are open."""
        if other.setts is not None and is_subset(self.around, other.setts, 0, self.extent, may_list=False):
            return True
        sample = self.sample
        keep = None if sample is None else other._hold(sample)
        if keep is not None and not keep.all():
            return False
        raise TooHard("no cell outside is found among those tried")

    @property
    def sample(self) -> Int64Array | None:
        """The numbers of some cells, from all over the view; None where int64 may not hold them."""
        if "sample" not in self._known:
            self._known["sample"] = None
            with suppress(OverflowError):
                self._known["sample"] = sampled(self.pieces, self.shape, self.home, SAMPLE)
        found: Int64Array | None = self._known["sample"]
        return found

    def issubset(self, other: Cells) -> bool:
        """Return whether every cell is in `other`."""
        with suppress(TooHard, TooManyPieces):
            return self._closed_subset(other)

        def by_list() -> bool | None:
            with suppress(TooHard, TooManyPieces):
                if self.setts is not None and other.setts is not None:
                    return is_subset(self.setts, other.setts, 0, self.extent)
            common = self._listed_common(other)
            return None if common is None else len(common) == self.size

        return self._decided(by_list, lambda a, b: bool(a.is_subset(b)), "whether a view contains another", other)

    def _closed_subset(self, other: Cells) -> bool:
        """Whether every cell is in `other`; TooHard or TooManyPieces where that is open."""
        if self.setts is not None and other.setts is not None:
            with suppress(TooHard, TooManyPieces):
                return is_subset(self.setts, other.setts, 0, self.extent, may_list=False)
        plain = self._plainly_subset(other)
        if plain is not None:
            return plain
        with suppress(TooHard, TooManyPieces):
            return self._is_subset_before(other)
        if self._shatters or other._shatters:
            return self._tried_subset(other)
        size = self.closed_size
        if size is None:
            raise TooHard(f"how many cells {self._name} reads is not known")
        return self._closed_count(other) == size

    def _plainly_subset(self, other: Cells) -> bool | None:
        """What the same sums, the first and the last number, or a single one say of it; None if nothing."""
        if self is other:
            return True
        if self.sums is not None and other.sums is not None and self.sums[0] == other.sums[0]:
            counts = {step: count for count, step in other.sums[1]}
            if all(count <= counts.get(step, 0) for count, step in self.sums[1]):
                return True
        mine, theirs = self._first_and_last, other._first_and_last
        if mine is None:
            return None
        if theirs is not None and not theirs[0] <= mine[0] <= mine[1] <= theirs[1]:
            return False
        ends = [other.holds(z) for z in dict.fromkeys(mine)]
        return False if not all(ends) else True if len(ends) == 1 else None

    @property
    def _first_and_last(self) -> tuple[int, int] | None:
        """The least and the greatest number; None if none is read, or they are not known."""
        if self.setts is not None:
            return ends_of(self.setts, self.extent)
        return None if self.sums is None else (self.sums[0], self.sums[0] + reach(self.sums[1]))

    def count_common(self, other: Cells) -> int:
        """Return how many cells are in both; TooHard if they are too many to count one by one."""
        with suppress(TooHard, TooManyPieces):
            return self._closed_count(other)
        if self.setts is not None and other.setts is not None:
            with suppress(TooHard, TooManyPieces):
                return count_common(self.setts, other.setts, 0, self.extent)
        common = self._listed_common(other)
        if common is not None:
            return len(common)
        mine, theirs = self.to_isl(), other.to_isl()
        return self._counted(lambda: mine.intersect(theirs), "the cells that two views share")

    def _closed_count(self, other: Cells) -> int:
        """How many numbers are in both; TooHard or TooManyPieces where that is open."""
        with suppress(TooHard, TooManyPieces):
            return sum([count_cells(piece, axes) for piece, axes in self._within(other)])
        with suppress(TooHard, TooManyPieces):
            return self._count_before(other)
        if self.setts is not None and other.setts is not None:
            return count_common(self.setts, other.setts, 0, self.extent, may_list=False)
        pairs = self._pairs_with(other)
        for cells in (self, other):
            if cells.sums is not None and equation.equal_sums(cells.sums[1]) is not None:
                both = Cells.explicit(self), Cells.explicit(other)
                return count_common(*both, 0, self.extent, may_list=False)
        return sum([sums_count(p, q) for p, q in pairs])

    def common_regions(self, other: Cells) -> DisjointRegions:
        """Return the cells in both, in the allocation's coordinates."""
        if self.setts is None or other.setts is None:
            one, two = self.explicit(), other.explicit()  # one of which says why it cannot
            return unflatten((one & two).setts(within=(0, self.extent)), self.home)
        lo, hi = self._span(other)
        common = (self.setts & other.setts).setts(within=(lo, hi))
        if hi - lo < self.extent:  # the setts are right in the window alone
            common = common.intersection(Sett.interval(lo, hi, self.extent), within=(0, self.extent))
        return unflatten(common, self.home)

    def _span(self, other: Cells) -> tuple[int, int]:
        """A range that holds all common cells: where either set is held by its chain, the shortest."""
        if isinstance(self.setts, DisjointSetts) and isinstance(other.setts, DisjointSetts):
            return 0, self.extent
        lo, hi = 0, self.extent
        for s in (self.setts, other.setts):
            assert s is not None, "asked only where both are held"
            many = s.count(0, self.extent)
            first = s.first(0, self.extent)
            lo = self.extent if first is None else max(lo, first)
            hi = min(hi, s.nth(many - 1) + 1) if many else lo
        return lo, max(lo, hi)

    def a_common_cell(self, other: Cells) -> tuple[int, ...] | None:
        """Return a cell in both, or None."""
        z = self._common_number(other)
        return None if z is None else Relinearize((self.extent,), self.home).apply((z,))

    def _common_number(self, other: Cells) -> int | None:
        with suppress(TooHard, TooManyPieces):
            return self._closed_common(other)

        def by_isl(mine: Any, theirs: Any) -> tuple[int, ...] | None:
            return isl.a_point(mine.intersect(theirs))

        def by_list() -> tuple[int, ...] | None:
            with suppress(TooHard, TooManyPieces):
                if self.setts is not None and other.setts is not None:
                    z = some_common(self.setts, other.setts, 0, self.extent)
                    return None if z is None else (z,)
            common = self._listed_common(other)
            return None if common is None or not len(common) else (int(common[0]),)

        point = self._decided(by_list, by_isl, "a common cell", other)
        return None if point is None else int(point[0])

    def cell_beside(self, other: Cells | None) -> tuple[int, ...] | None:
        """Return a cell that is not in `other`, None if there is none; without an other, any cell."""
        z = self._common_number(self) if other is None else self._number_beside(other)
        return None if z is None else Relinearize((self.extent,), self.home).apply((z,))

    def _number_beside(self, other: Cells) -> int | None:
        if self.setts is not None and other.setts is not None:
            with suppress(TooHard, TooManyPieces):
                return first_beside(self.setts, other.setts, 0, self.extent, may_list=False)
        if self.issubset(other):
            return None

        def by_isl(mine: Any, theirs: Any) -> tuple[int, ...] | None:
            return isl.a_point(mine.subtract(theirs))

        def by_list() -> tuple[int, ...] | None:
            numbers, common = self.listed(COUNT_LIMIT), self._listed_common(other)
            if numbers is None or common is None:
                return None
            return (int(np.setdiff1d(numbers, common, assume_unique=True)[0]),)

        point = self._decided(by_list, by_isl, "a cell of a view that another does not read", other)
        return None if point is None else int(point[0])

    # -- the view's side ------------------------------------------------------------------------------

    def is_run(self) -> bool:
        """Return whether the cells are one gapless run of the allocation."""
        if self.setts is not None:
            ends = ends_of(self.setts, self.extent)
            return ends is None or ends[1] - ends[0] + 1 == self.setts.count(0, self.extent)
        if self.sums is not None:  # the shortest step is above 1, or the next one too long for its digit
            return False
        corners = self._corners()
        if corners and max(corners) - min(corners) >= prod(self.shape):
            return False  # farther apart than all cells together are long

        def by_isl(numbers: Any) -> bool:
            bounds = isl.bounds_of(numbers)
            return bounds is None or bool(isl.box_set(*bounds).is_subset(numbers))

        def by_list() -> bool | None:
            z = self.listed(COUNT_LIMIT)
            return None if z is None else not len(z) or int(z[-1]) - int(z[0]) + 1 == len(z)

        return self._decided(by_list, by_isl, "whether a view is contiguous")

    def _corners(self) -> list[int]:
        """The numbers read at the view's corners, where it has not too many."""
        if len(self.shape) > MAX_CORNER_RANK or 0 in self.shape:
            return []
        flatten = Relinearize(self.home, (self.extent,))
        corners = product(*({0, n - 1} for n in self.shape))
        read = (cell_read(piece, at) for at in corners for piece in self.pieces)
        return [flatten.apply(cell)[0] for cell in read if cell is not None]

    def index_of(self, cell: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return an index of the view that reads a cell of the allocation, or None."""
        for piece in self.pieces:
            guess = invert(piece.map, cell)
            if guess is not None and reads_at(piece, guess, cell, self.shape):
                return guess
        if all(has_one_inverse(piece) for piece in self.pieces):
            return None
        boxes = self.boxes()
        if boxes is OPEN:
            return self._ask("an index that reads a cell", lambda: self._isl_index(cell), isl.BUILD_OPERATIONS)
        number = Relinearize(self.home, (self.extent,)).apply(cell)[0]
        for (index, first), digits in boxes:
            found = equation.solve(number - first, [(count, by) for count, _, by in digits])
            if found is not None:
                index += sum([x * step for x, (_, step, _) in zip(found, digits, strict=True)])
                return Relinearize((prod(self.shape),), self.shape).apply((index,))
        return None

    def boxes(self) -> list[Digits] | Open:
        """Return what the view reads as digits of (index, cell), both row-major numbers, `OPEN` if they are not few."""
        if "boxes" not in self._known:
            self._known["boxes"] = self._read_boxes()
        boxes: list[Digits] | Open = self._known["boxes"]
        return boxes

    def _read_boxes(self) -> list[Digits] | Open:
        found: list[Digits] = []
        for piece in () if 0 in self.shape else self.pieces:
            boxes = read_patches(piece, self.shape, self.home, MOST_BOXES)
            if boxes is OPEN or len(found) + len(boxes) > MOST_BOXES:
                return OPEN
            found += boxes
        return found

    def _isl_index(self, cell: tuple[int, ...]) -> tuple[int, ...] | None:
        box, target = isl.box_set((0,) * len(self.shape), self.shape), isl.point_set(cell)
        found = (isl.a_point(target.apply(isl.to_isl(piece).reverse()).intersect(box)) for piece in self.pieces)
        return next((index for index in found if index is not None), None)


def read_cells(
    pieces: Iterable[Piece],
    source: int,
    shape: Sequence[int],
    home: Sequence[int],
    extent: int,
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
    """
    mine = tuple(piece for piece in pieces if piece.source == source)
    setts: DisjointSetts | None = None
    sums: Progression | None = None
    with suppress(TooManyPieces):
        found = _flat_cells(mine, tuple(shape), tuple(home), extent)
        if isinstance(found, DisjointSetts):
            setts = found
        else:
            sums = found
    return Cells(tuple(shape), mine, tuple(home), extent, setts, sums)


def filled_cells(
    chain: Sequence[DisjointSetts], pieces: Sequence[Piece], shape: Sequence[int], home: Sequence[int]
) -> Cells:
    """Return the cells of an allocation of shape `home` that a view reads, where sets are known.

    Parameters
    ----------
    chain : sequence of DisjointSetts
        Each of them is filled with the next, so that the first holds the view's cells.
    pieces : sequence of Piece
        Of the view, those that read the allocation; they are not looked at here.
    shape, home : sequence of int
        Of the view and of the allocation.
    """
    extent = prod(home)
    return Cells(tuple(shape), pieces, tuple(home), extent, in_few_setts(filled(chain), extent))


def local_setts(pieces: tuple[Piece, ...], shape: tuple[int, ...], home: tuple[int, ...]) -> DisjointSetts | None:
    """Return the row-major numbers of the cells that a view's pieces read of its one source, None if not few setts."""
    with suppress(TooManyPieces), limits(max_pieces=min(FEW, current().max_pieces)):
        found = _flat_cells(tuple(piece for piece in pieces if piece.source == 0), shape, home, prod(home))
        return found if isinstance(found, DisjointSetts) else None
    return None


def _flat_cells(
    pieces: Sequence[Piece], shape: tuple[int, ...], home: tuple[int, ...], extent: int
) -> DisjointSetts | Progression:
    """The row-major numbers of the cells that pieces read, as sums where these lie within each other too often."""
    if 0 in shape or not extent:
        return DisjointSetts()
    parts: list[list[Nest]] = []
    for piece in pieces:
        runs, apart = _flat_runs(piece, shape, home)
        if any(interleaved_copies(run[1]) > MOST_COPIES for run in runs):
            single = [q for run in runs for q in separated(run)]
            if not any(interleaved_copies(run[1]) > MOST_COPIES for run in single):
                runs, apart = single, False
        if len(runs) == len(pieces) == 1:  # a plain chain
            return runs[0] if interleaved_copies(runs[0][1]) > MOST_COPIES else explicit_setts(runs[0], extent)
        each = [[m.nest for m in explicit_setts(run, extent).members] for run in dict.fromkeys(runs)]
        parts += [merge_nests(nest for part in each for nest in part)] if apart and len(each) > 1 else each
    return DisjointSetts._reduced(_union(parts, extent))


def _union(parts: list[list[Nest]], extent: int) -> list[Nest]:
    """The union of disjoint unions: parts apart from all others are only put beside them."""
    sizes = [sum([nests.count(s, 0, extent) for s in part]) for part in parts]
    order = sorted(range(len(parts)), key=lambda k: -sizes[k])
    few = [k for k in order if sizes[k] <= MOST_LISTED] if len(parts) > FEW else []
    total: list[Nest] = []
    is_merged = True
    for k in order[: len(order) - len(few)]:
        if total and _are_apart(total, parts[k], extent):
            total = [*total, *parts[k]]
            is_merged = False
            continue
        with suppress(TooHard):
            if is_subset(DisjointSetts._of(parts[k]), DisjointSetts._of(total), 0, extent, may_list=False):
                continue
        total = unions.union(total, parts[k], (0, extent)) if total else parts[k]
        is_merged = True
    if few:
        total = [*total, *_beside(total, [parts[k] for k in few], extent)]
    return total if is_merged and not few else merge_nests(total)


MOST_LISTED = 16
"""Of many parts, those of so few numbers are compared by these."""


def _beside(total: Sequence[Nest], parts: Sequence[Sequence[Nest]], extent: int) -> list[Nest]:
    """The numbers of short parts that are neither in a union nor in a part before, as disjoint nests."""
    found: list[Nest] = []
    seen: set[int] = set()
    for part in parts:
        for nest in part:
            numbers = [nests.nth(nest, k) for k in range(nests.count(nest, 0, extent))]
            new = [z for z in numbers if z not in seen and not any(nests.contains(s, z) for s in total)]
            seen.update(new)
            found += [nest] if len(new) == len(numbers) else [m for z in new for m in _single(z, extent)]
    return found


def _single(z: int, extent: int) -> list[Nest]:
    return [m.nest for m in explicit_setts((z, ()), extent).members]


def _are_apart(xs: Sequence[Nest], ys: Sequence[Nest], extent: int) -> bool:
    """Whether two unions surely share no number in [0, extent)."""
    for y in ys:
        start, stop = _ends(y, extent)
        for x in xs:
            low, high = _ends(x, extent)
            if low < stop and start < high and not _miss(x, y, max(low, start), min(high, stop)):
                return False
    return True


def _miss(x: Nest, y: Nest, lo: int, hi: int) -> bool:
    with suppress(TooHard):
        return pairs.first_common(x, y, lo, hi) is None
    return False


def _ends(s: Nest, extent: int) -> tuple[int, int]:
    """Bounds of a nest's numbers in [0, extent)."""
    if not s or s[0][1] != extent or s[0][2] + s[0][0] > extent:
        return 0, extent
    return s[0][2], s[0][2] + s[0][0]


def _around(pieces: Iterable[Piece], shape: tuple[int, ...], home: tuple[int, ...], extent: int) -> DisjointSetts:
    """A set of numbers that pieces which shatter read at most: what their last map makes of the box before it."""
    total: list[Nest] = []
    for piece in pieces:
        last = max((k for k, step in enumerate(piece.map.steps) if isinstance(step, AffineMap)), default=0)
        box = bounding_boxes(piece.map, Box.of(shape), last)[last]
        shift = AffineMap.select(box.rank, [(axis, 1) for axis in range(box.rank)], list(box.start))
        rest = Piece(0, (), IndexMap((shift, *piece.map.steps[last:])).simplify())
        (run,), _ = _flat_runs(rest, box.shape, home)
        if run[0] < 0 or run[0] + reach(run[1]) >= extent or interleaved_copies(run[1]) > 1:  # as where guards cut it
            return DisjointSetts._of([()])
        total = unions.union(total, [m.nest for m in explicit_setts(run, extent).members], (0, extent))
        if len(total) > FEW:
            return DisjointSetts._of([()])
    return DisjointSetts._of(total)


def _flat_runs(piece: Piece, shape: tuple[int, ...], home: tuple[int, ...]) -> tuple[list[Progression], bool]:
    """The row-major numbers of the cells that one piece reads, and whether no number is in two progressions."""
    steps = piece.map.steps
    grid = tuple([interval(0, n) for n in shape])
    stop, last_guard = len(steps), max([g.prefix for g in piece.guards], default=0)
    if stop > last_guard:
        last = steps[-1]
        if isinstance(last, Relinearize) and last.to_shape[1:] == home[1:]:
            # the renumbering keeps row-major numbers: no need to split them into the allocation's axes
            stop, home = stop - 1, last.from_shape
    form = steps[stop - 1] if stop > last_guard else None
    if not isinstance(form, AffineMap):
        grids, apart = push(piece, [grid], stop)
        return [flatten_grid(grid, home) for grid in grids], apart
    grids, apart = push(piece, [grid], stop - 1)
    # the numbers are one linear form of the coordinates, also where these share axes
    offset, terms = flatten_affine(form, home)
    runs = [combine(offset, [(c, grid[k]) for k, c in terms]) for grid in grids]
    return runs, apart and (len(grids) < 2 or is_injective(form, grids))
