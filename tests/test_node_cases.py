"""ONNX's cases of single operators: each has a plan, in a graph or in stages, and gives what ONNX wants.

The table of tests/bench/results/node_cases.md is a floor: an operator's cases that are split, that are split or whole
by nature, and that pass at all, may only become more.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import make_node

from tapestry_exec import evaluate
from tapestry_plan import Graph, ops
from tapestry_plan.onnx import load_onnx
from tests.node_cases import (
    DEVICES,
    FAILED,
    OFF,
    ROUNDED,
    SHORT,
    SLOW_MODULES,
    Planned,
    Tapestry,
    as_array,
    column_of,
    count_passes,
    is_base,
    judge,
    load_cases,
    operator_of,
    read_floor,
)
from tests.onnx_models import model_of, ort

SHARE = 16
"""The cases of one operator in so many are tried by default; which ones is fixed by their names."""


@cache
def by_operator() -> dict[str, list[Any]]:
    """The base cases of each operator, but for those that take long to make."""
    found = defaultdict(list)
    for case in filter(is_base, load_cases(SLOW_MODULES)):
        found[operator_of(case)].append(case)
    return dict(found)


def falls(cases: list[Any], devices: int) -> list[str]:
    """Cases that are wrong or fail, and what an operator's cases pass less often than the table says."""
    operator, found = operator_of(cases[0]), {case.name: judge(case, devices) for case in cases}
    bad = [f"{name}: {one.kind}, {one.why}" for name, one in found.items() if one.kind in ("wrong", "error")]
    bad = [line for line in bad if line.partition(":")[0] not in OFF]
    bad += [f"{name}: {one.why}" for name, one in found.items() if one.kind == "refused"]
    least, passes = read_floor()[operator], count_passes(list(found.values()))
    return bad + [f"{operator}: {passes} of {least}"] * any(now < then for now, then in zip(passes, least, strict=True))


@pytest.mark.parametrize("devices", DEVICES)
def test_operators_pass_no_fewer_cases(devices: int) -> None:
    chosen = [cases for name, cases in by_operator().items() if zlib.crc32(name.encode()) % SHARE == 1]
    assert len(chosen) > 8 and sum(map(len, chosen)) > 40
    assert not [line for cases in chosen for line in falls(cases, devices)]


def test_the_table_has_every_operator() -> None:
    assert read_floor().keys() == by_operator().keys() | {"AveragePool", "LpPool", "MaxPool"}


@pytest.mark.heavy
@pytest.mark.parametrize("devices", DEVICES)
def test_each_case_has_a_plan_and_none_is_lost(devices: int) -> None:
    by_name = defaultdict(list)
    for case in load_cases():
        by_name[operator_of(case)].append(case)
    base = [[case for case in cases if is_base(case)] for cases in by_name.values()]
    assert not [line for cases in filter(None, base) for line in falls(cases, devices)]
    others = [judge(case, devices) for case in load_cases() if not is_base(case) and case.name not in OFF]
    assert not [verdict for verdict in others if verdict.kind in FAILED]


# -- the columns -------------------------------------------------------------------------------------------


def graph_of(op: Any, *shapes: tuple[int, ...], **attrs: Any) -> Graph:
    g = Graph()
    made = op(*(g.input(f"x{k}", shape) for k, shape in enumerate(shapes)), **attrs)
    for k, tensor in enumerate(made if isinstance(made, tuple) else (made,)):
        g.output(tensor, f"y{k}")
    return g


def test_columns_are_never_mixed() -> None:
    """Whatever else is split beside it, what projects all axes whole is opaque."""
    assert column_of([graph_of(ops.relu, (4, 6))]) == "sharded"
    assert column_of([graph_of(ops.sum, (6,))]) == "sharded"  # its sums are split
    assert column_of([graph_of(ops.relu, (1, 1)), graph_of(ops.relu, ())]) == "whole"
    assert column_of([graph_of(lambda x: x.T, (4, 6))]) == "whole"
    assert column_of([graph_of(ops.softmax, (6,))]) == "opaque"  # one row, which no plan splits
    assert column_of([graph_of(ops.relu, (4, 6)), graph_of(ops.softmax, (6,))]) == "opaque"


def test_a_run_says_how_it_passed() -> None:
    x = np.array([[0, 2], [3, 0]], np.float32)
    for op, column in (("Relu", "sharded"), ("Transpose", "whole"), ("Det", "opaque"), ("NonZero", "opaque")):
        out = TensorProto.INT64 if op == "NonZero" else TensorProto.FLOAT
        model = model_of([make_node(op, ["x"], ["y"])], {"x": (2, 2)}, dtype=TensorProto.FLOAT)
        model.graph.output[0].type.tensor_type.elem_type = out
        prepared = Tapestry.prepare(model, devices=3)
        (found,) = prepared.run([x])
        np.testing.assert_array_equal(found, ort(model, {"x": x})[0])
        assert isinstance(prepared, Planned) and prepared.column == column


def test_the_case_that_is_off_has_rows_as_onnx_runtime_has_them() -> None:
    """And nearer to the numbers without rounding than the case wants; with the case's roundings it is the case's."""
    (case,) = [case for case in load_cases(SLOW_MODULES) if case.name in OFF - ROUNDED - SHORT]
    (given, wanted), *_ = case.data_sets
    feeds = {value.name: as_array(tensor) for value, tensor in zip(case.model.graph.input, given, strict=True)}
    softmax = next(node for node in case.model.graph.node if node.op_type == "Softmax")
    product = [node for node in case.model.graph.node if node.op_type == "MatMul"][-1]
    found = {}
    for name in (softmax.input[0], softmax.output[0], product.input[1]):
        graph = load_onnx(case.model, outputs=[name])
        found[name] = evaluate(graph, {key: array for key, array in feeds.items() if key in graph.stored})[name]
    x, rows, v = found.values()
    alone = model_of([make_node("Softmax", ["x"], ["y"])], {"x": x.shape}, dtype=TensorProto.FLOAT16)
    np.testing.assert_array_equal(rows, ort(alone, {"x": x})[0])
    powers = np.exp(x - x.max(-1, keepdims=True))
    rounded = powers / powers.sum(-1, keepdims=True)
    assert powers.dtype == rounded.dtype == np.float16
    np.testing.assert_array_equal(rounded @ v, as_array(wanted[0]))
    exact = np.exp(x.astype(float) - x.max(-1, keepdims=True))
    exact /= exact.sum(-1, keepdims=True)
    assert abs(rows - exact).max() < abs(rounded - exact).max()


def test_transforms_are_nearer_to_what_they_are_without_rounding() -> None:
    for case in [case for case in load_cases(SLOW_MODULES) if case.name in ROUNDED]:
        (given, (wanted,)), *_ = case.data_sets
        x = as_array(given[0]).astype(float)
        names = [value.name for value in case.model.graph.input]
        values = {name: as_array(array) for name, array in zip(names[1:], given[1:], strict=True)}
        found = evaluate(load_onnx(case.model, values=values), {names[0]: as_array(given[0])})["y"]
        exact = np.fft.ifft(x[..., 0] + 1j * x[..., 1], axis=1)
        exact = np.stack([exact.real, exact.imag], axis=-1)
        assert abs(found - exact).max() < 1e-5
        assert abs(found - exact)[abs(exact) < 1e-9].max() < abs(as_array(wanted) - exact)[abs(exact) < 1e-9].max()


def test_attention_of_bfloat16_is_nearer_to_what_it_is_without_rounding() -> None:
    (case,) = [case for case in load_cases(SLOW_MODULES) if case.name == "test_attention_4d_causal_bf16"]
    ((given, (wanted,)),) = case.data_sets
    feeds = {value.name: as_array(array) for value, array in zip(case.model.graph.input, given, strict=True)}
    q, k, v = (array.astype(np.float64) for array in feeds.values())
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    exact = shares / shares.sum(-1, keepdims=True) @ v
    apart = [
        abs(array.astype(np.float64) - exact)
        for array in (evaluate(load_onnx(case.model), feeds)["Y"], as_array(wanted))
    ]
    assert apart[0].max() < apart[1].max() and apart[0].mean() < apart[1].mean()
