"""Models and their inputs: random values, values from files, the whole run to compare with, and whose model it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np

from tapestry_exec.cli.planning import read_file
from tapestry_exec.copies import Array
from tapestry_exec.run import evaluate
from tapestry_plan.ir import Graph, Stored
from tapestry_sets.limits import list_names, quote


def check_seed(seed: int) -> None:
    """Refuse a seed from which there are no random numbers."""
    if seed < 0:
        raise click.UsageError(f"--seed is {seed}; give an integer >= 0")


def random_inputs(graph: Graph, seed: int) -> dict[str, Array]:
    """Seeded inputs for a graph: standard normal floats, small integers, booleans."""
    check_seed(seed)
    inputs = [tensor for tensor in graph.stored.values() if tensor.kind == "input"]
    return {tensor.name: _random_input(tensor, np.random.default_rng((seed, k))) for k, tensor in enumerate(inputs)}


def _random_input(tensor: Stored, rng: np.random.Generator) -> Array:
    try:
        if np.dtype(tensor.dtype).kind in "fc":
            return rng.standard_normal(tensor.shape).astype(tensor.dtype)
        return rng.integers(0, 2, tensor.shape).astype(tensor.dtype)
    except (MemoryError, ValueError, OverflowError):  # NumPy has several ways to say that an array is too large
        raise MemoryError(
            f"input {quote(tensor.name)} of shape {quote(tensor.shape)} does not fit into this machine's memory; give "
            "it smaller extents"
        ) from None


def read_inputs(graph: Graph, files: Sequence[str], seed: int) -> dict[str, Array]:
    """Inputs from ``name=file.npy``; those not given are random."""
    out = random_inputs(graph, seed)
    for item in files:
        name, sign, file = item.partition("=")
        if not sign or not name or not file:
            raise click.UsageError(f"--input {quote(item)} is not of the form name=file.npy")
        if name not in out and name not in graph.unread:
            raise click.UsageError(
                f"--input {quote(item)}: the model has no input {quote(name)}; "
                + list_names([*out, *graph.unread], name, "inputs")
            )
        out[name] = read_file("--input", item, file)
    return out


def reference_outputs(model: Any, graph: Graph, inputs: Mapping[str, Array]) -> tuple[str, dict[str, Array]]:
    """The graph's outputs from ONNX Runtime where it is installed, else from the unsharded run; and which."""
    try:
        import onnxruntime
    except ImportError:
        return "the unsharded run", evaluate(graph, inputs)
    wanted = list(graph.outputs)
    shown = type(model).FromString(model.SerializeToString())
    have = {value.name for value in shown.graph.output}
    for name in wanted:
        if name not in have:
            shown.graph.output.add().name = name
    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(shown.SerializeToString(), providers=["CPUExecutionProvider"])
    values = session.run(wanted, dict(inputs))
    return f"ONNX Runtime {onnxruntime.__version__}", dict(zip(wanted, values, strict=True))


ENTRIES = {"operator": "node", "selection": "select"}
"""What is in the order of a graph's document, with the field that has its name."""


def first_difference(planned: Graph, loaded: Graph) -> str | None:
    """The first thing in which the graph of a plan and that of a model differ, None when they are the same.

    Tensors with the SHA-256 of constants, operators with their attributes, selections and outputs are compared by name,
    and what operators make by theirs: a model that was written of a graph calls outputs as their labels say. Where the
    constants lie does not matter.

    Examples
    --------
    >>> g, h = Graph(), Graph()
    >>> _ = g.output(g.input("x", (2, 3))), h.output(h.input("x", (2, 4)))
    >>> first_difference(g, g), first_difference(g, h)
    (None, "tensor 'x' has shape [2, 3] in the plan, [2, 4] in the model")
    """
    ours, theirs = _entries(planned, {}), _entries(loaded, _pair_names(loaded, planned))
    apart = (_entries_apart(kind, ours[kind], theirs[kind]) for kind in ours)
    return next(filter(None, apart), None)


def _pair_names(loaded: Graph, planned: Graph) -> dict[str, str]:
    """What is called otherwise in another graph: results of operators of one name, and views that are one output."""
    found = {
        name: other
        for node in loaded.nodes.values()
        if node.name in planned.nodes
        for name, other in zip(node.outputs, planned.nodes[node.name].outputs, strict=False)
    }
    for label, name in loaded.outputs.items():
        other = planned.outputs.get(label)
        if name in loaded.selections and other in planned.selections:
            found.setdefault(name, str(other))
    return found


def _entries(graph: Graph, names: Mapping[str, str]) -> dict[str, dict[str, dict[str, Any]]]:
    """The entries of a graph's document, for each kind by name, with other names for some tensors."""

    def call(entry: Mapping[str, Any]) -> dict[str, Any]:
        lists = {key: [names.get(one, one) for one in entry[key]] for key in ("inputs", "outputs") if key in entry}
        own = {key: names.get(entry[key], entry[key]) for key in ("name", "select") if key in entry}
        return {**entry, **lists, **own}

    document = graph.to_dict()
    order = [call(entry) for entry in document["order"]]
    named = {kind: {one[key]: one for one in order if key in one} for kind, key in ENTRIES.items()}
    outputs = {label: {"tensor": names.get(name, name)} for label, name in document["outputs"].items()}
    return {"tensor": {one["name"]: one for one in map(call, document["tensors"])}, **named, "output": outputs}


def _entries_apart(
    kind: str, ours: Mapping[str, Mapping[str, Any]], theirs: Mapping[str, Mapping[str, Any]]
) -> str | None:
    for name in [*ours, *theirs]:
        if name not in ours or name not in theirs:
            return f"{kind} {quote(name)} is only in the {'plan' if name in ours else 'model'}"
        for key in [*ours[name], *theirs[name]]:
            one, other = ours[name].get(key), theirs[name].get(key)
            if key == "path" or one == other:
                continue
            if key == "sha256" and one and other:
                return (
                    f"constant {quote(name)} has other values: SHA-256 {one[:12]}… in the plan, {other[:12]}… in the "
                    "model"
                )
            if key == "pieces":
                return f"{kind} {quote(name)} selects other cells"
            return f"{kind} {quote(name)} has {key} {one} in the plan, {other} in the model"
    return None
