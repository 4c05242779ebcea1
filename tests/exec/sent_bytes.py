"""What devices have sent when one of them stops: found from the plan's list of steps, and from no device's program.

A device sends cells as soon as they are made, however much later the plan's list has the copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from tapestry_plan import ShardPlan
from tapestry_plan.steps import HOST, Compute, Copy, Reduce


class Sent(NamedTuple):
    """A copy from one device to another, and the step that made what it copies."""

    made: int
    number: int
    source: int
    target: int
    nbytes: int


def list_copies(p: ShardPlan) -> list[Sent]:
    """In the order in which each source sends them."""
    buffers = {buffer.id: buffer for buffer in p.buffers}
    found, made = list[Sent](), dict[int, int]()
    for number, step in enumerate(p.steps):
        match step:
            case Compute():
                made |= dict.fromkeys((one for one in step.outputs if one is not None), number)
            case Reduce():
                made[step.output] = number
            case Copy():
                made[step.dst] = number
                if HOST not in (step.src, step.dst):
                    source, target = buffers[step.src], buffers[step.dst]
                    nbytes = sum(region.size for region in step.regions) * np.dtype(source.dtype).itemsize
                    if source.device != target.device:
                        found.append(Sent(made[step.src], number, source.device, target.device, nbytes))
    return sorted(found)


def find_step(p: ShardPlan, node: str, device: int) -> int:
    """The step in which a device computes."""
    homes: dict[Any, int] = {buffer.id: buffer.device for buffer in p.buffers}
    (found,) = (
        k
        for k, step in enumerate(p.steps)
        if isinstance(step, Compute) and step.node == node and homes[step.outputs[0]] == device
    )
    return found


def find_sent(p: ShardPlan, stopped: int, step: int) -> dict[int, Sent]:
    """By step what was sent when one device has stopped at a step, and the others wait in vain for what it sends."""
    copies = list_copies(p)
    stands: dict[int, int] = {stopped: step}
    found: dict[int, Sent] = {}
    for one in sorted(copies, key=lambda one: one.number):
        place = (one.made, one.number)
        stand = stands.get(one.source, len(p.steps))
        sends = ((other.made, other.number) for other in copies if (other.number, other.source) == (stand, one.source))
        at = next(sends, (stand, -1))  # where it stands at a send, what was made before may go behind that
        if place < at:
            found[one.number] = one
        else:
            stands[one.target] = min(stands.get(one.target, one.number), one.number)
    return found


def sum_by_device(p: ShardPlan, sent: Mapping[int, Sent]) -> tuple[int, ...]:
    """The bytes of each source."""
    total = Counter[int]()
    for one in sent.values():
        total[one.source] += one.nbytes
    return tuple(total[device] for device in range(p.mesh.size))


def list_sums(p: ShardPlan, device: int) -> set[int]:
    """How many bytes a device can have sent, wherever it stands."""
    return {0, *accumulate(one.nbytes for one in list_copies(p) if one.source == device)}
