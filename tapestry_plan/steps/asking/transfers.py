"""What goes from device to device: a row for each copy of a plan, with who makes, who reads, and why.

::

    step  from  to  tensor  made by  read by   bytes  why
      17     0   1  relu    relu     conv_1      896  conv_1 on device 1 reads cells that device 0 made
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, overload

import msgspec
import numpy as np
from msgspec import Struct

from tapestry_plan.ir import Graph, OpNode, map_makers
from tapestry_plan.steps.documents import to_plain
from tapestry_plan.steps.layouts.runs import count_copy_runs
from tapestry_plan.steps.step import HOST, Buffer, Copy, Step
from tapestry_plan.steps.tags import name_stage
from tapestry_plan.steps.tuning import SHOWN_LINKS, SHOWN_ROWS
from tapestry_sets.draw import align, as_html
from tapestry_sets.limits import FrozenDict, Public, cut_text, escape_controls, quote, tell_count
from tapestry_sets.regions import Box, Region


class PlannedTransfer(Struct, frozen=True, metaclass=Public):
    """Cells that go from one device to another.

    Parameters
    ----------
    step : int
        Number of the plan's step.
    source, target : int
        Devices.
    tensor : str
    producer : str
        The operator that makes the tensor; "input" or "constant" of one that is given.
    consumer : str
        The operator that reads the cells; the stage, as "landing t" or "output t", where none does.
    regions : tuple of Region
        The cells; no two have one in common.
    nbytes : int
    runs : int
        Of how many contiguous runs of memory the cells are where they are packed and where they are unpacked, together.
    part : int
        Which partial result they are of; -1 of complete values.
    why : str
        In words.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"))
    >>> row = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}}).transfers(source=1)[0]
    >>> row.source, row.target, row.tensor, row.nbytes, row.cells
    (1, 0, 'rows', 24, 'cells [2, 4)×[0, 3)')
    >>> row.runs  # half of each of two rows, out of whole ones; half of two rows of four halves
    3
    >>> [region.bounds() for region in row.regions]
    [((2, 0), (4, 3))]
    """

    step: int
    source: int
    target: int
    tensor: str
    producer: str
    consumer: str
    regions: tuple[Region, ...]
    nbytes: int
    runs: int
    part: int
    why: str

    def __repr__(self) -> str:
        tensor, reader = (cut_text(quote(name), 40) for name in (self.tensor, self.consumer))
        what = cut_text(self.cells, 60)
        where = f"from device {self.source} to {self.target}"
        return f"PlannedTransfer(step {self.step}: {self.nbytes:,} B of {tensor}, {what}, {where} for {reader})"

    @property
    def cells(self) -> str:
        """The box around the cells in words, and how many of it they are where they are not all.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows")[:, ::2].T, name="columns"))
        >>> plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}}).transfers(source=1)[0].cells
        '4 cells in [2, 4)×[0, 3)'
        """
        return tell_cells(self.regions)


def tell_cells(regions: Sequence[Region]) -> str:
    """The box around some cells in words, and how many of it they are where they are not all.

    Examples
    --------
    >>> from tapestry_sets import Region
    >>> tell_cells([Region.from_slices((4, 6), np.s_[2:, ::2])])
    '6 cells in [2, 4)×[0, 5)'
    """
    bounds = [region.bounds() for region in regions]
    lows, highs = zip(*(each for each in bounds if each is not None), strict=True)
    low, high = (tuple(map(pick, zip(*each, strict=True))) for pick, each in ((min, lows), (max, highs)))
    told = "×".join(f"[{a}, {b})" for a, b in zip(low, high, strict=True)) or "one cell"
    count = sum(region.size for region in regions)
    return f"cells {told}" if count == Box.from_bounds(low, high).size else f"{count:,} cells in {told}"


COLUMNS = PlannedTransfer.__struct_fields__
TRANSFER_COLUMNS: Mapping[str, str] = {
    "step": "step", "source": "from", "target": "to", "tensor": "tensor", "producer": "made by",
    "consumer": "read by", "nbytes": "bytes", "runs": "runs", "why": "why",
}  # fmt: skip
"""What a table shows, and what it calls it; runs where some link's take time."""
NUMBERS = ("step", "source", "target", "nbytes", "runs")
"""Its columns of numbers."""


class PlannedTransfers(Struct, frozen=True, dict=True, metaclass=Public):
    """Transfers of a plan, in the order of its steps: a sequence, and a table where it is shown.

    Parameters
    ----------
    rows : tuple of PlannedTransfer
    prices_runs : bool
        Whether runs of memory take time on the plan's mesh, so that the table shows them.
    elsewhere : tuple of (source, target, bytes)
        Where there are none of those that were asked for: what the plan moves all the same, the most first.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"))
    >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
    >>> found = p.transfers()
    >>> found, found[0].tensor
    (PlannedTransfers(2 transfers on 2 links, 48 B), 'rows')
    >>> p.transfers(0, 0)
    PlannedTransfers(nothing that was asked for; the plan moves 48 B from 1 to 0 (24 B), from 0 to 1 (24 B))
    """

    rows: tuple[PlannedTransfer, ...]
    prices_runs: bool = False
    elsewhere: tuple[tuple[int, int, int], ...] = ()

    @overload
    def __getitem__(self, at: int) -> PlannedTransfer: ...
    @overload
    def __getitem__(self, at: slice) -> PlannedTransfers: ...
    def __getitem__(self, at: int | slice) -> PlannedTransfer | PlannedTransfers:
        return self._pick(self.rows[at]) if isinstance(at, slice) else self.rows[at]

    def _pick(self, rows: tuple[PlannedTransfer, ...]) -> PlannedTransfers:
        """Some of them; where these are none, with where the others go."""
        elsewhere = self.elsewhere
        if not rows and self.rows:
            elsewhere = tuple((*link, nbytes) for link, nbytes in self.nbytes_by("source", "target").items())
        return PlannedTransfers(rows, self.prices_runs, elsewhere)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[PlannedTransfer]:
        return iter(self.rows)

    @cached_property
    def _by_tensor(self) -> Mapping[str, tuple[PlannedTransfer, ...]]:
        found: dict[str, list[PlannedTransfer]] = {}
        for row in self.rows:
            found.setdefault(row.tensor, []).append(row)
        return FrozenDict((name, tuple(mine)) for name, mine in found.items())

    @property
    def nbytes(self) -> int:
        """Bytes of all of them.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"))
        >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
        >>> p.transfers(tensor="rows").nbytes == p.nbytes_moved
        True
        """
        return sum(row.nbytes for row in self.rows)

    def nbytes_by(self, *columns: str) -> dict[Any, int]:
        """Bytes for each value of a column, or for each tuple of values of several, the most first.

        Parameters
        ----------
        *columns : "source", "target", "tensor", "producer", "consumer", "part" or "step"

        Raises
        ------
        ValueError
            For none, or another column.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"))
        >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
        >>> p.transfers().nbytes_by("tensor"), p.transfers().nbytes_by("source", "target")
        ({'rows': 48}, {(1, 0): 24, (0, 1): 24})
        """
        allowed = [name for name in COLUMNS if name not in ("regions", "nbytes", "runs", "why")]
        wrong = [name for name in columns if name not in allowed]
        if wrong or not columns:
            raise ValueError(
                f"nbytes_by: {', '.join(map(repr, wrong)) or 'no column'}; give some of {', '.join(allowed)}"
            )
        found: Counter[Any] = Counter()
        for row in self.rows:
            key = tuple(getattr(row, name) for name in columns)
            found[key if len(columns) > 1 else key[0]] += row.nbytes
        return dict(found.most_common())

    def to_pandas(self) -> Any:
        """A data frame with a column for each field.

        Raises
        ------
        ImportError
            When pandas is not installed.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"))
        >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
        >>> p.transfers().to_pandas().groupby("source").nbytes.sum()  # doctest: +SKIP
        source
        0    24
        1    24
        Name: nbytes, dtype: int64
        """
        return import_module("pandas").DataFrame({name: [getattr(row, name) for row in self.rows] for name in COLUMNS})

    def to_json(self) -> str:
        """A JSON list with an object for each; regions as plans' documents have them.

        Examples
        --------
        >>> import json
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"))
        >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
        >>> [row["nbytes"] for row in json.loads(p.transfers().to_json())]
        [24, 24]
        """
        return msgspec.json.encode(to_plain(self.rows)).decode()

    def __repr__(self) -> str:
        if self.elsewhere:
            return f"PlannedTransfers({self.tell_elsewhere()})"
        links = len({(row.source, row.target) for row in self.rows})
        return (
            f"PlannedTransfers({tell_count(len(self), 'transfer')} on {tell_count(links, 'link')}, {self.nbytes:,} B)"
        )

    def __str__(self) -> str:
        """A table in plain text."""
        cells, numbers = self._list_cells()
        return "\n".join([*align(cells, numbers=numbers), *self._tell_rest()])

    def _repr_html_(self) -> str:
        cells, numbers = self._list_cells()
        return as_html(cells, numbers=numbers) + "".join(f"<p>{line}</p>" for line in self._tell_rest())

    def _list_cells(self) -> tuple[list[list[str]], list[int]]:
        """The table's rows, heads first, and which columns are of numbers."""
        names = [name for name in TRANSFER_COLUMNS if name != "runs" or self.prices_runs]
        rows = [
            [
                f"{value:,}" if name in ("nbytes", "runs") else escape_controls(str(value), "")
                for name in names
                for value in (getattr(row, name),)
            ]
            for row in self.rows[:SHOWN_ROWS]
        ]
        return [[TRANSFER_COLUMNS[name] for name in names], *rows], [
            k for k, name in enumerate(names) if name in NUMBERS
        ]

    def tell_elsewhere(self, tell: Callable[[int], str] = "{:,} B".format) -> str:
        """Where bytes go, if none of those that were asked for do, in words; ``tell(nbytes)`` writes how many.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"))
        >>> p = plan(g, Mesh(3), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
        >>> p.transfers(target=2).tell_elsewhere()
        'nothing that was asked for; the plan moves 48 B from 1 to 0 (24 B), from 0 to 1 (24 B)'
        """
        if not self.elsewhere:
            return "" if self.rows else "nothing goes from device to device"
        shown = [f"from {source} to {target} ({tell(nbytes)})" for source, target, nbytes in self.elsewhere]
        if len(shown) > SHOWN_LINKS:
            shown[SHOWN_LINKS:] = [f"and over {tell_count(len(shown) - SHOWN_LINKS, 'more link')}"]
        whole = tell(sum(nbytes for _, _, nbytes in self.elsewhere))
        return f"nothing that was asked for; the plan moves {whole} {', '.join(shown)}"

    def _tell_rest(self) -> list[str]:
        if not self.rows:
            return [self.tell_elsewhere()]
        return [f"and {len(self) - SHOWN_ROWS:,} more; {self.nbytes:,} B in all"] if len(self) > SHOWN_ROWS else []


def list_transfers(graph: Graph, buffers: Mapping[int, Buffer], steps: Sequence[Step]) -> Iterator[PlannedTransfer]:
    """The copies of a plan's steps that go from one device to another."""
    makers = map_makers(graph)
    for number, step in enumerate(steps):
        if not isinstance(step, Copy) or step.src == HOST:
            continue
        source, target = buffers[step.src], buffers[step.dst]
        if source.device == target.device:
            continue
        nbytes = sum(region.size for region in step.regions) * np.dtype(source.dtype).itemsize
        producer = tell_producer(graph, makers, step.tensor)
        yield PlannedTransfer(
            number, source.device, target.device, step.tensor, producer, step.node, step.regions, nbytes,
            count_copy_runs(step, buffers), source.part, _tell_why(graph, step, source, target, producer),
        )  # fmt: skip


def tell_producer(graph: Graph, makers: Mapping[str, OpNode], tensor: str) -> str:
    """The operator that makes a tensor; "input" or "constant" of one that is given."""
    return makers[tensor].name if tensor in makers else graph.stored[tensor].kind


def _tell_why(graph: Graph, step: Copy, source: Buffer, target: Buffer, producer: str) -> str:
    is_given = producer in ("input", "constant")
    cells = f"part {source.part} of its sums" if source.part >= 0 else "cells"
    given = f"{cells} that " + (f"lie on device {source.device}" if is_given else f"device {source.device} made")
    if step.node in graph.nodes:
        verb = "merges" if source.part >= 0 else "reads"
        return f"{step.node} on device {target.device} {verb} {given}"
    if step.node == name_stage("output", step.tensor):
        return f"the output is brought to device {target.device}: {given}"
    return f"it lands on device {target.device}, where it is read from: {given}"
