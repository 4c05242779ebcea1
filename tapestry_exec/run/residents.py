"""What stays on devices from run to run: blocks of constants, and inputs that take the place of outputs.

A buffer stays where nothing but constants ever goes into it: what is placed from the host, and what is copied there
from buffers that stay, such as a weight turned around for the operator that reads it::

    steps of a plan              once                     in every run
    alloc w; place w    ──────►  hold w; place w
    alloc w.T; copy w   ──────►  hold w.T; copy w
    alloc x; place x                                      alloc x; place x
    compute x @ w.T                                       compute x @ w.T
    free w.T; free w             (they stay)

Arenas are laid out anew without what stays, which has memory of its own.

An input that is carried stays as well. Where the plan has the output that takes its place overwrite it, nothing is left
to do behind a run; elsewhere it gets the output's cells then::

    place of w      w ─── read ─── read ─── w - rate·slope: reads w, writes new w ───► w of the next run
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_exec.run.checkpoints.cuts import find_constant, is_placing
from tapestry_exec.run.prepared import PreparedPlan, list_payloads
from tapestry_exec.run.stores import check_label
from tapestry_plan.steps import (
    Alloc,
    Buffer,
    Copy,
    DeviceStep,
    Free,
    Output,
    ProgramStep,
    ShardPlan,
    Spill,
    Taking,
    align,
    assign_offsets,
    count_local,
    lay_out,
    list_takings,
    move,
)
from tapestry_sets.limits import FrozenDict, list_names, quote
from tapestry_sets.regions import DisjointRegions, Region


class Residents(Struct, frozen=True):
    """What stays, and which steps are done once, and which in every run.

    Parameters
    ----------
    placing : tuple of DeviceStep
        Done once, in this order; each `Alloc` is of a buffer that stays.
    given : mapping of str to tuple of DeviceStep
        For each carried input the steps that place it, done where a run is given a value of it.
    steps, programs
        What is left to do in every run, as of `PreparedPlan`.
    carrying : tuple of DeviceStep
        Done behind the steps of every run: copies from outputs to the inputs whose place they take, but for those that
        overwrite them.
    buffers : mapping of int to Buffer
        All of the plan's, in arenas without those that stay.
    apart : frozenset of int
        Those that stay.
    arenas_nbytes, peak_nbytes : tuple of int
        By device: the arena without what stays, and at most held with it.
    nbytes_held : tuple of int
        By device: bytes of what stays.
    payloads_nbytes : tuple of int
        By device: bytes of the largest payload of the steps that are done in runs.
    """

    placing: tuple[DeviceStep, ...]
    given: Mapping[str, tuple[DeviceStep, ...]]
    steps: tuple[DeviceStep, ...]
    programs: tuple[tuple[DeviceStep, ...], ...]
    carrying: tuple[DeviceStep, ...]
    buffers: Mapping[int, Buffer]
    apart: frozenset[int]
    arenas_nbytes: tuple[int, ...]
    peak_nbytes: tuple[int, ...]
    nbytes_held: tuple[int, ...]
    payloads_nbytes: tuple[int, ...]


class Prediction(Struct, frozen=True):
    """What a run is predicted to count, where some of the plan's steps are done before; fields as of a plan."""

    nbytes_by_link: Mapping[tuple[int, int], int]
    nbytes_received: tuple[int, ...]
    nbytes_placed: tuple[int, ...]
    nbytes_copied: tuple[int, ...]
    nbytes_spilled: tuple[int, ...]
    peak_nbytes: tuple[int, ...]


def predict(prepared: PreparedPlan, stays: Residents, given: Sequence[str]) -> Prediction:
    """What a run counts in which some of the carried inputs are given."""
    plan = prepared.plan
    steps = [*stays.steps, *(at for name in given for at in stays.given[name])]
    placed, own = count_placed(prepared, steps), (at.step for at in (*steps, *stays.carrying))
    copied = count_local(plan.graph, prepared.work.buffers.values(), own, plan.mesh.size)
    return Prediction(plan.nbytes_by_link, plan.nbytes_received, placed, copied, plan.nbytes_spilled, stays.peak_nbytes)


def count_placed(prepared: PreparedPlan, steps: Sequence[DeviceStep]) -> tuple[int, ...]:
    """Bytes that some steps place from the host, by device."""
    out = [0] * prepared.plan.mesh.size
    for at in steps:
        if isinstance(at.step, Copy) and is_placing(at.step) and not at.step.again:  # else it counts as spilled
            itemsize = np.dtype(prepared.work.buffers[at.step.dst].dtype).itemsize
            out[at.device] += sum(region.size for region in at.step.regions) * itemsize
    return tuple(out)


def find_residents(prepared: PreparedPlan, carry: Mapping[str, str]) -> Residents:
    """What of a plan stays, and what is left to do.

    Parameters
    ----------
    prepared : PreparedPlan
    carry : mapping of str to str
        Outputs with the inputs whose place they take.

    Raises
    ------
    ValueError
        For names that the graph does not have, and where an output does not lie where its input begins.
    """
    _check_names(prepared.plan, carry)
    stays, carried = _find_buffers(prepared, set(carry.values()))
    once, left = list[DeviceStep](), list[DeviceStep]()
    given: dict[str, list[DeviceStep]] = {name: [] for name in carry.values()}
    for at in prepared.steps:
        about = _find_about(at.step)
        if about in carried and isinstance(at.step, Copy):
            given[carried[about]].append(at)
        elif about in stays or about in carried:
            once += [] if isinstance(at.step, Free) else [at]
        else:
            left.append(at)
    size, apart = prepared.plan.mesh.size, frozenset({*stays, *carried})
    replaced = _find_replaced(prepared, carry, carried)
    held = [0] * size
    for number in apart:
        held[prepared.work.buffers[number].device] += align(prepared.work.buffers[number].nbytes)
    buffers, arenas = _lay_out(prepared, apart, replaced)
    ids = set(map(id, left))
    in_runs, outputs = [*left, *(at for each in given.values() for at in each)], prepared.plan.outputs
    return Residents(
        tuple(once),
        {name: tuple(each) for name, each in given.items()},
        tuple(left),
        tuple(tuple(at for at in program if id(at) in ids) for program in prepared.programs),
        tuple(_carry(prepared, carry, carried, replaced)),
        buffers,
        apart,
        tuple(arenas),
        tuple(map(sum, zip(arenas, held, strict=True))),
        tuple(held),
        tuple(list_payloads(prepared.work.buffers, in_runs, outputs, size)),
    )


def _lay_out(
    prepared: PreparedPlan, apart: frozenset[int], replaced: frozenset[int]
) -> tuple[Mapping[int, Buffer], list[int]]:
    """The buffers in arenas without some, and how far these reach: no further than before."""
    buffers, size = _take_off(prepared, apart - replaced), prepared.plan.mesh.size
    offsets, reach = dict[int, int](), [0] * size
    for b in buffers.values():
        if b.place not in apart and b.within is None:
            reach[b.device] = max(reach[b.device], b.offset + b.room)
    if not apart:
        return buffers, reach
    taking: list[list[Taking]] = [[] for _ in range(size)]
    for step in list_takings((at.step for at in prepared.steps), buffers):
        if step.buffer not in apart:
            taking[buffers[step.buffer].device].append(step)
    places_of = cache(assign_offsets)  # of devices that do alike the same
    for device, mine in enumerate(taking):
        found, most = lay_out(buffers, mine, places_of=places_of)
        if most < reach[device]:
            offsets |= found
            reach[device] = most
    return FrozenDict((number, move(buffers, b, offsets)) for number, b in buffers.items()), reach


def _find_replaced(prepared: PreparedPlan, carry: Mapping[str, str], carried: Mapping[int, str]) -> frozenset[int]:
    """The buffers of carried inputs that the outputs which take their places overwrite, all cells of them.

    Of several results that have such a place one after the other the last one is such an output: so no copy behind the
    run wants what was there before, and none goes there.
    """
    outputs = {out.name: out for out in prepared.plan.outputs}
    successors = {name: outputs[label] for label, name in carry.items()}
    last, wanted = dict[int, int](), dict[int, list[Region]]()
    for at in prepared.steps:
        if isinstance(at.step, Alloc) and (over := prepared.work.buffers[at.step.buffer].over) in carried:
            assert over is not None, "it is one of them"
            last[over] = at.step.buffer
        elif isinstance(at.step, Copy) and at.step.dst in carried:
            wanted.setdefault(at.step.dst, []).extend(at.step.regions)
    found = set[int]()
    for number, latest in last.items():
        output = successors[carried[number]]
        mine = [region for block, region in (*output.blocks, *output.replicas) if block == latest]
        left = DisjointRegions(output.shape, wanted[number])
        if (left - DisjointRegions(output.shape, mine)).is_empty:
            found.add(number)
    return frozenset(found)


def _take_off(prepared: PreparedPlan, apart: Collection[int]) -> Mapping[int, Buffer]:
    """The buffers where none lies over one of some that stay: behind a run these have the cells that it began with.

    So an output of one carried input may be copied to another one.
    """
    buffers, first = dict(prepared.work.buffers), dict[int, int]()
    for at in prepared.steps:
        if isinstance(at.step, Alloc) and (over := buffers[at.step.buffer].over) in apart and over is not None:
            new = first.setdefault(over, at.step.buffer)
            over_new = None if new == at.step.buffer else new
            buffers[at.step.buffer] = replace(buffers[at.step.buffer], over=over_new)
    return buffers


def _find_buffers(prepared: PreparedPlan, inputs: Collection[str]) -> tuple[set[int], dict[int, str]]:
    """The buffers that stay, and those of inputs that are carried, with the input of each."""
    stored = prepared.plan.graph.stored
    stays, filled = find_constant(prepared.steps, lambda step: stored[step.tensor].kind == "constant")
    carried = {
        number: copies[0].tensor
        for number, copies in filled.items()
        if all(is_placing(step) and step.tensor in inputs for step in copies)
    }
    return stays, carried


def _find_about(step: ProgramStep) -> int | None:
    """The buffer that a step takes a place for, fills by a copy, or gives back; None of any other step."""
    return step.buffer if isinstance(step, Alloc | Free) else step.dst if isinstance(step, Copy) else None


def _check_names(plan: ShardPlan, carry: Mapping[str, str]) -> None:
    for label, name in carry.items():
        check_label(plan.graph, label, "carry")
        stored = plan.graph.stored.get(name)
        if stored is None or stored.kind != "input":
            inputs = [one.name for one in plan.graph.stored.values() if one.kind == "input"]
            raise ValueError(f"carry: the graph has no input {quote(name)}; {list_names(inputs, name, 'inputs')}")
        made = plan.graph.stored.get(plan.graph.outputs[label])
        if made is None or made.kind != "result":
            what = "a view" if made is None else f"{made.kind} {quote(made.name)} as it is"
            raise ValueError(f"carry: output {quote(label)} is {what}; give one that an operator makes")
        if (made.shape, made.dtype) != (stored.shape, stored.dtype):
            raise ValueError(
                f"carry: output {quote(label)} is {made.dtype} of shape {quote(made.shape)}, input {quote(name)} "
                f"{stored.dtype} of shape {quote(stored.shape)}; they must be the same"
            )
    twice = [name for name in carry.values() if list(carry.values()).count(name) > 1]
    if twice:
        raise ValueError(f"carry: several outputs take the place of input {quote(twice[0])}; give one")


def _carry(
    prepared: PreparedPlan, carry: Mapping[str, str], carried: Mapping[int, str], replaced: Collection[int]
) -> list[DeviceStep]:
    """The copies from where outputs lie to the buffers of the inputs whose place they take, if they do not yet."""
    outputs = {out.name: out for out in prepared.plan.outputs}
    spilled = {at.step.buffer for at in prepared.steps if isinstance(at.step, Spill)}
    found = []
    for label, name in carry.items():
        numbers = [number for number, tensor in carried.items() if tensor == name]
        placed = {at.step.dst for at in prepared.steps if isinstance(at.step, Copy) and _is_name(at.step, name)}
        if placed != set(numbers) or any(number in spilled for number, _ in outputs[label].blocks):
            raise ValueError(
                f"carry: input {quote(name)} or output {quote(label)} is spilled; give the plan more memory"
            )
        for number in numbers:
            if number in replaced:
                continue
            target = prepared.work.buffers[number]
            wanted = [
                region
                for at in prepared.steps
                if isinstance(at.step, Copy) and at.step.dst == number
                for region in at.step.regions
            ]
            found += _bring(prepared, outputs[label], target, name, wanted)
    return found


def _is_name(step: Copy, name: str) -> bool:
    return is_placing(step) and step.tensor == name


def _bring(
    prepared: PreparedPlan, output: Output, target: Buffer, name: str, wanted: Sequence[Region]
) -> list[DeviceStep]:
    """Copies of the wanted cells from the blocks of an output that lie on the device of a buffer."""
    left, found = DisjointRegions(output.shape, wanted), []
    for number, region in (*output.blocks, *output.replicas):
        if prepared.work.buffers[number].device != target.device:
            continue
        mine = left & DisjointRegions(output.shape, [region])
        if not mine.is_empty:
            copy = Copy(f"carry {output.name}", output.tensor, number, target.id, tuple(mine.regions))
            found.append(DeviceStep(-1, target.device, copy))
            left = left - mine
    if not left.is_empty:
        raise ValueError(
            f"carry: output {quote(output.name)} does not lie where input {quote(name)} begins on device "
            f"{target.device}; plan with tie={{{quote(output.name)}: {quote(name)}}}"
        )
    return found
