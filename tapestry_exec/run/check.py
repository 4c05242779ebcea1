"""Checks of a plan before its first step: every cell that a step reads is there, and no other cell is copied.

The steps are followed with regions in place of values: which buffers are live, which of their cells are complete
or hold which partial result, which are read. This knows nothing of how the plan was made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from math import prod
from types import NoneType, UnionType
from typing import Any, NoReturn, Union, assert_never, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from msgspec import Struct, field

from tapestry_exec.copies import domain_of
from tapestry_plan.ir import Graph, OpNode, Shard, Signature, Source, check_partition
from tapestry_plan.steps import (
    ALIGNMENT_NBYTES,
    HOST,
    Alloc,
    Buffer,
    Compute,
    Copy,
    Fetch,
    Free,
    Output,
    Reduce,
    ShardPlan,
    Spill,
    Step,
    align,
)
from tapestry_sets.regions import Box, DisjointRegions, IndexProjection, Region
from tapestry_sets.views import piece_image


class InvalidPlan(ValueError):
    """A plan's steps do not hold together: a step reads, writes or copies what it must not."""


class Held(Struct):
    """What a live buffer holds so far, and what was asked of it."""

    buffer: Buffer
    cells: list[DisjointRegions] = field(default_factory=list)
    """Valid cells, disjoint."""
    copied: list[tuple[int, DisjointRegions]] = field(default_factory=list)
    """Cells that came from another buffer, with the number of the step."""
    read: list[DisjointRegions] = field(default_factory=list)
    spilled: bool = False
    """Whether other buffers, or the host, hold the same: then what was copied and read is common to all of them."""
    fetched: tuple[int, int, int] | None = None
    """The step that brought it back from the host, and how often it had been read and written to by then."""


def check_plan(plan: ShardPlan) -> dict[int, Shard]:
    """Follow a plan's steps without running them.

    Parameters
    ----------
    plan : ShardPlan

    Returns
    -------
    dict of int to Shard
        For each `Compute`, by number of the step, what its block function is told.

    Raises
    ------
    TypeError
        When the argument is no plan.
    InvalidPlan
        For values of wrong types and lists of wrong lengths, buffers outside their arenas or over one
        another, steps that use buffers which are not there, regions outside their buffers, cells that are
        read before they are written or written twice, copies of cells that no step reads, parts merged
        incompletely, outputs that are not covered, index boxes that do not partition an operator's index
        space, and buffers that are spilled and not fetched, or fetched in vain or from nowhere. The message
        names the step, the operator, the device and the regions.

    Examples
    --------
    >>> from msgspec.structs import replace
    >>> from tapestry_plan import Graph, Mesh, plan
    >>> g = Graph()
    >>> _ = g.output(g.input("x", (4,)) + g.input("y", (4,)))
    >>> p = plan(g, Mesh(2))
    >>> len(check_plan(p))
    2
    >>> check_plan(replace(p, steps=p.steps[1:]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    tapestry_exec.run.check.InvalidPlan: step 0 (copy of 'x' ...): buffer 0 is not allocated here
    """
    if not isinstance(plan, ShardPlan):
        raise TypeError(f"check_plan: the plan is {type(plan).__name__}; it must be a ShardPlan")
    wrong = misfit(plan, ShardPlan, "plan") or _wrong_length(plan) or _wrong_tensor(plan.graph)
    if wrong is not None:
        raise InvalidPlan(f"{wrong}; make the plan again")
    follow = _Follow(plan)
    follow.follow()
    return follow.shards


class _Follow:
    def __init__(self, plan: ShardPlan) -> None:
        self.plan, self.graph = plan, plan.graph
        self.buffers: dict[int, Buffer] = {}
        self.live: dict[int, Held] = {}
        self.host: dict[int, tuple[Held, int]] = {}
        """What was spilled and is kept, and the last step that wanted it kept."""
        self.freed: list[Held] = []
        """Buffers that are gone, though what they held may still be read in others."""
        self.placed: dict[tuple[str, int], list[DisjointRegions]] = {}
        self.places: list[dict[int, tuple[int, int]]] = [{} for _ in range(plan.mesh.size)]
        self.parts: dict[str, dict[int, Box]] = {}
        self.sources: dict[str, Source] = {}
        self.makers: dict[str, OpNode] = {}
        self.at = -1
        self.shards: dict[int, Shard] = {}
        self.images: dict[tuple[IndexProjection, Box, tuple[int, ...]], DisjointRegions] = {}

    def follow(self) -> None:
        for buffer in self.plan.buffers:
            self._check_buffer(buffer)
        for at, step in enumerate(self.plan.steps):
            self.at = at
            self._step(step)
        self.at = -1
        self._check_outputs()
        self._check_kept()
        self._check_shards()
        for held in self.live.values():
            self._check_fetched(held)
        for held in (*self.live.values(), *self.freed):
            self._check_use(held)

    def _fail(self, message: str) -> NoReturn:
        if self.at < 0:
            raise InvalidPlan(f"plan: {message}")
        raise InvalidPlan(f"step {self.at} ({describe(self.plan, self.plan.steps[self.at])}): {message}")

    # -- buffers -----------------------------------------------------------------------------------------

    def _check_buffer(self, b: Buffer) -> None:
        where = f"buffer {b.id} of {b.tensor!r}"
        if b.id in self.buffers:
            self._fail(f"{where}: there are two buffers of this number")
        if not 0 <= b.device < self.plan.mesh.size:
            self._fail(f"{where}: device {b.device} is none of the mesh's {self.plan.mesh.size}")
        try:
            dtype = np.dtype(b.dtype)
        except (TypeError, ValueError, SyntaxError):
            self._fail(f"{where}: {b.dtype!r} is no dtype of NumPy")
        is_state = b.part >= 0 and dtype.fields is not None
        if dtype.kind not in "biufc" and not is_state:
            self._fail(f"{where}: {b.dtype!r} is no dtype of numbers or booleans")
        itemsize = dtype.itemsize
        alignment = ALIGNMENT_NBYTES if is_state else itemsize
        if len(b.start) != len(b.shape) or any(n < 0 for n in b.shape):
            self._fail(f"{where}: start {b.start} and shape {b.shape} make no box")
        if b.nbytes != prod(b.shape) * itemsize:
            self._fail(f"{where}: {b.nbytes} bytes for shape {b.shape} of {b.dtype}, {prod(b.shape) * itemsize} needed")
        if b.offset < 0 or b.offset % alignment:
            self._fail(f"{where}: offset {b.offset} must be >= 0 and a multiple of {alignment}")
        if b.fill is not None and dtype.kind in "biu":
            low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            if not low <= b.fill <= high or b.fill != int(b.fill):
                self._fail(f"{where}: fill {b.fill} is no value of {b.dtype}")
        if b.tensor in self.graph.stored or b.tensor in self.graph.selections:
            tensor = self._source(b.tensor)
            if len(tensor.shape) != len(b.shape):
                self._fail(f"{where}: shape {b.shape} has another rank than the tensor's {tensor.shape}")
            wanted = tensor.dtype if b.part < 0 else self._written(b.tensor)
            if wanted != b.dtype:
                self._fail(f"{where}: dtype {b.dtype} where the tensor has {wanted}")
        most = self.plan.peak_nbytes[b.device]
        if b.offset + align(b.nbytes) > most:
            self._fail(f"{where}: it ends at byte {b.offset + align(b.nbytes)}, device {b.device} holds {most} at most")
        self.buffers[b.id] = b

    def _maker(self, tensor: str) -> OpNode | None:
        if not self.makers:
            self.makers = {out: node for node in self.graph.nodes.values() for out in node.outputs}
        return self.makers.get(tensor)

    def _written(self, tensor: str) -> str:
        """The dtype of a tensor's partial results."""
        maker = self._maker(tensor)
        if maker is None:
            self._fail(f"{tensor!r} is no operator's result; only results have parts")
        return self.graph.written_dtypes(maker.name)[maker.outputs.index(tensor)]

    def _source(self, name: str) -> Source:
        found = self.sources.get(name)
        if found is None:
            if name not in self.graph.stored and name not in self.graph.selections:
                self._fail(f"the graph has no tensor {name!r}")
            found = self.sources[name] = self.graph.source(name)
        return found

    def _held(self, number: int, device: int | None = None) -> Held:
        held = self.live.get(number)
        if held is None:
            known = "is not allocated here" if number in self.buffers else "does not exist"
            self._fail(f"buffer {number} {known}")
        if device is not None and held.buffer.device != device:
            self._fail(f"buffer {number} lies on device {held.buffer.device}, not on device {device}")
        return held

    def _alloc(self, step: Alloc) -> None:
        b = self.buffers.get(step.buffer)
        if b is None:
            self._fail(f"buffer {step.buffer} does not exist")
        if b.id in self.live:
            self._fail("the buffer is allocated already")
        span = (b.offset, b.offset + align(b.nbytes))
        for other, (low, high) in self.places[b.device].items():
            if span[0] < high and low < span[1]:
                self._fail(f"bytes [{span[0]}, {span[1]}) overlap buffer {other} at [{low}, {high})")
        self.places[b.device][b.id] = span
        self.live[b.id] = Held(b)

    def _free(self, step: Free) -> None:
        held = self._held(step.buffer)
        self._check_fetched(held)
        if held.spilled:
            self.freed.append(held)
        else:
            self._check_use(held)
        del self.live[step.buffer], self.places[held.buffer.device][step.buffer]

    def _check_use(self, held: Held) -> None:
        """Every cell that was copied into a buffer was read there."""
        for at, copied in held.copied:
            if not _covered(copied, held.read):
                self.at = at
                self._fail(f"copies cells of {_text(copied)} that no later step reads in buffer {held.buffer.id}")

    # -- spilling ----------------------------------------------------------------------------------------

    def _spill(self, step: Spill) -> None:
        held = self._held(step.buffer)
        if step.buffer in self.host:
            self._fail("what was spilled of the buffer is kept already")
        if not held.cells:
            self._fail("the buffer holds nothing")
        held.spilled = True
        self.host[step.buffer] = Held(held.buffer, list(held.cells), held.copied, held.read, True), self.at

    def _fetch(self, step: Fetch) -> None:
        target = self._held(step.buffer)
        if step.spilled not in self.host:
            self._fail(f"nothing of buffer {step.spilled} is kept in host memory")
        kept, _ = self.host[step.spilled]
        for name in ("device", "tensor", "start", "shape", "dtype", "part", "fill"):
            ours, theirs = getattr(target.buffer, name), getattr(kept.buffer, name)
            if ours != theirs:
                self._fail(f"the {name} of buffer {step.buffer} is {ours!r}, that of what was spilled {theirs!r}")
        if target.cells:
            self._fail(f"buffer {step.buffer} holds cells already")
        target.cells, target.copied, target.read, target.spilled = list(kept.cells), kept.copied, kept.read, True
        target.fetched = self.at, len(target.read), len(target.cells)
        if step.keep:
            self.host[step.spilled] = kept, self.at
        else:
            del self.host[step.spilled]

    def _check_fetched(self, held: Held) -> None:
        """What was brought back from the host was read or added to."""
        if held.fetched is not None and held.fetched[1:] == (len(held.read), len(held.cells)):
            self.at = held.fetched[0]
            self._fail(f"no later step reads or writes buffer {held.buffer.id}")

    def _check_kept(self) -> None:
        """What is in host memory at the end is there for the outputs."""
        wanted = {number for out in self.plan.outputs for number, _ in (*out.blocks, *out.replicas)}
        for number, (_, at) in self.host.items():
            if number not in wanted:
                self.at = at
                self._fail(f"no later step fetches what is kept of buffer {number} in host memory")

    # -- reading and writing -----------------------------------------------------------------------------

    def _inside(self, held: Held, cells: Region | DisjointRegions) -> None:
        bounds = cells.bounds()
        if bounds is None:
            return
        b = held.buffer
        if not all(s <= low and high <= s + n for s, n, low, high in zip(b.start, b.shape, *bounds, strict=True)):
            self._fail(f"{_text(cells)} lies outside buffer {b.id} over {_span(b.box)}")

    def _read(self, held: Held, cells: DisjointRegions) -> None:
        self._inside(held, cells)
        if not _covered(cells, held.cells):
            self._fail(
                f"reads {_text(cells)} of {held.buffer.tensor!r} in buffer {held.buffer.id} on device "
                f"{held.buffer.device}, which holds only {', '.join(map(_text, held.cells)) or 'nothing'}"
            )
        held.read.append(cells)

    def _write(self, held: Held, cells: DisjointRegions, copied: bool = False) -> None:
        self._inside(held, cells)
        for have in held.cells:
            if not have.isdisjoint(cells):
                self._fail(f"writes cells of {_text(cells)} that buffer {held.buffer.id} holds already")
        held.cells.append(cells)
        if copied:
            held.copied.append((self.at, cells))

    # -- steps -------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        match step:
            case Alloc():
                self._alloc(step)
            case Free():
                self._free(step)
            case Copy():
                self._copy(step)
            case Compute():
                self._compute(step)
            case Reduce():
                self._reduce(step)
            case Spill():
                self._spill(step)
            case Fetch():
                self._fetch(step)
            case _:
                assert_never(step)

    def _regions(self, regions: Sequence[Region], shape: tuple[int, ...]) -> DisjointRegions:
        for region in regions:
            if region.shape != shape or any(region.start):
                self._fail(f"a region lies in a box of shape {region.shape} from {region.start}, the tensor is {shape}")
        try:
            return DisjointRegions(shape, regions)
        except ValueError as error:
            self._fail(str(error))

    def _copy(self, step: Copy) -> None:
        target = self._held(step.dst)
        cells = self._regions(step.regions, self._source(target.buffer.tensor).shape)
        if step.again and (step.src != HOST or step.piece is not None):
            self._fail("only what comes from the host can be placed again")
        if step.piece is not None:
            self._read_through(step, target, cells)
            return
        if step.tensor not in self.graph.stored or target.buffer.tensor != step.tensor:
            self._fail(f"copies {step.tensor!r} into buffer {step.dst} of {target.buffer.tensor!r}")
        if step.src == HOST:
            if self.graph.stored[step.tensor].kind == "result" or target.buffer.part != -1:
                self._fail(f"{step.tensor!r} is an operator's result; only inputs and constants come from the host")
            self._place(step, target, cells)
            return
        source = self._held(step.src)
        if source is target or source.buffer.tensor != step.tensor:
            self._fail(f"buffer {step.src} holds {source.buffer.tensor!r}; another buffer of {step.tensor!r} is needed")
        if source.buffer.part != target.buffer.part:
            self._fail(f"copies part {source.buffer.part} into a buffer of part {target.buffer.part}")
        self._read(source, cells)
        self._write(target, cells, copied=True)

    def _place(self, step: Copy, target: Held, cells: DisjointRegions) -> None:
        before = self.placed.setdefault((step.tensor, target.buffer.device), [])
        if not step.again:
            before.append(cells)
        elif not _covered(cells, before):
            self._fail(f"places {_text(cells)} again, which device {target.buffer.device} did not have before")
        self._write(target, cells)

    def _read_through(self, step: Copy, target: Held, cells: DisjointRegions) -> None:
        piece, view = step.piece, self._source(target.buffer.tensor)
        assert piece is not None, "the caller has seen one"
        if piece not in view.pieces:
            self._fail(f"the piece is none of the {len(view.pieces)} pieces of {target.buffer.tensor!r}")
        if piece.source >= 0:
            source = self._held(step.src, target.buffer.device)
            stored = view.stored[piece.source]
            if not source.buffer.tensor == step.tensor == stored or source.buffer.part != -1:
                self._fail(f"buffer {step.src} holds {source.buffer.tensor!r}, the piece reads {stored!r}")
            self._read(source, piece_image(piece, cells, within=self.graph.stored[stored].shape))
        self._write(target, cells & domain_of(piece, view.shape), copied=True)

    def _compute(self, step: Compute) -> None:
        node = self.graph.nodes.get(step.node)
        if node is None:
            self._fail(f"the graph has no operator {step.node!r}")
        signature = self.graph.signature(step.node)
        if len(step.start) != len(step.shape) or any(n < 0 for n in step.shape):
            self._fail(f"start {step.start} and shape {step.shape} make no index box")
        index = step.index
        if len(step.inputs) != len(node.inputs) or len(step.outputs) != len(node.outputs):
            self._fail(f"{len(step.inputs)} inputs and {len(step.outputs)} outputs are no operands of {node.op!r}")
        if index.rank != len(signature.axes) or index.is_empty or not signature.index.contains(index):
            self._fail(f"index box {_span(index)} is empty or outside the index space {signature.index_shape}")
        shard = self.shards[self.at] = shard_of(self.graph, step, index)
        for k, number in enumerate(step.inputs):
            self._operand(step, shard, k, node.inputs[k], number)
        for k, name in enumerate(node.outputs):
            self._result(step, shard, k, name)
        self._workspace(step, shard)

    def _operand(self, step: Compute, shard: Shard, k: int, name: str, number: int | None) -> None:
        box = shard.input_boxes[k]
        if box is None or number is None:
            if box is not None or number is not None:
                self._fail(f"input {k} ({name!r}) is {'read' if box else 'not read'} by this part, buffer: {number}")
            return
        held = self._held(number, step.device)
        view = self._source(name)
        wanted = view.stored[0] if view.direct else name
        if held.buffer.tensor != wanted or held.buffer.part != -1:
            self._fail(
                f"input {k} is {wanted!r}, complete; buffer {number} holds {held.buffer.tensor!r}, "
                f"part {held.buffer.part}"
            )
        if not held.buffer.box.contains(box):
            self._fail(f"input {k} ({name!r}) needs {_span(box)}; buffer {number} is over {_span(held.buffer.box)}")
        declared = shard.signature.inputs[k]
        if not Box.of(view.shape).contains(box) and held.buffer.fill != declared.pad:
            self._fail(f"input {k} ({name!r}) is padded with {declared.pad}, buffer {number} with {held.buffer.fill}")
        for projection in declared.projections:
            self._read(held, self._image(projection, shard.index, view.shape))

    def _image(self, projection: IndexProjection, index: Box, shape: tuple[int, ...]) -> DisjointRegions:
        """The exact cells of a tensor that an index box projects to; many shards ask for the same."""
        key = projection, index, shape
        found = self.images.get(key)
        if found is None:
            image = projection.image(index, within=shape)
            if not isinstance(image, DisjointRegions):
                self._fail(f"the projection of {_span(index)} is no union of products")
            found = self.images[key] = image
        return found

    def _result(self, step: Compute, shard: Shard, k: int, name: str) -> None:
        held = self._held(step.outputs[k], step.device)
        b, signature, index = held.buffer, shard.signature, shard.index
        has_states = self.graph.ops[self.graph.nodes[step.node].op].has_states
        partial = has_states or any(index.shape[a] != signature.index_shape[a] for a in signature.reductions)
        if b.tensor != name or (b.part >= 0) != partial:
            made = "a partial result" if partial else "complete values"
            self._fail(f"output {k} is {made} of {name!r}; buffer {b.id} is for {b.tensor!r}, part {b.part}")
        if partial:
            axes = signature.reductions
            slab = Box(tuple(step.start[a] for a in axes), tuple(step.shape[a] for a in axes))
            before = self.parts.setdefault(name, {}).setdefault(b.part, slab)
            if before != slab:
                self._fail(f"part {b.part} of {name!r} is over {_span(before)} of the reduction, here {_span(slab)}")
        box = shard.output_boxes[k]
        if not b.box.contains(box):
            self._fail(f"output {k} ({name!r}) fills {_span(box)}; buffer {b.id} is over {_span(b.box)}")
        self._write(held, self._image(signature.outputs[k].projection, index, self.graph.stored[name].shape))

    def _workspace(self, step: Compute, shard: Shard) -> None:
        node = self.graph.nodes[step.node]
        wanted = self.graph.ops[node.op].workspace(shard, self.graph.stored[node.outputs[0]].itemsize)
        have = 0 if step.workspace is None else self._held(step.workspace, step.device).buffer.nbytes
        if have < wanted:
            self._fail(f"the operator wants {wanted} bytes of workspace, the plan gives {have}")

    def _reduce(self, step: Reduce) -> None:
        target = self._held(step.output)
        b = target.buffer
        if b.tensor not in self.graph.stored or b.part != -1:
            self._fail(f"buffer {b.id} takes no complete values of a stored tensor")
        maker = self._maker(b.tensor)
        if maker is None:
            self._fail(f"{b.tensor!r} is no operator's result; only results have parts to merge")
        monoid = self.graph.ops[maker.op].monoid
        if monoid is None or step.monoid != monoid.name:
            self._fail(f"merges by {step.monoid!r}, the operator {maker.name!r} by {monoid and monoid.name!r}")
        if step.fan_in is not None and step.fan_in < 2:
            self._fail(f"merges {step.fan_in} at a time; 2 or more are needed")
        cells = self._regions(step.regions, self.graph.stored[b.tensor].shape)
        parts = []
        for number in step.inputs:
            held = self._held(number, b.device)
            if held.buffer.tensor != b.tensor:
                self._fail(f"buffer {number} holds {held.buffer.tensor!r}, not parts of {b.tensor!r}")
            parts.append(held.buffer.part)
            self._read(held, cells)
        self._whole_reduction(b.tensor, parts, self.graph.signature(maker.name))
        self._write(target, cells)

    def _whole_reduction(self, name: str, parts: Sequence[int], signature: Signature) -> None:
        known = self.parts.get(name, {})
        if list(parts) != sorted(set(parts)) or not set(parts) <= known.keys():
            self._fail(f"merges parts {list(parts)} of {name!r}; each of {sorted(known)} once, ascending, is needed")
        whole = prod(signature.index_shape[a] for a in signature.reductions)
        slabs = [known[part] for part in parts]
        apart = all(one.intersect(two) is None for k, one in enumerate(slabs) for two in slabs[:k])
        if not apart or sum(slab.size for slab in slabs) != whole:
            self._fail(f"merges parts {list(parts)} of {name!r}, which are not the whole reduction of {whole} points")

    # -- outputs -----------------------------------------------------------------------------------------

    def _check_shards(self) -> None:
        """The index boxes that are computed partition each operator's index space, and are where the plan says."""
        computed: dict[str, dict[int, list[Box]]] = {name: {} for name in self.graph.nodes}
        for at, shard in self.shards.items():
            step = self.plan.steps[at]
            assert isinstance(step, Compute), "only computations have shards"
            computed[step.node].setdefault(step.device, []).append(shard.index)
        for name, places in computed.items():
            boxes = list(dict.fromkeys(box for found in places.values() for box in found))  # replicas count once
            try:
                check_partition(boxes, self.graph.signature(name).index, f"the index boxes computed of {name!r}")
            except ValueError as error:
                self._fail(str(error))
            if {device: tuple(found) for device, found in places.items()} != self.plan.placement.get(name):
                self._fail(
                    f"computes {places} of {name!r}, by device, but plan.placement is {self.plan.placement.get(name)}"
                )

    def _check_outputs(self) -> None:
        if {(out.name, out.tensor) for out in self.plan.outputs} != set(self.graph.outputs.items()):
            names = [out.name for out in self.plan.outputs]
            self._fail(f"outputs {names} are not the graph's {list(self.graph.outputs)}")
        for out in self.plan.outputs:
            view = self._source(out.tensor)
            if (out.shape, out.dtype) != (view.shape, view.dtype):
                self._fail(f"output {out.name!r} is {out.dtype}{out.shape}, its tensor {view.dtype}{view.shape}")
            found: dict[str, list[Region]] = {name: [] for name in view.stored}
            for number, region in out.blocks:
                found[self._take(out, number, region, found)].append(region)
            for number, region in out.replicas:
                self._take(out, number, region, found)
            for number, region in out.replicas:
                held = self._kept_or_held(number)
                if held.buffer.tensor not in found or held.buffer.part != -1:
                    self._fail(f"output {out.name!r}: buffer {number} holds {held.buffer.tensor!r}")
                self._read(held, self._regions((region,), self.graph.stored[held.buffer.tensor].shape))
            for name, regions in found.items():
                shape = self.graph.stored[name].shape
                if self._regions(regions, shape).size != prod(shape):
                    self._fail(f"output {out.name!r}: the blocks do not cover {name!r} of shape {shape}")

    def _kept_or_held(self, number: int) -> Held:
        return self.host[number][0] if number in self.host else self._held(number)

    def _take(self, out: Output, number: int, region: Region, stored: Collection[str]) -> str:
        """Read a region of an output, or a replica of it, where it lies; give the name of the stored tensor."""
        held = self._kept_or_held(number)
        tensor = held.buffer.tensor
        if tensor not in stored or held.buffer.part != -1:
            self._fail(f"output {out.name!r}: buffer {number} holds {tensor!r}, part {held.buffer.part}")
        self._read(held, self._regions((region,), self.graph.stored[tensor].shape))
        return tensor


# -- types and lengths -----------------------------------------------------------------------------------


def misfit(value: Any, wanted: Any, where: str) -> str | None:
    """What is wrong with the types in a plan, None when they are as declared: documents can hold anything.

    Examples
    --------
    >>> misfit((1, "2"), tuple[int, ...], "shape")
    "shape[1] is '2'; it must be an integer"
    """
    origin, args = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        return _misfit_all(value, args, where)
    if origin is tuple:
        if not isinstance(value, tuple):
            return f"{where} is {_shown(value)}; it must be a tuple"
        kinds = args[:1] * len(value) if args[1:] == (Ellipsis,) else args
        if len(kinds) != len(value):
            return f"{where} has {len(value)} items; it must have {len(kinds)}"
        return _first(
            misfit(item, kind, f"{where}[{k}]") for k, (item, kind) in enumerate(zip(value, kinds, strict=True))
        )
    if origin is dict:
        if not isinstance(value, dict):
            return f"{where} is {_shown(value)}; it must be a dict"
        return _first(
            misfit(key, args[0], f"a key of {where}") or misfit(item, args[1], f"{where}[{key!r}]")
            for key, item in value.items()
        )
    if wanted in NUMBERS:
        fits = isinstance(value, NUMBERS[wanted]) and not isinstance(value, bool)
        return None if fits else f"{where} is {_shown(value)}; it must be {NAMES[wanted]}"
    if not isinstance(value, wanted):
        return f"{where} is {_shown(value)}; it must be {NAMES.get(wanted, wanted.__name__)}"
    return _first(misfit(getattr(value, name), kind, f"{where}.{name}") for name, kind in _fields(wanted).items())


NUMBERS = {int: (int, np.integer), float: (int, float, np.integer, np.floating)}
NAMES = {int: "an integer", float: "a number", str: "a text", NoneType: "None"}


def _misfit_all(value: Any, kinds: Sequence[Any], where: str) -> str | None:
    """What is wrong with a value that may be of several kinds, by the one that it comes nearest to."""
    for kind in kinds:
        if get_origin(kind) is None and isinstance(value, NUMBERS.get(kind, kind)):
            return misfit(value, kind, where)
    names = " or ".join(NAMES.get(kind, getattr(kind, "__name__", str(kind))) for kind in kinds)
    return f"{where} is {_shown(value)}; it must be {names}"


@cache
def _fields(kind: type) -> dict[str, Any]:
    """The declared fields of a plan, and of the structures in it; other types have checked themselves."""
    return get_type_hints(kind) if kind is ShardPlan or issubclass(kind, msgspec.Struct) else {}


def _first(wrong: Iterable[str | None]) -> str | None:
    return next((one for one in wrong if one is not None), None)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _wrong_length(plan: ShardPlan) -> str | None:
    """Which list that has one entry for each device has another number of entries."""
    size = plan.mesh.size
    lists: list[tuple[str, Sequence[Any]]] = [
        (f"plan.{name}", getattr(plan, name))
        for name in ("nbytes_received", "nbytes_placed", "nbytes_spilled", "peak_nbytes", "flop")
    ]
    for k, stage in enumerate(plan.stages):
        lists += [(f"plan.stages[{k}].{name}", getattr(stage, name)) for name in ("nbytes_received", "flop")]
    for name, entries in lists:
        if len(entries) != size:
            return f"{name} has {len(entries)} entries; the mesh has {size} devices"
    return None


def _wrong_tensor(graph: Graph) -> str | None:
    """Which stored tensor of a graph is of no known kind, or has a path or digest that is no text."""
    for name, tensor in graph.stored.items():
        where = f"plan.graph.stored[{name!r}]"
        if tensor.kind not in ("input", "constant", "result"):
            return f"{where}.kind is {_shown(tensor.kind)}; it must be input, constant or result"
        wrong = misfit(tensor.path, str | None, f"{where}.path") or misfit(tensor.sha256, str | None, f"{where}.sha256")
        if wrong is not None:
            return wrong
    return None


# -- words -----------------------------------------------------------------------------------------------


def shard_of(graph: Graph, step: Compute, index: Box) -> Shard:
    """What the block function of a step is told, without its workspace."""
    node, signature = graph.nodes[step.node], graph.signature(step.node)
    outputs = tuple(signature.output_box(k, index) or Box((), ()) for k in range(len(node.outputs)))
    inputs = tuple(signature.input_box(k, index) for k in range(len(node.inputs)))
    return Shard(index, signature, node.attrs, inputs, outputs, None)


def describe(plan: ShardPlan, step: Step) -> str:
    """A step in words: its kind, operator, buffers and devices."""
    devices = {buffer.id: buffer.device for buffer in plan.buffers}

    def place(number: int) -> str:
        return "the host" if number == HOST else f"buffer {number} on device {devices.get(number, '?')}"

    match step:
        case Alloc() | Free() | Spill():
            return f"{type(step).__name__.lower()} of {place(step.buffer)}"
        case Fetch():
            return f"fetch of what was spilled of buffer {step.spilled} into {place(step.buffer)}"
        case Copy():
            return f"copy of {step.tensor!r} for {step.node!r} from {place(step.src)} to {place(step.dst)}"
        case Compute():
            box = "×".join(f"[{a}, {a + n})" for a, n in zip(step.start, step.shape, strict=False)) or "[one cell]"
            return f"compute {step.node!r} on device {step.device}, index box {box}"
        case Reduce():
            return f"reduce {step.node!r} into {place(step.output)}"
        case _:
            assert_never(step)


def _covered(cells: DisjointRegions, by: Sequence[DisjointRegions]) -> bool:
    """Whether the union of regions, which may overlap, holds all the cells."""
    for have in by:
        if have is cells or cells <= have:
            return True
    rest = cells
    for have in by:
        rest = rest - have
        if rest.is_empty:
            return True
    return cells.is_empty


def _span(box: Box) -> str:
    return "×".join(f"[{a}, {b})" for a, b in zip(box.start, box.stop, strict=True)) or "[one cell]"


def _text(cells: Region | DisjointRegions) -> str:
    """A set of cells in words: its bounding box, and its size where it is not all of it."""
    bounds = cells.bounds()
    if bounds is None:
        return "no cells"
    box = Box.from_bounds(*bounds)
    return _span(box) if box.size == cells.size else f"{cells.size} cells in {_span(box)}"
