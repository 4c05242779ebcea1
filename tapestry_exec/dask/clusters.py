"""Clusters: workers that the caller starts himself and ends again, and those of a client."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from time import monotonic, sleep
from typing import Any

from tapestry_exec.dask.tuning import END_SECONDS, NAP_SECONDS, PATIENCE_SECONDS, RESOURCE, TASK
from tapestry_exec.run import BackendUnavailable

START = f"dask worker SCHEDULER --nthreads 1 --resources {RESOURCE}=1"
"""How a worker for a device is started."""
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "2s",
    "distributed.admin.system-monitor.interval": "10s",
}
"""Settings of Dask's with which a worker that waits leaves its core to others.

By default it looks at all threads' frames a hundred times a second, and at its loop fifty times. That takes 3 % of a
core, and a device in this process, or on this core, waits meanwhile.
"""


class OwnCluster:
    """Worker processes of this machine, one for each device, from `open` until `close`.

    After a fault those are started again that were lost or are stuck: to begin all of them takes several times as long.
    They and their scheduler, which is in this process, are `QUIET`.
    """

    def __init__(self, size: int, patience: float) -> None:
        self.size, self.patience = size, patience
        self.cluster: Any = None
        self.client: Any = None
        self.killed: set[str] = set()
        """Addresses of workers whose successors may not be there yet."""

    def list_workers(self, silent: Collection[str]) -> None:
        """Any will do: there is one for each device, and those that were silent have been killed."""

    def open(self) -> Any:
        """A client of the workers, which are started where there are none."""
        from dask import config
        from distributed import Client, LocalCluster

        if self.killed and not self._wait_for_successors():
            self.close()
        if self.client is None:
            try:
                with config.set(QUIET):  # for the scheduler and nannies, which are here
                    self.cluster = LocalCluster(
                        n_workers=self.size,
                        threads_per_worker=1,
                        processes=True,
                        dashboard_address=":0",
                        memory_limit=0,  # arenas were weighed before
                        resources={RESOURCE: 1},
                        preload=["tapestry_exec.dask.member"],  # before a worker is there: patience is not for imports
                        silence_logs=logging.CRITICAL,
                        config=QUIET,  # for the workers, also those that begin later
                    )
            except RuntimeError as error:
                raise BackendUnavailable(
                    f"backend 'dask': workers of this machine could not be started ({error}): each of them imports the "
                    "program that runs, which begins its work behind `if __name__ == '__main__':`; or give a client"
                ) from error
            self.client = Client(self.cluster, set_as_default=False)
        return self.client

    def _wait_for_successors(self) -> bool:
        """Whether there are as many workers again as before some were killed."""
        stop = monotonic() + max(self.patience, PATIENCE_SECONDS)
        while len(ask_workers(self.client).keys() - self.killed) < self.size:
            if monotonic() > stop:
                return False
            # A worker that was lost before, and is down 15 s after that, is given up by its cluster: it is begun anew.
            self.cluster.scale(self.size)
            sleep(NAP_SECONDS)
        self.killed.clear()
        return True

    def end(self, lost: Collection[str] | None) -> None:
        """End workers at once, by their addresses, whatever they do; all of them where it is not known which.

        One that was stopped, or never returns, would not end itself. Their nannies start others.
        """
        self.killed |= set(lost or ())
        if lost is None:
            self._kill(lambda nanny: True)
            self.close()
        else:
            self._kill(lambda nanny: nanny.worker_address in lost)

    def _kill(self, is_meant: Callable[[Any], bool]) -> None:
        for nanny in () if self.cluster is None else self.cluster.workers.values():
            if nanny.pid is not None and is_meant(nanny):
                with suppress(ProcessLookupError):
                    os.kill(nanny.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the workers."""
        if self.killed:  # what is being started would be waited for
            self._kill(lambda nanny: True)
            self.killed.clear()
        client, cluster, self.client, self.cluster = self.client, self.cluster, None, None
        if client is not None:
            client.close(END_SECONDS)
        if cluster is not None:
            cluster.close(END_SECONDS)


class ForeignCluster:
    """Workers of others, which are left as they are.

    Parameters
    ----------
    client : distributed.Client or str
        Of a scheduler, or its address.
    size : int
        How many devices they must have room for.
    patience : float
        How long workers that were lost may take to come back.
    """

    def __init__(self, client: Any, size: int, patience: float) -> None:
        self.given, self.size, self.patience = client, size, patience
        self.is_mine = isinstance(client, str)
        self.client: Any = None
        self.has_lost = False

    def open(self) -> Any:
        """The client; each device has a worker with room for it."""
        if self.client is None:
            self.client = self._connect() if self.is_mine else self.given
        stop = monotonic() + (self.patience if self.has_lost else 0)
        while True:
            workers = self._ask_workers()
            able = self._list_able(workers)
            if len(able) >= self.size:
                return self.client
            if monotonic() >= stop:
                raise BackendUnavailable(self._tell_few(len(workers), able))
            sleep(NAP_SECONDS)

    def list_workers(self, silent: Collection[str]) -> list[str] | None:
        """Those that have no device yet, where enough of them remain, without those that were silent; None for any.

        The scheduler would choose by what workers have to compute: a device is a task that has left their threads.
        """
        able = self._list_able(self._ask_workers())
        busy = {name for name, keys in self.client.processing().items() if any(str(k).startswith(TASK) for k in keys)}
        others = [name for name in able if name not in silent and name not in busy]
        return others if len(able) > len(others) >= self.size else None

    def _list_able(self, workers: Mapping[str, Any]) -> list[str]:
        return [name for name, worker in workers.items() if worker["resources"].get(RESOURCE, 0) >= 1]

    def _connect(self) -> Any:
        from distributed import Client

        try:
            return Client(self.given, timeout=min(self.patience, 10), set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise BackendUnavailable(
                f"backend 'dask': no scheduler answers at {self.given} ({type(error).__name__}: {error}); start one by "
                "`dask scheduler`, or leave client= out for workers of this machine"
            ) from error

    def _ask_workers(self) -> dict[str, Any]:
        if self.client.status != "running":
            raise BackendUnavailable(
                f"backend 'dask': the client's state is {self.client.status}; give one that is connected to a scheduler"
            )
        try:
            return ask_workers(self.client)
        except (OSError, TimeoutError) as error:
            raise BackendUnavailable(
                f"backend 'dask': the scheduler does not answer ({type(error).__name__}: {error}); start it again"
            ) from error

    def _tell_few(self, count: int, able: Sequence[str]) -> str:
        return (
            f"backend 'dask': the plan has {self.size} devices, and of {count} workers {len(able)} have the resource "
            f"{RESOURCE!r}; start more, each by `{START}`"
        )

    def end(self, lost: Collection[str] | None) -> None:
        """A generation has ended: workers that were lost may take a while to come back."""
        self.has_lost = True

    def close(self) -> None:
        """End the client, where it was made here."""
        if self.is_mine and self.client is not None:
            self.client.close(END_SECONDS)
            self.client = None


def ask_workers(client: Any) -> dict[str, Any]:
    """What the scheduler knows of its workers, by their addresses."""
    found: dict[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return found
