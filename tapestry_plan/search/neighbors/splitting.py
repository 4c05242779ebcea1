"""Bounds where operators may work over split axes: what their readers copy then, the tables do not know.

The tables have what an operator copies to read its operands as the graph says it. Where what it reads is made over
split axes, it reads it through one view more, and may copy less, or more::

    as tables have it      t ─► roll ─► relu                     blocks around the end are copied
    as the plan has it     t.split ─► back ─► roll ─► relu       these views may be none together

So a plan has the seconds of its own steps, and the bound is that of tables in which such readers copy of it only what
they copy of either.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np

from tapestry_plan.ir import OpNode
from tapestry_plan.rewrite import Draft, split_axes
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.added import Split, take_out
from tapestry_plan.search.prices.costs import TICKS_PER_SECOND, Problem
from tapestry_plan.search.sums.elimination import Factor, IntArray
from tapestry_plan.search.sums.pruning import find_marginals, is_worth_a_round
from tapestry_plan.steps import IndexBlock, PeriodicBlock, Reads, count_copied, list_stored, tell_rule
from tapestry_sets.regions import Box


def bound_with_splits(problem: Problem, bound_ticks: int, stop: float) -> int:
    """Picoseconds that no layouts take less than, whatever readers copy of what is made over split axes.

    Parameters
    ----------
    problem : Problem
    bound_ticks : int
        The same by its tables.
    stop : float
        Of the monotonic clock.
    """
    less, found = _list_readings(problem), bound_ticks
    rows = [np.arange(size) for size in problem.sizes]
    for is_exact in (False, True) if less else ():  # mostly it is enough to take them to copy nothing
        found, rows = _find_bound(_WithoutCopies(problem, less, is_exact), rows, bound_ticks, stop)
        if found >= bound_ticks:
            break
    return found


def count_least(problem: Problem) -> int:
    """Picoseconds that no layouts take less than, those included that neighbors were not asked for: the work alone."""
    total = 0
    for node in problem.order:
        ticks = problem.own[problem.position["operator", node.name]].ticks
        total += int(np.maximum(ticks - _count_ticks(problem, problem.count_copied(node)), 0).min())
    return total


def _find_bound(problem: Problem, rows: Sequence[IntArray], wanted: int, stop: float) -> tuple[int, list[IntArray]]:
    """A bound, as far as some ticks: layouts are left out that have no sum below these, so that larger tables fit.

    What is left out of some rows costs as much in any problem whose tables are not below these: so the other rows, too,
    are given back.
    """
    now, kept, lowest = problem.restrict(rows), list(rows), 0
    for entries in chain(LEVELS, repeat(LEVELS[-1])):
        marginals = find_marginals(now.sizes, now.factors(entries)[1], most=wanted - 1, stop=stop)
        some = marginals.list_kept(wanted - 1)
        if not all(map(len, some)):
            return wanted, kept
        lowest, is_worth = max(lowest, marginals.bound_ticks), is_worth_a_round(now.sizes, some)
        kept, is_largest = [each[left] for each, left in zip(kept, some, strict=True)], now.entries == LEVELS[-1]
        if time.monotonic() >= stop or (is_largest and not is_worth):
            break
        now = now.restrict(some)
    return min(lowest, wanted), kept


def _list_readings(problem: Problem) -> list[_SplitOperand]:
    """What is read of operators that may work over split axes, where something of it is copied."""
    makers = {
        cost.tensor.name: cost.producer
        for cost in problem.tensors
        if any(layout.digits for layout in problem.variables[cost.producer].layouts)
    }
    less: list[_SplitOperand] = []
    for node in problem.order if makers else ():
        for operand, name in enumerate(node.inputs):
            mine = {makers[read] for read in list_stored(problem.graph, [name]) if read in makers}
            if mine and (copied := _count_copied(problem, node, operand)).any():
                less.append(_SplitOperand(node, operand, mine, copied))
    return less


LEVELS = (tuning.FIRST_FACTOR_ENTRIES, tuning.SECOND_FACTOR_ENTRIES, tuning.MAX_FACTOR_ENTRIES)
"""Entries of one tensor's tables, round by round; the last ones again while they leave layouts out."""


class _SplitOperand(NamedTuple):
    """An operand that is made by operators over split axes, perhaps, and what each device copies of it, by layout."""

    node: OpNode
    operand: int
    makers: set[int]
    copied: IntArray


def _count_copied(problem: Problem, node: OpNode, operand: int) -> IntArray:
    """Bytes of an operand that are written anew, by layout and device."""
    return problem.count_copied(node, inside={name for name in node.inputs if name != node.inputs[operand]})


def _count_ticks(problem: Problem, nbytes: IntArray) -> IntArray:
    """What writing so many bytes anew takes at most, by layout."""
    rates = np.array([device.memory_nbytes_per_second for device in problem.mesh.devices])
    ticks: IntArray = np.rint((nbytes / rates).max(axis=1) * TICKS_PER_SECOND).astype(np.int64)
    return ticks


class _WithoutCopies(Problem):
    """The problem with some operators' own tables lowered; what choices cost is as there.

    Parameters
    ----------
    problem : Problem
    less : sequence of _SplitOperand
    is_exact : bool
        Whether it is counted what is copied of what is made over split axes; else nothing is.
    """

    is_sum = False

    def __init__(self, problem: Problem, less: Sequence[_SplitOperand], is_exact: bool) -> None:
        self.__dict__.update(vars(problem))
        self.__dict__.pop("touching", None)
        self._problem = problem
        own = list(problem.own)
        for reading in less:
            at = problem.position["operator", reading.node.name]
            lower = np.minimum(_count_ticks(problem, reading.copied), own[at].ticks)
            own[at] = Factor(own[at].scope, self.known.share(own[at].ticks - lower), own[at].nbytes)
            if len(reading.makers) == 1:
                (maker,) = reading.makers
                table = np.array(self._list_rest(reading, maker, lower, is_exact))
                table = self.known.share(np.ascontiguousarray(table if maker < at else table.T))
                own.append(Factor((min(maker, at), max(maker, at)), table, self.known.share(np.zeros_like(table))))
        self.own = own

    def _list_rest(self, reading: _SplitOperand, maker: int, lower: IntArray, is_exact: bool) -> list[IntArray]:
        """For each layout of who makes an operand what reading it takes yet, beyond the reader's own lowered table."""
        rest: dict[Split, IntArray] = {(): lower}
        for layout in self.variables[maker].layouts:
            if layout.digits not in rest and not is_exact:
                rest[layout.digits] = np.zeros_like(lower)
            if layout.digits not in rest:
                made = self.graph.nodes[self.variables[maker].name]
                key = "behind", self.kind(made), layout.digits, self.kind(reading.node), reading.operand
                split = self.known.fact(key, partial(self._count_behind, reading, made, layout.digits))
                fewer = _count_ticks(self._problem, np.maximum(reading.copied - split, 0))
                rest[layout.digits] = np.maximum(lower - fewer, 0)
        return [rest[layout.digits] for layout in self.variables[maker].layouts]

    def _count_behind(self, reading: _SplitOperand, maker: OpNode, digits: Split) -> IntArray:
        """What is copied of an operand whose maker works over split axes, and of which the reader may do so as well."""
        known: dict[Split, tuple[Reads, OpNode]] = {}

        def find(mine: Split) -> tuple[Reads, OpNode]:
            draft = Draft(take_out(self.graph, [maker, reading.node]))
            split_axes.on(draft, maker.name, **tell_rule(digits))
            before = set(draft.nodes)
            if mine:
                split_axes.on(draft, reading.node.name, **tell_rule(mine))
            made = draft.done()
            (name,) = (set(made.nodes) - before) if mine else {reading.node.name}
            return Reads(made), made.nodes[name]

        def count(block: IndexBlock) -> int:
            if not isinstance(block, Box | PeriodicBlock):
                return 0
            mine, box = ((), block) if isinstance(block, Box) else (block.digits, block.box)
            if mine not in known:
                known[mine] = find(mine)
            return count_copied(*known[mine], reading.operand, box)

        blocks, places = self.list_blocks(reading.node)
        nbytes: IntArray = np.array([*map(count, blocks), 0], np.int64)[places]
        return nbytes

    def count_cost(self, choice: Sequence[int]) -> tuple[int, int]:
        """As of the problem itself."""
        return self._problem.count_cost(choice)
