"""Between processes that are ranks of one simulated communicator: messages as files of one folder.

::

    rank 0    0-1-0  ────► written under another name, then renamed: it is whole when it is there
    rank 1          read, compared with what rank 1 asks for, removed: rank 0 goes on when it is gone
    all       all-0-r      of each rank r, with the bytes of the one that sends; each waits for all of them

So a send waits for its receipt, and a receipt for its send; between two ranks they meet in the order of the calls. What
one group exchanges is on its way all at once, and no longer. Whoever waits looks until the communicator is aborted.
"""

from __future__ import annotations

import atexit
import os
import pickle
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from time import sleep
from typing import Any, NamedTuple

from tapestry_exec.run import OrderingFault
from tapestry_exec.simulated.tuning import LOOK_SECONDS, NUMBER_NBYTES

Facts = tuple[Any, ...]


class Aborted(Exception):
    """The communicator was aborted."""


class RankMessage(NamedTuple):
    """What goes to a rank or comes from there, or, without one, what all ranks do together."""

    peer: int | None
    facts: Facts
    """What both ends must agree on."""
    raw: bytes
    root: int = 0
    """Whose bytes are wanted, of what all do."""


def make_number() -> tuple[int, ...]:
    """The number by which ranks find each other: the path of a folder, which goes with this process."""
    folder = mkdtemp(prefix="tapestry-nccl-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    raw = os.fsencode(folder)
    if len(raw) > NUMBER_NBYTES:
        raise OSError(f"the folder for temporary files has too long a path: {folder!r}; set TMPDIR to a shorter one")
    return tuple(raw.ljust(NUMBER_NBYTES, b"\0"))


class RankFiles:
    """One rank's messages; it is there when all ranks are.

    Parameters
    ----------
    number : tuple of int
        Of `make_number`.
    rank, size : int
    """

    def __init__(self, number: tuple[int, ...], rank: int, size: int) -> None:
        self.folder = Path(os.fsdecode(bytes(number).rstrip(b"\0")))
        self.rank, self.size = rank, size
        self.is_aborted = False
        self._sent, self._got = Counter[int | None](), Counter[int | None]()
        self._put(f"here-{rank}", (size,), b"")
        for other in range(size):
            self._await([f"here-{other}"], [])
            facts, _ = self._read(f"here-{other}")
            if facts != (size,):
                raise OrderingFault(f"NCCL would wait for ever: rank {other} is one of {facts[0]}, this one of {size}")

    def abort(self) -> None:
        """End all waits."""
        self.is_aborted = True

    def exchange(self, out: Sequence[RankMessage], come: Sequence[RankMessage]) -> list[bytes]:
        """Send and get the messages of one group; the bytes of those that came.

        Raises
        ------
        OrderingFault
            Where two ends do not agree.
        Aborted
            When it was aborted meanwhile.
        """
        given = []
        for one in out:
            given.append(self._name(one, self._sent))
            self._put(given[-1], one.facts, one.raw)
        found = []
        for one in come:
            names = self._list_awaited(one)
            self._await(names, [])
            for name in names:
                facts, raw = self._read(name)
                if facts != one.facts:
                    raise OrderingFault(
                        f"NCCL would corrupt memory or wait for ever: rank {self.rank} asks for {one.facts}, and "
                        f"{name} is {facts} (kind, cells, dtype, root)"
                    )
                if one.peer is not None:
                    (self.folder / name).unlink()
                if one.peer is not None or name.endswith(f"-{one.root}"):
                    found.append(raw)
        self._await([], [name for name, one in zip(given, out, strict=True) if one.peer is not None])
        return found

    def _name(self, one: RankMessage, turns: Counter[int | None]) -> str:
        turn = turns[one.peer]
        turns[one.peer] += 1
        return f"all-{turn}-{self.rank}" if one.peer is None else f"{self.rank}-{one.peer}-{turn}"

    def _list_awaited(self, one: RankMessage) -> list[str]:
        turn = self._got[one.peer]
        self._got[one.peer] += 1
        if one.peer is None:
            return [f"all-{turn}-{rank}" for rank in range(self.size)]
        return [f"{one.peer}-{self.rank}-{turn}"]

    def _put(self, name: str, facts: Facts, raw: bytes) -> None:
        there = self.folder / f".{name}"
        there.write_bytes(pickle.dumps((facts, raw)))
        there.rename(self.folder / name)

    def _read(self, name: str) -> tuple[Facts, bytes]:
        found: tuple[Facts, bytes] = pickle.loads((self.folder / name).read_bytes())
        return found

    def _await(self, there: Sequence[str], gone: Sequence[str]) -> None:
        """Wait until files are there, and others gone."""
        while not (
            all((self.folder / name).exists() for name in there)
            and not any((self.folder / name).exists() for name in gone)
        ):
            if self.is_aborted:
                raise Aborted("the communicator was aborted")
            sleep(LOOK_SECONDS)
        if self.is_aborted:
            raise Aborted("the communicator was aborted")
