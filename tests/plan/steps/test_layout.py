"""Layouts: every factorization, even parts, devices row-major, replicas or idle devices."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_plan import Axis, Device, Graph, Link, Mesh, ShardPlan, ops, plan
from tapestry_plan.ir.signature import parts_of
from tapestry_plan.ops import relu
from tapestry_plan.steps.layouts.layout import Layout, list_layouts, list_mesh_layouts, parse_layout
from tapestry_sets.digits import point_of

AXES = (Axis("m", 6, alias="batch"), Axis("n", 5))


@given(st.lists(st.integers(1, 7), max_size=3).map(tuple), st.integers(1, 8))
@example((), 2)
def test_layouts_cover_the_index_space(extents: tuple[int, ...], devices: int) -> None:
    for option in list_layouts(extents, devices):
        seen: dict[tuple[int, ...], int] = {}
        for box in option.boxes:
            assert box is None or box.size > 0  # every part has points
            for point in box.points() if box is not None else ():
                seen[point] = seen.get(point, 0) + 1
        assert set(seen) == set(product(*map(range, extents)))
        copies = set(seen.values())
        assert len(copies) == 1 and copies.pop() * prod(option.parts) <= devices


@given(st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple), st.integers(1, 8))
def test_every_factorization_of_the_devices_is_there(extents: tuple[int, ...], devices: int) -> None:
    found = {option.parts for option in list_layouts(extents, devices)}
    for parts in product(*(range(1, n + 1) for n in extents)):
        if devices % prod(parts) == 0:
            assert parts in found


def split_in_turn(n: int, counts: list[int]) -> list[np.ndarray]:
    """The points of an axis, cut into so many parts, each of these again, and so on."""
    parts = [np.arange(n)]
    for many in counts:
        parts = [piece for part in parts for piece in np.array_split(part, many)]
    return parts


def even_sizes(n: int, parts: int) -> tuple[int, ...]:
    return tuple(map(len, np.array_split(np.arange(n), parts)))


@given(
    st.lists(st.integers(1, 11), max_size=3).map(tuple),
    st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    st.booleans(),
)
@example((10,), (2, 4), True)  # four devices have five points, cut 2 1 1 1
@example((), (2, 2), True)
@example((3,), (2, 4), True)  # more devices along both axes than points
def test_layouts_along_the_mesh_s_axes(extents: tuple[int, ...], shape: tuple[int, ...], replicas: bool) -> None:
    """Each role of each axis of the mesh, laid out device by device from the rule's words."""
    asked_for, is_row = shape, len(shape) == 1
    if is_row:
        pairs = [(a, shape[0] // a) for a in range(1, shape[0] + 1) if shape[0] % a == 0]
        shape = max(pair for pair in pairs if pair[0] <= pair[1])
    wanted, each = set(), list(enumerate(extents))
    for roles in product([*range(len(extents)), *(["replicas"] if replicas else []), "idle"], repeat=len(shape)):
        asked = [prod(n for n, role in zip(shape, roles, strict=True) if role == a) for a in range(len(extents))]
        parts = tuple(map(min, asked, extents))
        cells: list[tuple[int, ...] | None] = []
        for place in product(*map(range, shape)):
            cell = []
            for axis in range(len(extents)):
                along = [(at, n) for at, n, role in zip(place, shape, roles, strict=True) if role == axis]
                number = 0
                for at, n in along:
                    number = number * n + at
                cell.append(number)
            idle = any(at for at, role in zip(place, roles, strict=True) if role == "idle")
            cells.append(None if idle or any(c >= k for c, k in zip(cell, parts, strict=True)) else tuple(cell))
        wanted.add(Layout(extents, parts, tuple(cells)))
        points = [split_in_turn(n, [k for k, role in zip(shape, roles, strict=True) if role == a]) for a, n in each]
        sizes = tuple(tuple(map(len, mine)) for mine in points)
        if not is_row and all(map(all, sizes)) and sizes != tuple(map(even_sizes, extents, parts)):
            wanted.add(Layout(extents, parts, tuple(cells), sizes=sizes))
    found = list_mesh_layouts(extents, asked_for, replicas=replicas)
    assert len(found) == len(set(found)) and set(found) == wanted
    for option in found:
        assert set(option.cells) - {None} == set(product(*map(range, option.parts)))  # every part is somewhere


@pytest.mark.parametrize("space", ["mesh", "all"])
def test_uneven_parts_along_two_axes_of_the_mesh_stay_within_one(space: Literal["mesh", "all"]) -> None:
    """1,010 points are halved along x: four devices share a half, and none gets a point of the other one."""
    g = Graph()
    h = ops.sqrt(ops.exp(g.input("x", (1010,)), name="first"), name="between")
    g.output(ops.tanh(h, name="last"))
    links = {"x": Link(1e-6, 1e6), "y": Link(1e-8, 1e12)}
    halves: Any = {"first": {"i0": ("x",)}, "last": {"i0": ("x",)}}
    p = plan(g, Mesh((2, 4), link=links, device=Device(1e6, 1e9)), fix=halves, space=space)
    assert [box.size for (box,) in p.placement["between"].values()] == [127, 126, 126, 126] * 2 and p.gap == 0
    assert not any((a < 4) != (b < 4) for (a, b), nbytes in p.nbytes_by_link.items() if nbytes)
    assert p.nbytes_moved == 2 * 4 * (505 * 3)  # each device of a half gets the rest of it
    assert ShardPlan.from_json(p.to_json()) == p


def test_a_mesh_of_one_axis_counts_as_two() -> None:
    extents = (64, 64, 64)
    assert list_mesh_layouts(extents, (8,)) == list_mesh_layouts(extents, (2, 4))
    assert set(list_mesh_layouts(extents, (7,))) == set(list_mesh_layouts(extents, (1, 7)))


@pytest.mark.parametrize(
    ("shape", "most"), [((8,), 36), ((8, 8), 36), ((64,), 36), ((4, 4, 4), 216), ((8, 8, 16), 216)]
)
def test_layouts_along_axes_do_not_grow_with_the_devices(shape: tuple[int, ...], most: int) -> None:
    """A product has four index axes: (rank + 2)^(axes) at most, where all factorizations of 64 are 1,499."""
    assert len(list_mesh_layouts((64, 64, 64, 64), shape)) <= most


def test_both_spaces_have_one_form_of_a_layout() -> None:
    """What both can say compares equal, and is what `fix` with names of mesh axes asks for."""
    whole, along = set(list_layouts((6, 8), 4)), set(list_mesh_layouts((6, 8), (2, 2)))
    assert len(whole & along) >= 8
    for wanted in ({"n": "x"}, {"n": "y"}, {"m": "x", "n": "y"}, {"m": "y", "n": "x"}, {"n": ("x", "y")}):
        assert parse_layout((Axis("m", 6), Axis("n", 8)), wanted, Mesh((2, 2)), "here") in along


def test_devices_that_do_not_divide_still_work() -> None:
    """Seven devices and an axis of five: five work, two idle."""
    options = list_layouts((5,), 7)
    assert max(sum(box is not None for box in option.boxes) for option in options if option.parts == (5,)) == 5


@given(st.integers(1, 50), st.integers(1, 50))
def test_parts_are_as_even_as_possible(n: int, k: int) -> None:
    sizes = [b - a for a, b in parts_of(n, k)]
    assert sum(sizes) == n and len(sizes) == k
    assert sizes == sorted(sizes, reverse=True) and max(sizes) - min(sizes) <= 1


@given(st.lists(st.integers(1, 4), max_size=3))
def test_row_major_counts_like_nested_loops(parts: list[int]) -> None:
    assert [point_of(k, parts) for k in range(prod(parts))] == list(product(*map(range, parts)))


def test_numbers_take_devices_row_major_and_leave_replicas_last() -> None:
    option = parse_layout(AXES, {"batch": 2}, Mesh((2, 2)), "here")
    assert [box.start for box in option.boxes if box] == [(0, 0), (0, 0), (3, 0), (3, 0)]


def test_numbers_that_do_not_divide_leave_devices_idle() -> None:
    option = parse_layout(AXES, {"m": 3}, Mesh((4,)), "here")
    assert [box is None for box in option.boxes] == [False, False, False, True]


def test_mesh_axes_by_name() -> None:
    option = parse_layout(AXES, {"n": ("x", "y")}, Mesh((2, 2)), "here")
    assert [box.shape[1] for box in option.boxes if box] == [2, 1, 1, 1]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"k": 2}, "no axis 'k'; known axes"),
        ({"n": 0}, "0 parts asked for"),
        ({"n": 6}, "the mesh has 4 devices"),
        ({"n": "z"}, "'z' is not an axis of the mesh; known axes"),
        ({"n": "x", "m": 2}, "mixed"),
        ({"n": "x", "m": "x"}, "used twice"),
        ({"m": 4, "n": 4}, "16 parts asked for"),
    ],
)
def test_wrong_requests(wanted: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_layout(AXES, wanted, Mesh((2, 2)), "here")


def test_an_axis_is_given_once() -> None:
    axes = (Axis("m", 4, alias="rows"), Axis("n", 5))
    assert parse_layout(axes, {"rows": 2}, Mesh((2, 2)), "here").parts == (2, 1)
    with pytest.raises(ValueError, match="here: 'm' and 'rows' are one axis, which is given twice; give it once"):
        parse_layout(axes, {"m": 2, "rows": 4}, Mesh((2, 2)), "here")
    g = Graph()
    g.output(relu(g.input("x", (4, 6))), "y")
    with pytest.raises(ValueError, match=r"layout\['x'\] is {0: 2, '0': 4}, which gives an axis twice"):
        plan(g, Mesh((4,)), layout={"x": {0: 2, "0": 4}})


def test_booleans_are_not_numbers_of_parts() -> None:
    with pytest.raises(TypeError, match="not a number of parts"):
        parse_layout(AXES, {"m": True}, Mesh((2, 2)), "here")
