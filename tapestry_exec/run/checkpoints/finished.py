"""Finished checkpoints: what they have, read by region, and where it lies for the devices that are left.

::

    saved       device 0   1   2   3         lost: 2
    rows        0-1  2-3  4-5  6-7
    left        device 0   1        2        rows 4-5 are read from the files, by those that are left
    layout      0-1,4  2-3,5       6-7
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise, product
from math import prod
from os import PathLike
from pathlib import Path
from typing import ClassVar

import numpy as np
from msgspec import Struct

from tapestry_exec.copies import Array
from tapestry_exec.run.checkpoints.folders import (
    Manifest,
    SavedBuffer,
    check_bytes,
    check_path,
    list_begun,
    list_finished,
    map_cells,
    read_manifest,
)
from tapestry_exec.run.stores import Slices, Source
from tapestry_plan.steps import Placed
from tapestry_sets.digits import Int64Array
from tapestry_sets.limits import Public, check_arguments, list_names, quote
from tapestry_sets.regions import Box, DisjointRegions, Region


class SavedTensor(Struct, frozen=True):
    """A tensor in the files of a checkpoint.

    Parameters
    ----------
    path : str
    buffers : tuple of SavedBuffer
        Which together have all its cells.
    shape : tuple of int
    dtype : str
    """

    path: str
    buffers: tuple[SavedBuffer, ...]
    shape: tuple[int, ...]
    dtype: str

    def read(self, where: Slices) -> Array:
        """The cells of some slices."""
        axes = [range(n)[one] for one, n in zip(where, self.shape, strict=True)]
        out: Array = np.empty([len(axis) for axis in axes], self.dtype)
        for one in self.buffers:
            spans = [_find_span(axis, a, a + n) for axis, a, n in zip(axes, one.start, one.shape, strict=True)]
            if all(low < high for low, high in spans):
                cells = map_cells(Path(self.path), one)
                there = tuple(
                    slice(axis[low] - a, axis[high - 1] - a + 1, axis.step)
                    for axis, (low, high), a in zip(axes, spans, one.start, strict=True)
                )
                out[tuple(slice(low, high) for low, high in spans)] = cells[there]
        return out


def _find_span(axis: range, low: int, high: int) -> tuple[int, int]:
    """Which positions of an ascending range lie in [low, high)."""
    first = max(0, -(-(low - axis.start) // axis.step))
    return first, max(first, min(len(axis), -(-(high - axis.start) // axis.step)))


class SavedSource(Source, frozen=True):
    """A tensor of a checkpoint as an input: devices read their regions from its files."""

    kind: ClassVar[str] = "checkpoint"

    def read(self, where: Slices) -> Array:
        """The cells of some slices."""
        found: Array = self.array.read(where)
        return found


def clip(one: SavedBuffer, shape: Sequence[int]) -> DisjointRegions:
    """The cells of a buffer that are the tensor's: without padding around it."""
    low = [max(a, 0) for a in one.start]
    high = [min(a + n, m) for a, n, m in zip(one.start, one.shape, shape, strict=True)]
    if any(a >= b for a, b in zip(low, high, strict=True)):
        return DisjointRegions(tuple(shape), [])
    return DisjointRegions(tuple(shape), [Region.from_bounds(tuple(shape), low, high)])


def place_left(buffers: Sequence[SavedBuffer], shape: tuple[int, ...], left: Sequence[int]) -> Placed:
    """Where a tensor lies on the devices that are left, with shares of what they do not have.

    Each cell is with the first device that has it, but where devices have all alike.
    """
    groups: list[tuple[list[int], DisjointRegions]] = []
    """Devices that have the same cells, with these."""
    for new, old in enumerate(left):
        mine = DisjointRegions(shape, [])
        for one in buffers:
            if one.device == old:
                mine = mine | clip(one, shape)
        same = next((each for each, theirs in groups if not mine.is_empty and is_same(mine, theirs)), None)
        if same is None:
            groups.append(([new], mine))
        else:
            same.append(new)
    own, taken = list[DisjointRegions](), DisjointRegions(shape, [])
    for _, mine in groups:
        own.append(mine - taken)
        taken = taken | mine
    for k, cells in _share(DisjointRegions.full(shape) - taken, [mine.size for mine in own]):
        own[k] = own[k] | cells
    boxes = [[box for region in mine.regions for box in _list_boxes(region)] for mine in own]
    return Placed({new: some for (each, _), some in zip(groups, boxes, strict=True) if some for new in each})


def is_same(one: DisjointRegions, other: DisjointRegions) -> bool:
    """Whether two sets have the same cells."""
    return one.size == other.size and (one - other).is_empty


def _share(missing: DisjointRegions, sizes: Sequence[int]) -> Iterator[tuple[int, DisjointRegions]]:
    """Shares of cells that nobody has, so that all have about as many; each box is cut along its longest axis."""
    if missing.is_empty:
        return
    even = -(-(missing.size + sum(sizes)) // len(sizes))
    lacking = list(accumulate((max(0, even - size) for size in sizes), initial=0))
    for box in (box for region in missing.regions for box in _list_boxes(region)):
        axis = max(range(len(box.shape)), key=lambda k: box.shape[k], default=None)
        if axis is None:  # the one cell of rank 0
            yield 0, DisjointRegions(missing.shape, [Region.full(missing.shape)])
            return
        cuts = [box.shape[axis] * each // lacking[-1] for each in lacking]
        for k, (low, high) in enumerate(pairwise(cuts)):
            if low < high:
                start, stop = list(box.start), [a + n for a, n in zip(box.start, box.shape, strict=True)]
                start[axis], stop[axis] = box.start[axis] + low, box.start[axis] + high
                yield k, DisjointRegions(missing.shape, [Region.from_bounds(missing.shape, start, stop)])


def _list_boxes(region: Region) -> Iterator[Box]:
    """The boxes that make up a region."""
    axes = []
    for runs in region.grids():
        points = np.sort(np.concatenate([_list_points(run.first, run.levels) for run in runs]))
        cuts = np.flatnonzero(np.diff(points) > 1) + 1
        axes.append([(int(part[0]), len(part)) for part in np.split(points, cuts)])
    for spans in product(*axes):
        yield Box(tuple(low for low, _ in spans), tuple(n for _, n in spans))


def _list_points(first: int, levels: Sequence[tuple[int, int]]) -> Int64Array:
    points = np.array([first], np.int64)
    for count, step in levels:
        points = (points[:, None] + step * np.arange(count)).reshape(-1)
    return points


class Checkpoint(Struct, frozen=True, metaclass=Public):
    """A finished checkpoint, whose bytes were found to be those that were written: `open_checkpoint` gives it.

    Parameters
    ----------
    path : str
        Its folder.
    manifest : Manifest

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from tapestry_exec import Checkpoints, open_checkpoint, run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.exp(ops.relu(g.input("x", (4, 6)), name="act"), name="last"), "y")
    >>> p, x = plan(g, Mesh(2), fix={"act": {"i0": 2}}, fuse=False), np.ones((4, 6), np.float32)
    >>> with tempfile.TemporaryDirectory() as there:
    ...     _ = run(p, {"x": x}, checkpoints=Checkpoints(there, after=["act"]))
    ...     found = open_checkpoint(there)
    >>> found.after, found.nbytes, [(one.device, one.tensor, one.shape) for one in found.manifest.buffers]
    ('act', 96, [(0, 'act', (2, 6)), (1, 'act', (2, 6))])
    """

    path: str
    manifest: Manifest

    def __repr__(self) -> str:
        return f"Checkpoint({quote(self.path)}: behind {quote(self.after)}, {self.nbytes:,} B)"

    @property
    def after(self) -> str:
        """The stage behind which it was saved.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from tapestry_exec import Checkpoints, open_checkpoint, run
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (4, 6)), name="act"), "y")
        >>> with tempfile.TemporaryDirectory() as there:
        ...     saving = Checkpoints(there, after=["act"])
        ...     _ = run(plan(g, Mesh(2)), {"x": np.ones((4, 6), np.float32)}, checkpoints=saving)
        ...     open_checkpoint(there).after
        'act'
        """
        return self.manifest.after

    @property
    def nbytes(self) -> int:
        """Bytes of the cells that it has.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from tapestry_exec import Checkpoints, open_checkpoint, run
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (4, 6)), name="act"), "y")
        >>> with tempfile.TemporaryDirectory() as there:
        ...     saving = Checkpoints(there, after=["act"])
        ...     _ = run(plan(g, Mesh(2)), {"x": np.ones((4, 6), np.float32)}, checkpoints=saving)
        ...     open_checkpoint(there).nbytes
        96
        """
        return sum(one.nbytes for one in self.manifest.buffers)

    @check_arguments(tensor="give the name of a tensor")
    def read(self, tensor: str) -> Source:
        """A tensor's cells, to be given to `run` as an input: each device reads its regions from the files.

        Parameters
        ----------
        tensor : str

        Returns
        -------
        Source
            Of which `read_whole` gives an array.

        Raises
        ------
        ValueError
            Where the checkpoint does not have all of the tensor's cells.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from tapestry_exec import Checkpoints, open_checkpoint, run
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (4, 2)), name="act"), "y")
        >>> with tempfile.TemporaryDirectory() as there:
        ...     saving = Checkpoints(there, after=["act"])
        ...     _ = run(plan(g, Mesh(2)), {"x": np.ones((4, 2), np.float32)}, checkpoints=saving)
        ...     open_checkpoint(there).read("act").read_whole().sum()
        np.float32(8.0)
        """
        mine = self._list_full(tensor)
        shape = self.manifest.shapes[tensor]
        missing = DisjointRegions.full(shape)
        for one in mine:
            missing = missing - clip(one, shape)
        if not missing.is_empty:
            raise ValueError(
                f"checkpoint {quote(self.path)} has not all cells of {quote(tensor)}: {missing.size:,} of "
                f"{prod(shape):,} are on no device behind {quote(self.after)}; read a tensor that is whole there"
            )
        return SavedSource(SavedTensor(self.path, tuple(mine), shape, mine[0].dtype))

    @check_arguments(tensors="give names in a list, as ['w']", devices="give those that are left, as [0, 1, 3]")
    def layout(self, tensors: Iterable[str], devices: Sequence[int] | None = None) -> dict[str, Placed]:
        """Where tensors lie, as `plan` takes it, for the devices that are left.

        Cells that only lost devices had are read from the files: those that are left get shares of them, the more the
        less they have themselves.

        Parameters
        ----------
        tensors : iterable of str
            Inputs of the graph that is planned.
        devices : sequence of int, optional
            Those that are left, by their numbers in the checkpoint: the first one is device 0 of the new plan. All of
            them by default.

        Returns
        -------
        dict of str to Placed

        Raises
        ------
        ValueError
            For tensors that the checkpoint does not have whole, and devices that it does not know or are given twice.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from tapestry_exec import Checkpoints, deploy, open_checkpoint, run
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("w", (8, 2)), name="act"), "new_w")
        >>> saving, w = {"after": ["act"]}, np.ones((8, 2), np.float32)
        >>> with tempfile.TemporaryDirectory() as there:
        ...     with deploy(plan(g, Mesh(4), tie={"new_w": "w"}), carry={"new_w": "w"}) as placed:
        ...         _ = placed.run({"w": w}, checkpoints=Checkpoints(there, **saving))
        ...     found = open_checkpoint(there)
        ...     three = plan(g, Mesh(3), layout=found.layout(["w"], devices=[0, 1, 3]))
        ...     run(three, {"w": found.read("w")}).outputs["new_w"].sum(), three.nbytes_placed
        (np.float32(16.0), (20, 20, 24))
        """
        left = list(range(self.manifest.devices)) if devices is None else list(devices)
        wrong = [d for d in left if not 0 <= d < self.manifest.devices or left.count(d) > 1]
        if wrong or not left:
            raise ValueError(
                f"layout: devices are {quote(left)}; give each device that is left once, of 0 to "
                f"{self.manifest.devices - 1}"
            )
        found = {}
        for tensor in tensors:
            self.read(tensor)
            found[tensor] = place_left(self._list_full(tensor), self.manifest.shapes[tensor], left)
        return found

    def _list_full(self, tensor: str) -> list[SavedBuffer]:
        """The buffers that have all cells of their boxes."""
        every = [one for one in self.manifest.buffers if one.is_full and one.part < 0]
        mine = [one for one in every if one.tensor == tensor]
        if not mine:
            known = list_names(sorted({one.tensor for one in every}), tensor, "tensors")
            raise ValueError(f"checkpoint {quote(self.path)} has no cells of {quote(tensor)}; {known}")
        return mine


@check_arguments(path="give the folder that checkpoints were saved to, or that of one")
def open_checkpoint(path: str | PathLike[str]) -> Checkpoint:
    """The last finished checkpoint of a folder, or the one that a folder is; all its bytes are held against their sums.

    Parameters
    ----------
    path : path

    Returns
    -------
    Checkpoint

    Raises
    ------
    ValueError
        Where there is none, or none that was finished, or it is damaged.

    Examples
    --------
    >>> import tempfile
    >>> from tapestry_exec import open_checkpoint
    >>> with tempfile.TemporaryDirectory() as there:  # doctest: +ELLIPSIS
    ...     open_checkpoint(there)
    Traceback (most recent call last):
        ...
    ValueError: checkpoint: the folder '...' has none; give the one that Checkpoints(path) saved to
    """
    check_path("open_checkpoint: path", path)
    folder = Path(os.path.abspath(path))
    if not os.path.isfile(folder / "manifest.json"):
        finished = list_finished(folder)
        if not finished:
            if not os.path.isdir(folder):
                raise ValueError(f"checkpoint: there is no folder {quote(str(folder))}; give one with checkpoints")
            if (folder.name.startswith(".") and folder.name.endswith(".begun")) or list_begun(folder):
                raise ValueError(
                    f"checkpoint: what is in the folder {quote(str(folder))} was begun and never finished: the run "
                    "ended before; run again, without resume"
                )
            if os.path.isfile(folder / "zarr.json"):
                read_manifest(folder)
            raise ValueError(
                f"checkpoint: the folder {quote(str(folder))} has none; give the one that Checkpoints(path) saved to"
            )
        folder = finished[-1][2]
    manifest = read_manifest(folder)
    check_bytes(folder, manifest)
    return Checkpoint(str(folder), manifest)
