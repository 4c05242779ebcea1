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
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import gcd, inf, prod
from operator import le
from typing import Any, Generic, TypeVar

import numpy as np

from tapestry_sets.digits import MAX_SCAN, Strided, make_steps_positive
from tapestry_sets.limits import OPEN, Open, TooHard, current, note_help, quote, write_product, write_sum
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
    order, numbers, rest = _positive(total, terms)
    merged = _merge(order)
    if not 0 <= rest <= merged[2][-1]:
        return None
    found = _search(rest, merged)
    if found is OPEN:
        found = _by_isl(rest, merged[0], merged[1], by_isl)
    if found is None:
        return None
    digits = [0] * len(terms)
    for k, x in zip(numbers, _spread(found, order, merged[0]), strict=True):
        count, step = terms[k]
        digits[k] = x if step > 0 else count - 1 - x
    return tuple(digits)


def meet(one: Strided, two: Strided) -> bool | Open:
    """Solve one linear equation of the steps of both; `OPEN` if more remainders are possible than are tried.

    Returns whether two strided forms read a common number.

    Examples
    --------
    >>> meet((0, (((9, 3),),)), (1, (((9, 3),),)))
    False
    >>> meet((0, (((2, 9),), ((2, 3),), ((2, 1),))), (2, (((5, 5),),)))
    True
    """
    total, reach = two[0] - one[0], 0
    order: list[tuple[int, int]] = []
    for is_other, axes in enumerate((one[1], two[1])):
        for levels in axes:
            for n, step in levels:
                if n > 1 and step:
                    if is_other:
                        step = -step
                    if step < 0:  # as by `_positive`
                        step = -step
                        total += (n - 1) * step
                    reach += (n - 1) * step
                    order.append((step, n))
    if not 0 <= total <= reach:
        return False
    order.sort()
    found = _search(total, _merge(order))
    return found if found is OPEN else found is not None


def _search(total: int, merged: SortedDigits) -> tuple[int, ...] | Open | None:
    """The digits of some solution, or None; `OPEN` if more remainders are possible than are tried.

    The total is one that the digits reach: not below 0, and not past all their last values.
    """
    steps, counts, _ = merged
    if len(steps) < 3:
        return _solve_few(steps, counts, 0, len(steps), total)
    found = _PartSearch(merged, tuning.FIRST_SEARCHED).answer(total)
    if found is not OPEN:
        return found
    if _misses(total, steps, counts):
        return None
    return _PartSearch(merged, tuning.SEARCHED).answer(total)


def _misses(total: int, steps: Sequence[int], counts: Sequence[int]) -> bool:
    """Whether what steps leave over of one of them proves that no digits have a total.

    By 10, with ones from -5 to 4::

        steps       9      10      21        9x + 10y + 21z = (x + y + 2z)·10 + (z - x)
        tens        1       1       2        x + y + 2z = Q
        ones       -1       0       1                        z - x = R      with 10·Q + R = total

    Few R lie between what all ones make at least and at most. To each belongs one Q, and digits make both or neither.
    """
    for m in reversed(steps):
        digits: list[tuple[int, int, int]] = []
        for step, count in zip(steps, counts, strict=True):
            tens = (step + m // 2) // m
            digits.append((tens, step - tens * m, min(count - 1, total // step)))
        low, high = _ends([ones * n for _, ones, n in digits])
        each = range(low + (total - low) % m, high + 1, m)
        if len(each) <= tuning.FEW_REMAINDERS and all(_are_apart(digits, (total - r) // m, r) for r in each):
            return True
    return False


def _are_apart(digits: Sequence[tuple[int, int, int]], tens: int, ones: int) -> bool:
    """Whether no digits (tens, ones, last value) make both sums: by a mix of both in which one digit has no part."""
    for t, o, _ in digits:
        low, high = _ends([(t * one - o * ten) * n for ten, one, n in digits])
        if not low <= t * ones - o * tens <= high:
            return True
    return False


def _ends(parts: Iterable[int]) -> tuple[int, int]:
    """The sums of the numbers below and above 0."""
    low = high = 0
    for x in parts:
        if x < 0:
            low += x
        else:
            high += x
    return low, high


def _positive(total: int, terms: WeightedTerms) -> tuple[list[tuple[int, int]], list[int], int]:
    """The digits that matter as (step, count), the shortest steps first and all above 0, their numbers, their total."""
    (low,), digits = make_steps_positive((0,), terms)
    order = sorted([(step, count, k) for k, (count, step) in enumerate(digits) if count > 1 and step])
    return [(step, count) for step, count, _ in order], [k for _, _, k in order], total - low


def _merge(order: Iterable[tuple[int, int]]) -> SortedDigits:
    """Digits (step, count), the shortest steps first, as fewer ones.

    Neighbors become one where together they step through 0, step, …, (count - 1)·step without a gap.
    """
    steps: list[int] = []
    counts: list[int] = []
    reaches = [0]
    inner = n = reach = 0
    for step, count in order:
        reach += (count - 1) * step
        if step <= n * inner and not step % inner:
            n += (count - 1) * (step // inner)
            counts[-1] = n
            reaches[-1] = reach
        else:
            inner, n = step, count
            steps.append(step)
            counts.append(count)
            reaches.append(reach)
    return steps, counts, reaches


def _spread(digits: Iterable[int], order: Sequence[tuple[int, int]], steps: Sequence[int]) -> list[int]:
    """The digits, in their order, of which merged ones of these steps were made."""
    found: list[int] = []
    for x, inner, after in zip(digits, steps, [*steps[1:], inf], strict=False):
        parts = []
        for step, count in reversed([digit for digit in order if inner <= digit[0] < after]):
            parts.append(min(count - 1, x * inner // step))
            x -= parts[-1] * step // inner
        found += reversed(parts)
    return found


SortedDigits = tuple[list[int], list[int], list[int]]
"""Steps above 0, the shortest first; counts; how far none of the digits, the first, the first two, … reach."""
CutInTwo = tuple[int, int, int, int, int]
"""(at, g, short, modulus, inverse): the digits before `at` sum to multiples of g·short, the others of g·modulus."""


class _Remainders(ABC, Generic[T]):
    """Digits 0 <= x < count with positive steps, the shortest first, and where ranges of them are cut in two.

    What the long steps leave over is all that the short ones have to make up, and both sides bound it::

        steps        1  7 | 600  3000            long ones are multiples of 600, short ones reach 57
        total 4215   rest | 4215 - rest          rest = 4215 modulo 600, 0 <= rest <= 57: 15 is the only one

    Each remainder costs one step of the budget. Once that is overdrawn no more remainders are given, so that every
    search on the way ends at once. Each part is asked about once for each remainder: what it answers is kept.
    """

    __slots__ = ("_cuts", "_known", "_reaches", "counts", "left", "steps")

    def __init__(self, digits: SortedDigits, most: int) -> None:
        self.steps, self.counts, self._reaches = digits
        self.left = most
        self._cuts: dict[tuple[int, int], CutInTwo] = {}
        self._known: dict[tuple[int, int, int], T] = {}

    def answer(self, total: int) -> T | Open:
        """Return what all digits with this total are asked for; `OPEN` if the budget does not last."""
        found = self._between(0, len(self.steps), total)
        return OPEN if self.left < 0 else found

    @abstractmethod
    def _between(self, i: int, j: int, total: int) -> T:
        """Return the same of digits i … j - 1."""

    def split(self, i: int, j: int, total: int) -> tuple[int, range]:
        """Return where to cut digits i … j - 1, and what those before it may sum to.

        They are cut from the long end where few remainders are possible, else where fewest are.
        """
        cut = self._cuts.get((i, j))
        if cut is None:
            cut = self._cuts[i, j] = self._cut_at_few(i, j) or self._cut_at_fewest(i, j)
        at, g, short, modulus, inverse = cut
        if total % g:
            return at, range(0)
        reaches = self._reaches
        low, high = total - reaches[j] + reaches[at], reaches[at] - reaches[i]
        if low < 0:
            low = 0
        if high > total:
            high = total
        first = g * short * (total // g * inverse % modulus)
        by = g * short * modulus
        return at, range(low + (first - low) % by, high + 1, by)

    def _cut_at_few(self, i: int, j: int) -> CutInTwo | None:
        """Where the short digits reach not much farther than what divides the long ones."""
        low, long = self._reaches[i], 0
        for at in range(j - 1, i, -1):
            long = gcd(long, self.steps[at])
            if self._reaches[at] - low < tuning.FEW_REMAINDERS * long:
                return at, 1, 1, long, 1
        return None

    def _cut_at_fewest(self, i: int, j: int) -> CutInTwo:
        """Where fewest remainders are possible, with what divides the short digits, too."""
        steps, reaches = self.steps, self._reaches
        shorts, long, fewest = list(accumulate(steps[i : j - 1], gcd)), 0, -1
        for k in range(j - 1, i, -1):
            long = gcd(long, steps[k])
            reached = min(reaches[k] - reaches[i], reaches[j] - reaches[k])
            many = reached * gcd(shorts[k - i - 1], long) // (shorts[k - i - 1] * long)
            if many < fewest or fewest < 0:
                fewest, at = many, k
        short, long = shorts[at - i - 1], gcd(*steps[at:j])
        g = gcd(short, long)
        return at, g, short // g, long // g, pow(short // g, -1, long // g)


def _solve_two(a: int, b: int, counts: tuple[int, int], total: int) -> tuple[int, int, int]:
    """Return the x for which ``a*x + b*y == total``, both below their counts: first, step, and one past the last."""
    # solutions are b/g apart in x and a/g in y:
    #
    #     y ┤ ·                     x >= low: else y would be past its last value, counts[1] - 1
    #       ┤      ·                x <= total // a: else y would be negative
    #       ┤           ·           x is total/g · (a/g)⁻¹ modulo b/g, and `first` the least one from low on
    #       └─┴────┴────┴─── x
    g = gcd(a, b)
    if total % g:
        return 0, 1, 0
    low = -((b * (counts[1] - 1) - total) // a)
    if low < 0:
        low = 0
    end = total // a + 1
    if end > counts[0]:
        end = counts[0]
    if low >= end:
        return 0, 1, 0
    modulus = b // g
    return low + (total // g * pow(a // g, -1, modulus) - low) % modulus, modulus, end


def _solve_few(steps: Sequence[int], counts: Sequence[int], i: int, j: int, total: int) -> tuple[int, ...] | None:
    """Digits i … j - 1, two at most, with a total that they reach; None if there are none."""
    if j - i == 2:
        b, a = steps[i], steps[i + 1]
        x, _, end = _solve_two(a, b, (counts[i + 1], counts[i]), total)
        return ((total - a * x) // b, x) if x < end else None
    if i == j:
        return ()
    x, rest = divmod(total, steps[i])
    return None if rest else (x,)


class _PartSearch(_Remainders[tuple[int, ...] | None]):
    """The search for one solution among three digits or more; what has none is remembered.

    Both sides of a cut reach what they are asked for, as `split` gives no other remainders.
    """

    __slots__ = ()

    def _between(self, i: int, j: int, total: int) -> tuple[int, ...] | None:
        key = i, j, total
        if key in self._known:
            return None
        at, rests = self.split(i, j, total)
        steps, counts = self.steps, self.counts
        for rest in rests:
            self.left -= 1
            if self.left < 0:
                return None
            short = _solve_few(steps, counts, i, at, rest) if at - i < 3 else self._between(i, at, rest)
            if short is None:
                continue
            rest = total - rest
            long = _solve_few(steps, counts, at, j, rest) if j - at < 3 else self._between(at, j, rest)
            if long is not None:
                return short + long
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
    order, _, rest = _positive(total, terms)
    digits = _as_digits(order)
    budget = current().budget // tuning.BRANCHES_A_REMAINDER
    solutions = _PartCount(digits, min(tuning.SEARCHED, budget)).answer(rest)
    if solutions is OPEN:
        solutions = _count_in_halves(rest, order)
    if solutions is OPEN:
        solutions = _PartCount(digits, budget).answer(rest)
    if solutions is OPEN:
        raise TooHard(
            f"solutions of digits (count, step) {quote(tuple(terms))} with total {total}: more than {budget} "
            "remainders are possible; ask whether there is one, or about fewer digits"
        )
    return prod([n for n, step in terms if not step]) * solutions


def count_met(one: Strided, two: Strided) -> int | Open:
    """Count the solutions of one linear equation of the steps of both.

    Returns how many different numbers two strided forms both read; `OPEN` if many digits of one form make the same
    number, or if more remainders are possible than are tried.

    Examples
    --------
    >>> count_met((0, (((9, 3),),)), (1, (((9, 2),),)))  # 3, 9 and 15
    3
    >>> count_met((0, (((2, 9),), ((2, 3),), ((2, 1),))), (2, (((5, 5),),)))
    1
    """
    low, (steps, counts, reaches) = _read_apart(one)
    other, (others, more, ends) = _read_apart(two)
    # z is low + the sum of our digits, and top - the sum of the other's, which are counted from their far end
    total = other + ends[-1] - low
    if not 0 <= total <= reaches[-1] + ends[-1]:
        return 0
    if any(map(le, steps, reaches)) or any(map(le, others, ends)):
        return OPEN  # a step is no longer than what shorter ones reach: two choices of digits may make one number
    if len(steps) == 1 == len(others):
        first, by, end = _solve_two(steps[0], others[0], (counts[0], more[0]), total)
        return (end - 1 - first) // by + 1 if first < end else 0
    found = 0
    for up, ours in _cut_rows(steps, counts, others, ends):
        for down, theirs in _cut_rows(others, more, steps, reaches):
            solutions = _PartCount(_as_digits(sorted(ours + theirs)), tuning.FIRST_COUNTED).answer(total - up - down)
            if solutions is OPEN:
                return OPEN
            found += solutions
    return found


def write_met(one: Strided, two: Strided) -> str | None:
    """Return what `count_met` adds up and multiplies, as Python writes it; None where it leaves that open.

    Examples
    --------
    >>> write_met((0, (((9, 3),),)), (1, (((9, 2),),)))
    '(6 - 1 - 1) // 2 + 1'
    >>> write_met((0, (((4, 24),), ((12, 1),))), (24, (((5, 24),), ((9, 2),))))
    '(9 - 3)*(4 - 1)'
    """
    low, (steps, counts, reaches) = _read_apart(one)
    other, (others, more, ends) = _read_apart(two)
    total = other + ends[-1] - low
    if not 0 <= total <= reaches[-1] + ends[-1]:
        return "0"
    if any(map(le, steps, reaches)) or any(map(le, others, ends)):
        return None
    if len(steps) == 1 == len(others):
        first, by, end = _solve_two(steps[0], others[0], (counts[0], more[0]), total)
        return _write_steps(first, by, end)
    terms: list[str] = []
    for up, ours in _cut_rows(steps, counts, others, ends):
        for down, theirs in _cut_rows(others, more, steps, reaches):
            part = _PartCount(_as_digits(sorted(ours + theirs)), tuning.FIRST_COUNTED)
            if part.answer(total - up - down) is OPEN:
                return None
            terms.append(part.write(0, len(part.steps), total - up - down))
    return write_sum(terms)


def _write_steps(first: int, by: int, end: int) -> str:
    """How many numbers a range holds."""
    if first >= end:
        return "0"
    return f"({end} - 1 - {first}) // {by} + 1" if by > 1 else f"{end} - {first}"


RowPart = tuple[int, list[tuple[int, int]]]
"""A number, and digits (step, count) that are added to it."""


def _cut_rows(steps: Sequence[int], counts: Sequence[int], rows: Sequence[int], inside: Sequence[int]) -> list[RowPart]:
    """Digits, the shortest steps first, in parts that step by whole rows of another view.

    Rows in which nothing is left out are one run, which is cut where the other view's rows begin; the run's last, short
    row is a part of its own, after all whole ones. Where parts would be many, the rest is not cut::

        digits  (1, 23)      0 1 2 … 9  10 … 19  20 21 22        rows of 10
        parts   0: (1, 10), (10, 2)                      20: (1, 3)

    Parameters
    ----------
    steps, counts : sequence of int
    rows, inside : sequence of int
        The other view's steps, and how far it reaches inside each: no farther than a step, and nothing is cut.
    """
    parts = [(0, list(zip(steps, counts, strict=True)))]
    at = len(rows) - 1 if steps else 0
    while at > 0 and inside[at] >= steps[0] and len(parts) <= tuning.FEW_REMAINDERS:
        row = rows[at]
        for step, n in parts[0][1]:
            if step < row < step * n and step <= inside[at]:
                parts = [part for first, digits in parts for part in _cut_row(first, digits, row, inside[at])]
                break
        at -= 1
    return parts


def _cut_row(first: int, digits: list[tuple[int, int]], row: int, reached: int) -> list[RowPart]:
    """A part, cut by rows of one length if one of its digits goes through such."""
    for k, (step, n) in enumerate(digits):
        if step < row < step * n and step <= reached and not row % step:
            many, rest = divmod(n, row // step)
            parts = [(first, [*digits[:k], (step, row // step), *[(row, many)][: many - 1], *digits[k + 1 :]])]
            if rest:
                parts.append((first + many * row, [*digits[:k], *[(step, rest)][: rest - 1], *digits[k + 1 :]]))
            return parts
    return [(first, digits)]


def _read_apart(form: Strided) -> tuple[int, SortedDigits]:
    """The least number of a strided form, and the digits that make its others, as few as they may be."""
    low, axes = form
    order: list[tuple[int, int]] = []
    for levels in axes:
        for n, step in levels:
            if n > 1 and step:
                if step < 0:
                    step = -step
                    low -= (n - 1) * step
                order.append((step, n))
    order.sort()
    return low, _merge(order)


def _as_digits(order: Sequence[tuple[int, int]]) -> SortedDigits:
    """Digits (step, count), the shortest steps first, as they are."""
    steps: list[int] = []
    counts: list[int] = []
    reaches = [0]
    reach = 0
    for step, n in order:
        steps.append(step)
        counts.append(n)
        reach += (n - 1) * step
        reaches.append(reach)
    return steps, counts, reaches


def _count_in_halves(total: int, order: Sequence[tuple[int, int]]) -> int | Open:
    """List the sums of half of the digits, and look up what the other half's leave over; `OPEN` if they are many."""
    halves: tuple[list[tuple[int, int]], ...] = ([], [])
    sizes = [1, 1]
    for step, n in sorted(order, key=lambda digit: -digit[1]):
        k = sizes[0] > sizes[1]
        halves[k].append((step, n))
        sizes[k] *= n
    if max(sizes) > min(MAX_SCAN, tuning.SUMS_A_BRANCH * current().budget) or total >> 62:
        return OPEN
    note_help("listed")
    one, two = (_list_sums(half, total) for half in halves)
    rest = np.sort(total - two)
    return int((np.searchsorted(one, rest, "right") - np.searchsorted(one, rest, "left")).sum())


def _list_sums(digits: Iterable[tuple[int, int]], most: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """All sums of digits (step, count) up to one, ascending, each as often as it is made."""
    sums = np.zeros(1, np.int64)
    for step, n in digits:
        sums = np.add.outer(sums, np.arange(min(n, most // step + 1)) * step).ravel()
        sums = sums[sums <= most]
    return np.sort(sums)


class _PartCount(_Remainders[int]):
    """The number of solutions."""

    __slots__ = ()

    def _between(self, i: int, j: int, total: int) -> int:
        if total < 0 or total > self._reaches[j] - self._reaches[i]:
            return 0
        if i == j:
            return 1
        if j - i == 1:
            return int(not total % self.steps[i])
        if j - i == 2:
            return self._count_two(i, total)
        key = i, j, total
        found = self._known.get(key)
        if found is None:
            found = 0
            at, rests = self.split(i, j, total)
            if rests.stop - rests.start > self.left * rests.step:  # all of them would have to be gone through
                self.left = -1
                return 0
            is_longer = at - i > j - at  # then the others are asked first, as they may have none
            for rest in rests:
                self.left -= 1
                if self.left < 0:
                    return 0
                some = self._between(at, j, total - rest) if is_longer else self._between(i, at, rest)
                if some:
                    found += some * (self._between(i, at, rest) if is_longer else self._between(at, j, total - rest))
            self._known[key] = found
        return found

    def _count_two(self, i: int, total: int) -> int:
        """The same of two digits, as `_solve_two` has it, whose inverse is found once."""
        first, by, end = self._range_of_two(i, total)
        return (end - 1 - first) // by + 1 if first < end else 0

    def _range_of_two(self, i: int, total: int) -> tuple[int, int, int]:
        """Where the longer of two digits begins, its step, and one past where it ends."""
        b, a = self.steps[i], self.steps[i + 1]
        if a == b:
            x, rest = divmod(total, a)
            low, last = x - self.counts[i + 1] + 1, self.counts[i] - 1
            return (0, 1, 0) if rest else (low if low > 0 else 0, 1, (last if last < x else x) + 1)
        cut = self._cuts.get((i, i + 2))
        if cut is None:
            g = gcd(a, b)
            cut = self._cuts[i, i + 2] = i + 1, g, a // g, b // g, pow(a // g, -1, b // g)
        _, g, _, modulus, inverse = cut
        if total % g:
            return 0, 1, 0
        low = -((b * (self.counts[i] - 1) - total) // a)
        if low < 0:
            low = 0
        end = total // a + 1
        if end > self.counts[i + 1]:
            end = self.counts[i + 1]
        return low + (total // g * inverse - low) % modulus, modulus, end

    def write(self, i: int, j: int, total: int) -> str:
        """Return what an answer adds up and multiplies, as Python writes it: with the same cuts and remainders."""
        if total < 0 or total > self._reaches[j] - self._reaches[i] or (j - i == 1 and total % self.steps[i]):
            return "0"
        if j - i < 2:
            return "1"
        if j - i == 2:
            return _write_steps(*self._range_of_two(i, total))
        at, rests = self.split(i, j, total)
        both = [(self.write(i, at, rest), self.write(at, j, total - rest)) for rest in rests]
        return write_sum([write_product(pair) for pair in both])


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
