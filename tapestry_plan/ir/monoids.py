"""Monoids: how partial results of a reduction begin, merge and end.

A reduction wraps each value into a state, merges states and unwraps the last one. Merging is associative and has a
zero, so a reduction axis may be cut anywhere: each part makes a state, and the states are merged in the order of the
parts, whoever made them. A sum's state is a sum; a variance's is a count, a mean and a sum of squares.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_sets.limits import FrozenDict, Guarded, Public, check_arguments, check_fields, cut_text, put_fields, quote

State = tuple[Any, ...]
"""The components of a state: arrays of one shape."""


def _same(dtype: str) -> str:
    return dtype


def _first(xp: Any, state: State, attrs: Mapping[str, Any]) -> Any:
    return state[0]


def _itself(xp: Any, x: Any, index: Any) -> State:
    return (x,)


class Monoid(Struct, frozen=True, metaclass=Public):
    """An associative way to merge partial results.

    Parameters
    ----------
    name : str
        What plans call it.
    merge : callable
        ``(xp, a, b) -> state``: of two states, a of what comes before b's. Components are arrays of one shape.
    zero : tuple of numbers
        The state of nothing: merging with it changes nothing.
    components : callable
        Dtype of the operand -> dtypes of the state's components.
    wrap : callable
        ``(xp, x, index) -> state`` of each value; index is its row-major number among those that are reduced together.
    unwrap : callable
        ``(xp, state, attrs) -> array``: the result; attrs are the operator's.
    result : callable
        Dtype of the operand -> dtype of the result.
    fold : callable, optional
        ``(xp, x, index) -> state``: wraps and merges along axis 0 at once, where that is faster; index is of shape
        (len(x), 1, …).
    ufunc : str
        For monoids whose state is the result itself: the function of the array namespace that merges two.
    is_commutative : bool
        Whether the order of what is merged means nothing. Others reduce one axis only.

    Examples
    --------
    >>> from tapestry_plan import Graph, Monoid, ops
    >>> spread = Monoid(
    ...     "spread",  # the largest less the smallest: each part keeps both
    ...     merge=lambda xp, a, b: (xp.minimum(a[0], b[0]), xp.maximum(a[1], b[1])),
    ...     zero=(float("inf"), float("-inf")),
    ...     components=lambda dtype: (dtype, dtype),
    ...     wrap=lambda xp, x, index: (x, x),
    ...     unwrap=lambda xp, state, attrs: state[1] - state[0],
    ... )
    >>> g = Graph()
    >>> ops.reduce_with(spread, g.input("x", (8, 6)), axis=1).shape, spread.state_dtype("float32")
    ((8,), 'f4,f4')

    References
    ----------
    Tapestry, "Sharding": reductions as wrap, merge, zero and unwrap.
    """

    name: str
    merge: Callable[[Any, State, State], State]
    zero: tuple[float, ...]
    components: Callable[[str], tuple[str, ...]] = lambda dtype: (dtype,)
    wrap: Callable[[Any, Any, Any], State] = _itself
    unwrap: Callable[[Any, State, Mapping[str, Any]], Any] = _first
    result: Callable[[str], str] = _same
    fold: Callable[[Any, Any, Any], State] | None = None
    ufunc: str = ""
    is_commutative: bool = True

    def __repr__(self) -> str:
        return f"Monoid({cut_text(quote(self.name), 80)}{'' if self.is_commutative else ', in order'})"

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def is_plain(self) -> bool:
        """Whether a state is a result: partial results are of the result's dtype then."""
        return bool(self.ufunc)

    @check_arguments
    def state_dtype(self, dtype: str) -> str:
        """NumPy's name of the dtype of a state for an operand of a dtype: its components side by side.

        Examples
        --------
        >>> from tapestry_plan.ir.monoids import SUM, VARIANCE
        >>> VARIANCE.state_dtype("float32"), SUM.state_dtype("float32")
        ('f8,f8,f8', 'float32')
        """
        found = self.components(dtype)
        return found[0] if len(found) == 1 else ",".join(np.dtype(one).str[1:] for one in found)

    def reduced(self, xp: Any, x: Any, index: Any) -> State:
        """Return the state of all values along axis 0, merged in a fixed binary tree of neighbors."""
        if self.fold is not None:
            return self.fold(xp, x, index)
        state = self.wrap(xp, x, index)
        while len(state[0]) > 1:
            n = len(state[0]) // 2 * 2
            merged = self.merge(xp, tuple(c[0:n:2] for c in state), tuple(c[1:n:2] for c in state))
            rest = tuple(c[n:] for c in state)
            state = merged if not len(rest[0]) else tuple(map(lambda m, r: xp.concatenate([m, r]), merged, rest))
        return tuple(c[0] for c in state)


class States(Guarded):
    """An array of states as its components, by name, each an array: libraries of GPUs have no structured dtypes."""

    dtype: np.dtype[Any]

    def __init__(self, dtype: np.dtype[Any], components: Mapping[str, Any]) -> None:
        put_fields(self, dtype=dtype)
        self._components = components

    def __getitem__(self, name: str) -> Any:
        return self._components[name]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of each component."""
        found: tuple[int, ...] = next(iter(self._components.values())).shape
        return found


def make_empty(xp: Any, shape: Sequence[int], dtype: Any) -> Any:
    """A new array of values, or of states, in any array namespace."""
    fields = np.dtype(dtype).fields
    if fields is None:
        return xp.empty(shape, dtype)
    return States(np.dtype(dtype), {name: xp.empty(shape, field[0]) for name, field in fields.items()})


def components_of(array: Any) -> State:
    """Return the components of an array of states, as views; of one of plain values, itself."""
    names = array.dtype.names
    return (array,) if names is None else tuple(array[name] for name in names)


def merge_states(monoid: Monoid, xp: Any, states: Sequence[State], fan_in: int | None = None) -> State:
    """Merge states in their order: one after the other, or in a tree of so many at a time.

    Examples
    --------
    >>> merge_states(SUM, np, [(np.array(k),) for k in range(5)], fan_in=2)[0].item()
    10
    """
    level = list(states)
    width = len(level) if fan_in is None else fan_in
    while len(level) > 1:
        groups = [level[k : k + width] for k in range(0, len(level), width)]
        level = [reduce(lambda a, b: monoid.merge(xp, a, b), group) for group in groups]
    return level[0]


# -- the monoids ------------------------------------------------------------------------------------------


def _plain(name: str, ufunc: str, zero: float) -> Monoid:
    def merge(xp: Any, a: State, b: State) -> State:
        return (getattr(xp, ufunc)(a[0], b[0]),)

    return Monoid(name, merge, (zero,), ufunc=ufunc)


SUM = _plain("sum", "add", 0)
PROD = _plain("prod", "multiply", 1)
MIN = _plain("min", "minimum", float("inf"))
MAX = _plain("max", "maximum", float("-inf"))
ANY = _plain("any", "logical_or", 0)
ALL = _plain("all", "logical_and", 1)


def _merge_moments(xp: Any, a: State, b: State) -> State:
    """Counts, means and sums of squared distances from the mean, for as many of these as there are."""
    count = a[0] + b[0]
    apart = b[1] - a[1]
    share = b[0] / xp.maximum(count, 1)
    mean = a[1] + apart * share
    if len(a) == 2:
        return count, mean
    return count, mean, a[2] + b[2] + apart * apart * (a[0] * share)


def _moments_of_one(xp: Any, x: Any, index: Any) -> State:
    wide = x.astype(xp.float64)
    return xp.ones_like(wide), wide, xp.zeros_like(wide)


def _fold_moments(xp: Any, x: Any, index: Any) -> State:
    mean = xp.mean(x, axis=0, dtype=xp.float64)
    apart = x - mean
    return xp.full_like(mean, len(x)), mean, xp.sum(apart * apart, axis=0)


def _variance(xp: Any, state: State, attrs: Mapping[str, Any]) -> Any:
    return state[2] / (state[0] - attrs.get("correction", 0))


def _floating(dtype: str) -> str:
    if np.dtype(dtype).kind != "f":
        raise ValueError(f"operand 0 is {dtype}, but the result is not {dtype}; cast it to a floating dtype")
    return dtype


MEAN = Monoid(
    "mean",
    _merge_moments,
    (0, 0),
    lambda dtype: ("float64",) * 2,
    lambda xp, x, index: _moments_of_one(xp, x, index)[:2],
    lambda xp, state, attrs: state[1],
    _floating,
)
VARIANCE = Monoid(
    "variance",
    _merge_moments,
    (0, 0, 0),
    lambda dtype: ("float64",) * 3,
    _moments_of_one,
    _variance,
    _floating,
    _fold_moments,
)
"""Chan, Golub, LeVeque, "Algorithms for computing the sample variance", 1983: stable however far the mean is from 0."""
STD = replace(VARIANCE, name="std", unwrap=lambda xp, state, attrs: xp.sqrt(_variance(xp, state, attrs)))


def _scaled(xp: Any, values: Any, top: Any) -> Any:
    """exp(values − top), 1 where both are the same infinity."""
    return xp.exp(xp.where(values == top, 0, values - xp.where(xp.isinf(top), 0, top)))


def _merge_exponents(xp: Any, a: State, b: State) -> State:
    top = xp.maximum(a[0], b[0])
    return top, a[1] * _scaled(xp, a[0], top) + b[1] * _scaled(xp, b[0], top)


def _fold_exponents(xp: Any, x: Any, index: Any) -> State:
    top = xp.max(x, axis=0)
    return top, xp.sum(_scaled(xp, x, top), axis=0)


def _log_sum(xp: Any, state: State, attrs: Mapping[str, Any]) -> Any:
    top, total = state
    return xp.where(total > 0, top + xp.log(xp.where(total > 0, total, 1)), xp.where(xp.isnan(total), total, -xp.inf))


LOGSUMEXP = Monoid(
    "logsumexp",
    _merge_exponents,
    (float("-inf"), 0),
    lambda dtype: (dtype,) * 2,
    lambda xp, x, index: (x, xp.ones_like(x)),
    _log_sum,
    _floating,
    _fold_exponents,
)
"""The largest value and Σ exp(x − largest): no exponential overflows."""


def _wide(dtype: str) -> tuple[str, ...]:
    kind = np.dtype(dtype).kind
    return {"f": "float64", "u": "uint64"}.get(kind, "int64"), "int64"


NOWHERE = 2**63 - 1
"""The index of no value: larger than any."""


def _better(xp: Any, a: State, b: State, sign: int) -> State:
    """The larger value (smaller for sign −1), the first of equal ones; NaN before all numbers, as NumPy has it."""
    (x, i), (y, j) = a, b
    if x.dtype.kind == "f":
        one, two = xp.isnan(x), xp.isnan(y)
        tied = (x == y) | (one & two)
        ahead = (two & ~one) | (~one & ((y > x) if sign > 0 else (y < x)))
    else:
        tied = x == y
        ahead = (y > x) if sign > 0 else (y < x)
    ahead = (ahead & (j != NOWHERE)) | (tied & (j < i)) | (i == NOWHERE)
    return xp.where(ahead, y, x), xp.where(ahead, j, i)


def _fold_best(xp: Any, x: Any, index: Any, sign: int) -> State:
    at = xp.argmax(x, axis=0) if sign > 0 else xp.argmin(x, axis=0)
    value = xp.take_along_axis(x, at[None], axis=0)[0]
    return value, index.reshape(-1)[at]


def _arg(name: str, sign: int) -> Monoid:
    return Monoid(
        name,
        lambda xp, a, b: _better(xp, a, b, sign),
        (0, NOWHERE),
        _wide,
        lambda xp, x, index: (x, xp.broadcast_to(index, x.shape)),
        lambda xp, state, attrs: state[1],
        lambda dtype: "int64",
        lambda xp, x, index: _fold_best(xp, x, index, sign),
    )


ARGMAX, ARGMIN = _arg("argmax", 1), _arg("argmin", -1)

MONOIDS: dict[str, Monoid] = FrozenDict(
    (m.name, m) for m in (SUM, PROD, MIN, MAX, ANY, ALL, MEAN, VARIANCE, STD, LOGSUMEXP, ARGMAX, ARGMIN)
)
"""The monoids by name: how partial results of the operators that reduce are merged.

Examples
--------
>>> from tapestry_plan import MONOIDS
>>> sorted(MONOIDS)
['all', 'any', 'argmax', 'argmin', 'logsumexp', 'max', 'mean', 'min', 'prod', 'std', 'sum', 'variance']
>>> MONOIDS["variance"].state_dtype("float32")  # count, mean and squared distances travel together
'f8,f8,f8'
"""


# -- whether it is one -------------------------------------------------------------------------------------


class NoMonoid(UserWarning):
    """A merge is not associative, or its zero changes something: results will depend on how work is divided.

    Examples
    --------
    >>> import warnings
    >>> from tapestry_plan import Graph, Monoid, NoMonoid, ops
    >>> middle = Monoid("middle", lambda xp, a, b: ((a[0] + b[0]) / 2,), (0,))  # which depends on the brackets
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", NoMonoid)
    ...     ops.reduce_with(middle, Graph().input("x", (8, 6)))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tapestry_plan.ir.monoids.NoMonoid: monoid middle: merge is not associative: (a·b)·c gives ...
    """


def check_monoid(monoid: Monoid, dtype: str = "float64", seed: int = 0) -> None:
    """Warn, with `NoMonoid`, if merging random states shows that it breaks a law of monoids.

    Rounding is allowed for: states may differ by some units in the last place of their largest component.

    Examples
    --------
    >>> mid = Monoid("mid", lambda xp, a, b: ((a[0] + b[0]) / 2,), (0,))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     check_monoid(mid)
    >>> str(caught[0].message)[:52]
    'monoid mid: merge is not associative: (a·b)·c gives '
    """
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(3, 64)) * 4 if np.dtype(dtype).kind == "f" else rng.integers(0, 7, (3, 64))
    index = np.arange(64)
    kinds = monoid.components(dtype)
    a, b, c = (
        tuple(
            np.asarray(v).astype(kind) for v, kind in zip(monoid.wrap(np, x.astype(dtype), index), kinds, strict=True)
        )
        for x in drawn
    )
    zero = tuple(np.full(64, _clipped(z, kind), kind) for z, kind in zip(monoid.zero, kinds, strict=True))
    with np.errstate(all="ignore"):
        left = monoid.merge(np, monoid.merge(np, a, b), c)
        right = monoid.merge(np, a, monoid.merge(np, b, c))
        laws = [
            ("merge is not associative: (a·b)·c", left, "a·(b·c)", right),
            ("zero is not neutral: zero·a", monoid.merge(np, zero, a), "a", a),
            ("zero is not neutral: a·zero", monoid.merge(np, a, zero), "a", a),
        ]
        if monoid.is_commutative:
            laws.append(("merge is not commutative: a·b", monoid.merge(np, a, b), "b·a", monoid.merge(np, b, a)))
    for law, one, other, two in laws:
        at = next((k for k, (u, v) in enumerate(zip(one, two, strict=True)) if not _close(u, v)), None)
        if at is not None:
            where = int(np.argmax(~np.isclose(one[at], two[at], equal_nan=True)))
            warnings.warn(
                f"monoid {monoid.name}: {law} gives {one[at][where]}, {other} gives {two[at][where]} in component "
                f"{at}; results will depend on how the work is divided",
                NoMonoid,
                stacklevel=2,
            )
            return


def _clipped(value: float, kind: str) -> float:
    """A number in the range of a dtype: infinity is the largest integer."""
    if np.dtype(kind).kind not in "iu":
        return value
    return int(min(max(value, np.iinfo(kind).min), np.iinfo(kind).max))


def _close(one: Any, two: Any) -> bool:
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, two))
    scale = float(np.abs(np.where(np.isfinite(one), one, 0)).max(initial=1e-300))
    return bool(np.allclose(one, two, rtol=1e-5 if one.dtype.itemsize < 8 else 1e-9, atol=1e-9 * scale, equal_nan=True))
