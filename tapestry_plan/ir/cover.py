"""Exact cover: shards' index boxes, and the cells that they write, make up the whole once."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

from tapestry_plan.ir.signature import cells_of
from tapestry_sets.limits import quote
from tapestry_sets.regions import Box, DisjointRegions
from tapestry_sets.views import first_gap, first_shared


class NoPartition(ValueError):
    """Parts do not cover a whole exactly; the message names a point."""


def check_partition(boxes: Sequence[Box], whole: Box, what: str) -> None:
    """Check that boxes cover a whole exactly: no point outside, none in two boxes, none left out.

    Parameters
    ----------
    boxes : sequence of Box
    whole : Box
        What they must partition.
    what : str
        What the messages call the parts.

    Raises
    ------
    NoPartition
        Naming a box outside, a point in two boxes, or a point in none.

    Examples
    --------
    Eight cells in all, from 0 to 8, and no partition:

    >>> check_partition([Box((0,), (3,)), Box((2,), (2,)), Box((5,), (3,))], Box.of((8,)), "shards")
    Traceback (most recent call last):
    ...
    tapestry_plan.ir.cover.NoPartition: shards: parts 0 and 1 both have (2,); each point must be in exactly one part
    """
    for k, box in enumerate(boxes):
        if box.rank != whole.rank or not whole.contains(box):
            raise NoPartition(f"{what}: part {k} is {quote(box)}, outside {quote(whole)}; parts must lie inside")
    check_cover([cells_of(box, whole) for box in boxes], whole, what)


def check_cover(parts: Sequence[DisjointRegions], whole: Box, what: str) -> None:
    """Check that sets of cells, all inside a box, share no cell and leave none out, as `check_partition` does."""
    back = tuple(-a for a in whole.start)
    home = [cells.shift(back) for cells in parts]
    if (shared := first_shared(home)) is not None:
        point, one, other = shared
        raise NoPartition(
            f"{what}: parts {one} and {other} both have {_move(point, whole.start)}; "
            "each point must be in exactly one part"
        )
    if (gap := first_gap(home or [DisjointRegions(whole.shape)])) is not None:
        raise NoPartition(
            f"{what}: no part has {quote(_move(gap, whole.start))}; each point must be in exactly one part"
        )


def _move(point: Sequence[int], by: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(add, point, by))
