"""What an operator's shards read: how much lies where they run, and one of the places from where the rest comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from tapestry_plan.ir import Graph
from tapestry_plan.steps.asking.transfers import PlannedTransfer, PlannedTransfers
from tapestry_plan.steps.layouts.cells import unite
from tapestry_plan.steps.layouts.reads import Reads
from tapestry_sets.limits import escape_controls
from tapestry_sets.regions import Box


class OperandReads(Struct, frozen=True):
    """What the shards of an operator read of one stored tensor.

    Parameters
    ----------
    tensor, kind : str
        The tensor; whether it is an "input", a "constant" or a "result".
    nbytes_read : int
        Bytes that shards read, of all devices; cells that one of them reads several times count once.
    nbytes_received : int
        Bytes of these that come from other devices for this operator; of partial results each part counts.
    witness : PlannedTransfer, optional
        One of the transfers that bring them; None where nothing comes.
    has_landed : bool
        Whether the tensor was moved, or merged, to where it lands before it is read.
    """

    tensor: str
    kind: str
    nbytes_read: int
    nbytes_received: int
    witness: PlannedTransfer | None = None
    has_landed: bool = False

    def __str__(self) -> str:
        """In words, made from these numbers."""
        name = escape_controls(self.tensor, keep="")
        read = f"reads {self.nbytes_read:,} B of {self.kind} {name}"
        if self.witness is None:
            where = "landed" if self.has_landed else "is made" if self.kind == "result" else "is placed"
            return f"{read}, all of it where it {where}"
        one = self.witness
        part = f" (part {one.part} of its sums)" if one.part >= 0 else ""
        return (
            f"{read}; {self.nbytes_received:,} B come from other devices, as {one.cells}{part} "
            f"from device {one.source} to {one.target}"
        )


def list_reads(
    graph: Graph, node: str, placement: Mapping[int, Sequence[Box]], transfers: PlannedTransfers
) -> Iterator[OperandReads]:
    """What an operator's shards read, tensor by tensor.

    Parameters
    ----------
    graph : Graph
    node : str
    placement : mapping of int to boxes
        By device the index boxes that it computes.
    transfers : PlannedTransfers
        Of the plan.
    """
    reads, it = Reads(graph), graph.nodes[node]
    stored = dict.fromkeys(name for read in it.inputs for name in graph.source(read).stored)
    for name in stored:
        tensor, total = graph.stored[name], 0
        for boxes in placement.values():
            cells = [
                reads.of_operand(it, operand, box)[name]
                for box in boxes
                for operand, read in enumerate(it.inputs)
                if name in graph.source(read).stored
            ]
            total += unite(cells, tensor.shape).size * np.dtype(tensor.dtype).itemsize
        moved = transfers._by_tensor.get(name, ())
        mine = [row for row in moved if row.consumer == node]
        witness = max(mine, key=lambda row: row.nbytes, default=None)
        has_landed = any(row.consumer not in graph.nodes for row in moved)
        yield OperandReads(name, tensor.kind, total, sum(row.nbytes for row in mine), witness, has_landed)
