"""Columns: arrays of integers as parts of stripes; questions about stripes answered for whole columns.

The closed forms are those of `stripe`, written so that one text runs on arrays of float64, of int64 and of
Python integers. Nothing rounds and nothing wraps unnoticed: before a form runs, its largest intermediate value
is bounded from the columns. Below 2**53 it runs in float64, where integers, their products and the floor of a
quotient are exact and division is fast; below 2**62 in int64; what is larger runs in Python integers, pair by
pair where only some are.

Columns are of NumPy or of a library that follows the Array API standard; Python integers are held in arrays of
NumPy alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from math import prod
from operator import and_, mul
from typing import Any

import numpy as np
from msgspec import Struct

from tapestry_sets.batch import tuning
from tapestry_sets.integers import sum_ramps
from tapestry_sets.limits import as_int, freeze_array, quote, refuse_masked

Array = Any
"""An array of any library; the Array API standard defines no type for it."""
Namespace = Any
"""The functions of an array library, such as the module numpy."""
Kernel = Callable[..., tuple[Array, ...]]
"""A closed form: a namespace and columns that broadcast, to as many arrays of answers."""

Answerer = Callable[[tuple[slice, ...]], tuple[Array, ...]]
"""Answers for a part of the pairs, which has a slice for each axis."""

FLOAT_EXACT = 1 << 53
INT_EXACT = 1 << 62
INT64 = (-(1 << 63), (1 << 63) - 1)


class Form(Struct, frozen=True):
    """A closed form and where it is exact.

    Attributes
    ----------
    kernel : Kernel
    bound : callable
        From the magnitudes of the columns, one that no intermediate value of the kernel exceeds.
    floats : bool
        Whether the kernel may run in float64: it divides through `_floor` and `_modulo` alone.
    prepare : callable, optional
        From a namespace, the pairs' shape and the columns, to a kernel and columns that answer the same sooner.
    """

    kernel: Kernel
    bound: Callable[..., Any]
    floats: bool = False
    prepare: Callable[..., tuple[Kernel, tuple[Array, ...]]] | None = None


# ------------------------------------------------------------------------------------------------- namespaces


def namespace(*columns: Array) -> Namespace:
    """Return the one library that all arrays are of, NumPy for those that are of none."""
    found: Namespace = np
    for x in columns:
        if isinstance(x, (np.ndarray, np.generic, int)):
            continue
        # CuPy's arrays name no namespace before version 14; their module's functions are the same
        module = sys.modules[type(x).__module__.partition(".")[0]]
        own = x.__array_namespace__() if hasattr(x, "__array_namespace__") else module
        if found is not np and own is not found:
            raise TypeError(f"batch: columns must be arrays of one library, not {found.__name__} and {own.__name__}")
        found = own
    return found


def is_array(x: object) -> bool:
    return hasattr(x, "dtype") and hasattr(x, "shape")


def _astype(xp: Namespace, x: Array, dtype: Any) -> Array:
    if x.dtype == dtype:
        return x
    return x.astype(dtype) if hasattr(x, "astype") else xp.astype(x, dtype)


def to_host(x: Array) -> Any:
    """Return an array in NumPy."""
    if isinstance(x, (np.ndarray, np.generic)):
        return np.asarray(x)
    return x.get() if hasattr(x, "get") else np.from_dlpack(x)


def _unique(xp: Namespace, x: Array) -> tuple[Array, Array]:
    """Return the different values of a column, and for each entry which of them it is."""
    flat = xp.reshape(x, (-1,))
    if hasattr(xp, "unique_inverse"):
        values, inverse = xp.unique_inverse(flat)
    else:
        values, inverse = xp.unique(flat, return_inverse=True)
    return values, xp.reshape(inverse, x.shape)


def frozen(**columns: Any) -> dict[str, Any]:
    """Return columns that nobody writes to: NumPy's as read-only views; others have no such flag."""
    return {name: freeze_array(x.view()) if isinstance(x, np.ndarray) else x for name, x in columns.items()}


def own(column: Array) -> Array:
    """Return a column that is not the caller's array, to which they may write later."""
    return column.copy() if isinstance(column, np.ndarray) else column


def as_column(values: object, what: str) -> Array:
    """Return integers as an int64 array, or as a NumPy array of Python integers where one does not fit."""
    refuse_masked(values, what)
    if not is_array(values):
        values = _listed(values, what)
    x: Array = values
    if x.dtype == object:
        exact = np.empty(x.shape, object)
        exact.reshape(-1)[:] = [as_int(v, what) for v in x.reshape(-1)]
        return narrow(exact)
    xp = namespace(x)
    kind = np.dtype(x.dtype).kind if not hasattr(xp, "isdtype") else "i" if xp.isdtype(x.dtype, "integral") else "?"
    if kind not in "iu":
        raise TypeError(
            f"{what} must be a column of integers, not of {x.dtype}; write {what.split()[-1]}.astype(int64)"
        )
    if x.dtype == xp.uint64 and prod(x.shape) and int(xp.max(x)) > INT64[1]:
        return to_host(x).astype(object)
    return _astype(xp, x, xp.int64)


def _listed(values: object, what: str) -> Any:
    """Return a sequence of integers, or of sequences of them, as an array of Python integers."""
    out = np.array(values, dtype=object)
    if any(isinstance(row, (list, tuple)) for row in out.reshape(-1)):
        raise ValueError(f"{what} must have rows of one length, not {quote(values)}")
    return out


def narrow(x: Array, xp: Namespace = np) -> Array:
    """Return an array of Python integers as one of int64 in a library if all fit, and other arrays as they are."""
    if x.dtype != object or (x.size and (x.min() < INT64[0] or x.max() > INT64[1])):
        return x
    return xp.asarray(x.astype(np.int64))


def together(*columns: Array) -> tuple[Namespace, tuple[Array, ...]]:
    """Return columns in one namespace: NumPy, in Python integers, if one of them holds such."""
    if any(x.dtype == object for x in columns):
        return np, tuple(to_host(x).astype(object) for x in columns)
    xp = namespace(*columns)
    return xp, columns if xp is np else tuple(xp.asarray(x) if isinstance(x, np.ndarray) else x for x in columns)


def broadcast_shape(what: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " and ".join(map(str, dict.fromkeys(shapes)))
        raise ValueError(
            f"{what}: shapes {listed} do not broadcast; index with None, as a[:, None], for pairs"
        ) from None


# ------------------------------------------------------------------------------------------- running a kernel


def solve(what: str, form: Form, columns: Sequence[Array]) -> tuple[Array, ...]:
    """Answer by a closed form for all columns as they broadcast, block by block, in numbers in which it is exact.

    Parameters
    ----------
    what : str
        How an error names the query.
    form : Form
    columns : sequence of arrays
        Of int64, or of Python integers.
    """
    shape = broadcast_shape(what, *(x.shape for x in columns))
    flat = shape or (1,)  # a single pair is a batch of one: NumPy's scalars would warn where they wrap
    xp, run = plan(form, flat, columns)
    blocks = [(at, run(at)) for at in _blocks(flat)]
    return tuple(_assembled(xp, flat, shape, [(at, out[k]) for at, out in blocks]) for k in range(len(blocks[0][1])))


def plan(form: Form, shape: tuple[int, ...], columns: Sequence[Array]) -> tuple[Namespace, Answerer]:
    """Return the library of the answers, and what answers by a closed form for a part of columns of this shape."""
    kernel, prepare = form.kernel, form.prepare
    xp, columns = together(*columns)
    columns = tuple(xp.reshape(x, (1,) * (len(shape) - len(x.shape)) + tuple(x.shape)) for x in columns)
    exact = xp is not np or columns[0].dtype != object
    most = form.bound(*map(largest, columns)) if exact else INT_EXACT
    if most < FLOAT_EXACT and form.floats:
        columns = tuple(_astype(xp, x, xp.float64) for x in columns)
    elif most >= INT_EXACT:
        kernel, prepare = partial(_mixed, kernel, form.bound), None
    if prepare is not None:
        kernel, columns = prepare(xp, shape, *columns)
    return xp, lambda at: kernel(xp, *(_part(x, at) for x in columns))


def largest(x: Array) -> int:
    """Return the largest magnitude of a column of int64."""
    xp = namespace(x)
    return max(abs(int(xp.max(x))), abs(int(xp.min(x)))) if prod(x.shape) else 0


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Yield the parts of a shape, in order, that have at most `tuning.PAIRS_AT_ONCE` entries."""
    axis = next((k for k, n in enumerate(shape) if n > 1), None)
    if axis is None or prod(shape) <= tuning.PAIRS_AT_ONCE:
        yield tuple(slice(0, n) for n in shape)
        return
    rows = max(1, tuning.PAIRS_AT_ONCE // prod(shape[axis + 1 :]))
    for at in range(0, shape[axis], rows):
        part = slice(at, min(at + rows, shape[axis]))
        for inner in _blocks(shape[axis + 1 :]):
            yield (*(slice(0, 1) for _ in range(axis)), part, *inner)


def _part(x: Array, at: tuple[slice, ...]) -> Array:
    return x[tuple(slice(None) if n == 1 else part for n, part in zip(x.shape, at, strict=True))]


def _assembled(xp: Namespace, flat: tuple[int, ...], shape: tuple[int, ...], parts: list[tuple[Any, Array]]) -> Array:
    """Return one array of answers from those of the blocks."""
    if any(x.dtype == object for _, x in parts):
        xp, parts = np, [(at, to_host(x).astype(object)) for at, x in parts]
    dtype = parts[0][1].dtype
    if dtype == xp.float64:
        dtype = xp.int64
    out = xp.empty(flat, dtype=dtype)
    for at, x in parts:
        out[at] = xp.broadcast_to(_astype(xp, x, dtype), tuple(part.stop - part.start for part in at))
    return xp.reshape(out, shape)


def _mixed(kernel: Kernel, bound: Callable[..., Any], xp: Namespace, *columns: Array) -> tuple[Array, ...]:
    """Run a kernel in NumPy, in int64 for the pairs that it is exact for and in Python integers for the others."""
    whole = np.broadcast_arrays(*map(to_host, columns))
    shape, host = whole[0].shape, [x.reshape(-1) for x in whole]
    small = reduce(and_, ((x > -INT_EXACT) & (x < INT_EXACT) for x in host))
    # an estimate is wrong by a few parts in 2**53, which the bounds leave room for: int64 ends at twice INT_EXACT
    fits = small & (bound(*(np.abs(np.where(small, x, 0).astype(np.float64)) for x in host)) < INT_EXACT)
    near = kernel(np, *(x[fits].astype(np.int64) for x in host))
    far = kernel(np, *(x[~fits].astype(object) for x in host))
    answers = []
    for a, b in zip(near, far, strict=True):
        out = np.empty(fits.shape, bool if a.dtype == bool else object)
        out[fits], out[~fits] = a, b
        answers.append(xp.asarray(out.reshape(shape)) if out.dtype == bool else narrow(out.reshape(shape), xp))
    return tuple(answers)


# ------------------------------------------------------------------------------------------------ closed forms


def _floor(xp: Namespace, x: Array, y: Array) -> Array:
    """Return floor(x / y).

    In float64 the quotient of integers below 2**53 never rounds up to the next integer: it is at least 1/y
    away from it, more than half the spacing of floats there.
    """
    return xp.floor(x / y) if x.dtype == xp.float64 else x // y


def _modulo(xp: Namespace, x: Array, y: Array) -> Array:
    return x - _floor(xp, x, y) * y


def _bezout(xp: Namespace, P: Array, Q: Array) -> tuple[Array, Array, Array]:
    """Return g = gcd(P, Q), an inverse of P/g modulo Q/g, and Q/g, for P, Q > 0, by Euclid's algorithm."""
    P, Q = P + xp.zeros_like(Q), Q + xp.zeros_like(P)
    r, s = Q, _modulo(xp, P, Q)
    t, u = xp.zeros_like(P), xp.ones_like(P)
    while True:
        going = s != 0
        if not bool(xp.any(going)):
            break
        q = _floor(xp, r, xp.where(going, s, xp.ones_like(s)))
        r, s = xp.where(going, s, r), xp.where(going, r - q * s, s)
        t, u = xp.where(going, u, t), xp.where(going, t - q * u, u)
    per = _floor(xp, Q, r)
    return r, _modulo(xp, t, per), per


def _meeting(
    xp: Namespace, first: Array, P: Array, other: Array, g: Array, inverse: Array, per: Array
) -> tuple[Array, Array, Array]:
    """Return whether ``first + P*i == other + Q*j`` has solutions, one such number, and how far apart they are."""
    apart = other - first
    k = _floor(xp, apart, g)
    return k * g == apart, first + P * _modulo(xp, k * inverse, per), P * per


PairColumns = tuple[Array, Array, Array, Array, Array, Array, Array, Array, Array, Array]
"""Stripes clipped to intervals, two of them: low, high, on, period and phase, where low and high - 1 are elements."""


def _points_bound(a: Any, end: Any, on: Any, P: Any, p: Any, b: Any, stop: Any, om: Any, Q: Any, q: Any) -> Any:
    return 2 * (a + b + end + stop + 1) * (Q + 2) + 4 * P * Q


def _points_meet(xp: Namespace, pair: PairColumns, meet: Array, z: Array, period: Array) -> tuple[Array]:
    """Return whether progressions meet: `meet` says so without their ends, they meet at z and once in a period then."""
    return (_points_first(xp, pair, meet, z, period)[0],)


def _points_first(xp: Namespace, pair: PairColumns, meet: Array, z: Array, period: Array) -> tuple[Array, Array]:
    """Return whether progressions meet, and where first."""
    low = xp.maximum(pair[0], pair[5])
    z = low + _modulo(xp, z - low, period)
    return meet & (z < xp.minimum(pair[1], pair[6])), z


def _points_count(xp: Namespace, pair: PairColumns, meet: Array, z: Array, period: Array) -> tuple[Array]:
    """Return how many elements progressions share."""
    meet, z = _points_first(xp, pair, meet, z, period)
    more = _floor(xp, xp.minimum(pair[1], pair[6]) - 1 - z, period)
    return (xp.where(meet, more + 1, xp.zeros_like(z)),)


def _runs_meet(xp: Namespace, *pair: Array) -> tuple[Array]:
    """Return whether runs of neighbors meet."""
    return (xp.maximum(pair[0], pair[5]) < xp.minimum(pair[1], pair[6]),)


def _runs_first(xp: Namespace, *pair: Array) -> tuple[Array, Array]:
    """Return whether runs of neighbors meet, and where first."""
    z = xp.maximum(pair[0], pair[5])
    return z < xp.minimum(pair[1], pair[6]), z


def _runs_count(xp: Namespace, *pair: Array) -> tuple[Array]:
    """Return how many elements runs of neighbors share."""
    many = xp.minimum(pair[1], pair[6]) - xp.maximum(pair[0], pair[5])
    return (xp.maximum(many, xp.zeros_like(many)),)


def _by_bezout(answer: Kernel, xp: Namespace, *pair: Array) -> tuple[Array, ...]:
    return answer(xp, pair, *_meeting(xp, pair[0], pair[3], pair[5], *_bezout(xp, pair[3], pair[8])))


def _by_table(answer: Kernel, xp: Namespace, shape: tuple[int, ...], *pair: Array) -> tuple[Kernel, tuple[Array, ...]]:
    """Return a kernel that looks up what depends on the two periods alone, if few different ones occur.

    Where these are short, too, it looks up where progressions from each place in a period meet.
    """
    (P, i), (Q, j) = _unique(xp, pair[3]), _unique(xp, pair[8])
    n, m = P.shape[0], Q.shape[0]
    most = min(tuning.MAX_TABLE, prod(shape) // 2)
    if n * m > most:
        return partial(_by_bezout, answer), pair
    tables = _bezout(xp, P[:, None], Q[None, :])
    if xp is np and int(P.sum()) * int(Q.sum()) <= most // 4:
        return _by_places(answer, (P, i, pair[0]), (Q, j, pair[5]), tables, pair)
    flat = [xp.reshape(x, (-1,)) for x in tables]

    def looked_up(xp: Namespace, *columns: Array) -> tuple[Array, ...]:
        at = columns[10] + columns[11]
        each = xp.reshape(at, (-1,))
        known = (xp.reshape(xp.take(x, each), at.shape) for x in flat)
        return answer(xp, columns[:10], *_meeting(xp, columns[0], columns[3], columns[5], *known))

    return looked_up, (*pair, i * m, j)


def _by_places(
    answer: Kernel, mine: tuple[Any, Any, Any], theirs: tuple[Any, Any, Any], tables: tuple[Any, ...], pair: PairColumns
) -> tuple[Kernel, tuple[Any, ...]]:
    """Return a kernel of NumPy that looks up where progressions meet, by their places in a period each.

    Parameters
    ----------
    mine, theirs : (periods, which of them a progression has, where it begins)
    tables : tuple of array
        For each two of the periods what `_bezout` returns.
    """
    (P, i, first), (Q, j, other) = mine, theirs
    # the places 0, 1, …, P - 1 of the first period, then those of the next, and so on
    own, its = (np.repeat(np.arange(len(x)), x.astype(np.int64)) for x in (P, Q))
    p, q = (np.cumsum(x) - x for x in (P, Q))
    x, y = (np.arange(len(at)) - start[at] for at, start in ((own, p), (its, q)))
    known = (table[own[:, None], its] for table in tables)
    meet, z, period = _meeting(np, x[:, None], P[own][:, None], y[None, :], *known)
    # those that never meet do so beyond all numbers; below them, too
    far = (FLOAT_EXACT if z.dtype == np.float64 else INT_EXACT) >> 2
    z, period = np.where(meet, z, far).reshape(-1), np.where(meet, period, 2 * far).reshape(-1)
    one, two = (
        (start[at] + _modulo(np, begin, of[at])).astype(np.int64)
        for start, at, begin, of in ((p, i, first, P), (q, j, other, Q))
    )

    def looked_up(xp: Namespace, *columns: Array) -> tuple[Array, ...]:
        at = columns[10] + columns[11]
        return answer(xp, columns[:10], True, z.take(at), period.take(at))

    return looked_up, (*pair, one * len(its), two)


def _first_hit(xp: Namespace, a: Array, m: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return whether some k >= 0 has ``low <= a*k mod m <= high``, and the smallest; see `stripe.first_hit`."""
    descent: list[tuple[Array, ...]] = []
    while True:
        a, now = a % m, low == 0
        turn = a > m - a  # walk the other way round
        a, low, high = xp.where(turn, m - a, a), xp.where(turn, m - high, low), xp.where(turn, m - low, high)
        stuck = a == 0
        k = -(-low // xp.where(stuck, xp.ones_like(a), a))
        found = now | (~stuck & (a * k <= high))
        k = xp.where(now, xp.zeros_like(k), k)
        going = ~found & ~stuck
        if not bool(xp.any(going)):
            break
        a, m, low, high = (x[going] for x in (a, m, low, high))
        descent.append((found, k, going, a, m, low))
        a, m, low, high = m % a, a, -high % a, -low % a
    while descent:
        hit, inner = found, k
        found, k, going, a, m, low = descent.pop()
        found[going], k[going] = hit, -(-(low + m * inner) // a)
    return found, k


def _first(
    xp: Namespace, a: Array, P: Array, p: Array, b: Array, Q: Array, q: Array, start: Array
) -> tuple[Array, Array]:
    """Return whether stripes meet from `start` on, and where first; see `stripe.stripes_first_common`."""
    # s   ███······███······███    now: `start` lies in blocks of both, f and e behind their beginnings
    # t   ·██····██████····████    soon: t's next block begins, Q - e away, before the block of s ends, a - f away
    #      ^ start ^ block         else: from the next `block` of s, or k periods later, to the first of t in it
    #
    # A column has all three cases, so each is computed for all pairs and the last lines choose.
    one = xp.ones_like(a)
    filled = (a > 0) & (b > 0)
    a, b = xp.maximum(a, one), xp.maximum(b, xp.ones_like(b))
    f, e = (start - p) % P, (start - q) % Q
    now = (f < a) & (e < b)
    soon = (f < a) & ~now & (Q - e < a - f)
    block = start - f + P
    low = (q - block - a + 1) % Q
    high = low + a + b - 2
    seek = ~now & ~soon & (a + b - 1 < Q) & (high < Q) & (low != 0)
    none, unit = xp.zeros_like(low), xp.ones_like(low)
    found, k = _first_hit(xp, P + none, xp.where(seek, Q, unit), xp.where(seek, low, none), xp.where(seek, high, none))
    block = block + P * k
    d = (block - q) % Q
    z = xp.where(d < b, block, block + Q - d)
    z = xp.where(now, start, xp.where(soon, start + Q - e, z))
    return found & filled, xp.where(found & filled, z, xp.zeros_like(z))


def _blocks_bound(a: Any, end: Any, on: Any, P: Any, p: Any, b: Any, stop: Any, om: Any, Q: Any, q: Any) -> Any:
    return _points_bound(a, end, on, P, p, b, stop, om, Q, q) + 8 * (P + Q) + Q * Q


def _blocks_meet(xp: Namespace, *pair: Array) -> tuple[Array]:
    """Return whether clipped stripes meet."""
    return (_blocks_first(xp, *pair)[0],)


def _blocks_first(xp: Namespace, *pair: Array) -> tuple[Array, Array]:
    """Return whether clipped stripes meet, and where first."""
    a, end, on, P, p, b, stop, om, Q, q = pair
    found, z = _first(xp, on, P, p, om, Q, q, xp.maximum(a, b))
    return found & (z < xp.minimum(end, stop)), z


def _blocks_count(xp: Namespace, *pair: Array) -> tuple[Array]:
    """Return how many elements clipped stripes share."""
    a, end, on, P, p, b, stop, om, Q, q = pair
    return _count(xp, on, P, p, om, Q, q, xp.maximum(a, b), xp.minimum(end, stop))


def _either(points: Kernel, blocks: Kernel, xp: Namespace, *pair: Array) -> tuple[Array, ...]:
    """Run one kernel on pairs of progressions, and another, slower, on those with longer blocks."""
    long = (pair[2] != 1) | (pair[7] != 1)
    if bool(xp.all(long)):
        return blocks(xp, *pair)
    if not bool(xp.any(long)):
        return points(xp, *pair)
    shape = long.shape
    columns = [xp.reshape(x, (-1,)) for x in xp.broadcast_arrays(*pair)]
    long = xp.reshape(long, (-1,))
    answers = []
    for a, b in zip(points(xp, *(x[~long] for x in columns)), blocks(xp, *(x[long] for x in columns)), strict=True):
        out = xp.empty(long.shape, dtype=a.dtype)
        out[~long], out[long] = a, b
        answers.append(xp.reshape(out, shape))
    return tuple(answers)


def _stripe_count(a: Array, P: Array, p: Array, start: Array, stop: Array, xp: Namespace) -> Array:
    """Return how many elements of a stripe lie in [start, stop), for start <= stop."""
    u, v = (stop - p) // P, (start - p) // P
    r, t = (stop - p) - u * P, (start - p) - v * P
    return (u - v) * a + xp.minimum(r, a) - xp.minimum(t, a)


def _own_count(xp: Namespace, a: Array, P: Array, p: Array, start: Array, stop: Array) -> tuple[Array]:
    return (_stripe_count(a, P, p, start, stop, xp),)


def _count(
    xp: Namespace, a: Array, P: Array, p: Array, b: Array, Q: Array, q: Array, start: Array, stop: Array
) -> tuple[Array]:
    """Return how many common elements of stripes lie in [start, stop); see `stripe.stripes_count_common`."""
    long = xp.maximum(stop - start, xp.zeros_like(start + stop))
    a, P, p, b, Q, q, long = xp.broadcast_arrays(a, P, (p - start) % P, b, Q, (q - start) % Q, long)
    zero = xp.zeros_like(long)
    into = -p % P
    total = _stripe_count(b, Q, q, zero, xp.maximum(zero, xp.minimum(a - into, long)), xp)
    block = P - into  # where the first whole block starts
    n = xp.maximum(zero, -((block - long) // P))
    last = block + (n - 1) * P
    cut = (n > 0) & (last + a > long)
    at = xp.where(cut, last, zero)
    total = total + _stripe_count(b, Q, q, at, xp.where(cut, long, zero), xp)
    n = xp.where(cut, n - 1, n)
    y = (block - q) % Q + Q
    parts = [_unsigned(xp, x) for x in (n, P, y, a, b, Q)]
    return (total + _signed(xp, _blocks_common(xp, *parts)),)


def _blocks_common(xp: Namespace, n: Array, P: Array, y: Array, a: Array, b: Array, Q: Array) -> Array:
    """Return the sum over 0 <= k < n of the elements of stripe (b, Q, 0) in [y + P*k, y + P*k + a), for y >= b."""
    total, some = xp.zeros_like(n), n != 0
    n, P, y, a, b, Q = (x[some] for x in (n, P, y, a, b, Q))
    up = sum_ramps(n, P, y + a, Q, xp=xp) - sum_ramps(n, P, y + a - b, Q, xp=xp)
    total[some] = up - sum_ramps(n, P, y, Q, xp=xp) + sum_ramps(n, P, y - b, Q, xp=xp)
    return total


def _unsigned(xp: Namespace, x: Array) -> Array:
    return x if x.dtype == object else _astype(xp, x, xp.uint64)


def _signed(xp: Namespace, x: Array) -> Array:
    return x if x.dtype == object else _astype(xp, x, xp.int64)


def _gcd(xp: Namespace, x: Array, y: Array) -> Array:
    return xp.gcd(x, y) if hasattr(xp, "gcd") else _bezout(xp, x, y)[0]


def _meet(xp: Namespace, a: Array, P: Array, p: Array, b: Array, Q: Array, q: Array) -> tuple[Array]:
    """Return whether stripes share an integer; see `stripe.stripes_disjoint`."""
    g = _gcd(xp, P, Q)
    d = (q - p) % g
    return ((a > 0) & (b > 0) & ((d < a) | (g - d < b)),)


def _product(xp: Namespace, *factors: Array) -> tuple[Array]:
    return (reduce(lambda x, y: x * y, factors),)


def _ends(xp: Namespace, low: Array, high: Array, on: Array, period: Array, phase: Array) -> tuple[Array, Array]:
    """Return the first element >= low of a stripe and one more than the last < high."""
    r, t = (low - phase) % period, (high - 1 - phase) % period
    return xp.where(r < on, low, low + period - r), xp.where(t < on, high, high - 1 - t + on)


STRIPES_MEET = Form(_meet, lambda a, P, p, b, Q, q: 2 * (P + Q))
"""Columns on, period, phase of two stripes: whether they meet."""
STRIPES_FIRST = Form(_first, lambda a, P, p, b, Q, q, start: start + (Q + 4) * (P + Q))
"""Two stripes and a start: whether they meet from there on, and where first."""
STRIPES_COUNT = Form(_count, lambda a, P, p, b, Q, q, start, stop: start + stop + 6 * (P + Q))
"""Two stripes, a start and a stop: how many elements they share between."""
STRIPE_COUNT = Form(_own_count, lambda a, P, p, start, stop: start + stop + 3 * P)
"""A stripe, a start and a stop: how many elements it has between."""
STRIPE_ENDS = Form(_ends, lambda low, high, on, P, p: 2 * (low + high + P + p))
"""The columns low, high, on, period, phase of a clipped stripe: its first element, and one more than its last."""
PRODUCT = Form(_product, lambda *factors: reduce(mul, (x + 1 for x in factors)))
"""Factors: their product."""

AXIS = {
    "overlaps": (_runs_meet, _points_meet, _blocks_meet),
    "first_common": (_runs_first, _points_first, _blocks_first),
    "count_common": (_runs_count, _points_count, _blocks_count),
}
"""For each query about two clipped stripes, the closed forms for runs of neighbors, for single points, for blocks."""


def answer_axis(query: str, pair: PairColumns) -> tuple[Array, ...]:
    """Answer a query about clipped stripes."""
    return solve(query, _axis_form(query, pair), pair)


def plan_axis(query: str, pair: PairColumns, shape: tuple[int, int]) -> Answerer:
    """Return what answers a query about clipped stripes for a part of the pairs, of this shape."""
    return plan(_axis_form(query, pair), shape, pair)[1]


def _axis_form(query: str, pair: PairColumns) -> Form:
    runs, points, blocks = AXIS[query]
    single = partial(_by_bezout, points)
    if all(x.dtype != object and largest(x) <= 1 for x in (pair[2], pair[7])):
        if all(x.dtype != object and largest(x) <= 1 for x in (pair[3], pair[8])):
            return Form(runs, lambda *columns: sum(columns))
        return Form(single, _points_bound, True, partial(_by_table, points))
    return Form(partial(_either, single, blocks), _blocks_bound)
