"""Lazy sets: intersections, and sets seen by their numbers; common elements of several sets, unlisted.

A question about several sets goes from set to set; explicit ones among them are conjunctions of nests, which have
closed forms, and a lazy one is listed where it is short in the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial, reduce
from itertools import chain, islice, product
from math import gcd, lcm, prod
from operator import and_
from typing import TypeVar

import numpy as np
from msgspec import Struct

from tapestry_sets.digits import Bools, Int64Array
from tapestry_sets.integers import block_columns, conjunction, explicit, integers, ranks, tuning, unions
from tapestry_sets.integers import nest as nests
from tapestry_sets.integers.integers import Forms, Integers, Operand
from tapestry_sets.integers.nest import Nest
from tapestry_sets.integers.sett import DisjointSetts, Explicit, Sett
from tapestry_sets.integers.unions import Within
from tapestry_sets.limits import (
    OPEN,
    Budget,
    Open,
    Question,
    TooHard,
    Value,
    as_int,
    attempt,
    check_pieces,
    compile_constructor,
    current,
    limits,
    note_help,
    put_field,
    quote,
)

NONE = np.empty(0, np.int64)
T = TypeVar("T")


def _depth_of(s: Integers) -> int:
    """How deep the calls go that a question makes, in those of a fill."""
    depth: int = getattr(s, "_depth", 1)
    return depth


def _check_depth(word: str, depth: int) -> int:
    if depth > tuning.MAX_FILLS:
        raise TooHard(
            f"{word}: {depth} sets within sets (common elements count {tuning.MEET_DEPTH}, a sample "
            f"{tuning.SAMPLE_DEPTH}) are more than {tuning.MAX_FILLS}; list one of them on the way, by setts()"
        )
    return depth


class Intersection(Integers, Value):
    """The common elements of two or more sets, not listed: each question is answered from the sets.

    Only `setts` and the operators ``| - ^ ~`` list pieces.

    Attributes
    ----------
    operands : tuple of Sett, DisjointSetts, Filled and Sampled
        The sets.

    Examples
    --------
    >>> from tapestry_sets import Sett, Stripe
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

    __slots__ = __match_args__ = ("operands",)

    operands: tuple[Integers, ...]

    def __init__(self, operands: tuple[Integers, ...]) -> None:
        if type(operands) is not tuple or not operands:
            raise TypeError(f"Intersection: operands must be a tuple of sets, at least one, not {quote(operands)}")
        for at, one in enumerate(operands):
            if not isinstance(one, Integers):
                raise TypeError(f"Intersection: operands[{at}] must be a set of integers, not {quote(one)}")
        put_field(self, "operands", _each_once(operands))

    @staticmethod
    def _of(operands: tuple[Integers, ...]) -> Intersection:
        """Wrap sets that are known to be sets."""
        return _wrap(_each_once(operands))

    @property
    def _depth(self) -> int:
        return tuning.MEET_DEPTH + max(map(_depth_of, self.operands))

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
        return have_none(self.operands, None, None)

    @property
    def period(self) -> int:
        """The least common period of all sets."""
        return period_of(self.operands)

    def __contains__(self, z: int) -> bool:
        return all(z in s for s in self.operands)

    def _count(self, lo: int, hi: int) -> int:
        return count_in_all(self.operands, lo, hi)

    def _first(self, lo: int, hi: int | None) -> int | None:
        return first_in_all(self.operands, lo, hi)

    def _elements(self, lo: int, hi: int) -> Int64Array:
        if not _are_explicit(self.operands):
            return _elements_by_listing(self, lo, hi)
        few, *rest = sorted(self.operands, key=lambda s: s._count(lo, hi))
        many = few._count(lo, hi)
        if many <= tuning.WALK_ABOVE:
            return _in_all(few._elements(lo, hi), rest)
        if many > tuning.CUT_BELOW:
            return integers.to_array(_walk(self, lo, hi))
        return _in_halves(self, lo, hi)

    def _contains_each(self, z: Int64Array) -> Bools:
        keep = np.ones(len(z), bool)
        for s in self.operands:
            keep[keep] = s._contains_each(z[keep])
        return keep

    def _density(self) -> tuple[int, int]:
        n = span = 1
        for s in self.operands:
            some, of = s._density()
            n, span = n * some, span * of
        return n, span

    def setts(self, within: Within | None = None) -> DisjointSetts:
        """Return the common elements as a list of disjoint setts; within a window they are right there alone.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> (Sett(Stripe(6, 1)) & Stripe(2, 1)).setts(within=(0, 7))
        DisjointSetts([Sett(Stripe(5, 2), Stripe(2, 1))])
        """
        if within is None and len(self.operands) == 2:
            s, t = self.operands
            if type(s) is type(t) is Sett:
                return DisjointSetts._of(unions.settled(explicit.meet(s.nest, t.nest)))
        return Integers.setts(self, within)

    def is_disjoint_within(self, lo: int | None, hi: int | None) -> bool:
        """Return whether the sets share no integer in a window, or at all."""
        return have_none(self.operands, lo, hi)

    def is_inside(self, other: Integers, lo: int | None, hi: int | None) -> bool:
        """Return whether the common elements in a window, or all of them, are in another set."""
        return lie_in(self.operands, other, lo, hi)

    def _listed(self, within: Within | None) -> tuple[Nest, ...]:
        met, *rest = (s._listed(within) for s in self.operands)
        for theirs in rest:
            met = tuple(unions.meet(met, theirs, within))
        return met

    def shift(self, k: int) -> Intersection:
        """Return {z + k : z in self}."""
        return Intersection._of(tuple(s.shift(k) for s in self.operands))

    def reverse(self, pivot: int) -> Intersection:
        """Return {pivot - 1 - z : z in self}: the elements in [0, pivot) as seen from the other end."""
        return Intersection._of(tuple(s.reverse(pivot) for s in self.operands))

    def scale(self, f: int) -> Intersection:
        """Return the set in which every element z becomes the block [f*z, f*z + f)."""
        return Intersection._of(tuple(s.scale(f) for s in self.operands))


_wrap: Callable[[tuple[Integers, ...]], Intersection] = compile_constructor(Intersection, "operands")


def _each_once(operands: tuple[Integers, ...]) -> tuple[Integers, ...]:
    """The operands; of many each once, since a set that is met again and again may be the same again."""
    return operands if len(operands) <= tuning.FEW_OPERANDS else tuple(dict.fromkeys(operands))


class Filled(Integers, Value):
    """The elements of one set whose numbers are in another, {outer.nth(k) : k in ink}, not listed.

    It is made by `Integers.fill`, in the same time whatever the sets are. A question about it is one about
    `outer`'s numbers and then one about `ink`; only `setts` and the operators ``| - ^ ~`` list pieces.

    Attributes
    ----------
    outer, ink : Sett, DisjointSetts, Intersection, Filled or Sampled
        The sets.

    Examples
    --------
    >>> from tapestry_sets import Stripe
    >>> cascade = Sett(Stripe(4, 3))
    >>> for n in (11, 13, 17, 19, 23):
    ...     cascade = cascade.fill(Stripe(n // 2, n - n // 2))
    >>> cascade.count(0, 10**18), cascade.find(10**18), cascade.nth(10**18)
    (12780327762155739, 1000000000000000196, 78245254629629629543)
    >>> cascade.setts(within=(0, 40))
    DisjointSetts([Sett(Stripe(8, 32), Stripe(4, 3)), Sett(Stripe(1, 39, phase=17))])
    """

    __slots__ = ("_depth", "ink", "outer")
    __match_args__ = ("outer", "ink")

    outer: Integers
    ink: Integers
    _depth: int

    def __init__(self, outer: Integers, ink: Integers) -> None:
        depth = _check_depth("fill", 1 + max(_depth_of(outer), _depth_of(ink)))
        put_field(self, "outer", outer)
        put_field(self, "ink", ink)
        put_field(self, "_depth", depth)

    @property
    def is_empty(self) -> bool:
        """Whether the set holds no integer."""
        return self.outer.is_empty or self.ink.is_empty

    def fill(self, ink: Operand) -> Filled:
        # (a filled with b) filled with c is a filled with (b filled with c): so a question goes down the chain once,
        # where the other way around each set would be asked twice for each one around it
        outers, inmost = [self.outer], self.ink
        while isinstance(inmost, Filled):
            outers.append(inmost.outer)
            inmost = inmost.ink
        found = Integers.fill(inmost, ink)
        for outer in reversed(outers):
            found = Filled(outer, found)
        return found

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
        if tuning.WALK_ABOVE < last - first <= tuning.DENSE * many:
            return _in_halves(self, lo, hi)
        k = self.ink._elements(first, last)
        if last - first <= min(tuning.DENSE * many + tuning.SHORT_LIST, tuning.WALK_ABOVE):
            return self.outer._elements(lo, hi)[k - first]
        return self.outer._nth_each(k)

    def _nth_each(self, k: Int64Array) -> Int64Array:
        return self.outer._nth_each(self.ink._nth_each(k))

    def _rank_each(self, z: Int64Array) -> Int64Array:
        return self.ink._rank_each(self.outer._rank_each(z))

    def _contains_each(self, z: Int64Array) -> Bools:
        keep = self.outer._contains_each(z)
        keep[keep] = self.ink._contains_each(self.outer._rank_each(z[keep]))
        return keep

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


class Sampled(Integers, Value):
    """A set as seen through another, {k : at.nth(k) in inner}, not listed.

    It is made by `Integers.sample`, in the same time whatever the sets are. A question about it is one about
    the common elements of both sets; only `setts` and the operators ``| - ^ ~`` list pieces.

    Attributes
    ----------
    inner, at : Sett, DisjointSetts, Intersection, Filled or Sampled
        The sets. If `at` is empty, so is this.

    Examples
    --------
    >>> from tapestry_sets import Stripe
    >>> seen = Sett(Stripe(50009, 50010)).sample(Stripe(50001, 50002))
    >>> 10**18 in seen, seen.count(0, 10**18), seen.find(10**18)
    (True, 499995000941042485, 1000000000000000000)
    """

    __slots__ = ("_depth", "at", "inner")
    __match_args__ = ("inner", "at")

    inner: Integers
    at: Integers
    _depth: int

    def __init__(self, inner: Integers, at: Integers) -> None:
        depth = tuning.SAMPLE_DEPTH + _check_depth("sample", max(_depth_of(inner), _depth_of(at)))
        put_field(self, "inner", inner)
        put_field(self, "at", at)
        put_field(self, "_depth", depth)

    def sample(self, at: Operand) -> Sampled:
        # a seen through b, seen through c, is a seen through (b filled with c): so a question goes down one chain
        return Sampled(self.inner, self.at.fill(at))

    @property
    def _both(self) -> tuple[Integers, ...]:
        return (*self.inner._factors, *self.at._factors)

    @property
    def is_empty(self) -> bool:
        """Whether the set holds no integer."""
        return self.at.is_empty or have_none(self._both, None, None)

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
        return 0 if self.at.is_empty else count_in_all(self._both, self.at._nth(lo), self.at._nth(hi))

    def _first(self, lo: int, hi: int | None) -> int | None:
        if self.at.is_empty:
            return None
        z = first_in_all(self._both, self.at._nth(lo), None if hi is None else self.at._nth(hi))
        return None if z is None else self.at.rank(z)

    def _nth(self, k: int) -> int:
        return self.at.rank((self.inner & self.at)._nth(k))

    def _elements(self, lo: int, hi: int) -> Int64Array:
        if self.at.is_empty or lo == hi:
            return NONE
        first, last = self.at._nth(lo), self.at._nth(hi)
        if max(-first, last) >> 62:
            return integers.to_array(_walk(self, lo, hi))
        if tuning.WALK_ABOVE < hi - lo <= tuning.CUT_BELOW:
            return _in_halves(self, lo, hi)
        z = (self.inner & self.at)._elements(first, last)
        if hi - lo <= min(tuning.DENSE * len(z) + tuning.SHORT_LIST, tuning.WALK_ABOVE):
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


Integers.forms = Forms(Sett, DisjointSetts, Intersection, Filled, Sampled)


# ------------------------------------------------------------------------------------- elements in a window, listed


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


# ------------------------------------------------------------------------------------- explicit sets


def _are_explicit(factors: Sequence[Integers]) -> bool:
    return all(isinstance(s, Explicit) for s in factors)


def period_of(factors: Sequence[Integers]) -> int:
    return lcm(*(s.period for s in factors))


def _conjunctions(factors: Sequence[Integers]) -> Iterable[tuple[Nest, ...]]:
    """Return disjoint conjunctions of nests, one for each choice of a member of each explicit set."""
    listed = [s._listed(None) for s in factors]
    if len(listed) > 2:
        check_pieces(prod(map(len, listed)), "intersection of unions")
    return product(*listed)


def first_in_all(factors: Sequence[Integers], lo: int, hi: int | None) -> int | None:
    """Return the smallest integer in the window that all sets share, or None."""
    if len(factors) == 1:
        return factors[0]._first(lo, hi)
    if not _are_explicit(factors):
        return _first_lazy(_grouped(factors), lo, hi)
    if len(factors) == 2 and type(factors[0]) is type(factors[1]) is Sett:
        return conjunction.first((factors[0].nest, factors[1].nest), lo, hi)
    leap = conjunction.Leap([partial(s._first, hi=hi) for s in factors], lo)
    members = sum(len(s._listed(None)) + 1 for s in factors)
    with Question() as budget:
        steps = Budget(min(tuning.NEST_LEAPS, tuning.LEAPS_OF_MEMBERS // members))
        has_ended = leap.go(hi, steps)
        conjunction.spend(budget, steps.spent * members // tuning.MEMBERS_A_BRANCH, "first common element", ())
        if has_ended:
            return leap.met
        return conjunction.first_of_any(_conjunctions(factors), leap.z, hi)


def count_in_all(factors: Sequence[Integers], lo: int, hi: int) -> int:
    """Return how many integers in the window all sets share."""
    if len(factors) == 1:
        return factors[0]._count(lo, hi)
    if not _are_explicit(factors):
        return _count_lazy(_grouped(factors), lo, hi)
    choices = prod([len(s._listed(None)) for s in factors])
    if choices > tuning.FEW_PAIRS and lo < hi:
        return _count_unions(factors, lo, hi, choices)
    return conjunction.count_of_all(_conjunctions(factors), lo, hi)


def _count_unions(factors: Sequence[Integers], lo: int, hi: int, many: int) -> int:
    """Count what unions share before their `many` choices of members are multiplied out.

    Whole common periods are a product over unions whose periods share no factor; what is left is counted by bit masks
    of whole unions where these are shorter than the choices are many.
    """
    period = period_of(factors)
    whole, rest = divmod(hi - lo, period)
    if period <= tuning.SHORT:
        mask = _mask_of_period(tuple(s._listed(None) for s in factors), period)
        lo %= period
        to_end, from_begin = mask >> lo & ((1 << rest) - 1), mask & ((1 << max(lo + rest - period, 0)) - 1)
        return whole * mask.bit_count() + to_end.bit_count() + from_begin.bit_count()
    groups = _coprime(factors) if whole else []
    if len(groups) > 1:
        each = prod([count_in_all(group, 0, period_of(group)) for group in groups])
        return whole * each + (_count_unions(factors, lo, lo + rest, many) if rest else 0)
    if whole and rest:
        return whole * _count_unions(factors, lo, lo + period, many) + _count_unions(factors, lo, lo + rest, many)
    if whole > 1:
        return whole * _count_unions(factors, lo, lo + period, many)
    n = hi - lo
    if n <= tuning.SHORT:
        return _union_mask(factors, lo, hi).bit_count()
    if len(factors) == 2:
        return conjunction.count_two_unions(factors[0]._listed(None), factors[1]._listed(None), lo, hi)
    if n <= tuning.MAX_TABLE and n // tuning.BITS_A_CHOICE <= many:
        return _union_mask(factors, lo, hi).bit_count()
    halves = _coprime(factors)
    if len(halves) == 2 and max(map(period_of, halves)) <= tuning.MAX_TABLE:
        one, two = (block_columns.listed(_union_mask(s, lo, lo + period_of(s)), period_of(s)) for s in halves)
        return block_columns.count_tables(one, two, n)
    return conjunction.count_of_all(_conjunctions(factors), lo, hi)


def _union_mask(factors: Iterable[Integers], lo: int, hi: int) -> int:
    """Return the window of what explicit sets share as a bit mask."""
    return reduce(and_, [nests.union_bits(s._listed(None), lo, hi) for s in factors])


@lru_cache(maxsize=128)
def _mask_of_period(unions: tuple[tuple[Nest, ...], ...], period: int) -> int:
    """Return one short common period as a bit mask; numbers of elements are looked for by many counts in it."""
    return reduce(and_, [nests.union_bits(members, 0, period) for members in unions])


def have_none(factors: Sequence[Integers], lo: int | None, hi: int | None) -> bool:
    """Return whether no integer (in the window) is in all sets."""
    if lo is not None and hi is not None:
        return lo == hi or first_in_all(factors, lo, hi) is None
    if _are_explicit(factors):
        return conjunction.are_disjoint(_conjunctions(factors))
    with Question():
        return any(_is_empty(group) for group in _coprime(_grouped(factors)))


# ---------------------------------------------------------------------------------- questions about lazy sets


def _grouped(factors: Sequence[Integers]) -> tuple[Integers, ...]:
    """Return factors in which the explicit ones are one, whose common elements have closed forms."""
    if len(factors) == 2 and not _are_explicit(factors):
        return tuple(factors)
    listed = tuple(factor for s in factors if isinstance(s, Explicit) for factor in s._factors)
    lazy = tuple(dict.fromkeys(s for s in factors if not isinstance(s, Explicit)))
    if not listed:
        return lazy
    return (*lazy, listed[0] if len(listed) == 1 else Intersection._of(listed))


def _coprime(factors: Iterable[Integers]) -> list[tuple[Integers, ...]]:
    return conjunction.coprime_groups(factors, lambda s: s.period)


def _is_empty(group: tuple[Integers, ...]) -> bool:
    if len(group) == 1:
        return group[0].is_empty
    return _first_lazy(group, 0, period_of(group)) is None


def _around(s: Integers) -> tuple[Integers, ...]:
    """Return explicit sets around a set."""
    if isinstance(s, Filled):
        return tuple(each for t in s.outer._factors for each in _around(t))
    return () if isinstance(s, Sampled) else s._factors


def _first_lazy(factors: tuple[Integers, ...], lo: int, hi: int | None) -> int | None:
    """Return what `_first` does: from set to set, then by sets around them, then by listing."""
    if len(factors) == 1:
        return factors[0]._first(lo, hi)
    if hi is None:
        hi = lo + period_of(factors)
    with Question():
        return _first_leaping(factors, lo, hi)


def _first_leaping(factors: tuple[Integers, ...], lo: int, hi: int) -> int | None:
    inks = _inks(factors, lo, hi)
    if inks is not None:
        k = first_in_all(*inks[1:])
        return None if k is None else inks[0]._nth(k)
    leap = conjunction.Leap([partial(s._first, hi=hi) for s in factors], lo)
    if attempt(lambda: _has_ended(leap, hi, tuning.LAZY_LEAPS)) is True:
        return leap.met
    z, hi = leap.z, min(hi, lo + period_of(factors))
    if z >= hi:
        return None
    around = tuple(each for s in factors for each in _around(s))
    if len(around) > 1:
        whole = hi - lo >= period_of(around)
        if have_none(around, *((None, None) if whole else (z, hi))):
            return None
    found = _ask_listed(factors, z, hi, _Listing.first)
    if found is not OPEN:
        return found
    if attempt(lambda: _has_ended(leap, hi, tuning.NEST_LEAPS)) is True:
        return leap.met
    raise _too_hard("first common element", factors, z, hi)


def _inks(factors: Sequence[Integers], lo: int, hi: int) -> tuple[Integers, tuple[Integers, ...], int, int] | None:
    """Return a set that all sets fill, or are, what each fills it with, and the window in its numbers."""
    filled = [s.outer for s in factors if isinstance(s, Filled)]
    outer = next((outer for outer in filled if all(_is_part(s, outer) for s in factors)), None)
    if outer is None:
        return None
    return outer, _flat([_seen(s, outer) for s in factors]), outer.rank(lo), outer.rank(hi)


def _has_ended(leap: conjunction.Leap, hi: int, most: int) -> bool:
    """Go from set to set for a while; each set that is asked is a branch of the budget."""
    with Question() as budget:
        rounds = Budget(min(most, budget.left // len(leap.finds)))
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
        return _count_in_groups(tuple(_in_window(s, lo, hi) for s in factors), lo, hi)


def _in_window(s: Integers, lo: int, hi: int) -> Integers:
    """Return a set that is right in the window, in a shorter period if it is explicit and may have one."""
    if not isinstance(s, Explicit):
        return s
    return DisjointSetts._of(nests.in_window(nest, lo, hi) for nest in s._nests)


def _count_in_groups(factors: tuple[Integers, ...], lo: int, hi: int) -> int:
    found = count_in_chains(factors, lo, hi)
    if found is not OPEN:
        return found
    period = period_of(factors)
    whole, rest = divmod(hi - lo, period)
    groups = _coprime(factors) if whole else []
    if len(groups) > 1:
        each = prod(count_in_all(group, 0, period_of(group)) for group in groups)
        return whole * each + _count_lazy(factors, lo, lo + rest)
    if whole and hi - lo > period:
        return whole * _count_lazy(factors, lo, lo + period) + _count_lazy(factors, lo, lo + rest)
    count = _ask_listed(factors, lo, hi, _Listing.count)
    if count is OPEN:
        raise _too_hard("count of common elements", factors, lo, hi)
    return count


def count_in_chains(factors: Sequence[Integers], lo: int, hi: int) -> int | Open:
    """Count what sets share that fill one set, by what fills it; or two sets, of which one is few runs of neighbors.

    `OPEN` where they are neither, or where that takes more than half of the rest of the budget.

    Examples
    --------
    >>> from tapestry_sets import Stripe
    >>> s = Sett(Stripe(1, 6)).fill(Stripe(3, 2))
    >>> count_in_chains((s.fill(Stripe(2, 1)), s.fill(Stripe(1, 1))), 0, 350)
    10
    >>> count_in_chains((s, Sett(Stripe(100, 300))), 0, 350), s.count(0, 100)
    (9, 9)
    """
    inks = _inks(factors, lo, hi)
    if inks is not None:
        return attempt(lambda: count_in_all(*inks[1:]))
    if len(factors) > 2:
        return OPEN
    for one, other in (factors, factors[::-1]):
        if isinstance(one, Filled) and isinstance(other, Explicit):
            each = chain.from_iterable(nests.solid_runs(s, lo, hi) for s in other._nests)
            runs = list(islice(each, tuning.FEW_RUNS + 1))
            if len(runs) <= tuning.FEW_RUNS:
                return attempt(partial(_count_in_runs, one, runs))
    return OPEN


def _count_in_runs(s: Integers, runs: Iterable[tuple[int, int]]) -> int:
    return sum([s._count(first, stop) for first, stop in runs])


def _too_hard(what: str, factors: Sequence[Integers], lo: int, hi: int) -> TooHard:
    return TooHard(
        f"{what} of {len(factors)} sets of periods {[s.period for s in factors]} in [{lo}, {hi}): neither the budget "
        f"nor {tuning.MAX_LISTED_SETTS} setts nor {tuning.MAX_LISTED} elements decide; ask within a shorter range"
    )


class _Listing(Struct, frozen=True):
    """The answer to a question about lazy sets, from sets that are listed: setts, or else elements."""

    factors: tuple[Integers, ...]
    lo: int
    hi: int
    outer: Integers | None  # whose numbers the window and the factors are about, if any
    elements: Int64Array | None
    width: int = 1  # of the blocks that are listed as single elements

    def first(self) -> int | None:
        if self.elements is not None:
            return int(self.elements[0]) * self.width if len(self.elements) else None
        z = first_in_all(self.factors, self.lo, self.hi)
        return z if z is None or self.outer is None else self.outer._nth(z)

    def count(self) -> int:
        return (
            count_in_all(self.factors, self.lo, self.hi) if self.elements is None else len(self.elements) * self.width
        )


def _ask_listed(factors: tuple[Integers, ...], lo: int, hi: int, question: Callable[[_Listing], T]) -> T | Open:
    """Ask what is listed: few setts for little, then elements if they may be, then the setts again for all there is."""
    tried = []
    for listing in _listed_setts(factors, lo, hi):
        found = attempt(partial(question, listing), tuning.COUNTED)
        if found is not OPEN:
            return found
        tried.append(listing)
    with Question() as budget:
        elements = _listed_elements(factors, lo, hi) if budget.lists else None
    if elements is not None:
        return question(elements)
    each = (attempt(partial(question, listing)) for listing in tried if budget.lists)
    return next((found for found in each if found is not OPEN), OPEN)


def _listed_setts(factors: tuple[Integers, ...], lo: int, hi: int) -> Iterator[_Listing]:
    """Yield sets of few setts that answer: seen through an outer set, or else as they are."""
    is_seen = False
    for at, s in enumerate(factors):  # s.outer.fill(s.ink) & b is s.outer.fill(s.ink & b.sample(s.outer))
        if isinstance(s, Filled):
            rest = [t for i, t in enumerate(factors) if i != at]
            first, last = s.outer.rank(lo), s.outer.rank(hi)
            seen = [_in_few_setts(_seen(t, s.outer), first, last) for t in rest]
            if all(t is not None for t in seen):
                is_seen = True
                yield _Listing(_flat([s.ink, *seen]), first, last, s.outer, None)
    listed = [] if is_seen else [_in_few_setts(s, lo, hi) for s in factors]
    if listed and all(s is not None for s in listed):
        yield _Listing(_flat(listed), lo, hi, None, None)


def _listed_elements(factors: tuple[Integers, ...], lo: int, hi: int) -> _Listing | None:
    """Return the common elements, blocks of a width that all lengths share as one each; None if they are too many."""
    width = gcd(lo, hi, *(length for s in factors for length in _lengths(s))) or 1
    blocks = tuple(_divided(s, width) for s in factors) if width > 1 else factors
    with suppress(OverflowError):  # elements beyond int64 are not listed
        common = attempt(lambda: common_elements(blocks, lo // width, hi // width))
        if common is not OPEN and common is not None:
            note_help("listed")
            return _Listing((), lo, hi, None, common, width)
    return None


def _lengths(s: Integers) -> Iterator[int]:
    """Yield all lengths and phases of a set's levels; 1 where blocks of numbers are not blocks of elements."""
    if isinstance(s, Explicit):
        yield from (length for nest in s._nests for level in nest for length in level)
    elif isinstance(s, Sampled):
        yield 1
    else:
        yield from (length for part in _parts(s) for length in _lengths(part))


def _divided(s: Integers, f: int) -> Integers:
    """Return the set of which s holds each element as a block of f; f divides all lengths."""
    if isinstance(s, Explicit):
        return DisjointSetts._of(tuple((a // f, P // f, p // f) for a, P, p in nest) for nest in s._nests)
    parts = [_divided(part, f) for part in _parts(s)]
    return Filled(*parts) if isinstance(s, Filled) else Intersection(tuple(parts))


def _parts(s: Integers) -> tuple[Integers, ...]:
    return (s.outer, s.ink) if isinstance(s, Filled) else s._factors


def _flat(sets: Iterable[Integers | None]) -> tuple[Integers, ...]:
    return tuple(factor for s in sets if s is not None for factor in s._factors)


def _in_few_setts(s: Integers, lo: int, hi: int) -> Integers | None:
    """Return a set that is right in the window, listed if it is lazy; None if that needs too many setts."""
    if _are_explicit(s._factors):
        return s
    with limits(max_pieces=min(tuning.MAX_LISTED_SETTS, current().max_pieces)):
        found = attempt(lambda: s._listed((lo, hi)))
    return None if found is OPEN else DisjointSetts._of(found)


def common_elements(factors: Sequence[Integers], lo: int, hi: int) -> Int64Array | None:
    """Return the common elements in the window where one of the sets has few there, else None."""
    counts = {s: s._count(lo, hi) for s in factors}
    few, *rest = sorted(factors, key=counts.__getitem__)
    if counts[few] > tuning.MAX_LISTED:
        return None
    return _in_all(few._elements(lo, hi), rest)


def _in_all(z: Int64Array, sets: Iterable[Integers]) -> Int64Array:
    """Return those of some integers that are in all of the sets."""
    for s in sets:
        z = z[s._contains_each(z)]
    return z


def _elements_by_listing(s: Intersection, lo: int, hi: int) -> Int64Array:
    found = common_elements(_grouped(s.operands), lo, hi)
    return integers.to_array(_walk(s, lo, hi)) if found is None else found


# ------------------------------------------------------------------------------------------------- inclusion


def lie_in(factors: Sequence[Integers], other: Integers, lo: int | None, hi: int | None) -> bool:
    """Return whether the common elements of sets (in the window) are all in another."""
    if isinstance(other, Intersection):
        return all(lie_in(factors, operand, lo, hi) for operand in other.operands)
    other = _together(other._factors)
    if any(_is_part(s, other) for s in factors):
        return True
    if isinstance(other, Filled):  # all lie in the outer set, and their numbers there are in the ink
        if not lie_in(factors, other.outer, lo, hi):
            return False
        seen = _seen(_together(factors), other.outer)
        ends = (None, None) if lo is None or hi is None else (other.outer.rank(lo), other.outer.rank(hi))
        return lie_in((seen,), other.ink, *ends)
    if isinstance(other, Sampled):  # as numbers of `at`, they are those of elements of the inner set
        if other.at.is_empty:
            return have_none(factors, lo, hi)
        ends = (None, None) if lo is None or hi is None else (other.at._nth(lo), other.at._nth(hi))
        return lie_in((Filled(other.at, _together(factors)),), other.inner, *ends)
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
    return factors[0] if len(factors) == 1 else Intersection._of(tuple(factors))


def _is_covered_lazy(factors: Sequence[Integers], theirs: Sequence[Nest], lo: int | None, hi: int | None) -> bool:
    """Return whether the common elements of sets, of which one is lazy, are all in a disjoint union."""
    around = tuple(each for s in factors for each in _around(s))
    if around and attempt(lambda: _are_covered(around, theirs, lo, hi)) is True:
        return True
    outside = unions.subtract([()], theirs, None)
    return all(have_none((*factors, Sett._of(c)), lo, hi) for c in outside)


def _are_covered(factors: Sequence[Integers], theirs: Sequence[Nest], lo: int | None, hi: int | None) -> bool:
    """Return whether the common elements of explicit sets are all in a disjoint union: few are looked up there."""
    if len(theirs) > tuning.FEW_PAIRS and lo is not None and hi is not None and max(-lo, hi) < 1 << 62:
        few, *rest = sorted(factors, key=lambda s: s._count(lo, hi))
        if few._count(lo, hi) <= tuning.SHORT_LIST:
            z = _in_all(few._elements(lo, hi), rest)
            for t in theirs:
                z = z[~nests.contains_each(t, z)] if len(z) else z
            return not len(z)
    return all(conjunction.is_covered(each, theirs, lo, hi) for each in _conjunctions(factors))
