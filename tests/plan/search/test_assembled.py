"""Bytes of their own cells that devices copy to put blocks together: tables against boolean masks."""

from __future__ import annotations

from math import prod
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_plan import Device, Mesh
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.moves.operands import (
    ANYHOW,
    BESIDE,
    BOX,
    FLAT,
    FREE,
    HOSTED,
    PADDED,
    PARTED,
    OperandBlocks,
)
from tapestry_plan.search.prices.moves.regions import RegionTable
from tapestry_plan.search.prices.moves.transfers import Held, count_transfers
from tapestry_plan.steps import unite
from tapestry_sets import DisjointRegions, Region
from tapestry_sets.regions import Box
from tests.plan.search.test_along import mask_of
from tests.plan.search.test_cost import SHAPE, regions

Mask = np.ndarray
Taken = tuple[Mask, int]
"""What an operand reads, and how it has that."""
ROOM = [Box((-k, -k), tuple(n + 2 * k for n in SHAPE)) for k in (1, 2)]
"""Padded blocks."""


def extents(mask: Mask) -> tuple[int, ...]:
    return tuple(int(np.ptp(each)) + 1 for each in np.nonzero(mask))


def may_lie(made: Mask, block: Mask, way: int) -> bool:
    """Whether cells may be made in a block: rows apart, in one run, or anyhow; what is no box is not looked into."""
    shape, host = extents(made), extents(block)
    if int(made.sum()) < prod(shape) or way & ANYHOW:
        return bool(way & (ANYHOW | PARTED | FLAT))
    lies = np.ones(host, bool)
    lies[tuple(slice(n) for n in shape)] = False
    run = np.flatnonzero(~lies)
    is_run = prod(shape) == 1 or bool((np.diff(run) == 1).all())
    return bool(way & PARTED and shape[-1] > 1) or bool(way & FLAT and is_run)


def serves(one: Taken, block: Taken) -> bool:
    if not (block[0] <= one[0]).all():
        return False
    return not block[1] & PADDED or bool(one[1] & PADDED and one[1] >> BOX >= block[1] >> BOX)


def copied_bytes(
    held: Mask, parts: int, earlier: list[Taken], operands: list[Taken], itemsizes: tuple[int, int]
) -> int:
    """Operand by operand: what a device copies of complete cells that it has, and of its own part of a sum."""
    have = [*([(held, 0)] if parts == 1 else []), *earlier]
    total = 0
    for need, way in operands:
        first = next((one for one, its in have if serves((one, its), (need, way))), None)
        if not need.any() or way & FREE:
            pass
        elif first is not None:
            total += int(need.sum()) * itemsizes[0] * bool(way & HOSTED and (way & BESIDE or first.sum() > need.sum()))
        else:
            there = np.logical_or.reduce([np.zeros(SHAPE, bool), *(one for one, _ in have)])
            missing = need & ~there
            cells = int((need & there).sum())
            if parts == 1 and held.any() and (held <= need).all() and may_lie(held, need, way):
                holds = [(held <= one).all() and (its & PADDED or one.sum() > held.sum()) for one, its in have[1:]]
                cells -= 0 if any(holds) and not way & ANYHOW else int(held.sum())
            cells += int(need.sum()) if way & HOSTED and way & BESIDE else 0
            total += cells * itemsizes[0]
            if parts > 1 and not (missing <= held).all():
                total += int((missing & held).sum()) * itemsizes[1]
        have.append((need, way))
    return total


@given(st.data(), st.booleans(), st.sampled_from([1, 1, 2, 3]), st.booleans())
@settings(max_examples=max(60, settings.default.max_examples))
def test_blocks_are_put_together(data: st.DataObject, differs: bool, consumers: int, along: bool) -> None:
    """Three devices, of which the last one's memory may differ; consumers have one operand or two, in many ways."""
    fast, slow = Device(memory_nbytes_per_second=2e10), Device(memory_nbytes_per_second=1e10)
    mesh = Mesh(3, device=[fast, fast, slow]) if differs else Mesh(3)
    drawn = [data.draw(regions()) for _ in range(3)]
    drawn.append((unite([drawn[0][0], drawn[1][0]], SHAPE), drawn[0][1] | drawn[1][1]))
    whole_region = DisjointRegions.full(SHAPE)
    inner = Region.from_bounds(SHAPE, (1, 0), (3, 2))
    drawn += [
        (whole_region, np.ones(SHAPE, bool)),
        (DisjointRegions(SHAPE, [inner]), mask_of(DisjointRegions(SHAPE, [inner]))),
    ]
    table = RegionTable(SHAPE)
    numbers = np.array([table.number(region) for region, _ in drawn])
    boxes = [PADDED | table.number_box(0.0, box) << BOX for box in ROOM]
    each_way = [0, PARTED, FLAT, PARTED | FLAT, HOSTED, HOSTED | PARTED, ANYHOW, HOSTED | BESIDE, FREE]
    each_way += [*boxes, *(one | PARTED for one in boxes)]
    rows = st.lists(st.lists(st.sampled_from(range(6)), min_size=3, max_size=3), min_size=2, max_size=2)
    flags = st.lists(st.lists(st.sampled_from(each_way), min_size=3, max_size=3), min_size=2, max_size=2)
    holders = np.array(data.draw(rows))
    parts = np.array(data.draw(st.lists(st.sampled_from([1, 1, 3]), min_size=2, max_size=2)))
    taken = [[np.array(data.draw(rows)) for _ in range(data.draw(st.integers(1, 2)))] for _ in range(consumers)]
    ways = [[np.array(data.draw(flags)) for _ in one] if data.draw(st.booleans()) else [] for one in taken]
    whole = [
        np.array(
            [
                [table.number(unite([drawn[k][0] for k in each], SHAPE)) for each in zip(*row, strict=True)]
                for row in zip(*one, strict=True)
            ]
        )
        for one in taken
    ]
    blocks = [
        OperandBlocks(tuple(numbers[one] for one in each), tuple(mine)) for each, mine in zip(taken, ways, strict=True)
    ]
    held = Held(numbers[holders], parts, np.array([[0, 1, 2]] * 2))
    itemsizes = 4, 6
    with mock.patch.object(tuning, "MIN_ALONG_DEVICES", 1 if along else 32):
        found = count_transfers(table, held, whole, mesh, blocks, itemsizes).spread()
    masks = [mask for _, mask in drawn]
    for choice in np.ndindex(*found.cells.shape):
        most = [0] * len(mesh.kinds)
        for device in range(3):
            every = [
                [(masks[one[row][device]], int(mine[k][row][device]) if mine else 0) for k, one in enumerate(each)]
                for each, mine, row in zip(taken, ways, choice[1:], strict=True)
            ]
            earlier, own = [one for each in every[:-1] for one in each], every[-1]
            nbytes = copied_bytes(masks[holders[choice[0]][device]], int(parts[choice[0]]), earlier, own, itemsizes)
            kind = int(differs and device == 2)
            most[kind] = max(most[kind], nbytes)
        assert found.assembled[(slice(None), *choice)].tolist() == most, choice
