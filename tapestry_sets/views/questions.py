"""Questions about a view: which memory it reads, and how its indices and that memory belong together.

The questions stand below the views themselves: they need no more of a view than its shape, its pieces and its forms,
which `Questions` names as abstract methods.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from tapestry_sets.digits import Strided, join_digits
from tapestry_sets.limits import (
    OPEN,
    REFUSALS,
    Open,
    TooHard,
    TooManyPieces,
    ask_one,
    count_question,
    current,
    cut_text,
    limits,
    quote,
)
from tapestry_sets.regions import AxisSets, DisjointRegions, ImplicitRegion, Region
from tapestry_sets.solvers import isl
from tapestry_sets.views import hook, tuning
from tapestry_sets.views.hook import InternalOverlap, Order
from tapestry_sets.views.normal.normal_form import agree, flat_of, preimage, read_the_same
from tapestry_sets.views.normal.patches import Constant, Flat
from tapestry_sets.views.pieces.lookup import Lookup
from tapestry_sets.views.pieces.maps import Relinearize, Shape
from tapestry_sets.views.pieces.piece import Piece
from tapestry_sets.views.products import read_products
from tapestry_sets.views.words import Viewable

if TYPE_CHECKING:
    from tapestry_sets.alias import Cells
    from tapestry_sets.views.view import Allocation


class Questions(Viewable):
    """A view, as far as questions about memory need it."""

    __slots__ = ()

    @property
    @abstractmethod
    def sources(self) -> tuple[Questions, ...]:
        """The views that this one reads; none of an allocation."""

    @property
    @abstractmethod
    def allocations(self) -> tuple[Allocation, ...]:
        """The allocations at the end of the chain, in order of first appearance; pieces number them.

        Examples
        --------
        >>> from tapestry_sets.views import allocate, concatenate
        >>> a, b = allocate((4,), name="a"), allocate((3,), name="b")
        >>> [home.name for home in concatenate([a, b, a]).allocations]
        ['a', 'b']
        """

    @property
    @abstractmethod
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of the whole chain."""

    @property
    @abstractmethod
    def cells(self) -> Mapping[Allocation, Cells]:
        """The cells that the view reads, for each allocation that it reads at all."""

    @abstractmethod
    def strided_form(self, fold: bool = True) -> tuple[Allocation, Strided] | None:
        """Return the allocation and the strided form, where a view keeps it from kind to kind or folds to it.

        Several sources are only folded to one form if `fold` says so: it takes longer than to ask without.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> home, (offset, levels) = allocate((4, 6), name="a")[1:, ::2].strided_form()
        >>> home.name, offset
        ('a', 6)
        """

    @abstractmethod
    def find_strided(self) -> tuple[Allocation, Strided] | None:
        """Return the allocation and the strided form, looked for where it is not at hand; None if there is none."""

    @abstractmethod
    def _normal_form(self) -> Flat:
        """The cell of each index, by row-major numbers, as patches; those of too many stand for the view itself."""

    @abstractmethod
    def _read_at(self, index: Shape) -> tuple[Hashable, int]:
        """The allocation and the row-major number of the cell that an index reads, or a constant and 0."""

    @abstractmethod
    def _read_ends(self) -> tuple[tuple[Hashable, int], tuple[Hashable, int]]:
        """The same of the first and of the last index."""

    @property
    def offset(self) -> int | None:
        """The row-major number of the first index's cell in its allocation; None where `find_strided` finds nothing.

        In cells, as all that views say of memory; of a real array the cells are bytes, and this is its address.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> A = allocate((4, 6), dtype="float32")
        >>> A[1:, ::-2].offset, A[1:, ::-2].strides
        (11, (6, -2))
        """
        found = self.find_strided()
        return None if found is None else found[1][0]

    @property
    def strides(self) -> tuple[int, ...] | None:
        """How many cells lie from one index to the next along each axis; None where that is not one number.

        In cells, where NumPy has bytes; times `itemsize` they are NumPy's. An axis of extent 1 has 0, so that equal
        views have equal strides. A view that reads no cell, constants or several allocations has none.

        Raises
        ------
        TooHard
            As for `find_strided`.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> A = allocate((4, 6))
        >>> A.T.strides, A.broadcast_to((3, 4, 6)).strides, A[:, :4].reshape(16).strides
        ((1, 6), (0, 6, 1), None)
        """
        found = self.find_strided()
        axes = [] if found is None else [join_digits(levels) for levels in found[1][1]]
        if found is None or any(len(levels) > 1 for levels in axes):
            return None
        return tuple([levels[0][1] if levels else 0 for levels in axes])

    @property
    def itemsize(self) -> int:
        """Bytes of a cell.

        Raises
        ------
        ValueError
            If the view is made of allocations whose cells differ.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((4, 6), dtype="float16").T.itemsize
        2
        """
        sizes = {a.itemsize: a for a in self.allocations}
        if len(sizes) > 1:
            each = ", ".join(f"{n} in {a.name or a.shape}" for n, a in sizes.items())
            raise ValueError(f"itemsize: {quote(self)} has cells of different bytes: {each}; ask its allocations")
        return next(iter(sizes))

    @property
    def nbytes(self) -> int:
        """Bytes of all cells, repeated ones included, as NumPy counts them: `size` times `itemsize`.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((4, 6), dtype="float32")[::2].nbytes
        48
        """
        return self.size * self.itemsize

    def origins(self) -> dict[Allocation, DisjointRegions]:
        """Return the cells that the view reads of each allocation, in the allocation's coordinates.

        Raises
        ------
        TooManyPieces
            If they need more regions than can be written out.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
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

    @count_question
    def contains(self, other: Questions) -> bool:
        """Return whether this view reads every cell of memory that `other` reads.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> A = allocate((10,))
        >>> A[::2].contains(A[2::4]), A[2::4].contains(A[::2])
        (True, False)
        """
        if not isinstance(other, Questions):
            raise TypeError(say_no_view("View.contains: the other", other))
        mine = self.cells
        return all(a in mine and c.issubset(mine[a]) for a, c in other.cells.items())

    @count_question
    def same_elements(self, other: Questions) -> bool:
        """Return whether both views read the same cells of memory, in whatever order and number.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> a = allocate((4, 6))
        >>> a.T.same_elements(a), a[1:].same_elements(a[:3])
        (True, False)
        """
        if not isinstance(other, Questions):
            raise TypeError(say_no_view("View.same_elements: the other", other))
        return self.contains(other) and other.contains(self)

    def same_view(self, other: Questions) -> bool:
        """Return whether both views have one shape and read the same cell, or the same constant, at each index.

        Raises
        ------
        TooHard
            If neither the views' patches nor isl decide.

        Examples
        --------
        >>> from tapestry_sets.views import allocate, concatenate, interleave
        >>> A = allocate((10,))
        >>> concatenate([A[:3], A[3:]]).same_view(interleave([A[::2], A[1::2]]))
        True
        >>> A[:9].same_view(A[1:]), A.same_elements(A[::-1]), A.same_view(A[::-1])
        (False, True, False)
        """
        if not isinstance(other, Questions):
            raise TypeError(say_no_view("View.same_view: the other", other))
        if self is other or self.shape != other.shape or 0 in self.shape:
            return self.shape == other.shape
        return read_alike(self, other)

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
        >>> from tapestry_sets.views import allocate
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
        found = ask_one((TooManyPieces,), _preimage_on_axes, self, wanted)
        if found is not OPEN:
            return found
        each = [(a, a.shape, cells) for a, cells in wanted.items()]
        found = ask_one((TooManyPieces,), preimage, self._normal_form(), self.shape, each)
        return _preimage_by_isl(self, wanted) if found is OPEN else found

    @count_question
    def internal_overlap(self) -> InternalOverlap | None:
        """Return a cell of memory that the view reads at two of its indices, and these; None if there is none.

        Raises
        ------
        TooHard
            If neither linear equations nor counts decide, nor isl.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> A = allocate((10,))
        >>> found = A.sliding_windows(3).internal_overlap()
        >>> found.a, found.b, found.cell
        ((0, 2), (2, 0), (2,))
        >>> A[::-3].internal_overlap() is None
        True
        """
        if 0 in self.shape:
            return None
        strided = self.strided_form()
        if strided is None:
            return hook.memory.twice(self)
        home, form = strided
        found = hook.memory.twice_by_strides(form)
        if found is None:
            return None
        one, two, number = found
        return InternalOverlap(one, two, home, Relinearize((home.size,), home.shape).apply((number,)))

    @count_question
    def has_internal_overlap(self) -> bool:
        """Return whether the view reads some cell of memory at two of its indices; see `internal_overlap`.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> A = allocate((10,))
        >>> A.sliding_windows(3).has_internal_overlap(), A[::-3].has_internal_overlap()
        (True, False)
        """
        return self.internal_overlap() is not None

    @count_question
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
            If `order` is not one of these.

        Examples
        --------
        >>> from tapestry_sets.views import allocate, concatenate
        >>> A = allocate((10,))
        >>> swapped = concatenate([A[5:10], A[0:5]])
        >>> swapped.is_contiguous(), swapped.is_contiguous("C"), A[::2].is_contiguous()
        (True, False, False)
        >>> B = allocate((4, 6)).T
        >>> B.is_contiguous("C"), B.is_contiguous("F")
        (False, True)
        """
        if not (order is None or (isinstance(order, str) and order in ("C", "F"))):
            raise ValueError(
                f'is_contiguous: order {quote(order)} must be None (as a set), "C" (row-major) or "F" (column-major)'
            )
        if order is None or 0 in self.shape:
            read = list(self.cells.values())
            return not read or (len(read) == 1 and read[0].is_run())
        strided = self.strided_form()
        if strided is not None:
            return hook.memory.is_ordered_by_strides(strided[1], order)
        ordered = self if order == "C" else self.transpose()
        if not _may_ascend(ordered):
            return False
        read = list(ordered.cells.values())
        return len(read) == 1 and hook.memory.is_ordered(read[0])

    def colors(self) -> frozenset[Hashable]:
        """Return the colors of the allocations that the view reads.

        Examples
        --------
        >>> from tapestry_sets.views import allocate, concatenate
        >>> a, b = allocate((3,), color="weights"), allocate((2,), color="input")
        >>> sorted(concatenate([a, b]).colors()), sorted(concatenate([a, b])[:3].colors())
        (['input', 'weights'], ['weights'])

        References
        ----------
        poprithms, memory/alias: Graph::colors.
        """
        read = self.cells
        return frozenset(a.color for a in self.allocations if a in read)


def _may_ascend(view: Questions) -> bool:
    """Whether the first index of a view, the second and the last read cells as far apart as in a run in order."""
    (home, first), last = view._read_ends()
    second = tuple([int(axis == len(view.shape) - 1) if n > 1 else 0 for axis, n in enumerate(view.shape)])
    return last == (home, first + view.size - 1) and view._read_at(second) == (home, first + int(any(second)))


def read_alike(one: Questions, two: Questions) -> bool:
    """Return whether two views of one shape, which is not empty, read the same cell, or constant, at each index.

    Raises
    ------
    TooHard
        If neither patches nor pieces nor isl decide, and the cells are too many to be listed.
    """
    if not _seem_alike(one, two):
        return False
    found = agree(one._normal_form(), two._normal_form())
    if found is None and _read_one_table(one, two):
        return True
    found = read_the_same(one._normal_form(), two._normal_form()) if found is None else found
    if found is None:
        _compose_in_time(one, two)
        found = _same_by_pieces(one, two)
    return _same_by_isl(one, two) if found is None else found


def _compose_in_time(*views: Questions) -> None:
    """Find the pieces of views, or raise TooHard where they take longer than who compares two views should wait."""
    for view in views:
        with limits(budget=min(current().budget, tuning.COMPARED_PIECES)):
            found = ask_one(REFUSALS, lambda view=view: view.pieces)
        if found is OPEN:
            raise TooHard(
                f"comparing views of shape {quote(view.shape)}: {quote(view)} has too many patches and pieces to say "
                "whether it reads the same as another; compare parts of the two"
            )


def _seem_alike(one: Questions, two: Questions) -> bool:
    """Return whether two views of one shape, which is not empty, read the same first, middle and last."""
    if one._read_ends() != two._read_ends():
        return False
    if one.strided_form() is not None and two.strided_form() is not None:
        return True
    middle = tuple([n // 2 for n in one.shape])
    return one._read_at(middle) == two._read_at(middle)


def _read_one_table(one: Questions, two: Questions) -> bool:
    """Return whether two views of one shape read the same as one piece that has a table: it is quickly seen.

    Patches would need one for each run of a table; the steps of a piece hold it as it is, cut and scaled as slices
    around it say, so that equal pieces are the usual case.
    """
    with limits(budget=min(current().budget, tuning.TABLE_TRIES)):
        mine, theirs = (ask_one(REFUSALS, lambda view=view: view.pieces) for view in (one, two))
    if mine is OPEN or theirs is OPEN or len(mine) != 1 or one.allocations != two.allocations:
        return False
    return bool(mine == theirs and any(isinstance(step, Lookup) for step in mine[0].map.steps))


def _same_by_pieces(one: Questions, two: Questions) -> bool | None:
    """Whether two views of one shape read the same at each index, by as many patches as pieces may be; None if open."""
    most = current().max_pieces
    mine, theirs = (
        flat_of(view.pieces, view.shape, [(a.shape, a._normal_form()) for a in view.allocations], most)
        for view in (one, two)
    )
    return None if mine is OPEN or theirs is OPEN else agree(mine, theirs, most)


def _same_by_isl(one: Questions, two: Questions) -> bool:
    """Whether two views of one shape read the same at each index, as isl finds it."""
    operations = min(isl.MAX_OPERATIONS * (len(one.pieces) + len(two.pieces)), isl.BUILD_OPERATIONS)

    def same() -> bool:
        mine, theirs = _relations(one), _relations(two)
        return mine.keys() == theirs.keys() and all(mine[home].is_equal(theirs[home]) for home in mine)

    what = "View.same_view: the views have too many patches"
    return isl.decide(what, same, operations, "ask about parts of the views")


def _relations(view: Questions) -> dict[Hashable, Any]:
    """isl's maps from the view's indices to the cells of each allocation, and to those of rank 0 of each constant."""
    found: dict[Hashable, Any] = {a: m for a, m in isl.to_isl(view).items() if not m.is_empty()}
    box = isl.box_set((0,) * view.rank, view.shape)
    for piece in view.pieces:
        if piece.fill is not None:
            value, more = Constant(piece.fill), isl.to_isl(piece).intersect_domain(box)
            found[value] = found[value].union(more) if value in found else more
    return {home: m for home, m in found.items() if not m.is_empty()}


def _by_allocation(
    view: Questions, cells: Region | DisjointRegions | Mapping[Allocation, Region | DisjointRegions]
) -> dict[Allocation, DisjointRegions]:
    """The cells that are asked for, for each allocation that the view is made of."""
    if not isinstance(cells, Mapping):
        homes = view.allocations
        if len(homes) > 1:
            names = ", ".join(a.name or f"{a.shape}" for a in homes)
            raise ValueError(
                f"View.preimage: the view is made of {cut_text(names)}; give a mapping of allocations to cells"
            )
        cells = {homes[0]: cells}
    for a, found in cells.items():
        if not isinstance(found, (Region, DisjointRegions)):
            raise TypeError(f"View.preimage: cells must be a Region or DisjointRegions, not {type(found).__name__}")
        if found.shape != a.shape or any(found.start):
            raise ValueError(
                f"View.preimage: cells in a box of shape {quote(found.shape)} from {quote(found.start)}, where the "
                f"allocation {quote(a.name)} has the shape {quote(a.shape)}; write Region({quote(a.shape)}, …)"
            )
    return {a: DisjointRegions._of(a.shape, found.regions, found.start) for a, found in cells.items()}


def _preimage_on_axes(view: Questions, wanted: Mapping[Allocation, DisjointRegions]) -> DisjointRegions | Open:
    """The indices that read given cells, axis by axis, of a view that reads a product; `OPEN` if they are not few."""
    read = read_products(view)
    if read is None:
        return OPEN
    found: list[AxisSets] = []
    for home, products in read.items():
        for region in wanted[home].regions if home in wanted else ():
            if None in region.progressions:
                return OPEN
            each = products.readers(tuple([(p,) for p in region.progressions if p is not None]))
            few = list(islice(each, tuning.MAX_PATCHES))
            if len(few) == tuning.MAX_PATCHES or OPEN in few:
                return OPEN
            found += [sets for sets in few if sets is not OPEN]
    return DisjointRegions._of_products(view.shape, found, "the indices of a view that read given cells")


def _preimage_by_isl(view: Questions, cells: Mapping[Allocation, DisjointRegions]) -> ImplicitRegion:
    what = f"View.preimage: the indices of a view of shape {view.shape} that read the cells make too many products"

    def made() -> str:
        maps = isl.to_isl(view)
        found = isl.box_set((0,) * view.rank, (0,) * view.rank)
        for a, regions in cells.items():
            if a in maps:
                found = found.union(isl.to_isl(regions).apply(maps[a].reverse()))
        return str(found)

    operations, mend = isl.BUILD_OPERATIONS * len(view.pieces), "overlaps() and its witness need no such set"
    return ImplicitRegion((0,) * view.rank, view.shape, isl.decide(what, made, operations, mend, TooManyPieces))


def say_no_view(what: str, x: object) -> str:
    return (
        f"{what} is a {type(x).__name__}, not a View; as_view makes an array one, and the functions overlaps, "
        "contains and same_elements take both"
    )
