"""NCCL between GPUs: what devices send each other, and collectives as one operation.

::

    copy 7 from device 0 to 2     group { 0 ─► 2 }    rank 0 sends in its lane `out`, rank 2 receives in its lane `in`
    all_gather of 0, 1, 2         round 1   group { 0 ─► 1   1 ─► 2   2 ─► 0 }
                                  round 2   group { 0 ─► 2   1 ─► 0   2 ─► 1 }
    broadcast to all devices      NCCL's own

One thread issues everything in the plan's order, so that every communicator sees one order; both ends of a message are
in one group, without which the first call would wait for the second one for ever. Parts that are added up are sent and
then merged here, in the plan's order: sums that NCCL makes depend on the ring or tree that it finds.

All GPUs may be this process's, or one of them alone, whose others are other processes' (`cuda/ranks.py`): of a message
then one end is here.

Written to NCCL's documentation, and tested on simulated GPUs, where a communicator stands in that does what is written
there. Not yet run on a GPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from tapestry_exec.cuda.backend import CupyBackend
from tapestry_exec.cuda.device import CupyDevice, leave_mark, wait_for_users
from tapestry_exec.cuda.lanes import Lane
from tapestry_exec.cuda.payloads import Payload
from tapestry_exec.run import BackendUnavailable, Exchanged
from tapestry_plan.steps import Buffer, Collective
from tapestry_sets.limits import check_arguments, quote


class Crossing(NamedTuple):
    """A message from one device of the mesh to another one: of each end that is here what is sent, and its room."""

    src: int
    dst: int
    nbytes: int
    given: tuple[CupyDevice, Payload] | None
    came: tuple[CupyDevice, Payload] | None


class NcclBackend(CupyBackend):
    """Runs plans on GPUs of this machine, which exchange through NCCL; each device of the mesh has a GPU to itself.

    `CupyBackend` has each GPU copy from another one's memory, one copy after the other. NCCL also knows other ways
    between GPUs, and does what several devices exchange as one operation. Bits and bytes are the same. Runs are not
    recorded as graphs. ``MpiBackend(device=NcclBackend())`` has a rank for each GPU, also on several hosts. Not yet run
    on a GPU.

    Parameters
    ----------
    devices : sequence of int, optional
        For each device of the mesh its GPU, by default the first ones; of a rank its one.
    options : any
        `kernels`, `fallback`, `blocking`, `poison`, `tf32` and `cupy`, as of `CupyBackend`.

    Raises
    ------
    BackendUnavailable
        When NCCL, CuPy, or a GPU for each device is missing; when a plan is run, before its first step.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import NcclBackend, run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"), "y")
    >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
    >>> run(p, {"x": np.ones((4, 6), np.float32)}, backend="nccl").nbytes_by_link  # doctest: +SKIP
    {(0, 1): 24, (1, 0): 24}
    >>> NcclBackend([0, 0])
    Traceback (most recent call last):
        ...
    ValueError: NcclBackend: devices[1] is 0, as devices[0] is; NCCL has one rank a GPU: give each device its own
    """

    name = "nccl"

    @check_arguments(devices="give a sequence of GPU numbers")
    def __init__(self, devices: Sequence[int] | None = None, **options: Any) -> None:
        asked = list(devices or ())
        for k, gpu in enumerate(asked):
            if gpu in asked[:k]:
                raise ValueError(
                    f"NcclBackend: devices[{k}] is {gpu}, as devices[{asked.index(gpu)}] is; NCCL has one rank a GPU: "
                    "give each device its own"
                )
        if options.get("capture"):
            raise ValueError("NcclBackend: capture is True; runs through NCCL are not recorded: use CupyBackend")
        self._instead = "use backend='cupy'"
        """What errors say to do without NCCL."""
        self._communicators: dict[tuple[int, ...], list[Any]] = {}
        """By the GPUs: one for each."""
        super().__init__(devices, **{**options, "capture": False})

    @property
    def nccl(self) -> Any:
        """CuPy's module of NCCL.

        Raises
        ------
        BackendUnavailable
            When CuPy does not find the library.
        """
        found = getattr(self.cupy.cuda, "nccl", None)
        if found is None and hasattr(self.cupy, "__path__"):  # CuPy's own, which loads it when it is imported
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that there is no library, which is told below
                found = import_module("cupy.cuda.nccl")
        if found is None or not found.available:
            raise BackendUnavailable(
                "backend 'nccl' needs NCCL, which CuPy does not find: pip install nvidia-nccl-cu13 (or -cu12, as CuPy "
                f"is), or {self._instead}"
            )
        return found

    def gpus_of(self, size: int) -> list[int]:
        """For each device of a mesh of this size its GPU.

        Raises
        ------
        BackendUnavailable
            When there is no driver, or not a GPU for each device.
        """
        gpus = super().gpus_of(size)
        count = len(set(gpus))
        if count < size:
            raise BackendUnavailable(
                f"backend 'nccl': the plan has {size} devices and this machine {count} GPUs; NCCL has one rank a GPU: "
                f"plan for Mesh({count}), or use backend='cupy', where devices share GPUs"
            )
        return gpus

    def open(self, nbytes: Sequence[int], payload_nbytes: Sequence[int] = ()) -> list[Any]:
        """One device for each arena size; rings hold what a device sends and gets in one round."""
        self._join(self.gpus_of(len(nbytes)))
        return super().open(nbytes, _double([*payload_nbytes, *nbytes[len(payload_nbytes) :]]))

    def _trim(self, payload_nbytes: Sequence[int]) -> None:
        super()._trim(_double(payload_nbytes))

    def _join(self, gpus: Sequence[int]) -> None:
        """Have a communicator for each GPU, before the first step."""
        key, nccl = tuple(gpus), self.nccl
        if key in self._communicators:
            return
        try:
            self._communicators[key] = nccl.NcclCommunicator.initAll(list(gpus))
        except RuntimeError as error:  # NcclError is one
            raise BackendUnavailable(
                f"backend 'nccl': NCCL does not begin on GPUs {quote(list(gpus))}: {error}; set NCCL_DEBUG=INFO to see "
                "why, or use backend='cupy'"
            ) from error

    def _rank(self, device: int) -> Any:
        """The communicator of a device that is here."""
        return self._communicators[tuple(one.gpu.number for one in self._on_gpus)][device]

    @property
    def _size(self) -> int:
        """How many devices there are, here and elsewhere."""
        return len(self._devices)

    @property
    def _on_gpus(self) -> list[CupyDevice]:
        return [one for one in self._devices if isinstance(one, CupyDevice)]  # which all are

    # -- what is exchanged ---------------------------------------------------------------------------------

    def move(self, payload: Any, src: int, dst: int) -> Any:
        """Bring a payload to where device `dst` can unpack it."""
        source, target = self._on_gpus[src], self._on_gpus[dst]
        room = target.take_room(payload.nbytes, payload.dtype)
        self._send([Crossing(src, dst, payload.nbytes, (source, payload), (target, room))])
        return room

    def takes(self, collective: Collective) -> bool:
        """Whether it runs a collective as one operation: all of them."""
        return True

    def exchange(self, devices: Sequence[Any], collective: Collective, buffers: Mapping[int, Buffer]) -> Exchanged:
        """Send what the collective's copies say, round by round; parts are merged behind it, as the plan says.

        Of the group's devices those that are here do their share, in the rounds of all; who sends counts the bytes.
        """
        here = {one.number: one for one in devices}
        copies = {(buffers[one.src].device, buffers[one.dst].device): one for one in collective.copies}
        links = dict[tuple[int, int], int]()
        is_one = collective.kind == "broadcast" and len(collective.group) == self._size
        for round_ in [list(copies)] if is_one else deal_rounds(copies):
            packed, messages = dict[int, Payload](), list[Crossing]()
            for src, dst in round_:
                copy, given, came = copies[src, dst], None, None
                if src in here:
                    if not is_one or src not in packed:
                        packed[src] = here[src].pack(buffers[copy.src], copy.regions)
                    given = here[src], packed[src]
                    links[src, dst] = links.get((src, dst), 0) + int(packed[src].nbytes)
                if dst in here:
                    came = here[dst], here[dst].take_room(collective.nbytes, np.dtype(buffers[copy.dst].dtype))
                messages.append(Crossing(src, dst, collective.nbytes, given, came))
            (self._broadcast if is_one else self._send)([one for one in messages if one.given or one.came])
            for one in messages:
                if one.came is not None:
                    copy, (device, room) = copies[one.src, one.dst], one.came
                    device.unpack(room, buffers[copy.dst], copy.regions)
        return Exchanged(links)

    def _send(self, messages: Sequence[Crossing]) -> None:
        """Send messages as one group."""
        nccl, rank = self.nccl, self._rank
        sent = [one for one in messages if one.nbytes]
        if not sent:
            return
        with self._group(sent):
            for src, dst, count, given, came in sent:
                if given is not None:
                    source, payload = given
                    rank(src).send(payload.address, count, nccl.NCCL_UINT8, dst, source.out.stream.ptr)
                if came is not None:
                    target, room = came
                    rank(dst).recv(room.address, count, nccl.NCCL_UINT8, src, target.incoming.stream.ptr)

    def _broadcast(self, messages: Sequence[Crossing]) -> None:
        """Send one payload to all other devices."""
        nccl, (root, _, count, given, _) = self.nccl, messages[0]
        if not count:
            return
        ends = [(given[0], given[1], given[0].out)] if given is not None else []
        ends += [(one.came[0], one.came[1], one.came[0].incoming) for one in messages if one.came is not None]
        with self._group(messages):
            for device, payload, lane in ends:
                at, to = payload.address, self._rank(device.number)
                to.broadcast(at, at, count, nccl.NCCL_UINT8, root, lane.stream.ptr)

    @contextmanager
    def _group(self, messages: Sequence[Crossing]) -> Iterator[None]:
        """What is called within is one group: behind those who use the memory, and before those who use it next."""
        self._wait(messages)
        self.nccl.groupStart()
        try:
            yield
        finally:
            self.nccl.groupEnd()
        self._leave_marks(messages)

    def _wait(self, messages: Sequence[Crossing]) -> None:
        for *_, given, came in messages:
            if given is not None:
                wait_for_users(given[0].out, [given[1]], [])
            if came is not None:
                wait_for_users(came[0].incoming, [], [came[1]])

    def _leave_marks(self, messages: Sequence[Crossing]) -> None:
        for *_, given, came in messages:
            if self.blocking:
                for lane in _list_lanes(given, came):
                    lane.stream.synchronize()
            if given is not None:
                leave_mark(given[0].out, [given[1]], [])
            if came is not None:
                leave_mark(came[0].incoming, [], [came[1]])


def deal_rounds(pairs: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Messages between devices, by who sends and who gets them, in rounds: in each a device sends one and gets one.

    Examples
    --------
    >>> from tapestry_exec.cuda.nccl import deal_rounds
    >>> deal_rounds([(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)])
    [[(0, 1), (1, 2), (2, 0)], [(0, 2), (1, 0), (2, 1)]]
    """
    found = list(pairs)
    places = {device: k for k, device in enumerate(sorted({device for pair in found for device in pair}))}
    rounds = dict[int, list[tuple[int, int]]]()
    for src, dst in found:
        rounds.setdefault((places[dst] - places[src]) % len(places), []).append((src, dst))
    return [sorted(rounds[k]) for k in sorted(rounds)]


def _list_lanes(given: tuple[CupyDevice, Payload] | None, came: tuple[CupyDevice, Payload] | None) -> list[Lane]:
    """The lanes in which the ends that are here send and get."""
    return [*([] if given is None else [given[0].out]), *([] if came is None else [came[0].incoming])]


def _double(nbytes: Sequence[int]) -> list[int]:
    """In a round a device holds what it sends beside what it gets, wherever its ring begins."""
    return [2 * one for one in nbytes]
