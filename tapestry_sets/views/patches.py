"""Patches: boxes of digits that step through the indices of a view and through memory at once.

What each index reads is a set of pairs (index, cell), both row-major numbers. A patch is a box of such pairs: index
and cell are linear in common digits. Because indices and cells stand side by side, shapes play no part: a reshape
changes nothing, a view of a view is a join on the number in the middle, and read the other way round a patch is its
own mirror.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tapestry_sets.digits import Levels
from tapestry_sets.regions import AffineMap
from tapestry_sets.views.bundles import Bundle, Ints, Shatters, Tries, clip, in_region, split, unflattened, with_zero
from tapestry_sets.views.pieces import Piece, Relinearize

Digit = tuple[int, int, int]
"""(count, step of the index, step of the cell)."""


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """What a constant's cells are: one value and no memory."""

    value: float

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
    def bundle(self) -> Bundle:
        """Index and cell as two forms."""
        return Bundle((self.at, self.cell), tuple([(count, (by, step)) for count, by, step in self.digits]))

    def cell_at(self, index: int) -> int | None:
        """Return the cell that an index reads, None if it is not in the patch."""
        rest, cell = index - self.at, self.cell
        for count, by, step in self.digits:
            k, rest = divmod(rest, by)
            if not 0 <= k < count:
                return None
            cell += k * step
        return None if rest else cell


@dataclass(frozen=True, slots=True, eq=False)
class Flat:
    """What each index of a view reads, by row-major numbers: patches whose indices partition [0, size).

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
    _hashed: list[int] = field(default_factory=list, init=False, repr=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Flat):
            return NotImplemented
        if self is other or hash(self) != hash(other):
            return self is other
        return self.size == other.size and self.patches == other.patches

    def __hash__(self) -> int:
        if not self._hashed:  # once: patches of patches share what lies below them, and it would be met time and again
            self._hashed.append(hash((self.size, self.patches)))
        return self._hashed[0]

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


def patch_of(bundle: Bundle, home: Hashable) -> Patch:
    """Return the patch of a bundle whose forms are index and cell, and whose indices differ.

    Examples
    --------
    >>> patch_of(Bundle((5, 0), ((6, (-1, 2)), (1, (6, 0)))), "A")
    Patch(at=0, cell=10, digits=((6, 1, -2),), home='A')
    """
    at, cell = bundle.origin
    if isinstance(home, Constant):
        digits = [(count, by if by > 0 else -by, 0) for count, (by, _) in bundle.digits]
        cell = 0
        at = bundle.bounds(0)[0]
    else:
        digits = []
        for count, (by, step) in bundle.digits:
            if by < 0:
                at, cell, by, step = at + (count - 1) * by, cell + (count - 1) * step, -by, -step
            digits.append((count, by, step))
    digits.sort(key=lambda digit: -digit[1])
    return Patch(at, cell, joined(digits), home)


def joined(digits: Iterable[Digit]) -> tuple[Digit, ...]:
    """Return digits, outermost first, without those of one value, and as one where two go on without a break."""
    found: list[Digit] = []
    for count, by, step in digits:
        if count == 1:
            continue
        if found and found[-1][1] == count * by and found[-1][2] == count * step:
            found[-1] = (found[-1][0] * count, by, step)
        else:
            found.append((count, by, step))
    return tuple(found)


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
    return Patch(0, offset, joined(reversed(digits)), home)


# ------------------------------------------------------------------------------------------------ views of views


def read_patches(piece: Piece, shape: Sequence[int], home: Sequence[int], limit: int) -> list[Bundle]:
    """Return what a piece reads of a source of shape `home`: bundles of (index, cell), both row-major numbers.

    Raises
    ------
    Shatters
        If more than `limit` bundles are needed.

    Examples
    --------
    >>> from tapestry_sets.views import Flip
    >>> (piece,) = Flip((0,)).pieces(((5,),))
    >>> read_patches(piece, (5,), (5,), 10)
    [Bundle(origin=(0, 4), digits=((5, (1, -1)),))]
    """
    parts = [_whole(shape)]
    steps = piece.map.steps
    for prefix in range(len(steps) + 1):
        for guard in piece.guards:
            if guard.prefix == prefix:
                parts = [cut for part in parts for cut in in_region(part, 1, guard.region, limit)]
        if prefix == len(steps):
            break
        step = steps[prefix]
        if isinstance(step, AffineMap):
            parts = [_through_affine(part, step) for part in parts]
        else:
            parts = [cut for part in parts for cut in _through_renumbering(part, step, limit)]
        if len(parts) > limit:
            raise Shatters
    return [_flattened(part, home) for part in parts]


def _whole(shape: Sequence[int]) -> Bundle:
    """All indices of a box: the row-major number, then the coordinates."""
    rank, by = len(shape), 1
    digits = []
    for axis in range(rank - 1, -1, -1):
        if shape[axis] > 1:
            digits.append((shape[axis], (by, *(0,) * axis, 1, *(0,) * (rank - 1 - axis))))
        by *= shape[axis]
    return Bundle((0,) * (rank + 1), tuple(reversed(digits)))


def _through_affine(bundle: Bundle, step: AffineMap) -> Bundle:
    """The bundle with its forms but the first taken through a map."""
    rows = step.terms()

    def image(x: Ints) -> tuple[int, ...]:
        return tuple([sum([c * x[j + 1] for j, c in row]) for row in rows])

    origin = tuple([a + b for a, b in zip(image(bundle.origin), step.offset, strict=True)])
    return Bundle((bundle.origin[0], *origin), tuple([(count, (s[0], *image(s))) for count, s in bundle.digits]))


def _flattened(bundle: Bundle, shape: Sequence[int]) -> Bundle:
    """The bundle with its forms but the first as one row-major number."""

    def number(x: Ints) -> int:
        flat = 0
        for n, a in zip(shape, x[1:], strict=True):
            flat = flat * n + a
        return flat

    origin = (bundle.origin[0], number(bundle.origin))
    return Bundle(origin, tuple([(count, (s[0], number(s))) for count, s in bundle.digits]))


def _through_renumbering(bundle: Bundle, step: Relinearize, limit: int) -> list[Bundle]:
    return unflattened(_flattened(bundle, step.from_shape), 1, step.to_shape, limit)


def through(bundle: Bundle, inner: Patch, limit: int) -> list[Bundle]:
    """Return the bundles in which the last form, where it is an index of `inner`, is the cell that this reads.

    Raises
    ------
    Shatters
        If more than `limit` bundles are needed.

    Examples
    --------
    >>> rows = Patch(0, 0, ((3, 4, 10), (4, 1, 1)), "A")
    >>> through(Bundle((0, 2), ((4, (1, 1)),)), rows, 10)  # from the middle of a row to the next
    [Bundle(origin=(0, 2), digits=((2, (1, 1)),)), Bundle(origin=(2, 10), digits=((2, (1, 1)),))]
    """
    middle = len(bundle.origin)  # after the cell so far
    reach = inner.last - inner.at
    moved = Bundle(
        (*bundle.origin[:-1], inner.cell, bundle.origin[-1] - inner.at),
        tuple([(count, (*steps[:-1], 0, steps[-1])) for count, steps in bundle.digits]),
    )
    parts = clip(moved, middle, 0, reach + 1, limit)
    for count, by, step in inner.digits:
        reach -= (count - 1) * by
        found: list[Bundle] = []
        for part in parts:
            cuts = split(part, middle, by, limit, reach + 1) if by > 1 else [with_zero(part, middle)]
            found += [_read(cut, step) for cut in cuts]
        if len(found) > limit:
            raise Shatters
        parts = found
    return [part.without(middle) for part in parts]


def _read(bundle: Bundle, step: int) -> Bundle:
    """The cell so far moved by `step` for each row of the middle, the last form but one; the rest stays."""

    def moved(x: Ints) -> Ints:
        return (*x[:-3], x[-3] + step * x[-2], x[-1])

    return Bundle(moved(bundle.origin), tuple([(count, moved(steps)) for count, steps in bundle.digits]))


INLINE = 32
"""A patch of patches is spelled out where that takes at most so many more than twice these."""


def resolved(bundle: Bundle, home: Hashable, tries: Tries | None = None) -> list[Patch]:
    """Return the patches of a bundle of (index, cell) over a home; of a `Flat`, over its homes if these are few.

    Parameters
    ----------
    bundle : Bundle
    home : hashable
    tries : Tries, optional
        How often a bundle may be taken through a patch; as often as need be by default. After that homes stay.

    Examples
    --------
    >>> halves = Flat(4, (Patch(0, 2, ((2, 1, 1),), "A"), Patch(2, 0, ((2, 1, 1),), "A")), 0)
    >>> for patch in resolved(Bundle((0, 1), ((2, (1, 1)),)), halves):  # the two in the middle
    ...     print(patch)
    Patch(at=0, cell=3, digits=(), home='A')
    Patch(at=1, cell=0, digits=(), home='A')
    """
    if not isinstance(home, Flat):
        return [patch_of(bundle, home)]
    (one, *more) = home.patches
    if not more and one.digits == ((home.size, 1, 1),) and not one.cell:  # the same by another name
        return resolved(bundle, one.home, tries)
    try:
        return _inlined(bundle, home, INLINE + 2 * len(home.patches), tries)
    except Shatters:
        return [patch_of(bundle, home)]


def _inlined(bundle: Bundle, home: Flat, limit: int, tries: Tries | None) -> list[Patch]:
    low, high = bundle.bounds(1)
    found: list[Patch] = []
    for inner in home.patches:
        if inner.at > high:
            break
        if inner.last >= low:
            if tries is not None:
                tries.take()
            for part in through(bundle, inner, limit):
                found += resolved(part, inner.home, tries)
            if len(found) > limit:
                raise Shatters
    return found
