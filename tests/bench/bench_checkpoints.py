"""What does a checkpoint take beside `numpy.save` of the same bytes?

python tests/bench/bench_checkpoints.py            prints the table
python tests/bench/bench_checkpoints.py --write    also writes it to tests/bench/results/bench_checkpoints.md

ResNet-50 on four devices, deployed, saves behind one stage after the other. The time is that of all devices' parts, one
after the other, until the checkpoint is valid: cells, sums of them, the arrays' descriptions and the manifest.
`numpy.save` writes the same arrays, one file each, in turns with it, to the same folder. Nothing is flushed to the disk
by either.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded: times of one thread can be repeated

import numpy as np

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parent)]

from bench_sets import RESULTS as SETS_RESULTS  # noqa: E402
from bench_sets import machine  # noqa: E402

from tapestry_exec import Checkpoints, deploy, open_checkpoint  # noqa: E402
from tapestry_exec.run.checkpoints.folders import map_cells, sum_bytes  # noqa: E402
from tapestry_exec.run.checkpoints.saving import Stopover  # noqa: E402
from tapestry_plan import Graph, Mesh, ShardPlan, load_onnx, ops, plan  # noqa: E402
from tapestry_plan.onnx import light_model  # noqa: E402

RESULTS = SETS_RESULTS.with_name("bench_checkpoints.md")
DEVICES, ROUNDS, AIM = 4, 9, 1.5


class Timed:
    """Adds up what saving takes."""

    def __init__(self) -> None:
        self.seconds, self.save = 0.0, Stopover._save

    def __enter__(self) -> Timed:
        timer = self

        def timed(mine: Stopover, stop: Any) -> None:
            begin = perf_counter()
            timer.save(mine, stop)
            timer.seconds += perf_counter() - begin

        Stopover._save = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        Stopover._save = self.save  # type: ignore[method-assign]


Row = tuple[str, int, int, float, float, float]


def measure_all(folder: Path, stages: int) -> Iterator[Row]:
    """Of stages of ResNet-50, and of a state that is larger."""
    graph = load_onnx(light_model("resnet50", seed=1))
    p = plan(graph, Mesh((DEVICES,)))
    chosen = [p.stages[k].node for k in np.linspace(2, len(p.stages) - 8, stages).astype(int)]
    yield from measure(folder, p, chosen)
    for megabytes in (16, 128):
        g = Graph()
        g.output(ops.exp(ops.relu(g.input("x", (megabytes << 8, 1024)), name=f"{megabytes} MiB of cells")), "y")
        yield from measure(folder, plan(g, Mesh((DEVICES,)), fuse=False), [f"{megabytes} MiB of cells"])


def measure(folder: Path, p: ShardPlan, chosen: Sequence[str]) -> Iterator[Row]:
    """By stage: bytes, arrays, and median milliseconds of a checkpoint, of numpy.save, and of reading and comparing."""
    given = [one for one in p.graph.stored.values() if one.kind == "input"]
    rng = np.random.default_rng(0)
    feeds = {x.name: rng.standard_normal(x.shape).astype(x.dtype) for x in given}
    with deploy(p, backend="serial") as placed:
        placed.run(feeds)
        for name in chosen:
            there, times = folder / "there", list[tuple[float, float, float]]()
            for _ in range(ROUNDS + 1):
                shutil.rmtree(there, ignore_errors=True)
                with Timed() as timed:
                    placed.run(feeds, checkpoints=Checkpoints(there, after=[name]))
                begin = perf_counter()
                found = open_checkpoint(there)
                opened = perf_counter() - begin
                arrays = [np.array(map_cells(Path(found.path), one)) for one in found.manifest.buffers]
                (there / "saved").mkdir()
                begin = perf_counter()
                for k, array in enumerate(arrays):
                    np.save(there / "saved" / f"{k}.npy", array)
                times.append((timed.seconds, perf_counter() - begin, opened))
            ours, numpy, opened = (1e3 * median(each) for each in zip(*times[1:], strict=True))
            yield name, found.nbytes, len(arrays), ours, numpy, opened


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--stages", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = list(measure_all(Path(folder), asked.stages))
        big = np.random.default_rng(0).random(1 << 24)
        begin = perf_counter()
        sum_bytes(big)
        rate = big.nbytes / (perf_counter() - begin) / 1e9
    lines = [
        "# Checkpoints beside numpy.save",
        "",
        f"`python tests/bench/bench_checkpoints.py --write`, {date.today()}, {machine()}.",
        f"ResNet-50, {DEVICES} devices in one loop, deployed; medians of {ROUNDS} rounds. Aim: at most "
        f"{AIM} times numpy.save of the same arrays. Sums of bytes: {rate:.1f} GB/s.",
        "",
        "| behind | MB | arrays | checkpoint, ms | numpy.save, ms | ratio | opened and compared, ms |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {name} | {nbytes / 1e6:.1f} | {count} | {ours:.1f} | {numpy:.1f} | {ours / numpy:.2f} | {opened:.1f} |"
            for name, nbytes, count, ours, numpy, opened in rows
        ),
        "",
    ]
    text = "\n".join(lines)
    print(text)
    if asked.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
