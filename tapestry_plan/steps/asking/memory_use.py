"""What lies in a device's arena step by step, and which buffers do where it holds the most.

::

    step      10 11 12 13 14 15
    x         ████████
    workspace       ██
    relu         ███████████       the most is held in step 12: x, relu and the scratch memory
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from tapestry_plan.ir import Graph
from tapestry_plan.steps.lowering import WORKSPACE
from tapestry_plan.steps.step import Alloc, Buffer, Free, Step, list_overtaken
from tapestry_plan.steps.tuning import SHOWN_ROWS
from tapestry_sets.draw import align as align_columns
from tapestry_sets.draw import as_html
from tapestry_sets.limits import Public

HEADS = "bytes", "tensor", "what", "cells", "from step", "to step"
NUMBERS = [k for k, name in enumerate(HEADS) if name not in ("tensor", "what", "cells")]


class HeldBuffer(Struct, frozen=True, metaclass=Public):
    """A buffer, and the steps during which it lies in its arena.

    Parameters
    ----------
    buffer : Buffer
    what : str
        In words: an input, a constant, a result or a part of one, a view that is written anew, scratch memory.
    nbytes : int
        In whole lines of the arena.
    first, last : int
        The steps that take its place and give it back; the last step of the plan where none does.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (4, 32))[:, ::-1], name="act"), "y")
    >>> held = plan(g, Mesh(2), fix={"act": {"i0": 2}}).memory[1].at_peak
    >>> [(one.what, one.buffer.tensor, one.nbytes) for one in held]
    [('input', 'x', 256), ('result', 'act', 256)]
    """

    buffer: Buffer
    what: str
    nbytes: int
    first: int
    last: int


class MemoryUse(Struct, frozen=True, metaclass=Public):
    """What lies in one device's arena.

    Parameters
    ----------
    device : int
    held : tuple of (step, bytes)
        What is held behind each step that takes or gives back a place, in whole lines; it stays until the next one.
    peak_step, peak_nbytes : int
        The first step behind which the most is held, and how much that is; -1 where there is no step.
    arena_nbytes : int
        How far the arena reaches, as `ShardPlan.peak_nbytes`: with gaps between buffers that is more.
    at_peak : tuple of HeldBuffer
        What is held then, the largest first.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (4, 32)), name="act"), "y")
    >>> use = plan(g, Mesh(2), fix={"act": {"i0": 2}}).memory[1]
    >>> use.peak_nbytes == sum(one.nbytes for one in use.at_peak) <= use.arena_nbytes
    True
    """

    device: int
    held: tuple[tuple[int, int], ...]
    peak_step: int
    peak_nbytes: int
    arena_nbytes: int
    at_peak: tuple[HeldBuffer, ...]

    def __repr__(self) -> str:
        if self.peak_step < 0:
            return f"MemoryUse(device {self.device}: nothing, arena {self.arena_nbytes:,} B)"
        return (
            f"MemoryUse(device {self.device}: {self.peak_nbytes:,} B in {len(self.at_peak)} buffers at step "
            f"{self.peak_step}, arena {self.arena_nbytes:,} B)"
        )

    def __str__(self) -> str:
        """What is held at the peak, as a table in plain text."""
        if not self.at_peak:
            return self._tell_peak()
        table = align_columns([HEADS, *self._list_cells()], numbers=NUMBERS)
        return "\n".join([self._tell_peak(), *table, *self._tell_rest()])

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{line}</p>" for line in (self._tell_peak(), *self._tell_rest()))
        return said + bool(self.at_peak) * as_html([HEADS, *self._list_cells()], numbers=NUMBERS)

    def _tell_peak(self) -> str:
        if self.peak_step < 0:
            return f"device {self.device} holds nothing"
        return (
            f"device {self.device} holds {self.peak_nbytes:,} B at step {self.peak_step}; its arena has "
            f"{self.arena_nbytes:,} B"
        )

    def _tell_rest(self) -> list[str]:
        left = self.at_peak[SHOWN_ROWS:]
        return [f"and {len(left)} more of {sum(one.nbytes for one in left):,} B"] if left else []

    def _list_cells(self) -> Iterator[list[str]]:
        for one in self.at_peak[:SHOWN_ROWS]:
            spans = (f"[{a}, {a + n})" for a, n in zip(one.buffer.start, one.buffer.shape, strict=True))
            cells = "×".join(spans) if one.buffer.tensor != WORKSPACE else ""
            yield [f"{one.nbytes:,}", one.buffer.tensor, one.what, cells, str(one.first), str(one.last)]


def list_memory(
    graph: Graph, buffers: Mapping[int, Buffer], steps: Sequence[Step], arenas_nbytes: Sequence[int]
) -> Iterator[MemoryUse]:
    """What lies in each device's arena, of a plan's steps."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    held: list[list[tuple[int, int]]] = [[] for _ in arenas_nbytes]
    mine: list[list[Buffer]] = [[] for _ in arenas_nbytes]
    overtaken = list_overtaken(steps, buffers)
    before_it = {later: before for before, later in overtaken.items()}
    for number, step in enumerate(steps):
        if isinstance(step, Alloc | Free):
            buffer, takes = buffers[step.buffer], isinstance(step, Alloc)
            (first if takes else last)[step.buffer] = number
            so_far = held[buffer.device][-1][1] if held[buffer.device] else 0
            is_passed_on = buffer.over is not None if takes else step.buffer in overtaken
            more = 0 if is_passed_on else buffer.room if takes else -buffer.room
            held[buffer.device].append((number, so_far + more))
            mine[buffer.device] += [buffer] if takes else []
    end = len(steps) - 1
    for device, behind in enumerate(held):
        at, nbytes = max(behind, key=lambda one: (one[1], -one[0]), default=(-1, 0))
        there = [
            HeldBuffer(b, _tell_what(graph, b), b.room, first[b.id], last.get(b.id, end))
            for b in mine[device]
            if b.within is None and first[b.id] <= at and last.get(b.id, len(steps)) > at
            if b.id not in before_it or last[before_it[b.id]] <= at  # else its place is the other one's so far
        ]
        there.sort(key=lambda one: (-one.nbytes, one.first))
        yield MemoryUse(device, tuple(behind), at, nbytes, arenas_nbytes[device], tuple(there))


def _tell_what(graph: Graph, buffer: Buffer) -> str:
    if buffer.tensor == WORKSPACE:
        return "scratch memory"
    stored = graph.stored.get(buffer.tensor)
    if stored is None:
        return "view, written anew"
    if buffer.part >= 0:
        return f"part {buffer.part} of a result"
    return stored.kind
