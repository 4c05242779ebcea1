"""Pictures of views: the cells that each reads, the cells that they share, and the indices that read one.

Views are taken by their verbs (`shape`, `cells`), so that this module imports none of theirs and their reprs can use
it. An allocation too large to draw is drawn in windows, around a shared cell where there is one; the dots say where
cells are left out, and the legend how many: its counts are always those of the whole allocation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import combinations, product
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_sets.digits import Int64Array, number_of, point_of
from tapestry_sets.draw import canvas, tuning
from tapestry_sets.limits import OPEN, REFUSALS, Open, ask_one, check_flag, check_positive, cut_text, quote

Codes = Int64Array

MODES = ("auto", "rows", "grid")

ADDRESSES = 2**64
"""An allocation of this many cells is an address space: its cells are bytes, and their numbers addresses."""


# ------------------------------------------------------------------------------------------- the cells that views read


class _Read:
    """The cells of an allocation that one view reads, listed window by window."""

    __slots__ = ("_all", "cells")

    def __init__(self, cells: Any) -> None:
        self.cells = cells
        self._all: Codes | None = cells.list_numbers(tuning.MAX_LISTED) if cells.setts is None else None

    def numbers(self, lo: int, hi: int) -> Codes:
        """Return the row-major numbers in [lo, hi), less lo."""
        setts = self.cells.setts
        if setts is not None:
            return np.asarray(setts.shift(-lo).elements(0, hi - lo) if hi >> 62 else setts.elements(lo, hi) - lo)
        if self._all is not None:
            first, last = np.searchsorted(self._all, (lo, hi))
            return self._all[first:last] - lo
        home = self.cells.home
        read = [z - lo for z in range(lo, hi) if self.cells.index_of(point_of(z, home)) is not None]
        return np.asarray(read, np.int64)

    def ends(self) -> tuple[int, int] | None:
        """Return the first and the last number, where they are quickly had."""
        setts, extent = self.cells.setts, self.cells.extent
        if setts is not None:
            first, back = setts.first(0, extent), setts.reverse(extent).first(0, extent)
            return None if first is None else (first, extent - 1 - back)
        if self.cells.sums is not None:
            first, steps = self.cells.sums
            reaches = [(count - 1) * by for count, by in steps]
            return first + sum(min(0, r) for r in reaches), first + sum(max(0, r) for r in reaches)
        return None if self._all is None or not len(self._all) else (int(self._all[0]), int(self._all[-1]))

    def size(self) -> int | None:
        """Return how many cells there are; None if that is too hard to say."""
        if self._all is not None:
            return len(self._all)
        return _number_if_told(attrgetter("size"), self.cells)


def _bit_counts(codes: Codes) -> Codes:
    """Return how many bits are set in each code."""
    return sum((codes >> i & 1 for i in range(len(canvas.MARKS))), np.zeros(len(codes), np.int64))


class _Named(Struct, frozen=True):
    """A view, what it is called, and whether it stands for an array: the bytes of an element are its last axis then."""

    view: Any
    name: str
    is_array: bool


class _Shared(Struct, frozen=True):
    """A cell that several views read, and an index of each of these views, by its position, that reads it."""

    cell: tuple[int, ...]
    indices: dict[int, tuple[int, ...]]


class _Home(Struct, frozen=True):
    """An allocation and the cells that each view, by its position, reads there; the `nth` of those of one name."""

    allocation: Any
    read: dict[int, _Read]
    nth: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.allocation.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def is_addresses(self) -> bool:
        return self.size == ADDRESSES

    def codes(self, lo: int, hi: int) -> Codes:
        """Return the cells [lo, hi); bit i of one is set if view i reads it."""
        codes = np.zeros(hi - lo, np.int64)
        for i, read in self.read.items():
            codes[read.numbers(lo, hi)] |= 1 << i
        return codes

    def shared(self) -> _Shared | None:
        """Return a cell that views share: the first of those that most read, of a large allocation just any."""
        if len(self.read) < 2:
            return None
        if self.size <= tuning.MAX_CELLS:
            readers = _bit_counts(self.codes(0, self.size))
            most = int(readers.argmax()) if len(readers) else 0
            cell = point_of(most, self.shape) if len(readers) and readers[most] > 1 else None
        else:
            both = combinations([read.cells for read in self.read.values()], 2)
            cell = next((cell for one, two in both if (cell := one.a_common_cell(two)) is not None), None)
        if cell is None:
            return None
        z = number_of(cell, self.shape)
        found = {i: read.cells.index_of(cell) for i, read in self.read.items() if len(read.numbers(z, z + 1))}
        return _Shared(cell, found)

    def ends(self) -> tuple[int, int] | None:
        """Return the first number that any view reads and the last, where they are quickly had."""
        each = [read.ends() for read in self.read.values()]
        if None in each:
            return None
        return min(e[0] for e in each if e), max(e[1] for e in each if e)


def _homes(views: Sequence[Any]) -> list[_Home]:
    canvas.check_many(views, "view")
    homes: dict[Any, dict[int, _Read]] = {}
    for i, view in enumerate(views):
        for allocation, cells in view.cells.items():
            homes.setdefault(allocation, {})[i] = _Read(cells)
    return [_Home(a, read, k) for (a, read), k in zip(homes.items(), number_repeats(map(_name_of, homes)), strict=True)]


def number_repeats(names: Iterable[str]) -> list[int]:
    """Return for each name how often it has come up, so that things named alike can be told apart."""
    seen: Counter[str] = Counter()
    numbers = []
    for name in names:
        seen[name] += 1
        numbers.append(seen[name])
    return numbers


def _name_of(allocation: Any) -> str:
    return f"{allocation.name} {allocation.shape}" if allocation.name else f"{allocation.shape}"


# ------------------------------------------------------------------------------------- windows of a line of memory


ALL = "all that is read"


class _Window(Struct, frozen=True):
    """The cells [lo, hi) of a line of memory; `why` says why these, `more` whether there are others before and after.

    Of an address space only the cells between the first and the last that any view reads count.
    """

    lo: int
    hi: int
    why: str
    more: tuple[bool, bool] = (False, False)


def _windows(home: _Home, shared: _Shared | None) -> list[_Window]:
    """Return what to draw of an allocation's cells as a line: all, what lies between the ends, or parts."""
    if home.size <= tuning.MAX_LINE:
        return [_Window(0, home.size, "")]
    ends = home.ends()
    if ends is not None and ends[1] - ends[0] < tuning.MAX_LINE:
        lo, hi = ends[0], ends[1] + 1
        return [_Window(lo, hi, ALL, (not home.is_addresses and lo > 0, not home.is_addresses and hi < home.size))]
    about = [(number_of(shared.cell, home.shape), "around a shared cell")] if shared else []
    for read in home.read.values():
        found = read.ends()
        if found is not None:
            about.append((found[0], "where a view begins"))
        elif not about:
            about.append((number_of(read.cells.a_common_cell(read.cells), home.shape), "around a cell that is read"))
    least, most = (0, home.size) if ends is None else (ends[0], ends[1] + 1)
    windows: list[_Window] = []
    for z, why in about:
        lo = max(least, (z - tuning.BEFORE) // tuning.BEFORE * tuning.BEFORE)
        new = _Window(lo, min(most, lo + tuning.BEFORE + tuning.AFTER), why)
        if len(windows) < tuning.MAX_WINDOWS and not any(w.lo <= z < w.hi for w in windows):
            windows.append(new)
    first, last = (least, most) if home.is_addresses else (0, home.size)
    return [replace(w, more=(w.lo > first, w.hi < last)) for w in _joined(sorted(windows, key=attrgetter("lo")))]


def _joined(windows: Sequence[_Window]) -> list[_Window]:
    """Return ascending windows, those that touch as one."""
    joined: list[_Window] = []
    for w in windows:
        if joined and w.lo <= joined[-1].hi:
            last = joined.pop()
            why = last.why if last.why == w.why or "shared" in last.why else w.why
            w = _Window(last.lo, max(last.hi, w.hi), why)
        joined.append(w)
    return joined


# ---------------------------------------------------------------------------------------------- grids of an allocation


class _Page(Struct, frozen=True):
    """What is drawn of one allocation.

    Grids, words above them, the codes of all cells that they show, whether nothing that is read is left out, and from
    where cells are counted.
    """

    grids: list[canvas.CellGrid]
    above: list[str]
    codes: Codes
    is_whole: bool
    base: int = 0


def _line_page(home: _Home, shared: _Shared | None, views: Sequence[_Named], wrap: int, in_rows: bool) -> _Page:
    """Return an allocation as a line of cells: a row for each view, or one line that all views mark."""
    windows = _windows(home, shared)
    first = windows[0].lo if home.is_addresses else 0
    above = [f"+0 is {home.allocation.name}[{first}] ({first:#x})"] if home.is_addresses else []
    grids: list[canvas.CellGrid] = []
    codes = [np.zeros(0, np.int64)]
    for w in windows:
        codes.append(home.codes(w.lo, w.hi))
        base = first or (w.lo if w.hi > tuning.FAR_NUMBER else 0)
        line = _rows(home, views, codes[-1], w, base, wrap) if in_rows else [_line(codes[-1], w, base, wrap)]
        ends = f"[{w.lo - base:+}, {w.hi - base:+})" if home.is_addresses else f"[{w.lo}, {w.hi})"
        grids += [replace(line[0], caption=f"{ends}: {w.why}" if w.why else ""), *line[1:]]
    return _Page(grids, above, np.concatenate(codes), windows[0].why in ("", ALL), first)


def _line(codes: Codes, w: _Window, base: int, wrap: int) -> canvas.CellGrid:
    """Return a window as one line, folded into rows of `wrap`."""
    grid = canvas.line_grid(codes, w.lo, wrap)
    if grid.rows:
        rows = range(w.lo - base, w.hi - base, wrap)
        return replace(grid, rows=rows, cut=canvas.CanvasCut(False, False, *w.more))
    return replace(grid, columns=range(w.lo - base, w.hi - base), plus="+" * bool(base), cut=canvas.CanvasCut(*w.more))


def _rows(
    home: _Home, views: Sequence[_Named], codes: Codes, w: _Window, base: int, wrap: int
) -> list[canvas.CellGrid]:
    """Return a window as blocks of at most `wrap` cells: in each a row for each view, and one for what is shared."""
    heads = [_brief(views[i].name) for i in home.read]
    rows = [codes & 1 << i for i in home.read]
    if len(rows) > 1:
        heads.append("shared")
        rows.append(np.where(codes & (codes - 1), codes, 0))
    table = np.stack(rows)
    blocks = []
    for k in range(0, max(1, len(codes)), wrap):
        lo, hi = w.lo + k, min(w.lo + k + wrap, w.hi)
        more = (lo == w.lo and w.more[0], hi == w.hi and w.more[1])
        cut = canvas.CanvasCut(False, False, *more) if len(codes) > wrap else canvas.CanvasCut(*more)
        columns = range(lo - base, hi - base)
        blocks.append(canvas.CellGrid(table[:, k : k + wrap], (), columns, "", _from(lo), "+" * bool(base), heads, cut))
    return blocks


def _from(first: int) -> Callable[[int, int], str]:
    return lambda row, column: str(first + column)


def _box_page(home: _Home, shared: _Shared | None) -> _Page:
    """Return an allocation of two or three axes as its planes: whole, or what is around a cell."""
    shape = home.shape
    if home.size <= tuning.MAX_CELLS and shape[-1] <= tuning.MAX_ROW:
        codes = home.codes(0, home.size)
        return _Page(
            canvas.box_grids(codes.reshape((1,) * (3 - len(shape)) + shape), (0,) * len(shape)), [], codes, True
        )
    cell, why = (shared.cell, "around a shared cell") if shared else (_first_cell(home), "where a view begins")
    start, extents = _window_around(cell, shape, tuning.BOX)
    codes = np.stack(
        [
            home.codes(z, z + extents[-1])
            for point in product(*(range(a, a + n) for a, n in zip(start[:-1], extents[:-1], strict=True)))
            for z in [number_of((*point, start[-1]), shape)]
        ]
    )
    words = ", ".join(f"{a}:{a + n}" for a, n in zip(start, extents, strict=True))
    return _Page(_box_part(codes.ravel(), start, extents, shape), [f"[{words}]: {why}"], codes.ravel(), False)


def _first_cell(home: _Home) -> tuple[int, ...]:
    read = next(iter(home.read.values()))
    ends = read.ends()
    cell: tuple[int, ...] = read.cells.a_common_cell(read.cells) if ends is None else point_of(ends[0], home.shape)
    return cell


def _window_around(at: Sequence[int], shape: Sequence[int], most: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return start and extents of the part of a box that is drawn around a point; axes that are short are whole."""
    start, extents = [], []
    for x, n, m in zip(at, shape, most[-len(shape) :] if shape else (), strict=True):
        start.append(max(0, min(x - m // 4, n - m)))
        extents.append(min(n, m))
    return start, extents


def _box_part(
    codes: Codes, start: Sequence[int], extents: Sequence[int], shape: Sequence[int]
) -> list[canvas.CellGrid]:
    """Return the planes of a part of a box, with dots where the box goes on."""
    grids = canvas.box_grids(codes.reshape([1] * (3 - len(shape)) + list(extents)), start, wrap=tuning.MAX_CELLS)
    ends = [(a > 0, a + n < m) for a, n, m in zip(start, extents, shape, strict=True)]
    cut = canvas.CanvasCut(*(ends[-1] if ends else ()), *(ends[-2] if len(ends) > 1 else ()))
    return [replace(grid, cut=cut) for grid in grids]


# --------------------------------------------------------------------------------------------------- words and counts


def _cell_name(home: _Home, cell: Sequence[int], base: int) -> str:
    """Return a cell of an allocation as words: ``A[3, 4]``; an address also as a distance from `base`."""
    name = home.allocation.name or f"the {home.shape}"
    if home.is_addresses:
        return f"{name}[{cell[0]}] ({cell[0] - base:+})"
    return f"{name}[{_comma(cell)}]" if cell else name


def _comma(index: Sequence[int]) -> str:
    return ", ".join(map(str, index))


def _how_many(home: _Home, n: int | None, shown: int | None) -> str:
    """Return a number of cells as words, in bytes too where a cell has more than one."""
    if n is None:
        words = "too many cells to count"
    elif home.is_addresses:
        words = f"{n} bytes"
    else:
        words = f"{n} of {home.size} cells"
        if home.allocation.itemsize > 1:
            words += f", {n * home.allocation.itemsize} bytes"
    return words if shown is None or shown == n else f"{words}; {shown} shown"


def _legend(home: _Home, page: _Page, views: Sequence[_Named], shared: _Shared | None) -> list[canvas.LegendLine]:
    """Return how many cells each view reads and how many are shared, of the whole allocation and of those shown."""
    codes = page.codes
    whole = page.is_whole
    lines = []
    for i, read in home.read.items():
        shown = int((codes >> i & 1).sum())
        words = _how_many(home, shown if whole else read.size(), shown)
        lines.append(canvas.LegendLine((i,), canvas.MARKS[i], f"{cut_text(views[i].name, 80)}: {words}"))
    if len(home.read) == 2 or (whole and len(home.read) > 1):
        shown = int((codes & (codes - 1) != 0).sum())
        n = shown if whole else _common_size(*home.read.values())
        held = tuple(shared.indices) if shared else tuple(home.read)
        what = "shared" if len(home.read) == 2 else "in two or more"
        lines.append(canvas.LegendLine(held, "X", f"{what}: {_how_many(home, n, shown)}"))
    elif len(home.read) > 2:
        lines += _pair_lines(home, codes)
    return lines


def _pair_lines(home: _Home, codes: Codes) -> list[canvas.LegendLine]:
    """Return how many cells each two views share, for as many pairs as a legend has room for."""
    lines: list[canvas.LegendLine] = []
    rest = 0
    for (i, one), (j, two) in combinations(home.read.items(), 2):
        n = _common_size(one, two)
        if n == 0:
            continue
        if len(lines) == tuning.MAX_PAIRS:
            rest += 1
            continue
        shown = int((codes >> i & codes >> j & 1).sum())
        lines.append(
            canvas.LegendLine((i, j), "X", f"in {canvas.MARKS[i]} and {canvas.MARKS[j]}: {_how_many(home, n, shown)}")
        )
    if rest:
        lines.append(canvas.LegendLine((), "", f"and {rest} more pairs that share cells"))
    return lines


def _number_if_told(way: Callable[..., Any], *about: Any) -> int | None:
    """Return what a way to count answers; None where that is too hard."""
    found = ask_one(REFUSALS, way, *about)
    return None if found is OPEN else int(found)


def _common_size(one: _Read, two: _Read) -> int | None:
    return _number_if_told(one.cells.count_common, two.cells)


# ------------------------------------------------------------------------------------------------- the indices' side


def _brief(name: str) -> str:
    """Return a name as it stands before a row: without what it is equal to, and not too long."""
    return cut_text(name.split(" = ")[0], tuning.SHOWN_NAME)


def _index_name(name: str, index: Sequence[int]) -> str:
    """Return an element of a view as words; a name that is not a single term is set in parentheses."""
    called = inner = cut_text(name.split(" = ")[0], 80)
    while inner != (inner := re.sub(r"\([^()]*\)|\[[^][]*\]", "", inner)):
        pass  # what is in brackets does not matter, however deep
    if not index:
        return called
    return f"{called if re.fullmatch(r'[A-Za-z_][.0-9A-Za-z_]*', inner) else f'({called})'}[{_comma(index)}]"


def _witness(home: _Home, views: Sequence[_Named], shared: _Shared, base: int) -> str:
    """Return which indices read the shared cell, as words."""
    words = []
    for i, at in shared.indices.items():
        name, shape, is_array = views[i].name, views[i].view.shape, views[i].is_array
        words.append(_index_name(name, at[:-1] if is_array else at))
        if is_array and shape[-1] > 1:
            words[-1] += f" (its byte {at[-1]})"
    several = "both" if len(words) == 2 else "all"
    return f"{', '.join(words[:-1])} and {words[-1]} {several} read {_cell_name(home, shared.cell, base)}"


def _index_grids(home: _Home, views: Sequence[_Named], shared: _Shared) -> list[canvas.CellGrid]:
    """Return the shapes of the views that share a cell, each marked at the index that reads it.

    Of an allocation that is drawn whole all shared cells are marked.
    """
    every = home.codes(0, home.size) if home.size <= tuning.MAX_CELLS else None
    grids = []
    for i, index in shared.indices.items():
        shape, at = views[i].view.shape, index
        if views[i].is_array:
            shape, at = shape[:-1], at[:-1]
        if len(shape) > 3:
            continue  # said in words
        start, extents = _window_around(at, shape, tuning.INDEX_BOX)
        codes = np.zeros(extents, np.int64)
        if every is None:
            codes[tuple(x - a for x, a in zip(at, start, strict=True))] = sum(1 << k for k in shared.indices)
        else:
            for place in np.ndindex(*extents):
                code = _code_read(views[i].view, tuple(map(int.__add__, start, place)), home.allocation, every)
                codes[place] = code if code & (code - 1) else 0
        (grid,) = _box_part(codes.ravel(), start, extents, shape)
        plane = f", {grid.caption}" if len(shape) == 3 else ""
        grids.append(replace(grid, caption=f"{_brief(views[i].name)} {tuple(shape)}{plane}"))
    return grids


def _code_read(view: Any, index: tuple[int, ...], allocation: Any, every: Codes) -> int:
    """Return which views read the cell that an index of a view reads; 0 if it is not one of an allocation."""
    home, number = view._read_at(index)
    return int(every[number]) if home is allocation else 0


# ------------------------------------------------------------------------------------------------------- the pictures


def views_picture(
    views: Sequence[Any],
    names: Sequence[str] | None = None,
    mode: str = "auto",
    wrap: int = tuning.SHOWN_LENGTH,
    title: str = "",
    arrays: Collection[int] = (),
    indices: bool = True,
    notes: Sequence[str] = (),
) -> canvas.Picture:
    """Return where views lie in memory, as a picture, under a few lines of notes; see `show_views`."""
    if not isinstance(mode, str) or mode not in MODES:
        raise ValueError(f"draw: mode must be one of {', '.join(map(repr, MODES))}, not {quote(mode)}")
    canvas.check_title(title)
    check_flag(indices, "draw: indices")
    width, called, homes = check_positive(wrap, "draw: wrap"), _called(views, names), _homes(views)
    every = [_Named(view, name, i in arrays) for i, (view, name) in enumerate(zip(views, called, strict=True))]
    shared = [home.shared() for home in homes]
    unread = [
        f"{cut_text(one.name, 80)}, of shape {tuple(one.view.shape)}, reads no memory"
        for i, one in enumerate(every)
        if not any(i in home.read for home in homes)
    ]

    def drawn() -> tuple[str, str]:
        each = [
            _home_picture(home, cell, every, mode, width, indices) for home, cell in zip(homes, shared, strict=True)
        ]
        each += [([line], canvas.as_drawn(line)) for line in unread]
        each[:0] = [([line], canvas.as_drawn(line)) for line in notes]
        lines = [title] * bool(title) + [line for words, _ in each for line in words]
        return "\n".join(lines), canvas.document(canvas.below([part for _, part in each], 16), title)

    return canvas.draw_twice(drawn)


def _called(views: Sequence[Any], names: Sequence[str] | None) -> list[str]:
    if names is not None:
        return canvas.names_of(views, names)
    return [view.name if getattr(view, "name", "") else repr(view) for view in views]


def _home_picture(
    home: _Home, shared: _Shared | None, views: Sequence[_Named], mode: str, wrap: int, indices: bool
) -> tuple[list[str], canvas.Drawing]:
    """Return the picture of one allocation as lines of text and as a drawing."""
    several = len(home.read) > 1
    if len(home.shape) in (2, 3) and mode != "rows":
        page = _box_page(home, shared)
    else:
        in_rows = mode == "rows" or (mode == "auto" and several)
        heads = max((len(_brief(views[i].name)) for i in home.read), default=0) if in_rows else len(str(home.size))
        fold = canvas.fold_at(wrap, max(heads, 6) * canvas.CHARACTER + 2 * tuning.DOTS)
        page = _line_page(home, shared, views, fold, in_rows)
    legend = _legend(home, page, views, shared)
    above = [_home_name(home), *page.above]
    lines = [
        *above,
        ("\n\n" if len(page.grids) > 1 else "\n").join(map(canvas.grid_text, page.grids)),
        *canvas.legend_text(legend),
    ]
    parts = [*map(canvas.as_drawn, above), *_grids_of(page.grids, several), canvas.legend_drawing(legend, several)]
    if shared is not None:
        lines.append(_witness(home, views, shared, page.base))
        parts.append(canvas.as_drawn(lines[-1]))
        grids = _index_grids(home, views, shared) if indices else []
        lines += map(canvas.grid_text, grids)
        parts += [canvas.beside([canvas.grid_drawing(grid, 14, True) for grid in grids], 24)] if grids else []
    return lines, canvas.below(parts, 4)


def _home_name(home: _Home) -> str:
    name, itemsize = cut_text(_name_of(home.allocation), 80), home.allocation.itemsize
    if home.is_addresses:
        return f"{home.allocation.name or 'memory'}, byte by byte"
    name += f" #{home.nth}" if home.nth > 1 else ""
    return name if itemsize == 1 else f"{name}, {itemsize} bytes a cell"


def _grids_of(grids: Sequence[canvas.CellGrid], several: bool) -> list[canvas.Drawing]:
    """Return the grids of an allocation as drawings, one below the other, or beside each other if they are planes."""
    if not grids[0].heads and len(grids) > 1 and grids[0].caption.startswith("["):
        return [canvas.grids_drawn(grids, None, several)]
    head = max((len(head) for grid in grids for head in grid.heads), default=0)
    longest = max(grid.cells.shape[1] for grid in grids)
    side = canvas.cell_size(None, longest, canvas.page_width() - head * canvas.CHARACTER - 2 * tuning.DOTS)
    margin = max(map(canvas.margin_of, grids))
    return [canvas.grid_drawing(grid, side, several, 14 if grid.heads else None, margin) for grid in grids]


def views_mimebundle(
    *views: Any, names: Sequence[str] | None = None, title: str = "", notes: Sequence[str] = ()
) -> dict[str, str]:
    """Return the forms in which a notebook shows views: what they are called, and where they lie, under some notes."""
    named = title or "\n".join(names or map(repr, views))
    shown: canvas.Picture | Open = OPEN  # as of no views, where there is nothing to draw
    if views:
        shown = ask_one(
            canvas.NOT_DRAWN, lambda: views_picture(views, names, title=title, indices=len(views) > 1, notes=notes)
        )
    if shown is OPEN:
        return {"text/plain": "\n".join([named, *notes])}
    return shown.bundle(shown.text if title else f"{named}\n{shown.text}")
