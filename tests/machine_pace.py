"""How much slower this machine is at this minute than the one on which limits of the processor's time were chosen.

A limit in seconds is there to find questions that hang. A machine that is slow, or shared by others, needs more of
them for the same work; as much more as it needs for a piece of pure Python that is always the same.
"""

from __future__ import annotations

import time
from math import gcd

USUAL = 0.011
"""Seconds of the processor's time that `work` takes on an AMD EPYC with nothing beside it."""
AGE = 5.0
"""Seconds until the pace is measured anew."""
_measured: list[float] = [-AGE, 1.0]


def work() -> int:
    """Do what the engine mostly does: look at tuples of integers, and keep what came out in dictionaries."""
    found: dict[tuple[int, int], int] = {}
    for i in range(1, 60_000):
        pair = (i % 127, i % 311)
        found[pair] = found.get(pair, 0) + gcd(i, 5040)
    return sum(found.values())


def slower() -> float:
    """Return how many times more of the processor's time the same work takes here and now; at least 1."""
    if time.monotonic() - _measured[0] > AGE:
        began = time.process_time()
        work()
        _measured[:] = time.monotonic(), max(1.0, (time.process_time() - began) / USUAL)
    return _measured[1]
