"""What moves where layouts are chosen: against boolean masks, and alike however much was counted before."""

from __future__ import annotations

from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_plan import Device, Graph, Link, Mesh, ops
from tapestry_plan.ir import Stored
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.costs import Moved
from tapestry_plan.search.prices.costs.chosen import count_each
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.tensors import Known, TensorCost, Use, hold_parts
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.search.prices.moves.operands import BESIDE, BOX, FLAT, HOSTED, PADDED, PARTED
from tapestry_plan.search.prices.moves.regions import RegionTable
from tapestry_plan.steps import list_senders, unite
from tapestry_sets import DisjointRegions, Region, concatenate
from tests.plan.search.test_assembled import ROOM, copied_bytes
from tests.plan.search.test_cost import SHAPE, regions

FAST = Device(memory_nbytes_per_second=2e10)
SLOW = Device(memory_nbytes_per_second=1e10)
LINK = Link(1e-6, 1e9)


@given(st.lists(regions(), min_size=2, max_size=5), st.data())
def test_regions_are_subtracted_united_and_counted_by_number(drawn: list[Any], data: st.DataObject) -> None:
    """In turn, of what came out too, as the table grows."""
    table = RegionTable(SHAPE)
    masks = {table.number(region): mask for region, mask in drawn}
    for _ in range(6):
        one, other = (data.draw(st.sampled_from(sorted(masks))) for _ in range(2))
        masks[table.subtract(one, other)] = masks[one] & ~masks[other]
        masks[table.unite(one, other)] = masks[one] | masks[other]
        numbers = np.array(sorted(masks))
        shared = table.sizes(numbers[:, None], numbers)
        for (a, b), size in zip(product(sorted(masks), repeat=2), shared.ravel().tolist(), strict=True):
            assert size == (masks[a] & masks[b]).sum()
        assert all(table.count_cells(number) == mask.sum() for number, mask in masks.items())
        assert all((table.regions[number].size == mask.sum()) for number, mask in masks.items())


@given(st.data(), st.booleans(), st.integers(1, 3), st.sampled_from([1, tuning.MAX_EXCHANGES]))
@settings(max_examples=max(60, settings.default.max_examples))
def test_what_moves_as_chosen_is_what_masks_say(data: st.DataObject, differs: bool, consumers: int, room: int) -> None:
    """Three devices, of which two may be replicas; consumers of one operand or two, some only of partial results."""
    mesh = Mesh(3, device=[FAST, FAST, SLOW] if differs else FAST, link=LINK)
    known, table = Known(), RegionTable(SHAPE)
    drawn = [data.draw(regions()) for _ in range(3)]
    drawn += [(DisjointRegions.full(SHAPE), np.ones(SHAPE, bool)), (DisjointRegions(SHAPE), np.zeros(SHAPE, bool))]
    masks = [mask for _, mask in drawn]
    numbers = np.array([table.number(region) for region, _ in drawn])
    rows = st.lists(st.lists(st.sampled_from(range(5)), min_size=3, max_size=3), min_size=2, max_size=2).map(np.array)
    boxes = [PADDED | table.number_box(0.0, box) << BOX for box in ROOM]
    way = st.sampled_from([0, 0, PARTED, FLAT, HOSTED, HOSTED | BESIDE, *boxes])
    flags = st.lists(st.lists(way, min_size=3, max_size=3), min_size=2, max_size=2).map(np.array)
    holders, parts = data.draw(rows), np.array(data.draw(st.lists(st.sampled_from([1, 1, 3]), min_size=2, max_size=2)))
    which = np.where(parts[:, None] > 1, np.arange(3), 0)
    held = hold_parts(known, numbers[holders], parts, which, int(numbers[4]))
    taken = [[data.draw(rows) for _ in range(data.draw(st.integers(1, 2)))] for _ in range(consumers)]
    ways = [[data.draw(flags) for _ in each] for each in taken]
    uses = []
    for k, (each, mine) in enumerate(zip(taken, ways, strict=True)):
        read = [
            [unite([drawn[n][0] for n in at], SHAPE) for at in zip(*row, strict=True)]
            for row in zip(*each, strict=True)
        ]
        every = np.array([[table.number(region) for region in row] for row in read])
        apart = tuple(numbers[one] for one in each) if len(each) > 1 else ()
        uses.append(Use(k + 1, every, apart=apart, ways=tuple(mine)))
    only = data.draw(st.frozensets(st.sampled_from(range(consumers))))
    tensor = Stored("x", SHAPE, "float32", "input")
    cost = TensorCost(tensor, table, 0, held, 8, uses=uses, only_partial=only)
    choices = [*product(range(2), repeat=consumers + 1)]
    with mock.patch.object(tuning, "MAX_EXCHANGES", room):
        found = count_each(cost, choices, (), mesh, known)
    for choice, moved in zip(choices, found, strict=True):
        many, row = int(parts[choice[0]]), choice[0]
        has, size = [masks[n] for n in holders[row]], 8 if many > 1 else 4
        sends = list_senders(held.groups[row].tolist(), mesh)
        given_before, earlier = [np.zeros(SHAPE, bool) for _ in range(3)], list[list[Any]]([[], [], []])
        for k, value in enumerate(choice[1:]):
            cells, copied, fresh = np.zeros((3, 3), int), [0, 0, 0], given_before
            if many > 1 or k not in only:
                own = [
                    [(masks[one[value][d]], int(flag[value][d])) for one, flag in zip(taken[k], ways[k], strict=True)]
                    for d in range(3)
                ]
                needs = [np.logical_or.reduce([mask for mask, _ in each]) for each in own]
                copied = [copied_bytes(has[d], many, earlier[d], own[d], (4, 8)) for d in range(3)]
                fresh = [need & ~before for need, before in zip(needs, given_before, strict=True)]
                given_before = [need | before for need, before in zip(needs, given_before, strict=True)]
                earlier = [[*before, *each] for before, each in zip(earlier, own, strict=True)]
                for s, d in product(range(3), repeat=2):
                    cells[s, d] = (has[s] & fresh[d]).sum() if s != d and sends[s, d] else 0
            else:
                fresh = [np.zeros(SHAPE, bool)] * 3
            one = moved[k]
            assert one.nbytes.tolist() == (cells.sum(axis=0) * size).tolist()
            assert one.links == {(s, d): cells[s, d] * size for s, d in np.argwhere(cells).tolist()}
            assert one.copied.tolist() == copied and one.runs == 0
            ends = [*cells, *cells.T]
            busiest, rounds = max(int(each.sum()) for each in ends), max(int((each > 0).sum()) for each in ends)
            seconds = rounds * LINK.latency_seconds + busiest * size / LINK.nbytes_per_second
            rates = [device.memory_nbytes_per_second for device in mesh.devices]
            merged = [
                device.launch_seconds + many * mask.sum() * 8 / device.memory_nbytes_per_second
                for device, mask in zip(mesh.devices, fresh, strict=True)
                if many > 1 and mask.any()
            ]
            seconds += max(merged, default=0.0) + max(n / rate for n, rate in zip(copied, rates, strict=True))
            assert abs(one.ticks - seconds * 1e12) <= 1.5 + 1e-9 * one.ticks, "each of three terms is rounded"


def make_cost(
    holds: list[list[int]], parts: list[int], uses: list[Use], table: RegionTable, known: Known
) -> TensorCost:
    """A tensor that two devices make, each its own part of it where it is in parts."""
    which = np.where(np.array(parts)[:, None] > 1, np.arange(2), 0)
    empty = table.number(DisjointRegions(SHAPE))
    held = hold_parts(known, np.array(holds), np.array(parts), which, empty)
    return TensorCost(Stored("x", SHAPE, "float32", "input"), table, 0, held, 8, uses=uses)


def test_parts_of_a_sum_are_copied_where_the_same_complete_cells_are_made_in_a_block() -> None:
    """Devices have halves, complete, or in parts of which a reader has taken the same halves; then each gathers all."""
    known, table = Known(), RegionTable(SHAPE)
    upper, lower = (DisjointRegions(SHAPE, [Region.from_bounds(SHAPE, (at, 0), (at + 3, 5))]) for at in (0, 3))
    halves = [table.number(upper), table.number(lower)]
    whole = [table.number(DisjointRegions.full(SHAPE))] * 2
    flags = [PARTED, PARTED]
    first = Use(1, np.array([whole, halves]), ways=(np.array([flags, [0, 0]]),))
    second = Use(2, np.array([whole]), ways=(np.array([flags]),))
    cost = make_cost([halves, halves], [1, 2], [first, second], table, known)
    complete, parts = count_each(cost, [(0, 0, 0), (1, 1, 0)], (), Mesh(2), known)
    assert complete[0].copied.tolist() == [0, 0] and parts[1].copied.tolist() == [15 * 4, 15 * 4]


def test_runs_are_those_of_the_block_that_cells_come_to() -> None:
    """One device has all cells, the other needs them, as they are or with room for padding before each row."""
    known, table = Known(), RegionTable(SHAPE)
    whole, none = table.number(DisjointRegions.full(SHAPE)), table.number(DisjointRegions(SHAPE))
    needs, loose = np.array([[none, whole]] * 2), np.array([[0, 0], [0, 1 << 1]])
    cost = make_cost([[whole, none]], [1], [Use(1, needs, loose=(loose,))], table, known)
    mesh = Mesh(2, link=Link(1e-6, 1e9, run_seconds=1e-8))
    found = count_each(cost, [(0, 0), (0, 1)], (), mesh, known)
    rows, _ = SHAPE
    assert [moved[0].runs for moved in found] == [1 + 1, 1 + rows]


def branches() -> Graph:
    """What four convolutions and a pooling read, joined, reversed, and summed up over what is split."""
    g = Graph()
    x = ops.relu(g.input("x", (1, 4, 6, 6)))
    ways = [ops.conv(x, g.input(f"w{k}", (4, 4, k, k)), pads=k // 2) for k in (1, 3, 5)]
    pooled = ops.max_pool(x, 3, pads=1, strides=1)
    joined = concatenate([*ways, pooled], axis=1)
    g.output(ops.relu(joined[:, :, ::-1]), "reversed")
    g.output(ops.matmul(joined.reshape(16, 36), g.input("v", (36, 8))), "product")
    return g


def tell(moved: Moved) -> tuple[object, ...]:
    return moved.nbytes.tolist(), moved.links, moved.ticks, moved.copied.tolist(), moved.runs


@pytest.mark.parametrize(
    "mesh",
    [
        Mesh((2, 2)),
        Mesh(3, device=[FAST, FAST, SLOW]),
        Mesh((2, 2), link=[Link(1e-5, 1e9), Link(1e-6, 1e11)]),
        Mesh((4,), link=Link(1e-6, 1e10, run_seconds=1e-8)),
    ],
    ids=["alike", "unlike", "two links", "runs"],
)
def test_what_moves_does_not_depend_on_what_was_counted_before(mesh: Mesh) -> None:
    """Of many choices at once, on what others have left behind, as of each by itself, with nothing left behind."""
    problem, rng = Problem(branches(), Asked(mesh)), np.random.default_rng(0)
    choices = [tuple(rng.integers(0, problem.sizes).tolist()) for _ in range(12)]
    # Beside them some that differ in one variable alone, as those do that moves try.
    for at in rng.integers(0, len(problem.sizes), 12).tolist():
        choices.append((*choices[0][:at], problem.sizes[at] - 1, *choices[0][at + 1 :]))
    together = [problem.count_moved_in(cost, choices) for cost in problem.tensors]
    facts = problem.known.facts
    kept = {key: fact for key, fact in facts.items() if key[0] not in {"moved", "copied", "exchanged"}}
    assert len(kept) < len(facts)
    for cost, every in zip(problem.tensors, together, strict=True):
        for choice, found in zip(choices, every, strict=True):
            facts.clear()
            facts.update(kept)
            for table in problem.known.tables.values():
                table._less.clear()
                table._united.clear()
            assert [*map(tell, problem.count_moved_of(cost, choice))] == [*map(tell, found)]
