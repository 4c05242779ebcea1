"""Rewrites: a thousand on a graph of two thousand operators, on one working copy; cost against size of the tensors.

Run as ``python tests/bench/bench_rewrites.py``. There is no peer with the same rules; the limit is 2 s.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from datetime import date
from functools import partial

from bench_sets import RESULTS as SETS_RESULTS
from bench_sets import machine

from tapestry_plan import Graph, Tensor
from tapestry_plan.ops import linear, relu
from tapestry_plan.rewrite import Derivation, find, fuse

RESULTS = SETS_RESULTS.with_name("bench_rewrites.md")
LIMIT_SECONDS = 2.0
Build = tuple[Graph, Derivation]


def layers(count: int, batch: int, width: int) -> Graph:
    """So many operators: linear and relu in turn."""
    g = Graph()
    x: Tensor = g.input("x", (batch, width))
    w = g.input("w", (width, width))
    for k in range(count // 2):
        x = relu(linear(x, w, name=f"fc{k}"), name=f"act{k}")
    g.output(x, "y")
    return g


def fused(count: int, batch: int, width: int) -> Build:
    """1,000 times linear => relu in one block."""
    steps = Derivation()
    for k in range(1000):
        steps = steps.then("fuse", f"act{k}")
    return layers(count, batch, width), steps


def expanded(count: int, batch: int, width: int) -> Build:
    """500 times linear as prod => sum, and 500 times a relu in two parts."""
    steps = Derivation()
    for k in range(500):
        steps = steps.then("expand", f"fc{k}", into="prod_sum").then("shard", f"act{k}", axis="i0", parts=2)
    return layers(count, batch, width), steps


def sharded(count: int, batch: int, width: int) -> Build:
    """1,000 steps that push two parts from the input through the graph: shard, then forward at each operator."""
    steps = Derivation().then("shard", "fc0", axis="batch", parts=2).then("forward", "act0")
    for k in range(1, 500):
        steps = steps.then("forward", f"fc{k}").then("forward", f"act{k}")
    return layers(count, batch, width), steps


def reduced(count: int, batch: int, width: int) -> Build:
    """1,000 times linear by `in` in four parts, merged two at a time."""
    steps = Derivation()
    for k in range(1000):
        steps = steps.then("shard", f"fc{k}", axis="in", parts=4, fan_in=2)
    return layers(count, batch, width), steps


def seconds(work: Callable[[], object]) -> float:
    """CPU time of one run."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"also write the table to {RESULTS.name}")
    given = parser.parse_args()
    lines = [
        f"# Rewrites, {date.today().isoformat()}",
        "",
        f"{machine()}; CPU seconds, the best of three",
        "",
        "| 1,000 rewrites of 2,000 operators | steps | 64 × 64, s | 10⁶ × 10⁶, s | limit, s |",
        "|---|---|---|---|---|",
    ]
    for make in (fused, expanded, sharded, reduced):
        found = []
        for batch, width in ((64, 64), (10**6, 10**6)):
            graph, steps = make(2000, batch, width)
            found.append(min(seconds(partial(steps.replay, graph)) for _ in range(3)))
        what = (make.__doc__ or "").rstrip(".")
        lines.append(f"| {what} | {len(steps.steps)} | {found[0]:.2f} | {found[1]:.2f} | {LIMIT_SECONDS:.1f} |")
    graph = layers(2000, 64, 64)
    build, search = seconds(lambda: layers(2000, 64, 64)), seconds(lambda: find(graph, fuse))
    text = "\n".join([*lines, "", f"Building the graph: {build:.2f} s; find(fuse) over it: {search:.2f} s."]) + "\n"
    print(text)
    if given.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
