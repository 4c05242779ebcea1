"""Operators of com.microsoft.nchwc, of ONNX Runtime's optimizer for one kind of processor: channels lie in blocks.

A tensor of shape (batch, channels, …) there has its cells in another order, ``[batch][channels / b][…][b]``, with as
many channels as fill blocks of b, 8 or 16. Here it is a view of a tensor in the usual order, which operators of this
domain, and those that look at one cell at a time, read in its place: so nothing is reordered in a run.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import Tensor, concat
from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.importers import windows
from tapestry_plan.onnx.importers.fused import curved
from tapestry_plan.onnx.inference import infer_model
from tapestry_plan.onnx.nodes import Array, Importing, Node, Result, TooLargeToFold, refusal
from tapestry_sets.limits import quote

NCHWC = "com.microsoft.nchwc"

CELL_BY_CELL = frozenset(
    {
        *("Add", "Div", "Max", "Min", "Mul", "Sub", "Sum"),
        *("Abs", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish"),
        *("Neg", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Tanh", "ThresholdedRelu"),
    }
)
"""Operators of ONNX's own that make one cell of one, or of one of each operand, wherever these lie."""


def reads_blocks(at: Importing, node: Node) -> bool:
    """Whether a node makes the same of tensors in the usual order, and all that it reads are such in blocks."""
    if not at.blocked or node.domain or len([name for name in node.outputs if name]) != 1:
        return False
    if node.op_type == "Clip":  # whose bounds are numbers
        return node.inputs[0] in at.blocked
    shapes = {at.shape(name) for name in node.inputs if name in at.blocked}
    if not node.inputs or not all(name in at.blocked for name in node.inputs):
        return False
    if node.op_type == "Concat":
        return node.attrs.get("axis") == 1
    return node.op_type in CELL_BY_CELL and len(shapes) == 1


@cache
def _find_block() -> int:
    """How many channels are in a block, by the ONNX Runtime that is installed: models do not say it."""
    from onnx import TensorProto, helper

    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 1, 1))
    made = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([helper.make_node("ReorderInput", ["x"], ["y"], domain=NCHWC)], "one", [given], [made])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(NCHWC, 1)]
    found = infer_model(helper.make_model(graph, opset_imports=opsets, ir_version=tuning.IR_VERSION), "run")
    return int(found.graph.output[0].type.tensor_type.shape.dim[1].dim_value)


def block_of(node: Node) -> int:
    """The same, or a refusal of the node."""
    try:
        return _find_block()
    except ValueError as error:
        raise refusal(node, f"how many channels are in a block is not known: {error}") from None


def _order(rank: int) -> tuple[int, ...]:
    """From (batch, blocks, b, …) to (batch, blocks, …, b)."""
    return (0, 1, *range(3, rank + 1), 2)


def _read(at: Importing, node: Node, k: int) -> Tensor:
    """Operand k in the usual order."""
    name, block = node.inputs[k], block_of(node)
    if name in at.blocked:
        return at.blocked[name]
    x = _image(at, node, k)
    if x.shape[1] % block:
        raise ValueError(f"its input {k} has shape {quote(x.shape)}; blocks of {block} channels are needed")
    inside = x.reshape(x.shape[0], x.shape[1] // block, *x.shape[2:], block)
    return inside.permute_dims((0, 1, x.ndim, *range(2, x.ndim))).reshape(x.shape)


def _image(at: Importing, node: Node, k: int) -> Tensor:
    """Operand k, which is an image of float32 numbers."""
    x = at.tensor(node.inputs[k])
    if x.ndim != 4 or x.dtype != "float32":
        raise ValueError(
            f"its input {k} is {x.dtype}{quote(x.shape)}; float32(batch, channels, rows, columns) is needed"
        )
    return x


def _written(at: Importing, node: Node, made: Tensor) -> Tensor:
    """A result in blocks, of a tensor in the usual order, which is noted for those that read it."""
    return in_blocks(at, node.outputs[0], made, block_of(node))


def in_blocks(at: Importing, name: str, made: Tensor, block: int) -> Tensor:
    """A model tensor in blocks, of a tensor in the usual order, which is noted for those that read it."""
    at.note_blocked(name, made)
    batch, channels, *rest = made.shape
    inside = made.reshape(batch, channels // block, block, *rest)
    return inside.permute_dims(_order(made.ndim)).reshape(made.shape)


def reorder_input(at: Importing, node: Node) -> Result:
    """Channels of zeros fill the last block."""
    x = _image(at, node, 0)
    x = windows.channels_first(x) if node.attrs.get("channels_last") else x
    batch, channels, *rest = x.shape
    missing = -channels % block_of(node)
    if missing:
        zero = at.graph.constant(f"{node.name}.zero", np.zeros((), x.dtype))
        x = concat([x, zero.broadcast_to((batch, missing, *rest))], axis=1)
    return _written(at, node, x)


def reorder_output(at: Importing, node: Node) -> Result:
    x, channels = _read(at, node, 0), node.attrs["channels"]
    least = max(0, x.shape[1] - block_of(node))
    if not least < channels <= x.shape[1]:
        raise ValueError(
            f"channels is {channels}; its input of shape {quote(x.shape)} has {least + 1} to {x.shape[1]}, so that the "
            "last one is in the last block"
        )
    made = x[:, :channels]
    return windows.channels_last(made) if node.attrs.get("channels_last") else made


def conv(at: Importing, node: Node) -> Result:
    """Of weights in blocks too: of the channels that they make, and where these are many of those that they read."""
    shape, groups, block = at.shape(node.inputs[1]), node.attrs.get("group", 1), block_of(node)
    if len(shape) < 3 or shape[0] % block:
        raise ValueError(f"its weights have shape {quote(shape)}; blocks of {block} channels are needed")
    is_deep = groups > 1 and groups == shape[0] and shape[1] == 1
    is_plain = groups == 1 and shape[1] < block
    x = _image(at, node, 0) if is_plain else _read(at, node, 0)
    weights = _weights(at, node, shape, block, 1 if is_deep or is_plain else block)
    windows.check_kernel(node, weights)
    bias = at.tensor(node.inputs[2]) if node.input(2) else None
    made = ops.conv(x, weights, bias, groups=groups, **windows.window_of(node, x.shape[2:], shape[2:]))
    if node.input(3):
        made = made + _read(at, node, 3)
    kind, numbers = node.attrs.get("activation", ""), node.attrs.get("activation_params", ())
    return _written(at, node, curved(node, made, kind, numbers))


def _weights(at: Importing, node: Node, shape: tuple[int, ...], block: int, inner: int) -> Tensor:
    """Weights in the usual order, of ``[out / b][in / inner][…][inner][b]``."""
    made, read, *window = shape
    if read % inner:
        raise ValueError(f"its weights have shape {quote(shape)}; blocks of {inner} channels are needed")
    cut, rank = (made // block, read // inner, *window, inner, block), len(shape)
    order = (0, rank + 1, 1, rank, *range(2, rank))
    name = node.inputs[1]
    if at.is_known(name):
        value: Array = at.value(name)
        try:
            at.spend(node, 2 * value.nbytes)
        except TooLargeToFold:
            pass
        else:
            return at.computed(node, "weights", value.reshape(cut).transpose(order).reshape(shape))
    return at.tensor(name).reshape(cut).permute_dims(order).reshape(shape)


def max_pool(at: Importing, node: Node) -> Result:
    return _written(at, node, windows.max_pool(at, node, _read(at, node, 0)))


def average_pool(at: Importing, node: Node) -> Result:
    return _written(at, node, windows.average_pool(at, node, _read(at, node, 0)))


def global_max_pool(at: Importing, node: Node) -> Result:
    return _written(at, node, ops.global_max_pool(_read(at, node, 0)))


def global_average_pool(at: Importing, node: Node) -> Result:
    return _written(at, node, ops.global_average_pool(_read(at, node, 0)))


def upsample(at: Importing, node: Node) -> Result:
    """Each cell several times, or what is between them."""
    attrs, x = node.attrs, _read(at, node, 0)
    how: dict[str, Any] = {"mode": attrs.get("mode", "nearest"), "nearest": "floor"}
    how["coordinates"] = attrs.get("coordinate_transformation_mode", "asymmetric")
    if how["mode"] not in ("nearest", "linear") or how["coordinates"] not in ops.COORDINATES:
        raise refusal(node, f"mode {quote(how['mode'])} by {quote(how['coordinates'])} is not supported")
    scales = [float(n) for n in attrs.get("scales", (1,) * x.ndim)]
    return _written(at, node, ops.resize(x, None, scales=scales, **how))
