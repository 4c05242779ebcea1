"""Models whose shapes follow from values: what the first stage plans, and runs in stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from tapestry_exec.cli.answers import StagesAnswer, print_answer
from tapestry_exec.cli.models import random_open_inputs
from tapestry_exec.cli.planning import Planning, find_file
from tapestry_exec.cli.printing import print_counted
from tapestry_exec.cli.terminal import echo, progress_bar
from tapestry_exec.copies import Array
from tapestry_exec.run import StagedResult, replace_file, run_stages
from tapestry_plan.ir import Graph, UnsupportedOp
from tapestry_plan.onnx import ModelStage, StagedModel
from tapestry_plan.steps import Mesh, ShardPlan
from tapestry_sets.limits import Units, escape_controls, quote, tell_count

PlanModel = Callable[[Planning, Graph, Mesh], ShardPlan]


def find_first_stage(asked: Planning, why: UnsupportedOp) -> tuple[ModelStage | None, str]:
    """What of a model without a graph of its own can be planned before it runs, and what waits for which values.

    Raises
    ------
    UnsupportedOp
        The reason that there is no graph, where the model has no stages either.
    """
    model = _open_stages(asked, why)
    stage = model.stage
    if stage is None:
        return None, "nothing is to be planned: all that the model gives is known without a run"
    if stage.graph is not None:
        told = f"{stage}\n  `tapestry run` does all of it"
    else:
        then = f"plans behind {'it' if len(stage.awaited) == 1 else 'them'}" if stage.behind else "runs the rest whole"
        names = ", ".join(map(quote, stage.awaited))
        told = f"nothing is planned yet: {names} must be known; `tapestry run` {then}\n{stage}"
    return stage, escape_controls(told, keep="\n")


def run_in_stages(
    asked: Planning,
    mesh: Mesh,
    why: UnsupportedOp,
    given: Mapping[str, Array],
    save: Path | None,
    units: Units | None,
    planned: PlanModel,
    unusual: Mapping[str, Any],
    **how: Any,
) -> None:
    """Run a model that has no graph of its own, for a reason, in stages; as a document where there are no units.

    Raises
    ------
    UnsupportedOp
        The reason, where the stages would depend on the value of an input that would be random.
    """
    model = _open_stages(asked, why, given)
    check_options(**unusual)
    others = random_open_inputs(model, asked.options["seed"])

    def plan_stage(graph: Graph) -> ShardPlan:
        stage = model.stage
        if stage is not None and any(name in others for name in stage.wanted):
            raise why
        return planned(asked, graph, mesh)

    if model.stage is not None and any(name in others for name in model.stage.wanted):
        raise why
    with progress_bar("running", asked.quiet) as progress:
        found = run_stages(model, others, plan_stage, progress=progress, **how)
    if units is None:
        print_answer(StagesAnswer.of(found))
    else:
        print_stages(found, units)
    if save is not None:
        _save_arrays(save, found.outputs)


def _save_arrays(save: Path, outputs: Mapping[str, Any]) -> None:
    """Save the arrays of a run, and say which outputs are none: a .npz holds nothing else."""
    arrays = {name: value for name, value in outputs.items() if isinstance(value, np.ndarray)}
    with replace_file(save) as file:  # strings are objects, which would be pickled
        plain = {name: value.astype(str) if value.dtype.kind == "O" else value for name, value in arrays.items()}
        np.savez(file, allow_pickle=False, **plain)
    left = [f"{quote(name)} ({tell_kind(value)})" for name, value in outputs.items() if name not in arrays]
    if left:
        told = ", ".join(left[:3]) + f" and {len(left) - 3:,} more" * (len(left) > 3)
        echo(f"not in {save}, which has arrays alone: {told}; run_stages in Python gives these", err=True)


def _open_stages(asked: Planning, why: UnsupportedOp, given: Mapping[str, Array] | None = None) -> StagedModel:
    """The model in stages; where it has none either, the reason that it has no graph is raised."""
    try:
        return StagedModel(find_file(asked.model), given, shapes=asked.shapes, values=asked.values)
    except UnsupportedOp:
        raise why from None


def print_stages(found: StagedResult, units: Units) -> None:
    """Each stage with why it ends and what was counted in it, and the outputs."""
    each = iter(zip(found.plans, found.runs, strict=True))
    for stage in found.stages:
        echo(escape_controls(str(stage), keep="\n"))
        if stage.graph is not None:
            p, r = next(each)
            print_counted("  bytes moved", p.nbytes_moved, r.nbytes_moved, units)
            for name, apart in (r.difference or {}).items():
                echo(f"  {escape_controls(name, keep='')}: difference from the unsharded run {apart:.3g}")
    for name, value in found.outputs.items():
        told = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else tell_kind(value)
        echo(f"output {escape_controls(name, keep='')}: {told}")
    if before := found.whole_before:
        echo(f"ran whole before any stage: {escape_controls(', '.join(before), keep='')}")
    echo(f"{units.nbytes(found.nbytes_whole)} came to the host for nodes that ran whole there")


def tell_kind(value: Any) -> str:
    """An output that is not a tensor.

    Examples
    --------
    >>> import numpy as np
    >>> tell_kind(None), tell_kind([np.ones(2)] * 2), tell_kind([{"a": 1.0}]), tell_kind({"a": 1.0, "b": 2.0})
    ('absent', '2 tensors', '1 map', 'a map of 2 entries')
    """
    if value is None:
        return "absent"
    if isinstance(value, dict):
        return f"a map of {len(value):,} {'entry' if len(value) == 1 else 'entries'}"
    if not isinstance(value, list):
        return quote(value)
    return tell_count(len(value), "map" if value and isinstance(value[0], dict) else "tensor")


def check_options(**given: Any) -> None:
    """Refuse what a run in stages has not.

    Examples
    --------
    >>> check_options(trace=None, resume=None)
    """
    for name, value in given.items():
        if value is not None:
            raise click.UsageError(
                f"--{name} is of one plan, and shapes of this model follow from values, so that it runs in stages; "
                "leave it out"
            )
