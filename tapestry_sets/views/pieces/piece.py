"""The normal form of views: pieces, each a chain of affine maps, row-major renumberings and tables under guards.

Every view, whatever its kind, is a tuple of `Piece`. Where all guards of a piece hold, the view reads the piece's
source at ``map(point)``; the domains of a view's pieces partition it. What is computed here (images, domains,
composition, simplification, JSON) looks at pieces only and never at kinds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from math import prod
from operator import sub
from typing import Protocol, TypeVar, overload

from msgspec import Struct, field

from tapestry_sets.integers import nest as nests
from tapestry_sets.limits import Budget, check_pieces, quote
from tapestry_sets.regions import AffineMap, Box, DisjointRegions, IndexProjection, Region
from tapestry_sets.views.pieces.lookup import Lookup
from tapestry_sets.views.pieces.maps import IndexMap, Step, put_extents, shorten, trim_tables


class Guard(Struct, frozen=True):
    """A condition on the coordinates after the first `prefix` steps of a piece's chain: they lie in `region`."""

    prefix: int
    region: Region


class Piece(Struct, frozen=True):
    """Where all guards hold, the view reads source number `source` at ``map(point)``.

    Parameters
    ----------
    source : int
        The position of the source among the view's sources; -1 for a constant.
    guards : tuple of Guard
        The domain, each condition in the coordinates where it is a product.
    map : IndexMap
        From the view's coordinates to the source's; to rank 0 for a constant.
    fill : float, optional
        The value of a constant, given exactly when `source` is -1.

    Raises
    ------
    ValueError
        If a guard names no step or has the wrong rank, or `fill` does not fit `source`.
    """

    source: int
    guards: tuple[Guard, ...]
    map: IndexMap
    fill: float | None = field(default=None)

    def __post_init__(self) -> None:
        if (self.source == -1) != (self.fill is not None) or self.source < -1:
            raise ValueError(
                f"Piece: source {self.source} with fill {quote(self.fill)}; a constant has source -1 and a fill"
            )
        for guard in self.guards:
            if not 0 <= guard.prefix <= len(self.map.steps):
                raise ValueError(f"Piece: guard prefix {guard.prefix} is not in [0, {len(self.map.steps)}]")
            rank = rank_at(self.map, guard.prefix)
            if guard.region.rank != rank:
                raise ValueError(f"Piece: guard {guard} has rank {guard.region.rank} where the chain has rank {rank}")


def rank_at(chain: IndexMap, prefix: int) -> int:
    """Return the number of coordinates after the first `prefix` steps."""
    return chain.steps[prefix - 1].out_rank if prefix else chain.in_rank


def identity_piece(rank: int, source: int = 0) -> Piece:
    """Return the piece that reads all of a source as it is."""
    return Piece(source, (), IndexMap((), rank))


class _HasPieces(Protocol):
    @property
    def pieces(self) -> Sequence[Piece]:
        """Some pieces."""

    @property
    def allocations(self) -> Sequence[Hashable]:
        """What pieces read, as they number it."""


class PiecesOf(Sequence[Piece]):
    """The pieces of a view that read one allocation, composed when the first of them is asked for.

    Parameters
    ----------
    view : object with `pieces` and `allocations`
    allocation : Allocation
    """

    __slots__ = ("_allocation", "_view")

    def __init__(self, view: _HasPieces, allocation: Hashable) -> None:
        self._view = view
        self._allocation = allocation

    @overload
    def __getitem__(self, k: int) -> Piece: ...
    @overload
    def __getitem__(self, k: slice) -> tuple[Piece, ...]: ...
    def __getitem__(self, k: int | slice) -> Piece | tuple[Piece, ...]:
        return self._pieces()[k]

    def __len__(self) -> int:
        return len(self._pieces())

    def __iter__(self) -> Iterator[Piece]:
        return iter(self._pieces())

    def _pieces(self) -> tuple[Piece, ...]:
        pieces = self._view.pieces
        number = self._view.allocations.index(self._allocation)
        return tuple([piece for piece in pieces if piece.source == number])


# --------------------------------------------------------------------------------- hulls


def bounding_boxes(chain: IndexMap, box: Box, prefix: int) -> list[Box]:
    """Boxes around the coordinates before each of the first `prefix` steps."""
    boxes = [box]
    for step in chain.steps[:prefix]:
        boxes.append(find_hull_after(step, boxes[-1]))
    return boxes


def find_hull_after(step: Step, box: Box) -> Box:
    """A box around the image of a box, the tightest for affine maps."""
    if isinstance(step, AffineMap):
        return _affine_hull(step, box)
    if isinstance(step, Lookup):
        return _looked_up_hull(step, box)
    if not step.to_shape:
        return Box._of((), ())
    first = reached = 0
    for low, extent, n in zip(box.start, box.shape, step.from_shape, strict=True):
        first, reached = first * n + low, reached * n + extent - 1
    start, shape, to = [], [], step.to_shape
    for k in range(1, len(to)):
        row = prod(to[k:])
        top, bottom = first // row, (first + reached) // row
        start.append(top)
        shape.append(bottom - top + 1)
        if top != bottom:
            return Box._of((*start, *(0,) * (len(to) - k)), (*shape, *to[k:]))
        first -= top * row
    return Box._of((*start, first), (*shape, reached + 1))


def _looked_up_hull(step: Lookup, box: Box) -> Box:
    low, n = box.start[step.axis], box.shape[step.axis]
    found = step.between(low, low + n)
    first, many = (int(found.min()), int(found.max()) - int(found.min()) + 1) if len(found) else (0, 0)
    return Box._of(put_extents(box.start, step.axis, first), put_extents(box.shape, step.axis, many))


def _affine_hull(step: AffineMap, box: Box) -> Box:
    start, shape = [], []
    for row, low in zip(step.matrix, step.offset, strict=True):
        reached = 0
        for c, a, n in zip(row, box.start, box.shape, strict=True):
            if c > 0:
                low += c * a
                reached += c * (n - 1)
            elif c:
                low += c * (a + n - 1)
                reached -= c * (n - 1)
        start.append(low)
        shape.append(reached + 1)
    return Box._of(tuple(start), tuple(shape))


# -------------------------------------------------------------------- composition, simplification


def compose_pieces(
    outer: Iterable[Piece],
    inner: Mapping[int, Sequence[Piece]] | Sequence[Sequence[Piece]],
    shape: Sequence[int] | None = None,
    work: Budget | None = None,
) -> tuple[Piece, ...]:
    """Return the pieces of a view of views.

    Parameters
    ----------
    outer : iterable of Piece
        The outer view, reading the inner views.
    inner : mapping or sequence
        The pieces of each inner view by its number among the outer view's sources; their sources are kept.
    shape : sequence of int, optional
        The outer view's shape. With it, pieces that never apply and guards that always hold are dropped.
    work : Budget, optional
        What may still be done: a step or a guard of a composed piece is one try, as are four pieces looked at. Once
        it is overdrawn what is returned means nothing.

    Returns
    -------
    tuple of Piece
        Simplified.

    Raises
    ------
    ValueError
        If the outer view reads a source that `inner` lacks.
    TooManyPieces
        If more pieces are needed than `limits` allow.

    Examples
    --------
    >>> flip = Piece(0, (), IndexMap((AffineMap(((-1,),), (4,)),)))
    >>> compose_pieces([flip], [[flip]]) == (identity_piece(1),)
    True
    """
    table = inner if isinstance(inner, Mapping) else dict(enumerate(inner))
    outer = tuple(outer)
    if len(outer) == 1 and not outer[0].guards and len(table) == 1 and not (shape is not None and 0 in shape):
        below = table.get(outer[0].source, ())
        if len(below) == 1 and not below[0].guards:  # a plain chain
            chain = outer[0].map.then(below[0].map).simplify()
            if shape is not None:
                chain = trim_tables(chain, shape)
            return (Piece(below[0].source, (), chain, below[0].fill),)
    if shape is not None and 0 in shape:
        return ()
    box = None if shape is None else Box.of(tuple(shape))
    composed: list[Piece] = []
    for piece in outer:
        if piece.source >= 0 and piece.source not in table:
            raise ValueError(
                f"compose_pieces: the outer view reads source {piece.source}; given are {quote(sorted(table))}"
            )
        found = _under(piece, table[piece.source], box) if piece.source >= 0 else [piece]
        composed += found
        check_pieces(len(composed), "composition of views", "ask about a part of the view, or raise max_pieces")
        if work is not None:
            looked = len(table[piece.source]) // 4 if piece.source >= 0 else 0
            if not work.spend(looked + sum([len(p.guards) + len(p.map.steps) for p in found])):
                break
    simple = (simplify_piece(piece, box) for piece in composed)
    return tuple(piece for piece in simple if piece is not None)


H = TypeVar("H", bound=Hashable)
Numbered = tuple[tuple[H, ...], tuple[Piece, ...]]
"""The sources that pieces read in the end, and the pieces, whose sources are positions in it."""


def compose_numbered(
    outer: Iterable[Piece], inner: Sequence[Numbered[H]], shape: Sequence[int], work: Budget
) -> Numbered[H]:
    """Return the sources that a view of views reads, each once, and the pieces that number it; as `compose_pieces`."""
    if len(inner) == 1:
        ((homes, pieces),) = inner
        return homes, compose_pieces(outer, (pieces,), shape, work)
    number: dict[H, int] = {}
    below: dict[int, Sequence[Piece]] = {}
    for k, (homes, pieces) in enumerate(inner):
        to = [number.setdefault(home, len(number)) for home in homes]
        below[k] = pieces if to == list(range(len(to))) else [_renumber(p, to) for p in pieces]
    return tuple(number), compose_pieces(outer, below, shape, work)


def number_anew(homes: tuple[H, ...], composed: Numbered[H]) -> Numbered[H]:
    """Return the same pieces, numbering `homes`, among which are those that they number so far."""
    to = [homes.index(home) for home in composed[0]]
    return homes, tuple([_renumber(piece, to) for piece in composed[1]])


def _renumber(piece: Piece, to: Sequence[int]) -> Piece:
    return piece if piece.source < 0 else Piece(to[piece.source], piece.guards, piece.map)


def _under(piece: Piece, inner: Sequence[Piece], box: Box | None) -> list[Piece]:
    """One outer piece over the pieces of the view that it reads, without those that it surely does not meet."""
    if len(inner) == 1 and not inner[0].map.steps and not inner[0].guards:  # the inner view is the source itself
        return [Piece(inner[0].source, piece.guards, piece.map, inner[0].fill)]
    hull = None
    if box is not None and len(inner) > 1:
        guards = [[g.region for g in piece.guards if g.prefix == k] for k in range(len(piece.map.steps) + 1)]
        hulls = _narrowed(piece.map.steps, [*guards, []], box)
        if hulls is None:
            return []
        hull = hulls[-1]
    depth = len(piece.map.steps)
    found = []
    for under in inner:
        if hull is not None and any(g.prefix == 0 and _meet(g.region, hull) is None for g in under.guards):
            continue
        together = piece.guards + tuple(Guard(depth + g.prefix, g.region) for g in under.guards)
        found.append(Piece(under.source, together, piece.map.then(under.map), under.fill))
    return found


def simplify_piece(piece: Piece, box: Box | None = None) -> Piece | None:
    """Return the piece with merged steps and no idle guards, or None if it reads nothing for cells in `box`.

    Guards move toward the front where they stay products, so that affine steps around them can merge.
    A piece may keep an empty domain that bounding boxes do not reveal; it then has no effect.

    Examples
    --------
    >>> shift = AffineMap(((1,),), (2,))
    >>> guard = Guard(1, Region.from_slices((8,), (slice(0, 5),)))
    >>> simple = simplify_piece(Piece(0, (guard,), IndexMap((shift, shift))), Box.of((4,)))
    >>> simple.map.steps, simple.guards[0].prefix, simple.guards[0].region.bounds()
    ((AffineMap(matrix=((1,),), offset=(4,), in_rank=1),), 0, ((0,), (3,)))
    """
    if box is not None and box.is_empty:
        return None
    if not piece.guards:
        simple = piece.map.simplify() if box is None else trim_tables(piece.map.simplify(), box.stop)
        return piece if simple is piece.map else Piece(piece.source, (), simple, piece.fill)
    steps = list(piece.map.steps)
    guards: list[list[Region]] = [[] for _ in range(len(steps) + 1)]
    for guard in piece.guards:
        guards[guard.prefix].append(guard.region)
    if box is not None and not _settle_guards(steps, guards, box):
        return None
    shorten(steps, guards)
    kept = tuple(Guard(at, region) for at, regions in enumerate(guards) for region in regions)
    return Piece(piece.source, kept, IndexMap(tuple(steps), piece.map.in_rank), piece.fill)


def _settle_guards(steps: list[Step], guards: list[list[Region]], box: Box) -> bool:
    """Pull guards through affine steps, drop those that always hold; False if they can never hold together."""
    hulls = _narrowed(steps, guards, box)
    if hulls is None:
        return False
    for prefix in range(len(steps), 0, -1):
        step = steps[prefix - 1]
        if isinstance(step, AffineMap) and guards[prefix]:
            pulled = [_pull_guard(step, region, hulls[prefix - 1]) for region in guards[prefix]]
            guards[prefix - 1] += [region for region in pulled if region is not None]
            kept = zip(guards[prefix], pulled, strict=True)
            guards[prefix] = [region for region, before in kept if before is None]
    for prefix, regions in enumerate(guards):
        if len(regions) > 1:
            guards[prefix] = _boxes_as_one(regions)
    return _narrowed(steps, guards, box, drop=True) is not None


def _narrowed(steps: Sequence[Step], guards: list[list[Region]], box: Box, drop: bool = False) -> list[Box] | None:
    """Boxes around the coordinates before the guards at each prefix, narrowed by those before; None if one is empty.

    One list of guards more than prefixes gives the box after all of them. With `drop`, guards go that the narrowed
    box fulfils.
    """
    hulls, hull = [], box
    for prefix, regions in enumerate(guards):
        if 0 < prefix <= len(steps):
            hull = find_hull_after(steps[prefix - 1], hull)
        hulls.append(hull)
        kept = []
        for region in regions:
            inside = _meet(region, hull)
            if inside is None:
                return None
            if not region.is_box or inside != hull:
                kept.append(region)
            hull = inside
        if drop:
            guards[prefix] = kept
    return hulls


def _meet(region: Region, hull: Box) -> Box | None:
    """A box around what a region and a box have in common, None if that is nothing."""
    bounds = region.bounds()
    if bounds is None:
        return None
    start = tuple(map(max, bounds[0], hull.start))
    stop = tuple(map(min, bounds[1], hull.stop))
    shape = tuple(map(sub, stop, start))
    if shape and min(shape) <= 0:
        return None
    if not region.is_box:
        found = [(nests.find(s, a), nests.rfind(s, b - 1)) for s, a, b in zip(region.nests, start, stop, strict=True)]
        if any(first is None or last is None or first > last for first, last in found):
            return None
    return Box._of(start, shape)


def _pull_guard(step: AffineMap, region: Region, before: Box) -> Region | None:
    """The guard before the affine step that leads to it, if it is one product there."""
    if not region.is_box:
        found = IndexProjection(step, (1,) * step.out_rank).preimage(region, before)
        return found.members[0] if isinstance(found, DisjointRegions) and len(found.members) == 1 else None
    bounds = region.bounds()
    assert bounds is not None, "an empty region meets nothing"
    low, stop = list(before.start), list(before.stop)
    for terms, b, first, end in zip(step.terms(), step.offset, *bounds, strict=True):
        if len(terms) > 1:  # a sum of coordinates: no product, unless one alone moves or all sums are inside
            ends = [(c * before.start[axis], c * (before.stop[axis] - 1)) for axis, c in terms]
            if first <= b + sum(map(min, ends)) and b + sum(map(max, ends)) < end:
                continue
            b += sum([one for one, other in ends if one == other])
            terms = tuple([term for term, (one, other) in zip(terms, ends, strict=True) if one != other])
            if len(terms) > 1:
                return None
        for axis, c in terms:
            least, most = (first - b, end - 1 - b) if c > 0 else (b - end + 1, b - first)
            low[axis] = max(low[axis], -(-least // abs(c)))
            stop[axis] = min(stop[axis], most // abs(c) + 1)
        if not terms and not first <= b < end:
            return None
    if any(a >= b for a, b in zip(low, stop, strict=True)):
        return None
    return Region.from_bounds(before.shape, low, stop, before.start)


def _boxes_as_one(regions: list[Region]) -> list[Region]:
    """Regions at one place of a chain, of which the boxes are one where they have one box around them."""
    boxes = [region for region in regions if region.is_box]
    if len(boxes) < 2:
        return regions
    low, stop = zip(*[bounds for region in boxes if (bounds := region.bounds()) is not None], strict=True)
    start, end = tuple(map(max, *low)), tuple(map(min, *stop))
    if any(a >= b for a, b in zip(start, end, strict=True)):
        return regions
    one = Region.from_bounds(tuple(b - a for a, b in zip(start, end, strict=True)), start, end, start)
    return [one, *[region for region in regions if not region.is_box]]
