"""Nothing that a value hands out can change it: each container is immutable, or made anew for each who asks."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
from sympy import Symbol

import tapestry_sets as ts
from tapestry_sets import AffineMap, Box, IndexProjection, Region, Sett, Stripe, allocate, concatenate, overlap, pad
from tapestry_sets.limits import FrozenDict

DEEPEST = 4
A_KIND = 8
"""So many values of one class are looked at, at most."""
PROPERTIES = ("property", "cached_property", "member_descriptor", "_tuplegetter", "getset_descriptor")


def is_mutable(x: object) -> bool:
    if isinstance(x, np.ndarray):
        return x.flags.writeable
    return isinstance(x, dict | list | set | bytearray) and not isinstance(x, FrozenDict)


def share(x: object, y: object) -> bool:
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return x.size > 0 and bool(np.may_share_memory(x, y))
    return x is y


def asked(value: object) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The public attributes of a value, and its methods that need no argument."""
    for name in dir(type(value)):
        static = inspect.getattr_static(type(value), name)
        if name.startswith("_") or isinstance(static, staticmethod | classmethod):
            continue
        if type(static).__name__ in PROPERTIES or not callable(static):
            yield name, lambda name=name: getattr(value, name)
            continue
        if isinstance(static, FunctionType):
            optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            needed = list(inspect.signature(static).parameters.values())[1:]
            if all(p.default is not p.empty or p.kind in optional for p in needed):
                yield name, lambda name=name: getattr(value, name)()


def live(root: object) -> set[str]:
    """What is handed out live by a value and by what it hands out."""
    found: set[str] = set()
    many: dict[type, int] = {}
    kept: dict[int, object] = {}  # alive, so that no number comes again

    def look(get: Callable[[], Any], path: str, depth: int) -> None:
        try:
            x, y = get(), get()
        except Exception:  # what cannot be asked without more hands out nothing
            return
        if is_mutable(x):
            if share(x, y):
                found.add(path)
            return
        if id(x) in kept or depth == DEEPEST:
            return
        kept[id(x)] = x
        if isinstance(x, tuple | frozenset) and type(x).__module__ == "builtins":
            for k in range(min(len(x), 6)):
                look(lambda k=k: list(get())[k], f"{path}[]", depth)
        elif isinstance(x, Mapping):
            for key in list(x)[:4]:
                look(lambda key=key: get()[key], f"{path}[]", depth)
        elif type(x).__module__.startswith("tapestry_") and not isinstance(x, type | FunctionType | ModuleType):
            many[type(x)] = many.get(type(x), 0) + 1
            if many[type(x)] <= A_KIND:
                for name, ask in asked(x):
                    look(ask, f"{type(x).__name__}.{name}", depth + 1)

    look(lambda: root, type(root).__name__, 0)
    return found


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
