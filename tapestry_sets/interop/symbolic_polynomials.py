"""Counts of sets with one parameter, as polynomials of it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any

from tapestry_sets.interop.symbolic_counts import count_cells
from tapestry_sets.interop.symbolic_expressions import load_sympy
from tapestry_sets.limits import TooHard, quote

PolynomialTerms = tuple[Fraction, ...]
"""Of a polynomial, that of the lowest power first; none for 0."""


class FinerClasses(ValueError):
    """An expression is a polynomial in classes of remainders only: so many for each value."""

    def __init__(self, many: int) -> None:
        super().__init__(f"it is a polynomial in each of {many} classes")
        self.many = many


def count_polynomial(cells: Any, parameter: str) -> tuple[PolynomialTerms, int]:
    """Return the number of points of a set of isl as a polynomial of its parameter, and the value from which on it is.

    Parameters
    ----------
    cells : islpy.Set
        Bounded for each value of its one parameter, which is >= 0.
    parameter : str
        Its name.

    Raises
    ------
    FinerClasses
        Where it is a polynomial in classes of remainders of the parameter only.
    TooHard
        As `count_cells`, and where it is not a polynomial.

    Examples
    --------
    >>> import islpy
    >>> found, least = count_polynomial(islpy.Set("[m] -> { [x, y] : 0 <= x < 4m + 1 and 2 <= y < 5 }"), "m")
    >>> [int(factor) for factor in found], least
    ([3, 12], 0)
    """
    symbol = load_sympy().Symbol(parameter, integer=True, nonnegative=True)
    found = read_polynomial(count_cells(cells, [symbol]), symbol)
    if found is None:
        raise TooHard(f"count_polynomial: the number of points of {quote(cells)} is not a polynomial of {parameter}")
    return found


def read_polynomial(expression: Any, symbol: Any) -> tuple[PolynomialTerms, int] | None:
    """The polynomial that an expression of sympy is from some value of its symbol on, and the least such value >= 0.

    Comparisons of the symbol with a number have one truth behind it. So the expression is a polynomial there; it may
    have the same values before, which are looked at one by one.

    Raises
    ------
    FinerClasses
        Where it has floors or remainders of the symbol.

    Examples
    --------
    >>> from sympy import Piecewise, Symbol
    >>> m = Symbol("m", integer=True, nonnegative=True)
    >>> read_polynomial(m * Piecewise((3, m >= 1), (0, True)), m)[1]
    0
    >>> read_polynomial(Piecewise((3 * m, m >= 2), (0, True)), m)[1]
    2
    """
    sympy = load_sympy()
    many = lcm(
        *(int(one.args[0].coeff(symbol).q) for one in expression.atoms(sympy.floor)),
        *(int(one.args[1]) for one in expression.atoms(sympy.Mod)),
    )
    if many > 1:
        raise FinerClasses(many)
    whole = expression.rewrite(sympy.Piecewise) if expression.has(sympy.Max, sympy.Min) else expression
    least = 0
    for one in whole.atoms(sympy.core.relational.Relational):
        apart = (one.lhs - one.rhs).as_poly(symbol)
        if apart is None or apart.degree() > 1:
            return None
        if apart.degree() == 1:
            slope, constant = apart.all_coeffs()
            least = max(least, int(-constant // slope) + 1)
    settled = whole.subs({one: one.subs(symbol, least) for one in whole.atoms(sympy.core.relational.Relational)})
    if not settled.is_polynomial(symbol):
        return None
    each = settled.as_poly(symbol).all_coeffs() if settled.has(symbol) else [settled]
    found = _trim([Fraction(int(one.p), int(one.q)) for one in reversed(each)])
    while least and int(expression.subs(symbol, least - 1)) == _evaluate(found, least - 1):
        least -= 1
    return found, least


def _trim(found: Sequence[Fraction]) -> PolynomialTerms:
    last = max((k for k, factor in enumerate(found) if factor), default=-1)
    return tuple(found[: last + 1])


def _evaluate(found: Sequence[Fraction], n: int) -> Fraction:
    return sum((factor * n**power for power, factor in enumerate(found)), Fraction(0))
