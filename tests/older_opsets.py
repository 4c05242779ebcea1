"""Nodes in the words of older opsets: from nodes as they are written today, where the older schema can say the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, defs, helper, numpy_helper

from tapestry_plan.onnx.examples import read_example
from tapestry_plan.onnx.models import OLDEST_OPSET
from tests.onnx_cases import NodeCase, floats, i64, one, two
from tests.plan.onnx.test_attributes import bases, list_schemas, settings

Array = NDArray[Any]
OLDEST, NEWEST = 7, 22
"""Opsets of which models are tried: ONNX Runtime has no operators of earlier ones."""

NAMES = {"constant_value": "value", "K": "k"}
"""Inputs that were attributes of another name."""

WORDS = {("GridSample", b"linear"): b"bilinear", ("GridSample", b"cubic"): b"bicubic"}
"""Values of attributes that had another name, before opset 20."""

MEAN, VAR = floats(3, seed=4), abs(floats(3, seed=5))
IMAGE = floats(2, 3, 4, 5)
CELLS = [floats(3, 4, 5, seed=k) for k in range(3)]
NORM = {"s": floats(3, seed=2), "b": floats(3, seed=3), "m": MEAN, "v": VAR}
OF_CELLS = {"s": CELLS[0], "b": CELLS[1], "m": CELLS[2], "v": abs(CELLS[0]) + np.float32(0.1)}
SCALES = ((2, 1), (1 / 3, 0.4), (2.5, 1.25), (1.3, 0.6), (0.5, 3))


def _scales(rank: int, *last: float) -> Array:
    return np.array([1.0] * (rank - len(last)) + list(last), np.float32)


OLD = [
    *(
        NodeCase("Resize", {"x": floats(1, 2, 9, 10)}, {"s": _scales(4, *s)}, {"mode": m})
        for m in ("nearest", "linear")
        for s in SCALES
    ),
    *(
        NodeCase("Upsample", {"x": IMAGE}, {"s": _scales(4, *s)}, {"mode": m})
        for m in ("nearest", "linear")
        for s in ((2, 3), (2.5, 1.25), (1.3, 1))
    ),
    *(
        one("Upsample", IMAGE, mode=m, scales=[1.0, 1.0, *s])
        for m in ("nearest", "linear")
        for s in ((2.0, 3.0), (1.5, 1.25))
    ),
    *(
        one(op, floats(2, 3, 2, 4), axis=axis)
        for op in ("Hardmax", "Softmax", "LogSoftmax")
        for axis in (-1, 0, 1, 2, 3)
    ),
    *(one(op, floats(2, 3, 4)) for op in ("Hardmax", "Softmax", "LogSoftmax")),
    *(
        one("Pad", IMAGE, pads=[0, 0, 1, 2, 0, 0, 2, 1], mode=mode, value=1.5)
        for mode in ("constant", "reflect", "edge")
    ),
    one("Pad", IMAGE, pads=[0, 0, -1, 2, 0, 1, 2, -1]),
    *(NodeCase("BatchNormalization", {"x": IMAGE}, NORM, {"epsilon": e}) for e in (1e-5, 0.1)),
    NodeCase("BatchNormalization", {"x": IMAGE}, OF_CELLS, {"spatial": 0, "epsilon": 0.1}),
    NodeCase("Dropout", {"x": IMAGE}, {}, {"ratio": 0.4}),
    NodeCase("Dropout", {"x": IMAGE}, {}, {}, ("y", "mask")),
    NodeCase("PRelu", {"x": IMAGE}, {"s": floats(3, 1, 1, seed=3)}),
    *(
        NodeCase("Slice", {"x": floats(5, 6)}, {}, {"starts": s, "ends": e, "axes": a})
        for s, e, a in (([1, -3], [9999, -1], [0, 1]), ([-2], [2**31 - 1], [1]))
    ),
    *(NodeCase("TopK", {"x": floats(3, 6)}, {}, {"k": 2, "axis": axis}, ("y", "i")) for axis in (0, 1, -1)),
    NodeCase("Split", {"x": floats(4, 6)}, {}, {"axis": 1, "split": [4, 2]}, ("a", "b")),
    NodeCase("Split", {"x": floats(4, 6)}, {}, {}, ("a", "b")),
    *(
        one("Clip", X, **how)
        for X in (floats(3, 4),)
        for how in ({}, {"min": -0.5}, {"max": 0.5}, {"min": -0.2, "max": 0.3})
    ),
    *(
        one(op, IMAGE, **how)
        for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceProd")
        for how in ({}, {"axes": [1]}, {"axes": [0, -1], "keepdims": 0})
    ),
    one("Squeeze", floats(1, 3, 1), axes=[0]),
    one("Squeeze", floats(1, 3, 1)),
    one("Unsqueeze", floats(3, 4), axes=[0, 2]),
    *(one(op, IMAGE, **how) for op in ("ArgMax", "ArgMin") for how in ({}, {"axis": 1}, {"axis": -1, "keepdims": 0})),
    *(one("Flatten", IMAGE, axis=axis) for axis in (0, 1, 2, 4, -1)),
    *(NodeCase("Cast", {"x": floats(3, 4) * np.float32(3)}, {}, {"to": to}) for to in (1, 6, 7, 9, 10, 11)),
    NodeCase("Constant", {}, {}, {"value": numpy_helper.from_array(floats(3), "v")}),
    NodeCase("ConstantOfShape", {}, {"s": i64(2, 3)}, {"value": helper.make_tensor("v", 7, [1], [3])}),
    NodeCase(
        "Scatter",
        {"x": floats(3, 4), "u": floats(3, 2)},
        {"i": i64(0, 1, 1, 2, 2, 3).reshape(3, 2)},
        {"axis": 1},
        reads=("x", "i", "u"),
    ),
    NodeCase(
        "ScatterElements",
        {"x": floats(3, 4), "u": floats(3, 2)},
        {"i": i64(0, 1, 1, 2, -2, 3).reshape(3, 2)},
        {"axis": 1},
        reads=("x", "i", "u"),
    ),
    NodeCase(
        "ScatterND", {"x": floats(3, 4), "u": floats(2, 4)}, {"i": i64(2, 0).reshape(2, 1)}, reads=("x", "i", "u")
    ),
    NodeCase("Compress", {"x": floats(3, 4)}, {"c": np.array([True, False, True])}, {"axis": 0}),
    NodeCase("Compress", {"x": floats(3, 4)}, {"c": np.array([True, False, True])}),
    *(
        NodeCase("Gemm", {"a": floats(3, 4)}, {"w": floats(4, 5), "c": c}, {"alpha": 0.5, "beta": 2.0})
        for c in (floats(5), floats(3, 1), floats(1))
    ),
    *(two(op, floats(3, 4), floats(4, seed=2)) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean")),
    *(
        two(op, ints, ints[0])
        for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")
        for ints in (np.arange(1, 13, dtype=np.int32).reshape(3, 4),)
    ),
    *(two("Pow", abs(floats(3, 4)), e) for e in (np.float32(2.5), np.array(3.0, np.float32))),
    two("Equal", np.arange(4) > 1, np.arange(4) > 2),
    *(
        one(op, np.arange(-3, 3, dtype=d))
        for op in ("Abs", "Neg", "Sign", "Relu", "Identity")
        for d in (np.float32, np.int32)
    ),
    *(one("LRN", floats(1, 6, 3, 3), size=size, alpha=0.1, beta=0.7, bias=2.0) for size in (1, 3, 5)),
    *(
        one("MaxPool", floats(1, 2, 7, 6), kernel_shape=[2, 3], **how)
        for how in (
            {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
            {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
            {"pads": [1, 1, 0, 1]},
            {"strides": [2, 2], "ceil_mode": 1},
            {"dilations": [2, 1]},
        )
    ),
    NodeCase("MaxPool", {"x": floats(1, 2, 7, 6)}, {}, {"kernel_shape": [2, 3], "storage_order": 1}, ("y", "i")),
    *(
        one("AveragePool", floats(1, 2, 7, 6), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], **how)
        for how in ({}, {"count_include_pad": 1}, {"ceil_mode": 1}, {"ceil_mode": 1, "count_include_pad": 1})
    ),
    one("AveragePool", floats(1, 2, 7, 6), kernel_shape=[3, 3], auto_pad="SAME_LOWER"),
    *(
        one("LpPool", floats(1, 2, 7, 6), kernel_shape=[3, 3], **how)
        for how in ({}, {"p": 1}, {"strides": [2, 2], "pads": [1, 1, 0, 1]})
    ),
    one("GlobalLpPool", floats(1, 2, 7, 6)),
    *(one("LpNormalization", IMAGE, axis=axis, p=p) for axis in (-1, 1) for p in (1, 2)),
    one("MeanVarianceNormalization", IMAGE),
    one("MeanVarianceNormalization", IMAGE, axes=[0, 2]),
    one("DepthToSpace", floats(1, 8, 2, 3), blocksize=2),
    NodeCase("ConvTranspose", {"x": IMAGE}, {"w": floats(3, 2, 3, 3)}, {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    NodeCase("ConvTranspose", {"x": IMAGE}, {"w": floats(3, 2, 3, 3)}, {"strides": [2, 2], "output_shape": [8, 10]}),
    NodeCase(
        "ConvTranspose",
        {"x": IMAGE},
        {"w": floats(3, 2, 3, 3)},
        {"strides": [2, 2], "output_shape": [9, 11], "auto_pad": "SAME_LOWER"},
    ),
    NodeCase("OneHot", {"i": i64(0, -1, 2)}, {"d": np.array(4), "v": floats(2)}, {"axis": 0}),
    NodeCase("GatherElements", {"x": floats(3, 4)}, {"i": i64(-1, 0, 2, -3, 1, 1).reshape(3, 2)}, {"axis": 1}),
    NodeCase("Gather", {"x": floats(3, 4)}, {"i": i64(-1, 0)}, {"axis": 1}),
    NodeCase(
        "NonMaxSuppression",
        {"b": abs(floats(1, 8, 4)), "s": abs(floats(1, 2, 8))},
        {"m": i64(3), "u": _scales(1, 0.3), "t": _scales(1, 0.2)},
        {"center_point_box": 1},
    ),
    NodeCase("GroupNormalization", {"x": floats(2, 4, 3, 3)}, {"s": floats(2), "b": floats(2)}, {"num_groups": 2}),
    NodeCase(
        "MaxRoiPool",
        {"x": floats(1, 2, 6, 6)},
        {"r": np.array([[0, 0, 0, 3, 3]], np.float32)},
        {"pooled_shape": [2, 2]},
    ),
    NodeCase(
        "MaxUnpool",
        {"x": floats(1, 1, 2, 2)},
        {"i": i64(5, 7, 13, 15).reshape(1, 1, 2, 2)},
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    *(
        NodeCase(
            "RoiAlign",
            {"x": floats(1, 2, 6, 6)},
            {"r": np.array([[0.3, 0.2, 4, 3.7]], np.float32), "b": i64(0)},
            {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "mode": mode},
        )
        for mode in ("avg", "max")
    ),
    *(
        NodeCase("QuantizeLinear", {"x": floats(3, 4)}, {"s": np.float32(0.02), "z": z})
        for z in (np.uint8(100), np.int8(-3))
    ),
    *(
        NodeCase("DequantizeLinear", {"x": np.arange(12, dtype=z.dtype).reshape(3, 4)}, {"s": np.float32(0.02), "z": z})
        for z in (np.uint8(100), np.int8(-3))
    ),
    NodeCase("NegativeLogLikelihoodLoss", {"x": floats(3, 5)}, {"t": i64(1, 0, 4)}, {"ignore_index": 0}),
    *(
        NodeCase("SoftmaxCrossEntropyLoss", {"x": floats(3, 5)}, {"t": i64(1, 0, 4)}, {"reduction": r})
        for r in ("none", "sum", "mean")
    ),
    NodeCase("Unique", {"x": np.array([2, 1, 1, 3], np.float32)}),
    NodeCase("NonZero", {"x": np.array([2, 0, 1, 3], np.float32)}),
    NodeCase("Det", {"x": floats(2, 3, 3)}),
    NodeCase(
        "MelWeightMatrix",
        {},
        {"n": np.array(8), "d": np.array(16), "r": np.array(8192), "l": np.float32(0), "u": np.float32(4096)},
    ),
    NodeCase("Range", {}, {"a": np.float32(1), "b": np.float32(4), "c": np.float32(0.5)}),
    *(one("EyeLike", floats(3, 4), **how) for how in ({}, {"k": 1}, {"dtype": 6})),
    *(
        NodeCase("CumSum", {"x": floats(3, 4)}, {"a": np.array(axis)}, how)
        for axis in (0, -1)
        for how in ({}, {"reverse": 1}, {"exclusive": 1})
    ),
    NodeCase("Reshape", {"x": IMAGE}, {"s": i64(0, -1, 5)}),
    NodeCase("Expand", {"x": floats(3, 1)}, {"s": i64(2, 1, 4)}),
    NodeCase("Tile", {"x": floats(3, 2)}, {"r": i64(2, 3)}),
    *(one("Shape", IMAGE), one("Size", IMAGE), one("Transpose", IMAGE), one("Transpose", IMAGE, perm=[1, 0, 3, 2])),
]
"""Nodes of which the examples of other tests say too little, in the words of any opset."""


@dataclass(frozen=True)
class Written:
    """A node as arrays and attributes: what `write` puts into the words of an opset."""

    op: str
    reads: tuple[str, ...]
    arrays: dict[str, Array]
    known: frozenset[str]
    attrs: dict[str, Any]
    outputs: tuple[str, ...]


def _read(model: Any, feeds: dict[str, Array]) -> Written:
    (node,) = model.graph.node
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    attrs = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    return Written(node.op_type, tuple(node.input), constants | feeds, frozenset(constants), attrs, tuple(node.output))


def _draw(value: Any, seed: int) -> Array:
    """Numbers for an input of an example: small ones, none negative of what counts or shifts."""
    tensor, rng = value.type.tensor_type, np.random.default_rng(seed)
    shape = [dim.dim_value for dim in tensor.shape.dim]
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(shape)).astype(dtype)
    return np.asarray(rng.integers(0, 2, shape)).astype(dtype)


@cache
def nodes_of(op: str) -> tuple[Written, ...]:
    """Nodes of an operator: those above, then those of other tests and of the importer's examples."""
    found = [(case.model, case.inputs) for case in OLD if case.op == op]
    found += bases().get(op, [])
    example = read_example(op)
    if example is not None and len(example.graph.node) == 1 and op != "MaxUnpool":  # whose numbers are of one channel
        found.append((example, {value.name: _draw(value, k) for k, value in enumerate(example.graph.input)}))
    return tuple(_read(model, feeds) for model, feeds in found)


@cache
def schemas(op: str) -> dict[int, Any]:
    """An operator's schemas by the opset that brought them, from the one that `OLDEST` has to that of `NEWEST`."""
    every = list_schemas()[op]
    first = max((version for version in every if version <= OLDEST), default=0)
    return {version: every[version] for version in sorted(every) if first <= version <= NEWEST}


def _fits(node: Written, schema: Any) -> bool:
    count = len(node.reads)
    names = node.attrs.keys() <= schema.attributes.keys()
    return names and schema.min_input <= count <= schema.max_input and not schema.deprecated


def write(node: Written, opset: int) -> Any:
    """The model of a node in an opset; None where that has no words for it."""
    found = schemas(node.op)
    source = next((found[version] for version in reversed(found) if _fits(node, found[version])), None)
    target = defs.get_schema(node.op, opset, "")
    if source is None or target.deprecated or len(node.outputs) > target.max_output:
        return None
    reads, arrays, known, attrs = list(node.reads), dict(node.arrays), set(node.known), dict(node.attrs)
    takes, took = ([formal.name for formal in schema.inputs] for schema in (target, source))
    if source.max_input <= len(took) and takes != took and len(takes) != len(took):  # else by place
        given = dict(zip(took, reads, strict=False))
        reads = []
        for name in takes:
            attribute = NAMES.get(name, name)
            if given.get(name):
                reads.append(given.pop(name))
            elif attribute in attrs and attribute not in target.attributes:
                of = arrays[node.reads[0]].dtype if attribute in ("min", "max", "value") else np.float32
                array = np.asarray(attrs.pop(attribute))
                reads.append(attribute)
                arrays[attribute] = array.astype(array.dtype if array.dtype.kind == "i" and of == np.float32 else of)
                arrays[attribute] = arrays[attribute].reshape(-1) if attribute == "k" else arrays[attribute]
                known.add(attribute)
            else:
                reads.append("")
        while reads and not reads[-1]:
            reads.pop()
        for name, label in given.items():
            attribute = NAMES.get(name, name)
            if not label:
                continue
            if attribute not in target.attributes or label not in known:
                return None
            value = arrays[label]
            attrs[attribute] = (
                value.reshape(-1)[0].item() if target.attributes[attribute].type in _SINGLE else value.tolist()
            )
    if "roi" in takes[: min(target.min_input, len(reads))] and not reads[takes.index("roi")]:
        reads[takes.index("roi")] = "roi"
        arrays["roi"] = np.zeros(0, np.float32)
        known.add("roi")
    if any(not label for label in reads[: target.min_input]) or len(reads) < target.min_input:
        return None
    for name in list(attrs):
        if name in target.attributes:
            attrs[name] = (
                WORDS.get((node.op, attrs[name]), attrs[name])
                if opset < 20 and isinstance(attrs[name], bytes)
                else attrs[name]
            )
        elif name not in source.attributes or attrs[name] != _default(source.attributes[name]):
            return None
        else:
            del attrs[name]
    if any(one.required and one.name not in attrs for one in target.attributes.values()):
        return None
    return _model(node, reads, arrays, known, attrs, opset)


_SINGLE = (defs.OpSchema.AttrType.INT, defs.OpSchema.AttrType.FLOAT)


def _default(attribute: Any) -> Any:
    default = attribute.default_value
    return None if default.type == AttributeProto.UNDEFINED else helper.get_attribute_value(default)


def _model(
    node: Written, reads: list[str], arrays: dict[str, Array], known: set[str], attrs: dict[str, Any], opset: int
) -> Any:
    used = list(dict.fromkeys(filter(None, reads)))
    graph = helper.make_graph(
        [helper.make_node(node.op, reads, node.outputs, **attrs)],
        "one",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(arrays[name].dtype), arrays[name].shape)
            for name in used
            if name not in known
        ],
        [onnx.ValueInfoProto(name=name) for name in node.outputs if name],
        [numpy_helper.from_array(np.asarray(arrays[name]), name) for name in used if name in known],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def models_of(op: str, version: int) -> Iterator[tuple[str, Any, dict[str, Array]]]:
    """Models of one node in the words of a schema, with values for their inputs, and those with one other attribute.

    The latter are of opsets that are converted: the tests of attributes have those of others.
    """
    opset = max(version, OLDEST)
    for k, node in enumerate(nodes_of(op)):
        model = write(node, opset)
        if model is None:
            continue
        feeds = {value.name: node.arrays[value.name] for value in model.graph.input}
        yield f"node {k}", model, feeds
        if opset >= OLDEST_OPSET:
            continue
        is_same = any(a.name == "auto_pad" and a.s.startswith(b"SAME") for a in model.graph.node[0].attribute)
        for name, value in _others(op, opset):
            if is_same and name in ("dilations", "kernel_shape"):
                continue  # as in the tests of attributes
            other = type(model)()
            other.CopyFrom(model)
            (one,) = other.graph.node
            kept = [attribute for attribute in one.attribute if attribute.name != name]
            del one.attribute[:]
            one.attribute.extend([*kept, helper.make_attribute(name, value)])
            yield f"node {k}, {name}={value}", other, feeds


def _others(op: str, opset: int) -> Iterator[tuple[str, Any]]:
    """Attributes of a schema with other values than the default, such as the opset has.

    Values that say nothing are left out, which the runtime takes and importers refuse.
    """
    for name, value in settings(op, opset):
        if name == "spatial" and value not in (0, 1):
            continue
        if (name in ("clip", "p") or name.startswith("output_")) and isinstance(value, int | float) and value <= 0:
            continue  # what is none: the runtime takes any
        if name == "sorted" or (op, name) in (
            ("ReverseSequence", "batch_axis"),
            ("ReverseSequence", "time_axis"),
            ("MeanVarianceNormalization", "axes"),
        ):
            continue  # any order; axes that ONNX does not allow; an axis of one cell, whose deviation is rounding alone
        if (op, name) == ("GatherND", "batch_dims"):
            continue  # ONNX Runtime 1.32 reads past the indices' axes, and the process ends
        if value == "align_corners":
            continue  # the reference, as the tests of attributes hold, keeps the fraction of a factor, the runtime not
        if name == "to" and not (value <= 13 or (value == 16 and opset >= 13) or opset >= 19):
            continue
        yield name, value


def in_branches(model: Any) -> Any:
    """The model with its node in both branches of an If, whose condition is an input."""
    (node,) = model.graph.node
    branches = {}
    for key in ("then_branch", "else_branch"):
        inner = type(node)()
        inner.CopyFrom(node)
        inner.output[:] = [name and f"{key}_{name}" for name in node.output]
        outs = [onnx.ValueInfoProto(name=name) for name in inner.output if name]
        branches[key] = helper.make_graph([inner], key, [], outs)
    made = type(model)()
    made.CopyFrom(model)
    del made.graph.node[:]
    made.graph.node.append(helper.make_node("If", ["which"], [name for name in node.output if name], **branches))
    made.graph.input.append(helper.make_tensor_value_info("which", onnx.TensorProto.BOOL, []))
    return made


def in_function(model: Any, opset: int) -> Any:
    """A model of another opset with the node in a local function of the model's."""
    (node,) = model.graph.node
    reads = list(dict.fromkeys(filter(None, node.input)))
    writes = [name for name in node.output if name]
    function = helper.make_function("local", "Older", reads, writes, [node], list(model.opset_import))
    made = type(model)()
    made.CopyFrom(model)
    del made.graph.node[:], made.opset_import[:]
    made.graph.node.append(helper.make_node("Older", reads, writes, domain="local"))
    made.opset_import.extend([helper.make_opsetid("", opset), helper.make_opsetid("local", 1)])
    made.functions.append(function)
    return made
