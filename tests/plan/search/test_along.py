"""Exchanges counted along the axes of a mesh are those counted from every device to every other one."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_plan import Link, Mesh
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.moves.along import Pairs, Spreads, Sums
from tapestry_plan.search.prices.moves.regions import RegionTable
from tapestry_plan.search.prices.moves.transfers import Held, count_transfers
from tapestry_plan.steps import Layout, list_candidates, list_senders, number_ports
from tapestry_sets import DisjointRegions, Region

SHAPES = st.sampled_from([(2, 2), (3, 2), (2, 4), (2, 2, 2), (3, 1, 2), (2, 3, 2)])


def number_cells(table: RegionTable, layout: Layout) -> list[int]:
    """The region of each device's cells: the block on the first axes, of a tensor without the last one."""
    shape, out = table.shape, []
    for box in layout.boxes:
        region = DisjointRegions(shape)
        if box is not None:
            stop = tuple(a + n for a, n in zip(box.start, box.shape, strict=True))
            region = DisjointRegions(shape, [Region.from_bounds(shape, box.start[:-1], stop[:-1])])
        out.append(table.number(region))
    return out


def mask_of(region: DisjointRegions) -> np.ndarray:
    mask = np.zeros(region.shape, bool)
    for member in region.members:
        (low, high) = zip(*member.spans, strict=True)
        mask[tuple(map(slice, low, high))] = True
    return mask


def held_by(table: RegionTable, layouts: list[Layout]) -> Held:
    """What holders have where the last index axis is summed over: its parts are partial results."""
    numbers, empty = [number_cells(table, one) for one in layouts], table.number(DisjointRegions(table.shape))
    groups = []
    for row, layout in zip(numbers, layouts, strict=True):
        first: dict[tuple[int, int], int] = {}
        groups.append(
            [
                -1 if cell is None or number == empty else first.setdefault((number, cell[-1]), device)
                for device, (number, cell) in enumerate(zip(row, layout.cells, strict=True))
            ]
        )
    return Held(np.array(numbers), np.array([one.parts[-1] for one in layouts]), np.array(groups))


def meshes(shape: tuple[int, ...]) -> list[Mesh]:
    """With one link, with one for each axis, and with one that the outer axes share."""
    each = [Link(k * 1e-6, 1e9) for k in range(len(shape))]
    shared = [*["c"] * (len(shape) - 1), each[-1]]
    names = tuple("abc"[3 - len(shape) :])
    return [Mesh(shape), Mesh(shape, link=each), Mesh(shape, names=names, link=shared)]


@given(SHAPES, st.tuples(st.integers(1, 7), st.integers(1, 9), st.integers(1, 4)), st.integers(0, 2), st.data())
def test_along_the_axes_as_by_pairs(
    shape: tuple[int, ...], extents: tuple[int, int, int], link: int, data: st.DataObject
) -> None:
    mesh = meshes(shape)[link]
    every = list_candidates(extents, mesh, "mesh")
    if data.draw(st.booleans(), label="permuted"):  # of which most are no products along the axes
        order = data.draw(st.permutations(range(mesh.size)))
        every = (*every, *(Layout(e.extents, e.parts, tuple(e.cells[d] for d in order)) for e in every[:4]))
    some = st.lists(st.sampled_from(every), min_size=1, max_size=5)
    holders, readers = data.draw(some, label="holders"), data.draw(some, label="readers")
    table = RegionTable(extents[:2])
    held = held_by(table, holders)
    need = np.array([number_cells(table, one) for one in readers])
    with mock.patch.object(tuning, "MIN_ALONG_DEVICES", 1):
        found = count_transfers(table, held, [need], mesh).spread()
    ports = number_ports(mesh)
    masks = [mask_of(region) for region in table.regions]
    for a in range(len(holders)):
        sends = list_senders(held.groups[a].tolist(), mesh)
        for b in range(len(readers)):
            cells = np.array([[(masks[h] & masks[n]).sum() for n in need[b]] for h in held.numbers[a]])
            cells = np.where(sends & (ports >= 0), cells, 0)
            assert found.cells[a, b] == cells.sum()
            for port in range(len(mesh.ports)):
                mine = np.where(ports == port, cells, 0)
                assert found.busiest[port, a, b] == max(mine.sum(axis=0).max(), mine.sum(axis=1).max())
                assert found.rounds[port, a, b] == max((mine > 0).sum(axis=0).max(), (mine > 0).sum(axis=1).max())
            assert found.fresh[0, a, b] == max(int(masks[n].sum()) for n in need[b])
            own = [(masks[h] & masks[n]).sum() for h, n in zip(held.numbers[a], need[b], strict=True)]
            lies = [not (masks[n] & ~masks[h]).any() for h, n in zip(held.numbers[a], need[b], strict=True)]
            assert found.assembled[0, a, b] == max(0 if is_whole else n for n, is_whole in zip(own, lies, strict=True))


@pytest.mark.parametrize("shape", [(2, 4), (2, 2, 2), (4, 2, 4)])
def test_every_layout_of_even_parts_is_a_product_along_the_axes(shape: tuple[int, ...]) -> None:
    mesh, table = Mesh(shape), RegionTable((2048, 2048))
    layouts = list(list_candidates((2048, 2048, 2048), mesh, "mesh"))
    held = held_by(table, layouts)
    for spreads in (Spreads(mesh.shape), Spreads(mesh.shape, finely=True)):
        for sets, groups in zip(table.list_sets(held.numbers), held.groups, strict=True):
            assert spreads.find(sets, groups) is not None
            assert spreads.find(sets) is not None


def test_a_pair_is_counted_once_whichever_others_are_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh, table, rows = Mesh((2, 4)), RegionTable((16, 8)), list[int]()
    layouts = list(list_candidates((16, 8, 1), mesh, "mesh"))
    count = Sums.count

    def tell(self: Sums, holder, level: int, received: bool, some: np.ndarray):  # type: ignore[no-untyped-def]
        rows.append(len(some))
        return count(self, holder, level, received, some)

    monkeypatch.setattr(tuning, "MIN_ALONG_DEVICES", 1)
    monkeypatch.setattr(Sums, "count", tell)
    need = np.array([number_cells(table, one) for one in layouts])
    every = count_transfers(table, held_by(table, layouts), [need], mesh).spread()
    assert sum(rows) == 3 * len(layouts) * np.unique(need, axis=0).shape[0]
    rows.clear()
    again = count_transfers(table, held_by(table, layouts[::-2]), [need[::-1]], mesh).spread()
    assert not rows
    for one, two in ((every.cells, again.cells), (every.assembled, again.assembled), (every.busiest, again.busiest)):
        assert (one[..., ::-2, ::-1] == two).all()


def test_numbers_of_pairs_stay_where_there_is_room_for_more() -> None:
    pairs = Pairs(2)
    rows, columns = pairs.place("ab", [1])
    pairs.found[:, rows, columns] = [[3, 4], [5, 6]]
    rows, columns = pairs.place("cba", [2, 1])
    assert pairs.found[:, rows[:, None], columns].tolist() == [
        [[-1, -1], [-1, 4], [-1, 3]],
        [[-1, -1], [-1, 6], [-1, 5]],
    ]
