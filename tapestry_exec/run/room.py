"""Memory of this host that is free, of the machine, of a container, of this process; and its cores; where it says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache

from tapestry_sets.limits import quote, tell_count

PROC = "/proc"
CGROUPS = "/sys/fs/cgroup"


def free_nbytes() -> int | None:
    """Bytes that this process may still take; None where the system does not say.

    The least of what the machine has free, of what the memory groups (a container's limit is one) leave, and of what
    the process' own limit on address space leaves.
    """
    return min((max(0, nbytes) for nbytes in _limits()), default=None)


def check_room(nbytes: Sequence[int], kept: int = 0, apart: bool = False) -> None:
    """Raise MemoryError where arenas of these sizes, by device, do not fit into the memory of this host.

    Parameters
    ----------
    nbytes : sequence of int
        All of them together lie in this process.
    kept : int
        Bytes that the process has for them already.
    apart : bool
        Whether each is of a process of its own on this host, which has this one's limit of address space for itself.
    """
    needed = sum(nbytes)
    if apart:
        _check_apart(nbytes)
        return
    free = free_nbytes() if needed > kept else None
    if free is not None and needed - kept > free:
        raise MemoryError(
            f"run: the arenas of {tell_count(len(nbytes), 'device')}, all in this process, take "
            f"{needed:,} bytes, but {free + kept:,} are free on this host; give the model smaller extents, or run with "
            "memory_nbytes= or --memory, so that idle buffers wait elsewhere, or on a larger machine"
        )


def free_nbytes_of_each() -> int | None:
    """Bytes that the limit on address space leaves to each process that this one begins; None where there is none."""
    return min((max(0, nbytes) for nbytes in _own_limits()), default=None)


def _check_apart(nbytes: Sequence[int]) -> None:
    """Raise MemoryError where arenas, each in a process of its own, do not fit."""
    every = min(_host_limits(), default=None)
    for needed, free, whose, where in (
        (sum(nbytes), every, "all processes", "on this host"),
        (max(nbytes, default=0), free_nbytes_of_each(), f"one process of {len(nbytes):,}", "within its address space"),
    ):
        if free is not None and needed > free:
            raise MemoryError(
                f"run: the arenas of {whose} take {needed:,} bytes, but {max(0, free):,} are free {where}; give the "
                "model smaller extents, or run with memory_nbytes= or --memory, or on more or larger machines"
            )


def check_copies(nbytes: Mapping[str, int]) -> None:
    """Raise MemoryError where copies of these inputs, by name, do not fit into the memory of this host."""
    _check_arrays(
        nbytes,
        "run: inputs that are not contiguous are copied, which takes {} bytes, the most of them for {}, but {} are "
        "free on this host; give smaller extents, or arrays in row-major order",
    )


def check_outputs(nbytes: Mapping[str, int]) -> None:
    """Raise MemoryError where outputs, by label, do not fit into the memory of this host."""
    _check_arrays(
        nbytes,
        "run: the outputs take {} bytes, the most of them {}, but {} are free on this host; give smaller extents, "
        "arrays of Zarr's to write them to, with outputs=, or leave some out, with deploy(outputs=)",
    )


def _check_arrays(nbytes: Mapping[str, int], message: str) -> None:
    """Raise MemoryError, with a message that has places for bytes, the largest array and free bytes."""
    needed = sum(nbytes.values())
    free = free_nbytes() if needed else None
    if free is not None and needed > free:
        raise MemoryError(message.format(f"{needed:,}", quote(max(nbytes, key=nbytes.__getitem__)), f"{free:,}"))


def _limits() -> Iterator[int]:
    yield from _host_limits()
    yield from _own_limits()


def _host_limits() -> Iterator[int]:
    """Of all processes together."""
    with suppress(OSError, ValueError):
        yield _number_after("MemAvailable:", f"{PROC}/meminfo") * 1024
    with suppress(OSError, ValueError):
        yield from _groups_limits()


def _own_limits() -> Iterator[int]:
    """Of this process, and as many of each that it begins."""
    with suppress(ImportError, OSError, ValueError):
        yield from _address_space()


def _number_after(word: str, file: str) -> int:
    """The number behind a word at the start of a line."""
    with open(file) as text:
        found = [line.split()[1] for line in text if line.split()[:1] == [word]]
    return int("".join(found[:1]))  # ValueError where there is none


def _groups_limits() -> Iterator[int]:
    """What each memory group that this process is in leaves, from its own up to the root."""
    with open(f"{PROC}/self/cgroup") as text:
        entries = [line.rstrip("\n").split(":", 2) for line in text]
    for _, controllers, path in entries:
        if controllers == "":  # version 2: one tree
            names = "", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            names = "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):  # inside a container its own group may be shown as the root
            with suppress(OSError, ValueError):
                yield _left_in_group("/".join([CGROUPS + names[0], *parts[:depth]]), *names[1:])


def _left_in_group(folder: str, most: str, current: str, cached: str) -> int:
    """Bytes that a group leaves; ValueError where it has no limit. File caches that are idle give way."""
    with open(f"{folder}/{most}") as text:
        limit = int(text.read())  # "max" is not a number
    with open(f"{folder}/{current}") as text:
        taken = int(text.read())
    with suppress(OSError, ValueError):
        taken -= _number_after(cached, f"{folder}/memory.stat")
    return limit - taken


def _address_space() -> Iterator[int]:
    """What `ulimit -v` leaves."""
    import resource  # which Windows has not

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most != resource.RLIM_INFINITY:
        with open(f"{PROC}/self/statm") as text:
            yield most - int(text.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def list_own_cores(many: int) -> list[int] | None:
    """By process: the core that may be its own; None where they are too few, or the system does not tell."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return cores[:many] if len(cores) >= many else None


def find_core() -> int | None:
    """The core on which this thread runs at the moment; None where the system does not tell."""
    ask = _ask_for_core()
    return None if ask is None else ask()


@cache
def _ask_for_core() -> Callable[[], int] | None:
    try:
        import ctypes

        return ctypes.CDLL(None).sched_getcpu
    except (AttributeError, ImportError, OSError):
        return None
