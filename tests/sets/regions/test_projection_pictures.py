"""Pictures of projections: the cells that are drawn are those that each point touches, listed one by one."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import AffineMap, IndexProjection, allocate, overlap


@st.composite
def projections(draw: st.DrawFn) -> IndexProjection:
    rank, out = draw(st.integers(0, 3)), draw(st.integers(0, 5))
    splits = draw(st.lists(st.tuples(st.integers(0, rank - 1), st.integers(1, 3)), max_size=1)) if rank else []
    columns = rank + 2 * len(splits)
    number = st.integers(-3, 3)
    rows = [draw(st.lists(number, min_size=columns, max_size=columns)) for _ in range(out)]
    return IndexProjection(
        AffineMap(tuple(map(tuple, rows)), tuple(draw(number) for _ in rows), columns),
        [draw(st.integers(1, 4)) for _ in rows],
        splits,
    )


@given(projections())
def test_cells_are_those_that_points_touch(p: IndexProjection) -> None:
    bundle = p._repr_mimebundle_()
    assert (
        bundle["text/plain"] == repr(p) and bundle["image/svg+xml"].startswith("<svg") and "<svg" in bundle["text/html"]
    )
    svg = bundle["image/svg+xml"]
    groups = re.split(r"<text[^>]*>coordinate ", svg)[1:]
    assert len(groups) == min(4, len(p.shape))
    for c, group in enumerate(groups):
        for held, body in re.findall(r'data-in="(\d*)">(.*?)</g>', group, re.S):
            for at, cell in re.findall(r'data-at="\(([^)]*)\):(-?\d+)"', body):
                box = p(tuple(map(int, at.split(", "))) if at else ())
                assert (box.start[c] <= int(cell) < box.stop[c]) == bool(held)


def test_large_ones_are_told_in_words() -> None:
    wide = IndexProjection(AffineMap(((1000,),), (7,)), (3,))
    svg = wide._repr_mimebundle_()["image/svg+xml"]
    assert "coordinate 0: 3 cells from 1000*d0 + 7 on" in svg and "data-at" not in svg
    many = IndexProjection(AffineMap(((1,),) * 6, (0,) * 6), (1,) * 6)
    assert "and 2 more coordinates" in many._repr_mimebundle_()["image/svg+xml"]


def test_a_witness_is_told_in_a_table() -> None:
    image = allocate((4, 6), name="image")
    found = overlap(image[1:, ::2], image.T[3:]).witness
    assert found is not None
    bundle = found._repr_mimebundle_()
    assert bundle["text/plain"] == repr(found) == "Witness(a=(0, 2), b=(1, 1), cell=(1, 4))"
    for name, at in (("first view", "[0, 2]"), ("second view", "[1, 1]"), ("allocation", "[1, 4]")):
        assert f"{name}</td>" in bundle["text/html"] and f"{at}</td>" in bundle["text/html"]
        assert re.search(rf"{name} +\{at}", bundle["image/svg+xml"])
