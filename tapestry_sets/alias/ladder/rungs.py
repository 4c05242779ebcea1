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

Here stand the table, and the rungs that ask another question; those that ask none are in `of_one`, `of_two`, `by_isl`
and `by_list`. To add a rung: write a function of the cells that returns an answer or `OPEN`, and put a `Rung` with it
in `RUNGS` where it is to be asked, with the refusals that its closed form may raise. Beside it only the picture of its
question, here and in the README, names it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import cast

from msgspec.structs import replace

from tapestry_sets.alias import tuning
from tapestry_sets.alias.ladder.by_isl import by_isl, count_by_isl, index_by_isl, is_run, take_number
from tapestry_sets.alias.ladder.by_list import by_list, find_beside_by_list, first_of, has_no_gap, list_common
from tapestry_sets.alias.ladder.known import KnownCells
from tapestry_sets.alias.ladder.of_one import (
    count_bands,
    count_indices,
    count_products,
    count_setts,
    count_sums,
    count_sums_as_setts,
    divide_by_strides,
    flatten_chain,
    index_by_axes,
    invert_pieces,
    is_empty_by_setts,
    is_run_by_ends,
    solve_boxes,
    take_setts,
    write_bands,
    write_counts,
    write_indices,
    write_out_chain,
    write_out_products,
    write_out_sums,
    write_products,
)
from tapestry_sets.alias.ladder.of_two import (
    count_by_chains,
    count_by_rows,
    count_few_blocks,
    count_in_bands,
    count_in_listed_sets,
    count_on_axes,
    count_setts_with_setts,
    find_beside_on_axes,
    find_beside_setts,
    find_by_rows,
    find_in_bands,
    find_in_listed_sets,
    find_on_axes,
    is_subset_in_bands,
    is_subset_of_listed_sets,
    is_subset_of_setts,
    is_subset_on_axes,
    leap_blocks,
    leap_with_isl,
    pair_progressions,
    solve_sums,
    try_samples,
    try_subset,
    write_met_bands,
    write_met_products,
    write_rows,
)
from tapestry_sets.alias.ladder.preimage import Turn
from tapestry_sets.digits import Progression, reach, sum_bits
from tapestry_sets.integers import DisjointSetts, ends_of, members, together
from tapestry_sets.limits import HARD, MANY, OPEN, REFUSALS, Open, Rung, climb, current, limits
from tapestry_sets.regions import axis_products, unflatten
from tapestry_sets.solvers import equation, isl
from tapestry_sets.views import Piece, reading


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


# ----------------------------------------------------------------------------- rungs that ask another question


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


def count_subset(a: KnownCells, b: KnownCells) -> bool | Open:
    """Compare how many cells are common with how many there are."""
    size = OPEN if a.shatters or b.shatters else climb(RUNGS[CellQuestion.SIZE], a, closed=True)
    count = size if size is OPEN else climb(RUNGS[CellQuestion.COUNT], a, b, closed=True)
    return count if count is OPEN else bool(count == size)


def count_sums_with_sums(a: KnownCells, b: KnownCells) -> int | Open:
    """Count the solutions of an equation for each pair of progressions; as bits or setts where sums are equal."""
    both = pair_progressions(a, b)
    if both is OPEN:
        return both
    if any(x.sums is not None and equation.equal_sums(x.sums[1]) is not None for x in (a, b)):
        p, q = a.sums, b.sums
        if p is not None and q is not None and max(reach(p[1]), reach(q[1])) <= tuning.BIT_SPAN:
            return _count_equal_bits(p, q)
        first, second = a.bits, b.bits
        if first is not None and second is not None:
            return (first & second).bit_count()
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
    z = list_common(a, b)
    return z if z is OPEN else bool(len(z) == climb(RUNGS[CellQuestion.SIZE], a))


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
        by_isl("is_run_by_isl", "whether a view is contiguous", is_run, isl.BUILD_OPERATIONS),
        by_list("is_run_by_list", has_no_gap),
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
        by_isl("find_by_isl", "a common cell", lambda x, y: take_number(x.intersect(y))),
        Rung(find_in_listed_sets, REFUSALS, "listed"),
        by_list("find_by_list", first_of),
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
        by_isl("find_beside_by_isl", "a cell that another view does not read", lambda x, y: take_number(x.subtract(y))),
    ),
}
