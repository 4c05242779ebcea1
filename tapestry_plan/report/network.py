"""The graph of a plan as plain data: operators with their shardings, what flows between them, repeated blocks.

The page lays it out. Of blocks that follow each other, are alike and are sharded alike, it shows the first, and how
many there are, until somebody asks for all::

    nodes   embed  norm_0 … add_0  norm_1 … add_1  linear
    tree    [0, {"times": 2, "members": [[1, …, 5], [6, …, 10]]}, 11]
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tapestry_plan.draw import Repeated, fold
from tapestry_plan.ir import OpNode, map_makers
from tapestry_plan.report.markup import UNITS
from tapestry_plan.report.tuning import FIRST_READERS, MAX_EDGES, SHOWN_NAME, SHOWN_SHARES
from tapestry_plan.steps import ShardPlan, tell_block, tell_cut
from tapestry_sets.limits import cut_text


def describe_graph(plan: ShardPlan) -> dict[str, Any]:
    """The operators of a plan, inputs and outputs that begin and end it, edges with bytes, and the tree of blocks."""
    graph, shares = plan.graph, {name: tell_cut(plan, name) for name in plan.graph.nodes}
    whole = {shares[name] for name in graph.nodes if not plan.sharding[name]}
    frequent = [share for share, _ in Counter(shares.values()).most_common() if share not in whole][:SHOWN_SHARES]
    colors = {share: k for k, share in enumerate(frequent)}
    moved = _count_moved(plan)
    nodes: list[dict[str, Any]] = []
    place: dict[str, int] = {}
    for node in graph.order():
        stage = plan.stage[node.name]
        place[node.name] = len(nodes)
        received = sum(stage.nbytes_received)
        numbers = f"gets {UNITS.nbytes(received)}, " if received else ""
        nodes.append(
            {
                "name": node.name,
                "kind": "op",
                "op": tell_block(node.op),
                "share": shares[node.name],
                "color": colors.get(shares[node.name], -1 if shares[node.name] in whole else -2),
                "lines": [
                    cut_text(node.name, SHOWN_NAME),
                    cut_text(f"{tell_block(node.op)} · {shares[node.name]}", SHOWN_NAME),
                    f"{numbers}{UNITS.seconds(stage.seconds)}",
                ],
                "nbytes": received,
                "seconds": stage.seconds,
            }
        )
    every = _list_edges(plan, place, moved)
    edges = every if len(every) <= MAX_EDGES else drop_bridged(every)
    ends = list(_add_ends(plan, place, nodes))
    legend = [
        {"share": share, "color": colors.get(share, -1 if share in whole else -2), "count": count}
        for share, count in Counter(shares.values()).most_common()
    ]
    return {
        "nodes": nodes,
        "edges": [*edges, *ends],
        "dropped": len(every) - len(edges),
        "tree": [*_list_inputs(nodes), *_grow(plan, place), *_list_outputs(nodes)],
        "legend": legend[: SHOWN_SHARES + 1],
        "others": [sum(one["count"] for one in legend[SHOWN_SHARES + 1 :]), len(legend[SHOWN_SHARES + 1 :])],
    }


def _count_moved(plan: ShardPlan) -> Counter[tuple[str, str]]:
    """Bytes by tensor and who they are for; what lands before it is read is for "" ."""
    found: Counter[tuple[str, str]] = Counter()
    for row in plan.transfers():
        found[row.tensor, row.consumer if row.consumer in plan.graph.nodes else ""] += row.nbytes
    return found


def _list_edges(plan: ShardPlan, place: dict[str, int], moved: Counter[tuple[str, str]]) -> list[list[Any]]:
    """From operator to operator: the tensors, and the bytes of them that move for the reader or land before."""
    graph = plan.graph
    made = map_makers(graph)
    found: defaultdict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    for node in graph.nodes.values():
        for read in node.inputs:
            for name in graph.source(read).stored:
                if name in made:
                    found[place[made[name].name], place[node.name]][name] = moved[name, node.name] + moved[name, ""]
    return [[a, b, [*tensors], sum(tensors.values())] for (a, b), tensors in found.items()]


def drop_bridged(edges: Sequence[list[Any]]) -> list[list[Any]]:
    """The edges but for those beside which a path of others leads to the same place; each goes to a larger number.

    Examples
    --------
    >>> drop_bridged([[0, 1], [0, 2], [1, 2], [1, 3]])
    [[0, 1], [1, 2], [1, 3]]
    """
    into: defaultdict[int, list[list[Any]]] = defaultdict(list)
    for edge in edges:
        into[edge[1]].append(edge)
    before: dict[int, int] = {}  # bits of all from which a path leads here
    kept = []
    for target in sorted(into):
        seen = 0
        for edge in sorted(into[target], key=lambda one: -one[0]):
            if not seen >> edge[0] & 1:
                kept.append(edge)
            seen |= before.get(edge[0], 0) | 1 << edge[0]
        before[target] = seen
    return sorted(kept, key=lambda one: (one[0], one[1]))


def _add_ends(plan: ShardPlan, place: dict[str, int], nodes: list[dict[str, Any]]) -> Iterator[list[Any]]:
    """Nodes of the inputs that begin the graph, and of its outputs; the edges of both."""
    graph = plan.graph
    made = map_makers(graph)
    readers: defaultdict[str, list[str]] = defaultdict(list)
    for node in graph.nodes.values():
        stored = dict.fromkeys(name for read in node.inputs for name in graph.source(read).stored)
        if not any(name in made for name in stored):
            for name in stored:
                if graph.stored[name].kind == "input":
                    readers[name].append(node.name)
    for name, mine in readers.items() if len(readers) <= FIRST_READERS else ():
        nodes.append(_end(name, "input", graph.stored[name].shape, graph.stored[name].dtype))
        yield from ([len(nodes) - 1, place[node], [name], 0] for node in mine)
    for label, read in graph.outputs.items():
        source = graph.source(read)
        nodes.append(_end(label, "output", source.shape, source.dtype))
        yield from ([place[made[one].name], len(nodes) - 1, [one], 0] for one in source.stored if one in made)


def _end(name: str, kind: str, shape: Sequence[int], dtype: str) -> dict[str, Any]:
    lines = [cut_text(name, SHOWN_NAME), cut_text(f"{kind} · {dtype}{list(shape)}", SHOWN_NAME)]
    return {"name": name, "kind": kind, "lines": lines, "color": -1, "nbytes": 0}


def _list_inputs(nodes: Sequence[dict[str, Any]]) -> list[int]:
    return [k for k, node in enumerate(nodes) if node["kind"] == "input"]


def _list_outputs(nodes: Sequence[dict[str, Any]]) -> list[int]:
    return [k for k, node in enumerate(nodes) if node["kind"] == "output"]


BlockTree = list[Any]
"""Numbers of nodes, and blocks that are repeated."""


def _grow(plan: ShardPlan, place: dict[str, int]) -> BlockTree:
    """The operators in order, those of repeated blocks together."""
    return list(_branches(plan, place, fold(plan.graph)))


def _branches(plan: ShardPlan, place: dict[str, int], parts: Iterable[Any]) -> Iterator[Any]:
    for part in parts:
        if isinstance(part, OpNode):
            yield place[part.name]
        elif isinstance(part, Repeated):
            yield from _stacks(plan, place, part)


def _stacks(plan: ShardPlan, place: dict[str, int], block: Repeated) -> Iterator[Any]:
    """The repetitions of a block: those that follow each other and are sharded alike are one stack."""
    runs: list[list[int]] = []
    forms = [_form(plan, member) for member in block.members]
    for k, form in enumerate(forms):
        if runs and forms[runs[-1][0]] == form:
            runs[-1].append(k)
        else:
            runs.append([k])
    for run in runs:
        members = [list(_fill(plan, place, block.body, iter(block.members[k]))) for k in run]
        if all(isinstance(one, int) for one in members[0]) and len(members[0]) == 0:
            continue  # a block of selections alone has no operator to show
        yield {
            "times": len(run),
            "first": run[0] + 1,
            "of": block.times,
            "members": members,
        }


def _fill(plan: ShardPlan, place: dict[str, int], body: Iterable[Any], items: Iterator[Any]) -> Iterator[Any]:
    """The body of a block with the operators of one of its repetitions."""
    for part in body:
        if isinstance(part, Repeated):
            inner = tuple(tuple(next(items) for _ in member) for member in part.members)
            yield from _stacks(plan, place, Repeated(part.body, inner, part.carried, part.shared, part.own))
            continue
        item = next(items)
        if isinstance(item, OpNode):
            yield place[item.name]


def _form(plan: ShardPlan, member: Iterable[Any]) -> tuple[object, ...]:
    """What repetitions that are shown as one have in common."""
    return tuple(
        (tell_cut(plan, item.name), plan.stage[item.name].nbytes_received)
        for item in member
        if isinstance(item, OpNode)
    )
