"""ONNX models as graphs.

`load_onnx` reads a model in four steps: the file is checked and brought to a current opset; nodes that no
output needs are left out; nodes whose inputs are all known are evaluated; the others become operators and
selections, each by one small function of the table `IMPORTERS` of `operators`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from tapestry_plan.ir import Graph, Unread, freeze_sizes, sha256_of
from tapestry_plan.onnx.adding import Placing, add_input, say_staged
from tapestry_plan.onnx.inputs import InputShapes, Sizes, dims_of, read_values, say_again, show_dims, symbols_of
from tapestry_plan.onnx.nodes import CEIL_POOLS, Array, CheckedModel, Import, Importing, Node, NotOfGraphs
from tapestry_plan.onnx.operators import importers_of
from tapestry_plan.onnx.order import (
    all_graphs,
    needed_of,
    read_nodes,
    reject_broken_texts,
    reject_second_makers,
    sort,
)
from tapestry_plan.onnx.outside import FilesBeside, check_values, is_external
from tapestry_plan.onnx.replacing.bodies import all_names
from tapestry_plan.onnx.replacing.branches import settle_branches
from tapestry_plan.onnx.replacing.functions import inline_functions
from tapestry_plan.onnx.replacing.normalizing import Folding
from tapestry_plan.onnx.replacing.older import OLDEST_OPSET, TARGET_OPSET, convert
from tapestry_plan.onnx.replacing.sequences import find_sequences
from tapestry_plan.onnx.replacing.whole import reads_of
from tapestry_plan.onnx.sparse import Filling
from tapestry_plan.onnx.walks import show_walks
from tapestry_sets.limits import conform, cut_text, escape_controls, kind_of, list_names, put_fields, quote

# -- the model file --------------------------------------------------------------------------------------


def read_model(source: Any) -> tuple[Any, Path | None]:
    """The model without its external data, and the file it came from."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if isinstance(source, onnx.ModelProto):
        return source, None
    if not isinstance(source, (str, Path, bytes)):
        raise TypeError(f"load_onnx: {type(source).__name__} given; give a path, the bytes of a model or a ModelProto")
    path = None if isinstance(source, bytes) else Path(source)
    try:
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
    except OSError as error:  # which shows the path, however long
        raise type(error)(error.errno, error.strerror, cut_text(str(source))) from None
    model, missing = onnx.ModelProto(), ""
    try:
        model.ParseFromString(data)
        if not model.HasField("graph") or not model.opset_import:
            missing = ", a graph but no opset" if model.HasField("graph") else ", no graph"
    except DecodeError:
        missing = " that are not a protobuf message"
    if missing:
        raise ValueError(
            f"load_onnx: {path or f'the {len(data)} bytes given'}: this is not an ONNX model, or it is truncated "
            f"[{len(data)} bytes{missing}]; check the file, or export it again"
        )
    return model, path


@contextmanager
def about_model(model: object, who: str = "load_onnx") -> Iterator[None]:
    """Let errors say who raised them, and what they are about."""
    try:
        yield
    except (ValueError, TypeError, MemoryError) as error:
        error.args = (escape_controls(f"{who}: {model}: {error}"),)
        raise


def _opset(model: Any) -> int:
    """The version of the standard operators that the model asks for."""
    import onnx

    newest = onnx.defs.onnx_opset_version()
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions and all(node.domain not in ("", "ai.onnx") for graph in all_graphs(model) for node in graph.node):
        return int(newest)  # there are none of its operators
    if not versions:
        domains = sorted({entry.domain for entry in model.opset_import})
        raise ValueError(f"the model uses the domains {quote(domains)} only, not ONNX's own operators")
    if not 1 <= versions[0] <= newest:
        raise ValueError(
            f"unknown opset {versions[0]} of domain 'ai.onnx'; the newest supported is {newest}: export with that one "
            "or install a newer onnx"
        )
    return int(versions[0])


def _checked(model: Any, path: Path | None) -> CheckedModel:
    """The model with all that its nodes hold, in an opset that is OLDEST_OPSET or later."""
    reject_broken_texts(model)
    opset = _opset(model)
    filling = Filling(model, FilesBeside(path))
    model = filling.fill_initializers(model)
    reject_second_makers(model)
    if any(is_external(tensor) for tensor in _all_tensors(model)):
        model = _with_inner_data(model, path)
    for tensor in _all_tensors(model):
        check_values(tensor)
    model = show_walks(model)
    if model.functions:
        model, opset = inline_functions(model, opset)
    model = filling.fill_constants(model, opset)
    nodes = list(read_nodes(model.graph))
    in_order = sort(nodes)
    if any(one is not other for one, other in zip(nodes, in_order, strict=True)):
        model = _with_nodes(model, [node.proto for node in in_order])
    if opset >= OLDEST_OPSET:
        return CheckedModel(model, path, opset, filling.nbytes)
    return CheckedModel(convert(model, opset), path, TARGET_OPSET, filling.nbytes)


def read_checked(source: Any, who: str) -> CheckedModel:
    """The model with all that its nodes hold, the file that it came from, and its opset."""
    model, path = read_model(source)
    with about_model(path or "the model", who):
        return _checked(model, path)


def _with_nodes(model: Any, nodes: Sequence[Any]) -> Any:
    """A copy of the model with these nodes."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def _all_tensors(model: Any) -> Iterator[Any]:
    for graph in all_graphs(model):
        yield from getattr(graph, "initializer", ())  # functions have none
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def _with_inner_data(model: Any, path: Path | None) -> Any:
    """A copy of the model whose initializers alone lie outside; every place is checked before one is read."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    external = [tensor for tensor in _all_tensors(copy) if is_external(tensor)]
    outside = FilesBeside(path)
    for tensor in external:
        outside.find(tensor)
    own = list(copy.graph.initializer)  # held, so that no other object takes their identity
    stay = {id(tensor) for tensor in own}
    for tensor in external:
        if id(tensor) not in stay:
            outside.take(tensor)
    return copy


# -- the importer ----------------------------------------------------------------------------------------


def load_onnx(
    path_or_model: Any,
    *,
    shapes: Sizes | None = None,
    values: Mapping[str, Any] | None = None,
    feeds: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | None = None,
    fold: bool = True,
    ops: Mapping[str, Any] | None = None,
    opaque: bool = True,
) -> Graph:
    """Read an ONNX model as a graph.

    Parameters
    ----------
    path_or_model : str, Path, bytes or onnx.ModelProto
    shapes : mapping of str to int or sequence of int, optional
        What the model leaves open: shapes by input, as ``{"x": (3, 224, 224)}``, and sizes by the symbols that the
        model has for them, as ``{"batch": 3}``; 0 too, as of a cache that is empty yet. `Graph.bind` reads the model
        again with other sizes of these. An axis that is called by a formula of symbols, as ``past + now`` or ``2*s0``
        (``+``, ``-``, ``*``, ``//``), follows from them.
    values : mapping of str to array, optional
        Values of inputs that are known in advance. They become constants, so that shapes may depend on them: the shape
        of a Reshape, the bounds of a Slice. Numbers of Python take the input's dtype.
    feeds : mapping of str to array, optional
        Inputs of a run: of these the shapes are looked at, which say the sizes of axes that are open.
    outputs : sequence of str, optional
        Tensors to give as outputs instead of the model's own; parts of the model that they do not need are
        left out.
    fold : bool
        Whether convolutions take in the batch normalizations that alone read them, where all their numbers are known:
        exact up to rounding, and what is between the two is not made. The constants so made have no path.
    ops : mapping of str to Op, optional
        Declarations of operators by the domain and type of their nodes, as ``{"com.example::Scale": op}``; also such
        as take the place of ONNX's own, as ``{"Relu": op}``. They are given a node's inputs and attributes.
    opaque : bool
        Whether nodes of ONNX that have no declaration become `tapestry_plan.ops.opaque`, which runs them whole on one
        device; else they are refused. What ONNX defines by other operators becomes those before.

    Returns
    -------
    Graph
        Its outputs are called like the model's. Constants that come straight from a file carry the path
        ``<file>#<initializer>``, which `read_constant` understands.

    Raises
    ------
    UnsupportedOp
        Listing every node that is not supported, by name, type, domain and opset. Where `StagedModel` has the model all
        the same, it is named: shapes follow from values that are known in a run only, or there are strings, sequences.
    ValueError
        For bytes that are not an ONNX model or are truncated, an unknown opset, axes without a size, shapes, values and
        feeds that do not fit, external data that is missing or outside the model's folder, sparse
        tensors whose values, indices and dims do not fit.

    Examples
    --------
    >>> from tapestry_plan import load_onnx
    >>> from tapestry_plan.onnx import demo_model
    >>> graph = load_onnx(demo_model())
    >>> graph.stored["data_0"].shape, graph.tensor(graph.outputs["softmaxout_1"]).shape
    ((1, 3, 224, 224), (1, 1000, 1, 1))

    Of a model with open axes the arrays of a run may say the sizes:

    >>> import numpy as np
    >>> from onnx import parser
    >>> text = 'agraph (float[N, 4] x, float["2*N"] z) => (float[N, 4] y) { y = Relu(x) }'
    >>> model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}')
    >>> graph = load_onnx(model, feeds={"z": np.ones(6, np.float32)})
    >>> graph.sizes, graph.stored["x"].shape
    ({'N': 3}, (3, 4))

    References
    ----------
    ONNX IR and operators, opset 13 and later; older models are converted by onnx.version_converter.
    """
    for name, given, example in (
        ("shapes", shapes, "{'x': (1, 3)}"),
        ("values", values, "{'shape': [2, 6]}"),
        ("feeds", feeds, "{'x': array}"),
    ):
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(f"load_onnx: {name} is {quote(given)}; give a mapping of names, as in {example}")
    fold = conform(fold, kind_of(bool), "load_onnx: fold", "give True or False")
    outputs = conform(outputs, kind_of(Sequence[str] | None), "load_onnx: outputs", "give names in order, as ['y']")
    opaque = conform(opaque, kind_of(bool), "load_onnx: opaque", "give True or False")
    if ops is not None and not isinstance(ops, Mapping):
        raise TypeError(f"load_onnx: ops is {quote(ops)}; give a mapping, as in {{'com.example::Scale': op}}")
    importers = importers_of(ops or {})
    model, path = read_model(path_or_model)
    with about_model(path or "the model"):
        fed = {name: np.shape(value) for name, value in (feeds or {}).items()}
        graph = _graph_of(model, path, shapes or {}, values or {}, fed, outputs, fold, importers, opaque)
    if graph.sizes:
        sizes = {**(shapes or {}), **fed}
        derived = frozenset(symbols_of(model.graph).derived)
        stored = {one.name for one in model.graph.initializer}
        stored |= {node.output[0] for node in model.graph.node if node.op_type == "Constant"}
        again = OpenModel(
            path or model, sizes, values or {}, outputs, fold, ops or {}, opaque, derived, frozenset(stored)
        )
        put_fields(graph, _model=again)
    return graph


class OpenModel(Struct, frozen=True, eq=False):
    """A model with open axes, and how it was read: it is read again, the same way, at other sizes of these.

    Of a file it keeps the path: what is read again is what the file has then.
    """

    source: Any
    shapes: Sizes
    values: Mapping[str, Any]
    outputs: Sequence[str] | None
    fold: bool
    ops: Mapping[str, Any]
    opaque: bool
    derived: frozenset[str]
    stored: frozenset[str]

    def __call__(self, sizes: Mapping[str, int]) -> Graph:
        model, path = read_model(self.source)
        with about_model(path or "the model"):
            shapes = say_again(model.graph, self.shapes, sizes)
        return load_onnx(
            self.source,
            shapes=shapes,
            values=self.values,
            outputs=self.outputs,
            fold=self.fold,
            ops=self.ops,
            opaque=self.opaque,
        )


def _graph_of(
    model: Any,
    path: Path | None,
    sizes: Sizes,
    values: Mapping[str, Any],
    fed: Mapping[str, tuple[int, ...]],
    outputs: Sequence[str] | None,
    fold: bool,
    importers: Mapping[str, Import],
    opaque: bool,
) -> Graph:
    weights = [tensor.name for tensor in model.graph.initializer]
    weights += [sparse.values.name for sparse in model.graph.sparse_initializer]
    checked = _checked(model, path)
    model = checked.model
    at = Importing(checked, weights, importers)
    known = read_values(model.graph.input, values)
    inputs = [value for value in model.graph.input if value.name in known or not at.is_known(value.name)]
    shapes = InputShapes(inputs, sizes, known, model.graph.output)
    for name, shape in fed.items():
        shapes.take_feed(name, shape)
    as_declared = shapes.as_declared and not values  # else what the model declares may be out of date
    for name, array in known.items():
        at.bind(name, array)
    nodes: Sequence[Node] = list(read_nodes(model.graph))
    names = list(outputs) if outputs is not None else [value.name for value in model.graph.output]
    check_names(model, nodes, names)
    at.taken.update(names, (value.name for value in inputs), *(all_names(node.proto) for node in nodes))
    if any(node.operator == "If" for node in nodes):
        aside = Importing(checked, weights, importers)
        aside.taken = at.taken
        for name, array in known.items():
            aside.bind(name, array)
        nodes, at.undecided = settle_branches(nodes, names, {value.name: value for value in inputs}, shapes, aside)
    needed = needed_of(nodes, names)
    at.listed = find_sequences(needed, names, importers)
    used = {name for node in needed for name in reads_of(node)} | set(names)
    if as_declared:
        at.declare(model.graph)
    placing = Placing(at, opaque)
    try:
        for value in inputs:
            if value.name in used:
                add_input(value, shapes, at)
        with shapes.tell_sizes():
            for node in Folding(needed, names).fold(needed, at) if fold else needed:
                placing.place(node)
        placing.report()
        for name in names:
            at.output(name)
    except NotOfGraphs as error:
        raise type(error)(say_staged(error) if opaque and not placing.stuck else str(error)) from None
    if as_declared:  # while all views are there
        _check_declared_shapes(model, at)
    at.drop_unread_views()
    at.note_folded()
    put_fields(at.graph, sizes=freeze_sizes(shapes.symbols))
    dict.update(at.graph.unread, _unread_inputs(model.graph.input, needed, names, shapes, known, at))
    return at.graph.done()


def check_names(model: Any, nodes: Sequence[Node], outputs: Sequence[str]) -> None:
    """Raise ValueError for outputs that the model has not."""
    made = {name for node in nodes for name in node.outputs}
    made.update(value.name for value in model.graph.input)
    made.update(tensor.name for tensor in model.graph.initializer)
    if not outputs:
        raise ValueError("the model has no outputs; name some with outputs=[…]")
    for name in outputs:
        if name not in made:
            own = [value.name for value in model.graph.output]
            if name in own:
                raise ValueError(f"output {quote(name)} is named by the model, and no node makes it: export it again")
            raise ValueError(f"output {quote(name)} is not a tensor of the model; {list_names(own, name, 'outputs')}")


def _unread_inputs(
    inputs: Sequence[Any],
    needed: Sequence[Node],
    outputs: Sequence[str],
    shapes: InputShapes,
    known: Mapping[str, Array],
    at: Importing,
) -> Iterator[tuple[str, Unread]]:
    """The inputs that runs need not be given; but not an initializer that is read, of which another value is wrong."""
    used = {name for node in needed for name in reads_of(node)} | set(outputs)
    for value in inputs:
        name = value.name
        if name in known:
            yield name, Unread(known[name].shape, known[name].dtype.name, sha256_of(known[name]))
        elif (name not in used or shapes.empty(value) is not None) and name not in at.graph.stored:
            yield name, shapes.unread(value)


def _check_declared_shapes(model: Any, at: Importing) -> None:
    """Compare the shapes that the model declares for its tensors with those that the graph found."""
    miscounted: Mapping[str, Sequence[int]] | None = None
    for value in [*model.graph.value_info, *model.graph.output]:
        found, dims = at.tensors.get(value.name), dims_of(value)
        if found is None or dims is None or fits_dims(found.shape, dims):
            continue
        miscounted = shapes_behind_ceil(model) if miscounted is None else miscounted
        if miscounted.get(value.name) != [dim.dim_value for dim in dims]:
            raise ValueError(
                f"tensor {quote(value.name)} comes out with shape {quote(found.shape)}, "
                f"the model declares {show_dims(dims)}; the model contradicts itself"
            )


def fits_dims(shape: Sequence[int], dims: Sequence[Any]) -> bool:
    """Whether a shape has the extents that a model declares, of which 0 says nothing."""
    return len(dims) == len(shape) and all(d.dim_value in (0, n) for d, n in zip(dims, shape, strict=True))


def shapes_behind_ceil(model: Any) -> dict[str, list[int]]:
    """What ONNX's inference writes for results of pools with `ceil_mode`, and for what is made of these.

    Up to opset 21 it counts a window that begins in the padding behind the cells, which nobody computes: such shapes
    are in models, and say nothing of their tensors.

    Raises
    ------
    ValueError
        For a model on which the inference ends.
    """
    import onnx
    from onnx import shape_inference

    behind: set[str] = set()
    for node in read_nodes(model.graph):
        is_pool = node.operator in CEIL_POOLS and node.attrs.get("ceil_mode")
        if is_pool or not behind.isdisjoint(reads_of(node)):
            behind.update(filter(None, node.outputs))
    if not behind:
        return {}
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for value in bare.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    try:
        graph = shape_inference.infer_shapes(bare).graph
    except Exception as error:  # whatever its C++ raises
        raise ValueError(f"ONNX's shape inference does not take the model: {error}") from None
    values = ((value.name, dims_of(value)) for value in (*graph.output, *graph.value_info) if value.name in behind)
    return {name: [dim.dim_value for dim in dims] for name, dims in values if dims is not None}


def read_constant(path: str) -> Array:
    """The constant stored under a path ``<file>#<initializer>``, as `load_onnx` writes them.

    Raises
    ------
    ValueError
        When the path has no such form, or the file no such initializer.
    """
    return read_constants([path])[path]


def read_constants(paths: Iterable[str]) -> dict[str, Array]:
    """The constants stored under several paths, as of `read_constant`; each file is opened once.

    Of values that lie outside a model no more is read than is used.
    """
    wanted: dict[str, list[str]] = {}
    for path in paths:
        file, sep, name = path.partition("#")
        if not sep:
            raise ValueError(f"read_constant: {quote(path)} is not of the form <file>#<initializer>")
        wanted.setdefault(file, []).append(name)
    found = {}
    for file, names in wanted.items():
        model, _ = read_model(file)
        tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        sparse = {one.values.name: one for one in model.graph.sparse_initializer}
        outside = FilesBeside(Path(file))
        filling = Filling(model, outside)
        for name in names:
            if name not in tensors and name not in sparse:
                raise ValueError(f"read_constant: {file} has no initializer {quote(name)}")
            with about_model(file):
                if name in sparse:
                    found[f"{file}#{name}"] = filling.read_initializer(sparse[name])
                    continue
                check_values(tensors[name])
                found[f"{file}#{name}"] = outside.read(tensors[name])
    return found
