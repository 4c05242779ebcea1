"""Steps again, in less memory: what idle buffers hold waits in host memory.

`eviction` chooses, device by device, which buffers give way; the steps are then written down anew with what they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tapestry_plan.ir import Graph
from tapestry_plan.steps import tuning
from tapestry_plan.steps.arenas.eviction import Eviction, evict
from tapestry_plan.steps.arenas.timeline import Timeline, find_widest, is_placing, list_timelines
from tapestry_plan.steps.inside import tell_block
from tapestry_plan.steps.layouts.mesh import align
from tapestry_plan.steps.step import (
    Alloc,
    Compute,
    Copy,
    Fetch,
    Free,
    OutputBlock,
    ProgramStep,
    Recv,
    Reduce,
    Send,
    Written,
    renumber,
)
from tapestry_sets.limits import quote


class InfeasiblePlan(ValueError):
    """No plan keeps what was asked for: that is proved, of plans in which each block has a place of its own.

    Without a cap a plan may make a block inside another one (`nest`); under one it does not.

    Parameters
    ----------
    message : str
    fastest : ShardPlan, optional
        The plan that would be given if it did not need more memory than allowed, as of `NotFound`.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (64, 64))), "y")
    >>> plan(g, Mesh(2), memory_nbytes=1000)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tapestry_plan.steps.arenas.spilling.InfeasiblePlan: plan: memory_nbytes is 1,000; every plan has a moment at which
    one device holds 16,384 bytes or more: ...
    """

    def __init__(self, message: str, fastest: Any = None) -> None:
        super().__init__(message)
        self.fastest = fastest


def find_reach(written: Written, size: int) -> list[int]:
    """By device, of some first ones, how far its buffers reach in its arena."""
    reach = [0] * size
    for buffer in written.buffers:
        if buffer.device < size and buffer.within is None:
            reach[buffer.device] = max(reach[buffer.device], buffer.offset + buffer.room)
    return reach


def find_tight(written: Written, memory_nbytes: Mapping[int, int]) -> dict[int, int]:
    """The devices whose buffers reach further than they have bytes, with these, of some devices."""
    reach = find_reach(written, max(memory_nbytes, default=-1) + 1)
    return {device: nbytes for device, nbytes in memory_nbytes.items() if reach[device] > nbytes}


def evict_all(graph: Graph, written: Written, tight: Mapping[int, int], peaks: Sequence[int] = ()) -> list[Eviction]:
    """What gives way on each of some devices, in arenas of so many bytes; `peaks` are those of the plan as it is.

    Raises
    ------
    InfeasiblePlan
        When the buffers that one step uses on a device take more.
    """
    timelines = list_timelines(written, tight)
    for device, nbytes in tight.items():
        _check_fits(graph, written, timelines[device], nbytes, peaks[device] if peaks else None)
    fresh = max((buffer.id for buffer in written.buffers), default=-1) + 1
    found = []
    for device, nbytes in tight.items():
        cap = nbytes // tuning.ALIGNMENT_NBYTES * tuning.ALIGNMENT_NBYTES
        found.append(evict(timelines[device], cap, fresh))
        fresh = found[-1].fresh
    return found


def write_evictions(written: Written, evictions: Sequence[Eviction]) -> Written:
    """The steps with those of the devices that were laid out anew."""
    tight = {eviction.timeline.device: eviction for eviction in evictions}
    outputs = {n: eviction.final(n) for eviction in evictions for n in eviction.timeline.outputs}
    others = [buffer for buffer in written.buffers if buffer.device not in tight]
    buffers = sorted([*others, *(b for eviction in evictions for b in eviction.buffers)], key=lambda b: b.id)

    def moved(blocks: Iterable[OutputBlock]) -> tuple[OutputBlock, ...]:
        return tuple((outputs.get(n, n), region) for n, region in blocks)

    return Written(
        tuple(buffers),
        _drop_last_copies(_list_steps(written, tight), outputs),
        tuple(replace(out, blocks=moved(out.blocks), replicas=moved(out.replicas)) for out in written.outputs),
    )


def _check_fits(graph: Graph, written: Written, timeline: Timeline, memory_nbytes: int, peak: int | None) -> None:
    use, nbytes = find_widest(timeline)
    if use is None or nbytes <= memory_nbytes:
        return
    sizes = {n: align(timeline.buffers[n].nbytes) for n in use.buffers}
    tensors = ", ".join(f"{quote(timeline.buffers[n].tensor)} {sizes[n]:,} B" for n in use.buffers[:6])
    rest = sum(sizes[n] for n in use.buffers[6:])
    more = f" and {len(use.buffers) - 6} more of {rest:,} B" if rest else ""
    apart = ", with fuse=False, so that its operators are apart" if _is_block(graph, written, use.at) else ""
    least = f"give at least {nbytes:,} B"
    if peak is not None and peak < nbytes:
        least = f"the plan as it is has results over operands and holds {peak:,} B at once: give at least {peak:,} B"
    raise InfeasiblePlan(
        f"device {timeline.device} needs {nbytes:,} B at once in {_describe(graph, written, use.at)}, memory is "
        f"{memory_nbytes:,} B: it uses {tensors}{more}, in whole lines of {tuning.ALIGNMENT_NBYTES} B, which no "
        f"spilling makes smaller; {least}, plan for more devices{apart}, or cut the operator along "
        "further axes with fix"
    )


def _is_block(graph: Graph, written: Written, at: int) -> bool:
    """Whether a step runs several operators as one."""
    step = written.steps[at] if at < len(written.steps) else None
    return isinstance(step, Compute) and "fused.at" in graph.nodes[step.node].attrs


def _describe(graph: Graph, written: Written, at: int) -> str:
    """A step in words."""
    if at == len(written.steps):
        return "the plan's outputs"
    step = written.steps[at]
    assert isinstance(step, Copy | Compute | Reduce | Send | Recv), "other steps use no buffers"
    node = graph.nodes.get(step.node)
    kind = "" if node is None else f" ({tell_block(node.op)})"
    return f"step {at}, {type(step).__name__.lower()} for operator {quote(step.node)}{kind}"


def _list_steps(written: Written, tight: dict[int, Eviction]) -> list[ProgramStep]:
    """The steps in their order, with each device's own ones around them."""
    theirs = {buffer.id for buffer in written.buffers if buffer.device in tight}
    out: list[ProgramStep] = []
    for at, step in enumerate(written.steps):
        if isinstance(step, Alloc | Free):
            out += [] if step.buffer in theirs else [step]
            continue
        if is_placing(step) and isinstance(step, Copy) and step.dst in theirs:
            continue
        numbers: dict[int, int] = {}
        for eviction in tight.values():
            out += eviction.before.get(at, ())
            numbers.update(eviction.numbers.get(at, {}))
        out.append(renumber(step, {n: number for n, number in numbers.items() if n != number}))
        for eviction in tight.values():
            out += eviction.after.get(at, ())
    for eviction in tight.values():
        out += eviction.before.get(len(written.steps), ())
    return out


def _drop_last_copies(steps: Sequence[ProgramStep], outputs: dict[int, int]) -> tuple[ProgramStep, ...]:
    """The steps, each last fetch of what was spilled giving the host's copy up, but for what outputs are read from."""
    wanted = set(outputs.values())
    out: list[ProgramStep] = []
    for step in reversed(steps):
        if isinstance(step, Fetch):
            step, number = replace(step, keep=step.spilled in wanted), step.spilled
            wanted.add(number)
        out.append(step)
    return tuple(reversed(out))
