"""Ranks whose program has ended: who waits for one is told, and does not wait for ten minutes.

An error outside of `run`, `sys.exit`, or Ctrl-C between runs ends the program of one rank alone. MPI does not tell the
others: they wait for it in their next run, and it for them, in MPI's own end. So each process has a page of memory that
the others of its machine open in their first run or deployment, and keep; as its interpreter ends it writes there::

    rank 1    run   ValueError   writes "ended"   MPI's end ───────────────────────────┐
    rank 0    run   run: waits for rank 1 … sees it, waits a little longer, raises ──► MPI's end, of both

What a rank sent before it ended may still be on its way, so it is waited for a little longer. Nothing is sent, and a
wait looks at pages when it has lasted for a while. Other machines have no page, nor have ranks before their first run.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from functools import cache
from time import monotonic
from typing import Any

from tapestry_exec.mpi.bells import Page, make_page, open_page
from tapestry_exec.mpi.tuning import ENDED_SECONDS
from tapestry_exec.run import BackendUnavailable

_PAGES: dict[int, tuple[str, Page | None]] = {}
"""By rank of MPI.COMM_WORLD: where its page is, and the page."""


@cache
def find_place() -> str:
    """Where others open this process' page; empty where they cannot."""
    page, process = make_page(0), os.getpid()

    def end() -> None:
        if os.getpid() == process:  # and not one that it has forked
            page.ended[0] = 1

    atexit.register(end)
    return page.place


class Endings:
    """Which ranks of a communicator have ended, as far as their pages are known.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
    """

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        mine, whole = comm.Get_group(), MPI.COMM_WORLD.Get_group()
        self.ranks: Sequence[int] = mine.Translate_ranks(group=whole)
        """Those of MPI.COMM_WORLD; below 0 of processes that are not there."""
        mine.Free()
        whole.Free()
        self.me = comm.rank
        self.since: dict[int, float] = {}
        """By rank: when it was seen that it has ended."""

    def meet(self, places: Sequence[str]) -> None:
        """Know the pages of all ranks from now on, by what they have told."""
        for rank, (number, place) in enumerate(zip(self.ranks, places, strict=True)):
            is_new = number not in _PAGES or _PAGES[number][0] != place
            if place and is_new and number >= 0 and rank != self.me:
                _PAGES[number] = place, open_page(place)

    def look(self, who: str, what: str) -> None:
        """Raise where a rank has ended, and what it sent before has had time to come.

        Raises
        ------
        BackendUnavailable
            Names the rank, who waits and for what.
        """
        for rank, number in enumerate(self.ranks):
            _, page = _PAGES.get(number, ("", None))
            if page is None or not page.ended[0]:
                continue
            now = monotonic()
            if now - self.since.setdefault(rank, now) > ENDED_SECONDS:
                raise BackendUnavailable(
                    f"backend 'mpi': the program of rank {rank} has ended, while {who} waited for {what}; look for the "
                    "error of that rank, and have all ranks run as often as each other"
                )
