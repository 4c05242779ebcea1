"""The `tapestry` command: what is planned, run, exported and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from datetime import date
from functools import partial
from io import StringIO
from os import cpu_count
from pathlib import Path
from shlex import quote as quote_word
from typing import Any

import click
import numpy as np
from msgspec.structs import replace

from tapestry_exec.cli.answers import (
    CalibrateAnswer,
    DemoAnswer,
    ExplainAnswer,
    ExportAnswer,
    ParetoAnswer,
    PlanFigures,
    RunAnswer,
    RunFigures,
    StagesAnswer,
    print_answer,
)
from tapestry_exec.cli.models import (
    check_seed,
    fill_inputs,
    first_difference,
    random_inputs,
    read_inputs,
    reference_outputs,
)
from tapestry_exec.cli.planning import PATH, Planning, find_file, html_option, is_document, planning, read_plan
from tapestry_exec.cli.printing import (
    print_counted,
    print_devices,
    print_operators,
    print_pareto,
    print_reasons,
    print_run,
    print_totals,
)
from tapestry_exec.cli.staging import find_first_stage, run_in_stages
from tapestry_exec.cli.terminal import (
    Commands,
    echo,
    escape_json,
    fail,
    json_option,
    progress_bar,
    quiet_option,
    timed,
    timed_progress,
    units_option,
)
from tapestry_exec.copies import Array
from tapestry_exec.run import (
    BACKENDS,
    DIFFERENCE_BOUND,
    Checkpoints,
    PreparedPlan,
    ResultMismatch,
    calibrate,
    check_target,
    difference,
    load_backend,
    replace_file,
    run,
)
from tapestry_plan.ir import Graph, UnsupportedOp
from tapestry_plan.onnx import ModelStage, before_softmax, demo_model, load_onnx, to_onnx
from tapestry_plan.rewrite import fix_bits
from tapestry_plan.search import ParetoOptions, pareto, plan_or_spill
from tapestry_plan.steps import (
    Mesh,
    NotFound,
    Shardings,
    ShardPlan,
)
from tapestry_sets.limits import Units, quote, tell_count

LIBRARIES = ("jax", "dtensor", "dask", "onnx")
"""In whose words `export` says where tensors lie."""


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=[
        "tapestry demo --mesh 2x2",
        "tapestry plan model.onnx --mesh 2x2",
        "tapestry overlap 'A[27]; A[:9]; A[2::5]'",
    ],
)
@click.version_option(package_name="tapestry-tensor")
def main() -> None:
    """Plan and run tensor programs on a mesh of devices, with exact sets of what moves."""
    # A model's numbers may overflow, and its user has no line of NumPy's to look at.
    click.get_current_context().with_resource(np.errstate(all="ignore"))


@main.command(
    "demo",
    short_help="Plan and run SqueezeNet, and check the values.",
    examples=["tapestry demo", "tapestry demo --mesh 2 --machine cpu4 --json"],
)
@partial(planning, of_model=False)
@units_option
@json_option
def demo_command(asked: Planning, mesh: Mesh | None, units: Units, as_json: bool) -> None:
    """Plan SqueezeNet for a mesh, run the plan, and compare with the network run whole."""
    devices, seed = asked.find_mesh(mesh), asked.options["seed"]
    check_seed(seed)
    with timed("reading SqueezeNet from the onnx package, with seeded weights", asked.quiet):
        model = demo_model(seed)
        # softmax flattens differences, so compare what goes into it
        graph = load_onnx(model, outputs=before_softmax(model))
    p = plan_model(asked, graph, devices)
    inputs = random_inputs(graph, seed)
    with progress_bar("running", asked.quiet) as progress:
        r = run(p, inputs, progress=progress)
    name, reference = reference_outputs(model, graph, inputs)
    apart = max(difference(r.outputs[k], reference[k]) for k in r.outputs)
    bound = DIFFERENCE_BOUND["float32"]
    if as_json:
        print_answer(DemoAnswer(PlanFigures.of(p), RunFigures.of(r), name, apart, bound))
    else:
        print_operators(p, f"SqueezeNet on {tell_count(devices.size, 'device')}", units)
        print_devices(p, r, units)
        print_totals(p, units)
        print_counted("bytes moved", p.nbytes_moved, r.nbytes_moved, units)
        echo("peak memory: predicted and counted equal on every device")
        print_reasons(p, "tapestry plan MODEL --explain OPERATOR")
        echo(f"largest difference from {name} before softmax: {apart:.3g} (bound {bound:g})")
    if not apart <= bound:
        raise ResultMismatch(f"the run differs from {name} by {apart:.3g}, more than {bound:g}")


def load_model(asked: Planning, given: Mapping[str, Array] | None = None) -> Graph:
    """The graph of the model that is asked for, with open sizes as inputs that are given have them."""
    if is_document(asked.model):
        raise click.UsageError(
            f"{quote(str(asked.model))} is a document, as tapestry plan --json writes plans, not a model of ONNX; give "
            f"the model, and the plan by --plan to run it or by --like to keep its choices"
        )
    file = find_file(asked.model)
    return load_onnx(file, shapes=asked.shapes, values=asked.values, feeds=given, opaque=asked.opaque)


def plan_model(asked: Planning, graph: Graph, mesh: Mesh) -> ShardPlan:
    """The plan that fits the memory that there is, which may spill, with its progress shown.

    A plan whose choices are kept is bound first where it is of the model at other sizes.
    """
    options, like = asked.options, asked.options.get("like")
    if like is not None and has_other_sizes(graph, like.graph):
        options = {**options, "like": _bind_like(like, graph, options.get("memory_nbytes"))}
    with timed_progress(f"planning {asked.model.name} for {tell_count(mesh.size, 'device')}", asked.quiet) as progress:
        return plan_or_spill(graph, mesh, **options, progress=progress)


def _bind_like(like: ShardPlan, graph: Graph, memory_nbytes: int | None) -> ShardPlan:
    """The plan at the model's sizes; the memory that is asked for now, if any, stands for that of the plan."""
    try:
        return like.bind(graph)
    except NotFound as error:
        if memory_nbytes is None:
            raise
        bound: ShardPlan = error.fastest
        return bound


def has_other_sizes(graph: Graph, other: Graph) -> bool:
    """Whether two graphs have the same inputs, some of them of other extents."""
    both = [(one, other.stored[name]) for name, one in graph.stored.items() if name in other.stored]
    given = [(one, there) for one, there in both if one.kind == "input"]
    return bool(graph.sizes) and any(
        len(one.shape) == len(there.shape) and one.shape != there.shape for one, there in given
    )


@main.command(
    "plan",
    examples=[
        "tapestry plan model.onnx --mesh 2x2 --memory 16GB",
        "tapestry plan model.onnx --machine h100x8 --fix conv=n:2 --units exact",
        "tapestry plan model.onnx --mesh 2 --explain conv",
        "tapestry plan model.onnx --mesh 2x2 --json > plan.json",
        "tapestry plan model.onnx --mesh 2x2 --html report.html",
        "tapestry plan model.onnx --like plan.json --fix conv=n:2",
        "tapestry plan open.onnx --shape batch=32 --mesh 2",
    ],
)
@planning
@units_option
@json_option
@html_option
@click.option("--explain", metavar="OPERATOR", help="Say why an operator is sharded as it is.")
def plan_command(
    asked: Planning, mesh: Mesh | None, units: Units, as_json: bool, html: Path | None, explain: str | None
) -> None:
    """Plan an ONNX model for a mesh and print what moves.

    With --json the plan is printed as a document, which `explain`, `transfers`, `verify` and `run --plan` read. Of a
    model whose shapes follow from values, as behind NonZero, it is what stands before these; the rest is told beside.
    Where nothing stands before, that is said, with the values that it waits for; in JSON as `run` tells of stages.
    """
    devices = asked.find_mesh(mesh)
    _check_html(html, asked.model)
    waits = None
    try:
        graph = load_model(asked)
    except UnsupportedOp as error:
        if not asked.opaque:
            raise
        stage, waits = find_first_stage(asked, error)
        if stage is None or stage.graph is None:
            return _tell_nothing_planned(stage, waits, as_json, html, explain)
        graph = stage.graph
    p = plan_model(asked, graph, devices)
    if html is not None:
        p.report(html)
    if waits is not None and (as_json or explain is not None):
        echo(" ".join(waits.split()), err=True)
    if explain is not None:
        return print_answer(ExplainAnswer.of(p, [explain])) if as_json else echo(p.explain(explain))
    if as_json:
        return echo(escape_json(p.to_json()))
    print_operators(p, f"{asked.model.name} on {tell_count(devices.size, 'device')}", units)
    print_devices(p, None, units)
    print_totals(p, units)
    local = units.nbytes(sum(p.nbytes_local))
    echo(f"bytes moved: {units.nbytes(p.nbytes_moved)}; of blocks written anew within devices: {local}")
    if any(p.nbytes_spilled):
        echo(f"bytes spilled to host memory and back: {units.nbytes(sum(p.nbytes_spilled))}")
    print_reasons(p, "--explain OPERATOR")
    if waits is not None:
        echo(waits)


def _tell_nothing_planned(
    stage: ModelStage | None, waits: str, as_json: bool, html: Path | None, explain: str | None
) -> None:
    """Say that nothing of a model can be planned before values are known, and why there is no page about it."""
    wanted = "--html" if html is not None else "--explain" if explain is not None else None
    if wanted is not None:
        raise click.UsageError(f"{wanted} is about a plan, and {' '.join(waits.split())}; leave it out")
    if as_json:
        return print_answer(StagesAnswer.planned(stage))
    echo(waits)


@main.command(
    "export",
    short_help="Say where tensors lie, for JAX, PyTorch, Dask, ONNX.",
    examples=[
        "tapestry export model.onnx --mesh 2 --space mesh --to dask",
        "tapestry export plan.json --to jax",
        "tapestry export model.onnx --mesh 2 --space mesh --to onnx --output sharded.onnx",
    ],
)
@planning
@json_option
@click.option(
    "--to",
    "library",
    required=True,
    type=click.Choice(LIBRARIES),
    help="In whose words: jax's PartitionSpecs, dtensor's placements, dask's chunks, or onnx's ShardingSpecProtos.",
)
@click.option("--output", metavar="FILE", type=PATH, help="Write them to this file; a model of ONNX needs one.")
def export_command(asked: Planning, mesh: Mesh | None, as_json: bool, library: str, output: Path | None) -> None:
    """Say where a plan's tensors lie, as other libraries do: lines of Python that run, or a model of ONNX.

    MODEL may be a plan, too, that `plan --json` saved. Tensors that the library cannot say are named with the reason,
    and the exit status is then 1; what is said is exact. A model of ONNX is written where all can be said; blocks of
    several operators are written as these.
    """
    if library == "onnx" and output is None:
        raise click.UsageError("--to onnx writes a model; name its file with --output")
    target = None if output is None else check_target(output, "--output")
    p = _plan_to_export(asked, mesh)
    if library == "onnx" and target is not None:
        _check_values(p, asked.model)
        model = to_onnx(p).SerializeToString()
        with replace_file(target) as file:
            file.write(model)
        if as_json:
            print_answer(ExportAnswer(library, str(output), None, {}))
        return
    found: Shardings[Any] = {"jax": p.to_jax, "dtensor": p.to_dtensor, "dask": p.to_dask_chunks}[library]()
    text, refused = found.to_code(), found.every_refusal
    if target is not None:
        with replace_file(target) as file:
            file.write(f"{text}\n".encode())
    if as_json:
        written = None if output is None else str(output)
        print_answer(ExportAnswer(library, written, text if output is None else None, dict(refused)))
    elif target is None:
        echo(text)
    for name, why in refused.items():
        echo(f"refused: {name}: {why}", err=True)
    if refused:
        told = len(found) + len(found.outputs)
        fail(f"{len(refused)} of {told + len(refused)} tensors and outputs are not told by {library}", 1)


def _check_values(p: ShardPlan, file: Path) -> None:
    """Refuse to write a model of a saved plan with constants, whose values only the model has."""
    absent = [name for name, one in p.graph.stored.items() if one.kind == "constant" and one.data is None]
    if absent:
        raise click.UsageError(
            f"--to onnx: {quote(str(file))} names constants, as {quote(absent[0])}, without their values; give the "
            f"model, which has them: tapestry export MODEL --like {quote_word(str(file))} --to onnx --output FILE"
        )


def _plan_to_export(asked: Planning, mesh: Mesh | None) -> ShardPlan:
    """The plan of a model, or one that was saved."""
    if not is_document(asked.model):
        return plan_model(asked, load_model(asked), asked.find_mesh(mesh))
    given: list[tuple[str, object]] = [
        ("--mesh", mesh),
        ("--machine", asked.machine),
        ("--shape", asked.shapes),
        ("--value", asked.values),
    ]
    given += [("--memory", asked.options["memory_nbytes"]), ("--seed", asked.options["seed"])]  # nothing is run
    changed = [*asked.changed, *(name for name, value in given if value), *["--no-opaque"] * (not asked.opaque)]
    if changed:
        raise click.UsageError(
            f"{', '.join(changed)} {'are' if len(changed) > 1 else 'is'} for making a plan, and "
            f"{quote(str(asked.model))} is one that is made: leave {'them' if len(changed) > 1 else 'it'} out, or give "
            "the model, and the plan by --like"
        )
    return read_plan(asked.model)


@main.command(
    "pareto",
    short_help="Print plans in less and less memory.",
    examples=["tapestry pareto model.onnx --mesh 4 --points 3"],
)
@partial(planning, declared=ParetoOptions)
@units_option
@json_option
def pareto_command(asked: Planning, mesh: Mesh | None, units: Units, as_json: bool) -> None:
    """Print plans from the fastest one to the one in the least memory."""
    devices = asked.find_mesh(mesh)
    graph = load_model(asked)
    with timed_progress(
        f"planning {asked.model.name} for {tell_count(devices.size, 'device')}", asked.quiet
    ) as progress:
        plans = pareto(graph, devices, **asked.options, progress=progress)
    if as_json:
        return print_answer(ParetoAnswer([PlanFigures.of(p) for p in plans]))
    print_pareto(plans, f"{asked.model.name} on {tell_count(devices.size, 'device')}, in less and less memory", units)


@main.command(
    "run",
    short_help="Run a model by a plan, counting each byte.",
    examples=[
        "tapestry run model.onnx --mesh 2x2 --verify --trace trace.json",
        "tapestry run model.onnx --plan plan.json --input x=x.npy --save outputs.npz",
        "tapestry run model.onnx --mesh 2x2 --html report.html",
        "tapestry run model.onnx --mesh 4 --backend processes --checkpoints folder --every 60",
    ],
)
@planning
@units_option
@json_option
@click.option("--plan", "plan_file", type=PATH, help="Run this plan, made by `plan --json`.")
@click.option(
    "--input",
    "files",
    multiple=True,
    metavar="NAME=FILE.npy",
    help="An input, or as inputs.npz several, by name; random otherwise. Sizes that the model leaves open are theirs.",
)
@click.option(
    "--backend",
    type=click.Choice(sorted(BACKENDS)),
    default="numpy",
    show_default=True,
    help="Where devices are: arenas of this process (numpy: a thread for each where that pays; serial: one loop), "
    "processes of this machine (processes; dask: on workers that are started for it; mpi: ranks, begun by mpiexec -n N "
    "python -m tapestry_exec.mpi -m tapestry_exec.cli run …), GPUs through CuPy (nccl: exchanging through NCCL), or "
    "GPUs that are simulated, slowly, "
    "under a checker of streams.",
)
@html_option
@click.option("--verify", is_flag=True, help="Compare with the unsharded run.")
@click.option("--trace", type=PATH, help="Write a Chrome trace here.")
@click.option("--save", type=PATH, metavar="FILE.npz", help="Write the outputs here.")
@click.option("--checkpoints", "folder", type=PATH, metavar="FOLDER", help="Save here what devices hold on the way.")
@click.option("--after", multiple=True, metavar="STAGE", help="Save behind this stage; may be repeated.")
@click.option("--every", type=float, metavar="SECONDS", help="Save behind the stage that ends then.")
@click.option("--resume", type=PATH, metavar="FOLDER", help="Go on from the last checkpoint in this folder.")
def run_command(
    asked: Planning,
    mesh: Mesh | None,
    units: Units,
    as_json: bool,
    html: Path | None,
    plan_file: Path | None,
    files: Sequence[str],
    save: Path | None,
    folder: Path | None,
    after: Sequence[str],
    every: float | None,
    **how: Any,
) -> None:
    """Plan an ONNX model, or take a plan from a file, and run it.

    A model whose shapes follow from values, as behind NonZero, is planned and run in stages.

    What random inputs are follows from --seed, so that --resume goes on with those of the run that was saved.
    """
    if how["backend"] == "mpi" and not load_backend("mpi").is_first:
        asked = be_silent(asked)
    if folder is None and (after or every is not None):
        raise click.UsageError(f"{'--after' if after else '--every'} says when to save; say where, by --checkpoints")
    if folder is not None:
        how["checkpoints"] = Checkpoints(folder, after=after, seconds=every)
    if mesh is not None and plan_file is not None:
        raise click.UsageError("--mesh and --plan cannot both be given: the plan names its mesh")
    memory_nbytes, seed = asked.options["memory_nbytes"], asked.options["seed"]
    changed = [*asked.changed, *["--machine"] * (asked.machine is not None)]
    if plan_file is not None and changed:
        verb = "are" if len(changed) > 1 else "is"
        raise click.UsageError(
            f"{', '.join(changed)} {verb} for making a plan, and --plan gives one that is made: give one of them"
        )
    read = [asked.model, plan_file, *(Path(item.rpartition("=")[2]) for item in files)]
    if save is not None:
        save = _npz_target(save, *read)
    read.append(save)
    _check_html(html, *read, how["trace"])
    if how["trace"] is not None:
        target = check_target(how["trace"], "--trace")
        if target in [path.resolve() for path in read if path is not None]:
            raise click.UsageError(
                f"--trace {quote(str(how['trace']))} is a file that this run reads or saves; give another name"
            )
    given = read_inputs(files)
    if plan_file is not None:
        p, graph = _planned_before(asked, plan_file, given)
    else:
        try:
            graph = load_model(asked, given)
        except UnsupportedOp as error:
            if not asked.opaque:
                raise
            unusual = {"html": html, "checkpoints": folder, "trace": how["trace"], "resume": how["resume"]}
            options = {"memory_nbytes": memory_nbytes, "backend": how["backend"], "verify": how["verify"]}
            shown, devices = None if as_json else units, asked.find_mesh(mesh)
            return run_in_stages(asked, devices, error, given, save, shown, plan_model, unusual, **options)
        p = plan_model(asked, graph, asked.find_mesh(mesh))
    PreparedPlan(p, how["backend"]).within(memory_nbytes).check_room()  # before there are random inputs
    named = {name for name, tensor in p.graph.stored.items() if tensor.kind == "constant"}
    constants = {name: graph.stored[name].data for name in named if name in graph.stored}
    inputs = fill_inputs(p.graph, given, seed)
    with progress_bar("running", asked.quiet) as progress:
        r = run(p, inputs, progress=progress, memory_nbytes=memory_nbytes, constants=constants, **how)
    if html is not None:
        PreparedPlan(p, how["backend"]).within(memory_nbytes).plan.report(html, run=r)
    if as_json:
        print_answer(RunAnswer(PlanFigures.of(p), RunFigures.of(r)))
    else:
        print_run(p, r, units)
    if save is not None:
        with replace_file(save) as file:
            np.savez(file, allow_pickle=False, **r.outputs)


@main.command(
    "calibrate",
    short_help="Measure this machine, for --machine.",
    examples=["tapestry calibrate mine.toml --devices 2"],
)
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
@json_option
@quiet_option
def calibrate_command(file: Path, backend: str, devices: int, as_json: bool, quiet: bool) -> None:
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
    if as_json:
        return print_answer(CalibrateAnswer(str(file), text))
    echo(text)


def be_silent(asked: Planning) -> Planning:
    """Print nothing from now on but errors, as another rank of the same program prints it all."""
    click.get_current_context().with_resource(redirect_stdout(StringIO()))
    return replace(asked, quiet=True)


def _check_html(path: Path | None, *others: Path | None) -> None:
    """Refuse a report that cannot be written, or that would replace a file that is read or written too."""
    if path is None:
        return
    if check_target(path, "--html") in [other.resolve() for other in others if other is not None]:
        raise click.UsageError(f"--html {quote(str(path))} is another file of this command too; give another name")


def _npz_target(path: Path, *read: Path | None) -> Path:
    target = check_target(path, "--save")
    if target in [other.resolve() for other in read if other is not None]:
        raise click.UsageError(f"--save {quote(str(path))} is a file that this run reads; give another name")
    if path.suffix != ".npz":
        raise click.UsageError(
            f"--save: {quote(str(path))} does not end in .npz, as files of several arrays do; rename it"
        )
    return target


def _planned_before(asked: Planning, file: Path, given: Mapping[str, Array]) -> tuple[ShardPlan, Graph]:
    """The plan in a file, in the memory that there is, and the model's graph, if the plan was made for that."""
    p = read_plan(file)
    loaded, memory_nbytes = load_model(asked, given), asked.options["memory_nbytes"]
    graph = loaded
    if any(node.op.startswith("leaves(") for node in p.graph.nodes.values()):  # made with --same-bits
        graph = fix_bits(graph)
    try:
        graph = p.derivation.replay(graph)
        apart = first_difference(p.graph, graph)
    except ValueError as error:
        apart = f"its operators cannot be expanded as the plan's were: {error}"
    if apart is not None and has_other_sizes(loaded, p.graph):
        words = [f"--shape {quote_word(f'{name}={size}')}" for name, size in loaded.sizes.items()]
        raise click.UsageError(
            f"{file} was made for other sizes of {asked.model}: {apart}; make the plan with its choices at these: "
            f"tapestry plan {quote_word(str(asked.model))} {' '.join(words)} --like {quote_word(str(file))} --json"
        )
    if apart is not None:
        raise click.UsageError(f"{file} was made for another model than {asked.model}: {apart}; make the plan again")
    return PreparedPlan(p).within(memory_nbytes).plan if memory_nbytes is not None else p, graph
