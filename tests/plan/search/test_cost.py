"""Cell counts from tables against boolean masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_plan import Device, Link, Mesh
from tapestry_plan.search.cost import (
    Held,
    RegionTable,
    compute_seconds,
    count_received,
    to_ticks,
    transfer_ticks,
    unite,
)
from tapestry_sets import DisjointRegions, Region

SHAPE = (6, 5)


@st.composite
def slices(draw: st.DrawFn, n: int) -> slice:
    start = draw(st.integers(0, n))
    return slice(start, draw(st.integers(start, n)), draw(st.integers(1, 3)))


@st.composite
def regions(draw: st.DrawFn) -> tuple[DisjointRegions, np.ndarray]:
    """A union of one or two strided blocks, and the same as a mask."""
    mask = np.zeros(SHAPE, bool)
    region = DisjointRegions(SHAPE)
    for _ in range(draw(st.integers(0, 2))):
        cut = tuple(draw(slices(n)) for n in SHAPE)
        mask[cut] = True
        region = region | Region.from_slices(SHAPE, cut)
    return region, mask


@given(st.lists(regions(), min_size=1, max_size=4))
def test_sizes_of_intersections(drawn: list[tuple[DisjointRegions, np.ndarray]]) -> None:
    table = RegionTable(SHAPE)
    numbers = [np.array([table.number(region)]) for region, _ in drawn]
    expected = np.logical_and.reduce([mask for _, mask in drawn]).sum()
    assert table.sizes(*numbers).tolist() == [expected]


@given(regions(), regions(), regions(), regions(), st.integers(1, 3))
def test_received_cells(held, first, second, third, parts) -> None:  # type: ignore[no-untyped-def]
    table = RegionTable(SHAPE)
    holding = Held(np.array([[table.number(held[0])]]), np.array([parts]))
    needs = [np.array([[table.number(n[0])]]) for n in (first, second, third)]
    seen = np.zeros(SHAPE, bool)
    for k, (_, mask) in enumerate((first, second, third)):
        fresh = mask & ~seen
        got, new = count_received(table, holding, needs[: k + 1])
        assert new.reshape(-1).tolist() == [fresh.sum()]
        assert got.reshape(-1).tolist() == [parts * fresh.sum() - (fresh & held[1]).sum()]
        seen |= mask


@given(st.lists(regions(), max_size=4))
def test_union(drawn: list[tuple[DisjointRegions, np.ndarray]]) -> None:
    total = unite([region for region, _ in drawn], SHAPE)
    mask = np.logical_or.reduce([np.zeros(SHAPE, bool), *(mask for _, mask in drawn)])
    assert total.size == mask.sum()
    assert all(mask[tuple(point)] for point in total.points())


def test_rank_zero_tensors_have_one_cell() -> None:
    table = RegionTable(())
    one, none = table.number(DisjointRegions((), (Region.full(()),))), table.number(DisjointRegions(()))
    assert table.sizes(np.array([one, none]), np.array([one, one])).tolist() == [1, 0]


def test_the_cost_of_tables_does_not_grow_with_the_tensor() -> None:
    """Strided and solid sets of an axis of 10**15 cells, counted in closed form."""
    n = 10**15
    table = RegionTable((n,))
    even = table.number(DisjointRegions((n,), (Region.from_slices((n,), (slice(0, n, 2),)),)))
    half = table.number(DisjointRegions((n,), (Region.from_slices((n,), (slice(0, n // 2 + 1),)),)))
    assert table.sizes(np.array([even]), np.array([half])).tolist() == [n // 4 + 1]


def test_times() -> None:
    mesh = Mesh((2,), link=Link(1e-6, 1e9), device=Device(1e12, 1e11))
    ticks = transfer_ticks(np.array([[0, 0], [250, 10]]), 4, mesh)
    assert ticks.tolist() == [0, 2_000_000]  # 1 us of latency and 1,000 bytes at 1 GB/s
    assert compute_seconds(1e12, 10, mesh) == 1.0
    assert compute_seconds(1.0, 10**11, mesh) == 1.0


def test_times_beyond_the_count_are_refused() -> None:
    with pytest.raises(ValueError, match="check the mesh's rates"):
        to_ticks(np.array([1e9]))
