"""The NumPy backend: every device of the mesh is an arena of bytes in this process.

How regions and views are copied between its arrays is told in `copies`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import setitem
from threading import Lock
from typing import Any, NamedTuple
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from tapestry_exec import copies
from tapestry_exec.copies import Array
from tapestry_exec.numpy import tuning
from tapestry_exec.run import (
    Attrs,
    Backend,
    Buffers,
    Reads,
    Regions,
    Rehearsal,
    Writes,
    are_same_ops,
    check_room,
    count_cores,
)
from tapestry_plan.ir import Call, Monoid, Op, Shard, components_of, is_in_place, list_calls, merge_states
from tapestry_plan.rewrite import is_builtin
from tapestry_plan.steps import Buffer, align
from tapestry_sets.limits import mend_calls, wrong_type
from tapestry_sets.regions import Box
from tapestry_sets.views import Piece


@mend_calls
class NumpyBackend(Backend["NumpyDevice"]):
    """Devices of a mesh as arenas in this process.

    Arenas that are closed are kept for the next run on the same object: memory that was touched before is
    faster. A run that begins before another one ended gets arenas of its own.

    Devices run in threads, as many as there are cores, where operators take longer than that costs. Bits and counts are
    the same as in one loop.

    Parameters
    ----------
    threads : bool, optional
        Whether devices run in threads, however long or short their work is. By default where it is worth that.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import NumpyBackend, run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> class Watched(NumpyBackend):  # what goes between devices, message by message
    ...     def move(self, payload, src, dst):
    ...         print(f"{payload.nbytes} B from device {src} to device {dst}")
    ...         return super().move(payload, src, dst)
    >>> g = Graph()
    >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"), "y")
    >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
    >>> result = run(p, {"x": np.ones((4, 6), np.float32)}, backend=Watched())
    24 B from device 1 to device 0
    24 B from device 0 to device 1
    """

    name = "numpy"
    keeps = saves = True

    def __init__(self, *, threads: bool | None = None) -> None:
        if not isinstance(threads, bool | np.bool_ | None):  # nor is 1 taken for True
            mend = "it is not a number of threads, which are as many as cores"
            raise wrong_type(threads, "True or False or None", "NumpyBackend: threads", mend)
        self.threads = None if threads is None else bool(threads)
        self._closed: list[list[NumpyDevice]] = []

    def open(self, nbytes: Sequence[int], payload_nbytes: Sequence[int] = ()) -> list[NumpyDevice]:
        """One device for each arena size, in bytes; payloads need no room beside them."""
        try:
            kept = self._closed.pop()
        except IndexError:
            kept = []
        kept += [self.make_device(0) for _ in nbytes[len(kept) :]]
        pairs = zip(kept, nbytes, strict=False)
        devices = [device if device.memory.nbytes >= n else self.make_device(n) for device, n in pairs]
        if kept != devices:
            for device in devices:
                device.forget_others()
        return devices

    def make_device(self, nbytes: int) -> NumpyDevice:
        """A device with an arena of so many bytes."""
        return NumpyDevice(copies.aligned_bytes(nbytes))

    def check_room(self, nbytes: Sequence[int]) -> None:
        """Raise MemoryError where the arenas do not fit beside what this host holds already."""
        check_room(nbytes, sum(device.memory.nbytes for devices in self._closed for device in devices))

    def wants_threads(self, seconds: float, shards: int, devices: int) -> bool:
        """Whether there are several devices and cores, and long work for them: Python itself runs on one core."""
        if self.threads is not None:
            return self.threads
        is_long = seconds >= max(tuning.MIN_THREADED_SECONDS, shards * tuning.MIN_THREADED_SHARD_SECONDS)
        return devices > 1 and is_long and count_cores() > 1

    def close(self, devices: Sequence[NumpyDevice]) -> None:
        """Take the devices back, with nothing on them."""
        for device in devices:
            device.leave()
        self._closed = [list(devices)]

    def place(self, array: Array, regions: Regions, tensor: str) -> Array:
        """Pack cells of a host array for a device; a view of it where they are contiguous there."""
        if len(regions) == 1 and regions[0].is_box:
            cells = array[copies.slices_of(regions[0], (0,) * array.ndim)]
            if cells.flags.c_contiguous:
                return cells.reshape(-1)
        return copies.pack(array, (0,) * array.ndim, regions)

    def move(self, payload: Array | Loan, src: int, dst: int) -> Array | Loan:
        """Hand a packed payload from device `src` to device `dst`."""
        return payload

    def lends(self) -> bool:
        """Whether cells are read where they lie: a class with a `move` of its own gets payloads, which devices pack."""
        return type(self).move is NumpyBackend.move

    def reads_host(self) -> bool:
        """Whether constants are copied from where they lie: a class with a `place` of its own hands them over."""
        return type(self).place is NumpyBackend.place

    def fetch(self, payload: Array) -> Array:
        """A packed payload as a host array."""
        return payload


class SerialBackend(NumpyBackend):
    """The same devices in one loop, in the plan's order: to follow steps, and where no threads are wanted.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import SerialBackend, run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (4, 6))), "y")
    >>> p = plan(g, Mesh(2), fix={"relu": {"i0": 2}})
    >>> result = run(p, {"x": np.ones((4, 6), np.float32)}, backend=SerialBackend())
    >>> [event.step for event in result.timeline] == list(range(len(p.steps)))
    True
    """

    name = "serial"

    def __init__(self) -> None:
        super().__init__(threads=False)


class Launched(NamedTuple):
    """What a block function is given, made when a step runs first: arrays lie where they lie in every run."""

    op: Op
    inputs: Reads
    """The step's own, by which it is known again."""
    outputs: Writes
    buffers: tuple[Buffer, ...]
    read: tuple[Array | None, ...]
    write: tuple[Array, ...]
    shard: Shard
    untold: tuple[int, ...]
    """The buffers, and those that they lie within, of which nobody knows which cells the operator writes."""
    overtaken: tuple[int, ...]
    """The buffers that it reads last, and overwrites."""
    calls: list[Call]
    """What the block function does with them, once it has run, unless that is a long list."""


class Constant(NamedTuple):
    """A buffer of which all cells are a contiguous part of a tensor in the host's memory, and are read there."""

    buffer: Buffer
    array: Array
    cells: Array


class Loan:
    """Cells of a buffer for another device, which copies them from where they lie; what it takes for a payload.

    A place that is given back before is copied first::

        sender      lend 7 ── compute ── free: is it taken? else pack it ── …
        receiver               …             take 7: from the buffer, or from what was packed

    Parameters
    ----------
    strips : Strips
        Where they lie.
    buffer : Buffer
    lock : Lock, optional
        Of devices that run side by side; without it the loan is taken at once, and is the same in every run.
    """

    __slots__ = ("buffer", "is_taken", "lock", "nbytes", "payload", "strips")

    def __init__(self, strips: copies.Strips, buffer: Buffer, lock: Lock | None) -> None:
        self.strips, self.buffer, self.lock = strips, buffer, lock
        self.nbytes = strips.size * strips.array.itemsize
        self.payload: Array | None = None
        self.is_taken = False

    def keep(self) -> None:
        """Pack the cells, before others come into their place, unless they were taken."""
        assert self.lock is not None, "devices run side by side"
        with self.lock:
            if not self.is_taken:
                self.payload = self.strips.gather()

    def hand_over(self) -> copies.Strips:
        """Say that the cells were taken: whoever calls this copies them before the device goes on."""
        self.is_taken = True
        return self.strips

    def take(self, copy: Callable[[], None]) -> Array | None:
        """Call what copies the cells from where they lie; what was packed of them where their place was given back."""
        if self.lock is None:
            copy()
            return None
        with self.lock:
            if self.payload is None:
                copy()
                self.is_taken = True
        return self.payload


class NumpyDevice:
    """One device: an arena of bytes, and the buffers that lie in it.

    The device reaches its own arena only. Cells come and go as packed payloads.

    Parameters
    ----------
    memory : array of uint8
        The arena.
    """

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self.memory = memory
        self._known: dict[int, tuple[Buffer, Array, Array, int]] = {}
        """Arrays of buffers in the arena, by number, as they were allocated last; from first to last cell; the end."""
        self._launches: dict[int, Launched] = {}
        """By the identity of a step's inputs."""
        self._packs: dict[tuple[int, int], copies.Strips] = {}
        """By the identities of a buffer's array and of a step's regions."""
        self._unpacks: dict[tuple[int, int], copies.Strips] = {}
        self._merges: dict[tuple[int, int], Merging] = {}
        """The same of where parts are merged."""
        self._pairs: dict[tuple[int, int, int], copies.Pairs] = {}
        """The same of what is copied from other arrays, with their identities."""
        self._loans: dict[int, list[Loan]] = {}
        """By buffer those that may not have been taken."""
        self._fills: dict[int, tuple[Array, list[Array]]] = {}
        """By the identity of a buffer's array its cells outside the tensor."""
        self._lasting: dict[int, Loan] = {}
        """By the identities of their strips those that are taken at once."""
        self._tried: dict[int, Buffer] = {}
        """Buffers that a run of the same steps, by the same operators, has poisoned, used and given back."""
        self._given_back: dict[int, Buffer] = {}
        """The same of the run that goes on."""
        self._untold: set[int] = set()
        """Those that operators of the caller's own write, in which cells may depend on numbers."""
        self._settled: dict[int, Array] = {}
        """The arrays of those whose places are not taken anew."""
        self._settled_nbytes = 0
        self._held: dict[int, Array] = {}
        self._held_nbytes = 0
        self._there: dict[int, Constant] = {}
        """By the identity of a buffer the constant whose cells are read where they lie."""
        self._fresh: dict[int, tuple[int, ...]] = {}
        """Tensors' shapes by buffer, where nothing used the buffer yet."""
        self._noted: list[Call] | None = None
        """What a step that is noted has called so far."""
        self.rehearsal: Rehearsal | None = None
        self._now: tuple[object, Mapping[str, Op]] | None = None
        """Which steps are done, by which operators, where that was told."""
        self._past: tuple[object, Mapping[str, Op], dict[int, Buffer]] | None = None
        """The same of the time before, with the buffers that were tried then."""
        self.restart()

    def leave(self) -> None:
        """Give up all buffers; what is known of steps stays, for the next run of the same plan."""
        tried = self._tried | self._given_back
        self._past = None if self._now is None else (*self._now, tried)
        self._now = None
        for told in (self._given_back, self._untold):
            told.clear()
        self._tried = {}
        if self._held or len(self._launches) > tuning.KEPT_LAUNCHES:
            self.rehearsal = None
            for known in (
                self._launches,
                self._known,
                self._packs,
                self._unpacks,
                self._merges,
                self._pairs,
                self._lasting,
                self._fills,
                self._there,
                self._settled,
            ):
                known.clear()
            self._past = None
        elif not self.notes:  # nobody tells it what begins
            self._forget_constants()
        self._held.clear()
        self._held_nbytes = 0
        self.restart()

    def begin(self, work: object, ops: Mapping[str, Op]) -> None:
        """Take for known what the run before told of buffers, if the same operators did the same steps in it."""
        if self._past is None or self._past[0] is not work:
            self._forget_constants()
        elif are_same_ops(self._past[1], ops):
            self._tried |= self._past[2]
        self._now = work, ops

    def _forget_constants(self) -> None:
        """Hold no array of a graph, so that it can go with its plan."""
        for known in (self._there, self._launches, self._pairs):
            known.clear()

    def forget_others(self) -> None:
        """Forget where cells lie in arenas of other devices, so that those that are gone can be given back."""
        self._pairs.clear()
        self.rehearsal = None

    @property
    def notes(self) -> bool:
        """Whether `note` tells all that a step does: a class of its own may do more."""
        return type(self) is NumpyDevice

    def note(self, do: Callable[[], object]) -> tuple[Call, ...]:
        """Have something done here; the calls that do the same in later runs, as arrays lie where they lie then.

        They do not hold the device, which holds them: so it goes with the last one who needs it.
        """
        self._noted = noted = list[Call]()
        try:
            do()
        finally:
            self._noted = None
        return tuple(noted)

    def _call(self, calls: Iterable[Call]) -> None:
        _call_each(calls)
        if self._noted is not None:
            self._noted += calls

    def hold(self, buffer: Buffer, tensor_shape: Sequence[int]) -> None:
        """Take memory of its own for a buffer, which stays until the device is closed."""
        self._launches.clear()  # in runs before it may have lain in the arena
        self._known.clear()
        room = copies.aligned_bytes(buffer.nbytes)
        self._held[buffer.id] = self._arrays[buffer.id] = np.ndarray(buffer.shape, buffer.dtype, room)
        _poison(room, self._held[buffer.id])
        for cells in _list_outside(self._held[buffer.id], buffer, tensor_shape):
            cells.fill(buffer.fill)
        self._held_nbytes += align(buffer.nbytes)
        self.peak_nbytes = self._held_nbytes

    def restart(self) -> None:
        """Forget all buffers but those that stay, and count anew."""
        self._loans.clear()
        self._tried |= self._given_back
        self._arrays: dict[int, Array] = dict(self._held)
        self._fresh.clear()
        self.peak_nbytes, self.copied_nbytes = self._held_nbytes, 0

    def list_settled(self) -> Collection[int]:
        """The buffers whose places need not be taken anew in runs of these steps: nothing is filled there."""
        self._tried |= self._given_back
        tried = [one for one in self._tried.values() if one.fill is None]
        alone = {one.id for one in tried if one.within is None}
        settled = alone | {one.id for one in tried if one.within is not None and one.within.buffer in alone}
        self._settled = {number: self._known[number][1] for number in settled}
        self._settled_nbytes = max((self._known[number][3] for number in alone), default=0)
        return settled

    @property
    def settled(self) -> Collection[int]:
        """The buffers that `take_settled` takes the places of."""
        return self._settled.keys()

    def take_settled(self) -> None:
        """Take their places all at once, in a run that leaves out the steps that do."""
        self._arrays |= self._settled
        self.peak_nbytes = max(self.peak_nbytes, self._held_nbytes + self._settled_nbytes)

    def alloc(self, buffer: Buffer, tensor_shape: Sequence[int]) -> None:
        """Take a buffer's place: its cells are poisoned, those outside the tensor get the buffer's fill.

        Which cells a plan's steps write does not depend on numbers, so that one run of them tells for all: a
        buffer that was poisoned and given back by readers is not poisoned again, unless an operator of the caller's
        own writes it. One that lies over another one is never poisoned.
        """
        known = self._known.get(buffer.id)
        if known is None or known[0] is not buffer:
            known = self._known[buffer.id] = buffer, *self._find_place(buffer)
        self._arrays[buffer.id] = known[1]
        if buffer.within is None:
            if self._held_nbytes + known[3] > self.peak_nbytes:
                self.peak_nbytes = self._held_nbytes + known[3]
            # Poisoned just before the first use, unless that writes every cell; but what lies over cells that are read.
            is_tried = self._tried.get(buffer.id) is buffer or buffer.over is not None
            if buffer.fill is not None or not is_tried:
                self._fresh[buffer.id] = tuple(tensor_shape)
        elif (host := buffer.within.buffer) in self._fresh:
            self._array(self._known[host][0])  # poisoned with its host
        if self._noted is not None:
            self._noted[:] = [partial(NumpyDevice.alloc, proxy(self), buffer, tensor_shape)]

    def _find_place(self, buffer: Buffer) -> tuple[Array, Array, int]:
        """The array of a buffer, that from its first to its last cell, and its end in the arena; 0 beside that."""
        there = self._held.get(buffer.place)
        if there is not None:
            return there, there, 0
        return *_lay(buffer, self.memory), buffer.offset + buffer.room

    def free(self, buffer: Buffer) -> None:
        """Give a buffer's place back."""
        self.keep_loans((buffer.id,))
        del self._arrays[buffer.id]
        self._fresh.pop(buffer.id, None)
        if buffer.id not in self._untold:
            self._given_back[buffer.id] = buffer
        if self._noted is not None:
            self._noted.append(partial(NumpyDevice.free, proxy(self), buffer))

    def _array(self, buffer: Buffer) -> Array:
        array = self._arrays[buffer.id]
        tensor_shape = self._fresh.pop(buffer.id, None)
        if tensor_shape is not None:
            self._refresh(buffer, array, tensor_shape)
            if self._noted is not None:
                self._noted.append(partial(NumpyDevice._array, proxy(self), buffer))
        return array

    def _refresh(self, buffer: Buffer, array: Array, tensor_shape: Sequence[int]) -> None:
        if self._tried.get(buffer.id) is not buffer:
            _poison(self.memory[buffer.offset : buffer.offset + buffer.nbytes], array)
        if buffer.fill is not None:
            known = self._fills.get(id(array))
            if known is None or known[0] is not array:
                known = self._fills[id(array)] = array, _list_outside(array, buffer, tensor_shape)
            for cells in known[1]:
                cells.fill(buffer.fill)

    def _span(self, buffer: Buffer, array: Array) -> Array:
        """The array of a buffer from its first to its last cell: of one within another one with what lies between."""
        return array if buffer.within is None else self._known[buffer.id][2]

    def _target(self, buffer: Buffer, regions: Regions) -> Array:
        """The array of a buffer whose cells in `regions` are about to be written."""
        if id(buffer) in self._there:
            self._take_back(buffer)
        if buffer.id not in self._fresh:
            return self._arrays[buffer.id]
        if len(regions) == 1 and regions[0].size == self._arrays[buffer.id].size:
            self._call([partial(self._fresh.pop, buffer.id, None)])
        return self._array(buffer)

    def pack(self, buffer: Buffer, regions: Regions) -> Array:
        """The regions' cells, each region row-major, as one contiguous payload."""
        return self.find_strips(buffer, regions).gather()

    def lend(self, buffer: Buffer, regions: Regions, is_taken_at_once: bool) -> Loan:
        """What another device in this process takes for a payload; some take it before this one goes on."""
        if not is_taken_at_once:
            return self.lend_again(buffer, regions)()
        strips = self.find_strips(buffer, regions)
        known = self._lasting.get(id(strips))
        if known is None or known.strips is not strips:
            if len(self._lasting) >= tuning.KEPT_LAUNCHES:
                self._lasting.clear()
            known = self._lasting[id(strips)] = Loan(strips, buffer, None)
        return known

    def lend_again(self, buffer: Buffer, regions: Regions) -> Callable[[], Loan]:
        """What lends cells in later runs, when what was noted of `lend` is called: they lie where they lie now."""
        strips, loans = self.find_strips(buffer, regions), self._loans

        def lend() -> Loan:
            loan = Loan(strips, buffer, Lock())
            loans.setdefault(buffer.id, []).append(loan)
            return loan

        return lend

    def find_strips(self, buffer: Buffer, regions: Regions) -> copies.Strips:
        """Where cells lie that are packed."""
        # In few calls: a small payload takes no longer than this.
        number = buffer.id
        array = self._array(buffer) if number in self._fresh else self._arrays[number]
        if buffer.within is not None:
            array = self._span(buffer, array)
        known = self._packs.get((id(array), id(regions)))
        if known is None or known.array is not array or known.regions is not regions:
            where = array, buffer.strides, buffer.start, regions
            known = _keep(self._packs, copies.Strips.of(*where, copies.pack_transfers))
        return known

    def spill(self, buffer: Buffer) -> Array:
        """All cells of a buffer, as one payload; also those that nothing wrote."""
        return self._array(buffer).flatten()

    def show(self, buffer: Buffer) -> Array:
        """The same cells as they lie in the arena, for who looks at them at once."""
        return copies.read_only(self._array(buffer))

    def unpack(self, payload: Array | Loan, buffer: Buffer, regions: Regions) -> None:
        """Write a payload that `pack` made of the same regions, or what was lent of them."""
        array = self._target(buffer, regions)
        if buffer.within is not None:
            array = self._span(buffer, array)
        if isinstance(payload, Loan):
            pairs = self._pair(payload.buffer, payload.strips.array, buffer, array, regions)
            kept = payload.take(partial(_call_each, pairs.calls))
            if self._noted is not None:  # also where the cells were packed this time
                self._noted += pairs.calls
            if kept is not None:
                self._find_unpacking(array, buffer, regions).scatter(kept)
            return
        strips = self._find_unpacking(array, buffer, regions)
        if self._noted is None:
            strips.scatter(payload)
        else:
            self._call(strips.list_scattering(payload))

    def _find_unpacking(self, array: Array, buffer: Buffer, regions: Regions) -> copies.Strips:
        """Where cells lie in the array of a buffer, from its first to its last cell, that payloads are written to."""
        known = self._unpacks.get((id(array), id(regions)))
        if known is None or known.array is not array or known.regions is not regions:
            where = array, buffer.strides, buffer.start, regions
            known = _keep(self._unpacks, copies.Strips.of(*where, copies.unpack_transfers))
        return known

    def find_source(self, payload: Array | Loan) -> Any:
        """What is the same object wherever a payload comes from the same place."""
        return payload.strips if isinstance(payload, Loan) else payload

    def unpack_again(
        self, payload: Array | Loan, source: Any, calls: Sequence[Call], buffer: Buffer, regions: Regions
    ) -> None:
        """Unpack a payload, by calls that were noted where it comes from the place that these copy from."""
        if self.find_source(payload) is not source:
            self.unpack(payload, buffer, regions)
        elif isinstance(payload, Loan):
            kept = payload.take(partial(_call_each, calls))
            if kept is not None:
                self.unpack(kept, buffer, regions)
        else:
            _call_each(calls)

    def copy(self, src: Buffer, dst: Buffer, regions: Regions) -> None:
        """Copy cells between two buffers of this device; nothing where they lie in place."""
        if src.within is not None and src.within.buffer == dst.id:
            return
        source, target = self._span(src, self._array(src)), self._span(dst, self._target(dst, regions))
        pairs = self._pair(src, source, dst, target, regions)
        self._call(pairs.calls)
        self.copied_nbytes += pairs.size * target.itemsize

    def read_host(self, array: Array, buffer: Buffer, regions: Regions, is_lasting: bool) -> int:
        """Write cells of a whole tensor that lies in the host's memory, from there; how many bytes they are.

        A buffer into which nothing else is written is that part of the tensor itself, if it is contiguous there::

            tensor in the host's memory   [ rows of device 0 | rows of device 1 | rows of device 2 ]
            buffer of device 1, id 7                           └─ self._arrays[7]
        """
        if is_lasting and self._read_there(array, buffer, regions):
            return buffer.nbytes
        source = Buffer(-1, buffer.device, buffer.tensor, (0,) * array.ndim, array.shape, buffer.dtype, 0, array.nbytes)
        pairs = self._pair(source, array, buffer, self._span(buffer, self._target(buffer, regions)), regions)
        self._call(pairs.calls)
        return pairs.size * array.itemsize

    def _read_there(self, array: Array, buffer: Buffer, regions: Regions) -> bool:
        """Have a buffer lie where a tensor lies in the host's memory, if its cells do as they would in the arena."""
        known = self._there.get(id(buffer))
        if known is None or known.buffer is not buffer or known.array is not array:
            cells = array[copies.slices_of(regions[0], (0,) * array.ndim)]
            if not (cells.flags.c_contiguous and cells.flags.aligned and cells.dtype == buffer.dtype):
                return False  # BLAS may give a matrix of rows apart other bits, and devices elsewhere have none
            if len(self._there) >= tuning.KEPT_LAUNCHES:
                return False  # none is forgotten that a launch reads
            self._launches.clear()  # before it may have lain elsewhere
            known = self._there[id(buffer)] = Constant(
                buffer, array, copies.read_only(cells.reshape(-1).reshape(buffer.shape))
            )
        self._call([partial(NumpyDevice._lie, proxy(self), buffer, known.cells)])
        return True

    def _lie(self, buffer: Buffer, cells: Array) -> None:
        self._fresh.pop(buffer.id, None)
        self._arrays[buffer.id] = cells

    def _take_back(self, buffer: Buffer) -> None:
        """Have a buffer lie in the arena again, as its cells come from elsewhere in this run."""
        del self._there[id(buffer)]
        self._launches.clear()

    def _pair(self, src: Buffer, source: Array, dst: Buffer, target: Array, regions: Regions) -> copies.Pairs:
        """Where cells of one buffer lie in another one, both in arrays from their first to their last cells."""
        known = self._pairs.get((id(source), id(target), id(regions)))
        if known is None or known.source is not source or known.target is not target or known.regions is not regions:
            where = copies.between, src.strides, src.start, dst.strides, dst.start
            known = copies.Pairs.of(source, target, regions, *where)
            if len(self._pairs) >= tuning.KEPT_LAUNCHES:
                self._pairs.clear()
            self._pairs[id(source), id(target), id(regions)] = known
        return known

    def gather(self, src: Buffer, dst: Buffer, piece: Piece, regions: Regions) -> None:
        """Fill cells of a view's block through one of the view's pieces; nothing where they lie in place."""
        if src.within is not None and src.within.buffer == dst.id:
            return
        target = self._array(dst) if piece.guards else self._target(dst, regions)
        source = target if src.id == dst.id else self._array(src)
        for region in regions:
            read = partial(copies.read_piece, piece, source, src.box, target, dst.start, region)
            self.copied_nbytes += read() * target.itemsize
            if self._noted is not None:
                self._noted.append(read)

    def merge(
        self, monoid: Monoid, attrs: Attrs, parts: Buffers, output: Buffer, regions: Regions, fan_in: int | None
    ) -> None:
        """Merge partial results in the order given, and unwrap the merged state, unless it is a part itself."""
        target = self._target(output, regions)
        if monoid.is_plain and (fan_in is None or len(parts) <= 2):
            self._merge_in_place(getattr(np, monoid.ufunc), parts, output, self._span(output, target), regions)
            return
        where = self._span(output, target), output.strides, output.start, regions
        strips = copies.Strips.of(*where, copies.unpack_transfers)
        is_whole = output.part < 0 or monoid.is_plain
        read = [self.find_strips(part, regions) for part in parts]
        self._call([partial(_merge_apart, monoid, attrs, read, strips, is_whole, fan_in)])

    def _merge_in_place(
        self, ufunc: Any, parts: Sequence[Buffer], output: Buffer, target: Array, regions: Regions
    ) -> None:
        arrays = [target, *(self._span(part, self._array(part)) for part in parts)]
        known = self._merges.get((id(target), id(regions)))
        if known is None or known.regions is not regions or list(map(id, known.arrays)) != list(map(id, arrays)):
            known = Merging.of(arrays, [output, *parts], regions)
            if len(self._merges) >= tuning.KEPT_LAUNCHES:
                self._merges.clear()
            self._merges[id(target), id(regions)] = known
        for mine, first, *others in known.cells:
            if not others:
                self._call([partial(setitem, mine, ..., first)])
            for other in others:  # the first two straight into their place, which saves a pass over it
                self._call([partial(ufunc, first, other, out=mine)])
                first = mine

    def launch(self, op: Op, inputs: Reads, outputs: Writes, shard: Shard, workspace: Buffer | None) -> None:
        """Run an operator's block function on blocks of this device's buffers."""
        known = self._launches.get(id(inputs))
        if known is None or known.inputs is not inputs or known.outputs is not outputs or known.op is not op:
            known = self._launches[id(inputs)] = self._prepare(op, inputs, outputs, shard, workspace)
        if known.untold:
            self._call([partial(self._untold.update, known.untold)])
        if known.overtaken:
            self._call([partial(NumpyDevice.keep_loans, proxy(self), known.overtaken)])
        fresh = self._fresh
        for buffer in known.buffers:
            if buffer.id in fresh:
                self._array(buffer)
        self._call(known.calls or [partial(NumpyDevice._list_and_call, proxy(self), known)])

    def keep_loans(self, numbers: Iterable[int]) -> None:
        """Pack what was lent of some buffers, before others write there, unless it was taken."""
        for number in numbers:
            for loan in self._loans.pop(number, ()):
                loan.keep()

    def _list_and_call(self, known: Launched) -> None:
        """Call what computes a step's blocks, and keep the calls for the next run, unless these are many."""
        calls = []
        for number, call in enumerate(self.list_calls(known)):
            call()
            if number <= tuning.KEPT_CALLS:
                calls.append(call)
        if len(calls) <= tuning.KEPT_CALLS:
            known.calls[:] = calls  # none where one failed

    def list_calls(self, known: Launched) -> Iterable[Call]:
        """The calls that compute a step's blocks, each done before the next one is asked for."""
        overtaken = [k for k in range(len(known.inputs)) if known.overtaken and _is_overtaken(known, k)]
        if all(is_in_place(known.op.block, k) for k in overtaken):
            return list_calls(known.op.block, np, known.read, known.write, known.shard)
        #  Who runs the plan may have passed an operator that does not promise what the plan's did.
        aside, copied = list(known.read), list[Call]()
        for k in overtaken:
            read = known.read[k]
            assert read is not None, "it is read"
            aside[k] = made = np.empty_like(read)
            copied.append(partial(np.copyto, made, read))
        copied += [partial(_poison, out.reshape(-1).view(np.uint8), out) for out in known.write]
        return chain(copied, list_calls(known.op.block, np, aside, known.write, known.shard))

    def _prepare(self, op: Op, inputs: Reads, outputs: Writes, shard: Shard, workspace: Buffer | None) -> Launched:
        """The arrays of a step's blocks."""
        read = tuple(None if item is None else copies.read_only(self._taken(*item)) for item in inputs)
        write = tuple(self._block(*item) for item in outputs)
        scratch = np.empty(0, np.uint8) if workspace is None else self._array(workspace)
        used = [item[0] for item in (*inputs, *outputs) if item is not None]
        used += [] if workspace is None else [workspace]
        written = [] if is_builtin(op, shard.attrs) else [buffer for buffer, _ in outputs]
        hosts = [one.within.buffer for one in written if one.within is not None]
        untold = (*(one.id for one in written), *hosts)
        overtaken = _list_overtaken(inputs, outputs)
        return Launched(op, inputs, outputs, tuple(used), read, write, shard.within(scratch), untold, overtaken, [])

    def _taken(self, buffer: Buffer, box: Box, piece: Piece | None) -> Array:
        """A block that is read: of a view as its cells lie in the buffer."""
        return _find_block(self._array(buffer), buffer, box, piece)

    def foresee(self, buffer: Buffer, box: Box, piece: Piece | None = None) -> Array:
        """Where a block will lie when its buffer has taken its place; of one that stays where it lies."""
        return _find_block(self._find_place(buffer)[0], buffer, box, piece)

    def _block(self, buffer: Buffer, box: Box) -> Array:
        return copies.block_of(self._array(buffer), buffer.start, box)


def _list_overtaken(inputs: Reads, outputs: Writes) -> tuple[int, ...]:
    """The buffers that a step reads in the places where it writes."""
    places = {buffer.over for buffer, _ in outputs if buffer.over is not None}
    read = {item[0] for item in inputs if item is not None}
    return tuple(sorted(one.id for one in read if one.place in places))


def _is_overtaken(known: Launched, k: int) -> bool:
    item = known.inputs[k]
    return item is not None and item[0].id in known.overtaken


def _call_each(calls: Iterable[Call]) -> None:
    for call in calls:
        call()


def _lay(buffer: Buffer, memory: NDArray[np.uint8]) -> tuple[Array, Array]:
    """The array of a buffer in an arena, and all that lies there from its first to its last cell."""
    dtype = np.dtype(buffer.dtype)
    if buffer.within is None:
        array: Array = np.ndarray(buffer.shape, dtype, memory, buffer.offset)
        return array, array
    strides = [step * dtype.itemsize for step in buffer.strides]
    span: Array = np.ndarray((buffer.nbytes // dtype.itemsize,), dtype, memory, buffer.offset)
    return np.ndarray(buffer.shape, dtype, span, 0, strides), span


def _find_block(array: Array, buffer: Buffer, box: Box, piece: Piece | None) -> Array:
    """A block in the array of a buffer, with a piece that of a view."""
    if piece is None:
        return copies.block_of(array, buffer.start, box)
    strides, first = copies.lay_block(buffer, box, piece)
    return copies.strided_view(array, first, box.shape, strides)


def _merge_apart(
    monoid: Monoid,
    attrs: Attrs,
    parts: Sequence[copies.Strips],
    output: copies.Strips,
    is_whole: bool,
    fan_in: int | None,
) -> None:
    """Merge partial results that are packed before, and unwrap the state, unless what is made is a part itself."""
    state = merge_states(monoid, np, [components_of(part.gather()) for part in parts], fan_in)
    dtype = output.array.dtype
    if is_whole:
        merged = np.ascontiguousarray(monoid.unwrap(np, state, attrs), dtype)
    else:
        merged = np.empty(state[0].shape, dtype)
        for component, cells in zip(components_of(merged), state, strict=True):
            component[...] = cells
    output.scatter(merged)


class Merging(NamedTuple):
    """Where the cells of regions lie in an array and in the parts that are merged there."""

    arrays: list[Array]
    """From the first to the last cell of each: the array, then its parts."""
    regions: Regions
    cells: list[list[Array]]
    """By box of cells that lie alike, a view of each array."""

    @classmethod
    def of(cls, arrays: list[Array], buffers: Sequence[Buffer], regions: Regions) -> Merging:
        """Find it from the buffers that the arrays are of."""
        forms = copies.together(tuple((one.strides, one.start) for one in buffers), tuple(regions))
        cells = []
        for origin, digits in forms:
            dims = tuple(n for n, *_ in digits)
            steps = [tuple(digit[1 + form] for digit in digits) for form in range(len(arrays))]
            places = zip(arrays, origin, steps, strict=True)
            cells.append([copies.strided_view(array, first, dims, mine) for array, first, mine in places])
        return cls(arrays, regions, cells)


def _keep(known: dict[tuple[int, int], copies.Strips], strips: copies.Strips) -> copies.Strips:
    """Keep what was found; some steps make their regions anew in every run, so there is an end to it."""
    if len(known) >= tuning.KEPT_LAUNCHES:
        known.clear()
    known[id(strips.array), id(strips.regions)] = strips
    return strips


def _poison(room: NDArray[np.uint8], array: Array) -> None:
    """Fill a buffer's bytes, so that a cell that nothing writes shows."""
    room.fill(tuning.POISON_FLOAT if array.dtype.kind in "fc" else tuning.POISON_OTHER)


def _list_outside(array: Array, buffer: Buffer, tensor_shape: Sequence[int]) -> list[Array]:
    """Views of a buffer's cells outside the tensor, where these are filled."""
    if buffer.fill is None:
        return []
    outside = copies.outside(buffer.shape, buffer.start, tuple(tensor_shape))
    return [copies.strided_view(array, t.dst_offset, t.dims, t.dst_strides) for t in outside]
