"""Which operators of ONNX are imported, and how those that are not run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct

from tapestry_plan import rewrite
from tapestry_plan.ir import Graph, NotApplicable, is_coarse
from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.examples import read_example
from tapestry_plan.onnx.importers.learned import OF_ROWS, ROW
from tapestry_plan.onnx.models import load_onnx
from tapestry_plan.onnx.nodes import is_number, schema_of
from tapestry_plan.onnx.ways import How, list_ways
from tapestry_sets.limits import list_names, quote

TAKE_LESS = frozenset(
    {"BitCast", "Col2Im", "GridSample", "IsInf", "IsNaN", "ReduceMean", "ai.onnx.ml::LinearRegressor"}
)
"""Operators that take fewer dtypes here than ONNX has for them: nodes of others are opaque."""

CutAxes = tuple[tuple[str, tuple[str, ...]], ...]
"""Operators of graphs, each with its index axes."""


class Supported(Struct, frozen=True):
    """An operator of ONNX.

    Parameters
    ----------
    operator : str
        Its type, after the domain where that is not ONNX's own.
    how : str
        "imported": it becomes operators and views, which plans split; "defined": it is taken apart by ONNX's own
        definition, by graphs inside the node, or by the tensors of a sequence, in operators that are imported, or else
        is opaque; "folded": its value
        is known at import, and stands in the graph; "opaque": it runs
        whole, by ONNX Runtime or ONNX's reference, in a graph or, where its results' shapes follow from values, between
        two stages; "refused": none of these is there.
    dtypes : tuple of str
        Of its first operand, those that graphs have; none where it takes no tensor. Of operators that ONNX has no
        schema of, those with which an example is imported.
    axes : tuple of (str, tuple of str)
        The operators of graphs that an example becomes, those with the most work first, and the index axes that plans
        cut, with a + those that are summed over. None where it is opaque, but for what runs in parts of its rows, or
        whole by nature: views and known values.
    instead : tuple of (str, tuple of str)
        The same of what plans compare with these operators, and take where that costs less: their expansions. A softmax
        cuts its rows as a maximum and a sum, a recurrence the cells of its state step by step.
    """

    operator: str
    how: How
    dtypes: tuple[str, ...]
    axes: CutAxes
    instead: CutAxes


def list_supported(*names: str) -> Iterator[Supported]:
    """All operators of ONNX's own domains in the newest opset, and those that joined `IMPORTERS`, by name.

    Parameters
    ----------
    *names : str
        Tell of these alone, in this order; examples of no others are imported.

    Examples
    --------
    >>> from tapestry_plan.onnx import list_supported
    >>> [one.how for one in list_supported("Conv", "RotaryEmbedding", "NonZero")]
    ['imported', 'defined', 'opaque']
    >>> next(list_supported("MatMulInteger")).axes[0]
    ('matmul', ('m', 'n', '+k'))
    """
    ways = list_ways()
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"list_supported: names must be texts, not {quote(name)}; give for example 'Conv'")
        if name not in ways:
            raise ValueError(f"ONNX has no operator {quote(name)}; {list_names(ways, name, 'operators')}")
    return (_look_at(name, ways[name]) for name in names or ways)


@cache
def _look_at(name: str, how: How) -> Supported:
    from onnx import defs

    newest = min(defs.onnx_opset_version(), tuning.KNOWN_OPSET)
    domain, _, op_type = name.rpartition("::")
    schema, example = schema_of(op_type, newest, domain), read_example(name)
    graph = Graph() if example is None else load_onnx(example, opaque=False)
    dtypes = _dtypes_of(schema) if schema is not None or example is None else _dtypes_taken(example)
    if name in TAKE_LESS and example is not None:
        dtypes = tuple(dtype for dtype in dtypes if dtype in _dtypes_taken(example, short=True))
    rows: CutAxes = (("opaque", (ROW,)),) if how == "opaque" and name in OF_ROWS else ()
    return Supported(name, how, dtypes, rows or _list_axes(graph, graph.nodes), _list_instead(graph))


def _list_instead(graph: Graph) -> CutAxes:
    """The same of the expansions of operators whose points are coarser than cells, which plans compare with these."""
    found = dict[tuple[str, tuple[str, ...]], None]()
    for name, node in graph.nodes.items():
        for expansion in graph.ops[node.op].expansions if is_coarse(graph.signature(name)) else ():
            with suppress(NotApplicable):
                made = rewrite.expand.apply(graph, name, into=expansion.__name__)
                found |= dict.fromkeys(_list_axes(made, made.nodes.keys() - graph.nodes.keys()))
    return tuple(found)


def _list_axes(graph: Graph, names: Collection[str]) -> CutAxes:
    """Operators of a graph with their index axes, each once."""
    found: dict[tuple[str, tuple[str, ...]], float] = {}
    for name, node in graph.nodes.items():
        if name not in names:
            continue
        signature = graph.signature(name)
        axes = tuple("+" * (axis.kind == "reduction") + axis.name for axis in signature.axes)
        flop = graph.ops[node.op].flop_per_point(signature, node.attrs) * signature.index.size
        found[node.op, axes] = found.get((node.op, axes), 0) + flop
    return tuple(sorted(found, key=lambda key: -found[key]))


def _dtypes_taken(example: Any, *, short: bool = False) -> tuple[str, ...]:
    """Dtypes with which an example is imported, in place of its first operand's; of short ones, unless asked, one."""
    from onnx import TensorProto, helper

    codes = [code for code in TensorProto.DataType.values() if code not in (TensorProto.UNDEFINED, TensorProto.STRING)]
    dtypes = {code: np.dtype(helper.tensor_dtype_to_np_dtype(code)) for code in codes}
    tried = {code: d.name for code, d in dtypes.items() if is_number(d)}
    return _sorted(
        name
        for code, name in tried.items()
        if (short or dtypes[code].isbuiltin == 1 or name == "bfloat16") and _is_taken(example, code)
    )


def _is_taken(example: Any, code: int) -> bool:
    from onnx import helper, numpy_helper

    model = type(example)()
    model.CopyFrom(example)
    first = model.graph.input[0].type.tensor_type.elem_type
    for value in model.graph.input:
        if value.type.tensor_type.elem_type == first:
            value.type.tensor_type.elem_type = code
    for stored in model.graph.initializer:
        if stored.data_type == first:
            value = numpy_helper.to_array(stored).astype(helper.tensor_dtype_to_np_dtype(code))
            stored.CopyFrom(numpy_helper.from_array(value, stored.name))
    for attribute in model.graph.node[0].attribute if model.graph.node[0].op_type == "BitCast" else ():
        attribute.i = _beside(code)
    try:
        load_onnx(model, opaque=False)
    except ValueError:
        return False
    return True


def _beside(code: int) -> int:
    """Another element type of as many bits, for BitCast: of none it is an identity."""
    from onnx import TensorProto, helper

    name, nbytes = str(helper.tensor_dtype_to_np_dtype(code).name), helper.tensor_dtype_to_np_dtype(code).itemsize
    bits = next((n for n in (2, 4) if name.startswith((f"int{n}", f"uint{n}", f"float{n}_"))), 8 * nbytes)
    wanted = f"INT{bits}" if name == f"uint{bits}" else f"UINT{bits}"
    return int(TensorProto.DataType.Value(wanted))


def _dtypes_of(schema: Any) -> tuple[str, ...]:
    """NumPy's names of the element types that an operator's first operand may have."""
    from onnx import TensorProto, helper

    names = {"float": "FLOAT", "double": "DOUBLE"}
    found = []
    for text in sorted(schema.inputs[0].types) if schema is not None and schema.inputs else ():
        label = text.removeprefix("tensor(").removesuffix(")")
        code = dict(TensorProto.DataType.items()).get(names.get(label, label.upper()))
        if text.startswith("tensor(") and code:
            dtype = helper.tensor_dtype_to_np_dtype(code)
            found += [dtype.name] if is_number(np.dtype(dtype)) else []
    return _sorted(found)


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: ("biufV".find(np.dtype(name).kind), np.dtype(name).itemsize)))
