"""The ladder of ways: for each question about cells the rungs that may answer it, in the order in which they are asked.

    rung                 by        way                         budget                              left open by
    find_on_axes         closed    meet axis by axis           64 progressions, or columns         no few products
    find_in_bands        closed    bisect between diagonals    64 progressions an axis             diagonals that cross
    leap_blocks          closed    leap from set to set        60 pairs of blocks, then equations  many remainders
    find_by_rows         closed    rows of a column            10,000 pieces                       columns of both
    find_on_diagonal     closed    a diagonal within regions   200 setts                           two diagonals, none
    try_samples          closed    try some cells of each      2,000 cells                         no hit
    find_before_turn     closed *  ask before a renumbering    12,000 products                     no turn, no setts
    leap_with_isl        closed *  leap again, now with isl    15,000 isl operations a pair        longer numbers
    try_around           closed *  try where sets around meet  48 elements                         no hit, but they meet
    solve_sums           closed *  equations of two sums       10,000 pairs of progressions        more of them
    find_by_isl          isl       intersect two maps          50,000 isl operations a piece       long chains, no islpy
    find_in_listed_sets  list      list elements of sets       2,097,152 elements                  more of them
    find_by_list         list      list the cells              2,000,000 cells                     more: `TooHard`

This one finds a common cell: `RUNGS[CellQuestion.NUMBER]`. A closed rung costs the same at any size of the arrays. One
with a star may ask isl about single equations, where remainders do not decide; a tally then counts the question under
isl. Such rungs stand among the closed ones: an equation is small, and no view's map goes to isl. Other
questions climb other ladders, which are made alike; `climb` runs them all. A rung may ask another question, or the same
one of other cells: then it climbs that ladder's closed rungs alone, and leaves open what these leave open.

To add a rung: write a function of the cells that returns an answer or `OPEN`, and put a `Rung` with it in `RUNGS` where
it is to be asked, with the refusals that its closed form may raise. Beside it only the picture
of its question, here and in the README, names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import reduce
from itertools import product
from math import prod
from typing import Any, cast

import numpy as np
from msgspec.structs import replace

from tapestry_sets.alias import tuning
from tapestry_sets.alias.ladder.bands import Banded
from tapestry_sets.alias.ladder.flat import flatten_pieces
from tapestry_sets.alias.ladder.known import KnownCells, join_digits, nests_of, setts_of
from tapestry_sets.alias.ladder.preimage import Turn
from tapestry_sets.digits import Progression, reach, sum_bits
from tapestry_sets.integers import (
    DisjointSetts,
    Int64Array,
    Nest,
    contains_each,
    ends_of,
    explicit_setts,
    members,
    pairs,
    ranks,
    together,
)
from tapestry_sets.limits import (
    OPEN,
    REFUSALS,
    Open,
    Rung,
    TooHard,
    TooManyPieces,
    climb,
    current,
    limits,
    write_product,
    write_sum,
)
from tapestry_sets.regions import AxisSets, Box, axis_products, axis_sets, unflatten
from tapestry_sets.solvers import equation, isl
from tapestry_sets.views import Lookup, Piece, Relinearize, images, reading


class CellQuestion(StrEnum):
    """A question on the cells of one view, or of two views of one allocation."""

    EMPTY = "reads nothing"
    SIZE = "how many cells"
    EXPLICIT = "the cells as setts"
    RUN = "one gapless run"
    INDEX = "an index that reads a cell"
    NUMBER = "a common cell"
    MEETS = "a common cell, yes or no"
    SUBSET = "all cells in another"
    COUNT = "how many common cells"
    BESIDE = "a cell that is not in another"


HARD, MANY = (TooHard,), (TooManyPieces,)
"""What the closed form of a rung may refuse with: branches, or pieces; `REFUSALS` are both."""

# ----------------------------------------------------------------------------------- of one view: closed forms


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


# ---------------------------------------------------------------------------------- of two views: closed forms


def _by_rows(a: KnownCells, b: KnownCells) -> Iterator[tuple[int, int, Nest, Nest, int]] | Open:
    """Rows of memory that one view lists in a column and the other's setts hold, and the nests of both inside a row.

    Yields where a row begins, how many there are like it, the column view's nest inside each of them, the other's,
    and how long the row is. Where products of the column view share cells, they come more than once.
    """
    one, two = (a, b) if a.products is not None and a.products.has_column else (b, a)
    if one.products is None or not one.products.has_column or not isinstance(two.setts, DisjointSetts):
        return OPEN
    if any(axis_sets.is_column(s) for sets in one.products.each for s in sets[1:]):
        return OPEN
    each = [_rows_of(sets, one.home, [m.nest for m in two.setts.members]) for sets in one.products.each]
    return (row for rows in each for row in rows)


def _rows_of(sets: AxisSets, home: Sequence[int], held: Sequence[Nest]) -> Iterator[tuple[int, int, Nest, Nest, int]]:
    """The same of one product and the other's nests."""
    (column, *rest), (many, *row) = sets, home
    if not axis_sets.is_column(column):
        yield from ((0, 1, s, t, prod(home)) for s, t in product(nests_of(sets, home), held))
        return
    inside, width = nests_of(rest, row), prod(row)
    for rows, inner in (pair for nest in held for pair in ranks.split(nest, width, many)):
        z = column[contains_each(rows, column)]
        if len(z):
            yield from ((int(z[0]) * width, len(z), s, inner, width) for s in inside)


def find_by_rows(a: KnownCells, b: KnownCells) -> int | Open | None:
    """Find a row that both read, and a cell inside it."""
    rows = _by_rows(a, b)
    if rows is OPEN:
        return OPEN
    found = ((at, pairs.first_in_both(s, t, 0, width)) for at, _, s, t, width in rows)
    return next((at + z for at, z in found if z is not None), None)


def count_by_rows(a: KnownCells, b: KnownCells) -> int | Open:
    """Count the rows that both read, times what both read inside each."""
    rows = _by_rows(a, b)
    one = a if a.products is not None and a.products.has_column else b
    if rows is OPEN or one.products is None or one.products.size < sum(map(axis_products.size_of, one.products.each)):
        return OPEN
    return sum([many * pairs.count_in_both(s, t, 0, width) for _, many, s, t, width in rows])


def _on_axes(a: KnownCells, b: KnownCells) -> tuple[Sequence[AxisSets], Sequence[AxisSets]] | Open:
    """The products of indices that each reads, where one of them is known by these."""
    if (a.products is None and b.products is None) or a.axes is None or b.axes is None:
        return OPEN
    return a.axes, b.axes


def find_on_axes(a: KnownCells, b: KnownCells) -> int | Open | None:
    """Find an index that both read on each axis."""
    both = _on_axes(a, b)
    if both is OPEN:
        return OPEN
    met = (found for one in both[0] for two in both[1] if (found := axis_products.meet(one, two)) is not None)
    first = next(met, None)
    return None if first is None else a.number_of(tuple(map(axis_sets.least, first)))


def count_on_axes(a: KnownCells, b: KnownCells) -> int | Open:
    """Multiply the counts of the indices that both read on each axis."""
    met = _meet_on_axes(a, b)
    return met if met is OPEN else axis_products.count_union(met)


def _meet_on_axes(a: KnownCells, b: KnownCells) -> list[AxisSets] | Open:
    """The products of indices that both read, which may share cells."""
    both = _on_axes(a, b)
    if both is OPEN:
        return OPEN
    return [met for one in both[0] for met in axis_products.meet_each(one, both[1])]


def is_subset_on_axes(a: KnownCells, b: KnownCells) -> bool | Open:
    """Look whether each product of the first lies in those of the second."""
    both = _on_axes(a, b)
    if both is OPEN:
        return OPEN
    return all(axis_products.lies_in(one, both[1]) for one in both[0])


def find_beside_on_axes(a: KnownCells, b: KnownCells) -> int | Open | None:
    """Find a point of one of the first's products that is in none of the second's."""
    both = _on_axes(a, b)
    if both is OPEN:
        return OPEN
    found = (axis_products.find_beside(one, both[1]) for one in both[0])
    return next((a.number_of(point) for point in found if point is not None), None)


def _meet_in_bands(a: KnownCells, b: KnownCells) -> Banded | Open:
    """The cells that both read, where one reads between diagonals, and the other does or reads a product of indices."""
    one, two = (None, None) if a.banded is None and b.banded is None else (a.bands, b.bands)
    return OPEN if one is None or two is None else one.meet(two)


def find_in_bands(a: KnownCells, b: KnownCells) -> int | Open | None:
    """Find indices that both read on each axis and between the diagonals of both, by bisection."""
    found = _meet_in_bands(a, b)
    cell = found if found is OPEN else found.find()
    return cell if cell is OPEN or cell is None else a.number_of(cell)


def count_in_bands(a: KnownCells, b: KnownCells) -> int | Open:
    """Count the cells between the diagonals of both by a sum of floors."""
    found = _meet_in_bands(a, b)
    return found if found is OPEN else found.count()


def is_subset_in_bands(a: KnownCells, b: KnownCells) -> bool | Open:
    """Compare the count of what both share with the first's own."""
    found = count_in_bands(a, b)
    size = OPEN if found is OPEN or a.bands is None else a.bands.count()
    return OPEN if found is OPEN or size is OPEN else found == size


def of_sets(
    name: str, words: str, question: Callable[..., Any], **how: bool
) -> Callable[[KnownCells, KnownCells], Any]:
    """Return the way that asks a question of both sets of numbers, where they are held as setts or as filled sets."""

    def ask(a: KnownCells, b: KnownCells) -> Any:
        return OPEN if a.setts is None or b.setts is None else question(a.setts, b.setts, 0, a.extent, **how)

    return _named(name, words, ask)


def _named(name: str, words: str, ask: Callable[..., Any]) -> Callable[..., Any]:
    """A way under the name by which a tally knows it, and the words in which people are told of it."""
    ask.__name__, ask.__doc__ = name, words
    return ask


leap_with_isl = of_sets("leap_with_isl", "Leap from set to set, now with isl.", together.some_common, lists=False)
leap_without_isl = of_sets("leap_without_isl", "Leap from set to set.", together.some_common, lists=False, isl=False)
hold_without_list = of_sets("hold_without_list", "Compare setts with setts.", together.lies_within, lists=False)


def leap_blocks(a: KnownCells, b: KnownCells) -> int | Open | None:
    """Leap from set to set, then solve equations, without isl."""
    if a.spans is not None and b.spans is not None:
        return members.some_common(a.spans, b.spans, False)
    return cast("int | Open | None", leap_without_isl(a, b))


def find_on_diagonal(a: KnownCells, b: KnownCells) -> int | Open | None:
    """Find the first index at which the diagonal of one reads within the other's regions."""
    within = _indices_within(a, b)
    if within is OPEN:
        return within
    for piece, axes in within:
        index = reading.first_within(axes)
        if index is not None:
            return a.number_of(piece.map.apply(index))
    return None


def count_on_diagonal(a: KnownCells, b: KnownCells) -> int | Open:
    """Count the indices at which the diagonal of one reads within the other's regions."""
    within = _indices_within(a, b)
    return within if within is OPEN else sum([reading.count_cells(piece, axes) for piece, axes in within])


def _indices_within(a: KnownCells, b: KnownCells) -> list[tuple[Piece, list[reading.ReadAxis]]] | Open:
    """The indices at which the diagonal of one reads within each region of the other, which is none."""
    one, two = (a, b) if a.diagonal is not None else (b, a)
    if one.diagonal is None or two.diagonal is not None:
        return OPEN
    piece, shape = one.diagonal
    with limits(max_pieces=min(tuning.MAX_SETTS, current().max_pieces)):
        setts = climb(RUNGS[CellQuestion.EXPLICIT], two, closed=True)
        if setts is OPEN:
            return setts
        return [(piece, reading.indices_within(piece, shape, region)) for region in unflatten(setts, two.home).members]


def try_samples(a: KnownCells, b: KnownCells) -> int | Open:
    """Look for some cells of each in the other, where one is only known by a set around it."""
    if a.shatters or b.shatters:
        for cells, others in ((a, b), (b, a)):
            sample = cells.sample
            keep = None if sample is None else others.hold_each(sample)
            if sample is not None and keep is not None and keep.any():
                return int(sample[keep][0])
    return OPEN


def try_around(a: KnownCells, b: KnownCells) -> int | Open | None:
    """Try elements that the sets around both share, here and there; None if these share none."""
    if not (a.shatters or b.shatters):
        return OPEN
    one, two = a.around, b.around
    z = together.some_common(one, two, 0, a.extent, lists=False)
    if z is None:
        return None
    last = min([ends[1] for s in (one, two) if (ends := ends_of(s, a.extent))])
    for k in range(tuning.TRIED):
        z = together.some_common(one, two, z + (last - z) * k // tuning.TRIED, last + 1, lists=False)
        if z is None:
            break
        if _holds(a, z) and _holds(b, z):
            return z
    return OPEN


def _holds(x: KnownCells, number: int) -> bool:
    """Whether a row-major number is that of a cell."""
    if x.products is not None:
        return any(axis_products.hold(sets, x.cell_of(number)) for sets in x.products.each)
    if x.setts is not None:
        return number in x.setts
    if x.sums is not None:
        return members.sums_meet_at(x.sums, (number, ())) is not None
    return climb(RUNGS[CellQuestion.INDEX], x, x.cell_of(number)) is not None


def _before(a: KnownCells, b: KnownCells) -> tuple[KnownCells, KnownCells, Turn] | Open:
    """The cells of both by their numbers before the last turn of the first, and the turn.

    The second's are all numbers that the turn takes to its cells. Open if the first are few setts, there is no turn,
    or the second's are not few.
    """
    if (isinstance(a.setts, DisjointSetts) and len(a.setts.members) <= tuning.FEW_HELD) or a.turned is None:
        return OPEN
    head, turn = a.turned
    if isinstance(b.setts, DisjointSetts):
        with limits(max_pieces=min(tuning.MAX_PRODUCTS, current().max_pieces)):
            pulled = DisjointSetts._of(turn.pull(b.split()))
        return head, replace(head, shape=(pulled.count(0, turn.extent),), pieces=(), held=pulled, sums=None), turn
    return (head, b.turned[0], turn) if b.turned is not None and b.turned[1].is_like(turn) else OPEN


def _before_either(a: KnownCells, b: KnownCells) -> tuple[KnownCells, KnownCells, Turn] | Open:
    """The same before the last turn of either."""
    before = _before(a, b)
    return _before(b, a) if before is OPEN else before


def find_before_turn(a: KnownCells, b: KnownCells) -> int | Open | None:
    """Find a common number before the last turn of one of the views."""
    before = _before_either(a, b)
    if before is OPEN:
        return before
    head, others, turn = before
    z: int | Open | None = climb(RUNGS[CellQuestion.NUMBER], head, others, closed=True)
    return turn.apply(z) if isinstance(z, int) else z


def count_before_turn(a: KnownCells, b: KnownCells) -> int | Open:
    """Count the common numbers before the last turn of one of the views, if it takes no two to one cell."""
    before = _before_either(a, b)
    if before is OPEN or not before[2].is_injective:
        return OPEN
    return cast("int | Open", climb(RUNGS[CellQuestion.COUNT], *before[:2], closed=True))


def is_subset_before_turn(a: KnownCells, b: KnownCells) -> bool | Open:
    """Ask before the last turn of the first; or of the second, if it takes some number to each cell of the first."""
    before = _before(a, b)
    if before is not OPEN and not before[2].is_loose:
        return cast("bool | Open", climb(RUNGS[CellQuestion.SUBSET], *before[:2], closed=True))
    before = _before(b, a)
    if before is OPEN or not before[2].is_injective:
        return OPEN
    head, others, _ = before
    reached: int | Open = climb(RUNGS[CellQuestion.SIZE], others, closed=True)
    size: int | Open = climb(RUNGS[CellQuestion.SIZE], a, closed=True)
    if reached is OPEN or size is OPEN:
        return OPEN
    if reached != size:
        return False
    return cast("bool | Open", climb(RUNGS[CellQuestion.SUBSET], others, head, closed=True))


def solve_sums(a: KnownCells, b: KnownCells) -> int | Open | None:
    """Solve an equation for each pair of progressions."""
    both = _pair_progressions(a, b)
    return both if both is OPEN else members.first_of_sums(both)


def _pair_progressions(a: KnownCells, b: KnownCells) -> Iterable[tuple[Progression, Progression]] | Open:
    """The pairs of progressions, where they are few and not both sets of numbers are held."""
    mine, theirs = (None, None) if a.setts is not None and b.setts is not None else (a.progressions, b.progressions)
    if mine is None or theirs is None or len(mine) * len(theirs) > tuning.MAX_PAIRS:
        return OPEN
    return product(mine, theirs)


def is_subset_of_setts(a: KnownCells, b: KnownCells) -> bool | Open:
    """Compare setts with setts, filled sets with filled sets."""
    if a.spans is not None and b.spans is not None:
        return members.is_subset(a.spans, b.spans)
    return cast("bool | Open", hold_without_list(a, b))


def is_plainly_subset(a: KnownCells, b: KnownCells) -> bool | Open:
    """Look at the same sums, the first and the last number, or a single one."""
    if a is b:
        return True
    if a.sums is not None and b.sums is not None and a.sums[0] == b.sums[0]:
        counts = {step: count for count, step in b.sums[1]}
        if all(count <= counts.get(step, 0) for count, step in a.sums[1]):
            return True
    if a.ends is None:
        return OPEN
    if b.ends is not None and not b.ends[0] <= a.ends[0] <= a.ends[1] <= b.ends[1]:
        return False
    held = [_holds(b, z) for z in dict.fromkeys(a.ends)]
    return False if not all(held) else True if len(held) == 1 else OPEN


def try_subset(a: KnownCells, b: KnownCells) -> bool | Open:
    """Compare a set around the first with the second; look for some cells of the first in the second."""
    if not (a.shatters or b.shatters):
        return OPEN
    if b.setts is not None and together.lies_within(a.around, b.setts, 0, a.extent, lists=False):
        return True
    sample = a.sample
    keep = None if sample is None else b.hold_each(sample)
    return False if keep is not None and not keep.all() else OPEN


def count_subset(a: KnownCells, b: KnownCells) -> bool | Open:
    """Compare how many cells are common with how many there are."""
    size = OPEN if a.shatters or b.shatters else climb(RUNGS[CellQuestion.SIZE], a, closed=True)
    count = size if size is OPEN else climb(RUNGS[CellQuestion.COUNT], a, b, closed=True)
    return count if count is OPEN else bool(count == size)


def count_few_blocks(a: KnownCells, b: KnownCells) -> int | Open:
    """Count one nest with one nest, where that takes few branches: the usual case."""
    if a.spans is None or b.spans is None or len(a.spans) > 1 or len(b.spans) > 1:
        return OPEN
    return members.count_few(a.spans, b.spans)


def count_sums_with_sums(a: KnownCells, b: KnownCells) -> int | Open:
    """Count the solutions of an equation for each pair of progressions; as bits or setts where sums are equal."""
    both = _pair_progressions(a, b)
    if both is OPEN:
        return both
    if any(x.sums is not None and equation.equal_sums(x.sums[1]) is not None for x in (a, b)):
        p, q = a.sums, b.sums
        if p is not None and q is not None and max(reach(p[1]), reach(q[1])) <= tuning.BIT_SPAN:
            return _count_equal_bits(p, q)
        one, two = (climb(RUNGS[CellQuestion.EXPLICIT], x, closed=True) for x in (a, b))
        is_open = one is OPEN or two is OPEN
        return OPEN if is_open else together.count_shared(one, two, 0, a.extent, lists=False)
    return sum([members.sums_count(*pair) for pair in both])


def _count_equal_bits(p: Progression, q: Progression) -> int:
    """Return how many numbers two progressions share, as bits."""
    if p[0] > q[0]:
        p, q = q, p
    return ((sum_bits(p[1]) >> (q[0] - p[0])) & sum_bits(q[1])).bit_count()


def find_none_beside(a: KnownCells, b: KnownCells) -> Open | None:
    """Say none where the second holds the first."""
    return None if climb(RUNGS[CellQuestion.SUBSET], a, b) else OPEN


# ---------------------------------------------------------------------------------------------------- formulas


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


def write_met_products(a: KnownCells, b: KnownCells) -> str | None:
    """Write the sum over what the products of both share, by inclusion and exclusion."""
    met = _meet_on_axes(a, b)
    return None if met is OPEN else axis_products.write_union(met)


def write_met_bands(a: KnownCells, b: KnownCells) -> str | None:
    """Write the count between the diagonals of both."""
    found = _meet_in_bands(a, b)
    return None if found is OPEN else found.write()


def write_rows(a: KnownCells, b: KnownCells) -> str | None:
    """Write the rows that both read, times what both read inside each, product by product."""
    rows = _by_rows(a, b)
    if rows is OPEN:
        return None
    parts = [(many, pairs.count_in_both(s, t, 0, width)) for _, many, s, t, width in rows]
    return write_sum(map(write_product, parts))


# ------------------------------------------------------------------------------------------------------- by isl


def isl_numbers(x: KnownCells, operations: int = isl.BUILD_OPERATIONS) -> Any:
    """Return the row-major numbers as an islpy.Set, made in at most so many of isl's operations; else TooHard."""
    if isinstance(x.setts, DisjointSetts) and isl.available():
        return isl.to_isl(x.setts).intersect(isl.box_set((0,), (x.extent,)))

    def numbers() -> Any:
        return images.image_to_isl(x.pieces, Box.of(x.shape)).apply(isl.relinearize_map(x.home, (x.extent,)))

    return _ask_isl("the cells as isl's set", x, numbers, operations)


def _ask_isl(what: str, x: KnownCells, question: Callable[[], Any], operations: int = isl.MAX_OPERATIONS) -> Any:
    """What isl answers within its limit for each of the pieces."""
    why = (
        f"{what}: the cells that {x.name} reads of an allocation of shape {x.home} make too many setts, and are too "
        "many to list"
    )
    return isl.decide(why, question, operations * len(x.pieces), "ask about a part of the view")


def by_isl(name: str, what: str, question: Callable[..., Any], operations: int = isl.MAX_OPERATIONS) -> Rung:
    """Return the rung that asks a question of isl's sets of row-major numbers."""

    def ask(*each: KnownCells) -> Any:
        indices = [s for x in each if x.products is not None for sets in x.products.each for s in sets]
        if any(axis_sets.is_column(s) and len(s) > tuning.MAX_SETTS for s in indices):
            return OPEN  # of a piece for each run of a table: a list is sooner made
        numbers = [isl_numbers(x) for x in each]
        return _ask_isl(what, each[0], lambda: question(*numbers), operations)

    return Rung(_named(name, f"Let isl decide: {what}.", ask), HARD, "isl")


def _is_run(numbers: Any) -> bool:
    """Whether all numbers between the bounds are there."""
    # Gaps are what a set leaves out, and isl must solve its existentials to negate it: before is sooner than inside.
    solved = numbers.compute_divs()
    bounds = isl.bounds_of(solved)
    return bounds is None or bool(isl.box_set(*bounds).is_subset(solved))


def _a_number(numbers: Any) -> int | None:
    point = isl.a_point(numbers)
    return None if point is None else int(point[0])


def index_by_isl(x: KnownCells, cell: tuple[int, ...]) -> tuple[int, ...] | None:
    """Let isl invert the pieces' maps."""

    def index() -> tuple[int, ...] | None:
        box, target = isl.box_set((0,) * len(x.shape), x.shape), isl.point_set(cell)
        found = (isl.a_point(target.apply(isl.to_isl(piece).reverse()).intersect(box)) for piece in x.pieces)
        return next((index for index in found if index is not None), None)

    return cast("tuple[int, ...] | None", _ask_isl("an index that reads a cell", x, index, isl.BUILD_OPERATIONS))


def count_by_isl(*each: KnownCells) -> int:
    """Let isl count the image of the maps, or the common cells of two images."""
    numbers = [isl_numbers(x) for x in each]
    what = "the cells that two views share" if len(each) > 1 else f"the cells that {each[0].name} reads"
    refusal = TooHard(
        f"counting {what} needs a scan of more than {tuning.MAX_SCAN} candidates; overlaps() and the witness do not"
        + _say_of_tables(each)
    )
    operations = isl.COUNT_OPERATIONS * len(each[0].pieces)
    count = isl.bounded(
        lambda: isl.count_points(reduce(lambda x, y: x.intersect(y), numbers), tuning.MAX_SCAN),
        refusal,
        operations,
    )
    if count is None:
        raise refusal
    return count


def _say_of_tables(each: Iterable[KnownCells]) -> str:
    """What to do where a view cuts through the rows that a table lists."""
    if any(isinstance(step, Lookup) for x in each for piece in x.pieces for step in piece.map.steps):
        return (
            ". A view reads through a table of rows or pages and then cuts across these, as cache[table].reshape(-1)"
            "[::7] does: slice each page alone, as cache[table].reshape(pages, -1)[:, ::7] does, or whole pages"
        )
    return ""


# ------------------------------------------------------------------------------------------------------- listed


def _list(x: KnownCells) -> Int64Array | Open:
    numbers = x.list_numbers(tuning.MAX_SCAN)
    return OPEN if numbers is None else numbers


def _list_common(a: KnownCells, b: KnownCells) -> Int64Array | Open:
    """The numbers in both, listed from one of them, of which setts come last."""
    sides = sorted(((a, b), (b, a)), key=lambda side: (isinstance(side[0].setts, DisjointSetts), prod(side[0].shape)))
    for one, two in sides:
        numbers = one.list_numbers(tuning.MAX_SCAN)
        if numbers is None:
            continue
        keep = two.hold_each(numbers)
        if keep is not None:
            return numbers[keep]
        others = two.list_numbers(tuning.MAX_SCAN)
        if others is not None:
            return np.intersect1d(numbers, others, assume_unique=True)
    return OPEN


def by_list(name: str, answer: Callable[[Int64Array], Any]) -> Rung:
    """Return the rung that lists the cells of one view, or those common to two, and looks at the list."""

    def ask(*each: KnownCells) -> Any:
        z = _list(*each) if len(each) == 1 else _list_common(*each)
        return z if z is OPEN else answer(z)

    return Rung(_named(name, "List the cells.", ask), (), "listed")


def _has_no_gap(z: Int64Array) -> bool:
    return not len(z) or int(z[-1]) - int(z[0]) + 1 == len(z)


def _first_of(z: Int64Array) -> int | None:
    return int(z[0]) if len(z) else None


def meet_closed(a: KnownCells, b: KnownCells) -> bool | Open:
    """Find a common cell in closed form."""
    z = climb(RUNGS[CellQuestion.NUMBER], a, b, closed=True)
    return z if z is OPEN else z is not None


def meet_listed_sets(a: KnownCells, b: KnownCells) -> bool | Open:
    """List elements of filled sets."""
    z = find_in_listed_sets(a, b)
    return z if z is OPEN else z is not None


def is_subset_by_list(a: KnownCells, b: KnownCells) -> bool | Open:
    """List the common cells, and count them and all."""
    z = _list_common(a, b)
    return z if z is OPEN else bool(len(z) == climb(RUNGS[CellQuestion.SIZE], a))


def find_beside_by_list(a: KnownCells, b: KnownCells) -> int | Open | None:
    """List the cells and the common ones."""
    numbers, common = _list(a), _list_common(a, b)
    if numbers is OPEN or common is OPEN:
        return OPEN
    return _first_of(np.setdiff1d(numbers, common, assume_unique=True))


is_subset_of_listed_sets = of_sets("is_subset_of_listed_sets", "List elements of filled sets.", together.lies_within)
count_setts_with_setts = of_sets(
    "count_setts_with_setts",
    "Count setts with setts, period by period.",
    together.count_shared,
    lists=False,
)
count_in_listed_sets = of_sets(
    "count_in_listed_sets", "List elements of filled sets, and count.", together.count_shared
)
find_beside_setts = of_sets(
    "find_beside_setts",
    "Leap to the first element that the other set lacks.",
    together.first_beside,
    lists=False,
)
count_by_chains = of_sets("count_by_chains", "Count down both chains of filled sets.", together.count_by_chains)
find_in_listed_sets = of_sets("find_in_listed_sets", "List elements of filled sets.", together.some_common)

# ----------------------------------------------------------------------------------------------------- the table


RUNGS: dict[CellQuestion, tuple[Rung, ...]] = {
    CellQuestion.EMPTY: (
        Rung(is_empty_by_setts),
        by_isl("is_empty_by_isl", "whether a view reads anything", lambda x: bool(x.is_empty())),
        by_list("is_empty_by_list", lambda z: not len(z)),
    ),
    CellQuestion.SIZE: (
        Rung(count_products, HARD, write=write_products),
        Rung(count_bands, write=write_bands),
        Rung(count_setts),
        Rung(count_sums, HARD, write=write_counts),
        Rung(count_sums_as_setts, MANY),
        Rung(count_indices, write=write_indices),
        by_list("size_by_list", len),
        Rung(count_by_isl, HARD, "isl"),
    ),
    CellQuestion.EXPLICIT: (
        Rung(take_setts),
        Rung(write_out_products, MANY),
        Rung(write_out_chain, MANY),
        Rung(flatten_chain, MANY),
        Rung(write_out_sums, MANY),
    ),
    CellQuestion.RUN: (
        Rung(is_run_by_ends, HARD),
        by_isl("is_run_by_isl", "whether a view is contiguous", _is_run, isl.BUILD_OPERATIONS),
        by_list("is_run_by_list", _has_no_gap),
    ),
    CellQuestion.INDEX: (
        Rung(divide_by_strides),
        Rung(index_by_axes),
        Rung(invert_pieces),
        Rung(solve_boxes),
        Rung(index_by_isl, HARD, "isl"),
    ),
    CellQuestion.NUMBER: (
        Rung(find_on_axes),
        Rung(find_in_bands),
        Rung(leap_blocks, REFUSALS),
        Rung(find_by_rows, REFUSALS),
        Rung(find_on_diagonal, REFUSALS),
        Rung(try_samples),
        Rung(find_before_turn, REFUSALS),
        Rung(leap_with_isl, REFUSALS),
        Rung(try_around, REFUSALS),
        Rung(solve_sums, REFUSALS),
        by_isl("find_by_isl", "a common cell", lambda x, y: _a_number(x.intersect(y))),
        Rung(find_in_listed_sets, REFUSALS, "listed"),
        by_list("find_by_list", _first_of),
    ),
    CellQuestion.MEETS: (
        Rung(meet_closed, defers=True),
        by_isl("meet_by_isl", "whether two views overlap", lambda x, y: not x.is_disjoint(y)),
        Rung(meet_listed_sets, REFUSALS, "listed"),
        by_list("meet_by_list", lambda z: len(z) > 0),
    ),
    CellQuestion.SUBSET: (
        Rung(is_subset_on_axes, HARD),
        Rung(is_subset_in_bands),
        Rung(is_subset_of_setts, REFUSALS),
        Rung(is_plainly_subset, REFUSALS),
        Rung(is_subset_before_turn, REFUSALS),
        Rung(try_subset, REFUSALS),
        Rung(count_subset, REFUSALS),
        by_isl("is_subset_by_isl", "whether a view contains another", lambda x, y: bool(x.is_subset(y))),
        Rung(
            is_subset_of_listed_sets,
            REFUSALS,
            "listed",
        ),
        Rung(is_subset_by_list, HARD, "listed"),
    ),
    CellQuestion.COUNT: (
        Rung(count_on_axes, HARD, write=write_met_products),
        Rung(count_in_bands, write=write_met_bands),
        Rung(count_by_rows, REFUSALS, write=write_rows),
        Rung(count_few_blocks, HARD),
        Rung(count_by_chains),
        Rung(count_on_diagonal, REFUSALS),
        Rung(count_before_turn, REFUSALS),
        Rung(
            count_setts_with_setts,
            REFUSALS,
        ),
        Rung(count_sums_with_sums, REFUSALS),
        Rung(
            count_in_listed_sets,
            REFUSALS,
            "listed",
        ),
        by_list("count_by_list", len),
        Rung(count_by_isl, HARD, "isl"),
    ),
    CellQuestion.BESIDE: (
        Rung(find_beside_on_axes, HARD),
        Rung(
            find_beside_setts,
            REFUSALS,
        ),
        Rung(find_none_beside),
        Rung(find_beside_by_list, HARD, "listed"),  # before isl, which takes long to negate sums of many digits
        by_isl("find_beside_by_isl", "a cell that another view does not read", lambda x, y: _a_number(x.subtract(y))),
    ),
}
