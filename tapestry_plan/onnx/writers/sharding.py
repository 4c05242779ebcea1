"""How a plan cuts its operators, in its ONNX model: `ShardingSpecProto`s of IR version 11.

A node says of each tensor that it reads how it is cut when the node runs, and of each that it makes where it is made:
along which axes, in how many parts, and which device has each part, row-major. Where several devices have a part it
names a group of them::

    rows in two parts, on devices 0 1 and 2 3      sharded_dim: axis 0, 2 shards
                                                   device: -1, -2        -1: 0, 1    -2: 2, 3

    product with k in two parts                    a: axis 1, 2 shards    b: axis 0, 2 shards

A block of several operators is a node for each. What is between them is stored nowhere, and said where it is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tapestry_plan.ir import Graph, OpNode
from tapestry_plan.onnx import tuning
from tapestry_plan.steps import NotExported, Shardings, ShardPlan, TensorBlocks, check_even, cut_boxes
from tapestry_sets.limits import quote, tell_count
from tapestry_sets.regions import Box

CONFIGURATION = "plan"


def add_shardings(model: Any, plan: ShardPlan, graph: Graph, names: Mapping[str, str], made_for: Sequence[str]) -> None:
    """Write into a model how a plan cuts its operators.

    Parameters
    ----------
    model : onnx.ModelProto
        Of the graph.
    plan : ShardPlan
    graph : Graph
        The plan's, with the operators of its blocks apart.
    names : mapping of str to str
        What each tensor of the graph is called in the model.
    made_for : sequence of str
        Of each node of the model the operator of the graph that it is a part of.

    Raises
    ------
    ImportError
        For an onnx package that has no shardings.
    NotExported
        As `list_shardings`.
    """
    try:
        from onnx import DeviceConfigurationProto, NodeDeviceConfigurationProto
    except ImportError:
        raise ImportError("onnx has no ShardingSpecProto before its version 1.18; pip install --upgrade onnx") from None

    specs = {
        operator: {names[tensor]: _write_spec(names[tensor], blocks) for tensor, blocks in found.items()}
        for operator, found in list_shardings(plan, graph).items()
    }
    model.ir_version = max(model.ir_version, tuning.SHARDED_IR_VERSION)
    devices = [f"device {device}" for device in range(plan.mesh.size)]
    model.configuration.append(DeviceConfigurationProto(name=CONFIGURATION, num_devices=plan.mesh.size, device=devices))
    for node, operator in zip(model.graph.node, made_for, strict=True):
        known = specs.get(operator, {})
        mine = [known[name] for name in dict.fromkeys((*node.input, *node.output)) if name in known]
        if mine:
            node.device_configurations.append(
                NodeDeviceConfigurationProto(configuration_id=CONFIGURATION, sharding_spec=mine)
            )


def list_shardings(plan: ShardPlan, graph: Graph) -> dict[str, dict[str, TensorBlocks]]:
    """By operator of a graph the blocks of the tensors that it reads or makes, as a plan cuts it.

    Parameters
    ----------
    plan, graph
        As of `add_shardings`.

    Raises
    ------
    NotExported
        Where some tensor lies as cannot be said; with all reasons.
    """
    refused: list[str] = []
    made = plan.to_dask_chunks()  # parts of any sizes, with the devices that have them
    found = {name: dict(_list_blocks(plan, graph, made, node, refused)) for name, node in graph.nodes.items()}
    if refused:
        told = tell_count(len(refused), "tensor")
        raise NotExported(f"to_onnx: {told} not in even blocks: {'; '.join(refused)}")
    return found


def _list_blocks(
    plan: ShardPlan, graph: Graph, made: Shardings[Any], node: OpNode, refused: list[str]
) -> Iterator[tuple[str, TensorBlocks]]:
    """What is said of each tensor that an operator reads or makes; reasons where nothing can be are put to others."""
    found = dict[str, TensorBlocks | str]()
    for k, name in enumerate(node.outputs):
        if name in plan.graph.stored:
            found[name] = made.placements.get(name, made.refused.get(name, "it is not made"))
        else:
            found[name] = _find_made(plan, graph, node, k)
    for k, name in enumerate(node.inputs):
        read = _find_reads(plan, graph, node, k)
        found[name] = "it is read twice, in two ways" if found.setdefault(name, read) != read else read
    for name, blocks in found.items():
        try:
            if isinstance(blocks, str):
                raise NotExported(blocks)
            check_even(blocks, "ONNX")
        except NotExported as error:
            refused.append(f"{quote(name)} at operator {quote(node.name)}: {error}")
            continue
        yield name, blocks


def _find_made(plan: ShardPlan, graph: Graph, node: OpNode, output: int) -> TensorBlocks | str:
    """The blocks of a result that stays inside of a block, as the operator's shards make it."""
    projection = graph.signature(node.name).outputs[output].projection
    boxes = {device: projection.bounding_box(box) for device, (box,) in plan.placement[node.name].items()}
    return cut_boxes("result", graph.stored[node.outputs[output]].shape, boxes)


def _find_reads(plan: ShardPlan, graph: Graph, node: OpNode, operand: int) -> TensorBlocks | str:
    """The blocks of an operand as the operator's shards read it."""
    signature, source = graph.signature(node.name), graph.source(node.inputs[operand])
    boxes: dict[int, Box] = {}
    for device, mine in plan.placement[node.name].items():
        read = [box for each in mine if (box := signature.input_box(operand, each)) is not None]
        if read:  # a shard may read none of an operand, as one that has rows of the other one alone
            low, high = _span(read, source.shape)
            if all(a < b for a, b in zip(low, high, strict=True)):
                boxes[device] = Box.from_bounds(low, high)
    if not boxes:
        return "none of it is read"
    return cut_boxes("result", source.shape, boxes, are_reads=True)


def _span(boxes: Sequence[Box], shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where a box around some boxes begins and ends, as much of it as lies in a tensor."""
    low = tuple(max(0, min(each)) for each in zip(*(box.start for box in boxes), strict=True))
    high = tuple(min(n, max(each)) for n, *each in zip(shape, *(box.stop for box in boxes), strict=True))
    return low, high


def _write_spec(name: str, blocks: TensorBlocks) -> Any:
    from onnx import IntIntListEntryProto, ShardedDimProto, ShardingSpecProto, SimpleShardedDimProto

    spec = ShardingSpecProto(tensor_name=name)
    for axis, sizes in enumerate(blocks.sizes):
        if len(sizes) > 1:
            parts = SimpleShardedDimProto(dim_value=blocks.shape[axis], num_shards=len(sizes))
            spec.sharded_dim.append(ShardedDimProto(axis=axis, simple_sharding=[parts]))
    for number, group in enumerate(blocks.devices):
        if len(group) == 1:
            spec.device.append(group[0])
        else:
            spec.device.append(-number - 1)
            spec.index_to_device_group_map.append(IntIntListEntryProto(key=-number - 1, value=group))
    return spec
