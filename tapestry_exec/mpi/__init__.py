"""How do MPI ranks run a plan?

::

    mpiexec -n 4 python script.py        rank 0 ─┐  each makes or reads the plan, and does its devices' programs;
                                         rank 1 ─┤  parcels are messages, by the step's number
                                         …       │
                                                 └─ in the end all have all outputs, or all raise the same error

    backend       the rank's side of a run, and what is compared before the first step
    messages      the transport, and what all ranks tell each other
    several       where ranks are fewer than devices: which a rank has, and how they take turns
    bells         how a rank that sleeps is woken by one of its machine that sends to it
    endings       how a rank whose program has ended is missed by the others
    gpus          with ``MpiBackend(device="nccl")``: which GPU a rank has, and who watches it while NCCL is at work
    collectives   with ``MpiBackend(collectives=True)``: which of the plan's collectives are calls of MPI, and in what
                  order ranks begin them

All ranks call `run` or `deploy` with the same plan. Of inputs a rank reads what its devices are given, and no others.
"""

from tapestry_exec.mpi.backend import MpiBackend
