"""Two nests: do they meet, where first, and how often? Without a list of the common elements.

A window is a pair ``lo, hi``: the integers ``lo <= z < hi``. Nests are canonical; see `nest.canonical`.
"""

from __future__ import annotations

from math import gcd, lcm

from tapestry_sets.integers import tuning
from tapestry_sets.integers.nest import EMPTY, Nest, bits, complement, find
from tapestry_sets.integers.pair_counts import PairCount
from tapestry_sets.integers.stripe import (
    stripes_count_common,
    stripes_disjoint,
    stripes_first_common,
)
from tapestry_sets.limits import OPEN, Budget, Open, TooHard, current
from tapestry_sets.solvers import isl

# ------------------------------------------------------------------ two nests: do they meet, where first


def surely_disjoint(s: Nest, s_shift: int, t: Nest, t_shift: int) -> bool:
    """Return whether some pair of levels proves that s + s_shift and t + t_shift are disjoint.

    The elements of the first k levels agree, modulo the gcd of their periods, with the k-th level's blocks;
    so any two levels that miss each other modulo the gcd of both are a proof.
    """
    gs = 0
    for a, P, p in s:
        gs = gcd(gs, P)
        s_shift += p
        g, at = gs, t_shift
        for b, Q, q in t:
            g = gcd(g, Q)
            at += q
            if g == 1:
                break
            d = (at - s_shift) % g
            if d >= a and g - d >= b:
                return True
        if gs == 1:
            break
    return False


class PairSearch:
    """The first common element of two nests, by descent into overlapping pairs of blocks, each a step of the budget."""

    __slots__ = ("budget", "missed")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.missed: set[tuple[int, int, int]] = set()

    def first(self, s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int) -> int | Open | None:
        """Return the first element in the window of both s + si and t + tj; OPEN if the budget does not reach."""
        while True:
            if lo >= hi:
                return None
            if not s or not t:
                z = find(s, lo - si) + si if s else find(t, lo - tj) + tj
                return z if z < hi else None
            (a, P, p), (b, Q, q) = s[0], t[0]
            p += si
            q += tj
            if len(s) == 1 == len(t):
                common = stripes_first_common((a, P, p), (b, Q, q), lo)
                return common if common is not None and common < hi else None
            into = (lo - p) % P
            if into >= a:
                lo += P - into
                into = 0
            if hi <= lo - into + P:  # up to the next block: what lies behind this one holds nothing
                s, si = s[1:], lo - into
                hi = min(hi, si + a)
                continue
            into = (lo - q) % Q
            if into >= b:
                lo += Q - into
                into = 0
            if hi > lo - into + Q:
                return self._branch(s, si, t, tj, lo, hi)
            t, tj = t[1:], lo - into
            hi = min(hi, tj + b)

    def _branch(self, s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int) -> int | Open | None:
        """Return what `first` does, where the window spans several blocks of both."""
        P, Q = s[0][1], t[0][1]
        g = gcd(P, Q)
        common = P // g * Q
        whole = hi - lo >= common
        if whole:
            hi = lo + common
        if hi - lo <= tuning.MASK_BITS:
            mask = bits(s, lo - si, hi - si) & bits(t, lo - tj, hi - tj)
            return lo + (mask & -mask).bit_length() - 1 if mask else None
        # whole-line disjointness depends on the shift modulo g alone; the levels left tell the nests apart
        key = (len(s), len(t), (tj - si) % g)
        if key in self.missed:
            return None
        if surely_disjoint(s, si, t, tj):
            self.missed.add(key)
            return None
        z = self._walk(s, si, t, tj, lo, hi)
        if z is None and whole:
            self.missed.add(key)
        return z

    def _walk(self, s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int) -> int | Open | None:
        """Try the overlapping pairs of blocks in turn, from one to the next by `stripes_first_common`."""
        (a, P, p), (b, Q, q) = s[0], t[0]
        x, y = (a, P, p + si), (b, Q, q + tj)
        # blocks that hold a period of the other nest, or whose other side has no inside, are entered alone
        only_t = len(s) == 1 or (b >= P and len(t) > 1)
        only_s = not only_t and (len(t) == 1 or a >= Q)
        s_tail, t_tail = s[1:], t[1:]
        branches = 1 + min(P, Q).bit_length() // 64  # of an algorithm of Euclid's kind: it has as many rounds as bits
        while True:
            z = stripes_first_common(x, y, lo)
            if z is None or z >= hi:
                return None
            if not self.budget.spend(branches):
                return OPEN
            u, v = z - (z - p - si) % P, z - (z - q - tj) % Q
            if only_t:
                lo = min(hi, v + b)
                found = self.first(s, si, t_tail, v, z, lo)
            elif only_s:
                lo = min(hi, u + a)
                found = self.first(s_tail, u, t, tj, z, lo)
            else:
                lo = min(hi, u + a, v + b)
                found = self.first(s_tail, u, t_tail, v, z, lo)
            if found is not None:  # an element, or OPEN
                return found


def first_in_both(s: Nest, t: Nest, lo: int, hi: int | None = None) -> int | None:
    """Return the smallest common element in the window (without `hi`: at or after lo), or None.

    Raises
    ------
    TooHard
        If the closed forms need more than the budget of branches, and isl more operations than it is given or
        is not installed.
    """
    if s == EMPTY or t == EMPTY:
        return None
    if len(s) == 1 == len(t):
        z = stripes_first_common(s[0], t[0], lo)
        return z if z is None or hi is None or z < hi else None
    if not s or not t:
        z = find(s or t, lo)
        return z if hi is None or z < hi else None
    stop = lo + lcm(s[0][1], t[0][1])  # what is in no common period is nowhere
    whole = hi is None or hi >= stop
    return _first_in(s, t, lo, stop if hi is None else min(hi, stop), whole)


def _first_in(s: Nest, t: Nest, lo: int, hi: int, whole: bool) -> int | None:
    """Return what `first_in_both` does, by one way after another; `whole` if the window is a common period."""
    found = PairSearch(Budget(tuning.ISL_AFTER)).first(s, 0, t, 0, lo, hi)
    if found is OPEN and whole and is_disjoint(s, t):
        return None
    if found is OPEN and isl.available():
        found = isl.nests_first_common((s, t), lo, hi)
    if found is OPEN:
        found = PairSearch(Budget(current().budget)).first(s, 0, t, 0, lo, hi)
    if found is OPEN:
        raise TooHard(
            f"first common element of {s} and {t} in [{lo}, {hi}): about {_pairs_between(s, t, lo, hi)} pairs of "
            f"blocks, more than the budget of {current().budget}; "
            + ("ask within a shorter range" if isl.available() else "install islpy, which decides such cases")
        )
    return found


def _pairs_between(s: Nest, t: Nest, lo: int, hi: int) -> int:
    """Return about how many pairs of blocks overlap in the window."""
    (a, P, _), (b, Q, _) = s[0], t[0]
    return (hi - lo) * (a + b - 1) // (P * Q) + 1


def is_disjoint(s: Nest, t: Nest, lo: int | None = None, hi: int | None = None) -> bool:
    """Return whether two nests share no element, in the window if there is one.

    Raises
    ------
    TooHard
        As for `first_in_both`.
    """
    if s == EMPTY or t == EMPTY:
        return True
    if lo is not None and hi is not None and (len(s) < 2 > len(t) or not s or not t):
        return first_in_both(s, t, lo, hi) is None
    if not s or not t:
        return False
    (a, P, p), (b, Q, q) = s[0], t[0]
    g = gcd(P, Q)
    if lo is not None and hi is not None and hi - lo < P // g * Q:
        return not _meet_in(s, t, lo, hi)
    if g == 1:
        return False
    if len(s) == 1 == len(t):
        return stripes_disjoint(*s, *t)
    if surely_disjoint(s, 0, t, 0):
        return True
    if a <= g and b <= g:  # they meet if and only if they meet modulo g
        s = ((a, g, p % g), *s[1:])
        t = ((b, g, q % g), *t[1:])
    return not _meet_in(s, t, 0, lcm(s[0][1], t[0][1]))


def _meet_in(s: Nest, t: Nest, lo: int, hi: int) -> bool:
    """Return whether two nests share an element of the window: of isl emptiness is asked, not the least element."""
    found = PairSearch(Budget(tuning.ISL_AFTER)).first(s, 0, t, 0, lo, hi)
    if found is OPEN and isl.available() and (apart := isl.nests_disjoint((s, t), lo, hi)) is not OPEN:
        return not apart
    return (_first_in(s, t, lo, hi, whole=False) if found is OPEN else found) is not None


def is_subset(s: Nest, t: Nest, lo: int | None = None, hi: int | None = None) -> bool:
    """Return whether every element of `s` (in the window) is in `t`."""
    return all(is_disjoint(s, c, lo, hi) for c in complement(t))


# ------------------------------------------------------------------ two nests: how many common elements


def count_in_both(s: Nest, t: Nest, lo: int, hi: int, budget: Budget | None = None) -> int:
    """Return how many common elements lie in the window.

    Parameters
    ----------
    budget : Budget, optional
        Of branches; by default as much as a question has.

    Raises
    ------
    TooHard
        If no way to count is within the budget; for the most part that is known before any begins.
    """
    if s == EMPTY or t == EMPTY:
        return 0
    if len(s) == 1 == len(t):
        return stripes_count_common(*s, *t, lo, hi)
    return PairCount(budget or Budget(current().budget)).common(s, t, lo, hi)
