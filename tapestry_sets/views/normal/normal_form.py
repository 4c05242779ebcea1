"""The normal form of views: folded patches, the questions that they decide, and views built from them.

Two views of one shape are the same if they read the same cell at each index: that is asked of their patches, pair by
pair, where these share indices. The other way, a view is built anew from its patches as a short chain of kinds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np
from msgspec import Struct

from tapestry_sets.digits import CutDigits, Digits, Grid, advance, cut_each, progression, unflatten
from tapestry_sets.integers import Int64Array
from tapestry_sets.limits import OPEN, Budget, Open, current
from tapestry_sets.regions import Box, DisjointRegions, regions_of
from tapestry_sets.views import tuning
from tapestry_sets.views.normal.folding import fold
from tapestry_sets.views.normal.patches import (
    Constant,
    Flat,
    Patch,
    in_region,
    patch_of,
    read_patches,
    resolve,
    through,
)
from tapestry_sets.views.pieces.piece import Piece
from tapestry_sets.views.walks import sources_first, walk


class Opaque:
    """The normal form of a view of more than a few patches: the same only as itself."""

    __slots__ = ("view",)

    def __init__(self, view: object) -> None:
        self.view = view


def flat_of(
    pieces: Iterable[Piece],
    shape: Sequence[int],
    sources: Sequence[tuple[tuple[int, ...], Flat]],
    most: int = tuning.MAX_PATCHES,
) -> Flat | Open:
    """Return the normal form of a view without empty axes, from those of its sources; `OPEN` where it is too long.

    Parameters
    ----------
    pieces : iterable of Piece
        Of the view's kind; they read the sources.
    shape : sequence of int
        Of the view.
    sources : sequence of (shape, Flat)
    most : int
        How many patches it may have. There may not be too many stages either.

    Examples
    --------
    >>> from tapestry_sets.views import Roll
    >>> whole = Flat(5, (Patch(0, 0, ((5, 1, 1),), "A"),), 0)
    >>> flat_of(Roll(2, 0).pieces(((5,),)), (5,), [((5,), whole)]).patches
    (Patch(at=0, cell=3, digits=((2, 1, 1),), home='A'), Patch(at=2, cell=0, digits=((3, 1, 1),), home='A'))
    """
    found: list[Patch] = []
    tries = Budget(tuning.TRIES + 2 * sum([len(flat.patches) for _, flat in sources]))
    for piece in pieces:
        home, flat = sources[piece.source] if piece.source >= 0 else ((), None)
        boxes = read_patches(piece, shape, home, most)
        if boxes is OPEN:
            return OPEN
        for box in boxes:
            if flat is None:
                assert piece.fill is not None, "a constant has a value"
                found.append(patch_of(box, Constant(piece.fill)))
            else:
                tries.left = max(tries.left, 0) + 2
                found += resolve(box, flat, tries)
        if len(found) > most:
            return OPEN
    return _fold_all(found)


def flat_over(box: Digits, flat: Flat) -> Flat | Open:
    """Return the normal form of digits (index, cell) that read a view at all its indices."""
    return _fold_all(resolve(box, flat))


def _fold_all(patches: list[Patch]) -> Flat | Open:
    folded = fold(patches)
    longer = {patch for patch in folded if isinstance(patch.home, Flat)}.difference(patches)
    if longer:  # folded, these may be spelled out after all
        tries = Budget(tuning.TRIES + 2 * len(folded))
        each = [resolve(p.forms, p.home, tries) if p in longer else [p] for p in folded]
        folded = fold([one for part in each for one in part])
    stages = max([patch.home.stages + 1 for patch in folded if isinstance(patch.home, Flat)], default=0)
    if stages > tuning.MAX_STAGES:
        return OPEN
    return Flat(sum([patch.size for patch in folded]), folded, stages)


def find_opaque(flat: Flat) -> list[object]:
    """Return the views that the patches of a normal form, and those below these, do not spell out."""
    flats = walk(flat, lambda f: [patch.home for patch in f.patches if isinstance(patch.home, Flat)])
    homes = (patch.home for f in flats for patch in f.patches)
    return list({id(home.view): home.view for home in homes if isinstance(home, Opaque)}.values())


# ------------------------------------------------------------------------------------------------ the same or not


def agree(one: Flat, two: Flat, limit: int = tuning.MAX_PATCHES) -> bool | None:
    """Return whether two views of one size read the same cell at each index; None if that is not known.

    Both are gone through in the order of their indices, and patches are compared where they share some: that is
    given up where it takes more than the budget of `tapestry_sets.limits`.

    Examples
    --------
    >>> halves = Flat(4, (Patch(0, 0, ((2, 1, 1),), "A"), Patch(2, 2, ((2, 1, 1),), "A")), 0)
    >>> agree(halves, Flat(4, (Patch(0, 0, ((4, 1, 1),), "A"),), 0))
    True
    >>> agree(halves, Flat(4, (Patch(0, 1, ((4, 1, 1),), "A"),), 0))
    False
    """
    if one == two:
        return True
    found = _agree_by_first(one, two, limit)
    return _agree_by_first(two, one, limit) if found is None else found  # so that the order of the two says nothing


def _agree_by_first(one: Flat, two: Flat, limit: int) -> bool | None:
    """The same, by the patches of the first: of another view they may take another number of branches."""
    mine, theirs = set(one.patches), set(two.patches)
    comparison = _Comparison(limit, Budget(max(current().budget // tuning.BRANCHES_A_COMPARISON, 1)))
    known: bool | None = True
    for patch, other in _pair_sharing(
        [patch for patch in one.patches if patch not in theirs], [patch for patch in two.patches if patch not in mine]
    ):
        same = comparison.patches(patch, other)
        if same is False:
            return False
        known = None if same is None else known
        if comparison.tries.is_overdrawn:
            return None
    return known


def _pair_sharing(one: Sequence[Patch], two: Sequence[Patch]) -> Iterator[tuple[Patch, Patch]]:
    """The pairs of patches, each in the order of first indices, whose ranges of indices meet."""
    reached: list[tuple[int, Patch]] = []  # by other patches that begin before this one ends: (last index, patch)
    k = 0
    for patch in one:
        last = patch.last
        while k < len(two) and two[k].at <= last:
            reached.append((two[k].last, two[k]))
            k += 1
        reached = [(end, other) for end, other in reached if end >= patch.at]
        for _, other in reached:
            if other.at <= last:
                yield patch, other


def _all_same(answers: Iterable[bool | None]) -> bool | None:
    known: bool | None = True
    for answer in answers:
        if answer is False:
            return False
        known = None if answer is None else known
    return known


def read_the_same(one: Flat, two: Flat, most: int = tuning.LISTED_CELLS) -> bool | None:
    """Return whether two views read the same at each index, by listing what each reads; None if that is too long.

    Also None where patches do not spell out what is read, or a number exceeds 64 bits.

    Examples
    --------
    >>> halves = Flat(4, (Patch(0, 0, ((2, 1, 1),), "A"), Patch(2, 2, ((2, 1, 1),), "A")), 0)
    >>> read_the_same(halves, Flat(4, (Patch(0, 0, ((4, 1, 1),), "A"),), 0))
    True
    """
    if one.size > most or find_opaque(one) or find_opaque(two):
        return None
    homes: dict[Hashable, int] = {}
    read: dict[int, tuple[Int64Array, Int64Array]] = {}
    with suppress(OverflowError):
        for flat in sources_first(one, _flats_below) + sources_first(two, _flats_below):
            if flat.size > most:
                return None
            read.setdefault(id(flat), _list_reads(flat, homes, read))
        return all(np.array_equal(a, b) for a, b in zip(read[id(one)], read[id(two)], strict=True))
    return None


def _flats_below(flat: Flat) -> list[Flat]:
    return [patch.home for patch in flat.patches if isinstance(patch.home, Flat)]


def _list_reads(
    flat: Flat, homes: dict[Hashable, int], read: dict[int, tuple[Int64Array, Int64Array]]
) -> tuple[Int64Array, Int64Array]:
    """The number of the home in `homes`, and of the cell there, that each index reads; `read` has those below."""
    home, cell = np.empty(flat.size, np.int64), np.empty(flat.size, np.int64)
    for patch in flat.patches:
        if patch.forms.bounds(1)[1] >= 1 << 63:  # NumPy would go on in floating point, or around
            raise OverflowError("the number of a cell exceeds 64 bits")
        indices, cells = np.full(1, patch.at), np.full(1, patch.cell)
        for count, by, step in patch.digits:
            k = np.arange(count)
            indices, cells = (np.add.outer(x, k * y).ravel() for x, y in ((indices, by), (cells, step)))
        if isinstance(patch.home, Flat):
            home[indices], cell[indices] = (found[cells] for found in read[id(patch.home)])
        else:
            home[indices], cell[indices] = homes.setdefault(patch.home, len(homes)), cells
    return home, cell


class _Comparison(Struct, frozen=True):
    """What comparing two views may take: parts of a pair of patches, and how often digits are taken through one."""

    limit: int
    tries: Budget

    def patches(self, one: Patch, two: Patch) -> bool | None:
        """Whether two patches read the same at all indices that they share; None if that is not known."""
        common = through(one.forms.pick_forms((1, 0)), two, self.limit) if self.tries.spend() else OPEN
        return None if common is OPEN else _all_same(self.cells(part, one.home, two.home) for part in common)

    def cells(self, part: Digits, one: Hashable, two: Hashable) -> bool | None:
        """Whether both forms of the digits, cells of two homes, are always the same cell; None if not known."""
        if one == two:
            equal = part.origin[0] == part.origin[1] and all(a == b for _, a, b in part.digits)
            if equal or not isinstance(one, (Flat, Opaque)):
                return equal
        if isinstance(one, Flat):
            return self.below(part.pick_forms((1, 0)), one, two)
        if isinstance(two, Flat):
            return self.below(part, two, one)
        return None if isinstance(one, Opaque) or isinstance(two, Opaque) else False

    def below(self, part: Digits, flat: Flat, other: Hashable) -> bool | None:
        """As `cells`, where the second form is an index of `flat`: by the cells that its patches read there."""
        low, high = part.bounds(1)
        found: list[tuple[Digits, Patch]] = []
        for patch in flat.patches:
            if patch.at <= high and patch.last >= low:
                cuts = through(part, patch, self.limit) if self.tries.spend() else OPEN
                if cuts is OPEN or len(found) + len(cuts) > self.limit:
                    return None
                found += [(cut, patch) for cut in cuts]
        return _all_same(self.cells(cut, other, patch.home) for cut, patch in found)


# ----------------------------------------------------------------------------------------------------- the mirror


def preimage(
    flat: Flat, shape: tuple[int, ...], cells: Sequence[tuple[Hashable, tuple[int, ...], DisjointRegions]]
) -> DisjointRegions | Open:
    """Return the indices of a view of `shape` that read given cells; `OPEN` if they are not few products of its axes.

    Parameters
    ----------
    flat : Flat
        The view.
    shape : tuple of int
    cells : sequence of (home, shape, DisjointRegions)
        Cells of homes of that shape.
    """
    grids: list[Grid] = []
    for home, home_shape, regions in cells:
        read = cut_each(_read_home(flat, home), unflatten, 1, home_shape, tuning.MAX_PATCHES)
        indices = cut_each(read, _indices_in, regions)
        apart = cut_each(cut_each(indices, unflatten, 0, shape, tuning.MAX_PATCHES), _along_axes)
        if apart is OPEN or len(grids) + len(apart) > tuning.MAX_PATCHES:
            return OPEN
        grids += [_progressions(box) for box in apart]
    return regions_of(grids, Box.of(shape), apart=True)


def _indices_in(box: Digits, regions: DisjointRegions) -> CutDigits:
    """Of digits (index, coordinates of the cell) the indices whose cells are in regions."""
    found: list[Digits] = []
    for region in regions.regions:
        cuts = in_region(box, 1, region, tuning.MAX_PATCHES)
        if cuts is OPEN:
            return OPEN
        found += [cut.pick_forms((0,)) for cut in cuts]
    return found


def _read_home(flat: Flat, home: Hashable) -> CutDigits:
    """The digits of (index, cell) that read a home, stage by stage."""
    found: list[Digits] = []
    for patch in flat.patches:
        if isinstance(patch.home, Opaque):
            return OPEN
        if isinstance(patch.home, Flat):
            cuts = cut_each(_read_home(patch.home, home), _read_below, patch)
            if cuts is OPEN:
                return OPEN
            found += cuts
        elif patch.home == home:
            found.append(patch.forms)
    return found


def _read_below(box: Digits, patch: Patch) -> CutDigits:
    """The digits of (index, cell) of what a patch reads of digits over its home."""
    return through(patch.forms, patch_of(box, None), tuning.MAX_PATCHES)


def _along_axes(box: Digits) -> CutDigits:
    """The digits cut until each of them moves one form only."""
    for k, digit in enumerate(box.digits):
        if sum(map(bool, digit[1:])) > 1:
            if digit[0] > tuning.MAX_DIGIT:
                return OPEN
            rest = box.digits[:k] + box.digits[k + 1 :]
            return cut_each([Digits(advance(box.origin, digit, j), rest) for j in range(digit[0])], _along_axes)
    return [box]


def _progressions(box: Digits) -> Grid:
    """Each form by itself, where each digit moves one form only."""
    return tuple([progression(first, [(d[0], d[f]) for d in box.digits]) for f, first in enumerate(box.origin, 1)])
