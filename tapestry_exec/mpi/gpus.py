"""Ranks whose devices are GPUs: MPI brings them together, and NCCL carries what they send each other.

::

    rank 0, host a    sees GPUs 65:00 and CA:00    ─┐  all tell what they see; each gets the next GPU that its host
    rank 1, host a    sees GPUs 65:00 and CA:00    ─┤  has for it, and none has two ranks; rank 0 makes NCCL's number,
    rank 2, host b    sees GPU  17:00              ─┘  by which all join one communicator

    a rank at work    main thread    steps in the plan's order ─► NCCL ─► outputs
                      watch          is a message late? has another rank failed?  ─► the communicator is aborted

With NCCL a message that is begun holds up all behind it, until both its ends are there. So ranks do their steps in the
plan's order, which is one for all, and send nothing early, as messages of MPI go.
"""

from __future__ import annotations

import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from msgspec.structs import replace

from tapestry_exec.mpi.tuning import WATCH_SECONDS
from tapestry_exec.run import BackendUnavailable, Deployed, DevicePart, Transport, list_grouped
from tapestry_plan.steps import Collective, DeviceStep

T = TypeVar("T")


class RankDevice(Transport, Protocol):
    """What a backend has as the device of one rank, beside the methods of a `Backend`: it carries parcels itself.

    Attributes
    ----------
    gpu : int, optional
        Its number on this host, set when all have told what they see.
    receipts : mapping of (int, int) to (int, str)
        As of `DevicePart.list_receipts`, set before the first run.
    where : callable
        The step that this rank does, set before the first run.
    """

    gpu: int | None
    receipts: Mapping[tuple[int, int], tuple[int, str]]
    where: Callable[[], int]

    def tell(self) -> dict[str, str]:
        """Return what must be the same on all ranks; raise where something is missing."""
        ...

    def list_gpus(self) -> tuple[tuple[str, ...], int | None]:
        """Return the GPUs that it sees, by what tells them apart on a host, and the number that is asked for."""
        ...

    def make_id(self) -> tuple[int, ...]:
        """Return a number by which all join one communicator."""
        ...

    def join(self, number: tuple[int, ...]) -> None:
        """Wait for all others to join."""
        ...

    @property
    def is_joined(self) -> bool:
        """Whether it has, and it was not given up."""
        ...

    def give_up(self) -> None:
        """End all that waits for others, from whatever thread."""
        ...

    def look(self) -> None:
        """Raise where a message is late, or one has failed."""
        ...

    @property
    def step(self) -> int:
        """The plan's step that it waits for, or does."""
        ...

    def pause(self) -> None:
        """Wait until nothing is on its way, and leave the machine to others."""
        ...


class Seen(NamedTuple):
    """What a rank sees: its host, the GPUs there, and the number of the one that it was told to take."""

    host: str
    gpus: tuple[str, ...]
    asked: int | None


def name_host() -> str:
    """This host, by what no other one has, also where containers are called alike."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}".strip()


def deal_gpus(seen: Sequence[Seen]) -> list[int]:
    """For each rank the number of its GPU, as it counts those that it sees.

    Ranks of a host that see the same GPUs take them in turn; a rank that sees others than they begins anew, as where
    each was given its own by `CUDA_VISIBLE_DEVICES`.

    Raises
    ------
    BackendUnavailable
        Where a host has fewer GPUs than ranks, or two ranks have one GPU.

    Examples
    --------
    >>> from tapestry_exec.mpi.gpus import Seen, deal_gpus
    >>> both = "65:00", "CA:00"
    >>> deal_gpus([Seen("a", both, None), Seen("a", both, None), Seen("b", both, None), Seen("b", ("17:00",), None)])
    [0, 1, 0, 0]
    """
    turns, found, ranks = Counter[Any](), list[int](), defaultdict[tuple[str, str], list[int]](list)
    for rank, (host, gpus, asked) in enumerate(seen):
        number = turns[host, gpus] if asked is None else asked
        turns[host, gpus] += 1
        if number >= len(gpus):
            here = [other for other, one in enumerate(seen) if one.host == host]
            raise BackendUnavailable(
                f"backend 'mpi': host {host.split()[0]} has {len(gpus)} GPUs for {len(here)} ranks ({_list(here)}); "
                "NCCL has one rank a GPU: begin fewer ranks there (mpiexec -ppn), or plan for fewer devices"
            )
        found.append(number)
        ranks[host, gpus[number]].append(rank)
    for (host, gpu), some in ranks.items():
        if len(some) > 1:
            raise BackendUnavailable(
                f"backend 'mpi': ranks {_list(some)} are all on GPU {gpu} of host {host.split()[0]}; NCCL has one rank "
                "a GPU: give each another one, by NcclBackend([number]) or CUDA_VISIBLE_DEVICES"
            )
    return found


def _list(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))


def order_by_plan(what: Deployed, part: DevicePart) -> DevicePart:
    """A device's part whose steps are in the plan's order, and in which a collective is one step.

    A deployment does all copies between devices in each run, so that it has the plan's collectives too.
    """
    mine = {k: list(some) for k, some in groupby(sorted(part.program, key=attrgetter("number")), attrgetter("number"))}
    steps = list[DeviceStep]()
    for k, step in list_grouped(what.prepared.plan.grouped_steps, lambda collective: True):
        if not isinstance(step, Collective):
            steps += mine.get(k, ())
        elif part.device in step.group:
            steps.append(DeviceStep(k, part.device, cast(Any, step)))
    work = replace(part.work, buffers=what.prepared.work.buffers)  # a collective is about those of all
    return replace(part, program=tuple(steps), work=work)


class Watch:
    """Looks after a rank while it works: what it waits for in NCCL has no end of its own.

    Parameters
    ----------
    device : RankDevice
    look : callable
        Raises when another rank has failed.
    """

    def __init__(self, device: RankDevice, look: Callable[[], None]) -> None:
        self.device, self.look = device, look
        self.step = -1
        """Where the rank was when the watch gave it up."""

    def over(self, work: Callable[[], T]) -> T:
        """Do some work under it.

        Raises
        ------
        Exception
            What the watch has found, or else what the work raises; what was sent with NCCL is given up then.
        """
        found, is_over = list[Exception](), Event()

        def watch() -> None:
            try:
                while not is_over.wait(WATCH_SECONDS):
                    self.look()
                    self.device.look()
            except Exception as error:
                found.append(error)
                self.step = self.device.step
                self.device.give_up()

        thread = Thread(target=watch, daemon=True)
        thread.start()
        try:
            value = work()
        except BaseException as error:
            is_over.set()
            thread.join()
            self.device.give_up()
            if found and isinstance(error, Exception):
                raise found[0] from error
            raise
        is_over.set()
        thread.join()
        if found:
            raise found[0]
        return value


def join_aside(device: RankDevice, number: tuple[int, ...], wait: Callable[[Callable[[], bool]], None]) -> None:
    """Join the communicator of all ranks in a thread: if they do not come, NCCL waits for ever.

    Parameters
    ----------
    device : RankDevice
    number : tuple of int
    wait : callable
        Waits until what it is given holds, and raises when that takes too long or another rank failed.
    """
    failed = list[Exception]()

    def join() -> None:
        try:
            device.join(number)
        except Exception as error:
            failed.append(error)

    thread = Thread(target=join, daemon=True)
    thread.start()
    wait(lambda: not thread.is_alive())
    thread.join()
    if failed:
        raise BackendUnavailable(
            f"NCCL does not begin ({type(failed[0]).__name__}: {failed[0]}); set NCCL_DEBUG=INFO to see why"
        ) from failed[0]
