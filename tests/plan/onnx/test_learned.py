"""Operators of ai.onnx.ml: imported ones against ONNX Runtime, on one and on three devices, split and whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_exec import run, run_stages
from tapestry_plan import Graph, Mesh, UnsupportedOp, plan
from tapestry_plan.onnx import StagedModel, load_onnx
from tapestry_plan.onnx.importers.learned import DTYPES
from tests.onnx_cases import NodeCase
from tests.onnx_models import ort

LEARNED = "ai.onnx.ml"
RNG = np.random.default_rng(11)
X = np.round(RNG.normal(size=(6, 3)) * 3).astype(np.float32) + np.float32(0.25) * (RNG.random((6, 3)) < 0.3)
X[4] = 0
COEFFICIENTS = [0.5, -2, 1, 1.5, 0.25, -1, 3, 0, 0.75]


def of(op: str, *operands: Any, outputs: tuple[str, ...] = ("y",), **attrs: Any) -> NodeCase:
    named = dict(zip("abc", operands, strict=False))
    return NodeCase(op, named, {}, attrs, outputs, domain=LEARNED)


def on_devices(graph: Graph, devices: int) -> Any:
    """A plan whose operators are in parts of their first axis, rows, where there are as many as devices."""
    fix = {}
    for name in graph.nodes:
        axes = graph.signature(name).axes
        if axes and axes[0].size >= devices > 1:
            fix[name] = {axes[0].name: devices}
    return plan(graph, Mesh(devices), fix=fix)


def compare(case: NodeCase, ops: list[str] | None = None) -> None:
    """Against ONNX Runtime, to the rounding of single floats; its dtypes too."""
    wanted = ort(case.model, case.inputs)
    graph = load_onnx(case.model, opaque=ops is not None and "opaque" in ops)
    assert ops is None or [node.op for node in graph.nodes.values()] == ops
    for devices in (1, 3):
        p = on_devices(graph, devices)
        found = run(p, case.inputs, verify=all(np.isfinite(one).all() for one in case.inputs.values()))
        assert found.nbytes_moved == p.nbytes_moved
        for name, array in zip(case.outputs, wanted, strict=True):
            made = found.outputs[name]
            assert made.dtype == array.dtype
            np.testing.assert_allclose(made, array, rtol=2e-6, atol=1e-6)


IMPORTED = {
    **{f"MAX {k}": of("Normalizer", x, norm="MAX") for k, x in enumerate((X, X - 9, X[0], X[:1]))},
    **{f"{n} {k}": of("Normalizer", x, norm=n) for n in ("L1", "L2") for k, x in enumerate((X, X[0], 0 * X))},
    "normalizer by default": of("Normalizer", X),
    "scaler": of("Scaler", X, offset=[1.0, -2.0, 0.1], scale=[0.5, 3.0, 1.0]),
    "scaler of all": of("Scaler", X, offset=[0.3], scale=[0.7]),
    "scaler of a row": of("Scaler", X[0], offset=[1.0, -2.0, 0.1], scale=[0.5, 3.0, 1.0]),
    "imputer": of("Imputer", X, imputed_value_floats=[7.0, 8.0, 0.1], replaced_value_float=0.0),
    "imputer of all": of("Imputer", X, imputed_value_floats=[7.0]),
    "imputer of no numbers": of(
        "Imputer", np.where(X > 1, np.nan, X), imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=np.nan
    ),
    "imputer of integers": of("Imputer", X.astype(np.int64), imputed_value_int64s=[7, 8, 9], replaced_value_int64=-1),
    "imputer with the other kind": of(
        "Imputer", X.astype(np.int64), imputed_value_int64s=[7], replaced_value_int64=3, replaced_value_float=5.0
    ),
    "binarizer": of("Binarizer", X, threshold=0.25),
    "binarizer by default": of("Binarizer", X),
    "regressor": of("LinearRegressor", X, coefficients=COEFFICIENTS[:3], intercepts=[0.5]),
    "regressor of a row": of("LinearRegressor", X[0], coefficients=COEFFICIENTS[:3]),
    **{
        f"regressors {curve}": of(
            "LinearRegressor", X, coefficients=COEFFICIENTS, intercepts=[0.5, 1, 2], targets=3, post_transform=curve
        )
        for curve in ("NONE", "LOGISTIC", "SOFTMAX")
    },
    **{
        f"classifier {curve}": of(
            "LinearClassifier",
            X,
            outputs=("label", "y"),
            coefficients=COEFFICIENTS,
            intercepts=[0.5, 1, 2],
            classlabels_ints=[7, -2, 5],
            multi_class=1,
            post_transform=curve,
        )
        for curve in ("NONE", "LOGISTIC", "SOFTMAX")
    },
    "classifier of a row": of(
        "LinearClassifier",
        X[0],
        outputs=("label", "y"),
        coefficients=COEFFICIENTS[:6],
        intercepts=[0.0, 0.0],
        classlabels_ints=[7, -2],
    ),
    "equal scores": of(
        "LinearClassifier",
        0 * X,
        outputs=("label", "y"),
        coefficients=[1.0] * 6,
        intercepts=[2.0, 2.0],
        classlabels_ints=[9, 4],
    ),
    "extracted": of("ArrayFeatureExtractor", X, np.array([2, 0])),
    "extracted of a row": of("ArrayFeatureExtractor", X[0], np.array([2, 0, 2])),
    "extracted by a table": of("ArrayFeatureExtractor", X[None], np.array([[2, 0], [1, 1]])),
    "joined": of("FeatureVectorizer", X, X[:, :2] + 1, inputdimensions=[2, 4]),
    "joined rows": of("FeatureVectorizer", X[0], X[1, :2], inputdimensions=[3, 2]),
    "encoded": of("OneHotEncoder", X[:, 0].astype(np.int64), cats_int64s=[2, -1, 0, 5]),
    "encoded floats": of("OneHotEncoder", X + np.float32(0.7), cats_int64s=[2, -1, 0, 5]),
}


@pytest.mark.parametrize("name", IMPORTED)
def test_they_give_what_onnx_runtime_gives(name: str) -> None:
    compare(IMPORTED[name])


BY_DTYPE = {
    "Normalizer": {"norm": "L2"},
    "Scaler": {"offset": [1.0, -2.0, 0.1], "scale": [0.5, 3.0, 1.0]},
    "LinearClassifier": {"coefficients": COEFFICIENTS[:6], "intercepts": [0.1, 0.2], "classlabels_ints": [7, -2]},
    "FeatureVectorizer": {"inputdimensions": [2]},
    "OneHotEncoder": {"cats_int64s": [2, -1, 0]},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", BY_DTYPE)
def test_they_take_the_dtypes_that_onnx_runtime_takes(op: str, dtype: str) -> None:
    """Which has no OneHotEncoder of int32: that is as of int64."""
    x = (X * (1 + 1 / 3)).astype(dtype)
    outputs = ("label", "y") if op == "LinearClassifier" else ("y",)
    case = of(op, x, outputs=outputs, **BY_DTYPE[op])
    if (op, dtype) != ("OneHotEncoder", "int32"):
        return compare(case)
    wide = of(op, x.astype(np.int64), **BY_DTYPE[op])
    found = run(plan(load_onnx(case.model, opaque=False), Mesh(3)), case.inputs).outputs["y"]
    np.testing.assert_array_equal(found, ort(wide.model, wide.inputs)[0])


@pytest.mark.parametrize("threshold", [0.5, -0.5, 2.0, -1.0])
def test_integers_are_above_a_threshold_between_them(threshold: float) -> None:
    """Of which ONNX Runtime has no kernel."""
    x = np.arange(-3, 4)
    case = of("Binarizer", x, threshold=threshold)
    found = run(plan(load_onnx(case.model, opaque=False), Mesh(2)), {"a": x}).outputs["y"]
    np.testing.assert_array_equal(found, (x > threshold).astype(np.int64))


TREE = {
    "nodes_treeids": [0] * 5 + [1] * 3,
    "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
    "nodes_featureids": [0, 1, 0, 0, 0, 2, 0, 0],
    "nodes_values": [0.0, 0.5, 0, 0, 0, 0.1, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
}
LEAVES = ([0, 0, 0, 1, 1], [2, 3, 4, 1, 2], [1.5, 2, 3, 0.1, 0.2])
SUPPORT = {"kernel_params": [0.3, 0.0, 3.0], "rho": [0.1]}


def trees(of_what: str, ids: list[int], **attrs: Any) -> dict[str, Any]:
    found = dict(zip(("treeids", "nodeids", "weights"), LEAVES, strict=True)) | {"ids": ids}
    return TREE | {f"{of_what}_{key}": value for key, value in found.items()} | attrs


ROWS = {
    "TreeEnsembleRegressor": (trees("target", [0] * 5, n_targets=1), 1),
    "TreeEnsembleClassifier": (
        trees("class", [0, 1, 2, 1, 0], classlabels_int64s=[5, 6, 7], post_transform="SOFTMAX"),
        2,
    ),
    "SVMRegressor": (
        {**SUPPORT, "coefficients": [0.5, -0.2], "kernel_type": "RBF", "n_supports": 2, "support_vectors": [*range(6)]},
        1,
    ),
    "SVMClassifier": (
        {
            **SUPPORT,
            "coefficients": [0.5, -0.2, 0.7, 0.1],
            "kernel_type": "LINEAR",
            "vectors_per_class": [2, 2],
            "support_vectors": [*range(12)],
            "classlabels_ints": [4, 9],
        },
        2,
    ),
    "LinearRegressor": ({"coefficients": COEFFICIENTS[:3], "post_transform": "LOGISTIC"}, 1),
    "LinearClassifier": (
        {
            "coefficients": COEFFICIENTS[:3],
            "intercepts": [0.1],
            "classlabels_ints": [4, 9],
            "post_transform": "LOGISTIC",
        },
        2,
    ),
}


@pytest.mark.parametrize("op", ROWS)
def test_others_run_in_parts_of_their_rows(op: str) -> None:
    """Of one row as a vector, whole; with one row alone there is nothing to cut."""
    attrs, count = ROWS[op]
    attrs = {key: [*map(float, one)] if key == "support_vectors" else one for key, one in attrs.items()}
    case = of(op, X, outputs=("label", "y")[-count:], **attrs)
    compare(case, ["opaque"])
    graph = load_onnx(case.model)
    (node,) = graph.nodes.values()
    assert [axis.name for axis in graph.signature(node.name).axes] == ["n"]
    assert f"{LEARNED}::{op} of ONNX, run in parts of its rows" in node.attrs["why"]
    p = on_devices(graph, 3)
    assert p.sharding[node.name] == {"n": 3} and p.nbytes_moved == 0
    compare(of(op, X[:1], outputs=case.outputs, **attrs), ["opaque"])


@settings(deadline=None, max_examples=10)
@given(st.integers(1, 5), st.integers(2, 3), st.integers(0, 2**31), st.sampled_from(["MAX", "L1", "L2"]))
def test_pipelines_run_as_they_do_there(rows: int, columns: int, seed: int, norm: str) -> None:
    """Missing values, scales, a classifier, and its probabilities as maps: the first stage has all but the maps."""
    from onnx import helper

    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan
    node = {"domain": LEARNED}
    made = {
        "coefficients": rng.normal(size=2 * columns).tolist(),
        "intercepts": [0.5, -0.5],
        "classlabels_ints": [1, 0],
    }
    means = rng.normal(size=columns).tolist()
    nodes = [
        helper.make_node(
            "Imputer", ["x"], ["i"], imputed_value_floats=means, replaced_value_float=float("nan"), **node
        ),
        helper.make_node("Scaler", ["i"], ["s"], offset=means, scale=[0.5] * columns, **node),
        helper.make_node("LinearClassifier", ["s"], ["label", "p"], post_transform="LOGISTIC", **made, **node),
        helper.make_node("Normalizer", ["p"], ["q"], norm=norm, **node),
        helper.make_node("ZipMap", ["q"], ["z"], classlabels_int64s=[1, 0], **node),
    ]
    map_type = helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, []))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, x.shape)],
        [
            helper.make_tensor_value_info("label", 7, [rows]),
            helper.make_value_info("z", helper.make_sequence_type_proto(map_type)),
        ],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(LEARNED, 3)], ir_version=10
    )
    labels, maps = ort(model, {"x": x})
    found = run_stages(StagedModel(model), {"x": x}, lambda graph: on_devices(graph, min(rows, 3)))
    np.testing.assert_array_equal(found.outputs["label"], labels)
    assert [list(one) for one in found.outputs["z"]] == [list(one) for one in maps]
    rounded = [[*one.values()] for one in found.outputs["z"]], [[*one.values()] for one in maps]
    np.testing.assert_allclose(*rounded, rtol=3e-6)
    assert found.whole == ("node 'ZipMap_0' (ZipMap)",) or found.whole == ("node 'ZipMap_4' (ZipMap)",)
    assert not any(node.op == "opaque" for node in found.stages[0].graph.nodes.values())


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (of("Scaler", X, offset=[1.0, 2.0], scale=[0.5]), "2 offsets and 1 scales for 3 columns; give one of each"),
        (of("Scaler", X[None], offset=[1.0], scale=[0.5]), r"shape \(1, 6, 3\); a matrix, or one row of it, is needed"),
        (of("Imputer", X, imputed_value_int64s=[1]), "0 floats and 1 integers are imputed to 3 columns of float32"),
        (of("Normalizer", X, norm="L3"), "its norm is 'L3'; MAX, L1 and L2 are supported"),
        (of("LinearRegressor", X, coefficients=[1.0, 2.0]), "2 coefficients for 3 columns and 1 results"),
        (of("LinearRegressor", X.astype(np.float64), coefficients=[1.0] * 3), "is float64; float32 is supported"),
        (of("FeatureVectorizer", X, X, inputdimensions=[3]), r"inputdimensions \[3\] for operands of"),
        (of("FeatureVectorizer", X, X[:2], inputdimensions=[3, 3]), r"have \[6, 2\] rows; as many are needed"),
        (
            of("LinearClassifier", X, coefficients=[1.0] * 6, intercepts=[0.0] * 2, classlabels_strings=["a", "b"]),
            "its labels are strings, which no graph has",
        ),
        (of("OneHotEncoder", X, cats_int64s=[1, 1]), "only integer categories, each once"),
        (of("Scaler", X.astype(np.uint8), offset=[1.0], scale=[0.5]), "its input 0 is uint8; int32, int64, float32 or"),
    ],
    ids=str,
)
def test_what_they_do_not_take_is_refused_by_name(case: NodeCase, says: str) -> None:
    with pytest.raises((UnsupportedOp, ValueError), match=f"{case.op}.*{says}"):
        load_onnx(case.model, opaque=False)


def test_what_importers_leave_runs_whole_as_onnx_runtime_does() -> None:
    """A Scaler of three axes, categories that stand twice, checks of cells that are none of them."""
    for case in (
        of("Scaler", X[None], offset=[1.0], scale=[0.5]),
        of("Imputer", X[None], imputed_value_floats=[7.0]),
        of("OneHotEncoder", X.astype(np.int64), cats_int64s=[2, 0, 2]),
        of("OneHotEncoder", np.array([2, 0, 2]), cats_int64s=[2, 0], zeros=0),
    ):
        compare(case, ["opaque"])
