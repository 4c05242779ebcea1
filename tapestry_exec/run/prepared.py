"""Prepared plans: work done once for a plan and a backend, so that each further run starts at its first step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tapestry_exec.copies import Array
from tapestry_exec.run import tuning
from tapestry_exec.run.backends import KNOWN, Backend, load_backend
from tapestry_exec.run.check import check_plan
from tapestry_exec.run.checkpoints.cuts import Cut
from tapestry_exec.run.interpreter import StepFacts
from tapestry_plan.ir import Shard
from tapestry_plan.steps import (
    HOST,
    Buffer,
    Compute,
    Copy,
    DeviceStep,
    Fetch,
    Output,
    Recv,
    Send,
    ShardPlan,
    Spill,
    Step,
    list_overtaken,
    list_written,
    order_hoisted,
    spill,
    split_steps,
)
from tapestry_sets.limits import FrozenDict, Guarded, check_arguments, put_fields
from tapestry_sets.regions import Region


class Findings(Struct, frozen=True):
    """The facts that a plan alone decides, whatever runs it, and the backends that callers named to run it."""

    work: StepFacts
    steps: tuple[DeviceStep, ...]
    programs: tuple[tuple[DeviceStep, ...], ...]
    arenas_nbytes: tuple[int, ...]
    payloads_nbytes: tuple[int, ...]
    seconds: tuple[float, ...]
    carried: Mapping[str, Array]
    fitted: dict[int, ShardPlan | None] = field(default_factory=dict)
    """By bytes of memory: the plan that spills so that it fits; None where the plan itself fits."""
    laid_out: dict[tuple[frozenset[Buffer], frozenset[int]], StepFacts] = field(default_factory=dict)
    """With buffers in other places, by those that are, and by those that lie beside the arenas."""
    backends: dict[str, Backend[Any]] = field(default_factory=dict)
    """They keep their arenas warm from run to run, and live as long as the plan."""
    cuts: dict[tuple[int, frozenset[str] | None], dict[int, Cut]] = field(default_factory=dict)
    """By device, and whether the plan is deployed: what it holds at cuts, as they are asked for."""


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
    work : StepFacts
        What its steps are about.
    steps : tuple of DeviceStep
        Of all devices, in the plan's order.
    programs : tuple of tuple of DeviceStep
        The same of each device, in the order of its program.
    seconds : tuple of float
        By device: what its operators take on one core, roughly.
    arenas_nbytes : tuple of int
        By device: bytes of its arena, as far as the plan's buffers reach.
    payloads_nbytes : tuple of int
        By device: bytes of the largest payload that it packs or unpacks.
    outputs : tuple of Output
        What runs bring to the caller; all that the plan has, unless a deployment brings some alone.

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
    shards: Mapping[int, Shard]
    work: StepFacts
    steps: tuple[DeviceStep, ...]
    programs: tuple[tuple[DeviceStep, ...], ...]
    seconds: tuple[float, ...]
    arenas_nbytes: tuple[int, ...]
    payloads_nbytes: tuple[int, ...]
    outputs: tuple[Output, ...]

    @check_arguments(plan="make one with plan(graph, mesh)", backend=KNOWN)
    def __init__(self, plan: ShardPlan, backend: str | Backend[Any] = "numpy") -> None:
        found: Findings | None = plan.kept.get(Findings)
        if found is None:
            found = plan.kept[Findings] = _find(plan)
        self._found = found
        if isinstance(backend, str):
            backend = found.backends.get(backend) or found.backends.setdefault(backend, load_backend(backend))
        put_fields(self, plan=plan, backend=backend, shards=found.work.shards, work=found.work, seconds=found.seconds)
        put_fields(self, steps=found.steps, programs=found.programs)
        put_fields(self, arenas_nbytes=found.arenas_nbytes, payloads_nbytes=found.payloads_nbytes)
        put_fields(self, outputs=plan.outputs)

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

    def laid_out(
        self, buffers: Mapping[int, Buffer], arenas_nbytes: Sequence[int], apart: frozenset[int]
    ) -> PreparedPlan:
        """The same with buffers in other places, some of them beside the arenas."""
        made = PreparedPlan(self.plan, self.backend)
        key = frozenset(buffers[n] for n, b in self.work.buffers.items() if buffers[n] is not b), apart
        work = self._found.laid_out.get(key)  # deployments of one plan have the same objects, by which caches know them
        if work is None:
            overtaken: FrozenDict[int, int] = FrozenDict(list_overtaken(self.plan.steps, buffers))
            work = self._found.laid_out[key] = replace(self.work, buffers=buffers, overtaken=overtaken, apart=apart)
        put_fields(made, work=work, arenas_nbytes=tuple(arenas_nbytes), outputs=self.outputs)
        return made

    def bringing(self, names: Collection[str]) -> PreparedPlan:
        """The same, of whose outputs runs bring these to the caller; the others stay where they are made."""
        made = copy(self)
        put_fields(made, outputs=tuple(one for one in self.outputs if one.name in names))
        return made

    def list_known_cuts(self, device: int, carried: Collection[str] | None) -> dict[int, Cut]:
        """What a device holds at cuts, as far as it was found before; who finds more adds it.

        Parameters
        ----------
        device : int
        carried : collection of str, optional
            The inputs that a deployment carries: its programs do not place these. None of a run.
        """
        return self._found.cuts.setdefault((device, None if carried is None else frozenset(carried)), {})

    @property
    def carried(self) -> Mapping[str, Array]:
        """The constants whose values the graph itself has."""
        return self._found.carried

    def check_room(self) -> None:
        """Raise MemoryError where the arenas do not fit into the memory that the backend has for them."""
        check: Any = getattr(self.backend, "check_room", None)  # backends from outside need not have it
        if check is not None:
            check(self.arenas_nbytes)


def _find(plan: ShardPlan) -> Findings:
    graph, shards = plan.graph, check_plan(plan)
    buffers = {buffer.id: buffer for buffer in plan.buffers}
    tensors = {buffer.tensor for buffer in plan.buffers}
    known = {name: graph.stored.get(name) or graph.selections.get(name) for name in tensors}
    work = StepFacts(
        FrozenDict(buffers),
        FrozenDict((name, tensor.shape) for name, tensor in known.items() if tensor is not None),
        graph.nodes,
        FrozenDict((out, name) for name, node in graph.nodes.items() for out in node.outputs),
        FrozenDict(shards),
        plan.outputs,
        FrozenDict(list_overtaken(plan.steps, buffers)),
        find_lasting(plan.steps, buffers),
    )
    steps = tuple(split_steps(graph, plan.written))
    programs = _list_programs(steps, plan.mesh.size)
    sizes = tuple(_arenas_nbytes(plan)), tuple(list_payloads(buffers, steps, plan.outputs, plan.mesh.size))
    constants = [one for one in graph.stored.values() if one.kind == "constant" and one.data is not None]
    carried: Mapping[str, Array] = FrozenDict((one.name, one.data) for one in constants)
    return Findings(work, steps, programs, *sizes, tuple(_list_seconds(plan, buffers)), carried)


def find_lasting(steps: Iterable[Step], buffers: Mapping[int, Buffer]) -> frozenset[int]:
    """The buffers that one copy of a box from the host fills, all of them, and that nothing else is written to."""
    writers, whole = Counter[int](), set[int]()
    for step in steps:
        writers.update(list_written(step))
        if isinstance(step, Copy) and step.src == HOST and step.piece is None and len(step.regions) == 1:
            (region,) = step.regions
            if region.is_box and region.size == buffers[step.dst].box.size:
                whole.add(step.dst)
    hosts = {buffer.within.buffer for buffer in buffers.values() if buffer.within is not None}
    alone = whole - hosts
    return frozenset(n for n in alone if writers[n] == 1 and buffers[n].is_apart)


def _list_programs(steps: Iterable[DeviceStep], devices: int) -> tuple[tuple[DeviceStep, ...], ...]:
    """The steps of each device, in the order of its program."""
    mine: list[list[DeviceStep]] = [[] for _ in range(devices)]
    for at in steps:
        mine[at.device].append(at)
    return tuple(tuple(each[k] for k in order_hoisted([at.step for at in each])) for each in mine)


def _list_seconds(plan: ShardPlan, buffers: Mapping[int, Buffer]) -> list[float]:
    """What the operators of each device take on one core, roughly.

    Their arithmetic, and going through what they read and write.
    """
    numbers = (n for s in plan.steps if isinstance(s, Compute) for n in (*s.inputs, *s.outputs) if n is not None)
    found = [flop / tuning.ROUGH_FLOP_PER_SECOND for flop in plan.flop]
    for number in numbers:
        found[buffers[number].device] += buffers[number].nbytes / tuning.ROUGH_NBYTES_PER_SECOND
    return found


def _arenas_nbytes(plan: ShardPlan) -> list[int]:
    out = [0] * plan.mesh.size
    for buffer in plan.buffers:
        out[buffer.device] = max(out[buffer.device], buffer.offset + buffer.nbytes)
    return out


def list_payloads(
    buffers: Mapping[int, Buffer], steps: Iterable[DeviceStep], outputs: Iterable[Output], devices: int
) -> list[int]:
    """By device: bytes of the largest payload that it packs or unpacks in some steps, and for the outputs."""
    out = [0] * devices

    def see(number: int, regions: Sequence[Region] | None) -> None:
        buffer = buffers[number]
        itemsize = np.dtype(buffer.dtype).itemsize
        nbytes = buffer.nbytes if regions is None else sum(region.size for region in regions) * itemsize
        out[buffer.device] = max(out[buffer.device], nbytes)

    for at in steps:
        match at.step:
            case Spill() | Fetch():
                see(at.step.buffer, None)
            case Send():
                see(at.step.src, at.step.regions)
            case Recv():
                see(at.step.dst, at.step.regions)
            case Copy(src=src, piece=None) if src == HOST:
                see(at.step.dst, at.step.regions)
    for output in outputs:
        for number, region in output.blocks:
            see(number, (region,))
    return out
