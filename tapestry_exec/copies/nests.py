"""Nests of linear forms: strided copies, and whatever else walks over several arrays, in a form that kernels take.

A nest has the fewest dimensions that say the same, at most eight, the first form's innermost run inside, and less than
2³¹ cells. Pure arithmetic on integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from tapestry_exec.copies.strided import Guard, Transfer

Ints = tuple[int, ...]

RANK = 8
"""Dimensions of a nest that a kernel takes."""
MOST_CELLS = 1 << 31
"""A kernel's indices are of 32 bits: larger nests are cut."""
ITEM_NBYTES = 16
"""Of the largest item that is moved at once."""


@dataclass(frozen=True, slots=True)
class Nest:
    """Several linear forms of one index: form f is ``offsets[f] + Σ steps[k][f]·index[k]``.

    Parameters
    ----------
    dims : tuple of int
        Extents of the index, row-major.
    offsets : tuple of int
        By form. Form 0 is the place that is written.
    steps : tuple of tuple of int
        By dimension, then by form.
    bounds : tuple of (low, high)
        Of the last forms: an index counts where each is in [low, high).
    """

    dims: Ints
    offsets: Ints
    steps: tuple[Ints, ...]
    bounds: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, transfer: Transfer) -> Nest:
        """Forms: the target, the source, the guards."""
        guards = transfer.guards
        forms = (transfer.dst_strides, transfer.src_strides, *(guard.coefficients for guard in guards))
        return cls(
            transfer.dims,
            (transfer.dst_offset, transfer.src_offset, *(0,) * len(guards)),
            tuple(zip(*forms, strict=True)),
            tuple((guard.low, guard.high) for guard in guards),
        )

    def transfer(self) -> Transfer:
        """The copy whose forms these are."""
        dst, src, *guarded = zip(*self.steps, strict=True) if self.steps else [()] * len(self.offsets)
        guards = (
            Guard(tuple(c), low - at, high - at)
            for c, (low, high), at in zip(guarded, self.bounds, self.offsets[2:], strict=True)
        )
        return Transfer(self.dims, self.offsets[1], tuple(src), self.offsets[0], tuple(dst), tuple(guards))

    def picked(self, axes: Sequence[int]) -> Nest:
        """These dimensions, in this order; others are at index 0."""
        return replace(self, dims=tuple(self.dims[k] for k in axes), steps=tuple(self.steps[k] for k in axes))

    def cut(self, axis: int, first: int, count: int) -> Nest:
        """`count` indices of a dimension from `first` on."""
        return replace(
            self,
            dims=(*self.dims[:axis], count, *self.dims[axis + 1 :]),
            offsets=tuple(at + first * step for at, step in zip(self.offsets, self.steps[axis], strict=True)),
        )

    def turned(self, axis: int) -> Nest:
        """The indices of a dimension counted from its end."""
        moved = self.cut(axis, self.dims[axis] - 1, self.dims[axis])
        step = tuple(-s for s in self.steps[axis])
        return replace(moved, steps=(*self.steps[:axis], step, *self.steps[axis + 1 :]))

    def without(self, form: int) -> Nest:
        """One form fewer, and its bound."""
        at = form - len(self.offsets) + len(self.bounds)

        def drop(values: Ints) -> Ints:
            return (*values[:form], *values[form + 1 :])

        return Nest(
            self.dims,
            drop(self.offsets),
            tuple(drop(step) for step in self.steps),
            (*self.bounds[:at], *self.bounds[at + 1 :]),
        )


def normal_forms(transfer: Transfer) -> list[Transfer]:
    """The same copy in at most eight dimensions, each part of less than 2³¹ cells.

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
    return [nest.transfer() for nest in normal_nests(Nest.of(transfer))]


def normal_nests(nest: Nest) -> list[Nest]:
    """As `normal_forms`, of nests with any forms."""
    if 0 in nest.dims:
        return []
    guarded = _without_bounds(nest)
    if guarded is None:
        return []
    for axis, step in enumerate(guarded.steps):
        if step < (0,) * len(step):
            guarded = guarded.turned(axis)
    return [part for low in _of_rank(_merged(_sorted(guarded))) for part in _of_size(low)]


def _without_bounds(nest: Nest) -> Nest | None:
    """Bounds on one dimension cut it, those that always hold go; None if no index is left."""
    form = len(nest.offsets) - len(nest.bounds)
    for low, high in nest.bounds:
        axes = [k for k, step in enumerate(nest.steps) if step[form] and nest.dims[k] > 1]
        low, high = low - nest.offsets[form], high - nest.offsets[form]
        if len(axes) == 1:
            first, last = _range_of(nest.steps[axes[0]][form], low, high)
            first, last = max(first, 0), min(last, nest.dims[axes[0]] - 1)
            if first > last:
                return None
            return _without_bounds(nest.without(form).cut(axes[0], first, last - first + 1))
        ends = [nest.steps[k][form] * (nest.dims[k] - 1) for k in axes]
        least, most = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
        if most < low or least >= high or low >= high:
            return None
        if low <= least and most < high:
            return _without_bounds(nest.without(form))
        form += 1
    return nest


def _range_of(c: int, low: int, high: int) -> tuple[int, int]:
    """The first and last i with low <= c·i < high."""
    if c < 0:
        c, low, high = -c, 1 - high, 1 - low
    return -(-low // c), (high - 1) // c


def _sorted(nest: Nest) -> Nest:
    """Neighboring cells of the target next to each other in the index, so that their stores go together."""
    axes = [k for k, n in enumerate(nest.dims) if n > 1]
    return nest.picked(sorted(axes, key=lambda k: [-abs(step) for step in nest.steps[k]]))


def _merged(nest: Nest) -> Nest:
    """Neighboring dimensions as one, where the outer one goes on where the inner one ends."""
    dims: list[int] = []
    steps: list[Ints] = []
    for n, step in zip(nest.dims, nest.steps, strict=True):
        if dims and steps[-1] == tuple(s * n for s in step):
            dims[-1] *= n
            steps[-1] = step
        else:
            dims.append(n)
            steps.append(step)
    if not dims:
        dims, steps = [1], [(0,) * len(nest.offsets)]
    return replace(nest, dims=tuple(dims), steps=tuple(steps))


def _of_rank(nest: Nest) -> Iterator[Nest]:
    """Parts of at most eight dimensions: the smallest extents are counted out."""
    if len(nest.dims) <= RANK:
        yield nest
        return
    axis = min(range(len(nest.dims)), key=lambda k: (nest.dims[k], k))
    rest = [k for k in range(len(nest.dims)) if k != axis]
    for i in range(nest.dims[axis]):
        part = _without_bounds(nest.cut(axis, i, 1).picked(rest))
        if part is not None:
            yield from _of_rank(part)


def _of_size(nest: Nest) -> Iterator[Nest]:
    """Parts of less than 2³¹ cells: the largest extent is halved."""
    if prod(nest.dims) < MOST_CELLS:
        yield nest
        return
    axis = max(range(len(nest.dims)), key=lambda k: nest.dims[k])
    half = nest.dims[axis] // 2
    yield from _of_size(nest.cut(axis, 0, half))
    yield from _of_size(nest.cut(axis, half, nest.dims[axis] - half))


def widened(transfer: Transfer, nbytes: int, src: int | None, dst: int) -> tuple[Transfer, int]:
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
    >>> widened(Transfer((3, 8), 4, (12, 1), 0, (8, 1)), 4, 0, 0)
    (Transfer(dims=(3, 2), src_offset=1, src_strides=(3, 1), dst_offset=0, dst_strides=(2, 1), guards=()), 4)
    """
    runs = transfer.dst_strides[-1] == 1 and (src is None or transfer.src_strides[-1] == 1)
    if not runs or any(guard.coefficients[-1] for guard in transfer.guards):
        return transfer, 1
    outer = (*transfer.src_strides[:-1], *transfer.dst_strides[:-1], transfer.src_offset, transfer.dst_offset)
    factor = ITEM_NBYTES // nbytes
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
