"""Where another plan is the best: each is bound to each size, and compared as plans of these sizes are."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest

from tapestry_plan import Mesh, ShardPlan, crossovers, plan
from tests.plan.symbolic.test_binding import APART, attention

FIX: list[dict[str, Any]] = [{"y": {"n": 2}, "scores": {"m": 2}}, {"y": {"b0": 2}, "scores": {"b0": 2}}]


@cache
def plans() -> tuple[ShardPlan, ...]:
    """One that cuts tokens, and one that cuts sequences, of which there are two at least."""
    return tuple(plan(attention(batch=n), Mesh(2), fix=fix, **APART) for n, fix in zip((2, 8), FIX, strict=True))


@pytest.mark.parametrize("by", ["seconds", "nbytes_moved"])
def test_the_best_plan_is_the_best_of_those_bound(by: Any) -> None:
    made = plans()
    found = crossovers(made, "batch", range(1, 8), by=by)
    assert found.planned_at == (2, 8) and found.others == {"seq": 6}
    last = None
    for size, best, each in zip(found.sizes, found.best, found.found, strict=True):
        costs: dict[int, Any] = {}
        for k, p in enumerate(made):
            try:
                bound = p.bind(batch=size)
            except ValueError:
                assert each[k] is None
                continue
            here = each[k]
            assert here is not None and (here.seconds, here.nbytes_moved) == (bound.seconds, bound.nbytes_moved)
            costs[k] = getattr(bound, by)
        assert best is not None and costs[best] == min(costs.values())
        if last in costs and costs[last] == min(costs.values()):
            assert best == last
        last = best
    changes = [k for k in range(1, 7) if found.best[k] != found.best[k - 1]]
    assert [point.size for point in found.points] == [found.sizes[k] for k in changes] and changes


def test_what_crossovers_tell() -> None:
    found = crossovers(plans(), "batch", [8, 1, 2, 2])
    assert found.sizes == (1, 2, 8)
    assert "by seconds, of 2 plans bound at each of 3 sizes, 1 to 8, seq=6" in str(found)
    assert len(str(found).splitlines()) == 2 + 1 + len(found.points)
    assert found._repr_html_().count("<tr>") == 2 + len(found.points)
    assert json.loads(found.to_json())["sizes"] == [1, 2, 8]


def test_wrong_crossovers() -> None:
    p = plans()[1]
    wrong: list[tuple[Any, str]] = [
        (lambda: crossovers([], "batch", [1]), "no plan is given"),
        (lambda: crossovers([p], "batch", []), "no size is given"),
        (lambda: crossovers([p], "batch", [0]), "at least 1, not 0"),
        (lambda: crossovers([p], None, [2]), "several symbols; name one"),
        (lambda: crossovers([p], "bach", [2]), "'bach' is not a symbol"),
        (lambda: crossovers([p, p.bind(seq=7)], "batch", [2]), "plan 1 is of .*; bind the other symbols alike"),
        (lambda: crossovers([p], "batch", [1]), "plan 0 can be bound at none of the sizes: bind: the plan cuts"),
    ]
    for ask, said in wrong:
        with pytest.raises(ValueError, match=re.compile(said)):
            ask()


def test_a_size_that_a_plan_has_no_memory_for() -> None:
    small, large = plan(attention(), Mesh(2), memory_nbytes=3500), plan(attention(batch=64), Mesh(2))
    found = crossovers([small, large], "batch", [2, 64])
    assert found.best[1] == 1 and found.found[1][0] is None and found.found[0][0] is not None
