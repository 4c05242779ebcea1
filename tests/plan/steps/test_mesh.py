"""Meshes."""

from __future__ import annotations

from typing import Any

import pytest

from tapestry_plan import Device, Link, Mesh
from tapestry_plan.steps.layouts.mesh import align
from tapestry_plan.steps.tuning import MAX_DEVICES


def test_devices_are_numbered_row_major() -> None:
    mesh = Mesh((2, 3))
    assert [mesh.coordinates(d) for d in range(6)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert mesh.names == ("x", "y")


@pytest.mark.parametrize(("text", "shape"), [("4", (4,)), ("2x2", (2, 2)), ("2X3x1", (2, 3, 1)), ("2×2", (2, 2))])
def test_parse(text: str, shape: tuple[int, ...]) -> None:
    assert Mesh.parse(text).shape == shape


@pytest.mark.parametrize("text", ["", "2x", "x", "-1", "2.5", "two"])
def test_parse_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="numbers joined by 'x'"):
        Mesh.parse(text)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (-1,), (MAX_DEVICES + 1,), (10**9, 10**9)])
def test_zero_and_absurd_sizes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="devices"):
        Mesh(shape)


def test_a_mesh_has_an_axis() -> None:
    with pytest.raises(ValueError, match=r"Mesh: shape is \(\); give the devices of one axis at least"):
        Mesh(())


def test_booleans_and_floats_are_refused() -> None:
    with pytest.raises(TypeError):
        Mesh((True, 2))
    with pytest.raises(TypeError):
        Mesh((2.0,))  # type: ignore[arg-type]


def test_names_must_name_every_axis_once() -> None:
    with pytest.raises(ValueError, match="one by one; give each its own"):
        Mesh((2, 2), names=("x", "x"))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_rates_must_be_finite_and_positive(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Device(value)
    with pytest.raises(ValueError, match="finite"):
        Link(1e-6, value)


@pytest.mark.parametrize("value", ["fast", None, True, [1e9]])
def test_rates_must_be_numbers(value: object) -> None:
    with pytest.raises(TypeError, match=r"flop_per_second must be a number.*, not .*"):
        Device(value)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"latency_seconds must be a number.*, not .*"):
        Link(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1e-9, float("nan"), float("inf")])
def test_waits_must_be_finite_and_not_negative(value: float) -> None:
    with pytest.raises(ValueError, match=r"launch_seconds is .*, it must be finite and >= 0"):
        Device(1e9, 1e9, value)
    with pytest.raises(ValueError, match=r"latency_seconds is .*, it must be finite and >= 0"):
        Link(value)


def test_links_by_axis() -> None:
    slow, fast = Link(1e-5, 1e9), Link(1e-6, 1e11)
    by_name = Mesh((2, 4), link={"y": fast, "x": slow})  # type: ignore[arg-type]
    assert by_name == Mesh((2, 4), link=(slow, fast)) == Mesh((2, 4), link=[slow, fast])  # type: ignore[arg-type]
    assert by_name.ports == (slow, fast) and Mesh((2, 4), link=fast).ports == (fast,)
    assert hash(by_name) == hash(Mesh((2, 4), link=(slow, fast)))
    named = Mesh((2, 4), names=("node", "gpu"), link={"node": slow, "gpu": fast})  # type: ignore[arg-type]
    assert named.ports == by_name.ports


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ({"x": Link(), "z": Link()}, r"link has 'z', which is not an axis of the mesh; known axes: 'x', 'y'"),
        ({"x": Link()}, r"link has none for axis 'y'; give one for each of \('x', 'y'\), or one for all"),
        ({}, "link has none for axis 'x'"),
        ([Link()], "link has 1 entries; give one for each of the axes"),
        ((Link(), Link(), Link()), "link has 3 entries"),
    ],
)
def test_links_name_each_axis_once(link: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mesh((2, 4), link=link)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"link": 1e9}, r"link is 1000000000.0, it must be a Link, or one for each axis as \{'x': Link\(\)\}"),
        ({"link": "nvlink"}, "link is 'nvlink', it must be a Link"),
        ({"link": {"x": Link(), "y": 1e9}}, r"link\['y'\] is 1000000000.0, it must be a Link, as Link\("),
        ({"link": [Link(), None]}, r"link\['y'\] is None, it must be a Link, as .*, or another axis"),
        ({"device": Link()}, "it must be a Device, or a list of them, one for each device"),
        ({"device": [Device(), 5]}, r"device\[1\] is 5, it must be a Device, as Device\("),
        ({"host": None}, "host must be a Link, not None"),
    ],
)
def test_wrong_types_of_links_and_devices_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Mesh((2, 4), **given)


@pytest.mark.parametrize(("nbytes", "place"), [(0, 0), (1, 64), (64, 64), (65, 128)])
def test_alignment(nbytes: int, place: int) -> None:
    assert align(nbytes) == place
