"""Views of memory: a view kind over other views, and at the end of the chain stand allocations."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tapestry_sets import draw
from tapestry_sets.affine import Box
from tapestry_sets.cells import Cells, local_setts, read_cells
from tapestry_sets.kinds import Shape, Slice, ViewKind
from tapestry_sets.maps import Piece, compose_pieces, identity_piece, piece_domain
from tapestry_sets.nest import EMPTY, Nest
from tapestry_sets.region import Regions
from tapestry_sets.sett import Setts
from tapestry_sets.strided import Strided, contiguous, nest_of
from tapestry_sets.stripe import as_int
from tapestry_sets.viewable import Key, Viewable, extents_of, plain_slices

# ----------------------------------------------------------------------------------------------------- the view


@dataclass(frozen=True, slots=True, eq=False, init=False)
class View(Viewable):
    """A shape over cells of memory: a view kind over other views. Compared and hashed by identity.

    Make one with `allocate` and its methods; nothing is computed before a question is asked.

    Examples
    --------
    >>> A = allocate((4, 6), name="A")
    >>> A[1:, ::2].reshape(9)
    View((9,) of A)
    """

    shape: tuple[int, ...]
    kind: ViewKind | None
    sources: tuple[View, ...]
    _cache: dict[str, object] = field(repr=False)

    def __init__(self, shape: Shape, kind: ViewKind | None, sources: tuple[View, ...]) -> None:
        _set_shape(self, shape)
        _set_kind(self, kind)
        _set_sources(self, sources)
        _set_cache(self, {})

    __contains__ = None  # a view has places, not values: `3 in view` has no meaning

    def __repr__(self) -> str:
        names = ", ".join(a.name or f"{a.shape}" for a in self.allocations)
        return f"View({self.shape} of {names})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return draw.views_mimebundle(self)

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """The allocations at the end of the chain, in order of first appearance; pieces number them."""
        return self._composed()[0]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of the whole chain: sources are positions in `allocations`, their domains partition the view."""
        return self._composed()[1]

    def _composed(self) -> tuple[tuple[Allocation, ...], tuple[Piece, ...]]:
        if isinstance(self, Allocation):  # not kept: it would hold itself
            return (self,), (identity_piece(self.rank),)
        done = self._cache.get("composed")
        if done is None:
            for view in _chain(self) or _in_order(self):
                view._cache["composed"] = _compose(view)
            done = self._cache["composed"]
        return done  # type: ignore[return-value]

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
        strided = _strided(self)
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
            allocations, pieces = self._composed()
            chain = _chained(self)
            each = (read_cells(pieces, k, self.shape, a.shape, a.size, chain) for k, a in enumerate(allocations))
            found = {a: c for a, c in zip(allocations, each, strict=True) if not c.is_empty}
            if self.kind is not None:  # an allocation would hold itself
                self._cache["cells"] = found
        return found  # type: ignore[return-value]

    def origins(self) -> dict[Allocation, Regions]:
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

    def same_elements(self, other: View) -> bool:
        """Return whether both views read the same cells of memory, in whatever order and number."""
        if not isinstance(other, View):
            raise TypeError(_no_view("View.same_elements: the other", other))
        return self.contains(other) and other.contains(self)

    def has_internal_overlap(self) -> bool:
        """Return whether the view reads some cell of memory at two of its indices.

        Examples
        --------
        >>> A = allocate((10,))
        >>> A.sliding_windows(3).has_internal_overlap(), A[::-3].has_internal_overlap()
        (True, False)
        """
        box = Box.of(self.shape)
        constant = sum(piece_domain(piece, box).size for piece in self.pieces if piece.source < 0)
        return self.size - constant > sum(c.size for c in self.cells.values())

    def is_contiguous(self) -> bool:
        """Return whether the cells that the view reads are one gapless run of one allocation, in whatever order.

        Examples
        --------
        >>> from tapestry_sets.viewable import concatenate
        >>> A = allocate((10,))
        >>> concatenate([A[5:10], A[0:5]]).is_contiguous(), A[::2].is_contiguous()
        (True, False)
        """
        found = list(self.cells.values())
        return not found or (len(found) == 1 and found[0].is_run())

    # -- colours and new memory -----------------------------------------------------------------------

    def colors(self) -> frozenset[Hashable]:
        """Return the colours of the allocations that the view reads.

        Examples
        --------
        >>> from tapestry_sets.viewable import concatenate
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
        """Return the same view of the same memory, under one colour.

        Examples
        --------
        >>> a = allocate((4,), color="old")
        >>> b = a[1:].recolor("new")
        >>> sorted(b.colors()), b.same_elements(a[1:])
        (['new'], True)
        """
        return _rebuilt(self, lambda a: a._recolored(color))

    def clone(self, color: Hashable = None) -> View:
        """Return a view of the same layout over new memory, in one colour or, by default, in the colours of the old.

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

        def anew(a: Allocation) -> Allocation:
            return Allocation(a.shape, None, (), a.name, a.itemsize, a.color if color is None else color)

        return _rebuilt(self, anew)

    # -- one source -----------------------------------------------------------------------------------

    def apply(self, kind: ViewKind, *others: View) -> View:
        """Return the view of a kind over this view and others.

        Examples
        --------
        >>> from tapestry_sets.kinds import Concat
        >>> a, b = allocate((3,), name="a"), allocate((2,), name="b")
        >>> a.apply(Concat(0), b).shape
        (5,)
        """
        if not others:
            return View(kind.out_shape((self.shape,)), kind, (self,))
        sources = (self, *others)
        for k, source in enumerate(others, 1):
            if not isinstance(source, View):
                raise TypeError(_no_view(f"{type(kind).__name__}: source {k}", source))
        return View(kind.out_shape(tuple(s.shape for s in sources)), kind, sources)

    def __getitem__(self, key: Key | tuple[Key, ...]) -> View:
        """Return the view under integers, slices, Ellipsis and None, with NumPy's meaning."""
        plain = plain_slices(key if isinstance(key, tuple) else (key,), self.shape)
        if plain is not None:
            return View(plain[0], Slice(plain[1]), (self,))
        return Viewable.__getitem__(self, key)


# a frozen class sets its own slots through their descriptors: several times as fast as object.__setattr__
_slots: Any = View
_set_shape, _set_kind = _slots.shape.__set__, _slots.kind.__set__
_set_sources, _set_cache = _slots.sources.__set__, _slots._cache.__set__


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
        View.__init__(self, shape, kind, sources)
        _set_name(self, name)
        _set_itemsize(self, itemsize)
        _set_color(self, color)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Allocation) and self._cache is other._cache

    def __hash__(self) -> int:
        return id(self._cache)

    def __repr__(self) -> str:
        color = f", color={self.color!r}" if self.color != 0 else ""
        return f"Allocation({self.shape}, name={self.name!r}, itemsize={self.itemsize}{color})"

    def _recolored(self, color: Hashable) -> Allocation:
        """The same memory, which the cache stands for, under another colour."""
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
        If an extent is negative, or `dtype` and `itemsize` disagree.

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
    bytes_ = np.dtype(dtype).itemsize if dtype is not None else None  # type: ignore[call-overload]
    if bytes_ is not None and itemsize not in (None, bytes_):
        raise ValueError(f"allocate: dtype {dtype} has {bytes_} bytes but itemsize is {itemsize}; give one of them")
    cell = bytes_ if itemsize is None else as_int(itemsize, "allocate: itemsize")
    if cell is not None and cell < 1:
        raise ValueError(f"allocate: itemsize {cell} must be >= 1 byte")
    return Allocation(extents, None, (), name or "", cell or 1, color)


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


def _allocations_under(view: View) -> list[Allocation]:
    return [v for v in _all_under(view) if isinstance(v, Allocation)]


def _rebuilt(view: View, anew: Callable[[Allocation], Allocation]) -> View:
    """The same chain over other allocations."""
    made: dict[int, View] = {}
    for v in _all_under(view):
        if isinstance(v, Allocation):
            made[id(v)] = anew(v)
        else:
            made[id(v)] = View(v.shape, v.kind, tuple(made[id(s)] for s in v.sources))
    return made[id(view)]


def _strided(view: View) -> tuple[Allocation, Strided] | None:
    """The allocation and the strided form, where a view has one source after the other and keeps that form."""
    chain: list[View] = []
    done: object = False
    while view.kind is not None:
        done = view._cache.get("strided", False)
        if done is not False:
            break
        chain.append(view)
        if len(view.sources) != 1 or 0 in view.shape:
            done = None
            break
        view = view.sources[0]
    found: Any = (view, contiguous(view.shape)) if done is False else done
    for view in reversed(chain):
        if found is not None:
            step = getattr(view.kind, "strided", None)
            form = step((view.sources[0].shape,), found[1]) if step is not None else None
            found = None if form is None else (found[0], form)
        view._cache["strided"] = found
    return found  # type: ignore[no-any-return]


class _Ranked(NamedTuple):
    """What a view reads, by the row-major numbers of the last of its sources that lists its cells in ascending order.

    Parameters
    ----------
    sets : tuple of Setts
        Each is filled with the next, so that the first holds that source's cells; none if it is the allocation.
    size : int
        How many cells that source has.
    form : Strided or None
        The view over that source; None if the view's cells are the filled sets, in any order and number.
    """

    sets: tuple[Setts, ...]
    size: int
    form: Strided | None

    @property
    def cells(self) -> tuple[Setts, ...] | None:
        """The sets with the view's own as last, if it is not all cells; None if it is not one nest."""
        nest = () if self.form is None else nest_of(self.form, self.size)
        return None if nest is None else _longer(self.sets, Setts._of((nest,)))


EVERY = Setts._of(((),))
MAX_CHAIN = 64
"""Longer chains of filled sets are not held."""


def _longer(sets: tuple[Setts, ...], ink: Setts) -> tuple[Setts, ...] | None:
    if ink == EVERY:
        return sets
    return (*sets, ink) if len(sets) < MAX_CHAIN else None


def _chained(view: View) -> tuple[Setts, ...]:
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


def _local(view: View, source: View) -> Setts | None:
    """The row-major numbers of a view's one source that it reads, if they are few setts."""
    assert view.kind is not None, "only an allocation has no kind"
    return local_setts(view.kind.pieces((source.shape,)), view.shape, source.shape)


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


def _in_order(view: View) -> list[View]:
    """The views below and including `view` that are not composed yet, sources before what reads them."""
    order: list[View] = []
    seen: set[View] = set()
    stack = [(view, False)]
    while stack:
        v, ready = stack.pop()
        if ready:
            order.append(v)
        elif v.kind is not None and v not in seen and "composed" not in v._cache:
            seen.add(v)
            stack.append((v, True))
            stack += [(s, False) for s in v.sources]
    return order


def _compose(view: View) -> tuple[tuple[Allocation, ...], tuple[Piece, ...]]:
    """Allocations and pieces of a view whose sources are composed."""
    assert view.kind is not None, "only an allocation has no kind"
    if len(view.sources) == 1:
        (source,) = view.sources
        if isinstance(source, Allocation) and 0 not in view.shape:
            own = view.kind.pieces((source.shape,))
            if not any(piece.guards for piece in own):  # they read the allocation as they are
                return (source,), own
        allocations, pieces = source._composed()
        return allocations, compose_pieces(view.kind.pieces((source.shape,)), (pieces,), view.shape)
    number: dict[Allocation, int] = {}
    inner: dict[int, Sequence[Piece]] = {}
    for k, source in enumerate(view.sources):
        allocations, pieces = source._composed()
        to = {i: number.setdefault(a, len(number)) for i, a in enumerate(allocations)}
        inner[k] = pieces if all(i == j for i, j in to.items()) else [_renumbered(p, to) for p in pieces]
    outer = view.kind.pieces(tuple(s.shape for s in view.sources))
    return tuple(number), compose_pieces(outer, inner, view.shape)


def _renumbered(piece: Piece, to: Mapping[int, int]) -> Piece:
    return piece if piece.source < 0 else Piece(to[piece.source], piece.guards, piece.map)


def _no_view(what: str, x: object) -> str:
    return (
        f"{what} is a {type(x).__name__}, not a View; as_view makes an array one, and the functions overlaps, "
        "contains and same_elements take both"
    )
