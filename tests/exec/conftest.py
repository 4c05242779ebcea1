"""Where the executor's tests run: on arenas of NumPy's and, with `-m gpu`, the same tests on a GPU."""

from __future__ import annotations

import pytest

from tapestry_exec import CupyBackend


@pytest.fixture(scope="module", params=["numpy", pytest.param("gpu", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> str | CupyBackend:
    """What `run` gets as its backend: the name of NumPy's, or a CupyBackend that all tests of a module share."""
    return "numpy" if request.param == "numpy" else CupyBackend(fallback=True, poison=True)
