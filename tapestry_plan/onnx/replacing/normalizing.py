"""Batch normalizations behind convolutions, folded into their weights at import.

What an inferred batch normalization does to each channel, a convolution can do itself::

    scale · (w ∗ x + b - mean) / √(variance + ε) + bias   =   (w · f) ∗ x + (b - mean) · f + bias      f = scale / √(…)

The numbers are those of the model up to rounding: the new weights are worked out in float64 and rounded once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tapestry_plan.onnx.nodes import Array, Importing, Node, TooLargeToFold, check_attributes

FLOATS = ("float32", "float64")
"""Of these nothing is lost but by rounding; half-precision weights may leave their range."""


class Folding:
    """Which convolutions take which batch normalizations in.

    Parameters
    ----------
    nodes : sequence of Node
        Those that the graph needs.
    outputs : sequence of str
        Tensors that must be there in the end.
    """

    def __init__(self, nodes: Sequence[Node], outputs: Sequence[str]) -> None:
        reads = Counter(name for node in nodes for name in (*node.inputs, *(node.captured or ())))
        makers = {node.outputs[0]: node for node in nodes if node.operator == "Conv" and len(node.outputs) == 1}
        self._behind = {
            node.inputs[0]: node
            for node in nodes
            if node.operator == "BatchNormalization"
            and len(node.inputs) == 5
            and sum(map(bool, node.outputs)) == 1
            and node.inputs[0] in makers
            and reads[node.inputs[0]] == 1
            and node.inputs[0] not in outputs
        }
        self._done: set[str] = set()

    def fold(self, nodes: Sequence[Node], at: Importing) -> Iterator[Node]:
        """The nodes in turn, each when those before are added: convolutions with what they take in, and the others."""
        for node in nodes:
            after = self._behind.get(node.outputs[0]) if node.outputs else None
            if after is not None:
                node = self._join(node, after, at)
            if node.outputs and node.outputs[0] in self._done and node.operator == "BatchNormalization":
                continue
            yield node

    def _join(self, conv: Node, norm: Node, at: Importing) -> Node:
        """A convolution that makes what the normalization behind it would; itself where values are not known."""
        given = [*conv.inputs[1:], *norm.inputs[1:]]
        if not all(given) or not all(map(at.is_known, given)) or int(norm.attrs.get("training_mode", 0)):
            return conv
        weight, *bias = (at.value(name) for name in conv.inputs[1:])
        numbers = tuple(at.value(name) for name in norm.inputs[1:])
        is_same = {str(array.dtype) for array in (weight, *bias, *numbers)} == {str(weight.dtype)}
        fits = weight.ndim > 2 and all(array.shape == weight.shape[:1] for array in (*bias, *numbers))
        if not is_same or str(weight.dtype) not in FLOATS or not fits:
            return conv
        try:
            at.spend(conv, 2 * weight.nbytes)
        except TooLargeToFold:
            return conv
        check_attributes(norm, at.opset)
        made = fold_numbers(weight, bias[0] if bias else None, numbers, float(norm.attrs.get("epsilon", 1e-5)))
        at.importers[norm.operator].check_read(norm, at.opset)
        if not all(np.isfinite(array).all() for array in made):
            return conv
        names = [_name(at, f"{norm.name}.{what}") for what in ("weight", "bias")]
        for name, array in zip(names, made, strict=True):
            at.bind_computed(norm, name, array)
        self._done.add(norm.outputs[0])
        proto = type(conv.proto)()
        proto.CopyFrom(conv.proto)
        proto.input[:], proto.output[:] = (conv.inputs[0], *names), norm.outputs[:1]
        return replace(conv, inputs=tuple(proto.input), outputs=tuple(proto.output), proto=proto)


def fold_numbers(weight: Array, bias: Array | None, numbers: tuple[Array, ...], epsilon: float) -> tuple[Array, Array]:
    """Weights and bias of a convolution that also normalizes what it makes, by scale, offset, mean and variance."""
    scale, offset, mean, variance = numbers
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
    before = -mean.astype(np.float64) if bias is None else bias.astype(np.float64) - mean
    wide = weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))
    return wide.astype(weight.dtype), (before * factor + offset).astype(weight.dtype)


def _name(at: Importing, wanted: str) -> str:
    """A name that no tensor of the model has."""
    name, k = wanted, 0
    while at.has(name):
        name, k = f"{wanted}.{k}", k + 1
    return name
