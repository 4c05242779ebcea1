"""Finished checkpoints: what they have, read by region, and plans that go on from it on the devices that are left."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from msgspec import Struct

from tapestry_exec.copies import Array
from tapestry_exec.run.checkpoints.folders import (
    Manifest,
    SavedBuffer,
    check_bytes,
    check_path,
    is_begun,
    list_begun,
    list_finished,
    map_cells,
    read_manifest,
)
from tapestry_exec.run.checkpoints.lost import clip, join, place_left
from tapestry_exec.run.stores import Slices, Source
from tapestry_plan.ir import Graph
from tapestry_plan.search import plan
from tapestry_plan.steps import HOST, Copy, Mesh, Placed, ShardPlan
from tapestry_sets.limits import Public, check_arguments, list_names, quote
from tapestry_sets.regions import DisjointRegions


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

        Cells that only lost devices had are read from the files: they go to those whose own cells they continue, so
        that each has one box, and else in shares to those that have few. `replan` also compares parts cut anew.

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
        ...     p = plan(g, Mesh(4), layout={"w": {0: 4}}, tie={"new_w": "w"})
        ...     with deploy(p, carry={"new_w": "w"}) as placed:
        ...         _ = placed.run({"w": w}, checkpoints=Checkpoints(there, **saving))
        ...     found = open_checkpoint(there)
        ...     three = plan(g, Mesh(3), layout=found.layout(["w"], devices=[0, 1, 3]))
        ...     run(three, {"w": found.read("w")}).outputs["new_w"].sum(), three.nbytes_placed
        (np.float32(16.0), (16, 24, 24))
        """
        left = self._list_left(devices, "layout")
        found = {}
        for tensor in tensors:
            self.read(tensor)
            found[tensor] = place_left(self._list_full(tensor), self.manifest.shapes[tensor], left)
        return found

    @check_arguments(
        tensors="give names in a list, as ['w']",
        devices="give those that are left, as [0, 1, 3]",
        runs="give how many are left",
    )
    def replan(
        self,
        graph: Graph,
        mesh: Mesh,
        tensors: Sequence[str],
        devices: Sequence[int] | None = None,
        runs: int = 1,
        **options: Any,
    ) -> ShardPlan:
        """The plan for the devices that are left that takes least until the last run: cells of lost devices included.

        Three ways are planned: tensors lie as `layout` says, lost cells with their neighbors, in uneven parts; in even
        parts, along the axes along which devices' cells differ now; and wherever the plan wants them. What a device
        begins with and did not have it reads over the link to its host, once; then each run takes the plan's seconds.
        Of ways that take as long the one counts that reads fewer bytes.

        Parameters
        ----------
        graph : Graph
        mesh : Mesh
            With as many devices as are left.
        tensors : sequence of str
            Inputs of the graph that are read from the checkpoint.
        devices : sequence of int, optional
            As of `layout`.
        runs : int
            How many are left.
        **options
            Of `plan`; in its `layout` other tensors.

        Returns
        -------
        ShardPlan
            `count_read` says what its devices read.

        Raises
        ------
        ValueError
            As `layout` and `plan`; for a mesh of another size, and `runs` below 1.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from tapestry_exec import Checkpoints, deploy, open_checkpoint
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("w", (16, 2)), name="act"), "new_w")
        >>> tie, w = {"new_w": "w"}, np.ones((16, 2), np.float32)
        >>> with tempfile.TemporaryDirectory() as there:
        ...     with deploy(plan(g, Mesh(4), layout={"w": {0: 4}}, tie=tie), carry=tie) as placed:
        ...         _ = placed.run({"w": w}, checkpoints=Checkpoints(there, after=["act"]))
        ...     found = open_checkpoint(there)
        >>> few = found.replan(g, Mesh(3), ["w"], devices=[0, 1, 3], runs=1, tie=tie)
        >>> [few.placement["act"][d][0].shape[0] for d in range(3)], found.count_read(few, ["w"], [0, 1, 3])
        ([4, 6, 6], (0, 16, 16))
        """
        left = self._list_left(devices, "replan")
        if mesh.size != len(left):
            raise ValueError(
                f"replan: the mesh has {mesh.size} devices, and {len(left)} are left; give Mesh({len(left)})"
            )
        if runs < 1:
            raise ValueError(f"replan: runs is {runs}; give 1 or more")
        others = dict(options.pop("layout", None) or {})
        ways: list[Mapping[str, Any]] = [self.layout(tensors, left)]
        even = {name: self._cut_evenly(name, left) for name in tensors}
        ways += [even, {}] if all(even.values()) else [{}]
        best: tuple[float, int, ShardPlan] | None = None
        for way in ways:
            made = plan(graph, mesh, layout={**others, **way}, **options)
            read = self.count_read(made, tensors, left)
            once = max(read) / mesh.host.nbytes_per_second + mesh.host.latency_seconds * any(read)
            taken = once + runs * made.seconds, sum(read)
            if best is None or taken < best[:2]:
                best = *taken, made
        assert best is not None, "there are two ways at least"
        return best[2]

    @check_arguments(
        tensors="give names in a list, as ['w']", devices="give those that are left, as [0, 1, 3]", plan="give a plan"
    )
    def count_read(
        self, plan: ShardPlan, tensors: Sequence[str], devices: Sequence[int] | None = None
    ) -> tuple[int, ...]:
        """Bytes that each device of a plan begins with, of some tensors, and did not have here.

        Parameters
        ----------
        plan : ShardPlan
            Of the devices that are left.
        tensors : sequence of str
            Inputs of its graph.
        devices : sequence of int, optional
            As of `layout`.

        Returns
        -------
        tuple of int

        Raises
        ------
        ValueError
            As `layout`.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from tapestry_exec import Checkpoints, deploy, open_checkpoint
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("w", (16, 2)), name="act"), "new_w")
        >>> tie, w = {"new_w": "w"}, np.ones((16, 2), np.float32)
        >>> with tempfile.TemporaryDirectory() as there:
        ...     with deploy(plan(g, Mesh(4), layout={"w": {0: 4}}, tie=tie), carry=tie) as placed:
        ...         _ = placed.run({"w": w}, checkpoints=Checkpoints(there, after=["act"]))
        ...     found = open_checkpoint(there)
        >>> anew = plan(g, Mesh(2), layout={"w": {0: 2}})
        >>> found.count_read(anew, ["w"], [0, 3])
        (32, 32)
        """
        left = self._list_left(devices, "count_read")
        wanted = {
            (name, device): DisjointRegions(self.manifest.shapes[name], []) for name in tensors for device in left
        }
        for step in plan.steps:
            if isinstance(step, Copy) and step.src == HOST and step.piece is None and step.tensor in tensors:
                key = step.tensor, left[plan.buffers[step.dst].device]
                wanted[key] = wanted[key] | DisjointRegions(wanted[key].shape, step.regions)
        found = dict.fromkeys(left, 0)
        for (name, device), cells in wanted.items():
            if not cells.is_empty:
                mine = self._list_full(name)
                rest = cells - join(mine, self.manifest.shapes[name], device)
                found[device] += rest.size * np.dtype(mine[0].dtype).itemsize
        return tuple(found.values())

    def _cut_evenly(self, tensor: str, left: Sequence[int]) -> dict[int, int]:
        """The one axis along which devices' cells differ, with as many parts as devices are left; else nothing."""
        mine = [one for one in self._list_full(tensor) if one.device in left]
        shape = self.manifest.shapes[tensor]
        axes = [axis for axis in range(len(shape)) if len({one.start[axis] for one in mine}) > 1]
        return {axes[0]: len(left)} if len(axes) == 1 and shape[axes[0]] >= len(left) else {}

    def _list_left(self, devices: Sequence[int] | None, what: str) -> list[int]:
        left = list(range(self.manifest.devices)) if devices is None else list(devices)
        wrong = [d for d in left if not 0 <= d < self.manifest.devices or left.count(d) > 1]
        if wrong or not left:
            raise ValueError(
                f"{what}: devices are {quote(left)}; give each device that is left once, of 0 to "
                f"{self.manifest.devices - 1}"
            )
        return left

    def _list_full(self, tensor: str) -> list[SavedBuffer]:
        """The buffers that have all cells of their boxes, also within others.

        Raises
        ------
        ValueError
            Where there are none.
        """
        manifest = self.manifest
        stored = [one for one in (*manifest.buffers, *manifest.guests) if one.tensor in manifest.shapes]  # no views
        every = [one for one in stored if one.is_full and one.part < 0]
        mine = [one for one in every if one.tensor == tensor]
        if mine:
            return mine
        what = f"checkpoint {quote(self.path)}"
        held = [one for one in stored if one.tensor == tensor]
        if held:
            why = "are still to be added up" if any(one.part >= 0 for one in held) else "lack cells that others send"
            raise ValueError(
                f"{what} has {sum(one.nbytes for one in held):,} B of {quote(tensor)} in blocks that {why} behind "
                f"{quote(self.after)}; save behind another stage, or resume the run from there"
            )
        known = list_names(sorted({one.tensor for one in every}), tensor, "tensors")
        raise ValueError(f"{what} has no cells of {quote(tensor)}; {known}")


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
    finished, has_group = list_finished(folder), os.path.isfile(folder / "zarr.json")
    if finished:
        folder = finished[-1][2]
    elif not os.path.isdir(folder):
        raise ValueError(f"checkpoint: there is no folder {quote(str(folder))}; give one with checkpoints")
    elif is_begun(folder) or (list_begun(folder) and not has_group):
        raise ValueError(
            f"checkpoint: what is in the folder {quote(str(folder))} was begun and never finished: the run ended "
            "before; run again, without resume"
        )
    elif not has_group:
        raise ValueError(
            f"checkpoint: the folder {quote(str(folder))} has none; give the one that Checkpoints(path) saved to"
        )
    manifest = read_manifest(folder)
    check_bytes(folder, manifest)
    return Checkpoint(str(folder), manifest)
