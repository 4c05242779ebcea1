"""Pictures of a space: an index space or a tensor, and each part's cells in it.

A space is drawn cell by cell where that is legible, along the axes on which the parts differ; what is alike along
the other axes is drawn once. A larger one is drawn in outline, to scale. The counts are exact in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce
from itertools import islice, product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.draw import tuning
from tapestry_plan.ir import Shape, cells_of
from tapestry_sets.draw import canvas
from tapestry_sets.integers import StridedRun
from tapestry_sets.limits import cut_text
from tapestry_sets.regions import Box, DisjointRegions, Region

PADDING = "#d9d9d9"
"""Fill of places outside the tensor that are read."""

Bits = NDArray[np.bool_]

Places = Mapping[int, NDArray[np.intp]]
"""For each axis that a plane does not show, the alike coordinates for which it stands."""


class Plot(Struct, frozen=True, dict=True):
    """One space and the places that each part has of it.

    Parameters
    ----------
    role : str
        "index", "input 0", "output 1" and so on: what a program that reads the drawing knows it by.
    caption : str
        The words above.
    names : tuple of str
        Of the axes; empty where they are known by their numbers.
    frame : Box
        The cells that exist.
    cells : tuple of DisjointRegions
        For each part, the exact cells that it touches, in a box that holds the frame and all that is read.
    outside : str
        What is read outside the frame.
    note : str
        Words below the legend.
    parts : str
        What the parts are, where they have numbers from 0: "device". Else their marks are all that is known of them.
    """

    role: str
    caption: str
    names: tuple[str, ...]
    frame: Box
    cells: tuple[DisjointRegions, ...]
    outside: str = ""
    note: str = ""
    parts: str = ""

    @property
    def marks(self) -> str:
        """The mark of each part."""
        return f"0{canvas.MARKS}" if self.parts else canvas.MARKS

    @cached_property
    def inside(self) -> tuple[DisjointRegions, ...]:
        """The cells of each part that exist."""
        return tuple(_within(cells, self.frame) for cells in self.cells)

    @cached_property
    def box(self) -> Box:
        """The places that are drawn: the frame, and what is read around it."""
        return Box(self.cells[0].start, self.cells[0].shape)

    @cached_property
    def shared(self) -> DisjointRegions:
        """The cells that two or more parts have."""
        seen = common = DisjointRegions(self.frame.shape, (), self.frame.start)
        for cells in self.inside:
            if seen.isdisjoint(cells):
                seen = seen | cells
                continue
            common = common | (seen & cells)
            seen = seen if cells.issubset(seen) else seen | cells
        return common

    def legend(self) -> list[canvas.LegendLine]:
        """The places of each part, parts with the same ones in one line, and how many are shared."""
        alike: dict[str, list[int]] = {}
        for k, cells in enumerate(self.inside[: tuning.SHOWN_PARTS]):
            words = f"{regions_text(cells)}: {cells.size:,} of {self.frame.size:,} cells"
            alike.setdefault(words, []).append(k)
        lines = [
            canvas.LegendLine(
                tuple(held), "X" if len(held) > 1 else self.marks[held[0]], self._name_parts(held) + words
            )
            for words, held in alike.items()
        ]
        if len(self.cells) > 1 and (not self.parts or self.shared.size):
            words = f"in two or more: {self.shared.size:,} of {self.frame.size:,} cells"
            lines.append(canvas.LegendLine((0, 1), "X", words))
        return lines

    def _name_parts(self, held: Sequence[int]) -> str:
        """What stands before the words of some parts."""
        marks = [self.marks[k] for k in held]
        in_a_row = len(held) > 2 and held[-1] - held[0] == len(held) - 1
        names = f"{marks[0]} to {marks[-1]}" if in_a_row else ", ".join(marks)
        if not self.parts:
            return f"{names}: " if len(held) > 1 else ""
        return f"{self.parts}s {names} have " if len(held) > 1 else f"{self.parts} {names} has "

    def notes(self, planes: Planes | None) -> list[str]:
        """Notes below the legend: planes and parts that are not drawn, and reads outside the frame."""
        left_out = len(self.cells) - tuning.SHOWN_PARTS
        read = _union([cells - cells_of(self.frame, self.box) for cells in self.cells]).size
        number = planes.number if planes else 0
        notes = {
            f"{tuning.PLANES} of {number} different planes are drawn": number > tuning.PLANES,
            f"{left_out:,} more parts are not drawn; they are counted": left_out > 0,
            self.note: self.note,
            f"{read:,} places outside are read {self.outside}": read,
        }
        return [words for words, is_so in notes.items() if is_so]

    def text(self) -> str:
        """As text: caption, cells or outline, and legend."""
        planes = self.planes()
        body = "too large to draw by the cell" if planes is None else "\n\n".join(map(canvas.grid_text, planes.grids))
        return "\n".join([self.caption, body, *canvas.legend_text(self.legend()), *self.notes(planes)])

    def drawing(self) -> canvas.Drawing:
        """As a part of a drawing."""
        planes, several = self.planes(), len(self.cells) > 1
        if planes is None:
            body = outline(self)
        else:
            pairs = zip(planes.grids, planes.outside, strict=True)
            body = canvas.beside([_with_outside(grid, beyond, several) for grid, beyond in pairs])
        notes = map(canvas.as_drawn, self.notes(planes))
        legend = canvas.legend_drawing(self.legend(), several)
        inside = canvas.below([canvas.as_drawn(cut_text(self.caption, 140)), body, legend, *notes], 6)
        return canvas.Drawing(inside.width, inside.height, (f'<g data-role="{self.role}">', *inside.parts, "</g>"))

    def planes(self) -> Planes | None:
        """The space cell by cell; None where it is too large."""
        patterns = [_pattern(self, axis) for axis in range(self.box.rank)]
        if any(pattern is None for pattern in patterns):
            return None
        return _planes(self, [pattern for pattern in patterns if pattern is not None])


def _union(sets: Sequence[DisjointRegions]) -> DisjointRegions:
    return reduce(lambda found, cells: found if cells.issubset(found) else found | cells, sets)


def _within(cells: DisjointRegions, frame: Box) -> DisjointRegions:
    """The cells that lie in the frame, as regions of it."""
    if (cells.start, cells.shape) == (frame.start, frame.shape):
        return cells
    kept = cells & cells_of(frame, Box(cells.start, cells.shape))
    return DisjointRegions(
        frame.shape, [Region(frame.shape, region.setts, frame.start) for region in kept.regions], frame.start
    )


# ---------------------------------------------------------------------------------------------------- in words


def regions_text(cells: DisjointRegions, most: int = 3) -> str:
    """Regions in words: an axis as a slice where it is one, else its bounds and how many cells there are in them.

    Examples
    --------
    >>> from tapestry_sets import Region
    >>> regions_text(DisjointRegions((9, 4), (Region.from_slices((9, 4), (slice(1, 9, 3), 2)),)))
    '[1:8:3, 2]'
    """
    members = cells.regions
    if not members:
        return "nothing"
    words = [region_text(region) for region in members[:most]]
    return " and ".join(words) + (f" and {len(members) - most} more" if len(members) > most else "")


def region_text(region: Region) -> str:
    """One region in words, as `regions_text` has it."""
    bounds = region.bounds()
    if bounds is None:
        return "nothing"
    axes = zip(*bounds, region.counts, region.grids(), region.shape, strict=True)
    return f"[{', '.join(_axis_text(*axis) for axis in axes)}]"


def _axis_text(lo: int, hi: int, count: int, runs: Sequence[StridedRun], extent: int) -> str:
    spans = [(lo, hi)] if count == extent else intervals(runs, tuning.SHOWN_SPANS)
    if spans is not None:
        return _spans_text(spans, extent)
    levels = runs[0].levels if len(runs) == 1 else ()
    if len(levels) == 1:
        return f"{lo}:{hi}:{levels[0][1]}"
    on, every = (levels[1][0], levels[0][1]) if len(levels) == 2 and levels[1][1] == 1 else (count, hi - lo)
    return f"{lo}:{hi} ({on:,} of {every:,})"


def _spans_text(spans: Sequence[tuple[int, int]], extent: int) -> str:
    """Intervals as an integer or a slice where they are one, else one beside the other."""
    lo, hi = spans[0][0], spans[-1][1]
    step = spans[1][0] - lo if len(spans) > 1 else 1
    if 1 < extent == sum(b - a for a, b in spans):
        return ":"
    if len(spans) > 1 and spans == [(z, z + 1) for z in range(lo, hi, step)]:
        return f"{lo}:{hi}" if step == 1 else f"{lo}:{hi}:{step}"
    return "|".join(f"{a}:{b}" if b - a > 1 else str(a) for a, b in spans)


def intervals(runs: Sequence[StridedRun], most: int) -> list[tuple[int, int]] | None:
    """The intervals [begin, end) that runs of integers consist of; None where there are more than `most`.

    Examples
    --------
    >>> from tapestry_sets import Sett, Stripe
    >>> intervals(Sett(Stripe(3, 5, 1)).runs(0, 16), 4)
    [(1, 4), (9, 12)]
    """
    spans: list[tuple[int, int]] = []
    for run in runs:
        is_dense = bool(run.levels) and run.levels[-1][1] == 1
        length, outer = (run.levels[-1][0], run.levels[:-1]) if is_dense else (1, run.levels)
        if len(spans) + prod(count for count, _ in outer) > most:
            return None
        for at in product(*(range(0, count * step, step) for count, step in outer)):
            begin = run.first + sum(at)
            if spans and spans[-1][1] == begin:
                begin = spans.pop()[0]
            spans.append((begin, run.first + sum(at) + length))
    return sorted(spans)


# ------------------------------------------------------------------------------------------------- cell by cell


class Pattern(NamedTuple):
    """How one axis is divided: for each product of each part whether it has a coordinate, and alike coordinates."""

    bits: Bits
    kinds: tuple[NDArray[np.intp], ...]

    @property
    def varies(self) -> bool:
        """Whether some coordinates differ from others."""
        return len(self.kinds) > 1


class Planes(NamedTuple):
    """The first planes of a picture, the same with the places outside alone, and how many planes there are."""

    grids: list[canvas.CellGrid]
    outside: list[canvas.CellGrid]
    number: int


def _products(plot: Plot) -> list[tuple[int, Region]]:
    """The products that make up the drawn parts' cells, with the number of the part; those of the frame come last."""
    parts = [(k, region) for k, cells in enumerate(plot.cells[: tuning.SHOWN_PARTS]) for region in cells.regions]
    return [*parts, *((-1, region) for region in cells_of(plot.frame, plot.box).regions)]


def _pattern(plot: Plot, axis: int) -> Pattern | None:
    """How an axis is divided; None where it is too long, or in too many products."""
    extent, start, found = plot.box.shape[axis], plot.box.start[axis], _products(plot)
    if extent > tuning.MAX_LISTED or len(found) > tuning.MAX_MEMBERS:
        return None
    bits = np.zeros((len(found), extent), np.bool_)
    for row, (_, region) in zip(bits, found, strict=True):
        row[np.asarray(region.setts[axis].elements(start, start + extent)) - start] = True
    _, firsts, inverse = np.unique(bits, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    return Pattern(bits, tuple(np.flatnonzero(inverse.reshape(-1) == k) for k in order))


def _planes(plot: Plot, patterns: Sequence[Pattern]) -> Planes | None:
    """The planes of a space of which each axis is known; None where they are too large."""
    shown = _shown_axes(plot.box.shape, patterns)
    most = (tuning.ROWS, tuning.COLUMNS) if len(shown) == 2 else (tuning.LINE_CELLS,) * len(shown)
    if any(plot.box.shape[axis] > room for axis, room in zip(shown, most, strict=True)):
        return None
    hidden = [axis for axis in range(plot.box.rank) if axis not in shown]
    kinds = [range(len(patterns[axis].kinds)) for axis in hidden]
    count = prod(len(kind) for kind in kinds)
    grids, outside = [], []
    for chosen in islice(product(*kinds), tuning.PLANES):
        at = {axis: patterns[axis].kinds[kind] for axis, kind in zip(hidden, chosen, strict=True)}
        cells = _plane(plot, patterns, shown, at)
        codes = np.where(cells < 0, -1, cells & ~FRAME)
        grids.append(_grid(plot, shown, at, codes))
        outside.append(_grid(plot, shown, at, np.where(cells < -1, -2 - cells, -1)))
    return Planes(grids, outside, count)


FRAME = 1 << 40
"""The bit of the cells that exist."""


def _plane(plot: Plot, patterns: Sequence[Pattern], shown: Sequence[int], at: Places) -> NDArray[np.int64]:
    """One plane: the parts that have each cell as bits, or -1, or -2 less the parts that read a place outside."""
    lines = [patterns[axis].bits for axis in shown]
    shape = tuple(bits.shape[1] for bits in lines)
    codes = np.zeros(shape, np.int64)
    for k, (part, _) in enumerate(_products(plot)):
        if all(patterns[axis].bits[k, places[0]] for axis, places in at.items()):
            held: Any = np.ones((), np.bool_)
            for bits in lines:
                held = np.multiply.outer(held, bits[k])
            codes[held] |= FRAME if part < 0 else 1 << part
    exists = codes & FRAME != 0
    beyond = np.where(codes > 0, -2 - codes, -1)
    return np.where(exists, codes, beyond)


def _shown_axes(shape: Shape, patterns: Sequence[Pattern]) -> list[int]:
    """The two axes, or fewer, that are drawn down and across: of those that vary the last, then of the others."""
    rank = len(shape)
    varied = [axis for axis in range(rank) if patterns[axis].varies]
    others = [axis for axis in range(rank) if not patterns[axis].varies and shape[axis] > 1]
    fitting = [axis for axis in others if shape[axis] <= tuning.ROWS]
    chosen = [*reversed(varied), *reversed(fitting), *([] if varied or fitting else reversed(others))]
    return sorted(chosen[:2])


def _grid(plot: Plot, shown: Sequence[int], at: Places, codes: NDArray[np.int64]) -> canvas.CellGrid:
    """A plane as a grid of which each cell knows its place."""
    start = plot.box.start
    fixed = {
        axis: _spans_text([(z, z + 1) for z in (places + start[axis]).tolist()], plot.box.shape[axis])
        for axis, places in at.items()
    }

    words = [fixed.get(axis, "") for axis in range(plot.box.rank)]

    def place(*point: int) -> str:
        for axis, x in zip(shown, point, strict=True):
            words[axis] = str(start[axis] + x)
        return ",".join(words)

    caption = _caption(plot, shown, fixed)
    if not shown:
        return canvas.CellGrid(codes.reshape(1, 1), (), (), caption, lambda row, column: place(), marks=plot.marks)
    if len(shown) == 1:
        line = canvas.line_grid(codes, start[shown[0]], tuning.COLUMNS)
        wide = line.cells.shape[1]
        return canvas.CellGrid(
            line.cells,
            line.rows,
            line.columns,
            caption,
            lambda row, column: place(row * wide + column),
            line.plus,
            marks=plot.marks,
        )
    (down, across), (rows, columns) = shown, codes.shape
    labels = range(start[down], start[down] + rows), range(start[across], start[across] + columns)
    return canvas.CellGrid(codes, *labels, caption, place, marks=plot.marks)


def _caption(plot: Plot, shown: Sequence[int], fixed: Mapping[int, str]) -> str:
    """Which axes a plane has, and where it lies on the others; of a line, and of two axes by number, nothing."""
    names = [name or str(axis) for axis, name in enumerate(plot.names or ("",) * plot.box.rank)]
    lies = f"[{', '.join(fixed.get(axis, '·') for axis in range(plot.box.rank))}]" if fixed else ""
    if len(shown) < 2:
        axis = f"axis {names[shown[0]]}" if shown and plot.box.rank > 1 else ""
        return ", ".join(filter(None, [axis, lies]))
    words = f"axis {names[shown[0]]} down, axis {names[shown[1]]} across"
    return ", ".join(filter(None, [words if plot.names or plot.box.rank > 2 else "", lies]))


def _with_outside(grid: canvas.CellGrid, beyond: canvas.CellGrid, several: bool) -> canvas.Drawing:
    """A plane, with the places outside that are read as gray squares without an outline."""
    side = canvas.cell_size(None, grid.cells.shape[1])
    drawing = canvas.grid_drawing(grid, side, several)
    left, top = canvas.margin_of(grid), (canvas.LINE if grid.caption else 0) + (canvas.SMALL + 4 if grid.columns else 0)
    places = np.argwhere(beyond.cells >= 0).tolist()
    if not places:
        return drawing
    small = max(1, side - 4)
    corners = [(left + column * side + 2, top + row * side + 2) for row, column in places]
    squares = "".join(f"M{x} {y}h{small}v{small}h-{small}z" for x, y in corners)
    back = f'<path fill="{PADDING}" data-outside="{len(places)}" d="{squares}"/>'
    return canvas.Drawing(drawing.width, drawing.height, (back, *drawing.parts))


# ---------------------------------------------------------------------------------------------------- in outline


def outline(plot: Plot) -> canvas.Drawing:
    """A space too large for cells: a rectangle to scale, and in it the bounds of each part's places."""
    down, across = _outline_axes(plot)
    tall, wide = _scale(plot.frame, down, *tuning.OUTLINE[:2]), _scale(plot.frame, across, *tuning.OUTLINE[2:])
    left = 8 if down is None else canvas.breadth(str(plot.frame.stop[down])) + 8
    top = 2 * canvas.LINE
    words = _outline_words(plot, down, across)
    shown = [
        (k, region)
        for k, cells in enumerate(plot.inside[: tuning.SHOWN_PARTS])
        for region in cells.regions[: tuning.MAX_MEMBERS]
    ]
    shared = [_outlined("shared", region, tall, wide) for region in plot.shared.regions[: tuning.MAX_MEMBERS]]
    frame = f'<path d="M0 0h{wide.pixels}v{tall.pixels}h-{wide.pixels}z" fill="none" stroke="{canvas.INK}"/>'
    rows = tall.apart([region for _, region in shown], lambda _: canvas.SMALL + 2)
    columns = wide.apart([region for _, region in shown], lambda edge: canvas.breadth(str(edge)) + 6)
    parts = [
        canvas.written(0, canvas.SMALL, words),
        f'<g transform="translate({left},{top})">',
        *(_outlined(str(k + 1), region, tall, wide, canvas.color_of(k)) for k, region in shown),
        *(shared if len(shown) > 1 else []),
        frame,
        *(canvas.written(wide.at(x), -4, str(x), "middle") for x in columns),
        *(canvas.written(-4, tall.at(y) + 3.5, str(y), "end") for y in rows),
        "</g>",
    ]
    half = 0 if across is None else canvas.breadth(str(plot.frame.stop[across]))
    width = max(left + wide.pixels + half, canvas.breadth(words))
    return canvas.Drawing(width, top + tall.pixels + 8, tuple(parts))


def _outline_words(plot: Plot, down: int | None, across: int | None) -> str:
    names = plot.names or tuple(map(str, range(plot.frame.rank)))
    ways = [f"axis {names[axis]} {way}" for axis, way in ((down, "down"), (across, "across")) if axis is not None]
    return ", ".join(["in outline", *ways])


def _outlined(part: str, region: Region, tall: Scale, wide: Scale, color: str = canvas.INK) -> str:
    """What a part has, or what is shared, as an element that says it."""
    blocks = [(*y, *x) for y in tall.spans(region) for x in wide.spans(region)]
    d = "".join(f"M{x:g} {y:g}h{width:g}v{height:g}h-{width:g}z" for y, height, x, width in blocks)
    return (
        f'<path d="{d}" fill="{color}" fill-opacity="0.35" stroke="{color}" '
        f'data-part="{part}" data-box="{region_text(region)}"/>'
    )


class Scale(NamedTuple):
    """One axis of an outline, or none, which is -1: what it shows in how many pixels."""

    axis: int
    start: int
    extent: int
    pixels: int

    def at(self, coordinate: int) -> float:
        """The pixel where a coordinate begins."""
        return round((coordinate - self.start) * self.pixels / self.extent, 1)

    def ends(self, region: Region) -> list[tuple[int, int]]:
        """Where a region begins and ends on the axis: its intervals, or its bounds where they are many."""
        bounds = region.bounds()
        if self.axis < 0 or bounds is None:
            return [(self.start, self.start + self.extent)]
        return intervals(region.grids()[self.axis], tuning.DRAWN_SPANS) or [
            (bounds[0][self.axis], bounds[1][self.axis])
        ]

    def spans(self, region: Region) -> list[tuple[float, float]]:
        """The first pixel and the length of each interval of a region; thin ones are 2 pixels at least."""
        found = [(self.at(lo), self.at(hi)) for lo, hi in self.ends(region)]
        return [(min(lo, self.pixels - 2.0), round(max(2.0, hi - lo), 1)) for lo, hi in found]

    def apart(self, regions: Sequence[Region], room: Callable[[int], int]) -> list[int]:
        """The coordinates to label: both ends, and those where regions end, as far as the labels' room allows."""
        if self.axis < 0:
            return []
        first, last = self.start, self.start + self.extent
        kept = [first]
        for edge in sorted({end for region in regions for span in self.ends(region) for end in span} - {first, last}):
            before, after = self.at(edge) - self.at(kept[-1]), self.at(last) - self.at(edge)
            if before >= max(room(edge), room(kept[-1])) and after >= max(room(edge), room(last)):
                kept.append(edge)
        return [*kept, last]


def _scale(frame: Box, axis: int | None, least: int, most: int) -> Scale:
    if axis is None:
        return Scale(-1, 0, 1, least)
    return Scale(axis, frame.start[axis], frame.shape[axis], max(least, most * frame.shape[axis] // max(frame.shape)))


def _outline_axes(plot: Plot) -> tuple[int | None, int | None]:
    """The axes of an outline, down and across: the last of those on which a part has not all, then of the others."""
    bounds = [cells.bounds() for cells in plot.inside[: tuning.SHOWN_PARTS]]

    def is_cut(axis: int) -> bool:
        whole = (plot.frame.start[axis], plot.frame.stop[axis])
        return any(b is not None and (b[0][axis], b[1][axis]) != whole for b in bounds)

    long = [axis for axis in range(plot.frame.rank) if plot.frame.shape[axis] > 1]
    chosen = sorted(sorted(long, key=lambda axis: (is_cut(axis), axis))[-2:])
    if len(chosen) == 2:
        return chosen[0], chosen[1]
    return None, (chosen[0] if chosen else None)
