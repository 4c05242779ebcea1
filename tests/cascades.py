"""Random cascades of selections over the stored tensors of a graph, and what NumPy makes of the same words."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tapestry_plan import Graph, Tensor
from tapestry_plan.rewrite import replay
from tapestry_sets import allocate, concatenate
from tests.strategies import chains

Case = tuple[Graph, Tensor, dict[str, np.ndarray], np.ndarray]
"""A graph, a tensor of it, the values of its inputs, and the tensor's."""


@st.composite
def cascades(draw: st.DrawFn) -> Case:
    """A selection over one to three stored tensors, their values, all different and >= 1, and the view's by NumPy."""
    g, arrays, start = Graph(), {}, 1
    for name in "abc"[: draw(st.integers(1, 3))]:
        shape = tuple(draw(st.lists(st.sampled_from([4, 6, 3, 5, 2, 1]), max_size=3)))
        g.input(name, shape)
        size = int(np.prod(shape))
        arrays[name] = np.arange(start, start + size).reshape(shape)
        start += size
    bases = {name: allocate(array.shape, name=name) for name, array in arrays.items()}
    made = [draw(chains(base, arrays[name], 3, 200)) for name, base in bases.items()]
    view, values = made[0]
    if len(made) > 1:
        view, values = concatenate([v.ravel() for v, _ in made]), np.concatenate([a.ravel() for _, a in made])
        view, values = draw(chains(view, values, 2, 400))
    return g, replay(view, {base: g.tensor(name) for name, base in bases.items()}), arrays, values
