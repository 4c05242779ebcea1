"""Views of symbolic sizes: the cells that are read of memory whose extents are expressions of symbols.

A view is kept as digits: each is an index variable with an extent, and an axis of the view is a few digits, the
outermost first. A row-major number in an axis of digits is N·i + j where the inner extent is N; isl's parameters
cannot express this, so that slices and reshapes are taken digit by digit, and `NonAffineSize` names what cannot::

    A of (N, 3)       A.reshape(3·N)          A.reshape(3·N)[::3]
    digits i | j      one axis of two: i j    one axis of one: i, with j = 0

The cells that a view reads are then a set of isl with parameters; `symbolic_counts` asks about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from math import prod
from types import EllipsisType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tapestry_sets.interop import symbolic_expressions as sizes
from tapestry_sets.interop.symbolic_expressions import Expr, NonAffineSize, load_sympy
from tapestry_sets.limits import as_int, as_ints, as_items, check_pieces, check_type, hide_fields, quote
from tapestry_sets.solvers import isl
from tapestry_sets.views import Allocation, View, allocate, axes_of, axis_of, axis_tuple

CacheKey = Any
"""An integer, a slice, Ellipsis or None; integers may be sizes."""
Coefficients = tuple[tuple[int, Any], ...]
"""(digit, coefficient) pairs."""


# --------------------------------------------------------------------------------------------------------- rows


class SymbolicRow(Struct, frozen=True):
    """Σ coefficient·digit + constant: a coordinate, or a sum that must be 0, or 0 modulo `modulus`."""

    terms: Coefficients
    constant: Expr
    modulus: int = 0

    def coefficient(self, digit: int) -> Expr:
        return dict(self.terms).get(digit, 0)

    def put(self, digit: int, parts: Sequence[tuple[int, Expr]], start: Expr) -> SymbolicRow:
        """The row with digit = start + Σ factor·part."""
        c = self.coefficient(digit)
        if c == 0:
            return self
        expand = load_sympy().expand
        rest = tuple((d, k) for d, k in self.terms if d != digit)
        more = tuple((d, expand(c * f)) for d, f in parts)
        return SymbolicRow((*rest, *more), expand(self.constant + c * start), self.modulus)


class SymbolicMemory(Struct, frozen=True, eq=False):
    """The fields of a symbolic allocation, and the allocations made of it for values of the symbols."""

    shape: tuple[Expr, ...]
    name: str
    _made: dict[tuple[tuple[str, int], ...], Allocation] = field(default_factory=dict)

    __repr__ = hide_fields("_made")

    def at(self, values: Mapping[Any, int]) -> Allocation:
        """The allocation for given values of the symbols."""
        given = check_type(values, Mapping, "at: values", "such as {N: 5}")
        key = tuple(sorted([(str(s), as_int(v, f"at: values: {s}")) for s, v in given.items()]))
        if key not in self._made:
            self._made[key] = allocate(_put_values(self.shape, values), self.name)
        return self._made[key]


class SymbolicView(Struct, frozen=True, eq=False):
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
    >>> from tapestry_sets import overlap_condition
    >>> N = Symbol("N", integer=True, positive=True)
    >>> A = symbolic_allocate((9 * N,))
    >>> B = A.reshape(N, 3, 3)[:, :2, 1:]
    >>> B.shape, overlap_condition(B, A[0::9])
    ((N, 2, 2), False)
    """

    shape: tuple[Expr, ...]
    base: SymbolicMemory
    _extents: tuple[Expr, ...]
    _axes: tuple[tuple[int, ...] | None, ...]  # None: cells are known, but not by index
    _coordinates: tuple[SymbolicRow, ...]
    _conditions: tuple[SymbolicRow, ...]
    _words: tuple[tuple[str, tuple[Any, ...]], ...]

    __repr__ = hide_fields("base", "_extents", "_axes", "_coordinates", "_conditions", "_words")

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Expr:
        """Number of cells of the view, repeated ones included."""
        return sizes.multiply(self.shape)

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
        for word, arguments in self._words:
            view = getattr(view, word)(*_put_values(arguments, values))
        return view

    def to_isl(self) -> dict[SymbolicMemory, Any]:
        """Return the map of isl from the view's indices to its memory's cells, whose parameters are the symbols.

        Raises
        ------
        NonAffineSize
            If the index of a cell is not known, or not affine in the symbols and indices.

        Examples
        --------
        >>> from sympy import Symbol
        >>> from tapestry_sets import from_isl, to_isl
        >>> N = Symbol("N", integer=True, positive=True)
        >>> A = symbolic_allocate((N, N))
        >>> maps = to_isl(A[1:, ::2].T)
        >>> maps[A.base]
        Map("[N] -> { [x0, x1] -> [y0 = 1 + x1, y1 = 2x0] : x0 >= 0 and 2x0 < N and 0 <= x1 <= -2 + N }")
        >>> from_isl(maps).at({N: 5}) == A[1:, ::2].T.at({N: 5})
        True
        """
        return {self.base: read_symbolic_map(self)}

    # -- words ----------------------------------------------------------------------------------------

    __iter__ = None  # its extent is not known; without this, Python would count up to the first refused index

    def __getitem__(self, key: CacheKey | tuple[CacheKey, ...]) -> SymbolicView:
        """Return the view under integers, slices, Ellipsis and None; starts and stops may be sizes."""
        keys = _expand_ellipsis(key if isinstance(key, tuple) else (key,), self.rank)
        view, axis = self, 0
        for k in keys:
            if k is None:
                view = view._insert(axis)
            elif isinstance(k, slice):
                view = view._slice(axis, k)
            else:
                view = view._index(axis, sizes.read_expr(k, f"index of axis {axis}"))
                continue
            axis += 1
        return view._say(self, "__getitem__", key)

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
        new = [sizes.read_expr(n, "reshape: shape: extent") for n in given]
        if -1 in new:
            rest = sizes.divide(self.size, sizes.multiply(n for n in new if n != -1))
            new = [rest if n == -1 else n for n in new]
        if None in new or new.count(-1) or sizes.multiply(new) != self.size:
            raise ValueError(
                f"reshape: cannot view {quote(self.shape)} [{self.size} cells] as {quote(tuple(given))} for every size"
            )
        return _reshape(self, tuple(new))._say(self, "reshape", tuple(new))

    def permute_dims(self, axes: Sequence[int]) -> SymbolicView:
        """Return the view whose axis k is this one's axis axes[k]."""
        order = as_ints(axes, "permute_dims: axes")
        if sorted(order) != list(range(self.rank)):
            raise ValueError(f"permute_dims: axes {quote(order)} are not an order of the axes of {quote(self.shape)}")
        moved = replace(self, shape=tuple(self.shape[a] for a in order), _axes=tuple(self._axes[a] for a in order))
        return moved._say(self, "permute_dims", order)

    @property
    def T(self) -> SymbolicView:
        """The view with its axes reversed."""
        return self.permute_dims(tuple(reversed(range(self.rank))))

    def flip(self, axis: int | Sequence[int] | None = None) -> SymbolicView:
        """Return the view with the given axes, by default all, reversed."""
        axes = tuple(range(self.rank)) if axis is None else self._some_axes(axis, "flip")
        view = self
        for a in axes:
            view = view._slice(a, slice(None, None, -1))
        return view._say(self, "flip", axes)

    def squeeze(self, axis: int | Sequence[int]) -> SymbolicView:
        """Return the view without the given axes, which have extent 1."""
        gone = self._some_axes(axis, "squeeze")
        for a in gone:
            if self.shape[a] != 1:
                raise ValueError(
                    f"squeeze: axis {a} of shape {quote(self.shape)} has extent {quote(self.shape[a])}, not 1"
                )
        kept = [a for a in range(self.rank) if a not in gone]
        view = replace(self, shape=tuple(self.shape[a] for a in kept), _axes=tuple(self._axes[a] for a in kept))
        return view._say(self, "squeeze", gone)

    def expand_dims(self, axis: int) -> SymbolicView:
        """Return the view with a new axis of extent 1 at a position of the result."""
        at = axis_of(axis, self.rank + 1, "expand_dims")
        return self._insert(at)._say(self, "expand_dims", at)

    def broadcast_to(self, shape: Sequence[Any]) -> SymbolicView:
        """Return the view with axes of extent 1, and new leading ones, repeated to a shape."""
        given = as_items(shape, "broadcast_to: shape", "sequence of sizes, one for each axis")
        new = tuple([sizes.read_expr(n, "broadcast_to: shape: extent") for n in given])
        extra = len(new) - self.rank
        view = self
        for _ in range(extra):
            view = view._insert(0)
        for a, (n, m) in enumerate(zip(view.shape, new, strict=False)):
            if extra < 0 or n not in (1, m) or not sizes.is_nonnegative(m):
                raise ValueError(
                    f"broadcast_to: shape {quote(self.shape)} cannot become {quote(new)}; extents must stay or be 1"
                )
            if n != m:
                view = view._with_axis(a, (len(view._extents),), m, (m,))
        return view._say(self, "broadcast_to", new)

    # -- how they are done ----------------------------------------------------------------------------

    def _say(self, before: SymbolicView, word: str, *arguments: Any) -> SymbolicView:
        return replace(self, _words=(*before._words, (word, arguments)))

    def _some_axes(self, axis: int | Sequence[int], what: str) -> tuple[int, ...]:
        return axes_of(axis_tuple(axis, f"{what}: axis"), self.rank, what)

    def _insert(self, axis: int) -> SymbolicView:
        shape = (*self.shape[:axis], load_sympy().Integer(1), *self.shape[axis:])
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

    def _rows(self) -> tuple[SymbolicRow, ...]:
        return (*self._coordinates, *self._conditions)

    def _digits(self, axis: int) -> tuple[SymbolicView, tuple[int, ...]]:
        """The axis's digits with those merged that count on where their neighbor ends."""
        digits = self._axes[axis]
        if digits is None:
            raise NonAffineSize(
                f"axis {axis} of {quote(self.shape)} counts cells of which isl cannot tell the index: "
                "it is a strided slice of a flattened array; slice before flattening"
            )
        view, digits = _merge_digits(self, digits)
        return view._with_axis(axis, digits, view.shape[axis]), digits

    def _index(self, axis: int, i: Expr) -> SymbolicView:
        n = self.shape[axis]
        place = i if sizes.is_nonnegative(i) else load_sympy().expand(i + n)
        if not (sizes.is_nonnegative(place) and sizes.is_nonnegative(load_sympy().expand(n - 1 - place))):
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
    >>> from tapestry_sets import symbolic_allocate
    >>> N = Symbol("N", integer=True, positive=True)
    >>> A = symbolic_allocate((N, 2 * N))
    >>> A[1:, ::3].shape
    (N - 1, floor(2*N/3 + 2/3))

    References
    ----------
    isl's parameters; Tapestry's document on nested striding, where sizes are N.
    """
    given = as_items(shape, "symbolic_allocate: shape") if isinstance(shape, Iterable) else (shape,)
    extents = tuple(sizes.read_expr(n, "symbolic_allocate: shape: extent") for n in given)
    check_type(name, str, "symbolic_allocate: name", "empty for none")
    for axis, n in enumerate(extents):
        sizes.write_expr(n)
        if not sizes.is_nonnegative(n):
            raise ValueError(f"symbolic_allocate: extent {n} of axis {axis} may be negative; declare positive=True")
    axes = tuple((k,) for k in range(len(extents)))
    return SymbolicView(extents, SymbolicMemory(extents, name), extents, axes, _home(extents), (), ())


def read_affine_view(
    memory: SymbolicMemory, extents: tuple[Expr, ...], rows: Sequence[tuple[Sequence[int], Expr]]
) -> SymbolicView:
    """Return the view of a memory that is read at Σ coefficient·index + constant, for each of `coordinates_of` it.

    Parameters
    ----------
    memory : SymbolicMemory
    extents : tuple of expressions
        The view's shape.
    rows : sequence of (coefficients, constant)
    """
    sympy = load_sympy()
    inner = [sizes.multiply(memory.shape[max(axes) + 1 :]) for axes in coordinates_of(memory)]
    many = range(len(extents))
    strides = [sum((row[k] * n for (row, _), n in zip(rows, inner, strict=True)), sympy.Integer(0)) for k in many]
    offset = sum((constant * n for (_, constant), n in zip(rows, inner, strict=True)), sympy.Integer(0))
    read = [SymbolicRow(tuple([(k, sympy.Integer(row[k])) for k in many]), constant) for row, constant in rows]
    words = (("as_strided", (extents, tuple(strides), offset)),)
    return SymbolicView(extents, memory, extents, tuple([(k,) for k in many]), tuple(read), (), words)


def coordinates_of(memory: SymbolicMemory) -> list[dict[int, Expr]]:
    """Return the axes of a memory, each with its weight, that count on in one number, for each such number."""
    return [dict(row.terms) for row in _home(memory.shape)]


def _home(extents: Sequence[Expr]) -> tuple[SymbolicRow, ...]:
    """The coordinates in which cells are told apart: trailing axes of constant extent count on in one number."""
    rows: list[SymbolicRow] = []
    terms: list[tuple[int, Expr]] = []
    weight = load_sympy().Integer(1)
    for k in range(len(extents) - 1, -1, -1):
        terms.append((k, weight))
        weight *= extents[k]
        if not extents[k].is_Integer or k == 0:
            rows.append(SymbolicRow(tuple(terms), load_sympy().Integer(0)))
            terms, weight = [], load_sympy().Integer(1)
    return tuple(reversed(rows))


def _put_values(x: Any, values: Mapping[Any, int]) -> Any:
    """An argument with integers for the symbols."""
    if isinstance(x, tuple):
        return tuple(_put_values(v, values) for v in x)
    if isinstance(x, slice):
        return slice(*(_put_values(v, values) for v in (x.start, x.stop, x.step)))
    if x is None or x is Ellipsis:
        return x
    e = load_sympy().sympify(x).subs(values)
    if not e.is_Integer:
        raise ValueError(
            f"at: values: {x} is {e}; give integers for {', '.join(map(str, sizes.find_symbols([e]))) or 'its symbols'}"
        )
    return int(e)


# ----------------------------------------------------------------------------------------------------- subscripts


def _expand_ellipsis(keys: tuple[CacheKey, ...], rank: int) -> list[int | slice | None]:
    """The keys with Ellipsis written out."""
    used = sum(k is not None and k is not Ellipsis for k in keys)
    if used > rank or sum(k is Ellipsis for k in keys) > 1:
        raise IndexError(f"subscript {keys} has {used} indices for rank {rank}, and may have one Ellipsis")
    rest = [slice(None)] * (rank - used)
    return [k for key in keys for k in (rest if isinstance(key, EllipsisType) else [key])]


def _slice_of(key: slice, n: Expr, axis: int) -> tuple[Expr, int, Expr]:
    """(start, step, count) of a slice of an axis, clipped as Python clips."""
    sympy = load_sympy()
    step = 1 if key.step is None else key.step
    if not getattr(step, "is_Integer", isinstance(step, int)) or step == 0:
        raise NonAffineSize(f"slice of axis {axis}: step {step} must be an integer other than 0")
    step = int(step)
    low, high = (sympy.Integer(0), n) if step > 0 else (sympy.Integer(-1), n - 1)

    def place(value: object, default: Expr) -> Expr:
        if value is None:
            return default
        v = sizes.read_expr(value, f"slice of axis {axis}")
        if not sizes.is_nonnegative(v):
            if not sizes.is_nonnegative(sympy.expand(-v - 1)):
                raise ValueError(f"slice of axis {axis}: {v} may be negative or not, which mean different places")
            v = sympy.expand(v + n)
        return sizes.choose_smaller(sizes.choose_larger(v, low), high)

    start, stop = place(key.start, low if step > 0 else high), place(key.stop, high if step > 0 else low)
    span = sympy.expand((stop - start) if step > 0 else (start - stop))
    many = sympy.floor((span + abs(step) - 1) / sympy.Integer(abs(step))) if abs(step) > 1 else span
    return start, step, sizes.choose_larger(many, sympy.Integer(0))


def _slice_digits(
    view: SymbolicView, axis: int, digits: tuple[int, ...], key: slice, what: tuple[Expr, int, Expr]
) -> SymbolicView:
    """A slice of an axis of several digits, where that is affine."""
    start, step, count = what
    extents = [view._extents[d] for d in digits]
    inner = sizes.multiply(extents[1:])
    terms = tuple((d, sizes.multiply(extents[k + 1 :])) for k, d in enumerate(digits))
    new = len(view._extents)
    if step == 1 and count == view.shape[axis]:
        return view
    if inner.is_Integer:  # i·n + j with a constant n: one index in place of all
        tie = SymbolicRow((*terms, (new, load_sympy().Integer(-step))), -start)
        tied = view._with_axis(axis, (new,), count, (count,))
        return replace(tied, _conditions=(*view._conditions, tie))
    first, many = sizes.divide(start, inner), sizes.divide(count, inner)
    if step == 1 and first is not None and many is not None:
        return view._put(digits[0], (many,), (1,), first)._with_axis(axis, (new, *digits[1:]), count)
    if key.stop is None and 0 <= (place := _constant_start(key.start)) < step:
        turns = sizes.divide(extents[-1], load_sympy().Integer(step))
        if turns is not None:
            many = sizes.multiply((*extents[:-1], turns))
            return view._put(digits[-1], (turns,), (step,), place)._with_axis(axis, (*digits[:-1], new), many)
        # a residue class of the row-major number, whatever the symbols are; the index in it is lost
        sealed = view._with_axis(axis, None, count)
        return replace(sealed, _conditions=(*view._conditions, SymbolicRow(terms, load_sympy().Integer(-place), step)))
    number = " + ".join(f"({n})*i{k}" for k, (_, n) in enumerate(terms))
    raise NonAffineSize(
        f"slice of axis {axis} of {quote(view.shape)}: the index {number} is not affine; only whole multiples of "
        f"{inner}, and steps from a start below the step to the end, can be sliced"
    )


def _constant_start(value: object) -> int:
    """The integer that a slice starts at, -1 if that is not a constant."""
    e = load_sympy().sympify(0 if value is None else value)
    return int(e) if e.is_Integer else -1


# -------------------------------------------------------------------------------------------------------- reshape


def _merge_digits(view: SymbolicView, digits: Sequence[int]) -> tuple[SymbolicView, tuple[int, ...]]:
    """The digits with neighbors joined where the outer one counts on where the inner one ends."""
    out: list[int] = []
    for d in digits:
        if view._extents[d] == 1:
            continue
        while out and _counts_on(view, out[-1], d):
            outer = out.pop()
            both = sizes.multiply((view._extents[outer], view._extents[d]))
            new = len(view._extents)
            view = view._put(outer, (), (), 0)._put(d, (both,), (1,), 0)
            d = new
        out.append(d)
    return view, tuple(out)


def _counts_on(view: SymbolicView, outer: int, inner: int) -> bool:
    expand, n = load_sympy().expand, view._extents[inner]
    pairs = [(row.coefficient(outer), row.coefficient(inner)) for row in view._rows()]
    return any(b != 0 for _, b in pairs) and all(expand(a - b * n) == 0 for a, b in pairs)


def _reshape(view: SymbolicView, new: tuple[Expr, ...]) -> SymbolicView:
    if view.size == 0:
        more = tuple(range(len(view._extents), len(view._extents) + len(new)))
        return replace(view, shape=new, _axes=tuple((d,) for d in more), _extents=(*view._extents, *new))
    if None in view._axes and any(n != 1 for n in view.shape if n != view.size):
        axis = view._axes.index(None)
        raise NonAffineSize(f"reshape of {quote(view.shape)}: axis {axis} is a strided slice of a flattened array")
    if None in view._axes:
        return _move_ones(view, new)
    pool = [d for digits in view._axes for d in digits or ()]
    view, merged = _merge_digits(view, pool)
    axes: list[tuple[int, ...]] = []
    for digits, extents in reversed(list(_group_equal_sizes(view, merged, new))):
        try:
            view, found = _split(view, digits, extents)
        except NonAffineSize:
            view, found = _tie(view, digits, extents)
        axes += found
    return replace(view, shape=new, _axes=tuple(axes))


def _move_ones(view: SymbolicView, new: tuple[Expr, ...]) -> SymbolicView:
    if [n for n in new if n != 1] != [n for n in view.shape if n != 1]:
        raise NonAffineSize(f"reshape of {quote(view.shape)}: a strided slice of a flattened array cannot be split")
    return replace(view, shape=new, _axes=tuple(() if n == 1 else None for n in new))


def _group_equal_sizes(
    view: SymbolicView, digits: tuple[int, ...], extents: tuple[Expr, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[Expr, ...]]]:
    """Digits and extents in groups of equal size, from the innermost outwards, each as small as may be."""
    symbols = sizes.find_symbols([*view._extents, *extents])
    large = {s: 10**6 + 7 * k for k, s in enumerate(symbols)}
    i, j = len(digits), len(extents)
    a, b = i, j
    while a or b:
        left, right = sizes.multiply(view._extents[d] for d in digits[a:i]), sizes.multiply(extents[b:j])
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
                raise NonAffineSize(f"reshape of {quote(view.shape)}: no digits are left for extent {n}")
            d = left.pop()
            own = view._extents[d]
            more = sizes.divide(rest, own)
            if more is not None:
                axis.append(d)
                rest = more
                continue
            inner = load_sympy().gcd(own, rest)
            outer, more = sizes.divide(own, inner), sizes.divide(rest, inner)
            if inner == 1 or outer is None or more is None or not sizes.is_nonnegative(inner):
                raise NonAffineSize(f"reshape of {quote(view.shape)}: an axis of extent {n} ends within one of {own}")
            view = view._put(d, (outer, inner), (inner, 1), 0)
            left.append(len(view._extents) - 2)
            axis.append(len(view._extents) - 1)
            rest = more
        axes.append(tuple(reversed(axis)))
    if left:
        raise NonAffineSize(f"reshape of {quote(view.shape)}: digits are left")
    return view, axes[::-1]


def _tie(
    view: SymbolicView, digits: Sequence[int], extents: Sequence[Expr]
) -> tuple[SymbolicView, list[tuple[int, ...]]]:
    """New digits whose row-major number is that of the old ones, where all but the outermost extents are constant."""
    old = [view._extents[d] for d in digits]
    if not all(n.is_Integer for n in (*old[1:], *extents[1:])):
        raise NonAffineSize(
            f"reshape of {quote(view.shape)}: {quote(tuple(old))} to {quote(tuple(extents))} needs a product of a "
            "symbol and an index; give axes that split one by one"
        )
    new = range(len(view._extents), len(view._extents) + len(extents))
    terms = [(d, sizes.multiply(old[k + 1 :])) for k, d in enumerate(digits)]
    terms += [(d, -sizes.multiply(extents[k + 1 :])) for k, d in enumerate(new)]
    tied = replace(
        view,
        _extents=(*view._extents, *extents),
        _conditions=(*view._conditions, SymbolicRow(tuple(terms), load_sympy().Integer(0))),
    )
    return tied, [(d,) for d in new]


# ------------------------------------------------------------------------------------------------- cells as sets


def read_symbolic_cells(view: SymbolicView) -> Any:
    """The cells that a view reads in its allocation's coordinates, as an islpy.Set with the symbols as parameters."""
    idle = [view._extents[d] for axis in view._axes for d in axis or () if not _is_used(view, d)]
    symbols = symbols_of_views(view)
    context = [sizes.write_context(symbols), *(f"{sizes.write_expr(n)} >= 1" for n in idle if not n.is_positive)]
    view = _join_symbolic_weights(view)
    place = ", ".join(f"x{k}" for k in range(len(view._coordinates)))
    formula = _formula_of_parts(view, context, [f"x{k}" for k in range(len(view._coordinates))])
    return isl.read_set(f"{sizes.write_parameters(symbols)} -> {{ [{place}] : {formula} }}")


def read_symbolic_map(view: SymbolicView) -> Any:
    """The map from a view's indices to the cells of its allocation, as an islpy.Map with the symbols as parameters."""
    if None in view._axes:
        raise NonAffineSize(
            f"to_isl: axis {view._axes.index(None)} of {quote(view.shape)} counts cells of which isl cannot tell the "
            "index: it is a strided slice of a flattened array; overlap_condition and overlap_count need no index"
        )
    symbols = symbols_of_views(view)
    zero, shape = load_sympy().Integer(0), view.base.shape
    numbers = []
    for digits in view._axes:
        own = [view._extents[d] for d in digits or ()]
        weights = [sizes.multiply(own[k + 1 :]) for k in range(len(own))]
        numbers.append(SymbolicRow(tuple(zip(digits or (), weights, strict=True)), zero))
    read = [
        " + ".join([f"{_weight(w)}*y{axis}" for axis, w in home.terms]) or "0" for home in _home(shape)
    ]  # axes that count on in one number are told apart again by their extents
    inside = [f"0 <= y{axis} < {sizes.write_expr(n)}" for axis, n in enumerate(shape)]
    named = [*[f"({text})" for text in read], *[f"x{k}" for k in range(len(numbers))]]
    every = replace(view, _coordinates=(*view._coordinates, *numbers))
    formula = _formula_of_parts(every, [sizes.write_context(symbols), *inside], named)
    x, y = (", ".join([f"{name}{k}" for k in range(n)]) for name, n in (("x", view.rank), ("y", len(shape))))
    found = isl.read_map(f"{sizes.write_parameters(symbols)} -> {{ [{x}] -> [{y}] : {formula} }}")
    return isl.name_parameters(found, [s.name for s in symbols])


def _formula_of_parts(view: SymbolicView, context: Sequence[str], names: Sequence[str]) -> str:
    """What puts the named coordinates among the cells of a view."""
    few = [d for d in _symbolic_digits(view) if view._extents[d].is_Integer]
    values = [range(int(view._extents[d])) for d in few]
    check_pieces(prod(map(len, values)), f"rows of {view.shape}, whose length is a symbol", "take fewer rows")
    parts = []
    for chosen in product(*values):  # i·N + j for each i
        part = reduce(lambda v, put: v._put(put[0], (), (), put[1]), zip(few, chosen, strict=True), view)
        parts.append(_formula(part, context, names))
    return " or ".join(f"({part})" for part in parts) or "false"


def _formula(view: SymbolicView, context: Sequence[str], names: Sequence[str]) -> str:
    """The same of a view without symbolic weights."""
    used = sorted({d for row in view._rows() for d, c in row.terms if c != 0})
    parts = [*context, *(f"0 <= t{d} < {sizes.write_expr(view._extents[d])}" for d in used)]
    parts += [f"{name} = {_sum(row)}" for name, row in zip(names, view._coordinates, strict=True)]
    parts += [f"{_sum(row)} = 0" if not row.modulus else _residue(row) for row in view._conditions]
    bound = f"exists {', '.join(f't{d}' for d in used)} : " if used else ""
    return bound + " and ".join(f"({part})" for part in parts)


def _is_used(view: SymbolicView, digit: int) -> bool:
    return any(row.coefficient(digit) != 0 for row in view._rows())


def _symbolic_digits(view: SymbolicView) -> list[int]:
    """The digits with a weight that is not a constant."""
    rows = [row for row in view._rows() if not row.modulus]
    return sorted({d for row in rows for d, c in row.terms if not load_sympy().sympify(c).is_Integer})


def _parts_of(row: SymbolicRow) -> list[Expr]:
    return [row.constant, *(c for _, c in row.terms)]


def _sum(row: SymbolicRow) -> str:
    return " + ".join([f"({sizes.write_expr(row.constant)})", *(f"{_weight(c)}*t{d}" for d, c in row.terms if c != 0)])


def _weight(c: Expr) -> str:
    if not load_sympy().sympify(c).is_Integer:
        raise NonAffineSize(f"({c})*i is not affine: a symbol times an index, which isl's parameters cannot express")
    return str(c)


def _residue(row: SymbolicRow) -> str:
    """The row is 0 modulo its modulus, for each residue of the symbols in its coefficients."""
    symbols = sizes.find_symbols(_parts_of(row))
    q = row.modulus
    check_pieces(q ** len(symbols), f"residues modulo {q} of {symbols}", "take smaller steps")
    cases = []
    for residues in product(range(q), repeat=len(symbols)):
        values = dict(zip(symbols, residues, strict=True))
        terms = [f"{int(load_sympy().sympify(c).subs(values)) % q}*t{d}" for d, c in row.terms]
        total = " + ".join([str(int(load_sympy().sympify(row.constant).subs(values)) % q), *terms])
        where = [f"{sizes.write_expr(s)} mod {q} = {r}" for s, r in values.items()]
        cases.append(" and ".join([*where, f"({total}) mod {q} = 0"]))
    return " or ".join(f"({case})" for case in cases)


def _join_symbolic_weights(view: SymbolicView) -> SymbolicView:
    """The same cells with digits joined, in whatever order, where one counts on where another ends."""
    for d in sorted({d for row in view._rows() for d, _ in row.terms}):
        if view._extents[d] == 1:  # its one value moves nothing: a weight of N would find no neighbor to be joined to
            view = view._put(d, (), (), 0)
            continue
        weights = [row.coefficient(d) for row in view._coordinates]
        own = not any(row.coefficient(d) for row in view._conditions)
        if own and any(w != 0 for w in weights) and all(sizes.is_nonnegative(load_sympy().expand(-w)) for w in weights):
            n = view._extents[d]
            view = view._put(d, (n,), (-1,), n - 1)  # counts down: the same cells counted up
    while True:
        digits = {d for row in view._rows() for d, c in row.terms if c != 0}
        symbolic = _symbolic_digits(view)
        pair = next(((a, b) for a in symbolic for b in digits if a != b and _counts_on(view, a, b)), None)
        if pair is None:
            return view
        axes = tuple(None for _ in view._axes)
        view = _merge_digits(replace(view, _axes=axes), pair)[0]


def symbols_of_views(*views: SymbolicView) -> list[Expr]:
    every = [e for v in views for row in v._rows() for e in _parts_of(row)]
    return sizes.find_symbols([*every, *(n for v in views for n in (*v._extents, *v.base.shape))])
