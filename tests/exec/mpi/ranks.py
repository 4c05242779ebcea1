"""What the ranks of MPI programs do in the tests: ``mpiexec -n 4 python -m tests.exec.mpi.ranks WHAT …``."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from unittest import mock

import numpy as np
from mpi4py import MPI

from tapestry_exec import BackendUnavailable, Checkpoints, InvalidPlan, MpiBackend, StepFailed, deploy, run
from tapestry_exec.copies import pack, unpack
from tapestry_exec.mpi import endings, messages
from tapestry_exec.mpi.messages import Mail
from tapestry_exec.run import PreparedPlan, list_placements, name_clock, tuning
from tapestry_plan import Graph, Mesh, Placed, ShardPlan, least_memory, ops, plan
from tapestry_plan.steps import spill
from tests.exec.own_ops import Later, as_relu, die_first, raise_first
from tests.exec.run.test_deploy import training_step
from tests.exec.run.test_side_by_side import made
from tests.exec.small_networks import Case, exchange_rows, read_cases
from tests.ways_of_running import assert_same

WORLD = MPI.COMM_WORLD


def refuse(error: type[BaseException] | tuple[type[BaseException], ...], words: str, do: Callable[[], object]) -> None:
    """Assert that something raises an error with these words, on every rank."""
    try:
        do()
    except error as raised:
        assert re.search(words, str(raised)), f"{raised} has not {words}"
    else:
        raise AssertionError(f"nothing was raised, where {words} was to be said")


@contextmanager
def ranks_of(size: int) -> Iterator[Any]:
    """A communicator of the first ranks; none on the others."""
    comm = WORLD.Split(0 if WORLD.rank < size else MPI.UNDEFINED, WORLD.rank)
    yield comm
    if comm != MPI.COMM_NULL:
        comm.Free()
    met = WORLD.Ibarrier()
    while not met.Test():  # in `Split` the others would keep a core each
        time.sleep(1e-3)


def run_networks(file: str) -> None:
    """Each on as many ranks as its plan has devices."""
    for case in read_cases(Path(file)):
        with ranks_of(case.plan.mesh.size) as comm:
            if comm != MPI.COMM_NULL:
                for backend in MpiBackend(comm), MpiBackend(comm, collectives=True):
                    found = run(case.plan, case.inputs, backend=backend)
                    assert_same(found, case.wanted)
                    assert found.nbytes_by_link == case.plan.nbytes_by_link
                    assert backend.calls == (count_collectives(case.plan, comm.rank) if backend.collectives else {})
        if WORLD.rank == 0:
            print(case.name, "has the bits of one loop", flush=True)


def state_errors() -> None:
    """Ranks that read one clock tell by how much they began apart; others state no less than that."""
    p, inputs = made(WORLD.size)
    ahead = find_ahead() if len(set(WORLD.allgather(name_clock()))) > 1 else 0.0
    with deploy(p, backend="mpi") as placed:
        session: Any = placed._session
        for is_one_clock in (True, False) if session.mail.is_one_clock else (False,):
            session.mail.is_one_clock = is_one_clock
            for _ in range(10):
                found = placed.run(inputs)
                began = WORLD.allgather(session.mail.begin - ahead)
                apart = max(began) - min(began)
                assert found.clock_error == apart if is_one_clock else apart <= found.clock_error < 10


def find_ahead() -> float:
    """By how much this rank's clock is ahead of the time of day, which hosts made of namespaces have in common."""
    found = list[tuple[float, float]]()
    for _ in range(100):
        begin, now, end = time.perf_counter(), time.time(), time.perf_counter()
        found.append((end - begin, begin - now))
    return min(found)[1]


def count_collectives(p: ShardPlan, rank: int) -> Counter[str]:
    """The collectives of several copies that a device takes part in."""
    return Counter(one.kind for one in p.collectives() if rank in one.group and len(one.at) > 1)


def call_together(folder: str) -> None:
    """Collectives as calls of MPI, on 2 to 4 ranks: often, with parts that are uneven, saved and gone on from."""
    kinds = set[str]()
    for size in range(2, WORLD.size + 1):
        comm = WORLD.Split(0 if WORLD.rank < size else MPI.UNDEFINED, WORLD.rank)
        if comm == MPI.COMM_NULL:
            continue
        for name, (p, inputs) in list_exchanges(size).items():
            backend, told = MpiBackend(comm, collectives=True), count_collectives(p, comm.rank)
            wanted = run(p, inputs, backend="serial")
            with deploy(p, backend=backend) as placed, deploy(p, backend="serial") as other:
                for _ in range(3):
                    found = placed.run(inputs)
                    assert_same(found, other.run(inputs))
                    assert found.nbytes_by_link == p.nbytes_by_link
            assert backend.calls == Counter({kind: 3 * count for kind, count in told.items()}), (name, size)
            assert bool(backend.calls) == (name != "uneven"), (name, size)
            kinds |= backend.calls.keys()
            if name == "one":
                continue  # which has one stage
            stage = p.stages[len(p.stages) // 2].node
            there = f"{folder}/{name}{size}"
            run(p, inputs, backend=backend, checkpoints=Checkpoints(there, after=[stage]))
            for way in (backend, MpiBackend(comm), "serial"):  # whoever saved it
                again = run(p, inputs, backend=way, resume=there)
                assert again.outputs["y"].tobytes() == wanted.outputs["y"].tobytes() and again.resumed_at
        comm.Free()
    if WORLD.rank == 0:
        assert kinds == {"all_gather", "all_to_all", "reduce_scatter", "broadcast"}, kinds


def list_exchanges(size: int) -> dict[str, tuple[ShardPlan, dict[str, np.ndarray]]]:
    """Plans by what their devices exchange."""
    g, x = Graph(), np.random.default_rng(2).random((4 * size + 1, 6), np.float32)
    g.output(ops.tanh(ops.relu(g.input("x", x.shape), name="rows").T, name="columns"), "y")
    uneven = plan(g, Mesh(size), fix={"rows": {"i0": size}, "columns": {"i0": min(size, 2)}})
    found = {"rows": exchange_rows(size, 3), "sums": made(size), "uneven": (uneven, {"x": x})}
    if size > 2:
        h, rng = Graph(), np.random.default_rng(3)
        h.output(ops.matmul(h.input("x", (8 * size, 8)), h.input("w", (8, 6)), name="each"), "y")
        here = {"w": Placed({0: np.s_[:]})}
        feeds = {"x": rng.random((8 * size, 8), np.float32), "w": rng.random((8, 6), np.float32)}
        found["one"] = plan(h, Mesh(size), fix={"each": {"m": size}}, layout=here), feeds
    return found


def fail_within() -> None:
    """One that raises while others have begun calls is named, and so is one that is late; the next run is right."""
    p, inputs = exchange_rows(WORLD.size, 3)
    backend, wanted = MpiBackend(collectives=True), run(p, inputs, backend="serial")
    with deploy(p, backend=backend, ops=as_relu(Later(2, "raise"))) as placed:
        for _ in range(3):
            refuse(
                StepFailed,
                r"step \d+ \(compute 'rows1' on device 0, .*FloatingPointError: too hot",
                lambda: placed.run(inputs),
            )
            assert placed.run(inputs).outputs["y"].tobytes() == wanted.outputs["y"].tobytes()
    assert backend.calls["all_gather"] > 6
    patience, tuning.MAX_WAIT_SECONDS = tuning.MAX_WAIT_SECONDS, 1.0
    with deploy(p, backend=backend, ops=as_relu(Later(2, "doze"))) as placed:
        refuse(
            StepFailed,
            r"waited 1 s for what device \d sends under tag \d+ in the all_gather of devices 0, 1, 2, 3, of which",
            lambda: placed.run(inputs),
        )
        tuning.MAX_WAIT_SECONDS = patience
        assert placed.run(inputs).outputs["y"].tobytes() == wanted.outputs["y"].tobytes()


def run_often() -> None:
    """Constants and state stay, plans spill, progress is told; NumPy's errors are handled as the caller says."""
    p, inputs = made(WORLD.size)
    wanted = run(p, inputs, backend="serial")
    with deploy(p, backend="mpi") as placed, deploy(p, backend="serial") as other:
        for _ in range(3):
            assert_same(placed.run(inputs), other.run(inputs))
    tight = spill(p, max(least_memory(p)))
    assert_same(run(tight, inputs, backend="mpi"), run(tight, inputs, backend="serial"))
    g, carry, feeds = training_step()
    q = plan(g, Mesh((WORLD.size,)), tie=carry)
    for asked in (None, list(g.outputs)[-1:]):
        with (
            deploy(q, backend="mpi", carry=carry, outputs=asked) as placed,
            deploy(q, backend="serial", carry=carry, outputs=asked) as other,
        ):
            for k in range(4):
                given = feeds if k == 0 else {"x": feeds["x"]}
                assert_same(placed.run(given), other.run(given))
    seen: list[tuple[int, int, str]] = []
    assert_same(run(p, inputs, backend="mpi", progress=lambda *at: seen.append(at)), wanted)
    assert seen[-1][0] == seen[-1][1] and "act" in {name for _, _, name in seen}
    assert_same(run(p, {"x": leave_others(p, inputs["x"], [WORLD.rank])}, backend="mpi"), wanted)


def leave_others(p: ShardPlan, x: np.ndarray, devices: Sequence[int]) -> np.ndarray:
    """Of an input what these devices are given: no other cell is read by their rank."""
    mine = np.full_like(x, np.nan)
    for device in devices:
        for name, regions in list_placements(PreparedPlan(p).programs[device]):
            if name == "x":
                unpack(pack(x, (0, 0), regions), mine, (0, 0), regions)
    assert np.isnan(mine).any()
    return mine


def go_on(folder: str) -> None:
    """What ranks saved they go on from, and so does one loop; a deployment has its state."""
    p, inputs = made(WORLD.size)
    wanted = run(p, inputs, backend="serial").outputs["y"].tobytes()
    for number, stage in enumerate(p.stages[::3]):
        there = f"{folder}/{number}"
        run(p, inputs, backend="mpi", checkpoints=Checkpoints(there, after=[stage.node]))
        for backend in ("mpi", "serial"):
            found = run(p, inputs, backend=backend, resume=there)
            assert found.outputs["y"].tobytes() == wanted and found.resumed_at
    g, carry, feeds = training_step()
    q = plan(g, Mesh((WORLD.size,)), tie=carry)
    with deploy(q, backend="mpi", carry=carry) as placed:
        placed.run(feeds)
        last = placed.run({"x": feeds["x"]}, checkpoints=Checkpoints(f"{folder}/state", seconds=1e-9))
    with deploy(q, backend="mpi", carry=carry) as placed:
        found = placed.run({"x": feeds["x"]}, resume=f"{folder}/state")
        assert all(found.outputs[name].tobytes() == last.outputs[name].tobytes() for name in carry)
    refuse(ValueError, "is of another plan", lambda: run(p, inputs, backend="mpi", resume=f"{folder}/state"))


def fail_together() -> None:
    """A step that raises on one rank is named by all, and the next run is as if nothing had been."""
    p, inputs = made(WORLD.size)
    backend = MpiBackend()
    for _ in range(3):
        refuse(
            StepFailed,
            r"step \d+ \(compute 'act' on device 0, .*FloatingPointError: too hot",
            lambda: run(p, inputs, backend=backend, ops=as_relu(raise_first)),
        )
        assert_same(run(p, inputs, backend=backend), run(p, inputs, backend="serial"))


class Moody:
    """What `relu` gives; it raises while it is told to, of blocks that begin at some rows, or of all."""

    __name__ = "moody"
    raises = False
    rows: Sequence[int] | None = None

    def __call__(self, xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        if self.raises and (self.rows is None or shard.index.start[0] in self.rows):
            raise FloatingPointError("too hot")
        xp.maximum(inputs[0], 0, out=outputs[0])


def fail_by_heart() -> None:
    """Whichever ranks raise in runs that are known by heart, or do not run: no message is left, and the next is right.

    Also where some ranks of a program have others on their machine, and some have not, nor one clock.
    """
    p, inputs = made(WORLD.size)
    with deploy(p, backend="serial") as other:
        wanted, chosen, op = other.run(inputs), np.random.default_rng(6), Moody()
    real = WORLD.allgather(name_clock())
    for hosts in ((0,) * WORLD.size, (0, 1, 1, 2)):
        with mock.patch("tapestry_exec.mpi.backend.name_clock", lambda hosts=hosts: f"host {hosts[WORLD.rank]}"):
            placed = deploy(p, backend="mpi", ops=as_relu(op))
        mail = cast(Any, placed)._session.mail
        machines = list(zip(hosts, real, strict=True))
        assert mail.bell.sees_all == (len(set(machines)) == 1)
        assert sorted(mail.bell.pages) == [
            rank for rank, host in enumerate(machines) if host == machines[WORLD.rank] and rank != WORLD.rank
        ]
        for turn in range(32):
            raising = set[int]()
            if turn % 8 == 6:
                raising = {0, *np.flatnonzero(chosen.random(WORLD.size) < 0.5).tolist()} - {turn // 8}
            op.raises = WORLD.rank in raising
            if raising:
                refuse(StepFailed, f"on device [{raising}],.*too hot", partial(placed.run, inputs))
            elif turn % 8 == 4:  # one does not run
                wrong = inputs["x"][:3] if WORLD.rank == turn // 8 else inputs["x"]
                refuse((ValueError, BackendUnavailable), r"has shape \(3, 24\)", partial(placed.run, {"x": wrong}))
            else:
                assert_same(placed.run(inputs), wanted)
        member = cast(Any, placed)._session.team.members[WORLD.rank]
        assert member.interpreter.by_heart and mail.outgoing and not mail.sent
        WORLD.Barrier()
        assert not mail.comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)
        assert not any(map(mail.bell.count_untaken, mail.bell.pages))
        placed.close()


def share_ranks(file: str) -> None:
    """Ranks with several devices, evenly and not, do all that those with one do: often, saved, failing, refused."""
    step = training_step()  # on all ranks, as it draws
    for size in 2, 3:
        with ranks_of(size) as comm:
            if comm != MPI.COMM_NULL:
                share_rank(comm, read_cases(Path(file)), f"{file}.shared{size}")
                keep_state(comm, *step, f"{file}.state{size}")
                fail_on_one(comm)


def share_rank(comm: Any, cases: Sequence[Case], folder: str) -> None:
    """Of several devices, one loop knows the steps by heart behind the second run."""
    backend, alone = MpiBackend(comm), {2: {(0, 1), (2, 3)}, 3: {(0,), (1, 2), (3,)}}
    for name, p, inputs, wanted in cases:
        with deploy(p, backend=backend) as placed, deploy(p, backend="serial") as other:
            for _ in range(4):
                found = placed.run(inputs)
                assert_same(found, other.run(inputs))
                assert found.nbytes_by_link == p.nbytes_by_link and found.clock_error < 10
            session = cast(Any, placed)._session
            first = next(iter(session.team.members.values()))
            assert set(session.dealing.groups) == alone[comm.size] and first.interpreter.rehearsal.together, name
            seen: list[tuple[int, int, str]] = []
            assert_same(placed.run(inputs, progress=lambda *at, seen=seen: seen.append(at)), other.run(inputs))
            assert seen[-1][0] == seen[-1][1] and all(a <= b for (a, *_), (b, *_) in pairwise(seen))
        assert_same(run(p, inputs, backend=backend), wanted)
        if not name.startswith("sums"):
            continue  # whose devices have more to save
        stage = p.stages[len(p.stages) // 2].node
        assert_same(run(p, inputs, backend=backend, checkpoints=Checkpoints(f"{folder}.{name}", after=[stage])), wanted)
        for way in (backend, "serial"):
            again = run(p, inputs, backend=way, resume=f"{folder}.{name}")
            assert again.resumed_at and all(
                again.outputs[one].tobytes() == array.tobytes() for one, array in wanted.outputs.items()
            )
        comm.Barrier()  # one may be resumed from while it is read elsewhere, but not saved to
    p, inputs = made(4)
    tight = spill(p, max(least_memory(p)))
    assert_same(run(tight, inputs, backend=backend), run(tight, inputs, backend="serial"))
    odd, fed = made(7)
    assert_same(run(odd, fed, backend=backend), run(odd, fed, backend="serial"))
    arenas, groups, sums = PreparedPlan(p).arenas_nbytes, sorted(alone[comm.size]), list[Sequence[int]]()
    with mock.patch("tapestry_exec.mpi.backend.check_room", sums.append):
        run(p, inputs, backend=backend)
    assert sums == [[arenas[device] for device in groups[comm.rank]]]
    mine = leave_others(p, inputs["x"], groups[comm.rank])
    assert_same(run(p, {"x": mine}, backend=backend), run(p, inputs, backend="serial"))
    with mock.patch("tapestry_exec.mpi.backend.check_room", side_effect=MemoryError("full") if not comm.rank else None):
        words = "full" if not comm.rank else "rank 0 does not run: MemoryError: full; no rank does"
        refuse((MemoryError, BackendUnavailable), words, lambda: run(p, inputs, backend=backend))
    assert_same(run(p, inputs, backend=backend), run(p, inputs, backend="serial"))


def keep_state(comm: Any, g: Graph, carry: dict[str, str], feeds: dict[str, np.ndarray], folder: str) -> None:
    """A deployment hands results on, brings some outputs, and goes on with what it saved."""
    q, backend = plan(g, Mesh((4,)), tie=carry), MpiBackend(comm)
    for asked in (list(g.outputs)[-1:], None):
        with (
            deploy(q, backend=backend, carry=carry, outputs=asked) as placed,
            deploy(q, backend="serial", carry=carry, outputs=asked) as other,
        ):
            for k in range(4):
                given = feeds if k == 0 else {"x": feeds["x"]}
                assert_same(placed.run(given), other.run(given))
            more = {"checkpoints": Checkpoints(folder, seconds=1e-9)} if asked is None else {}
            last = placed.run({"x": feeds["x"]}, **more)
    with deploy(q, backend=backend, carry=carry) as placed:
        found = placed.run({"x": feeds["x"]}, resume=folder)
        assert all(found.outputs[name].tobytes() == array.tobytes() for name, array in last.outputs.items())
    comm.Barrier()


def fail_on_one(comm: Any) -> None:
    """Whichever devices raise, at first or by heart, one of them is named by all ranks, and the next run is right."""
    (p, inputs), op, chosen, backend = made(4), Moody(), np.random.default_rng(comm.size), MpiBackend(comm)
    with deploy(p, backend="serial") as other:
        wanted = other.run(inputs)
    placed = deploy(p, backend=backend, ops=as_relu(op))
    for turn in range(16):
        op.raises = turn in (0, 2) or (turn > 6 and turn % 2 == 0)
        if not op.raises:
            assert_same(placed.run(inputs), wanted)
            continue
        devices = {turn % 4, *np.flatnonzero(chosen.random(4) < 0.3).tolist()}
        op.rows = [4 * device for device in devices]
        refuse(StepFailed, f"compute 'act' on device [{devices}].*too hot", lambda: placed.run(inputs))
    with mock.patch("tapestry_exec.run.together.Ensemble.play", side_effect=KeyboardInterrupt if comm.rank else None):
        if comm.rank:
            refuse(KeyboardInterrupt, "", lambda: placed.run(inputs))
    if not comm.rank:
        refuse(StepFailed, "interrupted by KeyboardInterrupt", lambda: placed.run(inputs))
    assert_same(placed.run(inputs), wanted)
    mail = cast(Any, placed)._session.mail
    comm.Barrier()
    assert not mail.comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG) and not any(map(mail.bell.count_untaken, mail.bell.pages))
    placed.close()
    if comm.size < 3:
        return
    patience, tuning.MAX_WAIT_SECONDS = tuning.MAX_WAIT_SECONDS, 1.0
    with deploy(p, backend=backend, ops=as_relu(Later(1, "doze"))) as late:  # of device 0, in the first run
        refuse(
            StepFailed, r"device [1-3] waited 1 s for what device [0-2] sends under tag \d+", lambda: late.run(inputs)
        )
    tuning.MAX_WAIT_SECONDS = patience


def fall_out_of_step() -> None:
    """Ranks of which one was given up do not take its words for those of a later run: all deploy again."""
    p, inputs = made(WORLD.size)
    with deploy(p, backend="serial") as other:
        wanted = other.run(inputs)
    placed = deploy(p, backend="mpi")
    assert_same(placed.run(inputs), wanted)
    patience, tuning.MAX_WAIT_SECONDS = tuning.MAX_WAIT_SECONDS, 0.2
    WORLD.Barrier()
    if WORLD.rank == 1:
        time.sleep(0.5)
    is_behind = WORLD.rank == 1 and cast(Any, placed)._session.mail.is_one_clock  # else it meets once more
    words = "what all ranks did" if is_behind else "to begin a run"
    refuse(TimeoutError, f"waited 0.2 s for .*{words}", lambda: placed.run(inputs))
    tuning.MAX_WAIT_SECONDS = patience
    WORLD.Barrier()
    for feeds in (inputs, {"x": inputs["x"][:3]}):
        refuse(
            BackendUnavailable if feeds is inputs else ValueError,
            f"ended with a run before, in which .* waited 0.2 s for .*{words}; deploy again"
            if feeds is inputs
            else "has shape",
            partial(placed.run, feeds),
        )
    placed.close()
    with deploy(p, backend="mpi") as placed:
        assert_same(placed.run(inputs), wanted)


def be_interrupted() -> None:
    """One that is interrupted, at its work or while it reads what all did, is not behind the others later."""
    p, inputs = made(WORLD.size)
    with deploy(p, backend="serial") as other:
        wanted = other.run(inputs)
    for name in ("tapestry_exec.mpi.backend.Member.run", "tapestry_exec.mpi.messages.read_answer"):
        with deploy(p, backend="mpi") as placed:
            for _ in range(3):
                assert_same(placed.run(inputs), wanted)
            at_work, inside = name.endswith("run"), mock.patch(name, mock.Mock(side_effect=KeyboardInterrupt))
            if WORLD.rank == 1:
                with inside:
                    refuse(KeyboardInterrupt, "", lambda: placed.run(inputs))
            elif at_work:
                refuse(StepFailed, "interrupted by KeyboardInterrupt", lambda: placed.run(inputs))
            else:
                assert_same(placed.run(inputs), wanted)
            if at_work:
                assert_same(placed.run(inputs), wanted)
            elif WORLD.rank == 1:
                refuse(
                    BackendUnavailable,
                    "a run before, in which KeyboardInterrupt; deploy again",
                    partial(placed.run, inputs),
                )
            WORLD.Barrier()


def give_back() -> None:
    """Runs leave no files open, also where Python does not look for cycles."""
    p, inputs = made(WORLD.size)
    counts = list[int]()
    gc.collect()
    gc.disable()
    for _ in range(3):
        run(p, inputs, backend="mpi")
        with deploy(p, backend="mpi") as placed:
            placed.run(inputs)
        counts.append(len(os.listdir("/proc/self/fd")))
    gc.enable()
    assert len(set(counts)) == 1, counts


def be_refused() -> None:
    """What does not fit is told by all ranks before the first step."""
    p, inputs = made(WORLD.size)
    other = plan(p.graph, p.mesh, fix={"one": {"m": WORLD.size}})
    mine = other if WORLD.rank == 1 else p
    refuse(
        BackendUnavailable,
        r"rank 0 has plan \w+, rank 1 has \w+; make the plan once",
        lambda: run(mine, inputs, backend="mpi"),
    )
    few, many = made(WORLD.size - 1), made(WORLD.size + 1)
    for told, words, backend in (
        (few, "3 devices and the program 4 ranks, and each is to have a device; begin it with mpiexec -n 3", "mpi"),
        (many, "5 devices and the program 4 ranks, and with collectives=True each", MpiBackend(collectives=True)),
    ):
        refuse(BackendUnavailable, words, partial(run, *told, backend=backend))
        refuse(BackendUnavailable, words, partial(deploy, told[0], backend=backend))
    one = MpiBackend(collectives=WORLD.rank == 1)  # of one rank alone: all are told
    why = r"the plan has 5 devices .*, and with collectives=True each rank has one device"
    told = why if WORLD.rank == 1 else f"rank 1 does not run: BackendUnavailable: {why}"
    refuse(BackendUnavailable, told, lambda: run(*many, backend=one))
    mixed = few if WORLD.rank == 1 else many
    refuse(BackendUnavailable, "rank 1 does not run|each is to have a device", lambda: run(*mixed, backend="mpi"))
    wrong = {"x": inputs["x"][:3]} if WORLD.rank == 2 else inputs
    refuse(
        ValueError if WORLD.rank == 2 else BackendUnavailable,
        r"input 'x' has shape \(3, 24\)"
        if WORLD.rank == 2
        else r"rank 2 does not run: ValueError: input 'x' has shape",
        lambda: run(p, wrong, backend="mpi"),
    )
    constant = Graph()
    constant.output(ops.relu(constant.input("x", (8, 4)) + constant.constant("c", np.ones((8, 4), np.float32))), "y")
    q, c = plan(constant, Mesh(WORLD.size)), np.ones((8, 4), np.float32)
    wrong = c[:3] if WORLD.rank == 2 else c
    told = r"'c' .*\(3, 4\)" if WORLD.rank == 2 else r"rank 2 does not run: ValueError: .*\(3, 4\)"
    error = ValueError if WORLD.rank == 2 else BackendUnavailable
    refuse(error, told, lambda: deploy(q, backend="mpi", constants={"c": wrong}))
    with deploy(q, backend="mpi", constants={"c": c}) as placed, TemporaryDirectory() as folder:
        folder = WORLD.bcast(folder)
        for more in ({}, {"checkpoints": Checkpoints(folder, after=[q.stages[0].node])}):
            refuse(error, told.replace("'c'", "'x'"), partial(placed.run, {"x": wrong}, **more))
            assert placed.run({"x": c}, **more).outputs["y"].tobytes() == (c + c).tobytes()
        WORLD.Barrier()
    refuse_types(p, inputs)
    refuse(
        BackendUnavailable,
        r"rank 0 has collectives MPI's calls, rank 1 has single messages; give MpiBackend the same",
        lambda: run(p, inputs, backend=MpiBackend(collectives=WORLD.rank != 1)),
    )
    refuse(
        BackendUnavailable,
        r"rank 0 has outputs y, rank 1 has ; give deploy the same outputs= on all ranks",
        lambda: deploy(p, backend="mpi", outputs=["y"] if WORLD.rank != 1 else []),
    )
    half = WORLD.Split(WORLD.rank % 2)
    between = half.Create_intercomm(0, WORLD, 1 - WORLD.rank % 2)  # whose messages go to ranks of the other half
    for comm, words in ((MPI.COMM_NULL, "not MPI.COMM_NULL; have ranks run"), (between, "not one between two groups")):
        refuse(ValueError, f"comm must be a communicator of one group, {words}", partial(MpiBackend, comm))
    between.Free()
    half.Free()
    version, backend = np.__version__, MpiBackend()
    np.__version__ = "1.0" if WORLD.rank == 2 else version
    refuse(
        BackendUnavailable, r"rank 0 has numpy .*, rank 2 has 1.0; install numpy", lambda: run(p, inputs, backend="mpi")
    )
    np.__version__ = version
    backend.most_tags = 7
    refuse(
        BackendUnavailable,
        r"messages up to tag \d+, which ranks of 1 device number up to \d+, and this MPI library has 7",
        lambda: run(p, inputs, backend=backend),
    )
    assert_same(run(p, inputs, backend="mpi"), run(p, inputs, backend="serial"))


def refuse_types(p: ShardPlan, inputs: Any) -> None:
    """Arguments of one rank that are of no type, as where the first one alone reads the inputs; and a plan of its own.

    They are told as values are.
    """
    nothing: Any = None if WORLD.rank == 2 else inputs
    error, told = (TypeError, "") if WORLD.rank == 2 else (BackendUnavailable, "rank 2 does not run: TypeError: .*")
    backend = MpiBackend()
    for one in ("mpi", backend):
        refuse(error, f"{told}inputs must be a mapping from strings, not None", partial(run, p, nothing, backend=one))
    wrong: Any = 7 if WORLD.rank == 2 else None
    refuse(error, f"{told}carry must be a mapping", partial(deploy, p, backend="mpi", carry=wrong))
    with deploy(p, backend="mpi") as placed, TemporaryDirectory() as folder:
        saved = {"checkpoints": Checkpoints(WORLD.bcast(folder), after=[p.stages[0].node])}
        for more in ({}, saved):
            refuse(error, f"{told}inputs must be a mapping", partial(placed.run, nothing, **more))
            assert placed.run(inputs, **more).outputs["y"].tobytes() == run(p, inputs).outputs["y"].tobytes()
        WORLD.Barrier()
    mine = p.with_steps(steps=p.steps[1:]) if WORLD.rank == 2 else p
    error, told = (InvalidPlan, "") if WORLD.rank == 2 else (BackendUnavailable, "rank 2 does not run: InvalidPlan: ")
    refuse(error, told, partial(run, mine, inputs, backend="mpi"))
    refuse(error, told, partial(deploy, mine, backend="mpi"))


def wait_in_vain() -> None:
    """One that does not come is waited for a while only."""
    p, inputs = made(WORLD.size)
    tuning.MAX_WAIT_SECONDS = 0.5
    if WORLD.rank != 1:
        refuse(TimeoutError, "waited 0.5 s for all ranks to call run or deploy", lambda: run(p, inputs, backend="mpi"))
        wrong = {"x": inputs["x"][:3]}
        refuse(ValueError, r"has shape \(3, 24\)", lambda: run(p, wrong, backend="mpi"))  # of which it tells nobody
        print("waited in vain", flush=True)
        WORLD.Abort(0)
    WORLD.Barrier()


def stop_for(seconds: float) -> None:
    """Stand still, also in MPI."""
    me = os.getpid()
    if not os.fork():
        time.sleep(seconds)
        os.kill(me, signal.SIGCONT)
        os._exit(0)
    os.kill(me, signal.SIGSTOP)


def stall() -> None:
    """A large message of which a part is here, and whose sender stands still, is waited for no longer than others.

    The run that gave it up is over when the rest has come, and the next one is right.
    """
    g, x = Graph(), np.random.default_rng(7).random((1000, 6000), np.float32)
    g.output(ops.tanh(ops.relu(g.input("x", x.shape), name="rows").T, name="columns"), "y")
    p, seconds, stops_behind = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}}), 3.0, range(0)
    post, recv, give_up, patience = Mail._post, Mail.recv, Mail._give_up, tuning.MAX_WAIT_SECONDS

    def post_and_stop(mail: Mail, room: Any, peer: int, tag: int) -> None:
        nonlocal stops_behind
        post(mail, room, peer, tag)
        if len(room) > 1e6 and tag in stops_behind:
            stops_behind, begin = range(0), time.monotonic()
            while tag >= messages.FIRST and time.monotonic() - begin < 0.2:  # the other learns of it, and sleeps yet
                mail.comm.Iprobe()
            stop_for(seconds)

    def recv_late(mail: Mail, tag: int, peer: int) -> Any:
        time.sleep(0.0 if WORLD.rank else 0.5)
        return recv(mail, tag, peer)

    def give_up_and_be_patient(*args: Any) -> None:
        give_up(*args)
        assert args[0].half, "it did not come, nor was it canceled"
        tuning.MAX_WAIT_SECONDS = patience

    placed, wanted = deploy(p, backend="mpi"), run(p, {"x": x}, backend="serial")
    with mock.patch.multiple(Mail, _post=post_and_stop, recv=recv_late, _give_up=give_up_and_be_patient):
        assert_same(placed.run({"x": x}), wanted)
        if WORLD.rank:
            stops_behind = range(messages.FIRST, 1_000)
        else:
            tuning.MAX_WAIT_SECONDS = 0.5
        refuse(StepFailed, "device 0 waited 0.5 s for what device 1 sends", lambda: placed.run({"x": x}))
        assert_same(placed.run({"x": x}), wanted)
        if WORLD.rank:
            stops_behind = range(messages.ANSWER, messages.ANSWERS)
            placed.run({"x": x})
        tuning.MAX_WAIT_SECONDS, begin = 0.5, time.monotonic()
        refuse(TimeoutError, "device 0 waited 0.5 s for rank 1 to end its run", lambda: placed.run({"x": x}))
        assert time.monotonic() - begin < seconds
    print("waited in vain", flush=True)
    WORLD.Abort(0)


def die_within() -> None:
    """While the other one waits in a call."""
    p, inputs = exchange_rows(WORLD.size, 3)
    run(p, inputs, backend=MpiBackend(collectives=True), ops=as_relu(Later(2, "die")))


def die() -> None:
    p, inputs = made(WORLD.size)
    run(p, inputs, backend="mpi", ops=as_relu(die_first))


def end_alone() -> None:
    """One whose program ends with an error is missed at once: by those that run, and by those that begin to run."""
    (p, inputs), seconds = made(WORLD.size), 0.4
    with mock.patch.multiple(messages, ENDED_SECONDS=seconds), mock.patch.multiple(endings, ENDED_SECONDS=seconds):
        with deploy(p, backend="mpi") as placed:
            assert placed.run(inputs).outputs["y"].tobytes() == run(p, inputs, backend="serial").outputs["y"].tobytes()
            if WORLD.rank == 1:
                raise ArithmeticError("only here")
            words = "the program of rank 1 has ended, while device 0 waited for all ranks to begin a run; look for"
            refuse(BackendUnavailable, words.replace("0", str(WORLD.rank)), lambda: placed.run(inputs))
            refuse(
                BackendUnavailable, "ended with a run before, in which .* rank 1 has ended", lambda: placed.run(inputs)
            )
        words = rf"rank 1 has ended, while rank {WORLD.rank} waited for all ranks to call run"
        refuse(BackendUnavailable, words, lambda: run(p, inputs, backend="mpi"))
        print("missed it", flush=True)


def end_before_others() -> None:
    """Who has the results of the last run may end, though another one still takes them."""
    g, x = Graph(), np.random.default_rng(5).random((30, 800), np.float32)
    g.output(ops.relu(g.input("x", x.shape)), "y")
    p, seconds, take = plan(g, Mesh(WORLD.size)), 0.3, Mail._take_whole

    def take_late(mail: Mail, peer: int, tag: int, what: str) -> bytearray:
        if tag == messages.ANSWERS:
            time.sleep(5 * seconds)
        return take(mail, peer, tag, what)

    placed = deploy(p, backend="mpi")
    is_late = mock.patch.object(Mail, "_take_whole", take_late if WORLD.rank == 1 else take)
    with mock.patch.multiple(messages, ENDED_SECONDS=seconds), mock.patch.multiple(endings, ENDED_SECONDS=seconds):
        with is_late:
            assert placed.run({"x": x}).outputs["y"].tobytes() == x.tobytes()
        print("ended well", flush=True)


def call_end() -> None:
    """Where the program has called MPI's end, runs say so, and deployments end; MPI itself would end the program."""
    p, inputs = made(WORLD.size)
    backend, wanted = MpiBackend(), run(p, inputs, backend="serial").outputs["y"].tobytes()
    with deploy(p, backend="mpi") as placed:
        for _ in range(3):  # those by heart have messages that wait for the end
            assert placed.run(inputs).outputs["y"].tobytes() == wanted
        MPI.Finalize()
        refuse(BackendUnavailable, "MPI has ended; call MPI.Finalize", lambda: placed.run(inputs))
        refuse(ValueError, r"has shape \(3, 24\)", lambda: placed.run({"x": inputs["x"][:3]}))
    for one in (backend, "mpi"):
        refuse(BackendUnavailable, "MPI has ended; call MPI.Finalize", partial(run, p, inputs, backend=one))
        refuse(BackendUnavailable, "MPI has ended; call MPI.Finalize", partial(deploy, p, backend=one))
    print("ended well", flush=True)


def raise_alone() -> None:
    if WORLD.rank == 1:
        raise ArithmeticError("only here")
    time.sleep(60)


def work_on_hosts(file: str) -> None:
    """What a run between hosts differs in: plans, also of more devices than ranks, and what all are told."""
    for name, p, inputs, wanted in read_cases(Path(file)):
        backend = MpiBackend(collectives=p.mesh.size == WORLD.size and name.startswith("sums"))
        with deploy(p, backend=backend) as placed, deploy(p, backend="serial") as other:
            for _ in range(3):
                found = placed.run(inputs)
                assert_same(found, other.run(inputs))
                assert found.nbytes_by_link == p.nbytes_by_link and 0 < found.clock_error < 10
            mail = cast(Any, placed)._session.mail
            machines, dealing = WORLD.allgather(name_clock()), cast(Any, placed)._session.dealing
            here = {rank for rank, machine in enumerate(machines) if machine == machines[WORLD.rank]}
            assert len(set(machines)) > 1 and set(mail.bell.pages) == here - {WORLD.rank} and not mail.bell.sees_all
        assert_same(run(p, inputs, backend=backend), wanted)
        between = sum(
            nbytes
            for (src, dst), nbytes in p.nbytes_by_link.items()
            if machines[dealing.ranks[src]] != machines[dealing.ranks[dst]]
        )
        if WORLD.rank == 0:
            print(name, "sent between hosts", 4 * between, flush=True)
    state_errors()
    fail_on_hosts()


def fail_on_hosts() -> None:
    """An error, other arguments, and a plan of another kind are told to ranks of other hosts."""
    (p, inputs), last = made(WORLD.size), WORLD.size - 1
    for _ in range(2):
        refuse(
            StepFailed,
            r"compute 'act' on device 0, .*FloatingPointError: too hot",
            lambda: run(p, inputs, backend="mpi", ops=as_relu(raise_first)),
        )
    wrong = {"x": inputs["x"][:3]} if WORLD.rank == last else inputs
    words = r"has shape \(3, 24\)" if WORLD.rank == last else f"rank {last} does not run: ValueError: input 'x'"
    refuse((ValueError, BackendUnavailable), words, lambda: run(p, wrong, backend="mpi"))
    mine = made(last) if WORLD.rank == last else (p, inputs)
    words = (
        "each is to have a device" if WORLD.rank == last else f"rank {last} does not run: BackendUnavailable: the plan"
    )
    refuse(BackendUnavailable, words, lambda: run(*mine, backend="mpi"))
    other = plan(p.graph, p.mesh, fix={"one": {"m": WORLD.size}}) if WORLD.rank == last else p
    refuse(BackendUnavailable, r"rank 0 has plan \w+, rank \d has", lambda: run(other, inputs, backend="mpi"))
    backend = MpiBackend(collectives=WORLD.rank == last)
    refuse(BackendUnavailable, "has collectives", lambda: run(p, inputs, backend=backend))
    assert_same(run(p, inputs, backend="mpi"), run(p, inputs, backend="serial"))
    if WORLD.rank == 0:
        print("fail_on_hosts done", flush=True)


def work(file: str) -> None:
    """All that ends well, in one program."""
    run_networks(file)
    for one in (
        run_often,
        partial(go_on, f"{file}.saved"),
        fail_together,
        be_refused,
        partial(call_together, f"{file}.calls"),
        fail_within,
        state_errors,
        fail_by_heart,
        partial(share_ranks, f"{file}.four"),
        fall_out_of_step,
        be_interrupted,
        give_back,
    ):
        one()
        if WORLD.rank == 0:
            print(getattr(one, "func", one).__name__, "done", flush=True)


if __name__ == "__main__":
    every = (
        work,
        work_on_hosts,
        wait_in_vain,
        stall,
        die,
        die_within,
        end_alone,
        end_before_others,
        call_end,
        raise_alone,
    )
    {one.__name__: one for one in every}[sys.argv[1]](*sys.argv[2:])
