"""The choice of expansions and of layouts as one sum of cost tables.

Each choice of an expansion is one more variable of the elimination. A table that counts only where choices have some
values is zero elsewhere, so what an expansion builds costs nothing where it was not chosen; and all of the 2ⁿ variants
of n operators are compared with each other in one elimination, whose bound holds for every one of them.

A softmax that may become five operators (choice 0, whose values are 0 for itself and 1 for the five)::

    x ──┬── softmax ───────────────────┐          choice 0 = 0
        └── max ── sub ── exp ── … div ┴── y      choice 0 = 1

    work of softmax     over (layout of softmax, choice 0)         zero where choice 0 = 1
    moving x to exp     over (layouts of x's maker, exp, choice 0) zero where choice 0 = 0
    moving y onward     over (layouts of div, y's reader, choice 0), and as much for softmax
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import OpNode, Stored
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.costs import Asked, Given, Problem, TensorCost, Use, Variants
from tapestry_plan.search.prices.moves import ANYHOW
from tapestry_plan.search.solving import KeptLayouts, list_rows
from tapestry_plan.search.sums.elimination import Factor, IntArray, minimize
from tapestry_plan.search.sums.pruning import find_marginals, is_worth_a_round
from tapestry_plan.search.sums.tables import Tables
from tapestry_plan.steps import Hosting, Hostings, list_hostings, list_stored

Case = tuple[Given, tuple[int, ...]]
"""Consumers of one tensor, by position, that it has where choices have some values."""


class ChosenExpansions(Struct, frozen=True):
    """Values of the choices, a proven lower bound over all of them, and whether the values are the best ones."""

    values: tuple[int, ...]
    bound_ticks: int
    exact: bool


ANYWHERE = Hosting(gathered=True, viewed=True, rows=True)
"""Of a tensor whose blocks may be made wherever they are read."""


class JointProblem(Problem):
    """The choice of expansions and layouts as variables and exact cost tables.

    Parameters
    ----------
    variants : Variants
    asked : Asked
        Operators that are in its `fix` or `forbid` have no expansions.
    """

    def __init__(self, variants: Variants, asked: Asked) -> None:
        self.variants = variants
        self.present = {present.node.name: present for present in variants.present}
        self.read: list[tuple[Given, OpNode, dict[str, IntArray]]] = []
        super().__init__(variants.graph, asked)
        self.values = [np.arange(1 + len(choice.options)) for choice in variants.choices]
        """The values of each choice, ascending, that are not left out."""
        self.sizes += map(len, self.values)

    # -- where problems of one graph have one answer -----------------------------------------------------

    def _list_operators(self) -> list[OpNode]:
        return [present.node for present in self.variants.present]

    @cached_property
    def open(self) -> frozenset[str]:
        """Tensors of which choices say who makes or reads them: what is made in what is not known of them."""
        found: set[str] = set()
        for present in self.variants.present:
            found.update(present.node.outputs if present.given else ())
            for reading in present.readings:
                if present.given or reading.given:
                    found.update(list_stored(self.graph, reading.names))
        return frozenset(found)

    @cached_property
    def hostings(self) -> Hostings:
        """Where tensors' blocks may be made; in any that they may be in some variant."""
        if self.asked.apart:
            return {}
        return {**list_hostings(self.graph), **dict.fromkeys(self.open, ANYWHERE)}

    def _list_uses(self, node: OpNode, at: int, given: Given = ()) -> Iterator[tuple[Use, str]]:
        for use, name in super()._list_uses(node, at, given):
            is_open = name in self.open and not self.asked.apart
            yield (use.loosen(self.known.share, ANYHOW) if is_open else use), name

    def stored_as(self, result: str) -> str:
        """The stored tensor that a result stands for."""
        return self.variants.stored(result)

    def list_readings(self, node: OpNode) -> Sequence[Sequence[str]]:
        """The names that an operator reads, of each choice of expansions."""
        return [reading.names for reading in self.present[node.name].readings]

    def stored_of(self, label: str) -> Sequence[str]:
        """The stored tensors behind a graph output, whatever is chosen."""
        found = list_stored(self.graph, (reading.names[0] for reading in self.variants.results[label]))
        return list(dict.fromkeys(map(self.stored_as, found)))

    def _cost_of(self, node: OpNode, output: int, tensor: Stored) -> TensorCost:
        return replace(super()._cost_of(node, output, tensor), given=self.present[node.name].given)

    def _add_uses(self, node: OpNode) -> None:
        at = self.position["operator", node.name]
        for reading in self.present[node.name].readings:
            reads = replace(node, inputs=reading.names)
            self.read.append((reading.given, node, self._number_read(reads)))
            for use, name in self._list_uses(reads, at, reading.given):
                self.uses[self.stored_as(name)].append(use)

    def _add_outputs(self) -> None:
        for readings in self.variants.results.values():
            for reading in readings:
                for name in map(self.stored_as, self.graph.source(reading.names[0]).stored):
                    position = self.position.get(("output", name))
                    if position is not None:
                        self.uses[name].append(self._output_use(name, position, reading.given))

    # -- tables ------------------------------------------------------------------------------------------

    def _settle_landing(self, cost: TensorCost) -> None:
        """Keep a landing where each consumer alone can be counted with it, so that the bound holds for all choices."""
        if cost.landing is not None:
            most = max((self.sizes[use.variable] for use in cost.uses), default=1)
            if self.sizes[cost.producer] * self.sizes[cost.landing.variable] * most > self._count_room(cost):
                cost.landing = None

    def _own_tables(self) -> list[Factor]:
        out = []
        for given, node, read in self.read:
            ticks = self._node_ticks(node, read)
            out.append(self._restrict(given, self._own_table(self.position["operator", node.name], ticks)))
        return out

    def _add_tables(self, cost: TensorCost, tables: Tables) -> None:
        """The tables of one tensor, each where choices are so that the tensor is made and read as it counts.

        Its consumers share what they have received, and which of them there are depends on choices. So there is a table
        for each consumer and each set of consumers before it: ``_list_cases`` lists them. With too many cases all
        consumers are counted one by one; where tables are too large, those of these cases are.
        """
        if self._conjoin(cost.given, ()) is None:
            return
        steps, cases = self._list_cases(cost)
        tables.shared += [self._restrict(cost.given, table) for table in self._landing_tables(cost)]
        if cases is None:
            both = ((self._conjoin(cost.given, use.given), k) for k, use in enumerate(cost.uses))
            single: list[Case] = [(given, (k,)) for given, k in both if given is not None]
            tables.count_alone(self._count_alone(cost, single))
        elif all(self._fits(cost, active, self._numbers(given)) for given, active in steps):
            tables.shared += self._count_cases(cost, steps)
        else:
            for given, active in cases:
                if all(self._fits(cost, active[: k + 1], self._numbers(given)) for k in range(len(active))):
                    tables.shared += self._count_cases(cost, [(given, active[: k + 1]) for k in range(len(active))])
                else:
                    each = self._count_alone(cost, [(given, (k,)) for k in active])
                    tables.count_alone(each)

    def _count_cases(self, cost: TensorCost, cases: Sequence[Case]) -> list[Factor]:
        """What the last consumer of each case receives, as the ones before it have received theirs."""
        return [self._restrict(given, self._factor(cost, active)) for given, active in cases]

    def _count_alone(self, cost: TensorCost, cases: Sequence[Case]) -> list[Factor]:
        """The same of consumers one by one, whatever the others have received."""
        alone = self.list_alone(cost)
        return [self._restrict(given, alone[k]) for given, (k,) in cases]

    def _list_cases(self, cost: TensorCost) -> tuple[list[Case], list[Case] | None]:
        """The consumers that a tensor has, one after another, each step with the choices that decide so far.

        Also the steps that are the last ones, which share no choices and leave none out; None if there are too many.
        A tensor that a reads always, b where choice 0 is 1, and c where it is 0::

            a ─┬─ 0 is 1 ── a b        steps  a, a b | 0 is 1, a c | 0 is 0
               └─ 0 is 0 ── a c        cases  a b | 0 is 1, a c | 0 is 0
        """
        # A walk over that tree: at each consumer either its condition is decided, or the walk forks on the first choice
        # of the condition that is open.
        steps: list[Case] = []
        cases: list[Case] = []
        stack: list[tuple[int, Given, tuple[int, ...]]] = [(0, cost.given, ())]
        while stack:
            k, given, active = stack.pop()
            if k == len(cost.uses):
                cases.append((given, active))
                if len(cases) > tuning.MAX_CASES:
                    return steps, None
                continue
            use, values = cost.uses[k], dict(given)
            again = any(cost.uses[other].variable == use.variable for other in active)
            if again or self._conjoin(given, use.given) is None:
                stack.append((k + 1, given, active))
                continue
            undecided = next((number for number, _ in use.given if number not in values), None)
            if undecided is None:
                steps.append((given, (*active, k)))
                stack.append((k + 1, given, (*active, k)))
            else:
                stack += [(k, (*given, (undecided, value)), active) for value in self.values[undecided].tolist()]
        return steps, cases

    def _conjoin(self, one: Given, two: Given) -> Given | None:
        """Both conditions; None where they exclude each other, or need a value that is left out."""
        values = dict(one)
        if any(values.setdefault(number, value) != value for number, value in two):
            return None
        if any(value not in self.values[number] for number, value in values.items()):
            return None
        return tuple(values.items())

    def _numbers(self, given: Given) -> Iterator[int]:
        """The choices of a condition as variables of the elimination."""
        return (len(self.variables) + number for number, _ in given)

    def _restrict(self, given: Given, factor: Factor) -> Factor:
        """A table that counts where choices have some values, zero elsewhere."""
        if not given:
            return factor
        rows = (int(np.searchsorted(self.values[number], value)) for number, value in given)
        wanted = dict(sorted(zip(self._numbers(given), rows, strict=True)))
        numbers, values = tuple(wanted), tuple(wanted.values())
        sizes = tuple(self.sizes[v] for v in numbers)
        identity = self.known.identity
        key = "restricted", identity(factor.ticks), identity(factor.nbytes), sizes, values

        def made() -> tuple[IntArray, IntArray]:
            shape = (*factor.ticks.shape, *sizes)
            ticks, nbytes = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
            at: tuple[Any, ...] = (..., *values)
            ticks[at], nbytes[at] = factor.ticks, factor.nbytes
            return ticks, nbytes

        return Factor((*factor.scope, *numbers), *self.known.fact(key, made))

    # -- solving -----------------------------------------------------------------------------------------

    def keep(self, kept: KeptLayouts) -> Self:
        """The same problem without layouts that are in no better plan, as was proved of a graph without expansions.

        Parameters
        ----------
        kept : mapping
            By kind and name of a variable its layouts there, and the rows of those that are kept. Nothing is left out
            where a variable has other layouts here, as who has these may have others around it.
        """
        rows = list_rows(self, kept)
        return self if rows is None else self.restrict([*rows, *(np.arange(len(values)) for values in self.values)])

    def restrict(self, kept: Sequence[IntArray]) -> Self:
        """The same problem with some layouts of each variable and some values of each choice, as its only ones."""
        made = super().restrict(kept)
        some = kept[len(self.variables) :]
        made.values = [values[rows] for values, rows in zip(self.values, some, strict=True)]
        return made

    def choose(self, entries: int, ticks: int, bound_ticks: int) -> ChosenExpansions:
        """The expansions of the cheapest plan: of equally cheap ones those with the fewest.

        Parameters
        ----------
        entries : int
            Of the tables of the graph as given; those of this problem are split where they would be many more.
        ticks, bound_ticks : int
            What a plan that is there costs, and no more than any plan of the graph as given costs, in picoseconds.
        """
        total = min(tuning.MAX_ENTRIES, max(tuning.MIN_JOINT_ENTRIES, tuning.JOINT_ENTRIES_FACTOR * entries))
        cap = min(tuning.MAX_TABLE_ENTRIES, total // 4)
        now, lowest = self, 0
        search, bound = now.factors(tuning.FIRST_FACTOR_ENTRIES)
        while True:
            growth = 1 if now.entries == tuning.MAX_FACTOR_ENTRIES else tuning.PRUNING_GROWTH
            widest = tuning.MAX_PRUNING_ENTRIES // growth
            marginals = find_marginals(now.sizes, bound, cap=widest, most=ticks, stop=now.asked.stop)
            # A plan has an expansion, or it is one of the graph as given. What was left out costs more than `ticks`.
            mine = zip(marginals.least[len(self.variables) :], now.values, strict=True)
            expanded = [int(least[values > 0].min()) for least, values in mine if values[-1] > 0]
            lowest = max(lowest, min(ticks, max(marginals.bound_ticks, min([bound_ticks, *expanded]))))
            kept = marginals.list_kept(ticks)
            if not all(map(len, kept)):  # whatever is here costs more
                return ChosenExpansions((0,) * len(self.values), max(lowest, min(ticks, bound_ticks)), exact=True)
            if all(len(some) == 1 for some in kept[len(self.variables) :]):
                return ChosenExpansions(now._first_values(kept), lowest, exact=True)
            is_last = now.entries == tuning.MAX_FACTOR_ENTRIES and not is_worth_a_round(now.sizes, kept)
            if is_last or (marginals.exact and bound is search):
                found = now._choose_in(search, cap, total)
                if found.exact and bound is search:
                    return found
                if is_last:
                    return replace(found, bound_ticks=lowest, exact=False)
            now = now.restrict(kept)
            search, bound = now.factors()

    def _choose_in(self, search: list[Factor], cap: int, total: int) -> ChosenExpansions:
        found = minimize(self.sizes, self._count_expansions(search), cap=cap, total=total)
        rows = zip(self.values, found.choice[len(self.variables) :], strict=True)
        return ChosenExpansions(tuple(int(values[row]) for values, row in rows), found.bound_ticks, found.exact)

    def _first_values(self, kept: Sequence[IntArray]) -> tuple[int, ...]:
        rows = zip(self.values, kept[len(self.variables) :], strict=True)
        return tuple(int(values[some[0]]) for values, some in rows)

    def _count_expansions(self, factors: list[Factor]) -> list[Factor]:
        """Tables whose bytes count expansions too, behind them, so that ties go to fewer expansions."""
        many = len(self.variants.choices) + 1
        if many * sum(int(factor.nbytes.max()) for factor in factors) >= tuning.MAX_COUNTED:
            return factors
        out = [Factor(factor.scope, factor.ticks, factor.nbytes * many) for factor in factors]
        for number in range(len(self.variants.choices)):
            at = len(self.variables) + number
            counted = np.minimum(self.values[number], 1)
            out.append(Factor((at,), np.zeros(self.sizes[at], np.int64), counted))
        return out
