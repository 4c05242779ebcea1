"""What must be equal wherever devices of one plan run: else bits, or steps, would differ."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from tapestry_exec.run.backends import BackendUnavailable
from tapestry_exec.run.ways.blas import name_blas
from tapestry_plan.steps import ShardPlan

MENDS = {
    "plan": "make the plan once and give all the same, by its document (to_json)",
    "BLAS": "run on machines of one kind, with the same build of NumPy: products would differ in their last bits",
    "collectives": "give MpiBackend the same on all ranks",
    "devices": "give MpiBackend the same device= on all ranks",
    "outputs": "give deploy the same outputs= on all ranks",
}
"""How to mend what is not equal, beside installing it."""


def find_versions() -> dict[str, str]:
    """The versions of what decides about bits, here: of this package, NumPy, and the BLAS that NumPy calls."""
    from importlib import metadata  # it takes 19 ms to import

    try:
        own = metadata.version("tapestry-tensor")
    except metadata.PackageNotFoundError:  # it runs from its sources
        own = "of unknown version"
    return {"tapestry-tensor": own, "numpy": np.__version__, "BLAS": name_blas()}


def name_clock() -> str:
    """What this machine's clock is known by: processes that give the same text have the same `perf_counter`."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            machine = file.read().strip()
    except OSError:  # another system
        return socket.gethostname()
    try:
        return f"{machine} {os.readlink('/proc/self/ns/time')}"  # containers may have clocks of their own
    except OSError:  # an older kernel, which has one
        return machine


def digest_plan(plan: ShardPlan) -> str:
    """A number for a plan, the same wherever it was made or read."""
    document = plan.to_dict()
    document.pop("alternatives", None)  # those that were asked for so far
    return hashlib.sha256(msgspec.json.encode(document, order="sorted")).hexdigest()[:16]


def check_alike(backend: str, found: Sequence[Mapping[str, str]], names: Sequence[str]) -> None:
    """Raise BackendUnavailable where two places differ in what `find_versions` gives, or in their plans.

    Parameters
    ----------
    backend : str
    found : sequence of mapping of str to str
    names : sequence of str
        Of the places.
    """
    difference = tell_difference(found, names)
    if difference:
        raise BackendUnavailable(f"backend {backend!r}: {difference}")


def tell_difference(found: Sequence[Mapping[str, str]], names: Sequence[str]) -> str:
    """In what another place differs from the first one, with the mend; empty where all are alike."""
    for what, value in found[0].items():
        for name, other in zip(names, found, strict=True):
            if other.get(what) != value:
                mend = MENDS.get(what, f"install {what} {value} everywhere")
                return f"{names[0]} has {what} {value}, {name} has {other.get(what)}; {mend}"
    return ""
