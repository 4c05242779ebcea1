"""What no declaration is of: a small ONNX model that runs whole, or in parts along axes that it does not mix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapestry_plan.ir import (
    Attrs,
    Axis,
    InnerWork,
    Shape,
    Shard,
    Signature,
    Tensor,
    check_dtype,
    check_shape,
    shares_of,
)
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.evaluators import decode_model, run_model
from tapestry_plan.ops.operands import touched
from tapestry_sets.limits import is_int, quote, tell_count


def _list_kinds(attrs: Attrs) -> list[str]:
    """The operators of ONNX that a node runs, after their domains where these are not ONNX's own."""
    nodes = decode_model(attrs["model"]).graph.node
    return [f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in nodes]


# -- the declaration -------------------------------------------------------------------------------------


def _opaque_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """One index point, which reads and writes all; or one for each cell along the axes that are followed."""
    graph = decode_model(attrs["model"]).graph
    made = [check_shape(shape, f"shapes[{k}]") for k, shape in enumerate(attrs["shapes"])]
    if len(graph.input) != len(shapes):
        raise ValueError(f"the model has {tell_count(len(graph.input), 'input')}, {len(shapes)} are given")
    if len(graph.output) != len(made) or not made:
        raise ValueError(
            f"shapes has {len(made)} entries, the model {tell_count(len(graph.output), 'output')}; give the shape of "
            "each, and an operator has one at least"
        )
    every = [*shapes, *made]
    follows = [tuple(names) for names in attrs.get("follows") or [[""] * len(shape) for shape in every]]
    if [len(names) for names in follows] != [len(shape) for shape in every]:
        raise ValueError(
            f"follows is {quote(follows)} beside tensors of shapes {quote(every)}; give a name or '' for each axis"
        )
    axes = _find_axes(every, follows)
    _read_inside(axes, attrs)
    operands = [touched(axes, names, shape) for names, shape in zip(follows, every, strict=True)]
    return Signature(axes, tuple(operands[: len(shapes)]), tuple(operands[len(shapes) :]))


def _find_axes(shapes: Sequence[Shape], follows: Sequence[Sequence[str]]) -> tuple[Axis, ...]:
    """The index axes that tensors follow, in the order in which they first do."""
    sizes: dict[str, int] = {}
    for k, (shape, names) in enumerate(zip(shapes, follows, strict=True)):
        for name, n in zip(names, shape, strict=True):
            if name and sizes.setdefault(name, n) != n:
                raise ValueError(f"follows[{k}]: axis {quote(name)} has extent {sizes[name]} before, here {n}")
    return tuple(Axis(name, n) for name, n in sizes.items())


def _read_inside(axes: Sequence[Axis], attrs: Attrs) -> list[InnerWork]:
    """What the attributes say of the operators inside, with index axes by number."""
    rounds, places = attrs.get("rounds"), {axis.name: k for k, axis in enumerate(axes)}
    if rounds is not None and not is_int(rounds, 1):
        raise ValueError(f"rounds is {quote(rounds)}; give how many there are, 1 or more, or None where nobody knows")
    found = []
    for k, row in enumerate(attrs.get("inside", ())):
        try:
            times, is_contraction, flop, cut, operands = row
            if not isinstance(is_contraction, bool):
                raise ValueError(is_contraction)
            found.append(
                InnerWork(
                    _count(times) * (rounds or 1),
                    is_contraction,
                    float(flop),
                    tuple(places[name] for name in cut),
                    tuple(
                        (_count(cells), _count(itemsize), _count(packed), tuple(places[name] for name in names))
                        for cells, itemsize, packed, names in operands
                    ),
                )
            )
            if not 0 <= found[-1].flop < math.inf:
                raise ValueError(flop)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ValueError(
                f"inside[{k}] is {quote(row)}; give (times, is_contraction, flop, axes, operands), with (cells, "
                f"itemsize, packed, axes) for each operand: numbers from 0, and index axes of {quote(list(places))}"
            ) from None
    return found


def _count(value: Any) -> int:
    if not is_int(value, 0):
        raise ValueError(value)
    return int(value)


def _opaque_repeats(signature: Signature, attrs: Attrs) -> list[InnerWork]:
    return _read_inside(signature.axes, attrs)


def _opaque_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    given = tuple([check_dtype(name, f"dtypes[{k}]: ") for k, name in enumerate(attrs["dtypes"])])
    if len(given) != len(attrs["shapes"]):
        raise ValueError(f"dtypes has {len(given)} names, shapes {len(attrs['shapes'])}; give one for each output")
    for value, dtype in zip(decode_model(attrs["model"]).graph.input, dtypes, strict=False):
        declared = _name_dtype(value.type.tensor_type.elem_type)
        if declared not in ("", dtype):
            raise ValueError(f"the dtype of input {quote(value.name)} is {dtype}; the model declares {declared}")
    return given


def _name_dtype(number: int) -> str:
    """NumPy's name of a type of ONNX; empty where the model says none."""
    from onnx import TensorProto, helper

    return "" if number in (TensorProto.UNDEFINED, TensorProto.STRING) else helper.tensor_dtype_to_np_dtype(number).name


def _opaque_flop(signature: Signature, attrs: Attrs) -> float:
    """What the operators inside do, where they are known; else an operation for each cell that is read or written."""
    if attrs.get("inside"):
        whole = shares_of(signature, signature.index)
        return sum(one.count_flop(whole) for one in _opaque_repeats(signature, attrs)) / signature.index.size
    return float(sum(math.prod(one.projection.shape) for one in (*signature.inputs, *signature.outputs)))


def _attrs_of_block(shard: Shard, shapes: Sequence[Shape]) -> Attrs:
    """Those of the blocks alone: the same model, whose outputs have other shapes, and which does less inside."""
    parts = {axis.name: (n, axis.size) for n, axis in zip(shard.index.shape, shard.signature.axes, strict=True)}

    def cut(count: float, names: Sequence[str]) -> float:
        for name in names:
            n, size = parts[name]
            count = count * n // size if isinstance(count, int) else count * n / size
        return count

    inside = tuple(
        (*row[:2], cut(row[2], row[3]), row[3], tuple((cut(n, a), size, cut(m, a), a) for n, size, m, a in row[4]))
        for row in shard.attrs.get("inside", ())
    )
    return {**shard.attrs, "shapes": tuple(box.shape for box in shard.output_boxes), "inside": inside}


def _opaque_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    names = [value.name for value in decode_model(shard.attrs["model"]).graph.input]
    given = {name: np.ascontiguousarray(block).reshape(block.shape) for name, block in zip(names, inputs, strict=True)}
    found = run_model(shard.attrs["model"], given)
    for k, (out, array) in enumerate(zip(outputs, map(np.asarray, found), strict=True)):
        if array.shape != out.shape or array.dtype != out.dtype:
            raise ValueError(
                f"opaque ({', '.join(_list_kinds(shard.attrs))}): output {k} comes out as {array.dtype}"
                f"{quote(array.shape)}; {out.dtype}{quote(out.shape)} is declared"
            )
        out[...] = array


@operator(
    block=_opaque_block,
    signature=_opaque_signature,
    flop=_opaque_flop,
    repeats=_opaque_repeats,
    dtype=_opaque_dtype,
    host_only=True,
    local=_attrs_of_block,
    opaque=True,
)
def opaque(
    *tensors: Tensor,
    model: str,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[str],
    why: str = "",
    follows: Sequence[Sequence[str]] = (),
    inside: Sequence[Sequence[Any]] = (),
    rounds: int | None = None,
    name: str | None = None,
) -> Tensor:
    """What an ONNX model gives, run whole by ONNX Runtime where it is installed and takes it, else by ONNX's reference.

    Without index axes no plan splits it: one device brings together what it reads, runs it once, and sends what others
    read of it. `load_onnx` makes it of nodes that have no declaration here. Of a Loop or Scan of too many rounds to put
    in place it finds axes that rounds do not mix: along these plans split it, and each device runs all rounds over its
    part. Trees and support vectors of ai.onnx.ml are split along the rows that they are given.

    Parameters
    ----------
    *tensors : Tensor
        The model's inputs, in its order.
    model : str
        The bytes of an `onnx.ModelProto`, in base64. It has all that it needs in itself.
    shapes : sequence of shapes
        Of the outputs.
    dtypes : sequence of str
        Of the outputs.
    why : str
        Why it is not an operator of its own, for those who ask what is opaque.
    follows : sequence of sequences of str
        For each tensor, the inputs first and then the outputs, the index axis that each of its axes follows, or "".
        The model must do on parts along these what it does there on all, and declare no extents of them.
    inside : sequence of (times, is_contraction, flop, axes, operands)
        What the model runs, for who prices it, as far as that is known: for each operator how often a round runs it,
        whether it sums products, its operations over the whole index space, and the index axes, by name, along which
        parts do a part of these. Of each of its operands and results, (cells, bytes of a cell, cells that a contraction
        packs, axes).
    rounds : int, optional
        How many rounds there are; None where that is not known, or there are none: then what is inside counts once.

    Returns
    -------
    Tensor
        Or a tuple of them, where the model has several outputs.

    Raises
    ------
    ValueError
        For what is not an ONNX model or reads files, operands or results that are not as many as its own, index axes
        that tensors have in several extents, or a result not at all, and for work inside that is none. In a run:
        where both fail, or give other shapes or dtypes, and where a Loop takes longer than ten minutes.

    Examples
    --------
    >>> from onnx import parser
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> text = 'agraph (double[4] x) => (double[4] y) { y = Hardmax(x) }'
    >>> model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}')
    >>> g = Graph()
    >>> x = g.constant("x", [1.0, 3.0, 2.0, 0.0])
    >>> y = ops.opaque(x, model=ops.encode_model(model), shapes=[(4,)], dtypes=["float64"])
    >>> _ = g.output(y, "y")
    >>> evaluate(g, {})["y"].tolist()
    [0.0, 1.0, 0.0, 0.0]

    References
    ----------
    onnx.reference.ReferenceEvaluator.
    """
    extents = tuple(tuple(shape) for shape in shapes)
    axes = tuple(tuple(names) for names in follows)
    how = {"model": model, "shapes": extents, "dtypes": tuple(dtypes), "why": why, "follows": axes}
    return add_op(opaque.op, *tensors, name=name, inside=tuple(inside), rounds=rounds, **how)
