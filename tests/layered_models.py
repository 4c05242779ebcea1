"""Transformers of any number of layers as ONNX models, written operator by operator; weights are inputs.

The operators are those that exporters write: a projection is a MatMul and an Add, heads are a Reshape and a Transpose.
`store_outside` makes the weights external data of a file that takes no room, however many they are.
"""

from __future__ import annotations

import re
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

HEADS_WIDTH = 64
"""Cells of a head."""


class _Writer:
    """A model as it is written: `op` adds an operator and names its result, `weight` an input, `number` a constant."""

    def __init__(self, dtype: int = TensorProto.FLOAT) -> None:
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.constants: list[Any] = []

    def input(self, name: str, shape: tuple[int, ...], dtype: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def weight(self, *shape: int) -> str:
        return self.input(f"w{len(self.inputs)}", shape, self.dtype)

    def number(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def op(self, kind: str, *inputs: str, **attrs: Any) -> str:
        (out,) = self.ops(kind, *inputs, outputs=1, **attrs)
        return out

    def ops(self, kind: str, *inputs: str, outputs: int, **attrs: Any) -> list[str]:
        name = f"{kind}_{len(self.nodes)}"
        outs = [name] if outputs == 1 else [f"{name}.{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), outs, name=name, **attrs))
        return outs

    def done(self, out: str) -> Any:
        outputs = [helper.make_tensor_value_info(out, self.dtype, None)]
        graph = helper.make_graph(self.nodes, "layers", self.inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    # -- what layers are made of -------------------------------------------------------------------------

    def norm(self, x: str, width: int) -> str:
        return self.op("LayerNormalization", x, self.weight(width), self.weight(width), axis=-1)

    def linear(self, x: str, width: int, out: int, bias: bool = True) -> str:
        y = self.op("MatMul", x, self.weight(width, out))
        return self.op("Add", y, self.weight(out)) if bias else y

    def split(self, x: str, batch: int, length: int, width: int, perm: tuple[int, ...] = (0, 2, 1, 3)) -> str:
        """(batch, length, width) as (batch, head, length, 64)."""
        shape = self.number(np.array([batch, length, width // HEADS_WIDTH, HEADS_WIDTH]))
        return self.op("Transpose", self.op("Reshape", x, shape), perm=list(perm))

    def join(self, x: str, batch: int, length: int, width: int) -> str:
        heads = self.op("Transpose", x, perm=[0, 2, 1, 3])
        return self.op("Reshape", heads, self.number(np.array([batch, length, width])))


def gpt(layers: int, batch: int = 1, length: int = 2048, width: int = 1024, inner: int = 4096) -> Any:
    """A GPT's forward pass, 16 operators a layer, no biases but one, no mask; heads are views."""
    m = _Writer()
    x = m.input("x", (batch, length, width))
    size = batch, length, width
    for _ in range(layers):
        y = m.norm(x, width)
        q = m.split(m.linear(y, width, width, bias=False), *size)
        k = m.split(m.linear(y, width, width, bias=False), *size, perm=(0, 2, 3, 1))
        v = m.split(m.linear(y, width, width, bias=False), *size)
        scores = m.op("Div", m.op("MatMul", q, k), m.number(np.float32(HEADS_WIDTH**0.5)))
        mixed = m.join(m.op("MatMul", m.op("Softmax", scores, axis=-1), v), *size)
        x = m.op("Add", x, m.linear(mixed, width, width, bias=False))
        y = m.op("Relu", m.linear(m.norm(x, width), width, inner))
        x = m.op("Add", x, m.linear(y, inner, width, bias=False))
    return m.done(x)


def _attention(m: _Writer, x: str, batch: int, length: int, width: int, mask: str | None, fused: bool) -> str:
    """Self-attention with its projections: q, k, v from one product that is split, or from three."""
    size = batch, length, width
    if fused:
        parts = m.ops("Split", m.linear(x, width, 3 * width), outputs=3, axis=-1, num_outputs=3)
    else:
        parts = [m.linear(x, width, width) for _ in range(3)]
    q, k, v = (m.split(part, *size, perm=perm) for part, perm in zip(parts, _PERMS, strict=True))
    scores = m.op("Div", m.op("MatMul", q, k), m.number(np.float32(HEADS_WIDTH**0.5)))
    if mask is not None:
        scores = m.op("Add", scores, mask)
    return m.linear(m.join(m.op("MatMul", m.op("Softmax", scores, axis=-1), v), *size), width, width)


_PERMS = ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))


def bert(layers: int, batch: int = 2, length: int = 128, width: int = 512) -> Any:
    """BERT: three embeddings, a mask over padding, normalized after each sum, Gelu by one operator."""
    m = _Writer()
    ids = m.input("ids", (batch, length), TensorProto.INT64)
    types = m.input("types", (batch, length), TensorProto.INT64)
    mask = m.input("mask", (batch, 1, 1, length))
    x = m.op("Add", m.op("Gather", m.weight(30522, width), ids), m.op("Gather", m.weight(2, width), types))
    x = m.norm(m.op("Add", x, m.weight(1, length, width)), width)
    for _ in range(layers):
        x = m.norm(m.op("Add", x, _attention(m, x, batch, length, width, mask, fused=False)), width)
        y = m.linear(m.op("Gelu", m.linear(x, width, 4 * width)), 4 * width, width)
        x = m.norm(m.op("Add", x, y), width)
    return m.done(x)


def gpt2(layers: int, batch: int = 2, length: int = 128, width: int = 512) -> Any:
    """GPT-2: one product for q, k and v, a causal mask, Gelu by tanh, written out."""
    m = _Writer()
    ids = m.input("ids", (batch, length), TensorProto.INT64)
    mask = m.number(np.triu(np.full((1, 1, length, length), -1e9, np.float32), 1))
    x = m.op("Add", m.op("Gather", m.weight(50257, width), ids), m.weight(1, length, width))
    for _ in range(layers):
        x = m.op("Add", x, _attention(m, m.norm(x, width), batch, length, width, mask, fused=True))
        y = m.linear(m.norm(x, width), width, 4 * width)
        cube = m.op("Mul", m.op("Pow", y, m.number(np.float32(3))), m.number(np.float32(0.044715)))
        tanh = m.op("Tanh", m.op("Mul", m.op("Add", y, cube), m.number(np.float32(0.7978846))))
        y = m.op("Mul", m.op("Mul", y, m.number(np.float32(0.5))), m.op("Add", tanh, m.number(np.float32(1))))
        x = m.op("Add", x, m.linear(y, 4 * width, width))
    return m.done(m.norm(x, width))


def vit(layers: int, batch: int = 2, side: int = 224, patch: int = 16, width: int = 512) -> Any:
    """A vision transformer: patches by a convolution, a token for the class, the class from that token."""
    m = _Writer()
    image = m.input("image", (batch, 3, side, side))
    many = (side // patch) ** 2
    x = m.op("Conv", image, m.weight(width, 3, patch, patch), m.weight(width), strides=[patch, patch])
    x = m.op("Transpose", m.op("Reshape", x, m.number(np.array([batch, width, many]))), perm=[0, 2, 1])
    x = m.op("Concat", m.weight(batch, 1, width), x, axis=1)
    x = m.op("Add", x, m.weight(1, many + 1, width))
    for _ in range(layers):
        x = m.op("Add", x, _attention(m, m.norm(x, width), batch, many + 1, width, None, fused=True))
        y = m.linear(m.op("Gelu", m.linear(m.norm(x, width), width, 4 * width)), 4 * width, width)
        x = m.op("Add", x, y)
    token = m.op("Gather", m.norm(x, width), m.number(np.int64(0)), axis=1)
    return m.done(m.linear(token, width, 1000))


def llama(
    layers: int = 32,
    batch: int = 1,
    length: int = 2048,
    width: int = 4096,
    heads: int = 32,
    inner: int = 11008,
    words: int = 32000,
) -> Any:
    """Llama 2 in half precision, as exporters write it; of 7 billion numbers by default.

    RMSNorm is written out in single precision, positions turn pairs of halves by tables of sines and cosines, the gate
    is a sigmoid, and what pads is masked beside what comes later.
    """
    half, single, each = TensorProto.FLOAT16, TensorProto.FLOAT, width // heads
    m = _Writer(half)
    ids, at = (m.input(name, (batch, length), TensorProto.INT64) for name in ("input_ids", "position_ids"))
    padding = m.op("Cast", m.input("attention_mask", (batch, length), TensorProto.INT64), to=half)
    x = m.op("Gather", m.weight(words, width), ids)
    angles = np.outer(np.arange(length), 1e4 ** (-np.arange(0, each, 2) / each))
    tables = (table(np.hstack([angles, angles])).astype(np.float16) for table in (np.cos, np.sin))
    cos, sin = (m.op("Unsqueeze", m.op("Gather", m.number(one), at), m.number(np.array([1]))) for one in tables)
    least = m.number(np.float16(-65504))
    every = m.op("Expand", least, m.number(np.array([length, length])))
    causal = m.op("Trilu", every, m.number(np.int64(1)), upper=1)
    padded = m.op("Unsqueeze", padding, m.number(np.array([1, 2])))
    padded = m.op("Mul", m.op("Sub", m.number(np.float16(1)), padded), least)
    mask = m.op("Min", causal, padded)

    def norm(x: str) -> str:
        wide = m.op("Cast", x, to=single)
        square = m.op("Pow", wide, m.number(np.float32(2)))
        mean = m.op("ReduceMean", square, m.number(np.array([-1])), keepdims=1)
        root = m.op("Sqrt", m.op("Add", mean, m.number(np.float32(1e-5))))
        scaled = m.op("Mul", wide, m.op("Div", m.number(np.float32(1)), root))
        return m.op("Mul", m.weight(width), m.op("Cast", scaled, to=half))

    def split(x: str) -> str:
        return m.op(
            "Transpose", m.op("Reshape", x, m.number(np.array([batch, length, heads, each]))), perm=[0, 2, 1, 3]
        )

    def turn(x: str) -> str:
        bounds = [m.number(np.array([n])) for n in (0, each // 2, 2**63 - 1, 3)]
        first = m.op("Slice", x, bounds[0], bounds[1], bounds[3])
        second = m.op("Slice", x, bounds[1], bounds[2], bounds[3])
        swapped = m.op("Concat", m.op("Neg", second), first, axis=-1)
        return m.op("Add", m.op("Mul", x, cos), m.op("Mul", swapped, sin))

    for _ in range(layers):
        y = norm(x)
        q, k, v = (split(m.linear(y, width, width, bias=False)) for _ in range(3))
        scores = m.op("MatMul", turn(q), m.op("Transpose", turn(k), perm=[0, 1, 3, 2]))
        scores = m.op("Add", m.op("Div", scores, m.number(np.float16(each**0.5))), mask)
        seen = m.op("Cast", m.op("Softmax", m.op("Cast", scores, to=single), axis=-1), to=half)
        mixed = m.op("Transpose", m.op("MatMul", seen, v), perm=[0, 2, 1, 3])
        mixed = m.op("Reshape", mixed, m.number(np.array([batch, length, width])))
        x = m.op("Add", x, m.linear(mixed, width, width, bias=False))
        y = norm(x)
        gate = m.linear(y, width, inner, bias=False)
        gated = m.op("Mul", m.op("Mul", gate, m.op("Sigmoid", gate)), m.linear(y, width, inner, bias=False))
        x = m.op("Add", x, m.linear(gated, inner, width, bias=False))
    return m.done(m.linear(norm(x), width, words, bias=False))


def store_outside(model: Any, path: Path) -> int:
    """Save a model whose weights lie in a file beside it; the bytes that they come to.

    The file is as long as they need and has holes for them. Of each weight the first and the last byte are written,
    others for each, so that no two are equal.
    """
    weights = [value for value in model.graph.input if re.fullmatch(r"w\d+", value.name)]
    beside, offset = path.with_suffix(".bin"), 0
    with open(beside, "wb") as file:
        for number, value in enumerate(weights):
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            tensor = model.graph.initializer.add(name=value.name, dims=shape)
            tensor.data_type, tensor.data_location = value.type.tensor_type.elem_type, TensorProto.EXTERNAL
            nbytes = prod(shape) * dtype.itemsize
            for key, entry in (("location", beside.name), ("offset", offset), ("length", nbytes)):
                tensor.external_data.add(key=key, value=str(entry))
            for at, byte in ((offset, number % 256), (offset + nbytes - 1, number // 256)):
                file.seek(at)
                file.write(bytes([byte]))
            offset += -(-nbytes // 4096) * 4096
        file.truncate(offset)
    for value in weights:
        model.graph.input.remove(value)
    path.write_bytes(model.SerializeToString())
    return offset


def gpt_with_weights() -> Any:
    """Four layers of width 768 over 128 tokens, their weights in the model."""
    model, rng = gpt(4, length=128, width=768, inner=3072), np.random.default_rng(0)
    for value in [value for value in model.graph.input if value.name != "x"]:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = rng.standard_normal(shape) * 0.02 + (len(shape) == 1)
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), value.name))
        model.graph.input.remove(value)
    return model
