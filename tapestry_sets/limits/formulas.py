"""Formulas: what a count added up and multiplied, in numbers, as Python writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def write_product(factors: Iterable[int | str]) -> str:
    """Return a product of numbers and written terms, without factors of 1.

    Examples
    --------
    >>> write_product([3, 1, "4 - 1"]), write_product([]), write_product(["4 - 1", "1"])
    ('3*(4 - 1)', '1', '4 - 1')
    """
    each = [text for x in factors if (text := str(x)) != "1"]
    if "0" in each:
        return "0"
    if len(each) == 1:
        return each[0]
    return "*".join([text if text.isdecimal() else f"({text})" for text in each]) or "1"


def write_sum(terms: Iterable[str]) -> str:
    """Return a sum of written terms without zeros, in which equal ones come once.

    Examples
    --------
    >>> write_sum(["2*3", "0", "5", "2*3"])
    '2*2*3 + 5'
    """
    many = Counter([term for term in terms if term != "0"])
    each = [term if n == 1 else f"{n}*{term if _is_product(term) else f'({term})'}" for term, n in many.items()]
    return " + ".join(each) or "0"


def _is_product(term: str) -> bool:
    return all(part.isdecimal() for part in term.split("*"))
