"""Values that no best assignment has, found from each variable's own tables.

A value is dominated by another one of its variable if it costs more whatever all others are: if the differences
between the two, each table's at its least, still sum to more than nothing. Then every assignment that has it is worse
than the same with the other value, so none that is best has it, and it is left out before anything is eliminated::

    tables of v:   own   with w         v = a costs at least 3 more alone, and at worst 2 less beside w:
      v = a         5    1 4 2          5 - 2 = 3,  min(1 - 3, 4 - 5, 2 - 1) = -2,  together 1 > 0
      v = b         2    3 5 1          so a is left out

This is dead-end elimination (Desmet et al. 1992; Goldstein 1994). It does not depend on how many variables there are,
unlike bounds on whole sums, and alike variables are looked at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.search import tuning

IntArray = NDArray[np.int64]


class Factor(Struct, frozen=True):
    """A table of costs over some variables.

    Parameters
    ----------
    scope : tuple of int
        The variables, ascending.
    ticks, nbytes : array of int64
        One axis for each variable of the scope.
    """

    scope: tuple[int, ...]
    ticks: IntArray
    nbytes: IntArray


def leave_out_dominated(sizes: Sequence[int], factors: Sequence[Factor]) -> tuple[list[IntArray], list[Factor]]:
    """The values of each variable that may be in a best assignment, ascending, and the tables over them.

    Parameters
    ----------
    sizes : sequence of int
        Number of values of each variable.
    factors : sequence of Factor
    """
    kept = [_all(n) for n in sizes]
    left = list(factors)
    cut: dict[tuple[int, ...], tuple[IntArray, IntArray]] = {}
    held: list[Factor] = []  # so that no other table has the number of one that is gone
    for _ in range(tuning.MAX_REDUCTIONS):
        found = _list_undominated([len(values) for values in kept], left)
        if all(len(some) == len(values) for some, values in zip(found, kept, strict=True)):
            break
        kept = [values[some] for some, values in zip(found, kept, strict=True)]
        held += left
        left = [cut_table(factor, [found[v] for v in factor.scope], cut) for factor in left]
    return kept, left


def _all(size: int) -> IntArray:
    return np.arange(size, dtype=np.int64)


def _list_undominated(sizes: Sequence[int], factors: Sequence[Factor]) -> list[IntArray]:
    """For each variable the values that no other one dominates; one object for variables of the same tables."""
    tables: list[list[tuple[int, Factor]]] = [[] for _ in sizes]
    for factor in factors:
        for axis, var in enumerate(factor.scope):
            tables[var].append((axis, factor))
    made: dict[tuple[object, ...], IntArray] = {}
    out = []
    for size, mine in zip(sizes, tables, strict=True):
        key = size, *sorted((id(factor.ticks), axis) for axis, factor in mine)
        if key not in made:
            made[key] = _find_undominated(size, [np.moveaxis(f.ticks, axis, 0).reshape(size, -1) for axis, f in mine])
        out.append(made[key])
    return out


def _find_undominated(size: int, tables: Sequence[IntArray]) -> IntArray:
    if size == 1 or not tables:
        return _all(size)
    entries = sum(table.size for table in tables)
    many = max(1, tuning.MAX_COMPARED_ENTRIES // entries)
    # Those that cost least by and large go first: they dominate most, and what is dominated is a rival no more, as who
    # dominates it dominates all that it does.
    means = np.sum([table.mean(axis=1) for table in tables], axis=0)
    rivals = np.argsort(means, kind="stable")[:many]
    # Most pairs are told apart by few columns: the least difference is no more than that of some, or than the mean.
    first, few = (_take_columns(tables, columns) for columns in (tuning.FIRST_COLUMNS, tuning.COLUMNS))
    room = 1e-9 * np.abs(means).max()
    alive, at, step = np.ones(size, bool), 0, 16
    while at < len(rivals):
        some = rivals[at : at + step]
        at, some = at + step, some[alive[some]]
        rows = np.flatnonzero(alive)
        step = min(2 * step, max(1, tuning.MAX_PAIRS // len(rows)))
        maybe = (_list_least(first, rows, some) > 0) & (means[rows][:, None] + room > means[some])
        for rival, column in zip(some.tolist(), maybe.T, strict=True):
            asked = rows[column & alive[rows]] if alive[rival] else rows[:0]
            if asked.size:
                alive[_list_dominated(tables, few, rival, asked)] = False
    return np.flatnonzero(alive)


def _list_dominated(tables: Sequence[IntArray], few: Sequence[IntArray], rival: int, asked: IntArray) -> IntArray:
    """Those of some values that another one dominates, by all columns of tables, of which few were taken."""
    # What few columns say of each table is replaced by what more say, until the sum is no more than nothing.
    least = np.array([(table[asked] - table[rival]).min(axis=1) for table in few])
    order = sorted((k for k in range(len(tables)) if tables[k].shape != few[k].shape), key=lambda k: tables[k].size)
    for k in (-1, *order):
        for at in range(0, tables[k].shape[1] if k >= 0 else 1, tuning.COLUMNS_AT_ONCE):
            if k >= 0:
                there = tables[k][:, at : at + tuning.COLUMNS_AT_ONCE]
                np.minimum(least[k], (there[asked] - there[rival]).min(axis=1), out=least[k])
            kept = least.sum(axis=0) > 0
            asked, least = asked[kept], least[:, kept]
            if not asked.size:
                return asked
    return asked


def _take_columns(tables: Sequence[IntArray], columns: int) -> list[IntArray]:
    """The tables with no more than so many of their columns."""
    return [np.ascontiguousarray(table[:, :: -(-table.shape[1] // columns)]) for table in tables]


def _list_least(tables: Sequence[IntArray], rows: IntArray, others: IntArray) -> IntArray:
    """The sum over tables of the least difference of two rows in any column, by row and other row."""
    total = np.zeros((len(rows), len(others)), np.int64)
    for table in tables:
        mine, theirs = table[rows].T, table[others].T
        total += reduce(np.minimum, (mine[k][:, None] - theirs[k] for k in range(len(mine))))
    return total


def cut_table(
    factor: Factor, values: Sequence[IntArray], cut: dict[tuple[int, ...], tuple[IntArray, IntArray]]
) -> Factor:
    """A table over some values of its variables; alike ones stay one object, by what is in `cut` already."""
    if tuple(map(len, values)) == factor.ticks.shape:
        return factor
    key = id(factor.ticks), id(factor.nbytes), *map(id, values)
    if key not in cut:
        at = np.ix_(*values)
        cut[key] = factor.ticks[at], factor.nbytes[at]
    return Factor(factor.scope, *cut[key])
