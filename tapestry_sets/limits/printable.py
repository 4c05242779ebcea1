"""Values and names as messages show them: in one line that a terminal shows and does not obey, and never long."""

from __future__ import annotations

from collections.abc import Collection
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
    """Return a text of at most so many characters without controls, whose end says if it was cut.

    Examples
    --------
    >>> cut_text("Call me Ishmael.", 8)
    'Call me…'
    """
    shown = escape_controls(text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


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
