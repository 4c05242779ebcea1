"""With ``--json`` every command prints a document of a version, which fits its JSON Schema and holds true figures."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from tapestry_exec import Fault, run
from tapestry_exec.cli.answers import ANSWERS, DOCUMENTS, RunFigures, describe_answer
from tapestry_plan import ShardPlan
from tests.exec.cli.test_cli import call
from tests.exec.run.test_side_by_side import made

CALLS: dict[str, list[str]] = {
    "run": ["run", "model.onnx", "--mesh", "2", "--verify"],
    "pareto": ["pareto", "model.onnx", "--mesh", "2", "--points", "2"],
    "explain": ["plan", "model.onnx", "--mesh", "2", "--explain", "conv"],
    "transfers": ["transfers", "plan.json"],
    "sizes": ["sizes", "open.onnx", "--shape", "batch=4", "--mesh", "2", "--at", "1..4"],
    "verify": ["verify", "plan.json"],
    "export": ["export", "model.onnx", "--mesh", "2", "--space", "mesh", "--to", "dask"],
    "overlap": ["overlap", "A[9]; A[:4]; A[3:]; A[7:]"],
    "show": ["show", "Sett(Stripe(3, 2))"],
    "ops": ["ops"],
    "schema": ["schema"],
    "stages": ["run", "staged.onnx", "--mesh", "2", "--verify"],
    "plan": ["plan", "model.onnx", "--mesh", "2"],
}


@cache
def checker(name: str) -> Draft202012Validator:
    schema = json.loads(call("schema", name).stdout)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def answer(*words: object) -> Any:
    result = call(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_printed_fits_its_schema(name: str, folder: Path) -> None:
    found = answer(*CALLS[name])
    error = next(checker(name).iter_errors(found), None)
    assert error is None, error
    assert found["format"].startswith(f"tapestry-{name}/")
    for key in found:
        assert not checker(name).is_valid({k: v for k, v in found.items() if k != key}), f"without {key}"
    assert not checker(name).is_valid({**found, "more": 1})
    assert not checker(name).is_valid({**found, "format": "tapestry-other/1"})


def test_every_document_has_a_schema_that_the_command_prints() -> None:
    listed = answer("schema")["documents"]
    assert [one["name"] for one in listed] == list(DOCUMENTS)
    assert set(CALLS) | {"demo", "calibrate"} == {*ANSWERS, "plan"}
    for one in listed:
        schema = json.loads(call("schema", one["name"]).stdout)
        assert schema["properties"]["format"]["enum"] == [one["format"]] and schema == json.loads(
            json.dumps(describe_answer(one["name"]))
        )


@pytest.mark.heavy
def test_the_slow_commands_print_documents_too(folder: Path) -> None:
    demo = answer("demo", "--mesh", "2")
    assert checker("demo").is_valid(demo) and demo["difference"] <= demo["allowed_difference"]
    measured = answer("calibrate", "mine.toml", "--devices", "2", "-q")
    assert checker("calibrate").is_valid(measured) and measured["toml"] in (folder / "mine.toml").read_text()


def test_a_wrong_number_does_not_fit(folder: Path) -> None:
    found = answer(*CALLS["run"])
    broken = copy.deepcopy(found)
    broken["run"]["devices"][0]["peak_nbytes"] = "much"
    assert checker("run").is_valid(found) and not checker("run").is_valid(broken)


def test_figures_are_those_of_the_plan(folder: Path) -> None:
    p = ShardPlan.from_json((folder / "plan.json").read_bytes())
    told = answer("verify", "plan.json")
    assert told["plan"]["nbytes_moved"] == sum(p.nbytes_by_link.values()) > 0
    assert [one["peak_nbytes"] for one in told["devices"]] == list(p.peak_nbytes)
    rows = answer("transfers", "plan.json", "--from", 1, "--to", 2)["transfers"]
    cells = sum(
        np.prod([_count(*axis) for axis in zip(r["setts"], r["start"], r["shape"], strict=True)])
        for row in rows
        for r in row["regions"]
    )
    assert cells * 4 == p.nbytes_by_link[1, 2] == sum(row["nbytes"] for row in rows)
    some = answer("transfers", "plan.json", "--from", 1)
    assert some["nbytes"] == sum(row["nbytes"] for row in some["transfers"]) < some["nbytes_moved"] == p.nbytes_moved
    assert told["plan"]["makespan_seconds"] == p.makespan_seconds and told["plan"]["opaque"] == {}


def _count(stripes: list[list[int]], start: int, extent: int) -> int:
    """Cells of an axis, one by one: nested stripes [on, off, phase], each counting what the one before it leaves."""
    places = list(range(start, start + extent))
    if not stripes:
        return len(places)
    ((on, off, phase),) = stripes
    return sum((z - phase) % (on + off) < on for z in places)


def test_runs_save_what_they_tell(folder: Path) -> None:
    told = answer("run", "model.onnx", "--plan", "plan.json", "--save", "o.npz", "--verify")
    (output,) = told["run"]["outputs"]
    saved = np.load(folder / "o.npz")["y"]
    assert output["shape"] == list(saved.shape) and output["dtype"] == str(saved.dtype) and output["difference"] < 1e-5
    assert sum(n for _, _, n in told["run"]["links"]) == told["run"]["nbytes_moved"] == told["plan"]["nbytes_moved"]
    assert (told["run"]["generation"], told["run"]["faults"]) == (1, [])


def test_faults_are_listed() -> None:
    """Of a run whose devices began again."""
    p, inputs = made(2)
    fault = Fault(1, 0, 7, "the process of device 0 died (signal 9)", (96, None), {3: 32, 5: 64})
    result = replace(run(p, inputs), faults=(fault,), clock_error=0.002)
    told = json.loads(msgspec.json.encode(RunFigures.of(result)))
    assert told["clock_error"] == 0.002
    assert told["generation"] == 2 and told["faults"] == [
        {"generation": 1, "device": 0, "step": 7, "error": fault.error, "nbytes_sent": [96, None]}
        | {"steps": [[3, 32], [5, 64]]}
    ]


def test_explanations_in_json_are_not_the_plan(folder: Path) -> None:
    """`plan --explain --json` answers what was asked."""
    one = answer("plan", "model.onnx", "--mesh", "2", "--no-fuse", "--explain", "conv")["explained"][0]
    assert one["node"] == "conv" and one["text"].startswith("conv (conv): ")
    least = min(other["seconds"] for other in one["alternatives"])
    chosen = [other for other in one["alternatives"] if other["sharding"] == one["sharding"]]
    assert [other["seconds"] for other in chosen] == [least]
    saved = answer("explain", "plan.json", "conv", "act")["explained"]
    assert [one["node"] for one in saved] == ["conv", "act"]


def test_pairs_are_those_that_sets_say() -> None:
    pairs = answer("overlap", "A[9]; A[:4]; A[3:]; A[7:]")["pairs"]
    views = {"A[:4]": {*range(4)}, "A[3:]": {*range(3, 9)}, "A[7:]": {7, 8}}
    assert len(pairs) == 3
    for pair in pairs:
        shared = views[pair["a"]] & views[pair["b"]]
        assert pair["cells"] == len(shared) and (pair["witness"] is None) == (not shared)
        assert not shared or pair["witness"]["cell"][0] in shared


def test_pictures_in_json_are_those_that_are_drawn(folder: Path) -> None:
    told = answer("show", "A[4, 6]; A.T[1:]", "-o", "a.svg")
    assert told["svg"] == (folder / "a.svg").read_text()
    assert f"{told['text']}\n" == call("show", "A[4, 6]; A.T[1:]").stdout
