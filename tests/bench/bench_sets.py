"""Set queries against isl and NumPy, in one process: run as a script; each row is a case, with its ratio.

python tests/bench/bench_sets.py            prints the tables
python tests/bench/bench_sets.py --write    also writes them to tests/bench/results/bench_sets.md
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable
from datetime import date
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

import islpy
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tapestry_sets import (
    AffineMap,
    Box,
    IndexProjection,
    Region,
    RegionArray,
    Sett,
    Stripe,
    TooHard,
    allocate,
    concatenate,
    overlap,
    overlaps,
)
from tapestry_sets.solvers import isl

RESULTS = Path(__file__).parent / "results" / "bench_sets.md"
SIZES = (10, 11, 10**3, 10**3 + 1, 10**6, 10**6 + 1, 10**9, 10**9 + 1, 10**12, 10**12 + 1)


class Row(NamedTuple):
    """A case: our time and a peer's, in seconds for one query; `note` says what was asked."""

    case: str
    ours: float
    peer: float | None
    peer_name: str
    note: str = ""


def seconds(query: Callable[[], object], rounds: int = 25) -> float:
    """Return the seconds of one call: the best of several short rounds, so that other work disturbs few of them."""
    query()
    start = time.perf_counter()
    query()
    once = max(time.perf_counter() - start, 1e-8)
    calls = max(1, int(5e-4 / once))
    best = once
    for _ in range(rounds if once < 1e-2 else min(rounds, 3)):
        start = time.perf_counter()
        for _ in range(calls):
            query()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


# ------------------------------------------------------------------------------------------------------- cases


def coprime_stripes() -> Iterable[Row]:
    """Half-on stripes of the coprime periods 100003 and 100019."""
    s, t = Sett(Stripe(50001, 50002)), Sett(Stripe(50009, 50010))
    a, b = isl.to_isl(s), isl.to_isl(t)
    window = islpy.Set("{ [z] : 60000 <= z }")
    yield Row(
        "coprime half-on stripes, disjoint?",
        seconds(lambda: s.isdisjoint(t)),
        seconds(lambda: (a & b).is_empty()),
        "isl",
    )
    yield Row(
        "the same, first common element >= 60000",
        seconds(lambda: s.first_common(t, 60000)),
        seconds(lambda: (a & b & window).dim_min_val(0)),
        "isl",
    )
    yield Row("the same, how many below 10^12", seconds(lambda: s.count_common(t, 0, 10**12)), None, "isl: none")


def huge_coprime_periods() -> Iterable[Row]:
    """Single points of two coprime periods near 2^32, which share 0."""
    s, t = Sett(Stripe(1, 4294967290)), Sett(Stripe(1, 4294967278))
    a, b = isl.to_isl(s), isl.to_isl(t)
    assert not s.isdisjoint(t)
    yield Row(
        "points at periods 4294967291, 4294967279, disjoint?",
        seconds(lambda: s.isdisjoint(t)),
        seconds(lambda: (a & b).is_empty()),
        "isl",
    )


def random_nest(source: random.Random, depth: int, on: int = 64) -> Sett:
    """Return nested stripes from a block of `on` inwards, each of a period up to twice the block around it.

    At each level the period is 2 + r mod max(2, on), then on = 1 + r mod period, off = period - on (1 where
    that is 0) and phase = r mod period, r being drawn anew each time, until `depth` or on < 2.
    """

    def r() -> int:
        return source.getrandbits(64)

    stripes: list[Stripe] = []
    while len(stripes) < depth and on >= 2:
        period = 2 + r() % max(2, on)
        on = 1 + r() % period
        stripes.append(Stripe(on, period - on or 1, r() % period))
    return Sett(*stripes)


def random_nests() -> Iterable[Row]:
    """Disjointness and explicit intersection of random nested setts, depth 1 to 4."""
    for depth in (1, 2, 3, 4):
        source = random.Random(depth)
        setts = [random_nest(source, depth) for _ in range(200)]
        pairs = list(pairwise(setts))
        ours = [seconds(lambda s=s, t=t: s.isdisjoint(t), 1) for s, t in pairs]
        sets = [(isl.to_isl(s), isl.to_isl(t)) for s, t in pairs]
        peer = [seconds(lambda a=a, b=b: (a & b).is_empty(), 1) for a, b in sets]
        for (s, t), (a, b) in zip(pairs, sets, strict=True):
            assert s.isdisjoint(t) == (a & b).is_empty()
        note = f"mean {statistics.mean(ours) * 1e6:.1f} us against {statistics.mean(peer) * 1e6:.0f} us"
        yield Row(
            f"random nests of depth {depth}, disjoint? (median)",
            statistics.median(ours),
            statistics.median(peer),
            "isl",
            note,
        )
        met = [(s & t).setts() for s, t in pairs]
        pieces = statistics.mean(map(len, met))
        explicit = statistics.median(seconds(lambda s=s, t=t: (s & t).setts(), 1) for s, t in pairs)
        listed = statistics.median(seconds(lambda a=a, b=b: (a & b).coalesce(), 1) for a, b in sets)
        yield Row(
            f"random nests of depth {depth}, explicit intersection (median)",
            explicit,
            listed,
            "isl & + coalesce",
            f"mean {pieces:.1f} setts; isl keeps the congruences of both and lists nothing",
        )


def random_unions() -> Iterable[Row]:
    """Differences and unions of random nested setts, depth 1 to 4, against isl; its unions are coalesced."""
    for depth in (1, 2, 3, 4):
        source = random.Random(depth)
        drawn = list(pairwise(random_nest(source, depth) for _ in range(100)))
        sets = [(isl.to_isl(s), isl.to_isl(t)) for s, t in drawn]
        for name, ours, listed, peer in (
            ("a - b", lambda s, t: s - t, np.setdiff1d, lambda a, b: a.subtract(b)),
            ("a | b", lambda s, t: s | t, np.union1d, lambda a, b: (a | b).coalesce()),
        ):
            for s, t in drawn:
                wanted = listed(s.elements(0, 10**4), t.elements(0, 10**4))
                assert np.array_equal(ours(s, t).elements(0, 10**4), wanted)
            mine = [seconds(lambda s=s, t=t, ours=ours: ours(s, t), 1) for s, t in drawn]
            theirs = [seconds(lambda a=a, b=b, peer=peer: peer(a, b), 1) for a, b in sets]
            note = f"mean {statistics.mean(mine) * 1e6:.0f} us against {statistics.mean(theirs) * 1e6:.0f} us"
            case = f"random nests of depth {depth}, {name} (median)"
            yield Row(case, statistics.median(mine), statistics.median(theirs), "isl", note)


def some_slice(source: random.Random) -> slice:
    """Return a slice of an axis of 1024 with a step of 1 to 5."""
    low = source.randint(0, 900)
    return slice(low, source.randint(low + 1, 1024), source.randint(1, 5))


def slices_of_one_tensor() -> Iterable[Row]:
    """601 strided two-dimensional slices of one 1024 x 1024 tensor, all pairs."""
    source = random.Random(0)
    box = (1024, 1024)
    array = np.empty(box, np.int8)
    keys = [(some_slice(source), some_slice(source)) for _ in range(601)]
    regions = [Region.from_slices(box, key) for key in keys]
    pairs = list(combinations(range(601), 2))
    start = time.perf_counter()
    answers = [regions[i].isdisjoint(regions[j]) for i, j in pairs]
    ours = (time.perf_counter() - start) / len(pairs)
    sample = source.sample(range(len(pairs)), 2000)
    views = [array[key] for key in keys]
    start = time.perf_counter()
    expected = [not np.shares_memory(views[pairs[k][0]], views[pairs[k][1]]) for k in sample]
    peer = (time.perf_counter() - start) / len(sample)
    assert [answers[k] for k in sample] == expected
    note = f"all {len(pairs)} pairs in {ours * len(pairs):.2f} s"
    yield Row("601 strided slices of a 1024^2 tensor, a pair", ours, peer, "np.shares_memory", note)


def slices_of_one_array() -> Iterable[Row]:
    """Two strided slices of one NumPy array, which interleave."""
    array = np.empty(10**6, np.int8)
    x, y = array[0::6], array[3::9]
    s, t = Sett(Stripe(1, 5)), Sett(Stripe(1, 8, 3))
    yield Row(
        "strided slices [0::6] and [3::9], as setts",
        seconds(lambda: s.first_common(t, 0, 10**6)),
        seconds(lambda: np.shares_memory(x, y)),
        "np.shares_memory",
    )
    yield Row(
        "the same, as NumPy arrays",
        seconds(lambda: overlaps(x, y)),
        seconds(lambda: np.shares_memory(x, y)),
        "np.shares_memory",
    )


def strides_that_numpy_gives_up_on() -> Iterable[Row]:
    """Strides that make the bounded overlap of two arrays hard; NumPy stops after a million steps here."""
    memory = np.empty(1049 * (36674 + 61119 + 85569) + 64023025 + 1049 * 25000, np.int8)
    strided = np.lib.stride_tricks.as_strided
    x = strided(memory, (1049, 1049, 1049), (36674, 61119, 85569))
    y = strided(memory[64023025:], (1049, 1049), (12223, 12224))

    def numpy_gives_up() -> None:
        try:
            np.shares_memory(x, y, max_work=10**6)
        except np.exceptions.TooHardError:
            return
        raise AssertionError("NumPy decided the case within a million steps")

    assert not overlaps(x, y)
    yield Row(
        "strides 36674, 61119, 85569 against 12223, 12224",
        seconds(lambda: overlaps(x, y)),
        seconds(numpy_gives_up),
        "np.shares_memory",
        "NumPy gives up after 10^6 steps; it needs about 20 s",
    )


def strides_that_cannot_reach_a_byte() -> Iterable[Row]:
    """Five strides, 10,000 steps of each, whose sums come close to a byte and cannot reach it."""
    strides, byte = (12223, 12224, 36674, 61119, 85569), 89643481
    counts = [min(10_000, byte // step + 1) for step in strides]  # more steps go past it, and beyond NumPy's sizes
    memory = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), (10**10,), (1,))  # addresses alone are read
    x = np.lib.stride_tricks.as_strided(memory, counts, strides)
    y = memory[byte : byte + 1]

    def numpy_gives_up() -> None:
        try:
            np.shares_memory(x, y, max_work=10**6)
        except np.exceptions.TooHardError:
            return
        raise AssertionError("NumPy decided the case within a million steps")

    assert not overlaps(x, y)
    yield Row(
        "strides 12223, 12224, 36674, 61119, 85569 against one byte",
        seconds(lambda: overlaps(x, y)),
        seconds(numpy_gives_up),
        "np.shares_memory",
        "NumPy gives up after 10^6 steps; it needs more than 25 s",
    )


def half_columns_of_reshaped_rows() -> Iterable[Row]:
    """The left half of (n, n + 1), read again as (n + 1, n), against the left half there."""
    n = 1024
    base = allocate((n, n + 1))
    half = base[:, : n // 2]
    left = base.reshape((n + 1, n))[:, : n // 2]
    s, t = Sett(Stripe(n // 2, n + 1 - n // 2)), Sett(Stripe(n // 2, n // 2))
    window = islpy.Set(f"{{ [z] : 0 <= z < {n * (n + 1)} }}")
    a, b = isl.to_isl(s) & window, isl.to_isl(t) & window
    region = Region.from_bounds((n, n + 1), (0, 0), (n, n // 2))
    assert overlaps(half, left)
    yield Row(
        "half columns of (n, n + 1) against those of (n + 1, n), views overlap?",
        seconds(lambda: overlaps(half, left)),
        None,
        "none",
    )
    yield Row(
        "the same as setts, first common in the box",
        seconds(lambda: s.first_common(t, 0, n * (n + 1))),
        seconds(lambda: (a & b).is_empty()),
        "isl",
    )
    yield Row("the same, how many common", seconds(lambda: s.count_common(t, 0, n * (n + 1))), None, "isl: none")
    pieces = len(region.reshape((n + 1, n)).members)
    again = Region.from_bounds((n + 1, n), (0, 0), (n + 1, n // 2))
    yield Row(
        "a half-column slice reshaped (n, n + 1) to (n + 1, n) and counted in the half columns there",
        seconds(lambda: region.reshape((n + 1, n)).count_common(again)),
        None,
        "none",
    )
    yield Row(
        "the same reshape, listed",
        seconds(lambda: region.reshape((n + 1, n)).explicit(), 3),
        None,
        "none",
        f"{pieces} regions",
    )


def seven_half_on_stripes() -> Iterable[Row]:
    """Seven half-on stripes of coprime periods: how many common elements in 10^9 integers."""
    every = Sett() & Sett()
    for n in (7, 11, 13, 17, 19, 23, 29):
        every = every & Stripe(n // 2, n - n // 2)
    yield Row("seven half-on stripes, how many below 10^9", seconds(lambda: every.count(0, 10**9)), None, "isl: > 20 s")


def document_example() -> Iterable[Row]:
    """A[27] as 3 x 3 x 3, its block [:2, :2, :2] against A[2::5]: built and asked."""

    def ours() -> bool:
        base = allocate((27,))
        return overlaps(base.reshape((3, 3, 3))[:2, :2, :2], base[2::5])

    block = islpy.Set("{ [z] : exists i, j, k : z = 9i + 3j + k and 0 <= i, j, k < 2 }")
    strided = islpy.Set("{ [z] : exists k : z = 2 + 5k and 0 <= z < 27 }")
    assert ours()
    yield Row(
        "27-element example, built and asked",
        seconds(ours),
        seconds(lambda: (block & strided).is_empty()),
        "isl",
        "isl: the query alone",
    )


def tiled_example(sizes: Iterable[int] = (24, 24_000, 24 * 10**9)) -> Iterable[Row]:
    """2 x 2 tiles of X[n, n] against those of X[2:-2, 2:-2], at three sizes."""

    def tiled(x: object, n: int) -> object:
        quarter = x.reshape((n * n // 4, 4))[:, 0:2].reshape((4, n * n // 8))  # type: ignore[attr-defined]
        return quarter[0:2, :].reshape((n // 2, n // 2))

    for n in sizes:

        def ours(n: int = n) -> bool:
            base = allocate((n, n))
            return overlaps(tiled(base, n), tiled(base[2:-2, 2:-2], n - 4))

        yield Row(f"tiled example, N = {n:.3g}, built and asked", seconds(ours), None, "none")


def one_size(n: int) -> Iterable[Row]:
    """Queries on the same stripes and views in a window of n integers: the cost should not grow with it."""
    nested, fifths, odd = Sett(Stripe(6, 1), Stripe(2, 1)), Sett(Stripe(1, 4, 2)), Sett(Stripe(1, 13, 5))
    other = Sett(Stripe(1, 6, 6), Stripe(1, 0))
    window = (0, n)
    base, square = allocate((n,)), allocate((n, n))
    array = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), (n, 3), (3, 1))  # addresses alone are read
    thirds = base[::3], base[1::3]
    evens = base[::2], base[1::2]
    columns = square[:, ::2], square[:, 1::2]
    turned = square[::2, 1:].T, square[1:, ::2].T
    queries: tuple[tuple[str, Callable[[], object], object], ...] = (
        ("disjoint stripes, in the window", lambda: nested.isdisjoint(other, within=window), True),
        ("first common of disjoint stripes", lambda: nested.first_common(other, 0, n), None),
        ("first common", lambda: nested.first_common(fifths, 0, n), 7),
        ("first common in the last of the window", lambda: odd.first_common(fifths, n - 10, n) is not None, None),
        ("how many common", lambda: nested.count_common(fifths, 0, n), None),
        ("listed &", lambda: len((nested & fifths).setts(within=window)), None),
        ("listed & of disjoint stripes", lambda: (nested & other).setts(within=window).is_empty, True),
        ("listed -", lambda: len(nested.difference(fifths, within=window)), None),
        ("views A[::3], A[1::3] overlap?", lambda: overlaps(*thirds), False),
        ("views A[::2], A[1::2] overlap?", lambda: overlaps(*evens), False),
        ("views A[:, ::2], A[:, 1::2] of n x n overlap?", lambda: overlaps(*columns), False),
        ("views A[::2, 1:].T, A[1:, ::2].T of n x n overlap?", lambda: overlaps(*turned), True),
        ("arrays a[:, 0], a[:, 1] of n x 3 overlap?", lambda: overlaps(array[:, 0], array[:, 1]), False),
    )
    for name, query, wanted in queries:
        found = query()
        assert wanted is None or found == wanted, (name, n, found)
        yield Row(f"{n:.0e}: {name}", seconds(query, 5), None, "")


def cascade_of_reshapes() -> Iterable[Row]:
    """4 of 7 cells, then floor(p / 2) of p for p = 11 to 23, each reshaped from the last."""
    A = allocate((7 * 11 * 13 * 17 * 19 * 23 * 8,))
    view = A.reshape((-1, 7))[:, :4]
    for p in (11, 13, 17, 19, 23):
        cells = view.size // p * p
        view = view.reshape((view.size,))[:cells].reshape((-1, p))[:, : p // 2]
    held = Sett(Stripe(4, 3))
    for p in (11, 13, 17, 19, 23):
        held = held.fill(Stripe(p // 2, p - p // 2))
    part = A[5::12]
    assert overlaps(view, part)
    yield Row(
        "cascade of five reshapes, shares a cell with A[5::12]?", seconds(lambda: overlaps(view, part)), None, "none"
    )
    yield Row(
        "the same, how many", seconds(lambda: overlap(view, part).size, 3), None, "none", "poprithms: 61160 pieces"
    )
    yield Row("the cascade as a set, how many below 10^18", seconds(lambda: held.count(0, 10**18)), None, "none")


def small_views() -> Iterable[Row]:
    """A concatenation that is contiguous as a set, the differences of 4 x 4, an image with three strides."""
    a = allocate((10,))
    swapped = concatenate([a[5:10], a[0:5]])
    assert swapped.is_contiguous()
    yield Row("concatenate(a[5:10], a[0:5]) contiguous?", seconds(swapped.is_contiguous), None, "poprithms says no")
    differences = IndexProjection(AffineMap(((1, -1),), (0,)), (1,))
    image = differences.image(Box((0, 0), (4, 4)))
    assert image.size == 7 and image.bounds() == ((-3,), (4,))
    yield Row("i - j over 4 x 4", seconds(lambda: differences.image(Box((0, 0), (4, 4))).bounds()), None, "none")
    memory = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), (30, 30, 30), (36674, 61119, 85569))
    size = overlap(memory, memory).size
    assert size == len(
        np.unique(np.add.outer(np.add.outer(*(np.arange(30) * s for s in (36674, 61119))), np.arange(30) * 85569))
    )
    yield Row(
        "strides 36674, 61119, 85569 over 30^3, how many cells",
        seconds(lambda: overlap(memory, memory).size, 3),
        None,
        "isl, barvinok: > 20 s",
    )


def random_views() -> Iterable[Row]:
    """Random strided views of one tensor, ranks 2 to 6, against NumPy on the same arrays."""
    for rank in (2, 4, 6):
        source = random.Random(rank)
        shape = (1 << 12 // rank,) * rank
        array, base = np.empty(shape, np.int8), allocate(shape)
        keys = [tuple(slice(source.randrange(n // 2), None, source.randint(1, 3)) for n in shape) for _ in range(60)]
        views, arrays = [base[key] for key in keys], [array[key] for key in keys]
        pairs = list(pairwise(range(60)))
        assert [overlaps(views[i], views[j]) for i, j in pairs] == [
            np.shares_memory(arrays[i], arrays[j]) for i, j in pairs
        ]
        asked = [seconds(lambda x=views[i], y=views[j]: overlaps(x, y), 3) for i, j in pairs]
        peers = [seconds(lambda x=arrays[i], y=arrays[j]: np.shares_memory(x, y), 3) for i, j in pairs]
        ours, peer = statistics.median(asked), statistics.median(peers)
        yield Row(f"random strided views of rank {rank}, overlap?", ours, peer, "np.shares_memory")


CASES = (
    coprime_stripes,
    huge_coprime_periods,
    random_nests,
    random_unions,
    slices_of_one_array,
    slices_of_one_tensor,
    strides_that_numpy_gives_up_on,
    strides_that_cannot_reach_a_byte,
    half_columns_of_reshaped_rows,
    seven_half_on_stripes,
    document_example,
    tiled_example,
    cascade_of_reshapes,
    small_views,
    random_views,
)


# -------------------------------------------------------------------------------------------------------- aims


class Aim(NamedTuple):
    """A figure, what it is to be at most, both in `unit`; `above` if it is to be at least that."""

    case: str
    figure: float
    aim: float
    unit: str = "us"
    above: bool = False

    @property
    def is_reached(self) -> bool:
        """Whether the figure is as aimed at."""
        return self.figure >= self.aim if self.above else self.figure <= self.aim


def each_us(queries: Iterable[Callable[[], object]]) -> list[float]:
    """Return the microseconds of each query, ascending; of those that take over a millisecond, the better of two.

    A query that is refused took for ever.
    """
    out = []
    for query in queries:
        try:
            best = min(once(query), once(query))
        except TooHard:
            out.append(math.inf)
            continue
        out.append(best * 1e6 if best > 1e-3 else seconds(query, 5) * 1e6)
    return sorted(out)


def once(query: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    query()
    return time.perf_counter() - start


def two_stripes() -> Iterable[Aim]:
    """200 pairs of random stripes: periods to 10^5, 10^6 and 10^12, blocks of all lengths."""
    for e in (5, 6, 12):
        source = random.Random(e)

        def some(source: random.Random = source, e: int = e) -> Sett:
            period = source.randint(10**e // 2, 10**e)
            on = max(1, int(period ** source.random()))
            return Sett(Stripe(on, period - on, source.randrange(period)))

        drawn = [(some(), some()) for _ in range(200)]
        stop = drawn[0][0].period ** 2  # many blocks, less than a common period for the most part
        if e != 6:
            found = each_us(lambda s=s, t=t: s.isdisjoint(t) for s, t in drawn)
            yield Aim(f"two stripes, periods to 10^{e}: isdisjoint, median", statistics.median(found), 1)
            found = each_us(lambda s=s, t=t: s.first_common(t, 0) for s, t in drawn)
            aim = 5 if e == 5 else 15
            yield Aim(f"two stripes, periods to 10^{e}: first_common, median", statistics.median(found), aim)
            yield Aim(f"two stripes, periods to 10^{e}: first_common, slowest", found[-1], aim)
        if e != 5:
            found = each_us(lambda s=s, t=t, n=stop: s.count_common(t, 0, n) for s, t in drawn)
            aim = 30 if e == 6 else 100
            yield Aim(f"two stripes, periods to 10^{e}: count_common in a range, median", statistics.median(found), aim)


def nested_pairs() -> Iterable[Aim]:
    """Random nests: decisions, first common elements, counts below 10^15."""
    for on, exponent in ((64, ""), (10**6, "10^6"), (10**12, "10^12")):
        for depth in (1, 2, 3, 4):
            source = random.Random(depth)
            setts = [random_nest(source, depth, on) for _ in range(200)]
            drawn = list(pairwise(setts))
            name = f"nests of depth {depth}" + (f" from on = {exponent}" if exponent else "")
            found = each_us(lambda s=s, t=t: s.isdisjoint(t) for s, t in drawn)
            yield Aim(f"{name}: isdisjoint, median", statistics.median(found), 1)
            yield Aim(f"{name}: isdisjoint, 9 in 10 below", found[len(found) * 9 // 10], 10)
            yield Aim(f"{name}: isdisjoint, slowest", found[-1], 10_000)
            if depth == 3 and on == 64:
                sets = [(isl.to_isl(s), isl.to_isl(t)) for s, t in drawn]
                peer = each_us(lambda a=a, b=b: a.is_disjoint(b) for a, b in sets)
                ratio = statistics.median(peer) / statistics.median(found)
                yield Aim(f"{name}: isdisjoint, times as fast as isl's is_disjoint, medians", ratio, 100, "x", True)
            if on == 64:
                found = each_us(lambda s=s, t=t: s.first_common(t, 0) for s, t in drawn)
                yield Aim(f"{name}: first_common, median", statistics.median(found), 8)
            found = each_us(lambda s=s, t=t: s.count_common(t, 0, 10**15) for s, t in drawn)
            refused = f", {found.count(math.inf)} of {len(found)} refused" if math.inf in found else ""
            yield Aim(f"{name}: count_common to 10^15, median{refused}", statistics.median(found), 8)


def costs_by_depth() -> Iterable[Aim]:
    """Random nests of growing depth and periods: made, decided and searched."""
    for depth in (1, 2, 4, 8):
        for exponent in (3, 6, 9, 12):
            source = random.Random(depth)
            drawn = list(pairwise(random_nest(source, depth, 10**exponent) for _ in range(41)))
            case = f"nests of depth {depth} from on = 10^{exponent}"
            for name, ask in (
                ("a & b made", lambda s, t: s & t),
                ("isdisjoint", lambda s, t: s.isdisjoint(t)),
                ("first_common", lambda s, t: s.first_common(t, 0)),
            ):
                found = each_us(lambda s=s, t=t, ask=ask: ask(s, t) for s, t in drawn)
                yield Aim(f"{case}: {name}, median", statistics.median(found), 1 if "made" in name else 2 + 4 * depth)


def counts_of_nests() -> Iterable[Aim]:
    """Random nests of long periods: counts in windows that no common period fits; how quickly a refusal comes."""
    windows = (
        ("to 10^15", lambda common: (0, 10**15)),
        ("in 2/5 of a common period", lambda common: (7, common * 2 // 5)),
    )
    for exponent in (6, 9, 12):
        for depth in (2, 3, 4, 6, 8):
            source = random.Random(depth)
            drawn = list(pairwise(random_nest(source, depth, 10**exponent) for _ in range(41)))
            for name, window in windows:
                asked = [(s, t, window(math.lcm(s.period, t.period))) for s, t in drawn]
                found = each_us(lambda s=s, t=t, w=w: s.count_common(t, *w) for s, t, w in asked)
                case = f"nests of depth {depth} from on = 10^{exponent}, count_common {name}"
                answered = [time for time in found if time < math.inf]
                yield Aim(f"{case}: median", statistics.median(found), 1_000 if depth <= 4 else 10_000)
                yield Aim(f"{case}: slowest that is answered", answered[-1] / 1e3, 1_000, "ms")
                yield Aim(f"{case}: refused", len(found) - len(answered), 0, f"of {len(found)}")
                slowest = max(
                    map(seconds_of_refusal, (lambda s=s, t=t, w=w: s.count_common(t, *w) for s, t, w in asked))
                )
                if slowest:
                    yield Aim(f"{case}: slowest refusal", slowest * 1e3, 10, "ms")


def counts_of_short_periods_inside() -> Iterable[Aim]:
    """Counts of nests whose long blocks hold nests of periods below 10^3, in windows that no common period fits."""
    for exponent in (6, 9):
        for depth in (2, 3, 4):
            source, setts = random.Random(depth), []
            for _ in range(41):
                period = source.randint(10**exponent // 2, 10**exponent)
                on = source.randint(period // 2, period - 1)
                outer = Stripe(on, period - on, source.randrange(period))
                setts.append(Sett(outer, *random_nest(source, depth - 1, 500).stripes))
            stop = 10 ** (2 * exponent)
            found = each_us(lambda s=s, t=t, n=stop: s.count_common(t, 0, n) for s, t in pairwise(setts))
            case = f"blocks to 10^{exponent}, periods inside below 10^3, depth {depth}: count_common to {power(stop)}"
            yield Aim(f"{case}, median", statistics.median(found) / 1e3, 10, "ms")
            yield Aim(f"{case}: refused", found.count(math.inf), 0, f"of {len(found)}")


def seconds_of_refusal(query: Callable[[], object]) -> float:
    """Return the seconds that a refusal takes, the better of two; 0 where there is an answer."""

    def refused() -> bool:
        try:
            query()
        except TooHard:
            return True
        return False

    return min(once(refused), once(refused)) if refused() else 0.0


def listed_pairs() -> Iterable[Aim]:
    """The explicit intersection of the same nests."""
    for depth, aim, most in ((1, 15, 9), (2, 30, 8.3), (3, 30, 6.3), (4, 22, 2.6)):
        source = random.Random(depth)
        drawn = list(pairwise(random_nest(source, depth) for _ in range(200)))
        found = each_us(lambda s=s, t=t: (s & t).setts() for s, t in drawn)
        yield Aim(f"nests of depth {depth}: (a & b).setts(), median", statistics.median(found), aim)
        pieces = statistics.mean(len((s & t).setts()) for s, t in drawn)
        yield Aim(f"nests of depth {depth}: (a & b).setts(), mean setts", pieces, most, "setts")


def unions_and_differences() -> Iterable[Aim]:
    """The explicit difference, union and symmetric difference of the same nests, and how many setts they are."""
    # how many setts: of a - b those of poprithms, of a | b half as many again as a search for the fewest found
    aims = ((1, 20, 25, 14, 7.8), (2, 40, 50, 24.6, 11.5), (3, 50, 60, 36.2, 9.4), (4, 60, 60, 35.1, 6.5))
    for depth, minus, either, few, most in aims:
        source = random.Random(depth)
        drawn = list(pairwise(random_nest(source, depth) for _ in range(200)))
        found = each_us(lambda s=s, t=t: s - t for s, t in drawn)
        yield Aim(f"nests of depth {depth}: a - b, median", statistics.median(found), minus)
        yield Aim(f"nests of depth {depth}: a - b, mean", statistics.mean(found), 200)
        pieces = statistics.mean(len(s - t) for s, t in drawn)
        yield Aim(f"nests of depth {depth}: a - b, mean setts", pieces, few, "setts")
        found = each_us(lambda s=s, t=t: s | t for s, t in drawn)
        yield Aim(f"nests of depth {depth}: a | b, median", statistics.median(found), either)
        pieces = statistics.mean(len(s | t) for s, t in drawn)
        yield Aim(f"nests of depth {depth}: a | b, mean setts", pieces, most, "setts")
        if depth == 1:
            found = each_us(lambda s=s, t=t: s ^ t for s, t in drawn)
            yield Aim(f"nests of depth {depth}: a ^ b, median", statistics.median(found), minus + either)


def examples_and_batches() -> Iterable[Aim]:
    """The documents' examples, slices of one tensor all at once, seven stripes, memory, import."""
    yield Aim("27-element example, built and asked", next(iter(document_example())).ours * 1e6, 12)
    tiled = [row.ours * 1e6 for row in tiled_example()]
    yield Aim("tiled example, N = 24 to 2.4e10, built and asked, slowest", max(tiled), 30)
    yield Aim("tiled example, largest over smallest N", max(tiled) / min(tiled), 1.2, "x")
    yield Aim("601 strided slices, all pairs", all_pairs_of_slices() * 1e3, 10, "ms")
    yield Aim("seven coprime stripes, exact count over 10^9", next(iter(seven_half_on_stripes())).ours * 1e3, 1, "ms")
    yield Aim("memory of a query of the table by size, most of all sizes", memory_of_queries() / 1e6, 1, "MB")
    yield Aim("memory of a count of nests of depth 2 from on = 10^6, most of 40", memory_of_counts() / 1e6, 1, "MB")
    yield Aim("import of tapestry_sets beyond NumPy's", import_seconds() * 1e3, 60, "ms")


def all_pairs_of_slices() -> float:
    """Return the seconds to decide all pairs of 601 strided slices of one 1024 x 1024 tensor."""
    source = random.Random(0)
    regions = [Region.from_slices((1024, 1024), (some_slice(source), some_slice(source))) for _ in range(601)]
    columns = RegionArray.of(regions)
    meet = columns.overlap_matrix()
    for i, j in source.sample(list(combinations(range(601), 2)), 500):
        assert bool(meet[i, j]) != regions[i].isdisjoint(regions[j])
    return seconds(columns.overlap_matrix)


def memory_of_queries() -> float:
    """Return the most bytes that a query of the table by size holds at once, at any size."""
    most = 0
    for n in (10**3, 10**12):
        nested, fifths = Sett(Stripe(6, 1), Stripe(2, 1)), Sett(Stripe(1, 4, 2))
        A = allocate((n, n))
        queries = (
            lambda s=nested, t=fifths, n=n: (s.isdisjoint(t), s.first_common(t, 0), s.count_common(t, 0, n)),
            lambda s=nested, t=fifths, n=n: (s & t).setts(within=(0, n)),
            lambda A=A: overlaps(A[:, ::2].reshape(-1), A.T[1::3]),
        )
        for query in queries:
            query()
            tracemalloc.start()
            query()
            most = max(most, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    return most


def memory_of_counts() -> int:
    """Return the most bytes that a count of two nests of long periods holds: blocks are listed as arrays."""
    source, most = random.Random(2), 0
    for s, t in pairwise(random_nest(source, 2, 10**6) for _ in range(41)):
        tracemalloc.start()
        each_us([lambda s=s, t=t: s.count_common(t, 0, 10**15)])
        most = max(most, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return most


def import_seconds() -> float:
    """Return the seconds that ``import tapestry_sets`` takes where NumPy is imported and the bytecode is cached."""
    timed = "import time, numpy; t = time.perf_counter(); import tapestry_sets; print(time.perf_counter() - t)"
    root = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as cache:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command = [sys.executable, "-c", timed]
        environment = {**kept, "PYTHONPYCACHEPREFIX": cache}
        return min(float(subprocess.check_output(command, cwd=root, env=environment)) for _ in range(10))


AIMS = (
    two_stripes,
    nested_pairs,
    costs_by_depth,
    counts_of_nests,
    counts_of_short_periods_inside,
    listed_pairs,
    unions_and_differences,
    examples_and_batches,
)


QUOTED = {
    **{
        f"nests of depth {depth}: {case}, median": f"{peer} {time:g} us"
        for peer, case, times in (
            ("poprithms", "(a & b).setts()", (3.9, 8.9, 7.7, 5.1)),
            ("poprithms", "a - b", (5, 12, 15, 23)),
            ("isl, with coalesce,", "a | b", (5, 14, 30, 32)),
        )
        for depth, time in enumerate(times, 1)
    },
    "27-element example": "poprithms 17.5 us; NumPy, a real array, 1 us",
    "tiled example, N =": "poprithms 43 us",
    "601 strided slices, all pairs": "poprithms 514 ms",
    "two NumPy arrays, [": "np.shares_memory 0.3 us",
    "two NumPy arrays, columns": "np.shares_memory 0.5 us",
    "two NumPy arrays, x": "np.shares_memory 0.5 us",
}
"""Peers' times for cases that begin so: not of this run, but measured before on the same kind of machine."""
QUOTED_HEAD = "quoted, same kind of machine"


def quote(case: str) -> str:
    """Return the time of a peer that is quoted for a case, if any."""
    return next((time for begins, time in QUOTED.items() if case.startswith(begins)), "")


def aim_table() -> list[str]:
    """Return the aims as Markdown."""
    lines = [f"| case | figure | aim | reached | {QUOTED_HEAD} |", "|---|---|---|---|---|"]
    for group in AIMS:
        for aim in group():
            sign = ">=" if aim.above else "<="
            figure = f"{aim.figure:.3g}" if aim.figure < 1000 else f"{aim.figure:.0f}"
            lines.append(
                f"| {aim.case} | {figure} {aim.unit} | {sign} {aim.aim:g} {aim.unit} | "
                f"{'yes' if aim.is_reached else '**no**'} | {quote(aim.case)} |"
            )
    return lines


# ------------------------------------------------------------------------------------------------------ tables


def machine() -> str:
    """Return the processor and the Python version."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{names[0].split(':')[1].strip()}, {len(names)} cores, Python {platform.python_version()}"


def shown(value: float) -> str:
    """Return seconds in a unit that suits them."""
    return f"{value * 1e6:.2f} us" if value < 1e-3 else f"{value * 1e3:.2f} ms"


def peer_table(rows: Iterable[Row]) -> list[str]:
    """Return the rows as Markdown, with the peer's time as a multiple of ours."""
    lines = ["| case | ours | peer | peer / ours | |", "|---|---|---|---|---|"]
    for row in rows:
        peer = f"{shown(row.peer)} ({row.peer_name})" if row.peer is not None else row.peer_name
        times = row.peer / row.ours if row.peer is not None else 0.0
        ratio = "" if row.peer is None else f"{times:.1f}" if times >= 1 else f"{times:.3f}"
        lines.append(f"| {row.case} | {shown(row.ours)} | {peer} | {ratio} | {row.note} |")
    return lines


def size_table() -> list[str]:
    """Return the cost of each query in windows of each size as Markdown; the last column is largest over smallest."""
    columns = [list(one_size(n)) for n in SIZES]
    lines = ["| query | " + " | ".join(map(power, SIZES)) + " | largest / smallest |"]
    lines.append("|---" * (len(SIZES) + 2) + "|")
    for rows in zip(*columns, strict=True):
        name = rows[0].case.split(": ", 1)[1]
        costs = [row.ours for row in rows]
        lines.append(f"| {name} | {' | '.join(map(shown, costs))} | {max(costs) / min(costs):.1f} |")
    return lines


def power(n: int) -> str:
    """Return 10^k or 10^k + 1 as text."""
    even = n - n % 2
    return f"10^{len(str(even)) - 1}{' + 1' if n % 2 else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"also write the tables to {RESULTS.name}")
    write = parser.parse_args().write
    rows = [row for case in CASES for row in case()]
    head = [f"# Set queries, {date.today().isoformat()}", "", machine(), ""]
    aims = ["Against the aims; medians of 200 pairs where not said otherwise:", "", *aim_table(), ""]
    peers = ["Against peers:", "", *peer_table(rows), ""]
    text = "\n".join([*head, *aims, *peers, "Cost by size:", "", *size_table(), ""])
    print(text)
    if write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
