"""Ranks of MPI programs whose devices are GPUs, which are simulated: what they exchange goes by NCCL's rules."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from tapestry_exec import BackendUnavailable, MpiBackend, NcclBackend, NoDevicePath, run
from tapestry_exec.cuda import NcclRank
from tapestry_exec.mpi.gpus import Seen, deal_gpus
from tapestry_exec.simulated import namespace as simulated
from tapestry_plan import Graph, Mesh, Op, ops, plan
from tests.exec.mpi.test_mpi import MPIEXEC, run_ranks
from tests.exec.small_networks import EVERY, write_cases

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
SUMS = [("sums", 2), ("sums", 3), ("sums", 4)]
pytestmark = pytest.mark.skipif(MPIEXEC is None, reason="there is no mpiexec")


@pytest.mark.parametrize(
    ("which", "faults"),
    [(SUMS, "some"), pytest.param(EVERY, "every", marks=pytest.mark.heavy)],
    ids=["a sample", "every"],
)
def test_ranks_on_gpus_give_the_bits_and_counts_of_one_loop(
    which: Sequence[tuple[str, int]], faults: str, tmp_path: Path
) -> None:
    """And they run often, on one host and on two, fail together, and refuse what does not fit.

    Planted faults are found: an order swapped on one side, a group that is missing, a wrong peer, …
    """
    write_cases(tmp_path / "cases", which)
    command = "-m", "tapestry_exec.mpi", "-m", "tests.exec.mpi.gpu_ranks", str(tmp_path / "cases"), faults
    done = run_ranks(*command)
    assert done.returncode == 0, done.stderr
    every = ["run_exchanges", "run_collectives", "run_often", "write_regions"]
    every += ["run_on_hosts", "be_refused", "fail_together"]
    told = [line for line in done.stdout.splitlines() if not line.endswith("is found")]
    assert told == [f"{one} done" for one in [*every, "find_faults"]]
    assert done.stdout.count("is found") == (7 if faults == "every" else 3)


def test_a_rank_alone_runs_a_plan_of_one_device() -> None:
    """And is told how many a plan of more wants, where nobody began the program with mpiexec."""
    backend = MpiBackend(device=NcclBackend(cupy=simulated.cupy(1), poison=True))
    g = Graph()
    g.output(ops.relu(g.input("x", (4, 6))), "y")
    x = np.arange(-12, 12, dtype=np.float32).reshape(4, 6)
    found = run(plan(g, Mesh(1)), {"x": x}, backend=backend)
    np.testing.assert_array_equal(found.outputs["y"], np.maximum(x, 0))
    assert found.nbytes_placed == (96,)
    with pytest.raises(BackendUnavailable, match=r"the program 1 rank, and .*; begin it with mpiexec -n 2 python"):
        run(plan(g, Mesh(2)), {"x": x}, backend=backend)


def test_operators_without_a_path_are_refused() -> None:
    backend = MpiBackend(device=NcclBackend(cupy=simulated.cupy(1)))
    own = Op("own", ops.relu.op.signature, lambda xp, inputs, outputs, shard: None, host_only=True)
    g = Graph()
    g.output(g.op(own, g.input("x", (4,))), "y")
    with pytest.raises(NoDevicePath, match=r"operators \['own'\] have block functions that need NumPy"):
        run(plan(g, Mesh(1)), {"x": np.ones(4, np.float32)}, backend=backend)


def test_a_communicator_that_comes_too_late_is_not_used() -> None:
    """Others gave up waiting for it, and would not know of it."""
    ranks = [NcclRank(NcclBackend(cupy=simulated.cupy(1)), rank, 2) for rank in range(2)]
    number = ranks[0].make_id()
    for one in ranks:
        one.gpu = 0
    waiting = Thread(target=ranks[0].join, args=(number,), daemon=True)
    waiting.start()
    time.sleep(0.1)  # it has begun, and waits for the other one
    assert waiting.is_alive()
    ranks[0].give_up()
    ranks[1].join(number)
    waiting.join(20)
    assert not waiting.is_alive() and not ranks[0].is_joined and ranks[1].is_joined


def test_what_is_not_a_device_is_named() -> None:
    with pytest.raises(ValueError, match="device is 'cuda'; give 'numpy', 'nccl', or a NcclBackend with options"):
        MpiBackend(device="cuda")
    with pytest.raises(ValueError, match="collectives are NCCL's with a device of its own"):
        MpiBackend(device=NcclBackend(), collectives=True)


BOTH = "65:00", "CA:00"


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        ([Seen("a", BOTH, None), Seen("a", BOTH, None)], [0, 1]),
        ([Seen("a", BOTH, None), Seen("b", BOTH, None), Seen("a", BOTH, None), Seen("b", BOTH, None)], [0, 0, 1, 1]),
        ([Seen("a", ("65:00",), None), Seen("a", ("CA:00",), None)], [0, 0]),  # each sees its own
        ([Seen("a", BOTH, 1), Seen("a", BOTH, 0)], [1, 0]),
        ([Seen("a", BOTH, 0), Seen("b", BOTH, 0)], [0, 0]),
    ],
)
def test_ranks_of_a_host_are_dealt_out_to_its_gpus(seen: list[Seen], wanted: list[int]) -> None:
    assert deal_gpus(seen) == wanted


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ([Seen("a 7f", BOTH, None)] * 3, r"host a has 2 GPUs for 3 ranks \(0, 1, 2\); NCCL has one rank a GPU: begin"),
        ([Seen("a 7f", BOTH, 1)] * 2, r"ranks 0, 1 are all on GPU CA:00 of host a; NCCL has one rank a GPU"),
        ([Seen("a", BOTH, None), Seen("a", BOTH, 0)], r"ranks 0, 1 are all on GPU 65:00 of host a"),
        ([Seen("a", BOTH, None), Seen("a", ("65:00",), None)], r"ranks 0, 1 are all on GPU 65:00 of host a"),
    ],
)
def test_a_gpu_has_one_rank(seen: list[Seen], words: str) -> None:
    with pytest.raises(BackendUnavailable, match=words):
        deal_gpus(seen)
