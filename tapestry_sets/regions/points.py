"""Sets of points in one box: the questions that every form answers, and the form that an operation returns.

points     the verbs of all                  ──┐ return classes of the modules above,
region     Region: a product of setts          │ which `Points.forms` names
regions    DisjointRegions: regions apart      │
reshaped   Reshaped: row-major numbers       ◄─┘ fills them in
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from tapestry_sets.digits import Ints
from tapestry_sets.draw import Drawn
from tapestry_sets.integers import DisjointSetts, Int64Array, Nest
from tapestry_sets.limits import as_ints, extents_of, quote
from tapestry_sets.regions import rowmajor
from tapestry_sets.regions.near import list_near
from tapestry_sets.regions.rowmajor import NumberTerms
from tapestry_sets.regions.shapes import reshaped

if TYPE_CHECKING:
    from tapestry_sets.regions.region import Region
    from tapestry_sets.regions.regions import DisjointRegions
    from tapestry_sets.regions.reshaped import Reshaped


class RegionForms(Struct, frozen=True):
    """The classes of sets of points."""

    regions: type[DisjointRegions]
    reshaped: type[Reshaped]


class Points(Drawn, ABC):
    """The verbs of all sets of points in one box.

    Attributes
    ----------
    shape, start : tuple of int
        The box.
    forms : RegionForms
        The classes that verbs return; `reshaped`, the last of the modules that define them, fills them in.
    is_numbered : bool
        Whether the points are held by their row-major numbers, so that questions go through these.
    """

    __slots__ = ()

    shape: Ints
    start: Ints
    forms: ClassVar[RegionForms]
    is_numbered: ClassVar[bool] = False

    @property
    @abstractmethod
    def regions(self) -> tuple[Region, ...]:
        """Disjoint regions, none of them empty, that make up the set."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many points the set has."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the set has no points."""

    @abstractmethod
    def _holds(self, point: Ints) -> bool:
        """Return whether a point of the right rank is in the set."""

    @abstractmethod
    def points(self) -> Int64Array:
        """Return the points in row-major order, as an int64 array of shape (size, rank)."""

    @abstractmethod
    def bounds(self) -> tuple[Ints, Ints] | None:
        """Return the smallest box that holds all points, as (lo, hi) with hi exclusive; None without points."""

    @abstractmethod
    def _numbered(self) -> Reshaped:
        """Return the same points, held by their row-major numbers."""

    @property
    def _terms(self) -> NumberTerms:
        """The row-major numbers as terms."""
        return self._numbered().terms

    @property
    def rank(self) -> int:
        """How many axes the box has.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> Region.full((4, 6)).rank
        2
        """
        return len(self.shape)

    @property
    def is_full(self) -> bool:
        """Whether the set holds every point of its box.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> halves = Region((4, 6), [Stripe(1, 1), Stripe(6, 0)]), Region((4, 6), [Stripe(1, 1, phase=1), Stripe(6, 0)])
        >>> halves[0].is_full, (halves[0] | halves[1]).is_full
        (False, True)
        """
        return self.size == prod(self.shape)

    def __bool__(self) -> bool:
        return not self.is_empty

    def __contains__(self, point: Sequence[int]) -> bool:
        at = as_ints(point, "Region: point")
        if len(at) != self.rank:
            raise ValueError(
                f"Region: point {quote(at)} must have one entry for each axis of shape {quote(self.shape)}"
            )
        return self._holds(at)

    def isdisjoint(self, other: Points) -> bool:
        """Return whether the sets share no point.

        Raises
        ------
        ValueError
            If the boxes differ.
        TooHard
            If one is reshaped and the question takes more than the budget; see `limits`.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> rows = Region((4, 6), [Stripe(1, 1), Stripe(6, 0)])
        >>> (~rows).isdisjoint(rows)
        True
        """
        self._same_box(other, "isdisjoint")
        if self.is_numbered or other.is_numbered:
            return rowmajor.is_disjoint(self._terms, other._terms, prod(self.shape))
        return all(r._misses(s) for r, s in list_near(self.regions, other.regions))

    def count_common(self, other: Points) -> int:
        """Return how many points both sets hold, without listing them; raises as `isdisjoint` does.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> box = (10**6, 10**6)
        >>> evens = Region.from_slices(box, (slice(0, None, 2), slice(None)))
        >>> thirds = Region.from_slices(box, (slice(0, None, 3), slice(None)))
        >>> evens.count_common(thirds)
        166667000000
        """
        self._same_box(other, "count_common")
        if self.is_numbered or other.is_numbered:
            return rowmajor.count_in_both(self._terms, other._terms, prod(self.shape))
        return sum(r._count_shared(s) for r, s in list_near(self.regions, other.regions))

    def first_common(self, other: Points) -> Ints | None:
        """Return the first common point in row-major order, or None; raises as `isdisjoint` does.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> n = 10**9
        >>> Region((n,), [Stripe(1, 100002)]).first_common(Region((n,), [Stripe(1, 6, phase=1)]))
        (100003,)
        """
        self._same_box(other, "first_common")
        if self.is_numbered or other.is_numbered:
            return rowmajor.first_in_both(self._terms, other._terms, self.shape)
        found = [r._first_shared(s) for r, s in list_near(self.regions, other.regions)]
        return min((point for point in found if point is not None), default=None)

    def issubset(self, other: Points) -> bool:
        """Return whether every point is in `other`; also written ``a <= b``; raises as `isdisjoint` does.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> fourths, evens = Region((24,), [Stripe(1, 3)]), Region((24,), [Stripe(1, 1)])
        >>> fourths.issubset(evens), evens.issubset(fourths)
        (True, False)
        """
        self._same_box(other, "issubset")
        if self.is_numbered or other.is_numbered:
            return rowmajor.is_subset(self._terms, other._terms, prod(self.shape))
        # the members of a union are disjoint, so that all is covered if the common points add up
        return self.count_common(other) == self.size

    def same_points(self, other: Points) -> bool:
        """Return whether both sets hold the same points, whatever their form.

        Raises
        ------
        ValueError
            If the boxes differ.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> Region((6,), [Stripe(1, 1)]).same_points(Region((6,), [Stripe(1, 1, phase=2)]))
        True
        """
        self._same_box(other, "same_points")
        return self.size == other.size and self.issubset(other)

    def __le__(self, other: Points) -> bool:
        return self.issubset(other)

    def __ge__(self, other: Points) -> bool:
        return self._same_box(other, ">=").issubset(self)

    def flatten(self) -> DisjointSetts:
        """Return the row-major indices of the points, as setts in [0, product of the shape).

        Raises
        ------
        ValueError
            If the box does not start at zero.
        TooManyPieces
            If more than 10,000 setts are needed, which can be so for a reshaped set only.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> Region.from_slices((3, 3, 3), (slice(2),) * 3).flatten()
        DisjointSetts([Sett(Stripe(14, 13), Stripe(5, 4), Stripe(2, 1))])
        """
        self._from_zero("flatten")
        return DisjointSetts._of(self._numbers())

    @abstractmethod
    def _numbers(self) -> list[Nest]:
        """Return the row-major numbers in a box from zero as disjoint nests."""

    def reshape(self, *shape: int | Sequence[int]) -> Reshaped:
        """Return the points renumbered in row-major order in a box of another shape.

        Nothing is expanded: what is asked of a reshaped set is asked of the row-major numbers.

        Parameters
        ----------
        *shape : int or sequence of int
            As one sequence or as integers. One extent may be -1: it is what the others leave.

        Returns
        -------
        Reshaped
            Its `members` are the regions in the new box, listed when they are asked for.

        Raises
        ------
        ValueError
            If the box does not start at zero or the sizes differ.

        Examples
        --------
        >>> from tapestry_sets import Region, Sett, Stripe
        >>> there = Region((3, 4), [Sett(), Stripe(1, 1)]).reshape((4, 3))
        >>> print(there)
        1.1
        .1.
        1.1
        .1.
        >>> len(there.members)
        2
        """
        self._from_zero("reshape")
        return self.forms.reshaped._of(reshaped(extents_of(shape, "reshape: shape"), self.shape), self._terms)

    def _from_zero(self, verb: str) -> None:
        if any(self.start):
            raise ValueError(f"{verb}: the box must start at zero, not {quote(self.start)}; shift the region first")

    def _same_box(self, other: object, verb: str) -> Points:
        if not isinstance(other, Points):
            kind = type(other).__name__
            raise TypeError(f"{verb}: takes a Region, DisjointRegions or Reshaped, not {kind}: {quote(other)}")
        if self.shape != other.shape or self.start != other.start:
            raise ValueError(
                f"{verb}: both regions must be in one box, not shape {quote(self.shape)} from {quote(self.start)} "
                f"and shape {quote(other.shape)} from {quote(other.start)}; shift one, or build both in one box"
            )
        return other
