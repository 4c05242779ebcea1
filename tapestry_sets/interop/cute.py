"""CuTe's layouts as views of memory, and views as CuTe's layouts.

    layout   ((2,2),8):((1,4),8)       a mode of 4, itself of two, and a mode of 8
    view     shape (4, 8)              view[i, j] reads cell  offset + layout(i, j) = i % 2 + 4 (i // 2) + 8 j

A view has an axis for each mode at the top, in CuTe's order, and its index along it is the mode's coordinate as one
number. That is all: nothing is reversed. But CuTe numbers coordinates with the first mode fastest, NumPy with the last
axis, so ``layout(c)`` of one number is ``view.T.ravel()[c]``, the index ``np.unravel_index(c, view.shape, order="F")``.
"""

from __future__ import annotations

from collections.abc import Sequence

from tapestry_sets.interop.cute_layouts import CuteLayout, SwizzledLayout, read_cute
from tapestry_sets.limits import as_int, quote
from tapestry_sets.views import Derived, Swizzle, View, ViewKind, allocate, walk


def from_cute(layout: str | CuteLayout, base: View | None = None, offset: int = 0) -> View:
    """Return the view whose index (i, j, …) reads cell number ``offset + layout(i, j, …)`` of another.

    Parameters
    ----------
    layout : str or CuteLayout
        As CuTe prints it, such as ``(4,8):(8,1)``. The view has an axis for each mode at the top, of the mode's size;
        `CuteLayout.flatten` makes each mode within these one at the top. Of ``Sw<3,4,3> o 0 o (8,64):(64,1)`` the sum
        is swizzled, its own offset included; see `View.swizzle`.
    base : View, optional
        What is read, by row-major numbers; by default a new variable that just holds what the layout reaches, and
        whole blocks of a swizzle.
    offset : int, optional
        The number of the cell at the first index.

    Raises
    ------
    ValueError
        If the text is not a layout, a cell is not one of the base's, or a swizzle does not divide it into blocks.

    Examples
    --------
    >>> from tapestry_sets import allocate, from_cute, overlaps
    >>> tile = from_cute("((2,2),8):((1,4),8)")
    >>> tile.shape, tile.allocations[0].size, tile[3, 1].offset
    ((4, 8), 62, 13)
    >>> A = allocate((8, 8))
    >>> overlaps(from_cute("(4,8):(8,1)", A), from_cute("(4,8):(8,1)", A, offset=32))
    False
    >>> swizzled = from_cute("Sw<2,0,3> o 0 o (4,8):(8,1)")  # row r begins at column r
    >>> print(swizzled[:, 0].origins()[swizzled.allocations[0]])
    1........1........1........1....

    References
    ----------
    CUTLASS, "CuTe Layouts"; ComposedLayout.
    """
    swizzle, first, plain = SwizzledLayout(None, 0, layout) if isinstance(layout, CuteLayout) else read_cute(layout)
    first += as_int(offset, "from_cute: offset")
    reaches = [(n - 1) * by for n, by in plain.leaves]
    low, high = first + sum([r for r in reaches if r < 0]), first + sum([r for r in reaches if r > 0])
    if low < 0:
        raise ValueError(
            f"from_cute: {plain} from offset {first} reaches cell {low}; an offset larger by {-low} begins at 0"
        )
    if base is None:
        block = 1 if swizzle is None else 1 << Swizzle(*swizzle).flipped + swizzle[0]
        base = allocate(-(-(high + 1) // block) * block)
    if not isinstance(base, View):
        raise TypeError(f"from_cute: base is a {type(base).__name__}, not a View; as_view makes an array one")
    if high >= base.size:
        raise ValueError(
            f"from_cute: {plain} from offset {first} reaches cell {high} of a base of shape {quote(base.shape)}, "
            f"which has {base.size}"
        )
    memory = base if swizzle is None else base.swizzle(*swizzle)
    leaves = [leaf for mode in plain.modes for leaf in reversed(mode.leaves)]  # NumPy's last axis is the fastest
    view = memory.as_strided([n for n, _ in leaves], [by for _, by in leaves], first)
    shape = tuple([mode.size for mode in plain.modes])
    return view if view.shape == shape else view.reshape(shape)


def to_cute(view: View) -> str:
    """Return the layout of a view, as CuTe prints it: `from_cute` the other way round.

    Each axis is a mode, which has modes of its own where the axis goes by several strides, as one does that a reshape
    has joined. What a plain layout does not say is where it begins: at `View.offset` in the allocation. Of a view over
    memory that was swizzled as a whole the text has the swizzle and the offset.

    Raises
    ------
    ValueError
        If the view has an axis without an index, or is not an offset and steps: constants, several allocations,
        axes that go by no strides.
    TooHard
        As for `View.find_strided`.

    Examples
    --------
    >>> from tapestry_sets import allocate, to_cute
    >>> A = allocate((4, 6))
    >>> to_cute(A), to_cute(A.T), to_cute(A[1:, ::-2]), to_cute(A[:, :4].reshape(16))
    ('(4,6):(6,1)', '(6,4):(1,6)', '(3,3):(6,-2)', '((4,4)):((1,6))')
    >>> to_cute(allocate((8, 64)).swizzle(3, 3, 3)[1:, 8:24])
    'Sw<3,3,3> o 72 o (7,16):(64,1)'
    """
    if not isinstance(view, View):
        raise TypeError(
            f"to_cute: view {quote(view)} is a {type(view).__name__}, not a View; as_view makes an array one"
        )
    if 0 in view.shape:
        raise ValueError(f"to_cute: {quote(view)} reads no cell; extents of a layout are >= 1")
    swizzled, found = None, view.find_strided()
    if found is None:
        swizzled = _take_off_swizzle(view)
        found = None if swizzled is None else swizzled[1].find_strided()
    if found is None:
        raise ValueError(
            f"to_cute: {quote(view)} is not a layout, an offset plus steps along each axis; `origins` has its cells"
        )
    offset, axes = found[1]
    modes = [_mode_of(levels) for levels in axes]
    whole = CuteLayout(tuple([mode.shape for mode in modes]), tuple([mode.stride for mode in modes]))
    plain = str(modes[0] if len(modes) == 1 and isinstance(modes[0].shape, int) else whole)
    if swizzled is None:
        return plain
    by = swizzled[0]
    return f"Sw<{by.bits},{by.base},{by.shift}> o {offset} o {plain}"


def _mode_of(levels: Sequence[tuple[int, int]]) -> CuteLayout:
    """The mode of an axis, from its levels, outermost first."""
    return CuteLayout(tuple([n for n, _ in levels[::-1]]), tuple([by for _, by in levels[::-1]])).coalesce()


def _take_off_swizzle(view: View) -> tuple[Swizzle, View] | None:
    """The swizzle of whole memory below a view, and the view without it; None where there is no such one."""
    kinds: list[ViewKind] = []
    for below in walk(view, lambda v: v.sources):
        if not isinstance(below, Derived) or len(below.sources) > 1:
            break
        (source,) = below.sources
        if isinstance(below.kind, Swizzle) and source.size == sum([a.size for a in source.allocations]):
            if not source.is_contiguous("C"):
                break
            for kind in reversed(kinds):
                source = source.apply(kind)
            return below.kind, source
        kinds.append(below.kind)
    return None
