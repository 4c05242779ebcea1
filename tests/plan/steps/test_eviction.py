"""Random futures of a device, followed event by event: what is evicted comes back as it was last."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapestry_plan import HOST
from tapestry_plan.steps import Alloc, Buffer, Copy, Fetch, Free, Spill, Step, tuning
from tapestry_plan.steps.arenas.eviction import Eviction, EvictionBySize, evict
from tapestry_plan.steps.arenas.timeline import StepUse, Timeline
from tapestry_sets.regions import Region

FEW = settings(max_examples=max(40, settings.default.max_examples // 2))
Use = tuple[frozenset[int], frozenset[int]]
"""The buffers of a step, and those that it writes."""
Drawn = tuple[list[int], list[Use], list[tuple[int, int]], frozenset[int]]
"""Cells of each buffer; the steps; placings (buffer, before which step); outputs."""
History = frozenset[tuple[str, int]]
END = 10**6
"""The number of the step after the last one."""


@st.composite
def futures(draw: st.DrawFn) -> Drawn:
    sizes = draw(st.lists(st.sampled_from([0, 5, 16, 16, 20, 40, 48]), min_size=2, max_size=6))
    some = st.frozensets(st.integers(0, len(sizes) - 1), min_size=1, max_size=3)
    steps = []
    for _ in range(draw(st.integers(2, 9))):
        used = draw(some)
        steps.append((used, used & draw(some)))
    number = st.integers(0, len(sizes) - 1)
    placings = draw(st.lists(st.tuples(number, st.integers(0, len(steps))), max_size=6))
    return sizes, steps, placings, draw(st.frozensets(number))


def timeline_of(drawn: Drawn) -> Timeline:
    """Placings have even numbers and steps odd ones, as if each step had all placings before it."""
    sizes, steps, placings, outputs = drawn
    out = Timeline(0)
    for n, cells in enumerate(sizes):
        out.buffers[n] = Buffer(n, 0, f"t{n}", (0,), (cells,), "float32", 0, 4 * cells)
    many = 1 + len(placings)
    numbered = sorted(placings, key=lambda placing: placing[1])
    for k, (n, before) in enumerate(numbered):
        region = Region.from_bounds((sizes[n],), (0,), (max(sizes[n] // 2, 0),))
        out.placings.setdefault(n, []).append((before * many + k, Copy("p", f"t{n}", HOST, n, (region,))))
    for k, (used, written) in enumerate(steps):
        out.uses.append(StepUse(k * many + many - 1, tuple(sorted(used)), written))
    last = {n: use.at for use in out.uses for n in use.buffers}
    late = {n for n, placed in out.placings.items() if placed[-1][0] > last.get(n, -1)}
    # Outputs that are placed after their last use, and those without one, are used once more (see `timeline`).
    out.outputs = set(outputs)
    again = sorted(n for n in outputs if n not in last or n in late)
    out.uses += [StepUse(END, (n,), frozenset()) for n in again]
    return out


def lines(cells: int) -> int:
    return (4 * cells + 63) // 64 * 64


def least(timeline: Timeline) -> int:
    return max((sum(lines(timeline.buffers[n].shape[0]) for n in use.buffers) for use in timeline.uses), default=0)


def whole(timeline: Timeline) -> int:
    return sum(lines(buffer.shape[0]) for buffer in timeline.buffers.values())


class Following:
    """An arena with the owner of each range of bytes, the host's copies, and what each holds as a set of events."""

    def __init__(self, timeline: Timeline, made: Eviction, cap: int) -> None:
        self.timeline, self.made, self.cap = timeline, made, cap
        self.buffers = {buffer.id: buffer for buffer in made.buffers}
        assert len(self.buffers) == len(made.buffers), "one number, one buffer"
        self.live: dict[int, History] = {}
        self.host: dict[int, History] = {}
        self.truth: dict[int, History] = {n: frozenset() for n in timeline.buffers}
        self.moved = self.placed = self.peak = self.transfers = 0
        self.last = max((at for at in made.numbers if at != END), default=-1)

    def follow(self) -> None:
        for use in self.timeline.uses:
            for step in self.made.before.pop(use.at, ()):
                self.apply(step)
            if use.at <= self.last:  # outputs that are used once more have no step of their own
                self.use(use)
            for step in self.made.after.pop(use.at, ()):
                self.apply(step)
        assert not self.made.before and not self.made.after, "steps stand beside uses"
        for n in self.timeline.outputs:
            number = self.made.final(n)
            held = self.live[number] if number in self.live else self.host[number]
            assert held == self.all_of(n, None)
        assert {self.buffers[number].tensor for number in self.live} <= {f"t{n}" for n in self.timeline.outputs}
        assert (self.moved, self.transfers) == (self.made.nbytes, self.made.transfers)
        assert (self.placed, self.peak) == (self.made.nbytes_placed, self.made.peak)

    def all_of(self, n: int, before: int | None) -> History:
        """What a buffer holds: the steps that wrote to it so far, and what was placed before a step."""
        mine = enumerate(self.timeline.placings.get(n, []))
        return self.truth[n] | {("placed", k) for k, (at, _) in mine if before is None or at < before}

    def use(self, use: StepUse) -> None:
        for n in use.buffers:
            number = self.made.numbers[use.at][n]
            assert self.live[number] == self.all_of(n, use.at), f"step {use.at} reads another buffer {n}"
            if n in use.written:
                self.truth[n] |= {("written", use.at)}
                self.live[number] |= {("written", use.at)}

    def apply(self, step: Step) -> None:
        match step:
            case Alloc(number):
                mine = self.buffers[number]
                low, high = mine.offset, mine.offset + lines(mine.shape[0])
                for other in (self.buffers[k] for k in self.live):
                    assert high <= other.offset or other.offset + lines(other.shape[0]) <= low, "places are apart"
                assert low >= 0 and high <= self.cap and number not in self.live
                self.peak = max(self.peak, high)
                self.live[number] = frozenset()
            case Free(number):
                del self.live[number]
            case Spill(number):
                self.host[number] = self.live[number]
                self.count(self.buffers[number].nbytes)
            case Fetch(number, spilled):
                assert not self.live[number] and self.buffers[number].tensor == self.buffers[spilled].tensor
                self.live[number] = self.host[spilled]
                self.count(self.buffers[number].nbytes)
            case Copy():
                n = int(step.tensor[1:])
                placed = [copy.regions for _, copy in self.timeline.placings[n]]
                done = {("placed", k) for k, regions in enumerate(placed)} & self.live[step.dst]
                nbytes = 4 * sum(len(region.points()) for region in step.regions)
                self.live[step.dst] |= {("placed", len(done))}
                if step.again:
                    self.count(nbytes)
                else:
                    self.placed += nbytes

    def count(self, nbytes: int) -> None:
        self.moved += nbytes
        self.transfers += 1


def ways(timeline: Timeline, cap: int) -> list[Eviction]:
    """Every way of choosing that `evict` may try, and what it takes in the end."""
    fresh = len(timeline.buffers)
    out = [evict(timeline, cap, fresh)]
    for near, exponent in product(tuning.NEAR_USES, tuning.DISTANCE_EXPONENTS):
        out.append(Eviction(timeline, cap, fresh, exponent, near).follow())
    for exponent in tuning.DISTANCE_EXPONENTS:
        loose = EvictionBySize(timeline, cap, fresh, exponent).follow()
        if loose.place_all(cap):
            out.append(loose)
    return out


SPILLED_TWICE: Drawn = (
    [16, 16, 16],
    [
        (frozenset({0}), frozenset({0})),
        (frozenset({1, 2}), frozenset({1, 2})),
        (frozenset({0}), frozenset({0})),
        (frozenset({1, 2}), frozenset()),
        (frozenset({0}), frozenset()),
    ],
    [],
    frozenset(),
)
"""Buffer 0 is written, gives way, is written once more and gives way again."""
PLACED_LATE: Drawn = (
    [16, 16, 16],
    [
        (frozenset({0}), frozenset({0})),
        (frozenset({1, 2}), frozenset({1, 2})),
        (frozenset({0}), frozenset()),
        (frozenset({1, 2}), frozenset()),
        (frozenset({0}), frozenset()),
    ],
    [(0, 2)],
    frozenset(),
)
"""The same, but that what comes second comes from the host's inputs."""


@FEW
@given(futures(), st.floats(0, 1))
@example(SPILLED_TWICE, 0.0)
@example(PLACED_LATE, 0.0)
def test_what_comes_back_is_what_was_last_there(drawn: Drawn, share: float) -> None:
    timeline = timeline_of(drawn)
    low, high = least(timeline), whole(timeline)
    cap = int(low + share * (high - low)) // 64 * 64
    for made in ways(timeline, cap):
        Following(timeline, made, cap).follow()


@pytest.mark.parametrize("drawn", [SPILLED_TWICE, PLACED_LATE])
def test_what_was_changed_is_spilled_again(drawn: Drawn) -> None:
    """The host's first copy is stale by then."""
    made = evict(timeline_of(drawn), 128, 3)
    steps = [step for at in sorted(made.before) for step in made.before[at]]
    tensors = {buffer.id: buffer.tensor for buffer in made.buffers}
    spilled = [step.buffer for step in steps if isinstance(step, Spill) and tensors[step.buffer] == "t0"]
    fetched = [step.spilled for step in steps if isinstance(step, Fetch) and tensors[step.buffer] == "t0"]
    assert len(set(spilled)) == 2 and fetched == spilled


# -- which buffers give way, and where others go: small futures, worked out by hand ------------------------------------


def written(*numbers: int) -> Use:
    return frozenset(numbers), frozenset(numbers)


def read(*numbers: int) -> Use:
    return frozenset(numbers), frozenset()


def spilled(made: Eviction) -> list[int]:
    """The numbers of what goes to the host, in the order of the steps."""
    return [step.buffer for at in sorted(made.before) for step in made.before[at] if isinstance(step, Spill)]


def place_of(made: Eviction, number: int) -> int:
    return next(buffer.offset for buffer in made.buffers if buffer.id == number)


@pytest.mark.parametrize(
    ("near", "last", "place"),
    [
        (None, 4, 192),  # the hole of one line, whatever comes later
        (2, 3, 0),  # two steps on is near: the first hole
        (2, 4, 384),  # three steps on is not: the end
    ],
)
def test_what_goes_soon_lies_in_front_and_what_stays_at_the_end(near: int | None, last: int, place: int) -> None:
    """Before buffer 4 of one line comes: two free lines, 1, a free line, 3, two free lines."""
    sizes = [32, 16, 16, 16, 16]
    steps = [written(0, 1, 2, 3), written(4), read(1, 3), read(4), read(4)][: last + 1]
    timeline = timeline_of((sizes, steps, [], frozenset()))
    made = Eviction(timeline, 7 * 64, 5, 0.0, near).follow()
    assert [place_of(made, n) for n in range(5)] == [0, 128, 192, 256, place]
    Following(timeline, made, 7 * 64).follow()


def test_the_largest_takes_its_place_first() -> None:
    """Two free lines, buffer 1, one free line: were the small one put in front, buffer 1 had to make way."""
    timeline = timeline_of(([32, 16, 16, 32], [written(0), written(0, 1), written(1, 2, 3)], [], frozenset()))
    made = Eviction(timeline, 4 * 64, 4, 0.0, 8).follow()
    assert [place_of(made, n) for n in range(4)] == [0, 128, 192, 0]
    assert made.nbytes == 0


@pytest.mark.parametrize(("exponent", "gone"), [(0.0, 0), (1.0, 0), (4.0, 1)])
def test_bytes_are_weighed_against_the_distance(exponent: float, gone: int) -> None:
    """Buffer 0 costs 20 bytes each way and is next used one step on, buffer 1 costs 64, two steps on.

    So they weigh 40 and 128 at exponent 0, 40 and 64 at 1, 40 and 8 at 4.
    """
    timeline = timeline_of(([5, 16, 16], [written(0, 1), written(2), read(0), read(1)], [], frozenset()))
    assert spilled(Eviction(timeline, 128, 3, exponent, None).follow())[0] == gone
    assert spilled(EvictionBySize(timeline, 128, 3, exponent).follow())[0] == gone


def test_of_equal_blocks_the_one_that_is_used_latest_goes() -> None:
    """Room for one line is wanted, and no more than that goes."""
    timeline = timeline_of(([16, 16, 16], [written(0, 1), written(2), read(0), read(1)], [], frozenset()))
    assert spilled(EvictionBySize(timeline, 128, 3, 0.0).follow()) == [1]


def test_an_output_that_is_used_before_the_end_costs_both_ways() -> None:
    """Giving up the output is 32 bytes out and in; buffer 1 comes again from the inputs, 40 bytes once."""
    steps = [(frozenset({0, 1}), frozenset({0})), written(2), read(0, 1)]
    timeline = timeline_of(([8, 20, 16], steps, [(1, 0)], frozenset({0})))
    assert evict(timeline, 192, 3).nbytes == 40


NO_PLACES: Drawn = (
    [32, 32, 48, 32],
    [written(2, 3), written(1, 2), written(0, 1, 3)],
    [],
    frozenset(),
)
"""At 384 bytes buffers fit by their sizes while 256 bytes move, and nowhere in one piece."""


def test_blocks_that_find_no_places_together_are_not_taken() -> None:
    timeline = timeline_of(NO_PLACES)
    loose = EvictionBySize(timeline, 384, 4, 0.0).follow()
    assert loose.nbytes == 256 and not loose.place_all(384)
    Following(timeline_of(NO_PLACES), evict(timeline, 384, 4), 384).follow()
