"""How does a process for each device run a plan?

::

    caller      ┬─ feeds, outputs, slots of parcels: one segment of memory that all share, without a name
                └─ server, which has imported all ─┬─ process of device 0    its program, in an arena of its own
                                                   └─ process of device 1    …

The caller starts one server, which imports NumPy and this package once and forks a process for each device. Memory that
is shared has no name in the system, and the server ends its processes when the caller is gone, however that ends: so
nothing is left behind. A parcel is packed into its slot of the shared memory and unpacked from there; a pipe of the
device that waits for it tells that it is there.
"""

from tapestry_exec.processes.backend import ProcessBackend
