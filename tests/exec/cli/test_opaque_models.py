"""Models with nodes that have no declaration, on the command line: told, refused, and listed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, parser

from tapestry_exec.cli.operators import EVERY_DTYPE
from tapestry_plan import ShardPlan, load_onnx
from tests.exec.cli.test_cli import call, refused
from tests.onnx_models import model_of


def undeclared(reads: str, makes: str) -> Any:
    """A node that has no declaration."""
    how = {"keys_floats": [0.0], "values_floats": [1.0], "default_float": 0.0}
    return helper.make_node("LabelEncoder", [reads], [makes], name="whole", domain="ai.onnx.ml", **how)


def learned(nodes: list[Any], outputs: tuple[str, ...] = ("y",)) -> Any:
    """A model with such nodes."""
    model = model_of(nodes, {"x": (4, 4)}, outputs)
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "m.onnx").write_bytes(
        learned([helper.make_node("Relu", ["x"], ["a"], name="r"), undeclared("a", "y")]).SerializeToString()
    )
    return tmp_path / "m.onnx"


def test_plans_tell_what_is_opaque(model: Path) -> None:
    words = ("plan", model, "--mesh", 2, "--fix", "r=i0:2", "--quiet")
    told = call(*words).stdout
    says = "whole: 32 B move for what runs whole; it reads 64 B, writes 64 B, and takes "
    assert "opaque: 1 operator of ONNX without a declaration here, " + says in told
    cost = ShardPlan.from_json(call(*words, "--json").stdout).opaque["whole"]
    assert (cost.nbytes_moved, cost.nbytes_read, cost.nbytes_written) == (32, 4 * 4 * 4, 4 * 4 * 4)
    explained = call(*words, "--explain", "whole").stdout
    assert "opaque: ai.onnx.ml::LabelEncoder of ONNX, run whole on one device" in explained
    assert f"it reads 64 B, writes 64 B, and takes {cost.seconds!r} s or more" in " ".join(explained.split())
    page = model.parent / "page.html"
    assert call(*words, "--html", page).exit_code == 0
    assert says in page.read_text()
    told = json.loads(call("run", model, *words[2:], "--json").stdout)["plan"]["opaque"]
    nbytes = {"nbytes_moved": 32, "nbytes_read": 64, "nbytes_written": 64}
    nobody_knows = {"flop": 0.0, "devices": 1, "rounds": None, "is_known": False}
    assert told == {"whole": {**nbytes, "seconds": cost.seconds, **nobody_knows}}
    result = call("run", model, "--mesh", 2, "--fix", "r=i0:2", "--verify", "--quiet")
    assert result.exit_code == 0 and "32 B predicted, 32 B counted, equal" in result.stdout


def test_plans_tell_what_rounds_cost(tmp_path: Path) -> None:
    """A Loop of 500,000 products in parts on four devices, and one whose rounds the run counts."""
    text = """<ir_version: 8, opset_import: ["" : 21]> m (float[64, 256] h, float[256, 256] w)
      => (float[64, 256] y, float[64, 256] z) {
        trips = Constant <value = int64 {500000}> () true = Constant <value = bool {1}> ()
        y = Loop <body: graph = step (int64 i, bool go, float[64, 256] s) => (bool on, float[64, 256] t) {
          on = Identity (go) m = MatMul (s, w) t = Tanh (m) }> (trips, true, h)
        z = Loop <body: graph = step (int64 j, bool go, float[64, 256] r) => (bool yet, float[64, 256] q) {
          q = Neg (r) k = ReduceMax <keepdims: int = 0> (r) c = Constant <value = float {9}> () yet = Less (k, c)
        }> (trips, true, h) }"""
    (tmp_path / "m.onnx").write_bytes(parser.parse_model(text).SerializeToString())
    words = ("plan", tmp_path / "m.onnx", "--mesh", 4, "--fix", "Loop_0=i0:4", "--quiet")
    told = call(*words).stdout
    assert "opaque: Loop_0: 500,000 rounds on 4 devices, 4.202 TFLOP, 11.3 s" in told
    one = "on 1 device, 32.77 kFLOP, 9.831 us: of one round, since how many there are is known in a run alone"
    assert f"opaque: Loop_1: {one}" in told
    assert "without a declaration" not in told
    page = tmp_path / "page.html"
    assert call(*words, "--html", page).exit_code == 0
    assert "Loop_0: 500,000 rounds on 4 devices, 4.202 TFLOP" in page.read_text()
    assert "500,000 rounds on 4 devices" in call(*words, "--explain", "Loop_0").stdout


@pytest.mark.parametrize("command", [("plan", "--mesh", "2", "--quiet"), ("show",)])
def test_no_opaque_refuses(model: Path, command: tuple[str, ...]) -> None:
    refused(call(command[0], model, *command[1:], "--no-opaque"), "node 'whole': LabelEncoder of domain 'ai.onnx.ml'")
    assert call(command[0], model, *command[1:]).exit_code == 0


def test_models_whose_shapes_follow_from_values_run_in_stages(folder: Path) -> None:
    x = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    np.save("x.npy", x)
    words = ("run", "staged.onnx", "--mesh", 2, "--input", "x=x.npy", "--quiet")
    told = call(*words, "--verify", "--save", "out.npz").stdout
    assert "stage 0: 1 operator planned, 1 node whole between stages" in told and "stage 1: 1 operator planned" in told
    wanted = -np.array(np.nonzero(x > 0))
    np.testing.assert_array_equal(np.load("out.npz")["y"], wanted)
    assert f"output y: int64{list(wanted.shape)}\n96 B came to the host" in told
    found = json.loads(call(*words, "--json").stdout)
    assert found["format"] == "tapestry-stages/1" and found["nbytes_whole"] == x.nbytes
    assert [one["behind"] for one in found["stages"]] == [1, 0]
    refused(call(*words, "--no-opaque"), "NonZero of domain 'ai.onnx'")
    refused(call(*words, "--trace", "t.json"), "--trace is of one plan, and shapes of this model follow from values")
    refused(call("run", "staged.onnx", "--input", "z=x.npy", "--quiet"), "the model has no input 'z'")


def test_what_stands_before_a_shape_that_follows_from_values_is_planned(folder: Path) -> None:
    words = ("plan", "staged.onnx", "--mesh", 2, "--quiet")
    told = call(*words)
    assert told.exit_code == 0 and "staged.onnx on 2 devices" in told.stdout
    said = ("stage 0: 1 operator planned", "has a shape that follows from values", "1 node behind", "`tapestry run`")
    assert all(one in told.stdout for one in said)
    document = call(*words, "--json")
    assert all(one in document.stderr for one in said) and document.stderr.count("\n") == 1
    p = ShardPlan.from_json(document.stdout)
    assert [node.op for node in p.graph.nodes.values()] == ["relu"]
    refused(call(*words, "--no-opaque"), "NonZero of domain 'ai.onnx'")


def test_values_that_decide_shapes_are_not_drawn(tmp_path: Path) -> None:
    made = model_of([helper.make_node("TopK", ["x", "k"], ["y", "i"])], {"x": (2, 3)})
    made.graph.input.append(helper.make_tensor_value_info("k", 7, (1,)))
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    np.save(tmp_path / "k.npy", np.array([2]))
    words = ("run", tmp_path / "m.onnx", "--mesh", 2, "--quiet")
    refused(call(*words), "--value k=")
    assert "output y: float32[2, 2]" in call(*words, "--input", f"k={tmp_path / 'k.npy'}").stdout


def test_what_was_computed_at_import_is_told(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["w"], ["a"]), helper.make_node("Add", ["x", "a"], ["y"])]
    weight = np.ones((4, 6), np.float32)
    (tmp_path / "m.onnx").write_bytes(model_of(nodes, {"x": (4, 6)}, constants={"w": weight}).SerializeToString())
    words = (tmp_path / "m.onnx", "--mesh", 2, "--quiet")
    says = "computed when the model was read: 1 node, into constants of 96 B"
    page = tmp_path / "page.html"
    told = call("plan", *words, "--html", page).stdout
    assert f"{says}; not in these times" in told and f"Once, {says}; the plan" in page.read_text()
    figures = json.loads(call("run", *words, "--json").stdout)["plan"]
    assert figures["folded"] == {"nodes": 1, "nbytes": 96}
    (tmp_path / "plan.json").write_text(call("plan", *words, "--json").stdout)
    assert json.loads((tmp_path / "plan.json").read_text())["graph"]["folded"] == figures["folded"]
    assert f"{says}; not in these times" in call("verify", tmp_path / "plan.json").stdout
    assert json.loads(call("verify", tmp_path / "plan.json", "--json").stdout)["plan"]["folded"] == figures["folded"]


def test_operators_of_onnx_are_listed() -> None:
    found = {one["operator"]: one for one in json.loads(call("ops", "--onnx", "--json").stdout)["operators"]}
    assert found["Conv"]["how"] == "imported" and found["Conv"]["dtypes"][:3] == ["float16", "float32", "float64"]
    assert found["NonZero"]["how"] == "opaque" and set(found["NonZero"]["dtypes"]) >= set(EVERY_DTYPE)
    assert found["MatMulInteger"]["parts"][0] == {"op": "matmul", "axes": ["m", "n", "+k"]}
    told = call("ops", "--onnx").stdout
    counts = Counter(one["how"] for one in found.values())
    kinds = [how for how in ("imported", "defined", "folded", "opaque", "refused") if counts[how]]
    title = f"{len(found)} operators of ONNX: " + ", ".join(f"{counts[how]} {how}" for how in kinds)
    assert told.splitlines()[0] == title
    with pytest.raises(ValueError) as error:  # errors count them by the same words
        load_onnx(model_of([helper.make_node("NonZero", ["x"], ["y"])], {"x": (2,)}))
    assert title in str(error.value) and "nearest" not in str(error.value)
    with pytest.raises(ValueError, match=f"nearest of {len(found)} operators: 'NonZero'"):
        load_onnx(model_of([helper.make_node("NonZer", ["x"], ["y"], domain="own")], {"x": (2,)}))
    rows = {line.split()[0]: line.split()[1:] for line in told.splitlines() if len(line.split()) > 2}
    assert rows["Gemm"][:5] == ["imported", "gemm", "m", "n", "+k"] and rows["Constant"] == ["folded", "known"]
    assert rows["Reshape"][:2] == ["imported", "views"] and rows["NonZero"][:2] == ["opaque", "whole"]
    assert rows["ai.onnx.ml::SVMRegressor"][:3] == ["opaque", "opaque", "n"]
    assert {"float8_e4m3fn,", "int4,"} <= set(rows["DequantizeLinear"])
    one = call("ops", "Gemm", "NonZero", "--onnx").stdout.splitlines()
    assert one[0] == "2 operators of ONNX" and " ".join(one[4].split()).startswith("Gemm imported gemm m n +k")
    entries = json.loads(call("ops", "--onnx", "NonZero", "--json").stdout)["operators"]
    assert entries == [found["NonZero"]]
    refused(call("ops", "gem", "--onnx"), "ONNX has no operator 'gem'; nearest of", "'Gemm'")
    refused(call("ops", "--onnx", "--attr", "pads=1"), "--onnx tells how operators of ONNX are imported")


def test_a_flag_that_keeps_a_node_from_running_whole_is_named() -> None:
    own, foreign = undeclared("x", "y"), helper.make_node("Zzzz", ["y"], ["z"], domain="own")
    model = learned([own])
    with pytest.raises(
        ValueError, match=r"an operator that only runs whole:\n.*LabelEncoder .*; opaque=False, or --no-opaque, k"
    ):
        load_onnx(model, opaque=False)
    model = learned([own, foreign], ("z",))
    model.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(ValueError, match=r"(?s)that is not supported:.*LabelEncoder .*--no-opaque.*Zzzz") as error:
        load_onnx(model, opaque=False)
    assert "nearest" not in str(error.value)
    assert "dtypes floats" in call("ops", "sin").stdout


HEAD = '<ir_version: 8, opset_import: ["" : 21, "ai.onnx.ml" : 4]> agraph '
BODY = "<body = b (int64 i, bool c, float[4,6] s) => (bool d, float[4,6] t) { t = Add(s, a) d = Less(s, s) }>"
WAITING = {
    "k": "(float[4,6] x, int64[1] k) => (float[4,n] y) { y, i = TopK(x, k) }",
    "x": "(float[4,6] x) => (int64[2,n] y) { y = NonZero(x) }",
    "words": "(string[3] words) => (int64[3] y) { y = ai.onnx.ml.LabelEncoder "
    '<keys_strings = ["a"], values_int64s = [7]> (words) }',
    "q": "(seq(float[2]) q) => (float[2] y) { z = Constant <value = int64 {0}> () y = SequenceAt(q, z) }",
    "d": "(map(string, float) d) => (float[1,2] y) { c = ai.onnx.ml.DictVectorizer "
    '<string_vocabulary = ["a", "b"]> (d) y = Exp(c) }',
    "m": "(map(int64, float) m) => (map(int64, float) m) {}",
    "o": "(optional(float[2]) o) => (bool y) { y = OptionalHasElement(o) }",
}
"""Models of which nothing can be planned before an input is known, by its name."""
BEFORE = {
    "TopK_": "(float[4,6] x, int64[1] k) => (float[4,n] y) { a = Relu(x) y, i = TopK(a, k) }",
    "TopK_0": "(float[4,6] x, int64[3] n) => (float[4,k] y) { k = ReduceMax <keepdims = 1> (n) y, i = TopK(x, k) }",
    "If_0": "(float[4,6] x) => (float[n,m] y) { e = Exp(x) s = ReduceSum <keepdims = 0> (e) c = Greater(s, s) "
    "y = If (c) <then_branch = t () => (float[4,6] u) { u = Neg(e) }, "
    "else_branch = f () => (float[6,4] v) { v = Transpose(e) }> }",
    "SplitToSequence_0": "(float[4,6] x) => (seq(float[2,6]) y) { n = Constant <value = int64 {2}> () a = Relu(x) "
    "y = SplitToSequence <axis = 0> (a, n) }",
    "ZipMap_0": "(float[4,2] x) => (seq(map(int64, float)) z) { y = Softmax(x) "
    "z = ai.onnx.ml.ZipMap <classlabels_int64s = [3, 4]> (y) }",
    "Loop_0": f"(float[4,6] x) => (float[n,m] y) {{ a = Abs(x) y = Loop (, , a) {BODY} }}",
}
"""Models of which something can be planned, by the node that waits for values that a run makes."""


def written(folder: Path, text: str) -> Path:
    (folder / "m.onnx").write_bytes(parser.parse_model(HEAD + text).SerializeToString())
    return folder / "m.onnx"


@pytest.mark.parametrize("name", WAITING)
def test_what_an_empty_first_stage_waits_for_is_told(name: str, tmp_path: Path) -> None:
    words = ("plan", written(tmp_path, WAITING[name]), "--mesh", 2, "--quiet")
    told = call(*words)
    assert told.exit_code == 0
    assert told.stdout.startswith(f"nothing is planned yet: '{name}' must be known; `tapestry run`")
    document = json.loads(call(*words, "--json").stdout)
    (stage,) = document["stages"]
    assert document["format"] == "tapestry-stages/1" and stage["awaited"] == [name] and stage["plan"] is None
    refused(call(*words, "--html", tmp_path / "page.html"), "--html is about a plan, and nothing is planned yet")
    refused(call(*words, "--explain", "y"), "--explain is about a plan, and nothing is planned yet")
    refused(call(*words, "--no-opaque"))
    refused(call("show", words[1]), "StagedModel plans it in stages")


def test_runs_name_what_ran_whole_before_any_stage(tmp_path: Path) -> None:
    x = np.array([[0, 2, 0], [3, 0, 1]], np.float32)
    np.save(tmp_path / "x.npy", x)
    file = written(tmp_path, "(float[2,3] x) => (int64[2,n] y) { i = NonZero(x) y = Neg(i) }")
    words = ("run", file, "--mesh", 2, "--input", f"x={tmp_path / 'x.npy'}", "--quiet")
    assert "ran whole before any stage: node 'NonZero_0' (NonZero)\n24 B came to the host" in call(*words).stdout
    assert json.loads(call(*words, "--json").stdout)["whole_before"] == ["node 'NonZero_0' (NonZero)"]


@pytest.mark.parametrize(("name", "kind"), [("ZipMap_0", "'z' (4 maps)"), ("SplitToSequence_0", "'y' (2 tensors)")])
def test_what_a_file_of_arrays_has_not_is_told(name: str, kind: str, tmp_path: Path) -> None:
    words = ("run", written(tmp_path, BEFORE[name]), "--mesh", 2, "--quiet", "--save", tmp_path / "out.npz")
    for told in (call(*words), call(*words, "--json")):
        says = f"which has arrays alone: {kind}; run_stages in Python gives these\n"
        assert told.exit_code == 0 and told.stderr.endswith(says) and told.stderr.count("\n") == 1
        assert not np.load(tmp_path / "out.npz").files
    label, _, rest = kind.partition(" (")
    assert f"output {label[1:-1]}: {rest[:-1]}\n" in call(*words).stdout


def test_strings_are_saved_without_pickles(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([3, -1]))
    words = ("run", written(tmp_path, "(int64[2] x) => (string[2] y) { y = Cast <to = 8> (x) }"), "--quiet")
    told = call(*words, "--input", f"x={tmp_path / 'x.npy'}", "--save", tmp_path / "out.npz")
    assert told.exit_code == 0 and np.load(tmp_path / "out.npz")["y"].tolist() == ["3", "-1"]


def test_maps_and_sequences_are_neither_drawn_nor_read_of_files(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.ones(2))
    for name, kind in (("d", "a map: give a dict of texts to float32"), ("q", "a sequence: give a list")):
        words = ("run", written(tmp_path, WAITING[name]), "--mesh", 2, "--quiet")
        refused(call(*words), "a sequence or a map, which no .npy has, in Python, as a list or a dict to run_stages")
        refused(call(*words, "--input", f"{name}={tmp_path / 'd.npy'}"), f"the input is {kind}")


@pytest.mark.parametrize("name", BEFORE)
def test_what_stands_before_a_wanted_value_is_planned(name: str, tmp_path: Path) -> None:
    words = ("plan", written(tmp_path, BEFORE[name]), "--mesh", 2, "--quiet")
    told = call(*words)
    assert told.exit_code == 0 and f"node '{name}" in told.stdout and "stage 0: " in told.stdout
    assert ShardPlan.from_json(call(*words, "--json").stdout).graph.nodes
    refused(call(*words, "--no-opaque"), name)


def test_a_model_of_known_values_has_nothing_to_plan(tmp_path: Path) -> None:
    text = '() => (string[2] y) { y = Constant <value_strings = ["a", "b"]> () }'
    words = ("plan", written(tmp_path, text), "--mesh", 2, "--quiet")
    assert call(*words).stdout == "nothing is to be planned: all that the model gives is known without a run\n"
    assert json.loads(call(*words, "--json").stdout)["stages"] == []


def test_what_nobody_takes_has_no_plan(tmp_path: Path) -> None:
    """By name, shape or domain."""
    for text, says in (
        ("(float[4,6] x) => (float[4,6] y) { y = Foo(x) }", "neither ONNX nor an installed ONNX Runtime has it"),
        ("(float[4,6] x) => (float[4,6] y) { y = Det(x) }", "square matrices are needed"),
        ("(float[4,6] x) => (float[n] y) { y = Compress <axis = 5> (x, x) }", "cannot run whole: "),
    ):
        refused(call("plan", written(tmp_path, text), "--mesh", 2, "--quiet"), says)
