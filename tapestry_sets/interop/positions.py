"""Errors about a text, which show the place."""

from __future__ import annotations

from typing import NoReturn

from tapestry_sets.limits import cut_text, quote


def refuse_at(what: str, text: str, at: int, length: int, why: str) -> NoReturn:
    """Raise ValueError that marks `length` characters of a text from `at` on.

    Examples
    --------
    >>> refuse_at("from_mlir", "affine_map<(d0) -> (d1)>", 20, 2, "'d1' is not a dimension")
    Traceback (most recent call last):
    ...
    ValueError: from_mlir: character 20: 'd1' is not a dimension: '…<(d0) -> (⟨d1⟩)>'
    """
    before, after = text[max(0, at - 10) : at], text[at + length : at + length + 10]
    shown = f"{'…' if at > 10 else ''}{before}⟨{cut_text(text[at : at + length])}⟩{after}"
    shown += "…" if at + length + 10 < len(text) else ""
    raise ValueError(f"{what}: character {at}: {cut_text(why, 250)}: {quote(shown)}")
