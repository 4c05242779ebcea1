"""Sets of integers: the questions that every form answers, and the form that an operation returns.

Questions (`in`, count, rank, find, nth, first_common, count_common, isdisjoint, <=) are answered without
expanding anything. Explicit operations (``| - ^ ~`` and `Integers.setts`) list pieces, and raise
`TooManyPieces` where these would be more than can be meant.

Where an operation takes ``within=(start, stop)``, it is about the integers in [start, stop) alone; without
it, decisions are about the whole line and counts about one common period. A range whose start is past its
stop is refused: it is more often a slip than an empty set.

    integers   the verbs, written once            ──┐ return classes of the modules above,
    sett       Sett, DisjointSetts: nests           │ which `Integers.forms` names
    lazy       Intersection, Filled, Sampled      ◄─┘ fills them in
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from msgspec import Struct

from tapestry_sets.digits import Bools, Int64Array
from tapestry_sets.draw import Drawn
from tapestry_sets.integers import nest as nests
from tapestry_sets.integers import ranks, tuning, unions
from tapestry_sets.integers.nest import Nest
from tapestry_sets.integers.stripe import Stripe
from tapestry_sets.integers.unions import Within
from tapestry_sets.limits import (
    OPEN,
    Question,
    TooHard,
    TooManyPieces,
    as_int,
    attempt,
    check_positive,
    check_range,
    quote,
)

if TYPE_CHECKING:
    from tapestry_sets.integers.lazy import Filled, Intersection, Sampled
    from tapestry_sets.integers.sett import DisjointSetts, Sett


def check_window(within: Within | None, where: str) -> tuple[int, int] | tuple[None, None]:
    """Return a window as (lo, hi), or (None, None) for the whole line; `where` names the caller in errors."""
    if within is None:
        return None, None
    if not isinstance(within, (tuple, list)):
        raise TypeError(f"{where}: within must be a pair (start, stop), not {quote(within)}")
    if len(within) != 2:
        raise ValueError(f"{where}: within must be a pair (start, stop), not {len(within)} values: {quote(within)}")
    lo, hi = as_int(within[0], f"{where}: within[0]"), as_int(within[1], f"{where}: within[1]")
    if hi < lo:
        raise ValueError(
            f"{where}: within must be a pair start <= stop, not {quote(within)}; write ({hi}, {lo}) if meant"
        )
    return lo, hi


def check_bounds(start: int | None, stop: int | None, verb: str) -> tuple[int, int]:
    """Return a range of which both ends must be given."""
    if start is None or stop is None:
        raise ValueError(f"{verb}: give both start and stop or neither, not start={quote(start)}, stop={quote(stop)}")
    return check_range(start, stop, verb)


def check_start(start: int, stop: int | None, verb: str) -> tuple[int, int | None]:
    """Return a range that may have no stop."""
    if stop is None:
        return as_int(start, f"{verb}: start"), None
    return check_bounds(start, stop, verb)


class Forms(Struct, frozen=True):
    """The classes of sets of integers."""

    sett: type[Sett]
    setts: type[DisjointSetts]
    intersection: type[Intersection]
    filled: type[Filled]
    sampled: type[Sampled]


class Integers(Drawn, ABC):
    """A set of integers: the base of setts, their unions and the lazy sets.

    Each is one of `Sett`, `DisjointSetts`, `Intersection`, `Filled` and `Sampled`; where a method takes another set,
    it takes any of these or a `Stripe`. What lists pieces (``| - ^ ~``, `setts`, `intersection` to `complement`, and
    `split`) raises `TooManyPieces` where more are needed than are allowed, 10,000 by default; see `limits`.

    Examples
    --------
    >>> from tapestry_sets import Integers, Sett, Stripe
    >>> def describe(s: Integers) -> str:
    ...     return f"{s.count(0, 100)} of 100, from {s.find(0)} on"
    >>> work = Sett(Stripe(6, 1), Stripe(2, 1))
    >>> describe(work), describe(work & Stripe(1, 4)), describe(~work)
    ('58 of 100, from 0 on', '12 of 100, from 0 on', '42 of 100, from 2 on')
    """

    __slots__ = ()

    forms: ClassVar[Forms]
    """The classes that verbs return; `lazy`, the last of the modules that define them, fills them in."""

    # ------------------------------------------------------------------------------------------- one set

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the set holds no integer."""

    @property
    @abstractmethod
    def period(self) -> int:
        """A period of the set, not always the shortest."""

    @abstractmethod
    def __contains__(self, z: int) -> bool: ...

    @abstractmethod
    def _count(self, lo: int, hi: int) -> int:
        """Return how many elements lie in [lo, hi), lo <= hi."""

    @abstractmethod
    def _first(self, lo: int, hi: int | None) -> int | None:
        """Return the smallest element >= lo (and < hi, if given), or None."""

    @abstractmethod
    def _elements(self, lo: int, hi: int) -> Int64Array:
        """Return the elements in [lo, hi), lo <= hi, in ascending order."""

    @abstractmethod
    def _listed(self, within: Within | None) -> tuple[Nest, ...]:
        """Return the set as disjoint nests, none of them empty; within a window they need to be right there alone."""

    @abstractmethod
    def shift(self, k: int) -> Integers:
        """Return {z + k : z in self}."""

    @abstractmethod
    def reverse(self, pivot: int) -> Integers:
        """Return {pivot - 1 - z : z in self}: the elements in [0, pivot) as seen from the other end."""

    @abstractmethod
    def scale(self, f: int) -> Integers:
        """Return the set in which every element z becomes the block [f*z, f*z + f).

        Raises
        ------
        ValueError
            If `f` is not positive.
        """

    @property
    def _factors(self) -> tuple[Integers, ...]:
        """Sets, none of them an intersection nor a union of one sett, whose common elements these are."""
        return (self,)

    def count(self, start: int | None = None, stop: int | None = None) -> int:
        """Return how many elements lie in [start, stop), or in one period if neither is given.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(6, 1), Stripe(2, 1)).count(0, 7 * 10**12)
        4000000000000
        """
        lo, hi = (0, self.period) if start is None and stop is None else check_bounds(start, stop, "count")
        return self._count(lo, hi)

    def __bool__(self) -> bool:
        return not self.is_empty

    def rank(self, z: int) -> int:
        """Return how many elements lie in [0, z), or less those in [z, 0) for negative z: the number of z in `nth`.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> s = Sett(Stripe(6, 1), Stripe(2, 1))
        >>> [s.rank(s.nth(k)) for k in (-2, -1, 0, 1, 2)]
        [-2, -1, 0, 1, 2]
        """
        z = as_int(z, "rank: z")
        if not z:
            return 0  # no need to count, which would ask each set of a chain twice
        return self._count(0, z) if z >= 0 else -self._count(z, 0)

    def first(self, start: int, stop: int | None = None) -> int | None:
        """Return the smallest element >= start (and < stop, if given), or None.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> evens = Sett(Stripe(1, 1))
        >>> evens.first(5), evens.first(5, 6)
        (6, None)
        """
        return self._first(*check_start(start, stop, "first"))

    def find(self, start: int) -> int | None:
        """Return the smallest element >= start, or None if the set is empty.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(6, 1), Stripe(2, 1)).find(5)
        7
        """
        return self._first(as_int(start, "find: start"), None)

    def nth(self, k: int) -> int:
        """Return the k-th element >= 0, counted from 0; negative `k` counts back from the element before 0.

        Raises
        ------
        IndexError
            If the set is empty.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> s = Sett(Stripe(6, 1), Stripe(2, 1))
        >>> [s.nth(k) for k in (-1, 0, 1, 2, 3)]
        [-3, 0, 1, 3, 4]
        """
        k = as_int(k, "nth: k")
        if self.is_empty:
            raise IndexError(f"nth: no element {k}: the set is empty")
        return self._nth(k)

    def _nth(self, k: int) -> int:
        """Return element k of a set that is not empty: from where it is if all are spread evenly."""
        with Question():
            n, span = self._density()
            guess = k * span // n
            return self._nth_from(guess, k - self._rank(guess), max(1, span // n))

    def _rank(self, z: int) -> int:
        return self._count(0, z) if z >= 0 else -self._count(z, 0)

    def _density(self) -> tuple[int, int]:
        """Return (n, span), such that about n in each span integers are elements; n is positive."""
        return self._count(0, self.period) or 1, self.period

    def _nth_from(self, z: int, k: int, step: int) -> int:
        """Return the element of number k from z on; `step` is about how far it is from one element to the next.

        What is counted lies between z and where the answer is looked for, and between ever closer bounds then.
        """
        step *= abs(k) + 1 if k < 0 else k + 1
        if k < 0:  # down to bounds [z, hi) with element k of those from z on
            hi, n = z, 0
            while k < 0:
                hi, z = z, z - step
                n = self._count(z, hi)
                k, step = k + n, 2 * step
        else:
            hi, n = z + step, self._count(z, z + step)
            while k >= n:
                z, k, step = hi, k - n, 2 * step
                hi = z + step
                n = self._count(z, hi)
        return self._nth_between(z, hi, k, n)

    def _nth_between(self, lo: int, hi: int, k: int, n: int) -> int:
        """Return the element of number k of the n that lie in [lo, hi)."""
        halve = False
        while n > tuning.CLOSE and hi - lo > 1:
            length = hi - lo
            middle = (lo + hi) // 2 if halve else lo + min(max((2 * k + 1) * length // (2 * n), 1), length - 1)
            below = self._count(lo, middle) if middle - lo <= hi - middle else n - self._count(middle, hi)
            if k < below:
                hi, n = middle, below
            else:
                lo, k, n = middle, k - below, n - below
            halve = 2 * (hi - lo) > length
        z = lo - 1
        for _ in range(k + 1):
            z = cast(int, self._first(z + 1, hi))
        return z

    def _nth_each(self, k: Int64Array) -> Int64Array:
        """Return the elements of some numbers, of a set that is not empty."""
        return to_array(map(self._nth, to_list(k)))

    def _rank_each(self, z: Int64Array) -> Int64Array:
        """Return the numbers of some elements."""
        return to_array(map(self.rank, to_list(z)))

    def _contains_each(self, z: Int64Array) -> Bools:
        """Return which of some integers, different and ascending, are elements."""
        if len(z) and self._count(int(z[0]), int(z[-1]) + 1) <= tuning.MAX_LISTED:
            return np.isin(z, self._elements(int(z[0]), int(z[-1]) + 1), assume_unique=True)
        return np.array([at in self for at in to_list(z)], bool)

    def elements(self, start: int, stop: int) -> Int64Array:
        """Return the elements in [start, stop) in ascending order, as int64.

        Raises
        ------
        OverflowError
            If an element does not fit int64.
        TooManyPieces
            If they are more than 2**30.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(6, 1), Stripe(2, 1)).elements(0, 10).tolist()
        [0, 1, 3, 4, 7, 8]
        """
        lo, hi = check_bounds(start, stop, "elements")
        if hi - lo > tuning.MAX_ELEMENTS:
            many = attempt(lambda: self._count(lo, hi))
            if many is not OPEN and many > tuning.MAX_ELEMENTS:
                raise TooManyPieces(
                    f"elements: {many} elements in [{lo}, {hi}), more than the {tuning.MAX_ELEMENTS} that an array "
                    "should hold; runs or setts(within=) say which in few pieces, or ask within a shorter range"
                )
        return self._elements(lo, hi)

    def setts(self, within: Within | None = None) -> DisjointSetts:
        """Return the set as a list of disjoint setts; within a window they are right there, and periodic outside it.

        Examples
        --------
        >>> from tapestry_sets import Sett
        >>> (Sett(Stripe(6, 1)) & Stripe(2, 1)).setts(within=(0, 7))
        DisjointSetts([Sett(Stripe(5, 2), Stripe(2, 1))])
        """
        check_window(within, "setts")
        return self.forms.setts._joined(self._listed(within))

    # ------------------------------------------------------------------------------------------ two sets

    def isdisjoint(self, other: Operand, within: Within | None = None) -> bool:
        """Return whether the sets share no integer.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> evens = Sett(Stripe(1, 1))
        >>> evens.isdisjoint(evens.shift(1)), evens.isdisjoint(Stripe(1, 4), within=(1, 10))
        (True, True)
        """
        return self._meet(other, "isdisjoint: other").is_disjoint_within(*check_window(within, "isdisjoint"))

    def first_common(self, other: Operand, start: int, stop: int | None = None) -> int | None:
        """Return the smallest common element >= start (and < stop, if given), or None.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(1, 100002)).first_common(Stripe(1, 100018, phase=1), 0)
        6876506289
        """
        return self._meet(other, "first_common: other")._first(*check_start(start, stop, "first_common"))

    def count_common(self, other: Operand, start: int | None = None, stop: int | None = None) -> int:
        """Return how many common elements lie in [start, stop), or in one common period.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(1, 1)).count_common(Stripe(1, 2), 0, 6 * 10**15)
        1000000000000000
        """
        both = self._meet(other, "count_common: other")
        lo, hi = (0, both.period) if start is None and stop is None else check_bounds(start, stop, "count_common")
        return both._count(lo, hi)

    def issubset(self, other: Operand, within: Within | None = None) -> bool:
        """Return whether every element is in `other`; written ``a <= b`` for the whole line.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> quarters, evens = Sett(Stripe(1, 3, phase=1)), Sett(Stripe(1, 1))
        >>> quarters <= evens, quarters <= ~evens
        (False, True)
        """
        return self.forms.intersection._of(self._factors).is_inside(
            as_set(other, "issubset: other"), *check_window(within, "issubset")
        )

    __le__ = issubset

    def __ge__(self, other: Operand) -> bool:
        return as_set(other, ">=: the other side").issubset(self)

    def same_points(self, other: Operand, within: Within | None = None) -> bool:
        """Return whether both sets hold the same integers, whatever their form.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> a = Sett(Stripe(5, 4), Stripe(1, 1))
        >>> b = Sett(Stripe(3, 6), Stripe(1, 1)) | Stripe(1, 8, phase=4)
        >>> a == b, a.same_points(b)
        (False, True)
        """
        return self.issubset(other, within) and as_set(other).issubset(self, within)

    def __and__(self, other: Operand) -> Intersection:
        return self.forms.intersection._of((*self._factors, *as_set(other, "&: the other side")._factors))

    def _meet(self, other: Operand, what: str) -> Intersection:
        """Return ``self & other``; `what` is the verb and the place that a message names."""
        return self & as_set(other, what)

    def __rand__(self, other: Operand) -> Intersection:
        return as_set(other, "&: the left side") & self

    def __ror__(self, other: Operand) -> DisjointSetts:
        return as_set(other, "|: the left side") | self

    def __rsub__(self, other: Operand) -> DisjointSetts:
        return as_set(other, "-: the left side") - self

    def __rxor__(self, other: Operand) -> DisjointSetts:
        return as_set(other, "^: the left side") ^ self

    def intersection(self, other: Operand, within: Within | None = None) -> DisjointSetts:
        """Return the common elements listed as disjoint setts; ``a & b`` is the same set, not listed.

        Within a window the result is right there, and periodic outside it.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(1, 1)).intersection(Stripe(1, 2))
        DisjointSetts([Sett(Stripe(1, 5))])
        """
        check_window(within, "intersection")
        return self.forms.setts._joined(self._meet(other, "intersection: other")._listed(within))

    def union(self, other: Operand, within: Within | None = None) -> DisjointSetts:
        """Return the union as disjoint setts; see `intersection` for `within`, and `simplify` for fewer of them.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(1, 3)).union(Stripe(1, 3, phase=1))
        DisjointSetts([Sett(Stripe(2, 2))])
        """
        check_window(within, "union")
        return self.forms.setts._of(
            unions.union(self._listed(within), as_set(other, "union: other")._listed(within), within)
        )

    def difference(self, other: Operand, within: Within | None = None) -> DisjointSetts:
        """Return the elements that are not in `other`, as disjoint setts; see `intersection` for `within`.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(3, 1)).difference(Stripe(1, 3, phase=1))
        DisjointSetts([Sett(Stripe(3, 1), Stripe(3, 1, phase=2))])
        """
        check_window(within, "difference")
        return self.forms.setts._of(
            unions.subtract(self._listed(within), as_set(other, "difference: other")._listed(within), within)
        )

    def symmetric_difference(self, other: Operand, within: Within | None = None) -> DisjointSetts:
        """Return the elements of exactly one of both sets, as disjoint setts; see `intersection` for `within`.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(2, 2)).symmetric_difference(Stripe(2, 2, phase=1))
        DisjointSetts([Sett(Stripe(1, 1))])
        """
        check_window(within, "symmetric_difference")
        mine, theirs = self._listed(within), as_set(other, "symmetric_difference: other")._listed(within)
        return self.forms.setts._of(unions.either(mine, theirs, within))

    def complement(self, within: Within | None = None) -> DisjointSetts:
        """Return the integers that are not elements, as disjoint setts; see `intersection` for `within`.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(2, 1)).complement()
        DisjointSetts([Sett(Stripe(1, 2, phase=2))])
        """
        check_window(within, "complement")
        return self.forms.setts._of(unions.subtract([()], self._listed(within), within))

    __or__, __sub__, __xor__, __invert__ = union, difference, symmetric_difference, complement

    def simplify(self) -> DisjointSetts:
        """Return the set listed in few setts, no two of which `Sett.merge` makes one.

        It is a search, of milliseconds for a few members; two dozen may take the whole budget.

        Raises
        ------
        TooHard
            If the search takes more than the budget; the message says how far it came, and what budget lets it end.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> either = Sett(Stripe(1, 9)) | Stripe(2, 8, phase=4)  # 0, 4 and 5 modulo 10
        >>> len(either), either.simplify()
        (2, DisjointSetts([Sett(Stripe(6, 4), Stripe(2, 3, phase=4))]))
        """
        return self.forms.setts._of(unions.simplified(self._listed(None)))

    # ---------------------------------------------------------------------------- sets seen by their numbers

    def fill(self, ink: Operand) -> Filled:
        """Return {self.nth(k) : k in ink}, not listed: the elements whose numbers are in the ink.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> rows = Sett(Stripe(6, 1))
        >>> print(rows)
        111111.
        >>> print(rows.fill(Stripe(2, 1)))
        11.11..
        >>> rows.fill(Stripe(2, 1)).sample(rows).same_points(Stripe(2, 1))
        True

        References
        ----------
        poprithms, memory/nest/sett.hpp, `fillWith`: composition by multiplication.
        """
        return self.forms.filled(self, as_set(ink, "fill: ink"))

    def sample(self, at: Operand) -> Sampled:
        """Return {k : at.nth(k) in self}, not listed: this set as seen through `at`, in the numbers of `at`.

        No number sees anything through an empty `at`: the result is empty then.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> sevens, rows = Sett(Stripe(1, 6)), Sett(Stripe(3, 3))
        >>> sevens.sample(rows).elements(0, 22).tolist()
        [0, 4, 8, 21]
        >>> [rows.nth(k) for k in (0, 4, 8, 21)]
        [0, 7, 14, 42]

        References
        ----------
        poprithms, memory/nest/sett.hpp, `sampleAt`: composition by division.
        """
        return self.forms.sampled(self, as_set(at, "sample: at"))

    def split(self, period: int) -> tuple[tuple[Sett, Sett], ...]:
        """Return the set as a disjoint union of {period*q + r : q in outer, r in inner, 0 <= r < period}.

        Parameters
        ----------
        period : int
            The length of a row, >= 1.

        Returns
        -------
        tuple of (Sett, Sett)
            Pairs (outer, inner). No two have the same outer or the same inner setts that merge.

        Raises
        ------
        ValueError
            If `period` is not positive.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> for outer, inner in Sett(Stripe(1, 2)).split(4):
        ...     print(outer.elements(0, 6), inner.elements(0, 4))
        [0 3] [0 3]
        [1 4] [2]
        [2 5] [1]

        References
        ----------
        poprithms, memory/nest/sett.hpp, `unflatten`.
        """
        n = check_positive(period, "split: period")
        found = [pair for s in self._listed(None) for pair in ranks.split(s, n)]
        wrap = self.forms.sett._of
        return tuple((wrap(rows), wrap(columns)) for rows, columns in ranks.join_rows(found))


Operand = Stripe | Integers
"""Whatever an operation on sets of integers takes."""


def as_set(x: object, what: str = "") -> Integers:
    """Return an operand as a set; a stripe becomes a sett. `what` is the verb and the place that a message names."""
    if isinstance(x, Integers):
        return x
    if isinstance(x, Stripe):
        return Integers.forms.sett._of(nests.canonical([x.level]))
    shown = f"{what} is {quote(x)}; " if what else ""
    raise TypeError(
        f"{shown}a set of integers is a Stripe, Sett, DisjointSetts, Intersection, "
        f"Filled or Sampled, not {type(x).__name__}"
    )


def to_array(values: Iterable[int]) -> Int64Array:
    """Return integers as an array, or say that they do not fit."""
    try:
        return np.fromiter(values, np.int64)
    except OverflowError:
        raise OverflowError("elements do not fit int64; ask for a part of them, or for find or nth") from None


def to_list(values: Int64Array) -> list[int]:
    """Return integers that are to be looked at one by one, if these are not too many."""
    if len(values) > tuning.MAX_SCAN:
        raise TooHard(
            f"{len(values)} elements of a union or a lazy set would be looked at one by one, more than "
            f"{tuning.MAX_SCAN}; ask within a shorter range"
        )
    return cast("list[int]", values.tolist())
