"""Activation functions: smooth or bent curves applied cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Activation, Attrs, CellBlock, Tensor
from tapestry_plan.ops import tuning
from tapestry_plan.ops.cells.error_function import error_function
from tapestry_plan.ops.declaration import operator
from tapestry_plan.ops.operands import floating
from tapestry_sets.limits import quote

Formula = Callable[..., Any]
"""``(xp, x, **attributes) -> array`` of x's shape and dtype."""


def in_tiles(formula: Formula, takes_out: bool = False) -> CellBlock:
    """The block that applies a formula to its operands, some of their cells at a time; some formulas write into `out`.

    Operands broadcast against each other; cells are taken along the first axis that has several.
    """

    def write(xp: Any, outputs: Sequence[Any], inputs: Sequence[Any], attrs: Attrs) -> None:
        (out,) = outputs
        axis = next((k for k, n in enumerate(out.shape) if n > 1), None)
        extent = 1 if axis is None else out.shape[axis]
        rows = max(1, tuning.TILE_CELLS * extent // out.size)
        for top in range(0, extent, rows):
            target, *some = out, *inputs
            if axis is not None and rows < extent:
                target, *some = (_rows(one, axis - out.ndim, slice(top, top + rows)) for one in (out, *inputs))
            if takes_out:
                formula(xp, *some, out=target, **attrs)
            else:
                target[...] = formula(xp, *some, **attrs)

    return CellBlock(write, in_place=not takes_out)


def _rows(x: Any, axis: int, rows: slice) -> Any:
    """Cells along an axis, counted from the end; all of an operand that is broadcast along it."""
    return x if -axis > x.ndim or x.shape[axis] == 1 else x[(..., rows, *(slice(None),) * (-axis - 1))]


def _approximated(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    if attrs["approximate"] not in ("none", "tanh"):
        raise ValueError(f"approximate={quote(attrs['approximate'])} must be 'none' or 'tanh'")
    return floating(dtypes, attrs)


def _divided(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    if attrs["alpha"] == 0:
        raise ValueError("alpha=0 would be divided by; give another number")
    return floating(dtypes, attrs)


def _gelu(xp: Any, x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        inner = x * x * x * x.dtype.type(0.044715) + x
        return (xp.tanh(inner * x.dtype.type(0.7978845608028654)) + 1) * x * x.dtype.type(0.5)  # √(2/π)
    return (error_function(xp, x * x.dtype.type(0.7071067811865476)) + 1) * x * x.dtype.type(0.5)


def _silu(xp: Any, x: Any) -> Any:
    x = x.astype(np.float32) if x.dtype.itemsize == 2 else x  # the sum would leave few bits of a half
    return (xp.tanh(x * x.dtype.type(0.5)) + 1) * x * x.dtype.type(0.5)


def _softplus(xp: Any, x: Any) -> Any:
    return xp.logaddexp(x, x.dtype.type(0))


def _mish(xp: Any, x: Any) -> Any:
    return xp.tanh(_softplus(xp, x)) * x


def _softsign(xp: Any, x: Any) -> Any:
    return x / (xp.abs(x) + 1)


def _elu(xp: Any, x: Any, alpha: float) -> Any:
    return xp.where(x > 0, x, xp.expm1(xp.minimum(x, 0)) * x.dtype.type(alpha))


def _selu(xp: Any, x: Any, alpha: float, gamma: float) -> Any:
    return _elu(xp, x, alpha) * x.dtype.type(gamma)


def _celu(xp: Any, x: Any, alpha: float) -> Any:
    scale = x.dtype.type(alpha)
    inner = x / scale
    return xp.maximum(x, 0) + xp.minimum(xp.expm1(xp.minimum(inner, 0) if alpha > 0 else inner) * scale, 0)


def _hard_sigmoid(xp: Any, x: Any, alpha: float, beta: float) -> Any:
    return xp.clip(x * x.dtype.type(alpha) + x.dtype.type(beta), 0, 1)


def _hard_swish(xp: Any, x: Any) -> Any:
    return _hard_sigmoid(xp, x, 1 / 6, 0.5) * x


def _thresholded_relu(xp: Any, x: Any, alpha: float) -> Any:
    return xp.where(x > alpha, x, x.dtype.type(0))


@operator(block=in_tiles(error_function, takes_out=True), flop=24.0, dtype=floating, adjoint=adjoints.erf)
def erf(x: Tensor, *, name: str | None = None) -> Tensor:
    """2/√π · ∫₀ˣ exp(−t²) dt, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.erf(g.constant("x", [-1.0, 0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(4).tolist()
    [-0.8427, 0.0, 0.8427]

    References
    ----------
    ONNX Erf.
    """


@operator(block=in_tiles(_silu), flop=4.0, dtype=floating, adjoint=adjoints.silu)
def silu(x: Tensor, *, name: str | None = None) -> Tensor:
    """x · sigmoid(x), cell by cell; also called swish.

    Parameters
    ----------
    x : Tensor of a floating dtype

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.silu(g.constant("x", [-1.0, 0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(4).tolist()
    [-0.2689, 0.0, 0.7311]

    References
    ----------
    ONNX Swish.
    """


@operator(block=in_tiles(_softplus), flop=4.0, dtype=floating, adjoint=adjoints.softplus)
def softplus(x: Tensor, *, name: str | None = None) -> Tensor:
    """log(1 + exp(x)), cell by cell, without overflow.

    Parameters
    ----------
    x : Tensor of a floating dtype

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.softplus(g.constant("x", [-1.0, 0.0, 1000.0])), "y")
    >>> evaluate(g, {})["y"].round(4).tolist()
    [0.3133, 0.6931, 1000.0]

    References
    ----------
    ONNX Softplus.
    """


@operator(block=in_tiles(_mish), flop=6.0, dtype=floating, adjoint=adjoints.mish)
def mish(x: Tensor, *, name: str | None = None) -> Tensor:
    """x · tanh(softplus(x)), cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.mish(g.constant("x", [-1.0, 0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(4).tolist()
    [-0.3034, 0.0, 0.8651]

    References
    ----------
    ONNX Mish.
    """


@operator(block=in_tiles(_softsign), flop=3.0, dtype=floating, adjoint=adjoints.softsign)
def softsign(x: Tensor, *, name: str | None = None) -> Tensor:
    """x / (1 + |x|), cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.softsign(g.constant("x", [-3.0, 0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [-0.75, 0.0, 0.5]

    References
    ----------
    ONNX Softsign.
    """


@operator(block=in_tiles(_hard_swish), flop=5.0, dtype=floating, adjoint=adjoints.hard_swish)
def hard_swish(x: Tensor, *, name: str | None = None) -> Tensor:
    """x · clip(x/6 + 1/2, 0, 1), cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.hard_swish(g.constant("x", [-1.0, 1.0, 4.0])), "y")
    >>> evaluate(g, {})["y"].round(4).tolist()
    [-0.3333, 0.6667, 4.0]

    References
    ----------
    ONNX HardSwish.
    """


@operator(
    block=in_tiles(_gelu),
    flop=28.0,
    dtype=_approximated,
    adjoint=adjoints.gelu,
    work=lambda shard: Activation("gelu") if shard.attrs["approximate"] == "none" else None,
)
def gelu(x: Tensor, approximate: str = "none", *, name: str | None = None) -> Tensor:
    """x times the probability that a standard normal number is below x.

    Parameters
    ----------
    x : Tensor of a floating dtype
    approximate : "none" or "tanh"
        Exact, or through the hyperbolic tangent of a cubic.

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another approximation, or a dtype that is not floating.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.gelu(g.constant("x", [-1.0, 0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(4).tolist()
    [-0.1587, 0.0, 0.8413]

    References
    ----------
    ONNX Gelu; Hendrycks and Gimpel, "Gaussian error linear units", 2016.
    """


@operator(block=in_tiles(_elu), flop=3.0, dtype=floating, adjoint=adjoints.elu)
def elu(x: Tensor, alpha: float = 1.0, *, name: str | None = None) -> Tensor:
    """x where it is positive, alpha·(exp(x) − 1) elsewhere.

    Parameters
    ----------
    x : Tensor of a floating dtype
    alpha : float
        Minus what it tends to far below 0.

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.elu(g.constant("x", [-1.0, 2.0])), "y")
    >>> evaluate(g, {})["y"].round(4).tolist()
    [-0.6321, 2.0]

    References
    ----------
    ONNX Elu.
    """


@operator(block=in_tiles(_selu), flop=4.0, dtype=floating, adjoint=adjoints.selu)
def selu(
    x: Tensor, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805, *, name: str | None = None
) -> Tensor:
    """gamma·elu(x, alpha); by default mean 0 and variance 1 are kept.

    Parameters
    ----------
    x : Tensor of a floating dtype
    alpha, gamma : float

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.selu(g.constant("x", [-1.0, 2.0])), "y")
    >>> evaluate(g, {})["y"].round(4).tolist()
    [-1.1113, 2.1014]

    References
    ----------
    ONNX Selu.
    """


@operator(block=in_tiles(_celu), flop=6.0, dtype=_divided, adjoint=adjoints.celu)
def celu(x: Tensor, alpha: float = 1.0, *, name: str | None = None) -> Tensor:
    """max(x, 0) + min(0, alpha·(exp(x/alpha) − 1)).

    Parameters
    ----------
    x : Tensor of a floating dtype
    alpha : float
        Other than 0.

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype, and an alpha of 0.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.celu(g.constant("x", [-1.0, 2.0]), alpha=2.0), "y")
    >>> evaluate(g, {})["y"].round(4).tolist()
    [-0.7869, 2.0]

    References
    ----------
    ONNX Celu.
    """


@operator(block=in_tiles(_hard_sigmoid), flop=4.0, dtype=floating, adjoint=adjoints.hard_sigmoid)
def hard_sigmoid(x: Tensor, alpha: float = 0.2, beta: float = 0.5, *, name: str | None = None) -> Tensor:
    """alpha·x + beta, limited to [0, 1].

    Parameters
    ----------
    x : Tensor of a floating dtype
    alpha, beta : float

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.hard_sigmoid(g.constant("x", [-4.0, 0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(4).tolist()
    [0.0, 0.5, 0.7]

    References
    ----------
    ONNX HardSigmoid.
    """


@operator(block=in_tiles(_thresholded_relu), flop=2.0, dtype=floating, adjoint=adjoints.relu)
def thresholded_relu(x: Tensor, alpha: float = 1.0, *, name: str | None = None) -> Tensor:
    """x where it is above alpha, 0 elsewhere.

    Parameters
    ----------
    x : Tensor of a floating dtype
    alpha : float

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.thresholded_relu(g.constant("x", [-1.0, 1.0, 1.5])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [0.0, 0.0, 1.5]

    References
    ----------
    ONNX ThresholdedRelu.
    """
