"""Launches, and the structs that kernels take by value: the Python side of the structs in kernels.cu.

A launch's work is written once into structs that go by value with it, as much as fits into its parameters; only
addresses change from launch to launch. `layout_of` is compared with what the compiler made of the same structs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapestry_exec.copies import RANK
from tapestry_exec.cuda.tuning import GUARDS, PARTS, TRANSFERS
from tapestry_sets.digits import Ints

Struct = NDArray[np.void]
"""A C struct by value: a structured array of rank 0."""

SOURCE = files("tapestry_exec.cuda").joinpath("kernels.cu").read_text(encoding="utf-8")
"""CUDA C++ of all kernels."""
OPTIONS = ("-std=c++17", "-fmad=false")
"""Of NVRTC: products and sums round separately, as NumPy's."""

GUARD = np.dtype([("coefficients", np.int64, (RANK,)), ("low", np.int64), ("high", np.int64)], align=True)
TRANSFER = np.dtype(
    [
        ("dst", np.int64),
        ("src", np.int64),
        ("dst_strides", np.int64, (RANK,)),
        ("src_strides", np.int64, (RANK,)),
        ("extents", np.uint32, (RANK,)),
        ("magics", np.uint32, (RANK,)),
        ("shifts", np.uint32, (RANK,)),
        ("total", np.uint32),
        ("first_tile", np.uint32),
        ("rank", np.uint32),
        ("first_guard", np.uint32),
        ("guards", np.uint32),
        ("spare", np.uint32),
    ],
    align=True,
)
BATCH = np.dtype(
    [
        ("count", np.uint32),
        ("tiles", np.uint32),
        ("transfers", TRANSFER, (TRANSFERS,)),
        ("guards", GUARD, (GUARDS,)),
    ],
    align=True,
)
PART = np.dtype([("address", np.uint64), ("strides", np.int64, (RANK,))], align=True)
MERGE = np.dtype(
    [
        ("out", PART),
        ("extents", np.uint32, (RANK,)),
        ("magics", np.uint32, (RANK,)),
        ("shifts", np.uint32, (RANK,)),
        ("total", np.uint32),
        ("rank", np.uint32),
        ("parts", np.uint32),
        ("fan_in", np.uint32),
        ("from", PART, (PARTS,)),
    ],
    align=True,
)
SCATTER = np.dtype(
    [
        ("out", PART),
        ("at", PART),
        ("updates", PART),
        ("at_turn", np.int64),
        ("updates_turn", np.int64),
        ("extents", np.uint32, (RANK,)),
        ("magics", np.uint32, (RANK,)),
        ("shifts", np.uint32, (RANK,)),
        ("total", np.uint32),
        ("rank", np.uint32),
        ("turns", np.uint32),
        ("bits", np.uint32),
    ],
    align=True,
)
CONVOLUTION = np.dtype(
    [
        ("x_strides", np.int64, (5,)),
        ("w_strides", np.int64, (5,)),
        ("out_strides", np.int64, (5,)),
        ("extents", np.uint32, (3,)),
        ("kernel", np.uint32, (3,)),
        ("strides", np.uint32, (3,)),
        ("dilations", np.uint32, (3,)),
        ("channels", np.uint32),
        ("width", np.uint32),
        ("depth", np.uint32),
        ("cells", np.uint32),
        ("cell_tiles", np.uint32),
        ("channel_tiles", np.uint32),
        ("groups", np.uint32),
        ("activation", np.uint32),
    ],
    align=True,
)
WORDS = np.dtype(
    [
        ("first", np.int64),
        ("run", np.int64),
        ("strides", np.int64, (RANK,)),
        ("extents", np.uint32, (RANK,)),
        ("magics", np.uint32, (RANK,)),
        ("shifts", np.uint32, (RANK,)),
        ("total", np.uint32),
        ("rank", np.uint32),
        ("key0", np.uint32),
        ("key1", np.uint32),
    ],
    align=True,
)
STRUCTS = GUARD, TRANSFER, BATCH, PART, MERGE, SCATTER, CONVOLUTION, WORDS
"""What is passed by value, in the order in which the kernel `layout` tells of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One launch of a kernel.

    Parameters
    ----------
    entry : str
        The kernel's name.
    grid, block : tuple of int
        Extents along x, y and z.
    args : tuple
        NumPy scalars, addresses as np.uint64, and structured arrays of rank 0 for structs by value.
    shared_nbytes : int
        Dynamic shared memory.
    """

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Any, ...]
    shared_nbytes: int = 0


def layout_of(structs: Sequence[np.dtype[Any]] = STRUCTS) -> list[int]:
    """Size of each struct, then offsets of its fields: what the kernel `layout` finds on the device.

    Examples
    --------
    >>> layout_of([GUARD])
    [80, 0, 64, 72]
    """
    found: list[int] = []
    for struct in structs:
        assert struct.fields is not None
        found += [struct.itemsize, *(struct.fields[name][1] for name in struct.names or ())]
    return found


def write_index(work: Struct, dims: Ints) -> None:
    """Write an index's extents, and the magic numbers that divide by them."""
    divisors = [divisor(n) for n in dims]
    work["extents"] = reverse_to_rank(dims)
    work["magics"] = reverse_to_rank([magic for magic, _ in divisors])
    work["shifts"] = reverse_to_rank([shift for _, shift in divisors])
    work["total"], work["rank"] = prod(dims), len(dims)


def reverse_to_rank(values: Sequence[int]) -> list[int]:
    """Values by axis as the kernels number them: the innermost axis first, zeros up to the largest rank."""
    return [*reversed(values), *(0,) * (RANK - len(values))]


def divisor(n: int) -> tuple[int, int]:
    """Magic number and shift: x // n == (x·magic // 2³² + x) >> shift for x and n below 2³¹.

    Examples
    --------
    >>> magic, shift = divisor(7)
    >>> (((1000 * magic) >> 32) + 1000) >> shift
    142

    References
    ----------
    Granlund and Montgomery, "Division by invariant integers using multiplication", 1994.
    """
    shift = (n - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - n)) // n + 1, shift


def check_addresses(what: str, unit: int, addresses: Iterable[int]) -> None:
    for address in addresses:
        if address % unit:
            raise ValueError(f"{what}: the address {address} must be a multiple of {unit}, the size of a cell")
