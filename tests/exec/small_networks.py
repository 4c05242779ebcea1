"""The tests' small networks, planned, with what one loop gives: what every way of running is held against."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from tapestry_exec import RunResult, run
from tapestry_plan import Graph, Mesh, ShardPlan, load_onnx, ops, plan
from tapestry_plan.onnx import he_random
from tests.exec.run.test_side_by_side import made

MODELS = Path(__file__).parents[1] / "models"
EVERY = tuple(product(("sums", "resnet", "bert", "gpt2"), (2, 3, 4)))
SAMPLE = (("sums", 2), ("sums", 4), ("gpt2", 3))
"""Of these, what each run tries."""


class Case(NamedTuple):
    """A plan with inputs, and its run in one loop."""

    name: str
    plan: ShardPlan
    inputs: dict[str, np.ndarray]
    wanted: RunResult


@cache
def read_network(name: str) -> Graph:
    model = onnx.load(MODELS / f"{name}.onnx")
    return load_onnx(he_random(model, seed=1) if name == "resnet" else model)


@cache
def make_case(name: str, count: int) -> Case:
    """A network on a number of devices; "sums" are partial sums that all send to all."""
    if name == "sums":
        p, fed = made(count)
    else:
        graph = read_network(name)
        p, fed = plan(graph, Mesh((count,))), draw_inputs(graph, count)
    return Case(f"{name} on {count}", p, fed, run(p, fed, backend="serial"))


def exchange_rows(
    devices: int, times: int, rows: int = 8, columns: int = 24
) -> tuple[ShardPlan, dict[str, np.ndarray]]:
    """A plan in which all devices gather so many rows of each, and deal columns to bring them back, in turns."""
    g, rng, fix = Graph(), np.random.default_rng(0), dict[str, Any]()
    x = g.input("x", (rows * devices, columns))
    w = g.constant("w", (rng.random((columns, columns)) / columns).astype(np.float32))
    for k in range(times):
        x = ops.matmul(ops.relu(x, name=f"rows{k}"), w, name=f"product{k}")
        fix |= {f"rows{k}": {"i0": devices}, f"product{k}": {"n": devices}}
    g.output(x, "y")
    return plan(g, Mesh(devices), fix=fix), {"x": rng.random((rows * devices, columns), np.float32)}


def draw_inputs(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    """Inputs of a network."""
    rng = np.random.default_rng(seed)
    return {one.name: draw(rng, one.shape, one.dtype) for one in graph.stored.values() if one.kind == "input"}


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Small whole numbers, which are tokens, too."""
    return rng.integers(0, 2, shape).astype(dtype)


def write_cases(file: Path, which: Sequence[tuple[str, int]]) -> None:
    """For another process."""
    pickle_cases(file, [make_case(*one) for one in which])


def pickle_cases(file: Path, cases: Sequence[Case]) -> None:
    file.write_bytes(pickle.dumps(list(map(tuple, cases))))


def read_cases(file: Path) -> list[Case]:
    return [Case(*case) for case in pickle.loads(file.read_bytes())]
