"""For which sizes two symbolic views overlap, and in how many cells.

Cells are counted without interpolation. In each residue class of the symbols and of the cell the floors are linear, so
that the cells are an interval, whose length is written down::

    A[::3] of N cells       N = 3·m        x = 3·q, 0 <= q <= m - 1      m cells
                            N = 3·m + 1    x = 3·q, 0 <= q <= m          m + 1 cells
                            N = 3·m + 2    x = 3·q, 0 <= q <= m          m + 1 cells
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from math import lcm, prod
from typing import Any

from tapestry_sets.interop import symbolic_expressions as sizes
from tapestry_sets.interop import tuning
from tapestry_sets.interop.symbolic import SymbolicView, read_symbolic_cells, symbols_of_views
from tapestry_sets.interop.symbolic_expressions import Expr, load_sympy
from tapestry_sets.limits import TooHard, list_names, quote
from tapestry_sets.solvers import isl

Classes = Sequence[tuple[int, int]]
"""For each symbol (modulus, residue)."""
Linear = tuple[int, ...]
"""Σ slope·m + constant over the counts m of the symbols' classes: (*slopes, constant)."""


# ------------------------------------------------------------------------------------------------- what is asked


def overlap_condition(a: SymbolicView, b: SymbolicView) -> Any:
    """Return for which values of the symbols two views read a common cell, exactly.

    Parameters
    ----------
    a, b : SymbolicView

    Returns
    -------
    sympy boolean
        Of comparisons of affine expressions and `Mod`; `true` and `false` where it is always so.

    Raises
    ------
    NonAffineSize
        If the cells are not affine in the symbols.

    Examples
    --------
    >>> from sympy import Symbol
    >>> from tapestry_sets import overlap_condition, symbolic_allocate
    >>> N = Symbol("N", integer=True, positive=True)
    >>> A = symbolic_allocate((N,))
    >>> overlap_condition(A[2::5], A[::3])
    N >= 13
    >>> overlap_condition(A[::2], A[::-2])
    Eq(Mod(N, 2), 1)
    """
    _check_views("overlap_condition", a, b)
    if a.base is not b.base:
        return load_sympy().false
    return _ask_isl(
        lambda: _write_condition(read_symbolic_cells(a) & read_symbolic_cells(b), symbols_of_views(a, b)),
        "overlap_condition",
    )


def overlap_count(a: SymbolicView, b: SymbolicView) -> Any:
    """Return how many different cells two views both read, as an expression of the symbols.

    Returns
    -------
    sympy expression
        Polynomials and floors, in a `Piecewise` over residues and comparisons where they differ. It is exact
        for all values that the symbols' assumptions allow.

    Raises
    ------
    NonAffineSize
        If the cells are not affine in the symbols.
    TooHard
        If the cells are not a product of sets of one dimension, or there are too many residue classes.

    Examples
    --------
    >>> from sympy import Symbol
    >>> from tapestry_sets import overlap_count, symbolic_allocate
    >>> N = Symbol("N", integer=True, positive=True)
    >>> A = symbolic_allocate((3 * N, 3 * N))
    >>> overlap_count(A[::3], A[:, ::3])
    N**2
    """
    _check_views("overlap_count", a, b)
    if a.base is not b.base:
        return load_sympy().Integer(0)
    return _ask_isl(
        lambda: _count(read_symbolic_cells(a) & read_symbolic_cells(b), symbols_of_views(a, b)), "overlap_count"
    )


def distinct_count(view: SymbolicView) -> Any:
    """Return how many different cells a view reads; see `overlap_count`.

    Examples
    --------
    >>> from sympy import Symbol
    >>> from tapestry_sets import distinct_count, symbolic_allocate
    >>> N = Symbol("N", integer=True, positive=True)
    >>> distinct_count(symbolic_allocate((N, 4))[:, :2].broadcast_to((7, N, 2)))
    2*N
    """
    _check_views("distinct_count", view)
    return overlap_count(view, view)


def count_cells(cells: Any, symbols: Sequence[Expr]) -> Any:
    """Return how many points a set of isl with parameters has, as an expression of these; see `overlap_count`.

    Parameters
    ----------
    cells : islpy.Set
        Bounded for all values of its parameters.
    symbols : sequence of sympy.Symbol
        All of its parameters, by name; their assumptions say which values they have.

    Raises
    ------
    TooHard
        As `overlap_count`.
    ValueError
        For a parameter that is none of the symbols.

    Examples
    --------
    >>> import islpy
    >>> from sympy import Symbol
    >>> m = Symbol("m", integer=True, nonnegative=True)
    >>> count_cells(islpy.Set("[m] -> { [x, y] : 0 <= x < 4m + 1 and 2 <= y < 5 }"), [m])
    12*m + 3
    """
    known = {str(symbol): sizes.write_expr(symbol) for symbol in symbols}
    foreign = [name for name in isl.parameters_of(cells) if name not in known]
    if foreign:
        raise ValueError(
            f"count_cells: parameter {quote(foreign[0])} is none of the symbols; "
            + list_names(known, foreign[0], "symbols")
        )
    named = isl.name_parameters(cells, [known[name] for name in isl.parameters_of(cells)])
    return _ask_isl(lambda: _count(named, symbols), "count_cells")


def _check_views(verb: str, *views: object) -> None:
    for at, view in enumerate(views):
        if not isinstance(view, SymbolicView):
            raise TypeError(
                f"{verb}: argument {at} must be a SymbolicView, not {quote(view)} of type "
                f"{type(view).__name__}; make one "
                "by symbolic_allocate, or ask overlap() about numeric views"
            )


def _ask_isl(question: Callable[[], Any], what: str) -> Any:
    most = tuning.MAX_OPERATIONS
    refusal = TooHard(f"{what}: isl needs more than {most} operations; take fewer words or smaller steps")
    return isl.bounded(question, refusal, most)


def _align_symbols(points: Any, symbols: Sequence[Expr]) -> Any:
    """The set with all the symbols as its parameters, in their order."""
    return points.align_params(isl.read_set(f"{sizes.write_parameters(symbols)} -> {{ [] }}").get_space())


def _write_condition(points: Any, symbols: Sequence[Expr]) -> Any:
    """The parameters for which a set is not empty."""
    sympy = load_sympy()
    given = isl.read_set(f"{sizes.write_parameters(symbols)} -> {{ : {sizes.write_context(symbols)} }}")
    found = _align_symbols(points.params().coalesce().gist(given), symbols).compute_divs()
    parts = [isl.conjunction_of(part) for part in found.get_basic_sets()]
    moduli = _moduli(parts, symbols)
    if prod(moduli) > tuning.MAX_TOP_CLASSES:
        return sympy.Or(*(_with_remainders(part, symbols) for part in parts))
    cases = _by_classes(symbols, moduli, lambda at: sympy.Or(*(_in_classes(part, symbols, at) for part in parts)))
    return cases[0][0] if len(cases) == 1 else sympy.Or(*(sympy.And(here, where) for here, where in cases))


def _moduli(parts: Sequence[isl.Conjunction], symbols: Sequence[Expr]) -> list[int]:
    """For each symbol the modulus on whose residues the floors of conjunctions depend."""
    return [lcm(*(isl.floor_moves(part.divs, k)[0] for part in parts)) for k in range(len(symbols))]


def _by_classes(
    symbols: Sequence[Expr], moduli: Sequence[int], answer: Callable[[Classes], Any]
) -> list[tuple[Any, Any]]:
    """The different answers for the classes of the symbols modulo some integers, and the condition for each."""
    cases: dict[Any, list[Any]] = {}
    for residues in product(*map(range, moduli)):
        classes = tuple(zip(moduli, residues, strict=True))
        cases.setdefault(answer(classes), []).append(_residues(symbols, classes))
    return [(found, load_sympy().Or(*where)) for found, where in cases.items()]


def _in_classes(part: isl.Conjunction, symbols: Sequence[Expr], classes: Classes) -> Any:
    """A conjunction over the symbols where these are s + K·m for classes (K, s): its floors are linear in m there."""
    sympy = load_sympy()
    at = [s for _, s in classes]
    floors: list[int] = []
    for d in part.divs:
        floors.append(d.at(at, floors))
    moves = [isl.floor_moves(part.divs, k) for k in range(len(symbols))]
    steps = [(x - s) / sympy.Integer(k) for x, (k, s) in zip(symbols, classes, strict=True)]
    least = [_least(x, s, k) for x, (k, s) in zip(symbols, classes, strict=True)]

    def form(row: isl.Row) -> Linear:
        slopes = (k // p * _slope(row, j, p, m) for j, ((k, _), (p, m)) in enumerate(zip(classes, moves, strict=True)))
        return (*slopes, row.at(at, floors))

    at_least = [f for f in map(form, part.at_least_zero) if not _holds(f, least)]
    equal = [_solve_for_symbol(sympy.Eq(_in_symbols(form(row), steps), 0)) for row in part.zero]
    return sympy.And(*equal, *(_solve_for_symbol(_in_symbols(f, steps) >= 0) for f in at_least))


def _with_remainders(part: isl.Conjunction, symbols: Sequence[Expr]) -> Any:
    """A conjunction over the symbols with its floors written as remainders."""
    sympy = load_sympy()
    floors: list[Expr] = []
    for row in part.divs:
        top = _write_row(row, symbols, floors)
        floors.append((top - sympy.Mod(top, row.divisor)) / row.divisor)
    conditions = [sympy.expand(_write_row(row, symbols, floors)) >= 0 for row in part.at_least_zero]
    conditions += [sympy.Eq(sympy.expand(_write_row(row, symbols, floors)), 0) for row in part.zero]
    return sympy.And(*map(_solve_for_symbol, conditions))


def _write_row(row: isl.Row, symbols: Sequence[Expr], floors: Sequence[Expr]) -> Expr:
    terms = [c * s for c, s in zip(row.axes, symbols, strict=True)]
    return sum(terms + [c * d for c, d in zip(row.divs, floors, strict=False)], load_sympy().Integer(row.constant))


def _solve_for_symbol(relation: Any) -> Any:
    """A relation with one symbol alone on its left, where it has one."""
    sympy = load_sympy()
    if relation in (sympy.true, sympy.false):
        return relation
    e = sympy.expand(relation.lhs - relation.rhs)
    constant = e.as_coeff_Add()[0]
    rest = e - constant
    c = rest.as_coeff_Mul()[0]
    if rest.is_Add or c == 0 or (not isinstance(relation, sympy.Eq) and (constant / c).q != 1):
        return relation
    if isinstance(relation, sympy.Eq):
        place, value = rest / c, -constant / c
        if isinstance(place, sympy.Mod) and place.args[1].is_Integer:  # N + 1 = 0 modulo 2 is N = 1
            more, alone = place.args[0].as_coeff_Add()
            return sympy.Eq(sympy.Mod(alone, place.args[1]), (value - more) % place.args[1])
        return sympy.Eq(place, value)
    return rest / c >= -constant / c if c > 0 else rest / c <= -constant / c


# ----------------------------------------------------------------------------------------------------- counting


def _count(points: Any, symbols: Sequence[Expr]) -> Any:
    """The number of points, class by class of the symbols' residues on which it depends."""
    points = _align_symbols(points, symbols)
    if points.is_empty():
        return load_sympy().Integer(0)
    parts = [isl.conjunction_of(part) for part in isl.disjoint_parts(points)]
    moduli = _moduli(parts, symbols)
    if prod(moduli) > tuning.MAX_TOP_CLASSES:
        moduli = [1] * len(symbols)  # each factor is then split into its own

    def total(classes: Classes) -> Any:
        each = [(sizes.write_expr(s), k, r) for s, (k, r) in zip(symbols, classes, strict=True) if k > 1]
        where = " and ".join(f"{name} mod {k} = {r}" for name, k, r in each) or "true"
        here = isl.read_set(f"{sizes.write_parameters(symbols)} -> {{ : {where} }}")
        return _count_points(points.intersect_params(here), symbols, classes)

    return _piecewise(_by_classes(symbols, moduli, total))


def _residues(symbols: Sequence[Expr], classes: Classes) -> Any:
    """The condition that the symbols are in their classes."""
    sympy = load_sympy()
    return sympy.And(*(sympy.Eq(sympy.Mod(s, k), r) for s, (k, r) in zip(symbols, classes, strict=True) if k > 1))


def _piecewise(cases: Sequence[tuple[Any, Any]]) -> Any:
    """The value of whichever case holds; they exclude each other and leave nothing out."""
    if len(cases) == 1:
        return cases[0][0]
    return load_sympy().Piecewise(*[case for case in cases if case[0] != 0], (0, True))


def _count_points(points: Any, symbols: Sequence[Expr], classes: Classes, apart: frozenset[int] = frozenset()) -> Any:
    """A product over the axes, or a sum over parts that are products; `apart` names axes split by residues before."""
    if points.is_empty():
        return load_sympy().Integer(0)
    axes = [isl.along(points, axis) for axis in range(int(points.n_dim()))]
    if isl.set_product(axes).is_equal(points):
        return sizes.multiply(_count_line(axis, symbols, classes) for axis in axes)
    parts = [part.to_set() for part in isl.disjoint_parts(points)]
    if len(parts) == 1:
        parts, apart = _more_parts(points, len(symbols), apart)
    return sum((_count_points(part, symbols, classes, apart) for part in parts), load_sympy().Integer(0))


def _more_parts(points: Any, symbols: int, apart: frozenset[int]) -> tuple[list[Any], frozenset[int]]:
    """The points by the values of an axis that has few, or by its residues, on which other axes may depend."""
    few = isl.few_values(points, tuning.MAX_VALUES)
    if few is not None:
        return [isl.with_coordinate(points, few[0], v) for v in few[1]], apart
    for axis in range(int(points.n_dim())):
        period = lcm(
            *(isl.floor_moves(isl.conjunction_of(p).divs, symbols + axis)[0] for p in isl.disjoint_parts(points))
        )
        if axis not in apart and 1 < period <= tuning.MAX_VALUES:
            return [isl.with_residue(points, axis, period, r) for r in range(period)], apart | {axis}
    raise TooHard(
        f"counting {quote(points)}: its axes depend on each other, and none has few values; ask the condition"
    )


def _count_line(points: Any, symbols: Sequence[Expr], classes: Classes) -> Any:
    parts = isl.disjoint_parts(_align_symbols(points, symbols).coalesce())
    return sum((_count_part(isl.conjunction_of(part), symbols, classes) for part in parts), load_sympy().Integer(0))


def _count_part(part: isl.Conjunction, symbols: Sequence[Expr], known: Classes) -> Any:
    """The number of elements of one conjunction, residue class by residue class.

    With s + K·m for the symbols and r + L·q for the element, where steps of K and L move every floor by
    integers, each row is linear in m and q, so that q runs from a ceiling to a floor.
    """
    axis = len(symbols)
    moves = [isl.floor_moves(part.divs, k) for k in range(axis + 1)]
    whole = [lcm(period, k) for (period, _), (k, _) in zip(moves, known, strict=False)]
    period = moves[axis][0]
    if prod(whole) * period > tuning.MAX_CLASSES:
        raise TooHard(
            f"counting needs the residues modulo {quote((*whole, period))}, more than {tuning.MAX_CLASSES} classes"
        )
    rows = [*part.at_least_zero, *part.zero, *(_negative(row) for row in part.zero)]
    slopes = [
        (
            *(k // p * _slope(row, j, p, m) for j, (k, (p, m)) in enumerate(zip(whole, moves, strict=False))),
            _slope(row, axis, *moves[axis]),
        )
        for row in rows
    ]
    cases = []
    for residues in product(*(range(r, k, n) for k, (n, r) in zip(whole, known, strict=True))):
        groups: dict[tuple[Any, ...], int] = {}
        for r in range(period):
            at = (*residues, r)
            floors: list[int] = []
            for d in part.divs:
                floors.append(d.at(at, floors))
            bounds = _tight_bounds([(*by, row.at(at, floors)) for row, by in zip(rows, slopes, strict=True)])
            if bounds is not None:
                groups[bounds] = groups.get(bounds, 0) + 1
        steps = [(s - r) / load_sympy().Integer(k) for s, r, k in zip(symbols, residues, whole, strict=True)]
        least = [_least(s, r, k) for s, r, k in zip(symbols, residues, whole, strict=True)]
        total = sum((n * _length(bounds, steps, least) for bounds, n in groups.items()), load_sympy().Integer(0))
        cases.append((total, _residues(symbols, tuple(zip(whole, residues, strict=True)))))
    return _piecewise(cases)


def _least(symbol: Expr, residue: int, modulus: int) -> int | None:
    """The least m for which residue + modulus·m is a value of the symbol; None if there is none."""
    if not symbol.is_nonnegative:
        return None
    return -((residue - (1 if symbol.is_positive else 0)) // modulus)


def _negative(row: isl.Row) -> isl.Row:
    return isl.Row(tuple(-c for c in row.axes), tuple(-c for c in row.divs), -row.constant, 1)


def _slope(row: isl.Row, axis: int, period: int, moves: Sequence[int]) -> int:
    """How much a row grows with one period along an axis."""
    return row.axes[axis] * period + sum(c * m for c, m in zip(row.divs, moves, strict=True))


def _tight_bounds(rows: Sequence[tuple[int, ...]]) -> tuple[Any, ...] | None:
    """Rows (slopes of the symbols, slope of q, constant) >= 0 without those always true; None if one is never true."""
    kept = [row for row in dict.fromkeys(rows) if any(row[:-1]) or row[-1] < 0]
    return None if any(not any(row[:-1]) for row in kept) else tuple(sorted(kept))


def _length(rows: Sequence[tuple[int, ...]], steps: Sequence[Expr], least: Sequence[int | None]) -> Any:
    """The number of q between the bounds that the rows set, where the conditions on the symbols hold.

    `steps` are the m as expressions of the symbols, `least` their least values, None if they have none.
    """
    sympy = load_sympy()
    lows, highs, conditions = [], [], []
    for *slopes, by, constant in rows:
        rest = (*slopes, constant)
        if by:  # by·q + rest >= 0
            bound = _floor_of(rest, abs(by), steps)
            lows.append(_minus(bound)) if by > 0 else highs.append(bound)
        elif not _holds(rest, least):
            conditions.append(_solve_for_symbol(_in_symbols(rest, steps) >= 0))
    lows, highs = _extremes(lows, least, -1), _extremes(highs, least, 1)
    gap = None
    if len(lows) == len(highs) == 1 and isinstance(lows[0], tuple) and isinstance(highs[0], tuple):
        gap = tuple(h - low for h, low in zip(highs[0], lows[0], strict=True))
        gap = (*gap[:-1], gap[-1] + 1)
    low, high = (
        reduce(choose, [_in_symbols(x, steps) for x in bounds])
        for choose, bounds in ((sizes.choose_larger, lows), (sizes.choose_smaller, highs))
    )
    length = sympy.expand(high - low + 1)
    if gap is None or not _holds(gap, least):
        length = sizes.choose_larger(length, sympy.Integer(0))
    return sympy.Piecewise((length, sympy.And(*conditions)), (0, True)) if conditions else length


def _floor_of(rest: Linear, by: int, steps: Sequence[Expr]) -> Linear | Expr:
    """floor(rest/by), as a linear form where it is one."""
    if all(c % by == 0 for c in rest[:-1]):
        return tuple(c // by for c in rest)
    return load_sympy().floor(_in_symbols(rest, steps) / by)


def _minus(bound: Linear | Expr) -> Linear | Expr:
    return tuple(-c for c in bound) if isinstance(bound, tuple) else -bound


def _in_symbols(form: Linear | Expr, steps: Sequence[Expr]) -> Expr:
    if not isinstance(form, tuple):
        return form
    return load_sympy().expand(sum((c * m for c, m in zip(form, steps, strict=False)), load_sympy().Integer(form[-1])))


def _holds(form: Linear, least: Sequence[int | None]) -> bool:
    """Whether a form is >= 0 for all m, as far as their least values show."""
    total = form[-1]
    for c, low in zip(form, least, strict=False):
        if c and (c < 0 or low is None):
            return False
        total += c * (low or 0)
    return total >= 0


def _extremes(bounds: Sequence[Linear | Expr], least: Sequence[int | None], sign: int) -> list[Linear | Expr]:
    """The bounds without those that another one makes idle: the least matter for sign 1, the greatest for -1."""
    kept: list[Linear | Expr] = []
    for one in dict.fromkeys(bounds):
        if any(_beats(two, one, least, sign) for two in kept):
            continue
        kept = [two for two in kept if not _beats(one, two, least, sign)]
        kept.append(one)
    return kept


def _beats(one: Linear | Expr, two: Linear | Expr, least: Sequence[int | None], sign: int) -> bool:
    if not (isinstance(one, tuple) and isinstance(two, tuple)):
        return False
    return _holds(tuple(sign * (b - a) for a, b in zip(one, two, strict=True)), least)
