"""Polynomials in one size, one for each class of its remainders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import zip_longest

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
    most : int, optional
        The size up to which it holds; none where no end was found.

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
    most: int | None = None

    def at(self, size: int) -> int:
        """The number at a size.

        Raises
        ------
        ValueError
            For a size below `least`, above `most`, and of a class that has no polynomial.

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
        if self.most is not None and n > self.most:
            raise ValueError(
                f"at: {self.symbol}={n} is above {self.most}, up to which the polynomial holds; bind the plan to it"
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

    def __repr__(self) -> str:
        return f"Polynomials({self}, for {self.tell_sizes()})"

    def tell_sizes(self) -> str:
        """The sizes for which it holds, as a condition.

        Examples
        --------
        >>> Polynomials("N", ((),), 3).tell_sizes(), Polynomials("N", ((),), 3, 30).tell_sizes()
        ('N >= 3', '3 <= N <= 30')
        """
        least = f"{self.symbol} >= {self.least}"
        return least if self.most is None else f"{self.least} <= {self.symbol} <= {self.most}"

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
            number = (
                "" if name and size == 1 else f"{size.numerator:,}" + f"/{size.denominator}" * (size.denominator > 1)
            )
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
