"""Progress of planning: it is told, grows, ends with all, and changes nothing."""

from __future__ import annotations

import time
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tapestry_plan import Device, Graph, InfeasiblePlan, Link, Mesh, NotFound, load_onnx, ops, pareto, plan
from tapestry_plan.search.progress import STAGES
from tests.graph_recipes import Recipe, built, recipes
from tests.layered_models import gpt

Told = list[tuple[int, int, str]]


def told_by(function: Any, *given: Any, **asked: Any) -> tuple[Any, Told]:
    told: Told = []
    made = function(*given, **asked, progress=lambda *one: told.append(one))
    return made, told


def check(told: Told) -> None:
    """What is done grows to all that there is; stages come in their order, each in its own share of it."""
    done, totals, words = zip(*told, strict=True)
    assert len({*totals}) == 1 and done[-1] == totals[0] and words[-1] == "done"
    assert all(a < b for a, b in pairwise(done)) and done[0] > 0
    order = [*STAGES, "done"]
    numbers = [order.index(word) for word in words]
    assert numbers == sorted(numbers)
    length = totals[0] // (5 if totals[0] % 5 == 0 and "memory" in words else 4)
    shares = zip(done[:-1], numbers[:-1], strict=True)
    assert all(length * number <= count <= length * (number + 1) for count, number in shares)


@settings(max_examples=20)
@given(recipes(6))
def test_it_grows_to_the_end_and_changes_nothing(recipe: Recipe) -> None:
    g = built(recipe)
    for mesh in (Mesh(1), Mesh(3)):
        made, told = told_by(plan, g, mesh)
        check(told)
        assert made == plan(g, mesh)


def _note(at: list[tuple[float, float]], done: int, total: int, words: str) -> None:
    at.append((time.perf_counter(), done / total))


@pytest.mark.heavy(2)
def test_it_is_fine_and_steady_on_a_long_graph() -> None:
    g = load_onnx(gpt(4, length=128))
    away = []
    for _ in range(3):  # other work on the machine stops one now and then
        at: list[tuple[float, float]] = []
        began = time.perf_counter()
        tell = partial(_note, at)
        made = plan(g, Mesh((2, 2)), progress=tell)
        whole = time.perf_counter() - began
        assert len(at) > 2 * len(g.nodes) and at[-1][1] == 1
        away.append(max(abs(share - (moment - began) / whole) for moment, share in at))
    # How far it is said to be is not far from how far it is: no stage takes most of the time.
    assert min(away) < 0.5
    assert made == plan(g, Mesh((2, 2)))


def test_plans_in_little_memory_and_several_plans_tell_of_memory_too() -> None:
    g = Graph()
    h = g.input("x", (16, 64)) @ g.input("w", (64, 256))
    g.output(ops.relu(h) @ g.input("v", (256, 64)))
    slow = Mesh((4,), link=Link(1e-8, 1e9), device=Device(1e9, 1e10))
    most = max(plan(g, slow).peak_nbytes)
    made, told = told_by(plan, g, slow, memory_nbytes=most // 3)
    check(told)
    assert told[-2][2] == "memory" and max(made.peak_nbytes) <= most // 3
    assert sum(words == "memory" for _, _, words in told) >= 2  # it does not stand still there
    assert made == plan(g, slow, memory_nbytes=most // 3)
    plans, told = told_by(pareto, g, slow, points=5)
    check(told)
    assert sum(words == "memory" for _, _, words in told) >= 2 and len(plans) > 1


def test_a_plan_that_there_is_not_is_not_done() -> None:
    g = Graph()
    g.output(g.input("x", (64, 64)) @ g.input("w", (64, 64)))
    told: Told = []
    with pytest.raises((InfeasiblePlan, NotFound)):
        plan(g, Mesh(2), memory_nbytes=10, progress=lambda *one: told.append(one))
    assert told[-1][2] == "memory" and told[-1][0] < told[-1][1]


def test_what_the_callback_raises_ends_planning() -> None:
    g = Graph()
    g.output(g.constant("c", np.ones((4, 4), np.float32)) @ g.input("w", (4, 4)))

    def stop(done: int, total: int, words: str) -> None:
        raise KeyboardInterrupt(words)

    with pytest.raises(KeyboardInterrupt, match=r"costs|layouts"):
        plan(g, Mesh(2), progress=stop)
    with pytest.raises(TypeError, match=r"progress.*5.*it is called with what is done"):
        plan(g, Mesh(2), progress=5)  # type: ignore[arg-type]


def test_telling_takes_next_to_nothing() -> None:
    """So many calls as a plan of a long graph makes take under a hundredth of its time."""
    g = load_onnx(gpt(4, length=128))
    calls = 0

    def count(done: int, total: int, words: str) -> None:
        nonlocal calls
        calls += 1

    began = time.process_time()
    plan(g, Mesh((2, 2)), progress=count)
    whole = time.process_time() - began
    began = time.process_time()
    for _ in range(calls):
        count(1, 2, "costs")
    assert time.process_time() - began < whole / 100
