"""What a notebook shows of an affine map computes what the map does."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import AffineMap


@st.composite
def maps(draw: st.DrawFn) -> AffineMap:
    rows, columns = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    entry = st.integers(-2, 2) | st.integers(-(10**20), 10**20)
    matrix = draw(st.lists(st.tuples(*[entry] * columns), min_size=rows, max_size=rows))
    return AffineMap(tuple(matrix), tuple(draw(st.tuples(*[entry] * rows))), columns)


@given(maps(), st.lists(st.integers(-9, 9), min_size=3, max_size=3))
def test_the_sums_and_the_table_are_the_map(m: AffineMap, values: list[int]) -> None:
    point = tuple(values[: m.in_rank])
    bundle = m._repr_mimebundle_()
    named, sums = bundle["text/plain"].split("\n")
    assert named == repr(m)
    inputs, outputs = re.fullmatch(r"\((.*)\) -> \((.*)\)", sums).groups()  # type: ignore[union-attr]
    assert inputs == ", ".join(f"d{k}" for k in range(m.in_rank))
    assert tuple(eval(f"[{outputs}]", {f"d{k}": x for k, x in enumerate(point)})) == m.apply(point)
    rows = [re.findall("<td>([^<]*)</td>", row) for row in bundle["text/html"].split("\n") if "<td>" in row]
    assert [tuple(map(int, row[1:-1])) for row in rows] == [*m.matrix]
    assert tuple(int(row[-1]) for row in rows) == m.offset


def test_a_large_map_is_shown_by_its_name() -> None:
    large = AffineMap.identity(100)
    assert large._repr_mimebundle_() == {"text/plain": repr(large)}
