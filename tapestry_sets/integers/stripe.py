"""Stripes, periodic blocks of integers, and the arithmetic of two stripes.

Everything about two stripes is answered in closed form: no loop here runs over a common period. The plain
functions take a stripe as a `Level`, three Python integers ``(on, period, phase)`` with ``0 < on <= period``.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np

from tapestry_sets.digits import Int64Array
from tapestry_sets.draw import Drawn
from tapestry_sets.limits import Frozen, as_int, check_range, mend_calls, put_field, quote

Level = tuple[int, int, int]
"""A stripe as plain integers: (on, period, phase)."""


@mend_calls
class Stripe(Drawn, Frozen):
    """The periodic set {z : (z - phase) mod (on + off) < on}.

    ``Stripe(2, 1)`` is ``11.11.11.``: blocks of `on` elements, `off` apart, one block starting at `phase`.

    Parameters
    ----------
    on : int
        Elements in a block, >= 0.
    off : int
        Integers between two blocks, >= 0; ``on + off`` must be positive.
    phase : int
        Where a block starts; kept reduced modulo the period.

    Raises
    ------
    TypeError
        If a value is not an integer.
    ValueError
        If a value is negative (other than the phase) or both are zero.

    Examples
    --------
    >>> from tapestry_sets import Stripe
    >>> s = Stripe(2, 1, phase=-1)
    >>> s.period, s.phase, 1 in s
    (3, 2, False)
    >>> s.elements(0, 7).tolist()
    [0, 2, 3, 5, 6]
    >>> Stripe(3, 0) == Stripe(1, 0), Stripe(0, 3) == Stripe(0, 1)
    (True, True)

    References
    ----------
    Tapestry's document on nested striding, "The stripe"; poprithms, memory/nest/stripe.hpp.
    """

    __slots__ = __match_args__ = ("on", "off", "phase")
    __array_ufunc__ = None  # NumPy's operators leave stripes alone
    on: int
    off: int
    phase: int

    def __init__(self, on: int, off: int, phase: int = 0) -> None:
        if not type(on) is type(off) is type(phase) is int:
            on = as_int(on, "Stripe: on")
            off = as_int(off, "Stripe: off")
            phase = as_int(phase, "Stripe: phase")
        if on < 0 or off < 0 or on + off == 0:
            raise ValueError(f"Stripe: on and off must be >= 0 and not both 0, not on={on}, off={off}")
        if on == 0:
            off = 1  # every empty stripe is the same set
        put_field(self, "on", on)
        put_field(self, "off", off)
        put_field(self, "phase", phase % (on + off) if on else 0)

    @property
    def period(self) -> int:
        """The distance between two blocks' starts, ``on + off``.

        Examples
        --------
        >>> from tapestry_sets import Stripe
        >>> Stripe(2, 3).period
        5
        """
        return self.on + self.off

    @property
    def level(self) -> Level:
        """The stripe as plain integers ``(on, period, phase)``.

        Examples
        --------
        >>> from tapestry_sets import Stripe
        >>> Stripe(2, 3, phase=1).level
        (2, 5, 1)
        """
        return (self.on, self.on + self.off, self.phase)

    def _key(self) -> Level:
        # off = 0 is every integer whatever the period; the period is kept, as it restarts a pattern in a nest
        return (1, 0, 0) if self.off == 0 else (self.on, self.off, self.phase)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Stripe) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        tail = f", phase={self.phase}" if self.phase else ""
        return f"Stripe({self.on}, {self.off}{tail})"

    def __contains__(self, z: int) -> bool:
        return (as_int(z, "Stripe: element") - self.phase) % (self.on + self.off) < self.on

    def _no_operator(self, other: object) -> Any:
        if isinstance(other, Stripe):
            raise TypeError(f"two stripes are combined as setts: write Sett({quote(self)}) in front, then the operator")
        return NotImplemented  # a sett answers

    __and__ = __or__ = __sub__ = __xor__ = __le__ = __ge__ = _no_operator

    def count(self, start: int, stop: int) -> int:
        """Return how many elements lie in [start, stop).

        Examples
        --------
        >>> from tapestry_sets import Stripe
        >>> Stripe(2, 1).count(1, 10**12)
        666666666666
        """
        start, stop = check_range(start, stop, "Stripe.count")
        return stripe_count(self.level, start, stop)

    def find(self, start: int) -> int | None:
        """Return the smallest element >= start, or None if the stripe is empty.

        Examples
        --------
        >>> from tapestry_sets import Stripe
        >>> Stripe(2, 3).find(2), Stripe(0, 1).find(0)
        (5, None)
        """
        start = as_int(start, "Stripe.find: start")
        if not self.on:
            return None
        r = (start - self.phase) % self.period
        return start if r < self.on else start + self.period - r

    def nth(self, k: int) -> int:
        """Return the k-th element >= 0, counted from 0; negative `k` counts back from the element before 0.

        Raises
        ------
        IndexError
            If the stripe is empty.

        Examples
        --------
        >>> from tapestry_sets import Stripe
        >>> s = Stripe(2, 1)
        >>> [s.nth(k) for k in (-2, -1, 0, 1, 2)]
        [-3, -2, 0, 1, 3]
        """
        k = as_int(k, "Stripe.nth: k")
        if not self.on:
            raise IndexError(f"Stripe.nth: no element {k}: the stripe is empty")
        block, rest = divmod(k - stripe_count(self.level, 0, self.phase), self.on)
        return self.phase + block * self.period + rest

    def elements(self, start: int, stop: int) -> Int64Array:
        """Return the elements in [start, stop) in ascending order, as int64.

        Raises
        ------
        OverflowError
            If an element does not fit int64.

        Examples
        --------
        >>> from tapestry_sets import Stripe
        >>> Stripe(1, 3, 1).elements(0, 10).tolist()
        [1, 5, 9]
        """
        start, stop = check_range(start, stop, "Stripe.elements")
        first = self.find(start)
        if first is None or first >= stop:
            return np.empty(0, np.int64)
        beyond = (stop - 1 - self.phase) % self.period - (self.on - 1)  # how far the last element is behind stop - 1
        return elements_between((self.level,), first, stop - 1 - max(0, beyond))

    def shift(self, k: int) -> Stripe:
        """Return {z + k : z in self}.

        Examples
        --------
        >>> from tapestry_sets import Stripe
        >>> Stripe(2, 3).shift(1)
        Stripe(2, 3, phase=1)
        """
        return Stripe(self.on, self.off, self.phase + as_int(k, "Stripe.shift: k"))


def elements_between(levels: tuple[Level, ...], first: int, last: int) -> Int64Array:
    """Return the elements of nested stripes from one element to another, both included, as int64.

    Raises
    ------
    OverflowError
        If one of the two does not fit int64.
    """
    if first < -(1 << 63) or last >= 1 << 63:
        raise OverflowError(f"elements: {first} to {last} do not fit int64; ask for a part of them, or for find or nth")
    if last - first < (1 << 63) - 1:
        return _places(_shifted(levels, first), last + 1 - first) + first
    half = (last - first) // 2 + 1  # places relative to the first may not fit
    low = _places(_shifted(levels, first), half) + first
    high = _places(_shifted(levels, first + half), last + 1 - first - half) + (first + half)
    return np.concatenate([low, high])


def _shifted(levels: tuple[Level, ...], origin: int) -> tuple[Level, ...]:
    return ((*levels[0][:2], levels[0][2] - origin), *levels[1:]) if levels else ()


def _places(levels: tuple[Level, ...], n: int) -> Int64Array:
    """Return the elements of nested stripes in [0, n), for n <= 2**63; periods may be longer."""
    if n <= 0:
        return np.empty(0, np.int64)
    if not levels:
        return np.arange(n, dtype=np.int64)
    (on, period, phase), inside = levels[0], levels[1:]
    into = -phase % period  # 0 is this far into its period
    first = _places(_shifted(inside, into), min(on - into, n))
    start = period - into  # of the first whole period
    whole, rest = divmod(max(0, n - start), period)
    if n <= start:
        return first
    parts = [first]
    if whole:
        starts = np.arange(whole, dtype=np.int64) * period + start
        parts.append((starts[:, None] + _places(inside, on)).ravel())
    if rest:
        parts.append(_places(inside, min(on, rest)) + (start + whole * period))
    return np.concatenate(parts)


def stripe_count(s: Level, start: int, stop: int) -> int:
    """Return how many elements of a stripe lie in [start, stop)."""
    if stop <= start:
        return 0
    a, period, p = s
    u, r = divmod(stop - p, period)
    v, t = divmod(start - p, period)
    return (u - v) * a + min(r, a) - min(t, a)


def first_hit(a: int, m: int, low: int, high: int) -> int | None:
    """Return the smallest k >= 0 with ``low <= a*k mod m <= high``, or None.

    Parameters
    ----------
    a, m : int
        The step and the modulus, ``m > 0``.
    low, high : int
        The interval, ``0 <= low <= high < m``.

    Returns
    -------
    int or None

    Examples
    --------
    >>> first_hit(7, 19, 3, 4)
    6
    >>> first_hit(6, 9, 1, 2) is None
    True

    Notes
    -----
    As in Euclid's algorithm: while no multiple of `a` lies in the interval, the wraps around `m` form the
    same question with modulus `a`, so the depth is O(log m).
    """
    descent: list[tuple[int, int, int]] = []
    while True:
        a %= m
        if low == 0:
            k = 0
            break
        if a == 0:
            return None
        if 2 * a > m:  # walk the other way round, so that a at least halves
            a, low, high = m - a, m - high, m - low
        k = -(-low // a)
        if a * k <= high:
            break
        descent.append((a, m, low))
        a, m, low, high = m % a, a, -high % a, -low % a
    while descent:
        a, m, low = descent.pop()
        k = -(-(low + m * k) // a)
    return k


def stripes_disjoint(s: Level, t: Level) -> bool:
    """Return whether two stripes share no integer, on the whole line.

    By the Chinese remainder theorem they meet if and only if they meet modulo the gcd of the periods.

    Examples
    --------
    >>> stripes_disjoint((1, 4294967291, 0), (1, 4294967279, 0))
    False
    >>> stripes_disjoint((1, 6, 0), (1, 4, 3))
    True
    """
    a, P, p = s
    b, Q, q = t
    g = gcd(P, Q)
    d = (q - p) % g
    return d >= a and g - d >= b


def stripes_first_common(s: Level, t: Level, start: int) -> int | None:
    """Return the smallest common element >= start of two stripes, or None.

    Examples
    --------
    >>> stripes_first_common((1, 4294967291, 0), (1, 4294967279, 0), 1) == 4294967291 * 4294967279
    True
    """
    a, P, p = s
    b, Q, q = t
    f = (start - p) % P
    if f < a:  # start is inside a block of s, whose rest may already meet t
        d = (start - q) % Q
        if d < b:
            return start
        if Q - d < a - f:
            return start + Q - d
    block = start - f + P
    if a + b - 1 < Q:  # else each block of s meets a block of t
        low = (q - block - a + 1) % Q
        high = low + a + b - 2
        if high < Q and low:
            k = first_hit(P, Q, low, high)
            if k is None:
                return None
            block += P * k
    d = (block - q) % Q
    return block if d < b else block + Q - d


def stripes_count_period(s: Level, t: Level) -> int:
    """Return the number of common elements of two stripes in one least common period.

    Examples
    --------
    >>> stripes_count_period((50001, 100003, 0), (50009, 100019, 0)) == 50001 * 50009
    True
    """
    a, P, p = s
    b, Q, q = t
    g = gcd(P, Q)
    qa, ra = divmod(a, g)
    qb, rb = divmod(b, g)
    d = (q - p) % g
    # overlap of the cyclic intervals [0, ra) and [d, d + rb) modulo g
    overlap = max(0, min(ra, d + rb) - d) + max(0, min(ra, d + rb - g))
    return qa * b + qb * ra + overlap


def sum_ramp(n: int, P: int, y: int, Q: int) -> int:
    """Return sum over 0 <= k < n and j >= 0 of max(0, y + P*k - Q*j), for n >= 1, P, y >= 0 and Q > 0."""
    # Columns h[k] = y + P·k; of each what lies above 0, above Q, above 2·Q, … counts:
    #
    #     2·Q ─────────────────▄─
    #                      ▄ █ █      h[k] = Q·m + r[k] with m = c + d·k and r[k] = y % Q + (P % Q)·k:
    #       Q ─────────▄─█─█─█─█─     the lines 0 … m - 1 count Q·m·(m + 1)/2 + m·r[k], and line m counts r[k].
    #              ▄ █ █ █ █ █ █
    #       0 ─█─█─█─█─█─█─█─█─█─
    #
    # What is left is r[k] - Q·j for j >= 1 where that is positive: the same sum, seen from its far end with k and j
    # in each other's place. So P and Q shrink as in Euclid's algorithm, and the loop is as short.
    total = 0
    while True:
        c, y = divmod(y, Q)
        d, P = divmod(P, Q)
        s1 = n * (n - 1) // 2
        s2 = s1 * (2 * n - 1) // 3
        total += (c + 1) * (n * y + P * s1) + d * (y * s1 + P * s2)
        total += Q * (c * (c + 1) * n + d * ((2 * c + 1) * s1 + d * s2)) // 2
        n, y = divmod(y + P * (n - 1), Q)
        if not n:
            return total
        P, Q = Q, P


def _blocks_common(n: int, P: int, y: int, a: int, b: int, Q: int) -> int:
    """Return the sum over 0 <= k < n of the elements of stripe (b, Q, 0) in [y + P*k, y + P*k + a)."""
    y = y % Q + Q  # a whole period up, so that y - b >= 0
    up = sum_ramp(n, P, y + a, Q) - sum_ramp(n, P, y + a - b, Q)
    return up - sum_ramp(n, P, y, Q) + sum_ramp(n, P, y - b, Q)


def stripes_count_common(s: Level, t: Level, start: int, stop: int) -> int:
    """Return how many common elements of two stripes lie in [start, stop), by a sum in O(log) steps.

    Examples
    --------
    >>> stripes_count_common((1, 2, 0), (1, 3, 0), 0, 6 * 10**12)
    1000000000000
    """
    if stop <= start:
        return 0
    if s[1] < t[1]:
        s, t = t, s  # the longer period has the fewer blocks
    a, P, p = s
    b, Q, q = t
    common = P // gcd(P, Q) * Q
    whole, rest = divmod(stop - start, common)
    total = whole * stripes_count_period(s, t) if whole else 0
    stop = start + rest
    r = (start - p) % P
    if r < a:
        total += stripe_count(t, start, min(start - r + a, stop))
    block = start - r + P
    if block >= stop:
        return total
    n = -(-(stop - block) // P)
    last = block + (n - 1) * P
    if last + a > stop:
        total += stripe_count(t, last, stop)
        n -= 1
    return total + (_blocks_common(n, P, block - q, a, b, Q) if n > 0 else 0)
