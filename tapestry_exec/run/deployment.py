"""Runs of plans: one at a time, or many where programs and constants are placed once.

::

    run        check ─► session ─► inputs and constants are placed, steps, outputs ─► counts compared ─► close
    deploy     check ─► session ─► constants are placed
    placed.run                     └► inputs are placed, steps left, outputs ─► counts compared     (again and again)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from os import PathLike
from threading import Lock
from time import monotonic
from traceback import walk_tb
from typing import Any, ParamSpec, Self, TypeVar

import numpy as np
from msgspec.structs import replace

from tapestry_exec.copies import Array, make_contiguous
from tapestry_exec.run.backends import (
    BACKENDS,
    KNOWN,
    Backend,
    BackendUnavailable,
    load_backend,
    load_from_wing,
)
from tapestry_exec.run.checkpoints.finished import Checkpoint
from tapestry_exec.run.checkpoints.saving import Checkpoints, Savings
from tapestry_exec.run.evaluate import FEEDS, check_finite, check_unified, hold, match_inputs
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_exec.run.residents import Prediction, count_placed, find_residents, predict
from tapestry_exec.run.results import (
    Progress,
    RunResult,
    compare_counts,
    count_output,
    verify_outputs,
)
from tapestry_exec.run.room import check_copies, check_outputs
from tapestry_exec.run.sessions import Deployed, Session, begin_session, closing
from tapestry_exec.run.stores import MappedFiles, Source, check_label
from tapestry_exec.run.trace import write_trace
from tapestry_plan.ir import BUILTIN_OPS, Graph, Op
from tapestry_plan.rewrite import list_inside, with_ops
from tapestry_plan.steps import Compute, ShardPlan
from tapestry_sets.limits import check_arguments, check_target, quote

SAVED = "give Checkpoints(path, after=['a stage'])"
RESUMED = "give the folder that checkpoints were saved to"
STORED = "it maps outputs to arrays of Zarr's, as {'y': array}, or to 'dask'"

P = ParamSpec("P")
R = TypeVar("R")


def _telling_of_types(
    tell: Callable[[Sequence[Any], Mapping[str, Any], Exception], None],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function, whose arguments are checked, tell others of those that it was not called with for that.

    What is wrong within its body it tells there.
    """

    def hold(checked: Callable[P, R]) -> Callable[P, R]:
        body: Any = checked.__wrapped__.__code__  # type: ignore[attr-defined]

        @wraps(checked)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return checked(*args, **kwargs)
            except (TypeError, ValueError) as error:
                if all(frame.f_code is not body for frame, _ in walk_tb(error.__traceback__)):
                    tell(args, kwargs, error)
                raise

        return call

    return hold


def _tell_others(backend: Any, error: Exception) -> None:
    """Where others begin the same plan, as MPI's ranks do, tell them of an error here: they would wait."""
    if isinstance(backend, str):
        kind = load_from_wing(BACKENDS[backend][1]) if backend in BACKENDS else None
        with suppress(BackendUnavailable):  # nobody is there to be told then
            backend = load_backend(backend) if hasattr(kind, "refuse") else None
    refuse: Callable[[Exception], None] | None = getattr(backend, "refuse", None)
    if refuse is not None:
        refuse(error)


@contextmanager
def _telling_others(backend: Any) -> Iterator[None]:
    """Tell others of an error within."""
    try:
        yield
    except Exception as error:
        _tell_others(backend, error)
        raise


@_telling_of_types(lambda args, kwargs, error: _tell_others(kwargs.get("backend"), error))
@check_arguments(
    shard_plan="make one with plan(graph, mesh)",
    inputs=FEEDS,
    constants=FEEDS,
    backend=KNOWN,
    verify="give True to compare every output with the unsharded run",
    progress="it is called with steps done, steps in all, and the operator",
    trace="give the path of a file",
    memory_nbytes="give a number of bytes",
    ops="it maps names to operators, as {op.name: op}",
    checkpoints=SAVED,
    resume=RESUMED,
    outputs=STORED,
)
def run(
    shard_plan: ShardPlan,
    inputs: Mapping[str, Any],
    *,
    backend: str | Backend[Any] = "numpy",
    verify: bool = False,
    progress: Progress | None = None,
    trace: str | PathLike[str] | None = None,
    memory_nbytes: int | None = None,
    constants: Mapping[str, Any] | None = None,
    ops: Mapping[str, Op] | None = None,
    checkpoints: Checkpoints | None = None,
    resume: str | PathLike[str] | Checkpoint | None = None,
    outputs: Mapping[str, Any] | None = None,
) -> RunResult:
    """Run a plan.

    Parameters
    ----------
    shard_plan : ShardPlan
    inputs : mapping of str to array
        Every input of the graph, with its exact shape and dtype. Of arrays of Zarr's and Dask's each device reads the
        regions that it is given, where it runs.
    backend : str or Backend
        An object, or a name: then the arenas are kept for further runs of this plan, as long as it lives. "numpy" has
        threads where that pays, "serial" one loop, "processes" processes, in which devices take turns; all give the
        same bits, with BLAS on one thread.
    verify : bool
        Also run the graph unsharded and compare: integers and booleans exactly, floats within
        `DIFFERENCE_BOUND` of max|difference| / max|reference|. Inputs must be finite then; constants need not.
    progress : callable, optional
        Called with (steps done, steps in all, operator) after each operator's shard. What it raises ends the
        run.
    trace : path, optional
        Write the timeline there as a Chrome trace, with the devices' own times where they work ahead of the host.
    memory_nbytes : int, optional
        Bytes that a device's arena may have. Where the plan needs more, ``spill(shard_plan, memory)`` runs in its
        place: buffers wait in host memory while they are idle, and `RunResult.nbytes_spilled` says what that moved.
    constants : mapping of str to array, optional
        Values of constants that the plan names but does not carry.
    ops : mapping of str to Op, optional
        Operators, by name, that replace or add to those of the plan's graph, also where they are in a block.
    checkpoints : Checkpoints, optional
        What is saved on the way. Backends that have `retries` begin again from the last checkpoint.
    resume : path or Checkpoint, optional
        Go on from the last checkpoint of a folder, or from one: with the same bits, and the inputs that are read
        behind it; others may be left out. Those that lie in memory must be the same as before. Counts are of what is
        left to do.
    outputs : mapping of str to array or "dask", optional
        Arrays of Zarr's that outputs are written to, region by region: by the devices, but for chunks (or shards) that
        cells of several devices are in, which the caller writes when the run is done. They are in the result. With
        ``DaskBackend(client)`` also "dask", for an output that is left on the workers: the result has it as an array of
        Dask's, whose chunks are values on the workers, for as long as the array is held.

    Returns
    -------
    RunResult

    Raises
    ------
    TypeError
        For an argument of another type than it must have.
    InvalidPlan
        When the plan's steps do not hold together (see `check_plan`); nothing has run then.
    ValueError
        For missing, unknown or unfit inputs and constants, an unknown backend, a trace that cannot be written,
        less memory than one step needs (`InfeasiblePlan`), a stage that the plan does not have, a folder that
        another run saves to or that has checkpoints of another plan, a checkpoint that is damaged, was never finished,
        or is of another plan or other versions, or an output's array that an input is read from; nothing has run then.
    MemoryError
        When the plan's arenas take more memory than is free; nothing has been allocated then.
    StepFailed
        When a step raises, as block functions may; names step, operator, shard, devices and regions. Ctrl-C
        raises KeyboardInterrupt instead: devices are closed, and no trace is written.
    TransferMismatch
        When bytes counted differ from bytes predicted.
    ResultMismatch
        With `verify`, when an output differs from the unsharded run's.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import run
    >>> from tapestry_plan import Graph, Mesh, plan
    >>> g = Graph()
    >>> _ = g.output(g.input("x", (6,)) + g.input("y", (6,)), "z")
    >>> r = run(plan(g, Mesh(2)), {"x": np.ones(6, np.float32), "y": np.arange(6, dtype=np.float32)}, verify=True)
    >>> r.outputs["z"].tolist(), r.nbytes_moved, r.difference
    ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0, {'z': 0.0})
    """
    with _telling_others(backend):
        prepared = PreparedPlan(shard_plan, backend)
    engine = prepared.backend
    with engine.alone():
        with _telling_others(prepared.backend):
            known = _name_ops(shard_plan, ops)
            asked = verify, trace, memory_nbytes, constants, checkpoints, resume, outputs
            prepared, host, savings = _look_at_arguments(prepared, inputs, *asked)
            engine.check({**BUILTIN_OPS, **known}, _list_placed_ops(prepared.plan, known))
        # A recording has the operators of the run that was recorded, and no times of single steps.
        is_plain = trace is None and not ops and not savings.is_on
        host = _leave_in_files(prepared, host)
        apart = frozenset(name for name, one in host.items() if isinstance(one, Source) and one.is_portable)
        own = frozenset(() if savings.written is None else savings.written.own)
        session = begin_session(Deployed(prepared, known, {}, None, apart, own))
        with savings, closing(session):
            result = session.run(host, savings, progress, trace is not None, is_plain)
    compare_counts(prepared.plan if result.resumed_at is None else savings.predict(result.resumed_at), result)
    if trace is not None:
        write_trace(result.timeline, trace, result.clock_error)
    if not verify:
        return result
    found = verify_outputs(prepared.plan, result.outputs, inputs, constants)
    return replace(result, difference=found)


def _leave_in_files(prepared: PreparedPlan, host: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs and constants, of which those constants stay in their files that the devices' processes read there."""
    if not getattr(type(prepared.backend), "reads_files", False):
        return dict(host)
    files, stored = MappedFiles(), prepared.plan.graph.stored
    return {
        name: (files.find(one) if name in stored and stored[name].kind == "constant" else None) or one
        for name, one in host.items()
    }


def _look_at_arguments(
    prepared: PreparedPlan,
    inputs: Mapping[str, Any],
    verify: bool,
    trace: str | PathLike[str] | None,
    memory_nbytes: int | None,
    constants: Mapping[str, Any] | None,
    checkpoints: Checkpoints | None,
    resume: str | PathLike[str] | Checkpoint | None,
    outputs: Mapping[str, Any] | None,
) -> tuple[PreparedPlan, dict[str, Any], Savings]:
    """What `run` is given, checked before the first step: the plan that runs, inputs and constants, what is saved."""
    shard_plan = prepared.plan
    savings = None
    if resume is not None:  # before the inputs, since it says which of them are read
        prepared = prepared.within(memory_nbytes)
        savings = Savings(prepared, None, checkpoints, resume, outputs=outputs, inputs=inputs)
        past = [name for name in savings.list_past() if name not in inputs]
        if verify and past:
            left_out = quote(min(past))
            raise ValueError(f"run: verify=True needs the values of all inputs; {left_out} is left out: give it")
        stands = _stand_in(shard_plan.graph, past)
        given = match_inputs(shard_plan.graph, {**stands, **inputs}, constants)
        given = {name: array for name, array in given.items() if name not in stands}
    else:
        given = match_inputs(shard_plan.graph, inputs, constants)
    prepared = prepared.within(memory_nbytes)
    prepared.check_room()
    copied = _list_copied(given)
    check_copies(copied)
    host = hold(shard_plan.graph, given, constants)
    check_unified(host, shard_plan.unified)
    if copied:
        prepared.check_room()  # of what is left beside the copies
    if verify:
        check_finite(shard_plan.graph, host)
    if trace is not None:
        check_target(trace, "trace")
    savings = savings or Savings(prepared, None, checkpoints, None, outputs=outputs, inputs=inputs)
    savings.look_at(host)
    elsewhere = () if savings.written is None else savings.written.targets
    brought = {one.name: count_output(prepared.plan, one) for one in prepared.outputs if one.name not in elsewhere}
    if sum(brought.values()) > sum(prepared.arenas_nbytes):  # as views of little are; others are in arenas that fit
        check_outputs(brought)
    return prepared, host, savings


def _list_copied(given: Mapping[str, Any]) -> dict[str, int]:
    """The inputs that are copied before they are placed, as they are not contiguous, and their bytes."""
    plain = {name: array for name, array in given.items() if not isinstance(array, Source)}
    return {name: array.nbytes for name, array in plain.items() if not array.flags.c_contiguous}


def _name_ops(plan: ShardPlan, ops: Mapping[str, Op] | None) -> dict[str, Op]:
    """The operators that a plan's nodes are of, by name, also those inside of others."""
    known = {name: with_ops(op, ops or {}) for name, op in plan.graph.ops.items()}
    return {**{name: one for op in known.values() for name, one in list_inside(op).items()}, **known, **(ops or {})}


def _list_placed_ops(plan: ShardPlan, ops: Mapping[str, Op]) -> Iterator[tuple[Op, int]]:
    """Each operator with the device that it runs on."""
    return ((ops[plan.graph.nodes[step.node].op], step.device) for step in plan.steps if isinstance(step, Compute))


class Deployment:
    """A plan's programs and constants on their devices, from `deploy` until `close`.

    What stays is held beside the arenas, so that `peak_nbytes` may be more than the plan's, where constants give their
    places up when they have been read.

    Attributes
    ----------
    plan : ShardPlan
    nbytes_placed : tuple of int
        By device: bytes of constants that were placed, once.
    peak_nbytes : tuple of int
        By device: what a run holds at most, with what stays.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import deploy
    >>> from tapestry_plan import Graph, Mesh, plan
    >>> g = Graph()
    >>> _ = g.output(g.input("x", (4,)) * g.constant("w", np.full(4, 2, np.float32)), "y")
    >>> with deploy(plan(g, Mesh(1))) as deployed:
    ...     first, second = (deployed.run({"x": np.full(4, k, np.float32)}) for k in (1, 2))
    >>> deployed.nbytes_placed, first.nbytes_placed, second.outputs["y"].tolist()
    ((16,), (16,), [4.0, 4.0, 4.0, 4.0])
    """

    def __init__(
        self,
        prepared: PreparedPlan,
        constants: Mapping[str, Any] | None,
        ops: Mapping[str, Op],
        carry: Mapping[str, str],
        caps: Sequence[int] | None,
    ) -> None:
        self.plan, self._prepared, self._given = prepared.plan, prepared, constants
        with _telling_others(prepared.backend):
            self._look_at_arguments(ops, carry, caps)
        self._carried = set(carry.values())
        self._predicted: dict[tuple[str, ...], Prediction] = {}
        """By the carried inputs that a run is given."""
        self._has_state = False
        self._runs = 0
        self._saved_at: float | None = None
        """When the last checkpoint was finished, as far as it was seen, by the clock of `monotonic`."""
        self._busy = Lock()
        prepared = self._prepared
        host = _leave_in_files(prepared, self._host)
        apart = frozenset(name for name, one in host.items() if isinstance(one, Source))
        self._session: Session | None = begin_session(Deployed(prepared, ops, host, self._stays, apart))

    def _look_at_arguments(self, ops: Mapping[str, Op], carry: Mapping[str, str], caps: Sequence[int] | None) -> None:
        """Check what `deploy` is given, before the session begins; find what stays."""
        prepared, graph = self._prepared, self.plan.graph
        self._stays = find_residents(prepared, carry)
        self._prepared = prepared.laid_out(self._stays.buffers, self._stays.arenas_nbytes, self._stays.apart)
        self.nbytes_placed = count_placed(prepared, self._stays.placing)
        self.peak_nbytes = self._stays.peak_nbytes
        self._check_caps(caps)
        inputs = [name for name, one in graph.stored.items() if one.kind == "input"]
        match_inputs(graph, _stand_in(graph, inputs), self._given)
        self._host = hold(graph, {}, self._given)
        check_unified(self._host, self.plan.unified)
        engine = prepared.backend
        check: Callable[[Sequence[int]], None] | None = getattr(engine, "check_room", None)
        if check is not None:
            check([a + b for a, b in zip(self._stays.arenas_nbytes, self._stays.nbytes_held, strict=True)])
        engine.check({**BUILTIN_OPS, **ops}, _list_placed_ops(self.plan, ops))

    def _check_caps(self, caps: Sequence[int] | None) -> None:
        for device, (nbytes, most) in enumerate(zip(self.peak_nbytes, caps or self.peak_nbytes, strict=True)):
            if nbytes > most:
                raise ValueError(
                    f"deploy: with the constants that stay device {device} holds {nbytes:,} bytes, and may hold "
                    f"{most:,}; give more memory, or use run, which places constants in every run"
                )

    @property
    def why_not_recorded(self) -> str:
        """Why runs on GPUs are step by step, and will not become a graph; empty where nothing stands against it.

        Examples
        --------
        >>> from tapestry_exec import deploy
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (4,)) + 1.0, "y")
        >>> with deploy(plan(g, Mesh(1))) as deployed:
        ...     deployed.why_not_recorded
        ''
        """
        ask: Callable[[ShardPlan], str] | None = getattr(
            getattr(self._session, "engine", None), "why_not_recorded", None
        )
        return "" if ask is None else ask(self.plan)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Take back the devices, once a run that is on in another thread has ended; nothing runs here any more.

        Examples
        --------
        >>> import numpy as np
        >>> from tapestry_exec import deploy
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (4,)) + 1.0, "y")
        >>> deployed = deploy(plan(g, Mesh(1)))
        >>> deployed.close()
        >>> deployed.run({"x": np.ones(4, np.float32)})
        Traceback (most recent call last):
            ...
        RuntimeError: run: the deployment is closed; deploy the plan again
        """
        with self._busy:
            session, self._session = self._session, None
            if session is not None:
                session.close()

    @_telling_of_types(lambda args, kwargs, error: args[0]._refuse_types(kwargs, error))
    @check_arguments(
        inputs=FEEDS,
        verify="give True to compare every output with the unsharded run",
        progress="it is called with steps done, steps in all, and the operator",
        trace="give the path of a file",
        checkpoints=SAVED,
        resume=RESUMED,
        outputs=STORED,
    )
    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        verify: bool = False,
        progress: Progress | None = None,
        trace: str | PathLike[str] | None = None,
        checkpoints: Checkpoints | None = None,
        resume: str | PathLike[str] | Checkpoint | None = None,
        outputs: Mapping[str, Any] | None = None,
    ) -> RunResult:
        """Run the plan with other inputs; arguments, errors and result are those of `run`.

        `RunResult.nbytes_placed` is of this run's inputs, without what stays. Of inputs that are carried the first run
        is given values; later ones may leave them out, and go on from the outputs of the run before. Checkpoints have
        them, too, so that with `resume` the run that was saved goes on with the values that it had; which one it was,
        counted from 0, is `Checkpoint.manifest.run`.

        Raises
        ------
        RuntimeError
            When the deployment is closed, or runs in another thread.

        Examples
        --------
        >>> import numpy as np
        >>> from tapestry_exec import deploy
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> g = Graph()
        >>> _ = g.output(g.input("total", (2,)) + g.input("x", (2,)), "new")
        >>> with deploy(plan(g, Mesh(1), tie={"new": "total"}), carry={"new": "total"}) as deployed:
        ...     _ = deployed.run({"total": np.zeros(2, np.float32), "x": np.ones(2, np.float32)})
        ...     print(deployed.run({"x": np.ones(2, np.float32)}).outputs["new"])
        [2. 2.]
        """
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("run: the deployment runs in another thread; deploy the plan once for each thread")
        try:
            return self._run(inputs, verify, progress, trace, checkpoints, resume, outputs)
        finally:
            self._busy.release()

    def _refuse_types(self, given: Mapping[str, Any], error: Exception) -> None:
        """Where others run it, too, tell them of arguments that are none; nothing where it runs in another thread."""
        if self._busy.acquire(blocking=False):
            try:
                self._refuse(error, *(given.get(name) for name in ("checkpoints", "resume", "outputs")))
            finally:
                self._busy.release()

    def _refuse(self, error: Exception, checkpoints: Any, resume: Any, outputs: Any) -> None:
        """Where others run it, too, tell them that this process does not; what they have is not known then."""
        refuse: Callable[[Exception, bool], None] | None = getattr(self._session, "refuse", None)
        if refuse is not None:
            self._has_state = False
            refuse(error, checkpoints is not None or resume is not None or bool(outputs))

    def _run(
        self,
        inputs: Mapping[str, Any],
        verify: bool,
        progress: Progress | None,
        trace: str | PathLike[str] | None,
        checkpoints: Checkpoints | None,
        resume: str | PathLike[str] | Checkpoint | None,
        outputs: Mapping[str, Any] | None,
    ) -> RunResult:
        if self._session is None:
            raise RuntimeError("run: the deployment is closed; deploy the plan again")
        try:
            host, kept, savings = self._look_at_run(inputs, verify, trace, checkpoints, resume, outputs)
        except Exception as error:
            self._refuse(error, checkpoints, resume, outputs)
            raise
        with self._prepared.backend.alone():
            self._has_state = False  # what a run that fails leaves is not known
            with savings:
                result = self._session.run(host, savings, progress, trace is not None, trace is None)
        if checkpoints is not None:
            self._saved_at = savings.saved_at
        self._runs = 1 + (self._runs if savings.resumed is None else savings.resumed.manifest.run)
        names = tuple(sorted(self._carried - kept))
        if result.resumed_at is not None:
            compare_counts(savings.predict(result.resumed_at), result)
        else:
            if names not in self._predicted:
                self._predicted[names] = predict(self._prepared, self._stays, names)
            compare_counts(self._predicted[names], result)
        if trace is not None:
            write_trace(result.timeline, trace, result.clock_error)
        if verify:
            result = replace(result, difference=verify_outputs(self.plan, result.outputs, inputs, self._given))
        self._has_state = bool(self._carried)
        return result

    def _look_at_run(
        self,
        inputs: Mapping[str, Any],
        verify: bool,
        trace: str | PathLike[str] | None,
        checkpoints: Checkpoints | None,
        resume: str | PathLike[str] | Checkpoint | None,
        outputs: Mapping[str, Any] | None,
    ) -> tuple[dict[str, Any], set[str], Savings]:
        """What a run is given, checked before the first step: its inputs, those that it goes on from, what is saved."""
        since = 0.0 if self._saved_at is None else monotonic() - self._saved_at
        savings = Savings(self._prepared, self._stays, checkpoints, resume, self._runs, since, outputs, inputs)
        graph, kept = self.plan.graph, self._carried - inputs.keys() if self._has_state else set[str]()
        if savings.resumed is not None:
            for name in sorted(self._carried & inputs.keys()):
                raise ValueError(
                    f"resume: input {quote(name)} is carried, and the checkpoint has its value: leave it out, or run "
                    "without resume"
                )
            kept = self._carried | (savings.list_past() - inputs.keys())
        if verify and kept:
            raise ValueError(
                f"run: verify=True needs the values of all inputs; {quote(min(kept))} is carried: give its value, too"
            )
        given = match_inputs(graph, {**_stand_in(graph, kept), **inputs}, self._given)
        given = {name: array for name, array in given.items() if name not in kept}
        check_copies(_list_copied(given))
        host: dict[str, Any] = {
            name: one if isinstance(one, Source) else make_contiguous(one) for name, one in given.items()
        }
        savings.look_at(host)
        if verify:
            check_finite(graph, host)
        if trace is not None:
            check_target(trace, "trace")
        return host, kept, savings


def _stand_in(graph: Graph, names: Collection[str]) -> dict[str, Array]:
    """Arrays that take no memory, for inputs whose values are not looked at."""
    stored = [graph.stored[name] for name in names]
    return {one.name: np.broadcast_to(np.zeros((), one.dtype), one.shape) for one in stored}


@_telling_of_types(lambda args, kwargs, error: _tell_others(kwargs.get("backend"), error))
@check_arguments(
    shard_plan="make one with plan(graph, mesh)",
    backend=KNOWN,
    constants=FEEDS,
    ops="it maps names to operators, as {op.name: op}",
    carry="it maps outputs to inputs, as {'new_w': 'w'}",
    memory_nbytes="give a number of bytes",
    outputs="give labels of outputs, as ['loss']",
)
def deploy(
    shard_plan: ShardPlan,
    *,
    backend: str | Backend[Any] = "numpy",
    constants: Mapping[str, Any] | None = None,
    ops: Mapping[str, Op] | None = None,
    carry: Mapping[str, str] | None = None,
    memory_nbytes: int | None = None,
    outputs: Sequence[str] | None = None,
) -> Deployment:
    """Place a plan's programs and constants once, to run it often.

    Constants stay on their devices, and so does what only they are copied into, as a weight that is turned around.

    Parameters
    ----------
    shard_plan : ShardPlan
    backend, constants, ops, memory_nbytes
        As of `run`.
    carry : mapping of str to str, optional
        Outputs, by label, with the inputs whose place they take in the next run: new weights of a training step, a
        cache of keys. Each output must lie where its input begins: plan with ``tie=carry``. Where the plan has it
        overwrite the input, as ``w - rate * slope`` may, nothing is copied; else it is, behind the run. After a run
        that failed the inputs must be given again.
    outputs : sequence of str, optional
        Labels of the outputs that runs bring to the caller; all by default. Others stay where they are made: weights
        and caches that are carried need not be copied out in each run.

    Returns
    -------
    Deployment
        To be closed, or used in a ``with`` statement.

    Raises
    ------
    ValueError
        As of `run`; for names in `carry` and `outputs` that the graph has not, and for an output that does not lie
        where its input begins; for a backend on whose devices nothing stays; where what stays does not fit into the
        memory given.
    InvalidPlan, MemoryError
        As of `run`.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import deploy
    >>> from tapestry_plan import Graph, Mesh, plan
    >>> g = Graph()
    >>> _ = g.output(g.input("x", (4,)) * g.constant("w", np.full(4, 2, np.float32)), "y")
    >>> p = plan(g, Mesh(2), tie={"y": "x"})
    >>> with deploy(p, carry={"y": "x"}) as placed:
    ...     results = [placed.run(given) for given in ({"x": np.ones(4, np.float32)}, {}, {})]
    >>> [r.outputs["y"].tolist()[0] for r in results], [r.nbytes_placed for r in results[:2]], placed.nbytes_placed
    ([2.0, 4.0, 8.0], [(8, 8), (0, 0)], (8, 8))

    State that nobody reads in between stays where it is:

    >>> with deploy(p, carry={"y": "x"}, outputs=[]) as placed:
    ...     [dict(placed.run(given).outputs) for given in ({"x": np.ones(4, np.float32)}, {})]
    [{}, {}]
    """
    with _telling_others(backend):
        prepared = PreparedPlan(shard_plan, backend)
    if not getattr(type(prepared.backend), "keeps", False):
        raise ValueError(f"deploy: nothing stays on devices of backend {quote(prepared.backend.name)}; use run")
    with _telling_others(prepared.backend):
        caps = shard_plan.mesh.limit_memory(memory_nbytes)
        prepared = prepared.within(memory_nbytes)
        known = _name_ops(prepared.plan, ops)
        if outputs is not None:
            for label in outputs:
                check_label(prepared.plan.graph, label, "outputs")
            prepared = prepared.bringing(outputs)
    return Deployment(prepared, constants, known, carry or {}, caps)
