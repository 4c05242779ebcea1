"""Explicit sets: setts (nested stripes) and their disjoint unions, asked nest by nest."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from math import lcm
from typing import TYPE_CHECKING

import numpy as np

from tapestry_sets.digits import Bools, Int64Array
from tapestry_sets.integers import explicit, pairs, ranks, tuning, unions
from tapestry_sets.integers import nest as nests
from tapestry_sets.integers.integers import Integers, Operand, check_bounds, check_window
from tapestry_sets.integers.nest import EMPTY, Nest, StridedRun
from tapestry_sets.integers.stripe import Stripe
from tapestry_sets.integers.unions import Within
from tapestry_sets.limits import (
    Value,
    as_int,
    as_items,
    charge,
    check_positive,
    compile_constructor,
    mend_calls,
    put_field,
    quote,
)

if TYPE_CHECKING:
    from tapestry_sets.integers.lazy import Intersection


class Explicit(Integers):
    """The verbs of setts and unions of setts, written once over their nests."""

    __slots__ = ()

    @property  # of each kind another, which is the one that is read
    @abstractmethod
    def _nests(self) -> tuple[Nest, ...]:
        """Disjoint nests, none of them empty."""

    @property
    def is_empty(self) -> bool:
        """Whether the set holds no integer.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> evens = Sett(Stripe(1, 1))
        >>> (evens - evens).is_empty, evens.is_empty
        (True, False)
        """
        return not self._nests

    @property
    def period(self) -> int:
        """A period of the set: that of its outermost stripes.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> (Sett(Stripe(1, 1)) | Stripe(1, 2)).period
        6
        """
        return lcm(*(nests.period(s) for s in self._nests))

    def __contains__(self, z: int) -> bool:
        z = as_int(z, f"{type(self).__name__}: element")
        return any(nests.contains(s, z) for s in self._nests)

    def _count(self, lo: int, hi: int) -> int:
        many = len(self._nests)
        if many >= tuning.MEMBERS_A_BRANCH:
            charge(many // tuning.MEMBERS_A_BRANCH, f"count of a union of {many} setts")
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
        return reduce(np.add, [nests.rank_each(s, z) for s in self._nests] or [np.zeros(len(z), np.int64)])

    def _contains_each(self, z: Int64Array) -> Bools:
        return reduce(np.bitwise_or, [nests.contains_each(s, z) for s in self._nests] or [np.zeros(len(z), bool)])

    def _elements(self, lo: int, hi: int) -> Int64Array:
        parts = [nests.elements(s, lo, hi) for s in self._nests]
        return parts[0] if len(parts) == 1 else np.sort(np.concatenate([np.empty(0, np.int64), *parts]))

    def _listed(self, within: Within | None) -> tuple[Nest, ...]:
        return self._nests

    def setts(self, within: Within | None = None) -> DisjointSetts:
        """Return the set as a list of disjoint setts; within a window, as the shortest that is right there.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(1, 6)).setts(within=(0, 7))
        DisjointSetts([Sett(Stripe(1, 6))])
        """
        lo, hi = check_window(within, "setts")
        if lo is None or hi is None:
            return DisjointSetts._of(self._nests)
        return DisjointSetts._of(unions.subtract(self._nests, (), (lo, hi)))

    def shift(self, k: int) -> DisjointSetts:
        """Return {z + k : z in self}.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(2, 3)).shift(1).elements(0, 10).tolist()
        [1, 2, 6, 7]
        """
        k = as_int(k, "shift: k")
        return DisjointSetts._of(nests.shift(s, k) for s in self._nests)

    def reverse(self, pivot: int) -> DisjointSetts:
        """Return {pivot - 1 - z : z in self}: the elements in [0, pivot) as seen from the other end.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(2, 3)).reverse(10).elements(0, 10).tolist()
        [3, 4, 8, 9]
        """
        pivot = as_int(pivot, "reverse: pivot")
        return DisjointSetts._of(nests.canonical(nests.reverse(s, pivot)) for s in self._nests)

    def scale(self, f: int) -> DisjointSetts:
        """Return the set in which every element z becomes the block [f*z, f*z + f).

        Raises
        ------
        ValueError
            If `f` is not positive.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(1, 1)).scale(3).elements(0, 12).tolist()  # every other block of three
        [0, 1, 2, 6, 7, 8]
        """
        f = check_positive(f, "scale: f")
        return DisjointSetts._of(nests.scale(s, f) for s in self._nests)


@mend_calls
class Sett(Explicit, Value):
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
    nest : tuple
        The tight form as plain integers, (on, period, phase) of each level; ``()`` is every integer.

    Raises
    ------
    TypeError
        If an argument is not a Stripe.

    Examples
    --------
    >>> from tapestry_sets import Sett, Stripe
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

    # what a caller wrote: neither compared nor pickled, and not there where an operation made the sett
    __slots__ = ("_written", "nest")
    __match_args__ = ("nest",)
    nest: Nest
    _written: tuple[Stripe, ...]

    def __init__(self, *stripes: Stripe) -> None:
        for stripe in stripes:
            if type(stripe) is not Stripe and not isinstance(stripe, Stripe):
                at = [x is stripe for x in stripes].index(True)
                raise TypeError(f"Sett: stripe {at} must be a Stripe, not {quote(stripe)}; write Sett(Stripe(on, off))")
        put_field(self, "_written", stripes)

    def __getattr__(self, name: str) -> Nest:
        # asked where a slot is empty: the nest of a sett that a caller wrote is made tight by the first question
        if name != "nest":
            raise AttributeError(f"{type(self).__name__} has no attribute {quote(name)}", name=name, obj=self)
        nest = nests.canonical([stripe.level for stripe in self._written])
        put_field(self, "nest", nest)
        return nest

    def __reduce__(self) -> tuple[Callable[[Nest], Sett], tuple[Nest]]:
        return Sett._of, (self.nest,)

    @staticmethod
    def _of(nest: Nest) -> Sett:
        """Wrap a canonical nest."""
        return _wrap(nest)

    @classmethod
    def empty(cls) -> Sett:
        """Return the set without elements.

        Examples
        --------
        >>> from tapestry_sets import Sett
        >>> Sett.empty().count(0, 10**9)
        0
        """
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
        >>> from tapestry_sets import Sett
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
        """The levels as stripes, outermost first.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(6, 1), Stripe(2, 1)).stripes
        (Stripe(5, 2), Stripe(2, 1))
        """
        return tuple(Stripe(on, period - on, phase) for on, period, phase in self.nest)

    @property
    def written(self) -> tuple[Stripe, ...]:
        """The stripes that the sett was made of, or `stripes` where an operation made it.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> s = Sett(Stripe(6, 1), Stripe(2, 1))
        >>> s.written, s.shift(0).members[0].written
        ((Stripe(6, 1), Stripe(2, 1)), (Stripe(5, 2), Stripe(2, 1)))
        """
        written: tuple[Stripe, ...] | None = getattr(self, "_written", None)
        return self.stripes if written is None else written

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
            If more runs are needed than pieces are allowed.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(6, 1), Stripe(2, 1)).runs(0, 22)
        (StridedRun(first=0, levels=((3, 7), (2, 3), (2, 1)), rank=0), StridedRun(first=21, levels=(), rank=12))
        """
        return tuple(nests.runs(self.nest, *check_bounds(start, stop, "runs")))

    def merge(self, other: Sett) -> Sett | None:
        """Return the sett that is the union with a disjoint sett, if one is found; None if none is.

        Of setts of up to four levels in which every block begins with a whole block of the next level, what one cut
        parts is found, save for about one in a thousand, most often where the last block of an inner level is clipped:
        the blocks of any one level cut into two at one place (so also blocks that touch, and a piece that completes
        the other's pattern), or the outermost blocks dealt out in turn, one here and one there. Other unions are found
        often, and never a wrong one.

        Raises
        ------
        TypeError
            If `other` is not a Sett.
        ValueError
            If the setts share an element; the message names one.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(4, 6), Stripe(1, 2)).merge(Sett(Stripe(1, 9, phase=6)))
        Sett(Stripe(7, 3), Stripe(1, 2))
        >>> Sett(Stripe(1, 8)).merge(Sett(Stripe(1, 11, phase=1))) is None
        True

        References
        ----------
        poprithms, memory/nest/sett.hpp, `transfer` and `merge`.
        """
        if not isinstance(other, Sett):
            raise TypeError(f"merge: takes a Sett, not {quote(other)}; write a | b for other sets")
        _check_disjoint(self, other, "merge: setts")
        nest = ranks.join(self.nest, other.nest)
        return None if nest is None else Sett._of(nest)

    # the questions of one sett about another are asked most often: they go straight to the nests

    def __and__(self, other: Operand) -> Intersection:
        if type(other) is Sett:
            return self.forms.intersection._of((self, other))
        return Integers.__and__(self, other)

    def isdisjoint(self, other: Operand, within: Within | None = None) -> bool:
        """Return whether the sets share no integer.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
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
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(1, 1)).first_common(Sett(Stripe(1, 2)), 1)
        6
        """
        plain = type(start) is int and (stop is None or (type(stop) is int and stop >= start))
        if plain and type(other) is Sett:
            return pairs.first_in_both(self.nest, other.nest, start, stop)
        return Integers.first_common(self, other, start, stop)

    def count_common(self, other: Operand, start: int | None = None, stop: int | None = None) -> int:
        """Return how many common elements lie in [start, stop), or in one common period.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(1, 1)).count_common(Sett(Stripe(1, 2)), 0, 12)
        2
        """
        if type(other) is Sett and type(start) is int and type(stop) is int and start <= stop:
            return pairs.count_in_both(self.nest, other.nest, start, stop)
        return Integers.count_common(self, other, start, stop)

    def strided(self, first: int, step: int) -> DisjointSetts:
        """Return {k : first + step*k in self}: the set as a strided view sees it.

        Parameters
        ----------
        first : int
            The element that becomes 0.
        step : int
            The stride, not 0.

        Raises
        ------
        ValueError
            If ``step`` is 0.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> Sett(Stripe(3, 3)).strided(1, 2).members[0].elements(0, 6).tolist()
        [0, 3]
        """
        first, step = as_int(first, "strided: first"), as_int(step, "strided: step")
        if step == 0:
            raise ValueError("strided: step must not be 0")
        return DisjointSetts._of(explicit.strided(self.nest, first, step))


_wrap: Callable[[Nest], Sett] = compile_constructor(Sett, "nest")


@mend_calls
class DisjointSetts(Explicit, Value):
    """A union of setts that share no element.

    Parameters
    ----------
    members : iterable of Sett
        Disjoint on the whole line. Empty ones are dropped, and what joins at a glance is joined, here as in results of
        ``| - ^ ~``: blocks of one period that touch, equal ones at equal distances, such blocks of two periods where
        a common one has at most 64 of both, and members that are everything together. `Integers.simplify` searches
        on: no two members of its result merge, even as `Sett.merge` does it.

    Raises
    ------
    TypeError
        If a member is not a Sett.
    ValueError
        If two members share an element; the message names one.

    Examples
    --------
    >>> from tapestry_sets import Sett, Stripe
    >>> Sett(Stripe(1, 9)) | Stripe(1, 9, phase=4)  # 0 and 4 modulo 10: equal blocks at one distance
    DisjointSetts([Sett(Stripe(5, 5), Stripe(1, 3))])
    >>> s = Sett(Stripe(1, 9)) | Stripe(1, 6, phase=3)
    >>> len(s), s.elements(0, 20).tolist()
    (2, [0, 3, 10, 17])
    """

    # operations read and make nests alone: the members are made by the first who asks for them
    __slots__ = ("_nests", "members")
    __match_args__ = ("members",)
    _nests: tuple[Nest, ...]
    members: tuple[Sett, ...]

    def __init__(self, members: Iterable[Sett] = ()) -> None:
        if isinstance(members, (Stripe, Integers)) or not isinstance(members, Iterable):
            shown = quote(members)
            raise TypeError(f"DisjointSetts: members must be an iterable of setts, not {shown}; write [it]")
        kept = as_items(members, "DisjointSetts: members", "iterable of setts")
        for at, member in enumerate(kept):
            if not isinstance(member, Sett):
                raise TypeError(f"DisjointSetts: member {at} must be a Sett, not {quote(member)}")
        for i, j in unions.close_pairs([member.nest for member in kept]):
            _check_disjoint(kept[i], kept[j], "DisjointSetts: members")
        put_field(self, "_nests", tuple(unions.joined_cheaply([member.nest for member in kept])))

    def __getattr__(self, name: str) -> tuple[Sett, ...]:
        if name != "members":
            raise AttributeError(f"{type(self).__name__} has no attribute {quote(name)}", name=name, obj=self)
        members = tuple([_wrap(s) for s in self._nests])
        put_field(self, "members", members)
        return members

    def __reduce__(self) -> tuple[Callable[[Iterable[Nest]], DisjointSetts], tuple[tuple[Nest, ...]]]:
        return DisjointSetts._of, (self._nests,)

    @staticmethod
    def _of(found: Iterable[Nest]) -> DisjointSetts:
        """Wrap canonical nests that are known to be disjoint."""
        return _wrap_all(tuple([s for s in found if s != EMPTY]))

    @classmethod
    def _joined(cls, found: Iterable[Nest]) -> DisjointSetts:
        """Wrap canonical nests that are known to be disjoint, joining those that join cheaply."""
        return cls._of(unions.joined_cheaply(found))

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
        >>> from tapestry_sets import DisjointSetts, Stripe
        >>> DisjointSetts.from_split([(Stripe(1, 1), Stripe(2, 1))], 6)
        DisjointSetts([Sett(Stripe(5, 7), Stripe(2, 1))])
        """
        n = check_positive(period, "DisjointSetts.from_split: period")
        found: list[Nest] = []
        for at, pair in enumerate(as_items(pairs, "DisjointSetts.from_split: pairs", "sequence of (outer, inner)")):
            what = f"DisjointSetts.from_split: pairs[{at}]"
            given = as_items(pair, what, "pair (outer, inner)")
            if len(given) != 2:
                raise ValueError(f"{what} must be (outer, inner), not {quote(pair)}")
            outer, inner = given
            for x in given:
                if not isinstance(x, (Sett, Stripe)):
                    raise TypeError(f"{what}: outer and inner must each be a Sett or a Stripe, not {quote(x)}")
            rows, columns = (nests.canonical([x.level]) if isinstance(x, Stripe) else x.nest for x in (outer, inner))
            found += unions.subtract([_unsplit(rows, columns, n)], found, None)
        return cls._joined(found)

    @property
    def _factors(self) -> tuple[Integers, ...]:
        return self.members if len(self._nests) == 1 else (self,)

    def __len__(self) -> int:
        return len(self._nests)

    def __iter__(self) -> Iterator[Sett]:
        return iter(self.members)

    def __getitem__(self, k: int) -> Sett:
        k = as_int(k, "DisjointSetts: member number")
        if not -len(self) <= k < len(self):
            raise IndexError(
                f"DisjointSetts: no member {k}: there are {len(self)}; give one in [{-len(self)}, {len(self)})"
            )
        return self.members[k]

    def __repr__(self) -> str:
        return f"DisjointSetts([{', '.join(map(repr, self.members))}])"


_wrap_all: Callable[[tuple[Nest, ...]], DisjointSetts] = compile_constructor(DisjointSetts, "_nests")


def _check_disjoint(one: Sett, two: Sett, what: str) -> None:
    if not one.isdisjoint(two):
        raise ValueError(f"{what} {quote(one)} and {quote(two)} share {one.first_common(two, 0)}; write one | two")


def _unsplit(rows: Nest, columns: Nest, n: int) -> Nest:
    """The nest of one pair of `split`."""
    return nests.canonical([*nests.scale(rows, n), (n, n, 0), *columns]) if EMPTY not in (rows, columns) else EMPTY
