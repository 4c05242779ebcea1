"""Disjoint unions of regions in one box."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import prod

from tapestry_sets.digits import Ints
from tapestry_sets.limits import (
    Value,
    as_int,
    as_items,
    check_pieces,
    compile_constructor,
    mend_calls,
    put_fields,
    quote,
    unite_by_halves,
)
from tapestry_sets.regions import axis_sets
from tapestry_sets.regions.axis_sets import AxisSet
from tapestry_sets.regions.near import list_near_each_other
from tapestry_sets.regions.points import Points
from tapestry_sets.regions.region import Products, Region, merge_members
from tapestry_sets.regions.shapes import checked_box


class Members(Points):
    """The verbs that move points along axes, of sets of several regions: member by member."""

    __slots__ = ()

    def _moved(self, change: Callable[[Region], Region]) -> DisjointRegions:
        like = change(Region.empty(self.shape, self.start))
        return self.forms.regions._of(like.shape, map(change, self.regions), like.start)

    def shift(self, offset: Sequence[int]) -> DisjointRegions:
        """Return the union moved by `offset` together with its box.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> (~Region.from_bounds((6,), (0,), (2,))).shift((10,)).bounds()
        ((12,), (16,))
        """
        return self._moved(lambda r: r.shift(offset))

    def transpose(self, perm: Sequence[int] | None = None) -> DisjointRegions:
        """Return the union with its axes permuted; see `Region.transpose`.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> (~Region.from_bounds((2, 6), (0, 0), (2, 3))).transpose().bounds()
        ((3, 0), (6, 2))
        """
        return self._moved(lambda r: r.transpose(perm))

    def flip(self, axes: Sequence[int] | int | None = None) -> DisjointRegions:
        """Return the union mirrored inside its box; see `Region.flip`.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> evens = Region((6,), [Stripe(1, 1)])
        >>> print((~evens).flip())
        1.1.1.
        """
        return self._moved(lambda r: r.flip(axes))

    def broadcast_to(self, shape: Sequence[int]) -> DisjointRegions:
        """Return the union where its box is broadcast; see `Region.broadcast_to`.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> evens = Region((6,), [Stripe(1, 1)])
        >>> print((~evens).broadcast_to((2, 6)))
        .1.1.1
        .1.1.1
        """
        return self._moved(lambda r: r.broadcast_to(shape))

    def reduce_to(self, shape: Sequence[int]) -> DisjointRegions:
        """Return the points that broadcasting sends into the union; see `Region.reduce_to`.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> corner = Region.from_bounds((4, 6), (0, 0), (2, 3))
        >>> print((~~corner).reduce_to((1, 6)))
        111...
        """
        like = Region.empty(self.shape, self.start).reduce_to(shape)
        # members that were apart may fall together
        return unite(like.shape, [[member.reduce_to(shape)] for member in self.regions], like.start)


@mend_calls
class DisjointRegions(Members, Products, Value):
    """A union of regions that share no point, in one box.

    Parameters
    ----------
    shape : sequence of int
        The extents of the box.
    members : iterable of Region
        Disjoint, in this box; those without points are dropped.
    start : sequence of int, optional
        The box's first point, zeros by default.

    Raises
    ------
    ValueError
        If a member is in another box or two members share a point; the message names one.

    Examples
    --------
    >>> from tapestry_sets import Region
    >>> box = (4, 4)
    >>> corners = Region.from_bounds(box, (0, 0), (1, 1)) | Region.from_bounds(box, (3, 3), (4, 4))
    >>> corners.size, len(corners.members), (3, 3) in corners
    (2, 2, True)
    """

    __slots__ = __match_args__ = ("shape", "members", "start")
    shape: Ints
    members: tuple[Region, ...]
    start: Ints

    def __init__(
        self, shape: Sequence[int], members: Iterable[Region] = (), start: Sequence[int] | None = None
    ) -> None:
        box, origin = checked_box(shape, start)
        kept = as_items(members, "DisjointRegions: members", "sequence of regions")
        for at, member in enumerate(kept):
            if not isinstance(member, Region):
                raise TypeError(f"DisjointRegions: member {at} must be a Region, not {type(member).__name__}")
            if member.shape != box or member.start != origin:
                raise ValueError(
                    f"DisjointRegions: member {at} is in the box {quote(member.shape)} from {quote(member.start)}, "
                    f"not in {quote(box)} from {quote(origin)}"
                )
        for one, two in list_near_each_other(kept):
            shared = one.first_common(two)
            if shared is not None:
                raise ValueError(
                    f"DisjointRegions: members {quote(one)} and {quote(two)} share the point "
                    f"{quote(shared)}; write one | two"
                )
        put_fields(self, shape=box, members=tuple(m for m in kept if not m.is_empty), start=origin)

    @staticmethod
    def _of(shape: Ints, members: Iterable[Region], start: Ints) -> DisjointRegions:
        """Wrap regions that are known to be disjoint and in this box."""
        return _union_of(shape, tuple([m for m in members if not m.is_empty]), start)

    @staticmethod
    def _of_products(shape: Ints, products: Iterable[Sequence[AxisSet]], what: str) -> DisjointRegions:
        """Unite products of indices that share none, in the box of a shape; TooManyPieces if they are many regions."""
        origin = (0,) * len(shape)
        members: list[Region] = []
        for sets in products:
            if all(not axis_sets.is_column(s) and len(s) == 1 and s[0][2] == 1 for s in sets):
                members.append(Region._spanning(shape, tuple([(s[0][0], s[0][1] + 1) for s in sets]), origin))
            else:
                each = [axis_sets.nests_of(s, n) for s, n in zip(sets, shape, strict=True)]
                check_pieces(len(members) + prod(map(len, each)), what)
                members += [Region._of(shape, nests, origin) for nests in product(*each)]
            check_pieces(len(members), what)
        return DisjointRegions._of(shape, members, origin)

    @classmethod
    def full(cls, shape: Sequence[int], start: Sequence[int] | None = None) -> DisjointRegions:
        """Return the union of all points of the box.

        Examples
        --------
        >>> from tapestry_sets import DisjointRegions
        >>> DisjointRegions.full((4, 6)).is_full
        True
        """
        whole = Region.full(shape, start)
        return cls._of(whole.shape, (whole,), whole.start)

    @property
    def regions(self) -> tuple[Region, ...]:
        """The members.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> len((~Region.from_bounds((4, 6), (1, 1), (3, 5))).regions)
        4
        """
        return self.members

    @property
    def is_empty(self) -> bool:
        """Whether the union has no points.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> some = Region.from_bounds((4, 6), (0, 0), (4, 2))
        >>> (some - some).is_empty
        True
        """
        return not self.members

    @property
    def is_box(self) -> bool:
        """Whether the union is one member that is a box, or nothing.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> left, right = Region.from_bounds((4, 6), (0, 0), (4, 2)), Region.from_bounds((4, 6), (0, 4), (4, 6))
        >>> (left | right).is_box
        False
        """
        return not self.members or (len(self.members) == 1 and self.members[0].is_box)

    def __iter__(self) -> Iterator[Region]:
        return iter(self.members)

    def __getitem__(self, k: int) -> Region:
        at = as_int(k, "DisjointRegions: member number k")
        if not -len(self) <= at < len(self):
            raise IndexError(
                f"DisjointRegions: no member {quote(at)}: there are {len(self)}; give one in [{-len(self)}, "
                f"{len(self)})"
            )
        return self.members[at]

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        tail = f", start={self.start}" if any(self.start) else ""
        return f"DisjointRegions({self.shape}, {list(self.members)}{tail})"

    def merge(self) -> DisjointRegions:
        """Return the same points with members joined that differ along one axis only, until none can be.

        Results of ``& | - ^ ~`` are merged already; but one box less another is left as boxes, which may lie at equal
        distances.

        Examples
        --------
        >>> from tapestry_sets import DisjointRegions, Region
        >>> row = Region.from_bounds((2, 4), (0, 0), (1, 4))
        >>> DisjointRegions((2, 4), [row, row.flip(0)]).merge() == DisjointRegions.full((2, 4))
        True
        """
        return DisjointRegions._of(self.shape, merge_members(self.members), self.start)


_union_of = compile_constructor(DisjointRegions, *DisjointRegions.__slots__)


def unite(shape: Ints, parts: Sequence[Sequence[Region]], start: Ints) -> DisjointRegions:
    """Return the union of parts of a box, each of disjoint regions."""
    found: DisjointRegions = unite_by_halves([DisjointRegions._of(shape, part, start) for part in parts or [()]])
    return found
