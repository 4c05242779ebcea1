"""What the command line says of inputs: sizes by symbol, and values that are known in advance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tapestry_exec.cli.planning import parse_shapes, parse_values
from tests.exec.cli.test_cli import call, network, refused
from tests.onnx_models import ort, random
from tests.open_models import MASKED, feed_decoder, open_decoder


def reshaping() -> Any:
    """A network that reshapes by an input, and clips by another one."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"], "fold"),
        helper.make_node("Clip", ["r", "low"], ["y"], "cut"),
    ]
    inputs = [("x", TensorProto.FLOAT, ("n", 6)), ("shape", TensorProto.INT64, (2,)), ("low", TensorProto.FLOAT, ())]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=8)


def test_a_size_is_given_by_symbol(tmp_path: Path) -> None:
    onnx.save(network("N"), tmp_path / "m.onnx")
    result = call("run", tmp_path / "m.onnx", "--mesh", "2", "--shape", "N=3", "--verify")
    assert result.exit_code == 0, result.stderr
    assert "float32[3, 4, 8, 8]" in result.stdout
    refused(call("plan", tmp_path / "m.onnx", "--shape", "M=3"), "'M'", "known symbols of open axes: 'N'")
    refused(call("plan", tmp_path / "m.onnx", "--shape", "N=3", "--shape", "x=1,3,8,8"), "'N' is 3", "and 1 by")


def test_values_are_given(tmp_path: Path) -> None:
    onnx.save(reshaping(), tmp_path / "m.onnx")
    feeds = {"x": random(4, 6), "shape": np.array([3, -1]), "low": np.array(0.5, np.float32)}
    np.save(tmp_path / "x.npy", feeds["x"])
    np.save(tmp_path / "shape.npy", feeds["shape"])
    for shape in ("shape=3,-1", f"shape={tmp_path / 'shape.npy'}"):
        result = call(
            *("run", tmp_path / "m.onnx", "--mesh", 2, "--shape", "n=4", "--value", shape, "--value", "low=0.5"),
            *("--input", f"x={tmp_path / 'x.npy'}", "--save", tmp_path / "out.npz", "--verify"),
        )
        assert result.exit_code == 0, result.stderr
        with np.load(tmp_path / "out.npz") as saved:
            np.testing.assert_array_equal(saved["y"], ort(reshaping(), feeds)[0])


def test_a_plan_is_run_with_the_values_that_it_was_made_with(tmp_path: Path) -> None:
    onnx.save(reshaping(), tmp_path / "m.onnx")
    given = ("--shape", "n=4", "--value", "shape=3,8", "--value", "low=0")
    made = call("plan", tmp_path / "m.onnx", "--mesh", 2, *given, "--json")
    (tmp_path / "p.json").write_text(made.stdout)
    again = call("run", tmp_path / "m.onnx", "--plan", tmp_path / "p.json", *given)
    assert again.exit_code == 0, again.stderr
    other = call(
        "run", tmp_path / "m.onnx", "--plan", tmp_path / "p.json", *given[:2], "--value", "shape=8,3", *given[4:]
    )
    refused(other, "was made for another model")


def test_an_operand_that_must_be_known_names_the_option(tmp_path: Path) -> None:
    onnx.save(reshaping(), tmp_path / "m.onnx")
    told = call("plan", tmp_path / "m.onnx", "--shape", "n=4")
    assert told.exit_code == 0 and "nothing is planned yet: 'shape' must be known" in told.stdout
    assert "'fold'" in told.stdout and "--value shape=…" in told.stdout


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("shape", "name=1,3"),
        ("=1", "name=1,3"),
        ("shape=1,x", "'1,x' is neither numbers"),
        ("shape=,", "neither numbers"),
        ("shape=gone.npy", "cannot be read"),
        ("q=1", "values names 'q'"),
        ("shape=1.5,2", "which int64 has not"),
        ("shape=1,2,3", "but the model fixes it to 2"),
        ("low=1,2", "has rank 1, the input has rank 0"),
    ],
)
def test_values_that_cannot_be_taken(tmp_path: Path, value: str, part: str) -> None:
    onnx.save(reshaping(), tmp_path / "m.onnx")
    refused(call("plan", tmp_path / "m.onnx", "--shape", "n=4", "--value", value), part)


def test_values_are_read() -> None:
    assert parse_values(["a=1, 2", "b:0=true", "c=-0.5", "d=", "e=k=3", "f=1e3,inf"]) == {
        "a": [1, 2],
        "b:0": True,
        "c": -0.5,
        "d": [],
        "e=k": 3,
        "f": [1000.0, float("inf")],
    }
    assert parse_shapes(["x=2,3", "n=4"]) == {"x": (2, 3), "n": 4}


# -- sizes that the model leaves open ------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(open_decoder(), "decoder.onnx")
    return tmp_path


def save_each(feeds: dict[str, Any]) -> list[str]:
    """The arrays in files, and the options that name them."""
    for name, array in feeds.items():
        np.save(f"{name}.npy", array)
    return [word for name in feeds for word in ("--input", f"{name}={name}.npy")]


def test_arrays_say_the_sizes_of_a_run(folder: Path) -> None:
    feeds = feed_decoder(2, 4, 3)
    np.savez("feeds.npz", **feeds)
    (wanted,) = ort(open_decoder(), feeds, ["y"])
    more = ("--shape", "past_sequence_length=4", "--shape", f"{MASKED}=7")
    for words in (save_each(feeds), ["--input", "feeds.npz"], [*save_each(feeds), *more]):
        result = call("run", "decoder.onnx", "--mesh", 2, *words, "--save", "out.npz", "--verify")
        assert result.exit_code == 0, result.stderr
        with np.load("out.npz") as saved:
            np.testing.assert_allclose(saved["y"], wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))


def test_some_arrays_say_the_sizes_of_the_others(folder: Path) -> None:
    feeds = feed_decoder(2, 4, 3)
    words = save_each({name: feeds[name] for name in ("x", "attention_mask")})
    result = call("run", "decoder.onnx", "--mesh", 2, *words, "--save", "out.npz")
    assert result.exit_code == 0, result.stderr
    with np.load("out.npz") as saved:
        assert saved["present_key"].shape == (2, 2, 7, 4)
    refused(call("run", "decoder.onnx", *words[:2]), "--shape past_sequence_length=…")


def test_a_saved_plan_runs_with_arrays_of_its_sizes(folder: Path) -> None:
    words = save_each(feed_decoder(2, 4, 3))
    sizes = ("--shape", "batch_size=2", "--shape", "past_sequence_length=4", "--shape", "sequence_length=3")
    Path("plan.json").write_text(call("plan", "decoder.onnx", "--mesh", 2, *sizes, "--json").stdout)
    assert call("run", "decoder.onnx", "--plan", "plan.json", *words).exit_code == 0
    longer = save_each(feed_decoder(2, 5, 3))
    refused(call("run", "decoder.onnx", "--plan", "plan.json", *longer), "plan.json was made for other sizes of dec")


def test_arrays_that_do_not_agree(folder: Path) -> None:
    feeds = feed_decoder(2, 4, 3)
    words = save_each({**feeds, "past_key": feeds["past_key"][:1]})
    two = (
        "'batch_size' is 2 by feeds['attention_mask'] of shape (2, 7) on axis 0",
        "and 1 by feeds['past_key'] of shape (1, 2, 4, 4)",
    )
    refused(call("run", "decoder.onnx", *words), *two)
    words = save_each(feeds)
    refused(call("run", "decoder.onnx", *words, "--shape", "batch_size=3"), "'batch_size' is 3 by shapes", "and 2 by")
    refused(call("run", "decoder.onnx", *words, "--shape", "x=2,4,8"), "feeds['x'] of shape (2, 3, 8)", "(2, 4, 8)")
    refused(call("run", "decoder.onnx", *words, "--shape", f"{MASKED}=8"), f"'{MASKED}' is 8 by shapes", "and 7 by")
    refused(call("run", "decoder.onnx", "--input", "q=x.npy"), "the model has no input 'q'; known inputs: 'x'")
    refused(call("run", "decoder.onnx", "--input", "x=x.npy", "--input", "x=x.npy"), "'x' is given twice")
    refused(call("run", "decoder.onnx", "--input", "none.npz"), "--input 'none.npz' cannot be read")
    Path("junk.npz").write_bytes(b"junk")
    refused(call("run", "decoder.onnx", "--input", "junk.npz"), "is not a .npz file; write the arrays with numpy.savez")
    Path("half.npz").write_bytes(b"PK\x03\x04")
    refused(call("run", "decoder.onnx", "--input", "half.npz"), "half.npz is damaged or truncated")


def test_arrays_say_the_sizes_of_a_run_in_stages(folder: Path) -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["found"]), helper.make_node("Neg", ["found"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [2, "M"])
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    onnx.save(model, "staged.onnx")
    (wanted,) = ort(model, {"x": random(3, 4)})
    words = save_each({"x": random(3, 4)})
    result = call("run", "staged.onnx", "--mesh", 2, *words, "--save", "out.npz")
    assert result.exit_code == 0, result.stderr
    with np.load("out.npz") as saved:
        np.testing.assert_array_equal(saved["y"], wanted)
    refused(call("run", "staged.onnx", *words, "--shape", "N=4"), "'N' is 4 by shapes['N'] = 4 and 3 by feeds['x']")
    refused(call("run", "staged.onnx"), "--shape N=…")


def test_sizes_are_told_in_the_symbol_below_a_derived_axis(folder: Path) -> None:
    sizes = ("--shape", "batch_size=2", "--shape", "past_sequence_length=4", "--shape", "sequence_length=3")
    words = ("sizes", "decoder.onnx", "--mesh", 2, *sizes, "--fix", "products=n:2", "--fix", "shares=i2:2")
    result = call(*words, "--symbol", "past_sequence_length", "--at", "4..8", "--plan-at", "4", "--no-fuse")
    assert result.exit_code == 0, result.stderr
    assert "·past_sequence_length + " in result.stdout and "batch_size=2, sequence_length=3" in result.stdout
    refused(call(*words, "--symbol", MASKED), "is not a symbol; known symbols: 'batch_size'")
