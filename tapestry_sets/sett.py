"""Setts, nested stripes of integers, and their disjoint unions.

Queries (`in`, count, find, first_common, count_common, isdisjoint, <=) are answered without expanding
anything. Explicit operations (| - ^ ~ and `Intersection.setts`) list pieces, and raise `TooManyPieces`
where these would be more than can be meant.

Where an operation takes ``within=(start, stop)``, it is about the integers in [start, stop) alone; without
it, decisions are about the whole line and counts about one common period.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import combinations, product
from math import lcm, prod

import numpy as np

from tapestry_sets import conjunction, draw, explicit, pairs
from tapestry_sets import nest as nests
from tapestry_sets.limits import TooHard, TooManyPieces, check_pieces, current
from tapestry_sets.nest import EMPTY, Item, Nest, Run
from tapestry_sets.stripe import Int64Array, Stripe, as_int

Window = tuple[int, int]

WALK_ABOVE = 1 << 22
"""Common elements are filtered from the smaller set up to this many, and sought one by one above it."""


def _window(within: Window | None, where: str) -> tuple[int, int] | tuple[None, None]:
    if within is None:
        return None, None
    if not isinstance(within, (tuple, list)):
        raise TypeError(f"{where}: within must be a pair (start, stop), not {within!r}")
    if len(within) != 2:
        raise ValueError(f"{where}: within must be a pair (start, stop), not {len(within)} values: {within!r}")
    start, stop = within
    return as_int(start, f"{where}: within[0]"), as_int(stop, f"{where}: within[1]")


def _bounds(start: int | None, stop: int | None, verb: str) -> tuple[int, int]:
    if start is None or stop is None:
        raise ValueError(f"{verb}: give both start and stop or neither, not start={start}, stop={stop}")
    return as_int(start, f"{verb}: start"), as_int(stop, f"{verb}: stop")


class _Integers(ABC):
    """The verbs that setts and unions of setts share, written once over their nests."""

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

    def __str__(self) -> str:
        return draw.summary(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return draw.mimebundle(self)

    def __contains__(self, z: int) -> bool:
        z = as_int(z, f"{type(self).__name__}: element")
        return any(nests.contains(s, z) for s in self._nests)

    def count(self, start: int | None = None, stop: int | None = None) -> int:
        """Return how many elements lie in [start, stop), or in one period if neither is given.

        Examples
        --------
        >>> Sett(Stripe(6, 1), Stripe(2, 1)).count(0, 7 * 10**12)
        4000000000000
        """
        lo, hi = self._range(start, stop, "count")
        return sum(nests.count(s, lo, hi) for s in self._nests)

    def _range(self, start: int | None, stop: int | None, verb: str) -> tuple[int, int]:
        return (0, self.period) if start is None and stop is None else _bounds(start, stop, verb)

    def find(self, start: int) -> int | None:
        """Return the smallest element >= start, or None if the set is empty.

        Examples
        --------
        >>> Sett(Stripe(6, 1), Stripe(2, 1)).find(5)
        7
        """
        start = as_int(start, "find: start")
        return min((nests.find(s, start) for s in self._nests), default=None)

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
        if not self._nests:
            raise IndexError(f"nth: no element {k}: the set is empty")
        if len(self._nests) == 1:
            return nests.nth(self._nests[0], k)
        block, rest = divmod(k, self.count())
        lo, hi = 0, self.period  # the smallest z with more than `rest` elements in [0, z]
        while lo < hi - 1:
            middle = (lo + hi) // 2
            lo, hi = (lo, middle) if self.count(0, middle) > rest else (middle, hi)
        return lo + block * self.period

    def elements(self, start: int, stop: int) -> Int64Array:
        """Return the elements in [start, stop) in ascending order, as int64.

        Examples
        --------
        >>> Sett(Stripe(6, 1), Stripe(2, 1)).elements(0, 10).tolist()
        [0, 1, 3, 4, 7, 8]
        """
        lo, hi = self._range(start, stop, "elements")
        parts = [nests.elements(s, lo, hi) for s in self._nests]
        return parts[0] if len(parts) == 1 else np.sort(np.concatenate([np.empty(0, np.int64), *parts]))

    def isdisjoint(self, other: Integers, within: Window | None = None) -> bool:
        """Return whether the sets share no integer.

        Examples
        --------
        >>> evens = Sett(Stripe(1, 1))
        >>> evens.isdisjoint(evens.shift(1)), evens.isdisjoint(Stripe(1, 4), within=(1, 10))
        (True, True)
        """
        if isinstance(other, Intersection):
            return other.isdisjoint(self, within)
        lo, hi = _window(within, "isdisjoint")
        return all(pairs.is_disjoint(s, t, lo, hi) for s in self._nests for t in _nests_of(other))

    def first_common(self, other: Integers, start: int, stop: int | None = None) -> int | None:
        """Return the smallest common element >= start (and < stop, if given), or None.

        Examples
        --------
        >>> Sett(Stripe(1, 100002)).first_common(Stripe(1, 100018, phase=1), 0)
        6876506289
        """
        if isinstance(other, Intersection):
            return (self & other).first(start, stop)
        start = as_int(start, "first_common: start")
        best = None if stop is None else as_int(stop, "first_common: stop")
        found: int | None = None
        for s in self._nests:
            for t in _nests_of(other):
                z = pairs.first_common(s, t, start, best)
                if z is not None:
                    found = best = z
        return found

    def count_common(self, other: Integers, start: int | None = None, stop: int | None = None) -> int:
        """Return how many common elements lie in [start, stop), or in one common period.

        Examples
        --------
        >>> Sett(Stripe(1, 1)).count_common(Stripe(1, 2), 0, 6 * 10**15)
        1000000000000000
        """
        if isinstance(other, Intersection):
            return (self & other).count(start, stop)
        theirs = _nests_of(other)
        if start is None and stop is None:
            lo, hi = 0, lcm(self.period, *(nests.period(t) for t in theirs))
        else:
            lo, hi = _bounds(start, stop, "count_common")
        return sum(pairs.count_common(s, t, lo, hi) for s in self._nests for t in theirs)

    def issubset(self, other: Integers, within: Window | None = None) -> bool:
        """Return whether every element is in `other`; written ``a <= b`` for the whole line."""
        if isinstance(other, Intersection):
            return all(self.issubset(operand, within) for operand in other.operands)
        lo, hi = _window(within, "issubset")
        theirs = _nests_of(other)
        return all(_is_covered((s,), theirs, lo, hi) for s in self._nests)

    def __le__(self, other: Integers) -> bool:
        return self.issubset(other)

    def __ge__(self, other: Integers) -> bool:
        return _lazy(other).issubset(self)

    def same_points(self, other: Integers, within: Window | None = None) -> bool:
        """Return whether both sets hold the same integers, whatever their form.

        Examples
        --------
        >>> a = Sett(Stripe(5, 4), Stripe(1, 1))
        >>> b = Sett(Stripe(3, 6), Stripe(1, 1)) | Stripe(1, 8, phase=4)
        >>> a == b, a.same_points(b)
        (False, True)
        """
        return self.issubset(other, within) and _lazy(other).issubset(self, within)

    def __and__(self, other: Integers) -> Intersection:
        return Intersection((*_operands(self), *_operands(other)))

    def __or__(self, other: Integers) -> Setts:
        return self.union(other)

    def __sub__(self, other: Integers) -> Setts:
        return self.difference(other)

    def __xor__(self, other: Integers) -> Setts:
        theirs = _as_setts(other)
        both = (*(self - theirs)._nests, *(theirs - self)._nests)
        return Setts._of(explicit.merge_nests(both))

    def __invert__(self) -> Setts:
        return Sett().difference(self)

    def union(self, other: Integers, within: Window | None = None) -> Setts:
        """Return the union as disjoint setts; within a window it is right there, and periodic outside it.

        Raises
        ------
        TooManyPieces
            If more than 10,000 pieces are needed.
        """
        return Setts._of(_union(self._nests, _nests_of(other), within))

    def difference(self, other: Integers, within: Window | None = None) -> Setts:
        """Return the elements that are not in `other`, as disjoint setts; see `union` for `within`.

        Raises
        ------
        TooManyPieces
            If more than 10,000 pieces are needed.
        """
        return Setts._of(_subtract(self._nests, _nests_of(other), within))

    def shift(self, k: int) -> Setts:
        """Return {z + k : z in self}."""
        k = as_int(k, "shift: k")
        return Setts._of(nests.shift(s, k) for s in self._nests)

    def reverse(self, pivot: int) -> Setts:
        """Return {pivot - 1 - z : z in self}: the elements in [0, pivot) as seen from the other end."""
        pivot = as_int(pivot, "reverse: pivot")
        return Setts._of(nests.canonical(nests.reverse(s, pivot)) for s in self._nests)

    def scale(self, f: int) -> Setts:
        """Return the set in which every element z becomes the block [f*z, f*z + f).

        Raises
        ------
        ValueError
            If `f` is not positive.
        """
        f = _positive(f, "scale: f")
        return Setts._of(nests.scale(s, f) for s in self._nests)


def _positive(value: object, what: str) -> int:
    n = as_int(value, what)
    if n < 1:
        raise ValueError(f"{what} must be at least 1, not {n}")
    return n


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Sett(_Integers):
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

    def runs(self, start: int, stop: int) -> tuple[Run, ...]:
        """Return the elements in [start, stop) as nested arithmetic grids, in ascending order.

        Each run's elements are neighbours among the elements in the window, so that a strided view of an
        array can be packed and unpacked without index arrays.

        Returns
        -------
        tuple of Run
            ``Run(first, levels, rank)`` with levels ``(count, step)``, outermost first.

        Raises
        ------
        TooManyPieces
            If more than 10,000 runs are needed.

        Examples
        --------
        >>> Sett(Stripe(6, 1), Stripe(2, 1)).runs(0, 22)
        (Run(first=0, levels=((3, 7), (2, 3), (2, 1)), rank=0), Run(first=21, levels=(), rank=12))
        """
        lo, hi = as_int(start, "runs: start"), as_int(stop, "runs: stop")
        return tuple(nests.runs(self.nest, lo, hi))

    def strided(self, first: int, step: int) -> Setts:
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
        return Setts._of(explicit.strided(self.nest, first, step))


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Setts(_Integers):
    """A union of setts that share no element.

    Parameters
    ----------
    members : iterable of Sett
        Disjoint on the whole line; empty ones are dropped.

    Raises
    ------
    TypeError
        If a member is not a Sett.
    ValueError
        If two members share an element; the message names one.

    Examples
    --------
    >>> s = Sett(Stripe(1, 9)) | Stripe(2, 8, phase=4)
    >>> s
    Setts([Sett(Stripe(1, 9)), Sett(Stripe(2, 8, phase=4))])
    >>> s.elements(0, 20).tolist()
    [0, 4, 5, 10, 14, 15]
    """

    members: tuple[Sett, ...]

    def __init__(self, members: Iterable[Sett] = ()) -> None:
        kept = tuple(members)
        for at, member in enumerate(kept):
            if not isinstance(member, Sett):
                raise TypeError(f"Setts: member {at} must be a Sett, not {member!r}")
        kept = tuple(member for member in kept if not member.is_empty)
        for one, two in combinations(kept, 2):
            if not one.isdisjoint(two):
                shared = one.first_common(two, 0)
                raise ValueError(f"Setts: members {one!r} and {two!r} share {shared}; write one | two")
        object.__setattr__(self, "members", kept)

    @classmethod
    def _of(cls, found: Iterable[Nest]) -> Setts:
        """Wrap canonical nests that are known to be disjoint."""
        setts = object.__new__(cls)
        object.__setattr__(setts, "members", tuple(Sett._of(s) for s in found if s != EMPTY))
        return setts

    @property
    def _nests(self) -> tuple[Nest, ...]:
        return tuple(member.nest for member in self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return f"Setts([{', '.join(map(repr, self.members))}])"


@dataclass(frozen=True, slots=True)
class Intersection:
    """The common elements of two or more sets, not listed: each question is answered from the sets.

    Only `setts` and the operators ``| - ^ ~`` list pieces.

    Attributes
    ----------
    operands : tuple of Setts
        The sets.

    Examples
    --------
    >>> both = Sett(Stripe(50001, 50002)) & Sett(Stripe(50009, 50010))
    >>> both.count() == 50001 * 50009, both.find(75000)
    (True, 100019)
    >>> both <= Sett(Stripe(50001, 50002)), (both & Stripe(1, 1)).is_empty
    (True, False)
    """

    operands: tuple[Setts, ...]

    @property
    def _conjunctions(self) -> tuple[tuple[Nest, ...], ...]:
        """Disjoint conjunctions of nests, one for each choice of a member of each operand."""
        check_pieces(prod(len(s.members) for s in self.operands), "intersection of unions")
        return tuple(product(*(s._nests for s in self.operands)))

    @property
    def is_empty(self) -> bool:
        """Whether the sets share no integer."""
        return all(map(conjunction.is_disjoint, self._conjunctions))

    @property
    def period(self) -> int:
        """The least common period of all sets."""
        return lcm(*(s.period for s in self.operands))

    def __contains__(self, z: int) -> bool:
        return all(z in s for s in self.operands)

    def find(self, start: int) -> int | None:
        """Return the smallest common element >= start, or None."""
        return self.first(start)

    def first(self, start: int, stop: int | None = None) -> int | None:
        """Return the smallest common element >= start (and < stop, if given), or None."""
        start = as_int(start, "first: start")
        best = None if stop is None else as_int(stop, "first: stop")
        found: int | None = None
        for each in self._conjunctions:
            z = conjunction.first(each, start, best)
            if z is not None:
                found = best = z
        return found

    def count(self, start: int | None = None, stop: int | None = None) -> int:
        """Return how many common elements lie in [start, stop), or in one common period.

        Examples
        --------
        >>> halves = [Sett(Stripe(n // 2, n - n // 2)) for n in (7, 11, 13, 17, 19, 23, 29)]
        >>> both = halves[0]
        >>> for half in halves[1:]:
        ...     both = both & half
        >>> both.count(0, 10**9)
        4627341
        """
        lo, hi = (0, self.period) if start is None and stop is None else _bounds(start, stop, "count")
        return sum(conjunction.count(each, lo, hi) for each in self._conjunctions)

    def elements(self, start: int, stop: int) -> Int64Array:
        """Return the common elements in [start, stop) in ascending order, as int64."""
        few, *rest = sorted(self.operands, key=lambda s: s.count(start, stop))
        if few.count(start, stop) > WALK_ABOVE:
            return np.fromiter(self._walk(start, stop), np.int64)
        z = few.elements(start, stop)
        for many in rest:
            keep = np.zeros(len(z), bool)
            for s in many._nests:
                keep |= nests.contains_each(s, z)
            z = z[keep]
        return z

    def _walk(self, start: int, stop: int) -> Iterator[int]:
        z = self.first(start, stop)
        while z is not None:
            yield z
            z = self.first(z + 1, stop)

    def setts(self, within: Window | None = None) -> Setts:
        """Return the common elements as disjoint setts; within a window they are right there.

        Raises
        ------
        TooManyPieces
            If more than 10,000 pieces are needed.
        """
        met = self.operands[0]._nests
        for operand in self.operands[1:]:
            met = tuple(_meet(met, operand._nests, within))
        return Setts._of(met)

    def isdisjoint(self, other: Integers, within: Window | None = None) -> bool:
        """Return whether no common element is in `other`."""
        lo, hi = _window(within, "isdisjoint")
        return all(conjunction.is_disjoint(each, lo, hi) for each in (self & other)._conjunctions)

    def issubset(self, other: Integers, within: Window | None = None) -> bool:
        """Return whether every common element is in `other`; written ``a <= b`` for the whole line."""
        if isinstance(other, Intersection):
            return all(self.issubset(operand, within) for operand in other.operands)
        lo, hi = _window(within, "issubset")
        theirs = _nests_of(other)
        return all(_is_covered(each, theirs, lo, hi) for each in self._conjunctions)

    def same_points(self, other: Integers, within: Window | None = None) -> bool:
        """Return whether the common elements are those of `other`."""
        return self.issubset(other, within) and _lazy(other).issubset(self, within)

    def __le__(self, other: Integers) -> bool:
        return self.issubset(other)

    def __ge__(self, other: Integers) -> bool:
        return _lazy(other).issubset(self)

    def __and__(self, other: Integers) -> Intersection:
        return Intersection((*self.operands, *_operands(other)))

    def __or__(self, other: Integers) -> Setts:
        return self.setts().union(other)

    def __sub__(self, other: Integers) -> Setts:
        return self.setts().difference(other)

    def __xor__(self, other: Integers) -> Setts:
        return self.setts() ^ other

    def __invert__(self) -> Setts:
        return ~self.setts()


Integers = Stripe | _Integers | Intersection
"""Whatever an operation on sets of integers takes."""


def _as_setts(x: object) -> Setts:
    match x:
        case Setts():
            return x
        case Sett() | Stripe():
            return Setts._of(_nests_of(x))
        case Intersection():
            return x.setts()
    raise TypeError(f"a set of integers is a Stripe, Sett, Setts or Intersection, not {type(x).__name__}")


def _lazy(x: object) -> Setts | Intersection:
    return x if isinstance(x, Intersection) else _as_setts(x)


def _operands(x: object) -> tuple[Setts, ...]:
    return x.operands if isinstance(x, Intersection) else (_as_setts(x),)


def _nests_of(x: object) -> tuple[Nest, ...]:
    match x:
        case Sett() | Setts():
            return x._nests
        case Stripe():
            return (nests.canonical([x.level]),) if x.on else ()
    return _as_setts(x)._nests


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
    for s in each:
        for t in theirs:
            with suppress(TooHard) if len(each) > 1 else nullcontext():
                if pairs.is_subset(s, t, lo, hi):
                    return True
    return False


def _meet(xs: Sequence[Nest], ys: Sequence[Nest], within: Window | None) -> list[Nest]:
    lo, hi = _window(within, "intersection")
    out: list[Nest] = []
    for x in xs:
        for y in ys:
            out += explicit.meet(x, y) if lo is None or hi is None else explicit.meet_within(x, y, lo, hi)
            check_pieces(len(out), "intersection")
    return explicit.merge_nests(out)


def _subtract(xs: Sequence[Nest], ys: Sequence[Nest], within: Window | None) -> list[Nest]:
    lo, hi = _window(within, "difference")
    if lo is None or hi is None:
        left = list(xs)
    else:
        left = [t for x in xs for t in explicit.meet_within(x, (), lo, hi)]
    for y in ys:
        if lo is None or hi is None:
            left = [z for x in left for z in explicit.subtract(x, y)]
        else:
            left = [z for x in left for z in explicit.subtract_within(x, y, lo, hi)]
        check_pieces(len(left), "difference")
    return explicit.merge_nests(left)


def _union(xs: Sequence[Nest], ys: Sequence[Nest], within: Window | None) -> list[Nest]:
    """Return the shorter of xs + (ys - xs) and ys + (xs - ys), merged."""
    if within is not None:
        xs, ys = _subtract(xs, (), within), _subtract(ys, (), within)
    one = explicit.merge_nests([*xs, *_subtract(ys, xs, within)])
    if len(one) < 2:
        return one
    two = explicit.merge_nests([*ys, *_subtract(xs, ys, within)])
    return min(one, two, key=len)


# ------------------------------------------------------------------ sums of progressions


def progression_set(first: int, levels: Sequence[tuple[int, int]], width: int = 1, extent: int | None = None) -> Setts:
    """Return {first + sum(j * step) + t : 0 <= j < count for each level, 0 <= t < width}, exactly.

    The set is bounded; the setts returned repeat it with period `extent`, so they hold it in any window of
    `extent` integers that contains it.

    Parameters
    ----------
    first : int
        The element of j = 0, t = 0.
    levels : sequence of (count, step)
        In any order; steps may be negative or 0, counts are >= 0.
    width : int
        The length of each block, >= 0.
    extent : int, optional
        The period, at least the distance from the smallest element to past the largest; by default one more.

    Raises
    ------
    ValueError
        If a count or the width is negative, or `extent` is too short.
    TooManyPieces
        If more than 10,000 pieces are needed.

    Examples
    --------
    >>> progression_set(0, [(8, 2)], width=3, extent=32)  # windows of a convolution overlap
    Setts([Sett(Stripe(17, 15))])
    >>> progression_set(1, [(4, 10), (2, 3)], extent=64)
    Setts([Sett(Stripe(34, 30, phase=1), Stripe(4, 6), Stripe(1, 2))])
    >>> progression_set(3, [(4, -1), (4, 1)], extent=16).elements(0, 16).tolist()
    [0, 1, 2, 3, 4, 5, 6]

    References
    ----------
    The image of a box under one row of an index projection, in Tapestry's documents on index projections.
    """
    first, width = as_int(first, "progression_set: first"), as_int(width, "progression_set: width")
    if width < 0:
        raise ValueError(f"progression_set: width must be >= 0, not {width}")
    steps: list[tuple[int, int]] = []
    empty = width == 0
    for at, (n, step) in enumerate(levels):
        if type(n) is not int or type(step) is not int:
            n = as_int(n, f"progression_set: count of level {at}")
            step = as_int(step, f"progression_set: step of level {at}")
        if n < 0:
            raise ValueError(f"progression_set: count of level {at} must be >= 0, not {n}")
        empty = empty or n == 0
        if step < 0:
            first, step = first + (n - 1) * step, -step
        if n > 1 and step:
            steps.append((step, n))
    if empty:
        return Setts()
    span = width + sum([step * (n - 1) for step, n in steps])
    extent = span + 1 if extent is None else as_int(extent, "progression_set: extent")
    if extent < span:
        raise ValueError(f"progression_set: extent {extent} is shorter than the set, which spans {span}")
    steps.sort()
    items = _sum_of_steps(Item(0, width, ()), steps, span)
    moved = [Item(first + item.start, item.length, item.tail) for item in items]
    return Setts._of(explicit.from_items(moved, first, first + extent))


def _sum_of_steps(item: Item, steps: list[tuple[int, int]], span: int) -> list[Item]:
    """Return the item moved by every sum of steps; the steps ascend."""
    for at, (step, n) in enumerate(steps):
        _, length, tail = item
        reach = (n - 1) * step
        if step >= length and not (step == length and not tail):
            item = Item(0, reach + length, nests.repeat(length, step, 0, tail))
        elif not tail or _goes_on(length, tail, step):
            item = Item(0, reach + length, tail)
        else:
            return _overlapping(item, steps[at:], span)
    return [item]


def _goes_on(length: int, tail: Nest, step: int) -> bool:
    """Return whether copies of the item at this step only lengthen it."""
    block, distance, _ = tail[0]
    return step % distance == 0 and step <= length - block + distance


MASK_SPAN = 1 << 22
"""Sums of progressions up to this long are made as bit masks where their copies interleave."""


def _overlapping(item: Item, steps: list[tuple[int, int]], span: int) -> list[Item]:
    """Return the union of interleaved copies: as a bit mask if short, else copy by copy."""
    if span <= MASK_SPAN:
        mask = nests.bits(item.tail, 0, item.length)
        for step, n in steps:
            done = 1
            while done < n:
                more = min(done, n - done)
                mask |= mask << (more * step)
                done += more
        return explicit.from_bits(mask)
    copies = [0]
    for step, n in steps:
        check_pieces(len(copies) * n, "progression_set")
        copies = [at + j * step for at in copies for j in range(n)]
    one = explicit.from_items([item], 0, span)
    union: list[Nest] = []
    for at in sorted(set(copies)):
        union = _union(union, [nests.shift(one[0], at)], (0, span))
        if len(union) > current().max_pieces:
            raise TooManyPieces(f"progression_set: more than {current().max_pieces} pieces for steps {steps}")
    clipped = (nests.clip(s, 0, span) for s in union)
    return [piece for piece in clipped if piece is not None]
