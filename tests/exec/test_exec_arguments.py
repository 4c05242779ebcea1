"""Every public function and constructor of tapestry_exec with each argument replaced by wrong values."""

from __future__ import annotations

import atexit
import inspect
import math
import shutil
import tempfile
from functools import cache
from typing import Any

import numpy as np
import pytest

import tapestry_exec
from tapestry_exec import (
    BackendUnavailable,
    Checkpoints,
    CupyBackend,
    DaskBackend,
    NcclBackend,
    NumpyBackend,
    ProcessBackend,
    RawKernel,
    RunResult,
    SerialBackend,
    SimulatedBackend,
    StepFailed,
    check_plan,
    deploy,
    difference,
    evaluate,
    open_checkpoint,
    run,
    write_trace,
)
from tapestry_plan import Graph, Mesh, ShardPlan, ops, plan
from tests.wrong_arguments import Row, ask, faults_of, signature_of

X = np.ones((4, 3), np.float32)


@cache
def planned() -> ShardPlan:
    g = Graph()
    g.output(ops.relu(g.input("x", (4, 3)), name="act"), "y")
    return plan(g, Mesh((2,)))


@cache
def saved() -> str:
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    run(planned(), {"x": X}, checkpoints=Checkpoints(folder, after=["act"]))
    return folder


@cache
def ran() -> RunResult:
    return run(planned(), {"x": X})


def kernel() -> dict[str, Any]:
    return {"source": "", "entry": "relu", "launch": lambda inputs, outputs, shard: None}


INPUTS = ({}, {"x": X, "none": X}, {"x": 5}, {"x": "x"}, {"x": X[:2]}, {"x": X.astype("float64")}, {5: X})
ROWS: dict[str, Row] = {
    "Checkpoints": Row(
        Checkpoints,
        lambda: {"path": "there", "after": ["act"]},
        takes={"path": "str", "after": "Sequence"},
        refuses={"seconds": (0, -1.0, math.nan), "keep": (0, -1), "after": ([5], [None])},
    ),
    "CupyBackend": Row(
        CupyBackend,
        takes={"devices": "Sequence | None", "cupy": "None"},
        raises=(BackendUnavailable,),
        skips=["capture"],
    ),
    "DaskBackend": Row(
        DaskBackend, takes={"client": "str | None"}, refuses={"retries": (-1,), "patience": (0.0, -1.0)}
    ),
    "NcclBackend": Row(
        NcclBackend, takes={"devices": "Sequence | None"}, raises=(BackendUnavailable,), skips=["options"]
    ),
    "NumpyBackend": Row(NumpyBackend, refuses={"threads": (0, 1)}),
    "ProcessBackend": Row(ProcessBackend, refuses={"retries": (-1,), "patience": (0.0, -1.0)}),
    "RawKernel": Row(RawKernel, kernel, takes={"launch": "Callable"}),
    "SimulatedBackend": Row(SimulatedBackend, lambda: {"gpus": 1}, refuses={"gpus": (0, -1)}, skips=["options"]),
    "check_plan": Row(check_plan, lambda: {"plan": planned()}),
    "deploy": Row(
        deploy,
        lambda: {"shard_plan": planned()},
        refuses={
            "constants": ({"none": X}, {5: X}),
            "backend": ("none",),
            "memory_nbytes": (-1,),
            "ops": ({"x": 5}, {"x": None}),
            "carry": ({"none": "x"}, {"y": "none"}, {5: "x"}),
            "outputs": (["none"], [5], "y"),
        },
        says={"memory_nbytes": "memory"},
    ),
    "difference": Row(difference, lambda: {"found": X, "reference": X}),
    "evaluate": Row(
        evaluate,
        lambda: {"graph": planned().graph, "inputs": {"x": X}},
        refuses={"inputs": INPUTS, "constants": ({"none": X}, {5: X}), "outputs": (["none"], [5])},
        says={"inputs": "input", "outputs": "outputs|no tensor"},
    ),
    "open_checkpoint": Row(
        open_checkpoint,
        lambda: {"path": saved()},
        refuses={"path": ("none", "")},
        says={"path": "path|checkpoint"},
    ),
    "run": Row(
        run,
        lambda: {"shard_plan": planned(), "inputs": {"x": X}},
        takes={"trace": "str | None", "progress": "Callable | None"},
        refuses={
            "inputs": INPUTS,
            "constants": ({"none": X}, {5: X}),
            "backend": ("none",),
            "memory_nbytes": (-1,),
            "trace": ("/none/none",),
            "ops": ({"x": 5}, {"x": None}),
            "resume": ("none", ""),
            "outputs": ({"none": X}, {"y": X}, {"y": None}),
        },
        says={
            "inputs": "input",
            "progress": "progress|Stranger",
            "memory_nbytes": "memory",
            "resume": "resume|checkpoint",
            "outputs": "output",
        },
        raises=(StepFailed,),
    ),
    "write_trace": Row(
        write_trace,
        lambda: {"timeline": ran().timeline, "path": "trace.json"},
        refuses={"path": ("/none/none",), "timeline": ([5],), "clock_error": (-1.0, float("nan"))},
        says={"path": "path|trace"},
    ),
}
NOT_WALKED = {
    "Backend": "a protocol",
    "Checkpoint": "open_checkpoint gives it; wrong arguments are in run/test_layout_from_checkpoints.py",
    "Deployment": "deploy makes it; its run is walked as run is",
    "MpiBackend": "takes a communicator of mpi4py's, which is not loaded here",
    "OnnxruntimeBackend": "takes nothing; run calls its methods",
    "SerialBackend": "takes nothing; run calls its methods",
    "DeviceMemory": "a protocol",
    "Fault": "run makes it",
    "Phase": "a backend makes it",
    "RunResult": "run makes it",
    "StagedResult": "run_stages makes it",
    "run_stages": "run, for each stage; wrong inputs are in tests/plan/onnx/test_whole.py",
    "TraceEvent": "run makes it",
    "Wait": "run makes it",
    "calibrate": "it takes seconds; wrong arguments are in run/test_calibration.py",
}


def test_each_exported_name_is_walked() -> None:
    each = {name: getattr(tapestry_exec, name) for name in tapestry_exec.__all__}
    found = {
        name
        for name, one in each.items()
        if inspect.isfunction(one) or (inspect.isclass(one) and not issubclass(one, BaseException))
    }
    assert found == ROWS.keys() | NOT_WALKED.keys(), "give a row that calls it, or a reason in NOT_WALKED"
    assert not ROWS.keys() & NOT_WALKED.keys() and not signature_of(SerialBackend)


@pytest.mark.parametrize("name", ROWS)
def test_a_wrong_argument_is_refused_by_name(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a trace may be written
    row = ROWS[name]
    if name != "CupyBackend":  # which needs a GPU
        ask(row, row.given())
    assert not faults_of(name, row)
