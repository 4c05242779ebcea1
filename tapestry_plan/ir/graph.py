"""Graphs: stored tensors, operators between them, and selections (views) that are never stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any, Literal, Self

import msgspec
import numpy as np

from tapestry_plan.ir import document as documents
from tapestry_plan.ir import pictures
from tapestry_plan.ir.boundary import AROUND, Widths, extension, resolve
from tapestry_plan.ir.checking import check_graph
from tapestry_plan.ir.handles import Tensor
from tapestry_plan.ir.op import BUILTIN_OPS, DERIVED, DtypeNotTaken, NotApplicable, Op, UnsupportedOp
from tapestry_plan.ir.open_axes import AtSizes, read_sizes
from tapestry_plan.ir.pictures import Parts
from tapestry_plan.ir.selection import check_pieces, label_of
from tapestry_plan.ir.signature import Signature
from tapestry_plan.ir.sources import compose, list_in_order, source_of
from tapestry_plan.ir.tensors import (
    Attrs,
    FoldedNodes,
    OpNode,
    Selection,
    Source,
    Stored,
    Unread,
    check_dtype,
    check_shape,
)
from tapestry_sets.draw import Picture
from tapestry_sets.limits import (
    FrozenDict,
    Guarded,
    check_arguments,
    conform,
    cut_text,
    drop_item,
    freeze_array,
    kind_of,
    list_names,
    put_fields,
    put_item,
    quote,
    read_json,
    skip_checks,
    take_array,
    tell_count,
)
from tapestry_sets.views import ViewKind

_validate = skip_checks(Signature.validate)
ELSEWHERE = "another graph; make it in this one, as graph.input and operators of its tensors do"
"""Where a tensor is that an error is about."""


class Graph(Guarded):
    """A tensor program: stored tensors, operators and selections, in the order in which they were added.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_plan import Graph
    >>> from tapestry_plan.ops import relu
    >>> g = Graph()
    >>> x = g.input("x", (32, 64), "float32")
    >>> w = g.constant("w", np.ones((64, 16), np.float32))
    >>> y = relu(x @ w)
    >>> g.output(y).shape
    (32, 16)
    """

    name: str
    ops: dict[str, Op]
    stored: dict[str, Stored]
    selections: dict[str, Selection]
    nodes: dict[str, OpNode]
    outputs: dict[str, str]
    unread: dict[str, Unread]
    sizes: dict[str, int]
    """Of a graph that was read from a model with open axes: their symbols, and the sizes that they have here."""
    folded: FoldedNodes | None
    """Of a graph that was read from a model: what was computed then."""

    @check_arguments
    def __init__(self, name: str = "graph", ops: Mapping[str, Op] | None = None) -> None:
        put_fields(self, name=name, ops=FrozenDict(ops or {}), stored=FrozenDict(), selections=FrozenDict())
        put_fields(self, nodes=FrozenDict(), outputs=FrozenDict(), unread=FrozenDict(), sizes=FrozenDict())
        put_fields(self, folded=None)
        self._model: AtSizes | None = None
        self._sources: dict[str, Source] = {}
        self._signatures: dict[str, Signature] = {}
        self._numbered: dict[tuple[str, str], int] = {}

    def __copy__(self) -> Self:
        """Return a graph of the same tensors and operators; what is added to one of both is not in the other."""
        made = type(self).__new__(type(self))
        own = {name: type(value)(value) if isinstance(value, dict) else value for name, value in vars(self).items()}
        put_fields(made, **own)
        return made

    # -- authoring ---------------------------------------------------------------------------------------

    @check_arguments
    def input(self, name: str, shape: Sequence[int], dtype: Any = "float32") -> Tensor:
        """Declare a tensor that every run is given.

        Parameters
        ----------
        name : str
            What the arrays of a run are called by.
        shape : sequence of int
        dtype : dtype, or its name

        Returns
        -------
        Tensor

        Raises
        ------
        ValueError
            For a name that is taken or empty, extents below 1, and a dtype that no graph has.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> Graph().input("tokens", (2, 128), "int64")
        Tensor('tokens', (2, 128), int64)
        """
        checked = check_shape(shape, f"input {quote(name)}")
        self._new_tensor(Stored(name, checked, check_dtype(dtype, f"input {quote(name)}: "), "input"))
        return Tensor(self, name)

    @check_arguments
    def constant(self, name: str, array: Any, path: str | None = None) -> Tensor:
        """Add a tensor with known values.

        The array is kept by reference: who writes to it changes the graph. What the graph hands out of it is read-only.

        Parameters
        ----------
        name : str
        array : array, nested lists or a number
        path : str, optional
            Where a later run can find the values: documents of the graph have it in their place.

        Returns
        -------
        Tensor

        Raises
        ------
        ValueError
            For a name that is taken or empty, and for what is not an array of numbers or truth values.

        Examples
        --------
        >>> import numpy as np
        >>> from tapestry_plan import Graph
        >>> g = Graph()
        >>> w = g.constant("w", np.eye(3, dtype=np.float32))
        >>> w, g.stored["w"].data.flags.writeable
        (Tensor('w', (3, 3), float32), False)
        """
        given = take_array(array, f"constant {quote(name)}", "an array of numbers or booleans")
        data = np.ascontiguousarray(given).reshape(given.shape)  # which makes rank 0 rank 1
        data = data if data.dtype.isnative else data.astype(data.dtype.newbyteorder("="))
        data = freeze_array(data.view())  # the caller's own array stays as it is
        dtype = check_dtype(data.dtype, f"constant {quote(name)}: array of ")
        self._new_tensor(Stored(name, data.shape, dtype, "constant", data, path))
        return Tensor(self, name)

    @check_arguments
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

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> g = Graph()
        >>> g.op("softmax", g.input("x", (4, 6)), name="attention", axis=0)
        Tensor('attention', (4, 6), float32)
        """
        declared = self._declare(op)
        node_name = self._fresh(name or declared.name, "node")
        for k, tensor in enumerate(inputs):
            if tensor is not None and tensor.graph is not self:
                raise ValueError(f"{node_name}: input {k} ({quote(tensor.name)}) belongs to {ELSEWHERE}")
        names = tuple(tensor.name for tensor in inputs if tensor is not None)
        present = [self.source(name) for name in names]
        for name, source in zip(names, present, strict=True):
            if 0 in source.shape:
                raise ValueError(
                    f"{node_name}: input {quote(name)} of shape {quote(source.shape)} has no cells; give it some"
                )
        what = f"{declared.name} {quote(node_name)}"
        taken = declared.complete(declared.check_attributes(attrs, what))
        frozen_attrs = {key: _plain(value, f"{what}: {key}") for key, value in taken.items()}
        try:
            signature, around = resolve(declared.signature, [source.shape for source in present], frozen_attrs)
        except ValueError as error:
            kind = NotApplicable if isinstance(error, NotApplicable) else ValueError
            raise kind(f"{what}: {error}") from None
        try:
            dtypes = () if around else declared.dtype([source.dtype for source in present], frozen_attrs)
        except ValueError as error:
            raise DtypeNotTaken(f"{what}: {error}") from None
        if around:
            return self._op_extended(declared, inputs, node_name, frozen_attrs, around)
        shapes = [operand.projection.bounding_box(signature.index).stop for operand in signature.outputs]
        _validate(signature, [source.shape for source in present], shapes, what)
        if signature.reductions and declared.reduction is None:
            raise ValueError(
                f"{what}: the signature reduces, but the operator does not say how parts merge; declare it with a "
                "monoid, as reduction='sum'"
            )
        if declared.has_states and len(shapes) != 1:
            raise ValueError(
                f"{what}: states are unwrapped to one output, but the signature has {len(shapes)}; declare an operator "
                "for each"
            )
        outs = [self._fresh(node_name if len(shapes) == 1 else f"{node_name}.{k}") for k in range(len(shapes))]
        put_item(self.ops, declared.name, declared)
        put_item(self.nodes, node_name, OpNode(node_name, declared.name, frozen_attrs, names, tuple(outs)))
        self._signatures[node_name] = signature
        for out, shape, dtype in zip(outs, shapes, dtypes, strict=True):
            self._new_tensor(Stored(out, shape, dtype, "result"))
        tensors = tuple(Tensor(self, out) for out in outs)
        return tensors[0] if len(tensors) == 1 else tensors

    def _op_extended(
        self, declared: Op, inputs: Sequence[Tensor | None], name: str, attrs: Attrs, around: tuple[Widths, ...]
    ) -> Any:
        """Apply an operator whose operands say what is outside their tensors, to views that are wide enough."""
        present = [tensor for tensor in inputs if tensor is not None]
        operands = declared.signature([tensor.shape for tensor in present], attrs).inputs
        with self._all_or_nothing():
            extended = [
                tensor.apply(extension(operand, widths)) if widths else tensor
                for tensor, operand, widths in zip(present, operands, around, strict=True)
            ]
            return self.op(declared, *extended, name=name, **{**attrs, AROUND: around})

    @check_arguments
    def select(self, kind: ViewKind, *inputs: Tensor, name: str | None = None) -> Tensor:
        """View tensors through a view kind: a slice, a permutation, a concatenation, …

        The selection is labeled by the name of the kind's class, or the kind's own `label`.

        Raises
        ------
        ValueError
            When the kind does not fit the tensors' shapes, a cell of its view is not one cell of one tensor (see
            `check_selection`), or the tensors' dtypes differ; the graph is unchanged then.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> from tapestry_sets.views import Flip
        >>> g = Graph()
        >>> g.select(Flip((1,)), g.input("x", (4, 6))), list(g.selections)
        (Tensor('flip', (4, 6), float32), ['flip'])
        """
        for k, tensor in enumerate(inputs):
            if tensor.graph is not self:
                raise ValueError(f"select: input {k} ({quote(tensor.name)}) belongs to {ELSEWHERE}")
        shapes = tuple(tensor.shape for tensor in inputs)
        dtypes = {tensor.dtype for tensor in inputs}
        label = label_of(kind)
        if len(dtypes) != 1:
            raise ValueError(f"{label}: the inputs have dtypes {quote(sorted(dtypes))}; cast them to one dtype")
        shape, pieces = tuple(kind.out_shape(shapes)), tuple(kind.pieces(shapes))
        check_pieces(pieces, shape, shapes, label)
        made, names = self._fresh(name or label), tuple(tensor.name for tensor in inputs)
        put_item(self.selections, made, Selection(made, label, names, shape, dtypes.pop(), pieces))
        return Tensor(self, made)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Take back the tensors and nodes that were added, if one cannot be."""
        parts: tuple[dict[str, Any], ...] = (self.selections, self.nodes, self.stored, self.outputs, self.ops)
        before = [len(part) for part in parts]
        try:
            yield
        except BaseException:
            for part, size in zip(parts, before, strict=True):
                while len(part) > size:
                    name, _ = dict.popitem(part)
                    self._sources.pop(name, None)
                    self._signatures.pop(name, None)
            self._numbered.clear()
            raise

    def _remove(self, item: OpNode | Selection) -> None:
        """Take a node that nothing reads, or a selection, out of the graph."""
        if isinstance(item, Selection):
            drop_item(self.selections, item.name)
            self._sources.pop(item.name, None)
            return
        drop_item(self.nodes, item.name)
        self._signatures.pop(item.name, None)
        for name in item.outputs:
            drop_item(self.stored, name)
            self._sources.pop(name, None)

    @check_arguments
    def output(self, tensor: Tensor, name: str | None = None) -> Tensor:
        """Mark a tensor as a result of the graph, under its own name or another one.

        Parameters
        ----------
        tensor : Tensor
        name : str, optional

        Returns
        -------
        Tensor
            The same.

        Raises
        ------
        ValueError
            For a tensor of another graph, and a name that another output has.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (4, 6)).T, "turned")
        >>> dict(g.outputs)
        {'turned': 'permute_dims'}
        """
        if tensor.graph is not self:
            raise ValueError(f"output: {quote(tensor.name)} belongs to {ELSEWHERE}")
        label = name or tensor.name
        if label in self.outputs:
            raise ValueError(f"output: there is an output {quote(label)} already; give another name")
        put_item(self.outputs, label, tensor.name)
        return tensor

    # -- asking ------------------------------------------------------------------------------------------

    @check_arguments
    def tensor(self, name: str) -> Tensor:
        """The tensor called `name`.

        Raises
        ------
        ValueError
            When there is none; the message has the tensors nearest in name.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> g = Graph()
        >>> _ = g.input("hidden", (4, 6))
        >>> g.tensor("hidden").shape
        (4, 6)
        >>> g.tensor("hiden")
        Traceback (most recent call last):
            ...
        ValueError: graph 'graph' has no tensor 'hiden'; known tensors: 'hidden'
        """
        if name not in self.stored and name not in self.selections:
            raise self._no_tensor(name)
        return Tensor(self, name)

    def _no_tensor(self, name: str) -> ValueError:
        known = list_names([*self.stored, *self.selections], name, "tensors")
        return ValueError(f"graph {quote(self.name)} has no tensor {quote(name)}; {known}")

    def _node(self, name: str) -> OpNode:
        found = self.nodes.get(name)
        if found is None:
            known = list_names(self.nodes, name, "operators")
            raise ValueError(f"graph {quote(self.name)} has no operator {quote(name)}; {known}")
        return found

    def source(self, name: str) -> Source:
        """How a tensor is read from stored ones: the composition of the selections in front of it.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> g = Graph()
        >>> t = g.input("x", (4, 6))[::2].T
        >>> read = g.source(t.name)
        >>> read.stored, read.shape
        (('x',), (6, 2))
        """
        if type(name) is not str:
            name = conform(name, kind_of(str), "Graph.source: name")
        found = self._sources.get(name)
        return self._resolve(name) if found is None else found

    def signature(self, node: str) -> Signature:
        """The signature of an operator node.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> g = Graph()
        >>> y = g.input("x", (4, 6)) @ g.input("w", (6, 8))
        >>> g.signature("matmul")
        Signature(m:4, n:8, k:6 summed; 2 inputs, 1 output)
        """
        if type(node) is not str:
            node = conform(node, kind_of(str), "Graph.signature: node")
        found = self._signatures.get(node)
        if found is None:
            n = self._node(node)
            shapes = [self.source(name).shape for name in n.inputs]
            found = self._signatures[node] = resolve(self.ops[n.op].signature, shapes, n.attrs)[0]
        return found

    def consumers(self) -> dict[str, list[tuple[str, int]]]:
        """For each stored tensor, the (node, operand) pairs that read it, in the order of the nodes.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> g = Graph()
        >>> x = g.input("x", (4, 4))
        >>> y = x @ x.T
        >>> g.consumers()["x"]
        [('matmul', 0), ('matmul', 1)]
        """
        out: dict[str, list[tuple[str, int]]] = {name: [] for name in self.stored}
        for node in self.nodes.values():
            for k, name in enumerate(node.inputs):
                for stored in self.source(name).stored:
                    out[stored].append((node.name, k))
        return out

    def flop(self) -> float:
        """Floating-point operations of one unsharded run.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> g = Graph()
        >>> y = g.input("x", (4, 6)) @ g.input("w", (6, 8))
        >>> g.flop() == 2 * 4 * 6 * 8
        True
        """
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
            longer fit, results that are made twice or not at all or have another dtype than their operator gives,
            selections of which a cell is not one cell of one tensor, and outputs that do not exist.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (4, 4)).T, "y")
        >>> g.validate()  # says nothing: the graph holds together
        """
        check_graph(self)

    @check_arguments
    def draw(
        self,
        shards: Mapping[str, Parts] | None = None,
        *,
        direction: Literal["right", "down"] | None = None,
        folded: bool | None = None,
    ) -> Picture:
        """A picture: ``print`` writes it, a line for each tensor, selection and operator; a notebook draws it.

        Parameters
        ----------
        shards : mapping, optional
            Operators by name, each with the number of parts by index axis, or with boxes of its index space: what
            these parts read and write is shown in the tensors, through selections too, and counted.
        direction : "right" or "down", optional
            Where the drawing has the results; by default "right" where that is not too wide.
        folded : bool, optional
            Whether blocks of operators that the graph repeats are drawn once, in a frame that says how often they are
            there, and weights as lines of the operators that read them (see `tapestry_plan.draw.fold`). By default only
            large graphs are, without `shards`. Of what is left then the first 1,000 operators are drawn.

        Raises
        ------
        ValueError
            For an unknown operator, and parts that do not fit it; a graph that is not ordered; shards of a graph that
            is folded.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> g = Graph("small")
        >>> y = g.output(g.op("relu", g.input("x", (4, 6)).T, name="y"))
        >>> print(g.draw())
        graph small
          input    x: float32[4, 6]
          view     permute_dims: [6, 4] = permute_dims(x)
          op       y: [6, 4] = relu(permute_dims)
          output   y = y
        """
        return pictures.pictures.graph(self, tuple(self._ordered()), shards, direction, folded)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """The forms in which a notebook shows the graph: a drawing too, of large graphs a folded one."""
        return self.draw().bundle(repr(self))

    def __repr__(self) -> str:
        return (
            f"<Graph {cut_text(quote(self.name), 80)}: {tell_count(len(self.nodes), 'operator')}, "
            f"{tell_count(len(self.selections), 'selection')}, {tell_count(len(self.stored), 'stored tensor')}>"
        )

    # -- at other sizes ----------------------------------------------------------------------------------

    @check_arguments
    def bind(self, sizes: Mapping[str, int] | None = None, /, **more: int) -> Graph:
        """The graph of the same model with other sizes of its open axes, read from the model again.

        Parameters
        ----------
        sizes : mapping of str to int, optional
            Sizes by symbol, as ``{"batch": 32}``. Symbols that are not named keep the sizes that they have in `sizes`.
        **more : int
            The same, by name.

        Raises
        ------
        ValueError
            For a graph without a model that it could be read from again, for symbols that the model does not have,
            that are given twice, or sizes below 0, and for sizes at which the model contradicts itself.

        Examples
        --------
        >>> from onnx import parser
        >>> from tapestry_plan import load_onnx
        >>> text = 'agraph (float[batch, 4] x) => (float[batch, 4] y) { y = Relu(x) }'
        >>> model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}')
        >>> g = load_onnx(model, shapes={"batch": 8})
        >>> g.sizes, g.bind(batch=32).stored["x"].shape
        ({'batch': 8}, (32, 4))
        """
        found = read_sizes(self.sizes, self._model, sizes, more, "bind")
        assert self._model is not None, "that was checked"
        made: Graph = self._model({**self.sizes, **found})
        return made

    # -- as a document -----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The graph as plain data; constants by name, dtype, shape, SHA-256 and path, small ones by value.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> g = Graph("small")
        >>> _ = g.output(g.input("x", (4, 4)) + 1.0, "y")
        >>> [entry["op"] for entry in g.to_dict()["order"]]
        ['add']
        """
        tensors = [documents.write_tensor(tensor) for tensor in self.stored.values()]
        order = [documents.write_item(item) for item in self._ordered()]
        unread = {name: documents.write_unread(one) for name, one in self.unread.items()}
        folded = documents.write_folded(self.folded)
        written = documents.GraphDocument(
            documents.GRAPH_FORMAT, self.name, tensors, order, self.outputs, unread, folded
        )
        plain: dict[str, Any] = msgspec.to_builtins(written)
        return plain

    def to_json(self) -> str:
        """The graph as a JSON document (see `to_dict`).

        Examples
        --------
        >>> from tapestry_plan import Graph, same_graph
        >>> g = Graph("small")
        >>> _ = g.output(g.input("x", (4, 4)) + 1.0, "y")
        >>> same_graph(Graph.from_json(g.to_json()), g)
        True
        """
        return msgspec.json.encode(self.to_dict()).decode()

    @classmethod
    def from_json(cls, text: str | bytes, ops: Mapping[str, Op] | None = None) -> Graph:
        """A graph from its JSON document.

        Raises
        ------
        ValueError
            For text that is not JSON, another format or version, or a graph that does not hold together.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> Graph.from_json('{"format": "other"}')
        Traceback (most recent call last):
            ...
        ValueError: graph document: format is 'other', this version reads 'tapestry-graph/2'; write it anew with
        Graph.to_json, from the model or the program that made the graph
        """
        return cls.from_dict(read_json(text, documents.WHAT, documents.GRAPH_FORMAT, documents.ANEW), ops)

    @classmethod
    @check_arguments
    def from_dict(cls, document: Any, ops: Mapping[str, Op] | None = None) -> Graph:
        """A graph from the plain data of `to_dict`; `ops` declares operators beyond the built-in ones.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> g = Graph("small")
        >>> _ = g.output(g.input("x", (4, 4)).T, "y")
        >>> Graph.from_dict(g.to_dict())
        <Graph 'small': 0 operators, 1 selection, 1 stored tensor>
        """
        read = documents.read_document(document)
        graph = cls(read.name, ops)
        dict.update(graph.stored, {entry.name: documents.read_tensor(entry) for entry in read.tensors})
        for entry in read.order:
            if isinstance(entry, documents.SelectionEntry):
                put_item(graph.selections, entry.select, documents.read_selection(entry))
            else:
                op = graph._declare(entry.op)
                put_item(graph.ops, entry.op, op)
                put_item(graph.nodes, entry.node, documents.read_node(entry, op.complete))
        dict.update(graph.outputs, read.outputs)
        dict.update(graph.unread, {name: documents.read_unread(entry) for name, entry in read.unread.items()})
        put_fields(graph, folded=documents.read_folded(read.folded))
        graph.validate()
        return graph

    # -- inside ------------------------------------------------------------------------------------------

    def _declare(self, op: str | Op) -> Op:
        if isinstance(op, Op):
            known = self.ops.get(op.name)
            if known is not None and known is not op:
                raise ValueError(f"operator {quote(op.name)} is declared already, in another way; rename one")
            return op
        declared = self.ops.get(op) or BUILTIN_OPS.get(op) or self._derive(op)
        if declared is None:
            near = list_names(sorted({*BUILTIN_OPS, *self.ops}), op, "operators")
            raise UnsupportedOp(f"operator {quote(op)} has no declaration; {near}")
        return declared

    def _derive(self, name: str) -> Op | None:
        """The operator that a name like ``part(linear)`` makes of others; None if it is not such a name."""
        form, bracket, rest = name.partition("(")
        if form not in DERIVED or not bracket or not rest.endswith(")"):
            return None
        depths = accumulate((c == "(") - (c == ")") for c in rest)
        commas = [k for k, (c, depth) in enumerate(zip(rest, depths, strict=True)) if c == "," and depth == 0]
        names = [rest[a + 1 : b] for a, b in pairwise([-1, *commas, len(rest) - 1])]
        return DERIVED[form](*(self._declare(one) for one in names))

    def _resolve(self, name: str) -> Source:
        """Find a source after those of all selections below it: one by one, since chains of views may be long."""
        left = [name]
        while left:
            item = self.selections.get(left[-1])
            unknown = [below for below in item.inputs if below not in self._sources] if item is not None else []
            if len(left) > len(self.selections) + 1 and unknown:
                raise ValueError(
                    f"graph {quote(self.name)}: tensor {quote(name)} is a view of itself, through {quote(unknown[0])}"
                )
            if unknown:
                left.append(unknown[0])
                continue
            made = left.pop()
            below = [] if item is None else [self._sources[read] for read in item.inputs]
            self._keep_source(made, self._stored_source(made) if item is None else compose(item, below))
        return self._sources[name]

    def _keep_source(self, name: str, source: Source) -> None:
        self._sources[name] = source

    def _stored_source(self, name: str) -> Source:
        stored = self.stored.get(name)
        if stored is None:
            raise self._no_tensor(name)
        return source_of(stored)

    def _ordered(self) -> Iterator[OpNode | Selection]:
        """Nodes and selections, every one after what it reads."""
        return list_in_order([*self.nodes.values(), *self.selections.values()])

    @check_arguments
    def written_dtypes(self, name: str) -> tuple[str, ...]:
        """The dtypes that a node's block writes: of its outputs, or of the states that they are unwrapped from.

        Examples
        --------
        >>> from tapestry_plan import Graph, ops
        >>> g = Graph()
        >>> spread = ops.var(g.input("x", (4, 6)), axis=1)
        >>> spread.dtype, g.written_dtypes("var")  # parts of it are (count, mean, sum of squares)
        ('float32', ('f8,f8,f8',))
        """
        node = self._node(name)
        op = self.ops[node.op]
        if not op.has_states:
            return tuple(self.stored[out].dtype for out in node.outputs)
        assert op.monoid is not None, "only monoids have states"
        return (op.monoid.state_dtype(self.source(node.inputs[0]).dtype),)

    def order(self) -> list[OpNode]:
        """The operator nodes, every one after those that it depends on.

        Examples
        --------
        >>> from tapestry_plan import Graph, ops
        >>> g = Graph()
        >>> y = ops.relu(g.input("x", (4, 6)) + 1.0)
        >>> [node.name for node in g.order()]
        ['add', 'relu']
        """
        return [item for item in self._ordered() if isinstance(item, OpNode)]

    def _new_tensor(self, tensor: Stored) -> None:
        if not tensor.name:
            raise ValueError(f"graph {quote(self.name)}: a tensor is to be called ''; give it a name")
        if tensor.name in self.stored or tensor.name in self.selections:
            raise ValueError(f"graph {quote(self.name)} has a tensor {quote(tensor.name)} already; give another name")
        put_item(self.stored, tensor.name, tensor)

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


def _plain(value: Any, what: str) -> Any:
    """An attribute as documents hold it: Python's numbers, strings and tuples of such."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return tuple(_plain(item, what) for item in value)
    if value is not None and not isinstance(value, int | float | str):
        raise ValueError(f"{what} is {quote(value)}; attributes are real numbers, strings, or tuples of such")
    return value
