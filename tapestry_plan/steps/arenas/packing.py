"""Arenas laid out anew: buffers of steps that are written down already, in places that leave fewer gaps.

While steps are written each buffer takes the lowest place that is free, and what comes later is not known. Afterwards
it is, from each buffer's coming to its going, and all of them are placed at once (see `offsets`)::

    as it came   ████ a ████░░░░│ c c c │        packed   │ c c c │████ a ████
                 ▒ b ▒│         │       │                 │       │▒ b ▒
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.steps.arenas.laying import Taking, list_stays, list_takings, move
from tapestry_plan.steps.arenas.offsets import Stay, assign_offsets, count_most, search_offsets
from tapestry_plan.steps.layouts.mesh import align
from tapestry_plan.steps.lowering import Lowered


class Packed(Struct, frozen=True):
    """Steps in arenas of some memory, as far as places were found.

    Parameters
    ----------
    lowered : Lowered
        The steps; devices of which the arena was too large, and a better one was found, have that one.
    least_nbytes : tuple of int
        By device: what lies there at once, or what is more than an arena may have, where that is proved to be too
        little. No arena is smaller.
    """

    lowered: Lowered
    least_nbytes: tuple[int, ...]


KnownPlaces = dict[tuple[int, tuple[Stay, ...]], tuple[int, list[int] | None]]
"""What stays need at least, and where they may lie, by the bytes of an arena and the stays in it."""


def pack(lowered: Lowered, memory_nbytes: int | Sequence[int], known: KnownPlaces | None = None) -> Packed:
    """Lay out the arenas anew that are larger than some memory, where all that lies there at once may fit.

    Parameters
    ----------
    lowered : Lowered
    memory_nbytes : int, or sequence of int
        Bytes that each device's arena may have, the same for all or one number for each. An arena that needs more is
        made as small as what lies there at once, if places are found.
    known : dict, optional
        Places that were found before, for who lays out many plans of the same operators.
    """
    caps = [memory_nbytes] * len(lowered.devices) if isinstance(memory_nbytes, int) else memory_nbytes
    if all(nbytes <= cap for nbytes, cap in zip(lowered.peak_nbytes, caps, strict=True)):
        return Packed(lowered, lowered.peak_nbytes)
    peak, least = list(lowered.peak_nbytes), list(lowered.peak_nbytes)
    offsets: dict[int, int] = {}
    found = {} if known is None else known  # devices with equal shards have equal arenas
    for at, stays in enumerate(_list_stays(lowered)):
        if peak[at] <= caps[at]:
            continue
        key = caps[at], tuple(stays.values())
        if key not in found:
            most = count_most(key[1])
            if most > caps[at]:
                found[key] = most, assign_offsets(key[1], most)
            else:
                places, is_proved = search_offsets(key[1], caps[at])
                found[key] = align(caps[at] + 1) if is_proved else most, places
        least[at], places = found[key]
        if places is not None:
            offsets.update(zip(stays, places, strict=True))
            peak[at] = max(place + stay.nbytes for place, stay in zip(places, key[1], strict=True))
    before = {buffer.id: buffer for buffer in lowered.buffers}
    buffers = tuple(move(before, buffer, offsets) for buffer in lowered.buffers)
    return Packed(replace(lowered, buffers=buffers, peak_nbytes=tuple(peak)), tuple(least))


def _list_stays(lowered: Lowered) -> list[dict[int, Stay]]:
    """For each device its buffers' stays, in moments of its own."""
    buffers = {buffer.id: buffer for buffer in lowered.buffers}
    taking: dict[int, list[Taking]] = {device: [] for device in lowered.devices}
    for step in list_takings(lowered.steps, buffers):
        taking[buffers[step.buffer].device].append(step)
    return [list_stays(buffers, mine) for mine in taking.values()]
