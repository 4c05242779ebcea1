"""Pictures of sets: text such as ``.11.11.`` and small SVG drawings.

The sets are taken by their verbs (`elements`, `points`, `shape`), so that this module imports none of
theirs and their reprs can use it. Several sets in one picture show their overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

MAX_CELLS = 1 << 14
"""A picture of more cells than this is refused: it would be no picture."""

COLOURS = ("#ffffff", "#4477aa", "#ee6677", "#aa3377", "#ccbb44", "#228833", "#66ccee", "#555555")
"""Fill of a cell by its code: nothing, first set, second set, both, third set, and so on."""

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


def raster(*sets: Any, start: int = 0, stop: int | None = None) -> Raster:
    """Return the cells of a picture of one or more sets of the same kind.

    Parameters
    ----------
    *sets : Stripe, Sett, Setts, Intersection, Region or Regions
        All sets of integers, or all regions in one box of rank 0 to 3.
    start, stop : int, optional
        The integers shown; one period of the first set by default. Regions are shown with their whole box.

    Returns
    -------
    numpy.ndarray
        int64, of shape (planes, rows, columns).

    Raises
    ------
    ValueError
        If there is no set, the boxes differ, the rank exceeds 3 or the picture exceeds 16,384 cells.
    """
    if not sets:
        raise ValueError("draw: needs at least one set")
    if all(hasattr(s, "points") for s in sets):
        return _region_raster(sets)
    last = start + sets[0].period if stop is None else stop
    _check_cells(max(0, last - start), f"integers in [{start}, {last})")
    cells = np.zeros((1, 1, max(0, last - start)), np.int64)
    for i, s in enumerate(sets):
        cells[0, 0, s.elements(start, last) - start] |= 1 << i
    return cells


def _region_raster(regions: Sequence[PointSet]) -> Raster:
    shape, start = regions[0].shape, regions[0].start
    if len(shape) > 3:
        raise ValueError(f"draw: shape {shape} has rank {len(shape)}; slice it to rank 3 or less")
    box = (1,) * (3 - len(shape)) + shape
    size = 1
    for n in box:
        size *= n
    _check_cells(size, f"points of shape {shape}")
    cells = np.zeros(box, np.int64)
    for i, r in enumerate(regions):
        if (r.shape, r.start) != (shape, start):
            where = f"not {shape} from {start} and {r.shape} from {r.start}"
            raise ValueError(f"draw: regions must be in one box, {where}")
        at = r.points() - np.asarray(start, np.int64)
        flat = cells.reshape(shape)  # a view: all the added axes have extent 1
        flat[tuple(at.T)] |= 1 << i
    return cells


def _check_cells(n: int, what: str) -> None:
    if n > MAX_CELLS:
        raise ValueError(f"draw: {n} {what} are more than {MAX_CELLS}; draw a part of it")


def text(*sets: Any, start: int = 0, stop: int | None = None) -> str:
    """Return sets as text: ``.`` for a free cell, ``1`` for one of the first set.

    With several sets, a digit is the number of the only set there, and ``X`` marks where two or more
    overlap. Rows are lines; planes are apart by an empty line.

    Parameters
    ----------
    *sets, start, stop
        As for `raster`.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        As for `raster`.

    Examples
    --------
    >>> from tapestry_sets.sett import Sett
    >>> from tapestry_sets.stripe import Stripe
    >>> text(Sett(Stripe(6, 1), Stripe(2, 1)), stop=16)
    '11.11..11.11..11'
    >>> text(Stripe(2, 2), Stripe(1, 2), stop=12)
    'X1.2112.1X..'
    """
    return text_of(raster(*sets, start=start, stop=stop))


def text_of(cells: Raster) -> str:
    """Return a raster as text; see `text`."""
    planes = ["\n".join("".join(_mark(int(c)) for c in row) for row in plane) for plane in cells]
    return "\n\n".join(planes)


def _mark(code: int) -> str:
    if not code:
        return "."
    return str(code.bit_length()) if code & (code - 1) == 0 else "X"


def svg(*sets: Any, start: int = 0, stop: int | None = None, cell: int = 14) -> str:
    """Return sets as an SVG drawing: a square for each cell, coloured by the sets that hold it.

    Parameters
    ----------
    *sets, start, stop
        As for `raster`.
    cell : int
        The side of a square in pixels.

    Returns
    -------
    str
        A complete ``<svg>`` element.

    Raises
    ------
    ValueError
        As for `raster`.

    Examples
    --------
    >>> from tapestry_sets.stripe import Stripe
    >>> svg(Stripe(1, 1), stop=4).count("<rect")
    4
    """
    return svg_of(raster(*sets, start=start, stop=stop), cell)


def svg_of(cells: Raster, cell: int = 14) -> str:
    """Return a raster as an SVG drawing, its planes side by side; see `svg`."""
    planes, rows, columns = cells.shape
    width, height = planes * (columns + 1) * cell, (rows + 1) * cell
    squares = [
        f'<rect x="{(plane * (columns + 1) + column) * cell + cell // 2}" y="{row * cell + cell // 2}" '
        f'width="{cell}" height="{cell}" fill="{COLOURS[min(int(code), len(COLOURS) - 1)]}"/>'
        for (plane, row, column), code in np.ndenumerate(cells)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" stroke="#999999">'
    return "\n".join([head, *squares, "</svg>"])


def summary(x: Any) -> str:
    """Return a picture of a set where one can be drawn, else its repr: what ``str`` shows.

    Sets of integers are shown over one period, or the first 64 integers of a longer one.
    """
    if hasattr(x, "points"):
        drawable = len(x.shape) <= 3 and all(0 < n <= 64 for n in x.shape)
        return text(x) if drawable else repr(x)
    if x.period <= 64:
        return text(x)
    return f"{text(x, stop=64)}... (period {x.period})"


def mimebundle(x: Any) -> dict[str, str]:
    """Return the forms in which a notebook shows a set: its repr, and a drawing where it is small."""
    bundle = {"text/plain": f"{x!r}\n{summary(x)}" if summary(x) != repr(x) else repr(x)}
    if not hasattr(x, "points"):
        bundle["image/svg+xml"] = svg(x, stop=min(x.period, 64))
    elif summary(x) != repr(x):
        bundle["image/svg+xml"] = svg(x)
    return bundle


# ------------------------------------------------------------------------------------------------------- views


def view_rasters(*views: Any) -> dict[Any, Raster]:
    """Return, for each allocation that the views read, a raster of the cells that each view reads.

    Parameters
    ----------
    *views : View
        Of allocations of rank 0 to 3.

    Raises
    ------
    ValueError
        If an allocation has more than three axes or 16,384 cells.
    """
    rasters: dict[Any, Raster] = {}
    for i, view in enumerate(views):
        for allocation, regions in view.origins().items():
            cells = _region_raster([regions]) << i
            rasters[allocation] = rasters[allocation] | cells if allocation in rasters else cells
    return rasters


def views_text(*views: Any) -> str:
    """Return where views lie in memory as text; the marks are those of `text`.

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


def views_mimebundle(*views: Any) -> dict[str, str]:
    """Return the forms in which a notebook shows views: where they lie in memory, if that is small enough to draw."""
    named = "\n".join(map(repr, views))
    homes = {a for view in views for a in view.allocations}
    if not homes or any(len(a.shape) > 3 or not 0 < a.size <= MAX_CELLS for a in homes):
        return {"text/plain": named}
    return {
        "text/plain": f"{named}\n{views_text(*views)}",
        "image/svg+xml": "\n".join(views_svg(*views).values()),
    }


def views_svg(*views: Any, cell: int = 14) -> dict[Any, str]:
    """Return where views lie in memory, one SVG drawing for each allocation; `cell` is a square's side in pixels.

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((4,))
    >>> views_svg(A[::2])[A].count("<rect")
    4
    """
    return {allocation: svg_of(cells, cell) for allocation, cells in view_rasters(*views).items()}
