"""What no plan does without, known before any search: memory in which not even one operator runs.

Wherever an operator runs, what it reads of each tensor and what it makes lie on its device at once. So of each of its
layouts the device with the most of that says what must fit, and of all layouts, and of all blocks that it may be in,
the one where that is least::

    layout     device 0   device 1   fullest
    m:2          640        640        640
    n:2          512        512        512   ◄─ no plan runs this operator in less
    alone       1024          0       1024
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tapestry_plan.search.caps.least import LeastMemory
from tapestry_plan.search.prices.added import MemoryOfMany
from tapestry_plan.search.prices.costs import Problem
from tapestry_plan.search.sums.elimination import Factor
from tapestry_sets.limits import quote


class Shortage(Struct, frozen=True):
    """Why no plan keeps some caps: a device needs so many bytes at least, as the words say."""

    nbytes: int
    words: str


def find_unrunnable(problem: Problem, caps: Sequence[int]) -> Shortage | None:
    """The operator that needs the most on some device, of those that no layout runs in the caps; None if all run."""
    worst: Shortage | None = None
    for node in problem.order:
        ways = (np.where(needed > np.array(caps), needed, 0).max(axis=1).min() for needed in problem.list_needed(node))
        nbytes = int(min(ways))
        if nbytes > (worst.nbytes if worst else 0):
            words = f"one device holds {nbytes:,} bytes or more: what operator {quote(node.name)} reads and makes there"
            worst = Shortage(nbytes, words)
    return worst


def find_overfull(problem: Problem, caps: Sequence[int], same: Sequence[Factor]) -> Shortage | None:
    """What devices need on average at some moment, where they have less; None where they have that.

    Parameters
    ----------
    problem : Problem
    caps : sequence of int
    same : sequence of Factor
        Layouts that need not be looked at.
    """
    memory = MemoryOfMany(problem, is_mean=True)
    least = LeastMemory(problem, memory, same)
    if least.nbytes * len(memory.devices) <= sum(caps[device] for device in memory.devices):
        return None
    return Shortage(least.nbytes, f"devices hold {least.nbytes:,} bytes or more on average")
