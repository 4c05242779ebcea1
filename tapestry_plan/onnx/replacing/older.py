"""Models of older opsets in a current one: by onnx.version_converter, and by what stands here where that errs.

    the model ─► what the converter would refuse is marked ─► the converter ─► what it leaves wrong is replaced

Of ONNX's operators these mean something else than the converter leaves, or are left so that no opset has them, each
until an opset:

    Resize 10, Upsample 9    a cell reads at its number over the scale, the nearest one below or, where an axis shrinks,
                             above; the converter leaves the default of 11, by the halves of cells
    Hardmax 12               one cell of a row of the matrix that the operand is folded to; not one along the axis
    Dropout 9                the mask has the operand's type; not that of truths
    Pad 10                   a value may be given in any mode; the converter leaves it as an attribute but of one mode
    PRelu 6                  slopes are of channels; not of the last axis
    BatchNormalization 8     means may be of single cells; the converter refuses that
    LayerNormalization 16    ONNX has none, ONNX Runtime has that of 17; the converter refuses it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tapestry_plan.ir import UnsupportedOp
from tapestry_plan.onnx.nodes import schema_of
from tapestry_plan.onnx.order import all_graphs
from tapestry_plan.onnx.replacing.scans import hide_batched_scans, show_batched_scans
from tapestry_sets.limits import quote

OLDEST_OPSET = 13
"""Older models are converted first: from this opset on axes and limits are inputs, and softmax has one axis."""

TARGET_OPSET = 21
"""The opset that older models are converted to."""

OF_CELLS = "tapestry_of_cells"
"""An attribute of BatchNormalizations that have a mean for each cell, while a model is converted."""

NORMS = ("LayerNormalization", "SimplifiedLayerNormalization")
"""What ONNX Runtime's optimizer writes into models of any opset, as if ONNX had it there …"""

LATER = "tapestry.later"
"""… and the domain of such nodes while a model is converted."""

STANDARD = ("", "ai.onnx")
"""The domain of ONNX's own operators."""


def convert(model: Any, opset: int, to: int = TARGET_OPSET) -> Any:
    """A model without local functions in a later opset.

    Raises
    ------
    ValueError
        Where the converter does not take it.
    """
    from onnx import version_converter

    is_batched = opset < 9 and any(node.op_type == "Scan" for graph in all_graphs(model) for node in graph.node)
    if is_batched:
        model = hide_batched_scans(model)
    if opset < 9:
        model = _hide_norms_of_cells(model)
    model = _hide_later(model, opset)
    advice = f"export the model with opset {OLDEST_OPSET} or later"
    try:
        converted = version_converter.convert_version(model, to)
    except Exception as error:  # the converter raises whatever its C++ raises
        raise ValueError(
            f"opset {opset} cannot be converted to {to}: {' '.join(str(error).split())}; {advice}"
        ) from None
    was, now = ({value.name: value.type for value in one.graph.input} for one in (model, converted))
    changed = [name for name in now if name in was and was[name] != now[name]]
    if changed:
        raise UnsupportedOp(
            f"opset {opset} cannot be converted to {to}: onnx.version_converter gives input {quote(changed[0])} "
            f"another type; {advice}"
        )
    if is_batched:
        show_batched_scans(converted)
    imports = [one for one in converted.opset_import if one.domain != LATER]
    del converted.opset_import[:]
    converted.opset_import.extend(imports)
    for graph in all_graphs(converted):
        for node in graph.node:
            node.domain = "" if node.domain == LATER else node.domain
        nodes = [new for node in list(graph.node) for new in _mended(node, opset)]
        del graph.node[:]
        graph.node.extend(nodes)
    for field in ("output", "value_info"):  # to which the converter adds shapes that it infers, as if declared
        del getattr(converted.graph, field)[:]
        getattr(converted.graph, field).extend(getattr(model.graph, field))
    return converted


def _mended(node: Any, opset: int) -> Iterator[Any]:
    """What stands for a node that was converted from an opset."""
    last, mend = _MENDS.get(node.op_type, (0, None)) if node.domain in STANDARD else (0, None)
    if mend is None or opset > last:
        yield node
    else:
        yield from mend(node, lambda what: f"tapestry_older_{next(filter(None, node.output))}_{what}")


Fresh = Callable[[str], str]
"""Names of tensors between the nodes that stand for one."""


def _resize(node: Any, fresh: Fresh) -> Iterator[Any]:
    """A Resize of opset 10 or an Upsample, which have no attributes that say where a cell reads.

    The nearest cell is the one below where an axis grows, and the one above where it shrinks: so are the values of
    ONNX's own cases of opset 10, and so does ONNX Runtime. Axes do not touch each other: those that grow are first.
    """
    from onnx import helper

    node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
    if any(one.name == "mode" and one.s != b"nearest" for one in node.attribute):
        yield node
        return
    (x, roi, scales), made = node.input, node.output[0]
    one, wide = fresh("one"), fresh("grown")
    yield helper.make_node("Constant", [], [one], value_float=1.0)
    for op, reads, writes, rounded in (("Max", x, wide, "floor"), ("Min", wide, made, "ceil")):
        yield helper.make_node(op, [scales, one], [fresh(op)])
        part = type(node)()
        part.CopyFrom(node)
        part.name = f"{node.name}.{rounded}" if node.name else ""
        part.input[:], part.output[:] = [reads, roi, fresh(op)], [writes]
        part.attribute.append(helper.make_attribute("nearest_mode", rounded))
        yield part


def _hardmax(node: Any, fresh: Fresh) -> Iterator[Any]:
    """One 1 in each row of a matrix: the axes before the node's are its rows, the others its columns.

    So says ONNX, and so does ONNX Runtime; ONNX's reference has one along the axis, as of opset 13.
    """
    from onnx import helper

    axis = next((one.i for one in node.attribute if one.name == "axis"), 1)
    x, matrix, found, shape = node.input[0], *map(fresh, ("matrix", "found", "shape"))
    yield helper.make_node("Flatten", [x], [matrix], axis=axis)
    yield helper.make_node("Hardmax", [matrix], [found], node.name, axis=-1)
    yield helper.make_node("Shape", [x], [shape])
    yield helper.make_node("Reshape", [found, shape], [node.output[0]], allowzero=1)


def _dropout(node: Any, fresh: Fresh) -> Iterator[Any]:
    """The mask in the operand's type. It is all ones, as opset 12 says of a run that drops nothing.

    Opsets 7 to 10 do not say what is in it: ONNX's reference has ones, ONNX Runtime zeros.
    """
    from onnx import helper

    mask = node.output[1] if len(node.output) > 1 else ""
    if mask:
        node.output[1] = fresh("kept")
        yield node
        yield helper.make_node("CastLike", [node.output[1], node.input[0]], [mask])
    else:
        yield node


def _pad(node: Any, _fresh: Fresh) -> Iterator[Any]:
    """Without a value that the mode does not read."""
    kept = [one for one in node.attribute if one.name != "value"]
    del node.attribute[:]
    node.attribute.extend(kept)
    yield node


def _prelu(node: Any, fresh: Fresh) -> Iterator[Any]:
    """Slopes along axis 1, or one for all, whatever the rank is."""
    from onnx import TensorProto, helper

    x, slope = node.input
    behind, rank, ones, all_of, shape = map(fresh, ("behind", "rank", "ones", "all", "shape"))
    one = helper.make_tensor("", TensorProto.INT64, [1], [1])
    yield helper.make_node("Shape", [x], [behind], start=2)
    yield helper.make_node("Shape", [behind], [rank])
    yield helper.make_node("ConstantOfShape", [rank], [ones], value=one)
    yield helper.make_node("Constant", [], [all_of], value_ints=[-1])
    yield helper.make_node("Concat", [all_of, ones], [shape], axis=0)
    yield helper.make_node("Reshape", [slope, shape], [fresh("slope")])
    node.input[1] = fresh("slope")
    yield node


def _norm_of_cells(node: Any, fresh: Fresh) -> Iterator[Any]:
    """Means and variances of shape (C, D1, …) against an operand of shape (N, C, D1, …)."""
    from onnx import helper

    attrs = {one.name: one for one in node.attribute}
    if OF_CELLS not in attrs:
        yield node
        return
    if any(node.output[1:]):
        raise ValueError(
            f"node {quote(node.name)} (BatchNormalization) with spatial = 0 is trained, by its further outputs; "
            "export the model for inference"
        )
    x, scale, bias, mean, var = node.input
    epsilon = attrs["epsilon"].f if "epsilon" in attrs else 1e-5
    number, small, above, root, off, unit, scaled = map(
        fresh, ("number", "epsilon", "above", "root", "off", "unit", "scaled")
    )
    yield helper.make_node("Constant", [], [number], value_float=epsilon)
    yield helper.make_node("CastLike", [number, x], [small])
    yield helper.make_node("Add", [var, small], [above])
    yield helper.make_node("Sqrt", [above], [root])
    yield helper.make_node("Sub", [x, mean], [off])
    yield helper.make_node("Div", [off, root], [unit])
    yield helper.make_node("Mul", [unit, scale], [scaled])
    yield helper.make_node("Add", [scaled, bias], [node.output[0]], node.name)


_MENDS: dict[str, tuple[int, Callable[[Any, Fresh], Iterator[Any]]]] = {
    "BatchNormalization": (8, _norm_of_cells),
    "Dropout": (9, _dropout),
    "Hardmax": (12, _hardmax),
    "PRelu": (6, _prelu),
    "Pad": (10, _pad),
    "Resize": (10, _resize),
}
"""The last opset in which an operator's nodes are replaced after the converter, and by what."""


def _hide_norms_of_cells(model: Any) -> Any:
    """The model; where it has BatchNormalizations of cells a copy, in which these bear a mark."""
    from onnx import ModelProto, helper

    def is_of_cells(node: Any) -> bool:
        is_norm = node.op_type == "BatchNormalization" and node.domain in STANDARD
        return is_norm and any(one.name == "spatial" and not one.i for one in node.attribute)

    if not any(is_of_cells(node) for graph in all_graphs(model) for node in graph.node):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    for graph in all_graphs(copy):
        for node in filter(is_of_cells, graph.node):
            kept = [one for one in node.attribute if one.name != "spatial"]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute(OF_CELLS, 1)])
    return copy


def _hide_later(model: Any, opset: int) -> Any:
    """The model; where it has operators that ONNX has in later opsets alone a copy, in which these have a domain."""
    from onnx import ModelProto, helper

    def is_later(node: Any) -> bool:
        is_norm = node.op_type in NORMS and node.domain in STANDARD
        return is_norm and schema_of(node.op_type, opset) is None

    if not any(is_later(node) for graph in all_graphs(model) for node in graph.node):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    copy.opset_import.append(helper.make_opsetid(LATER, 1))
    for graph in all_graphs(copy):
        for node in filter(is_later, graph.node):
            node.domain = LATER
    return copy
