"""The oracles: sets listed point by point, views read cell by cell, never the code under test."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tapestry_sets import AffineMap, Allocation, DisjointRegions, DisjointSetts, Region, Stripe, View
from tapestry_sets.views import Lookup, Piece, Step

# ------------------------------------------------------------------------------------------------------ views


def after_step(step: Step, at: Sequence[int]) -> tuple[int, ...]:
    """Take one point through one step of a chain, as the step's definition reads."""
    if isinstance(step, Lookup):
        return tuple(step.table[x] if k == step.axis else x for k, x in enumerate(at))
    if isinstance(step, AffineMap):
        rows = zip(step.matrix, step.offset, strict=True)
        return tuple(b + sum(c * x for c, x in zip(row, at, strict=True)) for row, b in rows)
    number = sum(x * prod(step.from_shape[k + 1 :]) for k, x in enumerate(at))
    weights = [prod(step.to_shape[k + 1 :]) for k in range(len(step.to_shape))]
    inner = [number // w % n for w, n in zip(weights[1:], step.to_shape[1:], strict=True)]
    return (number // weights[0], *inner) if weights else ()


def in_region(region: Region, at: Sequence[int]) -> bool:
    """Say whether a point is in a region, axis by axis and level by level."""
    axes = zip(region.setts, region.start, region.shape, at, strict=True)
    return all(lo <= x < lo + n and in_nesting(sett.stripes, x) for sett, lo, n, x in axes)


def cell_read(piece: Piece, point: tuple[int, ...]) -> tuple[int, ...] | None:
    """Say which cell of its source a piece reads for a view cell, None where a guard does not hold."""
    at = point
    for prefix in range(len(piece.map.steps) + 1):
        if not all(in_region(g.region, at) for g in piece.guards if g.prefix == prefix):
            return None
        if prefix < len(piece.map.steps):
            at = after_step(piece.map.steps[prefix], at)
    return at


def readers(piece: Piece, points: Sequence[tuple[int, ...]]) -> list[bool]:
    """Say for each view cell whether all guards of a piece hold."""
    return [cell_read(piece, point) is not None for point in points]


def read_view(view: View, memory: Mapping[Allocation, np.ndarray]) -> np.ndarray:
    """Read a view cell by cell from arrays that stand for its allocations; every cell must have one reader."""
    points = list(product(*map(range, view.shape)))
    out = np.full(view.shape, np.nan)
    count = np.zeros(view.shape, int)
    for piece in view.pieces:
        for point in points:
            cell = cell_read(piece, point)
            if cell is not None:
                count[point] += 1
                source = None if piece.source < 0 else memory[view.allocations[piece.source]]
                out[point] = piece.fill if source is None else source[cell]
    assert (count == 1).all(), f"cells with {sorted(set(count.ravel().tolist()))} readers in {view.pieces}"
    return out


def memory_for(views: Iterable[View]) -> dict[Allocation, np.ndarray]:
    """One array for each allocation under the views, every cell with a value of its own, all >= 1."""
    allocations = dict.fromkeys(a for view in views for a in view.allocations)
    memory, base = {}, 1
    for a in allocations:
        memory[a] = np.arange(base, base + a.size).reshape(a.shape)
        base += a.size
    return memory


def as_layout(values: list[int]) -> list[tuple[int, int]] | None:
    """The fewest modes, the first fastest, that put numbers at these values; None if no layout does."""
    if len(values) == 1:
        return []
    by = values[1] - values[0]
    run = next((k for k, v in enumerate(values) if v - values[0] != k * by), len(values))
    if len(values) % run or any(values[k] - values[k - k % run] != k % run * by for k in range(len(values))):
        return None
    rest = as_layout(values[::run])
    return None if rest is None else [(run, by), *rest]


def is_layout(values: np.ndarray) -> bool:
    """Whether cells are at an offset plus the steps of a layout with a mode for each axis."""
    steps = values - values.ravel()[0]
    axes = [steps[tuple(slice(None) if b == a else 0 for b in range(steps.ndim))] for a in range(steps.ndim)]
    total = sum(np.ix_(*axes), np.zeros(steps.shape, int)) if axes else steps
    return bool((total == steps).all()) and all(as_layout(axis.tolist()) is not None for axis in axes)


# ------------------------------------------------------------------------------------- stripes, setts and regions


def in_nesting(stripes: Sequence[Stripe], z: int) -> bool:
    """Say whether z is in nested stripes, level by level as the definition reads."""
    for stripe in stripes:
        z = (z - stripe.phase) % (stripe.on + stripe.off)
        if z >= stripe.on:
            return False
    return True


def listed(stripes: Sequence[Stripe], window: tuple[int, int]) -> set[int]:
    """List the integers of nested stripes in a window, level by level as `in_nesting` does, all at once."""
    numbers = (*window, *(n for s in stripes for n in (s.on, s.off, s.phase)))
    if max(map(abs, numbers)) >> 60:
        return {z for z in range(*window) if in_nesting(stripes, z)}
    found = at = np.arange(*window)
    for stripe in stripes:
        at = (at - stripe.phase) % (stripe.on + stripe.off)
        found, at = found[at < stripe.on], at[at < stripe.on]
    return set(found.tolist())


def members(integers: DisjointSetts, window: tuple[int, int]) -> set[int]:
    """List a disjoint union in a window by its levels alone, and assert that it is disjoint there."""
    every = [z for sett in integers.members for z in listed(sett.stripes, window)]
    assert len(every) == len(set(every)), f"members of {integers!r} share an element"
    return set(every)


def listed_points(region: Region | DisjointRegions) -> set[tuple[int, ...]]:
    """List the points of a region or union by its axes' levels, and assert that its members share none."""
    every: list[tuple[int, ...]] = []
    for one in (region,) if isinstance(region, Region) else region.members:
        axes = [
            sorted(listed(sett.stripes, (lo, lo + n)))
            for sett, lo, n in zip(one.setts, one.start, one.shape, strict=True)
        ]
        every += product(*axes)
    assert len(every) == len(set(every)), f"members of {region!r} share a point"
    return set(every)


def marked(region: Region | DisjointRegions) -> np.ndarray:
    """Return a boolean array of the box, true where the region has a point."""
    cells = np.zeros(region.shape, bool)
    for point in listed_points(region):
        cells[tuple(np.subtract(point, region.start))] = True
    return cells


def philox_of_integers(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """The ten rounds of Philox4x32 as its paper has them."""
    x, (k, m) = list(counter), key
    for _ in range(10):
        one, two = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(two >> 32) ^ x[1] ^ k, two % 2**32, (one >> 32) ^ x[3] ^ m, one % 2**32]
        k, m = (k + 0x9E3779B9) % 2**32, (m + 0xBB67AE85) % 2**32
    return tuple(x)


def drawn(op: str, attrs: dict[str, Any], operands: Sequence[np.ndarray]) -> np.ndarray:
    """What a generator makes, number by number."""
    shape = operands[0].shape if operands else attrs["shape"]
    dtype = np.dtype(operands[0].dtype if operands else attrs.get("dtype", "bool"))
    cells = range(int(np.prod(shape)))
    made = [_drawn(op, attrs, dtype, cell) for cell in cells]
    if op == "dropout":
        kept = np.array(made).reshape(shape)
        return np.where(kept, operands[0] * dtype.type(1 / (1 - attrs["rate"])), dtype.type(0))
    return np.array(made, dtype).reshape(shape)


def _drawn(op: str, attrs: dict[str, Any], dtype: np.dtype, cell: int) -> Any:
    def words(each: int) -> list[int]:
        numbers = range(cell * each, (cell + 1) * each)
        key = attrs["seed"], attrs["stream"]
        return [philox_of_integers((k // 4 % 2**32, k // 4 >> 32, 0, 0), key)[k % 4] for k in numbers]

    def units(count: int) -> list[float]:
        if dtype.itemsize == 4:
            return [(w >> 8) / 2**24 for w in words(count)]
        ws = words(2 * count)
        return [((a >> 5) * 2**26 + (b >> 6)) / 2**53 for a, b in zip(ws[::2], ws[1::2], strict=True)]

    if op == "uniform":
        return attrs["low"] + (attrs["high"] - attrs["low"]) * units(1)[0]
    if op == "normal":
        u, v = units(2)
        return attrs["loc"] + attrs["scale"] * math.sqrt(-2 * math.log(1 - u)) * math.cos(2 * math.pi * v)
    if op == "integers":
        high, low = words(2)
        return attrs["low"] + ((high << 32) + low) * (attrs["high"] - attrs["low"]) // 2**64
    threshold = round(attrs["p" if op == "bernoulli" else "rate"] * 2**32)
    return words(1)[0] < threshold if op == "bernoulli" else words(1)[0] >= threshold
