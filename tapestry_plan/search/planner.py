"""From a graph and a mesh to a shard plan: the least sum of exact cost tables, written down as steps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from math import inf, prod

import numpy as np
from msgspec.structs import replace

from tapestry_plan.ir import Axis, Graph, OpNode
from tapestry_plan.rewrite import Draft, fix_bits, split_axes, unify_equal
from tapestry_plan.search import tuning
from tapestry_plan.search.apart import may_be_better_apart
from tapestry_plan.search.arguments import (
    MENDS,
    CapOptions,
    Options,
    check_least,
    check_names,
    check_same_bits,
    parse_expand,
    parse_tie,
    with_options,
)
from tapestry_plan.search.by_memory import PlansByMemory, choose_space, keeps, leave_out
from tapestry_plan.search.dominance import Undominated, find_expandable, find_undominated
from tapestry_plan.search.fusing import Pick, fuse_neighbors, fuse_plan
from tapestry_plan.search.joint import JointProblem
from tapestry_plan.search.prices.cost import TICKS_PER_SECOND
from tapestry_plan.search.prices.derived import derive_layouts
from tapestry_plan.search.prices.offers import offer_asked
from tapestry_plan.search.prices.problem import Asked, Known, Moved, Problem
from tapestry_plan.search.prices.splits import Split, add_offered, derive_splits, offer_cuts
from tapestry_plan.search.prices.variants import Variants, is_coarse
from tapestry_plan.search.solving import Solved, solve
from tapestry_plan.search.sums.elimination import minimize
from tapestry_plan.steps import (
    Alike,
    Alternative,
    Choices,
    Expansions,
    Layout,
    Lowered,
    Mesh,
    OnDemand,
    ShardPlan,
    Stage,
    Written,
    lower,
    lower_alike,
    pack,
    tell_rule,
    unite,
)
from tapestry_sets.limits import FrozenDict, check_arguments, put_fields
from tapestry_sets.regions import Box, DisjointRegions


@check_arguments(**MENDS, memory_nbytes="give a number of bytes")
@with_options(CapOptions)
def plan(graph: Graph, mesh: Mesh, options: CapOptions) -> ShardPlan:
    """Choose the shards of every operator, and write down every step.

    Plans are compared by seconds, then by bytes moved, then by the bytes of inputs and constants that lie on devices
    from the start; where the bound is met, no plan of its space is better in this order.

    Parameters
    ----------
    graph : Graph
        One without operators has a plan without stages, which moves nothing but what `placement` and `tie` ask for.
    mesh : Mesh
    memory_nbytes : int, optional
        Bytes that a device's arena may have, beside what `Device.memory_nbytes` says of each: the smaller one counts.
        Where the fastest plan needs more, slower plans are searched that need less: of the graph as given, of it as the
        fastest plan expands it, and with operators that run again for late readers, so that their results need not wait
        (`ShardPlan.recomputed`). `bound` and `gap` are of such plans that keep the caps. Without either, `spill` makes
        any plan fit that can fit.
    seed : int
        Of the order of improving moves, which are made where tables would not fit.
    time_limit_seconds : float, optional
        Of the whole call. The best plan that was found by then is given, with its gap; expansions that there was no
        time for are `left_out`, as `ShardPlan.expansions` says. Tables of pairs, one pass over them and writing down
        the steps take their time in any case. Without it there is no limit, but improving moves are made for 5 seconds
        at most, and expansions tried one after another no longer than a second, or than planning the graph as given
        took.
    placement : "free" or "single"
        Whether inputs and weights start where the plan wants them, replicas included, or in one copy.
    layout : mapping, optional
        Graph inputs, constants and outputs by name: tensor axis -> parts or mesh axes, as in ``{"x": {0: 4}}``, or a
        `Placed`, which says the boxes that each device has, as in ``{"x": Placed({0: np.s_[:3], 1: np.s_[3:]})}``.
    fix, forbid : mapping, optional
        Operators by name: index axis -> parts or mesh axes. Both say a whole sharding: axes that are not
        named stay whole, so ``forbid={"conv": {"h": 2}}`` leaves ``{"h": 2, "w": 2}`` allowed.
    tie : mapping of str to str, optional
        Graph outputs by name: the input or constant that takes its place in the next run, as in
        ``{"new_w": "w"}``. The output is brought to where the input lies, replicas included, in a layout that the plan
        chooses, or that `layout` asks for under either name.
    fan_in : int, optional
        How many partial results of a sharded reduction are merged at a time, in a tree of neighbors; by default
        they are merged one after the other. Either way the order is that of the parts, whoever made them. They are
        merged by who reads them, or they land first: each device merges a share, in a stage ``landing x`` of its own,
        and others read the shares.
    expand : bool or collection of str
        Which operators are compared with the ways in which their declarations say them in other ones. By default
        those a point of whose index space reads or writes several cells, such as a softmax, whose shards are whole
        rows, and dilated convolutions, whose phases share no rows (`space_to_batch`); with names, as in
        ``["exp_sum"]``, the operators that list expansions of these names; with False none.
        By default, and with "split_axes" among the names, layouts over more index axes are compared too where a
        neighbor's view asks an operator that works cell by cell for phases (`tapestry_plan.rewrite.split_axes`).
        What an expansion builds may be expanded in turn. A plan whose operators were expanded is of the rewritten
        graph, and takes less time, or the same time with fewer bytes, than the plan of the graph as given;
        `ShardPlan.expansions` says what was compared, and `ShardPlan.derivation` how the graph was rewritten.
        Operators in `fix` or `forbid` are not expanded, nor is one into a view whose layout is asked for. What
        stands for an operator runs where the operator would. The work grows with the number of operators, not with
        that of the graphs that they make. The bound is over all of these graphs, and its tables are not let grow to
        much more than those of the graph as given. Expansions are compared in full only where they may lower that
        bound, as one pass over the graph proves: where the graph as given has a gap, what might only narrow it from
        above is not tried.
        Where an operator would be read through more than 32 combinations of views, the deepest expansions are left
        out, and by default all are where more than 24 operators have some that may pay, as `ShardPlan.expansions` says;
        names have them compared. So are phases that may pay, but for one graph, in which they lie with their neighbors.
    space : "mesh" or "all", optional
        The layouts that are compared; `ShardPlan.space` says which, and `ShardPlan.bound` holds over them. "mesh": each
        axis of the mesh cuts one index axis, holds replicas, or idles, so that 64 devices as (8, 8) have as few layouts
        as 4 as (2, 2). "all": every factorization of the number of devices, over any index axes in any order, whatever
        the mesh's axes, and along an axis of fewer points than devices as many parts as points; how many there are
        grows fast with the devices. By default "all" up to 8 devices, "mesh" for more, and for a mesh that has a link
        for each axis. `fix` and `layout` may ask for layouts of either.
    same_bits : bool
        Whether results have the same bits on any number of devices. Operators that round and do not work cell by cell
        then work in leaves, blocks of one size that follow from the operator alone (`tapestry_plan.rewrite.leaves`):
        the plan's graph has these. Parts begin between leaves, a reduction is cut into equal parts, and partial results
        are merged two by two; no operator is expanded, for that depends on the mesh. What it costs is in the plan.
        The same backend and libraries are needed, the BLAS on as many threads.
    unify : bool
        Whether constants of equal content are one, and operators that do the same with the same operands run once;
        `ShardPlan.unified` says which, and `ShardPlan.derivation` how. What `fix`, `forbid`, `layout` and `tie` name
        stays apart from others. Where bytes would have to move because a result is there once, the graph as given is
        planned too, without expansions, and the better plan taken; the bound is over both then. Of more than 64
        operators it is only if other layouts of equal ones, and of those beside them, take less time so. Under a cap
        the graph as given is planned where no plan of the other one is found. Constants are compared as they are when
        the graph is planned: a run of a plan raises ValueError where one of them was written to since.

    fuse : bool
        Whether an operator and the one that alone reads its result are one block where each device makes just what it
        reads itself, and that is modeled to take less time: what is between them is not stored, and one launch does
        for both. `ShardPlan.fused` says which; a block has the name of its last operator. The bound is then of such
        plans too, but for expansions that were not chosen, whose operators are apart in it, as those are of plans that
        keep a cap which the fastest plan does not. What `fix`, `forbid` and `layout` name stays apart.

    Returns
    -------
    ShardPlan

    Raises
    ------
    InfeasiblePlan
        When `forbid` leaves nothing, or every plan is proved to need more memory than given; `InfeasiblePlan.fastest`
        is the plan without a cap then.
    NotFound
        When no plan was found that keeps the cap, though there may be one: it says what was tried.
    ValueError
        For unknown names, axes and values.

    Examples
    --------
    >>> from tapestry_plan import (Graph, Mesh, plan)
    >>> g = Graph()
    >>> x, w = g.input("x", (64, 64)), g.input("w", (64, 64))
    >>> y = g.output(x @ w)
    >>> p = plan(g, Mesh((4,)))
    >>> sorted(p.placement["matmul"]), p.nbytes_moved, p.gap
    ([0, 1, 2, 3], 0, 0.0)
    """
    planned = prepare(graph, mesh, options, options.memory_nbytes)
    return planned.within(mesh.limit_memory(options.memory_nbytes))


def prepare(graph: Graph, mesh: Mesh, options: Options, memory_nbytes: int | None = None) -> PlansByMemory:
    """The fastest plan, from which those are found that need less memory; as `plan`, whose options these are."""
    began = time.monotonic()
    layout, fix, forbid = options.layout or {}, options.fix or {}, options.forbid or {}
    seed, fan_in, time_limit_seconds = options.seed, options.fan_in, options.time_limit_seconds
    stop = inf if time_limit_seconds is None else began + time_limit_seconds
    check_least("time_limit_seconds", time_limit_seconds, "seconds >= 0, or None", 0)
    check_least("memory_nbytes", memory_nbytes, "a number of bytes, an integer >= 0", 0)
    check_least("fan_in", fan_in, "an integer >= 2, or None", 2)
    check_names(graph, layout, fix, forbid)
    tie = parse_tie(graph, mesh, options.tie, layout)
    names = parse_expand(graph, options.expand)
    caps = mesh.limit_memory(memory_nbytes)
    graph.validate()
    if options.same_bits:
        names, fan_in = check_same_bits(options.expand, fan_in)
        graph = fix_bits(graph)

    kept = [graph.outputs[label] for label in (*layout, *tie) if label in graph.outputs]
    given, unified = graph, dict[str, str]()
    if options.unify:
        named = {*fix, *forbid, *layout, *tie.values(), *_list_makers(graph, kept)}
        graph, unified = unify_equal(graph, named)
    # Beside that, equal operators may stay apart; constants cost nothing to be one where they start anywhere.
    apart, still = (
        unify_equal(given, named, operators=False) if unified and options.placement == "free" else (given, {})
    )
    wanted = Asked(mesh, options.placement, layout, fix, forbid, options.space or choose_space(mesh), tie)

    is_split = names is True or (names is not False and split_axes.name in names)

    def solved(one: Graph, seconds: float, is_split: bool = is_split) -> tuple[ShardPlan, Problem, Solved]:
        """The best plan of one graph, its problem, and how it was solved."""
        in_time = time.monotonic() < stop
        stay = {*fix, *forbid, *_list_makers(one, kept)}
        offered = offer_cuts(one, mesh.size, stay, known=wanted.known) if is_split and in_time else {}
        problem = Problem(one, replace(wanted, derived=offered))
        derived = _derive(problem, {*fix, *forbid}, stop) if in_time else {}
        if derived or offered:
            problem = Problem(one, replace(wanted, derived={**derived, **add_offered(offered, derived)}))
        found = solve(problem, seed=seed, time_limit_seconds=seconds, stop=stop)
        made = _write_down(problem, found.choice, found.bound_ticks, fan_in)
        if is_split and not in_time:
            late = derive_splits(one, mesh.size).items()
            left_out = [Expansions(name, (), left_out=tuple(map(_name_split, each))) for name, each in late]
            made = replace(made, expansions=(*made.expansions, *left_out))
        return made, problem, found

    def is_better(one: ShardPlan, than: ShardPlan) -> bool:
        fits = keeps(one, caps) or not keeps(than, caps)
        return fits and _cost_of(one) < _cost_of(than)

    limit = tuning.IMPROVING_SECONDS if time_limit_seconds is None else time_limit_seconds
    result, problem, found = solved(graph, limit)
    lowest = None  # the bound of what is not taken of the graph with equal ones unified and that with them apart
    if time.monotonic() < stop and may_be_better_apart(apart, unified, problem, found):
        beside = solved(apart, limit)
        lowest = beside[2].bound_ticks
        if is_better(beside[0], result):
            graph, unified, lowest = apart, still, found.bound_ticks
            result, problem, found = beside
    if time_limit_seconds is None:
        limit = min(limit, max(tuning.MIN_TRYING_SECONDS, time.monotonic() - began))
    limit = min(limit, stop - time.monotonic())
    expandable: dict[str, Variants] = {}
    if names is not False:
        expandable = find_expandable(graph, names, {*fix, *forbid}, kept)
        pinned = {*fix, *forbid, *_list_makers(graph, kept)}
        left, rest = Undominated(frozenset(expandable), frozenset(), 0, 0), dict(expandable)
        phases = {node for node in expandable if names is True and not is_coarse(graph.signature(node))}
        if time.monotonic() < stop:
            wide, asked = problem, problem.asked
            if phases:  # what their views ask for may be done in the graph as given too
                asked = _offer_more(Variants(graph, names, graph.nodes.keys() - phases, kept), asked, pinned)
                wide = Problem(graph, asked)
            left = find_undominated(wide, expandable, (found.ticks, result.nbytes_moved), found.bound_ticks)
        undominated, phases = left.names - phases, phases & left.names
        tried, won = phases & left.chosen or phases, None
        if phases and left.ticks and time.monotonic() < stop:
            # One graph is tried: that which costs least if nothing has to move.
            some = Variants(graph, names, graph.nodes.keys() - tried, kept)
            other = _try_by_phase(problem, found.choice, some, asked, fan_in)
            if is_better(other, result):
                won = replace(other, bound=min(other.seconds, left.ticks / TICKS_PER_SECOND))
                undominated, phases = left.names if won.gap else frozenset(), set()
        base, likely = found, undominated & left.chosen
        if likely and won is None and time.monotonic() < stop and len(undominated) <= tuning.MAX_COMPARED:
            # Another one: beside a better plan less is undominated, often nothing.
            made, expansions = _expand_all(Variants(graph, names, graph.nodes.keys() - likely, kept))
            other = solved(made, limit)[0]
            if is_better(other, result):
                base = replace(found, ticks=round(other.seconds * TICKS_PER_SECOND))
                some_left = {node: expandable[node] for node in undominated}
                left = find_undominated(problem, some_left, (base.ticks, other.nbytes_moved), found.bound_ticks)
                bound = min(other.seconds, left.ticks / TICKS_PER_SECOND)
                won = replace(other, expansions=(*expansions, *other.expansions), bound=bound)
                undominated, tried = left.names | likely if left.names else frozenset(), {*likely}
        if time.monotonic() >= stop or (names is True and len(undominated) > tuning.MAX_COMPARED):
            phases, undominated = phases | undominated if won is None else set(), frozenset()
        late = [leave_out(node, rest.pop(node)) for node in graph.nodes if node in phases]
        result = replace(result, expansions=(*result.expansions, *late))
        compared = Variants(graph, names, graph.nodes.keys() - undominated, kept) if undominated else None
        if compared is not None and compared.choices:
            more = is_split and time.monotonic() < stop
            joint = JointProblem(compared, _offer_more(compared, problem.asked, pinned) if more else problem.asked)
            joint = joint.keep(left.kept)
            result = _try_variants(result, joint, lambda one, left: solved(one, left)[0], is_better, base, limit)
            if won is not None and not is_better(result, won):
                won = replace(won, bound=min(won.seconds, max(won.bound, result.bound)))
        if won is not None and not is_better(result, won):
            result, compared, rest = won, None, {node: each for node, each in rest.items() if node not in tried}
        result = replace(result, expansions=(*result.expansions, *_list_left_out(rest, compared)))
    bound = result.bound if lowest is None else min(result.bound, lowest / TICKS_PER_SECOND)
    result = replace(result, unified=unified, bound=bound)
    if (
        options.fuse
        and time.monotonic() < stop
        and not (result.expanded and any(one.split for one in result.expansions))
    ):
        below = (problem, found) if not result.expanded else solved(result.graph, limit)[1:]
        result = fuse_plan(
            result,
            *below,
            {*fix, *forbid, *_list_makers(graph, kept)},
            write=lambda choice, picks: _write_down(below[0], choice, 0, fan_in, picks=picks),
            is_better=is_better,
            again=lambda one: solve(one, seed=seed, time_limit_seconds=limit, stop=stop),
        )

    def pose(one: Graph) -> tuple[Problem, Solved]:
        if one is graph and not is_split:
            return problem, found
        plain = Problem(one, wanted)
        if derived := _derive(plain, {*fix, *forbid}, stop) if time.monotonic() < stop else {}:
            plain = Problem(one, replace(wanted, derived=derived))
        if one is graph and plain.sizes == problem.sizes:
            return problem, found
        return plain, solve(plain, seed=seed, time_limit_seconds=limit, stop=stop)

    return PlansByMemory(
        result,
        pose,
        (graph, given) if unified else (graph,),
        expandable,
        {*fix, *forbid, *_list_makers(graph, kept)},
        stop,
        write=lambda problem, choice, bound, caps, lowered: _write_down(
            problem, choice, bound, fan_in, caps, lowered=lowered
        ),
        lower=lambda problem, choice: _lower(problem, choice, fan_in),
    )


def _derive(problem: Problem, pinned: Collection[str], stop: float) -> dict[str, tuple[Layout, ...]]:
    """The layouts that neighbors, and places that are asked for, say beyond those that operators have."""
    found, asked = derive_layouts(problem, pinned, stop), offer_asked(problem, pinned)
    return {name: tuple(dict.fromkeys((*found.get(name, ()), *asked.get(name, ())))) for name in {**found, **asked}}


def _try_variants(
    whole: ShardPlan,
    joint: JointProblem,
    solved: Callable[[Graph, float], ShardPlan],
    is_better: Callable[[ShardPlan, ShardPlan], bool],
    base: Solved,
    time_limit_seconds: float,
) -> ShardPlan:
    """The plan of the graph as given, or of a variant that is found cheaper, with the bound over all variants."""
    variants = joint.variants
    found = joint.choose(base.entries, base.ticks, base.bound_ticks)
    stop = time.monotonic() + time_limit_seconds
    lowest = found.bound_ticks / TICKS_PER_SECOND

    def tried(values: Sequence[int]) -> ShardPlan:
        graph, expansions = variants.build_graph(values)
        one = solved(graph, max(0.0, stop - time.monotonic()))
        return replace(one, expansions=(*expansions, *one.expansions))

    values = (0,) * len(variants.choices)
    best = replace(whole, expansions=(*variants.build_graph(values)[1], *whole.expansions))
    other = tried(found.values) if any(found.values) else best
    if found.exact:  # whatever has other values costs more than what is there
        lowest = max(lowest, min(other.bound, base.ticks / TICKS_PER_SECOND))
    if is_better(other, best):
        best, values = other, variants.normalize(found.values)
    moves = None if found.exact else _moves(variants, values)
    while moves and lowest < best.seconds and time.monotonic() < stop and (move := next(moves, None)):
        if is_better(other := tried(move), best):
            best, moves = other, _moves(variants, move)
    # Every variant's bound holds for the variant alone, that of the joint problem for all that it has; other variants
    # are proven to cost more than the graph as given.
    return replace(best, bound=min(best.seconds, lowest))


def _cost_of(plan: ShardPlan) -> tuple[float, int, int]:
    """What plans are compared by: seconds, bytes moved, bytes that lie on devices from the start."""
    return plan.seconds, plan.nbytes_moved, sum(plan.nbytes_placed)


def _moves(variants: Variants, values: Sequence[int]) -> Iterator[tuple[int, ...]]:
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


def _chosen(problem: Problem, node: OpNode, choice: Sequence[int]) -> Layout:
    at = problem.position["operator", node.name]
    return problem.variables[at].layouts[choice[at]]


def _lower(problem: Problem, choice: Sequence[int], fan_in: int | None) -> Lowered:
    """The steps of chosen layouts."""
    return lower(problem.graph, problem.mesh, _name_choices(problem, choice, fan_in), reads=problem.reads)


def _name_choices(problem: Problem, choice: Sequence[int], fan_in: int | None) -> Choices:
    """The same, with what was asked for."""
    layouts = _name_layouts(problem, choice).items()
    landed = {place: layout for place, layout in layouts if any(layout.cells) or place[0] != "landing"}
    return Choices(landed, tuple(sorted(problem.asked_outputs)), fan_in)


def _name_layouts(problem: Problem, choice: Sequence[int]) -> dict[tuple[str, str], Layout]:
    """The chosen layouts, by what has them."""
    return {place: problem.variables[at].layouts[choice[at]] for place, at in problem.position.items()}


def _expand_all(some: Variants) -> tuple[Graph, tuple[Expansions, ...]]:
    """The graph with each of some operators in its first expansion, and nothing in these."""
    return some.build_graph(some.normalize([int(not one.given) for one in some.choices]))


def _try_by_phase(
    problem: Problem, choice: Sequence[int], some: Variants, asked: Asked, fan_in: int | None
) -> ShardPlan:
    """The graph with all of some operators expanded, in layouts near those of another plan; without a bound."""
    graph, expansions = _expand_all(some)
    nearby = Problem(graph, asked)
    found = _write_down(nearby, _solve_near(nearby, _name_layouts(problem, choice)), 0, fan_in)
    return replace(found, expansions=(*expansions, *found.expansions))


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


def _offer_more(variants: Variants, asked: Asked, pinned: Collection[str]) -> Asked:
    """The same arguments with the layouts over split axes that the views of expansions ask for."""
    reads = [(one.node, reading.names) for one in variants.present for reading in one.readings]
    offered = offer_cuts(variants.graph, asked.mesh.size, pinned, reads, asked.known)
    more = {name: each for name, each in offered.items() if name not in asked.derived}
    if not more:
        return asked
    scout = JointProblem(variants, replace(asked, derived={**asked.derived, **more}))
    found = derive_layouts(scout, pinned)
    derived = add_offered(more, {name: found.get(name, ()) for name in more})
    return replace(asked, derived={**asked.derived, **derived})


def _list_makers(graph: Graph, tensors: Collection[str]) -> set[str]:
    """The operators that make some tensors."""
    return {node.name for node in graph.nodes.values() if not set(node.outputs).isdisjoint(tensors)}


def _split_axes(problem: Problem, choice: Sequence[int]) -> tuple[Problem, Sequence[int], tuple[Expansions, ...]]:
    """The same choice where operators with periodic blocks are written over more index axes, in boxes of these."""
    ways = {node.name: _list_ways(problem, node) for node in problem.order}
    compared = {name: tuple(map(_name_split, each)) for name, each in ways.items() if each}
    layouts = {name: _chosen(problem, problem.graph.nodes[name], choice) for name in compared}
    chosen = {name: layout for name, layout in layouts.items() if layout.digits}
    if not chosen:
        return problem, choice, tuple(Expansions(name, each) for name, each in compared.items())
    draft, stands = Draft(problem.graph), {}
    for name, layout in chosen.items():
        before = set(draft.nodes)
        split_axes.on(draft, name, **tell_rule(layout.digits))
        (stands[name],) = set(draft.nodes) - before
    made = draft.done()
    # What stands for an operator runs where the operator would, as the costs were counted.
    order = [stands.get(node.name, node.name) for node in problem.graph.order()]
    put_fields(made, nodes=FrozenDict((name, made.nodes[name]) for name in order))
    plain = {stands[name]: replace(layout, digits=()) for name, layout in chosen.items()}
    derived = {
        name: tuple(layout for layout in each if not layout.digits)
        for name, each in problem.asked.derived.items()
        if name not in chosen
    }
    only = {name: (one,) for name, one in plain.items()}
    split = Problem(made, replace(problem.asked, derived={**derived, **only}))
    rows = []
    for variable in split.variables:
        if variable.kind == "operator" and variable.name in plain:
            rows.append(variable.layouts.index(plain[variable.name]))
        else:
            at = problem.position[variable.kind, variable.name]
            rows.append(variable.layouts.index(problem.variables[at].layouts[choice[at]]))
    expansions = tuple(
        Expansions(name, each, _name_split(layout.digits), (stands[name],), split=_list_split(layout.digits))
        if (layout := layouts[name]).digits
        else Expansions(name, each)
        for name, each in compared.items()
    )
    return split, rows, expansions


def _list_ways(problem: Problem, node: OpNode) -> list[Split]:
    """The digits of an operator's axes in which it is compared with itself, each once."""
    variable = problem.variables[problem.position["operator", node.name]]
    return list(dict.fromkeys(layout.digits for layout in variable.layouts if layout.digits))


def _list_split(digits: Split) -> Split:
    return tuple(one for one in digits if not one.is_whole)


def _name_split(digits: Split) -> str:
    return f"{split_axes.name} {' '.join(map(str, _list_split(digits)))}"


def _write_down(
    problem: Problem,
    choice: Sequence[int],
    bound_ticks: int,
    fan_in: int | None,
    caps: Sequence[int] | None = None,
    picks: Mapping[str, Pick] | None = None,
    lowered: Lowered | None = None,
) -> ShardPlan:
    """The plan of a choice of layouts, in arenas of some memory if they are given it, some neighbors in one block.

    `lowered` has its steps, in these arenas, where they are written down already.
    """
    problem, choice, expansions = _split_axes(problem, choice)
    problem, choice, fused = fuse_neighbors(problem, choice, picks) if picks else (problem, choice, ())
    graph, mesh = problem.graph, problem.mesh
    choices = _name_choices(problem, choice, fan_in)
    if lowered is not None:
        alike = Alike(lowered, lowered.devices)
    elif caps is None:
        alike = lower_alike(graph, mesh, choices, problem.reads)
    else:
        packed = pack(lower(graph, mesh, choices, reads=problem.reads), caps).lowered
        alike = Alike(packed, packed.devices)
    if caps is not None:
        choices = replace(choices, memory_nbytes=tuple(caps))
    lowered = alike.lowered
    if alike.is_all:
        choices.remember(graph, mesh, Written(lowered.buffers, lowered.steps, lowered.outputs))
    moved = problem.count_moved(choice)
    predicted = _list_links(moved, lowered.devices)
    if predicted != lowered.moved:
        raise AssertionError(f"the steps move {lowered.moved}, the cost tables say {predicted}")
    arriving: dict[str, list[Moved]] = {}
    for (_, consumer), value in moved.items():
        arriving.setdefault(consumer, []).append(value)
    stages = [_stage(problem, node, choice, arriving.get(node.name, ())) for node in problem.order]
    stages += _output_stages(problem, moved)
    ticks = sum(m.ticks for m in moved.values())
    ticks += sum(int(problem.compute[at][choice[at]]) for at in range(len(problem.variables)))
    totals = np.zeros(mesh.size, np.int64)
    for m in moved.values():
        totals += m.nbytes
    return ShardPlan(
        graph=graph,
        mesh=mesh,
        choices=choices,
        stages=tuple(stages),
        nbytes_received=tuple(int(n) for n in totals),
        nbytes_by_link=_sum_links(moved),
        nbytes_placed=alike.nbytes_placed,
        nbytes_local=_sum_copied(problem, choice),
        peak_nbytes=alike.peak_nbytes,
        flop=tuple(sum(stage.flop[d] for stage in stages) for d in range(mesh.size)),
        seconds=ticks / TICKS_PER_SECOND,
        bound=min(ticks, bound_ticks) / TICKS_PER_SECOND,
        space=problem.asked.space,
        alternatives=OnDemand([node.name for node in problem.order], _Comparison(problem, choice)),
        expansions=expansions,
        fused=fused,
    )


def _list_links(
    moved: Mapping[tuple[str, str], Moved], devices: Sequence[int]
) -> dict[tuple[str, str], dict[tuple[int, int], int]]:
    """Bytes from device to device for each (tensor, consumer) with any, as far as some devices send or receive them."""
    here, known = set(devices), dict[int, dict[tuple[int, int], int]]()
    for m in moved.values():
        if id(m.links) not in known:  # alike tensors have one object
            known[id(m.links)] = {ends: n for ends, n in m.links.items() if not here.isdisjoint(ends)}
    return {key: known[id(m.links)] for key, m in moved.items() if known[id(m.links)]}


def _sum_links(moved: Mapping[tuple[str, str], Moved]) -> dict[tuple[int, int], int]:
    """Bytes from device to device."""
    times = Counter(id(m.links) for m in moved.values())
    total: Counter[tuple[int, int]] = Counter()
    for links in {id(m.links): m.links for m in moved.values()}.values():
        for ends, nbytes in links.items():
            total[ends] += times[id(links)] * nbytes
    return dict(total)


def _sum_copied(problem: Problem, choice: Sequence[int]) -> tuple[int, ...]:
    """Bytes that each device writes anew to read operands."""
    total = np.zeros(problem.mesh.size, np.int64)
    for node in problem.order:
        row = choice[problem.position["operator", node.name]]
        total += problem.count_copied(node, slice(row, row + 1))[0]
    return tuple(total.tolist())


class _Comparison:
    """The alternatives of a plan's operators: its problem is posed again when the first ones are asked for.

    A plan may be kept long, and few are asked; the tables of its problem take much more memory than it does.
    """

    def __init__(self, problem: Problem, choice: Sequence[int]) -> None:
        self._graph, self._choice = problem.graph, tuple(choice)
        self._asked = replace(problem.asked, known=Known())
        self._nodes = tuple(problem.graph.nodes)

    @cached_property
    def _problem(self) -> Problem:
        if tuple(self._graph.nodes) != self._nodes:
            raise ValueError("the graph was changed since it was planned, so shardings cannot be compared: plan again")
        problem = Problem(self._graph, self._asked)
        problem.factors()
        return problem

    @cached_property
    def _cost(self) -> tuple[int, int]:
        return self._problem.count_cost(self._choice)

    def __call__(self, node: str) -> tuple[Alternative, ...]:
        return _alternatives(self._problem, node, self._choice, self._cost)


def _stage(problem: Problem, node: OpNode, choice: Sequence[int], mine: Sequence[Moved]) -> Stage:
    at = problem.position["operator", node.name]
    variable = problem.variables[at]
    option = variable.layouts[choice[at]]
    signature = problem.graph.signature(node.name)
    per_point = problem.graph.ops[node.op].flop_per_point(signature, node.attrs)
    got = sum((m.nbytes for m in mine), np.zeros(problem.mesh.size, np.int64))
    ticks = sum(m.ticks for m in mine) + int(problem.compute[at][choice[at]])
    boxes = option.boxes
    return Stage(
        node=node.name,
        op=node.op,
        sharding=_summary(variable.axes, option),
        nbytes_received=tuple(int(n) for n in got),
        nbytes_shared=problem.known.fact(
            ("shared", problem.kind(node), choice[at]), lambda: _shared_nbytes(problem, node, boxes)
        ),
        flop=tuple(per_point * (box.size if box else 0) for box in boxes),
        seconds=ticks / TICKS_PER_SECOND,
        work_seconds=problem.known.fact(
            ("seconds", problem.kind(node), choice[at]), lambda: problem.count_seconds(node, choice[at])
        ),
    )


def _output_stages(problem: Problem, moved: Mapping[tuple[str, str], Moved]) -> list[Stage]:
    """What is moved beside operators: partial results merged where they land, outputs brought to what was asked for."""
    return [
        Stage(
            node=consumer,
            op=consumer.partition(" ")[0],
            sharding={},
            nbytes_received=tuple(m.nbytes.tolist()),
            nbytes_shared=0,
            flop=(0.0,) * problem.mesh.size,
            seconds=m.ticks / TICKS_PER_SECOND,
        )
        for (_, consumer), m in moved.items()
        if consumer not in problem.graph.nodes and m.ticks
    ]


def _shared_nbytes(problem: Problem, node: OpNode, boxes: Sequence[Box | None]) -> int:
    """Bytes that more than one device reads: what all read, less the bytes of the union."""
    by_tensor: dict[str, list[DisjointRegions]] = {}
    for box in boxes:
        for name, region in problem.needs(node, box).items():
            by_tensor.setdefault(name, []).append(region)
    total = 0
    for name, regions in by_tensor.items():
        tensor = problem.graph.stored[name]
        every = sum(region.size for region in regions)
        total += (every - unite(regions, tensor.shape).size) * tensor.itemsize
    return total


def _alternatives(problem: Problem, node: str, choice: Sequence[int], cost: tuple[int, int]) -> tuple[Alternative, ...]:
    """The best placement of each other sharding of an operator, all other operators kept, and what the graph costs so.

    `cost` is that of the plan; what is counted for each placement is what is around the operator.

    Empty where the comparison would take long: the operator's tensors have many consumers.
    """
    at = problem.position["operator", node]
    variable = problem.variables[at]
    work = sum(len(cost.uses) for cost in problem.counted_alone.get(at, ())) * len(variable.layouts)
    if work > tuning.MAX_COMPARISONS:
        return ()
    ticks, nbytes = problem.costs(at, choice)
    ticks, nbytes = ticks + (cost[0] - ticks[choice[at]]), nbytes + (cost[1] - nbytes[choice[at]])
    best: dict[tuple[int, ...], Alternative] = {}
    for row in np.lexsort((nbytes, ticks)):
        option = variable.layouts[int(row)]
        if not option.digits and option.parts not in best:  # what splits axes is told as an expansion
            best[option.parts] = Alternative(
                _summary(variable.axes, option), int(ticks[row]) / TICKS_PER_SECOND, int(nbytes[row])
            )
    return tuple(best.values())


def _summary(axes: Sequence[Axis], option: Layout) -> dict[str, int]:
    return {axis.name: n for axis, n in zip(axes, option.parts, strict=True) if n > 1}
