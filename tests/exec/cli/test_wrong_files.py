"""Files of another kind than a command wants: one line that says what the file is, and what to give."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from tapestry_plan import ShardPlan, load_onnx, same_graph
from tests.exec.cli.test_cli import call, refused


def without_graph(document: dict[str, object]) -> object:
    return {name: value for name, value in document.items() if name != "graph"}


FILES: dict[str, Callable[[dict[str, object]], object]] = {
    "nograph.json": without_graph,
    "empty.json": lambda document: {**document, "graph": {}},
    "format.json": lambda document: {"format": document["format"]},
    "graph.json": lambda document: document["graph"],
    "list.json": lambda document: [document],
}
CALLS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    *(
        ((command, "model.onnx", *rest), ("model of ONNX, not a plan; make one, as tapestry plan model",))
        for command, *rest in (("explain", "x"), ("transfers",), ("verify",))
    ),
    (("run", "model.onnx", "--plan", "model.onnx"), ("'model.onnx' is a model of ONNX, not a plan",)),
    (("plan", "model.onnx", "--like", "model.onnx"), ("'model.onnx' is a model of ONNX, not a plan",)),
    *(((command, "plan.json"), ("'plan.json' is a document", "--plan to run it or by --like to keep its choices"))
      for command in ("plan", "run", "pareto")),
    (("export", "plan.json", "--to", "jax", "--mesh", "2"), ("--mesh is for making a plan", "leave it out")),
    (("export", "plan.json", "--to", "jax", "--memory", "1KB"), ("--memory is for making a plan", "leave it out")),
    (("export", "plan.json", "--to", "jax", "--seed", "3", "--mesh", "2"), ("--mesh, --seed are for", "leave them")),
    (("export", "plan.json", "--to", "jax", "--fix", "conv=n:2", "--no-opaque"), ("--fix, --no-opaque are for",)),
    (("export", "plan.json", "--to", "onnx"), ("name its file with --output",)),
    (("export", "plan.json", "--to", "onnx", "--output", "o.onnx"), ("without their values", "--like plan.json")),
    (("export", "graph.json", "--to", "jax"), ("'graph.json': plan document: format is 'tapestry-graph/2'",)),
    (("export", "list.json", "--to", "jax"), ("list.json", "not an ONNX model")),
    (("export", "missing.json", "--to", "jax"), ("there is no file 'missing.json'",)),
    (("explain", "nograph.json", "x"), ("'nograph.json': plan document: field 'graph' is missing",)),
    (("explain", "empty.json", "x"), ("'empty.json': plan document: graph document: format is None",)),
    (("explain", "format.json", "x"), ("'format.json': plan document: field 'alternatives' is missing",)),
    (("explain", "list.json", "x"), ("'list.json': plan document",)),
    (("explain", "missing.onnx", "x"), ("there is no file 'missing.onnx'",)),
    (("explain", "plan.json", "konv"), ("no operator, input, constant, view or output 'konv'; ", "'conv'")),
    (("plan", "model.onnx", "--mesh", "2", "--explain", "konv"), ("view or output 'konv'",)),
]  # fmt: skip


@pytest.mark.parametrize("words", [words for words, _ in CALLS], ids=lambda words: " ".join(words))
def test_files_of_another_kind(words: tuple[str, ...], folder: Path) -> None:
    document = json.loads((folder / "plan.json").read_text())
    for name in {*words} & FILES.keys():
        (folder / name).write_text(json.dumps(FILES[name](document)))
    refused(call(*words), *dict(CALLS)[words])
    assert not (folder / "o.onnx").exists()


def test_a_saved_plan_is_exported_without_its_model(folder: Path) -> None:
    p = ShardPlan.from_json((folder / "plan.json").read_text())
    (folder / "model.onnx").rename(folder / "elsewhere.onnx")
    result = call("export", "plan.json", "--to", "dask")
    assert result.exit_code == 0 and result.stdout == f"{p.to_dask_chunks().to_code()}\n"


def test_a_saved_plan_and_its_model_are_exported_together(folder: Path) -> None:
    """The plan names constants alone; the model has their values."""
    made = folder / "made.json"
    made.write_text(call("plan", "model.onnx", "--mesh", "2", "--space", "mesh", "--json", "-q").stdout)
    result = call("export", "model.onnx", "--like", "made.json", "--to", "onnx", "--output", "o.onnx", "-q")
    assert result.exit_code == 0, result.output
    written = onnx.load(folder / "o.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert same_graph(load_onnx(written), load_onnx(folder / "model.onnx")) and written.configuration


def test_weights_and_views_are_explained(folder: Path) -> None:
    p = ShardPlan.from_json((folder / "plan.json").read_text())
    names = [name for name, one in p.graph.stored.items() if one.kind != "result"]
    result = call("explain", "plan.json", *names)
    assert result.exit_code == 0
    assert result.stdout == "\n\n".join(p.explain(name) for name in names) + "\n"
    found = json.loads(call("explain", "plan.json", *names, "--json").stdout)["explained"]
    assert [(one["node"], one["text"], one["alternatives"]) for one in found] == [
        (name, str(p.explain(name)), []) for name in names
    ]
