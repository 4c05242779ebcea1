"""Pictures of sets: text such as ``.11.11.``, and SVG drawings with axes, a legend and counts.

The sets are taken by their verbs (`elements`, `points`, `shape`, `stripes`), so that this module imports none
of theirs and their reprs can use it. Several sets in one picture show their overlap.

In a drawing every cell is a ``<rect>`` and nothing else is; a cell that a set holds names its place in
``data-at``, and its group the sets in ``data-in``. So a program can read a drawing back.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from operator import index
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

MAX_CELLS = 1 << 14
"""A picture of more cells than this is refused: it would be no picture."""

MAX_LENGTH = 1 << 10
"""A picture of nested levels, which is one line, is refused above this many integers."""

SHOWN_CELLS = 1 << 12
"""The largest box that a notebook draws without being asked."""

SHOWN_LENGTH = 64
"""The longest period that is shown whole without being asked, and the cells in a line of a drawing."""

SHOWN_AT_LEAST = 24
"""Short periods are repeated to at least this many integers in a notebook, so that one sees that they repeat."""

PAGE = 960
"""The width in pixels that drawings keep to where they can."""

COLOURS = ("#ffffff", "#0072b2", "#d55e00", "#007a5a", "#aa3377", "#7a5c00", "#4b4bb5", "#555555")
"""Fill of a cell: nothing, first set, second set, and so on, then again from the first. White text is legible on
each, and they differ to colour-blind readers; a digit in each cell says the same where there are several sets."""

TINTS = ("#cfe3f5", "#a9cdec", "#7fb3df", "#5a9bd3")
"""Fill of the blocks of nested levels, outermost first."""

INK, FAINT, PAPER = "#222222", "#999999", "#ffffff"

MARKS = "123456789abcdefghijklmnopqrstuvw"
"""What stands for each set in text; ``X`` stands for two or more."""

Raster = npt.NDArray[np.int64]
"""Cells by (plane, row, column); bit i of a cell is set if set number i holds it."""


class IntegerSet(Protocol):
    """What `draw` needs of a set of integers."""

    @property
    def period(self) -> int:
        """The period of the set."""

    def elements(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Return the elements in [start, stop)."""


class PointSet(Protocol):
    """What `draw` needs of a set of points in a box."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the box."""

    @property
    def start(self) -> tuple[int, ...]:
        """The first point of the box."""

    def points(self) -> npt.NDArray[np.int64]:
        """Return the points, one in each row."""


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A picture in two forms: a notebook shows the drawing, ``print`` the text.

    Parameters
    ----------
    text : str
        With axes, and a legend where there are several sets.
    svg : str
        A complete ``<svg>`` element.
    """

    text: str
    svg: str

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": self.text, "image/svg+xml": self.svg}


def _integer(value: object, what: str) -> int:
    # as stripe.as_int, which is above this module
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"draw: {what} must be an integer, not the truth value {value!r}")
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"draw: {what} must be an integer, not {value!r} of type {type(value).__name__}") from None


def _positive(value: object, what: str) -> int:
    n = _integer(value, what)
    if n < 1:
        raise ValueError(f"draw: {what} must be at least 1, not {n}")
    return n


# ------------------------------------------------------------------------------------------------------- rasters


def raster(*sets: Any, start: int = 0, stop: int | None = None) -> Raster:
    """Return the cells of a picture of one or more sets of the same kind.

    Parameters
    ----------
    *sets : Stripe, Sett, Setts, Intersection, Region, Regions or ImplicitRegion
        All sets of integers, or all regions in one box of rank 0 to 3; at most 32.
    start, stop : int, optional
        The integers shown; one period of the first set by default. Regions are shown with their whole box.

    Returns
    -------
    numpy.ndarray
        int64, of shape (planes, rows, columns).

    Raises
    ------
    TypeError
        If an argument is no set, or sets of integers are mixed with regions.
    ValueError
        If there is no set, the boxes differ, the rank exceeds 3, the picture exceeds 16,384 cells, or a window is
        given for regions.

    Examples
    --------
    >>> from tapestry_sets.stripe import Stripe
    >>> raster(Stripe(2, 2), Stripe(1, 2), stop=8).tolist()
    [[[3, 1, 0, 2, 1, 1, 2, 0]]]
    """
    if _check_kind(sets):
        if stop is not None or _integer(start, "start"):
            raise ValueError(f"draw: start={start}, stop={stop} are for sets of integers; slice a region instead")
        return _region_raster(sets)
    first, last = _window(sets[0], start, stop)
    cells = np.zeros((1, 1, last - first), np.int64)
    for i, s in enumerate(sets):
        cells[0, 0, s.elements(first, last) - first] |= 1 << i
    return cells


def _check_kind(sets: Sequence[Any]) -> bool:
    """Return whether all are sets of points, rather than all sets of integers."""
    if not sets:
        raise ValueError("draw: needs at least one set")
    if len(sets) > len(MARKS):
        raise ValueError(f"draw: {len(sets)} sets are more than {len(MARKS)} in one picture; draw a part of them")
    for at, s in enumerate(sets):
        if not (hasattr(s, "points") or hasattr(s, "elements")):
            raise TypeError(
                f"draw: argument {at} must be a Stripe, Sett, Setts, Intersection, Region or Regions, not {s!r}; "
                "views have views_text and views_svg"
            )
        if hasattr(s, "points") != hasattr(sets[0], "points"):
            raise TypeError(f"draw: argument {at}, {s!r}, and argument 0 must both be sets of integers or both regions")
    return hasattr(sets[0], "points")


def _window(s: IntegerSet, start: object, stop: object) -> tuple[int, int]:
    first = _integer(start, "start")
    last = first + s.period if stop is None else _integer(stop, "stop")
    if last < first:
        raise ValueError(f"draw: stop must be >= start, not start={first}, stop={last}")
    _check_cells(last - first, f"integers in [{first}, {last})", "give start and stop to draw a part")
    return first, last


def _region_raster(regions: Sequence[PointSet]) -> Raster:
    shape, start = tuple(regions[0].shape), tuple(regions[0].start)
    if len(shape) > 3:
        raise ValueError(f"draw: shape {shape} has rank {len(shape)}; slice it to rank 3 or less, or flatten it")
    box = (1,) * (3 - len(shape)) + shape
    size = 1
    for n in box:
        size *= n
    _check_cells(size, f"points of shape {shape}", "slice it to draw a part")
    cells = np.zeros(box, np.int64)
    for i, r in enumerate(regions):
        if (tuple(r.shape), tuple(r.start)) != (shape, start):
            where = f"not {shape} from {start} and {tuple(r.shape)} from {tuple(r.start)}"
            raise ValueError(f"draw: regions must be in one box, {where}")
        at = np.asarray(r.points(), np.int64) - np.asarray(start, np.int64)
        flat = cells.reshape(shape)  # a view: all the added axes have extent 1
        flat[tuple(at.T)] |= 1 << i
    return cells


def _check_cells(n: int, what: str, mend: str, most: int = MAX_CELLS) -> None:
    if n > most:
        raise ValueError(f"draw: {n} {what} are more than {most}; {mend}")


# --------------------------------------------------------------------------------- grids: cells with coordinates


@dataclass(frozen=True, slots=True)
class _Grid:
    """One plane of a picture: cells by (row, column), -1 where there is none, and what labels them.

    `at` says the place of a cell; `plus` is before the labels of columns that count from their row's label.
    """

    cells: npt.NDArray[np.int64]
    rows: Sequence[int]
    columns: Sequence[int]
    caption: str
    at: Callable[[int, int], str]
    plus: str = ""


def _line_grid(cells: npt.NDArray[np.int64], start: int, wrap: int) -> _Grid:
    """Return the cells of a line, folded into rows of `wrap`."""
    n = len(cells)
    width = max(1, min(wrap, n))
    rows = max(1, -(-n // width))
    folded = np.full(rows * width, -1, np.int64)
    folded[:n] = cells

    def at(row: int, column: int) -> str:
        return str(start + row * width + column)

    if rows == 1:
        return _Grid(folded[None, :n], (), range(start, start + n), "", at)
    return _Grid(folded.reshape(rows, width), range(start, start + n, width), range(width), "", at, "+")


def _grids(cells: Raster, start: Sequence[int], wrap: int = SHOWN_LENGTH) -> list[_Grid]:
    """Return the planes of a raster of a box that begins at `start`; its rank is that of `start`."""
    if not start:
        return [_Grid(cells[0], (), (), "", lambda row, column: "")]
    if len(start) == 1:
        return [_line_grid(cells[0, 0], start[0], wrap)]
    planes, rows, columns = cells.shape
    y, x = start[-2:]
    down, across = range(y, y + rows), range(x, x + columns)
    if len(start) == 2:
        label = "axis 0 down, axis 1 across"
        return [_Grid(cells[0], down, across, label, lambda row, column: f"{y + row},{x + column}")]
    return [
        _Grid(cells[z], down, across, f"[{start[0] + z}, :, :]", _in_plane(start[0] + z, y, x)) for z in range(planes)
    ]


def _in_plane(plane: int, y: int, x: int) -> Callable[[int, int], str]:
    return lambda row, column: f"{plane},{y + row},{x + column}"


def _widest(labels: Sequence[int], plus: str = "") -> int:
    """Return how many characters the longest label has; labels ascend or descend."""
    return max((len(f"{plus}{label}") for label in (*labels[:1], *labels[-1:])), default=0)


def _ticks(labels: Sequence[int], room: float) -> list[int]:
    """Return which positions to label, where a label needs as much room as `room` of them: those of round numbers."""
    least = max(1, math.ceil(room))
    if len(labels) > 1 and labels[1] - labels[0] != 1:  # rows of a folded line
        return list(range(0, len(labels), least))
    power = 10 ** (len(str(least)) - 1)
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= least)
    return [k for k, label in enumerate(labels) if label % step == 0] or [0][: len(labels)]


# ---------------------------------------------------------------------------------------------------------- text


def text(*sets: Any, start: int = 0, stop: int | None = None, axes: bool = False, wrap: int = SHOWN_LENGTH) -> str:
    """Return sets as text: ``.`` for a free cell, ``1`` for one of the first set.

    With several sets, a mark (1 to 9, then a to w) is the number of the only set there, and ``X`` is where two or
    more overlap. Rows are lines; planes are apart by an empty line.

    Parameters
    ----------
    *sets, start, stop
        As for `raster`.
    axes : bool
        Whether coordinates are written above and beside the cells, and lines are folded.
    wrap : int
        With `axes`, the cells in a line of a one-dimensional picture.

    Returns
    -------
    str

    Raises
    ------
    TypeError, ValueError
        As for `raster`, or if `wrap` is less than 1.

    Examples
    --------
    >>> from tapestry_sets.sett import Sett
    >>> from tapestry_sets.stripe import Stripe
    >>> text(Sett(Stripe(6, 1), Stripe(2, 1)), stop=16)
    '11.11..11.11..11'
    >>> text(Stripe(2, 2), Stripe(1, 2), stop=12)
    'X1.2112.1X..'
    >>> print(text(Stripe(2, 5), stop=28, axes=True, wrap=14))
       +0   +5   +10
     0 11.....11.....
    14 11.....11.....
    """
    cells = raster(*sets, start=start, stop=stop)
    if not axes:
        return text_of(cells)
    grids = _grids(cells, _origin(sets, start), _positive(wrap, "wrap"))
    return "\n\n".join(map(_grid_text, grids))


def text_of(cells: Raster) -> str:
    """Return a raster as text; see `text`."""
    planes = ["\n".join("".join(_mark(int(c)) for c in row) for row in plane) for plane in cells]
    return "\n\n".join(planes)


def _mark(code: int) -> str:
    if code <= 0:
        return "." if code == 0 else " "
    return MARKS[code.bit_length() - 1] if code & (code - 1) == 0 else "X"


def _origin(sets: Sequence[Any], start: object) -> tuple[int, ...]:
    return tuple(sets[0].start) if hasattr(sets[0], "points") else (_integer(start, "start"),)


def _grid_text(grid: _Grid) -> str:
    labels = [str(row) for row in grid.rows]
    margin = max(map(len, labels), default=0)
    pad = " " * (margin + 1) if labels else ""
    lines = [grid.caption] if grid.caption else []
    if grid.columns:
        lines.append(pad + _ruler(grid.columns, grid.plus))
    for at, row in enumerate(grid.cells):
        head = f"{labels[at]:>{margin}} " if labels else ""
        lines.append((head + "".join(_mark(int(c)) for c in row)).rstrip(" "))
    return "\n".join(line.rstrip(" ") for line in lines)


def _ruler(labels: Sequence[int], plus: str = "") -> str:
    """Return coordinates as text, each beginning above its cell."""
    line = ""
    for k in _ticks(labels, _widest(labels, plus) + 1):
        line = f"{line:<{k}}{plus}{labels[k]}"
    return line


# ---------------------------------------------------------------------------------------------- parts of drawings


class _Drawing(NamedTuple):
    """A part of a drawing: elements in the rectangle from (0, 0) to (width, height)."""

    width: int
    height: int
    parts: tuple[str, ...]


CHARACTER, SMALL, LINE = 6, 10, 16
"""Pixels: the advance of a small monospaced character, its font size, and the height of a line."""


def _clean(words: str) -> str:
    """Return words as XML text; characters that XML does not know become question marks."""
    return escape(re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", words))


def _words(x: float, y: float, words: str, anchor: str = "start", size: int = SMALL, fill: str = INK) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" fill="{fill}">{_clean(words)}</text>'


def _short(words: str, most: int = 100) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def _below(drawings: Iterable[_Drawing], gap: int = 8) -> _Drawing:
    """Return drawings one below the other."""
    parts: list[str] = []
    width = y = 0
    for drawing in drawings:
        y += gap if y else 0
        parts += [f'<g transform="translate(0,{y})">', *drawing.parts, "</g>"]
        width, y = max(width, drawing.width), y + drawing.height
    return _Drawing(width, y, tuple(parts))


def _beside(drawings: Sequence[_Drawing], gap: int = 12) -> _Drawing:
    """Return drawings side by side, in as many rows as the page's width asks for."""
    rows: list[_Drawing] = []
    parts: list[str] = []
    x = height = 0
    for drawing in drawings:
        if x and x + drawing.width > PAGE:
            rows.append(_Drawing(x - gap, height, tuple(parts)))
            parts, x, height = [], 0, 0
        parts += [f'<g transform="translate({x},0)">', *drawing.parts, "</g>"]
        x, height = x + drawing.width + gap, max(height, drawing.height)
    rows.append(_Drawing(max(0, x - gap), height, tuple(parts)))
    return _below(rows)


def _document(drawing: _Drawing, title: str, margin: int = 8) -> str:
    """Return a drawing as a complete element, on paper of its own so that dark pages do not swallow it."""
    if title:
        line = _short(title)
        words = _words(0, 12, line, size=12).replace("<text ", '<text font-weight="bold" ', 1)
        drawing = _below([_Drawing(8 * len(line), LINE, (words,)), drawing], 6)
    width, height = drawing.width + 2 * margin, drawing.height + 2 * margin
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img" preserveAspectRatio="xMinYMin" style="max-width:100%" '
        'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace">'
    )
    paper = f'<path d="M0 0H{width}V{height}H0Z" fill="{PAPER}"/>'
    inside = [f'<g transform="translate({margin},{margin})">', *drawing.parts, "</g>"]
    return "\n".join([head, f"<title>{_clean(_short(title or 'a set', 500))}</title>", paper, *inside, "</svg>"])


def _grid_drawing(grid: _Grid, cell: int, marks: bool) -> _Drawing:
    """Return a plane: caption, coordinates above and beside, and cells."""
    rows, columns = grid.cells.shape
    wide = _widest(grid.columns, grid.plus) * CHARACTER
    left = max(_widest(grid.rows) * CHARACTER + 5 if grid.rows else 0, wide // 2)
    top = (LINE if grid.caption else 0) + (SMALL + 4 if grid.columns else 0)
    parts = [_words(0, SMALL, grid.caption)] if grid.caption else []
    parts += [
        _words(left + (k + 0.5) * cell, top - 4, f"{grid.plus}{grid.columns[k]}", "middle")
        for k in _ticks(grid.columns, (wide + CHARACTER) / cell)
    ]
    parts += [
        _words(left - 4, top + (k + 0.5) * cell + 3.5, str(grid.rows[k]), "end")
        for k in _ticks(grid.rows, (SMALL + 1) / cell)
    ]
    parts += [f'<g transform="translate({left},{top})">', *_cells_drawn(grid, cell, cell, marks), "</g>"]
    width = max(left + columns * cell + max(2, wide // 2), len(grid.caption) * CHARACTER)
    return _Drawing(width, top + rows * cell + 2, tuple(parts))


def _cells_drawn(grid: _Grid, wide: int, tall: int, marks: bool) -> list[str]:
    """Return the cells, a group for each combination of sets."""
    parts: list[str] = []
    for code in np.unique(grid.cells[grid.cells >= 0]).tolist():
        held = [i for i in range(len(MARKS)) if code >> i & 1]
        places = np.argwhere(grid.cells == code).tolist()
        parts += _squares(grid, places, held, wide, tall)
        if marks and held and wide >= 10:
            parts.append(f'<g fill="{PAPER}" font-size="{SMALL}" font-weight="bold" text-anchor="middle">')
            parts += [
                f'<text x="{(column + 0.5) * wide:g}" y="{(row + 0.5) * tall + 3.5:g}">{_mark(code)}</text>'
                for row, column in places
            ]
            parts.append("</g>")
    return parts


def _squares(grid: _Grid, places: Sequence[list[int]], held: Sequence[int], wide: int, tall: int) -> list[str]:
    """Return the cells that exactly the sets `held` hold: of their colour, or in bands with a dark outline."""
    parts: list[str] = []
    fill, stroke, line = (_colour(held[0]), FAINT, 0.5) if held else (PAPER, FAINT, 0.5)
    if len(held) > 1:
        parts += _bands([(column * wide, row * tall) for row, column in places], held, wide, tall)
        fill, stroke, line = "none", INK, 1.5
    if wide < 5:
        line /= 5  # outlines would cover narrow cells
    sets = " ".join(str(i + 1) for i in held)
    parts.append(f'<g fill="{fill}" stroke="{stroke}" stroke-width="{line:g}" data-in="{sets}">')
    for row, column in places:
        at = f' data-at="{grid.at(row, column)}"' if held else ""
        parts.append(f'<rect x="{column * wide}" y="{row * tall}" width="{wide}" height="{tall}"{at}/>')
    parts.append("</g>")
    return parts


def _colour(number: int) -> str:
    return COLOURS[1 + number % (len(COLOURS) - 1)]


def _bands(corners: Sequence[tuple[int, int]], held: Sequence[int], width: int, height: int) -> list[str]:
    """Return squares that are cut into a band for each set."""
    tall = height / len(held)
    return [
        f'<path fill="{_colour(i)}" d="'
        + "".join(f"M{x} {y + k * tall:g}h{width}v{tall:g}h-{width}z" for x, y in corners)
        + '"/>'
        for k, i in enumerate(held)
    ]


def _counts(cells: Raster, names: Sequence[str]) -> list[tuple[list[int], str, str]]:
    """Return a line of the legend for each set and for their overlap: the sets, a mark and words."""
    held = cells[cells >= 0]
    lines = []
    for i, name in enumerate(names):
        n = int((held >> i & 1).sum())
        lines.append(([i], MARKS[i], f"{_short(name, 80)}: {n} of {held.size} cells"))
    if len(names) > 1:
        n = int((held & (held - 1) != 0).sum())
        lines.append(([0, 1], "X", f"in two or more: {n} of {held.size} cells"))
    return lines


def _legend(cells: Raster, names: Sequence[str]) -> _Drawing:
    parts: list[str] = []
    lines = _counts(cells, names)
    for at, (held, mark, words) in enumerate(lines):
        y = at * LINE
        parts += _bands([(0, y)], held, 14, 14)
        if len(names) > 1:
            parts.append(_words(7, y + 10.5, mark, "middle", fill=PAPER))
        parts.append(_words(20, y + 10.5, words))
    return _Drawing(
        20 + max((len(words) for *_, words in lines), default=0) * CHARACTER, len(lines) * LINE, tuple(parts)
    )


def _cell_size(cell: int | None, columns: int, page: int = PAGE, least: int = 3) -> int:
    """Return the side of a square: as asked for, or what fits the page."""
    return max(least, min(14, page // max(1, columns))) if cell is None else _positive(cell, "cell")


def _names(sets: Sequence[Any], names: Sequence[str] | None) -> list[str]:
    if names is None:
        return [_short(repr(s), 80) for s in sets]
    if isinstance(names, str) or len(names) != len(sets) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"draw: names must be a sequence of {len(sets)} strings, one for each set, not {names!r}")
    return list(names)


def _grids_drawn(grids: Sequence[_Grid], cell: int | None, several: bool) -> _Drawing:
    side = _cell_size(cell, max((grid.cells.shape[1] for grid in grids), default=1))
    if len(grids) == 1:
        return _grid_drawing(grids[0], side, several)
    words = "planes: axis 0; in each, axis 1 down and axis 2 across"
    caption = _Drawing(len(words) * CHARACTER, LINE, (_words(0, SMALL, words),))
    return _below([caption, _beside([_grid_drawing(grid, side, several) for grid in grids])])


def svg(
    *sets: Any,
    start: int = 0,
    stop: int | None = None,
    cell: int | None = None,
    names: Sequence[str] | None = None,
    title: str = "",
    wrap: int = SHOWN_LENGTH,
) -> str:
    """Return sets as an SVG drawing: a square for each cell, coloured by the sets that hold it, with coordinates.

    A cell that several sets hold is cut into a band for each and marked ``X``. Below are the sets and how many of
    the cells each holds. Sets of integers fold after `wrap` cells; the planes of a box of rank 3 are side by side.

    Parameters
    ----------
    *sets, start, stop
        As for `raster`.
    cell : int, optional
        The side of a square in pixels, by default 14 or what fits.
    names : sequence of str, optional
        What the legend calls the sets; by default their reprs.
    title : str
        The words above the drawing.
    wrap : int
        The cells in a line of a one-dimensional drawing.

    Returns
    -------
    str
        A complete ``<svg>`` element.

    Raises
    ------
    TypeError, ValueError
        As for `raster`, or if `cell` or `wrap` is less than 1 or `names` are not as many as the sets.

    Examples
    --------
    >>> from tapestry_sets.stripe import Stripe
    >>> svg(Stripe(1, 1), stop=4).count("<rect")
    4
    """
    cells, called = raster(*sets, start=start, stop=stop), _names(sets, names)
    grids = _grids(cells, _origin(sets, start), _positive(wrap, "wrap"))
    return _sets_svg(cells, grids, called, title, cell)


def _sets_svg(cells: Raster, grids: Sequence[_Grid], names: Sequence[str], title: str, cell: int | None = None) -> str:
    return _document(_below([_grids_drawn(grids, cell, len(names) > 1), _legend(cells, names)]), title)


def show(
    *things: Any,
    start: int = 0,
    stop: int | None = None,
    names: Sequence[str] | None = None,
    title: str = "",
    wrap: int = SHOWN_LENGTH,
) -> Picture:
    """Return a picture of sets, or of views in memory, that a notebook draws and ``print`` writes.

    Parameters
    ----------
    *things
        Sets as for `raster`, or views.
    start, stop, names, title, wrap
        As for `svg`; views take `names` and `title` alone.

    Returns
    -------
    Picture

    Raises
    ------
    TypeError, ValueError
        As for `svg`, or if views come with a window.

    Examples
    --------
    >>> from tapestry_sets.stripe import Stripe
    >>> show(Stripe(2, 2), Stripe(1, 2), stop=12, names=["pairs", "thirds"])
    0    5    10
    X1.2112.1X..
    1  pairs: 6 of 12 cells
    2  thirds: 4 of 12 cells
    X  in two or more: 2 of 12 cells
    """
    if things and all(hasattr(thing, "origins") for thing in things):
        if stop is not None or start:
            raise ValueError(f"draw: start={start}, stop={stop} are for sets of integers; slice the views instead")
        return _views_picture(things, names, title)
    cells, called = raster(*things, start=start, stop=stop), _names(things, names)
    grids = _grids(cells, _origin(things, start), _positive(wrap, "wrap"))
    lines = [title] if title else []
    lines += ["\n\n".join(map(_grid_text, grids)), *(f"{mark}  {words}" for _, mark, words in _counts(cells, called))]
    return Picture("\n".join(lines), _sets_svg(cells, grids, called, title))


# --------------------------------------------------------------------------------------------------- nested levels


class _Block(NamedTuple):
    """The part [lo, hi) of a block [first, last) that is in its parent block and in the window."""

    lo: int
    hi: int
    first: int
    last: int


def _stripes(levels: Any) -> tuple[Any, ...]:
    found = getattr(levels, "stripes", levels)
    stripes = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    for at, stripe in enumerate(stripes):
        if not all(hasattr(stripe, name) for name in ("on", "off", "phase", "period")):
            mend = "; draw one of its members" if hasattr(levels, "members") else ""
            raise TypeError(f"draw: levels must be a Sett, a Stripe or stripes, not {stripe!r} at level {at}{mend}")
    return stripes


def _level_blocks(stripes: Sequence[Any], start: int, stop: int) -> list[list[_Block]]:
    """Return the blocks of each level that show in a window, as the definition of nesting reads."""
    parents = [_Block(start, stop, 0, stop)] if start < stop else []
    levels: list[list[_Block]] = []
    for stripe in stripes:
        found: list[_Block] = []
        for parent in parents if stripe.on else ():
            zero = parent.first + stripe.phase
            first = zero + (parent.lo - zero - stripe.on) // stripe.period * stripe.period
            for z in range(first, parent.hi, stripe.period):
                if z + stripe.on > parent.lo:
                    lo, hi = max(z, parent.lo), min(z + stripe.on, parent.hi)
                    found.append(_Block(lo, hi, z, z + stripe.on))
        levels.append(found)
        parents = found
    return levels


def _level_window(stripes: Sequence[Any], start: object, stop: object) -> tuple[int, int]:
    first = _integer(start, "start")
    period = stripes[0].period if stripes else 1
    last = max(first, first + period if stop is None else _integer(stop, "stop"))
    _check_cells(last - first, f"integers in [{first}, {last})", "give start and stop to draw a part", MAX_LENGTH)
    cells = (last - first) * (len(stripes) + 1)
    _check_cells(cells, f"cells of {len(stripes)} levels", "give start and stop to draw a part")
    return first, last


def _elements(stripes: Sequence[Any], blocks: Sequence[Sequence[_Block]], start: int, stop: int) -> list[int]:
    if not stripes:
        return list(range(start, stop))
    return [z for block in blocks[-1] for z in range(block.lo, block.hi)]


def levels_text(levels: Any, start: int = 0, stop: int | None = None) -> str:
    """Return the nested levels of a sett as text: a line for each level's blocks, then one for the elements.

    A block is ``[==]``, or ``|`` if it is one integer; an end without its bracket is cut off by the window or by
    the block that it is nested in.

    Parameters
    ----------
    levels : Sett, Stripe or sequence of Stripe
        A sett's own levels, or stripes just as they are written, outermost first.
    start, stop : int, optional
        The integers shown, by default one period.

    Returns
    -------
    str

    Raises
    ------
    TypeError
        If `levels` are no stripes.
    ValueError
        If more than 1,024 integers or 16,384 cells would be shown.

    Examples
    --------
    >>> from tapestry_sets.stripe import Stripe
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
    stripes = _stripes(levels)
    first, last = _level_window(stripes, start, stop)
    blocks = _level_blocks(stripes, first, last)
    heads = [f"{k}: {_parameters(s)}" for k, s in enumerate(stripes, 1)] + ["elements"]
    margin = max(map(len, heads)) + 2
    lines = [" " * margin + _ruler(range(first, last))]
    for head, row in zip(heads, blocks, strict=False):
        lines.append(f"{head:<{margin}}{_blocks_text(row, first, last)}")
    held = set(_elements(stripes, blocks, first, last))
    lines.append(f"{'elements':<{margin}}{''.join('1' if z in held else '.' for z in range(first, last))}")
    return "\n".join(line.rstrip(" ") for line in lines)


def _parameters(stripe: Any) -> str:
    return f"on {stripe.on}, off {stripe.off}, phase {stripe.phase}"


def _blocks_text(blocks: Sequence[_Block], start: int, stop: int) -> str:
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
    >>> from tapestry_sets.stripe import Stripe
    >>> drawing = levels_svg([Stripe(6, 1), Stripe(2, 1)], stop=14)
    >>> drawing.count("data-level"), drawing.count("<rect")
    (6, 14)

    References
    ----------
    Tapestry's document on nested striding, "The sett".
    """
    stripes = _stripes(levels)
    first, last = _level_window(stripes, start, stop)
    blocks = _level_blocks(stripes, first, last)
    heads = [f"{k}: {_parameters(s)}" for k, s in enumerate(stripes, 1)] + ["elements"]
    margin = max(map(len, heads)) * CHARACTER + 16
    side = _cell_size(cell, last - first, PAGE - margin, 1)
    parts: list[str] = []
    for k, row in enumerate(blocks):
        parts += _bars(row, k, margin - first * side, side)
    y = BARS_TOP + len(stripes) * BAR_ROW
    parts += [
        _words(0, BARS_TOP + k * BAR_ROW + (12.5 if k < len(stripes) else 10.5), head) for k, head in enumerate(heads)
    ]
    grid = _line_grid(_marked(_elements(stripes, blocks, first, last), first, last), first, max(1, last - first))
    parts += [f'<g transform="translate({margin},{y})">', *_cells_drawn(grid, side, 14, False), "</g>"]
    labels = range(first, last)
    parts += [
        _words(margin + (k + 0.5) * side, SMALL, str(labels[k]), "middle")
        for k in _ticks(labels, (_widest(labels) + 1) * CHARACTER / side)
    ]
    width = margin + (last - first) * side + len(str(last)) * CHARACTER // 2 + 2
    return _document(_Drawing(width, y + LINE, tuple(parts)), title)


BARS_TOP, BAR_ROW, BAR = 16, 28, 18
"""Pixels: above the first row of bars, from one row to the next, and the height of a bar."""


def _marked(elements: Sequence[int], start: int, stop: int) -> npt.NDArray[np.int64]:
    cells = np.zeros(stop - start, np.int64)
    cells[[z - start for z in elements]] = 1
    return cells


def _bars(blocks: Sequence[_Block], level: int, zero: int, side: int) -> list[str]:
    """Return the bars of one level with lines from their ends to the next; integer 0 is at x = zero."""
    y = BARS_TOP + level * BAR_ROW
    tint = TINTS[min(level, len(TINTS) - 1)]
    parts = []
    for lo, hi, first, last in blocks:
        left, right = zero + lo * side, zero + hi * side
        r, s = (min(5, (right - left) // 2) if whole else 0 for whole in (first == lo, last == hi))
        outline = (
            f"M{left + r} {y}H{right - s}q{s} 0 {s} {s}V{y + BAR - s}q0 {s} -{s} {s}H{left + r}"
            f"q-{r} 0 -{r} -{r}V{y + r}q0 -{r} {r} -{r}z"
        )
        parts.append(f'<path d="{outline}" fill="{tint}" stroke="{INK}" stroke-width="0.75"')
        parts[-1] += f' data-level="{level + 1}" data-lo="{lo}" data-hi="{hi}"/>'
        guides = f"M{left} {y + BAR}V{y + BAR_ROW}M{right} {y + BAR}V{y + BAR_ROW}"
        parts.append(f'<path d="{guides}" stroke="{FAINT}" stroke-width="0.75" stroke-dasharray="2 2" fill="none"/>')
    whole = next((b for b in blocks if (b.lo, b.hi) == (b.first, b.last)), None)
    return parts + (_length_of(whole, zero + whole.lo * side, y, side) if whole else [])


def _length_of(block: _Block, left: int, y: int, side: int) -> list[str]:
    """Return the length of a block as words in its bar, as many of them as fit."""
    n = block.hi - block.lo
    for words in (f"on {n}", str(n)):
        if len(words) * CHARACTER + 2 <= n * side:
            return [_words(left + n * side / 2, y + 12.5, words, "middle")]
    return []


def show_levels(levels: Any, start: int = 0, stop: int | None = None, title: str = "") -> Picture:
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
    >>> from tapestry_sets.stripe import Stripe
    >>> show_levels([Stripe(4, 2), Stripe(1, 1)])
                             0 2 4
    1: on 4, off 2, phase 0  [==]..
    2: on 1, off 1, phase 0  |.|...
    elements                 1.1...
    """
    words = levels_text(levels, start, stop)
    return Picture(f"{title}\n{words}" if title else words, levels_svg(levels, start, stop, title=title))


# ------------------------------------------------------------------------------------------------------ for reprs


def summary(x: Any) -> str:
    """Return a picture of a set where one can be drawn, else its repr: what ``str`` shows.

    Sets of integers are shown over one period, or 64 integers of a longer one, from the first element if there is
    none in [0, 64).

    Examples
    --------
    >>> from tapestry_sets.stripe import Stripe
    >>> summary(Stripe(2, 3)), summary(Stripe(1, 10**9))
    ('11...', '1.................................................................. (period 1000000001)')
    """
    try:
        return _summary(x)
    except ValueError:  # what is not listed may be too hard to list
        return repr(x)


def _summary(x: Any) -> str:
    if hasattr(x, "points"):
        return text(x) if _is_small(x) else repr(x)
    if x.period <= SHOWN_LENGTH:
        return text(x)
    start = _first_shown(x)
    where = f"from {start}: " if start else ""
    return f"{where}{text(x, start=start, stop=start + SHOWN_LENGTH)}... (period {_number(x.period)})"


def _number(n: int) -> str:
    """Return a number in words of bounded length; Python does not write very long ones."""
    return str(n) if n.bit_length() < 100 else f"over 2**{n.bit_length() - 1}"


def _is_small(x: PointSet) -> bool:
    size = 1
    for n in x.shape:
        size *= n
    return len(x.shape) <= 3 and all(0 < n <= SHOWN_LENGTH for n in x.shape) and size <= SHOWN_CELLS


def _first_shown(x: Any) -> int:
    """Return where the window of a long period begins: at 0, or at the first element beyond it."""
    # a search may be long in a set that is not listed, and elements must fit int64
    is_listed = any(hasattr(x, name) for name in ("on", "stripes", "members"))
    if not is_listed or len(x.elements(0, SHOWN_LENGTH)):
        return 0
    found = x.find(0)
    return found if found is not None and found < 1 << 62 else 0


def mimebundle(x: Any) -> dict[str, str]:
    """Return the forms in which a notebook shows a set: its repr, and a drawing of it or of a part of it."""
    words, name = summary(x), repr(x)
    if words == name:
        return {"text/plain": name}
    drawing = svg(x, title=name, names=["points"]) if hasattr(x, "points") else _integers_svg(x, name)
    return {"text/plain": f"{name}\n{words}", "image/svg+xml": drawing}


def _integers_svg(x: Any, name: str) -> str:
    """Return a window of a set of integers: some periods of a short one, 64 integers of a long one."""
    period = x.period
    start = _first_shown(x) if period > SHOWN_LENGTH else 0
    length = min(SHOWN_LENGTH, -(-SHOWN_AT_LEAST // period) * period)
    title = f"{_short(name, 70)}, period {_number(period)}"
    if len(getattr(x, "stripes", ())) in range(2, 9):
        return levels_svg(x, start, start + length, title=title)
    return svg(x, start=start, stop=start + length, title=title, names=[f"elements in [{start}, {start + length})"])


# ------------------------------------------------------------------------------------------------------- views


def view_rasters(*views: Any) -> dict[Any, Raster]:
    """Return, for each allocation that the views read, a raster of the cells that each view reads.

    Parameters
    ----------
    *views : View
        An allocation of more than three axes is shown as the line of its cells in row-major order.

    Raises
    ------
    TypeError
        If an argument is no view.
    ValueError
        If there is no view, or an allocation has more than 16,384 cells.

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((4,))
    >>> view_rasters(A[::2], A[:3])[A].tolist()
    [[[3, 2, 3, 0]]]
    """
    if not views:
        raise ValueError("draw: needs at least one view")
    if len(views) > len(MARKS):
        raise ValueError(f"draw: {len(views)} views are more than {len(MARKS)} in one picture; draw a part of them")
    rasters: dict[Any, Raster] = {}
    for i, view in enumerate(views):
        if not hasattr(view, "origins"):
            raise TypeError(f"draw: argument {i} must be a view, not {view!r}; sets have text and svg")
        for allocation in view.allocations:
            _check_cells(allocation.size, f"cells of {allocation!r}", "draw views of a smaller allocation")
        for allocation, regions in view.origins().items():
            cells = _memory_raster(regions) << i
            rasters[allocation] = rasters[allocation] | cells if allocation in rasters else cells
    return rasters


def _memory_raster(regions: Any) -> Raster:
    if len(regions.shape) <= 3:
        return _region_raster([regions])
    cells = np.zeros((1, 1, int(np.prod(regions.shape))), np.int64)
    cells[0, 0, np.ravel_multi_index(tuple(regions.points().T), regions.shape)] = 1
    return cells


def _memory_name(allocation: Any) -> str:
    return f"{allocation.name} {allocation.shape}" if allocation.name else f"{allocation.shape}"


def views_text(*views: Any) -> str:
    """Return where views lie in memory as text; the marks are those of `text`.

    Parameters
    ----------
    *views : View
        As for `view_rasters`.

    Raises
    ------
    TypeError, ValueError
        As for `view_rasters`.

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((27,), name="A")
    >>> print(views_text(A.reshape(3, 3, 3)[:2, :2, :2], A[2::5]))
    A
    11211..2.11.X1...2....2....
    """
    rasters = view_rasters(*views)
    return "\n".join(f"{a.name or a.shape}\n{text_of(cells)}" for a, cells in rasters.items())


def views_svg(*views: Any, cell: int | None = None) -> dict[Any, str]:
    """Return where views lie in memory, one SVG drawing for each allocation; `cell` is a square's side in pixels.

    Parameters
    ----------
    *views : View
        As for `view_rasters`.
    cell : int, optional
        As for `svg`.

    Raises
    ------
    TypeError, ValueError
        As for `view_rasters`.

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((4,))
    >>> views_svg(A[::2])[A].count("<rect")
    4
    """
    names = _names(views, None)
    return {
        allocation: _document(_memory_drawing(allocation, cells, names, cell), "")
        for allocation, cells in view_rasters(*views).items()
    }


def _memory_grids(allocation: Any, cells: Raster) -> list[_Grid]:
    rank = len(allocation.shape)
    return _grids(cells, (0,) * (rank if rank <= 3 else 1))


def _memory_drawing(allocation: Any, cells: Raster, names: Sequence[str], cell: int | None = None) -> _Drawing:
    name = _short(_memory_name(allocation), 80)
    head = _Drawing(len(name) * CHARACTER, LINE, (_words(0, SMALL, name),))
    grids = _grids_drawn(_memory_grids(allocation, cells), cell, len(names) > 1)
    return _below([head, grids, _legend(cells, names)], 4)


def _views_picture(views: Sequence[Any], names: Sequence[str] | None, title: str) -> Picture:
    rasters = view_rasters(*views)
    called = _names(views, names)
    lines = [title] if title else []
    for allocation, cells in rasters.items():
        lines += [_memory_name(allocation), "\n\n".join(map(_grid_text, _memory_grids(allocation, cells)))]
        lines += [f"{mark}  {words}" for _, mark, words in _counts(cells, called)]
    drawings = [_memory_drawing(allocation, cells, called) for allocation, cells in rasters.items()]
    return Picture("\n".join(lines), _document(_below(drawings, 16), title))


def views_mimebundle(*views: Any, title: str = "") -> dict[str, str]:
    """Return the forms in which a notebook shows views: where they lie in memory, if that is small enough to draw."""
    named = "\n".join([*([title] if title else []), *map(repr, views)])
    homes = {a for view in views for a in view.allocations}
    if not homes or not all(a.size > 0 for a in homes) or sum(a.size for a in homes) > SHOWN_CELLS:
        return {"text/plain": named}
    try:
        picture = _views_picture(views, None, title)
        return {"text/plain": f"{named}\n{views_text(*views)}", "image/svg+xml": picture.svg}
    except ValueError:  # the regions that a view reads are too many or too hard to list
        return {"text/plain": named}
