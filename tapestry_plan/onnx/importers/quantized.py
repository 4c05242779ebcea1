"""Operators of ONNX on integers that stand for numbers: value = (integer - zero point) · scale.

Sums of products of such integers are made in floating point that holds them all exactly, whatever their order: so any
split gives the same bits, and libraries for matrices are as fast as for floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import SHORT_FLOATS, Graph, Shard, Tensor, concat
from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.importers.windows import (
    average_pool,
    channels_first,
    channels_last,
    check_kernel,
    window_of,
)
from tapestry_plan.onnx.nodes import Array, Importing, Node, Result, TooLargeToFold, axes_of, refusal
from tapestry_sets.limits import quote
from tapestry_sets.views import Repeat

WIDE = ops.quantized.WIDE


def quantize_linear(at: Importing, node: Node) -> Result:
    x, attrs, zero = at.tensor(node.inputs[0]), node.attrs, node.input(2)
    dtype = at.dtype(attrs["output_dtype"]) if attrs.get("output_dtype") else None
    if zero and dtype not in (None, at.dtype_of(zero)):
        raise ValueError(f"output_dtype is {dtype}, the zero point has {at.dtype_of(zero)}; they must be the same")
    dtype = at.dtype_of(zero) if zero else dtype or "uint8"
    scale = _spread(node, at.tensor(node.inputs[1]), x.shape)
    return ops.quantize(
        x,
        scale,
        _zero_of(at, node, 2, dtype, x.shape),
        dtype=dtype,
        precision=at.dtype(attrs["precision"]) if attrs.get("precision") else None,
        axis=_axis_of(node, x) if scale.ndim == 1 else -1,
        saturate=bool(attrs.get("saturate", 1)) or dtype not in SHORT_FLOATS,
        name=node.name,
    )


def dequantize_linear(at: Importing, node: Node) -> Result:
    x, scale, given = at.tensor(node.inputs[0]), at.tensor(node.inputs[1]), node.attrs.get("output_dtype")
    dtype = at.dtype(given) if given else scale.dtype
    scale, zero = _spread(node, scale, x.shape), _zero_of(at, node, 2, x.dtype, x.shape)
    axis = _axis_of(node, x) if scale.ndim == 1 else -1
    return ops.dequantize(x, scale, zero, dtype=_unless(dtype, scale), axis=axis, name=node.name)


def matmul_integer(at: Importing, node: Node) -> Result:
    shape = at.shape(node.inputs[1])
    return _in_32_bits(node, product(at, node, 0, 1, 2, 3), shape[max(0, len(shape) - 2)])


def qlinear_matmul(at: Importing, node: Node) -> Result:
    has_columns = len(at.shape(node.inputs[3])) > 1

    def lay(of_a: Any) -> Any:
        """Scales of rows beside the product, which has no columns where it is one with a vector."""
        if has_columns:
            return of_a[..., None] if of_a.ndim == 1 else of_a
        return of_a[..., 0] if of_a.ndim > 1 else of_a

    return _requantized(at, node, product(at, node, 0, 3, 2, 5), _ratio(at, node, 1, 4, 6, lay=lay), 7)


def conv_integer(at: Importing, node: Node) -> Result:
    return _in_32_bits(node, _convolved(at, node, 0, 1, 2, 3), prod(at.shape(node.inputs[1])[1:]))


def qlinear_conv(at: Importing, node: Node) -> Result:
    total, ratio = _convolved(at, node, 0, 3, 2, 5, 8), _ratio(at, node, 1, 4, 6)
    made = _requantized(at, node, total, ratio, 7, axis=1 if ratio.ndim else -1)
    return channels_last(made) if node.attrs.get("channels_last") else made


def matmul_of_few_bits(at: Importing, node: Node) -> Result:
    """A product with weights of 2, 4 or 8 bits, of which each block has a scale and a zero point.

    They are unpacked at import where all of a model's take no more bytes than known values may. Else each device
    unpacks, in each run, the rows that it multiplies by: what is stored, and moved, are the bytes.
    """
    attrs = node.attrs
    rows, summed, block, bits = attrs["N"], attrs["K"], attrs["block_size"], attrs.get("bits", 4)
    if bits not in (2, 4, 8) or min(rows, summed + 1, block) < 1 or attrs.get("weight_prepacked") or node.input(4):
        raise refusal(node, "weights of other than 2, 4 or 8 bits, prepacked ones and g_idx are not supported")
    blocks = -(-summed // block)
    if summed == 0:
        made = at.product_over_none(node, at.shape(node.inputs[0]), (0, rows), at.dtype_of(node.inputs[0]))
        if made is not None:
            return made + at.tensor(node.inputs[5]) if node.input(5) else made
    x, packed = (at.tensor(name) for name in node.inputs[:2])
    wanted, scales = (rows, blocks, block * bits // 8), at.tensor(node.inputs[2])
    if packed.shape != wanted or scales.size != rows * blocks:
        raise ValueError(
            f"weights have shape {quote(packed.shape)} and scales {quote(scales.shape)}; N = {rows}, K = {summed} and "
            f"blocks of {block} make it {wanted} and {(rows, blocks)}"
        )
    if x.shape[-1:] != (summed,) or packed.dtype != "uint8" or scales.dtype != x.dtype or x.ndim < 2:
        raise refusal(
            node,
            f"weights are {packed.dtype}{quote(packed.shape)} and scales {scales.dtype}{quote(scales.shape)}, beside "
            f"{x.dtype}{quote(x.shape)}; uint8{wanted}, {rows * blocks} scales of the operand's dtype and its last "
            f"extent {summed} are supported",
        )
    zeros = at.tensor(node.inputs[3]) if node.input(3) else None
    if zeros is not None:
        zeros = zeros.reshape(rows, -1)
    bias = at.tensor(node.inputs[5]) if node.input(5) else None
    if bias is not None and bias.shape != (rows,):
        raise ValueError(
            f"its bias has shape {quote(bias.shape)}; {(rows,)} is needed, a number for each of N columns: reshape it"
        )
    weights = _unpacked(at, node, (rows, blocks, block), bits, x.dtype)
    if weights is None:
        unpacked = ops.unpack_blocks(packed, scales.reshape(rows, blocks), zeros, bits=bits)
        weights = unpacked.reshape(rows, blocks * block)[:, :summed]
    made = ops.matmul(x, weights.T, name=node.name)
    return made if bias is None else made + bias


def _unpacked(at: Importing, node: Node, shape: tuple[int, int, int], bits: int, dtype: str) -> Tensor | None:
    """Known weights of few bits as numbers; None of others, and where a model has too many."""
    rows, blocks, block = shape
    names, itemsize = [name for name in node.inputs[1:4] if name], np.dtype(dtype).itemsize
    if not all(map(at.is_known, names)) or at.few_bits * itemsize > tuning.FOLDED_NBYTES:
        return None
    try:
        at.spend(node, prod(shape) * itemsize)
    except TooLargeToFold:
        return None
    given = [at.value(name) for name in names]
    given[1] = given[1].reshape(rows, blocks).astype(dtype)
    if node.input(3):
        given[2] = given[2].reshape(rows, -1)
    made = np.empty(shape, dtype)
    scratch = Graph()  # in which the operator says what does not fit, and is run whole
    operands = [scratch.input(f"x{k}", one.shape, one.dtype.name) for k, one in enumerate(given)]
    name = ops.unpack_blocks(*operands, bits=bits).name
    signature, attrs = scratch.signature(name), scratch.nodes[name].attrs
    inputs, outputs = (
        tuple(one.projection.bounding_box(signature.index) for one in side)
        for side in (signature.inputs, signature.outputs)
    )
    shard = Shard(signature.index, signature, attrs, inputs, outputs, np.empty(0, np.uint8))
    ops.unpack_blocks.op.block(np, given, [made], shard)
    return at.computed(node, "weights", made.reshape(rows, blocks * block)[:, : node.attrs["K"]])


def gathered_blocks(at: Importing, node: Node) -> Result:
    """Numbers of few bits, or of 8, at indices: of each block with its scale and zero point; beyond them zeros."""
    attrs, names = node.attrs, [node.inputs[0], *node.inputs[2:]]
    shape, scales = at.shape(names[0]), at.shape(names[1])
    (axis,) = axes_of([attrs.get("gather_axis", 0)], len(shape), "gather_axis")
    (along,) = axes_of([attrs.get("quantize_axis", 1)], len(shape), "quantize_axis")
    bits, dtype = attrs.get("bits", 4), at.dtype_of(names[0])
    block = attrs.get("block_size", 128) or shape[along]
    is_packed, each = dtype == "uint8", 8 // bits if bits in (2, 4, 8) else 0
    if not each or axis == along or (is_packed and (axis or along != len(shape) - 1)):
        raise refusal(
            node, f"numbers of {bits} bits in blocks along axis {along}, gathered along {axis}: not supported"
        )
    cells = shape[along] * (each if is_packed else 1)
    wanted = (*shape[:along], -(-cells // block), *shape[along + 1 :])
    if len(scales) != len(shape) or any(n not in (m, 1) for n, m in zip(scales, wanted, strict=True)):
        raise ValueError(f"scales have shape {quote(scales)}; {wanted} is needed")
    if is_packed and (scales != wanted or cells % block):
        raise refusal(node, f"rows of {cells} numbers and scales of shape {quote(scales)}, of {wanted}: not supported")
    indices = at.tensor(node.inputs[1])
    known = at.value(node.inputs[1]) if at.is_known(node.inputs[1]) else None
    inside = None
    if known is None or ((known < -shape[axis]) | (known >= shape[axis])).any():
        inside = ops.logical_and(ops.greater_equal(indices, -shape[axis]), ops.less(indices, shape[axis]))
        indices, known = ops.where(inside, indices, 0), None
    values, scale, *zeros = (
        _taken(at.tensor(name), indices if known is None else known, axis, shape) for name in names
    )
    if is_packed:
        rows = prod(values.shape[:-1])
        parts = [one.reshape(rows, -1) for one in (scale, *zeros)]
        made = ops.unpack_blocks(values.reshape(rows, cells // block, block // each), *parts, bits=bits)
        made = made.reshape(*values.shape[:-1], cells)
    else:
        place = along + (indices.ndim - 1 if along > axis else 0)
        made = ops.dequantize(values, *(_repeated(one, cells, block, place) for one in (scale, *zeros)))
    if inside is None:
        return made
    ones = inside.reshape(*(1,) * axis, *indices.shape, *(1,) * (made.ndim - axis - indices.ndim))
    return ops.where(ones, made, 0.0, name=node.name)


def _taken(x: Tensor, indices: Tensor | Array, axis: int, shape: Sequence[int]) -> Tensor:
    """Cells at indices of an axis of a shape, or the one of all."""
    if x.shape[axis] == shape[axis]:
        return ops.take(x, indices, axis)
    return x.reshape(*x.shape[:axis], *(1,) * indices.ndim, *x.shape[axis + 1 :])


def matmul_to_float(at: Importing, node: Node) -> Result:
    """The exact product of integers as numbers: scaled, and with a bias."""
    scale = at.tensor(node.inputs[2]) * at.tensor(node.inputs[3])
    made = ops.astype(product(at, node, 0, 1, 4, 5), scale.dtype) * (scale.reshape(()) if scale.size == 1 else scale)
    return made + at.tensor(node.inputs[6]) if node.input(6) else made


def dynamic_quantize(at: Importing, node: Node) -> Result:
    """Bytes for numbers, with the scale and the zero point by which the smallest and the largest cell have one each."""
    x = at.tensor(node.inputs[0])
    scale, zero = _range_of(x)
    return [ops.quantize(x, scale, zero, dtype="uint8", name=node.name), scale, zero]


def _range_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """The scale of cells as bytes, and the byte that stands for 0."""
    low, high = (ops.clip(f(x), *ends) for f, ends in ((ops.min, (None, 0.0)), (ops.max, (0.0, None))))
    scale = (high - low) / 255.0
    scale = ops.where(ops.equal(scale, 0.0), 1.0, scale)  # of zeros alone, as in ONNX Runtime: 0 would divide them
    return scale, ops.quantize(-low, scale, dtype="uint8")


def matmul_of_bytes(at: Importing, node: Node) -> Result:
    """A product with weights of 8 bits, of an operand that the run quantizes by its largest and its smallest cell."""
    x = at.tensor(node.inputs[0])
    scale, zero = _range_of(x)
    axis = max(0, len(at.shape(node.inputs[1])) - 2)
    dtype = _exact_dtype(_size_of_sums(at, node, 1, 3, [axis]) * 255)
    left = ops.center(ops.quantize(x, scale, zero, dtype="uint8"), zero, dtype=dtype)
    total = ops.matmul(left, _centered(at, node, 1, 3, dtype))
    made = ops.multiply(ops.astype(total, WIDE), scale * _columns(at, node, 2), name=node.name)
    return made + at.tensor(node.inputs[4]) if node.input(4) else made


def _columns(at: Importing, node: Node, k: int) -> Tensor:
    """Scales of columns, or the one of all."""
    found = at.tensor(node.inputs[k])
    return found.reshape(()) if found.size == 1 else found


def of_numbers(
    function: Callable[[Importing, Node, list[Tensor]], Tensor],
    places: Sequence[int],
    scale: int,
    *,
    rounds_last: bool = False,
) -> Callable[[Importing, Node], Result]:
    """What a function makes of the numbers that operands stand for, each before its scale and zero point, quantized.

    As ONNX Runtime does it, some are rounded before the zero point is added and some behind it: at halves these differ.
    """

    def add(at: Importing, node: Node) -> Result:
        _check_bytes(at, node, [k for place in places for k in (place, place + 2)] + [scale + 1])
        made = function(at, node, [_number_of(at, node, k) for k in places])
        dtype = at.dtype_of(node.inputs[scale + 1] if node.input(scale + 1) else node.inputs[places[0]])
        return ops.quantize(
            made,
            _single(at.tensor(node.inputs[scale])),
            _zero_of(at, node, scale + 1, dtype),
            dtype=dtype,
            rounds_last=rounds_last,
            name=node.name,
        )

    return add


def _check_bytes(at: Importing, node: Node, places: Sequence[int]) -> None:
    """Operands and zero points, as far as they are given, are integers of 8 bits of one dtype."""
    first = at.dtype_of(node.inputs[places[0]])
    for k in places:
        if node.input(k) and (dtype := at.dtype_of(node.inputs[k])) not in ({first} & {"int8", "uint8"}):
            beside = f" and its input {places[0]} {first}" if dtype != first else ""
            raise ValueError(
                f"its input {k} is {dtype}{beside}; all operands and zero points are int8, or all uint8: "
                "quantize them alike"
            )


def _number_of(at: Importing, node: Node, k: int) -> Tensor:
    """The numbers that operand k stands for, whose scale and zero point are the next two inputs."""
    x, scale = at.tensor(node.inputs[k]), _single(at.tensor(node.inputs[k + 1]))
    return ops.dequantize(x, scale, _zero_of(at, node, k + 2, x.dtype), dtype=_unless(WIDE, scale))


def added(at: Importing, node: Node, operands: list[Tensor]) -> Tensor:
    return operands[0] + operands[1]


def multiplied(at: Importing, node: Node, operands: list[Tensor]) -> Tensor:
    return operands[0] * operands[1]


def leaky(at: Importing, node: Node, operands: list[Tensor]) -> Tensor:
    return ops.leaky_relu(operands[0], float(node.attrs.get("alpha", 0.01)))


def bent(at: Importing, node: Node, operands: list[Tensor]) -> Tensor:
    return ops.sigmoid(operands[0])


def chosen(at: Importing, node: Node, operands: list[Tensor]) -> Tensor:
    return ops.where(at.tensor(node.inputs[0]), *operands)


def pooled(at: Importing, node: Node, operands: list[Tensor]) -> Tensor:
    if not node.attrs.get("channels_last"):
        return average_pool(at, node, operands[0])
    return channels_last(average_pool(at, node, channels_first(operands[0])))


def shared(at: Importing, node: Node, operands: list[Tensor]) -> Tensor:
    """A softmax: along an axis or, as ONNX had it before opset 13, over all axes from that one on."""
    (x,), attrs = operands, node.attrs
    (axis,) = axes_of([attrs.get("axis", -1)], x.ndim, "axis")
    if attrs.get("opset", 13) >= 13:
        return ops.softmax(x, axis)
    return ops.softmax(x.reshape(*x.shape[:axis], -1), -1).reshape(x.shape)


def qlinear_average(at: Importing, node: Node) -> Result:
    """The mean of each channel: an exact sum, which is scaled once."""
    rank = len(at.shape(node.inputs[0]))
    if rank < 3:
        raise ValueError(f"its input 0 has shape {quote(at.shape(node.inputs[0]))}; (batch, channels, …) is needed")
    axes = tuple(range(1, rank - 1)) if node.attrs.get("channels_last") else tuple(range(2, rank))
    count = prod(at.shape(node.inputs[0])[axis] for axis in axes)
    total = ops.sum(_centered(at, node, 0, 2, WIDE if count * 255 < 2**24 else "float64"), axes, keepdims=True)
    ratio = _said_of(at, node, (1, 3), lambda a, y: a / (y * np.float32(count)))
    if ratio is None:
        ratio = at.tensor(node.inputs[1]).reshape(()) / (at.tensor(node.inputs[3]).reshape(()) * float(count))
    return _requantized(at, node, total, ratio, 4)


def qlinear_concat(at: Importing, node: Node) -> Result:
    """Numbers one behind the other; inputs are the result's scale and zero point, then three for each operand."""

    def joined(at: Importing, node: Node, operands: list[Tensor]) -> Tensor:
        return concat(operands, axis=node.attrs["axis"])

    if len(node.inputs) % 3 != 2:
        raise ValueError(f"it has {len(node.inputs)} inputs; 2 of the result and 3 of each operand are needed")
    return of_numbers(joined, range(2, len(node.inputs), 3), 0)(at, node)


def qgemm(at: Importing, node: Node) -> Result:
    """An exact product of integers and a sum, scaled: as numbers or, where the result has a scale, quantized."""
    turns = [bool(node.attrs.get(key)) for key in ("transA", "transB")]
    if node.attrs.get("alpha", 1.0) != 1:
        raise refusal(node, f"alpha = {node.attrs['alpha']} is not supported, only 1")
    left, right = (at.shape(node.inputs[k])[:: -1 if turn else 1] for k, turn in zip((0, 3), turns, strict=True))
    size = _size_of_sums(at, node, 3, 5, [int(turns[1])]) * _farthest(at, node, 0, 2)
    dtype = _exact_dtype(size + _largest(at, node, 6))
    total = at.product_over_none(node, left, right, dtype)
    if total is None:
        sides = _centered(at, node, 0, 2, dtype), _centered(at, node, 3, 5, dtype, -2 if turns[1] else -1)
        total = ops.matmul(*(x.T if turn else x for x, turn in zip(sides, turns, strict=True)))
    if node.input(6):
        total = total + _in_dtype(at, node, 6, dtype)
    if node.input(7) and node.input(8):
        return _requantized(at, node, total, _ratio(at, node, 1, 4, 7), 8)
    if node.input(7) or node.input(8):
        raise refusal(node, "y_scale without y_zero_point, or the other way round, is not supported; give both")
    scale = at.tensor(node.inputs[1]).reshape(()) * at.tensor(node.inputs[4])
    return ops.multiply(ops.astype(total, WIDE), scale.reshape(()) if scale.size == 1 else scale, name=node.name)


# -- parts -----------------------------------------------------------------------------------------------


def _in_32_bits(node: Node, total: Tensor, terms: int) -> Tensor:
    """Exact sums of products of bytes as int32, which wraps around where they are larger, as ONNX Runtime's do."""
    # What a float beyond an integer's limits is cast to differs from processor to processor.
    held = ops.astype(total, "int64") if 255 * 255 * terms >= 2**31 else total
    return ops.astype(held, "int32", name=node.name)


def _is_zero(at: Importing, name: str) -> bool:
    return at.is_known(name) and not at.value(name).any()


def _zero_of(at: Importing, node: Node, k: int, dtype: str, shape: Sequence[int] | None = None) -> Tensor | None:
    """The zero point in input k, beside integers of a shape, or the one of all; None where it is 0."""
    if dtype in SHORT_FLOATS or not node.input(k) or _is_zero(at, node.inputs[k]):
        return None
    zero = at.tensor(node.inputs[k])
    return _single(zero) if shape is None else _spread(node, zero, shape)


def _unless(dtype: str, scale: Tensor) -> str | None:
    """A dtype, where it is another than the scale's."""
    return None if dtype == scale.dtype else dtype


def _single(values: Tensor) -> Tensor:
    """One value as a tensor of rank 0."""
    return values.reshape(()) if values.ndim else values


def _axis_of(node: Node, x: Tensor) -> int:
    """The axis along which scales lie."""
    return axes_of([node.attrs.get("axis", 1)], x.ndim, "axis")[0]


def _spread(node: Node, values: Tensor, shape: Sequence[int]) -> Tensor:
    """Scales or zero points beside what they are of: one for all, or for each index of an axis, or block of it."""
    wanted, block = node.attrs.get("axis", 1), node.attrs.get("block_size", 0)
    if values.size == 1:
        return _single(values)
    (axis,) = axes_of([wanted], len(shape), "axis")
    if not block:
        if values.shape != (shape[axis],):
            raise ValueError(f"{quote(values.shape)} values do not stand for axis {axis} of shape {quote(shape)}")
        return values
    blocks = -(-shape[axis] // block)
    if values.shape != (*shape[:axis], blocks, *shape[axis + 1 :]):
        raise ValueError(f"values of shape {quote(values.shape)} do not stand for blocks of {block} along axis {axis}")
    return _repeated(values, shape[axis], block, axis)


def _repeated(values: Tensor, extent: int, block: int, axis: int) -> Tensor:
    """Values of blocks along an axis as those of its cells."""
    repeated = values if block == 1 else values.view(Repeat(block, axis))
    cut = (*(slice(None),) * axis, slice(0, extent))
    return repeated if repeated.shape[axis] == extent else repeated[cut]


def _said_of(at: Importing, node: Node, inputs: Sequence[int], function: Callable[..., Any]) -> Tensor | None:
    """What a function makes of scales in these inputs, as a constant; None unless all of them are known."""
    names = [node.inputs[k] for k in inputs]
    if not all(map(at.is_known, names)):
        return None
    with np.errstate(all="ignore"):
        values = [at.value(name).astype(WIDE) for name in names]
        made = np.asarray(function(*(one.reshape(()) if one.size == 1 else one for one in values)))
    return at.graph.constant(f"{node.name}.scale", made)


def _ratio(at: Importing, node: Node, *inputs: int, lay: Callable[[Any], Any] = lambda of_a: of_a) -> Tensor:
    """Scale of the first operand, as it lies beside the result, · that of the second / that of the result."""

    def divide(of_a: Any, of_b: Any, of_y: Any) -> Any:
        return lay(of_a) * of_b / of_y

    known = _said_of(at, node, inputs, divide)
    if known is not None:
        return known
    scales = [ops.astype(at.tensor(node.inputs[k]), WIDE) for k in inputs]
    made: Tensor = divide(*(_single(one) if one.size == 1 else one for one in scales))
    return made


def _requantized(at: Importing, node: Node, total: Tensor, ratio: Tensor, k: int, axis: int = -1) -> Tensor:
    dtype = at.dtype_of(node.inputs[k])
    return ops.requantize(total, ratio, _zero_of(at, node, k, dtype), dtype=dtype, axis=axis, name=node.name)


def _exact_dtype(size: int) -> str:
    """The floating dtype that holds every integer of less than this size, hence sums in any order."""
    return WIDE if size < 2**24 else "float64"


def _size_of_sums(at: Importing, node: Node, k: int, k_zero: int, axes: Sequence[int]) -> int:
    """How large a sum along axes of the differences of 8-bit integers from their zero point may be, whatever the signs.

    Integers that are known say it themselves, so that more of them are summed in float32 than of any that may come.
    """
    name, zero = node.inputs[k], _one_zero(at, node, k_zero)
    most = 255 * prod(at.shape(name)[axis] for axis in axes)
    if at.is_known(name) and zero is not None and at.dtype_of(name) in ("int8", "uint8"):
        values = at.value(name)
        try:
            at.spend(node, 2 * values.nbytes)
        except TooLargeToFold:
            pass
        else:
            sizes = np.abs(values.astype(np.int16) - np.int16(zero))
            most = int(sizes.sum(tuple(axes), dtype=np.int64).max(initial=0))
    return most


def _farthest(at: Importing, node: Node, k: int, k_zero: int) -> int:
    """The largest difference of an 8-bit integer from its zero point."""
    zero, dtype = _one_zero(at, node, k_zero), at.dtype_of(node.inputs[k])
    if zero is None or dtype not in ("int8", "uint8"):
        return 255
    return int(max(zero - ops.quantized.limits_of(dtype).min, ops.quantized.limits_of(dtype).max - zero))


def _one_zero(at: Importing, node: Node, k: int) -> int | None:
    """The zero point in input k, 0 where there is none; None of several, or where it is not known."""
    if not node.input(k):
        return 0
    values = {*at.value(node.inputs[k]).reshape(-1).tolist()} if at.is_known(node.inputs[k]) else set()
    return int(values.pop()) if len(values) == 1 else None


def _largest(at: Importing, node: Node, k: int) -> int:
    """The largest size of a number in input k, of 32 bits, which may be left out."""
    if not node.input(k):
        return 0
    known = at.value(node.inputs[k]) if at.is_known(node.inputs[k]) else None
    return 2**31 if known is None else int(np.abs(known.astype(np.int64)).max(initial=0))


def _centered(at: Importing, node: Node, k: int, zero: int, dtype: str, axis: int = -1) -> Tensor:
    """Operand k without its zero point, input `zero`, whose values lie along this axis where it has several."""
    x = at.tensor(node.inputs[k])
    if x.dtype not in ("int8", "uint8"):
        raise refusal(node, f"its input {k} is {x.dtype}; integers of 8 bits are supported")
    if not node.input(zero) or _is_zero(at, node.input(zero)):
        return ops.astype(x, dtype)
    offset = at.tensor(node.inputs[zero])
    if offset.dtype != x.dtype:
        raise ValueError(f"its input {zero} is {offset.dtype}, a zero point of input {k}, which is {x.dtype}: cast it")
    return ops.center(x, _single(offset) if offset.size == 1 else offset, dtype=dtype, axis=axis)


def product(at: Importing, node: Node, a: int, b: int, a_zero: int, b_zero: int) -> Tensor:
    """The exact product of matrices without their zero points."""
    made = at.product_over_none(node, at.shape(node.inputs[a]), at.shape(node.inputs[b]))
    if made is not None:
        return made
    axis = max(0, len(at.shape(node.inputs[b])) - 2)
    dtype = _exact_dtype(_size_of_sums(at, node, b, b_zero, [axis]) * _farthest(at, node, a, a_zero))
    left, right = _centered(at, node, a, a_zero, dtype, -2), _centered(at, node, b, b_zero, dtype)
    flat = left.ndim == 1, right.ndim == 1
    left, right = left.reshape(1, -1) if flat[0] else left, right.reshape(-1, 1) if flat[1] else right
    made = ops.matmul(left, right)
    kept = made.shape[:-2] + made.shape[-2:-1] * (not flat[0]) + made.shape[-1:] * (not flat[1])
    return made if made.shape == kept else made.reshape(kept)


def _convolved(at: Importing, node: Node, x: int, w: int, x_zero: int, w_zero: int, bias: int = 9) -> Tensor:
    """The exact convolution without zero points: what is around the operand counts as its zero point does."""
    shape = at.shape(node.inputs[w])
    size = _size_of_sums(at, node, w, w_zero, range(1, len(shape))) * _farthest(at, node, x, x_zero)
    dtype = _exact_dtype(size + _largest(at, node, bias))
    image, weights = _centered(at, node, x, x_zero, dtype), _centered(at, node, w, w_zero, dtype, 0)
    image = channels_first(image) if node.attrs.get("channels_last") else image
    check_kernel(node, weights)
    window = window_of(node, image.shape[2:], shape[2:])
    beside = _in_dtype(at, node, bias, dtype) if node.input(bias) else None
    return ops.conv(image, weights, beside, groups=node.attrs.get("group", 1), **window)


def _in_dtype(at: Importing, node: Node, k: int, dtype: str) -> Tensor:
    """Integers in input k as floating numbers: a constant where they are known."""
    if at.is_known(node.inputs[k]):
        try:
            at.spend(node, prod(at.shape(node.inputs[k])) * np.dtype(dtype).itemsize)
        except TooLargeToFold:
            pass
        else:
            return at.computed(node, "bias", at.value(node.inputs[k]).astype(dtype))
    return ops.astype(at.tensor(node.inputs[k]), dtype)
