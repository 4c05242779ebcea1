"""Buffers within buffers: what a device makes lies in the block for which it would be copied.

A device puts together what an operator reads, of blocks that it has and of what comes from others. Where all of a block
goes to one place of another one, it is made there, and nothing is copied::

    x made     ████████    ─copy─►   block read  ████████▒▒           x, then the block: 18 rows
                                                         ▲ received

    x made   ► ████████░░            block read  ████████▒▒           both in one place: 10 rows
               the block's place

The block, the host, takes its place before its first guest does, and keeps it until the last one is given back. The
copies stay among the steps, so that who reads the host waits for the guest; they move nothing. Which guest lies in
which host follows from the layouts (`layouts/anew.py`): prices say which copies are left.

Where nothing is copied, a result may lie over what it is computed from (`overwriting.py`): both are laid out as one.

poprithms' memory/inplace tries proposals against a check that no writer is followed by a reader of the old value. Here
every cell is written once, so that a guest's cells are its own until the copy, and the host's from then on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple, TypeVar, cast

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tapestry_plan.ir import Graph
from tapestry_plan.steps.arenas.laying import Taking, lay_out, list_takings, move
from tapestry_plan.steps.arenas.offsets import assign_offsets
from tapestry_plan.steps.arenas.overwriting import list_overwritten
from tapestry_plan.steps.layouts.anew import (
    Hosting,
    find_place_in_view,
    list_hostings,
    may_lie_at,
    may_part_rows,
)
from tapestry_plan.steps.layouts.local import Linear
from tapestry_plan.steps.layouts.places import find_place
from tapestry_plan.steps.step import (
    HOST,
    Alloc,
    Buffer,
    Compute,
    Copy,
    Free,
    ProgramStep,
    Recv,
    Reduce,
    Within,
)

Hosts = Mapping[int, int]
"""By guest, the buffer that it lies in."""
S = TypeVar("S", bound=ProgramStep)


class Nested(NamedTuple):
    """Buffers and steps, and by device how far its arena reaches."""

    buffers: tuple[Buffer, ...]
    steps: tuple[ProgramStep, ...]
    peak_nbytes: dict[int, int]


def nest(
    graph: Graph,
    buffers: Sequence[Buffer],
    steps: Sequence[ProgramStep],
    peak_nbytes: Mapping[int, int],
    landed: Collection[str] = (),
) -> Nested:
    """Let what is copied whole into a block of its device be made there, and results overwrite what nobody reads then.

    Parameters
    ----------
    graph : Graph
    buffers, steps
        Of some devices; a buffer's number is its place.
    peak_nbytes : mapping of int to int
        By device, how far its arena reaches.
    landed : collection of str
        Tensors that lie in two places, since they were complete before they landed.
    """
    places = _find_places(graph, buffers, steps, landed)
    hosts = {guest: host for guest, (host, _) in places.items()}
    over = list_overwritten(graph, buffers, steps, {*hosts, *hosts.values()})
    if not hosts and not over:
        return Nested(tuple(buffers), tuple(steps), dict(peak_nbytes))
    laid = [replace(buffer, over=over[buffer.id]) if buffer.id in over else buffer for buffer in buffers]
    taking: dict[int, list[Taking]] = {device: [] for device in peak_nbytes}
    steps = tuple(_reorder(steps, hosts))
    for step in list_takings(steps, laid, hosts):
        taking[laid[step.buffer].device].append(step)
    offsets, peaks = dict[int, int](), dict(peak_nbytes)
    places_of = cache(assign_offsets)  # of devices that do alike the same
    for device in {laid[number].device for number in (*hosts, *over)}:
        found, peaks[device] = lay_out(laid, taking[device], peaks[device], places_of)
        offsets |= found
    moved = [
        _lay(laid, places, hosts, offsets, buffer) if buffer.id in hosts else move(laid, buffer, offsets)
        for buffer in laid
    ]
    return Nested(tuple(moved), steps, peaks)


# -- which block goes where --------------------------------------------------------------------------------


class _Uses(Struct):
    """What the steps of a device do with a buffer."""

    copies: list[Copy] = field(default_factory=list)
    """That take cells of it to another one of the device, in order."""
    is_plain: bool = True
    """Whether all others read and write its cells under their own coordinates."""


def _find_places(
    graph: Graph, buffers: Sequence[Buffer], steps: Sequence[ProgramStep], landed: Collection[str]
) -> dict[int, tuple[int, Linear]]:
    """By guest its host, and its place there, as the rule of `layouts/anew.py` says."""
    found: dict[int, tuple[int, Linear]] = {}
    hostings, made = list_hostings(graph), _list_made(graph, buffers, steps)
    for number, mine in _list_uses(buffers, steps).items():
        guest = buffers[number]
        hosting = hostings.get(guest.tensor)
        if hosting is None or not mine.is_plain or guest.part >= 0 or guest.fill is not None:
            continue
        written = [copy for copy in mine.copies if copy.piece is not None]
        if len(written) == 1 and (hosting.viewed or hosting.shared):
            place = _find_place(graph, guest, buffers[written[0].dst], written[0])
            if place is not None and may_lie_at(hosting, guest.shape, place[0]):
                found[number] = written[0].dst, place
        elif not written and hosting.gathered and number in made and guest.tensor not in landed:
            copies = [copy for copy in mine.copies if copy.node in graph.nodes]
            places = ((copy.dst, _find_place(graph, guest, buffers[copy.dst], copy)) for copy in copies)
            host, place = next((one for one in places if one[1] is not None), (-1, None))
            if place is not None and _may_lie_in(hosting, guest, buffers[host], place):
                found[number] = host, place

    def keeps_bits(number: int) -> bool:
        """Whether what lies in a block that lies in another one keeps its bits there."""
        guest = buffers[number]
        return found[number][0] not in found or may_part_rows(hostings[guest.tensor], guest.shape)

    return {number: place for number, place in found.items() if keeps_bits(number)}


def _may_lie_in(hosting: Hosting, guest: Buffer, host: Buffer, place: Linear) -> bool:
    """Whether a block may be made in one that is gathered; in padding only where its rows may lie apart."""
    return may_part_rows(hosting, guest.shape) or (host.fill is None and may_lie_at(hosting, guest.shape, place[0]))


def _list_made(graph: Graph, buffers: Sequence[Buffer], steps: Iterable[ProgramStep]) -> set[int]:
    """The buffers in which a tensor lies before any operator gathers it: where it is made, or has landed."""
    made = set[int]()
    for step in steps:
        if isinstance(step, Compute):
            made.update(step.outputs)
        elif isinstance(step, Reduce | Copy | Recv):
            number = step.output if isinstance(step, Reduce) else step.dst
            reader = graph.nodes.get(step.node)
            if reader is None or buffers[number].tensor in reader.outputs:
                made.add(number)
    return made


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
    return {number: mine for number, mine in found.items() if mine.copies}


def _find_place(graph: Graph, guest: Buffer, host: Buffer, copy: Copy) -> Linear | None:
    """Where all of a buffer lies in the one that a copy takes it to; None where it takes less, or more than once."""
    if host.part >= 0 or host.dtype != guest.dtype:
        return None
    if copy.piece is None:
        is_all = sum(region.size for region in copy.regions) == guest.box.size
        return find_place(host.box, guest.box) if is_all else None
    return find_place_in_view(graph, guest.tensor, guest.box, host.tensor, host.box, copy.piece, copy.regions)


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
