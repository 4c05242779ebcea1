"""Sums of ramps, of many at once: what two stripes share in a range, summed in as many steps as Euclid's algorithm has.

`stripe` has the same sum of one ramp, with a picture of it. Here the numbers that differ are columns. A column is an
array of int64 or uint64, whose sums and products may wrap, or of Python integers, where int64 would be too short.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapestry_sets.integers import tuning

THIRD = 12297829382473034411
"""What 3 is multiplied by to be 1 modulo 2**64."""


def _triangle(x: Any) -> Any:
    """Return x(x - 1)/2, exact also modulo 2**64: one of the factors is halved, the other is odd."""
    return (x >> 1) * ((x - 1) | 1)


def _third(x: Any) -> Any:
    """Return a multiple of 3 by 3, exact also modulo 2**64, where 3 has an inverse."""
    return x // 3 if x.dtype == object else x * THIRD


def _round(c: Any, n: Any, d: Any, P: Any, Q: Any) -> tuple[Any, Any]:
    """Return what y is multiplied by in a round, and what is added to that; see `stripe.sum_ramp`."""
    if isinstance(P, int) and c.dtype != object and len(n) > tuning.TABLED:
        # few numbers differ: a table of all of them is shorter than the columns
        low, most = int(n.min()), int(c.max()) + 1
        wide = int(n.max()) - low + 1
        if wide * most * tuning.TABLED <= len(n):
            every_c = np.repeat(np.arange(most, dtype=c.dtype), wide)
            every_n = np.tile(np.arange(low, low + wide, dtype=n.dtype), most)
            at = (c * wide + (n - low)).view(np.int64)
            return tuple(column[at] for column in _round_of_each(every_c, every_n, d, P, Q))
    return _round_of_each(c, n, d, P, Q)


def _round_of_each(c: Any, n: Any, d: Any, P: Any, Q: Any) -> tuple[Any, Any]:
    s1 = _triangle(n)
    s3 = _third(s1 * (n + 1))
    s2 = 2 * s3 - s1  # s1, s2, s3 are the sums over k < n of k, k*k and k(k + 1)/2
    twice = _triangle(d)
    if isinstance(twice, int) and n.dtype != object:
        twice %= 1 << 64
    return (c + 1) * n + d * s1, P * ((c + 1) * s1 + d * s2) + Q * (
        _triangle(c + 1) * n + d * (c * s1 + s3) + twice * s2
    )


def _divided(n: Any, P: int, y: Any, Q: int) -> tuple[Any, Any]:
    """Return divmod(y + P*n, Q), where P*n wraps; P and Q are below 2**52, and P*n is below 2**100."""
    about = (n * (P / Q)).astype(np.uint64)  # the quotient, but for its last places
    rest = (y + P * n - about * Q).view(np.int64)
    more = rest // Q
    return about + more.view(np.uint64), (rest - more * Q).view(np.uint64)


def sum_ramps(n: Any, P: Any, y: Any, Q: Any, is_wide: bool = False, xp: Any = np) -> Any:
    """Return the sum over 0 <= k < n and j >= 0 of max(0, y + P*k - Q*j), for each entry of columns.

    Parameters
    ----------
    n, y : array
        Columns of one length, of uint64 or of Python integers; n >= 1, y >= 0, and y + P*n is below 2**63.
    P, Q : int or array
        One number for all entries, or columns; Q > 0.
    is_wide : bool
        Whether P*n may be longer, below 2**100; P and Q are one number each, below 2**52, then.

    xp : module
        The columns' library, NumPy or another of the Array API where P and Q are columns.

    Returns
    -------
    array
        In uint64 modulo 2**64: only sums and products may wrap, and what is divided is below 2**63, so that the
        difference of such sums is right where it is below 2**64.
    """
    sums: list[tuple[Any, Any]] = []  # of each round, and for which entries the next one goes on
    while True:
        c, d = y // Q, P // Q
        y, P = y - c * Q, P - d * Q
        slope, rise = _round(c, n, d, P, Q)
        total = slope * y + rise
        if is_wide:
            n, y = _divided(n - 1, P, y, Q)
        else:
            y = y + P * n - P
            n = y // Q
            y = y - n * Q
        going = n != 0
        sums.append((total, going))
        if not bool(xp.any(going)):
            break
        if not bool(xp.all(going)):
            n, y = n[going], y[going]
            if not isinstance(P, int):
                P, Q = P[going], Q[going]
        P, Q = Q, P
    total, _ = sums.pop()
    while sums:
        inner = total
        total, going = sums.pop()
        if inner.shape == total.shape:
            total = total + inner
        else:
            total[going] = total[going] + inner
    return total
