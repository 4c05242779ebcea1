"""Affine maps in words and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapestry_sets.draw import as_html
from tapestry_sets.limits import quote
from tapestry_sets.regions import tuning


def spell_map(matrix: Sequence[Sequence[int]], offset: Sequence[int], in_rank: int) -> str:
    """Return an affine map as MLIR writes it.

    Examples
    --------
    >>> spell_map(((2, 0), (0, -1)), (1, 5), 2)
    '(d0, d1) -> (2*d0 + 1, 5 - d1)'
    """
    inputs = ", ".join(f"d{k}" for k in range(in_rank))
    return f"({inputs}) -> ({', '.join(spell_sum(row, by) for row, by in zip(matrix, offset, strict=True))})"


def spell_sum(row: Sequence[int], offset: int) -> str:
    """Return a coordinate of a map as a sum; what is taken off comes last, so that few begin with a sign."""
    terms = [(c, f"d{k}" if abs(c) == 1 else f"{quote(abs(c))}*d{k}") for k, c in enumerate(row) if c]
    terms += [(offset, quote(abs(offset)))] if offset else []
    terms.sort(key=lambda term: term[0] < 0)
    words = "".join(f" {'-' if c < 0 else '+'} {term}" for c, term in terms)
    return words.removeprefix(" + ").replace(" - ", "-", words.startswith(" - ")) or "0"


def map_bundle(m: Any) -> dict[str, str]:
    """Return the forms in which a notebook shows an affine map: its repr, its sums, and a table of its matrix."""
    rank = max(0, m.in_rank)
    if (1 + len(m.matrix)) * (2 + rank) > tuning.SHOWN_ENTRIES:
        return {"text/plain": repr(m)}
    rows = [("", *(f"d{k}" for k in range(rank)), "offset")]
    rows += [(f"x{k}", *map(quote, [*row, by])) for k, (row, by) in enumerate(zip(m.matrix, m.offset, strict=True))]
    return {"text/plain": f"{m!r}\n{spell_map(m.matrix, m.offset, rank)}", "text/html": as_html(rows)}
