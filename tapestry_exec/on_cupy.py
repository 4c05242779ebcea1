"""The CuPy backend: an arena on each GPU, three lanes of work, and raw kernels that move regions.

Each device of the mesh is a logical one: it has its own arena, its own ring for payloads and its own three streams
(in, compute, out), and several may share a GPU; others may be arenas of this process. Work is put into streams and
the host runs ahead. Whatever touches the same bytes in two streams is ordered by events. Nothing is allocated on a
GPU while steps run, but for what block functions ask of CuPy: that comes from a pool of the backend's own.

Not yet run on a GPU: the whole module runs in the tests on simulated devices, which check the order of all accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from math import prod
from time import perf_counter
from typing import Any, Literal
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from tapestry_exec import kernels
from tapestry_exec.device_paths import merging, way_of
from tapestry_exec.kernels import Launch
from tapestry_exec.lanes import Ground, Lane, Mark, Ring, Span, Uses
from tapestry_exec.on_numpy import POISON_FLOAT, POISON_OTHER, NumpyDevice, aligned_bytes, index_pairs, strided_copies
from tapestry_exec.recording import Recording
from tapestry_exec.strided import Transfer, between, filled, outside, packed, row_major, through, together, unpacked
from tapestry_exec.trace import Phase
from tapestry_plan import HOST, Buffer, Fetch, Monoid, Op, Shard, ShardPlan, Spill, aligned, components_of, merged
from tapestry_sets import Box, Piece, Region

Array = NDArray[Any]
Ints = tuple[int, ...]
Regions = Sequence[Region]

DIRECT_NBYTES = 64 * 1024
"""From so many contiguous bytes on, cells are moved as they lie, without being packed first."""
RING_NBYTES = 32 * 1024 * 1024
"""A ring for payloads holds so much at least, if what is ever moved is not less."""
MAX_TABLE_NBYTES = 256 * 1024 * 1024
"""Index tables of views that are no strided copies are kept on a GPU up to so many bytes."""


CLOCK_TRIES = 8
"""How often a device's clock is compared with the host's."""


class BackendUnavailable(RuntimeError):
    """A backend cannot run here: a package, a driver or a device is missing."""


class KernelError(ValueError):
    """A raw kernel does not compile."""


class NoDevicePath(ValueError):
    """An operator's block function does not run on a GPU."""


@dataclass(frozen=True)
class RawKernel:
    """A raw kernel that computes an operator's shards in the place of its block function.

    Parameters
    ----------
    source : str
        CUDA C++.
    entry : str
        Name of the kernel, declared ``extern "C" __global__``.
    launch : callable
        ``(inputs, outputs, shard) -> (grid, block, args)`` or None, where this kernel does not apply and the block
        function runs. Inputs and outputs are the device arrays of the blocks, perhaps strided; args may hold device
        arrays, which reach the kernel as pointers to their first cells, and NumPy scalars.
    options : tuple of str
        For the compiler.

    Notes
    -----
    Not yet run on a GPU.
    """

    source: str
    entry: str
    launch: Callable[[Sequence[Any], Sequence[Any], Shard], tuple[Ints, Ints, tuple[Any, ...]] | None]
    options: tuple[str, ...] = ("-std=c++17",)

    def __post_init__(self) -> None:
        if not isinstance(self.source, str) or not isinstance(self.entry, str) or not callable(self.launch):
            raise TypeError(
                "RawKernel: source and entry must be text and launch a function of (inputs, outputs, shard); "
                f"they are {type(self.source).__name__}, {type(self.entry).__name__}, {type(self.launch).__name__}"
            )


@dataclass
class Payload:
    """Packed cells on their way: where they lie, and who uses the memory.

    Parameters
    ----------
    address, nbytes : int
    dtype : dtype
    gpu : int
        The GPU's number, or HOST for pinned memory.
    uses : Uses
    cells : array, optional
        Of a payload in host memory, the cells.
    device : CupyDevice, optional
        Who packed it.
    """

    address: int
    nbytes: int
    dtype: np.dtype[Any]
    gpu: int
    uses: Uses
    cells: Array | None = None
    device: CupyDevice | None = None


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
        self._pinned = Pinned(self)
        self._pool: Any = None
        self._kept: list[CupyDevice | HostDevice] = []
        self._devices: list[CupyDevice | HostDevice] = []
        self._stack = ExitStack()
        self.spans: list[Span] | None = None
        """Operations in lanes in the order in which they were put there, from `start_clocks` on."""
        self._roles: dict[Lane, tuple[int, str]] = {}
        self._clocks: dict[int, tuple[Any, float]] = {}
        self._at: tuple[int, Lane] | None = None

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

    def forget(self, plan: ShardPlan) -> bool:
        """Do not record a plan again whose run failed while it was recorded; whether that was so."""
        if not self._is_recording:
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
                self._gpus[number] = Gpu(self, number)
            self._gpus[number].prepare(self.kernels.values())
        if self._pool is None:
            self._pool = self.cupy.cuda.MemoryPool()
        kept, self._kept = self._kept, []
        self._check_memory(gpus, nbytes, largest, kept)
        self._pinned.reserve(max(largest, default=0))
        opened: list[CupyDevice | HostDevice] = []
        for k, (gpu, size, payload) in enumerate(zip(gpus, nbytes, largest, strict=True)):
            before = kept[k] if k < len(kept) else None
            if gpu == HOST:
                opened.append(HostDevice(_host_memory(before, size)))
            elif isinstance(before, CupyDevice) and before.fits(gpu, size, payload):
                opened.append(before.again())
            else:
                opened.append(CupyDevice(self, self._gpus[gpu], k, size, payload))
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
            self._at = None
        self._kept = list(devices)

    def place(self, array: Array, regions: Regions) -> Payload:
        """Pack cells of a host array into pinned memory."""
        if self._recording is not None:
            made = self._pinned.of(self._recording, sum(region.size for region in regions), array.dtype)
            self._recording.place(array, regions, _cells_of(made))
            return made
        cells = self._pinned.take(sum(region.size for region in regions), array.dtype)
        self._touch(cells, True)
        copies = strided_copies(packed, array.itemsize, array.shape, (0,) * array.ndim, tuple(regions))
        copies.carry(np.asarray(array, order="C"), _cells_of(cells))
        return cells

    def move(self, payload: Any, src: int, dst: int) -> Any:
        """Bring a payload to where device `dst` can unpack it."""
        source, target = self._devices[src], self._devices[dst]
        if isinstance(target, HostDevice):
            return payload if isinstance(source, HostDevice) else self._read(payload)
        if isinstance(source, HostDevice):
            pinned = self._pinned.take(payload.size, payload.dtype)
            self._touch(pinned, True)
            _cells_of(pinned)[...] = payload
            return pinned
        return payload if source.gpu is target.gpu else target.receive(payload)

    def fetch(self, payload: Any) -> Array:
        """A packed payload as a host array of its own; of a run that is recorded, to be read after `arrive`."""
        if self._recording is not None:
            cells = _cells_of(self._to_host(payload))
            self._recording.fetch(cells)
            return cells
        return np.array(_cells_of(self._read(payload)) if isinstance(payload, Payload) else payload)

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
                self._clocks[device.number] = _clock(device.compute)
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

    def enter(self, gpu: Gpu, lane: Lane) -> None:
        """Make a GPU and a lane's stream the current ones."""
        if self._at != (gpu.number, lane):
            gpu.device.use()
            lane.stream.use()
            self._at = gpu.number, lane

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
                    wanted += nbytes[k] + _ring_nbytes(largest[k])
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
        device = payload.device
        assert device is not None, "a payload on a GPU was packed by a device"
        size = payload.nbytes // payload.dtype.itemsize
        recording = self._recording
        pinned = (
            self._pinned.take(size, payload.dtype)
            if recording is None
            else self._pinned.of(recording, size, payload.dtype)
        )
        lane = device.out
        lane.after(payload.uses.writes)
        self.enter(device.gpu, lane)
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


class Gpu:
    """One GPU and the kernels that are compiled for it."""

    def __init__(self, backend: CupyBackend, number: int) -> None:
        self.number, self._cupy = number, backend.cupy
        self.device = backend.cupy.cuda.Device(number)
        self._modules: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._functions: dict[tuple[str, str], Any] = {}

    def prepare(self, attached: Iterable[RawKernel]) -> None:
        """Compile what is not compiled yet.

        Raises
        ------
        KernelError
            With the compiler's log, which names the line.
        """
        self._module(kernels.SOURCE, kernels.OPTIONS, "tapestry's kernels")
        for kernel in attached:
            self._module(kernel.source, kernel.options, f"the kernel {kernel.entry!r}")
            self.function(kernel.entry, kernel.source, kernel.options)

    def function(self, entry: str, source: str = kernels.SOURCE, options: tuple[str, ...] = kernels.OPTIONS) -> Any:
        """A kernel that can be launched."""
        found = self._functions.get((entry, source))
        if found is None:
            try:
                found = self._module(source, options, entry).get_function(entry)
            except (AttributeError, KeyError, ValueError, RuntimeError) as error:
                raise KernelError(f"there is no kernel {entry!r} in its source: {error}") from error
            self._functions[entry, source] = found
        return found

    def _module(self, source: str, options: tuple[str, ...], what: str) -> Any:
        key = source, options
        if key not in self._modules:
            with self.device:
                module = self._cupy.RawModule(code=source, options=options)
                try:
                    module.compile()
                except self._cupy.cuda.compiler.CompileException as error:
                    raise KernelError(f"{what} does not compile for GPU {self.number}: {error}") from error
            self._modules[key] = module
        return self._modules[key]


class Pinned:
    """A ring of pinned memory, through which cells go between host and GPUs."""

    def __init__(self, backend: CupyBackend) -> None:
        self._backend = backend
        self._ring = Ring(0)
        self._bytes: Array = np.empty(0, np.uint8)
        self._memory: Any = None

    def reserve(self, payload_nbytes: int) -> None:
        """Have room for payloads of so many bytes; nothing may be on its way."""
        wanted = _ring_nbytes(payload_nbytes)
        self._ring.restart()
        if wanted <= self._ring.nbytes:
            return
        self._memory = self._backend.cupy.cuda.alloc_pinned_memory(wanted)
        self._bytes = np.frombuffer(self._memory, np.uint8, wanted)
        self._ring = Ring(wanted)

    def take(self, size: int, dtype: np.dtype[Any]) -> Payload:
        """Room for so many cells that nobody uses any more."""
        nbytes = size * dtype.itemsize
        slot = self._ring.take(nbytes)
        for mark in slot.uses.all:
            mark.event.synchronize()
        cells = self._bytes[slot.offset : slot.offset + nbytes].view(dtype)
        return Payload(self._memory.ptr + slot.offset, nbytes, dtype, HOST, slot.uses, cells)

    def of(self, recording: Recording, size: int, dtype: np.dtype[Any]) -> Payload:
        """Room that belongs to a recording."""
        address, cells = recording.pinned(size, dtype)
        return Payload(address, cells.nbytes, dtype, HOST, Uses(), cells)


@dataclass
class Block:
    """A buffer in its arena: where its first cell is, who uses it, and the tensor's shape until it is used first."""

    buffer: Buffer
    address: int
    uses: Uses
    fresh: Ints | None
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = np.dtype(self.buffer.dtype)


class States:
    """An array of states on a GPU: its components, by name, each a strided array."""

    def __init__(self, dtype: np.dtype[Any], components: Mapping[str, Any]) -> None:
        self.dtype, self._components = dtype, components

    def __getitem__(self, name: str) -> Any:
        return self._components[name]

    @property
    def shape(self) -> Ints:
        """Of each component."""
        shape: Ints = next(iter(self._components.values())).shape
        return shape


class HostDevice(NumpyDevice):
    """A device of the mesh that is an arena of this process beside GPUs."""

    def unpack(self, payload: Any, buffer: Buffer, regions: Regions) -> None:
        super().unpack(_cells_of(payload) if isinstance(payload, Payload) else payload, buffer, regions)


class CupyDevice:
    """One device of the mesh on a GPU.

    Parameters
    ----------
    backend : CupyBackend
    gpu : Gpu
    number : int
        In the mesh.
    nbytes, payload_nbytes : int
        Of the arena, and of the largest payload.
    """

    def __init__(self, backend: CupyBackend, gpu: Gpu, number: int, nbytes: int, payload_nbytes: int) -> None:
        self.backend, self.gpu, self.number = backend, gpu, number
        self.nbytes = nbytes
        cuda = backend.cupy.cuda

        def lane(name: str) -> Lane:
            return Lane(f"device {number}, {name}", cuda.Stream(non_blocking=True), _event_of(gpu.device, cuda))

        with gpu.device:
            self._arena = cuda.MemoryPointer(cuda.Memory(max(nbytes, 1)), 0)
            self._ring_memory = cuda.MemoryPointer(cuda.Memory(_ring_nbytes(payload_nbytes)), 0)
            self.incoming, self.compute, self.out = lane("in"), lane("compute"), lane("out")
        self.lanes = self.incoming, self.compute, self.out
        self._ring = Ring(_ring_nbytes(payload_nbytes))
        self._tables: dict[Any, list[tuple[Any, Any]]] = {}
        self._tables_nbytes = 0
        self._told = getattr(backend.cupy, "mark_block", None)
        self._blocks: dict[int, Block] = {}
        self.again()

    def fits(self, gpu: int, nbytes: int, payload_nbytes: int) -> bool:
        """Whether it can be used again for an arena and payloads of these sizes on that GPU."""
        return self.gpu.number == gpu and nbytes <= self.nbytes and _ring_nbytes(payload_nbytes) <= self._ring.nbytes

    def again(self) -> CupyDevice:
        """Begin anew on the same memory; nothing may be on its way."""
        self.peak_nbytes = 0
        self._ground = Ground()
        self._ring.restart()
        for lane in self.lanes:
            lane.restart()
        return self

    def leave(self) -> None:
        """Give up all buffers that are left."""
        for block in self._blocks.values():
            self._tell(block, False)
        self._blocks.clear()

    # -- the protocol ------------------------------------------------------------------------------------

    def alloc(self, buffer: Buffer, tensor_shape: Sequence[int]) -> None:
        """Take a buffer's place: its cells are poisoned, those outside the tensor get the buffer's fill."""
        stop = buffer.offset + aligned(buffer.nbytes)
        self.peak_nbytes = max(self.peak_nbytes, stop)
        uses = Uses(self._ground.take(buffer.offset, stop))
        made = Block(buffer, self._arena.ptr + buffer.offset, uses, tuple(tensor_shape))
        self._tell(made, True)
        self._blocks[buffer.id] = made

    def free(self, buffer: Buffer) -> None:
        """Give a buffer's place back; whoever takes it waits for those who still use it."""
        block = self._blocks.pop(buffer.id)
        self._ground.leave(buffer.offset, buffer.offset + aligned(buffer.nbytes), block.uses)
        self._tell(block, False)

    def pack(self, buffer: Buffer, regions: Regions) -> Payload:
        """The regions' cells, each region row-major, as one payload; as they lie where that is contiguous."""
        block, lane = self._ready(buffer, self.out), self.out
        transfers = packed(buffer.shape, buffer.start, tuple(regions))
        size, itemsize = sum(t.size for t in transfers), block.dtype.itemsize
        at = _run_of(transfers, size, "src")
        if at is not None and size * itemsize >= DIRECT_NBYTES:
            return Payload(
                block.address + at * itemsize, size * itemsize, block.dtype, self.gpu.number, block.uses, device=self
            )
        slot = self._ring.take(size * itemsize)
        lane.after([*block.uses.writes, *slot.uses.all])
        address = self._ring_memory.ptr + slot.offset
        self._launch(lane, kernels.copies(transfers, itemsize, block.address, address))
        mark = self._done(lane)
        block.uses.read(mark)
        slot.uses.wrote(mark)
        return Payload(address, size * itemsize, block.dtype, self.gpu.number, slot.uses, device=self)

    def unpack(self, payload: Any, buffer: Buffer, regions: Regions) -> None:
        """Write a payload that `pack` made of the same regions."""
        lane = self.incoming
        block = self._target(buffer, regions, lane)
        transfers = unpacked(buffer.shape, buffer.start, tuple(regions))
        size, itemsize = sum(t.size for t in transfers), block.dtype.itemsize
        if payload.nbytes != size * itemsize:
            raise ValueError(f"unpack: the payload has {payload.nbytes:,} B, the regions have {size * itemsize:,} B")
        at = _run_of(transfers, size, "dst")
        if payload.gpu == HOST and at is None:
            payload = self._upload(payload)
        lane.after([*block.uses.all, *payload.uses.writes])
        if at is not None:
            self._memcpy(lane, block.address + at * itemsize, payload)
        else:
            self._launch(lane, kernels.copies(transfers, itemsize, payload.address, block.address))
        mark = self._done(lane)
        block.uses.wrote(mark)
        payload.uses.read(mark)

    def copy(self, src: Buffer, dst: Buffer, regions: Regions) -> None:
        """Copy cells between two buffers of this device."""
        transfers = between(src.shape, src.start, dst.shape, dst.start, tuple(regions))
        self._copy(src, self._target(dst, regions, self.compute), transfers)

    def gather(self, src: Buffer, dst: Buffer, piece: Piece, regions: Regions) -> None:
        """Fill cells of a view's block through one of the view's pieces."""
        lane, cells = self.compute, tuple(regions)
        target = self._ready(dst, lane) if piece.guards else self._target(dst, regions, lane)
        if piece.fill is None:
            transfers = through(piece, src.box, dst.box, cells)
        else:
            transfers = filled(piece, dst.box, cells)
        if transfers is None:
            self._by_tables(piece, src, target, cells)
        elif piece.fill is not None:
            lane.after(target.uses.all)
            self._launch(lane, _fills(transfers, target.dtype, piece.fill, target.address))
            target.uses.wrote(self._done(lane))
        else:
            self._copy(src, target, transfers)

    def merge(
        self,
        monoid: Monoid,
        attrs: Mapping[str, Any],
        parts: Sequence[Buffer],
        output: Buffer,
        regions: Regions,
        fan_in: int | None,
    ) -> None:
        """Merge partial results in the order given, and unwrap what comes out."""
        lane = self.compute
        read = [self._ready(part, lane) for part in parts]
        target = self._target(output, regions, lane)
        lane.after([mark for block in read for mark in block.uses.writes])
        lane.after(target.uses.all)
        self._merge(monoid, attrs, read, target, regions, fan_in)
        mark = self._done(lane)
        for block in read:
            block.uses.read(mark)
        target.uses.wrote(mark)

    def launch(
        self,
        op: Op,
        inputs: Sequence[tuple[Buffer, Box] | None],
        outputs: Sequence[tuple[Buffer, Box]],
        shard: Shard,
        workspace: Buffer | None,
    ) -> None:
        """Run an operator's kernel, or its block function, on blocks of this device's buffers."""
        lane = self.compute
        read = [None if item is None else self._ready(item[0], lane) for item in inputs]
        write = [self._ready(item[0], lane) for item in outputs]
        scratch = None if workspace is None else self._ready(workspace, lane)
        held = [block for block in read if block is not None]
        written = write if scratch is None else [*write, scratch]
        lane.after([mark for block in held for mark in block.uses.writes])
        lane.after([mark for block in written for mark in block.uses.all])
        self.backend.enter(self.gpu, lane)
        given = [
            None if item is None or block is None else self._view(block, item[1])
            for item, block in zip(inputs, read, strict=True)
        ]
        made = [self._view(block, box) for block, (_, box) in zip(write, outputs, strict=True)]
        room = self.backend.cupy.empty(0, np.uint8) if scratch is None else self._whole(scratch)
        told = Shard(shard.index, shard.signature, shard.attrs, shard.input_boxes, shard.output_boxes, room)
        self._run(op, given, made, told)
        mark = self._done(lane)
        for block in held:
            block.uses.read(mark)
        for block in written:
            block.uses.wrote(mark)

    # -- its own -----------------------------------------------------------------------------------------

    def _tell(self, block: Block, live: bool) -> None:
        """Tell a checker, if there is one, which bytes of the arena are a buffer's."""
        if self._told is not None and block.buffer.nbytes:
            buffer = block.buffer
            self._told(block.address, buffer.nbytes, f"{buffer.id} ({buffer.tensor})", live)

    def receive(self, payload: Payload) -> Payload:
        """Bring a payload from another GPU into this one's ring."""
        lane, slot = self.incoming, self._ring.take(payload.nbytes)
        lane.after([*slot.uses.all, *payload.uses.writes])
        self.backend.enter(self.gpu, lane)
        address = self._ring_memory.ptr + slot.offset
        self.backend.cupy.cuda.runtime.memcpyPeerAsync(
            address, self.gpu.number, payload.address, payload.gpu, payload.nbytes, lane.stream.ptr
        )
        mark = self._done(lane)
        slot.uses.wrote(mark)
        payload.uses.read(mark)
        return Payload(address, payload.nbytes, payload.dtype, self.gpu.number, slot.uses, device=self)

    def _upload(self, payload: Payload) -> Payload:
        """Bring a payload from pinned memory into the ring."""
        lane, slot = self.incoming, self._ring.take(payload.nbytes)
        lane.after([*slot.uses.all, *payload.uses.writes])
        address = self._ring_memory.ptr + slot.offset
        self._memcpy(lane, address, payload)
        mark = lane.mark()
        slot.uses.wrote(mark)
        payload.uses.read(mark)
        return Payload(address, payload.nbytes, payload.dtype, self.gpu.number, slot.uses, device=self)

    def _memcpy(self, lane: Lane, address: int, payload: Payload) -> None:
        self.backend.enter(self.gpu, lane)
        runtime = self.backend.cupy.cuda.runtime
        kind = runtime.memcpyHostToDevice if payload.gpu == HOST else runtime.memcpyDeviceToDevice
        if payload.nbytes:
            runtime.memcpyAsync(address, payload.address, payload.nbytes, kind, lane.stream.ptr)

    def _launch(self, lane: Lane, launches: Iterable[Launch]) -> None:
        self.backend.enter(self.gpu, lane)
        for launch in launches:
            self.gpu.function(launch.entry)(launch.grid, launch.block, launch.args, shared_mem=launch.shared_nbytes)

    def _done(self, lane: Lane) -> Mark:
        if self.backend.blocking:
            lane.stream.synchronize()
        return lane.mark()

    def _ready(self, buffer: Buffer, lane: Lane) -> Block:
        """A buffer's block, poisoned and filled outside the tensor if nobody used it yet."""
        block = self._blocks[buffer.id]
        if block.fresh is None:
            return block
        shape, block.fresh = block.fresh, None
        lane.after(block.uses.all)
        self.backend.enter(self.gpu, lane)
        poison = POISON_FLOAT if block.dtype.kind in "fc" else POISON_OTHER
        if buffer.nbytes:
            self.backend.cupy.cuda.runtime.memsetAsync(block.address, poison, buffer.nbytes, lane.stream.ptr)
        if buffer.fill is not None:
            beside = outside(buffer.shape, buffer.start, shape)
            self._launch(lane, _fills(beside, block.dtype, buffer.fill, block.address))
        block.uses.wrote(lane.mark())
        return block

    def _target(self, buffer: Buffer, regions: Regions, lane: Lane) -> Block:
        """The block of a buffer whose cells in `regions` are about to be written."""
        block = self._blocks[buffer.id]
        if block.fresh is not None and len(regions) == 1 and regions[0].size == prod(buffer.shape):
            block.fresh = None
        return self._ready(buffer, lane)

    def _copy(self, src: Buffer, target: Block, transfers: Sequence[Transfer]) -> None:
        lane, source = self.compute, self._ready(src, self.compute)
        lane.after([*source.uses.writes, *target.uses.all])
        self._launch(lane, kernels.copies(transfers, target.dtype.itemsize, source.address, target.address))
        mark = self._done(lane)
        source.uses.read(mark)
        target.uses.wrote(mark)

    def _by_tables(self, piece: Piece, src: Buffer, target: Block, regions: tuple[Region, ...]) -> None:
        """The general way, for views that are no strided copies: by the numbers of the cells, which are kept."""
        lane, source = self.compute, target if piece.source < 0 else self._ready(src, self.compute)
        lane.after([*source.uses.writes, *target.uses.all])
        self.backend.enter(self.gpu, lane)
        cells, values = self._flat(target), self._flat(source)
        for at, read in self._numbers(piece, src, target.buffer, regions):
            cells[at] = piece.fill if read is None else values[read]
        mark = self._done(lane)
        source.uses.read(mark)
        target.uses.wrote(mark)

    def _numbers(self, piece: Piece, src: Buffer, dst: Buffer, regions: tuple[Region, ...]) -> list[tuple[Any, Any]]:
        """Numbers of cells in the target's and in the source's block, on the GPU."""
        key = piece, src.box, dst.box, regions
        found = self._tables.get(key)
        if found is None:
            array = self.backend.cupy.asarray
            found = [
                (array(at), None if read is None else array(read))
                for at, read in index_pairs(piece, src.box, dst.box, regions)
            ]
            nbytes = sum(at.nbytes + (0 if read is None else read.nbytes) for at, read in found)
            if self._tables_nbytes + nbytes <= MAX_TABLE_NBYTES:
                self._tables[key] = found
                self._tables_nbytes += nbytes
        return found

    def _merge(
        self,
        monoid: Monoid,
        attrs: Mapping[str, Any],
        parts: Sequence[Block],
        target: Block,
        regions: Regions,
        fan_in: int | None,
    ) -> None:
        self.backend.enter(self.gpu, self.compute)
        cupy, blocks = self.backend.cupy, (target, *parts)
        out, *whole = (self._whole(block) for block in blocks)
        function = merging(monoid, [block.dtype for block in blocks], len(parts), fan_in)
        for dims, offsets, strides in together(tuple((b.buffer.shape, b.buffer.start) for b in blocks), tuple(regions)):
            if function is not None:
                addresses = (b.address + at * b.dtype.itemsize for b, at in zip(blocks, offsets, strict=True))
                places = list(zip(addresses, strides, strict=True))
                self._launch(self.compute, kernels.merges(function, target.dtype.name, dims, places, fan_in))
                continue
            states = [
                tuple(_strided(cupy, component, dims, at, steps) for component in components_of(array))
                for array, at, steps in zip(whole, offsets[1:], strides[1:], strict=True)
            ]
            made = monoid.unwrap(cupy, merged(monoid, cupy, states, fan_in), attrs)
            _strided(cupy, out, dims, offsets[0], strides[0])[...] = made

    def _run(self, op: Op, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        kernel = self.backend.kernels.get(op.name)
        asked = None if kernel is None else kernel.launch(inputs, outputs, shard)
        if kernel is not None and asked is not None:
            grid, block, args = asked
            self.gpu.function(kernel.entry, kernel.source, kernel.options)(grid, block, args)
        elif op.host_only:
            self._run_on_host(op, inputs, outputs, shard)
        else:
            way = None if op.work is None else way_of(op.work(shard), inputs, outputs)
            if way is None:
                op.block(self.backend.cupy, inputs, outputs, shard)
            else:
                way(self.backend.cupy, partial(self._launch, self.compute))

    def _run_on_host(self, op: Op, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        get = self.backend.cupy.asnumpy
        read = [None if x is None else get(x) for x in inputs]
        made = [get(out) for out in outputs]
        room = np.empty(shard.workspace.nbytes, np.uint8)
        told = Shard(shard.index, shard.signature, shard.attrs, shard.input_boxes, shard.output_boxes, room)
        op.block(np, read, made, told)
        for out, array in zip(outputs, made, strict=True):
            out[...] = self.backend.cupy.asarray(array)

    def _array(self, block: Block, offset: int, dtype: np.dtype[Any], shape: Ints, steps: Ints) -> Any:
        """An array in the arena from `offset` bytes behind the block's first; steps in bytes."""
        pointer = self._arena + (block.buffer.offset + offset)
        return self.backend.cupy.ndarray(shape, dtype, pointer, steps)

    def _view(self, block: Block, box: Box) -> Any:
        """The cells of a box of a block."""
        size, strides = block.dtype.itemsize, row_major(block.buffer.shape)
        at = sum((a - b) * s for a, b, s in zip(box.start, block.buffer.start, strides, strict=True))
        return self._cells(block, at * size, box.shape, tuple(s * size for s in strides))

    def _cells(self, block: Block, offset: int, shape: Ints, steps: Ints) -> Any:
        fields = block.dtype.fields
        if fields is None:
            return self._array(block, offset, block.dtype, shape, steps)
        parts = {name: self._array(block, offset + at, dtype, shape, steps) for name, (dtype, at, *_) in fields.items()}
        return States(block.dtype, parts)

    def _whole(self, block: Block) -> Any:
        return self._view(block, block.buffer.box)

    def _flat(self, block: Block) -> Any:
        return self._array(block, 0, block.dtype, (prod(block.buffer.shape),), (block.dtype.itemsize,))


# ------------------------------------------------------------------------------------------------ what is there


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


def _event_of(device: Any, cuda: Any) -> Callable[[bool], Any]:
    def made(timed: bool) -> Any:
        with device:
            return cuda.Event(disable_timing=not timed)

    return made


def _clock(lane: Lane) -> tuple[Any, float]:
    """An event in an idle lane and the host's time of it: of several the one that is bounded the closest."""
    found = []
    for _ in range(CLOCK_TRIES):
        before = perf_counter()
        event = lane.time()
        event.synchronize()
        after = perf_counter()
        found.append((after - before, (before + after) / 2, event))
    _, at, event = min(found, key=lambda one: one[0])
    return event, at


def _host_memory(before: Any, nbytes: int) -> NDArray[np.uint8]:
    if isinstance(before, HostDevice) and before.memory.nbytes >= nbytes:
        return before.memory
    return aligned_bytes(nbytes)


def _ring_nbytes(payload_nbytes: int) -> int:
    """Bytes of a ring for payloads of at most so many bytes: two fit, and more of small ones."""
    largest = aligned(max(payload_nbytes, 1))
    return max(2 * largest, min(RING_NBYTES, 16 * largest))


# ---------------------------------------------------------------------------------------------------- arithmetic


def _run_of(transfers: Sequence[Transfer], size: int, side: Literal["src", "dst"]) -> int | None:
    """Where the array's cells begin if all of a payload's cells lie there one behind the other, else None."""
    if len(transfers) != 1 or transfers[0].guards:
        return None
    t = transfers[0].collapsed()
    strides, offset = (t.src_strides, t.src_offset) if side == "src" else (t.dst_strides, t.dst_offset)
    return offset if not t.dims or (len(t.dims) == 1 and strides == (1,) and t.dims[0] == size) else None


def _fills(transfers: Sequence[Transfer], dtype: np.dtype[Any], value: float, dst: int) -> Sequence[Launch]:
    return kernels.fills(transfers, np.array(value, dtype).tobytes(), dst)


def _strided(cupy: Any, array: Any, dims: Ints, offset: int, strides: Ints) -> Any:
    """A view of a contiguous array, or of one of an array of states' components, by offset and strides in cells."""
    step = array.strides[-1] if array.ndim else array.dtype.itemsize
    return cupy.ndarray(dims, array.dtype, array.data + offset * step, tuple(s * step for s in strides))


def _cells_of(payload: Payload) -> Array:
    assert payload.cells is not None, "a payload in pinned memory has its cells"
    return payload.cells
