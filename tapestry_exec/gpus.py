"""GPUs as the backend sees them: what is current on them, and the raw kernels that are compiled for each.

Not yet run on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tapestry_exec import kernels
from tapestry_exec.lanes import Lane
from tapestry_plan import Shard

Ints = tuple[int, ...]


class KernelError(ValueError):
    """A raw kernel does not compile."""


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


class Gpu:
    """One GPU and the kernels that are compiled for it."""

    def __init__(self, cupy: Any, number: int) -> None:
        self.number, self._cupy = number, cupy
        self.device = cupy.cuda.Device(number)
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


class Current:
    """The GPU and the lane that the array library's calls go to, so that they are not set again and again."""

    def __init__(self) -> None:
        self._at: tuple[int, Lane] | None = None

    def enter(self, gpu: Gpu, lane: Lane) -> None:
        """Make a GPU and a lane's stream the current ones."""
        if self._at != (gpu.number, lane):
            gpu.device.use()
            lane.stream.use()
            self._at = gpu.number, lane

    def forget(self) -> None:
        """Others may have set something else."""
        self._at = None


@dataclass(frozen=True, slots=True)
class Shared:
    """What the devices of a backend share.

    Parameters
    ----------
    cupy : module
    kernels : mapping of str to RawKernel
        Attached kernels, by the operators' names.
    blocking : bool
        Wait after each operation.
    current : Current
    """

    cupy: Any
    kernels: Mapping[str, RawKernel]
    blocking: bool
    current: Current = field(default_factory=Current)
