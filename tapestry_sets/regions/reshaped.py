"""Reshaped sets: points of a box, held by their row-major numbers and not listed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import ClassVar

from tapestry_sets.digits import Ints, number_of, point_of, points_of
from tapestry_sets.integers import DisjointSetts, Int64Array, Integers, Intersection, Nest, Sett, Stripe, conjunction
from tapestry_sets.integers import nest as nests
from tapestry_sets.limits import (
    OPEN,
    TooManyPieces,
    Value,
    as_items,
    ask_one,
    check_pieces,
    make_unchecked,
    put_fields,
    quote,
)
from tapestry_sets.regions import rowmajor
from tapestry_sets.regions.axis import fill_axis, sample_axis
from tapestry_sets.regions.points import Points, RegionForms
from tapestry_sets.regions.region import Region, as_product, meet_regions, merge_members
from tapestry_sets.regions.regions import DisjointRegions, Members
from tapestry_sets.regions.rowmajor import NumberTerms
from tapestry_sets.regions.shapes import BoxKey, checked_box, length, select_ranges


class Reshaped(Members, Value):
    """Points of a box from zero that are held by their row-major numbers, not listed.

    `Region.reshape` makes it. The algebra stays in this form and lists nothing; questions are answered from the
    numbers, in closed form. What goes along an axis (`slice`, `transpose`, `flip`, `broadcast_to`, `reduce_to`,
    `shift`) goes through `explicit`, which lists the regions.

    Parameters
    ----------
    shape : sequence of int
        The extents of the box.
    parts : iterable of Stripe, Sett, DisjointSetts or Intersection
        Sets of row-major numbers; only those in [0, product of the shape) count, and there no two parts may
        share one.

    Attributes
    ----------
    terms : tuple of tuples of nests
        A disjoint union of conjunctions: a number is held if all nests of one term hold it.

    Raises
    ------
    ValueError
        If an extent is negative or two parts share a number; the message names its point.

    Examples
    --------
    >>> from tapestry_sets import Region
    >>> n = 10**9
    >>> half = Region.from_slices((n, n + 1), (slice(None), slice(n // 2))).reshape((n + 1, n))
    >>> left = Region.from_slices((n + 1, n), (slice(None), slice(n // 2)))
    >>> half.size == left.size - n // 2, half.isdisjoint(left), half.count_common(left) == (n // 2) ** 2
    (True, False, True)
    >>> (half - left).first_common(~left)
    (1, 500000000)
    """

    __match_args__ = ("shape", "terms", "start")
    __slots__ = (*__match_args__, "_found")
    shape: Ints
    terms: NumberTerms
    start: Ints
    _found: DisjointRegions | None
    is_numbered: ClassVar[bool] = True

    def __init__(self, shape: Sequence[int], parts: Iterable[Integers] = ()) -> None:
        box, _ = checked_box(shape, None)
        size = prod(box)
        terms: NumberTerms = ()
        for at, part in enumerate(as_items(parts, "Reshaped: parts", "sequence of parts")):
            more = rowmajor.tidy(_conjunctions(part, f"Reshaped: part {at}"), size)
            shared = conjunction.first_of_any(rowmajor.meet(terms, more, size), 0, size)
            if shared is not None:
                point = point_of(shared, box)
                raise ValueError(
                    f"Reshaped: part {at} shares number {shared}, the point {quote(point)}, with those before it"
                )
            terms += more
        put_fields(self, shape=box, terms=terms, start=(0,) * len(box), _found=None)

    @staticmethod
    def _of(shape: Ints, terms: NumberTerms) -> Reshaped:
        """Wrap terms that are known to be disjoint."""
        return make_unchecked(Reshaped, shape=shape, terms=terms, start=(0,) * len(shape), _found=None)

    def _with(self, terms: NumberTerms) -> Reshaped:
        return Reshaped._of(self.shape, terms)

    def __repr__(self) -> str:
        parts = [" & ".join(repr(Sett._of(s)) for s in term or ((),)) for term in self.terms]
        return f"Reshaped({self.shape}, [{', '.join(parts)}])"

    @property
    def _room(self) -> int:
        """How many points the box has."""
        return prod(self.shape)

    @property
    def size(self) -> int:
        """How many points the set has."""
        return conjunction.count_of_all(self.terms, 0, self._room)

    @property
    def is_empty(self) -> bool:
        """Whether the set has no points."""
        return conjunction.first_of_any(self.terms, 0, self._room) is None

    @property
    def is_box(self) -> bool:
        """Whether the points are all that lie in their bounds."""
        bounds = self.bounds()
        return bounds is None or prod(v - u for u, v in zip(*bounds, strict=True)) == self.size

    def explicit(self) -> DisjointRegions:
        """Return the points as regions, which are listed once and kept.

        Raises
        ------
        TooManyPieces
            If more than 10,000 regions are needed.

        Examples
        --------
        >>> from tapestry_sets import Region, Sett, Stripe
        >>> Region((3, 4), [Sett(), Stripe(1, 1)]).reshape((4, 3)).explicit()
        DisjointRegions((4, 3), [Region((4, 3), [Sett(Stripe(1, 1)), Sett(Stripe(1, 1))]),
                         Region((4, 3), [Sett(Stripe(1, 1, phase=1)), Sett(Stripe(1, 2, phase=1))])])
        """
        if self._found is None:
            is_plain = all(len(term) < 2 for term in self.terms)
            regions = self._products() if is_plain else ask_one((TooManyPieces,), self._products)
            if regions is OPEN:
                regions = [r for term in self.terms for r in _listed(term, self.shape)]
            put_fields(self, _found=DisjointRegions._of(self.shape, merge_members(regions), self.start))
        assert self._found is not None
        check_pieces(len(self._found), f"reshape to {self.shape}", rowmajor.NEEDS_NONE)
        return self._found

    def _products(self) -> list[Region]:
        found = [axes for s in self._numbers() for axes in rowmajor.products(s, self.shape)]
        return [Region._of(self.shape, axes, self.start) for axes in found]

    @property
    def members(self) -> tuple[Region, ...]:
        """The points as disjoint regions; see `explicit`."""
        return self.explicit().members

    @property
    def regions(self) -> tuple[Region, ...]:
        """The members."""
        return self.members

    def _holds(self, point: Ints) -> bool:
        inside = all(0 <= x < n for x, n in zip(point, self.shape, strict=True))
        return inside and rowmajor.contains(self.terms, number_of(point, self.shape))

    def _numbered(self) -> Reshaped:
        return self

    def _numbers(self) -> list[Nest]:
        return rowmajor.listed(self.terms, self._room)

    def points(self) -> Int64Array:
        """Return the points in row-major order, as an int64 array of shape (size, rank)."""
        return points_of(rowmajor.elements(self.terms, self._room), self.shape)

    def bounds(self) -> tuple[Ints, Ints] | None:
        """Return the smallest box that holds all points, as (lo, hi) with hi exclusive; None without points."""
        return rowmajor.bounds(self.terms, self.shape)

    def _terms_of(self, other: object, verb: str) -> NumberTerms:
        return self._same_box(other, verb)._terms

    def __and__(self, other: Points) -> Reshaped:
        return self._with(rowmajor.meet(self.terms, self._terms_of(other, "&"), self._room))

    def __sub__(self, other: Points) -> Reshaped:
        return self._with(rowmajor.subtract(self.terms, self._terms_of(other, "-"), self._room))

    def __or__(self, other: Points) -> Reshaped:
        theirs = self._terms_of(other, "|")
        return self._with(self.terms + rowmajor.subtract(theirs, self.terms, self._room))

    def __xor__(self, other: Points) -> Reshaped:
        theirs = self._terms_of(other, "^")
        mine = rowmajor.subtract(self.terms, theirs, self._room)
        return self._with(mine + rowmajor.subtract(theirs, self.terms, self._room))

    def _left(self, other: Region | DisjointRegions, verb: str) -> Reshaped:
        """Return the operand on the left, held by its numbers, if it is in this box."""
        one, two = (other, self) if isinstance(other, Points) else (self, other)
        one._same_box(two, verb)  # refuses what is not a set of points
        return other._numbered()

    def __rand__(self, other: Region | DisjointRegions) -> Reshaped:
        return self._left(other, "&") & self

    def __rsub__(self, other: Region | DisjointRegions) -> Reshaped:
        return self._left(other, "-") - self

    def __ror__(self, other: Region | DisjointRegions) -> Reshaped:
        return self._left(other, "|") | self

    def __rxor__(self, other: Region | DisjointRegions) -> Reshaped:
        return self._left(other, "^") ^ self

    def __invert__(self) -> Reshaped:
        return Region.full(self.shape)._numbered() - self

    def sample(self, at: Region | DisjointRegions) -> Reshaped:
        """Return the set in the coordinates of the points of `at`; see `Region.sample`.

        Raises
        ------
        TooManyPieces
            If the numbers at `at` are more than 10,000 pieces.
        """
        self._same_box(at, "sample")
        where = as_product(at, "sample: at")
        shape, size = where.counts, self._room
        if where.is_empty:
            return Reshaped._of(shape, ())
        there, many = rowmajor.flat(where.nests, where.shape), prod(shape)
        return Reshaped._of(shape, rowmajor.changed(self.terms, lambda s: sample_axis(s, there, 0, size, many), many))

    def fill_into(self, scaffold: Region | DisjointRegions) -> Reshaped:
        """Return the points of `scaffold` whose ranks along the axes are in this set; see `Region.fill`.

        Raises
        ------
        ValueError
            If this set is in another box than that of shape ``scaffold.counts``, or `scaffold` is not a product.
        TooManyPieces
            If the numbers in `scaffold` are more than 10,000 pieces.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> ink = Region.from_slices((2, 6), (slice(None), slice(3))).reshape((3, 4))
        >>> print(ink)
        111.
        ..11
        1...
        >>> print(ink.fill_into(Region((5, 7), [Stripe(1, 1), Stripe(1, 1)])))
        1.1.1..
        .......
        ....1.1
        .......
        1......
        """
        where = as_product(scaffold, "fill_into: scaffold")
        where._from_zero("fill_into")
        if self.shape != where.counts:
            raise ValueError(
                f"fill_into: a scaffold of {quote(where.counts)} elements along its axes takes a set in a box of that "
                f"shape, not in {quote(self.shape)}"
            )
        if where.is_empty:
            return Reshaped._of(where.shape, ())
        there, size = rowmajor.flat(where.nests, where.shape), prod(where.shape)
        return Reshaped._of(where.shape, rowmajor.changed(self.terms, lambda s: fill_axis(there, s, 0, size), size))

    def slice(self, slices: BoxKey) -> DisjointRegions:
        """Return the set as a NumPy view of the box sees it; see `Region.slice`.

        Only what lies between the first and the last row of the slice is listed.
        """
        ranges = select_ranges(self.shape, slices)
        shape = tuple(map(length, ranges))
        if not shape or not all(shape):
            return self.explicit().slice(slices) if not shape else DisjointRegions._of(shape, (), (0,) * len(shape))
        lo, hi = sorted((ranges[0][0], ranges[0][-1]))
        width = prod(self.shape[1:])
        few = rowmajor.cut(self.terms, lo * width, (hi + 1) * width)
        part = Reshaped._of((hi + 1 - lo, *self.shape[1:]), few).explicit()
        first = range(ranges[0].start - lo, ranges[0].stop - lo, ranges[0].step)
        return part._seen_through((first, *ranges[1:]))


Points.forms = RegionForms(DisjointRegions, Reshaped)


# ------------------------------------------------------------------ row-major order


def unflatten(setts: Sett | DisjointSetts, shape: Sequence[int]) -> DisjointRegions:
    """Return the points whose row-major indices are in `setts`, in the box of `shape` from zero.

    Parameters
    ----------
    setts : Sett or DisjointSetts
        Only their elements in [0, product of the shape) count.
    shape : sequence of int

    Returns
    -------
    DisjointRegions

    Raises
    ------
    TooManyPieces
        If more than 10,000 regions are needed.

    Examples
    --------
    >>> print(unflatten(Sett(Stripe(1, 2)), (4, 4)))
    1..1
    ..1.
    .1..
    1..1
    """
    box, origin = checked_box(shape, None)
    if not isinstance(setts, (Sett, DisjointSetts)):
        raise TypeError(
            f"unflatten: setts must be a Sett or DisjointSetts, not {quote(setts)} of type {type(setts).__name__}"
        )
    members = setts.members if isinstance(setts, DisjointSetts) else (setts,)
    found = merge_members([Region._of(box, axes, origin) for s in members for axes in rowmajor.products(s.nest, box)])
    if len(found) > 1:  # in the order of their first points, as people read them
        found.sort(key=lambda region: [nests.find(s, 0) or 0 for s in region.nests])
    return DisjointRegions._of(box, found, origin)


def _conjunctions(part: object, what: str) -> list[tuple[Nest, ...]]:
    """Return a set of integers as conjunctions that share no integer."""
    match part:
        case Stripe() | Sett():
            return [((part if isinstance(part, Sett) else Sett(part)).nest,)]
        case DisjointSetts():
            return [(s,) for s in part._nests]
        case Intersection():
            return list(part._conjunctions)
        case Integers():
            return [(s,) for s in part.setts()._nests]
    raise TypeError(f"{what} must be a Stripe or another set of integers, not {type(part).__name__}")


def _listed(term: tuple[Nest, ...], shape: Ints) -> list[Region]:
    """Return the points of a conjunction of nests as regions: those of each nest, met."""
    origin = (0,) * len(shape)
    found: list[Region] = [Region.full(shape)]
    for s in term:
        more = [Region._of(shape, axes, origin) for axes in rowmajor.products(s, shape)]
        met: list[Region] = []
        for r in found:
            for t in more:
                meet_regions(r, t, met)
            check_pieces(len(met), f"reshape to {shape}", rowmajor.NEEDS_NONE)
        found = met
    return found
