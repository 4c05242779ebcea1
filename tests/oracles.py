"""What the tests believe: sets listed point by point, views read cell by cell, never the code under test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod

import numpy as np

from tapestry_sets import AffineMap, Allocation, Piece, Region, Regions, Relinearize, Setts, Stripe, View

# ------------------------------------------------------------------------------------------------------ views


def after_step(step: AffineMap | Relinearize, at: Sequence[int]) -> tuple[int, ...]:
    """Take one point through one step of a chain, as the step's definition reads."""
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


# ------------------------------------------------------------------------------------- stripes, setts and regions


def in_nesting(stripes: Sequence[Stripe], z: int) -> bool:
    """Say whether z is in nested stripes, level by level as the definition reads."""
    for stripe in stripes:
        z = (z - stripe.phase) % (stripe.on + stripe.off)
        if z >= stripe.on:
            return False
    return True


def listed(stripes: Sequence[Stripe], window: tuple[int, int]) -> set[int]:
    """List the integers of nested stripes in a window."""
    return {z for z in range(*window) if in_nesting(stripes, z)}


def members(integers: Setts, window: tuple[int, int]) -> set[int]:
    """List a disjoint union in a window by its levels alone, and assert that it is disjoint there."""
    every = [z for sett in integers.members for z in listed(sett.stripes, window)]
    assert len(every) == len(set(every)), f"members of {integers!r} share an element"
    return set(every)


def listed_points(region: Region | Regions) -> set[tuple[int, ...]]:
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


def marked(region: Region | Regions) -> np.ndarray:
    """Return a boolean array of the box, true where the region has a point."""
    cells = np.zeros(region.shape, bool)
    for point in listed_points(region):
        cells[tuple(np.subtract(point, region.start))] = True
    return cells
