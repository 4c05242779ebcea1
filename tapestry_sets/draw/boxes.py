"""Pictures of sets of points in boxes of any rank and size: a labeled box, and what each axis holds.

A set is described once, axis by axis, from counts that cost the same at any size; the text and the drawing are made
from that. Where the set is a product of what its axes hold the picture says all of it, else what it says of an axis is
where some point lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from itertools import pairwise
from math import log2, prod
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tapestry_sets.draw import canvas, tuning
from tapestry_sets.draw.tuning import FAINT, INK, LINE
from tapestry_sets.limits import OPEN, REFUSALS, ask_one, cut_text, quote

Count = Callable[[int, int], int]
"""How many indices of an axis lie in [lo, hi)."""


class Span(NamedTuple):
    """Of the indices [lo, hi) of an axis so many are held."""

    lo: int
    hi: int
    held: int


class AxisOutline(Struct, frozen=True):
    """What a set holds of an axis: how many of its indices, in words, in parts of equal length, and as runs if few.

    `held` and `spans` are None and empty where that is too hard to say.
    """

    name: str
    start: int
    extent: int
    held: int | None
    words: str
    parts: tuple[Span, ...] = ()
    runs: tuple[Span, ...] = ()


class BoxOutline(Struct, frozen=True):
    """A box, what a set holds of it, and the hulls (lo, hi) of the regions that it consists of, if they are few."""

    axes: tuple[AxisOutline, ...]
    size: int | None
    is_product: bool
    hulls: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    regions: int | None


# ------------------------------------------------------------------------------------------------------- describing


def outline_of(x: Any) -> BoxOutline:
    """Return what a set of points holds of its box, in a time that does not depend on how large either is."""
    shape, start = tuple(x.shape), tuple(x.start)
    found = ask_one(REFUSALS, lambda: tuple(x.regions)) if hasattr(x, "regions") else OPEN
    regions = None if found is OPEN or len(found) > tuning.MAX_OUTLINED else found
    size = ask_one(REFUSALS, lambda: x.size)
    if regions is None:
        bounds = ask_one(REFUSALS, x.bounds)
        hulls = () if bounds is OPEN or bounds is None else (bounds,)
    else:
        hulls = tuple(r.bounds() for r in regions)
    axes = tuple(_axis_of(axis, lo, n, regions, hulls) for axis, (lo, n) in enumerate(zip(start, shape, strict=True)))
    return BoxOutline(
        axes,
        None if size is OPEN else size,
        regions is not None and len(regions) < 2,
        hulls,
        None if found is OPEN else len(found),
    )


def _axis_of(
    axis: int, start: int, extent: int, regions: Sequence[Any] | None, hulls: Sequence[tuple[Any, Any]]
) -> AxisOutline:
    name = f"axis {axis}"
    if regions is None:
        words = "".join(f"all within {_slice(lo[axis], hi[axis] - 1, 1)}" for lo, hi in hulls)
        return AxisOutline(name, start, extent, None, words or "not known")
    held = list(dict.fromkeys(r.setts[axis] for r in regions))
    count = _count_any(held, start, start + extent)
    if count is None:
        return AxisOutline(name, start, extent, None, "too many parts to count")
    if len(held) != 1:
        return axis_outline(name, start, extent, count, otherwise="in any of the regions")
    steps = regions[0].progressions[axis]
    return axis_outline(name, start, extent, count, "" if steps is None else _slice(*steps), _stripes_words(held[0]))


def _stripes_words(s: Any) -> str:
    """Return the levels of a sett, the innermost first."""
    return "stripes " + " in ".join(f"({t.on}, {t.off}, {t.phase})" for t in reversed(s.stripes))


def _count_any(setts: Sequence[Any], lo: int, hi: int) -> Count | None:
    """Return the counts of a union of sets of integers within [lo, hi)."""
    if len(setts) < 2:
        return setts[0].count if setts else lambda start, stop: 0
    union = setts[0]
    for other in setts[1:]:
        union = ask_one(REFUSALS, partial(union.union, other, within=(lo, hi)))
        if union is OPEN:
            return None
    count: Count = union.count
    return count


def axis_outline(name: str, start: int, extent: int, count: Count, words: str = "", otherwise: str = "") -> AxisOutline:
    """Return what a set that counts in this way holds of the integers from `start` on.

    It is said in `words` if there are some, else as runs if they are few, and `otherwise` as told.
    """
    stop = start + extent
    runs = _runs(count, start, stop)
    parts = tuple(Span(lo, hi, count(lo, hi)) for lo, hi in _cuts(start, extent))
    if not words and runs is not None and len(runs) < 4:
        words = ", ".join(_slice(lo, hi - 1, 1) for lo, hi, _ in runs) or "none"
    held = count(start, stop) if extent else 0
    return AxisOutline(
        name, start, extent, held, "all" if held == extent > 0 else words or otherwise, parts, runs or ()
    )


def period_of(x: Any) -> AxisOutline | None:
    """Return what a set of integers holds of one period; None where it is not listed, or the period is too long."""
    if not any(hasattr(x, name) for name in ("on", "stripes", "members")) or x.period.bit_length() > tuning.PERIOD_BITS:
        return None
    many = len(getattr(x, "members", ()))
    words = f"in any of {many} setts" if many else _stripes_words(x) if hasattr(x, "stripes") else ""
    return axis_outline("one period", 0, x.period, x.count, otherwise=words)


def _slice(first: int, last: int, step: int) -> str:
    return f"{_told(first)}:{_told(last + 1)}" + (f":{_told(step)}" if step != 1 else "")


def _cuts(start: int, extent: int) -> Iterator[tuple[int, int]]:
    """Return parts of an axis whose lengths differ by one at most."""
    parts = min(tuning.AXIS_PARTS, extent)
    ends = [start + extent * k // parts for k in range(parts + 1)] if parts else []
    yield from pairwise(ends)


def _runs(count: Count, start: int, stop: int) -> tuple[Span, ...] | None:
    """Return the runs of held indices; None if they are many."""
    runs: list[Span] = []
    at = start
    while at < stop and len(runs) <= tuning.MAX_RUNS:
        lo = _end_of(lambda hi, at=at: count(at, hi) == 0, at, stop)  # type: ignore[misc]
        if lo == stop:
            return tuple(runs)
        at = _end_of(lambda hi, lo=lo: count(lo, hi) == hi - lo, lo, stop)  # type: ignore[misc]
        runs.append(Span(lo, at, at - lo))
    return tuple(runs) if len(runs) <= tuning.MAX_RUNS else None


def _end_of(holds: Callable[[int], bool], at: int, stop: int) -> int:
    """Return the largest number up to `stop` for which something holds, as it does at `at`."""
    low, step = at, 1
    while low < stop and holds(min(stop, low + step)):
        low, step = min(stop, low + step), 2 * step
    high = min(stop, low + step)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


# -------------------------------------------------------------------------------------------------------------- words


def _lines(box: BoxOutline) -> list[str]:
    """Return what is said of a set besides its axes."""
    room = prod(axis.extent for axis in box.axes)
    if box.size is None:
        lines = [f"too many points to count, of {_told(room)}"]
    else:
        lines = [f"{_told(box.size)} of {_told(room)} points{_share(box.size, room)}"]
    if not box.is_product and box.regions is not None:
        lines.append(f"{box.regions} regions: an axis shows where some of their points lie")
    return lines


def _share(many: int, of: int) -> str:
    """Return a share in percent, exact or to three digits as ``≈`` says."""
    if not of:
        return ""
    if 100 * many % of == 0:
        return f", {100 * many // of} %"
    rounded = _rounded(100 * many, of)
    return ", over 99.9 %" if rounded == "100" else f", ≈{rounded} %"


def _rounded(many: int, of: int = 1) -> str:
    """Return a quotient of whole numbers of any size to three digits."""
    return f"{Decimal(many) / Decimal(of):.3g}"


def _told(n: int) -> str:
    """Return a number in words of bounded length; drawings have it exactly in their data."""
    return str(n) if n.bit_length() <= tuning.SHOWN_BITS else f"≈{_rounded(n)}"


def _range_words(axis: AxisOutline) -> str:
    return f"{axis.name} [{_told(axis.start)}, {_told(axis.start + axis.extent)})"


def _held_words(axis: AxisOutline) -> str:
    many = "" if axis.held is None else f"{_told(axis.held)} of {_told(axis.extent)}: "
    return f"{many}{axis.words}"


def _bar(axis: AxisOutline) -> str:
    """Return an axis as a bar of text: ``#`` for a part that is held, ``+`` for one held in part, ``.`` for none."""
    return "".join("." if not held else "#" if held == hi - lo else "+" for lo, hi, held in axis.parts)


def outline_text(box: BoxOutline) -> str:
    """Return an outline as text: a line for each axis, with the bar of its parts, then the counts."""
    return "\n".join([*axis_lines(box.axes), *_lines(box)])


def axis_lines(axes: Sequence[AxisOutline]) -> list[str]:
    """Return axes as lines of text, with the bars of their parts."""
    heads = [_range_words(axis) for axis in axes]
    margin = max(map(len, heads), default=0)
    return [
        f"{head:<{margin}} {_bar(axis):<{tuning.AXIS_PARTS}} {_held_words(axis)}".rstrip()
        for head, axis in zip(heads, axes, strict=True)
    ]


# ------------------------------------------------------------------------------------------------------------ drawing


def axis_drawing(axis: AxisOutline) -> canvas.Drawing:
    """Return an axis as a bar on which the held runs, or how full its parts are, are marked, below its words."""
    wide = min(tuning.AXIS_WIDTH, canvas.page_width() - 8)
    words = canvas.as_drawn(f"{_range_words(axis)}: {_held_words(axis)}")
    held = "" if axis.held is None else f' data-held="{axis.held}"'
    parts = [
        f'<g transform="translate(0,{words.height})" data-axis="{axis.name}" data-start="{axis.start}" '
        f'data-extent="{axis.extent}"{held}>',
        f'<path d="M0 0H{wide}V{tuning.AXIS_BAR}H0Z" fill="none" stroke="{FAINT}"/>',
    ]
    for lo, hi, many in axis.runs or axis.parts:
        if many:
            left, right = ((z - axis.start) * wide / axis.extent for z in (lo, hi))
            right = max(right, left + 1)  # one of a million is to be seen
            shade = "" if many == hi - lo else f' fill-opacity="{0.25 + 0.75 * (many / (hi - lo)):.2f}"'
            parts.append(
                f'<path d="M{left:.6g} 0H{right:.6g}V{tuning.AXIS_BAR}H{left:.6g}Z" fill="{canvas.COLORS[1]}"{shade} '
                f'data-lo="{lo}" data-hi="{hi}" data-held="{many}"><title>[{lo}, {hi}): {many}</title></path>'
            )
    return canvas.Drawing(
        max(words.width, wide + 2), words.height + tuning.AXIS_BAR + 2, (*words.parts, *parts, "</g>")
    )


def _sides(box: BoxOutline) -> list[int]:
    """Return how long in pixels the last axes of a box are drawn: longer ones longer, but by few doublings each."""
    extents = [axis.extent for axis in box.axes[-3:]]
    longest = max(extents, default=1)
    least, most = tuning.SIDES
    return [
        round(most - min(most - least, (log2(max(1, longest)) - log2(max(1, n))) * tuning.SIDE_PER_DOUBLING))
        for n in extents
    ]


def box_drawing(box: BoxOutline) -> canvas.Drawing:
    """Return the last two axes of a box as its face, the one before as its depth, and in it the hulls of regions."""
    *_, tall, wide = (0, 0, *_sides(box))[-2:] if len(box.axes) > 1 else (tuning.AXIS_BAR, *_sides(box))
    deep = _sides(box)[0] // 2 if len(box.axes) > 2 else 0
    left, top = 8, LINE
    parts = [f'<g transform="translate({left},{top + deep})" stroke="{INK}" fill="none">']
    parts += [_hull(k, lo, hi, box.axes, wide, tall, deep) for k, (lo, hi) in enumerate(box.hulls)]
    edges = f"M0 0H{wide}V{tall}H0Z"
    if deep:
        edges += f"M0 0l{deep} -{deep}h{wide}l-{deep} {deep}M{wide} {tall}l{deep} -{deep}v-{tall}"
    parts += [f'<path d="{edges}"/>', "</g>"]
    labels: list[tuple[float, float, str, int]] = [(left + deep, top - 4, "start", -1)]
    if len(box.axes) > 1:
        labels.append((left + deep + wide + 6, top + tall / 2, "start", -2))
    if deep:
        labels.append((left + wide + deep / 2 + 6, top + tall + deep / 2 + 8, "start", -3))
    named = [f"{box.axes[which].name}: {_told(box.axes[which].extent)}" for *_, which in labels]
    parts += [canvas.written(x, y, name, anchor) for (x, y, anchor, _), name in zip(labels, named, strict=True)]
    widest = max(map(canvas.breadth, named))
    return canvas.Drawing(left + deep + wide + 6 + widest, top + deep + tall + 6, tuple(parts))


def _hull(
    k: int, lo: tuple[int, ...], hi: tuple[int, ...], axes: Sequence[AxisOutline], wide: int, tall: int, deep: int
) -> str:
    """Return the hull of a region in the solid of its box, at least a pixel of it: its front, top and right side.

    ::

        the box goes back     ___
        up and to the right  /__/|
                             |__|/
    """

    def place(z: int, axis: AxisOutline, side: int) -> float:
        return (z - axis.start) * side / max(1, axis.extent)

    left, right = (place(z, axes[-1], wide) for z in (lo[-1], hi[-1]))
    above, under = (place(z, axes[-2], tall) for z in (lo[-2], hi[-2])) if len(axes) > 1 else (0, tall)
    front, back = (place(z, axes[-3], deep) for z in (lo[-3], hi[-3])) if deep else (0, 0)
    width, height, depth = max(right - left, 1), max(under - above, 1), back - front
    corners = f'data-region="{k}" data-lo="{",".join(map(str, lo))}" data-hi="{",".join(map(str, hi))}"'
    shape = f"M{left + front:.6g} {above - front:.6g}h{width:.6g}v{height:.6g}h-{width:.6g}z"
    if depth:
        shape += f"m0 0l{depth:.6g} -{depth:.6g}h{width:.6g}l-{depth:.6g} {depth:.6g}z"
        shape += f"m{width:.6g} 0l{depth:.6g} -{depth:.6g}v{height:.6g}l-{depth:.6g} {depth:.6g}z"
    return f'<path d="{shape}" fill="{canvas.COLORS[1]}" fill-opacity="0.35" stroke="{canvas.COLORS[1]}" {corners}/>'


def outline_svg(box: BoxOutline, title: str) -> str:
    """Return an outline as a drawing: the box and beside it its axes, below them the counts."""
    axes = canvas.below([axis_drawing(axis) for axis in box.axes], 6)
    sketch = [box_drawing(box)] if box.axes else []
    counts = canvas.below([canvas.as_drawn(line) for line in _lines(box)], 0)
    size = "" if box.size is None else f' data-size="{box.size}"'
    counts = replace(counts, parts=(f"<g{size}>", *counts.parts, "</g>"))
    return canvas.document(canvas.below([canvas.beside([*sketch, axes], 24), counts]), title)


def box_picture(x: Any, title: str = "") -> canvas.Picture:
    """Return a picture of a set of points in a box of any rank and any size.

    The text has a line for each axis: its range, a bar of at most 32 parts, of which ``#`` is held and ``+`` held in
    part, how many of its indices are held, and which. The drawing has the box, with the hulls of at most 64 regions,
    and the axes, on which runs are marked if they are at most 32.

    Parameters
    ----------
    x : Region, DisjointRegions, Reshaped or ImplicitRegion
    title : str
        The words above the picture.

    Returns
    -------
    Picture

    Raises
    ------
    TypeError
        If `x` is not a set of points.

    Examples
    --------
    >>> from tapestry_sets.regions import Region
    >>> box_picture(Region.from_slices((10**6, 8), (slice(0, 10**6, 4), slice(2, 5))))
    axis 0 [0, 1000000) ++++++++++++++++++++++++++++++++ 250000 of 1000000: 0:999997:4
    axis 1 [0, 8)       ..###...                         3 of 8: 2:5
    750000 of 8000000 points, ≈9.38 %
    """
    if not all(hasattr(x, name) for name in ("points", "shape", "start")):
        raise TypeError(f"draw: x must be a Region, DisjointRegions, Reshaped or ImplicitRegion, not {quote(x)}")
    box = outline_of(x)
    text = "\n".join([canvas.check_title(title)] * bool(title) + [outline_text(box)])
    return canvas.draw_twice(lambda: (text, outline_svg(box, cut_text(title, 100))))
