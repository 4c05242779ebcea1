"""Expressions of symbolic sizes: sympy's, with integer values, compared by what isl proves, in isl's notation.

sympy is imported when first needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from tapestry_sets.limits import quote
from tapestry_sets.solvers import isl

Expr = Any
"""A sympy expression or an integer."""


class NonAffineSize(ValueError):
    """A question needs an expression that is not affine in the symbols and indices; the message names it.

    Examples
    --------
    >>> import sympy
    >>> from tapestry_sets import symbolic_allocate
    >>> n = sympy.Symbol("n", integer=True, positive=True)
    >>> symbolic_allocate((4 * n,))[::n]
    Traceback (most recent call last):
        ...
    tapestry_sets.interop.symbolic_expressions.NonAffineSize: slice of axis 0: step n must be an integer other
    than 0
    """


def load_sympy() -> ModuleType:
    try:
        return import_module("sympy")
    except ImportError as error:
        raise ImportError("symbolic sizes need the package sympy, which is not installed: pip install sympy") from error


# --------------------------------------------------------------------------------------------------- expressions


def read_expr(value: object, what: str) -> Expr:
    """The value as a sympy expression with integer values."""
    sympy = load_sympy()
    try:
        e = None if isinstance(value, (bool, float, np.ndarray)) else sympy.sympify(value, strict=True)
    except sympy.SympifyError:
        e = None
    if not isinstance(e, sympy.Expr):
        kind = type(value).__name__
        raise TypeError(f"{what} must be an integer or a sympy expression, not {quote(value)} of type {kind}")
    e = sympy.expand(e)
    if not e.is_integer:
        raise ValueError(
            f"{what}: {e} is not known to be an integer; declare Symbol(..., integer=True) and write N = 4*M where N "
            "is to be divided by 4"
        )
    return e


@lru_cache(maxsize=1 << 12)
def write_expr(e: Expr) -> str:
    """An expression in isl's notation, with symbols by their place among sorted names; NonAffineSize if it has none."""
    sympy = load_sympy()
    if e.is_Integer:
        return str(e)
    if e.is_Symbol:
        return f"p_{e.name.encode().hex()}"
    if e.is_Add:
        return " + ".join(f"({write_expr(a)})" for a in e.args)
    c, rest = e.as_coeff_Mul()
    if e.is_Mul and c.is_Integer and c != 1 and not rest.is_Mul:
        return f"{c}*({write_expr(rest)})"
    if isinstance(e, sympy.floor):
        top, bottom = sympy.fraction(sympy.together(e.args[0]))
        if bottom.is_Integer:
            return f"floor(({write_expr(sympy.expand(top))})/{bottom})"
    if isinstance(e, sympy.Mod) and e.args[1].is_Integer:
        return f"(({write_expr(e.args[0])}) mod {e.args[1]})"
    if isinstance(e, (sympy.Max, sympy.Min)):
        name = "max" if isinstance(e, sympy.Max) else "min"
        return reduce(lambda a, b: f"{name}({a}, {b})", map(write_expr, e.args))
    raise NonAffineSize(
        f"{e} is not affine in {', '.join(map(str, find_symbols([e])))}; isl's parameters cannot express it"
    )


def find_symbols(exprs: Iterable[Expr]) -> list[Expr]:
    found = sorted({s for e in exprs for s in getattr(e, "free_symbols", ())}, key=lambda s: str(s.name))
    for one, two in pairwise(found):
        if one.name == two.name:  # isl knows them by name
            raise ValueError(f"two symbols are called {one} but declared with different assumptions; use one")
    return found


def write_context(symbols: Sequence[Expr]) -> str:
    """The known bounds of the symbols, as a formula."""
    lows = [(s, 1 if s.is_positive else 0) for s in symbols if s.is_nonnegative]
    return " and ".join(f"{write_expr(s)} >= {low}" for s, low in lows) or "true"


def write_parameters(symbols: Sequence[Expr]) -> str:
    return f"[{', '.join(map(write_expr, symbols))}]"


@lru_cache(maxsize=1 << 12)
def is_nonnegative(e: Expr) -> bool:
    """Whether an expression is proved to be >= 0 for all values of its symbols."""
    if e.is_nonnegative:
        return True
    top, bottom = load_sympy().fraction(load_sympy().together(e))
    if bottom != 1 and bottom.is_positive:
        return is_nonnegative(load_sympy().expand(top))
    symbols = find_symbols([e])
    try:
        text = write_expr(e)
    except NonAffineSize:
        return all(is_nonnegative(f) for f in e.args) if e.is_Mul else bool(e.factor().is_nonnegative)
    bad = isl.read_set(f"{write_parameters(symbols)} -> {{ [] : {write_context(symbols)} and {text} < 0 }}")
    return bool(bad.is_empty())


def choose_larger(a: Expr, b: Expr) -> Expr:
    if is_nonnegative(load_sympy().expand(a - b)):
        return a
    return b if is_nonnegative(load_sympy().expand(b - a)) else load_sympy().Max(a, b)


def choose_smaller(a: Expr, b: Expr) -> Expr:
    if is_nonnegative(load_sympy().expand(b - a)):
        return a
    return b if is_nonnegative(load_sympy().expand(a - b)) else load_sympy().Min(a, b)


def divide(a: Expr, b: Expr) -> Expr | None:
    """a/b where it is a polynomial with integer coefficients."""
    sympy = load_sympy()
    if b == 0:
        return None
    top, bottom = sympy.fraction(sympy.cancel(a / b))
    return sympy.expand(top) if bottom == 1 else None


def multiply(factors: Iterable[Expr]) -> Expr:
    return load_sympy().expand(reduce(lambda a, b: a * b, factors, load_sympy().Integer(1)))
