"""Values and names as messages show them: in one line that a terminal shows and does not obey, and never long."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Any

import numpy as np

from tapestry_sets.limits import tuning


def escape_controls(text: str, keep: str = "\n") -> str:
    r"""Return a text with characters that are not printable written as Python writes them.

    Names come from files that others made. ESC and its like move the cursor or change the title of a window, and marks
    of direction show a name in another order.

    Parameters
    ----------
    text : str
    keep : str
        Characters that stay as they are.

    Examples
    --------
    >>> print(escape_controls("fc1\x1b[2J, größer"))
    fc1\x1b[2J, größer
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def cut_text(text: str, most: int = tuning.SHOWN_TEXT) -> str:
    r"""Return a text of at most so many characters in one line without controls, whose end says if it was cut.

    Examples
    --------
    >>> cut_text("Call me Ishmael.", 8)
    'Call me…'
    >>> print(cut_text("Call me\nIshmael."))
    Call me\nIshmael.
    """
    shown = escape_controls(text[: most + 1], "")
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def tell_fields(value: object, names: Iterable[str]) -> str:
    """Return the repr of a value from its fields, each of them cut where all would not stand in one line.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> tell_fields(SimpleNamespace(tensor="relu", cells=tuple(range(100))), ["tensor", "cells"])
    "SimpleNamespace(tensor='relu', cells=(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …)"
    """
    fields = {name: repr(getattr(value, name)) for name in names}
    most = tuning.SHOWN_TEXT - len(type(value).__name__) - 2 - sum(len(name) + 3 for name in fields)
    if sum(map(len, fields.values())) > most:
        fields = {name: cut_text(text, tuning.SHOWN_FIELD) for name, text in fields.items()}
    shown = ", ".join(f"{name}={text}" for name, text in fields.items())
    return f"{cut_text(f'{type(value).__name__}({shown}', tuning.SHOWN_TEXT - 1)})"


class Brief:
    """A struct whose repr is one line, however long its fields are."""

    __slots__ = ()

    def __repr__(self) -> str:
        return tell_fields(self, self.__struct_fields__)  # type: ignore[attr-defined]


def cut_middle(text: str, most: int = tuning.SHOWN_TEXT) -> str:
    """Return a text of at most so many characters without controls, whose middle says if it was cut.

    Examples
    --------
    >>> cut_middle("concatenate([A, B, C, D])", 15)
    'concate… C, D])'
    """
    shown = escape_controls(text, "")
    if len(shown) <= most:
        return shown
    head, tail = shown[: most // 2], shown[len(shown) - (most - most // 2 - 1) :]
    return f"{head.rstrip('…')}…{tail.lstrip('…')}"


def quote(value: object) -> str:
    r"""Return a value as messages quote it: its `repr`, in one line of at most 200 characters without controls.

    No more is written of a long value than is shown, and none fails for it: not a list that contains itself, nor an
    integer of so many digits that Python does not write them. An array of some size is quoted by its shape and dtype.

    Examples
    --------
    >>> print(quote("fc1\x1b[2J"), quote((4, "6")), quote(-(10**5000)))
    'fc1\x1b[2J' (4, '6') below -2**16609
    >>> quote(np.zeros((400, 600))), len(quote("Ishmael" * 10**6))
    ('an array of shape (400, 600) and dtype float64', 200)
    """
    if type(value) is str and len(value) <= tuning.SHOWN_TEXT // 2:  # a name: most of what is quoted
        return cut_text(repr(value))
    return cut_text(_write(value, tuning.SHOWN_DEPTH))


def list_names(names: Iterable[Hashable], wrong: object, what: str = "names") -> str:
    """Return what an error says of the names that are known, where it was given a wrong one.

    A few are shown as they are. Of many the three nearest in name to the wrong one are, and how many there are.

    Parameters
    ----------
    names : iterable of hashable
    wrong : object
        What was given in place of one of them.
    what : str
        What the names are of, in the plural.

    Examples
    --------
    >>> list_names(["numpy", "cuda"], "nunpy", "backends")
    "known backends: 'numpy', 'cuda'"
    >>> list_names([f"conv_{k}" for k in range(50)] + ["relu"], "rule", "operators")
    "nearest of 51 operators: 'relu', 'conv_9', 'conv_8'"
    >>> list_names((), "relu", "operators")
    'there are no operators'
    """
    known = list(dict.fromkeys(names))
    if not known:
        return f"there are no {what}"
    few = ", ".join(map(quote, known[: tuning.SHOWN_NAMES]))
    if len(known) <= tuning.SHOWN_NAMES and len(few) <= tuning.SHOWN_TEXT:
        return f"known {what}: {few}"
    near = [cut_text(quote(name), tuning.SHOWN_TEXT // 3) for name in _find_nearest(known, wrong)]
    return f"nearest of {len(known):,} {what}: {', '.join(near)}"


def _find_nearest(names: list[Hashable], wrong: object) -> list[Hashable]:
    """Up to three names, the nearest first; the beginnings of long ones are compared."""
    from difflib import get_close_matches  # loaded with the first wrong name, not with the package

    begins = {_begin_of(name): name for name in reversed(names)}
    cutoff = 0.0 if len(names) <= tuning.COMPARED_NAMES else 0.6  # most names are known at once to be farther
    near = get_close_matches(_begin_of(wrong), begins, 3, cutoff=cutoff)
    return [begins[begin] for begin in near] or names[:3]


def _begin_of(name: object) -> str:
    return (name if isinstance(name, str) else quote(name))[: tuning.COMPARED_TEXT]


def _write(value: object, depth: int) -> str:
    """A value as `quote` shows it, not cut yet: of a long one, no more than a cut will leave of it."""
    kind = type(value)
    if isinstance(value, str | bytes | bytearray):
        return repr(value[: tuning.SHOWN_TEXT])
    if isinstance(value, int) and kind is int:
        return _write_integer(value)
    if isinstance(value, np.ndarray) and (value.size > tuning.SHOWN_ENTRIES or value.dtype.hasobject):
        return f"an array of shape {_write(value.shape, depth)} and dtype {value.dtype.name}"
    if isinstance(value, dict | tuple | list | set | frozenset) and (isinstance(value, dict) or kind in BRACKETS):
        return _write_items(value, depth) if depth else "…"
    try:
        return escape_controls(" ".join(repr(value).split()))
    except Exception:  # of a class that others wrote, or of a field with too many digits
        return f"a value of type {kind.__name__}"


BRACKETS = {tuple: ("(", ")"), list: ("[", "]"), set: ("{", "}"), frozenset: ("frozenset({", "})")}


def _write_integer(value: int) -> str:
    bits = value.bit_length()
    if bits <= tuning.SHOWN_BITS:
        return repr(value)
    return f"over 2**{bits - 1}" if value > 0 else f"below -2**{bits - 1}"


def _write_items(items: Collection[Any], depth: int) -> str:
    """The items of a container, between its brackets."""
    if not items:
        return repr(items)
    opening, closing = ("{", "}") if isinstance(items, dict) else BRACKETS[type(items)]
    shown, length = [], 0
    for item in items:
        text = _write(item, depth - 1)
        shown.append(f"{text}: {_write(items[item], depth - 1)}" if isinstance(items, dict) else text)
        length += len(shown[-1]) + 2
        if length > tuning.SHOWN_TEXT:
            break
    return f"{opening}{', '.join(shown)}{',' if closing == ')' and len(items) == 1 else ''}{closing}"
