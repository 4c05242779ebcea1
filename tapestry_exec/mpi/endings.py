"""Ranks whose program has ended: who waits for one is told, and does not wait for ten minutes.

An error outside of `run`, `sys.exit`, or Ctrl-C between runs ends the program of one rank alone. MPI does not tell the
others: they wait for it in their next run, and it for them, in MPI's own end. So each process has a name that nobody
else has, which all ranks learn in their first run or deployment. As its interpreter ends it publishes that name, and
who waits for long looks it up, on whatever machine: MPI's process manager keeps names, as for servers and clients::

    rank 1    run   ValueError   publishes its name   MPI's end ───────────────────────┐
    rank 0    run   run: waits … looks it up, and finds it, waits a little longer, raises ──► MPI's end, of both

What a rank sent before it ended may still be on its way, so it is waited for a little longer. A message in place of a
name would have to be received before MPI's end, so that each program would have to wait for all others to end. Before
their first run ranks know no name that is not also another program's, which may have left it; where a process manager
keeps no names, or MPI was begun for fewer threads than mpi4py asks for, nobody is told.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cache
from threading import Thread
from time import monotonic
from typing import Any

from tapestry_exec.mpi.tuning import ANSWER_SECONDS, ENDED_SECONDS, LOOK_UP_SECONDS
from tapestry_exec.run import BackendUnavailable

_NAMES: dict[int, str] = {}
"""By rank of MPI.COMM_WORLD: what it publishes as it ends."""
_ASKING: list[Thread] = []
"""What asks the process manager. It may be cut off: then no answer comes, nor an error for long."""


@cache
def find_name() -> str:
    """What this process publishes as it ends."""
    from mpi4py import MPI

    name, process = f"tapestry-{os.urandom(16).hex()}", os.getpid()  # without spaces, which MPICH cuts it at

    def end(*_: Any) -> None:  # not of a process that it has forked
        if os.getpid() == process and not MPI.Is_finalized() and is_answered(ANSWER_SECONDS) and can_ask():
            with suppress(MPI.Exception):
                MPI.Publish_name(name, "ended")

    atexit.register(end)
    MPI.COMM_SELF.Set_attr(MPI.Comm.Create_keyval(delete_fn=end), name)  # where the program itself calls MPI's end
    return name


def tell_obstacle() -> str:
    """Why nothing may be asked of MPI, which would end the program; empty where it may."""
    from mpi4py import MPI

    if not MPI.Is_initialized():
        return "MPI has not begun; leave mpi4py.rc.initialize True, or call MPI.Init_thread() before"
    return "MPI has ended; call MPI.Finalize() behind all runs, and behind the end of deployments" * MPI.Is_finalized()


def can_ask() -> bool:
    """Whether a thread may look for a name that is not there: an error that is not Python's would end all ranks."""
    from mpi4py import MPI

    raises = all(one.Get_errhandler() == MPI.ERRORS_RETURN for one in (MPI.COMM_WORLD, MPI.COMM_SELF))
    return raises and bool(MPI.Query_thread() == MPI.THREAD_MULTIPLE)


def is_answered(seconds: float = 0.0) -> bool:
    """Whether the process manager is not asked, or not any more after so many seconds."""
    for one in _ASKING:
        one.join(seconds)
    return not any(one.is_alive() for one in _ASKING)


class Endings:
    """Which ranks of a communicator have ended, as far as their names are known.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
    """

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        mine, whole = comm.Get_group(), MPI.COMM_WORLD.Get_group()
        self.mpi, self.me = MPI, comm.rank
        self.ranks: Sequence[int] = mine.Translate_ranks(group=whole)
        """Those of MPI.COMM_WORLD; below 0 of processes that are not there."""
        mine.Free()
        whole.Free()
        self.since: dict[int, float] = {}
        """By rank: when it was seen that it has ended."""
        self.turn, self.due = comm.rank, 0.0
        """Whom this rank looked up last, and when it does so again."""

    def meet(self, names: Sequence[str]) -> None:
        """Know the names of all ranks from now on, by what they have told."""
        _NAMES.update({number: name for number, name in zip(self.ranks, names, strict=True) if number >= 0 and name})

    def look(self, who: str, what: str, whom: Collection[int] | None = None) -> None:
        """Look for the next rank, and raise where one has ended, and what it sent before has had time to come.

        Where it is known that some ranks alone are waited for, others may have ended.

        Raises
        ------
        BackendUnavailable
            Names the rank, who waits and for what.
        """
        now, size = monotonic(), len(self.ranks)
        if now >= self.due and is_answered():
            self.due = now + LOOK_UP_SECONDS * size
            self.turn = (self.turn + 1) % size
            name = _NAMES.get(self.ranks[self.turn])
            if name is not None and self.turn not in (self.me, *self.since) and can_ask():
                asking = Thread(target=self._ask, args=(self.turn, name), daemon=True)
                with suppress(RuntimeError):  # there are no more threads now
                    asking.start()
                    _ASKING[:] = [asking]  # none that has not begun, as by Ctrl-C: it cannot be waited for
        for rank, since in list(self.since.items()):
            if now - since > ENDED_SECONDS and (whom is None or rank in whom):
                raise BackendUnavailable(
                    f"backend 'mpi': the program of rank {rank} has ended, while {who} waited for {what}; look for the "
                    "error of that rank, and have all ranks run as often as each other"
                )

    def _ask(self, rank: int, name: str) -> None:
        """Note a rank that has published its name."""
        with suppress(self.mpi.Exception):  # it has not
            self.mpi.Lookup_name(name)
            self.since[rank] = monotonic()
