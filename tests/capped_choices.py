"""Small graphs of a few words, and every choice of their layouts, written down as steps and laid out in arenas."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st

from tapestry_plan import Device, Graph, Link, Mesh, Tensor, ops
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.writing import lower_choice
from tapestry_plan.steps import Alloc, Free, Lowered


def grown(words: list[str], rows: int = 4, columns: int = 6) -> Graph:
    """A graph of one operator for each word, mostly on what the one before made."""
    g = Graph()
    h: Tensor = g.input("x", (rows, columns))
    start = h
    for k, word in enumerate(words):
        if word == "product":
            h = g.op("matmul", h, g.input(f"w{k}", (h.shape[1], 6)), name=f"n{k}")
        elif word == "turned":
            h = g.op("matmul", h, g.input(f"w{k}", (8, h.shape[1])).T, name=f"n{k}")
        elif word == "sum":
            h = ops.add(h, start, name=f"n{k}") if h.shape == start.shape else ops.relu(h, name=f"n{k}")
        elif word == "twice":
            h = ops.add(h, h.flip(0), name=f"n{k}")
        else:
            h = ops.relu(h, name=f"n{k}")
    g.output(h, "y")
    return g


FEW = settings(max_examples=max(10, settings.default.max_examples // 20))
"""Every choice of layouts of a graph is lowered, which takes seconds."""
WORDS = st.lists(st.sampled_from(["product", "turned", "relu", "sum", "twice"]), min_size=1, max_size=3)
MAX_CHOICES = 500


class Tried(NamedTuple):
    """A choice of layouts, its picoseconds and bytes that move, and what it takes on each device."""

    choice: tuple[int, ...]
    cost: tuple[int, int]
    peaks: tuple[int, ...]
    """Arenas as they are laid out while steps are written."""
    held: tuple[int, ...]
    """What lies there at once."""


def every_choice(problem: Problem, step: int = 1) -> list[Tried]:
    """Each choice of layouts, or one of so many, written down as steps."""
    out = []
    for choice in list(product(*map(range, problem.sizes)))[::step]:
        steps = lower_choice(problem, choice, None, capped=True)
        out.append(Tried(choice, problem.count_cost(choice), steps.peak_nbytes, most_held(steps)))
    return out


def most_held(steps: Lowered) -> tuple[int, ...]:
    """The most bytes that lie in each device's memory at once, in whole cache lines."""
    buffers = {buffer.id: buffer for buffer in steps.buffers}
    now, most = [0] * len(steps.peak_nbytes), [0] * len(steps.peak_nbytes)
    for step in steps.steps:
        if isinstance(step, Alloc | Free):
            buffer = buffers[step.buffer]
            now[buffer.device] += -(-buffer.nbytes // 64) * 64 * (1 if isinstance(step, Alloc) else -1)
            most[buffer.device] = max(most[buffer.device], now[buffer.device])
    return tuple(most)


def slow(devices: int, bandwidth: float) -> Mesh:
    return Mesh((devices,), link=Link(1e-8, bandwidth), device=Device(1e9, 1e10))
