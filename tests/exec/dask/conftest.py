"""Workers that the tests of a module share; those that die are started again by Dask."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tapestry_exec.dask.clusters import QUIET


@pytest.fixture(scope="session")
def client() -> Iterator[Any]:
    """A client of four workers."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    dask = pytest.importorskip("dask")
    # A local cluster gives a worker up that is down 15 s after one of its name was lost: after many kills that happens.
    # Workers stay until the last test, mostly in vain: they are quiet.
    with (
        dask.config.set(
            {
                "distributed.deploy.lost-worker-timeout": "1 hour",
                **QUIET,
            }
        ),
        distributed.LocalCluster(
            n_workers=4,
            threads_per_worker=1,
            memory_limit="1GB",
            resources={"tapestry": 1},
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as found,
    ):
        yield found
