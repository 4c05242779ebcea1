"""Kernel forms: walks over several arrays, such as strided copies, as kernels take them.

Kernels take digits in the fewest dimensions that say the same, at most eight, the first form's innermost run inside,
and less than 2³¹ cells. Pure arithmetic on integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from msgspec.structs import replace

from tapestry_exec.copies import tuning
from tapestry_exec.copies.strided import Transfer
from tapestry_sets.digits import Digits, advance, join_digits, turn_digit


class GuardedDigits(NamedTuple):
    """Forms of common digits, of which those indices count that keep the last forms in bounds.

    Parameters
    ----------
    forms : Digits
        Form 0 is the place that is written.
    bounds : tuple of (low, high)
        Of the last forms: an index counts where each is in [low, high).
    """

    forms: Digits
    bounds: tuple[tuple[int, int], ...] = ()

    def pick(self, axes: Sequence[int]) -> GuardedDigits:
        """These digits, in this order; others are at index 0."""
        return GuardedDigits(Digits(self.forms.origin, tuple(self.forms.digits[k] for k in axes)), self.bounds)

    def cut(self, axis: int, first: int, count: int) -> GuardedDigits:
        """`count` values of a digit from `first` on."""
        origin, digits = self.forms
        cut = count, *digits[axis][1:]
        box = Digits(advance(origin, digits[axis], first), (*digits[:axis], cut, *digits[axis + 1 :]))
        return GuardedDigits(box, self.bounds)

    def drop(self, form: int) -> GuardedDigits:
        """One bounded form fewer."""
        at = form - len(self.forms.origin) + len(self.bounds)
        return GuardedDigits(self.forms.drop_form(form), (*self.bounds[:at], *self.bounds[at + 1 :]))


def normal_forms(transfer: Transfer) -> list[Transfer]:
    """Return the same copy in at most eight dimensions, each part of less than 2³¹ cells.

    Extents of 1 are dropped, target strides made positive and sorted, the largest first, neighbors merged where
    both sides and the guards allow; guards on one dimension cut its extent, guards that always hold are dropped.

    Returns
    -------
    list of Transfer
        Of rank 1 at least. Usually one; none where no cell is copied.

    Examples
    --------
    >>> normal_forms(Transfer((4, 1, 6), 0, (6, 9, 1), 5, (6, 9, 1)))
    [Transfer(dims=(24,), src_offset=0, src_strides=(1,), dst_offset=5, dst_strides=(1,), guards=())]
    """
    return [Transfer.of(*part) for part in normal_digits(GuardedDigits(transfer.forms, transfer.bounds))]


def normal_digits(box: GuardedDigits) -> list[GuardedDigits]:
    """As `normal_forms`, of digits with any forms."""
    guarded = None if any(digit[0] == 0 for digit in box.forms.digits) else _without_bounds(box)
    if guarded is None:
        return []
    origin, digits = guarded.forms[0], []
    for digit in guarded.forms.digits:
        if digit[1:] < (0,) * len(origin):  # the first form that it moves steps down
            origin, digit = turn_digit(origin, digit)
        digits.append(digit)
    # neighboring cells of the target next to each other in the index, so that their stores go together
    digits.sort(key=lambda digit: [-abs(step) for step in digit[1:]])
    merged = GuardedDigits(Digits(origin, join_digits(digits) or ((1, *(0,) * len(origin)),)), guarded.bounds)
    return [part for low in _of_rank(merged) for part in _of_size(low)]


def _without_bounds(box: GuardedDigits) -> GuardedDigits | None:
    """Bounds on one digit cut it, those that always hold go; None if no index is left."""
    origin, digits = box.forms
    form = len(origin) - len(box.bounds)
    for low, high in box.bounds:
        axes = [k for k, digit in enumerate(digits) if digit[1 + form] and digit[0] > 1]
        low, high = low - origin[form], high - origin[form]
        if len(axes) == 1:
            count, step = digits[axes[0]][0], digits[axes[0]][1 + form]
            first, last = _range_of(step, low, high)
            first, last = max(first, 0), min(last, count - 1)
            if first > last:
                return None
            return _without_bounds(box.drop(form).cut(axes[0], first, last - first + 1))
        least, most = (end - origin[form] for end in box.forms.bounds(form))
        if most < low or least >= high or low >= high:
            return None
        if low <= least and most < high:
            return _without_bounds(box.drop(form))
        form += 1
    return box


def _range_of(c: int, low: int, high: int) -> tuple[int, int]:
    """The first and last i with low <= c·i < high."""
    if c < 0:
        c, low, high = -c, 1 - high, 1 - low
    return -(-low // c), (high - 1) // c


def _of_rank(box: GuardedDigits) -> Iterator[GuardedDigits]:
    """Parts of at most eight dimensions: the smallest extents are counted out."""
    dims = box.forms.columns()[0]
    if len(dims) <= tuning.RANK:
        yield box
        return
    axis = min(range(len(dims)), key=lambda k: (dims[k], k))
    rest = [k for k in range(len(dims)) if k != axis]
    for i in range(dims[axis]):
        part = _without_bounds(box.cut(axis, i, 1).pick(rest))
        if part is not None:
            yield from _of_rank(part)


def _of_size(box: GuardedDigits) -> Iterator[GuardedDigits]:
    """Parts of less than 2³¹ cells: the largest extent is halved."""
    dims = box.forms.columns()[0]
    if prod(dims) < tuning.MAX_CELLS:
        yield box
        return
    axis = max(range(len(dims)), key=lambda k: dims[k])
    half = dims[axis] // 2
    yield from _of_size(box.cut(axis, 0, half))
    yield from _of_size(box.cut(axis, half, dims[axis] - half))


def widen(transfer: Transfer, nbytes: int, src: int | None, dst: int) -> tuple[Transfer, int]:
    """The same copy in items as large as runs, strides and addresses allow, and how many old ones make a new one.

    Parameters
    ----------
    transfer : Transfer
        In a normal form.
    nbytes : int
        Of its items: a power of two.
    src, dst : int
        Addresses of the arrays, or their remainders by 16; None for a fill, whose source strides are 0.

    Examples
    --------
    >>> widen(Transfer((3, 8), 4, (12, 1), 0, (8, 1)), 4, 0, 0)
    (Transfer(dims=(3, 2), src_offset=1, src_strides=(3, 1), dst_offset=0, dst_strides=(2, 1), guards=()), 4)
    """
    runs = transfer.dst_strides[-1] == 1 and (src is None or transfer.src_strides[-1] == 1)
    if not runs or any(guard.coefficients[-1] for guard in transfer.guards):
        return transfer, 1
    outer = (*transfer.src_strides[:-1], *transfer.dst_strides[:-1], transfer.src_offset, transfer.dst_offset)
    factor = tuning.ITEM_NBYTES // nbytes
    while factor > 1 and (
        any(value % factor for value in (*outer, transfer.dims[-1]))
        or (src or 0) % (factor * nbytes)
        or dst % (factor * nbytes)
    ):
        factor //= 2
    if factor == 1:
        return transfer, 1
    return _in_wider(transfer, factor), factor


def _in_wider(transfer: Transfer, factor: int) -> Transfer:
    """Each `factor` items of the innermost dimension as one."""
    return replace(
        transfer,
        dims=(*transfer.dims[:-1], transfer.dims[-1] // factor),
        src_offset=transfer.src_offset // factor,
        src_strides=(*(s // factor for s in transfer.src_strides[:-1]), transfer.src_strides[-1]),
        dst_offset=transfer.dst_offset // factor,
        dst_strides=(*(s // factor for s in transfer.dst_strides[:-1]), 1),
    )
