"""The operators: one declaration each, and a function of the same name that adds it to a graph.

A declaration is a signature (index space and projections), a dtype rule, the flop of an index point, the
merge of partial results and a block function. Nothing outside this file names an operator, and a graph takes
declarations of its own, so these are merely the ones that come along.

Block functions get dense input blocks that cover exactly ``shard.input_boxes`` (cells outside the tensor hold
the operand's padding), fill C-contiguous output blocks in place, and find their way by the names of the index
axes only. Cells of a strided window's block that lie between the windows are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import isfinite, prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tapestry_plan.graph import BUILTIN_OPS, Attrs, Op, Shape, Shard, Tensor
from tapestry_plan.signature import Axis, Form, Operand, Signature, project

SPATIAL = {1: ("w",), 2: ("h", "w"), 3: ("d", "h", "w")}
"""Names of the spatial axes, by how many there are."""

TILE_NBYTES = 1 << 21
"""Bytes of one tile of unfolded windows: with its result it should stay in a core's own cache."""


# -- dtype rules -----------------------------------------------------------------------------------------


def _same_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    """All operands have the dtype of the first, and so has the result."""
    for k, dtype in enumerate(dtypes):
        if dtype != dtypes[0]:
            raise ValueError(f"operand {k} is {dtype}, operand 0 is {dtypes[0]}; cast them to one dtype")
    return (dtypes[0],)


def _floating(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    """All operands have the same floating dtype."""
    if np.dtype(dtypes[0]).kind != "f":
        raise ValueError(f"operand 0 is {dtypes[0]}, but the operator works on floating numbers; cast it")
    return _same_dtype(dtypes, attrs)


def _bounded(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    """The bounds of a clip are values of its operand's dtype."""
    for key in ("min", "max"):
        bound = attrs.get(key)
        if bound is not None and np.dtype(dtypes[0]).kind in "iub" and bound != np.dtype(dtypes[0]).type(bound):
            raise ValueError(f"{key} is {bound!r}, which is no value of operand 0's dtype {dtypes[0]}; round it")
    return (dtypes[0],)


def _scaled(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    """The factors of a gemm are values of its operands' dtype."""
    for key in ("alpha", "beta"):
        if np.dtype(dtypes[0]).kind != "f" and attrs.get(key, 1) % 1:
            raise ValueError(f"{key} is {attrs[key]!r}, but operand 0 is {dtypes[0]}; give a whole number")
    return _same_dtype(dtypes, attrs)


# -- reading operands and attributes ---------------------------------------------------------------------


def _rank(shape: Shape, wanted: int, what: str, axes: str) -> None:
    if len(shape) != wanted:
        raise ValueError(f"{what} has shape {shape}, rank {len(shape)}; rank {wanted} is needed ({axes})")


def _vector(shape: Shape, size: int, what: str, of: str) -> None:
    if shape != (size,):
        raise ValueError(f"{what} has shape {shape}; {(size,)} is needed, one value for each of {of}")


def _ints(value: Any, rank: int, what: str, least: int) -> tuple[int, ...]:
    """An int, meaning the same on every axis, or one int for each axis."""
    values = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(values) != rank or any(isinstance(v, bool) or not isinstance(v, int) or v < least for v in values):
        raise ValueError(f"{what} is {value!r}; give an integer >= {least}, or {rank} of them")
    return values


def _axis(axis: Any, rank: int, what: str) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int) or not -rank <= axis < rank:
        raise ValueError(f"{what}: axis is {axis!r}; a tensor of rank {rank} has the axes {-rank} to {rank - 1}")
    return axis % rank


def _numbered(shape: Shape) -> tuple[Axis, ...]:
    return tuple(Axis(f"i{k}", n) for k, n in enumerate(shape))


def _aligned(shape: Shape, axes: Sequence[Axis]) -> list[Form]:
    """One form for each axis of an operand that is broadcast, as NumPy does, to the index axes."""
    lead = len(axes) - len(shape)
    return [{} if n == 1 else {axes[lead + k].name: 1} for k, n in enumerate(shape)]


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " and ".join(str(shape) for shape in shapes)
        raise ValueError(
            f"operands of shapes {listed} do not broadcast; aligned at the last axis, extents must be equal or 1"
        ) from None


# -- elementwise -----------------------------------------------------------------------------------------


def _elementwise_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    axes = _numbered(_broadcast(shapes))
    inputs = tuple(Operand(project(axes, _aligned(shape, axes))) for shape in shapes)
    return Signature(axes, inputs, (Operand(project(axes, [{axis.name: 1} for axis in axes])),))


def _counted(signature: Callable[[Sequence[Shape], Attrs], Signature], least: int, most: int | None) -> Any:
    """The signature, for a certain number of operands only."""

    def checked(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
        if len(shapes) < least or (most is not None and len(shapes) > most):
            bound = f"{least}" if most == least else f"{least} to {'any number' if most is None else most}"
            raise ValueError(f"{len(shapes)} operands given; the operator takes {bound}")
        return signature(shapes, attrs)

    return checked


def _ufunc(name: str) -> Any:
    """The block that applies one function of the array namespace to all operands."""

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        getattr(xp, name)(*inputs, out=outputs[0])

    return block


def _div_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    a, b = inputs
    if outputs[0].dtype.kind not in "iu":
        xp.divide(a, b, out=outputs[0])
        return
    # Integers round towards zero, as in ONNX and C; NumPy's floor_divide rounds down.
    xp.floor_divide(a, b, out=outputs[0])
    outputs[0][...] += (xp.remainder(a, b) != 0) & ((a < 0) != (b < 0))


def _relu_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    xp.maximum(inputs[0], 0, out=outputs[0])


def _sigmoid_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    # 1/(1 + e⁻ˣ) = (1 + tanh(x/2))/2, which overflows nowhere
    (out,) = outputs
    xp.multiply(inputs[0], 0.5, out=out)
    xp.tanh(out, out=out)
    xp.multiply(out, 0.5, out=out)
    xp.add(out, 0.5, out=out)


def _clip_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    low, high = shard.attrs.get("min"), shard.attrs.get("max")
    (x,), (out,) = inputs, outputs
    if low is None and high is None:
        out[...] = x
        return
    if low is not None:
        x = xp.maximum(x, out.dtype.type(low), out=out)
    if high is not None:
        xp.minimum(x, out.dtype.type(high), out=out)


def _leaky_relu_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (x,), (out,) = inputs, outputs
    alpha = shard.attrs.get("alpha", 0.01)
    xp.multiply(x, alpha, out=out)
    if 0 <= alpha <= 1:
        xp.maximum(x, out, out=out)
    else:
        out[...] = xp.where(x < 0, out, x)


def _sum_n_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (out,) = outputs
    if len(inputs) == 1:
        out[...] = inputs[0]
        return
    xp.add(inputs[0], inputs[1], out=out)
    for more in inputs[2:]:
        xp.add(out, more, out=out)


# -- matrix products -------------------------------------------------------------------------------------


def _matmul_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    a, b = shapes
    if len(a) < 2 or len(b) < 2:
        raise ValueError(f"operands have shapes {a} and {b}; both need rank 2 or more: give vectors an axis of 1")
    if a[-1] != b[-2]:
        raise ValueError(
            f"operand 0 of shape {a} has {a[-1]} columns (axis {len(a) - 1}), "
            f"operand 1 of shape {b} has {b[-2]} rows (axis {len(b) - 2}); they must be equal"
        )
    batch = tuple(Axis(f"b{k}", n) for k, n in enumerate(_broadcast((a[:-2], b[:-2]))))
    axes = (*batch, Axis("m", a[-2]), Axis("n", b[-1]), Axis("k", a[-1], "reduction"))
    left = [*_aligned(a[:-2], batch), {"m": 1}, {"k": 1}]
    right = [*_aligned(b[:-2], batch), {"k": 1}, {"n": 1}]
    out: list[Form] = [*({axis.name: 1} for axis in batch), {"m": 1}, {"n": 1}]
    inputs = (Operand(project(axes, left)), Operand(project(axes, right)))
    return Signature(axes, inputs, (Operand(project(axes, out)),))


def _gemm_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    a, b = shapes[:2]
    _rank(a, 2, "operand 0", "rows, columns")
    _rank(b, 2, "operand 1", "rows, columns")
    m, k = a[::-1] if attrs.get("trans_a") else a
    rows, n = b[::-1] if attrs.get("trans_b") else b
    if rows != k:
        raise ValueError(
            f"operand 0 of shape {a} is multiplied over {k} values, operand 1 of shape {b} over {rows}; "
            "they must be equal"
        )
    axes = (Axis("m", m, alias="batch"), Axis("n", n, alias="out"), Axis("k", k, "reduction", alias="in"))
    left: list[Form] = [{"m": 1}, {"k": 1}]
    right: list[Form] = [{"k": 1}, {"n": 1}]
    inputs = [
        Operand(project(axes, left[::-1] if attrs.get("trans_a") else left)),
        Operand(project(axes, right[::-1] if attrs.get("trans_b") else right)),
    ]
    if len(shapes) > 2:
        inputs.append(_gemm_bias(shapes[2], axes))
    return Signature(axes, tuple(inputs), (Operand(project(axes, [{"m": 1}, {"n": 1}])),))


def _gemm_bias(shape: Shape, axes: tuple[Axis, ...]) -> Operand:
    m, n = axes[0].size, axes[1].size
    if len(shape) > 2 or any(have not in (1, need) for have, need in zip(shape[::-1], (n, m), strict=False)):
        raise ValueError(f"the bias has shape {shape}; it must broadcast to {(m, n)}")
    return Operand(project(axes, _aligned(shape, axes[:2])), at_start_of=("k",))


def _linear_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    product = _gemm_signature(shapes[:2], {})
    if len(shapes) == 2:
        return product
    _vector(shapes[2], product.axes[1].size, "the bias", "the output's columns (out)")
    return _gemm_signature(shapes, {})


def _gemm_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (out,) = outputs
    attrs = shard.attrs
    a = inputs[0].T if attrs.get("trans_a") else inputs[0]
    b = inputs[1].T if attrs.get("trans_b") else inputs[1]
    xp.matmul(a, b, out=out)
    alpha, beta = attrs.get("alpha", 1.0), attrs.get("beta", 1.0)
    if alpha != 1:
        xp.multiply(out, out.dtype.type(alpha), out=out)
    if len(inputs) > 2 and inputs[2] is not None:
        bias = inputs[2] if beta == 1 else inputs[2] * out.dtype.type(beta)
        xp.add(out, bias, out=out)


# -- windows ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """How a window moves over the spatial axes.

    Parameters
    ----------
    kernel, strides, dilations : tuple of int
        One value for each spatial axis.
    begins, ends : tuple of int
        Padding cells before and after the tensor.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, kernel: Sequence[int], attrs: Attrs) -> Window:
        """From the attributes `strides`, `pads` and `dilations`, ints or one value for each axis.

        `pads` may also hold all begins and then all ends.

        Raises
        ------
        ValueError
            For values of the wrong count or sign.
        """
        rank = len(kernel)
        pads = attrs.get("pads", 0)
        two_sided = not isinstance(pads, int) and len(pads) == 2 * rank
        both = _ints(pads, 2 * rank if two_sided else rank, "pads", 0)
        return cls(
            tuple(kernel),
            _ints(attrs.get("strides", 1), rank, "strides", 1),
            _ints(attrs.get("dilations", 1), rank, "dilations", 1),
            both[:rank],
            both[-rank:],
        )

    @property
    def reach(self) -> tuple[int, ...]:
        """Cells from the window's first to its last, both counted."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def out_shape(self, extents: Shape, ceil_mode: bool = False) -> Shape:
        """How many windows fit along each axis.

        With `ceil_mode` a last window may reach beyond the padding, but must begin before it.
        """
        out = []
        for axis, n in enumerate(extents):
            room = n + self.begins[axis] + self.ends[axis] - self.reach[axis]
            if room < 0:
                raise ValueError(
                    f"a window of {self.kernel} reaching over {self.reach} cells does not fit extents {extents} "
                    f"padded by {self.begins} and {self.ends}, spatial axis {axis}; "
                    "pad more or take a smaller window"
                )
            stride = self.strides[axis]
            count = room // stride + 1
            if ceil_mode and room % stride and count * stride < n + self.begins[axis]:
                count += 1
            out.append(count)
        return tuple(out)

    def forms(self, names: Sequence[str]) -> list[Form]:
        """The coordinates read along the spatial axes, with a reduction axis k<name> for the offset."""
        return [
            {name: s, f"k{name}": d, "": -p}
            for name, s, d, p in zip(names, self.strides, self.dilations, self.begins, strict=True)
        ]


def _offsets(shard: Shard, window: Window, names: Sequence[str]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """For each kernel offset of a shard: its number on each axis, and the cells that it reads."""
    outs = [_length(shard, name) for name in names]
    kernel = [range(_length(shard, f"k{name}")) for name in names]
    for at in product(*kernel):
        yield (
            at,
            tuple(
                slice(k * d, k * d + (n - 1) * s + 1, s)
                for k, d, s, n in zip(at, window.dilations, window.strides, outs, strict=True)
            ),
        )


def _length(shard: Shard, axis: str) -> int:
    begin, end = shard.range(axis)
    return end - begin


def _spatial_of(shard: Shard) -> tuple[str, ...]:
    """Names of the spatial axes, in the tensor's order whatever the order of the index axes."""
    present = {axis.name for axis in shard.signature.axes}
    return tuple(name for name in SPATIAL[3] if name in present)


def _spatial(shape: Shape, what: str) -> tuple[str, ...]:
    if len(shape) - 2 not in SPATIAL:
        raise ValueError(
            f"{what} has shape {shape}, rank {len(shape)}; "
            "it needs a batch axis, a channel axis and one to three spatial axes"
        )
    return SPATIAL[len(shape) - 2]


# -- convolution -----------------------------------------------------------------------------------------


def _conv_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    x, w = shapes[:2]
    names = _spatial(x, "operand 0")
    _rank(w, len(x), "the weight", "output channels, channels of a group, kernel")
    groups = _conv_groups(x, w, attrs.get("groups", 1))
    window = Window.of(w[2:], attrs)
    kernel = tuple(f"k{name}" for name in names)
    axes = (
        Axis("n", x[0]),
        Axis("c", w[0]),
        *map(Axis, names, window.out_shape(x[2:])),
        Axis("ci", w[1], "reduction"),
        *(Axis(name, size, "reduction") for name, size in zip(kernel, w[2:], strict=True)),
    )
    channel, splits = _group_channel(w, groups)
    inputs = [
        Operand(project(axes, [{"n": 1}, channel, *window.forms(names)], splits=splits), pad=0.0),
        Operand(project(axes, [{"c": 1}, {"ci": 1}, *({name: 1} for name in kernel)])),
    ]
    if len(shapes) > 2:
        _vector(shapes[2], w[0], "the bias", "the output's channels")
        inputs.append(Operand(project(axes, [{"c": 1}]), at_start_of=("ci", *kernel)))
    out: list[Form] = [{"n": 1}, {"c": 1}, *({name: 1} for name in names)]
    return Signature(axes, tuple(inputs), (Operand(project(axes, out)),))


def _conv_groups(x: Shape, w: Shape, groups: Any) -> int:
    counts = isinstance(groups, int) and not isinstance(groups, bool) and groups >= 1
    if not counts or w[0] % groups or x[1] != w[1] * groups:
        raise ValueError(
            f"groups is {groups!r}: operand 0 of shape {x} has {x[1]} channels and the weight of shape {w} takes "
            f"{w[1]} for each group and makes {w[0]}; channels must be groups·{w[1]}, and groups divide {w[0]}"
        )
    return int(groups)


def _group_channel(weight: Shape, groups: int) -> tuple[Form, dict[str, int]]:
    """The channel that output channel c reads at ci: (c // channels of a group)·weight[1] + ci."""
    if groups == 1:
        return {"ci": 1}, {}
    width = weight[0] // groups
    if width == 1:
        return {"c": weight[1], "ci": 1}, {}
    return {"c//": weight[1], "ci": 1}, {"c": width}


def _conv_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    x, w = inputs[:2]
    bias = inputs[2] if len(inputs) > 2 else None
    (out,) = outputs
    window = Window.of(w.shape[2:], shard.attrs)
    names = SPATIAL[w.ndim - 2]
    unfolded = not _is_direct(shard, window)
    for n in range(x.shape[0]):
        for channels, read in _groups_of(shard, w.shape[1]):
            matrix = w[channels].reshape(channels.stop - channels.start, -1)
            add = None if bias is None else bias[channels]
            if unfolded:
                _conv_unfolded(xp, x[n, read], matrix, add, out[n, channels], shard, window, names)
            else:
                _conv_direct(xp, x[n, read], matrix, add, out[n, channels])


def _is_direct(shard: Shard, window: Window) -> bool:
    """Whether the block of a shard is the output's block itself: one kernel cell, no stride."""
    names = SPATIAL[len(window.kernel)]
    return all(s == 1 for s in window.strides) and all(_length(shard, f"k{name}") == 1 for name in names)


def _groups_of(shard: Shard, depth: int) -> Iterator[tuple[slice, slice]]:
    """For each group of a shard: its output channels, and its channels in the block that is read."""
    begin, end = shard.range("c")
    groups = shard.attrs.get("groups", 1)
    width = shard.signature.axes[shard.signature.axis("c")].size // groups
    whole = shard.signature.axes[shard.signature.axis("ci")].size
    first = begin // width
    for group in range(first, (end - 1) // width + 1):
        low, high = max(begin, group * width), min(end, (group + 1) * width)
        at = (group - first) * whole
        yield slice(low - begin, high - begin), slice(at, at + depth)


def _conv_direct(xp: Any, x: Any, matrix: Any, bias: Any, out: Any) -> None:
    """One kernel cell, no stride: a product of matrices on the tensor itself."""
    if x.flags.c_contiguous:
        flat = out.reshape(out.shape[0], -1)
        xp.matmul(matrix, x.reshape(x.shape[0], -1), out=flat)
    else:  # a block inside a larger buffer: row by row, still without a copy
        xp.matmul(matrix, xp.moveaxis(x, 0, -2), out=xp.moveaxis(out, 0, -2))
    if bias is not None:
        out += bias.reshape(-1, *(1,) * (out.ndim - 1))


def _conv_unfolded(
    xp: Any,
    x: Any,
    matrix: Any,
    bias: Any,
    out: Any,
    shard: Shard,
    window: Window,
    names: Sequence[str],
) -> None:
    """Windows unfolded into columns, a tile of rows at a time, each multiplied while it is in cache."""
    depth, kernel = x.shape[0], prod(_length(shard, f"k{name}") for name in names)
    row = prod(out.shape[2:])
    height = _tile_rows(shard, out.dtype.itemsize)
    offsets = list(_offsets(shard, window, names))
    stride = window.strides[0]
    flat = out.reshape(out.shape[0], -1)
    scratch = shard.workspace[: depth * kernel * height * row * out.dtype.itemsize].view(out.dtype)
    for top in range(0, out.shape[1], height):
        rows = min(height, out.shape[1] - top)
        columns = scratch[: depth * kernel * rows * row].reshape(depth, kernel, rows, *out.shape[2:])
        for k, (_, cells) in enumerate(offsets):
            first = cells[0].start + top * stride
            columns[:, k] = x[(slice(None), slice(first, first + (rows - 1) * stride + 1, stride), *cells[1:])]
        target = flat[:, top * row : (top + rows) * row]
        xp.matmul(matrix, columns.reshape(depth * kernel, -1), out=target)
        if bias is not None:
            target += bias[:, None]


def _tile_rows(shard: Shard, itemsize: int) -> int:
    """Rows of one tile: as many as fit into TILE_NBYTES, at least one."""
    names = _spatial_of(shard)
    depth = prod(_length(shard, name) for name in ("ci", *(f"k{name}" for name in names)))
    row = depth * prod(_length(shard, name) for name in names[1:]) * itemsize
    return max(1, min(_length(shard, names[0]), TILE_NBYTES // row))


def _conv_workspace(shard: Shard, itemsize: int) -> int:
    names = _spatial_of(shard)
    # The kernel's extents are those of its index axes: the weight's shape is not at hand here.
    kernel = [shard.signature.axes[shard.signature.axis(f"k{name}")].size for name in names]
    if _is_direct(shard, Window.of(kernel, shard.attrs)):
        return 0
    depth = prod(_length(shard, name) for name in ("ci", *(f"k{name}" for name in names)))
    return _tile_rows(shard, itemsize) * depth * prod(_length(shard, name) for name in names[1:]) * itemsize


# -- pools -----------------------------------------------------------------------------------------------


def _pool_signature(shapes: Sequence[Shape], attrs: Attrs, pad: float) -> Signature:
    (x,) = shapes
    names = _spatial(x, "operand 0")
    if "kernel" not in attrs:
        raise ValueError(f"the attribute kernel is missing; give {len(names)} extents")
    kernel = _ints(attrs["kernel"], len(names), "kernel", 1)
    window = Window.of(kernel, attrs)
    for axis, (before, after, reach) in enumerate(zip(window.begins, window.ends, window.reach, strict=True)):
        if max(before, after) >= reach:
            raise ValueError(
                f"pads of {before} and {after} on spatial axis {axis} leave windows of {reach} cells wholly "
                "in the padding; pad by less than the window"
            )
    axes = (
        Axis("n", x[0]),
        Axis("c", x[1]),
        *(
            Axis(name, size)
            for name, size in zip(names, window.out_shape(x[2:], bool(attrs.get("ceil_mode"))), strict=True)
        ),
        *(Axis(f"k{name}", size, "reduction") for name, size in zip(names, kernel, strict=True)),
    )
    read = Operand(project(axes, [{"n": 1}, {"c": 1}, *window.forms(names)]), pad=pad)
    out: list[Form] = [{"n": 1}, {"c": 1}, *({name: 1} for name in names)]
    return Signature(axes, (read,), (Operand(project(axes, out)),))


def _max_pool_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    return _pool_signature(shapes, attrs, float("-inf"))


def _average_pool_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    signature = _pool_signature(shapes, attrs, 0.0)
    read = replace(signature.inputs[0], extents=shapes[0])
    return Signature(signature.axes, (read,), signature.outputs)


def _max_pool_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    _fold_windows(xp.maximum, inputs[0], outputs[0], shard)


def _average_pool_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (out,) = outputs
    _fold_windows(xp.add, inputs[0], out, shard)
    names = _spatial_of(shard)
    counts = [_cells_counted(shard, axis, name) for axis, name in enumerate(names)]
    if all((c == c[0]).all() for c in counts):
        xp.divide(out, out.dtype.type(prod(int(c[0]) for c in counts)), out=out)
        return
    for axis, count in enumerate(counts):
        shape = [1] * len(counts)
        shape[axis] = -1
        xp.divide(out, xp.asarray(count.astype(out.dtype)).reshape(shape), out=out)


def _fold_windows(fold: Any, x: Any, out: Any, shard: Shard) -> None:
    """Fold each window, one kernel offset after the other, a batch item at a time."""
    names = _spatial_of(shard)
    window = Window.of(_ints(shard.attrs["kernel"], len(names), "kernel", 1), shard.attrs)
    offsets = [(slice(None), *cells) for _, cells in _offsets(shard, window, names)]
    for n in range(out.shape[0]):
        out[n] = x[n][offsets[0]]
        for cells in offsets[1:]:
            fold(out[n], x[n][cells], out=out[n])


def _cells_counted(shard: Shard, axis: int, name: str) -> NDArray[np.intp]:
    """How many cells of each window of a shard count towards its average, along one spatial axis."""
    rank = len(_spatial_of(shard))
    window = Window.of(_ints(shard.attrs["kernel"], rank, "kernel", 1), shard.attrs)
    kernel = window.kernel[axis]
    positions = np.arange(*shard.range(name)) * window.strides[axis] - window.begins[axis]
    extents = shard.signature.inputs[0].extents
    assert extents is not None, "the signature of average_pool says where its tensor ends"
    low, high = 0, extents[2 + axis]
    if shard.attrs.get("count_include_pad"):
        low, high = -window.begins[axis], high + window.ends[axis]
    cells = positions[:, None] + np.arange(kernel) * window.dilations[axis]
    counts: NDArray[np.intp] = np.count_nonzero((cells >= low) & (cells < high), axis=1)
    return counts


# -- reductions ------------------------------------------------------------------------------------------


def _reduce_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    (x,) = shapes
    over = _reduced(len(x), attrs)
    axes = tuple(Axis(f"i{k}", n, "reduction" if k in over else "parallel") for k, n in enumerate(x))
    kept: list[Form] = [{} if k in over else {axis.name: 1} for k, axis in enumerate(axes)]
    if not attrs.get("keepdims", True):
        kept = [form for k, form in enumerate(kept) if k not in over]
    read = Operand(project(axes, [{axis.name: 1} for axis in axes]))
    return Signature(axes, (read,), (Operand(project(axes, kept)),))


def _reduced(rank: int, attrs: Attrs) -> frozenset[int]:
    """The axes that are reduced: those of the attribute `axes`, else all."""
    given = attrs.get("axes")
    if given is None:
        return frozenset(range(rank))
    found = [_axis(axis, rank, "axes") for axis in ((given,) if isinstance(given, int) else given)]
    if len(set(found)) != len(found):
        raise ValueError(f"axes is {given!r}, which names an axis twice")
    return frozenset(found)


def _global_pool_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    (x,) = shapes
    names = _spatial(x, "operand 0")
    axes = (
        Axis("n", x[0]),
        Axis("c", x[1]),
        *(Axis(name, size, "reduction") for name, size in zip(names, x[2:], strict=True)),
    )
    read = Operand(project(axes, [{axis.name: 1} for axis in axes]))
    empty: list[Form] = [{} for _ in names]
    return Signature(axes, (read,), (Operand(project(axes, [{"n": 1}, {"c": 1}, *empty])),))


def _reduce_block(fold: str, mean: bool = False) -> Any:
    """The block that folds the reduction axes; a mean divides by the count of the whole, not of its part."""

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        (x,), (out,) = inputs, outputs
        signature = shard.signature
        over = tuple(
            k
            for k, row in enumerate(signature.inputs[0].projection.map.matrix)
            if any(row[axis] for axis in signature.reductions)
        )
        getattr(xp, fold)(x, axis=over, keepdims=out.ndim == x.ndim, out=out)
        if mean:
            count = prod(signature.axes[axis].size for axis in signature.reductions)
            xp.divide(out, out.dtype.type(count), out=out)

    return block


# -- normalisations --------------------------------------------------------------------------------------


def _batch_norm_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    x = shapes[0]
    if not 2 <= len(x) <= 5:
        raise ValueError(
            f"operand 0 has shape {x}, rank {len(x)}; it needs a batch and a channel axis, then up to 3 more"
        )
    for what, shape in zip(("scale", "bias", "mean", "variance"), shapes[1:], strict=True):
        _vector(shape, x[1], f"the {what}", "operand 0's channels (axis 1)")
    axes = tuple(Axis(name, n) for name, n in zip(("n", "c", *SPATIAL.get(len(x) - 2, ())), x, strict=True))
    whole = Operand(project(axes, [{axis.name: 1} for axis in axes]))
    channel = Operand(project(axes, [{"c": 1}]))
    return Signature(axes, (whole, channel, channel, channel, channel), (whole,))


def _batch_norm_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    x, scale, bias, mean, variance = inputs
    (out,) = outputs
    factor = scale / xp.sqrt(variance + out.dtype.type(shard.attrs.get("epsilon", 1e-5)))
    offset = bias - mean * factor
    column = (-1, *(1,) * (x.ndim - 2))
    for n in range(x.shape[0]):
        xp.multiply(x[n], factor.reshape(column), out=out[n])
        xp.add(out[n], offset.reshape(column), out=out[n])


def _lrn_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    (x,) = shapes
    names = _spatial(x, "operand 0")
    (size,) = _ints(attrs.get("size"), 1, "size", 1)
    axes = tuple(Axis(name, n) for name, n in zip(("n", "c", *names), x, strict=True))
    spatial: list[Form] = [{name: 1} for name in names]
    window = [1, size, *(1 for _ in names)]
    read = Operand(project(axes, [{"n": 1}, {"c": 1, "": -((size - 1) // 2)}, *spatial], window), pad=0.0)
    return Signature(axes, (read,), (Operand(project(axes, [{"n": 1}, {"c": 1}, *spatial])),))


def _lrn_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (x,), (out,) = inputs, outputs
    attrs = shard.attrs
    size, channels = attrs["size"], out.shape[1]
    centre = (size - 1) // 2
    squares = shard.workspace[: x[0].size * out.dtype.itemsize].view(out.dtype).reshape(x.shape[1:])
    for n in range(x.shape[0]):
        xp.multiply(x[n], x[n], out=squares)
        out[n] = squares[:channels]
        for k in range(1, size):
            xp.add(out[n], squares[k : k + channels], out=out[n])
        xp.multiply(out[n], out.dtype.type(attrs.get("alpha", 1e-4) / size), out=out[n])
        xp.add(out[n], out.dtype.type(attrs.get("bias", 1.0)), out=out[n])
        xp.power(out[n], out.dtype.type(-attrs.get("beta", 0.75)), out=out[n])
        xp.multiply(out[n], x[n, centre : centre + channels], out=out[n])


def _lrn_workspace(shard: Shard, itemsize: int) -> int:
    box = shard.input_boxes[0]
    return prod(box.shape[1:]) * itemsize if box is not None else 0


def _row_signature(shapes: Sequence[Shape], attrs: Attrs, first: int, last: int) -> Signature:
    """An index point for each row; a row is what the axes first to last of operand 0 span."""
    x = shapes[0]
    axes = tuple(Axis(f"i{k}", n) for k, n in enumerate(x) if not first <= k < last)
    forms: list[Form] = [{} if first <= k < last else {f"i{k}": 1} for k in range(len(x))]
    whole = Operand(project(axes, forms, [n if first <= k < last else 1 for k, n in enumerate(x)]))
    vector = Operand(project(axes, [{} for _ in x[first:last]], x[first:last]))
    return Signature(axes, (whole, *(vector for _ in shapes[1:])), (whole,))


def _softmax_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    axis = _axis(attrs.get("axis", -1), len(shapes[0]), "softmax")
    return _row_signature(shapes, attrs, axis, axis + 1)


def _softmax_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (x,), (out,) = inputs, outputs
    axis = shard.attrs.get("axis", -1)
    xp.subtract(x, xp.max(x, axis=axis, keepdims=True), out=out)
    xp.exp(out, out=out)
    xp.divide(out, xp.sum(out, axis=axis, keepdims=True), out=out)


def _log_softmax_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (x,), (out,) = inputs, outputs
    axis = shard.attrs.get("axis", -1)
    xp.subtract(x, xp.max(x, axis=axis, keepdims=True), out=out)
    xp.subtract(out, xp.log(xp.sum(xp.exp(out), axis=axis, keepdims=True)), out=out)


def _layer_norm_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    x = shapes[0]
    axis = _axis(attrs.get("axis", -1), len(x), "layer_normalization")
    for what, shape in zip(("scale", "bias"), shapes[1:], strict=False):
        if shape != x[axis:]:
            raise ValueError(f"the {what} has shape {shape}; {x[axis:]} is needed, the normalised axes of operand 0")
    return _row_signature(shapes, attrs, axis, len(x))


def _layer_norm_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    x, scale = inputs[:2]
    (out,) = outputs
    over = tuple(range(x.ndim - scale.ndim, x.ndim))
    xp.subtract(x, xp.mean(x, axis=over, keepdims=True), out=out)
    variance = xp.mean(out * out, axis=over, keepdims=True)
    xp.divide(out, xp.sqrt(variance + out.dtype.type(shard.attrs.get("epsilon", 1e-5))), out=out)
    xp.multiply(out, scale, out=out)
    if len(inputs) > 2:
        xp.add(out, inputs[2], out=out)


# -- the declarations ------------------------------------------------------------------------------------


def _declare(*ops: Op) -> None:
    for op in ops:
        BUILTIN_OPS[op.name] = op


_WINDOW = ("strides", "pads", "dilations")
_POOL = ("kernel", *_WINDOW, "ceil_mode")


def _per_row(flop: int) -> Callable[[Signature, Attrs], float]:
    """So many operations for each value of a row."""
    return lambda signature, attrs: float(flop * prod(signature.inputs[0].projection.shape))


_unary = _counted(_elementwise_signature, 1, 1)
_binary = _counted(_elementwise_signature, 2, 2)

_declare(
    Op("add", _binary, _ufunc("add"), dtype=_same_dtype),
    Op("sub", _binary, _ufunc("subtract"), dtype=_same_dtype),
    Op("mul", _binary, _ufunc("multiply"), dtype=_same_dtype),
    Op("div", _binary, _div_block, dtype=_same_dtype),
    Op("sum_n", _counted(_elementwise_signature, 1, None), _sum_n_block, dtype=_same_dtype),
    Op("relu", _unary, _relu_block),
    Op("leaky_relu", _unary, _leaky_relu_block, dtype=_floating, attributes=("alpha",)),
    Op("clip", _unary, _clip_block, dtype=_bounded, attributes=("min", "max")),
    Op("sigmoid", _unary, _sigmoid_block, dtype=_floating),
    Op("tanh", _unary, _ufunc("tanh"), dtype=_floating),
    Op("exp", _unary, _ufunc("exp"), dtype=_floating),
    Op("sqrt", _unary, _ufunc("sqrt"), dtype=_floating),
    Op("neg", _unary, _ufunc("negative")),
    Op("abs", _unary, _ufunc("absolute")),
    Op("matmul", _counted(_matmul_signature, 2, 2), _ufunc("matmul"), 2.0, "sum", _same_dtype),
    Op("linear", _counted(_linear_signature, 2, 3), _gemm_block, 2.0, "sum", _same_dtype),
    Op(
        "gemm",
        _counted(_gemm_signature, 2, 3),
        _gemm_block,
        2.0,
        "sum",
        _scaled,
        attributes=("alpha", "beta", "trans_a", "trans_b"),
    ),
    Op(
        "conv",
        _counted(_conv_signature, 2, 3),
        _conv_block,
        2.0,
        "sum",
        _same_dtype,
        _conv_workspace,
        attributes=(*_WINDOW, "groups"),
    ),
    Op("max_pool", _counted(_max_pool_signature, 1, 1), _max_pool_block, 1.0, "max", _floating, attributes=_POOL),
    Op(
        "average_pool",
        _counted(_average_pool_signature, 1, 1),
        _average_pool_block,
        1.0,
        "sum",
        _floating,
        attributes=(*_POOL, "count_include_pad"),
    ),
    Op(
        "global_average_pool",
        _counted(_global_pool_signature, 1, 1),
        _reduce_block("sum", mean=True),
        1.0,
        "sum",
        _floating,
    ),
    Op("global_max_pool", _counted(_global_pool_signature, 1, 1), _reduce_block("max"), 1.0, "max"),
    Op(
        "reduce_sum",
        _counted(_reduce_signature, 1, 1),
        _reduce_block("sum"),
        1.0,
        "sum",
        attributes=("axes", "keepdims"),
    ),
    Op(
        "reduce_mean",
        _counted(_reduce_signature, 1, 1),
        _reduce_block("sum", mean=True),
        1.0,
        "sum",
        _floating,
        attributes=("axes", "keepdims"),
    ),
    Op(
        "reduce_max",
        _counted(_reduce_signature, 1, 1),
        _reduce_block("max"),
        1.0,
        "max",
        attributes=("axes", "keepdims"),
    ),
    Op(
        "batch_normalization",
        _counted(_batch_norm_signature, 5, 5),
        _batch_norm_block,
        2.0,
        dtype=_floating,
        attributes=("epsilon",),
    ),
    Op(
        "lrn",
        _counted(_lrn_signature, 1, 1),
        _lrn_block,
        lambda signature, attrs: 2.0 * attrs["size"] + 4.0,
        None,
        _floating,
        _lrn_workspace,
        attributes=("size", "alpha", "beta", "bias"),
    ),
    Op(
        "softmax",
        _counted(_softmax_signature, 1, 1),
        _softmax_block,
        _per_row(4),
        dtype=_floating,
        attributes=("axis",),
    ),
    Op(
        "log_softmax",
        _counted(_softmax_signature, 1, 1),
        _log_softmax_block,
        _per_row(4),
        dtype=_floating,
        attributes=("axis",),
    ),
    Op(
        "layer_normalization",
        _counted(_layer_norm_signature, 2, 3),
        _layer_norm_block,
        _per_row(8),
        dtype=_floating,
        attributes=("axis", "epsilon"),
    ),
)


# -- functions on graph tensors --------------------------------------------------------------------------


class Unary(Protocol):
    """Adds an operator of one operand to the operand's graph."""

    def __call__(self, x: Tensor, *, name: str | None = None) -> Tensor: ...


class Binary(Protocol):
    """Adds an operator of two operands, broadcast against each other, to their graph."""

    def __call__(self, a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor: ...


def _unary_function(op: str, doc: str) -> Unary:
    def apply(x: Tensor, *, name: str | None = None) -> Tensor:
        return _apply(op, x, name=name)

    apply.__name__ = apply.__qualname__ = op
    apply.__doc__ = doc
    return apply


def _binary_function(op: str, doc: str) -> Binary:
    def apply(a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor:
        return _apply(op, a, b, name=name)

    apply.__name__ = apply.__qualname__ = op
    apply.__doc__ = doc
    return apply


def _apply(op: str, x: Tensor, *others: Tensor | None, name: str | None = None, **attrs: Any) -> Tensor:
    given = {key: value for key, value in attrs.items() if value is not None}
    out: Tensor = x.graph.op(op, x, *others, name=name, **given)
    return out


def _attr(value: int | Sequence[int]) -> int | tuple[int, ...]:
    """An attribute as graphs store it."""
    return value if isinstance(value, int) else tuple(value)


add = _binary_function("add", "a + b, cell by cell.")
sub = _binary_function("sub", "a - b, cell by cell.")
mul = _binary_function("mul", "a · b, cell by cell.")
div = _binary_function("div", "a / b, cell by cell; integers round towards zero.")
matmul = _binary_function("matmul", "The product of matrices over the last two axes; those before broadcast.")
relu = _unary_function("relu", "max(x, 0), cell by cell.")
sigmoid = _unary_function("sigmoid", "1 / (1 + exp(-x)), cell by cell.")
tanh = _unary_function("tanh", "The hyperbolic tangent, cell by cell.")
exp = _unary_function("exp", "The exponential, cell by cell.")
sqrt = _unary_function("sqrt", "The square root, cell by cell.")
neg = _unary_function("neg", "-x, cell by cell.")
abs = _unary_function("abs", "The absolute value, cell by cell.")
global_average_pool = _unary_function("global_average_pool", "The mean over all spatial axes, kept with extent 1.")
global_max_pool = _unary_function("global_max_pool", "The maximum over all spatial axes, kept with extent 1.")


def sum_n(*tensors: Tensor, name: str | None = None) -> Tensor:
    """The sum of one or more tensors, broadcast against each other, cell by cell."""
    if not tensors:
        raise ValueError("sum_n: no tensors given; give at least one")
    return _apply("sum_n", *tensors, name=name)


def leaky_relu(x: Tensor, alpha: float = 0.01, *, name: str | None = None) -> Tensor:
    """x where it is positive, alpha·x elsewhere."""
    return _apply("leaky_relu", x, name=name, alpha=float(alpha))


def clip(x: Tensor, min: float | None = None, max: float | None = None, *, name: str | None = None) -> Tensor:
    """x limited to [min, max]; a bound that is None or infinite does not limit.

    References
    ----------
    ONNX Clip.
    """
    low = None if min == float("-inf") else min
    high = None if max == float("inf") else max
    for bound in (low, high):
        if bound is not None and not isfinite(bound):
            raise ValueError(f"clip: min={min}, max={max} leave no number; give finite bounds, or None")
    return _apply("clip", x, name=name, min=low, max=high)


def linear(x: Tensor, w: Tensor, b: Tensor | None = None, *, name: str | None = None) -> Tensor:
    """x @ w + b.

    Parameters
    ----------
    x : Tensor of shape (batch, in)
    w : Tensor of shape (in, out)
    b : Tensor of shape (out,), optional

    Returns
    -------
    Tensor of shape (batch, out)

    References
    ----------
    Tapestry, "Linear": index axes m (batch), n (out) and the reduction k (in).
    """
    return _apply("linear", x, w, b, name=name)


def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    trans_a: bool = False,
    trans_b: bool = False,
    name: str | None = None,
) -> Tensor:
    """alpha·a @ b + beta·c, with a or b transposed where asked and c broadcast.

    References
    ----------
    ONNX Gemm.
    """
    return _apply("gemm", a, b, c, name=name, alpha=alpha, beta=beta, trans_a=bool(trans_a), trans_b=bool(trans_b))


def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    strides: int | Sequence[int] = 1,
    pads: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    groups: int = 1,
    name: str | None = None,
) -> Tensor:
    """A convolution (a correlation, as in all networks) over one to three spatial axes.

    Parameters
    ----------
    x : Tensor of shape (n, channels, …)
    w : Tensor of shape (output channels, channels / groups, …)
    b : Tensor of shape (output channels,), optional
    strides, dilations : int or one for each spatial axis
    pads : int, or one for each spatial axis, or all begins and then all ends
        Cells of zeros around x.
    groups : int
        Output channel c reads the channels of group c // (output channels / groups) only.

    Raises
    ------
    ValueError
        When the shapes, channels or groups do not fit, or the window is larger than the padded tensor.

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> from tapestry_plan.ops import conv
    >>> g = Graph()
    >>> x, w = g.input("x", (1, 3, 8, 8)), g.input("w", (16, 3, 3, 3))
    >>> conv(x, w, strides=2, pads=1).shape
    (1, 16, 4, 4)

    References
    ----------
    ONNX Conv; Tapestry, "Sharding convolution".
    """
    return _apply(
        "conv",
        x,
        w,
        b,
        name=name,
        strides=_attr(strides),
        pads=_attr(pads),
        dilations=_attr(dilations),
        groups=groups,
    )


def max_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    *,
    strides: int | Sequence[int] = 1,
    pads: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Tensor:
    """The maximum of each window; the parameters are those of `conv`.

    With `ceil_mode` a last window may reach beyond the padding.

    References
    ----------
    ONNX MaxPool.
    """
    return _apply(
        "max_pool",
        x,
        name=name,
        kernel=_attr(kernel),
        strides=_attr(strides),
        pads=_attr(pads),
        dilations=_attr(dilations),
        ceil_mode=bool(ceil_mode),
    )


def average_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    *,
    strides: int | Sequence[int] = 1,
    pads: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    name: str | None = None,
) -> Tensor:
    """The mean of each window; the parameters are those of `max_pool`.

    With `count_include_pad` the cells of the padding count, as zeros; cells beyond it never do.

    References
    ----------
    ONNX AveragePool.
    """
    return _apply(
        "average_pool",
        x,
        name=name,
        kernel=_attr(kernel),
        strides=_attr(strides),
        pads=_attr(pads),
        dilations=_attr(dilations),
        ceil_mode=bool(ceil_mode),
        count_include_pad=bool(count_include_pad),
    )


def reduce_sum(
    x: Tensor, axes: int | Sequence[int] | None = None, *, keepdims: bool = True, name: str | None = None
) -> Tensor:
    """The sum over the given axes, or over all."""
    return _reduce("reduce_sum", x, axes, keepdims, name)


def reduce_mean(
    x: Tensor, axes: int | Sequence[int] | None = None, *, keepdims: bool = True, name: str | None = None
) -> Tensor:
    """The mean over the given axes, or over all."""
    return _reduce("reduce_mean", x, axes, keepdims, name)


def reduce_max(
    x: Tensor, axes: int | Sequence[int] | None = None, *, keepdims: bool = True, name: str | None = None
) -> Tensor:
    """The maximum over the given axes, or over all."""
    return _reduce("reduce_max", x, axes, keepdims, name)


def _reduce(op: str, x: Tensor, axes: int | Sequence[int] | None, keepdims: bool, name: str | None) -> Tensor:
    over = None if axes is None else _attr(axes)
    return _apply(op, x, name=name, axes=over, keepdims=bool(keepdims))


def batch_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Tensor:
    """scale·(x − mean)/√(variance + epsilon) + bias, with given statistics for each channel (axis 1).

    References
    ----------
    ONNX BatchNormalization at inference.
    """
    return _apply("batch_normalization", x, scale, bias, mean, variance, name=name, epsilon=float(epsilon))


def lrn(
    x: Tensor,
    size: int,
    *,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 1.0,
    name: str | None = None,
) -> Tensor:
    """x / (bias + alpha/size · Σ x²)^beta, the sum taken over `size` channels around each.

    References
    ----------
    ONNX LRN: the window of channel c begins at c − (size − 1) // 2.
    """
    return _apply("lrn", x, name=name, size=size, alpha=float(alpha), beta=float(beta), bias=float(bias))


def softmax(x: Tensor, axis: int = -1, *, name: str | None = None) -> Tensor:
    """exp(x) / Σ exp(x) along an axis, which no plan splits."""
    return _apply("softmax", x, name=name, axis=axis)


def log_softmax(x: Tensor, axis: int = -1, *, name: str | None = None) -> Tensor:
    """x − log Σ exp(x) along an axis, which no plan splits."""
    return _apply("log_softmax", x, name=name, axis=axis)


def layer_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Tensor:
    """x centred and scaled to variance 1 over the axes from `axis` on, times scale, plus bias.

    References
    ----------
    ONNX LayerNormalization.
    """
    first = _axis(axis, x.ndim, "layer_normalization")
    return _apply(
        "layer_normalization",
        x,
        scale,
        bias,
        name=name,
        axis=first - x.ndim,
        epsilon=float(epsilon),
    )
