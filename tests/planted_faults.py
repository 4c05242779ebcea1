"""Faults planted in networks: does the comparison with ONNX Runtime see each of them?

    python tests/planted_faults.py            prints the table
    python tests/planted_faults.py --write    also writes it to tests/bench/results/planted_faults.md

Nineteen faults that an importer could have, one at a time: the network is changed, imported, planned for two devices
and run, and held against ONNX Runtime's values of the network as it is. The comparison, its tolerance and its inputs
are those by which the networks' tests pass, before softmax. A fault that makes no other shape is the hard kind: all of
these are so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [] if str(ROOT) in sys.path else [str(ROOT)]

from tapestry_exec import difference, run  # noqa: E402
from tapestry_plan import Mesh, load_onnx, plan  # noqa: E402
from tapestry_plan.onnx import before_softmax, he_random, light_model  # noqa: E402
from tests.test_networks import BOUND, RESNET, reference  # noqa: E402
from tests.test_transformers import TOLERANCE, strong  # noqa: E402

RESULTS = ROOT / "tests" / "bench" / "results" / "planted_faults.md"


class Network(NamedTuple):
    """A model, its inputs, and the values that it has by ONNX Runtime."""

    model: Any
    outputs: tuple[str, ...]
    inputs: dict[str, Any]
    expected: dict[str, Any]
    tolerance: float


@cache
def network(name: str) -> Network:
    """A network as its tests have it."""
    rng, tolerance = np.random.default_rng(2), BOUND
    if name in ("bert", "gpt2"):
        model, tolerance = strong(name), TOLERANCE
    else:
        model = he_random(onnx.load(RESNET), seed=1) if name == "resnet" else light_model(name, seed=1)
    outputs = before_softmax(model)
    inputs: dict[str, Any] = {}
    for tensor in load_onnx(model, outputs=outputs).stored.values():
        if tensor.kind == "input":
            is_float = tensor.dtype == "float32"
            inputs[tensor.name] = rng.standard_normal(tensor.shape) if is_float else rng.integers(0, 100, tensor.shape)
            inputs[tensor.name] = inputs[tensor.name].astype(tensor.dtype)
    return Network(model, outputs, inputs, reference(model, outputs, inputs), tolerance)


def measure(name: str, change: Callable[[Any], None]) -> float:
    """How far a changed network is from the one as it is: max|difference| / max|reference| of the worst output."""
    one = network(name)
    model = onnx.ModelProto()
    model.CopyFrom(one.model)
    change(model)
    del model.graph.value_info[:]  # shapes that it declares say nothing of what is computed
    result = run(plan(load_onnx(model, outputs=one.outputs), Mesh((2,)), expand=False), one.inputs)
    return max(difference(result.outputs[key], value) for key, value in one.expected.items())


# -- how a model is changed --------------------------------------------------------------------------------


def nodes_of(model: Any, op: str) -> list[Any]:
    return [node for node in model.graph.node if node.op_type == op]


def put(node: Any, **attrs: Any) -> None:
    """Give attributes of a node other values."""
    for name, value in attrs.items():
        for k in reversed(range(len(node.attribute))):
            if node.attribute[k].name == name:
                del node.attribute[k]
        node.attribute.append(helper.make_attribute(name, value))


def drop(node: Any, *names: str) -> None:
    for k in reversed(range(len(node.attribute))):
        if node.attribute[k].name in names:
            del node.attribute[k]


def change_value(model: Any, name: str, change: Callable[[Any], Any]) -> None:
    """Give an initializer other values."""
    (tensor,) = (one for one in model.graph.initializer if one.name == name)
    array = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(array)), name))


def pass_on(node: Any, k: int = 0) -> None:
    """Let a node give its operand on as it is."""
    name = node.input[k]
    del node.attribute[:], node.input[:]
    node.op_type = "Identity"
    node.input.append(name)


def of_size(model: Any, size: int, k: int = 0) -> Any:
    """Convolution k of some kernel's extent."""
    found = [n for n in nodes_of(model, "Conv") if [*attr(n, "kernel_shape")] == [size, size]]
    return found[k]


def attr(node: Any, name: str) -> Any:
    return next(helper.get_attribute_value(one) for one in node.attribute if one.name == name)


def reader(model: Any, op: str, name: str) -> Any:
    """The first node of a type that reads a tensor."""
    return next(node for node in nodes_of(model, op) if name in node.input)


# -- the faults --------------------------------------------------------------------------------------------


def swap_activation(model: Any) -> None:
    nodes_of(model, "Relu")[-1].op_type = "LeakyRelu"


def swap_pool(model: Any) -> None:
    node = nodes_of(model, "MaxPool")[0]
    node.op_type = "AveragePool"
    drop(node, "storage_order")


def shift_padding(model: Any) -> None:
    put(of_size(model, 3), pads=[0, 0, 2, 2])


def shrink_window(model: Any) -> None:
    put(nodes_of(model, "MaxPool")[0], kernel_shape=[2, 2], pads=[0, 0, 0, 0])


def drop_column(model: Any) -> None:
    def cut(weight: Any) -> Any:
        weight = weight.copy()
        weight[..., -1] = 0
        return weight

    change_value(model, of_size(model, 3, -1).input[1], cut)


def change_stride(model: Any) -> None:
    put(of_size(model, 3, 1), strides=[3, 3], pads=[4, 4, 4, 4])


def drop_shortcut(model: Any) -> None:
    pass_on(nodes_of(model, "Add")[-1])


def swap_reduction(model: Any) -> None:
    nodes_of(model, "ReduceMean")[0].op_type = "ReduceMax"


def turn_concat(model: Any) -> None:
    node = nodes_of(model, "Concat")[0]
    names = list(node.input)[::-1]
    del node.input[:]
    node.input.extend(names)


def drop_bias(model: Any) -> None:
    node = nodes_of(model, "Conv")[-1]
    del node.input[2]


def change_dilation(model: Any) -> None:
    put(of_size(model, 3, 2), dilations=[2, 2], pads=[2, 2, 2, 2])


def transpose_weight(model: Any) -> None:
    change_value(model, nodes_of(model, "MatMul")[0].input[1], np.transpose)


def approximate_gelu(model: Any) -> None:
    for node in nodes_of(model, "Gelu"):
        put(node, approximate="tanh")


def change_softmax_axis(model: Any) -> None:
    put(nodes_of(model, "Softmax")[-1], axis=-2)


def change_epsilon(model: Any) -> None:
    put(nodes_of(model, "LayerNormalization")[0], epsilon=1e-6)


def drop_scale(model: Any) -> None:
    queries = nodes_of(model, "MatMul")[0].input[0]
    pass_on(next(node for node in nodes_of(model, "Mul") if queries in node.output))


def drop_mask(model: Any) -> None:
    pass_on(reader(model, "Add", nodes_of(model, "MatMul")[0].output[0]))


def shift_positions(model: Any) -> None:
    change_value(model, "wpe.weight", lambda array: np.roll(array, 1, axis=0))


def swap_keys_and_values(model: Any) -> None:
    node = nodes_of(model, "Split")[0]
    node.output[1], node.output[2] = node.output[2], node.output[1]


FAULTS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "leaky ReLU for ReLU": ("resnet", swap_activation),
    "average pool for max pool": ("resnet", swap_pool),
    "padding of a convolution shifted by one": ("resnet", shift_padding),
    "window of a pool 2 for 3": ("resnet", shrink_window),
    "last column of a kernel left out": ("resnet", drop_column),
    "stride 3 for 2": ("resnet", change_stride),
    "shortcut left out": ("resnet", drop_shortcut),
    "maximum for mean": ("resnet", swap_reduction),
    "concatenated in the other order": ("squeezenet", turn_concat),
    "bias left out": ("squeezenet", drop_bias),
    "dilation 2 for 1": ("squeezenet", change_dilation),
    "weight transposed": ("bert", transpose_weight),
    "GELU by tanh": ("bert", approximate_gelu),
    "softmax along the queries": ("gpt2", change_softmax_axis),
    "epsilon of a normalization 1e-6 for 1e-5": ("gpt2", change_epsilon),
    "scale of queries left out": ("gpt2", drop_scale),
    "causal mask left out": ("gpt2", drop_mask),
    "positions shifted by one": ("gpt2", shift_positions),
    "keys for values": ("gpt2", swap_keys_and_values),
}
"""By what is wrong, the network and the change."""


def list_lines(found: dict[str, float], unchanged: dict[str, float]) -> list[str]:
    lines = ["| fault | network | difference | tolerance | without it | seen |", "|---|---|---|---|---|---|"]
    for fault, apart in found.items():
        name = FAULTS[fault][0]
        tolerance = network(name).tolerance
        seen = "yes" if apart >= tolerance else "**no**"
        lines.append(f"| {fault} | {name} | {apart:.1e} | {tolerance:.0e} | {unchanged[name]:.1e} | {seen} |")
    return lines


def main(argv: Sequence[str]) -> None:
    found = {fault: measure(*FAULTS[fault]) for fault in FAULTS}
    unchanged = {name: measure(name, lambda model: None) for name in {name for name, _ in FAULTS.values()}}
    lines = list_lines(found, unchanged)
    count = sum(apart >= network(FAULTS[fault][0]).tolerance for fault, apart in found.items())
    lines += [
        "",
        f"{count} of {len(found)} are seen. Differences are those of `difference`, before softmax.",
    ]
    print("\n".join(lines))
    if "--write" in argv:
        RESULTS.write_text("\n".join(["# Planted faults", "", *lines]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
