"""The protocol of a backend, and the table of backends by name.

A backend opens devices and carries packed payloads between them; a device does what steps say, in its own arena. The
table names modules, so that a backend and the libraries behind it are loaded when they are asked for first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from tapestry_exec.copies import Array
from tapestry_exec.run.trace import Phase
from tapestry_plan.ir import Monoid, Op, Shard
from tapestry_plan.steps import Buffer, Collective, ShardPlan
from tapestry_sets.limits import FrozenDict, list_names, quote
from tapestry_sets.regions import Box, Region
from tapestry_sets.views import Piece

BACKENDS: FrozenDict[str, tuple[str, str]] = FrozenDict(
    {
        "numpy": ("tapestry_exec.numpy", "NumpyBackend"),
        "serial": ("tapestry_exec.numpy", "SerialBackend"),
        "onnxruntime": ("tapestry_exec.onnxruntime", "OnnxruntimeBackend"),
        "processes": ("tapestry_exec.processes", "ProcessBackend"),
        "dask": ("tapestry_exec.dask", "DaskBackend"),
        "mpi": ("tapestry_exec.mpi", "MpiBackend"),
        "cupy": ("tapestry_exec.cuda", "CupyBackend"),
        "nccl": ("tapestry_exec.cuda", "NcclBackend"),
        "simulated": ("tapestry_exec.simulated", "SimulatedBackend"),
    }
)
"""Backends by name: the wing that has each, and its class there.

Examples
--------
>>> from tapestry_exec import BACKENDS
>>> sorted(BACKENDS)
['cupy', 'dask', 'mpi', 'nccl', 'numpy', 'onnxruntime', 'processes', 'serial', 'simulated']
"""
KNOWN = f"give an object, such as NumpyBackend(), or a name; known backends: {', '.join(map(repr, sorted(BACKENDS)))}"
"""What errors say of a backend that is none."""
BESIDE = dict.fromkeys(("KernelError", "NcclRank", "NoDevicePath", "RawKernel"), "tapestry_exec.cuda")
"""What else is taken from a wing that is loaded when it is asked for."""

Attrs: TypeAlias = Mapping[str, Any]
Buffers: TypeAlias = Sequence[Buffer]
Regions: TypeAlias = Sequence[Region]
Reads: TypeAlias = Sequence[tuple[Buffer, Box, Piece | None] | None]
"""The blocks that an operator reads; None for an operand that it has not.

With a piece it is a block of a view, of which `find_strides` says where its cells lie in the buffer.
"""
Writes: TypeAlias = Sequence[tuple[Buffer, Box]]


class BackendUnavailable(RuntimeError):
    """A backend cannot run here: a package, a driver or a device is missing.

    Examples
    --------
    >>> import sys
    >>> from unittest import mock
    >>> from tapestry_exec import OnnxruntimeBackend
    >>> with mock.patch.dict(sys.modules, {"onnxruntime": None}):  # as where it is not installed
    ...     OnnxruntimeBackend()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tapestry_exec.run.backends.BackendUnavailable: the backend 'onnxruntime' needs the package of this name, ...
    """


class OrderingFault(RuntimeError):
    """An operation that some order allowed by the program does too early, or on memory that it must not touch."""


class Recorded(Protocol):
    """A run that a backend has recorded as a whole, to be launched again."""

    result: Any

    def launch(self, host: Mapping[str, Array]) -> Any: ...


class Absorbed(NamedTuple):
    """A step that another one does: what is told of it. A device that has such steps lists them by number.

    ::

        alloc a   compute a   alloc b   compute b   free a       one session computes a and b
        └──────── absorbed ─────────┘   does all    absorbed
    """

    kind: str
    node: str
    nbytes: int = 0
    flop: float = 0.0


class DeviceMemory(Protocol):
    """One device: its arena, and the operations in it. It reaches no other device's memory.

    Examples
    --------
    >>> from tapestry_exec import NumpyBackend
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (4, 64))), "y")
    >>> p = plan(g, Mesh(1))
    >>> (device,) = NumpyBackend().open(p.peak_nbytes)
    >>> device.alloc(p.buffers[0], (4, 64))
    >>> device.peak_nbytes, p.peak_nbytes
    (1024, (1024,))
    """

    peak_nbytes: int
    copied_nbytes: int
    """Bytes of the cells that `copy` and `gather` wrote since the device began."""

    def alloc(self, buffer: Buffer, tensor_shape: Sequence[int]) -> None: ...
    def free(self, buffer: Buffer) -> None: ...
    def pack(self, buffer: Buffer, regions: Regions) -> Any: ...
    def spill(self, buffer: Buffer) -> Any: ...
    def unpack(self, payload: Any, buffer: Buffer, regions: Regions) -> None: ...
    def copy(self, src: Buffer, dst: Buffer, regions: Regions) -> None: ...
    def gather(self, src: Buffer, dst: Buffer, piece: Piece, regions: Regions) -> None: ...
    def merge(
        self, monoid: Monoid, attrs: Attrs, parts: Buffers, output: Buffer, regions: Regions, fan_in: int | None
    ) -> None: ...
    def launch(self, op: Op, inputs: Reads, outputs: Writes, shard: Shard, workspace: Buffer | None) -> None: ...

    def read_host(self, array: Array, buffer: Buffer, regions: Regions, is_lasting: bool) -> int:
        """Write cells of a whole tensor in the host's memory; how many bytes. Of a backend that `reads_host`.

        Of a buffer that is lasting they are all cells, and nothing else is ever written there.
        """
        ...

    def hold(self, buffer: Buffer, tensor_shape: Sequence[int]) -> None:
        """Take memory of its own for a buffer, which stays until the device is closed; of a backend that `keeps`."""
        ...

    def restart(self) -> None:
        """Forget all buffers but those, and count anew."""
        ...

    def lend(self, buffer: Buffer, regions: Regions, is_taken_at_once: bool) -> Any:
        """What another device's `unpack` takes for a payload of these cells; of a backend that `lends`."""
        ...

    def list_settled(self) -> Collection[int]:
        """After a run the buffers for which `alloc` and `free` need not be called in the next ones; none by default."""
        return ()

    def take_settled(self) -> None:
        """Have these in their places, in a run that does not call `alloc` for them."""
        ...

    def note(self, do: Callable[[], object]) -> tuple[Callable[[], object], ...]:
        """Have something done here; the calls that do the same again. Of a device whose attribute `notes` is true."""
        ...

    def begin(self, work: object, ops: Mapping[str, Op]) -> None:
        """Of such a device: take for known what earlier runs told of buffers, if the same operators did these steps."""
        ...

    def find_strips(self, buffer: Buffer, regions: Regions) -> Any:
        """Of such a device where cells lie that it packs: the same object in every run."""
        ...

    def lend_again(self, buffer: Buffer, regions: Regions) -> Callable[[], Any]:
        """Of such a device what lends the same cells in later runs, when the calls that were noted are done."""
        ...

    def find_source(self, payload: Any) -> Any:
        """Of such a device what is the same object wherever a payload comes from the same place."""
        ...

    def unpack_again(
        self, payload: Any, source: Any, calls: Sequence[Callable[[], object]], buffer: Buffer, regions: Regions
    ) -> None:
        """Unpack a payload, by calls that were noted where it comes from the place that these copy from."""
        ...


class Exchanged(NamedTuple):
    """What a backend did of a collective."""

    nbytes_by_link: Mapping[tuple[int, int], int]
    """Bytes handed to the transport, from device to device, counted as copies between the two would be."""
    is_merged: bool = False
    """Whether parts are merged where they came, as the collective's own `Reduce` steps would."""


D = TypeVar("D", bound=DeviceMemory)


class Backend(Protocol[D]):
    """Where plans run: opens devices, carries packed payloads between them, and takes the devices back.

    What `fetch` gives belongs to the caller for as long as it likes: buffers that are spilled are kept so, and come
    back through `place` and `unpack`, each as one region that is a whole buffer of any dtype that a plan has.

    The other methods are those of a backend that has done all work when a call returns, which a class may take over:
    nothing is recorded, nothing is waited for, and times are the host's.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import Backend, NumpyBackend, run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> class Counting(Backend):  # all that a backend has to have, each handed on to NumPy's
    ...     name = "counting"
    ...     def __init__(self):
    ...         self.numpy, self.messages = NumpyBackend(), 0
    ...     def open(self, nbytes, payload_nbytes):
    ...         return self.numpy.open(nbytes, payload_nbytes)
    ...     def close(self, devices):
    ...         self.numpy.close(devices)
    ...     def place(self, array, regions, tensor):
    ...         return self.numpy.place(array, regions, tensor)
    ...     def move(self, payload, src, dst):
    ...         self.messages += 1
    ...         return payload
    ...     def fetch(self, payload):
    ...         return self.numpy.fetch(payload)
    >>> g = Graph()
    >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"), "y")
    >>> p, backend = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}}), Counting()
    >>> run(p, {"x": np.ones((4, 6), np.float32)}, backend=backend).nbytes_moved, backend.messages
    (48, 2)
    """

    name: str
    keeps: ClassVar[bool] = False
    """Whether buffers can stay on devices from run to run (`DeviceMemory.hold`)."""
    saves: bool = False
    """Whether what devices hold can be saved between two steps: each has done all its work then."""
    is_first: bool = True
    """Whether this process is the one that tells people of a run, where several run the same program."""

    @abstractmethod
    def open(self, nbytes: Sequence[int], payload_nbytes: Sequence[int]) -> Sequence[D]: ...
    @abstractmethod
    def close(self, devices: Sequence[D]) -> None: ...
    @abstractmethod
    def place(self, array: Array, regions: Regions, tensor: str) -> Any: ...
    @abstractmethod
    def move(self, payload: Any, src: int, dst: int) -> Any: ...
    @abstractmethod
    def fetch(self, payload: Any) -> Array: ...

    def lends(self) -> bool:
        """Whether devices read in each other's memory: then `DeviceMemory.lend` gives what `unpack` takes."""
        return False

    def reads_host(self) -> bool:
        """Whether devices read in the host's memory, by `DeviceMemory.read_host`, where nobody writes."""
        return False

    def alone(self) -> AbstractContextManager[None]:
        """Keep others away while a run is on, where they would be in its way."""
        return nullcontext()

    def check(self, ops: Mapping[str, Op], runs: Iterable[tuple[Op, int]]) -> None:
        """Refuse, before the first step, operators that do not run here."""

    def check_room(self, nbytes: Sequence[int]) -> None:
        """Raise MemoryError, before anything is allocated, where arenas of these sizes do not fit."""

    def wants_threads(self, seconds: float, shards: int, devices: int) -> bool:
        """Return whether each device is to have a thread, where so many shards take so long on one core."""
        return False

    def recorded(self, plan: ShardPlan) -> Recorded | None:
        """Return a run that is kept to be run again at once."""
        return None

    def remember(self, plan: ShardPlan, result: Any) -> None:
        """Keep a run to run it again at once."""

    def forget(self, plan: ShardPlan, error: Exception) -> bool:
        """Return whether a run that failed was being recorded."""
        return False

    def discard(self, plan: ShardPlan) -> None:
        """Give up a recording of a plan that could not be launched."""

    def why_not_recorded(self, plan: ShardPlan) -> str:
        """Return why a plan's runs are not recorded by a backend that records; else nothing."""
        return ""

    def takes(self, collective: Collective) -> bool:
        """Return whether `exchange` runs a collective as one operation; else its steps run one by one."""
        return False

    def exchange(self, devices: Sequence[D], collective: Collective, buffers: Mapping[int, Buffer]) -> Exchanged:
        """Run what `collective.copies` say, and its merges if it likes, as one operation of the group's devices.

        Its `opening` has run: what comes has its place. Its `closing` runs afterwards, without merges that are done.
        """
        raise NotImplementedError(
            f"backend {self.name} takes the {collective.kind} of {quote(collective.tensor)} and does not run it: "
            "define its `exchange`, or let its `takes` return False"
        )

    def resume(self) -> None:
        """Go on with devices that stayed; behind `open` they are on already."""

    def pause(self) -> None:
        """Wait until everything is done on devices that stay, and leave the machine to others."""

    def synchronize(self) -> None:
        """Wait until everything launched is done."""

    def collect(self, payload: Any) -> Array:
        """A packed payload of an output as a host array, which is read after `arrive`."""
        return self.fetch(payload)

    def arrive(self) -> None:
        """Wait until the fetched and collected arrays are here."""

    @property
    def spans(self) -> Sequence[Any] | None:
        """The operations queued on devices that work ahead of the host, else None: the host's times are right."""
        return None

    def start_clocks(self) -> None:
        """Let devices that work ahead of the host note when they do."""

    def times(self, begin: float) -> Sequence[Phase]:
        """Return when the operations of `spans` ran, in seconds since a time of the host's."""
        return []


def load_backend(name: str) -> Backend[Any]:
    """Return a new backend of a name in `BACKENDS`; its wing is loaded here.

    Raises
    ------
    ValueError
        If no backend has this name.
    """
    if name not in BACKENDS:
        raise ValueError(f"run: there is no backend {quote(name)}; {list_names(sorted(BACKENDS), name, 'backends')}")
    return cast("Backend[Any]", load_from_wing(BACKENDS[name][1])())


def load_from_wing(name: str) -> Any:
    """Return the object of this name; load the wing that lists it.

    Raises
    ------
    AttributeError
        If no wing is listed with it.
    """
    wings = {**BESIDE, **{made: wing for wing, made in BACKENDS.values()}}
    if name not in wings:
        raise AttributeError(f"module 'tapestry_exec' has no attribute {quote(name)}")
    return getattr(import_module(wings[name]), name)
