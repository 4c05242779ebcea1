"""Limits: how much work a question may cost, and how many pieces an explicit answer may have, before it raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from tapestry_sets.limits.arguments import as_int


class TooManyPieces(ValueError):
    """An explicit answer needs more pieces than allowed; the message names a query that needs none."""


class TooHard(ValueError):
    """No closed form answers within the budget, nor does isl; the message estimates the work."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What questions and explicit answers may cost.

    Attributes
    ----------
    max_pieces : int
        How many setts or regions an explicit answer may need before `TooManyPieces` is raised.
    budget : int
        How many branches, some microseconds each, a question may take before `TooHard` is raised.
    """

    max_pieces: int = 10_000
    budget: int = 100_000


_DEFAULT = Limits()
_CURRENT: ContextVar[Limits] = ContextVar("limits", default=_DEFAULT)


def current() -> Limits:
    """Return the limits in force."""
    return _CURRENT.get()


@contextmanager
def limits(*, max_pieces: int | None = None, budget: int | None = None) -> Iterator[Limits]:
    """Change the limits of all questions asked inside a ``with`` block.

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
    >>> from tapestry_sets import Sett, Stripe, TooManyPieces
    >>> both = Sett(Stripe(50001, 50002)) & Stripe(50009, 50010)
    >>> with limits(max_pieces=20):
    ...     both.setts()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tapestry_sets.limits.budget.TooManyPieces: ...
    """
    old = _CURRENT.get()
    new = Limits(
        old.max_pieces if max_pieces is None else _positive(max_pieces, "limits: max_pieces"),
        old.budget if budget is None else _positive(budget, "limits: budget"),
    )
    token = _CURRENT.set(new)
    try:
        yield new
    finally:
        _CURRENT.reset(token)


def _positive(value: object, what: str) -> int:
    n = as_int(value, what)
    if n < 1:
        raise ValueError(f"{what} must be at least 1, not {n}")
    return n


def check_pieces(n: int, what: str, instead: str = "count_common, first_common and isdisjoint need none") -> None:
    """Raise `TooManyPieces` if n pieces are more than allowed; `instead` names what needs no pieces."""
    most = _CURRENT.get().max_pieces
    if n > most:
        raise TooManyPieces(
            f"{what}: {n} or more pieces, more than {most}; {instead}, and limits(max_pieces={n}) allows them"
        )
