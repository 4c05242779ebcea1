"""The caller's side: starts the processes, hands feeds in and outputs out, and ends everything when one fails."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from socket import socketpair
from threading import Thread
from time import monotonic, perf_counter
from typing import Any, NoReturn

import numpy as np

from tapestry_exec.copies import Array
from tapestry_exec.numpy import NumpyBackend
from tapestry_exec.processes.segments import Segment
from tapestry_exec.processes.setup import SharedCells, lay_out_constants, lay_out_run, list_setups
from tapestry_exec.processes.tuning import AT_ONCE_NBYTES, END_SECONDS, LOOK_SECONDS, PATIENCE_SECONDS
from tapestry_exec.processes.worker import view_slot
from tapestry_exec.run import (
    BackendUnavailable,
    Counts,
    Deployed,
    GenerationEnded,
    Generations,
    Progress,
    RunResult,
    Savings,
    Source,
    Start,
    check_room,
    compare_placed,
    count_cores,
    find_core,
    free_nbytes_of_each,
    list_own_cores,
    make_result,
    name_place,
    share_out,
    take_whole,
    tell_devices,
    tuning,
)
from tapestry_plan.steps import Send
from tapestry_sets.limits import check_arguments, check_positive, quote

SERVER = """
import signal, sys

signal.signal(signal.SIGINT, signal.SIG_IGN)  # at once: imports take long, and Ctrl-C is the caller's
path, arguments = eval(sys.stdin.read())
sys.path[:] = path
from tapestry_exec.processes.worker import serve
serve(*arguments)
"""
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""The server has no other threads when it forks, and BLAS gives the same bits in every way of running."""


class ProcessBackend(NumpyBackend):
    """Devices are in processes of this machine, each with an arena of its own.

    The processes live as long as one `run`, or as a deployment. Constants that are mapped from a file they read there,
    each what it needs; others are handed to them in shared memory. They import what operators are made of by name, so
    operators of one's own stand in a module, not in the program that runs.

    Parameters
    ----------
    retries : int
        When a process dies, is stopped for longer than `patience`, or a step raises, all are ended. So many times at
        most all begin again, from the last checkpoint or the beginning; `RunResult.faults` lists what ended the others.
    patience : float
        Seconds that a process may be stopped (SIGSTOP): of devices, or the server that starts and watches these.
    processes : int, optional
        How many at most. By default one for each core that this process may use, where all then have about as much to
        do; else one for each device. Devices of one process take turns, and are lost together.

    Raises
    ------
    ValueError
        For negative `retries`, a `patience` that is not above 0, and less than one process.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"), "y")
    >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
    >>> run(p, {"x": np.ones((4, 6), np.float32)}, backend="processes").nbytes_by_link
    {(0, 1): 24, (1, 0): 24}
    """

    name = "processes"
    reads_files = True

    @check_arguments(
        retries="give how often all may begin again", patience="give seconds", processes="give how many at most"
    )
    def __init__(self, *, retries: int = 0, patience: float = PATIENCE_SECONDS, processes: int | None = None) -> None:
        super().__init__()
        self.processes = None if processes is None else check_positive(processes, "ProcessBackend: processes")
        self.generations = Generations(retries, patience)

    def check_room(self, nbytes: Sequence[int]) -> None:
        """Raise MemoryError where the arenas, each in a process of its own, do not fit."""
        check_room(nbytes, apart=True)

    def begin(self, what: Deployed) -> ProcessSession:
        """Start the processes of a plan."""
        if not hasattr(os, "fork"):
            raise BackendUnavailable("backend 'processes' needs a system with fork; use 'numpy'")
        return ProcessSession(what, self.generations, self.processes)


class ProcessSession:
    """The processes of a plan, which are started again after a run that failed."""

    def __init__(self, what: Deployed, generations: Generations, processes: int | None) -> None:
        self.what, self.plan = what, what.prepared.plan
        self.generations, self.patience = generations, generations.patience
        arenas = what.prepared.arenas_nbytes if what.stays is None else what.stays.arenas_nbytes
        self.groups = share_out(what.prepared.seconds, processes, arenas, free_nbytes_of_each())
        """The devices of each process."""
        check_room([sum(arenas[device] for device in group) for group in self.groups], apart=True)
        self.stopped: dict[int, float] = {}
        """Since when processes are stopped, by number."""
        self.server_stopped: float | None = None
        """Since when the server is, which tells of the others: the caller sees that by himself."""
        self.server: subprocess.Popen[str] | None = None
        self.shared: Segment | None = None
        self.connections: list[Connection] = []
        self.layout = lay_out_run(what)
        constants, nbytes = lay_out_constants(what)
        self.constants, self.constants_nbytes = constants, nbytes
        self.setups = [_pickle(setup) for setup in list_setups(what, self.layout, constants, self.groups)]
        self.total = sum(not isinstance(at.step, Send) for at in what.prepared.steps)
        generations.begin(what.prepared, self._start)

    # -- starting and ending ---------------------------------------------------------------------------

    def _start(self) -> None:
        """Start the processes, and place what stays."""
        try:
            self._start_server()
            for process, setup in zip(self.processes, self.setups, strict=True):
                self._tell(process, ("setup", setup))
            self._wait("ready")
            if self.what.stays is not None:
                for process in self.processes:
                    self._tell(process, ("place",))
                compare_placed(self.what, self._by_device(self._wait("placed")))
        except BaseException:
            self.kill()
            raise

    def _start_server(self) -> None:
        self.shared = shared = Segment.create(self.layout.nbytes)
        self._view(self.layout.boards)[:] = -1, 0, 0
        files, constants = list[int](), Segment.create(self.constants_nbytes)
        try:
            for name, slot in self.constants.items():
                view_slot(constants, slot)[...] = self.what.constants[name]
            pairs = [socketpair() for _ in range(len(self.groups) + 1)]
            control, *others = (theirs.detach() for _, theirs in pairs)
            self.control, *self.processes = self.connections = [Connection(mine.detach()) for mine, _ in pairs]
            pipes = [os.pipe() for _ in others]
            for end in (end for pipe in pipes for end in pipe):
                os.set_blocking(end, False)
            files += [control, *others, *(end for pipe in pipes for end in pipe)]
            segments = [(one.file, one.nbytes) for one in (shared, constants)]
            self.server = subprocess.Popen(
                [sys.executable, "-c", SERVER],
                stdin=subprocess.PIPE,
                pass_fds=[*files, *(file for file, _ in segments)],
                env={**os.environ, **dict.fromkeys(ONE_THREAD, "1")},
                text=True,
            )
            assert self.server.stdin is not None
            with self.server.stdin as told:
                spins = len(self.groups) <= count_cores()
                told.write(repr((sys.path, (control, self.groups, others, *segments, pipes, spins))))
        finally:
            for file in files:
                os.close(file)
            shared.close()
            constants.close()

    def close(self) -> None:
        """End the processes."""
        if self.server is None:
            return
        for process in self.processes:
            self._tell(process, ("end",))
        if not self._is_server_stopped():
            with suppress(subprocess.TimeoutExpired):
                self.server.wait(END_SECONDS)
        self.kill()

    def kill(self) -> list[int | None]:
        """End the processes at once, whatever they do; by device the bytes that it had sent."""
        is_stopped, server, shared = self._is_server_stopped(), self.server, self.shared
        self.server, self.shared, self.server_stopped = None, None, None
        self.stopped.clear()
        for connection in self.connections:
            connection.close()
        if server is None or shared is None:
            return []
        try:
            server.wait(0 if is_stopped else END_SECONDS)  # which kills its own, as the caller is gone
        except subprocess.TimeoutExpired:
            server.kill()  # and Linux kills those that it has forked
            server.wait()
        return [int(nbytes) for nbytes in view_slot(shared, self.layout.boards)[:, 1]]

    # -- running ---------------------------------------------------------------------------------------

    def run(
        self, host: Mapping[str, Array], savings: Savings, progress: Progress | None, timed: bool, is_plain: bool
    ) -> RunResult:
        """Run what is left to do, with these inputs, and constants where none stay."""
        return self.generations.run(self.what, host, savings, lambda start: self._attempt(host, progress, start))

    def _attempt(self, host: Mapping[str, Array], progress: Progress | None, start: Start | None) -> RunResult:
        if self.server is None:
            self._start()
        done = False
        try:
            result = self._run(host, progress, start)
            done = True
        finally:
            if not done:
                self.kill()
        return result

    def _run(self, host: Mapping[str, Array], progress: Progress | None, start: Start | None) -> RunResult:
        feeds = {**self.what.constants, **host}
        sources = {name: one for name, one in host.items() if isinstance(one, Source) and one.is_portable}
        for name, slot in self.layout.feeds.items():
            if name in feeds and name not in sources:
                self._view(slot)[...] = take_whole(feeds[name])
        # What NumPy does at overflows and the like is the caller's to say; functions of his are not called elsewhere.
        errors = {kind: how for kind, how in np.geterr().items() if how in ("ignore", "warn", "raise", "print")}
        self._view(self.layout.boards)[:] = -1, 0, 0
        begin = perf_counter()
        for process in self._last_of_this_core():
            self._tell(process, ("run", sorted(host), begin, progress is not None, errors, start, sources))
        counts: list[Counts] = self._by_device(self._wait("done", progress))
        seconds = perf_counter() - begin
        cells = [self._view(slot).copy() for slot in self.layout.outputs]
        links = sum((one.links for one in counts), Counter())
        return make_result(self.what.prepared, cells, counts, seconds, links, start.written if start else None)

    def _last_of_this_core(self) -> list[Connection]:
        """The processes, the one that has this core last: it begins at once, and what else is here waits for long."""
        cores = list_own_cores(len(self.processes))
        if cores is None:
            return self.processes
        here = find_core()
        return [one for _, one in sorted(zip(cores, self.processes, strict=True), key=lambda at: at[0] == here)]

    def _view(self, slot: SharedCells) -> Array:
        assert self.shared is not None, "the processes run"
        return view_slot(self.shared, slot)

    def _by_device(self, told: Sequence[Sequence[Sequence[Any]]]) -> list[Any]:
        """What processes answer of each of their devices."""
        return [one for (each,) in told for one in each]  # whose devices are neighbors

    def _tell(self, process: Connection, message: Any) -> None:
        """Tell a process something; nobody waits for one that is stopped and reads nothing."""
        data = pickle.dumps(message)
        if len(data) <= AT_ONCE_NBYTES:
            _send(process, data)
        else:
            Thread(target=_send, args=(process, data), daemon=True).start()

    def _wait(self, wanted: str, progress: Progress | None = None) -> list[tuple[Any, ...]]:
        """Wait for an answer of each process; what they answer behind the word.

        Raises
        ------
        GenerationEnded
            When a step of one raises, one dies or is stopped for long, or none comes any further.
        """
        found: dict[int, tuple[Any, ...]] = {}
        done, last, seen, moved = 0, "", b"", monotonic()
        while len(found) < len(self.processes):
            listened = [self.control, *(one for k, one in enumerate(self.processes) if k not in found)]
            ready = wait(listened, min(self.patience, LOOK_SECONDS))
            if self.control in ready:
                self._read_server()
            self._look_at_server()
            for k, process in enumerate(self.processes):
                if process not in ready:
                    continue
                try:
                    word, *rest = process.recv()
                except (EOFError, ConnectionError):
                    self._read_server(wait_for=k)
                    continue
                if word == "failed":
                    self._end(*rest)
                elif word == "did":
                    done, last = done + rest[0], rest[1]
                    if progress is not None:
                        progress(done, self.total, last)
                else:
                    assert word == wanted, "a process answers what it is asked"
                    found[k] = tuple(rest)
            self._look_at_stopped(found)
            boards = self._view(self.layout.boards).tobytes()
            if ready or boards != seen:
                seen, moved = boards, monotonic()
            elif monotonic() - moved > tuning.MAX_WAIT_SECONDS:
                late = min(set(range(len(self.processes))) - found.keys())
                self._lose(late, f"came no further for {tuning.MAX_WAIT_SECONDS:g} s")
        if progress is not None:
            progress(self.total, self.total, last)
        return [found[k] for k in range(len(self.processes))]

    def _end(self, device: int, number: int, error: Exception) -> NoReturn:
        """End all, as a step of one raised, or it could not begin."""
        sent = self.kill()
        if number < 0:
            raise BackendUnavailable(
                f"backend 'processes': a process could not begin: {type(error).__name__}: {error}; operators of your "
                "own must stand in a module that it can import"
            ) from error
        raise GenerationEnded(device, number, f"{type(error).__name__}: {error}", sent, error)

    def _read_server(self, wait_for: int | None = None) -> None:
        """Read what the server says of processes; until one is dead, where its connection has ended."""
        while True:
            while wait_for is not None and not self.control.poll(min(self.patience, LOOK_SECONDS)):
                self._look_at_server()  # it tells nothing while it is stopped
            try:
                process, status = self.control.recv()
            except (EOFError, ConnectionError):
                self._lose(None, "the server of the devices' processes died")
            if os.WIFSTOPPED(status):
                self.stopped[process] = monotonic()
            elif os.WIFCONTINUED(status):
                self.stopped.pop(process, None)
            else:
                code = os.waitstatus_to_exitcode(status)
                how = f"signal {-code}" if code < 0 else f"exit status {code}"
                self._lose(process, f"died ({how})")
            if wait_for is None and not self.control.poll():
                return

    def _is_server_stopped(self) -> bool:
        """Whether the server is stopped now; notes since when."""
        server = self.server
        while server is not None and server.returncode is None:
            try:
                found, status = os.waitpid(server.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:  # who else waited for it has its status
                break
            if not found:
                break
            if os.WIFSTOPPED(status):
                self.server_stopped = monotonic()
            else:
                self.server_stopped = None
                if not os.WIFCONTINUED(status):
                    server.returncode = os.waitstatus_to_exitcode(status)  # which is told once
        return self.server_stopped is not None

    def _look_at_server(self) -> None:
        """End all when the server has been stopped for long: nobody else tells which devices are."""
        if self._is_server_stopped() and monotonic() - (self.server_stopped or 0.0) > self.patience:
            self._lose(None, f"the server of the devices' processes was stopped for {self.patience:g} s")

    def _look_at_stopped(self, found: Collection[int]) -> None:
        """End all when one has been stopped for long."""
        for process, since in self.stopped.items():
            if process not in found and monotonic() - since > self.patience:
                self._lose(process, f"was stopped for {self.patience:g} s")

    def _lose(self, process: int | None, why: str) -> NoReturn:
        """End all, as one is gone: it is named with the device whose turn it was, and the step that this was at."""
        step, where, device = None, "", None
        if process is not None:
            group, boards = self.groups[process], self._view(self.layout.boards)
            why = f"the process of {tell_devices(group)} {why}"
            device = max(group, key=lambda one: (boards[one, 2], -one))
            number = int(boards[device, 0])
            if number >= 0:
                step = number
                where = f" at {name_place(self.plan, number)}"
        sent = self.kill()
        raise GenerationEnded(
            device,
            step,
            f"{why}{where} before the run was done; nothing of the run is returned, and all other processes were "
            "ended: run it again",
            sent,
        )


def _send(process: Connection, data: bytes) -> None:
    with suppress(ConnectionError, OSError, TypeError):  # it has died, as the server tells, or all were ended meanwhile
        process.send_bytes(data)


def _pickle(setup: Any) -> bytes:
    try:
        return pickle.dumps(setup)
    except Exception as error:
        ops = {name for part in setup.parts for name in part.ops}
        raise BackendUnavailable(
            f"backend 'processes': {tell_devices([part.device for part in setup.parts])} cannot be told its operators "
            f"{quote(sorted(ops))}: "
            f"{type(error).__name__}: {error}; functions of operators must stand in a module, by their names"
        ) from error
