"""Plans as documents, and what their steps say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tapestry_plan import HOST, Device, Graph, Link, Mesh, PlanVersionError, ShardPlan, plan
from tapestry_plan.ops.cells.elementwise import relu
from tapestry_plan.ops.windows.windows import max_pool
from tapestry_plan.rewrite import Derivation
from tapestry_plan.steps import Alloc, Compute, Copy, Free, Reduce
from tapestry_plan.steps.documents import seal
from tapestry_plan.steps.layouts.mesh import align


def made(devices: int = 3) -> ShardPlan:
    g = Graph()
    x = g.input("x", (1, 4, 9, 9))
    w = g.constant("w", np.ones((6, 4, 3, 3), np.float32))
    h = g.op("conv", x, w, name="conv", pads=(1, 1, 1, 1))
    r = max_pool(relu(h, name="relu"), (2, 2), strides=(2, 2), name="pool")
    v = g.constant("v", np.ones((96, 5), np.float32))
    g.output(r.reshape(1, -1) @ v, "y")
    return plan(g, Mesh((devices,)), fix={"matmul": {"k": devices}})


def test_round_trip() -> None:
    p = made()
    q = ShardPlan.from_json(p.to_json())
    assert q.to_json() == p.to_json() and q == p
    # Other shardings that nobody asked for are not worked out to be written; those that somebody did are written.
    assert not json.loads(p.to_json())["alternatives"]
    assert q.explain("conv") == p.explain("conv") and q.alternatives["relu"] == p.alternatives["relu"]
    assert dict(p.alternatives).keys() == p.graph.nodes.keys() and p == q
    q = ShardPlan.from_json(p.to_json())
    assert json.loads(q.to_json())["alternatives"].keys() == p.graph.nodes.keys()
    for name in ("steps", "buffers", "outputs", "stages", "placement", "sharding", "nbytes_by_link", "alternatives"):
        assert getattr(q, name) == getattr(p, name), name
    assert (q.mesh, q.seconds, q.bound, q.peak_nbytes, q.flop) == (p.mesh, p.seconds, p.bound, p.peak_nbytes, p.flop)


def test_links_and_launches_are_in_the_document() -> None:
    g = Graph()
    g.output(relu(g.input("x", (8, 8)), name="r"))
    mesh = Mesh((2, 2), link={"x": Link(1e-5, 1e9), "y": Link(1e-6, 1e11)}, device=Device(1e9, 1e10, 5e-6))  # type: ignore[arg-type]
    p = plan(g, mesh, layout={"x": {0: 4}}, fix={"r": {"i1": 4}})
    assert ShardPlan.from_json(p.to_json()).mesh == mesh
    document = json.loads(p.to_json())
    assert document["mesh"]["link"] == [[1e-5, 1e9, 0.0], [1e-6, 1e11, 0.0]] and document["space"] == "mesh"


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d["nbytes_received"].__setitem__(0, 0),
        lambda d: d["choices"]["layouts"].pop(),
        lambda d: d["graph"]["order"][0]["attrs"].update(pads=[0, 0, 0, 0]),
        lambda d: d.pop("sha256"),
    ],
)
def test_edited_documents_are_refused(edit) -> None:  # type: ignore[no-untyped-def]
    document = json.loads(made().to_json())
    edit(document)
    with pytest.raises(PlanVersionError, match="edited"):
        ShardPlan.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "tapestry-plan/0"}', "not json"])
def test_other_documents_are_refused(text: str) -> None:
    with pytest.raises(PlanVersionError):
        ShardPlan.from_json(text)


def test_buffers_never_overlap_while_they_live_and_the_peak_is_reached() -> None:
    p = made(4)
    live: dict[int, dict[int, tuple[int, int]]] = {d: {} for d in range(4)}
    peak = [0] * 4
    for step in p.steps:
        if isinstance(step, Alloc):
            buffer = p.buffers[step.buffer]
            span = (buffer.offset, buffer.offset + align(buffer.nbytes))
            for lo, hi in live[buffer.device].values():
                assert span[1] <= lo or hi <= span[0]
            live[buffer.device][buffer.id] = span
            peak[buffer.device] = max(peak[buffer.device], span[1])
        elif isinstance(step, Free):
            del live[p.buffers[step.buffer].device][step.buffer]
        else:
            for used in _touched(step):
                assert used in live[p.buffers[used].device]
    assert tuple(peak) == p.peak_nbytes


def _touched(step: Copy | Compute | Reduce) -> list[int]:
    if isinstance(step, Copy):
        return [step.dst] if step.src == HOST else [step.src, step.dst]
    if isinstance(step, Reduce):
        return [*step.inputs, step.output]
    work = [] if step.workspace is None else [step.workspace]
    return [k for k in step.inputs if k is not None] + list(step.outputs) + work


def test_predictions_are_what_the_steps_move() -> None:
    """Counted from the steps by listing the points of every region."""
    p = made(3)
    received = [0] * 3
    placed = [0] * 3
    links: dict[tuple[int, int], int] = {}
    for step in p.steps:
        if not isinstance(step, Copy) or step.piece is not None:
            continue
        cells = sum(len(region.points()) for region in step.regions)
        dst = p.buffers[step.dst]
        nbytes = cells * np.dtype(dst.dtype).itemsize
        if step.src == HOST:
            placed[dst.device] += nbytes
        elif p.buffers[step.src].device != dst.device:
            received[dst.device] += nbytes
            link = (p.buffers[step.src].device, dst.device)
            links[link] = links.get(link, 0) + nbytes
    assert tuple(received) == p.nbytes_received and tuple(placed) == p.nbytes_placed
    assert links == p.nbytes_by_link
    assert p.nbytes_moved == sum(received) > 0


def test_parts_are_merged_in_ascending_order() -> None:
    p = made(3)
    merges = [step for step in p.steps if isinstance(step, Reduce)]
    assert merges
    for step in merges:
        assert [p.buffers[k].part for k in step.inputs] == [0, 1, 2]


def test_every_cell_of_an_output_has_one_place() -> None:
    p = made(3)
    (output,) = p.outputs
    points = [tuple(q) for _, region in output.blocks for q in region.points().tolist()]
    assert sorted(points) == sorted(np.ndindex(1, 5))


@pytest.mark.parametrize(
    "inside",
    [
        lambda d: d,
        lambda d: d["mesh"],
        lambda d: d["choices"],
        lambda d: d["choices"]["layouts"][0],
        lambda d: d["explicit"]["buffers"][0],
        lambda d: d["explicit"]["steps"][0],
    ],
)
def test_a_field_that_no_plan_has_is_named(inside) -> None:  # type: ignore[no-untyped-def]
    document = json.loads(made().with_steps().to_json())
    inside(document)["surprise"] = 1
    with pytest.raises(PlanVersionError, match=r"surprise.*edited"):
        ShardPlan.from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d.pop("alternatives"), r"field 'alternatives' is missing"),
        (lambda d: d["mesh"].pop("link"), r"field 'link' is missing - at `\$\.mesh`"),
        (lambda d: d["choices"].pop("fan_in"), r"field 'fan_in' is missing - at `\$\.choices`"),
        (lambda d: d["explicit"]["steps"][1].pop("type"), r"field 'type' is missing - at `\$\.explicit\.steps\[1\]`"),
        (lambda d: d["explicit"].update(steps=5), r"at `\$\.explicit\.steps`, which is 5;"),
        (
            lambda d: d["explicit"]["steps"][1].update(regions=[3]),
            r"at `\$\.explicit\.steps\[1\]\.regions\[0\]`, which is 3;",
        ),
        (lambda d: d["graph"].update(tensors=3), r"graph document: .* at `\$\.tensors`, which is 3;"),
    ],
)
def test_what_is_wrong_in_a_plan_is_named_with_its_place(edit, message) -> None:  # type: ignore[no-untyped-def]
    document = json.loads(made().with_steps().to_json())
    edit(document)
    with pytest.raises(PlanVersionError, match=message):
        ShardPlan.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["{", "[" * 100_000, b"\xff"])
@pytest.mark.parametrize("kind", [ShardPlan, Graph, Derivation])
def test_text_that_is_not_json_is_refused_by_every_reader(kind: Any, text: str | bytes) -> None:
    with pytest.raises(ValueError, match="this is not a JSON document: ") as caught:
        kind.from_json(text)
    assert kind is not ShardPlan or isinstance(caught.value, PlanVersionError)
    with pytest.raises(TypeError, match=r"3 is a int; give the text, as of path\.read_text\(\)"):
        kind.from_json(3)


def test_stages_that_are_alike_are_written_once() -> None:
    g = Graph()
    x = g.input("x", (4096, 64))
    for _ in range(12):
        x = relu(x)
    g.output(x, "y")
    p = plan(g, Mesh((64,)), unify=False, fuse=False)
    document = json.loads(p.to_json())
    assert [stage["flop"] for stage in document["stages"][1:]] == [0] * 11 and len(document["stages"][0]["flop"]) == 64
    q = ShardPlan.from_json(p.to_json())
    assert q == p and q.stages == p.stages
    for wrong in (3, -1, 99):
        document["stages"][3]["flop"] = wrong
        text = seal({name: value for name, value in document.items() if name != "sha256"})
        with pytest.raises(
            PlanVersionError, match=rf"stages\[3\].flop is {wrong}; it is a list, or the number of an earlier"
        ):
            ShardPlan.from_json(text)
