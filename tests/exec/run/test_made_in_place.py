"""Blocks that are made inside the block that reads them: what plans say against what runs copy, and planted faults."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tapestry_exec import InvalidPlan, check_plan, deploy, evaluate, run
from tapestry_plan import Graph, Mesh, ShardPlan, Tensor, concat, ops, plan
from tapestry_plan.onnx import light_model, load_onnx
from tapestry_plan.ops import operator
from tapestry_plan.steps import (
    Alloc,
    Buffer,
    Compute,
    Copy,
    Free,
    Program,
    Within,
    count_local,
    lower,
    row_major,
)
from tapestry_sets.views import Interleave, Pad, Tile
from tests.exec.run.test_every_kind_of_plan import make_graph, make_plan
from tests.exec.run.test_same_bits import of_floats
from tests.spilling import apart
from tests.ways_of_running import Threads, assert_same

# ---------------------------------------------------------------------------------------- what is made where


def heads(x: Tensor) -> Tensor:
    """Four heads of 6 rows, laid side by side."""
    return x.permute_dims((1, 0, 2)).reshape(6, 8)


def riffled(a: Tensor, b: Tensor) -> Tensor:
    """The columns of two tensors by turns."""
    return concat([a.reshape(6, 4, 1), b.reshape(6, 4, 1)], 2).reshape(6, 8)


WORDS: dict[str, tuple[tuple[int, ...], Callable[[Tensor, Tensor], Tensor]]] = {
    "side by side, far": ((12, 40), lambda a, b: concat([a, b], 1)),
    "side by side": ((6, 4), lambda a, b: concat([a, b], 1)),
    "one below the other": ((6, 4), lambda a, b: concat([a, b], 0)),
    "a pad's inside": ((6, 4), lambda a, b: a.view(Pad(((1, 2), (0, 3)))) + b.view(Pad(((1, 2), (0, 3))))),
    "rows by turns": ((6, 4), lambda a, b: a.apply(Interleave(0), b)),
    "heads": ((4, 6, 2), lambda a, b: concat([heads(a), heads(b)], 1)),
}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("devices", [1, 2])
def test_what_is_put_together_is_made_in_its_place(word: str, devices: int) -> None:
    shape, put = WORDS[word]
    g = Graph()
    x, y = g.input("x", shape), g.input("y", shape)
    g.output(ops.softmax(put(ops.exp(x, name="a"), ops.tanh(y, name="b")), name="last"), "z")
    p = plan(g, Mesh(devices), fuse=False, expand=False)
    feeds = of_floats(g)
    r = run(p, feeds, verify=True)
    assert tuple(p.program(device).peak_nbytes for device in range(devices)) == p.peak_nbytes
    with deploy(p, backend="serial") as placed:  # which counts what stays beside the arenas
        assert placed.run(feeds, verify=True).outputs["z"].tobytes() == r.outputs["z"].tobytes()
    if devices == 1:
        padding = 2 * (9 * 7 - 6 * 4) * 4 if "pad" in word else 0
        assert p.nbytes_copied == r.nbytes_copied == (padding,)
        assert sum(buffer.within is not None for buffer in p.buffers) == 2
    np.testing.assert_allclose(r.outputs["z"], evaluate(g, feeds)["z"], rtol=1e-6)
    assert_same(run(p, feeds, backend=Threads()), run(p, feeds, backend="serial"))


def repeated(a: Tensor, b: Tensor) -> Tensor:
    return concat([a.apply(Tile((2, 1))), b.apply(Tile((2, 1)))], 1)


@pytest.mark.parametrize(
    ("put", "guests"),
    [
        (lambda a, b: concat([a, b], 1)[:, 1:], 1),  # not all of a
        (lambda a, b: concat([a[1:], b], 0), 1),
        (lambda a, b: concat([a, a, b], 1), 1),  # a lies at two places
        (lambda a, b: concat([a, a[::-1], b], 1), 1),
        (repeated, 0),
        (lambda a, b: concat([a[::-1], b], 1), 1),  # turned around: no positive strides
        (lambda a, b: concat([a.T, b.T], 1), 0),  # rows are taken apart, so that bits may differ
        (lambda a, b: a.apply(Interleave(1), b), 0),
        (riffled, 0),
        (lambda a, b: concat([a, b], 1).apply(Tile((1, 2))), 0),
    ],
)
def test_what_does_not_go_to_one_place_is_copied(put: Callable[[Tensor, Tensor], Tensor], guests: int) -> None:
    g = Graph()
    x, y = g.input("x", (6, 4)), g.input("y", (6, 4))
    g.output(ops.softmax(put(ops.exp(x, name="a"), ops.tanh(y, name="b")), name="last"), "z")
    p, feeds = plan(g, Mesh(1), fuse=False, expand=False), of_floats(g)
    assert sum(buffer.within is not None for buffer in p.buffers) == guests
    r = run(p, feeds, verify=True)
    np.testing.assert_allclose(r.outputs["z"], evaluate(g, feeds)["z"], rtol=1e-6)
    assert r.nbytes_copied == p.nbytes_copied > (0,)


def test_who_else_reads_a_guest_reads_it_there() -> None:
    """As it is, or beside other cells of its tensor; but not through a view of another form, which is copied of it."""
    for turned in (False, True):
        g = Graph()
        x, y = g.input("x", (6, 6)), g.input("y", (6, 6))
        a, b = ops.exp(x, name="a"), ops.tanh(y, name="b")
        both = ops.softmax(concat([a, b], 1), name="both")
        other = ops.softmax(concat([a.T, b], 1), name="other") if turned else ops.relu(a, name="other")
        g.output(both, "z")
        g.output(other, "w")
        p, feeds = plan(g, Mesh(1), fuse=False, expand=False), of_floats(g)
        guests = {buffer.tensor for buffer in p.buffers if buffer.within is not None}
        assert guests == (set() if turned else {"a", "b"})
        for name, array in run(p, feeds, verify=True).outputs.items():
            np.testing.assert_allclose(array, evaluate(g, feeds)[name], rtol=1e-6)


def test_a_guest_of_a_view_is_sent_and_copied_from_there() -> None:
    """Rows lie beside others in what their device reads, each apart; the other device gets some of them."""
    g = Graph()
    x, y = g.input("x", (1, 2, 8, 4)), g.input("y", (1, 2, 8, 4))
    a = ops.relu(x, name="a")
    g.output(ops.exp(concat([a, ops.tanh(y, name="b")], 3), name="both"), "z")
    g.output(ops.conv(a, g.input("w", (2, 2, 3, 3)), pads=1, name="c"), "v")
    fix = {"a": {"i2": 2}, "b": {"i2": 2}, "both": {"i2": 2}, "c": {"h": 2}}
    p, feeds = plan(g, Mesh(2), fix=fix, fuse=False, expand=False), of_floats(g)
    assert {b.tensor for b in p.buffers if b.within} == {"a", "b"} and p.nbytes_moved
    for name, array in run(p, feeds, verify=True).outputs.items():
        np.testing.assert_allclose(array, evaluate(g, feeds)[name], rtol=1e-5)


@pytest.mark.heavy(2)
@pytest.mark.parametrize(("name", "most"), [("bert", 16_384), ("gpt2", 8_192)])
def test_networks_copy_little(name: str, most: int) -> None:
    g = load_onnx(f"tests/models/{name}.onnx")
    p, feeds = plan(g, Mesh(4)), of_floats(g)
    for label, array in run(p, feeds).outputs.items():
        np.testing.assert_allclose(array, evaluate(g, feeds)[label], rtol=1e-3, atol=1e-5)
    by_itself = lower(p.graph, p.mesh, p.choices, apart=True)
    assert sum(p.nbytes_copied) <= most < sum(count_local(p.graph, by_itself.buffers, by_itself.steps, 4)) / 1.9
    assert all(one <= other * 33 / 32 for one, other in zip(p.peak_nbytes, by_itself.peak_nbytes, strict=True))


@pytest.mark.heavy(2)
@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet", "squeezenet", "shufflenet"])
def test_networks_have_the_bits_of_blocks_apart(name: str) -> None:
    """So that a run in less memory, which has no blocks within others, gives the same."""
    light = name in ("squeezenet", "shufflenet")
    g = load_onnx(light_model(name, seed=1) if light else f"tests/models/{name}.onnx")
    p, feeds = plan(g, Mesh(4)), of_floats(g)
    assert any(buffer.within for buffer in p.buffers)
    one, other = run(p, feeds, backend="serial"), run(apart(p), feeds, backend="serial")
    assert sum(one.nbytes_copied) < sum(other.nbytes_copied)
    for label, array in other.outputs.items():
        assert one.outputs[label].tobytes() == array.tobytes()


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(k, marks=pytest.mark.heavy) for k in range(8, 60))])
def test_what_is_priced_is_what_steps_copy(seed: int) -> None:
    """But for inputs, which are put together before a run; under a cap blocks lie apart, and all is copied."""
    rng = random.Random(seed)
    p, _ = make_plan(make_graph(rng), rng)
    steps = [step for step in p.steps if not (isinstance(step, Copy) and step.node == "(place)")]
    assert p.nbytes_local == count_local(p.graph, p.buffers, steps, p.mesh.size)
    if p.choices.memory_nbytes is not None:
        assert not any(buffer.within for buffer in p.buffers)


@pytest.mark.heavy(4)
@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet", "squeezenet", "shufflenet"])
def test_networks_copy_what_is_priced(name: str) -> None:
    light = name in ("squeezenet", "shufflenet")
    g = load_onnx(light_model(name, seed=1) if light else f"tests/models/{name}.onnx")
    p = plan(g, Mesh(4))
    assert p.nbytes_local == p.nbytes_copied and p.gap == 0
    q = plan(g, Mesh(4), fuse=False, memory_nbytes=max(plan(g, Mesh(4), fuse=False).peak_nbytes) - 64)
    assert q.choices.memory_nbytes is None or q.nbytes_local == q.nbytes_copied


def list_turned(p: ShardPlan) -> list[tuple[Buffer, str]]:
    """Blocks whose rows lie apart, with an operator of theirs whose bits depend on that."""
    apart_ = {
        buffer.id: buffer
        for buffer in p.buffers
        if any(a != b for a, b, n in zip(buffer.strides, row_major(buffer.shape), buffer.shape, strict=True) if n > 1)
    }
    used = [(n, step.node) for step in p.steps if isinstance(step, Compute) for n in (*step.inputs, *step.outputs)]
    return [(apart_[n], node) for n, node in used if n in apart_ and not p.graph.ops[p.graph.nodes[node].op].rows]


@pytest.mark.parametrize("parts_rows", [True, False])
def test_blocks_within_blocks_that_are_within_others_keep_their_bits(parts_rows: bool) -> None:
    """Rows side by side in a block whose own rows lie apart, since it is a part of a wider one."""
    g = Graph()
    x, y, w = g.input("x", (6, 3)), g.input("y", (6, 2)), g.constant("w", np.ones(3, np.float32))
    b = ops.softmax(x, name="b") if parts_rows else ops.layer_normalization(x, w, name="b")
    g.output(ops.relu(concat([b, y], 1), name="z"), "z")
    p = plan(g, Mesh(2), fix={"b": {"i0": 2}, "z": {}}, fuse=False, expand=False)
    lies = {buffer.id: buffer.within.buffer for buffer in p.buffers if buffer.within}
    assert sum(host in lies for host in lies.values()) == 2 * parts_rows and not list_turned(p)
    assert p.nbytes_copied == p.nbytes_local
    feeds = of_floats(g)
    one, other = run(p, feeds, backend="serial"), run(apart(p), feeds, backend="serial")
    assert one.outputs["z"].tobytes() == other.outputs["z"].tobytes()


@pytest.mark.heavy(8)
@pytest.mark.parametrize("seed", range(40))
def test_rows_lie_apart_only_where_bits_do_not_depend_on_it(seed: int) -> None:
    rng = random.Random(seed)
    assert not list_turned(make_plan(make_graph(rng), rng)[0])


# ------------------------------------------------------------------------------------------------ planted faults


def halo() -> ShardPlan:
    """Rows that two devices make, and read with a row of the other one beside them; columns that lie side by side."""
    g = Graph()
    x = ops.relu(g.input("x", (1, 2, 8, 4)), name="a")
    y = ops.conv(x, g.input("w", (2, 2, 3, 3)), pads=(0, 1, 0, 1), name="c")
    g.output(ops.exp(concat([ops.tanh(y, name="d"), ops.relu(y, name="e")], 3), name="f"), "z")
    fix = {"a": {"i2": 2}, "c": {"h": 2}, "d": {"i2": 2}, "e": {"i2": 2}, "f": {"i2": 2}}
    return plan(g, Mesh(2), fix=fix, fuse=False, expand=False)


def guests(p: ShardPlan) -> list[Buffer]:
    found = [buffer for buffer in p.buffers if buffer.within is not None]
    assert len(found) == 6, "rows of `a` and columns of `d` and `e`, on both devices"
    return found


def with_buffer(p: ShardPlan, buffer: Buffer, **change: Any) -> ShardPlan:
    return p.with_steps(buffers=tuple(replace(b, **change) if b.id == buffer.id else b for b in p.buffers))


def test_the_plan_is_right() -> None:
    p = halo()
    assert len(guests(p)) == 6 and p.nbytes_copied == (0, 0)
    feeds = of_floats(p.graph)
    np.testing.assert_allclose(run(p, feeds, verify=True).outputs["z"], evaluate(p.graph, feeds)["z"], rtol=1e-5)
    check_plan(p)


@pytest.mark.parametrize("at", range(6))
def test_a_place_that_is_not_the_cells_own_is_refused(at: int) -> None:
    p = halo()
    guest = guests(p)[at]
    within = guest.within
    assert within is not None
    wrong = [
        {"offset": guest.offset + 4},
        {"offset": guest.offset - 4},
        {"within": replace(within, buffer=guest.id)},
        {"within": replace(within, buffer=len(p.buffers))},
        {"within": replace(within, buffer=next(b.id for b in p.buffers if b.device != guest.device))},
        {"within": replace(within, strides=within.strides[:-1])},
        {"within": replace(within, strides=(*within.strides[:-1], 0))},
        {"within": replace(within, strides=(*within.strides[:-1], -1))},
        {"within": replace(within, strides=(within.strides[0], *within.strides[2:], within.strides[1]))},
        {"within": None},
        {"nbytes": guest.nbytes + 4},
        {"dtype": "int32"},
    ]
    for change in wrong:
        with pytest.raises(InvalidPlan, match=f"buffer|{guest.tensor}"):
            check_plan(with_buffer(p, guest, **change))


def test_steps_that_spoil_a_place_are_refused() -> None:
    p = halo()
    for guest in guests(p):
        assert guest.within is not None
        host, steps = guest.within.buffer, list(p.steps)
        taken = {step.buffer: k for k, step in enumerate(steps) if isinstance(step, Alloc)}
        given = {step.buffer: k for k, step in enumerate(steps) if isinstance(step, Free)}
        (copy,) = [
            k for k, step in enumerate(steps) if isinstance(step, Copy) and (step.src, step.dst) == (guest.id, host)
        ]
        swapped = [*steps]
        swapped[taken[host]], swapped[taken[guest.id]] = swapped[taken[guest.id]], swapped[taken[host]]
        early = [step for k, step in enumerate(steps) if k != given[host]]
        early.insert(given[guest.id] - (given[host] < given[guest.id]), steps[given[host]])
        for wrong in (swapped, early, [step for k, step in enumerate(steps) if k != copy]):
            with pytest.raises(InvalidPlan):
                check_plan(p.with_steps(steps=tuple(wrong)))


def test_cells_of_others_are_not_put_over_a_guest() -> None:
    """The row that comes from the other device is sent to a row that is made here."""
    p = halo()
    steps = list(p.steps)
    at, copy = next(
        (k, step)
        for k, step in enumerate(steps)
        if isinstance(step, Copy) and step.tensor == "a" and step.src >= 0 and p.buffers[step.src].device == 1
        and p.buffers[step.dst].device == 0
    )  # fmt: skip
    guest = next(b for b in guests(p) if b.device == 0 and b.tensor == "a")
    host = p.buffers[copy.dst]
    assert guest.within is not None and guest.within.buffer == host.id
    moved = with_buffer(p, guest, offset=guest.offset + 4 * 4)  # a row further down
    with pytest.raises(InvalidPlan):
        check_plan(moved)
    with pytest.raises(InvalidPlan):
        steps.insert(at, copy)
        check_plan(p.with_steps(steps=tuple(steps)))


@pytest.mark.parametrize("other", ["turned in place", "copied", "renumbered", "padded"])
def test_a_guest_is_read_through_no_other_piece(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    """A plan whose blocks lie in others though what reads them knows no strides of theirs: refused, not run wrong."""
    g = Graph()
    x, y = g.input("x", (6, 6)), g.input("y", (6, 6))
    a, b = ops.exp(x, name="a"), ops.tanh(y, name="b")
    g.output(ops.softmax(concat([a, b], 1), name="both"), "z")
    read = {
        "turned in place": lambda: ops.exp(a.T, name="other"),
        "copied": lambda: ops.softmax(concat([a.T, b], 1), name="other"),
        "renumbered": lambda: ops.relu(concat([a.reshape(4, 9).T.reshape(6, 6), b], 1), name="other"),
        "padded": lambda: ops.relu(a.view(Pad(((1, 1), (1, 1)))), name="other"),
    }[other]
    g.output(read(), "w")
    p = plan(g, Mesh(1), fuse=False, expand=False)
    check_plan(p)
    wide = next(b for b in p.buffers if b.shape == (6, 12) and b.tensor == "concat")
    guest = next(b for b in p.buffers if b.tensor == "a")
    assert guest.within is None or other == "turned in place"
    lies = replace(guest, within=Within(wide.id, (12, 1)), offset=wide.offset, nbytes=4 * (12 * 5 + 6))
    steps = [step for step in p.steps if not (isinstance(step, Alloc | Free) and step.buffer in (guest.id, wide.id))]
    first = next(k for k, step in enumerate(steps) if isinstance(step, Compute) and guest.id in step.outputs)
    steps[first:first] = [Alloc(wide.id), Alloc(guest.id)]
    steps += [Free(guest.id), Free(wide.id)]
    buffers = tuple(lies if b.id == guest.id else b for b in p.buffers)
    with pytest.raises(InvalidPlan, match=r"lies within another one|through a piece"):
        check_plan(replace(p.with_steps(buffers=spread(buffers), steps=tuple(steps)), peak_nbytes=(4096,)))


def spread(buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """The same buffers with room for each by itself, those within others in these; none lies over another one."""
    at, offsets = 0, dict[int, int]()
    for buffer in buffers:
        if buffer.within is None:
            offsets[buffer.id], at = at, at + -(-buffer.nbytes // 64) * 64
    old = {buffer.id: buffer.offset for buffer in buffers}

    def move(b: Buffer) -> int:
        return offsets[b.id] if b.within is None else offsets[b.within.buffer] + b.offset - old[b.within.buffer]

    return tuple(replace(b, offset=move(b), over=None) for b in buffers)


def test_only_what_operators_make_lies_within_one_another() -> None:
    p = halo()
    guest = next(b for b in guests(p) if b.device == 0)
    assert guest.within is not None
    given = next(b for b in p.buffers if b.device == 0 and p.graph.stored[b.tensor].kind == "input")
    with pytest.raises(InvalidPlan, match="only what operators make lies within one another"):
        check_plan(with_buffer(p, guest, within=replace(guest.within, buffer=given.id)))


def test_what_is_never_copied_to_its_place_is_refused() -> None:
    """A block in one of constants: that stays from run to run, and this one would write where nothing is."""
    g = Graph()
    w = g.constant("w", np.arange(64, dtype=np.float32).reshape(16, 4))
    u = ops.tanh(ops.exp(g.input("x", (4, 4)), name="a"), name="u")
    g.output(u @ concat([w[:4], w[12:]], 1), "z")
    p = plan(g, Mesh(1), fuse=False, expand=False)
    guest, host = (next(b for b in p.buffers if b.tensor == name) for name in ("a", "concat"))
    steps = [step for step in p.steps if step != Alloc(host.id)]
    steps.insert(steps.index(Alloc(guest.id)), Alloc(host.id))
    new = {
        host.id: replace(host, offset=8192),
        guest.id: replace(guest, offset=8192, within=Within(host.id, (4, 1))),
    }
    buffers = [replace(new.get(b.id, b), over=None) for b in spread(p.buffers)]
    wrong = replace(p.with_steps(steps, buffers=buffers), peak_nbytes=(8192 + 128,))
    with pytest.raises(InvalidPlan, match="never copied there"):
        check_plan(wrong)


def test_exchanges_into_a_part_of_a_block_are_one_operation() -> None:
    g = Graph()
    x = g.input("x", (8, 8))
    g.output(ops.tanh(concat([x @ g.constant("w", np.ones((8, 8), np.float32)), x], 1), name="t"), "z")
    p = plan(g, Mesh(2), fix={"matmul": {"k": 2}, "t": {}}, fuse=False, expand=False)
    assert any(buffer.within for buffer in p.buffers)
    assert [found.kind for found in p.collectives()] == ["all_reduce"]
    bert = plan(load_onnx("tests/models/bert.onnx"), Mesh(4))
    together = [found.kind for found in bert.collectives()]
    assert together == [found.kind for found in apart(bert).collectives()] and len(together) == 10


def test_padding_that_nobody_fills_is_refused() -> None:
    p = halo()
    guest = guests(p)[0]
    with pytest.raises(InvalidPlan, match="nobody fills its padding"):
        check_plan(with_buffer(p, guest, fill=0.0))


def test_operators_of_one_s_own_get_blocks_by_themselves() -> None:
    """Unless they say that strided ones are as good."""

    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        outputs[0].reshape(-1)[:] = xp.ascontiguousarray(inputs[0]).reshape(-1) * 2

    @operator(block=block)
    def doubled(x: Tensor, *, name: str | None = None) -> Tensor:  # type: ignore[empty-body]
        """Twice as much."""

    g = Graph()
    x, y = g.input("x", (4, 4)), g.input("y", (4, 4))
    g.output(ops.relu(concat([doubled(x, name="a"), doubled(y, name="b")], 1)), "z")
    p = plan(g, Mesh(1), fuse=False)
    assert not list_turned(p) and not any(buffer.within for buffer in p.buffers)
    run(p, of_floats(g), verify=True)


def test_a_program_tells_where_its_guests_lie() -> None:
    p = halo()
    for device in range(2):
        program = p.program(device)
        assert sum(buffer.within is not None for buffer in program.buffers) == 3
        assert Program.from_json(program.to_json()) == program
    hosts = {(b.device, p.buffers[b.within.buffer].tensor) for b in guests(p) if b.within}
    assert len(hosts) == 4 and len(set(product(range(2), [name for _, name in hosts]))) == 4
