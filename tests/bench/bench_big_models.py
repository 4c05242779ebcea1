"""Models of billions of numbers: what importing and planning them takes; each row is a process.

python tests/bench/bench_big_models.py            prints the table
python tests/bench/bench_big_models.py --write    also writes it to tests/bench/results/bench_big_models.md

The models are written first, operator by operator as exporters do, with weights in a file that is as long as they need
and has holes for them (`tests/layered_models.py`): a file system without such files has no room for them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import onnx  # noqa: E402
from bench_sets import RESULTS as SETS_RESULTS  # noqa: E402
from bench_sets import machine  # noqa: E402
from layered_models import llama, store_outside, vit  # noqa: E402

from tapestry_plan import Device, Link, Mesh, load_onnx  # noqa: E402
from tapestry_plan.onnx import light_model  # noqa: E402

RESULTS = SETS_RESULTS.with_name("bench_big_models.md")
H100 = {"link": Link(5e-6, 3e11), "device": Device(4e14, 3e12)}
AIMS = {"import CPU s": 10.0, "import MB": 500.0, "plan CPU s": 6.0, "gap %": 0.5}


def store_inside(model: Any, path: Path) -> int:
    """Write a model with its weights in it; the bytes that it has."""
    onnx.save(model, path)
    return path.stat().st_size


class Case(NamedTuple):
    """A model, the devices that it is planned for, what its import may take, and where its weights lie."""

    model: Callable[[], Any]
    mesh: Mesh
    import_seconds: float = AIMS["import CPU s"]
    store: Callable[[Any, Path], int] = store_outside


CASES = {
    "Llama 2, 7 billion": Case(llama, Mesh((8,), **H100)),  # type: ignore[arg-type]
    "Llama 2, 7 billion, 2×4": Case(llama, Mesh((2, 4), **H100)),  # type: ignore[arg-type]
    "ViT-L/16": Case(partial(vit, 24, batch=1, width=1024), Mesh((8,), **H100)),  # type: ignore[arg-type]
    "DenseNet-121": Case(partial(light_model, "densenet121", seed=1), Mesh((8,), **H100), 1.0, store_inside),  # type: ignore[arg-type]
}


def peak_mbytes() -> float:
    """The most memory that this process had, what it mapped of files among it."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def measure(name: str, path: str) -> dict[str, Any]:
    """One row."""
    from tapestry_plan import plan

    begin, cpu = time.perf_counter(), time.process_time()
    graph = load_onnx(path)
    imported, import_cpu = time.perf_counter() - begin, time.process_time() - cpu
    import_mbytes = peak_mbytes()
    begin = time.process_time()
    p = plan(graph, CASES[name].mesh)
    return {
        "operators": len(graph.nodes),
        "import s": imported,
        "import CPU s": import_cpu,
        "import MB": import_mbytes,
        "plan CPU s": time.process_time() - begin,
        "plan MB": peak_mbytes(),
        "gap %": 100 * p.gap,
        "modeled ms": p.seconds * 1e3,
        "bytes moved": p.nbytes_moved,
        "peak GB a device": max(p.peak_nbytes) / 1e9,
    }


def in_own_process(name: str, folder: Path) -> tuple[int, dict[str, Any]]:
    """The bytes that a model's weights come to, and its row, on one thread."""
    path = folder / "model.onnx"
    nbytes = CASES[name].store(CASES[name].model(), path)
    environment = {**os.environ, **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")}
    command = [sys.executable, str(HERE), "--only", name, "--path", str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, env=environment)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return nbytes, row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"also write the table to {RESULTS.name}")
    for option in ("--only", "--path"):
        parser.add_argument(option, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measure(args.only, args.path)))
        return
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        for name in CASES:
            nbytes, row = in_own_process(name, Path(place))
            if not lines:
                heads = ["model", "weights GB", *row]
                lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
                print("\n".join(lines))
            cells = [f"{value:,}" if isinstance(value, int) else f"{value:,.2f}" for value in row.values()]
            aims = {**AIMS, "import CPU s": CASES[name].import_seconds}
            cells = [f"**{c}**" if row[key] > aims.get(key, 1e99) else c for key, c in zip(row, cells, strict=True)]
            lines.append(f"| {name} | {nbytes / 1e9:.1f} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    if args.write:
        head = [f"# Big models, {date.today().isoformat()}", "", f"{machine()}, one thread; each row is a process.", ""]
        told = ", ".join(f"{key} {value:g}" for key, value in AIMS.items())
        notes = [
            "",
            f"Aims: {told}, of DenseNet's import 1 s; what is above one is bold. Llama: 32 layers of width 4,096, half",
            "precision, 2,048 tokens, RMSNorm, rotary embeddings and masks written out; ViT in single precision, batch",
            "1; DenseNet-121 as the onnx package has it, batch 1, with weights in the file. Devices of 4·10¹⁴",
            "flop/s, 3·10¹² B/s, links of 5 µs and 3·10¹¹ B/s. Memory is what a process had at most, and mapped.",
            f"Load of the machine in the last 15 minutes: {os.getloadavg()[2]:.0f}.",
        ]
        RESULTS.write_text("\n".join([*head, *lines, *notes]) + "\n")


if __name__ == "__main__":
    main()
