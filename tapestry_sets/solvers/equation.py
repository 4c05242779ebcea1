"""Bounded linear equations: digits 0 <= x[k] < counts[k] with ``sum(steps[k] * x[k]) == total``.

Two strided views share a cell, and one reads a cell twice, where such an equation has solutions; the digits say at
which indices. In general such equations are NP-hard, but the steps of views are those of nested rows: what the long
steps leave over is almost fixed by their greatest common divisor and by how far the short steps reach. So an equation
is cut in two where fewest remainders are possible, again and again, down to two digits, which have a closed form.
Where too many remainders are possible isl decides.

References
----------
NumPy's mem_overlap.c, which tries the digits one after another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from math import gcd, lcm, prod
from typing import Generic, NamedTuple, TypeVar

from tapestry_sets.digits import make_steps_positive
from tapestry_sets.limits import OPEN, Budget, Open, TooHard, current
from tapestry_sets.solvers import isl, tuning

T = TypeVar("T")

WeightedTerms = Sequence[tuple[int, int]]
"""(count, step) for each digit; counts >= 1, steps of either sign or 0."""


# ------------------------------------------------------------------------------------------------- some solution


def solve(total: int, terms: WeightedTerms, by_isl: bool = True) -> tuple[int, ...] | None:
    """Return the digits of some solution, or None if there is none.

    Parameters
    ----------
    total : int
    terms : sequence of (count, step)
    by_isl : bool
        Whether to ask isl where too many remainders are possible.

    Raises
    ------
    TooHard
        If more remainders are possible than are tried, and isl does not decide either, is not asked or not installed.

    Examples
    --------
    >>> solve(8, [(4, 6), (3, 1), (9, -7)])  # 6·x + y - 7·z = 8
    (1, 2, 0)
    """
    plain, rest = _positive(total, terms)
    merged = _merge(plain)
    steps, counts = [m.step for m in merged], [m.values for m in merged]
    found = _PartSearch(steps, counts, tuning.SEARCHED).answer(rest)
    if found is OPEN:
        found = _by_isl(rest, steps, counts, by_isl)
    return None if found is None else _spread(found, merged, terms)


def _positive(total: int, terms: WeightedTerms) -> tuple[list[tuple[int, int, int]], int]:
    """The digits that matter as (step, count, number), the longest steps last and all above 0, and their total."""
    (low,), digits = make_steps_positive((0,), terms)
    return sorted([(step, count, k) for k, (count, step) in enumerate(digits) if count > 1 and step]), total - low


class _Merged(NamedTuple):
    """Digits that together step through 0, step, …, (values - 1)·step without a gap: (number, ratio, count) of each."""

    step: int
    values: int
    parts: tuple[tuple[int, int, int], ...]


def _merge(plain: Sequence[tuple[int, int, int]]) -> list[_Merged]:
    """Digits as fewer ones, the longest steps first."""
    found: list[_Merged] = []
    for step, count, k in plain:
        for at, (inner, n, parts) in enumerate(found):
            ratio = step // inner
            if ratio <= n and ratio * inner == step:
                found[at] = _Merged(inner, n + (count - 1) * ratio, (*parts, (k, ratio, count)))
                break
        else:
            found.insert(0, _Merged(step, count, ((k, 1, count),)))
    return found


def _spread(digits: Sequence[int], merged: Sequence[_Merged], terms: WeightedTerms) -> tuple[int, ...]:
    """The digits of all terms from those of merged ones."""
    out = [0] * len(terms)
    for x, m in zip(digits, merged, strict=True):
        for k, ratio, count in reversed(m.parts):
            out[k] = min(count - 1, x // ratio)
            x -= out[k] * ratio
    return tuple([count - 1 - x if step < 0 else x for x, (count, step) in zip(out, terms, strict=True)])


class _Remainders(ABC, Generic[T]):
    """Digits 0 <= x < count with positive steps, the longest first, and where ranges of them are cut in two.

    What the long steps leave over is all that the short ones have to make up, and both sides bound it::

        steps        3000  600 | 7  1            long ones are multiples of 600, short ones reach 57
        total 4215   4215 - rest | rest          rest = 4215 modulo 600, 0 <= rest <= 57: 15 is the only one

    Each remainder costs one step of the budget. Once that is overdrawn no more remainders are given, so that every
    search on the way ends at once. Each part is asked about once for each remainder: what it answers is kept.
    """

    __slots__ = ("_cuts", "_gcds", "_inverses", "_known", "_reaches", "budget", "counts", "steps")

    def __init__(self, steps: Sequence[int], counts: Sequence[int], most: int) -> None:
        self.steps, self.counts, self.budget = steps, counts, Budget(most)
        reaches = [0]
        for step, count in zip(steps, counts, strict=True):
            reaches.append(reaches[-1] + (count - 1) * step)
        self._reaches = reaches
        self._gcds: dict[tuple[int, int], int] = {}
        self._cuts: dict[tuple[int, int], tuple[int, int, int, int, int]] = {}
        self._inverses: dict[int, tuple[int, int, int]] = {}
        self._known: dict[tuple[int, int, int], T] = {}

    def answer(self, total: int) -> T | Open:
        """Return what all digits with this total are asked for; `OPEN` if the budget does not last."""
        found = self._between(0, len(self.steps), total)
        return OPEN if self.budget.is_overdrawn else found

    @abstractmethod
    def _between(self, i: int, j: int, total: int) -> T:
        """Return the same of digits i … j - 1."""

    def reach(self, i: int, j: int) -> int:
        """Return the largest sum of digits i … j - 1."""
        return self._reaches[j] - self._reaches[i]

    def gcd(self, i: int, j: int) -> int:
        """Return what divides all sums of digits i … j - 1."""
        found = self._gcds.get((i, j))
        if found is None:
            found = self._gcds[i, j] = gcd(*self.steps[i:j])
        return found

    def _cut(self, i: int, j: int) -> tuple[int, int, int, int, int]:
        """Return where fewest remainders are possible, and what `remainders` finds them by."""
        found = self._cuts.get((i, j))
        if found is not None:
            return found
        _, at = min(
            (min(self.reach(i, k), self.reach(k, j)) // lcm(self.gcd(i, k), self.gcd(k, j)), k) for k in range(i + 1, j)
        )
        long, short = self.gcd(i, at), self.gcd(at, j)
        g = gcd(long, short)
        found = self._cuts[i, j] = at, g, long // g, short, pow(short // g, -1, long // g)
        return found

    def remainders(self, i: int, j: int, total: int) -> Iterator[tuple[int, int]]:
        """Yield a place to cut and what the digits after it may sum to, a step each; the gcd divides the total."""
        at, g, modulus, short, inverse = self._cut(i, j)
        first = short * (total // g * inverse % modulus)
        by = short * modulus
        low = max(0, total - self.reach(i, at))
        for rest in range(low + (first - low) % by, min(total, self.reach(at, j)) + 1, by):
            if not self.budget.spend():
                return
            yield at, rest

    def two(self, i: int, total: int) -> tuple[int, int, int]:
        """Return the values of digit i for which digit i + 1 makes up the rest: first, step, and one past the last."""
        # a·x + b·y = total, solutions are b/g apart in x and a/g in y:
        #
        #     y ┤ ·                     x >= low: else y would be past its last value, counts[i + 1] - 1
        #       ┤      ·                x <= total // a: else y would be negative
        #       ┤           ·           x is total/g · (a/g)⁻¹ modulo b/g, and `first` the least one from low on
        #       └─┴────┴────┴─── x
        found = self._inverses.get(i)
        if found is None:
            g = gcd(self.steps[i], self.steps[i + 1])
            modulus = self.steps[i + 1] // g
            found = self._inverses[i] = g, modulus, pow(self.steps[i] // g, -1, modulus)
        g, modulus, inverse = found
        if total % g:
            return 0, 1, 0
        a, b = self.steps[i], self.steps[i + 1]
        low = max(0, -((b * (self.counts[i + 1] - 1) - total) // a))
        first = low + (total // g * inverse - low) % modulus
        return first, modulus, min(self.counts[i], total // a + 1)


class _PartSearch(_Remainders[tuple[int, ...] | None]):
    """The search for one solution; what has none is remembered."""

    __slots__ = ()

    def _between(self, i: int, j: int, total: int) -> tuple[int, ...] | None:
        if total < 0 or total > self.reach(i, j):
            return None
        if i == j:
            return ()
        if j - i == 1:
            x, rest = divmod(total, self.steps[i])
            return None if rest else (x,)
        if j - i == 2:
            x, _, end = self.two(i, total)
            return (x, (total - self.steps[i] * x) // self.steps[i + 1]) if x < end else None
        key = i, j, total
        if key in self._known or total % self.gcd(i, j):
            return None
        for at, rest in self.remainders(i, j, total):
            short = self._between(at, j, rest)
            long = None if short is None else self._between(i, at, total - rest)
            if long is not None and short is not None:
                return long + short
        self._known[key] = None
        return None


def _by_isl(total: int, steps: Sequence[int], counts: Sequence[int], asked: bool) -> tuple[int, ...] | None:
    names = [f"x{k}" for k in range(len(steps))]
    shown = " + ".join(f"{step}*{x}" for step, x in zip(steps, names, strict=True))
    why = f"{shown} = {total} with digits below {tuple(counts)}: more than {tuning.SEARCHED} remainders are possible"
    if not asked:
        raise TooHard(why)
    if not isl.available():
        raise TooHard(f"{why}, and isl, which might decide it, is not installed: pip install islpy")
    bounds = " and ".join(f"0 <= {x} < {n}" for x, n in zip(names, counts, strict=True))
    text = f"{{ [{', '.join(names)}] : {shown} = {total} and {bounds} }}"
    refusal = TooHard(f"{why}, and isl needs more than {isl.MAX_OPERATIONS} operations; ask about a part of the view")
    return isl.bounded(lambda: isl.a_point(isl.read_set(text)), refusal, isl.MAX_OPERATIONS)


# --------------------------------------------------------------------------------------------- how many solutions


def count(total: int, terms: WeightedTerms) -> int:
    """Return how many solutions there are.

    Raises
    ------
    TooHard
        If more remainders are possible than the budget allows.

    Examples
    --------
    >>> count(0, [(10**9, 2), (10**9, -3)])
    333333334
    """
    plain, rest = _positive(total, terms)
    plain.reverse()
    budget = current().budget // tuning.BRANCHES_A_REMAINDER
    search = _PartCount([step for step, _, _ in plain], [n for _, n, _ in plain], budget)
    solutions = search.answer(rest)
    if solutions is OPEN:
        raise TooHard(
            f"solutions of digits (count, step) {tuple(terms)} with total {total}: more than {budget} remainders are "
            "possible; ask whether there is one, or about fewer digits"
        )
    return prod([n for n, step in terms if not step]) * solutions


class _PartCount(_Remainders[int]):
    """The number of solutions."""

    __slots__ = ()

    def _between(self, i: int, j: int, total: int) -> int:
        if total < 0 or total > self.reach(i, j):
            return 0
        if i == j:
            return 1
        if j - i == 1:
            return int(not total % self.steps[i])
        if j - i == 2:
            first, by, end = self.two(i, total)
            return max(0, (end - 1 - first) // by + 1)
        if total % self.gcd(i, j):
            return 0
        key = i, j, total
        found = self._known.get(key)
        if found is None:
            found = 0
            for at, rest in self.remainders(i, j, total):
                short = self._between(at, j, rest)
                found += short * self._between(i, at, total - rest) if short else 0
            self._known[key] = found
        return found


# ------------------------------------------------------------------------------------------------ equal sums


def equal_sums(terms: WeightedTerms) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return two different choices of digits with one sum, or None if all sums differ.

    Raises
    ------
    TooHard
        As for `solve`.

    Examples
    --------
    >>> equal_sums([(4, 2), (3, 3)])  # 3·2 = 2·3
    ((0, 2), (3, 0))
    >>> equal_sums([(10**9, 10), (9, 1)]) is None
    True
    """
    still = next((k for k, (n, step) in enumerate(terms) if n > 1 and not step), None)
    if still is not None:
        return (0,) * len(terms), tuple([int(k == still) for k in range(len(terms))])
    order = sorted((k for k, (n, _) in enumerate(terms) if n > 1), key=lambda k: -abs(terms[k][1]))
    reach = sum([(terms[k][0] - 1) * abs(terms[k][1]) for k in order])
    for at, k in enumerate(order):
        n, step = terms[k]
        reach -= (n - 1) * abs(step)
        if abs(step) > reach:  # the shorter steps do not make up for one of these
            continue
        apart = _difference(terms, k, order[at + 1 :])
        if apart is not None:
            return tuple([max(0, x) for x in apart]), tuple([max(0, -x) for x in apart])
    return None


def _difference(terms: WeightedTerms, k: int, others: Sequence[int]) -> tuple[int, ...] | None:
    """Differences of digits with sum 0, that of k above 0 and those not of `others` 0; None if there are none."""
    n, step = terms[k]
    total = sum([(terms[j][0] - 1) * terms[j][1] for j in others]) - step
    found = solve(total, [(n - 1, step), *[(2 * terms[j][0] - 1, terms[j][1]) for j in others]])
    if found is None:
        return None
    apart = [0] * len(terms)
    apart[k] = found[0] + 1
    for j, x in zip(others, found[1:], strict=True):
        apart[j] = x - (terms[j][0] - 1)
    return tuple(apart)
