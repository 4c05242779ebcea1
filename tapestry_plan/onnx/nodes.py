"""Nodes of ONNX models, and the part of a model that an operator's importer sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.ir import SHORT_DTYPES, FoldedNodes, Graph, Tensor, UnsupportedOp
from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.outside import FilesBeside, count_stored
from tapestry_plan.rewrite import Draft
from tapestry_sets.limits import Budget, cut_text, list_names, put_fields, quote, tell_count

Array = NDArray[Any]
CEIL_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
"""ONNX's operators with the attribute `ceil_mode`."""


class Attributes(Mapping[str, Any]):
    """The attributes of a node, which note the names that were asked for: what no importer reads is refused."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def unread(self) -> dict[str, Any]:
        """Those that nobody has asked for."""
        return {name: value for name, value in self._values.items() if name not in self._read}


@dataclass(frozen=True)
class Node:
    """One node of a model, its attributes as Python values and missing inputs at the end left out."""

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Attributes
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
        return name_node(self.name, self.op_type)


def name_node(name: str, op_type: str) -> str:
    """How messages name a node, in one line whatever its file has."""
    return f"node {quote(name)} ({cut_text(op_type)})"


class TooLargeToFold(ValueError):
    """To evaluate a node at import would take more bytes than an import may."""


class ReadGraph(Draft):
    """The graph of a model that is being read: no tensor takes a name by itself that the model has for one of its own.

    Parameters
    ----------
    name : str
    taken : iterable of str
        The names of the model's tensors.
    """

    def __init__(self, name: str, taken: Iterable[str]) -> None:
        super().__init__(Graph(name))
        self._taken = frozenset(taken)
        self._renamed: dict[str, str] = {}

    def _fresh(self, wanted: str, what: Any = "tensor") -> str:
        found = super()._fresh(wanted, what)
        while what == "tensor" and (found in self._taken or found in self._renamed):
            wanted += "_"
            found = super()._fresh(wanted, what)
        return found

    def has_name(self, name: str) -> bool:
        """Whether the model has a tensor of a name; those inside what stands for its nodes are not the model's."""
        return name in self._taken

    def call(self, tensor: Tensor, name: str) -> Tensor:
        """A tensor under a model's name, if a node has just made it and the model has no other name for it."""
        if tensor.name in self._renamed:
            return self.tensor(self._renamed[tensor.name])
        stored = self.stored.get(tensor.name)
        if tensor.name in self._taken or (stored is not None and stored.kind != "result"):
            return tensor
        self.rename(tensor.name, name)
        self._renamed[tensor.name] = name
        return self.tensor(name)


class ValueNeeded(UnsupportedOp):
    """The importer of a node needs a value that is known in a run only: that of `tensor`."""

    def __init__(self, message: str, tensor: str) -> None:
        super().__init__(message)
        self.tensor = tensor


class OutsideText(ValueError):
    """A number to which an operator's text gives no meaning: it is refused, although some run it."""


class NotOfGraphs(UnsupportedOp):
    """A tensor that no operator of a graph has: of other elements than NumPy's numbers, or without cells."""


NO_CELLS = "its results have no cells"
"""What an importer says of them, by NotOfGraphs: they are known then, if somebody runs the node."""


class CheckedModel(Struct, frozen=True, eq=False):
    """A model that was checked, with all that its nodes hold, and its tensors dense.

    Parameters
    ----------
    model : onnx.ModelProto
    path : Path or None
        The file that it came from.
    opset : int
        The version of ONNX's own operators.
    filled : int
        Bytes of dense tensors that were sparse.
    """

    model: Any
    path: Path | None
    opset: int
    filled: int


class Importing:
    """The state of an import: tensors made so far, and values known in advance."""

    def __init__(
        self, checked: CheckedModel, weights: Sequence[str], importers: Mapping[str, Import] = MappingProxyType({})
    ) -> None:
        model, path, opset = checked.model, checked.path, checked.opset
        self.graph = ReadGraph(model.graph.name or (path.stem if path else "graph"), _list_tensors(model.graph))
        self.opset = opset
        self.opsets = {"" if one.domain == "ai.onnx" else one.domain: one.version for one in model.opset_import}
        """Of each domain."""
        self.opsets[""] = opset
        self.ir_version = int(model.ir_version)
        self.importers = importers
        """By operator, how it is imported."""
        self._path = path
        self.tensors: dict[str, Tensor] = {}
        self._values: dict[str, Any] = {tensor.name: tensor for tensor in model.graph.initializer}
        self._written = set(self._values)
        """Values that the model says, as initializers and Constants."""
        self._from_file = {name: name for name in weights} if path else {}
        self._outside = FilesBeside(path)
        stored = count_stored(model) - checked.filled
        self._budget = Budget(tuning.FOLDED_NBYTES + tuning.FOLDED_TIMES * stored)
        self._budget.spend(checked.filled)
        self.few_bits = sum(_count_packed(node) for node in model.graph.node)
        """How many weights of few bits the model's products have."""
        self.taken: set[str] = set()
        """Names of the model's tensors, and of those that stand-ins of nodes make."""
        self.unrolled = Budget(tuning.MAX_INLINED_NODES + tuning.INLINED_TIMES * len(model.graph.node))
        self.unfolded: dict[str, str] = {}
        """Tensors that depend on no input, but are not known, since a value was too large to make; and why."""
        self.undecided: dict[str, str] = {}
        """First outputs of Ifs whose conditions are not known, and what is said of the conditions."""
        self.pooled: dict[str, tuple[int, ...]] = {}
        """The shape in which numbers of cells that a MaxPool found count, by the model's tensor of them."""
        self.blocked: dict[str, Tensor] = {}
        """Tensors of the model that have their channels in blocks, each with the graph's tensor in the usual order."""
        self.listed: frozenset[str] = frozenset()
        """The model's sequences that are lists of its tensors, as far as they are made …"""
        self.sequences: dict[str, Any] = {}
        """… each with what it holds and is made of."""
        self.declared: dict[str, Any] = {}
        """What the model says of tensors of which it says dtype and shape: values as ONNX writes them."""
        self._bound: list[tuple[dict[str, Any], str]] = []
        """What has been bound where, in order, while it may have to be taken back."""
        self._trials = 0
        self._computed: dict[str, str] = {}
        """Values that nodes made at import, by name, with the first output of the node that did."""
        self._held: set[str] = set()
        """Tensors of the graph that model tensors are."""
        self._is_wide = False
        self._is_unblocked = False

    @contextmanager
    def unblocking(self) -> Iterator[None]:
        """Give out tensors that have their channels in blocks in the usual order."""
        self._is_unblocked = True
        try:
            yield
        finally:
            self._is_unblocked = False

    @contextmanager
    def widening(self) -> Iterator[None]:
        """Give out tensors of bfloat16 as float32."""
        self._is_wide = True
        try:
            yield
        finally:
            self._is_wide = False

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Take back the tensors, values and operators that were added, if something fails."""
        before, self._trials = len(self._bound), self._trials + 1
        try:
            with self.graph._all_or_nothing():
                yield
        except BaseException:
            for found, name in self._bound[before:]:
                found.pop(name, None)
            del self._bound[before:]
            raise
        finally:
            self._trials -= 1
            if not self._trials:  # else a trial around this one may still fail
                self._bound.clear()

    def _put(self, where: dict[str, Any], name: str, found: Any) -> None:
        if self._trials and name not in where:
            self._bound.append((where, name))
        where[name] = found
        if where is self.tensors:
            self._held.add(found.name)

    def has(self, name: str) -> bool:
        """Whether a model tensor, or a sequence of such, has been made, or its value is known."""
        return name in self.tensors or name in self._values or name in self.sequences

    def note_blocked(self, name: str, usual: Tensor) -> None:
        """Note a tensor in the usual order, of which a model tensor is the same with its channels in blocks."""
        self._put(self.blocked, name, usual)

    def list_tensors(self, name: str, held: Any) -> None:
        """Note what a sequence holds."""
        self._put(self.sequences, name, held)

    def is_known(self, name: str) -> bool:
        """Whether the value of a model tensor is known in advance."""
        return name in self._values

    def has_strings(self, name: str) -> bool:
        """Whether a model tensor is known, and holds strings."""
        from onnx import TensorProto

        found = self._values.get(name)
        kind = getattr(getattr(found, "dtype", None), "kind", "")
        return kind in ("O", "S", "U") or getattr(found, "data_type", 0) == TensorProto.STRING

    def declare(self, graph: Any) -> None:
        """Note what a model's graph declares of tensors, where it says all."""
        for value in (*graph.value_info, *graph.output):
            tensor = value.type.tensor_type
            if tensor.elem_type and tensor.HasField("shape") and all(dim.dim_value > 0 for dim in tensor.shape.dim):
                self.declared[value.name] = value

    def value(self, name: str) -> Array:
        """The value of a model tensor that is known."""
        found = self._values.get(name)
        if found is None:
            raise ValueError(f"no node makes tensor {quote(name)}; check the outputs of the nodes")
        if isinstance(found, np.ndarray):
            return found
        try:
            array = self._values[name] = self._outside.read(found)
        except (ValueError, TypeError) as error:
            raise ValueError(f"tensor {quote(name)} cannot be read: {error}") from None
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

    def product_over_none(
        self, node: Node, left: Sequence[int], right: Sequence[int], dtype: str = "float32"
    ) -> Tensor | None:
        """The product of matrices of these shapes over no cells: zeros; None where it is over some, or has none itself.

        No operator takes such matrices, and ONNX Runtime leaves what the memory held in some of these products.
        """
        if tuple(left[-1:]) != (0,) or tuple(right[-2:][:1]) != (0,):
            return None
        rows, columns = tuple(left[-2:-1]), tuple(right[1:][-1:])
        shape = (*np.broadcast_shapes(tuple(left[:-2]), tuple(right[:-2])), *rows, *columns)
        if 0 in shape:
            return None
        return self.graph.constant(f"{node.name}.none", np.zeros((), dtype)).broadcast_to(shape)

    def tensor(self, name: str) -> Tensor:
        """The graph's tensor for a model tensor; a known value becomes a constant when it is first used."""
        if self._is_wide:
            return self._widened(name)
        if self._is_unblocked and name in self.blocked:
            return self.blocked[name]
        found = self.tensors.get(name)
        if found is None:
            array = self.value(name)
            if 0 in array.shape:
                raise NotOfGraphs(
                    f"tensor {quote(name)} of shape {quote(array.shape)} has no cells; an operator needs some"
                )
            if not is_number(array.dtype):
                holds = "holds strings" if self.has_strings(name) else f"is {array.dtype}"
                raise NotOfGraphs(f"tensor {quote(name)} {holds}; a graph has numbers of NumPy alone")
            origin = self._from_file.get(name)
            path = f"{self._path}#{origin}" if origin is not None else None
            found = self.graph.constant(name, array, path)
            self._put(self.tensors, name, found)
        return found

    def _widened(self, name: str) -> Tensor:
        """A model tensor, one of bfloat16 in float32."""
        key = f"{name}.float32"
        self._is_wide = False
        try:
            if self.dtype_of(name) != "bfloat16":
                return self.tensor(name)
            if key not in self.tensors:
                known = self.graph.constant(key, self.value(name).astype("float32")) if self.is_known(name) else None
                made = self.graph.op("astype", self.tensor(name), dtype="float32") if known is None else known
                self._put(self.tensors, key, made)
            return self.tensors[key]
        finally:
            self._is_wide = True

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
            why = f"its input {k} ({label}) is {quote(name)}, {self.describe_unknown(name)}"
            raise ValueNeeded(f"{node.where}: {why}", name)
        return self.value(name)

    def describe_unknown(self, name: str) -> str:
        """What a tensor's value depends on, and how that can be made known."""
        behind = sorted(self._inputs_behind(name))
        if not behind and self.unfolded:
            return f"which is not known: {self.unfolded.get(name) or next(iter(self.unfolded.values()))}"
        listed = ", ".join([*map(repr, behind[:3]), *(["…"] if len(behind) > 3 else [])])
        whence = "an input of the model" if behind == [name] else f"which the model computes from {listed}"
        mend = f"values={{{quote(behind[0])}: …}} or --value {behind[0]}=…" if behind else "values= or --value"
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
            if value.dtype.kind not in "iu":
                raise ValueError(f"its input {k} ({label}) has dtype {value.dtype}; integers are needed")
            return [int(v) for v in value.reshape(-1)]
        found = node.attrs.get(label)
        return None if found is None else [int(v) for v in found]

    def output(self, name: str) -> None:
        """Let a model tensor be an output of the graph: one without cells as a view of none of a constant's."""
        if self.is_known(name) and self.lacks_cells(name) and is_number(self.value(name).dtype):
            one = self.graph.constant(self.graph._fresh(f"{name}.cell"), np.zeros((), self.dtype_of(name)))
            self.graph.output(one.broadcast_to(self.shape(name)), name)
        else:
            self.graph.output(self.tensor(name), name)

    def bind(self, name: str, result: Tensor | Array) -> None:
        """Bind the name of a model tensor to a tensor of the graph, which takes the name, or to a value.

        Of a tensor without cells there is one value alone, so that it is known, whatever it would be computed from.
        """
        if isinstance(result, Tensor) and 0 in result.shape:
            result = np.empty(result.shape, result.dtype)
        if isinstance(result, Tensor):
            is_new = self.graph.has_name(name) and result.name not in self._held  # else others know it by its name
            self._put(self.tensors, name, self.graph.call(result, name) if is_new else result)
        else:
            self._put(self._values, name, result)
            self._from_file.pop(name, None)  # an initializer that the user has given another value

    def bind_computed(self, node: Node, name: str, result: Tensor | Array) -> None:
        """Bind what a node makes; where that is a value, it was computed at import, but for one that a model says."""
        self.bind(name, result)
        if self.is_known(name) and node.op_type != "Constant":
            self._put(self._computed, name, next(filter(None, node.outputs)))
        elif node.op_type == "Constant":
            self._written.add(name)

    def are_written(self, names: Iterable[str]) -> bool:
        """Whether the model says all values of some names: others may follow from the sizes of open axes."""
        return all(not name or name in self._written for name in names)

    def computed(self, node: Node, label: str, value: Array) -> Tensor:
        """What an importer computed of known values, as a constant that counts among what was computed in advance."""
        name = f"{node.name}.{label}"
        while name in self.taken or self.has(name) or self.graph.has_name(name):
            name += "_"
        self.taken.add(name)
        self.bind_computed(node, name, value)
        return self.tensor(name)

    def alias(self, name: str, of: str) -> None:
        """Let one model tensor be another."""
        if self.is_known(of):
            self._put(self._values, name, self._values[of])
            if of in self._from_file:
                self._put(self._from_file, name, self._from_file[of])
        if of in self.tensors:
            self._put(self.tensors, name, self.tensors[of])
        if of in self.pooled:
            self.pooled[name] = self.pooled[of]
        if of in self.blocked:
            self.note_blocked(name, self.blocked[of])

    def dtype_of(self, name: str) -> str:
        """The dtype of a model tensor."""
        return self.tensors[name].dtype if name in self.tensors else str(self.value(name).dtype.name)

    def dtype(self, code: int) -> str:
        """NumPy's name of an element type of ONNX.

        Raises
        ------
        ValueError
            When it is none of NumPy's numbers.
        """
        from onnx import TensorProto, helper

        try:
            dtype = helper.tensor_dtype_to_np_dtype(code)
        except (KeyError, ValueError, TypeError):
            raise ValueError(f"elements of type {code} are none that ONNX knows") from None
        if not is_number(dtype):
            raise NotOfGraphs(f"elements of type {TensorProto.DataType.Name(code)} are not numbers of NumPy")
        return str(dtype.name)

    def view(self, node: Node, kind: Any, *names: str) -> Tensor:
        """A selection over model tensors, called like the node."""
        return self.graph.select(kind, *(self.tensor(name) for name in names), name=node.name)

    def note_folded(self) -> None:
        """Let the graph say what was computed at import."""
        made = {self.tensors[name].name for name in self._computed if name in self.tensors}
        stored = [self.graph.stored[name] for name in made if name in self.graph.stored]
        nbytes = sum(prod(one.shape) * one.itemsize for one in stored if one.kind == "constant")
        put_fields(self.graph, folded=FoldedNodes(len(set(self._computed.values())), nbytes))

    def drop_unread_views(self) -> None:
        """Take selections that nothing reads out of the graph."""
        graph = self.graph
        read = {name for node in graph.nodes.values() for name in node.inputs} | set(graph.outputs.values())
        for view in reversed(list(graph.selections.values())):
            if view.name in read:
                read.update(view.inputs)
            else:
                graph._remove(view)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a model tensor."""
        return self.tensors[name].shape if name in self.tensors else self.value(name).shape

    def lacks_cells(self, name: str) -> bool:
        """Whether an axis of a model tensor has extent 0."""
        return 0 in self.shape(name)


def _list_tensors(graph: Any) -> Iterator[str]:
    """The names of a model's tensors: of what it is given, has, and makes."""
    for value in (*graph.input, *graph.initializer):
        yield value.name
    for node in graph.node:
        yield from node.output


def _count_packed(node: Any) -> int:
    """The numbers of few bits that a node multiplies by."""
    if node.op_type != "MatMulNBits":
        return 0
    return prod(max(0, one.i) for one in node.attribute if one.name in ("K", "N"))


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether graphs have such elements: NumPy's own numbers and truth values, and short ones of ml_dtypes."""
    return dtype.name in SHORT_DTYPES or (dtype.kind in "fiub" and dtype.isbuiltin == 1)


def axes_of(axes: Iterable[int], rank: int, label: str = "axes") -> list[int]:
    """Axes of a tensor counted from its first, each once.

    Raises
    ------
    ValueError
        For an axis out of range, or given twice.
    """
    given = list(axes)
    found = [axis + rank if axis < 0 else axis for axis in given]
    if any(not 0 <= axis < rank for axis in found) or len(set(found)) < len(found):
        shown = given[0] if label == "axis" else given
        raise ValueError(f"{label} is {shown}; a tensor of rank {rank} has the axes {-rank} to {rank - 1}, each once")
    return found


Result = Tensor | Sequence[Tensor | Array] | None


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
    idle : tuple of str
        Attributes that change nothing of what `add` makes, whatever their value. Any other that it does not read is
        refused.
    moves : bool
        Whether cells are moved, or cast, and not computed with: others work on bfloat16 in float32, and round.
    gaps : tuple of int
        Inputs among the first `least` that may be left out all the same.
    """

    add: Callable[[Importing, Node], Result]
    least: int = 1
    most: int | None = 1
    idle: tuple[str, ...] = ()
    moves: bool = False
    gaps: tuple[int, ...] = ()

    def check_inputs(self, node: Node) -> None:
        """Raise ValueError when a node has too few inputs or too many, or leaves out one that is needed."""
        check_inputs(node, self.least, self.most, self.gaps)

    def check_read(self, node: Node, opset: int) -> None:
        """Raise UnsupportedOp for an attribute that the node's import did not read, if its value may matter.

        One whose value is the schema's default says nothing.
        """
        unread = {name: value for name, value in node.attrs.unread().items() if name not in self.idle}
        schema = _schema(node, opset) if unread else None
        for name, value in unread.items():
            if schema is None or value != _default(schema, name):
                raise refusal(node, f"its attribute {cut_text(name)} = {quote(value)} is not supported")


def check_inputs(node: Node, least: int, most: int | None, gaps: Sequence[int] = ()) -> None:
    """Raise ValueError when a node has too few inputs or too many, or leaves out one that is needed.

    With `most` None it takes any number, all given; else the first `least` are needed, but for the `gaps`.
    """
    count = len(node.inputs)
    if count < least or (most is not None and count > most):
        takes = f"{least} or more" if most is None else f"{least} to {most}"
        takes = str(least) if least == most else takes
        raise ValueError(
            f"{node.where} has {tell_count(count, 'input')}; {node.op_type} takes {takes}: export the model again"
        )
    required = node.inputs if most is None else node.inputs[:least]
    lacking = [k for k, name in enumerate(required) if not name and k not in gaps]
    if lacking:
        raise ValueError(f"{node.where} leaves out its input {lacking[0]}, which {node.op_type} needs: export it again")


def check_attributes(node: Node, opset: int) -> None:
    """Refuse a node of ONNX's own whose attributes are not its schema's in this opset, each once and of its type.

    One that the schema requires must be there, and is a ValueError where it is not.

    Importers, and ONNX's reference, take the types for granted.
    """
    given = list(node.proto.attribute)
    schema = _schema(node, opset)
    if schema is None:
        return
    counts = Counter(one.name for one in given)
    for name in _required(node.op_type, schema.since_version) - counts.keys():
        needs = f"which {node.op_type} needs in opset {opset}: export the model again"
        raise ValueError(f"{node.where}: the attribute {quote(name)} is missing, {needs}")
    for one in given:
        if one.name not in schema.attributes:
            known = list_names(sorted(schema.attributes), one.name, "attributes")
            raise refusal(node, f"{_described(node, one)} is not one of {node.op_type} in opset {opset}; {known}")
        if counts[one.name] > 1:
            raise refusal(node, f"its attribute {one.name} is given {counts[one.name]} times; give it once")
        wanted = int(schema.attributes[one.name].type.value)
        others = {key.name for key, _ in one.ListFields()} & VALUE_FIELDS.keys() - {_field_of(wanted)}
        if one.type != wanted or others:
            found = _type_name(one.type) if one.type != wanted else f"beside a value of {VALUE_FIELDS[min(others)]}"
            takes = f"{node.op_type} takes {_type_name(wanted)}: export the model again"
            raise refusal(node, f"{_described(node, one)} is {found}, {takes}")


VALUE_FIELDS = {
    "f": "FLOAT", "i": "INT", "s": "STRING", "t": "TENSOR", "g": "GRAPH", "sparse_tensor": "SPARSE_TENSOR",
    "tp": "TYPE_PROTO", "floats": "FLOATS", "ints": "INTS", "strings": "STRINGS", "tensors": "TENSORS",
    "graphs": "GRAPHS", "sparse_tensors": "SPARSE_TENSORS", "type_protos": "TYPE_PROTOS",
}  # fmt: skip
"""Where ONNX keeps the value of an attribute, and the type that says so."""


def _described(node: Node, attribute: Any) -> str:
    """An attribute with its value, but for graphs."""
    name = attribute.name
    return f"its attribute {cut_text(name)}" + (f" = {quote(node.attrs[name])}" if name in node.attrs else "")


def _field_of(code: int) -> str:
    return next((field for field, name in VALUE_FIELDS.items() if name == _type_name(code)), "")


def _type_name(code: int) -> str:
    """ONNX's name of a type of attributes."""
    from onnx import AttributeProto

    named = {number: name for name, number in AttributeProto.AttributeType.items()}
    return str(named.get(code, f"of type {code}"))


def check_version(node: Node, opset: int) -> None:
    """Refuse a node of ONNX's own whose schema is newer than the importers."""
    known = tuning.KNOWN_OPSET
    schema = _schema(node, opset) if opset > known else None
    if schema is not None and schema.since_version > known:
        raise refusal(
            node,
            f"its operator changed in opset {schema.since_version}, and is known as it was in opset {known}: export "
            "the model with that one",
        )


def has_operator(op_type: str, opset: int) -> bool:
    """Whether ONNX's own domain has an operator in an opset."""
    return schema_of(op_type, opset) is not None


def _schema(node: Node, opset: int) -> Any:
    """ONNX's schema of a node's operator in an opset; None where it is another's, or where there is none."""
    return None if node.domain else schema_of(node.op_type, opset)


def schema_of(op_type: str, opset: int, domain: str = "") -> Any:
    """The schema of an operator in a version of its domain, None where ONNX has none."""
    from onnx import defs

    try:
        return defs.get_schema(op_type, max(0, min(opset, 2**31 - 1)), domain)  # numbers of a file are of 64 bits
    except defs.SchemaError:
        return None


@cache
def _required(op_type: str, version: int) -> frozenset[str]:
    """The attributes that every node of an operator of ONNX's own must have."""
    attributes = schema_of(op_type, version).attributes
    return frozenset(name for name, attribute in attributes.items() if attribute.required)


def _default(schema: Any, name: str) -> Any:
    """The default of an attribute as nodes say it; None where it has none."""
    from onnx import AttributeProto, helper

    default = schema.attributes[name].default_value
    if default.type == AttributeProto.UNDEFINED:
        return None
    value = helper.get_attribute_value(default)
    return value.decode() if isinstance(value, bytes) else value
