"""Boundaries: padded views supply the cells that an operand reads outside its tensor.

An operand that wraps, counts from the end, or repeats or reflects its edge is read through a `Pad` view that is just
wide enough, and its projection is moved into that view's coordinates. Planner and executor then know regions inside
tensors only, and the bytes stay exact, since a view's cells are cells of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tapestry_plan.ir import tuning
from tapestry_plan.ir.signature import Operand, Shape, Signature
from tapestry_sets.limits import quote
from tapestry_sets.regions import AffineMap, Box, IndexProjection
from tapestry_sets.views import Pad

Widths = tuple[tuple[int, int], ...]
"""(before, after) for each axis, or nothing where a tensor is read as it is."""

AROUND = "(around)"
"""The attribute in which a node keeps the widths by which its inputs were extended."""


def resolve(
    declared: Callable[[Sequence[Shape], Mapping[str, Any]], Signature],
    shapes: Sequence[Shape],
    attrs: Mapping[str, Any],
) -> tuple[Signature, tuple[Widths, ...]]:
    """A signature over the tensors as the operator reads them, and by how much each has still to be extended.

    Parameters
    ----------
    declared : callable
        ``(input shapes, attrs) -> Signature``, as an operator declares it.
    shapes : sequence of tuple of int
        Of the inputs; where `attrs` has `AROUND`, of the inputs already extended.
    attrs : mapping
        The operator's attributes.

    Returns
    -------
    Signature
        Every projection in coordinates that begin at 0; nothing is read outside but constant padding.
    tuple of Widths
        One for each input; empty where nothing is to be extended.

    Raises
    ------
    ValueError
        Whatever the declaration says, when a policy does not reach as far as the operand reads, and when `AROUND`
        is not what the signature needs.

    Examples
    --------
    >>> from tapestry_plan.ir import Axis, project
    >>> def ring(shapes, attrs):
    ...     axes = (Axis("i", shapes[0][0]),)
    ...     both = Operand(project(axes, [{"i": 1, "": -1}], [3]), outside="wrap")
    ...     return Signature(axes, (both,), (Operand(project(axes, [{"i": 1}])),))
    >>> signature, widths = resolve(ring, [(8,)], {})
    >>> widths, signature.input_box(0, Box((0,), (1,)))
    ((((1, 1),),), Box(start=(0,), shape=(3,)))
    """
    around = attrs.get(AROUND)
    if around is not None:
        shapes = _without(shapes, around)
        attrs = {name: value for name, value in attrs.items() if name != AROUND}
    signature = declared(shapes, attrs)
    operands = (*signature.inputs, *signature.outputs)
    if around is None and all(operand.outside == "forbid" and not operand.origin for operand in operands):
        return signature, ()
    widths = tuple(
        _widths(operand, k, signature.index, shape)
        for k, (operand, shape) in enumerate(zip(signature.inputs, shapes, strict=False))
    )
    if around is not None and around != widths:
        raise ValueError(
            f"the inputs are extended by {around}, but the operands reach out by {quote(widths)}; leave it out"
        )
    inputs = tuple(_place(operand, widths[k] if k < len(widths) else ()) for k, operand in enumerate(signature.inputs))
    placed = replace(signature, inputs=inputs, outputs=tuple(_place(operand, ()) for operand in signature.outputs))
    return placed, widths if around is None and any(widths) else ()


def extension(operand: Operand, widths: Widths) -> Pad:
    """The view through which an operand with a policy is read."""
    mode: Any = "wrap" if operand.outside == "from_end" else operand.outside
    return Pad(widths, mode)


def _without(shapes: Sequence[Shape], around: Any) -> list[Shape]:
    """The shapes of inputs before they were extended."""
    try:
        inner = [
            tuple(n - before - after for n, (before, after) in zip(shape, widths, strict=True)) if widths else shape
            for shape, widths in zip(shapes, around, strict=True)
        ]
    except (TypeError, ValueError):
        raise ValueError(f"{AROUND} is {quote(around)}; it holds (before, after) for each axis of each input") from None
    for shape, extents in zip(shapes, inner, strict=True):
        if any(n < 1 for n in extents):
            raise ValueError(f"{AROUND} is {quote(around)}, more than an input of shape {quote(shape)} has")
    return inner


def _widths(operand: Operand, number: int, index: Box, shape: Shape) -> Widths:
    """By how much an operand reaches out of its tensor; nothing where its policy needs no view."""
    if operand.outside == "forbid" or len(operand.projection.shape) != len(shape):
        return ()
    tensor = Box(operand.origin or (0,) * len(shape), shape)
    box = operand.bounding_box(index)
    pairs = [
        (max(0, a - low), max(0, high - b))
        for a, b, low, high in zip(tensor.start, tensor.stop, box.start, box.stop, strict=True)
    ]
    for axis, ((before, after), n) in enumerate(zip(pairs, shape, strict=True)):
        if operand.outside == "from_end" and (before > n or after):
            raise ValueError(
                f"input {number} is read at {box.start[axis]} to {box.stop[axis] - 1} along axis {axis} of extent {n}; "
                f"counted from the end, {tensor.start[axis] - n} to {tensor.stop[axis] - 1} can be read"
            )
        if operand.outside != "edge" and before + after > tuning.MAX_COPIES * n:
            raise ValueError(
                f"input {number} is read {before} cells before and {after} after axis {axis} of extent {n}, by "
                f"{quote(operand.outside)} more than {tuning.MAX_COPIES} copies; tile the tensor first"
            )
    return tuple(pairs) if any(before or after for before, after in pairs) else ()


def _place(operand: Operand, widths: Widths) -> Operand:
    """An operand whose tensor, extended by `widths`, begins at 0."""
    if not widths and not operand.origin:
        return operand if operand.outside == "forbid" else replace(operand, outside="forbid")
    rank = len(operand.projection.shape)
    by = [
        before - first
        for (before, _), first in zip(widths or ((0, 0),) * rank, operand.origin or (0,) * rank, strict=True)
    ]
    first, *also = [_move(projection, by) for projection in operand.projections]
    return replace(operand, projection=first, also=tuple(also), outside="forbid", origin=())


def _move(projection: IndexProjection, by: Sequence[int]) -> IndexProjection:
    offset = tuple(b + d for b, d in zip(projection.map.offset, by, strict=True))
    moved = AffineMap(projection.map.matrix, offset, projection.map.in_rank)
    return IndexProjection(moved, projection.shape, projection.splits)
