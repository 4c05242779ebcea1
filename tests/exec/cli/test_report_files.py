"""``--html`` of `plan` and `run`: a page about the plan, and what cannot be written."""

from __future__ import annotations

from pathlib import Path

import onnx

from tapestry_plan import Graph, Mesh, least_memory, ops, plan
from tapestry_plan.onnx import to_onnx
from tests.exec.cli.test_cli import call, refused


def test_plan_writes_a_report(folder: Path) -> None:
    result = call("plan", "model.onnx", "--mesh", 2, "--html", "report.html", "-q")
    assert result.exit_code == 0, result.stderr
    page = (folder / "report.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert 'data-lanes="predicted"' in page and 'data-lanes="measured"' not in page
    assert "on 2 devices" in page and "bytes moved" in result.stdout


def test_run_writes_what_was_measured_beside(folder: Path) -> None:
    result = call("run", "model.onnx", "--plan", "plan.json", "--html", "report.html", "-q")
    assert result.exit_code == 0, result.stderr
    page = (folder / "report.html").read_text("utf-8")
    assert 'data-lanes="measured"' in page and "spilled" not in page


def test_in_little_memory_the_report_is_of_the_plan_that_ran(folder: Path) -> None:
    g = Graph()
    x = g.input("x", (16, 16))
    waits = ops.exp(x, name="waits")
    both = ops.add(ops.tanh(waits, name="one"), ops.relu(x[::-1], name="other"), name="both")
    g.output(ops.add(ops.exp(both, name="last"), waits, name="sum"), "y")
    p = plan(g, Mesh(1), fuse=False)
    few = least_memory(p)
    onnx.save(to_onnx(g), folder / "small.onnx")
    (folder / "small.json").write_text(p.to_json())
    result = call("run", "small.onnx", "--plan", "small.json", "--memory", few[0], "--html", "report.html", "-q")
    assert result.exit_code == 0, result.stderr
    page = (folder / "report.html").read_text("utf-8")
    assert few[0] < max(p.peak_nbytes) and "spilled" in page and 'data-lanes="measured"' in page


def test_reports_that_cannot_be_written_are_refused_before_anything_is_planned(folder: Path) -> None:
    refused(call("plan", "model.onnx", "--html", "no/report.html"), "--html: the folder of 'no/report.html'", "make it")
    refused(call("run", "model.onnx", "--html", "."), "--html: '.' is a folder")
    refused(call("plan", "model.onnx", "--html", "model.onnx"), "--html 'model.onnx' is another file", "another name")
    told = call("run", "model.onnx", "--plan", "plan.json", "--html", "plan.json")
    refused(told, "--html 'plan.json' is another file of this command too")
    told = call("run", "model.onnx", "--trace", "out.json", "--html", "out.json")
    refused(told, "--html 'out.json' is another file of this command too")


def test_a_report_replaces_no_file_that_is_read(folder: Path) -> None:
    (folder / "x.npy").write_bytes(b"numbers")
    told = call("run", "model.onnx", "--input", "x=x.npy", "--html", "x.npy")
    refused(told, "--html 'x.npy' is another file of this command too; give another name")
    assert (folder / "x.npy").read_bytes() == b"numbers"
