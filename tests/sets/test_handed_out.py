"""Nothing that a value hands out can change it: each container is immutable, or made anew for each who asks."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from sympy import Symbol

import tapestry_sets as ts
from tapestry_sets import AffineMap, Box, IndexProjection, Region, Sett, Stripe, allocate, concatenate, overlap, pad
from tapestry_sets.limits import FrozenDict
from tests.handing_out import live


def values_of_sets() -> dict[str, object]:
    a = allocate((4, 6), name="A")
    padded = concatenate([a[:2], pad(a[2:], ((0, 0), (1, 1)))[:, 1:-1]])
    sett = Sett(Stripe(3, 4), Stripe(1, 1))
    union, lazy = sett | Sett(Stripe(1, 9, 2)), sett & Sett(Stripe(2, 3))
    region = Region((6, 6), (sett, Sett()))
    skew = IndexProjection(AffineMap(((1, 1), (1, -1)), (0, 0)), (1, 1))
    n = Symbol("N", integer=True, positive=True)
    graph = ts.AliasGraph()
    graph.allocate((4, 6))
    return {
        "view": a[1:, ::2],
        "allocation": a,
        "assembled view": padded,
        "view by a table": a.take([3, 1, 1, 0]),
        "overlap": overlap(a[1:, ::2], padded),
        "sett": sett,
        "union": union,
        "lazy set": lazy,
        "filled set": sett.fill(union),
        "region": region,
        "regions": region | Region((6, 6), (Sett(), sett)),
        "projection": skew,
        "image": skew.image(Box((0, 0), (3, 3))),
        "alias graph": graph,
        "symbolic view": ts.symbolic_allocate((n, 3))[1:],
        "layout": ts.to_cute(a[1:, ::2]),
        "chunks": ts.chunks((slice(1, 9, 2), slice(0, 4)), (10, 6), (3, 3)),
        "stripes": ts.StripeArray([2, 3], [3, 4], [0, 1]),
        "boxes": ts.BoxArray([(0, 1), (2, 3)], [(2, 2), (1, 1)]),
        "region array": ts.RegionArray.of([region, region]),
    }


@pytest.mark.parametrize("what", list(values_of_sets()))
def test_no_value_hands_out_a_container_that_it_keeps(what: str) -> None:
    assert live(values_of_sets()[what]) == set()


def test_the_cells_of_a_view_cannot_be_changed() -> None:
    a = allocate((6, 3))
    b = a[1:]
    assert overlap(b, a).size == 15
    for change in (lambda: b.cells.clear(), lambda: b.cells.pop(a), lambda: b.cells.update({a: None})):
        with pytest.raises(TypeError, match="never changes"):
            change()
    assert overlap(b, a).size == 15


def test_a_walk_finds_a_container_that_is_kept() -> None:
    class Keeps:
        __module__ = "tapestry_test"
        found = property(lambda self: self.__dict__.setdefault("own", [1]))
        anew = property(lambda self: [1])

    assert live(Keeps()) == {"Keeps.found"}


def test_a_frozen_dict_is_not_made_again() -> None:
    made: Any = FrozenDict({"m": 4}, k=2)
    assert made == {"m": 4, "k": 2} and FrozenDict([("m", 4)]) == {"m": 4} and FrozenDict() == {}
    made.__init__({"n": 1})
    made.__init__(m=9, z=0)
    assert made == {"m": 4, "k": 2}
    for same in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made), FrozenDict(made)):
        assert same == made and type(same) is FrozenDict
    with pytest.raises(TypeError, match="never changes"):
        made |= {"n": 1}
    assert made | {"n": 1} == {"m": 4, "k": 2, "n": 1}
