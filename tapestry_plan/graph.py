"""Graphs: stored tensors, operators between them, and selections (views) that are never stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from operator import index
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from tapestry_plan.selection import check_pieces
from tapestry_plan.signature import Signature
from tapestry_sets import (
    Box,
    Concat,
    Piece,
    Viewable,
    ViewKind,
    compose_pieces,
    identity_piece,
)

Shape = tuple[int, ...]
Attrs = Mapping[str, Any]
GRAPH_FORMAT = "tapestry-graph/1"


class UnsupportedOp(ValueError):
    """A model asks for operators that have no declaration."""


@dataclass(frozen=True, slots=True)
class Shard:
    """What a block function is told of its part of the work.

    Parameters
    ----------
    index : Box
        The part of the index space to compute.
    signature : Signature
        Of the whole operator.
    attrs : mapping
        The operator's attributes.
    input_boxes : tuple of Box or None
        Coordinates of the input blocks in their tensors; None for an input that this part does not read.
    output_boxes : tuple of Box
        Coordinates of the output blocks.
    workspace : array of uint8
        As many bytes as the operator declared, or more; its content is undefined.
    """

    index: Box
    signature: Signature
    attrs: Attrs
    input_boxes: tuple[Box | None, ...]
    output_boxes: tuple[Box, ...]
    workspace: Any

    def range(self, axis: str) -> tuple[int, int]:
        """Begin and end of this part along an index axis, by name."""
        k = self.signature.axis(axis)
        return self.index.start[k], self.index.start[k] + self.index.shape[k]


class Block(Protocol):
    """Computes one shard: reads the input blocks, writes the output blocks in place, keeps nothing."""

    def __call__(self, xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard, /) -> None: ...


def _first_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    return (dtypes[0],)


def _no_workspace(shard: Shard, itemsize: int) -> int:
    return 0


@dataclass(frozen=True)
class Op:
    """The one declaration of an operator.

    Parameters
    ----------
    name : str
        What graphs and plans call it.
    signature : callable
        ``(input shapes, attrs) -> Signature``; raises ValueError for shapes that do not fit.
    block : callable
        ``(xp, inputs, outputs, shard)``: writes the output blocks, in place, with functions of the array
        namespace `xp`. With a sharded reduction it writes the partial result of its part.
    flop : float or callable
        Floating-point operations for each index point, or ``(signature, attrs) -> float``.
    reduction : "sum", "prod", "min" or "max", optional
        How partial results merge; needed for signatures with reduction axes.
    dtype : callable
        ``(input dtypes, attrs) -> output dtypes``; the first input's by default.
    workspace : callable
        ``(shard, itemsize) -> nbytes`` of scratch memory that the block wants.
    attributes : tuple of str
        Names of the attributes that it takes; any other is an error.
    """

    name: str
    signature: Callable[[Sequence[Shape], Attrs], Signature]
    block: Block
    flop: float | Callable[[Signature, Attrs], float] = 1.0
    reduction: Literal["sum", "prod", "min", "max"] | None = None
    dtype: Callable[[Sequence[str], Attrs], tuple[str, ...]] = _first_dtype
    workspace: Callable[[Shard, int], int] = _no_workspace
    attributes: tuple[str, ...] = ()

    def flop_per_point(self, signature: Signature, attrs: Attrs) -> float:
        """Floating-point operations at each index point."""
        return self.flop(signature, attrs) if callable(self.flop) else self.flop

    def check_attributes(self, attrs: Attrs, what: str) -> None:
        """Raise ValueError for an attribute that the operator does not take."""
        unknown = [name for name in attrs if name not in self.attributes]
        if unknown:
            raise ValueError(f"{what}: there is no attribute {unknown[0]!r}; {self.name} takes {list(self.attributes)}")


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor that has memory: a graph input, a constant, or an operator's output."""

    name: str
    shape: Shape
    dtype: str
    kind: Literal["input", "constant", "result"]
    data: NDArray[Any] | None = field(default=None, repr=False, compare=False)
    path: str | None = None
    sha256: str | None = None

    @property
    def itemsize(self) -> int:
        """Bytes of one cell."""
        return np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class OpNode:
    """An operator applied to tensors."""

    name: str
    op: str
    attrs: Attrs
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """A view between operators, in the normal form: it has neither placement nor memory."""

    name: str
    label: str
    inputs: tuple[str, ...]
    shape: Shape
    dtype: str
    pieces: tuple[Piece, ...] = field(repr=False)


@dataclass(frozen=True)
class Source:
    """A tensor read through a chain of selections: pieces over the stored tensors."""

    shape: Shape
    dtype: str
    stored: tuple[str, ...]
    pieces: tuple[Piece, ...]

    @cached_property
    def direct(self) -> bool:
        """Whether the tensor is the stored one itself."""
        return len(self.stored) == 1 and self.pieces == (identity_piece(len(self.shape)),)


class Graph:
    """A tensor program: stored tensors, operators and selections, in the order in which they were added.

    Examples
    --------
    >>> from tapestry_plan import Graph, relu
    >>> g = Graph()
    >>> x = g.input("x", (32, 64), "float32")
    >>> w = g.constant("w", np.ones((64, 16), np.float32))
    >>> y = relu(x @ w)
    >>> g.output(y).shape
    (32, 16)
    """

    def __init__(self, name: str = "graph", ops: Mapping[str, Op] | None = None) -> None:
        self.name = name
        self.ops: dict[str, Op] = dict(ops or {})
        self.stored: dict[str, Stored] = {}
        self.selections: dict[str, Selection] = {}
        self.nodes: dict[str, OpNode] = {}
        self.outputs: dict[str, str] = {}
        self._sources: dict[str, Source] = {}
        self._signatures: dict[str, Signature] = {}
        self._numbered: dict[tuple[str, str], int] = {}

    # -- authoring ---------------------------------------------------------------------------------------

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Tensor:
        """Declare a tensor that every run is given."""
        checked = _shape(shape, f"input {name!r}")
        self._new_tensor(Stored(name, checked, _dtype(dtype, f"input {name!r}"), "input"))
        return Tensor(self, name)

    def constant(self, name: str, array: Any, path: str | None = None) -> Tensor:
        """Add a tensor with known values, kept by reference; `path` says where a later run can find it."""
        data = np.ascontiguousarray(array)
        if data.ndim == 0:
            data = data.reshape(np.shape(array))
        self._new_tensor(
            Stored(name, data.shape, _dtype(data.dtype.name, f"constant {name!r}"), "constant", data, path)
        )
        return Tensor(self, name)

    def op(self, op: str | Op, *inputs: Tensor | None, name: str | None = None, **attrs: Any) -> Any:
        """Apply an operator, by name or by declaration.

        Returns
        -------
        Tensor or tuple of Tensor
            Several outputs come as a tuple.

        Raises
        ------
        UnsupportedOp
            When no operator of that name is known.
        ValueError
            When the operands do not fit the operator; the graph is unchanged then.
        """
        declared = self._declare(op)
        node_name = self._fresh(name or declared.name, "node")
        for k, tensor in enumerate(inputs):
            if tensor is not None and tensor.graph is not self:
                raise ValueError(f"{node_name}: input {k} ({tensor.name!r}) belongs to another graph")
        names = tuple(tensor.name for tensor in inputs if tensor is not None)
        present = [self.source(name) for name in names]
        for name, source in zip(names, present, strict=True):
            if 0 in source.shape:
                raise ValueError(f"{node_name}: input {name!r} of shape {source.shape} has no cells; give it some")
        frozen_attrs = dict(sorted(attrs.items()))
        what = f"{declared.name} {node_name!r}"
        declared.check_attributes(frozen_attrs, what)
        try:
            signature = declared.signature([source.shape for source in present], frozen_attrs)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None
        dtypes = declared.dtype([source.dtype for source in present], frozen_attrs)
        shapes = [_covered(operand.projection.bounding_box(signature.index)) for operand in signature.outputs]
        signature.validate([source.shape for source in present], shapes, what)
        if signature.reductions and declared.reduction is None:
            raise ValueError(f"{what}: the signature reduces, but the operator does not say how parts merge")
        outs = [self._fresh(node_name if len(shapes) == 1 else f"{node_name}.{k}") for k in range(len(shapes))]
        self.ops[declared.name] = declared
        self.nodes[node_name] = OpNode(node_name, declared.name, frozen_attrs, names, tuple(outs))
        self._signatures[node_name] = signature
        for out, shape, dtype in zip(outs, shapes, dtypes, strict=True):
            self._new_tensor(Stored(out, shape, dtype, "result"))
        tensors = tuple(Tensor(self, out) for out in outs)
        return tensors[0] if len(tensors) == 1 else tensors

    def select(self, kind: ViewKind, *inputs: Tensor, name: str | None = None) -> Tensor:
        """View tensors through a view kind: a slice, a permutation, a concatenation, …

        The selection is labelled by the name of the kind's class, or the kind's own `label`.

        Raises
        ------
        ValueError
            When the kind does not fit the tensors' shapes, a cell of its view is not one cell of one tensor (see
            `check_selection`), or the tensors' dtypes differ; the graph is unchanged then.
        """
        for k, tensor in enumerate(inputs):
            if tensor.graph is not self:
                raise ValueError(f"select: input {k} ({tensor.name!r}) belongs to another graph")
        shapes = tuple(tensor.shape for tensor in inputs)
        dtypes = {tensor.dtype for tensor in inputs}
        label = getattr(kind, "label", type(kind).__name__.lower())
        if len(dtypes) != 1:
            raise ValueError(f"{label}: the inputs have dtypes {sorted(dtypes)}; cast them to one dtype")
        shape, pieces = tuple(kind.out_shape(shapes)), tuple(kind.pieces(shapes))
        check_pieces(pieces, shape, shapes, label)
        selection = Selection(
            self._fresh(name or label),
            label,
            tuple(tensor.name for tensor in inputs),
            shape,
            dtypes.pop(),
            pieces,
        )
        self.selections[selection.name] = selection
        return Tensor(self, selection.name)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Take back the selections that were added, if one cannot be."""
        before = len(self.selections)
        try:
            yield
        except BaseException:
            while len(self.selections) > before:
                name, _ = self.selections.popitem()
                self._sources.pop(name, None)
            self._numbered.clear()
            raise

    def output(self, tensor: Tensor, name: str | None = None) -> Tensor:
        """Mark a tensor as a result of the graph."""
        if tensor.graph is not self:
            raise ValueError(f"output: {tensor.name!r} belongs to another graph")
        label = name or tensor.name
        if label in self.outputs:
            raise ValueError(f"output: there is an output {label!r} already; give another name")
        self.outputs[label] = tensor.name
        return tensor

    # -- asking ------------------------------------------------------------------------------------------

    def tensor(self, name: str) -> Tensor:
        """The tensor called `name`; KeyError-free: ValueError naming the tensors nearest in name."""
        if name not in self.stored and name not in self.selections:
            raise ValueError(f"graph {self.name!r} has no tensor {name!r}")
        return Tensor(self, name)

    def source(self, name: str) -> Source:
        """How a tensor is read from stored ones: the composition of the selections in front of it."""
        found = self._sources.get(name)
        if found is None:
            found = self._sources[name] = self._resolve(name)
        return found

    def signature(self, node: str) -> Signature:
        """The signature of an operator node."""
        found = self._signatures.get(node)
        if found is None:
            n = self.nodes[node]
            shapes = [self.source(name).shape for name in n.inputs]
            found = self._signatures[node] = self.ops[n.op].signature(shapes, n.attrs)
        return found

    def consumers(self) -> dict[str, list[tuple[str, int]]]:
        """For each stored tensor, the (node, operand) pairs that read it, in the order of the nodes."""
        out: dict[str, list[tuple[str, int]]] = {name: [] for name in self.stored}
        for node in self.nodes.values():
            for k, name in enumerate(node.inputs):
                for stored in self.source(name).stored:
                    out[stored].append((node.name, k))
        return out

    def flop(self) -> float:
        """Floating-point operations of one unsharded run."""
        return sum(
            self.ops[n.op].flop_per_point(self.signature(n.name), n.attrs) * self.signature(n.name).index.size
            for n in self.nodes.values()
        )

    def validate(self) -> None:
        """Check the whole graph again.

        Raises
        ------
        ValueError
            For references to tensors that are missing or come later, unknown operators, operands that no
            longer fit, selections of which a cell is not one cell of one tensor, and outputs that do not exist.
        """
        known = {name for name, tensor in self.stored.items() if tensor.kind != "result"}
        for item in self._ordered():
            where = f"node {item.name!r}"
            for name in item.inputs:
                if name not in known:
                    raise ValueError(f"{where} reads {name!r}, which no earlier node makes")
            if isinstance(item, Selection):
                self._check_selection(item)
                known.add(item.name)
                continue
            if item.op not in self.ops:
                raise UnsupportedOp(f"{where}: operator {item.op!r} has no declaration")
            self.ops[item.op].check_attributes(item.attrs, where)
            shapes = [self.source(name).shape for name in item.inputs]
            outs = [self.stored[name].shape for name in item.outputs]
            self.ops[item.op].signature(shapes, item.attrs).validate(shapes, outs, where)
            known.update(item.outputs)
        for label, name in self.outputs.items():
            if name not in known:
                raise ValueError(f"output {label!r} names tensor {name!r}, which does not exist")

    def draw(self) -> str:
        """The graph as text: one line for each tensor, selection and operator."""
        lines = [f"graph {self.name}"]
        lines += [
            f"  {stored.kind:8} {stored.name}: {stored.dtype}{list(stored.shape)}"
            for stored in self.stored.values()
            if stored.kind != "result"
        ]
        for item in self._ordered():
            args = ", ".join(item.inputs)
            if isinstance(item, Selection):
                lines.append(f"  view     {item.name}: {list(item.shape)} = {item.label}({args})")
            else:
                outs = ", ".join(f"{name}: {list(self.stored[name].shape)}" for name in item.outputs)
                lines.append(f"  op       {outs} = {item.op}({args})")
        lines += [f"  output   {label} = {name}" for label, name in self.outputs.items()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"<Graph {self.name!r}: {len(self.nodes)} operators, {len(self.selections)} selections, "
            f"{len(self.stored)} stored tensors>"
        )

    # -- as a document -----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The graph as plain data; constants by name, dtype, shape, SHA-256 and path, not by value."""
        return {
            "format": GRAPH_FORMAT,
            "name": self.name,
            "tensors": [self._tensor_dict(tensor) for tensor in self.stored.values()],
            "order": [
                {
                    "select": item.name,
                    "label": item.label,
                    "inputs": list(item.inputs),
                    "shape": list(item.shape),
                    "dtype": item.dtype,
                    "pieces": [piece.to_dict() for piece in item.pieces],
                }
                if isinstance(item, Selection)
                else {
                    "op": item.op,
                    "node": item.name,
                    "attrs": {key: finite(value) for key, value in item.attrs.items()},
                    "inputs": list(item.inputs),
                    "outputs": list(item.outputs),
                }
                for item in self._ordered()
            ],
            "outputs": dict(self.outputs),
        }

    def to_json(self) -> str:
        """The graph as a JSON document (see `to_dict`)."""
        return msgspec.json.encode(self.to_dict()).decode()

    @classmethod
    def from_json(cls, text: str | bytes, ops: Mapping[str, Op] | None = None) -> Graph:
        """A graph from its JSON document.

        Raises
        ------
        ValueError
            For text that is no JSON, another format or version, or a graph that does not hold together.
        """
        try:
            document = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise ValueError(f"Graph.from_json: this is no JSON document: {error}") from None
        return cls.from_dict(document, ops)

    @classmethod
    def from_dict(cls, document: Any, ops: Mapping[str, Op] | None = None) -> Graph:
        """A graph from the plain data of `to_dict`; `ops` declares operators beyond the built-in ones."""
        found = document.get("format") if isinstance(document, dict) else None
        if found != GRAPH_FORMAT:
            raise ValueError(f"graph document: format is {found!r}, this version reads {GRAPH_FORMAT!r}")
        graph = cls(document.get("name", "graph"), ops)
        try:
            graph._fill(document)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"graph document: a field is missing or of the wrong type: {error!r}") from None
        graph.validate()
        return graph

    def _fill(self, document: dict[str, Any]) -> None:
        for entry in document["tensors"]:
            shape = _shape(entry["shape"], entry["name"])
            self.stored[entry["name"]] = Stored(
                entry["name"],
                shape,
                _dtype(entry["dtype"], entry["name"]),
                entry["kind"],
                None,
                entry.get("path"),
                entry.get("sha256"),
            )
        for entry in document["order"]:
            if "select" in entry:
                self.selections[entry["select"]] = Selection(
                    entry["select"],
                    entry["label"],
                    tuple(entry["inputs"]),
                    tuple(entry["shape"]),
                    entry["dtype"],
                    tuple(Piece.from_dict(piece) for piece in entry["pieces"]),
                )
                continue
            self.ops[entry["op"]] = self._declare(entry["op"])
            attrs = {key: from_finite(value) for key, value in entry["attrs"].items()}
            self.nodes[entry["node"]] = OpNode(
                entry["node"], entry["op"], attrs, tuple(entry["inputs"]), tuple(entry["outputs"])
            )
        self.outputs.update(document["outputs"])

    def _tensor_dict(self, tensor: Stored) -> dict[str, Any]:
        out: dict[str, Any] = {
            "name": tensor.name,
            "shape": list(tensor.shape),
            "dtype": tensor.dtype,
            "kind": tensor.kind,
        }
        if tensor.kind == "constant":
            out["sha256"] = tensor.sha256 or sha256_of(tensor.data)
            if tensor.path:
                out["path"] = tensor.path
        return out

    # -- inside ------------------------------------------------------------------------------------------

    def _check_selection(self, selection: Selection) -> None:
        what = f"selection {selection.name!r} ({selection.label})"
        below = [self.tensor(name) for name in selection.inputs]
        if not below:
            raise ValueError(f"{what}: it reads no tensor; a selection views at least one")
        dtypes = {tensor.dtype for tensor in below} - {selection.dtype}
        if dtypes:
            raise ValueError(f"{what}: it has dtype {selection.dtype}, but it reads {sorted(dtypes)}")
        check_pieces(selection.pieces, selection.shape, [tensor.shape for tensor in below], what)

    def _declare(self, op: str | Op) -> Op:
        if isinstance(op, Op):
            known = self.ops.get(op.name)
            if known is not None and known is not op:
                raise ValueError(f"operator {op.name!r} is declared already, in another way; rename one")
            return op
        declared = self.ops.get(op) or BUILTIN_OPS.get(op)
        if declared is None:
            raise UnsupportedOp(f"operator {op!r} has no declaration; known are {sorted({*BUILTIN_OPS, *self.ops})}")
        return declared

    def _resolve(self, name: str) -> Source:
        stored = self.stored.get(name)
        if stored is not None:
            return Source(stored.shape, stored.dtype, (name,), (identity_piece(len(stored.shape)),))
        if name not in self.selections:
            raise ValueError(f"graph {self.name!r} has no tensor {name!r}")
        selection = self.selections[name]
        below = [self.source(n) for n in selection.inputs]
        names = tuple(dict.fromkeys(n for source in below for n in source.stored))
        renumbered = tuple(
            tuple(
                piece if piece.source < 0 else replace(piece, source=names.index(source.stored[piece.source]))
                for piece in source.pieces
            )
            for source in below
        )
        pieces = compose_pieces(selection.pieces, renumbered, selection.shape)
        return Source(selection.shape, selection.dtype, names, pieces)

    def _ordered(self) -> Iterator[OpNode | Selection]:
        """Nodes and selections, every one after what it reads."""
        makers = {out: node for node in self.nodes.values() for out in node.outputs}
        done: set[str] = set()
        roots: list[OpNode | Selection] = [*self.nodes.values(), *self.selections.values()]
        for root in roots:
            stack: list[tuple[OpNode | Selection, bool]] = [(root, False)]
            while stack:
                item, ready = stack.pop()
                key = f"{type(item).__name__} {item.name}"
                if key in done:
                    continue
                if ready:
                    done.add(key)
                    yield item
                    continue
                stack.append((item, True))
                for name in item.inputs:
                    below = self.selections.get(name) or makers.get(name)
                    if below is not None and f"{type(below).__name__} {below.name}" not in done:
                        if (below, True) in stack:
                            raise ValueError(f"node {item.name!r} is part of a cycle through {name!r}")
                        stack.append((below, False))

    def order(self) -> list[OpNode]:
        """The operator nodes, every one after those that it depends on."""
        return [item for item in self._ordered() if isinstance(item, OpNode)]

    def _new_tensor(self, tensor: Stored) -> None:
        if tensor.name in self.stored or tensor.name in self.selections:
            raise ValueError(f"graph {self.name!r} has a tensor {tensor.name!r} already; give another name")
        self.stored[tensor.name] = tensor

    def _fresh(self, wanted: str, what: Literal["node", "tensor"] = "tensor") -> str:
        """A name that no other node, or tensor, has: the wanted one, or with the first free number after it."""
        taken = (self.nodes,) if what == "node" else (self.stored, self.selections)
        if not any(wanted in names for names in taken):
            return wanted
        k = self._numbered.get((what, wanted), 1)  # smaller ones were taken, and no name is given back
        while any(f"{wanted}_{k}" in names for names in taken):
            k += 1
        self._numbered[what, wanted] = k
        return f"{wanted}_{k}"


@dataclass(frozen=True, slots=True)
class Tensor(Viewable):
    """A tensor of a graph, stored or viewed; arithmetic adds operators, indexing adds selections."""

    graph: Graph = field(repr=False)
    name: str

    @property
    def shape(self) -> Shape:
        """Extents."""
        return self.graph.selections[self.name].shape if self._viewed else self.graph.stored[self.name].shape

    @property
    def dtype(self) -> str:
        """NumPy's name of the dtype."""
        return self.graph.selections[self.name].dtype if self._viewed else self.graph.stored[self.name].dtype

    @property
    def _viewed(self) -> bool:
        return self.name in self.graph.selections

    def _with(self, op: str, other: Tensor | float, swapped: bool = False) -> Tensor:
        """An operator on this tensor and another one, or a number, which becomes a constant of this dtype."""
        if not isinstance(other, Tensor):
            if not isinstance(other, int | float | np.number):
                raise TypeError(f"{op}: {other!r} is {type(other).__name__}; give a tensor of the graph or a number")
            number = np.asarray(other, self.dtype)
            if number.dtype.kind != "f" and number != other:
                raise ValueError(f"{op}: {other!r} is no {self.dtype}; cast the tensor or round the number")
            other = self.graph.constant(self.graph._fresh("number"), number)
        operands = (other, self) if swapped else (self, other)
        return self.graph.op(op, *operands)  # type: ignore[no-any-return]

    def __add__(self, other: Tensor | float) -> Tensor:
        return self._with("add", other)

    def __radd__(self, other: float) -> Tensor:
        return self._with("add", other, swapped=True)

    def __sub__(self, other: Tensor | float) -> Tensor:
        return self._with("sub", other)

    def __rsub__(self, other: float) -> Tensor:
        return self._with("sub", other, swapped=True)

    def __mul__(self, other: Tensor | float) -> Tensor:
        return self._with("mul", other)

    def __rmul__(self, other: float) -> Tensor:
        return self._with("mul", other, swapped=True)

    def __truediv__(self, other: Tensor | float) -> Tensor:
        return self._with("div", other)

    def __rtruediv__(self, other: float) -> Tensor:
        return self._with("div", other, swapped=True)

    def __neg__(self) -> Tensor:
        return self.graph.op("neg", self)  # type: ignore[no-any-return]

    def __matmul__(self, other: Tensor) -> Tensor:
        return self._with("matmul", other)

    def _all_or_nothing(self) -> AbstractContextManager[None]:
        return self.graph._all_or_nothing()

    def apply(self, kind: ViewKind, *others: Tensor) -> Tensor:
        """This tensor, and others beside it, through a view kind, as a selection."""
        return self.graph.select(kind, self, *others)

    def view(self, kind: ViewKind, *others: Tensor, name: str | None = None) -> Tensor:
        """As `apply`, with a name."""
        return self.graph.select(kind, self, *others, name=name)


def concat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors one after another along an axis, as a view."""
    if not tensors:
        raise ValueError("concat: no tensors given; give at least one")
    return tensors[0].graph.select(Concat(axis), *tensors)


BUILTIN_OPS: dict[str, Op] = {}
"""The declared operators by name; `tapestry_plan.ops` fills it."""


def sha256_of(array: Any) -> str:
    """SHA-256 of an array's cells in row-major order."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _shape(shape: Sequence[int], what: str) -> Shape:
    out = []
    for axis, extent in enumerate(shape):
        if isinstance(extent, bool):
            raise TypeError(f"{what}: axis {axis} of {tuple(shape)} is a boolean; extents are integers")
        try:
            n = index(extent)
        except TypeError:
            raise TypeError(f"{what}: axis {axis} of {tuple(shape)} is {extent!r}, not an integer") from None
        if n < 1:
            raise ValueError(f"{what}: axis {axis} of {tuple(shape)} is {n}; extents are at least 1")
        out.append(n)
    return tuple(out)


def _dtype(name: str, what: str) -> str:
    try:
        dtype = np.dtype(name)
    except TypeError:
        raise ValueError(f"{what}: {name!r} is no dtype of NumPy") from None
    if dtype.hasobject:
        raise ValueError(f"{what}: dtype {name!r} holds objects; give numbers or booleans")
    return dtype.name


def _covered(box: Box) -> Shape:
    """The shape of the tensor that begins at 0 and ends where the box ends."""
    return box.stop


def finite(value: Any) -> Any:
    """A value as JSON can hold it: tuples as lists, and numbers that are not finite as {"float": "-inf"}."""
    if isinstance(value, tuple | list):
        return [finite(item) for item in value]
    return {"float": str(value)} if isinstance(value, float) and not isfinite(value) else value


def from_finite(value: Any) -> Any:
    """The value that `finite` wrote down; lists come as tuples."""
    if isinstance(value, list):
        return tuple(from_finite(item) for item in value)
    return float(value["float"]) if isinstance(value, dict) and set(value) == {"float"} else value
