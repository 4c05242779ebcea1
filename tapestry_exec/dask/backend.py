"""The caller's side: devices are placed, told what to do, watched, and ended when one is lost."""

from __future__ import annotations

import asyncio
import os
import pickle
import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter
from typing import Any, NoReturn

import numpy as np

from tapestry_exec.copies import Array
from tapestry_exec.dask.clusters import ForeignCluster, OwnCluster
from tapestry_exec.dask.hearing import Heard, Hearing
from tapestry_exec.dask.leaving import LeftOutput, find_lying, leave_output
from tapestry_exec.dask.lines import CALLER, Line, Message, list_frames, pack_message
from tapestry_exec.dask.member import be_device
from tapestry_exec.dask.stream import TaskStream, count_bars, list_entries
from tapestry_exec.dask.tuning import CLOCK_ROUNDS, LOOK_SECONDS, PATIENCE_SECONDS, RESOURCE, TASK, TELL_SECONDS
from tapestry_exec.numpy import NumpyBackend
from tapestry_exec.run import (
    BackendUnavailable,
    Counts,
    Deployed,
    DevicePart,
    GenerationEnded,
    Generations,
    Progress,
    RunResult,
    Savings,
    Source,
    Start,
    check_alike,
    check_room,
    compare_placed,
    find_first,
    find_versions,
    join_cells,
    list_parts,
    list_placed,
    list_placements,
    list_sends,
    make_result,
    name_clock,
    name_place,
    tuning,
)
from tapestry_plan.ir import Stored, sha256_of
from tapestry_plan.steps import DeviceStep, Output, Send
from tapestry_sets.limits import check_arguments, quote


class DaskBackend(NumpyBackend):
    """Each device is a long task on a worker of Dask's, with an arena of its own.

    Dask places the tasks, by the resource ``tapestry``, and restarts workers. Parcels go from worker to worker, at
    Dask's addresses and encrypted where Dask is, as raw bytes. The workers read constants from the model's file.
    Without a client the workers are processes of this machine, which live as long as one `run`, or as a deployment.

    Parameters
    ----------
    client : distributed.Client or str, optional
        Of a cluster, or the address of its scheduler. Each device takes a worker that was started with ``--resources
        tapestry=1``, and one of its threads.
    retries : int
        When a worker is lost or silent, or a step raises, all devices are ended. So many times at most all begin again,
        from the last checkpoint or the beginning; `RunResult.faults` lists what ended the others.
    patience : float
        Seconds that a worker may be silent, or take to come.

    Raises
    ------
    BackendUnavailable
        When distributed is not installed.
    ValueError
        For negative `retries`, and a `patience` that is not above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from distributed import Client, LocalCluster
    >>> from tapestry_exec import DaskBackend, run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"), "y")
    >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
    >>> threads = {"processes": False, "n_workers": 2, "resources": {"tapestry": 1}, "dashboard_address": ":0"}
    >>> with LocalCluster(**threads) as cluster, Client(cluster) as client:  # workers that are threads, for a trial
    ...     run(p, {"x": np.ones((4, 6), np.float32)}, backend=DaskBackend(client)).nbytes_by_link
    {(0, 1): 24, (1, 0): 24}
    """

    name = "dask"

    @check_arguments(retries="give how often all may begin again", patience="give seconds")
    def __init__(self, client: Any = None, *, retries: int = 2, patience: float = PATIENCE_SECONDS) -> None:
        super().__init__()
        try:
            import distributed
        except ImportError as error:
            raise BackendUnavailable(
                f"the backend 'dask' needs distributed ({error}): pip install 'tapestry-tensor[dask]'"
            ) from error
        if client is not None and not isinstance(client, str | distributed.Client):
            raise TypeError(
                f"client must be a distributed.Client or the address of a scheduler, not {quote(client)}; leave it out "
                "for workers of this machine"
            )
        if isinstance(client, distributed.Client) and client.asynchronous:
            raise TypeError("client must not be asynchronous: run waits; give Client(…, asynchronous=False)")
        self.client, self.generations = client, Generations(retries, patience)

    def check_room(self, nbytes: Sequence[int]) -> None:
        """Raise MemoryError where the arenas of workers of this machine do not fit; of others nothing is known here."""
        if self.client is None:
            check_room(nbytes, apart=True)

    def leave_output(self, output: Output) -> LeftOutput:
        """How an output is left on the workers, as an array of the client's.

        Raises
        ------
        ValueError
            Where the workers or the client end with the run, and for blocks that are not chunks of a grid.
        """
        import distributed

        if not isinstance(self.client, distributed.Client):
            raise ValueError(
                f"outputs: output {quote(output.name)} is to stay on Dask's workers, and "
                f"{'these' if self.client is None else 'the client of these'} would end with the run; give "
                "DaskBackend(client) with a distributed.Client"
            )
        return leave_output(self.client, output, [region for _, region in output.blocks])

    def begin(self, what: Deployed) -> DaskSession:
        """Have the devices of a plan placed."""
        return DaskSession(what, self.client, self.generations)


class DaskSession:
    """The devices of a plan on workers, which begin again after a fault."""

    def __init__(self, what: Deployed, client: Any, generations: Generations) -> None:
        self.what, self.plan = what, what.prepared.plan
        self.generations, self.patience = generations, generations.patience
        size = self.plan.mesh.size
        self.cluster: ForeignCluster | OwnCluster = (
            OwnCluster(size, self.patience) if client is None else ForeignCluster(client, size, self.patience)
        )
        self.parts = list(list_parts(what))
        self.lying: list[set[str]] = []
        """By device: the constants that have files."""
        self.setups = [self._pickle(part) for part in self.parts]
        self.total = sum(not isinstance(at.step, Send) for at in what.prepared.steps)
        self.futures: list[Any] = []
        self.lines: dict[int, Any] = {}
        self.is_on = False
        self.silent: set[str] = set()
        """Workers that did not answer: the scheduler may take them for free ones, and place devices there again."""
        try:
            generations.begin(what.prepared, self._start)
        except BaseException:
            with suppress(Exception):  # what ended it is what matters
                self.cluster.close()
            raise

    def _pickle(self, part: DevicePart) -> bytes:
        """What a device is told: its part, the constants that it reads from files, and the dtypes of what it places."""
        from distributed.protocol.pickle import dumps  # functions of the program that runs go by value

        stored = self.plan.graph.stored
        stays = (
            () if part.stays is None else (*part.stays.placing, *(at for x in part.stays.given.values() for at in x))
        )
        names = list_placed((*part.program, *stays))
        lying = [one for name in names if (one := self._find_file(stored[name])) is not None]
        self.lying.append({one.name for one in lying})
        try:
            return bytes(dumps((part, lying, {name: stored[name].dtype for name in names})))
        except Exception as error:
            raise BackendUnavailable(
                f"backend 'dask': device {part.device} cannot be told its operators {quote(sorted(part.ops))}: "
                f"{type(error).__name__}: {error}; functions of operators must stand in a module, by their names"
            ) from error

    def _list_carried(self) -> list[str]:
        return [] if self.what.stays is None else list(self.what.stays.given)

    def _find_file(self, tensor: Stored) -> Stored | None:
        """A constant as workers read it from its file, where one is known and so are its values; else None."""
        digest = tensor.sha256 or (None if tensor.data is None or not tensor.path else sha256_of(tensor.data))
        if tensor.kind != "constant" or not tensor.path or digest is None:
            return None
        file, sep, initializer = tensor.path.partition("#")
        return replace(tensor, data=None, path=os.path.abspath(file) + sep + initializer, sha256=digest)

    def _is_in_file(self, name: str, values: Array) -> bool:
        """Whether a constant's values are those of its file: held against its SHA-256 before, or the graph's own."""
        tensor = self.plan.graph.stored[name]
        own = tensor.data
        return tensor.sha256 is not None or (own is not None and own.__array_interface__ == values.__array_interface__)

    # -- starting and ending ---------------------------------------------------------------------------

    def _start(self) -> None:
        """Have all devices placed, and place what stays."""
        self.heard = Hearing()
        self.left: set[int] = set()
        """Devices whose lines have ended."""
        self.runs = 0
        """How many the devices were told to begin."""
        self._begin_run(0)
        self.workers: dict[int, str] = {}
        self.is_on = True
        try:
            client = self.cluster.open()
            self.stream = TaskStream(client)
            self._connect(client, self._submit(client))
            for device, setup in enumerate(self.setups):
                self._say(device, "set_up", frames=[setup])
            self.missing = [set(names) for (names,), _ in self._wait("ready")]
            if self.what.stays is not None:
                for part in self.parts:
                    theirs, cells = self._pack_feeds(
                        part, part.stays.placing if part.stays else (), self.what.constants
                    )
                    self._say(part.device, "place", theirs, frames=cells)
                compare_placed(self.what, [nbytes for (nbytes,), _ in self._wait("placed")])
        except BaseException:
            self._end()
            raise

    def _submit(self, client: Any) -> list[dict[str, Any]]:
        """Begin the tasks; where each is, and the facts that it tells."""
        self.key = secrets.token_hex(16)
        name = f"{TASK}{secrets.token_hex(4)}"
        told: SimpleQueue[dict[str, Any]] = SimpleQueue()
        workers = self.cluster.list_workers(self.silent)
        client.subscribe_topic(name, lambda event: told.put(event[1]))
        try:
            self.futures = [
                client.submit(
                    be_device,
                    *(device, self.key, name, self.patience),
                    key=f"{name}-{device}",
                    resources={RESOURCE: 1},
                    workers=workers,
                    pure=False,
                    retries=0,
                )
                for device in range(len(self.parts))
            ]
            found: dict[int, dict[str, Any]] = {}
            stop = monotonic() + self.patience
            while len(found) < len(self.parts):
                with suppress(Empty):
                    facts = told.get(timeout=LOOK_SECONDS)
                    found[facts["device"]] = facts
                    continue
                self._look_at_futures()
                if monotonic() > stop:
                    late = min(set(range(len(self.parts))) - found.keys())
                    self._lose(
                        late, f"device {late} was not placed within {self.patience:g} s: workers are busy, or lost"
                    )
        finally:
            with suppress(Exception):  # its cluster may have been ended
                client.unsubscribe_topic(name)
        every = [found[device] for device in range(len(self.parts))]
        self._check_workers(every)
        return every

    def _look_at_futures(self) -> None:
        """Raise where a task ended before it was asked to."""
        for device, future in enumerate(self.futures):
            if future.status == "error":
                error = future.exception(timeout=self.patience)
                if type(error).__name__ == "KilledWorker":
                    self._lose(device, f"the worker of device {device} died")
                raise BackendUnavailable(
                    f"backend 'dask': device {device} could not begin on its worker: {type(error).__name__}: {error}; "
                    "install tapestry-tensor on all workers, in the version of the caller"
                ) from error
            if future.status not in ("pending", "finished"):
                self._lose(device, f"the task of device {device} is {future.status}")

    def _check_workers(self, every: Sequence[Mapping[str, Any]]) -> None:
        self.workers = {facts["device"]: facts["worker"] for facts in every}
        for device, worker in self.workers.items():
            first = next(d for d, other in self.workers.items() if other == worker)
            if first != device:
                raise BackendUnavailable(
                    f"backend 'dask': devices {first} and {device} are on one worker, {worker}, which has room for "
                    "several; start more workers, each with --resources tapestry=1"
                )
        names = ["the caller", *(f"worker {facts['worker']}" for facts in every)]
        check_alike("dask", [find_versions(), *(facts["versions"] for facts in every)], names)

    def _connect(self, client: Any, every: Sequence[Mapping[str, Any]]) -> None:
        """Connect to all devices, and have those connect that send to each other."""
        from distributed.comm import connect

        heard = self.heard
        security = client.security.get_connection_args("client")

        async def reach(device: int, address: str) -> Any:
            comm = await connect(address, timeout=self.patience, deserialize=False, **security)
            await comm.write(pack_message(Message("hello", (self.key, CALLER))))
            line = Line(comm, client.loop, lambda message: heard.put(Heard(device, message)))
            listening = asyncio.create_task(line.listen())
            listening.add_done_callback(lambda _: None)
            return line, listening

        async def reach_all() -> list[Any]:
            return await asyncio.gather(*(reach(facts["device"], facts["address"]) for facts in every))

        try:
            reached = client.sync(reach_all)
        except (OSError, TimeoutError) as error:
            self._lose(None, f"devices cannot be reached: {type(error).__name__}: {error}")
        self.lines = {device: line for device, (line, _) in enumerate(reached)}
        self.tasks = [task for _, task in reached]
        wires = {facts["device"]: facts["wire"] and tuple(facts["wire"]) for facts in every}
        heard.connect(wires, self.key, self.patience)
        for part in self.parts:
            peers = {at.step.peer for at in part.program if isinstance(at.step, Send)}
            addresses = [(peer, every[peer]["address"], every[peer]["wire"]) for peer in sorted(peers)]
            senders = sorted({peer for peer, _ in part.list_receipts()})
            near = [facts for facts in every if facts["clock"] == every[part.device]["clock"]]
            spins = len(near) <= every[part.device]["cores"]
            self._say(part.device, "meet", addresses, senders, self.patience, spins)
        self._wait("met")
        self._align_clocks(every)

    def _align_clocks(self, every: Sequence[Mapping[str, Any]]) -> None:
        """Find by how much devices' clocks are ahead of the caller's: not at all on his machine.

        On others they are asked a few times, and the quickest answers count: off by half of what those took at most.
        What clocks drift apart from then on is not known.
        """
        self.ahead, best, self.clock_error = [0.0] * len(every), inf, 0.0
        others = [facts["device"] for facts in every if facts["clock"] != name_clock()]
        for _ in range(CLOCK_ROUNDS if others else 0):
            begin = perf_counter()
            for device in self.lines:
                self._say(device, "tell_clock")
            told = [theirs for (theirs,), _ in self._wait("told_clock")]
            took = perf_counter() - begin
            if took < best:
                best, self.clock_error = took, took / 2
                for device in others:
                    self.ahead[device] = told[device] - begin - took / 2

    def _end(self) -> list[int | None]:
        """End all devices: each ends when its line does. By device the bytes that it had sent, where that is known."""
        lines, futures, self.lines, self.futures, self.is_on = self.lines, self.futures, {}, [], False
        for line in lines.values():
            line.say("end")
        self.heard.end_wires()
        told = self._hear_ends({device for device in lines if self.workers[device] not in self.silent} - self.left)
        self.heard.close()
        for line in lines.values():
            line.close()
        for future in futures:
            with suppress(Exception):
                future.cancel(force=True)
        with suppress(Exception):
            ended = told.keys() & self.left
            self.cluster.end({self.workers[device] for device in lines if device not in ended} if lines else None)
        return [told[device] if device in told else self._find_sent(device) for device in range(len(self.parts))]

    def _hear_ends(self, asked: set[int]) -> dict[int, int]:
        """What devices tell that they had sent; where they are at a step they may take a moment to be done with it."""
        told: dict[int, int] = {}
        stop = monotonic() + TELL_SECONDS
        while not asked <= self.left and monotonic() < stop:
            try:
                device, message = self.heard.get(timeout=max(stop - monotonic(), 0.0))
            except Empty:
                break
            if message is None:
                self.left.add(device)
            elif message.word == "ended":
                runs, _, nbytes = message.values
                told[device] = nbytes if runs == self.runs else 0
                if asked <= told.keys() | self.left:
                    stop = min(stop, monotonic() + LOOK_SECONDS)
        return told

    def _find_sent(self, device: int) -> int | None:
        """What a device that is lost had sent: nothing before a run, and all where it had told so; else None."""
        if not self.runs:
            return 0
        part, board = self.parts[device], self.boards[device]
        total = sum(nbytes for _, nbytes in list_sends(part.program, part.work.buffers, self.first))
        is_known = not total or device in self.done or (board is not None and board[1] == total)
        return total if is_known else None

    def close(self) -> None:
        """End all devices, and the workers that were started for them."""
        lines, futures, self.lines, self.futures, self.is_on = self.lines, self.futures, {}, [], False
        for line in lines.values():
            line.say("end")
        stop = monotonic() + self.patience
        for future in futures:
            with suppress(Exception):  # lost meanwhile
                future.result(timeout=max(stop - monotonic(), 0.1))
        for line in lines.values():
            line.close()
        self.heard.close()
        self.cluster.close()

    # -- running ---------------------------------------------------------------------------------------

    def run(
        self, host: Mapping[str, Array], savings: Savings, progress: Progress | None, timed: bool, is_plain: bool
    ) -> RunResult:
        """Run what is left to do, with these inputs, and constants where none stay."""
        feeds = {name: self._find_lying(one) for name, one in host.items()}
        try:
            return self.generations.run(self.what, feeds, savings, lambda start: self._attempt(feeds, progress, start))
        except BaseException:
            for target in () if savings.written is None else savings.written.targets.values():
                if isinstance(target, LeftOutput):
                    with suppress(Exception):  # what ended the run is what matters
                        target.drop()
            raise

    def _find_lying(self, array: Any) -> Any:
        """An input as workers read it, where all its chunks are values of theirs."""
        client = getattr(self.cluster, "client", None)
        return (client and isinstance(array, Source) and find_lying(array, client)) or array

    def _attempt(self, host: Mapping[str, Array], progress: Progress | None, start: Start | None) -> RunResult:
        if not self.is_on:
            self._start()
        try:
            return self._run(host, progress, start)
        except BaseException:
            if self.is_on:
                self._end()
            raise

    def _run(self, host: Mapping[str, Array], progress: Progress | None, start: Start | None) -> RunResult:
        given, feeds = sorted(host), {**self.what.constants, **host}
        self.runs += 1
        self._begin_run(find_first(start))
        errors = {kind: how for kind, how in np.geterr().items() if how in ("ignore", "warn", "raise", "print")}
        from distributed.protocol.pickle import dumps

        sources = {name: one for name, one in host.items() if isinstance(one, Source) and one.is_portable}
        if isinstance(self.cluster, ForeignCluster):  # nobody has a client of workers that end with this
            self.stream.ask()
        pickled = b"" if start is None and not sources else dumps((start, sources))
        fed = []
        for part in self.parts:
            carried = None if self.what.stays is None else self.what.stays.given
            known = self.what.prepared.list_known_cuts(part.device, carried)
            fed.append(self._pack_feeds(part, part.list_fed(given, start, known), feeds))
        begin = perf_counter()
        for device, (theirs, frames) in enumerate(fed):  # which begin one right behind the other
            more = given, progress is not None, sorted(errors.items()), begin + self.ahead[device], pickled
            self._say(device, "run", theirs, *more, frames=frames)
        answers = self._wait("done", progress)
        seconds = perf_counter() - begin
        counts: list[Counts] = [pickle.loads(frames[0]) for _, frames in answers]
        taken = [self._read_outputs(part, frames[1:]) for part, (_, frames) in zip(self.parts, answers, strict=True)]
        cells = join_cells(self.parts, taken)
        links: Counter[tuple[int, int]] = sum((one.links for one in counts), Counter())
        if self.stream.is_on(LOOK_SECONDS):
            self._show(counts, [values[0] for values, _ in answers])
        written = start.written if start else None
        return make_result(self.what.prepared, cells, counts, seconds, links, written, clock_error=self.clock_error)

    def _begin_run(self, first: int) -> None:
        """Nothing is known of devices in a run that begins with a step of the plan."""
        self.first = first
        self.boards: list[Any] = [None] * len(self.parts)
        """By device: the step and the bytes sent that it told last."""
        self.done: set[int] = set()
        """Devices that have told their results."""

    def _show(self, counts: Sequence[Counts], began: Sequence[float]) -> None:
        """Show the shards in Dask's task stream, by when the run began on each device by the scheduler's clock."""
        most = count_bars(len(self.parts))
        shards = self.what.prepared.work.shards
        self.stream.show(
            [
                (list_entries(one.list_events(), shards, device, most), self.workers[device], began[device])
                for device, one in enumerate(counts)
            ]
        )

    def _read_outputs(self, part: DevicePart, frames: Sequence[Any]) -> list[Array]:
        dtypes = [part.work.buffers[number].dtype for _, number, _ in part.outputs]
        return [np.frombuffer(frame, dtype) for frame, dtype in zip(frames, dtypes, strict=True)]

    def _pack_feeds(
        self, part: DevicePart, steps: Sequence[DeviceStep], feeds: Mapping[str, Array]
    ) -> tuple[list[str], list[Any]]:
        """Of what steps of a device place: the names of what it reads itself, and the bytes of the cells of others."""
        there = self.lying[part.device] - self.missing[part.device]
        portable = {name for name, one in feeds.items() if isinstance(one, Source) and one.is_portable}
        theirs = [
            name
            for name in list_placed(steps)
            if name in portable or (name in there and self._is_in_file(name, feeds[name]))
        ]
        placements = [(name, regions) for name, regions in list_placements(steps) if name not in theirs]
        cells = [
            one.take(regions)
            if isinstance(one := feeds[name], Source)
            else self.what.prepared.backend.place(one, regions, name)
            for name, regions in placements
        ]
        return theirs, list_frames(cells)

    def _say(self, device: int, word: str, *values: Any, frames: Sequence[Any] = ()) -> None:
        """Tell a device something, by its wire if it has one."""
        if not self.heard.say(device, Message(word, values, frames)):
            self.lines[device].say(word, *values, frames=frames)

    # -- listening -------------------------------------------------------------------------------------

    def _wait(self, wanted: str, progress: Progress | None = None) -> list[tuple[tuple[Any, ...], Sequence[Any]]]:
        """Wait for an answer of each device; what follows the word, and bytes.

        Raises
        ------
        GenerationEnded
            When a step of one raises, one is lost or silent for long, or none comes any further.
        """
        size = len(self.parts)
        found: dict[int, tuple[tuple[Any, ...], Sequence[Any]]] = {}
        done, last = 0, ""
        alive = [monotonic()] * size
        looked = moved = monotonic()
        while len(found) < size:
            if self.heard.empty() and monotonic() - looked > LOOK_SECONDS:
                looked = monotonic()
                self._look_who_is_silent(found, alive, moved)
            try:
                device, message = self.heard.get(timeout=LOOK_SECONDS)
            except Empty:
                continue
            if message is None:
                self.left.add(device)
                self._lose(device, f"the worker of device {device} ({self.workers[device]}) is gone")
            alive[device] = monotonic()
            word, values, frames = message
            if word == "alive":
                runs, *board = values
                if runs == self.runs and self.boards[device] != board:
                    self.boards[device], moved = board, monotonic()
            elif word == "failed":
                self._fail(device, values[0], pickle.loads(frames[0]))
            elif word == "unreached":
                self._lose(values[0], values[1])
            elif word == "lost":
                self._lose(values[0], f"the worker of device {values[0]} ({self.workers[values[0]]}) is gone")
            elif word == "did":
                done, last, moved = done + values[0], values[1], monotonic()
                if progress is not None:
                    progress(done, self.total, last)
            elif word == wanted:
                found[device] = values, frames
                moved = monotonic()
                if wanted == "done":
                    self.done.add(device)
        if progress is not None:
            progress(self.total, self.total, last)
        return [found[device] for device in range(size)]

    def _look_who_is_silent(self, found: Collection[int], alive: Sequence[float], moved: float) -> None:
        """End all where a device has said nothing for long, though nothing waits to be heard, or none comes further."""
        now = monotonic()
        for device, last in enumerate(alive):
            if device not in found and now - last > self.patience:
                self.silent.add(self.workers[device])
                where = f"the worker of device {device} ({self.workers[device]})"
                self._lose(device, f"{where} was silent for {self.patience:g} s")
        if now - moved > tuning.MAX_WAIT_SECONDS:
            late = min(set(range(len(self.parts))) - set(found))
            self._lose(late, f"device {late} came no further for {tuning.MAX_WAIT_SECONDS:g} s")

    def _fail(self, device: int, number: int, error: Exception) -> NoReturn:
        """End all, as a step of a device raised, or it could not begin."""
        sent = self._end()
        if number < 0:
            raise BackendUnavailable(
                f"backend 'dask': device {device} could not begin on worker {self.workers[device]}: "
                f"{type(error).__name__}: {error}; operators of your own must stand in a module that it can import"
            ) from error
        raise GenerationEnded(device, number, f"{type(error).__name__}: {error}", sent, error)

    def _lose(self, device: int | None, why: str) -> NoReturn:
        """End all, as one is gone: it is named with the step that it was at when it was last heard."""
        step, where = None, ""
        board = None if device is None else self.boards[device]
        if board is not None and board[0] >= 0:
            step, where = board[0], f"; it was last heard at {name_place(self.plan, board[0])}"
        sent = self._end()
        raise GenerationEnded(
            device, step, f"{why}{where}; nothing of the run is returned, and all other devices were ended", sent
        )
