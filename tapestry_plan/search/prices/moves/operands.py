"""How the operands of a consumer have their blocks of a tensor."""

from __future__ import annotations

from msgspec import Struct

from tapestry_plan.search.sums.elimination import IntArray

PADDED, HOSTED, PARTED, FLAT, ANYHOW, BESIDE, FREE = (1 << k for k in range(7))
"""How an operand has its block of a tensor, as bits.

``PADDED``: it has cells outside of the tensor, and is gathered in any case; which box that is stands in front of the
bits. ``HOSTED``: it is made in the block of a view where the device has no more than is read. ``PARTED``: what the
device made may be made in the block, its rows apart; ``FLAT``: as one run of cells; ``ANYHOW``: wherever it lies,
in several blocks too, for bounds. ``BESIDE``: the tensor lies in two places, so that nothing is made in its block.
``FREE``: nothing is priced.
"""
BOX = FREE.bit_length()
"""The first bit of the number of a padded block's box, see `RegionTable.number_box`."""


class OperandBlocks(Struct, frozen=True):
    """The blocks of a tensor that the operands of one consumer take, one operand after the other.

    Parameters
    ----------
    numbers : tuple of array of int64, (classes, devices)
        For each operand the region numbers of the tensor's cells.
    ways : tuple of array of int64, (classes, devices)
        For each operand how it has its block; empty where blocks lie apart and have no padding.
    loose : tuple of array of int64, (classes, devices)
        For each operand the axes, as bits of a number, on which its buffer reaches further than the tensor's cells that
        it takes: no run goes on past their ends. Empty where none does.
    """

    numbers: tuple[IntArray, ...]
    ways: tuple[IntArray, ...] = ()
    loose: tuple[IntArray, ...] = ()
