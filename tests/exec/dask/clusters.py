"""Clusters whose workers are on several hosts; and workers that are lost for good, and others in their place."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.hosts import ADDRESS, Host

REPOSITORY = Path(__file__).parents[3]


@contextmanager
def client_of(hosts: Sequence[Host], workers: int = 1) -> Iterator[Any]:
    """A client, whose scheduler is here, of so many workers on each host."""
    from distributed import Client, LocalCluster

    with ExitStack() as stack:
        quiet: dict[str, Any] = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
        cluster = stack.enter_context(LocalCluster(n_workers=0, host=ADDRESS, **quiet))
        command = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address]
        command += ["--resources", "tapestry=1", "--nthreads", "1", "--no-dashboard", "--no-nanny"]
        env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}  # a host begins in its own folder
        for host in workers * list(hosts):
            whole = [*host.inside, *command, "--host", host.address]
            stack.callback(stack.enter_context(subprocess.Popen(whole, stderr=subprocess.DEVNULL, env=env)).kill)
        client = stack.enter_context(Client(cluster, set_as_default=False))
        client.wait_for_workers(workers * len(hosts), timeout=120)
        yield client


def keep_away(cluster: Any, address: str) -> str:
    """Have a worker not started again when it is lost; the name of its nanny."""
    ((name, nanny),) = ((name, one) for name, one in cluster.workers.items() if one.worker_address == address)

    async def stay_away() -> None:
        """In place of starting a worker again."""

    nanny.instantiate = stay_away
    return str(name)


def put_another(cluster: Any, name: str) -> None:
    """Have another worker join in the place of one that is lost."""
    size = len(cluster.worker_spec)
    cluster.scale(size + 1)  # first, so that it gets a name of its own
    for known in [each for each in cluster.worker_spec if str(each) == name]:
        del cluster.worker_spec[known]
    cluster.scale(size)
