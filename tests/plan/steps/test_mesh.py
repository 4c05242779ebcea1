"""Meshes."""

from __future__ import annotations

import pytest

from tapestry_plan import Device, Link, Mesh
from tapestry_plan.steps.mesh import align
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


def test_booleans_and_floats_are_refused() -> None:
    with pytest.raises(TypeError):
        Mesh((True, 2))
    with pytest.raises(TypeError):
        Mesh((2.0,))  # type: ignore[arg-type]


def test_names_must_name_every_axis_once() -> None:
    with pytest.raises(ValueError, match="one by one"):
        Mesh((2, 2), names=("x", "x"))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_rates_must_be_finite_and_positive(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Device(value)
    with pytest.raises(ValueError, match="finite"):
        Link(1e-6, value)


@pytest.mark.parametrize(("nbytes", "place"), [(0, 0), (1, 64), (64, 64), (65, 128)])
def test_alignment(nbytes: int, place: int) -> None:
    assert align(nbytes) == place
