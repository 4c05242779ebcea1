"""The unsharded run: the same block functions on whole tensors, and the comparison of two results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from math import inf
from os import PathLike
from os.path import getsize, isfile
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from tapestry_exec.copies import Array, block_of, make_contiguous, read_view
from tapestry_exec.run import tuning
from tapestry_exec.run.stores import Source, find_source, take_whole
from tapestry_plan.ir import Graph, Op, OpNode, Shard, Signature, Stored, Unread, components_of, sha256_of
from tapestry_sets.limits import check_arguments, list_names, quote, take_array
from tapestry_sets.regions import Box

FEEDS = "it maps names to arrays, as in {'x': array}"
"""What errors say of inputs and constants of another type."""


@check_arguments(inputs=FEEDS, constants=FEEDS, outputs="give names, as ['y']")
def evaluate(
    graph: Graph,
    inputs: Mapping[str, Any],
    constants: Mapping[str, Any] | None = None,
    outputs: Iterable[str] | None = None,
) -> dict[str, Array]:
    """Run a graph unsharded.

    Parameters
    ----------
    graph : Graph
    inputs : mapping of str to array
        Every input, with its exact shape and dtype.
    constants : mapping of str to array, optional
        Values of constants that the graph names but does not carry.
    outputs : iterable of str, optional
        Tensors to give, by name; the graph's outputs by default.

    Returns
    -------
    dict of str to array

    Raises
    ------
    TypeError
        When the graph is not a Graph, or inputs or constants are not mappings.
    ValueError
        For inputs or constants that are missing, unknown or do not fit, and unknown outputs.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph
    >>> g = Graph()
    >>> x = g.input("x", (2, 3))
    >>> _ = g.output((x + x).T, "y")
    >>> evaluate(g, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})["y"].tolist()
    [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]]
    """
    wanted = dict(graph.outputs) if outputs is None else {name: graph.tensor(name).name for name in outputs}
    return _evaluated(graph, inputs, constants, wanted, lambda array: 0.0)[0]


def evaluate_with_scale(
    graph: Graph, inputs: Mapping[str, Any], constants: Mapping[str, Any] | None, labels: Iterable[str]
) -> tuple[dict[str, Array], float]:
    """The outputs of these labels, as of `evaluate`, and the largest finite magnitude of all floats on the way."""
    return _evaluated(graph, inputs, constants, {label: graph.outputs[label] for label in labels}, _largest)


def _evaluated(
    graph: Graph,
    inputs: Mapping[str, Any],
    constants: Mapping[str, Any] | None,
    wanted: Mapping[str, str],
    size: Callable[[Array], float],
) -> tuple[dict[str, Array], float]:
    """The wanted tensors, and the largest size of any on the way."""
    values = dict(bind(graph, inputs, constants))
    largest = max(map(size, values.values()), default=0.0)
    order = graph.order()
    last = {out: k for k, node in enumerate(order) for out in node.outputs}
    last |= {s: k for k, node in enumerate(order) for name in node.inputs for s in graph.source(name).stored}
    kept = {s for name in wanted.values() for s in graph.source(name).stored}
    dying: dict[int, list[str]] = {}
    for name, k in last.items():
        if name not in kept:
            dying.setdefault(k, []).append(name)
    known = _WHOLES.setdefault(graph, {})
    for k, node in enumerate(order):
        try:
            made = _run_node(graph, node, values, known)
        except Exception as error:  # of a block, which knows neither its operator's name nor the graph's
            error.add_note(f"in operator {quote(node.name)} ({node.op}) of graph {quote(graph.name)}")
            raise
        largest = max(largest, *map(size, made.values()))
        values.update(made)
        for name in dying.get(k, ()):
            del values[name]
    return {label: np.array(_read(graph, name, values)) for label, name in wanted.items()}, largest


def _largest(array: Array) -> float:
    """The largest finite magnitude of floating numbers, 0 of others."""
    if array.dtype.kind != "f" or not array.size:
        return 0.0
    ends = float(array.max()), float(array.min())
    if np.isfinite(ends).all():
        return max(abs(ends[0]), abs(ends[1]))
    finite = array[np.isfinite(array)]
    return float(np.abs(finite).max(initial=0))


def _read(graph: Graph, name: str, values: Mapping[str, Array]) -> Array:
    source = graph.source(name)
    if source.direct:
        return values[source.stored[0]]
    return read_view(source.pieces, [values[s] for s in source.stored], source.shape, source.dtype)


class _Whole(NamedTuple):
    """An operator's whole work, made when it is evaluated first."""

    node: OpNode
    """The graph's own, and the signature: by these it is known again."""
    signature: Signature
    op: Op
    shard: Shard
    scratch_nbytes: int


_WHOLES: WeakKeyDictionary[Graph, dict[str, _Whole]] = WeakKeyDictionary()
"""By operator; a graph that is changed has other nodes, or signatures."""


def _find_whole(graph: Graph, node: OpNode, known: dict[str, _Whole]) -> _Whole:
    signature, op = graph.signature(node.name), graph.ops[node.op]
    found = known.get(node.name)
    if found is None or found.node is not node or found.signature is not signature or found.op is not op:
        index = signature.index
        boxes = tuple(signature.input_box(k, index) for k in range(len(node.inputs)))
        whole = tuple(Box.of(graph.stored[out].shape) for out in node.outputs)
        shard = Shard(index, signature, node.attrs, boxes, whole, None)
        nbytes = op.workspace(shard, graph.stored[node.outputs[0]].itemsize)
        found = known[node.name] = _Whole(node, signature, op, shard, nbytes)
    return found


def _run_node(graph: Graph, node: OpNode, values: Mapping[str, Array], known: dict[str, _Whole]) -> dict[str, Array]:
    _, signature, op, shard, nbytes = _find_whole(graph, node, known)
    blocks = [
        None if box is None else _block(_read(graph, tensor, values), box, signature.inputs[k].pad)
        for k, (tensor, box) in enumerate(zip(node.inputs, shard.input_boxes, strict=True))
    ]
    dtypes = graph.written_dtypes(node.name)
    made = {out: np.empty(graph.stored[out].shape, dtype) for out, dtype in zip(node.outputs, dtypes, strict=True)}
    op.block(np, blocks, list(made.values()), shard.within(np.empty(nbytes, np.uint8)))
    if op.has_states and op.monoid is not None:
        ((out, states),) = made.items()
        return {out: op.monoid.unwrap(np, components_of(states), node.attrs).astype(graph.stored[out].dtype)}
    return made


def _block(array: Array, box: Box, pad: float | None) -> Array:
    """The cells of a box of a whole tensor; the operand's padding where the box reaches outside."""
    zeros = (0,) * array.ndim
    if box.shape == array.shape and box.start == zeros:
        return array
    tensor = Box.of(array.shape)
    if tensor.contains(box):
        return block_of(array, zeros, box)
    out = np.full(box.shape, pad, array.dtype)
    inside = tensor.intersect(box)
    if inside is not None:
        block_of(out, box.start, inside)[...] = block_of(array, zeros, inside)
    return out


# ------------------------------------------------------------------------------------ inputs and constants


def bind(graph: Graph, inputs: Mapping[str, Any], constants: Mapping[str, Any] | None = None) -> dict[str, Array]:
    """The arrays of a graph's inputs and constants, checked and contiguous, by name.

    Raises
    ------
    TypeError
        When one of them is an array in a device's memory.
    ValueError
        Naming the input or constant that is missing, unknown, or of another shape, dtype or content. An input of the
        model that the graph does not read may be given; it is checked too.
    """
    matched = match_inputs(graph, inputs, constants)
    return hold(graph, {name: take_whole(array) for name, array in matched.items()}, constants)


def match_inputs(graph: Graph, inputs: Mapping[str, Any], constants: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A graph's inputs, checked, as they lie in memory: nothing is copied yet. Of constants the names are checked.

    What lies elsewhere, as arrays of Zarr's and Dask's, is a `Source`.
    """
    given = {"input": inputs, "constant": {} if constants is None else constants}
    declared: dict[str, dict[str, Stored]] = {}
    for kind, arrays in given.items():
        declared[kind] = {name: tensor for name, tensor in graph.stored.items() if tensor.kind == kind}
        unread = graph.unread if kind == "input" else {}
        unknown = sorted(set(arrays) - declared[kind].keys() - unread.keys())
        if unknown:
            known = list_names([*declared[kind], *unread], unknown[0], f"{kind}s")
            raise ValueError(f"{kind}s: the graph has no {kind} {quote(unknown[0])}; {known}")
    for name in graph.unread.keys() & inputs.keys():
        _check_unread(name, inputs[name], graph.unread[name])
    for name, tensor in declared["input"].items():
        if name not in inputs:
            raise ValueError(
                f"inputs: {quote(name)} is missing; give an array of {tensor.dtype}, shape {quote(tensor.shape)}"
            )
    return {name: _fitting(inputs[name], tensor, "input") for name, tensor in declared["input"].items()}


def hold(graph: Graph, inputs: Mapping[str, Any], constants: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The arrays of a graph's matched inputs and of its constants, contiguous, by name.

    Of constants that nothing reads only those that are at hand.
    """
    constant = {name: tensor for name, tensor in graph.stored.items() if tensor.kind == "constant"}
    absent = {name for name, tensor in constant.items() if tensor.data is None} - (constants or {}).keys()
    for name in absent - _list_read(graph) if absent else ():
        del constant[name]
    given = {name: array if isinstance(array, Source) else make_contiguous(array) for name, array in inputs.items()}
    return given | hold_constants(constant.values(), constants or {})


def hold_constants(tensors: Iterable[Stored], given: Mapping[str, Any]) -> dict[str, Array]:
    """The values of constants, contiguous, by name: given, carried, or in files; held against their SHA-256."""
    tensors = list(tensors)
    lying = [tensor for tensor in tensors if tensor.name not in given and tensor.data is None and tensor.path]
    given = {**read_files(lying), **given}
    return {tensor.name: make_contiguous(_constant(tensor, given)) for tensor in tensors}


def _list_read(graph: Graph) -> set[str]:
    """The stored tensors that operators and outputs read."""
    names = {name for node in graph.nodes.values() for name in node.inputs} | set(graph.outputs.values())
    return {stored for name in names for stored in graph.source(name).stored}


def check_unified(host: Mapping[str, Array], unified: Mapping[str, str]) -> None:
    """Raise ValueError where a constant is not equal any more to that which a plan reads in its place."""
    for name, other in unified.items():
        one, two = host.get(name), host.get(other)
        if one is None or two is None or one.__array_interface__["data"] == two.__array_interface__["data"]:
            continue
        if not np.array_equal(one.reshape(-1).view(np.uint8), two.reshape(-1).view(np.uint8)):
            raise ValueError(
                f"constants {quote(name)} and {quote(other)} were equal when the plan was made, so that it reads "
                f"{quote(other)} for both, and are not now: plan again, or with unify=False"
            )


def check_finite(graph: Graph, host: Mapping[str, Any]) -> None:
    """Raise ValueError for the first input with a value that is not a finite number, naming value and place.

    Memory that nothing wrote holds NaN. Where inputs hold such values too a comparison could not tell them from a
    cell that no copy reached.
    """
    for name, tensor in graph.stored.items():
        if tensor.kind != "input" or host[name].dtype.kind not in "fc":
            continue
        values = take_whole(host[name])
        finite = np.isfinite(values)
        if not finite.all():
            first = tuple(int(i) for i in np.unravel_index(int(np.argmin(finite)), finite.shape))
            raise ValueError(
                f"input {quote(name)} has {finite.size - int(finite.sum())} values that are not finite, the first is "
                f"{values[first]} at {quote(first)}; a comparison with the unsharded run needs finite numbers: "
                "give such, or run without verify"
            )


def _fitting(value: Any, tensor: Stored, what: str) -> Any:
    if type(value) is np.ndarray and value.shape == tensor.shape and value.dtype == tensor.dtype:
        return value  # a model has hundreds of constants
    wanted = f"an array of {tensor.dtype}, shape {quote(tensor.shape)}"
    array = find_source(value) or take_array(value, f"{what} {quote(tensor.name)}", wanted)
    if array.shape != tensor.shape:
        raise ValueError(
            f"{what} {quote(tensor.name)} has shape {quote(array.shape)}; shape {quote(tensor.shape)} is needed"
        )
    if array.dtype != np.dtype(tensor.dtype):
        raise ValueError(
            f"{what} {quote(tensor.name)} has dtype {array.dtype}; {tensor.dtype} is needed: "
            f"convert it with .astype({quote(tensor.dtype)})"
        )
    return array


def _check_unread(name: str, value: Any, declared: Unread) -> None:
    """Raise ValueError for what does not fit an input of the model that the graph does not read."""
    what, shape = f"input {quote(name)}, which the graph does not read,", declared.shape
    array = take_array(value, what, "an array as the model has it, or leave it out")
    if shape is not None and (
        len(shape) != array.ndim or any(n not in (None, m) for n, m in zip(shape, array.shape, strict=True))
    ):
        shown = ", ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(
            f"{what} has shape {quote(array.shape)}; the model has ({shown}): leave it out, or give such an array"
        )
    if declared.dtype is not None and array.dtype != np.dtype(declared.dtype):
        raise ValueError(
            f"{what} has dtype {array.dtype}; the model has {declared.dtype}: leave it out, or convert it with "
            f".astype({quote(declared.dtype)})"
        )
    if declared.sha256 is not None and sha256_of(array) != declared.sha256:
        raise ValueError(
            f"input {quote(name)} has another value than load_onnx was given in values=, on which the graph depends: "
            "leave it out, or load the model with this value"
        )


def _constant(tensor: Stored, given: Mapping[str, Any]) -> Array:
    value = given.get(tensor.name, tensor.data)
    if value is None:
        raise ValueError(
            f"constant {quote(tensor.name)} is named but not carried by the plan; give "
            f"constants={{{quote(tensor.name)}: …}}"
        )
    array: Array = _fitting(take_whole(value), tensor, "constant")
    # Values that came with the graph are the graph; only values from elsewhere can be others.
    if tensor.sha256 is not None and array is not tensor.data:
        found = sha256_of(array)
        if found != tensor.sha256:
            raise ValueError(
                f"constant {quote(tensor.name)} has other values than the plan was made for: its SHA-256 is "
                f"{found[:12]}…, the plan's {tensor.sha256[:12]}…; give the constants of that model"
            )
    return array


def read_files(tensors: Iterable[Stored]) -> dict[str, Array]:
    """Constants from where their paths say, by name: array files, or ``model.onnx#initializer``, each read once."""
    found, inside = dict[str, Array](), dict[str, str]()
    for tensor in tensors:
        assert tensor.path is not None, "the caller has seen one"
        file, _, initializer = tensor.path.partition("#")
        if not isfile(file):
            raise ValueError(
                f"constant {quote(tensor.name)}: its file {quote(file)} does not exist; give "
                f"constants={{{quote(tensor.name)}: …}}"
            )
        if initializer:
            inside[tensor.name] = tensor.path
        else:
            found[tensor.name] = read_array(file, getsize(file) >= tuning.MAPPED_NBYTES)
    if inside:
        read = import_module("tapestry_plan.onnx").read_constants(inside.values())  # onnx is loaded for a model only
        found.update((name, read[path]) for name, path in inside.items())
    return found


def read_array(file: str | PathLike[str], is_mapped: bool = False) -> Array:
    """The array in a ``.npy`` file; mapped, its pages are read when they are looked at.

    Raises
    ------
    OSError
        When there is no such file.
    ValueError
        When the file is of another kind, holds objects, or is damaged.
    """
    with open(file, "rb") as stored:
        if stored.read(6) != b"\x93NUMPY":
            raise ValueError(f"{file} is not a .npy file; write the array with numpy.save")
    with _about_file(file):
        array: Array = np.asarray(np.load(file, "r" if is_mapped else None, allow_pickle=False))
    return array


def read_arrays(file: str | PathLike[str]) -> dict[str, Array]:
    """The arrays in a ``.npz`` file, by name.

    Raises
    ------
    OSError
        When there is no such file.
    ValueError
        When the file is of another kind, holds objects, or is damaged.
    """
    with open(file, "rb") as stored:
        if stored.read(2) != b"PK":
            raise ValueError(f"{file} is not a .npz file; write the arrays with numpy.savez")
    with _about_file(file), np.load(file, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


@contextmanager
def _about_file(file: str | PathLike[str]) -> Iterator[None]:
    """Let errors of NumPy, which reads headers as Python text and raises whatever that raises, say what is wrong."""
    try:
        yield
    except Exception as error:
        if "allow_pickle" in str(error):
            raise ValueError(f"{file} holds Python objects; save an array of numbers or booleans") from None
        raise ValueError(f"{file} is damaged or truncated: {error}; write the array again") from None


# -------------------------------------------------------------------------------------------- comparison


@check_arguments
def difference(found: Array | np.generic, reference: Array | np.generic) -> float:
    """How far two results of one shape are apart: max|difference| / max|reference|.

    Integers and booleans differ by 0 or infinity. So do NaNs and infinities, which must be in the same places.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import difference
    >>> difference(np.array([1.0, 2.5]), np.array([1.0, 2.0]))
    0.25
    >>> difference(np.array([1, 2]), np.array([1, 3]))
    inf
    """
    apart, largest = most_apart(np.asarray(found), np.asarray(reference))
    return apart / largest if largest else (0.0 if apart == 0 else inf)


def most_apart(found: Array, reference: Array) -> tuple[float, float]:
    """max|difference| and max|reference| of two results, over what is finite; (inf, 1) for what cannot be near."""
    if found.shape != reference.shape or found.dtype != reference.dtype:
        return inf, 1.0
    if found.dtype.kind not in "fc":
        return 0.0 if np.array_equal(found, reference) else inf, 1.0
    finite = np.isfinite(reference)
    if not np.array_equal(found[~finite], reference[~finite], equal_nan=True) or not np.isfinite(found[finite]).all():
        return inf, 1.0
    wide = np.result_type(found.dtype, np.float64)
    apart = np.abs(found[finite].astype(wide) - reference[finite])
    return float(apart.max(initial=0)), float(np.abs(reference[finite]).max(initial=0))
