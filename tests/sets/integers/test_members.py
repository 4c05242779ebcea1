"""Members of two disjoint unions, way by way, against listed integers; and a fault in a way that reaches the caller."""

from __future__ import annotations

from contextlib import ExitStack
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import DisjointSetts, Sett, TooHard
from tapestry_sets.integers import lazy, members, nest, tuning
from tapestry_sets.limits import OPEN, Rung
from tapestry_sets.solvers import isl
from tests.strategies import nestings

HI = 90
WAYS: dict[str, dict[str, int]] = {
    "as it is": {},
    "equations": {"BLOCKS": 0, "MEMBER_LEAPS": 0},
    "compared": {"MEMBER_LEAPS": 0, "FEW_MEMBERS": 0},
    "counted by equations": {"COUNTED": 1},
}
unions = st.lists(nestings(9, 2), min_size=1, max_size=3).map(
    lambda each: DisjointSetts().union(Sett(*each[0])) if len(each) == 1 else Sett(*each[0]).union(Sett(*each[-1]))
)


def only(way: str) -> ExitStack:
    stack = ExitStack()
    for name, value in WAYS[way].items():
        stack.enter_context(mock.patch.object(tuning, name, value))
    return stack


def points_of(s: DisjointSetts) -> set[int]:
    return {z for z in range(HI) if z in s}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("by_isl", [False, True])
@given(one=unions, two=unions)
def test_two_unions_in_a_window(way: str, by_isl: bool, one: DisjointSetts, two: DisjointSetts) -> None:
    mine, theirs = points_of(one), points_of(two)
    with only(way), mock.patch.object(isl, "available", lambda: by_isl):
        a, b = (members.spans_of((m.nest for m in s.members), 0, HI) for s in (one, two))
        z = members.some_common(a, b, by_isl)
        assert z in mine & theirs if mine & theirs else z is None
        assert members.count_common(a, b) == len(mine & theirs)
        assert members.is_subset(a, b) == (mine <= theirs)
        assert lazy.first_beside(one, two, 0, HI) == min(mine - theirs, default=None)


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
