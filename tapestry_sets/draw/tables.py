"""Tables of text, in aligned columns and as HTML."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import zip_longest

from tapestry_sets.limits import OPEN, REFUSALS, ask_one


def align(rows: Sequence[Sequence[str]], ruler: bool = False, numbers: Collection[int] = ()) -> list[str]:
    """Return rows, the head first, as lines in aligned columns; a cell may have several lines, numbers end in line.

    Examples
    --------
    >>> align([("id", "kind"), ("0", "allocation"), ("12", "Flip\\nSlice")], ruler=True)
    ['id  kind', '--  ----------', '0   allocation', '12  Flip', '    Slice']
    >>> align([("id", "kind"), ("0", "allocation"), ("12", "Flip")], numbers={0})
    ['id  kind', ' 0  allocation', '12  Flip']
    """
    cells = [[cell.split("\n") for cell in row] for row in rows]
    widths = [max(len(line) for cell in column for line in cell) for column in zip(*cells, strict=True)]
    each = (line for row in cells for line in zip_longest(*row, fillvalue=""))
    ways = [str.rjust if k in numbers else str.ljust for k in range(len(widths))]
    lines = ["  ".join(way(cell, n) for way, cell, n in zip(ways, line, widths, strict=True)).rstrip() for line in each]
    return [lines[0], "  ".join("-" * n for n in widths), *lines[1:]] if ruler else lines


def as_html(rows: Sequence[Sequence[str]], style: str = "", numbers: Collection[int] | None = None) -> str:
    """Return rows, the head first, as an element of HTML; a style is for each cell.

    Where it is said which columns are of numbers, these end in line and words begin in line, as in `align`, with room
    between them, which some notebooks give no cell.

    Examples
    --------
    >>> print(as_html([["id"], ["0"]], numbers={0}).splitlines()[1])
    <thead><tr><th style="padding:.2em .5em;text-align:right">id</th></tr></thead>
    """
    from html import escape  # loaded with the first table, not with the package

    def style_of(column: int) -> str:
        way = "" if numbers is None else f"padding:.2em .5em;text-align:{'right' if column in numbers else 'left'}"
        own = ";".join(part for part in (style, way) if part)
        return f' style="{own}"' if own else ""

    styles = [style_of(column) for column in range(len(rows[0]))]

    def line(row: Sequence[str], tag: str) -> str:
        cells = (f"<{tag}{own}>{escape(cell)}</{tag}>" for own, cell in zip(styles, row, strict=True))
        return f"<tr>{''.join(cells)}</tr>"

    body = "\n".join(line(row, "td") for row in rows[1:])
    return f"<table>\n<thead>{line(rows[0], 'th')}</thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def yes_or_no(question: Callable[[], bool]) -> str:
    """Return a table's entry for a question, which may be too hard."""
    answer = ask_one(REFUSALS, question)
    return "?" if answer is OPEN else "yes" if answer else "no"
