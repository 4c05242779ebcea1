"""Workers of a `LocalCluster` that are lost for good, and others that join in their place."""

from __future__ import annotations

from typing import Any


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
    for known in [each for each in cluster.worker_spec if str(each) == name]:
        del cluster.worker_spec[known]
    cluster.scale(size)
