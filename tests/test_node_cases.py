"""ONNX's cases of single operators: each has a plan, in a graph or in stages, and gives what ONNX wants.

The table of tests/bench/results/node_cases.md is a floor: an operator's cases that are split, that are split or whole
by nature, and that pass at all, may only become more.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import make_node

from tapestry_plan import Graph, ops
from tests import node_cases
from tests.exact_nodes import evaluate_exactly
from tests.node_cases import (
    DEVICES,
    EXPANDED,
    FAILED,
    SLOW_MODULES,
    OnnxRuntime,
    Planned,
    Tapestry,
    Verdict,
    as_array,
    column_of,
    count_passes,
    group_cases,
    is_base,
    is_off,
    judge,
    list_falls,
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
    bad += [f"{name}: {one.why}" for name, one in found.items() if one.kind == "refused"]
    return bad + list_falls({operator: count_passes(list(found.values()))}, {operator: read_floor()[operator]})


@pytest.mark.heavy(3)
@pytest.mark.parametrize("devices", DEVICES)
def test_operators_pass_no_fewer_cases(devices: int) -> None:
    chosen = [cases for name, cases in by_operator().items() if zlib.crc32(name.encode()) % SHARE == 1]
    assert len(chosen) > 8 and sum(map(len, chosen)) > 40
    assert not [line for cases in chosen for line in falls(cases, devices)]


def test_the_table_has_every_operator() -> None:
    found = {name for name in read_floor() if not name.endswith(EXPANDED)}
    assert found == by_operator().keys() | {"AveragePool", "LpPool", "MaxPool"}


def test_a_table_may_not_fall_without_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither of an operator's own cases nor of those of its expansion, which are counted apart."""
    chosen = [case for case in load_cases(SLOW_MODULES) if case.name.startswith(("test_elu", "test_selu"))]
    assert group_cases(chosen).keys() == {"Elu", "Elu, expanded", "Selu", "Selu, expanded"}
    table = tmp_path / "table.md"
    monkeypatch.setattr(node_cases, "RESULTS", table)
    monkeypatch.setattr(node_cases, "load_cases", lambda: chosen)
    verdicts = {case.name: "sharded" for case in chosen}
    monkeypatch.setattr(node_cases, "judge", lambda case, *_: Verdict(verdicts[case.name]))

    def write(*more: str) -> str:
        monkeypatch.setattr("sys.argv", ["node_cases.py", "--write", *more])
        node_cases.main()
        return table.read_text()

    table.write_text("")
    first = write()
    assert read_floor()["Elu, expanded"] == read_floor()["Elu"] == (3, 3, 3) and "1, expanded" in read_floor()
    (name,) = [name for name in verdicts if name.startswith("test_elu_example_expanded")]
    for kind in ("opaque", "whole", "wrong"):
        verdicts[name] = kind
        with pytest.raises(SystemExit, match=r"(?s)not written.*Elu, expanded: \(2, \d, \d\) of \(3, 3, 3\)"):
            write()
        assert table.read_text() == first
    assert re.search(
        r"\nLowered on .*Elu, expanded: \(2, 2, 2\) of \(3, 3, 3\).*: it was wrong\n", write("--lower", "it was wrong")
    )
    verdicts[name] = "whole"
    assert "it was wrong" in write() and read_floor()["Elu, expanded"] == (2, 3, 3)


def test_passes_of_a_table_without_rows_of_expansions_are_those_of_all_but_base_cases() -> None:
    text = "| all, 9 | 3 | 5 | 2 | 1 | 0 |\n| base, 4 | 3 | 2 | 1 | 1 | 0 |\n| Elu | 4 | 2 | 1 | 1 | 0 |\n"
    assert read_floor(text) == {"Elu": (2, 3, 4), "3, expanded": (3, 4, 4)}
    assert list_falls({"Elu": (2, 3, 4), "3, expanded": (2, 4, 4)}, read_floor(text)) == [
        "3, expanded: (2, 4, 4) of (3, 4, 4)"
    ]
    assert list_falls({}, {"Elu": (1, 1, 1)}) == ["Elu: (0, 0, 0) of (1, 1, 1)"]


@pytest.mark.heavy
@pytest.mark.parametrize("devices", DEVICES)
def test_each_case_has_a_plan_and_none_is_lost(devices: int) -> None:
    by_name = defaultdict(list)
    for case in load_cases():
        by_name[operator_of(case)].append(case)
    base = [[case for case in cases if is_base(case)] for cases in by_name.values()]
    assert not [line for cases in filter(None, base) for line in falls(cases, devices)]
    others = [case for case in load_cases() if not is_base(case)]
    found = {case.name: judge(case, devices) for case in others}
    assert not [one for one in found.values() if one.kind in FAILED and one.kind != "off"]
    floor, passes = read_floor(), count_passes(list(found.values()))
    assert not list_falls({f"{devices}{EXPANDED}": passes}, {f"{devices}{EXPANDED}": floor[f"{devices}{EXPANDED}"]})


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


def named(name: str) -> Any:
    (case,) = [case for case in load_cases(SLOW_MODULES) if case.name == name]
    return case


@pytest.mark.parametrize("name", ["attention_4d_causal_bf16", "attention_4d_causal_fp16_expanded", "dft_inverse"])
def test_what_is_off_is_what_onnx_wants_and_not_what_is_found(name: str) -> None:
    case = named(f"test_{name}")
    (given, wanted), *_ = case.data_sets
    (found,) = Tapestry.prepare(case.model).run([as_array(value) for value in given])
    assert judge(case, 1).kind == judge(case, 3).kind == "off"
    assert is_off(case, given, [found], wanted)
    assert not is_off(case, given, [as_array(wanted[0])], wanted)
    other = found.copy()
    other[(0,) * other.ndim] += np.asarray(1, other.dtype)  # one cell that is wrong
    assert not is_off(case, given, [other], wanted)


def test_no_case_is_off_whose_values_are_those_of_its_formula() -> None:
    for name in ("attention_4d_causal", "softmax_axis_1", "dft", "attention_4d_fp16"):
        case = named(f"test_{name}")
        (given, wanted), *_ = case.data_sets
        arrays = [as_array(one) for one in wanted]
        off = [array + np.asarray(0.01, array.dtype) for array in arrays]
        assert not is_off(case, given, off, wanted) and not is_off(case, given, arrays, wanted)


def test_exact_arithmetic_is_that_of_rounded_inputs() -> None:
    """Against attention written out in NumPy, in double precision and with halves between its nodes."""
    case = named("test_attention_4d_causal_bf16_expanded")
    ((given, _),) = case.data_sets
    feeds = {value.name: as_array(array) for value, array in zip(case.model.graph.input, given, strict=True)}
    q, k, v = (array.astype(np.float64) for array in feeds.values())
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    exact = shares / shares.sum(-1, keepdims=True) @ v
    (found,) = evaluate_exactly(case.model, feeds, rounds=False).values()
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    (rounded,) = evaluate_exactly(case.model, feeds, rounds=True).values()
    assert 0 < abs(rounded - exact).max() < 2**-7
    np.testing.assert_array_equal(rounded, rounded.astype(as_array(given[0]).dtype).astype(np.float64))


def test_numbers_of_numpy_are_bound_as_arrays_are() -> None:
    """ONNX's cases of CumSum give the axis as one: it is known where stages know it."""
    case = named("test_cumsum_2d_axis_0")
    assert any(isinstance(one, np.generic) for given, _ in case.data_sets for one in given)
    verdict = judge(case, 3)
    assert (verdict.kind, verdict.bound) == ("sharded", True) and judge(case, 1, OnnxRuntime).kind == "whole"
