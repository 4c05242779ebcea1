"""Random tensors as operators: each cell is a function of (seed, stream, its row-major number).

So every sharding, order and device gives the same numbers: words, uniforms, integers and Bernoulli draws bit for bit,
normals as far as the device's logarithm and cosine agree (a few units in the last place).

The seed is the user's, the stream a number that each generator of a graph is given when it is added, and keeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from msgspec import Struct

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Attrs, Graph, Op, RandomCells, Shape, Shard, Signature, Tensor
from tapestry_plan.ops import tuning
from tapestry_plan.ops.declaration import Arguments, Operator, add_op, operator
from tapestry_plan.ops.operands import named_dtype, number_axes, of_kinds, touched
from tapestry_plan.ops.random.philox import region_words
from tapestry_sets.limits import is_int, quote

WORDS = 1 << 32
"""How many words there are: seeds and streams are words."""


# -- declarations ----------------------------------------------------------------------------------------


Check = Callable[[Attrs], None]
"""Raises ValueError for numbers that are not of a distribution."""


def _signature(check: Check) -> Callable[[Sequence[Shape], Attrs], Signature]:
    """Cells numbered by i0, i1, …; of an operand, if there is one, each cell is read for its own."""

    def signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
        for what in ("seed", "stream"):
            if not is_int(attrs.get(what), 0, WORDS - 1):
                raise ValueError(f"{what}={quote(attrs.get(what))} must be an integer in [0, 2**32)")
        check(attrs)
        shape = shapes[0] if shapes else _extents(attrs["shape"])
        axes = number_axes(shape)
        return Signature(axes, (touched(axes),) * len(shapes), (touched(axes, extents=shape),))

    return signature


def _extents(shape: Sequence[int]) -> Shape:
    """What is drawn: at least a cell, and no more than a stream has numbers."""
    if isinstance(shape, int) or not all(n >= 1 for n in shape):
        raise ValueError(f"shape {quote(shape)} must hold integers >= 1, one for each axis")
    if math.prod(shape) > tuning.MAX_CELLS:
        raise ValueError(f"shape {quote(shape)} needs more than 2**60 numbers of one stream")
    return tuple(shape)


def _given_dtype(kinds: str) -> Callable[[Sequence[str], Attrs], tuple[str, ...]]:
    """The dtype that was asked for, of some kinds as NumPy has them; draws of truth values have no other."""

    def given(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
        made = np.dtype(named_dtype(attrs.get("dtype", "bool")))
        if made.kind not in kinds or (kinds == "f" and made.itemsize not in (4, 8)):
            wanted = {"f": "float32 or float64", "iu": "an integer dtype", "b": "bool"}[kinds]
            raise ValueError(f"dtype {quote(made.name)} must be {wanted}")
        return (made.name,)

    return given


Key = tuple[int, int | None]
"""A seed, and a stream or None for a new one."""

Finish = Callable[[Any, Any, Sequence[Any], Sequence[Any], Attrs], None]
"""``(xp, words, inputs, outputs, attrs)``: writes the output from the words of its cells, shaped (*block, each)."""


class Drawn(Struct, frozen=True):
    """The block of a generator: words of its cells by their numbers, and what is made of them.

    Parameters
    ----------
    finish : callable
    each : callable
        Attributes of the node -> words of a cell.
    is_uniform : bool
        Whether the attributes `low` and `high` say all of what is made of them.
    """

    finish: Finish
    each: Callable[[Attrs], int] = lambda attrs: 1
    is_uniform: bool = False

    def form(self, shard: Shard) -> RandomCells:
        """The block's work in words."""
        (box,), extents, attrs = shard.output_boxes, shard.signature.outputs[0].extents, shard.attrs
        assert extents is not None, "a generator's signature says where its tensor ends"

        def finish(xp: Any, words: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            self.finish(xp, words, inputs, outputs, attrs)

        key, ends = (attrs["seed"], attrs["stream"]), (attrs["low"], attrs["high"]) if self.is_uniform else None
        return RandomCells(key, box.start, box.shape, tuple(extents), self.each(attrs), finish, ends)

    def __call__(self, xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard, /) -> None:
        """Write a shard's cells."""
        form = self.form(shard)
        words = region_words(xp, form.start, form.shape, form.extents, form.key, form.each)
        form.finish(xp, words, inputs, outputs)


def _unit(xp: Any, words: Any, dtype: Any) -> Any:
    """Numbers in [0, 1) of one word each for float32 (24 bits), of two for float64 (53 bits)."""
    if np.dtype(dtype) == np.float32:
        return (words[..., 0] >> 8).astype(xp.float32) * xp.float32(2.0**-24)
    high, low = (words[..., 0] >> 5).astype(xp.float64), (words[..., 1] >> 6).astype(xp.float64)
    return (high * 2.0**26 + low) * 2.0**-53


def _each(dtype: Any) -> int:
    """Words of a number in [0, 1)."""
    return int(np.dtype(dtype).itemsize) // 4


def _uniform(xp: Any, words: Any, inputs: Sequence[Any], outputs: Sequence[Any], attrs: Attrs) -> None:
    (out,) = outputs
    unit = _unit(xp, words, out.dtype)
    low, high = (out.dtype.type(attrs[key]) for key in ("low", "high"))
    if (low, high) == (0, 1):
        out[...] = unit
    else:
        out[...] = low + (high - low) * unit
        xp.minimum(out, np.nextafter(high, low), out=out)  # which rounding may reach


def _normal(xp: Any, words: Any, inputs: Sequence[Any], outputs: Sequence[Any], attrs: Attrs) -> None:
    """Box and Muller: √(−2 ln(1 − u)) · cos(2π v) of two uniforms u and v for each cell."""
    (out,) = outputs
    n = _each(out.dtype)
    u, v = _unit(xp, words[..., :n], out.dtype), _unit(xp, words[..., n:], out.dtype)
    radius = xp.sqrt(-2 * xp.log(1 - u))
    out[...] = radius * xp.cos(out.dtype.type(2 * math.pi) * v)
    loc, scale = (out.dtype.type(attrs[key]) for key in ("loc", "scale"))
    if scale != 1:
        out *= scale
    if loc != 0:
        out += loc


def _bernoulli(xp: Any, words: Any, inputs: Sequence[Any], outputs: Sequence[Any], attrs: Attrs) -> None:
    outputs[0][...] = words[..., 0] < xp.uint64(round(attrs["p"] * WORDS))


def _integers(xp: Any, words: Any, inputs: Sequence[Any], outputs: Sequence[Any], attrs: Attrs) -> None:
    """low + ⌊n·w / 2⁶⁴⌋ of 64 random bits w: no value is off its share 1/n by more than 2⁻⁶⁴."""
    (out,) = outputs
    n = xp.uint64(attrs["high"] - attrs["low"])
    wide = words.astype(xp.uint64)
    drawn = (wide[..., 0] * n + ((wide[..., 1] * n) >> 32)) >> 32
    out[...] = drawn.astype(xp.int64) + attrs["low"]


def _dropout(xp: Any, words: Any, inputs: Sequence[Any], outputs: Sequence[Any], attrs: Attrs) -> None:
    (x,), (out,) = inputs, outputs
    rate = attrs["rate"]
    kept = words[..., 0] >= xp.uint64(round(rate * WORDS))
    xp.multiply(x, out.dtype.type(1 / (1 - rate)), out=out)
    xp.multiply(out, kept, out=out)


DROPOUT = Drawn(_dropout)


def _generator(
    drawn: Drawn, flop: float, kinds: str, check: Check
) -> Callable[[Callable[Arguments, Tensor]], Operator[Arguments, Tensor]]:
    """The decorator of a generator of dtypes of some kinds."""
    return operator(block=drawn, signature=_signature(check), flop=flop, dtype=_given_dtype(kinds), work=drawn.form)


def _check_uniform(attrs: Attrs) -> None:
    low, high, dtype = attrs["low"], attrs["high"], named_dtype(attrs["dtype"])
    with np.errstate(over="ignore"):
        ends = np.array([low, high], dtype if np.dtype(dtype).kind == "f" else "float64")
        wide = ends[1] - ends[0]
    if not (np.isfinite(ends).all() and np.isfinite(wide) and wide > 0):
        raise ValueError(f"low={low} and high={high} must be finite, low < high, and apart in {dtype}, not by infinity")


def _check_normal(attrs: Attrs) -> None:
    loc, scale = attrs["loc"], attrs["scale"]
    if not (math.isfinite(loc) and math.isfinite(scale) and scale >= 0):
        raise ValueError(f"loc={loc} and scale={scale} must be finite, and scale >= 0")


def _check_bernoulli(attrs: Attrs) -> None:
    if not 0 <= attrs["p"] <= 1:
        raise ValueError(f"p={attrs['p']} must be a probability, from 0 to 1")


def _check_integers(attrs: Attrs) -> None:
    low, high, dtype = attrs["low"], attrs["high"], named_dtype(attrs["dtype"])
    if not 1 <= high - low <= WORDS:
        given = f"low={quote(low)} and high={quote(high)}"
        raise ValueError(f"{given}: [low, high) holds {quote(high - low)} integers; give from 1 to 2**32")
    if np.dtype(dtype).kind in "iu" and not np.iinfo(dtype).min <= low <= high - 1 <= np.iinfo(dtype).max:
        raise ValueError(f"low={quote(low)} and high={quote(high)} do not fit {dtype}; give a wider dtype")


def _check_dropout(attrs: Attrs) -> None:
    if not 0 <= attrs["rate"] < 1:
        raise ValueError(f"rate={attrs['rate']} must be in [0, 1)")


# -- functions on graphs ---------------------------------------------------------------------------------


@_generator(Drawn(_uniform, lambda attrs: _each(attrs["dtype"]), True), 40.0, "f", _check_uniform)
def uniform(
    graph: Graph,
    shape: int | Sequence[int],
    low: float = 0.0,
    high: float = 1.0,
    *,
    seed: int,
    stream: int | None = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> Tensor:
    """Random numbers in [low, high), in steps of (high − low)·2⁻²⁴ for float32 and 2⁻⁵³ for float64.

    Parameters
    ----------
    graph : Graph
    shape : int or sequence of int
    low, high : float
        Finite; low < high.
    seed : int
        In [0, 2³²).
    stream : int, optional
        In [0, 2³²), by default one that no other generator of the graph with this seed has. Generators of one seed and
        one stream give the same numbers.
    dtype : "float32" or "float64"

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> from tapestry_plan.ops import uniform
    >>> g = Graph()
    >>> x, y = uniform(g, (4, 6), seed=7), uniform(g, (4, 6), seed=7)
    >>> [g.nodes[t.name].attrs["stream"] for t in (x, y)]
    [0, 1]

    References
    ----------
    Random123, philox4x32-10, and its u01 conversions.
    """
    return _make(uniform.op, graph, shape, dtype, (seed, stream), name, low=float(low), high=float(high))


@_generator(Drawn(_normal, lambda attrs: 2 * _each(attrs["dtype"])), 120.0, "f", _check_normal)
def normal(
    graph: Graph,
    shape: int | Sequence[int],
    loc: float = 0.0,
    scale: float = 1.0,
    *,
    seed: int,
    stream: int | None = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> Tensor:
    """Normally distributed numbers of mean `loc` and standard deviation `scale`; the others as for `uniform`.

    Two devices' logarithms and cosines may differ in the last places: so may these numbers.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.normal(g, (1000,), loc=5.0, seed=7), "y")
    >>> drawn = evaluate(g, {})["y"]
    >>> drawn.shape, bool(4.8 < drawn.mean() < 5.2), bool(0.9 < drawn.std() < 1.1)
    ((1000,), True, True)

    References
    ----------
    Box and Muller, "A note on the generation of random normal deviates", 1958.
    """
    return _make(normal.op, graph, shape, dtype, (seed, stream), name, loc=float(loc), scale=float(scale))


@_generator(Drawn(_bernoulli), 40.0, "b", _check_bernoulli)
def bernoulli(
    graph: Graph,
    shape: int | Sequence[int],
    p: float = 0.5,
    *,
    seed: int,
    stream: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Truth values, each true with probability p (to the nearest 2⁻³²); the others as for `uniform`.

    Parameters
    ----------
    graph : Graph
    shape : int or sequence of int
    p : float
        From 0 to 1.
    seed, stream : int
        As for `uniform`.

    Returns
    -------
    Tensor of truth values

    Raises
    ------
    ValueError
        For a p that is not a probability, a shape without cells, and seeds beyond 32 bits.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.bernoulli(g, (8,), 0.25, seed=7), "y")
    >>> evaluate(g, {})["y"].astype(int).tolist()
    [0, 0, 1, 1, 0, 0, 1, 0]
    """
    return _make(bernoulli.op, graph, shape, None, (seed, stream), name, p=float(p))


@_generator(Drawn(_integers, lambda attrs: 2), 80.0, "iu", _check_integers)
def integers(
    graph: Graph,
    shape: int | Sequence[int],
    low: int,
    high: int,
    *,
    seed: int,
    stream: int | None = None,
    dtype: Any = "int64",
    name: str | None = None,
) -> Tensor:
    """Integers in [low, high), at most 2³² different ones; the others as for `uniform`.

    Parameters
    ----------
    graph : Graph
    shape : int or sequence of int
    low, high : int
        From 1 to 2³² apart.
    seed, stream : int
        As for `uniform`.
    dtype : dtype of integers, or its name

    Returns
    -------
    Tensor of the dtype

    Raises
    ------
    ValueError
        For bounds that hold no integer or do not fit the dtype, a shape without cells, and seeds beyond 32 bits.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.integers(g, (2, 4), 0, 10, seed=7), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[9, 1, 4, 1], [0, 8, 3, 1]]
    """
    return _make(integers.op, graph, shape, dtype, (seed, stream), name, low=low, high=high)


_scaled = of_kinds("f", "what is kept is scaled by 1 / (1 - rate)")


@operator(
    block=DROPOUT,
    signature=_signature(_check_dropout),
    flop=42.0,
    dtype=_scaled,
    adjoint=adjoints.dropout,
    work=DROPOUT.form,
)
def dropout(x: Tensor, rate: float, *, seed: int, stream: int | None = None, name: str | None = None) -> Tensor:
    """x with each cell set to zero with probability `rate`, the others divided by 1 − rate.

    Parameters
    ----------
    x : Tensor of a floating dtype
    rate : float
        In [0, 1).
    seed, stream : int
        As for `uniform`.

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        If the rate is not in [0, 1), or x is not of a floating dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.dropout(g.constant("x", [1.0] * 8), 0.5, seed=7), "y")
    >>> evaluate(g, {})["y"].tolist()
    [2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 0.0, 2.0]

    References
    ----------
    ONNX Dropout, while training.
    """
    return add_op(dropout.op, x, name=name, rate=float(rate), **_key(x.graph, seed, stream))


def _make(
    op: Op, graph: Graph, shape: int | Sequence[int], dtype: Any, key: Key, name: str | None, **attrs: Any
) -> Tensor:
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    given = {"dtype": named_dtype(dtype, f"{op.name}: ")} if "dtype" in op.attributes else {}
    return cast(Tensor, graph.op(op, name=name, shape=extents, **given, **_key(graph, *key), **attrs))


def _key(graph: Graph, seed: int, stream: int | None) -> dict[str, int]:
    """The seed and the stream, a new one if none is given."""
    if stream is None:
        streams = [node.attrs["stream"] for node in graph.nodes.values() if node.attrs.get("seed") == seed]
        stream = max(streams, default=-1) + 1
    return {"seed": seed, "stream": stream}
