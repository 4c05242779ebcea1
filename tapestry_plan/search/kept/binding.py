"""Plans of a model at other sizes of its open axes, with all choices kept.

::

    plan p at batch=8 ─► the model read at batch=32, rewritten as p's graph was ─► p's layouts, cut anew ─► steps, bytes

Parts keep their devices; even ones are as even as can be again, uneven ones share the new extent in their proportions.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from tapestry_plan.ir import Axis, Graph, NotApplicable, OpNode, parts_of, read_sizes, tell_sizes
from tapestry_plan.rewrite import Draft, fix_bits
from tapestry_plan.search.caps.by_memory import keeps
from tapestry_plan.search.kept.keeping import write_kept
from tapestry_plan.search.prices.added import KeptProblem
from tapestry_plan.search.prices.costs import NEVER, ORDERS, Asked, Known, Merges, Use
from tapestry_plan.search.prices.moves import Held
from tapestry_plan.steps import Choices, Layout, ShardPlan, check_choices, fill_binding, leave_out_even, share_out
from tapestry_sets.limits import FrozenDict, put_fields, quote, tell_count


def bind_plan(plan: ShardPlan, to: Graph | Mapping[str, int] | None, more: Mapping[str, int]) -> ShardPlan:
    """The plan of the same model at other sizes, or of a graph that was read at these, that keeps all choices."""
    if isinstance(to, Graph):
        if more:
            raise ValueError("bind: a graph is given, which has its sizes, and sizes too; give one of them")
        graph = to
    else:
        graph = read_again(plan, read_sizes(plan.graph.sizes, plan.graph._model, to, more, "bind"))
    return bind_to(plan, graph)


def read_again(plan: ShardPlan, sizes: Mapping[str, int]) -> Graph:
    """The graph of a plan's model at other sizes of some symbols, as it is read."""
    assert plan.graph._model is not None, "the caller checked"
    made: Graph = plan.graph._model({**plan.graph.sizes, **sizes})
    return made


def bind_to(plan: ShardPlan, graph: Graph, *, in_memory: bool = True) -> ShardPlan:
    """The plan with all its choices, of the graph of its model at other sizes.

    Parameters
    ----------
    plan : ShardPlan
    graph : Graph
    in_memory : bool
        Whether it must keep the memory that the plan was asked to keep, and that its devices have.

    Raises
    ------
    ValueError
        For steps that somebody wrote, a graph of another structure, and sizes at which its parts cannot be.
    NotFound
        Where that does not keep the memory; it has the plan.
    """
    if plan.explicit is not None:
        raise ValueError("bind: this is a plan whose steps somebody wrote, which no choices say; bind one without them")
    planned = rewrite_again(plan, graph)
    choices = cut_again(plan, planned)
    check_choices(planned, plan.mesh, choices)
    asked = Asked(plan.mesh, space=plan.space, fan_in=choices.fan_in, known=Known())
    problem = SettledProblem(planned, asked, choices)
    told = "bind: the plan's choices" + f" at {tell_sizes(graph.sizes)}" * bool(graph.sizes)
    bound = plan.bound if choices == plan.choices else 0.0
    limits = _limit_memory(plan) if in_memory else None
    made = write_kept(plan, problem, problem.kept, limits, bound, told, "plan the graph at these sizes anew")
    if (made.choices.layouts, made.choices.merged) != (choices.layouts, choices.merged):
        raise AssertionError(f"the plan has {made.choices}, {choices} were kept")
    return made


def is_bound_as(plan: ShardPlan, other: ShardPlan, graph: Graph) -> bool:
    """Whether another plan, of a graph of the plan's model, is the one that `bind_to` makes of the plan and that graph.

    Choices are compared, which takes less than writing the plan down.
    """
    if not _is_alike(plan.graph, other.graph) or not keeps(other, _limit_memory(plan)):
        return False
    try:
        return cut_again(plan, rewrite_again(plan, graph)) == other.choices
    except ValueError:  # it cannot be bound
        return False


def _limit_memory(plan: ShardPlan) -> tuple[int, ...] | None:
    """By device the bytes that the plan was asked to keep, and no more than the device has."""
    each = [one for one in (plan.mesh.limit_memory(), plan.limit_nbytes) if one is not None]
    return tuple(map(min, zip(*each, strict=True))) if each else None


def rewrite_again(plan: ShardPlan, graph: Graph) -> Graph:
    """A graph of the plan's model at other sizes, rewritten as the plan's own was, its operators in their order."""
    made, refused = _rewrite(plan, graph)
    if made is not None:
        put_fields(made := Draft(made).done(), nodes=FrozenDict((n, made.nodes[n]) for n in plan.graph.nodes))
        return made
    sizes = tell_sizes(graph.sizes) or "the sizes of the graph given"
    model = plan.graph._model or graph._model
    if model is not None and plan.graph.sizes.keys() == graph.sizes.keys():
        own = model(plan.graph.sizes)
        if _rewrite(plan, own)[0] is not None and _is_alike(graph, model(graph.sizes)):  # nobody changed either
            if _is_alike(graph, own):
                raise ValueError(
                    f"bind: at {sizes} the graph cannot be rewritten as the plan's was{refused}; plan it at these "
                    "sizes anew, or bind a plan of unify=False: constants may be equal at some sizes alone"
                )
            raise ValueError(
                f"bind: at {sizes} the model comes to other operators than the plan has: {_tell_other(graph, own)}; "
                "plan the graph at these sizes anew"
            )
    raise ValueError(
        f"bind: at {sizes} the graph has not the operators that the plan is of{refused}; "
        "where it was changed after it was loaded, give bind the changed graph at the new sizes; else plan it anew"
    )


def _rewrite(plan: ShardPlan, graph: Graph) -> tuple[Graph | None, str]:
    """A graph rewritten as the plan's own was, if it then has the plan's operators; and what the steps said, if not."""
    refused = ""
    for same_bits in (False, True):
        try:
            made = plan.derivation.replay(fix_bits(graph) if same_bits else graph)
        except NotApplicable as error:
            refused = refused if same_bits else f" ({error})"
            continue
        if _is_alike(made, plan.graph):
            return made, ""
    return None, refused


def _tell_other(graph: Graph, own: Graph) -> str:
    """One operator, or the outputs, in which a graph differs from that of a plan, as both were read."""
    for name, node in own.nodes.items():
        if name not in graph.nodes:
            return f"it has no operator {quote(name)} ({node.op}) there"
    for name, node in graph.nodes.items():
        if name not in own.nodes:
            return f"it has an operator {quote(name)} ({node.op}) there, which the plan has not"
        if (node.op, node.inputs, node.outputs) != (
            own.nodes[name].op,
            own.nodes[name].inputs,
            own.nodes[name].outputs,
        ):
            return f"{quote(name)} ({node.op}) reads other tensors there"
    return f"its outputs are {quote(dict(graph.outputs))} there and {quote(dict(own.outputs))} in the plan"


def _is_alike(one: Graph, other: Graph) -> bool:
    """Whether two graphs have the same operators, by name, on tensors of the same names."""
    if one.nodes.keys() != other.nodes.keys() or one.outputs != other.outputs:
        return False
    return all(
        (mine.op, mine.inputs, mine.outputs) == (theirs.op, theirs.inputs, theirs.outputs)
        for mine, theirs in ((one.nodes[name], other.nodes[name]) for name in one.nodes)
    )


def cut_again(plan: ShardPlan, graph: Graph) -> Choices:
    """The plan's choices for the extents that its operators and tensors have in another graph."""
    layouts: dict[tuple[str, str], Layout] = {}
    same: dict[tuple[Layout, tuple[int, ...]], Layout] = {}
    for (kind, name), layout in plan.choices.layouts.items():
        if kind == "operator":
            axes = graph.signature(name).axes
        else:
            axes = tuple(Axis(str(k), n) for k, n in enumerate(graph.stored[name].shape))
        extents = tuple(axis.size for axis in axes)
        if len(extents) != len(layout.extents):
            raise ValueError(
                f"bind: {kind} {quote(name)} has rank {len(extents)} at these sizes, and "
                f"{len(layout.extents)} in the plan, as leaves of the same bits follow from sizes; plan the graph anew"
            )
        if extents == layout.extents:
            layouts[kind, name] = layout
            continue
        _check_parts(layout, axes, f"{kind} {quote(name)}", tell_sizes(graph.sizes) or "these sizes")
        key = layout, extents
        if key not in same:
            same[key] = _cut_layout(layout, extents)
        layouts[kind, name] = same[key]
    return replace(plan.choices, layouts=layouts)


def _check_parts(layout: Layout, axes: tuple[Axis, ...], what: str, sizes: str) -> None:
    """The parts of a layout must be possible along other axes."""
    if layout.lots:
        raise ValueError(
            f"bind: {what} was placed in boxes by device, which say nothing of another shape; plan the graph at the "
            "new sizes with a layout of its own"
        )
    for axis, parts in zip(axes, layout.parts, strict=True):
        if parts > 1 and not axis.may_have(parts):
            limit = tell_count(axis.size, "point") + ", not a multiple of that" * (parts <= axis.size)
            raise ValueError(
                f"bind: the plan cuts {what} into {parts} parts along axis {quote(axis.name)}, which has {limit} at "
                f"{sizes}; bind larger ones, or plan the graph at these sizes anew"
            )


def _cut_layout(layout: Layout, extents: tuple[int, ...]) -> Layout:
    sizes = layout.sizes
    if sizes:
        each = zip(sizes, layout.extents, extents, strict=True)
        sizes = leave_out_even(extents, [_cut_axis(mine, old, n) for mine, old, n in each])
    return replace(layout, extents=extents, sizes=sizes)


def _cut_axis(sizes: tuple[int, ...], old: int, new: int) -> tuple[int, ...]:
    if old == new:
        return sizes
    even = [tuple(high - low for low, high in parts_of(n, len(sizes))) for n in (old, new)]
    return even[1] if sizes == even[0] else share_out(new, sizes)


class SettledProblem(KeptProblem):
    """The problem of choices of which all are made, also in which stages parts are merged.

    Parameters
    ----------
    graph : Graph
    asked : Asked
    choices : Choices
    """

    def __init__(self, graph: Graph, asked: Asked, choices: Choices) -> None:
        self._merged = choices.merged
        super().__init__(graph, asked, choices)

    def _price_merges(self, node: OpNode, output: int, held: Held, landing: Use, itemsize: int) -> Merges | None:
        order = self._merged.get(node.outputs[output])
        found = None if order is None else super()._price_merges(node, output, held, landing, itemsize)
        if found is None or order is None:
            return None
        # None is better than the one that was chosen, whatever the others take.
        chosen = np.where(found.ticks < NEVER, -1, NEVER)
        return replace(found, ticks=chosen, order=np.full_like(found.order, ORDERS.index(order)))


fill_binding(bind_plan)
