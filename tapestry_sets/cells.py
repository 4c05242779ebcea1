"""The cells of one allocation that a view reads, as a set of row-major numbers.

The numbers come straight from the view's pieces, as setts where they are few. Where an explicit set would shatter,
they are the elements of one set whose numbers are in the next, and so on, as far as a chain of views reads its sources
in order. What these do not answer is listed for a small view, and for a large one isl decides, within a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from math import gcd, lcm, prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tapestry_sets import isl
from tapestry_sets.affine import AffineMap, Box
from tapestry_sets.explicit import merge_nests
from tapestry_sets.limits import TooHard, TooManyPieces, current, limits
from tapestry_sets.maps import (
    INT64_MAX,
    IndexMap,
    Piece,
    Relinearize,
    flatten_affine,
    flatten_grid,
    image_to_isl,
    is_injective,
    push,
    read_points,
    stays_injective,
)
from tapestry_sets.nest import Nest, contains_each, in_window, nth_each, rank_each
from tapestry_sets.progression import Progression, combine, explicit_setts, interval
from tapestry_sets.region import Regions, unflatten
from tapestry_sets.sett import Filled, Integers, Sett, Setts
from tapestry_sets.stripe import Int64Array

T = TypeVar("T")

COUNT_LIMIT = 2_000_000
"""How many cells may be counted one by one, where nothing better answers, before `TooHard` is raised."""
LIST_LIMIT = 100_000
"""A view of at most so many cells is listed rather than handed to isl, where its cells are no few setts."""
MAX_CORNER_RANK = 10
"""Views of a higher rank have too many corners to look at."""
FEW = 200
"""How many setts a set may be where it can be held by its chain instead."""
MOST_LISTED = 8_000_000
"""How many elements of a filled set may be listed, all at once, where closed forms end."""
LEAPS = 50
"""How many times a search goes from set to set before it goes into the chains."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of an allocation that a view reads.

    Parameters
    ----------
    shape : tuple of int
        Of the view.
    pieces : tuple of Piece
        Those that read the allocation.
    home : tuple of int
        The allocation's shape.
    extent : int
        Its number of cells.
    setts : Setts, Filled or None
        The cells' row-major numbers in [0, extent); None where they need too many setts and are no filled sets.
    """

    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    home: tuple[int, ...]
    extent: int
    setts: Integers | None

    @property
    def is_empty(self) -> bool:
        """Whether no cell is read."""
        if self.setts is not None:
            return self.setts.first(0, self.extent) is None
        numbers = self.listed(LIST_LIMIT)
        if numbers is not None:
            return not len(numbers)
        points = self.to_isl()
        return bool(self._ask("whether a view reads anything", points.is_empty))

    @property
    def size(self) -> int:
        """How many different cells there are; TooHard if they are too many to count one by one."""
        if self.setts is not None:
            return self.setts.count(0, self.extent)
        if len(self.pieces) == 1 and not self.pieces[0].guards and stays_injective(self.pieces[0], Box.of(self.shape)):
            return prod(self.shape)
        numbers = self.listed(COUNT_LIMIT)
        if numbers is not None:
            return len(numbers)
        return self._counted(self.to_isl(), f"the cells that {self._name} reads")

    def _counted(self, points: Any, what: str) -> int:
        refusal = TooHard(
            f"counting {what} needs a scan of more than {COUNT_LIMIT} candidates; overlaps() and the witness do not"
        )
        operations = isl.COUNT_OPERATIONS * len(self.pieces)
        count = isl.bounded(lambda: isl.count_points(points, COUNT_LIMIT), refusal, operations)
        if count is None:
            raise refusal
        return count

    @property
    def _name(self) -> str:
        return f"a view of shape {self.shape}"

    def _ask(self, what: str, question: Callable[[], T], operations: int = isl.MAX_OPERATIONS) -> T:
        """What isl answers within its limit for each of the pieces."""
        why = (
            f"{what}: the cells that {self._name} reads of an allocation of shape {self.home} are no few setts and too "
            "many to list"
        )
        if not isl.available():
            raise TooHard(f"{why}, and isl, which might decide it, is not installed: pip install islpy")
        refusal = TooHard(f"{why}, and isl needs more than {operations} operations; ask about a part of the view")
        return isl.bounded(question, refusal, operations * len(self.pieces))

    def listed(self, limit: int) -> Int64Array | None:
        """Return the different row-major numbers, ascending; None if the view has more than `limit` cells.

        Also None where a number may exceed 64 bits.
        """
        if prod(self.shape) > limit:
            return None
        points = np.indices(self.shape, np.int64).reshape(len(self.shape), prod(self.shape)).T
        try:
            each = [_numbers(read_points(piece, points), self.home) for piece in self.pieces]
        except OverflowError:
            return None
        return np.unique(np.concatenate([np.empty(0, np.int64), *each]))

    def _listed_common(self, other: Cells, limit: int) -> Int64Array | None:
        """The numbers in both, listed from one whose setts are too many; None if that cannot be done."""
        one, two = (other, self) if isinstance(self.setts, Setts) else (self, other)
        numbers = one.listed(limit)
        if numbers is None:
            return None
        if isinstance(two.setts, Setts):
            keep = np.zeros(len(numbers), bool)
            for member in two.setts.members:
                keep |= contains_each(member.nest, numbers)
            return numbers[keep]
        others = two.listed(limit)
        return None if others is None else np.intersect1d(numbers, others, assume_unique=True)

    def to_isl(self) -> Any:
        """Return the row-major numbers as an islpy.Set."""
        if isinstance(self.setts, Setts) and isl.available():
            return isl.to_isl(self.setts).intersect(isl.box_set((0,), (self.extent,)))
        return self._ask("the cells as isl's set", self._isl_numbers, isl.BUILD_OPERATIONS)

    def _isl_numbers(self) -> Any:
        found = image_to_isl(self.pieces, Box.of(self.shape))
        return found.apply(isl.relinearize_map(self.home, (self.extent,)))

    def explicit(self) -> Setts:
        """Return the setts, or raise TooManyPieces."""
        if isinstance(self.setts, Setts):
            return self.setts
        if self.setts is not None:
            with suppress(TooManyPieces):
                return self.setts.setts(within=(0, self.extent))
            with suppress(TooManyPieces):
                return _flat_setts(self.pieces, self.shape, self.home, self.extent)
        raise TooManyPieces(
            f"the cells that a view of shape {self.shape} reads need too many setts to be written out; "
            "overlaps() and overlap(…).witness answer without"
        )

    def regions(self) -> Regions:
        """Return the cells in the allocation's coordinates."""
        return unflatten(self.explicit(), self.home)

    # -- two sets of cells of one allocation ----------------------------------------------------------

    def meets(self, other: Cells) -> bool:
        """Return whether some cell is in both."""
        if self.setts is not None and other.setts is not None:
            with suppress(TooHard, TooManyPieces):
                return not is_disjoint(self.setts, other.setts, 0, self.extent)
        common = self._listed_common(other, LIST_LIMIT)
        if common is not None:
            return len(common) > 0
        mine, theirs = self.to_isl(), other.to_isl()
        return not self._ask("whether two views overlap", lambda: mine.is_disjoint(theirs))

    def issubset(self, other: Cells) -> bool:
        """Return whether every cell is in `other`."""
        if self.setts is not None and other.setts is not None:
            with suppress(TooHard, TooManyPieces):
                return is_subset(self.setts, other.setts, 0, self.extent)
        common = self._listed_common(other, LIST_LIMIT)
        if common is not None:
            return len(common) == self.size
        mine, theirs = self.to_isl(), other.to_isl()
        return bool(self._ask("whether a view contains another", lambda: mine.is_subset(theirs)))

    def count_common(self, other: Cells) -> int:
        """Return how many cells are in both; TooHard if they are too many to count one by one."""
        if self.setts is not None and other.setts is not None:
            with suppress(TooHard, TooManyPieces):
                return count_common(self.setts, other.setts, 0, self.extent)
        common = self._listed_common(other, COUNT_LIMIT)
        if common is not None:
            return len(common)
        return self._counted(self.to_isl().intersect(other.to_isl()), "the cells that two views share")

    def common_regions(self, other: Cells) -> Regions:
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
        if isinstance(self.setts, Setts) and isinstance(other.setts, Setts):
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
        if self.setts is not None and other.setts is not None:
            with suppress(TooHard, TooManyPieces):
                return first_common(self.setts, other.setts, 0, self.extent)
        common = self._listed_common(other, LIST_LIMIT)
        if common is not None:
            return int(common[0]) if len(common) else None
        both = self.to_isl().intersect(other.to_isl())
        point = self._ask("a common cell", lambda: isl.a_point(both))
        return None if point is None else int(point[0])

    # -- the view's side ------------------------------------------------------------------------------

    def is_run(self) -> bool:
        """Return whether the cells are one gapless run of the allocation."""
        if self.setts is not None:
            first, count = self.setts.find(0), self.setts.count(0, self.extent)
            return first is None or not count or self.setts.nth(count - 1) - first + 1 == count
        corners = self._corners()
        if corners and max(corners) - min(corners) >= prod(self.shape):
            return False  # farther apart than all cells together are long
        z = self.listed(COUNT_LIMIT)
        if z is not None:
            return not len(z) or int(z[-1]) - int(z[0]) + 1 == len(z)
        what = "whether a view is contiguous"
        numbers = self.to_isl()
        bounds = self._ask(what, lambda: isl.bounds_of(numbers))
        if bounds is None:
            return True
        return bool(self._ask(what, lambda: isl.box_set(*bounds).is_subset(numbers), isl.COUNT_OPERATIONS))

    def _corners(self) -> list[int]:
        """The numbers read at the view's corners, where it has not too many."""
        if len(self.shape) > MAX_CORNER_RANK or 0 in self.shape:
            return []
        flatten = Relinearize(self.home, (self.extent,))
        corners = product(*({0, n - 1} for n in self.shape))
        read = (_cell_read(piece, at) for at in corners for piece in self.pieces)
        return [flatten.apply(cell)[0] for cell in read if cell is not None]

    def index_of(self, cell: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return an index of the view that reads a cell of the allocation, or None."""
        for piece in self.pieces:
            guess = _invert(piece.map, cell)
            if guess is not None and _reads(piece, guess, cell, self.shape):
                return guess
        return self._ask("an index that reads a cell", lambda: self._isl_index(cell), isl.BUILD_OPERATIONS)

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
    chain: Sequence[Setts] = (),
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
    chain : sequence of Setts
        Where they are known, sets each of which is filled with the next, so that the first holds the view's cells.
    """
    mine = tuple(piece for piece in pieces if piece.source == source)
    setts: Integers | None = None
    if chain:
        setts = _in_few_setts(filled(chain), extent)
    else:
        with suppress(TooManyPieces):
            setts = _flat_setts(mine, tuple(shape), tuple(home), extent)
    return Cells(tuple(shape), mine, tuple(home), extent, setts)


def local_setts(pieces: tuple[Piece, ...], shape: tuple[int, ...], home: tuple[int, ...]) -> Setts | None:
    """Return the row-major numbers of the cells that a view's pieces read of its one source, None if not few setts."""
    with suppress(TooManyPieces), limits(max_pieces=min(FEW, current().max_pieces)):
        return _flat_setts(tuple(piece for piece in pieces if piece.source == 0), shape, home, prod(home))
    return None


def _flat_setts(pieces: tuple[Piece, ...], shape: tuple[int, ...], home: tuple[int, ...], extent: int) -> Setts:
    if 0 in shape or not extent:
        return Setts()
    total: Setts | None = None
    for piece in pieces:
        runs, apart = _flat_runs(piece, shape, home)
        if len(runs) == len(pieces) == 1:  # a plain chain
            return explicit_setts(runs[0], extent)
        parts = [explicit_setts(run, extent) for run in dict.fromkeys(runs)]
        if apart and len(parts) > 1:
            parts = [Setts._of(merge_nests(member.nest for part in parts for member in part.members))]
        for part in parts:
            total = part if total is None else total.union(part, within=(0, extent))
    return Setts() if total is None else total


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


# ------------------------------------------------------------------------------------------- two filled sets


def filled(chain: Sequence[Integers]) -> Integers:
    """Return the first set filled with the second, that with the third, and so on.

    They are filled from the last on, so that a question goes down the chain once.

    Examples
    --------
    >>> from tapestry_sets.stripe import Stripe
    >>> print(filled([Sett(Stripe(6, 1)), Sett(Stripe(2, 1)), Sett(Stripe(1, 1))]))
    1..1...
    """
    *outers, ink = chain
    for outer in reversed(outers):
        ink = outer.fill(ink)
    return ink


def _in_few_setts(s: Integers, extent: int) -> Integers:
    """Return the set listed, where that is quickly done."""
    if isinstance(s, Setts):
        return s
    with suppress(TooManyPieces), limits(max_pieces=min(FEW, current().max_pieces)):
        return s.setts(within=(0, extent))
    return s


class _Pair(NamedTuple):
    """Two sets in the window [lo, hi), by their numbers in an outer set."""

    one: Integers
    two: Integers
    lo: int
    hi: int
    outer: Integers = Sett()

    @property
    def is_explicit(self) -> bool:
        return not isinstance(self.one, Filled) and not isinstance(self.two, Filled)

    def inside(self) -> _Pair | None:
        """Return the elements of both in the outer set of one, by their numbers there, if these are few setts."""
        for outer in [s.outer for s in (self.one, self.two) if isinstance(s, Filled)]:
            one = _numbers_in(outer, self.one)
            two = None if one is None else _numbers_in(outer, self.two)
            if one is not None and two is not None:
                return _Pair(one, two, outer.rank(self.lo), outer.rank(self.hi), outer)
        return None

    def narrowed(self) -> tuple[_Pair, int]:
        """Return the pair in which blocks of a width that all lengths share are single integers, and that width."""
        f = gcd(*_lengths(self.one), *_lengths(self.two), self.lo, self.hi)
        if f < 2:
            return self, 1
        return _Pair(_divided(self.one, f), _divided(self.two, f), self.lo // f, self.hi // f), f


def _in_window(s: Integers, lo: int, hi: int) -> Integers:
    """Return a set that is right in the window, in a shorter period if it is explicit and may have one."""
    return s if isinstance(s, Filled) else Setts._of(in_window(nest, lo, hi) for nest in _nests(s))


def _numbers_in(outer: Integers, s: Integers) -> Integers | None:
    """Return the numbers, in `outer`, of the elements of s that it holds; None where they are no few setts."""
    if isinstance(s, Filled):
        return s.ink if s.outer == outer else None
    if s == outer:
        return Sett()
    with suppress(TooHard, TooManyPieces), limits(max_pieces=min(FEW, current().max_pieces)):
        return s.sample(outer).setts()
    return None


def _nests(s: Integers) -> tuple[Nest, ...]:
    assert isinstance(s, (Sett, Setts)), "views hold no other sets"
    return (s.nest,) if isinstance(s, Sett) else tuple(member.nest for member in s.members)


def _lengths(s: Integers) -> Iterator[int]:
    """Yield all lengths and phases of a set's levels."""
    if isinstance(s, Filled):
        yield from _lengths(s.outer)
        yield from _lengths(s.ink)
    else:
        yield from (length for nest in _nests(s) for level in nest for length in level)


def _divided(s: Integers, f: int) -> Integers:
    """Return the set of which s holds each element as a block of f; f divides all lengths."""
    if isinstance(s, Filled):
        return Filled(_divided(s.outer, f), _divided(s.ink, f))
    return Setts._of(tuple((a // f, P // f, p // f) for a, P, p in nest) for nest in _nests(s))


# -- their common elements


def is_disjoint(one: Integers, two: Integers, lo: int, hi: int) -> bool:
    """Return whether two sets of a view's cells share no integer in [lo, hi)."""
    pair = _Pair(one, two, lo, hi)
    return one.isdisjoint(two, within=(lo, hi)) if pair.is_explicit else _first(pair) is None


def first_common(one: Integers, two: Integers, lo: int, hi: int) -> int | None:
    """Return the smallest integer in [lo, hi) that two sets of a view's cells share, or None."""
    return _first(_Pair(one, two, lo, hi))


def _first(pair: _Pair) -> int | None:
    if pair.is_explicit:
        return pair.one.first_common(pair.two, pair.lo, pair.hi)
    for _ in range(LEAPS):
        x = pair.one.first(pair.lo, pair.hi)
        y = None if x is None else pair.two.first(x, pair.hi)
        if x is None or y is None or x == y:
            return y
        pair = pair._replace(lo=y)
    inner = pair.inside()
    if inner is None:
        return _first_apart(pair)
    k = _first(inner)
    return None if k is None else inner.outer.nth(k)


def _first_apart(pair: _Pair) -> int | None:
    """Return the first common element of sets neither of which is known by its numbers in the other's outer set."""
    for one, two in ((pair.one, pair.two), (pair.two, pair.one)):
        if isinstance(one, Filled) and isinstance(two, Filled):  # what is not even in an outer set is no element
            z = _first(_Pair(one.outer, two, pair.lo, pair.hi))
            if z is None:
                return None
            pair = pair._replace(lo=z)
    pair, width = pair.narrowed()
    common = _common(pair)
    return int(common[0]) * width if len(common) else None


def count_common(one: Integers, two: Integers, lo: int, hi: int) -> int:
    """Return how many integers in [lo, hi) two sets of a view's cells share."""
    return _count(_Pair(one, two, lo, hi))


def _count(pair: _Pair) -> int:
    if pair.is_explicit:
        return pair.one.count_common(pair.two, pair.lo, pair.hi)
    pair = pair._replace(one=_in_window(pair.one, pair.lo, pair.hi), two=_in_window(pair.two, pair.lo, pair.hi))
    one, two, lo, hi = pair[:4]
    P, Q = one.period, two.period
    whole, rest = divmod(hi - lo, lcm(P, Q))
    if gcd(P, Q) == 1 and not rest:  # by the Chinese remainder theorem
        return whole * one.count(0, P) * two.count(0, Q)
    inner = pair.inside()
    if inner is not None:
        return _count(inner)
    pair, width = pair.narrowed()
    return width * _count_listed(pair)


def _count_listed(pair: _Pair) -> int:
    """Return how many common elements there are, from lists of those of one common period, or less."""
    P, Q = pair.one.period, pair.two.period
    whole, rest = divmod(pair.hi - pair.lo, lcm(P, Q))
    total = len(_common(pair._replace(hi=pair.lo + rest)))
    if whole and gcd(P, Q) == 1:
        total += whole * pair.one.count(0, P) * pair.two.count(0, Q)
    elif whole:
        total += whole * len(_common(pair._replace(hi=pair.lo + lcm(P, Q))))
    return total


def is_subset(one: Integers, two: Integers, lo: int, hi: int) -> bool:
    """Return whether each integer in [lo, hi) of one set of a view's cells is in another."""
    return _is_subset(_Pair(one, two, lo, hi))


def _is_subset(pair: _Pair) -> bool:
    one, two, lo, hi = pair.one, pair.two, pair.lo, pair.hi
    if pair.is_explicit:
        return one.issubset(two, within=(lo, hi))
    many = one.count(lo, hi)
    if many > two.count(lo, hi):
        return False
    if not _lies_in_outer(pair):
        return False
    inner = pair.inside()
    return _is_subset(inner) if inner is not None else _count(pair) == many


def _lies_in_outer(pair: _Pair) -> bool:
    """Return whether the first set is in the outer set of the second, if that has one."""
    if not isinstance(pair.two, Filled):
        return True
    outer = pair.two.outer
    return outer in (pair.one, getattr(pair.one, "outer", None)) or _is_subset(pair._replace(two=outer))


# -- listed


def _common(pair: _Pair) -> Int64Array:
    """Return the common elements, ascending; TooHard where both sets hold too many, or too large ones."""
    few, other = sorted((pair.one, pair.two), key=lambda s: s.count(pair.lo, pair.hi))
    many = few.count(pair.lo, pair.hi)
    if many > MOST_LISTED or pair.hi >> 62:
        raise TooHard(f"cells of two views: of {many} cells or more below {pair.hi}, too many would be listed")
    z = _elements(few, pair.lo, pair.hi)
    return z[_are_in(other, z)]


def _elements(s: Integers, lo: int, hi: int) -> Int64Array:
    if not isinstance(s, Filled):
        return s.elements(lo, hi)
    return nth_each(_only_nest(s.outer), _elements(s.ink, s.outer.rank(lo), s.outer.rank(hi)))


def _are_in(s: Integers, z: Int64Array) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    keep = np.zeros(len(z), np.bool_)
    for nest in _nests(s.outer if isinstance(s, Filled) else s):
        keep |= contains_each(nest, z)
    if isinstance(s, Filled):
        keep[keep] = _are_in(s.ink, rank_each(_only_nest(s.outer), z[keep]))
    return keep


def _only_nest(s: Integers) -> Nest:
    nests = _nests(s)
    if len(nests) != 1:
        raise TooHard(f"cells of a view among those of {len(nests)} setts are not listed")
    return nests[0]


def _numbers(cells: Int64Array, home: tuple[int, ...]) -> Int64Array:
    """The row-major numbers of cells of an allocation."""
    if len(home) == 1:
        return cells[:, 0]
    if prod(home) > INT64_MAX:
        raise OverflowError(f"an allocation of shape {home} has more cells than int64 can number")
    numbers = np.zeros(len(cells), np.int64)
    for n, x in zip(home, cells.T, strict=True):
        numbers = numbers * n + x
    return numbers


def _invert(chain: IndexMap, cell: tuple[int, ...]) -> tuple[int, ...] | None:
    """A point that the chain may take to a cell: sure for chains of single terms, for others a guess to check."""
    at: tuple[int, ...] | None = cell
    for step in reversed(chain.steps):
        if at is None:
            return None
        if isinstance(step, Relinearize):
            at = Relinearize(step.to_shape, step.from_shape).apply(at)
        else:
            at = _invert_affine(step, at)
    return at


def _invert_affine(step: AffineMap, target: tuple[int, ...]) -> tuple[int, ...] | None:
    """A point x >= 0 with step(x) = target, found row by row; None if this way finds none."""
    point: dict[int, int] = {}
    for row, b, y in zip(step.terms(), step.offset, target, strict=True):
        rest = y - b - sum(c * point[j] for j, c in row if j in point)
        free = [(j, c) for j, c in row if j not in point]
        for j, c in sorted(free, key=lambda term: -abs(term[1])):  # the large steps first, the small ones fill up
            point[j] = max(0, rest // c)
            rest -= c * point[j]
        if rest:
            return None
    return tuple(point.get(j, 0) for j in range(step.in_rank))


def _reads(piece: Piece, point: tuple[int, ...], cell: tuple[int, ...], shape: Sequence[int]) -> bool:
    """Whether the view's index `point` reads `cell` through this piece."""
    return all(0 <= x < n for x, n in zip(point, shape, strict=True)) and _cell_read(piece, point) == cell


def _cell_read(piece: Piece, point: tuple[int, ...]) -> tuple[int, ...] | None:
    """The source's cell that a view's index reads through this piece, None if a guard does not hold."""
    at = point
    for prefix in range(len(piece.map.steps) + 1):
        if any(g.prefix == prefix and at not in g.region for g in piece.guards):
            return None
        if prefix < len(piece.map.steps):
            at = piece.map.steps[prefix].apply(at)
    return at
