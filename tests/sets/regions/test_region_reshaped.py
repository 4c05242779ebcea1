"""Reshaped sets, held by row-major numbers, against NumPy's reshape and counts derived by hand."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from math import prod
from time import perf_counter
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import (
    DisjointRegions,
    DisjointSetts,
    Intersection,
    Region,
    Reshaped,
    Sett,
    Stripe,
    TooHard,
    TooManyPieces,
    limits,
)
from tapestry_sets.regions import rowmajor
from tapestry_sets.solvers import isl
from tests.oracles import in_nesting, listed_points, marked
from tests.strategies import factorizations, regions_in_one_box, subscripts

Known = tuple[Reshaped, np.ndarray]


@st.composite
def reshaped_sets(draw: st.DrawFn, count: int) -> list[Known]:
    """Unions reshaped into one box from boxes of their own, with their cells as NumPy reshapes them."""
    size = draw(st.sampled_from([0, 1, 6, 12, 12, 24, 30, 36, 60]))
    shape = draw(factorizations(size))
    out = []
    for _ in range(count):
        box = draw(factorizations(size))
        union = draw(in_box(box)) | draw(in_box(box))
        out.append((union.reshape(shape), marked(union).reshape(shape)))
    return out


def in_box(box: tuple[int, ...]) -> st.SearchStrategy[Region]:
    """Regions of nested stripes in a box from zero."""
    on = st.integers(1, 9).flatmap(lambda period: st.tuples(st.integers(1, period), st.just(period)))
    stripe = st.builds(lambda ab, phase: Stripe(ab[0], ab[1] - ab[0], phase), on, st.integers(0, 8))
    sett = st.lists(stripe, max_size=2).map(lambda levels: Sett(*levels))
    return st.tuples(*(sett for _ in box)).map(lambda setts: Region(box, setts))


def held(x: Reshaped) -> np.ndarray:
    """The cells of a reshaped set by the definition of its terms, number by number."""
    terms = [[Sett._of(s).stripes for s in term] for term in x.terms]
    count = [sum(all(in_nesting(s, z) for s in term) for term in terms) for z in range(prod(x.shape))]
    assert max(count, default=0) < 2, f"terms of {x!r} share a number"
    return np.array(count, bool).reshape(x.shape)


def points(cells: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(map(int, at)) for at in np.argwhere(cells)]


# ------------------------------------------------------------------------------------------------- against NumPy


@given(reshaped_sets(1))
def test_a_reshaped_set_answers_as_its_cells_do(known: list[Known]) -> None:
    ((x, cells),) = known
    assert (held(x) == cells).all()
    assert x.size == cells.sum()
    assert [at in x for at in np.ndindex(cells.shape)] == cells.ravel().tolist()
    assert list(map(tuple, x.points().tolist())) == points(cells)
    assert (x.is_empty, x.is_full) == (not cells.any(), cells.all())
    assert x.flatten().elements(0, cells.size).tolist() == np.flatnonzero(cells).tolist()
    at = np.argwhere(cells)
    assert x.bounds() == ((tuple(at.min(0)), tuple(at.max(0) + 1)) if len(at) else None)
    assert x.is_box == (not len(at) or prod(at.max(0) + 1 - at.min(0)) == len(at))


@given(reshaped_sets(1))
def test_the_members_of_a_reshaped_set_are_its_cells(known: list[Known]) -> None:
    ((x, cells),) = known
    assert listed_points(x.explicit()) == set(points(cells))
    assert x.members == x.explicit().members
    assert x.same_points(x.explicit())
    assert x.explicit().same_points(x)


@given(reshaped_sets(2))
def test_two_reshaped_sets_compare_as_their_cells_do(known: list[Known]) -> None:
    (x, a), (y, b) = known
    both = points(a & b)
    for left, right in ((x, y), (x, y.explicit()), (x.explicit(), y)):
        assert left.isdisjoint(right) == (not both)
        assert left.count_common(right) == len(both)
        assert left.first_common(right) == (both[0] if both else None)
        assert (left <= right) == bool((a <= b).all())
        assert (left >= right) == bool((a >= b).all())
        assert left.same_points(right) == bool((a == b).all())


@given(reshaped_sets(2))
def test_the_algebra_of_reshaped_sets_is_that_of_their_cells(known: list[Known]) -> None:
    (x, a), (y, b) = known
    for left, right in ((x, y), (x, y.explicit()), (x.explicit(), y)):
        for found, cells in (
            (left & right, a & b),
            (left | right, a | b),
            (left - right, a & ~b),
            (left ^ right, a ^ b),
        ):
            assert isinstance(found, Reshaped)
            assert (held(found) == cells).all()
    assert (held(~x) == ~a).all()


@given(reshaped_sets(3))
def test_algebra_of_algebra_stays_exact(known: list[Known]) -> None:
    (x, a), (y, b), (z, c) = known
    found, cells = (x - y) & z | (y ^ z), (a & ~b) & c | (b ^ c)
    assert (held(found) == cells).all()
    assert found.size == cells.sum()
    assert listed_points(found.explicit()) == set(points(cells))
    assert ((x & y) - z).isdisjoint(z)
    assert (x & y & z).count_common(x ^ z) == 0


@given(st.data(), reshaped_sets(1))
def test_reshapes_of_reshapes_are_numpys(data: st.DataObject, known: list[Known]) -> None:
    ((x, cells),) = known
    new = data.draw(factorizations(cells.size))
    assert (held(x.reshape(new)) == cells.reshape(new)).all()
    assert x.reshape(new).terms == x.terms
    assert x.reshape(new).reshape(x.shape) == x


@given(st.data(), reshaped_sets(1))
def test_moves_along_axes_are_numpys(data: st.DataObject, known: list[Known]) -> None:
    ((x, cells),) = known
    order = data.draw(st.permutations(range(x.rank)))
    assert listed_points(x.transpose(order)) == set(points(cells.transpose(order)))
    axis = data.draw(st.integers(-x.rank, x.rank - 1))
    assert listed_points(x.flip(axis)) == set(points(np.flip(cells, axis)))
    assert listed_points(x.broadcast_to((2, *x.shape))) == set(points(np.broadcast_to(cells, (2, *x.shape))))
    assert listed_points(x.reduce_to(x.shape[1:])) == set(
        points(cells.any(axis=0)) if x.rank > 1 else [()][: int(cells.any())]
    )
    by = data.draw(st.tuples(*(st.integers(-3, 3) for _ in x.shape)))
    assert listed_points(x.shift(by)) == {tuple(map(int, np.add(at, by))) for at in points(cells)}
    key = tuple(k for k in data.draw(subscripts(x.shape)) if k is not None)
    ranges = tuple(slice(k, k + 1 or None) if isinstance(k, int) else k for k in key)
    assert listed_points(x.slice(ranges)) == set(points(cells[ranges]))


@given(st.data(), reshaped_sets(1))
def test_samples_and_fills_are_numpys(data: st.DataObject, known: list[Known]) -> None:
    ((x, cells),) = known
    at = data.draw(in_box(x.shape))
    axes = [[z for z in range(n) if in_nesting(s.stripes, z)] for s, n in zip(at.setts, at.shape, strict=True)]
    if not at.is_empty:
        seen = x.sample(at)
        assert (held(seen) == cells[np.ix_(*axes)]).all()
        expected = np.zeros_like(cells)
        expected[np.ix_(*axes)] = held(seen)
        assert (held(at.fill(seen)) == expected).all()
        assert seen.fill_into(at).same_points(x & at)
    else:
        assert x.sample(at).shape == at.counts
        assert x.sample(at).fill_into(at).is_empty


@given(regions_in_one_box(2, at_zero=True))
def test_region_and_union_reshape_to_the_same_kind(two: tuple[Region, Region]) -> None:
    for x in (two[0], two[0] | two[1]):
        flat = x.reshape((prod(x.shape),))
        assert isinstance(flat, Reshaped)
        assert flat.reshape(x.shape).same_points(x)
        assert [z for (z,) in flat.points().tolist()] == np.flatnonzero(marked(x)).tolist()


# ----------------------------------------------------------------------------------------------------- hard cases


@pytest.fixture
def without_isl(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ImportError("blocked for this test")

    monkeypatch.setattr(isl, "_islpy", refuse)


@pytest.fixture
def quick() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Ask a question, and expect its answer within a second."""

    def ask(question: Callable[[], object]) -> None:
        start = perf_counter()
        question()
        assert perf_counter() - start < 1

    yield ask


def half_columns(n: int) -> tuple[Region, Reshaped, Region]:
    """The left half of (n, n + 1), the same in (n + 1, n), and the left half there."""
    half = Region.from_bounds((n, n + 1), (0, 0), (n, n // 2))
    return half, half.reshape((n + 1, n)), Region.from_bounds((n + 1, n), (0, 0), (n + 1, n // 2))


def common_in_rows(n: int, rows: int) -> int:
    """How many points of the first rows of (n + 1, n) are in both left halves, for an even n.

    Number i*n + c is i*(n + 1) + (c - i): in column c - i of the old box if c >= i, else in column c - i + n + 1.
    So row i shares the c in [i, h), and those below i + h - n - 1, where h = n/2.
    """

    def triangle(k: int) -> int:
        return k * (k + 1) // 2 if k > 0 else 0

    h = n // 2
    return triangle(h) - triangle(h - rows) + triangle(rows + h - n - 2)


@pytest.mark.parametrize("n", [2, 4, 6, 10, 32])
def test_the_formula_for_half_columns_is_numpys_count(n: int) -> None:
    cells, left = np.zeros((n, n + 1), bool), np.zeros((n + 1, n), bool)
    cells[:, : n // 2] = left[:, : n // 2] = True
    for rows in range(n + 2):
        assert common_in_rows(n, rows) == (cells.reshape(n + 1, n) & left)[:rows].sum()


@pytest.mark.usefixtures("without_isl")
@pytest.mark.parametrize("n", [4, 32, 1024, 10**6, 10**9, 10**15])
def test_half_columns_reshaped_are_never_listed(n: int, quick: Callable[[Callable[[], object]], None]) -> None:
    half, there, left = half_columns(n)
    h = n // 2

    def ask() -> None:
        assert there.size == half.size == n * h
        assert (0, 0) in there
        assert (0, h) not in there
        assert (n, n - 1) not in there
        assert (n // 2, n // 2) in there
        assert not there.isdisjoint(left)
        assert there.first_common(left) == (0, 0)
        assert there.count_common(left) == h * h
        assert there.bounds() == ((0, 0), (n + 1, n))
        assert (there - left).size == n * h - h * h
        assert not there <= left
        assert there.reshape((n, n + 1)).same_points(half)

    quick(ask)
    rest = ~half.reshape((n + 1, n))
    # a point of the left half that the old right half holds: row 1 begins at the end of the old row 0
    quick(lambda: check(rest.first_common(left), (1, 0)))
    for rows in {1, h // 2 + 1, h, h + 1, n - 1, n}:
        top = Region.from_bounds((n + 1, n), (0, 0), (rows, h))
        quick(lambda top=top, rows=rows: check(there.count_common(top), common_in_rows(n, rows)))
        quick(lambda top=top, rows=rows: check((there & top).size, common_in_rows(n, rows)))


def check(found: object, expected: object) -> None:
    assert found == expected


@pytest.mark.usefixtures("without_isl")
@pytest.mark.parametrize("n", [8, 1024, 10**9])
def test_the_last_old_column_runs_along_the_diagonal(n: int) -> None:
    """Old column n holds the numbers i*n + (i - 1): row i of the new box has it in column i - 1."""
    column = Region.from_bounds((n, n + 1), (0, n), (n, n + 1)).reshape((n + 1, n))
    last = Region.from_bounds((n + 1, n), (0, n - 1), (n + 1, n))
    assert column.count_common(last) == 1
    assert column.first_common(last) == (n, n - 1)
    assert column.isdisjoint(last & Region.from_bounds((n + 1, n), (0, 0), (n, n)))
    assert column.bounds() == ((1, 0), (n + 1, n))
    assert column.slice((slice(5, 2, -1), slice(None))).points().tolist() == [[0, 4], [1, 3], [2, 2]]


def test_a_thousand_half_columns_are_listed_when_asked() -> None:
    half, there, left = half_columns(1024)
    assert len(there.members) <= 1535
    assert sum(member.size for member in there.members) == half.size
    assert there.explicit().count_common(left) == there.count_common(left) == 512 * 512
    assert (there & left).explicit().size == 512 * 512


def test_what_is_too_much_to_list_names_the_questions() -> None:
    _, there, _ = half_columns(10**9)
    with pytest.raises(TooManyPieces, match="size, `in`, isdisjoint, count_common and first_common need none"):
        len(there.members)
    with pytest.raises(TooManyPieces):
        there.transpose()
    _, small, _ = half_columns(32)
    assert len(small.members) > 20
    with limits(max_pieces=20), pytest.raises(TooManyPieces):  # also where they have been listed before
        len(small.members)


PRIMES = (7, 11, 13, 17, 19, 23)


@pytest.mark.usefixtures("without_isl")
def test_a_cascade_of_halves_is_exact_at_every_stage() -> None:
    """4 of 7 columns, reshaped to 11 columns of which 5 stay, and so on: coprime periods, so sizes multiply."""
    size = prod(PRIMES)
    x: Region | Reshaped = Region.from_slices((size // 7, 7), (slice(None), slice(4)))
    kept = {7: 4}
    for p in PRIMES[1:]:
        half = Region.from_slices((size // p, p), (slice(None), slice(p // 2)))
        x = x.reshape((size // p, p)) & half
        kept[p] = p // 2
        assert x.size == prod(kept.values()) * (size // prod(kept))
        for z in (*range(40), size // 2, size - 1, size - 4 * p):
            assert (divmod(z, p) in x) == all(z % q < on for q, on in kept.items())
        assert x.first_common(half) == (0, 0)
        assert not x.isdisjoint(half)
        assert x <= half
    assert x.size == 4 * 5 * 6 * 8 * 9 * 11


@pytest.mark.heavy(2)
def test_a_cascade_of_slices_of_slices_is_exact_until_it_shatters() -> None:
    """Each stage slices what the last one left: ranks of ranks, of which no closed form is left in the end."""
    shapes, left = [], prod(PRIMES) * 11 * 13
    for p in PRIMES:
        shapes.append((left // p, p))
        left = left // p * (4 if p == 7 else p // 2)
    total = prod(shapes[0])
    stages = 0
    for last in range(2, len(PRIMES)):
        inner_most = Region.from_slices(shapes[last], (slice(None), slice(PRIMES[last] // 2)))
        try:
            found = kept_by(inner_most, shapes[:last])
        except TooManyPieces as error:
            assert "views (allocate(shape)" in str(error)
            break
        stages += 1
        assert found.size == inner_most.size
        numbers = np.arange(min(total, 10**6))
        for p in PRIMES[: last + 1]:  # slice by slice, on the first numbers
            numbers = numbers[: len(numbers) // p * p].reshape(-1, p)[:, : 4 if p == 7 else p // 2].ravel()
        first = found.reshape((total,)) & Region.from_bounds((total,), (0,), (int(numbers[-1]) + 1,))
        assert first.points().ravel().tolist() == numbers.tolist()
    assert stages >= 1


def kept_by(ink: Region, shapes: list[tuple[int, int]]) -> Reshaped:
    """The numbers in the first shape that a chain of slices and reshapes leads to a region of the last."""
    x: Region | Reshaped = ink
    for rows, p in reversed(shapes):
        scaffold = Region.from_slices((rows, p), (slice(None), slice(4 if p == 7 else p // 2)))
        x = x.reshape(scaffold.counts).fill_into(scaffold)
    assert isinstance(x, Reshaped)
    return x


@given(reshaped_sets(3), st.integers(1, 60))
def test_a_small_budget_makes_no_answer_wrong(known: list[Known], budget: int) -> None:
    (x, a), (y, b), (z, c) = known
    with limits(budget=budget):
        try:
            both, either, rest = x & y, y | z, x - y
        except TooHard as error:
            assert f"budget={4 * budget}" in str(error) or "pairs of terms" in str(error)
            return
        answers: list[tuple[Callable[[], object], object]] = [
            (lambda: both <= z, bool((a & b <= c).all())),
            (lambda: x <= either, bool((a <= (b | c)).all())),
            (lambda: x <= both | rest, True),
            (lambda: rest.size, (a & ~b).sum()),
            (lambda: rest.isdisjoint(z), not (a & ~b & c).any()),
            (lambda: rest.count_common(z), (a & ~b & c).sum()),
            (lambda: either.bounds(), (y.explicit() | z.explicit()).bounds()),
        ]
        for ask, expected in answers:
            with suppress(TooHard):
                assert ask() == expected


@given(reshaped_sets(3))
def test_subsets_are_right_whether_elements_are_sought_or_counted(known: list[Known]) -> None:
    (x, a), (y, b), (z, c) = known
    for small in (0, rowmajor.tuning.MASK_SPAN):
        with mock.patch.object(rowmajor.tuning, "MASK_SPAN", small):
            assert (x & y <= z) == bool((a & b <= c).all())
            assert (x <= y | z) == bool((a <= (b | c)).all())
            assert x <= (x & y) | (x - y)
            assert ((x - y) | (x - z) <= x - (y & z)) and (x - (y & z) <= (x - y) | (x - z))


def test_what_is_asked_of_three_large_sets_has_one_budget() -> None:
    """Of coprime patterns of three boxes, 5 * 4 * 3 numbers of each common period are in all."""
    size = 11 * 9 * 7 * 10**9
    x, y, z = (Region.from_slices((size // n, n), (slice(None), slice(n // 2))).reshape((size,)) for n in (11, 9, 7))
    assert (x & y & z).size == 5 * 4 * 3 * 10**9
    assert ((x - y) - z).size == 5 * 5 * 4 * 10**9
    assert (x & y) - z <= x - z
    many = x
    for n in (13, 17, 19, 23):  # their product does not divide the size
        half = Region.from_slices((size,), (slice(None, None, n),)).reshape((size,))
        many = many - half | half - many
    with limits(budget=50), pytest.raises(TooHard, match=r"limits\(budget=\d+\)"):
        _ = many.size


def test_terms_too_many_to_try_are_too_hard() -> None:
    x = Region.from_slices((40, 41), (slice(None), slice(None, None, 2))).reshape((41, 40))
    many = DisjointRegions(
        (41, 40), [Region.from_bounds((41, 40), (i, i**3 % 37), (i + 1, i**3 % 37 + 1)) for i in range(40)]
    )
    assert x.count_common(many) == sum(at in x for at in map(tuple, many.points().tolist()))
    with limits(budget=5), pytest.raises(TooHard, match="pairs of terms, more than 5"):
        x.count_common(many)


# --------------------------------------------------------------------------------------------------------- values


def test_reshaped_sets_are_values() -> None:
    x = Region((3, 4), [Sett(), Stripe(1, 1)]).reshape((4, 3))
    y = (x - Region.full((4, 3)).slice(slice(None)).reshape((4, 3)) | x) & Region.from_slices((4, 3), (slice(1, None),))
    names = {"Reshaped": Reshaped, "Sett": Sett, "Stripe": Stripe}
    for z in (x, y, ~y, Reshaped((2, 0)), Reshaped((), [Sett()])):
        assert eval(repr(z), names) == z
        assert pickle.loads(pickle.dumps(z)) == z
        assert hash(pickle.loads(pickle.dumps(z))) == hash(z)
    assert len(x.members) == 2
    assert pickle.loads(pickle.dumps(x)) == x == Region((3, 4), [Sett(), Stripe(1, 1)]).reshape((4, 3))
    assert str(x) == "1.1\n.1.\n1.1\n.1."


def test_a_reshaped_set_is_made_from_sets_of_numbers() -> None:
    setts = Sett(Stripe(1, 4)) | Sett(Stripe(1, 4, 2))
    both = Sett(Stripe(2, 1)) & Stripe(3, 2)
    cells = np.array([[z % 5 in (0, 2) for z in range(4 * r, 4 * r + 4)] for r in range(6)])
    assert (held(Reshaped((6, 4), [setts])) == cells).all()
    assert isinstance(setts, DisjointSetts)
    assert isinstance(both, Intersection)
    third = Reshaped((6, 4), [both])
    assert third.size == sum(z % 3 < 2 and z % 5 < 3 for z in range(24))
    with pytest.raises(ValueError, match=r"part 1 shares number 5, the point \(1, 1\)"):
        Reshaped((6, 4), [Stripe(1, 4), Stripe(1, 23, 5)])
    with pytest.raises(TypeError, match="part 0 must be a Stripe or another set of integers, not int"):
        Reshaped((6, 4), [3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="Reshaped: parts must be a sequence"):
        Reshaped((6, 4), 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="extents must be >= 0"):
        Reshaped((6, -4))


def test_reshaped_rank_0_and_empty_axes() -> None:
    assert Region.full(()).reshape((1, 1)).size == 1
    assert Region.full((1, 1)).reshape(()).is_full
    assert () in Region.full((1, 1)).reshape(())
    assert Region.full((1, 1)).reshape(()).bounds() == ((), ())
    assert Region.full((1, 1)).reshape(()).slice(()).size == 1
    assert Region.empty((1, 1)).reshape(()).is_empty
    nothing = Region.full((2, 0)).reshape((0, 5))
    assert (nothing.size, nothing.is_empty, nothing.is_full, nothing.bounds()) == (0, True, True, None)
    assert (~nothing).is_empty
    assert nothing.points().shape == (0, 2)
    assert nothing.slice((slice(None), slice(2))).shape == (0, 2)


def test_numbers_beyond_the_box_are_not_held() -> None:
    x = Region.from_slices((3, 5), (slice(None), slice(0, 2))).reshape((5, 3))
    inside = set(points(held(x)))
    assert {(r, c) for r in range(-2, 8) for c in range(-2, 6) if (r, c) in x} == inside


def test_other_boxes_and_other_things_are_refused() -> None:
    x, y = Region.full((3, 4)).reshape((4, 3)), Region.full((3, 4))
    for verb in (
        x.isdisjoint,
        x.count_common,
        x.first_common,
        x.issubset,
        x.same_points,
        x.__and__,
        x.__or__,
        x.__sub__,
    ):
        with pytest.raises(ValueError, match=r"\(4, 3\).*\(3, 4\)"):
            verb(y)
    for other in (y.isdisjoint, y.count_common, y.first_common, y.issubset):
        with pytest.raises(ValueError, match=r"\(3, 4\).*\(4, 3\)"):
            other(x)
    for moved in (y, Region.full((4, 3), (1, 0)), DisjointRegions.full((4, 3), (1, 0))):
        for combine in (operator.and_, operator.sub, operator.or_, operator.xor):
            with pytest.raises(ValueError, match=r"in one box, not .* and shape \(4, 3\) from \(0, 0\)"):
                combine(moved, x)
    with pytest.raises(TypeError, match="&: takes a Region, DisjointRegions or Reshaped, not int"):
        y & 3  # type: ignore[operator]
    with pytest.raises(TypeError, match="&: takes a Region, DisjointRegions or Reshaped, not int"):
        x & 3  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"cannot view shape \(4, 3\) \[12 points\] as \(5, 5\)"):
        x.reshape((5, 5))
    with pytest.raises(ValueError, match="one entry for each axis"):
        (1, 2, 3) in x  # noqa: B015
    with pytest.raises(ValueError, match=r"a scaffold of \(2, 3\) elements.*not in \(4, 3\)"):
        x.fill_into(Region.full((2, 3)))
    with pytest.raises(ValueError, match="fill_into: the box must start at zero"):
        x.fill_into(Region.full((4, 3), (1, 0)))


def test_successive_reshapes_are_one() -> None:
    x: Region | Reshaped = Region.from_slices((6, 10), (slice(None, None, 2), slice(3, None, 3)))
    cells = marked(x)
    for old, new in pairwise([(6, 10), (4, 15), (60,), (5, 3, 4), (12, 5)]):
        x, cells = x.reshape(new), cells.reshape(new)
        assert x.reshape(old).reshape(new) == x
        assert listed_points(x.explicit()) == set(points(cells))


def test_a_shape_is_one_sequence_or_integers_as_in_numpy() -> None:
    region = Region((3, 4), [Stripe(1, 1), Stripe(1, 2)])
    for shape in ((12, 1), (-1,), (2, -1)):
        assert region.reshape(*shape) == region.reshape(shape)
        wanted = marked(region).reshape(shape)
        assert (marked(region.reshape(*shape)) == wanted).all()
    with pytest.raises(TypeError, match="reshape: shape is not given"):
        region.reshape()
    with pytest.raises(ValueError, match=r"12 points.* as \(5, 2\)"):
        region.reshape(5, 2)
