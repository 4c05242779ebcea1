"""Routes: which device sends the cells that another one needs, and over which axis of the mesh they go."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isqrt, prod

import numpy as np
from numpy.typing import NDArray

from tapestry_plan.steps.layouts.mesh import Mesh

BoolArray = NDArray[np.bool_]


def list_senders(groups: Sequence[int], mesh: Mesh) -> BoolArray:
    """From which devices each device reads the cells of a tensor, by (sender, receiver).

    Devices of one group hold the same cells. Of each group a device reads from one that is nearest: on the way to it
    the outermost axis of the mesh whose coordinate differs lies as far inside as can be; a device of the group reads
    from itself. Where several are nearest they are taken in turn: the first of them by the first device of each group,
    the second by its second one, and so on, so that replicas share the work of sending. A device that holds nothing has
    no place in a group: of the nearest it reads from one with its own coordinates on as many of the other axes as can
    be, the outer ones first, where an axis of 16 devices counts as four of 2. So where replicas lie along some axes of
    the mesh, every device reads from those that have its own coordinates on them.

    Parameters
    ----------
    groups : sequence of int
        For each device the number of its group, -1 for a device that holds nothing.
    mesh : Mesh

    Examples
    --------
    Devices 0 and 1 hold the upper half of a tensor, 2 and 3 the lower one: 2 sends to 0, and 3 to 1.

    >>> list_senders((0, 0, 1, 1), Mesh((2, 2))).astype(int).tolist()
    [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    """
    return _list_senders(tuple(groups), mesh.shape)


def list_factors(n: int) -> tuple[int, ...]:
    """The prime factors of a number, ascending.

    Examples
    --------
    >>> list_factors(12), list_factors(7), list_factors(1)
    ((2, 2, 3), (7,), ())
    """
    least = next((k for k in range(2, isqrt(n) + 1) if n % k == 0), n)
    return () if n == 1 else (least, *list_factors(n // least))


@lru_cache(maxsize=1024)
def _list_senders(groups: tuple[int, ...], shape: tuple[int, ...]) -> BoolArray:
    nearness = np.where(np.array(groups) < 0, _rank_alike(shape), _count_common_axes(shape))
    sends = np.zeros(nearness.shape, bool)
    members: dict[int, list[int]] = {}
    place = np.zeros(len(groups), np.int16)
    for device, group in enumerate(groups):
        of_group = members.setdefault(group, [])
        place[device] = len(of_group)
        of_group.append(device)
    by_size: dict[int, list[list[int]]] = {}
    for group, found in members.items():
        if group >= 0:
            by_size.setdefault(len(found), []).append(found)
    for alike in by_size.values():
        places = np.array(alike)  # (groups, devices of each)
        shared = nearness[places]  # and receivers
        near = shared == shared.max(axis=1, keepdims=True)
        count = near.cumsum(axis=1, dtype=np.int16)
        sends[places] = near & (count == place % count[:, -1:] + 1)
    sends.flags.writeable = False
    return sends


@lru_cache(maxsize=64)
def _count_common_axes(shape: tuple[int, ...]) -> NDArray[np.int8]:
    """How many of the outer axes of a mesh two devices have the same coordinates on, before the first that differs."""
    places = np.indices(shape).reshape(len(shape), -1)
    same = places[:, :, None] == places[:, None, :]
    found: NDArray[np.int8] = np.logical_and.accumulate(same, axis=0).sum(axis=0, dtype=np.int8)
    return found


@lru_cache(maxsize=64)
def _rank_alike(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """How alike the coordinates of two devices are: an outer axis counts more than all further inside.

    An axis of 16 devices counts as four axes of 2.
    """
    digits = tuple(n for each in shape for n in list_factors(each)) or (1,)
    found = np.zeros((prod(shape), prod(shape)), np.int64)
    for here in np.indices(digits).reshape(len(digits), -1):
        found = 2 * found + (here[:, None] == here)
    return found


@lru_cache(maxsize=64)
def _number_ports(shape: tuple[int, ...], of_axes: tuple[int, ...]) -> NDArray[np.int64]:
    ports = np.array([*of_axes, -1])[_count_common_axes(shape)]
    ports.flags.writeable = False
    return ports


def number_ports(mesh: Mesh) -> NDArray[np.int64]:
    """Over which of `Mesh.ports` each device sends to each other one, by (sender, receiver); -1 to itself.

    With a link for each axis of the mesh, that of the outermost axis on which the two differ: from one machine to
    another the slow network is crossed once, whatever the devices' places inside.

    Examples
    --------
    >>> from tapestry_plan import Link, Mesh
    >>> number_ports(Mesh((2, 2), link=[Link(1e-6, 1e9), Link(1e-6, 1e11)])).tolist()
    [[-1, 1, 0, 0], [1, -1, 0, 0], [0, 0, -1, 1], [0, 0, 1, -1]]
    """
    return _number_ports(mesh.shape, mesh.ports_of_axes)
