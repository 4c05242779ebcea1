"""A plan's document is its choices: what is read has the same steps and programs, spilled and packed ones too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_plan import Device, Graph, Mesh, Placed, PlanVersionError, ShardPlan, ops, plan
from tapestry_plan.ops import relu
from tapestry_plan.steps import (
    Copy,
    Fetch,
    Free,
    NotFound,
    Program,
    Recv,
    Send,
    cut_program,
    deriving,
    least_memory,
    spill,
)
from tests.spilling import Program as Words
from tests.spilling import planned, programs, seeded_program


def network() -> Graph:
    g = Graph()
    h = relu(g.input("x", (8, 12)) @ g.input("w", (12, 8)), name="h")
    g.output(relu(h.T + h, name="last"), "y")
    return g


def assert_read(p: ShardPlan) -> None:
    """What is read of a plan's document is the plan, and so are its steps, worked out anew, and its programs."""
    q = ShardPlan.from_json(p.to_json())
    assert q == p and q.to_json() == p.to_json()
    assert (q.steps, q.buffers, q.outputs) == (p.steps, p.buffers, p.outputs)
    assert (q.placement, q.sharding) == (p.placement, p.sharding)
    for device in range(p.mesh.size):
        program = q.program(device)
        assert program == cut_program(p.graph, p.written, device)
        assert program.peak_nbytes == p.peak_nbytes[device]
        assert Program.from_json(program.to_json()) == program


@settings(max_examples=max(5, settings.default.max_examples // 8))
@given(programs(5))
@example(seeded_program(3))
@example(seeded_program(5, 8))  # on one device, with views that ask for other axes
def test_a_plan_that_is_read_has_the_same_steps(words: Words) -> None:
    assert_read(planned(words))


@settings(max_examples=max(5, settings.default.max_examples // 8))
@given(programs(6), st.sampled_from([0.0, 0.3, 0.7]))
@example(seeded_program(10, 8), 0.0)
def test_a_plan_that_spills_is_read_with_what_it_spills(words: Words, share: float) -> None:
    p = planned(words)
    least = least_memory(p)
    shares = (low + int((high - low) * share) for low, high in zip(least, p.peak_nbytes, strict=True))
    given_ = tuple(map(max, least, shares))  # with blocks over others a plan may need less than any that spills
    q = spill(p, given_)
    assume(q is not p)
    assert_read(q)


def test_the_examples_above_spill_and_send() -> None:
    p = planned(seeded_program(10, 8))
    q = spill(p, least_memory(p))
    assert any(isinstance(step, Fetch) for d in range(q.mesh.size) for step in q.program(d).steps)
    assert any(isinstance(step, Send) for d in range(q.mesh.size) for step in q.program(d).steps)


def test_a_plan_under_a_cap_is_read_with_its_arenas() -> None:
    g = Graph()
    h = g.input("x", (64, 64))
    for k in range(4):
        h = relu(h @ g.input(f"w{k}", (64, 96 if k % 2 == 0 else 64)) if k % 2 == 0 else h @ g.input(f"w{k}", (96, 64)))
    g.output(h, "y")
    free = plan(g, Mesh(2))
    capped = 0
    for share in (0.95, 0.9, 0.8, 0.7):
        try:
            p = plan(g, Mesh(2), memory_nbytes=int(max(free.peak_nbytes) * share))
        except NotFound:
            continue
        assert p.choices.memory_nbytes is not None
        assert_read(p)
        capped += 1
    assert capped


def in_turn(g: Graph) -> None:
    x = g.input("x", (24, 16))
    g.output(ops.tanh(ops.exp(x).reshape(4, -1).T, name="last"), "y")


def with_a_dilation(g: Graph) -> None:
    x = ops.relu(g.input("x", (1, 1, 16, 8)), name="h")
    g.output(ops.conv(x, g.input("w", (1, 1, 3, 1)), dilations=(4, 1), name="conv"), "y")


def updated(g: Graph) -> None:
    x, w = g.input("x", (16, 8)), g.input("w", (8, 8))
    g.output(w - x.T @ (x @ w), "new_w")


UNLIKE = Mesh(3, device=[Device(1e9, 1e10), Device(3e9, 1e10), Device(2e9, 2e10)])


@pytest.mark.parametrize(
    ("build", "mesh", "asked"),
    [
        (in_turn, Mesh(4), {}),
        (with_a_dilation, Mesh(2), {}),
        (updated, Mesh(4), {"tie": {"new_w": "w"}, "placement": "single"}),
        (updated, UNLIKE, {}),
        (updated, Mesh((2, 2)), {"same_bits": True, "space": "mesh"}),
        (updated, Mesh(4), {"fix": {"matmul": {"k": 4}}, "fan_in": 2}),
    ],
)
def test_plans_of_many_kinds_are_read(build: Callable[[Graph], None], mesh: Mesh, asked: dict[str, Any]) -> None:
    """Periodic parts, split axes, ties, unlike devices, leaves, and trees of merges."""
    g = Graph()
    build(g)
    assert_read(plan(g, mesh, **asked))


def test_steps_are_written_down_when_they_are_asked_for() -> None:
    text = plan(network(), Mesh(2)).to_json()
    assert "steps" not in json.loads(text)
    with mock.patch.object(deriving, "lower", side_effect=AssertionError("steps were written")):
        p = ShardPlan.from_json(text)
        assert (p.nbytes_moved, p.peak_nbytes, sorted(p.placement)) == (
            p.nbytes_moved,
            p.peak_nbytes,
            sorted(p.sharding),
        )
        with pytest.raises(AssertionError, match="steps were written"):
            assert p.steps
    assert p.steps is p.steps and replace(p, bound=0.0).steps is p.steps  # kept with the choices


def test_a_document_does_not_grow_with_the_steps() -> None:
    """All to all over 4 and 16 devices: 16 times the copies, in a document that has each layout once."""
    sizes, copies = [], []
    for devices in (4, 16):
        g = Graph()
        g.output(relu(relu(g.input("x", (64, 64)), name="a"), name="b"), "y")
        p = plan(g, Mesh(devices), fix={"a": {"i0": devices}, "b": {"i1": devices}})
        sizes.append(len(json.dumps(json.loads(p.to_json())["choices"])))
        copies.append(sum(isinstance(step, Copy) for step in p.steps))
    assert copies[1] > 10 * copies[0] and sizes[1] < 3 * sizes[0]


def test_plans_of_before_are_refused_with_the_command_that_plans_anew() -> None:
    document = json.loads(plan(network(), Mesh(2)).to_json())
    with pytest.raises(PlanVersionError, match=r"tapestry-plan/2.*tapestry plan MODEL --json"):
        ShardPlan.from_json(json.dumps({**document, "format": "tapestry-plan/2"}))


def signed(document: dict[str, Any]) -> bytes:
    body = {key: value for key, value in document.items() if key != "sha256"}
    digest = hashlib.sha256(msgspec.json.encode(body, order="sorted")).hexdigest()
    return msgspec.json.encode({**body, "sha256": digest})


Edit = Callable[[dict[str, Any]], Any]
WRONG: list[tuple[Edit, str]] = [
    (lambda c: c["layouts"][0].update(parts=[2]), "has .2,. parts; extents"),
    (lambda c: c["layouts"][0]["cells"].append(None), "has the parts of 3 devices; the mesh has 2"),
    (lambda c: c["layouts"][0]["cells"].__setitem__(1, [0] * 9), "has a device with part"),
    (lambda c: c["layouts"][0]["extents"].__setitem__(0, 9), "cuts extents"),
    (lambda c: c["layouts"][0].update(cells=[None, None]), "leaves . of its parts to no device"),
    (lambda c: c["layouts"][0].update(sizes=[[1]]), "has parts of sizes"),
    (lambda c: c["places"]["operator"].pop("last"), "no layout of operator 'last'"),
    (lambda c: c["places"]["operator"].update(other=0), "operator 'other' is of nothing that the graph has"),
    (lambda c: c["places"]["source"].update(h=0), "each of its layouts once|of a tensor that is made"),
    (lambda c: c["places"]["operator"].update(last=-1), "each of its layouts once"),
    (lambda c: c["places"]["operator"].update(last=7), "index out of range"),
    (lambda c: c.update(fan_in=1), "fan_in of the choices is 1; it is at least 2"),
    (lambda c: c.update(memory_nbytes=[1]), "it is bytes for each of 2 devices"),
    (lambda c: c.update(spill_nbytes=[-1, 5]), "it is bytes for each of 2 devices"),
    (lambda c: c.update(asked_outputs=[3]), r"asked_outputs\[0\] is 3; it must be a text"),
]


@pytest.mark.parametrize(("edit", "message"), WRONG)
def test_choices_that_do_not_fit_are_refused(edit: Edit, message: str) -> None:
    document = json.loads(plan(network(), Mesh(2), fuse=False).to_json())
    assert ShardPlan.from_json(signed(document))
    edit(document["choices"])
    with pytest.raises(PlanVersionError, match=message) as caught:
        ShardPlan.from_json(signed(document))
    assert "choices" in str(caught.value)


WRONG_FIGURES: list[tuple[Edit, str]] = [
    (lambda d: d["stages"].pop(), "plan.stages has none of operator 'last'; each operator has one"),
    (lambda d: d["stages"][0].update(node="other"), r"stages\[0\] has work of 'other', which is not an operator"),
    (lambda d: d["stages"].append(d["stages"][0]), r"plan.stages\[.*\] is of '.*', as plan.stages\[0\] is"),
    (lambda d: d["stages"][0].update(op="sum"), r"plan.stages\[0\].op is 'sum'; '.*' is '.*'"),
    (
        lambda d: d["stages"][0].update(sharding={"q": 7}),
        r"stages\[0\].sharding is {'q': 7}; the choices cut '.*' into",
    ),
    (lambda d: d["stages"][0].update(work_seconds=[]), r"plan.stages\[0\].work_seconds is empty; '.*' is computed"),
    (
        lambda d: d["stages"][0].update(work_seconds=[1.0]),
        r"stages\[0\].work_seconds has 1 entries; the mesh has 2 devices",
    ),
    (lambda d: d["stages"][0].update(flop=[1.0] * 3), r"stages\[0\].flop has 3 entries; the mesh has 2 devices"),
    (lambda d: d.update(peak_nbytes=[1]), "plan.peak_nbytes has 1 entries; the mesh has 2 devices"),
    (lambda d: d.update(nbytes_by_link=[[0, 5, 4]]), "bytes from device 0 to 5; the mesh has 2 devices"),
    (lambda d: d["alternatives"].update(other=[]), "plan.alternatives has 'other', which is not an operator"),
    (lambda d: d.update(seconds=1e-12), "plan.seconds is 1e-12; its stages take "),
    (lambda d: d.update(bound=1.0), "plan.bound is 1.0; it is 0 or more, and no more than plan.seconds"),
    (lambda d: d.update(recomputed={"h": "other"}), "plan.recomputed has 'other', which is not an operator"),
]


@pytest.mark.parametrize(("edit", "message"), WRONG_FIGURES)
def test_figures_of_another_plan_are_refused(edit: Edit, message: str) -> None:
    document = json.loads(plan(network(), Mesh(2)).to_json())
    edit(document)
    with pytest.raises(PlanVersionError, match=message):
        ShardPlan.from_json(signed(document))


@pytest.mark.parametrize("text", ["", " \n", b""])
def test_a_document_without_text_is_named(text: str | bytes) -> None:
    with pytest.raises(PlanVersionError, match=r"plan document: the text is empty.*give all of 'tapestry-plan/8'"):
        ShardPlan.from_json(text)
    with pytest.raises(PlanVersionError, match=r"not a JSON document.*; the text is 'none.json'"):
        ShardPlan.from_json("none.json")
    with pytest.raises(TypeError, match="plan document: None is a NoneType; give the text"):
        ShardPlan.from_json(None)  # type: ignore[arg-type]


def test_a_program_that_was_edited_is_refused() -> None:
    text = plan(network(), Mesh(2), fix={"h": {"i0": 2}, "last": {"i0": 2}}).program(1).to_json()
    document = json.loads(text)
    for edit, message in (
        (lambda d: d.update(device=0), "program document: its SHA-256 does not match, it was edited"),
        (lambda d: d["steps"].pop(), "it was edited"),
        (lambda d: d["steps"][0].update(type="bring"), "there is no step 'bring'"),
        (lambda d: d.update(format="tapestry-plan/8"), r"tapestry-program/3.*plan\.program\(device\)"),
        (lambda d: d.update(device="one"), r"\$\.device is 'one'; it must be an integer"),
    ):
        other = json.loads(text)
        edit(other)
        with pytest.raises(PlanVersionError, match=message):
            Program.from_json(json.dumps(other))
    assert {step["type"] for step in document["steps"]} >= {"send", "recv", "compute"}


def test_a_plan_with_steps_of_its_own_is_written_out_and_cut() -> None:
    p = plan(network(), Mesh(2), fix={"h": {"i0": 2}, "last": {"i0": 2}})
    q = p.with_steps()
    assert q == p and ShardPlan.from_json(q.to_json()) == p
    assert [q.program(d) for d in (0, 1)] == [p.program(d) for d in (0, 1)]
    at = next(k for k, step in enumerate(p.steps) if isinstance(step, Free))
    less = p.with_steps((*p.steps[:at], *p.steps[at + 1 :]))
    assert less != p and ShardPlan.from_json(less.to_json()) == less
    device = p.buffers[p.steps[at].buffer].device  # type: ignore[union-attr]
    assert len(less.program(device).steps) == len(p.program(device).steps) - 1
    assert any(isinstance(step, Recv) for step in p.program(device).steps)


def test_a_graph_that_grew_since_it_was_planned() -> None:
    g = network()
    p = plan(g, Mesh(2), fuse=False)  # blocks are in a graph of the plan's own
    steps = p.steps
    g.output(relu(g.tensor("last"), name="more"), "z")
    assert p.steps is steps
    with pytest.raises(ValueError, match="no layout of operator 'more'; plan the graph as it is now"):
        p.program(0)


def test_a_tensor_that_lies_in_boxes_by_device_is_read_with_them() -> None:
    g = Graph()
    x = g.input("x", (8, 8))
    g.output(relu(relu(x, name="a").T + x, name="b"), "y")
    where = Placed({0: np.s_[:3], 1: [np.s_[3:, :4], np.s_[3:5, 4:]], 2: np.s_[5:, 4:]})
    p = plan(g, Mesh(3), layout={"x": where, "y": where})
    assert p.nbytes_moved and any(layout.lots for layout in p.choices.layouts.values())
    assert_read(p)
    for edit in (
        lambda lots: lots.__setitem__(0, None),
        lambda lots: lots[0]["boxes"][0][1].__setitem__(0, 2),
        lambda lots: lots[0]["boxes"][0][1].__setitem__(0, 9),
    ):
        document = json.loads(p.to_json())
        edit(next(each["lots"] for each in document["choices"]["layouts"] if each["lots"]))
        with pytest.raises(PlanVersionError, match="choices"):
            ShardPlan.from_json(signed(document))


def test_a_copy_for_what_no_graph_has_is_named_where_a_program_is_cut() -> None:
    p = plan(network(), Mesh(2), fix={"h": {"i0": 2}, "last": {"i0": 2}})
    steps = list(p.steps)
    home = {buffer.id: buffer.device for buffer in p.buffers}
    at = next(k for k, s in enumerate(steps) if isinstance(s, Copy) and s.src >= 0 and home[s.src] != home[s.dst])
    steps[at] = replace(steps[at], node="other")
    with pytest.raises(ValueError, match="'other' is not a stage of the graph that reads 'h'; check the plan's steps"):
        p.with_steps(steps).program(0)
