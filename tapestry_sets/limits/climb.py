"""The one loop that runs a ladder: each rung answers the question or leaves it open for the next.

    question ──► rung 1 ──open──► rung 2 ──open──► … ──open──► Open(why)
                   │                │
                 answer           answer

A rung says that it cannot answer by returning `Open`. The closed form that it calls may refuse by raising `TooHard` or
`TooManyPieces`; only what stands among the rung's `refusals` is taken for that. Every other error is a fault, and
reaches the caller. No other module catches these two errors: who asks one way alone asks here, by `ask_one` or, with a
part of the budget, by `attempt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from sys import maxsize
from typing import Any, NamedTuple, TypeVar

from tapestry_sets.limits.budget import OPEN, Open, Question, TooHard, TooManyPieces
from tapestry_sets.limits.tallies import TALLY, Formula


class Rung(NamedTuple):
    """One way to answer a question.

    Attributes
    ----------
    ask : callable
        Takes what the question is about, and returns the answer or `Open`. The tally knows the rung by its name, and
        people are told the first sentence of its documentation.
    refusals : tuple of exception types
        What `ask` may raise to leave the question open.
    help : str
        "isl" or "listed" where that, and no closed form, answers.
    write : callable, optional
        Takes the same, and writes what `ask` added up and multiplied; None where that is not one short formula.
    defers : bool
        Whether the answer is that of a ladder below, whose rung is told of then.
    """

    ask: Callable[..., Any]
    refusals: tuple[type[Exception], ...] = ()
    help: str = ""
    write: Formula | None = None
    defers: bool = False


def name_way(name: str, words: str, ask: Callable[..., Any]) -> Callable[..., Any]:
    """Give a way that was made of others the name by which a tally knows it, and the words that people are told."""
    ask.__name__, ask.__doc__ = name, words
    return ask


T = TypeVar("T")

HARD, MANY, REFUSALS = (TooHard,), (TooManyPieces,), (TooHard, TooManyPieces)
"""What a rung may refuse with whose closed form needs few branches, or few pieces, or both."""


def climb(rungs: Iterable[Rung], *about: Any, closed: bool = False) -> Any:
    """Return the answer of the first rung that has one.

    Parameters
    ----------
    rungs : iterable of Rung
    *about
        What the question is about.
    closed : bool
        Ask only the rungs before the first that takes isl or a list, and return `OPEN` if they leave the question open.

    Raises
    ------
    TooHard, TooManyPieces
        If no rung answers: what isl refused with, which tells what to do, else the first refusal.

    Examples
    --------
    >>> def halve(n):
    ...     return n // 2 if n % 2 == 0 else OPEN
    >>> climb((Rung(halve), Rung(lambda n: n)), 7), climb((Rung(halve),), 7, closed=True)
    (7, <Open.OPEN: 'open'>)
    """
    told: Exception | None = None
    for rung in rungs:
        if closed and rung.help:
            break
        try:
            answer = rung.ask(*about)
        except rung.refusals as refusal:
            told = refusal if told is None or rung.help == "isl" else told
            continue
        if answer is not OPEN:
            kept = TALLY.get()
            if kept is not None:
                kept.note_rung(rung.ask, rung.write, about, rung.defers)
            return answer
    if closed:
        return OPEN
    raise told or TooHard(f"no way answers about {', '.join(map(str, about))}")


def ask_one(refusals: tuple[type[Exception], ...], way: Callable[..., T], *about: Any) -> T | Open:
    """Return the answer of one way, `OPEN` if it refuses."""
    try:
        return way(*about)
    except refusals:
        return OPEN


def attempt(way: Callable[[], T], most: int = maxsize) -> T | Open:
    """Return the answer of one way within half of the rest of the budget, `most` steps at most; `OPEN` if it refuses.

    Sets that are made of sets ask each other to any depth, and the innermost one refuses by an error as it does
    when a caller asks it. It becomes `OPEN` here.

    Examples
    --------
    >>> from tapestry_sets.limits import check_pieces
    >>> attempt(lambda: 5), attempt(lambda: check_pieces(10**9, "a long list"))
    (5, <Open.OPEN: 'open'>)
    """
    with Question(attempt=True, most=most):
        return ask_one(REFUSALS, way)


def retell(
    tell: Callable[[Any], Exception], way: Callable[..., T], *about: Any, refusals: type[Exception] = TooHard
) -> T:
    """Return the answer of one way; where it is too hard, or refuses otherwise, raise the error that `tell` makes."""
    try:
        return way(*about)
    except refusals as error:
        raise tell(error) from None
