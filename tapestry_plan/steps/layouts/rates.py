"""Rates: what devices and the links between them do in a second."""

from __future__ import annotations

from math import inf, isfinite

from msgspec import Struct

from tapestry_plan.steps import tuning
from tapestry_sets.limits import Public, Units, check_fields, quote


class Device(Struct, frozen=True, metaclass=Public):
    """The rates and the memory of one device; by default of a processor of a few cores.

    Parameters
    ----------
    flop_per_second : float
        Of products: operators that sum over an axis along which they read several operands, or read each cell very
        often (`tapestry_plan.search.prices.costs.seconds.is_product`).
    memory_nbytes_per_second : float
    launch_seconds : float
        What it takes to start one computation: of an operator's shard, or of a merge of partial results.
    memory_nbytes : int, optional
        Bytes that its arena may have: plans keep to them, as to the `memory_nbytes` of `plan`. Without it there is no
        limit.
    cell_flop_per_second : float, optional
        Of all other operators, which go through memory once or more for each thing that they do to a cell; the same
        as of products if not given.
    operand_seconds : float
        What it takes to start, for each operand that a shard or a merge reads or writes: an interpreter finds its
        array.
    packed_nbytes_per_second : float, optional
        Bytes of operands that a contraction packs in a second before it multiplies them: BLAS on a processor lays
        each of them out anew, windows of a convolution unfolded. Without it that takes no time of its own, as on GPUs,
        which load while they multiply.

    Examples
    --------
    >>> from tapestry_plan import Device, Graph, Mesh, plan
    >>> fast, slow = Device(flop_per_second=3e12), Device(flop_per_second=1e12)
    >>> mesh = Mesh(2, device=[fast, slow])
    >>> mesh.device[1].cell_rate == 1e12
    True
    """

    flop_per_second: float = tuning.FLOP_PER_SECOND
    memory_nbytes_per_second: float = tuning.MEMORY_NBYTES_PER_SECOND
    launch_seconds: float = tuning.LAUNCH_SECONDS
    memory_nbytes: int | None = None
    cell_flop_per_second: float | None = None
    operand_seconds: float = 0.0
    packed_nbytes_per_second: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        _check_rate("Device", "flop_per_second", self.flop_per_second)
        _check_rate("Device", "memory_nbytes_per_second", self.memory_nbytes_per_second)
        _check_wait("Device", "launch_seconds", self.launch_seconds)
        _check_wait("Device", "operand_seconds", self.operand_seconds)
        if self.cell_flop_per_second is not None:
            _check_rate("Device", "cell_flop_per_second", self.cell_flop_per_second)
        if self.packed_nbytes_per_second is not None:
            _check_rate("Device", "packed_nbytes_per_second", self.packed_nbytes_per_second)
        if self.memory_nbytes is not None and self.memory_nbytes <= 0:
            raise ValueError(
                f"Device: memory_nbytes is {quote(self.memory_nbytes)}, it must be > 0; leave it out for no limit"
            )

    @property
    def cell_rate(self) -> float:
        """Flop a second of operators other than products.

        Examples
        --------
        >>> from tapestry_plan import Device
        >>> Device(flop_per_second=1e13).cell_rate, Device(flop_per_second=1e13, cell_flop_per_second=2e12).cell_rate
        (10000000000000.0, 2000000000000.0)
        """
        return self.cell_flop_per_second or self.flop_per_second

    @property
    def packing_rate(self) -> float:
        """Bytes of operands that a contraction packs in a second: infinite where that takes no time of its own.

        Examples
        --------
        >>> from tapestry_plan import Device
        >>> Device().packing_rate, Device(packed_nbytes_per_second=2e10).packing_rate
        (inf, 20000000000.0)
        """
        return self.packed_nbytes_per_second or inf


class Link(Struct, frozen=True, metaclass=Public):
    """What a device sends and receives through, both at once.

    Parameters
    ----------
    latency_seconds : float
        Before the first byte of each message.
    nbytes_per_second : float
        In each of the two directions.
    run_seconds : float
        For each contiguous run of cells that is packed at one end of a message, or unpacked at its other end: what
        processors take that copy them, where devices share a memory. Networks and GPUs have none, which is the default.

    Examples
    --------
    >>> from tapestry_plan import Link, Mesh
    >>> near, far = Link(1e-6, 3e11), Link(2e-5, 2e10)  # within a machine, and between two
    >>> Mesh((2, 8), names=("machine", "gpu"), link={"machine": far, "gpu": near})
    Mesh(machine:2, gpu:8; links 20 us + 20 GB/s and 1 others; devices 0.1 TFLOP/s, 20 GB/s)
    """

    latency_seconds: float = tuning.LATENCY_SECONDS
    nbytes_per_second: float = tuning.NBYTES_PER_SECOND
    run_seconds: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        _check_wait("Link", "latency_seconds", self.latency_seconds)
        _check_rate("Link", "nbytes_per_second", self.nbytes_per_second)
        _check_wait("Link", "run_seconds", self.run_seconds)


def tell_link(link: Link) -> str:
    """How long a message takes to begin, how fast it is then, and what a run takes beside its bytes, if anything.

    Examples
    --------
    >>> from tapestry_plan import Link
    >>> tell_link(Link(2e-5, 3e11)), tell_link(Link(2e-5, 1e10, 2e-9))
    ('20 us + 300 GB/s', '20 us + 10 GB/s + 2 ns a run')
    """
    told = f"{Units().seconds(link.latency_seconds)} + {link.nbytes_per_second / 1e9:g} GB/s"
    return told + (f" + {link.run_seconds * 1e9:g} ns a run" if link.run_seconds else "")


def _check_rate(what: str, name: str, value: float) -> None:
    if not isfinite(value) or value <= 0:
        raise ValueError(f"{what}: {name} is {value}, it must be finite and > 0")


def _check_wait(what: str, name: str, value: float) -> None:
    if not isfinite(value) or value < 0:
        raise ValueError(f"{what}: {name} is {value}, it must be finite and >= 0")
