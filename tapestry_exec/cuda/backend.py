"""The CuPy backend: an arena on each GPU, three lanes of work, and raw kernels that move regions.

Each device of the mesh is a logical one: it has its own arena, its own ring for payloads and its own three streams
(in, compute, out), and several may share a GPU; others may be arenas of this process. Work is put into streams and
the host runs ahead. Whatever touches the same bytes in two streams is ordered by events. Buffers and payloads are laid
out before the first step; what block functions and kernels ask for beside them, as index tables or random words, comes
from a pool of the backend's own.

It has run on one GPU. In the tests it runs on simulated devices, which check the order of all accesses. Copies between
two GPUs are not yet run on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from itertools import permutations
from threading import Lock, get_ident
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace

from tapestry_exec.copies import Array, aligned_bytes
from tapestry_exec.cuda.device import CupyDevice, HostDevice, clock_of
from tapestry_exec.cuda.gpus import Gpu, RawKernel, Shared
from tapestry_exec.cuda.lanes import Lane, Span, Uses
from tapestry_exec.cuda.payloads import Payload, Pinned, cells_of, ring_nbytes
from tapestry_exec.cuda.recording import Recording, Recordings, copy_placed
from tapestry_exec.run import (
    BackendUnavailable,
    Deployed,
    LocalSession,
    OrderingFault,
    Phase,
    PreparedPlan,
    Regions,
)
from tapestry_plan.ir import Op
from tapestry_plan.steps import HOST, ShardPlan
from tapestry_sets.limits import FrozenDict, check_arguments, list_names, quote


class NoDevicePath(ValueError):
    """An operator's block function does not run on a GPU.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import SimulatedBackend, run
    >>> from tapestry_plan import Graph, Mesh, Op, ops, plan
    >>> def ordered(xp, inputs, outputs, shard):
    ...     outputs[0][...] = np.sort(inputs[0], axis=0)
    >>> g = Graph()
    >>> own = Op("own", ops.relu.op.signature, ordered, host_only=True)
    >>> _ = g.output(g.op(own, g.input("x", (4,))), "y")
    >>> run(plan(g, Mesh(1)), {"x": np.ones(4, np.float32)}, backend=SimulatedBackend())
    Traceback (most recent call last):
        ...
    tapestry_exec.cuda.backend.NoDevicePath: operators ['own'] have block functions that need NumPy; attach a
    kernel to them, or let them run on the host with CupyBackend(fallback=True)
    """


class CupyBackend:
    """Runs plans on GPUs through CuPy.

    Parameters
    ----------
    devices : sequence of (int or "cpu"), optional
        For each device of the mesh the GPU that it lies on, or "cpu" for an arena of this process. By default the
        devices of the mesh are dealt out to all GPUs in turn.
    kernels : mapping of str to RawKernel, optional
        Kernels that compute operators on GPUs, by the operators' names: neither parts of fused operators, which are
        operators of another name, nor shards on devices of the mesh that are "cpu".
    fallback : bool
        Run block functions that need NumPy on the host, with copies there and back; otherwise they are refused.
    blocking : bool
        Wait after each step, so that an error is told of the step that made it.
    capture : bool, optional
        Record a plan's second run as a graph of the driver, and launch that from then on, without the host's work for
        each step. By default deployments do so, and runs by themselves do not. Plans that spill, that run blocks on
        the host, or whose blocks do what no graph holds, are not recorded: `gather` waits for its indices to check
        them. Inputs may be others each time, constants must stay, and counts of bytes are those of the run that was
        recorded, which has no times of single steps.
        A plan whose blocks bring something of the host's to the GPU (``xp.asarray(table)``, ``x[[0, 2]]``) is not
        recorded: a graph would read it again from memory that is no longer its own. While a run is recorded CuPy's
        allocator of pinned memory is ours, and its default pool's afterwards.
    poison : bool
        Fill each buffer with NaNs before its first use, so that a cell that nothing writes shows: for
        tests, since it takes a pass over memory.
    tf32 : bool
        Let products of float32 round their factors to the 10 bits of TF32, for the matrix units: about ten times as
        fast, and results differ by thousandths.
    cupy : module, optional
        What stands in for CuPy.

    Raises
    ------
    BackendUnavailable
        When CuPy, its driver or a device is missing; when a plan is run, before its first step.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import CupyBackend, run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (4, 6))), "y")
    >>> p = plan(g, Mesh(4), fix={"relu": {"i0": 4}})
    >>> backend = CupyBackend(devices=[0, 0, 1, "cpu"])  # two of the mesh's devices on one GPU
    >>> run(p, {"x": np.ones((4, 6), np.float32)}, backend=backend).nbytes_placed  # doctest: +SKIP
    (24, 24, 24, 24)
    >>> CupyBackend(blocking=True, capture=True)
    Traceback (most recent call last):
        ...
    ValueError: CupyBackend: blocking waits after each step, which no graph holds; give capture or blocking
    """

    name = "cupy"
    keeps = True

    @check_arguments(
        devices="give a sequence of GPU numbers and 'cpu'", kernels="it maps operators' names to RawKernels"
    )
    def __init__(
        self,
        devices: Sequence[int | Literal["cpu"]] | None = None,
        *,
        kernels: Mapping[str, RawKernel] | None = None,
        fallback: bool = False,
        blocking: bool = False,
        capture: bool | None = None,
        poison: bool = False,
        tf32: bool = False,
        cupy: Any = None,
    ) -> None:
        if blocking and capture:
            raise ValueError(
                "CupyBackend: blocking waits after each step, which no graph holds; give capture or blocking"
            )
        if cupy is not None and not hasattr(cupy, "cuda"):
            raise TypeError(f"CupyBackend: cupy is {quote(cupy)}, which has no 'cuda'; give CuPy or a stand-in for it")
        self._asked = None if devices is None else _numbers_of(devices)
        self._given = cupy
        self._gpus: dict[int, Gpu] = {}
        self._peers: set[tuple[int, int]] = set()
        self._kernels: dict[str, RawKernel] = FrozenDict(kernels or {})
        self.fallback, self.blocking, self.capture = fallback, blocking, capture
        self.poison, self.tf32 = poison, tf32
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Have no devices, and nothing under way."""
        self._recordings = Recordings()
        self._collected: list[tuple[Payload, Any]] = []
        """Payloads on their way to the host, with what is to be waited for."""
        self._lock, self._runner = Lock(), 0
        self._pinned = Pinned()
        self._pool: Any = None
        self._kept: list[CupyDevice | HostDevice] = []
        self._devices: list[CupyDevice | HostDevice] = []
        self._stack = ExitStack()
        self.spans: list[Span] | None = None
        """Operations in lanes in the order in which they were put there, from `start_clocks` on."""
        self._roles: dict[Lane, tuple[CupyDevice, str]] = {}
        self._clocks: dict[int, tuple[Any, float]] = {}
        """By GPU."""
        self._shared: Shared | None = None
        self._has_state = False
        """Whether its runs go on from what the ones before left on the devices."""

    # -- what is there -----------------------------------------------------------------------------------

    @property
    def kernels(self) -> dict[str, RawKernel]:
        """The kernels that run operators, by the operators' names."""
        return self._kernels

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

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have the backend for one run: another thread waits until it is over.

        Raises
        ------
        RuntimeError
            When this thread has a run of this backend under way, of which this one is a part.
        """
        if self._runner == get_ident():
            raise RuntimeError(
                "a run of this CupyBackend is under way, and runs another plan on it, perhaps from its progress "
                "function; give the other one a CupyBackend of its own"
            )
        with self._lock:
            self._runner = get_ident()
            try:
                yield
            finally:
                self._runner = 0

    def check(self, ops: Mapping[str, Op], runs: Iterable[tuple[Op, int]]) -> None:
        """Refuse, before the first step, operators that do not run on a GPU, and kernels for unknown operators.

        Parameters
        ----------
        ops : mapping of str to Op
            All that are known.
        runs : iterable of (operator, device of the mesh)

        Raises
        ------
        NoDevicePath
            Naming the operators.
        ValueError
            When a kernel is attached to an operator that there is not.
        """
        unknown = sorted(self.kernels.keys() - ops.keys())
        if unknown:
            near = list_names(ops, unknown[0], "operators")
            raise ValueError(f"CupyBackend: kernels has {quote(unknown[0])}, which is not an operator's name; {near}")
        if self.fallback:
            return
        on_gpu = [op for op, device in runs if self._asked is None or self._asked[device : device + 1] != [HOST]]
        without = sorted({op.name for op in on_gpu if op.host_only and op.name not in self.kernels})
        if without:
            raise NoDevicePath(
                f"operators {without} have block functions that need NumPy; attach a kernel to them, or let them run "
                "on the host with CupyBackend(fallback=True)"
            )

    # -- the protocol ------------------------------------------------------------------------------------

    def recorded(self, plan: ShardPlan) -> Recording | None:
        """A plan's recording; without one, its first run is a plain one, its second one is recorded."""
        if not self.capture or self.fallback or HOST in (self._asked or ()):
            return None
        if any(plan.nbytes_spilled):
            return None
        return self._recordings.of(plan)

    def forget(self, plan: ShardPlan, error: Exception) -> bool:
        """Whether a run failed that was being recorded, perhaps since it was: then a plain one tells."""
        return not isinstance(error.__cause__, OrderingFault) and self._recordings.fail(error, self._has_state)

    def why_not_recorded(self, plan: ShardPlan) -> str:
        """Why a plan's runs are step by step, where they would be a graph's but for that; empty where nothing is."""
        if any(plan.nbytes_spilled):
            return "it spills: buffers wait in the host's memory"
        if self.fallback or HOST in (self._asked or ()):
            return "some of it runs on the host"
        return self._recordings.tell(plan)

    def discard(self, plan: ShardPlan) -> None:
        """Give up a plan's recording that could not be launched."""
        self._recordings.lose(plan)

    def remember(self, plan: ShardPlan, result: Any) -> None:
        """Keep the recording of the run that just ended, with what it took."""
        self._recordings.keep(plan, result)

    def open(self, nbytes: Sequence[int], payload_nbytes: Sequence[int] = ()) -> list[CupyDevice | HostDevice]:
        """One device for each arena size, in bytes; the largest payload that each sends or gets, in bytes."""
        wanted, gpus = self._recordings.take_wish(), self.gpus_of(len(nbytes))
        largest = [*payload_nbytes, *nbytes[len(payload_nbytes) :]]
        self._prepare(sorted(set(gpus) - {HOST}))
        before = [*self._kept, *[None] * len(gpus)]
        needs = list(zip(gpus, nbytes, largest, strict=True))
        kept = [one if one is not None and one.fits(*need) else None for one, need in zip(before, needs, strict=False)]
        del before
        self._kept, self._devices = [], []  # what is not used again is free from here on
        self._check_memory(gpus, nbytes, largest, kept)
        self._pinned.reserve(self.cupy, max(largest, default=0))
        self._devices = [self._opened(kept[k], k, *need) for k, need in enumerate(needs)]
        self.spans = None
        self._begin(wanted)
        return self._devices

    def close(self, devices: Sequence[CupyDevice | HostDevice]) -> None:
        """Take the devices back: their memory is kept for the next run, but not that of buffers that stayed."""
        self.pause()
        for device in devices:
            device.release()
        self._kept = list(devices)

    def begin(self, what: Deployed) -> LocalSession:
        """The devices of a plan; what stays on some has a backend of its own beside this one, for runs in between."""
        if what.stays is None:
            return LocalSession(what)
        own: Any = copy(self)
        own._begin_anew()
        own._given, own._gpus, own._peers = self.cupy, dict(self._gpus), set(self._peers)
        own.capture = not self.blocking if self.capture is None else self.capture
        own._has_state = bool(what.stays.given)
        found = PreparedPlan(what.prepared.plan, own).bringing({one.name for one in what.prepared.outputs})
        prepared: PreparedPlan = found.laid_out(what.stays.buffers, what.stays.arenas_nbytes, what.stays.apart)
        gpus = own.gpus_of(prepared.plan.mesh.size)
        own._prepare(sorted(set(gpus) - {HOST}))
        nbytes = [a + b for a, b in zip(what.stays.arenas_nbytes, what.stays.nbytes_held, strict=True)]
        own._check_memory(gpus, nbytes, prepared.payloads_nbytes, [None] * len(gpus))
        session = LocalSession(replace(what, prepared=prepared))
        own._trim(what.stays.payloads_nbytes)
        return session

    def _trim(self, payload_nbytes: Sequence[int]) -> None:
        """Have rings for payloads of these sizes alone; nothing is on its way."""
        for device, nbytes in zip(self._devices, payload_nbytes, strict=True):
            if isinstance(device, CupyDevice):
                device.trim(nbytes)
        self._pinned = Pinned()
        self._pinned.reserve(self.cupy, max(payload_nbytes, default=0))

    def resume(self) -> None:
        """Go on with the devices that stayed: the array library's current device, streams and allocator are ours."""
        self.spans = None
        self._pinned.restart()
        self._begin(self._recordings.take_wish())

    def pause(self) -> None:
        """Wait until everything is done, and give the array library's state back."""
        try:
            self._leave()
            self._recordings.drop()
            self.synchronize()
            self._collected.clear()
        finally:
            self._stack.close()
            self.shared.current.forget()

    def place(self, array: Array, regions: Regions, tensor: str) -> Payload:
        """Pack cells of a host array, which are a tensor's, into pinned memory."""
        made = self._pinned_room(sum(region.size for region in regions), array.dtype)
        if self._recordings.now is not None:
            self._recordings.now.place(tensor, array, regions, cells_of(made))
            return made
        self._touch(made, True)
        copy_placed(array, regions, cells_of(made))
        return made

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
        if self._recordings.now is not None:
            cells = cells_of(self._to_host(payload))
            self._recordings.now.fetch(cells)
            return cells
        return np.array(cells_of(self._read(payload)) if isinstance(payload, Payload) else payload)

    def collect(self, payload: Any) -> Array:
        """As `fetch`, but to be read after `arrive`, which waits for all such payloads at once."""
        if self._recordings.now is not None or not isinstance(payload, Payload) or payload.gpu == HOST:
            return self.fetch(payload)
        memory = self.cupy.cuda.alloc_pinned_memory(max(payload.nbytes, 1))
        cells = np.frombuffer(memory, np.uint8, payload.nbytes).view(payload.dtype)
        here = Payload(memory.ptr, payload.nbytes, payload.dtype, HOST, Uses(), cells)
        self._collected.append((here, self._copy_to_host(payload, here)))
        return cells

    def synchronize(self) -> None:
        """Wait until everything in all lanes is done; while a run is recorded nothing is done yet."""
        if self._recordings.now is None or self._recordings.now.is_whole:
            for lane in self._lanes():
                lane.stream.synchronize()

    def start_clocks(self) -> None:
        """Let all lanes note their operations; each GPU counts from an event of its own, here."""
        self.spans, self._roles, self._clocks = [], {}, {}
        for device in self._devices:
            if isinstance(device, CupyDevice):
                if device.gpu.number not in self._clocks:
                    self._clocks[device.gpu.number] = clock_of(device.compute)
                for lane, kind in zip(device.lanes, ("unpack", "compute", "pack"), strict=True):
                    lane.spans, self._roles[lane] = self.spans, (device, kind)

    def times(self, begin: float) -> list[Phase]:
        """When the operations in `spans` ran, in seconds since a time of the host's; all of them must be done."""
        elapsed, found = self.cupy.cuda.get_elapsed_time, []
        for lane, *events in self.spans or ():
            device, kind = self._roles[lane]
            first, at = self._clocks[device.gpu.number]
            start, stop = (max(elapsed(first, event) / 1e3 + at - begin, 0.0) for event in events)
            found.append(Phase(kind, device.number, start, stop - start))
        return found

    def arrive(self) -> None:
        """Wait for what was collected; run the recorded steps, so that the fetched arrays arrive."""
        for here, mark in self._collected:
            mark.event.synchronize()
            self._touch(here, False)
        self._collected.clear()
        if self._recordings.now is not None:
            self._leave()
            for device in self._devices:
                if isinstance(device, CupyDevice):
                    self._recordings.now.hold(device.list_launched())
            self._recordings.now.end()
            self._recordings.now.launch()

    # -- its own ------------------------------------------------------------------------------------------

    @property
    def shared(self) -> Shared:
        """What its devices have in common."""
        if self._shared is None:
            self._shared = Shared(self.cupy, self.kernels, self.blocking, self.poison, self.tf32)
        return self._shared

    def _leave(self) -> None:
        for device in self._devices:
            device.leave()

    def _lanes(self) -> list[Lane]:
        return [lane for device in self._devices for lane in device.lanes]

    def _begin(self, is_recorded: bool) -> None:
        """Take the array library's current device, streams and allocator over, until the devices are closed."""
        try:
            self._take_over(is_recorded)
        except BaseException:  # also Ctrl-C: who has no devices closes none
            with suppress(Exception):  # what ended it is what matters
                self.pause()
            raise

    def _take_over(self, is_recorded: bool) -> None:
        cuda = self.cupy.cuda
        self._stack.close()
        before = cuda.Device()
        self._stack.callback(before.use)  # the last to be undone
        for gpu in self._gpus.values():
            with gpu.device:
                self._stack.callback(_use, gpu.device, cuda.get_current_stream(gpu.number))
        made = Recording(self.cupy, self._lanes(), list(self._devices)) if is_recorded else None
        self._stack.enter_context(cuda.using_allocator((self._pool if made is None else made.pool).malloc))
        self.shared.current.is_recording = False
        if made is not None:
            for device in self._devices if self.shared.current.has_products else ():
                if isinstance(device, CupyDevice):
                    device.open_products()
            self.shared.current.is_recording = True
            self._recordings.begin(made)

    def _prepare(self, numbers: Sequence[int]) -> None:
        """Have kernels on GPUs, a way between each two of them, and memory for what blocks ask for."""
        for number in numbers:
            if number not in self._gpus:
                self._gpus[number] = Gpu(self.cupy, number)
            self._gpus[number].prepare(self.kernels.values())
        for one, two in permutations(numbers, 2):
            if (one, two) not in self._peers:
                self._peers.add((one, two))
                _let_reach(self.cupy, self._gpus[one].device, one, two)
        if self._pool is None:
            self._pool = self.cupy.cuda.MemoryPool()

    def _opened(
        self, before: CupyDevice | HostDevice | None, k: int, gpu: int, nbytes: int, payload_nbytes: int
    ) -> CupyDevice | HostDevice:
        if before is not None:
            return before.again()
        if gpu == HOST:
            return HostDevice(aligned_bytes(nbytes))
        return CupyDevice(self.shared, self._gpus[gpu], k, nbytes, payload_nbytes)

    def _check_memory(self, gpus: Sequence[int], nbytes: Sequence[int], largest: Sequence[int], kept: Any) -> None:
        """Raise before anything is allocated where a GPU has not the memory."""
        for number in set(gpus) - {HOST}:
            wanted = 0
            for k, gpu in enumerate(gpus):
                if gpu == number and kept[k] is None:
                    wanted += nbytes[k] + ring_nbytes(largest[k])
            with self._gpus[number].device:
                free, total = self.cupy.cuda.runtime.memGetInfo()
            if wanted > free:
                raise BackendUnavailable(
                    f"GPU {number} has {free:,} B free of {total:,} B, the arenas and rings on it need {wanted:,} B; "
                    "plan for more GPUs, or run with memory_nbytes= so that buffers spill to the host"
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
        pinned = self._pinned_room(payload.nbytes // payload.dtype.itemsize, payload.dtype)
        mark = self._copy_to_host(payload, pinned)
        if self._recordings.now is None:
            mark.event.synchronize()
        return pinned

    def _copy_to_host(self, payload: Payload, pinned: Payload) -> Any:
        """Put a copy to pinned memory into the payload's lane; give its mark."""
        lane = payload.lane
        assert lane is not None, "a payload on a GPU was packed by a device"
        lane.after(payload.uses.writes)
        self.shared.current.enter(self._gpus[payload.gpu], lane)
        runtime = self.cupy.cuda.runtime
        runtime.memcpyAsync(
            pinned.address, payload.address, payload.nbytes, runtime.memcpyDeviceToHost, lane.stream.ptr
        )
        mark = lane.mark()
        payload.uses.read(mark)
        return mark

    def _pinned_room(self, size: int, dtype: np.dtype[Any]) -> Payload:
        """Room in pinned memory: of the recording that is made, if there is one."""
        recording = self._recordings.now
        return self._pinned.take(size, dtype) if recording is None else recording.take(size, dtype)


def _let_reach(cupy: Any, device: Any, one: int, two: int) -> None:
    """Let a GPU reach another one's memory, where the machine can: copies between them go straight then."""
    runtime = cupy.cuda.runtime
    if runtime.deviceCanAccessPeer(one, two):
        with device, suppress(runtime.CUDARuntimeError):  # somebody has done so already
            runtime.deviceEnablePeerAccess(two)


def _use(device: Any, stream: Any) -> None:
    device.use()
    stream.use()


def _import_cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise BackendUnavailable(
            f"backend 'cupy' needs CuPy, which cannot be imported ({error}); install tapestry-tensor[cuda13] or "
            "tapestry-tensor[cuda12], or run with backend='numpy'"
        ) from error
    return cupy


def _gpu_count(cupy: Any) -> int:
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendUnavailable(
            f"CuPy is there, but no GPU can be used: {error}; install NVIDIA's driver, or run with backend='numpy'"
        ) from error


def _numbers_of(devices: Sequence[int | str]) -> list[int]:
    """The devices by number, the host's memory as HOST."""
    for place, device in enumerate(devices):
        if isinstance(device, int) and device < 0:
            raise ValueError(f"CupyBackend: devices[{place}] is {device}; give a GPU's number, from 0, or 'cpu'")
    return [device if isinstance(device, int) else HOST for device in devices]
