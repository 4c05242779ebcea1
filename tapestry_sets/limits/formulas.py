"""Formulas, as Python writes them: what a count added up and multiplied, and sizes that follow from others."""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")


def write_product(factors: Iterable[int | str]) -> str:
    """Return a product of numbers and written terms, without factors of 1.

    Examples
    --------
    >>> write_product([3, 1, "4 - 1"]), write_product([]), write_product(["4 - 1", "1"])
    ('3*(4 - 1)', '1', '4 - 1')
    """
    each = [text for x in factors if (text := str(x)) != "1"]
    if "0" in each:
        return "0"
    if len(each) == 1:
        return each[0]
    return "*".join([text if text.isdecimal() else f"({text})" for text in each]) or "1"


def write_sum(terms: Iterable[str]) -> str:
    """Return a sum of written terms without zeros, in which equal ones come once.

    Examples
    --------
    >>> write_sum(["2*3", "0", "5", "2*3"])
    '2*2*3 + 5'
    """
    many = Counter([term for term in terms if term != "0"])
    each = [term if n == 1 else f"{n}*{term if _is_product(term) else f'({term})'}" for term, n in many.items()]
    return " + ".join(each) or "0"


def _is_product(term: str) -> bool:
    return all(part.isdecimal() for part in term.split("*"))


# -- as they are read --------------------------------------------------------------------------------------

WORDS = re.compile(r"(?:\d+(?!\w)|[^\W\d]\w*(?!\w)|//|[-+*() ])+")
"""Whole numbers, names, signs and brackets: nothing else is handed to Python's parser, which warns of some texts."""
SIGNS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//"}
NEGATIVE = "~"
"""What stands for the sign of a number."""
COMPUTE: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
}


class SizeFormula(NamedTuple):
    """A sum, product or quotient of whole numbers and names; `read_formula` makes it.

    Parameters
    ----------
    steps : tuple of int or str
        Numbers and names, and each sign behind what it is of: so that a long one is computed without recursion.
    """

    steps: tuple[int | str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names, in the order in which they stand."""
        return tuple(dict.fromkeys(step for step in self.steps if isinstance(step, str) and step.isidentifier()))

    def fold(
        self, read: Callable[[int | str], T], negate: Callable[[T], T], combine: Mapping[str, Callable[[T, T], T]]
    ) -> T:
        """What becomes of the numbers and names by the signs.

        Parameters
        ----------
        read : callable
            Of a number or a name.
        negate : callable
        combine : mapping of str to callable
            By sign.
        """
        found: list[T] = []
        for step in self.steps:
            if step == NEGATIVE:
                found.append(negate(found.pop()))
            elif isinstance(step, str) and step in combine:
                other = found.pop()
                found.append(combine[step](found.pop(), other))
            else:
                found.append(read(step))
        (made,) = found
        return made

    def compute(self, sizes: Mapping[str, int]) -> int:
        """The number that it is where its names have these sizes; ZeroDivisionError where it divides by 0.

        Examples
        --------
        >>> read_formula("(s0 + 1)*2 - s1//2").compute({"s0": 3, "s1": 5})
        6
        """

        def read(step: int | str) -> int:
            return step if isinstance(step, int) else sizes[step]

        found: int = self.fold(read, lambda n: -n, COMPUTE)
        return found

    def straighten(self, name: str, sizes: Mapping[str, int]) -> tuple[int, int] | None:
        """As slope and constant of one name, where the others have sizes; None where it is not a straight line of it.

        Examples
        --------
        >>> read_formula("2*(a + b) - 1").straighten("a", {"b": 3}), read_formula("a//2").straighten("a", {})
        ((2, 5), None)
        """

        def read(step: int | str) -> Slope:
            return (1, 0) if step == name else (0, step if isinstance(step, int) else sizes[step])

        return self.fold(read, lambda one: None if one is None else (-one[0], -one[1]), STRAIGHTEN)


Slope: TypeAlias = "tuple[int, int] | None"
"""Slope and constant; None of what is none."""


def _straighten(sign: str, one: Slope, other: Slope) -> Slope:
    if one is None or other is None:
        return None
    (a, b), (c, d) = one, other
    if sign in "+-":
        return COMPUTE[sign](a, c), COMPUTE[sign](b, d)
    if sign == "*" and not (a and c):
        return a * d + b * c, b * d
    return (0, b // d) if not a and not c else None


STRAIGHTEN: Mapping[str, Callable[[Slope, Slope], Slope]] = {sign: partial(_straighten, sign) for sign in COMPUTE}


def read_formula(text: str) -> SizeFormula | None:
    """A sum, product or quotient of whole numbers and names, as Python reads it; None of another text.

    Nothing of the text is executed.

    Parameters
    ----------
    text : str
        Numbers, names, ``+``, ``-``, ``*``, ``//`` and brackets.

    Examples
    --------
    >>> read_formula("past + 2*now").names, read_formula("past + now/2"), read_formula("a.b"), read_formula("a b")
    (('past', 'now'), None, None, None)
    """
    try:
        return SizeFormula(tuple(_list_steps(text))) if WORDS.fullmatch(text) else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _list_steps(text: str) -> list[int | str]:
    left: list[ast.expr] = [ast.parse(text.strip(), mode="eval").body]
    steps: list[int | str] = []
    while left:  # each sign before what it is of, the last first: turned around, it stands behind
        match left.pop():
            case ast.Constant(int(n)) if type(n) is int:
                steps.append(n)
            case ast.Name(name):
                steps.append(name)
            case ast.UnaryOp(ast.USub(), one):
                steps.append(NEGATIVE)
                left.append(one)
            case ast.BinOp(one, sign, two) if type(sign) in SIGNS:
                steps.append(SIGNS[type(sign)])
                left += [one, two]
            case node:
                raise ValueError(f"{ast.unparse(node)} is not a sum, product or quotient of whole numbers")
    return steps[::-1]


# -- as a person would write them --------------------------------------------------------------------------


class Quotient(NamedTuple):
    """One sum divided by another, without the rest."""

    of: Terms
    by: Terms


class Bracket(NamedTuple):
    """A sum as a factor."""

    terms: Terms


Factor: TypeAlias = "int | Quotient | Bracket"
Addend: TypeAlias = tuple[int, tuple[Factor, ...]]
"""A sign, 1 or -1, and the factors, numbers from 2 on among them."""
Terms: TypeAlias = tuple[Addend, ...]


def tidy_formula(formula: str) -> str:
    """Write a formula of numbers in fewer words: sums of numbers as one, without zeros, ones and needless brackets.

    Products and quotients stay, for they say where a count comes from; of two that share all but a number the rest
    stands once.

    Parameters
    ----------
    formula : str
        Numbers, ``+``, ``-``, ``*``, ``//`` and brackets, as Python reads them.

    Examples
    --------
    >>> tidy_formula("(11 - 1 - 0) // 3 + 1"), tidy_formula("3*(4 - 1) + 3*5")
    ('10//3 + 1', '3*8')
    >>> tidy_formula("10*1000 - (1*10*(10 - 1)//2 + 10*990)")
    '10*10 - 10*9//2'
    """
    return _write_terms(SizeFormula(tuple(_list_steps(formula))).fold(_read, _negate, TIDY))


def _read(number: int | str) -> Terms:
    return _collect([(1 if int(number) > 0 else -1, (abs(int(number)),))])


def _add(one: Terms, two: Terms) -> Terms:
    return _collect([*one, *two])


def _negate(terms: Terms) -> Terms:
    return _order([(-sign, factors) for sign, factors in terms])


def _order(terms: Iterable[Addend]) -> Terms:
    """What is added before what is taken away, numbers last."""
    return tuple(sorted(terms, key=lambda term: (-term[0], _number_of(term) is not None)))


def _multiply(one: Terms, two: Terms) -> Terms:
    if not one or not two:
        return ()
    for unit, other in ((one, two), (two, one)):
        if unit in (((1, ()),), ((-1, ()),)):
            return other if unit[0][0] > 0 else _negate(other)
    (s, f), (t, g) = map(_put_in_brackets, (one, two))
    return ((s * t, f + g),)


def _put_in_brackets(terms: Terms) -> Addend:
    """A sum as one term; one that is all taken away is that with another sign."""
    if len(terms) == 1:
        return terms[0]
    return (1, (Bracket(terms),)) if terms[0][0] > 0 else (-1, (Bracket(_negate(terms)),))


def _divide(one: Terms, two: Terms) -> Terms:
    return one if not one or two == ((1, ()),) else ((1, (Quotient(one, two),)),)


TIDY: Mapping[str, Callable[[Terms, Terms], Terms]] = {
    "+": _add,
    "-": lambda one, two: _add(one, _negate(two)),
    "*": _multiply,
    "//": _divide,
}


def _collect(terms: Iterable[Addend]) -> Terms:
    """The terms of a sum, numbers as one, and those as one that share all factors but a number."""
    total, found = 0, list[Addend]()
    left = [*terms][::-1]
    while left:
        term = left.pop()
        number = _number_of(term)
        if number is not None:
            total += number
            continue
        for k, other in enumerate(found):
            if (merged := _merge(other, term)) is not None:
                del found[k]
                left += merged
                break
        else:
            found.append(term)
    found += [(1 if total > 0 else -1, (abs(total),) if abs(total) > 1 else ())] if total else []
    return _order(found)


def _number_of(term: Addend) -> int | None:
    """The number that a term is, if it is one."""
    match term:
        case sign, ():
            return sign
        case sign, (int(n),):
            return sign * n
    return None


def _merge(one: Addend, two: Addend) -> Terms | None:
    """One term, or none, in place of two that share all factors but a number; None where they do not."""
    (s, f), (t, g) = one, two
    shared = Counter(f) & Counter(g)
    own, others = (list((Counter(each) - shared).elements()) for each in (f, g))
    numbers = [x for x in own + others if isinstance(x, int)]
    if not shared or len(own) > 1 or len(others) > 1 or len(numbers) < len(own + others):
        return None
    number = s * (numbers[0] if own else 1) + t * (numbers[-1] if others else 1)
    if not number:
        return ()
    sign, at = 1 if number > 0 else -1, len(f) - 1 - f[::-1].index(own[0]) if own else 0
    rest = [*f[:at], *f[at + len(own) :]]
    factors = (*rest[:at], *([abs(number)] if abs(number) > 1 else []), *rest[at:])
    if len(factors) == 1 and isinstance(factors[0], Bracket):
        return factors[0].terms if sign > 0 else _negate(factors[0].terms)
    return ((sign, factors),)


def _write_terms(terms: Terms) -> str:
    if not terms:
        return "0"
    (sign, factors), *others = terms
    is_quotient = len(factors) == 1 and isinstance(factors[0], Quotient)
    first = _write_factor(factors[0]) if sign < 0 and is_quotient else _write_factors(factors)  # -7//2 is (-7)//2
    words = [f" {'+' if s > 0 else '-'} {_write_factors(f)}" for s, f in others]
    return "".join(["-" if sign < 0 else "", first, *words])


def _write_factors(factors: tuple[Factor, ...]) -> str:
    if len(factors) == 1 and isinstance(factors[0], Quotient):
        of, by = factors[0]
        above = _write_terms(of)
        is_product = len(of) == 1 and of[0][0] > 0 and not (len(of[0][1]) == 1 and isinstance(of[0][1][0], Quotient))
        below = _write_terms(by)
        return f"{above if is_product else f'({above})'}//{below if below.isdecimal() else f'({below})'}"
    return "*".join(map(_write_factor, factors)) or "1"


def _write_factor(factor: Factor) -> str:
    if isinstance(factor, int):
        return str(factor)
    return f"({_write_terms(factor.terms) if isinstance(factor, Bracket) else _write_factors((factor,))})"
