"""Wrong calls: each ends with one line that names the place, what is wanted and what to do, and with status 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.exec.cli.test_cli import call, refused

LINK = "{latency_seconds = 1e-6, nbytes_per_second = 1e10}"
DEVICE = "{flop_per_second = 1e12, memory_nbytes_per_second = 1e11}"
PLANNED = ("plan", "model.onnx", "--mesh", "2x2")
MACHINES = {
    "no shape": ("names = ['x']", "field 'shape' is missing; give the devices along each axis"),
    "unknown field": ("shape = [2]\nlinks = {}", "there is no field 'links'; known fields: "),
    "negative bandwidth": (
        "shape = [2]\nlink = {nbytes_per_second = -1e9}",
        "link: Link: nbytes_per_second is -1000000000.0",
    ),
    "missing rate": (
        "shape = [2]\ndevice = {flop_per_second = 1e12}",
        "'memory_nbytes_per_second' is missing; give it",
    ),
    "missing latency": ("shape = [2]\nlink = {nbytes_per_second = 1e9}", "link: 'latency_seconds' is missing; give it"),
    "no number": ("shape = [2]\ndevice = {flop_per_second = 'fast'}", "device: Device: flop_per_second"),
    "no rate": ("shape = [2]\ndevice = {flop_per_second = 0.0}", "device: Device: flop_per_second is 0.0"),
    "negative latency": ("shape = [2]\nlink = {latency_seconds = -1.0}", "link: Link: latency_seconds is -1.0"),
    "unknown rate": ("shape = [2]\nlink = {bandwidth = 1e9}", "link: there is no field 'bandwidth'; known fields: "),
    "infinite rate": ("shape = [2]\nlink = {nbytes_per_second = inf}", "link: Link: nbytes_per_second is inf"),
    "no memory": ("shape = [2]\ndevice = {memory_nbytes = 0}", "device: Device: memory_nbytes is 0, it must be > 0"),
    "one device": (f"shape = [2]\ndevice = [{DEVICE}]", "device has 1 entries"),
    "wrong device": (
        f"shape = [2]\ndevice = [{DEVICE}, {{launch_seconds = -1.0}}]",
        "device[1]: Device: launch_seconds is -1.0",
    ),
    "link of no axis": (
        f"shape = [2, 2]\nlink.x = {LINK}\nlink.z = {LINK}",
        "link has 'z', which is not an axis of the mesh; known axes: 'x', 'y'",
    ),
    "axis without link": (f"shape = [2, 2]\nlink.x = {LINK}", "link has none for axis 'y'"),
    "links in a ring": ("shape = [2, 2]\nlink.x = 'y'\nlink.y = 'x'", "is that of axis 'y', which has none"),
    "names": ("shape = [2, 2]\nnames = ['x']", "names"),
    "no mesh": ("shape = [0]", "axis 0 of (0,) has 0 devices; every axis needs at least 1"),
    "no TOML": ("shape = [", "not TOML"),
    "a host": ("shape = [2]\nhost = 3", "host is 3; give a table of latency_seconds, nbytes_per_second"),
}


@pytest.mark.parametrize("name", MACHINES)
def test_machines_that_cannot_be(name: str, folder: Path) -> None:
    """Each names the file, and the place in it."""
    text, part = MACHINES[name]
    (folder / "mine.toml").write_text(text)
    refused(call("plan", "model.onnx", "--machine", "mine.toml"), "machine mine.toml", part)


CALLS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("plan", "none.onnx"), ("there is no file 'none.onnx'",)),
    (("plan", "x.npy"), ("x.npy",)),
    (("plan",), ("Missing argument 'MODEL'",)),
    (("plan", "model.onnx", "more.onnx"), ("unexpected extra argument", "more.onnx")),
    ((*PLANNED, "--machine", "none.toml"), ("machine none.toml", "there is no file", "tapestry calibrate")),
    ((*PLANNED, "--machine", "h100"), ("there is no machine 'h100'", "'h100x8'", "a file that ends in .toml")),
    ((*PLANNED, "--fix", "cnv=h:2"), ("no operator 'cnv'", "'conv'")),
    ((*PLANNED, "--fix", "conv=hh:2"), ("'hh'", "'h'")),
    ((*PLANNED, "--fix", "conv=h:z"), ("'z'", "'x'")),
    ((*PLANNED, "--fix", "conv"), ("OPERATOR=AXIS:PARTS", "conv=h:2,w:2")),
    ((*PLANNED, "--forbid", "cnv=h:2"), ("no operator 'cnv'", "'conv'")),
    ((*PLANNED, "--layout", "xx=0:2"), ("'xx'", "'x'")),
    ((*PLANNED, "--layout", "x=9:2"), ("9",)),
    ((*PLANNED, "--layout", "x=7[:1]"), ("7", "0 to 3")),
    ((*PLANNED, "--explain", "nothing"), ("view or output 'nothing'", "'conv'")),
    ((*PLANNED, "--units", "roman"), ("--units", "'roman'", "'human', 'exact'")),
    ((*PLANNED, "--mesh", "2y2"), ("--mesh", "'2y2'", "4 or 2x2")),
    (("demo", "--fix", "cnv=h:2"), ("no operator 'cnv'",)),
    (("demo", "--machine", "none.toml"), ("machine none.toml",)),
    (("demo", "model.onnx"), ("unexpected extra argument",)),
    (("run", "model.onnx", "--plan", "none.json"), ("there is no file 'none.json'",)),
    (("run", "model.onnx", "--backend", "gpu"), ("--backend", "'gpu'", "'numpy'")),
    (("explain", "none.json", "conv"), ("there is no file 'none.json'",)),
    (("explain", "plan.json", "conv", ""), ("view or output ''",)),
    (("explain", "plan.json"), ("Missing argument 'NAME...'",)),
    (("explain", "plan.json", "cnv"), ("view or output 'cnv'", "'conv'")),
    (("transfers", "plan.json", "--from", "4"), ("4", "devices 0 to 3")),
    (("transfers", "plan.json", "--tensor", "nothing"), ("no tensor is 'nothing'",)),
    (("transfers", "plan.json", "--consumer", "nothing"), ("no consumer is 'nothing'", "'act'")),
    (("verify", "x.npy"), ("'x.npy'", "plan document")),
    (("verify", "cut.json"), ("'cut.json'", "not a JSON document")),
    (("verify", "edited.json"), ("'edited.json'", "SHA-256")),
    (("export", "model.onnx", "--to", "jacks"), ("'jacks'", "'jax'")),
    (("export", "none.onnx", "--to", "dask"), ("there is no file 'none.onnx'",)),
    (("export", "model.onnx"), ("Missing option '--to'",)),
    (("export", "model.onnx", "--to", "dask", "--output", "none/a.py"), ("none",)),
    (("pareto", "none.onnx"), ("there is no file 'none.onnx'",)),
    (("pareto", "model.onnx", "--points", "0"), ("points", "0")),
    (("pareto", "model.onnx", "--mesh", "0"), ("--mesh", "0")),
    (("pareto", "model.onnx", "--fix", "conv=hh:2"), ("'hh'", "'h'")),
    (("pareto", "model.onnx", "--memory", "1GB"), ("No such option", "--memory")),
    (("demo", "--mesh", "2y2"), ("--mesh", "'2y2'")),
    (("demo", "--seed", "-1"), ("--seed is -1",)),
    (("transfers", "plan.json", "--producer", "nothing"), ("no producer is 'nothing'",)),
    (("transfers", "none.json"), ("there is no file 'none.json'",)),
    (("verify", "none.json"), ("there is no file 'none.json'",)),
    (("verify", "."), ("is a folder; give a file in it",)),
    (("calibrate",), ("Missing argument 'FILE.toml'",)),
    (("calibrate", "mine.toml", "--devices", "0"), ("--devices", "0")),
    (("calibrate", "mine.toml", "--backend", "gpu"), ("--backend", "'gpu'", "'numpy'")),
    (("schema", "plan", "graph"), ("unexpected extra argument", "graph")),
    (("schema", ""), ("''", "'plan'")),
    (("schema", "Plan"), ("'Plan'", "'plan'")),
    (("schema", "plan", "--units", "exact"), ("No such option", "--units")),
    (("overlap", "A[4]"), ("needs two views or more, 0 given",)),
    (("overlap", "A[4]; A; B"), ("'B'",)),
    (("overlap", "A[4]; A[:2]; A[2:]", "--table", "--json"), ("--table is text and --json is not",)),
    (("calibrate", "mine.json"), ("'mine.json'", "does not end in .toml")),
    (("calibrate", "none/mine.toml"), ("none", "does not exist")),
    (("schema", "plans"), ("'plans'", "'plan'")),
    (("ops", "convv"), ("no operator 'convv'; nearest of", "'conv'")),
    (("ops", "conv", "relu", "--shapes", "4"), ("--shapes and --attr are for one operator",)),
    (("ops", "conv", "--shapes", "4y4"), ("--shapes '4y4'", "write for example 32x64,64x16")),
    (("ops", "gemm", "--shapes", "4x6"), ("gemm has 2 to 3 operands, 1 given; call it as gemm(a, b",)),
    (("ops", "gemm", "--shapes", "4x6,5x6"), ("6", "5")),
    (("ops", "softmax", "--attr", "axes=1"), ("softmax has no attribute 'axes'", "'axis'")),
    (("ops", "softmax", "--attr", "axis"), ("--attr 'axis' is not of the form name=value",)),
    (("ops", "softmax", "--attr", "axis=7"), ("7",)),
    (("ops", "top_k", "--shapes", "4x6"), ("top_k needs its attribute 'k'; give it with --attr k=",)),
    (("show", ""), ("names nothing to show",)),
    (("show", "mathmul"), ("no operator 'mathmul'", "'matmul'")),
    (("show", "none.onnx"), ("there is no file 'none.onnx'",)),
    (("show", "none.json"), ("there is no file 'none.json'",)),
    (("show", "cut.json"), ("'cut.json'", "not a JSON document")),
    (("ops", "Attention"), ("there is no operator 'Attention'", "'attention'", "`tapestry ops --onnx`")),
    (("show", "model.onnx", "--op", "cnv"), ("--op: there is no operator 'cnv'", "'conv'")),
    (("show", "model.onnx", "--parts", "h:2"), ("name it with --op",)),
    (("show", "model.onnx", "--shapes", "4x4"), ("--shapes means nothing for 'model.onnx'; leave it out",)),
    (("show", "model.onnx", "--op", "conv", "--parts", "hh:2"), ("'hh'", "'h'")),
    (("show", "gemm", "--parts", "m:99"), ("99", "m")),
    (("show", "gemm", "--parts", "m:x"), ("axis m needs a number of parts; write for example m:2",)),
    (("show", "gemm", "--parts", "m"), ("--parts",)),
    (("show", "gemm", "--op", "conv"), ("--op means nothing for 'gemm'; leave it out",)),
    (("show", "Stripe(3, 2)", "--parts", "m:2"), ("--parts cuts an operator or a projection",)),
    (("show", "Stripe(3, 2)", "-o", "none/a.svg"), ("--svg", "there is no directory", "none")),
    (("show", "Stripe(-3, 2)"), ("show: ", "Stripe", "-3")),
    (("show", "Stripe(3, 2) + 1"), ("means nothing here",)),
    (("show", "Stripe(3, 2) & 1"), ("& needs sets; '1' is none",)),
    (("show", "3"), ("'3' is not a view, a set or a projection",)),
    (("show", "Sett(Stripe(3, 2)).elements(0, 9)"), ("has no method 'elements'",)),
    (("show", "Sett.fill(3)"), ("Sett makes no set by 'fill'", "'interval'")),
    (("show", "Region((4, 6), [Stripe(1, 1)])"), ("1 setts for shape (4, 6); give one sett for each axis",)),
    (("show", "Sett(Stripe(3, 2)); A[4]; A"), ("show views together, or sets together, or one projection",)),
    (("show", "projection(h=4)"), ("has axes with sizes, reads and writes by name, for example projection(",)),
    (("show", "projection(h=0, reads=[h], writes=[h])"), ("axis h has size 0; give an integer >= 1",)),
    (("show", "projection(h=4, reads=h, writes=[h])"), ("reads is 'h'; give a list of coordinates",)),
    (("show", "projection(h=4, reads=[h * h], writes=[h])"), ("'h * h' is not a linear form of axes", "'h'")),
    (("show", "projection(h=4, reads=[k], writes=[h])"), ("'k' is not a linear form of axes", "known axes: 'h'")),
    (("show", "projection(h=4, reads=[h // 2, h % 3], writes=[h])"), ("divided by 2 and by 3",)),
    (("show", "open('x').read()"), ("there is no function 'open'",)),
    (("show", "().__class__.__bases__"), ("means nothing here",)),
    (("overlap", "Stripe(3, 2); Stripe(1, 1)"), ("'Stripe(3, 2)' is not a view",)),
    (("overlap", "A[4]; A.reshap(2, 2); A"), ("views have no method 'reshap'", "'reshape'")),
    (("--unknown", "plan"), ("No such option", "--unknown")),
]


@pytest.mark.parametrize(("words", "parts"), CALLS, ids=[" ".join(words)[:60] for words, _ in CALLS])
def test_wrong_calls(words: tuple[str, ...], parts: tuple[str, ...], folder: Path) -> None:
    text = (folder / "plan.json").read_text()
    (folder / "cut.json").write_text(text[:-40])
    (folder / "edited.json").write_text(json.dumps({**json.loads(text), "seconds": 1.0}))
    before = sorted(folder.iterdir())
    result = call(*words)
    result.stderr_bytes = b"\n".join(
        line for line in result.stderr_bytes.split(b"\n") if not line.startswith(b"reading SqueezeNet")
    )
    refused(result, *parts)
    assert sorted(folder.iterdir()) == before, "nothing is written"


def test_there_are_many() -> None:
    assert len(CALLS) + len(MACHINES) >= 40
