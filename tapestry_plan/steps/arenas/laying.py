"""The places of buffers in an arena, from the steps that take them and give them back: all at once, or as they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from tapestry_plan.steps.arenas.first_fit import Arena
from tapestry_plan.steps.arenas.offsets import Stay, assign_offsets, count_most
from tapestry_plan.steps.layouts.mesh import align
from tapestry_plan.steps.step import Alloc, Buffer, Free, ProgramStep

Taking = Alloc | Free
FindPlaces = Callable[[tuple[Stay, ...], int], list[int] | None]
Buffers = Mapping[int, Buffer] | Sequence[Buffer]
"""By number, which is the place in a sequence."""


def list_takings(steps: Iterable[ProgramStep], buffers: Buffers, guests: Collection[int] = ()) -> Iterator[Taking]:
    """When places are taken and given back: those of several buffers once, by the first of them, guests' never.

    Parameters
    ----------
    steps : iterable of ProgramStep
    buffers : mapping of int to Buffer, or sequence of Buffer
    guests : collection of int
        Further buffers that are going to lie within others.
    """
    there = Counter[int]()
    for step in steps:
        if not isinstance(step, Alloc | Free):
            continue
        buffer = buffers[step.buffer]
        if buffer.within is None and buffer.id not in guests:
            there[buffer.place] += 1 if isinstance(step, Alloc) else -1
            if there[buffer.place] == isinstance(step, Alloc):  # it is the first one there, or was the last
                yield step if isinstance(step, Alloc) else Free(buffer.place)


def lay_out(
    buffers: Buffers,
    taking: Sequence[Taking],
    most: int | None = None,
    places_of: FindPlaces = assign_offsets,
) -> tuple[dict[int, int], int]:
    """Places of a device's buffers in an arena that reaches no further than some bytes, if it can.

    Parameters
    ----------
    buffers : mapping of int to Buffer, or sequence of Buffer
    taking : sequence of Alloc or Free
        Of one device, as `list_takings` gives them.
    most : int, optional
        Bytes of the arena; by default what lies there at once.
    places_of : callable, optional
        What `assign_offsets` does, for who remembers what it found.

    Returns
    -------
    offsets, peak
        By buffer its offset; how far the arena reaches.
    """
    offsets, peak = _fill(buffers, taking)
    if most is not None and peak <= most:
        return offsets, peak
    stays = list_stays(buffers, taking)
    least = count_most(stays.values())
    most = least if most is None else most
    places = places_of(tuple(stays.values()), most) if least <= most < peak else None
    if places is None:
        return offsets, peak
    reach = max(at + stay.nbytes for at, stay in zip(places, stays.values(), strict=True))
    return dict(zip(stays, places, strict=True)), reach


def list_stays(buffers: Buffers, taking: Sequence[Taking]) -> dict[int, Stay]:
    """When all buffers come and go, in moments of their own: one each time that one comes."""
    stays: dict[int, Stay] = {}
    for step in taking:
        number = step.buffer
        if isinstance(step, Alloc):
            stays[number] = Stay(len(stays), len(taking), align(buffers[number].nbytes))
        else:
            stays[number] = stays[number]._replace(last=len(stays) - 1)
    return stays


def _fill(buffers: Buffers, taking: Sequence[Taking]) -> tuple[dict[int, int], int]:
    """Places in an arena, and how far it reaches."""
    arena, offsets = Arena(), dict[int, int]()
    for step in taking:
        number = step.buffer
        if isinstance(step, Alloc):
            offsets[number] = arena.take(buffers[number].nbytes)
        else:
            arena.give(offsets[number], buffers[number].nbytes)
    return offsets, arena.peak


def move(buffers: Buffers, buffer: Buffer, offsets: Mapping[int, int]) -> Buffer:
    """A buffer in its new place; one within or over another one with that."""
    around = buffer
    while around.within is not None:
        around = buffers[around.within.buffer]
    first = buffers[around.place]
    offset = offsets.get(first.id, first.offset) + buffer.offset - around.offset
    return buffer if offset == buffer.offset else replace(buffer, offset=offset)
