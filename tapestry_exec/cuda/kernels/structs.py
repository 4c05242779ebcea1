"""Launches, and the structs that kernels take by value: the Python side of the structs in kernels.cu.

A launch's work is written once into structs that go by value with it, as much as fits into its parameters; only
addresses change from launch to launch. A test compares them with what the compiler made of the same structs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_exec.copies import RANK, GuardedDigits, normal_digits
from tapestry_exec.cuda.tuning import GUARDS, PARTS, TRANSFERS
from tapestry_sets.digits import Digits, Ints

CStruct = NDArray[np.void]
"""A C struct by value: a structured array of rank 0."""

SOURCE = files("tapestry_exec.cuda").joinpath("kernels.cu").read_text(encoding="utf-8")
"""CUDA C++ of all kernels."""
OPTIONS = ("-std=c++17", "-fmad=false")
"""Of NVRTC: products and sums round separately, as NumPy's."""


def struct_of(*fields: tuple[Any, ...]) -> np.dtype[Any]:
    """A C struct: of names with spaces between them, the type that these fields have, and their length for arrays.

    Examples
    --------
    >>> struct_of(("low high", np.int64), ("steps", np.uint32, 2)).names
    ('low', 'high', 'steps')
    """
    return np.dtype([(name, *type_) for names, *type_ in fields for name in names.split()], align=True)


INDEX = "extents magics shifts", np.uint32, (RANK,)
"""What divides a cell's number into its index: see `write_index`."""
GUARD = struct_of(("coefficients", np.int64, (RANK,)), ("low high", np.int64))
TRANSFER = struct_of(
    ("dst src", np.int64),
    ("dst_strides src_strides", np.int64, (RANK,)),
    INDEX,
    ("total first_tile rank first_guard guards spare", np.uint32),
)
BATCH = struct_of(("count tiles", np.uint32), ("transfers", TRANSFER, (TRANSFERS,)), ("guards", GUARD, (GUARDS,)))
PART = struct_of(("address", np.uint64), ("strides", np.int64, (RANK,)))
MERGE = struct_of(("out", PART), INDEX, ("total rank parts fan_in", np.uint32), ("from", PART, (PARTS,)))
SCATTER = struct_of(
    ("out at updates", PART), ("at_turn updates_turn", np.int64), INDEX, ("total rank turns bits", np.uint32)
)
CONVOLUTION = struct_of(
    ("x_strides w_strides out_strides", np.int64, (5,)),
    ("extents kernel strides dilations", np.uint32, (3,)),
    ("channels width depth cells cell_tiles channel_tiles groups activation", np.uint32),
)
WORDS = struct_of(("first run", np.int64), ("strides", np.int64, (RANK,)), INDEX, ("total rank key0 key1", np.uint32))


class Launch(Struct, frozen=True, eq=False):
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


def write_index(work: CStruct, dims: Ints) -> None:
    """Write an index's extents, and the magic numbers that divide by them."""
    divisors = [divisor(n) for n in dims]
    work["extents"] = reverse_to_rank(dims)
    work["magics"] = reverse_to_rank([magic for magic, _ in divisors])
    work["shifts"] = reverse_to_rank([shift for _, shift in divisors])
    work["total"], work["rank"] = prod(dims), len(dims)


def walk_parts(struct: np.dtype[Any], dims: Ints, strides: Sequence[Ints]) -> Iterator[tuple[CStruct, Any, Ints]]:
    """Parts of a walk over cells of several arrays, each as one kernel takes it.

    Yields
    ------
    struct
        With the part's index in it.
    list of list of int
        For each array its strides in cells, as the kernels number axes.
    tuple of int
        For each array the cell at which the part begins.
    """
    box = Digits((0,) * len(strides), tuple(zip(dims, *strides, strict=True)))
    for part, _ in normal_digits(GuardedDigits(box)):
        counts, *steps = part.columns()
        work = np.zeros((), struct)
        write_index(work, counts)
        yield work, [reverse_to_rank(each) for each in steps], part.origin


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
