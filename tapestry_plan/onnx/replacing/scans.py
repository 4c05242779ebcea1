"""A Scan of opset 8, whose tensors have a batch first: as a Scan over the batch whose body is a Scan over steps.

    opset 8             x (batch, steps, …) ─► Scan ─► y (batch, steps, …)
    opset 9 and later   x (batch, steps, …) ─► Scan over the batch
                                                 x of one (steps, …) ─► Scan ─► y of one (steps, …)

onnx.version_converter takes the batch away without looking at it, so that it is shown a node of another operator.
"""

from __future__ import annotations

from typing import Any

from tapestry_plan.onnx.order import all_graphs
from tapestry_sets.limits import quote

MARK = "tapestry_batched_scan"
"""An attribute of nodes that stand for a Scan of opset 8 while a model is converted."""


def hide_batched_scans(model: Any) -> Any:
    """A copy of a model of opset 8 in which a Loop, whose body is converted as any, stands for each Scan."""
    from onnx import ModelProto, helper

    copy = ModelProto()
    copy.CopyFrom(model)
    for graph in all_graphs(copy):
        for node in graph.node:
            if node.op_type == "Scan" and node.domain in ("", "ai.onnx"):
                node.op_type = "Loop"
                node.attribute.append(helper.make_attribute(MARK, 1))
    return copy


def show_batched_scans(model: Any) -> None:
    """Put Scans over the batch in the place of what stands for those of opset 8, after the model was converted.

    ONNX does not say where sequences of given lengths begin that are walked backwards: at their own last step, as in
    ONNX Runtime.
    """
    for graph in all_graphs(model):
        for k, node in enumerate(graph.node):
            if any(attribute.name == MARK for attribute in node.attribute):
                graph.node[k].CopyFrom(_over_batch(node))


def _over_batch(node: Any) -> Any:
    from onnx import TensorProto, helper

    attrs = {attribute.name: attribute for attribute in node.attribute}
    if "body" not in attrs or "num_scan_inputs" not in attrs or len(node.input) < 2:
        raise ValueError(f"node {quote(node.name)} (Scan) has no body, no num_scan_inputs or no inputs")
    body, scanned = attrs["body"].g, attrs["num_scan_inputs"].i
    back = list(attrs["directions"].ints) if "directions" in attrs else []
    lengths, reads = node.input[0], list(node.input[1:])
    states = len(reads) - scanned
    if not 0 < scanned <= len(reads) or len(body.input) != len(reads) or len(body.output) != len(node.output):
        raise ValueError(f"node {quote(node.name)} (Scan) has another number of inputs or outputs than its body")
    one = [f"{MARK}_{name}" for name in reads]
    made = [f"{MARK}_{name or k}" for k, name in enumerate(node.output)]
    taken, first, extra = list(one), list(one), []
    if lengths:
        taken = [*one, f"{MARK}_length"]
        first = [f"{MARK}_first", *one]
        extra = [helper.make_node("Constant", [], [first[0]], value=helper.make_tensor("", TensorProto.INT64, [], [0]))]
        body = _until(body, states)
        for k in (k for k, is_back in enumerate(back) if is_back):
            extra += _turn(f"{MARK}_length", one[states + k], first[1 + states + k] + "_turned")
            first[1 + states + k] += "_turned"
        back = []
    inner = helper.make_node(
        "Scan",
        first,
        [f"{MARK}_last", *made] if lengths else made,
        body=body,
        num_scan_inputs=scanned,
        **({"scan_input_directions": back} if any(back) else {}),
    )
    around = helper.make_graph(
        [*extra, inner],
        f"{node.name or 'Scan'} of one sequence",
        [helper.make_empty_tensor_value_info(name) for name in taken],
        [helper.make_empty_tensor_value_info(name) for name in made],
    )
    given = [*reads, lengths] if lengths else reads
    return helper.make_node("Scan", given, list(node.output), node.name, body=around, num_scan_inputs=len(given))


def _turn(length: str, name: str, out: str) -> list[Any]:
    """Nodes that put the first steps of a sequence, so many as it has, in the reverse order."""
    from onnx import TensorProto, helper

    axis, ends, wide, turned = (f"{out}_{what}" for what in ("axis", "ends", "wide", "both"))
    return [
        helper.make_node("Constant", [], [axis], value=helper.make_tensor("", TensorProto.INT64, [1], [1])),
        helper.make_node("Constant", [], [f"{axis}s"], value=helper.make_tensor("", TensorProto.INT64, [1], [0])),
        helper.make_node("Unsqueeze", [name, axis], [wide]),
        helper.make_node("Unsqueeze", [length, f"{axis}s"], [ends]),
        helper.make_node("ReverseSequence", [wide, ends], [turned], time_axis=0, batch_axis=1),
        helper.make_node("Squeeze", [turned, axis], [out]),
    ]


def _until(body: Any, states: int) -> Any:
    """The body with a count of steps first: from the sequence's length on states stay, and zeros are made."""
    from onnx import GraphProto, TensorProto, helper

    made = GraphProto()
    made.CopyFrom(body)
    names = {kind: f"{MARK}_{kind}" for kind in ("step", "next", "one", "goes")}
    made.node.extend(
        [
            helper.make_node("Constant", [], [names["one"]], value=helper.make_tensor("", TensorProto.INT64, [], [1])),
            helper.make_node("Add", [names["step"], names["one"]], [names["next"]]),
            helper.make_node("Less", [names["step"], f"{MARK}_length"], [names["goes"]]),
        ]
    )
    outputs = [helper.make_empty_tensor_value_info(names["next"])]
    for k, value in enumerate(made.output):
        other = made.input[k].name if k < states else f"{MARK}_zeros{k}"
        if k >= states:
            zero = helper.make_tensor("", value.type.tensor_type.elem_type or TensorProto.FLOAT, [1], [0])
            made.node.append(helper.make_node("Shape", [value.name], [f"{MARK}_shape{k}"]))
            made.node.append(helper.make_node("ConstantOfShape", [f"{MARK}_shape{k}"], [other], value=zero))
        made.node.append(helper.make_node("Where", [names["goes"], value.name, other], [f"{MARK}_kept{k}"]))
        outputs.append(helper.make_empty_tensor_value_info(f"{MARK}_kept{k}"))
    inputs = [helper.make_empty_tensor_value_info(names["step"]), *made.input]
    del made.input[:], made.output[:]
    made.input.extend(inputs)
    made.output.extend(outputs)
    return made
