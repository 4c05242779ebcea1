"""Spilling: idle buffers wait in host memory, so that a plan fits less memory.

`eviction` chooses, device by device, which buffers give way; the plan is then written down anew with what they do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from tapestry_plan.steps import tuning
from tapestry_plan.steps.eviction import Eviction, evict
from tapestry_plan.steps.mesh import align
from tapestry_plan.steps.shard_plan import InfeasiblePlan, ShardPlan, Stage
from tapestry_plan.steps.step import Alloc, Compute, Copy, Fetch, Free, Reduce, Step, renumber
from tapestry_plan.steps.timeline import Timeline, find_widest, is_placing, list_timelines
from tapestry_sets.limits import check_arguments, quote
from tapestry_sets.regions import Region

OUTPUTS = "(outputs)"
"""The stage of what waits for the last step: outputs that come from the host."""


@check_arguments(memory_nbytes="give a number of bytes, or one for each device")
def spill(plan: ShardPlan, memory_nbytes: int | Sequence[int]) -> ShardPlan:
    """The same plan in less memory: idle buffers are spilled to the host and brought back before their next use.

    Parameters
    ----------
    plan : ShardPlan
        It must not spill already.
    memory_nbytes : int or sequence of int
        Bytes that each device's arena may have; an int is the same for all.

    Returns
    -------
    ShardPlan
        The plan itself where every arena fits. Otherwise devices with too large an arena are laid out anew:
        `peak_nbytes` is at most `memory`, `nbytes_spilled` says what goes to the host and back, and `seconds`
        includes it, at the speed of `Mesh.host`, beside nothing else. What devices compute and send to one
        another stays as it was, and so do the bits of the results.

    Raises
    ------
    InfeasiblePlan
        When the buffers that one step uses on a device take more than `memory` together; see `least_memory`.
    TypeError, ValueError
        For arguments that are not a plan, not one without spilling, or not sizes.

    Examples
    --------
    >>> from tapestry_plan import (Graph, Mesh, plan)
    >>> from tapestry_plan.ops import (relu)
    >>> g = Graph()
    >>> y = x = g.input("x", (64, 64))
    >>> for _ in range(3):
    ...     y = relu(y)
    >>> _ = g.output(y + x, "z")
    >>> p = plan(g, Mesh(1))
    >>> q = spill(p, least_memory(p))
    >>> p.peak_nbytes, q.peak_nbytes, q.nbytes_spilled
    ((49152,), (49152,), (0,))
    """
    given = _parse_memory(plan, memory_nbytes)
    tight = [device for device, nbytes in enumerate(_reach(plan)) if nbytes > given[device]]
    if not tight:
        return plan
    if any(plan.nbytes_spilled):
        had = ", ".join(f"{nbytes:,}" for nbytes in _reach(plan))
        raise ValueError(
            f"memory_nbytes is {quote(memory_nbytes)}, and the plan, which spills already, takes {had} B by "
            "device: it cannot be laid out anew in less; give the plan that it was made from"
        )
    timelines = list_timelines(plan, tight)
    for device in tight:
        _check_fits(plan, timelines[device], given[device])
    fresh = max(buffer.id for buffer in plan.buffers) + 1
    found = []
    for device in tight:
        cap = given[device] // tuning.ALIGNMENT_NBYTES * tuning.ALIGNMENT_NBYTES
        found.append(evict(timelines[device], cap, fresh))
        fresh = found[-1].fresh
    return _write_down(plan, found)


@check_arguments
def least_memory(plan: ShardPlan) -> tuple[int, ...]:
    """Bytes that each device needs at least, however much is spilled: the most that one step uses at once.

    Parameters
    ----------
    plan : ShardPlan

    Returns
    -------
    tuple of int
        By device.

    Raises
    ------
    TypeError
        If `plan` is not a plan.
    """
    timelines = list_timelines(plan, range(plan.mesh.size))
    return tuple(find_widest(timelines[device])[1] for device in range(plan.mesh.size))


def _parse_memory(plan: ShardPlan, memory_nbytes: int | Sequence[int]) -> list[int]:
    """The bytes that each device's arena may have."""
    size = plan.mesh.size
    given = [memory_nbytes] * size if isinstance(memory_nbytes, int) else list(memory_nbytes)
    if len(given) != size:
        raise ValueError(f"memory_nbytes has {len(given)} entries; the mesh has {size} devices")
    if min(given) < 0:
        raise ValueError(f"memory_nbytes is {quote(memory_nbytes)}; bytes are >= 0")
    return given


def _reach(plan: ShardPlan) -> list[int]:
    """Bytes of each arena: as far as the plan's buffers reach."""
    out = [0] * plan.mesh.size
    for buffer in plan.buffers:
        out[buffer.device] = max(out[buffer.device], buffer.offset + align(buffer.nbytes))
    return out


def _check_fits(plan: ShardPlan, timeline: Timeline, memory_nbytes: int) -> None:
    use, nbytes = find_widest(timeline)
    if use is None or nbytes <= memory_nbytes:
        return
    sizes = {n: align(timeline.buffers[n].nbytes) for n in use.buffers}
    tensors = ", ".join(f"{quote(timeline.buffers[n].tensor)} {sizes[n]:,} B" for n in use.buffers[:6])
    rest = sum(sizes[n] for n in use.buffers[6:])
    more = f" and {len(use.buffers) - 6} more of {rest:,} B" if rest else ""
    raise InfeasiblePlan(
        f"device {timeline.device} needs {nbytes:,} B at once in {_describe(plan, use.at)}, memory is "
        f"{memory_nbytes:,} B: it uses {tensors}{more}, in whole lines of {tuning.ALIGNMENT_NBYTES} B, which no "
        f"spilling makes smaller; give at least {nbytes:,} B, plan for more devices, or cut the operator along "
        "further axes with fix"
    )


def _describe(plan: ShardPlan, at: int) -> str:
    """A step in words."""
    if at == len(plan.steps):
        return "the plan's outputs"
    step = plan.steps[at]
    assert isinstance(step, Copy | Compute | Reduce), "other steps use no buffers"
    node = plan.graph.nodes.get(step.node)
    kind = "" if node is None else f" ({node.op})"
    return f"step {at}, {type(step).__name__.lower()} for operator {quote(step.node)}{kind}"


def _write_down(plan: ShardPlan, evictions: Sequence[Eviction]) -> ShardPlan:
    """The plan with the steps of the devices that were laid out anew."""
    tight = {eviction.timeline.device: eviction for eviction in evictions}
    outputs = {n: eviction.final(n) for eviction in evictions for n in eviction.timeline.outputs}
    steps = _drop_last_copies(_list_steps(plan, tight), outputs)
    seconds = _time_transfers(plan, evictions)
    peak, placed, moved = list(plan.peak_nbytes), list(plan.nbytes_placed), list(plan.nbytes_spilled)
    for device, eviction in tight.items():
        peak[device], placed[device], moved[device] = eviction.peak, eviction.nbytes_placed, eviction.nbytes
    others = [buffer for buffer in plan.buffers if buffer.device not in tight]

    def renumber(blocks: Iterable[tuple[int, Region]]) -> tuple[tuple[int, Region], ...]:
        return tuple((outputs.get(n, n), region) for n, region in blocks)

    return replace(
        plan,
        buffers=tuple(sorted([*others, *(b for eviction in evictions for b in eviction.buffers)], key=lambda b: b.id)),
        steps=steps,
        stages=_time_stages(plan, seconds),
        outputs=tuple(
            replace(out, blocks=renumber(out.blocks), replicas=renumber(out.replicas)) for out in plan.outputs
        ),
        nbytes_placed=tuple(placed),
        peak_nbytes=tuple(peak),
        seconds=plan.seconds + sum(seconds.values()),
        nbytes_spilled=tuple(moved),
    )


def _time_stages(plan: ShardPlan, seconds: dict[str, float]) -> tuple[Stage, ...]:
    """The plan's stages with the seconds of transfers; outputs that took no time so far have one of their own."""
    out = [replace(stage, seconds=stage.seconds + seconds.get(stage.node, 0.0)) for stage in plan.stages]
    none = (0,) * plan.mesh.size
    fresh = seconds.keys() - {stage.node for stage in plan.stages}
    out += [Stage(node, "output", {}, none, 0, (0.0,) * plan.mesh.size, seconds[node]) for node in sorted(fresh)]
    return tuple(out)


def _list_steps(plan: ShardPlan, tight: dict[int, Eviction]) -> list[Step]:
    """The plan's steps in their order, with each device's own ones around them."""
    theirs = {buffer.id for buffer in plan.buffers if buffer.device in tight}
    out: list[Step] = []
    for at, step in enumerate(plan.steps):
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
        out += eviction.before.get(len(plan.steps), ())
    return out


def _drop_last_copies(steps: Sequence[Step], outputs: dict[int, int]) -> tuple[Step, ...]:
    """The steps, each last fetch of what was spilled giving the host's copy up, but for what outputs are read from."""
    wanted = set(outputs.values())
    out: list[Step] = []
    for step in reversed(steps):
        if isinstance(step, Fetch):
            step, number = replace(step, keep=step.spilled in wanted), step.spilled
            wanted.add(number)
        out.append(step)
    return tuple(reversed(out))


def _time_transfers(plan: ShardPlan, evictions: Sequence[Eviction]) -> dict[str, float]:
    """For each operator, the modeled seconds of the device that spills and fetches the longest before its steps."""
    link = plan.mesh.host
    taken: dict[str, Counter[int]] = {}
    for eviction in evictions:
        for at, transfers in eviction.moved.items():
            step = plan.steps[at] if at < len(plan.steps) else None
            node = step.node if isinstance(step, Copy | Compute | Reduce) else OUTPUTS
            seconds = len(transfers) * link.latency_seconds + sum(transfers) / link.nbytes_per_second
            devices = taken.setdefault(node, Counter())
            devices[eviction.timeline.device] += seconds  # type: ignore[assignment]
    return {node: max(devices.values()) for node, devices in taken.items()}
