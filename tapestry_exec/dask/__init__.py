"""How do Dask's workers run a plan?

::

    caller ─┬─ scheduler ── places a long task a device, by resources, watches and restarts the workers
            │
            ├─ worker   task of device 0    its program, in an arena of its own   ─┐ parcels go from worker to worker
            └─ worker   task of device 1    …                                     ─┘

    lines      connections of `distributed`, with its addresses and security: bytes as they are, nothing is pickled
    wires      sockets for parcels where workers speak plain TCP, begun with a proof of the generation's key
    hearing    what the caller hears: his ends of wires, and lines
    member     the worker's side: the task of a device, and its transport
    backend    the caller's side: the cluster, generations, and what is compared before the first step
    leaving    outputs that stay on workers, and inputs that lie there
    stream     a run's shards in Dask's task stream
    clusters   workers that the caller starts himself, and those of a client

Dask carries no parcel: they go through wires or lines of their own. A device that is lost ends all devices.
"""

from tapestry_exec.dask.backend import DaskBackend
