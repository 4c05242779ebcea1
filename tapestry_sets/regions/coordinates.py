"""One coordinate of a projection: its image, the index values that meet a goal, and split axes as columns."""

from __future__ import annotations

from msgspec import Struct

from tapestry_sets.digits import (
    Grid,
    Progression,
    as_interval,
    clip_progression,
    combine,
    interval,
    progression,
    reach,
    split_progression,
)
from tapestry_sets.integers import axis_setts
from tapestry_sets.regions.affine import Box


def along_box(offset: int, terms: tuple[tuple[int, int], ...], width: int, box: Box) -> Progression:
    """One coordinate of the image of a box: offset + Σ coefficient·[start, stop) + [0, width)."""
    levels = [(width, 1)]
    for k, c in terms:
        n = box.shape[k]
        offset += c * box.start[k]
        levels.append((n, c))
    if len(levels) == 1:
        return interval(offset, offset + width)
    if len(levels) == 2 and 0 < c <= width:  # one term, and neighboring blocks touch
        return interval(offset, offset + (n - 1) * c + width)
    return progression(offset, levels)


class CoordinateCut(Struct, frozen=True):
    """How a split axis becomes two columns: which of quotient and remainder are used."""

    axis: int
    q: int
    quotient: bool
    remainder: bool
    is_extra: bool = False

    def columns(self, p: Progression) -> list[Grid]:
        """Return the (quotient, remainder) products of an axis; an unused column is 0."""
        zero: Progression = (0, ())
        if not (self.quotient or self.remainder):
            return [(zero, zero)]
        pairs = split_progression(p, self.q)
        kept = [(k if self.quotient else zero, r if self.remainder else zero) for k, r in pairs]
        return list(dict.fromkeys(kept))


def plan_columns(
    terms: tuple[tuple[tuple[int, int], ...], ...], rank: int, splits: tuple[tuple[int, int], ...]
) -> tuple[tuple[tuple[tuple[int, int], ...], ...], tuple[CoordinateCut, ...], bool]:
    """Return rows over columns that are independent of each other, how to cut, and whether none is shared."""
    used = {k for row in terms for k, _ in row}
    cuts = []
    cut_axes: dict[int, tuple[int, int]] = {}
    for s, (axis, q) in enumerate(splits):
        k = rank + 2 * s
        active = k in used or k + 1 in used
        raw = active and axis in used
        cuts.append(CoordinateCut(axis, q, k in used or raw, k + 1 in used or raw, active and axis in cut_axes))
        if active:
            cut_axes.setdefault(axis, (k, q))
    rows = []
    for row in terms:
        columns: dict[int, int] = {}
        for k, c in row:
            if k in cut_axes:  # i = q·(i // q) + i % q
                quotient, q = cut_axes[k]
                columns[quotient] = columns.get(quotient, 0) + c * q
                columns[quotient + 1] = columns.get(quotient + 1, 0) + c
            else:
                columns[k] = columns.get(k, 0) + c
        rows.append(tuple((k, c) for k, c in columns.items() if c))
    everywhere = [k for row in rows for k, _ in row]
    separable = len(everywhere) == len(set(everywhere)) and not any(cut.is_extra for cut in cuts)
    return tuple(rows), tuple(cuts), separable


def bounds_of(p: Progression) -> tuple[int, int]:
    """Return the first element and one past the last."""
    return p[0], p[0] + reach(p[1]) + 1


def meets(p: Progression, q: Progression) -> bool:
    """Whether two progressions have a common element; one of them is an interval."""
    start, stop = bounds_of(q)
    members = axis_setts(p, min(start, p[0]), max(stop, bounds_of(p)[1]) - min(start, p[0]))
    return any(sett.count(start, stop) for sett in members)


def solve(goal: Progression, c: int, b: int, width: int, domain: Progression) -> list[Progression]:
    """Return the x of an interval for which [c·x + b, c·x + b + width) meets `goal`."""
    low, high = bounds_of(domain)
    solid = as_interval(goal)
    if solid is not None:
        # the block meets [start, stop) iff start - width < c·x + b < stop
        start, stop = solid[0] - width + 1 - b, solid[1] - b
        start, stop = (start, stop) if c > 0 else (1 - stop, 1 - start)
        first, last = max(low, -(-start // abs(c))), min(high, -(-stop // abs(c)))
        return [interval(first, last)] if first < last else []
    touching = combine(1 - width, [(1, goal)], width)  # the starts of blocks that meet the goal
    multiples = combine(-b if c > 0 else b, [(1 if c > 0 else -1, touching)])  # of |c|, where x is in them
    found = [x for x, rest in split_progression(multiples, abs(c)) if rest[0] == 0]
    return [part for x in found for part in clip_progression(x, low, high)]
