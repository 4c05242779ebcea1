"""Is the cost model right about what takes long? Modeled against measured work and transfers of two networks.

python tests/bench/bench_model.py            prints the table
python tests/bench/bench_model.py --write    also writes it to tests/bench/results/bench_model.md

The rates are those that `tapestry calibrate` measures on this machine first. A plan is made for them, run by NumPy's
backend, and each operator's shards are taken from the run's timeline: the device that takes longest, at its fastest of
several runs. Ranks are compared (Spearman's correlation), as a planner chooses between alternatives.

Of transfers each stage counts what the busiest device packs and unpacks for it, with a thread or a process for each
device; how long a device waits for another one's work is no part of it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded: times of one thread can be repeated

import numpy as np
from msgspec.structs import replace

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from bench_sets import RESULTS as SETS_RESULTS  # noqa: E402
from bench_sets import machine  # noqa: E402
from layered_models import gpt  # noqa: E402

from tapestry_exec import NumpyBackend, ProcessBackend, calibrate, deploy, run  # noqa: E402
from tapestry_plan import Device, Graph, Mesh, load_onnx, plan  # noqa: E402
from tapestry_plan.onnx import light_model  # noqa: E402

RESULTS = SETS_RESULTS.with_name("bench_model.md")
RUNS, TRANSFER_RUNS, AIM = 12, 25, 0.9
MESHES = (min(os.cpu_count() or 1, 4), 4)
"""Numbers of devices whose transfers are compared: first as many as there are cores."""
MODELS: dict[str, Callable[[], Graph]] = {
    "ResNet-50": lambda: load_onnx(light_model("resnet50")),
    "GPT, 2 layers of width 512, 256 tokens": lambda: load_onnx(gpt(2, length=256, width=512, inner=2048)),
}


class Found(NamedTuple):
    """Of every operator its modeled and its measured seconds."""

    modeled: list[float]
    measured: list[float]


def measure(graph: Graph, mesh: Mesh) -> Found:
    """Plan a graph for a mesh, run it, and read off the work of each operator."""
    p = plan(graph, mesh, expand=False)
    rng = np.random.default_rng(0)
    given = p.graph.stored.values()
    inputs = {one.name: rng.random(one.shape, np.float32).astype(one.dtype) for one in given if one.kind == "input"}
    best: dict[tuple[str, int], float] = {}
    for _ in range(RUNS):
        for event in run(p, inputs).timeline:
            if event.kind == "compute":
                key = event.node, event.device
                best[key] = min(best.get(key, float("inf")), event.seconds)
    stages = [stage for stage in p.stages if stage.work_seconds]
    devices = range(mesh.size)
    slowest = [max(best.get((stage.node, device), 0.0) for device in devices) for stage in stages]
    return Found([max(stage.work_seconds) for stage in stages], slowest)


def measure_transfers(graph: Graph, mesh: Mesh, backend: Any) -> Found:
    """Of every stage that moves bytes its modeled transfer, and what the busiest device does for it.

    That is packing, unpacking and merging of parts, which the model counts as well; each counts at its fastest.
    """
    p = plan(graph, mesh, expand=False)
    rng = np.random.default_rng(0)
    given = p.graph.stored.values()
    inputs = {one.name: rng.random(one.shape, np.float32).astype(one.dtype) for one in given if one.kind == "input"}
    best: dict[tuple[str, int], float] = {}
    with deploy(p, backend=backend) as placed:
        fastest: dict[tuple[int, str, str, int], float] = {}
        for _ in range(TRANSFER_RUNS):
            for event in placed.run(inputs).timeline:
                done = [(phase.kind, phase.device, phase.seconds) for phase in event.phases]
                for kind, device, seconds in [*done, (event.kind, event.device, event.seconds)][: len(done) or None]:
                    key = event.step, event.node, kind, device
                    fastest[key] = min(fastest.get(key, float("inf")), seconds)
    for (_, node, kind, device), seconds in fastest.items():
        if kind in ("pack", "unpack", "reduce"):
            best[node, device] = best.get((node, device), 0.0) + seconds
    stages = [stage for stage in p.stages if sum(stage.nbytes_received)]
    modeled = [stage.seconds - max(stage.work_seconds, default=0.0) for stage in stages]
    return Found(modeled, [max(best.get((stage.node, d), 0.0) for d in range(mesh.size)) for stage in stages])


def transfer_rows(machine_found: Mesh) -> list[str]:
    """A line of the table for each network and way of running."""
    lines = []
    # Devices of one process copy cells once, others pack and unpack them. Devices that share a core are no measure of
    # the model: what goes between them is there sooner, and 25 runs find the luckiest order of turns.
    apart = replace(machine_found, link=calibrate("processes").ports[0])
    for name, make in MODELS.items():
        for word, backend, rates in (
            ("threads", NumpyBackend(threads=True), machine_found),
            ("processes", ProcessBackend(processes=max(MESHES)), apart),
        ):
            for devices in sorted(set(MESHES)):
                found = measure_transfers(make(), replace(rates, shape=(devices,)), backend)
                rank, total = correlate_ranks(*found), " / ".join(f"{sum(each) * 1e3:.2f}" for each in found)
                told = f"{rank:.3f}" if rank >= AIM or devices != MESHES[0] else f"**{rank:.3f}**"
                kinds = len(set(found.modeled))
                lines.append(
                    f"| {name} | {word} | {devices} | {len(found.modeled)}, {kinds} | {told} | "
                    f"{tell_most(found.modeled)} | {total} ms |"
                )
    return lines


def tell_most(modeled: Sequence[float]) -> str:
    """The highest rank correlation that can be, where some modeled times are equal and no measured ones are."""
    return f"{correlate_ranks(modeled, np.argsort(np.argsort(modeled, kind='stable'), kind='stable').tolist()):.3f}"


def correlate_ranks(one: Sequence[float], two: Sequence[float]) -> float:
    """Spearman's rank correlation; equal values have the mean of their ranks."""

    def rank(values: Sequence[float]) -> np.ndarray:
        _, number, count = np.unique(values, return_inverse=True, return_counts=True)
        last = np.cumsum(count)
        return (last - (count - 1) / 2)[number]

    return float(np.corrcoef(rank(one), rank(two))[0, 1])


def rows(machine_found: Mesh) -> list[str]:
    """A line of the table for each network and number of devices."""
    device = machine_found.device
    assert isinstance(device, Device), "calibrate takes devices for equal"
    plain = replace(device, cell_flop_per_second=None, operand_seconds=0.0)
    lines = []
    for name, make in MODELS.items():
        graph = make()
        for devices in (1, 4):
            mesh = replace(machine_found, shape=(devices,))
            found = measure(graph, mesh)
            without = measure(graph, replace(mesh, device=plain))
            rank, bare = correlate_ranks(*found), correlate_ranks(*without)
            total = f"{sum(found.modeled) * 1e3:.1f} / {sum(found.measured) * 1e3:.1f} ms"
            told = f"{rank:.3f}" if rank >= AIM else f"**{rank:.3f}**"
            lines.append(f"| {name} | {devices} | {len(found.measured)} | {told} | {bare:.3f} | {total} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--transfers", action="store_true", help="print the table of transfers alone")
    asked = parser.parse_args()
    found = calibrate()
    if asked.transfers:
        for rates in (found, replace(found, link=replace(found.ports[0], run_seconds=0.0))):
            print(rates.ports[0], os.getloadavg(), *transfer_rows(rates), sep="\n")
        return
    text = "\n".join(
        [
            "# The cost model against what operators take",
            "",
            f"{date.today()}, {machine()}, one BLAS thread. Written by `tests/bench/bench_model.py`.",
            "",
            "Rank correlation of modeled and measured seconds of every operator's work, with the rates that",
            f"`tapestry calibrate` measures (aim: {AIM}). Two rates are products' arithmetic and memory alone.",
            "Sums are modeled / measured, of the slowest device of each operator.",
            "",
            "| network | devices | operators | ranks | two rates | sums |",
            "|---|---|---|---|---|---|",
            *rows(found),
            "",
            "Transfers of stages: of the busiest device, packing, unpacking and merging. The aim is for as many",
            "devices as there are cores: where several share one, what they send each other is there sooner than",
            "from another core. Stages that are modeled alike, of which the kinds are counted, are measured apart:",
            "ranks agree at most as told.",
            f"Load average {os.getloadavg()[0]:.1f}.",
            "",
            "| network | devices run as | devices | stages, kinds | ranks | at most | sums |",
            "|---|---|---|---|---|---|---|",
            *transfer_rows(found),
            "",
            "```toml",
            found.to_toml(),
            "```",
            "",
        ]
    )
    print(text)
    if asked.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
