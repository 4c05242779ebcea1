"""From choices to what devices do: one way, for all devices or for one by itself."""

from __future__ import annotations

from collections.abc import Sequence

from tapestry_plan.ir import Graph
from tapestry_plan.steps.arenas.packing import pack
from tapestry_plan.steps.arenas.spilling import evict_all, find_tight, write_evictions
from tapestry_plan.steps.choices import Choices, check_choices
from tapestry_plan.steps.layouts.mesh import Mesh
from tapestry_plan.steps.lowering import lower
from tapestry_plan.steps.programs import Program, cut_steps, write_program
from tapestry_plan.steps.step import GroupedStep, Written


def derive_steps(graph: Graph, mesh: Mesh, choices: Choices) -> Written:
    """The steps of all devices; they are kept, since every plan with these choices has them."""
    found = choices.recall(graph, mesh)
    if found is None:
        found = _derive(graph, mesh, choices, None)
        choices.remember(graph, mesh, found)
    return found


def derive_program(graph: Graph, mesh: Mesh, choices: Choices, device: int) -> Program:
    """The program of one device, without the steps of the others."""
    return write_program(device, _derive(graph, mesh, choices, device))


def derive_apart(graph: Graph, mesh: Mesh, choices: Choices) -> Written:
    """The steps of all devices where each buffer has a place of its own: one may be given back without another."""
    lowered = lower(graph, mesh, choices, apart=True)
    return Written(lowered.buffers, lowered.steps, lowered.outputs)


def cut_program(graph: Graph, written: Written, device: int, grouped: Sequence[GroupedStep] | None = None) -> Program:
    """The program of one device, from the steps of all; with its collectives, where these are given in their places."""
    steps = tuple(cut_steps(graph, written.buffers, written.steps if grouped is None else grouped, device))
    return write_program(device, written, steps)


def _derive(graph: Graph, mesh: Mesh, choices: Choices, device: int | None) -> Written:
    check_choices(graph, mesh, choices)
    lowered = lower(graph, mesh, choices, devices=None if device is None else [device])

    def mine(given: Sequence[int]) -> dict[int, int]:
        return {one: given[one] for one in lowered.devices}

    if choices.memory_nbytes is not None:
        lowered = pack(lowered, list(mine(choices.memory_nbytes).values())).lowered
    tight = {} if choices.spill_nbytes is None else find_tight(lowered, mine(choices.spill_nbytes))
    if tight:
        return write_evictions(lowered, evict_all(graph, lowered, tight))
    return Written(lowered.buffers, lowered.steps, lowered.outputs)
