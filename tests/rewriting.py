"""Shared by tests of rewrites: graphs of given arrays, and the comparison of two graphs' outputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tapestry_exec import difference, evaluate
from tapestry_plan import Graph, Tensor

Arrays = Mapping[str, np.ndarray]
ROUNDING = 2e-5
"""Largest max|difference| / max|value| where sums are regrouped in float32."""


def same(before: Graph, after: Graph, inputs: Arrays, bound: float = 0.0) -> Graph:
    """The second graph, if it is valid, is a document, and gives the first one's outputs up to `bound`."""
    after.validate()
    again = Graph.from_json(after.to_json(), after.ops)
    assert again.to_json() == after.to_json()
    one, two = evaluate(before, inputs), evaluate(after, inputs)
    assert list(one) == list(two)
    for label in one:
        assert difference(two[label], one[label]) <= bound, label
    return after


def floats(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def graph_of(arrays: Arrays) -> tuple[Graph, list[Tensor]]:
    g = Graph()
    return g, [g.input(name, array.shape, array.dtype.name) for name, array in arrays.items()]
