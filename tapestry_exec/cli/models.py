"""Models and their inputs: random values, values from files, the whole run to compare with, and whose model it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np

from tapestry_exec.cli.planning import read_archive, read_file
from tapestry_exec.copies import Array
from tapestry_exec.run import evaluate
from tapestry_plan.ir import Graph, Shape
from tapestry_plan.onnx import StagedModel
from tapestry_sets.limits import list_names, quote


def check_seed(seed: int) -> None:
    """Refuse a seed from which there are no random numbers."""
    if seed < 0:
        raise click.UsageError(f"--seed is {seed}; give an integer >= 0")


def random_inputs(graph: Graph, seed: int) -> dict[str, Array]:
    """Seeded inputs for a graph: standard normal floats, small integers, booleans."""
    check_seed(seed)
    inputs = [tensor for tensor in graph.stored.values() if tensor.kind == "input"]
    return {one.name: _random_input(one.name, one.shape, one.dtype, (seed, k)) for k, one in enumerate(inputs)}


def _random_input(name: str, shape: Shape, dtype: str, seed: tuple[int, int]) -> Array:
    rng = np.random.default_rng(seed)
    try:
        if np.dtype(dtype).kind in "fc":
            return rng.standard_normal(shape).astype(dtype)
        return rng.integers(0, 2, shape).astype(dtype)
    except (MemoryError, ValueError, OverflowError):  # NumPy has several ways to say that an array is too large
        raise MemoryError(
            f"input {quote(name)} of shape {quote(shape)} does not fit into this machine's memory; give "
            "it smaller extents"
        ) from None


def fill_inputs(graph: Graph, given: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """The inputs that are given, and the others of a graph, at random."""
    out = random_inputs(graph, seed)
    known = [*out, *graph.unread]
    for name in given:
        if name not in known:  # the graph is of a plan from a document, whose model has other inputs
            raise click.UsageError(f"--input: the plan has no input {quote(name)}; {list_names(known, name, 'inputs')}")
    return {**out, **given}


def random_open_inputs(model: StagedModel, seed: int) -> dict[str, Array]:
    """Inputs that a model in stages was not given, at random."""
    check_seed(seed)
    out = {}
    for k, (name, known) in enumerate(model.inputs.items()):
        if known.dtype is None or known.shape is None or None in known.shape:
            raise click.UsageError(
                f"input {quote(name)} is not a tensor of numbers of known shape, so that it cannot be random; give "
                f"it, as --input {name}={name}.npy, or its extents by --shape; a sequence or a map, which no .npy has, "
                "in Python, as a list or a dict to run_stages"
            )
        extents = tuple(n for n in known.shape if n is not None)
        out[name] = _random_input(name, extents, known.dtype, (seed, k))
    return out


def read_inputs(files: Sequence[str]) -> dict[str, Array]:
    """Inputs from ``name=file.npy``, or all that a ``file.npz`` has, by name."""
    out: dict[str, Array] = {}
    for item in files:
        name, sign, file = item.partition("=")
        if item.endswith(".npz") and not sign:
            found = read_archive("--input", item)
        elif sign and name and file:
            found = {name: read_file("--input", item, file)}
        else:
            raise click.UsageError(f"--input {quote(item)} is not of the form name=file.npy, or a file.npz of inputs")
        if twice := sorted(out.keys() & found.keys()):
            raise click.UsageError(f"--input {quote(item)}: {quote(twice[0])} is given twice; give it once")
        out |= found
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
