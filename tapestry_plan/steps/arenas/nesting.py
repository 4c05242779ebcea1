"""Buffers within buffers: what a device makes lies in the block for which it would be copied.

A device puts together what an operator reads, of blocks that it has and of what comes from others. Where all of a block
goes to one place of another one, it is made there, and nothing is copied::

    x made     ████████    ─copy─►   block read  ████████▒▒           x, then the block: 18 rows
                                                         ▲ received

    x made   ► ████████░░            block read  ████████▒▒           both in one place: 10 rows
               the block's place

The block, the host, takes its place before its first guest does, and keeps it until the last one is given back. The
copies stay among the steps, so that who reads the host waits for the guest; they move nothing. A device whose arena
would be much larger so keeps as many blocks apart as it takes.

poprithms' memory/inplace tries proposals against a check that no writer is followed by a reader of the old value. Here
every cell is written once, so that a guest's cells are its own until the copy, and the host's from then on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple, TypeVar, cast

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tapestry_plan.ir import Graph
from tapestry_plan.steps import tuning
from tapestry_plan.steps.arenas.first_fit import Arena
from tapestry_plan.steps.arenas.offsets import Stay, assign_offsets, count_most
from tapestry_plan.steps.layouts.local import Linear, find_domain
from tapestry_plan.steps.layouts.mesh import align
from tapestry_plan.steps.layouts.places import find_place, list_place
from tapestry_plan.steps.step import (
    HOST,
    Alloc,
    Buffer,
    Compute,
    Copy,
    Free,
    ProgramStep,
    Within,
    row_major,
)
from tapestry_sets.regions import Box, DisjointRegions, Region
from tapestry_sets.views import Piece

Hosts = Mapping[int, int]
"""By guest, the buffer that it lies in."""
Taking = Alloc | Free
FindPlaces = Callable[[tuple[Stay, ...], int], list[int] | None]
S = TypeVar("S", bound=ProgramStep)


class Nested(NamedTuple):
    """Buffers and steps, and by device how far its arena reaches."""

    buffers: tuple[Buffer, ...]
    steps: tuple[ProgramStep, ...]
    peak_nbytes: dict[int, int]


def nest(
    graph: Graph, buffers: Sequence[Buffer], steps: Sequence[ProgramStep], peak_nbytes: Mapping[int, int]
) -> Nested:
    """Let what is copied whole into a block of its device be made there, where no arena grows much by that.

    Parameters
    ----------
    graph : Graph
    buffers, steps
        Of some devices; a buffer's number is its place.
    peak_nbytes : mapping of int to int
        By device, how far its arena reaches.
    """
    places = _find_places(graph, buffers, steps)
    if not places:
        return Nested(tuple(buffers), tuple(steps), dict(peak_nbytes))
    taking: dict[int, list[Taking]] = {device: [] for device in peak_nbytes}
    for step in steps:
        if isinstance(step, Alloc | Free):
            taking[buffers[step.buffer].device].append(step)
    hosts, offsets, peaks = dict[int, int](), dict[int, int](), dict(peak_nbytes)
    places_of = cache(assign_offsets)  # of devices that do alike the same
    for device, mine in taking.items():
        wanted = {guest: host for guest, (host, _) in places.items() if buffers[guest].device == device}
        if wanted:
            kept, found, peaks[device] = _fit(buffers, mine, wanted, peaks[device], places_of)
            hosts |= kept
            offsets |= found
    moved = [
        _lay(buffers, places, hosts, offsets, buffer) if buffer.id in hosts else _move(buffer, offsets)
        for buffer in buffers
    ]
    return Nested(tuple(moved), tuple(_reorder(steps, hosts)), peaks)


# -- which block goes where --------------------------------------------------------------------------------


class _Uses(Struct):
    """What the steps of a device do with a buffer."""

    copies: list[Copy] = field(default_factory=list)
    """That take cells of it to another one of the device, in order."""
    is_plain: bool = True
    """Whether all others read and write its cells under their own coordinates."""
    nodes: set[str] = field(default_factory=set)
    """The operators whose blocks lie in it."""


def _find_places(
    graph: Graph, buffers: Sequence[Buffer], steps: Sequence[ProgramStep]
) -> dict[int, tuple[int, Linear]]:
    """By guest its host, and its place there."""
    found: dict[int, tuple[int, Linear]] = {}
    uses = _list_uses(buffers, steps)
    for number, mine in uses.items():
        guest = buffers[number]
        tensor = graph.stored.get(guest.tensor)
        if not mine.is_plain or tensor is None or tensor.kind != "result" or guest.part >= 0 or guest.fill is not None:
            continue
        others = [copy for copy in mine.copies if copy.piece is not None]
        for copy in mine.copies:
            host = buffers[copy.dst]
            if any(other is not copy for other in others):
                continue
            place = _find_place(graph, guest, host, copy)
            if place is not None and _keeps_bits(graph, mine.nodes, guest.shape, place[0]):
                found[number] = copy.dst, place
                break

    def keeps_bits_everywhere(number: int) -> bool:
        """Whether that holds too where the host, or what this lies in, is a guest and has other strides by that."""
        above = found[number][0]
        while above in found:
            host, (strides, _) = found[above]
            if not _keeps_bits(graph, uses[number].nodes, buffers[number].shape, strides):
                return False
            above = host
        return True

    return {number: place for number, place in found.items() if keeps_bits_everywhere(number)}


def _list_uses(buffers: Sequence[Buffer], steps: Sequence[ProgramStep]) -> dict[int, _Uses]:
    """What is done with the buffers that are copied within their device."""
    found: defaultdict[int, _Uses] = defaultdict(_Uses)
    for step in steps:
        if isinstance(step, Copy) and step.src != HOST and buffers[step.src].device == buffers[step.dst].device:
            mine = found[step.src]
            mine.copies.append(step)
            found[step.dst].is_plain &= step.piece is None
        elif isinstance(step, Copy):
            found[step.dst].is_plain &= step.src != HOST
        elif isinstance(step, Compute):
            for number, piece in zip(step.inputs, step.pieces, strict=False):
                if number is not None and piece is not None:
                    found[number].is_plain = False
            for number in (*step.inputs, *step.outputs):
                if number is not None:
                    found[number].nodes.add(step.node)
    return {number: mine for number, mine in found.items() if mine.copies}


def _keeps_bits(graph: Graph, nodes: Iterable[str], shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether operators make the same of a block with these strides as of one by itself, to the last bit."""
    apart = [(a, b) for a, b, n in zip(strides, row_major(shape), shape, strict=True) if n > 1]
    if all(a == b for a, b in apart):
        return True
    is_rows = strides[-1] == 1 and shape[-1] > 1
    return is_rows and all(graph.ops[graph.nodes[name].op].rows for name in nodes)


def _find_place(graph: Graph, guest: Buffer, host: Buffer, copy: Copy) -> Linear | None:
    """Where all of a buffer lies in the one that a copy takes it to; None where it takes less, or more than once."""
    if host.part >= 0 or host.dtype != guest.dtype:
        return None
    if copy.piece is None:
        is_all = sum(region.size for region in copy.regions) == guest.box.size
        return find_place(host.box, guest.box) if is_all else None
    return find_place_in_view(graph, guest.tensor, guest.box, host.tensor, host.box, copy.piece, copy.regions)


def find_place_in_view(
    graph: Graph, tensor: str, guest: Box, view: str, host: Box, piece: Piece, regions: Sequence[Region]
) -> Linear | None:
    """Where a block of a tensor lies in a block of a view, if that reads all of it through one piece, each cell once.

    Parameters
    ----------
    graph : Graph
    tensor, guest
        The tensor, and its block.
    view, host
        The view, and its block.
    piece, regions
        The piece, and the cells of the view's block that read through it, some of which its guards may leave out.
    """
    shape = graph.source(view).shape
    if sum(region.size for region in regions) < guest.size:
        return None
    place = find_place(host, guest, piece, graph.stored[tensor].shape)
    cells = None if place is None else list_place(host, guest.shape, place, shape)
    if cells is None:
        return None
    copied = DisjointRegions(shape, regions) & find_domain(piece, Box.of(shape), front=False)
    return place if copied.size == cells.size and cells <= copied else None


# -- room for all ------------------------------------------------------------------------------------------


def _reorder(steps: Iterable[S], hosts: Hosts) -> Iterator[S]:
    """The steps where each host takes its place before its guests, and gives it back behind the last of them."""
    taken, late, left = set[int](), set[int](), Counter(hosts.values())

    def take(number: int) -> Iterator[S]:
        if number not in taken:
            taken.add(number)
            if number in hosts:
                yield from take(hosts[number])
            yield cast(S, Alloc(number))

    def give(number: int) -> Iterator[S]:
        if left[number]:
            late.add(number)
            return
        yield cast(S, Free(number))
        if number in hosts:
            left[hosts[number]] -= 1
            if hosts[number] in late:
                yield from give(hosts[number])

    for step in steps:
        if isinstance(step, Alloc):
            yield from take(step.buffer)
        elif isinstance(step, Free):
            yield from give(step.buffer)
        else:
            yield step


def _fit(
    buffers: Sequence[Buffer], taking: Sequence[Taking], wanted: Hosts, most: int, places_of: FindPlaces
) -> tuple[dict[int, int], dict[int, int], int]:
    """Of some guests of a device those with which its arena reaches little further than before, with places of others.

    Returns
    -------
    hosts, offsets, peak
        The guests that are left, with their hosts; by each other buffer its offset; how far the arena reaches.
    """
    hosts: dict[int, int] = {}
    offsets, peak = _fill(buffers, taking, wanted)
    if peak <= most:
        return dict(wanted), offsets, peak
    stays = _list_stays(buffers, taking, wanted)
    places = places_of(tuple(stays.values()), most) if count_most(stays.values()) <= most else None
    if places is not None:
        reach = max(at + stay.nbytes for at, stay in zip(places, stays.values(), strict=True))
        return dict(wanted), dict(zip(stays, places, strict=True)), reach
    # Who gives no memory gets a little more of it used, for copies that take time. If still a few of them are too many,
    # halves are tried until each of these is alone, or enough were tried.
    most += int(most * tuning.NESTING_GROWTH)
    left, tries = [[*wanted]], 0
    while left and tries < tuning.NESTING_TRIES:
        some, tries = left.pop(), tries + 1
        more = {**hosts, **{guest: wanted[guest] for guest in some}}
        if _fill(buffers, taking, more)[1] <= most:
            hosts = more
        elif len(some) > 1:
            half = len(some) // 2
            left += [some[half:], some[:half]]
    return hosts, *_fill(buffers, taking, hosts)


def _list_stays(buffers: Sequence[Buffer], taking: Sequence[Taking], hosts: Hosts) -> dict[int, Stay]:
    """When all other buffers come and go, in moments of their own: one each time that one comes."""
    stays: dict[int, Stay] = {}
    for step in _reorder(taking, hosts):
        number = step.buffer
        if number in hosts:
            continue
        if isinstance(step, Alloc):
            stays[number] = Stay(len(stays), len(taking), align(buffers[number].nbytes))
        else:
            stays[number] = stays[number]._replace(last=len(stays) - 1)
    return stays


def _fill(buffers: Sequence[Buffer], taking: Sequence[Taking], hosts: Hosts) -> tuple[dict[int, int], int]:
    """Places in an arena, and how far it reaches."""
    arena, offsets = Arena(), dict[int, int]()
    for step in _reorder(taking, hosts):
        number = step.buffer
        if number in hosts:
            continue
        if isinstance(step, Alloc):
            offsets[number] = arena.take(buffers[number].nbytes)
        else:
            arena.give(offsets[number], buffers[number].nbytes)
    return offsets, arena.peak


def _move(buffer: Buffer, offsets: Mapping[int, int]) -> Buffer:
    offset = offsets.get(buffer.id, buffer.offset)
    return buffer if offset == buffer.offset else replace(buffer, offset=offset)


def _lay(
    buffers: Sequence[Buffer],
    places: Mapping[int, tuple[int, Linear]],
    hosts: Hosts,
    offsets: Mapping[int, int],
    guest: Buffer,
) -> Buffer:
    """A guest where it lies."""
    itemsize = np.dtype(guest.dtype).itemsize
    host = buffers[hosts[guest.id]]
    strides, first = places[guest.id][1]
    if host.id in hosts:  # under its own coordinates
        around = _lay(buffers, places, hosts, offsets, host)
        strides, offset = around.strides, around.offset
        first = sum((a - b) * s for a, b, s in zip(guest.start, host.start, strides, strict=True))
    else:
        offset = offsets[host.id]
    reach = sum(s * (n - 1) for s, n in zip(strides, guest.shape, strict=True)) + 1
    return replace(
        guest, offset=offset + first * itemsize, nbytes=reach * itemsize, within=Within(host.id, tuple(strides))
    )
