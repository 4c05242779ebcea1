"""One device's part of a plan, for who does it in another process, and the device's side of doing it.

::

    caller       list_parts ──► a DevicePart for each device, which can be pickled
    elsewhere    Member(part, backend, transport) ──► place what stays, once ─► run ─► counts, cells of the outputs
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterator, Mapping, MutableSequence, Sequence
from time import perf_counter
from typing import Any, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_exec.copies import Array
from tapestry_exec.run.backends import Backend
from tapestry_exec.run.checkpoints.cuts import Cut, find_cut
from tapestry_exec.run.checkpoints.saving import Start, Stopover, list_carried
from tapestry_exec.run.interpreter import Counts, Interpreter, StepFacts, Transport
from tapestry_exec.run.residents import Residents
from tapestry_exec.run.results import StepFailed
from tapestry_exec.run.sessions import Deployed, finish
from tapestry_exec.run.settled import Left, Timed, pack_noted
from tapestry_exec.run.stores import Written
from tapestry_exec.run.together import Ensemble, find_together
from tapestry_exec.run.ways import one_blas_thread
from tapestry_plan.ir import BUILTIN_OPS, Op
from tapestry_plan.steps import HOST, Collective, Compute, Copy, DeviceStep, Recv, Send
from tapestry_sets.regions import Region


class DevicePart(Struct, frozen=True):
    """What one device is told of a plan.

    Parameters
    ----------
    device, size : int
    work : StepFacts
        Of this device's buffers and operators.
    ops : mapping of str to Op
    program : tuple of DeviceStep
    stays : Residents, optional
        With the steps of this device alone.
    arena_nbytes, payload_nbytes : int
        Of the arena, and of the largest payload.
    outputs : tuple of (int, int, Region)
        The outputs' blocks that lie here: their places among all blocks, buffers and regions.
    """

    device: int
    size: int
    work: StepFacts
    ops: Mapping[str, Op]
    program: tuple[DeviceStep, ...]
    stays: Residents | None
    arena_nbytes: int
    payload_nbytes: int
    outputs: tuple[tuple[int, int, Region], ...]

    def list_steps(self, given: Sequence[str]) -> tuple[DeviceStep, ...]:
        """What is done in a run that is given these inputs."""
        if self.stays is None:
            return self.program
        return (*(at for name in given for at in self.stays.given.get(name, ())), *self.program)

    def list_fed(self, given: Sequence[str], start: Start | None, known: dict[int, Cut]) -> Sequence[DeviceStep]:
        """What is done in a run; of one that goes on from a cut what is left, with what places constants again."""
        if start is None or start.resumed is None:
            return self.list_steps(given)
        number = start.resumed.manifest.cut
        if number not in known:
            known[number] = find_cut(number, self.program, self.work, self.work.buffers, start.constants)
        return [*known[number].again, *(at for at in self.program if at.number >= number)]

    def list_receipts(self) -> dict[tuple[int, int], tuple[int, str]]:
        """Cells and dtype of each parcel that comes here, by its sender and tag."""
        buffers = self.work.buffers
        return {
            (at.step.peer, at.step.tag): (
                sum(region.size for region in at.step.regions),
                buffers[at.step.dst].dtype,
            )
            for at in self.program
            if isinstance(at.step, Recv)
        }


class Member:
    """A device that is apart from the others: does its part of a plan, and notes how far it has come.

    Parameters
    ----------
    part : DevicePart
    backend : Backend
        Of which it has one device.
    transport : Transport
    board : mutable sequence of int, optional
        Where the step that it is at, and the bytes that it has sent, are written for who watches it.
    near : collection of int, optional
        Other devices in this process, with whose programs this one's takes turns: they read what they are sent where
        it lies. Without it the transport gets payloads, and waits itself.
    """

    def __init__(
        self,
        part: DevicePart,
        backend: Backend[Any],
        transport: Transport,
        board: MutableSequence[int] | None = None,
        near: Collection[int] | None = None,
    ) -> None:
        self.part, self.backend = part, backend
        self.lent = {at.step.src for at in part.program if isinstance(at.step, Send) and at.step.peer in (near or ())}
        """Buffers whose places others may still read when they are given back."""
        lending = None if near is None else False
        self.board = [-1, 0] if board is None else board
        (self.memory,) = backend.open([part.arena_nbytes], [part.payload_nbytes])
        ops = {**BUILTIN_OPS, **part.ops}
        self.interpreter = Interpreter(part.device, part.work, self.memory, backend, {}, ops, transport, lending)
        self.board[0], self.board[1] = -1, 0
        self.cuts: dict[int, Cut] = {}
        """What the device holds at cuts, as far as it was asked for."""
        self.start: Start | None = None
        self.stopover: Stopover | None = None
        self.steps: Sequence[DeviceStep] = ()
        """Of the run that has begun."""
        self.is_whole = False
        """Whether that does all steps, and constants stay."""
        self.left: Left | None = None
        """What it needs to do in runs behind the first one."""
        self.told = b""
        """What these only tell."""
        self.events: bytes | None = None
        """What they tell, when they are known by heart, but for the times."""

    @property
    def at(self) -> int:
        """The number of the step that it does, or did last; -1 before the first one."""
        return int(self.board[0])

    def place(self, constants: Mapping[str, Any]) -> int:
        """Place what stays; the bytes that were placed."""
        assert self.part.stays is not None, "something stays"
        self.interpreter.host = constants
        for at in self.part.stays.placing:
            self.board[0] = at.number
            self.interpreter.place(at)
        self.backend.pause()
        return self.interpreter.placed

    def run(
        self,
        host: Mapping[str, Any],
        given: Sequence[str],
        begin: float,
        errors: Mapping[str, Any],
        tell: Callable[[int, str], None] | None,
        start: Start | None = None,
    ) -> tuple[Counts, list[Array]]:
        """Run what is left to do.

        Parameters
        ----------
        host : mapping of str to array
            Inputs, and constants where none stay; or what the backend's `place` takes in their place.
        given : sequence of str
            The names of the inputs that the run is given.
        begin : float
            When it begins, by the clock of `perf_counter`.
        errors : mapping of str to str
            How NumPy handles errors.
        tell : callable, optional
            Called with the steps done since the last call, and an operator.
        start : Start, optional
            What is saved on the way, and what is gone on from.

        Returns
        -------
        Counts, list of array
            What was counted, and the cells of `DevicePart.outputs`.
        """
        with one_blas_thread(), np.errstate(**errors):
            self.begin(host, given, begin, start, tell is None)
            for _ in self.take_turns(tell):
                pass
            return self.end()

    def begin(
        self, host: Mapping[str, Any], given: Sequence[str], begin: float, start: Start | None, is_unwatched: bool
    ) -> None:
        """Begin a run, whose arguments are those of `run`."""
        mine, board = self.interpreter, self.board
        mine.host, self.start = host, start
        board[0], board[1] = -1, 0
        self.memory.restart()
        self.backend.resume()
        mine.begin_at(begin)
        self.stopover = None if start is None else self._begin_at_stop(start, given)
        self.steps = self._list_left(given, start)
        self.is_whole = start is None and self.part.stays is not None and len(self.steps) == len(self.part.program)
        if self.is_whole and self.left is not None and is_unwatched:
            self.steps, mine.told = self.left.steps, self.left.told
            self.memory.take_settled()
            mine.rehearse(self.steps)

    def take_turns(
        self, tell: Callable[[int, str], None] | None, is_there: Callable[[Recv], bool] | None = None
    ) -> Iterator[DeviceStep]:
        """Do the steps of a run that has begun; a turn ends where cells have not come, of which it asks.

        Yields
        ------
        DeviceStep
            The receipt at which it goes on when they are there.
        """
        mine, board, done, steps = self.interpreter, self.board, 0, self.steps
        if mine.by_heart:
            yield from self._go_by_heart(steps, is_there)
            return
        for at in steps:
            step = at.step
            board[0] = at.number
            if is_there is not None and isinstance(step, Recv) and not is_there(step):
                mine.stood_since = perf_counter()
                yield at
            mine.do(at)
            if isinstance(step, Send | Collective):
                board[1] = sum(mine.links.values())
            if isinstance(step, Send):
                continue
            done += 1
            if tell is not None and isinstance(step, Compute):
                tell(done, step.node)
                done = 0

    def end(self) -> tuple[Counts, list[Array]]:
        """End a run whose steps are done; what `run` returns."""
        mine, board, start = self.interpreter, self.board, self.start
        try:
            finish(self.backend.synchronize)
        except StepFailed:
            board[0] = -1  # it may be of any step
            raise
        mine.count_by_heart()
        mine.keep_noted()
        if self.stopover is not None:
            self.stopover.finish()
        if self.is_whole and self.left is None and hasattr(self.memory, "list_settled"):
            settled = set(self.memory.list_settled()) - self.lent
            self.left = Left.of(self.part.program, settled, self.part.work)
            self.told = pack_noted(self.left.told)
        cells = self.take_outputs(None if start is None else start.written)
        for at in () if self.part.stays is None else self.part.stays.carrying:
            mine.carry(at)
        self.backend.pause()
        assert int(board[1]) == sum(mine.links.values()), "what was sent is on the board"
        counts = mine.count()
        if mine.by_heart and not isinstance(counts.timeline, Timed):
            counts.timeline = Timed.of(counts.timeline, self.events)
            self.events = counts.timeline.events
        if mine.told:
            counts.told = self.told
        return counts, cells

    def _go_by_heart(
        self, steps: Sequence[DeviceStep], is_there: Callable[[Recv], bool] | None
    ) -> Iterator[DeviceStep]:
        """The steps of a run that are known by heart, and what comes between them."""
        mine, board, known = self.interpreter, self.board, self.interpreter.by_heart
        timeline, begin, posted = mine.timeline, mine.begin, 0
        for at in steps:
            board[0] = at.number
            part = known.get(at.number)
            if part is not None and part.lend is None and part.source is None:  # as in `do`, but at once
                start = perf_counter()
                for call in part.calls:
                    call()
                if part.post is not None and part.sent is not None:
                    part.post(start)
                    posted += part.sent[1]
                elif part.event is not None:
                    timeline.append((part.event, start - begin, perf_counter() - start))
                    continue
            else:
                if is_there is not None and isinstance(at.step, Recv) and not is_there(at.step):
                    mine.stood_since = perf_counter()
                    yield at
                mine.do(at)
            if isinstance(at.step, Send | Collective):
                board[1] = posted + sum(mine.links.values())

    def _begin_at_stop(self, start: Start, given: Sequence[str]) -> Stopover:
        """Watch for cuts, and restore what was saved."""
        stays, program = self.part.stays, self.part.program
        first = () if stays is None else (at for name in given for at in stays.given.get(name, ()))
        stopover = Stopover(self.interpreter, start, program, first, list_carried(stays), self.cuts)
        stopover.restore()
        return stopover

    def _list_left(self, given: Sequence[str], start: Start | None) -> Sequence[DeviceStep]:
        """The steps of a run; of one that goes on from a cut those behind it."""
        if start is None or start.resumed is None:
            return self.part.list_steps(given)
        return [at for at in self.part.program if at.number >= start.resumed.manifest.cut]

    def take_outputs(self, written: Written | None = None) -> list[Array]:
        """The cells of `DevicePart.outputs`; none of those that are written elsewhere from here."""
        found, write = [], None if written is None else written.write
        is_there = type(self.backend).arrive is Backend.arrive  # else cells may be read when all have come
        for k, number, region in self.part.outputs:
            cells = self.interpreter.take(number, region)
            found.append(write(k, region, cells) if write is not None and is_there else cells)
        self.backend.arrive()
        if write is None or is_there:
            return found
        return [write(k, region, cells) for (k, _, region), cells in zip(self.part.outputs, found, strict=True)]

    def leave(self) -> None:
        """Give the device's memory back."""
        self.backend.close([self.memory])


def list_parts(what: Deployed) -> Iterator[DevicePart]:
    """What each device is told."""
    prepared = what.prepared
    work, size = prepared.work, prepared.plan.mesh.size
    arenas = prepared.arenas_nbytes if what.stays is None else what.stays.arenas_nbytes
    programs = prepared.programs if what.stays is None else what.stays.programs
    ops = {node.op: what.ops[node.op] for node in work.nodes.values()}
    blocks = [(k, *block) for k, block in enumerate(b for output in prepared.outputs for b in output.blocks)]
    for device in range(size):
        buffers = {n: buffer for n, buffer in work.buffers.items() if buffer.device == device}
        numbers = {at.number for at in programs[device]}
        mine = replace(
            work,
            buffers=buffers,
            nodes=dict(work.nodes),
            makers=dict(work.makers),
            shapes=dict(work.shapes),
            shards={k: shard for k, shard in work.shards.items() if k in numbers},
        )
        stays = what.stays and _keep_own(what.stays, device)
        outputs = tuple(block for block in blocks if block[1] in buffers)
        payload = prepared.payloads_nbytes[device]  # of placing too
        yield DevicePart(device, size, mine, ops, programs[device], stays, arenas[device], payload, outputs)


def list_placements(steps: Sequence[DeviceStep]) -> list[tuple[str, tuple[Region, ...]]]:
    """The inputs and constants that some steps place from the host, with the regions of each step."""
    copies = [at.step for at in steps if isinstance(at.step, Copy)]
    placed = [(one.tensor, tuple(one.regions)) for one in copies if one.src == HOST and one.piece is None]
    return list(dict.fromkeys(placed))


def list_placed(steps: Sequence[DeviceStep]) -> list[str]:
    """The inputs and constants that some steps place from the host."""
    return list(dict.fromkeys(name for name, _ in list_placements(steps)))


def join_cells(parts: Sequence[DevicePart], cells: Sequence[Sequence[Array]]) -> list[Array]:
    """The cells of all blocks of the outputs, in the order of `ShardPlan.outputs`, of those of each device."""
    found = {
        k: array
        for part, some in zip(parts, cells, strict=True)
        for (k, *_), array in zip(part.outputs, some, strict=True)
    }
    return [found[k] for k in range(len(found))]


def bring_together(members: Mapping[int, Member]) -> Ensemble | None:
    """The loop of a process' devices, by number, whose runs have begun; None where not all know their steps by heart.

    The board of each is memory of three numbers.
    """
    group = {device: (one.interpreter, one.steps) for device, one in members.items()}
    together = find_together(group)
    if together is None:
        return None
    return Ensemble(together, group, {device: memoryview(cast(Any, one.board)) for device, one in members.items()})


def make_portable(error: Exception) -> Exception:
    """An error as it can be sent to another process: itself, or one that says what it was."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _keep_own(stays: Residents, device: int) -> Residents:
    """What is done once, or behind each run, on one device."""

    def mine(steps: Sequence[DeviceStep]) -> tuple[DeviceStep, ...]:
        return tuple(at for at in steps if at.device == device)

    return replace(
        stays,
        placing=mine(stays.placing),
        given={name: mine(steps) for name, steps in stays.given.items()},
        steps=(),
        programs=(),
        carrying=mine(stays.carrying),
    )
