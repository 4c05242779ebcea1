"""The rank's side of a run, which all ranks do together."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, cast

import msgspec
import numpy as np
from msgspec.structs import replace

from tapestry_exec.copies import Array
from tapestry_exec.mpi.collectives import Calls, list_calls
from tapestry_exec.mpi.endings import find_name, tell_obstacle
from tapestry_exec.mpi.gpus import RankDevice, Seen, Watch, deal_gpus, join_aside, name_host, order_by_plan
from tapestry_exec.mpi.messages import FIRST, Mail, OtherFailed, duplicate
from tapestry_exec.mpi.several import Dealing, Team, deal_singly
from tapestry_exec.numpy import NumpyBackend
from tapestry_exec.run import (
    Backend,
    BackendUnavailable,
    Counts,
    Deployed,
    GenerationEnded,
    Generations,
    Member,
    PreparedPlan,
    Progress,
    RunResult,
    Savings,
    Start,
    StepFailed,
    Timed,
    check_alike,
    check_room,
    compare_placed,
    digest_plan,
    find_versions,
    join_cells,
    list_parts,
    load_backend,
    load_from_wing,
    make_portable,
    make_result,
    name_clock,
    share_out,
    tuning,
)
from tapestry_plan.ir import Op
from tapestry_plan.steps import Send
from tapestry_sets.limits import check_arguments, quote, tell_count

WHERE = "backend 'mpi': "
"""How errors begin."""


class MpiBackend(NumpyBackend):
    """Devices are ranks of an MPI program, in which all ranks call `run` or `deploy` with the same plan.

    Where ranks are fewer than devices each has several: neighbors, with about equal work, dealt out by the plan and the
    number of ranks alone. They take turns, and cells between them are copied from where they lie.

    Each rank reads of the inputs and constants what its devices are given, and gets the whole result. `progress` tells
    each of its own devices. An error of one rank is raised by all, also one of its arguments, which no rank runs with;
    a rank that dies ends the program, as MPI does it. One whose program ends, by an error outside of `run`, is missed
    by the others in their next run, a few seconds later, if all ran before, MPI's process manager keeps names, and MPI
    was begun for several threads, as mpi4py does it.

    With ``device="nccl"`` each rank has a GPU, of this host or of others, and what they send each other goes by NCCL:
    ranks of a host are dealt out to its GPUs. Not yet run on a GPU, never on several hosts.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm, optional
        Of as many ranks as a plan has devices, or of fewer; MPI.COMM_WORLD by default.
    collectives : bool, optional
        Whether the plan's collectives are MPI's, where each rank has one device: nonblocking calls on a communicator of
        their group, made with the deployment; what `tapestry_exec.mpi.collectives` lists goes in single messages all
        the same. Bits, bytes and events are those of single messages. Not by default: a call is over when all of its
        parts have come and gone, a message when this one has come. On one host under MPICH devices took 1.1 to 1.6
        times as long; on networks that do collectives in hardware it was never tried.
    device : "numpy", "nccl" or NcclBackend
        What a device is: an arena of its rank's process, or the GPU of a rank of its own; ``NcclBackend([1],
        tf32=True)`` says which one, and has options. On GPUs nothing is saved (`checkpoints`), the plan's collectives
        are NCCL's, and a run without a deployment begins NCCL anew.

    Attributes
    ----------
    calls : Counter of str
        The collective calls that this rank has begun, by kind.

    Raises
    ------
    BackendUnavailable
        When mpi4py or an MPI library is not installed; when a plan is run, on all ranks and before its first step, also
        where ranks are more than devices, or fewer with GPUs or collectives, where one of them has no CuPy, NCCL or
        GPU, or two have the same GPU; when the program of a rank that is waited for has ended; and where MPI has not
        begun, or has ended.

    Examples
    --------
    A program that is begun by ``mpiexec -n 2 python program.py``, or by ``mpiexec -n 2 python -m tapestry_exec.mpi
    program.py``, which ends all ranks when one ends with an error, and shows what the first one prints:

    >>> program = '''
    ... import numpy as np
    ... from tapestry_exec import run
    ... from tapestry_plan import Graph, Mesh, ops, plan
    ... g = Graph()
    ... _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"), "y")
    ... p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
    ... print(run(p, {"x": np.ones((4, 6), np.float32)}, backend="mpi").nbytes_by_link)  # {(0, 1): 24, (1, 0): 24}
    ... '''

    With ``backend=MpiBackend(device="nccl")`` the same program runs on GPUs: ``mpiexec -n 2 …`` on two of one host,
    ``mpiexec -hosts a,b -ppn 1 -n 2 …`` on one of each of two (as MPICH has it; ``--host a:1,b:1`` in Open MPI).
    """

    name = "mpi"

    @check_arguments
    def __init__(self, comm: Any = None, *, collectives: bool = False, device: Any = "numpy") -> None:
        super().__init__()
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:  # the second where it finds no library
            raise BackendUnavailable(
                f"the backend 'mpi' needs mpi4py and an MPI library ({error}): pip install 'tapestry-tensor[mpi]'"
            ) from error
        if not isinstance(comm, MPI.Comm | None):
            raise TypeError(f"MpiBackend: comm must be a communicator of mpi4py, not {quote(comm)}; give one, or none")
        _check_mpi()
        if comm is not None and (comm == MPI.COMM_NULL or comm.Is_inter()):
            what = "MPI.COMM_NULL" if comm == MPI.COMM_NULL else "one between two groups"
            raise ValueError(
                f"MpiBackend: comm must be a communicator of one group, not {what}; have ranks run that are in one, or "
                "merge groups by comm.Merge()"
            )
        self.comm = MPI.COMM_WORLD if comm is None else comm
        self.collectives, self.calls = collectives, Counter[str]()
        self.given: Any = None if device == "numpy" else load_backend("nccl") if device == "nccl" else device
        """The backend of GPUs, of which each rank has one."""
        if self.given is not None and not isinstance(self.given, load_from_wing("NcclBackend")):
            raise ValueError(
                f"MpiBackend: device is {quote(device)}; give 'numpy', 'nccl', or a NcclBackend with options"
            )
        if self.given is not None and collectives:
            raise ValueError("MpiBackend: collectives are NCCL's with a device of its own; give one of the two")
        self.saves = self.given is None
        self.is_first = self.comm.rank == 0
        self.most_tags = self.comm.Get_attr(MPI.TAG_UB) or 32767

    def check_room(self, nbytes: Sequence[int]) -> None:
        """Raise MemoryError where this rank's arena does not fit; of other ranks nothing is known here."""
        _check_mpi()
        # A GPU is asked when it is there, and where a rank has several devices the plan says which, as it begins.
        if self.given is None and self.comm.size >= len(nbytes):
            check_room(nbytes[self.comm.rank : self.comm.rank + 1])

    def check(self, ops: Mapping[str, Op], runs: Iterable[tuple[Op, int]]) -> None:
        """Refuse, before the first step, operators that do not run on GPUs, where ranks have some."""
        if self.given is not None:
            self.given.check(ops, runs)

    def refuse(self, error: Exception) -> None:
        """Tell the other ranks, which wait for this one and may have other arguments, that it does not run."""
        if tell_obstacle():
            return
        with suppress(BackendUnavailable, TimeoutError):  # others do not come; this rank raises what it refuses
            mail = Mail(duplicate(self.comm), {})
            try:
                mail.exchange({"wrong": _tell_error(error)})
            finally:
                mail.close()

    def _deal(self, prepared: PreparedPlan) -> Dealing:
        """The devices of each rank, by the plan and the number of ranks alone: all find the same."""
        size, ranks, why = prepared.plan.mesh.size, self.comm.size, ""
        has = f"the plan has {tell_count(size, 'device')} and the program {tell_count(ranks, 'rank')}"
        if ranks == size:
            return deal_singly(size)
        if ranks > size:
            why = "each is to have a device"
        elif self.given is not None:
            why = "with device='nccl' each rank has one GPU"
        elif self.collectives:
            why = "with collectives=True each rank has one device"
        if why:
            raise BackendUnavailable(
                f"backend 'mpi': {has}, and {why}; begin it with mpiexec -n {size} python …, or plan for Mesh({ranks})"
            )
        return Dealing(share_out(prepared.seconds, ranks))

    def begin(self, what: Deployed) -> MpiSession:
        """Begin with the other ranks."""
        _check_mpi()
        size = what.prepared.plan.mesh.size
        try:
            dealing = self._deal(what.prepared)
            self._check_tags(what.prepared, dealing)
            gpu = None if self.given is None else load_from_wing("NcclRank")(self.given, self.comm.rank, size)
            if self.comm.size < size:
                held = count_held(what)
                check_room([held[device] for device in dealing.groups[self.comm.rank]])
        except (BackendUnavailable, ValueError, MemoryError) as error:
            self.refuse(error)
            raise
        return MpiSession(what, self.comm, dealing, self.calls if self.collectives else None, gpu)

    def _check_tags(self, prepared: PreparedPlan, dealing: Dealing) -> None:
        tag = max((at.step.tag for at in prepared.steps if isinstance(at.step, Send)), default=0)
        last = FIRST + (tag + 1) * dealing.most**2 - 1
        if last > self.most_tags and self.given is None:
            raise BackendUnavailable(
                f"backend 'mpi': the plan has messages up to tag {tag:,}, which ranks of "
                f"{tell_count(dealing.most, 'device')} number up to {last:,}, and this MPI library has "
                f"{self.most_tags:,} at most: use more ranks, another library, or backend='processes'"
            )


def _check_mpi() -> None:
    """Raise where MPI is not there to be asked: its calls would end the program."""
    obstacle = tell_obstacle()
    if obstacle:
        raise BackendUnavailable(f"{WHERE}{obstacle}")


def _tell_error(error: BaseException) -> str:
    """An error of this rank as others say it, who name the backend themselves."""
    return f"{type(error).__name__}: {str(error).removeprefix(WHERE)}"


def _tell_way(told: Counter[str] | None) -> str:
    """How collectives go; what is counted says it."""
    return "single messages" if told is None else "MPI's calls"


def count_held(what: Deployed) -> Sequence[int]:
    """By device: bytes of its arena, and of what it holds beside that."""
    if what.stays is None:
        return what.prepared.arenas_nbytes
    return [a + b for a, b in zip(what.stays.arenas_nbytes, what.stays.nbytes_held, strict=True)]


class _Refused(Exception):
    """A rank does not run: its arguments are wrong."""


class CountsTold:
    """What ranks tell each other of what they counted, as bytes: pickled it takes ten times as long.

    Events of runs by heart are the same each time, but for their times: a rank leaves out what it told in the run
    before, and the others put it back.
    """

    def __init__(self) -> None:
        self.mine: dict[int, tuple[bytes, bytes]] = {}
        """By device of this rank."""
        self.known: dict[int, tuple[bytes, bytes]] = {}
        """By device."""

    def forget(self) -> None:
        """Tell all events in the next run."""
        self.mine.clear()
        self.known.clear()

    def write(self, device: int, begin: float, error: float, counts: Counts) -> bytes:
        """What a device of this rank counted, in a run that began at a time, known but for an error."""
        _, (links, *numbers, timed, told) = counts.__reduce__()
        before, now = self.mine.get(device), (timed.events, told)
        self.mine[device] = now
        if before == now:
            timed, told = timed._replace(events=b""), b""
        pairs = [(*link, nbytes) for link, nbytes in links.items()]
        return msgspec.msgpack.encode((begin, error, pairs, numbers, *timed, told))

    def read(self, device: int, packed: Any) -> tuple[float, float, Counts]:
        """What was written of a device."""
        begin, error, pairs, numbers, events, times, told = msgspec.msgpack.decode(packed)
        if events:
            self.known[device] = events, told
        else:
            events, told = self.known[device]
        links = Counter({(src, dst): nbytes for src, dst, nbytes in pairs})
        placed, copied, spilled, flop, peak = numbers
        return begin, error, Counts(links, placed, copied, spilled, flop, peak, Timed(events, times), told)


class MpiSession:
    """The devices of this rank; `told` counts its collective calls, without it there are none; `gpu` makes it a GPU."""

    def __init__(self, what: Deployed, comm: Any, dealing: Dealing, told: Counter[str] | None, gpu: Any = None) -> None:
        self.what, self.plan, self.dealing, self.gpu = what, what.prepared.plan, dealing, gpu
        self.rank, self.parts = comm.rank, list(list_parts(what))
        self.own = [self.parts[device] for device in dealing.groups[self.rank]]
        """Of the devices of this rank."""
        self.mail = Mail(duplicate(comm), dealing.list_receipts(self.own) if gpu is None else {}, dealing)
        self.told = CountsTold()
        self.dtypes = [[part.work.buffers[number].dtype for _, number, _ in part.outputs] for part in self.parts]
        self.team: Team | None = None
        self.generations = Generations(0, tuning.MAX_WAIT_SECONDS)
        try:
            self._begin(told)
        except BaseException:
            self.close()
            raise

    def _begin(self, told: Counter[str] | None) -> None:
        ranks = [f"rank {rank}" for rank in range(len(self.dealing.groups))]
        more = {"plan": digest_plan(self.plan), "collectives": _tell_way(told), **self._look_around()}
        more["outputs"] = ", ".join(one.name for one in self.what.prepared.outputs)
        more["bell"], more["name"] = self.mail.bell.tell(), find_name() if len(ranks) > 1 else ""
        found = self.mail.exchange({**find_versions(), **more, "clock": name_clock()})
        self.mail.finish()
        seen = [facts.pop("seen", None) for facts in found]
        clocks = [facts.pop("clock", "") for facts in found]
        bells = [facts.pop("bell", ("", [])) for facts in found]
        self.mail.endings.meet([facts.pop("name", "") for facts in found])
        self.mail.is_one_clock = len(set(clocks)) == 1
        self.mail.bell.meet(self.rank, bells, clocks)
        for name, facts in zip(ranks, found, strict=True):
            if "wrong" in facts:
                raise BackendUnavailable(f"backend 'mpi': {name} does not run: {facts['wrong']}; no rank does")
        check_alike("mpi", found, ranks)
        bell = self.mail.bell
        bell.sees_all = all(self.mail.exchange(bool(bell.mine.place) and len(bell.pages) == len(ranks) - 1))
        if self.gpu is None:
            self.team = Team.of(self.own, self.dealing, self.mail)
        else:
            self._begin_on_gpu(self.gpu, seen)
        if told is not None:
            calls = list_calls(self.plan.grouped_steps, [part.program for part in self.parts])
            self.mail.calls = Calls(self.mail.mpi, self.mail.comm, calls, told)
        if self.what.stays is not None:
            placed, _ = self.generations.begin(self.what.prepared, lambda: self._end_together(self._place))
            compare_placed(self.what, [nbytes for some in placed for nbytes in some])

    def _look_around(self) -> dict[str, Any]:
        """What a rank tells of its device."""
        if self.gpu is None:
            return {"devices": "NumPy"}
        try:
            if self.mail.mpi.Query_thread() < self.mail.mpi.THREAD_SERIALIZED:
                raise BackendUnavailable("MPI was begun for one thread; leave mpi4py.rc.thread_level at 'multiple'")
            return {"devices": "GPUs", **self.gpu.tell(), "seen": Seen(name_host(), *self.gpu.list_gpus())}
        except Exception as error:
            return {"devices": "GPUs", "wrong": _tell_error(error)}

    def _begin_on_gpu(self, gpu: RankDevice, seen: Sequence[Seen]) -> None:
        (part,) = self.own
        gpu.gpu = deal_gpus(seen)[self.rank]
        gpu.receipts = part.list_receipts()
        part = self.own[0] = order_by_plan(self.what, part)

        def open_it() -> None:
            self.team = Team({part.device: Member(part, cast("Backend[Any]", gpu), gpu)})
            gpu.where = lambda: self._step

        self._agree(open_it)
        self._join(gpu)

    def _join(self, gpu: RankDevice) -> None:
        """Begin NCCL with all ranks: with the first run, and after one that failed."""
        number, *_ = self._agree(gpu.make_id if self.rank == 0 else lambda: None)
        self._agree(lambda: join_aside(gpu, number, lambda done: self.mail.wait_for(done, "all ranks to join NCCL")))

    def _agree(self, work: Any) -> list[Any]:
        """What all give, before the first step.

        Raises
        ------
        BackendUnavailable
            On all ranks, when one raised.
        """
        try:
            return self._end_together(work)
        except GenerationEnded as ended:
            raise BackendUnavailable(
                f"backend 'mpi': rank {ended.device} does not run: {ended.why}; no rank does"
            ) from ended.cause

    @property
    def _step(self) -> int:
        """The plan's step that this rank is at; -1 before the first one."""
        return -1 if self.team is None else self.team.step

    def close(self) -> None:
        """Give the devices back, and the communicator."""
        if self.gpu is not None:
            self.gpu.give_up()
        if self.team is not None:
            self.team.leave()
        self.mail.close()

    def _place(self) -> list[int]:
        assert self.team is not None, "all have begun"
        return self.team.place(self.what.constants)

    def _begin_together(self, cut: int) -> float:
        """Wait for all ranks; the time by this one's clock."""
        if self.gpu is not None and not self.gpu.is_joined:
            self._join(self.gpu)
        return self.mail.begin_together(cut)

    def run(
        self, host: Mapping[str, Array], savings: Savings, progress: Progress | None, timed: bool, is_plain: bool
    ) -> RunResult:
        """Run what is left to do, with these inputs, and constants where none stay."""
        _check_mpi()
        if self.mail.lost:
            raise BackendUnavailable(
                f"backend 'mpi': this deployment ended with a run before, in which {self.mail.lost}; deploy again, "
                "with all ranks"
            )
        if savings.is_on:  # the first rank says for all which attempt it is
            begin = savings.begin if self.rank == 0 else lambda: None
            (start, *_), _ = self.generations.begin(self.what.prepared, lambda: self._end_together(begin))
        else:
            start = None
        found = self.generations.run(self.what, host, None, lambda _: self._run(host, progress, start))
        return savings.mark(found, start)

    def refuse(self, error: Exception, is_on: bool) -> None:
        """Tell the other ranks, which run, that this one does not; `is_on` as of the run's savings."""

        def raise_it() -> None:
            raise _Refused(_tell_error(error))

        if self.mail.lost or tell_obstacle():
            return
        with suppress(BackendUnavailable, TimeoutError):  # which this rank knows better
            if not is_on:
                self._begin_together(0)
            self._end_together(raise_it)

    def _run(self, host: Mapping[str, Array], progress: Progress | None, start: Start | None) -> RunResult:
        given, begin, total = sorted(host), 0.0, 0
        if progress is not None:
            total = sum(not isinstance(at.step, Send) for part in self.own for at in part.list_steps(given))
        feeds = {**self.what.constants, **host}
        errors = {kind: how for kind, how in np.geterr().items() if how in ("ignore", "warn", "raise", "print")}
        done, last = 0, ""

        def tell(steps: int, node: str) -> None:
            nonlocal done, last
            done, last = done + steps, node
            if progress is not None:
                progress(done, total, node)

        def work() -> Any:
            assert self.team is not None, "all have begun"
            found = self.team.run(feeds, given, begin, errors, None if progress is None else tell, start)
            return [
                (
                    self.told.write(part.device, begin, self.mail.clock_error, counts),
                    [pickle.PickleBuffer(one.reshape(-1).view(np.uint8).data) for one in taken],
                )
                for part, (counts, taken) in zip(self.own, found, strict=True)
            ]

        begin = self._begin_together(0 if start is None or start.resumed is None else start.resumed.manifest.cut)
        answers = [one for some in self._end_together(work) for one in some]  # by device, as those of a rank follow
        seconds = perf_counter() - begin
        if progress is not None:
            progress(total, total, last)
        try:
            told = [self.told.read(device, packed) for device, (packed, _) in enumerate(answers)]
        except BaseException as ended:  # of later runs it would lack what others do not tell again
            self.mail.lose(ended)
            raise
        began, errors_told, counts = zip(*told, strict=True)
        error = max(began) - min(began) if self.mail.is_one_clock else max(errors_told)
        cells = join_cells(
            self.parts,
            [list(map(np.frombuffer, some, dtypes)) for (_, some), dtypes in zip(answers, self.dtypes, strict=True)],
        )
        links = {link: nbytes for one in counts for link, nbytes in one.links.items() if nbytes}
        if start is None or start.written is None:
            return make_result(self.what.prepared, cells, counts, seconds, links, clock_error=error)
        written = replace(start.written, is_writer=self.rank == 0)  # of what no rank writes alone
        result = make_result(self.what.prepared, cells, counts, seconds, links, written, clock_error=error)
        self.mail.exchange(None)  # so that all read what was written
        self.mail.finish()
        return result

    def _end_together(self, work: Any) -> list[Any]:
        """Do this rank's share; what all give, by rank.

        Raises
        ------
        GenerationEnded
            On all ranks, when one raised.
        """
        answer: tuple[str, Any, int]  # with the step of the device whose turn it is
        interrupted: BaseException | None = None
        watch = Watch(self.gpu, self.mail.look) if self.gpu is not None and self.gpu.is_joined else None
        try:
            answer = "done", work() if watch is None else watch.over(work), -1
        except OtherFailed:
            answer = "stopped", None, self._step
        except Exception as error:
            found = self._step if watch is None or watch.step < 0 else watch.step
            answer = "failed", make_portable(error), found
            self.mail.tell_failure()
        except BaseException as error:  # Ctrl-C, or sys.exit in a block
            interrupted = error
            answer = "failed", RuntimeError(f"interrupted by {type(error).__name__}"), self._step
            self.mail.tell_failure()
        device, mine = (self.own[0].device, [0] * len(self.own)) if self.team is None else self.team.tell()
        answers = self.mail.exchange((*answer, device, mine))
        sent = [nbytes for *_, some in answers for nbytes in some]
        failed = [(rank, *rest) for rank, (word, *rest, _) in enumerate(answers) if word == "failed"]
        if failed or any(word == "stopped" for word, *_ in answers):
            if self.gpu is not None:
                self.gpu.give_up()
                with suppress(Exception):  # what ended the run is what matters
                    self.gpu.pause()
            self.told.forget()  # as all ranks do, also one that refused to run
            self.mail.drain()
        else:
            self.mail.finish()
        if interrupted is not None:
            raise interrupted
        for rank, raised, step, device in failed:
            if isinstance(raised, _Refused):
                raise BackendUnavailable(f"backend 'mpi': rank {rank} does not run: {raised}; no rank does")
            why = str(raised) if isinstance(raised, StepFailed) else _tell_error(raised)
            raise GenerationEnded(device, step if step >= 0 else None, why, sent, raised)
        return [value for _, value, *_ in answers]
