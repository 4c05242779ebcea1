"""Fewer full collections of Python's garbage while a plan is searched.

A full collection goes through every object that there is. Planning makes hundreds of thousands that stay until it ends,
and next to none in cycles, so that each finds nothing, in a time that grows with the graph: a twelfth of that of a
large plan in all. Young objects are collected as always, and all of them once the outermost call is over.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from tapestry_plan.search import tuning

_lock = Lock()
_before: list[tuple[int, int, int]] = []
"""The thresholds at each call that is under way: those of the first one are those to restore."""


@contextmanager
def put_off_full_collections() -> Iterator[None]:
    """Make full collections wait; afterwards the thresholds are what they were, on errors too.

    Calls may be in one another, and in several threads: the last one restores them. Thresholds that somebody else sets
    meanwhile stay.
    """
    with _lock:
        _before.append(gc.get_threshold())
        if len(_before) == 1:
            gc.set_threshold(*_before[0][:2], tuning.MIDDLE_COLLECTIONS)
    try:
        yield
    finally:
        with _lock:
            first = _before[0]
            _before.pop()
            if not _before and gc.get_threshold() == (*first[:2], tuning.MIDDLE_COLLECTIONS):
                gc.set_threshold(*first)
