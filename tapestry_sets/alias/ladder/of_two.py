"""Rungs of two views: closed forms of what both read, which ask no other question, and their formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, cast

from tapestry_sets.alias import tuning
from tapestry_sets.alias.ladder.bands import Banded
from tapestry_sets.alias.ladder.known import KnownCells, nests_of
from tapestry_sets.digits import Progression
from tapestry_sets.integers import DisjointSetts, Nest, contains_each, members, pairs, ranks, together
from tapestry_sets.limits import OPEN, Open, name_way, write_product, write_sum
from tapestry_sets.regions import AxisSets, axis_products, axis_sets


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

    return name_way(name, words, ask)


leap_with_isl = of_sets("leap_with_isl", "Leap from set to set, now with isl.", together.some_common, lists=False)
leap_without_isl = of_sets("leap_without_isl", "Leap from set to set.", together.some_common, lists=False, isl=False)
hold_without_list = of_sets("hold_without_list", "Compare setts with setts.", together.lies_within, lists=False)


def leap_blocks(a: KnownCells, b: KnownCells) -> int | Open | None:
    """Leap from set to set, then solve equations, without isl."""
    if a.spans is not None and b.spans is not None:
        return members.some_common(a.spans, b.spans, False)
    return cast("int | Open | None", leap_without_isl(a, b))


def try_samples(a: KnownCells, b: KnownCells) -> int | Open:
    """Look for some cells of each in the other, where one is only known by a set around it."""
    if a.shatters or b.shatters:
        for cells, others in ((a, b), (b, a)):
            sample = cells.sample
            keep = None if sample is None else others.hold_each(sample)
            if sample is not None and keep is not None and keep.any():
                return int(sample[keep][0])
    return OPEN


def solve_sums(a: KnownCells, b: KnownCells) -> int | Open | None:
    """Solve an equation for each pair of progressions."""
    both = pair_progressions(a, b)
    return both if both is OPEN else members.first_of_sums(both)


def pair_progressions(a: KnownCells, b: KnownCells) -> Iterable[tuple[Progression, Progression]] | Open:
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


def try_subset(a: KnownCells, b: KnownCells) -> bool | Open:
    """Compare a set around the first with the second; look for some cells of the first in the second."""
    if not (a.shatters or b.shatters):
        return OPEN
    if b.setts is not None and together.lies_within(a.around, b.setts, 0, a.extent, lists=False):
        return True
    sample = a.sample
    keep = None if sample is None else b.hold_each(sample)
    return False if keep is not None and not keep.all() else OPEN


def count_few_blocks(a: KnownCells, b: KnownCells) -> int | Open:
    """Count one nest with one nest, where that takes few branches: the usual case."""
    if a.spans is None or b.spans is None or len(a.spans) > 1 or len(b.spans) > 1:
        return OPEN
    return members.count_few(a.spans, b.spans)


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
