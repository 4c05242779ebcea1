"""Nodes of ONNX models, and the part of a model that an operator's importer sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.ir import Graph, Tensor, UnsupportedOp
from tapestry_plan.onnx import tuning
from tapestry_sets.limits import Budget

Array = NDArray[Any]


@dataclass(frozen=True)
class Node:
    """One node of a model, its attributes as Python values and missing inputs at the end left out."""

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    proto: Any = field(repr=False)
    captured: tuple[str, ...] | None = None
    """What the graphs inside the node read, None when there are none."""

    def input(self, k: int) -> str:
        """Name of input k, empty when it is not given."""
        return self.inputs[k] if k < len(self.inputs) else ""

    @property
    def operator(self) -> str:
        """Its key in the table of importers: the type, after the domain where that is not ONNX's own."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    @property
    def where(self) -> str:
        """How messages name the node."""
        return f"node {self.name!r} ({self.op_type})"


class TooLargeToFold(ValueError):
    """To evaluate a node at import would take more bytes than an import may."""


class Importing:
    """The state of an import: tensors made so far, and values known in advance."""

    def __init__(self, model: Any, path: Path | None, opset: int, weights: Sequence[str]) -> None:
        self.graph = Graph(model.graph.name or (path.stem if path else "graph"))
        self.opset = opset
        self._path = path
        self.tensors: dict[str, Tensor] = {}
        self._values: dict[str, Any] = {tensor.name: tensor for tensor in model.graph.initializer}
        self._from_file = {name: name for name in weights} if path else {}
        self._budget = Budget(tuning.FOLDED_NBYTES + tuning.FOLDED_TIMES * int(model.ByteSize()))
        self.unfolded: dict[str, str] = {}
        """Tensors that depend on no input, but are too large to be known; and why."""

    def has(self, name: str) -> bool:
        """Whether a model tensor has been made, or its value is known."""
        return name in self.tensors or name in self._values

    def is_known(self, name: str) -> bool:
        """Whether the value of a model tensor is known in advance."""
        return name in self._values

    def value(self, name: str) -> Array:
        """The value of a model tensor that is known."""
        found = self._values.get(name)
        if found is None:
            raise ValueError(f"no node makes tensor {name!r}; check the outputs of the nodes")
        if isinstance(found, np.ndarray):
            return found
        from onnx import numpy_helper

        try:
            array = self._values[name] = np.asarray(numpy_helper.to_array(found))
        except (ValueError, TypeError) as error:
            raise ValueError(f"tensor {name!r} cannot be read: {error}") from None
        return array

    def spend(self, node: Node, nbytes: int) -> None:
        """Take bytes that a node reads and makes at import from those that the import may.

        Raises
        ------
        TooLargeToFold
            If fewer are left; the budget is then as it was.
        """
        left = max(self._budget.left, 0)
        if nbytes > left:
            raise TooLargeToFold(
                f"{node.where} would read and make {nbytes:,} bytes at import, where {left:,} are left of the "
                f"{self._budget.most:,} that known values may take; store its values in the model, or let them depend "
                "on an input"
            )
        self._budget.spend(nbytes)

    def fill(self, node: Node, value: Any, shape: Sequence[int]) -> Tensor | Array:
        """A number in every cell of a shape: known while known values may take more bytes, else a view of it."""
        one = np.asarray(value).reshape(())
        try:
            self.spend(node, prod(shape) * one.itemsize)
        except TooLargeToFold:
            return self.graph.constant(f"{node.name}.value", one).broadcast_to(tuple(shape))
        return np.full(shape, one)

    def tensor(self, name: str) -> Tensor:
        """The graph's tensor for a model tensor; a known value becomes a constant when it is first used."""
        found = self.tensors.get(name)
        if found is None:
            array = self.value(name)
            if array.dtype.kind not in "fiub" or array.dtype.isbuiltin != 1:
                raise ValueError(f"tensor {name!r} is {array.dtype}, which is not a dtype of NumPy")
            origin = self._from_file.get(name)
            path = f"{self._path}#{origin}" if origin is not None else None
            found = self.tensors[name] = self.graph.constant(name, array, path)
        return found

    def inputs(self, node: Node) -> list[Tensor]:
        """All inputs of a node as tensors."""
        return [self.tensor(name) for name in node.inputs]

    def constant(self, node: Node, k: int, label: str) -> Array | None:
        """The value of input k, None when it is not given.

        Raises
        ------
        UnsupportedOp
            When the model computes it.
        """
        name = node.input(k)
        if not name:
            return None
        if not self.is_known(name):
            raise refusal(node, f"its input {k} ({label}) is {name!r}, {self._describe_unknown(name)}")
        return self.value(name)

    def _describe_unknown(self, name: str) -> str:
        """What a tensor's value depends on, and how that can be made known."""
        behind = sorted(self._inputs_behind(name))
        if not behind and self.unfolded:
            return f"which is not known: {self.unfolded.get(name) or next(iter(self.unfolded.values()))}"
        listed = ", ".join([*map(repr, behind[:3]), *(["…"] if len(behind) > 3 else [])])
        whence = "an input of the model" if behind == [name] else f"which the model computes from {listed}"
        mend = f"values={{{behind[0]!r}: …}} or --value {behind[0]}=…" if behind else "values= or --value"
        return f"{whence}; it must be known in advance: where you know it, give it with {mend}"

    def _inputs_behind(self, name: str) -> set[str]:
        """The inputs of the graph that a tensor is computed from."""
        makers = {out: node for node in self.graph.nodes.values() for out in node.outputs}
        behind: set[str] = set()
        todo = {self.tensors[name].name}
        while todo:
            found = set(self.graph.source(todo.pop()).stored) - behind
            behind |= found
            todo.update(name for stored in found if stored in makers for name in makers[stored].inputs)
        return {name for name in behind if self.graph.stored[name].kind == "input"}

    def ints(self, node: Node, k: int, label: str) -> list[int] | None:
        """The value of input k as a list of ints, or of the attribute of that name, or None."""
        value = self.constant(node, k, label)
        if value is not None:
            return [int(v) for v in value.reshape(-1)]
        found = node.attrs.get(label)
        return None if found is None else [int(v) for v in found]

    def bind(self, name: str, result: Tensor | Array) -> None:
        """Bind the name of a model tensor to a tensor of the graph, or to a value."""
        if isinstance(result, Tensor):
            self.tensors[name] = result
        else:
            self._values[name] = result
            self._from_file.pop(name, None)  # an initializer that the user has given another value

    def alias(self, name: str, of: str) -> None:
        """Let one model tensor be another."""
        if self.is_known(of):
            self._values[name] = self._values[of]
            if of in self._from_file:
                self._from_file[name] = self._from_file[of]
        if of in self.tensors:
            self.tensors[name] = self.tensors[of]

    def dtype(self, code: int) -> str:
        """NumPy's name of an element type of ONNX."""
        from onnx import helper

        return str(helper.tensor_dtype_to_np_dtype(code).name)

    def view(self, node: Node, kind: Any, *names: str) -> Tensor:
        """A selection over model tensors, called like the node."""
        return self.graph.select(kind, *(self.tensor(name) for name in names), name=node.name)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a model tensor."""
        return self.tensors[name].shape if name in self.tensors else self.value(name).shape


Result = Tensor | list[Tensor] | None


def refusal(node: Node, why: str) -> UnsupportedOp:
    """The error for a node with a feature that its operator here lacks."""
    return UnsupportedOp(f"{node.where}: {why}")


class Import(Struct, frozen=True):
    """How one operator of ONNX is imported.

    Parameters
    ----------
    add : callable
        ``(importer, node)``: adds what the node becomes to the graph.
    least, most : int
        How many inputs the operator takes; the first `least` must be given. With `most` None it takes any
        number, all given.
    """

    add: Callable[[Importing, Node], Result]
    least: int = 1
    most: int | None = 1

    def check_inputs(self, node: Node) -> None:
        """Raise ValueError when a node has too few inputs or too many, or leaves out one that is needed."""
        count = len(node.inputs)
        if count < self.least or (self.most is not None and count > self.most):
            takes = f"{self.least} or more" if self.most is None else f"{self.least} to {self.most}"
            takes = str(self.least) if self.least == self.most else takes
            raise ValueError(f"{node.where} has {count} inputs; {node.op_type} takes {takes}: export the model again")
        required = node.inputs if self.most is None else node.inputs[: self.least]
        if "" in required:
            raise ValueError(
                f"{node.where} leaves out its input {required.index('')}, which {node.op_type} needs: export it again"
            )
