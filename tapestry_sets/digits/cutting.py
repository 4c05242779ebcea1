"""Digits cut apart: quotients, remainders and bounds of one form, so that each part stays linear.

A row-major number, the coordinates of a cell and the cell that is read of it all move together as the digits of an
index do. Quotients, remainders and bounds of one form cut the digits. What does not end in `limit` parts is given up
before it is listed: the answer is `OPEN`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any

from msgspec import Struct

from tapestry_sets.digits.digits import Digit, Digits, Ints, advance, make_steps_positive, scale_digit, turn_digit
from tapestry_sets.limits import OPEN, Open

CutDigits = list[Digits] | Open
"""Disjoint parts, or `OPEN` where they would be too many."""


def cut_each(parts: CutDigits, cut: Callable[..., CutDigits], *how: Any) -> CutDigits:
    """Cut all parts by a function, with its arguments after the first; `OPEN` where it gives one up."""
    if parts is OPEN:
        return OPEN
    found: list[Digits] = []
    for part in parts:
        cuts = cut(part, *how)
        if cuts is OPEN:
            return OPEN
        found += cuts
    return found


# ------------------------------------------------------------------------------------------ quotient and remainder


def split_form(box: Digits, form: int, q: int, limit: int, keep: int | None = None) -> CutDigits:
    """Return disjoint parts in which a form is its quotient by q, and the remainder is one more form, the last.

    Parameters
    ----------
    box : Digits
    form : int
    q : int
    limit : int
        How many parts there may be.
    keep : int, optional
        Only what leaves a remainder below this is kept; by default everything.

    Examples
    --------
    >>> for part in split_form(Digits((2,), ((7, 1),)), 0, 4, 10):  # 2 … 8 in rows of 4
    ...     print(part)
    Digits(origin=(0, 2), digits=((2, 0, 1),))
    Digits(origin=(1, 0), digits=((4, 0, 1),))
    Digits(origin=(2, 0), digits=())
    """
    at = form + 1
    origin = box.origin
    done: list[Digit] = []
    active: list[Digit] = []
    for digit in box.digits:
        quotient, rest = divmod(digit[at], q)
        if 2 * rest > q:  # backwards the remainders step less
            origin, digit = turn_digit(origin, digit)
            quotient, rest = -quotient - 1, q - rest
        (active if rest else done).append((*digit[:at], quotient, *digit[at + 1 :], rest))
    # so far the remainder is what the digits add to the form beyond whole rows, and the form itself is whole
    row, rest = divmod(origin[form], q)
    active.sort(key=lambda digit: (-digit[-1], -digit[0]))
    rows = _Rows(form, q, q if keep is None else keep, limit, [])
    return rows.out if _carry((*origin[:form], row, *origin[at:], rest), tuple(active), tuple(done), rows) else OPEN


class _Rows(Struct, frozen=True):
    """What `_carry` keeps in mind: rows of q of which the first `keep` are wanted, and the parts found."""

    form: int
    q: int
    keep: int
    limit: int
    out: list[Digits]

    def add(self, origin: Ints, *digits: Digit) -> bool:
        """Note a part; say whether it still fits."""
        if len(self.out) >= self.limit:
            return False
        row = Digits(self.carry(origin), tuple([d for d in digits if d[0] > 1]))
        cuts = [row] if self.keep == self.q else clip_form(row, len(row.origin) - 1, 0, self.keep, self.limit)
        if cuts is OPEN:
            return False
        self.out.extend(cuts)
        return True

    def carry(self, origin: Ints) -> Ints:
        """Count whole rows of the remainder in the form."""
        row, rest = divmod(origin[-1], self.q)
        form = self.form
        return (*origin[:form], origin[form] + row, *origin[form + 1 : -1], rest) if row else origin

    def count_rows(self, digit: Digit) -> Digit:
        """Return a digit that steps the remainder by whole rows, which the form counts in its place."""
        at = self.form + 1
        return (*digit[:at], digit[at] + digit[-1] // self.q, *digit[at + 1 : -1], 0)


def _carry(origin: Ints, active: tuple[Digit, ...], done: tuple[Digit, ...], rows: _Rows) -> bool:
    """Cut digits that step the remainder so that no sum of them leaves its row; say whether the parts are few.

    A remainder that counts up runs over the end of its row again and again, here by steps of 3 in rows of 8::

        row 0   0..1..2.        |rest           three ways to go on, tried in this order:
        row 1   .3..4..5           aligned      the steps divide the row: only the first row may be partial
        row 2   ..6..7..           cyclic       after q/gcd(step, q) steps the remainder comes back: an outer digit
        row 3   8..9..10.          row by row   what fits a row is one part, what crosses its end is cut itself
    """
    origin = rows.carry(origin)
    q, rest = rows.q, origin[-1]
    reach = sum([(digit[0] - 1) * digit[-1] for digit in active])
    if rest + reach < q:
        return rows.add(origin, *done, *active)
    outer, inner = active[0], active[1:]
    count, x = outer[0], outer[-1]
    span = reach - (count - 1) * x  # of the inner digits
    if q % x == 0 and rest % x + span < x and rest >= x:
        head = min(count, q // x - rest // x)
        if not rows.add(origin, *done, (head, *outer[1:]), *inner):
            return False
        return head == count or _carry(advance(origin, outer, head), ((count - head, *outer[1:]), *inner), done, rows)
    cycle = q // gcd(x, q)  # steps after which the remainder comes back
    if cycle < count:
        return _carry_cycles(origin, active, done, rows, cycle, span)
    touched = min(count, (rest + (count - 1) * x) // q + 1)
    if len(rows.out) + touched > rows.limit:
        return False
    while count:
        rest = origin[-1]
        n = min(count, (q - 1 - rest - span) // x + 1) if rest + span < q else 0
        if not (rows.add(origin, *done, (n, *outer[1:]), *inner) if n else _carry(origin, inner, done, rows)):
            return False
        count -= n or 1
        origin = rows.carry(advance(origin, outer, n or 1))
    return True


def _carry_cycles(
    origin: Ints, active: tuple[Digit, ...], done: tuple[Digit, ...], rows: _Rows, cycle: int, span: int
) -> bool:
    """Cut the outermost digit where the remainder comes back: whole cycles count rows, and the rest is cut alone."""
    outer, inner = active[0], active[1:]
    q, rest, x = rows.q, origin[-1], outer[-1]
    cycles, tail = divmod(outer[0], cycle)
    each = cycle
    if q % x == 0 and rest + span < x:
        each = min(cycle, -((rest - rows.keep) // x))
        if each <= 0:
            return True
        if tail >= each:  # the last row lacks nothing that is kept
            cycles, tail = cycles + 1, 0
    around = ((cycles, *rows.count_rows(scale_digit(outer, cycle))[1:]),) if cycles > 1 else ()
    kept = ((each, *outer[1:]), *inner) if each > 1 else inner
    if not _carry(origin, kept, (*done, *around), rows):
        return False
    rest_of = advance(origin, outer, cycles * cycle)
    return not tail or _carry(rest_of, ((tail, *outer[1:]), *inner), done, rows)


# -------------------------------------------------------------------------------------------------------- bounds


def clip_form(box: Digits, form: int, low: int, high: int, limit: int) -> CutDigits:
    """Return disjoint parts that hold just the digits for which low <= form < high, at most `limit`.

    Examples
    --------
    >>> clip_form(Digits((0,), ((5, 3),)), 0, 4, 100, 10)
    [Digits(origin=(6,), digits=((3, 3),))]
    """
    first, last = box.bounds(form)
    if low <= first and last < high:
        return [box]
    if last < low or high <= first:
        return []
    origin, digits = make_steps_positive(box.origin, box.digits, form)
    still = tuple([digit for digit in digits if not digit[1 + form]])
    active = [digit for digit in digits if digit[1 + form]]
    active.sort(key=lambda digit: (-digit[1 + form], -digit[0]))
    out: list[Digits] = []
    return out if clip_ascending(origin, tuple(active), still, (form, low, high, limit), out) else OPEN


def clip_ascending(
    origin: Ints,
    active: tuple[Digit, ...],
    still: tuple[Digit, ...],
    what: tuple[int, int, int, int],
    out: list[Digits],
) -> bool:
    """Cut the outermost digit into copies that are wholly inside, and copies to be cut themselves.

    The active digits step the form upwards, the longest step first; what is found goes to `out`. The answer is whether
    that stays within the limit.
    """
    form, low, high, limit = what
    first = origin[form]
    last = first + sum([(digit[0] - 1) * digit[1 + form] for digit in active])
    if last < low or high <= first:
        return True
    if low <= first and last < high:
        out.append(Digits(origin, (*still, *active)))
        return len(out) <= limit
    # Copies of the inner digits begin x apart, and each reaches `span` far; low and high cut some of them:
    #
    #                  low                         high
    #     ├────┤   ├────│─┤   ├────┤   ├────┤   ├────│─┤   ├────┤
    #              touched    whole             whole_end  touched_end
    #
    # Those from `whole` to `whole_end` stay one digit, those to the left and right of them are cut one by one.
    outer, inner = active[0], active[1:]
    count, x = outer[0], outer[1 + form]
    span = last - first - (count - 1) * x

    def copies_from(z: int) -> int:
        """The first copy that starts at or after z."""
        return min(count, max(0, -((first - z) // x)))

    touched, whole = copies_from(low - span), copies_from(low)
    whole_end, touched_end = copies_from(high - span), copies_from(high)
    if whole < whole_end:
        n = whole_end - whole
        kept = ((n, *outer[1:]), *inner) if n > 1 else inner
        out.append(Digits(advance(origin, outer, whole), (*still, *kept)))
    else:
        whole = whole_end = touched_end
    if len(out) + whole - touched + touched_end - whole_end > limit:
        return False
    copies = (*range(touched, whole), *range(whole_end, touched_end))
    return all(clip_ascending(advance(origin, outer, j), inner, still, what, out) for j in copies)


def keep_in_nest(box: Digits, form: int, nest: Sequence[tuple[int, int, int]], limit: int) -> CutDigits:
    """Return disjoint parts that hold just the digits for which a form is in a nest of stripes, at most `limit`.

    Parameters
    ----------
    box : Digits
    form : int
    nest : sequence of (on, period, phase)
        Outermost first, as in `tapestry_sets.integers.nest`.
    limit : int

    Examples
    --------
    >>> keep_in_nest(Digits((0,), ((14, 1),)), 0, ((2, 7, 1),), 10)  # 1, 2, 8, 9
    [Digits(origin=(1,), digits=((2, 7), (2, 1)))]
    """
    here = len(box.origin)
    parts = [Digits((*box.origin, box.origin[form]), tuple([(*d, d[1 + form]) for d in box.digits]))]
    for on, period, phase in nest:
        moved = [part.shift_form(here, -phase) for part in parts]
        cuts = cut_each(moved, split_form, here, period, limit, on)
        if cuts is OPEN or len(cuts) > limit:
            return OPEN
        parts = [cut.drop_form(here) for cut in cuts]
    return [part.drop_form(here) for part in parts]


# ---------------------------------------------------------------------------------------------------- coordinates


def unflatten(box: Digits, form: int, shape: Sequence[int], limit: int) -> CutDigits:
    """Return disjoint parts in which the coordinates in `shape` stand in place of a row-major number, at most `limit`.

    The outermost extent is free, as it is for `Relinearize`.
    """
    rank = len(box.origin)
    others = [f for f in range(rank) if f != form]
    if not shape:
        return [box.pick_forms(others)]
    last = rank - 1
    parts = [box.pick_forms([*others[:form], *others[form:], form])]  # the number last, then what splits off it
    for n in shape[:0:-1]:
        if n == 1:
            parts = [insert_zero(part, last) for part in parts]
            continue
        cuts = cut_each(parts, split_form, last, n, limit)
        if cuts is OPEN or len(cuts) > limit:
            return OPEN
        parts = [cut.pick_forms([*range(rank), len(cut.origin) - 1, *range(rank, len(cut.origin) - 1)]) for cut in cuts]
    order = [*range(form), *range(last, last + len(shape)), *range(form, last)]
    return [part.pick_forms(order) for part in parts]


def insert_zero(box: Digits, after: int) -> Digits:
    """Return the digits with a form more that is always 0, after the given one."""
    at = after + 1
    return Digits(
        (*box.origin[:at], 0, *box.origin[at:]),
        tuple([(*digit[: at + 1], 0, *digit[at + 1 :]) for digit in box.digits]),
    )
