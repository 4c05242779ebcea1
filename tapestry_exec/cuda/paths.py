"""The choice on a GPU between raw kernels and block functions.

What an operator's shard computes is said by its declaration, as a `Form`; the forms that there are kernels for are
here, each in one function that answers either with the way to do the shard's work or with None: then the block function
runs, which is always right. The same holds for merges of partial results. No operator is named here.

- A product of matrices with a bias or an activation is cuBLAS's product and then one pass of the epilogue.
- A convolution is direct, from the block that holds the halo, where `is_direct_faster` says so from sizes alone; else
  its windows are unfolded in one copy, and multiplied in one product.
- Attention makes many heads at once.
- Softmax along the last axis and normalizations are one launch, a block of threads for each row.
- Random cells are Philox's words; uniform ones are written at once.
- A scatter puts its updates into each cell one after the other, in one launch and without atomic operations.
- Partial results of plain monoids are merged in one pass over the cells, in a row or in a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import prod
from typing import Any, assert_never

import numpy as np

from tapestry_exec.copies import MAX_CELLS, Transfer
from tapestry_exec.cuda import kernels
from tapestry_exec.cuda.tuning import (
    DIRECT_FLOP_PER_SECOND,
    DIRECT_FLOP_PER_SECOND_OF_BLOCK,
    LAUNCH_SECONDS,
    NBYTES_PER_SECOND,
    PRODUCT_FLOP_PER_SECOND,
    UNFOLDED_NBYTES,
    UNFOLDING_NBYTES_PER_SECOND,
)
from tapestry_plan.ir import (
    Activation,
    Addition,
    Attention,
    Correlation,
    Form,
    MatrixProduct,
    Monoid,
    Normalization,
    RandomCells,
    Scatter,
    Softmax,
    begin_as,
)
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
        case Attention():
            return _attention(form, inputs, outputs[0])
        case Softmax() | Normalization():
            return _rows(form, inputs, outputs[0])
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
    if is_direct_faster(form, out.dtype.name, out.shape, w.shape, bias is not None):
        return convolve_directly(form, x, w, bias, out)
    if form.activation != "none" and not out.flags.c_contiguous:
        return None
    return partial(convolve_unfolded, form, x, w, bias, out)


def convolve_directly(form: Correlation, x: Any, w: Any, bias: Any, out: Any) -> Way:
    """A convolution, from the block that holds the halo: one launch for all groups of one width."""
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


def convolve_unfolded(form: Correlation, x: Any, w: Any, bias: Any, out: Any, cupy: Any, launch: Launcher) -> None:
    """Windows side by side as columns, as many samples at once as there is room for, then one product for them all."""
    #                  one column for each output
    #                ┌──────────────┐
    #  weight of   · │ ci, kh, kw   │ = out[sample, the group's channels]        a stack of samples and groups
    #  the group     └──────────────┘
    depth, size = prod(w.shape[1:]), out.dtype.itemsize
    for (begin, end), read, count in _even_groups(form, w.shape[1]):
        weight = w[begin:end].reshape(count, (end - begin) // count, depth)
        each = count * depth * prod(out.shape[2:]) * size
        at_once = max(1, UNFOLDED_NBYTES // each)
        for first in range(0, out.shape[0], at_once):
            some = slice(first, first + at_once)
            target = out[some, begin:end]
            columns = _columns(form, x[some, read : read + count * w.shape[1]], w.shape, target.shape, cupy, launch)
            columns = columns.reshape(len(columns), count, depth, -1)
            flat = _flat_cells(target, cupy)
            made = cupy.empty((*target.shape[:2], columns.shape[-1]), out.dtype) if flat is None else flat
            stacked = cupy.ndarray(
                (len(columns), *weight.shape[:2], columns.shape[-1]), out.dtype, made.data,
                (made.strides[0], weight.shape[1] * made.strides[1], *made.strides[1:]),
            )  # fmt: skip
            cupy.matmul(weight, columns, out=stacked)
            if flat is None:
                target[...] = made.reshape(target.shape)
    if out.flags.c_contiguous:
        rows, at = prod(out.shape[:2]), None if bias is None else bias.data.ptr
        ended = out.data.ptr, at, rows, out.size // rows, out.dtype.name, form.activation, out.shape[1]
        launch(kernels.epilogues(*ended))
    elif bias is not None:
        cupy.add(out, bias.reshape(-1, *(1,) * (out.ndim - 2)), out=out)


def _columns(form: Correlation, x: Any, w: Ints, out: Ints, cupy: Any, launch: Launcher) -> Any:
    """Windows of samples, ``(sample, channel, kernel cell, output cell)``; x itself where each is one cell."""
    if not _unfolds(form, w) and (flat := _flat_cells(x, cupy)) is not None:
        return flat
    samples, channels, *steps = _steps(x)
    dims = (*x.shape[:2], *w[2:], *out[2:])
    reach = [s * step for s, step in zip((*form.dilations, *form.strides), (*steps, *steps), strict=True)]
    made = cupy.empty((*x.shape[:2], prod(w[2:]), prod(out[2:])), x.dtype)
    unfold = Transfer(dims, 0, (samples, channels, *reach), 0, tuple(prod(dims[k + 1 :]) for k in range(len(dims))))
    launch(kernels.copies((unfold,), x.dtype.itemsize, x.data.ptr, made.data.ptr))
    return made


def _flat_cells(array: Any, cupy: Any) -> Any:
    """An array of samples, channels and cells that shares memory; None where the cells of a channel lie apart."""
    cells = array.shape[2:]
    whole = tuple(prod(cells[k + 1 :]) for k in range(len(cells)))
    if any(n > 1 and step != wanted for n, step, wanted in zip(cells, _steps(array)[2:], whole, strict=True)):
        return None
    shape = (*array.shape[:2], prod(cells))
    return cupy.ndarray(shape, array.dtype, array.data, (*array.strides[:2], array.dtype.itemsize))


def _unfolds(form: Correlation, w: Ints) -> bool:
    """Whether windows have more than one cell, or leave cells out."""
    return any(n > 1 for n in (*w[2:], *form.strides))


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
    """Whether the direct kernel is expected to take less time than unfolding and a product: a rule on sizes alone.

    The kernel takes a launch for all groups of one width, and the larger of its arithmetic, idle channels counted, and
    of its bytes. The other way writes columns and reads them, multiplies, and has a launch for each, and for each end
    of the form. All rates are constants of `tuning`.

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
    >>> own = Correlation(0, 1, None, (1, 1), (1, 1), tuple(((c, c + 1), c) for c in range(64)))
    >>> is_direct_faster(own, "float32", (1, 64, 112, 112), (64, 1, 3, 3), False)
    True
    >>> whole = Correlation(0, 1, None, (1, 1), (1, 1), (((0, 512), 0),))
    >>> is_direct_faster(whole, "float32", (1, 512, 56, 56), (512, 512, 1, 1), False)
    False
    """
    size, cells, depth = np.dtype(dtype).itemsize, out[0] * prod(out[2:]), prod(w[1:])
    flop = 2 * depth * cells * out[1]
    even = _even_groups(form, w[1])
    # The direct kernel overlaps its arithmetic with its bytes, so the larger counts; the other way's launches do one or
    # the other, so they add up. Few blocks leave most of the GPU idle.
    moved = 2 * cells * out[1] * size / NBYTES_PER_SECOND
    blocks, whole = kernels.count_blocks(
        dtype, out, [((end - begin) // count, count) for (begin, end), _, count in even]
    )
    rate = min(blocks * DIRECT_FLOP_PER_SECOND_OF_BLOCK[dtype], DIRECT_FLOP_PER_SECOND[dtype])
    direct = len(even) * LAUNCH_SECONDS + max(2 * depth * whole / rate, moved)
    # unfolded         columns   product   bias and activation     a launch each
    # direct kernel    ─────────────── one launch ─────────────    for all groups of one width
    ends, unfolds = int(has_bias or form.activation != "none"), _unfolds(form, w)
    columns = sum(count for _, _, count in even) * depth * cells * size if unfolds else 0
    block = (
        (len(even) * (1 + unfolds) + ends) * LAUNCH_SECONDS
        + columns * (1 / UNFOLDING_NBYTES_PER_SECOND + 1 / NBYTES_PER_SECOND)
        + (1 + ends) * moved
        + flop / PRODUCT_FLOP_PER_SECOND[dtype]
    )
    return direct <= block


# --------------------------------------------------------------------------------------------------- attention


def _attention(form: Attention, inputs: Sequence[Any], out: Any) -> Way | None:
    return (lambda cupy, launch: form.attend(cupy, inputs, out, UNFOLDED_NBYTES)) if out.size else None


# -------------------------------------------------------------------------------------------------------- rows


def _rows(form: Softmax | Normalization, inputs: Sequence[Any], out: Any) -> Way | None:
    given = inputs if isinstance(form, Normalization) else inputs[:1]
    if not out.size or not _are_floats(*given, out) or not all(x.flags.c_contiguous for x in (*given, out)):
        return None
    if isinstance(form, Softmax):
        columns = out.shape[-1]
        work = kernels.rows_of("softmax", out.data.ptr, given[0].data.ptr, out.size // columns, columns, out.dtype.name)
        return lambda cupy, launch: launch(work)
    scale, bias = given[1], given[2] if form.has_bias else None
    if scale.shape != out.shape[out.ndim - scale.ndim :]:
        return None
    work = kernels.rows_of(
        "centered" if form.is_centered else "plain",
        *(out.data.ptr, given[0].data.ptr, out.size // scale.size, scale.size, out.dtype.name),
        scale=scale.data.ptr,
        bias=None if bias is None else bias.data.ptr,
        epsilon=form.epsilon,
    )
    return lambda cupy, launch: launch(work)


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
        begin_as(cupy, out, inputs[0])
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
