"""Arenas that are laid out anew: places that no two buffers share at once, in no more than lies there."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapestry_plan import Device, Graph, Link, Mesh, ops
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.steps import Alloc, Choices, Free, Lowered, lower, pack


def steps_of(seed: int, devices: int) -> Lowered:
    """A graph of products, sums and turned tensors, in some layouts."""
    g = Graph()
    h = x = g.input("x", (8, 12))
    for k in range(4):
        h = h @ g.input(f"w{k}", (h.shape[1], 12 - 4 * (k % 2)))
        h = ops.relu(h + h.flip(1) if seed >> k & 1 else h)
    g.output(h @ x[:, : h.shape[1]].T, "y")
    problem = Problem(g, Asked(Mesh((devices,), link=Link(1e-8, 1e8), device=Device(1e9, 1e10))))
    chosen = {(v.kind, v.name): v.layouts[seed * (k + 3) % len(v.layouts)] for k, v in enumerate(problem.variables)}
    return lower(g, problem.mesh, Choices(chosen, tuple(problem.asked_outputs)))


def check_places(lowered: Lowered) -> list[int]:
    """No two buffers share bytes at once, and all are inside of the arenas; what lies in each at most."""
    buffers = {buffer.id: buffer for buffer in lowered.buffers}
    there: list[dict[int, tuple[int, int]]] = [{} for _ in lowered.peak_nbytes]
    most, sharing = [0] * len(there), Counter[int]()
    for step in lowered.steps:
        if isinstance(step, Alloc | Free):
            buffer = buffers[step.buffer]
            here = there[buffer.device]
            if buffer.within is not None:
                around = buffers[buffer.within.buffer]
                assert around.offset <= buffer.offset
                assert buffer.offset + buffer.nbytes <= around.offset + around.nbytes
                continue
            first = buffer.id if buffer.over is None else buffer.over
            sharing[first] += 1 if isinstance(step, Alloc) else -1
            if isinstance(step, Free):
                if not sharing[first]:
                    del here[first]
                continue
            if buffer.over is not None:
                assert sharing[first] == 2 and here[first][0] == buffer.offset
                continue
            begin, end = buffer.offset, buffer.offset + -(-buffer.nbytes // 64) * 64
            assert begin >= 0 and end <= lowered.peak_nbytes[buffer.device]
            assert all(end <= low or high <= begin for low, high in here.values() if low < high and begin < end)
            here[buffer.id] = begin, end
            most[buffer.device] = max(most[buffer.device], sum(high - low for low, high in here.values()))
    return most


@settings(max_examples=max(10, settings.default.max_examples // 4))
@given(st.integers(0, 10**6), st.integers(1, 4), st.floats(0, 1.2))
@example(12345, 2, 0.0)
def test_arenas_are_laid_out_anew(seed: int, devices: int, share: float) -> None:
    lowered = steps_of(seed, devices)
    memory = int(share * max(lowered.peak_nbytes))
    packed = pack(lowered, memory)
    held = check_places(lowered)
    assert check_places(packed.lowered) == held
    for was, now, least, most in zip(
        lowered.peak_nbytes, packed.lowered.peak_nbytes, packed.least_nbytes, held, strict=True
    ):
        assert most <= now <= was or now <= memory
        assert (least, now) == (was, was) if was <= memory else least == most


def test_gaps_are_closed() -> None:
    """Some arenas have gaps as they are written; packed, they need no more than lies there at once."""
    gaps = closed = 0
    for seed in range(40):
        lowered = steps_of(seed, 3)
        most = max(check_places(lowered))
        gaps += max(lowered.peak_nbytes) > most
        closed += max(lowered.peak_nbytes) > most == max(pack(lowered, most).lowered.peak_nbytes)
    assert closed >= 0.8 * gaps > 0
