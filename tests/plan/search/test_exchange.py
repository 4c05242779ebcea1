"""What devices send to each other, against sums over every pair of devices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_plan import Link, Mesh
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.moves.exchange import Exchange
from tapestry_plan.steps import list_senders, number_ports

FAR = Link(1e-6, 1e9), Link(2e-6, 1e10)
MESHES = [Mesh((1,)), Mesh((3,)), Mesh((8,)), Mesh((2, 3), link=FAR), Mesh((4, 9), link=FAR)]


@given(
    mesh=st.sampled_from(MESHES), seed=st.integers(0, 10**6), at_once=st.sampled_from([1, 60, 1 << 18]),
    columns=st.sampled_from([1, 9, 300]), most=st.sampled_from([10, 2**40, 2**55]),
)  # fmt: skip
def test_every_pair_of_devices(mesh: Mesh, seed: int, at_once: int, columns: int, most: int) -> None:
    rng, size = np.random.default_rng(seed), mesh.size
    holdings, kinds, classes = rng.integers(1, 8, 3)
    counts = rng.integers(0, most, (holdings, kinds)) * (rng.random((holdings, kinds)) < 0.6)
    runs = rng.integers(0, 9, counts.shape) if seed % 2 else None
    holds, needs = rng.integers(0, holdings, (classes, size)), rng.integers(0, kinds, (columns, size))
    groups = rng.integers(0, rng.integers(1, size + 1), (classes, size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "MAX_EXCHANGES", at_once)
        found = Exchange(counts, holds, needs, groups, mesh, runs).count()
    ports = number_ports(mesh)
    for c in range(classes):
        sends = np.array(list_senders(groups[c].tolist(), mesh)) & ~np.eye(size, dtype=bool)
        for column in {0, columns - 1, int(rng.integers(columns))}:
            given_to = np.where(sends, counts[holds[c][:, None], needs[column][None]], 0)
            assert found.cells[c, column] == given_to.sum()
            whole = [given_to, np.sign(given_to)]
            whole += [] if runs is None else [np.where(sends, runs[holds[c][:, None], needs[column][None]], 0)]
            told = [found.busiest, found.rounds, found.runs]
            for port in range(len(mesh.ports)):
                for each, mine in zip(told, whole, strict=False):
                    here = np.where(ports == port, mine, 0)
                    assert each[port, c, column] == max(here.sum(axis=0).max(), here.sum(axis=1).max())
