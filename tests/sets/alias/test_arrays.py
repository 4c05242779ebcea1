"""Real arrays against numpy.shares_memory and against the bytes that they hold."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from tapestry_sets.alias.memory.arrays import MEMORY, as_view
from tapestry_sets.alias.overlap import (
    contains,
    has_internal_overlap,
    is_contiguous,
    origins,
    overlap,
    overlap_matrix,
    overlap_sizes,
    overlaps,
    same_elements,
)
from tapestry_sets.limits.budget import TooHard
from tests.array_exports import BASES, TABLE, Strided, addresses, offsets, pointer, steps_of, two_views, views


@given(two_views())
@example((steps_of(0, 1), BASES[0]))
@example((steps_of(4, 0, "<f4"), steps_of(1, 1)))
@example((steps_of(8, 3, "<f4"), steps_of(8, 7, "<i2")))
def test_arrays_share_the_bytes_that_they_share(pair: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = pair
    x, y = addresses(a), addresses(b)
    assert overlaps(a, b) == np.shares_memory(a, b) == bool(x & y)
    found = overlap(a, b)
    assert found.size == found.nbytes == len(x & y)
    assert contains(a, b) == (y <= x) and same_elements(a, b) == (x == y)
    assert has_internal_overlap(a) == (a.nbytes > len(x))
    assert is_contiguous(a) == (not x or max(x) - min(x) + 1 == len(x))
    if found:
        at = found.witness
        assert at is not None and at.cell[0] in x & y
        for view, index in ((a, at.a), (b, at.b)):
            first = view[(*(slice(i, i + 1) for i in index[:-1]), ...)]
            assert pointer(first) + index[-1] == at.cell[0]


class Owned(np.ndarray):
    """A class of NumPy's arrays with fields of its own."""

    def __array_finalize__(self, other: object) -> None:
        self.note = "mine"


def test_addresses_of_all_classes_of_arrays_are_those_that_their_interface_tells(tmp_path: Path) -> None:
    plain = np.arange(24, dtype=np.int32).reshape(4, 6)
    mapped = np.memmap(tmp_path / "mapped", np.int32, "w+", shape=(4, 6))
    others = (np.ma.masked_array(plain, plain > 3), plain.view(np.recarray), plain.view(Owned), mapped)
    for array in (plain, np.array(3.0), np.zeros((0, 3)), np.frombuffer(b"bytes", np.uint8), *others):
        for part in (array, array[..., ::-1] if array.ndim else array):
            told = part.__array_interface__["data"][0]
            assert as_view(part).kind.offset == told
            assert overlaps(part, array) == bool(part.size)


@given(st.lists(st.one_of(views(BASES[0]), views(BASES[1])), min_size=1, max_size=5))
def test_all_pairs_of_arrays_at_once(found: list[np.ndarray]) -> None:
    sets = [addresses(x) for x in found]
    np.testing.assert_array_equal(overlap_matrix(found), [[bool(x & y) for y in sets] for x in sets])
    np.testing.assert_array_equal(overlap_sizes(found), [[len(x & y) for y in sets] for x in sets])


def test_structured_fields_are_apart() -> None:
    """Two fields of one array: PyTorch and others call such views aliases; byte for byte they are not."""
    table = np.zeros(5, [("a", "<i4"), ("b", "<f8")])
    assert not overlaps(table["a"], table["b"])
    assert overlaps(table, table["b"])
    assert overlaps(table["b"], table["b"][::-2])
    packed = np.zeros((3, 4), TABLE)
    assert overlap(packed, packed["b"]).nbytes == 3 * 4 * 8
    assert not overlaps(packed["b"][..., 0], packed["b"][..., 1])
    assert same_elements(packed.view(np.recarray).c, packed["c"])


def test_negative_and_zero_strides() -> None:
    a = np.zeros((4, 6), np.float32)
    assert same_elements(a, a[::-1, ::-1])
    assert as_view(a[:, ::-2]).kind.strides == (24, -8, 1)
    wide = np.broadcast_to(a[0], (10**6, 6))
    assert overlap(wide, a).nbytes == 24 and has_internal_overlap(wide)
    assert not overlaps(a[:, ::2], a[:, 1::2])


def test_arrays_without_elements_share_nothing() -> None:
    a = np.zeros((4, 6))
    for none in (a[:0], a[:, 3:3], np.ndarray((3,), "V0", a.data), np.zeros((0, 3))):
        assert not overlaps(none, a) and not overlap(a, none) and not overlaps(none, none)
        assert contains(a, none) and overlap(none, a).witness is None


def test_what_kind_of_ndarray_it_is_does_not_matter(tmp_path: Path) -> None:
    file = np.memmap(tmp_path / "x", np.float32, "w+", shape=(4, 6))
    assert overlaps(file, file[1:, ::3]) and not overlaps(file[:2], file[2:])
    masked = np.ma.masked_array(np.zeros(6), [0, 1, 0, 0, 1, 1])
    assert overlaps(masked, masked.data[3:]) and not overlaps(masked, masked.mask)
    assert overlaps(masked.mask, masked.mask[2:])
    fixed = np.zeros(8)
    fixed.flags.writeable = False
    assert overlaps(fixed, fixed[::3])
    assert overlaps(np.zeros(()), np.zeros(())) is False
    alone = np.zeros(())
    assert overlaps(alone, alone[None])


def test_the_bytes_of_an_array_can_be_listed() -> None:
    """The address space has 2⁶⁴ cells; the few that an array reads are listed all the same."""
    a = np.zeros((3, 4), np.int32)[:, ::2]
    found = origins(a)[MEMORY]
    assert {z for (z,) in found.points().tolist()} == addresses(a)


def test_arrays_and_views_mix() -> None:
    a = np.zeros(8, np.uint8)
    b = np.zeros(8, np.uint8)
    window = MEMORY[pointer(a) :][:4]
    assert overlaps(window, a) and not overlaps(window, b)
    np.testing.assert_array_equal(overlap_matrix([a, b, window]), [[1, 0, 1], [0, 1, 0], [1, 0, 1]])
    again = as_view(a)[::3].reshape(3)
    assert same_elements(again, a[::3])


# --------------------------------------------------------------------------------------- cases of NumPy's own tests


def some_slices(extent: int) -> list[Any]:
    """An integer, and slices of 2 and 3 elements around the middle, with steps of 1 and 2 in both directions."""
    middle = extent // 2
    found: list[Any] = [slice(middle, middle + 1)]
    for many, step, sign in product((2, 3), (1, 2), (-1, 1)):
        start = middle - many * step * sign // 2
        found.append(slice(start, start + many * step * sign, step * sign))
    return found


def test_sources_and_targets_of_an_assignment() -> None:
    """Whether ``x[to] = x[of]`` needs a copy: all pairs of small slices of a square."""
    x = np.zeros((10, 10), np.int64)
    cut = [x[key] for key in product(some_slices(10), repeat=2)]
    for of, to in islice(product(cut, repeat=2), 0, None, 7):
        assert overlaps(of, to) == np.shares_memory(of, to)


def bounded_sums() -> Iterator[tuple[list[int], list[int], int]]:
    """Steps, how often each may be taken at most, and a number that may be reached."""
    source = np.random.default_rng(1234)
    for rank in range(7):
        for _ in range(30):
            largest = 1 + int(source.integers(0, 11)) ** int(source.integers(1, 6))
            steps = [int(source.integers(1, largest + 1)) for _ in range(rank)]
            most = [int(source.integers(0, 6)) for _ in range(rank)]
            total = sum(a * u for a, u in zip(steps, most, strict=True))
            yield steps, most, int(source.integers(0, total + 2))


def test_bounded_sums_of_steps() -> None:
    """The question behind the overlap of arrays: is a·x = b for some 0 <= x <= u?"""
    reached = 0
    for steps, most, b in bounded_sums():
        shape = tuple(u + 1 for u in most)
        found = overlap(Strided(0, shape, tuple(steps)), Strided(b, (), ()))
        sums = offsets(shape, steps)
        assert bool(found) == bool((sums == b).any()), (steps, most, b)
        if found:
            at = found.witness
            assert at is not None
            assert sum(a * x for a, x in zip(steps, at.a[:-1], strict=True)) == b
            assert all(0 <= x <= u for x, u in zip(at.a[:-1], most, strict=True))
            reached += 1
    assert 30 < reached < 180


def test_sums_of_steps_near_the_end_of_the_addresses() -> None:
    """NumPy's solver computes this case in 128 bits."""
    large = 2**63 // 2
    steps = (large - 1, large - 11)
    x = Strided(0, (3, 3), steps)
    at = overlap(x, Strided(sum(steps), (), ())).witness
    assert at is not None and at.a[:2] == (1, 1)
    assert not overlaps(x, Strided(sum(steps) + 1, (), ()))
    assert overlaps(x, Strided(2 * sum(steps), (), ()))


def test_rows_and_columns_with_negative_strides_and_other_items() -> None:
    whole = [np.zeros((13, 21, 23, 22), np.int8), np.zeros((13, 21, 46, 22), np.int8)[:, :, ::2, :]]
    turned = [x[key] for x in whole for key in product((slice(None), slice(None, None, -1)), repeat=4)]
    for x in turned:
        assert not overlaps(x[:, 0, :], x[:, 1, :])
        assert overlaps(x[:, ::7], x[:, 3::3]) == np.shares_memory(x[:, ::7], x[:, 3::3])
    flat = whole[0].ravel()
    pairs_of_bytes = flat.view(np.int16).reshape(13, 21, 23, 11)
    for a, b in [
        (flat[6:6], pairs_of_bytes[:, ::7]),
        (whole[0][:, ::7], pairs_of_bytes),
        (whole[0][:, ::7], pairs_of_bytes[:, 3::3]),
        (flat[6:7], pairs_of_bytes[:, ::7]),
        (flat[:1], flat[:1].copy()),
    ]:
        assert overlaps(a, b) == np.shares_memory(a, b)


def random_pairs(x: np.ndarray, same_steps: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Views of one array under random slices, a few of which have a step, in random orders of axes."""
    source = np.random.default_rng(1234)
    for j in (1, 4):
        yield x[j:], x[:-j]
        yield x[..., j:], x[..., :-j]

    def steps() -> list[int]:
        return [int(source.integers(1, 11)) if source.integers(0, 5) == 0 else 1 for _ in x.shape]

    def cut(by: list[int]) -> np.ndarray:
        key = []
        for n, step in zip(x.shape, by, strict=True):
            low, high = sorted(source.integers(0, n + 1, 2).tolist())
            key.append(slice(low, high, step) if source.integers(0, 2) else slice(high, low, -step))
        return x[tuple(key)].transpose(source.permutation(x.ndim))

    while True:
        by = steps()
        yield cut(by), cut(by if same_steps else steps())


@pytest.mark.parametrize("same_steps", [True, False])
def test_random_pairs_of_views_of_rank_four(same_steps: bool, request: pytest.FixtureRequest) -> None:
    many = 2000 if request.config.getoption("--all") else 250
    answers = set()
    for a, b in islice(random_pairs(np.zeros((17, 34, 71, 97), np.int16), same_steps), many):
        answer = overlaps(a, b)
        assert answer == np.shares_memory(a, b)
        answers.add((answer, bool(np.may_share_memory(a, b))))
    assert {(True, True), (False, True)} <= answers  # bounds alone would not do


def test_slices_of_slices_share_memory() -> None:
    x = np.zeros((4, 5, 6), np.int8)
    assert overlaps(x, x) and not overlaps(x, x.copy())
    assert overlaps(x[:, ::2, ::3], x[:, ::3, ::2])


@pytest.mark.parametrize(
    ("strides", "shape", "answer"),
    [
        ((), (), False),
        ((1,), (1,), False),
        ((3, 4), (4, 4), False),
        ((3, 4), (5, 4), True),
        ((0,), (0,), False),
        ((0,), (1,), False),
        ((0,), (2,), True),
        ((0, -9993), (87, 22), True),
        ((0, -9993), (1, 22), False),
        ((0, -9993), (0, 22), False),
        ((3, 2), (3, 4), True),
        ((6, 2), (16, 3), False),
    ],
)
def test_internal_overlap_of_given_strides(strides: tuple[int, ...], shape: tuple[int, ...], answer: bool) -> None:
    x = np.zeros(1, np.int8)
    strided = as_strided(x, shape, strides)
    assert has_internal_overlap(strided) == answer
    assert (len(np.unique(offsets(shape, strides))) < strided.size) == answer


def test_internal_overlap_of_random_strides(request: pytest.FixtureRequest) -> None:
    source = np.random.default_rng(1234)
    answers = []
    for _ in range(1000 if request.config.getoption("--all") else 150):
        rank = int(source.integers(1, 4))
        strides = tuple(int(s) for s in source.integers(-1000, 1000, rank))
        shape = tuple(int(n) for n in source.integers(1, 30, rank))
        strided = as_strided(np.zeros(1, np.int8), shape, strides)
        answers.append(len(np.unique(offsets(shape, strides))) < strided.size)
        assert has_internal_overlap(strided) == answers[-1], (shape, strides)
    assert 0 < sum(answers) < len(answers)


def test_slices_never_overlap_themselves() -> None:
    for a, b in islice(random_pairs(np.zeros((17, 34, 71, 97), np.int16), False), 50):
        assert not has_internal_overlap(a) and not has_internal_overlap(b)


@pytest.mark.parametrize("dtype", ["i1", "i2", "f4", "c16"])
def test_operands_of_a_function_in_place(dtype: str) -> None:
    """Operands and results that begin or step otherwise, each in both directions, and single elements."""
    n, k = 100, 10
    cuts = [slice(0, n), slice(k, k + n), slice(k, k + 2 * n, 2), slice(2 * k, 2 * k + 2 * n, 2)]
    v = np.zeros(6 * n, dtype)
    some = [w for cut in cuts for w in (v[cut], v[cut][::-1], v[cut][:1], v[cut][-1:].reshape(()))]
    for a, b in product(some, repeat=2):
        assert overlaps(a, b) == np.shares_memory(a, b)
    for j in range(1, 2 * v.itemsize):  # data that depends on itself
        assert overlaps(v[j:], v[:-j]) and overlaps(v[j:], v[:-j][::-1])
        assert not overlaps(v[j:], v[:j])
    square = np.zeros((20, 20), dtype)
    assert same_elements(square, square.T)


# --------------------------------------------------------------------------------------------------------- lifetime


@pytest.mark.heavy(2)
def test_a_view_keeps_its_array() -> None:
    """Else the next array might be given the same address."""

    class Own(np.ndarray):
        pass

    x = np.zeros(1000).view(Own)
    known = weakref.ref(x)
    view = as_view(x)
    del x
    gc.collect()
    assert known() is not None and overlaps(view, known())
    del view
    gc.collect()
    assert known() is None


def test_views_of_arrays_that_were_made_for_them_do_not_overlap() -> None:
    found = [as_view(np.zeros(1000) + k) for k in range(8)]
    np.testing.assert_array_equal(overlap_matrix(found), np.eye(8, dtype=bool))


# ------------------------------------------------------------------------------------------------------- hard cases

HARD = [
    # numpy.shares_memory takes 20 s for the first and more than 25 s for the second
    (((1049,) * 3, (36674, 61119, 85569), 0), ((1049,) * 2, (12223, 12224), 64023025), False),
    (((10_000,) * 5, (12223, 12224, 36674, 61119, 85569), 0), ((1,), (1,), 89643481), False),
    (((10_000,) * 5, (12223, 12224, 36674, 61119, 85569), 0), ((1,), (1,), 12223 * 7 + 85569 * 3), True),
]


@pytest.mark.parametrize(("one", "other", "answer"), HARD)
def test_bounded_strided_overlap_is_decided(one: Any, other: Any, answer: bool) -> None:
    pytest.importorskip("islpy")
    a, b = (Strided(address, shape, strides) for shape, strides, address in (one, other))
    assert overlaps(a, b) == answer
    if answer:
        at = overlap(a, b).witness
        assert at is not None
        assert at.cell[0] == sum(i * s for i, s in zip(at.a, (*one[1], 1), strict=True)) == other[2]


@pytest.mark.parametrize(("one", "other", "answer"), HARD)
def test_bounded_strided_overlap_is_decided_soon(one: Any, other: Any, answer: bool) -> None:
    """In less than 20 ms; here ten times as much, for slow machines with other work."""
    pytest.importorskip("islpy")
    a, b = (Strided(address, shape, strides) for shape, strides, address in (one, other))
    overlaps(a, b)
    taken = []
    for _ in range(3):
        began = time.process_time()
        overlaps(a, b)
        taken.append(time.process_time() - began)
    assert min(taken) < 0.2


def test_two_strided_arrays_are_compared_soon() -> None:
    """In 15 µs; here ten times as much, for slow machines with other work."""
    x = np.empty(10**6, np.int8)
    a, b = x[0::6], x[3::9]
    taken = []
    for _ in range(20):
        began = time.process_time()
        for _ in range(100):
            overlaps(a, b)
        taken.append((time.process_time() - began) / 100)
    assert min(taken) < 150e-6


def test_a_question_that_is_too_hard_names_no_wrong_answer() -> None:
    """Subset sums of large odd numbers: either the right answer or TooHard."""
    steps = tuple(2**40 + 2 * (3**k) for k in range(20))
    target = sum(steps[::2])
    x = Strided(0, (2,) * 20, steps)
    for b, answer in ((target, True), (target + 1, False)):
        try:
            assert overlaps(x, Strided(b, (), ())) == answer
        except TooHard as error:
            assert "isl" in str(error)
