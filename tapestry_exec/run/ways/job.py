"""What is to be run: the steps of all devices, and what they are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from tapestry_exec.copies import Array
from tapestry_exec.run import tuning
from tapestry_exec.run.check import describe
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_exec.run.results import Progress, StepFailed
from tapestry_exec.run.settled import Left
from tapestry_plan.ir import Op
from tapestry_plan.steps import Collective, Compute, Copy, Reduce, ShardPlan, Step
from tapestry_sets.limits import quote


class Job(Struct, frozen=True):
    """A run of a plan, or of what of its steps is left to do where constants have stayed.

    Parameters
    ----------
    prepared : PreparedPlan
    host : mapping of str to array
        Inputs and constants.
    ops : mapping of str to Op
    every : Left
        The steps of all devices, in the plan's order.
    programs : sequence of Left
        The same of each device, in the order of its program.
    progress : callable, optional
    is_threaded : bool
        Whether devices run in threads.
    """

    prepared: PreparedPlan
    host: Mapping[str, Array]
    ops: Mapping[str, Op]
    every: Left
    programs: Sequence[Left]
    progress: Progress | None
    is_threaded: bool


def name_step(prepared: PreparedPlan, k: int, error: Exception, step: Step | Collective | None = None) -> StepFailed:
    """The error that names a step of the plan, or a collective that begins with it, and what it raised."""
    failed = prepared.plan.steps[k] if step is None else step
    return StepFailed(
        f"step {k} ({describe(prepared.plan, failed)}{_tell_cells(prepared, k, failed)}) failed: "
        f"{type(error).__name__}: {error}"
    )


def name_place(plan: ShardPlan, k: int) -> str:
    """A step of the plan, as messages say where a device was."""
    return f"step {k} ({describe(plan, plan.steps[k])})"


def _tell_cells(prepared: PreparedPlan, k: int, step: Step | Collective) -> str:
    """The shard, blocks and regions that a step is about, for messages."""
    match step:
        case Compute():
            boxes = [None if box is None else (box.start, box.stop) for box in prepared.shards[k].input_boxes]
            return f", input blocks (start, stop) {boxes}"
        case Copy() | Reduce():
            block = step.dst if isinstance(step, Copy) else step.output
            more = len(step.regions) - tuning.SHOWN_REGIONS
            listed = ", ".join(map(repr, step.regions[: tuning.SHOWN_REGIONS]))
            listed += f" and {more} more" if more > 0 else ""
            return f", {_tell_block(prepared, block)}, regions [{listed}]"
        case Collective():
            return f", {len(step.at)} blocks of {step.nbytes} B"
        case _:
            return f", {_tell_block(prepared, step.buffer)}"


def _tell_block(prepared: PreparedPlan, number: int) -> str:
    buffer = prepared.work.buffers[number]
    return f"the block (start, stop) {(buffer.box.start, buffer.box.stop)} of {quote(buffer.tensor)}"
