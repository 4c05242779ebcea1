"""Cell counts from tables against boolean masks."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_plan import Device, Graph, Link, Mesh, ops, plan
from tapestry_plan.search.prices.costs.seconds import (
    compute_seconds,
    count_packed,
    find_product_share,
    is_product,
    merge_ticks,
    transfer_ticks,
)
from tapestry_plan.search.prices.moves.operands import OperandBlocks
from tapestry_plan.search.prices.moves.regions import RegionTable
from tapestry_plan.search.prices.moves.transfers import Held, count_transfers
from tapestry_plan.steps import list_senders, number_ports, unite
from tapestry_sets import Box, DisjointRegions, Region
from tests.recosting import Recosting

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


MESHES = [
    Mesh((3,)),
    Mesh((2, 2)),
    Mesh((2, 2), link=[Link(1e-6, 1e9), Link(0.0, 1e10)]),
    Mesh((2, 1, 2), link={"x": Link(), "y": Link(), "z": Link(1e-5, 1e8)}),
    Mesh((3,), link=Link(run_seconds=1e-9)),
    Mesh((2, 2), link=[Link(1e-6, 1e9), Link(0.0, 1e10, 1e-9)]),
]


@given(st.data(), st.sampled_from(MESHES), st.integers(1, 3))
def test_exchanged_cells(data: st.DataObject, mesh: Mesh, consumers: int) -> None:
    """Cells from device to device by boolean masks, for two layouts of the holder and of each consumer."""
    table = RegionTable(SHAPE)
    devices = range(mesh.size)
    drawn = [data.draw(regions()) for _ in range(4)]
    which = st.lists(st.sampled_from(range(4)), min_size=mesh.size, max_size=mesh.size)
    places = np.array([data.draw(which) for _ in range(2 * (1 + consumers))]).reshape(1 + consumers, 2, mesh.size)
    numbers = np.array([table.number(region) for region, _ in drawn])
    kinds = np.array(data.draw(st.lists(which, min_size=2, max_size=2)))
    parts = np.array(data.draw(st.lists(st.sampled_from([1, 1, 3]), min_size=2, max_size=2)))
    held = Held(numbers[places[0]], parts, kinds)
    needs = [numbers[at] for at in places[1:]]
    loose = np.array(data.draw(st.lists(which, min_size=2, max_size=2)))
    blocks = [OperandBlocks((need,)) for need in needs]
    blocks[-1] = OperandBlocks((needs[-1],), (), (loose,) if data.draw(st.booleans()) else ())
    found = count_transfers(table, held, needs, mesh, blocks).spread()
    ports, axes = number_ports(mesh), [a for a, _ in enumerate(mesh.ports)]
    for choice in np.ndindex(*found.cells.shape):
        sends = list_senders(kinds[choice[0]].tolist(), mesh)
        sent, runs = np.zeros((2, len(axes), mesh.size, mesh.size), int)
        most, is_part = 0, bool(parts[choice[0]] > 1)
        for d in devices:
            mine = [drawn[places[1 + k, row, d]][1] for k, row in enumerate(choice[1:])]
            fresh = mine[-1] & ~np.logical_or.reduce([np.zeros(SHAPE, bool), *mine[:-1]])
            most = max(most, int(fresh.sum()))
            for s in devices:
                if s != d and sends[s, d]:
                    has = drawn[places[0, choice[0], s]][1]
                    sent[ports[s, d], s, d] = (fresh & has).sum()
                    bits = int(loose[choice[-1], d]) if blocks[-1].loose and not is_part else 0
                    into = fresh if is_part else mine[-1]
                    runs[ports[s, d], s, d] = sum(
                        runs_of_mask(fresh & has, around, each) for around, each in ((has, 0), (into, bits))
                    )
        assert found.cells[choice] == sent.sum() and found.fresh[0][choice] == most
        for port in axes:
            ends = sent[port].sum(axis=0), sent[port].sum(axis=1)
            assert found.busiest[port][choice] == max(map(np.max, ends))
            messages = (sent[port] > 0).sum(axis=0), (sent[port] > 0).sum(axis=1)
            assert found.rounds[port][choice] == max(map(np.max, messages))
            pieces = runs[port].sum(axis=0), runs[port].sum(axis=1)
            assert found.runs[port][choice] == (max(map(np.max, pieces)) if mesh.prices_runs else 0)


def runs_of_mask(cells: np.ndarray, around: np.ndarray, loose: int) -> int:
    """Runs of cells in the box around others, one cell longer along the axes that bits of a number say."""
    if not cells.any():
        return 0
    at = [np.flatnonzero(around.any(axis=1 - axis)) for axis in (0, 1)]
    block = cells[at[0][0] : at[0][-1] + 1, at[1][0] : at[1][-1] + 1]
    flat = np.pad(block, [(loose & 1, 0), (loose >> 1 & 1, 0)]).reshape(-1).astype(int)
    return int((np.diff(flat, prepend=0) == 1).sum())


def test_a_device_that_sends_to_all_others_takes_its_time() -> None:
    """Eight rows that lie on device 0, one for each device: 7 leave it, each with a message, and 1 arrives."""
    table = RegionTable((8, 4))
    rows = [table.number(DisjointRegions((8, 4), (Region.from_bounds((8, 4), (k, 0), (k + 1, 4)),))) for k in range(8)]
    empty, whole = table.number(DisjointRegions((8, 4))), table.number(DisjointRegions.full((8, 4)))
    held = Held(np.array([[whole] + [empty] * 7]), np.array([1]), np.array([[0] + [-1] * 7]))
    found = count_transfers(table, held, [np.array([rows])], Mesh((8,))).spread()
    assert [n.reshape(-1).tolist() for n in (found.cells, found.busiest, found.rounds, found.fresh)] == [
        [28],
        [28],
        [7],
        [4],
    ]


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
    sent = np.array([[0, 250]]), np.array([[0, 3]]), np.array([[0, 50]])
    assert transfer_ticks(*sent, 4, mesh).tolist() == [0, 4_000_000]  # 3 us of latency and 1,000 bytes at 1 GB/s
    slow = Mesh((2,), link=Link(1e-6, 1e9, 2e-9))
    assert transfer_ticks(*sent, 4, slow).tolist() == [0, 4_100_000]  # and 50 runs of 2 ns
    assert compute_seconds(np.array([1e12, 1.0]), np.array([10, 10**11]), mesh).tolist() == [1.0, 1.0]
    fresh, parts = np.array([[0, 250, 250]]), np.array([2, 1, 2])
    assert merge_ticks(fresh, parts, 4, mesh).tolist() == [0, 0, 20_000]  # 2,000 bytes at 100 GB/s


def test_the_slowest_port_takes_a_stage_s_time() -> None:
    mesh = Mesh((2, 2), link=(Link(1e-6, 1e9), Link(0.0, 1e10)))
    busiest, rounds = np.array([[250, 250], [1000, 10_000]]), np.array([[1, 1], [1, 1]])
    assert transfer_ticks(busiest, rounds, rounds, 4, mesh).tolist() == [2_000_000, 4_000_000]


def test_starting_takes_its_time() -> None:
    mesh = Mesh((2,), device=Device(1e12, 1e11, 3e-6))
    assert compute_seconds(np.array([1e9, 0.0]), np.array([10, 0]), mesh).tolist() == [3e-6 + 1e-3, 3e-6]
    assert merge_ticks(np.array([[0, 250]]), np.array([2, 2]), 4, mesh).tolist() == [0, 3_020_000]
    slow = Mesh((2,), device=Device(1e12, 1e11, 3e-6, operand_seconds=1e-6))  # two parts, or three, and the result
    assert merge_ticks(np.array([[250, 250]]), np.array([2, 3]), 4, slow).tolist() == [6_020_000, 7_030_000]


def test_the_slowest_device_takes_a_stage_s_time_at_its_own_rates() -> None:
    mesh = Mesh(3, device=[Device(1e12, 1e11), Device(1e9, 1e12, 1e-6), Device(1e12, 1e11)])
    assert compute_seconds(np.array([1e12, 1e9, 0.0]), np.array([0, 0, 10**11]), mesh).tolist() == [1, 1 + 1e-6, 1]
    assert [numbers for _, numbers in mesh.kinds] == [(0, 2), (1,)]
    # 250 cells of 4 bytes in two parts: 20 ns at 100 GB/s, 2 ns and a start of 1 us at 1 TB/s
    fresh = np.array([[250, 250, 0], [0, 250, 1]])
    assert merge_ticks(fresh, np.array([2, 2, 2]), 4, mesh).tolist() == [20_000, 1_002_000, 1_000_008]


def test_operators_that_are_no_products_have_a_rate_of_their_own() -> None:
    mesh = Mesh(
        2, device=[Device(1e12, 1e11, 1e-6, cell_flop_per_second=1e9, operand_seconds=1e-6), Device(1e12, 1e11)]
    )
    flop, nbytes = np.array([1e9, 1e9]), np.array([0, 0])
    assert compute_seconds(flop, nbytes, mesh, operands=3).tolist() == pytest.approx([1e-3 + 4e-6, 1e-3])
    assert compute_seconds(flop, nbytes, mesh, operands=3, product=False).tolist() == pytest.approx([1 + 4e-6, 1e-3])
    some = compute_seconds(flop, nbytes, mesh, product=0.75)
    assert some.tolist() == pytest.approx([0.75e-3 + 0.25 + 1e-6, 1e-3])
    assert compute_seconds(flop, nbytes, mesh, 2, operands=3).tolist() == pytest.approx([1e-3 + 8e-6, 1e-3])
    assert mesh.fastest == Device(1e12, 1e11, 0.0, cell_flop_per_second=1e12)


def test_contractions_pack_their_operands() -> None:
    """Each as a matrix: of a convolution the windows unfolded, of what sums over one operand alone nothing."""
    g = Graph()
    x, w, image = g.input("x", (64, 32)), g.input("w", (32, 48)), g.input("i", (1, 8, 32, 32))
    ops.matmul(x, w, name="product"), ops.sum(x, axis=0, name="sum"), ops.softmax(x, axis=-1, name="rows")
    ops.conv(image, g.input("k", (4, 8, 3, 3)), pads=1, name="conv"), ops.matmul(w.T, x.T, name="turned")

    def count(name: str, box: Box | None = None) -> int:
        signature, node = g.signature(name), g.nodes[name]
        return count_packed(g.ops[node.op], node.attrs, signature, [4] * len(node.inputs), box or signature.index)

    assert count("product") == count("turned") == 4 * (64 * 32 + 32 * 48)
    assert count("product", Box((16, 0, 0), (16, 48, 32))) == 4 * (16 * 32 + 32 * 48)  # some rows, and all weights
    assert count("product", Box((0, 12, 0), (64, 12, 32))) == 4 * (64 * 32 + 32 * 12)
    assert count("conv") == 4 * (32 * 32 * 9 * 8 + 4 * 8 * 9) and count("sum") == count("rows") == 0
    mesh = Mesh(2, device=[Device(1e12, 1e11, packed_nbytes_per_second=1e9), Device(1e12, 1e11)])
    found = compute_seconds(np.array([1e9, 1e9]), np.array([0, 10**9]), mesh, packed=np.array([10**6, 10**6]))
    assert found.tolist() == pytest.approx([2e-3, 1e-2]) and mesh.fastest.packed_nbytes_per_second is None


def test_where_weights_are_packed_anew_columns_are_cut() -> None:
    """Few rows and many weights: parts of the rows would each pack all weights. Names and orders change nothing."""
    kinds = {"rows first": lambda x, w: x @ w, "columns first": lambda x, w: (w.T @ x.T).T}
    device = Device(1e11, 1e11, packed_nbytes_per_second=1e10)
    for (name, make), packs in product(kinds.items(), (False, True)):
        g = Graph()
        g.output(make(g.input("x", (128, 768)), g.input("w", (768, 768))), "y")
        (node,) = g.nodes
        row, column = ("m", "n") if name == "rows first" else ("n", "m")
        rates = device if packs else replace(device, packed_nbytes_per_second=None)
        p = plan(g, Mesh((4,), device=rates, link=Link(1e-6, 1e10)))
        whole, parts = (128 + 768) * 768 * 4 / 1e10, (128 + 768 / 4) * 768 * 4 / 1e10
        arithmetic = 2 * 128 * 768 * 768 / 4 / 1e11
        assert p.gap == 0 and p.seconds <= arithmetic + (parts if packs else 0.0) + 1e-12, name
        if packs:
            assert whole > parts and row not in p.sharding[node] and column in p.sharding[node]


def test_products_are_told_by_their_signatures() -> None:
    g = Graph()
    x, w, image = g.input("x", (64, 32)), g.input("w", (32, 48)), g.input("i", (1, 8, 32, 32))
    q, row = g.input("q", (1, 2, 128, 64)), g.input("row", (1, 32))
    ops.relu(x @ w, name="relu"), ops.softmax(x, axis=-1), ops.sum(x, axis=0), ops.max_pool(image, 2)
    ops.conv(image, g.input("k", (4, 8, 3, 3))), ops.linear(x, w), ops.attention(q, q, q), row @ w
    ops.layer_normalization(x, g.input("s", (32,)), g.input("b", (32,)), axis=-1), x[:, None] * x[None]
    found = {}
    for name, node in g.nodes.items():
        signature = g.signature(name)
        flop = g.ops[node.op].flop_per_point(signature, node.attrs) * signature.index.size
        cells = sum(prod(g.source(each).shape) for each in (*node.inputs, *node.outputs))
        found[name] = is_product(signature, flop, cells)
    products = {"matmul", "conv", "linear", "attention", "matmul_1"}
    assert len(found) == 10 + 1 and {name for name, yes in found.items() if yes} == products


def test_of_a_block_each_operator_s_arithmetic_counts_as_its_own() -> None:
    """A product over 32 and a softmax of its rows: 64 flop a cell of the product, and those that softmax takes."""
    g = Graph()
    product = ops.matmul(g.input("x", (64, 32)), g.input("w", (32, 48)), name="product")
    g.output(ops.softmax(product, name="rows"), "y")
    softmax = (
        g.ops["softmax"].flop_per_point(g.signature("rows"), g.nodes["rows"].attrs) * g.signature("rows").index.size
    )
    fused = plan(g, Mesh((1,))).graph
    (node,) = fused.nodes.values()
    signature, op = fused.signature(node.name), fused.ops[node.op]
    flop = op.flop_per_point(signature, node.attrs) * signature.index.size
    assert flop == pytest.approx(64 * 48 * 64 + softmax)
    share = find_product_share(op, node.attrs, signature, flop, 64 * 32 + 32 * 48 + 64 * 48)
    assert share == pytest.approx(64 * 48 * 64 / flop) and 0.5 < share < 1


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["std", "var", "logsumexp", "argmax", "mean"])
def test_values_made_of_states_take_a_launch(name: str, axis: int, devices: int) -> None:
    """Also where a reduction is not cut: its shards write states, which another launch makes values of."""
    g = Graph()
    h = ops.exp(g.input("x", (6, 12)))
    g.output(g.op(name, h, axis=axis if name == "argmax" else (axis,), keepdims=True), "y")
    g.output(g.op("std", h, axis=(1 - axis,), keepdims=False) + 1, "z")
    mesh = Mesh((devices,), device=Device(1e9, 1e9, 1e-6), link=Link(1e-7, 1e9))
    for asked in ({}, {"expand": False, "fuse": False}):
        p = plan(g, mesh, **asked)  # type: ignore[arg-type]
        again = Recosting(p)
        assert (again.ticks, again.nbytes) == (round(p.seconds * 1e12), p.nbytes_moved)
