"""Adjoints of operators: the gradient of each input, written in operators and views; declarations name them.

An adjoint may give a gradient of a larger shape than its input's: `gradient` sums it over the axes along which the
input was broadcast. None stands for an input that the values do not depend on smoothly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import cast

import numpy as np
from msgspec import Struct

from tapestry_plan.ir import Backward, Expansion, Tensor
from tapestry_sets.limits import quote

Grads = Sequence[Tensor | None]


class Through(Struct, frozen=True):
    """The adjoint of an operator that is said in others: theirs, after one another.

    Parameters
    ----------
    expansion : callable
        As in `Op.expansions`.
    """

    expansion: Expansion

    def __call__(self, b: Backward) -> Grads:
        raise AssertionError("gradient() goes through the expansion itself")


def none(b: Backward) -> Grads:
    """Steps and indices: flat wherever they are smooth."""
    return (None,) * len(b.inputs)


# -- cell by cell -------------------------------------------------------------------------------------------


def add(b: Backward) -> Grads:
    return (b.grad,) * len(b.inputs)


def subtract(b: Backward) -> Grads:
    return b.grad, -b.grad


def negative(b: Backward) -> Grads:
    return (-b.grad,)


def multiply(b: Backward) -> Grads:
    x, y = b.inputs
    return b.grad * y, b.grad * x


def divide(b: Backward) -> Grads:
    _, y = b.inputs
    share = b.grad / y
    return share, -(share * b.out)


def pow(b: Backward) -> Grads:
    x, y = b.inputs
    slope_ = b.op("where", b.op("equal", y, _zero(b)), _zero(b), y * x ** (y - 1))  # also where 0 ** -1 is infinite
    return b.grad * slope_, b.grad * b.out * b.op("log", x)


def chosen(first: str) -> Callable[[Backward], Grads]:
    """Of the larger or the smaller of two; each of two equal ones receives half."""

    def adjoint(b: Backward) -> Grads:
        x, y = b.inputs
        ahead = _as(b.op(first, x, y), b.grad)
        half = _as(b.op("equal", x, y), b.grad) * 0.5
        return b.grad * (ahead + half), b.grad * (1 - ahead - half)

    return adjoint


def where(b: Backward) -> Grads:
    condition = b.inputs[0]
    return None, b.op("where", condition, b.grad, _zero(b)), b.op("where", condition, _zero(b), b.grad)


def astype(b: Backward) -> Grads:
    x = b.inputs[0]
    return (b.op("astype", b.grad, dtype=x.dtype) if np.dtype(x.dtype).kind == "f" else None,)


def dequantize(b: Backward) -> Grads:
    """Of the scale alone: what it is multiplied by, integers without their zero points."""
    x, scale, *zeros = b.inputs
    rank, behind = b.grad.ndim, x.ndim - 1 - b.attrs["axis"] % max(1, x.ndim)
    kind = b.grad.dtype if np.dtype(x.dtype).itemsize < 4 else "int64"
    made = b.op("astype", x, dtype=kind)
    if zeros:
        zero = b.op("astype", zeros[0], dtype=kind)
        made = made - (zero.reshape(-1, *(1,) * behind) if zero.ndim == 1 and behind > 0 else zero)
    grad = b.grad * (made if made.dtype == b.grad.dtype else _as(made, b.grad))
    if scale.ndim == 1 and scale.size > 1 and behind > 0:
        grad = b.op("sum", grad, axis=tuple(k for k in range(rank) if k != rank - 1 - behind), keepdims=False)
    return None, grad if grad.dtype == scale.dtype else _as(grad, scale), *(None for _ in zeros)


def leaky_relu(b: Backward) -> Grads:
    return (b.op("where", b.inputs[0] > 0, b.grad, b.grad * b.attrs["alpha"]),)


def clip(b: Backward) -> Grads:
    x, grad = b.inputs[0], b.grad
    if b.attrs.get("min") is not None:
        grad = _if(b, x >= b.attrs["min"], grad)
    if b.attrs.get("max") is not None:
        grad = _if(b, x <= b.attrs["max"], grad)
    return (grad,)


def slope(of: Callable[[Tensor, Tensor, Callable[[str, Tensor], Tensor]], Tensor]) -> Callable[[Backward], Grads]:
    """Of a function of one value, from its slope: ``(x, y, op) -> dy/dx``."""

    def adjoint(b: Backward) -> Grads:
        return (b.grad * of(b.inputs[0], b.out, b.op),)

    return adjoint


sigmoid = slope(lambda x, y, op: y * (1 - y))
tanh = slope(lambda x, y, op: 1 - y * y)
erf = slope(lambda x, y, op: op("exp", -(x * x)) * (2 / np.pi**0.5))
softplus = slope(lambda x, y, op: op("sigmoid", x))


def silu(b: Backward) -> Grads:
    x = b.inputs[0]
    share = b.op("sigmoid", x)
    return (b.grad * (share + b.out * (1 - share)),)


def gelu(b: Backward) -> Grads:
    x = b.inputs[0]
    if b.attrs["approximate"] == "tanh":
        c = (2 / np.pi) ** 0.5
        t = b.op("tanh", (x + x * x * x * 0.044715) * c)
        return (b.grad * ((t + 1) * 0.5 + x * (1 - t * t) * (x * x * (3 * 0.044715) + 1) * (0.5 * c)),)
    density = b.op("exp", x * x * -0.5) * (1 / (2 * np.pi) ** 0.5)
    return (b.grad * ((b.op("erf", x * 0.5**0.5) + 1) * 0.5 + x * density),)


def mish(b: Backward) -> Grads:
    x = b.inputs[0]
    t = b.op("tanh", b.op("softplus", x))
    return (b.grad * (t + x * (1 - t * t) * b.op("sigmoid", x)),)


def softsign(b: Backward) -> Grads:
    away = b.op("abs", b.inputs[0]) + 1
    return (b.grad / (away * away),)


def elu(b: Backward) -> Grads:
    return (b.op("where", b.inputs[0] > 0, b.grad, b.grad * (b.out + b.attrs["alpha"])),)


def selu(b: Backward) -> Grads:
    gamma, alpha = b.attrs["gamma"], b.attrs["alpha"]
    return (b.op("where", b.inputs[0] > 0, b.grad * gamma, b.grad * (b.out + gamma * alpha)),)


def celu(b: Backward) -> Grads:
    x, alpha = b.inputs[0], b.attrs["alpha"]
    return (b.op("where", x > 0, b.grad, b.grad * b.op("exp", b.op("minimum", x / alpha, _zero(b)))),)


def hard_sigmoid(b: Backward) -> Grads:
    return (_if(b, (b.out > 0) & (b.out < 1), b.grad * b.attrs["alpha"]),)


def hard_swish(b: Backward) -> Grads:
    x = b.inputs[0]
    return (b.op("where", x >= 3, b.grad, _if(b, x > -3, b.grad * (x / 3 + 0.5))),)


def relu(b: Backward) -> Grads:
    """Also of `thresholded_relu`, whose threshold is alpha."""
    return (_if(b, b.inputs[0] > b.attrs.get("alpha", 0), b.grad),)


def prelu(b: Backward) -> Grads:
    x, slope_ = b.inputs
    return b.op("where", x > 0, b.grad, b.grad * slope_), b.op("where", x > 0, _zero(b), b.grad * x)


def cumulative_sum(b: Backward) -> Grads:
    """Sums from the other end."""
    attrs = dict(b.attrs)
    return (b.op("cumulative_sum", b.grad, **{**attrs, "reverse": not attrs.get("reverse", False)}),)


def remainder(b: Backward) -> Grads:
    x, y = b.inputs
    return b.grad, -(b.grad * ((x - b.out) / y))


def dropout(b: Backward) -> Grads:
    """The same cells are dropped: they depend on the key and the place alone."""
    return (b.op("dropout", b.grad, **b.attrs),)


# -- products -----------------------------------------------------------------------------------------------


def matmul(b: Backward) -> Grads:
    x, y = b.inputs
    return b.grad @ y.mT, x.mT @ b.grad


def linear(b: Backward) -> Grads:
    x, w = b.inputs[:2]
    rows, grads = (t if t.ndim == 2 else t.reshape(-1, t.shape[-1]) for t in (x, b.grad))
    return (b.grad @ w.T, rows.T @ grads, b.grad)[: len(b.inputs)]


def einsum(b: Backward) -> Grads:
    """Each operand receives the sum of products of the gradient and the other operands."""
    terms, _, result = b.attrs["equation"].replace(" ", "").partition("->")
    names = terms.split(",")
    if "." in terms or "->" not in b.attrs["equation"]:
        raise ValueError(f"equation {quote(b.attrs['equation'])} has no gradient; write every axis as a letter, and ->")
    grads = []
    for k, own in enumerate(names):
        others = [name for j, name in enumerate(names) if j != k]
        operands = [x for j, x in enumerate(b.inputs) if j != k]
        reached = [c for c in own if c in result or any(c in name for name in others)]
        equation = f"{','.join([result, *others])}->{''.join(reached)}"
        made = b.op("einsum", b.grad, *operands, equation=equation)
        grads.append(_spread(made, [own.index(c) for c in reached], b.inputs[k].shape))
    return grads


def products(b: Backward) -> Grads:
    """Of x[…, m, k] · y[…, k, n], not summed, as (…, m, n, k)."""
    x, y = b.inputs
    n, m = b.grad.ndim - 2, b.grad.ndim - 3
    dx = b.op("sum", b.grad * y.mT.expand_dims(y.ndim - 2), axis=(n,), keepdims=False)
    dy = b.op("sum", b.grad * x.expand_dims(x.ndim - 1), axis=(m,), keepdims=False)
    return dx, dy.mT


# -- places -------------------------------------------------------------------------------------------------


def take(b: Backward) -> Grads:
    """Each place receives the sum over the indices that name it: a product with their one-hot rows."""
    x, indices = b.inputs
    axis = b.attrs["axis"] % x.ndim
    many = indices.size
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    hot = b.op("one_hot", indices.reshape(many), depth=x.shape[axis], dtype=b.grad.dtype)
    taken = b.grad.reshape(prod(before), many, prod(after))
    made = b.op("einsum", taken, hot, equation="pia,in->pna")
    return made.reshape(x.shape), None


def take_along_axis(b: Backward) -> Grads:
    x, indices = b.inputs
    if indices.ndim != x.ndim or any(
        n != m for k, (n, m) in enumerate(zip(indices.shape, x.shape, strict=True)) if k != b.attrs["axis"] % x.ndim
    ):
        raise ValueError(
            f"indices of shape {quote(indices.shape)} read a part of {quote(x.shape)}; slice it first for its gradient"
        )
    return _by_one_hot(b, indices, b.grad, b.attrs["axis"] % x.ndim), None


def gather_nd(b: Backward) -> Grads:
    """Each cell receives the sum over the indices that name it."""
    x, indices = b.inputs
    return b.op("scatter_nd", _zero(b).broadcast_to(x.shape), indices, b.grad, reduction="add"), None


def scatter(how: str, read: str) -> Callable[[Backward], Grads]:
    """Of values put in places, or added there: what is put receives what is read there."""

    def adjoint(b: Backward) -> Grads:
        _, indices, updates = b.inputs
        kind = b.attrs["reduction"]
        if kind not in ("none", "add"):
            raise ValueError(f"{how} with reduction {quote(kind)} has no gradient; 'none' and 'add' have one")
        along = {"axis": b.attrs["axis"]} if "axis" in b.attrs else {}
        kept = b.grad
        if kind == "none":
            kept = b.op(how, b.grad, indices, _zero(b).broadcast_to(updates.shape), **b.attrs)
        return kept, None, b.op(read, b.grad, indices, **along)

    return adjoint


def top_k(b: Backward) -> Grads:
    """The values' gradient goes to where they were; the indices have none."""
    axis = b.attrs["axis"] % b.inputs[0].ndim
    grad = b.grads[0]
    return (None if grad is None else _by_one_hot(b, b.outputs[1], grad, axis),)


def _by_one_hot(b: Backward, indices: Tensor, grad: Tensor, axis: int) -> Tensor:
    """The sum of gradients at the indices along an axis that they name."""
    last = grad.ndim - 1
    hot = b.op("one_hot", indices.moveaxis(axis, last), depth=b.inputs[0].shape[axis], dtype=grad.dtype)
    spread = grad.moveaxis(axis, last).expand_dims(grad.ndim) * hot
    made = b.op("sum", spread, axis=(last,), keepdims=False)
    return made.moveaxis(last, axis)


# -- reductions ---------------------------------------------------------------------------------------------


def total(b: Backward) -> Grads:
    return (_back(b, b.grad),)


def extreme(b: Backward) -> Grads:
    """Equal extremes share the gradient."""
    x = b.inputs[0]
    best = _as(b.op("equal", x, _back(b, b.out)), b.grad)
    ties = b.op("sum", best, axis=_axes(b), keepdims=True)
    return (_back(b, b.grad) * best / ties,)


def product(b: Backward) -> Grads:
    """The product of the others: of a single zero that of the rest, of several zeros none."""
    x = b.inputs[0]
    is_zero = b.op("equal", x, _zero(b))
    rest = b.op("where", is_zero, _zero(b) + 1, x)
    zeros = _back(b, b.op("sum", _as(is_zero, b.grad), axis=_axes(b), keepdims=True))
    others = _back(b, b.op("prod", rest, axis=_axes(b), keepdims=True)) / rest
    alone = (zeros < 0.5) | (is_zero & (zeros < 1.5))
    return (_if(b, alone, _back(b, b.grad) * others),)


def logsumexp(b: Backward) -> Grads:
    return (_back(b, b.grad) * b.op("exp", b.inputs[0] - _back(b, b.out)),)


def variance(b: Backward) -> Grads:
    return (_back(b, b.grad) * _from_mean(b) * 2,)


def deviation(b: Backward) -> Grads:
    return (_back(b, b.grad / b.out) * _from_mean(b),)


def softmax(b: Backward) -> Grads:
    inner = b.op("sum", b.grad * b.out, axis=(b.attrs["axis"],), keepdims=True)
    return (b.out * (b.grad - inner),)


def log_softmax(b: Backward) -> Grads:
    total = b.op("sum", b.grad, axis=(b.attrs["axis"],), keepdims=True)
    return (b.grad - b.op("exp", b.out) * total,)


# -- what they have in common -------------------------------------------------------------------------------


def _zero(b: Backward) -> Tensor:
    graph = b.grad.graph
    return graph.constant(graph._fresh("zero"), np.array(0, b.grad.dtype))


def _if(b: Backward, condition: Tensor, grad: Tensor) -> Tensor:
    """The gradient where a condition holds, else 0 (also where the gradient is infinite)."""
    return b.op("where", condition, grad, _zero(b))


def _as(condition: Tensor, like: Tensor) -> Tensor:
    return cast(Tensor, condition.graph.op("astype", condition, dtype=like.dtype))


def _axes(b: Backward) -> tuple[int, ...]:
    """The axes that a node reduces, from the first."""
    rank, given = b.inputs[0].ndim, b.attrs.get("axis")
    every = range(rank) if given is None else (given,) if isinstance(given, int) else given
    return tuple(sorted(axis % rank for axis in every))


def _back(b: Backward, reduced: Tensor) -> Tensor:
    """What was reduced in the shape of the operand."""
    x = b.inputs[0]
    over = _axes(b)
    kept = tuple(1 if axis in over else n for axis, n in enumerate(x.shape))
    return reduced.reshape(kept).broadcast_to(x.shape)


def _from_mean(b: Backward) -> Tensor:
    """(x − mean) / (count − correction)."""
    x, over = b.inputs[0], _axes(b)
    degrees: float = prod(x.shape[axis] for axis in over) - b.attrs["correction"]
    mean = b.op("mean", x, axis=over, keepdims=True)
    return (x - mean) / degrees


def _spread(grad: Tensor, axes: Sequence[int], shape: tuple[int, ...]) -> Tensor:
    """A gradient of some axes, the same along the others."""
    kept = tuple(n if axis in axes else 1 for axis, n in enumerate(shape))
    return grad.reshape(kept).broadcast_to(shape)
