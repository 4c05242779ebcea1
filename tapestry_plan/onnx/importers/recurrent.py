"""LSTM, GRU and RNN of ONNX: one product for what all steps add of the input, then the recurrence over steps.

A direction that goes backwards reads its steps in the reverse order, through a view; sequences that end early are put
aside by their numbers of steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import BUILTIN_OPS, Tensor, concat
from tapestry_plan.onnx.nodes import Array, Importing, Node, OutsideText, Result, refusal
from tapestry_plan.onnx.walks import DECLARATION, KIND
from tapestry_plan.ops import recurrent as walks
from tapestry_sets.limits import quote, tell_count

NUMBERS = {
    "affine": (1.0, 0.0), "elu": (1.0, 0.0), "hardsigmoid": (0.2, 0.5), "leakyrelu": (0.01, 0.0),
    "scaledtanh": (1.0, 1.0), "thresholdedrelu": (1.0, 0.0),
}  # fmt: skip
"""Alpha and beta of activations that have them, where a node gives none."""
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Whether each direction goes backwards."""
LENGTHS = {"GRU": 4, "LSTM": 4, "RNN": 4, "ReverseSequence": 1}
"""Which input of an operator has the lengths of sequences."""


def recurrent(kind: str) -> Callable[[Importing, Node], Result]:
    """What adds a node of a kind of recurrence."""

    def add(at: Importing, node: Node) -> Result:
        attrs, gates = node.attrs, walks.GATES[kind]
        if at.shape(node.inputs[0])[bool(attrs.get("layout"))] == 0:
            return _no_steps(at, node, kind)
        backwards = DIRECTIONS.get(attrs.get("direction", "forward"))
        if backwards is None:
            raise ValueError(f"direction is {quote(attrs['direction'])}; known are {list(DIRECTIONS)}")
        is_behind, by_batch = bool(attrs.get("linear_before_reset")), bool(attrs.get("layout"))
        x, w, r = (at.tensor(name) for name in node.inputs[:3])
        x = x.permute_dims((1, 0, 2)) if by_batch else x
        (steps, batch, _), (directions, rows, width) = x.shape, r.shape
        if directions != len(backwards) or rows != gates * width or attrs.get("hidden_size", width) != width:
            raise ValueError(
                f"R has shape {quote(r.shape)}; {tell_count(len(backwards), 'direction')} of {gates} × hidden_size "
                "rows and hidden_size columns needed"
            )
        if "clip" in attrs and not attrs["clip"] > 0:
            raise OutsideText(f"clip is {attrs['clip']}; give a number above 0, or none")
        ends = _ends(at, node, steps, batch)
        sides = [_turned(x, ends) if back else x for back in backwards]
        each = concat([side.expand_dims(1) for side in sides], axis=1) if directions > 1 else sides[0].expand_dims(1)
        made = ops.matmul(each, w.permute_dims((0, 2, 1)), name=f"{node.name}.input")
        extra: list[Tensor] = []
        if node.input(3):
            bias = at.tensor(node.inputs[3])
            of_input, of_state = bias[:, : gates * width], bias[:, gates * width :]
            if kind == "gru" and is_behind:
                extra = [of_state[:, 2 * width :]]
                both = of_input[:, : 2 * width] + of_state[:, : 2 * width]
                of_input = concat([both, of_input[:, 2 * width :]], axis=1)
                made = made + of_input.expand_dims(1)
            else:
                made = made + (of_input + of_state).expand_dims(1)
        elif kind == "gru" and is_behind:
            extra = [at.graph.constant(f"{node.name}.bias", np.zeros((directions, width), x.dtype))]
        if kind == "lstm" and node.input(7):
            extra = [at.tensor(node.inputs[7])]
        shape = directions, batch, width
        first = [_first(at, node, k, shape, x.dtype, by_batch) for k in ((5, 6) if kind == "lstm" else (5,))]
        how = _activations(node, kind, directions)
        alike = {"kind": kind, "clip": attrs.get("clip"), "input_forget": bool(attrs.get("input_forget"))}
        if all(one == how[0] for one in how):
            states = _walk(made, [r, *first, *extra], node.name, **alike, **how[0])
        else:  # each direction is an operator with activations of its own
            each_way = [
                _walk(made[:, d : d + 1], [one[d : d + 1] for one in (r, *first, *extra)], node.name, **alike, **own)
                for d, own in enumerate(how)
            ]
            states = [concat(one, axis=1) for one in zip(*each_way, strict=True)]
        is_wanted = [bool(name) for name in (*node.outputs[1:], "", "")]
        last = [
            _last(one, ends, before) if wanted else one
            for one, before, wanted in zip(states, first, is_wanted, strict=False)
        ]
        y = states[0]
        if ends is not None:
            y = ops.where(
                _is_before(at, node, ends, steps), y, at.graph.constant(f"{node.name}.none", np.zeros((), y.dtype))
            )
        parts = [y[:, d : d + 1] for d in range(directions)] if directions > 1 else [y]
        parts = [_turned(one, ends) if back else one for one, back in zip(parts, backwards, strict=True)]
        y = concat(parts, axis=1) if directions > 1 else parts[0]
        if by_batch:
            turned = [
                one.permute_dims((1, 0, 2)) if wanted else one for one, wanted in zip(last, is_wanted, strict=False)
            ]
            return [y.permute_dims((2, 0, 1, 3)), *turned]
        return [y, *last]

    return add


def _no_steps(at: Importing, node: Node, kind: str) -> list[Tensor | Array]:
    """What a walk of no steps makes: no rows, and the states that it begins with.

    ONNX Runtime gives whatever the memory held, or ends; ONNX's reference refuses.
    """
    by_batch = dict(node.attrs).get("layout")  # the others say what steps would do
    batch, (directions, _, width) = at.shape(node.inputs[0])[not by_batch], at.shape(node.inputs[2])
    state = (batch, directions, width) if by_batch else (directions, batch, width)
    dtype = at.dtype_of(node.inputs[0])
    made: list[Tensor | Array] = [np.empty((batch, 0, directions, width) if by_batch else (0, *state), dtype)]
    for k in (5, 6) if kind == "lstm" else (5,):
        name = node.input(k)
        if name and at.shape(name) != state:
            raise ValueError(f"its input {k} has shape {quote(at.shape(name))}; {quote(state)} is needed")
        if name:
            made.append(at.value(name) if at.is_known(name) else at.tensor(name))
        else:
            made.append(at.fill(node, np.zeros((), dtype), state))
    return made


def own_operator(at: Importing, node: Node) -> Result:
    """A call of a function that is said to be, and is, what a recurrence, or what draws or scales, is written as."""
    said = json.loads(node.attrs[DECLARATION])
    operands = [at.tensor(name) for name in node.inputs]
    kinds = "shapes" if "shapes" in said else "operands"
    found = [list(one.shape) if kinds == "shapes" else [one.dtype, one.ndim] for one in operands]
    wanted = said[kinds]
    if found != wanted:
        raise ValueError(f"its {kinds} are {quote(found)}; its function is of {quote(wanted)}")
    attrs = {key: tuple(value) if isinstance(value, list) else value for key, value in said["attrs"].items()}
    op = BUILTIN_OPS[said.get("operator", KIND)]
    made = at.graph.op(op, *operands, name=node.name, **attrs)
    return made if isinstance(made, Tensor) else list(made)


def _walk(made: Tensor, others: Sequence[Tensor], name: str, **how: Any) -> list[Tensor]:
    found = ops.add_op(ops.recurrence.op, made, *others, name=name, **how)
    return [found] if isinstance(found, Tensor) else list(found)


def _first(at: Importing, node: Node, k: int, shape: Sequence[int], dtype: str, by_batch: bool) -> Tensor:
    """The state before the first step, zeros where it is not given."""
    if not node.input(k):
        zeros = at.fill(node, np.zeros((), dtype), shape)
        return zeros if isinstance(zeros, Tensor) else at.graph.constant(f"{node.name}.first{k}", zeros)
    given = at.tensor(node.inputs[k])
    return given.permute_dims((1, 0, 2)) if by_batch else given


def _activations(node: Node, kind: str, directions: int) -> list[dict[str, tuple[str, ...] | tuple[float, ...]]]:
    """The activations of each direction, with their numbers."""
    count, given = len(walks.USUAL[kind]), node.attrs.get("activations")
    names = [one.decode() if isinstance(one, bytes) else one for one in given or ()]
    names = [name.lower() for name in names] or [*walks.USUAL[kind]] * directions
    alphas, betas = list(node.attrs.get("activation_alpha", ())), list(node.attrs.get("activation_beta", ()))
    numbers = []
    for name in names:
        alpha, beta = NUMBERS.get(name, (0.0, 0.0))
        takes = name in NUMBERS, name in ("affine", "hardsigmoid", "scaledtanh")
        numbers.append((alphas.pop(0) if alphas and takes[0] else alpha, betas.pop(0) if betas and takes[1] else beta))
    if len(names) != count * directions:
        raise ValueError(f"activations is {quote(names)}; {kind} takes {count} for each direction")
    return [
        {
            "activations": tuple(names[k : k + count]),
            "alphas": tuple(a for a, _ in numbers[k : k + count]),
            "betas": tuple(b for _, b in numbers[k : k + count]),
        }
        for k in range(0, len(names), count)
    ]


# -- sequences that end early ----------------------------------------------------------------------------


def _ends(at: Importing, node: Node, steps: int, batch: int) -> Tensor | None:
    """How many steps each sequence has, None where all have all."""
    name = node.input(4)
    if not name:
        return None
    if at.shape(name) != (batch,):
        raise ValueError(f"sequence_lens has shape {quote(at.shape(name))}; {(batch,)} is needed")
    if at.is_known(name) and (at.value(name) == steps).all():
        return None
    return lengths_of(at, node, name, steps)


def lengths_of(at: Importing, node: Node, name: str, steps: int) -> Tensor:
    """How many of so many steps each sequence has: a run refuses those that it is given if none has so many."""
    given = ops.astype(at.tensor(name), "int64")
    if at.is_known(name):  # and `check_lengths` has seen them
        return given
    numbers = at.graph.constant(f"{node.name}.lengths", np.arange(steps + 1))
    return ops.take(numbers, given, from_end=False, name=f"{node.name}.sequence_lens")


def check_lengths(at: Importing, node: Node) -> None:
    """Refuse a node that is given lengths of sequences which these cannot have, where they are known."""
    name = node.input(LENGTHS[node.operator]) if node.operator in LENGTHS else ""
    if not name or not at.is_known(name):
        return
    known, shape, attrs = at.value(name), at.shape(node.inputs[0]), dict(node.attrs)  # read here alone, not asked for
    axis = attrs.get("time_axis", 0) if node.operator == "ReverseSequence" else int(bool(attrs.get("layout")))
    if axis not in range(len(shape)) or known.dtype.kind not in "iu":  # which who adds the node says
        return
    steps = shape[axis]
    if ((known < 0) | (known > steps)).any():
        raise refusal(
            node,
            f"sequence_lens is {quote(known.tolist())}; a sequence has from 0 to {steps} steps, which its input 0 has: "
            "give such lengths",
        )


def _steps_of(like: Tensor, steps: int) -> Tensor:
    numbers: Array = np.arange(steps)[:, None]
    return like.graph.constant(like.graph._fresh("steps"), numbers)


def _turned(x: Tensor, ends: Tensor | None) -> Tensor:
    """The steps in the reverse order: of a sequence that ends early, those that it has.

    `x` has steps first and the batch behind them, or before the last axis.
    """
    if ends is None:
        return x[::-1]
    numbers = _steps_of(x, x.shape[0])
    where = ops.where(ops.less(numbers, ends), ends - 1 - numbers, numbers)
    return ops.take_along_axis(x, where.reshape(_beside(x, where)).broadcast_to(x.shape), 0)


def _beside(x: Tensor, where: Tensor) -> tuple[int, ...]:
    """(steps, batch) beside x: (steps, batch, …) or (steps, directions, batch, width)."""
    return (where.shape[0], *(1,) * (x.ndim - 3), where.shape[1], 1)


def _is_before(at: Importing, node: Node, ends: Tensor, steps: int) -> Tensor:
    return ops.less(_steps_of(ends, steps), ends).reshape(steps, 1, ends.shape[0], 1)


def _last(states: Tensor, ends: Tensor | None, first: Tensor) -> Tensor:
    """The state after a sequence's last step."""
    if ends is None:
        return states[-1:].squeeze((0,))  # as ONNX, which has no single index, says it
    shape = (1, *states.shape[1:])
    number = ops.maximum(ends - 1, 0).reshape(1, 1, -1, 1).broadcast_to(shape)
    found = ops.take_along_axis(states, number, 0).squeeze((0,))
    return ops.where(ops.greater(ends, 0).reshape(1, -1, 1), found, first)
