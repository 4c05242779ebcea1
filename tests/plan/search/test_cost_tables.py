"""One table that is asked for one, two and three regions in turn, as it grows: the sizes are those of masks."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import product
from random import Random
from unittest import mock

import numpy as np
import pytest

from tapestry_plan import Device, Graph, Link, Mesh, ops, plan
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.costs.seconds import to_ticks
from tapestry_plan.search.prices.moves.regions import RegionTable
from tapestry_plan.search.prices.moves.transfers import Held, count_transfers
from tapestry_plan.steps import MAX_STAGE_SECONDS, unite
from tapestry_sets import DisjointRegions, Region

SHAPE = (9, 8)


def samples(count: int) -> Iterator[tuple[DisjointRegions, np.ndarray]]:
    """Unions of one to three blocks with steps, and the same as masks."""
    rng = Random(3)
    for _ in range(count):
        mask, region = np.zeros(SHAPE, bool), DisjointRegions(SHAPE)
        for _ in range(rng.randint(1, 3)):
            starts = [rng.randrange(n) for n in SHAPE]
            cut = tuple(slice(a, rng.randint(a + 1, n), rng.randint(1, 3)) for a, n in zip(starts, SHAPE, strict=True))
            mask[cut] = True
            region = region | Region.from_slices(SHAPE, cut)
        yield region, mask


@pytest.mark.parametrize("batched", [0, tuning.MIN_BATCHED])
@pytest.mark.parametrize("most_codes", [tuning.MAX_CODES, 30, 0])
def test_a_table_that_grows_has_the_sizes_of_masks(most_codes: int, batched: int) -> None:
    table, numbers, masks, rng = RegionTable(SHAPE), [], [], Random(5)
    with mock.patch.multiple(tuning, MAX_CODES=most_codes, MIN_BATCHED=batched):
        for region, mask in samples(12):
            numbers.append(table.number(region))
            masks.append(mask)
            for many in (2, 1, 3, 1, 2):
                rows = np.array([[rng.randrange(len(masks)) for _ in range(many)] for _ in range(4)])
                wanted = [int(np.logical_and.reduce([masks[k] for k in row]).sum()) for row in rows]
                assert table.sizes(*np.array(numbers)[rows].T).tolist() == wanted
    assert [table.number(region) for region, _ in samples(12)] == numbers


@pytest.mark.parametrize("name, value", [("MAX_CODES", 0), ("MAX_EXCHANGES", 1)])
def test_transfers_are_the_same_however_they_are_counted(name: str, value: int) -> None:
    table, drawn = RegionTable(SHAPE), list(samples(6))
    numbers = np.array([table.number(region) for region, _ in drawn])
    rng = np.random.default_rng(1)
    holders, first, last = rng.integers(0, 6, (3, 3, 2))
    held = Held(numbers[holders], np.ones(3, np.int64), np.array([[0, 1]] * 3))
    with mock.patch.object(tuning, name, value):
        found = count_transfers(table, held, [numbers[first], numbers[last]], Mesh((2,))).spread()
    masks = [mask for _, mask in drawn]
    for h, a, b in product(range(3), repeat=3):
        fresh = [masks[last[b, d]] & ~masks[first[a, d]] for d in range(2)]
        sent = [int((fresh[1 - d] & masks[holders[h, d]]).sum()) for d in range(2)]
        assert found.cells[h, a, b] == sum(sent)
        assert found.fresh[0, h, a, b] == max(int(each.sum()) for each in fresh)


def test_every_block_of_a_holder_is_sent() -> None:
    """Two blocks that make up no one, needed as a whole by a device that holds nothing, and the other way round."""
    apart = DisjointRegions(
        SHAPE, [Region.from_bounds(SHAPE, (0, 0), (2, 3)), Region.from_bounds(SHAPE, (5, 4), (9, 8))]
    )
    assert len(apart.members) == 2
    for holds, needs in ((apart, DisjointRegions.full(SHAPE)), (DisjointRegions.full(SHAPE), apart)):
        table = RegionTable(SHAPE)
        one, other, none = table.number(holds), table.number(needs), table.number(DisjointRegions(SHAPE))
        held = Held(np.array([[one, none]]), np.array([1]), np.array([[0, -1]]))
        found = count_transfers(table, held, [np.array([[none, other]])], Mesh((2,))).spread()
        assert found.cells.tolist() == [[2 * 3 + 4 * 4]]


def test_regions_that_overlap_are_united() -> None:
    for one, two in product(samples(6), repeat=2):
        total = unite([one[0], two[0]], SHAPE)
        assert {tuple(at) for at in total.points()} == {tuple(at) for at in np.argwhere(one[1] | two[1]).tolist()}


def test_the_longest_time_that_is_counted_is_counted_exactly() -> None:
    assert to_ticks(np.array([MAX_STAGE_SECONDS, 0.5])).tolist() == [10**15, 5 * 10**11]
    assert to_ticks(np.array([np.nextafter(MAX_STAGE_SECONDS, np.inf), 1e30])).tolist() == [10**15, 10**15]


def test_choices_that_take_longer_than_is_counted_are_no_hindrance() -> None:
    """Between hosts a megabyte takes over an hour: no plan moves it, and the proof stands."""
    g = Graph()
    x = g.input("x", (512, 512))
    g.output(ops.relu(ops.matmul(x, g.input("w", (512, 512)), name="product").T, name="turned"), "y")
    network = Link(1e-6, 200.0)
    p = plan(g, Mesh((2, 2), link={"x": network, "y": Link(1e-6, 1e11)}))
    assert p.seconds == p.bound < 1e-2
    assert 512 * 512 * 4 / 2 / network.nbytes_per_second > MAX_STAGE_SECONDS
    told = p.explain("turned")
    assert "1,000 s or more" in told and "1000000000" not in told
    with pytest.raises(ValueError, match=r"plan: 'product' \(.*\) takes 1000 s or more .*; give smaller extents"):
        plan(g, Mesh(2, device=Device(flop_per_second=1e3, memory_nbytes_per_second=1e3)))


def test_a_question_about_few_of_many_sets_takes_little_memory() -> None:
    n = 10**6
    table = RegionTable((n,))
    many = 2 + int(tuning.MAX_CODES**0.5)
    numbers = np.array(
        [table.number(DisjointRegions((n,), [Region.from_slices((n,), (slice(k, n, 2),))])) for k in range(many)]
    )
    table.sizes(numbers[:1], numbers[1:2])
    tracemalloc.start()
    found = table.sizes(numbers[:3], numbers[-3:])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    wanted = [len(range(many - 3 + k, n, 2)) if (many - 3) % 2 == 0 else 0 for k in range(3)]
    assert found.tolist() == wanted
    assert peak < 4 << 20
