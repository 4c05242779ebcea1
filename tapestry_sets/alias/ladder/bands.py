"""Cells between two diagonals of a product of indices: triangles and causal masks, counted in closed form.

    tril(k = 1) of 4 x 6, every second column       rows {0, 1, 2, 3}, columns {0, 2, 4}
        x . . .                                     band: -3 <= column - row <= 1
        x . . .
        x x . .                                     counted row by row by one sum of floors, at any size
        x x x .

What two such sets share is such a set: of indices on each axis what both have, and the narrower band.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from msgspec import Struct

from tapestry_sets.alias import tuning
from tapestry_sets.integers import sum_ramp
from tapestry_sets.limits import OPEN, FrozenDict, Open, write_product
from tapestry_sets.regions import AffineMap, AxisSet, AxisSets, axis_sets
from tapestry_sets.views import Piece

Direction = tuple[int, int, int, int]
"""(axis, axis, c, d): of the sum c·x + d·y of two coordinates."""


class Banded(Struct, frozen=True):
    """The cells of a product of indices for which sums of two coordinates are within bounds.

    Parameters
    ----------
    sets : tuple of AxisSet
        One for each axis of the allocation, each of progressions.
    bands : dict of Direction to (low, high)
        Bounds of the sums, both included; of each direction one, by coefficients without a common factor.
    """

    sets: AxisSets
    bands: FrozenDict[Direction, tuple[int, int]]

    def meet(self, other: Banded) -> Banded:
        """Return what both hold."""
        bands = dict(self.bands)
        for way, (low, high) in other.bands.items():
            a, b = bands.get(way, (low, high))
            bands[way] = max(a, low), min(b, high)
        sets = tuple([axis_sets.meet(s, t) for s, t in zip(self.sets, other.sets, strict=True)])
        return Banded(sets, FrozenDict(bands))

    @property
    def is_simple(self) -> bool:
        """Whether no coordinate is in two bands, and none is of many progressions."""
        used = [axis for a, b, _, _ in self.bands for axis in (a, b)]
        return len(set(used)) == len(used) and max(map(len, self.sets), default=0) <= tuning.MAX_LINES

    def count(self) -> int | Open:
        """Return how many cells there are; `OPEN` where bands of several directions cross."""
        if not self.is_simple:
            return OPEN
        used = {axis for a, b, _, _ in self.bands for axis in (a, b)}
        total = prod([axis_sets.size_of(s) for axis, s in enumerate(self.sets) if axis not in used])
        for (a, b, c, d), bounds in self.bands.items():
            pairs = [(p, q) for p in _lines(self.sets[a], c) for q in _lines(self.sets[b], d)]
            total *= sum([_count_between(p, q, *bounds) for p, q in pairs])
        return total

    def write(self) -> str | None:
        """Return what `count` multiplies and adds up, as Python writes it; None where it is not one closed formula."""
        used = {axis for a, b, _, _ in self.bands for axis in (a, b)}
        factors = [axis_sets.size_of(s) for axis, s in enumerate(self.sets) if axis not in used]
        written = [str(n) for n in factors]
        for (a, b, c, d), (low, high) in self.bands.items():
            pairs = [(p, q) for p in _lines(self.sets[a], c) for q in _lines(self.sets[b], d)]
            if len(pairs) != 1:
                return None
            ((p, q),) = pairs
            base = p[0] + q[0]
            below, beyond = _write_below(p, q, high - base), _write_below(p, q, low - 1 - base)
            if below is None or beyond is None:
                return None
            written.append(f"{below} - ({beyond})" if beyond != "0" else below)
        return write_product(written)

    def find(self) -> tuple[int, ...] | Open | None:
        """Return one of the cells, or None."""
        if not self.is_simple:
            return OPEN
        if any(map(axis_sets.is_nothing, self.sets)):
            return None
        cell = [axis_sets.least(s) for s in self.sets]
        for (a, b, c, d), bounds in self.bands.items():
            lines = ((p, q) for p in _lines(self.sets[a], c) for q in _lines(self.sets[b], d))
            found = next((pair for p, q in lines if (pair := _find_between(p, q, *bounds)) is not None), None)
            if found is None:
                return None
            cell[a], cell[b] = found[0] // c, found[1] // d
        return tuple(cell)


Line = tuple[int, int, int]
"""(first, count, step): first, first + step, …, of a step that is not below 0."""


def _lines(s: AxisSet, c: int) -> list[Line]:
    """The multiples of a set's indices by a coefficient, as lines."""
    assert not axis_sets.is_column(s), "bands are of progressions"
    moved = axis_sets.change(s, 0, c)
    assert not axis_sets.is_column(moved), "progressions stay such"
    return [(first, (last - first) // step + 1, step) for first, last, step in moved]


def _count_between(p: Line, q: Line, low: int, high: int) -> int:
    """How many pairs of elements have a sum in [low, high]."""
    base = p[0] + q[0]
    return max(0, _count_below(p, q, high - base) - _count_below(p, q, low - 1 - base))


def _count_below(p: Line, q: Line, t: int) -> int:
    """How many pairs (i, j) of places have step·i + step·j <= t."""
    # j goes to its end as long as i is small, then as far as t allows, then not at all
    #
    #     j  |#####\
    #        |######\__         `full` columns, and the slope: one sum of floors
    #        |#########\__
    full, slope, rest = _slope_below(p, q, t)
    return full * q[1] + (sum_floors(slope, q[2], p[2], rest) + slope if slope > 0 else 0)


def _slope_below(p: Line, q: Line, t: int) -> tuple[int, int, int]:
    """How many full columns there are, how many on the slope, and what is left of t at the last of these."""
    (_, n, a), (_, m, b) = p, q
    if t < 0:
        return 0, 0, 0
    last = min(n - 1, t // a)
    full = min(n, (t - b * (m - 1)) // a + 1) if t >= b * (m - 1) else 0
    return full, last - full + 1, t - a * last


def _write_below(p: Line, q: Line, t: int) -> str | None:
    """What `_count_below` adds up; None where the sum of floors is not one of a ramp of whole steps."""
    full, slope, rest = _slope_below(p, q, t)
    rise, left = divmod(p[2], q[2])
    if slope > 0 and left:
        return None
    ramp = [f"{rise}*{slope}*({slope} - 1)//2", f"{slope}*{rest // q[2] + 1}"] if slope > 0 else []
    parts = ([write_product((full, q[1]))] if full and q[1] else []) + ramp
    return " + ".join(parts) or "0"


def sum_floors(n: int, m: int, a: int, b: int) -> int:
    """Return the sum of floor((a·i + b) / m) over 0 <= i < n, for m > 0 and a, b >= 0.

    Examples
    --------
    >>> sum_floors(4, 3, 2, 1), sum((2 * i + 1) // 3 for i in range(4))
    (4, 4)
    """
    # the multiples of m from 0 to z are floor(z / m) + 1: of each, one more of a ramp to z + 1 than of one to z
    return sum_ramp(n, a, b + 1, m) - sum_ramp(n, a, b, m) - n if n > 0 else 0


def _find_between(p: Line, q: Line, low: int, high: int) -> tuple[int, int] | None:
    """An element of each line whose sum is in [low, high]: the first of the first line that has one, by bisection."""
    first, n, step = p
    if not _count_between(p, q, low, high):
        return None
    none, some = 0, n  # of the first `none` elements no one will do, of the first `some` one does
    while none + 1 < some:
        middle = (none + some) // 2
        if _count_between((first, middle, step), q, low, high):
            some = middle
        else:
            none = middle
    x = first + none * step
    j = max(0, -((q[0] + x - low) // q[2]))
    return x, q[0] + j * q[2]


# ------------------------------------------------------------------------------------------------- from a piece


def read_bands(piece: Piece, shape: Sequence[int]) -> Banded | None:
    """Return the cells that a piece reads of its source as bands in a product; None if they are none, or more."""
    place = AffineMap.identity(len(shape))
    axes: list[AxisSet] = [((0, n - 1, 1),) if n else () for n in shape]
    sums: list[tuple[tuple[tuple[int, int], ...], int, int]] = []  # terms of two of the view's axes, and their bounds
    for prefix in range(len(piece.map.steps) + 1):
        for guard in piece.guards:
            if guard.prefix == prefix and not _hold_to(axes, sums, place, guard.region.progressions):
                return None
        if prefix < len(piece.map.steps):
            step = piece.map.steps[prefix]
            if not isinstance(step, AffineMap):
                return None
            place = place.then(step)
    rows = place.terms()
    home = {j: (a, c, b) for a, (row, b) in enumerate(zip(rows, place.offset, strict=True)) for j, c in row}
    if any(len(row) > 1 for row in rows) or len(home) < sum(map(len, rows)):
        return None
    if any(j not in home for terms, _, _ in sums for j, _ in terms):
        return None
    if any(map(axis_sets.is_nothing, axes)):
        return Banded(((),) * len(rows), FrozenDict())
    sets = [
        axis_sets.change(axes[row[0][0]], b, row[0][1]) if row else ((b, b, 1),)
        for row, b in zip(rows, place.offset, strict=True)
    ]
    found = Banded(tuple(sets), FrozenDict())
    for terms, low, high in sums:
        band: FrozenDict[Direction, tuple[int, int]] = FrozenDict(
            [_in_cells([(*home[j], c) for j, c in terms], low, high)]
        )
        found = found.meet(Banded(tuple(sets), band))
    return found


def _hold_to(
    axes: list[AxisSet],
    sums: list[tuple[tuple[tuple[int, int], ...], int, int]],
    place: AffineMap,
    progressions: Sequence[tuple[int, int, int] | None],
) -> bool:
    """Narrow a view's indices to where coordinates are in progressions; False where that is not known so."""
    for terms, b, held in zip(place.terms(), place.offset, progressions, strict=True):
        if any(axis_sets.is_nothing(axes[j]) for j, _ in terms):
            continue
        if len(terms) == 1 and held is not None:
            ((j, c),) = terms
            axes[j] = axis_sets.change_back((held,), axes[j], b, c)
            continue
        ends = [(c * axis_sets.least(axes[j]), c * axis_sets.greatest(axes[j])) for j, c in terms]
        low, high = b + sum(map(min, ends)), b + sum(map(max, ends))
        if held is None:
            return False
        if held[2] == 1 and held[0] <= low and high <= held[1]:
            continue
        if not terms:
            axes[:] = [()] * len(axes) if not axis_sets.hold((held,), b) else axes
        elif held[2] > 1 or len(terms) != 2:
            return False
        else:
            sums.append((terms, held[0] - b, held[1] - b))
    return True


def _in_cells(terms: Sequence[tuple[int, int, int, int]], low: int, high: int) -> tuple[Direction, tuple[int, int]]:
    """A band of two indices, each of which is (axis, step, start) of the cells, as one of the cells' coordinates."""
    (a, c, s, x), (b, d, t, y) = sorted(terms)  # index = (coordinate - s) / c, of which the band has x times
    scale = abs(c * d)
    p, q = x * scale // c, y * scale // d
    low, high = low * scale + p * s + q * t, high * scale + p * s + q * t
    common = gcd(p, q)
    if p < 0:
        common, low, high = -common, high, low
    return (a, b, p // common, q // common), (-(-low // common), high // common)
