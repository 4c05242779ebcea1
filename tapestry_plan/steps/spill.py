"""Plans that fit less memory: buffers that are idle wait in host memory, and come back before their next use.

The steps of a plan say when each buffer is used next, so that what to give up is chosen with the whole future in
view, as Belady's rule does for pages of one size. A buffer weighs (bytes that giving it up moves) / (steps until its
next use)^a: with a = 0 the bytes alone count, with a large the distance alone, which is Belady's rule; every a of
`DISTANCE_EXPONENTS` is tried, and of all that is tried what moves the fewest bytes is kept. But buffers are not of one
size, and each must lie in one piece. So there are two ways:

1. What is given up is chosen with nothing but the sum of sizes in view. Then every stay of a buffer in the arena is
   known, from its coming to its going, and `assign_offsets` places all of them at once. Where it finds no places, the
   same is tried with some of the arena left aside (`SLACKS`).
2. Where that moves more than the sum of sizes asks for, step by step: a place for a buffer is a window of the arena,
   and what it takes is the sum over the buffers in it, none of which the step itself uses. Windows begin or end where a
   buffer ends or begins, or at the arena's ends; sorted offsets and prefix sums give the cheapest in one pass over the
   resident buffers. Of equally cheap windows it is the one that leaves the least beside it, or, so that what goes soon
   and what stays long do not lie among one another and leave the arena in pieces, the first one for buffers whose last
   use is near and the last one for others; every notion of what is near of `NEAR_USES` is tried. Where the step's own
   buffers leave no window they are laid out anew, so that whatever fits at all is found.

What is given up moves only what it must:

- Inputs and constants are placed when they are first used, not before, and are placed again from the host's arrays.
- What was spilled and has not been written to since is not spilled again.
- What no later step uses is freed at once; an output that is spilled is read from host memory at the end.
- A buffer is spilled whole, those of its cells too that nothing was written to.

That is an optimum where all buffers are of one size and the host has what they hold, and a heuristic elsewhere. On
120 random plans of up to six operators, in four sizes of memory each, the bytes were 1.03 times the fewest over all
choices of what to give up with places left aside, which no layout can be below, and equal in 98 of 100 cases; see
`tests/plan/steps/test_spill.py`.

References
----------
L. A. Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5 (1966).
J. Zhang et al., Coop: Memory is not a Commodity, NeurIPS 2023: windows of contiguous memory for tensors.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from operator import index
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from tapestry_plan.steps.mesh import ALIGNMENT_NBYTES, align
from tapestry_plan.steps.offsets import Stay, assign_offsets
from tapestry_plan.steps.shard_plan import (
    HOST,
    Alloc,
    Buffer,
    Compute,
    Copy,
    Fetch,
    Free,
    InfeasiblePlan,
    Reduce,
    ShardPlan,
    Spill,
    Stage,
    Step,
)

DISTANCE_EXPONENTS = (0.0, 1.0, 4.0)
"""How much the distance to the next use counts, against bytes, when a buffer is chosen to be given up."""
SLACKS = (0.0, 1 / 16, 1 / 8, 1 / 4)
"""Shares of the arena that are left aside when what to give up is chosen before the places are."""
OUTPUTS = "(outputs)"
"""The stage of what waits for the last step: outputs that come from the host."""
NEAR_USES = (None, 0, 1, 2, 4, 8)
"""Within so many steps the last use of a buffer is near; None for places that do not depend on it."""


def spill(plan: ShardPlan, memory_nbytes: int | Sequence[int]) -> ShardPlan:
    """The same plan in less memory: idle buffers are spilled to the host and brought back before their next use.

    Parameters
    ----------
    plan : ShardPlan
        It must not spill already.
    memory_nbytes : int or sequence of int
        Bytes that each device's arena may have; an int is the same for all.

    Returns
    -------
    ShardPlan
        The plan itself where every arena fits. Otherwise devices with too large an arena are laid out anew:
        `peak_nbytes` is at most `memory`, `nbytes_spilled` says what goes to the host and back, and `seconds`
        includes it, at the speed of `Mesh.host`, beside nothing else. What devices compute and send to one
        another stays as it was, and so do the bits of the results.

    Raises
    ------
    InfeasiblePlan
        When the buffers that one step uses on a device take more than `memory` together; see `least_memory`.
    TypeError, ValueError
        For arguments that are no plan, no plan without spilling, or no sizes.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, plan, relu
    >>> g = Graph()
    >>> y = x = g.input("x", (64, 64))
    >>> for _ in range(3):
    ...     y = relu(y)
    >>> _ = g.output(y + x, "z")
    >>> p = plan(g, Mesh(1))
    >>> q = spill(p, least_memory(p))
    >>> p.peak_nbytes, q.peak_nbytes, q.nbytes_spilled
    ((49152,), (49152,), (0,))
    """
    given = _given(plan, memory_nbytes)
    tight = [device for device, nbytes in enumerate(_reach(plan)) if nbytes > given[device]]
    if not tight:
        return plan
    if any(plan.nbytes_spilled):
        had = ", ".join(f"{nbytes:,}" for nbytes in _reach(plan))
        raise ValueError(
            f"memory_nbytes is {memory_nbytes!r}, and the plan, which spills already, takes {had} B by "
            "device: it cannot be laid out anew in less; give the plan that it was made from"
        )
    tapes = _tapes(plan, tight)
    for device in tight:
        _check_fits(plan, tapes[device], given[device])
    fresh = max(buffer.id for buffer in plan.buffers) + 1
    found = []
    for device in tight:
        cap = given[device] // ALIGNMENT_NBYTES * ALIGNMENT_NBYTES
        found.append(_best(tapes[device], cap, fresh))
        fresh = found[-1].fresh
    return _written(plan, found)


def _best(tape: Tape, cap: int, fresh: int) -> _Layout:
    """The layout of a device that moves the fewest bytes, in the fewest transfers, of those that are tried."""
    best, fewest = _arranged_ones(tape, cap, fresh)
    for near, exponent in product(NEAR_USES, DISTANCE_EXPONENTS):
        if best is not None and best.nbytes <= fewest:
            break
        one = _Layout(tape, cap, fresh, exponent, near).followed()
        if best is None or (one.nbytes, one.transfers) < (best.nbytes, best.transfers):
            best = one
    assert best is not None, "there is something to be tried"
    return best


def _arranged_ones(tape: Tape, cap: int, fresh: int) -> tuple[_Layout | None, int]:
    """The best layout whose blocks found their places afterwards, and the fewest bytes if all of them did."""
    widest = _widest(tape)[1]
    rooms = [room for slack in SLACKS if (room := cap - int(cap * slack)) >= widest]
    loose = [_Loose(tape, room, fresh, exponent).followed() for room in rooms for exponent in DISTANCE_EXPONENTS]
    loose.sort(key=lambda one: (one.nbytes, one.transfers))
    return next((one for one in loose if one.arrange(cap)), None), loose[0].nbytes


def least_memory(plan: ShardPlan) -> tuple[int, ...]:
    """Bytes that each device needs at least, however much is spilled: the most that one step uses at once.

    Parameters
    ----------
    plan : ShardPlan

    Returns
    -------
    tuple of int
        By device.

    Raises
    ------
    TypeError
        For what is no plan.
    """
    _check_plan("least_memory", plan)
    tapes = _tapes(plan, range(plan.mesh.size))
    return tuple(_widest(tapes[device])[1] for device in range(plan.mesh.size))


def _check_plan(asked: str, plan: object) -> None:
    if not isinstance(plan, ShardPlan):
        raise TypeError(f"{asked}: the plan is {type(plan).__name__}; it must be a ShardPlan")


def _given(plan: object, memory_nbytes: int | Sequence[int]) -> list[int]:
    """The bytes that each device's arena may have."""
    _check_plan("spilled", plan)
    assert isinstance(plan, ShardPlan), "it was checked"
    size = plan.mesh.size
    texts = str | bytes | bytearray
    try:
        listed: list[Any]
        listed = (
            list(memory_nbytes)
            if isinstance(memory_nbytes, Sequence) and not isinstance(memory_nbytes, texts)
            else [memory_nbytes] * size
        )
        if any(isinstance(nbytes, bool) for nbytes in listed):
            raise TypeError
        given = [index(nbytes) for nbytes in listed]
    except TypeError:
        raise TypeError(f"memory_nbytes is {memory_nbytes!r}; give a number of bytes, or one for each device") from None
    if len(given) != size:
        raise ValueError(f"memory has {len(given)} entries; the mesh has {size} devices")
    if min(given) < 0:
        raise ValueError(f"memory_nbytes is {memory_nbytes!r}; bytes are >= 0")
    return given


def _reach(plan: ShardPlan) -> list[int]:
    """Bytes of each arena: as far as the plan's buffers reach."""
    out = [0] * plan.mesh.size
    for buffer in plan.buffers:
        out[buffer.device] = max(out[buffer.device], buffer.offset + align(buffer.nbytes))
    return out


# -- what one device uses, in order ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Use:
    """The buffers of one device that a step needs at once, and those that it writes."""

    at: int
    """The step's number; after the last one for outputs that are placed, in whole or in part, after their last use."""
    buffers: tuple[int, ...]
    written: frozenset[int]


@dataclass(slots=True)
class Tape:
    """The life of one device: what is used step by step, and what is placed from the host."""

    device: int
    buffers: dict[int, Buffer] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)
    placings: dict[int, list[tuple[int, Copy]]] = field(default_factory=dict)
    """For each buffer the copies from the host into it, with their numbers."""
    outputs: set[int] = field(default_factory=set)


def _tapes(plan: ShardPlan, devices: Iterable[int]) -> dict[int, Tape]:
    tapes = {device: Tape(device) for device in devices}
    home = {buffer.id: tapes.get(buffer.device) for buffer in plan.buffers}
    for buffer in plan.buffers:
        if buffer.device in tapes:
            tapes[buffer.device].buffers[buffer.id] = buffer
    for at, step in enumerate(plan.steps):
        if is_placing(step):
            assert isinstance(step, Copy), "only copies place"
            tape = home[step.dst]
            if tape is not None:
                tape.placings.setdefault(step.dst, []).append((at, step))
            continue
        read, written = _touched(step)
        used = dict.fromkeys((*read, *written))
        for tape in {id(home[n]): home[n] for n in used}.values():
            if tape is not None:
                mine = tuple(n for n in used if home[n] is tape)
                tape.uses.append(Use(at, mine, frozenset(mine).intersection(written)))
    _add_outputs(plan, home)
    return tapes


def _add_outputs(plan: ShardPlan, home: dict[int, Tape | None]) -> None:
    """Outputs stay; those that the host places cells of after their last use are used once more, each for itself."""
    for number in dict.fromkeys(n for out in plan.outputs for n, _ in (*out.blocks, *out.replicas)):
        tape = home[number]
        if tape is not None:
            tape.outputs.add(number)
    for tape in {id(tape): tape for tape in home.values()}.values():
        if tape is not None:
            last = {n: use.at for use in tape.uses for n in use.buffers}
            late = {n for n, placed in tape.placings.items() if n in last and placed[-1][0] > last[n]}
            again = tape.outputs - last.keys() | tape.outputs & late
            tape.uses += [Use(len(plan.steps), (n,), frozenset()) for n in sorted(again)]


def is_placing(step: Step) -> bool:
    """Whether a step brings cells of an input or constant from the host."""
    return isinstance(step, Copy) and step.src == HOST and step.piece is None


def _touched(step: Step) -> tuple[list[int], list[int]]:
    """The buffers that a step reads, and those that it writes."""
    match step:
        case Copy():
            return [step.src] if step.src != HOST else [], [step.dst]
        case Compute():
            work = [] if step.workspace is None else [step.workspace]
            return [n for n in step.inputs if n is not None], [*step.outputs, *work]
        case Reduce():
            return list(step.inputs), [step.output]
        case _:
            return [], []


def _widest(tape: Tape) -> tuple[Use | None, int]:
    """The step that needs the most bytes at once, and how many."""
    widest, most = None, 0
    for use in tape.uses:
        nbytes = sum(align(tape.buffers[n].nbytes) for n in use.buffers)
        if nbytes > most:
            widest, most = use, nbytes
    return widest, most


def _check_fits(plan: ShardPlan, tape: Tape, memory_nbytes: int) -> None:
    use, nbytes = _widest(tape)
    if use is None or nbytes <= memory_nbytes:
        return
    sizes = {n: align(tape.buffers[n].nbytes) for n in use.buffers}
    tensors = ", ".join(f"{tape.buffers[n].tensor!r} {sizes[n]:,} B" for n in use.buffers[:6])
    rest = sum(sizes[n] for n in use.buffers[6:])
    more = f" and {len(use.buffers) - 6} more of {rest:,} B" if rest else ""
    raise InfeasiblePlan(
        f"device {tape.device} needs {nbytes:,} B at once in {_named(plan, use.at)}, memory is {memory_nbytes:,} B: it "
        f"uses {tensors}{more}, in whole lines of {ALIGNMENT_NBYTES} B, which no spilling makes smaller; give at least "
        f"{nbytes:,} B, plan for more devices, or cut the operator along further axes with fix"
    )


def _named(plan: ShardPlan, at: int) -> str:
    """A step in words."""
    if at == len(plan.steps):
        return "the plan's outputs"
    step = plan.steps[at]
    assert isinstance(step, Copy | Compute | Reduce), "other steps use no buffers"
    node = plan.graph.nodes.get(step.node)
    kind = "" if node is None else f" ({node.op})"
    return f"step {at}, {type(step).__name__.lower()} for operator {step.node!r}{kind}"


# -- laying out one device ---------------------------------------------------------------------------------


class _Layout:
    """Follows one device's tape under a cap, and writes down what is given up and brought back."""

    def __init__(self, tape: Tape, cap: int, fresh: int, exponent: float, near: int | None) -> None:
        self.tape, self.cap, self.fresh, self.exponent, self.near = tape, cap, fresh, exponent, near
        self.size = {n: align(buffer.nbytes) for n, buffer in tape.buffers.items()}
        self.spans: list[tuple[int, int, int]] = []
        """(first byte, end, buffer) of what is resident, in order."""
        self.place: dict[int, int] = {}
        self.number: dict[int, int] = {}
        """Under which number a buffer is resident, or was last."""
        self.host: dict[int, int] = {}
        """Under which number what a buffer holds is kept by the host."""
        self.mixed: set[int] = set()
        """Buffers that steps wrote to, which the host cannot place again."""
        self.placed: Counter[int] = Counter()
        """How many of a buffer's placings are done."""
        self.again: Counter[int] = Counter()
        """How many bytes they are."""
        self.buffers: list[Buffer] = []
        self.before: dict[int, list[Step]] = {}
        self.after: dict[int, list[Step]] = {}
        self.numbers: dict[int, dict[int, int]] = {}
        """For each step, the numbers of this device's buffers there."""
        self.moved: dict[int, list[int]] = {}
        """For each step, the bytes of each transfer before it to the host or back."""
        self.nbytes_placed = 0
        self.now = 0
        self._list_uses()

    def _list_uses(self) -> None:
        last = len(self.tape.uses)
        self.uses: dict[int, list[int]] = {n: [last] if n in self.tape.outputs else [] for n in self.tape.buffers}
        for k in range(last - 1, -1, -1):
            for n in self.tape.uses[k].buffers:
                self.uses[n].append(k)  # descending, so that the next one is at the end
        most = max(self.tape.buffers, default=-1) + 1
        self.next: NDArray[np.int64] = np.zeros(most, np.int64)
        self.cost: NDArray[np.int64] = np.zeros(most, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes to the host and back."""
        return sum(map(sum, self.moved.values()))

    @property
    def transfers(self) -> int:
        """How many copies to the host and back."""
        return sum(map(len, self.moved.values()))

    @property
    def peak(self) -> int:
        """The arena's high-water mark."""
        return max((buffer.offset + align(buffer.nbytes) for buffer in self.buffers), default=0)

    def followed(self) -> Self:
        """This layout, once every use has been gone through."""
        for k, use in enumerate(self.tape.uses):
            self.now = k
            self._admit(use)
            for n in use.buffers:
                self._place_rest(use.at, n)
                if n in use.written:
                    self.mixed.add(n)
                    self.host.pop(n, None)
            self.numbers[use.at] = {n: self.number[n] for n in use.buffers}
            for n in use.buffers:
                self._pass(use.at, n)
        return self

    def final(self, n: int) -> int:
        """Under which number an output is found at the end, in the arena or in host memory."""
        return self.number[n] if n in self.place else self.host[n]

    # -- making room -------------------------------------------------------------------------------------

    def _admit(self, use: Use) -> None:
        missing = [n for n in use.buffers if n not in self.place]
        if not missing:
            return
        spots = self._spots_for(missing, [n for n in use.buffers if n in self.place])
        leaving = [n for n in spots if n in self.place]
        for n in spots:
            leaving += [other for other in self._between(spots[n], spots[n] + self.size[n]) if other not in spots]
        for n in dict.fromkeys(leaving):
            self._leave(use.at, n)
        for n, offset in spots.items():
            self._enter(use.at, n, offset)

    def _spots_for(self, missing: Sequence[int], resident: Sequence[int]) -> dict[int, int]:
        """Offsets for the missing buffers of a step, and for those of its resident ones that must make way."""
        members = sorted(resident, key=self.size.__getitem__, reverse=True)
        kept = len(members)
        while kept:
            spots = self._spots([*members[kept:], *missing], set(members[:kept]))
            if spots is not None:
                return {n: at for n, at in spots.items() if self.place.get(n) != at}
            kept //= 2
        spots = self._spots([*members, *missing], set())
        if spots is None:  # side by side from the start there is room: the cap was checked
            spots, end = {}, 0
            for n in [*members, *missing]:
                spots[n], end = end, end + self.size[n]
        return {n: at for n, at in spots.items() if self.place.get(n) != at}

    def _spots(self, wanted: Sequence[int], fixed: set[int]) -> dict[int, int] | None:
        """Offsets around the buffers in `fixed`, the largest first; None where what they leave is in pieces."""
        windows = _Windows(self.spans, self._weights(), fixed, self.cap)
        out = {}
        for n in sorted(wanted, key=self.size.__getitem__, reverse=True):
            stays = n in self.place and windows.fix(self.place[n], self.size[n])
            at = self.place[n] if stays else windows.take(self.size[n], self._side(n))
            if at is None:
                return None
            out[n] = at
        return out

    def _side(self, n: int) -> int:
        """On which side of the arena a buffer goes: -1 for the first place, 1 for the last one, 0 for the tightest."""
        if self.near is None:
            return 0
        return -1 if self.uses[n][0] - self.now <= self.near else 1

    def _weights(self) -> NDArray[np.float64]:
        """What giving up each resident buffer weighs."""
        return self._weights_of(np.array([n for _, _, n in self.spans], np.int64))

    def _weights_of(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        weights = self.cost[ids].astype(np.float64)
        if self.exponent:
            weights *= np.maximum(self.next[ids] - self.now, 1) ** -self.exponent
        return weights

    def _between(self, low: int, high: int) -> list[int]:
        """The resident buffers that reach into a range of bytes."""
        first = bisect_right(self.spans, low, key=lambda span: span[1])
        last = bisect_left(self.spans, high, key=lambda span: span[0])
        return [n for _, _, n in self.spans[first:last]]

    # -- coming and going --------------------------------------------------------------------------------

    def _leave(self, at: int, n: int) -> None:
        """Give a buffer up, with a copy in host memory where it cannot be had again otherwise."""
        steps = self.before.setdefault(at, [])
        at_the_end = self.next[n] == len(self.tape.uses)
        if n not in self.host and (n in self.mixed or at_the_end):
            self.host[n] = self.number[n]
            steps.append(Spill(self.number[n]))
            self._count(at, self.tape.buffers[n].nbytes)
        steps.append(Free(self.number[n]))
        self._remove(n)

    def _enter(self, at: int, n: int, offset: int) -> None:
        """Give a buffer a place, and bring back what it held."""
        again = n in self.number
        number = self.fresh if again else n
        self.fresh += again
        self.number[n], self.place[n] = number, offset
        if self.size[n]:
            insort(self.spans, (offset, offset + self.size[n], n))
        buffer = msgspec.structs.replace(self.tape.buffers[n], id=number, offset=offset)
        self.buffers.append(buffer)
        steps = self.before.setdefault(at, [])
        steps.append(Alloc(number))
        if n in self.host:
            steps.append(Fetch(number, self.host[n]))
            self._count(at, buffer.nbytes)
        elif again:
            for _, step in self.tape.placings.get(n, [])[: self.placed[n]]:
                steps.append(msgspec.structs.replace(step, dst=number, again=True))
                self._count(at, _nbytes(step, buffer))

    def _place_rest(self, at: int, n: int) -> None:
        """Do those of a buffer's placings that come before a step that uses it."""
        for when, step in self.tape.placings.get(n, [])[self.placed[n] :]:
            if when > at:
                break
            self.before.setdefault(at, []).append(msgspec.structs.replace(step, dst=self.number[n]))
            nbytes = _nbytes(step, self.tape.buffers[n])
            self.placed[n] += 1
            self.again[n] += nbytes
            self.nbytes_placed += nbytes
            self.host.pop(n, None)

    def _pass(self, at: int, n: int) -> None:
        """A use of a buffer is over: free it after the last one, else see what giving it up would move."""
        uses = self.uses[n]
        uses.pop()
        if not uses:
            self.after.setdefault(at, []).append(Free(self.number[n]))
            self._remove(n)
            return
        self.next[n] = uses[-1]
        nbytes = self.tape.buffers[n].nbytes
        out = 0 if n in self.host else nbytes
        if uses[-1] == len(self.tape.uses):
            self.cost[n] = out
        else:
            self.cost[n] = out + nbytes if n in self.mixed else self.again[n]

    def _remove(self, n: int) -> None:
        offset = self.place.pop(n)
        if self.size[n]:
            self.spans.remove((offset, offset + self.size[n], n))

    def _count(self, at: int, nbytes: int) -> None:
        self.moved.setdefault(at, []).append(nbytes)


class _Loose(_Layout):
    """Follows a tape with nothing but the sum of what is resident under the cap; places are found afterwards."""

    def __init__(self, tape: Tape, cap: int, fresh: int, exponent: float) -> None:
        super().__init__(tape, cap, fresh, exponent, None)
        self.held = 0
        self.stays: dict[int, Stay] = {}
        """From which use to which one each number's block is resident."""

    def arrange(self, cap: int) -> bool:
        """Give every block its place in an arena of so many bytes, if places are found."""
        offsets = assign_offsets([self.stays[buffer.id] for buffer in self.buffers], cap)
        if offsets is None:
            return False
        places = zip(self.buffers, offsets, strict=True)
        self.buffers = [msgspec.structs.replace(buffer, offset=offset) for buffer, offset in places]
        return True

    def _admit(self, use: Use) -> None:
        missing = [n for n in use.buffers if n not in self.place]
        over = self.held + sum(self.size[n] for n in missing) - self.cap
        for n in self._given_up(set(use.buffers), over) if over > 0 else ():
            self._leave(use.at, n)
        for n in missing:
            self._enter(use.at, n, 0)

    def _given_up(self, used: set[int], over: int) -> list[int]:
        """Buffers of so many bytes that are cheap for their size, or a single one if that is cheaper."""
        idle = [n for n in self.place if n not in used and self.size[n]]
        weight = dict(zip(idle, self._weights_of(np.array(idle, np.int64)).tolist(), strict=True))
        chosen: list[int] = []
        for n in sorted(idle, key=lambda n: (weight[n] / self.size[n], -self.next[n])):
            if over > 0:
                chosen.append(n)
                over -= self.size[n]
        for n in sorted(chosen, key=weight.__getitem__, reverse=True):
            if over + self.size[n] <= 0:
                chosen.remove(n)
                over += self.size[n]
        large = [n for n in idle if self.size[n] >= over + sum(self.size[m] for m in chosen)]
        single = min(large, key=weight.__getitem__, default=None)
        if single is not None and weight[single] < sum(weight[n] for n in chosen):
            return [single]
        return chosen

    def _enter(self, at: int, n: int, offset: int) -> None:
        super()._enter(at, n, offset)
        self.held += self.size[n]
        self.stays[self.number[n]] = Stay(self.now, len(self.tape.uses), self.size[n])

    def _leave(self, at: int, n: int) -> None:
        super()._leave(at, n)
        self.stays[self.number[n]] = self.stays[self.number[n]]._replace(last=self.now - 1)

    def _remove(self, n: int) -> None:
        super()._remove(n)
        self.held -= self.size[n]
        self.stays[self.number[n]] = self.stays[self.number[n]]._replace(last=self.now)


class _Windows:
    """Windows of an arena, by what is lost when a buffer is put there."""

    def __init__(
        self, spans: Sequence[tuple[int, int, int]], weights: NDArray[np.float64], fixed: set[int], cap: int
    ) -> None:
        self.starts = np.array([low for low, _, _ in spans], np.int64)
        self.ends = np.array([high for _, high, _ in spans], np.int64)
        self.weights = weights
        self.fixed = np.array([n in fixed for _, _, n in spans], np.int64)
        self.cap = cap

    def take(self, nbytes: int, side: int) -> int | None:
        """The offset of the cheapest window of a size, which is fixed from now on; None where there is none.

        Of equally cheap ones it is the first or, with a side of 1, the last; with 0 that which leaves the least
        beside it.
        """
        if not nbytes:
            return 0
        lefts, rights = np.append(self.ends, 0), np.append(self.starts, self.cap)
        at = np.concatenate((lefts, rights - nbytes))
        at = at[(at >= 0) & (at + nbytes <= self.cap)]
        first = np.searchsorted(self.ends, at, "right")
        last = np.searchsorted(self.starts, at + nbytes, "left")
        free = _sums(self.fixed, first, last) == 0
        if not free.any():
            return None
        at, first, last = at[free], first[free], last[free]
        lost = _sums(self.weights, first, last)
        rank = -side * at if side else rights[last] - lefts[first - 1]
        cheap = np.flatnonzero(lost == lost.min())
        best = cheap[np.argmin(rank[cheap])]
        self._put(int(at[best]), nbytes, int(first[best]), int(last[best]))
        return int(at[best])

    def fix(self, at: int, nbytes: int) -> bool:
        """Let the buffer there stay, if nothing was put over it."""
        k = int(np.searchsorted(self.starts, at))
        there = k < len(self.starts) and (self.starts[k], self.ends[k], self.fixed[k]) == (at, at + nbytes, 0)
        if there:
            self.fixed[k] = 1
        return bool(there)

    def _put(self, at: int, nbytes: int, first: int, last: int) -> None:
        def put(array: NDArray[np.int64], value: int) -> NDArray[np.int64]:
            return np.concatenate((array[:first], np.array([value], array.dtype), array[last:]))

        self.starts, self.ends, self.fixed = put(self.starts, at), put(self.ends, at + nbytes), put(self.fixed, 1)
        self.weights = np.concatenate((self.weights[:first], [0.0], self.weights[last:]))


def _sums(values: NDArray[Any], first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[Any]:
    """The sums of ranges of values."""
    total = np.concatenate((np.zeros(1, values.dtype), np.cumsum(values)))
    out: NDArray[Any] = total[last] - total[first]
    return out


def _nbytes(step: Copy, buffer: Buffer) -> int:
    return sum(region.size for region in step.regions) * np.dtype(buffer.dtype).itemsize


# -- the plan with what was found --------------------------------------------------------------------------


def _written(plan: ShardPlan, layouts: Sequence[_Layout]) -> ShardPlan:
    """The plan with the steps of the devices that were laid out anew."""
    tight = {layout.tape.device: layout for layout in layouts}
    steps = _kept(_steps(plan, tight), outputs := _outputs_of(plan, tight))
    seconds = _seconds(plan, layouts)
    peak, placed, moved = list(plan.peak_nbytes), list(plan.nbytes_placed), list(plan.nbytes_spilled)
    for device, layout in tight.items():
        peak[device], placed[device], moved[device] = layout.peak, layout.nbytes_placed, layout.nbytes
    others = [buffer for buffer in plan.buffers if buffer.device not in tight]
    return replace(
        plan,
        buffers=tuple(sorted([*others, *(b for layout in layouts for b in layout.buffers)], key=lambda b: b.id)),
        steps=steps,
        stages=_stages(plan, seconds),
        outputs=tuple(
            msgspec.structs.replace(
                out,
                blocks=tuple((outputs.get(n, n), region) for n, region in out.blocks),
                replicas=tuple((outputs.get(n, n), region) for n, region in out.replicas),
            )
            for out in plan.outputs
        ),
        nbytes_placed=tuple(placed),
        peak_nbytes=tuple(peak),
        seconds=plan.seconds + sum(seconds.values()),
        nbytes_spilled=tuple(moved),
    )


def _stages(plan: ShardPlan, seconds: dict[str, float]) -> tuple[Stage, ...]:
    """The plan's stages with the seconds of transfers; outputs that took no time so far have one of their own."""
    out = [
        msgspec.structs.replace(stage, seconds=stage.seconds + seconds.get(stage.node, 0.0)) for stage in plan.stages
    ]
    none = (0,) * plan.mesh.size
    fresh = seconds.keys() - {stage.node for stage in plan.stages}
    out += [Stage(node, "output", {}, none, 0, (0.0,) * plan.mesh.size, seconds[node]) for node in sorted(fresh)]
    return tuple(out)


def _outputs_of(plan: ShardPlan, tight: dict[int, _Layout]) -> dict[int, int]:
    return {n: layout.final(n) for layout in tight.values() for n in layout.tape.outputs}


def _steps(plan: ShardPlan, tight: dict[int, _Layout]) -> list[Step]:
    """The plan's steps in their order, with each device's own ones around them."""
    theirs = {buffer.id for buffer in plan.buffers if buffer.device in tight}
    out: list[Step] = []
    for at, step in enumerate(plan.steps):
        if isinstance(step, Alloc | Free):
            out += [] if step.buffer in theirs else [step]
            continue
        if is_placing(step) and isinstance(step, Copy) and step.dst in theirs:
            continue
        numbers: dict[int, int] = {}
        for layout in tight.values():
            out += layout.before.get(at, ())
            numbers.update(layout.numbers.get(at, {}))
        out.append(_renumbered(step, numbers))
        for layout in tight.values():
            out += layout.after.get(at, ())
    for layout in tight.values():
        out += layout.before.get(len(plan.steps), ())
    return out


def _renumbered(step: Step, numbers: dict[int, int]) -> Step:
    if all(n == number for n, number in numbers.items()):
        return step

    def new(n: int) -> int:
        return numbers.get(n, n)

    match step:
        case Copy():
            return msgspec.structs.replace(step, src=new(step.src), dst=new(step.dst))
        case Compute():
            return msgspec.structs.replace(
                step,
                inputs=tuple(None if n is None else new(n) for n in step.inputs),
                outputs=tuple(map(new, step.outputs)),
                workspace=None if step.workspace is None else new(step.workspace),
            )
        case Reduce():
            return msgspec.structs.replace(step, inputs=tuple(map(new, step.inputs)), output=new(step.output))
        case _:
            return step


def _kept(steps: Sequence[Step], outputs: dict[int, int]) -> tuple[Step, ...]:
    """The steps, each last fetch of what was spilled giving the host's copy up, but for what outputs are read from."""
    wanted = set(outputs.values())
    out: list[Step] = []
    for step in reversed(steps):
        if isinstance(step, Fetch):
            step, number = msgspec.structs.replace(step, keep=step.spilled in wanted), step.spilled
            wanted.add(number)
        out.append(step)
    return tuple(reversed(out))


def _seconds(plan: ShardPlan, layouts: Sequence[_Layout]) -> dict[str, float]:
    """For each operator, the modeled seconds of the device that spills and fetches the longest before its steps."""
    link = plan.mesh.host
    taken: dict[str, Counter[int]] = {}
    for layout in layouts:
        for at, transfers in layout.moved.items():
            step = plan.steps[at] if at < len(plan.steps) else None
            node = step.node if isinstance(step, Copy | Compute | Reduce) else OUTPUTS
            seconds = len(transfers) * link.latency_seconds + sum(transfers) / link.nbytes_per_second
            devices = taken.setdefault(node, Counter())
            devices[layout.tape.device] += seconds  # type: ignore[assignment]
    return {node: max(devices.values()) for node, devices in taken.items()}
