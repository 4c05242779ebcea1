"""GPUs as the backend sees them: the current device and stream, and the raw kernels compiled for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from tapestry_exec.cuda import kernels
from tapestry_exec.cuda.lanes import Lane
from tapestry_exec.cuda.tuning import MAX_TABLE_NBYTES
from tapestry_plan.ir import Shard
from tapestry_sets.digits import Ints
from tapestry_sets.limits import Public, check_fields, quote

Asked = tuple[Ints, Ints, tuple[Any, ...], int]
"""Grid, block, arguments and bytes of shared memory."""


class KernelError(ValueError):
    """A raw kernel does not compile.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import RawKernel, SimulatedBackend, run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (4, 6))), "y")
    >>> kernel = RawKernel('extern "C" __global__ void mine(float *x) { x[0] = 0; }', "yours", lambda *call: None)
    >>> run(
    ...     plan(g, Mesh(1)), {"x": np.ones((4, 6), np.float32)}, backend=SimulatedBackend(kernels={"relu": kernel})
    ... )  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tapestry_exec.cuda.gpus.KernelError: there is no kernel 'yours' in its source: ...; declare it extern "C" __global__
    """


class RawKernel(Struct, frozen=True, metaclass=Public):
    """A raw kernel that computes an operator's shards in the place of its block function.

    Parameters
    ----------
    source : str
        CUDA C++.
    entry : str
        Name of the kernel, declared ``extern "C" __global__``.
    launch : callable
        ``(inputs, outputs, shard) -> (grid, block, args)``, with bytes of shared memory as a fourth item if it needs
        some, or None, where this kernel does not apply and the block function runs. Inputs and outputs are the device
        arrays of the blocks, perhaps strided; args may hold device arrays, which reach the kernel as pointers to their
        first cells, and NumPy scalars.
    options : sequence of str
        For the compiler.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import RawKernel, SimulatedBackend, run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> source = '''extern "C" __global__ void doubled(const float *x, float *y, int n) {
    ...     int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...     if (i < n) y[i] = 2 * x[i];
    ... }'''
    >>> def launch(inputs, outputs, shard):
    ...     n = outputs[0].size
    ...     return (-(-n // 32),), (32,), (inputs[0], outputs[0], np.int32(n))
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (6,))), "y")
    >>> backend = SimulatedBackend(kernels={"relu": RawKernel(source, "doubled", launch)})
    >>> run(plan(g, Mesh(1)), {"x": np.arange(6, dtype=np.float32)}, backend=backend).outputs["y"].tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """

    source: str
    entry: str
    launch: Callable[[Sequence[Any], Sequence[Any], Shard], tuple[Any, ...] | None]
    options: tuple[str, ...] = ("-std=c++17",)

    def __post_init__(self) -> None:
        if not isinstance(self.source, str) or not isinstance(self.entry, str) or not callable(self.launch):
            raise TypeError(
                "RawKernel: source and entry must be text and launch a function of (inputs, outputs, shard); "
                f"they are {type(self.source).__name__}, {type(self.entry).__name__}, {type(self.launch).__name__}"
            )
        check_fields(self)

    def asked(self, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> Asked | None:
        """The arguments of `launch` for a shard.

        Raises
        ------
        ValueError
            When it is not (grid, block, args) or (grid, block, args, bytes of shared memory).
        """
        found: Any = self.launch(inputs, outputs, shard)
        if found is None:
            return None
        if not isinstance(found, tuple) or len(found) not in (3, 4) or not isinstance(found[2], tuple):
            raise ValueError(
                f"the launch function of kernel {quote(self.entry)} returned {quote(found)}; it must be a tuple "
                "(grid, block, args), with bytes of shared memory as a fourth item if it needs some, or None"
            )
        grid, block, args, *shared = found
        return grid, block, args, int(shared[0]) if shared else 0


class Gpu:
    """One GPU and the kernels that are compiled for it."""

    def __init__(self, cupy: Any, number: int) -> None:
        self.number, self._cupy = number, cupy
        self.device = cupy.cuda.Device(number)
        self._modules: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._functions: dict[tuple[str, str, tuple[str, ...]], Any] = {}
        self.tables: dict[Any, Any] = {}
        """Index tables that were kept."""
        self._tables_nbytes = 0

    def prepare(self, attached: Iterable[RawKernel]) -> None:
        """Compile the kernels that are not compiled yet.

        Raises
        ------
        KernelError
            With the compiler's log, which names the line.
        """
        self._module(kernels.SOURCE, kernels.OPTIONS, "tapestry's kernels")
        for kernel in attached:
            self._module(kernel.source, kernel.options, f"the kernel {quote(kernel.entry)}")
            self.function(kernel.entry, kernel.source, kernel.options)

    def function(self, entry: str, source: str = kernels.SOURCE, options: tuple[str, ...] = kernels.OPTIONS) -> Any:
        """A kernel that can be launched."""
        found = self._functions.get((entry, source, options))
        if found is None:
            try:
                with self.device:
                    found = self._module(source, options, entry).get_function(entry)
            except (AttributeError, KeyError, ValueError, RuntimeError) as error:
                raise KernelError(
                    f'there is no kernel {quote(entry)} in its source: {error}; declare it extern "C" __global__'
                ) from error
            self._functions[entry, source, options] = found
        return found

    def keep_table(self, key: Any, table: Any, nbytes: int) -> None:
        """Keep an index table for all devices of the mesh on this GPU, while there is room."""
        if self._tables_nbytes + nbytes <= MAX_TABLE_NBYTES:
            self.tables[key] = table
            self._tables_nbytes += nbytes

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


class Current:
    """The GPU and the lane that the array library's calls go to, so that they are not set again and again."""

    def __init__(self) -> None:
        self._at: tuple[int, Lane] | None = None
        self.is_recording = False
        """Whether what is put into lanes becomes a graph of the driver."""
        self.has_products = False
        """Whether some device had cuBLAS make products."""

    def enter(self, gpu: Gpu, lane: Lane) -> None:
        """Make a GPU and a lane's stream the current ones."""
        if self._at != (gpu.number, lane):
            gpu.device.use()
            lane.stream.use()
            self._at = gpu.number, lane

    def forget(self) -> None:
        """Others may have set something else."""
        self._at = None


class Shared(Struct, frozen=True):
    """The state that the devices of a backend share.

    Parameters
    ----------
    cupy : module
    kernels : mapping of str to RawKernel
        Attached kernels, by the operators' names.
    blocking : bool
        Wait after each operation.
    poison : bool
        Fill buffers with NaNs when they take their place.
    tf32 : bool
        Round factors of float32 products.
    current : Current
    """

    cupy: Any
    kernels: Mapping[str, RawKernel]
    blocking: bool
    poison: bool
    tf32: bool
    current: Current = field(default_factory=Current)
