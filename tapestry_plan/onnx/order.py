"""The nodes of a model's graphs: what they are called, which of them are needed, and an order to import them in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tapestry_plan.onnx.nodes import Attributes, Node, name_node
from tapestry_sets.limits import quote


def graphs_inside(node: Any) -> Iterator[Any]:
    """The graphs that a node of a model has as attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_graphs(model: Any) -> Iterator[Any]:
    """The graph of a model, its local functions, and the graphs inside their nodes at any depth."""
    todo = [*reversed(model.functions), model.graph]
    while todo:
        graph = todo.pop()
        yield graph
        todo += [inner for node in graph.node for inner in graphs_inside(node)]


def reject_broken_texts(model: Any) -> None:
    """Raise ValueError for names, types or domains that are not UTF-8: protobuf gives those as bytes."""
    for entry in model.opset_import:
        _check_texts("the model's opsets", entry.domain)
    for graph in all_graphs(model):
        values = [*graph.input, *graph.output, *graph.value_info]
        names = [one if isinstance(one, str | bytes) else one.name for one in values]  # a function has names alone
        stored = [tensor.name for tensor in getattr(graph, "initializer", ())]
        stored += [sparse.values.name for sparse in getattr(graph, "sparse_initializer", ())]
        _check_texts("the model's tensors", graph.name, *names, *stored)
        for node in graph.node:
            attributes = (attribute.name for attribute in node.attribute)
            _check_texts("a node", node.name, node.op_type, node.domain, *node.input, *node.output, *attributes)


def _check_texts(what: str, *texts: Any) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(
                f"{what}: the text {quote(text)} is not UTF-8; the file is damaged, export the model again"
            )


def names_of(graph: Any) -> Iterator[tuple[str, Any]]:
    """The nodes of a graph and what they are called; one without a name by its type and a number."""
    counts: Counter[str] = Counter()
    for proto in graph.node:
        yield proto.name or f"{proto.op_type}_{counts[proto.op_type]}", proto
        counts[proto.op_type] += not proto.name


def read_nodes(graph: Any) -> Iterator[Node]:
    """The nodes of a graph as importers see them."""
    from onnx import AttributeProto, helper

    for name, proto in names_of(graph):
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        inputs = tuple(proto.input)
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        plain = [a for a in proto.attribute if a.type not in (AttributeProto.GRAPH, AttributeProto.GRAPHS)]
        attrs = {a.name: helper.get_attribute_value(a) for a in plain}
        attrs = {key: _decode(value, name, key) for key, value in attrs.items()}
        captured = tuple(dict.fromkeys(_captured(proto))) if len(plain) < len(proto.attribute) else None
        yield Node(name, proto.op_type, domain, inputs, tuple(proto.output), Attributes(attrs), proto, captured)


def _decode(value: Any, node: str, attribute: str) -> Any:
    """The value of an attribute, a text as such."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        raise ValueError(
            f"node {quote(node)}: its attribute {attribute} = {quote(value)} is not UTF-8; export the model again"
        ) from None


def made_in(graph: Any) -> set[str]:
    """Names that a graph gives to tensors of its own."""
    made = {name for node in graph.node for name in node.output if name}
    return made | {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}


def _captured(proto: Any) -> Iterator[str]:
    """Names that the graphs inside a node read from outside, at any depth."""
    for graph in graphs_inside(proto):
        reads = [value.name for value in graph.output]
        for node in graph.node:
            reads += [*node.input, *_captured(node)]
        own = made_in(graph)
        yield from (name for name in reads if name and name not in own)


def needed_of(nodes: Sequence[Node], outputs: Sequence[str]) -> list[Node]:
    """The nodes that the outputs depend on, in the model's order; outputs behind the first that nobody reads are empty.

    An operator here may not make all outputs that ONNX's has, and need not where they are only named.
    """
    makers = {name: node for node in nodes for name in node.outputs if name}
    todo, read = list(outputs), set(outputs)
    seen: set[int] = set()
    while todo:
        node = makers.get(todo.pop())
        if node is not None and id(node) not in seen:
            seen.add(id(node))
            reads = [*node.inputs, *(node.captured or ())]
            read.update(reads)
            todo += reads
    needed = [node for node in nodes if id(node) in seen]
    blank = [tuple(name if not k or name in read else "" for k, name in enumerate(node.outputs)) for node in needed]
    return [replace(node, outputs=names) for node, names in zip(needed, blank, strict=True)]


def sort(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, each after those whose outputs it reads, else in the order given.

    Raises
    ------
    ValueError
        For nodes that read each other's outputs around a cycle, naming them.
    """
    makers = {name: node for node in nodes for name in node.outputs if name}
    done: set[int] = set()
    out: list[Node] = []
    for root in nodes:
        path: dict[int, tuple[Node, Iterator[str]]] = {}
        following: Node | None = root
        while following is not None or path:
            if following is not None and id(following) in path:
                members = list(path)
                cycle = [path[key][0].where for key in members[members.index(id(following)) :]]
                listed = ", ".join(cycle[:8] + ["…"] * (len(cycle) > 8))
                raise ValueError(f"the model has a cycle: {listed}; each reads what the one after it makes: break it")
            if following is not None and id(following) not in done:
                path[id(following)] = following, iter([*following.inputs, *(following.captured or ())])
            node, reads = next(reversed(path.values())) if path else (None, iter(()))
            if node is None:
                break
            name = next(reads, None)
            following = None if name is None else makers.get(name)
            if name is None:
                del path[id(node)]
                done.add(id(node))
                out.append(node)
    return out


def reject_second_makers(model: Any) -> None:
    """Raise ValueError where a graph makes a tensor twice: by two nodes, or by a node and as an input or initializer.

    Only an input and its initializer have one name.
    """
    for graph in all_graphs(model):
        is_function = not hasattr(graph, "initializer")
        inputs = list(graph.input) if is_function else [value.name for value in graph.input]
        stored = () if is_function else [tensor.name for tensor in graph.initializer]
        where = "" if graph is model.graph else f" of {'function' if is_function else 'graph'} {quote(graph.name)}"
        made = [(made, name_node(name, node.op_type)) for name, node in names_of(graph) for made in node.output]
        given = set(inputs)
        _reject_twice([*((name, "an input") for name in inputs), *made], where)
        _reject_twice(
            [*((name, "an initializer") for name in stored), *(one for one in made if one[0] not in given)], where
        )


def _reject_twice(entries: Iterable[tuple[str, str]], where: str) -> None:
    made: dict[str, str] = {}
    for name, maker in entries:
        if name and name in made:
            raise ValueError(
                f"tensor {quote(name)}{where} is made twice, by {made[name]} and by {maker}; names are unique: rename "
                "one"
            )
        made[name] = maker
