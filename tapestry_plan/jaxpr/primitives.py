"""The primitives of JAX as operators and views: a function for each, in one table.

References
----------
JAX's ``jax.lax``, whose primitives and parameters these are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from string import ascii_letters
from typing import Any

import numpy as np
from msgspec import Struct

from tapestry_plan import ops
from tapestry_plan.ir import Graph, Tensor, UnsupportedOp, concat
from tapestry_sets.limits import list_names, quote
from tapestry_sets.views import Pad


class TracedStep(Struct, frozen=True):
    """One step of a traced function, as a primitive's function sees it.

    Parameters
    ----------
    primitive : str
    params : mapping
        As JAX has them.
    shape : tuple of int
        Of the first result.
    dtype : str
        Of the first result.
    where : str
        How messages name it.
    graph : Graph
    """

    primitive: str
    params: Mapping[str, Any]
    shape: tuple[int, ...]
    dtype: str
    where: str
    graph: Graph

    def refuse(self, what: str, mend: str) -> UnsupportedOp:
        """The error of something that no operator does."""
        return UnsupportedOp(f"{self.where}: {what}; {mend}")

    def need(self, name: str, *wanted: Any) -> None:
        """Refuse a parameter of another value."""
        value = self.params.get(name, wanted[0])
        if not any(value == one for one in wanted):
            told = " or ".join(quote(one) for one in wanted)
            raise self.refuse(f"{name}={quote(value)} must be {told}", "write the function in other words")


TracedValue = Tensor | np.generic
"""A tensor, or a number that the traced function holds."""
TracedResult = TracedValue | Sequence[TracedValue]
Primitive = Callable[..., TracedResult]
"""``(equation, *operands) -> results``."""

PRIMITIVES: dict[str, Primitive] = {}
"""By name of the primitive."""


def primitive(*names: str) -> Callable[[Primitive], Primitive]:
    """Enter a function into the table."""

    def enter(function: Primitive) -> Primitive:
        PRIMITIVES.update(dict.fromkeys(names, function))
        return function

    return enter


def refuse_unknown(equation: TracedStep) -> UnsupportedOp:
    """The error of a primitive that is not in the table."""
    return equation.refuse(
        f"there is no operator for {quote(equation.primitive)}",
        list_names(sorted(PRIMITIVES), equation.primitive, "primitives") + ", or take the model as ONNX (`load_onnx`)",
    )


def as_tensor(equation: TracedStep, x: TracedValue) -> Tensor:
    """A tensor; a number becomes a constant."""
    return x if isinstance(x, Tensor) else hold(equation.graph, np.asarray(x))


def hold(graph: Graph, array: np.ndarray[Any, Any]) -> Tensor:
    """A constant under a name of its own."""
    number = len(graph.stored)
    while (name := f"constant_{number}") in graph.stored:
        number += 1
    return graph.constant(name, array)


# -- cell by cell --------------------------------------------------------------------------------------------


def _by_cells(make: Callable[..., Tensor]) -> Primitive:
    def read(equation: TracedStep, *operands: TracedValue) -> Tensor:
        if not any(isinstance(x, Tensor) for x in operands):
            operands = (as_tensor(equation, operands[0]), *operands[1:])
        given = [x if isinstance(x, Tensor) else x.item() for x in operands]
        return make(*given)

    return read


def _erfc(x: Tensor) -> Tensor:
    return 1.0 - ops.erf(x)


def _divided(a: Any, b: Any) -> Tensor:
    """Integers round toward zero, as the operator's own block does."""
    like = a if isinstance(a, Tensor) else b
    if np.dtype(like.dtype).kind not in "iu":
        return ops.divide(a, b)
    one, two = (x if isinstance(x, Tensor) else hold(like.graph, np.asarray(x, like.dtype)) for x in (a, b))
    made: Tensor = like.graph.op("divide", one, two)
    return made


CELL_BY_CELL: dict[str, Callable[..., Tensor]] = {
    **{name: getattr(ops, name) for name in ("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos")},
    **{name: getattr(ops, name) for name in ("cosh", "erf", "exp", "expm1", "floor", "log", "log1p", "sign", "sin")},
    **{name: getattr(ops, name) for name in ("sinh", "sqrt", "tan", "tanh", "pow", "add")},
    "add_any": ops.add,
    "sub": ops.subtract,
    "mul": ops.multiply,
    "div": _divided,
    "rem": lambda a, b: ops.remainder(a, b, truncate=True),
    "max": ops.maximum,
    "min": ops.minimum,
    "neg": ops.negative,
    "square": lambda x: ops.multiply(x, x),
    "logistic": ops.sigmoid,
    "erfc": _erfc,
    "exp2": lambda x: ops.pow(2.0, x),
    "rsqrt": lambda x: ops.reciprocal(ops.sqrt(x)),
    "eq": ops.equal,
    "ne": ops.not_equal,
    "lt": ops.less,
    "le": ops.less_equal,
    "gt": ops.greater,
    "ge": ops.greater_equal,
}
"""Of operands of one shape each, or numbers."""
PRIMITIVES.update({name: _by_cells(make) for name, make in CELL_BY_CELL.items()})
LOGICAL: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "and": (ops.logical_and, ops.bitwise_and),
    "or": (ops.logical_or, ops.bitwise_or),
    "xor": (ops.logical_xor, ops.bitwise_xor),
    "not": (ops.logical_not, ops.bitwise_invert),
}
"""For truth values, and for integers."""


@primitive(*LOGICAL)
def _logical(equation: TracedStep, *operands: TracedValue) -> TracedResult:
    of_truth, of_bits = LOGICAL[equation.primitive]
    return _by_cells(of_truth if equation.dtype == "bool" else of_bits)(equation, *operands)


@primitive("is_finite")
def _is_finite(equation: TracedStep, x: TracedValue) -> Tensor:
    tensor = as_tensor(equation, x)
    return ops.logical_not(ops.logical_or(ops.isnan(tensor), ops.isinf(tensor)))


@primitive("round")
def _round(equation: TracedStep, x: TracedValue) -> Tensor:
    method = equation.params.get("rounding_method")
    if getattr(method, "name", method) not in ("TO_NEAREST_EVEN", 1):
        raise equation.refuse("halves are rounded away from zero", "round them to even numbers, as jnp.round does")
    return ops.round(as_tensor(equation, x))


@primitive("integer_pow")
def _integer_pow(equation: TracedStep, x: TracedValue) -> Tensor:
    tensor, y = as_tensor(equation, x), int(equation.params["y"])
    return ops.multiply(tensor, tensor) if y == 2 else ops.pow(tensor, float(y) if tensor.dtype.startswith("f") else y)


@primitive("select_n")
def _select(equation: TracedStep, which: TracedValue, *cases: TracedValue) -> Tensor:
    chosen = as_tensor(equation, which)
    if len(cases) != 2 or chosen.dtype != "bool":
        raise equation.refuse(f"it chooses among {len(cases)} by {chosen.dtype}", "choose by truth values (jnp.where)")
    if_false, if_true = (as_tensor(equation, case) for case in cases)
    return ops.where(chosen, if_true, if_false)


@primitive("clamp")
def _clamp(equation: TracedStep, least: TracedValue, x: TracedValue, most: TracedValue) -> TracedResult:
    above = _by_cells(ops.maximum)(equation, x, least)
    return _by_cells(ops.minimum)(equation, above, most)


@primitive("convert_element_type")
def _convert(equation: TracedStep, x: TracedValue) -> TracedValue:
    return ops.astype(x, equation.dtype) if isinstance(x, Tensor) else np.dtype(equation.dtype).type(x)


@primitive("stop_gradient", "copy", "copy_p", "sharding_constraint", "mesh_cast", "pvary")
def _same(equation: TracedStep, x: TracedValue) -> TracedValue:
    return x


@primitive("optimization_barrier")
def _barrier(equation: TracedStep, *operands: TracedValue) -> TracedResult:
    return operands


# -- views ---------------------------------------------------------------------------------------------------


@primitive("broadcast_in_dim")
def _broadcast(equation: TracedStep, x: TracedValue, *sizes: TracedValue) -> Tensor:
    if sizes:
        raise equation.refuse("its shape depends on data", "trace it with fixed shapes")
    tensor, at = as_tensor(equation, x), equation.params["broadcast_dimensions"]
    extents = [1] * len(equation.shape)
    for axis, extent in zip(at, tensor.shape, strict=True):
        extents[axis] = extent
    aligned = tensor if tuple(extents) == tensor.shape else tensor.reshape(tuple(extents))
    return aligned if aligned.shape == equation.shape else aligned.broadcast_to(equation.shape)


@primitive("reshape", "squeeze", "expand_dims")
def _reshape(equation: TracedStep, x: TracedValue) -> Tensor:
    if equation.primitive == "reshape":
        equation.need("dimensions", None)
    tensor = as_tensor(equation, x)
    return tensor if tensor.shape == equation.shape else tensor.reshape(equation.shape)


@primitive("transpose")
def _transpose(equation: TracedStep, x: TracedValue) -> Tensor:
    return as_tensor(equation, x).permute_dims(tuple(equation.params["permutation"]))


@primitive("rev")
def _reverse(equation: TracedStep, x: TracedValue) -> Tensor:
    return as_tensor(equation, x).flip(tuple(equation.params["dimensions"]))


@primitive("slice")
def _slice(equation: TracedStep, x: TracedValue) -> Tensor:
    begin, end = equation.params["start_indices"], equation.params["limit_indices"]
    steps = equation.params["strides"] or (1,) * len(begin)
    return as_tensor(equation, x)[tuple(slice(a, b, s) for a, b, s in zip(begin, end, steps, strict=True))]


@primitive("concatenate")
def _concatenate(equation: TracedStep, *parts: TracedValue) -> Tensor:
    return concat([as_tensor(equation, part) for part in parts], equation.params["dimension"])


@primitive("split")
def _split(equation: TracedStep, x: TracedValue) -> list[Tensor]:
    tensor, axis, begin, parts = as_tensor(equation, x), equation.params["axis"], 0, []
    for size in equation.params["sizes"]:
        parts.append(tensor[(slice(None),) * axis + (slice(begin, begin + size),)])
        begin += size
    return parts


@primitive("pad")
def _pad(equation: TracedStep, x: TracedValue, value: TracedValue) -> Tensor:
    config = equation.params["padding_config"]
    if any(interior for _, _, interior in config):
        raise equation.refuse("cells are spread apart", "pad before and after each axis alone")
    if isinstance(value, Tensor):
        raise equation.refuse("the value around is computed", "give a number")
    tensor = as_tensor(equation, x)
    cut = tuple(slice(max(0, -a), n - max(0, -b)) for (a, b, _), n in zip(config, tensor.shape, strict=True))
    kept = tensor[cut] if any(a < 0 or b < 0 for a, b, _ in config) else tensor
    widths = tuple((max(0, a), max(0, b)) for a, b, _ in config)
    return kept.view(Pad(widths, value=value.item())) if any(map(any, widths)) else kept


@primitive("iota")
def _iota(equation: TracedStep) -> Tensor:
    axis = equation.params["dimension"]
    numbers = hold(equation.graph, np.arange(equation.shape[axis], dtype=equation.dtype))
    row = tuple(n if k == axis else 1 for k, n in enumerate(equation.shape))
    return numbers.reshape(row).broadcast_to(equation.shape)


# -- sums and products ---------------------------------------------------------------------------------------

REDUCTIONS = {
    "reduce_sum": ops.sum,
    "reduce_max": ops.max,
    "reduce_min": ops.min,
    "reduce_prod": ops.prod,
    "reduce_and": ops.all,
    "reduce_or": ops.any,
}


@primitive(*REDUCTIONS)
def _reduce(equation: TracedStep, x: TracedValue) -> Tensor:
    equation.need("out_sharding", None)
    tensor, axes = as_tensor(equation, x), tuple(equation.params["axes"])
    return _converted(equation, REDUCTIONS[equation.primitive](tensor, axis=axes)) if axes else tensor


@primitive("argmax", "argmin")
def _arg(equation: TracedStep, x: TracedValue) -> Tensor:
    (axis,) = equation.params["axes"]
    find = ops.argmax if equation.primitive == "argmax" else ops.argmin
    return _converted(equation, find(as_tensor(equation, x), axis=axis))


@primitive("cumsum")
def _cumulate(equation: TracedStep, x: TracedValue) -> Tensor:
    axis, reverse = equation.params["axis"], equation.params["reverse"]
    return _converted(equation, ops.cumulative_sum(as_tensor(equation, x), axis=axis, reverse=reverse))


def _converted(equation: TracedStep, made: Tensor) -> Tensor:
    """What was made, in the dtype that JAX has: sums of 32 bits stay so there."""
    return made if made.dtype == equation.dtype else ops.astype(made, equation.dtype)


@primitive("dot_general")
def _dot_general(equation: TracedStep, x: TracedValue, y: TracedValue) -> Tensor:
    """A product of matrices where it is one, its operands turned as views; else einsum.

    The result has the axes that both go along, then those of the first operand alone, then the second one's.
    """
    a, b = as_tensor(equation, x), as_tensor(equation, y)
    (summed_a, summed_b), (along_a, along_b) = (tuple(map(tuple, two)) for two in equation.params["dimension_numbers"])
    own_a = tuple(k for k in range(a.ndim) if k not in summed_a + along_a)
    own_b = tuple(k for k in range(b.ndim) if k not in summed_b + along_b)
    is_layer = not along_a and b.ndim == 2 and summed_a == (a.ndim - 1,) and len(summed_b) == 1 and a.ndim > 1
    if is_layer or (len(summed_a), len(own_a), len(own_b)) == (1, 1, 1):
        made = _turn(a, along_a + own_a + summed_a) @ _turn(b, along_b + summed_b + own_b)
    else:
        letters = iter(ascii_letters)
        of_a = [next(letters) for _ in range(a.ndim)]
        of_b = [next(letters) for _ in range(b.ndim)]
        for one, two in zip(summed_a + along_a, summed_b + along_b, strict=True):
            of_b[two] = of_a[one]
        out = [of_a[k] for k in along_a + own_a] + [of_b[k] for k in own_b]
        made = ops.einsum(f"{''.join(of_a)},{''.join(of_b)}->{''.join(out)}", a, b)
    return _converted(equation, made)


def _turn(x: Tensor, axes: Sequence[int]) -> Tensor:
    return x if tuple(axes) == tuple(range(x.ndim)) else x.permute_dims(tuple(axes))


# -- windows -------------------------------------------------------------------------------------------------


@primitive("conv_general_dilated")
def _convolve(equation: TracedStep, x: TracedValue, y: TracedValue) -> Tensor:
    params = equation.params
    if any(n != 1 for n in params["lhs_dilation"]):
        raise equation.refuse("its input is spread apart (lhs_dilation)", "take the model as ONNX (ConvTranspose)")
    equation.need("batch_group_count", 1)
    numbers = params["dimension_numbers"]
    lhs, rhs, out = (tuple(getattr(numbers, name)) for name in ("lhs_spec", "rhs_spec", "out_spec"))
    made = ops.conv(
        _turn(as_tensor(equation, x), lhs),
        _turn(as_tensor(equation, y), rhs),
        strides=tuple(params["window_strides"]),
        pads=_pads(params["padding"], equation),
        dilations=tuple(params["rhs_dilation"]),
        groups=int(params["feature_group_count"]),
    )
    return _turn(made, tuple(int(k) for k in np.argsort(out)))


def _pads(padding: Sequence[tuple[int, int]], equation: TracedStep) -> tuple[int, ...]:
    if any(n < 0 for pair in padding for n in pair):
        raise equation.refuse(f"padding {quote(list(padding))} cuts cells off", "cut them off before (a slice)")
    return (*(before for before, _ in padding), *(after for _, after in padding))


@primitive("reduce_window_max", "reduce_window_sum")
def _window(equation: TracedStep, x: TracedValue) -> Tensor:
    params, tensor = equation.params, as_tensor(equation, x)
    window, strides, padding = params["window_dimensions"], params["window_strides"], params["padding"]
    if any(n != 1 for n in params["base_dilation"]):
        raise equation.refuse("its input is spread apart (base_dilation)", "write it without")
    moved = [k for k in range(tensor.ndim) if (window[k], strides[k], *padding[k]) != (1, 1, 0, 0)]
    if not moved:
        return tensor
    still = [k for k in range(tensor.ndim) if k not in moved]
    turned = _turn(tensor, (*still, *moved))
    # An operator of windows has one axis of samples and one of channels.
    extents = [tensor.shape[k] for k in still]
    flat = turned.reshape((1, prod(extents), *(tensor.shape[k] for k in moved)))
    pool = ops.max_pool if equation.primitive == "reduce_window_max" else ops.sum_pool
    made = pool(
        flat,
        tuple(window[k] for k in moved),
        strides=tuple(strides[k] for k in moved),
        pads=_pads([padding[k] for k in moved], equation),
        dilations=tuple(params["window_dilation"][k] for k in moved),
    )
    return _turn(made.reshape((*extents, *made.shape[2:])), [(*still, *moved).index(k) for k in range(tensor.ndim)])


# -- by indices ----------------------------------------------------------------------------------------------


@primitive("gather")
def _gather(equation: TracedStep, x: TracedValue, indices: TracedValue) -> Tensor:
    """Whole slices at indices of one axis, as ``jnp.take`` and embeddings ask for; an index must be in range."""
    params, tensor, where = equation.params, as_tensor(equation, x), as_tensor(equation, indices)
    numbers, sizes = params["dimension_numbers"], tuple(params["slice_sizes"])
    collapsed, start = tuple(numbers.collapsed_slice_dims), tuple(numbers.start_index_map)
    batching = tuple(getattr(numbers, "operand_batching_dims", ()))
    is_take = len(start) == 1 and collapsed == start and not batching and where.shape[-1:] == (1,)
    if is_take:
        (axis,) = start
        rest = tuple(n for k, n in enumerate(tensor.shape) if k != axis)
        at = tuple(k for k in range(len(equation.shape)) if not axis <= k < axis + where.ndim - 1)
        is_take = tuple(n for k, n in enumerate(sizes) if k != axis) == rest and tuple(numbers.offset_dims) == at
    if not is_take:
        raise equation.refuse("it gathers windows, or along more axes", "take whole slices along one axis (jnp.take)")
    return ops.take(tensor, where.reshape(where.shape[:-1]), axis=axis)
