"""The backend: NumPy's devices, whose blocks run in sessions of ONNX Runtime where they can."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapestry_exec.copies import Array, aligned_bytes
from tapestry_exec.numpy import Launched, NumpyBackend, NumpyDevice
from tapestry_exec.onnxruntime import tuning
from tapestry_exec.onnxruntime.blocks import Given, NotLocal, make_graph
from tapestry_exec.onnxruntime.segments import Program, StepBlock, Stretch
from tapestry_exec.run import (
    Absorbed,
    BackendUnavailable,
    Deployed,
    LocalSession,
    Reads,
    Regions,
    Session,
    Writes,
    count_flop,
    find_blocks,
)
from tapestry_plan.ir import Call, Graph, Op, Shard, UnsupportedOp
from tapestry_plan.onnx import to_onnx
from tapestry_plan.rewrite import is_builtin
from tapestry_plan.steps import Alloc, Buffer, Compute, Copy, DeviceStep, Free
from tapestry_sets.regions import Region
from tapestry_sets.views import Piece


class OnnxruntimeBackend(NumpyBackend):
    """Devices of a mesh as arenas in this process, whose blocks ONNX Runtime computes where it can.

    Bytes and peaks are those of "numpy"; numbers are equal up to rounding, where all are finite. What a session needs
    beside the arenas is not counted. Where a plan is deployed, weights are part of the sessions, which end with the
    deployment. Blocks of other numbers than float32 (attributes of ONNX are of 32 bits), of few cells, that do not lie
    side by side, of operators of one's own, or of those that depend on where they lie, are NumPy's. What is opaque,
    of whatever numbers, runs as on every backend: in a session where ONNX Runtime has its operators.

    Raises
    ------
    BackendUnavailable
        When onnxruntime, or onnx, is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (4, 6))), "y")
    >>> p = plan(g, Mesh(2), fix={"relu": {"i0": 2}})
    >>> result = run(p, {"x": np.ones((4, 6), np.float32)}, backend="onnxruntime", verify=True)
    >>> result.nbytes_placed, result.difference
    ((48, 48), {'y': 0.0})
    """

    name = "onnxruntime"
    saves = False

    def __init__(self) -> None:
        super().__init__()
        try:
            import onnxruntime
        except ImportError as error:
            raise BackendUnavailable(
                f"the backend 'onnxruntime' needs the package of this name, which cannot be imported ({error}): "
                "pip install 'tapestry-tensor[verify]'"
            ) from error
        self._library = onnxruntime
        self._sessions: dict[Any, Any] = {}

    def make_device(self, nbytes: int) -> NumpyDevice:
        """A device with an arena of so many bytes."""
        return OnnxruntimeDevice(aligned_bytes(nbytes), self)

    def begin(self, what: Deployed) -> Session:
        """The devices of a plan, which are told what stays on them."""
        return OnnxruntimeSession(what)

    def find_session(self, op: Op, shard: Shard, given: Sequence[Given | None]) -> Any:
        """A session for a block, or None where it has none; alike blocks without constants have one."""
        if any(one is not None and one.value is not None for one in given) or not is_builtin(op, shard.attrs):
            return self._begin_session(op, shard, given)
        attrs = tuple((key, repr(value)) for key, value in shard.attrs.items())
        boxes = tuple(box and box.shape for box in (*shard.input_boxes, *shard.output_boxes))
        key = op.name, attrs, shard.index, boxes, tuple(one and (one.shape, one.dtype) for one in given)
        if key not in self._sessions:
            if len(self._sessions) >= tuning.KEPT_SESSIONS:
                self._sessions.clear()
            self._sessions[key] = self._begin_session(op, shard, given)
        return self._sessions[key]

    def _begin_session(self, op: Op, shard: Shard, given: Sequence[Given | None]) -> Any:
        try:
            graph = make_graph(op, shard, given)
        except NotLocal:
            return None
        return self.open_session(graph)

    def open_session(self, graph: Graph) -> Any:
        """A session of a graph; None where ONNX, or ONNX Runtime, has no such operators."""
        try:
            model = to_onnx(graph)
        except UnsupportedOp:
            return None
        return self._open_model(model.SerializeToString())

    def _open_model(self, model: bytes) -> Any:
        options = self._library.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            return self._library.InferenceSession(model, options, ["CPUExecutionProvider"])
        except Exception:  # what it raises of an operator or dtype that it has no kernel for is of no one class
            return None


class _Part(NamedTuple):
    """What a step of a segment does: nothing but copy what would be gone, and at last run the session."""

    block: StepBlock
    copies: Sequence[tuple[Array, Array]]
    run: Callable[[], None] | None

    @property
    def is_done_elsewhere(self) -> bool:
        """Whether nothing is left to do."""
        return not self.copies and self.run is None


def _copy_all(pairs: Sequence[tuple[Array, Array]]) -> None:
    for target, source in pairs:
        target[...] = source


class OnnxruntimeSession(LocalSession):
    """Devices that know which of their buffers hold constants."""

    def place(self) -> None:
        """Tell the devices before anything is computed on them."""
        stays, stored = self.what.stays, self.prepared.plan.graph.stored
        for device, memory in enumerate(self.devices):
            if stays is not None and isinstance(memory, OnnxruntimeDevice):
                numbers = (at.step.buffer for at in stays.placing if at.device == device and isinstance(at.step, Alloc))
                buffers = [self.prepared.work.buffers[number] for number in numbers]
                is_constant = {b.id for b in buffers if b.tensor in stored and stored[b.tensor].kind == "constant"}
                memory.constants = frozenset(is_constant)
        super().place()
        for memory, program in zip(self.devices, stays.programs if stays is not None else (), strict=False):
            if isinstance(memory, OnnxruntimeDevice):
                memory.find_segments(self.what, program)


class OnnxruntimeDevice(NumpyDevice):
    """One device: NumPy's arena, and sessions for its blocks.

    Parameters
    ----------
    memory : array of uint8
        The arena.
    backend : OnnxruntimeBackend
        That keeps the sessions.
    """

    def __init__(self, memory: NDArray[np.uint8], backend: OnnxruntimeBackend) -> None:
        super().__init__(memory)
        self.backend = backend
        self.constants: Collection[int] = ()
        """Buffers whose cells never change."""
        self._put: set[int] = set()
        """Buffers that sessions fill in the place of copies."""
        self.absorbed = dict[int, Absorbed]()
        self._parts: dict[int, _Part] = {}
        """By the identity of a step's shard what the step does of its segment."""

    def find_segments(self, what: Deployed, program: Sequence[DeviceStep]) -> None:
        """Let steps of a program share sessions, where these can be had; what stays is in its place."""
        work, ops, graph = what.prepared.work, what.ops, what.prepared.plan.graph

        def find(at: int, one: DeviceStep) -> StepBlock | None:
            assert isinstance(one.step, Compute), "segments ask about these alone"
            shard = work.shards[one.number]
            inputs, outputs, _ = find_blocks(work, one.step, shard)
            arrays = tuple(None if item is None else self.foresee(*item) for item in inputs)
            write = tuple(self.foresee(*item) for item in outputs)
            if len(write) != 1 or any(a.dtype != np.float32 for a in (*arrays, *write) if a is not None):
                return None
            given = tuple(
                None
                if item is None or array is None
                else Given(array.shape, array.dtype.name, array if item[0].id in self.constants else None)
                for item, array in zip(inputs, arrays, strict=True)
            )
            node = work.nodes[one.step.node]
            return StepBlock(at, ops[node.op], shard, inputs, outputs, given, arrays, write, node.inputs)

        found = Program(program, graph, work, find)
        left = [*found.list_segments()]
        while left:
            segment = left.pop()
            is_worth = sum(block.shard.index.size for block in segment.blocks) >= tuning.MIN_POINTS
            session = self.backend.open_session(segment.graph) if is_worth else None
            if session is not None:
                self._bind_segment(segment, session)
                self._absorb(segment, program, what)
            elif is_worth and len(segment.items) > 2:
                half = len(segment.items) // 2
                left += [*found.cut(segment.items[:half]), *found.cut(segment.items[half:])]

    def _bind_segment(self, segment: Stretch, session: Any) -> None:
        binding, early, late = session.io_binding(), dict[int, list[tuple[Array, Array]]](), list[tuple[Array, Array]]()
        for name, block, array, is_early in segment.inputs:
            room = array if array.flags.c_contiguous and not is_early else np.empty(array.shape, array.dtype)
            if is_early:
                early.setdefault(id(block.shard), []).append((room, array))
            elif room is not array:
                late.append((room, array))
            binding.bind_input(name, "cpu", 0, room.dtype.type, room.shape, room.ctypes.data)
        made = list[tuple[Array, Array]]()
        for k, (buffer, box) in enumerate(segment.outputs):
            out = self.foresee(buffer, box)
            room = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
            if room is not out:
                made.append((out, room))
            binding.bind_output(f"y{k}", "cpu", 0, room.dtype.type, room.shape, room.ctypes.data)
        self._put |= segment.put
        places = {buffer.over for buffer, _ in segment.outputs if buffer.over is not None}

        def run() -> None:
            if places:  # what was lent of who had them before is packed
                self.keep_loans([n for n, (one, *_) in self._loans.items() if one.buffer.place in places])
            for buffer, box in segment.outputs:
                self._target(buffer, (Region.full(box.shape, box.start),))
            self.copied_nbytes += segment.copied_nbytes
            self.peak_nbytes = max(self.peak_nbytes, self._held_nbytes + segment.reach_nbytes)
            _copy_all(late)
            session.run_with_iobinding(binding)
            _copy_all(made)

        last = segment.blocks[-1]
        for block in segment.blocks:
            self._parts[id(block.shard)] = _Part(block, early.get(id(block.shard), []), run if block is last else None)

    def _absorb(self, segment: Stretch, program: Sequence[DeviceStep], what: Deployed) -> None:
        """Note which steps of a program have nothing left to do."""
        work, ops = what.prepared.work, what.ops
        for one in program:
            match step := one.step:
                case Alloc() | Free() if step.buffer in segment.inner:
                    buffer, kind = work.buffers[step.buffer], "alloc" if isinstance(step, Alloc) else "free"
                    told = Absorbed(kind, buffer.tensor, work.count_taken(step))
                case Copy() if step.dst in segment.inner:
                    told = Absorbed("copy", step.node)
                case Compute() if (part := self._parts.get(id(work.shards[one.number]))) and part.is_done_elsewhere:
                    flop = count_flop(ops[work.nodes[step.node].op], part.block.shard)
                    told = Absorbed("compute", step.node, flop=flop)
                case _:
                    continue
            self.absorbed[one.number] = told

    def launch(self, op: Op, inputs: Reads, outputs: Writes, shard: Shard, workspace: Buffer | None) -> None:
        """Run an operator's block function, its session, or a part of a segment's work."""
        part = self._parts.get(id(shard))
        if part is None:
            super().launch(op, inputs, outputs, shard, workspace)
            return
        _copy_all(part.copies)
        if part.run is not None:
            part.run()

    def copy(self, src: Buffer, dst: Buffer, regions: Regions) -> None:
        """Copy cells between two buffers of this device, unless a session does."""
        if dst.id not in self._put:
            super().copy(src, dst, regions)

    def gather(self, src: Buffer, dst: Buffer, piece: Piece, regions: Regions) -> None:
        """Fill cells of a view's block through one of the view's pieces, unless a session does."""
        if dst.id not in self._put:
            super().gather(src, dst, piece, regions)

    def leave(self) -> None:
        """Give up all buffers."""
        self.absorbed.clear()
        self._put.clear()
        self._parts.clear()
        self._launches.clear()  # sessions hold constants
        self.constants = ()
        super().leave()

    def list_calls(self, known: Launched) -> Iterable[Call]:
        """A block's session, or the calls of NumPy's block function."""
        run = self._bind(known)
        return super().list_calls(known) if run is None else (run,)

    def _bind(self, known: Launched) -> Call | None:
        """A session on the arrays of a step; None where there is none, or they do not lie side by side."""
        arrays = [array for array in known.read if array is not None]
        is_even = all(array.flags.c_contiguous for array in arrays)
        is_float = all(array.dtype == np.float32 for array in (*arrays, *known.write))
        if not (is_even and is_float) or len(known.write) != 1 or known.shard.index.size < tuning.MIN_POINTS:
            return None
        given = list[Given | None]()
        for item, array in zip(known.inputs, known.read, strict=True):
            is_known = item is not None and item[0].id in self.constants
            value = array if is_known else None
            given.append(None if array is None else Given(array.shape, array.dtype.name, value))
        session = self.backend.find_session(known.op, known.shard, given)
        if session is None:
            return None
        binding = session.io_binding()
        for k, (one, array) in enumerate(zip(given, known.read, strict=True)):
            if one is not None and array is not None and one.value is None:
                binding.bind_input(f"x{k}", "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        (out,) = known.write  # a session promises nothing of where its output lies over what it reads
        made = out if out.flags.c_contiguous and not known.overtaken else np.empty(out.shape, out.dtype)
        binding.bind_output("y", "cpu", 0, made.dtype.type, made.shape, made.ctypes.data)
        if made is out:
            return lambda: session.run_with_iobinding(binding)

        def run() -> None:
            session.run_with_iobinding(binding)
            out[...] = made

        return run
