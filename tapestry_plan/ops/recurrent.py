"""Recurrences over time: states that each step makes of the step's input and of the states before.

Time and the states' width are walked, or multiplied, whole; directions and sequences do not depend on each other, so
plans split those. What a step adds of the input is the same product for all steps: it is made before, and split as any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tapestry_plan.ir import Attrs, Axis, Shape, Shard, Signature, Tensor
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.operands import floating, need_rank, touched
from tapestry_sets.limits import quote

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
"""Rows of weights for each cell of the state."""
CURVES: dict[str, Callable[..., Any]] = {
    "sigmoid": lambda xp, x, a, b: xp.tanh(x * 0.5) * 0.5 + 0.5,
    "tanh": lambda xp, x, a, b: xp.tanh(x),
    "relu": lambda xp, x, a, b: xp.maximum(x, 0),
    "affine": lambda xp, x, a, b: x * a + b,
    "leakyrelu": lambda xp, x, a, b: xp.where(x < 0, x * a, x),
    "thresholdedrelu": lambda xp, x, a, b: xp.where(x > a, x, x * 0),
    "scaledtanh": lambda xp, x, a, b: xp.tanh(x * b) * a,
    "hardsigmoid": lambda xp, x, a, b: xp.clip(x * a + b, 0, 1),
    "elu": lambda xp, x, a, b: xp.where(x < 0, xp.expm1(xp.minimum(x, 0)) * a, x),
    "softsign": lambda xp, x, a, b: x / (xp.abs(x) + 1),
    "softplus": lambda xp, x, a, b: xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x))),
}
"""Activations by ONNX's names in small letters, with the numbers alpha and beta."""
USUAL = {"rnn": ("tanh",), "gru": ("sigmoid", "tanh"), "lstm": ("sigmoid", "tanh", "tanh")}


def _recurrence_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """Index axes d (directions) and b (sequences)."""
    kind = attrs.get("kind")
    if kind not in GATES:
        raise ValueError(f"kind is {quote(kind)}; it must be one of {list(GATES)}")
    x, w, h = shapes[:3]
    need_rank(x, 4, "operand 0", "steps, directions, batch, gates · width")
    need_rank(h, 3, "operand 2", "directions, batch, width")
    steps, directions, batch, rows = x
    width = h[2]
    needed = [(directions, GATES[kind] * width, width), (directions, batch, width)]
    looking, cell = (directions, 3 * width), (directions, batch, width)
    kinds: dict[str, list[Shape]] = {"rnn": [], "gru": [(directions, width)], "lstm": [cell, looking]}
    more = kinds[kind]
    least, most = (4 if kind == "lstm" else 3), 3 + len(more)
    if rows != GATES[kind] * width or not least <= len(shapes) <= most:
        raise ValueError(
            f"{len(shapes)} operands, of which operand 0 has shape {quote(x)}; {kind} takes {least} to {most}, the "
            f"first with {GATES[kind]} times the width {width} as last extent"
        )
    for k, (shape, wanted) in enumerate(zip(shapes[1:], [*needed, *more], strict=False), 1):
        if shape != wanted:
            raise ValueError(f"operand {k} has shape {quote(shape)}; {wanted} is needed beside operand 0 of {quote(x)}")
    _curves_of(attrs)
    axes = (Axis("d", directions), Axis("b", batch))
    inputs = [touched(axes, ["", "d", "b", ""], x), touched(axes, ["d", "", ""], w)]
    inputs += [touched(axes, ["d", "b", ""] if len(shape) == 3 else ["d", ""], shape) for shape in shapes[2:]]
    made = touched(axes, ["", "d", "b", ""], (steps, directions, batch, width))
    return Signature(axes, tuple(inputs), (made, made) if kind == "lstm" else (made,))


def _curves_of(attrs: Attrs) -> list[Callable[..., Any]]:
    """The activations, each of ``(xp, array)``."""
    names = attrs.get("activations") or USUAL[attrs["kind"]]
    numbers = [tuple(attrs.get(key) or (0.0,) * len(names)) for key in ("alphas", "betas")]
    if len(names) != len(USUAL[attrs["kind"]]) or any(name not in CURVES for name in names):
        raise ValueError(
            f"activations is {quote(tuple(names))}; {attrs['kind']} takes {len(USUAL[attrs['kind']])} of {list(CURVES)}"
        )
    if any(len(one) != len(names) for one in numbers):
        raise ValueError(f"alphas and betas are {quote(numbers)}; give one number for each of {quote(tuple(names))}")

    def bound(name: str, a: float, b: float) -> Callable[..., Any]:
        return lambda xp, x: CURVES[name](xp, x, x.dtype.type(a), x.dtype.type(b))

    return [bound(name, a, b) for name, a, b in zip(names, *numbers, strict=True)]


def _recurrence_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    attrs = shard.attrs
    step = {"rnn": _rnn, "gru": _gru, "lstm": _lstm}[attrs["kind"]]
    curves, clip = _curves_of(attrs), attrs.get("clip")
    wide = "float32" if outputs[0].dtype == "float16" else outputs[0].dtype
    x, w, h, *more = [one.astype(wide) for one in inputs]
    state = (h, more.pop(0)) if attrs["kind"] == "lstm" else (h,)
    turned = xp.swapaxes(w, -1, -2)
    extra = more[0] if more else None
    width = h.shape[-1]

    def cut(k: int) -> slice:
        return slice(k * width, (k + 1) * width)

    def bend(curve: Callable[..., Any], value: Any) -> Any:
        return curve(xp, xp.clip(value, -clip, clip) if clip else value)

    for number in range(x.shape[0]):
        state = step(xp, x[number], state, turned, extra, cut, bend, curves, bool(attrs.get("input_forget")))
        for out, value in zip(outputs, state, strict=True):
            out[number] = value


def _rnn(
    xp: Any, x: Any, state: Any, w: Any, extra: Any, cut: Any, bend: Any, curves: Any, input_forget: bool
) -> tuple[Any, ...]:
    return (bend(curves[0], x + xp.matmul(state[0], w)),)


def _gru(
    xp: Any, x: Any, state: Any, w: Any, extra: Any, cut: Any, bend: Any, curves: Any, input_forget: bool
) -> tuple[Any, ...]:
    """Gates z, r, h; with `extra`, the bias of the state, the reset comes behind its product."""
    (h,) = state
    if extra is None:
        both = w[:, :, : 2 * h.shape[-1]]
        gates = x[..., : 2 * h.shape[-1]] + xp.matmul(h, both)
    else:
        product = xp.matmul(h, w)
        gates = x[..., : 2 * h.shape[-1]] + product[..., : 2 * h.shape[-1]]
    z, r = bend(curves[0], gates[..., cut(0)]), bend(curves[0], gates[..., cut(1)])
    if extra is None:
        inner = xp.matmul(r * h, w[:, :, cut(2)])
    else:
        inner = r * (product[..., cut(2)] + extra[:, None, :])
    fresh = bend(curves[1], x[..., cut(2)] + inner)
    return ((1 - z) * fresh + z * h,)


def _lstm(
    xp: Any, x: Any, state: Any, w: Any, extra: Any, cut: Any, bend: Any, curves: Any, input_forget: bool
) -> tuple[Any, ...]:
    """Gates i, o, f, c; `extra` are the weights with which the gates look at the cell."""
    h, c = state
    gates = x + xp.matmul(h, w)

    def look(k: int, cell: Any) -> Any:
        value = gates[..., cut(k)]
        return value if extra is None else value + extra[:, None, cut(k)] * cell

    i = bend(curves[0], look(0, c))
    f = 1 - i if input_forget else bend(curves[0], look(2, c))
    made = f * c + i * bend(curves[1], gates[..., cut(3)])
    return bend(curves[0], look(1, made)) * curves[2](xp, made), made


def _recurrence_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    return floating(dtypes, attrs) * (2 if attrs.get("kind") == "lstm" else 1)


def _recurrence_flop(signature: Signature, attrs: Attrs) -> float:
    """For each direction and sequence: a product with the weights and some twenty operations a cell, at each step."""
    steps, width = signature.outputs[0].projection.shape[0], signature.outputs[0].projection.shape[-1]
    return float(steps * width * (2 * GATES[attrs["kind"]] * width + 20))


@operator(block=_recurrence_block, signature=_recurrence_signature, flop=_recurrence_flop, dtype=_recurrence_dtype)
def recurrence(
    x: Tensor,
    weights: Tensor,
    *states: Tensor,
    kind: str = "lstm",
    activations: Sequence[str] = (),
    alphas: Sequence[float] = (),
    betas: Sequence[float] = (),
    clip: float | None = None,
    input_forget: bool = False,
    name: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """The states of a recurrent layer after each step, of what the input adds to the gates in each.

    Plans split directions and sequences; steps are walked in turn.

    Parameters
    ----------
    x : Tensor of shape (steps, directions, batch, gates · width)
        What each step adds to the gates, all biases in it. The gates are, for "lstm", those of the input, the output,
        the forgetting and the cell, for "gru" update, reset and the new state; an "rnn" has one.
    weights : Tensor of shape (directions, gates · width, width)
        By which the state before is multiplied.
    *states : Tensor
        The first state, (directions, batch, width); for "lstm" the first cell, alike. Then, if it is there, what
        only one kind has: for "lstm" weights (directions, 3 · width) with which the first three gates look at the
        cell; for "gru" the bias (directions, width) of the state's product, which is then reset, not the state.
    kind : "lstm", "gru" or "rnn"
    activations : sequence of str
        By ONNX's names in small letters: of the gates, and of what comes out; the usual ones where there are none.
    alphas, betas : sequence of float
        Their numbers.
    clip : float, optional
        Largest size of what the activations of the gates are given.
    input_forget : bool
        Whether an "lstm" forgets what it takes no input for: 1 minus the input's gate.

    Returns
    -------
    Tensor of shape (steps, directions, batch, width)
        The state after each step; for "lstm" a tuple of it and the cell after each step.

    Raises
    ------
    ValueError
        For another kind or activation, and operands that do not fit.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[[[1.0]]], [[[1.0]]], [[[1.0]]]])
    >>> w, first = g.constant("w", [[[0.5]]]), g.constant("first", [[[0.0]]])
    >>> _ = g.output(ops.recurrence(x, w, first, kind="rnn", activations=["relu"]), "y")
    >>> evaluate(g, {})["y"].ravel().tolist()
    [1.0, 1.5, 1.75]

    References
    ----------
    ONNX LSTM, GRU and RNN.
    """
    how = {"kind": kind, "activations": tuple(activations), "clip": clip, "input_forget": bool(input_forget)}
    numbers = {"alphas": tuple(map(float, alphas)), "betas": tuple(map(float, betas))}
    return add_op(recurrence.op, x, weights, *states, name=name, **how, **numbers)
