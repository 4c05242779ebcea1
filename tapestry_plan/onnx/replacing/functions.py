"""Local functions of a model: checked as ONNX's own operators are, then put in the place of their calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.nodes import has_operator, name_node
from tapestry_plan.onnx.order import all_graphs, graphs_inside, names_of
from tapestry_plan.onnx.replacing.mixed import inline_mixed
from tapestry_sets.limits import cut_text, list_names, quote, tell_count

FunctionKey = tuple[str, str, str]
"""Domain, name and overload of a function."""


def inline_functions(model: Any, opset: int) -> tuple[Any, int]:
    """The model with the nodes of its local functions in place of their calls, and its opset.

    Where functions are written for another opset than the model, that is one that all of them can be in.

    Raises
    ------
    ValueError
        For functions that call themselves or stand for far more nodes than are stored, calls that do not fit their
        function, and functions that cannot be put in place.
    """
    functions = {_key_of(one.domain, one): one for one in model.functions}
    _reject_recursion(model)
    _reject_many_calls(model)
    for graph in all_graphs(model):
        for name, call in names_of(graph):
            function = functions.get(_key_of(call.domain, call))
            if function is not None:
                _check_call(name_node(name, call.op_type), call, function, opset)
    for function in model.functions:
        _check_references(function)
    model = _with_defaults(model)
    inlined, opset = inline_mixed(model, opset, _inline)
    for graph in all_graphs(inlined):
        for name, call in names_of(graph):
            if _key_of(call.domain, call) in functions:
                _refuse_left(name_node(name, call.op_type), functions[_key_of(call.domain, call)], model)
    return inlined, opset


def _inline(model: Any) -> Any:
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # whatever its C++ raises
        raise ValueError(
            f"the model's local functions cannot be put in place: {' '.join(str(error).split())}"
        ) from None


def _key_of(domain: str, one: Any) -> FunctionKey:
    """How a node names the function that it calls."""
    name = one.op_type if hasattr(one, "op_type") else one.name
    return "" if domain == "ai.onnx" else domain, name, getattr(one, "overload", "")


def _called(nodes: Iterable[Any]) -> Iterator[FunctionKey]:
    """What nodes call, and the graphs inside them."""
    for node in nodes:
        yield _key_of(node.domain, node)
        for graph in graphs_inside(node):
            yield from _called(graph.node)


def _reject_recursion(model: Any) -> None:
    """Raise ValueError for local functions that call themselves, at once or through others."""
    calls = {_key_of(one.domain, one): set(_called(one.node)) for one in model.functions}
    try:
        TopologicalSorter({key: found & calls.keys() for key, found in calls.items()}).prepare()
    except CycleError as error:
        names = " calls ".join(f"{domain}::{name}" for domain, name, _ in reversed(error.args[1]))
        raise ValueError(f"local functions are recursive: {cut_text(names)}; export the model without") from None


def _reject_many_calls(model: Any) -> None:
    """Raise ValueError for local functions that stand for many more nodes than the model has.

    Twenty functions, each of which calls the next one twice, stand for a million.
    """
    called = {_key_of(one.domain, one): list(_called(one.node)) for one in model.functions}
    counts: dict[FunctionKey, int] = {}
    for key in TopologicalSorter({key: called.keys() & found for key, found in called.items()}).static_order():
        counts[key] = sum(counts.get(below, 1) for below in called[key])
    top = list(_called(model.graph.node))
    total, stored = sum(counts.get(key, 1) for key in top), len(top) + sum(map(len, called.values()))
    most = tuning.MAX_INLINED_NODES + tuning.INLINED_TIMES * stored
    if total > most:
        raise ValueError(
            f"the model's local functions stand for {total:,} nodes, its {stored:,} nodes may stand for {most:,}; "
            "export the model without functions that call others many times"
        )


def _check_call(where: str, call: Any, function: Any, opset: int) -> None:
    """Raise ValueError for a call that its function does not declare, or that an operator of ONNX answers as well."""
    domain, name, _ = _key_of(function.domain, function)
    whose = f"the local function {domain or 'ai.onnx'}::{name}"
    if not domain and has_operator(name, opset):
        raise ValueError(
            f"{where}: opset {opset} has an operator {name}, and the model a local function of that name; ONNX leaves "
            "open which of them counts: give the function a domain of its own"
        )
    declared = [*function.attribute, *(one.name for one in function.attribute_proto)]
    for attribute, count in Counter(one.name for one in call.attribute).items():
        if attribute not in declared:
            known = list_names(declared, attribute, "attributes")
            raise ValueError(f"{where}: its attribute {quote(attribute)} is not one of {whose}; {known}")
        if count > 1:
            raise ValueError(f"{where}: its attribute {attribute} is given {count} times; give it once")
    for what, given, most in (
        ("input", len(call.input), len(function.input)),
        ("output", len(call.output), len(function.output)),
    ):
        if given > most:
            raise ValueError(f"{where} has {tell_count(given, what)}, {whose} has {most}: export the model again")


def _with_defaults(model: Any) -> Any:
    """The model, in a copy whose calls give each attribute that has a default: ONNX's inliner passes defaults over."""
    import onnx

    if not any(one.attribute_proto for one in model.functions):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    defaults = {_key_of(one.domain, one): list(one.attribute_proto) for one in model.functions}
    for graph in all_graphs(copy):
        for call in graph.node:
            given = {one.name for one in call.attribute}
            call.attribute.extend(one for one in defaults.get(_key_of(call.domain, call), ()) if one.name not in given)
    return copy


def _check_references(function: Any) -> None:
    """Raise ValueError where a node of a function takes an attribute that the function does not declare."""
    declared = {*function.attribute, *(one.name for one in function.attribute_proto)}
    todo = [function]
    while todo:
        graph = todo.pop()
        for name, node in names_of(graph):
            todo += graphs_inside(node)
            for attribute in node.attribute:
                if attribute.ref_attr_name and attribute.ref_attr_name not in declared:
                    raise ValueError(
                        f"{name_node(name, node.op_type)} of function {quote(function.name)}: its attribute "
                        f"{attribute.name} is the function's {attribute.ref_attr_name}, which it does not declare; "
                        + list_names(sorted(declared), attribute.ref_attr_name, "attributes")
                    )


def _refuse_left(where: str, function: Any, model: Any) -> None:
    """Raise ValueError for a call that ONNX's inliner left as it was: it does so where versions of a domain differ."""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    other = [one for one in function.opset_import if versions.get(one.domain, one.version) != one.version]
    written = " and ".join(f"version {one.version} of {quote(one.domain or 'ai.onnx')}" for one in other)
    asked = " and ".join(str(versions[one.domain]) for one in other)
    why = f"is written for {written}, the model for {asked}" if other else "was left as it was by onnx.inliner"
    raise ValueError(
        f"{where}: the local function {function.domain or 'ai.onnx'}::{function.name} {why}; export both for one "
        "version"
    )
