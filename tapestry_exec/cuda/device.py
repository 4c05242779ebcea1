"""One device of the mesh on a GPU: its arena, its ring, its three lanes, and the steps on them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import prod
from time import perf_counter
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_exec import copies
from tapestry_exec.copies import Array, Transfer
from tapestry_exec.cuda import kernels
from tapestry_exec.cuda.cublas import Handle
from tapestry_exec.cuda.gpus import Gpu, Shared
from tapestry_exec.cuda.lanes import Ground, Lane, Ring, Uses
from tapestry_exec.cuda.namespace import Namespace, NotRecordable
from tapestry_exec.cuda.paths import Way, merging, way_of
from tapestry_exec.cuda.payloads import Payload, cells_of, ring_nbytes
from tapestry_exec.cuda.tuning import CLOCK_TRIES, DIRECT_NBYTES
from tapestry_exec.numpy import POISON_FLOAT, POISON_OTHER, NumpyDevice
from tapestry_exec.run import Attrs, Buffers, Reads, Regions, Writes
from tapestry_plan.ir import InPlaceBlock, Monoid, Op, Shard, States, components_of, is_in_place, merge_states
from tapestry_plan.rewrite import Derived, list_inside, with_ops
from tapestry_plan.steps import HOST, Buffer, Within, align
from tapestry_sets.digits import Ints
from tapestry_sets.regions import Box, Region
from tapestry_sets.views import Piece

Used = Sequence["Block | Payload"]
"""Memory that work uses, with who else does."""


class Block(Struct):
    """A buffer in its place: where its first cell is, who uses it, and the tensor's shape until it is used first."""

    buffer: Buffer
    memory: Any
    """The array library's pointer to it."""
    address: int
    uses: Uses
    fresh: Ints | None
    dtype: np.dtype[Any]
    owner: Buffer
    """The first buffer in this place: a checker knows the bytes by its name."""


class StepWork(NamedTuple):
    """How a step's work is done, made when it runs first: arrays lie where they lie in every run."""

    op: Op
    """With the step's own inputs and outputs, by which it is known again."""
    inputs: Reads
    outputs: Writes
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    given: list[Any]
    made: list[Any]
    shard: Shard
    way: Way | None
    """With raw kernels."""
    aside: list[tuple[Any, Any]]
    """Copies of what it reads where it writes, where nobody promised that this works, with what they are copies of."""


class HostDevice(NumpyDevice):
    """A device of the mesh that is an arena of this process beside GPUs."""

    lanes: tuple[Lane, ...] = ()

    def fits(self, gpu: int, nbytes: int, payload_nbytes: int) -> bool:
        """Whether it can be used again for an arena of this size there."""
        return gpu == HOST and nbytes <= self.memory.nbytes

    def again(self) -> HostDevice:
        """Begin anew on the same memory."""
        return HostDevice(self.memory)

    def leave(self) -> None:
        """Give up all buffers that are left but those that stay: nobody is told."""

    def release(self) -> None:
        """Give up the buffers that stay."""
        super().leave()

    def unpack(self, payload: Any, buffer: Buffer, regions: Regions) -> None:
        super().unpack(cells_of(payload) if isinstance(payload, Payload) else payload, buffer, regions)


class CupyDevice:
    """One device of the mesh on a GPU.

    Parameters
    ----------
    shared : Shared
    gpu : Gpu
    number : int
        In the mesh.
    nbytes, payload_nbytes : int
        Of the arena, and of the largest payload.
    """

    def __init__(self, shared: Shared, gpu: Gpu, number: int, nbytes: int, payload_nbytes: int) -> None:
        self.shared, self.gpu, self.number = shared, gpu, number
        self.nbytes = nbytes
        cuda = shared.cupy.cuda

        def new_event(timed: bool) -> Any:
            with gpu.device:
                return cuda.Event(disable_timing=not timed)

        with gpu.device:
            self._arena = cuda.MemoryPointer(cuda.Memory(max(nbytes, 1)), 0)
            self.incoming, self.compute, self.out = self.lanes = tuple(
                Lane(cuda.Stream(non_blocking=True), new_event) for _ in range(3)
            )
        self._take_ring(ring_nbytes(payload_nbytes))
        self._namespace = Namespace(shared.cupy, shared.current, partial(_open_handle, shared, gpu, self.compute))
        self._told = getattr(shared.cupy, "mark_block", None)
        self._held: dict[int, Block] = {}
        self._held_nbytes = 0
        self._launches: dict[int, StepWork] = {}
        """By the identity of a step's inputs: those of this run and of the one before."""
        self._launched: dict[int, StepWork] = {}
        """Those of this run."""
        with gpu.device:
            self._nothing = shared.cupy.ndarray(0, np.uint8, self._arena)
        self._blocks: dict[int, Block] = {}
        self._latest: dict[int, int] = {}
        """By the first buffer of a place the one that has it, where that is another one."""
        self.again()

    def _take_ring(self, nbytes: int) -> None:
        cuda = self.shared.cupy.cuda
        with self.gpu.device:
            self._ring_memory = cuda.MemoryPointer(cuda.Memory(nbytes), 0)
        self._ring = Ring(nbytes)

    def trim(self, payload_nbytes: int) -> None:
        """Have a ring for payloads of this size alone; nothing may be on its way."""
        if ring_nbytes(payload_nbytes) < self._ring.nbytes:
            self._take_ring(ring_nbytes(payload_nbytes))

    def fits(self, gpu: int, nbytes: int, payload_nbytes: int) -> bool:
        """Whether it can be used again for an arena and payloads of these sizes on that GPU."""
        return self.gpu.number == gpu and nbytes <= self.nbytes and ring_nbytes(payload_nbytes) <= self._ring.nbytes

    def again(self) -> CupyDevice:
        """Begin anew on the same memory, with other operators perhaps; nothing may be on its way."""
        self._opened: dict[str, tuple[Op, Op]] = {}
        self.restart()
        return self

    def restart(self) -> None:
        """Forget all buffers but those that stay, and count anew; nothing may be on its way."""
        self.leave()
        if self._launched:
            self._launches, self._launched = self._launched, {}
        self.peak_nbytes, self.copied_nbytes = self._held_nbytes, 0
        for block in self._held.values():
            block.uses = Uses()
        self._ground = Ground()
        self._ring.restart()
        for lane in self.lanes:
            lane.restart()

    def list_launched(self) -> list[StepWork]:
        """The work of this run's steps, with memory of its own beside the arena."""
        return list(self._launched.values())

    def _forget_launches(self) -> None:
        self._launches, self._launched = {}, {}

    def open_products(self) -> None:
        """Open cuBLAS, which cannot be while a run is recorded."""
        self._namespace.open()

    def leave(self) -> None:
        """Give up all buffers that are left but those that stay."""
        for number, block in self._blocks.items():
            buffer = block.buffer
            is_there = self._latest.get(buffer.place, number) == number
            if is_there and buffer.within is None and buffer.place not in self._held:
                self._tell(block, False)
        self._blocks = dict(self._held)
        self._latest.clear()

    def release(self) -> None:
        """Give up the buffers that stay."""
        if self._held:
            self._forget_launches()
        for block in self._held.values():
            self._tell(block, False)
        self._held.clear()
        self._held_nbytes = 0

    # -- the protocol ------------------------------------------------------------------------------------

    def alloc(self, buffer: Buffer, tensor_shape: Sequence[int]) -> None:
        """Take a buffer's place: cells outside the tensor get the buffer's fill, others poison if that is asked for."""
        if buffer.within is not None:
            self._take_within(buffer, buffer.within)
            return
        if buffer.over is not None and self._take_over(buffer, buffer.over):
            return
        stop = buffer.offset + buffer.room
        self.peak_nbytes = max(self.peak_nbytes, self._held_nbytes + stop)
        uses = Uses(self._ground.take(buffer.offset, stop))
        self._take(buffer, self._arena + buffer.offset, uses, tensor_shape)

    def _take_within(self, buffer: Buffer, within: Within) -> None:
        """A buffer in the place of another one: behind those who used that place before."""
        host = self._ready(self._blocks[within.buffer].buffer, self.compute)
        memory = self._arena + buffer.offset
        uses = Uses(host.uses.all)
        self._blocks[buffer.id] = Block(buffer, memory, memory.ptr, uses, None, np.dtype(buffer.dtype), buffer)

    def _take_over(self, buffer: Buffer, first: int) -> bool:
        """A buffer in the place of one that is there, whose users it waits for as if it were that one."""
        before = self._blocks.get(self._latest.get(first, first))
        if before is None:  # a run that goes on from a checkpoint
            return False
        memory = before.memory, before.address, before.uses
        self._blocks[buffer.id] = Block(buffer, *memory, None, before.dtype, before.owner)
        self._latest[first] = buffer.id
        return True

    def hold(self, buffer: Buffer, tensor_shape: Sequence[int]) -> None:
        """Take memory of its own for a buffer, which stays until the device is closed."""
        self._forget_launches()  # in runs before it may have lain in the arena
        cuda = self.shared.cupy.cuda
        with self.gpu.device:
            memory = cuda.MemoryPointer(cuda.Memory(max(buffer.nbytes, 1)), 0)
        self._held[buffer.id] = self._take(buffer, memory, Uses(), tensor_shape)
        self._held_nbytes += align(buffer.nbytes)
        self.peak_nbytes = self._held_nbytes

    def _take(self, buffer: Buffer, memory: Any, uses: Uses, tensor_shape: Sequence[int]) -> Block:
        made = Block(buffer, memory, memory.ptr, uses, tuple(tensor_shape), np.dtype(buffer.dtype), buffer)
        self._tell(made, True)
        self._blocks[buffer.id] = made
        return made

    def free(self, buffer: Buffer) -> None:
        """Give a buffer's place back; whoever takes it waits for those who still use it."""
        block = self._blocks.pop(buffer.id)
        if buffer.within is not None:
            host = self._blocks[buffer.within.buffer]
            host.uses.writes += block.uses.writes
            host.uses.reads += block.uses.reads
            return
        if self._latest.get(buffer.place, buffer.id) != buffer.id or buffer.place in self._held:
            return  # its place is another one's, or stays
        self._latest.pop(buffer.place, None)
        self._ground.leave(buffer.offset, buffer.offset + align(buffer.nbytes), block.uses)
        self._tell(block, False)

    def pack(self, buffer: Buffer, regions: Regions) -> Payload:
        """The regions' cells, each region row-major, as one payload; as they lie where that is contiguous."""
        block = self._ready(buffer, self.out)
        transfers = copies.pack_transfers(buffer.strides, buffer.start, tuple(regions))
        size, itemsize = sum(t.size for t in transfers), block.dtype.itemsize
        at = _run_of(transfers, size, "src")
        if at is not None and size * itemsize >= DIRECT_NBYTES:
            return self._payload(block.address + at * itemsize, size * itemsize, block.dtype, block.uses)
        made = self.take_room(size * itemsize, block.dtype)
        work = partial(self._launch, kernels.copies(transfers, itemsize, block.address, made.address))
        self._do(self.out, [block], [made], work)
        return made

    def spill(self, buffer: Buffer) -> Payload:
        """All cells of a buffer, as one payload; also those that nothing wrote."""
        block, told = self._ready(buffer, self.out), getattr(self.shared.cupy, "mark_moved", None)
        if told is not None:
            told(block.address, buffer.nbytes)
        return self.pack(buffer, (Region.full(buffer.shape, buffer.start),))

    def unpack(self, payload: Any, buffer: Buffer, regions: Regions) -> None:
        """Write a payload that `pack` made of the same regions."""
        block = self._target(buffer, regions, self.incoming)
        transfers = copies.unpack_transfers(buffer.strides, buffer.start, tuple(regions))
        size, itemsize = sum(t.size for t in transfers), block.dtype.itemsize
        if payload.nbytes != size * itemsize:
            raise ValueError(f"unpack: the payload has {payload.nbytes:,} B, the regions have {size * itemsize:,} B")
        at = _run_of(transfers, size, "dst")
        if at is not None:
            work = partial(self._memcpy, block.address + at * itemsize, payload)
        else:
            payload = self.receive(payload) if payload.gpu == HOST else payload
            work = partial(self._launch, kernels.copies(transfers, itemsize, payload.address, block.address))
        self._do(self.incoming, [payload], [block], work)

    def receive(self, payload: Payload) -> Payload:
        """Bring a payload from another GPU or from pinned memory into this one's ring."""
        made = self.take_room(payload.nbytes, payload.dtype)
        self._do(self.incoming, [payload], [made], partial(self._memcpy, made.address, payload))
        return made

    def copy(self, src: Buffer, dst: Buffer, regions: Regions) -> None:
        """Copy cells between two buffers of this device; nothing where they lie in place."""
        if self._lies(src, dst):
            return
        transfers = copies.between(src.strides, src.start, dst.strides, dst.start, tuple(regions))
        self._count(transfers, dst)
        self._copy(src, self._target(dst, regions, self.compute), transfers)

    def gather(self, src: Buffer, dst: Buffer, piece: Piece, regions: Regions) -> None:
        """Fill cells of a view's block through one of the view's pieces; nothing where they lie in place."""
        if self._lies(src, dst):
            return
        lane, cells = self.compute, tuple(regions)
        target = self._ready(dst, lane) if piece.guards else self._target(dst, regions, lane)
        if piece.fill is None:
            transfers = copies.through(piece, src.box, dst.box, cells)
        else:
            transfers = copies.fill_transfers(piece, dst.box, cells)
        if transfers is None:
            source = target if piece.source < 0 else self._ready(src, lane)
            # Cells that a table names may lie anywhere in the target, between those of blocks that lie within it.
            beside = self._list_beside(target)
            self._do(lane, [source], [target, *beside], partial(self._by_tables, piece, source, target, cells))
        elif piece.fill is not None:
            self._count(transfers, dst)
            fills = _fills(transfers, target.dtype, piece.fill, target.address)
            self._do(lane, [], [target], partial(self._launch, fills))
        else:
            self._count(transfers, dst)
            self._copy(src, target, transfers)

    def merge(
        self, monoid: Monoid, attrs: Attrs, parts: Buffers, output: Buffer, regions: Regions, fan_in: int | None
    ) -> None:
        """Merge partial results in the order given, and unwrap the merged state, unless it is a part itself."""
        read = [self._ready(part, self.compute) for part in parts]
        target = self._target(output, regions, self.compute)
        work = partial(self._merge, monoid, attrs, read, target, regions, fan_in)
        self._do(self.compute, read, [target], work)

    def launch(self, op: Op, inputs: Reads, outputs: Writes, shard: Shard, workspace: Buffer | None) -> None:
        """Run an operator's kernel, or its block function, on blocks of this device's buffers."""
        known = self._launches.get(id(inputs))
        if known is None or known.op is not op or known.inputs is not inputs or known.outputs is not outputs:
            known = self._launches[id(inputs)] = self._prepare(op, inputs, outputs, shard, workspace)
        self._launched[id(inputs)] = known
        lane, ready = self.compute, self._ready
        read, written = [ready(one, lane) for one in known.reads], [ready(one, lane) for one in known.writes]
        self._do(lane, read, written, partial(self._run, known))

    def _prepare(self, op: Op, inputs: Reads, outputs: Writes, shard: Shard, workspace: Buffer | None) -> StepWork:
        """The arrays of a step's blocks, and how its work is done."""
        blocks = self._blocks
        given = [None if item is None else self._view(blocks[item[0].id], *item[1:]) for item in inputs]
        made = [self._view(blocks[buffer.id], box) for buffer, box in outputs]
        room = self._whole(blocks[workspace.id]) if workspace is not None else self._nothing
        told, way, aside = shard.within(room), None, self._put_aside(op, inputs, outputs, given)
        if not op.host_only and op.name not in self.shared.kernels:
            way = self._find_way(op, given, made, told)
        reads = tuple(item[0] for item in inputs if item is not None)
        writes = (*(buffer for buffer, _ in outputs), *(() if workspace is None else (workspace,)))
        return StepWork(op, inputs, outputs, reads, writes, given, made, told, way, aside)

    def _put_aside(self, op: Op, inputs: Reads, outputs: Writes, given: list[Any]) -> list[tuple[Any, Any]]:
        """Have a step that overwrites what it reads read copies, where a kernel or block function was passed for it."""
        is_plain = self.shared.kernels.keys().isdisjoint([op.name, *list_inside(op)])
        aside = list[tuple[Any, Any]]()
        places = {self._find_home(buffer) for buffer, _ in outputs if buffer.over is not None}
        for k, item in enumerate(inputs):
            keeps = op.host_only or (is_plain and is_in_place(op.block, k))
            if item is not None and not keeps and self._find_home(item[0]) in places:
                # The pool may give memory that this lane alone has done with: another lane's is perhaps in use.
                self.shared.current.enter(self.gpu, self.compute)
                aside.append((self.shared.cupy.empty(given[k].shape, given[k].dtype), given[k]))
                given[k] = aside[-1][0]
        return aside

    def _lies(self, src: Buffer, dst: Buffer) -> bool:
        """Whether what is copied lies in its place: who reads that then waits for who wrote the source."""
        if src.within is None or src.within.buffer != dst.id:
            return False
        self._blocks[dst.id].uses.writes += self._blocks[src.id].uses.writes
        return True

    def _list_beside(self, block: Block) -> list[Block]:
        """The other blocks that live in the same place: within a block, around it, or beside it in another one."""
        home = self._find_home(block.buffer)
        return [one for one in self._blocks.values() if one is not block and self._find_home(one.buffer) == home]

    def _find_home(self, buffer: Buffer) -> int:
        """The outermost block that a buffer lies in, maybe itself."""
        while buffer.within is not None:
            buffer = self._blocks[buffer.within.buffer].buffer
        return buffer.place

    def _tell(self, block: Block, live: bool) -> None:
        """Tell a checker, if there is one, which bytes of the arena are a buffer's."""
        if self._told is not None and block.buffer.nbytes:
            buffer = block.owner
            self._told(block.address, buffer.nbytes, f"{buffer.id} ({buffer.tensor})", live)

    def _payload(self, address: int, nbytes: int, dtype: np.dtype[Any], uses: Uses) -> Payload:
        """Packed cells on this GPU."""
        return Payload(address, nbytes, dtype, self.gpu.number, uses, lane=self.out)

    def take_room(self, nbytes: int, dtype: np.dtype[Any]) -> Payload:
        """Room for packed cells in the ring."""
        slot = self._ring.take(nbytes)
        return self._payload(self._ring_memory.ptr + slot.offset, nbytes, dtype, slot.uses)

    def _do(self, lane: Lane, reads: Used, writes: Used, work: Callable[[], None]) -> None:
        """Put work into a lane: behind those who use the same memory, on which it leaves its mark."""
        wait_for_users(lane, reads, writes)
        self.shared.current.enter(self.gpu, lane)
        work()
        if self.shared.blocking:
            lane.stream.synchronize()
        leave_mark(lane, reads, writes)

    def _memcpy(self, address: int, payload: Payload) -> None:
        """Copy a payload as it lies: from pinned memory, from this GPU, or from another one."""
        runtime, stream, gpu = self.shared.cupy.cuda.runtime, self.incoming.stream.ptr, self.gpu.number
        if payload.gpu not in (HOST, gpu):
            runtime.memcpyPeerAsync(address, gpu, payload.address, payload.gpu, payload.nbytes, stream)
        elif payload.nbytes:
            kind = runtime.memcpyHostToDevice if payload.gpu == HOST else runtime.memcpyDeviceToDevice
            runtime.memcpyAsync(address, payload.address, payload.nbytes, kind, stream)

    def _launch(self, launches: Iterable[kernels.Launch]) -> None:
        """Put kernels into the current stream."""
        for launch in launches:
            self.gpu.function(launch.entry)(launch.grid, launch.block, launch.args, shared_mem=launch.shared_nbytes)

    def _ready(self, buffer: Buffer, lane: Lane) -> Block:
        """A buffer's block; where nobody used it yet poisoned, if that is asked for, and filled outside the tensor."""
        block = self._blocks[buffer.id]
        if block.fresh is not None:
            shape, block.fresh = block.fresh, None
            if self.shared.poison or buffer.fill is not None:
                self._do(lane, [], [block], partial(self._poison, block, shape, lane))
        return block

    def _poison(self, block: Block, shape: Ints, lane: Lane) -> None:
        buffer = block.buffer
        poison = POISON_FLOAT if block.dtype.kind in "fc" else POISON_OTHER
        if buffer.nbytes and self.shared.poison:
            self.shared.cupy.cuda.runtime.memsetAsync(block.address, poison, buffer.nbytes, lane.stream.ptr)
        if buffer.fill is not None:
            beside = copies.outside(buffer.shape, buffer.start, shape)
            self._launch(_fills(beside, block.dtype, buffer.fill, block.address))

    def _target(self, buffer: Buffer, regions: Regions, lane: Lane) -> Block:
        """The block of a buffer whose cells in `regions` are about to be written."""
        block = self._blocks[buffer.id]
        if block.fresh is not None and len(regions) == 1 and regions[0].size == prod(buffer.shape):
            block.fresh = None
        return self._ready(buffer, lane)

    def _copy(self, src: Buffer, target: Block, transfers: Sequence[Transfer]) -> None:
        source = self._ready(src, self.compute)
        work = partial(self._launch, kernels.copies(transfers, target.dtype.itemsize, source.address, target.address))
        self._do(self.compute, [source], [target], work)

    def _by_tables(self, piece: Piece, source: Block, target: Block, regions: tuple[Region, ...]) -> None:
        """The general way, for views that are not strided copies: by the numbers of the cells, which are kept."""
        cells, values = self._flat(target), self._flat(source)
        for at, read in self._numbers(piece, source.buffer, target.buffer, regions):
            self.copied_nbytes += at.size * target.dtype.itemsize
            cells[at] = piece.fill if read is None else values[read]

    def _numbers(self, piece: Piece, src: Buffer, dst: Buffer, regions: tuple[Region, ...]) -> list[tuple[Any, Any]]:
        """Numbers of cells in the target's and in the source's block, on the GPU."""
        key = piece, src.box, dst.box, regions
        found: list[tuple[Any, Any]] | None = self.gpu.tables.get(key)
        if found is None:
            if self.shared.current.is_recording:
                raise NotRecordable("an index table was not kept, and a graph cannot hold how it is brought to the GPU")
            array = self.shared.cupy.asarray
            found = [
                (array(at), None if read is None else array(read))
                for at, read in copies.index_pairs(piece, src.box, dst.box, regions)
            ]
            # Other lanes may use it later, without an event to wait for.
            self.compute.stream.synchronize()
            self.gpu.keep_table(key, found, sum(a.nbytes for pair in found for a in pair if a is not None))
        return found

    def _merge(
        self, monoid: Monoid, attrs: Attrs, parts: Sequence[Block], target: Block, regions: Regions, fan_in: int | None
    ) -> None:
        cupy, blocks = self.shared.cupy, (target, *parts)
        out, *whole = (self._whole(block) for block in blocks)
        function = merging(monoid, [block.dtype for block in blocks], len(parts), fan_in)
        for box in copies.together(tuple((b.buffer.strides, b.buffer.start) for b in blocks), tuple(regions)):
            offsets, (dims, *strides) = box.origin, box.columns()
            if function is not None:
                addresses = (b.address + at * b.dtype.itemsize for b, at in zip(blocks, offsets, strict=True))
                places = list(zip(addresses, strides, strict=True))
                self._launch(kernels.merges(function, target.dtype.name, dims, places, fan_in))
                continue
            states = [
                tuple(_strided(cupy, component, b.dtype, dims, at, steps) for component in components_of(array))
                for b, array, at, steps in zip(parts, whole, offsets[1:], strides[1:], strict=True)
            ]
            state, goals = merge_states(monoid, cupy, states, fan_in), components_of(out)
            made = (monoid.unwrap(cupy, state, attrs),) if target.buffer.part < 0 or monoid.is_plain else state
            for goal, cells in zip(goals, made, strict=True):
                _strided(cupy, goal, target.dtype, dims, offsets[0], strides[0])[...] = cells

    def _run(self, known: StepWork) -> None:
        for copied, read in known.aside:
            copied[...] = read
        for block in (self._blocks[buffer.id] for buffer in known.writes if known.aside and buffer.over is not None):
            self._tell(block, False)
            self._tell(block, True)
            self._poison(block, (), self.compute)
        if known.way is not None:
            known.way(self._namespace, self._launch)
        else:
            self._run_one(known.op, known.given, known.made, known.shard)

    def _run_one(self, op: Op, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        """Run an operator by the kernel that is attached to it, by raw kernels, or by its block function.

        A block that is not run as one runs the operators in it so.
        """
        kernel = self.shared.kernels.get(op.name)
        asked = None if kernel is None else kernel.asked(inputs, outputs, shard)
        if kernel is not None and asked is not None:
            grid, block, args, shared_nbytes = asked
            launched = self.gpu.function(kernel.entry, kernel.source, kernel.options)
            launched(grid, block, args, shared_mem=shared_nbytes)
        elif op.host_only:
            self._run_on_host(op, inputs, outputs, shard)
        elif (way := self._find_way(op, inputs, outputs, shard)) is not None:
            way(self._namespace, self._launch)
        else:
            self._open(op).block(self._namespace, inputs, outputs, shard)

    def _find_way(self, op: Op, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> Way | None:
        """How an operator is run by raw kernels as one; None where it is not, or a part of it has a kernel attached."""
        if not self.shared.kernels.keys().isdisjoint(list_inside(op)):
            return None
        return way_of(op.form_of(shard), inputs, outputs)

    def _open(self, op: Op) -> Op:
        """A block of operators each of which is run as it would be by itself; any other operator as it is."""
        if not isinstance(op, Derived):
            return op
        known = self._opened.get(op.name)
        if known is None or known[0] is not op:
            device = weakref.ref(self)  # operators are kept longer than devices

            def attach(one: Op) -> Op:
                def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
                    if (here := device()) is not None:
                        here._run_one(one, inputs, outputs, shard)

                # What a kernel that is attached does, nobody has promised.
                keeps = one.name not in self.shared.kernels
                return replace(one, block=InPlaceBlock(block, one.block) if keeps else block)

            # Blocks within a block share its scratch memory, so that they stay what they are.
            inside = {
                name: attach(one)
                for name, one in list_inside(op).items()
                if name in self.shared.kernels or not isinstance(one, Derived)
            }
            known = self._opened[op.name] = op, with_ops(op, inside)
        return known[1]

    def _run_on_host(self, op: Op, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        read = [None if x is None else self._on_host(x) for x in inputs]
        made = [self._on_host(out) for out in outputs]
        room = np.empty(shard.workspace.nbytes, np.uint8)
        op.block(np, read, made, shard.within(room))
        for out, array in zip(outputs, made, strict=True):
            for component, values in zip(components_of(out), components_of(array), strict=True):
                component[...] = self.shared.cupy.asarray(np.ascontiguousarray(values))

    def _on_host(self, array: Any) -> Array:
        """A copy in host memory; of states a structured array."""
        get = self.shared.cupy.asnumpy
        if not isinstance(array, States):
            return cast(Array, get(array))
        made = np.empty(array.shape, array.dtype)
        for name in array.dtype.names or ():
            made[name] = get(array[name])
        return made

    def _array(self, dtype: Any, block: Block, offset: int, shape: Ints, steps: Ints, field: int = 0) -> Any:
        """An array in the arena from `offset` and `field` bytes behind the block's first; steps in bytes."""
        return self.shared.cupy.ndarray(shape, dtype, block.memory + (offset + field), steps)

    def _count(self, transfers: Sequence[Transfer], target: Buffer) -> None:
        """Count what copies within this device write."""
        self.copied_nbytes += sum(t.size for t in transfers) * np.dtype(target.dtype).itemsize

    def _view(self, block: Block, box: Box, piece: Piece | None = None) -> Any:
        """The cells of a box of a block, or with a piece of a view of it."""
        size, (strides, at) = block.dtype.itemsize, copies.lay_block(block.buffer, box, piece)
        place = block, at * size, box.shape, tuple(s * size for s in strides)
        if block.dtype.fields is None:
            return self._array(block.dtype, *place)
        parts = {name: self._array(field[0], *place, field[1]) for name, field in block.dtype.fields.items()}
        return States(block.dtype, parts)

    def _whole(self, block: Block) -> Any:
        return self._view(block, block.buffer.box)

    def _flat(self, block: Block) -> Any:
        return self._array(block.dtype, block, 0, (prod(block.buffer.shape),), (block.dtype.itemsize,))


# ---------------------------------------------------------------------------------------------------- arithmetic


def wait_for_users(lane: Lane, reads: Used, writes: Used) -> None:
    """Let what comes next in a lane wait for those who use the memory that it reads and writes."""
    marks = [mark for used in reads for mark in used.uses.writes]
    lane.after(marks + [mark for used in writes for mark in used.uses.all])


def leave_mark(lane: Lane, reads: Used, writes: Used) -> None:
    """Leave a mark of what a lane did last on the memory that it read and wrote."""
    mark = lane.mark()
    for used in reads:
        used.uses.read(mark)
    for used in writes:
        used.uses.wrote(mark)


def _open_handle(shared: Shared, gpu: Gpu, lane: Lane) -> Handle:
    """cuBLAS in a lane."""
    with gpu.device:
        return Handle(shared.cupy, lane.stream, shared.tf32)


def _run_of(transfers: Sequence[Transfer], size: int, side: Literal["src", "dst"]) -> int | None:
    """Where the array's cells begin if all of a payload's cells lie there one behind the other, else None."""
    if len(transfers) != 1 or transfers[0].guards:
        return None
    t = transfers[0].collapse()
    strides, offset = (t.src_strides, t.src_offset) if side == "src" else (t.dst_strides, t.dst_offset)
    return offset if not t.dims or (len(t.dims) == 1 and strides == (1,) and t.dims[0] == size) else None


def _fills(transfers: Sequence[Transfer], dtype: np.dtype[Any], value: float, dst: int) -> Sequence[kernels.Launch]:
    return kernels.fills(transfers, np.array(value, dtype).tobytes(), dst)


def _strided(cupy: Any, array: Any, cell: np.dtype[Any], dims: Ints, offset: int, strides: Ints) -> Any:
    """A view of an array of cells, or of one component of theirs, by offset and strides in cells."""
    step = cell.itemsize
    return cupy.ndarray(dims, array.dtype, array.data + offset * step, tuple(s * step for s in strides))


def clock_of(lane: Lane) -> tuple[Any, float]:
    """An event in an idle lane and the host's time of it: of several the one that is bounded the closest."""
    found = []
    for _ in range(CLOCK_TRIES):
        before = perf_counter()
        event = lane.time()
        event.synchronize()
        after = perf_counter()
        found.append((after - before, (before + after) / 2, event))
    _, at, event = min(found, key=lambda one: one[0])
    return event, at
