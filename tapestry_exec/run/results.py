"""What a run gives: outputs and counts, which are held against what the plan predicted and the unsharded run gave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
from msgspec import Struct

from tapestry_exec.copies import Array, read_view, unpack
from tapestry_exec.run import tuning
from tapestry_exec.run.evaluate import difference, evaluate_with_scale, most_apart
from tapestry_exec.run.settled import Record
from tapestry_exec.run.stores import Written, take_whole
from tapestry_exec.run.trace import TraceEvent, Wait, list_waits
from tapestry_plan.report import show_run
from tapestry_plan.steps import DeviceCounts, Output, ShardPlan
from tapestry_sets.limits import FrozenDict, Public, Units, cut_text, quote
from tapestry_sets.regions import Region

Progress = Callable[[int, int, str], None]
"""Called with steps done, steps in all, and the operator."""


class TransferMismatch(RuntimeError):
    """A run moved or held another number of bytes than its plan predicted.

    Examples
    --------
    >>> import numpy as np
    >>> from msgspec.structs import replace
    >>> from tapestry_exec import run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (4, 6))), "y")
    >>> p = plan(g, Mesh(1))
    >>> run(replace(p, nbytes_placed=(0,)), {"x": np.ones((4, 6), np.float32)})
    Traceback (most recent call last):
        ...
    tapestry_exec.run.results.TransferMismatch: the run differs from its plan: placed by device 0: 0 B
    predicted, 96 B counted
    """


class StepFailed(RuntimeError):
    """A step of a plan raised an error; nothing of the run is returned.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import run
    >>> from tapestry_plan import Graph, Mesh, Op, ops, plan
    >>> def refuse(xp, inputs, outputs, shard):
    ...     raise ArithmeticError("no numbers below 1")
    >>> g = Graph()
    >>> _ = g.output(g.op(Op("refuse", ops.relu.op.signature, refuse), g.input("x", (4, 6))), "y")
    >>> run(plan(g, Mesh(1)), {"x": np.ones((4, 6), np.float32)})
    Traceback (most recent call last):
        ...
    tapestry_exec.run.results.StepFailed: step 3 (compute 'refuse' on device 0, index box [0, 4)×[0, 6), input
    blocks (start, stop) [((0, 0), (4, 6))]) failed: ArithmeticError: no numbers below 1
    """


class ResultMismatch(RuntimeError):
    """A sharded run and the unsharded run differ by more than rounding.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import run
    >>> from tapestry_plan import Graph, Mesh, Op, ops, plan
    >>> def center(xp, inputs, outputs, shard):  # around the mean of its part, whatever the parts are
    ...     outputs[0][...] = inputs[0] - inputs[0].mean()
    >>> g = Graph()
    >>> _ = g.output(g.op(Op("center", ops.relu.op.signature, center), g.input("x", (4, 6))), "y")
    >>> p = plan(g, Mesh(2), fix={"center": {"i0": 2}})
    >>> run(p, {"x": np.arange(24, dtype=np.float32).reshape(4, 6)}, verify=True)
    Traceback (most recent call last):
        ...
    tapestry_exec.run.results.ResultMismatch: output 'y' differs from the unsharded run: max|difference| /
    max|reference| is 0.522, the bound for float32 is 0.0001; look at each operator's result by making it an output
    """


class Fault(Struct, frozen=True, metaclass=Public):
    """What ended a generation of a plan's devices, which then began again (`RunResult.faults`).

    Parameters
    ----------
    generation : int
        From 1.
    device, step : int, optional
        Where it was seen, and the plan's step that the device was at.
    error : str
    nbytes_sent : tuple of (int or None)
        By device: bytes of what it had sent whole in that generation, as it counted them; None where a device that was
        lost had not told them. What one was sending as it died is not among them.
    nbytes_by_step : dict of int to int
        The same by the plan's step, but for devices of which nothing is known.

    Examples
    --------
    >>> from tapestry_exec import Fault
    >>> fault = Fault(1, 1, 77, "the worker of device 1 is gone", (96, None), {12: 32, 15: 64})
    >>> fault.device, fault.step, sum(fault.nbytes_by_step.values())
    (1, 77, 96)
    """

    generation: int
    device: int | None
    step: int | None
    error: str
    nbytes_sent: tuple[int | None, ...]
    nbytes_by_step: dict[int, int]


class RunResult(Struct, frozen=True, dict=True, metaclass=Public):
    """The outputs of a run, its bytes and its times; the run counts every number and takes none from the plan.

    Of a plan that was recorded as a graph of the driver, and launched as a whole, the counts are those of the run that
    was recorded.

    Parameters
    ----------
    outputs : dict of str to array
        The graph's outputs, which are the caller's from then on: he may write to them, no later run reads them. Those
        that were written elsewhere are the arrays that were given.
    nbytes_by_link : dict of (source device, target device) to int
        Bytes handed to the transport.
    nbytes_received, nbytes_placed : tuple of int
        By device: bytes from other devices, and bytes of inputs and constants from the host.
    peak_nbytes : tuple of int
        By device: the arena's high-water mark.
    flop : tuple of float
        By device: operations declared for the index points that were computed.
    seconds : float
        From the first step to the last.
    record : Record
        What `timeline` is made of.
    difference : dict of str to float, optional
        With `verify`: max|difference| / max|reference| of each output.
    nbytes_spilled : tuple of int
        By device: bytes to host memory for want of room, and back; zeros where everything fits.
    nbytes_copied : tuple of int
        By device: bytes of cells that were copied within it.
    faults : tuple of Fault
        What ended the generations before the one whose result this is; what these moved is not among the counts.
    resumed_at : int, optional
        The plan's step with which the run began, where it went on from a checkpoint: counts are of what was left.
    clock_error : float
        By how many seconds at most the times of a device are off, whose clock is another machine's; 0 with one clock.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"), "y")
    >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
    >>> r = run(p, {"x": np.ones((4, 6), np.float32)}, verify=True)
    >>> r.outputs["y"].shape, r.nbytes_by_link, r.nbytes_placed, r.difference
    ((6, 4), {(0, 1): 24, (1, 0): 24}, (48, 48), {'y': 0.0})
    """

    outputs: dict[str, Array]
    nbytes_by_link: dict[tuple[int, int], int]
    nbytes_received: tuple[int, ...]
    nbytes_placed: tuple[int, ...]
    peak_nbytes: tuple[int, ...]
    flop: tuple[float, ...]
    seconds: float
    record: Record
    difference: dict[str, float] | None = None
    nbytes_spilled: tuple[int, ...] = ()
    nbytes_copied: tuple[int, ...] = ()
    faults: tuple[Fault, ...] = ()
    resumed_at: int | None = None
    clock_error: float = 0.0

    def __repr__(self) -> str:
        names, peak = cut_text(", ".join(self.outputs), 40), max(self.peak_nbytes, default=0)
        apart = max((self.difference or {}).values(), default=None)
        verified = "" if apart is None else f", differs by {apart:.1e}"
        return (
            f"RunResult({names}: {self.nbytes_moved:,} B moved, {sum(self.nbytes_placed):,} B placed, "
            f"at most {peak:,} B on a device, {Units().seconds(self.seconds)}{verified})"
        )

    def _repr_html_(self) -> str:
        rows = [
            (cut_text(name, 60), f"{value.dtype}{list(value.shape)}", f"{apart:.1e}" if apart is not None else "")
            for name, value in self.outputs.items()
            for apart in [(self.difference or {}).get(name)]
        ]
        return show_run(self, rows)

    @property
    def nbytes_moved(self) -> int:
        """Bytes between devices, once for each receiving device.

        Examples
        --------
        >>> import numpy as np
        >>> from tapestry_exec import run
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"), "y")
        >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
        >>> run(p, {"x": np.ones((4, 6), np.float32)}).nbytes_moved == p.nbytes_moved
        True
        """
        return sum(self.nbytes_received)

    @cached_property
    def timeline(self) -> tuple[TraceEvent, ...]:
        """An event for each step that was done, in the plan's order.

        Examples
        --------
        >>> import numpy as np
        >>> from tapestry_exec import run
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (4, 6))), "y")
        >>> result = run(plan(g, Mesh(1)), {"x": np.ones((4, 6), np.float32)})
        >>> [event.kind for event in result.timeline]
        ['alloc', 'place', 'alloc', 'compute', 'free']
        """
        return self.record.list_events()

    @property
    def waits(self) -> tuple[Wait, ...]:
        """For whom each device stood still, copy by copy, the longest wait first.

        Where a deployment runs again without a timeline there are none. On GPUs devices wait for each other in their
        queues, of which the timeline has the host's side alone.

        Examples
        --------
        >>> import numpy as np
        >>> from tapestry_exec import run
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"), "y")
        >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
        >>> run(p, {"x": np.ones((4, 6), np.float32)}).waits[0].node
        'columns'
        """
        return list_waits(self.timeline)

    @property
    def waited_for(self) -> dict[int, float]:
        """By device: seconds that all others together waited for what it sent, the one that was waited for most first.

        Examples
        --------
        >>> import numpy as np
        >>> from tapestry_exec import run
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"), "y")
        >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
        >>> sorted(run(p, {"x": np.ones((4, 6), np.float32)}).waited_for)
        [0, 1]
        """
        seconds: defaultdict[int, float] = defaultdict(float)
        for wait in self.waits:
            seconds[wait.peer] += wait.seconds
        return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def assemble_outputs(
    plan: ShardPlan, outputs: Iterable[Output], cells: Sequence[Array], written: Written | None = None
) -> dict[str, Any]:
    """The outputs of their blocks' cells; viewed outputs are read through their views here.

    Those that are written elsewhere are completed here, and are the arrays that were given.
    """
    graph, out, rest, k = plan.graph, dict[str, Any](), iter(cells), -1
    for output in outputs:
        source = graph.source(output.tensor)
        target = None if written is None else written.targets.get(output.name)
        if target is not None and written is not None and source.direct:
            for _, region in output.blocks:
                k, mine = k + 1, next(rest)
                if k not in written.own and written.is_writer:
                    target.write(region, mine)
            out[output.name] = target.give()
            continue
        k += len(output.blocks)
        try:
            whole = {name: np.empty(graph.stored[name].shape, graph.stored[name].dtype) for name in source.stored}
            out[output.name] = None if source.direct else np.empty(source.shape, source.dtype)
        except MemoryError:
            raise MemoryError(
                f"run: output {quote(output.name)} takes {count_output(plan, output):,} bytes, for which there is no "
                "memory; give smaller extents, an array of Zarr's to write it to, with outputs=, or leave it out, with "
                "deploy(outputs=)"
            ) from None
        only = None if len(whole) > 1 else source.stored[0]
        tensors = {} if only else {buffer.id: buffer.tensor for buffer in plan.buffers}
        for number, region in output.blocks:
            unpack(next(rest), whole[only or tensors[number]], (0,) * region.rank, (region,))
        arrays = [whole[name] for name in source.stored]
        if source.direct:
            out[output.name] = arrays[0]
        else:
            out[output.name][...] = read_view(source.pieces, arrays, source.shape, source.dtype)
        if target is not None and written is not None:
            if written.is_writer:
                target.write(Region.full(source.shape), out[output.name])
            out[output.name] = target.give()
    return out


def count_output(plan: ShardPlan, output: Output) -> int:
    """Bytes of an output that is brought to the caller, with what it is a view of."""
    source, stored = plan.graph.source(output.tensor), plan.graph.stored
    own = 0 if source.direct else prod(source.shape) * np.dtype(source.dtype).itemsize
    return own + sum(prod(stored[name].shape) * np.dtype(stored[name].dtype).itemsize for name in source.stored)


COUNTED = {
    "received": "nbytes_received",
    "placed": "nbytes_placed",
    "copied within itself": "nbytes_copied",
    "spilled and fetched": "nbytes_spilled",
    "at most held": "peak_nbytes",
}
"""What plans predict and runs count by device, in words and as the field that has it."""


class Predicted(DeviceCounts, Protocol):
    """What is predicted of a run by device, in the fields of the same names."""

    @property
    def nbytes_copied(self) -> tuple[int, ...]: ...
    @property
    def nbytes_spilled(self) -> tuple[int, ...]: ...


def compare_counts(plan: Predicted, counted: RunResult) -> None:
    """Raise TransferMismatch where a run moved or held other bytes than were predicted."""
    if plan.nbytes_by_link == counted.nbytes_by_link and _counts_of(plan) == _counts_of(counted):
        return
    links = sorted({*plan.nbytes_by_link, *counted.nbytes_by_link})
    pairs = [
        (f"device {a} -> device {b}", *(one.nbytes_by_link.get((a, b), 0) for one in (plan, counted))) for a, b in links
    ]
    for what, name in COUNTED.items():
        found = zip(getattr(plan, name), getattr(counted, name), strict=True)
        pairs += [(f"{what} by device {d}", *both) for d, both in enumerate(found)]
    wrong = [f"{what}: {p:,} B predicted, {f:,} B counted" for what, p, f in pairs if p != f]
    if wrong:
        raise TransferMismatch("the run differs from its plan: " + "; ".join(wrong))


_counts_of = attrgetter(*COUNTED.values())


def verify_outputs(
    plan: ShardPlan, outputs: Mapping[str, Array], inputs: Mapping[str, Any], constants: Mapping[str, Any] | None
) -> dict[str, float]:
    reference, scale = evaluate_with_scale(plan.graph, inputs, constants, outputs)
    outputs = {name: take_whole(array) for name, array in outputs.items()}
    found: FrozenDict[str, float] = FrozenDict((name, difference(outputs[name], reference[name])) for name in outputs)
    for name, value in found.items():
        bound = tuning.DIFFERENCE_BOUND.get(outputs[name].dtype.name, 0.0)
        if not value <= bound and not _is_rounding(outputs[name], reference[name], scale):
            raise ResultMismatch(
                f"output {quote(name)} differs from the unsharded run: max|difference| / max|reference| is "
                f"{value:.3g}, the bound for {outputs[name].dtype} is {bound:g}; "
                "look at each operator's result by making it an output"
            )
    return found


def _is_rounding(found: Array, reference: Array, scale: float) -> bool:
    """Whether results differ by no more than the rounding of the numbers that they are differences of."""
    if found.dtype.kind != "f":
        return False
    return bool(most_apart(found, reference)[0] <= tuning.ROUNDINGS * np.finfo(found.dtype).eps * scale)
