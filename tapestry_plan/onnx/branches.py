"""The branch that an If takes, when its condition is known at import, in place of the If."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tapestry_plan.onnx.nodes import Node


def graphs_inside(node: Any) -> Iterator[Any]:
    """The graphs that a node of a model has as attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def take_branch(node: Node, condition: bool, taken: set[str]) -> Any:
    """A graph whose nodes do what the If does: those of a branch, and its constants, under names of their own.

    What the branch makes is called after the If, so that both branches, and several Ifs, may use one name; what it
    reads from outside keeps its name.

    Parameters
    ----------
    node : Node
        The If.
    condition : bool
    taken : set of str
        Names of tensors that there are already; the new ones join them.
    """
    import onnx
    from onnx import helper

    key = "then_branch" if condition else "else_branch"
    found = [attribute.g for attribute in node.proto.attribute if attribute.name == key and attribute.HasField("g")]
    if not found or len(found[0].output) != len(node.outputs):
        made = f"{len(found[0].output)} outputs" if found else "no graph"
        raise ValueError(
            f"{node.where}: its {key} has {made}, the node has {len(node.outputs)}: export the model again"
        )
    branch = onnx.GraphProto()
    branch.CopyFrom(found[0])
    names = {name: _fresh(f"{node.name}/{name}", taken) for name in sorted(_made(branch))}
    for k, proto in enumerate(branch.node):
        proto.name = f"{node.name}/{proto.name or f'{proto.op_type}_{k}'}"
    _rename(branch.node, names)
    constants = [helper.make_node("Constant", [], [names[one.name]], value=one) for one in branch.initializer]
    results = [
        helper.make_node("Identity", [names.get(value.name, value.name)], [name])
        for value, name in zip(branch.output, node.outputs, strict=True)
        if name
    ]
    return helper.make_graph([*constants, *branch.node, *results], node.name, [], [])


def _fresh(wanted: str, taken: set[str]) -> str:
    while wanted in taken:
        wanted += "_"
    taken.add(wanted)
    return wanted


def _made(graph: Any) -> set[str]:
    """Names that a graph gives to tensors of its own."""
    made = {name for node in graph.node for name in node.output if name}
    return made | {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}


def _rename(nodes: Iterable[Any], names: Mapping[str, str]) -> None:
    """Let nodes, and the graphs inside them, call tensors by other names."""
    for node in nodes:
        for ports in (node.input, node.output):
            for k, name in enumerate(ports):
                ports[k] = names.get(name, name)
        for graph in graphs_inside(node):
            inside = {name: new for name, new in names.items() if name not in _made(graph)}
            _rename(graph.node, inside)
            for value in graph.output:
                value.name = inside.get(value.name, value.name)
