"""The normal form of views: patches, folded; and what is decided and built from it.

Two views of one shape are the same if they read the same cell at each index: that is asked of their patches, pair by
pair, where these share indices. The other way, a view is built anew from its patches as a short chain of kinds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tapestry_sets.digits import Grid, Progression, progression
from tapestry_sets.limits import current
from tapestry_sets.regions import Box, DisjointRegions, regions_of
from tapestry_sets.views.bundles import Bundle, Shatters, Tries, in_region, unflattened
from tapestry_sets.views.folding import fold
from tapestry_sets.views.patches import Constant, Flat, Patch, patch_of, read_patches, resolved, through
from tapestry_sets.views.pieces import Piece

MAX_PATCHES = 1000
"""A view of more patches is not spelled out: what reads it sees it as memory of its own."""
MAX_STAGES = 16
"""How often patches may be of patches that are not spelled out."""
FEW = 64
"""How many values of a digit that moves along several axes are listed."""


class Opaque:
    """What stands for a view that is no few patches: the same only as itself."""

    __slots__ = ("view",)

    def __init__(self, view: object) -> None:
        self.view = view


TRIES = 32
"""How often a view's products are taken through patches of patches, more than twice for each of them."""


def flat_of(
    pieces: Iterable[Piece],
    shape: Sequence[int],
    sources: Sequence[tuple[tuple[int, ...], Flat]],
    most: int = MAX_PATCHES,
) -> Flat:
    """Return the normal form of a view without empty axes, from those of its sources.

    Parameters
    ----------
    pieces : iterable of Piece
        Of the view's kind; they read the sources.
    shape : sequence of int
        Of the view.
    sources : sequence of (shape, Flat)
    most : int
        How many patches it may have.

    Raises
    ------
    Shatters
        If it would have more than `most` patches, or too many stages.

    Examples
    --------
    >>> from tapestry_sets.views import Roll
    >>> whole = Flat(5, (Patch(0, 0, ((5, 1, 1),), "A"),), 0)
    >>> flat_of(Roll(2, 0).pieces(((5,),)), (5,), [((5,), whole)]).patches
    (Patch(at=0, cell=3, digits=((2, 1, 1),), home='A'), Patch(at=2, cell=0, digits=((3, 1, 1),), home='A'))
    """
    found: list[Patch] = []
    tries = Tries(TRIES + 2 * sum([len(flat.patches) for _, flat in sources]))
    for piece in pieces:
        home, flat = sources[piece.source] if piece.source >= 0 else ((), None)
        for bundle in read_patches(piece, shape, home, most):
            if flat is None:
                assert piece.fill is not None, "a constant has a value"
                found.append(patch_of(bundle, Constant(piece.fill)))
            else:
                tries.left = max(tries.left, 0) + 2
                found += resolved(bundle, flat, tries)
        if len(found) > most:
            raise Shatters
    return _flat(found)


def flat_over(bundle: Bundle, flat: Flat) -> Flat:
    """Return the normal form of a bundle that reads a view at all its indices."""
    return _flat(resolved(bundle, flat))


def _flat(patches: list[Patch]) -> Flat:
    folded = fold(patches)
    longer = {patch for patch in folded if isinstance(patch.home, Flat)}.difference(patches)
    if longer:  # folded, these may be spelled out after all
        tries = Tries(TRIES + 2 * len(folded))
        each = [resolved(p.bundle, p.home, tries) if p in longer else [p] for p in folded]
        folded = fold([one for part in each for one in part])
    stages = max([patch.home.stages + 1 for patch in folded if isinstance(patch.home, Flat)], default=0)
    if stages > MAX_STAGES:
        raise Shatters
    return Flat(sum([patch.size for patch in folded]), folded, stages)


# ------------------------------------------------------------------------------------------------ the same or not


COMPARED = 16
"""Taking a bundle through a patch, to compare what both read, takes as long as so many branches of the budget."""


def agree(one: Flat, two: Flat, limit: int = MAX_PATCHES) -> bool | None:
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
    mine, theirs = set(one.patches), set(two.patches)
    comparison = _Comparison(limit, Tries(max(current().budget // COMPARED, 1)))
    known: bool | None = True
    for patch, other in _sharing(
        [patch for patch in one.patches if patch not in theirs],
        [patch for patch in two.patches if patch not in mine],
    ):
        same = comparison.patches(patch, other)
        if same is False:
            return False
        known = None if same is None else known
        if comparison.tries.left < 0:
            return None
    return known


def _sharing(one: Sequence[Patch], two: Sequence[Patch]) -> Iterator[tuple[Patch, Patch]]:
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


class _Comparison(NamedTuple):
    """What comparing two views may take: parts of a pair of patches, and how often a bundle is taken through one."""

    limit: int
    tries: Tries

    def patches(self, one: Patch, two: Patch) -> bool | None:
        """Whether two patches read the same at all indices that they share; None if that is not known."""
        try:
            self.tries.take()
            common = through(one.bundle.mapped((1, 0)), two, self.limit)
            return _all_same([self.cells(part, one.home, two.home) for part in common])
        except Shatters:
            return None

    def cells(self, part: Bundle, one: Hashable, two: Hashable) -> bool | None:
        """Whether both forms of a bundle, cells of two homes, are the same cell for all digits."""
        if one == two:
            equal = part.origin[0] == part.origin[1] and all(steps[0] == steps[1] for _, steps in part.digits)
            if equal or not isinstance(one, (Flat, Opaque)):
                return equal
        if isinstance(one, Flat):
            deeper = [(cut, patch.home) for cut, patch in self.below(part.mapped((1, 0)), one)]
            return _all_same(self.cells(cut, two, home) for cut, home in deeper)
        if isinstance(two, Flat):
            deeper = [(cut, patch.home) for cut, patch in self.below(part, two)]
            return _all_same(self.cells(cut, one, home) for cut, home in deeper)
        return None if isinstance(one, Opaque) or isinstance(two, Opaque) else False

    def below(self, part: Bundle, flat: Flat) -> list[tuple[Bundle, Patch]]:
        """The parts of a bundle whose second form is an index of `flat`, with its cell in place of the index."""
        low, high = part.bounds(1)
        found: list[tuple[Bundle, Patch]] = []
        for patch in flat.patches:
            if patch.at <= high and patch.last >= low:
                self.tries.take()
                found += [(cut, patch) for cut in through(part, patch, self.limit)]
            if len(found) > self.limit:
                raise Shatters
        return found


# ----------------------------------------------------------------------------------------------------- the mirror


def preimage(
    flat: Flat, shape: tuple[int, ...], cells: Sequence[tuple[Hashable, tuple[int, ...], DisjointRegions]]
) -> DisjointRegions:
    """Return the indices of a view of `shape` that read given cells.

    Parameters
    ----------
    flat : Flat
        The view.
    shape : tuple of int
    cells : sequence of (home, shape, DisjointRegions)
        Cells of homes of that shape.

    Raises
    ------
    Shatters
        If they are no few products of the view's axes.
    """
    grids: list[Grid] = []
    for home, home_shape, regions in cells:
        for part in _reading(flat, home):
            for whole in unflattened(part, 1, home_shape, MAX_PATCHES):
                for region in regions.regions:
                    for cut in in_region(whole, 1, region, MAX_PATCHES):
                        grids += _grids(cut.mapped((0,)), shape)
        if len(grids) > MAX_PATCHES:
            raise Shatters
    return regions_of(grids, Box.of(shape), apart=True)


def _reading(flat: Flat, home: Hashable) -> list[Bundle]:
    """The bundles of (index, cell) that read a home, stage by stage."""
    found: list[Bundle] = []
    for patch in flat.patches:
        if isinstance(patch.home, Opaque):
            raise Shatters
        if isinstance(patch.home, Flat):
            below = _reading(patch.home, home)
            for inner in below:
                found += through(patch.bundle, patch_of(inner, home), MAX_PATCHES)
        elif patch.home == home:
            found.append(patch.bundle)
    return found


def _grids(indices: Bundle, shape: tuple[int, ...]) -> list[Grid]:
    """Row-major numbers as products of the axes."""
    parts = [one for part in unflattened(indices, 0, shape, MAX_PATCHES) for one in _axiswise(part)]
    return [tuple([_along(part, axis) for axis in range(len(shape))]) for part in parts]


def _axiswise(bundle: Bundle) -> list[Bundle]:
    """The bundle cut until each digit moves one form only."""
    for k, (count, steps) in enumerate(bundle.digits):
        if sum(map(bool, steps)) > 1:
            if count > FEW:
                raise Shatters
            rest = bundle.digits[:k] + bundle.digits[k + 1 :]
            copies = [tuple([a + j * b for a, b in zip(bundle.origin, steps, strict=True)]) for j in range(count)]
            return [one for origin in copies for one in _axiswise(Bundle(origin, rest))]
    return [bundle]


def _along(bundle: Bundle, form: int) -> Progression:
    return progression(bundle.origin[form], [(count, steps[form]) for count, steps in bundle.digits])
