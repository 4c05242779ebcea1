"""Batches against one pair at a time and against NumPy: run as a script; each row is a case, with its ratio.

python tests/bench/bench_batch.py            prints the table
python tests/bench/bench_batch.py --write    also writes it to tests/bench/results/bench_batch.md
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from itertools import combinations
from pathlib import Path

import numpy as np
from bench_sets import Row, machine, peer_table, seconds

from tapestry_sets import Region, Stripe
from tapestry_sets.batch.batches import BoxArray, StripeArray
from tapestry_sets.batch.region_arrays import RegionArray
from tapestry_sets.integers.stripe import stripes_count_common, stripes_disjoint, stripes_first_common

RESULTS = Path(__file__).parent / "results" / "bench_batch.md"
ITEMS = 601
SAMPLE = 2000


def one_by_one(
    query: Callable[[int, int], object], answer: Callable[[int, int], object], pairs: Sequence[tuple[int, int]]
) -> float:
    """Return the seconds that all pairs of `ITEMS` take one by one, from a sample whose answers must be the same."""
    start = time.perf_counter()
    expected = [query(i, j) for i, j in pairs]
    each = (time.perf_counter() - start) / len(pairs)
    for (i, j), wanted in zip(pairs, expected, strict=True):
        assert answer(i, j) == wanted, (i, j, answer(i, j), wanted)
    return each * ITEMS * (ITEMS - 1) / 2


def slices_of_one_tensor() -> Iterable[Row]:
    """601 strided two-dimensional slices of one 1024 x 1024 tensor, all pairs."""
    source = random.Random(0)
    box = (1024, 1024)
    array = np.empty(box, np.int8)

    def some() -> slice:
        low = source.randint(0, 900)
        return slice(low, source.randint(low + 1, 1024), source.randint(1, 5))

    keys = [(some(), some()) for _ in range(ITEMS)]
    regions, views = [Region.from_slices(box, key) for key in keys], [array[key] for key in keys]
    pairs = source.sample(list(combinations(range(ITEMS), 2)), SAMPLE)
    batch = RegionArray.of(regions)
    rows = batch[:, None]
    matrix, counts, firsts = batch.overlap_matrix(), rows.count_common(batch), rows.first_common(batch)

    def first(i: int, j: int) -> tuple[int, ...] | None:
        return tuple(firsts.value[i, j].tolist()) if firsts.found[i, j] else None

    name = f"{ITEMS} strided slices of a 1024^2 tensor"
    yield Row(f"{name}: columns from regions", seconds(lambda: RegionArray.of(regions)), None, "")
    shared = one_by_one(lambda i, j: np.shares_memory(views[i], views[j]), lambda i, j: bool(matrix[i, j]), pairs)
    yield Row(f"{name}: all pairs, overlap?", seconds(batch.overlap_matrix), shared, "np.shares_memory")
    single = one_by_one(lambda i, j: not regions[i].isdisjoint(regions[j]), lambda i, j: bool(matrix[i, j]), pairs)
    yield Row("the same", seconds(batch.overlap_matrix), single, "Region.isdisjoint")
    yield Row("the same, as a list of pairs", seconds(batch.overlapping_pairs), single, "Region.isdisjoint")
    twice = "each pair in both orders"
    single = one_by_one(lambda i, j: regions[i].count_common(regions[j]), lambda i, j: int(counts[i, j]), pairs)
    yield Row(
        "the same, how many common", seconds(lambda: rows.count_common(batch)), single, "Region.count_common", twice
    )
    single = one_by_one(lambda i, j: regions[i].first_common(regions[j]), first, pairs)
    yield Row("the same, first common", seconds(lambda: rows.first_common(batch)), single, "Region.first_common", twice)


def stripes(longest: int) -> Iterable[Row]:
    """601 stripes of periods up to a length, all pairs."""
    source = random.Random(1)
    items = [Stripe(source.randint(1, n), source.randint(0, n), source.randint(0, n)) for n in [longest // 2] * ITEMS]
    levels = [(s.on, s.period, s.phase) for s in items]
    pairs = source.sample(list(combinations(range(ITEMS), 2)), SAMPLE)
    batch = StripeArray.of(items)
    rows, stop = batch[:, None], 10**9
    meet, first, counts = batch.overlap_matrix(), rows.first_common(batch, 5), rows.count_common(batch, 0, stop)
    name = f"{ITEMS} stripes of periods to {longest:.0e}, all pairs"
    single = one_by_one(lambda i, j: not stripes_disjoint(levels[i], levels[j]), lambda i, j: bool(meet[i, j]), pairs)
    yield Row(f"{name}: overlap?", seconds(batch.overlap_matrix), single, "one by one")
    single = one_by_one(
        lambda i, j: stripes_first_common(levels[i], levels[j], 5),
        lambda i, j: int(first.value[i, j]) if first.found[i, j] else None,
        pairs,
    )
    yield Row("the same, first common", seconds(lambda: rows.first_common(batch, 5), 3), single, "one by one")
    single = one_by_one(
        lambda i, j: stripes_count_common(levels[i], levels[j], 0, stop), lambda i, j: int(counts[i, j]), pairs
    )
    yield Row(
        "the same, how many common below 10^9",
        seconds(lambda: rows.count_common(batch, 0, stop), 3),
        single,
        "one by one",
    )


def boxes() -> Iterable[Row]:
    """601 boxes of rank 3, all pairs."""
    source = np.random.default_rng(2)
    batch = BoxArray(source.integers(0, 900, (ITEMS, 3)), source.integers(0, 300, (ITEMS, 3)))
    items = list(batch)
    matrix = batch.overlap_matrix()

    def meet(i: int, j: int) -> bool:
        ends = zip(items[i].start, items[i].stop, items[j].start, items[j].stop, strict=True)
        return all(max(a, c) < min(b, d) for a, b, c, d in ends)

    pairs = random.Random(3).sample(list(combinations(range(ITEMS), 2)), SAMPLE)
    single = one_by_one(meet, lambda i, j: bool(matrix[i, j]), pairs)
    yield Row(f"{ITEMS} boxes of rank 3, all pairs: overlap?", seconds(batch.overlap_matrix), single, "one by one")


CASES = (slices_of_one_tensor, lambda: stripes(1000), lambda: stripes(10**9), boxes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"also write the table to {RESULTS.name}")
    write = parser.parse_args().write
    rows = [row for case in CASES for row in case()]
    note = f"Times are for all {ITEMS * (ITEMS - 1) // 2} pairs; peers' are from a sample of {SAMPLE}."
    head = [f"# Batch queries, {date.today().isoformat()}", "", machine(), "", note, ""]
    text = "\n".join([*head, *peer_table(rows), ""])
    print(text)
    if write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
