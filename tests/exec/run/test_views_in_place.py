"""Blocks of views that are read where their cells lie: nothing copied, no memory beside, the cells that views have."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec import InvalidPlan, check_plan, evaluate, run
from tapestry_plan import Graph, Mesh, ShardPlan, Tensor, concat, ops, plan
from tapestry_plan.onnx import load_onnx
from tapestry_plan.steps import Compute, Copy, count_local, derive_steps, find_strides
from tapestry_sets.regions import AffineMap, Box
from tapestry_sets.views import IndexMap, Pad, Piece, Relinearize, ViewKind
from tests.exec.run.test_same_bits import of_floats
from tests.oracles import cell_read
from tests.sets.views.test_kinds import EVERY
from tests.ways_of_running import Threads, assert_same

N = 512
READ: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Tensor | tuple[Tensor, ...]]]] = {
    "as it is": ((N, N), lambda x: ops.exp(x)),
    "turned": ((N, N), lambda x: ops.exp(x.T)),
    "renumbered": ((N, N), lambda x: ops.exp(x.reshape(N * N))),
    "reversed": ((N, N), lambda x: ops.exp(x[::-1])),
    "a part": ((N, N), lambda x: ops.exp(x[5:, 3:])),
    "heads": ((N, N), lambda x: ops.exp(x.reshape(N, 8, N // 8).permute_dims((1, 0, 2)))),
    "windows": ((4 * N,), lambda x: ops.exp(x.sliding_windows((64,)))),
    "one number": ((1,), lambda x: ops.exp(x.broadcast_to((N, N)))),
    "three readers": ((N, N), lambda x: (ops.exp(x.T), ops.tanh(x.T), ops.relu(x.T))),
}
"""The shape of an input, and the outputs that are made of it."""


def strided_reads(p: ShardPlan) -> list[Compute]:
    return [step for step in p.steps if isinstance(step, Compute) and any(step.pieces)]


@pytest.mark.parametrize("word", READ)
def test_a_strided_view_takes_no_memory_beside_its_input(word: str) -> None:
    """Peak over input and outputs: it was 1.5 for one view of as many cells."""
    shape, make = READ[word]
    g = Graph()
    made = make(g.input("x", shape))
    for k, one in enumerate(made if isinstance(made, tuple) else (made,)):
        g.output(one, f"y{k}")
    p = plan(g, Mesh((1,)))
    feeds = of_floats(g)
    r = run(p, feeds)
    least = 4 * (prod(shape) + sum(out.size for out in r.outputs.values()))
    assert r.nbytes_copied == p.nbytes_copied == (0,) and r.peak_nbytes[0] <= 1.05 * least
    assert word == "as it is" or strided_reads(p)
    for name, wanted in evaluate(g, feeds).items():
        np.testing.assert_allclose(r.outputs[name], wanted, rtol=1e-6)


def test_a_product_takes_a_turned_operand_as_it_is() -> None:
    g = Graph()
    x, w = g.input("x", (48, 32)), g.input("w", (64, 32))
    g.output(x @ w.T, "y")
    p = plan(g, Mesh((1,)))
    feeds = of_floats(g)
    r = run(p, feeds)
    assert r.nbytes_copied == (0,) and r.peak_nbytes == (4 * (48 * 32 + 64 * 32 + 48 * 64),) and strided_reads(p)
    np.testing.assert_allclose(r.outputs["y"], feeds["x"] @ feeds["w"].T, rtol=1e-5)


@pytest.mark.heavy(2)
@pytest.mark.parametrize(("name", "most"), [("gpt2", 45_000), ("bert", 50_000)])
def test_networks_copy_few_bytes_within_devices(name: str, most: int) -> None:
    """Before, blocks of views were all written anew: 446,464 bytes of GPT-2 on 4 devices, 83,456 of BERT."""
    g = load_onnx(f"tests/models/{name}.onnx")
    p = plan(g, Mesh((4,)))
    r = run(p, of_floats(g))
    assert r.nbytes_copied == p.nbytes_copied and sum(r.nbytes_copied) <= most


# ------------------------------------------------------------------------------------------- every kind of view


def read_cells(kind: ViewKind, arrays: list[np.ndarray]) -> np.ndarray:
    """The cells of a view, one by one."""
    shapes = tuple(array.shape for array in arrays)
    found = np.full(kind.out_shape(shapes), np.nan, np.float32)
    for piece, point in product(kind.pieces(shapes), np.ndindex(*found.shape)):
        cell = cell_read(piece, point)
        if cell is not None:
            found[point] = piece.fill if piece.source < 0 else arrays[piece.source][tuple(cell)]
    return found


def matrix(array: Any) -> Any:
    """A stack of matrices of an array: of rank 2 at least."""
    return array.reshape((*(1,) * (2 - array.ndim), *array.shape))


def clipped(xp: Any, array: Any) -> Any:
    return xp.maximum(xp.minimum(array, 1.0), -0.5)


READERS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "cell by cell": (lambda v: ops.relu(v), lambda v: np.maximum(v, 0)),
    "reduced": (lambda v: ops.max(v), lambda v: np.max(v)),
    "multiplied": (
        lambda v: clipped(ops, matrix(v)) @ clipped(ops, matrix(v)).mT,
        lambda v: clipped(np, matrix(v)) @ clipped(np, matrix(v)).swapaxes(-1, -2),
    ),
}


@pytest.mark.heavy(6)
@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("kind", "shapes"), EVERY, ids=lambda x: type(x).__name__)
def test_every_reader_of_every_kind_of_view(
    kind: ViewKind, shapes: tuple[tuple[int, ...], ...], reader: str, devices: int
) -> None:
    """Against cells that are read one by one, whatever is strided and whatever is copied."""
    g, (read, expected) = Graph(), READERS[reader]
    made = [ops.tanh(g.input(f"x{k}", shape)) for k, shape in enumerate(shapes)]
    view = g.select(kind, *made)
    g.output(read(view), "y")
    feeds = {name: 2 * array - 1 for name, array in of_floats(g).items()}
    cells = read_cells(kind, [np.tanh(feeds[f"x{k}"]) for k in range(len(shapes))])
    wanted = expected(cells)
    for fuse in (True, False):
        p = plan(g, Mesh((devices,)), fuse=fuse)
        r = run(p, feeds, backend="serial")
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(r.outputs["y"], wanted, rtol=1e-5, atol=1e-6)
        assert_same(run(p, feeds, backend=Threads()), r)


# ---------------------------------------------------------------------------------------------- where cells lie

EXTENTS = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@st.composite
def strided_blocks(draw: st.DrawFn) -> tuple[Piece, Box, Box]:
    """A piece of affine maps and renumberings over a tensor, a block of the view, and the buffer around its cells."""
    shape, steps = draw(EXTENTS), list[Any]()
    view = shape
    for word in draw(st.lists(st.sampled_from(["turn", "flip", "step", "join", "cut", "repeat"]), max_size=3)):
        rank, axis = len(view), draw(st.integers(0, len(view) - 1))
        rows, offset = np.eye(rank, dtype=int), [0] * rank
        step: AffineMap | Relinearize
        if word == "turn":
            order = draw(st.permutations(range(rank)))
            step = AffineMap(tuple(map(tuple, rows[order].tolist())), (0,) * rank)
            view = tuple(view[order.index(k)] for k in range(rank))
        elif word == "flip":
            rows[axis, axis], offset[axis] = -1, view[axis] - 1
            step = AffineMap(tuple(map(tuple, rows.tolist())), tuple(offset))
        elif word == "step":
            rows[axis, axis] = 2
            step = AffineMap(tuple(map(tuple, rows.tolist())), tuple(offset))
            view = (*view[:axis], -(-view[axis] // 2), *view[axis + 1 :])
        elif word == "repeat":
            step = AffineMap(tuple((*row, 0) for row in map(tuple, rows.tolist())), tuple(offset), rank + 1)
            view = (*view, 2)
        elif word == "join":
            step, view = Relinearize((prod(view),), view), (prod(view),)
        else:
            step, view = Relinearize((1, *view), view), (1, *view)
        steps.insert(0, step)
    piece = Piece(0, (), IndexMap(tuple(steps), len(view)))
    low = [draw(st.integers(0, n - 1)) for n in view]
    block = Box(tuple(low), tuple(draw(st.integers(1, n - a)) for a, n in zip(low, view, strict=True)))
    cells = np.array([cell_read(piece, point) for point in points_of(block)])
    first, last = cells.min(axis=0), cells.max(axis=0)
    before = [draw(st.integers(0, int(a))) for a in first]
    after = [draw(st.integers(int(b) + 1, max(n, int(b) + 1))) for b, n in zip(last, shape, strict=True)]
    return piece, Box.from_bounds(before, after), block


def points_of(box: Box) -> list[tuple[int, ...]]:
    return list(product(*(range(a, b) for a, b in zip(box.start, box.stop, strict=True))))


@given(strided_blocks())
@settings(max_examples=max(200, settings.default.max_examples * 2))
def test_strides_are_those_of_the_cells_one_by_one(drawn: tuple[Piece, Box, Box]) -> None:
    """Cells lie at even distances in the buffer exactly where strides are found, and where they say."""
    piece, buffer, block = drawn
    numbers = np.arange(buffer.size).reshape(buffer.shape)
    lies = np.array([numbers[tuple(np.subtract(cell_read(piece, at), buffer.start))] for at in points_of(block)])
    lies = lies.reshape(block.shape)
    found = find_strides(piece, buffer, block)
    apart = [np.diff(lies, axis=axis) for axis in range(lies.ndim)]
    is_even = all(each.size == 0 or (each == each.flat[0]).all() for each in apart)
    assert found is not None or not is_even or any(isinstance(step, Relinearize) for step in piece.map.steps)
    if found is not None:
        strides, first = found
        grid = np.indices(block.shape).reshape(len(block.shape), -1)
        assert (lies.reshape(-1) == first + np.array(strides, int) @ grid).all()


# -------------------------------------------------------------------------------------------------- wrong plans


def test_a_step_that_reads_through_a_piece_it_must_not_is_found() -> None:
    g = Graph()
    x, z = g.input("x", (6, 4)), g.input("z", (6, 4))
    g.output(ops.exp(x.T, name="turned") + ops.exp(z[::-1].T, name="reversed"), "y")
    p = plan(g, Mesh((1,)), fuse=False)
    steps = {step.node: (k, step) for k, step in enumerate(p.steps) if isinstance(step, Compute) and step.pieces}
    (at, one), (_, other) = steps["turned"], steps["reversed"]

    def changed(**fields: Any) -> ShardPlan:
        return p.with_steps(steps=[*p.steps[:at], replace(one, **fields), *p.steps[at + 1 :]])

    for fields, told in [
        ({"pieces": other.pieces}, "not one of the 1 pieces of"),
        ({"pieces": ()}, "input 0 is .*, complete; buffer 0 holds 'x'"),
        ({"pieces": one.pieces * 2}, "2 pieces and 1 inputs"),
        ({"inputs": other.inputs}, "holds 'z', part -1, the piece reads 'x'"),
        ({"inputs": (None,)}, "is not read by this part"),
    ]:
        with pytest.raises(InvalidPlan, match=told):
            check_plan(changed(**fields))


@pytest.mark.parametrize("wide", [False, True])
def test_a_block_that_is_not_even_in_the_buffer_that_there_is_is_copied(wide: bool) -> None:
    """The first columns of rows lie side by side where they alone were placed, and apart where whole rows were made."""
    g = Graph()
    x = g.input("x", (6, 4))
    x = ops.relu(x, name="whole") if wide else x
    g.output(ops.exp(x[:, :3].reshape(18), name="read"), "y")
    p = plan(g, Mesh((1,)), fuse=False)
    assert bool(strided_reads(p)) == (not wide)
    assert p.nbytes_copied == (18 * 4 * wide,) and p.nbytes_local == (0,)
    assert wide == any(isinstance(step, Copy) and step.piece is not None for step in p.steps)
    feeds = of_floats(g)
    assert run(p, feeds).outputs["y"].tolist() == evaluate(g, feeds)["y"].tolist()


# --------------------------------------------------------------------------------- blocks that several readers share


def joined_readers(made: bool = False) -> Graph:
    """Two tensors side by side, read by three operators, none of which fits another one's block."""
    g = Graph()
    x, y = g.input("x", (6, 4)), g.input("y", (6, 4))
    both = concat([ops.relu(x, name="a"), ops.relu(y, name="b")] if made else [x, y], 1)
    for k, make in enumerate((ops.exp, ops.tanh, lambda v: ops.softmax(v, name="rows"))):
        g.output(make(both), f"y{k}")
    return g


def test_what_several_readers_assemble_is_written_once() -> None:
    g = joined_readers()
    p = plan(g, Mesh((1,)), fuse=False)
    r = run(p, of_floats(g), verify=True)
    assert p.nbytes_copied == r.nbytes_copied == (6 * 8 * 4,)
    assert p.nbytes_local == (3 * 6 * 8 * 4,)  # each reader is priced for itself
    shared = [step.inputs for step in p.steps if isinstance(step, Compute)]
    assert len(shared) == 3 and len(set(shared)) == 1


def test_what_several_readers_assemble_is_made_there() -> None:
    g = joined_readers(made=True)
    p = plan(g, Mesh((1,)), fuse=False)
    assert run(p, of_floats(g), verify=True).nbytes_copied == p.nbytes_copied == (0,)


def test_under_a_cap_no_block_stays_for_later_readers() -> None:
    g = joined_readers()
    p = plan(g, Mesh((1,)), fuse=False)
    capped = derive_steps(g, p.mesh, replace(p.choices, memory_nbytes=p.peak_nbytes))
    assert count_local(g, capped.buffers, capped.steps, 1) == (3 * 6 * 8 * 4,)


def test_under_a_cap_no_block_is_made_inside_another_one() -> None:
    g = joined_readers(made=True)
    p = plan(g, Mesh((1,)), fuse=False)
    capped = derive_steps(g, p.mesh, replace(p.choices, memory_nbytes=(1 << 20,)))
    assert any(buffer.within for buffer in p.buffers) and not any(buffer.within for buffer in capped.buffers)
    assert count_local(g, capped.buffers, capped.steps, 1) == (3 * 6 * 8 * 4,)


@given(
    st.sampled_from(["side by side", "padded", "rolled"]),
    st.lists(
        st.tuples(st.sampled_from(["cells", "rows", "columns", "part"]), st.integers(0, 2)), min_size=2, max_size=4
    ),
    st.integers(1, 4),
)
@settings(max_examples=max(40, settings.default.max_examples // 3), deadline=None)
def test_readers_of_one_view_however_each_is_cut(word: str, readers: list[tuple[str, int]], devices: int) -> None:
    """Blocks that are the same, that lie in one another, and that only meet; devices that do alike and that do not."""
    g, fix = Graph(), {}
    x = ops.relu(g.input("x", (8, 6)), name="x0")
    if word == "side by side":
        view = concat([x, g.input("y", (8, 6))], 1)
    else:
        view = x.view(Pad(((1, 1), (0, 2)))) if word == "padded" else concat([x[3:], x[:3]])
    for k, (how, axis) in enumerate(readers):
        name = f"r{k}"
        match how:
            case "cells":
                made = ops.exp(view, name=name)
            case "rows":
                made = ops.softmax(view, name=name)
            case "columns":
                made = ops.max(view, 0, name=name)
            case _:
                made = ops.tanh(view[1:, : view.shape[1] - 1], name=name)
        axes = [one for one in g.signature(name).axes if one.kind == "parallel" and one.parts != "one"]
        if axis < len(axes) and axes[axis].size >= devices:
            fix[name] = {axes[axis].name: devices}
        g.output(made, f"y{k}")
    p = plan(g, Mesh((devices,)), fix=fix, fuse=False, expand=False)
    feeds = of_floats(g)
    r = run(p, feeds, verify=True)
    assert r.nbytes_copied == p.nbytes_copied
    for name, wanted in evaluate(g, feeds).items():
        np.testing.assert_allclose(r.outputs[name], wanted, rtol=1e-5, atol=1e-6)
