"""Modeled time: what a machine takes for cells, messages, runs, copies, arithmetic and memory traffic."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tapestry_plan.ir import Attrs, InnerWork, Op, Signature
from tapestry_plan.rewrite import open_block
from tapestry_plan.search import tuning
from tapestry_plan.search.sums.elimination import IntArray
from tapestry_plan.steps import MAX_STAGE_SECONDS, Device, Mesh
from tapestry_sets.regions import Box

TICKS_PER_SECOND = 10**12
"""Modeled time is counted in whole picoseconds, so that sums and comparisons are exact."""


def transfer_ticks(
    busiest: IntArray, rounds: IntArray, runs: IntArray, itemsize: int | IntArray, mesh: Mesh
) -> IntArray:
    """Modeled time of transfer stages, in picoseconds: the slowest of the ports, which work at the same time.

    A port takes its latency for each round of messages, the bytes of the device that sends or receives the most through
    it, and the runs of the one whose messages have the most of them. Messages of which no device sends, nor receives,
    more than k are sent in k rounds: in each round every device sends at most one and receives at most one, as the
    edges of a bipartite graph are colored (Kőnig 1916).

    Parameters
    ----------
    busiest, rounds, runs : arrays of int64, (ports, …)
        As in `Transfers`.
    itemsize : int or array that broadcasts to the stages
        Bytes of a cell.
    mesh : Mesh
    """
    seconds = np.zeros(busiest.shape[1:])
    for link, most, messages, pieces in zip(mesh.ports, busiest, rounds, runs, strict=True):
        taken = messages * link.latency_seconds + most.astype(np.float64) * itemsize / link.nbytes_per_second
        seconds = np.maximum(seconds, taken + pieces * link.run_seconds if link.run_seconds else taken)
    return to_ticks(seconds)


def merge_ticks(fresh: IntArray, parts: IntArray, itemsize: int | IntArray, mesh: Mesh) -> IntArray:
    """Modeled time to merge partial results, of the slowest device: every part is read once, at its memory's bandwidth.

    It begins as an operator does that reads the parts and writes the result.

    Parameters
    ----------
    fresh : array of int64, (kinds of devices, …)
        The most cells that a device of each kind merges.
    parts, itemsize : arrays that broadcast to the stages
    mesh : Mesh
    """
    slowest = np.zeros(fresh.shape[1:])
    for (device, _), cells in zip(mesh.kinds, fresh, strict=True):
        nbytes = parts * (cells.astype(np.float64) * itemsize)
        start = device.launch_seconds + (parts + 1) * device.operand_seconds
        seconds = start + nbytes / device.memory_nbytes_per_second
        slowest = np.maximum(slowest, np.where((parts > 1) & (cells > 0), seconds, 0.0))
    return to_ticks(slowest)


def assembly_ticks(assembled: IntArray, mesh: Mesh) -> IntArray:
    """Modeled time to copy own cells beside others, at the memory's bandwidth of the slowest device.

    Parameters
    ----------
    assembled : array of int64, (kinds of devices, …)
        The most bytes that a device of each kind copies.
    mesh : Mesh
    """
    rates = [device.memory_nbytes_per_second for device, _ in mesh.kinds]
    seconds = [nbytes / rate for nbytes, rate in zip(assembled, rates, strict=True)]
    return to_ticks(reduce(np.maximum, seconds))


def compute_seconds(
    flop: NDArray[np.float64],
    nbytes: IntArray,
    mesh: Mesh,
    launches: int | IntArray = 1,
    *,
    operands: int = 0,
    product: float = 1.0,
    copied: int | IntArray = 0,
    packed: int | IntArray = 0,
    inside: float | NDArray[np.float64] = 0.0,
) -> NDArray[np.float64]:
    """Modeled time of shards: their launches, and their arithmetic or their memory traffic, whichever takes longer.

    Parameters
    ----------
    flop, nbytes : arrays (…, devices)
    mesh : Mesh
    launches : int or array that broadcasts to them
    operands : int
        How many a shard reads and writes.
    product : float
        How much of the arithmetic is that of products, see `find_product_share`.
    copied : int or array that broadcasts to them
        Bytes that a shard must write anew before it can read them, see `count_copied`.
    packed : int or array that broadcasts to them
        Bytes of operands that contractions pack, see `count_packed`.
    inside : float or array that broadcasts to them
        Seconds of what shards run inside, see `repeat_seconds`, which their arithmetic is that of.
    """
    products = np.array([d.flop_per_second for d in mesh.devices])
    cells = np.array([d.cell_rate for d in mesh.devices])
    if product in (0.0, 1.0) or (products == cells).all():
        busy = flop / (products if product else cells)
    else:
        busy = flop * (product / products + (1 - product) / cells)
    work = np.where(np.asarray(inside) > 0, inside, busy)
    memory = np.array([d.memory_nbytes_per_second for d in mesh.devices])
    start = np.array([d.launch_seconds + operands * d.operand_seconds for d in mesh.devices])
    seconds: NDArray[np.float64] = launches * start + np.maximum(work, nbytes / memory) + copied / memory
    if mesh.prices_packing:
        seconds += packed / np.array([d.packing_rate for d in mesh.devices])
    return seconds


def find_product_share(op: Op, attrs: Attrs, signature: Signature, flop: float, cells: int) -> float:
    """How much of an operator's arithmetic is that of products: all, none, or in a block what its operators say.

    Parameters
    ----------
    op : Op
    attrs : mapping
    signature, flop, cells
        As of `is_product`.
    """
    block = open_block(op, attrs)
    if block is None:
        return float(is_product(signature, flop, cells))
    found = []
    for one, mine, given in (
        (block.first, block.first_signature, block.first_attrs),
        (block.second, block.second_signature, block.second_attrs),
    ):
        sides = [
            *(mine.input_box(k, mine.index) for k in range(len(mine.inputs))),
            *(mine.output_box(k, mine.index) for k in range(len(mine.outputs))),
        ]
        its_flop = one.flop_per_point(mine, given) * mine.index.size
        its_cells = sum(box.size for box in sides if box is not None)
        found.append((its_flop, find_product_share(one, given, mine, its_flop, its_cells)))
    total = sum(its_flop for its_flop, _ in found)
    return sum(its_flop * share for its_flop, share in found) / total if total else 0.0


def is_product(signature: Signature, flop: float, cells: int) -> bool:
    """Whether an operator does arithmetic on what it has read before, as products and convolutions do.

    These sum over an axis along which at least two operands are read, or do very much with each cell, such as an
    attention, whose keys every query reads. What others do to a cell takes as long as going through it.

    Parameters
    ----------
    signature : Signature
    flop : float
        Of the whole index space.
    cells : int
        Of all operands together.
    """
    return signature.is_contraction or _does_much(flop, cells)


def _does_much(flop: float, cells: float) -> bool:
    """Whether so many operations are very many for each cell that is read or written."""
    return flop > tuning.PRODUCT_FLOP_A_CELL * cells


def repeat_seconds(inner: Sequence[InnerWork], shares: Sequence[float], mesh: Mesh) -> NDArray[np.float64]:
    """Modeled time, by device, of what an operator runs inside of a shard that has these shares of the index axes.

    Parameters
    ----------
    inner : sequence of InnerWork
    shares : sequence of float
    mesh : Mesh
    """
    each = {device: _sum_seconds(inner, shares, device, mesh.prices_packing) for device, _ in mesh.kinds}
    return np.array([each[device] for device in mesh.devices])


def _sum_seconds(inner: Sequence[InnerWork], shares: Sequence[float], device: Device, prices_packing: bool) -> float:
    seconds = 0.0
    for one in inner:
        parts = [prod(shares[axis] for axis in axes) for *_, axes in one.operands]
        nbytes = sum(cells * itemsize * part for (cells, itemsize, *_), part in zip(one.operands, parts, strict=True))
        is_made_of_products = one.is_contraction or _does_much(one.flop, sum(cells for cells, *_ in one.operands))
        rate = device.flop_per_second if is_made_of_products else device.cell_rate
        taken = device.launch_seconds + len(one.operands) * device.operand_seconds
        memory = nbytes / device.memory_nbytes_per_second
        seconds += one.times * (taken + max(one.flop * prod(shares[axis] for axis in one.axes) / rate, memory))
        if prices_packing:
            packed = (cells * size * part for (_, size, cells, _), part in zip(one.operands, parts, strict=True))
            seconds += one.times * sum(packed) / device.packing_rate
    return seconds


def count_packed(op: Op, attrs: Attrs, signature: Signature, itemsizes: Sequence[int], index: Box) -> int:
    """Bytes of operands that the contractions of an index block pack.

    Each operand is a matrix of the axes that it is read along. A product's blocks are that as they are; what a
    convolution reads is unfolded: a cell counts once for each place of the kernel at which it is read.

    Parameters
    ----------
    op : Op
    attrs : mapping
    signature : Signature
    itemsizes : sequence of int
        Of the operands that it reads.
    index : Box

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> g = Graph()
    >>> _ = g.output(g.op("matmul", g.input("x", (8, 6)), g.input("w", (6, 4)), name="product"))
    >>> signature = g.signature("product")
    >>> count_packed(g.ops["matmul"], {}, signature, (4, 4), Box((0, 0, 0), (2, 4, 6)))  # two rows, and all of w
    144
    """
    block = open_block(op, attrs)
    if block is not None:
        count = len(block.first_signature.inputs)
        mine, theirs = block.list_indices(index, signature)
        sizes = block.operands_of_second(itemsizes[count:], block.itemsize)
        found = count_packed(block.second, block.second_attrs, block.second_signature, sizes, theirs)
        if mine is not None:
            found += count_packed(block.first, block.first_attrs, block.first_signature, itemsizes[:count], mine)
        return found
    if not signature.is_contraction:
        return 0
    total = 0
    for operand, itemsize in zip(signature.inputs, itemsizes, strict=True):
        points = prod(index.shape[axis] for axis in operand.index_axes)
        total += points * sum(prod(one.shape) for one in operand.projections) * itemsize
    return total


def to_ticks(seconds: NDArray[np.float64]) -> IntArray:
    """Seconds as whole picoseconds; what takes longer than is counted exactly counts as long as that.

    A choice that has none of these is priced exactly, and all others at most: what is proven of it holds. `write_plan`
    refuses one that has.
    """
    return cast(IntArray, np.rint(np.minimum(seconds, MAX_STAGE_SECONDS) * TICKS_PER_SECOND).astype(np.int64))
