"""Alias queries: the cells of memory that views share, decided on sets.

All of them take views of allocations and real arrays, in any mix. Cells are listed where closed forms end and isl, too,
has refused, and there alone: see `cells`. `tally` tells how questions were decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from tapestry_sets.alias.every_pair import meeting, shared_sizes
from tapestry_sets.alias.ladder.cells import Cells, filled_cells, local_setts, product_cells, read_cells
from tapestry_sets.alias.memory.arrays import HasView, ViewLike, as_view, read_view, read_views, strided_form_of
from tapestry_sets.alias.one_view import is_ordered, is_ordered_by_strides, twice, twice_by_strides
from tapestry_sets.digits import Bools
from tapestry_sets.draw import align, as_html, canvas
from tapestry_sets.draw import views as draw_views
from tapestry_sets.integers import members
from tapestry_sets.limits import (
    OPEN,
    Asked,
    Open,
    Public,
    TooHard,
    ask_one,
    attempt,
    check_tuple,
    count_question,
    cut_text,
    note_rung,
    note_sum,
    quote,
    read_rung,
)
from tapestry_sets.regions import DisjointRegions
from tapestry_sets.solvers import equation
from tapestry_sets.views import (
    Allocation,
    InternalOverlap,
    MemoryQueries,
    Order,
    View,
    fill_memory,
)


@check_tuple
class Witness(NamedTuple):
    """A cell that two views share: its index in the first view, in the second, and in the allocation.

    Attributes
    ----------
    a, b : tuple of int
        Indices of the two views; ``x[w.a]`` and ``y[w.b]`` are the same memory.
    cell : tuple of int
        In the allocation.

    Examples
    --------
    >>> from tapestry_sets import allocate, overlap
    >>> image = allocate((4, 6), name="image")
    >>> w = overlap(image[1:, ::2], image.T[3:]).witness
    >>> w.a, w.b, w.cell
    ((0, 2), (1, 1), (1, 4))
    >>> image[1:, ::2][w.a] == image.T[3:][w.b] == image[w.cell]
    True
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    cell: tuple[int, ...]

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        title = "one cell, by its index in two views and in the allocation"
        rows = [(name, f"[{', '.join(map(str, at))}]") for name, at in zip(WITNESS_HEADS, self, strict=True)]
        lines = align(rows, numbers=())
        picture = canvas.draw_twice(
            lambda: (
                "\n".join([title, *lines]),
                canvas.document(canvas.below([*map(canvas.as_drawn, lines)], 4), title),
            )
        )
        return picture.bundle(repr(self)) | {"text/html": as_html([("one cell", "index"), *rows], numbers=())}


WITNESS_HEADS = ("first view", "second view", "allocation")
"""What the indices of a witness are of."""


@count_question
def overlaps(a: ViewLike, b: ViewLike) -> bool:
    """Return whether two views read a common cell.

    Parameters
    ----------
    a, b : View or array
        Views of `allocate`d memory, or real arrays (compared by address, byte for byte).

    Raises
    ------
    TypeError, ValueError
        If an argument is neither, or an array whose memory says nothing.

    Examples
    --------
    >>> from tapestry_sets import overlaps
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((27,))
    >>> overlaps(A.reshape(3, 3, 3)[:2, :2, :2], A[2::5])
    True
    >>> overlaps(A[0::2], A[1::2])
    False

    References
    ----------
    Tapestry's document on nested striding, "Alias analysis"; numpy.shares_memory.
    """
    return _meet(a, b)


def _meet(a: ViewLike, b: ViewLike) -> bool:
    try:
        one, two = strided_form_of(a), strided_form_of(b)
    except Exception:  # said again with the argument's name
        one, two = read_view(a, "overlaps: a").strided_cells(), read_view(b, "overlaps: b").strided_cells()
    if one is not None and two is not None:
        if one[0].memory is not two[0].memory:
            return False
        found = equation.meet(one[1], two[1])
        if found is not OPEN:
            note_rung(equation.meet)
            return found
    return any(mine.meets(theirs) for _, mine, theirs in _pairs(as_view(a), as_view(b)))


def _pairs(a: View, b: View) -> list[tuple[Allocation, Cells, Cells]]:
    theirs = b.cells
    both = [(allocation, cells, theirs.get(allocation)) for allocation, cells in a.cells.items()]
    return [(allocation, mine, other) for allocation, mine, other in both if other is not None]


def overlap(a: ViewLike, b: ViewLike) -> Overlap[Allocation]:
    """Return the overlap of two views: whether there is one, size, bytes, regions and witnesses, each found when asked.

    Parameters
    ----------
    a, b : View or array

    Raises
    ------
    TypeError, ValueError
        As for `overlaps`.

    Examples
    --------
    >>> from tapestry_sets import overlap
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((24,), dtype="float32")
    >>> o = overlap(A.reshape(4, 6)[:, 3:6], A[0::7])
    >>> o.size, o.nbytes, o.witness
    (1, 4, Witness(a=(3, 0), b=(3,), cell=(21,)))
    """
    x = a if isinstance(a, View) else read_view(a, "overlap: a")
    y = b if isinstance(b, View) else read_view(b, "overlap: b")
    return Overlap(x, y)


def _count_by_strides(a: View, b: View) -> list[tuple[Allocation, int]] | Open:
    """How many cells two views share, where those of both are strided: by the equation that `overlaps` solves."""
    one, two = a.strided_cells(), b.strided_cells()
    if one is None or two is None:
        return [] if 0 in a.shape or 0 in b.shape else OPEN
    if one[0].memory is not two[0].memory:
        return []
    found = equation.count_met(one[1], two[1])
    if found is not OPEN:
        note_rung(equation.count_met, equation.write_met, one[1], two[1])
        return [(one[0], found)]
    found = _count_nests(a, b)
    if found is OPEN:
        return OPEN
    note_rung(members.count_few)
    return [(one[0], found)]


def _count_nests(a: View, b: View) -> int | Open:
    """How many cells two strided views of one allocation share, where each is a nest and that takes few branches."""
    mine, theirs = a.as_nest(), b.as_nest()
    if mine is None or theirs is None:
        return OPEN
    spans = [members.spans_of([nest], 0, home.size) for home, nest in (mine, theirs)]
    return ask_one((TooHard,), members.count_few, *spans)


class Memory(Protocol):
    """The memory of cells: an allocation, or the tensor of an alias graph that is one."""

    @property
    def itemsize(self) -> int:
        """Bytes of a cell."""

    @property
    def name(self) -> str:
        """What people call it; "" for nothing."""


M = TypeVar("M", bound=Memory)


class Overlap(Asked, Generic[M], frozen=True, eq=False, dict=True, metaclass=Public):
    """The cells that two views share; true if there are any. Made by `overlap`.

    Each question is decided when it is asked first; the answer is kept. `decisions` has how it was decided, and
    `explain` says so in words. The repr has the answer alone, so that it is the same each time, and without isl.
    Questions are called "overlaps", "size", "witness" and "regions".

    Parameters
    ----------
    a, b : View or AliasTensor
    found : tuple of (Allocation or AliasTensor, Cells, Cells), optional
        What `shared` is: of two views it is found when a question needs it.

    Examples
    --------
    >>> from tapestry_sets import allocate, overlap
    >>> image = allocate((4, 6), name="image", dtype="float32")
    >>> o = overlap(image[:, :3], image[::2, 1:])  # a tile, and every other row of the next one
    >>> o
    Overlap(4 cells, 16 B: image[0, 1] = a[0, 1] = b[0, 0])
    >>> bool(o), o.size, o.nbytes
    (True, 4, 16)
    >>> print(o.regions[image])
    .11...
    ......
    .11...
    ......
    """

    a: View | HasView
    b: View | HasView
    found: tuple[tuple[M, Cells, Cells], ...] | None = None

    def __repr__(self) -> str:
        """The answer: how much is shared, and one of the cells; or that this is not known at once."""
        told = attempt(self._tell)
        if isinstance(told, Open):
            told = "too hard to tell in a line: " + self._tell_views()
        return f"Overlap({cut_text(told, 180)})"

    def _tell(self) -> str:
        one = self.witness if self else None
        if one is None:
            return "no cell: " + self._tell_views()
        size = self.size
        many = f"{quote(size)} {'cell' if size == 1 else 'cells'}, {quote(self.nbytes)} B"
        memory = self.allocations[0].name or "memory"
        return f"{many}: {memory}{quote(list(one.cell))} = a{quote(list(one.a))} = b{quote(list(one.b))}"

    def _tell_views(self) -> str:
        return f"a = {cut_text(repr(self.a), 60)}, b = {cut_text(repr(self.b), 60)}"

    @cached_property
    def shared(self) -> tuple[tuple[M, Cells, Cells], ...]:
        """The allocations with common cells, and what each view reads of them.

        Examples
        --------
        >>> from tapestry_sets import allocate, overlap
        >>> A = allocate((3, 8), name="A")
        >>> ((home, mine, theirs),) = overlap(A[1:], A[:, ::3]).shared
        >>> home == A, mine.count_common(theirs)
        (True, 6)
        """
        if self.found is not None:
            return self.found
        both = _pairs(as_view(self.a), as_view(self.b))
        return cast("tuple[tuple[M, Cells, Cells], ...]", tuple([pair for pair in both if pair[1].meets(pair[2])]))

    def __eq__(self, other: object) -> bool:
        return (self.a, self.b) == (other.a, other.b) if isinstance(other, Overlap) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.a, self.b))

    def __bool__(self) -> bool:
        return bool(self.found if self.found is not None else self._ask("overlaps", _meet, self.a, self.b))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        views = as_view(self.a), as_view(self.b)
        named = [f"{name} = {each!r}" for name, each in zip("ab", views, strict=True)]
        return draw_views.views_mimebundle(*views, names=named, title=repr(self), notes=self._notes())

    @property
    def allocations(self) -> tuple[M, ...]:
        """The allocations with shared cells.

        Examples
        --------
        >>> from tapestry_sets import allocate, concatenate, overlap
        >>> a, b = allocate((4,), name="a"), allocate((3,), name="b")
        >>> [home.name for home in overlap(concatenate([a, b]), b[1:]).allocations]
        ['b']
        """
        return tuple(allocation for allocation, _, _ in self.shared)

    @property
    def size(self) -> int:
        """How many different cells both views read.

        Raises
        ------
        TooHard
            If they would have to be counted one by one and may be too many for that.

        Examples
        --------
        >>> from tapestry_sets import allocate, overlap
        >>> A = allocate((10**9,))
        >>> overlap(A[::6], A[::4]).size  # every twelfth
        83333334
        """
        return sum([many for _, many in self._counted])

    @property
    def nbytes(self) -> int:
        """How many bytes both views read.

        Examples
        --------
        >>> from tapestry_sets import allocate, overlap
        >>> A = allocate((10**9,), dtype="float32")
        >>> overlap(A[::6], A[::4]).nbytes
        333333336
        """
        return sum([many * allocation.itemsize for allocation, many in self._counted])

    @property
    def _counted(self) -> Sequence[tuple[Memory, int]]:
        """How many cells of each allocation both views read."""
        return cast("Sequence[tuple[Memory, int]]", self._ask("size", self._count_each))

    def _count_each(self) -> Sequence[tuple[Memory, int]]:
        if isinstance(self.a, View) and isinstance(self.b, View):
            counted = _count_by_strides(self.a, self.b)
            if counted is not OPEN:
                return counted
        found: list[tuple[Memory, int]] = []
        rungs = []
        for allocation, x, y in self.shared:
            found.append((allocation, x.count_common(y)))
            rungs.append(read_rung())
        if len(found) > 1:
            note_sum(rungs)
        return found

    @property
    def regions(self) -> dict[M, DisjointRegions]:
        """The shared cells of each allocation, in its coordinates.

        Raises
        ------
        TooManyPieces
            If they need more regions than can be written out.

        Examples
        --------
        >>> from tapestry_sets import allocate, overlap
        >>> A = allocate((3, 8))
        >>> print(overlap(A[:2], A[:, ::3]).regions[A])
        1..1..1.
        1..1..1.
        ........
        """
        return dict(self._ask("regions", lambda: {home: x.common_regions(y) for home, x, y in self.shared}))

    @property
    def witness(self) -> Witness | None:
        """Some shared cell: its index in `a`, in `b`, and in the first of `allocations`; None if there is none.

        Examples
        --------
        >>> from tapestry_sets import allocate, overlap
        >>> A = allocate((3, 8))
        >>> overlap(A[1:], A[:, ::3]).witness
        Witness(a=(0, 0), b=(1, 0), cell=(1, 0))
        >>> print(overlap(A[:, ::2], A[:, 1::2]).witness)
        None
        """
        return cast("Witness | None", self._ask("witness", self._find_witness))

    def _find_witness(self) -> Witness | None:
        return _witness(*self.shared[0][1:]) if self.shared else None

    @property
    def witnesses(self) -> dict[M, Witness]:
        """A shared cell of each allocation that has some.

        Examples
        --------
        >>> from tapestry_sets import allocate, concatenate, overlap
        >>> a, b = allocate((4,), name="a"), allocate((3,), name="b")
        >>> found = overlap(concatenate([a, b]), concatenate([b[1:], a[::2]])).witnesses
        >>> {home.name: witness.cell for home, witness in found.items()}
        {'a': (0,), 'b': (1,)}
        """
        return {allocation: _witness(x, y) for allocation, x, y in self.shared}


def _witness(x: Cells, y: Cells) -> Witness:
    cell = x.a_common_cell(y)
    assert cell is not None, "cells that meet have a common one"
    i, j = x.index_of(cell), y.index_of(cell)
    assert i is not None and j is not None, "a cell that is read has an index"
    return Witness._make((i, j, cell))


def overlap_matrix(views: Iterable[ViewLike]) -> Bools:
    """Return which pairs of views read a common cell, as a symmetric matrix.

    Thousands of views are answered at once: see `every_pair`.

    Parameters
    ----------
    views : iterable of View or array

    Raises
    ------
    TypeError, ValueError
        If one of them is neither, or an array whose memory says nothing.

    Examples
    --------
    >>> from tapestry_sets import overlap_matrix
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((10,))
    >>> overlap_matrix([A[:4], A[3:6], A[6:]]).astype(int).tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    return meeting(read_views(views, "overlap_matrix"))


def overlap_sizes(views: Iterable[ViewLike]) -> np.ndarray[Any, Any]:
    """Return how many different cells each pair of views shares, as a symmetric matrix.

    The diagonal has each view's own number of different cells.

    Parameters
    ----------
    views : iterable of View or array
        For a pair of real arrays the cells are bytes.

    Returns
    -------
    array of int64, or of object
        Python integers, of dtype object, if one of them does not fit int64.

    Raises
    ------
    TypeError, ValueError
        As for `overlap_matrix`.
    TooHard
        If cells would have to be counted one by one and may be too many for that.

    Examples
    --------
    >>> from tapestry_sets import overlap_sizes
    >>> from tapestry_sets.views import allocate
    >>> A = allocate((10,))
    >>> overlap_sizes([A[:4], A[3:6], A[6:]]).tolist()
    [[4, 1, 0], [1, 3, 0], [0, 0, 4]]
    >>> overlap_sizes([allocate((10**10, 10**10))]).tolist()
    [[100000000000000000000]]
    """
    return shared_sizes(read_views(views, "overlap_sizes"))


def origins(view: ViewLike) -> dict[Allocation, DisjointRegions]:
    """Return the cells that a view or an array reads of each allocation; see `View.origins`.

    Parameters
    ----------
    view : View or array

    Returns
    -------
    dict of Allocation to DisjointRegions
        In the allocations' coordinates.

    Raises
    ------
    TypeError, ValueError
        As for `overlaps`.
    TooManyPieces
        If the cells need more regions than can be written out.

    Examples
    --------
    >>> from tapestry_sets import allocate, concatenate, origins
    >>> a, b = allocate((3, 8), name="a"), allocate((8,), name="b")
    >>> read = origins(concatenate([a[::2, 1::3].ravel(), b[:2]]))
    >>> print(read[a])
    .1..1..1
    ........
    .1..1..1
    >>> print(read[b])
    11......
    """
    return read_view(view, "origins").origins()


@count_question
def contains(a: ViewLike, b: ViewLike) -> bool:
    """Return whether `a` reads every cell of memory that `b` reads; see `View.contains`.

    ``covers([a], b).gap`` is a cell that it does not read.

    Parameters
    ----------
    a, b : View or array

    Raises
    ------
    TypeError, ValueError
        As for `overlaps`.

    Examples
    --------
    >>> from tapestry_sets import allocate, contains
    >>> cache = allocate((32, 128), name="cache")
    >>> contains(cache[8:24], cache[12]), contains(cache[8:24], cache[:, 0])
    (True, False)
    """
    return read_view(a, "contains: a").contains(read_view(b, "contains: b"))


@count_question
def same_elements(a: ViewLike, b: ViewLike) -> bool:
    """Return whether `a` and `b` read the same cells of memory, in whatever order and shape; see `View.same_elements`.

    Parameters
    ----------
    a, b : View or array

    Raises
    ------
    TypeError, ValueError
        As for `overlaps`.

    Examples
    --------
    >>> from tapestry_sets import allocate, same_elements
    >>> x = allocate((4, 6), name="x")
    >>> same_elements(x.T.reshape(3, 8), x), same_elements(x[::2], x[1::2])
    (True, False)
    """
    return read_view(a, "same_elements: a").same_elements(read_view(b, "same_elements: b"))


@count_question
def has_internal_overlap(view: ViewLike) -> bool:
    """Return whether a view or an array reads some cell twice; see `View.has_internal_overlap`.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_sets import has_internal_overlap
    >>> has_internal_overlap(np.broadcast_to(np.zeros(3), (2, 3)))
    True
    """
    return read_view(view, "has_internal_overlap").has_internal_overlap()


@count_question
def internal_overlap(view: ViewLike) -> InternalOverlap | None:
    """Return a cell that a view or an array reads at two indices, and these, or None; see `View.internal_overlap`.

    Of an array the cell is a byte, and the last number of an index says which byte of the element.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_sets import internal_overlap
    >>> found = internal_overlap(np.lib.stride_tricks.as_strided(np.zeros(99, "u1"), (4, 5), (6, 2)))
    >>> found.a, found.b
    ((0, 3, 0), (1, 0, 0))
    """
    return read_view(view, "internal_overlap").internal_overlap()


@count_question
def is_contiguous(view: ViewLike, order: Order | None = None) -> bool:
    """Return whether a view or an array reads one gapless run of memory; see `View.is_contiguous`.

    Parameters
    ----------
    view : View or array
    order : "C" or "F", optional
        Ask for cell after cell in row- or column-major order of the indices, as NumPy's flags do; by default the
        cells may be read in whatever order and number.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_sets import is_contiguous
    >>> a = np.zeros((4, 4), np.int16)
    >>> is_contiguous(a.T), is_contiguous(a[:, 1:]), is_contiguous(a.T, "C"), is_contiguous(a.T, "F")
    (True, False, False, True)
    """
    found = read_view(view, "is_contiguous")
    if (
        isinstance(order, str) and order == "F" and not isinstance(view, View)
    ):  # the bytes of an element, the last axis, come first
        found = found.permute_dims((found.rank - 1, *range(found.rank - 1)))
    return found.is_contiguous(order)


fill_memory(
    MemoryQueries(
        read_cells, filled_cells, product_cells, local_setts, twice, twice_by_strides, is_ordered, is_ordered_by_strides
    )
)
