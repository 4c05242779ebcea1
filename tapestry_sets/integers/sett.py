"""Sets of integers: setts (nested stripes), their disjoint unions, and lazy sets made of other sets.

Questions (`in`, count, rank, find, nth, first_common, count_common, isdisjoint, <=) are answered without
expanding anything. Explicit operations (``| - ^ ~`` and `Integers.setts`) list pieces, and raise
`TooManyPieces` where these would be more than can be meant.

Where an operation takes ``within=(start, stop)``, it is about the integers in [start, stop) alone; without
it, decisions are about the whole line and counts about one common period. A range whose start is past its
stop is refused: it is more often a slip than an empty set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from math import gcd, lcm, prod
from typing import cast

import numpy as np

from tapestry_sets.draw import mimebundle, summary
from tapestry_sets.integers import conjunction, explicit, pairs, ranks, unions
from tapestry_sets.integers import nest as nests
from tapestry_sets.integers.nest import EMPTY, Nest, StridedRun
from tapestry_sets.integers.stripe import Int64Array, Stripe
from tapestry_sets.limits import OPEN, Budget, Question, TooHard, as_int, attempt, check_pieces, current, limits

Within = tuple[int, int]

CUT_BELOW = 1 << 28
"""Windows of up to this many elements are cut into shorter ones, and longer ones walked within the budget."""

ONE_BY_ONE = 1 << 16
"""How many numbers may be taken to elements, or back, one by one."""

MERGED_MEMBERS = 8
"""Unions of up to this many members are looked through for any two that `Sett.merge` makes one."""

WALK_ABOVE = 1 << 22
"""Common elements are filtered from the smaller set up to this many, and sought one by one above it."""

LEAPS = 500
"""How many times a search goes from set to set before lazy ones are listed, and unions taken apart."""

LEAPS_OF_MEMBERS = 20_000
"""How many members may be asked on the way."""

PIECES = 500
"""How many setts a lazy set may become where a question about several is answered by listing it."""

LISTED = 1 << 22
"""How many elements of each set may be listed to answer a question about lazy sets."""

FEW = 8
"""So many elements are taken one after the other where an element is sought by its number."""

NONE = np.empty(0, np.int64)


def _window(within: Within | None, where: str) -> tuple[int, int] | tuple[None, None]:
    if within is None:
        return None, None
    if not isinstance(within, (tuple, list)):
        raise TypeError(f"{where}: within must be a pair (start, stop), not {within!r}")
    if len(within) != 2:
        raise ValueError(f"{where}: within must be a pair (start, stop), not {len(within)} values: {within!r}")
    lo, hi = as_int(within[0], f"{where}: within[0]"), as_int(within[1], f"{where}: within[1]")
    if hi < lo:
        raise ValueError(f"{where}: within must be a pair start <= stop, not {within!r}; write ({hi}, {lo}) if meant")
    return lo, hi


def _bounds(start: int | None, stop: int | None, verb: str) -> tuple[int, int]:
    if start is None or stop is None:
        raise ValueError(f"{verb}: give both start and stop or neither, not start={start}, stop={stop}")
    lo, hi = as_int(start, f"{verb}: start"), as_int(stop, f"{verb}: stop")
    if hi < lo:
        raise ValueError(f"{verb}: stop must be >= start, not start={lo}, stop={hi}; an empty range has start == stop")
    return lo, hi


def _from(start: int, stop: int | None, verb: str) -> tuple[int, int | None]:
    if stop is None:
        return as_int(start, f"{verb}: start"), None
    return _bounds(start, stop, verb)


def _positive(value: object, what: str) -> int:
    n = as_int(value, what)
    if n < 1:
        raise ValueError(f"{what} must be at least 1, not {n}")
    return n


class Integers(ABC):
    """A set of integers: what setts, their unions and the lazy sets have in common.

    Each is one of `Sett`, `DisjointSetts`, `Intersection`, `Filled` and `Sampled`; where a method takes another set,
    it takes any of these or a `Stripe`.
    """

    __slots__ = ()

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
        """Sets, none of them an intersection, whose common elements these are."""
        return (self,)

    def __str__(self) -> str:
        return summary(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return mimebundle(self)

    def count(self, start: int | None = None, stop: int | None = None) -> int:
        """Return how many elements lie in [start, stop), or in one period if neither is given.

        Examples
        --------
        >>> Sett(Stripe(6, 1), Stripe(2, 1)).count(0, 7 * 10**12)
        4000000000000
        """
        lo, hi = (0, self.period) if start is None and stop is None else _bounds(start, stop, "count")
        return self._count(lo, hi)

    def __bool__(self) -> bool:
        return not self.is_empty

    def rank(self, z: int) -> int:
        """Return how many elements lie in [0, z), or less those in [z, 0) for negative z: the number of z in `nth`.

        Examples
        --------
        >>> s = Sett(Stripe(6, 1), Stripe(2, 1))
        >>> [s.rank(s.nth(k)) for k in (-2, -1, 0, 1, 2)]
        [-2, -1, 0, 1, 2]
        """
        z = as_int(z, "rank: z")
        if not z:
            return 0  # no need to count, which would ask each set of a chain twice
        return self._count(0, z) if z >= 0 else -self._count(z, 0)

    def first(self, start: int, stop: int | None = None) -> int | None:
        """Return the smallest element >= start (and < stop, if given), or None."""
        return self._first(*_from(start, stop, "first"))

    def find(self, start: int) -> int | None:
        """Return the smallest element >= start, or None if the set is empty.

        Examples
        --------
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
        while n > FEW and hi - lo > 1:
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
        return _array(map(self._nth, _one_by_one(k)))

    def _rank_each(self, z: Int64Array) -> Int64Array:
        """Return the numbers of some elements."""
        return _array(map(self.rank, _one_by_one(z)))

    def elements(self, start: int, stop: int) -> Int64Array:
        """Return the elements in [start, stop) in ascending order, as int64.

        Raises
        ------
        OverflowError
            If an element does not fit int64.

        Examples
        --------
        >>> Sett(Stripe(6, 1), Stripe(2, 1)).elements(0, 10).tolist()
        [0, 1, 3, 4, 7, 8]
        """
        return self._elements(*_bounds(start, stop, "elements"))

    def setts(self, within: Within | None = None) -> DisjointSetts:
        """Return the set as a list of disjoint setts; within a window they are right there, and periodic outside it.

        Raises
        ------
        TooManyPieces
            If more pieces are needed than are allowed, 10,000 by default; see `limits`.

        Examples
        --------
        >>> (Sett(Stripe(6, 1)) & Stripe(2, 1)).setts(within=(0, 7))
        DisjointSetts([Sett(Stripe(5, 2), Stripe(2, 1))])
        """
        _window(within, "setts")
        return DisjointSetts._reduced(self._listed(within))

    # ------------------------------------------------------------------------------------------ two sets

    def isdisjoint(self, other: Operand, within: Within | None = None) -> bool:
        """Return whether the sets share no integer.

        Examples
        --------
        >>> evens = Sett(Stripe(1, 1))
        >>> evens.isdisjoint(evens.shift(1)), evens.isdisjoint(Stripe(1, 4), within=(1, 10))
        (True, True)
        """
        return _disjoint((*self._factors, *_set(other)._factors), *_window(within, "isdisjoint"))

    def first_common(self, other: Operand, start: int, stop: int | None = None) -> int | None:
        """Return the smallest common element >= start (and < stop, if given), or None.

        Examples
        --------
        >>> Sett(Stripe(1, 100002)).first_common(Stripe(1, 100018, phase=1), 0)
        6876506289
        """
        return _first((*self._factors, *_set(other)._factors), *_from(start, stop, "first_common"))

    def count_common(self, other: Operand, start: int | None = None, stop: int | None = None) -> int:
        """Return how many common elements lie in [start, stop), or in one common period.

        Examples
        --------
        >>> Sett(Stripe(1, 1)).count_common(Stripe(1, 2), 0, 6 * 10**15)
        1000000000000000
        """
        factors = (*self._factors, *_set(other)._factors)
        lo, hi = (0, _period(factors)) if start is None and stop is None else _bounds(start, stop, "count_common")
        return _count(factors, lo, hi)

    def issubset(self, other: Operand, within: Within | None = None) -> bool:
        """Return whether every element is in `other`; written ``a <= b`` for the whole line.

        Examples
        --------
        >>> quarters, evens = Sett(Stripe(1, 3, phase=1)), Sett(Stripe(1, 1))
        >>> quarters <= evens, quarters <= ~evens
        (False, True)
        """
        return _is_subset(self._factors, _set(other), *_window(within, "issubset"))

    def __le__(self, other: Operand) -> bool:
        return self.issubset(other)

    def __ge__(self, other: Operand) -> bool:
        return _set(other).issubset(self)

    def same_points(self, other: Operand, within: Within | None = None) -> bool:
        """Return whether both sets hold the same integers, whatever their form.

        Examples
        --------
        >>> a = Sett(Stripe(5, 4), Stripe(1, 1))
        >>> b = Sett(Stripe(3, 6), Stripe(1, 1)) | Stripe(1, 8, phase=4)
        >>> a == b, a.same_points(b)
        (False, True)
        """
        return self.issubset(other, within) and _set(other).issubset(self, within)

    def __and__(self, other: Operand) -> Intersection:
        if type(self) is type(other) is Sett:  # asked most often
            return Intersection((self, other))
        return Intersection((*map(_operand, self._factors), *map(_operand, _set(other)._factors)))

    def __or__(self, other: Operand) -> DisjointSetts:
        return self.union(other)

    def __sub__(self, other: Operand) -> DisjointSetts:
        return self.difference(other)

    def __xor__(self, other: Operand) -> DisjointSetts:
        return self.symmetric_difference(other)

    def __invert__(self) -> DisjointSetts:
        return self.complement()

    def __rand__(self, other: Operand) -> Intersection:
        return _set(other) & self

    def __ror__(self, other: Operand) -> DisjointSetts:
        return _set(other) | self

    def __rsub__(self, other: Operand) -> DisjointSetts:
        return _set(other) - self

    def __rxor__(self, other: Operand) -> DisjointSetts:
        return _set(other) ^ self

    def intersection(self, other: Operand, within: Within | None = None) -> DisjointSetts:
        """Return the common elements listed as disjoint setts; ``a & b`` is the same set, not listed.

        Within a window the result is right there, and periodic outside it.

        Raises
        ------
        TooManyPieces
            If more pieces are needed than are allowed, 10,000 by default; see `limits`.

        Examples
        --------
        >>> Sett(Stripe(1, 1)).intersection(Stripe(1, 2))
        DisjointSetts([Sett(Stripe(1, 5))])
        """
        _window(within, "intersection")
        return DisjointSetts._reduced((self & other)._listed(within))

    def union(self, other: Operand, within: Within | None = None) -> DisjointSetts:
        """Return the union as disjoint setts, few of which merge; see `DisjointSetts`, and `intersection` for `within`.

        Raises
        ------
        TooManyPieces
            If more pieces are needed than are allowed, 10,000 by default; see `limits`.

        Examples
        --------
        >>> Sett(Stripe(1, 3)).union(Stripe(1, 3, phase=1))
        DisjointSetts([Sett(Stripe(2, 2))])
        """
        _window(within, "union")
        return DisjointSetts._merged(unions.union(self._listed(within), _set(other)._listed(within), within))

    def difference(self, other: Operand, within: Within | None = None) -> DisjointSetts:
        """Return the elements that are not in `other`, as disjoint setts; see `intersection` for `within`.

        Raises
        ------
        TooManyPieces
            If more pieces are needed than are allowed, 10,000 by default; see `limits`.

        Examples
        --------
        >>> Sett(Stripe(3, 1)).difference(Stripe(1, 3, phase=1))
        DisjointSetts([Sett(Stripe(3, 1), Stripe(3, 1, phase=2))])
        """
        _window(within, "difference")
        return DisjointSetts._merged(unions.subtract(self._listed(within), _set(other)._listed(within), within))

    def symmetric_difference(self, other: Operand, within: Within | None = None) -> DisjointSetts:
        """Return the elements of exactly one of both sets, as disjoint setts; see `intersection` for `within`.

        Raises
        ------
        TooManyPieces
            If more pieces are needed than are allowed, 10,000 by default; see `limits`.

        Examples
        --------
        >>> Sett(Stripe(2, 2)).symmetric_difference(Stripe(2, 2, phase=1))
        DisjointSetts([Sett(Stripe(1, 1))])
        """
        _window(within, "symmetric_difference")
        mine, theirs = self._listed(within), _set(other)._listed(within)
        either = (*unions.subtract(mine, theirs, within), *unions.subtract(theirs, mine, within))
        return DisjointSetts._merged(explicit.merge_nests(either))

    def complement(self, within: Within | None = None) -> DisjointSetts:
        """Return the integers that are not elements, as disjoint setts; see `intersection` for `within`.

        Raises
        ------
        TooManyPieces
            If more pieces are needed than are allowed, 10,000 by default; see `limits`.

        Examples
        --------
        >>> Sett(Stripe(2, 1)).complement()
        DisjointSetts([Sett(Stripe(1, 2, phase=2))])
        """
        _window(within, "complement")
        return DisjointSetts._merged(unions.subtract([()], self._listed(within), within))

    # ---------------------------------------------------------------------------- sets seen by their numbers

    def fill(self, ink: Operand) -> Filled:
        """Return {self.nth(k) : k in ink}, not listed: the elements whose numbers are in the ink.

        Examples
        --------
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
        return Filled(self, _set(ink))

    def sample(self, at: Operand) -> Sampled:
        """Return {k : at.nth(k) in self}, not listed: this set as seen through `at`, in the numbers of `at`.

        No number sees anything through an empty `at`: the result is empty then.

        Examples
        --------
        >>> sevens, rows = Sett(Stripe(1, 6)), Sett(Stripe(3, 3))
        >>> sevens.sample(rows).elements(0, 22).tolist()
        [0, 4, 8, 21]
        >>> [rows.nth(k) for k in (0, 4, 8, 21)]
        [0, 7, 14, 42]

        References
        ----------
        poprithms, memory/nest/sett.hpp, `sampleAt`: composition by division.
        """
        return Sampled(self, _set(at))

    def split(self, period: int) -> tuple[tuple[Sett, Sett], ...]:
        """Return the set as a disjoint union of {period*q + r : q in outer, r in inner, 0 <= r < period}.

        Parameters
        ----------
        period : int
            The length of a row, >= 1.

        Returns
        -------
        tuple of (Sett, Sett)
            Pairs (outer, inner); `DisjointSetts.from_split` is the inverse. No two have the same outer or the same
            inner setts that merge.

        Raises
        ------
        ValueError
            If `period` is not positive.
        TooManyPieces
            If more pairs are needed than are allowed, 10,000 by default; see `limits`.

        Examples
        --------
        >>> pairs = Sett(Stripe(1, 2)).split(4)
        >>> for outer, inner in pairs:
        ...     print(outer.elements(0, 6), inner.elements(0, 4))
        [0 3] [0 3]
        [1 4] [2]
        [2 5] [1]
        >>> DisjointSetts.from_split(pairs, 4)
        DisjointSetts([Sett(Stripe(1, 2))])

        References
        ----------
        poprithms, memory/nest/sett.hpp, `unflatten`.
        """
        n = _positive(period, "split: period")
        found = [pair for s in self._listed(None) for pair in ranks.split(s, n)]
        return tuple((Sett._of(rows), Sett._of(columns)) for rows, columns in ranks.join_rows(found))


class _Explicit(Integers):
    """The verbs of setts and unions of setts, written once over their nests."""

    __slots__ = ()

    @property
    @abstractmethod
    def _nests(self) -> tuple[Nest, ...]:
        """Disjoint nests, none of them empty."""

    @property
    def is_empty(self) -> bool:
        """Whether the set holds no integer."""
        return not self._nests

    @property
    def period(self) -> int:
        """A period of the set: that of its outermost stripes."""
        return lcm(*(nests.period(s) for s in self._nests))

    def __contains__(self, z: int) -> bool:
        z = as_int(z, f"{type(self).__name__}: element")
        return any(nests.contains(s, z) for s in self._nests)

    def _count(self, lo: int, hi: int) -> int:
        return sum(nests.count(s, lo, hi) for s in self._nests)

    def _first(self, lo: int, hi: int | None) -> int | None:
        z = min((nests.find(s, lo) for s in self._nests), default=None)
        return z if z is None or hi is None or z < hi else None

    def _nth(self, k: int) -> int:
        if len(self._nests) == 1:
            return nests.nth(self._nests[0], k)
        block, rest = divmod(k, self._count(0, self.period))
        return block * self.period + Integers._nth(self, rest)

    def _nth_each(self, k: Int64Array) -> Int64Array:
        if len(self._nests) == 1:
            return nests.nth_each(self._nests[0], k)
        return Integers._nth_each(self, k)

    def _rank_each(self, z: Int64Array) -> Int64Array:
        if len(self._nests) == 1:
            return nests.rank_each(self._nests[0], z)
        return Integers._rank_each(self, z)

    def _elements(self, lo: int, hi: int) -> Int64Array:
        parts = [nests.elements(s, lo, hi) for s in self._nests]
        return parts[0] if len(parts) == 1 else np.sort(np.concatenate([NONE, *parts]))

    def _listed(self, within: Within | None) -> tuple[Nest, ...]:
        return self._nests

    def setts(self, within: Within | None = None) -> DisjointSetts:
        """Return the set as a list of disjoint setts; within a window, as the shortest that is right there.

        Examples
        --------
        >>> Sett(Stripe(1, 6)).setts(within=(0, 7))
        DisjointSetts([Sett(Stripe(1, 6))])
        """
        lo, hi = _window(within, "setts")
        if lo is None or hi is None:
            return DisjointSetts._of(self._nests)
        return DisjointSetts._reduced(unions.subtract(self._nests, (), (lo, hi)))

    def shift(self, k: int) -> DisjointSetts:
        """Return {z + k : z in self}."""
        k = as_int(k, "shift: k")
        return DisjointSetts._of(nests.shift(s, k) for s in self._nests)

    def reverse(self, pivot: int) -> DisjointSetts:
        """Return {pivot - 1 - z : z in self}: the elements in [0, pivot) as seen from the other end."""
        pivot = as_int(pivot, "reverse: pivot")
        return DisjointSetts._of(nests.canonical(nests.reverse(s, pivot)) for s in self._nests)

    def scale(self, f: int) -> DisjointSetts:
        """Return the set in which every element z becomes the block [f*z, f*z + f).

        Raises
        ------
        ValueError
            If `f` is not positive.
        """
        f = _positive(f, "scale: f")
        return DisjointSetts._of(nests.scale(s, f) for s in self._nests)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Sett(_Explicit):
    """Nested stripes, outermost first; ``Sett()`` is every integer.

    z is in ``Sett(v1, v2, ...)`` if it is in v1 and ``(z - v1.phase) mod v1.period`` is in ``Sett(v2, ...)``.
    The nest is brought into a tight form when it is made: each block of each level begins and ends with an
    element, and levels that change nothing are gone. Two setts of one level with the same elements are
    equal; deeper nests have several tight forms, which `same_points` compares.

    Parameters
    ----------
    *stripes : Stripe
        Outermost first. A stripe without a gap (off = 0) restarts the pattern inside it in each period.

    Attributes
    ----------
    nest : tuple of (on, period, phase)
        The tight form as plain integers; ``()`` is every integer.

    Raises
    ------
    TypeError
        If an argument is not a Stripe.

    Examples
    --------
    >>> s = Sett(Stripe(6, 1), Stripe(2, 1))
    >>> s
    Sett(Stripe(5, 2), Stripe(2, 1))
    >>> print(s)
    11.11..
    >>> Sett(Stripe(4, 0, phase=1), Stripe(1, 3)) == Sett(Stripe(1, 3, phase=1))
    True

    References
    ----------
    Tapestry's document on nested striding, "The sett", with the modulus of the nesting corrected to
    ``v1.on + v1.off``; poprithms, memory/nest/sett.hpp.
    """

    nest: Nest

    def __init__(self, *stripes: Stripe) -> None:
        for at, stripe in enumerate(stripes):
            if not isinstance(stripe, Stripe):
                raise TypeError(f"Sett: stripe {at} must be a Stripe, not {stripe!r}; write Sett(Stripe(on, off))")
        object.__setattr__(self, "nest", nests.canonical(stripe.level for stripe in stripes))

    @classmethod
    def _of(cls, nest: Nest) -> Sett:
        """Wrap a canonical nest."""
        sett = object.__new__(cls)
        object.__setattr__(sett, "nest", nest)
        return sett

    @classmethod
    def empty(cls) -> Sett:
        """Return the set without elements."""
        return cls._of(EMPTY)

    @classmethod
    def interval(cls, lo: int, hi: int, extent: int) -> Sett:
        """Return the sett that holds [lo, hi) in any window of `extent` integers around it.

        Parameters
        ----------
        lo, hi : int
            ``0 <= hi - lo <= extent``.
        extent : int
            The period: the extent of the axis that is meant.

        Raises
        ------
        ValueError
            If the interval is longer than the extent, or hi < lo.

        Examples
        --------
        >>> Sett.interval(2, 5, 10).elements(0, 10).tolist()
        [2, 3, 4]
        """
        lo, hi = as_int(lo, "Sett.interval: lo"), as_int(hi, "Sett.interval: hi")
        extent = as_int(extent, "Sett.interval: extent")
        if not 0 <= hi - lo <= extent:
            raise ValueError(f"Sett.interval: need lo <= hi <= lo + extent, not lo={lo}, hi={hi}, extent={extent}")
        return cls._of(nests.canonical([(hi - lo, extent, lo)]) if extent else EMPTY)

    @property
    def _nests(self) -> tuple[Nest, ...]:
        return () if self.nest == EMPTY else (self.nest,)

    @property
    def stripes(self) -> tuple[Stripe, ...]:
        """The levels as stripes, outermost first."""
        return tuple(Stripe(on, period - on, phase) for on, period, phase in self.nest)

    def __repr__(self) -> str:
        return f"Sett({', '.join(map(repr, self.stripes))})"

    def runs(self, start: int, stop: int) -> tuple[StridedRun, ...]:
        """Return the elements in [start, stop) as nested arithmetic grids, in ascending order.

        Each run's elements are neighbors among the elements in the window, so that a strided view of an
        array can be packed and unpacked without index arrays.

        Returns
        -------
        tuple of Run
            ``StridedRun(first, levels, rank)`` with levels ``(count, step)``, outermost first.

        Raises
        ------
        TooManyPieces
            If more than 10,000 runs are needed.

        Examples
        --------
        >>> Sett(Stripe(6, 1), Stripe(2, 1)).runs(0, 22)
        (StridedRun(first=0, levels=((3, 7), (2, 3), (2, 1)), rank=0), StridedRun(first=21, levels=(), rank=12))
        """
        return tuple(nests.runs(self.nest, *_bounds(start, stop, "runs")))

    def merge(self, other: Sett) -> Sett | None:
        """Return the sett that is the union with a disjoint sett, if one is found; None if none is.

        Of setts of up to four levels in which every block begins with a whole block of the next level, what
        one cut parts is found: the blocks of any one level cut into two at one place (so also blocks that
        touch, and a piece that completes the other's pattern), or the outermost blocks dealt out in turn, one
        here and one there. Other unions are found often, and never a wrong one.

        Raises
        ------
        TypeError
            If `other` is not a Sett.
        ValueError
            If the setts share an element; the message names one.

        Examples
        --------
        >>> Sett(Stripe(4, 6), Stripe(1, 2)).merge(Sett(Stripe(1, 9, phase=6)))
        Sett(Stripe(7, 3), Stripe(1, 2))
        >>> Sett(Stripe(1, 8)).merge(Sett(Stripe(1, 11, phase=1))) is None
        True

        References
        ----------
        poprithms, memory/nest/sett.hpp, `transfer` and `merge`.
        """
        if not isinstance(other, Sett):
            raise TypeError(f"merge: takes a Sett, not {other!r}; write a | b for other sets")
        _check_disjoint(self, other, "merge: setts")
        nest = ranks.join(self.nest, other.nest)
        return None if nest is None else Sett._of(nest)

    # the questions of one sett about another are asked most often: they go straight to the nests

    def isdisjoint(self, other: Operand, within: Within | None = None) -> bool:
        """Return whether the sets share no integer.

        Examples
        --------
        >>> Sett(Stripe(1, 1)).isdisjoint(Sett(Stripe(1, 3, phase=1)))
        True
        """
        if within is None and type(other) is Sett:
            return pairs.is_disjoint(self.nest, other.nest)
        return Integers.isdisjoint(self, other, within)

    def first_common(self, other: Operand, start: int, stop: int | None = None) -> int | None:
        """Return the smallest common element >= start (and < stop, if given), or None.

        Examples
        --------
        >>> Sett(Stripe(1, 1)).first_common(Sett(Stripe(1, 2)), 1)
        6
        """
        plain = type(start) is int and (stop is None or (type(stop) is int and stop >= start))
        if plain and type(other) is Sett:
            return pairs.first_common(self.nest, other.nest, start, stop)
        return Integers.first_common(self, other, start, stop)

    def count_common(self, other: Operand, start: int | None = None, stop: int | None = None) -> int:
        """Return how many common elements lie in [start, stop), or in one common period.

        Examples
        --------
        >>> Sett(Stripe(1, 1)).count_common(Sett(Stripe(1, 2)), 0, 12)
        2
        """
        if type(other) is Sett and type(start) is int and type(stop) is int and start <= stop:
            return pairs.count_common(self.nest, other.nest, start, stop)
        return Integers.count_common(self, other, start, stop)

    def strided(self, first: int, step: int) -> DisjointSetts:
        """Return {k : first + step*k in self}: what a strided view sees of the set.

        Parameters
        ----------
        first : int
            The element that becomes 0.
        step : int
            The stride, not 0.

        Raises
        ------
        ValueError
            If `step` is 0.

        Examples
        --------
        >>> Sett(Stripe(3, 3)).strided(1, 2).members[0].elements(0, 6).tolist()
        [0, 3]
        """
        first, step = as_int(first, "strided: first"), as_int(step, "strided: step")
        if step == 0:
            raise ValueError("strided: step must not be 0")
        return DisjointSetts._of(explicit.strided(self.nest, first, step))


@dataclass(frozen=True, slots=True, init=False, repr=False)
class DisjointSetts(_Explicit):
    """A union of setts that share no element.

    Parameters
    ----------
    members : iterable of Sett
        Disjoint on the whole line. Empty ones are dropped, and pairs that make one sett are merged: two that are
        everything together, and two whose outermost blocks, brought to one common period where these are at most
        64 together, are one sett, because they touch or because equal ones are at equal distances. No two members
        of a result of up to 64 merge in this way; and none of a result of ``| - ^ ~`` with up to 8 members, even in
        the ways of `Sett.merge`, which also finds what one nest was cut into.

    Raises
    ------
    TypeError
        If a member is not a Sett.
    ValueError
        If two members share an element; the message names one.

    Examples
    --------
    >>> Sett(Stripe(1, 9)) | Stripe(2, 8, phase=4)  # {0, 4, 5} mod 10 is one sett
    DisjointSetts([Sett(Stripe(6, 4), Stripe(2, 3, phase=4))])
    >>> s = Sett(Stripe(1, 9)) | Stripe(1, 6, phase=3)
    >>> len(s), s.elements(0, 20).tolist()
    (2, [0, 3, 10, 17])
    """

    members: tuple[Sett, ...]

    def __init__(self, members: Iterable[Sett] = ()) -> None:
        if isinstance(members, (Stripe, Integers)):
            raise TypeError(
                f"DisjointSetts: members must be an iterable of setts, not one set, {members!r}; write [it]"
            )
        kept = tuple(members)
        for at, member in enumerate(kept):
            if not isinstance(member, Sett):
                raise TypeError(f"DisjointSetts: member {at} must be a Sett, not {member!r}")
        for one, two in combinations(kept, 2):
            _check_disjoint(one, two, "DisjointSetts: members")
        object.__setattr__(self, "members", DisjointSetts._reduced(member.nest for member in kept).members)

    @classmethod
    def _of(cls, found: Iterable[Nest]) -> DisjointSetts:
        """Wrap canonical nests that are known to be disjoint."""
        setts = object.__new__(cls)
        object.__setattr__(setts, "members", tuple(Sett._of(s) for s in found if s != EMPTY))
        return setts

    @classmethod
    def _reduced(cls, found: Iterable[Nest]) -> DisjointSetts:
        """Wrap canonical nests that are known to be disjoint, joining pairs of blocks until none join."""
        return cls._of(unions.reduced(found))

    @classmethod
    def _merged(cls, found: Iterable[Nest]) -> DisjointSetts:
        """Wrap canonical nests that are known to be disjoint, merging pairs until none merge, if they are few."""
        left = unions.reduced(found)
        if len(left) > MERGED_MEMBERS:
            return cls._of(left)
        kept: list[Nest] = []
        while left:
            t = left.pop(0)
            for i, s in enumerate(kept):
                one = ranks.join(s, t)
                if one is not None:
                    del kept[i]
                    left.insert(0, one)
                    break
            else:
                kept.append(t)
        return cls._of(kept)

    @classmethod
    def from_split(cls, pairs: Iterable[tuple[Sett | Stripe, Sett | Stripe]], period: int) -> DisjointSetts:
        """Return the union of {period*q + r : q in outer, r in inner, 0 <= r < period} over pairs (outer, inner).

        It is the inverse of `Integers.split`; other pairs are welcome, and may overlap.

        Raises
        ------
        TypeError
            If the pairs are not made of setts or stripes.
        ValueError
            If `period` is not positive.
        TooManyPieces
            If pairs overlap in a way that needs more setts than are allowed.

        Examples
        --------
        >>> DisjointSetts.from_split([(Stripe(1, 1), Stripe(2, 1))], 6)
        DisjointSetts([Sett(Stripe(5, 7), Stripe(2, 1))])
        """
        n = _positive(period, "DisjointSetts.from_split: period")
        found: list[Nest] = []
        for outer, inner in pairs:
            rows, columns = (_one_nest(x, "DisjointSetts.from_split: outer and inner") for x in (outer, inner))
            found += unions.subtract([ranks.unsplit(rows, columns, n)], found, None)
        return cls._reduced(explicit.merge_nests(found))

    @property
    def _nests(self) -> tuple[Nest, ...]:
        return tuple(member.nest for member in self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return f"DisjointSetts([{', '.join(map(repr, self.members))}])"


@dataclass(frozen=True, slots=True)
class Intersection(Integers):
    """The common elements of two or more sets, not listed: each question is answered from the sets.

    Only `setts` and the operators ``| - ^ ~`` list pieces.

    Attributes
    ----------
    operands : tuple of Sett, DisjointSetts, Filled and Sampled
        The sets.

    Examples
    --------
    >>> both = Sett(Stripe(50001, 50002)) & Sett(Stripe(50009, 50010))
    >>> both.count() == 50001 * 50009, both.find(75000)
    (True, 100019)
    >>> both <= Sett(Stripe(50001, 50002)), (both & Stripe(1, 1)).is_empty
    (True, False)
    >>> halves = [Sett(Stripe(n // 2, n - n // 2)) for n in (7, 11, 13, 17, 19, 23, 29)]
    >>> both = halves[0]
    >>> for half in halves[1:]:
    ...     both = both & half
    >>> both.count(0, 10**9)
    4627341
    """

    operands: tuple[Integers, ...]

    @property
    def _factors(self) -> tuple[Integers, ...]:
        return self.operands

    @property
    def _conjunctions(self) -> Iterable[tuple[Nest, ...]]:
        """Disjoint conjunctions of nests that hold the common elements; lazy sets are listed for it."""
        return _conjunctions(self.operands)

    @property
    def is_empty(self) -> bool:
        """Whether the sets share no integer."""
        return _disjoint(self.operands, None, None)

    @property
    def period(self) -> int:
        """The least common period of all sets."""
        return _period(self.operands)

    def __contains__(self, z: int) -> bool:
        return all(z in s for s in self.operands)

    def _count(self, lo: int, hi: int) -> int:
        return _count(self.operands, lo, hi)

    def _first(self, lo: int, hi: int | None) -> int | None:
        return _first(self.operands, lo, hi)

    def _elements(self, lo: int, hi: int) -> Int64Array:
        if not _are_explicit(self.operands):
            return _elements_by_listing(self, lo, hi)
        few, *rest = sorted(self.operands, key=lambda s: s._count(lo, hi))
        many = few._count(lo, hi)
        if many <= WALK_ABOVE:
            return _filtered(few._elements(lo, hi), rest)
        if many > CUT_BELOW:
            return _array(_walk(self, lo, hi))
        return _in_halves(self, lo, hi)

    def _density(self) -> tuple[int, int]:
        n = span = 1
        for s in self.operands:
            some, of = s._density()
            n, span = n * some, span * of
        return n, span

    def setts(self, within: Within | None = None) -> DisjointSetts:
        """Return the common elements as a list of disjoint setts; within a window they are right there alone.

        Raises
        ------
        TooManyPieces
            If more pieces are needed than are allowed, 10,000 by default; see `limits`.

        Examples
        --------
        >>> (Sett(Stripe(6, 1)) & Stripe(2, 1)).setts(within=(0, 7))
        DisjointSetts([Sett(Stripe(5, 2), Stripe(2, 1))])
        """
        if within is None and len(self.operands) == 2:
            s, t = self.operands
            if type(s) is type(t) is Sett:
                return DisjointSetts._of(unions.settled(explicit.meet(s.nest, t.nest)))
        return Integers.setts(self, within)

    def _listed(self, within: Within | None) -> tuple[Nest, ...]:
        met, *rest = (s._listed(within) for s in self.operands)
        for theirs in rest:
            met = tuple(unions.meet(met, theirs, within))
        return met

    def shift(self, k: int) -> Intersection:
        """Return {z + k : z in self}."""
        return Intersection(tuple(s.shift(k) for s in self.operands))

    def reverse(self, pivot: int) -> Intersection:
        """Return {pivot - 1 - z : z in self}: the elements in [0, pivot) as seen from the other end."""
        return Intersection(tuple(s.reverse(pivot) for s in self.operands))

    def scale(self, f: int) -> Intersection:
        """Return the set in which every element z becomes the block [f*z, f*z + f)."""
        return Intersection(tuple(s.scale(f) for s in self.operands))


@dataclass(frozen=True, slots=True)
class Filled(Integers):
    """The elements of one set whose numbers are in another, {outer.nth(k) : k in ink}, not listed.

    It is made by `Integers.fill`, in the same time whatever the sets are. A question about it is one about
    `outer`'s numbers and then one about `ink`; only `setts` and the operators ``| - ^ ~`` list pieces.

    Attributes
    ----------
    outer, ink : Sett, DisjointSetts, Intersection, Filled or Sampled
        The sets.

    Examples
    --------
    >>> cascade = Sett(Stripe(4, 3))
    >>> for n in (11, 13, 17, 19, 23):
    ...     cascade = cascade.fill(Stripe(n // 2, n - n // 2))
    >>> cascade.count(0, 10**18), cascade.find(10**18), cascade.nth(10**18)
    (12780327762155739, 1000000000000000196, 78245254629629629543)
    >>> cascade.setts(within=(0, 40))
    DisjointSetts([Sett(Stripe(8, 32), Stripe(4, 3)), Sett(Stripe(1, 39, phase=17))])
    """

    outer: Integers
    ink: Integers

    @property
    def is_empty(self) -> bool:
        """Whether the set holds no integer."""
        return self.outer.is_empty or self.ink.is_empty

    @property
    def period(self) -> int:
        """The period of `outer`, as often as the numbers need to repeat with the ink's period."""
        n, R = self.outer.count(), self.ink.period
        return self.outer.period * (R // gcd(n, R)) if n else 1

    def __contains__(self, z: int) -> bool:
        z = as_int(z, "Filled: element")
        return z in self.outer and self.outer.rank(z) in self.ink

    def _count(self, lo: int, hi: int) -> int:
        return self.ink._count(self.outer.rank(lo), self.outer.rank(hi))

    def _first(self, lo: int, hi: int | None) -> int | None:
        with Question():
            if self.outer.is_empty:
                return None
            k = self.ink._first(self.outer.rank(lo), None if hi is None else self.outer.rank(hi))
            return None if k is None else self.outer._nth(k)

    def _nth(self, k: int) -> int:
        with Question():
            return self.outer._nth(self.ink._nth(k))

    def _elements(self, lo: int, hi: int) -> Int64Array:
        first, last = self.outer.rank(lo), self.outer.rank(hi)
        many = self.ink._count(first, last)
        if not many:
            return NONE
        if WALK_ABOVE < last - first <= 16 * many:
            return _in_halves(self, lo, hi)
        k = self.ink._elements(first, last)
        if last - first <= min(16 * many + 1024, WALK_ABOVE):
            return self.outer._elements(lo, hi)[k - first]
        return self.outer._nth_each(k)

    def _nth_each(self, k: Int64Array) -> Int64Array:
        return self.outer._nth_each(self.ink._nth_each(k))

    def _density(self) -> tuple[int, int]:
        (n, span), (m, numbers) = self.outer._density(), self.ink._density()
        return n * m, span * numbers

    def _listed(self, within: Within | None) -> tuple[Nest, ...]:
        if within is None:
            return tuple(ranks.fill(self.outer._listed(None), self.ink._listed(None)))
        lo, hi = within
        first, last = self.outer.rank(lo), self.outer.rank(hi)
        if first == last:
            return ()
        ink = self.ink._listed((first, last))
        return tuple(ranks.fill_within(self.outer._listed(within), first, ink, lo, hi))

    def shift(self, k: int) -> Filled:
        """Return {z + k : z in self}."""
        k = as_int(k, "shift: k")
        return Filled(self.outer.shift(k), self.ink.shift(-self.outer.rank(-k)))

    def reverse(self, pivot: int) -> Filled:
        """Return {pivot - 1 - z : z in self}: the elements in [0, pivot) as seen from the other end."""
        pivot = as_int(pivot, "reverse: pivot")
        return Filled(self.outer.reverse(pivot), self.ink.reverse(self.outer.rank(pivot)))

    def scale(self, f: int) -> Filled:
        """Return the set in which every element z becomes the block [f*z, f*z + f)."""
        return Filled(self.outer.scale(f), self.ink.scale(f))


@dataclass(frozen=True, slots=True)
class Sampled(Integers):
    """A set as seen through another, {k : at.nth(k) in inner}, not listed.

    It is made by `Integers.sample`, in the same time whatever the sets are. A question about it is one about
    the common elements of both sets; only `setts` and the operators ``| - ^ ~`` list pieces.

    Attributes
    ----------
    inner, at : Sett, DisjointSetts, Intersection, Filled or Sampled
        The sets. If `at` is empty, so is this.

    Examples
    --------
    >>> seen = Sett(Stripe(50009, 50010)).sample(Stripe(50001, 50002))
    >>> 10**18 in seen, seen.count(0, 10**18), seen.find(10**18)
    (True, 499995000941042485, 1000000000000000000)
    """

    inner: Integers
    at: Integers

    @property
    def _both(self) -> tuple[Integers, ...]:
        return (*self.inner._factors, *self.at._factors)

    @property
    def is_empty(self) -> bool:
        """Whether the set holds no integer."""
        return self.at.is_empty or _disjoint(self._both, None, None)

    @property
    def period(self) -> int:
        """How many elements of `at` a common period of both sets has."""
        n, P = self.at.count(), self.at.period
        return lcm(P, self.inner.period) // P * n or 1

    def __contains__(self, k: int) -> bool:
        k = as_int(k, "Sampled: element")
        return not self.at.is_empty and self.at._nth(k) in self.inner

    def _density(self) -> tuple[int, int]:
        return self.inner._density()

    def _count(self, lo: int, hi: int) -> int:
        return 0 if self.at.is_empty else _count(self._both, self.at._nth(lo), self.at._nth(hi))

    def _first(self, lo: int, hi: int | None) -> int | None:
        if self.at.is_empty:
            return None
        z = _first(self._both, self.at._nth(lo), None if hi is None else self.at._nth(hi))
        return None if z is None else self.at.rank(z)

    def _nth(self, k: int) -> int:
        return self.at.rank((self.inner & self.at)._nth(k))

    def _elements(self, lo: int, hi: int) -> Int64Array:
        if self.at.is_empty or lo == hi:
            return NONE
        first, last = self.at._nth(lo), self.at._nth(hi)
        if max(-first, last) >> 62:
            return _array(_walk(self, lo, hi))
        if WALK_ABOVE < hi - lo <= CUT_BELOW:
            return _in_halves(self, lo, hi)
        z = (self.inner & self.at)._elements(first, last)
        if hi - lo <= min(16 * len(z) + 1024, WALK_ABOVE):
            return np.searchsorted(self.at._elements(first, last), z) + lo
        return self.at._rank_each(z)

    def _listed(self, within: Within | None) -> tuple[Nest, ...]:
        if self.at.is_empty:
            return ()
        if within is None:
            return tuple(ranks.sample(self.inner._listed(None), self.at._listed(None)))
        first, last = within
        lo, hi = self.at._nth(first), self.at._nth(last)
        inner, at = self.inner._listed((lo, hi)), self.at._listed((lo, hi))
        return tuple(ranks.sample_within(inner, at, lo, hi, first, last))

    def _moved_at(self, k: int) -> int:
        """Return the element of number k, or any integer where there is none."""
        return 0 if self.at.is_empty else self.at._nth(k)

    def shift(self, k: int) -> Sampled:
        """Return {z + k : z in self}."""
        by = -self._moved_at(-as_int(k, "shift: k"))
        return Sampled(self.inner.shift(by), self.at.shift(by))

    def reverse(self, pivot: int) -> Sampled:
        """Return {pivot - 1 - z : z in self}: the elements in [0, pivot) as seen from the other end."""
        about = self._moved_at(as_int(pivot, "reverse: pivot"))
        return Sampled(self.inner.reverse(about), self.at.reverse(about))

    def scale(self, f: int) -> Sampled:
        """Return the set in which every element z becomes the block [f*z, f*z + f)."""
        return Sampled(self.inner.scale(f), self.at.scale(f))


Operand = Stripe | Integers
"""Whatever an operation on sets of integers takes."""


def _set(x: object) -> Integers:
    if isinstance(x, Integers):
        return x
    if isinstance(x, Stripe):
        return Sett._of(nests.canonical([x.level]))
    raise TypeError(
        f"a set of integers is a Stripe, Sett, DisjointSetts, Intersection, Filled or Sampled, not {type(x).__name__}"
    )


def _operand(x: Integers) -> Integers:
    """Return a factor in the form in which an intersection keeps it: a union of one sett as the sett."""
    return x.members[0] if isinstance(x, DisjointSetts) and len(x.members) == 1 else x


def _one_nest(x: object, what: str) -> Nest:
    if not isinstance(x, (Sett, Stripe)):
        raise TypeError(f"{what} must each be a Sett or a Stripe, not {x!r}")
    return x.nest if isinstance(x, Sett) else nests.canonical([x.level])


def _check_disjoint(one: Sett, two: Sett, what: str) -> None:
    if not one.isdisjoint(two):
        raise ValueError(f"{what} {one!r} and {two!r} share {one.first_common(two, 0)}; write one | two")


def _array(values: Iterable[int]) -> Int64Array:
    try:
        return np.fromiter(values, np.int64)
    except OverflowError:
        raise OverflowError("elements do not fit int64; ask for a part of them, or for find or nth") from None


def _walk(s: Integers, lo: int, hi: int) -> Iterator[int]:
    """Yield the elements in the window one by one, within one budget."""
    with Question() as budget:
        z = s._first(lo, hi)
        while z is not None:
            yield z
            conjunction.spend(budget, 1, f"the elements of a set in [{lo}, {hi}), sought one by one", ())
            z = s._first(z + 1, hi)


def _in_halves(s: Integers, lo: int, hi: int) -> Int64Array:
    """Return the elements in the window half by half, so that what is listed on the way stays short."""
    middle = (lo + hi) // 2
    return np.concatenate([s._elements(lo, middle), s._elements(middle, hi)])


def _one_by_one(values: Int64Array) -> list[int]:
    """Return integers that are to be looked at one by one, if these are not too many."""
    if len(values) > ONE_BY_ONE:
        raise TooHard(
            f"{len(values)} elements of a union or a lazy set would be looked at one by one, more than {ONE_BY_ONE}; "
            "ask within a shorter range"
        )
    found: list[int] = values.tolist()
    return found


# ---------------------------------------------------------------------------------- questions about several sets


def count_common_all(sets: Iterable[Operand], start: int | None = None, stop: int | None = None) -> int:
    """Return how many integers all of the sets share in [start, stop), or in one common period.

    Parameters
    ----------
    sets : iterable of Stripe, Sett, DisjointSetts, Intersection, Filled or Sampled
        At least one.
    start, stop : int, optional
        The range, both or neither.

    Raises
    ------
    ValueError
        If there is no set, or start > stop.
    TooHard
        If nothing answers within its budget; never for setts of coprime periods over whole common periods.

    Examples
    --------
    >>> halves = [Stripe(n // 2, n - n // 2) for n in (7, 11, 13, 17, 19, 23, 29)]
    >>> count_common_all(halves), count_common_all(halves, 0, 10**9)
    (997920, 4627341)
    """
    factors = _all_factors(sets, "count_common_all")
    lo, hi = (0, _period(factors)) if start is None and stop is None else _bounds(start, stop, "count_common_all")
    return _count(factors, lo, hi)


def first_common_all(sets: Iterable[Operand], start: int, stop: int | None = None) -> int | None:
    """Return the smallest integer >= start (and < stop, if given) that all of the sets share, or None.

    Parameters
    ----------
    sets : iterable of Stripe, Sett, DisjointSetts, Intersection, Filled or Sampled
        At least one.
    start, stop : int
        The range; to any length if `stop` is not given.

    Raises
    ------
    ValueError
        If there is no set, or start > stop.
    TooHard
        If nothing answers within its budget.

    Examples
    --------
    >>> first_common_all([Stripe(1, 6, phase=6), Stripe(1, 10), Stripe(1, 12, phase=1)], 0)
    209
    """
    return _first(_all_factors(sets, "first_common_all"), *_from(start, stop, "first_common_all"))


def isdisjoint_all(sets: Iterable[Operand], within: Within | None = None) -> bool:
    """Return whether no integer is in all of the sets; two of them may meet.

    Parameters
    ----------
    sets : iterable of Stripe, Sett, DisjointSetts, Intersection, Filled or Sampled
        At least one.
    within : (int, int), optional
        The range; by default the whole line.

    Raises
    ------
    ValueError
        If there is no set, or the window is reversed.
    TooHard
        If nothing answers within its budget.

    Examples
    --------
    >>> isdisjoint_all([Stripe(2, 1), Stripe(2, 1, phase=1), Stripe(2, 1, phase=2)])
    True
    """
    return _disjoint(_all_factors(sets, "isdisjoint_all"), *_window(within, "isdisjoint_all"))


def _all_factors(sets: Iterable[Operand], verb: str) -> tuple[Integers, ...]:
    if not isinstance(sets, Iterable):
        raise TypeError(f"{verb}: takes an iterable of sets, not {sets!r}; write {verb}([a, b])")
    factors = tuple(factor for s in sets for factor in _set(s)._factors)
    if not factors:
        raise ValueError(f"{verb}: needs at least one set; every integer is in all of none, and is Sett()")
    return factors


def _are_explicit(factors: Sequence[Integers]) -> bool:
    return all(isinstance(s, _Explicit) for s in factors)


def _period(factors: Sequence[Integers]) -> int:
    return lcm(*(s.period for s in factors))


def _conjunctions(factors: Sequence[Integers]) -> Iterable[tuple[Nest, ...]]:
    """Return disjoint conjunctions of nests, one for each choice of a member of each explicit set."""
    listed = [s._listed(None) for s in factors]
    if len(listed) > 2:
        check_pieces(prod(map(len, listed)), "intersection of unions")
    return product(*listed)


def _first(factors: Sequence[Integers], lo: int, hi: int | None) -> int | None:
    """Return the smallest integer in the window that all sets share, or None."""
    if len(factors) == 1:
        return factors[0]._first(lo, hi)
    if not _are_explicit(factors):
        return _first_lazy(_grouped(factors), lo, hi)
    if len(factors) == 2 and type(factors[0]) is type(factors[1]) is Sett:
        return conjunction.first((factors[0].nest, factors[1].nest), lo, hi)
    with Question() as budget:
        leap = conjunction.Leap([partial(s._first, hi=hi) for s in factors], lo)
        members = sum(len(s._listed(None)) + 1 for s in factors)
        if leap.go(hi, Budget(min(LEAPS, LEAPS_OF_MEMBERS // members))):
            return leap.met
        lo, best = leap.z, None
        for each in _conjunctions(factors):
            conjunction.spend(budget, 1, "first common element", each)
            z = conjunction.first(each, lo, hi)
            if z is not None:
                best = hi = z
        return best


def _count(factors: Sequence[Integers], lo: int, hi: int) -> int:
    """Return how many integers in the window all sets share."""
    if len(factors) == 1:
        return factors[0]._count(lo, hi)
    if not _are_explicit(factors):
        return _count_lazy(_grouped(factors), lo, hi)
    with Question() as budget:
        total = 0
        for each in _conjunctions(factors):
            conjunction.spend(budget, 1, "count of common elements", each)
            total += conjunction.count(each, lo, hi)
        return total


def _disjoint(factors: Sequence[Integers], lo: int | None, hi: int | None) -> bool:
    """Return whether no integer (in the window) is in all sets."""
    if lo is not None and hi is not None:
        return lo == hi or _first(factors, lo, hi) is None
    if _are_explicit(factors):
        with Question() as budget:
            for each in _conjunctions(factors):
                conjunction.spend(budget, 1, "common element", each)
                if not conjunction.is_disjoint(each):
                    return False
            return True
    with Question():
        return any(_is_empty(group) for group in _coprime(_grouped(factors)))


# ---------------------------------------------------------------------------------- questions about lazy sets


def _grouped(factors: Sequence[Integers]) -> tuple[Integers, ...]:
    """Return factors in which the explicit ones are one, whose common elements have closed forms."""
    listed = tuple(_operand(s) for s in factors if isinstance(s, _Explicit))
    lazy = tuple(dict.fromkeys(s for s in factors if not isinstance(s, _Explicit)))
    if not listed:
        return lazy
    return (*lazy, listed[0] if len(listed) == 1 else Intersection(listed))


def _coprime(factors: Iterable[Integers]) -> list[tuple[Integers, ...]]:
    return conjunction.coprime_groups(factors, lambda s: s.period)


def _is_empty(group: tuple[Integers, ...]) -> bool:
    if len(group) == 1:
        return group[0].is_empty
    return _first_lazy(group, 0, _period(group)) is None


def _around(s: Integers) -> tuple[Integers, ...]:
    """Return explicit sets around a set."""
    if isinstance(s, Filled):
        return tuple(each for t in s.outer._factors for each in _around(t))
    return () if isinstance(s, Sampled) else s._factors


def _first_lazy(factors: tuple[Integers, ...], lo: int, hi: int | None) -> int | None:
    """Return what `_first` does: from set to set, then by sets around them, then by listing."""
    if len(factors) == 1:
        return factors[0]._first(lo, hi)
    end = lo + _period(factors)
    hi = end if hi is None else min(hi, end)
    with Question():
        return _first_leaping(factors, lo, hi)


def _first_leaping(factors: tuple[Integers, ...], lo: int, hi: int) -> int | None:
    leap = conjunction.Leap([partial(s._first, hi=hi) for s in factors], lo)
    if attempt(lambda: _has_ended(leap, hi)) is True:
        return leap.met
    z = leap.z
    around = tuple(each for s in factors for each in _around(s))
    if len(around) > 1:
        whole = hi - lo >= _period(around)
        if _disjoint(around, *((None, None) if whole else (z, hi))):
            return None
    listing = next(_listings(factors, z, hi), None)
    if listing is None:
        raise _too_hard("first common element", factors, z, hi)
    return listing.first()


def _has_ended(leap: conjunction.Leap, hi: int) -> bool:
    """Go from set to set for a while; each set that is asked is a branch of the budget."""
    with Question() as budget:
        rounds = Budget(min(LEAPS, budget.left // len(leap.finds)))
        has_ended = leap.go(hi, rounds)
        budget.spend(rounds.spent * len(leap.finds))
        return has_ended


def _count_lazy(factors: tuple[Integers, ...], lo: int, hi: int) -> int:
    """Return what `_count` does: whole periods by the Chinese remainder theorem, the rest by listing."""
    if lo == hi:
        return 0
    if len(factors) == 1:
        return factors[0]._count(lo, hi)
    with Question():
        return _count_in_groups(factors, lo, hi)


def _count_in_groups(factors: tuple[Integers, ...], lo: int, hi: int) -> int:
    whole, rest = divmod(hi - lo, _period(factors))
    groups = _coprime(factors) if whole else []
    if len(groups) > 1:
        each = prod(_count(group, 0, _period(group)) for group in groups)
        return whole * each + _count_lazy(factors, lo, lo + rest)
    listing = next(_listings(factors, lo, hi), None)
    if listing is None:
        raise _too_hard("count of common elements", factors, lo, hi)
    return listing.count()


def _too_hard(what: str, factors: Sequence[Integers], lo: int, hi: int) -> TooHard:
    return TooHard(
        f"{what} of {len(factors)} sets of periods {[s.period for s in factors]} in [{lo}, {hi}): each set needs "
        f"more than {PIECES} setts and {LISTED} elements there; ask within a shorter range"
    )


@dataclass(frozen=True, slots=True)
class _Listing:
    """The answer to a question about lazy sets, from sets that are listed: setts, or else elements."""

    factors: tuple[Integers, ...]
    lo: int
    hi: int
    outer: Integers | None  # whose numbers the window and the factors are about, if any
    elements: Int64Array | None

    def first(self) -> int | None:
        if self.elements is not None:
            return int(self.elements[0]) if len(self.elements) else None
        z = _first(self.factors, self.lo, self.hi)
        return z if z is None or self.outer is None else self.outer._nth(z)

    def count(self) -> int:
        return len(self.elements) if self.elements is not None else _count(self.factors, self.lo, self.hi)


def _listings(factors: tuple[Integers, ...], lo: int, hi: int) -> Iterator[_Listing]:
    """Yield ways to answer a question about the common elements in the window, the cheapest first."""
    listed = [_in_few_setts(s, lo, hi) for s in factors]
    if all(s is not None for s in listed):
        yield _Listing(_flat(listed), lo, hi, None, None)
    for at, s in enumerate(factors):  # s.outer.fill(s.ink) & b is s.outer.fill(s.ink & b.sample(s.outer))
        if isinstance(s, Filled) and listed[at] is None:
            rest = [t for i, t in enumerate(factors) if i != at]
            first, last = s.outer.rank(lo), s.outer.rank(hi)
            seen = [_in_few_setts(_seen(t, s.outer), first, last) for t in rest]
            if all(t is not None for t in seen):
                yield _Listing(_flat([s.ink, *seen]), first, last, s.outer, None)
    with suppress(OverflowError):  # elements beyond int64 are not listed
        common = attempt(lambda: _in_few_elements(factors, lo, hi))
        if common is not OPEN and common is not None:
            yield _Listing((), lo, hi, None, common)


def _flat(sets: Iterable[Integers | None]) -> tuple[Integers, ...]:
    return tuple(factor for s in sets if s is not None for factor in s._factors)


def _in_few_setts(s: Integers, lo: int, hi: int) -> Integers | None:
    """Return a set that is right in the window, listed if it is lazy; None if that needs too many setts."""
    if _are_explicit(s._factors):
        return s
    with limits(max_pieces=min(PIECES, current().max_pieces)):
        found = attempt(lambda: s._listed((lo, hi)))
    return None if found is OPEN else DisjointSetts._of(found)


def _in_few_elements(factors: tuple[Integers, ...], lo: int, hi: int) -> Int64Array | None:
    """Return the common elements in the window where one of the sets has few there, else None."""
    counts = {s: s._count(lo, hi) for s in factors}
    few, *rest = sorted(factors, key=counts.__getitem__)
    if counts[few] > LISTED:
        return None
    z = few._elements(lo, hi)
    for s in rest:
        if _are_explicit(s._factors):
            z = _filtered(z, s._factors)
        elif counts[s] <= LISTED:
            z = np.intersect1d(z, s._elements(lo, hi), assume_unique=True)
        elif len(z) <= LISTED >> 8:
            z = _array(at for at in z.tolist() if at in s)
        else:
            return None
    return z


def _filtered(z: Int64Array, explicit_sets: Iterable[Integers]) -> Int64Array:
    """Return those of the integers that are in all of the sets."""
    for s in explicit_sets:
        keep = np.zeros(len(z), bool)
        for nest in s._listed(None):
            keep |= nests.contains_each(nest, z)
        z = z[keep]
    return z


def _elements_by_listing(s: Intersection, lo: int, hi: int) -> Int64Array:
    found = _in_few_elements(_grouped(s.operands), lo, hi)
    return _array(_walk(s, lo, hi)) if found is None else found


# ------------------------------------------------------------------------------------------------- inclusion


def _is_subset(factors: Sequence[Integers], other: Integers, lo: int | None, hi: int | None) -> bool:
    """Return whether the common elements of sets (in the window) are all in another."""
    if isinstance(other, Intersection):
        return all(_is_subset(factors, operand, lo, hi) for operand in other.operands)
    if any(_is_part(s, other) for s in factors):
        return True
    if isinstance(other, Filled):  # all lie in the outer set, and their numbers there are in the ink
        if not _is_subset(factors, other.outer, lo, hi):
            return False
        seen = _seen(_together(factors), other.outer)
        ends = (None, None) if lo is None or hi is None else (other.outer.rank(lo), other.outer.rank(hi))
        return _is_subset((seen,), other.ink, *ends)
    if isinstance(other, Sampled):  # as numbers of `at`, they are those of elements of the inner set
        if other.at.is_empty:
            return _disjoint(factors, lo, hi)
        ends = (None, None) if lo is None or hi is None else (other.at._nth(lo), other.at._nth(hi))
        return _is_subset((Filled(other.at, _together(factors)),), other.inner, *ends)
    theirs = other._listed(None)
    with Question():
        if _are_explicit(factors):
            return _are_covered(factors, theirs, lo, hi)
        return _is_covered_lazy(factors, theirs, lo, hi)


def _is_part(s: Integers, other: Integers) -> bool:
    """Return whether a set is another, or fills one that is."""
    while isinstance(s, Filled) and s != other:
        s = s.outer
    return s == other


def _seen(s: Integers, at: Integers) -> Integers:
    """Return ``s.sample(at)``, undoing fills of `at` itself."""
    if at.is_empty:
        return Sett.empty()
    if s == at:
        return Sett()
    if isinstance(s, Filled) and _is_part(s.outer, at):
        return s.ink if s.outer == at else Filled(_seen(s.outer, at), s.ink)
    return Sampled(s, at)


def _together(factors: Sequence[Integers]) -> Integers:
    return factors[0] if len(factors) == 1 else Intersection(tuple(map(_operand, factors)))


def _is_covered_lazy(factors: Sequence[Integers], theirs: Sequence[Nest], lo: int | None, hi: int | None) -> bool:
    """Return whether the common elements of sets, of which one is lazy, are all in a disjoint union."""
    around = tuple(each for s in factors for each in _around(s))
    if around and attempt(lambda: _are_covered(around, theirs, lo, hi)) is True:
        return True
    outside = unions.subtract([()], theirs, None)
    return all(_disjoint((*factors, Sett._of(c)), lo, hi) for c in outside)


def _are_covered(factors: Sequence[Integers], theirs: Sequence[Nest], lo: int | None, hi: int | None) -> bool:
    """Return whether the common elements of explicit sets are all in a disjoint union."""
    return all(_is_covered(each, theirs, lo, hi) for each in _conjunctions(factors))


def _is_covered(each: tuple[Nest, ...], theirs: Sequence[Nest], lo: int | None, hi: int | None) -> bool:
    """Return whether the common elements of nests are all in a disjoint union."""
    if _one_is_covered(each, theirs, lo, hi):
        return True
    if len(theirs) == 1:
        outside = nests.complement(theirs[0]) if len(each) > 1 else []
        return bool(outside) and all(conjunction.is_disjoint((*each, c), lo, hi) for c in outside)
    if lo is None or hi is None:
        lo, hi = 0, lcm(conjunction.period(each), *(nests.period(t) for t in theirs))
    # the members are disjoint, so that all is covered if the common elements add up
    return sum(conjunction.count((*each, t), lo, hi) for t in theirs) == conjunction.count(each, lo, hi)


def _one_is_covered(each: tuple[Nest, ...], theirs: Sequence[Nest], lo: int | None, hi: int | None) -> bool:
    """Return whether one of the nests alone is in one member, as far as that is answered."""
    if len(each) == 1 == len(theirs):
        return pairs.is_subset(each[0], theirs[0], lo, hi)
    return any(attempt(partial(_is_inside, s, t, lo, hi)) is True for s in each for t in theirs)


def _is_inside(s: Nest, t: Nest, lo: int | None, hi: int | None) -> bool:
    """Return whether one nest is in another, as a question about conjunctions."""
    with Question() as budget:
        conjunction.spend(budget, 1, "subset", (s, t))
        return all(conjunction.is_disjoint((s, c), lo, hi) for c in nests.complement(t))
