"""Collectives: copies of a stage that are equal parts over one group of devices, as a library has them in one call.

What each of n devices has before and afterwards, of a tensor in n equal parts (a, b, … complete, or summands)::

    all_gather       a   | b   | c    ►   abc | abc | abc
    reduce_scatter   abc + abc + abc  ►   a   | b   | c        merged
    all_reduce       abc + abc + abc  ►   abc | abc | abc      merged
    all_to_all       abc | def | ghi  ►   adg | beh | cfi
    broadcast        a   |     |      ►   a   | a   | a

Nothing is guessed from what operators are called: it is what the copies say, and those that say anything else are none.
Lowering lets the steps of one exchange stand together; those of a group, from the first place that is taken for what
comes to the last one that is given back, are then one step of the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import combinations
from math import prod

import numpy as np

from tapestry_plan.steps.layouts.mesh import Mesh
from tapestry_plan.steps.step import (
    HOST,
    Alloc,
    Buffer,
    Collective,
    CollectiveKind,
    Copy,
    Free,
    GroupedStep,
    Reduce,
    Step,
)
from tapestry_sets.regions import DisjointRegions, Region

Sent = Mapping[tuple[int, int], DisjointRegions]
"""What goes from device to device."""
Group = tuple[int, ...]


def find_groups(links: Iterable[tuple[int, int]]) -> list[Group]:
    """The devices that exchange anything, directly or through others, ascending.

    Examples
    --------
    >>> find_groups([(0, 2), (3, 1), (2, 4), (5, 5)])
    [(0, 2, 4), (1, 3)]
    """
    groups: dict[int, set[int]] = {}
    for one, other in links:
        if one != other and groups.get(one) is not groups.get(other, groups):
            joined = groups.get(one, {one}) | groups.get(other, {other})
            groups.update(dict.fromkeys(joined, joined))
    return sorted({min(group): tuple(sorted(group)) for group in groups.values()}.values())


def group_steps(steps: Sequence[Step], buffers: Sequence[Buffer], mesh: Mesh) -> Iterator[GroupedStep]:
    """The steps of all devices, where those that are one operation of a group are one step."""
    known = {buffer.id: buffer for buffer in buffers}
    begins = {first: (stop, found) for first, stop, found in _find_collectives(steps, known, mesh)}
    at = 0
    while at < len(steps):
        stop, found = begins.get(at, (at + 1, steps[at]))
        yield found
        at = stop


def _find_collectives(
    steps: Sequence[Step], buffers: Mapping[int, Buffer], mesh: Mesh
) -> Iterator[tuple[int, int, Collective]]:
    """Where each begins and ends, and what it is."""
    stages: dict[tuple[str, str], dict[int, Copy]] = {}
    for at, step in enumerate(steps):
        if isinstance(step, Copy) and step.src != HOST and buffers[step.src].device != buffers[step.dst].device:
            stages.setdefault((step.node, step.tensor), {})[at] = step
    for (node, tensor), copies in stages.items():
        for group, mine in _split(copies, buffers):
            named = _name_kind(group, mine, buffers)
            span = None if named is None else _find_span(steps, mine, buffers)
            if named is None or span is None:
                continue
            (kind, members, nbytes), (first, stop) = named, span
            inside, places = tuple(steps[first:stop]), tuple(at - first for at in mine)
            made = Collective(kind, members, _list_axes(group, mesh), node, tensor, nbytes, inside, places)
            if _is_whole(made, buffers):
                yield first, stop, made


def _is_whole(found: Collective, buffers: Mapping[int, Buffer]) -> bool:
    """Whether each device has what comes in one block: copied there, or merged of all parts, cell by cell."""
    merges = {buffers[one.output].device: one for one in found.closing if isinstance(one, Reduce)}
    if found.kind not in ("reduce_scatter", "all_reduce"):
        targets = {one.dst for one in found.copies}
        return not merges and len(targets) == len({buffers[number].device for number in targets})
    came = {buffers[one.dst].device: _join(one.regions) for one in found.copies}
    return [*merges] == sorted(found.group) and all(
        len(one.inputs) == len(found.group) and _are_same([came[device], _join(one.regions)])
        for device, one in merges.items()
    )


def _split(copies: Mapping[int, Copy], buffers: Mapping[int, Buffer]) -> list[tuple[Group, dict[int, Copy]]]:
    """The groups that exchange anything, each with its copies."""
    links = {at: (buffers[copy.src].device, buffers[copy.dst].device) for at, copy in copies.items()}
    groups = find_groups(links.values())
    of = {device: group for group in groups for device in group}
    mine: dict[Group, dict[int, Copy]] = {}
    for at, copy in copies.items():
        mine.setdefault(of[links[at][0]], {})[at] = copy
    return sorted(mine.items())


def _find_span(
    steps: Sequence[Step], copies: Mapping[int, Copy], buffers: Mapping[int, Buffer]
) -> tuple[int, int] | None:
    """Where the steps of a group's copies begin and end; None where they cannot be taken for one step.

    From the places that are taken for what comes, over copies and merges, to what is given back of these. Opening,
    copies and closing may then be run one after the other: no place is given back before others are taken, and nothing
    that is sent, or copied before, comes from within.
    """
    landing = {copy.dst for copy in copies.values()}
    first, last = min(copies), max(copies)
    while last + 1 < len(steps) and _closes(steps[last + 1], landing):
        last += 1
    merged = {one.output for one in steps[first : last + 1] if isinstance(one, Reduce) and _closes(one, landing)}
    made = landing | merged
    taken = made | set(_list_around(made, buffers))
    while first and _opens(steps[first - 1], made, taken, buffers):
        first -= 1
    freed: set[int] = set()
    for at in range(first, last + 1):
        step = steps[at]
        if isinstance(step, Free):
            freed.add(buffers[step.buffer].device)
        if isinstance(step, Alloc) and buffers[step.buffer].device in freed:
            return None
        if (at in copies and copies[at].src in made) or not (
            at in copies or _opens(step, made, taken, buffers) or _closes(step, landing)
        ):
            return None
    return first, last + 1


def _list_around(made: Iterable[int], buffers: Mapping[int, Buffer]) -> Iterator[int]:
    """The buffers within which others lie, and those within which these do: they take their places first."""
    for number in made:
        within = buffers[number].within
        while within is not None:
            yield within.buffer
            within = buffers[within.buffer].within


def _opens(step: Step, made: Set[int], taken: Set[int], buffers: Mapping[int, Buffer]) -> bool:
    """Whether a step takes a place for what comes, or one around it, or copies there what its device has."""
    if isinstance(step, Alloc):
        return step.buffer in taken
    if not isinstance(step, Copy) or step.piece is not None or step.dst not in made:
        return False
    return step.src not in (HOST, *made) and buffers[step.src].device == buffers[step.dst].device


def _closes(step: Step, landing: Set[int]) -> bool:
    """Whether a step merges what came, or gives its place back."""
    if isinstance(step, Reduce):
        return not landing.isdisjoint(step.inputs)
    return isinstance(step, Free) and step.buffer in landing


def _name_kind(
    group: tuple[int, ...], copies: Mapping[int, Copy], buffers: Mapping[int, Buffer]
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
    elif len(sent) == len(group) * (len(group) - 1) and len(made) == len(numbers) == len(group):
        kind = _name_merge(group, sent)  # each device has one of the parts
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
