"""ONNX's cases of single operators: what is imported gives what ONNX wants, and the rest is refused in words."""

from __future__ import annotations

import zlib
from collections import Counter

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import make_node

from tapestry_exec import evaluate
from tapestry_plan.onnx import load_onnx
from tests.node_cases import DEVICES, OFF, PASSED, ROUNDED, SHORT, SLOW_MODULES, as_array, judge, load_cases
from tests.onnx_models import model_of, ort

SHARE = 16
"""One case in so many is tried by default; which ones is fixed by their names."""


def test_a_sample_of_cases_on_one_and_on_three_devices() -> None:
    cases = [case for case in load_cases(SLOW_MODULES) if zlib.crc32(case.name.encode()) % SHARE == 0]
    found = {(case.name, devices): judge(case, devices) for case in cases for devices in DEVICES}
    bad = {key: verdict for key, verdict in found.items() if verdict.kind in ("wrong", "error") and key[0] not in OFF}
    assert not bad and len(cases) > 80
    kinds = Counter(verdict.kind for verdict in found.values())
    assert kinds["pass"] > 60 and kinds["bound"] > 5 and kinds["refused"] > 30


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


@pytest.mark.heavy
@pytest.mark.parametrize("devices", DEVICES)
def test_all_cases_pass_or_are_refused(devices: int) -> None:
    found = {case.name: judge(case, devices) for case in load_cases()}
    bad = {name: verdict for name, verdict in found.items() if verdict.kind in ("wrong", "error") and name not in OFF}
    assert not bad
    kinds = Counter(verdict.kind for verdict in found.values())
    assert all(kinds[kind] >= least for kind, least in PASSED.items())
