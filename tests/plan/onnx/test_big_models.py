"""Models whose weights lie beside them: mapped, not read; and right, against ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tapestry_exec import run
from tapestry_plan import Mesh, load_onnx, plan
from tapestry_plan.onnx import StagedModel, read_constant
from tests.layered_models import llama, store_outside, vit

SMALL = {"length": 16, "width": 64, "heads": 4, "inner": 96, "words": 50}
PEAK = """
import sys
from pathlib import Path
from tapestry_plan import load_onnx
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
load_onnx(sys.argv[1])
before = peak()
load_onnx(sys.argv[2])
print(peak() - before)
"""


def mapped_behind(array: Any) -> bool:
    """Whether an array is a view of a mapped file."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return isinstance(array.obj if isinstance(array, memoryview) else array, mmap)


def fill(path: Path, dtype: type) -> None:
    """Write seeded numbers to a file of weights."""
    cells = np.memmap(path, dtype, mode="r+")
    cells[...] = np.random.default_rng(3).standard_normal(cells.shape) * 0.1


@pytest.mark.parametrize("name", ["llama", "vit"])
def test_weights_beside_a_model_are_right(name: str, tmp_path: Path) -> None:
    make = partial(llama, 1, **SMALL) if name == "llama" else partial(vit, 1, batch=1, side=32, width=128)
    path = tmp_path / "m.onnx"
    store_outside(make(), path)
    fill(path.with_suffix(".bin"), np.float16 if name == "llama" else np.float32)
    graph = load_onnx(path)
    rng = np.random.default_rng(4)
    inputs: dict[str, Any] = {"image": rng.standard_normal((1, 3, 32, 32)).astype(np.float32)}
    if name == "llama":
        padding = np.ones((1, 16), np.int64)
        padding[0, :3] = 0
        inputs = {"input_ids": rng.integers(0, 50, (1, 16)), "position_ids": np.arange(16)[None]}
        inputs["attention_mask"] = padding
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    (expected,) = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"]).run(None, inputs)
    (found,) = run(plan(graph, Mesh((2,)), expand=False), inputs).outputs.values()
    tolerance = 2e-2 if name == "llama" else 1e-5  # products of half precision are rounded where each likes
    assert np.abs(found.astype(np.float64) - expected).max() < tolerance * np.abs(expected).max() > 0


def test_large_weights_are_mapped_not_read(tmp_path: Path) -> None:
    path, small = tmp_path / "m.onnx", tmp_path / "small.onnx"
    nbytes = store_outside(llama(2, length=64), path)
    store_outside(llama(1, **SMALL), small)
    assert nbytes > 1.3e9 and path.with_suffix(".bin").stat().st_size == nbytes
    found = subprocess.run([sys.executable, "-c", PEAK, small, path], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 100_000, "kilobytes that the import takes more than that of a small model"
    graph = load_onnx(path)
    stored = [one for one in graph.stored.values() if one.path is not None and one.data is not None]
    large = [one for one in stored if one.name.startswith("w") and one.data is not None and one.data.nbytes >= 2**16]
    assert sum(one.data.nbytes for one in large if one.data is not None) > 1.3e9
    assert all(mapped_behind(one.data) for one in large)
    for one in large:
        assert one.data is not None and one.path is not None and not one.data.flags.writeable
        again = read_constant(one.path)
        assert mapped_behind(again) and again.reshape(-1)[0] == one.data.reshape(-1)[0]
    first = [one.data.reshape(-1).view(np.uint8)[0] for one in large if one.data is not None]
    assert len(set(first)) == len(first), "no two weights are equal"


def written(path: Path, code: int, offset: int, array: np.ndarray[Any, Any], opset: int = 21) -> Path:
    """A model that casts a weight beside it to float32 and adds it to x."""
    nodes = [helper.make_node("Cast", ["w"], ["v"], to=TensorProto.FLOAT), helper.make_node("Add", ["x", "v"], ["y"])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", 1, array.shape)], [info("y", 1, array.shape)])
    tensor = graph.initializer.add(name="w", data_type=code, dims=array.shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "w.bin", "offset": offset}.items():
        tensor.external_data.add(key=key, value=str(value))
    path.with_name("w.bin").write_bytes(bytes(offset) + array.tobytes())
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("offset", [0, 3, 4096])
@pytest.mark.parametrize("code", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT8, TensorProto.BFLOAT16])
def test_any_offset_and_element(code: int, offset: int, tmp_path: Path) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(code)
    array = np.random.default_rng(5).integers(-9, 9, (300, 300)).astype(dtype)
    path = written(tmp_path / "m.onnx", code, offset, array)
    graph = load_onnx(path)
    x = np.zeros(array.shape, np.float32)
    np.testing.assert_array_equal(run(plan(graph, Mesh((2,))), {"x": x}).outputs["y"], array.astype(np.float32))


def test_older_opsets_and_stages_read_weights_beside_the_model(tmp_path: Path) -> None:
    array = np.arange(40_000, dtype=np.float32).reshape(200, 200)
    path = written(tmp_path / "m.onnx", TensorProto.FLOAT, 64, array, opset=11)  # it is converted
    (x, y) = (np.ones((200, 200), np.float32), array + 1)
    np.testing.assert_array_equal(run(plan(load_onnx(path), Mesh((2,))), {"x": x}).outputs["y"], y)
    staged = StagedModel(path, {"x": x})
    while (stage := staged.stage) is not None:
        assert stage.graph is not None
        staged.advance(run(plan(stage.graph, Mesh((2,))), staged.feeds(stage.graph)).outputs)
    np.testing.assert_array_equal(staged.outputs["y"], y)
