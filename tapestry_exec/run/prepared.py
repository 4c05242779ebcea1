"""Prepared plans: work done once for a plan and a backend, so that each further run starts at its first step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field

from tapestry_exec.run.backends import KNOWN, Backend, load_backend
from tapestry_exec.run.check import check_plan
from tapestry_plan.ir import Shard
from tapestry_plan.steps import HOST, Copy, Fetch, ShardPlan, Spill, spill
from tapestry_sets.limits import FrozenDict, Guarded, check_arguments, put_fields
from tapestry_sets.regions import Region


class Findings(Struct, frozen=True):
    """The facts that a plan alone decides, whatever runs it, and the backends that callers named to run it."""

    shards: dict[int, Shard]
    arenas_nbytes: tuple[int, ...]
    payloads_nbytes: tuple[int, ...]
    fitted: dict[int, ShardPlan | None] = field(default_factory=dict)
    """By bytes of memory: the plan that spills so that it fits; None where the plan itself fits."""
    backends: dict[str, Backend[Any]] = field(default_factory=dict)
    """They keep their arenas warm from run to run, and live as long as the plan."""


class PreparedPlan(Guarded):
    """A checked plan and its sizes on a backend; the second one of the same plan takes no time.

    Parameters
    ----------
    plan : ShardPlan
    backend : str or Backend
        An object, or a name in `BACKENDS`: then one backend is kept for all runs of this plan, as long as it lives.

    Attributes
    ----------
    shards : dict of int to Shard
        What `check_plan` gives.
    arenas_nbytes : tuple of int
        By device: bytes of its arena, as far as the plan's buffers reach.
    payloads_nbytes : tuple of int
        By device: bytes of the largest payload that it packs or unpacks.

    Raises
    ------
    InvalidPlan
        When the plan's steps do not hold together.
    TypeError
        If `backend` is neither a backend nor a name.
    ValueError
        If no backend has the name.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, plan
    >>> g = Graph()
    >>> _ = g.output(g.input("x", (6,)) + g.input("y", (6,)), "z")
    >>> p = plan(g, Mesh(2))
    >>> one, two = PreparedPlan(p, "numpy"), PreparedPlan(p, "numpy")
    >>> one.backend is two.backend, one.shards is two.shards, one.payloads_nbytes
    (True, True, (12, 12))
    """

    plan: ShardPlan
    backend: Backend[Any]
    shards: dict[int, Shard]
    arenas_nbytes: tuple[int, ...]
    payloads_nbytes: tuple[int, ...]

    @check_arguments(plan="make one with plan(graph, mesh)", backend=KNOWN)
    def __init__(self, plan: ShardPlan, backend: str | Backend[Any] = "numpy") -> None:
        found: Findings | None = plan.kept.get(Findings)
        if found is None:
            found = Findings(FrozenDict(check_plan(plan)), tuple(_arenas_nbytes(plan)), tuple(_payloads_nbytes(plan)))
            plan.kept[Findings] = found
        self._found = found
        if isinstance(backend, str):
            backend = found.backends.get(backend) or found.backends.setdefault(backend, load_backend(backend))
        put_fields(self, plan=plan, backend=backend, shards=found.shards)
        put_fields(self, arenas_nbytes=found.arenas_nbytes, payloads_nbytes=found.payloads_nbytes)

    def within(self, memory_nbytes: int | None) -> PreparedPlan:
        """This plan, or the one that stands for it where arenas may have no more bytes, which spills."""
        if memory_nbytes is None:
            return self
        known = self._found.fitted
        if memory_nbytes not in known:
            fitted = spill(self.plan, memory_nbytes)
            known[memory_nbytes] = None if fitted is self.plan else fitted
        spilling = known[memory_nbytes]
        return self if spilling is None else PreparedPlan(spilling, self.backend)

    def check_room(self) -> None:
        """Raise MemoryError where the arenas do not fit into the memory that the backend has for them."""
        check: Any = getattr(self.backend, "check_room", None)  # backends from outside need not have it
        if check is not None:
            check(self.arenas_nbytes)


def _arenas_nbytes(plan: ShardPlan) -> list[int]:
    out = [0] * plan.mesh.size
    for buffer in plan.buffers:
        out[buffer.device] = max(out[buffer.device], buffer.offset + buffer.nbytes)
    return out


def _payloads_nbytes(plan: ShardPlan) -> list[int]:
    buffers = {buffer.id: buffer for buffer in plan.buffers}
    out = [0] * plan.mesh.size

    def see(number: int, regions: Sequence[Region] | None) -> None:
        buffer = buffers[number]
        itemsize = np.dtype(buffer.dtype).itemsize
        nbytes = buffer.nbytes if regions is None else sum(region.size for region in regions) * itemsize
        out[buffer.device] = max(out[buffer.device], nbytes)

    for step in plan.steps:
        if isinstance(step, Spill | Fetch):
            see(step.buffer, None)
        elif isinstance(step, Copy) and step.piece is None:
            for number in (step.dst, *((step.src,) if step.src != HOST else ())):
                see(number, step.regions)
    for output in plan.outputs:
        for number, region in output.blocks:
            see(number, (region,))
    return out
