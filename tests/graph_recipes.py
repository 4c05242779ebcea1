"""Random graphs: recipes of a few operators and views over two inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tapestry_plan import Graph, Tensor, concat
from tapestry_plan.ops import matmul, relu

STEPS: list[Callable[..., Any]] = [
    lambda g, a, b: relu(a),
    lambda g, a, b: a + b,
    lambda g, a, b: a - b,
    lambda g, a, b: matmul(a, b),
    lambda g, a, b: a.T,
    lambda g, a, b: a.flip(0),
    lambda g, a, b: concat([a, b], 1)[:, ::2],
    lambda g, a, b: g.constant(f"c{len(g.stored)}", np.full((3, 3), 1.5, np.float32)),
    lambda g, a, b: g.op("leaky_relu", a, alpha=0.5),
]
Recipe = tuple[list[tuple[int, int, int]], list[int]]


@st.composite
def recipes(draw: st.DrawFn, longest: int = 6) -> Recipe:
    """Steps over earlier tensors, and which tensors are outputs."""
    count = draw(st.integers(0, longest))
    steps = [
        (draw(st.integers(0, len(STEPS) - 1)), draw(st.integers(0, k + 1)), draw(st.integers(0, k + 1)))
        for k in range(count)
    ]
    return steps, draw(st.lists(st.integers(0, count + 1), max_size=3, unique=True))


def built(recipe: Recipe) -> Graph:
    g = Graph()
    tensors: list[Tensor] = [g.input("x", (3, 3)), g.input("y", (3, 3))]
    for step, a, b in recipe[0]:
        tensors.append(STEPS[step](g, tensors[a], tensors[b]))
    for k in recipe[1]:
        g.output(tensors[k], f"out{k}")
    return g
