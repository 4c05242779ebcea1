"""What is compared wherever devices of one plan run."""

from __future__ import annotations

import subprocess
import sys
from time import monotonic

import pytest

from tapestry_exec import BackendUnavailable
from tapestry_exec.run import check_alike, name_clock
from tests.hosts import find_obstacle


@pytest.mark.heavy(2)
def test_the_blas_is_numpys_whatever_else_is_loaded() -> None:
    """SciPy brings its own, of another version: a process that has loaded it computes the same products."""
    pytest.importorskip("scipy.linalg")
    words = "from tapestry_exec.run.ways.blas import name_blas; print(name_blas())"
    told = [
        subprocess.run([sys.executable, "-c", before + words], capture_output=True, text=True, check=True).stdout
        for before in ("", "import scipy.linalg; ")
    ]
    assert told[0] == told[1] and "," not in told[0] and told[0].strip()


def test_a_container_with_a_clock_of_its_own_is_named_by_it() -> None:
    """Also where the kernel began once."""
    if obstacle := find_obstacle():
        pytest.skip(obstacle)
    words = "from time import monotonic; from tapestry_exec.run import name_clock; print(monotonic(), name_clock())"
    command = ["unshare", "--time", "--monotonic", "5000", "--fork", sys.executable, "-c", words]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    now, name = told.strip().split(" ", 1)
    assert name != name_clock() and float(now) - monotonic() > 4_000


def test_what_differs_is_named_with_its_mend() -> None:
    mine, other = {"numpy": "2.4.0", "BLAS": "a"}, {"numpy": "2.4.0", "BLAS": "b"}
    check_alike("dask", [mine, dict(mine)], ["here", "there"])
    with pytest.raises(BackendUnavailable, match="here has BLAS a, there has b; run on machines of one kind"):
        check_alike("dask", [mine, other], ["here", "there"])
