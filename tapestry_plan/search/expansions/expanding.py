"""Which operators run better as their declarations expand them: rule out, try the likely ones, compare the rest.

::

    every operator with expansions
        │ rule_out       one bound over all of them (`dominance`): most are in no better plan
        ▼
    open, and phases     phases: what lies better only with its neighbors by phase, as dilated convolutions do
        │ try_phases     one graph in which all of these are expanded, in layouts near the plan's
        │ try_likely     one graph in which all are expanded that the bound expands: beside its plan fewer are open
        ▼
    still open           try_jointly: expansions and layouts as one sum (`joint`), then the variants that it names
        ▼
    the best of these plans, with a bound over all that was compared; the rest is `left_out`
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

import numpy as np
from msgspec.structs import replace

from tapestry_plan.ir import Graph, is_coarse
from tapestry_plan.search import tuning
from tapestry_plan.search.caps.by_memory import leave_out
from tapestry_plan.search.expansions.dominance import Undominated, find_expandable, find_undominated
from tapestry_plan.search.expansions.joint import JointProblem
from tapestry_plan.search.posing import Request, solve_graph, solve_problem
from tapestry_plan.search.prices.added import add_offered, asks_for_others, derive_layouts, offer_asked, offer_cuts
from tapestry_plan.search.prices.costs import TICKS_PER_SECOND, Asked, Problem, Variants
from tapestry_plan.search.solving import KeptLayouts, Solved, find_layouts
from tapestry_plan.search.sums.elimination import minimize
from tapestry_plan.search.writing import Candidate, name_layouts
from tapestry_plan.steps import Expansions, Layout


def compare_expansions(request: Request, planned: Candidate) -> tuple[Candidate, dict[str, Variants]]:
    """The best layouts of a graph or of what its expansions make of it, and the operators that have some.

    Parameters
    ----------
    request : Request
    planned : Candidate
        The graph as given.
    """
    if request.expand is False:
        return planned, {}
    search = _ExpansionSearch(request, planned)
    ways = (search.rule_out, search.try_phases, search.try_likely, search.drop_many, search.try_jointly)
    for k, way in enumerate(ways, 1):
        way()
        request.wanted.meter.tell("expansions", k, 1 + len(ways))
    return search.choose(), search.expandable


class _ExpansionSearch:
    """The expansions of one graph's operators, and what is known of them so far."""

    def __init__(self, request: Request, planned: Candidate) -> None:
        self.request = request
        self.work = max(tuning.MIN_TRYING_WORK, planned.work)
        """What trying variants may take, in entries of tables."""
        self.graph, self.problem = planned.problem.graph, planned.problem
        self.pinned = request.list_pinned(self.graph)
        self.expandable = find_expandable(self.graph, request.expand, request.fixed, request.kept)
        self.rest = dict(self.expandable)
        """Those of which nothing is said yet."""
        self.plan = planned
        """The layouts of the graph as given, or the best ones that the joint problem leads to."""
        self.other: Candidate | None = None
        """Better ones of a graph that was tried before that, in which `tried` are expanded."""
        self.tried: set[str] = set()
        self.base = planned.solved
        """What a plan of the joint problem has to be better than."""
        self.left = Undominated(frozenset(self.expandable), frozenset(), 0, 0)
        """What may be in a better plan, and the bound that says so."""
        self.asked = self.problem.asked
        """With the layouts that places say which are asked for, where operators are expanded."""
        self.laid = frozenset[str]()
        """Operators whose expansions these say layouts of."""
        self.whole = planned.blocks
        """The graph as given with these layouts."""
        self.by_phase = self.asked
        """With the layouts that expansions by phase want of others."""
        self.is_wide = False
        """Whether these are too many: then nothing is expanded by phase."""
        self.phases = {
            node for node in self.expandable if request.expand is True and not is_coarse(self.graph.signature(node))
        }
        self.open = frozenset[str]()
        """Those that are compared in the joint problem, `compared`."""
        self.compared: Variants | None = None
        self.solved: dict[tuple[tuple[str, str], ...], Candidate] = {}
        """Graphs that were solved with nothing known of them, by what is expanded into what: the ways meet again."""

    def rule_out(self) -> None:
        """Leave those expansions that may be in a plan better than the one that is there."""
        if not self.request.is_late:
            self._follow_places()
            wide, self.by_phase = self.whole, self.asked
            if self.phases:  # what their views ask for may be done in the graph as given too
                more = _offer_more(self._list_variants(self.phases), self.asked, self.pinned, self.request.stop)
                self.is_wide = more is None
                self.by_phase = more or self.asked
                wide = self.request.join(Problem(self.graph, self.by_phase))
            self.left = find_undominated(wide, self.expandable, self.plan.cost, self.base.bound_ticks, laid=self.laid)
        self.open = self.left.names - self.phases
        self.phases &= self.left.names

    def _follow_places(self) -> None:
        """Offer what is beside an expansion the layouts that places say through it, as its own problem will."""
        if not asks_for_others(self.problem):
            return
        some = self._list_variants(self.expandable.keys())
        offered = offer_asked(JointProblem(some, self.asked), self.request.fixed)
        more = {name: (*self.asked.derived.get(name, ()), *each) for name, each in offered.items()}
        added = [one for one in some.present if one.node.name in offered.keys() - self.graph.nodes.keys()]
        of = {some.choices[number].node for one in added for number, _ in one.given}
        self.laid = frozenset(of & self.expandable.keys())
        self.asked = replace(self.asked, derived={**self.asked.derived, **more})
        self.whole = self.request.join(Problem(self.graph, self.asked))

    def try_phases(self) -> None:
        """Try one graph of expansions by phase: that which costs least if nothing has to move."""
        if not self.phases or self.is_wide or not self.left.ticks or self.request.is_late:
            return
        some = self.phases & self.left.chosen or self.phases
        graph, expansions = _expand_all(self._list_variants(some))
        nearby = Problem(graph, self.by_phase)
        if self.plan.is_fused:
            found = solve_problem(self.request, nearby)
        else:
            choice = _solve_near(nearby, name_layouts(self.problem, self.plan.solved.choice))
            solved = Solved(choice, nearby.count_cost(choice)[0], 0, 0)
            found = Candidate.of(nearby, nearby, solved, self.request.fan_in)
        if self.request.is_better(found, self.plan):
            self.other, self.tried = replace(found, before=expansions, bound=self._bound(found)), some
            self.open, self.phases = self.left.names if self.other.bound < found.seconds else frozenset(), set()

    def try_likely(self) -> None:
        """Try another graph: beside a better plan less is undominated, often nothing."""
        likely = self.open & self.left.chosen
        many = len(self.open) > tuning.MAX_COMPARED
        if not likely or many or self.other is not None or self.request.is_late:
            return
        graph, expansions = _expand_all(self._list_variants(likely))
        found = self._solve(graph, expansions, self._list_known())
        if self.request.is_better(found, self.plan):
            some = {node: self.expandable[node] for node in self.open}
            known = self.left.kept
            self.left = find_undominated(self.whole, some, found.cost, self.base.bound_ticks, known, self.laid)
            self.base = replace(self.base, ticks=found.cost[0])
            self.other = replace(found, bound=self._bound(found))
            self.open, self.tried = self.left.names | likely if self.left.names else frozenset(), {*likely}

    def _solve(self, graph: Graph, expansions: tuple[Expansions, ...], known: KeptLayouts) -> Candidate:
        """The best layouts of a graph with some operators expanded."""
        key = tuple((one.node, one.chosen) for one in expansions if one.chosen is not None)
        found = None if known else self.solved.get(key)
        if found is None:
            found = solve_graph(self.request, graph, known)
            if not known:
                self.solved[key] = found
        return replace(found, before=expansions)

    def _list_known(self) -> KeptLayouts:
        """The layouts that plans with expansions may have; of blocks nothing is known, as expansions are apart."""
        return {} if self.plan.is_fused else self.left.kept

    def _bound(self, found: Candidate) -> float:
        """Seconds that no plan takes less than, where layouts of some expansions are the best that were found."""
        bound = min(found.seconds, self.left.ticks / TICKS_PER_SECOND)
        return min(bound, found.bound, self.plan.bound) if self.plan.is_fused else bound

    def drop_many(self) -> None:
        """Leave out phases that did not pay, and all that are open where they are many or the time is over."""
        if self.request.is_late or (self.request.expand is True and len(self.open) > tuning.MAX_COMPARED):
            self.phases = self.phases | self.open if self.other is None else set()
            self.open = frozenset()
        late = [leave_out(node, self.rest.pop(node)) for node in self.graph.nodes if node in self.phases]
        self.plan = replace(self.plan, after=(*self.plan.after, *late))

    def try_jointly(self) -> None:
        """Compare all that are open in one sum with the layouts, and try the variants that have the least one."""
        self.compared = self._list_variants(self.open) if self.open else None
        if self.compared is None or not self.compared.choices:
            return
        asked = self.asked
        if self.request.is_split and not self.request.is_late:
            asked = _offer_more(self.compared, asked, self.pinned, self.request.stop) or asked
        self.plan = self._try_variants(JointProblem(self.compared, asked).keep(self.left.kept))
        if self.other is not None and not self.request.is_better(self.plan, self.other):
            bound = min(self.other.seconds, max(self.other.bound, self.plan.bound))
            self.other = replace(self.other, bound=bound)

    def choose(self) -> Candidate:
        """The best layouts, which name what was not compared too."""
        best, compared, rest = self.plan, self.compared, self.rest
        if self.other is not None and not self.request.is_better(self.plan, self.other):
            best, compared = self.other, None
            rest = {node: each for node, each in rest.items() if node not in self.tried}
        best = replace(best, after=(*best.after, *_list_left_out(rest, compared)))
        return self._try_in_blocks(best) if self.request.fuse else best

    def _try_in_blocks(self, best: Candidate) -> Candidate:
        """The best layouts, or those of a graph whose expansions pay only in blocks, which no bound here has.

        All operators with expansions are tried together, then those that are alike, as far as little work goes, each
        time beside those that the best layouts expand.
        """
        chosen = [one.node for one in best.before if one.chosen is not None and one.node in self.expandable]
        alike: dict[int, list[str]] = {}
        for node, variants in self.expandable.items():
            if variants.choices:
                alike.setdefault(id(variants), []).append(node)
        together = [[node for group in alike.values() for node in group]] if len(alike) > 1 else []
        left = max(tuning.TRIED_IN_BLOCKS * self.plan.work, tuning.MIN_TRIED_IN_BLOCKS)
        plain = best
        for group in (*together, *alike.values()):
            # A graph takes at least what posing it does.
            if left < tuning.WORK_OF_OPERATOR * len(self.graph.nodes) or self.request.is_late:
                break
            group = list(dict.fromkeys((*chosen, *group)))
            if set(group) == set(chosen):
                continue
            graph, expansions = _expand_all(self._list_variants(group))
            found = self._solve(graph, expansions, {})
            left -= found.work
            if self.request.is_better(found, best):
                after = tuple(entry for entry in plain.after if entry.node not in group)
                best = replace(found, after=after, bound=min(found.bound, plain.bound))
        return best

    def _list_variants(self, nodes: Collection[str]) -> Variants:
        """The graphs in which some operators may be expanded."""
        return Variants(self.graph, self.request.expand, self.graph.nodes.keys() - nodes, self.request.kept)

    def _find_base(self) -> Solved:
        """What the least sum of the joint problem has to be below: in that one all operators are apart."""
        if not self.plan.is_fused:
            return self.base
        request = self.request
        apart = find_layouts(self.problem, seed=request.seed, stop=request.stop)
        known = [each.cost_apart[0] for each in (self.plan, self.other) if each is not None]
        return replace(apart, ticks=min(apart.ticks, *known))

    def _try_variants(self, joint: JointProblem) -> Candidate:
        """The layouts of the graph as given, or of a variant found cheaper, with the bound over all variants."""
        variants, base = joint.variants, self._find_base()
        found = joint.choose(base.entries, base.ticks, base.bound_ticks)
        lowest = found.bound_ticks / TICKS_PER_SECOND

        def tried(values: Sequence[int]) -> Candidate:
            graph, expansions = variants.build_graph(values)
            found = self._solve(graph, expansions, self._list_known())
            self.work -= found.work
            return found

        values = (0,) * len(variants.choices)
        best = replace(self.plan, before=(*variants.build_graph(values)[1], *self.plan.before))
        other = tried(found.values) if any(found.values) else best
        if found.exact:  # whatever has other values costs more than what is there
            lowest = max(lowest, min(other.bound, base.ticks / TICKS_PER_SECOND))
        if self.request.is_better(other, best):
            best, values = other, variants.normalize(found.values)
        moves = None if found.exact else _list_moves(variants, values)
        while moves and lowest < best.seconds and self.work > 0 and not self.request.is_late:
            if (move := next(moves, None)) is None:
                break
            if self.request.is_better(other := tried(move), best):
                best, moves = other, _list_moves(variants, move)
        # Every variant's bound holds for the variant alone, that of the joint problem for all that it has; other
        # variants are proven to cost more than the graph as given.
        if self.plan.is_fused:
            lowest = min(lowest, best.bound, self.plan.bound)
        return replace(best, bound=min(best.seconds, lowest))


def _list_moves(variants: Variants, values: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Other values of the choices: of all that are alike, then of one by one."""
    alike: dict[object, list[int]] = {}
    for number, choice in enumerate(variants.choices):
        if all(values[n] == wanted for n, wanted in choice.given):
            alike.setdefault(variants.kind(choice), []).append(number)
    together = [numbers for numbers in alike.values() if len(numbers) > 1]
    for numbers in (*together, *([number] for group in alike.values() for number in group)):
        for value in range(1 + len(variants.choices[numbers[0]].options)):
            moved = [value if number in numbers else old for number, old in enumerate(values)]
            if moved != list(values):
                yield variants.normalize(moved)


def _list_left_out(expandable: Mapping[str, Variants], some: Variants | None) -> list[Expansions]:
    """The operators of which no expansion can be in a better plan, or none was compared."""
    open_ = {choice.node for choice in some.choices} if some else set()
    without = {choice.node: choice for choice in some.without} if some else {}
    out = []
    for node, alone in expandable.items():
        if node not in open_:
            choice = without.get(node) or (*alone.choices, *alone.without)[0]
            out.append(Expansions(node, tuple(option.into for option in choice.options), left_out=choice.left_out))
    return out


def _expand_all(some: Variants) -> tuple[Graph, tuple[Expansions, ...]]:
    """The graph with each of some operators in its first expansion, and nothing in these."""
    return some.build_graph(some.normalize([int(not one.given) for one in some.choices]))


def _solve_near(problem: Problem, near: Mapping[tuple[str, str], Layout]) -> tuple[int, ...]:
    """The best layouts near those of another plan: its own, or ones that neighbors ask for.

    Of operators that it has not, those with the most parts to which nothing moves from one of these.
    """
    places = {at: place for place, at in problem.position.items()}
    kept = [np.arange(size) for size in problem.sizes]
    parts = [np.array([prod(one.parts) for one in variable.layouts]) for variable in problem.variables]
    known = {at for at, place in places.items() if near.get(place) in problem.variables[at].layouts}
    for at in known:
        layouts, asked = problem.variables[at].layouts, problem.asked.derived.get(places[at][1], ())
        kept[at] = np.array([row for row, one in enumerate(layouts) if one == near[places[at]] or one in asked])
    for cost in problem.tensors:
        for k, use in enumerate(cost.uses if cost.producer in known else ()):
            if use.variable not in known:
                moved = problem.count_pairs(cost, k)[kept[cost.producer]].min(axis=0)
                some = np.flatnonzero((moved == 0) & (parts[use.variable] == parts[use.variable].max()))
                kept[use.variable] = np.intersect1d(kept[use.variable], some) if some.size else kept[use.variable]
    kept = [rows if rows.size else np.arange(size) for rows, size in zip(kept, problem.sizes, strict=True)]
    close = problem.restrict(kept)
    found = minimize(close.sizes, close.factors(tuning.NEAR_FACTOR_ENTRIES)[0])
    return tuple(int(rows[value]) for rows, value in zip(kept, found.choice, strict=True))


def _offer_more(variants: Variants, asked: Asked, pinned: Collection[str], stop: float) -> Asked | None:
    """The same arguments with the layouts over split axes that the views of expansions ask for; None for too many."""
    reads = [(one.node, reading.names) for one in variants.present for reading in one.readings]
    offered = offer_cuts(variants.graph, asked.mesh.size, pinned, reads, asked.known)
    more = {name: each for name, each in offered.items() if name not in asked.derived}
    if not more:
        return asked
    if sum(map(len, more.values())) > tuning.MAX_CUTS:
        return None
    scout = JointProblem(variants, replace(asked, derived={**asked.derived, **more}))
    found = derive_layouts(scout, pinned, stop)
    derived = add_offered(more, {name: found.get(name, ()) for name in more})
    return replace(asked, derived={**asked.derived, **derived})
