"""Forms against the block functions that they describe: read by NumPy from their definitions, shard by shard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from tapestry_plan import Graph, Op, Shard
from tapestry_plan.ir import (
    BUILTIN_OPS,
    Activation,
    Addition,
    Attention,
    Correlation,
    Form,
    MatrixProduct,
    Normalization,
    RandomCells,
    Scatter,
    Softmax,
)
from tapestry_plan.ir.forms import ACTIVATIONS
from tapestry_plan.ops import add, conv, gelu, linear, matmul, relu, sigmoid
from tapestry_plan.ops.random.philox import region_words
from tapestry_plan.rewrite import fuse
from tests.cutting import Case, close, run_cut
from tests.operator_cases import CASES

Array = NDArray[Any]
DESCRIBED = [case for case in CASES if BUILTIN_OPS[case.op].work is not None]


def curve(name: str, x: Array) -> Array:
    """An activation, from its definition."""
    wide = x.astype(float)
    match name:
        case "none":
            return x
        case "relu":
            return np.where(x < 0, 0, x)
        case "sigmoid":
            return 1 / (1 + np.exp(-wide))
        case "tanh":
            return np.tanh(wide)
    return wide * 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(wide / math.sqrt(2)))


def product(form: MatrixProduct, inputs: Sequence[Array | None], out: Array) -> None:
    a, b = (
        np.swapaxes(x, -1, -2) if turned else x
        for x, turned in zip((inputs[form.a], inputs[form.b]), form.transposed, strict=True)
    )
    found = a @ b
    if form.bias is not None and inputs[form.bias] is not None:
        found = found + inputs[form.bias]
    out[...] = curve(form.activation, found)


def correlation(form: Correlation, inputs: Sequence[Array | None], out: Array) -> None:
    """Cell by cell; every channel of the block is made by one group."""
    x, w = inputs[form.x], inputs[form.w]
    bias = None if form.bias is None else inputs[form.bias]
    made = [c for (begin, end), _ in form.groups for c in range(begin, end)]
    assert made == list(range(out.shape[1]))
    for (begin, end), read in form.groups:
        for cell in np.ndindex(*out.shape[2:]):
            window = tuple(
                slice(o * s, o * s + (k - 1) * d + 1, d)
                for o, s, k, d in zip(cell, form.strides, w.shape[2:], form.dilations, strict=True)
            )
            part = x[(slice(None), slice(read, read + w.shape[1]), *window)]
            for c in range(begin, end):
                found = (part * w[c]).reshape(len(x), -1).sum(axis=1) + (0 if bias is None else bias[c])
                out[(slice(None), c, *cell)] = curve(form.activation, found)


def scattered(form: Scatter, inputs: Sequence[Array | None], out: Array) -> None:
    """Update by update, in the order of the turns."""
    out[...] = inputs[0]
    cells, updates = form.prepare(np, inputs)
    cells = [np.broadcast_to(cell, updates.shape) for cell in cells]
    others = [k for k in range(out.ndim) if k not in form.named]
    for turn in range(updates.shape[form.turn]):
        for place in np.ndindex(*(n for k, n in enumerate(updates.shape) if k != form.turn)):
            at = (*place[: form.turn], turn, *place[form.turn :])
            to = dict(zip(form.named, (int(cell[at]) for cell in cells), strict=True))
            to |= dict(zip(others, place, strict=True))
            where = tuple(to[k] for k in range(out.ndim))
            x = updates[at]
            out[where] = x if form.function == "replace" else getattr(np, form.function)(out[where], x)


def random_cells(form: RandomCells, inputs: Sequence[Array | None], out: Array) -> None:
    words = region_words(np, form.start, form.shape, form.extents, form.key, form.each)
    if form.ends is None:
        form.finish(np, words, inputs, [out])
        return
    low, high = (out.dtype.type(end) for end in form.ends)
    wide = words.astype(np.uint64)
    unit = (wide[..., 0] >> 8) * 2.0**-24
    if out.dtype == np.float64:
        unit = ((wide[..., 0] >> 5) * 2.0**26 + (wide[..., 1] >> 6)) * 2.0**-53
    out[...] = np.minimum(low + (high - low) * unit.astype(out.dtype), np.nextafter(high, low))


def read(form: Form, inputs: Sequence[Array | None], out: Array) -> None:
    """Do what a form says."""
    match form:
        case MatrixProduct():
            product(form, inputs, out)
        case Correlation():
            correlation(form, inputs, out)
        case Activation():
            out[...] = curve(form.name, inputs[0])
        case Addition():
            out[...] = inputs[0] + inputs[1]
        case Attention():
            by_head = np.empty_like(out)
            form.attend(np, inputs, by_head, 1)
            form.attend(np, inputs, out, 1 << 30)
            close(by_head, out, 2e-3 if out.dtype == np.float16 else 2e-5)
        case Softmax():
            e = np.exp(inputs[0] - inputs[0].max(-1, keepdims=True))
            out[...] = e / e.sum(-1, keepdims=True)
        case Normalization():
            over = tuple(range(-inputs[1].ndim, 0))
            x = inputs[0] - (inputs[0].mean(over, keepdims=True) if form.is_centered else 0)
            x = x / np.sqrt((x * x).mean(over, keepdims=True) + out.dtype.type(form.epsilon))
            out[...] = x * inputs[1] + (inputs[2] if form.has_bias else 0)
        case RandomCells():
            random_cells(form, inputs, out)
        case Scatter():
            scattered(form, inputs, out)


def by_form(op: Op, seen: list[Form | None]) -> Op:
    """The operator with a block function that does what its form says."""

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        form = op.work(shard)
        seen.append(form)
        if form is None:
            op.block(xp, inputs, outputs, shard)
        else:
            read(form, inputs, outputs[0])

    return replace(op, block=block)


def check(op: Op, attrs: dict[str, Any], arrays: Sequence[Array]) -> list[Form]:
    """On every cut of one axis the form says what the block function does; the forms that were read."""
    signature, seen = op.signature([array.shape for array in arrays], attrs), []
    for cut in [{}, *({axis.name: min(3, axis.size)} for axis in signature.axes if axis.size > 1)]:
        (wanted,), (found,) = (run_cut(one, attrs, arrays, cut) for one in (op, by_form(op, seen)))
        close(found, wanted, 2e-3 if wanted.dtype == np.float16 else 2e-5)
    return [form for form in seen if form is not None]


@pytest.mark.parametrize("case", DESCRIBED, ids=lambda case: case.op)
def test_a_form_says_what_the_block_function_does(case: Case) -> None:
    forms = check(BUILTIN_OPS[case.op], case.attrs, case.arrays(5))
    is_scaled = case.attrs.get("alpha", 1) != 1 or case.attrs.get("beta", 1) != 1
    is_along_others = case.op == "softmax" and case.attrs.get("axis", -1) not in (-1, len(case.shapes[0]) - 1)
    has_none = is_scaled or is_along_others or case.attrs.get("approximate") == "tanh"
    assert bool(forms) != has_none


def fused(end: str) -> Graph:
    g = Graph()
    x, w, b = g.input("x", (6, 5)), g.input("w", (5, 8)), g.input("b", (8,))
    match end:
        case "conv":
            y = conv(g.input("i", (2, 4, 6, 5)), g.input("k", (6, 2, 3, 2)), g.input("c", (6,)), pads=1, groups=2)
            g.output(sigmoid(y, name="it"), "y")
        case "add":
            g.output(add(b, matmul(x, w), name="it"), "y")
        case _:
            g.output({"relu": relu, "gelu": gelu}[end](linear(x, w, b), name="it"), "y")
    return fuse.apply(g, "it")


@pytest.mark.parametrize("end", ["relu", "gelu", "add", "conv"])
def test_fused_operators_say_what_both_do(end: str) -> None:
    g = fused(end)
    (node,) = g.nodes.values()
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=g.source(name).shape).astype(np.float32) for name in node.inputs]
    forms = check(g.ops[node.op], dict(node.attrs), arrays)
    assert forms
    for form in forms:
        assert isinstance(form, MatrixProduct | Correlation)
        assert form.bias is not None and form.activation == {"add": "none", "conv": "sigmoid"}.get(end, end)
        assert form.activation in ACTIVATIONS


def test_most_operators_have_no_form_and_some_have() -> None:
    described = {name for name, op in BUILTIN_OPS.items() if op.work is not None}
    assert {"linear", "matmul", "gemm", "conv", "uniform", "scatter_nd"} <= described
    assert described.isdisjoint({"log_softmax", "sum", "take"})
