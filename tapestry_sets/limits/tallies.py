"""Tallies: how many questions closed forms decided, how many isl, and how many the listing of cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

from msgspec import Struct, field

from tapestry_sets.limits.constructors import hide_fields

P = ParamSpec("P")
R = TypeVar("R")


class Tally(Struct, eq=False):
    """How questions were decided. A matrix is one question for each of its pairs.

    Attributes
    ----------
    closed : int
        By closed forms alone.
    isl : int
        With the help of isl, the integer set library, and without a list.
    listed : int
        From lists of cells, the last resort.
    rungs : Counter of str
        How often each rung of a ladder of ways decided, also one that a rung above it asked.

    Examples
    --------
    >>> from tapestry_sets import allocate, overlap, overlaps, tally
    >>> A = allocate((10**6, 10**6))
    >>> with tally() as decided:
    ...     found = overlaps(A[::2], A[1::2]), overlaps(A[::3], A.T)
    >>> found, decided.total, decided.closed
    ((False, True), 2, 2)
    """

    closed: int = 0
    isl: int = 0
    listed: int = 0
    rungs: Counter[str] = field(default_factory=Counter)
    _helped: str = ""

    __repr__ = hide_fields("rungs", "_helped")

    @property
    def total(self) -> int:
        """How many questions were asked."""
        return self.closed + self.isl + self.listed

    def note(self, help_: str) -> None:
        """Note the help with the question at hand: "isl", or "listed", which outweighs it."""
        if self._helped != "listed":
            self._helped = help_

    def settle_helped(self) -> None:
        """Count the question at hand if something helped with it."""
        if self._helped:
            self.settle()

    def settle(self, questions: int = 1) -> None:
        """Count the question at hand, or several that were decided alike."""
        name, self._helped = self._helped or "closed", ""
        setattr(self, name, getattr(self, name) + questions)


TALLY: ContextVar[Tally | None] = ContextVar("tally", default=None)
"""The tally that is kept, if one is."""


@contextmanager
def tally() -> Iterator[Tally]:
    """Count how the alias questions asked inside a ``with`` block are decided.

    Examples
    --------
    >>> from tapestry_sets import allocate, overlap_matrix, tally
    >>> A = allocate((10**6, 10**6))
    >>> with tally() as decided:
    ...     matrix = overlap_matrix([A[::2], A[1::2], A.reshape(-1, 10**3)[:, 5]])
    >>> decided
    Tally(closed=6, isl=0, listed=0)
    """
    kept = Tally()
    token = TALLY.set(kept)
    try:
        yield kept
    finally:
        TALLY.reset(token)


def note_help(by: str) -> None:
    """Note that isl ("isl") or a list of cells ("listed") helps with the question at hand."""
    kept = TALLY.get()
    if kept is not None:
        kept.note(by)


def count_question(question: Callable[P, R]) -> Callable[P, R]:
    """Make a function count as one question; those that it asks itself are not counted."""

    @wraps(question)
    def ask(*args: P.args, **kwargs: P.kwargs) -> R:
        kept = TALLY.get()
        if kept is None:
            return question(*args, **kwargs)
        before = kept.total
        answer = question(*args, **kwargs)
        if kept.total == before:
            kept.settle()
        return answer

    return ask
