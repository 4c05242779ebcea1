"""The caller's side: starts the processes, hands feeds in and outputs out, and ends everything when one fails."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from socket import socketpair
from time import perf_counter
from typing import Any, NoReturn

import numpy as np

from tapestry_exec.copies import Array
from tapestry_exec.numpy import NumpyBackend
from tapestry_exec.processes.segments import Segment
from tapestry_exec.processes.setup import SharedCells, lay_out_constants, lay_out_run, list_setups
from tapestry_exec.processes.tuning import END_SECONDS
from tapestry_exec.processes.worker import view_slot
from tapestry_exec.run import (
    BackendUnavailable,
    Counts,
    Deployed,
    Progress,
    RunResult,
    StepFailed,
    compare_placed,
    make_result,
    name_step,
)
from tapestry_plan.steps import Send
from tapestry_sets.limits import quote

SERVER = """
import sys
path, arguments = eval(sys.stdin.read())
sys.path[:] = path
from tapestry_exec.processes.worker import serve
serve(*arguments)
"""
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""The server has no other threads when it forks, and BLAS gives the same bits in every way of running."""


class ProcessBackend(NumpyBackend):
    """Each device is a process of this machine, with an arena of its own.

    The processes live as long as one `run`, or as a deployment. They import what operators are made of by name, so
    operators of one's own stand in a module, not in the program that runs.

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

    def begin(self, what: Deployed) -> ProcessSession:
        """Start the processes of a plan."""
        if not hasattr(os, "fork"):
            raise BackendUnavailable("backend 'processes' needs a system with fork; use 'numpy'")
        return ProcessSession(what)


class ProcessSession:
    """The processes of a plan, which are started again after a run that failed."""

    def __init__(self, what: Deployed) -> None:
        self.what, self.plan = what, what.prepared.plan
        self.server: subprocess.Popen[str] | None = None
        self.shared: Segment | None = None
        self.connections: list[Connection] = []
        self.layout = lay_out_run(what)
        constants, nbytes = lay_out_constants(what)
        self.constants, self.constants_nbytes = constants, nbytes
        self.setups = [_pickle(setup) for setup in list_setups(what, self.layout, constants)]
        self.total = sum(not isinstance(at.step, Send) for at in what.prepared.steps)
        self._start()

    # -- starting and ending ---------------------------------------------------------------------------

    def _start(self) -> None:
        """Start the processes, and place what stays."""
        try:
            self._start_server()
            for device, setup in zip(self.devices, self.setups, strict=True):
                self._tell(device, ("setup", setup))
            self._wait("ready")
            if self.what.stays is not None:
                for device in self.devices:
                    self._tell(device, ("place",))
                compare_placed(self.what, [nbytes for (nbytes,) in self._wait("placed")])
        except BaseException:
            self.kill()
            raise

    def _start_server(self) -> None:
        self.shared = shared = Segment.create(self.layout.nbytes)
        files, constants = list[int](), Segment.create(self.constants_nbytes)
        try:
            for name, slot in self.constants.items():
                view_slot(constants, slot)[...] = self.what.constants[name]
            pairs = [socketpair() for _ in range(self.plan.mesh.size + 1)]
            control, *others = (theirs.detach() for _, theirs in pairs)
            self.control, *self.devices = self.connections = [Connection(mine.detach()) for mine, _ in pairs]
            pipes = [os.pipe() for _ in others]
            for _, end in pipes:
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
                told.write(repr((sys.path, (control, others, *segments, pipes))))
        finally:
            for file in files:
                os.close(file)
            shared.close()
            constants.close()

    def close(self) -> None:
        """End the processes."""
        if self.server is None:
            return
        for device in self.devices:
            self._tell(device, ("end",))
        with suppress(subprocess.TimeoutExpired):
            self.server.wait(END_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the processes at once, whatever they do."""
        server, self.server, self.shared = self.server, None, None
        for connection in self.connections:
            connection.close()
        if server is None:
            return
        try:
            server.wait(END_SECONDS)  # which kills its own, as the caller is gone
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()

    # -- running ---------------------------------------------------------------------------------------

    def run(self, host: Mapping[str, Array], progress: Progress | None, timed: bool, is_plain: bool) -> RunResult:
        """Run what is left to do, with these inputs, and constants where none stay."""
        if self.server is None:
            self._start()
        done = False
        try:
            result = self._run(host, progress)
            done = True
        finally:
            if not done:
                self.kill()
        return result

    def _run(self, host: Mapping[str, Array], progress: Progress | None) -> RunResult:
        feeds = {**self.what.constants, **host}
        for name, slot in self.layout.feeds.items():
            if name in feeds:
                self._view(slot)[...] = feeds[name]
        # What NumPy does at overflows and the like is the caller's to say; functions of his are not called elsewhere.
        errors = {kind: how for kind, how in np.geterr().items() if how in ("ignore", "warn", "raise", "print")}
        begin = perf_counter()
        for device in self.devices:
            self._tell(device, ("run", sorted(host), begin, progress is not None, errors))
        counts: list[Counts] = [each for (each,) in self._wait("done", progress)]
        seconds = perf_counter() - begin
        cells = [self._view(one.slot).copy() for one in self.layout.outputs]
        links = sum((one.links for one in counts), Counter())
        timeline = sorted((event for one in counts for event in one.timeline), key=lambda event: event.step)
        return make_result(self.plan, cells, counts, timeline, seconds, links)

    def _view(self, slot: SharedCells) -> Array:
        assert self.shared is not None, "the processes run"
        return view_slot(self.shared, slot)

    def _tell(self, device: Connection, message: Any) -> None:
        with suppress(ConnectionError, OSError):  # of a process that has died, which the server tells
            device.send(message)

    def _wait(self, wanted: str, progress: Progress | None = None) -> list[tuple[Any, ...]]:
        """Wait for an answer of each device; what they answer behind the word.

        Raises
        ------
        StepFailed
            When a step of one raises, or one dies; all are ended then.
        """
        found: dict[int, tuple[Any, ...]] = {}
        done, last = 0, ""
        while len(found) < len(self.devices):
            ready = wait([self.control, *(d for k, d in enumerate(self.devices) if k not in found)])
            if self.control in ready:
                self._tell_death()
            for k, device in enumerate(self.devices):
                if device not in ready:
                    continue
                try:
                    word, *rest = device.recv()
                except (EOFError, ConnectionError):
                    self._tell_death()
                if word == "failed":
                    self.kill()
                    self._fail(*rest)
                elif word == "did":
                    done, last = done + rest[0], rest[1]
                    if progress is not None:
                        progress(done, self.total, last)
                else:
                    assert word == wanted, "a device answers what it is asked"
                    found[k] = tuple(rest)
        if progress is not None:
            progress(self.total, self.total, last)
        return [found[k] for k in range(len(self.devices))]

    def _fail(self, number: int, error: Exception) -> NoReturn:
        if number < 0:
            raise BackendUnavailable(
                f"backend 'processes': a process could not begin: {type(error).__name__}: {error}; operators of your "
                "own must stand in a module that it can import"
            ) from error
        raise name_step(self.what.prepared, number, error) from error

    def _tell_death(self) -> NoReturn:
        """Raise for a process that died."""
        try:
            device, status = self.control.recv()
        except (EOFError, ConnectionError):
            self.kill()
            raise StepFailed(
                "the server of the devices' processes died before the run was done; nothing of the run is returned"
            ) from None
        self.kill()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        raise StepFailed(
            f"the process of device {device} died ({how}) before the run was done; nothing of the run is returned, and "
            "all other processes were ended: run it again"
        )


def _pickle(setup: Any) -> bytes:
    try:
        return pickle.dumps(setup)
    except Exception as error:
        raise BackendUnavailable(
            f"backend 'processes': device {setup.device} cannot be told its operators {quote(sorted(setup.ops))}: "
            f"{type(error).__name__}: {error}; functions of operators must stand in a module, by their names"
        ) from error
