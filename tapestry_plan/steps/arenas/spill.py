"""Spilling: idle buffers wait in host memory, so that a plan fits less memory.

`spilling` writes the steps; here is what it costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from tapestry_plan.steps.arenas.eviction import Eviction
from tapestry_plan.steps.arenas.spilling import evict_all, find_reach, find_tight, write_evictions
from tapestry_plan.steps.arenas.timeline import find_widest, list_timelines
from tapestry_plan.steps.deriving import derive_apart
from tapestry_plan.steps.layouts.rates import Link
from tapestry_plan.steps.shard_plan import ShardPlan
from tapestry_plan.steps.stages import Stage
from tapestry_plan.steps.step import Compute, Copy, Reduce, Written
from tapestry_sets.limits import check_arguments, quote

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
    >>> waits = relu(x := g.input("x", (64, 64)))
    >>> _ = g.output(relu(relu(waits) + relu(x[::-1])) + waits, "z")
    >>> p = plan(g, Mesh(1), fuse=False)
    >>> q = spill(p, least_memory(p))
    >>> p.peak_nbytes, q.peak_nbytes, q.nbytes_spilled
    ((65536,), (49152,), (32768,))
    """
    given = _parse_memory(plan, memory_nbytes)
    tight = find_tight(plan.written, dict(enumerate(given)))
    if not tight:
        return plan
    if any(plan.nbytes_spilled):
        had = ", ".join(f"{nbytes:,}" for nbytes in plan.peak_nbytes)
        raise ValueError(
            f"memory_nbytes is {quote(memory_nbytes)}, and the plan, which spills already, takes {had} B by "
            "device: it cannot be laid out anew in less; give the plan that it was made from"
        )
    written = _write_apart(plan)
    tight = find_tight(written, dict(enumerate(given)))
    evictions = evict_all(plan.graph, written, tight, plan.peak_nbytes)
    seconds = _time_transfers(written, plan.mesh.host, evictions)
    peak = list(plan.peak_nbytes) if written is plan.written else find_reach(written, plan.mesh.size)
    placed, moved = list(plan.nbytes_placed), list(plan.nbytes_spilled)
    for eviction in evictions:
        device = eviction.timeline.device
        peak[device], placed[device], moved[device] = eviction.peak, eviction.nbytes_placed, eviction.nbytes
    return replace(
        _with_written(plan, write_evictions(written, evictions), tuple(given)),
        stages=_time_stages(plan, seconds),
        nbytes_placed=tuple(placed),
        peak_nbytes=tuple(peak),
        seconds=plan.seconds + sum(seconds.values()),
        nbytes_spilled=tuple(moved),
        limit_nbytes=tuple(given),
    )


def _write_apart(plan: ShardPlan) -> Written:
    """A plan's steps where no buffer lies within or over another one: they give way one by one."""
    if all(buffer.is_apart for buffer in plan.buffers):
        return plan.written
    if plan.explicit is not None:
        raise ValueError(
            "plan.explicit has buffers within or over others, which cannot be spilled one by one; spill the plan that "
            "it was made from"
        )
    return derive_apart(plan.graph, plan.mesh, plan.choices)


def _with_written(plan: ShardPlan, written: Written, spill_nbytes: tuple[int, ...]) -> ShardPlan:
    """A plan that says how much memory it is given, and so has other steps; these themselves where they were given."""
    if plan.explicit is not None:
        return replace(plan, explicit=written)
    choices = replace(plan.choices, spill_nbytes=spill_nbytes)
    choices.remember(plan.graph, plan.mesh, written)
    return replace(plan, choices=choices)


@check_arguments
def least_memory(plan: ShardPlan) -> tuple[int, ...]:
    """Bytes that each device needs at least, however much is spilled: the most that one step uses at once.

    Each block has a place of its own then; a plan that spills nothing has results over operands, and may need less.

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

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_plan import Graph, Mesh, least_memory, ops, plan
    >>> g = Graph()
    >>> hidden = ops.relu(g.input("x", (8, 16)) @ g.constant("w1", np.ones((16, 32), np.float32)))
    >>> _ = g.output(hidden @ g.constant("w2", np.ones((32, 4), np.float32)), "y")
    >>> p = plan(g, Mesh(2), fix={"matmul": {"n": 2}, "matmul_1": {"n": 2}}, fuse=False)
    >>> p.peak_nbytes, least_memory(p)  # bytes of each device as it is, and with spilling
    ((2304, 2304), (2048, 2048))
    """
    timelines = list_timelines(_write_apart(plan), range(plan.mesh.size))
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


def _time_stages(plan: ShardPlan, seconds: dict[str, float]) -> tuple[Stage, ...]:
    """The plan's stages with the seconds of transfers; outputs that took no time so far have one of their own."""
    out = [replace(stage, seconds=stage.seconds + seconds.get(stage.node, 0.0)) for stage in plan.stages]
    none = (0,) * plan.mesh.size
    fresh = seconds.keys() - {stage.node for stage in plan.stages}
    out += [Stage(node, "output", {}, none, 0, (0.0,) * plan.mesh.size, seconds[node]) for node in sorted(fresh)]
    return tuple(out)


def _time_transfers(written: Written, link: Link, evictions: Sequence[Eviction]) -> dict[str, float]:
    """For each operator, the modeled seconds of the device that spills and fetches the longest before its steps."""
    taken: dict[str, Counter[int]] = {}
    for eviction in evictions:
        for at, transfers in eviction.moved.items():
            step = written.steps[at] if at < len(written.steps) else None
            node = step.node if isinstance(step, Copy | Compute | Reduce) else OUTPUTS
            seconds = len(transfers) * link.latency_seconds + sum(transfers) / link.nbytes_per_second
            devices = taken.setdefault(node, Counter())
            devices[eviction.timeline.device] += seconds  # type: ignore[assignment]
    return {node: max(devices.values()) for node, devices in taken.items()}
