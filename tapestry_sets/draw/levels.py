"""Pictures of nested levels: a row of blocks for each level of a sett, then its elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tapestry_sets.digits import Int64Array
from tapestry_sets.draw import canvas, tuning
from tapestry_sets.limits import as_int, quote

TINTS = ("#cfe3f5", "#a9cdec", "#7fb3df", "#5a9bd3")
"""Fill of the blocks of nested levels, outermost first."""


class _LevelBlock(NamedTuple):
    """The part [lo, hi) of a block [first, last) that is in its parent block and in the window."""

    lo: int
    hi: int
    first: int
    last: int


def _stripes(levels: Any) -> tuple[Any, ...]:
    found = getattr(levels, "written", levels)
    stripes = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    for at, stripe in enumerate(stripes):
        if not all(hasattr(stripe, name) for name in ("on", "off", "phase", "period")):
            mend = "; draw one of its members" if hasattr(levels, "members") else ""
            raise TypeError(
                f"draw: levels must be a Sett, a Stripe or stripes, not {quote(stripe)} at level {at}{mend}"
            )
    return stripes


def _level_blocks(stripes: Sequence[Any], start: int, stop: int) -> list[list[_LevelBlock]]:
    """Return the blocks of each level that show in a window, as the definition of nesting reads."""
    parents = [_LevelBlock(start, stop, 0, stop)] if start < stop else []
    levels: list[list[_LevelBlock]] = []
    for stripe in stripes:
        found: list[_LevelBlock] = []
        for parent in parents if stripe.on else ():
            zero = parent.first + stripe.phase
            first = zero + (parent.lo - zero - stripe.on) // stripe.period * stripe.period
            for z in range(first, parent.hi, stripe.period):
                if z + stripe.on > parent.lo:
                    lo, hi = max(z, parent.lo), min(z + stripe.on, parent.hi)
                    found.append(_LevelBlock(lo, hi, z, z + stripe.on))
        levels.append(found)
        parents = found
    return levels


def _level_window(stripes: Sequence[Any], start: object, stop: object) -> tuple[int, int]:
    first = as_int(start, "draw: start")
    period = stripes[0].period if stripes else 1
    last = max(first, first + period if stop is None else as_int(stop, "draw: stop"))
    canvas.check_cells(
        last - first, f"integers in [{first}, {last})", "give start and stop to draw a part", tuning.MAX_LENGTH
    )
    cells = (last - first) * (len(stripes) + 1)
    canvas.check_cells(cells, f"cells of {len(stripes)} levels", "give start and stop to draw a part")
    return first, last


def _shown(levels: Any, start: object, stop: object) -> tuple[int, int, list[str], list[list[_LevelBlock]], Int64Array]:
    """What is drawn: the integers [first, last), words before each row, the blocks of each level, and the elements.

    The elements are 1 for each integer that is one, else 0.
    """
    stripes = _stripes(levels)
    first, last = _level_window(stripes, start, stop)
    blocks = _level_blocks(stripes, first, last)
    heads = [f"{k}: on {s.on}, off {s.off}, phase {s.phase}" for k, s in enumerate(stripes, 1)]
    cells = np.full(last - first, not stripes, np.int64)
    for lo, hi, _, _ in blocks[-1] if blocks else ():
        cells[lo - first : hi - first] = 1
    return first, last, [*heads, "elements"], blocks, cells


def levels_text(levels: Any, start: int = 0, stop: int | None = None) -> str:
    """Return the nested levels of a sett as text: a line for each level's blocks, then one for the elements.

    A block is ``[==]``, or ``|`` if it is one integer; an end without its bracket is cut off by the window or by
    the block that it is nested in.

    Parameters
    ----------
    levels : Sett, Stripe or sequence of Stripe
        A sett, whose levels are drawn as they were written where it knows them, or stripes; outermost first.
    start, stop : int, optional
        The integers shown, by default one period.

    Returns
    -------
    str

    Raises
    ------
    TypeError
        If `levels` are not stripes.
    ValueError
        If more than 1,024 integers or 16,384 cells would be shown.

    Examples
    --------
    >>> from tapestry_sets.integers import Stripe
    >>> print(levels_text([Stripe(8, 8, -2), Stripe(3, 3, 1), Stripe(1, 1)], -2, 24))
                                0    5    10   15   20
    1: on 8, off 8, phase 14  [======]........[======]..
    2: on 3, off 3, phase 1   .[=]...[.........[=]...[..
    3: on 1, off 1, phase 0   .|.|...|.........|.|...|..
    elements                  .1.1...1.........1.1...1..

    References
    ----------
    Tapestry's document on nested striding, "The sett".
    """
    first, last, heads, blocks, cells = _shown(levels, start, stop)
    margin = max(map(len, heads)) + 2
    rows = [_blocks_text(row, first, last) for row in blocks] + ["".join(".1"[cell] for cell in cells)]
    lines = [" " * margin + canvas.ruler(range(first, last))]
    lines += [f"{head:<{margin}}{row}" for head, row in zip(heads, rows, strict=True)]
    return "\n".join(line.rstrip(" ") for line in lines)


def _blocks_text(blocks: Sequence[_LevelBlock], start: int, stop: int) -> str:
    line = ["."] * (stop - start)
    for lo, hi, first, last in blocks:
        line[lo - start : hi - start] = "=" * (hi - lo)
        if first == lo:
            line[lo - start] = "["
        if last == hi:
            line[hi - 1 - start] = "|" if first == lo == hi - 1 else "]"
    return "".join(line)


def levels_svg(levels: Any, start: int = 0, stop: int | None = None, cell: int | None = None, title: str = "") -> str:
    """Return the nested levels of a sett as an SVG drawing: a row of bars for each level, then the elements.

    The bars of a level stand below the bars that they are nested in; a bar without a rounded end is cut off by the
    window or by the bar above it.

    Parameters
    ----------
    levels, start, stop
        As for `levels_text`.
    cell : int, optional
        The width of an integer in pixels, by default what fits.
    title : str
        The words above the drawing.

    Returns
    -------
    str
        A complete ``<svg>`` element.

    Raises
    ------
    TypeError, ValueError
        As for `levels_text`, or if `cell` is less than 1.

    Examples
    --------
    >>> from tapestry_sets.integers import Stripe
    >>> drawing = levels_svg([Stripe(6, 1), Stripe(2, 1)], stop=14)
    >>> drawing.count("data-level"), drawing.count("<rect")
    (6, 14)

    References
    ----------
    Tapestry's document on nested striding, "The sett".
    """
    return canvas.document(levels_drawing(levels, start, stop, cell), title)


def levels_drawing(levels: Any, start: int = 0, stop: int | None = None, cell: int | None = None) -> canvas.Drawing:
    """Return the nested levels of a sett as a part of a drawing; see `levels_svg`."""
    first, last, heads, blocks, cells = _shown(levels, start, stop)
    margin = max(map(len, heads)) * canvas.CHARACTER + 16
    side = canvas.cell_size(cell, last - first, canvas.page_width() - margin, 1)
    parts: list[str] = []
    for k, row in enumerate(blocks):
        parts += _bars(row, k, margin - first * side, side)
    y = tuning.BARS_TOP + len(blocks) * tuning.BAR_ROW
    parts += [
        canvas.written(0, tuning.BARS_TOP + k * tuning.BAR_ROW + (12.5 if k < len(blocks) else 10.5), head)
        for k, head in enumerate(heads)
    ]
    grid = canvas.line_grid(cells, first, max(1, last - first))
    parts += [f'<g transform="translate({margin},{y})">', *canvas.cells_drawn(grid, side, 14, False), "</g>"]
    labels = range(first, last)
    parts += [
        canvas.written(margin + (k + 0.5) * side, canvas.SMALL, str(labels[k]), "middle")
        for k in canvas.ticks(labels, (canvas.widest(labels) + 1) * canvas.CHARACTER / side)
    ]
    width = margin + (last - first) * side + len(str(last)) * canvas.CHARACTER // 2 + 2
    return canvas.Drawing(width, y + canvas.LINE, tuple(parts))


def _bars(blocks: Sequence[_LevelBlock], level: int, zero: int, side: int) -> list[str]:
    """Return the bars of one level with lines from their ends to the next; integer 0 is at x = zero."""
    y = tuning.BARS_TOP + level * tuning.BAR_ROW
    tint = TINTS[min(level, len(TINTS) - 1)]
    parts = []
    for lo, hi, first, last in blocks:
        left, right = zero + lo * side, zero + hi * side
        r, s = (min(5, (right - left) // 2) if whole else 0 for whole in (first == lo, last == hi))
        outline = (
            f"M{left + r} {y}H{right - s}q{s} 0 {s} {s}V{y + tuning.BAR - s}q0 {s} -{s} {s}H{left + r}"
            f"q-{r} 0 -{r} -{r}V{y + r}q0 -{r} {r} -{r}z"
        )
        parts.append(f'<path d="{outline}" fill="{tint}" stroke="{canvas.INK}" stroke-width="0.75"')
        parts[-1] += f' data-level="{level + 1}" data-lo="{lo}" data-hi="{hi}"/>'
        guides = f"M{left} {y + tuning.BAR}V{y + tuning.BAR_ROW}M{right} {y + tuning.BAR}V{y + tuning.BAR_ROW}"
        parts.append(
            f'<path d="{guides}" stroke="{canvas.FAINT}" stroke-width="0.75" stroke-dasharray="2 2" fill="none"/>'
        )
    whole = next((b for b in blocks if (b.lo, b.hi) == (b.first, b.last)), None)
    return parts + (_length_of(whole, zero + whole.lo * side, y, side) if whole else [])


def _length_of(block: _LevelBlock, left: int, y: int, side: int) -> list[str]:
    """Return the length of a block as words in its bar, as many of them as fit."""
    n = block.hi - block.lo
    for words in (f"on {n}", str(n)):
        if len(words) * canvas.CHARACTER + 2 <= n * side:
            return [canvas.written(left + n * side / 2, y + 12.5, words, "middle")]
    return []


def show_levels(levels: Any, start: int = 0, stop: int | None = None, title: str = "") -> canvas.Picture:
    """Return a picture of the nested levels of a sett that a notebook draws and ``print`` writes.

    Parameters
    ----------
    levels, start, stop, title
        As for `levels_svg`.

    Returns
    -------
    Picture

    Examples
    --------
    >>> from tapestry_sets.integers import Stripe
    >>> show_levels([Stripe(4, 2), Stripe(1, 1)])
                             0 2 4
    1: on 4, off 2, phase 0  [==]..
    2: on 1, off 1, phase 0  |.|...
    elements                 1.1...
    """
    canvas.check_title(title)
    words = "\n".join([title] * bool(title) + [levels_text(levels, start, stop)])
    return canvas.draw_twice(lambda: (words, levels_svg(levels, start, stop, title=title)))
