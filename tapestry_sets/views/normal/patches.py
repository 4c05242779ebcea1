"""Patches: boxes of digits that step through the indices of a view and through memory at once.

A view is a set of pairs (index, cell), both row-major numbers. A patch is a box of such pairs: index
and cell are linear in common digits. Because indices and cells stand side by side, shapes play no part: a reshape
changes nothing, a view of a view is a join on the number in the middle, and read the other way round a patch is its
own mirror.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from tapestry_sets.digits import (
    CutDigits,
    Digit,
    Digits,
    Ints,
    Levels,
    advance,
    clip_form,
    cut_each,
    insert_zero,
    join_digits,
    keep_in_nest,
    make_steps_positive,
    split_form,
    unflatten,
)
from tapestry_sets.limits import OPEN, Budget, Open, Value, put_field
from tapestry_sets.regions import AffineMap, Region
from tapestry_sets.views import tuning
from tapestry_sets.views.pieces.lookup import Lookup, runs_of
from tapestry_sets.views.pieces.maps import put_extents
from tapestry_sets.views.pieces.piece import Piece


class Constant(Value):
    """The cells of a constant: one value and no memory."""

    value: float
    __slots__ = __match_args__ = ("value",)

    def __init__(self, value: float) -> None:
        put_field(self, "value", value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        return self.value == other.value or (self.value != self.value and other.value != other.value)

    def __hash__(self) -> int:
        return hash(self.value) if self.value == self.value else 0


class Patch(NamedTuple):
    """Index ``at + sum(digit * index step)`` reads cell ``cell + sum(digit * cell step)`` of `home`.

    Attributes
    ----------
    at, cell : int
        Row-major numbers, where all digits are 0.
    digits : tuple of (count, index step, cell step)
        Counts above 1 and index steps above 0, outermost first; each index step exceeds the reach of those after
        it. No digit goes on where the one before ends: for a given set of indices there is one such form.
    home : hashable
        The memory, a `Constant`, or a `Flat` of its own where the patches of that are not spelled out.
    """

    at: int
    cell: int
    digits: tuple[Digit, ...]
    home: Hashable

    @property
    def size(self) -> int:
        """How many indices the patch holds."""
        size = 1
        for count, _, _ in self.digits:
            size *= count
        return size

    @property
    def last(self) -> int:
        """The largest index."""
        return self.at + sum([(count - 1) * by for count, by, _ in self.digits])

    @property
    def forms(self) -> Digits:
        """Index and cell as two forms of the digits."""
        return Digits((self.at, self.cell), self.digits)

    def cell_at(self, index: int) -> int | None:
        """Return the cell that an index reads, None if it is not in the patch."""
        rest, cell = index - self.at, self.cell
        for count, by, step in self.digits:
            k, rest = divmod(rest, by)
            if not 0 <= k < count:
                return None
            cell += k * step
        return None if rest else cell


class Flat(Value):
    """The cell of each index of a view, by row-major numbers: patches whose indices partition [0, size).

    Parameters
    ----------
    size : int
    patches : tuple of Patch
        In the order of their first indices.
    stages : int
        How many `Flat` lie between these patches and memory.
    """

    size: int
    patches: tuple[Patch, ...]
    stages: int
    _hash: int | None
    __match_args__ = ("size", "patches", "stages")
    __slots__ = (*__match_args__, "_hash")

    def __init__(self, size: int, patches: tuple[Patch, ...], stages: int) -> None:
        put_field(self, "size", size)
        put_field(self, "patches", patches)
        put_field(self, "stages", stages)
        put_field(self, "_hash", None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Flat):
            return NotImplemented
        if self is other or hash(self) != hash(other):
            return self is other
        return self.size == other.size and self.patches == other.patches

    def __hash__(self) -> int:
        known = self._hash
        if known is None:  # once: patches of patches share what lies below them, and it would be met time and again
            known = hash((self.size, self.patches))
            put_field(self, "_hash", known)
        return known

    def at(self, index: int) -> tuple[Hashable, int]:
        """Return the memory, or the constant, and the cell there that an index reads."""
        home: Hashable = self
        while isinstance(home, Flat):
            for patch in home.patches:
                cell = patch.cell_at(index)
                if cell is not None:
                    home, index = patch.home, cell
                    break
            else:
                raise AssertionError("patches cover all indices")
        return home, index


def patch_of(box: Digits, home: Hashable) -> Patch:
    """Return the patch of digits whose forms are index and cell, and whose indices differ.

    Examples
    --------
    >>> patch_of(Digits((5, 0), ((6, -1, 2), (1, 6, 0))), "A")
    Patch(at=0, cell=10, digits=((6, 1, -2),), home='A')
    """
    (at, cell), digits = make_steps_positive(*box)
    if isinstance(home, Constant):
        cell, digits = 0, [(count, by, 0) for count, by, _ in digits]
    digits.sort(key=lambda digit: -digit[1])
    return Patch(at, cell, join_digits(digits), home)


def strided_patch(offset: int, levels: Levels, home: Hashable) -> Patch:
    """Return the one patch of a strided view without empty axes.

    Parameters
    ----------
    offset : int
    levels : tuple of (count, step)
        Of all axes, outermost first; see `tapestry_sets.digits.strided`.
    """
    digits, by = [], 1
    for count, step in reversed(levels):
        digits.append((count, by, step))
        by *= count
    return Patch(0, offset, join_digits(reversed(digits)), home)


# ------------------------------------------------------------------------------------------------ views of views


def read_patches(piece: Piece, shape: Sequence[int], home: Sequence[int], limit: int) -> CutDigits:
    """Return the reads of a piece in a source of shape `home`: digits of (index, cell), both row-major numbers.

    `OPEN` if that takes more than `limit` boxes of digits.

    Examples
    --------
    >>> from tapestry_sets.views import Flip
    >>> (piece,) = Flip((0,)).pieces(((5,),))
    >>> read_patches(piece, (5,), (5,), 10)
    [Digits(origin=(0, 4), digits=((5, 1, -1),))]
    """
    parts: CutDigits = [_whole(shape)]
    steps = piece.map.steps
    for prefix in range(len(steps) + 1):
        for guard in piece.guards:
            if guard.prefix == prefix:
                parts = cut_each(parts, in_region, 1, guard.region, limit)
        if parts is OPEN or len(parts) > limit:
            return OPEN
        if prefix == len(steps):
            break
        step = steps[prefix]
        if isinstance(step, AffineMap):
            parts = [_take_through_map(part, step) for part in parts]
        elif isinstance(step, Lookup):
            parts = cut_each(parts, _look_up, step, limit)
        else:
            flat = [_flatten(part, step.from_shape) for part in parts]
            parts = cut_each(flat, unflatten, 1, step.to_shape, limit)
    return OPEN if parts is OPEN else [_flatten(part, home) for part in parts]


def in_region(box: Digits, first: int, region: Region, limit: int) -> CutDigits:
    """Return disjoint parts that hold just the digits for which forms `first` and following are in a region."""
    parts: CutDigits = [box]
    for axis, (nest, low, n) in enumerate(zip(region.nests, region.start, region.shape, strict=True), first):
        span = region.spans[axis - first]
        parts = cut_each(parts, clip_form, axis, *(span or (low, low + n)), limit)
        if span is None:
            parts = cut_each(parts, keep_in_nest, axis, nest, limit)
        if parts is OPEN or len(parts) > limit:
            return OPEN
    return parts


def _whole(shape: Sequence[int]) -> Digits:
    """All indices of a box: the row-major number, then the coordinates."""
    rank, by = len(shape), 1
    digits: list[Digit] = []
    for axis in range(rank - 1, -1, -1):
        if shape[axis] > 1:
            digits.append((shape[axis], by, *(0,) * axis, 1, *(0,) * (rank - 1 - axis)))
        by *= shape[axis]
    return Digits((0,) * (rank + 1), tuple(reversed(digits)))


def _take_through_map(box: Digits, step: AffineMap) -> Digits:
    """The digits with their forms but the first taken through a map."""
    rows = step.terms()

    def image(x: Ints) -> Ints:
        return tuple([sum([c * x[j] for j, c in row]) for row in rows])

    origin = [a + b for a, b in zip(image(box.origin[1:]), step.offset, strict=True)]
    return Digits((box.origin[0], *origin), tuple([(*digit[:2], *image(digit[2:])) for digit in box.digits]))


def _look_up(box: Digits, step: Lookup, limit: int) -> CutDigits:
    """The digits with one form but the first read from a table: its runs of equal steps, for each choice of others."""
    form = step.axis + 1
    moving = sorted([d for d in box.digits if d[form + 1]], key=lambda d: d[0])
    still = [d for d in box.digits if not d[form + 1]]
    if not moving:
        return [Digits(put_extents(box.origin, form, step.table[box.origin[form]]), box.digits)]
    *outer, inner = moving  # the longest is cut into runs
    found: list[Digits] = []
    for ks in product(*[range(d[0]) for d in outer]):
        origin = box.origin
        for k, digit in zip(ks, outer, strict=True):
            origin = advance(origin, digit, k)
        places = origin[form] + inner[form + 1] * np.arange(inner[0])
        for run in runs_of(step.column[places].tolist()):
            start = put_extents(advance(origin, inner, run.at), form, run.first)
            digit = (run.length, *put_extents(inner[1:], form, run.step))
            found.append(Digits(start, (digit, *still) if run.length > 1 else tuple(still)))
            if len(found) > limit:
                return OPEN
    return found


def _flatten(box: Digits, shape: Sequence[int]) -> Digits:
    """The digits with their forms but the first as one row-major number."""

    def number(x: Ints) -> int:
        flat = 0
        for n, a in zip(shape, x, strict=True):
            flat = flat * n + a
        return flat

    origin = (box.origin[0], number(box.origin[1:]))
    return Digits(origin, tuple([(*digit[:2], number(digit[2:])) for digit in box.digits]))


def through(box: Digits, inner: Patch, limit: int) -> CutDigits:
    """Return the digits in which the last form, where it is an index of `inner`, is the cell that this reads.

    `OPEN` if that takes more than `limit` boxes of digits.

    Examples
    --------
    >>> rows = Patch(0, 0, ((3, 4, 10), (4, 1, 1)), "A")
    >>> through(Digits((0, 2), ((4, 1, 1),)), rows, 10)  # from the middle of a row to the next
    [Digits(origin=(0, 2), digits=((2, 1, 1),)), Digits(origin=(2, 10), digits=((2, 1, 1),))]
    """
    middle = len(box.origin)  # after the cell so far
    reach = inner.last - inner.at
    moved = Digits(
        (*box.origin[:-1], inner.cell, box.origin[-1] - inner.at),
        tuple([(*digit[:-1], 0, digit[-1]) for digit in box.digits]),
    )
    parts = clip_form(moved, middle, 0, reach + 1, limit)
    for count, by, step in inner.digits:
        if parts is OPEN:
            return OPEN
        reach -= (count - 1) * by
        if by > 1:
            parts = cut_each(parts, split_form, middle, by, limit, reach + 1)
        else:
            parts = [insert_zero(part, middle) for part in parts]
        if parts is OPEN or len(parts) > limit:
            return OPEN
        parts = [_read_rows(part, step) for part in parts]
    return OPEN if parts is OPEN else [part.drop_form(middle) for part in parts]


def _read_rows(box: Digits, step: int) -> Digits:
    """The cell so far moved by `step` for each row of the middle, the last form but one; the rest stays."""

    def moved(x: Ints) -> Ints:
        return (*x[:-3], x[-3] + step * x[-2], x[-1])

    return Digits(moved(box.origin), tuple([moved(digit) for digit in box.digits]))


def resolve(box: Digits, home: Hashable, tries: Budget | None = None) -> list[Patch]:
    """Return the patches of digits of (index, cell) over a home; of a `Flat`, over its homes if these are few.

    Parameters
    ----------
    box : Digits
    home : hashable
    tries : Budget, optional
        How often digits may be taken through a patch; as often as need be by default. After that homes stay.

    Examples
    --------
    >>> halves = Flat(4, (Patch(0, 2, ((2, 1, 1),), "A"), Patch(2, 0, ((2, 1, 1),), "A")), 0)
    >>> for patch in resolve(Digits((0, 1), ((2, 1, 1),)), halves):  # the two in the middle
    ...     print(patch)
    Patch(at=0, cell=3, digits=(), home='A')
    Patch(at=1, cell=0, digits=(), home='A')
    """
    if not isinstance(home, Flat):
        return [patch_of(box, home)]
    (one, *more) = home.patches
    if not more and one.digits == ((home.size, 1, 1),) and not one.cell:  # the same by another name
        return resolve(box, one.home, tries)
    found = _inline(box, home, tuning.INLINED_PATCHES + 2 * len(home.patches), tries)
    return [patch_of(box, home)] if found is OPEN else found


def _inline(box: Digits, home: Flat, limit: int, tries: Budget | None) -> list[Patch] | Open:
    low, high = box.bounds(1)
    found: list[Patch] = []
    for inner in home.patches:
        if inner.at > high:
            break
        if inner.last >= low:
            parts = through(box, inner, limit) if tries is None or tries.spend() else OPEN
            if parts is OPEN:
                return OPEN
            for part in parts:
                found += resolve(part, inner.home, tries)
            if len(found) > limit:
                return OPEN
    return found
