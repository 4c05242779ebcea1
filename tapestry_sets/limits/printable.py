"""Text that a terminal shows and does not obey."""

from __future__ import annotations


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
