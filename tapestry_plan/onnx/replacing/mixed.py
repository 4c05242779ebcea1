"""Local functions that are written for another opset than the model: each call in the opset of them all.

    the model, of the oldest opset     calls of this opset are put in place; then the model is converted
    a call of another opset            a model of its own, with the types of what it reads, is converted alike

A function has no types, and what an operator of an older opset is now may depend on the rank of its operand.

ONNX wants the schemas of such operators to be the same in both opsets. Where they are not, its reference takes those of
the function's opset, as here; ONNX Runtime takes the model's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tapestry_plan.onnx.order import all_graphs, graphs_inside, made_in, read_nodes
from tapestry_plan.onnx.replacing.bodies import all_names, renamed
from tapestry_plan.onnx.replacing.older import OLDEST_OPSET, STANDARD, TARGET_OPSET, convert

Inline = Callable[[Any], Any]
"""Puts local functions in the place of calls, where their opsets are the model's."""


def opset_of(one: Any, other: int) -> int:
    """The version of ONNX's own operators that a model or a function is written for, `other` where it has none."""
    return next((int(entry.version) for entry in one.opset_import if entry.domain in STANDARD), other)


def inline_mixed(model: Any, opset: int, inline: Inline) -> tuple[Any, int]:
    """The model without its local functions, and the opset that it is then of."""
    import onnx

    newest = onnx.defs.onnx_opset_version()
    for one in model.functions:
        if not 1 <= opset_of(one, opset) <= newest:
            raise ValueError(
                f"the local function {one.domain}::{one.name} is written for opset {opset_of(one, opset)}; the newest "
                f"supported is {newest}: export it with that one or install a newer onnx"
            )
    if all(opset_of(one, opset) == opset for one in model.functions):
        return inline(model), opset
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for function in copy.functions:
        if _means_the_same(function, opset_of(function, opset), opset):
            _set_opset(function, opset)
    versions = [opset, *(opset_of(one, opset) for one in copy.functions)]
    top = max(*versions, TARGET_OPSET) if min(versions) < OLDEST_OPSET else max(versions)
    taken = {name for graph in all_graphs(copy) for node in graph.node for name in all_names(node)}
    taken.update(name for graph in all_graphs(copy) if hasattr(graph, "initializer") for name in made_in(graph))
    made = _at(copy, opset, top, list(map(_copied, copy.functions)), inline, taken)
    for field in ("output", "value_info"):  # with what the model says of them, not what was found
        del getattr(made.graph, field)[:]
        getattr(made.graph, field).extend(getattr(model.graph, field))
    return made, top


def _copied(proto: Any) -> Any:
    made = type(proto)()
    made.CopyFrom(proto)
    return made


def _set_opset(one: Any, opset: int) -> None:
    kept = [entry for entry in one.opset_import if entry.domain not in STANDARD]
    del one.opset_import[:]
    one.opset_import.add(domain="", version=opset)
    one.opset_import.extend(kept)


def _means_the_same(function: Any, opset: int, other: int) -> bool:
    """Whether two opsets have each operator of a function, and of the graphs inside it, from the same opset on."""
    from onnx import defs

    todo: list[Any] = [function]
    while todo:
        graph = todo.pop()
        for node in graph.node:
            todo += graphs_inside(node)
            if node.domain in STANDARD:
                if not (defs.has(node.op_type, opset, "") and defs.has(node.op_type, other, "")):
                    return False
                found = [defs.get_schema(node.op_type, version, "").since_version for version in (opset, other)]
                if found[0] != found[1]:
                    return False
    return True


def _at(model: Any, opset: int, top: int, functions: Sequence[Any], inline: Inline, taken: set[str]) -> Any:
    """A model in a later opset, without its local functions."""
    model = inline(_having(model, functions))
    if opset < top:
        model = _with_types(_having(model, functions))
        model = inline(_having(convert(_having(model, ()), opset, top), functions))
    model = _with_types(_having(model, functions))
    _replace(model.graph, {}, model, lambda inner, of: _at(inner, of, top, functions, inline, taken), taken)
    return _having(model, ())


def _having(model: Any, functions: Sequence[Any]) -> Any:
    """The model with these functions: the inliner drops those that it has put in place, which others may call yet."""
    del model.functions[:]
    model.functions.extend(functions)
    return model


def _with_types(model: Any) -> Any:
    """The model with the types that ONNX finds for its tensors, through local functions of any opset."""
    from onnx import shape_inference

    return shape_inference.infer_shapes(model)


def _replace(
    graph: Any, types: Mapping[str, Any], model: Any, bring: Callable[[Any, int], Any], taken: set[str]
) -> None:
    """Put what calls are in a later opset in their place, in a graph of a model and in those inside its nodes."""
    from onnx import helper

    functions = {(one.domain, one.name, getattr(one, "overload", "")): one for one in model.functions}
    known = dict(types)
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if value.HasField("type"):
            known[value.name] = value.type
    known |= {one.name: helper.make_tensor_type_proto(one.data_type, list(one.dims)) for one in graph.initializer}
    found = []
    for node in read_nodes(graph):
        function = functions.get((node.proto.domain, node.op_type, getattr(node.proto, "overload", "")))
        if function is None:
            for inner in graphs_inside(node.proto):
                _replace(inner, known, model, bring, taken)
            found.append(_copied(node.proto))
            continue
        body = bring(_model_of(node.proto, function, known, model), opset_of(function, 0)).graph
        del body.input[:]  # which are tensors of this graph
        found += renamed(node, body, taken).node
    del graph.node[:]
    graph.node.extend(found)


def _model_of(call: Any, function: Any, types: Mapping[str, Any], model: Any) -> Any:
    """A model of one call, in the opset of its function."""
    from onnx import ModelProto

    made = ModelProto()
    made.ir_version = model.ir_version
    made.opset_import.extend(function.opset_import)
    has = {entry.domain for entry in made.opset_import}
    made.opset_import.extend(entry for entry in model.opset_import if entry.domain not in has | set(STANDARD))
    reads = list(dict.fromkeys(filter(None, call.input)))
    made.graph.name = function.name
    made.graph.node.append(call)
    made.graph.input.extend(_typed(name, types) for name in reads)
    made.graph.output.extend(_typed(name, types) for name in call.output if name)
    return made


def _typed(name: str, types: Mapping[str, Any]) -> Any:
    from onnx import ValueInfoProto, helper

    return helper.make_value_info(name, types[name]) if name in types else ValueInfoProto(name=name)
