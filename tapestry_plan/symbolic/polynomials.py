"""Polynomials in one size, one for each class of its remainders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import zip_longest
from math import lcm
from typing import Any

from msgspec import Struct

from tapestry_sets.limits import as_int, quote

Coefficients = tuple[Fraction, ...]
"""Of a polynomial, that of the lowest power first; none for 0."""


class Polynomials(Struct, frozen=True):
    """A number that is a polynomial of a size, in each class of the size's remainders.

    Parameters
    ----------
    symbol : str
        What the size is called.
    classes : tuple of (coefficients or None)
        By remainder, of the size divided by their number: the polynomial's coefficients, that of the lowest power
        first; None where there is nothing of such a size.
    least : int
        The size from which on it holds.

    Examples
    --------
    >>> from fractions import Fraction
    >>> found = Polynomials("N", ((Fraction(0), Fraction(4)), (Fraction(2), Fraction(4))), 2)
    >>> str(found), found.at(8), found.at(9)
    ('4·N for N mod 2 = 0; 4·N + 2 for N mod 2 = 1', 32, 38)
    """

    symbol: str
    classes: tuple[Coefficients | None, ...]
    least: int

    def at(self, size: int) -> int:
        """The number at a size.

        Raises
        ------
        ValueError
            For a size below `least`, and of a class that has no polynomial.

        Examples
        --------
        >>> from fractions import Fraction
        >>> Polynomials("N", ((Fraction(1), Fraction(0), Fraction(2)),), 1).at(10)
        201
        """
        n = as_int(size, f"at: {self.symbol}")
        if n < self.least:
            raise ValueError(
                f"at: {self.symbol}={n} is below {self.least}, from which on the polynomial holds; bind the plan to it"
            )
        found = self.classes[n % len(self.classes)]
        if found is None:
            raise ValueError(
                f"at: at {self.symbol}={n} there is no such plan, as an axis cannot be cut into its parts; of "
                f"{self.symbol} mod {len(self.classes)} there may be {quote(self.remainders)}"
            )
        total = evaluate(found, n)
        assert total.denominator == 1, "a count is whole"
        return int(total)

    @property
    def remainders(self) -> tuple[int, ...]:
        """The remainders for which there is a polynomial.

        Examples
        --------
        >>> Polynomials("N", ((), None), 2).remainders
        (0,)
        """
        return tuple(k for k, found in enumerate(self.classes) if found is not None)

    @property
    def is_one(self) -> bool:
        """Whether one polynomial holds for all sizes from `least` on.

        Examples
        --------
        >>> from fractions import Fraction
        >>> Polynomials("N", ((), (Fraction(1),)), 2).is_one
        False
        """
        return None not in self.classes and len(set(self.classes)) == 1

    @property
    def degree(self) -> int:
        """The highest power of the size, in any class.

        Examples
        --------
        >>> from fractions import Fraction
        >>> Polynomials("N", ((Fraction(0), Fraction(4)),), 2).degree
        1
        """
        return max((len(found) - 1 for found in self.classes if found), default=0)

    def __str__(self) -> str:
        if self.is_one:
            return write(self.classes[0] or (), self.symbol)
        by: dict[Coefficients, list[int]] = {}
        for remainder, found in enumerate(self.classes):
            if found is not None:
                by.setdefault(found, []).append(remainder)
        where = f"{self.symbol} mod {len(self.classes)}"
        return "; ".join(
            f"{write(found, self.symbol)} for {where} = {', '.join(map(str, which))}" for found, which in by.items()
        )


def evaluate(found: Sequence[Fraction], n: int) -> Fraction:
    """The value of a polynomial."""
    total = Fraction(0)
    for factor in reversed(found):
        total = total * n + factor
    return total


def write(found: Sequence[Fraction], symbol: str) -> str:
    """A polynomial, the highest power first.

    Examples
    --------
    >>> write((Fraction(-3), Fraction(1, 2), Fraction(4)), "N"), write((), "N")
    ('4·N² + 1/2·N - 3', '0')
    """
    parts = []
    for power in range(len(found) - 1, -1, -1):
        factor = found[power]
        if factor:
            name = "" if not power else symbol + (str(power).translate(_RAISED) if power > 1 else "")
            size = abs(factor)
            number = "" if name and size == 1 else f"{size.numerator:,}" + f"/{size.denominator}" * (size.denominator > 1)
            parts.append(("- " if factor < 0 else "+ ") + "·".join(part for part in (number, name) if part))
    text = " ".join(parts) or "0"
    return text[2:] if text.startswith("+ ") else text.replace("- ", "-", 1)


_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def trim(found: Sequence[Fraction]) -> Coefficients:
    """Coefficients without zeros behind the highest power."""
    last = max((k for k, factor in enumerate(found) if factor), default=-1)
    return tuple(found[: last + 1])


def add(some: Iterable[Coefficients]) -> Coefficients:
    """The sum of polynomials."""
    return trim([sum(factors, Fraction(0)) for factors in zip_longest(*some, fillvalue=Fraction(0))])


def substitute(found: Sequence[Fraction], base: int, step: int) -> Coefficients:
    """A polynomial in m as one in n = base + step·m.

    Examples
    --------
    >>> [str(factor) for factor in substitute((Fraction(3), Fraction(4)), 1, 2)]
    ['1', '2']
    """
    total: list[Fraction] = []
    for factor in reversed(found):  # total·(n - base)/step + factor
        moved = [Fraction(0), *(one / step for one in total)]
        kept = [one * Fraction(-base, step) for one in total] + [Fraction(0)]
        total = [a + b for a, b in zip(moved, kept, strict=True)]
        total[0] += factor
    return trim(total)


class FinerClasses(ValueError):
    """An expression is a polynomial in classes of remainders only: so many for each value."""

    def __init__(self, many: int) -> None:
        super().__init__(f"it is a polynomial in each of {many} classes")
        self.many = many


def read(expression: Any, symbol: Any) -> tuple[Coefficients, int] | None:
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
    >>> read(m * Piecewise((3, m >= 1), (0, True)), m), read(Piecewise((3 * m, m >= 2), (0, True)), m)
    (((Fraction(0, 1), Fraction(3, 1)), 0), ((Fraction(0, 1), Fraction(3, 1)), 2))
    """
    from sympy import Max, Min, Mod, Piecewise, floor
    from sympy.core.relational import Relational

    many = lcm(
        *(int(one.args[0].coeff(symbol).q) for one in expression.atoms(floor)),
        *(int(one.args[1]) for one in expression.atoms(Mod)),
    )
    if many > 1:
        raise FinerClasses(many)
    whole = expression.rewrite(Piecewise) if expression.has(Max, Min) else expression
    least = 0
    for one in whole.atoms(Relational):
        apart = (one.lhs - one.rhs).as_poly(symbol)
        if apart is None or apart.degree() > 1:
            return None
        if apart.degree() == 1:
            slope, constant = apart.all_coeffs()
            least = max(least, int(-constant // slope) + 1)
    settled = whole.subs({one: one.subs(symbol, least) for one in whole.atoms(Relational)})
    if not settled.is_polynomial(symbol):
        return None
    each = settled.as_poly(symbol).all_coeffs() if settled.has(symbol) else [settled]
    found = trim([Fraction(int(one.p), int(one.q)) for one in reversed(each)])
    while least and int(expression.subs(symbol, least - 1)) == evaluate(found, least - 1):
        least -= 1
    return found, least
