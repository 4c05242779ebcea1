"""Programs of one device: together they are the plan's steps, whoever works them out, and none waits for ever."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_plan import Graph, Mesh, ops, plan
from tapestry_plan.ops import matmul, relu
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.steps import (
    HOST,
    Alloc,
    Choices,
    Collective,
    Compute,
    Copy,
    Free,
    GroupedStep,
    Layout,
    MergeOrder,
    Program,
    Recv,
    Reduce,
    Send,
    Step,
    align,
    cut_program,
    derive_program,
    list_candidates,
    lower,
    ungroup,
)
from tapestry_plan.steps.choices import list_stages_of
from tapestry_plan.steps.collectives import group_steps
from tests.spilling import LENGTHS, OPERATIONS

MESHES = [(2,), (3,), (4,), (2, 2), (2, 3), (2, 1, 2)]
Case = tuple[Graph, Mesh, Choices]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A random graph in layouts of the search's space, any of them, with inputs anywhere and landing places."""
    g, near = Graph(), st.integers(0, 60)
    tensors = [g.input(f"x{k}", (n // 4,)) for k, n in enumerate(LENGTHS)]
    for _ in range(draw(st.integers(1, 6))):
        operation, a, b = draw(st.sampled_from(OPERATIONS)), draw(near), draw(near)
        tensors.append(operation(g, tensors[a % len(tensors)], tensors[b % len(tensors)]))
    layout: dict[str, dict[str, int]] = {}
    for k in range(draw(st.integers(1, 3))):
        g.output(tensor := tensors[-1 - draw(near) % len(tensors)], f"y{k}")
        if tensor.name in g.stored and draw(st.booleans()):
            layout[f"y{k}"] = {}
    mesh = Mesh(draw(st.sampled_from(MESHES)))
    placement, space = draw(st.sampled_from(["free", "single"])), draw(st.sampled_from(["all", "mesh"]))
    problem = Problem(g, Asked(mesh, placement=placement, layout=layout, space=space))
    rng = draw(st.randoms(use_true_random=False))
    order = list(range(mesh.size))
    rng.shuffle(order)
    permuted = draw(st.booleans())
    layouts = {}
    for variable in problem.variables:
        one = rng.choice(variable.layouts)
        cells = tuple(one.cells[device] for device in order) if permuted else one.cells
        layouts[variable.kind, variable.name] = Layout(one.extents, one.parts, cells)
    for name, tensor in g.stored.items():  # what is complete may land, too
        if (tensor.kind == "result" or ("source", name) in layouts) and rng.random() < 0.3:
            layouts["landing", name] = rng.choice(list_candidates(tensor.shape, mesh, space))
    outs = tuple(problem.asked_outputs)
    merged: dict[str, MergeOrder] = {}
    for name in [name for node in g.nodes.values() for name in node.outputs if ("landing", name) in layouts]:
        order: MergeOrder = rng.choice(["near", "far"])
        if list_stages_of(g, Choices(layouts, outs), name, order):
            merged[name] = order
    return g, mesh, Choices(layouts, outs, draw(st.sampled_from([None, 2])), merged)


@settings(max_examples=max(10, settings.default.max_examples // 6))
@given(cases())
def test_a_program_derived_alone_is_that_of_the_whole_plan(case: Case) -> None:
    whole = lower(*case)
    for device in range(case[1].size):
        one = lower(*case, devices=[device])
        assert derive_program(*case, device) == cut_program(case[0], whole, device)
        assert one.peak_nbytes == (whole.peak_nbytes[device],)
        assert one.nbytes_placed == (whole.nbytes_placed[device],)
        links = {link: nbytes for link, nbytes in whole.nbytes_by_link.items() if device in link}
        assert one.nbytes_by_link == links


@settings(max_examples=max(10, settings.default.max_examples // 6))
@given(cases(), st.integers(0, 10**6))
def test_programs_together_are_the_plan_and_end_in_any_order(case: Case, seed: int) -> None:
    whole, size = lower(*case), case[1].size
    programs = [derive_program(*case, device) for device in range(size)]
    home = {buffer.id: buffer.device for buffer in whole.buffers}
    across = Counter(
        (step.node, step.tensor, home[step.src], home[step.dst], step.regions)
        for step in whole.steps
        if isinstance(step, Copy) and step.src != HOST and home[step.src] != home[step.dst]
    )
    sent = {(p.device, step.peer, step.tag): step for p in programs for step in p.steps if isinstance(step, Send)}
    received = {(step.peer, p.device, step.tag): step for p in programs for step in p.steps if isinstance(step, Recv)}
    counts = [sum(isinstance(step, kind) for p in programs for step in p.steps) for kind in (Send, Recv)]
    assert counts == [len(sent), len(received)] and sent.keys() == received.keys()  # each tag once on either side
    for (source, target, tag), send in sent.items():
        recv = received[source, target, tag]
        assert (send.node, send.tensor, send.regions) == (recv.node, recv.tensor, recv.regions)
    assert Counter((s.node, s.tensor, a, b, s.regions) for (a, b, _), s in sent.items()) == across
    for kind in (Alloc, Free, Compute, Reduce):
        here = Counter(type(step) for step in whole.steps)[kind]
        assert here == sum(isinstance(step, kind) for p in programs for step in p.steps)
    assert tuple(map(highest, programs)) == whole.peak_nbytes
    assert_they_end(programs, Random(seed))


def highest(program: Program) -> int:
    """The last byte of an arena in which no two blocks share a byte."""
    taken: dict[int, tuple[int, int]] = {}
    within: dict[int, int] = {}
    sharing: Counter[int] = Counter()
    peak = 0
    for step in program.steps:
        if isinstance(step, Alloc):
            buffer = program.buffers[step.buffer]
            if buffer.within is not None:
                assert buffer.within.buffer in {**taken, **within}, "who lies within another one comes after it"
                within[step.buffer] = buffer.within.buffer
                continue
            first = step.buffer if buffer.over is None else buffer.over
            sharing[first] += 1
            if buffer.over is not None:
                assert sharing[first] == 2 and taken[first][0] == buffer.offset, "over one that is there"
                continue
            low, high = buffer.offset, buffer.offset + align(buffer.nbytes)
            assert all(high <= a or b <= low for a, b in taken.values() if a < b and low < high)
            taken[step.buffer] = low, high
            peak = max(peak, high)
        elif isinstance(step, Free):
            assert step.buffer not in within.values(), "and leaves before it"
            if step.buffer in within:
                del within[step.buffer]
                continue
            over = program.buffers[step.buffer].over
            first = step.buffer if over is None else over
            sharing[first] -= 1
            if not sharing[first]:
                del taken[first]
    return peak


def assert_they_end(programs: list[Program], rng: Random) -> None:
    """Run the steps in any order that the programs allow: what is read was written before, and each program ends.

    A collective begins when all of its devices are there: first each opens, then all send, receive, and close.
    """
    at = [0] * len(programs)
    written: list[dict[int, set[tuple[int, ...]]]] = [{} for _ in programs]
    mail: dict[tuple[int, int, int], set[tuple[int, ...]]] = {}

    def next_of(device: int) -> GroupedStep | None:
        steps = programs[device].steps
        return steps[at[device]] if at[device] < len(steps) else None

    def can_go(device: int) -> bool:
        step = next_of(device)
        if isinstance(step, Collective):
            return all(name_of(next_of(other)) == name_of(step) for other in step.group)
        return step is not None and (not isinstance(step, Recv) or (step.peer, device, step.tag) in mail)

    def run(device: int, step: GroupedStep | None) -> None:
        here = written[device]
        match step:
            case Alloc(buffer):
                here[buffer] = set()
            case Free(buffer):
                del here[buffer]
            case Send():
                assert points(step) <= here[step.src]
                mail[device, step.peer, step.tag] = points(step)
            case Recv():
                assert points(step) == mail.pop((step.peer, device, step.tag))
                assert not points(step) & here[step.dst]
                here[step.dst] |= points(step)
            case Copy(piece=None):
                assert step.src == HOST or points(step) <= here[step.src]
                here[step.dst] |= points(step)
            case Reduce():
                assert all(points(step) <= here[part] for part in step.inputs)
                here[step.output] |= points(step)
            case Compute():
                for number in step.outputs:
                    buffer = programs[device].buffers[number]
                    here[number] = {
                        tuple(a + b for a, b in zip(buffer.start, point, strict=True))
                        for point in np.ndindex(*buffer.shape)
                    }

    while ready := [device for device in range(len(programs)) if can_go(device)]:
        device = rng.choice(ready)
        step = next_of(device)
        if not isinstance(step, Collective):
            at[device] += 1
            run(device, step)
            continue
        mine = {other: one for other in step.group if isinstance(one := next_of(other), Collective)}
        for phase in (
            lambda one: one.opening,
            lambda one: [s for s in one.steps if isinstance(s, Send)],
            lambda one: [s for s in one.steps if isinstance(s, Recv)],
            lambda one: one.closing,
        ):
            for other, one in mine.items():
                for inner in phase(one):
                    run(other, inner)
        for other in step.group:
            at[other] += 1
    assert [len(p.steps) for p in programs] == at, "some wait for ever"
    assert not mail


def name_of(step: GroupedStep | None) -> object:
    """What the devices of a collective call it."""
    return (step.kind, step.group, step.node, step.tensor) if isinstance(step, Collective) else step


@settings(max_examples=max(10, settings.default.max_examples // 8))
@given(cases(), st.integers(0, 10**6))
def test_programs_with_collectives_end_and_are_those_without(case: Case, seed: int) -> None:
    graph, mesh, _ = case
    whole = lower(*case)
    grouped = tuple(group_steps(cast("tuple[Step, ...]", whole.steps), whole.buffers, mesh))
    assert tuple(ungroup(grouped)) == whole.steps
    programs = [cut_program(graph, whole, device, grouped) for device in range(mesh.size)]
    assert_they_end(programs, Random(seed))
    for program in programs:
        plain = cut_program(graph, whole, program.device)
        (one, mine), (two, theirs) = (
            ([s for s in steps if not isinstance(s, Send)], [s for s in steps if isinstance(s, Send)])
            for steps in (tuple(ungroup(program.steps)), plain.steps)
        )
        assert one == two and sorted(map(repr, mine)) == sorted(map(repr, theirs))
        assert (program.buffers, program.outputs) == (plain.buffers, plain.outputs)
        assert Program.from_json(program.to_json()) == program


def points(step: Send | Recv | Copy | Reduce) -> set[tuple[int, ...]]:
    return {tuple(point) for region in step.regions for point in region.points().tolist()}


def test_a_send_stands_right_behind_what_wrote_its_cells() -> None:
    g = Graph()
    h = relu(g.input("x", (4, 4)), name="h")
    for k in range(3):
        h = relu(h, name=f"r{k}") if k else h
    g.output(matmul(h, h.T, name="last"), "y")
    rows = Layout((4, 4), (2, 1), ((0, 0), (1, 0)))
    layouts = {("operator", name): rows for name in ("h", "r1", "r2")}
    layouts["operator", "last"] = Layout((4, 4, 4), (2, 1, 1), ((0, 0, 0), (1, 0, 0)))
    case = g, Mesh(2), Choices(layouts)
    for device in (0, 1):
        steps = derive_program(*case, device).steps
        (at,) = (k for k, step in enumerate(steps) if isinstance(step, Send))
        (use,) = (k for k, step in enumerate(steps) if isinstance(step, Recv))
        assert isinstance(before := steps[at - 1], Compute) and before.node == "r2" and at < use
        assert [step.peer for step in (steps[at], steps[use])] == [1 - device] * 2  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", [(2, 3), (4,)])
def test_a_program_does_not_depend_on_names(shape: tuple[int, ...]) -> None:
    """The same graph under other names has the same programs but for the names."""

    def made(prefix: str) -> list[list[tuple[object, ...]]]:
        g = Graph()
        h = g.op("matmul", g.input(f"{prefix}x", (6, 8)), g.input(f"{prefix}w", (8, 6)), name=f"{prefix}m")
        g.output(relu(h + h.T, name=f"{prefix}r"), "y")
        problem = Problem(g, Asked(Mesh(shape)))
        layouts = {(v.kind, v.name): v.layouts[len(v.layouts) * 2 // 3] for v in problem.variables}
        case = g, Mesh(shape), Choices(layouts)
        programs = [derive_program(*case, device) for device in range(case[1].size)]
        return [
            [(step.tag, step.peer, step.regions) for step in p.steps if isinstance(step, Send | Recv)] for p in programs
        ]

    assert made("a") == made("zz") and any(made("a"))


def test_a_programs_document_has_that_devices_steps_alone() -> None:
    g = Graph()
    y = ops.conv(g.input("x", (1, 2, 256, 8)), g.input("w", (2, 2, 3, 3)), pads=1, name="first")
    g.output(ops.conv(y, g.input("v", (2, 2, 3, 3)), pads=1, name="second"))
    lengths = []
    for size in (16, 32, 128):
        p = plan(g, Mesh((size,)), fix={"first": {"h": size}, "second": {"h": size}})
        program = p.program(size // 2)
        lengths.append((len(program.steps), len(program.to_json())))
    assert len({steps for steps, _ in lengths}) == 1, "as many neighbors"
    assert max(n for _, n in lengths) < 1.05 * min(n for _, n in lengths), "numbers have more digits, and that is all"
