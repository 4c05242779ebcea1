"""Nodes of ONNX models, and the part of a model that an operator's importer sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from tapestry_plan.ir import Graph, Tensor, UnsupportedOp

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


class Importing(Protocol):
    """What the importers of single operators are given: the tensors and values known so far, and the graph."""

    graph: Graph
    what: str
    opset: int

    def value(self, name: str) -> Array: ...

    def is_known(self, name: str) -> bool: ...

    def tensor(self, name: str) -> Tensor: ...

    def inputs(self, node: Node) -> list[Tensor]: ...

    def constant(self, node: Node, k: int, label: str) -> Array | None: ...

    def ints(self, node: Node, k: int, label: str) -> list[int] | None: ...

    def bind(self, name: str, result: Tensor | Array) -> None: ...

    def alias(self, name: str, of: str) -> None: ...

    def view(self, node: Node, kind: Any, *names: str) -> Tensor: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def dtype(self, code: int) -> str: ...


Result = Tensor | list[Tensor] | None


def refusal(at: Importing, node: Node, why: str) -> UnsupportedOp:
    """The error for a node that asks for what its operator here cannot do."""
    return UnsupportedOp(f"load_onnx: {at.what}: {node.where}: {why}")


@dataclass(frozen=True)
class Import:
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

    def check_inputs(self, node: Node, what: str) -> None:
        """Raise ValueError when a node has too few inputs or too many, or leaves out one that is needed."""
        count = len(node.inputs)
        if count < self.least or (self.most is not None and count > self.most):
            takes = f"{self.least} or more" if self.most is None else f"{self.least} to {self.most}"
            raise ValueError(
                f"load_onnx: {what}: {node.where} has {count} inputs; {node.op_type} takes "
                f"{self.least if self.least == self.most else takes}: export the model again"
            )
        required = node.inputs if self.most is None else node.inputs[: self.least]
        if "" in required:
            raise ValueError(
                f"load_onnx: {what}: {node.where} leaves out its input {required.index('')}, which {node.op_type} "
                "needs: export the model again"
            )
