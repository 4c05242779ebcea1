"""The command line asks for whatever `plan` and `pareto` can be asked for, and says in one line what is wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec.structs import fields
from onnx import TensorProto, helper, numpy_helper

from tapestry_exec.cli.commands import main
from tapestry_exec.cli.planning import WORDS, spell_option
from tapestry_plan import Mesh, Placed, ShardPlan, load_onnx, pareto, plan
from tapestry_plan.search import CapOptions, ParetoOptions
from tests.exec.cli.test_cli import call, refused

ROOT = Path(__file__).resolve().parents[3]


def step() -> onnx.ModelProto:
    """A step of a recurrence: ``new = tanh(state @ w) + tanh(state @ w)``, whose two halves are equal."""
    rng = np.random.default_rng(0)
    state, new = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 32]) for name in ("state", "new"))
    nodes = []
    for side in "ab":
        nodes.append(helper.make_node("MatMul", ["state", "w"], [f"m{side}"], f"product_{side}"))
        nodes.append(helper.make_node("Tanh", [f"m{side}"], [f"t{side}"], f"squash_{side}"))
    nodes.append(helper.make_node("Add", ["ta", "tb"], ["s"], "sum"))
    nodes.append(helper.make_node("Softmax", ["s"], ["new"], "row", axis=1))
    w = numpy_helper.from_array(rng.standard_normal((32, 32)).astype(np.float32), "w")
    graph = helper.make_graph(nodes, "g", [state], [new], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(step(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def options_of(command: str) -> dict[str, Any]:
    return {parameter.name: parameter for parameter in main.commands[command].params}


@pytest.mark.parametrize(
    ("command", "declared"), [("plan", CapOptions), ("run", CapOptions), ("pareto", ParetoOptions)]
)
def test_each_argument_has_an_option_with_its_default(command: str, declared: Any) -> None:
    found = options_of(command)
    for field in fields(declared):
        if field.name == "progress":  # which every command shows
            continue
        assert spell_option(field.name) in found[field.name].opts
        if isinstance(field.default, bool | int) and field.name != "expand":
            assert found[field.name].default == field.default
    assert WORDS.keys() == {field.name for field in (*fields(CapOptions), *fields(ParetoOptions))} - {"progress"}


def test_each_option_that_takes_words_has_an_example() -> None:
    for name, (shown, words) in WORDS.items():
        assert re.search(r"\bas ", words) or re.search(r"\d", shown) or not shown, name


def test_the_tour_names_each_argument_and_its_option() -> None:
    table = (ROOT / "docs" / "tour.md").read_text().split("| in Python | on the command line |")[1].split("\n\n")[0]
    for name in WORDS:
        assert re.search(rf"\b{name}=", table), name
        assert spell_option(name) in table or spell_option(f"no_{name}") in table, name


ASKED: list[tuple[list[str], dict[str, Any]]] = [
    (["--fix", "product_a=m:2,n:2"], {"fix": {"product_a": {"m": 2, "n": 2}}}),
    (["--fix", "product_a=m:x,n:y", "--fix", "row="], {"fix": {"product_a": {"m": ("x",), "n": ("y",)}, "row": {}}}),
    (["--fix", "product_a=m:x+y"], {"fix": {"product_a": {"m": ("x", "y")}}}),
    (["--forbid", "product_a=m:4", "--forbid", "row=i0:4"], {"forbid": {"product_a": {"m": 4}, "row": {"i0": 4}}}),
    (["--layout", "state=1:4"], {"layout": {"state": {1: 4}}}),
    (
        ["--layout", "state=0[:5];2[5:, :8];3[5:, 8:]"],
        {"layout": {"state": Placed({0: np.s_[:5], 2: np.s_[5:, :8], 3: np.s_[5:, 8:]})}},
    ),
    (["--layout", "w=1[...]", "--layout", "new=0:2"], {"layout": {"w": Placed({1: ...}), "new": {0: 2}}}),
    (["--tie", "new=state"], {"tie": {"new": "state"}}),
    (["--placement", "single"], {"placement": "single"}),
    (["--fuse"], {"fuse": True}),
    (["--no-fuse"], {"fuse": False}),
    (["--no-unify"], {"unify": False}),
    (["--space", "mesh", "--fan-in", "2"], {"space": "mesh", "fan_in": 2}),
    (["--same-bits"], {"same_bits": True}),
    (["--expand", "exp_sum", "--seed", "7"], {"expand": ["exp_sum"], "seed": 7}),
    (["--no-expand", "--time-limit", "60"], {"expand": False, "time_limit_seconds": 60}),
    (["--memory", "20KiB"], {"memory_nbytes": 20 * 1024}),
]


@pytest.mark.heavy(2)
@pytest.mark.parametrize(("given", "asked"), ASKED, ids=lambda one: " ".join(one) if isinstance(one, list) else "")
def test_what_is_asked_for_is_what_the_plan_is_asked_for(file: Path, given: list[str], asked: dict[str, Any]) -> None:
    result = call("plan", file, "--mesh", "2x2", "--json", "-q", *given)
    assert result.exit_code == 0, result.stderr
    assert ShardPlan.from_json(result.stdout) == plan(load_onnx(file), Mesh((2, 2)), **asked)


@pytest.mark.heavy(2)
def test_what_is_asked_for_is_not_what_there_is_without(file: Path) -> None:
    """Else the test above would say nothing."""
    graph, mesh = load_onnx(file), Mesh((2, 2))
    plain = plan(graph, mesh)
    others = [given for given, asked in ASKED if plan(graph, mesh, **asked).choices != plain.choices]
    assert len(others) >= 10, others


def test_plans_of_less_and_less_memory(file: Path) -> None:
    result = call(
        "pareto", file, "--mesh", 2, "--points", 3, "--no-expand", "--fix", "row=i0:2", "-q", "--units", "exact"
    )
    assert result.exit_code == 0, result.stderr
    plans = pareto(load_onnx(file), Mesh((2,)), points=3, expand=False, fix={"row": {"i0": 2}})
    assert [f" {max(p.peak_nbytes):,} B " in result.stdout for p in plans] == [True] * len(plans)
    assert len(re.findall(r"^ *[\d,]+ B +[\d.e-]+ s ", result.stdout, re.M)) == len(plans)


def test_a_plan_that_is_made_is_not_asked_for_more(file: Path, tmp_path: Path) -> None:
    made = tmp_path / "p.json"
    made.write_text(call("plan", file, "--mesh", 2, "--json").stdout)
    assert call("run", file, "--plan", made, "--memory", "1GB", "--seed", 3).exit_code == 0
    refused(call("run", file, "--plan", made, "--tie", "new=state"), "--tie is for making a plan")
    both = call("run", file, "--plan", made, "--fix", "row=", "--no-unify", "--machine", "cpu4")
    refused(both, "--fix, --no-unify, --machine are for making a plan")
    refused(call("run", file, "--plan", made, "--seed", "-1"), "--seed is -1; give an integer >= 0")


def test_names_may_hold_signs(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 4]) for name in ("/x=1:0", "y"))
    graph = helper.make_graph([helper.make_node("Relu", ["/x=1:0"], ["y"], "/act=2:0")], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=8), tmp_path / "m.onnx")
    given = ("--fix", "/act=2:0=i0:2", "--layout", "/x=1:0=1:2", "--json", "-q")
    p = ShardPlan.from_json(call("plan", tmp_path / "m.onnx", "--mesh", 2, *given).stdout)
    assert p.sharding["/act=2:0"] == {"i0": 2} and p.nbytes_moved == 8 * 4 * 4 // 2


FORM = "is not of the form"
WRONG = [
    ("--fix row", FORM, "conv=h:2,w:2"),
    ("--fix =i0:2", FORM),
    ("--fix row=i0", FORM),
    ("--fix row=:2", FORM),
    ("--fix row=i0:x+", FORM),
    ("--fix row=i0:2,i0:2", "axis 'i0' twice"),
    ("--fix row=i0:2 --fix row=i1:2", "'row' is given twice"),
    ("--fix row=i0:2.5", "'2.5' is not a number of parts", "'i0'"),
    ("--fix row=i0:99999999999999999999", "is not a number of parts"),
    ("--fix row=i0:-1", "-1 parts asked for", "from 1 to 4"),
    ("--fix row=i0:q", "'q' is not an axis of the mesh", "'x', 'y'"),
    ("--fix row=i0:x+x", "used twice", "name each once"),
    ("--fix rows=i0:2", "no operator 'rows'", "'row'"),
    ("--fix row=m:2", "no axis 'm'", "'i0'"),
    ("--fix row=i0:2 --forbid row=i1:2", "in fix and in forbid"),
    ("--forbid row", FORM),
    ("--layout state", FORM, "'x=0[:3];1[3:]'"),
    ("--layout state=9:2", "no axis '9'"),
    ("--layout q=0:2", "'q' is not a graph input"),
    ("--layout state=0[:3];1[2:]", "share some cells"),
    ("--layout state=0[:3]", "no device has"),
    ("--layout state=7[...]", "no device 7"),
    ("--layout state=0[:3", FORM, "'0[:3'"),
    ("--layout state=0[3]", FORM),
    ("--layout state=0['a']", FORM),
    ("--layout state=0[1.5:]", FORM),
    ("--layout state=True[...]", FORM),
    ("--layout state=-1[...]", FORM),
    ("--layout state=0[...];;1[...]", FORM),
    ("--layout state=0[__import__('os')]", FORM),
    ("--layout state=0[::2];1[1::2]", "steps of 2"),
    ("--tie new", FORM, "new_w=w"),
    ("--tie new=", "not a graph input"),
    ("--tie new=w", "they must be alike"),
    ("--tie q=state", "no graph output 'q'"),
    ("--tie new=state --tie new=w", "given twice"),
    ("--placement one", "'one' is not one of 'free', 'single'"),
    ("--time-limit -1", "time_limit_seconds is -1.0"),
    ("--time-limit soon", "--time-limit", "'soon'"),
    ("--time-limit nan", "time_limit_seconds is nan"),
    ("--fan-in 1", "fan_in is 1", "integer >= 2"),
    ("--fan-in x", "--fan-in", "'x'"),
    ("--fan-in 3 --same-bits", "merged two by two"),
    ("--seed -1", "seed is -1", "integer >= 0"),
    ("--fuse=yes", "--fuse"),
    ("--memory -1", "--memory '-1' is not a size"),
]


@pytest.mark.parametrize(("given", "parts"), [(each[0], each[1:]) for each in WRONG], ids=[each[0] for each in WRONG])
def test_wrong_options(file: Path, given: str, parts: tuple[str, ...]) -> None:
    refused(call("plan", file, "--mesh", "2x2", *given.split()), *parts)


@pytest.mark.parametrize(
    ("given", "part"), [("--points 0", "points is 0"), ("--points 101", "points is 101"), ("--memory 1GB", "--memory")]
)
def test_wrong_points(file: Path, given: str, part: str) -> None:
    refused(call("pareto", file, *given.split()), part)
