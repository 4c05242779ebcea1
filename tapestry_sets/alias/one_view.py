"""One view alone: does it read a cell twice, and does it read one run in order?

Both are asked of linear forms: of the strides of a view that has them, else of the products of indices that its pieces
step through (see `patches`). Cells are not listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from math import prod

from tapestry_sets.alias.ladder.cells import Cells
from tapestry_sets.alias.ladder.known import join_digits
from tapestry_sets.digits import Digits, Ints, Strided
from tapestry_sets.limits import OPEN, Open, TooHard, ask_one
from tapestry_sets.regions import Box
from tapestry_sets.solvers import equation, isl
from tapestry_sets.views import (
    Allocation,
    InternalOverlap,
    Order,
    Relinearize,
    View,
    images,
    read_index,
    reading,
    reads_each_once,
    strided_patch,
)

# -------------------------------------------------------------------------------------------------- a cell twice


def twice_by_strides(form: Strided) -> tuple[Ints, Ints, int] | None:
    """Return two indices at which a strided view reads one cell, and its row-major number; None if there are none.

    Examples
    --------
    >>> twice_by_strides((5, (((4, 2),), ((3, 1),))))
    ((0, 2), (1, 0), 7)
    """
    levels = [level for axis in form[1] for level in axis]
    found = equation.equal_sums(levels)
    if found is None:
        return None
    number = form[0] + sum([x * step for x, (_, step) in zip(found[0], levels, strict=True)])
    one, two = (join_digits(digits, form) for digits in found)
    return min(one, two), max(one, two), number


def twice(view: View) -> InternalOverlap | None:
    """Return two indices at which a view reads one cell, or None.

    Raises
    ------
    TooHard
        If neither equations nor counts decide.
    """
    if reads_each_once(view):
        return None
    each = view.cells
    sizes = [cells.closed_size for cells in each.values()]
    if None not in sizes and sum(filter(None, sizes)) == prod(view.shape):
        return None  # as many cells as indices
    for allocation, cells in each.items():
        at = ask_one((TooHard,), _twice_in_products, view, cells)
        if isinstance(at, InternalOverlap):
            return at
        found: tuple[Ints, Ints, Ints] | Open | None = at
        if found is OPEN and len(cells.pieces) == 1 and images.stays_injective(cells.pieces[0], Box.of(view.shape)):
            continue
        if found is OPEN:
            found = ask_one((TooHard,), _twice_in_boxes, cells)
        if found is OPEN:
            found = _twice_in_halves(view, allocation)
        if found is not None:
            one, two, cell = found
            return InternalOverlap(min(one, two), max(one, two), allocation, cell)
    return None


def _twice_in_products(view: View, cells: Cells) -> InternalOverlap | Open | None:
    """Two indices and the cell that they read, of whichever allocation, by products; `OPEN` if they are not few."""
    found = OPEN if cells.products is None else cells.products.find_twice()
    if found is OPEN or found is None:
        return found
    one, two = found
    read = read_index(view, one)
    return OPEN if read is None else InternalOverlap(min(one, two), max(one, two), *read)


def _twice_in_boxes(cells: Cells) -> tuple[Ints, Ints, Ints] | Open | None:
    """Two indices and the cell that they read, by linear forms; `OPEN` if there are too many."""
    boxes = cells.boxes
    if boxes is OPEN:
        return OPEN
    if len(boxes) > 1 and cells.closed_size == sum(map(_size, boxes)):
        return None
    found = next(_pairs_of_indices(boxes), None)
    if found is None:
        return None
    unravel = Relinearize((prod(cells.shape),), cells.shape)
    one, two, number = found
    return unravel.apply((one,)), unravel.apply((two,)), Relinearize((cells.extent,), cells.home).apply((number,))


def _size(box: Digits) -> int:
    return prod([digit[0] for digit in box.digits])


def _pairs_of_indices(boxes: Sequence[Digits]) -> Iterator[tuple[int, int, int]]:
    """Yield pairs of row-major indices that read one cell, and its number."""
    for box in boxes:
        found = equation.equal_sums([(count, by) for count, _, by in box.digits])
        if found is not None:
            (one, number), (two, _) = (_at(box, values) for values in found)
            yield one, two, number
    ordered = sorted(boxes, key=lambda box: box.bounds(1)[0])
    ends = [box.bounds(1) for box in ordered]
    for k, p in enumerate(ordered):
        for q, (low, _) in zip(ordered[k + 1 :], ends[k + 1 :], strict=True):
            if low > ends[k][1]:
                break
            terms = [(count, by) for count, _, by in p.digits] + [(count, -by) for count, _, by in q.digits]
            digits = equation.solve(q.origin[1] - p.origin[1], terms)
            if digits is not None:
                one, number = _at(p, digits[: len(p.digits)])
                two, _ = _at(q, digits[len(p.digits) :])
                yield one, two, number


def _at(box: Digits, values: Sequence[int]) -> tuple[int, int]:
    """The index and the cell of digits of given values."""
    index, cell = box.origin
    for x, (_, step, by) in zip(values, box.digits, strict=True):
        index += x * step
        cell += x * by
    return index, cell


def _twice_in_halves(view: View, allocation: Allocation) -> tuple[Ints, Ints, Ints] | None:
    """The same where digits are too many: the part that reads fewer cells than it has indices is halved."""
    if not _lacks_cells(view, allocation):
        return None
    start = [0] * len(view.shape)
    while True:
        axis = max(range(len(view.shape)), key=lambda a: view.shape[a])
        middle = view.shape[axis] // 2
        whole = (slice(None),) * axis
        low, high = view[(*whole, slice(0, middle))], view[(*whole, slice(middle, None))]
        if _lacks_cells(low, allocation):
            view = low
            continue
        if _lacks_cells(high, allocation):
            view = high
            start[axis] += middle
            continue
        mine, theirs = low.cells[allocation], high.cells[allocation]
        cell = mine.a_common_cell(theirs)
        assert cell is not None, "halves that read fewer cells together than alone share one"
        one, two = mine.index_of(cell), theirs.index_of(cell)
        assert one is not None and two is not None, "a cell that is read has an index"
        one = tuple([a + b for a, b in zip(one, start, strict=True)])
        start[axis] += middle
        return one, tuple([a + b for a, b in zip(two, start, strict=True)]), cell


def _lacks_cells(view: View, allocation: Allocation) -> bool:
    """Whether a view reads fewer cells of an allocation than it has indices that read some."""
    cells = view.cells.get(allocation)
    return cells is not None and cells.size < _reads(view, allocation)


def _reads(view: View, allocation: Allocation) -> int:
    """How many indices read an allocation, from the domains of the fewer pieces: those that do, or the others."""
    homes = [view.allocations[piece.source] if piece.source >= 0 else None for piece in view.pieces]
    mine = [piece for piece, home in zip(view.pieces, homes, strict=True) if home == allocation]
    others = [piece for piece, home in zip(view.pieces, homes, strict=True) if home != allocation]
    fewer = others if len(others) <= len(mine) else mine
    many = sum([images.piece_domain(piece, Box.of(view.shape)).size for piece in fewer])
    return many if fewer is mine else prod(view.shape) - many


# -------------------------------------------------------------------------------------------------------- in order


def is_ordered_by_strides(form: Strided, order: Order) -> bool:
    """Return whether a strided view without empty axes reads one gapless run in row- or column-major order.

    Examples
    --------
    >>> is_ordered_by_strides((4, (((2, 3),), ((3, 1),))), "C"), is_ordered_by_strides((4, (((2, 1),), ((3, 2),))), "F")
    (True, True)
    """
    axes = form[1] if order == "C" else form[1][::-1]
    patch = strided_patch(form[0], tuple([level for axis in axes for level in axis]), None)
    return all(index == cell for _, index, cell in patch.digits)


def is_ordered(cells: Cells) -> bool:
    """Return whether a view reads a run of its one allocation, and no constants, in row-major order of its indices."""
    if cells.products is not None and not cells.is_run():
        return False
    boxes = cells.boxes
    if boxes is OPEN:
        return _is_ordered_by_isl(cells)
    starts = {box.origin[1] - box.origin[0] for box in boxes}
    steps = all(index == cell for box in boxes for _, index, cell in box.digits)
    return steps and len(starts) == 1 and sum(map(_size, boxes)) == prod(cells.shape)


def _is_ordered_by_isl(cells: Cells) -> bool:
    """The same where digits are too many: whether no index, numbered in order, reads another cell than it should."""
    origin = (0,) * len(cells.shape)
    first = next((cell for piece in cells.pieces if (cell := reading.cell_read(piece, origin)) is not None), None)
    if first is None:
        return False
    start = Relinearize(cells.home, (cells.extent,)).apply(first)[0]
    box = isl.box_set(origin, cells.shape)

    def is_ordered() -> bool:
        number = isl.relinearize_map(cells.shape, (prod(cells.shape),))
        flat = isl.relinearize_map(cells.home, (cells.extent,))
        ordered = isl.affine_map(1, ((("x0", 1),),), (start,), (1,))
        maps = [isl.to_isl(piece).intersect_domain(box) for piece in cells.pieces]
        if not all(m.apply_domain(number).apply_range(flat).is_subset(ordered) for m in maps):
            return False
        return bool(reduce(lambda a, b: a.union(b), [m.domain() for m in maps]).is_equal(box))

    what = (
        f"whether a view of shape {cells.shape} reads a run in order: it reads too many products of an allocation of "
        f"shape {cells.home}"
    )
    return isl.decide(what, is_ordered, isl.BUILD_OPERATIONS, "ask about a part of the view")
