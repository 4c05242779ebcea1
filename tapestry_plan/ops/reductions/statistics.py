"""Reductions by any monoid: variance, logsumexp, argmax and the user's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import (
    MONOIDS,
    Adjoint,
    Attrs,
    Monoid,
    Op,
    Shape,
    Shard,
    Signature,
    Tensor,
    check_monoid,
    components_of,
)
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.reductions.reductions import Axes, reduce_signature
from tapestry_sets.limits import check_arguments, quote


@check_arguments
def reduction(
    monoid: Monoid,
    name: str,
    attributes: tuple[str, ...] = (),
    adjoint: Adjoint | None = None,
) -> Op:
    """Return the operator that reduces axes of its operand by a monoid.

    Parameters
    ----------
    monoid : Monoid
        One that is not commutative reduces one axis only.
    name : str
        Of the operator.
    attributes : tuple of str
        What `Monoid.unwrap` reads, besides `axis` and `keepdims`.
    adjoint : callable, optional
        As in `Op`.

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> from tapestry_plan.ir import Monoid
    >>> from tapestry_plan.ops import reduction
    >>> rms = Monoid(
    ...     "rms",
    ...     lambda xp, a, b: (a[0] + b[0], a[1] + b[1]),
    ...     (0, 0),
    ...     lambda dtype: ("float64",) * 2,
    ...     lambda xp, x, index: (xp.ones_like(x, dtype="float64"), x.astype("float64") ** 2),
    ...     lambda xp, state, attrs: xp.sqrt(state[1] / state[0]),
    ... )
    >>> g = Graph()
    >>> g.op(reduction(rms, "rms"), g.input("x", (8, 6)), axis=1).shape
    (8,)
    """
    return Op(name, attributes=("axis", "keepdims", *attributes), adjoint=adjoint, **_by(monoid))


def _by(monoid: Monoid) -> dict[str, Any]:
    """What operators that reduce by a monoid declare."""

    def signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
        made = reduce_signature(shapes, attrs)
        if len(made.reductions) > 1 and not monoid.is_commutative:
            raise ValueError(
                f"axis is {quote(attrs.get('axis'))}, but {monoid.name} is not commutative: its values have an order "
                "along one axis only; reduce one axis"
            )
        correction = attrs.get("correction", 0)
        if not math.isfinite(correction):
            raise ValueError(f"correction is {quote(correction)}; it must be a finite number")
        many = math.prod(made.axes[a].size for a in made.reductions)
        if correction and correction >= many:
            raise ValueError(
                f"correction is {quote(correction)}, and {many} values are reduced; it must be less, since the sum is "
                "divided by the difference"
            )
        return made

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        values, index = _move_to_front(xp, inputs[0], shard)
        state = monoid.reduced(xp, values, index)
        for target, value in zip(components_of(outputs[0]), state, strict=True):
            target[...] = value.reshape(target.shape)

    return {
        "signature": signature,
        "block": block,
        "flop": 2.0 + 4.0 * (len(monoid.zero) - 1),
        "reduction": monoid,
        "dtype": lambda dtypes, attrs: (monoid.result(dtypes[0]),),
    }


def _move_to_front(xp: Any, x: Any, shard: Shard) -> tuple[Any, Any]:
    """The values with the reduced axes as one in front, and their row-major numbers among all that are reduced."""
    signature, box = shard.signature, shard.input_boxes[0]
    assert box is not None, "the operand is always read"
    read = signature.inputs[0].projection.map.matrix
    axes = {k: a for k, row in enumerate(read) for a in signature.reductions if row[a]}
    index = xp.zeros((), dtype="int64")
    for k, a in axes.items():
        index = index[..., None] * signature.axes[a].size + xp.arange(box.start[k], box.stop[k])
    values = xp.moveaxis(x, tuple(axes), tuple(range(len(axes))))
    many = math.prod(values.shape[: len(axes)])
    rest = values.shape[len(axes) :]
    return values.reshape(many, *rest), index.reshape(many, *(1,) * len(rest))


@check_arguments
def reduce_with(
    monoid: Monoid, x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """Reduce axes, or all, by a monoid of the user's own; see `Monoid`.

    Parameters
    ----------
    monoid : Monoid
    x : Tensor
    axis : int or sequence of int, optional
        All axes by default.
        A monoid that is not commutative reduces one axis.
    keepdims : bool
        Keep the reduced axes, with extent 1.

    Returns
    -------
    Tensor
        Of the dtype that `Monoid.result` gives.

    Raises
    ------
    ValueError
        For an axis that x has not, one named twice, and several of a monoid that is not commutative.

    Warns
    -----
    NoMonoid
        If random values show that its merge is not associative, or its zero changes something.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, Monoid, ops
    >>> spread = Monoid(
    ...     "spread",  # the largest less the smallest: each part keeps both
    ...     merge=lambda xp, a, b: (xp.minimum(a[0], b[0]), xp.maximum(a[1], b[1])),
    ...     zero=(float("inf"), float("-inf")),
    ...     components=lambda dtype: (dtype, dtype),
    ...     wrap=lambda xp, x, index: (x, x),
    ...     unwrap=lambda xp, state, attrs: state[1] - state[0],
    ... )
    >>> g = Graph()
    >>> _ = g.output(ops.reduce_with(spread, g.constant("x", [[1.0, 2.0], [3.0, 7.0]]), axis=1), "y")
    >>> evaluate(g, {})["y"].tolist()
    [1.0, 4.0]
    """
    check_monoid(monoid, x.dtype)
    op = reduction(monoid, f"reduce_with_{monoid.name}")
    return add_op(op, x, name=name, axis=axis, keepdims=keepdims)


@operator(**_by(MONOIDS["variance"]), adjoint=adjoints.variance)
def var(
    x: Tensor, axis: Axes = None, *, correction: float = 0, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The mean squared distance from the mean; the sum is divided by the count less `correction`.

    Parameters
    ----------
    x : Tensor of a floating dtype
    axis : int or sequence of int, optional
        All axes by default.
    correction : float
        What is taken off the count: 1 for a sample's.
    keepdims : bool
        Keep the reduced axes, with extent 1.

    Returns
    -------
    Tensor of x's dtype

    Raises
    ------
    ValueError
        For another dtype, an axis that x has not or named twice, and a correction that leaves nothing to divide by.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[1.0, 2.0], [3.0, 5.0]])
    >>> _ = g.output(ops.var(x, axis=0), "y")
    >>> evaluate(g, {})["y"].tolist()
    [1.0, 2.25]

    References
    ----------
    NumPy var; Array API var.
    """


@operator(**_by(MONOIDS["std"]), adjoint=adjoints.deviation)
def std(
    x: Tensor, axis: Axes = None, *, correction: float = 0, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The square root of the variance; see `var`.

    Parameters
    ----------
    x : Tensor of a floating dtype
    axis : int or sequence of int, optional
        All axes by default.
    correction : float
        What is taken off the count: 1 for a sample's.
    keepdims : bool
        Keep the reduced axes, with extent 1.

    Returns
    -------
    Tensor of x's dtype

    Raises
    ------
    ValueError
        As for `var`.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[1.0, 2.0], [3.0, 5.0]])
    >>> _ = g.output(ops.std(x, axis=0), "y")
    >>> evaluate(g, {})["y"].tolist()
    [1.0, 1.5]

    References
    ----------
    NumPy std; Array API std.
    """


@operator(**_by(MONOIDS["logsumexp"]), adjoint=adjoints.logsumexp)
def logsumexp(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str | None = None) -> Tensor:
    """log Σ exp(x), where no exponential overflows.

    Parameters
    ----------
    x : Tensor of a floating dtype
    axis : int or sequence of int, optional
        All axes by default.
    keepdims : bool
        Keep the reduced axes, with extent 1.

    Returns
    -------
    Tensor of x's dtype

    Raises
    ------
    ValueError
        For an axis that x has not, one named twice, and another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [1000.0, 1000.0])
    >>> _ = g.output(ops.logsumexp(x), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    1000.693

    References
    ----------
    ONNX ReduceLogSumExp; scipy.special.logsumexp.
    """


@operator(**_by(MONOIDS["argmax"]), adjoint=adjoints.none)
def argmax(x: Tensor, axis: int | None = None, *, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The index of the largest value along an axis, by default of the flattened tensor; of equal ones the first.

    NaN counts as larger than any number, as in NumPy.

    Parameters
    ----------
    x : Tensor
    axis : int, optional
    keepdims : bool
        Keep the reduced axes, with extent 1.

    Returns
    -------
    Tensor of int64

    Raises
    ------
    ValueError
        For an axis that x has not.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[1.0, 2.0], [3.0, 5.0]])
    >>> _ = g.output(ops.argmax(x, axis=1), "y")
    >>> evaluate(g, {})["y"].tolist()
    [1, 1]

    References
    ----------
    NumPy argmax; ONNX ArgMax.
    """


@operator(**_by(MONOIDS["argmin"]), adjoint=adjoints.none)
def argmin(x: Tensor, axis: int | None = None, *, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The index of the smallest value along an axis; see `argmax`.

    Parameters
    ----------
    x : Tensor
    axis : int, optional
    keepdims : bool
        Keep the reduced axes, with extent 1.

    Returns
    -------
    Tensor of int64

    Raises
    ------
    ValueError
        For an axis that x has not.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[1.0, 2.0], [3.0, 5.0]])
    >>> _ = g.output(ops.argmin(x, axis=0), "y")
    >>> evaluate(g, {})["y"].tolist()
    [0, 0]

    References
    ----------
    NumPy argmin; ONNX ArgMin.
    """
