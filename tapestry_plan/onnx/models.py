"""ONNX models as graphs.

`load_onnx` reads a model in four steps: the file is checked and brought to a current opset; nodes that no
output needs are left out; nodes whose inputs are all known are evaluated; the others become operators and
selections, each by one small function of the table `IMPORTERS` of `operators`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tapestry_plan.ir import Graph, Unread, UnsupportedOp, sha256_of
from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.branches import graphs_inside, take_branch
from tapestry_plan.onnx.folding import evaluate
from tapestry_plan.onnx.inputs import InputShapes, Sizes, dtype_of, read_values, show_dims
from tapestry_plan.onnx.nodes import (
    Array,
    Attributes,
    Importing,
    Node,
    TooLargeToFold,
    check_attributes,
    check_version,
    refusal,
)
from tapestry_plan.onnx.operators import IMPORTERS, NOT_ADDED
from tapestry_sets.limits import escape_controls

OLDEST_OPSET = 13
"""Older models are converted first: from this opset on axes and limits are inputs, and softmax has one axis."""

TARGET_OPSET = 21
"""The opset that older models are converted to."""

RANDOM_OPS = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
"""Never evaluated in advance: each run is to draw anew."""


# -- nodes of a model ------------------------------------------------------------------------------------


def _nodes(graph: Any) -> Iterator[Node]:
    """The nodes of a model's graph; one without a name is called by its type and a number."""
    from onnx import AttributeProto, helper

    counts: Counter[str] = Counter()
    for proto in graph.node:
        name = proto.name or f"{proto.op_type}_{counts[proto.op_type]}"
        counts[proto.op_type] += not proto.name
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        inputs = tuple(proto.input)
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        plain = [a for a in proto.attribute if a.type not in (AttributeProto.GRAPH, AttributeProto.GRAPHS)]
        attrs = {a.name: helper.get_attribute_value(a) for a in plain}
        attrs = {key: value.decode() if isinstance(value, bytes) else value for key, value in attrs.items()}
        captured = tuple(_captured(proto)) if len(plain) < len(proto.attribute) else None
        yield Node(name, proto.op_type, domain, inputs, tuple(proto.output), Attributes(attrs), proto, captured)


def _captured(proto: Any) -> Iterator[str]:
    """Names that the graphs inside a node read, at any depth."""
    for graph in graphs_inside(proto):
        yield from (value.name for value in graph.output)
        for node in graph.node:
            yield from node.input
            yield from _captured(node)


def _needed(nodes: Sequence[Node], outputs: Sequence[str]) -> list[Node]:
    """The nodes that the outputs depend on, in the model's order; outputs behind the first that nobody reads are empty.

    An operator here may not make all outputs that ONNX's has, and need not where they are only named.
    """
    makers = {name: node for node in nodes for name in node.outputs if name}
    todo, read = list(outputs), set(outputs)
    seen: set[int] = set()
    while todo:
        node = makers.get(todo.pop())
        if node is not None and id(node) not in seen:
            seen.add(id(node))
            reads = [*node.inputs, *(node.captured or ())]
            read.update(reads)
            todo += reads
    needed = [node for node in nodes if id(node) in seen]
    blank = [tuple(name if not k or name in read else "" for k, name in enumerate(node.outputs)) for node in needed]
    return [replace(node, outputs=names) for node, names in zip(needed, blank, strict=True)]


def _sort(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, each after those whose outputs it reads, else in the order given.

    Raises
    ------
    ValueError
        For nodes that read each other's outputs around a cycle, naming them.
    """
    makers = {name: node for node in nodes for name in node.outputs if name}
    done: set[int] = set()
    out: list[Node] = []
    for root in nodes:
        path: dict[int, tuple[Node, Iterator[str]]] = {}
        following: Node | None = root
        while following is not None or path:
            if following is not None and id(following) in path:
                members = list(path)
                cycle = [path[key][0].where for key in members[members.index(id(following)) :]]
                listed = ", ".join(cycle[:8] + ["…"] * (len(cycle) > 8))
                raise ValueError(f"the model has a cycle: {listed}; each reads what the one after it makes: break it")
            if following is not None and id(following) not in done:
                path[id(following)] = following, iter([*following.inputs, *(following.captured or ())])
            node, reads = next(reversed(path.values())) if path else (None, iter(()))
            if node is None:
                break
            name = next(reads, None)
            following = None if name is None else makers.get(name)
            if name is None:
                del path[id(node)]
                done.add(id(node))
                out.append(node)
    return out


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
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
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
def _about(model: object) -> Iterator[None]:
    """Let errors say what they are about."""
    try:
        yield
    except (ValueError, TypeError, MemoryError) as error:
        error.args = (escape_controls(f"load_onnx: {model}: {error}"),)
        raise


def _opset(model: Any) -> int:
    """The version of the standard operators that the model asks for."""
    import onnx

    newest = onnx.defs.onnx_opset_version()
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions:
        domains = sorted({entry.domain for entry in model.opset_import})
        raise ValueError(f"the model uses the domains {domains} only, not ONNX's own operators")
    if not 1 <= versions[0] <= newest:
        raise ValueError(
            f"unknown opset {versions[0]} of domain 'ai.onnx'; the newest supported is {newest}: export with that one "
            "or install a newer onnx"
        )
    return int(versions[0])


def _checked(model: Any, path: Path | None) -> tuple[Any, int]:
    """The model with all its data, and its opset, which is OLDEST_OPSET or later."""
    from onnx import inliner, version_converter

    opset = _opset(model)
    _reject_unusual_tensors(model)
    _reject_second_makers(model)
    if any(_is_external(tensor) for tensor in _all_tensors(model)):
        model = _with_external_data(model, path)
    for tensor in _all_tensors(model):
        _check_values(tensor)
    if model.functions:
        _reject_recursion(model)
        _reject_many_calls(model)
        try:
            model = inliner.inline_local_functions(model)
        except Exception as error:  # as the converter below
            raise ValueError(f"the model's local functions cannot be put in place: {str(error).strip()}") from None
    nodes = list(_nodes(model.graph))
    in_order = _sort(nodes)
    if any(one is not other for one, other in zip(nodes, in_order, strict=True)):
        model = _with_nodes(model, [node.proto for node in in_order])
    if opset >= OLDEST_OPSET:
        return model, opset
    try:
        return version_converter.convert_version(model, TARGET_OPSET), TARGET_OPSET
    except Exception as error:  # the converter raises whatever its C++ raises
        raise ValueError(
            f"opset {opset} cannot be converted to {TARGET_OPSET}: {str(error).strip()}; "
            f"export the model with opset {OLDEST_OPSET} or later"
        ) from None


def _with_nodes(model: Any, nodes: Sequence[Any]) -> Any:
    """A copy of the model with these nodes."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def _reject_recursion(model: Any) -> None:
    """Raise ValueError for local functions that call themselves, at once or through others."""
    calls = {_function_key(one.domain, one): set(_called(one.node)) for one in model.functions}
    try:
        TopologicalSorter({key: found & calls.keys() for key, found in calls.items()}).prepare()
    except CycleError as error:
        names = " calls ".join(f"{domain}::{name}" for domain, name, _ in reversed(error.args[1]))
        raise ValueError(f"local functions are recursive: {names}; export the model without") from None


def _reject_many_calls(model: Any) -> None:
    """Raise ValueError for local functions that stand for many more nodes than the model has.

    Twenty functions, each of which calls the next one twice, stand for a million.
    """
    called = {_function_key(one.domain, one): list(_called(one.node)) for one in model.functions}
    counts: dict[tuple[str, str, str], int] = {}
    for key in TopologicalSorter({key: called.keys() & found for key, found in called.items()}).static_order():
        counts[key] = sum(counts.get(below, 1) for below in called[key])
    top = list(_called(model.graph.node))
    total, stored = sum(counts.get(key, 1) for key in top), len(top) + sum(map(len, called.values()))
    most = tuning.MAX_INLINED_NODES + tuning.INLINED_TIMES * stored
    if total > most:
        raise ValueError(
            f"the model's local functions stand for {total:,} nodes, its {stored:,} nodes may stand for {most:,}; "
            "export the model without functions that call others many times"
        )


def _function_key(domain: str, one: Any) -> tuple[str, str, str]:
    """How a node names the function that it calls: by domain, name and overload."""
    name = one.op_type if hasattr(one, "op_type") else one.name
    return "" if domain == "ai.onnx" else domain, name, getattr(one, "overload", "")


def _called(nodes: Iterable[Any]) -> Iterator[tuple[str, str, str]]:
    """What nodes call, and the graphs inside them."""
    for node in nodes:
        yield _function_key(node.domain, node)
        for graph in graphs_inside(node):
            yield from _called(graph.node)


def _all_tensors(model: Any) -> Iterator[Any]:
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        yield from graph.initializer
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
            graphs += graphs_inside(node)


def _is_external(tensor: Any) -> bool:
    return bool(tensor.HasField("data_location") and tensor.data_location == tensor.EXTERNAL)


def _reject_unusual_tensors(model: Any) -> None:
    import onnx

    for sparse in model.graph.sparse_initializer:
        raise ValueError(f"initializer {sparse.values.name!r} is sparse, which is not supported; store it dense")
    for tensor in _all_tensors(model):
        if tensor.data_type == onnx.TensorProto.STRING:
            raise ValueError(f"tensor {tensor.name!r} holds strings; only numbers are supported")


def _with_external_data(model: Any, path: Path | None) -> Any:
    """A copy of the model that holds all its data; every place is checked before one is read."""
    import onnx

    if path is None:
        raise ValueError(
            "tensors are stored outside the model, but no file was given to look beside; give the model's path"
        )
    folder = path.resolve().parent
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    external = [tensor for tensor in _all_tensors(copy) if _is_external(tensor)]
    places = [_external_place(tensor, folder) for tensor in external]
    for tensor, place in zip(external, places, strict=True):
        _take_external(tensor, *place)
    return copy


def _take_external(tensor: Any, file: Path, offset: int, nbytes: int) -> None:
    """Read a tensor's values into it."""
    with open(file, "rb") as stored:
        stored.seek(offset)
        tensor.raw_data = stored.read(nbytes)
    tensor.data_location = tensor.DEFAULT
    del tensor.external_data[:]


def _external_place(tensor: Any, folder: Path) -> tuple[Path, int, int]:
    """File, offset and bytes of a tensor that is stored beside the model."""
    entry = {item.key: item.value for item in tensor.external_data}
    location = entry.get("location", "")
    where = f"tensor {tensor.name!r} is stored in {location!r}"
    try:
        target = (folder / location).resolve()  # resolves symbolic links and ".."
        is_file = target.is_file()
    except (ValueError, OSError, RuntimeError) as error:  # a zero character, a name too long, a loop of links
        raise ValueError(f"{where}, which is not a path: {error}; name a file beside the model") from None
    if not location or Path(location).is_absolute() or not target.is_relative_to(folder):
        raise ValueError(f"{where}, outside the model's folder {folder}; only files beside the model are read")
    if not is_file:
        raise ValueError(f"{where}, which does not exist in {folder}; put the file beside the model")
    needed = _nbytes(tensor)
    try:
        offset, length = int(entry.get("offset", 0)), int(entry.get("length", needed))
    except ValueError:
        raise ValueError(f"{where} at an offset or length that is not a number: {entry}") from None
    if offset < 0 or length < 0:
        raise ValueError(
            f"{where} at offset {offset}, length {length}; neither can be negative: export the model again"
        )
    size = target.stat().st_size
    if offset + length > size:
        raise ValueError(
            f"{where}, bytes {offset} to {offset + length}, but the file has {size} bytes; it is truncated"
        )
    if length != needed:
        raise ValueError(f"{where} with {length} bytes; {_needs(tensor, needed)}: export the model again")
    return target, offset, needed


BITS = {"INT2": 2, "UINT2": 2, "INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4}
"""Element types of ONNX that are stored packed, several in one byte."""


def _nbytes(tensor: Any) -> int:
    """Bytes that a tensor's dtype and dims ask for."""
    from onnx import TensorProto, helper

    where = f"tensor {tensor.name!r}"
    if any(n < 0 for n in tensor.dims):
        raise ValueError(f"{where} has dims {list(tensor.dims)}; none can be negative: export the model again")
    try:
        packed = BITS.get(TensorProto.DataType.Name(tensor.data_type))
        bits = packed or 8 * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    except (KeyError, ValueError, TypeError):
        raise ValueError(
            f"{where} has elements of type {tensor.data_type}, which ONNX does not know: export the model again"
        ) from None
    return -(-prod(map(int, tensor.dims)) * bits // 8)


def _needs(tensor: Any, nbytes: int) -> str:
    from onnx import TensorProto

    return f"dims {list(tensor.dims)} of {TensorProto.DataType.Name(tensor.data_type)} need {nbytes}"


def _check_values(tensor: Any) -> None:
    """Compare how many values a tensor holds with its dims."""
    from onnx import TensorProto, helper

    needed = _nbytes(tensor)
    where = f"tensor {tensor.name!r}"
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != needed:
            raise ValueError(
                f"{where} holds {len(tensor.raw_data)} bytes; {_needs(tensor, needed)}: export the model again"
            )
    elif TensorProto.DataType.Name(tensor.data_type) not in BITS:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        present = len(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type)))
        count = prod(tensor.dims) * (2 if dtype.kind == "c" else 1)
        if present != count:
            raise ValueError(
                f"{where} holds {present} values; dims {list(tensor.dims)} need {count}: export the model again"
            )


def _reject_second_makers(model: Any) -> None:
    """Every tensor is made once: by one node, or as an input, an initializer, or an input with that initializer."""
    made: dict[str, str] = {}
    given = {value.name for value in model.graph.input}
    entries = [(value.name, "an input") for value in model.graph.input]
    entries += [(tensor.name, "an initializer") for tensor in model.graph.initializer if tensor.name not in given]
    entries += [(name, node.where) for node in _nodes(model.graph) for name in node.outputs if name]
    for name, maker in entries:
        if name in made:
            raise ValueError(
                f"tensor {name!r} is made twice, by {made[name]} and by {maker}; names are unique: rename one"
            )
        made[name] = maker


# -- the importer ----------------------------------------------------------------------------------------


def _add(at: Importing, node: Node) -> None:
    """Evaluate a node in advance where its inputs are known, else add it to the graph."""
    takes = IMPORTERS.get(node.operator, NOT_ADDED.get(node.operator))
    if takes is not None:
        takes.check_inputs(node)
    check_attributes(node, at.opset)
    reads = [name for name in node.inputs if name]
    for name in reads:
        if not at.has(name):
            raise ValueError(f"{node.where} reads {name!r}, which no node makes and which is not an input")
    if node.operator in NOT_ADDED:
        NOT_ADDED[node.operator].add(at, node)
        NOT_ADDED[node.operator].check_read(node, at.opset)
    elif node.op_type not in ("Identity", "Dropout") and all(map(at.is_known, reads)):
        _add_known(at, node)
    else:
        _add_to_graph(at, node)


def _add_known(at: Importing, node: Node) -> None:
    """Evaluate a node, or add it to the graph where the reference implementation does not run it."""
    try:
        values = evaluate(node, at)
    except ValueError as error:
        if node.operator not in IMPORTERS:
            raise
        if isinstance(error, TooLargeToFold):
            at.unfolded.update(dict.fromkeys(node.outputs, str(error)))
        _add_to_graph(at, node)
        return
    for name, array in zip(node.outputs, values, strict=False):
        at.bind(name, array)


def _add_to_graph(at: Importing, node: Node) -> None:
    if node.operator not in IMPORTERS:  # which was to be evaluated, but reads what could not be
        why = next((f": {at.unfolded[name]}" for name in node.inputs if name in at.unfolded), "")
        raise refusal(node, f"its operator is not supported, and its inputs are not known in advance{why}")
    check_version(node, at.opset)
    try:
        results = IMPORTERS[node.operator].add(at, node)
    except UnsupportedOp:
        raise
    except KeyError as error:
        raise ValueError(f"{node.where}: the attribute {error} is missing") from None
    except (ValueError, TypeError, IndexError) as error:
        raise ValueError(f"{node.where}: {error}") from None
    IMPORTERS[node.operator].check_read(node, at.opset)
    if results is None:  # an alias, bound already
        return
    results = results if isinstance(results, list) else [results]
    for k, name in enumerate(node.outputs):
        if name and k >= len(results):
            raise refusal(node, f"its output {k}, {name!r}, is not made here")
        if name:
            at.bind(name, results[k])


def load_onnx(
    path_or_model: Any,
    *,
    shapes: Sizes | None = None,
    values: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | None = None,
) -> Graph:
    """Read an ONNX model as a graph.

    Parameters
    ----------
    path_or_model : str, Path, bytes or onnx.ModelProto
    shapes : mapping of str to int or sequence of int, optional
        What the model leaves open: shapes by input, as ``{"x": (3, 224, 224)}``, and sizes by the symbols that the
        model has for them, as ``{"batch": 3}``.
    values : mapping of str to array, optional
        Values of inputs that are known in advance. They become constants, so that shapes may depend on them: the shape
        of a Reshape, the bounds of a Slice. Numbers of Python take the input's dtype.
    outputs : sequence of str, optional
        Tensors to give as outputs instead of the model's own; parts of the model that they do not need are
        left out.

    Returns
    -------
    Graph
        Its outputs are called like the model's. Constants that come straight from a file carry the path
        ``<file>#<initializer>``, which `read_constant` understands.

    Raises
    ------
    UnsupportedOp
        Listing every node whose operator is not supported, by name, type, domain and opset.
    ValueError
        For bytes that are not an ONNX model or are truncated, an unknown opset, axes without a size, shapes and values
        that do not fit, external data that is missing or outside the model's folder, sparse or string tensors.

    Examples
    --------
    >>> from tapestry_plan.onnx import demo_model
    >>> graph = load_onnx(demo_model())
    >>> graph.stored["data_0"].shape, graph.tensor(graph.outputs["softmaxout_1"]).shape
    ((1, 3, 224, 224), (1, 1000, 1, 1))

    References
    ----------
    ONNX IR and operators, opset 13 and later; older models are converted by onnx.version_converter.
    """
    for name, given, example in (("shapes", shapes, "{'x': (1, 3)}"), ("values", values, "{'shape': [2, 6]}")):
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(f"load_onnx: {name} is {given!r:.200}; give a mapping of names, as in {example}")
    model, path = read_model(path_or_model)
    with _about(path or "the model"):
        return _graph_of(model, path, shapes or {}, values or {}, outputs)


def _graph_of(
    model: Any, path: Path | None, sizes: Sizes, values: Mapping[str, Any], outputs: Sequence[str] | None
) -> Graph:
    weights = [tensor.name for tensor in model.graph.initializer]
    model, opset = _checked(model, path)
    at = Importing(model, path, opset, weights)
    known = read_values(model.graph.input, values)
    inputs = [value for value in model.graph.input if value.name in known or not at.is_known(value.name)]
    shapes = InputShapes(inputs, sizes, known)
    for name, array in known.items():
        at.bind(name, array)
    nodes: Sequence[Node] = list(_nodes(model.graph))
    names = list(outputs) if outputs is not None else [value.name for value in model.graph.output]
    _check_names(model, nodes, names)
    if any(node.operator == "If" for node in nodes):
        aside = Importing(model, path, opset, weights)
        for name, array in known.items():
            aside.bind(name, array)
        nodes = _settle_branches(nodes, names, inputs, shapes, aside)
    needed = _needed(nodes, names)
    _check_supported(needed, at)
    _add_inputs(inputs, needed, names, shapes, at)
    for node in needed:
        _add(at, node)
    for name in names:
        at.graph.output(at.tensor(name), name)
    at.graph.unread.update(_unread_inputs(model.graph.input, needed, names, shapes, known, at))
    if not sizes and not values:
        _check_declared_shapes(model, at)
    return at.graph


def _check_names(model: Any, nodes: Sequence[Node], outputs: Sequence[str]) -> None:
    made = {name for node in nodes for name in node.outputs}
    made.update(value.name for value in model.graph.input)
    made.update(tensor.name for tensor in model.graph.initializer)
    if not outputs:
        raise ValueError("the model has no outputs; name some with outputs=[…]")
    for name in outputs:
        if name not in made:
            raise ValueError(
                f"output {name!r} is not a tensor of the model; "
                f"its own outputs are {[value.name for value in model.graph.output]}"
            )


def _settle_branches(
    nodes: Sequence[Node], outputs: Sequence[str], inputs: Sequence[Any], shapes: InputShapes, aside: Importing
) -> list[Node]:
    """The nodes, where each If whose condition is known gives way to the nodes of the branch that it takes.

    Conditions follow from shapes and known values; what they depend on is imported aside, to find out.
    """
    left, out = list(nodes), list[Node]()
    taken = {value.name for value in inputs} | {name for node in nodes for name in (*node.inputs, *node.outputs)}
    while left:
        node = left.pop(0)
        if node.operator == "If" and node.inputs:
            whole = _needed([*out, node, *left], outputs)
            needed = any(one.proto is node.proto for one in whole)
            condition = _find_condition(node, whole, inputs, shapes, aside) if needed else None
            if condition is not None:
                left[:0] = _sort(list(_nodes(take_branch(node, condition, taken))))
                continue
        out.append(node)
    return out


def _find_condition(
    node: Node, nodes: Sequence[Node], inputs: Sequence[Any], shapes: InputShapes, aside: Importing
) -> bool | None:
    """The condition of an If, None where it is not known at import."""
    name = node.inputs[0]
    behind = {one.outputs[0] for one in _needed(nodes, [name])}
    cone = [one for one in nodes if one.outputs[0] in behind and not aside.has(one.outputs[0])]
    try:
        _check_supported(cone, aside)
        _add_inputs(inputs, cone, [name], shapes, aside)
        for one in cone:
            _add(aside, one)
    except UnsupportedOp:
        return None
    if not aside.is_known(name):
        return None
    value = aside.value(name)
    if value.size != 1:
        raise ValueError(f"{node.where}: its condition has shape {value.shape}; one truth value is needed")
    return bool(value.reshape(()))


def _check_supported(nodes: Sequence[Node], at: Importing) -> None:
    """Raise for all nodes that are neither in the table nor evaluated in advance."""
    known: set[str] = set()
    missing = []
    for node in nodes:
        reads = [name for name in node.inputs if name]
        standard = not node.domain and node.captured is None
        folded = all(name in known or at.is_known(name) for name in reads) and node.op_type not in RANDOM_OPS
        if standard and (folded or node.op_type in NOT_ADDED):
            known.update(node.outputs)
        elif node.captured is not None or node.operator not in IMPORTERS:
            missing.append(node)
    if missing:
        raise UnsupportedOp(
            f"{len(missing)} node{'s have' if len(missing) > 1 else ' has'} an operator that is not supported:\n"
            + "\n".join(_missing_line(node, at.opset) for node in missing)
            + f"\nthe {len(IMPORTERS)} supported are the keys of tapestry_plan.onnx.IMPORTERS, and others can be added"
        )


def _missing_line(node: Node, opset: int) -> str:
    """What is known of a node whose operator is not supported."""
    line = f"  node {node.name!r}: {node.op_type} of domain {node.domain or 'ai.onnx'!r}"
    line += "" if node.domain else f", opset {opset}"
    line += "" if node.captured is None else ", with a graph inside"
    if node.operator == "If" and node.inputs:
        line += f", whose condition {node.inputs[0]!r} is not known in advance (give what it depends on with values=)"
    near = get_close_matches(node.operator, IMPORTERS, 3, cutoff=0.0)
    return f"{line}; nearest in name: {', '.join(near)}" if near else line


def _add_inputs(
    inputs: Sequence[Any], needed: Sequence[Node], outputs: Sequence[str], shapes: InputShapes, at: Importing
) -> None:
    """Declare the inputs that the outputs depend on, but for those whose values are known."""
    used = {name for node in needed for name in node.inputs} | set(outputs)
    for value in inputs:
        if value.name in used and not at.has(value.name):
            dtype = dtype_of(value)
            shape = shapes.shape(value)
            if prod(shape) >= 2**63:
                raise ValueError(
                    f"input {value.name!r} of shape {shape} has 2**63 cells or more, "
                    "which cannot be counted: give it smaller extents"
                )
            try:
                at.bind(value.name, at.graph.input(value.name, shape, dtype))
            except TypeError as error:
                raise ValueError(str(error)) from None


def _unread_inputs(
    inputs: Sequence[Any],
    needed: Sequence[Node],
    outputs: Sequence[str],
    shapes: InputShapes,
    known: Mapping[str, Array],
    at: Importing,
) -> Iterator[tuple[str, Unread]]:
    """The inputs that runs need not be given; but not an initializer that is read, of which another value is wrong."""
    used = {name for node in needed for name in node.inputs} | set(outputs)
    for value in inputs:
        name = value.name
        if name in known:
            yield name, Unread(known[name].shape, known[name].dtype.name, sha256_of(known[name]))
        elif name not in used and name not in at.graph.stored:
            yield name, shapes.unread(value)


def _check_declared_shapes(model: Any, at: Importing) -> None:
    """Compare the shapes that the model declares for its tensors with those that the graph found."""
    for value in [*model.graph.value_info, *model.graph.output]:
        tensor = value.type.tensor_type
        found = at.tensors.get(value.name)
        if found is None or not tensor.HasField("shape"):
            continue
        dims = list(tensor.shape.dim)
        fits = len(dims) == found.ndim and all(d.dim_value in (0, n) for d, n in zip(dims, found.shape, strict=True))
        if not fits:
            raise ValueError(
                f"tensor {value.name!r} comes out with shape {found.shape}, "
                f"the model declares {show_dims(dims)}; the model contradicts itself"
            )


def read_constant(path: str) -> Array:
    """The constant stored under a path ``<file>#<initializer>``, as `load_onnx` writes them.

    Raises
    ------
    ValueError
        When the path has no such form, or the file no such initializer.
    """
    from onnx import numpy_helper

    file, sep, name = path.partition("#")
    if not sep:
        raise ValueError(f"read_constant: {path!r} is not of the form <file>#<initializer>")
    model, _ = read_model(file)
    tensor = next((tensor for tensor in model.graph.initializer if tensor.name == name), None)
    if tensor is None:
        raise ValueError(f"read_constant: {file} has no initializer {name!r}")
    with _about(file):
        if _is_external(tensor):
            _take_external(tensor, *_external_place(tensor, Path(file).resolve().parent))
        _check_values(tensor)
    return np.asarray(numpy_helper.to_array(tensor))
