"""Operators of a user's module, which the processes of devices import."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
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
        "computing", "sending", "receiving", "last": killed there; "eating": it takes more and more memory; "stopping",
        "raising"; "falling": killed when all others have waited for long; "never": it does not return; "dozing": for a
        fifth of a second; "waiting": until the folder has a file "go on".
    folder : str
        Where whoever does one leaves a mark, so that it happens once; "" to do the first one each time.
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
                os.kill(os.getpid(), signal.SIGSTOP)
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
                Member.take_outputs = die_in(Member.take_outputs)  # type: ignore[method-assign]
            case "sending" | "receiving":
                verb = {"sending": "send", "receiving": "recv"}[kind]
                for path, name in TRANSPORTS.items():
                    if path in sys.modules:
                        owner = getattr(sys.modules[path], name)
                        setattr(owner, verb, die_in(getattr(owner, verb)))


TRANSPORTS = {"tapestry_exec.processes.worker": "Slots", "tapestry_exec.dask.wires": "Wires"}
"""The classes through which devices that are processes send and receive."""


def die_in(way: Any) -> Any:
    """A method that kills its process soon after it was called, while it is at work or just done."""

    def doomed(*args: Any) -> Any:
        threading.Timer(0.002, os.kill, (os.getpid(), signal.SIGKILL)).start()
        found = way(*args)
        time.sleep(1)
        return found

    return doomed
