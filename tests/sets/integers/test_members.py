"""Members of two disjoint unions, way by way, against listed integers; and a fault in a way that reaches the caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import reduce
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import DisjointSetts, Sett, Stripe, TooHard, TooManyPieces
from tapestry_sets.integers import members, nest, together, tuning
from tapestry_sets.limits import OPEN, Rung
from tapestry_sets.solvers import isl
from tests.strategies import nestings

HI = 500
LONG = {"MASK_BITS": 0, "SHORT": 0, "MAX_TABLE": 0, "RESIDUES": 0}
"""No window is so short that bit masks decide."""
WAYS: dict[str, dict[str, int]] = {
    "as it is": {},
    "equations": LONG | {"BLOCKS": 0, "MEMBER_LEAPS": 0, "COUNTED": 1, "PAIRS_A_BRANCH": 1},
    "compared": LONG | {"MEMBER_LEAPS": 0, "FEW_MEMBERS": 0},
    "few leaps": LONG | {"MEMBER_LEAPS": 2},
}
unions = st.lists(nestings(20, 2), min_size=1, max_size=3).map(
    lambda each: reduce(DisjointSetts.union, [Sett(*levels) for levels in each], DisjointSetts())
)


@contextmanager
def only(way: str) -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in WAYS[way].items():
            stack.enter_context(mock.patch.object(tuning, name, value))
        yield


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("by_isl", [False, True])
@given(one=unions, two=unions, lo=st.integers(0, HI // 2))
@example(one=DisjointSetts(), two=DisjointSetts(), lo=0)
def test_two_unions_in_a_window(way: str, by_isl: bool, one: DisjointSetts, two: DisjointSetts, lo: int) -> None:
    mine, theirs = ({z for z in range(lo, HI) if z in s} for s in (one, two))
    with only(way), mock.patch.object(isl, "available", lambda: by_isl), suppress(TooHard):
        a, b = (members.spans_of((m.nest for m in s.members), lo, HI) for s in (one, two))
        assert members.count_common(a, b) == len(mine & theirs)
        assert members.is_subset(a, b) == (mine <= theirs)
        z = members.some_common(a, b, by_isl)
        assert z in mine & theirs if mine & theirs else z is None
    assert together.first_beside(one, two, lo, HI) == min(mine - theirs, default=None)


@given(one=nestings(60, 3), two=nestings(60, 3))
def test_two_nests_by_equations(one: list[Stripe], two: list[Stripe]) -> None:
    """Each equation alone, whatever a search would say."""
    s, t = (nest.canonical(x.level for x in levels) for levels in (one, two))
    both = set(nest.elements(s, 0, HI).tolist()) & set(nest.elements(t, 0, HI).tolist())
    with suppress(TooManyPieces):  # of more runs than are compared
        z = members._solve_runs(s, t, 0, HI)
        assert z in both if both else z is None
        assert members._count_runs(s, t, 0, HI) == len(both)


def test_the_way_named_for_equations_solves_them() -> None:
    s, t = (nest.canonical([(7, 60, 0), (2, 5, 1)]), nest.canonical([(9, 84, 3), (1, 4, 3)]))
    a, b = (members.spans_of([x], 0, HI) for x in (s, t))
    both = sorted(set(nest.elements(s, 0, HI).tolist()) & set(nest.elements(t, 0, HI).tolist()))
    with (
        only("equations"),
        mock.patch.object(members, "sums_meet_at", wraps=members.sums_meet_at) as met,
        mock.patch.object(members, "sums_count", wraps=members.sums_count) as counted,
    ):
        assert members.some_common(a, b) in both and members.count_common(a, b) == len(both)
    assert met.called and counted.called


def test_more_runs_than_are_compared_are_too_hard_without_isl() -> None:
    s, t = (nest.canonical(levels) for levels in ([(235, 395, 118), (2, 18, 0)], [(201, 413, 7), (1, 17, 3)]))
    with mock.patch.object(members, "leap_blocks", lambda *about: OPEN), pytest.raises(TooHard, match="isl was not"):
        members.some_in_both(s, t, 0, 10**6, by_isl=False)


NESTS = (nest.canonical([(7, 60, 0), (2, 5, 1)]), nest.canonical([(9, 84, 3), (1, 4, 3)]))
LISTED = [set(nest.elements(s, 0, 5000).tolist()) for s in NESTS]


def common() -> int | None:
    with mock.patch.object(members, "leap_blocks", lambda *about: OPEN):
        return members.some_in_both(*NESTS, 0, 5000)


def count() -> int:
    with mock.patch.object(members.pairs, "count_in_both", side_effect=TooHard("too many blocks")):
        return members.count_common(*(members.spans_of([s], 0, 5000) for s in NESTS))


def asked(raises: type[Exception], ways: tuple[Rung, ...], k: int) -> tuple[Rung, ...]:
    """Let way k raise, and those before it leave the question open."""

    def fail(*about: object) -> None:
        raise raises("planted")

    before = [rung._replace(ask=lambda *about: OPEN) for rung in ways[:k]]
    return (*before, ways[k]._replace(ask=fail), *ways[k + 1 :])


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("kind", [RuntimeError, ValueError])
def test_a_fault_in_a_way_of_two_nests_reaches_the_caller(kind: type[Exception], k: int) -> None:
    ways = asked(kind, members.HARD_COMMON[True], k)
    with mock.patch.dict(members.HARD_COMMON, {True: ways}), pytest.raises(kind, match="planted"):
        common()
    ways = asked(kind, members.HARD_COUNT, k)
    with mock.patch.object(members, "HARD_COUNT", ways), pytest.raises(kind, match="planted"):
        count()


def test_the_next_way_answers_where_one_refuses() -> None:
    for refusal in members.HARD_COMMON[True][0].refusals:
        with mock.patch.dict(members.HARD_COMMON, {True: asked(refusal, members.HARD_COMMON[True], 0)}):
            assert common() in LISTED[0] & LISTED[1]
    for refusal in members.HARD_COUNT[0].refusals:
        with mock.patch.object(members, "HARD_COUNT", asked(refusal, members.HARD_COUNT, 0)):
            assert count() == len(LISTED[0] & LISTED[1])


def test_blocks_of_a_width_that_all_lengths_share_are_counted_as_single_elements() -> None:
    one, two = Sett(Stripe(4, 3)), Sett(Stripe(2, 3)).fill(Stripe(13, 16)).fill(Stripe(17, 14))
    for p in (11, 13, 17, 19):
        one = one.fill(Stripe(p // 2, p - p // 2))
    many = len(set(one.elements(0, 300_000).tolist()) & set(two.elements(0, 300_000).tolist()))
    w = 10**9
    assert one.scale(w).count_common(two.scale(w), 0, 300_000 * w) == many * w > 0
