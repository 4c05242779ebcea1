"""Views of memory: a view kind over other views, and at the end of the chain stand allocations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias, cast

import numpy as np
from msgspec import Struct

from tapestry_sets.digits import Strided, contiguous, renumber
from tapestry_sets.draw import views as draw_views
from tapestry_sets.integers import EMPTY, DisjointSetts, Nest, nest_of
from tapestry_sets.limits import (
    OPEN,
    Budget,
    Checked,
    Frozen,
    FrozenDict,
    Open,
    TooHard,
    as_int,
    as_ints,
    current,
    cut_text,
    quote,
)
from tapestry_sets.views import hook, tuning
from tapestry_sets.views.kept_answers import NOTHING, UNASKED, Known, Unasked
from tapestry_sets.views.kinds.choosing import AsStrided, Slice, cut_strided
from tapestry_sets.views.kinds.kind import ViewKind, check_out_shape
from tapestry_sets.views.normal.assemble import Assembly
from tapestry_sets.views.normal.normal_form import Opaque, agree, find_opaque, flat_of, flat_over
from tapestry_sets.views.normal.patches import Constant, Flat, strided_patch
from tapestry_sets.views.pieces.maps import Relinearize, Shape
from tapestry_sets.views.pieces.piece import Piece, PiecesOf, compose_numbered, identity_piece, number_anew
from tapestry_sets.views.pieces.reading import cell_read
from tapestry_sets.views.products import IndexProducts, read_products
from tapestry_sets.views.questions import Questions, read_alike, say_no_view
from tapestry_sets.views.ranked import EVERY, Ranked
from tapestry_sets.views.spelling import spell_view
from tapestry_sets.views.subscript import Key, plain_slices
from tapestry_sets.views.walks import sources_first, walk
from tapestry_sets.views.words import Viewable

if TYPE_CHECKING:
    from tapestry_sets.alias import Cells

# ----------------------------------------------------------------------------------------------------- the view


class View(Questions, Frozen):
    """A shape over cells of memory: an allocation, or a view kind over other views.

    Make one with `allocate` and its methods. Of a strided view the strides are found when it is made; nothing else is
    computed before a question is asked.

    Views are equal if they have one shape and read the same cell, or the same constant, at each index, however they
    were made: ``==`` asks `same_view`, so that it is symmetric and transitive, and raises `TooHard` where that does.
    Views without cells are equal if they are made of the same memory first.

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((4, 6), name="A")
    >>> A[1:, ::2].reshape(9)
    A[1:, ::2].reshape(9)
    >>> A[1:][1:] == A[2:], A.T.T == A, A.reshape(6, 4).reshape(4, 6) == A, A[1:] == A[:3]
    (True, True, True, False)
    """

    __slots__ = ()

    def _refuse_arithmetic(self, other: object) -> NoReturn:
        raise TypeError(
            f"arithmetic of '{type(self).__name__}' {quote(self)} and '{type(other).__name__}': a view has places and "
            "no values; compute on the arrays that it describes, or on the tensors of a tapestry_plan graph"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse_arithmetic

    @property
    @abstractmethod
    def sources(self) -> tuple[View, ...]:
        """The views that this one reads; none of an allocation.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> a = allocate((4, 6), name="a")
        >>> a[1:].sources == (a,)
        True
        """

    @property
    @abstractmethod
    def _home(self) -> Allocation | None:
        """The allocation that the strided form steps through; None where there is none, or it is not found yet."""

    @property
    @abstractmethod
    def _form(self) -> Strided | Unasked | None:
        """The strided form; None if the view is not strided, `UNASKED` if that is not found yet."""

    __contains__ = None  # a view has places, not values: `3 in view` has no meaning

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, View):
            return NotImplemented
        if self is other or self.shape != other.shape:
            return self is other
        if 0 in self.shape:
            return _first(self) == _first(other)
        return _made_alike(self, other) or read_alike(self, other)

    def __hash__(self) -> int:
        if 0 in self.shape:
            home = _first(self)
            return hash(home if self.shape == home.shape else (self.shape, home))
        ends = self._read_ends()
        one = ends[0][0]
        if isinstance(one, Allocation) and one.shape == self.shape and ends == ((one, 0), (one, self.size - 1)):
            return hash(one)  # it may equal the allocation
        return hash((self.shape, ends))

    def __copy__(self) -> Self:
        return self

    def __repr__(self) -> str:
        return spell_view(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return draw_views.views_mimebundle(self)

    @abstractmethod
    def _compose(self, work: Budget) -> Composed:
        """Allocations and pieces of the view.

        Raises
        ------
        TooHard
            If the pieces of all views gone through have more steps and guards together than `work` allows.
        """

    def _read_at(self, index: Shape) -> tuple[Hashable, int]:
        return _read_at(self, index)

    def _read_ends(self) -> tuple[tuple[Hashable, int], tuple[Hashable, int]]:
        strided = self.strided_form()
        if strided is None:
            return _read_at(self, (0,) * self.rank), _read_at(self, tuple([n - 1 for n in self.shape]))
        home, (first, axes) = strided
        return (home, first), (home, first + sum([(n - 1) * by for levels in axes for n, by in levels]))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of the whole chain: sources are positions in `allocations`, their domains partition the view.

        Raises
        ------
        TooHard, TooManyPieces
            If they shatter: they need more steps and guards than the budget of `limits`, or are too many.

        Examples
        --------
        >>> from tapestry_sets.views import allocate, concatenate
        >>> len(concatenate([allocate((4,)), allocate((3,))]).pieces)
        2
        """
        return self._compose(Budget(current().budget))[1]

    # -- memory ---------------------------------------------------------------------------------------

    def find_strided(self) -> tuple[Allocation, Strided] | None:
        """Return the allocation and the strided form, None where the view has none or reads no cell.

        Unlike `strided_form`, which is at hand or is not, it is looked for: in the patches, and by strides that a few
        cells suggest and all of them are compared with.

        Raises
        ------
        TooHard
            If it takes too many patches to compare, and isl does not decide.

        Examples
        --------
        >>> from tapestry_sets.views import allocate, concatenate
        >>> A = allocate((4, 6), name="A")
        >>> concatenate([A[:, :2], A[:, 2:]], axis=1).find_strided()[1]
        (0, (((4, 6),), ((6, 1),)))
        """
        if 0 in self.shape:
            return None
        return self.strided_form() or _search_strided(self)

    def strided_cells(self) -> tuple[Allocation, Strided] | None:
        """Return an allocation and a strided form that reads the same cells, in whatever order and however often.

        It is that of the view, or of a view below it of which every cell is read; None if it is not at hand or the
        view reads no cell.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> half = allocate((5, 6))[:, :2].reshape(2, 5)
        >>> half.strided_form() is None, half.T.strided_cells()[1]
        (True, (0, (((5, 6),), ((2, 1),))))
        """
        view: View = self
        while 0 not in view.shape:
            found = view.strided_form()
            if found is not None or len(view.sources) != 1 or not isinstance(view, Derived):
                return found
            if not getattr(view.kind, "reads_all", False):
                return None
            (view,) = view.sources
        return None

    def as_nest(self) -> tuple[Allocation, Nest] | None:
        """Return the one allocation that the view reads and its cells there as one nest, where that is quickly had.

        The nest holds the row-major numbers of the cells in [0, the allocation's size); it repeats with that period.
        None where the view has several sources, or reads cells that are not one nest: `cells` has them then.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> A = allocate((27,))
        >>> A.reshape(3, 3, 3)[:2, :2, :2].as_nest()[1]
        ((14, 27, 0), (5, 9, 0), (2, 3, 0))
        """
        strided = self.strided_form(fold=False) or _find_run(self)
        if strided is None:
            return None
        home, form = strided
        nest = EMPTY if 0 in home.shape else nest_of(form, prod(home.shape))
        return None if nest is None else (home, nest)

    @property
    def cells(self) -> Mapping[Allocation, Cells]:
        """The cells that the view reads, for each allocation that it reads at all.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> a = allocate((4, 6), name="a")
        >>> a[1:, ::2].cells[a].size
        9
        """
        return self._find_cells()

    def _find_cells(self) -> Mapping[Allocation, Cells]:
        # what is kept holds a view alike, not this one, by which it is kept
        alike: View = self
        if isinstance(self, Derived):
            alike = view_of(self.shape, self.kind, self.sources, self._home, self._form)
        read = read_products(self) if self.strided_form(fold=False) is None else None
        is_best = read is not None and all(p.is_best for p in read.values())
        if not is_best and self.strided_form() is not None:
            read = None
        chain = () if is_best else _find_chain(self)
        if chain:
            home, ranked = _first(self), _find_ranked(self)
            strides = None if ranked is None or ranked.sets else ranked.form
            cells = hook.memory.filled_cells(
                chain, PiecesOf(alike, home), self.shape, home.shape, strides, partial(_find_products, alike, home)
            )
            return FrozenDict({home: cells} if strides is not None or not cells.is_empty else {})
        if read is not None:  # then the cells need no pieces
            return FrozenDict(
                (home, hook.memory.product_cells(found, PiecesOf(alike, home), self.shape, home.shape))
                for home, found in read.items()
            )
        allocations, pieces = self._compose(Budget(current().budget))
        each = (
            hook.memory.read_cells(pieces, k, self.shape, a.shape, a.size, partial(_find_products, alike, a))
            for k, a in enumerate(allocations)
        )
        return FrozenDict((a, c) for a, c in zip(allocations, each, strict=True) if not c.is_empty)

    def simplify(self) -> View:
        """Return the same view as a short chain of kinds over its allocations.

        It is built anew from its patches, which takes at most `Assembly.view`'s number of kinds, however long the
        chain; where this view, over its sources simplified, has fewer kinds, it stays. Of a chain of many kinds the
        sources on the way are not simplified. So a chain of edits that keeps the view simple stays short, and what is
        asked of it costs the same.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
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
        return _simplify(self)

    # -- colors and new memory -----------------------------------------------------------------------

    def recolor(self, color: Hashable) -> View:
        """Return the same view of the same memory, under one color.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> a = allocate((4,), color="old")
        >>> b = a[1:].recolor("new")
        >>> sorted(b.colors()), b.same_elements(a[1:])
        (['new'], True)
        """
        check_color(color, "recolor")
        return _rebuild(self, lambda a: Allocation._of(a.shape, a.name, a.itemsize, color, a.memory, a._form))

    def clone(self, color: Hashable = None) -> View:
        """Return a view of the same layout over new memory, in one color or, by default, in the colors of the old.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> a = allocate((4, 6), name="a")
        >>> b = a[:, ::2].clone()
        >>> b.shape, b.contains(a[:, ::2])
        ((4, 3), False)

        References
        ----------
        poprithms, memory/alias: Graph::clone, CloneColorMethod.
        """

        check_color(color, "clone")

        def anew(a: Allocation) -> Allocation:
            return Allocation(a.shape, a.name, a.itemsize, a.color if color is None else color)

        return _rebuild(self, anew)

    # -- kinds over it --------------------------------------------------------------------------------

    def apply(self, kind: ViewKind, *others: View) -> View:
        """Return the view of a kind over this view and others.

        Examples
        --------
        >>> from tapestry_sets.views import Concat, allocate
        >>> a, b = allocate((3,), name="a"), allocate((2,), name="b")
        >>> a.apply(Concat(0), b).shape
        (5,)
        """
        if not others:
            shape = check_out_shape(kind, (self.shape,))
            form = self._form
            if form is UNASKED:
                return view_of(shape, kind, (self,))
            form = _extend_strided(kind, shape, self.shape, form)
            return view_of(shape, kind, (self,), None if form is None else self._home, form)
        sources = (self, *others)
        for k, source in enumerate(others, 1):
            if not isinstance(source, View):
                raise TypeError(say_no_view(f"apply: source {k} of {type(kind).__name__}", source))
        return view_of(check_out_shape(kind, tuple([s.shape for s in sources])), kind, sources)

    def view_as(self, dtype: DType) -> View:
        """Return the elements of a wider dtype that lie in the last axis: NumPy's ``view(dtype)``, cell by cell.

        Where NumPy has an element, this has an axis of its cells, as `as_view` has one of its bytes: with k cells an
        element the shape (…, n) becomes (…, n / k, k), and one of as many bytes as a cell leaves the view as it is.

        Parameters
        ----------
        dtype : NumPy dtype
            Its bytes are a multiple of `itemsize`. Cells are the least that views tell apart: to read memory under
            dtypes of several widths, `allocate` it in the narrowest, or in bytes.

        Raises
        ------
        ValueError
            If the bytes of a cell do not divide the dtype's, an element the last axis, or its cells are not one after
            the other in memory.
        TooHard
            If the view has too many patches to tell.

        Examples
        --------
        >>> from tapestry_sets import overlap
        >>> from tapestry_sets.views import allocate
        >>> page = allocate((8, 96), name="page", dtype="uint8")
        >>> keys, scales = page[:, :64].view_as("float16"), page[:, 60:].view_as("float32")
        >>> keys.shape, scales.shape, overlap(keys, scales).nbytes
        ((8, 32, 2), (8, 9, 4), 32)
        """
        wide, cell = width_of(dtype, "view_as"), self.itemsize
        if wide == cell:
            return self
        many, rest = divmod(wide, cell)
        if rest:
            raise ValueError(
                f"view_as: dtype {quote(dtype)} has {wide} bytes, and a cell of {quote(self)} has {cell}, which do "
                "not divide them; allocate the memory in cells of fewer bytes"
            )
        if not self.shape or self.shape[-1] % many:
            raise ValueError(
                f"view_as: dtype {quote(dtype)} has {many} cells of {cell} bytes, which do not divide the last axis of "
                f"shape {quote(self.shape)}; slice it to a multiple of {many}"
            )
        if not _lie_together(self, many):
            raise ValueError(
                f"view_as: the {many} cells of an element of {quote(dtype)} are not one after the other in memory "
                f"along the last axis of {quote(self)}; view it before it is sliced or transposed"
            )
        return self.reshape(*self.shape[:-1], self.shape[-1] // many, many)

    def __getitem__(self, key: Key | tuple[Key, ...]) -> View:
        """Return the view under integers, slices, Ellipsis, None and one array of indices, with NumPy's meaning."""
        plain = plain_slices(key if isinstance(key, tuple) else (key,), self.shape)
        if plain is None:
            return Viewable.__getitem__(self, key)
        shape, triples, cuts = plain
        form = self._form
        if form is UNASKED:
            return view_of(shape, Slice(triples), (self,))
        form = None if form is None or 0 in shape else cut_strided(form, cuts)
        return view_of(shape, Slice(triples), (self,), None if form is None else self._home, form)


Composed = tuple[tuple["Allocation", ...], tuple[Piece, ...]]


class Derived(View, Struct, eq=False, metaclass=Checked):
    """A view kind over other views.

    Parameters
    ----------
    shape : tuple of int
        What `kind.out_shape` gives.
    kind : ViewKind
    sources : tuple of View

    Raises
    ------
    ValueError
        If the kind gives another shape.
    """

    shape: Shape
    kind: ViewKind
    sources: tuple[View, ...]
    _home: Allocation | None = None
    _form: Strided | Unasked | None = UNASKED
    _known: Known = NOTHING

    @classmethod
    def _check(cls, shape: Shape, kind: ViewKind, sources: tuple[View, ...]) -> tuple[Any, ...]:
        given = kind.out_shape(tuple([source.shape for source in sources]))
        if given != shape:
            raise ValueError(
                f"Derived: shape {quote(shape)} for a {type(kind).__name__} of its sources, which has {quote(given)}"
            )
        return shape, kind, sources

    def __reduce__(self) -> tuple[Any, ...]:
        views = sort_views(self)
        at = {id(view): k for k, view in enumerate(views)}
        rows = [(v.shape, v.kind, tuple(at[id(s)] for s in v.sources)) if isinstance(v, Derived) else v for v in views]
        return _unpickled, (rows,)

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """The allocations at the end of the chain, in order of first appearance; pieces number them."""
        found = self._known.composed
        return _homes(self) if found is None else found[0]

    def _compose(self, work: Budget) -> Composed:
        return self._known.composed or _compose_chain(self, work)

    def as_nest(self) -> tuple[Allocation, Nest] | None:
        found = self._known.nest
        if found is UNASKED:
            _learn(self).nest = found = View.as_nest(self)
        return found

    @property
    def cells(self) -> Mapping[Allocation, Cells]:
        """The cells that the view reads, for each allocation that it reads at all."""
        found = self._known.cells
        if found is None:
            _learn(self).cells = found = self._find_cells()
        return found

    def strided_form(self, fold: bool = True) -> tuple[Allocation, Strided] | None:
        if self._form is UNASKED and not _find_strided(self, fold):
            return None
        return None if self._home is None else (self._home, self._form)  # type: ignore[return-value]  # which is found

    def _normal_form(self) -> Flat:
        found = self._known.normal
        if found is None:
            for v in _sort_open(self, lambda v: v._known.normal is None):
                _learn(v).normal = found = _normalize(v)
        assert found is not None, "the view itself is the last one"
        return found


view_of: Callable[..., Derived] = Derived._of
"""The view of a shape that its kind is known to give; then its home and strided form, if they are at hand."""


def _learn(view: Derived) -> Known:
    """Where to write down what is found out about a view."""
    known = view._known
    if known is NOTHING:
        known = Known()
        _keep_known(view, known)
    return known


# the slots' own setters, which a frozen class does not bar
_keep_known, _keep_home, _keep_form = (vars(Derived)[name].__set__ for name in ("_known", "_home", "_form"))


class Allocation(View, Struct, eq=False, metaclass=Checked):
    """A variable: a view of memory of its own. Make one with `allocate`.

    Parameters
    ----------
    shape : tuple of int
    name : str
        For messages and pictures.
    itemsize : int
        Bytes of a cell.
    color : hashable
        A mark of the user's own, such as "constant" or a device's number; `View.colors` tells which a view reads.

    Two allocations are equal if they are the same memory, as are an allocation and what `View.recolor` makes of it.
    What is unpickled or copied deeply is other memory, the same for all views that were pickled or copied together.

    Examples
    --------
    >>> from tapestry_sets import allocate
    >>> weights = allocate((3, 4), name="weights", dtype="float32")
    >>> weights
    Allocation((3, 4), name='weights', itemsize=4)
    >>> weights.nbytes, weights[1:].allocations == (weights,), weights == allocate((3, 4), name="weights")
    (48, True, False)
    """

    shape: Shape
    name: str
    itemsize: int
    color: Hashable
    memory: object = None
    _form: Strided = (0, ())

    @classmethod
    def _check(
        cls, shape: Shape, name: str = "", itemsize: int = 1, color: Hashable = 0, what: str = "Allocation"
    ) -> tuple[Any, ...]:
        extents, cell = as_ints(shape, f"{what}: shape"), as_int(itemsize, f"{what}: itemsize")
        for axis, n in enumerate(extents):
            if n < 0:
                raise ValueError(f"{what}: extent {n} of axis {axis} in shape {quote(extents)} must be >= 0")
        if cell < 1:
            raise ValueError(f"{what}: itemsize {cell} must be >= 1 byte")
        if not isinstance(name, str):
            raise TypeError(f"{what}: name {quote(name)} is a {type(name).__name__}; give a string")
        return extents, name, cell, check_color(color, what), object(), contiguous(extents)

    def __eq__(self, other: object) -> bool:
        return self.memory is other.memory if isinstance(other, Allocation) else View.__eq__(self, other)

    def __hash__(self) -> int:
        return id(self.memory)

    def __repr__(self) -> str:
        color = f", color={cut_text(quote(self.color), 30)}" if self.color != 0 else ""
        shape, name = cut_text(quote(self.shape), 60), cut_text(quote(self.name), 60)
        return f"Allocation({shape}, name={name}, itemsize={self.itemsize}{color})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Allocation, (self.shape, self.name, self.itemsize, self.color)

    @property
    def sources(self) -> tuple[View, ...]:
        """None: an allocation is memory of its own."""
        return ()

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """The allocation itself."""
        return (self,)

    @property
    def _home(self) -> Allocation:
        return self

    # nothing of these is kept: it would hold the allocation that holds it
    def _compose(self, work: Budget) -> Composed:
        return (self,), (identity_piece(self.rank),)

    def strided_form(self, fold: bool = True) -> tuple[Allocation, Strided]:
        return self, self._form

    def _normal_form(self) -> Flat:
        return Flat(0, (), 0) if 0 in self.shape else _whole(self.size, self)


def width_of(dtype: DType | None, what: str) -> int:
    """Return the bytes of a dtype of NumPy's, or raise an error that says why it has none of its own."""
    found: np.dtype[Any] | None = None
    if dtype is not None:
        with suppress(TypeError, ValueError):  # ValueError: of a dictionary of fields
            found = np.dtype(dtype)
    if found is None:
        raise TypeError(f"{what}: dtype {quote(dtype)} is not one of NumPy's; give one such as 'float32'")
    if found.hasobject:
        raise ValueError(
            f"{what}: dtype {quote(dtype)} holds references to objects, not values; give one of fixed size"
        )
    if not found.itemsize:
        raise ValueError(f"{what}: dtype {quote(dtype)} has no size; give it one, as in 'S8'")
    return found.itemsize


def check_color(color: Hashable, what: str) -> Hashable:
    """Return a color, or raise TypeError if it has no hash."""
    try:
        hash(color)
    except TypeError:
        raise TypeError(f"{what}: color {quote(color)} is a {type(color).__name__}, which has no hash") from None
    return color


# ------------------------------------------------------------------------------------------------------- chains


def sort_views(view: View) -> list[View]:
    """Return the views below and including `view`, each once, sources before their readers."""
    return sources_first(view, lambda v: v.sources)


def _sort_open(view: Derived, is_open: Callable[[Derived], bool]) -> list[Derived]:
    """The views below and including `view` about which something is still open, sources before what reads them."""
    return sources_first(view, lambda v: [s for s in v.sources if isinstance(s, Derived) and is_open(s)])


def _homes(view: View) -> tuple[Allocation, ...]:
    """The allocations at the end of the chain, in order of first appearance."""
    every = walk(view, lambda v: v.sources[::-1])
    return tuple(dict.fromkeys(v for v in every if isinstance(v, Allocation)))


def _first(view: View) -> Allocation:
    """The allocation at the end of a chain that goes to the first source each time."""
    while isinstance(view, Derived):
        view = view.sources[0]
    assert isinstance(view, Allocation), "a view is an allocation or a kind over other views"
    return view


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
        if not isinstance(a, Derived) or not isinstance(b, Derived):
            if isinstance(a, Derived) or isinstance(b, Derived) or a != b:
                return False
        elif a.shape != b.shape or len(a.sources) != len(b.sources) or a.kind != b.kind:
            return False
        stack += zip(a.sources, b.sources, strict=True)
    return True


def _rebuild(view: View, anew: Callable[[Allocation], Allocation]) -> View:
    """The same chain over other allocations."""
    made: dict[int, View] = {}
    for v in sort_views(view):
        if isinstance(v, Derived):
            made[id(v)] = view_of(v.shape, v.kind, tuple([made[id(s)] for s in v.sources]))
        elif isinstance(v, Allocation):
            made[id(v)] = anew(v)
    return made[id(view)]


# ------------------------------------------------------------------------------------------------- strided forms


def _find_strided(view: Derived, fold: bool) -> bool:
    """Find the strided forms of a view and of those below it that were made before theirs could be told.

    Returns whether all are found: of some that join others they are not, unless these may be folded.
    """
    # chains may be thousands of kinds long: they are walked, as a call for each kind would be too deep
    for v in _sort_open(view, lambda v: v._form is UNASKED):
        found = _extend_alone(v) if len(v.sources) == 1 else _join(v)
        if found is OPEN:
            if not fold:
                return False
            found = _fold(v)
        _keep_home(v, None if found is None else found[0])
        _keep_form(v, None if found is None else found[1])  # as the last one: another thread may look meanwhile
    return True


def _extend_alone(view: Derived) -> tuple[Allocation, Strided] | None:
    """The strided form of a view of one source, of which the form is known."""
    (source,) = view.sources
    below = source.strided_form()
    form = None if below is None else _extend_strided(view.kind, view.shape, source.shape, below[1])
    return None if below is None or form is None else (below[0], form)


def _extend_strided(kind: ViewKind, shape: Shape, source: Shape, below: Strided | None) -> Strided | None:
    """The strided form of a view of a shape and a kind over a source, from the source's own."""
    step = getattr(kind, "strided", None)
    return None if step is None or below is None or 0 in shape else step((source,), below)


def _join(view: Derived) -> tuple[Allocation, Strided] | Open | None:
    """The strided form of a view of several sources of which the forms are known; `OPEN` where pieces have to say."""
    if 0 in view.shape:
        return None
    home: Allocation | None = None
    shapes: list[Shape] = []
    forms: list[Strided] = []
    for source in view.sources:
        if 0 in source.shape:
            continue
        found = source.strided_form()
        if found is None or (home is not None and found[0] is not home and found[0] != home):
            return None
        home = found[0]
        shapes.append(source.shape)
        forms.append(found[1])
    join = getattr(view.kind, "join_strided", None)
    if join is None or home is None:
        return OPEN
    form = join(tuple(shapes), forms)
    return form if form is OPEN or form is None else (home, form)


def _fold(view: Derived) -> tuple[Allocation, Strided] | None:
    """The strided form that pieces of one strided allocation fold to, such as slices put together again."""
    pieces = view.kind.pieces(tuple([source.shape for source in view.sources]))
    if len(pieces) > tuning.FOLDED_PIECES or any(piece.source < 0 for piece in pieces):
        return None
    _learn(view).normal = flat = _normalize_by_patches(view)
    (one, *more) = flat.patches
    if more or not isinstance(one.home, Allocation):
        return None
    axes = renumber((tuple([(count, step) for count, _, step in one.digits]),), view.shape)
    return None if axes is None else (one.home, (one.cell, axes))


def _search_strided(view: View) -> tuple[Allocation, Strided] | None:
    """The strided form of a view with cells, from its patches, or as a few cells suggest it."""
    (one, *more) = view._normal_form().patches
    if not more and isinstance(one.home, Allocation):
        axes = renumber((tuple([(count, step) for count, _, step in one.digits]),), view.shape)
        return None if axes is None else (one.home, (one.cell, axes))
    home, first = _read_at(view, (0,) * view.rank)
    steps: list[int] = []
    for axis, n in enumerate(view.shape):
        other, cell = _read_at(view, tuple([int(n > 1 and a == axis) for a in range(view.rank)]))
        if other != home:
            return None
        steps.append(cell - first)
    if not isinstance(home, Allocation):
        return None
    reaches = [(n - 1) * by for n, by in zip(view.shape, steps, strict=True)]
    low, high = first + sum([r for r in reaches if r < 0]), first + sum([r for r in reaches if r > 0])
    if low < 0 or high >= home.size:
        return None
    guess = view_of(view.shape, AsStrided(view.shape, tuple(steps), first), (home,))
    return guess.strided_form() if view.same_view(guess) else None


def _lie_together(view: View, many: int) -> bool:
    """Whether the cells of a view are one after the other in each group of `many` in a row, which divides them."""
    for patch in view._normal_form().patches if view.size else ():
        if not isinstance(patch.home, (Allocation, Constant)):
            raise TooHard(f"view_as: {quote(view)} has too many patches; view the memory before it is taken apart")
        digits = patch.digits
        if not isinstance(patch.home, Allocation) or not digits or digits[-1][1:] != (1, 1):
            return False
        if any(n % many for n in (patch.at, digits[-1][0], *[by for _, by, _ in digits[:-1]])):
            return False
    return True


def _find_run(view: View) -> tuple[Allocation, Strided] | None:
    """The strided form of the flattened view, where its patches are known and are one."""
    flat = view._known.normal if isinstance(view, Derived) else None
    if flat is None or len(flat.patches) != 1:
        return None
    ((_, cell, digits, home),) = flat.patches
    levels = tuple([(count, step) for count, _, step in digits])
    return (home, (cell, (levels,))) if isinstance(home, Allocation) else None


def _find_chain(view: View) -> tuple[DisjointSetts, ...]:
    """The sets each of which is filled with the next, so that the first holds the view's cells; none if not known."""
    ranked = None if 0 in view.shape else _find_ranked(view)
    sets = None if ranked is None else ranked.cells
    return () if sets is None else sets or (EVERY,)


def _find_products(view: View, home: Allocation) -> IndexProducts | None:
    """What a view reads of an allocation as products of indices; None if they are not few."""
    found = read_products(view)
    return None if found is None else found.get(home, IndexProducts(()))


def _find_ranked(view: View) -> Ranked | None:
    above: list[Derived] = []
    found: Ranked | None = None
    while isinstance(view, Derived):
        known = view._known.ranked
        if known is not UNASKED:
            found = known
            break
        if view._home is not None and view._home is _first(view):
            found = Ranked((), view._home.size, cast(Strided, view._form))
            break
        if len(view.sources) > 1 or 0 in view.shape:
            break
        above.append(view)
        view = view.sources[0]
    else:
        found = None if 0 in view.shape else Ranked((), prod(view.shape), contiguous(view.shape))
    for v in reversed(above):
        if found is not None:
            found = found.extend(v.kind, v.shape, v.sources[0].shape)
        _learn(v).ranked = found
    return found


# --------------------------------------------------------------------------------------------------- normal form


def _whole(size: int, home: Hashable) -> Flat:
    return Flat(size, (strided_patch(0, ((size, 1),), home),), 0)


def _normalize(view: Derived) -> Flat:
    """The normal form of a view whose sources have theirs."""
    if 0 in view.shape:
        return Flat(0, (), 0)
    strided = view.strided_form()
    if strided is not None:
        home, (offset, axes) = strided
        return Flat(view.size, (strided_patch(offset, tuple([one for axis in axes for one in axis]), home),), 0)
    return _normalize_by_patches(view)


def _normalize_by_patches(view: Derived) -> Flat:
    """The normal form by the patches of the sources: of these, or of the views below them if that takes fewer."""
    found = view._known.normal
    if found is not None:
        return found
    flat = _flatten(view, [source._normal_form() for source in view.sources])
    found = None if flat is OPEN else flat
    base = None if found is not None and len(found.patches) < 3 else _find_base(view)
    if base is not None and (found is None or len(found.patches) > len(base._normal_form().patches) > 1):
        again = _normalize_over_two(view, base)
        found = found if again is None or (found and len(found.patches) < len(again.patches)) else again
    return _whole(view.size, Opaque(view)) if found is None else found


def _flatten(view: Derived, sources: Sequence[Flat]) -> Flat | Open:
    shapes = tuple([source.shape for source in view.sources])
    return flat_of(view.kind.pieces(shapes), view.shape, list(zip(shapes, sources, strict=True)))


def _find_base(view: Derived) -> View | None:
    """The one view that all sources of a view are, or are made of by one kind each; None if there is none."""
    below = {id(source.sources[0] if source.sources else source) for source in view.sources}
    if len(below) > 1 or any(len(source.sources) > 1 for source in view.sources):
        return None
    base = view.sources[0].sources[0] if view.sources[0].sources else view.sources[0]
    return None if 0 in base.shape else base


def _normalize_over_two(view: Derived, base: View) -> Flat | None:
    """The normal form where two kinds after each other, such as a deal and an interleaving, are one strided view."""
    same = _whole(base.size, Opaque(base))

    def over_base(source: View) -> Flat | Open:
        if not isinstance(source, Derived) or source is base:
            return same
        return _flatten(source, [same]) if source.size else Flat(0, (), 0)

    each = [over_base(source) for source in view.sources]
    both = OPEN if OPEN in each else _flatten(view, [flat for flat in each if flat is not OPEN])
    if both is OPEN or len(both.patches) != 1 or both.patches[0].home is not same.patches[0].home:
        return None
    normal = base._normal_form()
    over = normal if both == same else flat_over(both.patches[0].forms, normal)
    return None if over is OPEN else over


def _find_opaque(view: View) -> list[View]:
    """The views that the patches of a view do not spell out."""
    return [below for below in find_opaque(view._normal_form()) if isinstance(below, View)]


def _read_at(view: View, index: Shape) -> tuple[Hashable, int]:
    """The allocation and the row-major number of the cell that an index reads, or a constant and 0."""
    walked = 0
    while isinstance(view, Derived):
        if walked == tuning.WALKED_KINDS:  # from here on by patches, which cost the same however long the chain is
            home, number = view._normal_form().at(Relinearize(view.shape, (view.size,)).apply(index)[0])
            if not isinstance(home, Opaque):
                return home, number
            assert isinstance(home.view, Derived), "what is not spelled out is a view of a kind"
            view, walked = home.view, 0
            index = Relinearize((view.size,), view.shape).apply((number,))
        pieces = view.kind.pieces(tuple([source.shape for source in view.sources]))
        piece, cell = next(((p, c) for p in pieces if (c := cell_read(p, index)) is not None), (None, ()))
        if piece is None:
            raise ValueError(
                f"{quote(view)}: no piece of {view.kind} reads anything at {quote(index)}; pieces partition a view"
            )
        if piece.fill is not None:
            return Constant(piece.fill), 0
        view, index, walked = view.sources[piece.source], cell, walked + 1
    return view, Relinearize(view.shape, (view.size,)).apply(index)[0]


# ------------------------------------------------------------------------------------------------ shorter chains


def _simplify(view: View) -> View:
    """The shortest of a view built anew, the same kind over simplified sources, and the view itself.

    Where a chain is long, only it and what it does not spell out are built anew, not all that is on the way.
    """
    stack = [view]
    anew: dict[int, View] = {}
    while stack:
        v = stack[-1]
        if not isinstance(v, Derived) or v._known.simple is not UNASKED:
            stack.pop()
            continue
        made = anew.get(id(v))
        is_long = _count_kinds(v, tuning.LONG_CHAIN) == tuning.LONG_CHAIN
        if made is None:
            below = [u for u in _find_opaque(v) if is_long and u is not v and not _is_simplified(u)]
            if below:
                stack += below
                continue
            made = anew[id(v)] = _rebuild_from_patches(v)
            if not is_long and _count_kinds(made) > tuning.SHORT_CHAIN:
                stack += v.sources
                continue
        made = _choose_shortest(v, made, is_long)
        if isinstance(made, Derived):
            _learn(made).simple = None  # itself
        if made is not v:
            _learn(v).simple = made
        stack.pop()
    return _simplified(view)


def _choose_shortest(view: Derived, made: View, is_long: bool) -> View:
    """What a view built anew, its other chains, and the view itself have as the shortest."""
    if is_long:
        most = tuning.LONG_CHAIN
        is_shorter = _count_kinds(made, most) < most or _count_kinds(view) > _count_kinds(made)
        return made if is_shorter else view
    if _count_kinds(made) > tuning.SHORT_CHAIN or all(isinstance(source, Allocation) for source in view.sources):
        for other in _find_others(view):
            made = other if _count_kinds(other, _count_kinds(made)) < _count_kinds(made) else made
    return made


def _is_simplified(view: View) -> bool:
    return not isinstance(view, Derived) or view._known.simple is not UNASKED


def _simplified(view: View) -> View:
    """What `_simplify` has found."""
    found = view._known.simple if isinstance(view, Derived) else None
    return view if found is None or found is UNASKED else found


def _find_others(view: Derived) -> Iterator[View]:
    """Other chains for a view: of a view one or two below it that is the same, over simplified sources, its own."""
    for source in view.sources:
        for below in (source, *source.sources):
            if below.shape == view.shape and below.size and agree(below._normal_form(), view._normal_form()):
                yield _simplified(below)
    sources = tuple([_simplified(source) for source in view.sources])
    if any(a is not b for a, b in zip(sources, view.sources, strict=True)):
        yield view_of(view.shape, view.kind, sources)
    yield view


def _count_kinds(view: View, most: int | None = None) -> int:
    """How many kinds a view is made of; no more are counted than `most`."""
    kinds = (v for v in walk(view, lambda v: v.sources) if isinstance(v, Derived))
    return sum(1 for _ in islice(kinds, most))


def _rebuild_from_patches(view: View) -> View:
    home = _first(view)
    if 0 in view.shape:
        none = home if home.size == 0 else home.reshape(home.size)[:0]
        return none if none.shape == view.shape else none.reshape(view.shape)

    def leaf(home: Hashable) -> View:
        found = home.view if isinstance(home, Opaque) else home
        assert isinstance(found, View), "views read memory, and what is not spelled out"
        return found if found is view else _simplified(found)

    blank: View = home
    return Assembly(leaf, blank).view(view._normal_form(), view.shape)


# -------------------------------------------------------------------------------------------------------- pieces


def _compose_chain(view: Derived, work: Budget) -> Composed:
    """The allocations and the pieces of a view, kind by kind from the end of its chain, or by its patches."""
    budget = current().budget
    refused, why = view._known.refused
    if budget <= refused:  # it is asked for in several ways, one after another
        raise TooHard(why)
    order = _chain(view) or _sort_open(view, lambda v: v._known.composed is None)
    anew = _compose_anew(view, order, work) if len(order) > tuning.WALKED_KINDS else None
    if anew is not None:
        _learn(view).composed = anew
        return anew
    for v in order:
        found = _compose_over_sources(v, work)
        if work.is_overdrawn:
            why = (
                f"{quote(view)}: its pieces, composed through {len(order)} kinds, take more than {budget} guards and "
                f"steps; ask about a view below it, or allow more by limits(budget={10 * budget})"
            )
            _learn(view).refused = budget, why
            raise TooHard(why)
        _learn(v).composed = found = _choose_fewer(v, *found, work)
    return found


def _chain(view: Derived) -> list[Derived]:
    """The views in which no pieces are composed yet, if each has one source, the usual case; empty if one has more."""
    order = [view]
    while len(view.sources) == 1:
        (source,) = view.sources
        if not isinstance(source, Derived) or source._known.composed is not None:
            return order[::-1]
        view = source
        order.append(view)
    return []


def _compose_anew(view: Derived, order: Sequence[View], work: Budget) -> Composed | None:
    """As `_compose_chain`, by the view's patches if these take fewer kinds than the views in order; else None."""
    allocations = _homes(view)
    if 0 in view.shape:
        return allocations, ()
    simple = _rebuild_from_patches(view)
    if _count_kinds(simple, len(order)) >= len(order):
        return None
    for below in _find_opaque(view):
        below._compose(work)
    return number_anew(allocations, simple._compose(work))


def _compose_over_sources(view: Derived, work: Budget) -> Composed:
    """Allocations and pieces of a view whose sources are composed."""
    outer = view.kind.pieces(tuple([source.shape for source in view.sources]))
    (source, *more) = view.sources
    if isinstance(source, Allocation) and not more and 0 not in view.shape and not any(p.guards for p in outer):
        return (source,), outer  # they read the allocation as they are
    return compose_numbered(outer, [source._compose(work) for source in view.sources], view.shape, work)


def _choose_fewer(
    view: Derived, allocations: tuple[Allocation, ...], pieces: tuple[Piece, ...], work: Budget
) -> Composed:
    """The pieces of a view, or those of the same view built anew from its patches if they are fewer."""
    if len(pieces) <= tuning.MANY_PIECES:
        return allocations, pieces
    flat = view._normal_form()
    if flat.stages or 2 * len(flat.patches) > len(pieces) or _find_opaque(view):
        return allocations, pieces
    simple = _rebuild_from_patches(view)
    if _count_kinds(simple, len(pieces)) >= len(pieces):
        return allocations, pieces
    others = simple._compose(work)
    return number_anew(allocations, others) if len(others[1]) < len(pieces) else (allocations, pieces)


DType: TypeAlias = type[Any] | np.dtype[Any] | str | list[Any] | tuple[Any, ...]
"""What NumPy takes for a dtype."""
