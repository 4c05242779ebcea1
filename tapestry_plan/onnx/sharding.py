"""Where a plan's tensors lie, in its ONNX model: `ShardingSpecProto`s of IR version 11.

A node says of each tensor that it reads or makes along which axes it is cut in how many parts, and which device has
each part, row-major. Where several devices have a part it names a group of them::

    rows in two parts, on devices 0 1 and 2 3      sharded_dim: axis 0, 2 shards
                                                   device: -1, -2        -1: 0, 1    -2: 2, 3
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from tapestry_plan.onnx import tuning
from tapestry_plan.steps import FineMesh, MeshPlacement, ShardPlan

CONFIGURATION = "plan"


def add_shardings(model: Any, plan: ShardPlan, names: Mapping[str, str]) -> None:
    """Write into a model where a plan's tensors lie.

    Parameters
    ----------
    model : onnx.ModelProto
        Of the plan's graph.
    plan : ShardPlan
    names : mapping of str to str
        What each tensor of the graph is called in the model.

    Raises
    ------
    NotExported
        Where some tensor lies as cannot be said; with all reasons.
    """
    from onnx import DeviceConfigurationProto, NodeDeviceConfigurationProto

    found = plan.to_dask_chunks()  # parts of any sizes: a sharding of ONNX has no sizes, so that they must be even
    found.check()
    found.check_even("ONNX")
    model.ir_version = max(model.ir_version, tuning.SHARDED_IR_VERSION)
    devices = [f"device {device}" for device in range(plan.mesh.size)]
    model.configuration.append(DeviceConfigurationProto(name=CONFIGURATION, num_devices=plan.mesh.size, device=devices))
    specs = {
        names[name]: _write_spec(names[name], placement, found.mesh)
        for name, placement in found.placements.items()
        if name in names
    }
    for node in model.graph.node:
        mine = [specs[name] for name in dict.fromkeys((*node.input, *node.output)) if name in specs]
        if mine:
            node.device_configurations.append(
                NodeDeviceConfigurationProto(configuration_id=CONFIGURATION, sharding_spec=mine)
            )


def _write_spec(name: str, placement: MeshPlacement, mesh: FineMesh) -> Any:
    from onnx import IntIntListEntryProto, ShardedDimProto, ShardingSpecProto, SimpleShardedDimProto

    spec = ShardingSpecProto(tensor_name=name)
    for axis, sizes in enumerate(placement.sizes):
        if len(sizes) > 1:
            parts = SimpleShardedDimProto(dim_value=placement.shape[axis], num_shards=len(sizes))
            spec.sharded_dim.append(ShardedDimProto(axis=axis, simple_sharding=[parts]))
    groups = list_devices(placement, mesh)
    for number, group in enumerate(groups):
        if len(group) == 1:
            spec.device.append(group[0])
        else:
            spec.device.append(-number - 1)
            spec.index_to_device_group_map.append(IntIntListEntryProto(key=-number - 1, value=group))
    return spec


def list_devices(placement: MeshPlacement, mesh: FineMesh) -> list[list[int]]:
    """The devices that have each part of a tensor, of its parts in row-major order.

    Examples
    --------
    >>> mesh = FineMesh((2, 2), ("a", "b"))
    >>> list_devices(MeshPlacement((4, 6), "result", (("b",), ()), ((2, 2), (6,)), (0, 0)), mesh)
    [[0, 2], [1, 3]]
    """
    numbers = np.arange(int(np.prod(mesh.shape, dtype=np.int64))).reshape(mesh.shape)
    axes = [mesh.names.index(name) for along in placement.axes for name in along]
    found = []
    for at in product(*(range(mesh.shape[axis]) for axis in axes)):
        where: list[Any] = [slice(None)] * len(mesh.shape)
        for axis, k in zip(axes, at, strict=True):
            where[axis] = k
        found.append(np.ravel(numbers[tuple(where)]).tolist())
    return found
