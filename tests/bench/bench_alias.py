"""Views and alias analysis against isl, NumPy and a loop over pairs: run as a script; each row has its ratio.

python tests/bench/bench_alias.py            prints the tables
python tests/bench/bench_alias.py --write    also writes them to tests/bench/results/bench_alias.md
"""

from __future__ import annotations

import argparse
import importlib
import random
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from functools import reduce
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from bench_sets import QUOTED_HEAD, SIZES, Row, machine, peer_table, power, quote, seconds, shown
from bench_sets import RESULTS as SETS_RESULTS

import tapestry_sets
from tapestry_sets import (
    CuteLayout,
    TooHard,
    View,
    allocate,
    concatenate,
    contains,
    covers,
    has_internal_overlap,
    interleave,
    internal_overlap,
    is_contiguous,
    overlap,
    overlap_matrix,
    overlap_sizes,
    overlaps,
    pad,
    repeat,
    roll,
    tally,
    tile,
)
from tapestry_sets.alias.ladder.by_isl import isl_numbers
from tapestry_sets.solvers import isl

RESULTS = SETS_RESULTS.with_name("bench_alias.md")
VIEWS = 1000
SAMPLE = 2000
"""How many pairs a peer is asked about; its time for all pairs follows."""
ISL_SAMPLE = 100


# ------------------------------------------------------------------------------------------------- a chain of ten


def ten_views(n: int) -> tuple[View, View]:
    """Return the allocation, and a chain of ten views of it."""
    base = allocate((n, 24, 6))
    view: View = base[1:]
    view = view.permute_dims((1, 0, 2))
    view = view.flip(0)
    view = view[::2]
    view = view.reshape(6, 2, n - 1, 6)
    view = view.expand_dims(0)
    view = view.broadcast_to((3, 6, 2, n - 1, 6))
    view = view[1]
    view = view[:, 0]
    return base, view.permute_dims((1, 0, 2))


def the_same_by_numpy(memory: np.ndarray, n: int) -> bool:
    """The same chain and question by NumPy; `memory` is n x 24 x 6 addresses."""
    view = memory[1:].transpose(1, 0, 2)[::-1][::2]
    view = view.reshape(6, 2, n - 1, 6)[None]
    view = np.broadcast_to(view, (3, 6, 2, n - 1, 6))[1][:, 0].transpose(1, 0, 2)
    return bool(np.shares_memory(view, memory[:, 3::5]))


def chain_of_ten() -> Iterable[Row]:
    """Ten views built one on another, and the overlap with a slice of the allocation, at every size."""

    def ours(n: int) -> bool:
        base, view = ten_views(n)
        return overlaps(view, base[:, 3::5])

    for n in SIZES:
        peer = None
        if n <= 10**6 + 1:
            memory = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), (n, 24, 6), (144, 6, 1))
            assert the_same_by_numpy(memory, n) == ours(n)
            peer = seconds(lambda n=n, memory=memory: the_same_by_numpy(memory, n))
        name = "NumPy and np.shares_memory" if peer else "none"
        yield Row(f"chain of 10 views, n = {power(n)}: built and asked", seconds(lambda n=n: ours(n)), peer, name)


def other_chains() -> Iterable[Row]:
    """Chains whose views do not stride over their allocation: a reshape across rows, a concatenation, a pad, a roll."""

    def ours(n: int) -> bool:
        base = allocate((n, n + 1))
        view = base[:, : n // 2].reshape(n // 2, n)[:, : n // 3].T[1:]
        parts = [view[5:], view[:5]]
        return overlaps(roll(pad(concatenate(parts), 1, "edge"), 3, 1)[2:, ::2], base[:, 1::3])

    for n in (24, 24 * 10**6):
        yield Row(
            f"11 kinds with a pad, a roll and halves swapped, n = {n}", seconds(lambda n=n: ours(n)), None, "none"
        )


# -------------------------------------------------------------------------------------------------- all pairs


def some_slice(rng: random.Random, n: int) -> slice:
    """Return a slice that is not empty, of either direction, with a step of 1 to 5."""
    if rng.random() < 0.25:
        return slice(None)
    low, high = sorted((rng.randrange(n), rng.randrange(n)))
    step = rng.choice([1, 1, 1, 2, 2, 3, 4, 5])
    if rng.random() < 0.7:
        return slice(low, high + 1, step)
    return slice(high, low - 1 if low else None, -step)


def along_axes(rng: random.Random, view: View, array: Any) -> tuple[View, Any]:
    """Return one to three slices, positions, permutations and flips of a view, and of an array."""
    for _ in range(rng.randint(1, 3)):
        word, rank = rng.choice(["slice", "slice", "int", "permute", "flip"]), view.rank
        axis = rng.randrange(rank)
        if word == "slice" or (word == "int" and rank < 2):
            key: Any = tuple(some_slice(rng, n) for n in view.shape)
        elif word == "int":
            key = (*(slice(None),) * axis, rng.randrange(view.shape[axis]))
        elif word == "permute":
            order = rng.sample(range(rank), rank)
            view, array = view.permute_dims(order), array.transpose(order)
            continue
        else:
            view, array = view.flip(axis), np.flip(array, axis)
            continue
        view, array = view[key], array[key]
    return view, array


def factors(rng: random.Random, n: int) -> tuple[int, ...]:
    """Return a shape of a size."""
    shape = []
    for _ in range(rng.randint(0, 3)):
        divisors = [d for d in range(2, min(n, 5000) + 1) if n % d == 0]
        if divisors:
            shape.append(rng.choice(divisors))
            n //= shape[-1]
    shape += [n] if n > 1 or not shape else []
    rng.shuffle(shape)
    return tuple(shape)


def with_reshapes(rng: random.Random, view: View, most: int = 4) -> View:
    """Return one to four slices, reshapes to any factors and permutations of a view."""
    for _ in range(rng.randint(1, most)):
        word = rng.choice(["slice", "slice", "reshape", "reshape", "permute"])
        if word == "slice":
            view = view[tuple(some_slice(rng, n) for n in view.shape)]
        elif word == "permute":
            view = view.permute_dims(rng.sample(range(view.rank), view.rank))
        else:
            view = view.reshape(factors(rng, view.size))
    return view


def all_pairs(n: int) -> int:
    """Return the number of pairs of n views, each with itself among them."""
    return n * (n + 1) // 2


def from_sample(query: Callable[[int, int], object], expected: Any, pairs: Sequence[tuple[int, int]]) -> float:
    """Return the seconds that a peer takes for all pairs, from a sample in which it must agree."""
    start = time.perf_counter()
    found = [query(i, j) for i, j in pairs]
    took = time.perf_counter() - start
    assert found == [bool(expected[i, j]) for i, j in pairs]
    return took / len(pairs) * all_pairs(len(expected))


def by_isl(views: Sequence[View], base: View) -> Callable[[int, int], bool]:
    """Return the question of a pair, asked of isl's sets of cells; these are made before."""
    sets = [isl_numbers(view.cells[base]) for view in views]
    return lambda i, j: not sets[i].is_disjoint(sets[j])


def pairs_along_axes() -> Iterable[Row]:
    """1,000 views of one tensor by slices, positions, permutations and flips: which share a cell, and how many."""
    for shape in ((64, 48, 40), (1024, 1024)):
        rng = random.Random(1)
        base, array = allocate(shape), np.empty(shape, np.int8)
        drawn = [along_axes(rng, base, array) for _ in range(VIEWS)]
        views, arrays = [view for view, _ in drawn], [x for _, x in drawn]
        matrix = overlap_matrix(views)
        pairs = rng.sample(list(combinations(range(VIEWS), 2)), SAMPLE)
        case = f"{VIEWS} views of {shape} along its axes, all {all_pairs(VIEWS)} pairs"
        ours = seconds(lambda views=views: overlap_matrix(views), 5)
        loop = from_sample(lambda i, j, v=views: overlaps(v[i], v[j]), matrix, pairs)
        peer = from_sample(lambda i, j, a=arrays: np.shares_memory(a[i], a[j]), matrix, pairs)
        yield Row(
            case, ours, peer, "np.shares_memory, pair by pair", decided(lambda views=views: overlap_matrix(views))
        )
        yield Row(f"{case}, against a loop", ours, loop, "overlaps(), pair by pair")
        ask = by_isl(views[:ISL_SAMPLE], base)
        few = [(i, j) for i, j in combinations(range(ISL_SAMPLE), 2)][:: ISL_SAMPLE // 10]
        islpy = from_sample(ask, matrix[:ISL_SAMPLE, :ISL_SAMPLE], few) / all_pairs(ISL_SAMPLE) * all_pairs(VIEWS)
        yield Row(f"{case}, against isl", ours, islpy, "isl, pair by pair")
        sizes = seconds(lambda views=views: overlap_sizes(views), 5)
        yield Row(f"the same: how many cells each pair shares, {shape}", sizes, None, "none")


def by_loop(make: Callable[[], Sequence[View]], expected: Any, pairs: Sequence[tuple[int, int]]) -> float:
    """Return the seconds of a loop over all pairs of new views: their cells are found once, as for a matrix."""
    views = make()
    start = time.perf_counter()
    for view in views:
        _ = view.cells
    own = time.perf_counter() - start
    return own + from_sample(lambda i, j: overlaps(views[i], views[j]), expected, pairs)


def pairs_with_reshapes() -> Iterable[Row]:
    """1,000 views of one tensor by slices, reshapes and permutations."""
    for shape in ((64, 48, 40), (1024, 1025), (128, 768, 64), (32, 128, 28, 28), (10**4, 3 * 10**4, 7 * 10**3)):
        base = allocate(shape)
        n = VIEWS if prod(shape) < 10**9 else 200

        def drawn(base: View = base, n: int = n) -> list[View]:
            rng = random.Random(1)
            return [with_reshapes(rng, base) for _ in range(n)]

        views, rng = drawn(), random.Random(2)
        start = time.perf_counter()
        matrix = overlap_matrix(views)
        ours = time.perf_counter() - start
        case = f"{n} views of {shape} with reshapes, all {all_pairs(n)} pairs"
        pairs = list(combinations(range(n), 2))
        loop = by_loop(drawn, matrix, pairs if n < VIEWS else rng.sample(pairs, SAMPLE))
        again = [with_reshapes(random.Random(k), base) for k in range(n)]
        yield Row(case, ours, loop, "overlaps(), pair by pair", decided(lambda again=again: overlap_matrix(again)))
        few = rng.sample(list(combinations(range(n), 2)), ISL_SAMPLE // 4)
        islpy = from_sample(lambda i, j, v=views, b=base: by_isl((v[i], v[j]), b)(0, 1), matrix, few)
        yield Row(f"{case}, against isl", ours, islpy, "isl, pair by pair, its sets made anew")
        if shape in ((64, 48, 40), (1024, 1025)):
            start = time.perf_counter()
            overlap_sizes(views)
            yield Row(f"the same: how many cells each pair shares, {shape}", time.perf_counter() - start, None, "none")


def decided(ask: Callable[[], object]) -> str:
    """Return how the questions of a call are decided."""
    with tally() as kept:
        ask()
    total = max(1, kept.total)
    return f"isl {100 * kept.isl / total:.3g} %, listed {100 * kept.listed / total:.3g} % of {kept.total}"


# ------------------------------------------------------------------------------------------------- real arrays


def padded_convolutions() -> Iterable[Row]:
    """The halo of two tiles of a padded image, of the image itself and of its windows: built, decided and counted."""
    n, half = 64, 32

    def tiles(mode: str, windows: bool) -> tuple[View, View]:
        padded: View = pad(allocate((n, n)), 1, mode)
        if windows:
            rows = padded.sliding_windows((3, 3))
            return rows[:half], rows[half:]
        return padded[: half + 2], padded[half:]

    for windows, what in ((False, "tiles"), (True, "windows")):
        for mode in ("constant", "edge", "wrap", "reflect"):
            pads = {"constant_values": -1} if mode == "constant" else {}
            values = np.pad(np.arange(n * n).reshape(n, n), 1, mode, **pads)
            if windows:
                values = np.lib.stride_tricks.sliding_window_view(values, (3, 3))
            one, two = (values[:half], values[half:]) if windows else (values[: half + 2], values[half:])
            both = np.intersect1d(one, two)
            assert overlap(*tiles(mode, windows)).size == len(both[both >= 0])
            peer = seconds(lambda one=one, two=two: np.intersect1d(one, two))
            case = f"halo of two tiles of a padded image, by {what}, {mode}"
            yield Row(
                f"{case}: decided",
                seconds(lambda mode=mode, w=windows: overlaps(*tiles(mode, w))),
                peer,
                "np.intersect1d of the cells' numbers",
            )
            yield Row(
                f"{case}: counted",
                seconds(lambda mode=mode, w=windows: overlap(*tiles(mode, w)).size),
                peer,
                "np.intersect1d of the cells' numbers",
            )


def paged_caches() -> Iterable[Row]:
    """Two sequences of a paged cache: pages in random order, views built anew, against NumPy on the tables."""
    for n in (1_000, 10_000):
        order = np.random.default_rng(n).permutation(4 * n)
        cache = allocate((4 * n, 16, 8, 64), dtype="float16")
        one, two = order[:n], np.concatenate([order[n : 2 * n - 1], order[:1]])
        for name, table in (("apart", order[n : 2 * n]), ("one page shared", two)):
            peer = seconds(lambda one=one, table=table: np.intersect1d(one, table))
            assert overlaps(cache.take(one, axis=0), cache.take(table, axis=0)) == (table is two)
            yield Row(
                f"paged cache, {n} pages each, {name}: decided",
                seconds(lambda c=cache, x=one, y=table: overlaps(c.take(x, axis=0), c.take(y, axis=0))),
                peer,
                "np.intersect1d of the tables",
            )
            yield Row(
                f"paged cache, {n} pages each, {name}: counted",
                seconds(lambda c=cache, x=one, y=table: overlap(c.take(x, axis=0), c.take(y, axis=0)).size),
                peer,
                "np.intersect1d of the tables",
            )
            yield Row(
                f"paged cache, {n} pages each, the last ones cut, {name}: decided",
                seconds(lambda c=cache, x=one, y=table, m=16 * n - 5: overlaps(c.paged(x, length=m), c.paged(y))),
                peer,
                "np.intersect1d of the tables",
            )
            yield Row(
                f"paged cache, {n} pages each, the last ones cut, {name}: counted",
                seconds(lambda c=cache, x=one, y=table, m=16 * n - 5: overlap(c.paged(x, length=m), c.paged(y)).size),
                peer,
                "np.intersect1d of the tables",
            )


def sizes_of_overlaps() -> Iterable[Row]:
    """What the number costs beside the answer, of views of one piece, built anew: at most three times is wanted."""
    pairs = {
        "[::3] and [1::2] of 1024": lambda: (lambda a: (a[::3], a[1::2]))(allocate((1024,))),
        "the 27-element example": lambda: (lambda a: (a.reshape(3, 3, 3)[:2, :2, :2], a[2::5]))(allocate((27,))),
        "[::3, 5:] and [1::2, ::7] of 1024 x 1024": lambda: (lambda a: (a[::3, 5:], a[1::2, ::7]))(
            allocate((1024, 1024))
        ),
        "two blocks of rows": lambda: (lambda a: (a[:700], a[600:]))(allocate((1024, 1024))),
        "transposed, rank 3": lambda: (lambda a: (a.permute_dims((2, 0, 1))[1:], a[::2, 1:]))(allocate((64, 48, 40))),
    }
    for name, views in pairs.items():
        yield Row(
            f"built and counted, beside built and decided: {name}",
            seconds(lambda views=views: overlap(*views()).size),
            seconds(lambda views=views: overlaps(*views())),
            "overlaps",
        )


def words_for_layouts() -> Iterable[Row]:
    """Triangles, swizzles, reinterpreted memory, covers, CuTe's layouts, and all pairs of ten thousand views."""
    for n in (16, 2_048, 9_999, 10**9):
        yield Row(
            f"triangle of {n} x {n}: how many cells every second row shares with it",
            seconds(lambda n=n: (lambda a: overlap(a.tril(), a[::2]).size)(allocate((n, n)))),
            None,
            "none",
        )
    for rows in (64, 2**40):
        yield Row(
            f"swizzled tiles, {rows} rows of 64: do two blocks share a bank?",
            seconds(
                lambda rows=rows: (lambda s: overlaps(s[: rows // 2, :8], s[rows // 2 :, 8:16]))(
                    allocate((rows, 64)).swizzle(3, 3, 3)
                )
            ),
            None,
            "none",
        )
    page = allocate((1 << 20,), dtype="uint8")
    yield Row(
        "one page under two dtypes: how many bytes both read",
        seconds(lambda: overlap(page[:4096].view_as("float32")[::2], page[1024:].view_as("int64")[::3]).size),
        None,
        "none",
    )
    plane = allocate((256, 256))
    tiles = tiles_of(plane, 16)
    yield Row("do 256 tiles cover their view?", seconds(lambda: covers(tiles, plane)), None, "none")
    yield Row(
        "CuTe: (4, 8):(8, 1) composed with (2, 4):(4, 1)",
        seconds(lambda: CuteLayout((4, 8), (8, 1)).compose(CuteLayout((2, 4), (4, 1)))),
        None,
        "none",
    )
    rng, base = random.Random(0), allocate((1 << 20,))
    ends = [(rng.randrange(1 << 19), rng.randrange(1 << 19, 1 << 20), rng.randrange(1, 99)) for _ in range(10_000)]
    many = [base[start:stop:step] for start, stop, step in ends]
    yield Row("10000 slices, all pairs", seconds(lambda: overlap_matrix(many), 1), None, "none")


def tiles_of(view: View, side: int) -> list[View]:
    """The tiles of a view of two axes."""
    rows, columns = view.shape
    return [view[i : i + side, j : j + side] for i in range(0, rows, side) for j in range(0, columns, side)]


def two_arrays() -> Iterable[Row]:
    """Two NumPy arrays of one buffer: slices that interleave, blocks, columns, transposes."""
    x = np.zeros((600, 400), np.float32)
    flat = np.zeros(10**6, np.int8)
    pairs = {
        "[0::6] and [3::9] of 10^6 bytes": (flat[0::6], flat[3::9]),
        "[0::6] and [2::9] of 10^6 bytes": (flat[0::6], flat[2::9]),
        "columns [:, 0::3] and [:, 1::3] of 600 x 400": (x[:, 0::3], x[:, 1::3]),
        "x[::2, 5:].T and x[1::3, ::-7] of 600 x 400": (x[::2, 5:].T, x[1::3, ::-7]),
        "two arrays of their own": (np.zeros(100), np.zeros(100)),
    }
    for name, (a, b) in pairs.items():
        assert overlaps(a, b) == np.shares_memory(a, b)
        ours = seconds(lambda a=a, b=b: overlaps(a, b))
        peer = seconds(lambda a=a, b=b: np.shares_memory(a, b))
        yield Row(f"two NumPy arrays, {name}", ours, peer, "np.shares_memory")


def gives_up(a: np.ndarray, b: np.ndarray) -> None:
    """Let NumPy try a million steps."""
    try:
        np.shares_memory(a, b, max_work=10**6)
    except np.exceptions.TooHardError:
        return
    raise AssertionError("NumPy decided the case within a million steps")


def hard_arrays() -> Iterable[Row]:
    """The two cases that take np.shares_memory 20 seconds and more."""
    strided = np.lib.stride_tricks.as_strided
    memory = strided(np.empty(1, np.int8), (10**10,), (1,))  # addresses alone are read
    x = strided(memory, (1049, 1049, 1049), (36674, 61119, 85569))
    y = strided(memory[64023025:], (1049, 1049), (12223, 12224))
    steps, byte = (12223, 12224, 36674, 61119, 85569), 89643481
    z = strided(memory, [min(10_000, byte // step + 1) for step in steps], steps)
    note = "NumPy gives up after 10^6 steps; it needs about 20 s"
    for name, a, b in (
        ("strides 36674, 61119, 85569 against 12223, 12224", x, y),
        ("five strides against a byte that they cannot reach", z, memory[byte : byte + 1]),
    ):
        assert not overlaps(a, b)
        ours, peer = seconds(lambda a=a, b=b: overlaps(a, b)), seconds(lambda a=a, b=b: gives_up(a, b))
        yield Row(name, ours, peer, "np.shares_memory", note)


def prime_strides() -> Iterable[Row]:
    """How many bytes two arrays of 20^4 elements with prime strides share: sums all different, and some equal."""
    strided = np.lib.stride_tricks.as_strided
    memory = strided(np.empty(1, np.int8), (10**9,), (1,))
    for name, steps, others in (
        ("all different", (100003, 10007, 1009, 101), (99991, 9973, 997, 97)),
        ("some equal", (40009, 30011, 20011, 10007), (40013, 30013, 20021, 10009)),
    ):
        x, y = strided(memory, (20,) * 4, steps), strided(memory[55:], (20,) * 4, others)
        one, two = (reduce(np.add.outer, [np.arange(20) * step for step in each]) for each in (steps, others))
        peer = seconds(lambda one=one, two=two: np.intersect1d(one, two + 55))
        assert overlap(x, y).size == len(np.intersect1d(one, two + 55))
        ours = seconds(lambda x=x, y=y: overlap(x, y).size)
        yield Row(f"two arrays of 20^4 elements, prime strides, sums {name}: counted", ours, peer, "np.intersect1d")


def parameters() -> Iterable[Row]:
    """10,000 parameter tensors, some tied, some slices of one buffer, grouped by the memory that they share."""
    if not hasattr(tapestry_sets, "shared_memory"):
        return
    shared_memory = tapestry_sets.shared_memory
    rng = random.Random(3)
    tensors: dict[str, np.ndarray] = {}
    while len(tensors) < 10_000:
        block = np.empty((rng.choice([64, 128]), rng.choice([16, 64])), np.float32)
        for k, x in enumerate(
            rng.sample([block, block.T, block[:8], block[8:], block[:, ::2]], rng.choice([1, 1, 1, 3]))
        ):
            tensors[f"layer{len(tensors)}.{k}"] = x
    groups = shared_memory(tensors)
    names = list(tensors)
    sample = [rng.sample(names, 2) for _ in range(SAMPLE)]
    start = time.perf_counter()
    for a, b in sample:
        np.shares_memory(tensors[a], tensors[b])
    peer = (time.perf_counter() - start) / SAMPLE * len(names) * (len(names) - 1) / 2
    assert all(np.shares_memory(tensors[a], tensors[b]) for group in groups[:50] for a, b in group.pairs)
    ours = seconds(lambda: shared_memory(tensors), 3)
    yield Row(
        f"{len(names)} tensors in {len(groups)} groups that share memory", ours, peer, "np.shares_memory, all pairs"
    )


# -------------------------------------------------------------------------------------------- one view, and others


def one_view() -> Iterable[Row]:
    """Self-overlap of strides that other tools call too hard, order, what is missing, witnesses."""
    steps = (36674, 61119, 85569, 12223, 12224)
    memory = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), (10**10,), (1,))
    x = np.lib.stride_tricks.as_strided(memory, (50, 60, 70, 80, 90), steps)
    y = np.lib.stride_tricks.as_strided(memory, (9, 10, 9, 10, 2), (10, 99, 1010, 10_101, 10_000_000))
    assert has_internal_overlap(x) and internal_overlap(y) is None
    yield Row(
        "as_strided of rank 5, read twice? with the two indices", seconds(lambda: internal_overlap(x)), None, "none"
    )
    yield Row("as_strided of rank 5, no byte read twice", seconds(lambda: internal_overlap(y)), None, "none")
    base = allocate((10**9, 10**9 + 1))
    view = base[:, ::3].reshape(-1, 10)[:, 2:7]
    yield Row("is_contiguous, as a set", seconds(view.is_contiguous), None, "none")
    yield Row('is_contiguous, order "C"', seconds(lambda: is_contiguous(view, "C")), None, "none")
    other = base[5::7, 1:]
    assert not contains(other, view) and overlaps(other, view)
    yield Row("contains", seconds(lambda: contains(other, view)), None, "none")
    yield Row("missing: a cell and its index", seconds(lambda: tapestry_sets.covers([other], view).gap), None, "none")
    yield Row("overlap: the witness", seconds(lambda: overlap(other, view).witness), None, "none")
    yield Row("overlap: how many cells", seconds(lambda: overlap(other, view).size), None, "none")


def random_chain(rng: random.Random, view: View, length: int) -> View:
    """Return a chain of random kinds, of up to 20 million cells."""
    for _ in range(length):
        if 0 in view.shape or view.rank > 6:
            break
        axis = rng.randrange(view.rank) if view.rank else 0
        n = view.shape[axis] if view.rank else 1
        before: tuple[slice, ...] = (slice(None),) * axis
        cut = rng.randint(0, n)
        word = rng.choice(["slice"] * 3 + ["reshape"] * 2 + (list(AXIS_WORDS) if view.rank else []))
        if word == "slice":
            more = view[tuple(some_slice(rng, m) for m in view.shape)]
        elif word == "reshape":
            more = view.reshape(factors(rng, view.size))
        else:
            more = AXIS_WORDS[word](rng, view, axis, before, cut)
        view = more if more.size <= 2 * 10**7 else view
    return view


AXIS_WORDS: dict[str, Callable[[random.Random, View, int, tuple[slice, ...], int], View]] = {
    "permute": lambda rng, v, axis, before, cut: v.permute_dims(rng.sample(range(v.rank), v.rank)),
    "flip": lambda rng, v, axis, before, cut: v.flip(axis),
    "newaxis": lambda rng, v, axis, before, cut: v.expand_dims(axis),
    "broadcast": lambda rng, v, axis, before, cut: v.broadcast_to((2, *v.shape)),
    "roll": lambda rng, v, axis, before, cut: roll(v, cut, axis),
    "repeat": lambda rng, v, axis, before, cut: repeat(v, rng.randint(1, 3), axis),
    "tile": lambda rng, v, axis, before, cut: tile(v, (2,) * (v.rank - axis)),
    "pad": lambda rng, v, axis, before, cut: pad(
        v, [(int(a == axis), 2 * int(a == axis)) for a in range(v.rank)], rng.choice(["constant", "edge", "wrap"])
    ),
    "windows": lambda rng, v, axis, before, cut: v.sliding_windows(min(3, v.shape[axis]), rng.randint(1, 3), axis=axis),
    "concat": lambda rng, v, axis, before, cut: concatenate(
        [v[(*before, slice(cut, None))], v[(*before, slice(cut))]], axis
    ),
    "deal": lambda rng, v, axis, before, cut: interleave([v[(*before, slice(k, None, 2))] for k in (0, 1)], axis),
}


def random_chains() -> Iterable[Row]:
    """Chains of up to 12 kinds over small and large tensors: who decides, and how long a question takes."""
    for shape, length, many in (((8, 6, 7), 12, 150), ((1024, 625, 77), 8, 60)):
        rng = random.Random(2)
        base = allocate(shape)
        drawn = [[random_chain(rng, base, rng.randint(1, length)) for _ in range(2)] for _ in range(many)]
        refused = 0
        start = time.perf_counter()
        with tally() as kept:
            for a, b in drawn:
                for ask in QUESTIONS:
                    try:
                        ask(a, b)
                    except TooHard:
                        refused += 1
        each = (time.perf_counter() - start) / (many * len(QUESTIONS))
        by = f"of {kept.total}: isl {kept.isl}, listed {kept.listed}, refused {refused}"
        yield Row(f"up to {length} random kinds over {shape}, a question, views built", each, None, "none", by)


QUESTIONS: tuple[Callable[[View, View], object], ...] = (
    overlaps,
    contains,
    lambda a, b: overlap(a, b).size,
    lambda a, b: overlap(a, b).witness,
    lambda a, b: has_internal_overlap(a),
    lambda a, b: is_contiguous(a),
    lambda a, b: is_contiguous(a, "C"),
)


def ragged_batches() -> Iterable[Row]:
    """All pairs of the sequences of a ragged batch, views built anew, against NumPy on the offsets."""
    lengths = np.random.default_rng(0).integers(1, 2048, 1000)
    tokens = allocate((int(lengths.sum()), 16, 64), dtype="float16")

    def compared() -> np.ndarray:
        stops = np.cumsum(lengths)
        return (stops - lengths)[:, None] < stops

    yield Row(
        "ragged batch, 1000 sequences: all pairs",
        seconds(lambda: overlap_matrix(tokens.ragged(lengths))),
        seconds(compared),
        "NumPy on the offsets",
    )


# ------------------------------------------------------------------------------------------------------- tables

CASES = (
    chain_of_ten,
    other_chains,
    pairs_along_axes,
    pairs_with_reshapes,
    padded_convolutions,
    paged_caches,
    ragged_batches,
    sizes_of_overlaps,
    words_for_layouts,
    two_arrays,
    hard_arrays,
    prime_strides,
    parameters,
    one_view,
    random_chains,
)
AIMS = (
    ("chain of 10 views", 80e-6),
    (f"{VIEWS} views of (64, 48, 40) along its axes", 0.1),
    (f"{VIEWS} views of (1024, 1024) along its axes", 0.1),
    (f"{VIEWS} views of", 10.0),
    ("two NumPy arrays, [", 5e-6),
    ("two NumPy arrays", 7e-6),
    ("10000 slices, all pairs", 2.0),
    ("triangle of", 1e-3),
    ("swizzled tiles", 10e-3),
    ("halo of two tiles of a padded image, by tiles", 0.1e-3),
    ("halo of two tiles of a padded image, by windows", 0.2e-3),
    ("paged cache, 1000 pages", 0.5e-3),
    ("paged cache, 10000 pages", 5e-3),
    ("ragged batch", 50e-3),
    ("strides 36674", 1e-3),
    ("five strides", 1e-3),
    ("two arrays of 20^4", 100e-3),
    ("10000 tensors", 0.5),
)
"""What a case that begins so is to take at most, in seconds; the first that fits counts."""


def aim_table(rows: Iterable[Row]) -> list[str]:
    """Return the rows that have an aim as Markdown."""
    lines = [f"| case | ours | aim | reached | {QUOTED_HEAD} |", "|---|---|---|---|---|"]
    for row in rows:
        aim = next((aim for begins, aim in AIMS if row.case.startswith(begins)), None)
        if aim is not None and ", against " not in row.case:
            reached = "yes" if row.ours <= aim else "**no**"
            lines.append(f"| {row.case} | {shown(row.ours)} | <= {shown(aim)} | {reached} | {quote(row.case)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"also write the tables to {RESULTS.name}")
    parser.add_argument("--only", metavar="CASE", help="run one case, by its function's name")
    given = parser.parse_args()
    cases = [case for case in CASES if given.only in (None, case.__name__)]
    rows = [row for case in cases for row in case()]
    versions = f"NumPy {np.__version__}, islpy {importlib.import_module('islpy').version.VERSION_TEXT}"
    head = [f"# Views and alias analysis, {date.today().isoformat()}", "", f"{machine()}, {versions}", ""]
    flat = [row.ours for row in rows if row.case.startswith("chain of 10")]
    spread = (
        [f"The slowest chain of 10 takes {max(flat) / min(flat):.2f} times as long as the fastest.", ""] if flat else []
    )
    text = "\n".join([*head, *aim_table(rows), "", *spread, "Against peers:", "", *peer_table(rows), ""])
    print(text)
    if given.write:
        Path(RESULTS).write_text(text)


if __name__ == "__main__":
    assert isl.available(), "the peers need islpy"
    main()
