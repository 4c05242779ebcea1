"""Of the best plans, that which places the fewest bytes: weights and inputs held on fewer devices, or in smaller parts.

A product of two 4096 × 4096 matrices on 16 devices takes the same time cut 16 × 1 or 4 × 4, and nothing moves. But of
16 × 1 every device holds one matrix whole, of 4 × 4 a quarter of each::

    16 × 1   a │a/16│ b │ b whole │     17/16 of a matrix a device
     4 × 4   a │ a/4 │ b │ b/4 │         1/2

Time and bytes moved stay the proven optimum: each table becomes what it has more than its least entry, as one number,
and no assignment whose sum of these exceeds the optimum's is looked at. What is placed is then the cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod

import numpy as np

from tapestry_plan.search import tuning
from tapestry_plan.search.prices.costs import Problem
from tapestry_plan.search.prices.moves import RegionTable, list_classes
from tapestry_plan.search.sums.elimination import Factor, IntArray, minimize
from tapestry_plan.search.sums.pruning import find_marginals
from tapestry_plan.search.sums.reduction import cut_table
from tapestry_plan.steps import unite
from tapestry_sets.regions import DisjointRegions


def place_least(
    problem: Problem, kept: Sequence[IntArray], factors: Sequence[Factor], choice: Sequence[int]
) -> tuple[int, ...]:
    """The choice, among those of the same time and bytes moved, that places the fewest bytes of inputs and constants.

    Among these it is one whose fullest devices hold the least of every tensor, added up: so they have low peaks.

    Parameters
    ----------
    problem : Problem
    kept : sequence of array
        For each variable the layouts that are left, by ascending number.
    factors : sequence of Factor
        Exact tables over these.
    choice : sequence of int
        A best assignment: a place among the layouts that are left, for each variable.

    Returns
    -------
    tuple of int
        The layouts of another best assignment, or of the same one.
    """
    at, tables, rows = tuple(choice), list(factors), list(kept)
    for list_more in (_list_placed, _list_fullest):
        packed = _pack(tables, at)
        if packed is None:
            break
        tables, most = packed
        some = find_marginals([len(values) for values in rows], tables).list_kept(most)
        cut: dict[tuple[int, ...], tuple[IntArray, IntArray]] = {}
        tables = [cut_table(factor, [some[v] for v in factor.scope], cut) for factor in tables]
        rows = [problem.known.share(values[left]) for values, left in zip(rows, some, strict=True)]
        at = tuple(int(np.searchsorted(left, value)) for left, value in zip(some, at, strict=True))
        tables += list_more(problem, rows)
        found = minimize([len(values) for values in rows], tables)
        if found.ticks > most:  # tables were split on the way
            break
        at = found.choice
    return tuple(int(values[value]) for values, value in zip(rows, at, strict=True))


def _pack(factors: Sequence[Factor], choice: Sequence[int]) -> tuple[list[Factor], int] | None:
    """What each entry costs above the least one of its table, time before bytes, as one number; and a choice's sum.

    What is more than that sum by itself is cut there: no sum with it is as low. None where numbers would be too long.
    """
    low = {id(f.ticks): int(f.ticks.min()) for f in factors} | {id(f.nbytes): int(f.nbytes.min()) for f in factors}
    ticks = nbytes = 0
    for f in factors:
        at = tuple(choice[v] for v in f.scope)
        ticks += int(f.ticks[at]) - low[id(f.ticks)]
        nbytes += int(f.nbytes[at]) - low[id(f.nbytes)]
    width = sum(int(f.nbytes.max()) - low[id(f.nbytes)] for f in factors).bit_length()
    if ((ticks + 1) * (len(factors) + 1)).bit_length() + width > tuning.MAX_COUNTED.bit_length() - 1:
        return None
    most = (ticks << width) + nbytes
    zeros: dict[tuple[int, ...], IntArray] = {}
    made: dict[tuple[int, int], IntArray] = {}
    out = []
    for f in factors:
        key = id(f.ticks), id(f.nbytes)
        if key not in made:
            above = np.minimum(f.ticks - low[key[0]], ticks + 1) << width
            made[key] = np.minimum(above + (f.nbytes - low[key[1]]), most + 1)
        out.append(Factor(f.scope, made[key], zeros.setdefault(f.ticks.shape, np.zeros(f.ticks.shape, np.int64))))
    return out, most


def _list_placed(problem: Problem, rows: Sequence[IntArray]) -> Iterator[Factor]:
    """The bytes of inputs and constants that devices hold from the start: tables over those who read them.

    Where a table over all readers of a tensor would be too large they are counted one by one: too much, not too little.
    """
    share = problem.known.share
    for name, tensor in problem.graph.stored.items():
        if tensor.kind == "result" or not problem.uses[name]:
            continue
        table = problem.tables[name]
        place = problem.position.get(("source", name))
        if place is not None:
            readers = [(place, problem.number_held(problem.variables[place])[rows[place]])]
        else:
            readers = [(use.variable, use.numbers[rows[use.variable]]) for use in problem.uses[name]]
        # A reader of which one layout is left needs no axis in the table.
        settled = tuple(sorted({tuple(numbers[0].tolist()) for _, numbers in readers if len(numbers) == 1}))
        open_ = sorted([reader for reader in readers if len(reader[1]) > 1], key=lambda reader: reader[0])
        for group in [open_] if _is_small(open_) else [[reader] for reader in open_]:
            numbers = [share(numbers) for _, numbers in group]
            key = "placed", tensor.shape, tensor.itemsize, settled, *map(id, numbers)
            nbytes = problem.known.fact(key, partial(count_held, table, settled, numbers, tensor.itemsize))
            yield _only_bytes(problem, [variable for variable, _ in group], nbytes)


def _list_fullest(problem: Problem, rows: Sequence[IntArray]) -> Iterator[Factor]:
    """The bytes that the fullest device holds of what each operator reads and makes."""
    for at, costs in problem.made.items():
        if problem.variables[at].kind == "operator":
            nbytes = np.zeros(len(rows[at]), np.int64)
            for cost in costs:
                held = cost.held.numbers[rows[at]]
                nbytes += cost.table.sizes(held).max(axis=1) * cost.itemsizes(cost.held.parts[rows[at]])
            yield _only_bytes(problem, [at], problem.known.share(nbytes))
    for name, tensor in problem.graph.stored.items():
        for use in problem.uses[name]:
            read = problem.known.share(use.numbers[rows[use.variable]])
            key = "fullest", tensor.shape, tensor.itemsize, id(read)
            yield _only_bytes(
                problem,
                [use.variable],
                problem.known.fact(key, partial(_count_fullest, problem.tables[name], read, tensor.itemsize)),
            )


def _only_bytes(problem: Problem, scope: Sequence[int], nbytes: IntArray) -> Factor:
    """A table that costs no time."""
    return Factor(tuple(scope), problem.known.fact(("zeros", nbytes.shape), partial(np.zeros_like, nbytes)), nbytes)


def _count_fullest(table: RegionTable, numbers: IntArray, itemsize: int) -> IntArray:
    cells: IntArray = table.sizes(numbers).max(axis=1)
    return cells * itemsize


def _is_small(readers: Sequence[tuple[int, IntArray]]) -> bool:
    entries = prod(len(numbers) for _, numbers in readers)
    return 0 < len(readers) <= tuning.MAX_JOINT_CONSUMERS and entries <= tuning.MAX_PLACED_ENTRIES


def count_held(
    table: RegionTable, settled: Sequence[tuple[int, ...]], readers: Sequence[IntArray], itemsize: int
) -> IntArray:
    """The bytes that all devices hold together, where each holds what any of some readers reads there.

    Of those that are settled there is one layout; of each other one a row for each layout, and an axis of the table.
    """
    classes = [list_classes(numbers) for numbers in readers]
    always = [unite([table.regions[number] for number in column], table.shape) for column in zip(*settled, strict=True)]
    held = np.array([table.number(region) for region in always], np.int64)
    if not settled:
        held = np.full(readers[0].shape[1], table.number(DisjointRegions(table.shape)), np.int64)
    for numbers, _ in classes:
        pairs = np.stack(np.broadcast_arrays(held[..., None, :], numbers), axis=-1).reshape(-1, 2)
        different, inverse = np.unique(pairs, axis=0, return_inverse=True)
        united = [one if one == two else _unite(table, one, two) for one, two in different.tolist()]
        held = np.array(united, np.int64)[inverse.reshape(-1)].reshape(*held.shape[:-1], *numbers.shape)
    cells: IntArray = table.sizes(held.reshape(-1, held.shape[-1])).sum(axis=-1).reshape(held.shape[:-1])
    return cells[np.ix_(*(inverse for _, inverse in classes))] * itemsize


def _unite(table: RegionTable, one: int, two: int) -> int:
    return table.number(unite([table.regions[one], table.regions[two]], table.shape))
