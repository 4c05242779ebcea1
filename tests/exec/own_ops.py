"""Operators of a user's module, which the processes of devices import."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from tapestry_exec.run import Member
from tapestry_plan.ir import BUILTIN_OPS, Op


def doubled(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    """Twice what the operator gives."""
    xp.multiply(inputs[0], 2, out=outputs[0])


def raise_first(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    """Raise where the block begins at 0."""
    if not any(shard.index.start):
        raise FloatingPointError("too hot")
    outputs[0][...] = inputs[0]


def die_first(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    """End the process, as the system does where memory is short."""
    if not any(shard.index.start):
        os.kill(os.getpid(), signal.SIGKILL)
    outputs[0][...] = inputs[0]


def sleep_long(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    """Take a minute."""
    time.sleep(60)


def as_relu(block: Any) -> dict[str, Op]:
    """An operator in the place of `relu`."""
    return {"relu": replace(BUILTIN_OPS["relu"], block=block)}


class Later:
    """What `relu` gives, thrice in a run; where a block begins at 0, something happens in the call of a number.

    Parameters
    ----------
    count : int
        Which call, from 1 on.
    kind : str
        "raise": in each second run, as the next one is quiet; "doze": for a second and a half; "die".
    """

    __name__ = "later"

    def __init__(self, count: int, kind: str) -> None:
        self.count, self.kind, self.seen = count, kind, 0

    def __call__(self, xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        if not any(shard.index.start):
            self.seen += 1
            if self.seen == self.count:
                self.act()
        xp.maximum(inputs[0], 0, out=outputs[0])

    def act(self) -> None:
        match self.kind:
            case "raise":
                self.seen = -3  # the three calls of the next run are quiet
                raise FloatingPointError("too hot")
            case "doze":
                time.sleep(1.5)
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)


class Sabotage:
    """What `relu` gives; where a block begins at 0, something happens to its process: each time the next thing.

    Parameters
    ----------
    kinds : sequence of str
        "computing": killed there; "sending": when a part of the next parcel has gone; "receiving": when a part of one
        was read, or it is taken; "last": when all steps are done, and the caller does not know; "eating": it takes more
        and more memory; "stopping", "raising"; "falling": killed when all others have waited for long; "never": it does
        not return; "dozing": for a fifth of a second; "waiting": until the folder has a file "go on".
    folder : str
        Where whoever does one leaves a mark, so that it happens once; "" to do the first one each time. Who is killed
        while it sends or receives leaves the names of the functions that it was in, in a file "died sending".
    """

    __name__ = "sabotage"

    def __init__(self, kinds: Sequence[str], folder: str) -> None:
        self.kinds, self.folder = kinds, folder

    def __call__(self, xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        if not any(shard.index.start):
            self.act(self.take())
        xp.maximum(inputs[0], 0, out=outputs[0])

    def take(self) -> str:
        """The next kind; none after the last one."""
        for k, kind in enumerate(self.kinds):
            with suppress(FileExistsError):
                if self.folder:
                    os.close(os.open(f"{self.folder}/{k}", os.O_CREAT | os.O_EXCL))
                return kind
        return ""

    def act(self, kind: str) -> None:
        match kind:
            case "computing":
                os.kill(os.getpid(), signal.SIGKILL)
            case "falling":
                time.sleep(2.5)
                os.kill(os.getpid(), signal.SIGKILL)
            case "stopping":
                if self.folder:
                    Path(self.folder, "process").write_text(str(os.getpid()))
                # To this very thread: another one that is to stop all may come to it when this one has done its steps.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            case "raising":
                raise FloatingPointError("too hot")
            case "eating":
                eaten = []
                while True:
                    eaten.append(np.ones(1 << 22))
                    time.sleep(0.01)
            case "waiting":
                while not os.path.exists(f"{self.folder}/go on"):
                    time.sleep(0.01)
            case "dozing":
                time.sleep(0.2)
            case "never":
                time.sleep(3600)
            case "last":
                taken = Member.take_outputs
                Member.take_outputs = lambda *args: die(taken(*args))  # type: ignore[method-assign]
            case "sending" | "receiving":
                global will
                will = f"{self.folder}/died {kind}"
                for path, doom in TRANSPORTS[kind].items():
                    if path in sys.modules:
                        doom(sys.modules[path])


will = ""
"""Where who is killed says where that was."""


def die(*args: Any) -> Any:
    """End the process now, in whatever calls this."""
    if will:
        names = [frame.f_code.co_name for frame, _ in traceback.walk_stack(sys._getframe(1))]
        Path(will).write_text(" ".join(names))
    os.kill(os.getpid(), signal.SIGKILL)


def die_sending_slots(worker: Any) -> None:
    """Where the cells are in the slot, and the receiver is not told yet."""
    worker.Arrivals.tell = die


def die_receiving_slots(worker: Any) -> None:
    """Where the head of a parcel of another process is read, and its cells are looked for."""
    recv = worker.Slots.recv

    def doomed(self: Any, tag: int, peer: int) -> Any:
        plain, worker.view_slot = worker.view_slot, die
        found = recv(self, tag, peer)
        worker.view_slot = plain  # it came from a device of this process
        return found

    worker.Slots.recv = doomed


def die_sending_wires(wires: Any) -> None:
    """Where the head and half of the cells are on the wire."""
    write = wires.Wires._write

    class HalfWire:
        def __init__(self, wire: Any) -> None:
            self.wire = wire

        def sendmsg(self, buffers: Sequence[Any]) -> int:
            whole, head = b"".join(buffers), wires.HEAD.size
            self.wire.sendmsg([whole[: head + (len(whole) - head) // 2]])
            return int(die())

    def doomed(self: Any, peer: int, left: list[Any]) -> None:
        if peer != wires.CALLER:
            self.out[peer] = HalfWire(self.out[peer])
        write(self, peer, left)

    wires.Wires._write = doomed


def die_receiving_wires(wires: Any) -> None:
    """Where the head of a parcel is read, and its cells are not; or where one is taken that was read before."""
    recv = wires.Wires.recv

    class Head:
        pack, pack_into, unpack_from = wires.HEAD.pack, wires.HEAD.pack_into, staticmethod(die)

    class Places:
        get = staticmethod(die)

    def doomed(self: Any, tag: int, peer: int) -> Any:
        wires.HEAD, self.places = Head, Places()
        return recv(self, tag, peer)

    wires.Wires.recv = doomed


TRANSPORTS: dict[str, dict[str, Callable[[Any], None]]] = {
    "sending": {"tapestry_exec.processes.worker": die_sending_slots, "tapestry_exec.dask.wires": die_sending_wires},
    "receiving": {
        "tapestry_exec.processes.worker": die_receiving_slots,
        "tapestry_exec.dask.wires": die_receiving_wires,
    },
}
"""By module of a transport: what has the process die in the next call of it, between its first and its last word."""
