"""Collectives of a plan as calls of MPI: what ranks give and get in each, and why none waits for ever.

::

    all_gather, all_reduce          Iallgather    a rank's part goes to all others
    all_to_all, reduce_scatter      Ialltoallv    each goes to one; parts are merged behind it, by the plan's own steps
    broadcast                       Ibcast        from one rank to two or more

    a rank's program     … send 3 ─► send 5 ─► …                     ─► recv 4 ─► recv 6
                              parts are laid by    the last one is there: begin    wait, then read what came

A program packs what it sends early, right behind what wrote it, and receives late. So a rank begins a call when its
last part is there, which blocks nothing, and waits at its first receipt. MPI wants the calls on one communicator in one
order on all its ranks: each group of devices has a communicator, and a rank begins the calls on it in the plan's order,
so that one that is ready stays until those before it are. Calls on several communicators may begin in any order.

Why no rank waits for ever: of those that wait, look at the one whose receipt comes first in the plan. Whoever it waits
for has come to a later step, and what a device sends comes in its program before its receipts of the same collective,
and those of all that follow in the plan. So that rank has laid its parts by, of this call and of those before it, and
has begun them. `list_calls` checks just this, program by program: a collective whose parts a device has not laid by
when it waits for one of the same group goes in single messages, as does what a deployment or a resumed run does in
part, a single copy, and what groups beyond `MAX_COMMUNICATORS` exchange.

A call that has begun is never canceled, as MPI cannot. When a run fails, ranks tell each other how many they began on
each communicator, and those that are behind begin the rest with what they have, which nobody reads.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from tapestry_exec.copies import Array
from tapestry_exec.mpi.tuning import HEAD_NBYTES, MAX_COMMUNICATORS
from tapestry_exec.run import Parcel
from tapestry_plan.steps import Collective, CollectiveKind, DeviceStep, GroupedStep, Recv, Send

HEAD = struct.Struct("dd")
assert HEAD.size == HEAD_NBYTES
Members = tuple[int, ...]
MpiName = Literal["Iallgather", "Ialltoallv", "Ibcast"]
SHARED: Mapping[str, MpiName] = {"all_gather": "Iallgather", "all_reduce": "Iallgather", "broadcast": "Ibcast"}
"""Kinds in which a device sends the same to all."""


class GroupCall(Struct, frozen=True):
    """A collective, as all its ranks know it.

    What a rank gives or gets are blocks of `stride` bytes: `heads` times when a parcel was packed, then its cells. A
    block that goes to several ranks has a head for each of them.

    Parameters
    ----------
    kind : str
    way : str
        MPI's name of the call.
    group : tuple of int
        Its ranks, ascending.
    root : int
        The place of the one that sends in the group, of a broadcast.
    first, last : int
        The plan's steps between which its copies are.
    nbytes : int
        Of the cells of a part.
    tags : mapping of (int, int) to int
        Of the parcels, by sender and receiver.
    """

    kind: CollectiveKind
    way: MpiName
    group: Members
    root: int
    first: int
    last: int
    nbytes: int
    tags: Mapping[tuple[int, int], int]

    @property
    def heads(self) -> int:
        return 1 if self.way == "Ialltoallv" else len(self.group)

    @property
    def stride(self) -> int:
        return HEAD_NBYTES * (self.heads + -(-self.nbytes // HEAD_NBYTES))  # cells of any dtype are aligned

    def __str__(self) -> str:
        return f"the {self.kind} of devices {', '.join(map(str, self.group))}"


def list_calls(steps: Iterable[GroupedStep], programs: Sequence[Sequence[DeviceStep]]) -> list[GroupCall]:
    """The collectives that ranks make calls of, in the plan's order; all others go in single messages.

    Parameters
    ----------
    steps : iterable of GroupedStep
        `ShardPlan.grouped_steps`.
    programs : sequence of sequence of DeviceStep
        What each device does in a run.
    """
    sends: dict[int, tuple[int, Send]] = {}
    received: set[int] = set()
    for device, program in enumerate(programs):
        sends.update((at.number, (device, at.step)) for at in program if isinstance(at.step, Send))
        received.update(at.number for at in program if isinstance(at.step, Recv))
    calls, groups, begin = list[GroupCall](), set[Members](), 0
    for step in steps:
        here, begin = begin, begin + (len(step.steps) if isinstance(step, Collective) else 1)
        if not isinstance(step, Collective) or len(step.at) < 2:
            continue
        numbers, group = [here + k for k in step.at], tuple(sorted(step.group))
        if not (received.issuperset(numbers) and sends.keys() >= set(numbers)):
            continue
        if group not in groups and len(groups) == MAX_COMMUNICATORS:
            continue
        groups.add(group)
        calls.append(_make_call(step, group, {k: sends[k] for k in numbers}))
    late = _find_late(calls, programs)
    return [call for k, call in enumerate(calls) if k not in late]


def _make_call(step: Collective, group: Members, sends: Mapping[int, tuple[int, Send]]) -> GroupCall:
    regions: defaultdict[int, set[Any]] = defaultdict(set)
    for device, send in sends.values():
        regions[device].add((send.src, send.regions))
    way: MpiName = "Ialltoallv"
    if step.kind in SHARED and all(len(one) == 1 for one in regions.values()):  # the same bytes, in the same order
        way = SHARED[step.kind]
    root = group.index(step.group[0]) if step.kind == "broadcast" else 0
    tags = {(device, send.peer): send.tag for device, send in sends.values()}
    return GroupCall(step.kind, way, group, root, min(sends), max(sends), step.nbytes, tags)


def _find_late(calls: Sequence[GroupCall], programs: Sequence[Sequence[DeviceStep]]) -> set[int]:
    """Those whose parts some device has yet to lay by when it waits for them, or for a later one of their group."""
    late: set[int] = set()
    for device, program in enumerate(programs):
        mine = {k: call for k, call in enumerate(calls) if device in call.group}
        parts = {(*pair, tag): k for k, call in mine.items() for pair, tag in call.tags.items()}
        missing = Counter(k for (src, *_), k in parts.items() if src == device)
        for at in program:
            if isinstance(at.step, Send):
                if (k := parts.get((device, at.step.peer, at.step.tag))) is not None:
                    missing[k] -= 1
            elif isinstance(at.step, Recv) and (k := parts.get((at.step.peer, device, at.step.tag))) is not None:
                late |= {n for n, call in mine.items() if n <= k and call.group == mine[k].group and missing[n]}
    return late


class Share:
    """What a rank gives and gets in a call of one run.

    Parameters
    ----------
    call : GroupCall
    rank : int
    """

    def __init__(self, call: GroupCall, rank: int) -> None:
        self.call, self.rank = call, rank
        self.missing = sum(src == rank for src, _ in call.tags)
        """How many of its parts are not there yet."""
        self.left = sum(dst == rank for _, dst in call.tags)
        """How many of the others' are not read yet."""
        self.gives = self.missing > 0
        self.came = self.given = np.empty(0, np.uint8)
        self.request: Any = None

    def _find(self, src: int, dst: int) -> tuple[int, int]:
        """Where the head and the cells of a parcel are."""
        call, place = self.call, self.call.group.index
        if call.way == "Ialltoallv":
            head = call.stride * place(dst if src == self.rank else src)
            return head, head + HEAD_NBYTES
        begin = call.stride * place(src) if call.way == "Iallgather" else 0
        return begin + HEAD_NBYTES * place(dst), begin + HEAD_NBYTES * call.heads

    def _take_room(self) -> None:
        if self.given.size:
            return
        blocks = 1 if self.call.way == "Ibcast" else len(self.call.group)
        self.given = np.empty(self.call.stride * blocks, np.uint8)

    def lay_by(self, peer: int, parcel: Parcel, since: float) -> None:
        """Take a part that this rank sends, from where it lies; its head has times by a clock from a time on."""
        is_first = not self.given.size
        self._take_room()
        head, cells = self._find(self.rank, peer)
        is_new = is_first or self.call.way == "Ialltoallv"
        seconds = fill(self.given[cells : cells + self.call.nbytes], parcel) if is_new else parcel.seconds
        HEAD.pack_into(self.given.data, head, parcel.packed - since, seconds)
        self.missing -= 1

    def begin(self, mpi: Any, comm: Any) -> None:
        """Begin the call, which blocks nothing."""
        self._take_room()
        call, byte = self.call, mpi.BYTE
        if call.way == "Ibcast":
            self.request = comm.Ibcast([self.given, byte], call.root)
        elif call.way == "Iallgather":
            self.request = comm.Iallgather(mpi.IN_PLACE, [self.given, byte])
        else:
            self.came = np.empty_like(self.given)
            counts = [0 if member == self.rank else call.stride for member in call.group]
            places = [k * call.stride for k in range(len(counts))]
            self.request = comm.Ialltoallv([self.given, (counts, places), byte], [self.came, (counts, places), byte])

    def read(self, peer: int, dtype: str, since: float) -> Parcel:
        """What a rank sent here, when the call is done."""
        room = self.came if self.call.way == "Ialltoallv" else self.given
        head, cells = self._find(peer, self.rank)
        packed, seconds = HEAD.unpack_from(room.data, head)
        self.left -= 1
        if not self.left:
            self.came = self.given = np.empty(0, np.uint8)
        return Parcel(room[cells : cells + self.call.nbytes].view(dtype), packed + since, seconds)


class Turns:
    """The calls of one group in a run: they begin in the plan's order."""

    def __init__(self, comm: Any, shares: Sequence[Share]) -> None:
        self.comm, self.shares = comm, shares
        self.begun = 0

    def begin(self, mpi: Any, stop: int) -> list[Share]:
        """Begin those that have not begun, up to one; what has begun now."""
        now = list(self.shares[self.begun : stop])
        for share in now:
            share.begin(mpi, self.comm)
            self.begun += 1
        return now

    def count_ready(self) -> int:
        """Up to which one all have their parts; of those at the end where this rank gives none, none."""
        stop = self.begun
        for k, share in enumerate(self.shares[self.begun :], self.begun + 1):
            if share.missing:
                break
            if share.gives:
                stop = k
        return stop


class Calls:
    """The calls of one rank.

    Parameters
    ----------
    mpi : module
        mpi4py's.
    comm : mpi4py.MPI.Comm
        Of all ranks, all of which make theirs together.
    calls : sequence of GroupCall
    told : Counter
        Counts the calls that are begun, by kind.
    """

    def __init__(self, mpi: Any, comm: Any, calls: Sequence[GroupCall], told: Counter[str]) -> None:
        self.mpi, self.rank, self.told = mpi, comm.rank, told
        self.calls = [call for call in calls if self.rank in call.group]
        groups = sorted({call.group for call in self.calls})  # in one order on all ranks: none waits for ever
        self.comms = {group: make_communicator(comm, group) for group in groups}
        self.lines: dict[Members, Turns] = {}
        self.of: dict[tuple[int, int, int], tuple[Turns, int]] = {}
        """By sender, receiver and tag."""

    def begin_run(self, cut: int) -> None:
        """Begin a run of the steps from a number on."""
        self._abandon()
        self.of.clear()
        shares: dict[Members, list[Share]] = {group: [] for group in self.comms}
        self.lines = {group: Turns(comm, shares[group]) for group, comm in self.comms.items()}
        for call in self.calls:
            if call.first >= cut:
                mine, line = shares[call.group], self.lines[call.group]
                for (src, dst), tag in call.tags.items():
                    if self.rank in (src, dst):
                        self.of[src, dst, tag] = line, len(mine)
                mine.append(Share(call, self.rank))

    def lay_by(self, tag: int, peer: int, parcel: Parcel, since: float) -> list[Share] | None:
        """Take a parcel that is a part of a call; what began with it, or None where it goes as a message."""
        found = self.of.get((self.rank, peer, tag))
        if found is None:
            return None
        line, k = found
        line.shares[k].lay_by(peer, parcel, since)
        return [] if line.shares[k].missing else self._begin(line, line.count_ready())

    def find(self, tag: int, peer: int) -> Share | None:
        """The call, begun, in which a parcel comes; None where it is a message."""
        found = self.of.get((peer, self.rank, tag))
        if found is None:
            return None
        line, k = found
        if k >= line.begun:
            assert not any(share.missing for share in line.shares[line.begun : k + 1]), "as `list_calls` found"
            self._begin(line, k + 1)
        return line.shares[k]

    def _begin(self, line: Turns, stop: int) -> list[Share]:
        now = line.begin(self.mpi, stop)
        self.told.update(share.call.kind for share in now)
        return now

    def count_begun(self) -> dict[Members, int]:
        """How many have begun on each communicator."""
        return {group: line.begun for group, line in self.lines.items()}

    def catch_up(self, begun: Sequence[Mapping[Members, int]]) -> list[Share]:
        """Begin what any rank has begun, with what there is; all that has begun."""
        every = list[Share]()
        for group, line in self.lines.items():
            line.begin(self.mpi, max(begun[rank].get(group, 0) for rank in group))
            every += line.shares[: line.begun]
        return every

    def close(self) -> None:
        """Give the communicators back."""
        self._abandon()
        for comm in self.comms.values():
            comm.Free()

    def _abandon(self) -> None:
        shares = (share for line in self.lines.values() for share in line.shares[: line.begun])
        _ABANDONED.extend(share for share in shares if not share.request.Test())


def fill(room: Array, parcel: Parcel) -> float:
    """Write a parcel's cells to memory, those that are lent from where they lie; how long it took to pack them."""
    cells = parcel.cells
    if isinstance(cells, np.ndarray):
        room[...] = cells.view(np.uint8)
        return parcel.seconds
    strips = cells.hand_over()
    strips.fill(room.view(strips.array.dtype))
    return perf_counter() - parcel.packed


def make_communicator(comm: Any, members: Members) -> Any:
    """A communicator of some ranks, which all of these take part in making."""
    whole = comm.Get_group()
    group = whole.Incl(members)
    made = comm.Create_group(group)
    group.Free()
    whole.Free()
    return made


_ABANDONED: list[Share] = []
"""Calls that others did not come to within the time that they are waited for: MPI may still write to their memory."""
