"""Views of memory: a view kind over other views, and at the end of the chain stand allocations."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tapestry_sets.digits import Strided, contiguous, renumber
from tapestry_sets.draw import views as draw_views
from tapestry_sets.integers import EMPTY, DisjointSetts, Nest, nest_of
from tapestry_sets.limits import OPEN, Budget, Open, TooHard, TooManyPieces, as_int, counted, current
from tapestry_sets.regions import DisjointRegions, ImplicitRegion, Region
from tapestry_sets.solvers import isl
from tapestry_sets.views import queries
from tapestry_sets.views.assemble import Assembly
from tapestry_sets.views.kinds import Shape, Slice, ViewKind
from tapestry_sets.views.normal import Opaque, agree, flat_of, flat_over, preimage
from tapestry_sets.views.patches import Constant, Flat, strided_patch
from tapestry_sets.views.pieces import Piece, PiecesOf, Relinearize, compose_pieces, identity_piece
from tapestry_sets.views.queries import InternalOverlap, Order
from tapestry_sets.views.reading import cell_read
from tapestry_sets.views.subscript import Key, plain_slices
from tapestry_sets.views.words import Viewable, extents_of

if TYPE_CHECKING:
    from tapestry_sets.alias import Cells

# ----------------------------------------------------------------------------------------------------- the view


@dataclass(frozen=True, slots=True, eq=False, init=False)
class View(Viewable):
    """A shape over cells of memory: a view kind over other views.

    Make one with `allocate` and its methods; nothing is computed before a question is asked.

    Views are equal if they have one shape and one normal form, however they were made: the same cell, or the same
    constant, at each index. Where a view is of too many pieces to be spelled out, or isl would have to decide, equal
    views may be unequal to ``==``; `same_view` answers then too. Views without cells are equal if they are made of the
    same memory first.

    Examples
    --------
    >>> A = allocate((4, 6), name="A")
    >>> A[1:, ::2].reshape(9)
    View((9,) of A)
    >>> A[1:][1:] == A[2:], A.T.T == A, A.reshape(6, 4).reshape(4, 6) == A, A[1:] == A[:3]
    (True, True, True, False)
    """

    shape: tuple[int, ...]
    kind: ViewKind | None
    sources: tuple[View, ...]
    _cache: dict[str, object] = field(repr=False)

    def __init__(self, shape: Shape, kind: ViewKind | None, sources: tuple[View, ...]) -> None:
        if kind is not None:
            given = kind.out_shape(tuple([source.shape for source in sources]))
            if given != shape:
                raise ValueError(f"View: shape {shape!r} for a {type(kind).__name__} of its sources, which has {given}")
        _fill(self, shape, kind, sources)

    __contains__ = None  # a view has places, not values: `3 in view` has no meaning

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, View):
            return NotImplemented
        if self is other or self.shape != other.shape:
            return self is other
        if 0 in self.shape:
            return _first(self) == _first(other)
        return _made_alike(self, other) or agree(_normal(self), _normal(other)) is True

    def __hash__(self) -> int:
        if 0 in self.shape:
            home = _first(self)
            return hash(home if self.shape == home.shape else (self.shape, home))
        ends = _ends(self)
        whole = ends[0][0]
        if (
            isinstance(whole, Allocation)
            and whole.shape == self.shape
            and ends == ((whole, 0), (whole, whole.size - 1))
        ):
            return hash(whole)  # it may equal the allocation
        return hash((self.shape, ends))

    def __copy__(self) -> View:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        views = _all_under(self)
        at = {id(view): k for k, view in enumerate(views)}
        rows = [v if v.kind is None else (v.shape, v.kind, tuple(at[id(s)] for s in v.sources)) for v in views]
        return _unpickled, (rows,)

    def __repr__(self) -> str:
        names = dict.fromkeys(a.name or f"{a.shape}" for a in _allocations_under(self))
        return f"View({self.shape} of {', '.join(names)})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return draw_views.views_mimebundle(self)

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """The allocations at the end of the chain, in order of first appearance; pieces number them."""
        found = self._cache.get("composed") if self.kind is not None else None
        return _homes(self) if found is None else found[0]  # type: ignore[index]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of the whole chain: sources are positions in `allocations`, their domains partition the view.

        Raises
        ------
        TooHard, TooManyPieces
            If they shatter: they need more steps and guards than the budget of `limits`, or are too many.
        """
        return self._composed()[1]

    def _simplified(self) -> View:
        """What `simplify` has found."""
        found = self._cache.get("simple")
        return self if found is None else found  # type: ignore[return-value]

    def _composed(self) -> tuple[tuple[Allocation, ...], tuple[Piece, ...]]:
        if isinstance(self, Allocation):  # not kept: it would hold itself
            return (self,), (identity_piece(self.rank),)
        done = self._cache.get("composed")
        return _composed_within(self, Budget(current().budget)) if done is None else done  # type: ignore[return-value]

    # -- memory ---------------------------------------------------------------------------------------

    def as_nest(self) -> tuple[Allocation, Nest] | None:
        """Return the one allocation that the view reads and its cells there as one nest, where that is quickly had.

        The nest holds the row-major numbers of the cells in [0, the allocation's size); it repeats with that period.
        None where the view has several sources, or reads cells that are not one nest: `cells` has them then.

        Examples
        --------
        >>> A = allocate((27,))
        >>> A.reshape(3, 3, 3)[:2, :2, :2].as_nest()[1]
        ((14, 27, 0), (5, 9, 0), (2, 3, 0))
        """
        found = self._cache.get("nest", False)
        if found is not False:
            return found  # type: ignore[return-value]
        strided = strided_form_of(self) or _one_run(self)
        if strided is None:
            nested = None
        else:
            home, form = strided
            nest = EMPTY if 0 in home.shape else nest_of(form, prod(home.shape))
            nested = None if nest is None else (home, nest)
        if self.kind is not None:  # an allocation would hold itself
            self._cache["nest"] = nested
        return nested

    @property
    def cells(self) -> Mapping[Allocation, Cells]:
        """The cells that the view reads, for each allocation that it reads at all."""
        found = self._cache.get("cells")
        if found is None:
            chain = _chained(self)
            if chain:  # of one allocation; what is known of the cells needs no pieces
                home = _first(self)
                twin = self if self.kind is None else view_of(self.shape, self.kind, self.sources)
                cells = queries.memory.filled_cells(chain, PiecesOf(twin, 0), self.shape, home.shape)
                found = {} if cells.is_empty else {home: cells}
            else:
                allocations, pieces = self._composed()
                each = (
                    queries.memory.read_cells(pieces, k, self.shape, a.shape, a.size) for k, a in enumerate(allocations)
                )
                found = {a: c for a, c in zip(allocations, each, strict=True) if not c.is_empty}
            if self.kind is not None:  # an allocation would hold itself
                self._cache["cells"] = found
        return found  # type: ignore[return-value]

    def origins(self) -> dict[Allocation, DisjointRegions]:
        """Return the cells that the view reads of each allocation, in the allocation's coordinates.

        Raises
        ------
        TooManyPieces
            If they need more regions than can be written out.

        Examples
        --------
        >>> A = allocate((4, 6), name="A")
        >>> print(A[:, 1:5:3].origins()[A])
        .1..1.
        .1..1.
        .1..1.
        .1..1.

        References
        ----------
        poprithms, memory/alias: Tensor::regions.
        """
        return {allocation: c.regions() for allocation, c in self.cells.items()}

    @counted
    def contains(self, other: View) -> bool:
        """Return whether this view reads every cell of memory that `other` reads.

        Examples
        --------
        >>> A = allocate((10,))
        >>> A[::2].contains(A[2::4]), A[2::4].contains(A[::2])
        (True, False)
        """
        if not isinstance(other, View):
            raise TypeError(_no_view("View.contains: the other", other))
        mine = self.cells
        return all(a in mine and c.issubset(mine[a]) for a, c in other.cells.items())

    @counted
    def same_elements(self, other: View) -> bool:
        """Return whether both views read the same cells of memory, in whatever order and number."""
        if not isinstance(other, View):
            raise TypeError(_no_view("View.same_elements: the other", other))
        return self.contains(other) and other.contains(self)

    def same_view(self, other: View) -> bool:
        """Return whether both views have one shape and read the same cell, or the same constant, at each index.

        Raises
        ------
        TooHard
            If neither the views' patches nor isl decide.

        Examples
        --------
        >>> from tapestry_sets.views import concatenate, interleave
        >>> A = allocate((10,))
        >>> concatenate([A[:3], A[3:]]).same_view(interleave([A[::2], A[1::2]]))
        True
        >>> A[:9].same_view(A[1:]), A.same_elements(A[::-1]), A.same_view(A[::-1])
        (False, True, False)
        """
        if not isinstance(other, View):
            raise TypeError(_no_view("View.same_view: the other", other))
        if self is other or self.shape != other.shape or 0 in self.shape:
            return self.shape == other.shape
        found = agree(_normal(self), _normal(other))
        found = _same_by_pieces(self, other) if found is None else found
        return _same_by_isl(self, other) if found is None else found

    def preimage(
        self, cells: Region | DisjointRegions | Mapping[Allocation, Region | DisjointRegions]
    ) -> DisjointRegions | ImplicitRegion:
        """Return the indices of the view that read given cells: `origins` the other way round.

        Parameters
        ----------
        cells : Region, DisjointRegions, or a mapping of allocations to these
            Cells in the coordinates of an allocation; without a mapping, of the only one that the view is made of.

        Returns
        -------
        DisjointRegions
            Where the indices are few products of the view's axes.
        ImplicitRegion
            Otherwise: exact too, decided by isl.

        Raises
        ------
        ValueError
            If cells are given without their allocation and the view is made of several, or in another box.

        Examples
        --------
        >>> A = allocate((6, 8), name="A")
        >>> print(A.T[2::2].preimage(A[1:3, 2:6].origins()))
        .11...
        .11...
        ......

        References
        ----------
        poprithms, memory/chain: Chain::mirror.
        """
        wanted = _by_allocation(self, cells)
        if 0 in self.shape:
            return DisjointRegions(self.shape, ())
        try:
            found = preimage(_normal(self), self.shape, [(a, a.shape, cells) for a, cells in wanted.items()])
        except TooManyPieces:
            found = OPEN
        return _preimage_by_isl(self, wanted) if found is OPEN else found

    def simplify(self) -> View:
        """Return the same view as a short chain of kinds over its allocations.

        It is built anew from its patches, which takes at most `Assembly.view`'s number of kinds, however long the
        chain; where this view, over its sources simplified, has fewer kinds, it stays. Of a chain of many kinds the
        sources on the way are not simplified. So a chain of edits that keeps the view simple stays short, and what is
        asked of it costs the same.

        Examples
        --------
        >>> A = allocate((4, 6), name="A")
        >>> view = A.T[1:].T.reshape(20).reshape(4, 5).flip(0).flip(0)
        >>> view.simplify().kind, view.simplify().sources
        (Slice(slices=((None, None, None), (1, None, None))), (Allocation((4, 6), name='A', itemsize=1),))
        >>> A.T.T.simplify() is A
        True

        References
        ----------
        poprithms, memory/chain: Chain::canonicalize.
        """
        return _simple(self)

    @counted
    def internal_overlap(self) -> InternalOverlap | None:
        """Return a cell of memory that the view reads at two of its indices, and these; None if there is none.

        Raises
        ------
        TooHard
            If neither linear equations nor counts decide, nor isl.

        Examples
        --------
        >>> A = allocate((10,))
        >>> found = A.sliding_windows(3).internal_overlap()
        >>> found.a, found.b, found.cell
        ((0, 2), (2, 0), (2,))
        >>> A[::-3].internal_overlap() is None
        True
        """
        if 0 in self.shape:
            return None
        strided = strided_form_of(self)
        if strided is None:
            return queries.memory.twice(self)
        home, form = strided
        found = queries.memory.twice_by_strides(form)
        if found is None:
            return None
        one, two, number = found
        return InternalOverlap(one, two, home, Relinearize((home.size,), home.shape).apply((number,)))

    @counted
    def has_internal_overlap(self) -> bool:
        """Return whether the view reads some cell of memory at two of its indices; see `internal_overlap`.

        Examples
        --------
        >>> A = allocate((10,))
        >>> A.sliding_windows(3).has_internal_overlap(), A[::-3].has_internal_overlap()
        (True, False)
        """
        return self.internal_overlap() is not None

    @counted
    def is_contiguous(self, order: Order | None = None) -> bool:
        """Return whether the cells that the view reads are one gapless run of one allocation.

        Parameters
        ----------
        order : "C" or "F", optional
            By default the cells may be read in whatever order and number. "C" asks whether index after index reads
            the next cell of the run in row-major order of the indices, "F" in column-major order: NumPy's flags, with
            the allocation's own row-major numbers as addresses.

        Raises
        ------
        ValueError
            If `order` is none of these.

        Examples
        --------
        >>> from tapestry_sets.views import concatenate
        >>> A = allocate((10,))
        >>> swapped = concatenate([A[5:10], A[0:5]])
        >>> swapped.is_contiguous(), swapped.is_contiguous("C"), A[::2].is_contiguous()
        (True, False, False)
        >>> B = allocate((4, 6)).T
        >>> B.is_contiguous("C"), B.is_contiguous("F")
        (False, True)
        """
        if order not in (None, "C", "F"):
            raise ValueError(
                f'is_contiguous: order {order!r} must be None (as a set), "C" (row-major) or "F" (column-major)'
            )
        if order is None or 0 in self.shape:
            read = list(self.cells.values())
            return not read or (len(read) == 1 and read[0].is_run())
        strided = strided_form_of(self)
        if strided is not None:
            return queries.memory.is_ordered_by_strides(strided[1], order)
        read = list((self if order == "C" else self.transpose()).cells.values())
        return len(read) == 1 and queries.memory.is_ordered(read[0])

    # -- colors and new memory -----------------------------------------------------------------------

    def colors(self) -> frozenset[Hashable]:
        """Return the colors of the allocations that the view reads.

        Examples
        --------
        >>> from tapestry_sets.views import concatenate
        >>> a, b = allocate((3,), color="weights"), allocate((2,), color="input")
        >>> sorted(concatenate([a, b]).colors()), sorted(concatenate([a, b])[:3].colors())
        (['input', 'weights'], ['weights'])

        References
        ----------
        poprithms, memory/alias: Graph::colors.
        """
        read = self.cells
        return frozenset(a.color for a in _allocations_under(self) if a in read)

    def recolor(self, color: Hashable) -> View:
        """Return the same view of the same memory, under one color.

        Examples
        --------
        >>> a = allocate((4,), color="old")
        >>> b = a[1:].recolor("new")
        >>> sorted(b.colors()), b.same_elements(a[1:])
        (['new'], True)
        """
        _checked_color(color, "recolor")
        return _rebuilt(self, lambda a: a._recolored(color))

    def clone(self, color: Hashable = None) -> View:
        """Return a view of the same layout over new memory, in one color or, by default, in the colors of the old.

        Examples
        --------
        >>> a = allocate((4, 6), name="a")
        >>> b = a[:, ::2].clone()
        >>> b.shape, b.contains(a[:, ::2])
        ((4, 3), False)

        References
        ----------
        poprithms, memory/alias: Graph::clone, CloneColorMethod.
        """

        _checked_color(color, "clone")

        def anew(a: Allocation) -> Allocation:
            return Allocation(a.shape, None, (), a.name, a.itemsize, a.color if color is None else color)

        return _rebuilt(self, anew)

    # -- one source -----------------------------------------------------------------------------------

    def apply(self, kind: ViewKind, *others: View) -> View:
        """Return the view of a kind over this view and others.

        Examples
        --------
        >>> from tapestry_sets.views import Concat
        >>> a, b = allocate((3,), name="a"), allocate((2,), name="b")
        >>> a.apply(Concat(0), b).shape
        (5,)
        """
        if not others:
            return view_of(_checked_shape(kind, (self.shape,)), kind, (self,))
        sources = (self, *others)
        for k, source in enumerate(others, 1):
            if not isinstance(source, View):
                raise TypeError(_no_view(f"apply: source {k} of {type(kind).__name__}", source))
        return view_of(_checked_shape(kind, tuple([s.shape for s in sources])), kind, sources)

    def __getitem__(self, key: Key | tuple[Key, ...]) -> View:
        """Return the view under integers, slices, Ellipsis, None and one array of indices, with NumPy's meaning."""
        plain = plain_slices(key if isinstance(key, tuple) else (key,), self.shape)
        if plain is not None:
            return view_of(plain[0], Slice(plain[1]), (self,))
        return Viewable.__getitem__(self, key)


# a frozen class sets its own slots through their descriptors: several times as fast as object.__setattr__
_slots: Any = View
_set_shape, _set_kind = _slots.shape.__set__, _slots.kind.__set__
_set_sources, _set_cache = _slots.sources.__set__, _slots._cache.__set__


def _fill(view: View, shape: Shape, kind: ViewKind | None, sources: tuple[View, ...]) -> None:
    _set_shape(view, shape)
    _set_kind(view, kind)
    _set_sources(view, sources)
    _set_cache(view, {})


def _checked_shape(kind: ViewKind, shapes: tuple[Shape, ...]) -> Shape:
    """The shape that a kind gives, which is of integers if the kind is."""
    try:
        out_shape = kind.out_shape
    except AttributeError:
        raise TypeError(f"apply: {kind!r} is no view kind, which has the methods out_shape and pieces") from None
    shape = out_shape(shapes)
    for n in shape:
        if type(n) is not int:
            raise TypeError(f"apply: {kind!r} makes the shape {shape}, of which {n!r} is no int; give integers")
    return shape


def view_of(shape: Shape, kind: ViewKind, sources: tuple[View, ...]) -> View:
    """The view of a shape that its kind is known to give."""
    view = _new(View)
    _set_shape(view, shape)
    _set_kind(view, kind)
    _set_sources(view, sources)
    _set_cache(view, {})
    return view


_new = object.__new__


@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class Allocation(View):
    """A variable: a view of memory of its own. Make one with `allocate`.

    Parameters
    ----------
    shape, kind, sources
        As for a view; `kind` is None and there are no sources.
    name : str
        For messages and pictures.
    itemsize : int
        Bytes of a cell.
    color : hashable
        A mark of the user's own, such as "constant" or a device's number; `View.colors` tells which a view reads.

    Two allocations are equal if they are the same memory, as are an allocation and what `View.recolor` makes of it.
    What is unpickled or copied deeply is other memory, the same for all views that were pickled or copied together.
    """

    name: str
    itemsize: int
    color: Hashable

    def __init__(
        self,
        shape: Shape,
        kind: ViewKind | None = None,
        sources: tuple[View, ...] = (),
        name: str = "",
        itemsize: int = 1,
        color: Hashable = 0,
    ) -> None:
        _fill(self, shape, kind, sources)
        _set_name(self, name)
        _set_itemsize(self, itemsize)
        _set_color(self, color)

    def __eq__(self, other: object) -> bool:
        return self._cache is other._cache if isinstance(other, Allocation) else View.__eq__(self, other)

    def __hash__(self) -> int:
        return id(self._cache)

    def __repr__(self) -> str:
        color = f", color={self.color!r}" if self.color != 0 else ""
        return f"Allocation({self.shape}, name={self.name!r}, itemsize={self.itemsize}{color})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Allocation, (self.shape, None, (), self.name, self.itemsize, self.color)

    def _recolored(self, color: Hashable) -> Allocation:
        """The same memory, which the cache stands for, under another color."""
        made = Allocation(self.shape, None, (), self.name, self.itemsize, color)
        _set_cache(made, self._cache)
        return made


_slots = Allocation
_set_name, _set_itemsize, _set_color = _slots.name.__set__, _slots.itemsize.__set__, _slots.color.__set__


def allocate(
    shape: int | Sequence[int],
    name: str | None = None,
    dtype: object = None,
    itemsize: int | None = None,
    color: Hashable = 0,
) -> Allocation:
    """Return a variable: a view of memory of its own.

    Parameters
    ----------
    shape : int or sequence of int
        Extents, >= 0.
    name : str, optional
        For messages and pictures.
    dtype : NumPy dtype, optional
        Gives the bytes of a cell.
    itemsize : int, optional
        Bytes of a cell, 1 by default.
    color : hashable, optional
        A mark of the user's own; see `View.colors`.

    Raises
    ------
    ValueError
        If an extent is negative, `dtype` and `itemsize` disagree, or `dtype` is of objects.
    TypeError
        If `color` is not hashable.

    Examples
    --------
    >>> A = allocate((27,), name="A", dtype="float32")
    >>> A.shape, A.itemsize
    ((27,), 4)
    """
    extents = extents_of((shape,), "allocate")
    for axis, n in enumerate(extents):
        if n < 0:
            raise ValueError(f"allocate: extent {n} of axis {axis} in shape {extents} must be >= 0")
    if dtype is not None and np.dtype(dtype).hasobject:  # type: ignore[call-overload]
        raise ValueError(f"allocate: dtype {dtype!r} holds references to objects, no values; give one of fixed size")
    bytes_ = np.dtype(dtype).itemsize if dtype is not None else None  # type: ignore[call-overload]
    if bytes_ is not None and itemsize not in (None, bytes_):
        raise ValueError(f"allocate: dtype {dtype} has {bytes_} bytes but itemsize is {itemsize}; give one of them")
    cell = bytes_ if itemsize is None else as_int(itemsize, "allocate: itemsize")
    if cell is not None and cell < 1:
        raise ValueError(f"allocate: itemsize {cell} must be >= 1 byte")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"allocate: name {name!r} is a {type(name).__name__}; give a string")
    return Allocation(extents, None, (), name or "", cell or 1, _checked_color(color, "allocate"))


def _checked_color(color: Hashable, what: str) -> Hashable:
    try:
        hash(color)
    except TypeError:
        raise TypeError(f"{what}: color {color!r} is a {type(color).__name__}; give something hashable") from None
    return color


def _all_under(view: View) -> list[View]:
    """The views below and including `view`, each once, sources before what reads them."""
    order: dict[int, View] = {}
    stack = [(view, False)]
    while stack:
        v, ready = stack.pop()
        if ready:
            order[id(v)] = v
        elif id(v) not in order:
            stack.append((v, True))
            stack += [(s, False) for s in v.sources]
    return list(order.values())


def _unpickled(rows: Sequence[Allocation | tuple[Shape, ViewKind, tuple[int, ...]]]) -> View:
    """The view that was pickled as rows, each memory or a kind of rows before it."""
    views: list[View] = []
    for row in rows:
        views.append(row if isinstance(row, Allocation) else view_of(row[0], row[1], tuple(views[k] for k in row[2])))
    return views[-1]


def _made_alike(one: View, two: View) -> bool:
    """Whether two views are the same kinds over the same memory, step by step."""
    seen: set[tuple[int, int]] = set()
    stack = [(one, two)]
    while stack:
        a, b = stack.pop()
        if a is b or (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        if a.kind is None or b.kind is None:
            if a.kind is not b.kind or a._cache is not b._cache:
                return False
        elif a.shape != b.shape or len(a.sources) != len(b.sources) or a.kind != b.kind:
            return False
        stack += zip(a.sources, b.sources, strict=True)
    return True


def _allocations_under(view: View) -> list[Allocation]:
    return [v for v in _all_under(view) if isinstance(v, Allocation)]


def _rebuilt(view: View, anew: Callable[[Allocation], Allocation]) -> View:
    """The same chain over other allocations."""
    made: dict[int, View] = {}
    for v in _all_under(view):
        if isinstance(v, Allocation):
            made[id(v)] = anew(v)
        else:
            assert v.kind is not None, "only an allocation has no kind"
            made[id(v)] = view_of(v.shape, v.kind, tuple(made[id(s)] for s in v.sources))
    return made[id(view)]


def strided_form_of(view: View) -> tuple[Allocation, Strided] | None:
    """The allocation and the strided form, where a view keeps that form from kind to kind or folds to it."""
    chain: list[View] = []
    while view.kind is not None and "strided" not in view._cache:
        if len(view.sources) != 1:
            for v in _in_order(view, "strided"):
                v._cache["strided"] = _strided_over(v)
            break
        chain.append(view)
        view = view.sources[0]
    found: Any = (view, contiguous(view.shape)) if view.kind is None else view._cache["strided"]
    for view in reversed(chain):
        view._cache["strided"] = found = _strided_over(view, found)
    return found  # type: ignore[no-any-return]


def _strided_over(view: View, below: tuple[Allocation, Strided] | None = None) -> tuple[Allocation, Strided] | None:
    """The strided form of a view whose sources have theirs, `below` that of the only one."""
    if 0 in view.shape:
        return None
    if len(view.sources) > 1:
        return _folded(view)
    (source,) = view.sources
    below = strided_form_of(source) if below is None else below
    if below is None:
        return None
    step = getattr(view.kind, "strided", None)
    form = step((source.shape,), below[1]) if step is not None else None
    return None if form is None else (below[0], form)


MOST_FOLDED = 64
"""A view of more pieces is not folded for the sake of its strided form."""


def _folded(view: View) -> tuple[Allocation, Strided] | None:
    """The strided form that pieces of one strided allocation fold to, such as slices put together again."""
    assert view.kind is not None, "only an allocation has no kind"
    below = [strided_form_of(source) for source in view.sources if 0 not in source.shape]
    if any(form is None or below[0] is None or form[0] != below[0][0] for form in below):
        return None
    pieces = view.kind.pieces(tuple([source.shape for source in view.sources]))
    if len(pieces) > MOST_FOLDED or any(piece.source < 0 for piece in pieces):
        return None
    view._cache["normal"] = flat = _normal_by_patches(view)
    (one, *more) = flat.patches
    if more or not isinstance(one.home, Allocation):
        return None
    axes = renumber((tuple([(count, step) for count, _, step in one.digits]),), view.shape)
    return None if axes is None else (one.home, (one.cell, axes))


class _Ranked(NamedTuple):
    """What a view reads, by the row-major numbers of the last of its sources that lists its cells in ascending order.

    Parameters
    ----------
    sets : tuple of DisjointSetts
        Each is filled with the next, so that the first holds that source's cells; none if it is the allocation.
    size : int
        How many cells that source has.
    form : Strided or None
        The view over that source; None if the view's cells are the filled sets, in any order and number.
    """

    sets: tuple[DisjointSetts, ...]
    size: int
    form: Strided | None

    @property
    def cells(self) -> tuple[DisjointSetts, ...] | None:
        """The sets with the view's own as last, if it is not all cells; None if it is not one nest."""
        nest = () if self.form is None else nest_of(self.form, self.size)
        return None if nest is None else _longer(self.sets, DisjointSetts._of((nest,)))


EVERY = DisjointSetts._of(((),))
MAX_CHAIN = 64
"""Longer chains of filled sets are not held."""


def _longer(sets: tuple[DisjointSetts, ...], ink: DisjointSetts) -> tuple[DisjointSetts, ...] | None:
    if ink == EVERY:
        return sets
    return (*sets, ink) if len(sets) < MAX_CHAIN else None


def _chained(view: View) -> tuple[DisjointSetts, ...]:
    """The sets each of which is filled with the next, so that the first holds the view's cells; none if not known."""
    ranked = None if 0 in view.shape else _ranked(view)
    sets = None if ranked is None else ranked.cells
    return () if sets is None else sets or (EVERY,)


def _ranked(view: View) -> _Ranked | None:
    above: list[View] = []
    while view.kind is not None and "ranked" not in view._cache and len(view.sources) == 1 and 0 not in view.shape:
        above.append(view)
        view = view.sources[0]
    if view.kind is None:
        found: Any = None if 0 in view.shape else _Ranked((), view.size, contiguous(view.shape))
    else:
        found = view._cache.get("ranked")
    for view in reversed(above):
        if found is not None:
            found = _ranked_over(view, view.sources[0], found)
        view._cache["ranked"] = found
    return found  # type: ignore[no-any-return]


def _ranked_over(view: View, source: View, inner: _Ranked) -> _Ranked | None:
    """The ranked form of a view, made of that of its one source."""
    step = getattr(view.kind, "strided", None)
    form = step((source.shape,), inner.form) if step is not None and inner.form is not None else None
    if form is not None:
        return inner._replace(form=form)
    sets, size = inner.cells, source.size
    if sets is None:
        return None
    if inner.form is not None and _ascends(inner.form):
        form = step((source.shape,), contiguous(source.shape)) if step is not None else None
        if form is not None:
            return _Ranked(sets, size, form)
        own = _local(view, source)
        longer = None if own is None else _longer(sets, own)
        return None if longer is None else _Ranked(longer, size, None)
    # in another order the numbers are lost, but what reads all cells still reads the same
    own = _local(view, source)
    return _Ranked(sets, size, None) if own is not None and own.count(0, size) == size else None


def _local(view: View, source: View) -> DisjointSetts | None:
    """The row-major numbers of a view's one source that it reads, if they are few setts."""
    assert view.kind is not None, "only an allocation has no kind"
    return queries.memory.local_setts(view.kind.pieces((source.shape,)), view.shape, source.shape)


def _ascends(form: Strided) -> bool:
    """Whether a strided view lists its cells in ascending order, none twice."""
    reach = 0
    for levels in reversed(form[1]):
        for count, by in reversed(levels):
            if count > 1 and by <= reach:
                return False
            reach += (count - 1) * by
    return True


def _chain(view: View) -> list[View]:
    """As `_in_order` where each of these views has one source, the usual case; empty where one has more."""
    order = [view]
    while len(view.sources) == 1:
        (view,) = view.sources
        if view.kind is None or "composed" in view._cache:
            return order[::-1]
        order.append(view)
    return []


def _in_order(view: View, done: str = "composed") -> list[View]:
    """The views below and including `view` that have no `done` yet, sources before what reads them."""
    order: list[View] = []
    seen: set[int] = set()
    stack = [(view, False)]
    while stack:
        v, ready = stack.pop()
        if ready:
            order.append(v)
        elif v.kind is not None and id(v) not in seen and done not in v._cache:
            seen.add(id(v))
            stack.append((v, True))
            stack += [(s, False) for s in v.sources]
    return order


def _one_run(view: View) -> tuple[Allocation, Strided] | None:
    """The strided form of the flattened view, where its patches are known and are one."""
    flat = view._cache.get("normal")
    if not isinstance(flat, Flat) or len(flat.patches) != 1:
        return None
    ((_, cell, digits, home),) = flat.patches
    levels = tuple([(count, step) for count, _, step in digits])
    return (home, (cell, (levels,))) if isinstance(home, Allocation) else None


def _normal(view: View) -> Flat:
    """What each index of a view reads, by row-major numbers."""
    if isinstance(view, Allocation):  # not kept: it would hold itself
        return Flat(0, (), 0) if 0 in view.shape else _whole(view.size, view)
    found = view._cache.get("normal")
    if found is None:
        for v in _in_order(view, "normal"):
            v._cache["normal"] = found = _normal_over(v)
    return found  # type: ignore[return-value]


def _whole(size: int, home: Hashable) -> Flat:
    return Flat(size, (strided_patch(0, ((size, 1),), home),), 0)


def _normal_over(view: View) -> Flat:
    """The normal form of a view whose sources have theirs."""
    assert view.kind is not None, "only an allocation has no kind"
    if 0 in view.shape:
        return Flat(0, (), 0)
    strided = strided_form_of(view)
    if strided is not None:
        home, (offset, axes) = strided
        return Flat(view.size, (strided_patch(offset, tuple([one for axis in axes for one in axis]), home),), 0)
    return _normal_by_patches(view)


def _normal_by_patches(view: View) -> Flat:
    """The normal form by the patches of the sources: of these, or of the views below them if that takes fewer."""
    found = view._cache.get("normal")
    if found is not None:
        return found  # type: ignore[return-value]
    flat = _flat_over(view, [_normal(source) for source in view.sources])
    found = None if flat is OPEN else flat
    base = None if found is not None and len(found.patches) < 3 else _base_of(view)
    if base is not None and (found is None or len(found.patches) > len(_normal(base).patches) > 1):
        again = _normal_over_two(view, base)
        found = found if again is None or (found and len(found.patches) < len(again.patches)) else again
    return _whole(view.size, Opaque(view)) if found is None else found


def _flat_over(view: View, sources: Sequence[Flat]) -> Flat | Open:
    assert view.kind is not None, "only an allocation has no kind"
    shapes = tuple([source.shape for source in view.sources])
    return flat_of(view.kind.pieces(shapes), view.shape, list(zip(shapes, sources, strict=True)))


def _base_of(view: View) -> View | None:
    """The one view that all sources of a view are, or are made of by one kind each; None if there is none."""
    below = {id(source if source.kind is None else source.sources[0]) for source in view.sources}
    if len(below) > 1 or any(len(source.sources) > 1 for source in view.sources):
        return None
    base = view.sources[0].sources[0] if view.sources[0].sources else view.sources[0]
    return None if 0 in base.shape else base


def _normal_over_two(view: View, base: View) -> Flat | None:
    """The normal form where two kinds after each other, such as a deal and an interleaving, are one strided view."""
    same = _whole(base.size, Opaque(base))
    each = [same if v is base else _flat_over(v, [same]) if v.size else Flat(0, (), 0) for v in view.sources]
    both = OPEN if OPEN in each else _flat_over(view, [flat for flat in each if flat is not OPEN])
    if both is OPEN or len(both.patches) != 1 or both.patches[0].home is not same.patches[0].home:
        return None
    over = _normal(base) if both == same else flat_over(both.patches[0].forms, _normal(base))
    return None if over is OPEN else over


def _first(view: View) -> Allocation:
    """The allocation at the end of a chain that goes to the first source each time."""
    while view.sources:
        view = view.sources[0]
    assert isinstance(view, Allocation), "only an allocation has no sources"
    return view


def _ends(view: View) -> tuple[tuple[Hashable, int], tuple[Hashable, int]]:
    """What the first and the last index of a view read."""
    strided = strided_form_of(view)
    if strided is None:
        return _read_at(view, (0,) * view.rank), _read_at(view, tuple(n - 1 for n in view.shape))
    home, (first, axes) = strided
    return (home, first), (home, first + sum([(n - 1) * by for levels in axes for n, by in levels]))


def _read_at(view: View, index: Shape) -> tuple[Hashable, int]:
    """The allocation and the row-major number of the cell that an index reads, or a constant and 0."""
    walked = 0
    while view.kind is not None:
        if walked == FAR:  # from here on by patches, which cost the same however long the chain is
            home, number = _normal(view).at(Relinearize(view.shape, (view.size,)).apply(index)[0])
            if not isinstance(home, Opaque):
                return home, number
            assert isinstance(home.view, View), "what is not spelled out is a view"
            view, walked = home.view, 0
            index = Relinearize((view.size,), view.shape).apply((number,))
        assert view.kind is not None, "memory is no view that is not spelled out"
        pieces = view.kind.pieces(tuple(source.shape for source in view.sources))
        piece, cell = next(((p, c) for p in pieces if (c := cell_read(p, index)) is not None), (None, ()))
        if piece is None:
            raise ValueError(f"{view!r}: no piece of {view.kind} reads anything at {index}; pieces partition a view")
        if piece.fill is not None:
            return Constant(piece.fill), 0
        view, index, walked = view.sources[piece.source], cell, walked + 1
    assert isinstance(view, Allocation), "only an allocation has no kind"
    return view, Relinearize(view.shape, (view.size,)).apply(index)[0]


FAR = 16
"""So many kinds of a chain are gone through one by one to see what an index reads."""


def _same_by_pieces(one: View, two: View) -> bool | None:
    """Whether two views of one shape read the same at each index, by as many patches as pieces may be; None if open."""
    most = current().max_pieces
    mine, theirs = _spell_out(one, most), _spell_out(two, most)
    return None if mine is OPEN or theirs is OPEN else agree(mine, theirs, most)


def _spell_out(view: View, most: int) -> Flat | Open:
    """The patches of a view of many, straight from its pieces."""
    allocations, pieces = view._composed()
    sources = [(a.shape, _normal(a)) for a in allocations]
    return flat_of(pieces, view.shape, sources, most)


def _same_by_isl(one: View, two: View) -> bool:
    """Whether two views of one shape read the same at each index, as isl finds it."""
    if not isl.available():
        raise TooHard(f"{SAME}, and isl, which might decide it, is not installed: pip install islpy")
    operations = min(isl.MAX_OPERATIONS * (len(one.pieces) + len(two.pieces)), isl.BUILD_OPERATIONS)
    refusal = TooHard(f"{SAME}, and isl needs more than {operations} operations; ask about parts of the views")

    def same() -> bool:
        mine, theirs = _relations(one), _relations(two)
        return mine.keys() == theirs.keys() and all(mine[home].is_equal(theirs[home]) for home in mine)

    return isl.bounded(same, refusal, operations)


def _relations(view: View) -> dict[Hashable, Any]:
    """isl's maps from the view's indices to the cells of each allocation, and to those of rank 0 of each constant."""
    found: dict[Hashable, Any] = {a: m for a, m in isl.to_isl(view).items() if not m.is_empty()}
    box = isl.box_set((0,) * view.rank, view.shape)
    for piece in view.pieces:
        if piece.fill is not None:
            value, more = Constant(piece.fill), isl.to_isl(piece).intersect_domain(box)
            found[value] = found[value].union(more) if value in found else more
    return {home: m for home, m in found.items() if not m.is_empty()}


SAME = "View.same_view: the views are of no few patches"


def _by_allocation(
    view: View, cells: Region | DisjointRegions | Mapping[Allocation, Region | DisjointRegions]
) -> dict[Allocation, DisjointRegions]:
    """The cells that are asked for, for each allocation that the view is made of."""
    if not isinstance(cells, Mapping):
        homes = view.allocations
        if len(homes) > 1:
            names = ", ".join(a.name or f"{a.shape}" for a in homes)
            raise ValueError(f"View.preimage: the view is made of {names}; give a mapping of allocations to cells")
        cells = {_first(view): cells}
    for a, found in cells.items():
        if not isinstance(found, (Region, DisjointRegions)):
            raise TypeError(f"View.preimage: cells must be a Region or DisjointRegions, not {type(found).__name__}")
        if found.shape != a.shape or any(found.start):
            raise ValueError(
                f"View.preimage: cells in a box of shape {found.shape} from {found.start}, where the allocation "
                f"{a.name!r} has the shape {a.shape}; write Region({a.shape}, …)"
            )
    return {a: DisjointRegions(a.shape, found.regions) for a, found in cells.items()}


def _preimage_by_isl(view: View, cells: Mapping[Allocation, DisjointRegions]) -> ImplicitRegion:
    what = f"View.preimage: the indices of a view of shape {view.shape} that read the cells are no few products"
    if not isl.available():
        raise TooManyPieces(f"{what}, and isl, which can hold them, is not installed; overlaps() needs no such set")
    refusal = TooManyPieces(f"{what}, and isl does not make the set either; overlaps() and its witness need none")
    operations = isl.BUILD_OPERATIONS * len(view.pieces)

    def made() -> str:
        maps = isl.to_isl(view)
        found = isl.box_set((0,) * view.rank, (0,) * view.rank)
        for a, regions in cells.items():
            if a in maps:
                found = found.union(isl.to_isl(regions).apply(maps[a].reverse()))
        return str(found)

    return ImplicitRegion((0,) * view.rank, view.shape, isl.bounded(made, refusal, operations))


def _simple(view: View) -> View:
    """The shortest of a view built anew, the same kind over simplified sources, and the view itself.

    Where a chain is long, only it and what it does not spell out are built anew, not all that is on the way.
    """
    stack = [view]
    anew: dict[int, View] = {}
    while stack:
        v = stack[-1]
        if v.kind is None or "simple" in v._cache:
            stack.pop()
            continue
        made = anew.get(id(v))
        is_long = _kinds(v, LONG) == LONG
        if made is None:
            below = [u for u in _opaque_in(_normal(v)) if is_long and u is not v and "simple" not in u._cache]
            if below:
                stack += below
                continue
            made = anew[id(v)] = _rebuilt_from_patches(v)
            if not is_long and _kinds(made) > SHORT:
                stack += v.sources
                continue
        if is_long:
            made = v if _kinds(made, LONG) == LONG and _kinds(v) <= _kinds(made) else made
        elif _kinds(made) > SHORT or all(source.kind is None for source in v.sources):
            for other in _others(v):
                made = other if _kinds(other, _kinds(made)) < _kinds(made) else made
        if made.kind is not None:
            made._cache["simple"] = None  # itself
        if made is not v:
            v._cache["simple"] = made
        stack.pop()
    return view._simplified()


SHORT = 2
"""Of so few kinds a chain can only be longer than the view's own kind over memory."""
LONG = 64
"""A chain of so many kinds is not simplified kind by kind."""


def _others(view: View) -> Iterator[View]:
    """Other chains for a view: of a view one or two below it that is the same, over simplified sources, its own."""
    for source in view.sources:
        for below in (source, *source.sources):
            if below.shape == view.shape and below.size and agree(_normal(below), _normal(view)):
                yield below._simplified()
    sources = tuple([source._simplified() for source in view.sources])
    if any(a is not b for a, b in zip(sources, view.sources, strict=True)):
        assert view.kind is not None, "only an allocation has no kind"
        yield view_of(view.shape, view.kind, sources)
    yield view


def _kinds(view: View, most: int | None = None) -> int:
    """How many kinds a view is made of; no more are counted than `most`."""
    seen: set[int] = set()
    stack = [view]
    while stack and (most is None or len(seen) < most):
        v = stack.pop()
        if v.kind is not None and id(v) not in seen:
            seen.add(id(v))
            stack += v.sources
    return len(seen)


def _rebuilt_from_patches(view: View) -> View:
    home = _first(view)
    if 0 in view.shape:
        none = home if home.size == 0 else home.reshape(home.size)[:0]
        return none if none.shape == view.shape else none.reshape(view.shape)

    def leaf(home: Hashable) -> View:
        found = home.view if isinstance(home, Opaque) else home
        assert isinstance(found, View), "views read memory, and what is not spelled out"
        return found if found is view else found._simplified()

    blank: View = home
    return Assembly(leaf, blank).view(_normal(view), view.shape)


Composed = tuple[tuple[Allocation, ...], tuple[Piece, ...]]


def _homes(view: View) -> tuple[Allocation, ...]:
    """The allocations at the end of the chain, in order of first appearance."""
    found: dict[Allocation, None] = {}
    seen: set[int] = set()
    stack = [view]
    while stack:
        v = stack.pop()
        if isinstance(v, Allocation):
            found[v] = None
        elif id(v) not in seen:
            seen.add(id(v))
            stack += v.sources[::-1]
    return tuple(found)


def _composed_within(view: View, work: Budget) -> Composed:
    """Allocations and pieces of a view.

    Raises
    ------
    TooHard
        If the pieces of all views gone through have more steps and guards together than `work` allows.
    """
    if isinstance(view, Allocation):
        return view._composed()
    if "composed" in view._cache:
        return view._cache["composed"]  # type: ignore[return-value]
    budget = current().budget
    refused: Any = view._cache.get("refused")
    if refused is not None and budget <= refused[0]:  # it is asked for in several ways, one after another
        raise TooHard(refused[1])
    order = _chain(view) or _in_order(view)
    anew = _composed_anew(view, order, work) if len(order) > FAR else None
    if anew is not None:
        view._cache["composed"] = anew
        return anew
    for v in order:
        composed = _compose(v, work)
        if work.is_overdrawn:
            why = (
                f"{view!r}: its pieces, composed through {len(order)} kinds, take more than {budget} guards and "
                f"steps; ask about a view below it, or allow more by limits(budget={10 * budget})"
            )
            view._cache["refused"] = (budget, why)
            raise TooHard(why)
        v._cache["composed"] = _fewer(v, *composed, work)
    return view._cache["composed"]  # type: ignore[return-value]


def _composed_anew(view: View, order: Sequence[View], work: Budget) -> Composed | None:
    """As `_composed_within`, by the view's patches if these take fewer kinds than the views in order; else None."""
    allocations = _homes(view)
    if 0 in view.shape:
        return allocations, ()
    simple = _rebuilt_from_patches(view)
    if _kinds(simple, len(order)) >= len(order):
        return None
    for below in _opaque_in(_normal(view)):
        _composed_within(below, work)
    return _numbered(allocations, _composed_within(simple, work))


def _numbered(allocations: tuple[Allocation, ...], composed: Composed) -> Composed:
    """The same pieces, which number other allocations so far."""
    homes, pieces = composed
    to = {k: allocations.index(a) for k, a in enumerate(homes)}
    return allocations, tuple([_renumbered(piece, to) for piece in pieces])


def _opaque_in(flat: Flat) -> list[View]:
    """The views that the patches of a normal form, and those below these, do not spell out."""
    found: dict[int, View] = {}
    seen: set[int] = set()
    stack = [flat]
    while stack:
        for patch in stack.pop().patches:
            home = patch.home
            if isinstance(home, Flat) and id(home) not in seen:
                seen.add(id(home))
                stack.append(home)
            elif isinstance(home, Opaque):
                assert isinstance(home.view, View), "what is not spelled out is a view"
                found[id(home.view)] = home.view
    return list(found.values())


def _compose(view: View, work: Budget | None = None) -> Composed:
    """Allocations and pieces of a view whose sources are composed."""
    assert view.kind is not None, "only an allocation has no kind"
    if len(view.sources) == 1:
        (source,) = view.sources
        if isinstance(source, Allocation) and 0 not in view.shape:
            own = view.kind.pieces((source.shape,))
            if not any(piece.guards for piece in own):  # they read the allocation as they are
                return (source,), own
        allocations, pieces = source._composed()
        return allocations, compose_pieces(view.kind.pieces((source.shape,)), (pieces,), view.shape, work)
    number: dict[Allocation, int] = {}
    inner: dict[int, Sequence[Piece]] = {}
    for k, source in enumerate(view.sources):
        allocations, pieces = source._composed()
        to = {i: number.setdefault(a, len(number)) for i, a in enumerate(allocations)}
        inner[k] = pieces if all(i == j for i, j in to.items()) else [_renumbered(p, to) for p in pieces]
    outer = view.kind.pieces(tuple(s.shape for s in view.sources))
    return tuple(number), compose_pieces(outer, inner, view.shape, work)


MANY = 12
"""A view of more pieces is composed anew from its patches, if these are fewer."""


def _fewer(view: View, allocations: tuple[Allocation, ...], pieces: tuple[Piece, ...], work: Budget) -> Composed:
    """The pieces of a view, or those of the same view built anew from its patches if they are fewer."""
    if len(pieces) <= MANY:
        return allocations, pieces
    flat = _normal(view)
    if flat.stages or 2 * len(flat.patches) > len(pieces) or _opaque_in(flat):
        return allocations, pieces
    simple = _rebuilt_from_patches(view)
    if _kinds(simple, len(pieces)) >= len(pieces):
        return allocations, pieces
    others = _composed_within(simple, work)
    return _numbered(allocations, others) if len(others[1]) < len(pieces) else (allocations, pieces)


def _renumbered(piece: Piece, to: Mapping[int, int]) -> Piece:
    return piece if piece.source < 0 else Piece(to[piece.source], piece.guards, piece.map)


def _no_view(what: str, x: object) -> str:
    return (
        f"{what} is a {type(x).__name__}, not a View; as_view makes an array one, and the functions overlaps, "
        "contains and same_elements take both"
    )
