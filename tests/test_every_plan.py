"""Every valid model has a plan: `tapestry plan`, given no values, plans it or says what must be known first.

Valid is what ONNX's checker takes, with nodes of ONNX's own or of ONNX Runtime's; axes that a model leaves open are
given sizes. Of each model the command's own answer is read: a whole plan, the plan of a first stage, or a first stage
that is empty and says which inputs it waits for. That what waits runs too, and gives what ONNX wants, is in
test_node_cases.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser
from onnx.backend.test.loader import load_model_tests

from tapestry_exec.cli.answers import StagesAnswer
from tapestry_plan import ShardPlan
from tapestry_plan.onnx import light_model
from tests.exec.cli.test_cli import call
from tests.exec.cli.test_json_answers import checker
from tests.node_cases import SLOW_MODULES, load_cases, operator_of
from tests.plan.onnx.test_whole import HEAD, MAPS

SHARE = 64
"""One case in so many is tried by default; which ones is fixed by their names."""
MODELS = Path(__file__).parent / "models"
LIGHT = (
    *("squeezenet", "shufflenet", "bvlc_alexnet", "resnet50"),
    *("densenet121", "inception_v1", "inception_v2", "vgg19", "zfnet512"),
)
QUICK = ("squeezenet", "shufflenet", "bert", "gpt2", "resnet")


def first_plan(file: Path, *words: object) -> tuple[str, ShardPlan | StagesAnswer]:
    """How much of a model in a file is planned without values: all of it, a part, or nothing yet; and the answer."""
    result = call("plan", file, "--mesh", 2, "--quiet", "--json", *words)
    assert result.exit_code == 0, (result.stderr, result.exception)
    if json.loads(result.stdout)["format"].startswith("tapestry-plan/"):
        return "part" if "stage 0: " in result.stderr else "all", ShardPlan.from_json(result.stdout)
    found = json.loads(result.stdout)
    assert next(checker("stages").iter_errors(found), None) is None
    return "nothing", found


def check_plan(model: Any, file: Path, *words: object) -> str:
    """How much is planned of a model, whose answer must say which of its nodes and inputs that is."""
    file.write_bytes(model.SerializeToString())
    kind, found = first_plan(file, *words)
    if isinstance(found, ShardPlan):
        makes = set(found.graph.outputs)
        assert makes and (kind == "part" or makes == {value.name for value in model.graph.output})
        return kind
    text = call("plan", file, "--mesh", 2, "--quiet", *words).stdout
    if not found["stages"]:
        assert text.startswith("nothing is to be planned: all that the model gives is known")
        return "known"
    (stage,) = found["stages"]
    inputs = {value.name for value in model.graph.input}
    assert stage["plan"] is None and stage["reasons"] and set(stage["awaited"]) <= inputs and stage["awaited"]
    assert text.startswith(f"nothing is planned yet: {', '.join(map(repr, stage['awaited']))} must be known; ")
    return kind


def open_axes(case: Any) -> list[str]:
    """Sizes of the axes that a case's inputs leave open, as the command takes them: those that its data have."""
    words = []
    for value, given in zip(case.model.graph.input, case.data_sets[0][0], strict=False):
        dims = value.type.tensor_type.shape.dim
        if value.type.WhichOneof("value") == "tensor_type" and any(not dim.HasField("dim_value") for dim in dims):
            shape = given.dims if hasattr(given, "dims") else given.shape
            words += ["--shape", f"{value.name}={','.join(map(str, shape))}"]
    return words


def test_every_valid_model_has_a_plan(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Of ONNX's cases of nodes: a sample of them, all with --all."""
    share = 1 if request.config.getoption("--all") else SHARE
    cases = load_cases() if share == 1 else load_cases(SLOW_MODULES)
    chosen = [case for case in cases if zlib.crc32(case.name.encode()) % share == 0]
    lost, kinds = {}, Counter[str]()
    for case in chosen:
        try:
            kinds[check_plan(case.model, tmp_path / "m.onnx", *open_axes(case))] += 1
        except AssertionError as error:
            lost[case.name] = str(error)
    assert not lost
    assert kinds["all"] > len(chosen) / 2 and kinds["nothing"] > len(chosen) / 30


@pytest.mark.parametrize("name", [name for name in MAPS if "ai.onnx.ml" in MAPS[name][0]])
def test_every_model_with_maps_has_a_plan(name: str, tmp_path: Path) -> None:
    """With nodes, of which none is among those cases; what they give is compared in test_whole."""
    text, feeds, planned = MAPS[name]
    kind = check_plan(parser.parse_model(HEAD + text), tmp_path / "m.onnx")
    assert kind == ("known" if not feeds else "part" if "p" in feeds and planned else "nothing")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.heavy(64))
        for name in (*LIGHT, *sorted(file.stem for file in MODELS.glob("*.onnx")))
    ],
)
def test_every_network_has_a_plan(name: str, tmp_path: Path) -> None:
    file = MODELS / f"{name}.onnx"
    model = light_model(name) if name in LIGHT else onnx.load(file, load_external_data=False)
    assert check_plan(model, tmp_path / "m.onnx") == "all"


@pytest.mark.heavy
def test_cases_are_all_that_onnx_has() -> None:
    """Those of other domains too; and what is left out is what is named."""
    every = load_model_tests(kind="node")
    assert {case.name for case in load_cases()} == {case.name for case in every} and len(every) == len(load_cases())
    few = {case.name for case in load_cases(SLOW_MODULES)}
    assert {operator_of(case) for case in every if case.name not in few} == {"AveragePool", "LpPool", "MaxPool"}


def test_cases_of_other_domains_are_among_them() -> None:
    assert sum(case.model.graph.node[0].domain == "ai.onnx.ml" for case in load_cases(SLOW_MODULES)) >= 8
