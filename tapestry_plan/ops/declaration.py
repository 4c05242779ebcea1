"""The decorator `operator`: the signature of a function that users call is the declaration of an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter
from inspect import signature as signature_of
from types import NoneType, UnionType
from typing import Any, ParamSpec, Protocol, TypeVar, Union, cast, get_args, get_origin

import numpy as np
from msgspec import Struct

from tapestry_plan.ir import Attrs, Block, Op, Shape, Signature, Tensor
from tapestry_plan.ops.operands import elementwise_signature
from tapestry_sets.limits import check_arguments, describe, hold_calls, kind_of, quote, read_hint, tell_count

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")
R = TypeVar("R", covariant=True)


class Operator(Protocol[Arguments, R]):
    """A function that adds an operator to a graph; `op` is the operator's declaration.

    Examples
    --------
    >>> from tapestry_plan import ops
    >>> from tapestry_plan.ops import Operator
    >>> def count_flop(operator: Operator, shape: tuple[int, ...]) -> float:
    ...     made = operator.op.signature([shape], {})
    ...     return operator.op.flop_per_point(made, {}) * made.index.size
    >>> count_flop(ops.gelu, (4, 6))
    672.0
    """

    op: Op

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> R: ...


@check_arguments
def operator(
    *,
    block: Block,
    signature: Callable[[Sequence[Shape], Attrs], Signature] = elementwise_signature,
    **fields: Any,
) -> Callable[[Callable[Arguments, Made]], Operator[Arguments, Made]]:
    """Declare an operator by the function that adds it to graphs.

    The function's name is the operator's. Parameters annotated as tensors are its operands, the others its attributes
    with their defaults, but for `name`, the node's, and `graph`. An operand annotated ``Tensor | float`` may be a
    number where another one is a tensor: it becomes a constant of that one's dtype. The body is a docstring, or
    checks the arguments; one that makes more of them returns what ``add_op(function.op, …)`` gives.

    Parameters
    ----------
    block, signature, **fields
        As in `Op`. By default the operands broadcast against each other, and each index point writes one cell.
        `rows` is False unless it is given: blocks of the operator lie by themselves then.

    Examples
    --------
    >>> from tapestry_plan import Graph, Tensor, operator
    >>> @operator(block=lambda xp, inputs, outputs, shard: xp.multiply(inputs[0], shard.attrs["by"], out=outputs[0]))
    ... def scale(x: Tensor, by: float = 2.0, *, name: str | None = None) -> Tensor:
    ...     '''x times a number.'''
    >>> g = Graph()
    >>> scale(g.input("x", (4, 6))).shape, g.nodes["scale"].attrs
    ((4, 6), {'by': 2.0})
    """

    def declare(function: Callable[Arguments, Made]) -> Operator[Arguments, Made]:
        call = signature_of(function)
        hints = {p.name: _hint(function, p) for p in call.parameters.values()}
        kinds = {name: _members(hint) for name, hint in hints.items()}
        operands = [p for p in call.parameters.values() if Tensor in kinds[p.name]]
        if not operands and "graph" not in call.parameters:
            raise TypeError(
                f"operator {quote(function.__name__)}: no parameter of {call} is annotated as a Tensor, `x: Tensor` or "
                "`*xs: Tensor`; an operator without operands has a parameter `graph`"
            )
        attributes = [p for p in call.parameters.values() if p not in operands and p.name not in ("name", "graph")]
        numbers = [p.name for p in operands if float in kinds[p.name]]
        defaults = {p.name: p.default for p in attributes if p.default not in (None, Parameter.empty)}
        convert = {p.name: next((kind for kind in kinds[p.name] if kind in (float, bool)), _plain) for p in attributes}
        # The package's own are tested for it; what others' block functions do with strided blocks nobody knows.
        is_own = function.__module__.partition(".")[0] == __name__.partition(".")[0]
        op = Op(
            function.__name__,
            _Counted.of(signature, operands, defaults),
            block,
            attributes=tuple(convert),
            defaults=tuple(defaults.items()),
            kinds=tuple((p.name, kind_of(hints[p.name])) for p in attributes),
            needed=tuple(p.name for p in attributes if p.default is Parameter.empty and p.kind is not p.VAR_KEYWORD),
            **{"rows": is_own and signature is elementwise_signature, **fields},
        )

        def add(made: Made | None, *values: Any) -> Made:
            """The operator's node, unless the function has `made` more of its arguments."""
            if made is not None:
                return made
            given = dict(zip(call.parameters, values, strict=True))
            tensors = {p.name: given[p.name] for p in operands if p.kind is not p.VAR_POSITIONAL}
            several = [x for p in operands if p.kind is p.VAR_POSITIONAL for x in given[p.name]]
            attrs = {p.name: convert[p.name](given[p.name]) for p in attributes if _is_given(given[p.name], p)}
            name = cast("str | None", given.get("name"))
            if all(isinstance(tensors[key], Tensor) for key in numbers):
                return cast(Made, add_op(op, *tensors.values(), *several, name=name, **attrs))
            like = _tensor_beside(op.name, [tensors[key] for key in numbers])
            with like._all_or_nothing():  # without the operator there shall be no constants either
                tensors |= {
                    key: like._number(op.name, x, is_first=key == numbers[0])
                    for key in numbers
                    if not isinstance(x := tensors[key], Tensor)
                }
                return cast(Made, add_op(op, *tensors.values(), *several, name=name, **attrs))

        # Numbers wait for the dtype of the tensor beside them, and so on: what is made a tensor of.
        others = [p.name for p in operands if not {Tensor, NoneType}.issuperset(kinds[p.name])]
        checked = hold_calls(function, function.__name__, but=others, then=add)
        made = cast(Operator[Arguments, Made], checked)
        made.op = op
        return made

    return declare


def _hint(function: Callable[..., Any], parameter: Parameter) -> Any:
    """The type that a parameter is annotated with."""
    written = parameter.annotation
    if written is Parameter.empty:
        return Any

    def where() -> str:
        return f"operator {quote(function.__name__)}: parameter {quote(parameter.name)} is annotated {quote(written)}"

    try:
        hint = read_hint(written, getattr(function, "__globals__", {}))
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise TypeError(
            f"{where()}, which cannot be read: {error}; import what it names at the top of the module"
        ) from None
    hint = getattr(hint, "__value__", hint)  # of an alias that `type` declares
    if Tensor not in _members(hint) and _is_within(Tensor, hint):
        raise TypeError(
            f"{where()}; an operand is a `Tensor`, with `| None` or `| float`, and several are `*xs: Tensor`"
        )
    return hint


@cache
def _members(hint: Any) -> tuple[Any, ...]:
    """The types of a union, or the only one."""
    return get_args(hint) if isinstance(hint, UnionType) or get_origin(hint) is Union else (hint,)


@cache
def _is_within(kind: type, hint: Any) -> bool:
    """Whether a type is what an annotation is made of."""
    parts = [one for part in get_args(hint) for one in (part if isinstance(part, list) else [part])]
    return hint is kind or any(_is_within(kind, part) for part in parts)


def _is_given(value: Any, parameter: Parameter) -> bool:
    """Whether an attribute is another than where it is not given."""
    return value is not None and value is not parameter.default


def _tensor_beside(op: str, given: Sequence[Any]) -> Tensor:
    """The first tensor beside numbers, whose dtype these take."""
    tensor = next((operand for operand in given if isinstance(operand, Tensor)), None)
    if tensor is None:
        raise TypeError(f"{op}: {' and '.join(map(describe, given))} are not tensors; give one at least")
    return tensor


def _plain(value: Any) -> Any:
    """An attribute as graphs store it."""
    return value if isinstance(value, (int, float, str, np.generic)) else tuple(value)


class _Counted(Struct, frozen=True):
    """The signature, for as many operands as the function takes; a value, so that operators can be pickled.

    Parameters
    ----------
    signature : callable
    least, most : int
        Operands; `most` is None for any number.
    defaults : tuple of (str, value)
        Attributes that are not given.
    """

    signature: Callable[[Sequence[Shape], Attrs], Signature]
    least: int
    most: int | None
    defaults: tuple[tuple[str, Any], ...]

    @classmethod
    def of(
        cls,
        signature: Callable[[Sequence[Shape], Attrs], Signature],
        operands: Sequence[Parameter],
        defaults: Mapping[str, Any],
    ) -> _Counted:
        """For the parameters of a function that are operands."""
        most = None if any(p.kind is p.VAR_POSITIONAL for p in operands) else len(operands)
        needed = sum(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in operands)
        return cls(signature, max(1, needed) if operands else 0, most, tuple(defaults.items()))

    def __call__(self, shapes: Sequence[Shape], attrs: Attrs) -> Signature:
        """The signature for operands of some shapes."""
        least, most = self.least, self.most
        if len(shapes) < least or (most is not None and len(shapes) > most):
            bound = f"{least}" if most == least else f"{least} to {'any number' if most is None else most}"
            raise ValueError(f"{tell_count(len(shapes), 'operand')} given; the operator takes {bound}")
        return self.signature(shapes, {**dict(self.defaults), **attrs})


def add_op(op: Op, *operands: Tensor | None, name: str | None = None, **attrs: Any) -> Tensor:
    """Add an operator to the graph of its first operand and return its results; attributes of None are left out.

    For functions under `operator` that make more of their arguments than the decorator does.

    Parameters
    ----------
    op : Op
    *operands : Tensor or None
        None for one that is not given; the first is a tensor.
    name : str, optional
        Of the node.
    **attrs
        The operator's attributes.

    Returns
    -------
    Tensor
        Or a tuple of them, where the operator has several results.

    Raises
    ------
    TypeError
        For an operand that is not a tensor.
    ValueError
        For operands and attributes that the operator does not take.

    Examples
    --------
    >>> from tapestry_plan import Graph, ops
    >>> from tapestry_plan.ops import add_op
    >>> g = Graph()
    >>> add_op(ops.softmax.op, g.input("x", (4, 6)), name="shares", axis=-1)
    Tensor('shares', (4, 6), float32)
    """
    for k, operand in enumerate(operands):
        if not isinstance(operand, Tensor) and (operand is not None or not k):
            raise TypeError(f"{op.name}: operand {k} is a {type(operand).__name__}; give a tensor of the graph")
    given = {key: value for key, value in attrs.items() if value is not None}
    made: Tensor = cast(Tensor, operands[0]).graph.op(op, *operands, name=name, **given)
    return made
