"""Seconds and memory of planning and running whole networks, against the unsharded run of the same blocks.

    python tests/bench/bench_demo.py [--devices 4] [--repeats 9] [--threads 1] [--networks resnet50] [--write]

Every network has a process of its own. Its sharded and unsharded runs alternate in that process, and ratios are
of medians. Runs of one plan reuse their arenas; "new arenas" is what a first run takes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
RESULTS = HERE.parent / "results" / "bench_demo.md"
SMALL_RESNET = HERE.parents[1] / "models" / "resnet.onnx"
NETWORKS = ("squeezenet", "small_resnet", "bvlc_alexnet", "resnet50")
HEADS = {
    "network": "network",
    "nodes": "operators",
    "steps": "steps",
    "plan": "plan, s",
    "plan_peak": "peak RSS planning, MB",
    "check": "first check of the steps, s",
    "whole": "unsharded run, s",
    "kept": "sharded run, s",
    "fresh": "with new arenas, s",
    "kept_ratio": "ratio",
    "placed_ratio": "ratio, once placed",
    "fresh_ratio": "ratio, new arenas",
    "run_peak": "peak RSS with running, MB",
    "moved": "MB moved",
    "placed": "MB placed",
    "apart": "largest difference",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--threads", type=int, default=1, help="of the BLAS library, for both kinds of run")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measure(args.only, args.devices, args.repeats)))
        return
    rows = []
    for name in args.networks.split(","):
        rows.append(in_own_process(name, args.devices, args.repeats, args.threads))
        print(", ".join(f"{HEADS[key]}: {shown(rows[-1][key])}" for key in HEADS), flush=True)
    if args.write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(report(rows, args.devices, args.repeats, args.threads))
        print(f"wrote {RESULTS.relative_to(ROOT)}")


def in_own_process(name: str, devices: int, repeats: int, threads: int) -> dict[str, Any]:
    command = [sys.executable, str(HERE), "--only", name, "--devices", str(devices), "--repeats", str(repeats)]
    # The library reads these when it is loaded. On a busy machine, threads that wait for one another measure
    # the other processes; one thread measures the runs.
    environment = {**os.environ, **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), str(threads))}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, env=environment)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def measure(name: str, devices: int, repeats: int) -> dict[str, Any]:
    """One network: plan it, run it sharded and whole in turns, compare with ONNX Runtime."""
    sys.path.insert(0, str(ROOT))
    import onnx

    from tapestry_exec import NumpyBackend, check_plan, difference, evaluate, run
    from tapestry_exec.cli.commands import random_inputs, reference_outputs
    from tapestry_plan import Mesh, load_onnx, plan
    from tapestry_plan.onnx import before_softmax, he_random, light_model

    model = he_random(onnx.load(SMALL_RESNET)) if name == "small_resnet" else light_model(name)
    graph = load_onnx(model, outputs=before_softmax(model))
    begin = perf_counter()
    p = plan(graph, Mesh((devices,)))
    planning = perf_counter() - begin
    plan_peak = peak_megabytes()
    begin = perf_counter()
    check_plan(p)
    checking = perf_counter() - begin
    inputs = random_inputs(graph, 0)
    seconds: dict[str, list[float]] = {"whole": [], "fresh": [], "kept": [], "placed": []}
    last = run(p, inputs)
    for _ in range(repeats):
        begin = perf_counter()
        evaluate(graph, inputs)
        seconds["whole"].append(perf_counter() - begin)
        begin = perf_counter()
        run(p, inputs, backend=NumpyBackend())
        seconds["fresh"].append(perf_counter() - begin)
        begin = perf_counter()
        last = run(p, inputs)
        seconds["kept"].append(perf_counter() - begin)
        placing = next((e.start for e in last.timeline if e.kind not in ("alloc", "place")), last.seconds)
        seconds["placed"].append(last.seconds - placing)
    middle = {key: median(values) for key, values in seconds.items()}
    run_peak = peak_megabytes()
    reference = reference_outputs(model, graph, inputs)[1]
    return {
        "network": name,
        "nodes": len(graph.nodes),
        "steps": len(p.steps),
        "plan": planning,
        "plan_peak": plan_peak,
        "check": checking,
        "run_peak": run_peak,
        **{key: middle[key] for key in ("whole", "fresh", "kept")},
        **{f"{key}_ratio": middle[key] / middle["whole"] for key in ("fresh", "kept", "placed")},
        "moved": last.nbytes_moved / 1e6,
        "placed": sum(last.nbytes_placed) / 1e6,
        "apart": max(difference(last.outputs[k], reference[k]) for k in reference),
    }


def peak_megabytes() -> float:
    """Largest resident set of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if value < 100 else f"{value:.0f}"
    return str(value)


def report(rows: list[dict[str, Any]], devices: int, repeats: int, threads: int) -> str:
    """The table as Markdown, with what it was measured on."""
    lines = [
        f"# Whole networks on {devices} devices",
        "",
        f"{datetime.date.today()}, {cpu_model()}, {len_cpus()} cores, Python {platform.python_version()}, "
        f"BLAS on {threads} thread(s), load average {os.getloadavg()[0]:.1f}; medians of {repeats} alternated runs. "
        "Written by `python tests/bench/bench_demo.py --write`.",
        "",
        "| " + " | ".join(HEADS.values()) + " |",
        "|" + " --- |" * len(HEADS),
        *("| " + " | ".join(shown(row[key]) for key in HEADS) + " |" for row in rows),
        "",
        "The unsharded run is `evaluate`: the same block functions on whole tensors, with the weights where they are.",
        "A sharded run also copies inputs and weights to the devices' arenas (MB placed), poisons every buffer, and",
        'moves halos; "once placed" leaves out what comes before the first operator. The first run of a plan also',
        "checks its steps. The largest difference is max|d| / max|reference| from ONNX Runtime, before softmax.",
        "",
    ]
    return "\n".join(lines)


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0].partition(":")[2].strip() if names else platform.processor()


def len_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    main()
