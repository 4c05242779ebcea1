"""Tiny graphs with every cell written out: all layouts over a few devices, and what they cost, counted one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise, permutations, product
from math import prod
from typing import NamedTuple

from tapestry_plan import Graph, Link, Mesh
from tapestry_plan.ops.cells.elementwise import relu

Cells = frozenset[tuple[str, tuple[int, ...]]]


def even(n: int, k: int) -> list[range]:
    """k parts of [0, n), the larger ones first."""
    cuts = [0]
    for j in range(k):
        cuts.append(cuts[-1] + n // k + (1 if j < n % k else 0))
    return [range(a, b) for a, b in pairwise(cuts)]


def every_layout(extents: tuple[int, ...], devices: int) -> Iterator[list[list[range] | None]]:
    """Each device's ranges, for every layout that the documentation promises."""

    def cuts(total: int) -> list[tuple[int, ...]]:
        grids = product(*(range(1, min(n, total) + 1) for n in extents))
        return [parts for parts in grids if prod(parts) == total]

    totals = [k for k in range(1, devices + 1) if devices % k == 0]
    if not cuts(devices):
        totals.append(max(k for k in range(1, devices + 1) if cuts(k)))
    for total in totals:
        for parts in cuts(total):
            split = [axis for axis, k in enumerate(parts) if k > 1]
            for order in permutations(split):
                for copies in {1, devices // total if devices % total == 0 else 1}:
                    layout: list[list[range] | None] = [None] * devices
                    numbers = list(product(*(range(parts[axis]) for axis in order)))
                    for device in range(total * copies):
                        at = dict(zip(order, numbers[device // copies], strict=True))
                        layout[device] = [
                            even(n, k)[at.get(axis, 0)] for axis, (n, k) in enumerate(zip(extents, parts, strict=True))
                        ]
                    yield layout


def every_mesh_layout(extents: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[list[list[range] | None]]:
    """Each device's ranges, for every way in which the mesh's axes cut index axes, hold replicas or idle."""
    for roles in product([*range(len(extents)), "replicas", "idle"], repeat=len(shape)):
        layout: list[list[range] | None] = []
        for place in product(*map(range, shape)):
            ranges: list[range] | None = []
            for axis, n in enumerate(extents):
                k, c = 1, 0
                for at, size, role in zip(place, shape, roles, strict=True):
                    if role == axis:
                        k, c = k * size, c * size + at
                parts = even(n, min(k, n))
                if c >= len(parts):
                    ranges = None
                    break
                assert ranges is not None
                ranges.append(parts[c])
            if any(at for at, role in zip(place, roles, strict=True) if role == "idle"):
                ranges = None
            layout.append(ranges)
        yield layout


def hop(mesh: Mesh, sender: int, receiver: int) -> int:
    """The outermost axis on which two devices differ; the number of axes for a device and itself."""
    return _hops(mesh.shape)[sender][receiver]


@cache
def _hops(shape: tuple[int, ...]) -> list[list[int]]:
    """All of a mesh: who compares every choice of layouts asks for each of them hundreds of thousands of times."""
    places = list(product(*map(range, shape)))
    return [[next((k for k, n in enumerate(a) if n != b[k]), len(shape)) for b in places] for a in places]


def senders(mesh: Mesh, holders: list[tuple[int, tuple[int, ...], frozenset]], receiver: int) -> list[tuple]:
    """Who a device reads a tensor from: of those that hold the same, the nearest, which take turns."""
    alike: dict[object, list[tuple[int, tuple[int, ...], frozenset]]] = {}
    for holder in holders:
        alike.setdefault((holder[1], holder[2]), []).append(holder)
    own = [same for same in alike.values() if receiver in [h[0] for h in same]]
    if own:
        place = sorted(h[0] for h in own[0]).index(receiver)
    else:
        place = sum(1 for d in range(receiver) if d not in [h[0] for h in holders])
    chosen = []
    for same in alike.values():
        furthest = max(hop(mesh, device, receiver) for device, _, _ in same)
        near = sorted((h for h in same if hop(mesh, h[0], receiver) == furthest), key=lambda h: h[0])
        chosen.append(near[place % len(near)])
    return chosen


def stage_seconds(mesh: Mesh, sent: dict[tuple[int, int], int], runs: Mapping[tuple[int, int], int] = {}) -> float:
    """A stage's messages: by axis, the rounds that they take, the bytes of the busiest device, and the most runs."""
    links = [mesh.link] if isinstance(mesh.link, Link) else list(mesh.link)
    slowest = 0.0
    for port, link in enumerate(links):
        mine = {pair: n for pair, n in sent.items() if n and (len(links) == 1 or hop(mesh, *pair) == port)}
        ends = [{}, {}]  # type: list[dict[int, list[tuple[int, int]]]]
        for pair, n in mine.items():
            for end in (0, 1):
                ends[end].setdefault(pair[end], []).append((n, runs.get(pair, 0)))
        loads = [counts for end in ends for counts in end.values()]
        if loads:
            rounds, most = max(map(len, loads)), max(sum(n for n, _ in load) for load in loads)
            pieces = max(sum(n for _, n in load) for load in loads)
            took = rounds * link.latency_seconds + most / link.nbytes_per_second
            slowest = max(slowest, took + pieces * link.run_seconds)
    return slowest


def copied_nbytes(
    have: list[set | frozenset],
    needs: Iterable[set | frozenset],
    own_part: set | frozenset | None,
    may: tuple[bool, bool] = (False, False),
) -> int:
    """Bytes of its own that a device copies to have one block after the other, of those that it has.

    A block that lies in one of these serves as it is. The first one that is put together and has all that the device
    made, which comes first, has that made in it, if `may` says so: whether it may at all, and with its rows apart. Of a
    part of a sum it copies what is to be merged, unless it has all of that. What it takes is added to what it has.
    """
    copied = 0
    made = have[0] if own_part is None and have else frozenset()
    is_hosted = not made
    for need in needs:
        if need and not any(need <= one for one in have):
            there = set().union(*have)
            missing = need - there
            copied += len(need & there)
            if not is_hosted and made <= need:
                is_hosted = True
                copied -= len(made) if may[0] and lies_well(frozenset(made), frozenset(need), may[1]) else 0
            if own_part is not None and not missing <= own_part:
                copied += len(missing & own_part)
        have.append(need)
    return 4 * copied


@cache
def lies_well(made: frozenset, need: frozenset, parts_rows: bool) -> bool:
    """Whether a block may be made in another one: as one run of its cells, or its rows apart, of several cells each."""
    bounds = [(min(each), max(each)) for each in zip(*need, strict=True)]
    around = list(product(*(range(a, b + 1) for a, b in bounds)))
    at = sorted(around.index(cell) for cell in made)
    return at == list(range(at[0], at[0] + len(at))) or (parts_rows and len({cell[-1] for cell in made}) > 1)


def list_operands(read: Iterable[tuple[str, tuple[int, ...]]]) -> list[tuple[str, tuple[int, ...]]]:
    """What a point reads by operand: as listed, or, of a set, one cell of each tensor."""
    return read if isinstance(read, list) else sorted(read)


class Work(NamedTuple):
    """What a stage does at some points: which tensors' cells it reads and writes, and how many of all of them."""

    count: int
    names: frozenset[str]
    cells: Mapping[str, frozenset[tuple[int, ...]]]
    needs: Mapping[str, list[frozenset[tuple[int, ...]]]]
    written: frozenset[tuple[int, ...]]
    nbytes: float
    operands: float
    packed: float


class Tiny:
    """A chain of operators described by the cells that each index point reads, operand by operand, and writes."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.stages: list[tuple[tuple[int, ...], Callable[..., set[tuple[str, tuple[int, ...]]]], str, Callable]] = []
        self.reduces: list[int] = []
        self.flop: list[float] = []
        self.views: list[frozenset[int]] = []
        self.rows: list[bool] = []
        self.along: list[list[set[int]]] = []
        self.done: dict[object, Work] = {}  # of a search over all layouts, which have the same few shards
        self.hosts: dict[str, tuple[bool, bool]] = {}

    def stage(
        self,
        extents: tuple[int, ...],
        reads: Callable,
        out: str,
        writes: Callable,
        reduces: int,
        flop: float,
        views: Iterable[int] = (),
        rows: bool = True,
    ) -> None:
        """An operator; `views` are the operands that it reads through views, `rows` is as of `Op`."""
        self.views.append(frozenset(views))
        self.rows.append(rows)
        self.stages.append((extents, reads, out, writes))
        self.reduces.append(reduces)
        self.flop.append(flop)
        self.along.append(self.list_axes(len(self.stages) - 1))
        self.hosts.clear()

    def work(self, k: int, ranges: tuple[range, ...], inside: frozenset[str]) -> Work:
        """What a stage does at the points of some ranges; the tensors of `inside` are not in memory."""
        if (k, ranges, inside) not in self.done:
            _, reads, _, writes = self.stages[k]
            points = list(product(*ranges))
            touched = {cell for point in points for cell in reads(*point)}
            written = {writes(*point) for point in points}
            stored = [cell for cell in (*touched, *written) if cell[0] not in inside]
            names = frozenset(name for name, _ in touched)
            by_operand = list(zip(*(list_operands(reads(*point)) for point in points), strict=True))
            needs = {name: [frozenset(at for n, at in each if n == name) for each in by_operand] for name in names}
            cells = {name: frozenset(at for n, at in touched if n == name) for name in names}
            self.done[k, ranges, inside] = Work(
                len(points),
                names,
                cells,
                needs,
                frozenset(at for _, at in written),
                4.0 * len(stored),
                float(len({name for name, _ in stored})),
                4.0 * self.count_packed(k, points),
            )
        return self.done[k, ranges, inside]

    def may_host(self, out: str) -> tuple[bool, bool]:
        """Whether what a stage makes may be made where it is read, and whether with its rows apart there."""
        if out not in self.hosts:
            self.hosts[out] = self._may_host(out)
        return self.hosts[out]

    def _may_host(self, out: str) -> tuple[bool, bool]:
        each = list(zip(self.stages, self.views, self.rows, strict=True))
        rows = all(mine for (_, _, made, _), _, mine in each if made == out)
        count = views = 0
        for (extents, reads, _, _), viewed, mine in each:
            for k, (name, _) in enumerate(list_operands(reads(*(0 for _ in extents)))):
                count += name == out
                views += name == out and k in viewed
                rows = rows and (mine or name != out or k in viewed)
        return not views or count == 1, rows

    def cost(
        self, layouts: list[list[list[range] | None]], made: set[str], joined: Mapping[int, int] = {}
    ) -> tuple[int, int]:
        """Picoseconds and bytes of a choice of layouts, by sets of cells.

        `joined` has stages that are in one block with an earlier one, whose result nobody else reads: the block takes
        its time where the last of them runs.
        """
        holders: dict[str, list[tuple[int, tuple[int, ...], frozenset]]] = {}
        arrived: dict[tuple[str, int], set] = {}
        blocks: dict[tuple[str, int], list[set | frozenset]] = {}
        ticks = nbytes = 0
        inside = frozenset(self.stages[first][2] for first in joined.values())
        begun: dict[tuple[int, int], list[float]] = {}  # by stage and device: arithmetic, traffic, operands
        for k, ((extents, _, out, _), reduces, flop, layout) in enumerate(
            zip(self.stages, self.reduces, self.flop, layouts, strict=True)
        ):
            got: dict[str, dict[tuple[int, int], int]] = {}
            merged: dict[str, list[float]] = {}
            copied: dict[str, list[float]] = {}
            seconds = 0.0
            for device, ranges in enumerate(layout):
                if ranges is None:
                    continue
                done = self.work(k, tuple(ranges), inside)
                rates = self.mesh.devices[device]
                arithmetic = rates.flop_per_second if reduces else rates.cell_flop_per_second or rates.flop_per_second
                packing = rates.packed_nbytes_per_second
                packed = done.packed / packing if packing else 0.0
                mine = done.count * flop / arithmetic, done.nbytes, done.operands, packed
                before = begun.get((joined[k], device), [0.0] * 4) if k in joined else [0.0] * 4
                begun[k, device] = [a + b for a, b in zip(before, mine, strict=True)]
                if out not in inside:
                    work, traffic, operands, packed = begun[k, device]
                    start = rates.launch_seconds + rates.operand_seconds * operands
                    seconds = max(seconds, start + max(work, traffic / rates.memory_nbytes_per_second) + packed)
                for name in done.names & made:
                    cells = done.cells[name]
                    fresh = cells - arrived.setdefault((name, device), set())
                    parts = {part for _, part, _ in holders[name]}
                    for source, _, held in senders(self.mesh, holders[name], device):
                        if source != device:
                            got.setdefault(name, {})[source, device] = 4 * len(fresh & held)
                    merging = 4 * len(fresh) * len(parts) if len(parts) > 1 else 0
                    begins = rates.launch_seconds + rates.operand_seconds * (len(parts) + 1)
                    took = begins + merging / rates.memory_nbytes_per_second if merging else 0.0
                    merged.setdefault(name, []).append(took)
                    arrived[name, device] |= cells
                    own = next((held for source, _, held in holders[name] if source == device), frozenset())
                    have = blocks.setdefault((name, device), [] if len(parts) > 1 else [own])
                    own_part = own if len(parts) > 1 else None
                    nbytes_copied = copied_nbytes(have, done.needs[name], own_part, self.may_host(name))
                    copied.setdefault(name, []).append(nbytes_copied / rates.memory_nbytes_per_second)
            for name, took in merged.items():
                ticks += round(stage_seconds(self.mesh, got.get(name, {})) * 1e12) + round(max(took) * 1e12)
                ticks += round(max(copied[name]) * 1e12)
                nbytes += sum(got.get(name, {}).values())
            ticks += round(seconds * 1e12)
            made = made | {out}
            for device, ranges in enumerate(layout):
                if ranges is not None:
                    part = tuple(r.start for r in ranges[len(extents) - reduces :]) if reduces else ()
                    held = self.work(k, tuple(ranges), inside).written
                    holders.setdefault(out, []).append((device, part, held))
        return ticks, nbytes

    def count_packed(self, k: int, points: list[tuple[int, ...]]) -> int:
        """Cells that a stage packs for some points, if it sums over an axis along which it reads several operands.

        Each operand is a matrix with a row or column for each place on the axes along which its cells are others.
        """
        along = self.along[k]
        return sum(len({tuple(point[axis] for axis in mine) for point in points}) for mine in along)

    def list_axes(self, k: int) -> list[set[int]]:
        """Of each operand of such a stage the axes along which its cells are others; nothing of other stages."""
        extents, reads, *_ = self.stages[k]
        along: list[set[int]] = [set() for _ in list_operands(reads(*(0 for _ in extents)))]
        for point in product(*(range(max(2, n)) for n in extents)):  # an axis of one place is one, too
            for axis in range(len(extents)):
                other = (*point[:axis], 0, *point[axis + 1 :])
                both = zip(*(list_operands(reads(*at)) for at in (point, other)), strict=True)
                for operand, (one, two) in enumerate(both):
                    along[operand] |= {axis} if one != two else set()
        summed = range(len(extents) - self.reduces[k], len(extents))
        return along if any(sum(axis in mine for mine in along) > 1 for axis in summed) else []

    def lie_together(self, first: int, second: int, layouts: list[list[list[range] | None]]) -> bool:
        """Whether each device computes of one stage just what it reads itself of that stage's result in another."""
        extents, _, out, writes = self.stages[first]
        every = list(product(*map(range, extents)))
        for mine, theirs in zip(layouts[first], layouts[second], strict=True):
            points = set() if mine is None else set(product(*mine))
            reading = () if theirs is None else product(*theirs)
            read = {cell for point in reading for cell in self.stages[second][1](*point) if cell[0] == out}
            if points != {point for point in every if writes(*point) in read}:
                return False
        return True


def make_chain(mesh: Mesh) -> tuple[Graph, Tiny, list[str]]:
    """relu(x @ w) and then a second product: the middle tensor may be partial."""
    g = Graph()
    x, w, v = g.input("x", (4, 3)), g.input("w", (3, 5)), g.input("v", (5, 2))
    h = g.op("matmul", x, w, name="first")
    r = relu(h, name="relu")
    g.output(g.op("matmul", r, v, name="second"))
    tiny = Tiny(mesh)
    tiny.stage((4, 5, 3), lambda m, n, k: {("x", (m, k)), ("w", (k, n))}, "h", lambda m, n, k: ("h", (m, n)), 1, 2.0)
    tiny.stage((4, 5), lambda i, j: {("h", (i, j))}, "r", lambda i, j: ("r", (i, j)), 0, 1.0)
    tiny.stage((4, 2, 5), lambda m, n, k: {("r", (m, k)), ("v", (k, n))}, "y", lambda m, n, k: ("y", (m, n)), 1, 2.0)
    return g, tiny, ["first", "relu", "second"]
