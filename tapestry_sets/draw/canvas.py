"""The canvas: cells with coordinates, as text and as SVG; all pictures use it.

In a drawing every cell is a ``<rect>`` and nothing else is; a cell that a set holds names its place in
``data-at``, and its group the sets in ``data-in``. So a program can read a drawing back.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from textwrap import wrap as wrap_words
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tapestry_sets.digits import Int64Array
from tapestry_sets.draw import tuning
from tapestry_sets.draw.theme import as_html, style_of
from tapestry_sets.draw.tuning import CHARACTER, FAINT, INK, LINE, PAPER, SMALL
from tapestry_sets.limits import REFUSALS, Public, as_items, check_positive, check_type, cut_text, quote

COLORS = ("#ffffff", "#0967cc", "#b6550c", "#008545", "#a1407e", "#613e0a", "#3231ba", "#464334")
"""Fill of a cell: nothing, first set, second set, and so on, then again from the first. White text is legible on
each, and they differ to color-blind readers, on dark pages too; a digit in each cell says the same where there are
several sets."""

MARKS = "123456789abcdefghijklmnopqrstuvw"
"""What stands for each set in text; ``X`` stands for two or more."""

Raster = Int64Array
"""Cells by (plane, row, column); bit i of a cell is set if set number i holds it."""


class Picture(Struct, frozen=True, metaclass=Public):
    r"""A picture in several forms: a notebook shows the drawing, ``print`` the text.

    Parameters
    ----------
    text : str
        With axes, and a legend where there are several sets.
    svg : str
        A complete ``<svg>`` element, as `document` makes it.
    narrow : str
        The same, laid out for narrow pages; empty where the drawing may shrink instead.

    Examples
    --------
    >>> from tapestry_sets import allocate, show_views
    >>> A = allocate((12,), name="A")
    >>> picture = show_views(A[::3], A[6:], names=["thirds", "half"])
    >>> print("\n".join(picture.text.splitlines()[1:5]))
           0    5    10
    thirds 1..1..1..1..
    half   ......222222
    shared ......X..X..
    >>> picture.svg.startswith("<svg")
    True
    >>> from tapestry_sets.draw import show
    >>> from tapestry_sets.integers import Stripe
    >>> picture = show(Stripe(1, 1), stop=4, names=["even"])
    >>> picture.svg[:4], picture.to_html()[:4], sorted(picture.bundle("two of four"))
    ('<svg', '<div', ['image/svg+xml', 'text/html', 'text/plain'])
    """

    text: str
    svg: str
    narrow: str = ""

    def __post_init__(self) -> None:
        check_type(self.text, str, "Picture: text")
        check_type(self.svg, str, "Picture: svg")
        check_type(self.narrow, str, "Picture: narrow")

    def to_html(self) -> str:
        """Return the drawing as a part of a page: it follows the theme, fits the width, and says what it shows."""
        return as_html(self.svg, self.narrow, self.text)

    def bundle(self, words: str) -> dict[str, str]:
        """Return the forms in which a notebook shows a value that has this picture, and these words."""
        check_type(words, str, "Picture.bundle: words")
        return {"text/plain": words, "image/svg+xml": self.svg, "text/html": self.to_html()}

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.bundle(self.text)


_page = ContextVar("page", default=tuning.PAGE)


def page_width() -> int:
    """Return how many pixels a drawing may be wide where it can; what is laid out asks each time."""
    return _page.get()


def fold_at(wrap: int, margin: int = 0) -> int:
    """Return after how many cells a line is folded: as asked for, or on a narrow page what it has room for."""
    if page_width() >= tuning.PAGE:
        return wrap
    return max(1, min(wrap, max(tuning.MIN_FOLD, (page_width() - margin) // 14)))


def draw_twice(draw: Callable[[], tuple[str, str]]) -> Picture:
    """Return the picture of this text and drawing; it is made anew for narrow pages if it is too wide for them."""
    text, svg = draw()
    width = re.search(r' width="(\d+)"', svg)
    assert width is not None, "a document has a width"
    if int(width[1]) <= tuning.NARROW_PAGE:
        return Picture(text, svg)
    token = _page.set(tuning.NARROW_PAGE)
    try:
        _, narrow = draw()
    finally:
        _page.reset(token)
    return Picture(text, svg, "" if narrow == svg else narrow)


class TooLarge(ValueError):
    """There is more than a picture has room for."""


NOT_DRAWN = (TooLarge, *REFUSALS)
"""What is raised where there is no picture: it would be too large, or what it shows is too hard to say."""


def check_cells(n: int, what: str, mend: str, most: int = tuning.MAX_CELLS) -> None:
    """Refuse a picture of too many cells."""
    if n > most:
        raise TooLarge(f"draw: {n} {what} are more than {most}; {mend}")


# --------------------------------------------------------------------------------- grids: cells with coordinates


class CanvasCut(NamedTuple):
    """On which sides of a plane more cells are, which the picture leaves out."""

    left: bool = False
    right: bool = False
    above: bool = False
    below: bool = False


class CellGrid(Struct, frozen=True):
    """One plane of a picture: cells by (row, column), -1 where there is none, and their labels.

    `at` says the place of a cell; `plus` is before the labels of columns that count from some place. Rows have either
    numbers or, where each stands for a set, `heads`; only some numbers are written in a drawing, but all heads. `marks`
    has the mark of each set.
    """

    cells: Int64Array
    rows: Sequence[int]
    columns: Sequence[int]
    caption: str
    at: Callable[[int, int], str]
    plus: str = ""
    heads: Sequence[str] = ()
    cut: CanvasCut = field(default=CanvasCut())
    marks: str = MARKS


def line_grid(cells: Int64Array, start: int, wrap: int) -> CellGrid:
    """Return the cells of a line, folded into rows of `wrap`."""
    n = len(cells)
    width = max(1, min(wrap, n))
    rows = max(1, -(-n // width))
    folded = np.full(rows * width, -1, np.int64)
    folded[:n] = cells

    def at(row: int, column: int) -> str:
        return str(start + row * width + column)

    if rows == 1:
        return CellGrid(folded[None, :n], (), range(start, start + n), "", at)
    return CellGrid(folded.reshape(rows, width), range(start, start + n, width), range(width), "", at, "+")


def box_grids(cells: Raster, start: Sequence[int], wrap: int = tuning.SHOWN_LENGTH) -> list[CellGrid]:
    """Return the planes of a raster of a box that begins at `start`; its rank is that of `start`."""
    if not start:
        return [CellGrid(cells[0], (), (), "", lambda row, column: "")]
    if len(start) == 1:
        return [line_grid(cells[0, 0], start[0], wrap)]
    planes, rows, columns = cells.shape
    y, x = start[-2:]
    down, across = range(y, y + rows), range(x, x + columns)
    if len(start) == 2:
        label = "axis 0 down, axis 1 across"
        return [CellGrid(cells[0], down, across, label, lambda row, column: f"{y + row},{x + column}")]
    return [
        CellGrid(cells[z], down, across, f"[{start[0] + z}, :, :]", _in_plane(start[0] + z, y, x))
        for z in range(planes)
    ]


def _in_plane(plane: int, y: int, x: int) -> Callable[[int, int], str]:
    return lambda row, column: f"{plane},{y + row},{x + column}"


def widest(labels: Sequence[int], plus: str = "") -> int:
    """Return how many characters the longest label has; labels ascend or descend."""
    return max((len(f"{plus}{label}") for label in (*labels[:1], *labels[-1:])), default=0)


def ticks(labels: Sequence[int], room: float) -> list[int]:
    """Return which positions to label, where a label needs as much room as `room` of them: those of round numbers."""
    least = max(1, math.ceil(room))
    if len(labels) > 1 and labels[1] - labels[0] != 1:  # rows of a folded line
        return list(range(0, len(labels), least))
    power = 10 ** (len(str(least)) - 1)
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= least)
    return [k for k, label in enumerate(labels) if label % step == 0] or [0][: len(labels)]


# ---------------------------------------------------------------------------------------------------------- text


def text_of(cells: Raster) -> str:
    """Return a raster as text; see `text`."""
    planes = ["\n".join("".join(mark_of(int(c)) for c in row) for row in plane) for plane in cells]
    return "\n\n".join(planes)


def mark_of(code: int, marks: str = MARKS) -> str:
    """Return the mark of a cell in text: the sets that hold it are the bits of `code`."""
    if code <= 0:
        return "." if code == 0 else " "
    return marks[code.bit_length() - 1] if code & (code - 1) == 0 else "X"


def grid_text(grid: CellGrid) -> str:
    """Return a plane as text: caption, coordinates above and beside, cells, and ``…`` where more are left out."""
    labels = list(grid.heads) or [str(row) for row in grid.rows]
    margin = max(map(len, labels), default=0)
    pad = " " * (margin + 1) if labels else ""
    left, right = "…" if grid.cut.left else "", "…" if grid.cut.right else ""
    lines = [grid.caption] if grid.caption else []
    if grid.columns:
        lines.append(pad + " " * len(left) + ruler(grid.columns, grid.plus))
    lines += [f"{pad}…"] if grid.cut.above else []
    for at, row in enumerate(grid.cells):
        head = f"{labels[at]:{'<' if grid.heads else '>'}{margin}} " if labels else ""
        lines.append(head + left + "".join(mark_of(int(c), grid.marks) for c in row) + right)
    lines += [f"{pad}…"] if grid.cut.below else []
    return "\n".join(line.rstrip(" ") for line in lines)


def ruler(labels: Sequence[int], plus: str = "") -> str:
    """Return coordinates as text, each beginning above its cell."""
    line = ""
    for k in ticks(labels, widest(labels, plus) + 1):
        line = f"{line:<{k}}{plus}{labels[k]}"
    return line


# ---------------------------------------------------------------------------------------------- parts of drawings


class Drawing(Struct, frozen=True):
    """A part of a drawing: elements in the rectangle from (0, 0) to (width, height)."""

    width: int
    height: int
    parts: tuple[str, ...]


def _clean(words: str) -> str:
    """Return words as XML text; characters that XML does not know become question marks."""
    from html import escape  # loaded with the first picture, not with the package

    return escape(re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", words))


def breadth(words: str) -> int:
    """Return how many pixels to keep for small words: a little more than their characters, which fonts round up."""
    return len(words) * CHARACTER + len(words) // 4


def as_drawn(words: str) -> Drawing:
    """Return a line of words as a part of a drawing: several lines where it is wider than the page."""
    room = page_width()
    return _lines_drawn(_wrapped(words, room) if breadth(words) <= room else _wrap(words, room))


def _wrapped(words: str, room: int, size: int = SMALL) -> list[str]:
    """Return words as lines, of which each fits so many pixels; where a page is wide, in one line."""
    if page_width() >= tuning.PAGE:
        return [words]
    return _wrap(words, room, size)


def _wrap(words: str, room: int, size: int = SMALL) -> list[str]:
    return wrap_words(words, max(1, room * SMALL // (breadth("0" * 16) * size // 16))) or [words]


def _lines_drawn(lines: Sequence[str], left: int = 0, size: int = SMALL) -> Drawing:
    parts = tuple(written(left, size + k * LINE, line, size=size) for k, line in enumerate(lines))
    return Drawing(left + max(breadth(line) * size // SMALL for line in lines), len(lines) * LINE, parts)


def written(x: float, y: float, words: str, anchor: str = "start", size: int = SMALL, fill: str = INK) -> str:
    """Return words at a place, as an element."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" fill="{fill}">{_clean(words)}</text>'


def below(drawings: Iterable[Drawing], gap: int = 8) -> Drawing:
    """Return drawings one below the other."""
    parts: list[str] = []
    width = y = 0
    for drawing in drawings:
        y += gap if y else 0
        parts += [f'<g transform="translate(0,{y})">', *drawing.parts, "</g>"]
        width, y = max(width, drawing.width), y + drawing.height
    return Drawing(width, y, tuple(parts))


def beside(drawings: Sequence[Drawing], gap: int = 12) -> Drawing:
    """Return drawings side by side, in as many rows as the page's width asks for."""
    rows: list[Drawing] = []
    parts: list[str] = []
    x = height = 0
    for drawing in drawings:
        if x and x + drawing.width > page_width():
            rows.append(Drawing(x - gap, height, tuple(parts)))
            parts, x, height = [], 0, 0
        parts += [f'<g transform="translate({x},0)">', *drawing.parts, "</g>"]
        x, height = x + drawing.width + gap, max(height, drawing.height)
    rows.append(Drawing(max(0, x - gap), height, tuple(parts)))
    return below(rows)


def check_title(title: object) -> str:
    """Return the words above a picture."""
    return check_type(title, str, "draw: title", "empty for none")


def document(drawing: Drawing, title: str, margin: int = 8) -> str:
    """Return a drawing as a complete element: with a title, a description and a style for light and dark pages.

    It stands on paper of its own, so that no page swallows it where the style is not read.
    """
    told = _said_in(drawing.parts)
    if check_title(title):
        words = _lines_drawn(_wrapped(cut_text(title, 100), page_width(), 12), size=12)
        bold = tuple(part.replace("<text ", '<text font-weight="bold" ', 1) for part in words.parts)
        drawing = below([replace(words, parts=bold), drawing], 6)
    width, height = drawing.width + 2 * margin, drawing.height + 2 * margin
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'class="tapestry" role="img" preserveAspectRatio="xMinYMin" style="max-width:100%;height:auto" '
        'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace">'
    )
    name = cut_text(title or told.split("; ")[0] or "a set", 500)
    about = describe(name, told or name)
    inside = [f'<g transform="translate({margin},{margin})">', *drawing.parts, "</g>"]
    style = f"<style>{style_of(''.join(drawing.parts))}</style>"
    return "\n".join([head, *about, style, f'<path d="M0 0H{width}V{height}H0Z" fill="{PAPER}"/>', *inside, "</svg>"])


def describe(title: str, told: str) -> list[str]:
    """Return the elements that say what a picture is, and what it shows, to those who hear it.

    Examples
    --------
    >>> describe("a & b", "two sets")
    ['<title>a &amp; b</title>', '<desc>two sets</desc>']
    """
    return [f"<title>{_clean(title)}</title>", f"<desc>{_clean(told)}</desc>"]


def _said_in(parts: Iterable[str]) -> str:
    """Return the captions and the legend of a drawing, for those who hear it: all words but marks and numbers."""
    from html import unescape

    words = re.compile("<text[^>]*>([^<]* [^<]*)</text>")
    found = (match for part in parts if "<text" in part for match in words.findall(part))
    return cut_text("; ".join(map(unescape, found)), tuning.TOLD)


def margin_of(grid: CellGrid) -> int:
    """Return how many pixels are before the cells of a plane: for labels, and for dots."""
    longest = max(map(len, grid.heads)) if grid.heads else widest(grid.rows)
    labels = longest * CHARACTER + 5 if grid.heads or grid.rows else 0
    return max(labels, widest(grid.columns, grid.plus) * CHARACTER // 2) + tuning.DOTS * grid.cut.left


def grid_drawing(grid: CellGrid, cell: int, marks: bool, tall: int | None = None, margin: int = 0) -> Drawing:
    """Return a plane: caption, coordinates above and beside, and cells of width `cell` and height `tall`.

    Planes that stand below each other are given the same `margin`, at least that of each.
    """
    rows, columns = grid.cells.shape
    side = cell if tall is None else tall
    wide = widest(grid.columns, grid.plus) * CHARACTER
    labels = list(grid.heads) or grid.rows
    left = max(margin, margin_of(grid))
    top = (LINE if grid.caption else 0) + (SMALL + 4 if grid.columns else 0) + tuning.DOTS * grid.cut.above
    parts = [written(0, SMALL, grid.caption)] if grid.caption else []
    parts += [
        written(
            left + (k + 0.5) * cell, top - 4 - tuning.DOTS * grid.cut.above, f"{grid.plus}{grid.columns[k]}", "middle"
        )
        for k in ticks(grid.columns, (wide + CHARACTER) / cell)
    ]
    parts += [
        written(left - 4 - tuning.DOTS * grid.cut.left, top + (k + 0.5) * side + 3.5, str(labels[k]), "end")
        for k in (range(rows) if grid.heads else ticks(grid.rows, (SMALL + 1) / side))
    ]
    parts += _dots(grid.cut, left, top, columns * cell, rows * side)
    parts += [f'<g transform="translate({left},{top})">', *cells_drawn(grid, cell, side, marks), "</g>"]
    width = max(left + columns * cell + max(2, wide // 2, tuning.DOTS * grid.cut.right), breadth(grid.caption))
    return Drawing(width, top + rows * side + 2 + tuning.DOTS * grid.cut.below, tuple(parts))


def _dots(cut: CanvasCut, left: int, top: int, width: int, height: int) -> list[str]:
    """Return dots on the sides of cells that cover the rectangle of this corner and size."""
    across, down = left + width / 2, top + height / 2 + 3.5
    places = ((left - 7, down), (left + width + 7, down), (across, top - 4), (across, top + height + 10))
    return [written(x, y, "…", "middle") for (x, y), more in zip(places, cut, strict=True) if more]


def cells_drawn(grid: CellGrid, wide: int, tall: int, marks: bool) -> list[str]:
    """Return the cells, a group for each combination of sets."""
    parts: list[str] = []
    for code in np.unique(grid.cells[grid.cells >= 0]).tolist():
        held = [i for i in range(len(MARKS)) if code >> i & 1]
        places = np.argwhere(grid.cells == code).tolist()
        parts += _squares(grid, places, held, wide, tall, marks)
        if marks and held and wide >= 10:
            mark = mark_of(code, grid.marks)
            parts.append(f'<g fill="{PAPER}" font-size="{SMALL}" font-weight="bold" text-anchor="middle">')
            parts += [
                f'<text x="{(column + 0.5) * wide:g}" y="{(row + 0.5) * tall + 3.5:g}">{mark}</text>'
                for row, column in places
            ]
            parts.append("</g>")
    return parts


def _squares(
    grid: CellGrid, places: Sequence[list[int]], held: Sequence[int], wide: int, tall: int, told: bool
) -> list[str]:
    """Return the cells that exactly the sets `held` hold: of their color, or in bands with a dark outline.

    Those that are `told` say their place where a pointer rests on them.
    """
    parts: list[str] = []
    fill, stroke, line = (color_of(held[0]), FAINT, 0.5) if held else (PAPER, FAINT, 0.5)
    if len(held) > 1:
        parts += bands([(column * wide, row * tall) for row, column in places], held, wide, tall)
        fill, stroke, line = "none", INK, 1.5
    if wide < 5:
        line /= 5  # outlines would cover narrow cells
    sets = " ".join(str(i + 1) for i in held)
    parts.append(f'<g fill="{fill}" stroke="{stroke}" stroke-width="{line:g}" data-in="{sets}">')
    for row, column in places:
        where = grid.at(row, column)
        at = f' data-at="{where}"' if held else ""
        end = f"><title>{where}</title></rect>" if held and told and where else "/>"
        parts.append(f'<rect x="{column * wide}" y="{row * tall}" width="{wide}" height="{tall}"{at}{end}')
    parts.append("</g>")
    return parts


def color_of(number: int) -> str:
    """Return the fill of a set's cells."""
    return COLORS[1 + number % (len(COLORS) - 1)]


def bands(corners: Sequence[tuple[int, int]], held: Sequence[int], width: int, height: int) -> list[str]:
    """Return squares that are cut into a band for each set."""
    tall = height / len(held)
    return [
        f'<path fill="{color_of(i)}" d="'
        + "".join(f"M{x} {y + k * tall:g}h{width}v{tall:g}h-{width}z" for x, y in corners)
        + '"/>'
        for k, i in enumerate(held)
    ]


class LegendLine(Struct, frozen=True):
    """A line of a legend: the sets whose colors it shows, the mark in text, and words."""

    held: tuple[int, ...]
    mark: str
    words: str


def count_lines(cells: Raster, names: Sequence[str]) -> list[LegendLine]:
    """Return a line of the legend for each set, and for their overlap."""
    held = cells[cells >= 0]
    lines = []
    for i, name in enumerate(names):
        n = int((held >> i & 1).sum())
        lines.append(LegendLine((i,), MARKS[i], f"{cut_text(name, 80)}: {n} of {held.size} cells"))
    if len(names) > 1:
        n = int((held & (held - 1) != 0).sum())
        lines.append(LegendLine((0, 1), "X", f"in two or more: {n} of {held.size} cells"))
    return lines


def legend_text(lines: Iterable[LegendLine]) -> list[str]:
    """Return a legend as lines of text."""
    return [f"{line.mark}  {line.words}" for line in lines]


def legend_drawing(lines: Sequence[LegendLine], marks: bool) -> Drawing:
    """Return a legend: a square of each line's colors, with its mark if asked for, and its words."""
    parts: list[str] = []
    wide = y = 0
    for line in lines:
        parts += bands([(0, y)], line.held, 14, 14)
        if marks:
            parts.append(written(7, y + 10.5, line.mark, "middle", fill=PAPER))
        for words in _wrapped(line.words, page_width() - 20):
            parts.append(written(20, y + 10.5, words))
            wide, y = max(wide, breadth(words)), y + LINE
    return Drawing(20 + wide, y, tuple(parts))


def cell_size(cell: int | None, columns: int, page: int | None = None, least: int = 3) -> int:
    """Return the side of a square: as asked for, or as fits the page."""
    room = page_width() if page is None else page
    return max(least, min(14, room // max(1, columns))) if cell is None else check_positive(cell, "draw: cell")


def check_many(things: Sequence[Any], what: str) -> None:
    """Refuse a picture of nothing, or of more things than there are marks."""
    if not things:
        raise ValueError(f"draw: needs at least one {what}")
    if len(things) > len(MARKS):
        raise TooLarge(f"draw: {len(things)} {what}s are more than {len(MARKS)} in one picture; draw a part of them")


def names_of(sets: Sequence[Any], names: Sequence[str] | None, verb: str = "draw") -> list[str]:
    """Return the names of sets or views in a legend: those given, or their reprs."""
    if names is None:
        return [cut_text(repr(s), 80) for s in sets]
    what = f"sequence of {len(sets)} strings, one for each argument"
    given = () if isinstance(names, str) else as_items(names, f"{verb}: names", what)
    if len(given) != len(sets) or not all(isinstance(name, str) for name in given):
        raise ValueError(f"{verb}: names must be a {what}, not {quote(names)}")
    return list(given)


def grids_drawn(grids: Sequence[CellGrid], cell: int | None, several: bool) -> Drawing:
    """Return the planes of a box, side by side where there are several."""
    room = page_width() - (0 if page_width() >= tuning.PAGE else max(map(margin_of, grids), default=0))
    side = cell_size(cell, max((grid.cells.shape[1] for grid in grids), default=1), room)
    if len(grids) == 1:
        return grid_drawing(grids[0], side, several)
    caption = as_drawn("planes: axis 0; in each, axis 1 down and axis 2 across")
    return below([caption, beside([grid_drawing(grid, side, several) for grid in grids])])
