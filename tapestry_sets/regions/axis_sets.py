"""Sets of indices of one axis, where they are few even steps or a sorted column of integers, and what two share.

    steps     3 7 11 15 | 40 41 42     disjoint progressions: all that slices, pads, rolls and windows make
    column    3 7 8 40 1000            the entries of a table that follow no rule, ascending: asked by binary search

So a list of ten thousand pages is one array, never ten thousand sets, and no pair of its entries is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TypeGuard, cast

import numpy as np

from tapestry_sets.digits import Bools, Int64Array
from tapestry_sets.integers import Nest, explicit
from tapestry_sets.limits import OPEN, Open
from tapestry_sets.regions import tuning
from tapestry_sets.regions.axis import EvenSteps, common_progression, nest_of_steps

AxisSet = tuple[EvenSteps, ...] | Int64Array
"""Disjoint progressions (first, last, step), whose step is 1 where first = last; or a column. ``()`` is empty."""


def is_column(s: AxisSet) -> TypeGuard[Int64Array]:
    """Return whether a set is a column of integers."""
    return isinstance(s, np.ndarray)


def is_nothing(s: AxisSet) -> bool:
    """Return whether a set is empty."""
    return len(s) == 0


def size_of(s: AxisSet) -> int:
    """Return how many integers a set holds."""
    return len(s) if is_column(s) else sum([(last - first) // step + 1 for first, last, step in s])


def least(s: AxisSet) -> int:
    """Return the least integer of a set that is not empty."""
    return int(s[0]) if is_column(s) else min([first for first, _, _ in s])


def greatest(s: AxisSet) -> int:
    """Return the greatest integer of a set that is not empty."""
    return int(s[-1]) if is_column(s) else max([last for _, last, _ in s])


def nth(s: AxisSet, k: int) -> int:
    """Return element k of a set, progression by progression; negative ones count from the end.

    Examples
    --------
    >>> nth(((0, 9, 3), (5, 7, 1)), 2), nth(((0, 9, 3), (5, 7, 1)), -2)
    (6, 6)
    """
    k = k if k >= 0 else k + size_of(s)
    if is_column(s):
        return int(s[k])
    for first, last, step in s:
        count = (last - first) // step + 1
        if k < count:
            return first + k * step
        k -= count
    raise IndexError(f"element {k} past the last of a set")


def to_array(s: AxisSet) -> Int64Array:
    """Return the integers of a set, ascending."""
    if is_column(s):
        return s
    each = [np.arange(first, last + 1, step, dtype=np.int64) for first, last, step in s]
    return each[0] if len(each) == 1 else np.sort(np.concatenate([np.empty(0, np.int64), *each]))


def nests_of(s: AxisSet, extent: int) -> list[Nest]:
    """Return a set in [0, extent) as disjoint nests: one for each progression, or few for the runs of a column."""
    if not is_column(s):
        return [nest_of_steps(p, extent) for p in s]
    runs = [(int(a), int(b - a), ()) for a, b in zip(*runs_of(s), strict=True)] if len(s) else []
    return explicit.from_items(explicit.merge(runs), 0, extent)


def runs_of(s: AxisSet) -> tuple[Int64Array, Int64Array]:
    """Return where runs of neighbors begin, and where each ends: one behind its last."""
    z = to_array(s)
    breaks = np.flatnonzero(np.diff(z) > 1)
    return z[np.concatenate([[0], breaks + 1])], z[np.concatenate([breaks, [len(z) - 1]])] + 1


def each_of(s: AxisSet) -> list[int]:
    """Return the integers of a set that is short, of any size each, in no order."""
    return s.tolist() if is_column(s) else [z for first, last, step in s for z in range(first, last + 1, step)]


def hold_each(s: AxisSet, z: Int64Array) -> Bools:
    """Return which of some integers a set holds."""
    if is_column(s):
        at = np.minimum(np.searchsorted(s, z), len(s) - 1)
        return cast(Bools, s[at] == z) if len(s) else np.zeros(len(z), bool)
    if len(s) > tuning.MAX_PROGRESSIONS:  # only runs are so many
        most, (firsts, ends, _) = np.iinfo(np.int64).max, zip(*sorted(s), strict=True)
        starts, lasts = (np.array([min(x, most) for x in each]) for each in (firsts, ends))
        at = np.maximum(np.searchsorted(starts, z, side="right") - 1, 0)
        return cast(Bools, (z >= starts[at]) & (z <= lasts[at]))
    return reduce(np.logical_or, [_hold_steps(p, z) for p in s], np.zeros(len(z), bool))


def _hold_steps(p: EvenSteps, z: Int64Array) -> Bools:
    first, last, step = p
    inside = (z >= first) & (z <= last)
    if step == 1:
        return inside
    if step >> 62:  # int64 holds few of the elements
        return np.isin(z, [x for x in (first, first + step, first + 2 * step) if x >> 63 == 0 and x <= last])
    return cast(Bools, inside & (z % step == first % step))


def hold(s: AxisSet, z: int) -> bool:
    """Return whether a set holds an integer."""
    if is_column(s):
        return bool(hold_each(s, np.array([z]))[0])
    return any(first <= z <= last and (z - first) % step == 0 for first, last, step in s)


def one(z: int) -> AxisSet:
    """Return the set of one integer."""
    return ((z, z, 1),)


def steps_from(first: int, last: int, step: int) -> EvenSteps:
    """Return the integers first, first + step, … that are not beyond `last`, which must be some."""
    last -= (last - first) % step
    return first, last, step if first < last else 1


def column_of(values: Int64Array) -> AxisSet:
    """Return the different ones of some integers: as one progression where they are one, else as a column.

    Examples
    --------
    >>> column_of(np.array([8, 2, 5, 2])), column_of(np.array([8, 2, 4])).tolist()
    (((2, 8, 3),), [2, 4, 8])
    """
    column = np.sort(values)
    column = column[np.concatenate([[True], column[1:] != column[:-1]])] if len(column) else column
    if len(column) < 3 or (column[1:] - column[:-1] == column[1] - column[0]).all():
        ends = [int(z) for z in (column[0], column[-1])] if len(column) else []
        step = int(column[1] - column[0]) if len(column) > 1 else 1
        return ((ends[0], ends[1], step),) if ends else ()
    return column


# ------------------------------------------------------------------ one set moved, cut, or several put together


def clip(s: AxisSet, lo: int, hi: int) -> AxisSet:
    """Return {z - lo : z in s, lo <= z < hi}."""
    if is_column(s):
        return s[np.searchsorted(s, lo) : np.searchsorted(s, hi)] - lo
    out: list[EvenSteps] = []
    for first, last, step in s:
        if first < lo:
            first = lo + (first - lo) % step
        if last >= hi:
            last = hi - 1
        if first <= last:
            out.append(steps_from(first - lo, last - lo, step))
    return tuple(out)


def change(s: AxisSet, start: int, step: int) -> AxisSet:
    """Return {start + step * z : z in s}, for a step that is not 0.

    Examples
    --------
    >>> change(((0, 4, 2),), 9, -2)
    ((1, 9, 4),)
    """
    if is_column(s):
        return (start + step * s)[:: 1 if step > 0 else -1]
    if step > 0:
        if start == 0 and step == 1:
            return s
        return tuple([(start + step * a, start + step * b, by * step if a < b else 1) for a, b, by in s])
    return tuple([(start + step * b, start + step * a, -by * step if a < b else 1) for a, b, by in s])


def divide(s: AxisSet, start: int, step: int) -> AxisSet:
    """Return {(z - start) / step : z in s} of a set all of whose integers are a multiple of the step from the start."""
    if is_column(s):
        return (s - start) // step
    return tuple([((a - start) // step, (b - start) // step, by // step if a < b else 1) for a, b, by in s])


def change_back(t: AxisSet, s: AxisSet, start: int, step: int) -> AxisSet:
    """Return {z in s : start + step * z in t}.

    Examples
    --------
    >>> change_back(((10, 20, 1),), ((0, 99, 1),), 5, 4), change_back(((10, 20, 1),), ((0, 9, 1),), 20, -5)
    (((2, 3, 1),), ((0, 2, 1),))
    """
    if not step:
        return s if hold(t, start) else ()
    met = meet(change(s, start, step), t)
    return divide(met, start, step) if step > 0 else divide(change(met, start, -1), 0, -step)


def halve(s: AxisSet) -> tuple[AxisSet, AxisSet]:
    """Return a set of two or more as two that have about as many each.

    Examples
    --------
    >>> halve(((0, 9, 3), (20, 20, 1)))
    (((0, 9, 3),), ((20, 20, 1),))
    """
    if is_column(s):
        return s[: len(s) // 2], s[len(s) // 2 :]
    if len(s) > 1:
        return s[: len(s) // 2], s[len(s) // 2 :]
    ((first, last, step),) = s
    middle = first + ((last - first) // step - 1) // 2 * step
    return (steps_from(first, middle, step),), (steps_from(middle + step, last, step),)


def unite(parts: Iterable[AxisSet]) -> AxisSet | Open:
    """Return the union; `OPEN` where that of several parts is not few progressions of one step.

    A part alone is returned as it is, however many progressions it has.

    Examples
    --------
    >>> unite([((3, 7, 2),), ((9, 11, 2),), ((4, 4, 1),)])
    ((3, 11, 2), (4, 4, 1))
    """
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else ()
    if any(map(is_column, parts)):
        return column_of(np.concatenate([to_array(part) for part in parts]))
    each = sorted({p for part in parts for p in part})
    steps = {step for first, last, step in each if first < last}
    if len(steps) > 1:
        return OPEN
    step = steps.pop() if steps else 1
    if step == 1:
        found = tuple(_unite_row(each, 1))
        return found if len(found) <= tuning.MAX_RUNS else OPEN
    rows: dict[int, list[EvenSteps]] = {}
    for p in each:
        rows.setdefault(p[0] % step, []).append(p)
    found = tuple(sorted([p for row in rows.values() for p in _unite_row(row, step)]))
    if len(rows) == step == len(found) and found[-1][0] - found[0][0] == step - 1:
        ends = sorted([last for _, last, _ in found])
        if ends[-1] - ends[0] == step - 1:  # every remainder, over the same stretch
            return ((found[0][0], ends[-1], 1),)
    return found if len(found) <= tuning.MAX_PROGRESSIONS else OPEN


def _unite_row(row: list[EvenSteps], step: int) -> list[EvenSteps]:
    """The union of progressions in ascending order, whose elements are alike modulo the step."""
    out = [row[0]]
    for first, last, _ in row[1:]:
        low, high, _ = out[-1]
        if first > high + step:
            out.append((first, last, step if first < last else 1))
        elif last > high:
            out[-1] = low, last, step
    return out


def add(parts: Iterable[AxisSet]) -> AxisSet | Open:
    """Return the sums of an integer of each set; `OPEN` where these are too many for what holds them.

    Examples
    --------
    >>> add([((0, 6, 2),), ((0, 1, 1),)]), add([((0, 8, 4),), ((0, 1, 1),)])
    (((0, 7, 1),), ((0, 8, 4), (1, 9, 4)))
    """
    parts = list(parts)
    if any(map(is_nothing, parts)):
        return ()
    columns = [part for part in parts if is_column(part)]
    total: AxisSet = ((0, 0, 1),)
    for part in sorted([p for p in parts if not is_column(p)], key=lambda p: min([step for _, _, step in p])):
        found = _add_steps(total, part)
        if found is OPEN:
            return OPEN
        total = found
    for column in columns:
        if len(column) * size_of(total) > tuning.MAX_COLUMN:
            return OPEN
        total = column_of(np.add.outer(column, to_array(total)).ravel())
    return total


def _add_steps(one: AxisSet, two: AxisSet) -> AxisSet | Open:
    """The same for two sets of progressions, of which the second's step is the longer."""
    if is_column(one) or is_column(two):
        return OPEN
    sums: list[AxisSet] = []
    for a, b, by in one:
        for c, d, step in two:
            if c == d or (a < b and step % by == 0 and step <= b - a + by):  # copies that touch
                sums.append(((a + c, b + d, by if a < b else 1),))
            elif a == b:
                sums.append(((a + c, b + d, step),))
            elif (b - a) // by < tuning.MAX_PROGRESSIONS:
                sums += [((z + c, z + d, step),) for z in range(a, b + 1, by)]
            else:
                return OPEN
    return unite(sums) if len(sums) <= tuning.MAX_PROGRESSIONS else OPEN


# ------------------------------------------------------------------ two sets


def meet(s: AxisSet, t: AxisSet) -> AxisSet:
    """Return what two sets share, in closed form or by binary search; as many progressions as it takes.

    Examples
    --------
    >>> meet(((0, 30, 2),), ((0, 30, 3),)), meet(np.array([3, 8, 40]), ((8, 99, 1),)).tolist()
    (((0, 30, 6),), [8, 40])
    """
    if is_column(s):
        if is_column(t) and len(t) < len(s):
            s, t = t, s
        return s[hold_each(t, s)]
    if is_column(t):
        return t[hold_each(s, t)]
    if s == t:
        return s
    if len(s) * len(t) > tuning.MAX_PROGRESSIONS and _are_runs(s) and _are_runs(t):
        return _meet_runs(s, t)
    return tuple([steps_from(*found) for p in s for q in t if (found := common_progression(p, q)) is not None])


def _are_runs(s: AxisSet) -> TypeGuard[tuple[EvenSteps, ...]]:
    """Whether all progressions are runs of neighbors."""
    return not is_column(s) and all(step == 1 for _, _, step in s)


def _meet_runs(s: tuple[EvenSteps, ...], t: tuple[EvenSteps, ...]) -> AxisSet:
    """The common elements of many runs and many others, in one sweep over both."""
    mine, theirs = sorted(s), sorted(t)
    found: list[EvenSteps] = []
    i = j = 0
    while i < len(mine) and j < len(theirs):
        (first, last, _), (low, high, _) = mine[i], theirs[j]
        if max(first, low) <= min(last, high):
            found.append((max(first, low), min(last, high), 1))
        if last < high:
            i += 1
        else:
            j += 1
    return tuple(found)


def first_beside(s: AxisSet, t: AxisSet) -> int | None:
    """Return the least integer of one set that is not in another, None if there is none.

    Examples
    --------
    >>> first_beside(((0, 10**30, 1),), ((0, 7, 1), (8, 10**20, 2)))
    9
    """
    if is_column(s):
        beside = s[~hold_each(t, s)]
        return int(beside[0]) if len(beside) else None
    found = [z for p in s if (z := _first_of_steps_beside(p, t)) is not None]
    return min(found, default=None)


def _first_of_steps_beside(p: EvenSteps, t: AxisSet) -> int | None:
    """The same of one progression: the shortest beginning of it that is not all in the other set, by bisection."""
    first, last, step = p
    low, high = 0, (last - first) // step + 1
    if size_of(meet((p,), t)) == high:
        return None
    while low + 1 < high:  # the first `low` are all in t, the first `high` are not
        middle = (low + high) // 2
        part = steps_from(first, first + (middle - 1) * step, step)
        low, high = (middle, high) if size_of(meet((part,), t)) == middle else (low, middle)
    return first + low * step
