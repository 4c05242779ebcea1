"""Where views and real arrays lie in memory: pictures of several at once, and a table of the cells that each reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from tapestry_sets.alias import tuning
from tapestry_sets.alias.ladder.cells import Cells
from tapestry_sets.alias.memory.arrays import ViewLike, read_view
from tapestry_sets.alias.overlap import overlaps
from tapestry_sets.draw import (
    ADDRESSES,
    SHOWN_LENGTH,
    Picture,
    align,
    as_html,
    names_of,
    number_repeats,
    views_picture,
    yes_or_no,
)
from tapestry_sets.integers import Sett
from tapestry_sets.limits import OPEN, TooHard, TooManyPieces, ask_one, cut_text
from tapestry_sets.regions import Region
from tapestry_sets.views import Allocation, Derived, View


def show_views(
    *views: ViewLike,
    names: Sequence[str] | None = None,
    mode: str = "auto",
    wrap: int = SHOWN_LENGTH,
    title: str = "",
    indices: bool = True,
) -> Picture:
    """Return a picture of where views lie in memory, which cells they share, and which indices read such a cell.

    An allocation too large to draw is drawn in windows, around a shared cell if there is one, with dots where cells
    are left out. The counts below are always those of the whole allocation.

    Parameters
    ----------
    *views : View or array
        At most 32. Arrays are drawn in the host's memory byte by byte, from the lowest address on.
    names : sequence of str, optional
        What the views are called; of "B = A[::2]", rows have "B". By default allocations' names, or reprs.
    mode : str
        "rows": each allocation as a line of cells, a row for each view and one for the cells that are shared.
        "grid": the allocation in its own shape (a line is folded after `wrap` cells), each cell marked by the views
        that read it. "auto": rows for a line that several views read and for more than three axes, else the grid.
    wrap : int
        The cells in a line.
    title : str
        The words above the picture.
    indices : bool
        Whether the shapes of views that share a cell are drawn too, with the indices that read it.

    Returns
    -------
    Picture

    Raises
    ------
    TypeError
        If an argument is neither a view nor an array.
    ValueError
        If there is no view, `mode` is unknown, `wrap` is less than 1 or the names are not as many as the views;
        TooHard, a ValueError, if what a view reads cannot be said.

    Examples
    --------
    >>> from tapestry_sets import show_views
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((27,), name="A")
    >>> show_views(A.reshape(3, 3, 3)[:2, :2, :2], A[2::5], names=["B", "C"], indices=False)
    A (27,)
           0    5    10   15   20   25
    B      11.11....11.11.............
    C      ..2....2....2....2....2....
    shared ............X..............
    1  B: 8 of 27 cells
    2  C: 5 of 27 cells
    X  shared: 1 of 27 cells
    B[1, 1, 0] and C[2] both read A[12]
    >>> show_views(A.reshape(3, 9)[1], A[::5], names=["row 1", "A[::5]"], mode="grid", wrap=9, indices=False)
    A (27,)
       +0   +5
     0 2....2...
     9 1X1111X11
    18 ..2....2.
    1  row 1: 9 of 27 cells
    2  A[::5]: 6 of 27 cells
    X  shared: 2 of 27 cells
    (row 1)[1] and A[::5][2] both read A[10]

    References
    ----------
    Tapestry's document on nested striding: the figures of "Introduction" and "Alias analysis".
    """
    found, called, arrays = _as_views(views, names, "show_views")
    return views_picture(found, called, mode, wrap, title, arrays, indices)


def _as_views(
    views: Sequence[object], names: Sequence[str] | None, what: str
) -> tuple[list[View], list[str] | None, list[int]]:
    """Return arguments as views, with what they are called, and the positions of those that are arrays."""
    if not views:
        raise ValueError(f"{what}: needs at least one view")
    found = [read_view(x, f"{what}: argument {k}") for k, x in enumerate(views)]
    arrays = [i for i, (x, view) in enumerate(zip(views, found, strict=True)) if x is not view]
    if names is not None:
        return found, names_of(views, names, what), arrays
    named = [view.name if isinstance(view, Allocation) else "" for view in found]
    called = [f"array {i}" if i in arrays else named[i] or repr(view) for i, view in enumerate(found)]
    return found, called, arrays


# ------------------------------------------------------------------------------------------------- a table of origins


class OriginsTable(Struct, frozen=True):
    """A table of the cells that views read: ``print`` writes it, a notebook shows it.

    Parameters
    ----------
    views : tuple of tuples of dict
        For each view a row for each allocation that it reads, by the names of the columns; what holds for the whole
        view is in each of its rows.
    """

    views: tuple[tuple[dict[str, str], ...], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.views[0][0])

    @property
    def text(self) -> str:
        """The table in aligned columns; columns that several lines of a view share are written once."""
        return "\n".join(align(self._cells(), ruler=True))

    @property
    def html(self) -> str:
        """The table as an element of HTML."""
        return as_html(self._cells(), "text-align:left;vertical-align:top;font-family:monospace;white-space:pre")

    def _cells(self) -> list[tuple[str, ...]]:
        """The rows, the head first; those after a view's first are empty where they would say the same."""
        found = [self.columns]
        for rows in self.views:
            for at, row in enumerate(rows):
                found.append(tuple("" if at and name not in PER_ALLOCATION else cell for name, cell in row.items()))
        return found

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": self.html}


PER_ALLOCATION = ("reads", "regions", "cells", "nbytes")
"""The columns of a table that differ from one allocation to the next."""


def origins_table(*views: ViewLike, names: Sequence[str] | None = None) -> OriginsTable:
    """Return a table of the cells that views read: for each view and allocation the regions, and their properties.

    Parameters
    ----------
    *views : View or array
    names : sequence of str, optional
        What the views are called; by default ``v0``, ``v1`` and so on, or the names of allocations.

    Returns
    -------
    OriginsTable
        With the columns

        - view, shape;
        - chain: the view kinds from the source on, each with the shape that it makes;
        - reads: the allocation, and its shape;
        - regions: those that the view reads of it, an axis as a slice where it is one, else as the stripes of its sett,
          ``(on,off,phase)`` with the outermost first, after the interval that they are nested in if it is one alone;
          addresses count from the first that is read;
        - cells, nbytes: how many different ones that are;
        - self-overlap: whether some cell is read at two indices;
        - contiguous: whether the cells are one gapless run of memory, in whatever order;
        - aliases: the other views that read a common cell.

        A question mark stands for what is too hard to say.

    Raises
    ------
    TypeError
        If an argument is neither a view nor an array.
    ValueError
        If there is no view, or the names are not as many as the views.

    Examples
    --------
    >>> from tapestry_sets import origins_table
    >>> from tapestry_sets.views import allocate, concatenate
    >>> A, b = allocate((4, 6), name="A"), allocate((3,), name="b")
    >>> B, C = A[:, 3:6], A.reshape(24)[::7]
    >>> print(origins_table(B, C, concatenate([b, C]), names=["B", "C", "D"]))
    view  shape   chain          reads     regions   cells  nbytes  self-overlap  contiguous  aliases
    ----  ------  -------------  --------  --------  -----  ------  ------------  ----------  -------
    B     (4, 3)  Slice (4, 3)   A (4, 6)  [:, 3:6]  12     12      no            no          C, D
    C     (4,)    Reshape (24,)  A (4, 6)  [0, 0]    4      4       no            no          B, D
                  Slice (4,)               [1, 1]
                                           [2, 2]
                                           [3, 3]
    D     (7,)    2 sources      b (3,)    [:]       3      3       no            no          B, C
                  Concat (7,)
                                 A (4, 6)  [0, 0]    4      4
                                           [1, 1]
                                           [2, 2]
                                           [3, 3]

    References
    ----------
    poprithms, memory/alias: Graph::appendVerbose.
    """
    found, called, arrays = _as_views(views, names, "origins_table")
    if names is None:
        assert called is not None, "a name was made for each"
        called = [v.name if isinstance(v, Allocation) and v.name else f"v{i}" for i, v in enumerate(found)]
    homes = list(dict.fromkeys(a for view in found for a in view.cells))
    named = dict(zip(homes, map(_home_name, homes, number_repeats(map(_home_name, homes))), strict=True))
    each = (_rows_of(i, found, called or [], i in arrays, named) for i in range(len(found)))
    return OriginsTable(tuple(map(tuple, each)))


def _home_name(allocation: Allocation, nth: int = 1) -> str:
    """Return an allocation's name and shape, with a number after the first that is called so."""
    name = allocation.name or "unnamed"
    if allocation.size == ADDRESSES:
        return name
    number = f" #{nth}" if nth > 1 else ""
    return f"{name} {allocation.shape}{number}"


def _rows_of(
    i: int, views: Sequence[View], names: Sequence[str], is_array: bool, homes: Mapping[Allocation, str]
) -> Iterator[dict[str, str]]:
    """Yield the rows of view number i: one for each allocation that it reads, or one if it reads none."""
    view = views[i]
    aliases = [names[k] for k, other in enumerate(views) if k != i and overlaps(view, other)]
    about = {
        "view": cut_text(names[i], 40),
        "shape": str(view.shape[:-1] if is_array else view.shape),
        "chain": "\n".join(_chain(view)) or "-",
    }
    found = {
        "self-overlap": yes_or_no(view.has_internal_overlap),
        "contiguous": yes_or_no(view.is_contiguous),
        "aliases": ", ".join(aliases) or "-",
    }
    for allocation, cells in view.cells.items():
        yield about | _reads(allocation, cells, homes[allocation]) | found
    if not view.cells:
        yield about | dict.fromkeys(PER_ALLOCATION, "-") | found


def _chain(view: View) -> list[str]:
    """Return the steps from the source on, a line for each; of a long chain the last ones."""
    steps: list[str] = []
    while isinstance(view, Derived):
        steps.append(f"{type(view.kind).__name__} {view.shape}")
        if len(view.sources) != 1:
            steps.append(f"{len(view.sources)} sources")
            break
        (view,) = view.sources
    if len(steps) > tuning.SHOWN_STEPS:
        steps = [*steps[: tuning.SHOWN_STEPS], f"{len(steps) - tuning.SHOWN_STEPS} more steps"]
    return steps[::-1]


def _reads(allocation: Allocation, cells: Cells, name: str) -> dict[str, str]:
    """Return the columns of one allocation that a view reads."""
    size = ask_one((TooHard,), lambda: cells.size)
    return {
        "reads": name,
        "regions": "\n".join(_regions(cells, allocation.size == ADDRESSES)),
        "cells": "?" if size is OPEN else str(size),
        "nbytes": "?" if size is OPEN else str(size * allocation.itemsize),
    }


def _regions(cells: Cells, is_addresses: bool) -> list[str]:
    """Return the regions that are read, a line for each."""
    found = ask_one((TooManyPieces,), cells.regions)
    if found is OPEN:
        return ["too many regions"]
    members = found.members
    lines = [_region(region, is_addresses) for region in members[: tuning.SHOWN_REGIONS]]
    return (
        lines if len(members) <= tuning.SHOWN_REGIONS else [*lines, f"and {len(members) - tuning.SHOWN_REGIONS} more"]
    )


def _region(region: Region, is_addresses: bool) -> str:
    if not is_addresses:
        axes = zip(region.setts, region.start, region.shape, strict=True)
        return f"[{', '.join(_axis(sett, lo, lo + n) for sett, lo, n in axes)}]"
    (sett,), (n,) = region.setts, region.shape
    first = sett.first(0, n)
    assert first is not None, "a region that is listed is not empty"
    (moved,) = sett.shift(-first).members
    return f"{first:#x} + [{_axis(moved, 0, n - first)}]"


def _axis(sett: Sett, lo: int, hi: int) -> str:
    """Return the elements of a sett in [lo, hi): as an integer or a slice where they are one, else as its stripes."""
    count, first = sett.count(lo, hi), sett.first(lo, hi)
    if count == hi - lo:
        return ":"
    if first is None:
        return "0:0"
    back = sett.reverse(hi).first(0, hi - lo)
    assert back is not None, "there is a first element, so there is a last"
    last = hi - 1 - back
    if count == 1:
        return str(first)
    stripes, within = sett.stripes, ""
    if (first - stripes[0].phase) // stripes[0].period == (last - stripes[0].phase) // stripes[0].period:
        stripes, within = stripes[1:], f"{first}:{last + 1}"  # one block of the outermost stripe
    if not stripes:
        return within
    if len(stripes) == 1 and stripes[0].on == 1:
        step = stripes[0].period
        return f"{first or ''}:{'' if last + step >= hi else last + 1}:{step}"
    return within + "".join(f"({s.on},{s.off},{s.phase})" for s in stripes)
