"""Operators: shards of a convolution, graphs of thousands of nodes, gradients, random words; run as a script.

python tests/bench/bench_operators.py            prints the tables
python tests/bench/bench_operators.py --write    also writes them to tests/bench/results/bench_operators.md
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from datetime import date
from itertools import pairwise

import numpy as np
from bench_sets import RESULTS as SETS_RESULTS
from bench_sets import Row, machine, peer_table, seconds, shown

from tapestry_plan import Graph, Tensor, gradient, operation, ops
from tapestry_plan.ir import count_shared
from tapestry_plan.ops import conv, linear, relu
from tapestry_plan.ops.random.philox import region_words, words

RESULTS = SETS_RESULTS.with_name("bench_operators.md")
DEVICES = 1024
AIMS = (("a convolution over 1024 devices", 0.05), ("2000 operators with signatures", 1.0))
"""What a case that begins so is to take at most, in seconds."""


def convolution(scale: int) -> Graph:
    g = Graph()
    x, w = g.input("x", (2, 64, 4096 * scale, 4096 * scale)), g.input("w", (64, 64, 3, 3))
    conv(x, w, pads=1, strides=2, name="conv")
    return g


def shards(scale: int) -> int:
    """Index boxes, regions read and written, and what neighbors share, of 1,024 parts."""
    op = operation(convolution(scale), "conv")
    parts = op.shard({"h": 32, "w": 32})
    shared = sum(one.inputs[0].count_common(two.inputs[0]) for one, two in pairwise(parts))
    return shared + sum(count_shared(op, "h", 32)) + len(parts)


def convolutions() -> Iterable[Row]:
    for power in (0, 3, 6, 9):
        scale = 10**power
        yield Row(
            f"a convolution over {DEVICES} devices, 4096 x 4096 x 10^{2 * power} cells: regions and shared cells",
            seconds(lambda scale=scale: shards(scale), 3),
            None,
            "none",
        )


def layers(count: int, width: int) -> tuple[Graph, Tensor, list[Tensor]]:
    g = Graph()
    x = g.input("x", (64, width))
    weights = [g.input(f"w{k % 8}", (width, width)) for k in range(8)]
    for k in range(count // 2):
        x = relu(linear(x, weights[k % 8]))
    return g, x, weights


def graphs() -> Iterable[Row]:
    for width in (64, 64 * 10**9):
        yield Row(
            f"2000 operators with signatures, of width {width}",
            seconds(lambda n=width: layers(2000, n), 3),
            None,
            "none",
        )

    def backward() -> int:
        g, x, weights = layers(400, 64)
        before = len(g.nodes)
        gradient(ops.sum(x, keepdims=True), weights)
        return len(g.nodes) - before

    added = backward()
    yield Row(f"400 operators and their gradients ({added} more operators)", seconds(backward, 3), None, "none")


def random_words() -> Iterable[Row]:
    n = 1 << 20
    generator = np.random.Generator(np.random.Philox(1))
    mine = seconds(lambda: words(np, np.arange(n // 4, dtype=np.uint64), (1, 2)), 3)
    theirs = seconds(lambda: generator.integers(0, 1 << 32, n, dtype=np.uint32), 3)
    yield Row("2^20 words of Philox4x32-10, by index", mine, theirs, "NumPy's Philox4x64-10, in C and in order")
    part = seconds(lambda: region_words(np, (300, 300), (400, 400), (1024, 1024), (1, 2)), 3)
    yield Row("the words of 400 x 400 cells within 1024 x 1024", part, mine, "the words of all")


CASES = [convolutions, graphs, random_words]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"also write the tables to {RESULTS.name}")
    given = parser.parse_args()
    start = time.perf_counter()
    rows = [row for case in CASES for row in case()]
    aims = ["| case | ours | aim | reached |", "|---|---|---|---|"]
    for row in rows:
        aim = next((aim for begins, aim in AIMS if row.case.startswith(begins)), None)
        if aim is not None:
            reached = "yes" if row.ours <= aim else "**no**"
            aims.append(f"| {row.case} | {shown(row.ours)} | <= {shown(aim)} | {reached} |")
    head = f"# Operators, {date.today().isoformat()}"
    text = "\n".join([head, "", f"{machine()}, NumPy {np.__version__}", "", *aims, "", *peer_table(rows)]) + "\n"
    print(text, f"({time.perf_counter() - start:.0f} s)")
    if given.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
