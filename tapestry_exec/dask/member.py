"""The worker's side: the task of a device, which others reach by lines.

Messages, each a word with what follows it::

    caller to device    meet addresses senders    tell_clock    set_up part (pickled)    place constants    run inputs
                        end
    device to caller    met    told_clock seconds    ready files missing    placed bytes    did steps operator
                        alive runs step bytes    done beginning, counts (pickled), cells
                        failed step error (pickled)    lost device step    ended runs step bytes
    device to device    parcel tag, times, cells
"""

from __future__ import annotations

import asyncio
import hmac
import os
import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Condition
from time import monotonic, perf_counter, time
from typing import Any

from tapestry_exec.copies import Array
from tapestry_exec.dask.leaving import LeftOutput, keep_values
from tapestry_exec.dask.lines import CALLER, Line, Message, list_frames, pack_message, read_frame, unpack_message
from tapestry_exec.dask.tuning import BEAT_SECONDS, HELLO_SECONDS, LOOK_SECONDS, PAUSE_SECONDS
from tapestry_exec.dask.wires import Ended, PeerLost, Unreached, Wires, tell_unreached
from tapestry_exec.numpy import NumpyBackend
from tapestry_exec.run import (
    DevicePart,
    Member,
    Parcel,
    Regions,
    Source,
    count_cores,
    find_versions,
    hold_constants,
    list_placements,
    list_sends,
    make_portable,
    name_clock,
    tuning,
)
from tapestry_plan.ir import Stored
from tapestry_plan.steps import DeviceStep


class FedBackend(NumpyBackend):
    """NumPy's, to which the cells that are placed come packed: by their regions."""

    def place(self, array: Any, regions: Regions, tensor: str) -> Array:
        """Cells for the device: those that came, or of an array that was read here."""
        if isinstance(array, dict):
            cells: Array = array[tuple(regions)]
            return cells
        return super().place(array, regions, tensor)


class Post:
    """A device's lines: to the caller and, where there are no wires, to and from other devices.

    Parameters
    ----------
    device : int
    key : str
        Of the generation: who connects must say it.
    worker : distributed.Worker
    """

    def __init__(self, device: int, key: str, worker: Any) -> None:
        self.device, self.key, self.worker, self.loop = device, key, worker, worker.loop
        self.told: SimpleQueue[Message] = SimpleQueue()
        """What the caller says."""
        self.caller: Line | None = None
        self.wires: Wires | None = None
        self.lines: dict[int, Line] = {}
        """To devices, for what this one sends."""
        self.others: list[Line] = []
        self.receipts: Mapping[tuple[int, int], tuple[int, str]] = {}
        self.begin = 0.0
        self.parcels: dict[tuple[int, int], tuple[Any, float, float]] = {}
        self.arrived = Condition()
        self.gone: set[int] = set()
        self.is_over = False
        self.board = [-1, 0]
        self.runs = 0
        """How many the caller has begun, of which the board tells the last one."""
        self.sends: Collection[int] = ()
        """The steps in which this device sends."""
        self.is_at_work = True
        self.telling: asyncio.Task[None] | None = None
        self.strangers = 0

    # -- in the loop ------------------------------------------------------------------------------------

    async def open(self) -> str:
        """Begin to listen at the worker's own address, at a port that is free; the address."""
        from distributed.comm import listen, parse_address, parse_host_port, unparse_address

        scheme, place = parse_address(self.worker.address)
        host, _ = parse_host_port(place, 0)
        address = unparse_address(scheme, f"[{host}]:0" if ":" in host else f"{host}:0")
        security = self.worker.security.get_listen_args("worker")
        if scheme == "tcp" and not self.worker.security.require_encryption:
            self.wires = Wires(self.device, self.key, host)
        self.listener = await listen(address, self._greet, deserialize=False, **security)
        return str(self.listener.contact_address)

    async def _greet(self, comm: Any) -> None:
        """Listen to who says the key; a stranger is sent away."""
        try:
            word, values, _ = unpack_message(await asyncio.wait_for(comm.read(), HELLO_SECONDS))
            key, who = values
            is_known = word == "hello" and hmac.compare_digest(str(key).encode(), self.key.encode())
        except Exception:  # whatever a stranger sends
            is_known = False
        if not is_known or self.is_over:
            self.strangers += 1
            comm.abort()
            return
        line = Line(comm, self.loop, self._hear_caller if who == CALLER else lambda message: self._hear(who, message))
        self.others.append(line)
        if who == CALLER:
            self.caller = line
            beat = asyncio.create_task(self._beat(line))
            beat.add_done_callback(lambda _: None)
        await line.listen()

    async def _beat(self, line: Line) -> None:
        """Say that this device is alive, and where it is, as long as the caller listens."""
        while not self.is_over:
            line.say("alive", self.runs, *map(int, self.board))
            await asyncio.sleep(self.pause)

    pause = BEAT_SECONDS

    async def _tell_end(self, line: Line) -> None:
        """Say what was sent: no send begins any more, and what one has sent that had begun is known when it ends."""
        while self.is_at_work and self.board[0] in self.sends:
            await asyncio.sleep(PAUSE_SECONDS)
        line.say("ended", self.runs, *map(int, self.board))

    def _hear_caller(self, message: Message | None) -> None:
        self.told.put(message or Message("end"))
        if message is None or message.word == "end":
            self.is_over = True
            with self.arrived:
                self.arrived.notify_all()
            if self.wires is not None:
                self.wires.stop()
            if message is not None and self.caller is not None:
                self.telling = asyncio.create_task(self._tell_end(self.caller))
        elif self.wires is not None:
            self.wires.wake_up()

    def _hear(self, peer: int, message: Message | None) -> None:
        with self.arrived:
            if message is None:
                self.gone.add(peer)
            else:
                tag, packed, seconds = message.values
                self.parcels[peer, tag] = message.frames[0], packed, seconds
            self.arrived.notify()

    async def meet(self, addresses: Mapping[int, str], seconds: float) -> None:
        """Connect lines to the devices that this one sends to."""
        from distributed.comm import connect

        security = self.worker.security.get_connection_args("worker")
        for peer, address in addresses.items():
            try:
                comm = await connect(address, timeout=seconds, deserialize=False, **security)
            except (OSError, TimeoutError) as error:
                raise tell_unreached(self.device, peer, address, error) from error
            line = self.lines[peer] = Line(comm, self.loop, lambda _: None)
            await comm.write(pack_message(Message("hello", (self.key, self.device))))
            self.others.append(line)

    async def shut(self) -> None:
        """End all lines."""
        self.is_over, self.is_at_work = True, False
        if self.telling is not None:
            await self.telling
        self.listener.stop()
        for line in self.others:
            line.close()

    # -- in the task's thread ---------------------------------------------------------------------------

    def do(self, coroutine: Any, seconds: float) -> Any:
        """Have the loop do something, and wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop.asyncio_loop).result(seconds)

    def hear(self, seconds: float | None = None) -> Message | None:
        """What the caller says next, by his line or his wire; None where it is not here after so many seconds."""
        message = self._hear_next(seconds)
        if message is not None and message.word == "run":
            self.runs, self.board[:] = self.runs + 1, (-1, 0)
        return message

    def _hear_next(self, seconds: float | None) -> Message | None:
        if self.wires is None:
            with suppress(Empty):
                return self.told.get(timeout=seconds)
            return None
        while self.told.empty():
            word = self.wires.take_word()
            if word is not None or not self.wires.wait(seconds):
                return word
        return self.told.get()

    def say(self, word: str, *values: Any, frames: Sequence[Any] = ()) -> None:
        """Tell the caller something, by his wire where he has one."""
        if self.wires is not None and CALLER in self.wires.out:
            self.wires.say(Message(word, values, frames))
        elif self.caller is not None:
            self.caller.say(word, *values, frames=frames)

    def send(self, tag: int, peer: int, parcel: Parcel) -> None:
        """Send a parcel; nothing is waited for."""
        if self.is_over:
            raise Ended
        frames = list_frames([parcel.cells])
        self.lines[peer].say("parcel", tag, parcel.packed - self.begin, parcel.seconds, frames=frames)

    def recv(self, tag: int, peer: int) -> Parcel:
        """Wait for a parcel, at most `tuning.MAX_WAIT_SECONDS`."""
        stop, key = monotonic() + tuning.MAX_WAIT_SECONDS, (peer, tag)
        with self.arrived:
            while key not in self.parcels:
                if self.is_over:
                    raise Ended
                if peer in self.gone:
                    raise PeerLost(peer)
                if not self.arrived.wait(max(stop - monotonic(), 0)) and monotonic() >= stop:
                    raise TimeoutError(
                        f"device {self.device} waited {tuning.MAX_WAIT_SECONDS:g} s for what device {peer} sends under "
                        f"tag {tag}"
                    )
            frame, packed, seconds = self.parcels.pop(key)
        return Parcel(read_frame(frame, self.receipts[key][1]), packed + self.begin, seconds)


class DeviceTask:
    """What the task of a device does, from when it is placed until the caller ends it.

    Parameters
    ----------
    post : Post
    patience : float
        How long the caller may take to connect.
    is_wanted : callable
        Whether the scheduler still wants the task.
    secede : callable
        Leaves the worker's threads, which are for what users compute, and keeps the resource: called when all devices
        are placed, as a worker that is free for tasks would be taken for other devices.
    """

    def __init__(self, post: Post, patience: float, is_wanted: Callable[[], bool], secede: Callable[[], None]) -> None:
        self.post, self.patience, self.is_wanted, self.secede = post, patience, is_wanted, secede
        self.member: Member | None = None
        self.sources: Mapping[str, Source] = {}
        """Inputs that are read where they lie."""

    def _wait_for_caller(self) -> Message:
        """What he says first; or the end, when he does not come, or has canceled the task."""
        stop = monotonic() + self.patience
        while self.is_wanted() and monotonic() < stop:
            message = self.post.hear(min(LOOK_SECONDS, self.patience))
            if message is not None:
                return message
        return Message("end")

    def serve(self) -> None:
        """Do what the caller says, until he ends it."""
        message = self._wait_for_caller()
        if message.word != "end":
            self.secede()
        while message.word != "end":
            try:
                getattr(self, f"_{message.word}")(message)
            except Ended:
                return
            except Unreached as error:
                self._say("unreached", error.device, error.why)
            except PeerLost as error:
                self._say("lost", error.device, self._at())
            except Exception as error:
                at = -1 if message.word in ("set_up", "meet") else self._at()
                self._say("failed", at, frames=[pickle.dumps(make_portable(error))])
            message = self.post.hear() or Message("end")

    def _at(self) -> int:
        return -1 if self.member is None else self.member.at

    def _say(self, word: str, *values: Any, frames: Sequence[Any] = ()) -> None:
        self.post.say(word, *values, frames=frames)

    def _set_up(self, message: Message) -> None:
        part, stored, self.dtypes = pickle.loads(message.frames[0])
        self.part: DevicePart = part
        transport = self.transport = self.post.wires or self.post
        transport.receipts = part.list_receipts()
        self.post.sends = {number for number, _ in list_sends(part.program, part.work.buffers)}
        fed: Any = FedBackend
        near = None if self.post.wires is None else ()  # wires take what lies in an arena, lines what was packed
        self.member = Member(part, fed(), transport, self.post.board, near)
        lying: list[Stored] = [one for one in stored if os.path.isfile(one.path.partition("#")[0])]
        self.read = hold_constants(lying, {})
        self._say("ready", sorted(one.name for one in stored if one.name not in self.read))

    def _tell_clock(self, message: Message) -> None:
        self._say("told_clock", perf_counter())

    def _meet(self, message: Message) -> None:
        peers, senders, seconds, spins = message.values
        if self.post.wires is None:
            self.post.do(self.post.meet({peer: address for peer, address, _ in peers}, seconds), seconds)
        else:
            self.post.wires.meet({peer: tuple(wire) for peer, _, wire in peers}, senders, seconds, spins)
        self._say("met")

    def _place(self, message: Message) -> None:
        assert self.member is not None and self.part.stays is not None, "it was set up before"
        fed = self._read_cells(self.part.stays.placing, message)
        self._say("placed", self.member.place(fed))

    def _read_cells(self, steps: Sequence[DeviceStep], message: Message) -> dict[str, Any]:
        """What some steps place: what the caller sent, in their order, and what he says is read from files here."""
        theirs, frames = message.values[0], message.frames
        fed: dict[str, Any] = {name: self.sources[name] if name in self.sources else self.read[name] for name in theirs}
        rest = iter(frames)
        for name, regions in list_placements(steps):
            if name not in theirs:
                fed.setdefault(name, {})[regions] = read_frame(next(rest), self.dtypes[name])
        return fed

    def _run(self, message: Message) -> None:
        assert self.member is not None, "it was set up before"
        _, given, is_told, errors, begin, start = message.values
        self.transport.begin = begin
        told, self.sources = pickle.loads(start) if start else (None, {})
        fed = self._read_cells(self.part.list_fed(given, told, self.member.cuts), message)
        tell = (lambda steps, node: self._say("did", steps, node)) if is_told else None
        counts, cells = self.member.run(fed, given, begin, dict(errors), tell, told)
        targets = [] if told is None or told.written is None else list(told.written.targets.values())
        left = [one for one in targets if isinstance(one, LeftOutput)]
        if left:  # to have the loop do something takes as long as a small run
            self.post.do(keep_values(self.post.worker, left), self.patience)
        self.sources = {}
        began = time() - perf_counter() + begin + self.post.worker.scheduler_delay
        self._say("done", began, frames=[pickle.dumps(counts), *list_frames(cells)])


def be_device(device: int, key: str, topic: str, patience: float) -> None:
    """The task of a device, as long as the caller wants it."""
    from distributed import get_worker, secede

    worker = get_worker()
    post = Post(device, key, worker)
    post.pause = min(BEAT_SECONDS, patience / 5)
    address, task = post.do(post.open(), patience), worker.get_current_task()

    def is_wanted() -> bool:
        known = worker.state.tasks.get(task)
        return known is not None and known.state in ("executing", "long-running")

    try:
        facts = {"device": device, "address": address, "wire": post.wires and post.wires.address}
        worker.log_event(
            topic,
            {
                **facts,
                "worker": worker.address,
                "clock": name_clock(),
                "cores": count_cores(),
                "versions": find_versions(),
            },
        )
        DeviceTask(post, patience, is_wanted, secede).serve()
    finally:
        try:
            post.do(post.shut(), patience)
        finally:  # also where the worker, and its loop, ended before
            if post.wires is not None:
                post.wires.close()
