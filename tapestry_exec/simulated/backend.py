"""The GPU backend on simulated devices, under the checker, for machines without a GPU."""

from __future__ import annotations

from typing import Any

from tapestry_exec.cuda import CupyBackend
from tapestry_exec.simulated import namespace as simulated
from tapestry_exec.simulated import tuning
from tapestry_sets.limits import check_arguments, quote


class SimulatedBackend(CupyBackend):
    """Runs plans as `CupyBackend` does, on GPUs that are simulated in this process.

    Kernels run thread by thread on the CPU, and what each operation reads and writes in memory of GPUs and in pinned
    memory is checked byte by byte: that no order of streams changes it, that it lies in buffers that live and, for
    kernels, in those that their arguments point into. So it is slow: for small plans, to see that they run on GPUs as
    they are. What kernels do in shared memory and on their own stacks is not checked, nor whether they write to arrays
    that they should only read.

    Parameters
    ----------
    gpus : int
        How many GPUs are simulated; the devices of the mesh are dealt out to them in turn.
    seed : int
        Of what a GPU leaves to chance, as the order of a kernel's threads.
    unwritten : bool
        Also find reads of memory that nothing wrote since a buffer took its place, but poison.
    options : any
        Of `CupyBackend`; buffers are poisoned unless ``poison=False``.

    Raises
    ------
    OrderingFault
        When some order that the waits allow does an operation too early, or one touches memory that it must not, while
        a plan is run; a step that is at fault is named by `StepFailed`.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import run
    >>> from tapestry_plan import Graph, Mesh, plan
    >>> g = Graph()
    >>> x = g.input("x", (4, 3))
    >>> _ = g.output(x + x.flip(0), "y")
    >>> r = run(plan(g, Mesh(2)), {"x": np.arange(12, dtype=np.float32).reshape(4, 3)}, backend="simulated")
    >>> r.outputs["y"][0].tolist()
    [9.0, 11.0, 13.0]
    """

    name = "simulated"

    @check_arguments
    def __init__(self, gpus: int = 2, *, seed: int = 0, unwritten: bool = False, **options: Any) -> None:
        if not 1 <= gpus <= tuning.MAX_GPUS:
            raise ValueError(
                f"SimulatedBackend: gpus is {quote(gpus)}; give how many GPUs to simulate, an int from 1 to "
                f"{tuning.MAX_GPUS}"
            )
        super().__init__(cupy=simulated.cupy(gpus, seed, unwritten=unwritten), **{"poison": True, **options})
