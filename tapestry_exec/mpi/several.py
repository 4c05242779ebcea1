"""Ranks with several devices: which these are, how their parcels are told apart, and how they take turns.

::

    devices    0   1   2   3     neighbors, with about equal work, as of processes
    ranks      └─0─┘   └─1─┘
    parcels    0 ─► 1            copied from where the cells lie
               0 ─► 2, 1 ─► 2    messages from rank 0 to rank 1, whose numbers say between which devices they are

In its first runs, and in those that are watched or saved, a device goes on until it needs cells that have not come.
Later runs are one loop in the plan's order. Where all of a rank's devices wait, the rank waits for the receipt that
comes first in the plan, which is enough: of all receipts at which ranks wait, look at the one that comes first in the
plan. What a device sends comes in its program behind steps that come before that in the plan. So who sends there does
not wait for a later one, and its rank does not wait for one either.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapestry_exec.copies import Array
from tapestry_exec.run import (
    Counts,
    DevicePart,
    Member,
    Parcel,
    Start,
    bring_together,
    load_backend,
    one_blas_thread,
)
from tapestry_plan.steps import DeviceStep, Recv

if TYPE_CHECKING:
    from tapestry_exec.mpi.messages import Mail

Receipts = dict[tuple[int, int], tuple[int, str]]
"""Cells and dtype of each parcel that comes to a rank, by the rank that sends it and its number."""


class Dealing:
    """How devices are dealt out to ranks.

    Parameters
    ----------
    groups : sequence of tuple of int
        By rank its devices, which are neighbors.

    Attributes
    ----------
    ranks : tuple of int
        By device.
    most : int
        How many devices a rank has at most.

    Examples
    --------
    >>> from tapestry_exec.mpi.several import Dealing
    >>> dealing = Dealing(((0, 1), (2,)))
    >>> dealing.number(5, 1, 2), dealing.read(22, 0, 1)
    (22, (5, 1, 2))
    """

    def __init__(self, groups: Sequence[tuple[int, ...]]) -> None:
        self.groups = tuple(groups)
        self.ranks = tuple(rank for rank, group in enumerate(self.groups) for _ in group)
        self.most = max(map(len, self.groups))
        self._places = tuple(k for group in self.groups for k in range(len(group)))

    def number(self, tag: int, source: int, target: int) -> int:
        """The number of a parcel among those between two ranks; its tag, where each has one device."""
        return (tag * self.most + self._places[source]) * self.most + self._places[target]

    def read(self, number: int, source: int, target: int) -> tuple[int, int, int]:
        """The tag of a parcel between two ranks, and between which devices it is."""
        most = self.most
        tag, pair = divmod(number, most * most)
        return tag, self.groups[source][pair // most], self.groups[target][pair % most]

    def list_receipts(self, parts: Sequence[DevicePart]) -> Receipts:
        """What comes from other ranks to the devices of one."""
        if self.most == 1:
            return parts[0].list_receipts()
        ranks, found = self.ranks, Receipts()
        for part in parts:
            for (peer, tag), cells in part.list_receipts().items():
                if ranks[peer] != ranks[part.device]:
                    found[ranks[peer], self.number(tag, peer, part.device)] = cells
        return found


def deal_singly(size: int) -> Dealing:
    """A device for each rank."""
    return Dealing(tuple((device,) for device in range(size)))


class Box:
    """The parcels of one of a rank's devices: messages, or for others of the rank, which read where the cells lie.

    Parameters
    ----------
    device : int
    dealing : Dealing
    mail : Mail
    near : mapping of (source, target, tag) to Parcel
        Those between devices of this rank which are not taken yet: one for all of its boxes.
    """

    def __init__(self, device: int, dealing: Dealing, mail: Mail, near: dict[tuple[int, int, int], Parcel]) -> None:
        self.device, self.dealing, self.mail, self.near = device, dealing, mail, near
        self.ranks = dealing.ranks

    def is_near(self, peer: int) -> bool:
        """Whether a device is of this rank, too."""
        return self.ranks[peer] == self.ranks[self.device]

    def send(self, tag: int, peer: int, parcel: Parcel) -> None:
        """Hand a parcel over."""
        if self.is_near(peer):
            self.near[self.device, peer, tag] = parcel
        else:
            self.mail.send(self.dealing.number(tag, self.device, peer), self.ranks[peer], parcel)

    def bind_send(self, tag: int, peer: int, strips: Any) -> Callable[[float], None] | None:
        """As of `Mail`; None of a peer of this rank."""
        if self.is_near(peer):
            return None
        return self.mail.bind_send(self.dealing.number(tag, self.device, peer), self.ranks[peer], strips)

    def recv(self, tag: int, peer: int) -> Parcel:
        """Take a parcel; of another rank it is waited for."""
        if self.is_near(peer):
            return self.near.pop((peer, self.device, tag))
        return self.mail.recv(self.dealing.number(tag, peer, self.device), self.ranks[peer])

    def is_there(self, step: Recv) -> bool:
        """Whether a receipt need not wait."""
        if self.is_near(step.peer):
            return (step.peer, self.device, step.tag) in self.near
        return self.mail.is_there(self.dealing.number(step.tag, step.peer, self.device), self.ranks[step.peer])


class Team:
    """The devices of a rank.

    Parameters
    ----------
    members : mapping of int to Member
    boxes : mapping of int to Box
        None where each rank has one device, whose transport is the mail itself.
    """

    def __init__(self, members: Mapping[int, Member], boxes: Mapping[int, Box] | None = None) -> None:
        self.members, self.boxes = members, boxes or {}
        self.at = next(iter(members))
        """The device whose turn it is, or was last."""

    @classmethod
    def of(cls, parts: Sequence[DevicePart], dealing: Dealing, mail: Mail) -> Team:
        """Those of a rank without GPUs."""
        backend = load_backend("numpy")
        if dealing.most == 1:
            return cls({part.device: Member(part, backend, mail, near=()) for part in parts})
        near: dict[tuple[int, int, int], Parcel] = {}
        boxes = {part.device: Box(part.device, dealing, mail, near) for part in parts}
        members = {
            part.device: Member(part, backend, box, array("q", [-1, 0, 0]), boxes.keys() - {part.device})
            for part, box in zip(parts, boxes.values(), strict=True)
        }
        return cls(members, boxes)

    @property
    def step(self) -> int:
        """The plan's step at which that device is; -1 before the first one."""
        return self.members[self.at].at

    def tell(self) -> tuple[int, list[int]]:
        """That device, and by device the bytes that it has sent."""
        return self.at, [int(one.board[1]) for one in self.members.values()]

    def place(self, constants: Mapping[str, Any]) -> list[int]:
        """Place what stays; by device the bytes that were placed."""
        placed = []
        for device, member in self.members.items():
            self.at = device
            placed.append(member.place(constants))
        return placed

    def run(
        self,
        host: Mapping[str, Any],
        given: Sequence[str],
        begin: float,
        errors: Mapping[str, Any],
        tell: Callable[[int, str], None] | None,
        start: Start | None,
    ) -> list[tuple[Counts, list[Array]]]:
        """Run what is left to do; by device what `Member.run` gives, which has these arguments, too."""
        if not self.boxes:
            return [one.run(host, given, begin, errors, tell, start) for one in self.members.values()]
        next(iter(self.boxes.values())).near.clear()  # of a run that failed
        with one_blas_thread(), np.errstate(**errors):
            for device, member in self.members.items():
                self.at = device
                member.begin(host, given, begin, start, tell is None)
            self._do_steps(tell)
            found = []
            for device, member in self.members.items():
                self.at = device
                found.append(member.end())
        return found

    def _do_steps(self, tell: Callable[[int, str], None] | None) -> None:
        """Do the steps of the run that has begun: in one loop, where all know them by heart."""
        group = bring_together(self.members)
        if group is None:
            boxes = self.boxes
            self._take_turns({k: one.take_turns(tell, boxes[k].is_there) for k, one in self.members.items()})
            return
        try:
            group.play(lambda at: True)  # who does a receipt waits
        finally:
            self.at = self.at if group.at is None else group.at.device

    def _take_turns(self, turns: Mapping[int, Iterator[DeviceStep]]) -> None:
        """Go on with the device that is furthest behind of those that can, until all have ended."""
        boxes, stands = self.boxes, dict[int, Recv | None].fromkeys(turns)
        while stands:
            able = [k for k, step in stands.items() if step is None or boxes[k].is_there(step)]
            far = able or [k for k, step in stands.items() if step is not None and not boxes[k].is_near(step.peer)]
            self.at = min(far, key=lambda k: self.members[k].at)
            at = next(turns[self.at], None)
            if at is None:
                del stands[self.at]
            else:
                assert isinstance(at.step, Recv), "devices wait for cells alone"
                stands[self.at] = at.step

    def leave(self) -> None:
        """Give the memory of the devices back."""
        for one in self.members.values():
            one.leave()
