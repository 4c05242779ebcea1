"""Does a graph hold together? Asked of one that was read from a document, or changed by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tapestry_plan.ir.boundary import resolve
from tapestry_plan.ir.op import UnsupportedOp
from tapestry_plan.ir.selection import check_pieces
from tapestry_plan.ir.tensors import OpNode, Selection
from tapestry_sets.limits import quote

if TYPE_CHECKING:
    from tapestry_plan.ir.graph import Graph


def check_graph(graph: Graph) -> None:
    """Check a whole graph; see `Graph.validate`."""
    _check_makers(graph)
    known = {name for name, tensor in graph.stored.items() if tensor.kind != "result"}
    checked: set[tuple[object, ...]] = set()
    for item in graph._ordered():
        where = f"node {quote(item.name)}"
        for name in item.inputs:
            if name not in known:
                raise ValueError(f"{where} reads {quote(name)}, which no earlier node makes")
        if isinstance(item, Selection):
            _check_selection(graph, item)
        elif item.op not in graph.ops:
            raise UnsupportedOp(f"{where}: operator {quote(item.op)} has no declaration")
        else:
            _check_node(graph, item, where, checked)
        known.update(item.outputs)
    for label, name in graph.outputs.items():
        if name not in known:
            raise ValueError(f"output {quote(label)} names tensor {quote(name)}, which does not exist")


def _check_makers(graph: Graph) -> None:
    """Each result is made by one operator, each name is one tensor's, and operators write results only."""
    makers: dict[str, str] = {}
    for node in graph.nodes.values():
        for name in node.outputs:
            tensor = graph.stored.get(name)
            if tensor is None or tensor.kind != "result":
                found = "not a stored tensor" if tensor is None else f"of kind {quote(tensor.kind)}"
                raise ValueError(f"node {quote(node.name)} writes {quote(name)}, which is {found}; it must be a result")
            if name in makers:
                raise ValueError(
                    f"tensor {quote(name)} is made by the nodes {quote(makers[name])} and "
                    f"{quote(node.name)}; one must make it"
                )
            makers[name] = node.name
    for name, tensor in graph.stored.items():
        if tensor.kind not in ("input", "constant", "result"):
            raise ValueError(
                f"tensor {quote(name)} is of kind {quote(tensor.kind)}; it must be input, constant or result"
            )
        if tensor.kind == "result" and name not in makers:
            raise ValueError(f"tensor {quote(name)} is a result, but no operator makes it")
        if name in graph.selections:
            raise ValueError(f"a stored tensor and a selection are both called {quote(name)}; rename one")


def _check_node(graph: Graph, node: OpNode, where: str, checked: set[tuple[object, ...]]) -> None:
    """An operator takes its operands and attributes, and its outputs are what it gives: of alike ones once."""
    op = graph.ops[node.op]
    tensors = *map(graph.source, node.inputs), None, *(graph.stored[name] for name in node.outputs)
    kind = node.op, repr(node.attrs), *(one and (one.shape, one.dtype) for one in tensors)
    if kind in checked:
        return
    try:
        op.check_attributes(node.attrs, where)
    except TypeError as error:
        raise ValueError(str(error)) from None
    sources = [graph.source(name) for name in node.inputs]
    shapes, outs = [source.shape for source in sources], [graph.stored[name] for name in node.outputs]
    try:
        signature = resolve(op.signature, shapes, node.attrs)[0]
        dtypes = tuple(op.dtype([source.dtype for source in sources], node.attrs))
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"{where}: {quote(node.op)} does not take its operands and attributes: {error}") from None
    signature.validate(shapes, [tensor.shape for tensor in outs], where)
    for tensor, dtype in zip(outs, dtypes, strict=True):
        if tensor.dtype != dtype:
            raise ValueError(f"{where}: its output {quote(tensor.name)} has dtype {tensor.dtype}; it gives {dtype}")
    checked.add(kind)


def _check_selection(graph: Graph, selection: Selection) -> None:
    what = f"selection {quote(selection.name)} ({selection.label})"
    below = [graph.tensor(name) for name in selection.inputs]
    if not below:
        raise ValueError(f"{what}: it reads no tensor; a selection views at least one")
    dtypes = {tensor.dtype for tensor in below} - {selection.dtype}
    if dtypes:
        raise ValueError(f"{what}: it has dtype {selection.dtype}, but it reads {quote(sorted(dtypes))}")
    check_pieces(selection.pieces, selection.shape, [tensor.shape for tensor in below], what)
