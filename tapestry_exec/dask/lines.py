"""Lines: connections of `distributed`, through which messages go in order, as words, plain values and raw bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from tapestry_exec.copies import Array

CALLER = -1
"""Who says hello in the place of a device."""


class Message(NamedTuple):
    """What is said: a word, what `msgpack` can write, and bytes."""

    word: str
    values: tuple[Any, ...] = ()
    frames: Sequence[Any] = ()


class Line:
    """One end of a connection. What it does, it does in the thread of a loop of events.

    Parameters
    ----------
    comm : distributed.comm.Comm
        Which does not read what comes as objects.
    loop : tornado.ioloop.IOLoop
    take : callable
        Called with each message that comes, and with None at the end; it must not wait.
    """

    def __init__(self, comm: Any, loop: Any, take: Callable[[Message | None], None]) -> None:
        self.comm, self.loop, self.take = comm, loop, take
        self.waiting: deque[Message] = deque()
        self.is_writing = False

    def say(self, word: str, *values: Any, frames: Sequence[Any] = ()) -> None:
        """Send a message, from any thread; nothing is waited for, and what cannot be sent any more is forgotten."""
        self.waiting.append(Message(word, values, frames))
        if not self.is_writing:
            with suppress(RuntimeError):  # a loop that is closed: its process ends
                self.loop.add_callback(self._write)

    async def _write(self) -> None:
        if self.is_writing:
            return
        self.is_writing = True
        try:
            while self.waiting:
                every = [self.waiting.popleft() for _ in range(len(self.waiting))]
                await self.comm.write([pack_message(message) for message in every], on_error="raise")
        except OSError:  # the other one is gone, which who reads is told
            self.waiting.clear()
        finally:
            self.is_writing = False

    async def listen(self) -> None:
        """Hand over what comes, until the connection ends."""
        try:
            while True:
                for message in await self.comm.read():
                    self.take(unpack_message(message))
        except OSError:
            pass
        finally:
            self.comm.abort()
            self.take(None)

    def close(self) -> None:
        """End the connection, when what was said has been sent; from any thread."""

        async def end() -> None:
            await self._write()
            with suppress(OSError):
                await self.comm.close()

        with suppress(RuntimeError):
            self.loop.add_callback(end)


def pack_message(message: Message) -> Any:
    """A message as `distributed` sends it: frames go as they are, without a copy."""
    from distributed.protocol import Serialized

    word, values, frames = message
    return word, values, Serialized({}, [memoryview(frame).cast("B") for frame in frames])


def unpack_message(message: Any) -> Message:
    """What the other one said."""
    word, values, serialized = message
    return Message(word, tuple(values), serialized.frames)


def list_frames(arrays: Iterable[Array]) -> list[Any]:
    """The bytes of arrays."""
    return [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]


def read_frame(frame: Any, dtype: str) -> Array:
    """The cells in bytes that came."""
    return np.frombuffer(frame, dtype)
