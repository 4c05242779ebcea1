"""Bytes that plans move beside XLA's for the same programs and placements, and beside published bounds.

python tests/bench/bench_bytes.py            prints the table
python tests/bench/bench_bytes.py --write    also writes it to tests/bench/results/bench_bytes.md
python tests/bench/bench_bytes.py --local    prints, or writes to bench_local.md, what networks copy within devices

XLA's bytes are counted in the programs that it compiled in the same run, with the same inputs and results in the same
places (`xla_bytes.py`; rings); of tanh and exp around a view ours lie where the plan puts them. Megatron's MLP and
layer (arXiv 1909.08053) are XLA's with Megatron's placements; Alpa reports such plans for GPT (arXiv 2201.12023), and
was not run. Bounds of products are those of arXiv 2205.13407.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from bench_sets import RESULTS as SETS_RESULTS  # noqa: E402
from bench_sets import machine  # noqa: E402

from tapestry_plan import Device, Graph, Link, Mesh, Placed, ShardPlan, Tensor, gradient, load_onnx, ops, plan  # noqa: E402
from tapestry_plan.onnx import light_model  # noqa: E402
from tapestry_plan.steps import count_local, lower  # noqa: E402
from tapestry_sets import concatenate, roll  # noqa: E402

PROGRAMS = Path(__file__).with_name("xla_bytes.py")
RESULTS = SETS_RESULTS.with_name("bench_bytes.md")
LOCAL = RESULTS.with_name("bench_local.md")
H100: dict[str, Any] = {"link": Link(5e-6, 3e11), "device": Device(4e14, 3e12)}
COMPUTE_BOUND: dict[str, Any] = {"device": Device(1e9, 1e30), "link": Link(0.0, 1e12)}


class Row(NamedTuple):
    """A plan, what is read of it, and what it stands beside: a program of XLA's, or bytes."""

    work: str
    plan: ShardPlan
    peer: str
    figure: str | int
    """A program's name in `xla_bytes.py`, or bytes."""
    is_total: bool = False
    """Whether bytes of all devices are compared, in place of those of the busiest one."""
    is_local: bool = False
    """Whether bytes that devices copy within themselves are compared, of all devices."""


def convolutions() -> Iterator[Row]:
    """Convolutions cut along rows: the busiest device's halo."""
    four: dict[str, Any] = {"pads": (1,) * 4}
    cases: list[tuple[str, str, tuple[int, int, int], dict[str, Any], tuple[int, ...]]] = [
        ("conv3", "3×3, 1×16×224×224, rows over 4", (16, 224, 3), four, (4,)),
        ("conv7", "7×7 stride 2, 1×3×224×224, rows over 4", (3, 224, 7), {"strides": 2, "pads": (3,) * 4}, (4,)),
        ("conv3-strided", "3×3 stride 2, 1×64×56×56, rows over 4", (64, 56, 3), {"strides": 2, **four}, (4,)),
        ("conv3-grid", "3×3 stride 2, 1×32×64×64, 4×2 devices", (32, 64, 3), {"strides": 2, **four}, (4, 2)),
        ("conv3-dilated", "3×3 dilation 8, rows over 8", (16, 32, 3), {"dilations": 8, "pads": (8,) * 4}, (8,)),
        (
            "conv3-strided-dilated",
            "3×3 stride 2 dilation 2, rows over 4",
            (16, 64, 3),
            {"strides": 2, "dilations": 2, "pads": (2,) * 4},
            (4,),
        ),
    ]
    for name, work, (channels, size, kernel), attrs, mesh in cases:
        g = Graph()
        x, w = g.input("x", (1, channels, size, size)), g.input("w", (1, channels, kernel, kernel))
        g.output(ops.conv(x, w, name="conv", **attrs))
        axes = dict(zip(("h", "w"), mesh, strict=False))
        cut = dict(zip((2, 3), mesh, strict=False))
        yield Row(work, plan(g, Mesh(mesh), layout={"x": cut}, fix={"conv": axes}), "XLA", name)
    g = Graph()
    x, w = g.input("x", (8, 16, 8, 8)), g.input("w", (16, 4, 3, 3))
    g.output(ops.conv(x, w, name="conv", groups=4, pads=(1,) * 4))
    found = plan(g, Mesh((8,)), layout={"x": {0: 8}}, fix={"conv": {"n": 8}})
    yield Row("3×3 of 4 groups, batch over 8", found, "XLA", "conv3-groups")


def products() -> Iterator[Row]:
    """Products of one copy of each matrix, words received in all; products in given places; layouts that change."""
    for (m, k, n), devices, words in (((9600, 2400, 600), 3, 960_000), ((4096, 4096, 4096), 8, 6_291_456)):
        g = Graph()
        g.output(g.input("a", (m, k)) @ g.input("b", (k, n)))
        found = plan(g, Mesh((devices,), **COMPUTE_BOUND), placement="single")
        yield Row(f"product {m}×{k}×{n} over {devices}, in all", found, "lower bound", 4 * words * devices, True)
    g = Graph()
    a, b = g.input("a", (1024, 1024)), g.input("b", (1024, 1024))
    g.output(ops.matmul(a, b, name="product"), "y")
    split: dict[str, Any] = {"fix": {"product": {"k": 8}}}
    found = plan(g, Mesh((8,)), layout={"y": {}}, **split)
    yield Row("product 1024³ split along k over 8, then on all", found, "XLA: an all-reduce", "product-k")
    found = plan(g, Mesh((8,)), layout={"y": {0: 8}}, **split)
    yield Row("product 1024³ split along k over 8, then rows", found, "XLA", "product-k-rows")
    quarters: dict[str, Any] = {name: {0: 2, 1: 4} for name in "aby"}
    yield Row("product 1024³, all in 2×4 parts", plan(g, Mesh((2, 4)), layout=quarters), "XLA", "product-grid")
    g = Graph()
    g.output(g.input("x", (64, 64)) * 2, "y")
    found = plan(g, Mesh((8,), link=Link(0.0, 1e10)), layout={"x": {0: 8}, "y": {1: 8}})
    yield Row("64² from rows to columns over 8, no latency", found, "XLA: an all-to-all", "rows-to-columns")


def transformers() -> Iterator[Row]:
    """A sharded MLP and a layer, inputs and results on all devices, weights cut over them."""
    g = Graph()
    x, w, v = g.input("x", (1024, 256)), g.input("w", (256, 1024)), g.input("v", (1024, 256))
    g.output(ops.relu(x @ w) @ v, "y")
    for bandwidth in (1e10, 1e8):
        mesh = Mesh((8,), link=Link(1e-6, bandwidth))
        found = plan(g, mesh, placement="single", layout={"x": {}, "y": {}})
        work = f"MLP of 1,024 rows, width 256, over 8 at {bandwidth:.0e} B/s, x and y on all"
        yield Row(work, found, "XLA, Megatron: an all-reduce", "mlp")
    tokens, width, heads = 512, 1024, 16
    g = Graph()
    x = g.input("x", (tokens, width))
    shapes = {**dict.fromkeys("qkvo", (width, width)), "up": (width, 4 * width), "down": (4 * width, width)}
    weight = {name: g.input(f"w_{name}", shape) for name, shape in shapes.items()}

    def split_heads(t: Tensor) -> Tensor:
        return t.reshape(tokens, heads, width // heads).transpose(1, 0, 2)

    q, k, value = (split_heads(x @ weight[name]) for name in "qkv")
    seen = ops.softmax(q @ k.transpose(0, 2, 1), axis=-1) @ value
    z = x + seen.transpose(1, 0, 2).reshape(tokens, width) @ weight["o"]
    g.output(z + ops.relu(z @ weight["up"]) @ weight["down"], "y")
    cut: dict[str, Any] = {f"w_{name}": {int(name not in ("o", "down")): 8} for name in weight}
    found = plan(g, Mesh((8,)), layout={"x": {}, "y": {}, **cut})
    yield Row("layer of 512 tokens, width 1,024, over 8, x and y on all", found, "XLA, Megatron", "layer")


def training() -> Iterator[Row]:
    """Weights that lie after the step where they lay before."""
    g = Graph()
    x, t = g.input("x", (65_536, 1024)), g.input("t", (65_536, 1024))
    w, v = g.input("w", (1024, 4096)), g.input("v", (4096, 1024))
    away = ops.relu(x @ w) @ v - t
    dw, dv = gradient(ops.sum(away * away), [w, v])
    g.output(w - dw, "new_w")
    g.output(v - dv, "new_v")
    found = plan(g, Mesh((8,), **H100), tie={"new_w": "w", "new_v": "v"})
    yield Row("training of two layers, weights tied, in all", found, "XLA: two all-reduces", "training", True)


def views() -> Iterator[Row]:
    """Cell by cell work before and after a view, where layouts are free; XLA's arrays lie in blocks."""
    n = 1 << 22
    seen: dict[str, tuple[str, Callable[[Tensor], list[Tensor]]]] = {
        "reversed": ("reversed", lambda e: [e[::-1]]),
        "rolled": ("rolled by half", lambda e: [roll(e, n // 2)]),
        "swapped": ("halves swapped", lambda e: [concatenate([e[n // 2 :], e[: n // 2]])]),
        "transposed": ("four rows, transposed", lambda e: [e.reshape(4, n // 4).T]),
        "halves": ("each half by itself", lambda e: [e[: n // 2], e[n // 2 :]]),
    }
    for name, (work, view) in seen.items():
        g = Graph()
        for part in view(ops.exp(g.input("x", (n,)))):
            g.output(ops.tanh(part))
        yield Row(f"tanh of exp, {work}, over 4, in all", plan(g, Mesh((4,))), "XLA, in blocks", name, True)
    g = Graph()
    x, w = g.input("x", (1, 1, 64, 64)), g.input("w", (1, 1, 3, 3))
    g.output(ops.tanh(ops.conv(ops.exp(x), w, dilations=2, pads=2)))
    found = plan(g, Mesh((2,), device=Device(1e9), link=Link(1e-6, 1e9)))
    yield Row("3×3 dilation 2 of exp, rows over 2, in all", found, "XLA, in blocks", "conv3-phases", True)


def one_sender() -> Iterator[Row]:
    """A tensor that lies on one device, which must send seven eighths of it, at 1 GB/s: 3,670 us."""
    g = Graph()
    x, w = g.input("x", (1024, 1024)), g.input("w", (1024, 1024))
    g.output(ops.matmul(x, w, name="product"), "y")
    mesh = Mesh((8,), link=Link(0.0, 1e9), device=Device(1e15, 1e15))
    found = plan(g, mesh, layout={"x": Placed({0: np.s_[:, :]})}, fix={"product": {"m": 8}})
    yield Row("x of 4 MiB on one of 8, product by rows, in all", found, "seven eighths", 7 << 19, True)
    found = plan(g, mesh, layout={"x": Placed({0: np.s_[:, :]})}, fix={"product": {"n": 8}})
    yield Row("the same by columns: x to all, in all", found, "seven copies", 7 << 22, True)


def networks() -> Iterator[Row]:
    """What networks copy within devices, beside the same layouts with each block in a place of its own."""
    models = {name: str(ROOT / "tests" / "models" / f"{name}.onnx") for name in ("bert", "gpt2", "resnet")}
    light = {name: light_model(name, seed=1) for name in ("squeezenet", "shufflenet", "resnet50")}
    for name, model in {**models, **light}.items():
        found = plan(load_onnx(model), Mesh(4))
        apart = lower(found.graph, found.mesh, found.choices, apart=True)
        nbytes = sum(count_local(found.graph, apart.buffers, apart.steps, 4))
        yield Row(f"{name} on 4, copied within devices, in all", found, "blocks apart", nbytes, is_local=True)


def line(row: Row, xla: Mapping[str, Sequence[int]]) -> str:
    """A row of the table."""
    ours = row.plan.nbytes_moved if row.is_total else max(row.plan.nbytes_received)
    if row.is_local:
        ours = sum(row.plan.nbytes_copied)
    theirs = row.figure if isinstance(row.figure, int) else xla[row.figure][row.is_total]
    ratio = f"{ours / theirs:.2f}" if theirs else "both 0" if not ours else "more"
    seconds = f"{row.plan.seconds * 1e6:,.1f}"
    cells = (row.work, f"{ours:,}", row.peer, f"{theirs:,}", ratio, seconds, f"{row.plan.gap:.3f}", row.plan.space)
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"also write the table to {RESULTS.name}")
    parser.add_argument("--local", action="store_true", help=f"what networks copy within devices, in {LOCAL.name}")
    args = parser.parse_args()
    write, heading = args.write, "| work | bytes | beside | bytes | ratio | modeled us | gap | space |"
    if args.local:
        lines = [heading, "|---" * 8 + "|", *(line(row, {}) for row in networks())]
        print("\n".join(lines))
        if write:
            about = [
                "Plans on 4 devices, in steps of all of them: `python tests/bench/bench_bytes.py --local --write`."
            ]
            LOCAL.write_text("\n".join(["# Bytes copied within devices", "", *about, "", *lines]) + "\n")
        return
    counted = subprocess.run([sys.executable, str(PROGRAMS), "--json"], capture_output=True, text=True)
    if counted.returncode:
        last = (counted.stderr.splitlines() or ["nothing was printed"])[-1]
        sys.exit(f"XLA's bytes could not be counted ({last}): pip install '.[bench]'")
    xla = json.loads(counted.stdout)
    lines = [heading, "|---" * 8 + "|"]
    for group in (convolutions, products, transformers, training, views, one_sender):
        lines += [line(row, xla["bytes"]) for row in group()]
    print("\n".join(lines))
    if write:
        about = (__doc__ or "").split("\n\n")[-1]
        head = [f"# Bytes moved, {date.today().isoformat()}", "", f"{machine()}, jax {xla['version']}.", "", about]
        RESULTS.write_text("\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    main()
