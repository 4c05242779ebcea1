"""The `tapestry` command."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from os import cpu_count
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np

from tapestry_exec.cli import tuning
from tapestry_exec.cli.expression import parse_views
from tapestry_exec.cli.planning import PATH, Planning, find_file, parse_mesh, planning, quiet_option, read_file
from tapestry_exec.cli.terminal import Commands, echo, escape_json, fail, print_table, progress_bar, timed
from tapestry_exec.copies import Array
from tapestry_exec.run import (
    BACKENDS,
    DIFFERENCE_BOUND,
    PreparedPlan,
    ResultMismatch,
    RunResult,
    calibrate,
    check_target,
    difference,
    evaluate,
    replace_file,
    run,
)
from tapestry_plan.ir import Graph, Stored
from tapestry_plan.onnx import before_softmax, demo_model, load_onnx, to_onnx
from tapestry_plan.rewrite import fix_bits
from tapestry_plan.search import ParetoOptions, pareto, plan
from tapestry_plan.steps import (
    DocumentKind,
    InfeasiblePlan,
    Mesh,
    NotFound,
    Shardings,
    ShardPlan,
    describe_document,
    import_library,
    spill,
    tell_block,
)
from tapestry_sets.alias import Overlap, origins_table, overlap, show_views
from tapestry_sets.limits import escape_controls, list_names, quote
from tapestry_sets.views import Allocation

LIBRARIES = ("jax", "dtensor", "dask", "onnx")
"""In whose words `export` says where tensors lie."""
IMPORTED = {"jax": {"jax": "jax"}, "dtensor": {"torch.distributed.tensor": "torch"}}
"""What must be importable for that, and what it is called where it is installed from."""
QUEUES = {
    "work": "the work of",
    "send": "what is sent by",
    "receive": "what is received by",
    "to host": "what goes to host memory from",
    "from host": "what comes from host memory to",
}
"""The queues of a schedule, in words."""


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tapestry-tensor")
def main() -> None:
    """Plan and run tensor programs on a mesh of devices, with exact sets of what moves."""


# -------------------------------------------------------------------------------------------------- inputs


def random_inputs(graph: Graph, seed: int) -> dict[str, Array]:
    """Seeded inputs for a graph: standard normal floats, small integers, booleans."""
    if seed < 0:
        raise click.UsageError(f"--seed is {seed}; it is an integer >= 0")
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


# -------------------------------------------------------------------------------------------------- tables


def print_operators(p: ShardPlan, title: str) -> None:
    """For each operator its sharding, what it pulls from other devices, and what its shards share."""
    rows = [
        (
            one.node,
            tell_block(one.op),
            " ".join(f"{axis}:{parts}" for axis, parts in one.sharding.items() if parts > 1) or "whole",
            f"{sum(one.nbytes_received):,}",
            f"{one.nbytes_shared:,}",
        )
        for one in p.stages
    ]
    print_table(title, ("operator", "type", "sharding", "B pulled", "B shared"), rows, (3, 4))


def print_pareto(plans: Sequence[ShardPlan], title: str) -> None:
    """For each plan the memory that it needs, its time with what is proved of it, and what moves."""
    rows = [
        (f"{max(p.peak_nbytes):,}", f"{p.seconds * 1e6:,.1f}", f"{100 * p.gap:.1f}", f"{p.nbytes_moved:,}")
        for p in plans
    ]
    print_table(title, ("peak B", "modeled us", "gap %", "B moved"), rows, range(4))


def print_devices(p: ShardPlan, r: RunResult | None) -> None:
    """For each device its bytes and peak memory, predicted and, after a run, counted; the spilled bytes if any."""
    shown = [("B received", "nbytes_received"), ("peak B", "peak_nbytes")]
    if any(p.nbytes_spilled):
        shown.append(("B spilled", "nbytes_spilled"))
    found = [(p, None)] if r is None else [(p, None), (r, "counted")]
    columns = [(other or head, getattr(one, name)) for head, name in shown for one, other in found]
    heads = ["device", *(head for head, _ in columns)]
    rows = [[str(d), *(f"{values[d]:,}" for _, values in columns)] for d in range(p.mesh.size)]
    print_table("", heads, rows, range(1, len(heads)))


def tell_us(seconds: float) -> str:
    """Microseconds, with three digits where they are few."""
    return f"{seconds * 1e6:,.1f} us" if seconds >= 1e-5 else f"{seconds * 1e6:.3g} us"


def print_totals(p: ShardPlan) -> None:
    """Modeled time, its proven bound, and how the work is divided."""
    flop = sum(p.flop)
    busiest = max(p.flop, default=0.0)
    echo(
        f"modeled {tell_us(p.seconds)}, proven bound {tell_us(p.bound)} "
        f"(gap {p.gap:.1%}, space {quote(p.space)}); "
        f"{flop:.4g} flop, the busiest device {busiest / flop if flop else 0:.1%}"
    )
    if p.apart:
        some = f"{p.apart[0]} and {len(p.apart) - 1} more" if len(p.apart) > 1 else p.apart[0]
        echo(f"the bound has expansions of {some} with their operators apart, not in blocks")
    if p.choices.memory_nbytes is not None:
        echo("in the memory given, the bound is of plans with the fastest plan's blocks and expansions, or with none")
    schedule = p.schedule
    if schedule.busiest is not None:
        kind, device, _ = schedule.busiest
        echo(
            f"with copies beside work {tell_us(p.makespan_seconds)}; busiest is {QUEUES[kind]} device {device}, "
            f"{tell_us(schedule.busy_seconds[schedule.busiest])}"
        )


# ------------------------------------------------------------------------------------------------ commands


@main.command()
@click.option(
    "--mesh", metavar="N[xM…]", callback=parse_mesh, default="4", show_default=True, help="Devices, as 4 or 2x2."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of random numbers.")
@quiet_option
def demo(mesh: Mesh, seed: int, quiet: bool) -> None:
    """Plan SqueezeNet for a mesh, run the plan, and compare with the network run whole."""
    with timed("reading SqueezeNet from the onnx package, with seeded weights", quiet):
        model = demo_model(seed)
        # softmax flattens differences, so compare what goes into it
        graph = load_onnx(model, outputs=before_softmax(model))
    with timed(f"planning for {mesh.size} devices", quiet):
        p = plan(graph, mesh, seed=seed)
    inputs = random_inputs(graph, seed)
    with progress_bar("running", quiet) as progress:
        r = run(p, inputs, progress=progress)
    name, reference = reference_outputs(model, graph, inputs)
    apart = max(difference(r.outputs[k], reference[k]) for k in r.outputs)
    print_operators(p, f"SqueezeNet on {mesh.size} devices")
    print_devices(p, r)
    print_totals(p)
    echo(f"bytes moved: {p.nbytes_moved:,} predicted, {r.nbytes_moved:,} counted, equal")
    echo("peak memory: predicted and counted equal on every device")
    bound = DIFFERENCE_BOUND["float32"]
    echo(f"largest difference from {name} before softmax: {apart:.3g} (bound {bound:g})")
    if not apart <= bound:
        raise ResultMismatch(f"the run differs from {name} by {apart:.3g}, more than {bound:g}")


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


def load_model(asked: Planning) -> Graph:
    """The graph of the model that is asked for."""
    return load_onnx(find_file(asked.model), shapes=asked.shapes, values=asked.values)


def plan_model(asked: Planning, graph: Graph, mesh: Mesh) -> ShardPlan:
    """A plan in the memory that there is; where none fits as it is, the fastest one, which spills idle buffers."""
    with timed(f"planning {asked.model.name} for {mesh.size} devices", asked.quiet):
        try:
            return plan(graph, mesh, **asked.options)
        except (InfeasiblePlan, NotFound) as error:
            caps = mesh.limit_memory(asked.options["memory_nbytes"])
            if caps is None or error.fastest is None:
                raise
            return spill(error.fastest, caps)


@main.command("plan")
@planning
@click.option("--json", "as_json", is_flag=True, help="Print the plan as its JSON document.")
@click.option("--explain", metavar="OPERATOR", help="Say why an operator is sharded as it is.")
def plan_command(asked: Planning, mesh: Mesh | None, as_json: bool, explain: str | None) -> None:
    """Plan an ONNX model for a mesh and print what moves.

    For example: tapestry plan model.onnx --mesh 2x2 --memory 16GB
    """
    devices = asked.find_mesh(mesh)
    p = plan_model(asked, load_model(asked), devices)
    if as_json:
        return echo(escape_json(p.to_json()))
    if explain is not None:
        return echo(p.explain(explain))
    print_operators(p, f"{asked.model.name} on {devices.size} devices")
    print_devices(p, None)
    print_totals(p)
    echo(f"bytes moved: {p.nbytes_moved:,}; of blocks written anew within devices: {sum(p.nbytes_local):,}")
    if any(p.nbytes_spilled):
        echo(f"bytes spilled to host memory and back: {sum(p.nbytes_spilled):,}")


@main.command("export")
@planning
@click.option(
    "--to",
    "library",
    required=True,
    type=click.Choice(LIBRARIES),
    help="In whose words: jax's PartitionSpecs, dtensor's placements, dask's chunks, or onnx's ShardingSpecProtos.",
)
@click.option("--output", metavar="FILE", type=PATH, help="Write them to this file; a model of ONNX needs one.")
def export_command(asked: Planning, mesh: Mesh | None, library: str, output: Path | None) -> None:
    """Say where a plan's tensors lie, as other libraries do: lines of Python that run, or a model of ONNX.

    Exact. Tensors that the library cannot say are named with the reason, and the exit status is then 1. A model of ONNX
    is written where all can be said, of a plan without blocks of several operators.

    For example: tapestry export model.onnx --mesh 2x2 --to jax --output shardings.py

    Or: tapestry export model.onnx --mesh 2 --no-fuse --to onnx --output sharded.onnx
    """
    if library == "onnx" and output is None:
        raise click.UsageError("--to onnx writes a model; name its file with --output")
    target = None if output is None else check_target(output, "--output")
    try:
        for module, package in IMPORTED.get(library, {}).items():
            import_library(module, package)
    except ImportError as error:
        raise click.UsageError(str(error)) from None
    p = plan_model(asked, load_model(asked), asked.find_mesh(mesh))
    if library == "onnx" and target is not None:
        model = to_onnx(p).SerializeToString()
        with replace_file(target) as file:
            file.write(model)
        return
    found: Shardings[Any] = {"jax": p.to_jax, "dtensor": p.to_dtensor, "dask": p.to_dask_chunks}[library]()
    text = found.to_code()
    if target is None:
        echo(text)
    else:
        with replace_file(target) as file:
            file.write(f"{text}\n".encode())
    refused = found.every_refusal
    for name, why in refused.items():
        echo(f"refused: {name}: {why}", err=True)
    if refused:
        told = len(found) + len(found.outputs)
        fail(f"{len(refused)} of {told + len(refused)} tensors and outputs are not told by {library}", 1)


@main.command("pareto")
@partial(planning, declared=ParetoOptions)
def pareto_command(asked: Planning, mesh: Mesh | None) -> None:
    """Print plans from the fastest one to the one in the least memory.

    For example: tapestry pareto model.onnx --mesh 4 --points 3
    """
    devices = asked.find_mesh(mesh)
    graph = load_model(asked)
    with timed(f"planning {asked.model.name} for {devices.size} devices", asked.quiet):
        plans = pareto(graph, devices, **asked.options)
    print_pareto(plans, f"{asked.model.name} on {devices.size} devices, in less and less memory")


@main.command("run")
@planning
@click.option("--plan", "plan_file", type=PATH, help="Run this plan, made by `plan --json`.")
@click.option("--input", "files", multiple=True, metavar="NAME=FILE.npy", help="An input; random otherwise.")
@click.option(
    "--backend",
    type=click.Choice(sorted(BACKENDS)),
    default="numpy",
    show_default=True,
    help="Where devices are: arenas of this process (numpy: a thread for each where that pays; serial: one loop), "
    "processes of this machine, GPUs through CuPy, or GPUs that are simulated, slowly, under a checker of streams.",
)
@click.option("--verify", is_flag=True, help="Compare with the unsharded run.")
@click.option("--trace", type=PATH, help="Write a Chrome trace here.")
@click.option("--save", type=PATH, metavar="FILE.npz", help="Write the outputs here.")
def run_command(
    asked: Planning, mesh: Mesh | None, plan_file: Path | None, files: Sequence[str], save: Path | None, **how: Any
) -> None:
    """Plan an ONNX model, or take a plan from a file, and run it."""
    if mesh is not None and plan_file is not None:
        raise click.UsageError("--mesh and --plan cannot both be given: the plan names its mesh")
    memory_nbytes, seed = asked.options["memory_nbytes"], asked.options["seed"]
    changed = [*asked.changed, *["--machine"] * (asked.machine is not None)]
    if plan_file is not None and changed:
        verb = "are" if len(changed) > 1 else "is"
        raise click.UsageError(
            f"{', '.join(changed)} {verb} for making a plan, and --plan gives one that is made: give one of them"
        )
    if save is not None:
        save = _npz_target(save)
    if how["trace"] is not None:
        target = check_target(how["trace"], "--trace")
        read = [asked.model, plan_file, *(Path(item.partition("=")[2]) for item in files), save]
        if target in [path.resolve() for path in read if path is not None]:
            raise click.UsageError(
                f"--trace {quote(str(how['trace']))} is a file that this run reads or saves; give another name"
            )
    if plan_file is not None:
        p, graph = _planned_before(asked, plan_file)
    else:
        graph = load_model(asked)
        p = plan_model(asked, graph, asked.find_mesh(mesh))
    PreparedPlan(p, how["backend"]).within(memory_nbytes).check_room()  # before there are random inputs
    named = {name for name, tensor in p.graph.stored.items() if tensor.kind == "constant"}
    constants = {name: graph.stored[name].data for name in named if name in graph.stored}
    inputs = read_inputs(p.graph, files, seed)
    with progress_bar("running", asked.quiet) as progress:
        r = run(p, inputs, progress=progress, memory_nbytes=memory_nbytes, constants=constants, **how)
    print_devices(p, r)
    for name, value in r.outputs.items():
        found = f", difference from the unsharded run {r.difference[name]:.3g}" if r.difference else ""
        echo(f"output {escape_controls(name, keep='')}: {value.dtype}{list(value.shape)}{found}")
    echo(f"bytes moved: {p.nbytes_moved:,} predicted, {r.nbytes_moved:,} counted, equal; {r.seconds:.3f} s")
    told = {"bytes placed": "nbytes_placed", "bytes copied within devices": "nbytes_copied"}
    if any(p.nbytes_spilled):
        told["bytes spilled to host memory and back"] = "nbytes_spilled"
    for what, name in told.items():
        there, found = (f"{sum(getattr(one, name)):,}" for one in (p, r))
        echo(f"{what}: {there} predicted, {found} counted, equal")
    if save is not None:
        with replace_file(save) as file:
            np.savez(file, allow_pickle=False, **r.outputs)


@main.command("calibrate")
@click.argument("file", type=PATH, metavar="FILE.toml")
@click.option(
    "--backend",
    type=click.Choice(sorted(set(BACKENDS) - {"simulated"})),
    default="numpy",
    show_default=True,
    help="Whose kernels and copies are measured; nobody has measured GPUs yet.",
)
@click.option(
    "--devices", type=click.IntRange(1), default=4, show_default=True, help="How many such devices the machine has."
)
@quiet_option
def calibrate_command(file: Path, backend: str, devices: int, quiet: bool) -> None:
    """Measure kernels and copies of this machine, and write FILE.toml for --machine.

    Copies within a device, of blocks written anew and of own cells beside those that come, are priced at the memory's
    rate that is measured on sums of two tensors.
    """
    if file.suffix != ".toml":
        raise click.UsageError(f"FILE.toml: {quote(str(file))} does not end in .toml, as --machine wants; rename it")
    target = check_target(file, "FILE.toml")
    found = calibrate(backend, devices=devices, report=None if quiet else partial(echo, err=True))
    text = found.to_toml()
    with replace_file(target) as written:
        written.write(
            f"# Measured by `tapestry calibrate` on {date.today()}: backend {backend}, {cpu_count()} cores of this "
            f"machine.\n{text}\n".encode()
        )
    echo(text)


def _npz_target(path: Path) -> Path:
    target = check_target(path, "--save")
    if path.suffix != ".npz":
        raise click.UsageError(
            f"--save: {quote(str(path))} does not end in .npz, as files of several arrays do; rename it"
        )
    return target


def _planned_before(asked: Planning, file: Path) -> tuple[ShardPlan, Graph]:
    """The plan in a file, in the memory that there is, and the model's graph, if the plan was made for that."""
    p = ShardPlan.from_json(find_file(file).read_bytes())
    graph, memory_nbytes = load_model(asked), asked.options["memory_nbytes"]
    if any(node.op.startswith("leaves(") for node in p.graph.nodes.values()):  # made with --same-bits
        graph = fix_bits(graph)
    try:
        graph = p.derivation.replay(graph)
        apart = first_difference(p.graph, graph)
    except ValueError as error:
        apart = f"its operators cannot be expanded as the plan's were: {error}"
    if apart is not None:
        raise click.UsageError(f"{file} was made for another model than {asked.model}: {apart}; make the plan again")
    return PreparedPlan(p).within(memory_nbytes).plan if memory_nbytes is not None else p, graph


ENTRIES = {"operator": "node", "selection": "select"}
"""What is in the order of a graph's document, with the field that has its name."""


def first_difference(planned: Graph, loaded: Graph) -> str | None:
    """The first thing in which the graph of a plan and that of a model differ, None when they are the same.

    Tensors with the SHA-256 of constants, operators with their attributes, selections and outputs are
    compared by name; where the constants lie does not matter.

    Examples
    --------
    >>> g, h = Graph(), Graph()
    >>> _ = g.output(g.input("x", (2, 3))), h.output(h.input("x", (2, 4)))
    >>> first_difference(g, g), first_difference(g, h)
    (None, "tensor 'x' has shape [2, 3] in the plan, [2, 4] in the model")
    """
    ours, theirs = _entries(planned), _entries(loaded)
    apart = (_entries_apart(kind, ours[kind], theirs[kind]) for kind in ours)
    return next(filter(None, apart), None)


def _entries(graph: Graph) -> dict[str, dict[str, dict[str, Any]]]:
    """The entries of a graph's document, for each kind by name."""
    document = graph.to_dict()
    named = {kind: {one[key]: one for one in document["order"] if key in one} for kind, key in ENTRIES.items()}
    outputs = {label: {"tensor": name} for label, name in document["outputs"].items()}
    return {"tensor": {one["name"]: one for one in document["tensors"]}, **named, "output": outputs}


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


@main.command("schema")
@click.argument("document", type=click.Choice(get_args(DocumentKind)))
def schema_command(document: DocumentKind) -> None:
    """Print the JSON Schema of a DOCUMENT."""
    echo(json.dumps(describe_document(document), indent=2))


@main.command("overlap")
@click.argument("views")
@click.option("--table", is_flag=True, help="Print what each view reads of each allocation, as a table.")
@click.option("--json", "as_json", is_flag=True, help="Print the pairs as JSON.")
@click.option("--svg", "svg_file", type=PATH, help="Write the picture to this file, as SVG.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 where views share a cell, with 0 where none do.")
def overlap_command(views: str, table: bool, as_json: bool, svg_file: Path | None, exit_code: bool) -> int:
    """Say which views share cells, and where.

    VIEWS is for example 'A[27]; A.reshape(3,3,3)[:2,:2,:2]; A[2::5]': declarations of memory, then views; with
    'B = A[::2]; B' a view has a name.
    """
    if table and as_json:
        raise click.UsageError("--table is text and --json is not; give one of them")
    found = parse_views(views)
    if len(found) < 2:
        raise click.UsageError(
            f"overlap needs two views or more, {len(found)} given; write for example 'A[27]; A[:9]; A[2::5]'"
        )
    names, given = [name for name, _ in found], [view for _, view in found]
    pairs = [(names[j], names[k], overlap(given[j], given[k])) for k in range(len(found)) for j in range(k)]
    status = int(exit_code and any(shared for _, _, shared in pairs))
    if svg_file is not None:
        if not svg_file.absolute().parent.is_dir():
            raise click.UsageError(
                f"--svg: there is no directory {quote(str(svg_file.absolute().parent))}; make it first"
            )
        with replace_file(check_target(svg_file, "--svg")) as file:
            file.write(show_views(*given, names=names).svg.encode())
    if as_json:
        echo(json.dumps([_pair_dict(*pair) for pair in pairs], indent=1))
        return status
    for a, b, shared in pairs:
        echo(f"{a}  and  {b}:\n  {describe_overlap(shared)}")
    if table:
        echo(f"\n{origins_table(*given, names=names)}")
    if len(found) <= tuning.SHOWN_VIEWS:
        echo(f"\n{show_views(*given, names=names, indices=False).text}")
    return status


def _pair_dict(a: str, b: str, o: Overlap[Allocation]) -> dict[str, Any]:
    witness = o.witness
    where = None if witness is None else {"allocation": o.allocations[0].name, **witness._asdict()}
    return {"a": a, "b": b, "cells": o.size, "witness": where}


def describe_overlap(o: Overlap[Allocation]) -> str:
    """An overlap in words: the witness and the size.

    Examples
    --------
    >>> from tapestry_sets import allocate
    >>> A = allocate((27,), name="A")
    >>> describe_overlap(overlap(A.reshape(3, 3, 3)[:2, :2, :2], A[2::5]))
    'aliases at A[12]: cell [1, 1, 0] of the first, [2] of the second; 1 cell shared'
    """
    witness = o.witness
    if witness is None:
        return "no common cell"
    name = o.allocations[0].name

    def at(point: tuple[int, ...]) -> str:
        return "[" + ", ".join(map(str, point)) + "]"

    cells = "1 cell" if o.size == 1 else f"{o.size:,} cells"
    where = f"cell {at(witness.a)} of the first, {at(witness.b)} of the second"
    return f"aliases at {name}{at(witness.cell)}: {where}; {cells} shared"
