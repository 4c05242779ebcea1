"""Views of symbolic sizes: for which N do two views overlap, and in how many cells.

A view is kept as digits: each is an index variable with an extent, and an axis of the view is a few digits, the
outermost first. A row-major number in an axis of digits is N·i + j where the inner extent is N; isl's parameters
cannot express this, so that slices and reshapes are taken digit by digit, and `NonAffineSize` names what cannot.
The cells that a view reads are then a set of isl with parameters. It is counted without interpolation: in each
residue class of the symbols and of the cell its floors are linear, so that the cells are an interval, whose length
is written down.

sympy is imported when first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from importlib import import_module
from itertools import pairwise, product
from math import lcm, prod
from types import EllipsisType, ModuleType
from typing import Any

from tapestry_sets.limits import TooHard, check_pieces
from tapestry_sets.solvers import isl
from tapestry_sets.views import Allocation, View, allocate

Expr = Any
"""A sympy expression or an integer."""
Key = Any
"""An integer, a slice, Ellipsis or None; integers may be expressions."""
Terms = tuple[tuple[int, Expr], ...]
"""(digit, coefficient) pairs."""

Classes = Sequence[tuple[int, int]]
"""For each symbol (modulus, residue)."""
Linear = tuple[int, ...]
"""Σ slope·m + constant over the counts m of the symbols' classes: (*slopes, constant)."""

OPERATIONS = 2 * 10**6
"""How many of its basic operations isl may take for a question: a second or two."""
MAX_CLASSES = 20_000
"""Into how many residue classes a count may be split."""
MAX_TOP_CLASSES = 64
"""Into how many classes of the symbols' residues the whole of a count is split, rather than each of its factors."""
MAX_VALUES = 64
"""How many values of a digit may be looked at one by one."""


class NonAffineSize(ValueError):
    """What is asked needs an expression that is not affine in the symbols and indices; the message names it."""


def _sympy() -> ModuleType:
    try:
        return import_module("sympy")
    except ImportError as error:
        raise ImportError("symbolic sizes need the package sympy, which is not installed: pip install sympy") from error


# --------------------------------------------------------------------------------------------------- expressions


def _expr(value: object, what: str) -> Expr:
    """The value as a sympy expression with integer values."""
    sympy = _sympy()
    if isinstance(value, (bool, float)):
        raise TypeError(f"{what} must be an integer or a sympy expression, not {value!r}")
    try:
        e = sympy.expand(sympy.sympify(value, strict=True))
    except sympy.SympifyError:
        raise TypeError(f"{what} must be an integer or a sympy expression, not {value!r}") from None
    if not e.is_integer:
        raise ValueError(
            f"{what}: {e} is not known to be an integer; declare Symbol(..., integer=True) and write N = 4*M "
            "where N is to be divided by 4"
        )
    return e


@lru_cache(maxsize=1 << 12)
def _text(e: Expr) -> str:
    """An expression in isl's notation, with symbols by their place among sorted names; NonAffineSize if it has none."""
    sympy = _sympy()
    if e.is_Integer:
        return str(e)
    if e.is_Symbol:
        return f"p_{e.name.encode().hex()}"
    if e.is_Add:
        return " + ".join(f"({_text(a)})" for a in e.args)
    c, rest = e.as_coeff_Mul()
    if e.is_Mul and c.is_Integer and c != 1 and not rest.is_Mul:
        return f"{c}*({_text(rest)})"
    if isinstance(e, sympy.floor):
        top, bottom = sympy.fraction(sympy.together(e.args[0]))
        if bottom.is_Integer:
            return f"floor(({_text(sympy.expand(top))})/{bottom})"
    if isinstance(e, sympy.Mod) and e.args[1].is_Integer:
        return f"(({_text(e.args[0])}) mod {e.args[1]})"
    if isinstance(e, (sympy.Max, sympy.Min)):
        name = "max" if isinstance(e, sympy.Max) else "min"
        return reduce(lambda a, b: f"{name}({a}, {b})", map(_text, e.args))
    raise NonAffineSize(
        f"{e} is not affine in {', '.join(map(str, _symbols([e])))}; isl's parameters cannot express it"
    )


def _symbols(exprs: Iterable[Expr]) -> list[Expr]:
    found = sorted({s for e in exprs for s in getattr(e, "free_symbols", ())}, key=lambda s: str(s.name))
    for one, two in pairwise(found):
        if one.name == two.name:  # isl knows them by name
            raise ValueError(f"two symbols are called {one} but declared with different assumptions; use one")
    return found


def _context(symbols: Sequence[Expr]) -> str:
    """What is known of the symbols, as a formula."""
    lows = [(s, 1 if s.is_positive else 0) for s in symbols if s.is_nonnegative]
    return " and ".join(f"{_text(s)} >= {low}" for s, low in lows) or "true"


def _parameters(symbols: Sequence[Expr]) -> str:
    return f"[{', '.join(map(_text, symbols))}]"


@lru_cache(maxsize=1 << 12)
def _is_nonnegative(e: Expr) -> bool:
    """Whether an expression is proved to be >= 0 for all values of its symbols."""
    if e.is_nonnegative:
        return True
    top, bottom = _sympy().fraction(_sympy().together(e))
    if bottom != 1 and bottom.is_positive:
        return _is_nonnegative(_sympy().expand(top))
    symbols = _symbols([e])
    try:
        text = _text(e)
    except NonAffineSize:
        return all(_is_nonnegative(f) for f in e.args) if e.is_Mul else bool(e.factor().is_nonnegative)
    bad = isl.read_set(f"{_parameters(symbols)} -> {{ [] : {_context(symbols)} and {text} < 0 }}")
    return bool(bad.is_empty())


def _larger(a: Expr, b: Expr) -> Expr:
    if _is_nonnegative(_sympy().expand(a - b)):
        return a
    return b if _is_nonnegative(_sympy().expand(b - a)) else _sympy().Max(a, b)


def _smaller(a: Expr, b: Expr) -> Expr:
    if _is_nonnegative(_sympy().expand(b - a)):
        return a
    return b if _is_nonnegative(_sympy().expand(a - b)) else _sympy().Min(a, b)


def _quotient(a: Expr, b: Expr) -> Expr | None:
    """a/b where it is a polynomial with integer coefficients."""
    sympy = _sympy()
    if b == 0:
        return None
    top, bottom = sympy.fraction(sympy.cancel(a / b))
    return sympy.expand(top) if bottom == 1 else None


def _product(factors: Iterable[Expr]) -> Expr:
    return _sympy().expand(reduce(lambda a, b: a * b, factors, _sympy().Integer(1)))


# --------------------------------------------------------------------------------------------------------- rows


@dataclass(frozen=True, slots=True)
class _Row:
    """Σ coefficient·digit + constant: a coordinate, or a sum that must be 0, or 0 modulo `modulus`."""

    terms: Terms
    constant: Expr
    modulus: int = 0

    def coefficient(self, digit: int) -> Expr:
        return dict(self.terms).get(digit, 0)

    def put(self, digit: int, parts: Sequence[tuple[int, Expr]], start: Expr) -> _Row:
        """The row with digit = start + Σ factor·part."""
        c = self.coefficient(digit)
        if c == 0:
            return self
        expand = _sympy().expand
        rest = tuple((d, k) for d, k in self.terms if d != digit)
        more = tuple((d, expand(c * f)) for d, f in parts)
        return _Row((*rest, *more), expand(self.constant + c * start), self.modulus)


@dataclass(frozen=True, slots=True, eq=False)
class _Memory:
    """What a symbolic allocation stands for, and the allocations made of it for values of the symbols."""

    shape: tuple[Expr, ...]
    name: str
    made: dict[tuple[tuple[str, int], ...], Allocation] = field(default_factory=dict, repr=False)

    def at(self, values: Mapping[Any, int]) -> Allocation:
        """The allocation for given values of the symbols."""
        key = tuple(sorted((str(s), int(v)) for s, v in values.items()))
        if key not in self.made:
            self.made[key] = allocate(_put_values(self.shape, values), self.name)
        return self.made[key]


@dataclass(frozen=True, slots=True, eq=False)
class SymbolicView:
    """A view whose shape, starts and stops may hold sympy symbols; make one with `symbolic_allocate`.

    It has the words of `View` that keep its cells affine: subscripts, reshape, permute_dims, T, flip, squeeze,
    expand_dims, broadcast_to. Subscripts have NumPy's meaning for all values of the symbols: what reaches past an
    axis is clipped. Views are compared by identity.

    Attributes
    ----------
    shape : tuple of sympy expressions

    Examples
    --------
    >>> from sympy import Symbol
    >>> N = Symbol("N", integer=True, positive=True)
    >>> A = symbolic_allocate((9 * N,))
    >>> B = A.reshape(N, 3, 3)[:, :2, 1:]
    >>> B.shape, overlap_condition(B, A[0::9])
    ((N, 2, 2), False)
    """

    shape: tuple[Expr, ...]
    base: _Memory = field(repr=False)
    _extents: tuple[Expr, ...] = field(repr=False)
    _axes: tuple[tuple[int, ...] | None, ...] = field(repr=False)  # None: cells are known, but not by index
    _coordinates: tuple[_Row, ...] = field(repr=False)
    _conditions: tuple[_Row, ...] = field(repr=False)
    _words: tuple[tuple[str, Any], ...] = field(repr=False)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Expr:
        """Number of cells of the view, repeated ones included."""
        return _product(self.shape)

    def at(self, values: Mapping[Any, int]) -> View:
        """Return the view for given values of the symbols; views of one allocation share it for equal values.

        Examples
        --------
        >>> from sympy import Symbol
        >>> N = Symbol("N", integer=True, positive=True)
        >>> symbolic_allocate((N, N))[1:, ::2].at({N: 5}).shape
        (4, 3)
        """
        view: View = self.base.at(values)
        for word, argument in self._words:
            view = getattr(view, word)(_put_values(argument, values))
        return view

    # -- words ----------------------------------------------------------------------------------------

    __iter__ = None  # its extent is not known; without this, Python would count up to the first refused index

    def __getitem__(self, key: Key | tuple[Key, ...]) -> SymbolicView:
        """Return the view under integers, slices, Ellipsis and None; starts and stops may be expressions."""
        keys = _all_keys(key if isinstance(key, tuple) else (key,), self.rank)
        view, axis = self, 0
        for k in keys:
            if k is None:
                view = view._insert(axis)
            elif isinstance(k, slice):
                view = view._slice(axis, k)
            else:
                view = view._index(axis, _expr(k, f"index of axis {axis}"))
                continue
            axis += 1
        return view._said(self, "__getitem__", key)

    def reshape(self, *shape: Any) -> SymbolicView:
        """Return the same cells in row-major order under another shape; one extent may be -1.

        Raises
        ------
        ValueError
            If the sizes differ for some values of the symbols.
        NonAffineSize
            If the axes of the new shape do not split those of the old one.
        """
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        new = [_expr(n, "reshape: extent") for n in given]
        if -1 in new:
            rest = _quotient(self.size, _product(n for n in new if n != -1))
            new = [rest if n == -1 else n for n in new]
        if None in new or new.count(-1) or _product(new) != self.size:
            raise ValueError(f"reshape: cannot view {self.shape} [{self.size} cells] as {tuple(given)} for every size")
        return _reshaped(self, tuple(new))._said(self, "reshape", tuple(new))

    def permute_dims(self, axes: Sequence[int]) -> SymbolicView:
        """Return the view whose axis k is this one's axis axes[k]."""
        if sorted(axes) != list(range(self.rank)):
            raise ValueError(f"permute_dims: {tuple(axes)} is no order of the axes of {self.shape}")
        moved = replace(self, shape=tuple(self.shape[a] for a in axes), _axes=tuple(self._axes[a] for a in axes))
        return moved._said(self, "permute_dims", tuple(axes))

    @property
    def T(self) -> SymbolicView:
        """The view with its axes reversed."""
        return self.permute_dims(tuple(reversed(range(self.rank))))

    def flip(self, axis: int | Sequence[int] | None = None) -> SymbolicView:
        """Return the view with the given axes, by default all, reversed."""
        axes = range(self.rank) if axis is None else (axis,) if isinstance(axis, int) else axis
        view = self
        for a in axes:
            view = view._slice(self._axis(a, "flip"), slice(None, None, -1))
        return view._said(self, "flip", tuple(axes))

    def squeeze(self, axis: int | Sequence[int]) -> SymbolicView:
        """Return the view without the given axes, which have extent 1."""
        gone = [self._axis(a, "squeeze") for a in ((axis,) if isinstance(axis, int) else axis)]
        for a in gone:
            if self.shape[a] != 1:
                raise ValueError(f"squeeze: axis {a} of shape {self.shape} has extent {self.shape[a]}, not 1")
        kept = [a for a in range(self.rank) if a not in gone]
        view = replace(self, shape=tuple(self.shape[a] for a in kept), _axes=tuple(self._axes[a] for a in kept))
        return view._said(self, "squeeze", tuple(gone))

    def expand_dims(self, axis: int) -> SymbolicView:
        """Return the view with a new axis of extent 1 at a position of the result."""
        if not -self.rank - 1 <= axis <= self.rank:
            raise ValueError(f"expand_dims: axis {axis} is out of range for rank {self.rank + 1}")
        return self._insert(axis % (self.rank + 1))._said(self, "expand_dims", axis)

    def broadcast_to(self, shape: Sequence[Any]) -> SymbolicView:
        """Return the view with axes of extent 1, and new leading ones, repeated to a shape."""
        new = tuple(_expr(n, "broadcast_to: extent") for n in shape)
        extra = len(new) - self.rank
        view = self
        for _ in range(extra):
            view = view._insert(0)
        for a, (n, m) in enumerate(zip(view.shape, new, strict=False)):
            if extra < 0 or n not in (1, m) or not _is_nonnegative(m):
                raise ValueError(f"broadcast_to: shape {self.shape} cannot become {new}; extents must stay or be 1")
            if n != m:
                view = view._with_axis(a, (len(view._extents),), m, (m,))
        return view._said(self, "broadcast_to", new)

    # -- how they are done ----------------------------------------------------------------------------

    def _said(self, before: SymbolicView, word: str, argument: Any) -> SymbolicView:
        return replace(self, _words=(*before._words, (word, argument)))

    def _axis(self, axis: int, what: str) -> int:
        if not -self.rank <= axis < self.rank:
            raise ValueError(f"{what}: axis {axis} is out of range for shape {self.shape}")
        return axis % self.rank

    def _insert(self, axis: int) -> SymbolicView:
        shape = (*self.shape[:axis], _sympy().Integer(1), *self.shape[axis:])
        return replace(self, shape=shape, _axes=(*self._axes[:axis], (), *self._axes[axis:]))

    def _with_axis(
        self, axis: int, digits: tuple[int, ...] | None, extent: Expr, new: tuple[Expr, ...] = ()
    ) -> SymbolicView:
        """The view with other digits on one axis, `new` being the extents of new ones."""
        return replace(
            self,
            shape=(*self.shape[:axis], extent, *self.shape[axis + 1 :]),
            _axes=(*self._axes[:axis], digits, *self._axes[axis + 1 :]),
            _extents=(*self._extents, *new),
        )

    def _put(self, digit: int, extents: Sequence[Expr], factors: Sequence[Expr], start: Expr) -> SymbolicView:
        """The view with digit = start + Σ factor·(new digit); the old one is not used any more."""
        parts = [(len(self._extents) + k, f) for k, f in enumerate(factors)]
        return replace(
            self,
            _extents=(*self._extents, *extents),
            _coordinates=tuple(row.put(digit, parts, start) for row in self._coordinates),
            _conditions=tuple(row.put(digit, parts, start) for row in self._conditions),
        )

    def _rows(self) -> tuple[_Row, ...]:
        return (*self._coordinates, *self._conditions)

    def _digits(self, axis: int) -> tuple[SymbolicView, tuple[int, ...]]:
        """The axis's digits with those merged that count on where their neighbor ends."""
        digits = self._axes[axis]
        if digits is None:
            raise NonAffineSize(
                f"axis {axis} of {self.shape} counts cells of which isl cannot tell the index: "
                "it is a strided slice of a flattened array; slice before flattening"
            )
        view, digits = _merged(self, digits)
        return view._with_axis(axis, digits, view.shape[axis]), digits

    def _index(self, axis: int, i: Expr) -> SymbolicView:
        n = self.shape[axis]
        place = i if _is_nonnegative(i) else _sympy().expand(i + n)
        if not (_is_nonnegative(place) and _is_nonnegative(_sympy().expand(n - 1 - place))):
            raise IndexError(f"index {i} is out of bounds for axis {axis} with size {n} for some sizes")
        view = self._slice(axis, slice(place, place + 1))
        kept = [a for a in range(self.rank) if a != axis]  # the digit stays, with its one value
        return replace(view, shape=tuple(view.shape[a] for a in kept), _axes=tuple(view._axes[a] for a in kept))

    def _slice(self, axis: int, key: slice) -> SymbolicView:
        if key == slice(None):
            return self
        view, digits = self._digits(axis)
        start, step, count = _slice_of(key, view.shape[axis], axis)
        if not digits:
            return view._with_axis(axis, (len(view._extents),), count, (count,))
        if len(digits) == 1:
            new = len(view._extents)
            return view._put(digits[0], (count,), (step,), start)._with_axis(axis, (new,), count)
        if step < 0 and key.start is None and key.stop is None:
            return view._flip_digits(axis, digits)._slice(axis, slice(None, None, -step))
        return _slice_digits(view, axis, digits, key, (start, step, count))

    def _flip_digits(self, axis: int, digits: tuple[int, ...]) -> SymbolicView:
        view, new = self, range(len(self._extents), len(self._extents) + len(digits))
        for d in digits:
            n = view._extents[d]
            view = view._put(d, (n,), (-1,), n - 1)
        return view._with_axis(axis, tuple(new), self.shape[axis])


def symbolic_allocate(shape: Any, name: str = "") -> SymbolicView:
    """Return a variable whose extents may be affine expressions of sympy symbols.

    Parameters
    ----------
    shape : expression or sequence of expressions
        Symbols must be declared with ``integer=True``; extents must be >= 0 for all values that their symbols'
        assumptions (``positive``, ``nonnegative``) allow.
    name : str
        For messages and pictures.

    Raises
    ------
    NonAffineSize
        If an extent is not affine.
    ValueError
        If an extent may be negative, or no integer.

    Examples
    --------
    >>> from sympy import Symbol
    >>> N = Symbol("N", integer=True, positive=True)
    >>> A = symbolic_allocate((N, 2 * N))
    >>> A[1:, ::3].shape
    (N - 1, floor(2*N/3 + 2/3))

    References
    ----------
    isl's parameters; Tapestry's document on nested striding, where sizes are N.
    """
    extents = tuple(
        _expr(n, "symbolic_allocate: extent") for n in (shape if isinstance(shape, (tuple, list)) else (shape,))
    )
    for axis, n in enumerate(extents):
        _text(n)
        if not _is_nonnegative(n):
            raise ValueError(f"symbolic_allocate: extent {n} of axis {axis} may be negative; declare positive=True")
    axes = tuple((k,) for k in range(len(extents)))
    return SymbolicView(extents, _Memory(extents, name), extents, axes, _home(extents), (), ())


def _home(extents: Sequence[Expr]) -> tuple[_Row, ...]:
    """The coordinates in which cells are told apart: trailing axes of constant extent count on in one number."""
    rows: list[_Row] = []
    terms: list[tuple[int, Expr]] = []
    weight = _sympy().Integer(1)
    for k in range(len(extents) - 1, -1, -1):
        terms.append((k, weight))
        weight *= extents[k]
        if not extents[k].is_Integer or k == 0:
            rows.append(_Row(tuple(terms), _sympy().Integer(0)))
            terms, weight = [], _sympy().Integer(1)
    return tuple(reversed(rows))


def _put_values(x: Any, values: Mapping[Any, int]) -> Any:
    """An argument with integers for the symbols."""
    if isinstance(x, tuple):
        return tuple(_put_values(v, values) for v in x)
    if isinstance(x, slice):
        return slice(*(_put_values(v, values) for v in (x.start, x.stop, x.step)))
    if x is None or x is Ellipsis:
        return x
    e = _sympy().sympify(x).subs(values)
    if not e.is_Integer:
        raise ValueError(f"at: {x} is {e}; give integers for {', '.join(map(str, _symbols([e]))) or 'its symbols'}")
    return int(e)


# ----------------------------------------------------------------------------------------------------- subscripts


def _all_keys(keys: tuple[Key, ...], rank: int) -> list[int | slice | None]:
    """The keys with Ellipsis written out."""
    used = sum(k is not None and k is not Ellipsis for k in keys)
    if used > rank or sum(k is Ellipsis for k in keys) > 1:
        raise IndexError(f"subscript {keys} has {used} indices for rank {rank}, and may have one Ellipsis")
    out: list[int | slice | None] = []
    for k in keys:
        out += [slice(None)] * (rank - used) if isinstance(k, EllipsisType) else [k]
    return out


def _slice_of(key: slice, n: Expr, axis: int) -> tuple[Expr, int, Expr]:
    """(start, step, count) of a slice of an axis, clipped as Python clips."""
    sympy = _sympy()
    step = 1 if key.step is None else key.step
    if not getattr(step, "is_Integer", isinstance(step, int)) or step == 0:
        raise NonAffineSize(f"slice of axis {axis}: step {step} must be an integer other than 0")
    step = int(step)
    low, high = (sympy.Integer(0), n) if step > 0 else (sympy.Integer(-1), n - 1)

    def place(value: object, default: Expr) -> Expr:
        if value is None:
            return default
        v = _expr(value, f"slice of axis {axis}")
        if not _is_nonnegative(v):
            if not _is_nonnegative(sympy.expand(-v - 1)):
                raise ValueError(f"slice of axis {axis}: {v} may be negative or not, which mean different places")
            v = sympy.expand(v + n)
        return _smaller(_larger(v, low), high)

    start, stop = place(key.start, low if step > 0 else high), place(key.stop, high if step > 0 else low)
    span = sympy.expand((stop - start) if step > 0 else (start - stop))
    many = sympy.floor((span + abs(step) - 1) / sympy.Integer(abs(step))) if abs(step) > 1 else span
    return start, step, _larger(many, sympy.Integer(0))


def _slice_digits(
    view: SymbolicView, axis: int, digits: tuple[int, ...], key: slice, what: tuple[Expr, int, Expr]
) -> SymbolicView:
    """A slice of an axis of several digits, where that is affine."""
    start, step, count = what
    extents = [view._extents[d] for d in digits]
    inner = _product(extents[1:])
    terms = tuple((d, _product(extents[k + 1 :])) for k, d in enumerate(digits))
    new = len(view._extents)
    if step == 1 and count == view.shape[axis]:
        return view
    if inner.is_Integer:  # i·n + j with a constant n: one index in place of all
        tie = _Row((*terms, (new, _sympy().Integer(-step))), -start)
        tied = view._with_axis(axis, (new,), count, (count,))
        return replace(tied, _conditions=(*view._conditions, tie))
    first, many = _quotient(start, inner), _quotient(count, inner)
    if step == 1 and first is not None and many is not None:
        return view._put(digits[0], (many,), (1,), first)._with_axis(axis, (new, *digits[1:]), count)
    if key.stop is None and 0 <= (place := _constant(key.start)) < step:
        turns = _quotient(extents[-1], _sympy().Integer(step))
        if turns is not None:
            many = _product((*extents[:-1], turns))
            return view._put(digits[-1], (turns,), (step,), place)._with_axis(axis, (*digits[:-1], new), many)
        # a residue class of the row-major number, whatever the symbols are; the index in it is lost
        sealed = view._with_axis(axis, None, count)
        return replace(sealed, _conditions=(*view._conditions, _Row(terms, _sympy().Integer(-place), step)))
    number = " + ".join(f"({n})*i{k}" for k, (_, n) in enumerate(terms))
    raise NonAffineSize(
        f"slice of axis {axis} of {view.shape}: the index {number} is not affine; only whole multiples of {inner}, "
        "and steps from a start below the step to the end, can be sliced"
    )


def _constant(value: object) -> int:
    """The integer that a slice starts at, -1 if that is no constant."""
    e = _sympy().sympify(0 if value is None else value)
    return int(e) if e.is_Integer else -1


# -------------------------------------------------------------------------------------------------------- reshape


def _merged(view: SymbolicView, digits: Sequence[int]) -> tuple[SymbolicView, tuple[int, ...]]:
    """The digits with neighbors joined where the outer one counts on where the inner one ends."""
    out: list[int] = []
    for d in digits:
        if view._extents[d] == 1:
            continue
        while out and _counts_on(view, out[-1], d):
            outer = out.pop()
            both = _product((view._extents[outer], view._extents[d]))
            new = len(view._extents)
            view = view._put(outer, (), (), 0)._put(d, (both,), (1,), 0)
            d = new
        out.append(d)
    return view, tuple(out)


def _counts_on(view: SymbolicView, outer: int, inner: int) -> bool:
    expand, n = _sympy().expand, view._extents[inner]
    pairs = [(row.coefficient(outer), row.coefficient(inner)) for row in view._rows()]
    return any(b != 0 for _, b in pairs) and all(expand(a - b * n) == 0 for a, b in pairs)


def _reshaped(view: SymbolicView, new: tuple[Expr, ...]) -> SymbolicView:
    if view.size == 0:
        more = tuple(range(len(view._extents), len(view._extents) + len(new)))
        return replace(view, shape=new, _axes=tuple((d,) for d in more), _extents=(*view._extents, *new))
    if None in view._axes and any(n != 1 for n in view.shape if n != view.size):
        axis = view._axes.index(None)
        raise NonAffineSize(f"reshape of {view.shape}: axis {axis} is a strided slice of a flattened array")
    if None in view._axes:
        return _only_ones_moved(view, new)
    pool = [d for digits in view._axes for d in digits or ()]
    view, merged = _merged(view, pool)
    axes: list[tuple[int, ...]] = []
    for digits, extents in reversed(list(_groups(view, merged, new))):
        try:
            view, found = _split(view, digits, extents)
        except NonAffineSize:
            view, found = _tied(view, digits, extents)
        axes += found
    return replace(view, shape=new, _axes=tuple(axes))


def _only_ones_moved(view: SymbolicView, new: tuple[Expr, ...]) -> SymbolicView:
    if [n for n in new if n != 1] != [n for n in view.shape if n != 1]:
        raise NonAffineSize(f"reshape of {view.shape}: a strided slice of a flattened array cannot be split")
    return replace(view, shape=new, _axes=tuple(() if n == 1 else None for n in new))


def _groups(
    view: SymbolicView, digits: tuple[int, ...], extents: tuple[Expr, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[Expr, ...]]]:
    """Digits and extents in groups of equal size, from the innermost outwards, each as small as may be."""
    symbols = _symbols([*view._extents, *extents])
    large = {s: 10**6 + 7 * k for k, s in enumerate(symbols)}
    i, j = len(digits), len(extents)
    a, b = i, j
    while a or b:
        left, right = _product(view._extents[d] for d in digits[a:i]), _product(extents[b:j])
        if left == right and (a < i or b < j):
            yield digits[a:i], extents[b:j]
            i, j = a, b
        if b and (not a or (left - right).subs(large) >= 0):
            b -= 1
        elif a:
            a -= 1
    if i or j:
        yield digits[:i], extents[:j]


def _split(
    view: SymbolicView, digits: Sequence[int], extents: Sequence[Expr]
) -> tuple[SymbolicView, list[tuple[int, ...]]]:
    """One axis for each extent, splitting a digit where an axis ends within it."""
    left = list(digits)
    axes: list[tuple[int, ...]] = []
    for n in reversed(extents):
        axis: list[int] = []
        rest = n
        while rest != 1:
            if not left:
                raise NonAffineSize(f"reshape of {view.shape}: no digits are left for extent {n}")
            d = left.pop()
            own = view._extents[d]
            more = _quotient(rest, own)
            if more is not None:
                axis.append(d)
                rest = more
                continue
            inner = _sympy().gcd(own, rest)
            outer, more = _quotient(own, inner), _quotient(rest, inner)
            if inner == 1 or outer is None or more is None or not _is_nonnegative(inner):
                raise NonAffineSize(f"reshape of {view.shape}: an axis of extent {n} ends within one of {own}")
            view = view._put(d, (outer, inner), (inner, 1), 0)
            left.append(len(view._extents) - 2)
            axis.append(len(view._extents) - 1)
            rest = more
        axes.append(tuple(reversed(axis)))
    if left:
        raise NonAffineSize(f"reshape of {view.shape}: digits are left")
    return view, axes[::-1]


def _tied(
    view: SymbolicView, digits: Sequence[int], extents: Sequence[Expr]
) -> tuple[SymbolicView, list[tuple[int, ...]]]:
    """New digits whose row-major number is that of the old ones, where all but the outermost extents are constant."""
    old = [view._extents[d] for d in digits]
    if not all(n.is_Integer for n in (*old[1:], *extents[1:])):
        raise NonAffineSize(
            f"reshape of {view.shape}: {tuple(old)} to {tuple(extents)} needs a product of a symbol and an index; "
            "give axes that split one by one"
        )
    new = range(len(view._extents), len(view._extents) + len(extents))
    terms = [(d, _product(old[k + 1 :])) for k, d in enumerate(digits)]
    terms += [(d, -_product(extents[k + 1 :])) for k, d in enumerate(new)]
    tied = replace(
        view,
        _extents=(*view._extents, *extents),
        _conditions=(*view._conditions, _Row(tuple(terms), _sympy().Integer(0))),
    )
    return tied, [(d,) for d in new]


# ------------------------------------------------------------------------------------------------- cells as sets


def _cells(view: SymbolicView) -> Any:
    """The cells that a view reads in its allocation's coordinates, as an islpy.Set with the symbols as parameters."""
    idle = [view._extents[d] for axis in view._axes for d in axis or () if not _is_used(view, d)]
    symbols = _symbols_of(view)
    context = [_context(symbols), *(f"{_text(n)} >= 1" for n in idle if not n.is_positive)]
    view = _without_symbolic_weights(view)
    few = [d for d in _symbolic_digits(view) if view._extents[d].is_Integer]
    values = [range(int(view._extents[d])) for d in few]
    check_pieces(prod(map(len, values)), f"rows of {view.shape}, whose length is a symbol", "take fewer rows")
    parts = []
    for chosen in product(*values):  # i·N + j for each i
        part = reduce(lambda v, put: v._put(put[0], (), (), put[1]), zip(few, chosen, strict=True), view)
        parts.append(_formula(part, context))
    place = ", ".join(f"x{k}" for k in range(len(view._coordinates)))
    formula = " or ".join(f"({part})" for part in parts) or "false"
    return isl.read_set(f"{_parameters(symbols)} -> {{ [{place}] : {formula} }}")


def _formula(view: SymbolicView, context: Sequence[str]) -> str:
    """What puts x0, x1, … among the cells of a view."""
    used = sorted({d for row in view._rows() for d, c in row.terms if c != 0})
    parts = [*context, *(f"0 <= t{d} < {_text(view._extents[d])}" for d in used)]
    parts += [f"x{k} = {_sum(row)}" for k, row in enumerate(view._coordinates)]
    parts += [f"{_sum(row)} = 0" if not row.modulus else _residue(row) for row in view._conditions]
    bound = f"exists {', '.join(f't{d}' for d in used)} : " if used else ""
    return bound + " and ".join(f"({part})" for part in parts)


def _is_used(view: SymbolicView, digit: int) -> bool:
    return any(row.coefficient(digit) != 0 for row in view._rows())


def _symbolic_digits(view: SymbolicView) -> list[int]:
    """The digits with a weight that is no constant."""
    rows = [row for row in view._rows() if not row.modulus]
    return sorted({d for row in rows for d, c in row.terms if not _sympy().sympify(c).is_Integer})


def _parts_of(row: _Row) -> list[Expr]:
    return [row.constant, *(c for _, c in row.terms)]


def _sum(row: _Row) -> str:
    return " + ".join([f"({_text(row.constant)})", *(f"{_weight(c)}*t{d}" for d, c in row.terms if c != 0)])


def _weight(c: Expr) -> str:
    if not _sympy().sympify(c).is_Integer:
        raise NonAffineSize(f"({c})*i is not affine: a symbol times an index, which isl's parameters cannot express")
    return str(c)


def _residue(row: _Row) -> str:
    """The row is 0 modulo its modulus, for each residue of the symbols in its coefficients."""
    symbols = _symbols(_parts_of(row))
    q = row.modulus
    check_pieces(q ** len(symbols), f"residues modulo {q} of {symbols}", "take smaller steps")
    cases = []
    for residues in product(range(q), repeat=len(symbols)):
        values = dict(zip(symbols, residues, strict=True))
        terms = [f"{int(_sympy().sympify(c).subs(values)) % q}*t{d}" for d, c in row.terms]
        total = " + ".join([str(int(_sympy().sympify(row.constant).subs(values)) % q), *terms])
        where = [f"{_text(s)} mod {q} = {r}" for s, r in values.items()]
        cases.append(" and ".join([*where, f"({total}) mod {q} = 0"]))
    return " or ".join(f"({case})" for case in cases)


def _without_symbolic_weights(view: SymbolicView) -> SymbolicView:
    """The same cells with digits joined, in whatever order, where one counts on where another ends."""
    for d in {d for row in view._rows() for d, _ in row.terms}:
        weights = [row.coefficient(d) for row in view._coordinates]
        own = not any(row.coefficient(d) for row in view._conditions)
        if own and any(w != 0 for w in weights) and all(_is_nonnegative(_sympy().expand(-w)) for w in weights):
            n = view._extents[d]
            view = view._put(d, (n,), (-1,), n - 1)  # counts down: the same cells counted up
    while True:
        digits = {d for row in view._rows() for d, c in row.terms if c != 0}
        symbolic = _symbolic_digits(view)
        pair = next(((a, b) for a in symbolic for b in digits if a != b and _counts_on(view, a, b)), None)
        if pair is None:
            return view
        axes = tuple(None for _ in view._axes)
        view = _merged(replace(view, _axes=axes), pair)[0]


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
    >>> N = Symbol("N", integer=True, positive=True)
    >>> A = symbolic_allocate((N,))
    >>> overlap_condition(A[2::5], A[::3])
    N >= 13
    >>> overlap_condition(A[::2], A[::-2])
    Eq(Mod(N, 2), 1)
    """
    _check_views("overlap_condition", a, b)
    if a.base is not b.base:
        return _sympy().false
    return _ask(lambda: _boolean(_cells(a) & _cells(b), _symbols_of(a, b)), "overlap_condition")


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
        If the cells are no product of sets of one dimension, or there are too many residue classes.

    Examples
    --------
    >>> from sympy import Symbol
    >>> N = Symbol("N", integer=True, positive=True)
    >>> A = symbolic_allocate((3 * N, 3 * N))
    >>> overlap_count(A[::3], A[:, ::3])
    N**2
    """
    _check_views("overlap_count", a, b)
    if a.base is not b.base:
        return _sympy().Integer(0)
    return _ask(lambda: _count(_cells(a) & _cells(b), _symbols_of(a, b)), "overlap_count")


def distinct_count(view: SymbolicView) -> Any:
    """Return how many different cells a view reads; see `overlap_count`.

    Examples
    --------
    >>> from sympy import Symbol
    >>> N = Symbol("N", integer=True, positive=True)
    >>> distinct_count(symbolic_allocate((N, 4))[:, :2].broadcast_to((7, N, 2)))
    2*N
    """
    _check_views("distinct_count", view)
    return overlap_count(view, view)


def _check_views(verb: str, *views: object) -> None:
    for at, view in enumerate(views):
        if not isinstance(view, SymbolicView):
            raise TypeError(
                f"{verb}: argument {at} must be a SymbolicView, not {view!r} of type {type(view).__name__}; make one "
                "by symbolic_allocate, or ask overlap() about numeric views"
            )


def _ask(question: Callable[[], Any], what: str) -> Any:
    refusal = TooHard(f"{what}: isl needs more than {OPERATIONS} operations; take fewer words or smaller steps")
    return isl.bounded(question, refusal, OPERATIONS)


def _symbols_of(*views: SymbolicView) -> list[Expr]:
    every = [e for v in views for row in v._rows() for e in _parts_of(row)]
    return _symbols([*every, *(n for v in views for n in (*v._extents, *v.base.shape))])


def _in_order(points: Any, symbols: Sequence[Expr]) -> Any:
    """The set with all the symbols as its parameters, in their order."""
    return points.align_params(isl.read_set(f"{_parameters(symbols)} -> {{ [] }}").get_space())


def _boolean(points: Any, symbols: Sequence[Expr]) -> Any:
    """The parameters for which a set is not empty."""
    sympy = _sympy()
    given = isl.read_set(f"{_parameters(symbols)} -> {{ : {_context(symbols)} }}")
    found = _in_order(points.params().coalesce().gist(given), symbols).compute_divs()
    parts = [isl.conjunction_of(part) for part in found.get_basic_sets()]
    moduli = [lcm(*(isl.floor_moves(part.divs, k)[0] for part in parts)) for k in range(len(symbols))]
    if prod(moduli) > MAX_TOP_CLASSES:
        return sympy.Or(*(_with_remainders(part, symbols) for part in parts))
    cases: dict[Any, list[Any]] = {}
    for residues in product(*map(range, moduli)):
        classes = tuple(zip(moduli, residues, strict=True))
        here = sympy.Or(*(_in_classes(part, symbols, classes) for part in parts))
        cases.setdefault(here, []).append(_residues(symbols, classes))
    if len(cases) == 1:
        return next(iter(cases))
    return sympy.Or(*(sympy.And(here, sympy.Or(*where)) for here, where in cases.items()))


def _in_classes(part: isl.Conjunction, symbols: Sequence[Expr], classes: Classes) -> Any:
    """A conjunction over the symbols where these are s + K·m for classes (K, s): its floors are linear in m there."""
    sympy = _sympy()
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
    equal = [_tidy(sympy.Eq(_in_symbols(form(row), steps), 0)) for row in part.zero]
    return sympy.And(*equal, *(_tidy(_in_symbols(f, steps) >= 0) for f in at_least))


def _with_remainders(part: isl.Conjunction, symbols: Sequence[Expr]) -> Any:
    """A conjunction over the symbols with its floors written as remainders."""
    sympy = _sympy()
    floors: list[Expr] = []
    for row in part.divs:
        top = _linear(row, symbols, floors)
        floors.append((top - sympy.Mod(top, row.divisor)) / row.divisor)
    conditions = [sympy.expand(_linear(row, symbols, floors)) >= 0 for row in part.at_least_zero]
    conditions += [sympy.Eq(sympy.expand(_linear(row, symbols, floors)), 0) for row in part.zero]
    return sympy.And(*map(_tidy, conditions))


def _linear(row: isl.Row, symbols: Sequence[Expr], floors: Sequence[Expr]) -> Expr:
    terms = [c * s for c, s in zip(row.axes, symbols, strict=True)]
    return sum(terms + [c * d for c, d in zip(row.divs, floors, strict=False)], _sympy().Integer(row.constant))


def _tidy(relation: Any) -> Any:
    """A relation with one symbol alone on its left, where it has one."""
    sympy = _sympy()
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
    points = _in_order(points, symbols)
    if points.is_empty():
        return _sympy().Integer(0)
    parts = [isl.conjunction_of(part) for part in isl.disjoint_parts(points)]
    moduli = [lcm(*(isl.floor_moves(part.divs, k)[0] for part in parts)) for k in range(len(symbols))]
    if prod(moduli) > MAX_TOP_CLASSES:
        moduli = [1] * len(symbols)  # each factor is then split into its own
    cases: dict[Any, list[Any]] = {}
    for residues in product(*map(range, moduli)):
        classes = tuple(zip(moduli, residues, strict=True))
        where = " and ".join(f"{_text(s)} mod {k} = {r}" for s, (k, r) in zip(symbols, classes, strict=True) if k > 1)
        here = isl.read_set(f"{_parameters(symbols)} -> {{ : {where or 'true'} }}")
        total = _count_points(points.intersect_params(here), symbols, classes)
        cases.setdefault(total, []).append(_residues(symbols, classes))
    return _piecewise([(total, _sympy().Or(*where)) for total, where in cases.items()])


def _residues(symbols: Sequence[Expr], classes: Classes) -> Any:
    """The condition that the symbols are in their classes."""
    sympy = _sympy()
    return sympy.And(*(sympy.Eq(sympy.Mod(s, k), r) for s, (k, r) in zip(symbols, classes, strict=True) if k > 1))


def _piecewise(cases: Sequence[tuple[Any, Any]]) -> Any:
    """The value of whichever case holds; they exclude each other and leave nothing out."""
    if len(cases) == 1:
        return cases[0][0]
    return _sympy().Piecewise(*[case for case in cases if case[0] != 0], (0, True))


def _count_points(points: Any, symbols: Sequence[Expr], classes: Classes, apart: frozenset[int] = frozenset()) -> Any:
    """A product over the axes, or a sum over parts that are products; `apart` names axes split by residues before."""
    if points.is_empty():
        return _sympy().Integer(0)
    axes = [isl.along(points, axis) for axis in range(int(points.n_dim()))]
    if isl.set_product(axes).is_equal(points):
        return _product(_count_line(axis, symbols, classes) for axis in axes)
    parts = [part.to_set() for part in isl.disjoint_parts(points)]
    if len(parts) == 1:
        parts, apart = _more_parts(points, len(symbols), apart)
    return sum((_count_points(part, symbols, classes, apart) for part in parts), _sympy().Integer(0))


def _more_parts(points: Any, symbols: int, apart: frozenset[int]) -> tuple[list[Any], frozenset[int]]:
    """The points by the values of an axis that has few, or by its residues, on which other axes may depend."""
    few = isl.few_values(points, MAX_VALUES)
    if few is not None:
        return [isl.with_coordinate(points, few[0], v) for v in few[1]], apart
    for axis in range(int(points.n_dim())):
        period = lcm(
            *(isl.floor_moves(isl.conjunction_of(p).divs, symbols + axis)[0] for p in isl.disjoint_parts(points))
        )
        if axis not in apart and 1 < period <= MAX_VALUES:
            return [isl.with_residue(points, axis, period, r) for r in range(period)], apart | {axis}
    raise TooHard(f"counting {points}: its axes depend on each other, and none has few values; ask the condition")


def _count_line(points: Any, symbols: Sequence[Expr], classes: Classes) -> Any:
    parts = isl.disjoint_parts(_in_order(points, symbols).coalesce())
    return sum((_count_part(isl.conjunction_of(part), symbols, classes) for part in parts), _sympy().Integer(0))


def _count_part(part: isl.Conjunction, symbols: Sequence[Expr], known: Classes) -> Any:
    """The number of elements of one conjunction, residue class by residue class.

    With s + K·m for the symbols and r + L·q for the element, where steps of K and L move every floor by
    integers, each row is linear in m and q, so that q runs from a ceiling to a floor.
    """
    axis = len(symbols)
    moves = [isl.floor_moves(part.divs, k) for k in range(axis + 1)]
    whole = [lcm(period, k) for (period, _), (k, _) in zip(moves, known, strict=False)]
    period = moves[axis][0]
    if prod(whole) * period > MAX_CLASSES:
        raise TooHard(f"counting needs the residues modulo {(*whole, period)}, more than {MAX_CLASSES} classes")
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
        steps = [(s - r) / _sympy().Integer(k) for s, r, k in zip(symbols, residues, whole, strict=True)]
        least = [_least(s, r, k) for s, r, k in zip(symbols, residues, whole, strict=True)]
        total = sum((n * _length(bounds, steps, least) for bounds, n in groups.items()), _sympy().Integer(0))
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
    sympy = _sympy()
    lows, highs, conditions = [], [], []
    for *slopes, by, constant in rows:
        rest = (*slopes, constant)
        if by:  # by·q + rest >= 0
            bound = _floor_of(rest, abs(by), steps)
            lows.append(_minus(bound)) if by > 0 else highs.append(bound)
        elif not _holds(rest, least):
            conditions.append(_tidy(_in_symbols(rest, steps) >= 0))
    lows, highs = _extremes(lows, least, -1), _extremes(highs, least, 1)
    gap = None
    if len(lows) == len(highs) == 1 and isinstance(lows[0], tuple) and isinstance(highs[0], tuple):
        gap = tuple(h - low for h, low in zip(highs[0], lows[0], strict=True))
        gap = (*gap[:-1], gap[-1] + 1)
    low, high = (
        reduce(choose, [_in_symbols(x, steps) for x in bounds])
        for choose, bounds in ((_larger_of, lows), (_smaller_of, highs))
    )
    length = sympy.expand(high - low + 1)
    if gap is None or not _holds(gap, least):
        length = _larger_of(length, sympy.Integer(0))
    return sympy.Piecewise((length, sympy.And(*conditions)), (0, True)) if conditions else length


def _floor_of(rest: Linear, by: int, steps: Sequence[Expr]) -> Linear | Expr:
    """floor(rest/by), as a linear form where it is one."""
    if all(c % by == 0 for c in rest[:-1]):
        return tuple(c // by for c in rest)
    return _sympy().floor(_in_symbols(rest, steps) / by)


def _minus(bound: Linear | Expr) -> Linear | Expr:
    return tuple(-c for c in bound) if isinstance(bound, tuple) else -bound


def _in_symbols(form: Linear | Expr, steps: Sequence[Expr]) -> Expr:
    if not isinstance(form, tuple):
        return form
    return _sympy().expand(sum((c * m for c, m in zip(form, steps, strict=False)), _sympy().Integer(form[-1])))


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


def _larger_of(a: Expr, b: Expr) -> Expr:
    return _try(_larger, a, b, _sympy().Max)


def _smaller_of(a: Expr, b: Expr) -> Expr:
    return _try(_smaller, a, b, _sympy().Min)


def _try(prove: Callable[[Expr, Expr], Expr], a: Expr, b: Expr, otherwise: Callable[[Expr, Expr], Expr]) -> Expr:
    """What can be proved to be larger or smaller, else the undecided expression."""
    try:
        return prove(a, b)
    except NonAffineSize:
        return otherwise(a, b)
