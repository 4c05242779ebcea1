"""Plans that need room: random programs over blocks of several sizes, followed byte by byte; their least traffic."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from random import Random

import numpy as np
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_plan import HOST, Graph, Mesh, ShardPlan, Tensor, concat, plan
from tapestry_plan.ops import conv, logsumexp, matmul, relu
from tapestry_plan.steps import Alloc, Compute, Copy, Fetch, Free, Reduce, Spill, Step, lower

LENGTHS = (16, 40, 64, 130, 256)
"""Of the vectors that programs begin with: blocks of 64 to 1,024 bytes, not all of them multiples of a cache line."""
LINE_NBYTES = 64
"""Blocks begin at multiples of a cache line and take whole ones."""
Program = tuple[int, list[tuple[int, int, int, bool]], list[tuple[int, bool]], bool]
"""Devices; steps (operation, two earlier tensors, whether its shards are asked for); which tensors are outputs, and
whether every device is asked to have the whole; whether inputs start in one copy."""


def padded(nbytes: int) -> int:
    return (nbytes + LINE_NBYTES - 1) // LINE_NBYTES * LINE_NBYTES


# ------------------------------------------------------------------------------------------------ random programs


def _shorter(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    n = min(a.shape[0], b.shape[0])
    return a[:n], b[:n]


def _added(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    return g.op("add", *_shorter(a, b))


def _joined(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    return relu(concat([a, b.flip(0)], 0)[:300])


def _dotted(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    a, b = _shorter(a, b)
    return matmul(a.reshape(1, -1), b.reshape(-1, 1)).reshape(-1)


def _smoothed(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    kernel = g.constant(f"k{len(g.stored)}", np.array([[[1, -2, 0.5]]], np.float32))
    return conv(a.reshape(1, 1, -1), kernel, pads=(1, 1)).reshape(-1)


def _weighed(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    n = a.shape[0]
    values = np.linspace(-1, 1, n, dtype=np.float32)
    return g.op("multiply", a, g.constant(f"w{len(g.stored)}", values))


def _again(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    return logsumexp(a.reshape(-1, 1), axis=(1,), keepdims=False)


OPERATIONS = (_added, _added, _joined, _dotted, _smoothed, _weighed, _again, lambda g, a, b: relu(a))


def programs(longest: int = 8) -> st.SearchStrategy[Program]:
    """Programs for one to three devices."""
    near = st.integers(0, 60)
    step = st.tuples(st.integers(0, len(OPERATIONS) - 1), near, near, st.booleans())
    outputs = st.lists(st.tuples(near, st.booleans()), min_size=1, max_size=3)
    return st.tuples(st.integers(1, 3), st.lists(step, min_size=2, max_size=longest), outputs, st.booleans())


def seeded_program(seed: int, longest: int = 6) -> Program:
    """A program that depends on nothing but its seed."""
    rng = Random(seed)
    steps = [
        (rng.randrange(len(OPERATIONS)), rng.randrange(61), rng.randrange(61), rng.random() < 0.5)
        for _ in range(rng.randint(3, longest))
    ]
    return rng.randint(1, 2), steps, [(rng.randrange(61), False) for _ in range(rng.randint(1, 2))], False


def planned(program: Program) -> ShardPlan:
    """The program's plan, with the shards that it asks for."""
    devices, steps, outputs, is_single = program
    g = Graph()
    tensors = [g.input(f"x{k}", (n,)) for k, n in enumerate(LENGTHS)]
    fix: dict[str, dict[str, int]] = {}
    for operation, a, b, is_cut in steps:
        known = set(g.nodes)
        tensors.append(OPERATIONS[operation](g, tensors[a % len(tensors)], tensors[b % len(tensors)]))
        for name in g.nodes.keys() - known if is_cut else ():
            longest = max(g.signature(name).axes, key=lambda axis: axis.size)
            if longest.size >= devices:
                fix[name] = {longest.name: devices}
    layout: dict[str, dict[str, int]] = {}
    for at, is_whole in {at % len(tensors): is_whole for at, is_whole in outputs}.items():
        g.output(tensors[at], f"y{at}")
        if is_whole and tensors[at].name in g.stored:
            layout[f"y{at}"] = {}
    return plan(g, Mesh(devices), fix=fix, layout=layout, placement="single" if is_single else "free")


def apart(p: ShardPlan) -> ShardPlan:
    """The same plan where no buffer lies within another one, as plans that spill are."""
    made = lower(p.graph, p.mesh, p.choices, apart=True)
    peaks = [0] * p.mesh.size
    for buffer in made.buffers:
        peaks[buffer.device] = max(peaks[buffer.device], buffer.offset + padded(buffer.nbytes))
    found = p.with_steps(buffers=made.buffers, steps=made.steps, outputs=made.outputs)
    return replace(found, peak_nbytes=tuple(peaks))


def arrays_for(p: ShardPlan, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal(tensor.shape).astype(tensor.dtype)
        for name, tensor in p.graph.stored.items()
        if tensor.kind == "input"
    }


# ------------------------------------------------------------------------------------------ followed byte by byte


@dataclass
class Followed:
    """What following a plan's steps found, none of it taken from what the plan predicts.

    Parameters
    ----------
    acts : list
        What is computed, merged and copied, in order: each with the history of what it reads.
    outputs : list
        The history of each block of each output, and its cells.
    peak, spilled, placed, moved : lists and dicts
        Bytes: the highest that was taken, those to the host and back, those placed, those between devices.
    """

    acts: list[Hashable] = field(default_factory=list)
    outputs: list[Hashable] = field(default_factory=list)
    peak: list[int] = field(default_factory=list)
    spilled: list[int] = field(default_factory=list)
    placed: list[int] = field(default_factory=list)
    moved: dict[tuple[int, int], int] = field(default_factory=dict)
    transfers: int = 0


class _Follower:
    """Arenas as arrays with the owner of every byte; what a buffer holds as the history of its cells."""

    def __init__(self, p: ShardPlan) -> None:
        size = p.mesh.size
        self.buffers = {buffer.id: buffer for buffer in p.buffers}
        most = max((b.offset + padded(b.nbytes) for b in p.buffers), default=0)
        self.owner = np.full((size, most), HOST)
        self.history: dict[int, frozenset[Hashable]] = {}
        self.overtaken: dict[int, int] = {}
        """Live buffers over which others lie that are not written yet, by these."""
        self.host: dict[int, frozenset[Hashable]] = {}
        self.found = Followed(peak=[0] * size, spilled=[0] * size, placed=[0] * size)

    def _named(self, number: int) -> int:
        """What a buffer, all of whose bytes are its own, holds now, as one number."""
        buffer = self.buffers[number]
        span = self.owner[buffer.device, buffer.offset : buffer.offset + padded(buffer.nbytes)]
        assert (span == number).all(), f"buffer {number} is not alone in its place"
        return hash(self.history[number])

    def _write(self, number: int, what: Hashable) -> None:
        if number in self.overtaken:
            buffer, before = self.buffers[number], self.overtaken.pop(number)
            assert isinstance(what, tuple) and hash(self.history[before]) in what[1][5], "who writes there reads it"
            self.owner[buffer.device, buffer.offset : buffer.offset + padded(buffer.nbytes)] = number
        self._named(number)
        assert what not in self.history[number], "written once"
        self.history[number] |= {what}

    def follow(self, step: Step) -> None:
        match step:
            case Alloc() | Free():
                self._take(step)
            case Spill() | Fetch():
                self._spill(step)
            case Copy():
                self._copy(step)
            case Compute():
                reads = tuple(None if n is None else self._named(n) for n in step.inputs)
                act = "compute", step.node, step.device, step.start, step.shape, reads, step.pieces
                self.found.acts.append(act)
                if step.workspace is not None:
                    self._named(step.workspace)
                for k, number in enumerate(step.outputs):
                    self._write(number, (k, act))
            case Reduce():
                act = "reduce", step.node, step.regions, tuple(map(self._named, step.inputs)), step.fan_in
                self.found.acts.append(act)
                self._write(step.output, act)

    def _take(self, step: Alloc | Free) -> None:
        buffer = self.buffers[step.buffer]
        end = buffer.offset + padded(buffer.nbytes)
        span = self.owner[buffer.device, buffer.offset : end]
        if isinstance(step, Free):
            passed_on = {self.buffers[n].over for n in self.history if n != step.buffer} & {step.buffer, buffer.over}
            if step.buffer in span or not passed_on:
                self._named(step.buffer)
                span[:] = HOST
            del self.history[step.buffer]
            return
        if buffer.over is not None:
            (before,) = set(span.tolist())
            assert before in self.history and self.buffers[before].box == buffer.box
            self.overtaken[step.buffer], self.history[step.buffer] = before, frozenset()
            return
        assert (span == HOST).all(), f"buffer {step.buffer} lies over {set(span.tolist())}"
        assert step.buffer not in self.history
        span[:] = step.buffer
        self.history[step.buffer] = frozenset()
        self.found.peak[buffer.device] = max(self.found.peak[buffer.device], end)

    def _spill(self, step: Spill | Fetch) -> None:
        buffer = self.buffers[step.buffer]
        self._named(step.buffer)
        self._count(buffer.device, buffer.nbytes)
        if isinstance(step, Spill):
            self.host[step.buffer] = self.history[step.buffer]
            return
        assert not self.history[step.buffer], "fetched into an empty buffer"
        self.history[step.buffer] = self.host[step.spilled]
        if not step.keep:
            del self.host[step.spilled]

    def _count(self, device: int, nbytes: int) -> None:
        self.found.spilled[device] += nbytes
        self.found.transfers += 1

    def _copy(self, step: Copy) -> None:
        target = self.buffers[step.dst]
        nbytes = sum(len(region.points()) for region in step.regions) * np.dtype(target.dtype).itemsize
        if step.src == HOST and step.piece is None:
            if step.again:
                self._count(target.device, nbytes)
            else:
                self.found.placed[target.device] += nbytes
            self._write(step.dst, ("placed", step.tensor, step.regions))
            return
        read = None if step.src in (HOST, step.dst) else self._named(step.src)
        self.found.acts.append(act := ("copy", step.node, step.tensor, step.regions, step.piece, read))
        self._write(step.dst, act)
        source = target if read is None else self.buffers[step.src]
        if source.device != target.device:
            link = source.device, target.device
            self.found.moved[link] = self.found.moved.get(link, 0) + nbytes

    def end(self, p: ShardPlan) -> Followed:
        for out in p.outputs:
            for number, region in (*out.blocks, *out.replicas):
                held = self.host.get(number)
                self.found.outputs.append((out.name, region, self._named(number) if held is None else hash(held)))
        return self.found


def followed(p: ShardPlan) -> Followed:
    """Follow a plan's steps; AssertionError where buffers lie over one another or use what is not there."""
    follower = _Follower(p)
    for step in p.steps:
        follower.follow(step)
    return follower.end(p)


# --------------------------------------------------------------------------------------------- the least traffic


def touched(step: Step) -> tuple[set[int], set[int]]:
    """Buffers that a step uses, and those of them that it writes; none for steps that only take, free or place."""
    match step:
        case Copy(src=src, dst=dst, piece=piece) if src != HOST or piece is not None:
            return {dst} | ({src} - {HOST}), {dst}
        case Compute():
            work = {step.workspace} - {None}
            return ({*step.inputs, *step.outputs} | work) - {None}, {*step.outputs} | work  # type: ignore[return-value]
        case Reduce():
            return {*step.inputs, step.output}, {step.output}
        case _:
            return set(), set()


def needed_at_once(p: ShardPlan, device: int) -> int:
    """Bytes of the buffers of a device that one step uses at most."""
    size = {b.id: padded(b.nbytes) for b in p.buffers if b.device == device}
    held = [sum(size.get(n, 0) for n in touched(step)[0]) for step in p.steps]
    return max([*held, *(size.get(n, 0) for out in p.outputs for n, _ in (*out.blocks, *out.replicas))])


@dataclass(frozen=True)
class _Moment:
    """A step on one device: what it needs, what it writes, what was placed in the buffers by then, and what is past."""

    needs: frozenset[int]
    written: frozenset[int]
    placed: dict[int, int]
    over: frozenset[int]


def _moments(p: ShardPlan, device: int) -> tuple[list[_Moment], frozenset[int], dict[int, int]]:
    mine = {b.id: b for b in p.buffers if b.device == device}
    outputs = frozenset(n for out in p.outputs for n, _ in (*out.blocks, *out.replicas) if n in mine)
    placed: dict[int, int] = {}
    found = []
    for step in p.steps:
        if isinstance(step, Copy) and step.src == HOST and step.piece is None and step.dst in mine:
            cells = sum(len(region.points()) for region in step.regions)
            placed[step.dst] = placed.get(step.dst, 0) + cells * np.dtype(mine[step.dst].dtype).itemsize
        needs, written = (frozenset(mine.keys() & some) for some in touched(step))
        if needs:
            found.append(_Moment(needs, written, dict(placed), frozenset()))
    later: set[int] = set(outputs)
    for k in range(len(found) - 1, -1, -1):
        one = found[k]
        found[k] = _Moment(one.needs, one.written, one.placed, one.needs - later)
        later |= one.needs
    return found, outputs, {n: b.nbytes for n, b in mine.items()}


def _subsets(items: frozenset[int]) -> Iterator[frozenset[int]]:
    for count in range(len(items) + 1):
        yield from map(frozenset, combinations(sorted(items), count))


State = tuple[frozenset[int], frozenset[int]]
"""The buffers in the arena, and those of which the host holds what they hold."""


def fewest_nbytes(p: ShardPlan, device: int, memory: int) -> int:
    """Bytes to the host and back, over every choice of whole buffers to be given up, before every step.

    Where in the arena they lie is left aside: all that is asked is that together they are no more than the memory.
    So no layout moves fewer bytes.
    """
    moments, outputs, nbytes = _moments(p, device)
    size = {n: padded(count) for n, count in nbytes.items()}
    cap = memory // LINE_NBYTES * LINE_NBYTES
    costs: dict[State, int] = {(frozenset(), frozenset()): 0}
    before: dict[int, int] = {}
    """What had been placed in each buffer when it was last used; what is not here was never used."""
    changed: set[int] = set()
    """Buffers that hold what the host never had."""
    for moment in moments:
        after: dict[State, int] = {}
        for (arena, host), cost in costs.items():
            coming = moment.needs - arena
            if any(n in before and n in changed and n not in host for n in coming):
                continue  # given up without a copy: lost
            cost += sum(nbytes[n] if n in host else before.get(n, 0) for n in coming)
            for kept in _subsets(arena - moment.needs):
                if sum(size[n] for n in kept | moment.needs) > cap:
                    continue
                for copied in _subsets(arena - moment.needs - kept - host):
                    stale = moment.written | {n for n in moment.needs if moment.placed.get(n, 0) != before.get(n, 0)}
                    state = (kept | moment.needs) - moment.over, (host | copied) - stale - moment.over
                    total = cost + sum(nbytes[n] for n in copied)
                    after[state] = min(total, after.get(state, total))
        costs = after
        changed |= moment.written
        before.update({n: moment.placed.get(n, 0) for n in moment.needs})
    return min(cost + _at_the_end(state, outputs, nbytes, size, cap, before, changed) for state, cost in costs.items())


def _at_the_end(
    state: State,
    outputs: frozenset[int],
    nbytes: dict[int, int],
    size: dict[int, int],
    cap: int,
    before: dict[int, int],
    changed: set[int],
) -> float:
    """Bytes until every output lies in the arena or with the host."""
    arena, host = state
    best = float("inf")
    for kept in _subsets(outputs - host):
        if sum(size[n] for n in kept) > cap:
            continue
        cost = 0.0
        for n in outputs - host:
            if n not in arena and n in before:
                cost += before[n] if n not in changed else float("inf")
            cost += 0 if n in kept else nbytes[n]
        best = min(best, cost)
    return best


def caps_between(low: int, high: int, count: int = 4) -> list[int]:
    """Sizes from the least to the whole, spread evenly."""
    return sorted({low + (high - low) * k // (count - 1) for k in range(count)})


def tight_memory(p: ShardPlan) -> int:
    """The least memory in which the plan runs, the same for all devices."""
    return max(needed_at_once(p, device) for device in range(p.mesh.size))
