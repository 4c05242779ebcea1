"""Tallies: how many questions closed forms decided, how many isl, and how many the listing of cells, and in what time.

question ──► climb ──► the rung that answers notes itself ──► Decision: way, rung, microseconds, formula
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from time import perf_counter_ns
from typing import Any, ParamSpec, TypeVar

from msgspec import Struct

from tapestry_sets.limits import tuning
from tapestry_sets.limits.constructors import Public, hide_fields
from tapestry_sets.limits.formulas import tidy_formula, write_sum
from tapestry_sets.limits.printable import cut_text

P = ParamSpec("P")
R = TypeVar("R")

WAYS = {"": "closed form", "isl": "isl", "listed": "list"}
"""What people call a way, by the help that it took."""

Formula = Callable[..., "str | None"]
"""Writes what a rung added up and multiplied, of what the question was about; None where it has no such form."""
Noted = tuple[Callable[..., Any], "Formula | None", tuple[Any, ...]]
"""The rung that answered, what writes its formula, and what both were asked about."""


class Decision(Struct, frozen=True, metaclass=Public):
    """How one question was decided.

    Attributes
    ----------
    way : str
        "closed form", "isl" where that helped, or "list" where elements were listed.
    rung : str
        The function that answered: a rung of a ladder, or the equation that strided views are asked by. "" where the
        answer needed none, as that of views of different memory.
    microseconds : float
        How long the question took when it was asked first.
    is_kept : bool
        Whether the answer was asked for again, and came from the first time.

    Examples
    --------
    >>> from tapestry_sets import allocate, overlap
    >>> A = allocate((24,))
    >>> shared = overlap(A[::2], A[::3])
    >>> shared.size, shared.decisions["size"].way, shared.decisions["size"].formula
    (4, 'closed form', '10//3 + 1')
    """

    way: str
    rung: str
    microseconds: float
    is_kept: bool = False
    _write: Callable[[], str | None] | None = None
    _said: str = ""

    def __repr__(self) -> str:
        again = ", kept since" if self.is_kept else ""
        return f"Decision({self.way}, {cut_text(self.rung, 60) or 'nothing to decide'}, {self.time}{again})"

    @property
    def words(self) -> str:
        """What the rung does: the first sentence of its documentation."""
        return self._said

    @property
    def time(self) -> str:
        """The microseconds, to three figures."""
        return f"{self.microseconds:.3g} µs" if self.microseconds < 1000 else f"{self.microseconds:,.0f} µs"

    @property
    def formula(self) -> str | None:
        """What the rung added up and multiplied, as Python writes it; None where it has no such form, or a long one."""
        written = None if self._write is None else self._write()
        return tidy_formula(written) if written is not None and len(written) <= tuning.WRITTEN else None


class Tally(Struct, eq=False, metaclass=Public):
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
    last : Decision or None
        How the last question was decided; of a matrix, nothing.

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
    last: Decision | None = None
    _rungs: dict[str, int] = {}
    _helped: str = ""
    _noted: Noted | None = None

    __repr__ = hide_fields("last", "_rungs", "_helped", "_noted")

    @property
    def total(self) -> int:
        """How many questions were asked."""
        return self.closed + self.isl + self.listed

    @property
    def rungs(self) -> Counter[str]:
        """How often each rung of a ladder of ways decided, also one that a rung above it asked."""
        return Counter(self._rungs)

    def note(self, help_: str) -> None:
        """Note the help with the question at hand: "isl", or "listed", which outweighs it."""
        if self._helped != "listed":
            self._helped = help_

    def note_rung(
        self, ask: Callable[..., Any], write: Formula | None, about: tuple[Any, ...], defers: bool = False
    ) -> None:
        """Note the rung that answered; one that `defers` has the answer of the rung noted before."""
        name = ask.__name__
        self._rungs[name] = self._rungs.get(name, 0) + 1
        if not defers:
            self._noted = ask, write, about

    def settle_helped(self) -> None:
        """Count the question at hand if something helped with it."""
        if self._helped:
            self.settle()

    def settle(self, questions: int = 1) -> None:
        """Count the question at hand, or several that were decided alike."""
        name, self._helped = self._helped or "closed", ""
        setattr(self, name, getattr(self, name) + questions)

    def absorb(self, other: Tally) -> None:
        """Add what was kept of one question beside: it counts as one, or as those that it asked."""
        for name, times in other._rungs.items():
            self._rungs[name] = self._rungs.get(name, 0) + times
        self.closed, self.isl, self.listed = (
            self.closed + other.closed,
            self.isl + other.isl,
            self.listed + other.listed,
        )
        self._noted = other._noted or self._noted
        if other._helped:
            self.note(other._helped)

    def tell(self, nanoseconds: int, is_kept: bool = False) -> Decision:
        """Return how the one question was decided of which this was kept.

        Where it asked several, the rung is the last one's, and the way the one that took most help.
        """
        helped = "listed" if self.listed or self._helped == "listed" else "isl" if self.isl or self._helped else ""
        if self._noted is None:
            return Decision(WAYS[helped], "", nanoseconds / 1000, is_kept)
        ask, write, about = self._noted
        writes = None if write is None else partial(write, *about)
        return Decision(WAYS[helped], ask.__name__, nanoseconds / 1000, is_kept, writes, say_in_words(ask))


TALLY: ContextVar[Tally | None] = ContextVar("tally", default=None)
"""The tally that is kept, if one is."""


@contextmanager
def tally() -> Iterator[Tally]:
    """Count how the alias questions asked inside a ``with`` block are decided.

    Examples
    --------
    >>> from tapestry_sets import allocate, overlap_matrix, overlaps, tally
    >>> A = allocate((10**6, 10**6))
    >>> with tally() as decided:
    ...     matrix = overlap_matrix([A[::2], A[1::2], A.reshape(-1, 10**3)[:, 5]])
    >>> decided
    Tally(closed=6, isl=0, listed=0)
    >>> with tally() as decided:
    ...     met = overlaps(A.tril(), A.triu(1))
    >>> met, decided.last.way, decided.last.rung
    (False, 'closed form', 'find_in_bands')
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


def note_rung(ask: Callable[..., Any], write: Formula | None = None, *about: Any) -> None:
    """Note a way that answered before any ladder was climbed, and what writes its formula."""
    kept = TALLY.get()
    if kept is not None:
        kept.note_rung(ask, write, about)


def say_in_words(ask: Callable[..., Any]) -> str:
    """Return what a rung does: the first sentence of its documentation, up to a semicolon.

    Examples
    --------
    >>> say_in_words(note_help)
    'Note that isl ("isl") or a list of cells ("listed") helps with the question at hand'
    """
    return (ask.__doc__ or "").strip().split("\n")[0].split(";")[0].removesuffix(".")


def note_sum(parts: Sequence[Noted | None]) -> None:
    """Note that the answer at hand is the sum of several, each by a rung that was noted, with its formula."""
    kept, last = TALLY.get(), parts[-1]
    if kept is not None and last is not None:
        kept._noted = last[0], _write_parts, tuple(parts)


def _write_parts(*parts: Noted | None) -> str | None:
    written = [write(*about) if write is not None else None for _, write, about in filter(None, parts)]
    return write_sum(filter(None, written)) if None not in written and len(written) == len(parts) else None


def read_rung() -> Noted | None:
    """Return the rung that was noted last, with what writes its formula."""
    kept = TALLY.get()
    return None if kept is None else kept._noted


def decide(ask: Callable[..., R], *about: Any) -> tuple[R, Tally, int]:
    """Return the answer to one question, what was kept of it alone, and the nanoseconds that it took.

    Examples
    --------
    >>> from tapestry_sets import allocate, overlaps
    >>> A = allocate((24,))
    >>> answer, kept, nanoseconds = decide(overlaps, A[::2], A[1::2])
    >>> answer, kept.tell(nanoseconds).rung, nanoseconds > 0
    (False, 'meet', True)
    """
    around, kept = TALLY.get(), Tally()
    token = TALLY.set(kept)
    begun = perf_counter_ns()
    try:
        answer = ask(*about)
        spent = perf_counter_ns() - begun
        if around is not None and not kept.total:
            kept.settle()
    finally:
        TALLY.reset(token)
        if around is not None:
            around.absorb(kept)
    return answer, kept, spent


class Asked(Struct, frozen=True, eq=False, kw_only=True):
    """A value whose questions are decided when they are asked first; answers are kept with how they were decided."""

    _answers: dict[str, tuple[Any, Tally, int, bool]] = {}

    @property
    def decisions(self) -> dict[str, Decision]:
        """How each question was decided that was asked so far, by its name.

        Examples
        --------
        >>> from tapestry_sets import allocate, overlap
        >>> A = allocate((10**9, 10**9), name="A")
        >>> o = overlap(A.tril(), A[:10])
        >>> o.size, o.decisions["size"].way, o.decisions["size"].formula, o.decisions["size"].is_kept
        (55, 'closed form', '10*10 - 10*9//2', False)
        >>> o.nbytes, o.decisions["size"].is_kept
        (55, True)
        """
        return {name: kept.tell(spent, is_kept) for name, (_, kept, spent, is_kept) in self._answers.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        own = [getattr(self, name) for name in self.__struct_fields__ if name != "_answers"]
        return type(self), tuple(own)  # answers stay where they were decided

    def explain(self) -> str:
        """Return the answer, and for each question that was asked the way, its time, the rung, and a count's formula.

        Examples
        --------
        >>> from tapestry_sets import allocate, overlap
        >>> A = allocate((24,), name="A", dtype="float32")
        >>> print(overlap(A[::2], A[::3]).explain())  # doctest: +ELLIPSIS
        Overlap(4 cells, 16 B: A[0] = a[0] = b[0])
        overlaps: closed form, ... µs (meet: Solve one linear equation of the steps of both)
        witness: closed form, ... µs (divide_by_strides: ...)
        size: closed form, ... µs, kept since (count_met: ...): 10//3 + 1
        """
        lines = [repr(self)]
        for question, decision in self.decisions.items():
            rung = f" ({decision.rung}: {decision.words})" if decision.rung else ""
            again = ", kept since" if decision.is_kept else ""
            counted = "" if decision.formula is None else f": {decision.formula}"
            lines.append(f"{question}: {decision.way}, {decision.time}{again}{rung}{counted}")
        return "\n".join(lines)

    def _notes(self) -> list[str]:
        """The way and the time of each question, a line for each: in a picture."""
        return [f"{name}: {d.way}, {d.time}" + ", kept since" * d.is_kept for name, d in self.decisions.items()]

    def _ask(self, question: str, ask: Callable[..., Any], *about: Any) -> Any:
        """The answer to a question, which is kept with how it was decided, and whether it was asked again."""
        answers = self._answers
        found = answers.get(question)
        if found is None:
            found = answers[question] = *decide(ask, *about), False
        elif not found[3]:
            answers[question] = *found[:3], True
        return found[0]


def count_question(question: Callable[P, R]) -> Callable[P, R]:
    """Make a function count as one question; those that it asks itself are not counted."""

    @wraps(question)
    def ask(*args: P.args, **kwargs: P.kwargs) -> R:
        around = TALLY.get()
        if around is None:
            return question(*args, **kwargs)
        answer, kept, spent = decide(partial(question, *args, **kwargs))
        around.last = kept.tell(spent)
        return answer

    return ask
