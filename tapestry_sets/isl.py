"""To isl and back: the last rung where closed forms end, and the bridge to other polyhedral tools.

islpy is imported when first needed. This module imports no other module of the package: it takes stripes,
nests, setts and regions by their attributes, so that `nest` can use it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from math import prod
from types import ModuleType
from typing import Any, TypeVar

Levels = Sequence[tuple[int, int, int]]
T = TypeVar("T")

BUILD_OPERATIONS = 10**7
"""How many of its basic operations isl may take to read and compose sets and maps: a second or two."""
MAX_OPERATIONS = 50_000
"""How many it may take for a question about one chain of maps; where it needs more, each takes the longer."""
COUNT_OPERATIONS = 10_000
"""The same where points are counted."""
LIST_OPERATIONS = 10**6
"""The same where points that have been counted are listed."""


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


def _nest_constraint(levels: Levels, var: str, prefix: str) -> tuple[list[str], list[str]]:
    """Return (names of existential variables, constraints) that put `var` in the nest."""
    names: list[str] = []
    constraints: list[str] = []
    inner = var
    for depth, (on, period, phase) in enumerate(levels):
        k = f"{prefix}{depth}"
        names.append(k)
        inner = f"{inner} - {phase} - {period}{k}"
        constraints.append(f"0 <= {inner} < {on}")
    return names, constraints


def _formula(levels: Levels, var: str, prefix: str) -> str:
    names, constraints = _nest_constraint(levels, var, prefix)
    if not names:
        return "true"
    return f"(exists {', '.join(names)} : {' and '.join(constraints)})"


def nest_set(levels: Levels) -> Any:
    """Return a nest as an ``islpy.Set`` of one dimension."""
    return _islpy().Set(f"{{ [z] : {_formula(levels, 'z', 'k')} }}")


def _window_set(lo: int, hi: int) -> Any:
    return _islpy().Set(f"{{ [z] : {lo} <= z < {hi} }}")


NEST_OPERATIONS = 10**7
"""How many of isl's operations one question about nests may take: a second or two."""


class OutOfOperations(Exception):
    """isl did not answer within the operations it was given."""


def nests_first_common(nests: Sequence[Levels], lo: int, hi: int, operations: int = NEST_OPERATIONS) -> int | None:
    """Return the smallest common element in [lo, hi) of nests, or None, as isl finds it.

    Raises
    ------
    OutOfOperations
        If isl needs more than `operations`.
    """
    common = _window_set(lo, hi)
    for levels in nests:
        common = common & nest_set(levels)
    refusal = OutOfOperations(f"first common element of {nests} in [{lo}, {hi}): more than {operations} operations")
    return bounded(lambda: None if common.is_empty() else _integer(common.dim_min_val(0)), refusal, operations)


def bounded(question: Callable[[], T], refusal: Exception, operations: int = MAX_OPERATIONS) -> T:
    """Return what `question` answers, or raise `refusal` if isl needs too long for it.

    Parameters
    ----------
    question : callable
        Asks isl; it must not call `bounded` itself.
    refusal : Exception
        Raised if isl gives up.
    operations : int
        How many basic operations isl may take.

    Examples
    --------
    >>> bounded(lambda: a_point(box_set((3,), (4,))), ValueError("too hard"))
    (3,)

    References
    ----------
    isl, ``isl_ctx_set_max_operations``.
    """
    islpy = _islpy()
    context = islpy.DEFAULT_CONTEXT
    context.reset_operations()
    context.set_max_operations(operations)
    try:
        return question()
    except islpy.Error as error:
        if STOPPED not in str(error):
            raise
        raise refusal from None
    finally:
        context.set_max_operations(0)  # no limit
        context.reset_operations()


STOPPED = "maximal number of operations exceeded"


def _integer(value: Any) -> int:
    """The integer of an islpy.Val; there is none if isl stopped at the limit of its operations."""
    text = value.to_str()
    if text is None:
        raise _islpy().Error(STOPPED)
    return int(text)


def to_isl(x: Any) -> Any:
    """Return a stripe, sett, union of setts, region or union of regions as an ``islpy.Set``.

    Parameters
    ----------
    x : Stripe, Sett, Setts, Region or Regions
        One dimension for stripes and setts, one for each axis for regions.

    Returns
    -------
    islpy.Set

    Raises
    ------
    ImportError
        If islpy is not installed.
    TypeError
        If `x` is none of these.

    Examples
    --------
    >>> from tapestry_sets.stripe import Stripe
    >>> to_isl(Stripe(1, 1)).is_equal(to_isl(Stripe(2, 2)).union(to_isl(Stripe(1, 1))))
    False

    References
    ----------
    isl, the integer set library, ``isl_set``.
    """
    if hasattr(x, "members"):
        parts = [to_isl(member) for member in x.members]
        if not parts:
            return _box_set(x.shape, x.start, [], True) if hasattr(x, "shape") else nest_set([(0, 1, 0)])
        total = parts[0]
        for part in parts[1:]:
            total = total | part
        return total
    if hasattr(x, "setts"):
        formulas = [_formula(sett.nest, f"z{axis}", f"k{axis}_") for axis, sett in enumerate(x.setts)]
        return _box_set(x.shape, x.start, formulas, x.is_empty)
    if hasattr(x, "nest"):
        return nest_set(x.nest)
    if hasattr(x, "level"):
        return nest_set([x.level])
    raise TypeError(f"to_isl: takes a stripe, sett, region or a union of them, not {type(x).__name__}")


def _box_set(shape: Sequence[int], start: Sequence[int], formulas: list[str], empty: bool) -> Any:
    names = ", ".join(f"z{axis}" for axis in range(len(shape)))
    bounds = [f"{lo} <= z{axis} < {lo + n}" for axis, (lo, n) in enumerate(zip(start, shape, strict=True))]
    parts = [*bounds, *formulas, *(["false"] if empty else [])]
    return _islpy().Set(f"{{ [{names}] : {' and '.join(parts) or 'true'} }}")


# ------------------------------------------------------------------------- chains of maps, as sets and relations


def read_set(text: str) -> Any:
    """Return the islpy.Set that `text` describes."""
    return _islpy().Set(text)


def box_set(start: tuple[int, ...], stop: tuple[int, ...]) -> Any:
    """Return the box [start, stop) as an islpy.Set."""
    names = [f"x{k}" for k in range(len(start))]
    bounds = [f"{a} <= {x} < {b}" for x, a, b in zip(names, start, stop, strict=True)]
    return read_set(f"{{ [{', '.join(names)}] : {' and '.join(bounds) or 'true'} }}")


def point_set(point: tuple[int, ...]) -> Any:
    """Return one point as an islpy.Set."""
    return read_set(f"{{ [{', '.join(map(str, point))}] }}")


def affine_map(
    in_rank: int,
    rows: tuple[tuple[tuple[str, int], ...], ...],
    offset: tuple[int, ...],
    width: tuple[int, ...],
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
    flat = []
    weight = 1
    for k in range(len(from_shape) - 1, -1, -1):
        flat.append((f"x{k}", weight))
        weight *= from_shape[k]
    flatten = affine_map(len(from_shape), (tuple(flat),), (0,), (1,))
    rows = []
    weight = 1
    for k in range(len(to_shape) - 1, -1, -1):
        quotient = f"floor(x0/{weight})" if weight > 1 else "x0"
        rows.append((((f"({quotient}) mod {to_shape[k]}" if k else quotient), 1),))
        weight *= to_shape[k]
    split = affine_map(1, tuple(reversed(rows)), (0,) * len(rows), (1,) * len(rows))
    return flatten.apply_range(split)


def bounds_of(points: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the tight bounds (low, one past high) of an islpy.Set, or None if it is empty."""
    if points.is_empty():
        return None
    rank = points.dim(_islpy().dim_type.set)
    low = tuple(_integer(points.dim_min_val(k)) for k in range(rank))
    return low, tuple(_integer(points.dim_max_val(k)) + 1 for k in range(rank))


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
