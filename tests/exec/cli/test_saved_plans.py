"""`tapestry explain`, `transfers` and `verify`: what they say of a saved plan, and of what is none."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import onnx
import onnx.parser
import pytest
from click.testing import CliRunner, Result

from tapestry_exec.cli import main
from tapestry_plan import Graph, Mesh, ShardPlan, load_onnx, plan
from tests.open_models import open_attention
from tests.plan.symbolic.test_symbolic_transfers import slices

MODEL = "tests/models/resnet.onnx"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plans") / "plan.json"
    file.write_text(plan(load_onnx(MODEL), Mesh((2, 2))).to_json())
    return file


def called(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def resealed(file: Path, **changes: Any) -> str:
    """The document with other fields, and the digest that they have: as somebody would forge it."""
    body = {**json.loads(file.read_text()), **changes}
    del body["sha256"]
    format_ = body.pop("format")
    digest = hashlib.sha256(msgspec.json.encode({"format": format_, **body}, order="sorted")).hexdigest()
    return json.dumps({"format": format_, **body, "sha256": digest})


def test_decisions_of_a_saved_plan_are_explained(saved: Path) -> None:
    p = ShardPlan.from_json(saved.read_bytes())
    one, two = (stage.node for stage in p.stages[:2])
    found = called("explain", saved, one, two)
    assert found.exit_code == 0 and found.stdout == f"{p.explain(one)}\n\n{p.explain(two)}\n"


@pytest.mark.heavy(2)
def test_what_a_saved_plan_decided_is_kept_but_for_what_is_fixed(saved: Path, tmp_path: Path) -> None:
    p = ShardPlan.from_json(saved.read_bytes())
    same = called("plan", MODEL, "--like", saved, "--json", "-q")
    assert same.exit_code == 0 and ShardPlan.from_json(same.stdout) == p
    node = p.stages[0].node
    (told,) = json.loads(called("explain", saved, node, "--json").stdout)["explained"]
    other = next(one for one in told["alternatives"] if not one["is_chosen"] and one["sharding"])
    cut = ",".join(f"{axis}:{parts}" for axis, parts in other["sharding"].items())
    found = called("plan", MODEL, "--like", saved, "--fix", f"{node}={cut}", "--json", "-q")
    q = ShardPlan.from_json(found.stdout)
    assert (q.seconds, q.nbytes_moved) == (other["seconds"], other["nbytes_moved"])
    assert all(reason in told["text"] for reason in other["reasons"]) and other["reasons"]
    for words, message in (
        (["--mesh", "4"], "another mesh, whose shape is (2, 2), not (4,)"),
        (["--no-fuse"], "fuse cannot be given with like"),
        (["--fix", "nothing="], "no operator 'nothing'"),
    ):
        refused = called("plan", MODEL, "--like", saved, *words)
        assert refused.exit_code == 2 and message in refused.stderr and len(refused.stderr.splitlines()) < 5
    assert "there is no file" in called("plan", MODEL, "--like", tmp_path / "none.json").stderr


def test_stages_without_operators_are_explained(tmp_path: Path) -> None:
    g, file = Graph(), tmp_path / "plan.json"
    g.output(g.input("x", (64, 64)) @ g.input("w", (64, 64)), "y")
    p = plan(g, Mesh(2), fix={"matmul": {"k": 2}})
    file.write_text(p.to_json())
    (stage,) = (stage.node for stage in p.stages if stage.node not in g.nodes)
    found = called("explain", file, stage)
    assert found.exit_code == 0 and found.stdout == f"{p.explain(stage)}\n"
    (told,) = json.loads(called("explain", file, stage, "--json").stdout)["explained"]
    assert (told["text"], told["alternatives"]) == (p.explain(stage), [])


def test_transfers_are_those_of_the_plan(saved: Path) -> None:
    p = ShardPlan.from_json(saved.read_bytes())
    assert p.nbytes_moved > 0
    rows = json.loads(called("transfers", saved, "--json").stdout)["transfers"]
    counted: dict[tuple[int, int], int] = {}
    for row in rows:
        link = row["source"], row["target"]
        counted[link] = counted.get(link, 0) + row["nbytes"]
        assert row["regions"] and row["why"]
    assert counted == p.nbytes_by_link
    (source, target), nbytes = next(iter(p.nbytes_by_link.items()))
    some = called("transfers", saved, "--from", source, "--to", target, "--units", "exact").stdout
    assert f", {nbytes:,} B; in the whole plan {p.nbytes_moved:,} B" in some
    none = called("transfers", saved, "--from", source, "--to", source, "--units", "exact").stdout
    told = f"nothing that was asked for; the plan moves {p.nbytes_moved:,} B from {source} to {target} ("
    assert none.startswith(told)
    every = called("transfers", saved).stdout.splitlines()
    for row in rows:  # each is one line, with its names whole, where no terminal folds them
        (line,) = (line for line in every if re.match(rf" +{row['step']} ", line))
        assert row["why"] in line and row["tensor"] in line and line == line.rstrip()
    row = rows[0]
    words = ("--tensor", row["tensor"], "--producer", row["producer"], "--consumer", row["consumer"])
    mine = [each for each in rows if all(each[k] == row[k] for k in ("tensor", "producer", "consumer"))]
    assert json.loads(called("transfers", saved, *words, "--json").stdout)["transfers"] == mine


def test_a_plan_that_is_whole_is_verified(saved: Path) -> None:
    p = ShardPlan.from_json(saved.read_bytes())
    found = called("verify", saved, "--units", "exact")
    assert found.exit_code == 0, found.stderr
    assert f"{len(p.steps):,} steps with " in found.stdout
    assert found.stdout.endswith(f" shards fit together; bytes moved: {p.nbytes_moved:,} B\n")


def test_plans_that_do_not_fit_themselves_are_refused(saved: Path, tmp_path: Path) -> None:
    document = json.loads(saved.read_text())
    edited, forged, cut = (tmp_path / name for name in ("edited.json", "forged.json", "cut.json"))
    edited.write_text(json.dumps({**document, "seconds": document["seconds"] * 2}))
    links = document["nbytes_by_link"]
    links[0][-1] += 4
    forged.write_text(resealed(saved, nbytes_by_link=links))
    cut.write_text(saved.read_text()[:-40])
    for file, told in (
        (edited, "its SHA-256 does not match, it was edited"),
        (forged, "its steps move"),
        (cut, "this is not a JSON document"),
    ):
        found = called("verify", file)
        assert found.exit_code == 2 and not found.stdout, file
        assert found.stderr.count("\n") == 1 and str(file) in found.stderr and told in found.stderr, found.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("explain", "{}", "nothing"), "the plan has no operator, input, constant, view or output 'nothing'"),
        (("explain", "{}"), "Missing argument 'NAME...'"),
        (("transfers", "{}", "--to", "4"), "the mesh has devices 0 to 3"),
        (("transfers", "{}", "--from", "-1"), "Invalid value for '--from'"),
        (("transfers", "{}", "--tensor", "nothing"), "no tensor is 'nothing'"),
        (("verify", "nothing.json"), "there is no file 'nothing.json'"),
        (("verify", MODEL), "is a model of ONNX, not a plan; make one"),
    ],
)
def test_wrong_input_is_named(saved: Path, words: tuple[str, ...], told: str) -> None:
    found = called(*(word.format(saved) for word in words))
    assert found.exit_code == 2 and not found.stdout
    assert told in " ".join(found.stderr.split()), found.stderr


def test_one_device_is_no_plural(tmp_path: Path) -> None:
    p = plan(load_onnx(MODEL), Mesh(1))
    file = tmp_path / "plan.json"
    file.write_text(p.to_json())
    assert " on 1 device\n" in called("plan", MODEL, "--mesh", "1").stdout
    assert called("transfers", file).stdout == "nothing goes from device to device\n"


def test_a_plan_in_less_memory_is_not_kept_at_sizes_that_need_more(tmp_path: Path) -> None:
    model, file = tmp_path / "open.onnx", tmp_path / "plan.json"
    onnx.save(open_attention(), model)
    sizes = ["--shape", "batch=64", "--shape", "seq=6"]
    file.write_text(plan(load_onnx(model, shapes={"batch": 2, "seq": 6}), Mesh(2), memory_nbytes=3500).to_json())
    refused = called("plan", model, "--like", file, *sizes, "-q")
    assert refused.exit_code == 2 and len(refused.stderr.splitlines()) < 5
    assert "the plan's choices at batch=64, seq=6 need" in refused.stderr and "3,500 may be had" in refused.stderr
    more = called("plan", model, "--like", file, *sizes, "--memory", "1MB", "--json", "-q")
    assert ShardPlan.from_json(more.stdout).limit_nbytes == (10**6, 10**6)
    bound = called("plan", model, "--like", file, *sizes, "--memory", "1MB", "-q")
    assert "no bound" in bound.stdout and "(gap" not in bound.stdout, bound.stdout
    ran = called("run", model, "--plan", file, *sizes)
    assert ran.exit_code == 2 and "--like" in ran.stderr


def test_sizes_of_a_model_whose_slice_ends(tmp_path: Path) -> None:
    model, fixed = tmp_path / "slice.onnx", tmp_path / "fixed.onnx"
    onnx.save(slices(1, 30), model)
    fix = ["--fix", "rows=i0:2", "--fix", "columns=i0:2"]
    found = called("sizes", model, "--shape", "N=8", "--mesh", "2", *fix, "--at", "2..4", "-q")
    assert found.exit_code == 0 and "bytes in all, for 3 <= N <= 30" in found.stdout, found.output
    asked = ["sizes", model, "--shape", "N=8", "--mesh", "2", "--at", "2,3,8", "-q"]
    told = json.loads(called(*asked, "--json").stdout)
    assert told["least"] >= 2
    for entry in told["sizes"]:
        alone = plan(load_onnx(model, shapes={"N": entry["size"]}), Mesh(2))
        one = entry["plans"][entry["best"]]
        assert one["seconds"] <= alone.seconds and entry["bound"] == alone.bound and entry["unplanned"] is None
    assert "planned at 3 of them: no plan of the planner's space is better" in called(*asked).stdout
    file = tmp_path / "plan.json"
    file.write_text(plan(load_onnx(model, shapes={"N": 8}), Mesh(2)).to_json())
    kept = ["sizes", model, "--shape", "N=8", "--like", file, "--at", "2,3,8", "-q"]
    for few, plans in ([*asked, "--plan-at", "2"], 2), (kept, 1):
        found = called(*few)
        assert "no others were planned, which may be better" in found.stdout, found.output
        assert f"of {plans} plan" in found.stdout
    few = called(*asked, "--at", "1,2")  # of one cell the slice has none, and 'y' has none
    assert few.exit_code == 0 and "planned at 2 of them" in few.stdout and "not planned" not in few.stdout, few.output
    text = "agraph (float[N] x) => (float[M] y) <int64[1] k = {1}> { a = Gather(x, k)  y = Add(x, a) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}'), fixed)
    none = called("sizes", fixed, "--shape", "N=8", "--mesh", "2", "--at", "1,2", "-q")
    assert "not planned at 1: load_onnx: " in none.stdout and "none can be bound" in none.stdout, none.output
    text = "agraph (float[4] x) => (float[4] y) { y = Exp(x) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}'), fixed)
    refused = called("sizes", fixed, "--mesh", "2")
    assert refused.exit_code == 2 and "fixed.onnx' has no open axes: all extents" in refused.stderr
