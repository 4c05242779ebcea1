"""Sums and minima of tables over some of their axes, in the order in which the processor goes through them fastest."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from itertools import groupby
from math import prod

import numpy as np

from tapestry_plan.search import tuning
from tapestry_plan.search.sums.reduction import IntArray


def find_least_over(table: IntArray, kept: Collection[int]) -> IntArray:
    """The least over all axes of a table but some, of which there stays one each, in their order.

    Neighboring axes that go are one axis: a table of 2 × 2 × … cells has few of them then. The outermost goes first,
    value by value where these are few: whole rows are compared with each other, not the few cells of each::

        a  b  c  d        kept: b            (a)(b)(c d)  ──► (b)(c d)  ──► (b)
    """
    runs = [list(run) for _, run in groupby(range(table.ndim), key=lambda axis: axis in kept)]
    left = table.reshape([prod(table.shape[axis] for axis in run) for run in runs])
    at = 0
    for run in runs:
        if run[0] in kept:
            at += 1
        elif left.shape[at] <= tuning.FEW_VALUES:
            left = reduce(np.minimum, left.transpose(at, *range(at), *range(at + 1, left.ndim)))
        else:
            left = left.min(axis=at)
    return left.reshape([table.shape[axis] for axis in range(table.ndim) if axis in kept])


def add_small(tables: Sequence[IntArray], shape: tuple[int, ...]) -> list[IntArray]:
    """Fewer tables of the same sum: first-fit sums of such as together span a small part of a shape.

    Each table is of that shape, but for axes of length 1, which stand for any.
    """
    most = prod(shape) // tuning.SMALL_SHARE
    sums: list[IntArray] = []
    for table in sorted(tables, key=lambda table: table.size):
        for k, there in enumerate(sums):
            if prod(map(max, there.shape, table.shape)) <= max(most, there.size, table.size):
                sums[k] = there + table
                break
        else:
            sums.append(table)
    return sums
