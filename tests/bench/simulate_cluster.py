"""Many machines on paper: the programs of 64 to 1,024 devices are played through, on two levels of links.

python tests/bench/simulate_cluster.py                    prints the table (about 20 minutes)
python tests/bench/simulate_cluster.py --devices 64       fewer devices
python tests/bench/simulate_cluster.py --write            also writes tests/bench/results/simulated_cluster.md

Nothing runs. Each device has its own program, a clock, and for each of its links one port to send and one to receive::

    device 0   compute ████ send ─┐      compute ████████          a send takes no time of the device's own
    its port                      └█████                           both ports are taken while the cells are under way
    device 1   compute ██ recv ········· compute ███               it waits until they are there

Work takes the longer of its arithmetic and its bytes, at the rates of the machine that is stated. That is counted here
from shards and blocks, not taken from the plan; the plan's own sum and makespan stand beside it.

Faults: each machine fails on average once in 50 hours, whenever that may be; a run then goes on from the last
checkpoint. The share of time that is lost is Young's formula and, beside it, what 400 drawn histories lose.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import date
from heapq import heappop, heappush
from math import sqrt
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
from onnx import TensorProto, numpy_helper

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "bench")]

from bench_sets import RESULTS as SETS_RESULTS  # noqa: E402
from bench_sets import machine  # noqa: E402

from tapestry_plan import Device, Graph, Link, Mesh, ShardPlan, Tensor, gradient, load_onnx, ops, plan  # noqa: E402
from tapestry_plan.onnx import light_model  # noqa: E402
from tapestry_plan.steps import HOST, Compute, Copy, Recv, Reduce, Send  # noqa: E402
from tests.layered_models import gpt  # noqa: E402

RESULTS = SETS_RESULTS.with_name("simulated_cluster.md")
NETWORK, INSIDE = Link(5e-6, 5e10), Link(2e-6, 4e11)
"""Between hosts 400 Gbit/s, inside of one 3.2 Tbit/s, each device's own."""
RATES = Device(flop_per_second=4e14, memory_nbytes_per_second=3e12)
GPUS = 8
"""Devices of a host."""
SLOWER = 0.8
"""What one slow device does of the others' work in the same time."""
MODELS: dict[str, Callable[[int], Graph]] = {
    "GPT, 2 layers of width 4,096, 2,048 tokens, a sample for each host": lambda devices: load_onnx(
        gpt(2, devices // GPUS, 2048, 4096, 16384)
    ),
    "training the feed-forward part of a layer of it": lambda devices: step_of_layer(devices // GPUS),
    "ResNet-50, 16 samples for each device": lambda devices: with_samples("resnet50", 16 * devices),
    "training a convolution of 256 channels, 16 samples for each device": lambda devices: step_of_block(16 * devices),
}
"""By the number of devices: work grows with them. Hosts have samples of their own, so that nothing goes between them
but for what gradients of weights sum up over all samples."""
HOURS, HISTORIES, RESTART_SECONDS = 50.0, 400, 60.0
CHECKPOINTS = 5.0, 60.0
"""Seconds that writing one takes."""


def with_samples(name: str, samples: int) -> Graph:
    """A light model of onnx with another batch."""
    model = light_model(name)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        dims = value.type.tensor_type.shape.dim
        if len(dims) > 1 and dims[0].dim_value == 1 and value.name not in {w.name for w in model.graph.initializer}:
            dims[0].dim_value = samples
    for held in [*model.graph.initializer, *(a.t for node in model.graph.node for a in node.attribute)]:
        if held.data_type == TensorProto.INT64 and (shape := numpy_helper.to_array(held)).size > 1 and shape[0] == 1:
            held.CopyFrom(numpy_helper.from_array(np.array([samples, *shape[1:]]), held.name))
    return load_onnx(model)


def step_of_layer(samples: int) -> Graph:
    """The products of each token of a layer, and the weights that one step of gradient descent gives."""
    g = Graph()
    x, w, v = g.input("x", (2048 * samples, 4096)), g.input("w", (4096, 16384)), g.input("v", (16384, 4096))
    return descend(g, ops.relu(x @ w) @ v + x, ["w", "v"])


def step_of_block(samples: int) -> Graph:
    """A convolution beside which its input goes, as ResNets have them, and its weights after a step."""
    g = Graph()
    x = g.input("x", (samples, 256, 14, 14))
    w = g.input("w", (256, 256, 3, 3))
    return descend(g, ops.relu(ops.conv(x, w, pads=1)) + x, ["w"])


def descend(g: Graph, y: Tensor, names: Sequence[str]) -> Graph:
    """Let a graph give each weight after a step down the sum of the squares of `y`."""
    weights = [g.tensor(name) for name in names]
    for one, slope in zip(weights, gradient(ops.sum(y * y, keepdims=True), weights), strict=True):
        g.output(one - slope * 1e-3, f"next_{one.name}")
    return g


class Played(NamedTuple):
    """What came of playing all programs."""

    seconds: float
    network: int
    """Bytes between hosts."""
    inside: int
    waited: float
    """Seconds that a device waited for others, on average."""


def play(p: ShardPlan, rates: Sequence[Device]) -> Played:
    """Play the programs of all devices."""
    programs = [p.program(d) for d in range(p.mesh.size)]
    places = np.stack(np.unravel_index(np.arange(p.mesh.size), p.mesh.shape), axis=-1).tolist()
    clocks, at, waited = [0.0] * p.mesh.size, [0] * p.mesh.size, [0.0] * p.mesh.size
    free: defaultdict[tuple[str, int, int], float] = defaultdict(float)
    arrived: dict[tuple[int, int, int], float] = {}
    parked: dict[tuple[int, int, int], int] = {}
    totals: Counter[int] = Counter()
    ready = [(0.0, d) for d in range(p.mesh.size)]
    while ready:
        _, d = heappop(ready)
        program = programs[d]
        if at[d] == len(program.steps):
            continue
        step = program.steps[at[d]]
        if isinstance(step, Recv):
            key = step.peer, d, step.tag
            if key not in arrived:
                parked[key] = d
                continue
            there = arrived.pop(key)
            waited[d] += max(there - clocks[d], 0.0)
            clocks[d] = max(clocks[d], there)
        elif isinstance(step, Send):
            nbytes = count_nbytes(step.regions, program.buffers[step.src].dtype)
            axis = next(k for k, (a, b) in enumerate(zip(places[d], places[step.peer], strict=True)) if a != b)
            totals[axis] += nbytes
            link, ports = p.mesh.ports[axis], [("send", d, axis), ("receive", step.peer, axis)]
            end = (
                max(clocks[d], *(free[port] for port in ports)) + link.latency_seconds + nbytes / link.nbytes_per_second
            )
            for port in ports:
                free[port] = end
            key = d, step.peer, step.tag
            arrived[key] = end
            if key in parked:
                other = parked.pop(key)
                heappush(ready, (clocks[other], other))
        else:
            clocks[d] += work_of(p, program.buffers, step, rates[d])
        at[d] += 1
        heappush(ready, (clocks[d], d))
    assert all(n == len(program.steps) for n, program in zip(at, programs, strict=True)), "a device waits for ever"
    return Played(max(clocks), totals[0], totals[1], sum(waited) / len(waited))


def count_nbytes(regions: Sequence, dtype: str) -> int:
    return sum(region.size for region in regions) * np.dtype(dtype).itemsize


def work_of(p: ShardPlan, buffers: dict, step: object, rates: Device) -> float:
    """Seconds of a device's own work at a step: products count their arithmetic, all else its bytes."""
    if isinstance(step, Compute):
        node, signature = p.graph.nodes[step.node], p.graph.signature(step.node)
        flop = p.graph.ops[node.op].flop_per_point(signature, node.attrs) * step.index.size
        used = {n: buffers[n] for n in (*step.inputs, *step.outputs) if n is not None}
        nbytes = sum(one.nbytes for one in used.values())
        return rates.launch_seconds + max(flop / rates.flop_per_second, nbytes / rates.memory_nbytes_per_second)
    if isinstance(step, Reduce):
        nbytes = (len(step.inputs) + 1) * count_nbytes(step.regions, buffers[step.output].dtype)
        return rates.launch_seconds + nbytes / rates.memory_nbytes_per_second
    if isinstance(step, Copy) and step.piece is not None and step.piece.source < 0:
        return 0.0  # zeros around a window: the copy of what is inside counts all cells of the block
    if isinstance(step, Copy) and step.src != HOST:
        lies_inside = buffers[step.src].within is not None and buffers[step.src].within.buffer == step.dst
        nbytes = 0 if lies_inside else 2 * count_nbytes(step.regions, buffers[step.dst].dtype)
        return nbytes / rates.memory_nbytes_per_second
    return 0.0


def rows(name: str, graph: Graph, devices: int) -> str:
    """A line of the table."""
    mesh = Mesh((devices // GPUS, GPUS), ("host", "gpu"), link={"host": NETWORK, "gpu": INSIDE}, device=RATES)
    start = process_time()
    p = plan(graph, mesh)
    planning = process_time() - start
    even = play(p, [RATES] * devices)
    slow = Device(RATES.flop_per_second * SLOWER, RATES.memory_nbytes_per_second * SLOWER)
    late = play(p, [slow, *[RATES] * (devices - 1)])
    assert even.network + even.inside == sum(p.nbytes_received), "a plan and its programs move the same"
    gap = 1 - p.bound / p.seconds
    return (
        f"| {name} | {devices} | {planning:.1f} s | {gap:.1%} | {p.seconds * 1e3:.3f} | {even.seconds * 1e3:.3f} | "
        f"{even.network:,} | {even.inside:,} | {even.waited * 1e3:.3f} | {late.seconds / even.seconds:.3f} |"
    )


def lose(hosts: int, writing: float, rng: np.random.Generator) -> tuple[float, float, float]:
    """Young's interval, the share of time that is lost with it by his formula, and that of drawn histories."""
    between = HOURS * 3600 / hosts
    interval = sqrt(2 * writing * between)
    by_formula = writing / interval + (interval / 2 + RESTART_SECONDS) / between
    lost = []
    for _ in range(HISTORIES):
        wanted, done, clock, kept = 50 * interval, 0.0, 0.0, 0.0
        fault = rng.exponential(between)
        while done < wanted:
            end = clock + interval + writing
            if fault < end:
                clock, done = fault + RESTART_SECONDS, kept
                fault = clock + rng.exponential(between)
                continue
            clock, done = end, done + interval
            kept = done
        lost.append(1 - done / clock)
    return interval, by_formula, float(np.mean(lost))


def fault_rows(devices: Sequence[int]) -> list[str]:
    """A line for each number of devices and time that a checkpoint takes."""
    rng, lines = np.random.default_rng(0), []
    for count in devices:
        for writing in CHECKPOINTS:
            interval, formula, drawn = lose(count // GPUS, writing, rng)
            hours = HOURS / (count // GPUS)
            lines.append(
                f"| {count} | {hours:.2f} h | {writing:g} s | {interval:,.0f} s | {formula:.2%} | {drawn:.2%} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    asked = parser.parse_args()
    lines = []
    for name, make in MODELS.items():
        for devices in asked.devices:
            lines.append(rows(name, make(devices), devices))
            print(lines[-1], flush=True)
    text = "\n".join(
        [
            "# Many machines on paper",
            "",
            f"{date.today()}, {machine()}. Written by `tests/bench/simulate_cluster.py`, which says how programs are",
            "played.",
            "",
            f"Nothing of this was run: hosts of {GPUS} devices with {RATES.flop_per_second / 1e12:g} TFLOP/s and "
            f"{RATES.memory_nbytes_per_second / 1e12:g} TB/s each; {NETWORK.nbytes_per_second / 1e9:g} GB/s and "
            f"{NETWORK.latency_seconds * 1e6:g} us between hosts, {INSIDE.nbytes_per_second / 1e9:g} GB/s and "
            f"{INSIDE.latency_seconds * 1e6:g} us inside of one.",
            "",
            "`plan` is processor time; `gap` is what the plan may be above the optimum of its model, proven. The",
            "plan's own sum takes stage after stage; played, devices go on as soon as they can. The last column is how",
            f"many times as long it takes where one device does {SLOWER:.0%} of the others' work.",
            "",
            "| network | devices | plan | gap | sum, ms | played, ms | B between | B inside | waited, ms | slow |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *lines,
            "",
            f"Faults of hosts, each once in {HOURS:g} hours on average, {RESTART_SECONDS:g} s to start again: Young's",
            f"interval between checkpoints, and the share of time lost, by formula and in {HISTORIES} drawn histories.",
            "",
            "| devices | a fault every | a checkpoint takes | interval | lost, formula | lost, drawn |",
            "|---|---|---|---|---|---|",
            *fault_rows(asked.devices),
            "",
        ]
    )
    print(text)
    if asked.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
