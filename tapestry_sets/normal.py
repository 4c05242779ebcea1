"""The normal form of views: patches, folded; and what is decided and built from it.

Two views of one shape are the same if they read the same cell at each index: that is asked of their patches, pair by
pair, where these share indices. The other way, a view is built anew from its patches as a short chain of kinds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from tapestry_sets.affine import Box, regions_of
from tapestry_sets.bundles import Bundle, Shatters, in_region, unflattened
from tapestry_sets.folding import fold
from tapestry_sets.maps import Piece
from tapestry_sets.patches import Constant, Flat, Patch, patch_of, read_patches, resolved, through
from tapestry_sets.progression import Grid, Progression, progression
from tapestry_sets.region import Regions

MAX_PATCHES = 1000
"""A view of more patches is not spelt out: what reads it sees it as memory of its own."""
MAX_STAGES = 16
"""How often patches may be of patches that are not spelt out."""
FEW = 64
"""How many values of a digit that moves along several axes are listed."""


class Opaque:
    """What stands for a view that is no few patches: the same only as itself."""

    __slots__ = ("view",)

    def __init__(self, view: object) -> None:
        self.view = view


def flat_of(pieces: Iterable[Piece], shape: Sequence[int], sources: Sequence[tuple[tuple[int, ...], Flat]]) -> Flat:
    """Return the normal form of a view without empty axes, from those of its sources.

    Parameters
    ----------
    pieces : iterable of Piece
        Of the view's kind; they read the sources.
    shape : sequence of int
        Of the view.
    sources : sequence of (shape, Flat)

    Raises
    ------
    Shatters
        If it would have more than `MAX_PATCHES` patches, or too many stages.

    Examples
    --------
    >>> from tapestry_sets.kinds import Roll
    >>> whole = Flat(5, (Patch(0, 0, ((5, 1, 1),), "A"),), 0)
    >>> flat_of(Roll(2, 0).pieces(((5,),)), (5,), [((5,), whole)]).patches
    (Patch(at=0, cell=3, digits=((2, 1, 1),), home='A'), Patch(at=2, cell=0, digits=((3, 1, 1),), home='A'))
    """
    found: list[Patch] = []
    for piece in pieces:
        home, flat = sources[piece.source] if piece.source >= 0 else ((), None)
        for bundle in read_patches(piece, shape, home, MAX_PATCHES):
            if flat is None:
                assert piece.fill is not None, "a constant has a value"
                found.append(patch_of(bundle, Constant(piece.fill)))
            else:
                found += resolved(bundle, flat)
        if len(found) > MAX_PATCHES:
            raise Shatters
    return _flat(found)


def flat_over(bundle: Bundle, flat: Flat) -> Flat:
    """Return the normal form of a bundle that reads a view at all its indices."""
    return _flat(resolved(bundle, flat))


def _flat(patches: list[Patch]) -> Flat:
    folded = fold(patches)
    if any(isinstance(patch.home, Flat) for patch in folded):  # folded, some may be spelt out after all
        folded = fold([one for patch in folded for one in resolved(patch.bundle, patch.home)])
    stages = max([patch.home.stages + 1 for patch in folded if isinstance(patch.home, Flat)], default=0)
    if stages > MAX_STAGES:
        raise Shatters
    return Flat(sum([patch.size for patch in folded]), folded, stages)


# ------------------------------------------------------------------------------------------------ the same or not


def agree(one: Flat, two: Flat, limit: int = MAX_PATCHES) -> bool | None:
    """Return whether two views of one size read the same cell at each index; None if that is not known.

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
    theirs = set(two.patches)
    known: bool | None = True
    for patch in one.patches:
        if patch in theirs:
            continue
        for other in two.patches:
            if other.at > patch.last:
                break
            if other.last < patch.at:
                continue
            same = _agree_on(patch, other, limit)
            if same is False:
                return False
            known = None if same is None else known
    return known


def _agree_on(one: Patch, two: Patch, limit: int) -> bool | None:
    """Whether two patches read the same at all indices that they share; None if that is not known."""
    try:
        common = through(one.bundle.mapped((1, 0)), two, limit)
        return _all_same([_same_cells(part, one.home, two.home, limit) for part in common])
    except Shatters:
        return None


def _all_same(answers: Iterable[bool | None]) -> bool | None:
    known: bool | None = True
    for answer in answers:
        if answer is False:
            return False
        known = None if answer is None else known
    return known


def _same_cells(part: Bundle, one: Hashable, two: Hashable, limit: int) -> bool | None:
    """Whether both forms of a bundle, cells of two homes, are the same cell for all digits."""
    if one == two:
        equal = part.origin[0] == part.origin[1] and all(steps[0] == steps[1] for _, steps in part.digits)
        if equal or not isinstance(one, (Flat, Opaque)):
            return equal
    if isinstance(one, Flat):
        deeper = [(cut, patch.home) for cut, patch in _below(part.mapped((1, 0)), one, limit)]
        return _all_same([_same_cells(cut, two, home, limit) for cut, home in deeper])
    if isinstance(two, Flat):
        deeper = [(cut, patch.home) for cut, patch in _below(part, two, limit)]
        return _all_same([_same_cells(cut, one, home, limit) for cut, home in deeper])
    return None if isinstance(one, Opaque) or isinstance(two, Opaque) else False


def _below(part: Bundle, flat: Flat, limit: int) -> list[tuple[Bundle, Patch]]:
    """The parts of a bundle whose second form is an index of `flat`, with its cell in place of the index."""
    low, high = part.bounds(1)
    found: list[tuple[Bundle, Patch]] = []
    for patch in flat.patches:
        if patch.at <= high and patch.last >= low:
            found += [(cut, patch) for cut in through(part, patch, limit)]
        if len(found) > limit:
            raise Shatters
    return found


# ----------------------------------------------------------------------------------------------------- the mirror


def preimage(flat: Flat, shape: tuple[int, ...], cells: Sequence[tuple[Hashable, tuple[int, ...], Regions]]) -> Regions:
    """Return the indices of a view of `shape` that read given cells.

    Parameters
    ----------
    flat : Flat
        The view.
    shape : tuple of int
    cells : sequence of (home, shape, Regions)
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
