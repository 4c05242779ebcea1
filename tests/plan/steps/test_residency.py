"""What buffers have of a tensor, found by bounds; and plans whose time grows with their operators, not faster."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_exec import run
from tapestry_plan import Graph, Mesh, plan
from tapestry_plan.steps.layouts.cells import CellAlgebra
from tapestry_plan.steps.residency import Residency, Resident
from tapestry_plan.steps.step import Buffer
from tapestry_sets.regions import Box, DisjointRegions, Region
from tests.onnx_cases import floats

EXTENT = 9
SIDES = st.tuples(st.integers(0, EXTENT), st.integers(0, EXTENT)).map(sorted)


def boxed(sides: list[list[int]]) -> DisjointRegions:
    """The cells of a box, which may have none."""
    shape = (EXTENT,) * len(sides)
    return DisjointRegions(shape, [Region.from_slices(shape, tuple(slice(*side) for side in sides))])


@st.composite
def boxes(draw: st.DrawFn) -> list[list[list[int]]]:
    rank = draw(st.integers(0, 3))
    return draw(st.lists(st.lists(SIDES, min_size=rank, max_size=rank), min_size=1, max_size=12))


@given(boxes(), st.integers(0, 12))
@example([[], [], []], 1)
@example([[[0, 2]], [[2, 4]], [[3, 3]], [[1, 3]]], 2)
def test_those_that_share_a_cell_are_near_in_their_order(found: list[list[list[int]]], looks: int) -> None:
    algebra, residency = CellAlgebra(), Residency()
    rank = len(found[0])
    need = boxed(found[0])
    added = []
    for k, sides in enumerate(found):
        cells = boxed(sides)
        buffer = Buffer(k, 0, "x", (0,) * rank, (EXTENT,) * rank, "float32", 0, 4)
        added.append(Resident(buffer, cells))
        residency.add(added[-1], algebra.box_around(cells))
        if k == looks:  # those that come later are found too
            residency.list_near(algebra.box_around(need))
    near = [one.buffer.id for one in residency.list_near(algebra.box_around(need))]
    assert near == sorted(near) and set(near) <= set(range(len(added)))
    assert [one.buffer.id for one in residency] == list(range(len(added))) and residency[0] is added[0]
    assert {one.buffer.id for one in added if (one.cells & need).size} <= set(near)
    if len(added) > 1 and rank and need.size:
        around = algebra.box_around(need)
        assert around is not None
        for k in near:
            have: Box | None = algebra.box_around(added[k].cells)
            assert have is not None
            sides = zip(have.start, have.stop, around.start, around.stop, strict=True)
            assert all(a < d and c < b for a, b, c, d in sides)


def row_by_row(rows: int) -> Graph:
    """Operators that each read a row of one tensor, and their results side by side."""
    graph = Graph()
    x, state = graph.input("x", (rows, 4)), graph.input("state", (4,))
    for k in range(rows):
        state = state + x[k]
    graph.output(state, "y")
    return graph


def test_questions_of_cells_grow_with_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[str] = Counter()

    def counted(name: str) -> Any:
        own = getattr(CellAlgebra, name)

        def count(*args: Any) -> Any:
            asked[name] += 1
            return own(*args)

        return count

    for name in ("meet", "less", "is_within"):
        monkeypatch.setattr(CellAlgebra, name, counted(name))
    times = []
    for rows in (30, 60):
        asked.clear()
        made = plan(row_by_row(rows), Mesh((3,)))
        found = run(made, {"x": floats(rows, 4), "state": floats(4)})
        assert found.nbytes_moved == made.nbytes_moved
        times.append(sum(asked.values()))
    assert times[0] > 0 and times[1] <= 2.2 * times[0]
