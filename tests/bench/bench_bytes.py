"""Bytes that plans move beside published figures: halos, products, a sharded MLP, a training step, views.

python tests/bench/bench_bytes.py            prints the table
python tests/bench/bench_bytes.py --write    also writes it to tests/bench/results/bench_bytes.md

Peers are quoted: XLA's figures are collectives counted in compiled HLO on eight CPU devices (jax 0.10.2, rings);
those of products are the lower bound of arXiv 2205.13407; an all-reduce is Megatron's, arXiv 1909.08053.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from bench_sets import RESULTS as SETS_RESULTS  # noqa: E402
from bench_sets import machine  # noqa: E402

from tapestry_plan import Device, Graph, Link, Mesh, ShardPlan, Tensor, gradient, ops, plan  # noqa: E402
from tapestry_plan.search import tuning  # noqa: E402
from tapestry_sets import concatenate, roll  # noqa: E402

RESULTS = SETS_RESULTS.with_name("bench_bytes.md")
H100: dict[str, Any] = {"link": Link(5e-6, 3e11), "device": Device(4e14, 3e12)}
COMPUTE_BOUND: dict[str, Any] = {"device": Device(1e9, 1e30), "link": Link(0.0, 1e12)}


class Row(NamedTuple):
    """A plan, what is read of it, and the figure that it stands beside."""

    work: str
    plan: ShardPlan
    peer: str
    nbytes: int
    """What the peer moves, on the busiest device, or in all."""
    is_total: bool = False


def convolutions() -> Iterator[Row]:
    """A convolution cut along its rows: the busiest device's halo."""
    cases = [
        ("3×3, 1×16×224×224, rows over 4", (16, 224, 3), {"pads": (1,) * 4}, (4,), 28_672),
        ("7×7 stride 2, 1×3×224×224, rows over 4", (3, 224, 7), {"strides": (2, 2), "pads": (3,) * 4}, (4,), 13_440),
        ("3×3 stride 2, 1×64×56×56, rows over 4", (64, 56, 3), {"strides": (2, 2), "pads": (1,) * 4}, (4,), 14_336),
        (
            "3×3 stride 2, 1×32×64×64, 4×2 devices",
            (32, 64, 3),
            {"strides": (2, 2), "pads": (1,) * 4},
            (4, 2),
            6_272,
        ),
    ]
    for work, (channels, size, kernel), attrs, mesh, xla in cases:
        g = Graph()
        x, w = g.input("x", (1, channels, size, size)), g.input("w", (1, channels, kernel, kernel))
        g.output(g.op("conv", x, w, name="conv", **attrs))
        axes = dict(zip(("h", "w"), mesh, strict=False))
        cut = dict(zip((2, 3), mesh, strict=False))
        yield Row(work, plan(g, Mesh(mesh), layout={"x": cut}, fix={"conv": axes}), "XLA", xla)
    g = Graph()
    x, w = g.input("x", (8, 16, 8, 8)), g.input("w", (16, 4, 3, 3))
    g.output(g.op("conv", x, w, name="conv", groups=4, pads=(1,) * 4))
    found = plan(g, Mesh((8,)), layout={"x": {0: 8}}, fix={"conv": {"n": 8}})
    yield Row("3×3 of 4 groups, batch over 8", found, "XLA", 458_752)


def products() -> Iterator[Row]:
    """Products of one copy of each matrix, words received in all; one split along k; a sharded MLP."""
    for (m, k, n), devices, words in (((9600, 2400, 600), 3, 960_000), ((4096, 4096, 4096), 8, 6_291_456)):
        g = Graph()
        g.output(g.input("a", (m, k)) @ g.input("b", (k, n)))
        found = plan(g, Mesh((devices,), **COMPUTE_BOUND), placement="single")
        yield Row(f"product {m}×{k}×{n} over {devices}, in all", found, "lower bound", 4 * words * devices, True)
    g = Graph()
    a, b = g.input("a", (1024, 1024)), g.input("b", (1024, 1024))
    g.output(g.op("matmul", a, b, name="product"), "y")
    found = plan(g, Mesh((8,)), fix={"product": {"k": 8}}, layout={"y": {}})
    yield Row("product 1024³ split along k over 8, then on all", found, "XLA, all-reduce", 7_340_032)
    g = Graph()
    x, w, v = g.input("x", (1024, 256)), g.input("w", (256, 1024)), g.input("v", (1024, 256))
    g.output(ops.relu(x @ w) @ v, "y")
    for bandwidth in (1e10, 1e8):
        mesh = Mesh((8,), link=Link(1e-6, bandwidth))
        found = plan(g, mesh, placement="single", layout={"x": {}, "y": {}})
        work = f"MLP of 1,024 rows, width 256, over 8 at {bandwidth:.0e} B/s, x and y on all"
        yield Row(work, found, "XLA, Megatron: an all-reduce", 1_835_008)


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
    yield Row("training of two layers, weights tied, in all", found, "a ring's optimum", 469_762_048, True)


def views() -> Iterator[Row]:
    """Cell by cell work before and after a view of four million cells, on four devices."""
    n = 1 << 22
    seen: dict[str, Callable[[Tensor], Tensor]] = {
        "reversed": lambda e: e[::-1],
        "rolled by half": lambda e: roll(e, n // 2),
        "halves swapped": lambda e: concatenate([e[n // 2 :], e[: n // 2]]),
        "four rows, transposed": lambda e: e.reshape(4, n // 4).T,
    }
    for name, view in seen.items():
        g = Graph()
        g.output(ops.tanh(view(ops.exp(g.input("x", (n,))))))
        with mock.patch.object(tuning, "MAX_DERIVED", 0):
            as_they_come = plan(g, Mesh((4,))).nbytes_moved
        work = f"tanh of exp, {name}, over 4, in all"
        yield Row(work, plan(g, Mesh((4,))), "blocks in the devices' order", as_they_come, True)


def line(row: Row) -> str:
    """A row of the table."""
    ours = row.plan.nbytes_moved if row.is_total else max(row.plan.nbytes_received)
    ratio = f"{ours / row.nbytes:.2f}" if row.nbytes else "both 0" if not ours else "more"
    seconds = f"{row.plan.seconds * 1e6:,.1f}"
    cells = (row.work, f"{ours:,}", row.peer, f"{row.nbytes:,}", ratio, seconds, f"{row.plan.gap:.3f}", row.plan.space)
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"also write the table to {RESULTS.name}")
    write = parser.parse_args().write
    lines = ["| work | bytes | beside | bytes | ratio | modeled us | gap | space |", "|---" * 8 + "|"]
    for group in (convolutions, products, training, views):
        lines += [line(row) for row in group()]
    print("\n".join(lines))
    if write:
        about = (__doc__ or "").split("\n\n")[-1]
        head = [f"# Bytes moved, {date.today().isoformat()}", "", f"{machine()}.", "", about]
        RESULTS.write_text("\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    main()
