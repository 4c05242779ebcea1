"""Rungs of one view: closed forms of its own cells, and their formulas."""

from __future__ import annotations

from math import prod

from tapestry_sets.alias import tuning
from tapestry_sets.alias.ladder.flat import flatten_pieces
from tapestry_sets.alias.ladder.known import KnownCells, join_digits, setts_of
from tapestry_sets.digits import reach, sum_bits
from tapestry_sets.integers import DisjointSetts, explicit_setts
from tapestry_sets.limits import OPEN, Open, write_product
from tapestry_sets.regions import axis_products
from tapestry_sets.solvers import equation
from tapestry_sets.views import Relinearize, reading


def is_empty_by_setts(x: KnownCells) -> bool | Open:
    """Look at the first of the numbers, or say no where a piece reads at every index, or some index is seen to read."""
    if x.products is not None:
        return x.products.is_empty
    found = OPEN if x.banded is None else x.banded.find()
    if found is not OPEN:
        return found is None
    if x.spans is not None:
        return not x.spans
    if x.setts is not None:
        return x.setts.first(0, x.extent) is None
    if x.sums is not None or (0 not in x.shape and any(not p.guards for p in x.pieces)):
        return False
    return OPEN if x.sample is None or not len(x.sample) else False


def count_bands(x: KnownCells) -> int | Open:
    """Count the cells between diagonals by a sum of floors."""
    return OPEN if x.banded is None else x.banded.count()


def count_setts(x: KnownCells) -> int | Open:
    """Count the setts."""
    return OPEN if x.setts is None else x.setts.count(0, x.extent)


def count_sums(x: KnownCells) -> int | Open:
    """Multiply the counts of sums that all differ."""
    if x.sums is None or equation.equal_sums(x.sums[1]) is not None:
        return OPEN
    return prod([count for count, _ in x.sums[1]])


def count_sums_as_setts(x: KnownCells) -> int | Open:
    """Count sums some of which are equal, as bits or as setts."""
    if x.sums is not None and reach(x.sums[1]) <= tuning.BIT_SPAN:
        return sum_bits(x.sums[1]).bit_count()
    return OPEN if x.sums is None else explicit_setts(x.sums, x.extent).count(0, x.extent)


def count_indices(x: KnownCells) -> int | Open:
    """Count the indices of a view that reads no cell twice."""
    return prod(x.shape) if x.is_injective else OPEN


def take_setts(x: KnownCells) -> DisjointSetts | Open:
    """Take the setts that are held."""
    return x.setts if isinstance(x.setts, DisjointSetts) else OPEN


def write_out_chain(x: KnownCells) -> DisjointSetts | Open:
    """Write filled sets out as setts."""
    return OPEN if x.setts is None else x.setts.setts(within=(0, x.extent))


def flatten_chain(x: KnownCells) -> DisjointSetts | Open:
    """Make setts of the pieces, where filled sets have too many."""
    is_open = x.setts is None and x.banded is None
    found = OPEN if is_open else flatten_pieces(x.pieces, x.shape, x.home, x.extent)
    return found if isinstance(found, DisjointSetts) else OPEN


def write_out_sums(x: KnownCells) -> DisjointSetts | Open:
    """Write sums out as setts."""
    return OPEN if x.sums is None else explicit_setts(x.sums, x.extent)


def is_run_by_ends(x: KnownCells) -> bool | Open:
    """Compare the first and the last number with how many there are."""
    if x.products is not None and x.ends is not None:
        return x.ends[1] - x.ends[0] + 1 == x.products.size
    if x.setts is not None:
        return x.ends is None or x.ends[1] - x.ends[0] + 1 == x.setts.count(0, x.extent)
    if x.sums is not None:  # the shortest step is above 1, or the next one too long for its digit
        return False
    corners = x.corners  # farther apart than all cells together are long?
    return False if corners and max(corners) - min(corners) >= prod(x.shape) else OPEN


def divide_by_strides(x: KnownCells, cell: tuple[int, ...]) -> tuple[int, ...] | Open | None:
    """Divide a strided view's number by its steps, the longest first; open where shorter ones reach as far as one."""
    if x.strides is None:
        return OPEN
    levels = [level for axis in x.strides[1] for level in axis]
    steps = sorted([(abs(by), by, n, k) for k, (n, by) in enumerate(levels) if n > 1 and by], reverse=True)
    left = sum([(n - 1) * step for step, _, n, _ in steps])
    rest = x.number_of(cell) - x.strides[0] + sum([(n - 1) * step for step, by, n, _ in steps if by < 0])
    digits = [0] * len(levels)
    for step, by, n, k in steps:
        left -= (n - 1) * step
        if step <= left:
            return OPEN
        digit, rest = divmod(rest, step)
        if not 0 <= digit < n:
            return None
        digits[k] = digit if by > 0 else n - 1 - digit  # steps below 0 are counted from the far end
    return None if rest else join_digits(digits, x.strides)


def invert_pieces(x: KnownCells, cell: tuple[int, ...]) -> tuple[int, ...] | Open | None:
    """Go back through each piece's map, where that leaves no choice."""
    for piece in x.pieces:
        guess = reading.invert(piece.map, cell)
        if guess is not None and reading.reads_at(piece, guess, cell, x.shape):
            return guess
    return None if all(map(reading.has_one_inverse, x.pieces)) else OPEN


def solve_boxes(x: KnownCells, cell: tuple[int, ...]) -> tuple[int, ...] | Open | None:
    """Solve an equation for each product of indices that the view steps through."""
    if x.boxes is OPEN:
        return OPEN
    number = x.number_of(cell)
    for (index, first), digits in x.boxes:
        found = equation.solve(number - first, [(count, by) for count, _, by in digits])
        if found is not None:
            index += sum([k * step for k, (_, step, _) in zip(found, digits, strict=True)])
            return Relinearize((prod(x.shape),), x.shape).apply((index,))
    return None


def count_products(x: KnownCells) -> int | Open:
    """Multiply the counts of the indices on each axis."""
    return OPEN if x.products is None else x.products.size


def write_out_products(x: KnownCells) -> DisjointSetts | Open:
    """Write progressions and columns out axis by axis."""
    return OPEN if x.products is None else setts_of(x.products.each, x.home)


def index_by_axes(x: KnownCells, cell: tuple[int, ...]) -> tuple[int, ...] | Open | None:
    """Go back kind by kind, axis by axis."""
    return OPEN if x.products is None else x.products.index_of(cell)


def write_products(x: KnownCells) -> str | None:
    """Write the product of the indices on each axis, or the sum by inclusion and exclusion of several."""
    return None if x.products is None else axis_products.write_union(x.products.each)


def write_bands(x: KnownCells) -> str | None:
    """Write the count between diagonals."""
    return None if x.banded is None else x.banded.write()


def write_counts(x: KnownCells) -> str | None:
    """Write the product of the counts of sums that all differ."""
    return None if x.sums is None else write_product([count for count, _ in x.sums[1]])


def write_indices(x: KnownCells) -> str | None:
    """Write the product of the view's extents, where it reads no cell twice."""
    return write_product(x.shape)
