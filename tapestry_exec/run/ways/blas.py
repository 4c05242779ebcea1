"""One thread for BLAS while plans run: the bits of a product depend on how many it has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

_LOCK = Lock()
_RUNS: list[Any] = []
"""The limits of runs that are on: the first one sets the number of threads, the last one to end gives it back."""


@lru_cache(maxsize=1)
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController  # looks at all libraries of the process: once, when a plan runs

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Have BLAS work on the caller's thread alone; runs may be on in several threads at once."""
    with _LOCK:
        _RUNS.append(_libraries().limit(limits=1) if not _RUNS else None)
    try:
        yield
    finally:
        with _LOCK:
            limit = _RUNS[0]
            _RUNS.pop()  # they are equal but for the first one, which goes last
            if not _RUNS:
                limit.restore_original_limits()


def name_blas() -> str:
    """The BLAS that NumPy calls: what it is, its version, and the processor that it is for.

    Others may be loaded beside it, as SciPy's own. Where NumPy has none in its folders, all that are loaded are named.
    """
    loaded, folder = _libraries().info(), str(Path(np.__file__).parent)  # and its neighbor, numpy.libs
    found = {
        f"{one['internal_api']} {one['version']} for {one.get('architecture') or 'any processor'}"
        for one in [one for one in loaded if one["filepath"].startswith(folder)] or loaded
    }
    return ", ".join(sorted(found)) or "none"
