"""Chains that are cut over hundreds of devices: a program's document has that device's steps alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tapestry_plan import Graph, Mesh, ops, plan

Made = tuple[Graph, dict[str, dict[str, int]]]


def convolutions(devices: int) -> Made:
    """Eight by rows: each device has halos with two others."""
    g = Graph()
    x = g.input("x", (1, 16, 4 * devices, 64))
    for k in range(8):
        x = ops.conv(x, g.input(f"w{k}", (16, 16, 3, 3)), pads=(1, 1, 1, 1), name=f"n{k}")
    g.output(x, "y")
    return g, {f"n{k}": {"h": devices} for k in range(8)}


def layers(devices: int) -> Made:
    """Eight linear ones by batch: no device exchanges anything."""
    g = Graph()
    x = g.input("x", (4 * devices, 256))
    for k in range(8):
        x = ops.matmul(x, g.input(f"w{k}", (256, 256)), name=f"n{k}")
    g.output(x, "y")
    return g, {f"n{k}": {"m": devices} for k in range(8)}


@pytest.mark.parametrize("make", [convolutions, layers])
def test_documents_of_programs_do_not_grow_with_other_devices(make: Callable[[int], Made]) -> None:
    few, many = (plan(make(n)[0], Mesh((n,)), fix=make(n)[1]) for n in (16, 256))
    one, other = few.program(5), many.program(5)
    assert len(one.steps) == len(other.steps)
    assert abs(len(other.to_json()) - len(one.to_json())) <= 0.02 * len(one.to_json())  # longer numbers
