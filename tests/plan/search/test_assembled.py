"""Bytes of their own cells that devices copy to put blocks together: tables against boolean masks."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_plan import Device, Mesh
from tapestry_plan.search.prices import cost
from tapestry_plan.search.prices.cost import Held, OperandBlocks, RegionTable, count_transfers
from tapestry_plan.steps import unite
from tests.plan.search.test_cost import SHAPE, regions

Mask = np.ndarray


def copied_bytes(
    held: Mask, parts: int, earlier: list[Mask], operands: list[tuple[Mask, bool]], itemsizes: tuple[int, int]
) -> int:
    """Operand by operand: what a device copies of complete cells that it has, and of its own part of a sum."""
    have = [*([held] if parts == 1 else []), *earlier]
    total = 0
    for need, is_padded in operands:
        if need.any() and not any((need <= one).all() for one in have):
            there = np.logical_or.reduce([np.zeros(SHAPE, bool), *have])
            missing = need & ~there
            total += 0 if is_padded else int((need & there).sum()) * itemsizes[0]
            if parts > 1 and not (missing <= held).all():
                total += int((missing & held).sum()) * itemsizes[1]
        have.append(need)
    return total


@given(st.data(), st.booleans(), st.sampled_from([1, 1, 2, 3]), st.booleans())
@settings(max_examples=max(40, settings.default.max_examples))
def test_blocks_are_put_together(data: st.DataObject, differs: bool, consumers: int, along: bool) -> None:
    """Three devices, of which the last one's memory may differ; consumers have one operand or two, padded or not."""
    fast, slow = Device(memory_nbytes_per_second=2e10), Device(memory_nbytes_per_second=1e10)
    mesh = Mesh(3, device=[fast, fast, slow]) if differs else Mesh(3)
    drawn = [data.draw(regions()) for _ in range(3)]
    drawn.append((unite([drawn[0][0], drawn[1][0]], SHAPE), drawn[0][1] | drawn[1][1]))
    table = RegionTable(SHAPE)
    numbers = np.array([table.number(region) for region, _ in drawn])
    rows = st.lists(st.lists(st.sampled_from(range(4)), min_size=3, max_size=3), min_size=2, max_size=2)
    flags = st.lists(st.lists(st.sampled_from([0, 0, 1]), min_size=3, max_size=3), min_size=2, max_size=2)
    holders = np.array(data.draw(rows))
    parts = np.array(data.draw(st.lists(st.sampled_from([1, 1, 3]), min_size=2, max_size=2)))
    taken = [[np.array(data.draw(rows)) for _ in range(data.draw(st.integers(1, 2)))] for _ in range(consumers)]
    padded = [np.array(data.draw(flags)) for _ in taken[-1]] if data.draw(st.booleans()) else []
    whole = [
        np.array(
            [
                [table.number(unite([drawn[k][0] for k in each], SHAPE)) for each in zip(*row, strict=True)]
                for row in zip(*one, strict=True)
            ]
        )
        for one in taken
    ]
    blocks = [OperandBlocks(tuple(numbers[one] for one in each)) for each in taken]
    blocks[-1] = OperandBlocks(blocks[-1].numbers, tuple(padded))
    held = Held(numbers[holders], parts, np.array([[0, 1, 2]] * 2))
    itemsizes = 4, 6
    with mock.patch.object(cost.tuning, "MIN_ALONG_DEVICES", 1 if along else 32):
        found = count_transfers(table, held, whole, mesh, blocks, itemsizes).spread()
    masks = [mask for _, mask in drawn]
    for choice in np.ndindex(*found.cells.shape):
        most = [0] * len(mesh.kinds)
        for device in range(3):
            earlier = [
                masks[one[row][device]] for each, row in zip(taken[:-1], choice[1:-1], strict=True) for one in each
            ]
            own = [
                (masks[one[choice[-1]][device]], bool(padded and padded[k][choice[-1]][device]))
                for k, one in enumerate(taken[-1])
            ]
            nbytes = copied_bytes(masks[holders[choice[0]][device]], int(parts[choice[0]]), earlier, own, itemsizes)
            kind = int(differs and device == 2)
            most[kind] = max(most[kind], nbytes)
        assert found.assembled[(slice(None), *choice)].tolist() == most
