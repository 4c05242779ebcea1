"""Eviction: the buffers that give way when a device's memory is short, and places for those that come.

The steps of a plan say when each buffer is used next, so the whole future is known, as it is for Belady's rule on pages
of one size. A buffer weighs (bytes that evicting it moves) / (steps until its next use)^a: with a = 0 the bytes alone
count, with a large the distance alone, which is Belady's rule; every a of `DISTANCE_EXPONENTS` is tried, and of all
that is tried what moves the fewest bytes is kept. But buffers are not of one size, and each must lie in one piece. So
there are two ways:

1. `EvictionBySize` chooses with nothing but the sum of sizes in view. Then every stay of a buffer in the arena is
   known, from its coming to its going, and `assign_offsets` places all of them at once. Where it finds no places, the
   same is tried with some of the arena left aside (`SLACKS`).
2. Where that moves more than the sum of sizes asks for, `Eviction` goes step by step: a place for a buffer is a window
   of the arena, and what it takes is the sum over the buffers in it, none of which the step itself uses. Of equally
   cheap windows it is the one that leaves the least beside it, or, so that what goes soon and what stays long do not
   lie among one another and leave the arena in pieces, the first one for buffers whose last use is near and the last
   one for others; every notion of what is near of `NEAR_USES` is tried. Where the step's own buffers leave no window
   they are laid out anew, so that whatever fits at all is found.

What is evicted moves only what it must:

- Inputs and constants are placed when they are first used, not before, and are placed again from the host's arrays.
- What was spilled and has not been written to since is not spilled again.
- What no later step uses is freed at once; an output that is spilled is read from host memory at the end.
- A buffer is spilled whole, those of its cells too that nothing was written to.

That is an optimum where all buffers are of one size and the host has what they hold, and a heuristic elsewhere. On
120 random plans of up to six operators, in four sizes of memory each, the bytes were 1.03 times the fewest over all
choices of what to evict with places left aside, which no layout can be below, and equal in 98 of 100 cases; see
`tests/plan/steps/test_spill.py`.

References
----------
L. A. Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5 (1966).
J. Zhang et al., Coop: Memory is not a Commodity, NeurIPS 2023: windows of contiguous memory for tensors.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any, Literal, Self, cast

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tapestry_plan.steps import tuning
from tapestry_plan.steps.arenas.offsets import Stay, assign_offsets
from tapestry_plan.steps.arenas.timeline import StepUse, Timeline, find_widest
from tapestry_plan.steps.layouts.mesh import align
from tapestry_plan.steps.step import Alloc, Buffer, Copy, Fetch, Free, Spill, Step

Side = Literal["first", "last", "tightest"]
"""Which of equally cheap windows a buffer takes."""


def evict(timeline: Timeline, cap: int, fresh: int) -> Eviction:
    """The eviction of a device that moves the fewest bytes, in the fewest transfers, of those that are tried."""
    best, fewest = _evict_by_size(timeline, cap, fresh)
    for near, exponent in product(tuning.NEAR_USES, tuning.DISTANCE_EXPONENTS):
        if best is not None and best.nbytes <= fewest:
            break
        one = Eviction(timeline, cap, fresh, exponent, near).follow()
        if best is None or (one.nbytes, one.transfers) < (best.nbytes, best.transfers):
            best = one
    assert best is not None, "there is something to be tried"
    return best


def _evict_by_size(timeline: Timeline, cap: int, fresh: int) -> tuple[Eviction | None, int]:
    """The best eviction whose blocks found their places afterwards, and the fewest bytes if all of them did."""
    widest = find_widest(timeline)[1]
    rooms = [room for slack in tuning.SLACKS if (room := cap - int(cap * slack)) >= widest]
    loose = [EvictionBySize(timeline, *each).follow() for each in product(rooms, (fresh,), tuning.DISTANCE_EXPONENTS)]
    loose.sort(key=lambda one: (one.nbytes, one.transfers))
    return next((one for one in loose if one.place_all(cap)), None), loose[0].nbytes


class Eviction:
    """Follows one device's timeline under a cap, and writes down the buffers that it gives up and brings back."""

    def __init__(self, timeline: Timeline, cap: int, fresh: int, exponent: float, near: int | None) -> None:
        self.timeline, self.cap, self.fresh, self.exponent, self.near = timeline, cap, fresh, exponent, near
        self.size = {n: align(buffer.nbytes) for n, buffer in timeline.buffers.items()}
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
        last = len(self.timeline.uses)
        self.uses: dict[int, list[int]] = {
            n: [last] if n in self.timeline.outputs else [] for n in self.timeline.buffers
        }
        for k in range(last - 1, -1, -1):
            for n in self.timeline.uses[k].buffers:
                self.uses[n].append(k)  # descending, so that the next one is at the end
        most = max(self.timeline.buffers) + 1  # there are some: memory is short
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

    def follow(self) -> Self:
        """This eviction, once every use has been gone through."""
        for k, use in enumerate(self.timeline.uses):
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

    def _admit(self, use: StepUse) -> None:
        missing = [n for n in use.buffers if n not in self.place]
        if not missing:
            return
        spots = self._find_spots(missing, [n for n in use.buffers if n in self.place])
        leaving = [n for n in spots if n in self.place]
        for n in spots:
            leaving += [other for other in self._find_between(spots[n], spots[n] + self.size[n]) if other not in spots]
        for n in dict.fromkeys(leaving):
            self._leave(use.at, n)
        for n, offset in spots.items():
            self._enter(use.at, n, offset)

    def _find_spots(self, missing: Sequence[int], resident: Sequence[int]) -> dict[int, int]:
        """Offsets for the missing buffers of a step, and for those of its resident ones that must make way."""
        # The step's own buffers that are there should stay, as each move costs a copy. Where the missing ones find no
        # window between them, the smaller half of them moves too, then three quarters, and at last all of them.
        members = sorted(resident, key=self.size.__getitem__, reverse=True)
        kept, spots = len(members), None
        while spots is None and kept >= 0:
            spots = self._try_spots([*members[kept:], *missing], set(members[:kept]))
            kept = kept // 2 if kept else -1
        if spots is None:  # side by side from the start there is room: the cap was checked
            spots, end = {}, 0
            for n in [*members, *missing]:
                spots[n], end = end, end + self.size[n]
        return {n: at for n, at in spots.items() if self.place.get(n) != at}

    def _try_spots(self, wanted: Sequence[int], fixed: set[int]) -> dict[int, int] | None:
        """Offsets around the buffers in `fixed`, the largest first; None where what they leave is in pieces."""
        resident = np.array([n for _, _, n in self.spans], np.int64)
        windows = _Windows(self.spans, self._weigh(resident), fixed, self.cap)
        out = {}
        for n in sorted(wanted, key=self.size.__getitem__, reverse=True):
            stays = n in self.place and windows.fix(self.place[n], self.size[n])
            at = self.place[n] if stays else windows.take(self.size[n], self._side(n))
            if at is None:
                return None
            out[n] = at
        return out

    def _side(self, n: int) -> Side:
        """On which side of the arena a buffer goes."""
        if self.near is None:
            return "tightest"
        return "first" if self.uses[n][0] - self.now <= self.near else "last"

    def _weigh(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """What giving up each of some buffers weighs."""
        weights = self.cost[ids].astype(np.float64)
        if self.exponent:
            weights *= np.maximum(self.next[ids] - self.now, 1) ** -self.exponent
        return weights

    def _find_between(self, low: int, high: int) -> list[int]:
        """The resident buffers that reach into a range of bytes."""
        first = bisect_right(self.spans, low, key=lambda span: span[1])
        last = bisect_left(self.spans, high, key=lambda span: span[0])
        return [n for _, _, n in self.spans[first:last]]

    # -- coming and going --------------------------------------------------------------------------------

    def _leave(self, at: int, n: int) -> None:
        """Give a buffer up, with a copy in host memory where it cannot be had again otherwise."""
        steps = self.before.setdefault(at, [])
        at_the_end = self.next[n] == len(self.timeline.uses)
        if n not in self.host and (n in self.mixed or at_the_end):
            self.host[n] = self.number[n]
            steps.append(Spill(self.number[n]))
            self._count(at, self.timeline.buffers[n].nbytes)
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
        buffer = replace(self.timeline.buffers[n], id=number, offset=offset)
        self.buffers.append(buffer)
        steps = self.before.setdefault(at, [])
        steps.append(Alloc(number))
        if n in self.host:
            steps.append(Fetch(number, self.host[n]))
            self._count(at, buffer.nbytes)
        elif again:
            for _, step in self.timeline.placings.get(n, [])[: self.placed[n]]:
                steps.append(replace(step, dst=number, again=True))
                self._count(at, _nbytes(step, buffer))

    def _place_rest(self, at: int, n: int) -> None:
        """Do those of a buffer's placings that come before a step that uses it."""
        for when, step in self.timeline.placings.get(n, [])[self.placed[n] :]:
            if when > at:
                break
            self.before.setdefault(at, []).append(replace(step, dst=self.number[n]))
            nbytes = _nbytes(step, self.timeline.buffers[n])
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
        # What giving it up now would move:
        #
        #                         host has it   host has it not
        #   written by a step     in            out and in
        #   placed from inputs    in again      in again: inputs never leave the host
        #   output, at its end    nothing       out: it is read there
        self.next[n] = uses[-1]
        nbytes = self.timeline.buffers[n].nbytes
        out = 0 if n in self.host else nbytes
        if uses[-1] == len(self.timeline.uses):
            self.cost[n] = out
        else:
            self.cost[n] = out + nbytes if n in self.mixed else self.again[n]

    def _remove(self, n: int) -> None:
        offset = self.place.pop(n)
        if self.size[n]:
            self.spans.remove((offset, offset + self.size[n], n))

    def _count(self, at: int, nbytes: int) -> None:
        self.moved.setdefault(at, []).append(nbytes)


class EvictionBySize(Eviction):
    """Follows a timeline with nothing but the sum of resident bytes under the cap; places are found afterwards."""

    def __init__(self, timeline: Timeline, cap: int, fresh: int, exponent: float) -> None:
        super().__init__(timeline, cap, fresh, exponent, None)
        self.held = 0
        self.stays: dict[int, Stay] = {}
        """From which use to which one each number's block is resident."""

    def place_all(self, cap: int) -> bool:
        """Give every block its place in an arena of so many bytes, if places are found."""
        offsets = assign_offsets([self.stays[buffer.id] for buffer in self.buffers], cap)
        if offsets is None:
            return False
        places = zip(self.buffers, offsets, strict=True)
        self.buffers = [replace(buffer, offset=offset) for buffer, offset in places]
        return True

    def _admit(self, use: StepUse) -> None:
        missing = [n for n in use.buffers if n not in self.place]
        over = self.held + sum(self.size[n] for n in missing) - self.cap
        for n in self._choose_evicted(set(use.buffers), over) if over > 0 else ():
            self._leave(use.at, n)
        for n in missing:
            self._enter(use.at, n, 0)

    def _choose_evicted(self, used: set[int], over: int) -> list[int]:
        """Buffers of so many bytes that are cheap for their size, or a single one if that is cheaper."""
        # Cheapest by the byte until there is room enough; the last one taken may make others needless, so those are
        # given back, the dearest first. One large buffer may still cost less than many small ones.
        idle = [n for n in self.place if n not in used and self.size[n]]
        weight = dict(zip(idle, self._weigh(np.array(idle, np.int64)).tolist(), strict=True))
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
        self.stays[self.number[n]] = Stay(self.now, len(self.timeline.uses), self.size[n])

    def _leave(self, at: int, n: int) -> None:
        super()._leave(at, n)
        self.stays[self.number[n]] = self.stays[self.number[n]]._replace(last=self.now - 1)

    def _remove(self, n: int) -> None:
        super()._remove(n)
        self.held -= self.size[n]
        self.stays[self.number[n]] = self.stays[self.number[n]]._replace(last=self.now)


class _Windows:
    """Windows of an arena, by what is lost when a buffer is put there.

    Three resident buffers that weigh 5, 1 and 3, and a buffer of four cells that needs a window::

        arena      aaaa..bb.ccc    a weighs 5, b 1, c 3
        windows    |--|            begins where the arena does, over a: loses 5
                       |--|        begins where a ends, over b: loses 1, the cheapest
                        |--|       ends where c begins, over b: loses 1 too
                           |--|    ends where the arena does, over c: loses 3

    Sliding a window until it touches the end or the beginning of a buffer on its way, or an end of the arena, never
    makes it cover more. So these are all the windows that must be looked at, two for each resident buffer: with the
    offsets sorted, `searchsorted` says which buffers each window covers, and prefix sums what they weigh together.
    """

    def __init__(
        self, spans: Sequence[tuple[int, int, int]], weights: NDArray[np.float64], fixed: set[int], cap: int
    ) -> None:
        self.starts = np.array([low for low, _, _ in spans], np.int64)
        self.ends = np.array([high for _, high, _ in spans], np.int64)
        self.weights = weights
        self.fixed = np.array([n in fixed for _, _, n in spans], np.int64)
        self.cap = cap

    def take(self, nbytes: int, side: Side) -> int | None:
        """The offset of the cheapest window of a size, which is fixed from now on; None where there is none.

        Of equally cheap ones it is the first, the last, or the tightest: that which leaves the least beside it.
        """
        if not nbytes:
            return 0
        # Windows that begin where a buffer ends (or at 0), and windows that end where one begins (or at the cap).
        lefts, rights = np.append(self.ends, 0), np.append(self.starts, self.cap)
        at = np.concatenate((lefts, rights - nbytes))
        at = at[(at >= 0) & (at + nbytes <= self.cap)]
        first = np.searchsorted(self.ends, at, "right")
        last = np.searchsorted(self.starts, at + nbytes, "left")
        # Buffers first … last - 1 are those in the window; one that the step itself uses rules it out.
        free = _sums(self.fixed, first, last) == 0
        if not free.any():
            return None
        at, first, last = at[free], first[free], last[free]
        lost = _sums(self.weights, first, last)
        cheap = np.flatnonzero(lost == lost.min())
        match side:
            case "first":
                best = cheap[np.argmin(at[cheap])]
            case "last":
                best = cheap[np.argmax(at[cheap])]
            case "tightest":
                best = cheap[np.argmin((rights[last] - lefts[first - 1])[cheap])]
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
    return cast("NDArray[Any]", total[last] - total[first])


def _nbytes(step: Copy, buffer: Buffer) -> int:
    return sum(region.size for region in step.regions) * np.dtype(buffer.dtype).itemsize
