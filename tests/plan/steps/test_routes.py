"""Who reads from whom, and over which link."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_plan import Link, Mesh
from tapestry_plan.steps import list_senders, number_ports

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


def steps_in_common(mesh: Mesh, a: int, b: int) -> int:
    """Coordinates that are equal before the first that differs, one pair after the other."""
    common = 0
    for x, y in zip(mesh.coordinates(a), mesh.coordinates(b), strict=True):
        if x != y:
            break
        common += 1
    return common


def digits(mesh: Mesh, device: int) -> list[int]:
    """Coordinates in digits of prime sizes: of an axis of 4 devices two of 2."""
    primes = {1: [], 2: [2], 3: [3], 4: [2, 2]}
    return [int(k) for k in np.unravel_index(device, [p for n in mesh.shape for p in primes[n]] or [1])]


def in_common(mesh: Mesh, a: int, b: int) -> list[bool]:
    """Which coordinates are equal, the outermost first."""
    return [x == y for x, y in zip(digits(mesh, a), digits(mesh, b), strict=True)]


@given(SHAPES, st.data())
def test_of_each_group_one_of_the_nearest_sends(shape: tuple[int, ...], data: st.DataObject) -> None:
    mesh = Mesh(shape)
    groups = data.draw(st.lists(st.integers(-1, 3), min_size=mesh.size, max_size=mesh.size))
    sends = list_senders(groups, mesh)
    for receiver in range(mesh.size):
        for group in set(groups) - {-1}:
            members = [d for d in range(mesh.size) if groups[d] == group]
            chosen = [d for d in members if sends[d, receiver]]
            holds = groups[receiver] >= 0
            likeness = {
                d: steps_in_common(mesh, d, receiver) if holds else in_common(mesh, d, receiver) for d in members
            }
            nearest = [d for d in members if likeness[d] == max(likeness.values())]
            place = [d for d in range(mesh.size) if groups[d] == groups[receiver]].index(receiver)
            assert chosen == [nearest[place % len(nearest)]]
            assert receiver not in members or chosen == [receiver]
        assert not any(sends[d, receiver] for d in range(mesh.size) if groups[d] == -1)


@pytest.mark.parametrize(
    ("shape", "groups"),
    [
        ((8,), [0, 0, 0, 0, 1, 1, 1, 1]),
        ((8,), [0, 1, 2, 3, 0, 1, 2, 3]),
        ((2, 4), [0, 0, 0, 0, 1, 1, 1, 1]),
        ((2, 4), [0, 1, 0, 1, 2, 3, 2, 3]),
        ((2, 2, 2), [0, 0, 1, 1, 2, 2, 3, 3]),
    ],
)
def test_replicas_share_the_work(shape: tuple[int, ...], groups: list[int]) -> None:
    """Where every device needs everything, each sends to as many others as every other one does."""
    sends = list_senders(groups, Mesh(shape))
    assert len(set((sends & ~np.eye(8, dtype=bool)).sum(axis=1).tolist())) == 1


@given(SHAPES)
def test_the_outermost_axis_that_differs_is_crossed(shape: tuple[int, ...]) -> None:
    mesh = Mesh(shape, link=[Link(k * 1e-6, 1e9) for k in range(len(shape))])
    ports = number_ports(mesh)
    for a in range(mesh.size):
        for b in range(mesh.size):
            wanted = -1 if a == b else steps_in_common(mesh, a, b)
            assert ports[a, b] == (min(wanted, len(shape) - 1) if len(mesh.ports) > 1 else min(wanted, 0))


def test_one_link_is_one_port() -> None:
    found = Counter(number_ports(Mesh((2, 3))).reshape(-1).tolist())
    assert found == {-1: 6, 0: 30}
