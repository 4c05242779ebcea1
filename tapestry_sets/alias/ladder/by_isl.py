"""Rungs that ask isl about the cells of views."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, cast

from tapestry_sets.alias import tuning
from tapestry_sets.alias.ladder.known import KnownCells
from tapestry_sets.integers import DisjointSetts
from tapestry_sets.limits import HARD, OPEN, Rung, TooHard, name_way
from tapestry_sets.regions import Box, axis_sets
from tapestry_sets.solvers import isl
from tapestry_sets.views import Lookup, images


def isl_numbers(x: KnownCells, operations: int = isl.BUILD_OPERATIONS) -> Any:
    """Return the row-major numbers as an islpy.Set, made in at most so many of isl's operations; else TooHard."""
    if isinstance(x.setts, DisjointSetts) and isl.available():
        return isl.to_isl(x.setts).intersect(isl.box_set((0,), (x.extent,)))

    def numbers() -> Any:
        return images.image_to_isl(x.pieces, Box.of(x.shape)).apply(isl.relinearize_map(x.home, (x.extent,)))

    return _ask_isl("the cells as isl's set", x, numbers, operations)


def _ask_isl(what: str, x: KnownCells, question: Callable[[], Any], operations: int | None = None) -> Any:
    """What isl answers within its limit for each of the pieces, `isl.MAX_OPERATIONS` by default."""
    why = (
        f"{what}: the cells that {x.name} reads of an allocation of shape {x.home} make too many setts, and are too "
        "many to list"
    )
    each = isl.MAX_OPERATIONS if operations is None else operations
    return isl.decide(why, question, each * len(x.pieces), "ask about a part of the view")


def by_isl(name: str, what: str, question: Callable[..., Any], operations: int | None = None) -> Rung:
    """Return the rung that asks a question of isl's sets of row-major numbers."""

    def ask(*each: KnownCells) -> Any:
        indices = [s for x in each if x.products is not None for sets in x.products.each for s in sets]
        if any(axis_sets.is_column(s) and len(s) > tuning.MAX_SETTS for s in indices):
            return OPEN  # of a piece for each run of a table: a list is sooner made
        numbers = [isl_numbers(x) for x in each]
        return _ask_isl(what, each[0], lambda: question(*numbers), operations)

    return Rung(name_way(name, f"Let isl decide: {what}.", ask), HARD, "isl")


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


def is_run(numbers: Any) -> bool:
    """Whether all numbers between the bounds are there."""
    # Gaps are what a set leaves out, and isl must solve its existentials to negate it: before is sooner than inside.
    solved = numbers.compute_divs()
    bounds = isl.bounds_of(solved)
    return bounds is None or bool(isl.box_set(*bounds).is_subset(solved))


def take_number(numbers: Any) -> int | None:
    point = isl.a_point(numbers)
    return None if point is None else int(point[0])
