"""Arenas, and steps that reuse what a device already holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tapestry_plan import Graph, Mesh, concat, plan
from tapestry_plan.ops import conv, relu
from tapestry_plan.steps import Compute, Copy
from tapestry_plan.steps.lowering import Arena
from tapestry_plan.steps.mesh import align


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 300)), max_size=40))
def test_arena_places_never_overlap(actions: list[tuple[bool, int]]) -> None:
    arena = Arena()
    taken: list[tuple[int, int]] = []
    peak = 0
    for give, nbytes in actions:
        if give and taken:
            arena.give(*taken.pop(nbytes % len(taken)))
            continue
        offset = arena.take(nbytes)
        for other, size in taken:
            assert offset + align(nbytes) <= other or other + align(size) <= offset
        taken.append((offset, nbytes))
        peak = max(peak, offset + align(nbytes))
        # First fit: no lower place would do.
        for low in range(0, offset, 64):
            end = low + align(nbytes)
            assert any(low < other + align(size) and other < end for other, size in taken[:-1])
    assert arena.peak == peak


def test_blocks_that_a_device_holds_are_read_in_place() -> None:
    g = Graph()
    g.output(relu(relu(g.input("x", (8, 8)), name="a"), name="b"))
    p = plan(g, Mesh((2,)), fix={"a": {"i0": 2}, "b": {"i0": 2}})
    between = [step for step in p.steps if isinstance(step, Copy) and step.tensor == "a"]
    assert not between
    made = {step.device: step.outputs[0] for step in p.steps if isinstance(step, Compute) and step.node == "a"}
    read = {step.device: step.inputs[0] for step in p.steps if isinstance(step, Compute) and step.node == "b"}
    assert made == read


def test_padding_is_filled_by_the_buffer_and_never_copied() -> None:
    g = Graph()
    h = relu(g.input("x", (1, 2, 6, 6)), name="h")
    g.output(conv(h, g.input("w", (2, 2, 3, 3)), pads=(1, 1, 1, 1), name="conv"))
    p = plan(g, Mesh((2,)), fix={"h": {"i2": 2}, "conv": {"h": 2}})
    blocks = [b for b in p.buffers if b.tensor == "h" and b.fill == 0.0]
    assert [(b.start, b.shape) for b in blocks] == [((0, 0, -1, -1), (1, 2, 5, 8)), ((0, 0, 2, -1), (1, 2, 5, 8))]
    for step in p.steps:
        if isinstance(step, Copy) and step.tensor == "h":
            for region in step.regions:
                assert all(
                    0 <= v < n for point in region.points().tolist() for v, n in zip(point, (1, 2, 6, 6), strict=True)
                )


def test_views_are_assembled_from_what_is_stored() -> None:
    g = Graph()
    a, b = relu(g.input("x", (4, 4)), name="a"), relu(g.input("y", (4, 4)), name="b")
    g.output(relu(concat([a, b.T], 1), name="c"))
    p = plan(g, Mesh((2,)), fix={"a": {"i0": 2}, "b": {"i1": 2}, "c": {"i0": 2}})
    assert p.nbytes_moved == 0  # the rows of b's transpose are b's columns
    pieces = [step for step in p.steps if isinstance(step, Copy) and step.piece is not None]
    assert {step.tensor for step in pieces} == {"a", "b"}


def test_buffers_are_freed_after_their_last_reader() -> None:
    """A chain of equal tensors needs the place of two, however long it is."""
    g = Graph()
    x = g.input("x", (64, 64))
    for _ in range(10):
        x = relu(x)
    g.output(x)
    assert plan(g, Mesh((1,))).peak_nbytes == (2 * 64 * 64 * 4,)
