"""The main job: real networks, planned, run and compared with ONNX Runtime."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tapestry_exec import run
from tapestry_plan import Graph, Mesh, load_onnx, plan
from tapestry_plan.onnx import before_softmax, he_random, light_model

RESNET = Path(__file__).parent / "models" / "resnet.onnx"
NETWORKS = ("squeezenet", "small_resnet", "bvlc_alexnet", "resnet50")
BOUND = 1e-4


@lru_cache(maxsize=1)
def network(name: str) -> tuple[Graph, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A network with seeded He-random weights, an input, and ONNX Runtime's values before softmax."""
    model = he_random(onnx.load(RESNET), seed=1) if name == "small_resnet" else light_model(name, seed=1)
    names = before_softmax(model)
    graph = load_onnx(model, outputs=names)
    rng = np.random.default_rng(2)
    inputs = {
        tensor.name: rng.standard_normal(tensor.shape).astype(np.float32)
        for tensor in graph.stored.values()
        if tensor.kind == "input"
    }
    return graph, inputs, reference(model, names, inputs)


def reference(model: Any, names: tuple[str, ...], inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The values of some tensors as ONNX Runtime computes them."""
    known = {output.name for output in model.graph.output}
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in names if n not in known)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(copy.SerializeToString(), options, ["CPUExecutionProvider"])
    return dict(zip(names, session.run(list(names), inputs), strict=True))


DONE_TWICE = {("small_resnet", 4): 1.06, ("small_resnet", 6): 1.25}
"""Where a message costs more than the work, some is done twice: times the graph's flop, at most."""


def is_large(name: str) -> bool:
    return name in ("bvlc_alexnet", "resnet50")


def weight(name: str, devices: int) -> tuple[Any, ...]:
    """Small networks always run; of the large ones the default run takes a fixed sample."""
    heavy = (pytest.mark.heavy,) if is_large(name) and (name, devices) != ("resnet50", 4) else ()
    return pytest.param(name, devices, marks=heavy, id=f"{name}-{devices}")


@pytest.mark.parametrize(
    ("name", "devices"), [weight(name, devices) for name in NETWORKS for devices in (1, 2, 3, 4, 6)]
)
def test_networks_run_sharded(name: str, devices: int) -> None:
    graph, inputs, expected = network(name)
    p = plan(graph, Mesh((devices,)))

    # The work is really divided, counted from the index boxes themselves.
    total = graph.flop()
    done = [0.0] * devices
    for node, places in p.placement.items():
        per_point = graph.ops[graph.nodes[node].op].flop_per_point(graph.signature(node), graph.nodes[node].attrs)
        for device, boxes in places.items():
            done[device] += per_point * sum(prod(box.shape) for box in boxes)
    assert sum(done) <= DONE_TWICE.get((name, devices), 1.11 if is_large(name) else 1.001) * total
    assert max(done) <= 1.5 / devices * total
    assert tuple(done) == pytest.approx(p.flop)

    # Every split axis has as many non-empty parts as it says, and at least two.
    for node, cuts in p.sharding.items():
        for axis, parts in cuts.items():
            at = graph.signature(node).axis(axis)
            spans = {(box.start[at], box.shape[at]) for boxes in p.placement[node].values() for box in boxes}
            assert len(spans) == parts >= 2 and all(n > 0 for _, n in spans)
            assert sum(n for _, n in spans) == graph.signature(node).axes[at].size
    if devices > 1:
        assert sum(bool(cuts) for cuts in p.sharding.values()) >= 0.8 * len(p.sharding)

    result = run(p, inputs)
    assert result.nbytes_received == p.nbytes_received
    assert result.nbytes_by_link == p.nbytes_by_link
    assert result.peak_nbytes == p.peak_nbytes
    assert p.gap == 0
    for output, values in expected.items():
        difference = np.abs(result.outputs[output] - values).max() / np.abs(values).max()
        assert difference < BOUND, f"{output}: {difference}"
        assert np.abs(values).max() > 0.1, "a network whose values vanish shows nothing"


@pytest.mark.parametrize("mesh", [(2, 2), (3, 2)])
def test_meshes_of_two_axes(mesh: tuple[int, ...]) -> None:
    graph, inputs, expected = network("squeezenet")
    result = run(plan(graph, Mesh(mesh)), inputs)
    for output, values in expected.items():
        assert np.abs(result.outputs[output] - values).max() / np.abs(values).max() < BOUND


def test_one_copy_of_every_weight_at_the_start() -> None:
    """placement="single": every further copy of a weight is moved, and counted."""
    graph, inputs, expected = network("small_resnet")
    p = plan(graph, Mesh((3,)), placement="single")
    result = run(p, inputs)
    stored = sum(prod(t.shape) * t.itemsize for t in graph.stored.values() if t.kind != "result")
    assert sum(p.nbytes_placed) == stored == sum(result.nbytes_placed)
    assert result.nbytes_moved == p.nbytes_moved > plan(graph, Mesh((3,))).nbytes_moved
    for output, values in expected.items():
        assert np.abs(result.outputs[output] - values).max() / np.abs(values).max() < BOUND
