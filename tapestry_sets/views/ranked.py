"""The cells of a view of one allocation, as row-major numbers: a chain of sets, each filled with the next.

    B reads the numbers  ..11.1..11.1  of A, by a sample
    C = B[::2] reads     ..1..1...1..  of A: 1.1.1. of B's six numbers, the first, third and fifth

Such a chain is known even where the cells of C alone would be too many setts. It needs each source on the way to list
its cells in ascending order, for only then is "number k of what B reads" the k-th cell of B.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from tapestry_sets.digits import Strided, contiguous
from tapestry_sets.integers import DisjointSetts, nest_of
from tapestry_sets.views import hook, tuning
from tapestry_sets.views.kinds.kind import ViewKind
from tapestry_sets.views.pieces.maps import Shape

EVERY = DisjointSetts._of(((),))


class Ranked(Struct, frozen=True):
    """The cells of a view, by the row-major numbers of the last of its sources that lists its cells in ascending order.

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
        return None if nest is None else _append(self.sets, DisjointSetts._of((nest,)))

    def extend(self, kind: ViewKind, shape: Shape, source: Shape) -> Ranked | None:
        """Return the ranked form of a view of a shape over this form's view, which has the shape `source`."""
        step = getattr(kind, "strided", None)
        form = step((source,), self.form) if step is not None and self.form is not None else None
        if form is not None:
            return Ranked(self.sets, self.size, form)
        sets, size = self.cells, prod(source)
        if sets is None:
            return None
        if self.form is not None and _ascends(self.form):
            form = step((source,), contiguous(source)) if step is not None else None
            if form is not None:
                return Ranked(sets, size, form)
            own = _find_own(kind, shape, source)
            longer = None if own is None else _append(sets, own)
            return None if longer is None else Ranked(longer, size, None)
        # in another order the numbers are lost, but what reads all cells still reads the same
        own = _find_own(kind, shape, source)
        return Ranked(sets, size, None) if own is not None and own.count(0, size) == size else None


def _append(sets: tuple[DisjointSetts, ...], ink: DisjointSetts) -> tuple[DisjointSetts, ...] | None:
    if ink._nests == EVERY._nests:
        return sets
    return (*sets, ink) if len(sets) < tuning.MAX_CHAIN else None


def _find_own(kind: ViewKind, shape: Shape, source: Shape) -> DisjointSetts | None:
    """The row-major numbers of its one source that a view reads, if they are few setts."""
    return hook.memory.local_setts(kind.pieces((source,)), shape, source)


def _ascends(form: Strided) -> bool:
    """Whether a strided view lists its cells in ascending order, none twice."""
    reach = 0
    for levels in reversed(form[1]):
        for count, by in reversed(levels):
            if count > 1 and by <= reach:
                return False
            reach += (count - 1) * by
    return True
