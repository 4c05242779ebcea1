"""Index expressions: linear forms, with ``floor(i/q)`` and ``Mod(i, q)``, read from sympy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapestry_sets.limits import cut_text, quote


def read_exprs(
    index: list[Any], start: list[Any]
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Return matrix, offset and splits of sympy expressions.

    Parameters
    ----------
    index : list of sympy.Symbol
        The index axes, in order.
    start : list of sympy expression or int
        One for each coordinate.

    Raises
    ------
    ValueError
        For an expression that is not affine with integer coefficients; the message names the expression and says why.
    """
    import sympy

    for k, symbol in enumerate(index):
        if not isinstance(symbol, sympy.Symbol):
            raise TypeError(f"IndexProjection.from_exprs: index[{k}] must be a sympy.Symbol, not {quote(symbol)}")
    exprs = [_as_expr(sympy, e, k) for k, e in enumerate(start)]
    splits: list[tuple[int, int]] = []
    stand_ins: dict[Any, Any] = {}
    columns = list(index)
    for atom in sorted({a for e in exprs for a in e.atoms(sympy.floor, sympy.Mod)}, key=str):
        axis, q, kind = _read_split(sympy, atom, index)
        if (axis, q) not in splits:
            splits.append((axis, q))
            columns += [sympy.Dummy(), sympy.Dummy()]
        stand_ins[atom] = columns[len(index) + 2 * splits.index((axis, q)) + kind]
    read = [_read_affine(sympy, e, e.xreplace(stand_ins), columns) for e in exprs]
    return tuple(row for row, _ in read), tuple(b for _, b in read), tuple(splits)


def _as_expr(sympy: Any, form: Any, at: int) -> Any:
    """An integer or an expression; a text is none, as sympy would run it."""
    try:
        expr = None if isinstance(form, (str, bool, np.ndarray)) else sympy.sympify(form, strict=True)
    except sympy.SympifyError:
        expr = None
    if not isinstance(expr, sympy.Expr):
        kind = type(form).__name__
        raise TypeError(
            f"IndexProjection.from_exprs: start[{at}] must be an integer or a sympy expression, not {quote(form)} of "
            f"type {kind}"
        )
    return expr


def _read_split(sympy: Any, atom: Any, index: list[Any]) -> tuple[int, int, int]:
    """Return (axis, q, 0 for the quotient or 1 for the remainder) of floor(i/q) or Mod(i, q)."""
    if isinstance(atom, sympy.Mod):
        symbol, q = atom.args
        kind = 1
    else:
        ratio, symbol = atom.args[0].as_coeff_Mul()
        q = 1 / ratio
        kind = 0
    if symbol not in index or not q.is_Integer or q < 1:
        raise ValueError(
            f"IndexProjection.from_exprs: {atom} is not affine; only floor(i/q) and Mod(i, q) of an index symbol "
            "and a positive integer q can be used"
        )
    return index.index(symbol), int(q), kind


def _read_affine(sympy: Any, shown: Any, expr: Any, columns: list[Any]) -> tuple[tuple[int, ...], int]:
    """Return the coefficients and the constant of an affine expression."""
    expr = sympy.expand(expr)
    foreign = expr.free_symbols - set(columns)
    if foreign:
        names = ", ".join(sorted(map(str, foreign)))
        raise ValueError(
            f"IndexProjection.from_exprs: {quote(shown)} uses {cut_text(names)}, which is not an index symbol"
        )
    rest = expr
    row = []
    for symbol in columns:
        c = expr.coeff(symbol, 1)
        if not c.is_Integer:
            raise ValueError(
                f"IndexProjection.from_exprs: {shown} is not affine: the coefficient of {symbol} is {c}, which must "
                "be an integer"
            )
        row.append(int(c))
        rest -= c * symbol
    rest = sympy.expand(rest)
    if not rest.is_Integer:
        raise ValueError(f"IndexProjection.from_exprs: {shown} is not affine: {rest} is left, which must be an integer")
    return tuple(row), int(rest)
