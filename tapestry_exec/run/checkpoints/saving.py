"""Runs that save what their devices hold on the way, and runs that go on from there.

::

    caller     Savings ──► Start: which attempt it is, the cuts, what is gone on from          before each attempt
    device     Stopover(start) ─► restore ─► step ─► step ─► at a cut: write a part ─► step    by itself
    the last device to come by a cut arranges the parts, and renames the folder

Nobody waits for anybody: which cuts are saved is known before, or is decided by the first device that comes there.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import Any, Self

import numpy as np
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from tapestry_exec.copies import Array
from tapestry_exec.run import tuning
from tapestry_exec.run.alike import digest_plan, find_versions, tell_difference
from tapestry_exec.run.checkpoints.cuts import Cut, check_stages, find_cut, find_cuts, has_all
from tapestry_exec.run.checkpoints.finished import Checkpoint, open_checkpoint
from tapestry_exec.run.checkpoints.folders import (
    Manifest,
    SavedBuffer,
    SavedPart,
    check_folder,
    check_path,
    finish,
    keep_last,
    list_begun,
    list_finished,
    lock,
    map_cells,
    name_begun,
    name_checkpoint,
    sum_bytes,
    unlock,
)
from tapestry_exec.run.interpreter import Interpreter
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_exec.run.residents import Prediction, Residents, count_placed
from tapestry_exec.run.results import RunResult
from tapestry_exec.run.stores import Written, find_targets
from tapestry_plan.steps import HOST, Alloc, Buffer, Copy, DeviceStep, Fetch, Send, Spill, count_local
from tapestry_sets.limits import Public, check_fields, quote
from tapestry_sets.regions import Region


class Checkpoints(Struct, frozen=True, metaclass=Public):
    """What a run saves on its way: behind which stages, or how often, and where.

    Each device writes the cells that are read later, but constants, which are placed again. A checkpoint has arrays of
    Zarr v3 without codecs, written aside and made valid by one rename: it outlives processes that are killed.

    Parameters
    ----------
    path : path
        A folder, which is made where there is none; every device must reach it under this name.
    after : sequence of str
        Stages, as ``plan.stages`` names them.
    seconds : float, optional
        Save also at the first stage that ends so long after the last checkpoint, or after the first step.
    keep : int
        How many finished checkpoints stay in the folder; older ones are taken away.

    Raises
    ------
    TypeError
        For arguments of another type.
    ValueError
        Where `seconds` is not above 0, `keep` is below 1, or nothing says when to save.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from tapestry_exec import Checkpoints, run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.exp(ops.relu(g.input("x", (4, 6)), name="act"), name="last"), "y")
    >>> p, x = plan(g, Mesh(2), fuse=False), np.ones((4, 6), np.float32)
    >>> with tempfile.TemporaryDirectory() as there:
    ...     whole = run(p, {"x": x}, checkpoints=Checkpoints(there, after=["act"]))
    ...     rest = run(p, {"x": x}, resume=there)
    >>> rest.outputs["y"].tobytes() == whole.outputs["y"].tobytes()
    True
    >>> {event.node for event in rest.timeline if event.kind == "compute"}
    {'last'}
    """

    path: str | PathLike[str]
    after: Sequence[str] = ()
    seconds: float | None = None
    keep: int = 1

    def __post_init__(self) -> None:
        check_fields(self)
        check_path("Checkpoints: path", self.path)
        if isinstance(self.after, str):
            raise TypeError(f"Checkpoints: after is {quote(self.after)}; give names of stages in a list, as ['act']")
        force_setattr(self, "path", os.path.abspath(self.path))
        force_setattr(self, "after", tuple(self.after))
        if self.seconds is not None and not 0 < self.seconds < inf:
            raise ValueError(f"Checkpoints: seconds is {quote(self.seconds)}; give a number of seconds above 0")
        if self.keep < 1:
            raise ValueError(f"Checkpoints: keep is {quote(self.keep)}; give 1 or more, so that the last one stays")
        if not self.after and self.seconds is None:
            raise ValueError("Checkpoints: nothing says when to save; give after=['a stage'], or seconds=60")


# ------------------------------------------------------------------------------------- what devices are told


class Stop(Struct, frozen=True):
    """A cut at which devices may save: always, or where the seconds are over."""

    cut: int
    after: str
    is_named: bool


class Start(Struct, frozen=True):
    """What devices are told when they begin, of checkpoints and of arrays that lie elsewhere.

    Parameters
    ----------
    constants : frozenset of str
        Tensors that are placed again, not saved.
    stops : tuple of Stop
        Ascending.
    folder : str
        Of the checkpoints that are written.
    turn : int
        Which attempt it is, of all that wrote there.
    seconds : float, optional
    since : float
        Seconds since the last checkpoint, when the attempt began.
    keep : int
    about : Manifest, optional
        What all checkpoints of this attempt say of themselves.
    resumed : Checkpoint, optional
        What is gone on from.
    written : Written, optional
        The outputs that are written elsewhere.
    """

    constants: frozenset[str]
    stops: tuple[Stop, ...] = ()
    folder: str = ""
    turn: int = 0
    seconds: float | None = None
    since: float = 0.0
    keep: int = 1
    about: Manifest | None = None
    resumed: Checkpoint | None = None
    written: Written | None = None


class PartWriter:
    """Who writes for one device, or for all of them in turn: one part of each checkpoint.

    Parameters
    ----------
    row : int
        The number of its parts.
    devices : int
    """

    def __init__(self, row: int, devices: int) -> None:
        self.row, self.devices = row, devices
        self.parts = dict[int, SavedPart]()

    def take(self, cut: int) -> SavedPart:
        """Its part of the checkpoint at a cut."""
        return self.parts.setdefault(cut, SavedPart(self.row, self.devices))


class Stopover:
    """One device's side: it restores what the device held, and saves at cuts.

    Parameters
    ----------
    mine : Interpreter
    start : Start
    program : sequence of DeviceStep
        What is left to do, without what places carried inputs.
    given : sequence of DeviceStep
        What places carried inputs that are given: done first.
    carried : mapping of int to sequence of Region
        The buffers of carried inputs, with the cells that are placed there.
    known : dict
        Cuts that were found before, by number.
    writer : PartWriter, optional
        Common to all devices, where they take turns in one loop.
    """

    def __init__(
        self,
        mine: Interpreter,
        start: Start,
        program: Sequence[DeviceStep],
        given: Iterable[DeviceStep],
        carried: Mapping[int, Sequence[Region]],
        known: dict[int, Cut],
        writer: PartWriter | None = None,
    ) -> None:
        self.writer = writer or PartWriter(mine.device, 1)
        self.mine, self.start, self.program, self.carried, self.known = mine, start, program, carried, known
        self.buffers = {n: one for n, one in mine.work.buffers.items() if one.device == mine.device}
        self.passed = {at.number for at in given}
        first = start.resumed.manifest.cut if start.resumed is not None else 0
        self.aside: dict[int, Array] = {}
        """Of carried inputs that are overwritten by now, and saved later, the cells that the run began with."""
        self.left = [stop for stop in start.stops if stop.cut > first]
        self.saved_at = monotonic() - start.since
        if self.left:
            mine.watch = self.look

    def find(self, number: int) -> Cut:
        """What the device holds at a cut."""
        if number not in self.known:
            self.known[number] = find_cut(number, self.program, self.mine.work, self.buffers, self.start.constants)
        return self.known[number]

    # -- saving --------------------------------------------------------------------------------------------

    def look(self, at: DeviceStep) -> None:
        """Save, where a step is the first one behind a cut."""
        if isinstance(at.step, Send) or at.number in self.passed:
            return
        while self.left and self.left[0].cut <= at.number:
            self._come_to(self.left.pop(0))
        if not self.left:
            self.mine.watch = None
        elif isinstance(at.step, Alloc) and (over := self.buffers[at.step.buffer].over) in self.carried:
            assert over is not None, "it is one of them"
            if over not in self.aside:  # else one that overwrote it is overwritten
                self.aside[over] = np.array(self._show_there(over))

    def finish(self) -> None:
        """Save at cuts behind the device's last step."""
        self.mine.watch = None
        while self.left:
            self._come_to(self.left.pop(0))

    def _come_to(self, stop: Stop) -> None:
        if stop.is_named or self._agree(stop):
            self._save(stop)
            self.saved_at = monotonic()

    def _agree(self, stop: Stop) -> bool:
        """Whether the seconds are over: as the first device that asks says, by a link, which is made once."""
        assert self.start.seconds is not None, "only then there are stops without names"
        mine = "yes" if monotonic() - self.saved_at >= self.start.seconds else "no"
        place = name_asked(self.start.folder, self.start.turn) / str(stop.cut)
        try:
            os.symlink(mine, place)
        except FileExistsError:
            return os.readlink(place) == "yes"
        return mine == "yes"

    def _save(self, stop: Stop) -> None:
        start, folder, about = self.start, self.start.folder, self.start.about
        assert about is not None, "checkpoints are written"
        about = replace(about, cut=stop.cut, after=stop.after)
        begun, part = f"{folder}/{name_begun(start.turn, about)}", self.writer.take(stop.cut)
        count = about.devices // self.writer.devices
        try:
            is_last = part.write(begun, self._list_records(stop.cut), self._show)
            if is_last and finish(begun, about, count, name_checkpoint(start.turn, stop.cut)):
                keep_last(folder, start.keep, about.plan)
        except OSError as error:
            mend = "make room there, or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            raise OSError(
                error.errno,
                f"the checkpoint behind {quote(stop.after)} cannot be written to the folder {quote(folder)} "
                f"({error.strerror or error}); {mend}give Checkpoints another folder",
            ) from error

    def _list_records(self, number: int) -> list[SavedBuffer]:
        """What is saved at a cut, without where it lies."""
        cut, full = self.find(number), dict[int, bool]()
        for n in self.carried:
            full[n] = has_all(self.buffers[n], self.carried[n], self.mine.work)
        found = [self._record(n, False, n in cut.full or full.get(n, False)) for n in (*cut.saved, *self.carried)]
        found += [self._record(n, True, n in cut.full) for n in cut.kept]
        return found + [self._record_guest(n) for n in cut.guests]

    def _show(self, record: SavedBuffer) -> Array:
        """The cells of a buffer, which are written before they change."""
        if record.is_kept:
            return self.mine.kept[record.buffer]
        aside = self.aside.get(record.buffer)
        return self._show_there(record.buffer) if aside is None else aside

    def _show_there(self, number: int) -> Array:
        show: Callable[[Buffer], Array] | None = getattr(self.mine.memory, "show", None)
        buffer = self.buffers[number]
        return show(buffer) if show else self.mine.backend.fetch(self.mine.memory.spill(buffer))

    def _record(self, number: int, is_kept: bool, is_full: bool) -> SavedBuffer:
        one = self.buffers[number]
        box = one.start, one.shape, one.dtype
        return SavedBuffer(one.device, one.id, one.tensor, *box, one.part, is_kept, is_full, "")

    def _record_guest(self, number: int) -> SavedBuffer:
        """Of a buffer within another one: where its cells are among the bytes of that."""
        one = self.buffers[number]
        host = one
        while host.within is not None:
            host = self.buffers[host.within.buffer]
        assert one.within is not None, "it is within another one"
        found = self._record(number, False, True)
        return replace(found, at=one.offset - host.offset, within=host.id, strides=one.within.strides)

    # -- going on ------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Bring the device to where it was at the cut, if the run goes on from one."""
        resumed = self.start.resumed
        if resumed is None:
            return
        mine, path = self.mine, Path(resumed.path)
        cut, allocated = self.find(resumed.manifest.cut), set[int]()
        for at in cut.again:
            mine.do(at)
            if isinstance(at.step, Alloc):
                allocated.add(at.step.buffer)
        for n in cut.alive:
            if n not in allocated:
                buffer = self.buffers[n]
                mine.memory.alloc(buffer, mine.work.shapes.get(buffer.tensor, buffer.shape))
        records = {(one.buffer, one.is_kept): one for one in resumed.manifest.buffers if one.device == mine.device}
        overtaken = {self.buffers[n].over for n in cut.alive}
        for n in (*cut.saved, *self.carried):
            buffer, cells = self.buffers[n], map_cells(path, records[n, False])
            if n in overtaken and n in self.carried:
                if self.left:  # the next checkpoint has it, too; that one may be gone by then
                    self.aside[n] = np.array(cells).reshape(buffer.shape)
                continue
            payload = mine.backend.place(cells, (Region.full(buffer.shape),), buffer.tensor)
            mine.memory.unpack(payload, buffer, (Region.full(buffer.shape, buffer.start),))
        for n in cut.kept:
            mine.kept[n] = np.array(map_cells(path, records[n, True])).reshape(-1)


def name_asked(folder: str, turn: int) -> Path:
    """Where the devices of an attempt agree on whether the seconds are over."""
    return Path(folder) / f".{turn:08}.asked"


# --------------------------------------------------------------------------------------- the caller's side


class Savings:
    """The caller's side of one run: says before each attempt what to save, and what is gone on from.

    Parameters
    ----------
    prepared : PreparedPlan
    stays : Residents, optional
    wanted : Checkpoints, optional
    resume : path or Checkpoint, optional
    run : int
        Which run of a deployment it is.
    since : float
        Seconds since the last checkpoint.
    outputs : mapping of str to array, optional
        Where outputs are written.
    inputs : mapping of str to array, optional
        What the run is given: none of it may be written to.

    Raises
    ------
    ValueError
        For what cannot be saved or gone on from.
    """

    def __init__(
        self,
        prepared: PreparedPlan,
        stays: Residents | None,
        wanted: Checkpoints | None,
        resume: str | PathLike[str] | Checkpoint | None,
        run: int = 0,
        since: float = 0.0,
        outputs: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> None:
        self.prepared, self.stays, self.wanted, self.run = prepared, stays, wanted, run
        self.began = self.saved_at = monotonic() - since
        self.resumed: Checkpoint | None = None
        self.first_turn = 0
        self.is_locked = False
        self.inputs: dict[str, str] = {}
        engine, plan = prepared.backend, prepared.plan
        self.written: Written | None = None
        if outputs:
            leave = getattr(engine, "leave_output", None)
            what = plan.graph, prepared.outputs, prepared.work.buffers
            self.written = find_targets(*what, outputs, inputs or {}, leave)
        if wanted is None and resume is None:
            return
        if not getattr(engine, "saves", False):
            raise ValueError(
                f"checkpoints: backend {quote(engine.name)} neither writes nor reads them; use 'numpy', 'serial', "
                "'processes', 'dask' or 'mpi' on NumPy"
            )
        if wanted is not None:
            check_stages(plan, wanted.after)
            try:
                os.makedirs(wanted.path, exist_ok=True)
            except OSError as error:
                raise ValueError(
                    f"checkpoints: the folder {quote(str(wanted.path))} cannot be made ({error.strerror}); choose "
                    "another one"
                ) from None
            if not os.access(wanted.path, os.W_OK | os.X_OK):
                raise ValueError(
                    f"checkpoints: the folder {quote(str(wanted.path))} cannot be written to; choose another one"
                )
            check_folder(Path(wanted.path), find_digest(prepared))
        if resume is not None:
            self.resumed = resume if isinstance(resume, Checkpoint) else open_checkpoint(resume)
            self._check_own(self.resumed)

    @property
    def is_on(self) -> bool:
        """Whether devices are told anything."""
        return self.wanted is not None or self.resumed is not None or self.written is not None

    def _check_own(self, checkpoint: Checkpoint) -> None:
        """Raise ValueError for a checkpoint of another plan, or of other versions than those here."""
        found, own = checkpoint.manifest.plan, find_digest(self.prepared)
        if found != own:
            raise ValueError(
                f"resume: checkpoint {quote(checkpoint.path)} is of another plan (its digest is {found}, this plan's "
                f"{own}); resume that plan, by its document (to_json), or run without resume"
            )
        versions = [checkpoint.manifest.versions, find_versions()]
        difference = tell_difference(versions, [f"checkpoint {quote(checkpoint.path)}", "this process"])
        if difference:
            raise ValueError(f"resume: {difference}")
        wanted = {(device, n) for device, cut in enumerate(self._list_cuts(checkpoint.manifest.cut)) for n in cut.saved}
        wanted |= {(self.prepared.work.buffers[n].device, n) for n in list_carried(self.stays)}
        missing = wanted - {(one.device, one.buffer) for one in checkpoint.manifest.buffers}
        if missing:
            device, number = min(missing)
            tensor = self.prepared.work.buffers[number].tensor
            raise ValueError(
                f"resume: checkpoint {quote(checkpoint.path)} has nothing of {quote(tensor)} on device {device}, which "
                "is needed here: it was saved by a run of another kind, as one without carry; resume as it was saved"
            )

    def _list_cuts(self, number: int) -> list[Cut]:
        """What each device holds at a cut."""
        work, programs = self.prepared.work, self.programs
        constants, found = list_constants(self.prepared), []
        for device, program in enumerate(programs):
            known = self.prepared.list_known_cuts(device, None if self.stays is None else self.stays.given)
            if number not in known:
                mine = {n: one for n, one in work.buffers.items() if one.device == device}
                known[number] = find_cut(number, program, work, mine, constants)
            found.append(known[number])
        return found

    @property
    def programs(self) -> Sequence[Sequence[DeviceStep]]:
        """What each device has to do in a run."""
        return self.prepared.programs if self.stays is None else self.stays.programs

    # -- inputs --------------------------------------------------------------------------------------------

    def list_past(self) -> set[str]:
        """The inputs that are not read any more where the run goes on."""
        if self.resumed is None:
            return set()
        inputs = {name for name, one in self.prepared.plan.graph.stored.items() if one.kind == "input"}
        return inputs - self._list_read(self.resumed.manifest.cut)

    def _list_read(self, cut: int) -> set[str]:
        """The inputs and constants that are placed from a cut on."""
        return {
            at.step.tensor
            for program in self.programs
            for at in program
            if at.number >= cut and isinstance(at.step, Copy) and at.step.src == HOST and at.step.piece is None
        }

    def look_at(self, host: Mapping[str, Any]) -> None:
        """Take sums of the inputs in memory; compare them with those of what is gone on from.

        Raises
        ------
        ValueError
            For an input with other values than before, whether it is read again or not.
        """
        stored = self.prepared.plan.graph.stored
        known = {} if self.resumed is None else self.resumed.manifest.inputs
        if self.wanted is None and not known:
            return
        found = {
            name: sum_bytes(one)
            for name, one in host.items()
            if name in stored and stored[name].kind == "input" and isinstance(one, np.ndarray)
        }
        for name in sorted(known.keys() & found.keys()):
            if known[name] != found[name]:
                raise ValueError(
                    f"resume: input {quote(name)} has other values than when the checkpoint was saved: give the same, "
                    "or run without resume"
                )
        self.inputs = {**known, **found}

    # -- attempts ------------------------------------------------------------------------------------------

    def _list_stops(self) -> list[Stop]:
        if self.wanted is None:
            return []
        cuts = find_cuts(self.prepared.plan)
        by_cut = {cuts[name]: Stop(cuts[name], name, True) for name in self.wanted.after}
        if self.wanted.seconds is not None:
            others = [(name, cut) for name, cut in cuts.items() if cut < len(self.prepared.plan.steps) or self.stays]
            every = -(-len(others) // tuning.LOOKS_A_RUN) or 1
            for name, cut in others[::-1][::every]:
                by_cut.setdefault(cut, Stop(cut, name, False))
        return [by_cut[cut] for cut in sorted(by_cut)]

    def begin(self) -> Start | None:
        """What the devices of the next attempt are told."""
        if not self.is_on:
            return None
        constants = frozenset(list_constants(self.prepared))
        if self.wanted is None:
            return Start(constants, resumed=self.resumed, written=self.written)
        folder, plan = Path(self.wanted.path), self.prepared.plan
        if not self.first_turn:
            lock(folder)
            self.is_locked = True
        turn = 1 + max((turn for turn, *_ in (*list_finished(folder), *list_begun(folder))), default=0)
        turn = max(turn, self.first_turn + 1) if self.first_turn else turn
        self.first_turn = self.first_turn or turn
        for _, digest, left in list_begun(folder):  # of attempts that are over
            if digest == find_digest(self.prepared):
                shutil.rmtree(left, ignore_errors=True)
        if self.wanted.seconds is not None:
            name_asked(str(folder), turn).mkdir(exist_ok=True)
        stored = self.prepared.work.shapes
        about = Manifest(
            find_digest(self.prepared),
            plan.mesh.size,
            0,
            "",
            self.run,
            find_versions(),
            dict(self.inputs),
            {name: tuple(shape) for name, shape in stored.items() if name in plan.graph.stored},
        )
        return Start(
            constants,
            tuple(self._list_stops()),
            str(folder),
            turn,
            self.wanted.seconds,
            monotonic() - self.began,
            self.wanted.keep,
            about,
            self.find_last(),
            self.written,
        )

    def find_last(self) -> Checkpoint | None:
        """What the next attempt goes on from: the last checkpoint of this run, or what it went on from itself."""
        if self.wanted is not None and self.first_turn:
            for turn, _, path in reversed(list_finished(Path(self.wanted.path))):
                if turn < self.first_turn:
                    break
                with suppress(ValueError):  # damaged by what ended the attempt: the one before it is as good
                    return open_checkpoint(path)
        return self.resumed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Tidy up behind a run, whatever became of it."""
        if self.wanted is None or not self.is_locked:
            return
        for asked in Path(self.wanted.path).glob(".*.asked"):
            shutil.rmtree(asked, ignore_errors=True)
        for turn, digest, left in list_begun(Path(self.wanted.path)):  # by attempts that failed
            if turn >= self.first_turn and digest == find_digest(self.prepared):
                shutil.rmtree(left, ignore_errors=True)
        turns = [turn for turn, *_ in list_finished(Path(self.wanted.path))]
        unlock(Path(self.wanted.path))
        self.is_locked = False
        self.saved_at = monotonic() if turns and turns[-1] >= self.first_turn else self.began

    def mark(self, result: RunResult, start: Start | None) -> RunResult:
        """A result, which says where its run went on from."""
        if start is None or start.resumed is None:
            return result
        return replace(result, resumed_at=start.resumed.manifest.cut)

    # -- what is predicted ---------------------------------------------------------------------------------

    def predict(self, number: int) -> Prediction:
        """What a run counts that goes on from a cut."""
        prepared, cuts = self.prepared, self._list_cuts(number)
        size, buffers = prepared.plan.mesh.size, prepared.work.buffers
        steps = [at for program in self.programs for at in program if at.number >= number]
        steps += [at for cut in cuts for at in cut.again]
        links: Counter[tuple[int, int]] = Counter()
        spilled, peaks = [0] * size, [0] * size
        for at in steps:
            step = at.step
            if isinstance(step, Send):
                links[at.device, step.peer] += _count_nbytes(buffers[step.src], step.regions)
            elif isinstance(step, Spill | Fetch):
                spilled[at.device] += buffers[step.buffer].nbytes
            elif isinstance(step, Copy) and step.again and step.src == HOST:
                spilled[at.device] += _count_nbytes(buffers[step.dst], step.regions)
        received = [0] * size
        for (_, target), nbytes in links.items():
            received[target] += nbytes
        taken = [at.step.buffer for at in steps if isinstance(at.step, Alloc)] + [n for cut in cuts for n in cut.alive]
        for one in (buffers[n] for n in taken):
            peaks[one.device] = max(peaks[one.device], prepared.work.find_end(one))
        held = (0,) * size if self.stays is None else self.stays.nbytes_held
        behind = () if self.stays is None else self.stays.carrying
        copied = count_local(prepared.plan.graph, buffers.values(), (at.step for at in (*steps, *behind)), size)
        return Prediction(
            links,
            tuple(received),
            count_placed(prepared, steps),
            copied,
            tuple(spilled),
            tuple(map(sum, zip(peaks, held, strict=True))),
        )


def _count_nbytes(buffer: Buffer, regions: Iterable[Region]) -> int:
    return sum(region.size for region in regions) * np.dtype(buffer.dtype).itemsize


def find_digest(prepared: PreparedPlan) -> str:
    """The digest of a plan, which is taken once."""
    known = prepared.plan.kept
    found: str | None = known.get(Checkpoint)
    if found is None:
        found = known[Checkpoint] = digest_plan(prepared.plan)
    return found


def list_constants(prepared: PreparedPlan) -> set[str]:
    """The constants of a plan's graph."""
    return {name for name, one in prepared.plan.graph.stored.items() if one.kind == "constant"}


def list_carried(stays: Residents | None) -> dict[int, tuple[Region, ...]]:
    """The buffers of inputs that are carried, of those that stay, with the cells that are placed there."""
    found: dict[int, tuple[Region, ...]] = {}
    for at in () if stays is None else (at for each in stays.given.values() for at in each):
        if isinstance(at.step, Copy):
            found[at.step.dst] = (*found.get(at.step.dst, ()), *at.step.regions)
    return dict(sorted(found.items()))
