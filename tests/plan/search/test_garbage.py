"""Planning puts full collections of garbage off, and leaves the collector as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from threading import Barrier, Thread

import pytest

from tapestry_plan import Graph, Mesh, ops, plan
from tapestry_plan.search.garbage import put_off_full_collections

OURS = 613, 7, 5


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*OURS)
    yield
    gc.set_threshold(*before)


def test_thresholds_are_as_they_were_after_a_plan_and_after_an_error() -> None:
    g = Graph()
    g.output(ops.relu(g.input("x", (8, 8))), "y")
    seen = []
    plan(g, Mesh(2), progress=lambda *_: seen.append(gc.get_threshold()))
    assert gc.get_threshold() == OURS
    during = seen[:-1]  # all is told to be done when it is
    assert {one[:2] for one in during} == {OURS[:2]} and min(one[2] for one in during) > 10**6

    def fail(*_: object) -> None:
        raise KeyError("out")

    with pytest.raises(KeyError, match="out"):
        plan(g, Mesh(2), progress=fail)
    assert gc.get_threshold() == OURS


def test_the_last_of_several_threads_restores_them() -> None:
    entered, first_left = Barrier(3), Barrier(3)
    seen = []

    def work(leaves_first: bool) -> None:
        with put_off_full_collections():
            entered.wait()
            if not leaves_first:
                first_left.wait()
        if leaves_first:
            seen.append(gc.get_threshold())
            first_left.wait()

    threads = [Thread(target=work, args=(first,)) for first in (True, False)]
    for thread in threads:
        thread.start()
    entered.wait()
    first_left.wait()
    for thread in threads:
        thread.join()
    assert seen[0][2] > 10**6 and gc.get_threshold() == OURS


def test_what_somebody_else_sets_meanwhile_stays() -> None:
    with put_off_full_collections(), put_off_full_collections():
        gc.set_threshold(99, 9, 9)
    assert gc.get_threshold() == (99, 9, 9)
