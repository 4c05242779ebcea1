"""Documents: plain data checked against the types of fields, with a message that says what is wrong where."""

from __future__ import annotations

import re
from typing import Any, NoReturn, TypeVar

import msgspec

from tapestry_sets.limits.printable import quote

T = TypeVar("T")


def read_json(text: object, what: str, form: str, mend: str, *, refuse_twins: bool = False) -> dict[str, Any]:
    """Return the plain data of a JSON document of one format.

    Parameters
    ----------
    text : str or bytes
    what : str
        How the messages name the document.
    form : str
        What its field ``format`` must be.
    mend : str
        What to do about another format.
    refuse_twins : bool
        Whether to refuse a field that is given twice, which takes three times as long; else the last one counts.

    Raises
    ------
    TypeError
        If `text` is neither str nor bytes.
    ValueError
        For text that is not JSON, or nests too deeply, and for another format.

    Examples
    --------
    >>> read_json('{"format": "set/1", "period": 6}', "a set", "set/1", "write it anew")
    {'format': 'set/1', 'period': 6}
    >>> read_json('{"format": "set/0"}', "a set", "set/1", "write it anew")
    Traceback (most recent call last):
    ...
    ValueError: a set: format is 'set/0', this version reads 'set/1'; write it anew
    """
    if not isinstance(text, str | bytes | bytearray):
        raise TypeError(f"{what}: {quote(text)} is a {type(text).__name__}; give the text, as of path.read_text()")
    if not text.strip():
        raise ValueError(f"{what}: the text is empty, so this is not a JSON document; give all of {quote(form)}")
    try:
        data = _decode_strictly(text) if refuse_twins else msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        # A path that was given for a text shows in it; what a file holds is not for messages.
        given = f"; the text is {quote(text)}" if isinstance(text, str) else ""
        raise ValueError(f"{what}: this is not a JSON document: {error}{given}") from None
    return check_format(data, what, form, mend)


def check_format(data: Any, what: str, form: str, mend: str) -> dict[str, Any]:
    """Return plain data if its field ``format`` is as it must be, else raise ValueError; see `read_json`."""
    found = data.get("format") if isinstance(data, dict) else None
    if not isinstance(data, dict) or found != form:
        raise ValueError(f"{what}: format is {quote(found)}, this version reads {quote(form)}; {mend}")
    return data


def _decode_strictly(text: str | bytes | bytearray) -> Any:
    import json  # few callers need it

    return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_twins)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"field {quote(next(n for n in names if names.count(n) > 1))} is given twice")
    return found


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
    return "" if place is None else f", which is {quote(data)}"
