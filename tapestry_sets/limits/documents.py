"""Documents: plain data checked against the types of fields, with a message that says what is wrong where."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
MOST_MARKS = 60
"""A longer value is cut where it is named."""


def read_fields(data: object, kind: type[T], what: str, mend: str = "") -> T:
    """Return plain data as a value of a type, whose unknown fields are refused if it says so.

    Parameters
    ----------
    data : object
        Dicts, lists, strings, numbers, booleans and None, as JSON holds them.
    kind : type
        A msgspec.Struct.
    what : str
        How the message names the document.
    mend : str
        What to do about a wrong one.

    Raises
    ------
    ValueError
        Where a field is missing, unknown or of the wrong type; the message names the place and the value.

    Examples
    --------
    >>> class Entry(msgspec.Struct):
    ...     shape: list[int]
    >>> read_fields({"shape": [4, "6"]}, Entry, "an entry")
    Traceback (most recent call last):
    ...
    ValueError: an entry: Expected `int`, got `str` - at `$.shape[1]`, which is '6'
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{what}: {error}{_found(data, str(error))}{'; ' * bool(mend)}{mend}") from None


def _found(data: Any, message: str) -> str:
    """The value at the place that a message ends with, if it is a plain one."""
    place = re.search(r"at `\$([^`]*)`$", message)
    for name, number in re.findall(r"\.(\w+)|\[(\d+)\]", place[1]) if place else ():
        try:
            data = data[name or int(number)]
        except (KeyError, IndexError, TypeError):  # a place that msgspec writes in another way
            return ""
    shown = repr(data)
    if place is None or isinstance(data, dict):
        return ""
    return f", which is {shown if len(shown) <= MOST_MARKS else shown[: MOST_MARKS - 1] + '…'}"
