"""Ranks on simulated GPUs: ``mpiexec -n 4 python -m tests.exec.mpi.gpu_ranks WHAT …``; what carries parcels is NCCL's.

Each rank simulates the GPUs of its host. Their NCCL lets a call wait for its other end, a group for all of its calls at
once, and compares both ends (`tapestry_exec/simulated/rank_files.py`).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from mpi4py import MPI
from msgspec.structs import replace

from tapestry_exec import BackendUnavailable, Checkpoints, MpiBackend, NcclBackend, StepFailed, deploy, run
from tapestry_exec.cuda import device, payloads
from tapestry_exec.cuda import nccl as rounds
from tapestry_exec.cuda.nccl import deal_rounds
from tapestry_exec.mpi import backend as sessions
from tapestry_exec.mpi import gpus
from tapestry_exec.run import tuning
from tapestry_exec.simulated import namespace as simulated
from tapestry_plan import Mesh, ShardPlan, least_memory, plan
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.steps import HOST, Collective, Compute, Copy, Recv, Reduce, Send, spill
from tests.exec.mpi.ranks import list_exchanges, ranks_of, refuse
from tests.exec.own_ops import Later, as_relu, raise_first
from tests.exec.run.test_collectives_as_one import CASES, feeds_of, product
from tests.exec.run.test_deploy import training_step
from tests.exec.run.test_side_by_side import made
from tests.exec.simulated.test_nccl import Calls, note
from tests.exec.small_networks import exchange_rows, read_cases

WORLD = MPI.COMM_WORLD
COUNTS = "nbytes_by_link", "nbytes_received", "nbytes_placed", "peak_nbytes", "nbytes_spilled", "flop"


def make_backend(comm: Any = WORLD, gpu_count: int = 4, **options: Any) -> MpiBackend:
    """One whose messages are all NCCL's: MPI's own would be an error."""
    xp = simulated.cupy(gpu_count, peers=False, unwritten=True)
    return MpiBackend(comm, device=NcclBackend(cupy=xp, poison=True, fallback=True, **options))


def one_process() -> NcclBackend:
    """All devices simulated in this process: the same kernels, whose sums have other bits than BLAS may give."""
    return make_backend().given


def assert_alike(found: Any, wanted: Any) -> None:
    """The bits and counts of one loop."""
    for name, array in wanted.outputs.items():
        assert found.outputs[name].tobytes() == array.tobytes(), name
    for name in COUNTS:
        assert getattr(found, name) == getattr(wanted, name), name


def assert_of_one_process(found: Any, wanted: Any, p: ShardPlan, inputs: Mapping[str, Any]) -> None:
    """The bits and counts of the same kernels in one process, near what NumPy computes, whose sums have other bits."""
    for name, array in wanted.outputs.items():
        np.testing.assert_allclose(found.outputs[name], array, rtol=1e-4, atol=1e-5)
    assert_alike(found, run(p, inputs, backend=one_process()))


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    with mock.patch.object(tuning, "MAX_WAIT_SECONDS", seconds):
        yield


# -- what is right ----------------------------------------------------------------------------------------------------


def run_networks(file: str) -> None:
    """Each on as many ranks as its plan has devices; bits of kernels that NumPy does not have are one process's."""
    for name, p, inputs, wanted in read_cases(Path(file)):
        with ranks_of(p.mesh.size) as comm:
            if comm == MPI.COMM_NULL:
                continue
            found = run(p, inputs, backend=make_backend(comm))
            if name.startswith("sums") or not comm.rank:
                assert_of_one_process(found, wanted, p, inputs)
            assert found.nbytes_by_link == p.nbytes_by_link


def run_exchanges() -> None:
    """On 2 to 4 ranks, with even parts and others; rings have no byte too much, and cells are sent where they lie."""
    for size in range(2, WORLD.size + 1):
        with ranks_of(size) as comm:
            if comm == MPI.COMM_NULL:
                continue
            for name, (p, inputs) in list_exchanges(size).items():
                wanted = run(p, inputs, backend="serial")
                for nbytes in (1, 1 << 30):
                    tight = mock.patch.object(payloads, "RING_PAYLOADS", 1)
                    with tight, mock.patch.object(device, "DIRECT_NBYTES", nbytes):
                        found = run(p, inputs, backend=make_backend(comm))
                    assert_of_one_process(found, wanted, p, inputs)
                    assert found.nbytes_by_link == p.nbytes_by_link, name


def run_collectives() -> None:
    """Of every kind: each is one event of each device in it, that counts what this one sent."""
    kinds = Counter[str]()
    for link, asked, wanted_kinds in CASES:
        count = 3 if asked["fix"] == {"it": {"k": 3}} else 4
        with ranks_of(count) as comm:
            if comm == MPI.COMM_NULL:
                continue
            p = plan(product(), Mesh((count,), link=link), **asked)
            feeds = feeds_of(p.graph)
            backend = make_backend(comm)
            calls = note_calls(backend)
            found = run(p, feeds, backend=backend)
            assert_of_one_process(found, run(p, feeds, backend="serial"), p, feeds)
            assert_grouped(calls, p, comm.rank)
            events = [event for event in found.timeline if event.kind == "collective"]
            assert len(events) == sum(len(one.group) for one in p.collectives())
            assert sum(event.nbytes for event in events) == sum(one.nbytes_moved for one in p.collectives())
            kinds.update(wanted_kinds)
    assert WORLD.rank or kinds.keys() == {"all_gather", "all_reduce", "all_to_all", "reduce_scatter", "broadcast"}


def note_calls(backend: MpiBackend) -> Calls:
    """The names of the calls of NCCL, as they come."""
    nccl, calls = backend.given.cupy.cuda.nccl, Calls()
    for name in ("groupStart", "groupEnd"):
        setattr(nccl, name, note(calls, name, getattr(nccl, name)))
    for name in ("send", "recv", "broadcast"):
        setattr(nccl.NcclCommunicator, name, note(calls, name, getattr(nccl.NcclCommunicator, name)))
    return calls


def assert_grouped(calls: Calls, p: ShardPlan, rank: int) -> None:
    """Each round of a collective is a group with all that this rank sends and gets in it; so is each single copy."""
    groups, inside = list[list[str]](), False
    for name, *_ in calls:
        assert inside == (name != "groupStart"), "no call outside of a group, no group in another one"
        if name == "groupStart":
            groups.append([])
        elif name != "groupEnd":
            groups[-1].append(name)
        inside = name != "groupEnd"
    assert all(group in (["send"], ["recv"], ["broadcast"]) or sorted(group) == ["recv", "send"] for group in groups)
    devices, wanted = {one.id: one.device for one in p.buffers}, 0
    for one in p.collectives():
        pairs = [(devices[copy.src], devices[copy.dst]) for copy in one.copies]
        is_one = one.kind == "broadcast" and len(one.group) == p.mesh.size
        wanted += rank in one.group if is_one else sum(any(rank in at for at in some) for some in deal_rounds(pairs))
    singles = [one for one in p.grouped_steps if isinstance(one, Copy) and one.src != HOST and one.piece is None]
    ends = [{devices[one.src], devices[one.dst]} for one in singles]
    assert len(groups) == wanted + sum(rank in at for at in ends if len(at) == 2)


def run_often() -> None:
    """Constants and state stay; plans spill; progress is told; a rank that waits after each step."""
    p, inputs = made(WORLD.size)
    wanted = run(p, inputs, backend=one_process())
    with deploy(p, backend=make_backend(blocking=True)) as placed, deploy(p, backend=one_process()) as other:
        for _ in range(3):
            assert_alike(placed.run(inputs), other.run(inputs))
    tight = spill(p, max(least_memory(p)))
    assert any(tight.nbytes_spilled)
    assert_alike(run(tight, inputs, backend=make_backend()), run(tight, inputs, backend=one_process()))
    g, carry, feeds = training_step()
    q = plan(g, Mesh((WORLD.size,)), tie=carry)
    with (
        deploy(q, backend=make_backend(), carry=carry) as placed,
        deploy(q, backend=one_process(), carry=carry) as other,
    ):
        for k in range(3):
            given = feeds if k == 0 else {"x": feeds["x"]}
            assert_alike(placed.run(given), other.run(given))
    seen: list[tuple[int, int, str]] = []
    assert_alike(run(p, inputs, backend=make_backend(), progress=lambda *at: seen.append(at)), wanted)
    assert seen[-1][0] == seen[-1][1] and "act" in {name for _, _, name in seen}


def write_regions(folder: str) -> None:
    """Inputs are read and outputs written by region, by each rank its own, when they have come from its GPU."""
    if find_spec("zarr") is None:
        return
    zarr, (p, inputs) = import_module("zarr"), exchange_rows(WORLD.size, 1)
    wanted = run(p, inputs, backend=one_process()).outputs["y"]
    if WORLD.rank == 0:
        zarr.save_array(f"{folder}/x", inputs["x"])
        zarr.create_array(f"{folder}/y", shape=wanted.shape, dtype=wanted.dtype, chunks=(8, wanted.shape[1] // 4))
    WORLD.Barrier()
    x, y = zarr.open_array(f"{folder}/x", mode="r"), zarr.open_array(f"{folder}/y", mode="r+")
    run(p, {"x": x}, backend=make_backend(), outputs={"y": y})
    assert y[:].tobytes() == wanted.tobytes()
    WORLD.Barrier()


def run_on_hosts() -> None:
    """Two ranks on each of two hosts, which have two GPUs each; then each rank sees one, as launchers arrange it."""
    p, inputs = exchange_rows(WORLD.size, 2)
    wanted, host = run(p, inputs, backend=one_process()), f"host{WORLD.rank // 2}"
    for gpu_count, names in ((2, host), (1, f"{host} of its own {WORLD.rank}")):
        seen = list[int]()

        def deal(told: Any, seen: list[int] = seen) -> list[int]:
            seen.extend(found := gpus.deal_gpus(told))
            return found

        with mock.patch.multiple(sessions, name_host=lambda names=names: names, deal_gpus=deal):
            assert_alike(run(p, inputs, backend=make_backend(gpu_count=gpu_count)), wanted)
        assert seen == ([0, 1, 0, 1] if gpu_count == 2 else [0] * 4)


# -- what is refused, and what fails ----------------------------------------------------------------------------------


def be_refused() -> None:
    """By all ranks with one error, before the first step; the next run is right."""
    p, inputs = made(WORLD.size)

    def told(words: str, backend: MpiBackend, error: type[Exception] = BackendUnavailable) -> None:
        refuse(error, words, lambda: run(p, inputs, backend=backend))

    told(r"host \S+ has 3 GPUs for 4 ranks \(0, 1, 2, 3\); NCCL has one rank a GPU: begin", make_backend(gpu_count=3))
    given = NcclBackend([WORLD.rank % 3], cupy=simulated.cupy(4))
    told(r"ranks 0, 3 are all on GPU 0000:01:00.0 of host \S+; NCCL has one rank a GPU", MpiBackend(device=given))
    told("rank 0 does not run: BackendUnavailable: CuPy is there, but no GPU can be used", make_backend(gpu_count=0))
    odd = NcclBackend([7 if WORLD.rank == 2 else WORLD.rank], cupy=simulated.cupy(4))
    told(r"rank 2 does not run: BackendUnavailable: device 0 .* lie on GPU 7; this", MpiBackend(device=odd))
    two = MpiBackend(device=NcclBackend([0, 1], cupy=simulated.cupy(4))) if WORLD.rank == 1 else make_backend()
    words = "device is a NcclBackend of 2 GPUs; a rank has one"
    told(words, two, ValueError if WORLD.rank == 1 else BackendUnavailable)
    for nccl in (None, SimpleNamespace(available=False)):
        backend = make_backend()
        if WORLD.rank == 1:
            backend.given.cupy.cuda.nccl = nccl
        told("rank 1 does not run: BackendUnavailable: backend 'nccl' needs NCCL, .* leave device= away", backend)
    if WORLD.rank == 1:
        with mock.patch.dict(sys.modules, {"cupy": None}):
            told("rank 1 does not run: BackendUnavailable: backend 'cupy' needs CuPy", MpiBackend(device="nccl"))
    else:
        told("rank 1 does not run: BackendUnavailable: backend 'cupy' needs CuPy", make_backend())
    backend = make_backend()
    if WORLD.rank == 3:
        backend.given.cupy.cuda.nccl.get_version = lambda: 21900
    told("rank 0 has NCCL 23200, rank 3 has 21900; install NCCL 23200 everywhere", backend)
    told("rank 0 has devices NumPy, rank 1 has GPUs; give", make_backend() if WORLD.rank else MpiBackend())
    backend = make_backend()
    if WORLD.rank == 0:
        backend.given.cupy.cuda.nccl.get_unique_id = fail
    told("rank 0 does not run: RuntimeError: NCCL_ERROR_SYSTEM_ERROR; no rank does", backend)
    backend = make_backend()
    if WORLD.rank == 2:
        backend.given.cupy.cuda.nccl.NcclCommunicator.__init__ = fail
    told(r"rank 2 does not run: BackendUnavailable: NCCL does not begin \(RuntimeError: NCCL_ERROR_SYSTEM_ERR", backend)
    backend = make_backend()
    with patience(1.0):
        if WORLD.rank == 2:
            init = backend.given.cupy.cuda.nccl.NcclCommunicator.__init__
            backend.given.cupy.cuda.nccl.NcclCommunicator.__init__ = lambda *given: (wait(1.5), init(*given))[1]
        told("rank [013] does not run: TimeoutError: device [013] waited 1 s for all ranks to join NCCL", backend)
    few = made(WORLD.size + 1)
    words = (
        "5 devices and the program 4 ranks, and with device='nccl' each rank has one GPU; begin it with mpiexec -n 5"
    )
    refuse(BackendUnavailable, words, lambda: run(*few, backend=make_backend()))
    saved = partial(run, p, inputs, backend=make_backend(), checkpoints=Checkpoints("nowhere", after=["act"]))
    refuse(ValueError, "neither writes nor reads", saved)
    wrong = {"x": inputs["x"][:3]} if WORLD.rank == 2 else inputs
    with deploy(p, backend=make_backend()) as placed:
        for _ in range(2):
            error = ValueError if WORLD.rank == 2 else BackendUnavailable
            refuse(error, r"input 'x' has shape \(3, 24\)", lambda: placed.run(wrong))
            assert_same_bits(placed.run(inputs).outputs["y"], p, inputs)


def fail(*given: Any) -> None:
    raise RuntimeError("NCCL_ERROR_SYSTEM_ERROR")


def assert_same_bits(found: np.ndarray, p: ShardPlan, inputs: dict[str, np.ndarray]) -> None:
    assert found.tobytes() == run(p, inputs, backend=one_process()).outputs["y"].tobytes()


def fail_together() -> None:
    """One that raises is named by all, though others wait in NCCL for it; so is one that is late. Then all is well."""
    p, inputs = made(WORLD.size)
    words = r"step \d+ \(compute 'act' on device 0, .*FloatingPointError: too hot"
    backend = make_backend()
    for _ in range(2):
        refuse(StepFailed, words, lambda: run(p, inputs, backend=backend, ops=as_relu(raise_first)))
        assert_alike(run(p, inputs, backend=backend), run(p, inputs, backend=one_process()))
    q, given = exchange_rows(WORLD.size, 3)
    wanted = run(q, given, backend=one_process()).outputs["y"].tobytes()
    with deploy(q, backend=backend, ops=as_relu(Later(2, "raise"))) as placed:
        refuse(StepFailed, "too hot", lambda: placed.run(given))
        assert placed.run(given).outputs["y"].tobytes() == wanted
    with deploy(q, backend=backend, ops=as_relu(Later(2, "doze"))) as placed:
        with patience(1.0):
            words = r"step \d+ \(copy .*waited 1 s for .*device \d.* in the all_gather of devices 0, 1, 2, 3"
            refuse(StepFailed, words, lambda: placed.run(given))
        assert placed.run(given).outputs["y"].tobytes() == wanted
    with deploy(p, backend=backend, ops={"tanh": replace(BUILTIN_OPS["tanh"], block=fail_at_last())}) as placed:
        refuse(StepFailed, r"\(compute 'last' on device 0, .*FloatingPointError: too hot", lambda: placed.run(inputs))
        with patience(20.0):  # others may have been done with that run
            assert_same_bits(placed.run(inputs).outputs["y"], p, inputs)
    late = make_backend()
    with deploy(q, backend=late) as placed:
        if WORLD.rank == 2:  # what NCCL says behind the return of a call
            late_error(late)
        refuse(StepFailed, "NcclError: NCCL_ERROR_REMOTE_ERROR", lambda: placed.run(given))
        undo_late_error(late)
        assert placed.run(given).outputs["y"].tobytes() == wanted


def fail_at_last() -> Callable[..., None]:
    """What `tanh` gives; where a block begins at 0 it raises the first time, when the others have had time to end."""
    calls = list[float]()

    def block(xp: Any, given: Any, made: Any, shard: Any) -> None:
        if not any(shard.index.start):
            calls.append(wait(0.3))
            if len(calls) == 1:
                raise FloatingPointError("too hot")
        xp.tanh(given[0], out=made[0])

    return block


def late_error(backend: MpiBackend) -> None:
    nccl = backend.given.cupy.cuda.nccl

    def tell(self: Any) -> None:
        raise nccl.NcclError("NCCL_ERROR_REMOTE_ERROR")

    nccl.NcclCommunicator.check_async_error = tell
    begin = gpus.Watch.over

    def slowly(self: Any, work: Callable[[], Any]) -> Any:  # so that the watch looks once at least
        return begin(self, lambda: (MPI.Wtime(), wait(0.1), work())[-1])

    gpus.Watch.over = slowly  # type: ignore[method-assign]
    backend.undo = lambda: setattr(gpus.Watch, "over", begin)  # type: ignore[attr-defined]


def undo_late_error(backend: MpiBackend) -> None:
    undo = getattr(backend, "undo", None)
    if undo is not None:
        undo()
        backend.given.cupy.cuda.nccl.NcclCommunicator.check_async_error = lambda self: None


def wait(seconds: float) -> float:
    """Let time pass; what it is then."""
    end = MPI.Wtime() + seconds
    while MPI.Wtime() < end:
        pass
    return MPI.Wtime()


# -- planted faults, each of which must be found ----------------------------------------------------------------------


def swap_order(part: Any) -> Any:
    """A device that sends to another one first, where it is to get something from there, or the other way around."""
    program = list(part.program)
    for k, one in enumerate(program):
        for n, two in enumerate(program[k + 1 :], k + 1):
            if isinstance(two.step, Compute | Reduce) or not isinstance(one.step, Send | Recv):
                break
            if {type(one.step), type(two.step)} == {Send, Recv} and one.step.peer == two.step.peer:
                program[k], program[n] = two, one
                return replace(part, program=tuple(program))
    raise AssertionError("nowhere does it exchange with another one")


def leave_out(part: Any) -> Any:
    """A device that does not take part in the last exchange."""
    last = max(k for k, at in enumerate(part.program) if isinstance(at.step, Collective | Send | Recv))
    return replace(part, program=part.program[:last] + part.program[last + 1 :])


def plant_program(change: Callable[[Any], Any], has_collectives: bool) -> Callable[[Any], Any]:
    """On rank 1 another program; without collectives all ranks send and get messages one by one."""

    def plant(nccl: Any) -> Any:
        right, stack = gpus.order_by_plan, ExitStack()
        if not has_collectives:
            grouped = gpus.list_grouped
            none = lambda steps, takes: grouped(steps, lambda collective: False)  # noqa: E731
            stack.enter_context(mock.patch.object(gpus, "list_grouped", none))
        wrong = lambda what, part: change(right(what, part)) if WORLD.rank == 1 else right(what, part)  # noqa: E731
        stack.enter_context(mock.patch.object(sessions, "order_by_plan", wrong))
        return stack

    return plant


def plant_call(name: str, change: Callable[..., tuple[Any, ...]]) -> Callable[[Any], Any]:
    """On rank 1 a call of NCCL with other arguments."""

    def plant(nccl: Any) -> Any:
        right = getattr(nccl.NcclCommunicator, name)
        wrong = lambda comm, *given: right(comm, *change(*given))  # noqa: E731
        return mock.patch.object(nccl.NcclCommunicator, name, wrong if WORLD.rank == 1 else right)

    return plant


def plant_rounds(nccl: Any) -> Any:
    """Rank 1 takes the rounds of collectives from the last one on."""
    right = rounds.deal_rounds
    return mock.patch.object(rounds, "deal_rounds", lambda pairs: right(pairs)[:: -1 if WORLD.rank == 1 else 1])


def plant_early_sends(nccl: Any) -> Any:
    """All ranks send as soon as they can, as messages of MPI go."""

    def hoist(what: Any, part: Any) -> Any:
        return replace(part, work=replace(part.work, buffers=what.prepared.work.buffers))

    return mock.patch.object(sessions, "order_by_plan", hoist)


LATE = "waited 0.6 s for (what device|device)"
FAULTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "order swapped on one side": (plant_program(swap_order, False), LATE),
    "rounds in another order on one side": (plant_rounds, LATE),
    "sends before their turn": (plant_early_sends, LATE),
    "a wrong peer": (plant_call("send", lambda at, n, kind, peer, s: (at, n, kind, {0: 2, 2: 3, 3: 0}[peer], s)), LATE),
    "half of the cells": (plant_call("send", lambda at, n, *more: (at, n // 2, *more)), "NCCL would corrupt memory"),
    "another dtype": (plant_call("recv", lambda at, n, kind, *more: (at, n, 0, *more)), "NCCL would corrupt memory"),
    "one does not come": (plant_program(leave_out, True), f"{LATE}|was never written"),
}
"""What is planted, and a part of the error that all ranks raise."""


QUICK = "order swapped on one side", "a wrong peer", "half of the cells"
"""Of these, what each run tries."""


def find_faults(names: Iterable[str]) -> None:
    """Each is told by all ranks, in the time that a message is waited for; runs before and behind it are right."""
    p, inputs = exchange_rows(WORLD.size, 1)
    wanted = run(p, inputs, backend=one_process())
    backend = make_backend()
    calls, nccl = note_calls(backend), backend.given.cupy.cuda.nccl
    with mock.patch.multiple(nccl, groupStart=lambda: None, groupEnd=lambda: None):  # which waits where it need not
        run(p, inputs, backend=backend)
    refuse(AssertionError, "no call outside of a group", lambda: assert_grouped(calls, p, WORLD.rank))
    for name in names:
        (plant, words), backend = FAULTS[name], make_backend()
        with plant(backend.given.cupy.cuda.nccl), deploy(p, backend=backend) as placed, patience(0.6):
            refuse(StepFailed, words, lambda: placed.run(inputs))
        if WORLD.rank == 0:
            print(name, "is found", flush=True)
    assert_alike(run(p, inputs, backend=make_backend()), wanted)


def work(file: str, faults: str) -> None:
    """All of it, in one program."""
    run_networks(file)
    every = (
        run_exchanges,
        run_collectives,
        run_often,
        partial(write_regions, f"{file}.zarr"),
        run_on_hosts,
        be_refused,
        fail_together,
    )
    for one in (*every, partial(find_faults, FAULTS if faults == "every" else QUICK)):
        one()
        if WORLD.rank == 0:
            print(getattr(one, "func", one).__name__, "done", flush=True)


if __name__ == "__main__":
    work(*sys.argv[1:])
