"""Activation functions: smooth or bent curves applied cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Activation, Op, Shard, Tensor
from tapestry_plan.ops.cells.error_function import error_function
from tapestry_plan.ops.operands import add_op, declare, floating, unary, unary_function

TILE_CELLS = 1 << 18
"""Cells that a formula is applied to at once: what it computes in between is no larger."""

Formula = Callable[..., Any]
"""``(xp, x, **attributes) -> array`` of x's shape and dtype."""


def in_tiles(formula: Formula, takes_out: bool = False) -> Any:
    """The block that applies a formula to its operand, a few rows at a time; some formulas write into `out`."""

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        (x,), (out,) = inputs, outputs
        if x.ndim == 0:
            out[...] = formula(xp, x, **shard.attrs)
            return
        rows = max(1, TILE_CELLS * len(x) // x.size)
        for top in range(0, len(x), rows):
            some = slice(top, top + rows)
            if takes_out:
                formula(xp, x[some], out=out[some], **shard.attrs)
            else:
                out[some] = formula(xp, x[some], **shard.attrs)

    return block


def _gelu(xp: Any, x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        inner = x * x * x * x.dtype.type(0.044715) + x
        return (xp.tanh(inner * x.dtype.type(0.7978845608028654)) + 1) * x * x.dtype.type(0.5)  # √(2/π)
    return (error_function(xp, x * x.dtype.type(0.7071067811865476)) + 1) * x * x.dtype.type(0.5)


def _silu(xp: Any, x: Any) -> Any:
    return (xp.tanh(x * x.dtype.type(0.5)) + 1) * x * x.dtype.type(0.5)


def _softplus(xp: Any, x: Any) -> Any:
    return xp.logaddexp(x, x.dtype.type(0))


def _mish(xp: Any, x: Any) -> Any:
    return xp.tanh(_softplus(xp, x)) * x


def _softsign(xp: Any, x: Any) -> Any:
    return x / (xp.abs(x) + 1)


def _elu(xp: Any, x: Any, alpha: float = 1.0) -> Any:
    return xp.where(x > 0, x, xp.expm1(xp.minimum(x, 0)) * x.dtype.type(alpha))


def _selu(xp: Any, x: Any, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Any:
    return _elu(xp, x, alpha) * x.dtype.type(gamma)


def _celu(xp: Any, x: Any, alpha: float = 1.0) -> Any:
    scale = x.dtype.type(alpha)
    inner = x / scale
    return xp.maximum(x, 0) + xp.minimum(xp.expm1(xp.minimum(inner, 0) if alpha > 0 else inner) * scale, 0)


def _hard_sigmoid(xp: Any, x: Any, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return xp.clip(x * x.dtype.type(alpha) + x.dtype.type(beta), 0, 1)


def _hard_swish(xp: Any, x: Any) -> Any:
    return _hard_sigmoid(xp, x, 1 / 6) * x


def _thresholded_relu(xp: Any, x: Any, alpha: float = 1.0) -> Any:
    return xp.where(x > alpha, x, x.dtype.type(0))


# -- declarations --------------------------------------------------------------------------------------

declare(
    Op("erf", unary, in_tiles(error_function, takes_out=True), 24.0, dtype=floating, adjoint=adjoints.erf),
    Op(
        "gelu",
        unary,
        in_tiles(_gelu),
        28.0,
        dtype=floating,
        attributes=("approximate",),
        adjoint=adjoints.gelu,
        work=lambda shard: Activation("gelu") if shard.attrs.get("approximate", "none") == "none" else None,
    ),
    Op("silu", unary, in_tiles(_silu), 4.0, dtype=floating, adjoint=adjoints.silu),
    Op("softplus", unary, in_tiles(_softplus), 4.0, dtype=floating, adjoint=adjoints.softplus),
    Op("mish", unary, in_tiles(_mish), 6.0, dtype=floating, adjoint=adjoints.mish),
    Op("softsign", unary, in_tiles(_softsign), 3.0, dtype=floating, adjoint=adjoints.softsign),
    Op("elu", unary, in_tiles(_elu), 3.0, dtype=floating, attributes=("alpha",), adjoint=adjoints.elu),
    Op("selu", unary, in_tiles(_selu), 4.0, dtype=floating, attributes=("alpha", "gamma"), adjoint=adjoints.selu),
    Op("celu", unary, in_tiles(_celu), 6.0, dtype=floating, attributes=("alpha",), adjoint=adjoints.celu),
    Op(
        "hard_sigmoid",
        unary,
        in_tiles(_hard_sigmoid),
        4.0,
        dtype=floating,
        attributes=("alpha", "beta"),
        adjoint=adjoints.hard_sigmoid,
    ),
    Op("hard_swish", unary, in_tiles(_hard_swish), 5.0, dtype=floating, adjoint=adjoints.hard_swish),
    Op(
        "thresholded_relu",
        unary,
        in_tiles(_thresholded_relu),
        2.0,
        dtype=floating,
        attributes=("alpha",),
        adjoint=adjoints.thresholded_relu,
    ),
)

# -- functions on graph tensors ------------------------------------------------------------------------

erf = unary_function("erf", "2/√π · ∫₀ˣ exp(−t²) dt, cell by cell.")
silu = unary_function("silu", "x · sigmoid(x), cell by cell; also called swish.")
softplus = unary_function("softplus", "log(1 + exp(x)), cell by cell, without overflow.")
mish = unary_function("mish", "x · tanh(softplus(x)), cell by cell.")
softsign = unary_function("softsign", "x / (1 + |x|), cell by cell.")
hard_swish = unary_function("hard_swish", "x · clip(x/6 + 1/2, 0, 1), cell by cell.")


def gelu(x: Tensor, approximate: str = "none", *, name: str | None = None) -> Tensor:
    """x times the probability that a standard normal number is below x.

    Parameters
    ----------
    x : Tensor of a floating dtype
    approximate : "none" or "tanh"
        Exact, or through the hyperbolic tangent of a cubic.

    Raises
    ------
    ValueError
        For another approximation, or a dtype that is not floating.

    References
    ----------
    ONNX Gelu; Hendrycks and Gimpel, "Gaussian error linear units", 2016.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate={approximate!r} must be 'none' or 'tanh'")
    return add_op("gelu", x, name=name, approximate=approximate)


def elu(x: Tensor, alpha: float = 1.0, *, name: str | None = None) -> Tensor:
    """x where it is positive, alpha·(exp(x) − 1) elsewhere (ONNX Elu)."""
    return add_op("elu", x, name=name, alpha=float(alpha))


def selu(
    x: Tensor, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805, *, name: str | None = None
) -> Tensor:
    """gamma·elu(x, alpha) (ONNX Selu); by default mean 0 and variance 1 are kept."""
    return add_op("selu", x, name=name, alpha=float(alpha), gamma=float(gamma))


def celu(x: Tensor, alpha: float = 1.0, *, name: str | None = None) -> Tensor:
    """max(x, 0) + min(0, alpha·(exp(x/alpha) − 1)) (ONNX Celu)."""
    if alpha == 0:
        raise ValueError("celu: alpha=0 would be divided by; give another number")
    return add_op("celu", x, name=name, alpha=float(alpha))


def hard_sigmoid(x: Tensor, alpha: float = 0.2, beta: float = 0.5, *, name: str | None = None) -> Tensor:
    """alpha·x + beta, limited to [0, 1] (ONNX HardSigmoid)."""
    return add_op("hard_sigmoid", x, name=name, alpha=float(alpha), beta=float(beta))


def thresholded_relu(x: Tensor, alpha: float = 1.0, *, name: str | None = None) -> Tensor:
    """x where it is above alpha, 0 elsewhere (ONNX ThresholdedRelu)."""
    return add_op("thresholded_relu", x, name=name, alpha=float(alpha))
