"""What the tests believe: sets listed point by point, views read cell by cell, never the code under test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np

from tapestry_sets import Allocation, Piece, Region, Regions, Setts, Stripe, View

# ------------------------------------------------------------------------------------------------------ views


def readers(piece: Piece, points: Sequence[tuple[int, ...]]) -> list[bool]:
    """Say for each view cell whether all guards of a piece hold, one step and one point at a time."""
    answers = []
    for point in points:
        at, holds = point, True
        for prefix in range(len(piece.map.steps) + 1):
            holds = holds and all(at in g.region for g in piece.guards if g.prefix == prefix)
            if holds and prefix < len(piece.map.steps):
                at = piece.map.steps[prefix].apply(at)
        answers.append(holds)
    return answers


def read_view(view: View, memory: Mapping[Allocation, np.ndarray]) -> np.ndarray:
    """Read a view cell by cell from arrays that stand for its allocations; every cell must have one reader."""
    points = list(product(*map(range, view.shape)))
    out = np.full(view.shape, np.nan)
    count = np.zeros(view.shape, int)
    for piece in view.pieces:
        for point, holds in zip(points, readers(piece, points), strict=True):
            if holds:
                count[point] += 1
                source = None if piece.source < 0 else memory[view.allocations[piece.source]]
                out[point] = piece.fill if source is None else source[piece.map.apply(point)]
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
    for one in region.members if isinstance(region, Regions) else (region,):
        axes = [
            sorted(listed(sett.stripes, (lo, lo + n)))
            for sett, lo, n in zip(one.setts, one.start, one.shape, strict=True)
        ]
        every += [] if one.is_empty else product(*axes)
    assert len(every) == len(set(every)), f"members of {region!r} share a point"
    return set(every)


def marked(region: Region | Regions) -> np.ndarray:
    """Return a boolean array of the box, true where the region has a point."""
    cells = np.zeros(region.shape, bool)
    for point in listed_points(region):
        cells[tuple(np.subtract(point, region.start))] = True
    return cells
