"""What rules are asked with: wrong types are told by name, at any place; names of axes that there are not, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapestry_exec import evaluate
from tapestry_plan import Graph, ops
from tapestry_plan.rewrite import RULES, NotApplicable, shard, split_axes


def graph() -> Graph:
    g = Graph()
    g.output(ops.tanh(g.input("x", (12, 5)), name="t"), "y")
    return g


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"sizes": None}, "split_axes: sizes must be a mapping from strings to sequences of.*, not None"),
        ({"sizes": [3, 4]}, r"split_axes: sizes must be a mapping.*, not \[3, 4\]"),
        ({"sizes": {"i0": 12}}, r"split_axes: sizes\['i0'\] must be a sequence of integers, not 12"),
        ({"sizes": {"i0": "34"}}, r"split_axes: sizes\['i0'\] must be a sequence of integers, not '34'"),
        ({"sizes": {"i0": (3, 4.0)}}, r"split_axes: sizes\['i0'\]\[1\] must be an integer, not 4.0"),
        ({"sizes": {"i0": (True, 12)}}, r"split_axes: sizes\['i0'\]\[0\] must be an integer, not the truth value True"),
        ({"sizes": {0: (3, 4)}}, "split_axes: sizes, its key 0, must be a string, not 0"),
        ({"sizes": {"i0": (3, 4)}, "first": [1]}, r"split_axes: first must be a mapping.*, not \[1\]"),
        ({"sizes": {"i0": (3, 4)}, "first": {"i0": "1"}}, r"split_axes: first\['i0'\] must be an.*, not '1'"),
        ({"sizes": {"i0": (3, 4)}, "first": {"i0": 1.5}}, r"split_axes: first\['i0'\] must be an.*, not 1.5"),
    ],
)
def test_wrong_types_are_told_by_name(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        split_axes.apply(graph(), "t", **asked)


@pytest.mark.parametrize(
    ("first", "says"),
    [
        ({"i9": 1}, r"there is no index axis 'i9' that could begin at 1; known axes: 'i0', 'i1'"),
        ({"i1": 99}, "axis 'i1' begins at 99; it has the points 0 to 4"),
        ({"i1": -1}, "axis 'i1' begins at -1"),
        ({"i0": 12}, "axis 'i0' begins at 12; it has the points 0 to 11"),
    ],
)
def test_beginnings_are_points_of_axes(first: dict[str, int], says: str) -> None:
    """Where the axis is not split either: 99 of 5 turned the axis one way and not back."""
    with pytest.raises(NotApplicable, match=says):
        split_axes.apply(graph(), "t", sizes={"i0": (3, 4)}, first=first)


def test_numbers_may_be_numpy_s() -> None:
    split = split_axes.apply(graph(), "t", sizes={"i0": np.array([3, 4])}, first={"i0": np.int64(5), "i1": np.int8(2)})
    x = np.random.default_rng(1).standard_normal((12, 5)).astype(np.float32)
    np.testing.assert_array_equal(evaluate(split, {"x": x})["y"], evaluate(graph(), {"x": x})["y"])


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"axis": 0, "parts": 2}, "shard: axis must be a string, not 0"),
        ({"axis": "i0", "parts": "2"}, "shard: parts must be an integer or a sequence of integers, not '2'"),
        ({"axis": "i0", "fan_in": 2.0}, "shard: fan_in must be an integer or None, not 2.0"),
    ],
)
def test_other_rules_too(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        shard.apply(graph(), "t", **asked)


@pytest.mark.parametrize("name", sorted(RULES))
def test_places_are_strings(name: str) -> None:
    with pytest.raises(TypeError, match=r": at must be a string, not 3|missing .* required"):
        RULES[name].apply(graph(), 3)  # type: ignore[arg-type]
