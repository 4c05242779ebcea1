"""Recurrences over time: states that each step makes of the step's input and of the states before.

Time is walked in turn; directions and sequences do not depend on each other, so plans split those. What a step adds of
the input is the same product for all steps: it is made before, and split as any. A cell of a state depends on all of
the state before: one operator that walks all steps has the width whole, an operator for each step splits it too, and
the state moves between them::

    recurrence         x (steps, d, b, gates · width) ─► all states           d, b split
    recurrence_step    x[t] (d, b, gates, width), h[t − 1] whole ─► h[t]      d, b, j split; as many as there are steps
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from tapestry_plan.ir import Attrs, Axis, Shape, Shard, Signature, Tensor
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.expansions import by_steps
from tapestry_plan.ops.operands import floating, need_rank, touched
from tapestry_sets.limits import quote, tell_count

Gates = list[Any]
"""Arrays, one for each gate."""
Product = Callable[[Any, int, int], Gates]
"""A state times the weights of some gates, from one on to before another."""
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


def _step_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """Index axes d (directions), b (sequences) and j (cells of the state); the state before is read whole."""
    kind = attrs.get("kind")
    if kind not in GATES:
        raise ValueError(f"kind is {quote(kind)}; it must be one of {list(GATES)}")
    x = shapes[0]
    need_rank(x, 4, "operand 0", "directions, batch, gates, width")
    directions, batch, gates, width = x
    state = directions, batch, width
    more: dict[str, list[Shape]] = {
        "rnn": [],
        "gru": [state, (directions, width)],
        "lstm": [state, (directions, 3, width)],
    }
    needed = [(directions, gates, width, width), state, *more[kind]]
    least, most = len(needed) + (kind != "lstm"), len(needed) + 1
    if gates != GATES[kind] or not least <= len(shapes) <= most:
        takes = f"{least} to {most}" if least < most else f"{most}"
        raise ValueError(
            f"{len(shapes)} operands, of which operand 0 has shape {quote(x)}; a step of {kind} takes {takes}, "
            f"the first with {tell_count(GATES[kind], 'gate')}"
        )
    for k, (shape, wanted) in enumerate(zip(shapes[1:], needed, strict=False), 1):
        if shape != wanted:
            raise ValueError(f"operand {k} has shape {quote(shape)}; {wanted} is needed beside operand 0 of {quote(x)}")
    _curves_of(attrs)
    axes = (Axis("d", directions), Axis("b", batch), Axis("j", width))
    follows = [["d", "b", "", "j"], ["d", "", "j", ""], ["d", "b", ""], ["d", "b", "j"], ["d", "", "j"]]
    if kind == "gru":
        follows[4] = ["d", "j"]
    inputs = tuple(touched(axes, names, shape) for names, shape in zip(follows, shapes, strict=False))
    return Signature(axes, inputs, (touched(axes),) * (2 if kind == "lstm" else 1))


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


class _Formulas(Struct, frozen=True):
    """What one step makes of the gates: arrays of one shape, a list of what the input adds to each, and the products.

    Parameters
    ----------
    xp : namespace
    attrs : mapping
        The operator's.
    curves : list of callable
        Its activations.
    """

    xp: Any
    attrs: Attrs
    curves: list[Callable[..., Any]]

    def bend(self, number: int, value: Any) -> Any:
        """An activation of what is cut off first, where it is."""
        clip = self.attrs.get("clip")
        return self.curves[number](self.xp, self.xp.clip(value, -clip, clip) if clip else value)

    def rnn(self, x: Gates, product: Product, h: Any, own: tuple[Any, ...], extra: Any) -> tuple[Any, ...]:
        return (self.bend(0, x[0] + product(h, 0, 1)[0]),)

    def gru(self, x: Gates, product: Product, h: Any, own: tuple[Any, ...], extra: Any) -> tuple[Any, ...]:
        """Gates z, r, h; with `extra`, the bias of the state, the reset comes behind its product."""
        products = product(h, 0, 2 if extra is None else 3)
        z, r = (self.bend(0, x[k] + products[k]) for k in range(2))
        inner = product(r * h, 2, 3)[0] if extra is None else r * (products[2] + extra[:, None])
        fresh = self.bend(1, x[2] + inner)
        return ((1 - z) * fresh + z * own[0],)

    def lstm(self, x: Gates, product: Product, h: Any, own: tuple[Any, ...], extra: Any) -> tuple[Any, ...]:
        """Gates i, o, f, c; `extra` are the weights with which the gates look at the cell."""
        (c,) = own
        gates = [one + more for one, more in zip(x, product(h, 0, 4), strict=True)]

        def look(k: int, cell: Any) -> Any:
            return gates[k] if extra is None else gates[k] + extra[:, None, k] * cell

        i = self.bend(0, look(0, c))
        f = 1 - i if self.attrs.get("input_forget") else self.bend(0, look(2, c))
        made = f * c + i * self.bend(1, gates[3])
        return self.bend(0, look(1, made)) * self.curves[2](self.xp, made), made


def _read(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], attrs: Attrs) -> tuple[Any, list[Any]]:
    """The formula of a step, and the operands in the dtype that is computed in; operands of that one as they are."""
    wide = "float32" if outputs[0].dtype == "float16" else outputs[0].dtype
    return getattr(_Formulas(xp, attrs, _curves_of(attrs)), attrs["kind"]), [
        one if one.dtype == wide else one.astype(wide) for one in inputs
    ]


def _recurrence_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    kind = shard.attrs["kind"]
    step, (x, w, h, *more) = _read(xp, inputs, outputs, shard.attrs)
    own = (more.pop(0),) if kind == "lstm" else (h,)
    extra, turned, width = (more[0] if more else None), xp.swapaxes(w, -1, -2), h.shape[-1]
    if extra is not None and kind == "lstm":
        extra = extra.reshape(extra.shape[0], 3, width)

    def cut(of: Any) -> Gates:
        return [of[..., k : k + width] for k in range(0, of.shape[-1], width)]

    def product(state: Any, first: int, last: int) -> Gates:
        return cut(xp.matmul(state, turned[..., first * width : last * width]))

    for number in range(x.shape[0]):
        made = step(cut(x[number]), product, h, own, extra)
        for out, value in zip(outputs, made, strict=True):
            out[number] = value
        h, own = made[0], (made[-1],)


def _step_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    step, (x, w, h, *more) = _read(xp, inputs, outputs, shard.attrs)
    own = () if shard.attrs["kind"] == "rnn" else (more.pop(0),)
    turned = xp.swapaxes(w, -1, -2)

    def product(state: Any, first: int, last: int) -> Gates:
        made = xp.matmul(state[:, None], turned[:, first:last])
        return [made[:, k] for k in range(last - first)]

    made = step([x[:, :, k] for k in range(x.shape[2])], product, h, own, more[0] if more else None)
    for out, value in zip(outputs, made, strict=True):
        out[...] = value


def _recurrence_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    return floating(dtypes, attrs) * (2 if attrs.get("kind") == "lstm" else 1)


def _recurrence_flop(signature: Signature, attrs: Attrs) -> float:
    """For each direction and sequence: a product with the weights and some twenty operations a cell, at each step."""
    steps, width = signature.outputs[0].projection.shape[0], signature.outputs[0].projection.shape[-1]
    return steps * width * _flop_of_cell(width, attrs)


def _recurrence_passes(signature: Signature, attrs: Attrs) -> tuple[int, int]:
    """Each step multiplies by all weights."""
    return 1, signature.inputs[0].projection.shape[0]


def _step_flop(signature: Signature, attrs: Attrs) -> float:
    return _flop_of_cell(signature.inputs[2].projection.shape[-1], attrs)  # of the state, which is read whole


def _flop_of_cell(width: int, attrs: Attrs) -> float:
    return float(2 * GATES[attrs["kind"]] * width + 20)


@operator(
    block=_recurrence_block,
    signature=_recurrence_signature,
    flop=_recurrence_flop,
    dtype=_recurrence_dtype,
    passes=_recurrence_passes,
    expansions=(by_steps,),
)
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

    Plans split directions and sequences; steps are walked in turn. Where there are few steps, plans compare it with
    an operator for each, `recurrence_step`, over which the cells of the state are split too.

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


@operator(block=_step_block, signature=_step_signature, flop=_step_flop, dtype=_recurrence_dtype)
def recurrence_step(
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
    """The states of a recurrent layer after one step, of what the input adds to the gates in it.

    Plans split directions, sequences and the cells of the state. Each cell reads all of the state before, which moves
    between devices where its cells are split: from one step to the next.

    Parameters
    ----------
    x : Tensor of shape (directions, batch, gates, width)
        What the step adds to the gates, all biases in it, in the order of `recurrence`.
    weights : Tensor of shape (directions, gates, width, width)
        By which the state before is multiplied; the last axis is summed over.
    *states : Tensor
        The state before, (directions, batch, width), which is multiplied. For "lstm" the cell before, alike, and maybe
        weights (directions, 3, width) with which the first three gates look at the cell. For "gru" the state before
        again, whose cells the new ones keep a part of, and the bias (directions, width) of its product, which is then
        reset, not the state.
    kind : "lstm", "gru" or "rnn"
    activations, alphas, betas, clip, input_forget
        As of `recurrence`.

    Returns
    -------
    Tensor of shape (directions, batch, width)
        The state after the step; for "lstm" a tuple of it and the cell.

    Raises
    ------
    ValueError
        For another kind or activation, and operands that do not fit.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x, w, h = g.constant("x", [[[[1.0]]]]), g.constant("w", [[[[0.5]]]]), g.constant("h", [[[3.0]]])
    >>> _ = g.output(ops.recurrence_step(x, w, h, kind="rnn", activations=["relu"], name="step"), "y")
    >>> evaluate(g, {})["y"].item(), [axis.name for axis in g.signature("step").axes]
    (2.5, ['d', 'b', 'j'])
    """
    how = {"kind": kind, "activations": tuple(activations), "clip": clip, "input_forget": bool(input_forget)}
    numbers = {"alphas": tuple(map(float, alphas)), "betas": tuple(map(float, betas))}
    return add_op(recurrence_step.op, x, weights, *states, name=name, **how, **numbers)
