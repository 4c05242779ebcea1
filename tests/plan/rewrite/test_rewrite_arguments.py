"""Public functions of tapestry_plan.rewrite with each argument replaced by wrong values; rules: test_rule_arguments."""

from __future__ import annotations

import pytest

from tapestry_plan import Graph, ops
from tapestry_plan.rewrite import (
    Derivation,
    Rule,
    find,
    motion,
    move_selection,
    rewrite,
    selected_view,
    shard,
    simplify_selection,
    simplify_selections,
)
from tests.wrong_arguments import Row, ask, faults_of


def graph() -> Graph:
    g = Graph()
    h = ops.tanh(g.input("x", (12, 5)).T.T, name="t")
    g.output(ops.softmax(ops.relu(h, name="r"), axis=1, name="s"), "y")
    return g


ANY = {"consumer": "Any"}
PLACES = {
    "consumer": "consumer|hashable",
    "at": r"\bat\b|no operator|no tensor|selection|node",
    "name": "name|no tensor|selection",
}
ROWS: dict[str, Row] = {
    "Derivation.then": Row(
        Derivation.then,
        lambda: {"self": Derivation(), "rule": shard, "at": "t", "arguments": {}},
        skips=["arguments"],
    ),
    "Derivation.replay": Row(
        Derivation.replay, lambda: {"self": Derivation().then(shard, "t", axis="i0"), "graph": graph()}
    ),
    "Derivation.from_json": Row(
        Derivation.from_json, lambda: {"text": Derivation().to_json()}, says={"text": "text|derivation"}
    ),
    "Rule.apply": Row(
        Rule.apply,
        lambda: {"self": shard, "graph": graph(), "at": "t", "arguments": {"axis": "i0"}},
        says=PLACES,
        skips=["arguments"],
    ),
    "rewrite": Row(
        rewrite,
        lambda: {"graph": graph(), "rule": shard, "at": "t", "arguments": {"axis": "i0"}},
        says=PLACES,
        skips=["arguments"],
    ),
    "find": Row(find, lambda: {"graph": graph(), "rule": shard, "arguments": {"axis": "i0"}}, skips=["arguments"]),
    "selected_view": Row(selected_view, lambda: {"graph": graph(), "name": "permute_dims_1"}, says=PLACES),
    "motion": Row(
        motion,
        lambda: {"graph": graph(), "name": "permute_dims_1", "placement": {"x": 0}, "consumer": 1},
        takes=ANY,
        says=PLACES,
    ),
    "move_selection": Row(
        move_selection,
        lambda: {"graph": graph(), "name": "permute_dims_1", "placement": {"x": 0}, "consumer": 1},
        takes=ANY,
        says=PLACES,
    ),
    "simplify_selection": Row(simplify_selection, lambda: {"graph": graph(), "name": "permute_dims_1"}, says=PLACES),
    "simplify_selections": Row(simplify_selections, lambda: {"graph": graph()}),
}


def test_right_calls_are_right() -> None:
    for row in ROWS.values():
        ask(row, row.given())


@pytest.mark.parametrize("name", ROWS)
def test_a_wrong_argument_is_refused_by_name(name: str) -> None:
    assert not faults_of(name, ROWS[name])
