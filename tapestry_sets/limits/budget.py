"""Limits: how much work a question may cost, and how many pieces an explicit answer may have, before it raises.

A way to answer takes its steps from a `Budget`. If it cannot answer, it returns `OPEN`, and the next way is tried;
the last one raises `TooHard` or `TooManyPieces`. No other exception says that a budget is used up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from enum import Enum
from sys import maxsize
from typing import Any, Final

from msgspec import Struct

from tapestry_sets.limits import tuning
from tapestry_sets.limits.arguments import check_positive
from tapestry_sets.limits.constructors import Checked


class TooManyPieces(ValueError):
    """An explicit answer needs more pieces than allowed; the message names a query that needs none.

    Examples
    --------
    >>> from tapestry_sets import Sett, Stripe
    >>> both = Sett(Stripe(50001, 50002)) & Stripe(50009, 50010)
    >>> both.count(0, 10**12)  # needs no list
    249978719600
    >>> both.setts()
    Traceback (most recent call last):
        ...
    tapestry_sets.limits.budget.TooManyPieces: what ((50001, 100003, 0),) and ((50009, 100019, 0),) (on, period,
    phase) share is not listed in 40000 blocks; count_common, first_common, isdisjoint and issubset list
    nothing, within=(start, stop) lists a part, and limits(max_pieces=40000) allows more
    """


class TooHard(ValueError):
    """No closed form answers within the budget, nor does isl; the message estimates the work.

    Examples
    --------
    >>> from tapestry_sets import Sett, Stripe, limits
    >>> a, b, c = (Sett(Stripe(n // 2, n - n // 2)) for n in (4294967291, 4294967279, 4294967231))
    >>> with limits(budget=1000):
    ...     (a & b & c).count(0, 10**28)
    Traceback (most recent call last):
        ...
    tapestry_sets.limits.budget.TooHard: count of common elements of 3 sets of periods [4294967291, 4294967279,
    4294967231]: 4294967231 or more branches on top of 1, and the budget is 1000; ask within a shorter range, or
    allow more by limits(budget=8589936462)
    >>> (a & b & c).count(10**10, 10**11)  # as the message says: within a shorter range
    44902827684
    """


class Limits(Struct, frozen=True, metaclass=Checked):
    """The costs that questions and explicit answers may have.

    Attributes
    ----------
    max_pieces : int
        How many setts or regions an explicit answer may need before `TooManyPieces` is raised.
    budget : int
        How many branches, some microseconds each, a question may take before `TooHard` is raised.

    Examples
    --------
    >>> from tapestry_sets import limits
    >>> with limits(max_pieces=100) as held:
    ...     held
    Limits(max_pieces=100, budget=100000)
    """

    max_pieces: int = tuning.MAX_PIECES
    budget: int = tuning.BUDGET

    @classmethod
    def _check(cls, max_pieces: int = tuning.MAX_PIECES, budget: int = tuning.BUDGET) -> tuple[int, int]:
        return check_positive(max_pieces, "limits: max_pieces"), check_positive(budget, "limits: budget")


_DEFAULT = Limits()
_CURRENT: ContextVar[Limits] = ContextVar("limits", default=_DEFAULT)


def current() -> Limits:
    """Return the limits in force."""
    return _CURRENT.get()


@contextmanager
def limits(*, max_pieces: int | None = None, budget: int | None = None) -> Iterator[Limits]:
    """Change the limits of all questions asked inside a ``with`` block, in this thread or asyncio task.

    Threads and pools that are started inside have the defaults: enter `limits` in what they run, or run that in
    ``contextvars.copy_context()``.

    Parameters
    ----------
    max_pieces : int, optional
        How many pieces an explicit answer may need, >= 1.
    budget : int, optional
        How many branches a question may take, >= 1.

    Raises
    ------
    ValueError
        If a limit is less than 1.

    Examples
    --------
    >>> from tapestry_sets import Sett, Stripe, TooManyPieces, limits
    >>> both = Sett(Stripe(50001, 50002)) & Stripe(50009, 50010)
    >>> with limits(max_pieces=20):
    ...     both.setts()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tapestry_sets.limits.budget.TooManyPieces: ...
    """
    old = _CURRENT.get()
    new = Limits(
        old.max_pieces if max_pieces is None else max_pieces,
        old.budget if budget is None else budget,
    )
    token = _CURRENT.set(new)
    try:
        yield new
    finally:
        _CURRENT.reset(token)


def check_pieces(n: int, what: str, instead: str = "count_common, first_common and isdisjoint need none") -> None:
    """Raise `TooManyPieces` if n pieces are more than allowed; `instead` names what needs no pieces."""
    most = _CURRENT.get().max_pieces
    if n > most:
        raise TooManyPieces(
            f"{what}: {n} or more pieces, more than {most}; {instead}, and limits(max_pieces={n}) allows them"
        )


# ------------------------------------------------------------------ one budget


class Open(Enum):
    """The answer of a way that leaves the question open. The only member is `OPEN`."""

    OPEN = "open"


OPEN: Final = Open.OPEN
"""The question is left open; compare by ``is``."""


class Budget:
    """How many steps may still be taken: branches of a search, blocks of a list, remainders of a sum.

    Once it is overdrawn it stays so: what is added up after that means nothing, and a sum may check once, at its end.

    Parameters
    ----------
    most : int
        How many steps may be taken.
    isl : bool
        Whether isl may still be asked.
    lists : bool
        Whether elements may be listed.

    Attributes
    ----------
    left : int
        How many steps are left; negative if more were asked for.

    Examples
    --------
    >>> budget = Budget(10)
    >>> budget.spend(7), budget.spend(4), budget.spend(1), budget.spent
    (True, False, False, 10)
    """

    __slots__ = ("isl", "left", "lists", "most")

    def __init__(self, most: int, isl: bool = True, lists: bool = True) -> None:
        self.most = most
        self.left = most
        self.isl = isl
        self.lists = lists

    def spend(self, steps: int = 1) -> bool:
        """Take steps; return whether there were that many."""
        self.left -= steps
        return self.left >= 0

    @property
    def is_overdrawn(self) -> bool:
        """Whether more steps were asked for than there were."""
        return self.left < 0

    @property
    def spent(self) -> int:
        """How many steps have been taken, at most all."""
        return self.most - max(self.left, 0)


_QUESTION: ContextVar[Budget | None] = ContextVar("question", default=None)


class Question:
    """A context in which all that is asked shares one budget; inside another it is the other's.

    Parameters
    ----------
    attempt : bool
        Whether at most half of what is left may be spent, because there are other ways.
    isl, lists : bool
        Whether isl may be asked, and elements be listed, as far as the question around allows it.
    most : int, optional
        How many steps an attempt may take at most.

    Examples
    --------
    >>> with Question() as budget, Question() as same, Question(attempt=True) as half:
    ...     budget is same, half.left / budget.left
    (True, 0.5)
    """

    __slots__ = ("_around", "_attempt", "_budget", "_isl", "_lists", "_most", "_token")

    def __init__(self, attempt: bool = False, isl: bool = True, lists: bool = True, most: int = maxsize) -> None:
        self._attempt = attempt
        self._isl = isl
        self._lists = lists
        self._most = most

    def __enter__(self) -> Budget:
        self._token: Token[Budget | None] | None = None
        self._around = budget = _QUESTION.get()
        if budget is None:
            budget = Budget(min(_CURRENT.get().budget, self._most), self._isl, self._lists)
            self._token = _QUESTION.set(budget)
        elif self._attempt or not (self._isl and self._lists):
            most = budget.left // 2 if self._attempt else budget.left
            most = max(0, min(most, self._most))
            budget = Budget(most, budget.isl and self._isl, budget.lists and self._lists)
            self._token = _QUESTION.set(budget)
        self._budget = budget
        return budget

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _QUESTION.reset(self._token)
            if self._around is not None:
                self._around.left -= self._budget.spent
                if self._isl:
                    self._around.isl = self._budget.isl


def charge(branches: int, what: str) -> None:
    """Take branches from the question that is asked, if one is; raise `TooHard` if it has fewer.

    Elements that are listed on the way to an answer are charged for, and a list that is the answer itself is not.

    Examples
    --------
    >>> charge(10**9, "a list that was asked for")
    >>> with Question() as budget:
    ...     charge(100, "a list on the way")
    ...     budget.spent
    100
    """
    budget = _QUESTION.get()
    if budget is not None and not budget.spend(branches):
        raise TooHard(
            f"{what}: {branches} or more branches, and what was left of the budget of {budget.most} is less; ask "
            f"within a shorter range, or allow more by limits(budget={2 * (budget.most + branches)})"
        )


def unite_by_halves(sets: Sequence[Any]) -> Any:
    """Return the union of one or more sets, by ``|``.

    A union goes through all parts of both of its operands: one by one, n of them would take n² steps.

    Examples
    --------
    >>> unite_by_halves([{1}, {2, 3}, {1, 4}])
    {1, 2, 3, 4}
    """
    half = len(sets) // 2
    return unite_by_halves(sets[:half]) | unite_by_halves(sets[half:]) if half else sets[0]
