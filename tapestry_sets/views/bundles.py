"""Bundles: linear forms of common digits, and how they are cut so that each part stays linear.

A row-major number, the coordinates of a cell and the cell that is read of it all move together as the digits of an
index do. Quotients, remainders and bounds of one form cut the digits; what does not end in few parts is refused by
`Shatters`, before it is listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

from tapestry_sets.integers import Nest
from tapestry_sets.regions import Region

Ints = tuple[int, ...]


class Shatters(Exception):
    """What is asked for needs more products than allowed."""


class Tries:
    """How often something may still be tried before `Shatters` is raised.

    Examples
    --------
    >>> tries = Tries(2)
    >>> tries.take(2)
    >>> tries.take()
    Traceback (most recent call last):
        ...
    tapestry_sets.views.bundles.Shatters
    """

    __slots__ = ("left",)

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, many: int = 1) -> None:
        """Note that it is tried once or more often."""
        self.left -= many
        if self.left < 0:
            raise Shatters


class Bundle(NamedTuple):
    """Linear forms of common digits: form f is ``origin[f] + sum(digit * steps[f])`` over ``0 <= digit < count``.

    Attributes
    ----------
    origin : tuple of int
        One value for each form.
    digits : tuple of (count, steps)
        Counts above 1; one step for each form.
    """

    origin: Ints
    digits: tuple[tuple[int, Ints], ...]

    def bounds(self, form: int) -> tuple[int, int]:
        """Return the smallest and the largest value of a form."""
        low = high = self.origin[form]
        for count, steps in self.digits:
            by = (count - 1) * steps[form]
            if by < 0:
                low += by
            else:
                high += by
        return low, high

    def without(self, form: int) -> Bundle:
        """Return the other forms."""
        return self.mapped([f for f in range(len(self.origin)) if f != form])

    def mapped(self, forms: Sequence[int]) -> Bundle:
        """Return the given forms, in the given order."""
        return Bundle(
            tuple([self.origin[f] for f in forms]),
            tuple([(count, tuple([steps[f] for f in forms])) for count, steps in self.digits]),
        )

    def plus(self, form: int, more: int) -> Bundle:
        """Return the bundle with a constant added to one form."""
        return Bundle((*self.origin[:form], self.origin[form] + more, *self.origin[form + 1 :]), self.digits)


def _moved(origin: Ints, by: int, steps: Ints) -> Ints:
    return tuple([a + by * b for a, b in zip(origin, steps, strict=True)])


def _scaled(steps: Ints, by: int) -> Ints:
    return tuple([by * b for b in steps])


# ------------------------------------------------------------------------------------------- cutting bundles apart


def split(bundle: Bundle, form: int, q: int, limit: int, keep: int | None = None) -> list[Bundle]:
    """Return disjoint bundles in which a form is its quotient by q, and the remainder is one more form, the last.

    Parameters
    ----------
    bundle : Bundle
    form : int
    q : int
    limit : int
        How many bundles there may be.
    keep : int, optional
        Only what leaves a remainder below this is kept; by default everything.

    Raises
    ------
    Shatters
        If more than `limit` bundles are needed.

    Examples
    --------
    >>> for part in split(Bundle((2,), ((7, (1,)),)), 0, 4, 10):  # 2 … 8 in rows of 4
    ...     print(part)
    Bundle(origin=(0, 2), digits=((2, (0, 1)),))
    Bundle(origin=(1, 0), digits=((4, (0, 1)),))
    Bundle(origin=(2, 0), digits=())
    """
    origin = (*bundle.origin, 0)
    done: list[tuple[int, Ints]] = []
    active: list[tuple[int, Ints]] = []
    for count, steps in bundle.digits:
        quotient, rest = divmod(steps[form], q)
        if 2 * rest > q:  # backwards the remainders step less
            origin = _moved(origin, count - 1, (*steps, 0))
            quotient, rest, steps = -quotient - 1, q - rest, _scaled(steps, -1)
        steps = (*steps[:form], quotient, *steps[form + 1 :], rest)
        (active if rest else done).append((count, steps))
    # so far the remainder is what the digits add to the form beyond whole rows, and the form itself is whole
    row, rest = divmod(origin[form], q)
    origin = (*origin[:form], row, *origin[form + 1 : -1], rest)
    active.sort(key=lambda digit: (-digit[1][-1], -digit[0]))
    rows = _Rows(form, q, q if keep is None else keep, limit, [])
    _carry(origin, tuple(active), tuple(done), rows)
    return rows.out


class _Rows(NamedTuple):
    """What `_carry` keeps in mind: rows of q of which the first `keep` are wanted, and the bundles found."""

    form: int
    q: int
    keep: int
    limit: int
    out: list[Bundle]

    def add(self, origin: Ints, *digits: tuple[int, Ints]) -> None:
        if len(self.out) == self.limit:
            raise Shatters
        row = Bundle(self.carried(origin), tuple([d for d in digits if d[0] > 1]))
        self.out.extend([row] if self.keep == self.q else clip(row, len(row.origin) - 1, 0, self.keep, self.limit))

    def carried(self, origin: Ints) -> Ints:
        row, rest = divmod(origin[-1], self.q)
        form = self.form
        return (*origin[:form], origin[form] + row, *origin[form + 1 : -1], rest) if row else origin


def _carry(origin: Ints, active: tuple[tuple[int, Ints], ...], done: tuple[tuple[int, Ints], ...], rows: _Rows) -> None:
    """Cut digits that step the remainder so that no sum of them leaves its row."""
    origin = rows.carried(origin)
    q, rest = rows.q, origin[-1]
    reach = sum([(count - 1) * steps[-1] for count, steps in active])
    if rest + reach < q:
        rows.add(origin, *done, *active)
        return
    (count, steps), inner = active[0], active[1:]
    x = steps[-1]
    span = reach - (count - 1) * x  # of the inner digits
    cycle = q // gcd(x, q)  # steps after which the remainder comes back
    if q % x == 0 and rest % x + span < x and rest >= x:  # aligned: the first row may be partial
        head = min(count, cycle - rest // x)
        rows.add(origin, *done, (head, steps), *inner)
        if head < count:
            _carry(_moved(origin, head, steps), ((count - head, steps), *inner), done, rows)
        return
    cycles, tail = divmod(count, cycle)
    if cycles and (cycles > 1 or tail):
        outer, each = _whole_rows(_scaled(steps, cycle), rows), cycle
        if q % x == 0 and rest + span < x:
            each = min(cycle, -((rest - rows.keep) // x))
            if each <= 0:
                return
            if tail >= each:  # the last row lacks nothing that is kept
                cycles, tail = cycles + 1, 0
        kept = ((each, steps), *inner) if each > 1 else inner
        _carry(origin, kept, (*done, (cycles, outer)) if cycles > 1 else done, rows)
        if tail:
            rest_of = _moved(origin, cycles * cycle, steps)
            _carry(rest_of, ((tail, steps), *inner), done, rows)
        return
    touched = min(count, (rest + (count - 1) * x) // q + 1)
    if len(rows.out) + touched > rows.limit:
        raise Shatters
    while count:
        rest = origin[-1]
        n = min(count, (q - 1 - rest - span) // x + 1) if rest + span < q else 0
        if n:
            rows.add(origin, *done, (n, steps), *inner)
        else:
            _carry(origin, inner, done, rows)
        count -= n or 1
        origin = rows.carried(_moved(origin, n or 1, steps))


def _whole_rows(steps: Ints, rows: _Rows) -> Ints:
    """Steps whose remainder is whole rows, which the form counts."""
    form = rows.form
    return (*steps[:form], steps[form] + steps[-1] // rows.q, *steps[form + 1 : -1], 0)


def clip(bundle: Bundle, form: int, low: int, high: int, limit: int) -> list[Bundle]:
    """Return disjoint bundles that hold just the digits for which low <= form < high.

    Raises
    ------
    Shatters
        If more than `limit` bundles are needed.

    Examples
    --------
    >>> clip(Bundle((0,), ((5, (3,)),)), 0, 4, 100, 10)
    [Bundle(origin=(6,), digits=((3, (3,)),))]
    """
    first, last = bundle.bounds(form)
    if low <= first and last < high:
        return [bundle]
    if last < low or high <= first:
        return []
    origin = bundle.origin
    still: list[tuple[int, Ints]] = []
    active: list[tuple[int, Ints]] = []
    for count, steps in bundle.digits:
        if steps[form] < 0:
            origin, steps = _moved(origin, count - 1, steps), _scaled(steps, -1)
        (active if steps[form] else still).append((count, steps))
    active.sort(key=lambda digit: (-digit[1][form], -digit[0]))
    out: list[Bundle] = []
    _clip(origin, tuple(active), tuple(still), (form, low, high, limit), out)
    return out


def _clip(
    origin: Ints,
    active: tuple[tuple[int, Ints], ...],
    still: tuple[tuple[int, Ints], ...],
    what: tuple[int, int, int, int],
    out: list[Bundle],
) -> None:
    """Cut the outermost digit into copies that are wholly inside, and copies to be cut themselves."""
    form, low, high, limit = what
    first = origin[form]
    last = first + sum([(count - 1) * steps[form] for count, steps in active])
    if last < low or high <= first:
        return
    if low <= first and last < high:
        if len(out) == limit:
            raise Shatters
        out.append(Bundle(origin, (*still, *active)))
        return
    (count, steps), inner = active[0], active[1:]
    x = steps[form]
    span = last - first - (count - 1) * x

    def copies_from(z: int) -> int:
        """The first copy that starts at or after z."""
        return min(count, max(0, -((first - z) // x)))

    touched, whole = copies_from(low - span), copies_from(low)
    whole_end, touched_end = copies_from(high - span), copies_from(high)
    if whole < whole_end:
        if len(out) == limit:
            raise Shatters
        n = whole_end - whole
        kept = ((n, steps), *inner) if n > 1 else inner
        out.append(Bundle(_moved(origin, whole, steps), (*still, *kept)))
    else:
        whole = whole_end = touched_end
    if len(out) + whole - touched + touched_end - whole_end > limit:
        raise Shatters
    for j in (*range(touched, whole), *range(whole_end, touched_end)):
        _clip(_moved(origin, j, steps), inner, still, what, out)


def within(bundle: Bundle, form: int, nest: Nest, limit: int) -> list[Bundle]:
    """Return disjoint bundles that hold just the digits for which a form is in a nest.

    Raises
    ------
    Shatters
        If more than `limit` bundles are needed.

    Examples
    --------
    >>> within(Bundle((0,), ((14, (1,)),)), 0, ((2, 7, 1),), 10)  # 1, 2, 8, 9
    [Bundle(origin=(1,), digits=((2, (7,)), (2, (1,))))]
    """
    here = len(bundle.origin)
    parts = [Bundle((*bundle.origin, bundle.origin[form]), tuple([(n, (*s, s[form])) for n, s in bundle.digits]))]
    for on, period, phase in nest:
        found = []
        for part in parts:
            rows = split(part.plus(here, -phase), here, period, limit, on)
            found += [row.without(here) for row in rows]
            if len(found) > limit:
                raise Shatters
        parts = found
    return [part.without(here) for part in parts]


def in_region(bundle: Bundle, first: int, region: Region, limit: int) -> list[Bundle]:
    """Return disjoint bundles that hold just the digits for which forms `first` and following are in a region."""
    parts = [bundle]
    for axis, (nest, low, n) in enumerate(zip(region.nests, region.start, region.shape, strict=True), first):
        span = region.spans[axis - first]
        if span is not None:
            parts = [cut for part in parts for cut in clip(part, axis, *span, limit)]
        else:
            parts = [cut for part in parts for cut in clip(part, axis, low, low + n, limit)]
            parts = [cut for part in parts for cut in within(part, axis, nest, limit)]
        if len(parts) > limit:
            raise Shatters
    return parts


def unflattened(bundle: Bundle, form: int, shape: Sequence[int], limit: int) -> list[Bundle]:
    """Return disjoint bundles in which the coordinates in `shape` stand in place of a row-major number.

    The outermost extent is free, as it is for `Relinearize`.
    """
    rank = len(bundle.origin)
    others = [f for f in range(rank) if f != form]
    if not shape:
        return [bundle.mapped(others)]
    parts = [bundle.mapped([*others[:form], *others[form:], form])]  # the number last, then what splits off it
    for n in shape[:0:-1]:
        if n == 1:
            parts = [with_zero(part, rank - 1) for part in parts]
            continue
        found = []
        for part in parts:
            for cut in split(part, rank - 1, n, limit):
                last = len(cut.origin) - 1
                found.append(cut.mapped([*range(rank), last, *range(rank, last)]))
        if len(found) > limit:
            raise Shatters
        parts = found
    order = [*range(form), *range(rank - 1, rank - 1 + len(shape)), *range(form, rank - 1)]
    return [part.mapped(order) for part in parts]


def with_zero(bundle: Bundle, after: int) -> Bundle:
    """The bundle with a form more that is always 0, after the given one."""
    at = after + 1
    return Bundle(
        (*bundle.origin[:at], 0, *bundle.origin[at:]),
        tuple([(count, (*steps[:at], 0, *steps[at:])) for count, steps in bundle.digits]),
    )
