"""How do processes run the devices of a plan?

::

    caller      ┬─ feeds, outputs, slots of parcels: one segment of memory that all share, without a name
                └─ server, which has imported all ─┬─ process of devices 0 and 1    which take turns
                                                   └─ process of devices 2 and 3    …

The caller starts one server, which imports NumPy and this package once and forks the others: one for each core, or for
each device where these have unequal work. Memory that is shared has no name in the system, and the server ends its
processes when the caller is gone, however that ends: so nothing is left behind. A parcel is packed into its slot of the
shared memory and unpacked from there; a pipe of the process that waits for it tells that it is there. Devices of one
process read what they send each other where it lies: they take turns, until all that they call is known by heart, and
are one loop from then on.
"""

from tapestry_exec.processes.backend import ProcessBackend
