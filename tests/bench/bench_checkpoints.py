"""What does a checkpoint take beside `numpy.save` of the same bytes?

python tests/bench/bench_checkpoints.py            prints the table
python tests/bench/bench_checkpoints.py --write    also writes it to tests/bench/results/bench_checkpoints.md

ResNet-50 on four devices, deployed, saves behind one stage after the other. The time is that of all devices' parts, one
after the other, until the checkpoint is valid: cells, sums of them, the arrays' descriptions and the manifest.
`numpy.save` writes the same arrays at the same moment, one file each, to a folder beside it, in every second round
before the checkpoint and else behind it: of code and cells that neither has used just now. Zarr's package writes them
to arrays of one chunk each, without a codec. Nothing is flushed to the disk by any of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded: times of one thread can be repeated

import numpy as np
import zarr

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parent)]

from bench_sets import RESULTS as SETS_RESULTS  # noqa: E402
from bench_sets import machine  # noqa: E402

from tapestry_exec import Checkpoints, deploy, open_checkpoint  # noqa: E402
from tapestry_exec.run.checkpoints.folders import sum_bytes  # noqa: E402
from tapestry_exec.run.checkpoints.saving import Stopover  # noqa: E402
from tapestry_plan import Graph, Mesh, ShardPlan, load_onnx, ops, plan  # noqa: E402
from tapestry_plan.onnx import light_model  # noqa: E402

RESULTS = SETS_RESULTS.with_name("bench_checkpoints.md")
DEVICES, ROUNDS, AIM = 4, 10, 1.5


Peer = Callable[[Path, list[Any]], None]


class Timed:
    """Adds up what saving takes, and what the peers take that write the same arrays there."""

    def __init__(self, there: Path, first: bool, peers: dict[str, Peer]) -> None:
        self.there, self.first, self.peers, self.save = there, first, peers, Stopover._save
        self.seconds = dict.fromkeys(("ours", *peers), 0.0)

    def _count(self, name: str, do: Callable[[], None]) -> None:
        begin = perf_counter()
        do()
        self.seconds[name] += perf_counter() - begin

    def __enter__(self) -> Timed:
        timer = self

        def timed(mine: Stopover, stop: Any) -> None:
            if timer.first:
                timer._count("ours", lambda: timer.save(mine, stop))
            cells = [mine._show(record) for record in mine._list_records(stop.cut)]
            for name, write in timer.peers.items():
                folder = timer.there / f"{name}.{mine.mine.device}"
                folder.mkdir(parents=True)
                timer._count(name, partial(write, folder, cells))
            if not timer.first:
                timer._count("ours", lambda: timer.save(mine, stop))

        Stopover._save = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        Stopover._save = self.save  # type: ignore[method-assign]


def save_with_numpy(folder: Path, cells: list[Any]) -> None:
    """The peer: a file for each array."""
    for k, array in enumerate(cells):
        np.save(f"{folder}/{k}.npy", array)


def save_with_zarr(folder: Path, cells: list[Any]) -> None:
    """The package that checkpoints could have been written with: an array of one chunk for each, without a codec."""
    for k, array in enumerate(cells):
        zarr.create_array(f"{folder}/{k}", data=array, chunks=array.shape, compressors=None, filters=None)


Row = tuple[str, int, int, dict[str, float]]


def measure_all(folder: Path, stages: int) -> Iterator[Row]:
    """Of stages of ResNet-50, and of a state that is larger."""
    graph = load_onnx(light_model("resnet50", seed=1))
    p = plan(graph, Mesh((DEVICES,)))
    chosen = [p.stages[k].node for k in np.linspace(2, len(p.stages) - 8, stages).astype(int)]
    yield from measure(folder, p, chosen, {"numpy": save_with_numpy, "zarr": save_with_zarr})
    for megabytes in (16, 128):
        g = Graph()
        g.output(ops.exp(ops.relu(g.input("x", (megabytes << 8, 1024)), name=f"{megabytes} MiB of cells")), "y")
        p = plan(g, Mesh((DEVICES,)), fuse=False)
        yield from measure(folder, p, [f"{megabytes} MiB of cells"], {"numpy": save_with_numpy})


def measure(folder: Path, p: ShardPlan, chosen: Sequence[str], peers: dict[str, Peer]) -> Iterator[Row]:
    """By stage: bytes, arrays, and median milliseconds: a checkpoint, its peers, and reading and comparing it."""
    given = [one for one in p.graph.stored.values() if one.kind == "input"]
    rng = np.random.default_rng(0)
    feeds = {x.name: rng.standard_normal(x.shape).astype(x.dtype) for x in given}
    with deploy(p, backend="serial") as placed:
        placed.run(feeds)
        for name in chosen:
            there, beside, times = folder / "there", folder / "beside", list[dict[str, float]]()
            for k in range(ROUNDS + 1):
                for one in (there, beside):
                    shutil.rmtree(one, ignore_errors=True)
                with Timed(beside, k % 2 == 0, peers) as timed:
                    placed.run(feeds, checkpoints=Checkpoints(there, after=[name]))
                begin = perf_counter()
                found = open_checkpoint(there)
                times.append({**timed.seconds, "opened": perf_counter() - begin})
            medians = {what: 1e3 * median(each[what] for each in times[1:]) for what in times[0]}
            yield name, found.nbytes, len(found.manifest.buffers), medians


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
        "| behind | MB | arrays | checkpoint, ms | numpy.save, ms | ratio | zarr, ms | opened and compared, ms |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {name} | {nbytes / 1e6:.1f} | {count} | {ms['ours']:.2f} | {ms['numpy']:.2f} "
            f"| {ms['ours'] / ms['numpy']:.2f} | {round(ms.get('zarr', 0), 1) or ''} | {ms['opened']:.1f} |"
            for name, nbytes, count, ms in rows
        ),
        "",
    ]
    text = "\n".join(lines)
    print(text)
    if asked.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
