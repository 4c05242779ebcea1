"""Checks of a plan before its first step: every cell that a step reads is there, and no other cell is copied.

The steps are followed with regions in place of values: which buffers are live, which of their cells are complete
or hold which partial result, which are read. This knows nothing of how the plan was made.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Callable, Collection, Sequence
from itertools import chain, pairwise
from math import prod
from string import Formatter
from typing import Any, NoReturn, assert_never

import numpy as np
from msgspec import Struct, field

from tapestry_exec.copies import domain_of
from tapestry_plan.ir import SHORT_DTYPES, Graph, NoPartition, OpNode, Shard, Source, check_partition, is_in_place
from tapestry_plan.steps import (
    ALIGNMENT_NBYTES,
    HOST,
    Alloc,
    Buffer,
    Collective,
    Compute,
    Copy,
    Fetch,
    Free,
    Output,
    Reduce,
    ShardPlan,
    Spill,
    Step,
    Tags,
    Within,
    align,
    check_choices,
    find_contradiction,
    find_misfit,
    find_place,
    find_strides,
    is_place,
    list_place,
    name_stage,
    shard_of,
)
from tapestry_sets.limits import check_arguments, quote
from tapestry_sets.regions import Box, DisjointRegions, IndexProjection, Region
from tapestry_sets.views import Piece, first_shared, piece_image

Slabs = tuple[Box, ...]
"""Blocks of the axes that are reduced, in the order in which they were merged."""


class InvalidPlan(ValueError):
    """A plan's steps do not hold together: a step reads, writes or copies what it must not.

    Examples
    --------
    >>> from tapestry_exec import check_plan
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (4, 6))), "y")
    >>> p = plan(g, Mesh(1))
    >>> check_plan(p.with_steps(steps=[step for step in p.steps if type(step).__name__ != "Compute"]))
    Traceback (most recent call last):
        ...
    tapestry_exec.run.check.InvalidPlan: plan: reads [0, 4)×[0, 6) of 'relu' in buffer 1 on device 0, which
    holds only nothing
    """


class Held(Struct):
    """The cells that a live buffer holds so far, and those that steps read of it."""

    buffer: Buffer
    cells: list[DisjointRegions] = field(default_factory=list)
    """Valid cells, disjoint."""
    copied: list[tuple[int, DisjointRegions]] = field(default_factory=list)
    """Cells that came from another buffer, with the number of the step."""
    read: list[DisjointRegions] = field(default_factory=list)
    spilled: bool = False
    """Whether other buffers, or the host, hold the same: then what was copied and read is common to all of them."""
    guests: dict[int, DisjointRegions] = field(default_factory=dict)
    """Live buffers that lie within, with the cells of this one that are theirs."""
    fetched: tuple[int, int, int] | None = None
    """The step that brought it back from the host, and how often it had been read and written to by then."""


@check_arguments(plan="make one with plan(graph, mesh)")
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
        When the argument is not a plan.
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
    >>> from tapestry_exec import check_plan
    >>> from tapestry_plan import Graph, Mesh, plan
    >>> g = Graph()
    >>> _ = g.output(g.input("x", (4,)) + g.input("y", (4,)))
    >>> p = plan(g, Mesh(2))
    >>> len(check_plan(p))
    2
    >>> check_plan(p.with_steps(steps=p.steps[1:]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    tapestry_exec.run.check.InvalidPlan: step 0 (copy of 'x' ...): buffer 0 is not allocated here
    """
    wrong = _wrong_step(plan) or find_misfit(plan, ShardPlan, "plan") or _wrong_tensor(plan.graph)
    if wrong is not None:
        raise InvalidPlan(f"{wrong}; make the plan again")
    try:
        check_choices(plan.graph, plan.mesh, plan.choices)
        plan.written  # noqa: B018 - the steps follow from choices that fit together, or are given
    except ValueError as error:
        raise InvalidPlan(f"plan.choices: {error}; make the plan again") from None
    wrong = find_contradiction(plan)
    if wrong is not None:
        raise InvalidPlan(f"{wrong}; make the plan again")
    follow = _Follow(plan)
    follow.follow()
    return follow.shards


class _Follow:
    def __init__(self, plan: ShardPlan) -> None:
        self.plan, self.graph = plan, plan.graph
        self.units: dict[tuple[Any, ...], int] = {}
        """Of each kind of buffer what its offset must be a multiple of."""
        self.buffers: dict[int, Buffer] = {}
        self.live: dict[int, Held] = {}
        self.host: dict[int, tuple[Held, int]] = {}
        """What was spilled and is kept, and the last step that wanted it kept."""
        self.freed: list[Held] = []
        """Buffers that are gone, though what they held may still be read in others."""
        self.placed: dict[tuple[str, int], list[DisjointRegions]] = {}
        self.claims: dict[int, DisjointRegions] = {}
        """Of buffers within others the cells of these where they lie."""
        self.joined: set[int] = set()
        """Those of them that were copied there: the others have no right to the place."""
        self.sharing: dict[int, list[int]] = {}
        """By the first buffer of a place those that have it: one, or while a step writes over it two."""
        self.places: list[list[tuple[int, int]]] = [[] for _ in range(plan.mesh.size)]
        self.parts: dict[str, dict[int, Slabs]] = {}
        self.apart: set[tuple[str, tuple[int, ...]]] = set()
        """Parts of tensors that are over nothing in common."""
        self.makers = {out: node for node in plan.graph.nodes.values() for out in node.outputs}
        self.tags = Tags(plan.graph)
        self.at = -1
        self.shards: dict[int, Shard] = {}
        # What one exchange copies are few tuples of regions, which thousands of steps share: known by their ids, which
        # stay as long as they are kept here.
        self.cells: dict[tuple[int, tuple[int, ...]], tuple[tuple[Region, ...], DisjointRegions]] = {}
        self.inside: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Region | DisjointRegions] = {}
        self.held: dict[tuple[int, int], tuple[DisjointRegions, DisjointRegions, bool]] = {}
        self.images: dict[tuple[IndexProjection, Box, tuple[int, ...]], DisjointRegions] = {}
        # All parts of a reduction write the same cells: one object, so that what is asked of it is asked once.
        self.alike: dict[DisjointRegions, DisjointRegions] = {}

    def follow(self) -> None:
        for buffer in self.plan.buffers:
            self._check_buffer(buffer)
        for buffer in self.plan.buffers:
            if buffer.within is not None:
                self._check_within(buffer, buffer.within)
            if buffer.over is not None:
                self._check_over(buffer, buffer.over)
        follow: dict[type[Step], Callable[[Any], None]] = {
            Alloc: self._alloc,
            Free: self._free,
            Copy: self._copy,
            Compute: self._compute,
            Reduce: self._reduce,
            Spill: self._spill,
            Fetch: self._fetch,
        }
        for at, step in enumerate(self.plan.steps):
            self.at = at
            follow[type(step)](step)
        self.at = -1
        self._check_outputs()
        self._check_kept()
        self._check_shards()
        for held in self.live.values():
            self._check_fetched(held)
            self._check_joined(held)
        for held in (*self.live.values(), *self.freed):
            self._check_use(held)

    def _fail(self, message: str, *about: Any) -> NoReturn:
        where = "plan" if self.at < 0 else f"step {self.at} ({describe(self.plan, self.plan.steps[self.at])})"
        raise InvalidPlan(f"{where}: {_MESSAGES.format(message, *map(_word, about))}")

    def _need(self, holds: object, message: str, *about: Any) -> None:
        """Fail where something does not hold; the message is put together only then."""
        if not holds:
            self._fail(message, *about)

    # -- buffers -----------------------------------------------------------------------------------------

    def _check_buffer(self, b: Buffer) -> None:
        def need(holds: object, message: str, *about: Any) -> None:
            self._need(holds, "buffer {} of {!r}: " + message, b.id, b.tensor, *about)

        need(b.id not in self.buffers, "there are two buffers of this number")
        need(0 <= b.device < self.plan.mesh.size, "device {} is not on the mesh of {}", b.device, self.plan.mesh.size)
        strides = None if b.within is None else b.within.strides
        kind = b.tensor, b.shape, len(b.start), strides, b.dtype, b.nbytes, b.part < 0, b.fill
        unit = self.units.get(kind)
        if unit is None:
            unit = self.units[kind] = self._check_kind(b)
        need(b.offset >= 0 and not b.offset % unit, "offset {} must be >= 0 and a multiple of {}", b.offset, unit)
        end, most = b.offset + (b.room or b.nbytes), self.plan.peak_nbytes[b.device]
        need(end <= most, "it ends at byte {}, device {} holds {} at most", end, b.device, most)
        self.buffers[b.id] = b

    def _check_kind(self, b: Buffer) -> int:
        """What of a buffer does not depend on where it lies; what its offset must be a multiple of."""

        def need(holds: object, message: str, *about: Any) -> None:
            self._need(holds, "buffer {} of {!r}: " + message, b.id, b.tensor, *about)

        try:
            dtype = np.dtype(b.dtype)
        except (TypeError, ValueError, SyntaxError):
            self._fail("buffer {} of {!r}: {!r} is not a dtype of NumPy", b.id, b.tensor, b.dtype)
        is_state = b.part >= 0 and dtype.fields is not None
        need(
            is_state or dtype.kind in "biufc" or dtype.name in SHORT_DTYPES,
            "{!r} is not a dtype of numbers or booleans",
            b.dtype,
        )
        is_box = len(b.start) == len(b.shape) and all(n >= 0 for n in b.shape)
        need(is_box, "start {} and shape {} make no box", b.start, b.shape)
        is_laid = b.within is None or (len(b.within.strides) == len(b.shape) and all(s > 0 for s in b.within.strides))
        need(is_laid, "strides {} do not fit shape {}", b.strides, b.shape)
        reach = 1 + sum(s * (n - 1) for s, n in zip(b.strides, b.shape, strict=True)) if prod(b.shape) else 0
        nbytes = reach * dtype.itemsize
        need(b.nbytes == nbytes, "{} bytes for shape {} of {}, {} needed", b.nbytes, b.shape, b.dtype, nbytes)
        if b.fill is not None and dtype.kind in "biu":
            low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            need(low <= b.fill <= high and b.fill == int(b.fill), "fill {} is not a value of {}", b.fill, b.dtype)
        if b.tensor in self.graph.stored or b.tensor in self.graph.selections:
            shape = self._source(b.tensor).shape
            need(len(shape) == len(b.shape), "shape {} has another rank than the tensor's {}", b.shape, shape)
            wanted = self._source(b.tensor).dtype if b.part < 0 else self._written(b.tensor)
            need(wanted == b.dtype, "dtype {} where the tensor has {}", b.dtype, wanted)
        return ALIGNMENT_NBYTES if is_state else dtype.itemsize

    def _check_within(self, b: Buffer, within: Within) -> None:
        """A buffer lies within another one cell by cell, each in a cell of its own."""

        def need(holds: object, message: str, *about: Any) -> None:
            self._need(holds, "buffer {} of {!r}: " + message, b.id, b.tensor, *about)

        need(within.buffer in self.buffers and within.buffer != b.id, "it lies within {}, no buffer", within.buffer)
        host = self.buffers[within.buffer]
        same = (host.device, host.dtype, host.part) == (b.device, b.dtype, b.part) == (b.device, b.dtype, -1)
        need(same, "it lies within buffer {}, which has another device, dtype or part", host.id)
        kinds = {self.graph.stored[one].kind for one in (b.tensor, host.tensor) if one in self.graph.stored}
        need(kinds <= {"result"}, "it lies within buffer {}; only what operators make lies within one another", host.id)
        need(b.fill is None, "it lies within buffer {}, where nobody fills its padding", host.id)
        first, rest = divmod(b.offset - host.offset, np.dtype(b.dtype).itemsize)
        fits = not rest and b.offset >= host.offset and b.offset + b.nbytes <= host.offset + host.nbytes
        need(fits, "it reaches out of buffer {}, within which it lies", host.id)
        if host.within is None:
            place = b.strides, first
            found = list_place(host.box, b.shape, place, self._source(host.tensor).shape)
        else:  # then both have the same coordinates
            need(b.tensor == host.tensor, "it lies within buffer {}, which is of another tensor", host.id)
            at = sum((x - y) * s for x, y, s in zip(b.start, host.start, host.strides, strict=True))
            fits = (b.tensor, b.strides, first) == (host.tensor, host.strides, at) and host.box.contains(b.box)
            need(fits, "it lies within buffer {}, but not where that one has its cells", host.id)
            shape = self._source(b.tensor).shape
            found = DisjointRegions(shape, (Region.from_bounds(shape, b.box.start, b.box.stop),))
        if found is None or found.size != b.box.size:
            self._fail("buffer {} of {!r}: its cells meet in buffer {}", b.id, b.tensor, host.id)
        self.claims[b.id] = found

    def _check_over(self, b: Buffer, over: int) -> None:
        """A buffer has the place of another one, cell for cell."""

        def need(holds: object, message: str, *about: Any) -> None:
            self._need(holds, "buffer {} of {!r}: " + message, b.id, b.tensor, *about)

        need(over in self.buffers and over != b.id, "it lies over {}, no buffer", over)
        first = self.buffers[over]
        for name in ("device", "start", "shape", "dtype", "offset", "part", "fill", "within"):
            ours, theirs = getattr(b, name), getattr(first, name)
            need(
                ours == theirs, "its {} is {!r}, that of buffer {}, over which it lies, {!r}", name, ours, over, theirs
            )
        is_plain = (b.part, b.fill, b.within, first.over) == (-1, None, None, None)
        told = "it lies over buffer {}; only complete blocks without padding do, over the first one of a place"
        need(is_plain, told, over)
        kinds = {self.graph.stored[one].kind for one in self._source(first.tensor).stored}
        need("constant" not in kinds, "it lies over buffer {} of constants, which stay as they are", over)

    def _maker(self, tensor: str, where: str = "") -> OpNode:
        self._need(tensor in self.makers, "no operator makes {!r}; only results have parts" + where, tensor)
        return self.makers[tensor]

    def _written(self, tensor: str) -> str:
        """The dtype of a tensor's partial results."""
        maker = self._maker(tensor)
        return self.graph.written_dtypes(maker.name)[maker.outputs.index(tensor)]

    def _source(self, name: str) -> Source:
        known = name in self.graph.stored or name in self.graph.selections
        self._need(known, "the graph has no tensor {!r}", name)
        return self.graph.source(name)

    def _held(self, number: int, device: int | None = None) -> Held:
        held = self.live.get(number)
        if held is None:
            self._need(number in self.buffers, "buffer {} does not exist", number)
            self._fail("buffer {} is not allocated here", number)
        there = held.buffer.device
        self._need(device in (None, there), "buffer {} lies on device {}, not on device {}", number, there, device)
        return held

    def _alloc(self, step: Alloc) -> None:
        self._need(step.buffer in self.buffers, "buffer {} does not exist", step.buffer)
        self._need(step.buffer not in self.live, "the buffer is allocated already")
        b = self.buffers[step.buffer]
        if b.within is not None:
            host, mine = self._held(b.within.buffer), self.claims[b.id]
            for used in (*host.cells, *host.guests.values()):
                told = "cells {} of buffer {}, within which it lies, are used already"
                self._need(used.isdisjoint(mine), told, mine, host.buffer.id)
            self.live[b.id], host.guests[b.id] = Held(b), mine
            return
        if b.over is not None:
            there = self.sharing.get(b.over, [])
            told = "it lies over buffer {}; of those in that place one must be there, not buffers {}"
            self._need(len(there) == 1, told, b.over, there)
            there.append(b.id)
            self.live[b.id] = Held(b)
            return
        first, end = b.offset, b.offset + align(b.nbytes)
        # By their first bytes; live buffers do not meet, so of all others the two beside it are the nearest. Empty ones
        # have no bytes.
        places = self.places[b.device]
        at = bisect(places, (first, b.id))
        for _, other in places[max(at - 1, 0) : at + 1]:
            low = self.buffers[other].offset
            high = low + align(self.buffers[other].nbytes)
            if first < high and low < end:
                self._fail("bytes [{}, {}) overlap buffer {} at [{}, {})", first, end, other, low, high)
        if end > first:
            places.insert(at, (first, b.id))
        self.live[b.id], self.sharing[b.id] = Held(b), [b.id]

    def _free(self, step: Free) -> None:
        held = self._held(step.buffer)
        self._need(not held.guests, "buffers {} lie within it", sorted(held.guests))
        self._check_fetched(held)
        if held.spilled:
            self.freed.append(held)
        else:
            self._check_use(held)
        del self.live[step.buffer]
        b, places = held.buffer, self.places[held.buffer.device]
        if b.within is not None:
            self._check_joined(held)
            del self.live[b.within.buffer].guests[b.id]
            return
        there = self.sharing[b.place]
        told = "buffer {} lies over buffer {}, which is not given back"
        self._need(there[0] == b.id, told, b.id, there[0])
        there.remove(b.id)
        if b.nbytes and not there:
            del places[bisect_left(places, (b.offset, b.place))]

    def _check_joined(self, held: Held) -> None:
        """A buffer lies within another one to be a part of it: else that one may stay where others may not go."""
        b = held.buffer
        is_part = b.within is None or b.id in self.joined
        self._need(is_part, "buffer {} lies within another one, and is never copied there", b.id)

    def _check_use(self, held: Held) -> None:
        """Every cell that was copied into a buffer was read there."""
        for at, copied in held.copied:
            if not self._covers(held.read, copied):
                self.at = at
                self._fail("copies cells of {} that no later step reads in buffer {}", copied, held.buffer.id)

    # -- spilling ----------------------------------------------------------------------------------------

    def _spill(self, step: Spill) -> None:
        held = self._held(step.buffer)
        self._need(step.buffer not in self.host, "the host keeps cells of the buffer already")
        self._need(held.cells, "the buffer holds nothing")
        is_apart = held.buffer.within is None and not held.guests
        self._need(is_apart, "only a buffer that lies within no other one, nor has one within, can be spilled")
        held.spilled = True
        self.host[step.buffer] = Held(held.buffer, list(held.cells), held.copied, held.read, True), self.at

    def _fetch(self, step: Fetch) -> None:
        target = self._held(step.buffer)
        self._need(step.spilled in self.host, "the host keeps nothing of buffer {}", step.spilled)
        kept, _ = self.host[step.spilled]
        for name in ("device", "tensor", "start", "shape", "dtype", "part", "fill"):
            ours, theirs = getattr(target.buffer, name), getattr(kept.buffer, name)
            told = "the {} of buffer {} is {!r}, that of the spilled one {!r}"
            self._need(ours == theirs, told, name, step.buffer, ours, theirs)
        self._need(not target.cells, "buffer {} holds cells already", step.buffer)
        is_apart = target.buffer.within is None and not target.guests
        self._need(is_apart, "buffer {} lies within another one, or has one within", step.buffer)
        target.cells, target.copied, target.read, target.spilled = list(kept.cells), kept.copied, kept.read, True
        target.fetched = self.at, len(target.read), len(target.cells)
        if step.keep:
            self.host[step.spilled] = kept, self.at
        else:
            del self.host[step.spilled]

    def _check_fetched(self, held: Held) -> None:
        """Check that a later step reads or adds to cells that came back from the host."""
        if held.fetched is not None and held.fetched[1:] == (len(held.read), len(held.cells)):
            self.at = held.fetched[0]
            self._fail("no later step reads or writes buffer {}", held.buffer.id)

    def _check_kept(self) -> None:
        """Check that the host keeps nothing at the end but cells of the outputs."""
        wanted = {number for out in self.plan.outputs for number, _ in (*out.blocks, *out.replicas)}
        for number, (_, at) in self.host.items():
            if number not in wanted:
                self.at = at
                self._fail("no later step fetches the cells of buffer {} that the host keeps", number)

    # -- reading and writing -----------------------------------------------------------------------------

    def _inside(self, held: Held, cells: Region | DisjointRegions) -> None:
        b = held.buffer
        key = id(cells), b.start, b.shape
        if key in self.inside:
            return
        bounds = cells.bounds()
        if bounds is not None and not all(
            s <= low and high <= s + n for s, n, low, high in zip(b.start, b.shape, *bounds, strict=True)
        ):
            self._fail("{} lies outside buffer {} over {}", cells, b.id, b.box)
        self.inside[key] = cells

    def _read(self, held: Held, cells: DisjointRegions) -> None:
        self._inside(held, cells)
        if not self._covers(held.cells, cells):
            b, there = held.buffer, ", ".join(map(_word, held.cells)) or "nothing"
            told = "reads {} of {!r} in buffer {} on device {}, which holds only {}"
            self._fail(told, cells, b.tensor, b.id, b.device, there)
        held.read.append(cells)

    def _covers(self, by: Sequence[DisjointRegions], cells: DisjointRegions) -> bool:
        """Whether the union of regions, which may overlap, holds all the cells."""
        for have in by:
            if have is cells or self._holds(have, cells):
                return True
        for have in by:
            cells = cells - have
            if cells.is_empty:
                break
        return cells.is_empty

    def _holds(self, have: DisjointRegions, cells: DisjointRegions) -> bool:
        key = id(have), id(cells)
        if key not in self.held:
            self.held[key] = have, cells, cells <= have
        return self.held[key][2]

    def _write(
        self,
        held: Held,
        cells: DisjointRegions,
        copied: bool = False,
        source: int | None = None,
        computed: bool = False,
    ) -> None:
        self._inside(held, cells)
        told = "writes buffer {}, which lies over buffer {}; only an operator that reads that one does"
        self._need(computed or held.buffer.over is None, told, held.buffer.id, held.buffer.over)
        for guest, claim in held.guests.items():
            told = "writes cells of {} in buffer {} where buffer {} lies"
            self._need(guest == source or claim.isdisjoint(cells), told, cells, held.buffer.id, guest)
        apart = all(have.isdisjoint(cells) for have in held.cells)
        self._need(apart, "writes cells of {} that buffer {} holds already", cells, held.buffer.id)
        held.cells.append(cells)
        if copied:
            held.copied.append((self.at, cells))

    # -- steps -------------------------------------------------------------------------------------------

    def _regions(self, regions: tuple[Region, ...], shape: tuple[int, ...]) -> DisjointRegions:
        if (id(regions), shape) not in self.cells:
            self.cells[id(regions), shape] = regions, self._regions_now(regions, shape)
        return self.cells[id(regions), shape][1]

    def _regions_now(self, regions: Sequence[Region], shape: tuple[int, ...]) -> DisjointRegions:
        for r in regions:
            told = "a region lies in a box of shape {} from {}, the tensor is {}"
            self._need(r.shape == shape and not any(r.start), told, r.shape, r.start, shape)
        shared = first_shared(regions)
        self._need(shared is None, "regions {1} and {2} share the point {0}", *(shared or ()))
        return DisjointRegions(shape, regions)

    def _copy(self, step: Copy) -> None:
        target = self._held(step.dst)
        b = target.buffer
        cells = self._regions(step.regions, self._source(b.tensor).shape)
        placed = step.src == HOST and step.piece is None
        self._need(placed or not step.again, "only cells from the host can be placed again")
        if step.piece is not None:
            return self._read_through(step, step.piece, target, cells)
        fits = step.tensor in self.graph.stored and b.tensor == step.tensor
        self._need(fits, "copies {!r} into buffer {} of {!r}", step.tensor, step.dst, b.tensor)
        if placed:
            return self._place(step, target, cells)
        source = self._held(step.src)
        told = "buffer {} holds {!r}; another buffer of {!r} is needed"
        fits = source is not target and source.buffer.tensor == step.tensor
        self._need(fits, told, step.src, source.buffer.tensor, step.tensor)
        if source.buffer.device != b.device:
            is_read = self.tags.knows(step.node, step.tensor)
            self._need(is_read, "{!r} is not a stage of the graph that reads {!r}", step.node, step.tensor)
        self._need(source.buffer.part == b.part, "copies part {} into a buffer of part {}", source.buffer.part, b.part)
        self._read(source, cells)
        # What a tensor is shared out to rests there whether or not somebody reads it, as what is placed does.
        self._write(target, cells, step.node != name_stage("landing", step.tensor), self._lies(source, target, cells))

    def _lies(self, source: Held, target: Held, cells: DisjointRegions, piece: Piece | None = None) -> int | None:
        """The source of a copy where it lies within the target: then each cell must lie where it is copied to."""
        b, host = source.buffer, target.buffer
        if b.within is None or b.within.buffer != host.id:
            return None
        place = b.strides, (b.offset - host.offset) // np.dtype(b.dtype).itemsize
        if piece is not None:
            fits = host.within is None and is_place(host.box, b.box, place, piece, self._source(b.tensor).shape)
        else:
            found = find_place(host.box, b.box)
            along = [k for k, n in enumerate(b.shape) if n > 1]
            fits = host.within is not None or (
                found is not None and found[1] == place[1] and all(found[0][k] == b.strides[k] for k in along)
            )
        fits = fits and cells <= self.claims[b.id]
        self._need(fits, "the cells of buffer {} lie in buffer {}, but not where they are copied to", b.id, host.id)
        self.joined.add(b.id)
        return b.id

    def _place(self, step: Copy, target: Held, cells: DisjointRegions) -> None:
        b = target.buffer
        told = "{!r} is an operator's result; only inputs and constants come from the host"
        self._need(self.graph.stored[step.tensor].kind != "result" and b.part == -1, told, step.tensor)
        before = self.placed.setdefault((step.tensor, b.device), [])
        if not step.again:
            before.append(cells)
        there = not step.again or self._covers(before, cells)
        self._need(there, "places {} again, which device {} did not have before", cells, b.device)
        self._write(target, cells)

    def _read_through(self, step: Copy, piece: Piece, target: Held, cells: DisjointRegions) -> None:
        view = self._source(target.buffer.tensor)
        told = "the piece is not one of the {} pieces of {!r}"
        self._need(piece in view.pieces, told, len(view.pieces), target.buffer.tensor)
        written = cells & domain_of(piece, view.shape)
        told = "cells go through a piece to buffer {}, which lies within another one"
        self._need(target.buffer.within is None, told, target.buffer.id)
        guest = None
        if piece.source >= 0:
            source = self._held(step.src, target.buffer.device)
            stored, b = view.stored[piece.source], source.buffer
            fits = b.tensor == step.tensor == stored and b.part == -1
            self._need(fits, "buffer {} holds {!r}, the piece reads {!r}", step.src, b.tensor, stored)
            self._read(source, piece_image(piece, cells, within=self.graph.stored[stored].shape))
            guest = self._lies(source, target, written, piece)
            told = "buffer {} lies within another one; through a piece its cells go nowhere but to where they lie"
            self._need(b.within is None or guest is not None, told, b.id)
        self._write(target, written, True, guest)

    def _compute(self, step: Compute) -> None:
        self._need(step.node in self.graph.nodes, "the graph has no operator {!r}", step.node)
        node, signature = self.graph.nodes[step.node], self.graph.signature(step.node)
        is_box = len(step.start) == len(step.shape) and all(n >= 0 for n in step.shape)
        self._need(is_box, "start {} and shape {} make no index box", step.start, step.shape)
        index = step.index
        given = len(step.inputs), len(step.outputs)
        fits = given == (len(node.inputs), len(node.outputs))
        self._need(fits, "{} inputs and {} outputs do not fit the operands of {!r}", *given, node.op)
        fits = index.rank == len(signature.axes) and not index.is_empty and signature.index.contains(index)
        self._need(fits, "index box {} is empty or outside the index space {}", index, signature.index_shape)
        shard = self.shards[self.at] = shard_of(self.graph, node, index)
        pieces = step.pieces or (None,) * len(step.inputs)
        fits = len(pieces) == len(step.inputs)
        self._need(fits, "{} pieces and {} inputs; each input has one, or none has", len(pieces), len(step.inputs))
        for k, (number, piece) in enumerate(zip(step.inputs, pieces, strict=True)):
            if piece is None:
                self._operand(step, shard, k, node.inputs[k], number)
            else:
                self._strided_operand(step, shard, k, node.inputs[k], number, piece)
        for k, name in enumerate(node.outputs):
            self._result(step, shard, k, name)
        self._workspace(step, shard)

    def _operand(self, step: Compute, shard: Shard, k: int, name: str, number: int | None) -> None:
        box = shard.input_boxes[k]
        read = "read" if box else "not read"
        told = "input {} ({!r}) is {} by this part, buffer: {}"
        self._need((box is None) == (number is None), told, k, name, read, number)
        if box is None or number is None:
            return
        b, view = self._held(number, step.device).buffer, self._source(name)
        wanted = view.stored[0] if view.direct else name
        told = "input {} is {!r}, complete; buffer {} holds {!r}, part {}"
        self._need((b.tensor, b.part) == (wanted, -1), told, k, wanted, number, b.tensor, b.part)
        told, over = "input {} ({!r}) needs {}; buffer {} is over {}", b.box
        self._need(over.contains(box), told, k, name, box, number, over)
        declared = shard.signature.inputs[k]
        told = "input {} ({!r}) is padded with {}, buffer {} with {}"
        fits = Box.of(view.shape).contains(box) or b.fill == declared.pad
        self._need(fits, told, k, name, declared.pad, number, b.fill)
        for projection in declared.projections:
            self._read(self.live[number], self._image(projection, shard.index, view.shape))

    def _strided_operand(
        self, step: Compute, shard: Shard, k: int, name: str, number: int | None, piece: Piece
    ) -> None:
        """A block of a view that is read where its cells lie: all of them through one piece, at even strides."""
        box, view = shard.input_boxes[k], self._source(name)
        told = "input {} ({!r}) is not read by this part, buffer: {}"
        if box is None or number is None:
            self._fail(told, k, name, number)
        told = "input {} ({!r}) is not a view; only blocks of views are read through pieces"
        self._need(not view.direct, told, k, name)
        told = "the piece is not one of the {} pieces of {!r}, or a constant"
        self._need(piece in view.pieces and piece.source >= 0, told, len(view.pieces), name)
        held, stored = self._held(number, step.device), view.stored[piece.source]
        b = held.buffer
        fits = b.tensor == stored and b.part == -1
        self._need(fits, "buffer {} holds {!r}, part {}, the piece reads {!r}", number, b.tensor, b.part, stored)
        self._need(b.within is None, "buffer {} lies within another one; it is not read through a piece", b.id)
        told = "the cells of input {} ({!r}) in {} do not lie at even strides in buffer {} over {}"
        self._need(find_strides(piece, b.box, box) is not None, told, k, name, box, number, b.box)
        for projection in shard.signature.inputs[k].projections:
            cells = self._image(projection, shard.index, view.shape)
            if piece.guards:
                told = "input {} ({!r}) reads cells of {} through other pieces, too"
                self._need(cells <= domain_of(piece, view.shape), told, k, name, cells)
            self._read(held, piece_image(piece, cells, within=self.graph.stored[stored].shape))

    def _image(self, projection: IndexProjection, index: Box, shape: tuple[int, ...]) -> DisjointRegions:
        """The exact cells of a tensor that an index box projects to; many shards ask for the same."""
        key = projection, index, shape
        if key not in self.images:
            image = projection.image(index, within=shape)
            if not isinstance(image, DisjointRegions):
                self._fail("the projection of {} is not a union of products", index)
            self.images[key] = self.alike.setdefault(image, image)
        return self.images[key]

    def _result(self, step: Compute, shard: Shard, k: int, name: str) -> None:
        held = self._held(step.outputs[k], step.device)
        b, signature, index = held.buffer, shard.signature, shard.index
        axes = signature.reductions
        has_states = self.graph.ops[self.graph.nodes[step.node].op].has_states
        partial = has_states or any(index.shape[a] != signature.index_shape[a] for a in axes)
        made = "a partial result" if partial else "complete values"
        told = "output {} is {} of {!r}; buffer {} is for {!r}, part {}"
        self._need(b.tensor == name and (b.part >= 0) == partial, told, k, made, name, b.id, b.tensor, b.part)
        if partial:
            slab = Box(tuple(step.start[a] for a in axes), tuple(step.shape[a] for a in axes))
            self._know_part(name, b.part, (slab,))
        box, over = shard.output_boxes[k], b.box
        self._need(over.contains(box), "output {} ({!r}) fills {}; buffer {} is over {}", k, name, box, b.id, over)
        if b.over is not None:
            self._overwrite(step, shard, b, b.over)
        cells = self._image(signature.outputs[k].projection, index, self.graph.stored[name].shape)
        self._write(held, cells, computed=True)

    def _overwrite(self, step: Compute, shard: Shard, b: Buffer, first: int) -> None:
        """A block is written where another one lies, which the step reads cell by cell, and nobody does afterwards."""
        op, signature, there = self.graph.ops[self.graph.nodes[step.node].op], shard.signature, self.sharing[first]
        self._need(there[1:] == [b.id], "buffer {} is written, though buffers {} have its place", b.id, there)
        over = there[0]
        told = "buffer {} lies over buffer {}, but {!r} does not promise to read each cell before it writes that one"
        promised = [is_in_place(op.block, k) for k, number in enumerate(step.inputs) if number == over]
        self._need(len(step.outputs) == 1 and all(promised) and not signature.reductions, told, b.id, over, op.name)
        self._need(over in step.inputs, "buffer {} lies over buffer {}, which the step does not read", b.id, over)
        told = "buffer {} lies over buffer {}, which input {} reads elsewhere than where the result is written"
        for k, number in enumerate(step.inputs):
            piece = step.pieces[k] if step.pieces else None
            is_there = (piece, shard.input_boxes[k], shard.output_boxes[0]) == (None, b.box, b.box)
            is_so = number != over or (is_there and signature.reads_where_it_writes(k))
            self._need(is_so, told, b.id, over, k)
        before = self._held(over, b.device)
        self._need(not before.guests, "buffers {} lie within buffer {}", sorted(before.guests), over)
        before.cells = []  # they are gone

    def _workspace(self, step: Compute, shard: Shard) -> None:
        node = self.graph.nodes[step.node]
        wanted = self.graph.ops[node.op].workspace(shard, self.graph.stored[node.outputs[0]].itemsize)
        have = 0 if step.workspace is None else self._held(step.workspace, step.device).buffer.nbytes
        self._need(have >= wanted, "the operator wants {} bytes of workspace, the plan gives {}", wanted, have)

    def _reduce(self, step: Reduce) -> None:
        target = self._held(step.output)
        b = target.buffer
        self._need(b.tensor in self.graph.stored, "buffer {} takes no values of a stored tensor", b.id)
        maker = self._maker(b.tensor, " to merge")
        monoid = self.graph.ops[maker.op].monoid
        name = monoid and monoid.name
        self._need(step.monoid == name, "merges by {!r}, the operator {!r} by {!r}", step.monoid, maker.name, name)
        fits = step.fan_in is None or step.fan_in >= 2
        self._need(fits, "merges {} at a time; 2 or more are needed", step.fan_in)
        cells = self._regions(step.regions, self.graph.stored[b.tensor].shape)
        parts = []
        for number in step.inputs:
            held = self._held(number, b.device)
            fits = held.buffer.tensor == b.tensor
            self._need(fits, "buffer {} holds {!r}, not parts of {!r}", number, held.buffer.tensor, b.tensor)
            parts.append(held.buffer.part)
            self._read(held, cells)
        slabs = self._merged_slabs(b.tensor, parts)
        if monoid is not None and not monoid.is_commutative:
            in_order = all(one.stop == two.start for one, two in pairwise(slabs))
            self._need(in_order, "merges parts {} of {!r} out of order; {!r} asks for it", parts, b.tensor, name)
        if b.part >= 0:
            self._know_part(b.tensor, b.part, slabs)
        else:
            signature = self.graph.signature(maker.name)
            whole = prod(signature.index_shape[a] for a in signature.reductions)
            told = "merges parts {} of {!r}, which are not the whole reduction of {} points"
            self._need(sum(slab.size for slab in slabs) == whole, told, parts, b.tensor, whole)
        self._write(target, cells)

    def _merged_slabs(self, name: str, parts: Sequence[int]) -> Slabs:
        """What parts are over, in the order in which they are merged: of the reduction, or of parts merged before."""
        known = self.parts.get(name, {})
        told = "merges parts {} of {!r}; each of {} once, ascending, is needed"
        fits = list(parts) == sorted(set(parts)) and set(parts) <= known.keys()
        self._need(fits, told, list(parts), name, sorted(known))
        slabs = tuple(slab for part in parts for slab in known[part])
        proved = name, tuple(parts)  # what a part is over never changes, so each set of parts is looked at once
        if proved not in self.apart:
            told = "merges parts {} of {!r}, some of which are over the same"
            self._need(_are_apart(slabs), told, list(parts), name)
            self.apart.add(proved)
        return slabs

    def _know_part(self, name: str, part: int, slabs: Slabs) -> None:
        """What a part is over, wherever it is made."""
        before = self.parts.setdefault(name, {}).setdefault(part, slabs)
        told = "part {} of {!r} is over {} of the reduction, here {}"
        self._need(before == slabs, told, part, name, before, slabs)

    # -- outputs -----------------------------------------------------------------------------------------

    def _check_shards(self) -> None:
        """The index boxes that are computed partition each operator's index space, and are where the plan says."""
        computed: dict[str, dict[int, list[Box]]] = {name: {} for name in self.graph.nodes}
        for step in self.plan.steps:
            if isinstance(step, Compute):
                computed[step.node].setdefault(step.device, []).append(step.index)
        for name, places in computed.items():
            boxes = list(dict.fromkeys(chain(*places.values())))  # replicas count once
            try:
                check_partition(boxes, self.graph.signature(name).index, f"the index boxes computed of {quote(name)}")
            except NoPartition as error:
                self._fail("{}", error)
            said = self.plan.placement.get(name)
            same = {device: tuple(found) for device, found in places.items()} == said
            self._need(same, "computes {} of {!r}, by device, but plan.placement is {}", places, name, said)

    def _check_outputs(self) -> None:
        names = [out.name for out in self.plan.outputs]
        same = {(out.name, out.tensor) for out in self.plan.outputs} == set(self.graph.outputs.items())
        self._need(same, "outputs {} are not the graph's {}", names, list(self.graph.outputs))
        for out in self.plan.outputs:
            view = self._source(out.tensor)
            told = "output {!r} is {}{}, its tensor {}{}"
            same = (out.shape, out.dtype) == (view.shape, view.dtype)
            self._need(same, told, out.name, out.dtype, out.shape, view.dtype, view.shape)
            found: dict[str, list[Region]] = {name: [] for name in view.stored}
            for number, region in out.blocks:
                found[self._take(out, number, region, found)].append(region)
            for number, region in out.replicas:
                self._take(out, number, region, found)
            for name, regions in found.items():
                shape = self.graph.stored[name].shape
                whole = self._regions_now(regions, shape).size == prod(shape)
                self._need(whole, "output {!r}: the blocks do not cover {!r} of shape {}", out.name, name, shape)

    def _take(self, out: Output, number: int, region: Region, stored: Collection[str]) -> str:
        """Read a region of an output, or a replica of it, where it lies; give the name of the stored tensor."""
        held = self.host[number][0] if number in self.host else self._held(number)
        b = held.buffer
        fits = b.tensor in stored and b.part == -1
        self._need(fits, "output {!r}: buffer {} holds {!r}, part {}", out.name, number, b.tensor, b.part)
        self._read(held, self._regions((region,), self.graph.stored[b.tensor].shape))
        return b.tensor


# -- types and lengths -----------------------------------------------------------------------------------


def _wrong_step(plan: ShardPlan) -> str | None:
    """Which step that somebody wrote is of no kind that plans have, or holds what it must not."""
    return None if plan.explicit is None else find_misfit(plan.explicit.steps, tuple[Step, ...], "plan.steps")


def _wrong_tensor(graph: Graph) -> str | None:
    """Which stored tensor of a graph is of no known kind, or has a path or digest that is not text."""
    for name, tensor in graph.stored.items():
        where = f"plan.graph.stored[{quote(name)}]"
        if tensor.kind not in ("input", "constant", "result"):
            return f"{where}.kind is {quote(tensor.kind)}; it must be input, constant or result"
        wrong = find_misfit(tensor.path, str | None, f"{where}.path") or find_misfit(
            tensor.sha256, str | None, f"{where}.sha256"
        )
        if wrong is not None:
            return wrong
    return None


# -- words -----------------------------------------------------------------------------------------------


def describe(plan: ShardPlan, step: Step | Collective) -> str:
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
            return f"copy of {quote(step.tensor)} for {quote(step.node)} from {place(step.src)} to {place(step.dst)}"
        case Compute():
            box = "×".join(f"[{a}, {a + n})" for a, n in zip(step.start, step.shape, strict=False)) or "[one cell]"
            return f"compute {quote(step.node)} on device {step.device}, index box {box}"
        case Collective():
            group = ", ".join(map(str, step.group))
            return f"{step.kind} of {quote(step.tensor)} for {quote(step.node)} on devices {group}"
        case Reduce():
            return f"reduce {quote(step.node)} into {place(step.output)}"
        case _:
            assert_never(step)


def _are_apart(slabs: Slabs) -> bool:
    """Whether no two blocks meet: along the first axis each is compared with those that have not ended there."""
    near: list[Box] = []
    for slab in sorted(slabs, key=lambda box: box.start):
        if slab.shape:
            near = [one for one in near if one.stop[0] > slab.start[0]]
        if any(one.intersect(slab) is not None for one in near):
            return False
        near.append(slab)
    return True


class _Messages(Formatter):
    """Fills the places of a message, of which ``{!r}`` are for values as messages quote them."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return quote(value) if conversion == "r" else super().convert_field(value, conversion)


_MESSAGES = _Messages()


def _word(value: Any) -> Any:
    """A value as messages have it: of a set of cells the bounding box, and its size where it is not all of that."""
    if isinstance(value, Box):
        return "×".join(f"[{a}, {b})" for a, b in zip(value.start, value.stop, strict=True)) or "[one cell]"
    if not isinstance(value, Region | DisjointRegions):
        return value
    bounds = value.bounds()
    if bounds is None:
        return "no cells"
    box = Box.from_bounds(*bounds)
    return _word(box) if box.size == value.size else f"{value.size} cells in {_word(box)}"
