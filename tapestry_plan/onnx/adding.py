"""One node after another becomes a known value, or operators and selections of the graph."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from math import prod
from typing import Any

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import Tensor, UnsupportedOp
from tapestry_plan.onnx.bodies import has_body, nodes_of
from tapestry_plan.onnx.folding import evaluate
from tapestry_plan.onnx.inputs import InputShapes, dtype_of
from tapestry_plan.onnx.nodes import (
    Importing,
    Node,
    TooLargeToFold,
    check_attributes,
    check_version,
    refusal,
    schema_of,
)
from tapestry_plan.onnx.operators import IMPORTERS, NOT_ADDED
from tapestry_sets.limits import cut_text, list_names, quote

RANDOM_OPS = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
"""Never evaluated in advance: each run is to draw anew."""


def check_supported(nodes: Sequence[Node], at: Importing) -> None:
    """Raise for all nodes that are neither in the table nor evaluated in advance."""
    known: set[str] = set()
    missing = []
    for node in nodes:
        if _is_folded(node, at, known):
            known.update(node.outputs)
        elif not _has_importer(node, at):
            missing.append(node)
    if missing:
        raise UnsupportedOp(
            f"{len(missing)} node{'s have' if len(missing) > 1 else ' has'} an operator that is not supported:\n"
            + "\n".join(_missing_line(node, at) for node in missing)
            + f"\nthe {len(IMPORTERS)} supported are the keys of tapestry_plan.onnx.IMPORTERS, and others can be added"
        )


def is_supported(node: Node, at: Importing) -> bool:
    """Whether a node is in the table or evaluated in advance."""
    return _is_folded(node, at, ()) or _has_importer(node, at)


def _is_folded(node: Node, at: Importing, known: Collection[str]) -> bool:
    """Whether a node is evaluated in advance, where these tensors are known too."""
    if node.domain or node.captured is not None:
        return False
    reads = [name for name in node.inputs if name]
    is_known = all(name in known or at.is_known(name) for name in reads) and node.op_type not in RANDOM_OPS
    return is_known or node.op_type in NOT_ADDED


def _has_importer(node: Node, at: Importing) -> bool:
    return (node.captured is None and node.operator in IMPORTERS) or has_body(node, at)


def _missing_line(node: Node, at: Importing) -> str:
    """What is known of a node whose operator is not supported."""
    line = f"  node {quote(node.name)}: {cut_text(node.op_type)} of domain {quote(node.domain or 'ai.onnx')}"
    line += "" if node.domain else f", opset {at.opset}"
    line += "" if node.captured is None else ", with a graph inside"
    why = at.undecided.get(node.outputs[0]) if node.outputs else None
    if why is not None:
        return f"{line}, whose condition is {quote(node.inputs[0])}, {why}"
    return f"{line}; {list_names(IMPORTERS, node.operator, 'operators')}"


def check_made(node: Node, name: str, is_made: bool) -> None:
    """Raise ValueError where a node reads what is not made."""
    if not is_made:
        raise ValueError(f"{node.where} reads {quote(name)}, which no node makes and which is not an input")


def add_input(value: Any, shapes: InputShapes, at: Importing) -> None:
    """Declare an input of the model, but for one whose value is known."""
    if at.has(value.name):
        return
    dtype = dtype_of(value)
    if (empty := shapes.empty(value)) is not None:  # of which there is one value alone
        at.bind(value.name, np.empty(empty, dtype))
        return
    shape = shapes.shape(value)
    if prod(shape) >= 2**63:
        raise ValueError(
            f"input {quote(value.name)} of shape {quote(shape)} has 2**63 cells or more, "
            "which cannot be counted: give it smaller extents"
        )
    try:
        at.bind(value.name, at.graph.input(value.name, shape, dtype))
    except TypeError as error:
        raise ValueError(str(error)) from None


def add_node(at: Importing, node: Node) -> None:
    """Evaluate a node in advance where its inputs are known, else add it to the graph."""
    takes = IMPORTERS.get(node.operator, NOT_ADDED.get(node.operator))
    if takes is not None:
        takes.check_inputs(node)
    check_attributes(node, at.opset)
    reads = [name for name in node.inputs if name]
    for name in reads:
        check_made(node, name, at.has(name))
    if node.operator in NOT_ADDED:
        NOT_ADDED[node.operator].add(at, node)
        NOT_ADDED[node.operator].check_read(node, at.opset)
    elif _is_evaluated(node) and all(map(at.is_known, reads)):
        _add_known(at, node)
    else:
        _add_to_graph(at, node)
    behind = [at.unfolded[name] for name in reads if name in at.unfolded]
    if behind and all(name in at.unfolded or at.is_known(name) for name in reads):
        at.unfolded.update((name, behind[0]) for name in node.outputs if name and not at.is_known(name))


def _is_evaluated(node: Node) -> bool:
    """Whether ONNX's reference evaluates a node whose inputs are known; others become what they become in graphs."""
    return not node.domain and node.captured is None and node.op_type not in {"Identity", "Dropout", *RANDOM_OPS}


def _add_known(at: Importing, node: Node) -> None:
    """Evaluate a node, or add it to the graph where the reference implementation does not run it."""
    try:
        values = evaluate(node, at)
    except ValueError as error:
        if node.operator not in IMPORTERS and (isinstance(error, TooLargeToFold) or not has_body(node, at)):
            raise
        if isinstance(error, TooLargeToFold):
            at.unfolded.update(dict.fromkeys(node.outputs, str(error)))
        _add_to_graph(at, node)
        return
    for name, array in zip(node.outputs, values, strict=False):
        at.bind(name, array)


def _add_to_graph(at: Importing, node: Node) -> None:
    """Add a node by its importer; where there is none, or it refuses, by the nodes that can stand in its place."""
    if node.captured is not None or node.operator not in IMPORTERS:
        if node.operator != "If" and not has_body(node, at):  # it was to be evaluated, but reads what could not be
            why = "its operator is not supported, and its inputs are not known in advance"
            raise refusal(node, why + _unfolded(at, node))
        _add_body(at, node)
        return
    check_version(node, at.opset)
    try:
        with at.trying():
            _import(at, node)
    except UnsupportedOp as error:
        if not has_body(node, at):
            raise
        try:
            _add_body(at, node)
        except UnsupportedOp:
            raise error from None  # which says more of what is asked for


def _add_body(at: Importing, node: Node) -> None:
    for one in nodes_of(node, at):
        add_node(at, one)


def _unfolded(at: Importing, node: Node) -> str:
    return next((f": {at.unfolded[name]}" for name in node.inputs if name in at.unfolded), "")


def _import(at: Importing, node: Node) -> None:
    """Add a node by its importer, and bind its outputs."""
    takes = IMPORTERS[node.operator]
    short = [] if takes.moves else [k for k, name in enumerate(node.inputs) if name and at.dtype_of(name) == "bfloat16"]
    try:
        with at.widening() if short else nullcontext():
            results = takes.add(at, node)
    except UnsupportedOp:
        raise
    except KeyError as error:
        raise ValueError(f"{node.where}: the attribute {error} is missing") from None
    except (ValueError, TypeError, IndexError) as error:
        unfolded = _unfolded(at, node)
        also = f"; it reads what the import cannot know{unfolded}" if unfolded else ""
        raise ValueError(f"{node.where}: {error}{also}") from None
    IMPORTERS[node.operator].check_read(node, at.opset)
    if results is None:  # an alias, bound already
        return
    results = results if isinstance(results, list) else [results]
    if short:
        read = [k < len(node.outputs) and bool(node.outputs[k]) for k in range(len(results))]
        results = [_rounded(one, node, k, short, at.opset) if read[k] else one for k, one in enumerate(results)]
    for k, name in enumerate(node.outputs):
        if name and k >= len(results):
            raise refusal(node, f"its output {k}, {quote(name)}, is not made here")
    for name, result in zip(node.outputs, results, strict=False):
        if name:
            at.bind(name, result)


def _rounded(made: Tensor, node: Node, k: int, short: Sequence[int], opset: int) -> Tensor:
    """Result k in bfloat16, where the node's schema says that it has the dtype of an input that has it."""
    schema = schema_of(node.op_type, opset, node.domain)
    if schema is not None:
        last = len(schema.inputs) - 1
        kinds = {schema.inputs[min(n, last)].type_str for n in short}
        if schema.outputs[min(k, len(schema.outputs) - 1)].type_str not in kinds:
            return made
    return ops.astype(made, "bfloat16") if made.dtype == "float32" else made
