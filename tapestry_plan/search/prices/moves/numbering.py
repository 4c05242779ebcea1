"""Many rows that are few different ones: each of these has a number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tapestry_plan.search import tuning
from tapestry_plan.search.sums.elimination import IntArray


def list_tuples(columns: Sequence[IntArray], sizes: Sequence[int]) -> tuple[IntArray, IntArray]:
    """The distinct tuples of some numbers below sizes, one row for each, and where each tuple's row is."""
    rows, codes = np.zeros((1, 0), np.int64), np.zeros((), np.int64)
    for column, size in zip(columns, sizes, strict=True):
        found, codes = renumber(codes * size + column, len(rows) * size)
        rows = np.column_stack([rows[found // size], found % size])
    return rows, codes


def list_classes(rows: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct rows, and for each row the number of its class."""
    seen: dict[bytes, int] = {}
    classes = np.array([seen.setdefault(row.tobytes(), len(seen)) for row in rows], np.int64)
    first = np.unique(classes, return_index=True)[1]
    return rows[first], classes


def renumber(codes: IntArray, many: int) -> tuple[IntArray, IntArray]:
    """The distinct ones of some codes below `many`, ascending, and for each code its number among them."""
    if many > min(tuning.MAX_CODES, tuning.CODES_A_NUMBER * codes.size):
        found, numbers = np.unique(codes, return_inverse=True)
        return found, numbers.reshape(codes.shape)
    occurs = np.zeros(many, bool)
    occurs[codes] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes]
