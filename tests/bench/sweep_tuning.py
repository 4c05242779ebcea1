"""Sweep the tuning constants: run as a script; each row is a constant, with times at other values of it.

python tests/bench/sweep_tuning.py [NAME …]   prints the table, of some constants alone if any are named
python tests/bench/sweep_tuning.py --write    also writes it to tests/bench/results/sweep_tuning.md

A constant is set to 1/4, 1/2, 1, 2 and 4 times its value in one process, in turn, and questions that it decides are
asked. Before each, their sets and views are made anew and what the packages remember is dropped. Answers must be equal
at all values. That the constant decides is checked: a profiler must count other calls at one of the values. A number is
the time there by the time at the committed value, best of several; over several questions it is the geometric mean.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import _lru_cache_wrapper, partial, reduce
from math import prod
from operator import and_
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is loaded: threads that wait for a core hide what a value does

import numpy as np
from bench_alias import random_chain, with_reshapes
from bench_sets import machine, random_nest, shown

import tapestry_exec.copies.tuning
import tapestry_plan.ops.tuning
import tapestry_sets.alias.tuning
import tapestry_sets.batch.tuning
import tapestry_sets.integers.tuning
import tapestry_sets.regions.tuning
import tapestry_sets.views.tuning
from tapestry_exec.copies import pack, unpack
from tapestry_exec.run import evaluate
from tapestry_plan import Graph, ops
from tapestry_sets import (
    DisjointRegions,
    DisjointSetts,
    Region,
    Sett,
    Stripe,
    View,
    allocate,
    concatenate,
    count_common,
    interleave,
    overlap,
    overlap_matrix,
    overlap_sizes,
    roll,
    shared_memory,
)
from tapestry_sets.batch.batches import StripeArray
from tapestry_sets.batch.region_arrays import RegionArray
from tapestry_sets.integers import explicit, members, pairs
from tapestry_sets.views.pieces.numbering import few_readings

RESULTS = Path(__file__).parent / "results" / "sweep_tuning.md"
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
SECONDS, MAX_ROUNDS, CLOSE = 1.6, 9, 1.1
"""Of all rounds of one constant together, how many there are at most, and which ratio still counts as the best."""

Ask = Callable[[], object]
Make = Callable[[], Ask]


# --------------------------------------------------------------------------------------------------- the questions


def nest_pairs(on: int, many: int, depth: int = 3) -> list[tuple[Any, Any]]:
    source = random.Random(1)
    return [(random_nest(source, depth, on).nest, random_nest(source, depth, on).nest) for _ in range(many)]


def count_pairs(on: int, many: int = 60, depth: int = 3) -> Ask:
    """How many elements two nests share."""
    drawn, stop = nest_pairs(on, many, depth), max(10**9, 30 * on * on // 100)
    return lambda: [pairs.count_in_both(s, t, 0, stop) for s, t in drawn]


def count_unions(many_blocks: int, length: int, sets: int = 2, many: int = 8) -> Ask:
    """How many elements unions of blocks share."""
    source = random.Random(7)

    def union(n: int) -> DisjointSetts:
        lengths = [source.randrange(1, 60) for _ in range(n)]
        return DisjointSetts([Sett(Stripe(on, 10**6 + n - on, 64 * k)) for k, on in enumerate(lengths)])

    drawn = [[union(many_blocks + k) for k in range(sets)] for _ in range(many)]
    return lambda: [count_common(*each, start=0, stop=length) for each in drawn]


def count_combs(step: int, many: int = 12) -> Ask:
    """How many elements two nests share that have combs inside, of steps from `step` up."""
    source, drawn = random.Random(6), []
    for _ in range(many):
        P, Q = source.sample(range(10**7, 2 * 10**7), 2)
        p, q = source.sample(range(step, 2 * step), 2)
        drawn.append((((P // 3, P, 0), (1, p, 0)), ((Q // 2, Q, 5), (1, q, 0))))
    return lambda: [pairs.count_in_both(s, t, 0, 10**10) for s, t in drawn]


def any_of_pairs(on: int, many: int = 100) -> Ask:
    """Whether two nests share an element."""
    drawn = nest_pairs(on, many)
    return lambda: [members.some_in_both(s, t, 0, 10**9) is None for s, t in drawn]


def count_members(on: int, many: int = 20) -> Ask:
    """How many elements two nests share, as members of unions."""
    drawn = [(members.spans_of([s], 0, 10**9), members.spans_of([t], 0, 10**9)) for s, t in nest_pairs(on, many)]
    return lambda: [members.count_common(s, t) for s, t in drawn]


def meet_pairs(on: int, many: int = 20, depth: int = 2) -> Ask:
    """What two nests share, as nests."""
    drawn = nest_pairs(on, many, depth)
    return lambda: [len(explicit.meet(s, t)) > 0 for s, t in drawn]


def count_triples(on: int, stop: int, many: int = 20) -> Ask:
    """How many elements three nests share."""
    source = random.Random(3)
    drawn = [reduce(and_, [random_nest(source, 2, on) for _ in range(3)]) for _ in range(many)]
    return lambda: [x.count(0, stop) for x in drawn]


def count_stripes(periods: Sequence[int], stop: int) -> Ask:
    """How many elements half-on stripes share."""
    every = reduce(and_, [Sett(Stripe(p // 2 + 1, p // 2)) for p in periods])
    return lambda: every.count(0, stop)


def unions(n: int, many: int = 12) -> Ask:
    """Whether two unions of n nests share an element, and how many."""
    source, period = random.Random(5), 4096 * n

    def union() -> Any:
        inner = [(source.randrange(1, 4), source.randrange(5, 9), source.randrange(5)) for _ in range(n)]
        nests = [((source.randrange(64, 4000), period, 4096 * k + source.randrange(60)), inner[k]) for k in range(n)]
        return members.spans_of(nests, 0, period)

    drawn = [(union(), union()) for _ in range(many)]
    return lambda: [(members.some_common(s, t) is None, members.count_common(s, t)) for s, t in drawn]


def elements(n: int) -> Ask:
    """What three sets share below n."""
    x = Sett(Stripe(1, 1)) & Sett(Stripe(2, 1)) & Sett(Stripe(3, 4))
    return lambda: int(x.elements(0, n).sum())


def nth() -> Ask:
    """The elements of some numbers of an intersection."""
    x = Sett(Stripe(3, 7), Stripe(1, 1)) & Sett(Stripe(5, 8)) & Sett(Stripe(11, 6))
    return lambda: [x.nth(k) for k in range(5, 3000, 61)]


def matrix(shape: tuple[int, ...], many: int, most: int = 4) -> Ask:
    """Which of many views by reshapes, slices and permutations share a cell."""
    source, base = random.Random(1), allocate(shape)
    views = [with_reshapes(source, base, most) for _ in range(many)]
    return lambda: overlap_matrix(views).tolist()


def tables(many: int) -> Ask:
    """How tables of slots are read: of pages in order, and of scattered ones."""
    slots = [(16 * (k * step % 4093) + j) for step in (1, 7, 2001) for k in range(many // 16) for j in range(16)]
    third = len(slots) // 3
    return lambda: [len(few_readings(slots[k * third : (k + 1) * third]) or ()) for k in range(3)]


def sizes(shape: tuple[int, ...], many: int) -> Ask:
    """How many cells each pair of views shares."""
    source, base = random.Random(1), allocate(shape)
    views = [with_reshapes(source, base) for _ in range(many)]
    return lambda: overlap_sizes(views).tolist()


def chains(length: int, shape: tuple[int, ...] = (8, 6, 7), many: int = 20) -> Ask:
    """How many cells two chains of kinds share."""
    source, base = random.Random(2), allocate(shape)
    drawn = [[random_chain(source, base, source.randint(length // 2, length)) for _ in range(2)] for _ in range(many)]
    return lambda: [overlap(a, b).size for a, b in drawn]


def scans(batch: int) -> Ask:
    """Ask about chunks of a scan of several sequences that were cut twice out of step."""
    x = allocate((batch, 4096, 8))
    rows: View = x
    for chunk, dropped in ((256, 3), (192, 5)):
        whole = rows.shape[1] // chunk * chunk
        chunks = rows[:, :whole].reshape(batch, -1, chunk, 8)
        rows = chunks[:, :, dropped:].reshape(batch, -1, 8)
    return lambda: (overlap(rows, x[:, 2048:]).size, overlap(rows[:, 1:], x[:, ::3]).size)


def written(view: View) -> str:
    """Return the kinds of a view and of all below it, by which answers are compared."""
    return view.to_json()


def folded(pieces: int) -> Ask:
    """How many cells a view of many slices of one allocation shares with another."""
    base = allocate((2 * pieces, 12))
    view = interleave([base[k::pieces] for k in range(pieces)])
    return lambda: overlap(view, base[:, ::3]).size


def simplified(length: int, shape: tuple[int, ...] = (8, 6, 7), many: int = 20) -> Ask:
    """Chains of kinds, simplified."""
    source, base = random.Random(2), allocate(shape)
    drawn = [random_chain(source, base, source.randint(length // 2, length)) for _ in range(many)]
    return lambda: [written(view.simplify()) for view in drawn]


def deep(length: int) -> Ask:
    """Long plain chains: how many cells they share with a slice, and what they simplify to."""
    base = allocate((64, 48, 40))
    view: View = base
    for k in range(length):
        view = (view.flip(k % 3), roll(view, 1, k % 3), view.permute_dims((1, 2, 0)))[k % 3]
    view = concatenate([view[3:], view[:3]])
    return lambda: (overlap(view, base[::3]).size, written(view.simplify()))


def rows_apart(many: int) -> Ask:
    """How many points two unions of rows share, and what one lacks."""
    box = (3 * many, 64, 8)
    rows = [Region.from_bounds(box, (3 * i, 0, i % 4), (3 * i + 1, 64, 8)) for i in range(many)]
    one, two = DisjointRegions(box, rows), DisjointRegions(box, rows[::2])
    return lambda: (one.count_common(two), len((one - two).members))


def strided(many: int, size: int = 1 << 20) -> Ask:
    """Which of many strided arrays share memory."""
    source, x = random.Random(4), np.zeros(4 * size, np.int8)
    arrays: dict[int, Any] = {}
    for k in range(many):
        shape, at = (source.randint(2, 40), source.randint(2, 9)), source.randrange(size)
        arrays[k] = np.lib.stride_tricks.as_strided(x[at:], shape, (source.randint(50, 900), source.randint(1, 7)))
    return lambda: sorted(map(len, shared_memory(arrays)))


def sliced(many: int, longest: int, size: int = 1 << 20) -> Ask:
    """Which slices with steps share memory, and how much."""
    source, x = random.Random(4), np.zeros(size, np.int8)
    arrays = {}
    for k in range(many):
        at = source.randrange(size - longest)
        arrays[k] = x[at : at + source.randint(longest // 2, longest) : source.randint(1, 9)]
    return lambda: sorted((len(g), g.nbytes, g.nbytes_shared) for g in shared_memory(arrays))


def stripe_columns(many: int) -> Ask:
    """All pairs of many stripes."""
    source = random.Random(1)
    batch = StripeArray.of(
        [Stripe(source.randint(1, 500), source.randint(0, 500), source.randint(0, 500)) for _ in range(many)]
    )
    rows = batch[:, None]
    return lambda: (int(rows.count_common(batch, 0, 10**9).sum()), int(batch.overlap_matrix().sum()))


def slice_columns(many: int) -> Ask:
    """All pairs of many strided slices of a matrix."""
    source = random.Random(1)
    starts = [[source.randrange(900) for _ in range(2)] for _ in range(many)]
    ends = [[source.randint(at + 1, 1024) for at in row] for row in starts]
    steps = [[source.randint(1, 5) for _ in range(2)] for _ in range(many)]
    batch = RegionArray((1024, 1024), starts, ends, steps)
    return lambda: int(batch.overlap_matrix().sum())


def evaluated(name: str, *shapes: tuple[int, ...], **attrs: Any) -> Ask:
    """An operator, evaluated by NumPy."""
    graph = Graph()
    source = np.random.default_rng(1)
    tensors = [graph.input(f"x{k}", shape) for k, shape in enumerate(shapes)]
    graph.output(getattr(ops, name)(*tensors, **attrs), "y")
    values = {f"x{k}": source.random(shape, np.float32) for k, shape in enumerate(shapes)}
    return lambda: float(evaluate(graph, values)["y"].sum())


def packed(rows: int, row: int, columns: slice) -> Ask:
    """Columns of a matrix of bytes, gathered."""
    array = np.random.default_rng(1).integers(0, 9, (rows, row), np.uint8)
    region = Region.from_slices((rows, row), (slice(None), columns))
    return lambda: int(pack(array, (0, 0), [region]).sum(dtype=np.int64))


def unpacked(rows: int, row: int, columns: slice) -> Ask:
    """Columns of a matrix of bytes, scattered; of these a few are read again."""
    array = np.zeros((rows, row), np.uint8)
    region = Region.from_slices((rows, row), (slice(None), columns))
    payload = np.random.default_rng(1).integers(0, 9, region.size, np.uint8)

    def scatter() -> int:
        unpack(payload, array, (0, 0), [region])
        return int(array[:, :64].sum(dtype=np.int64))

    return scatter


# ----------------------------------------------------------------------------------------- which constant, by which

INTEGERS, ALIAS, VIEWS = tapestry_sets.integers.tuning, tapestry_sets.alias.tuning, tapestry_sets.views.tuning
REGIONS, BATCH = tapestry_sets.regions.tuning, tapestry_sets.batch.tuning
OPS, COPIES = tapestry_plan.ops.tuning, tapestry_exec.copies.tuning
FEW, MANY, CHAINS = partial(strided, 40), partial(strided, 150), (partial(chains, 6, many=10),)
PLAIN = partial(simplified, 6, many=6)
SWEPT: dict[tuple[ModuleType, str], Sequence[Make]] = {
    (INTEGERS, "MASK_BITS"): [partial(any_of_pairs, on) for on in (512, 4096, 10**6)],
    (INTEGERS, "SHORT"): [partial(count_pairs, on, 30) for on in (512, 4096)],
    (INTEGERS, "MASK_SPAN"): [
        partial(count_triples, 512, 10**7),
        partial(count_stripes, (1 << 13, 3**8, 5**6), 3 << 20),
    ],
    (INTEGERS, "BITS_AN_ENTRY"): [partial(count_pairs, on) for on in (512, 4096, 30_000)],
    (INTEGERS, "BITS_A_CHOICE"): [partial(count_unions, 2, 4**e, 3, 2) for e in (9, 10, 11)],
    (INTEGERS, "FEW_PAIRS"): [partial(count_unions, n, 10**9) for n in (1, 2, 3, 4)],
    (INTEGERS, "PLACES_AN_ENTRY"): [partial(count_unions, n, 10**9) for n in (9, 100)],
    (INTEGERS, "BITS_A_TURN"): [partial(count_pairs, on, depth=4) for on in (4096, 30_000)],
    (INTEGERS, "ENTRIES_A_ROUND"): [partial(count_pairs, on) for on in (4096, 30_000, 10**6)],
    (INTEGERS, "ENTRIES_OF_STRIPES"): [partial(count_combs, step) for step in (70, 10**4)],
    (INTEGERS, "FEW_BLOCKS"): [partial(count_combs, step) for step in (70, 10**4, 10**5, 10**6)],
    (INTEGERS, "COLUMN"): [partial(count_pairs, 10**6), partial(count_pairs, 10**9, 20, depth=4)],
    (INTEGERS, "LISTED_RAMPS"): [partial(count_pairs, 10**6), partial(count_pairs, 10**9, 20, depth=4)],
    (INTEGERS, "TABLED"): [partial(count_pairs, 10**6), partial(count_pairs, 10**9, 20, depth=4)],
    (INTEGERS, "HALVES"): [partial(count_stripes, (101, 103, 107, 109, 113, 127), 10**7)],
    (INTEGERS, "RUN_LENGTH"): [partial(count_triples, 512, 10**7), partial(count_triples, 10**6, 10**7)],
    (INTEGERS, "MANY_BLOCKS"): [partial(meet_pairs, on) for on in (64, 512)],
    (INTEGERS, "BLOCKS"): [partial(any_of_pairs, on) for on in (512, 4096, 30_000)] + [partial(unions, 16)],
    (INTEGERS, "MEMBER_LEAPS"): [partial(unions, n) for n in (4, 16)] + [partial(matrix, (64, 48, 40), 120)],
    (INTEGERS, "FEW_MEMBERS"): [*[partial(unions, n) for n in (8, 16, 32, 64)], partial(matrix, (64, 48, 40), 120)],
    (INTEGERS, "COUNTED"): [partial(count_members, on) for on in (4096, 30_000, 100_000)],
    (INTEGERS, "FEW_RUNS"): [partial(scans, n) for n in (20, 40, 100)],
    (INTEGERS, "WALK_ABOVE"): [partial(elements, 1 << e) for e in (21, 24)],
    (INTEGERS, "CLOSE"): [nth],
    (ALIAS, "FEW_SETTS"): [*CHAINS, partial(scans, 20)],
    (ALIAS, "MAX_MEMBERS"): [partial(matrix, (64, 48, 40), 120)],
    (ALIAS, "MAX_LEVELS"): [partial(matrix, (64, 48, 40), 120)],
    (ALIAS, "LEAPS_AT_ONCE"): [partial(matrix, (64, 48, 40), 120), partial(matrix, (1024, 1025), 60)],
    (ALIAS, "PAIRS_AT_ONCE"): [partial(matrix, (64, 48, 40), 350)],
    (ALIAS, "FEW_PARTS"): [partial(strided, n) for n in (8, 40, 60)],
    (ALIAS, "MAX_PERIODS"): [MANY, partial(strided, 300)],
    (ALIAS, "FIRST_PAIRS"): [partial(strided, 600, 1 << 16)],
    (ALIAS, "FEW_BYTES"): [partial(sliced, 6, 10**6 * n, 2 * 10**6 * n) for n in (50, 120, 400)],
    (ALIAS, "SIEVE_BLOCK"): [partial(sliced, 80, 1 << 21, 1 << 23)],
    (REGIONS, "FEW_PAIRS"): [partial(rows_apart, n) for n in (8, 12, 16, 24, 48)],
    (VIEWS, "FOLDED_PIECES"): [partial(folded, n) for n in (12, 48, 100, 200)],
    (VIEWS, "FOLDED_COPIES"): [*CHAINS, PLAIN],
    (VIEWS, "LOOK_AHEAD"): [*CHAINS, PLAIN, partial(simplified, 12, many=3)],
    (VIEWS, "LOOPED_PATCHES"): [*CHAINS, PLAIN, partial(simplified, 12, many=3)],
    (VIEWS, "WALKED_KINDS"): [partial(deep, n) for n in (6, 24)],
    (VIEWS, "MANY_PIECES"): CHAINS,
    (VIEWS, "LONG_TABLE"): [partial(tables, n) for n in (100, 1000)],
    (BATCH, "PAIRS_AT_ONCE"): [
        *(partial(stripe_columns, n) for n in (50, 250)),
        partial(slice_columns, 601),
    ],
    (OPS, "TILE_CELLS"): [partial(evaluated, "gelu", (512, 4096))],
    (OPS, "TILE_NBYTES"): [partial(evaluated, "conv", (1, 32, 128, 128), (32, 32, 3, 3), pads=(1, 1, 1, 1))],
    (COPIES, "MAX_ITEM_NBYTES"): [partial(unpacked, 8, 4 << 20, slice(0, 3 << e)) for e in (17, 18, 19, 20)],
    (COPIES, "MAX_PACKED_ITEM_NBYTES"): [
        partial(packed, (1 << 24) // (3 << e), 9 << e, slice(0, 3 << e)) for e in (11, 12, 13, 14, 15, 16)
    ],
    (COPIES, "FEW_PACKED"): [partial(packed, n, 5, slice(0, 4)) for n in (4, 16, 64, 256)],
    (COPIES, "WORTH_ANOTHER_COPY"): [partial(packed, n, 5, slice(0, 4, 2)) for n in (200, 800, 3000)],
}
"""Every tuning constant that a question in one process decides, and the questions."""


ABOUT = (
    "Times with a constant at a multiple of its value, by the time at its value: below 1 is faster than what is "
    "committed. `reads` is how often one round looks at it."
)

# -------------------------------------------------------------------------------------------------------- measuring


STANDS = {
    "sets.views.FOLDED_PIECES": "a view that is folded has a strided form, which later questions read",
    "sets.integers.SHORT": "longer masks are what the tests forbid as lists",
}
"""Constants whose value stands although another is faster here, and why."""

BY_SIZE = {"SHORT"}
"""Constants that have a row for each question: their best value depends on its size."""


class Row(NamedTuple):
    """A constant: how often a round reads it, the seconds of a round, and times at `FACTORS` by that at its value."""

    name: str
    value: int
    questions: str
    reads: int
    decides: tuple[bool, bool]
    seconds: float
    ratios: tuple[float, ...]

    @property
    def verdict(self) -> str:
        if not any(self.decides):
            return "not decided by these questions"
        ends = "" if all(self.decides) else f"; {'below' if self.decides[1] else 'above'} it no call changes"
        best = min(range(len(FACTORS)), key=lambda k: self.ratios[k])
        return ("yes" if self.ratios[best] * CLOSE >= 1 else f"no: {STANDS.get(self.name, 'measure again')}") + ends


def _value(value: int, factor: float) -> int:
    return max(1, int(value * factor))


@contextmanager
def set_to(tuning: ModuleType, name: str, value: int) -> Iterator[None]:
    kept = getattr(tuning, name)
    setattr(tuning, name, value)
    try:
        yield
    finally:
        setattr(tuning, name, kept)


def _caches() -> list[Any]:
    """The memories of all functions of ours."""
    modules = [m for name, m in list(sys.modules.items()) if name.split(".")[0].startswith("tapestry_")]
    found = {id(f): f for m in modules for f in vars(m).values() if isinstance(f, _lru_cache_wrapper)}
    return list(found.values())


def ask_anew(make: Make, caches: Sequence[Any]) -> tuple[float, object]:
    """Return the seconds and the answer of questions made anew."""
    for function in caches:
        function.cache_clear()
    ask = make()
    start = time.perf_counter()
    answer = ask()
    return time.perf_counter() - start, answer


def calls_of(make: Make, caches: Sequence[Any]) -> tuple[Counter[CodeType | str], object]:
    """Return how often each function is called, those of libraries too, and the answer."""
    for function in caches:
        function.cache_clear()
    ask, found = make(), Counter[Any]()

    def watch(frame: FrameType, event: str, arg: Any) -> None:
        if event in ("call", "c_call"):
            found[frame.f_code if event == "call" else getattr(arg, "__qualname__", "")] += 1

    sys.setprofile(watch)
    try:
        return found, ask()
    finally:
        sys.setprofile(None)


def count_reads(tuning: ModuleType, name: str, make: Make, caches: Sequence[Any]) -> int:
    """Return how often questions look at a constant."""
    reads = Counter[str]()

    class Watched(ModuleType):
        def __getattribute__(self, key: str) -> Any:
            reads[key] += 1
            return super().__getattribute__(key)

    tuning.__class__ = Watched
    try:
        ask_anew(make, caches)
    finally:
        tuning.__class__ = ModuleType
    return reads[name]


def sweep(tuning: ModuleType, name: str, makes: Sequence[Make]) -> Row:
    """Measure one constant."""
    value: int = getattr(tuning, name)
    label = f"{tuning.__name__.removeprefix('tapestry_').removesuffix('.tuning')}.{name}"
    caches, asked = _caches(), ", ".join(dict.fromkeys(_name(make) for make in makes))
    reads = sum(count_reads(tuning, name, make, caches) for make in makes)
    decides, answers = [False, False], list[object]()
    for make in makes:
        usual, answer = calls_of(make, caches)
        answers.append(answer)
        for end, factor in enumerate((FACTORS[0], FACTORS[-1])):
            with set_to(tuning, name, _value(value, factor)):
                decides[end] |= calls_of(make, caches)[0] != usual
    best = {(make, factor): float("inf") for make in range(len(makes)) for factor in FACTORS}
    begin, rounds = time.perf_counter(), 0
    while rounds < 3 or (rounds < MAX_ROUNDS and time.perf_counter() - begin < SECONDS):
        for factor in FACTORS if rounds % 2 else FACTORS[::-1]:
            with set_to(tuning, name, _value(value, factor)):
                for k, make in enumerate(makes):
                    took, answer = ask_anew(make, caches)
                    assert answer == answers[k], f"{label} at {_value(value, factor)}: {asked} is answered otherwise"
                    best[k, factor] = min(best[k, factor], took)
        rounds += 1
    mean = [prod(best[k, f] / best[k, 1.0] for k in range(len(makes))) ** (1 / max(1, len(makes))) for f in FACTORS]
    total = sum(best[k, 1.0] for k in range(len(makes)))
    return Row(label, value, asked, reads, (decides[0], decides[1]), total, tuple(mean))


def _name(make: Make) -> str:
    if not isinstance(make, partial):
        return make.__name__
    return f"{make.func.__name__} {make.args[0]:,}" if make.func is count_pairs else make.func.__name__


NOT_SWEPT = {
    "sets.integers.PYTHON_INTEGERS": "of the questions here none has columns beyond int64",
    "sets.integers.LONG_BITS": "of the questions here none has columns beyond int64",
    "sets.integers.DENSE": "only lists of lazy sets look at it, which no question here makes",
    "sets.integers.SHORT_LIST": "only lists of lazy sets look at it, which no question here makes",
    "sets.integers.FEW_OPERANDS": "only sets that are met with more than a few others look at it",
    "sets.integers.FEW_BRANCHES": "of the questions here none gets to it: other ways answer them before",
    "sets.alias.MAX_TURNS": "arrays of the questions here are told apart in three turns or fewer, at 3 as at 48",
    "sets.alias.MAX_PAIRS_AT_ONCE": "it bounds the memory of a pass; sorting leaves the questions here fewer pairs",
    "sets.integers.SUM_SPAN": "past it copies are joined one by one: questions on both sides take minutes",
    "sets.alias.FEW_HELD": "it chooses which of two ways is tried first; which of them answers depends on the sets",
    "sets.alias.FEW_NUMBERS": "it is looked at for views of over 200 parts alone, which take seconds each",
    "sets.alias.FEW_JOINED": "to join 16 or more different parts takes seconds, so that both sides of it take minutes",
    "sets.alias.MANY_SETTS": "only members that are neither strided nor of few nests are asked for it",
    "sets.regions.MASK_SPAN": "it chooses which of two ways is tried first; which of them answers depends on the sets",
    "sets.regions.MANY_PRODUCTS": "no question here asks what is beside six products or more",
    "sets.views.TRIED_CYCLES": "no table of the questions here begins anew more than a few times",
    "sets.interop.MAX_TOP_CLASSES": "it shapes an expression, not how long that takes",
    "plan.ir.KEPT_CHECKS": "the size of a memory of answers, fixed on import",
    "plan.ir.KEPT_CUTS": "the size of a memory of answers, fixed on import",
    "plan.ops.TILE_COUNTERS": "chosen for caches, as TILE_CELLS",
    "plan.search.KEPT_ORDERS": "the size of a memory of answers, fixed on import",
    "plan.search.COLUMNS": "measured on whole plans: the table is in its own wing's tuning.py",
    "plan.search.FIRST_COLUMNS": "as COLUMNS, of which it is the first part",
    "plan.search.COLUMNS_AT_ONCE": "as COLUMNS, of which it is the last part",
    "plan.search.FEW_ENTRIES": "measured on whole plans: the table is in its own wing's tuning.py",
    "plan.search.BLOCK_ENTRIES": "measured on whole plans: the table is in its own wing's tuning.py",
    "plan.search.FEW_VALUES": "both ways take as long from 32 values to 64, on tables of any shape",
    "plan.search.SMALL_SHARE": "measured on whole plans: of tables of 20 axes a third of the time, of others none",
    "plan.search.MAX_PAIRS": "measured on whole plans: the table is in its own wing's tuning.py",
    "plan.search.MIN_PACKED_ENTRIES": "measured on whole plans: the table is in its own wing's tuning.py",
    "plan.search.MAX_SHARED_ENTRIES": "larger ones are rarely alike, and take memory: below, a pass takes as long",
    "plan.search.MIN_WHOLE_PARTS": "DenseNet-121 on 4 devices takes twice as long to plan with 4, for the same plan",
    "plan.search.MIN_ALONG_DEVICES": "whole plans on 16 devices take 1.7 times as long with it",
    "plan.search.MIN_BATCHED": "of fewer pairs both ways take milliseconds",
    "plan.search.MAX_CODES": "measured on whole plans: the table is in its own wing's tuning.py",
    "plan.search.CODES_A_NUMBER": "to sort 400 numbers takes 20 us, a table of 1.5 million 10 ms: half or twice is one",
    "plan.steps.DISTANCE_EXPONENTS": "more of them are better plans in more time: no speed alone",
    "plan.steps.SLACKS": "more of them are better plans in more time: no speed alone",
    "plan.steps.MAX_TOLD_PARTS": "how many names a table has room for: no speed",
    "plan.steps.TOLD_ROUNDS": "how many operators of rounds are told one by one: no speed",
    "plan.steps.SHOWN_LINKS": "how many links an empty table names: no speed",
    "plan.steps.SHOWN_ROWS": "how many rows a table shows: no speed",
    "plan.steps.TRIED_ORDERS": "how many orders of a mesh's factors an export tries: what is refused, not speed",
    "plan.steps.TOLD_SHARDS": "of how many shards a reason names a copy, which needs all steps: a choice of words",
    "plan.steps.TOLD_DEVICES": "on how many devices other shardings have their memory told: a choice of words",
    "plan.steps.TOLD_CAUSES": "how many causes of a difference are told: a choice of words",
    "plan.steps.NEAR_USES": "more of them are better plans in more time: no speed alone",
    "plan.rewrite.FEW_REGIONS": "it shapes the views that are returned, which are read later",
    "plan.rewrite.ALIGNMENT_NBYTES": "a cache line",
    "plan.rewrite.LOOKED_AT_PLACES": "few pages of a mapped file are read; which cells are looked at is no matter",
    "plan.rewrite.LOOKED_AT_NBYTES": "constants of one shape mostly differ in what is looked at, or are equal",
    "exec.copies.KEPT": "the size of a memory of answers, fixed on import",
    "exec.cuda": "all of its numbers need a GPU: tests/bench/bench_gpu.py",
    "exec.simulated": "what simulated memory holds, not how long it takes",
}
"""Tuning constants, or wings, that no question here decides, and why."""


def table(rows: Sequence[Row]) -> list[str]:
    """Return the measurements as Markdown, and what is not swept."""
    head = "".join(f" x {factor:g} |" for factor in FACTORS)
    lines = [f"| constant | value | questions | reads | a round |{head} within 10 % of the best |"]
    lines += ["|---|---|---|---|---|" + "---|" * (len(FACTORS) + 1)]
    for row in rows:
        ratios = " | ".join(f"{x:.2f}" for x in row.ratios)
        start = f"| `{row.name}` | {row.value:,} | {row.questions} | {row.reads:,} | {shown(row.seconds)} |"
        lines.append(f"{start} {ratios} | {row.verdict} |")
    return [*lines, "", "| not swept | why |", "|---|---|", *(f"| `{k}` | {why} |" for k, why in NOT_SWEPT.items())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    chosen = [key for key in SWEPT if not arguments.names or key[1] in arguments.names]
    rows = []
    for key in chosen:
        parts = [[make] for make in SWEPT[key]] if key[1] in BY_SIZE else [SWEPT[key]]
        rows += [sweep(*key, makes) for makes in parts]
        print(f"{len(rows)} of {len(chosen)}: {rows[-1].name}", file=sys.stderr)
    text = "\n".join([f"# Tuning constants, {date.today()}", "", machine(), "", ABOUT, "", *table(rows)])
    print(text)
    if arguments.write:
        RESULTS.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
