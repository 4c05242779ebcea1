"""Pictures of sets: text such as ``.11.11.``, and SVG drawings with axes, a legend and counts.

The sets are taken by their verbs (`elements`, `points`, `shape`, `stripes`), so that this module imports none
of theirs and their reprs can use it. Several sets in one picture show their overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm, prod
from typing import Any

import numpy as np

from tapestry_sets.draw import canvas, tuning
from tapestry_sets.draw.boxes import (
    AxisOutline,
    axis_drawing,
    axis_lines,
    outline_of,
    outline_svg,
    outline_text,
    period_of,
)
from tapestry_sets.draw.levels import levels_drawing
from tapestry_sets.draw.views import views_picture
from tapestry_sets.limits import OPEN, as_int, ask_one, check_flag, check_positive, check_range, cut_text, quote

# ------------------------------------------------------------------------------------------------------- rasters


def raster(*sets: Any, start: int = 0, stop: int | None = None) -> canvas.Raster:
    """Return the cells of a picture of one or more sets of the same kind.

    Parameters
    ----------
    *sets : Stripe, Sett, DisjointSetts, Intersection, Region, DisjointRegions or ImplicitRegion
        All sets of integers, or all regions in one box of rank 0 to 3; at most 32.
    start, stop : int, optional
        The integers shown; one common period of the sets by default. Regions are shown with their whole box.

    Returns
    -------
    numpy.ndarray
        int64, of shape (planes, rows, columns).

    Raises
    ------
    TypeError
        If an argument is not a set, or sets of integers are mixed with regions.
    ValueError
        If no set is given, the boxes differ, the rank exceeds 3, the picture exceeds 16,384 cells, or a window is
        given for regions.

    Examples
    --------
    >>> from tapestry_sets.integers import Stripe
    >>> raster(Stripe(2, 2), Stripe(1, 2), stop=8).tolist()
    [[[3, 1, 0, 2, 1, 1, 2, 0]]]
    """
    if _check_kind(sets):
        if stop is not None or as_int(start, "draw: start"):
            raise ValueError(f"draw: start={start}, stop={stop} are for sets of integers; slice a region instead")
        return _region_raster(sets)
    first, last = _window(sets, start, stop)
    cells = np.zeros((1, 1, last - first), np.int64)
    for i, s in enumerate(sets):
        cells[0, 0, s.elements(first, last) - first] |= 1 << i
    return cells


def _check_kind(sets: Sequence[Any]) -> bool:
    """Return whether all are sets of points, rather than all sets of integers."""
    canvas.check_many(sets, "set")
    for at, s in enumerate(sets):
        if not (hasattr(s, "points") or hasattr(s, "elements")):
            raise TypeError(
                f"draw: argument {at} must be a Stripe, Sett, DisjointSetts, Intersection, Region or DisjointRegions, "
                f"not {quote(s)}; views have show_views"
            )
        if hasattr(s, "points") != hasattr(sets[0], "points"):
            raise TypeError(
                f"draw: argument {at}, {quote(s)}, and argument 0 must both be sets of integers or both regions"
            )
    return hasattr(sets[0], "points")


def _window(sets: Sequence[Any], start: object, stop: object) -> tuple[int, int]:
    end = as_int(start, "draw: start") + lcm(*(s.period for s in sets)) if stop is None else stop
    first, last = check_range(start, end, "draw")
    canvas.check_cells(last - first, f"integers in [{first}, {last})", "give start and stop to draw a part")
    return first, last


def _first_part(sets: Sequence[Any], start: object) -> tuple[int, str]:
    """Return where a picture of sets of integers ends without being asked, and what it leaves out, in words."""
    first, period = as_int(start, "draw: start"), lcm(*(s.period for s in sets))
    if period <= tuning.MAX_CELLS:
        return first + period, ""
    last = first + tuning.SHOWN_CELLS
    return last, f"[{first}, {last}) of {'a common' if len(sets) > 1 else 'a'} period of {_number(period)} integers"


def _region_raster(regions: Sequence[Any]) -> canvas.Raster:
    shape, start = tuple(regions[0].shape), tuple(regions[0].start)
    if len(shape) > 3:
        raise canvas.TooLarge(
            f"draw: shape {quote(shape)} has rank {len(shape)}; slice it to rank 3 or less, or flatten it"
        )
    box = (1,) * (3 - len(shape)) + shape
    canvas.check_cells(prod(shape), f"points of shape {shape}", "slice it to draw a part")
    cells = np.zeros(box, np.int64)
    for i, r in enumerate(regions):
        if (tuple(r.shape), tuple(r.start)) != (shape, start):
            where = f"not {shape} from {start} and {tuple(r.shape)} from {tuple(r.start)}"
            raise ValueError(f"draw: regions must be in one box, {where}")
        at = np.asarray(r.points(), np.int64) - np.asarray(start, np.int64)
        flat = cells.reshape(shape)  # a view: all the added axes have extent 1
        flat[tuple(at.T)] |= 1 << i
    return cells


def text(
    *sets: Any, start: int = 0, stop: int | None = None, axes: bool = False, wrap: int = tuning.SHOWN_LENGTH
) -> str:
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
    >>> from tapestry_sets.integers import Sett
    >>> from tapestry_sets.integers import Stripe
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
    if not check_flag(axes, "draw: axes"):
        return canvas.text_of(cells)
    grids = canvas.box_grids(cells, _origin(sets, start), check_positive(wrap, "draw: wrap"))
    return "\n\n".join(map(canvas.grid_text, grids))


def _origin(sets: Sequence[Any], start: object) -> tuple[int, ...]:
    return tuple(sets[0].start) if hasattr(sets[0], "points") else (as_int(start, "draw: start"),)


def svg(
    *sets: Any,
    start: int = 0,
    stop: int | None = None,
    cell: int | None = None,
    names: Sequence[str] | None = None,
    title: str = "",
    wrap: int = tuning.SHOWN_LENGTH,
) -> str:
    """Return sets as an SVG drawing: a square for each cell, colored by the sets that hold it, with coordinates.

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
    >>> from tapestry_sets.integers import Stripe
    >>> svg(Stripe(1, 1), stop=4).count("<rect")
    4
    """
    cells, called = raster(*sets, start=start, stop=stop), canvas.names_of(sets, names)
    return _sets_svg(cells, _origin(sets, start), check_positive(wrap, "draw: wrap"), called, title, cell)


def _sets_svg(
    cells: canvas.Raster,
    origin: Sequence[int],
    wrap: int,
    names: Sequence[str],
    title: str,
    cell: int | None = None,
) -> str:
    return canvas.document(_sets_drawing(cells, origin, wrap, names, cell), title)


def _sets_drawing(
    cells: canvas.Raster, origin: Sequence[int], wrap: int, names: Sequence[str], cell: int | None = None
) -> canvas.Drawing:
    several = len(names) > 1
    room = max(len(f"{end}") for end in (*origin, origin[0] + cells.size)) * tuning.CHARACTER + 5 if origin else 0
    grids = canvas.box_grids(cells, origin, canvas.fold_at(wrap, room))
    legend = canvas.legend_drawing(canvas.count_lines(cells, names), several)
    return canvas.below([canvas.grids_drawn(grids, cell, several), legend])


def show(
    *things: Any,
    start: int = 0,
    stop: int | None = None,
    names: Sequence[str] | None = None,
    title: str = "",
    wrap: int = tuning.SHOWN_LENGTH,
) -> canvas.Picture:
    """Return a picture of sets, or of views in memory, that a notebook draws and ``print`` writes.

    Parameters
    ----------
    *things
        Sets as for `raster`, or views as for `show_views`.
    start, stop, names, title, wrap
        As for `svg`; views take `names`, `title` and `wrap`. Of a common period of more than 16,384 integers the first
        4,096 are shown by default, and the title says so.

    Returns
    -------
    Picture

    Raises
    ------
    TypeError, ValueError
        As for `svg`, or if views come with a window.

    Examples
    --------
    >>> from tapestry_sets.integers import Stripe
    >>> show(Stripe(2, 2), Stripe(1, 2), stop=12, names=["pairs", "thirds"])
    0    5    10
    X1.2112.1X..
    1  pairs: 6 of 12 cells
    2  thirds: 4 of 12 cells
    X  in two or more: 2 of 12 cells
    """
    canvas.check_title(title)
    if things and all(hasattr(thing, "origins") for thing in things):
        if stop is not None or start:
            raise ValueError(f"draw: start={start}, stop={stop} are for sets of integers; slice the views instead")
        return views_picture(things, names, title=title, wrap=wrap)
    called = canvas.names_of(things, names)
    if stop is None and not _check_kind(things):
        stop, part = _first_part(things, start)
        title = ": ".join(words for words in (title, part) if words)
    cells = raster(*things, start=start, stop=stop)
    grids = canvas.box_grids(cells, _origin(things, start), check_positive(wrap, "draw: wrap"))
    lines = [title] if title else []
    lines += ["\n\n".join(map(canvas.grid_text, grids)), *canvas.legend_text(canvas.count_lines(cells, called))]
    words = "\n".join(lines)
    return canvas.draw_twice(lambda: (words, _sets_svg(cells, _origin(things, start), wrap, called, title)))


# ------------------------------------------------------------------------------------------------------ for reprs


class Drawn:
    """A set that ``str`` shows as text and a notebook as a drawing."""

    __slots__ = ()

    def __str__(self) -> str:
        return summary(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return mimebundle(self)


def summary(x: Any) -> str:
    """Return the text of ``str``: a picture of a set where one can be drawn, else its repr.

    Sets of integers are shown over one period, or 64 integers of a longer one, from the first element if there is
    none in [0, 64).

    Examples
    --------
    >>> from tapestry_sets.integers import Stripe
    >>> summary(Stripe(2, 3)), summary(Stripe(1, 10**9))
    ('11...', '1.................................................................. (period 1000000001)')
    """
    drawn = ask_one(canvas.NOT_DRAWN, _summary, x)
    return repr(x) if drawn is OPEN else drawn


def _summary(x: Any) -> str:
    if hasattr(x, "points"):
        return text(x) if _is_small(x) else repr(x)
    if x.period <= tuning.SHOWN_LENGTH:
        return text(x)
    start = _first_shown(x)
    where = f"from {start}: " if start else ""
    return f"{where}{text(x, start=start, stop=start + tuning.SHOWN_LENGTH)}... (period {_number(x.period)})"


def _number(n: int) -> str:
    """Return a number in words of bounded length; Python does not write very long ones."""
    return str(n) if n.bit_length() <= tuning.SHOWN_BITS else f"over 2**{n.bit_length() - 1}"


def _is_small(x: Any) -> bool:
    fits = all(0 < n <= tuning.SHOWN_LENGTH for n in x.shape) and prod(x.shape) <= tuning.SHOWN_CELLS
    return fits and len(x.shape) <= 3


def _first_shown(x: Any) -> int:
    """Return where the window of a long period begins: at 0, or at the first element beyond it."""
    # a search may be long in a set that is not listed, and elements must fit int64
    is_listed = any(hasattr(x, name) for name in ("on", "stripes", "members"))
    if not is_listed or len(x.elements(0, tuning.SHOWN_LENGTH)):
        return 0
    found = x.find(0)
    return found if found is not None and found < 1 << 62 else 0


def mimebundle(x: Any) -> dict[str, str]:
    """Return the forms in which a notebook shows a set: its repr, and a drawing of it or of a part of it."""
    words, name = summary(x), repr(x)
    if words == name:
        box = ask_one(canvas.NOT_DRAWN, outline_of, x) if hasattr(x, "points") else OPEN
        if box is OPEN:
            return {"text/plain": name}
        words = outline_text(box)
        return canvas.draw_twice(lambda: (words, outline_svg(box, name))).bundle(f"{name}\n{words}")
    if hasattr(x, "points"):
        return canvas.draw_twice(lambda: (words, svg(x, title=name, names=["points"]))).bundle(f"{name}\n{words}")
    period = period_of(x) if x.period > tuning.SHOWN_LENGTH else None
    said = "\n".join([words, *axis_lines([period] if period else [])])
    return canvas.draw_twice(lambda: (said, _integers_svg(x, name, period))).bundle(f"{name}\n{said}")


def _integers_svg(x: Any, name: str, outline: AxisOutline | None) -> str:
    """Return a window of a set of integers: some periods of a short one, of a long one 64 integers and its outline."""
    period = x.period
    start = _first_shown(x) if period > tuning.SHOWN_LENGTH else 0
    stop = start + min(tuning.SHOWN_LENGTH, -(-tuning.MIN_SHOWN // period) * period)
    if len(getattr(x, "stripes", ())) in range(2, 9):
        drawn = levels_drawing(x, start, stop)
    else:
        cells = raster(x, start=start, stop=stop)
        drawn = _sets_drawing(cells, (start,), tuning.SHOWN_LENGTH, [f"elements in [{start}, {stop})"])
    parts = [drawn, *([axis_drawing(outline)] if outline else [])]
    return canvas.document(canvas.below(parts), f"{cut_text(name, 70)}, period {_number(period)}")
