"""The problem that the planner minimizes: layouts as variables, exact costs as tables."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property, partial
from math import prod
from typing import Self

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tapestry_plan.ir import Graph
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.costs.chosen import Moved, count_each, find_merge
from tapestry_plan.search.prices.costs.seconds import assembly_ticks, merge_ticks, transfer_ticks
from tapestry_plan.search.prices.costs.tensors import TensorCost, Use, hold_whole
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.search.prices.costs.work import Worked
from tapestry_plan.search.prices.moves import FREE, Held, OperandBlocks, count_transfers, list_classes
from tapestry_plan.search.sums.elimination import Factor, IntArray
from tapestry_plan.search.sums.reduction import cut_table
from tapestry_plan.search.sums.tables import Tables, list_scope
from tapestry_plan.steps import (
    Link,
    MergeOrder,
    Mesh,
    name_stage,
)


class Problem(Worked):
    """The choice of layouts as variables and exact cost tables.

    Parameters
    ----------
    graph : Graph
    asked : Asked
    """

    def __init__(self, graph: Graph, asked: Asked) -> None:
        super().__init__(graph, asked)
        self.counted_alone: dict[int, list[TensorCost]] = {}
        """Tensors around a variable whose consumers are counted one by one."""
        self.shared: list[Factor] = []
        """Tables that are exact."""
        self.listed = Tables([])
        """All tables that were made last."""
        self.entries = tuning.MAX_FACTOR_ENTRIES
        """Of one tensor's tables; where more are needed its consumers are counted one by one."""
        for cost in self.tensors:
            self._settle_landing(cost)
        self.tensors = [
            part
            for cost in self.tensors
            for part in ([cost] if cost.landing else cost.split(partial(self._meet, cost)))
        ]

    @property
    def is_sum(self) -> bool:
        """Whether what a choice costs is the sum of its entries of the tables, where all are exact."""
        return not self.known.is_lowered

    @cached_property
    def _mesh_without_runs(self) -> Mesh:
        """The mesh where it takes no time of which runs messages are."""
        link = self.mesh.link
        if isinstance(link, Link):
            return replace(self.mesh, link=replace(link, run_seconds=0.0))
        each = (replace(one, run_seconds=0.0) if isinstance(one, Link) else one for one in link)
        return replace(self.mesh, link=tuple(each))

    @cached_property
    def own(self) -> list[Factor]:
        """What each variable costs by itself."""
        return self._own_tables()

    def restrict(self, kept: Sequence[IntArray]) -> Self:
        """The same problem with some layouts of each variable, by ascending number, as its only ones."""
        share, cuts = self.known.share, dict[tuple[int, ...], tuple[IntArray, IntArray]]()
        kept, taken = [share(values) for values in kept], dict[tuple[int, int], IntArray]()

        def take(array: IntArray, values: IntArray) -> IntArray:  # alike layers have the same arrays and values
            key = id(array), id(values)
            if key not in taken:
                taken[key] = share(array[values])
            return taken[key]

        def cut(factor: Factor) -> Factor:
            return cut_table(factor, [kept[v] for v in factor.scope], cuts)

        def cut_use(use: Use) -> Use:
            return use.cut(partial(take, values=kept[use.variable]))

        def cut_cost(cost: TensorCost) -> TensorCost:
            values = kept[cost.producer]
            held = Held(*(take(rows, values) for rows in (cost.held.numbers, cost.held.parts, cost.held.groups)))
            uses = [cut_use(use) for use in cost.uses]
            made = {consumers: cut(factor) for consumers, factor in cost.made.items()}
            landing = cost.landing and cut_use(cost.landing)
            merges = cost.merges and cost.landing and cost.merges.restrict(values, kept[cost.landing.variable], share)
            return replace(cost, held=held, uses=uses, made=made, landing=landing, merges=merges)

        made = copy(self)
        made.__dict__.pop("touching", None)
        own = list(zip(self.variables, self.compute, kept, strict=False))
        made.variables = [replace(v, layouts=tuple(v.layouts[k] for k in values)) for v, _, values in own]
        made.sizes = [len(values) for values in kept]
        made.compute = [take(ticks, values) for _, ticks, values in own]
        made.own = [cut(factor) for factor in self.own]
        made.tensors = [cut_cost(cost) for cost in self.tensors]
        made.counted_alone, made.shared = {}, []
        made.listed = Tables([], weights=dict(self.listed.weights))
        return made

    def around(self, operators: Collection[int]) -> tuple[Self, list[int]]:
        """The tables of some operators alone, and their variables, with those of where what they read or make lies."""
        chosen = set(operators)
        made = copy(self)
        made.__dict__.pop("touching", None)
        made.tensors = [cost for cost in self.tensors if not chosen.isdisjoint(cost.variables)]
        near = {at for cost in made.tensors for at in cost.variables if self.variables[at].kind != "operator"}
        free = chosen | near
        made.own = [factor for factor in self.own if not free.isdisjoint(factor.scope)]
        return made, sorted(free)

    def factors(self, entries: int = tuning.MAX_FACTOR_ENTRIES) -> tuple[list[Factor], list[Factor]]:
        """The cost tables: those to search with, and those that bound every plan from below.

        They are the same list where every tensor's consumers can be counted jointly, in tables of so many entries.
        Other tensors' consumers are counted one by one, as if nothing had arrived for another. Together they take no
        less than the largest of them: where only the counting of many devices would take long, a table has that. Where
        that table would be too large too, the search has their sum, and the bound a mean of them.
        """
        self.counted_alone, self.entries = {}, entries
        tables = Tables(list(self.own), weights=self.listed.weights)
        count = len(self.tensors)
        for k, cost in enumerate(self.tensors):
            self.asked.meter.tell("costs", count + k, 2 * count)
            self._add_tables(cost, tables)
        self.shared, self.listed = tables.shared, tables
        search = tables.shared + tables.alone
        return search, tables.list_bound(self.known) if tables.alone else search

    def count_entries(self) -> int:
        """Entries of all tables of `factors`, of alike ones once; very many where some would be too large."""
        self.entries = tuning.MAX_FACTOR_ENTRIES
        found: dict[tuple[object, ...], int] = {}
        for cost in self.tensors:
            if not self._fits(cost, range(len(cost.uses))):
                return tuning.MAX_ENTRIES
            key: tuple[object, ...] = self._said(cost)
            entries = self.sizes[cost.producer]
            for use in (*([cost.landing] if cost.landing else []), *cost.uses):
                key, entries = (*key, id(use.numbers)), entries * self.sizes[use.variable]
                found[key] = entries
        return sum(found.values())

    def _own_tables(self) -> list[Factor]:
        """What each variable costs by itself: an operator's work."""
        return [self._own_table(at, ticks) for at, ticks in enumerate(self.compute)]

    def _own_table(self, at: int, ticks: IntArray) -> Factor:
        return Factor((at,), ticks, self.known.share(np.zeros_like(ticks)))

    def _add_tables(self, cost: TensorCost, tables: Tables) -> None:
        """What is moved for one tensor, consumer by consumer: each table has all those before it, if that fits."""
        uses = range(len(cost.uses))
        tables.shared += self._landing_tables(cost)
        if all(self._fits(cost, uses[: k + 1]) for k in uses):
            tables.shared += [self._factor(cost, uses[: k + 1]) for k in uses]
            return
        single = self.list_alone(cost)
        if prod(self.sizes[v] for v in list_scope(single)) <= self.entries:
            tables.count_largest(single, self.sizes, self.known)
        else:
            tables.count_alone(single)
        landing = [cost.landing] if cost.landing else []
        for v in (cost.producer, *(use.variable for use in (*landing, *cost.uses))):
            self.counted_alone.setdefault(v, []).append(cost)

    def _settle_landing(self, cost: TensorCost) -> None:
        """Let a tensor land nowhere where the tables would be too large with it.

        What is shared out lands wherever each consumer alone can be counted with it: so that all have it takes longest.
        """
        if cost.landing is not None:
            consumers = [self.sizes[use.variable] for use in cost.uses]
            around = self.sizes[cost.producer] * self.sizes[cost.landing.variable]
            many = len(consumers) > tuning.MAX_JOINT_CONSUMERS and not cost.shares
            if many or around * (max(consumers, default=1) if cost.shares else prod(consumers)) > self._count_room(
                cost
            ):
                cost.landing = None

    def _count_room(self, cost: TensorCost) -> int:
        """Entries of a table with a place to land: of what is complete those that are counted from device to device.

        What nobody reads is not shared out.
        """
        counted = tuning.MAX_COUNTED_PAIRS // self.mesh.size**2 if cost.uses else 0
        return min(tuning.MAX_FACTOR_ENTRIES, counted) if cost.shares else tuning.MAX_FACTOR_ENTRIES

    def _fits(self, cost: TensorCost, consumers: Sequence[int], choices: Iterable[int] = ()) -> bool:
        """Whether consumers can be counted jointly: they are few, and so are the entries of their table.

        A table of one of them is made in any case.
        """
        consumers = self._list_meeting(cost, consumers)
        if len(consumers) <= 1:
            return True
        scope = [cost.producer, *(cost.uses[k].variable for k in consumers), *choices]
        scope += [cost.landing.variable] if cost.landing else []
        entries = prod(self.sizes[v] for v in scope)
        most = min(self.entries, tuning.MAX_COUNTED_PAIRS // self.mesh.size**2)
        return len(consumers) <= tuning.MAX_JOINT_CONSUMERS and entries <= most

    def _factor(self, cost: TensorCost, consumers: Sequence[int]) -> Factor:
        """What the last of some consumers costs, given the producer, where its results land, and those before it."""
        key = self._list_meeting(cost, consumers)
        if key not in cost.made:
            cost.made[key] = self._make_factor(cost, key)
        return cost.made[key]

    def list_alone(self, cost: TensorCost) -> list[Factor]:
        """What each consumer of a tensor costs if there were no other: no more than it and they cost together.

        What the first one gathers may hold what the device made, and serve others then, so that nobody copies it; and
        it may serve several operands of another one, which alone gathers for each of them.
        """
        is_exact = len(cost.uses) == 1 or not any(use.apart or any(map(np.any, use.ways)) for use in cost.uses)
        if is_exact:
            return [self._factor(cost, [k]) for k in range(len(cost.uses))]
        return [self._make_loose(cost, k) for k in range(len(cost.uses))]

    def _make_loose(self, cost: TensorCost, consumer: int) -> Factor:
        """The same of one of them, where several gather."""
        if (-1 - consumer,) not in cost.made:
            uses = list(cost.uses)
            uses[consumer] = uses[consumer].loosen(self.known.share, FREE)
            cost.made[-1 - consumer,] = self._make_factor(replace(cost, uses=uses), [consumer])
        return cost.made[-1 - consumer,]

    def count_pairs(self, cost: TensorCost, consumer: int) -> IntArray:
        """Picoseconds in which one consumer, by number, has a tensor, by layout of who makes it and of itself."""
        return self._make_tables(cost, [cost.uses[consumer]], whole=True)[0]

    def _list_meeting(self, cost: TensorCost, consumers: Sequence[int]) -> tuple[int, ...]:
        """The last of some consumers, and those before it that read cells which it reads too."""
        if not consumers:
            return ()
        *before, last = consumers
        return (*(k for k in before if self._meet(cost, cost.uses[k], cost.uses[last])), last)

    def _meet(self, cost: TensorCost, one: Use, two: Use) -> bool:
        """Whether two consumers of a tensor read the same cells in any of their layouts."""
        key = "meets", cost.tensor.shape, id(one.numbers), id(two.numbers)
        return self.known.fact(key, lambda: cost.share_cells(one, two))

    def _landing_tables(self, cost: TensorCost) -> list[Factor]:
        """What is moved to where a tensor lands."""
        return [self._factor(cost, ())] if cost.landing else []

    def _make_factor(self, cost: TensorCost, consumers: Sequence[int]) -> Factor:
        uses = [cost.uses[k] for k in consumers]
        landing = [cost.landing] if cost.landing else []
        whole = bool(consumers) and consumers[-1] not in cost.only_partial
        scope = [cost.producer, *(use.variable for use in (*landing, *uses))]
        order = sorted(range(len(scope)), key=scope.__getitem__)
        said = *self._said(cost), whole, len(landing), *(use.structure for use in (*landing, *uses))

        def made() -> tuple[IntArray, IntArray]:
            if cost.landing is None:
                return self._make_tables(cost, uses, whole)
            if not uses:
                both = self._count_at_once(cost, landing[0])
                if cost.merges is not None:
                    both = cost.merges.take_better(*both)
                return np.where(cost.lands, both[0], 0), np.where(cost.lands, both[1], 0)
            return self._join_landing(cost, cost.landing, uses, whole)

        def ordered() -> tuple[IntArray, IntArray]:
            ticks, nbytes = self.known.fact(("tables", *said), made)
            return ticks.transpose(order), nbytes.transpose(order)

        # Alike tables are one object in each order of their axes, so that elimination knows them.
        return Factor(tuple(scope[a] for a in order), *self.known.fact(("factor", *said, *order), ordered))

    def _count_at_once(self, cost: TensorCost, landing: Use) -> tuple[IntArray, IntArray]:
        """The tables of a tensor's landing, in one stage."""
        key = "at once", *self._said(cost), landing.structure
        return self.known.fact(key, lambda: self._make_tables(cost, [landing], whole=True))

    def list_merged(self, cost: TensorCost) -> NDArray[np.bool_]:
        """Whether a tensor's parts are merged in stages where it lands, by layouts of producer and landing."""
        assert cost.merges is not None and cost.landing is not None, "it may be"
        better = cost.merges.list_better(*self._count_at_once(cost, cost.landing))
        found: NDArray[np.bool_] = better & cost.lands[: len(better)]
        return found

    def _join_landing(
        self, cost: TensorCost, landing: Use, uses: Sequence[Use], whole: bool
    ) -> tuple[IntArray, IntArray]:
        """The tables of a consumer with a second axis, where the tensor lands: what landed is read from there."""
        may, lands = cost.lands.any(axis=1), cost.lands.any(axis=0)
        both = self._make_tables(cost, uses, whole)
        out = [np.repeat(near[:, None], len(landing.numbers), axis=1) for near in both]
        if lands.any():
            rested = replace(cost, held=hold_whole(self.known, cost.table, landing.numbers[lands]))
            in_parts, complete = may & (cost.held.parts > 1), np.flatnonzero(may & (cost.held.parts == 1))
            if in_parts.any():
                for table, far in zip(out, self._make_tables(rested, uses, whole), strict=True):
                    table[np.ix_(in_parts, lands)] = far
            if complete.size:  # what a device had before it has still: it is as if it had received it first
                had = Use(cost.producer, self.known.share(cost.held.numbers[complete]))
                twice = [use.double(self.known.share) for use in uses]
                for table, far in zip(out, self._make_tables(rested, [had, *twice], whole), strict=True):
                    table[np.ix_(complete, lands)] = far.swapaxes(0, 1)
        return out[0], out[1]

    def describe(self, cost: TensorCost) -> tuple[object, ...]:
        """All that what moves of a tensor depends on besides layouts: equal for alike ones."""
        landing = cost.landing and id(cost.landing.numbers)
        return *self._said(cost), landing, *((use.structure, k in cost.only_partial) for k, use in enumerate(cost.uses))

    def _said(self, cost: TensorCost) -> tuple[int | tuple[int, ...], ...]:
        """All that the tables of a tensor depend on besides its consumers: arrays are shared, so ids say which."""
        return cost.structure

    def _make_tables(self, cost: TensorCost, uses: Sequence[Use], whole: bool) -> tuple[IntArray, IntArray]:
        """Ticks and bytes of the last of some uses, by layout of the producer and of each use in turn.

        `whole` says whether it wants the tensor too where it is not in partial results.
        """
        made, devices, mesh = cost.held, self.mesh.size, self.mesh
        if mesh.prices_runs and time.monotonic() >= self.asked.stop:
            mesh, self.known.is_lowered = self._mesh_without_runs, True
        held_rows, held_class = list_classes(np.column_stack([made.numbers, made.groups, made.parts]))
        held = Held(held_rows[:, :devices], held_rows[:, -1], held_rows[:, devices:-1])
        needs, blocks, classes = zip(*map(_list_taken, uses), strict=True)
        sizes = cost.tensor.itemsize, cost.part_itemsize
        found = count_transfers(cost.table, held, needs, mesh, blocks, sizes)
        parts = held.parts[:, None]
        itemsize = cost.itemsizes(parts)
        ticks = transfer_ticks(found.busiest, found.rounds, found.runs, itemsize, mesh)
        ticks += merge_ticks(found.fresh, parts, itemsize, mesh)
        copying = assembly_ticks(found.assembled, mesh)
        nbytes = found.cells * itemsize
        if not whole:
            ticks, nbytes, copying = (np.where(parts == 1, 0, each) for each in (ticks, nbytes, copying))
        columns = found.columns[np.ix_(*classes)]
        free = [use.free for use in uses[:-1]]
        if all(each is None for each in free):
            return (ticks + copying)[held_class][:, columns], nbytes[held_class][:, columns]
        # What has arrived where consumers before have it for free is not known: that may have all of a block.
        known = np.ones((1,) * len(uses), np.int64)
        for k, each in enumerate(free):
            known = known if each is None else known * (1 - each.reshape(-1, *(1,) * (len(uses) - 1 - k)))
        ticks = ticks[held_class][:, columns] + copying[held_class][:, columns] * known
        return ticks, nbytes[held_class][:, columns]

    def count_cost(self, choice: Sequence[int]) -> tuple[int, int]:
        """Picoseconds and bytes of the chosen layouts."""
        moved = self.count_moved(choice).values()
        work = sum(int(ticks[value]) for ticks, value in zip(self.compute, choice, strict=True))
        return work + sum(m.ticks for m in moved), sum(int(m.nbytes.sum()) for m in moved)

    def count_moved(self, choice: Sequence[int]) -> dict[tuple[str, str], Moved]:
        """For each (tensor, consumer): the bytes that move, as chosen."""
        return {
            (cost.tensor.name, label): moved for cost in self.tensors for label, moved in self.list_moved(cost, choice)
        }

    def list_moved(self, cost: TensorCost, choice: Sequence[int]) -> Iterator[tuple[str, Moved]]:
        """What moves of one tensor, by the stages in which it lands, and by consumer."""
        name, every = cost.tensor.name, self.count_moved_of(cost, choice)
        stages = len(every) - len(cost.uses)
        for number, moved in enumerate(every[:stages], 1):
            yield name_stage("landing", name, number if number < stages else None), moved
        for use, moved in zip(cost.uses, every[stages:], strict=True):
            consumer = self.variables[use.variable]
            place = f"output {use.tied}" if use.tied else f"{consumer.kind} {consumer.name}"
            yield consumer.name if consumer.kind == "operator" else place, moved

    def count_moved_of(self, cost: TensorCost, choice: Sequence[int]) -> tuple[Moved, ...]:
        """What moves of one tensor in the stages in which it lands, and for each consumer."""
        return self.count_moved_in(cost, [choice])[0]

    def count_moved_in(self, cost: TensorCost, choices: Sequence[Sequence[int]]) -> list[tuple[Moved, ...]]:
        """The same in each of some choices, which takes less than one after the other."""
        return count_each(cost, choices, self._said(cost), self.mesh, self.known)

    def find_merge(self, cost: TensorCost, choice: Sequence[int]) -> MergeOrder | None:
        """Which parts are merged first where a tensor lands in stages, as chosen; None where all are merged at once."""
        return find_merge(cost, choice, self.mesh, self.known) if cost.lands_in(choice) else None

    def list_joined(self, choice: Sequence[int]) -> dict[str, str]:
        """The operators that are in one block with one that they read, as chosen, each with that one: none."""
        return {}

    @cached_property
    def touching(self) -> list[list[Factor]]:
        """For each variable the exact tables that it is in."""
        out: list[list[Factor]] = [[] for _ in self.sizes]
        for factor in self.shared:
            for v in factor.scope:
                out[v].append(factor)
        return out


def _list_taken(use: Use) -> tuple[IntArray, OperandBlocks, IntArray]:
    """What a consumer needs, and what its operands take, by class of its layouts; and the class of each."""
    every = (use.numbers, *use.apart, *use.ways, *use.loose)
    rows, classes = list_classes(np.column_stack(every))
    need, *others = np.split(rows, len(every), axis=1)
    first, second = len(use.apart), len(use.apart) + len(use.ways)
    blocks = OperandBlocks(tuple(others[:first]) or (need,), tuple(others[first:second]), tuple(others[second:]))
    return need, blocks, classes
