"""To isl and back: the last rung where closed forms end, and the bridge to other polyhedral tools.

islpy is imported when first needed. This module knows no type of set: it takes stripes, nests, setts
and regions by their attributes, so that `nest` can use it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import reduce
from importlib import import_module
from itertools import combinations
from math import gcd, lcm, prod
from operator import and_
from types import ModuleType
from typing import Any, TypeVar

from msgspec import Struct

from tapestry_sets.limits import OPEN, Open, TooHard, check_pieces, note_help, quote, unite_by_halves
from tapestry_sets.solvers.tuning import BUILD_OPERATIONS as BUILD_OPERATIONS
from tapestry_sets.solvers.tuning import COUNT_OPERATIONS as COUNT_OPERATIONS
from tapestry_sets.solvers.tuning import LIST_OPERATIONS as LIST_OPERATIONS
from tapestry_sets.solvers.tuning import MAX_OPERATIONS as MAX_OPERATIONS
from tapestry_sets.solvers.tuning import NEST_OPERATIONS as NEST_OPERATIONS

NestLevels = Sequence[tuple[int, int, int]]
T = TypeVar("T")


def _islpy() -> ModuleType:
    try:
        return import_module("islpy")
    except ImportError as error:
        raise ImportError(
            "this question needs isl, and the package islpy is not installed: pip install islpy"
        ) from error


def available() -> bool:
    """Return whether islpy can be imported."""
    try:
        _islpy()
    except ImportError:
        return False
    return True


def _formula(levels: NestLevels, var: str, prefix: str) -> str:
    """Return the condition that `var` is in a nest, with a number of its own for each level."""
    names = [f"{prefix}{depth}" for depth in range(len(levels))]
    constraints = []
    for k, (on, period, phase) in zip(names, levels, strict=True):
        var = f"{var} - {phase} - {period}{k}"
        constraints.append(f"0 <= {var} < {on}")
    return f"(exists {', '.join(names)} : {' and '.join(constraints)})" if names else "true"


def nest_set(levels: NestLevels) -> Any:
    """Return a nest as an ``islpy.Set`` of one dimension."""
    return read_set(f"{{ [z] : {_formula(levels, 'z', 'k')} }}")


def nests_first_common(
    nests: Sequence[NestLevels], lo: int, hi: int, operations: int = NEST_OPERATIONS
) -> int | Open | None:
    """Return the smallest common element in [lo, hi) of nests, or None; OPEN if isl needs more than `operations`."""

    def first() -> int | None:
        common = reduce(and_, map(nest_set, nests), box_set((lo,), (hi,), name="z"))
        return None if common.is_empty() else _integer(common.dim_min_val(0))

    return within(first, operations)


def nests_disjoint(nests: Sequence[NestLevels], lo: int, hi: int, operations: int = NEST_OPERATIONS) -> bool | Open:
    """Return whether nests share no element of [lo, hi); OPEN if isl needs more than `operations`.

    Emptiness is asked alone: the least element costs isl many times as much.
    """
    return within(
        lambda: bool(reduce(and_, map(nest_set, nests), box_set((lo,), (hi,), name="z")).is_empty()), operations
    )


def bounded(question: Callable[[], T], refusal: Exception, operations: int = MAX_OPERATIONS) -> T:
    """Return the answer of `question`, or raise `refusal` if isl needs too long for it; see `within`.

    Examples
    --------
    >>> bounded(lambda: a_point(box_set((3,), (4,))), ValueError("too hard"))
    (3,)
    """
    answer = within(question, operations)
    if answer is OPEN:
        raise refusal
    return answer


def decide(
    what: str, question: Callable[[], T], operations: int, mend: str, refusal: Callable[[str], Exception] = TooHard
) -> T:
    """Return the answer of `question`; where isl is missing or needs too long, raise a refusal that says what to do."""
    if not available():
        raise refusal(f"{what}, and isl, which might decide it, is not installed: pip install islpy")
    return bounded(question, refusal(f"{what}, and isl needs more than {operations} operations; {mend}"), operations)


def within(question: Callable[[], T], operations: int) -> T | Open:
    """Return the answer of `question`, or OPEN if isl needs too long for it.

    Parameters
    ----------
    question : callable
        Asks isl; it must not call `within` itself.
    operations : int
        How many basic operations isl may take.

    References
    ----------
    isl, ``isl_ctx_set_max_operations``.
    """
    islpy = _islpy()
    note_help("isl")
    probe = islpy.Set("{ [x, y] : 2x + 3y >= 7 and 3x - 2y <= 5 and x + y <= 20 }")
    context = islpy.DEFAULT_CONTEXT
    context.reset_operations()
    context.set_max_operations(operations)
    try:
        return question()
    except islpy.Error:
        if not _is_stopped(probe):
            raise
        return OPEN
    finally:
        context.set_max_operations(0)  # no limit
        context.reset_operations()


def _is_stopped(probe: Any) -> bool:
    """Whether isl has used up its operations: what it was doing may fail for another reason, reading text for one."""
    try:
        probe.is_empty()
    except _islpy().Error:
        return True
    return False


def _integer(value: Any) -> int:
    """The integer of an islpy.Val; there is none if isl stopped at the limit of its operations."""
    text = value.to_str()
    if text is None:
        raise _islpy().Error("maximal number of operations exceeded")
    return int(text)


def to_isl(x: Any) -> Any:
    """Return a set as an ``islpy.Set``, a map as an ``islpy.Map``.

    Parameters
    ----------
    x : Stripe, Sett, DisjointSetts, Intersection, Region, DisjointRegions, Reshaped, Box, ImplicitRegion, AffineMap, \
            Relinearize, Lookup, IndexMap, IndexProjection, Piece or View
        Sets of integers have one dimension, those of points one for each axis. A projection is the relation of
        an index point to each cell of its block, a piece that of a view cell to the source cell it reads.

    Returns
    -------
    islpy.Set, islpy.Map or dict
        For a view a map for each allocation that it names: from the view's cells to those of the allocation.

    Raises
    ------
    ImportError
        If islpy is not installed.
    TypeError
        If `x` is not one of these.
    ValueError
        If a map's number of input axes is not known.

    Examples
    --------
    >>> from tapestry_sets import AffineMap, Stripe, allocate, to_isl
    >>> to_isl(Stripe(1, 1)).is_equal(to_isl(Stripe(2, 2)).union(to_isl(Stripe(1, 1))))
    False
    >>> to_isl(AffineMap(((2, 0), (0, -1)), (1, 5)))
    Map("{ [x0, x1] -> [y0 = 1 + 2x0, y1 = 5 - x1] }")
    >>> A = allocate((8,), name="A")
    >>> to_isl(A[::-2])[A]
    Map("{ [x0] -> [y0 = 7 - 2x0] : 0 <= x0 <= 3 }")

    References
    ----------
    isl, the integer set library, ``isl_set`` and ``isl_map``.
    """
    for names, translate in _TRANSLATIONS:
        if all(hasattr(x, name) for name in names) and not isinstance(x, (slice, range)):
            return translate(x)
    raise TypeError(f"to_isl: takes a set, a map or a view of this package, not {type(x).__name__}")


def _union_set(x: Any) -> Any:
    if not x.members:
        return box_set(x.start, x.start, ["false"], "z") if hasattr(x, "shape") else nest_set([(0, 1, 0)])
    return unite_by_halves([to_isl(member) for member in x.members])


def _reshaped_set(x: Any) -> Any:
    size = prod(x.shape)
    parts = [reduce(and_, map(nest_set, term), box_set((0,), (size,))) for term in x.terms]
    return unite_by_halves([box_set((0,), (0,)), *parts]).apply(relinearize_map((size,), x.shape))


def _region_set(x: Any) -> Any:
    formulas = [_formula(sett.nest, f"z{axis}", f"k{axis}_") for axis, sett in enumerate(x.setts)]
    stop = [lo + n for lo, n in zip(x.start, x.shape, strict=True)]
    return box_set(x.start, stop, ["false"] if x.is_empty else formulas, "z")


def _columns_map(m: Any, names: Sequence[str], width: tuple[int, ...], rank: int) -> Any:
    """The relation x -> m(columns) + [0, width), for columns that are called `names`."""
    if m.in_rank < 0:
        raise ValueError("to_isl: an AffineMap without rows takes points of any rank; give it in_rank")
    rows = tuple(tuple((names[k], c) for k, c in terms) for terms in m.terms())
    return affine_map(rank, rows, m.offset, width)


def _affine(m: Any) -> Any:
    return _columns_map(m, [f"x{k}" for k in range(m.in_rank)], (1,) * len(m.offset), m.in_rank)


def _projection(p: Any) -> Any:
    names = [f"x{k}" for k in range(p.index_rank)]
    for axis, q in p.splits:
        names += [f"floor(x{axis}/{q})", f"x{axis} mod {q}"]
    return _columns_map(p.map, names, p.shape, p.index_rank)


def _renumbering(r: Any) -> Any:
    if prod(r.from_shape):
        return relinearize_map(r.from_shape, r.to_shape)
    return _nowhere(len(r.from_shape), len(r.to_shape))  # no cells: nothing to number


def _lookup(step: Any) -> Any:
    """The relation that reads one coordinate from a table: one map for each run of equal steps."""
    islpy, names = _islpy(), [f"x{k}" for k in range(step.rank)]
    x = names[step.axis]
    runs = list(step.runs())
    check_pieces(len(runs), f"a table of {len(step.table)} indices as isl's relation", "take fewer at once")
    parts = []
    for at, first, count, by in runs:
        out = [f"{first - by * at} + {by}{x}" if name == x else name for name in names]
        parts.append(islpy.Map(f"{{ [{', '.join(names)}] -> [{', '.join(out)}] : {at} <= {x} < {at + count} }}"))
    while len(parts) > 1:  # in pairs: isl looks through both sides of a union each time
        parts = [one.union_disjoint(two) for one, two in zip(parts[::2], parts[1::2], strict=False)] + parts[
            len(parts) & ~1 :
        ]
    return parts[0]


def _nowhere(in_rank: int, out_rank: int) -> Any:
    zero, one = (0,) * out_rank, (1,) * out_rank
    somewhere = affine_map(in_rank, ((),) * out_rank, zero, one)
    return somewhere.subtract(somewhere)


def _identity(rank: int) -> Any:
    return affine_map(rank, tuple(((f"x{k}", 1),) for k in range(rank)), (0,) * rank, (1,) * rank)


def _chain(m: Any) -> Any:
    relation = _identity(m.in_rank)
    for step in m.steps:
        relation = relation.apply_range(to_isl(step))
    return relation


def _piece(p: Any) -> Any:
    relation = _identity(p.map.in_rank)
    for prefix in range(len(p.map.steps) + 1):
        for guard in p.guards:
            if guard.prefix == prefix:
                relation = relation.intersect_range(to_isl(guard.region))
        if prefix < len(p.map.steps):
            relation = relation.apply_range(to_isl(p.map.steps[prefix]))
    return relation


def _view(view: Any) -> Any:
    box = box_set((0,) * len(view.shape), view.shape)
    found = {a: _nowhere(len(view.shape), len(a.shape)) for a in view.allocations}
    for piece in view.pieces if prod(view.shape) else ():
        if piece.source >= 0:  # constants read nothing
            a = view.allocations[piece.source]
            found[a] = found[a].union(to_isl(piece).intersect_domain(box))
    return found


_TRANSLATIONS: tuple[tuple[tuple[str, ...], Callable[[Any], Any]], ...] = (
    (("to_isl",), lambda x: x.to_isl()),
    (("terms", "shape"), _reshaped_set),
    (("members",), _union_set),
    (("operands",), lambda x: reduce(and_, map(to_isl, x.operands))),
    (("setts", "start"), _region_set),
    (("nest",), lambda x: nest_set(x.nest)),
    (("level",), lambda x: nest_set([x.level])),
    (("allocations", "pieces"), _view),
    (("guards", "map"), _piece),
    (("steps", "in_rank"), _chain),
    (("from_shape", "to_shape"), _renumbering),
    (("table", "axis"), _lookup),
    (("map", "splits"), _projection),
    (("matrix", "offset"), _affine),
    (("start", "stop"), lambda x: box_set(x.start, x.stop)),
)
"""What each class is known by, and its translation: this module cannot import the classes."""


# ------------------------------------------------------------------------- chains of maps, as sets and relations


def read_set(text: str) -> Any:
    """Return the islpy.Set that `text` describes."""
    return _islpy().Set(text)


def read_map(text: str) -> Any:
    """Return the islpy.Map that `text` describes, as few conjunctions."""
    return _islpy().Map(text).compute_divs().coalesce()


def read_text(text: str) -> Any:
    """Return the islpy.Set or islpy.Map that `text` describes.

    Raises
    ------
    ValueError
        If it describes none; the message says where and why.

    Examples
    --------
    >>> read_text("{ [z] : 0 <= z < }")
    Traceback (most recent call last):
        ...
    ValueError: from_isl: line 1, column 18, at '}': unexpected isl_token in '{ [z] : 0 <= z < }'
    """
    islpy = _islpy()
    body, brace, rest = text.partition("{")[2].partition("}")
    if brace and rest.strip():  # isl would ignore it
        raise ValueError(
            f"from_isl: {quote(rest.strip())} follows the closing brace in {quote(text)}; give one set or one map"
        )
    for kind in (islpy.Set, islpy.Map):
        try:
            return kind(text)
        except islpy.Error:
            continue
    raise ValueError(f"from_isl: {_complaint(text, islpy.Map if '->' in body else islpy.Set)} in {quote(text)}")


def _complaint(text: str, kind: Any) -> str:
    """Where and why isl cannot read a text; isl tells only the process's standard error stream."""
    import tempfile  # an eighth of the time that importing this package takes, for a fault

    islpy = _islpy()
    context = islpy.Context()
    context.set_on_error(islpy.on_error.WARN)
    with tempfile.TemporaryFile() as said:
        stderr = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            kind.read_from_str(context, text)
        except islpy.Error:
            pass
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        said.seek(0)
        found = re.search(r"\((\d+), (\d+)\): (.*)", said.read().decode(errors="replace"))
    if found is None:
        return "isl cannot read it"
    line, column = int(found[1]), int(found[2])
    at = text.splitlines()[line - 1][column - 1 : column + 9] if text.strip() else ""
    return f"line {line}, column {column}, at {quote(at)}: {found[3]}"


def as_set_or_map(x: Any, symbolic: bool = False) -> tuple[Any, bool]:
    """Return an object of isl as an islpy.Set or islpy.Map, and whether it is a map.

    Parameters
    ----------
    x : str or an islpy set or map of one space, affine expressions included
    symbolic : bool
        Whether it may have parameters.

    Raises
    ------
    TypeError
        If `x` is not one of these.
    ValueError
        If it is a union over several spaces, or has parameters.
    """
    islpy = _islpy()
    if isinstance(x, str):
        x = read_text(x)
    if isinstance(x, (islpy.UnionSet, islpy.UnionMap)):
        x = _only_space(x)
    readers = {
        islpy.Aff: islpy.Map.from_aff,
        islpy.MultiAff: islpy.Map.from_multi_aff,
        islpy.PwAff: islpy.Map.from_pw_aff,
        islpy.PwMultiAff: islpy.Map.from_pw_multi_aff,
        islpy.MultiPwAff: islpy.Map.from_multi_pw_aff,
        islpy.BasicMap: islpy.Map.from_basic_map,
        islpy.BasicSet: islpy.Set.from_basic_set,
    }
    x = readers.get(type(x), lambda same: same)(x)
    if not isinstance(x, (islpy.Set, islpy.Map)):
        raise TypeError(f"from_isl: takes isl's text or an islpy set or map, not {type(x).__name__}")
    if x.dim(islpy.dim_type.param) and not symbolic:
        raise ValueError(
            f"from_isl: {x} has parameters {', '.join(parameters_of(x))}; fix their values first, or give the map of a "
            "symbolic view as {view.base: map}"
        )
    if isinstance(x, islpy.Map):
        return x.flatten().reset_tuple_id(islpy.dim_type.in_).reset_tuple_id(islpy.dim_type.out), True
    return x.flatten().reset_tuple_id(), False


def parameters_of(x: Any) -> list[str]:
    """Return the names of an isl object's parameters."""
    kind = _islpy().dim_type.param
    return [str(x.get_dim_name(kind, k)) for k in range(x.dim(kind))]


def name_parameters(x: Any, names: Sequence[str]) -> Any:
    """Return an islpy.Set or islpy.Map whose parameters have other names, in their order."""
    for k, name in enumerate(names):
        x = x.set_dim_name(_islpy().dim_type.param, k, name)
    return x


def ranks_of(m: Any) -> tuple[int, int]:
    """Return how many coordinates an islpy.Map takes and gives."""
    kind = _islpy().dim_type
    return int(m.dim(kind.in_)), int(m.dim(kind.out))


def is_at_least(values: Any, name: str, low: int) -> bool:
    """Return whether all values of a parameter in a set of these are as large as a number."""
    kind = _islpy().dim_type.param
    k = parameters_of(values).index(name)
    return bool(values.upper_bound_val(kind, k, low - 1).is_empty())


def last_on_axis(points: Any, axis: int) -> list[tuple[Row, tuple[Row, ...]]]:
    """Return the last coordinate on an axis of an islpy.Set, by its parameters: a row and its floors for each piece."""
    found: list[Any] = []
    if not points.is_empty():
        points.dim_max(axis).foreach_piece(lambda _, last: found.append(last))
    return [_row_with_parameters(last) for last in found]


def rows_with_parameters(function: Any) -> list[tuple[Row, tuple[Row, ...]]]:
    """Return for each coordinate of an islpy.MultiAff its row over parameters and axes, and the rows of its floors."""
    return [_row_with_parameters(function.get_aff(k)) for k in range(function.dim(_islpy().dim_type.out))]


def _row_with_parameters(f: Any) -> tuple[Row, tuple[Row, ...]]:
    kind = _islpy().dim_type
    n = f.dim(kind.div)
    kinds = (kind.param, kind.in_)
    return _row(f, kinds, n), tuple([_row(f.get_div(j), kinds, j) for j in range(n)])


def _only_space(x: Any) -> Any:
    """The one set or map of a union."""
    islpy = _islpy()
    parts: list[Any] = []
    (x.foreach_set if isinstance(x, islpy.UnionSet) else x.foreach_map)(parts.append)
    if len(parts) != 1:
        raise ValueError(f"from_isl: {x} has {len(parts)} spaces; give the sets or maps one by one")
    return parts[0]


def box_set(start: Sequence[int], stop: Sequence[int], formulas: Sequence[str] = (), name: str = "x") -> Any:
    """Return the points x0, x1, … of the box [start, stop) for which formulas hold, as an islpy.Set."""
    names = [f"{name}{k}" for k in range(len(start))]
    bounds = [f"{a} <= {x} < {b}" for x, a, b in zip(names, start, stop, strict=True)]
    return read_set(f"{{ [{', '.join(names)}] : {' and '.join([*bounds, *formulas]) or 'true'} }}")


def point_set(point: tuple[int, ...]) -> Any:
    """Return one point as an islpy.Set."""
    return read_set(f"{{ [{', '.join(map(str, point))}] }}")


def affine_map(
    in_rank: int, rows: tuple[tuple[tuple[str, int], ...], ...], offset: tuple[int, ...], width: tuple[int, ...]
) -> Any:
    """Return the relation x -> offset + Σ coefficient·expression + [0, width) as an islpy.Map.

    Parameters
    ----------
    in_rank : int
        Number of input axes; expressions call them ``x0``, ``x1``, ….
    rows : tuple
        For each output coordinate its (expression, coefficient) terms.
    offset, width : tuple of int
        One for each output coordinate.
    """
    source = ", ".join(f"x{k}" for k in range(in_rank))
    target = ", ".join(f"y{k}" for k in range(len(rows)))
    conditions = []
    for k, (terms, b, w) in enumerate(zip(rows, offset, width, strict=True)):
        value = " + ".join([str(b), *(f"{c}*({e})" for e, c in terms)])
        conditions.append(f"y{k} = {value}" if w == 1 else f"{value} <= y{k} < {value} + {w}")
    return _islpy().Map(f"{{ [{source}] -> [{target}] : {' and '.join(conditions) or 'true'} }}")


def relinearize_map(from_shape: tuple[int, ...], to_shape: tuple[int, ...]) -> Any:
    """Return the row-major renumbering from one shape to another as an islpy.Map."""
    flat = tuple((f"x{k}", prod(from_shape[k + 1 :])) for k in range(len(from_shape)))
    quotients = [f"floor(x0/{max(1, prod(to_shape[k + 1 :]))})" for k in range(len(to_shape))]
    rows = tuple(((f"({x}) mod {n}" if k else x, 1),) for k, (x, n) in enumerate(zip(quotients, to_shape, strict=True)))
    split = affine_map(1, rows, (0,) * len(rows), (1,) * len(rows))
    return affine_map(len(from_shape), (flat,), (0,), (1,)).apply_range(split)


def bounds_of(points: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the tight bounds (low, one past high) of an islpy.Set, or None if it is empty."""
    if points.is_empty():
        return None
    rank = points.dim(_islpy().dim_type.set)
    low = tuple(_integer(points.dim_min_val(k)) for k in range(rank))
    return low, tuple(_integer(points.dim_max_val(k)) + 1 for k in range(rank))


def is_bounded(points: Any) -> bool:
    """Return whether an islpy.Set lies in a box; its own `is_bounded` looks at existential variables too."""
    if points.is_bounded() or points.is_empty():
        return True
    rank = points.dim(_islpy().dim_type.set)
    return all(points.dim_min_val(k).is_int() and points.dim_max_val(k).is_int() for k in range(rank))


def count_points(points: Any, limit: int) -> int | None:
    """Return the number of points of an islpy.Set, or None if its bounding box holds more than `limit`."""
    bounds = bounds_of(points)
    if bounds is None:
        return 0
    if prod(b - a for a, b in zip(*bounds, strict=True)) > limit:
        return None
    return _integer(points.count_val())


def a_point(points: Any) -> tuple[int, ...] | None:
    """Return some point of an islpy.Set, or None if it is empty."""
    sample = points.sample_point()
    return None if sample.is_void() else _coordinates(sample)


def list_points(points: Any) -> list[tuple[int, ...]]:
    """Return the points of an islpy.Set in row-major order."""
    found: list[tuple[int, ...]] = []
    points.foreach_point(lambda point: found.append(_coordinates(point)))
    return sorted(found)


def _coordinates(point: Any) -> tuple[int, ...]:
    kind = _islpy().dim_type.set
    return tuple(point.get_coordinate_val(kind, k).to_python() for k in range(point.get_space().dim(kind)))


# ----------------------------------------------------------------------------------------- what isl's sets are made of


class Row(Struct, frozen=True):
    """The expression (Σ axes[k]·x[k] + Σ divs[j]·d[j] + constant) / divisor; d[j] is the floor of row j of the divs."""

    axes: tuple[int, ...]
    divs: tuple[int, ...]
    constant: int
    divisor: int

    def at(self, point: Sequence[int], divs: Sequence[int]) -> int:
        """Return the floor of the value at a point, given the values of the divs that the row uses."""
        total = self.constant
        for c, x in zip(self.axes, point, strict=True):
            total += c * x
        for c, x in zip(self.divs, divs, strict=False):
            total += c * x
        return total // self.divisor


class Conjunction(Struct, frozen=True):
    """A basic set: rows that are >= 0 or = 0, over axes (parameters first) and floors that use those before them."""

    divs: tuple[Row, ...]
    at_least_zero: tuple[Row, ...]
    zero: tuple[Row, ...]


def _row(x: Any, kinds: Sequence[Any], divs: int) -> Row:
    """The row of an islpy.Aff or Constraint."""
    from fractions import Fraction  # loaded with isl's first form, not with the package

    def values(kind: Any, n: int) -> list[Fraction]:
        return [Fraction(x.get_coefficient_val(kind, k).to_str()) for k in range(n)]

    axes = [v for kind in kinds for v in values(kind, x.dim(kind))]
    floors = values(_islpy().dim_type.div, divs)
    constant = Fraction(x.get_constant_val().to_str())
    common = lcm(*(v.denominator for v in (*axes, *floors, constant)))
    whole = [int(v * common) for v in (*axes, *floors)]
    return Row(tuple(whole[: len(axes)]), tuple(whole[len(axes) :]), int(constant * common), common)


def conjunction_of(part: Any) -> Conjunction:
    """Return an islpy.BasicSet whose floors are known, as `disjoint_parts` gives it, as plain integers."""
    kind = _islpy().dim_type
    n = part.dim(kind.div)
    divs = tuple(_row(part.get_div(k), (kind.param, kind.in_), k) for k in range(n))
    rows: tuple[list[Row], list[Row]] = ([], [])
    for constraint in part.get_constraints():
        rows[constraint.is_equality()].append(_row(constraint, (kind.param, kind.set), n))
    return Conjunction(divs, tuple(rows[False]), tuple(rows[True]))


def floors_and_rows(function: Any) -> tuple[tuple[Row, ...], tuple[tuple[Row, ...], ...]]:
    """Return for each coordinate of an islpy.MultiAff its row, and the rows of the floors that it uses."""
    kind = _islpy().dim_type
    rows, floors = [], []
    for k in range(function.dim(kind.out)):
        f = function.get_aff(k)
        n = f.dim(kind.div)
        rows.append(_row(f, (kind.in_,), n))
        floors.append(tuple(_row(f.get_div(j), (kind.in_,), j) for j in range(n)))
    return tuple(rows), tuple(floors)


def in_rank(function: Any) -> int:
    """Return how many coordinates an islpy.MultiAff takes."""
    return int(function.dim(_islpy().dim_type.in_))


def parts_of(points: Any) -> list[Any]:
    """Return an islpy.Set as islpy.BasicSets without unknown floors, which may share points."""
    return [part for part in points.compute_divs().get_basic_sets() if not part.is_empty()]


def disjoint_parts(points: Any) -> list[Any]:
    """Return an islpy.Set as disjoint islpy.BasicSets without unknown floors."""
    while True:
        parts = parts_of(points)
        if all(one.is_disjoint(two) for one, two in combinations(parts, 2)):
            return parts
        points = points.make_disjoint()


def floor_moves(divs: Sequence[Row], axis: int) -> tuple[int, list[int]]:
    """Return a P for which a step of P along an axis moves every floor by an integer, and these integers."""
    period = 1
    moves: list[int] = []
    for row in divs:
        by = row.axes[axis] * period + sum(c * m for c, m in zip(row.divs, moves, strict=True))
        factor = row.divisor // gcd(row.divisor, by)
        period *= factor
        moves = [m * factor for m in moves]
        moves.append(by * factor // row.divisor)
    return period, moves


def floor_period(part: Any) -> int:
    """Return a P for which x + P moves every floor of a basic set of one dimension by an integer."""
    return floor_moves(conjunction_of(part).divs, 0)[0]


def moved(points: Any, by: int) -> Any:
    """Return an islpy.Set of one dimension moved by an integer."""
    return points.apply(affine_map(1, ((("x0", 1),),), (by,), (1,)))


def in_window(points: Any, lo: int, hi: int) -> Any:
    """Return the elements in [lo, hi) of an islpy.Set of one dimension."""
    return points.intersect(box_set((lo,), (hi,)))


def first_from(points: Any, lo: int) -> int | None:
    """Return the smallest element >= lo of an islpy.Set of one dimension, or None."""
    found = points.intersect(read_set(f"{{ [z] : z >= {lo} }}"))
    return None if found.is_empty() else _integer(found.dim_min_val(0))


def first_change(points: Any, step: int, lo: int) -> tuple[int, bool] | None:
    """Return the smallest x >= lo with one of x and x + step in a set, and whether that is x + step; None if none."""
    later = moved(points, -step)
    lost, won = first_from(points.subtract(later), lo), first_from(later.subtract(points), lo)
    if lost is None or won is None:
        return (won, True) if won is not None else (lost, False) if lost is not None else None
    return (won, True) if won < lost else (lost, False)


def along(points: Any, axis: int) -> Any:
    """Return the coordinates on one axis of an islpy.Set's points."""
    kind = _islpy().dim_type.set
    n = points.dim(kind)
    return points.project_out(kind, axis + 1, n - axis - 1).project_out(kind, 0, axis)


def set_product(axes: Sequence[Any]) -> Any:
    """Return the product of islpy.Sets of one dimension."""
    total = read_set("{ [] }")
    for axis in axes:
        total = total.flat_product(axis)
    return total


def with_coordinate(points: Any, axis: int, value: int) -> Any:
    """Return the points whose coordinate on one axis is `value`."""
    return points.fix_val(_islpy().dim_type.set, axis, value)


def with_residue(points: Any, axis: int, modulus: int, residue: int) -> Any:
    """Return the points whose coordinate on one axis has a residue."""
    names = ", ".join(f"x{k}" for k in range(points.dim(_islpy().dim_type.set)))
    return points.intersect(read_set(f"{{ [{names}] : x{axis} mod {modulus} = {residue} }}"))


def few_values(points: Any, limit: int) -> tuple[int, list[int]] | None:
    """Return an axis on which an islpy.Set has few values for all its parameters, and these; None if there is none."""
    everywhere = points.project_out_all_params()
    for axis in range(everywhere.dim(_islpy().dim_type.set)):
        values = along(everywhere, axis)
        if is_bounded(values):
            lo, hi = _integer(values.dim_min_val(0)), _integer(values.dim_max_val(0))
            if hi - lo < limit and hi > lo:
                return axis, list(range(lo, hi + 1))
    return None


def function_pieces(relation: Any) -> list[tuple[Any, Any]]:
    """Return a single-valued islpy.Map as (domain, islpy.MultiAff) pairs."""
    found: list[tuple[Any, Any]] = []
    _islpy().PwMultiAff.from_map(relation).foreach_piece(lambda domain, function: found.append((domain, function)))
    return found


def is_everything(points: Any) -> bool:
    """Return whether an islpy.Set holds every point of its space."""
    return bool(points.complement().is_empty())
