"""Who runs the devices' programs: one loop in the plan's order, or threads, in which devices take turns.

Each has the interpreters of all devices, and a transport between them; processes are a wing of their own
(`tapestry_exec.processes`).
"""

from tapestry_exec.run.ways.blas import name_blas, one_blas_thread
from tapestry_exec.run.ways.job import Job, name_place, name_step
from tapestry_exec.run.ways.loop import Loop, Shelf, list_grouped
from tapestry_exec.run.ways.threads import Inbox, Inboxes, run_in_threads
