"""The operators that come along, as `ops` lists them and `show` draws them: calls, words, and index axes by shapes."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np

from tapestry_exec.cli.answers import AxisEntry, OperatorEntry
from tapestry_exec.cli.tuning import IMAGE, SQUARE
from tapestry_plan import ops
from tapestry_plan.ir import BUILTIN_OPS, Graph, Op, Operation, Shape, operation
from tapestry_sets.limits import list_names, quote

FLOATS = ("float16", "float32", "float64")
SHAPES: dict[str, tuple[Shape, ...]] = {
    "attention": ((2, 3, 4, 8), (2, 3, 6, 8), (2, 3, 6, 8)),
    "batch_normalization": (IMAGE, (4,), (4,), (4,), (4,)),
    "bernoulli": (),
    "conv": (IMAGE, (3, 4, 3, 3)),
    "conv_transpose": (IMAGE, (4, 3, 3, 3)),
    "det": ((3, 4, 4),),
    "einsum": (SQUARE, (6, 5)),
    "gather_nd": (SQUARE, (5, 1)),
    "gemm": (SQUARE, (6, 5)),
    "group_normalization": (IMAGE, (4,), (4,)),
    "instance_normalization": (IMAGE, (4,), (4,)),
    "integers": (),
    "iota": (),
    "layer_normalization": (SQUARE, (6,)),
    "linear": (SQUARE, (6, 5)),
    "matmul": (SQUARE, (6, 5)),
    "matrix_products": (SQUARE, (6, 5)),
    "normal": (),
    "put_along_axis": (SQUARE, (2, 6), (2, 6)),
    "recurrence": ((5, 2, 3, 16), (2, 16, 4), (2, 3, 4), (2, 3, 4)),
    "recurrence_step": ((2, 3, 4, 5), (2, 4, 5, 5), (2, 3, 5), (2, 3, 5)),
    "rms_normalization": (SQUARE, (6,)),
    "scatter_nd": (SQUARE, (2, 1), (2, 6)),
    "take": (SQUARE, (3,)),
    "unpack_blocks": ((4, 3, 8), (4, 3)),
    "uniform": (),
    **dict.fromkeys(("average_pool", "max_pool", "sum_pool", "local_response_normalization"), (IMAGE,)),
    **dict.fromkeys(("global_average_pool", "global_max_pool"), (IMAGE,)),
}
"""For operators that do not take matrices of one shape: operands of an example."""
NEEDED = {
    "depth": 3,
    "dtype": "float32",
    "dtypes": ("float32",),
    "equation": "ij,jk->ik",
    "groups": 2,
    "high": 10,
    "k": 2,
    "kernel": (2, 2),
    "low": 0,
    # Hardmax of 4x6
    "model": "CAg6QAoRCgF4EgF5IgdIYXJkbWF4OgASAWdaEwoBeBIOCgwIARIICgIIBAoCCAZiEwoBeRIOCgwIARIICgIIBAoCCAZCBAoAEBU=",
    "rate": 0.5,
    "seed": 0,
    "shape": SQUARE,
    "shapes": (SQUARE,),
    "size": 3,
}
"""Values of attributes that have no default, for an example."""
OF_INTEGERS = {"indices": "int64", "integers": "uint8", "packed": "uint8", "zero": "uint8"}
"""Operands of one dtype, by name."""
ALSO: dict[str, dict[str, Any]] = {
    "bitcast": {"dtype": "int32"},
    "cumulative_sum": {"axis": 1},
    "quantize": {"dtype": "uint8"},
    "requantize": {"dtype": "uint8"},
    "resize": {"sizes": (8, 12)},
}
"""Attributes without which an operator has no index axes, though they have a default."""
DTYPES = ("float32", "int64", "bool")
EVERY_DTYPE = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), *FLOATS)
"""Those that graphs of models have."""


def find_operator(name: str) -> Op:
    """The declaration of an operator by name; a ValueError names the nearest ones."""
    if name not in BUILTIN_OPS:
        raise ValueError(
            f"there is no operator {quote(name)}; {list_names(sorted(BUILTIN_OPS), name, 'operators')}; those of ONNX "
            "are listed by `tapestry ops --onnx`"
        )
    return BUILTIN_OPS[name]


def parse_operand_shapes(text: str) -> tuple[Shape, ...]:
    """Shapes of operands from ``32x64,64x16``.

    Examples
    --------
    >>> parse_operand_shapes("32x64,64"), parse_operand_shapes("")
    (((32, 64), (64,)), ())
    """
    found = []
    for word in text.split(",") if text.strip() else []:
        parts = [part.strip() for part in word.split("x")]
        if not all(part.isdecimal() and len(part) < 10 for part in parts):
            raise click.UsageError(
                f"--shapes {quote(text)}: {quote(word)} is not numbers joined by 'x'; write for example 32x64,64x16"
            )
        found.append(tuple(map(int, parts)))
    return tuple(found)


def parse_attributes(given: Sequence[str]) -> dict[str, Any]:
    """Attributes from ``name=value``: numbers, booleans, lists, or words as they are.

    Examples
    --------
    >>> parse_attributes(["axis=-1", "pads=[1, 1, 1, 1]", "equation=ij,jk->ik", "causal=true"])
    {'axis': -1, 'pads': (1, 1, 1, 1), 'equation': 'ij,jk->ik', 'causal': True}
    """
    out = {}
    for item in given:
        name, sign, text = item.partition("=")
        if not sign or not name:
            raise click.UsageError(f"--attr {quote(item)} is not of the form name=value; write for example axis=1")
        out[name] = _parse_value(text)
    return out


def _parse_value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.strip().lower() in words:
        return words[text.strip().lower()]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    return tuple(value) if isinstance(value, list) else value


def make_operation(name: str, shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> Operation:
    """An operator applied to inputs of these shapes; a ValueError says what does not fit.

    Inputs are of the first of `DTYPES` that the operator takes; what is read and written does not depend on it.

    Examples
    --------
    >>> make_operation("matmul", [(4, 6), (6, 5)], {}).signature
    Signature(m:4, n:5, k:6 summed; 2 inputs, 1 output)
    """
    op, operands = find_operator(name), list_operands(name)
    for word in attributes:
        if word not in op.attributes:
            raise ValueError(f"{name} has no attribute {quote(word)}; {list_names(op.attributes, word, 'attributes')}")
    if missing := [word for word in op.needed if word not in attributes]:
        raise ValueError(f"{name} needs its attribute {quote(missing[0])}; give it with --attr {missing[0]}=…")
    least = sum(one.default is one.empty and one.kind is not one.VAR_POSITIONAL for one in operands)
    is_open = any(one.kind is one.VAR_POSITIONAL for one in operands)
    least = max(least, 1) if is_open else least
    if len(shapes) < least or (len(shapes) > len(operands) and not is_open):
        count = f"{least} or more" if is_open else " to ".join(map(str, sorted({least, len(operands)})))
        raise ValueError(f"{name} has {count} operands, {len(shapes)} given; call it as {tell_call(name)}")
    errors = []
    for dtype in DTYPES:
        graph = Graph()
        try:
            _call(graph, name, operands, shapes, dtype, dict(attributes))
            (node,) = (node.name for node in graph.nodes.values() if node.op == name)
            return operation(graph, node)
        except (ValueError, TypeError, IndexError) as error:
            errors.append(str(error))
    raise ValueError(errors[0])


def _call(
    graph: Graph,
    name: str,
    operands: Sequence[inspect.Parameter],
    shapes: Sequence[Shape],
    dtype: str,
    attributes: dict[str, Any],
) -> None:
    """Add an operator to a graph by the function that users call, with inputs of one dtype; indices are integers."""
    function, rest = getattr(ops, name), list(shapes)
    before: list[Any] = []
    for one in inspect.signature(function).parameters.values():
        if one.name == "graph":
            before.append(graph)
        elif one in operands and one.kind is one.VAR_POSITIONAL:
            before += [graph.input(f"{one.name}_{k}", shape, dtype) for k, shape in enumerate(rest)]
        elif one in operands and rest:
            made = graph.input(one.name, rest.pop(0), OF_INTEGERS.get(one.name, dtype))
            if any(other.kind is other.VAR_POSITIONAL for other in operands):  # what is before these has no name there
                before.append(made)
            else:
                attributes[one.name] = made
        elif one.name in attributes and name == "einsum":  # what is before its operands has no name there
            before.append(attributes.pop(one.name))
    function(*before, **attributes)


def describe_operator(
    name: str, shapes: Sequence[Shape] | None = None, attributes: Mapping[str, Any] | None = None
) -> OperatorEntry:
    """An operator with its index axes for operands of these shapes, by default of an example.

    Examples
    --------
    >>> found = describe_operator("softmax")
    >>> found.call, [axis.name for axis in found.axes], found.shapes
    ('softmax(x, axis=-1)', ['i0'], [[4, 6]])
    """
    shapes, attributes = fill_example(name, shapes, attributes)
    made = make_operation(name, shapes, attributes)
    says = (inspect.getdoc(getattr(ops, name)) or "").partition("\n")[0]
    axes, given = AxisEntry.list_of(made.signature), [list(shape) for shape in shapes]
    return OperatorEntry(name, tell_call(name), says, given, dict(attributes), axes, list_dtypes(made))


def list_dtypes(made: Operation) -> list[str]:
    """The dtypes that the operator takes in place of its first operand's; those of other operands stay as they are.

    Examples
    --------
    >>> list_dtypes(make_operation("sin", [(4, 6)], {})), len(list_dtypes(make_operation("relu", [(4, 6)], {})))
    (['float16', 'float32', 'float64'], 11)
    """
    op, node = made.graph.ops[made.node.op], made.node
    given = [made.graph.source(name).dtype for name in node.inputs]
    return [dtype for dtype in EVERY_DTYPE if given and _is_taken(op, given, dtype, node.attrs)]


def _is_taken(op: Op, given: Sequence[str], dtype: str, attrs: Mapping[str, Any]) -> bool:
    try:
        op.dtype([dtype if one == given[0] else one for one in given], attrs)
    except (ValueError, TypeError):
        return False
    return True


def tell_dtypes(names: Sequence[str]) -> str:
    """Dtypes in few words: all of a kind by its name.

    Examples
    --------
    >>> tell_dtypes(["float16", "float32", "float64"]), tell_dtypes(["bool", "int8"]), tell_dtypes([])
    ('floats', 'bool, int8', '')
    """
    told, left = [], list(names)
    for word, kinds in (("integers", "iu"), ("floats", "f")):
        every = [name for name in EVERY_DTYPE if np.dtype(name).kind in kinds]
        if set(every) <= set(left):
            told.append(word)
            left = [name for name in left if name not in every]
    return ", ".join([*left, *told])


def fill_example(
    name: str, shapes: Sequence[Shape] | None, attributes: Mapping[str, Any] | None
) -> tuple[Sequence[Shape], dict[str, Any]]:
    """Shapes and attributes of an example, unless shapes are given."""
    if shapes is not None:
        return shapes, dict(attributes or {})
    op = find_operator(name)
    count = sum(one.default is one.empty for one in list_operands(name))
    needed = {word: NEEDED[word] for word in op.needed if word in NEEDED}
    return SHAPES.get(name, (SQUARE,) * max(count, 1)), {**needed, **ALSO.get(name, {}), **(attributes or {})}


def list_operands(name: str) -> list[inspect.Parameter]:
    """The parameters of an operator's function that are tensors."""
    op = find_operator(name)
    call = inspect.signature(getattr(ops, name)).parameters.values()
    return [one for one in call if one.name not in (*op.attributes, "name", "graph")]


def tell_call(name: str) -> str:
    """How an operator is called in Python, without annotations.

    Examples
    --------
    >>> tell_call("gemm"), tell_call("add_n")
    ('gemm(a, b, c=None, *, alpha=1.0, beta=1.0, trans_a=False, trans_b=False)', 'add_n(*tensors)')
    """
    call = inspect.signature(getattr(ops, name))
    kept = [one.replace(annotation=one.empty) for one in call.parameters.values() if one.name != "name"]
    return f"{name}{call.replace(parameters=kept, return_annotation=call.empty)}"
