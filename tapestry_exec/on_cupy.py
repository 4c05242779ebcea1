"""The CuPy backend: an arena on each GPU, three lanes of work, and raw kernels that move regions.

Each device of the mesh is a logical one: it has its own arena, its own ring for payloads and its own three streams
(in, compute, out), and several may share a GPU; others may be arenas of this process. Work is put into streams and
the host runs ahead. Whatever touches the same bytes in two streams is ordered by events. Nothing is allocated on a
GPU while steps run, but for what block functions ask of CuPy: that comes from a pool of the backend's own.

Not yet run on a GPU: the whole module runs in the tests on simulated devices, which check the order of all accesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from tapestry_exec.cupy_device import CupyDevice, HostDevice, clock_of
from tapestry_exec.gpus import Gpu, RawKernel, Shared
from tapestry_exec.lanes import Lane, Span
from tapestry_exec.on_numpy import aligned_bytes, strided_copies
from tapestry_exec.payloads import Payload, Pinned, cells_of, ring_nbytes
from tapestry_exec.recording import NotRecordable, Recording
from tapestry_exec.strided import packed
from tapestry_exec.trace import Phase
from tapestry_plan import HOST, Fetch, Op, ShardPlan, Spill
from tapestry_sets import Region

Array = NDArray[Any]
Ints = tuple[int, ...]
Regions = Sequence[Region]


class BackendUnavailable(RuntimeError):
    """A backend cannot run here: a package, a driver or a device is missing."""


class NoDevicePath(ValueError):
    """An operator's block function does not run on a GPU."""


class CupyBackend:
    """Runs plans on GPUs through CuPy.

    Parameters
    ----------
    devices : sequence of (int or "cpu"), optional
        For each device of the mesh the GPU that it lies on, or "cpu" for an arena of this process. By default the
        devices of the mesh are dealt out to all GPUs in turn.
    kernels : mapping of str to RawKernel, optional
        Kernels that compute operators, by the operators' names.
    fallback : bool
        Run block functions that need NumPy on the host, with copies there and back; otherwise they are refused.
    blocking : bool
        Wait after each step, so that an error is told of the step that made it.
    capture : bool
        Record a plan's second run as a graph of the driver, and launch that from then on, without the host's work for
        each step. Plans that spill, that run blocks on the host, or whose blocks wait for values on the host, as
        `gather` does to check its indices, are not recorded. Inputs may be others each time, constants must stay.
        Blocks of one's own must not bring arrays of NumPy to the GPU then (``xp.asarray(table)``): a graph would read
        them again from memory that is no longer theirs, without an error.
    cupy : module, optional
        What stands in for CuPy.

    Raises
    ------
    BackendUnavailable
        When CuPy, its driver or a device is missing; when a plan is run, before its first step.

    Notes
    -----
    Not yet run on a GPU.
    """

    name = "cupy"

    def __init__(
        self,
        devices: Sequence[int | Literal["cpu"]] | None = None,
        *,
        kernels: Mapping[str, RawKernel] | None = None,
        fallback: bool = False,
        blocking: bool = False,
        capture: bool = False,
        cupy: Any = None,
    ) -> None:
        self._asked = _checked_devices(devices)
        self.kernels = dict(kernels or {})
        for name, kernel in self.kernels.items():
            if not isinstance(kernel, RawKernel):
                raise TypeError(f"CupyBackend: kernels[{name!r}] is {type(kernel).__name__}; it must be a RawKernel")
        self.fallback, self.blocking, self.capture = bool(fallback), bool(blocking), bool(capture)
        self._recordings: dict[int, Recording | None] = {}
        """By the identity of a plan that lives: its recording, None before it has one."""
        self._unrecordable: set[int] = set()
        """Plans of which a run failed while it was recorded."""
        self._to_record: Mapping[str, Array] | None = None
        self._recording: Recording | None = None
        self._is_recording = False
        """Until its run was remembered, or has failed."""
        self._given = cupy
        self._gpus: dict[int, Gpu] = {}
        self._pinned = Pinned()
        self._pool: Any = None
        self._kept: list[CupyDevice | HostDevice] = []
        self._devices: list[CupyDevice | HostDevice] = []
        self._stack = ExitStack()
        self.spans: list[Span] | None = None
        """Operations in lanes in the order in which they were put there, from `start_clocks` on."""
        self._roles: dict[Lane, tuple[int, str]] = {}
        self._clocks: dict[int, tuple[Any, float]] = {}
        self._shared: Shared | None = None

    # -- what is there -----------------------------------------------------------------------------------

    @property
    def cupy(self) -> Any:
        """The array library, imported when it is needed first."""
        if self._given is None:
            self._given = _import_cupy()
        return self._given

    def gpus_of(self, size: int) -> list[int]:
        """For each device of a mesh of this size its GPU, or HOST.

        Raises
        ------
        BackendUnavailable
            When there is no driver, no GPU, or not the one asked for.
        ValueError
            When devices are given, but not as many as the mesh has.
        """
        count = _gpu_count(self.cupy)
        if self._asked is None:
            if not count:
                raise BackendUnavailable("there is no GPU on this machine; run with backend='numpy'")
            return [device % count for device in range(size)]
        if len(self._asked) != size:
            raise ValueError(
                f"CupyBackend: {len(self._asked)} devices are given, the plan's mesh has {size}; name one for each"
            )
        for device, gpu in enumerate(self._asked):
            if gpu >= count:
                there = f"GPUs 0 to {count - 1}" if count else "no GPU"
                raise BackendUnavailable(
                    f"device {device} of the mesh is to lie on GPU {gpu}; this machine has {there}: give others"
                )
        return list(self._asked)

    def check(self, ops: Iterable[Op]) -> None:
        """Refuse, before the first step, operators that do not run on a GPU, and kernels that do not compile.

        Raises
        ------
        NoDevicePath
            Naming the operators.
        """
        if self.fallback or (self._asked is not None and all(gpu == HOST for gpu in self._asked)):
            return
        without = sorted({op.name for op in ops if op.host_only and op.name not in self.kernels})
        if without:
            raise NoDevicePath(
                f"operators {without} have block functions that need NumPy; attach a kernel to them, or let them run "
                "on the host with CupyBackend(fallback=True)"
            )

    # -- the protocol ------------------------------------------------------------------------------------

    def recorded(self, plan: ShardPlan, host: Mapping[str, Array]) -> Recording | None:
        """A plan's recording; without one, its first run is a plain one, its second one is recorded."""
        self._to_record, self._is_recording = None, False
        if not self.capture or self.fallback or HOST in (self._asked or ()):
            return None
        if id(plan) in self._unrecordable or any(isinstance(step, Spill | Fetch) for step in plan.steps):
            return None
        if id(plan) not in self._recordings:
            self._recordings[id(plan)] = None
            finalize(plan, self._recordings.pop, id(plan), None)
            return None
        found = self._recordings[id(plan)]
        if found is None:
            self._to_record = host
        return found

    def forget(self, plan: ShardPlan, error: BaseException | None) -> bool:
        """Whether a run failed since it was recorded: by what the driver refuses then. The plan is recorded no more."""
        if not self._is_recording:
            return False
        if not isinstance(error, (self.cupy.cuda.runtime.CUDARuntimeError, NotRecordable)):
            return False
        self._is_recording = False
        self._unrecordable.add(id(plan))
        finalize(plan, self._unrecordable.discard, id(plan))
        return True

    def remember(self, plan: ShardPlan, result: Any) -> None:
        """Keep the recording of the run that just ended, with what it took."""
        if self._recording is not None:
            self._recording.result = result
            self._recordings[id(plan)] = self._recording
            self._recording, self._is_recording = None, False

    def open(self, nbytes: Sequence[int], payload_nbytes: Sequence[int] = ()) -> list[CupyDevice | HostDevice]:
        """One device for each arena size, in bytes; the largest payload that each sends or gets, in bytes."""
        gpus = self.gpus_of(len(nbytes))
        largest = [*payload_nbytes, *nbytes[len(payload_nbytes) :]]
        for number in sorted(set(gpus) - {HOST}):
            if number not in self._gpus:
                self._gpus[number] = Gpu(self.cupy, number)
            self._gpus[number].prepare(self.kernels.values())
        if self._pool is None:
            self._pool = self.cupy.cuda.MemoryPool()
        kept, self._kept = self._kept, []
        self._check_memory(gpus, nbytes, largest, kept)
        self._pinned.reserve(self.cupy, max(largest, default=0))
        shared = self._shared = self._shared or Shared(self.cupy, self.kernels, self.blocking)
        opened: list[CupyDevice | HostDevice] = []
        for k, (gpu, size, payload) in enumerate(zip(gpus, nbytes, largest, strict=True)):
            before = kept[k] if k < len(kept) else None
            if gpu == HOST:
                opened.append(HostDevice(_host_memory(before, size)))
            elif isinstance(before, CupyDevice) and before.fits(gpu, size, payload):
                opened.append(before.again())
            else:
                opened.append(CupyDevice(shared, self._gpus[gpu], k, size, payload))
        self._devices, self.spans = opened, None
        self._begin()
        return opened

    def close(self, devices: Sequence[CupyDevice | HostDevice]) -> None:
        """Take the devices back: their memory is kept for the next run."""
        try:
            self._leave()
            if self._recording is not None and not self._recording.is_whole:
                self._recording.abandon()
                self._recording = None
            self.synchronize()
        finally:
            self._stack.close()
            if self._shared is not None:
                self._shared.current.forget()
        self._kept = list(devices)

    def place(self, array: Array, regions: Regions) -> Payload:
        """Pack cells of a host array into pinned memory."""
        if self._recording is not None:
            made = self._pinned.of(self._recording, sum(region.size for region in regions), array.dtype)
            self._recording.place(array, regions, cells_of(made))
            return made
        cells = self._pinned.take(sum(region.size for region in regions), array.dtype)
        self._touch(cells, True)
        copies = strided_copies(packed, array.itemsize, array.shape, (0,) * array.ndim, tuple(regions))
        copies.carry(np.asarray(array, order="C"), cells_of(cells))
        return cells

    def move(self, payload: Any, src: int, dst: int) -> Any:
        """Bring a payload to where device `dst` can unpack it."""
        source, target = self._devices[src], self._devices[dst]
        if isinstance(target, HostDevice):
            return payload if isinstance(source, HostDevice) else self._read(payload)
        if isinstance(source, HostDevice):
            pinned = self._pinned.take(payload.size, payload.dtype)
            self._touch(pinned, True)
            cells_of(pinned)[...] = payload
            return pinned
        return payload if source.gpu is target.gpu else target.receive(payload)

    def fetch(self, payload: Any) -> Array:
        """A packed payload as a host array of its own; of a run that is recorded, to be read after `arrive`."""
        if self._recording is not None:
            cells = cells_of(self._to_host(payload))
            self._recording.fetch(cells)
            return cells
        return np.array(cells_of(self._read(payload)) if isinstance(payload, Payload) else payload)

    def synchronize(self) -> None:
        """Wait until everything in all lanes is done; while a run is recorded nothing is done yet."""
        if self._recording is None:
            for lane in self._lanes():
                lane.stream.synchronize()

    def start_clocks(self) -> None:
        """Let all lanes note their operations; each device counts from an event of its own, here."""
        self.spans, self._roles, self._clocks = [], {}, {}
        for device in self._devices:
            if isinstance(device, CupyDevice):
                self._clocks[device.number] = clock_of(device.compute)
                for lane, kind in zip(device.lanes, ("unpack", "compute", "pack"), strict=True):
                    lane.spans, self._roles[lane] = self.spans, (device.number, kind)

    def times(self, begin: float) -> list[Phase]:
        """When the operations in `spans` ran, in seconds since a time of the host's; all of them must be done."""
        elapsed, found = self.cupy.cuda.get_elapsed_time, []
        for lane, *events in self.spans or ():
            device, kind = self._roles[lane]
            first, at = self._clocks[device]
            start, stop = (elapsed(first, event) / 1e3 for event in events)
            found.append(Phase(kind, device, max(start + at - begin, 0.0), stop - start))
        return found

    def arrive(self) -> None:
        """Have what was fetched: run what was recorded."""
        if self._recording is not None:
            self._leave()
            self._recording.end()
            self._recording.launch()

    # -- its own ------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        for device in self._devices:
            if isinstance(device, CupyDevice):
                device.leave()

    def _lanes(self) -> list[Lane]:
        return [lane for device in self._devices if isinstance(device, CupyDevice) for lane in device.lanes]

    def _begin(self) -> None:
        """Take the array library's current device, streams and allocator over, until the devices are closed."""
        cuda = self.cupy.cuda
        self._stack.close()
        before = cuda.Device()
        for gpu in self._gpus.values():
            with gpu.device:
                self._stack.callback(_use, gpu.device, cuda.get_current_stream(gpu.number))
        self._stack.callback(before.use)
        pool = self._pool
        if self._to_record is not None:
            self._recording = Recording(self.cupy, self._lanes(), self._to_record, list(self._devices))
            self._is_recording = True
            self._to_record, pool = None, self._recording.pool
        self._stack.enter_context(cuda.using_allocator(pool.malloc))
        if self._recording is not None:
            self._recording.begin()

    def _check_memory(self, gpus: Sequence[int], nbytes: Sequence[int], largest: Sequence[int], kept: Any) -> None:
        """Raise before anything is allocated where a GPU has not the memory."""
        for number in set(gpus) - {HOST}:
            wanted = 0
            for k, gpu in enumerate(gpus):
                before = kept[k] if k < len(kept) else None
                if gpu == number and not (isinstance(before, CupyDevice) and before.fits(gpu, nbytes[k], largest[k])):
                    wanted += nbytes[k] + ring_nbytes(largest[k])
            with self._gpus[number].device:
                free, total = self.cupy.cuda.runtime.memGetInfo()
            if wanted > free:
                raise BackendUnavailable(
                    f"GPU {number} has {free:,} B free of {total:,} B, the arenas and rings on it need {wanted:,} B; "
                    "plan for more GPUs, or run with memory= so that buffers spill to the host"
                )

    def _read(self, payload: Payload) -> Payload:
        """A payload in pinned memory, which the host is about to read."""
        here = self._to_host(payload)
        self._touch(here, False)
        return here

    def _touch(self, payload: Payload, write: bool) -> None:
        """Tell a checker, if there is one, that the host reads or writes pinned memory."""
        told = getattr(self.cupy, "mark_host", None)
        if told is not None and payload.nbytes:
            told(payload.address, payload.nbytes, write)

    def _to_host(self, payload: Payload) -> Payload:
        """A payload in pinned memory, which the host may read."""
        if payload.gpu == HOST:
            return payload
        lane, shared = payload.lane, self._shared
        assert lane is not None and shared is not None, "a payload on a GPU was packed by a device"
        size = payload.nbytes // payload.dtype.itemsize
        recording = self._recording
        pinned = (
            self._pinned.take(size, payload.dtype)
            if recording is None
            else self._pinned.of(recording, size, payload.dtype)
        )
        lane.after(payload.uses.writes)
        shared.current.enter(self._gpus[payload.gpu], lane)
        runtime = self.cupy.cuda.runtime
        runtime.memcpyAsync(
            pinned.address, payload.address, payload.nbytes, runtime.memcpyDeviceToHost, lane.stream.ptr
        )
        mark = lane.mark()
        payload.uses.read(mark)
        if recording is None:
            mark.event.synchronize()
        return pinned


def _use(device: Any, stream: Any) -> None:
    device.use()
    stream.use()


def _import_cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise BackendUnavailable(
            f"backend 'cupy' needs CuPy, which cannot be imported ({error}); install tapestry[cuda13] or "
            "tapestry[cuda12], or run with backend='numpy'"
        ) from error
    return cupy


def _gpu_count(cupy: Any) -> int:
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendUnavailable(
            f"CuPy is there, but no GPU can be used: {error}; install NVIDIA's driver, or run with backend='numpy'"
        ) from error


def _checked_devices(devices: Any) -> list[int] | None:
    if devices is None:
        return None
    if isinstance(devices, str | bytes) or not isinstance(devices, Sequence):
        raise TypeError(f"CupyBackend: devices is {devices!r}; give a sequence of GPU numbers and 'cpu'")
    found = []
    for place, device in enumerate(devices):
        if device == "cpu" and isinstance(device, str):
            found.append(HOST)
        elif isinstance(device, bool) or not isinstance(device, int) or device < 0:
            raise ValueError(f"CupyBackend: devices[{place}] is {device!r}; give a GPU's number, from 0, or 'cpu'")
        else:
            found.append(device)
    return found


def _host_memory(before: Any, nbytes: int) -> NDArray[np.uint8]:
    if isinstance(before, HostDevice) and before.memory.nbytes >= nbytes:
        return before.memory
    return aligned_bytes(nbytes)
