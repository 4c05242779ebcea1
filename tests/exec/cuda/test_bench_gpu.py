"""The benchmark for GPUs runs to its end on a simulated one, so that it is ready where there is a real one."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tapestry_exec import TraceEvent
from tapestry_exec.run.trace import Phase

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "bench_gpu.py"


@pytest.mark.heavy(2)
def test_every_table_is_made_on_a_simulated_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--simulated"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    text = capsys.readouterr().out
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ") and not line.startswith("| case")]
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        f"## {title}"
        for title in (
            "Regions",
            "Copies beside work",
            "Plans' copies beside their work",
            "Epilogues",
            "Layers as plans",
            "Convolutions",
            "Launches",
            "Networks",
            "Beside PyTorch",
        )
    ]
    assert len(rows) >= 15 and all(float(row[1].replace(",", "")) > 0 for row in rows if "beside" not in row[0])
    assert all(0 <= float(row[3]) <= 1 for row in rows if row[0].startswith("| a plan, "))
    assert [row[0] for row in rows if "layers" in row[0]] == [
        "| 2 layers, 8×4×4",
        *(f"| layers, {n} devices, {steps} steps" for n, steps in ((1, 14), (4, 56))),
    ]
    assert "these figures mean nothing" in text


def test_the_share_of_copies_beside_products() -> None:
    """Two products that overlap, from 0 to 3 s; a copy with a pack from 2 to 4 s and an unpack from 1 to 2 s."""
    bench = runpy.run_path(str(SCRIPT))
    products = [TraceEvent(k, "compute", "m", k, float(k), 2.0, 0) for k in (0, 1)]
    phases = Phase("pack", 0, 2.0, 2.0), Phase("move", 1, 4.0, 0.0), Phase("unpack", 1, 1.0, 1.0)
    copy = TraceEvent(2, "copy", "m", 1, 1.0, 3.0, 8, phases)
    assert bench["busy"]([*products[::-1], copy]) == [(0.0, 3.0)]
    assert bench["beside"]([copy, *products]) == (2 / 3, 3.0)
    assert bench["beside"]([copy]) == (0.0, 3.0)
    assert bench["span"]([copy, *products]) == 3.0


def test_the_plans_that_are_timed_copy_between_all_devices() -> None:
    """Rows to columns: each of four to the three others in five of the six layers, of each of two chains."""
    bench = runpy.run_path(str(SCRIPT))
    assert bench["crossing"](bench["turned"](8)) >= 2 * 5 * 4 * 3
    assert bench["crossing"](bench["halved"](32)) >= 2 * 5 * 3


def test_figures_of_a_simulated_gpu_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--simulated", "--write"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(SCRIPT), run_name="__main__")
