"""Devices in this process while a plan runs on them: opened for one run, or kept for many with what stays on them.

::

    deployment ──► begin_session ──► LocalSession: open, place what stays ──► run ──► run ──► … ──► close
                                     or a backend's own, elsewhere              └► a Job: in one loop, or in threads
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from time import perf_counter
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from tapestry_exec.copies import Array
from tapestry_exec.run.backends import Backend, DeviceMemory, Recorded
from tapestry_exec.run.checkpoints.saving import PartWriter, Savings, Start, Stopover, list_carried
from tapestry_exec.run.interpreter import Counts, Interpreter, Transport
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_exec.run.residents import Residents, count_placed
from tapestry_exec.run.results import Progress, RunResult, StepFailed, TransferMismatch, assemble_outputs
from tapestry_exec.run.settled import Left, Record, Timed, list_noted
from tapestry_exec.run.stores import Written
from tapestry_exec.run.trace import on_devices
from tapestry_exec.run.ways import Inbox, Inboxes, Job, Loop, Shelf, name_step, one_blas_thread, run_in_threads
from tapestry_plan.ir import Op
from tapestry_plan.steps import DeviceStep, Send
from tapestry_sets.limits import FrozenDict


class Deployed(Struct, frozen=True):
    """What a session is of.

    Parameters
    ----------
    prepared : PreparedPlan
    ops : mapping of str to Op
    constants : mapping of str to array, or to what reads it
        Placed once; empty where nothing stays.
    stays : Residents, optional
    apart : frozenset of str
        Inputs and constants that devices read where they lie.
    own : frozenset of int
        The blocks of outputs that devices write to where they lie.
    """

    prepared: PreparedPlan
    ops: Mapping[str, Op]
    constants: Mapping[str, Any]
    stays: Residents | None
    apart: frozenset[str] = frozenset()
    own: frozenset[int] = frozenset()


class Session(Protocol):
    """The devices of a plan, from when they are there until they are gone."""

    def run(
        self, host: Mapping[str, Array], savings: Savings, progress: Progress | None, timed: bool, is_plain: bool
    ) -> RunResult:
        """Run what is left to do, with these inputs, and constants where none stay."""
        ...

    def close(self) -> None:
        """Take the devices back."""
        ...


def begin_session(what: Deployed) -> Session:
    """The devices of a plan, in this process or where the backend has them."""
    begin: Callable[[Deployed], Session] | None = getattr(what.prepared.backend, "begin", None)
    return LocalSession(what) if begin is None else begin(what)


@contextmanager
def closing(session: Session) -> Iterator[None]:
    """Close a session in any case; what ended a run is what matters."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            session.close()
        raise
    session.close()


def compare_placed(what: Deployed, counted: Sequence[int]) -> None:
    """Raise TransferMismatch where devices got other bytes of what stays than were predicted."""
    predicted = () if what.stays is None else count_placed(what.prepared, what.stays.placing)
    for device, (wanted, found) in enumerate(zip(predicted, counted, strict=True)):
        if wanted != found:
            raise TransferMismatch(f"device {device} got {found:,} B of constants, {wanted:,} B were predicted")


class LocalSession:
    """Devices in this process: opened for each run, or kept with what stays on them."""

    def __init__(self, what: Deployed) -> None:
        self.what, self.prepared, self.engine = what, what.prepared, what.prepared.backend
        self.devices: Sequence[DeviceMemory] = ()
        self.settled: Sequence[Collection[int]] | None = None
        """By device the buffers whose places a run has found, and later ones need not take anew."""
        self.left: dict[bool, tuple[Left, Sequence[Left]]] = {}
        """What all devices need to do then, and each of them: in one loop, and with a thread for each."""
        if what.stays is not None:
            self.devices = self.engine.open(what.stays.arenas_nbytes, self.prepared.payloads_nbytes)
            try:
                self.place()
            except BaseException:
                with suppress(Exception):  # what ended it is what matters
                    self.close()
                raise
            self.engine.pause()

    def run(
        self, host: Mapping[str, Array], savings: Savings, progress: Progress | None, timed: bool, is_plain: bool
    ) -> RunResult:
        """Run what is left to do, with these inputs, and constants where none stay."""
        stays, prepared, start = self.what.stays, self.prepared, savings.begin()
        steps: Sequence[DeviceStep] = prepared.steps if stays is None else stays.steps
        programs: Sequence[Sequence[DeviceStep]] = prepared.programs if stays is None else stays.programs
        first = [] if stays is None else [at for name in stays.given if name in host for at in stays.given[name]]
        if start is not None and start.resumed is not None:
            cut = start.resumed.manifest.cut
            steps = [at for at in steps if at.number >= cut]
            programs = [[at for at in each if at.number >= cut] for each in programs]
        elif first:
            # What is saved at a cut has them, wherever their steps stood.
            steps = [*first, *steps] if start else sorted([*first, *steps], key=attrgetter("number"))
            programs = [[*(at for at in first if at.device == d), *each] for d, each in enumerate(programs)]
        is_whole = start is None and not first and stays is not None
        is_plain = is_plain and not first  # a run that goes on from the one before does less
        is_threaded = _wants_threads(prepared)
        if is_whole and self.settled is not None and progress is None:
            every, of_each = self._list_left(self.settled, is_threaded)
        else:
            every, of_each = Left(tuple(steps)), [Left(tuple(each)) for each in programs]
        given = {**self.what.constants, **host}
        job = Job(prepared, given, self.what.ops, every, of_each, progress, is_threaded)
        if start is not None:
            return savings.mark(self._run_and_save(job, timed, start, host), start)
        recording = self.engine.recorded(prepared.plan) if is_plain else None
        if recording is not None:
            try:
                return _launch_again(prepared, recording, host, progress)
            except StepFailed:
                self.engine.discard(prepared.plan)
                raise
        result = self._issue(job, timed)
        if is_whole and self.settled is None and all(hasattr(device, "list_settled") for device in self.devices):
            self.settled = [device.list_settled() for device in self.devices]
        return result

    def _list_left(self, settled: Sequence[Collection[int]], is_threaded: bool) -> tuple[Left, Sequence[Left]]:
        """What need be done in this and later runs."""
        found = self.left.get(is_threaded)
        if found is None:
            stays, work = self.what.stays, self.prepared.work
            assert stays is not None, "the devices are kept"
            if is_threaded:  # what is lent must be packed where its place is given back
                lent = {at.step.src for at in stays.steps if isinstance(at.step, Send)}
                settled = [set(some) - lent for some in settled]
            of_each = [Left.of(*each, work) for each in zip(stays.programs, settled, strict=True)]
            every = Left.of(stays.steps, {number for some in settled for number in some}, work)
            found = self.left[is_threaded] = every, of_each
        return found

    def close(self) -> None:
        """Give the devices back that were kept."""
        devices, self.devices = self.devices, ()
        if devices:
            self.engine.close(devices)

    def place(self) -> None:
        """Place what stays, and count it."""
        stays = self.what.stays
        assert stays is not None, "devices are kept where something stays"
        prepared, parcels = self.prepared, dict[tuple[int, int, int], Any]()
        mine = [
            Interpreter(d, prepared.work, memory, self.engine, self.what.constants, self.what.ops, Shelf(d, parcels))
            for d, memory in enumerate(self.devices)
        ]
        for at in stays.placing:
            try:
                mine[at.device].place(at)
            except Exception as error:
                raise name_step(prepared, at.number, error) from error
        compare_placed(self.what, [one.placed for one in mine])

    def _issue(self, job: Job, timed: bool) -> RunResult:
        """Run step by step; what failed while it was recorded runs once more, not recorded."""
        run, result = self._run_on_devices if self.what.stays is None else self._run_where_it_stays, None
        while result is None:  # the second time outside of the handler, whose error holds the devices
            try:
                result = run(job, timed)
            except StepFailed as error:
                if not self.engine.forget(job.prepared.plan, error):
                    raise
        self.engine.remember(job.prepared.plan, result)
        return result

    def _run_and_save(self, job: Job, timed: bool, start: Start, host: Mapping[str, Array]) -> RunResult:
        """Run step by step, and save on the way, or go on from what was saved."""
        stays = self.what.stays
        given = () if stays is None else [at for name in stays.given if name in host for at in stays.given[name]]
        programs = self.prepared.programs if stays is None else stays.programs
        carried = list_carried(stays)
        writer = None if job.is_threaded else PartWriter(0, self.prepared.plan.mesh.size)

        def stop_over(mine: Interpreter) -> Stopover:
            device, buffers = mine.device, mine.work.buffers
            own = {n: regions for n, regions in carried.items() if buffers[n].device == device}
            known = self.prepared.list_known_cuts(device, None if stays is None else stays.given)
            return Stopover(
                mine, start, programs[device], (at for at in given if at.device == device), own, known, writer
            )

        way = self._run_on_devices if stays is None else self._run_where_it_stays
        return way(job, timed, stop_over, start.written)

    def _run_on_devices(
        self, job: Job, timed: bool, stop_over: StopOver | None = None, written: Written | None = None
    ) -> RunResult:
        """Run on devices that are closed in any case."""
        devices = self.engine.open(self.prepared.arenas_nbytes, self.prepared.payloads_nbytes)
        try:
            if timed:
                self.engine.start_clocks()
            for device in devices:
                if getattr(device, "notes", False):
                    device.begin(self.prepared.work, job.ops)
            result = interpret(job, devices, stop_over=stop_over, written=written)
        except BaseException:
            with suppress(Exception):  # what ended the run is what matters
                self.engine.close(devices)
            raise
        self.engine.close(devices)
        return result

    def _run_where_it_stays(
        self, job: Job, timed: bool, stop_over: StopOver | None = None, written: Written | None = None
    ) -> RunResult:
        """Run on the devices that are kept."""
        assert self.what.stays is not None, "something stays"
        for device in self.devices:
            device.restart()
            if job.every.told:
                device.take_settled()
        self.engine.resume()
        try:
            if timed:
                self.engine.start_clocks()
            result = interpret(job, self.devices, self.what.stays.carrying, stop_over, written)
        except BaseException:
            with suppress(Exception):  # what ended the run is what matters
                self.engine.pause()
            raise
        self.engine.pause()
        return result


StopOver = Callable[[Interpreter], Stopover]
"""What makes the part of a device in saving and restoring."""


def interpret(
    job: Job,
    devices: Sequence[DeviceMemory],
    carrying: Sequence[DeviceStep] = (),
    stop_over: StopOver | None = None,
    written: Written | None = None,
) -> RunResult:
    """Do all steps on devices of this process, and take the outputs."""
    prepared, engine = job.prepared, job.prepared.backend
    begin, counts = perf_counter(), [0]
    inboxes, parcels = Inboxes(len(devices)), dict[tuple[int, int, int], Any]()

    def transport(device: int) -> Transport:
        return Inbox(device, inboxes) if job.is_threaded else Shelf(device, parcels)

    lends: Callable[[], bool] | None = getattr(engine, "lends", None)  # one may have no such method
    lending = None if lends is None or not lends() else not job.is_threaded
    reads: Callable[[], bool] | None = getattr(engine, "reads_host", None)
    carried = prepared.carried if reads is not None and reads() else None
    mine = [
        Interpreter(d, prepared.work, memory, engine, job.host, job.ops, transport(d), lending, carried)
        for d, memory in enumerate(devices)
    ]
    for one in mine:
        one.begin_at(begin)
        one.told = job.programs[one.device].told if job.is_threaded else ()
    loop = Loop(job, mine)
    stopovers = [] if stop_over is None else [stop_over(one) for one in mine]
    for each in stopovers:
        each.restore()
    if stop_over is None and job.progress is None:
        _rehearse(job, mine)
    with one_blas_thread():
        record = run_in_threads(job, mine, inboxes) if job.is_threaded else loop.run(counts)
        finish(engine.synchronize)
    for one in mine:
        one.count_by_heart()
        one.keep_noted()
    for each in stopovers:
        each.finish()
    seconds = perf_counter() - begin
    if engine.spans is not None:
        ((noted, _),) = record.noted
        assert not isinstance(noted, Timed), "devices with queues are in this process"
        record = Record.of((on_devices(list_noted(noted), engine.times(begin), counts), ()))
    buffers = prepared.work.buffers
    blocks = [block for output in prepared.outputs for block in output.blocks]
    cells, is_there = [], getattr(type(engine), "arrive", Backend.arrive) is Backend.arrive
    for k, (number, region) in enumerate(blocks):
        taken = mine[buffers[number].device].take(number, region)
        cells.append(written.write(k, region, taken) if written is not None and is_there else taken)
    for at in carrying:
        mine[at.device].carry(at)
    finish(engine.arrive)
    if written is not None and not is_there:
        cells = [
            written.write(k, region, taken) for k, ((_, region), taken) in enumerate(zip(blocks, cells, strict=True))
        ]
    links = loop.links + sum((one.links for one in mine), Counter())
    return make_result(prepared, cells, [one.count() for one in mine], seconds, links, written, record)


def _rehearse(job: Job, mine: Sequence[Interpreter]) -> None:
    """Have devices do by heart what all of them know, or note it."""
    for one in mine:
        one.rehearse(job.programs[one.device].steps if job.is_threaded else job.every.steps)
    if len({(one.noting is None, one.rehearsal is None) for one in mine}) > 1:
        for one in mine:  # some have begun anew
            one.by_heart, one.noting = {}, None


def _wants_threads(prepared: PreparedPlan) -> bool:
    """Whether a thread runs each device: not where devices have queues, or run collectives together."""
    engine = prepared.backend
    together = getattr(type(engine), "takes", Backend.takes) is not Backend.takes
    wants: Callable[[float, int, int], bool] | None = getattr(engine, "wants_threads", None)
    if wants is None or together or engine.spans is not None:
        return False
    return wants(sum(prepared.seconds), len(prepared.shards), prepared.plan.mesh.size)


def make_result(
    prepared: PreparedPlan,
    cells: Sequence[Array],
    counts: Sequence[Counts],
    seconds: float,
    links: Mapping[tuple[int, int], int],
    written: Written | None = None,
    record: Record | None = None,
    clock_error: float = 0.0,
) -> RunResult:
    """The result of a run, of what each device counted, and of the cells of the outputs' blocks."""
    if record is None:
        record = Record.of(*((one.timeline, one.told) for one in counts))
    received = [0] * len(counts)
    for (_, dst), nbytes in links.items():
        received[dst] += nbytes
    return RunResult(
        assemble_outputs(prepared.plan, prepared.outputs, cells, written),
        FrozenDict(links),
        tuple(received),
        tuple(one.placed for one in counts),
        tuple(one.peak_nbytes for one in counts),
        tuple(one.flop for one in counts),
        seconds,
        record,
        nbytes_spilled=tuple(one.spilled for one in counts),
        nbytes_copied=tuple(one.copied for one in counts),
        clock_error=clock_error,
    )


def finish(wait: Callable[[], None]) -> None:
    """Wait until the devices have done what the steps put into their queues."""
    try:
        wait()
    except Exception as error:
        raise StepFailed(
            f"work that the steps had put into the devices' queues failed: {type(error).__name__}: {error}; "
            "CupyBackend(blocking=True) waits after each step and names the one"
        ) from error


def _launch_again(
    prepared: PreparedPlan, recording: Recorded, host: Mapping[str, Array], progress: Progress | None
) -> RunResult:
    """Launch what was recorded: it moves and holds what its run did, which was counted then."""
    begin = perf_counter()
    try:
        cells = recording.launch(host)
    except Exception as error:
        raise StepFailed(
            f"the plan, recorded as a graph and launched as a whole, failed: {type(error).__name__}: {error}; "
            "CupyBackend(blocking=True) waits after each step and names the one"
        ) from error
    seconds = perf_counter() - begin
    if progress is not None:
        plan = prepared.plan
        progress(len(plan.steps), len(plan.steps), plan.graph.order()[-1].name if plan.graph.nodes else "")
    counted: RunResult = recording.result
    outputs = assemble_outputs(prepared.plan, prepared.outputs, cells)
    return replace(counted, outputs=outputs, seconds=seconds, record=Record())
