"""Regions that operators make hold canonical setts: equal ones are equal, and so are their documents."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import DisjointRegions, Region, Sett, Stripe
from tapestry_sets.views import region_from_dict, region_to_dict

SHAPE = (24, 18)


@st.composite
def setts(draw: st.DrawFn) -> Sett:
    """Up to two nested stripes."""
    stripes, longest = [], draw(st.sampled_from([6, 12, 24]))
    for _ in range(draw(st.integers(0, 2))):
        period = draw(st.integers(2, longest + 1))
        on = draw(st.integers(1, period))
        stripes.append(Stripe(on, period - on, draw(st.integers(0, period - 1))))
        longest = max(2, on)
    return Sett(*stripes)


regions = st.tuples(setts(), setts()).map(lambda axes: Region(SHAPE, axes))


def members(x: Region | DisjointRegions) -> Sequence[Region]:
    return x.regions if isinstance(x, DisjointRegions) else (x,)


@given(regions, regions)
@example(Region(SHAPE, (Sett(Stripe(2, 4)), Sett())), Region(SHAPE, (Sett(Stripe(1, 1)), Sett())))
def test_what_operators_make_is_itself_after_a_round_trip(a: Region, b: Region) -> None:
    for made in (a & b, a - b, a | b, a ^ b):
        for member in members(made):
            document = region_to_dict(member)
            again = region_from_dict(document)
            assert again == member and hash(again) == hash(member)
            assert json.dumps(region_to_dict(again)) == json.dumps(document)
            assert Region(member.shape, member.setts, member.start) == member


def test_one_stripe_has_one_form() -> None:
    one = Region((24,), (Sett(Stripe(2, 4)),)) & Region((24,), (Sett(Stripe(1, 1)),))
    (member,) = members(one)
    assert member == Region((24,), (Sett(Stripe(1, 5)),))
