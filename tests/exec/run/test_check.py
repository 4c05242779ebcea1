"""Plans that do not hold together are found before they run; every copy of a plan matters, to the cell."""

from __future__ import annotations

import copy
import dataclasses
import gc
import hashlib
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, product
from typing import Any
from unittest import mock
from weakref import ref

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec import InvalidPlan, ResultMismatch, TransferMismatch, check_plan, run
from tapestry_exec.run import check
from tapestry_exec.run.check import _are_apart
from tapestry_exec.run.prepared import Findings, PreparedPlan
from tapestry_plan import HOST, Graph, Link, Mesh, PlanVersionError, ShardPlan, UnsupportedOp, concat, plan
from tapestry_plan.ops import conv, matmul, relu
from tapestry_plan.steps import Alloc, Buffer, Choices, Compute, Copy, Free, Reduce, Step
from tapestry_sets import Box, DisjointRegions, Region
from tapestry_sets.limits import put_item
from tapestry_sets.views import piece_domain

FIXES: tuple[dict[str, dict[str, int]], ...] = (
    {"c1": {"h": 3}, "c2": {"c": 3}, "r2": {"i1": 3}, "fc": {"n": 3}},
    {"c1": {"h": 2}, "c2": {"ci": 2}, "r2": {"i2": 3}, "fc": {"k": 3}},
    {"c1": {"w": 3}, "c2": {"h": 3}, "r2": {"i3": 2}, "fc": {"k": 2}},
)


def network() -> Graph:
    """Halos, stride, dilation, a concatenation, a reshape and split reductions, with few cells."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> Any:
        return g.constant(name, rng.standard_normal(shape).astype(np.float32))

    g = Graph()
    x = g.input("x", (1, 3, 7, 6))
    y = relu(
        conv(x, weight("w1", 4, 3, 3, 3), weight("b1", 4), strides=(2, 1), pads=(1, 1, 1, 1), name="c1"), name="r1"
    )
    z = conv(y, weight("w2", 4, 4, 3, 3), dilations=(2, 1), pads=(2, 1, 2, 1), name="c2")
    s = relu(concat([y, z], 1), name="r2")
    flat = s.reshape(1, -1)
    g.output(matmul(flat, weight("wf", flat.shape[1], 5), name="fc"), "y")
    return g


@lru_cache(maxsize=8)
def made(at: int) -> tuple[ShardPlan, dict[str, np.ndarray]]:
    x = np.random.default_rng(1).standard_normal((1, 3, 7, 6)).astype(np.float32)
    return plan(network(), Mesh(3), fix=FIXES[at]), {"x": x}


def one_cell(cells: DisjointRegions) -> Region:
    """The first cell of a set, as a region."""
    point = tuple(map(int, cells.points()[0]))
    return Region.from_bounds(cells.shape, point, tuple(x + 1 for x in point))


def effective(p: ShardPlan, step: Copy) -> DisjointRegions:
    """The cells that a copy writes: with a piece, those of its regions that the piece is for."""
    cells = DisjointRegions(step.regions[0].shape, step.regions)
    return cells if step.piece is None else cells & piece_domain(step.piece, Box.of(cells.shape))


def resized(p: ShardPlan, step: Copy) -> Iterator[tuple[str, Step | None]]:
    """The copy without a cell, with each kind of further cell, and not at all."""
    cells = effective(p, step)
    yield "delete", None
    yield "shrink", msgspec.structs.replace(step, regions=(cells - one_cell(cells)).members)
    yield "duplicate", msgspec.structs.replace(step, regions=(*step.regions, one_cell(cells)))
    others = Region.full(cells.shape) - cells
    if step.piece is not None:
        others = others & piece_domain(step.piece, Box.of(cells.shape))
    for member in others.members:
        more = one_cell(DisjointRegions(member.shape, (member,)))
        yield f"enlarge by {more}", msgspec.structs.replace(step, regions=(*cells.members, more))


def with_step(p: ShardPlan, at: int, step: Step | None) -> ShardPlan:
    return p.with_steps(steps=(*p.steps[:at], *(() if step is None else (step,)), *p.steps[at + 1 :]))


@pytest.mark.parametrize("at", range(len(FIXES)))
def test_a_copy_with_a_cell_more_or_less_is_found(at: int) -> None:
    p, inputs = made(at)
    run(p, inputs, verify=True)
    copies = [(k, step) for k, step in enumerate(p.steps) if isinstance(step, Copy)]
    assert {step.src == HOST for _, step in copies} == {True, False}
    assert any(step.piece is not None for _, step in copies)
    for k, step in copies:
        for name, changed in resized(p, step):
            with pytest.raises((InvalidPlan, TransferMismatch)):
                run(with_step(p, k, changed), inputs)
                pytest.fail(f"{name} of step {k} was not found: {step}")


@pytest.mark.heavy(2)
@pytest.mark.parametrize("at", range(len(FIXES)))
def test_a_redirected_copy_is_found(at: int) -> None:
    """Unless it reads the very same cells from another buffer of the same device, which is another right plan."""
    p, inputs = made(at)
    expected = run(p, inputs)
    buffers = {b.id: b for b in p.buffers}
    for k, step in enumerate(p.steps):
        if not isinstance(step, Copy):
            continue
        alike_or_near = [b for b in p.buffers if b.tensor == step.tensor or abs(b.id - step.dst) <= 2]
        for b in alike_or_near:
            if b.id != step.dst:
                with pytest.raises((InvalidPlan, TransferMismatch)):
                    run(with_step(p, k, msgspec.structs.replace(step, dst=b.id)), inputs)
                    pytest.fail(f"step {k} may write to buffer {b.id} instead")
            if b.id == step.src:
                continue
            moved = with_step(p, k, msgspec.structs.replace(step, src=b.id))
            alike = step.src != HOST and (b.device, b.tensor) == (buffers[step.src].device, buffers[step.src].tensor)
            if not alike:
                with pytest.raises((InvalidPlan, TransferMismatch)):
                    run(moved, inputs)
                    pytest.fail(f"step {k} may read from buffer {b.id} instead")
                continue
            try:
                found = run(moved, inputs)
            except (InvalidPlan, TransferMismatch):
                continue
            np.testing.assert_array_equal(found.outputs["y"], expected.outputs["y"])
            assert found.nbytes_by_link == expected.nbytes_by_link


@pytest.mark.parametrize("at", range(len(FIXES)))
def test_no_step_can_be_left_out(at: int) -> None:
    """But a Free: what is then held longer is a larger high-water mark, or nothing."""
    p, inputs = made(at)
    for k, step in enumerate(p.steps):
        if not isinstance(step, Free):
            with pytest.raises((InvalidPlan, TransferMismatch)):
                run(with_step(p, k, None), inputs)
                pytest.fail(f"step {k} can be left out: {step}")


@pytest.mark.parametrize("at", range(len(FIXES)))
def test_an_early_free_is_found(at: int) -> None:
    p, _ = made(at)
    for k, step in enumerate(p.steps):
        if isinstance(step, Alloc):
            early = p.with_steps(steps=(*p.steps[: k + 1], Free(step.buffer), *p.steps[k + 1 :]))
            with pytest.raises(InvalidPlan):
                check_plan(early)


def changed_buffer(p: ShardPlan, number: int, **fields: Any) -> ShardPlan:
    buffers = [msgspec.structs.replace(b, **fields) if b.id == number else b for b in p.buffers]
    return p.with_steps(buffers=tuple(buffers))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"device": 3}, "device 3 is not on the mesh of 3"),
        ({"device": -1}, "device -1 is not on the mesh"),
        ({"dtype": "float99"}, "'float99' is not a dtype"),
        ({"dtype": "float64"}, "16 bytes for shape"),
        ({"nbytes": 4}, "4 bytes for shape"),
        ({"offset": -4}, "offset -4 must be >= 0"),
        ({"offset": 2}, "offset 2 must be >= 0 and a multiple of 4"),
        ({"offset": 2**62}, "it ends at byte 4611686018427387968, device 0 holds .* at most"),
        ({"dtype": "object"}, "'object' is not a dtype of numbers or booleans"),
        ({"dtype": "(2,"}, "is not a dtype of NumPy"),
        ({"start": (0, 0)}, "make no box"),
        ({"start": (0, 0), "shape": (2, 2)}, "another rank than the tensor's"),
        ({"dtype": "int32"}, "dtype int32 where the tensor has float32"),
    ],
)
def test_unfit_buffers_are_named(fields: dict[str, Any], message: str) -> None:
    p, _ = made(1)
    b = next(b for b in p.buffers if b.tensor == "b1" and b.shape == (4,))
    with pytest.raises(InvalidPlan, match=f"buffer {b.id} of 'b1': .*{message}"):
        check_plan(changed_buffer(p, b.id, **fields))


def test_numbers_of_buffers_are_unique() -> None:
    p, _ = made(0)
    with pytest.raises(InvalidPlan, match="two buffers of this number"):
        check_plan(p.with_steps(buffers=(*p.buffers, p.buffers[0])))


def test_buffers_over_one_another_are_found() -> None:
    p, _ = made(0)
    first, second = [b for b in p.buffers if b.device == 0][:2]
    with pytest.raises(InvalidPlan, match=f"overlap buffer {first.id} at"):
        check_plan(changed_buffer(p, second.id, offset=first.offset))


def find(p: ShardPlan, kind: type) -> tuple[int, Any]:
    return next((k, step) for k, step in enumerate(p.steps) if isinstance(step, kind))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"node": "c9"}, "the graph has no operator 'c9'"),
        ({"start": (0, 0, 0, 90, 0, 0, 0)}, "outside the index space"),
        ({"start": (0, 0)}, r"start \(0, 0\) and shape .* make no index box"),
        ({"shape": (1, 4, 4, 6, 3, 3, -3)}, "make no index box"),
        ({"shape": (1, 4, 0, 6, 3, 3, 3)}, "is empty or outside the index space"),
        ({"inputs": (0, 1)}, "2 inputs and 1 outputs do not fit the operands of"),
        ({"inputs": (None, 1, 2)}, "is read by this part"),
        ({"inputs": (1, 1, 2)}, "input 0 is 'x', complete; buffer 1 holds"),
        ({"device": 2}, "lies on device 0, not on device 2"),
        ({"workspace": None}, "bytes of workspace, the plan gives 0"),
    ],
)
def test_unfit_computations_are_named(fields: dict[str, Any], message: str) -> None:
    p, _ = made(0)
    k, step = find(p, Compute)
    assert (step.node, step.device, len(step.inputs)) == ("c1", 0, 3) and step.workspace is not None
    with pytest.raises(InvalidPlan, match=message):
        check_plan(with_step(p, k, msgspec.structs.replace(step, **fields)))


def test_merging_all_parts_once_and_in_order() -> None:
    p, _ = made(1)
    k, step = find(p, Reduce)
    assert len(step.inputs) == 2
    for inputs in (step.inputs[:1], step.inputs[::-1], step.inputs[:1] * 2, ()):
        with pytest.raises(InvalidPlan, match="merges parts"):
            check_plan(with_step(p, k, msgspec.structs.replace(step, inputs=inputs)))
    with pytest.raises(InvalidPlan, match="merges by 'max', the operator 'c2' by 'sum'"):
        check_plan(with_step(p, k, msgspec.structs.replace(step, monoid="max")))


def test_only_results_have_parts() -> None:
    p, _ = made(1)
    step = find(p, Reduce)[1]
    weight = next(at for at, s in enumerate(p.steps) if isinstance(s, Copy) and s.src == HOST)
    into = msgspec.structs.replace(step, output=p.steps[weight].dst)
    with pytest.raises(InvalidPlan, match=r"no operator makes '.*'; only results have parts to merge"):
        check_plan(with_step(p, weight, into))


def test_copies_are_into_tensors_of_the_graph() -> None:
    p, _ = made(0)
    work = next(b for b in p.buffers if b.tensor not in p.graph.stored and b.tensor not in p.graph.selections)
    k = next(k for k, s in enumerate(p.steps) if s == Alloc(work.id))
    wrong = Copy("c1", work.tensor, HOST, work.id, (Region.full((4,)),))
    with pytest.raises(InvalidPlan, match=f"the graph has no tensor {re.escape(repr(work.tensor))}"):
        check_plan(p.with_steps(steps=(*p.steps[: k + 1], wrong, *p.steps[k + 1 :])))


def test_padding_must_be_the_operators() -> None:
    p, _ = made(0)
    padded = next(b for b in p.buffers if b.fill is not None)
    for fill in (1.0, None):
        with pytest.raises(InvalidPlan, match=f"is padded with 0.0, buffer {padded.id} with {fill}"):
            check_plan(changed_buffer(p, padded.id, fill=fill))


def test_outputs_must_be_covered() -> None:
    p, _ = made(0)
    (out,) = p.outputs
    for blocks in (out.blocks[:-1], (*out.blocks, out.blocks[0])):
        with pytest.raises(InvalidPlan, match=r"do not cover|share the point"):
            check_plan(p.with_steps(outputs=(msgspec.structs.replace(out, blocks=blocks),)))
    with pytest.raises(InvalidPlan, match="are not the graph's"):
        check_plan(p.with_steps(outputs=()))
    with pytest.raises(InvalidPlan, match="output 'y' is float64"):
        check_plan(p.with_steps(outputs=(msgspec.structs.replace(out, dtype="float64"),)))


@pytest.mark.parametrize("name", ["check_partition", "first_shared"])
def test_a_fault_of_the_check_is_not_taken_for_one_of_the_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*args: Any) -> None:
        raise ValueError("planted")

    p, _ = made(0)
    monkeypatch.setattr(check, name, faulty)
    with pytest.raises(ValueError, match=r"^planted$") as raised:
        check_plan(p)
    assert raised.type is ValueError


def test_replicas_of_outputs_are_read_like_their_blocks() -> None:
    g = Graph()
    g.output(relu(g.input("x", (6,)), name="r"), "y")
    p = plan(g, Mesh(4), layout={"y": {0: 2}}, fix={"r": {"i0": 4}})
    (out,) = p.outputs
    assert out.replicas and sum(region.size for _, region in out.blocks) == 6
    assert sum(region.size for _, region in out.replicas) == 6  # 2 parts on 4 devices
    check_plan(p)
    without = p.with_steps(outputs=(msgspec.structs.replace(out, replicas=()),))
    with pytest.raises(InvalidPlan, match=r"copies cells of .* that no later step reads"):
        check_plan(without)
    number, region = out.replicas[0]
    buffer = next(b for b in p.buffers if b.id == number)
    outside = next(r for _, r in out.blocks if not buffer.box.contains(Box.from_bounds(*r.bounds())))
    for replica, message in (
        ((number, outside), "lies outside buffer"),
        ((999, region), "buffer 999 does not exist"),
        ((number, Region.full((7,))), "the tensor is"),
    ):
        changed = msgspec.structs.replace(out, replicas=(*out.replicas, replica))
        with pytest.raises(InvalidPlan, match=message):
            check_plan(p.with_steps(outputs=(changed,)))


def test_a_piece_of_another_view_is_found() -> None:
    p, _ = made(0)
    k, step = next((k, s) for k, s in enumerate(p.steps) if isinstance(s, Copy) and s.piece is not None)
    wrong = replace(step.piece, guards=())
    with pytest.raises(InvalidPlan, match=r"is not one of the .* pieces of"):
        check_plan(with_step(p, k, msgspec.structs.replace(step, piece=wrong)))


def test_errors_name_step_operator_devices_and_regions() -> None:
    p, _ = made(0)
    k, step = next((k, s) for k, s in enumerate(p.steps) if isinstance(s, Copy) and s.piece is None and s.src != HOST)
    outside = Region.full(step.regions[0].shape)
    with pytest.raises(InvalidPlan) as error:
        check_plan(with_step(p, k, msgspec.structs.replace(step, regions=(outside,))))
    text = str(error.value)
    devices = {b.id: b.device for b in p.buffers}
    for part in (
        f"step {k} (copy of {step.tensor!r} for {step.node!r}",
        f"buffer {step.src} on device {devices[step.src]} to buffer {step.dst} on device {devices[step.dst]}",
        "[0, ",
    ):
        assert part in text


def test_hand_written_plan() -> None:
    """A plan by hand: x on device 0, its second half moved to device 1, where y = relu(x) is made of it."""
    p = hand_written()
    r = run(p, {"x": np.array([-1.0, 2.0, -3.0, 4.0], np.float32)}, verify=True)
    assert r.outputs["y"].tolist() == [0.0, 2.0, 0.0, 4.0]
    assert (r.nbytes_by_link, r.nbytes_placed, r.peak_nbytes) == ({(0, 1): 8}, (16, 0), (128, 128))


def hand_written() -> ShardPlan:
    g = Graph()
    g.output(relu(g.input("x", (4,)), name="r"), "y")
    whole = Region.full((4,))
    low, high = Region.from_bounds((4,), (0,), (2,)), Region.from_bounds((4,), (2,), (4,))
    auto = plan(g, Mesh(2))
    (out,) = auto.outputs
    written = auto.with_steps(
        (
            Alloc(0),
            Copy("(place)", "x", HOST, 0, (whole,)),
            Alloc(1),
            Copy("r", "x", 0, 1, (high,)),
            Alloc(2),
            Compute("r", 0, (0,), (2,), (0,), (2,)),
            Alloc(3),
            Compute("r", 1, (2,), (2,), (1,), (3,)),
        ),
        buffers=(
            Buffer(0, 0, "x", (0,), (4,), "float32", 0, 16),
            Buffer(1, 1, "x", (2,), (2,), "float32", 0, 8),
            Buffer(2, 0, out.tensor, (0,), (2,), "float32", 64, 8),
            Buffer(3, 1, out.tensor, (2,), (2,), "float32", 64, 8),
        ),
        outputs=(msgspec.structs.replace(out, blocks=((2, low), (3, high))),),
    )
    return replace(
        written,
        nbytes_received=(0, 8),
        nbytes_by_link={(0, 1): 8},
        nbytes_placed=(16, 0),
        peak_nbytes=(128, 128),
    )


def test_a_plan_is_checked_once() -> None:
    p = hand_written()
    assert PreparedPlan(p).shards is PreparedPlan(p).shards
    kept = ref(p.kept)
    assert copy.copy(p) == p and p.to_json() == hand_written().to_json()
    assert Findings not in copy.copy(p).kept and Findings not in hand_written().kept
    del p
    gc.collect()
    assert kept() is None


# -- types and lengths -----------------------------------------------------------------------------------


def test_the_plan_must_be_a_plan() -> None:
    for thing in (Graph(), None, {}):
        with pytest.raises(TypeError, match="check_plan: plan must be a ShardPlan, not"):
            check_plan(thing)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nbytes_received": (0,)}, r"plan\.nbytes_received has 1 entries; the mesh has 2 devices"),
        ({"peak_nbytes": ()}, r"plan\.peak_nbytes has 0 entries; the mesh has 2 devices"),
        ({"nbytes_placed": [16, 0]}, r"plan\.nbytes_placed is \[16, 0\]; it must be a tuple"),
        ({"nbytes_by_link": {(0, 1, 2): 8}}, r"a key of plan\.nbytes_by_link has 3 items; it must have 2"),
        ({"nbytes_by_link": ((0, 1), 8)}, r"plan\.nbytes_by_link is .*; it must be a dict"),
        ({"seconds": "soon"}, r"plan\.seconds is 'soon'; it must be a number"),
        ({"seconds": True}, r"plan\.seconds is True; it must be a number"),
        ({"mesh": 2}, r"plan\.mesh is 2; it must be Mesh"),
        ({"steps": (Alloc("0"),)}, r"plan\.steps\[0\]\.buffer is '0'; it must be an integer"),  # type: ignore[arg-type]
        ({"steps": ("alloc",)}, r"plan\.steps\[0\] is 'alloc'; it must be Alloc or Copy or"),
        ({"space": "some"}, r"plan\.space is 'some'; it must be 'mesh' or 'all'"),
        ({"space": ["mesh"]}, r"plan\.space is \['mesh'\]; it must be 'mesh' or 'all'"),
        ({"choices": Choices({}, ("y", 2))}, r"plan\.choices\.asked_outputs\[1\] is 2; it must be a text"),  # type: ignore[arg-type]
        ({"choices": Choices({})}, "plan.choices: the choices have no layout of operator 'r'"),
    ],
)
def test_wrong_types_and_lengths_are_named(changes: dict[str, Any], message: str) -> None:
    p = hand_written()
    if "steps" in changes:
        changes = {"explicit": replace(p.written, **changes)}
    wrong = replace(p, **changes)
    with pytest.raises(InvalidPlan, match=message):
        check_plan(wrong)


def test_lists_of_the_stages_have_an_entry_for_each_device() -> None:
    p = hand_written()
    stages = (msgspec.structs.replace(p.stages[0], flop=(1.0,)),)
    with pytest.raises(InvalidPlan, match=r"plan\.stages\[0\]\.flop has 1 entries; the mesh has 2 devices"):
        check_plan(replace(p, stages=stages))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "spare"}, "kind is 'spare'; it must be input, constant or result"),
        ({"sha256": 7}, "sha256 is 7; it must be a text or None"),
        ({"path": ["m.onnx"]}, r"path is \['m.onnx'\]; it must be a text or None"),
    ],
)
def test_wrong_tensors_of_the_graph_are_named(changes: dict[str, Any], message: str) -> None:
    p = hand_written()
    put_item(p.graph.stored, "x", dataclasses.replace(p.graph.stored["x"], **changes))
    with pytest.raises(InvalidPlan, match=rf"plan\.graph\.stored\['x'\]\.{message}"):
        check_plan(p)


@pytest.mark.parametrize("fill", [-1.0, 256.0, 0.5, float("inf"), float("nan")])
def test_what_fills_a_buffer_is_a_value_of_its_dtype(fill: float) -> None:
    p, _ = made(0)
    work = next(b for b in p.buffers if b.dtype == "uint8")
    with pytest.raises(InvalidPlan, match=f"fill {fill} is not a value of uint8"):
        check_plan(changed_buffer(p, work.id, fill=fill))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in plain data."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


@lru_cache(maxsize=1)
def a_document() -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    document = json.loads(made(1)[0].to_json())
    del document["sha256"]
    return document, list(places(document))


WRONG = ("x", None, -1, [], {}, 2**62, 1.5, [[1]], True)


@given(st.integers(0, 2**16), st.sampled_from(WRONG))
def test_a_document_with_any_value_wrong_is_refused_or_right(at: int, value: Any) -> None:
    """Its SHA-256 made anew, so that only what the document says can be noticed."""
    document, paths = a_document()
    changed = copy.deepcopy(document)
    *above, last = paths[at % len(paths)]
    inner: Any = changed
    for key in above:
        inner = inner[key]
    inner[last] = value
    body = msgspec.json.encode(changed, order="sorted")
    text = msgspec.json.encode({**changed, "sha256": hashlib.sha256(body).hexdigest()})
    p, inputs = made(1)
    constants = {name: tensor.data for name, tensor in p.graph.stored.items() if tensor.kind == "constant"}
    try:
        found = run(ShardPlan.from_json(text), inputs, constants=constants, verify=True)
    except (PlanVersionError, InvalidPlan, UnsupportedOp, TransferMismatch, ResultMismatch) as error:
        assert str(error)
    except ValueError as error:  # the document asks for other inputs or constants than are given
        assert re.match(r"(inputs:|constants:|input '|constant ')", str(error)), error
    else:
        np.testing.assert_array_equal(found.outputs["y"], run(p, inputs).outputs["y"])


@given(
    st.integers(0, 3).flatmap(
        lambda rank: st.lists(
            st.tuples(*[st.tuples(st.integers(0, 6), st.integers(1, 4))] * rank).map(
                lambda sides: Box(tuple(a for a, _ in sides), tuple(n for _, n in sides))
            ),
            max_size=8,
        )
    )
)
def test_blocks_are_apart_where_no_two_have_a_point_in_common(boxes: list[Box]) -> None:
    cells = [set(product(*(range(a, b) for a, b in zip(box.start, box.stop, strict=True)))) for box in boxes]
    assert _are_apart(tuple(boxes)) == all(not one & two for one, two in combinations(cells, 2))


def test_merges_of_many_parts_are_proved_once() -> None:
    """All devices merge the same 32 parts: pairs of their slabs are looked at once, not at each merge."""
    g = Graph()
    made = matmul(g.input("x", (32, 32)), g.input("w", (32, 64)), name="it")
    g.output(relu(made, name="after"), "y")
    p = plan(g, Mesh((32,), link=Link(0, 1e9)), fix={"it": {"k": 32}, "after": {"i0": 32}}, expand=False)
    with mock.patch("tapestry_exec.run.check._are_apart", wraps=_are_apart) as looked:
        check_plan(p)
    assert sum(isinstance(step, Reduce) for step in p.steps) >= 32 > looked.call_count
