"""Published schemas: what `to_json` writes fits, what it never writes does not; told by the library jsonschema."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from tapestry_exec.cli import main
from tapestry_plan import Device, Graph, Link, Mesh, Placed, ShardPlan, load_onnx, plan
from tapestry_plan.ops import conv, logsumexp, max_pool, relu
from tapestry_plan.steps import describe_document, least_memory, spill
from tests.layered_models import gpt
from tests.spilling import planned, seeded_program


@cache
def checker(kind: Any) -> Draft202012Validator:
    schema = describe_document(kind)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def network() -> Graph:
    g = Graph()
    h = conv(g.input("x", (1, 2, 8, 8)), g.input("w", (4, 2, 3, 3)), pads=(1, 1, 1, 1), name="conv")
    pooled = max_pool(relu(h, name="relu"), (3, 3), strides=(2, 2), pads=(1, 1, 1, 1), name="pool")
    g.output(logsumexp(pooled.reshape(4, 16).T @ g.input("v", (4, 6)), axis=(0,)), "y")
    return g


def gathered() -> ShardPlan:
    """Rows that become columns, by an exchange of all with all."""
    g = Graph()
    g.output(relu(relu(g.input("x", (8, 8)), name="a"), name="b"), "y")
    return plan(g, Mesh(4), fix={"a": {"i0": 4}, "b": {"i1": 4}})


@cache
def documents() -> list[tuple[str, dict[str, Any]]]:
    """Graphs, plans and programs of many forms: paddings of -inf, views, parts, unlike devices, boxes, spilling."""
    unlike = [Device(1e9, 1e10, 0.0, 1 << 20), Device(3e9, 1e10, 1e-6, 1 << 21)]
    links = {"x": Link(1e-6, 1e9), "y": Link(1e-6, 1e10)}
    p = planned(seeded_program(10, 8))
    plans = [
        plan(network(), Mesh(2)),
        plan(network(), Mesh(2, device=unlike), fix={"matmul": {"k": 2}}, fan_in=2),
        plan(network(), Mesh((2, 2), link=links), layout={"w": Placed({0: [(slice(2),), (slice(2, 4),)]})}),  # type: ignore[arg-type]
        p,
        spill(p, least_memory(p)),
        spill(p, least_memory(p)).with_steps(),
    ]
    found = [("graph", network().to_json()), ("graph", load_onnx(gpt(1, length=64, width=128, inner=256)).to_json())]
    found += [("plan", each.to_json()) for each in plans]
    found += [("program", each.program(device).to_json()) for each in plans for device in (0, 1)]
    found.append(("program", gathered().program(1, grouped=True).to_json()))
    return [(kind, json.loads(text)) for kind, text in found]


@pytest.mark.heavy(2)
def test_what_is_written_fits_its_schema() -> None:
    for kind, document in documents():
        error = next(checker(kind).iter_errors(document), None)
        assert error is None, f"{kind}: {error.message if error else ''}"
    text = json.dumps([document for _, document in documents()])
    words = '{"float": "-inf"}', '"send"', '"recv"', '"fetch"', '"piece": {', '"collective"', '"boxes"'
    assert all(word in text for word in words)


def test_what_is_not_written_does_not_fit() -> None:
    """Each object of a document without one of its fields, with one more, and with a number that is a word."""
    wrong = 0
    some = documents()
    for kind, document in (some[0], some[2], some[7], some[9], some[-1]):
        places = [place for place in list_places(document) if not is_free(place)]
        for place in places[:: max(1, len(places) // 8)]:
            for edit in (add_field, drop_field, say_word):
                other = copy.deepcopy(document)
                if edit(value_at(other, place)):
                    assert not checker(kind).is_valid(other), (kind, place, edit.__name__)
                    wrong += 1
        assert not checker(kind).is_valid({**document, "format": "tapestry-other/1"})
        assert not any(checker(other).is_valid(document) for other in {"graph", "plan", "program"} - {kind})
    assert wrong > 60


Place = tuple[str | int, ...]


def list_places(data: Any, at: Place = ()) -> list[Place]:
    """Where objects are."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    mine = [at] if isinstance(data, dict) else []
    return mine + [place for key, value in inner for place in list_places(value, (*at, key))]


def is_free(place: Place) -> bool:
    """Whether any name may stand there: of operators, axes, attributes; or the views' own data."""
    named = {"attrs", "operator", "source", "landing", "output", "alternatives", "sharding", "outputs", "unread"}
    return bool({"piece", "pieces", "unified", *named} & {*place[-2:]}) or "map" in place or "guards" in place


def value_at(data: Any, place: Place) -> Any:
    for key in place:
        data = data[key]
    return data


def add_field(entry: dict[str, Any]) -> bool:
    entry["surprise"] = 1
    return True


def drop_field(entry: dict[str, Any]) -> bool:
    """Take one away that is always written; graphs leave some out."""
    names = [name for name in sorted(entry) if name not in ("sha256", "path", "data", "dtype", "shape")]
    return bool(names) and entry.pop(names[0], None) is not None


def say_word(entry: dict[str, Any]) -> bool:
    names = [name for name, value in sorted(entry.items()) if isinstance(value, int | float) and value is not True]
    for name in names[:1]:
        entry[name] = "many"
    return bool(names)


@pytest.mark.parametrize("kind", ["graph", "plan", "program"])
def test_the_command_prints_the_schema(kind: Any) -> None:
    found = CliRunner().invoke(main, ["schema", kind])
    assert found.exit_code == 0 and json.loads(found.output) == json.loads(json.dumps(describe_document(kind)))


def test_other_documents_have_no_schema() -> None:
    assert CliRunner().invoke(main, ["schema", "mesh"]).exit_code == 2
    with pytest.raises(ValueError, match="kind must be one of"):
        describe_document("mesh")  # type: ignore[arg-type]
