"""Models with open axes: the stored BERT and GPT-2, small layers of attention.

BERT and GPT-2 were exported for two sequences, and have an open axis of sequences here: ``batch``.

What an exporter writes of two sequences is said of any number: shapes of Reshape that begin with 2 copy that axis, or
leave it to be inferred, an Expand to (2, 16) takes the shape of the input, and the mask, equal for both, is one that is
broadcast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

MODELS = Path(__file__).parent / "models"


def open_batch(name: str) -> Any:
    """A model of `tests/models` with the symbol ``batch`` in place of 2."""
    model = onnx.load(MODELS / f"{name}.onnx")
    graph = model.graph
    (given,) = graph.input
    given.type.tensor_type.shape.dim[0].dim_param = "batch"
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    known = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Expand":
            node.input[1] = "shape_of_input"
        elif node.op_type == "Reshape":
            del node.attribute[:]  # with ``allowzero`` 0 would be an extent
            _open_shape(known[node.input[1]])
        elif node.op_type == "Add":
            for tensor in (known[one] for one in node.input if one in known):
                _open_mask(tensor)
    if any("shape_of_input" in node.input for node in graph.node):
        graph.node.insert(0, helper.make_node("Shape", [given.name], ["shape_of_input"], name="shape_of_input"))
    onnx.checker.check_model(model)
    return model


def _open_shape(tensor: Any) -> None:
    shape = numpy_helper.to_array(tensor).copy()
    if shape[0] in (2, 32):
        shape[0] = 0 if -1 in shape else -1
        tensor.CopyFrom(numpy_helper.from_array(shape, tensor.name))


def _open_mask(tensor: Any) -> None:
    array = numpy_helper.to_array(tensor)
    if array.ndim == 4 and array.shape[0] == 2:
        assert np.array_equal(array[0], array[1]), "the mask is the same for both sequences"
        tensor.CopyFrom(numpy_helper.from_array(array[:1].copy(), tensor.name))


def open_attention() -> Any:
    """One layer of self-attention over ``batch`` sequences of ``seq`` tokens: two symbols, and a product of both."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((8, 8)).astype(np.float32) for name in ("wq", "wk", "wv", "wo")}
    shapes = {"heads": np.array([0, 0, 2, 4]), "joined": np.array([0, 0, 8])}
    constants = [numpy_helper.from_array(array, name) for name, array in {**weights, **shapes}.items()]
    nodes = []
    for letter, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        nodes.append(helper.make_node("MatMul", ["x", f"w{letter}"], [letter], name=letter))
        nodes.append(helper.make_node("Reshape", [letter, "heads"], [f"{letter}_heads"]))
        nodes.append(helper.make_node("Transpose", [f"{letter}_heads"], [f"{letter}_turned"], perm=perm))
    nodes += [
        helper.make_node("MatMul", ["q_turned", "k_turned"], ["scores"], name="scores"),
        helper.make_node("Softmax", ["scores"], ["shares"], name="shares", axis=-1),
        helper.make_node("MatMul", ["shares", "v_turned"], ["mixed"], name="mixed"),
        helper.make_node("Transpose", ["mixed"], ["back"], perm=(0, 2, 1, 3)),
        helper.make_node("Reshape", ["back", "joined"], ["joined_heads"]),
        helper.make_node("MatMul", ["joined_heads", "wo"], ["y"], name="y"),
    ]
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", "seq", 8]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "attention", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


MASKED = "past_sequence_length + sequence_length"
"""The axis of a mask over old and new tokens, as Hugging Face's optimum calls it."""


def open_decoder(masked: str = MASKED) -> Any:
    """A layer of a decoder with a key-value cache, with inputs, outputs and names of axes as optimum exports them."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((8, 8)).astype(np.float32) for name in ("wq", "wk", "wv", "wo")}
    more = {
        "heads": np.array([0, 0, 2, 4]),
        "joined": np.array([0, 0, 8]),
        "axes": np.array([1, 2]),
        "one": np.array(1, np.float32),
        "low": np.array(-1e4, np.float32),
    }
    constants = [numpy_helper.from_array(array, name) for name, array in {**weights, **more}.items()]
    nodes = []
    for letter in "qkv":
        nodes.append(helper.make_node("MatMul", ["x", f"w{letter}"], [letter], name=letter))
        nodes.append(helper.make_node("Reshape", [letter, "heads"], [f"{letter}_heads"]))
        nodes.append(helper.make_node("Transpose", [f"{letter}_heads"], [f"{letter}_new"], perm=(0, 2, 1, 3)))
    nodes += [
        helper.make_node("Concat", ["past_key", "k_new"], ["present_key"], axis=2, name="keys"),
        helper.make_node("Concat", ["past_value", "v_new"], ["present_value"], axis=2, name="values"),
        helper.make_node("Transpose", ["present_key"], ["k_turned"], perm=(0, 1, 3, 2)),
        helper.make_node("MatMul", ["q_new", "k_turned"], ["products"], name="products"),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=onnx.TensorProto.FLOAT, name="cast"),
        helper.make_node("Sub", ["one", "mask"], ["hidden"], name="hide"),
        helper.make_node("Mul", ["hidden", "low"], ["bias_of_two"], name="lower"),
        helper.make_node("Unsqueeze", ["bias_of_two", "axes"], ["bias"]),
        helper.make_node("Add", ["products", "bias"], ["scores"], name="scores"),
        helper.make_node("Softmax", ["scores"], ["shares"], name="shares", axis=-1),
        helper.make_node("MatMul", ["shares", "present_value"], ["mixed"], name="mixed"),
        helper.make_node("Transpose", ["mixed"], ["back"], perm=(0, 2, 1, 3)),
        helper.make_node("Reshape", ["back", "joined"], ["joined_heads"]),
        helper.make_node("MatMul", ["joined_heads", "wo"], ["y"], name="y"),
    ]
    kinds = onnx.TensorProto
    past, present = (["batch_size", 2, one, 4] for one in ("past_sequence_length", MASKED))
    given = [
        helper.make_tensor_value_info("x", kinds.FLOAT, ["batch_size", "sequence_length", 8]),
        helper.make_tensor_value_info("attention_mask", kinds.INT64, ["batch_size", masked]),
        *(helper.make_tensor_value_info(name, kinds.FLOAT, past) for name in ("past_key", "past_value")),
    ]
    made = [
        helper.make_tensor_value_info("y", kinds.FLOAT, ["batch_size", "sequence_length", 8]),
        *(helper.make_tensor_value_info(name, kinds.FLOAT, present) for name in ("present_key", "present_value")),
    ]
    graph = helper.make_graph(nodes, "decoder", given, made, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def feed_decoder(batch: int, past: int, now: int) -> dict[str, Any]:
    """Inputs of the decoder, the first sequence padded on the left by one token."""
    rng = np.random.default_rng([batch, past, now])
    mask = np.ones((batch, past + now), np.int64)
    mask[0, : past > 0] = 0
    shapes = {"x": (batch, now, 8), "past_key": (batch, 2, past, 4), "past_value": (batch, 2, past, 4)}
    return {"attention_mask": mask, **{k: rng.standard_normal(n).astype(np.float32) for k, n in shapes.items()}}
