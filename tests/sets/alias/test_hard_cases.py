"""The hard cases, one after the other: each answer is right, each within seconds, at any size.

Other tools take long, run out of memory or answer wrongly on each of these. The right answers come from proofs
in integers or from NumPy's enumeration. Where ``size`` is 10⁹ every integer has become a block of so many; then
isl is taken away, and so is whatever lists integers.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import reduce
from math import prod
from operator import and_
from typing import Any

import numpy as np
import pytest

from tapestry_sets import (
    AffineMap,
    Allocation,
    Box,
    IndexProjection,
    Intersection,
    Sett,
    Stripe,
    View,
    allocate,
    concatenate,
    has_internal_overlap,
    is_contiguous,
    overlap,
    overlap_matrix,
    overlaps,
    same_elements,
)
from tests.machine_pace import slower
from tests.sets.integers.test_differential import nothing_listed_and_no_isl

BIG = 10**9
SIZES = [1, BIG]
SECONDS = 3.0
"""Generous on a slow machine with other work: most answers take microseconds."""


@contextmanager
def answered(size: int = 1, seconds: float = SECONDS) -> Iterator[None]:
    """Interrupt what takes long (of the processor's time), and at large sizes leave only closed forms to answer."""
    seconds *= slower()
    timer = getattr(signal, "ITIMER_VIRTUAL", None)  # not on every platform
    with nothing_listed_and_no_isl() if size > 1 else nullcontext():
        began = time.process_time()
        if timer is not None:
            before = signal.signal(signal.SIGVTALRM, interrupt)
            signal.setitimer(timer, seconds)
        try:
            yield
        finally:
            if timer is not None:
                signal.setitimer(timer, 0)
                signal.signal(signal.SIGVTALRM, before)
        took = time.process_time() - began
    assert took < seconds, f"took {took:.1f} s, more than {seconds:.1f} s"


def interrupt(number: int, frame: Any) -> None:
    raise TimeoutError("no answer in time")


def half(period: int, size: int = 1) -> Sett:
    """Return [0, period // 2) modulo period, every integer a block of `size`."""
    on = period // 2
    return Sett(Stripe(on * size, (period - on) * size))


# ----------------------------------------------------------------------------------- stripes of coprime periods

P, Q = 100003, 100019


@pytest.mark.parametrize("size", SIZES)
def test_half_on_stripes_of_coprime_periods_are_compared(size: int) -> None:
    z = np.arange(60_000, 3 * 10**6)
    first = int(z[(z % P < P // 2) & (z % Q < Q // 2)][0])
    z = np.arange(10**6, 4 * 10**6)
    some = int(((z % P < P // 2) & (z % Q < Q // 2)).sum())
    with answered(size):
        s, t = half(P, size), half(Q, size)
        assert not s.isdisjoint(t)
        assert not (s & t).is_empty
        assert not s <= t
        assert s.first_common(t, 60_000 * size) == first * size
        assert s.count_common(t) == (P // 2) * (Q // 2) * size  # by the Chinese remainder theorem
        assert s.count_common(t, 10**6 * size, 4 * 10**6 * size) == some * size
        assert (s & t).count(0, 10**6 * P * Q * size) == 10**6 * (P // 2) * (Q // 2) * size
        assert s.isdisjoint(t, within=(51_000 * size, 99_000 * size))  # between the first blocks of both


@pytest.mark.parametrize("size", SIZES)
def test_single_integers_of_huge_prime_periods_share_zero(size: int) -> None:
    p, q = 4294967291, 4294967279
    with answered(size):
        s, t = Sett(Stripe(size, (p - 1) * size)), Sett(Stripe(size, (q - 1) * size))
        assert not s.isdisjoint(t)
        assert s.first_common(t, 0) == 0
        assert s.first_common(t, size) == p * q * size  # the next, as both are prime
        assert s.first_common(t, size, p * q * size) is None
        assert s.count_common(t) == size
        assert s.count_common(t, -p * q * size, p * q * size + 1) == 2 * size + 1
        assert s.isdisjoint(t, within=(size, p * q * size))


PERIODS = (7, 11, 13, 17, 19, 23, 29)


def sevenfold(size: int = 1) -> Intersection:
    return reduce(and_, (half(n, size) for n in PERIODS), Sett() & Sett())


def listed_sevenfold(lo: int, hi: int) -> int:
    """Count in [lo, hi) block by block; each period leaves fewer to look at."""
    total = 0
    for start in range(lo, hi, 10**7):
        z = np.arange(start, min(start + 10**7, hi), dtype=np.int32)
        for n in PERIODS:
            z = z[z % n < n // 2]
        total += len(z)
    return total


def test_common_elements_of_seven_half_on_stripes_are_counted_as_listed(request: pytest.FixtureRequest) -> None:
    end = 10**9 if request.config.getoption("--all") else 10**7
    with answered():
        count = sevenfold().count(0, end)
    assert count == listed_sevenfold(0, end)
    with answered():
        assert sevenfold().count(0, 10**9) == 4627341  # as listed above with --all
        assert sevenfold().count() == prod(n // 2 for n in PERIODS)


def test_common_elements_of_seven_half_on_stripes_are_counted_at_any_size() -> None:
    with answered(BIG):
        every = sevenfold(BIG)
        assert every.first(0) == 0
        assert not every.is_empty


def test_common_elements_of_seven_wide_stripes_are_counted() -> None:
    with answered(BIG):
        every = sevenfold(BIG)
        assert every.count() == BIG * prod(n // 2 for n in PERIODS)
        assert every.count(0, 10**9 * BIG) == BIG * 4627341


# ----------------------------------------------------------------------------------------- views of one memory

MODULI = [(7, 4), *((p, p // 2) for p in (11, 13, 17, 19, 23))]
CASCADE = prod(p for p, _ in MODULI)


def cascade(size: int) -> tuple[Allocation, View]:
    """Return 4 of 7 rows, then p // 2 of p for five primes, each a reshape of the last."""
    A = view = allocate((CASCADE, size))
    for p, on in MODULI:
        view = view.reshape(-1, p, size)[:, :on].reshape(-1, size)
    return A, view


@pytest.mark.parametrize("size", [1, 7, BIG])
def test_a_cascade_of_reshaped_slices_is_compared(size: int) -> None:
    rows = np.arange(CASCADE)
    for p, on in MODULI:
        rows = rows.reshape(-1, p)[:, :on].ravel()
    with answered(size):
        A, view = cascade(size)
        assert view.shape == (len(rows), size)
        assert overlap(view, A).size == len(rows) * size
        assert overlaps(view, A[3::11]) == bool((rows % 11 == 3).any())
        assert not overlaps(view, A[6::7])
        assert not is_contiguous(view)
        assert not has_internal_overlap(view)
        assert view.contains(view[::3])
        assert not view[::3].contains(view)
        assert not view.contains(A[3::11])
        both = overlap(view, A[3::11]).witness
        assert both is not None and both.cell[0] in set(rows.tolist()) & set(range(3, CASCADE, 11))
        assert rows[both.a[0]] == both.cell[0] == 3 + 11 * both.b[0]
        assert same_elements(view, view[::-1].T)
    row = random.Random(7).choice(rows.tolist())
    gap = next(z for z in range(row, CASCADE) if z not in set(rows[rows < row + 100].tolist()))
    with answered(size):
        assert overlaps(view, A[row : row + 1])
        assert not overlaps(view, A[gap : gap + 1])
        assert overlap(view, A[row:gap]).size == int(((row <= rows) & (rows < gap)).sum()) * size
        assert overlap(view, A[row:gap]).regions[A].size == int(((row <= rows) & (rows < gap)).sum()) * size


@pytest.mark.parametrize("size", [1, 7, BIG])
def test_a_cascade_is_counted_against_a_stride(size: int) -> None:
    rows = np.arange(CASCADE)
    for p, on in MODULI:
        rows = rows.reshape(-1, p)[:, :on].ravel()
    with answered(size):
        A, view = cascade(size)
        assert overlap(view, A[3::11]).size == int((rows % 11 == 3).sum()) * size
        assert overlap(view[1::4], view[::3]).size == len(range(9, len(rows), 12)) * size
    if size == 1:  # a stride that is coprime to all lengths: cell by cell, which is forbidden at large sizes
        assert overlap(view, A[5::12]).size == int((rows % 12 == 5).sum())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n", [4, 64, 1024])
def test_a_half_column_slice_reshaped_between_coprime_extents(n: int, size: int) -> None:
    cells = np.arange(n * (n + 1))
    ours, theirs = cells.reshape(n, n + 1)[:, : n // 2], cells.reshape(n + 1, n)[:, : n // 2]
    both = len(np.intersect1d(ours, theirs))
    with answered(size):
        A = allocate((n * (n + 1), size))
        half_columns = A.reshape(n, n + 1, size)[:, : n // 2]
        reshaped = A.reshape(n + 1, n, size)[:, : n // 2]
        assert overlap(half_columns, reshaped).size == both * size
        assert same_elements(half_columns, A.reshape(n + 1, n, size).reshape(n, n + 1, size)[:, : n // 2])
        assert not overlaps(half_columns, A.reshape(n, n + 1, size)[:, n // 2 :])
        assert len(half_columns.cells[A].explicit().members) == 1


@pytest.mark.parametrize("size", SIZES)
def test_two_halves_in_the_wrong_order_are_contiguous_as_a_set(size: int) -> None:
    with answered(size):
        a = allocate((10 * size,))
        swapped = concatenate([a[5 * size :], a[: 5 * size]])
        assert is_contiguous(swapped)
        assert swapped.is_contiguous()
        assert same_elements(swapped, a)
        assert not is_contiguous(concatenate([a[6 * size :], a[: 5 * size]]))
        assert not has_internal_overlap(swapped)
        assert has_internal_overlap(concatenate([a[5 * size :], a[: 5 * size + 1]]))


# ------------------------------------------------------------------------------------------ bounded strides


class Strided:
    """An array interface without memory behind it."""

    def __init__(self, address: int, counts: Sequence[int], strides: Sequence[int]) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": tuple(counts),
            "strides": tuple(strides),
            "typestr": "|u1",
        }


def test_strides_that_miss_each_other_are_disjoint() -> None:
    """36674 i + 61119 j + 85569 k is never 64023025 + 12223 l + 12224 m where all are in [0, 1049).

    With U = 3i + 5j + 7k and V = 5i + 4j + 8k the one side is 12223 U + V, the other 12223 (5237 + l + m) +
    11174 + m. As 11174 <= 11174 + m < 12223 and V < 11174 + 12223, the sides are equal only where V = 11174 + m
    and U = 5237 + l + m <= 5237 + 2·1048. NumPy lists the largest V of such U: it is smaller.
    """
    assert [divmod(s, 12223) for s in (36674, 61119, 85569, 64023025)] == [(3, 5), (5, 4), (7, 8), (5237, 11174)]
    assert 11174 + 1048 < 12223
    assert (5 + 4 + 8) * 1048 < 11174 + 12223
    i, k = np.ogrid[:1049, :1049]
    j = np.minimum(1048, (5237 + 2 * 1048 - 3 * i - 7 * k) // 5)
    assert int(np.where(j >= 0, 5 * i + 4 * j + 8 * k, 0).max()) < 11174
    with answered(seconds=10):
        a = Strided(0, (1049,) * 3, (36674, 61119, 85569))
        b = Strided(64023025, (1049,) * 2, (12223, 12224))
        assert not overlaps(a, b)
        reached = 36674 * 700 + 61119 * 300 + 85569 * 240
        assert overlaps(a, Strided(reached - 12223 * 500, (1049,) * 2, (12223, 12224)))


def test_a_byte_that_no_strides_reach_is_not_reached() -> None:
    """All strides are 12223 u + v with 3v <= 5u; a sum that is 89643481 would have 3v > 5u."""
    strides, byte = (12223, 12224, 36674, 61119, 85569), 89643481
    assert all(3 * v <= 5 * u for u, v in (divmod(s, 12223) for s in strides))
    u, v = divmod(byte, 12223)  # any other way to write it has fewer u and more v
    assert 3 * v > 5 * u
    with answered(seconds=10):
        a = Strided(0, (10_000,) * 5, strides)
        assert not overlaps(a, Strided(byte, (1,), (1,)))
        assert overlaps(a, Strided(byte - 12222 + 10, (1,), (1,))) == (5 * u >= 3 * 10)


@pytest.mark.parametrize(
    ("steps", "others"),
    [
        ((100003, 10007, 1009, 101), (99991, 9973, 997, 97)),  # all sums differ
        ((40009, 30011, 20011, 10007), (40013, 30013, 20021, 10009)),  # some are equal
        ((101, 103, 107, 109), (113, 127, 131, 137)),
    ],
)
def test_common_bytes_of_prime_strides_are_counted(steps: tuple[int, ...], others: tuple[int, ...]) -> None:
    A = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), (10**8,), (1,))  # addresses alone are read
    x = np.lib.stride_tricks.as_strided(A, (14,) * 4, steps)
    y = np.lib.stride_tricks.as_strided(A[55:], (14,) * 4, others)
    one, two = (reduce(np.add.outer, [np.arange(14) * step for step in each]) for each in (steps, others))
    with answered():
        assert overlap(x, y).size == len(np.intersect1d(one, two + 55))
        assert overlap(x, x).size == len(np.unique(one))


def test_the_image_of_interleaving_strides_is_counted() -> None:
    strides = (36674, 61119, 85569)
    i, j, k = np.ogrid[:30, :30, :30]
    sums = np.unique(strides[0] * i + strides[1] * j + strides[2] * k)
    with answered():
        image = IndexProjection(AffineMap((strides,), (0,)), (1,)).image(Box.of((30, 30, 30)))
        assert image.size == len(sums)
        assert (int(sums[1000]),) in image
        assert (int(sums[1000]) + 1,) not in image
        assert has_internal_overlap(Strided(0, (30,) * 3, strides)) == (len(sums) < 30**3)


@pytest.mark.parametrize("size", SIZES)
def test_differences_of_two_indices_reach_below_zero(size: int) -> None:
    n = 4 * size
    with answered(size):
        p = IndexProjection(AffineMap(((1, -1),), (0,)), (1,))
        assert p.bounding_box(Box.of((n, n))) == Box((1 - n,), (2 * n - 1,))
        image = p.image(Box.of((n, n)))
        assert image.size == 2 * n - 1
        assert [(z,) in image for z in (-n, 1 - n, 0, n - 1, n)] == [False, True, True, True, False]
    assert {i - j for i in range(4) for j in range(4)} == set(range(-3, 4))


# ------------------------------------------------------------------------------------- random pairs of views


def random_view(rng: random.Random, A: View, array: np.ndarray[Any, Any], size: int) -> tuple[View, Any]:
    """Slice, flip, reshape and permute a view whose last axis is a block of `size` where NumPy has one cell."""
    for _ in range(rng.randint(1, 3)):
        rank, what = array.ndim, rng.choice(["slice", "slice", "permute", "flip", "reshape"])
        if what == "permute":
            order = rng.sample(range(rank), rank)
            A, array = A.permute_dims((*order, rank)), array.transpose(order)
        elif what == "flip":
            axis = rng.randrange(rank)
            A, array = A.flip(axis), np.flip(array, axis)
        elif what == "reshape":
            at = rng.randrange(rank - 1)
            joined = (*array.shape[:at], array.shape[at] * array.shape[at + 1], *array.shape[at + 2 :])
            A, array = A.reshape(*joined, size), array.reshape(joined)
            if array.ndim < 2:
                break
        else:
            key = tuple(
                slice(rng.randrange(max(1, n // 2)), rng.randint(n // 2 + 1, n + 1), rng.choice([1, 1, 2, 3]))
                for n in array.shape
            )
            A, array = A[key], array[key]
    return A, array


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rank", [2, 3, 4, 5, 6])
def test_random_pairs_of_views_are_compared_as_numpy_lists_them(
    rank: int, size: int, request: pytest.FixtureRequest
) -> None:
    for case in range(600 if request.config.getoption("--all") else 30):
        rng = random.Random(f"views {rank} {case}")
        shape = tuple(rng.randint(2, max(3, 14 - 2 * rank)) for _ in range(rank))
        base = np.arange(prod(shape)).reshape(shape)
        A = allocate((*shape, size))
        (one, x), (two, y) = (random_view(rng, A, base, size) for _ in range(2))
        both = len(np.intersect1d(x, y))
        with answered(size):
            assert overlaps(one, two) == bool(both), f"views {rank} {case}"
            assert overlap(one, two).size == both * size, f"views {rank} {case}"
            assert one.contains(two) == (both == len(np.unique(y))), f"views {rank} {case}"
            assert overlap_matrix([one, two])[0, 1] == bool(both), f"views {rank} {case}"
