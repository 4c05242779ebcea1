"""All of tapestry under one name: exact sets, plans and runs.

Each public name of `tapestry_sets`, `tapestry_plan` and `tapestry_exec`; its package is loaded when it is asked for.

Examples
--------
>>> import numpy as np
>>> import tapestry as tp
>>> A = tp.allocate((27,), name="A")
>>> tp.overlap(A.reshape(3, 3, 3)[:2, :2, :2], A[2::5])
Overlap(1 cell, 1 B: A[12] = a[1, 1, 0] = b[2])
>>> g = tp.Graph()
>>> _ = g.output(tp.ops.relu(g.input("x", (4, 6))), "y")
>>> tp.run(tp.plan(g, tp.Mesh(2)), {"x": np.ones((4, 6), np.float32)}).outputs["y"].shape
(4, 6)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tapestry_exec import *
    from tapestry_plan import *
    from tapestry_sets import *

PACKAGES = ("tapestry_sets", "tapestry_plan", "tapestry_exec")


def __getattr__(name: str) -> Any:
    """A public name of the first package that has it; none is in two of them."""
    if name == "__all__":
        return __dir__()
    if not name.startswith("_"):
        for package in map(import_module, PACKAGES):
            if name in package.__all__:
                return getattr(package, name)
    from tapestry_sets.limits import list_names, quote

    raise AttributeError(f"module 'tapestry' has no attribute {quote(name)}; {list_names(__dir__(), name)}")


def __dir__() -> list[str]:
    return sorted(name for package in map(import_module, PACKAGES) for name in package.__all__)
