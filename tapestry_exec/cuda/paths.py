"""The choice on a GPU between raw kernels and block functions.

What an operator's shard computes is said by its declaration, as a `Form`; the forms that there are kernels for are
here, each in one function that answers either with the way to do the shard's work or with None: then the block function
runs, which is always right. The same holds for merges of partial results. No operator is named here.

- A product of matrices with a bias or an activation is cuBLAS's product and then one pass of the epilogue.
- A convolution is direct, from the block that holds the halo, where `is_direct_faster` says so from sizes alone.
- Random cells are Philox's words; uniform ones are written at once.
- A scatter puts its updates into each cell one after the other, in one launch and without atomic operations.
- Partial results of plain monoids are merged in one pass over the cells, in a row or in a tree.

Run on the CPU and compiled for GPUs, but not yet run on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, assert_never

import numpy as np

from tapestry_exec.copies import MAX_CELLS
from tapestry_exec.cuda import kernels
from tapestry_exec.cuda.tuning import DIRECT_FLOP_PER_SECOND, LAUNCH_SECONDS, NBYTES_PER_SECOND, PRODUCT_FLOP_PER_SECOND
from tapestry_plan.ir import Activation, Addition, Correlation, Form, MatrixProduct, Monoid, RandomCells, Scatter
from tapestry_sets.digits import Ints

Launcher = Callable[[Iterable[kernels.Launch]], None]
"""Puts launches into the current stream."""
Way = Callable[[Any, Launcher], None]
"""``(cupy, launch)``: does the work."""


def way_of(form: Form | None, inputs: Sequence[Any], outputs: Sequence[Any]) -> Way | None:
    """How a shard's work is done with raw kernels; None where the block function does it.

    Parameters
    ----------
    form : Form or None
        What the shard computes.
    inputs, outputs : sequence of device arrays
        Its blocks, perhaps strided; None for an input that is not read.
    """
    match form:
        case None | Activation() | Addition():  # of one pass already
            return None
        case MatrixProduct():
            return _product(form, inputs, outputs[0])
        case Correlation():
            return _correlation(form, inputs, outputs[0])
        case RandomCells():
            return _random(form, inputs, outputs)
        case Scatter():
            return _scatter(form, inputs, outputs[0])
    assert_never(form)


def _given(inputs: Sequence[Any], number: int | None) -> Any:
    return None if number is None else inputs[number]


def _are_floats(*arrays: Any) -> bool:
    """Whether all arrays that there are have one dtype, which the kernels know."""
    dtypes = {array.dtype.name for array in arrays if array is not None}
    return len(dtypes) == 1 and dtypes <= set(kernels.LANES)


# ---------------------------------------------------------------------------------------------------- products


def _product(form: MatrixProduct, inputs: Sequence[Any], out: Any) -> Way | None:
    a, b, bias = inputs[form.a], inputs[form.b], _given(inputs, form.bias)
    columns = out.shape[-1]
    is_plain = bias is None and form.activation == "none"
    if is_plain or not out.size or not _are_floats(a, b, bias, out) or not out.flags.c_contiguous:
        return None
    # a bias is one value for each column, side by side
    if bias is not None and not (bias.ndim and bias.size == columns == bias.shape[-1] and bias.flags.c_contiguous):
        return None
    at = None if bias is None else bias.data.ptr
    work = kernels.epilogues(out.data.ptr, at, out.size // columns, columns, out.dtype.name, form.activation)

    def run(cupy: Any, launch: Launcher) -> None:
        one, two = (x.swapaxes(-1, -2) if t else x for x, t in zip((a, b), form.transposed, strict=True))
        cupy.matmul(one, two, out=out)
        launch(work)

    return run


# ------------------------------------------------------------------------------------------------ convolutions


def _correlation(form: Correlation, inputs: Sequence[Any], out: Any) -> Way | None:
    x, w, bias = inputs[form.x], inputs[form.w], _given(inputs, form.bias)
    if not out.size or not _are_floats(x, w, bias, out) or (bias is not None and not bias.flags.c_contiguous):
        return None
    if max(out.size, w.size) >= MAX_CELLS:
        return None
    if not is_direct_faster(form, out.dtype.name, out.shape, w.shape, bias is not None):
        return None
    spatial = out.shape[2:], w.shape[2:], form.strides, form.dilations
    steps = _steps(x), _steps(w), _steps(out)
    work = []
    for (begin, end), read, count in _even_groups(form, w.shape[1]):
        width = (end - begin) // count
        convolving = kernels.Convolving(
            out.dtype.name, out.shape[0], count, w.shape[1], width, *spatial, *steps, form.activation
        )
        at = out.data.ptr + begin * out.strides[1], x.data.ptr + read * x.strides[1], w.data.ptr + begin * w.strides[0]
        beside = None if bias is None else bias.data.ptr + begin * out.dtype.itemsize
        work += kernels.convolutions(convolving, *at, beside)
    return lambda cupy, launch: launch(work)


def _steps(array: Any) -> Ints:
    """Strides in cells."""
    return tuple(step // array.dtype.itemsize for step in array.strides)


def _even_groups(form: Correlation, channels: int) -> list[tuple[tuple[int, int], int, int]]:
    """Groups, neighbors of one width as one: channels made, first channel read, number of groups."""
    #   made    0:4 4:8 8:12 12:14      of groups of 2 channels: the first three in one launch, ((0, 12), 0, 3), and
    #   read    0   2   4    6          the narrower one in another, ((12, 14), 6, 1)
    found: list[tuple[tuple[int, int], int, int]] = []
    for (begin, end), read in form.groups:
        if found:
            (first, last), start, count = found[-1]
            follows = begin == last and read == start + count * channels
            if follows and (end - begin) * count == last - first:
                found[-1] = (first, end), start, count + 1
                continue
        found.append(((begin, end), read, 1))
    return found


def is_direct_faster(form: Correlation, dtype: str, out: Ints, w: Ints, has_bias: bool) -> bool:
    """Whether the direct kernel is expected to take less time than the block function: a rule on sizes alone.

    The kernel takes a launch for all groups of one width, and the larger of its arithmetic, idle channels counted, and
    of its bytes. The block function takes launches for each sample, group and tile, one for each cell of the kernel
    that is unfolded, one for the product, one for each end of the form; writes and reads what is unfolded; and
    multiplies. All rates are constants of `tuning`, taken from an H200's data sheet, not yet measured.

    Parameters
    ----------
    form : Correlation
    dtype : "float32" or "float64"
    out, w : tuple of int
        Shapes of the block that is made and of the weight's block.
    has_bias : bool

    Returns
    -------
    bool

    Examples
    --------
    >>> one = Correlation(0, 1, None, (1, 1), (1, 1), (((0, 64), 0),), 4)
    >>> is_direct_faster(one, "float32", (8, 64, 56, 56), (64, 64, 3, 3), False)
    True
    >>> whole = Correlation(0, 1, None, (1, 1), (1, 1), (((0, 512), 0),), 0)
    >>> is_direct_faster(whole, "float32", (1, 512, 56, 56), (512, 512, 1, 1), False)
    False
    """
    size, cells, depth = np.dtype(dtype).itemsize, out[0] * prod(out[2:]), prod(w[1:])
    flop = 2 * depth * cells * out[1]
    even = _even_groups(form, w[1])
    idle = sum(count * kernels.padded_channels(dtype, (end - begin) // count) for (begin, end), _, count in even)
    # The direct kernel overlaps its arithmetic with its bytes, so the larger counts; the block function's launches do
    # one or the other, so they add up.
    direct = len(even) * LAUNCH_SECONDS + max(
        flop * idle / out[1] / DIRECT_FLOP_PER_SECOND[dtype], 2 * cells * out[1] * size / NBYTES_PER_SECOND
    )
    # block function, each sample, group and tile: unfold ×prod(kernel)  product  bias  activation    a launch each
    # direct kernel, for all groups of one width:  ────────────────── one launch ──────────────────
    ends = has_bias + (form.activation != "none")
    each = form.tiles * (prod(w[2:]) + 1 + ends) if form.tiles else 1 + ends
    unfolded = 2 * depth * cells * size * len(form.groups) if form.tiles else 0
    block = (
        out[0] * len(form.groups) * each * LAUNCH_SECONDS
        + (unfolded + 2 * (1 + ends) * cells * out[1] * size) / NBYTES_PER_SECOND
        + flop / PRODUCT_FLOP_PER_SECOND[dtype]
    )
    return direct <= block


# ------------------------------------------------------------------------------------------------ random cells


def _random(form: RandomCells, inputs: Sequence[Any], outputs: Sequence[Any]) -> Way | None:
    (out,) = outputs
    if not out.size:
        return None
    at = form.key, form.start, form.shape, form.extents
    if form.ends is not None and out.dtype.name in kernels.LANES and out.flags.c_contiguous:
        work = kernels.random_uniforms(out.data.ptr, *at, out.dtype.name, *form.ends)
        return lambda cupy, launch: launch(work)

    def run(cupy: Any, launch: Launcher) -> None:
        words = cupy.empty((*form.shape, form.each), np.uint32)
        launch(kernels.random_words(words.data.ptr, *at, form.each))
        form.finish(cupy, words, inputs, outputs)

    return run


# ----------------------------------------------------------------------------------------------------- scatters


def _scatter(form: Scatter, inputs: Sequence[Any], out: Any) -> Way | None:
    dtype, size = out.dtype.name, out.dtype.itemsize
    if form.function not in (*kernels.MERGES, "replace") or dtype not in kernels.DTYPES or not out.size:
        return None

    def run(cupy: Any, launch: Launcher) -> None:
        out[...] = inputs[0]
        cells, updates = form.prepare(cupy, inputs)
        at = cupy.zeros((), np.int64)
        for cell, axis in zip(cells, form.named, strict=True):
            at = at + cell.astype(np.int64) * (out.strides[axis] // size)
        lanes = [n for k, n in enumerate(updates.shape) if k != form.turn]
        steps = tuple(step // size for k, step in enumerate(out.strides) if k not in form.named)
        places = (_turning(array, form.turn) for array in (cupy.broadcast_to(at, updates.shape), updates))
        turns = updates.shape[form.turn]
        rows = kernels.Strided(out.data.ptr, steps)
        launch(kernels.scatters(form.function, dtype, turns, tuple(lanes), rows, *places))

    return run


def _turning(array: Any, turn: int) -> kernels.Strided:
    steps = list(_steps(array))
    step = steps.pop(turn)
    return kernels.Strided(array.data.ptr, tuple(steps), step)


# ------------------------------------------------------------------------------------------------------ merges


def merging(monoid: Monoid, dtypes: Iterable[np.dtype[Any]], parts: int, fan_in: int | None) -> str | None:
    """The function by which a raw kernel merges partial results; None where the monoid's own functions do.

    Parameters
    ----------
    monoid : Monoid
    dtypes : iterable of dtype
        Of the result and of the parts.
    parts : int
    fan_in : int or None

    Examples
    --------
    >>> from tapestry_plan import MONOIDS
    >>> merging(MONOIDS["sum"], [np.dtype("float32")], 4, 2), merging(MONOIDS["mean"], [np.dtype("f8")], 4, 2)
    ('add', None)
    """
    names = {dtype.name for dtype in dtypes}
    fits = parts <= kernels.PARTS or fan_in is None or fan_in >= parts
    is_known = monoid.is_plain and monoid.ufunc in kernels.MERGES and len(names) == 1 and names <= set(kernels.DTYPES)
    return monoid.ufunc if is_known and fits else None
