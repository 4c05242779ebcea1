"""Workers on several hosts, which are namespaces of this machine: bits, bytes and clocks as on one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.exec.small_networks import EVERY, write_cases
from tests.hosts import IN_NETWORK, find_obstacle

REPOSITORY = Path(__file__).parents[3]
OBSTACLE = find_obstacle()


@pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE)
@pytest.mark.parametrize(
    ("workers", "which"),
    [(1, [("sums", 2)]), pytest.param(2, EVERY, marks=pytest.mark.heavy)],
    ids=["a sample", "every"],
)
def test_workers_of_two_hosts_give_the_bits_and_bytes_of_one_loop(
    workers: int, which: Sequence[tuple[str, int]], tmp_path: Path
) -> None:
    write_cases(tmp_path / "cases", which)
    command = [*IN_NETWORK, sys.executable, "-m", "tests.exec.dask.on_hosts", str(tmp_path / "cases"), str(workers)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    *told, failed = map(json.loads, done.stdout.splitlines())
    assert [one["name"] for one in told] == [f"{name} on {count}" for name, count in which]
    assert all(one["sent"] <= one["came"] for one in told)
    assert all(one["hosts"] == 2 for one, (_, count) in zip(told, which, strict=True) if count > workers)
    assert "compute 'act' on device 0" in failed["error"] and "too hot" in failed["error"]
