"""The rank's side of a run, which all ranks do together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np
from msgspec.structs import replace

from tapestry_exec.copies import Array
from tapestry_exec.mpi.collectives import Calls, list_calls
from tapestry_exec.mpi.messages import FIRST, Mail, OtherFailed, duplicate
from tapestry_exec.numpy import NumpyBackend
from tapestry_exec.run import (
    BackendUnavailable,
    Deployed,
    GenerationEnded,
    Generations,
    Member,
    PreparedPlan,
    Progress,
    RunResult,
    Savings,
    Start,
    check_alike,
    check_room,
    compare_placed,
    digest_plan,
    find_versions,
    join_cells,
    list_parts,
    load_backend,
    make_portable,
    make_result,
    tuning,
)
from tapestry_plan.steps import Send
from tapestry_sets.limits import check_arguments, quote


class MpiBackend(NumpyBackend):
    """Each device is a rank of an MPI program, in which all ranks call `run` or `deploy` with the same plan.

    Each rank reads of the inputs and constants what its device is given, and gets the whole result. `progress` tells
    each of its own device. An error of one rank is raised by all, also one of its arguments, which no rank runs with; a
    rank that dies ends the program, as MPI does it.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm, optional
        As many ranks as a plan has devices; MPI.COMM_WORLD by default.
    collectives : bool, optional
        Whether the plan's collectives are MPI's: nonblocking calls on a communicator of their group, made with the
        deployment; what `tapestry_exec.mpi.collectives` lists goes in single messages all the same. Bits, bytes
        and events are those of single messages. Not by default: a call is over when all of its parts have come and
        gone, a message when this one has come. On one host under MPICH devices took 1.1 to 1.6 times as long; on
        networks that do collectives in hardware it was never tried.

    Attributes
    ----------
    calls : Counter of str
        The collective calls that this rank has begun, by kind.

    Raises
    ------
    BackendUnavailable
        When mpi4py or an MPI library is not installed.

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
    """

    name = "mpi"

    @check_arguments
    def __init__(self, comm: Any = None, *, collectives: bool = False) -> None:
        super().__init__()
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:  # the second where it finds no library
            raise BackendUnavailable(
                f"the backend 'mpi' needs mpi4py and an MPI library ({error}): pip install 'tapestry-tensor[mpi]'"
            ) from error
        if not isinstance(comm, MPI.Comm | None):
            raise TypeError(f"MpiBackend: comm must be a communicator of mpi4py, not {quote(comm)}; give one, or none")
        self.comm = MPI.COMM_WORLD if comm is None else comm
        self.collectives, self.calls = collectives, Counter[str]()
        self.most_tags = self.comm.Get_attr(MPI.TAG_UB) or 32767

    def check_room(self, nbytes: Sequence[int]) -> None:
        """Raise MemoryError where this rank's arena does not fit; of other ranks nothing is known here."""
        check_room(nbytes[self.comm.rank : self.comm.rank + 1])

    def refuse(self, prepared: PreparedPlan, error: Exception) -> None:
        """Tell the other ranks, which wait for this one, that it does not run."""
        if self.comm.size != prepared.plan.mesh.size:
            return  # which all of them refuse
        mail = Mail(duplicate(self.comm), {})
        mail.exchange({"wrong": f"{type(error).__name__}: {error}"})
        mail.close()

    def begin(self, what: Deployed) -> MpiSession:
        """Begin with the other ranks."""
        size, steps = what.prepared.plan.mesh.size, what.prepared.steps
        if self.comm.size != size:
            raise BackendUnavailable(
                f"backend 'mpi': the plan has {size} devices and the program {self.comm.size} ranks; begin it with "
                f"mpiexec -n {size} python …, or plan for Mesh({self.comm.size})"
            )
        last = FIRST + max((at.step.tag for at in steps if isinstance(at.step, Send)), default=0)
        if last > self.most_tags:
            raise BackendUnavailable(
                f"backend 'mpi': the plan has messages up to tag {last:,}, and this MPI library has {self.most_tags:,} "
                "at most: use another library, or backend='processes'"
            )
        return MpiSession(what, self.comm, self.calls if self.collectives else None)


def _tell_way(told: Counter[str] | None) -> str:
    """How collectives go; what is counted says it."""
    return "single messages" if told is None else "MPI's calls"


class _Refused(Exception):
    """A rank does not run: its arguments are wrong."""


class MpiSession:
    """The device of this rank; `told` counts its collective calls, without it there are none."""

    def __init__(self, what: Deployed, comm: Any, told: Counter[str] | None) -> None:
        self.what, self.plan = what, what.prepared.plan
        self.parts = list(list_parts(what))
        self.part = self.parts[comm.rank]
        self.mail = Mail(duplicate(comm), self.part.list_receipts())
        self.member = Member(self.part, load_backend("numpy"), self.mail)
        self.generations = Generations(0, tuning.MAX_WAIT_SECONDS)
        try:
            self._begin(told)
        except BaseException:
            self.close()
            raise

    def _begin(self, told: Counter[str] | None) -> None:
        ranks = [f"rank {rank}" for rank in range(len(self.parts))]
        found = self.mail.exchange({**find_versions(), "plan": digest_plan(self.plan), "collectives": _tell_way(told)})
        self.mail.finish()
        for name, facts in zip(ranks, found, strict=True):
            if "wrong" in facts:
                raise BackendUnavailable(f"backend 'mpi': {name} does not run: {facts['wrong']}; no rank does")
        check_alike("mpi", found, ranks)
        if told is not None:
            calls = list_calls(self.plan.grouped_steps, [part.program for part in self.parts])
            self.mail.calls = Calls(self.mail.mpi, self.mail.comm, calls, told)
        if self.what.stays is not None:
            placed, _ = self.generations.begin(self.what.prepared, lambda: self._end_together(self._place))
            compare_placed(self.what, placed)

    def close(self) -> None:
        """Give the device back, and the communicator."""
        self.member.leave()
        self.mail.close()

    def _place(self) -> Any:
        return self.member.place(self.what.constants)

    def run(
        self, host: Mapping[str, Array], savings: Savings, progress: Progress | None, timed: bool, is_plain: bool
    ) -> RunResult:
        """Run what is left to do, with these inputs, and constants where none stay."""
        if savings.is_on:  # the first rank says for all which attempt it is
            begin = savings.begin if self.part.device == 0 else lambda: None
            (start, *_), _ = self.generations.begin(self.what.prepared, lambda: self._end_together(begin))
        else:
            start = None
        found = self.generations.run(self.what, host, None, lambda _: self._run(host, progress, start))
        return savings.mark(found, start)

    def refuse(self, error: Exception, is_on: bool) -> None:
        """Tell the other ranks, which run, that this one does not; `is_on` as of the run's savings."""

        def raise_it() -> None:
            raise _Refused(f"{type(error).__name__}: {error}")

        with suppress(BackendUnavailable, TimeoutError):  # which this rank knows better
            if not is_on:
                self.mail.begin_together()
            self._end_together(raise_it)

    def _run(self, host: Mapping[str, Array], progress: Progress | None, start: Start | None) -> RunResult:
        given, begin = sorted(host), 0.0
        total = sum(not isinstance(at.step, Send) for at in self.part.list_steps(given))
        feeds = {**self.what.constants, **host}
        errors = {kind: how for kind, how in np.geterr().items() if how in ("ignore", "warn", "raise", "print")}
        done, last = 0, ""

        def tell(steps: int, node: str) -> None:
            nonlocal done, last
            done, last = done + steps, node
            if progress is not None:
                progress(done, total, node)

        def work() -> Any:
            return self.member.run(feeds, given, begin, errors, None if progress is None else tell, start)

        begin = self.mail.begin_together(0 if start is None or start.resumed is None else start.resumed.manifest.cut)
        answers = self._end_together(work)
        seconds = perf_counter() - begin
        if progress is not None:
            progress(total, total, last)
        counts = [counted for counted, _ in answers]
        cells = join_cells(self.parts, [taken for _, taken in answers])
        links: Counter[tuple[int, int]] = sum((one.links for one in counts), Counter())
        if start is None or start.written is None:
            return make_result(self.plan, cells, counts, seconds, links)
        written = replace(start.written, is_writer=self.part.device == 0)  # of what no rank writes alone
        result = make_result(self.plan, cells, counts, seconds, links, written)
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
        answer: tuple[str, Any, int]
        interrupted: BaseException | None = None
        try:
            answer = "done", work(), -1
        except OtherFailed:
            answer = "stopped", None, self.member.at
        except Exception as error:
            answer = "failed", make_portable(error), self.member.at
            self.mail.tell_failure()
        except BaseException as error:  # Ctrl-C, or sys.exit in a block
            interrupted = error
            answer = "failed", RuntimeError(f"interrupted by {type(error).__name__}"), self.member.at
            self.mail.tell_failure()
        answers = self.mail.exchange((*answer, int(self.member.board[1])))
        sent = [nbytes for *_, nbytes in answers]
        failed = [(rank, raised, step) for rank, (word, raised, step, _) in enumerate(answers) if word == "failed"]
        if failed or any(word == "stopped" for word, *_ in answers):
            self.mail.drain()
        else:
            self.mail.finish()
        if interrupted is not None:
            raise interrupted
        for rank, raised, step in failed:
            if isinstance(raised, _Refused):
                raise BackendUnavailable(f"backend 'mpi': rank {rank} does not run: {raised}; no rank does")
            raise GenerationEnded(rank, step, f"{type(raised).__name__}: {raised}", sent, raised)
        return [value for _, value, _, _ in answers]
