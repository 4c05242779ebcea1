"""From a graph and a mesh to a shard plan, in stages.

::

    arguments ─► Request          checked; what every stage looks at                   search/posing.py
    1  equal operators once       or each for its own readers, where that is better    search/neighbors/apart.py
    2  expansions                 ruled out, tried, compared in one sum                search/expansions/expanding.py
    the best layouts ─► plan      written down once, neighbors in one block            search/writing.py, fusing.py
    3  less memory                the plans of caps, from what is known so far         search/caps/by_memory.py

Each stage has layouts and gives some that are as good or better; the bound of the last ones is over all of them.
`posing` draws how often the problem of one graph is posed on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import Graph
from tapestry_plan.rewrite import list_equal_by_chance, unify_equal
from tapestry_plan.search.arguments import MENDS, CapOptions, Options, list_asked, with_options
from tapestry_plan.search.caps.by_memory import Other, PlansByMemory
from tapestry_plan.search.expansions.expanding import compare_expansions
from tapestry_plan.search.garbage import put_off_full_collections
from tapestry_plan.search.kept.keeping import keep_plan
from tapestry_plan.search.neighbors.apart import may_be_better_apart
from tapestry_plan.search.neighbors.fusing import list_makers_inside, write_blocks
from tapestry_plan.search.posing import Request, list_makers, pose_plain, solve_graph
from tapestry_plan.search.prices.costs import TICKS_PER_SECOND
from tapestry_plan.search.progress import Meter
from tapestry_plan.search.writing import Candidate, lower_choice, write_plan
from tapestry_plan.steps import InfeasiblePlan, Mesh, NotFound, ShardPlan, spill
from tapestry_sets.limits import check_arguments


@check_arguments(**MENDS, memory_nbytes="give a number of bytes, as 16 * 10**9")
@with_options(CapOptions)
def plan(graph: Graph, mesh: Mesh, options: CapOptions) -> ShardPlan:
    """Choose the shards of every operator, and write down every step.

    Plans are compared by seconds, then by bytes moved, then by the bytes of inputs and constants that lie on devices
    from the start. Where the bound is met, no plan of its space takes fewer seconds; of the plans that take as many it
    is the best one that is found.

    Parameters
    ----------
    graph : Graph
        One without operators, even an empty one, has a plan without stages, which moves nothing but what `placement`
        and `tie` ask for.
    mesh : Mesh
    memory_nbytes : int, optional
        Bytes that a device's arena may have, beside what `Device.memory_nbytes` says of each: the smaller one counts.
        Where the fastest plan needs more, slower plans are searched that need less: of the graph as given, of it as the
        fastest plan expands it and fuses its operators, and with operators that run again for late readers, so that
        their results need not wait (`ShardPlan.recomputed`). `bound` and `gap` are of such plans that keep the caps,
        where no block lies in another one.
        Without either, `spill` makes any plan fit that can fit.
    like : ShardPlan, optional
        A plan of this graph, or with this graph as its own, and of this mesh, all of whose choices are kept: layouts,
        the order of devices, blocks, expansions, how parts are merged, memory. Operators in `fix` alone are sharded
        otherwise: of numbers of parts in the best layout that has so many, and their results, where they are made in
        parts, land where it is best. So ``plan(graph, mesh, like=p, fix={"conv": one.sharding})`` is the plan that
        ``one`` of ``p.alternatives["conv"]`` tells of. `bound` stays that of `p`, at most what the plan takes. Beside
        it and `fix` only `memory_nbytes` asks for something: NotFound, with the plan, where these choices need more.
        Without it a plan that needs more than the cap of `p` has as much as it needs.
    seed : int
        Of the order of improving moves, which are made where tables would not fit.
    time_limit_seconds : float, optional
        Of the whole call. The best plan that was found by then is given, with its gap; expansions that there was no
        time for are `left_out`, as `ShardPlan.expansions` says. Tables of pairs, one pass over them and writing down
        the steps take their time in any case. Without it no clock is asked: improving moves, and graphs that
        are tried one after another, are limited by work that is counted, so that a call gives one plan on any machine.
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
        How many partial results of a sharded reduction are merged at a time, in a tree of neighbors, in the order
        of the parts, whoever made them. By default they are merged one after the other by who reads them, or they land
        first: each device merges a share, in a stage ``landing x`` of its own, and others read the shares. Where that
        takes less, parts land in stages: ``landing.1 x`` merges two by two, or as many as the least factor of their
        number, and so on; unless `fan_in` is given, those far from each other may be merged first. What is complete
        lands too, where `layout` gave some devices less of it than others, or `fix` left devices idle: one device that
        has all of it sends a share to each, and they exchange these.
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
        stays apart from others. Where bytes would have to move because a result is there once, or operators might be
        one block, the graph as given is planned too, without expansions, and the better plan taken; the bound is over
        both then. Of more than 64 operators it is only if other layouts of equal ones, and of those beside them, take
        less time so. Under a cap the graph as given is planned where no plan of the other one is found. Constants are
        compared as they are when the graph is planned: a run of a plan raises ValueError where one of them was written
        to since.
    fuse : bool
        Whether an operator and the one that alone reads its result are one block where each device makes just what it
        reads itself, and that is modeled to take less time: what is between them is not stored, and one launch does
        for both. `ShardPlan.fused` says which; a block has the name of its last operator, and those inside answer by
        their own names too (`placement`, `sharding`, `explain`). The bound is then of such plans, but for expansions
        that were not chosen, whose operators are apart in it: of small graphs these are tried in blocks, too. Under a
        cap that the fastest plan does not keep it is of plans with the fastest one's blocks, and of plans without any.
        What `fix`, `forbid` and `layout` name stays apart.
    progress : callable, optional
        ``progress(done, total, words)`` is called as planning goes on, with what it is at: "costs", "layouts",
        "expansions", "steps" and, with caps, "memory", each as long as the graph has operators. What is done never
        falls, stands still where work is repeated that nobody could foresee, and is all at the end.

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
    if options.like is not None:
        return replace(keep_plan(graph, mesh, options), asked=_list_kept(options.like, options))
    caps = mesh.limit_memory(options.memory_nbytes)
    meter = Meter(options.progress, len(graph.nodes), has_caps=caps is not None)
    with put_off_full_collections():
        planned = prepare(graph, mesh, options, options.memory_nbytes, meter)
        if caps is not None:
            meter.enter("memory")
        found = planned.within(caps, partial(meter.tell, "memory"))
    meter.finish()
    return replace(found, limit_nbytes=caps, asked=list_asked(options))


def _list_kept(kept: ShardPlan, options: CapOptions) -> Mapping[str, Any] | None:
    """What was asked for of a plan whose choices are kept, with the memory that is asked for now.

    None with operators that are sharded otherwise: they are of the plan's graph, which the graph as given need not be.
    """
    if kept.asked is None or options.fix:
        return None
    return kept.asked if options.memory_nbytes is None else {**kept.asked, "memory_nbytes": options.memory_nbytes}


def plan_or_spill(graph: Graph, mesh: Mesh, **options: Any) -> ShardPlan:
    """A plan in the memory that there is; where none fits as it is, the fastest one, which spills idle buffers.

    Parameters
    ----------
    graph, mesh, **options
        As of `plan`.

    Raises
    ------
    InfeasiblePlan, NotFound
        Where spilling does not help: a step needs more memory at once, or the arguments leave no plan.
    TypeError, ValueError
        As `plan`.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ops
    >>> from tapestry_plan.search import plan_or_spill
    >>> g = Graph()
    >>> x = g.input("x", (64, 64))
    >>> waits = ops.exp(x, name="waits")
    >>> _ = g.output(ops.exp(ops.tanh(waits) + ops.relu(x)) + waits, "y")
    >>> plan_or_spill(g, Mesh(1), fuse=False, memory_nbytes=49152).peak_nbytes
    (49152,)
    """
    try:
        return plan(graph, mesh, **options)
    except (InfeasiblePlan, NotFound) as error:
        caps = mesh.limit_memory(options.get("memory_nbytes"))
        if caps is None or error.fastest is None:
            raise
        return spill(error.fastest, caps)


def prepare(
    graph: Graph, mesh: Mesh, options: Options, memory_nbytes: int | None = None, meter: Meter | None = None
) -> PlansByMemory:
    """The fastest plan, from which those are found that need less memory; as `plan`, whose options these are."""
    request, given = Request.read(graph, mesh, options, memory_nbytes, meter := meter or Meter())
    once = _unify(request, given) if options.unify else _Unified(given, {})
    planned, unified, lowest = _plan_once_or_apart(request, given, once)
    meter.enter("expansions")
    result, expandable = compare_expansions(request, planned)
    if lowest is not None:
        result = result.lower_bound(lowest / TICKS_PER_SECOND)
    meter.enter("steps")
    graph, fan_in = planned.problem.graph, request.fan_in
    fastest = result.write()
    return PlansByMemory(
        replace(fastest, unified=unified, made_by=list_makers_inside(given, fastest.graph), asked=list_asked(options)),
        partial(_list_others, result),
        lambda one: pose_plain(request, planned, one),
        (graph, given) if unified else (graph,),
        expandable,
        request.list_pinned(graph),
        request.stop,
        write=lambda problem, choice, bound, caps, lowered: write_plan(
            problem, choice, bound, fan_in, caps, lowered=lowered
        ),
        lower=lambda problem, choice: lower_choice(problem, choice, fan_in, capped=True),
    )


def _list_others(best: Candidate) -> list[Other]:
    """The graph as the fastest plan has it: with its blocks, and as expansions made it, where it has such."""
    expansions = (*best.before, *best.after) if best.is_expanded else ()
    found = [Other(best.problem.graph, expansions=expansions)] if expansions else []
    if joined := best.blocks.list_joined(best.placed):
        graph, fused = write_blocks(best.problem, joined)
        found.append(Other(graph, expansions=expansions, fused=fused))
    return found


# -- 1  equal operators ------------------------------------------------------------------------------------


class _Unified(Struct, frozen=True):
    """A graph with equal operators or constants as one, and which of them stand for which."""

    graph: Graph
    unified: Mapping[str, str]
    apart: frozenset[str] = frozenset()
    """Constants that are not, as they are equal at these sizes alone."""


def _unify(request: Request, given: Graph) -> _Unified:
    """The graph with equal ones as one, but for those that are named."""
    found = _unify_but(request, given, frozenset())
    apart = list_equal_by_chance(given, found.unified)
    return _unify_but(request, given, apart) if apart else found


def _unify_but(request: Request, given: Graph, apart: frozenset[str], *, operators: bool = True) -> _Unified:
    wanted = request.wanted
    named = {*request.fixed, *wanted.layout, *wanted.tie.values(), *list_makers(given, request.kept)}
    return _Unified(*unify_equal(given, named | apart, operators=operators), apart)


def _plan_once_or_apart(request: Request, given: Graph, once: _Unified) -> tuple[Candidate, dict[str, str], int | None]:
    """The better one of two plans: equal operators run once, or each for its own readers.

    With it what is unified in it, and the bound of the other one in picoseconds, where there is one.
    """
    planned = solve_graph(request, once.graph)
    # Constants cost nothing to be one where they start anywhere.
    is_free = once.unified and request.wanted.placement == "free"
    apart = _unify_but(request, given, once.apart, operators=False) if is_free else _Unified(given, {})
    near = replace(planned.solved, ticks=planned.cost_apart[0]) if once.unified else planned.solved
    fuses = request.fuse
    if request.is_late or not may_be_better_apart(apart.graph, once.unified, planned.problem, near, fuses=fuses):
        return planned, dict(once.unified), None
    beside = solve_graph(request, apart.graph)
    if request.is_better(beside, planned):
        return beside, dict(apart.unified), planned.solved.bound_ticks
    return planned, dict(once.unified), beside.solved.bound_ticks
