"""Collectives: copies of a stage that are equal parts over one group of devices, as a library has them in one call.

What each of n devices has before and afterwards, of a tensor in n equal parts (a, b, … complete, or summands)::

    all_gather       a   | b   | c    ►   abc | abc | abc
    reduce_scatter   abc + abc + abc  ►   a   | b   | c        merged
    all_reduce       abc + abc + abc  ►   abc | abc | abc      merged
    all_to_all       abc | def | ghi  ►   adg | beh | cfi
    broadcast        a   |     |      ►   a   | a   | a

Nothing is guessed from what operators are called: it is what the copies say, and those that say anything else are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Literal

import numpy as np
from msgspec import Struct

from tapestry_plan.steps.layouts.mesh import Mesh
from tapestry_plan.steps.step import HOST, Buffer, Copy, Written
from tapestry_sets.regions import DisjointRegions, Region

CollectiveKind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast"]
Sent = Mapping[tuple[int, int], DisjointRegions]
"""What goes from device to device."""


class Collective(Struct, frozen=True):
    """Copies of one tensor, for one stage, that are one operation of a group of devices.

    Parameters
    ----------
    kind : str
        "all_gather", "reduce_scatter", "all_reduce", "all_to_all" or "broadcast".
    group : tuple of int
        The devices, ascending; of a broadcast the one that sends comes first.
    axes : tuple of str
        The axes of the mesh that the group lies along: its devices differ on these and on no others, and are all that
        do. Empty for other groups.
    node, tensor : str
        As the steps have them.
    nbytes : int
        Bytes of one part: what one device sends to another.
    steps : tuple of int
        Numbers of the copies in `ShardPlan.steps`. The merges of what they bring stay steps of their own.
    """

    kind: CollectiveKind
    group: tuple[int, ...]
    axes: tuple[str, ...]
    node: str
    tensor: str
    nbytes: int
    steps: tuple[int, ...]

    @property
    def nbytes_moved(self) -> int:
        """Bytes between devices, once for each receiving device, as the plan counts them."""
        return self.nbytes * len(self.steps)


def find_collectives(written: Written, mesh: Mesh) -> Iterator[Collective]:
    """The collectives among the copies of some steps, in the order of the stages."""
    buffers = {buffer.id: buffer for buffer in written.buffers}
    stages: dict[tuple[str, str], dict[int, Copy]] = {}
    for at, step in enumerate(written.steps):
        if isinstance(step, Copy) and step.src != HOST and buffers[step.src].device != buffers[step.dst].device:
            stages.setdefault((step.node, step.tensor), {})[at] = step
    parts: dict[str, set[int]] = {}
    for buffer in written.buffers:
        parts.setdefault(buffer.tensor, set()).add(buffer.part)
    for (node, tensor), copies in stages.items():
        for group, mine in _list_groups(copies, buffers):
            found = _name_kind(group, mine, buffers, len(parts[tensor] - {-1}))
            if found is not None:
                kind, members, nbytes = found
                yield Collective(kind, members, _list_axes(group, mesh), node, tensor, nbytes, tuple(mine))


def _list_groups(
    copies: Mapping[int, Copy], buffers: Mapping[int, Buffer]
) -> list[tuple[tuple[int, ...], dict[int, Copy]]]:
    """The devices that exchange anything, directly or through others, ascending, each group with its copies."""
    groups: dict[int, set[int]] = {}
    for copy in copies.values():
        source, target = buffers[copy.src].device, buffers[copy.dst].device
        joined = groups.get(source, {source}) | groups.get(target, {target})
        groups.update(dict.fromkeys(joined, joined))
    mine: dict[tuple[int, ...], dict[int, Copy]] = {}
    for at, copy in copies.items():
        mine.setdefault(tuple(sorted(groups[buffers[copy.src].device])), {})[at] = copy
    return sorted(mine.items())


def _name_kind(
    group: tuple[int, ...], copies: Mapping[int, Copy], buffers: Mapping[int, Buffer], parts: int
) -> tuple[CollectiveKind, tuple[int, ...], int] | None:
    """What the copies of a group are, its devices in order, and the bytes of a part; None for what has no name."""
    sent = {(buffers[one.src].device, buffers[one.dst].device): _join(one.regions) for one in copies.values()}
    sizes = {cells.size for cells in sent.values()}
    if len(sent) < len(copies) or len(sizes) > 1:
        return None
    nbytes = sizes.pop() * np.dtype(buffers[next(iter(copies.values())).src].dtype).itemsize
    sources = {source for source, _ in sent}
    made = {(buffers[one.src].device, buffers[one.src].part) for one in copies.values()}
    numbers = {part for _, part in made}
    kind: CollectiveKind | None = None
    if len(sources) == 1 and numbers == {-1} and len(sent) == len(group) - 1:
        kind = "broadcast" if _are_same([*sent.values()]) else None
        group = *sources, *(device for device in group if device not in sources)
    elif len(sent) == len(group) * (len(group) - 1) and numbers == {-1}:
        kind = _name_exchange(group, sent)
    elif len(sent) == len(group) * (len(group) - 1) and len(made) == len(numbers) == len(group) == parts:
        kind = _name_merge(group, sent)  # each device has one of the parts, and all of them are there
    return None if kind is None else (kind, group, nbytes)


def _name_exchange(group: tuple[int, ...], sent: Sent) -> CollectiveKind | None:
    """Complete cells: every device sends the same to all, or to each something else."""
    given = [[sent[source, target] for target in group if target != source] for source in group]
    if all(map(_are_same, given)):
        return "all_gather"
    return "all_to_all" if all(map(_are_apart, given)) else None


def _name_merge(group: tuple[int, ...], sent: Sent) -> CollectiveKind | None:
    """Partial results: every device gets the same cells of all others; each its own, or all of them the same."""
    got = [[sent[source, target] for source in group if source != target] for target in group]
    if not all(map(_are_same, got)):
        return None
    first = [cells for cells, *_ in got]
    if _are_same(first):
        return "all_reduce"
    return "reduce_scatter" if _are_apart(first) else None


def _join(regions: tuple[Region, ...]) -> DisjointRegions:
    return DisjointRegions(regions[0].shape, regions, regions[0].start)


def _are_same(cells: Sequence[DisjointRegions]) -> bool:
    return all(one <= cells[0] and cells[0] <= one for one in cells[1:])


def _are_apart(cells: Sequence[DisjointRegions]) -> bool:
    return all((one & other).is_empty for one, other in combinations(cells, 2))


def _list_axes(group: tuple[int, ...], mesh: Mesh) -> tuple[str, ...]:
    """The axes of the mesh on which devices differ that are all that do; none otherwise."""
    places = np.array([mesh.coordinates(device) for device in group])
    along = [axis for axis in range(len(mesh.shape)) if len(set(places[:, axis].tolist())) > 1]
    is_whole = len(group) == prod(mesh.shape[axis] for axis in along)
    return tuple(mesh.names[axis] for axis in along) if is_whole else ()
