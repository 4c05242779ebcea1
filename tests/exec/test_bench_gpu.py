"""The benchmark for GPUs runs to its end on a simulated one, so that it is ready where there is a real one."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "bench" / "bench_gpu.py"


def test_every_table_is_made_on_a_simulated_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--simulated"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    text = capsys.readouterr().out
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ") and not line.startswith("| case")]
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        f"## {title}" for title in ("Regions", "Copies beside work", "Epilogues", "Convolutions", "Launches")
    ]
    assert len(rows) >= 15 and all(float(row[3]) > 0 for row in rows if "beside" not in row[0])
    assert "these figures mean nothing" in text


def test_figures_of_a_simulated_gpu_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--simulated", "--write"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(SCRIPT), run_name="__main__")
