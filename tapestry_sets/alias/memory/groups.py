"""Groups of arrays that share memory: which arrays, which bytes, and which of them to keep."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from tapestry_sets.alias import tuning
from tapestry_sets.alias.memory.arrays import ViewLike, as_view, told
from tapestry_sets.alias.memory.parts import Cover, Forest, Part, Space, parts_of
from tapestry_sets.alias.overlap import Overlap, overlap
from tapestry_sets.draw import align
from tapestry_sets.integers import DisjointSetts, Nest, members
from tapestry_sets.limits import OPEN, REFUSALS, TooHard, ask_one, cut_text, hide_fields, list_names, quote, retell
from tapestry_sets.regions import DisjointRegions, unflatten
from tapestry_sets.views import Allocation, View

# ------------------------------------------------------------------------------------------------------ the groups


class SharedGroup(Struct, frozen=True, eq=False, dict=True):
    """Arrays that share memory, directly or through others. Made by `shared_memory`; answers are computed when asked.

    Parameters
    ----------
    keys : tuple of hashable
        The members' names, in the order given.
    views : tuple of View
        The members.

    Examples
    --------
    >>> w = np.zeros((4, 6), np.float32)
    >>> (group,) = shared_memory({"w": w, "tied": w.T, "left": w[:, :3]})
    >>> group.keys, group.nbytes, group.nbytes_shared
    (('w', 'tied', 'left'), 96, 96)
    >>> group.identical, group.keep, group.inside
    ((('w', 'tied'),), ('w',), {'tied': 'w', 'left': 'w'})
    """

    keys: tuple[Hashable, ...]
    views: tuple[View, ...]
    _parts: Mapping[Allocation, list[Part]]

    __repr__ = hide_fields("views", "_parts")

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, key: object) -> bool:
        return key in self.keys

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.keys)

    def __str__(self) -> str:
        return "\n".join(_group_lines(self))

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """The memories that members read, such as that of the host or of a device."""
        return tuple(self._parts)

    @property
    def start(self) -> int:
        """The lowest address that a member reads; of views of `allocate`d memory, the lowest row-major number."""
        return self._cover().start

    @property
    def stop(self) -> int:
        """One more than the highest address that a member reads."""
        return self._cover().stop

    @cached_property
    def nbytes(self) -> int:
        """How many bytes members read, each byte once."""
        return self._read_by(1)

    @cached_property
    def nbytes_shared(self) -> int:
        """How many bytes at least two members read, each byte once.

        Raises
        ------
        TooHard
            If three or more members read bytes that make too many setts, and are too many to count one by one.
        """
        return self._read_by(2)

    def _read_by(self, least: int) -> int:
        if len(self) > 2 or all(cover.boxes is not None for cover in self._covers):
            return sum(cover.size(least) * cover.home.itemsize for cover in self._covers)
        shared = overlap(*self.views).nbytes
        return shared if least == 2 else sum(_nbytes(view) for view in self.views) - shared

    @property
    def regions(self) -> dict[Allocation, DisjointRegions]:
        """The cells that at least two members read, in their allocation's coordinates: of arrays, addresses.

        Raises
        ------
        TooManyPieces
            If they need more regions than can be written out.
        """
        found = {c.home: unflatten(c.setts(2, 0, c.extent), c.home.shape) for c in self._covers}
        return {home: regions for home, regions in found.items() if not regions.is_empty}

    @property
    def offsets(self) -> DisjointSetts:
        """The bytes that at least two members read, counted from `start`; they repeat with period ``stop - start``.

        Raises
        ------
        TooManyPieces
            If they need more setts than can be written out.
        ValueError
            If the members read several allocations.

        Examples
        --------
        >>> a = np.zeros(12, np.uint8)
        >>> (group,) = shared_memory([a[:8], a[::3]])
        >>> print(group.offsets)
        1..1..1...
        """
        cover = self._cover()
        return cover.setts(2, cover.start, cover.stop - cover.start)

    @cached_property
    def _covers(self) -> list[Cover]:
        return [Cover(home, some) for home, some in self._parts.items()]

    def _cover(self) -> Cover:
        if len(self._covers) != 1:
            names = ", ".join(a.name or f"{a.shape}" for a in self.allocations)
            raise ValueError(f"SharedGroup: its members read several allocations ({cut_text(names)}); ask for regions")
        return self._covers[0]

    # -- members --------------------------------------------------------------------------------------

    def __getitem__(self, key: Hashable) -> View:
        """Return a member by its key."""
        return self.views[self._number(key)]

    def _number(self, key: Hashable) -> int:
        try:
            return self.keys.index(key)
        except ValueError:
            known = list_names(self.keys, key, "members")
            raise KeyError(f"{quote(key)} is not a member of this group; {known}") from None

    @property
    def pairs(self) -> tuple[tuple[Hashable, Hashable], ...]:
        """The pairs of members that share a byte, in order; there may be as many as half the square of the members."""
        found = [Space(home, some, self.keys).sharing() for home, some in self._parts.items()]
        pairs = found[0] if len(found) == 1 else np.unique(np.concatenate(found), axis=0)
        firsts, seconds = ([self.keys[i] for i in side] for side in pairs.T.tolist())
        return tuple(zip(firsts, seconds, strict=True))

    def overlap(self, key: Hashable, other: Hashable) -> Overlap[Allocation]:
        """Return the overlap of two members."""
        return overlap(self[key], self[other])

    @property
    def identical(self) -> tuple[tuple[Hashable, ...], ...]:
        """The members that read the same bytes, in whatever order and shape: classes of two or more."""
        return tuple(tuple(self.keys[i] for i in some) for some in self._kin.classes if len(some) > 1)

    @property
    def keep(self) -> tuple[Hashable, ...]:
        """The members that lie in no other, the first of those that are identical: together they hold all bytes."""
        return tuple(self.keys[i] for i in self._kin.keep)

    @property
    def inside(self) -> dict[Hashable, Hashable]:
        """For each member that is not in `keep`, one in `keep` that reads all its bytes."""
        inside = self._kin.inside
        return {self.keys[i]: self.keys[inside[i]] for i in sorted(inside)}

    @cached_property
    def _kin(self) -> Kin:
        return _kin_of(_members(self))


def _nbytes(view: View) -> int:
    """Return how many different bytes a view reads."""
    return sum(cells.size * home.itemsize for home, cells in view.cells.items())


class Kin(NamedTuple):
    """Which members of a group lie in which, by their numbers.

    Attributes
    ----------
    classes : list of list of int
        Those that read the same bytes.
    keep : list of int
        The first of each class that lies in no other member.
    inside : dict
        For all others one of `keep` that holds them.
    """

    classes: list[list[int]]
    keep: list[int]
    inside: dict[int, int]


def _kin_of(members: Sequence[Member]) -> Kin:
    """Return which members lie in which: the largest are looked at first, and only what reaches around another."""
    classes = _classes(members)
    first = [some[0] for some in classes]
    order = sorted(range(len(classes)), key=lambda k: (-members[first[k]].nbytes, first[k]))
    around = _Around(members, [first[k] for k in order])
    keep: list[int] = []
    inside: dict[int, int] = {}
    for place, k in enumerate(order):
        mine = members[first[k]]
        holder = next((i for i in around.kept_around(place) if members[i].holds(mine)), None)
        if holder is None:
            keep.append(first[k])
            around.keep(place)
        inside.update(dict.fromkeys(classes[k][holder is None :], first[k] if holder is None else holder))
    return Kin(classes, sorted(keep), inside)


class Member(Struct, frozen=True):
    """A member of a group, with its parts of each memory."""

    key: Hashable
    view: View
    parts: tuple[tuple[Allocation, Part], ...]
    nbytes: int

    @property
    def ends(self) -> tuple[int, int]:
        """The lowest and one more than the highest number, over all memories."""
        return min(p.start for _, p in self.parts), max(p.start + p.length for _, p in self.parts)

    def holds(self, other: Member) -> bool:
        """Return whether this member reads every byte that the other reads."""
        if self.nbytes < other.nbytes:
            return False
        mine, theirs = self._nests(), other._nests()
        if self._form() == other._form() and mine is not None:
            return True

        def tell(error: TooHard) -> TooHard:
            return TooHard(f"SharedGroup: whether {quote(self.key)} holds {quote(other.key)}: {error}")

        if mine is None or theirs is None or len(self.parts) > 1 or len(other.parts) > 1:
            return retell(tell, self.view.contains, other.view)
        (home, part), (house, inner) = self.parts[0], other.parts[0]
        low, high = inner.start, inner.start + inner.length
        if home != house or low < part.start or high > part.start + part.length:
            return False
        return part.is_solid or retell(tell, members.hold, mine, theirs, low, high)

    def _form(self) -> tuple[Any, ...]:
        return tuple((home, *part[1:4]) for home, part in self.parts)

    def _nests(self) -> list[Nest] | None:
        """The nests that are read; None where a part is not a nest."""
        if any(part.cells is not None for _, part in self.parts):
            return None
        return [part.nest(home.size) for home, part in self.parts]


def _members(group: SharedGroup) -> list[Member]:
    parts: list[list[tuple[Allocation, Part]]] = [[] for _ in group.keys]
    for home, some in group._parts.items():
        for part in some:
            parts[part.member].append((home, part))
    sizes = [sum(part.size * home.itemsize for home, part in some) for some in parts]
    return [Member(*of) for of in zip(group.keys, group.views, map(tuple, parts), sizes, strict=True)]


def _classes(members: Sequence[Member]) -> list[list[int]]:
    """Return the numbers of the members, those together that read the same bytes."""
    alike: dict[tuple[int, int, int], list[list[int]]] = {}
    for i, member in enumerate(members):
        found = alike.setdefault((member.nbytes, *member.ends), [])
        for some in found:
            if members[some[0]].holds(member):  # and as it has no more bytes, they are the same
                some.append(i)
                break
        else:
            found.append([i])
    return sorted(some for found in alike.values() for some in found)


class _Around:
    """Members in columns, to find those that may hold another.

    Parameters
    ----------
    members : sequence of Member
    order : sequence of int
        The members that are looked at, by their numbers.
    """

    def __init__(self, members: Sequence[Member], order: Sequence[int]) -> None:
        ends = [members[i].ends for i in order]
        origin = min(low for low, _ in ends)
        dtype: Any = np.int64 if max(high for _, high in ends) - origin < tuning.MAX_POSITION else object
        self.order = np.array(order, np.int64)
        self.low, self.high = (np.array([end[k] - origin for end in ends], dtype) for k in (0, 1))
        stripes = [_stripe(members[i], origin) for i in order]
        self.on, self.period, self.phase = (np.array([stripe[k] for stripe in stripes], dtype) for k in range(3))
        self.kept = np.zeros(len(order), np.bool_)

    def keep(self, place: int) -> None:
        """Note that the member at a place lies in no other."""
        self.kept[place] = True

    def kept_around(self, place: int) -> list[int]:
        """Return the kept members, by number, that may hold the one at a place: they hold its ends."""
        first, last = self.low[place], self.high[place] - 1
        at = np.flatnonzero(self.kept & (self.low <= first) & (self.high > last))
        for end in (first, last):
            at = at[(end - self.phase[at]) % self.period[at] < self.on[at]]
        return self.order[at].tolist()  # type: ignore[no-any-return]


def _stripe(member: Member, origin: int) -> tuple[int, int, int]:
    """Return on, period and phase of a stripe that holds a member."""
    if len(member.parts) > 1 or not member.parts[0][1].tail:
        return 1, 1, 0
    part = member.parts[0][1]
    on, period, phase = part.tail[0]
    return on, period, (part.start - origin + phase) % period


# --------------------------------------------------------------------------------------------- who shares with whom


class SharedMemory(Struct, frozen=True, eq=False):
    """Which of many arrays share memory. Made by `shared_memory`; true if any two share a byte.

    Parameters
    ----------
    keys : tuple of hashable
        All arrays that were asked about.
    groups : tuple of SharedGroup
        Those that share memory, in the order of their first members.

    Examples
    --------
    >>> buffer = np.zeros(96, np.uint8)
    >>> found = shared_memory({"a": buffer[:40], "b": buffer[32:64], "c": buffer[64:], "d": np.zeros(5)})
    >>> found
    <SharedMemory: 1 group of 2 arrays among 4; at least two of them read 8 bytes>
    >>> found[0].pairs, found.alone
    ((('a', 'b'),), ('c', 'd'))
    """

    keys: tuple[Hashable, ...]
    groups: tuple[SharedGroup, ...]

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[SharedGroup]:
        return iter(self.groups)

    def __getitem__(self, k: int) -> SharedGroup:
        """Return the k-th group."""
        return self.groups[k]

    def __repr__(self) -> str:
        return f"<SharedMemory: {_summary(self)}>"

    def __str__(self) -> str:
        lines = [_summary(self)]
        for k, group in enumerate(self.groups[: tuning.SHOWN_ROWS]):
            first, *more = _group_lines(group)
            lines += ["", f"group {k}: {first}", *more]
        if len(self.groups) > tuning.SHOWN_ROWS:
            lines += ["", f"and {len(self.groups) - tuning.SHOWN_ROWS:,} more groups"]
        return "\n".join(lines)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": str(self)}

    @property
    def nbytes_shared(self) -> int:
        """How many bytes at least two arrays read, each byte once; see `SharedGroup.nbytes_shared`."""
        return sum(group.nbytes_shared for group in self.groups)

    @property
    def alone(self) -> tuple[Hashable, ...]:
        """The arrays that share no byte with another, those without elements among them."""
        together = {key for group in self.groups for key in group.keys}
        return tuple(key for key in self.keys if key not in together)


def shared_memory(arrays: Mapping[Any, ViewLike] | Iterable[ViewLike]) -> SharedMemory:
    """Return which of many arrays share memory, exactly: the groups that are connected by common bytes.

    Parameters
    ----------
    arrays : mapping or iterable
        Arrays and views by name, such as a model's ``state_dict()``, or a sequence of them, whose names are their
        numbers. See `as_view` for what an array is.

    Raises
    ------
    TypeError, ValueError
        If there is none, or one of them is not an array; the message names it.
    TooHard
        If a question about two strided arrays is too hard to decide; see `limits`.

    Notes
    -----
    Arrays of one buffer that read different bytes of it, such as its columns, do not share memory.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_sets import shared_memory
    >>> table = np.zeros((4, 6), np.float32)
    >>> shared_memory([table[:, k] for k in range(6)]).groups
    ()
    >>> found = shared_memory({"embed": table, "head": table.T, "bias": table[1, 2:4], "mask": np.ones(4)})
    >>> print(found)  # doctest: +ELLIPSIS
    1 group of 3 arrays among 4; at least two of them read 96 bytes
    <BLANKLINE>
    group 0: 3 arrays read 96 bytes of memory from 0x... on; at least two of them read 96 bytes
      'embed'  96 bytes  from +0   the same bytes as 'head'
      'head'   96 bytes  from +0   the same bytes as 'embed'
      'bias'   8 bytes   from +32  inside 'embed'

    References
    ----------
    safetensors, issues 202 and 304: which tensors of a model share memory.
    """
    items = _named(arrays)
    keys = tuple(key for key, _ in items)
    parts: dict[Allocation, list[Part]] = {}
    for member, (key, x) in enumerate(items):
        for home, part in _read(member, key, x):
            parts.setdefault(home, []).append(part)
    forest = Forest(len(keys))
    for home, some in parts.items():
        Space(home, some, keys).join(forest)
    return SharedMemory(keys, tuple(_grouped(items, parts, forest.trees())))


def _named(arrays: Mapping[Any, ViewLike] | Iterable[ViewLike]) -> list[tuple[Hashable, object]]:
    """Return the arrays with their names."""
    if isinstance(arrays, (View, np.ndarray, str, bytes)) or not isinstance(arrays, Iterable):
        raise TypeError(
            f"shared_memory: takes a mapping of names to arrays or a sequence of arrays, not a "
            f"{type(arrays).__name__}; write [x, y]"
        )
    items = list(arrays.items() if isinstance(arrays, Mapping) else enumerate(arrays))
    if not items:
        raise ValueError("shared_memory: no arrays; give a mapping of names to arrays or a sequence of arrays")
    return items


def _read(member: int, key: Hashable, x: Any) -> list[tuple[Allocation, Part]]:
    """Return what an array reads of each memory; the view is dropped, as it costs more to keep than to make again."""
    try:
        return list(parts_of(member, as_view(x)))
    except Exception as error:
        raise told(error, f"shared_memory: member {quote(key)}") from error


def _grouped(
    items: Sequence[tuple[Hashable, Any]], parts: Mapping[Allocation, list[Part]], groups: Sequence[list[int]]
) -> Iterator[SharedGroup]:
    """Yield the groups, with their members' parts, which number the members anew."""
    place = {member: (g, k) for g, members in enumerate(groups) for k, member in enumerate(members)}
    own: list[dict[Allocation, list[Part]]] = [{} for _ in groups]
    for home, some in parts.items():
        for part in some:
            if part.member in place:
                g, k = place[part.member]
                own[g].setdefault(home, []).append(part._replace(member=k))
    for group, mine in zip(groups, own, strict=True):
        yield SharedGroup(tuple(items[i][0] for i in group), tuple(as_view(items[i][1]) for i in group), mine)


# ------------------------------------------------------------------------------------------------------ as a table


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _summary(found: SharedMemory) -> str:
    if not found.groups:
        return f"no two of {_many(len(found.keys), 'array')} share a byte"
    groups, members = _many(len(found), "group"), _many(sum(map(len, found.groups)), "array")
    shared = _or_unknown(lambda: _many(found.nbytes_shared, "byte"))
    return f"{groups} of {members} among {len(found.keys):,}; at least two of them read {shared}"


def _or_unknown(answer: Callable[[], str]) -> str:
    """Return an answer for a table, or that it takes too long."""
    found = ask_one(REFUSALS, answer)
    return "an unknown number of bytes" if found is OPEN else str(found)


def _group_lines(group: SharedGroup) -> list[str]:
    names = " and ".join(a.name or f"{a.shape}" for a in group.allocations)
    total = _or_unknown(lambda: _many(group.nbytes, "byte"))
    shared = _or_unknown(lambda: _many(group.nbytes_shared, "byte"))
    begin = f" from {group.start:#x} on" if len(group.allocations) == 1 else ""
    rows = align([_row(group, k) for k in range(min(len(group), tuning.SHOWN_ROWS))])
    more = [f"  and {len(group) - tuning.SHOWN_ROWS:,} more"] if len(group) > tuning.SHOWN_ROWS else []
    return [
        f"{len(group):,} arrays read {total} of {names}{begin}; at least two of them read {shared}",
        *(f"  {row}" for row in rows),
        *more,
    ]


def _row(group: SharedGroup, k: int) -> tuple[str, str, str, str]:
    """Return what a table says of a member: its name, its bytes, where they begin, and how it lies to the others."""
    size = _or_unknown(lambda: _many(_nbytes(group.views[k]), "byte"))
    starts = [part.start for some in group._parts.values() for part in some if part.member == k]
    at = f"from +{min(starts) - group.start:,}" if len(group.allocations) == 1 else ""
    relation = ask_one((TooHard,), _relation, group, k)
    if relation is OPEN:
        relation = "too hard to compare with the others"
    return repr(group.keys[k]), size, at, relation


def _relation(group: SharedGroup, k: int) -> str:
    classes, _, inside = group._kin
    same = next(some for some in classes if k in some)
    if len(same) > 1:
        other = next(i for i in same if i != k)
        return f"the same bytes as {quote(group.keys[other])}" + (
            f" and {len(same) - 2:,} more" if len(same) > 2 else ""
        )
    if k in inside:
        return f"inside {quote(group.keys[inside[k]])}"
    held = sum(holder == k for holder in inside.values())
    if held == len(group) - 1:
        return "holds all others"
    return f"holds {held:,} others" if held > 1 else "holds 1 other" if held else "overlaps others in part"
