"""Sparse tensors of models: dense in the graph, as NumPy fills them and ONNX Runtime runs them."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, checker, helper, numpy_helper

from tapestry_exec import evaluate, run
from tapestry_plan import Mesh, ShardPlan, load_onnx, plan
from tapestry_plan.onnx import StagedModel, to_onnx
from tapestry_plan.onnx import tuning as numbers
from tapestry_plan.onnx.models import read_constant
from tests.exec.cli.test_cli import call
from tests.onnx_models import model_of, ort, random

CELLS = [1, 2, 7]
"""Of a tensor of dims [2, 4], which are stored, and their values."""
VALUES = np.array([5, -2, 3], np.float32)
DENSE = np.array([[0, 5, -2, 0], [0, 0, 0, 3]], np.float32)
"""Written down by hand."""
X = random(2, 4)


def sparse(values: Any = VALUES, indices: Any = CELLS, dims: Any = (2, 4), name: str = "w") -> Any:
    places = np.array(indices) if np.size(indices) else np.empty(np.shape(indices), np.int64)
    stored = (numpy_helper.from_array(np.asarray(values), name), numpy_helper.from_array(places, "at"))
    return helper.make_sparse_tensor(*stored, list(dims))


def with_initializer(one: Any, *nodes: Any, opset: int = 21) -> Any:
    """A model that adds a sparse initializer to its input."""
    given = nodes or (helper.make_node("Add", ["x", "w"], ["y"]),)
    model = model_of(list(given), {"x": (2, 4)}, opset=opset)
    model.graph.sparse_initializer.append(one)
    return model


def with_constant(one: Any, opset: int = 21) -> Any:
    node = helper.make_node("Constant", [], ["w"], name="c", sparse_value=one)
    return model_of([node, helper.make_node("Add", ["x", "w"], ["y"])], {"x": (2, 4)}, opset=opset)


def with_body(one: Any) -> Any:
    """A model whose input says which branch of an If is taken; both have sparse initializers."""
    branches = {}
    for key, op in (("then_branch", "Add"), ("else_branch", "Sub")):
        made = helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 4])
        branches[key] = helper.make_graph([helper.make_node(op, ["x", "w"], ["z"])], key, [], [made])
        branches[key].sparse_initializer.append(one)
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Constant", [], ["zero"], value_float=0.0),
        helper.make_node("Greater", ["most", "zero"], ["is"]),
        helper.make_node("If", ["is"], ["y"], **branches),
    ]
    return model_of(nodes, {"x": (2, 4)})


@pytest.mark.parametrize("indices", [CELLS, [[0, 1], [0, 2], [1, 3]]], ids=["flat", "by axis"])
@pytest.mark.parametrize("make", [with_initializer, with_constant, with_body])
def test_sparse_tensors_are_dense_constants(make: Any, indices: Any) -> None:
    model = make(sparse(indices=indices))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4]))
    checker.check_model(model)
    before = model.SerializeToString()
    graph = load_onnx(model)
    assert model.SerializeToString() == before, "what is given stays as it was"
    np.testing.assert_array_equal(evaluate(graph, {"x": X})["y"], X + DENSE)
    np.testing.assert_array_equal(ort(model, {"x": X})[0], X + DENSE)
    written = to_onnx(graph)
    assert not written.graph.sparse_initializer
    np.testing.assert_array_equal(evaluate(load_onnx(written), {"x": X})["y"], X + DENSE)
    assert plan(graph, Mesh(2)).nbytes_moved >= 0


def test_a_sparse_tensor_of_a_function_and_of_an_old_model() -> None:
    body = [helper.make_node("Constant", [], ["c"]), helper.make_node("Add", ["a", "c"], ["b"])]
    refers = onnx.AttributeProto(name="sparse_value", ref_attr_name="table", type=onnx.AttributeProto.SPARSE_TENSOR)
    body[0].attribute.append(refers)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    model = model_of([helper.make_node("Plus", ["x"], ["y"], domain="own", table=sparse())], {"x": (2, 4)})
    model.opset_import.append(imports[1])
    model.functions.append(helper.make_function("own", "Plus", ["a"], ["b"], body, imports, ["table"]))
    for one in (model, with_initializer(sparse(), opset=11), with_constant(sparse(), opset=12)):
        np.testing.assert_array_equal(evaluate(load_onnx(one), {"x": X})["y"], X + DENSE)
    with pytest.raises(ValueError, match=r"cannot be converted|sparse_value"):
        load_onnx(with_constant(sparse(), opset=10))


@given(st.data())
def test_random_cells_are_where_they_are_counted(data: Any) -> None:
    """Of any rank, in both forms: cells are counted one by one, the last axis first."""
    dims = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    every = list(product(*map(range, dims)))
    chosen = sorted(data.draw(st.sets(st.sampled_from(range(len(every))))))
    values = np.arange(1, len(chosen) + 1, dtype=np.float32)
    dense = np.zeros(dims, np.float32)
    for cell, value in zip(chosen, values, strict=True):
        dense[every[cell]] = value
    by_axis = np.array([every[cell] for cell in chosen], np.int64).reshape(len(chosen), len(dims))
    for indices in (np.array(chosen, np.int64), by_axis):
        one = sparse(values, indices, dims)
        checker.check_sparse_tensor(one)
        model = with_initializer(one, helper.make_node("Neg", ["w"], ["y"]))
        np.testing.assert_array_equal(load_onnx(model, outputs=["w"]).stored["w"].data, dense)


DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    ml_dtypes.bfloat16,
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_of_every_dtype(dtype: Any) -> None:
    values = np.array([1, 3, 1]).astype(dtype)
    dense = np.zeros(8, dtype)
    for cell, value in zip(CELLS, values, strict=True):
        dense[cell] = value
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = with_initializer(sparse(values), helper.make_node("Where", ["x", "w", "w"], ["y"]))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.BOOL
    model.graph.output[0].type.tensor_type.elem_type = kind
    found = evaluate(load_onnx(model), {"x": X > 0})["y"]
    assert found.dtype == dense.dtype
    np.testing.assert_array_equal(found, dense.reshape(2, 4))


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float8_e4m3fn], ids=str)
def test_of_packed_and_short_elements(dtype: Any) -> None:
    model = with_initializer(sparse(VALUES.astype(np.int8).clip(0).astype(dtype)))
    model.graph.node.insert(0, helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT))
    model.graph.node[1].input[1] = "wide"
    np.testing.assert_array_equal(evaluate(load_onnx(model), {"x": X})["y"], X + DENSE.clip(0))


def test_strings_are_empty_between() -> None:
    words = sparse(np.array(["a", "b", "a"], object))
    nodes = [helper.make_node("Equal", ["w", "a"], ["is"]), helper.make_node("Where", ["is", "x", "nought"], ["y"])]
    model = with_initializer(words, *nodes)
    model.graph.initializer.append(helper.make_tensor("a", TensorProto.STRING, [], [b"a"]))
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0), "nought"))
    wanted = np.where(DENSE * (DENSE != -2), X, 0)
    np.testing.assert_array_equal(evaluate(load_onnx(model), {"x": X})["y"], wanted)


def test_no_stored_cells() -> None:
    nothing = sparse(np.empty(0, np.float32), [])
    bare = sparse(np.empty(0, np.float32), [])
    bare.ClearField("indices")
    by_axis = sparse(np.empty(0, np.float32), np.empty((0, 2), np.int64))
    for one in (nothing, bare, by_axis):
        checker.check_sparse_tensor(one)
        np.testing.assert_array_equal(evaluate(load_onnx(with_initializer(one)), {"x": X})["y"], X)


def test_a_default_of_an_input_and_shapes() -> None:
    """As of dense initializers: a value that is given takes its place, and so it is read for shapes."""
    model = with_initializer(sparse())
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 4]))
    graph = load_onnx(model)
    assert [name for name, one in graph.stored.items() if one.kind == "input"] == ["x"]
    np.testing.assert_array_equal(evaluate(graph, {"x": X})["y"], X + DENSE)
    np.testing.assert_array_equal(evaluate(load_onnx(model, values={"w": 2 * DENSE}), {"x": X})["y"], X + 2 * DENSE)
    shape = sparse(np.array([8]), [1], [2])  # [0, 8]: as many as the first axis has, then 8
    to_row = with_initializer(shape, helper.make_node("Reshape", ["x", "w"], ["y"]))
    del to_row.graph.input[0].type.tensor_type.shape.dim[:]
    for _ in range(2):
        to_row.graph.input[0].type.tensor_type.shape.dim.add(dim_param="n")
    to_row.graph.output[0].type.tensor_type.ClearField("shape")
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    found = load_onnx(to_row, shapes={"n": 8})
    np.testing.assert_array_equal(evaluate(found, {"x": x})["y"], x)


def test_open_axes_are_bound_again() -> None:
    model = with_initializer(sparse(np.array([7], np.float32), [2], [4]))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for n, graph in ((3, load_onnx(model, shapes={"n": 3})), (5, load_onnx(model, shapes={"n": 3}).bind(n=5))):
        found = evaluate(graph, {"x": random(n, 4)})["y"]
        np.testing.assert_array_equal(found, random(n, 4) + np.array([0, 0, 7, 0], np.float32))


def test_stages_have_them() -> None:
    model = with_initializer(
        sparse(),
        helper.make_node("Add", ["x", "w"], ["z"]),
        helper.make_node("NonZero", ["z"], ["at"]),
                             helper.make_node("Neg", ["at"], ["y"]))  # fmt: skip
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.INT64, [2, None]))
    x = np.zeros((2, 4), np.float32)
    staged = StagedModel(model, feeds={"x": x})
    while (stage := staged.stage) is not None:
        staged.advance({} if stage.graph is None else evaluate(stage.graph, staged.feeds(stage.graph)))
    np.testing.assert_array_equal(staged.outputs["y"], -np.array(np.nonzero(DENSE)))


def test_values_of_a_file_and_beside_it(tmp_path: Path) -> None:
    one = sparse()
    (tmp_path / "w.bin").write_bytes(b"\0" * 4 + VALUES.tobytes())
    one.values.ClearField("raw_data")
    one.values.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "w.bin", "offset": "4", "length": "12"}.items():
        one.values.external_data.add(key=key, value=value)
    path = tmp_path / "m.onnx"
    path.write_bytes(with_initializer(one).SerializeToString())
    graph = load_onnx(path)
    np.testing.assert_array_equal(evaluate(graph, {"x": X})["y"], X + DENSE)
    kept = graph.stored["w"].path
    assert kept is not None
    np.testing.assert_array_equal(read_constant(kept), DENSE)
    with pytest.raises(ValueError, match="give the model's path"):
        load_onnx(path.read_bytes())


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (sparse(indices=[1, 2, 8]), r"index 2 is 8, which is not a cell of dims \[2, 4\]"),
        (sparse(indices=[-1, 2, 7]), r"index 0 is -1, which is not a cell"),
        (sparse(indices=[[0, 1], [0, 4], [1, 3]]), r"index 1 is \[0, 4\], which is not a cell"),
        (sparse(indices=[1, 1, 7]), "index 1, 1, is there twice"),
        (sparse(indices=[[0, 1], [1, 3], [1, 3]]), r"index 2, \[1, 3\], is there twice"),
        (sparse(indices=[2, 1, 7]), "index 1, 1, comes after 2; indices ascend"),
        (sparse(indices=[[1, 3], [0, 1], [0, 2]]), r"index 1, \[0, 1\], comes after \[1, 3\]"),
        (sparse(indices=[1, 2]), r"3 values and indices of dims \[2\]; \[3\] or \[3, 2\] are needed"),
        (sparse(indices=[[1], [2], [7]]), r"indices of dims \[3, 1\]"),
        (sparse(VALUES[None]), r"has values of dims \[1, 3\]; they are one list"),
        (sparse(dims=[2, 0]), r"dims \[2, 0\]; one or more are needed, each at least 1"),
        (sparse(dims=[-2, -4]), r"dims \[-2, -4\]"),
        (sparse(dims=[]), r"dims \[\]; one or more"),
        (sparse(indices=np.array(CELLS, np.int32)), "indices of type 6; ONNX has them of 7, INT64"),
        (sparse(VALUES.astype(ml_dtypes.float8_e8m0fnu)), "float8_e8m0fnu, which has no zero"),
    ],
)
def test_what_does_not_fit_is_one_error(one: Any, says: str) -> None:
    with pytest.raises(ValueError, match=f"sparse initializer 'w'.*{says}"):
        load_onnx(with_initializer(one))
    with pytest.raises(ValueError, match=rf"node 'c' \(Constant\): its sparse_value.*{says}"):
        load_onnx(with_constant(one))


def test_parts_that_hold_too_little_and_names() -> None:
    short = sparse()
    short.values.raw_data = short.values.raw_data[:8]
    with pytest.raises(ValueError, match=r"tensor 'w' holds 8 bytes; dims \[3\] of FLOAT need 12"):
        load_onnx(with_initializer(short))
    with pytest.raises(ValueError, match="has no name; its values carry it"):
        load_onnx(with_initializer(sparse(name="")))
    twice = with_initializer(sparse())
    twice.graph.sparse_initializer.append(sparse())
    with pytest.raises(ValueError, match="tensor 'w' is made twice, by an initializer and by an initializer"):
        load_onnx(twice)


def test_no_more_is_made_than_an_import_may() -> None:
    """A hundred bytes may say that they stand for any number: nothing of that is made."""
    huge = sparse(dims=[2**20, 2**20])
    with pytest.raises(ValueError, match=r"takes 4,398,046,511,104 bytes when dense, where [\d,]+ are left"):
        load_onnx(with_initializer(huge))
    cells = numbers.FOLDED_NBYTES // 8
    with pytest.raises(ValueError, match=rf"takes {8 * cells * 2:,} bytes when dense, where"):
        load_onnx(with_constant(sparse(dims=[2 * cells, 2])))


def test_the_command_line_plans_and_runs_them(tmp_path: Path) -> None:
    """Compared with ONNX Runtime, which reads the file itself."""
    model = with_initializer(sparse(), helper.make_node("MatMul", ["x", "w"], ["y"]))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    told = call("run", tmp_path / "m.onnx", "--mesh", 2, "--verify", "--quiet")
    assert told.exit_code == 0 and "output y: float32[2, 4]" in told.stdout
    p = ShardPlan.from_json(call("plan", tmp_path / "m.onnx", "--mesh", 2, "--json", "--quiet").stdout)
    np.testing.assert_array_equal(run(p, {"x": X[:, :2]}).outputs["y"], X[:, :2] @ DENSE)
