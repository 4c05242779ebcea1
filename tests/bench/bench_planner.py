"""What planning takes, and what its plans are: processor seconds, gap, bytes moved, memory; each row a process.

python tests/bench/bench_planner.py            prints the table
python tests/bench/bench_planner.py --write    also writes it to tests/bench/results/bench_planner.md
python tests/bench/bench_planner.py --rows gpt-12,resnet50-4
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import numpy as np  # noqa: E402
from bench_sets import RESULTS as SETS_RESULTS  # noqa: E402
from bench_sets import machine  # noqa: E402
from layered_models import bert, gpt, gpt2, vit  # noqa: E402

from tapestry_plan import Device, Graph, Link, Mesh, Tensor, gradient, load_onnx, ops  # noqa: E402
from tapestry_plan.onnx import light_model  # noqa: E402

RESULTS = SETS_RESULTS.with_name("bench_planner.md")
H100 = {"link": Link(5e-6, 3e11), "device": Device(4e14, 3e12)}
MODELS = ROOT / "tests" / "models"
LIMIT_SECONDS = 900
"""Of wall time; a row that takes longer is said to have been stopped."""


class Case(NamedTuple):
    """A model on a mesh, with the aims: processor seconds, 0 for none, gap in percent; and a cap on memory.

    The cap is in bytes a device, or a part of the peak of the plan on one device.
    """

    model: Callable[[], Any]
    mesh: Mesh
    aim: float
    gap: float = 0.0
    cap: float | None = None
    asked: tuple[tuple[str, bool], ...] = ()
    """Arguments of `plan`, and what they are."""


def layer() -> Graph:
    """A transformer layer of half precision: 2,048 tokens of width 4,096 in 32 heads, 16,384 inside."""
    tokens, width, heads, inside = 2048, 4096, 32, 16384
    g = Graph()

    def weight(name: str, *shape: int) -> Tensor:
        return g.input(name, shape, "float16")

    def split(t: Tensor) -> Tensor:
        return t.reshape(1, tokens, heads, width // heads).transpose(0, 2, 1, 3)

    x = g.input("x", (tokens, width), "float16")
    y = ops.layer_normalization(x, weight("g1", width), weight("b1", width), axis=-1)
    q, k, v = (split(y @ weight(f"w{name}", width, width)) for name in "qkv")
    seen = ops.softmax(q @ k.transpose(0, 1, 3, 2), axis=-1) @ v
    x = x + seen.transpose(0, 2, 1, 3).reshape(tokens, width) @ weight("wo", width, width)
    y = ops.layer_normalization(x, weight("g2", width), weight("b2", width), axis=-1)
    g.output(x + ops.relu(y @ weight("w1", width, inside)) @ weight("w2", inside, width), "y")
    return g


def reshaped_convs(uses: int) -> Graph:
    """Gradients of convolutions that read one input in several shapes, so that its cells lie differently in each."""
    shapes = ((6, 10), (10, 6), (4, 15), (15, 4))[:uses]
    g = Graph()
    x, w = g.input("x", (480,)), g.input("w", (2, 2, 3, 3))
    first, *others = (ops.conv(x.reshape(4, 2, *shape), w, pads=1).reshape(480) for shape in shapes)
    for one in others:
        first = first + one
    for name, grad in zip("xw", gradient(ops.sum(first * first), [x, w]), strict=True):
        g.output(grad, f"d{name}")
    return g


def gpt2_backward() -> Graph:
    """The tests' GPT-2 with the gradients of an attention's weight and of the embedding."""
    g = load_onnx(MODELS / "gpt2.onnx")
    logits = g.tensor(next(iter(g.outputs.values())))
    names = ("h.0.attn.c_attn.weight", "wte.weight")
    dict.clear(g.outputs)
    for name, grad in zip(
        names, gradient(ops.sum(logits * logits, keepdims=True), list(map(g.tensor, names))), strict=True
    ):
        g.output(grad, f"d{name}")
    return g


def pinned_convs(devices: int) -> tuple[Graph, dict[str, dict[str, int]]]:
    """Eight convolutions by rows, each of which needs a row of its neighbors."""
    g = Graph()
    y = g.input("x", (1, 4, 2048, 16))
    for k in range(8):
        y = ops.conv(y, g.constant(f"w{k}", np.ones((4, 4, 3, 3), np.float32)), pads=1, name=f"conv{k}")
    g.output(y)
    return g, {f"conv{k}": {"h": devices} for k in range(8)}


def pinned_linears(devices: int) -> tuple[Graph, dict[str, dict[str, int]]]:
    """Eight linear layers by batch, with what is behind each."""
    g = Graph()
    y = g.input("x", (2048, 64))
    for k in range(8):
        y = ops.matmul(y, g.constant(f"w{k}", np.ones((64, 64), np.float32)), name=f"linear{k}")
        y = ops.relu(y, name=f"act{k}")
    g.output(y)
    return g, {**{f"linear{k}": {"m": devices} for k in range(8)}, **{f"act{k}": {"i0": devices} for k in range(8)}}


def pinned_product(devices: int) -> tuple[Graph, dict[str, dict[str, int]]]:
    """A product that is split where it sums up: each device sends each other one what is merged there."""
    g = Graph()
    g.output(ops.relu(ops.matmul(g.input("x", (1024, 2048)), g.input("w", (2048, 64)), name="product"), name="act"))
    return g, {"product": {"k": devices}, "act": {"i0": devices}}


PINNED = {
    f"{make.__name__.replace('_', '-')}-{devices}": Case(partial(make, devices), Mesh((devices,)), aim)
    for make, aims in (
        (pinned_convs, {16: 0.0, 64: 0.0, 256: 10.0, 1024: 60.0}),
        (pinned_linears, {16: 0.0, 64: 0.0, 256: 10.0, 1024: 60.0}),
        (pinned_product, {16: 0.0, 64: 0.0, 256: 10.0, 1024: 0.0}),
    )
    for devices, aim in aims.items()
}
"""Nothing is searched for in these; they are planned as they are asked for, which is what many devices take."""


CASES = {
    **{
        f"gpt-{layers}": Case(partial(gpt, layers), Mesh((2, 4), **H100), aim)  # type: ignore[arg-type]
        for layers, aim in ((12, 1.0), (48, 3.0), (96, 6.0))
    },
    **{
        f"gpt-{layers}-capped": Case(partial(gpt, layers), Mesh((2, 4), **H100), aim, 0.1, 0.3)  # type: ignore[arg-type]
        for layers, aim in ((12, 2.0), (48, 6.0), (96, 15.0))
    },
    "gpt-12-on-64": Case(partial(gpt, 12), Mesh((8, 8), **H100), 10.0, 1.0),  # type: ignore[arg-type]
    "gpt-12-on-1024": Case(partial(gpt, 12), Mesh((8, 8, 16), **H100), 60.0, 1.0),  # type: ignore[arg-type]
    **{
        f"gpt-12-{name}": Case(partial(gpt, 12), Mesh((2, 4), **H100), 0.0, asked=((word, value),))  # type: ignore[arg-type]
        for name, word, value in (("same-bits", "same_bits", True), ("unfused", "fuse", False))
    },
    "layer-capped": Case(layer, Mesh((8,), **H100), 2.0, 0.1, 141e6),  # type: ignore[arg-type]
    **{
        f"{make.__name__}-6-on-{devices}": Case(partial(make, 6), Mesh((devices,)), aim, 0.5)
        for make in (bert, gpt2, vit)
        for devices, aim in ((8, 5.0), (16, 15.0))
    },
    **{
        f"resnet50-{devices}": Case(partial(light_model, "resnet50", seed=1), Mesh((devices,)), aim)
        for devices, aim in ((4, 1.0), (8, 2.0), (16, 6.0))
    },
    "densenet121-4": Case(partial(light_model, "densenet121", seed=1), Mesh((4,)), 20.0),
    **{f"convs-backward-{uses}": Case(partial(reshaped_convs, uses), Mesh((2,)), 0.5) for uses in (3, 4)},
    "gpt2-backward-4": Case(gpt2_backward, Mesh((4,)), 5.0),
    **PINNED,
}


REASONS = (
    "Above their aims: GPT-12 and the capped GPTs by what the machine takes that day. Of GPT-12 on (8, 8, 16) two",
    "fifths are the first problem, block by block, of up to 34,000 blocks an operator; a third are tables and their",
    "rounds, a fifth is ruling expansions out, a tenth writing. ResNet-50 on 8, of which a third is the first problem",
    "and another third its proof; gradients of convolutions, most of which is asking views for layouts and ruling out",
    "expansions.",
)


def measure(name: str) -> dict[str, Any]:
    """One row: the model is imported first, which does not count."""
    from tapestry_plan import plan

    case = CASES[name]
    begin = time.process_time()
    model = case.model()
    model, fix = model if name in PINNED else (model, None)
    graph = model if isinstance(model, Graph) else load_onnx(model)
    cap = None if case.cap is None else int(case.cap)
    if case.cap is not None and case.cap < 1:
        alone = plan(graph, Mesh((1,), device=case.mesh.device), expand=False, fuse=False)
        cap = int(case.cap * alone.peak_nbytes[0])
    imported = time.process_time() - begin
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    found = plan(graph, case.mesh, fix=fix, memory_nbytes=cap, **dict(case.asked))
    planned = time.process_time()
    program = found.program(case.mesh.size - 1)
    worked_out = time.process_time()
    own = len(program.to_json())
    nbytes = len(found.to_json())
    return {
        "operators": len(graph.nodes),
        "imported": imported,
        "seconds": planned - begin,
        "program": worked_out - planned,
        "document": nbytes,
        "written": time.process_time() - worked_out,
        "gap": found.gap,
        "space": found.space,
        "modeled": found.seconds,
        "moved": found.nbytes_moved,
        "peak": max(found.peak_nbytes),
        "steps": len(program.steps),
        "own": own,
        "expanded": len(found.expanded),
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "before": before,
    }


def in_own_process(name: str) -> dict[str, Any] | None:
    """A row of a process of its own, on one thread; None where it was stopped."""
    environment = {**os.environ, **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")}
    command = [sys.executable, str(HERE), "--only", name]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, env=environment, timeout=LIMIT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return None
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def line(name: str, row: dict[str, Any] | None) -> str:
    """A row of the table."""
    case = CASES[name]
    shape = "×".join(map(str, case.mesh.shape))
    if row is None:
        return f"| {name} | {shape} | | stopped after {LIMIT_SECONDS} s | {case.aim:g} |" + " |" * 12
    cells = (
        name,
        shape,
        row["operators"],
        f"{row['seconds']:.2f}",
        f"{case.aim:g}" if case.aim else "–",
        f"{100 * row['gap']:.2f}",
        f"{case.gap:g}",
        row["space"],
        f"{row['modeled'] * 1e6:,.1f}",
        f"{row['moved']:,}",
        f"{row['peak'] / 1e6:,.1f}",
        f"{row['steps']:,}",
        f"{row['program']:.2f}",
        f"{row['own'] / 1e3:,.1f}",
        f"{row['document'] / 1e6:.2f}",
        f"{row['written']:.2f}",
        f"{row['rss'] / 1024:,.0f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"also write the table to {RESULTS.name}")
    parser.add_argument("--rows", help=f"some of {', '.join(CASES)}; without it all")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measure(args.only)))
        return
    names = args.rows.split(",") if args.rows else [*CASES]
    heads = ["work", "mesh", "operators", "CPU s", "aim"] + [
        "gap %",
        "aim",
        "space",
        "modeled us",
        "bytes moved",
        "peak MB a device",
        "steps a device",
        "CPU s",
        "its document, kB",
        "document MB",
        "CPU s",
        "RSS MB",
    ]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for found in lines:
        print(found)
    for name in names:
        lines.append(line(name, in_own_process(name)))
        print(lines[-1], flush=True)
    if args.write:
        head = [f"# Planning, {date.today().isoformat()}", "", f"{machine()}, one thread; each row is a process.", ""]
        notes = [
            "",
            "GPT: 16 operators a layer, batch 1, 2,048 tokens, width 1,024 (4,096 inside), devices of 4·10¹⁴ flop/s,",
            "3·10¹² B/s, links of 5 µs and 3·10¹¹ B/s. BERT, GPT-2, ViT: batch 2, 128 tokens (ViT 197), width 512,",
            "and the CNNs, on the mesh's own rates. Capped: in 30 % of the peak of the plan on one device; a layer",
            "of width 4,096 in half precision in 141 MB. Backward: gradients of convolutions that read one input in",
            "three and four shapes, and of the tests' GPT-2. Pinned: eight convolutions by rows, eight linear layers",
            "by batch, a product split where it sums up; nothing is searched for. CPU seconds are those of `plan`, not",
            "of the import; those in which the program of the last device is worked out of the plan's choices by",
            "itself, whose document has that device's steps alone; and those in which the plan's document is written.",
            "",
            *REASONS,
        ]
        RESULTS.write_text("\n".join([*head, *lines, *notes]) + "\n")


if __name__ == "__main__":
    main()
