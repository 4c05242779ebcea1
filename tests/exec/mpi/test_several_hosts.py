"""Ranks on several hosts, which are namespaces of this machine: bits, bytes and errors as on one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tapestry_exec import run
from tapestry_plan import Mesh, load_onnx, plan
from tapestry_plan.onnx import light_model
from tests.exec.mpi.test_mpi import EVERY_TASK, MPIEXEC, REPOSITORY, SHARED
from tests.exec.small_networks import EVERY, SAMPLE, Case, draw_inputs, make_case, pickle_cases, write_cases
from tests.hosts import IN_NETWORK, find_obstacle

pytest.importorskip("mpi4py", reason="mpi4py is not installed")


def find_mpich_obstacle() -> str:
    """Why MPICH cannot begin ranks on hosts that are made here."""
    if MPIEXEC is None:
        return "there is no mpiexec"
    told = subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True).stdout
    return find_obstacle() if "HYDRA" in told else "mpiexec is not MPICH's"


OBSTACLE = find_mpich_obstacle()
pytestmark = pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE)
SHAPES = ((2, 2), (2, 1), (3, 1))
"""Hosts, and the ranks of each."""


def run_on_hosts(hosts: int, ranks: int, *words: str, alike: bool = False) -> subprocess.CompletedProcess[str]:
    """A program of tests.exec.mpi.ranks on so many hosts, all of which end within two minutes."""
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OPENBLAS_NUM_THREADS": "1"}
    program = [sys.executable, "-m", "tests.exec.mpi.ranks", *words]
    command = [*IN_NETWORK, sys.executable, "-m", "tests.hosts", str(hosts), "alike" * alike, str(ranks), *program]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=REPOSITORY, timeout=180)


def check_bytes(told: str, most: float) -> None:
    """What plans send between hosts came by cables, and not many times of it."""
    planned = sum(map(int, re.findall(r"sent between hosts (\d+)", told)))
    came = sum(map(int, re.findall(r"came by cable: ([\d ]+)", told)[0].split()))
    assert planned <= came < most * planned + 5e6, (planned, came)


def test_ranks_of_two_hosts_give_the_bits_and_bytes_of_one_loop(tmp_path: Path) -> None:
    """Two devices a rank, and one: errors, refusals and what clocks are apart are told between hosts, too."""
    write_cases(tmp_path / "cases", [("sums", 4), ("gpt2", 4)])
    done = run_on_hosts(2, 2, "work_on_hosts", str(tmp_path / "cases"))
    assert done.returncode == 0 and "fail_on_hosts done" in done.stdout, done.stderr
    check_bytes(done.stdout, 2)


def test_a_rank_of_another_host_that_has_ended_is_missed() -> None:
    """Also where hosts have one name, and one memory that processes share."""
    begin = time.monotonic()
    done = run_on_hosts(3, 1, "end_alone", alike=True)
    assert done.stdout.count("missed it") == 2 and "only here" in done.stderr, done.stderr
    assert done.returncode != 0 and time.monotonic() - begin < 90


def test_a_large_message_that_is_half_here_is_waited_for_a_while() -> None:
    """Between hosts its sender has a part to do; within one who receives does it all."""
    done = run_on_hosts(2, 1, "stall")
    assert done.stdout.count("waited in vain") == 1, done.stderr


@pytest.mark.heavy
@pytest.mark.parametrize("alike", [False, True], ids=["apart", "alike"])
def test_ranks_of_two_hosts_do_all_that_those_of_one_do(alike: bool, tmp_path: Path) -> None:
    write_cases(tmp_path / "cases", SAMPLE)
    write_cases(tmp_path / "cases.four", [one for one in EVERY if one[1] == 4 and one[0] in SHARED])
    done = run_on_hosts(2, 2, "work", str(tmp_path / "cases"), alike=alike)
    assert done.returncode == 0, done.stderr
    told = [f"{name} on {count} has the bits of one loop" for name, count in SAMPLE]
    lines = [line for line in done.stdout.splitlines()[:-1] if "UCX  WARN" not in line]  # of runs that were given up
    assert lines == [*told, *(f"{one} done" for one in EVERY_TASK)]


@pytest.mark.heavy
@pytest.mark.parametrize(("hosts", "ranks"), SHAPES)
@pytest.mark.parametrize("alike", [False, True], ids=["apart", "alike"])
def test_networks_on_several_hosts(hosts: int, ranks: int, alike: bool, tmp_path: Path) -> None:
    """All small ones with devices for all ranks, and SqueezeNet, whose bytes between hosts are many."""
    graph = load_onnx(light_model("squeezenet", seed=1))
    p, fed = plan(graph, Mesh((4,))), draw_inputs(graph, 0)
    some = [make_case(*one) for one in EVERY if one[1] >= hosts * ranks]
    pickle_cases(tmp_path / "cases", [*some, Case("squeezenet", p, fed, run(p, fed, backend="serial"))])
    done = run_on_hosts(hosts, ranks, "work_on_hosts", str(tmp_path / "cases"), alike=alike)
    assert done.returncode == 0 and "squeezenet sent" in done.stdout, done.stderr
    check_bytes(done.stdout, 1.2)


@pytest.mark.heavy
@pytest.mark.parametrize("what", ["die_within", "die"])
def test_a_rank_of_another_host_that_is_killed_ends_all(what: str) -> None:
    begin = time.monotonic()
    done = run_on_hosts(2, 1, what)
    assert done.returncode != 0 and time.monotonic() - begin < 60
