"""What a value shows is never assigned: every public class is immutable, or its methods alone write what it shows."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest
from msgspec import Struct

import tapestry_exec
import tapestry_plan
import tapestry_sets
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_plan import Graph, Mesh, ops, plan
from tapestry_plan.rewrite import Draft
from tapestry_sets.limits import Frozen, Guarded

WORKERS = {
    "tapestry_exec.cuda.backend.CupyBackend": "a backend works for one run after another, and its options may change",
    "tapestry_exec.numpy.backend.NumpyBackend": "as above",
    "tapestry_exec.run.checkpoints.saving.Savings": "it goes along with a run, attempt by attempt",
    "tapestry_exec.run.deployment.Deployment": "it holds devices, and whether they have a state yet",
    "tapestry_exec.run.sessions.LocalSession": "it holds devices",
    "tapestry_exec.run.interpreter.Counts": "an interpreter counts",
    "tapestry_exec.run.interpreter.Interpreter": "as above",
    "tapestry_exec.run.parts.Member": "as above",
    "tapestry_exec.run.rehearsed.Rehearsal": "a device notes there what it does",
    "tapestry_exec.run.together.Ensemble": "it goes from step to step",
    "tapestry_exec.numpy.backend.NumpyDevice": "the memory of a device, which backends make for themselves",
    "tapestry_plan.onnx.nodes.Importing": "what is imported so far, which importers fill",
    "tapestry_plan.steps.layouts.cells.Facts": "answers are kept as they are found",
    "tapestry_plan.steps.layouts.reads.Reads": "as above",
    "tapestry_sets.limits.budget.Budget": "it is spent",
    "tapestry_sets.limits.tallies.Tally": "it counts",
}
"""Public classes whose attributes may be assigned, and why."""


def doors() -> Iterator[Any]:
    for package in (tapestry_sets, tapestry_plan, tapestry_exec):
        yield package
        for module in iter_modules(package.__path__):
            if module.ispkg:
                yield import_module(f"{package.__name__}.{module.name}")


def public_classes() -> list[type]:
    found = {each for door in doors() for name, each in vars(door).items() if name[0] != "_" and inspect.isclass(each)}
    return sorted((each for each in found if each.__module__.startswith("tapestry_")), key=name_of)


def is_worker(cls: type) -> bool:
    return any(name_of(base) in WORKERS for base in cls.__mro__)


def name_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def keeps_nothing_public(cls: type) -> bool:
    """Whether a class has no attributes of its own but private ones, as interfaces and mixed-in words have none."""
    written = [vars(base).get("__init__") for base in cls.__mro__]
    made = [name for one in written if inspect.isfunction(one) for name in assigned_in(inspect.unwrap(one))]
    slots = [name for base in cls.__mro__ for name in vars(base).get("__slots__", ())]
    hints = [name for base in cls.__mro__ for name in vars(base).get("__annotations__", {})]
    return all(name.startswith("_") for name in (*slots, *hints, *made))


def assigned_in(function: Any) -> set[str]:
    """The attributes that a function assigns."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {node.attr for node in found if isinstance(node.ctx, ast.Store)}


def is_read_only(cls: type) -> bool:
    if issubclass(cls, Struct):
        return bool(cls.__struct_config__.frozen) or issubclass(cls, Frozen)
    if is_dataclass(cls):
        return bool(cls.__dataclass_params__.frozen)  # type: ignore[attr-defined]
    is_value = issubclass(cls, Frozen | Guarded | tuple | dict | Enum | BaseException | type)
    return is_value or inspect.isabstract(cls) or bool(getattr(cls, "_is_protocol", False)) or keeps_nothing_public(cls)


@pytest.mark.parametrize("cls", [cls for cls in public_classes() if not is_worker(cls)], ids=name_of)
def test_what_a_value_shows_is_never_assigned(cls: type) -> None:
    assert is_read_only(cls), f"make {name_of(cls)} frozen, derive it from Guarded, or say in WORKERS why not"


def test_workers_are_public_and_change() -> None:
    found = {name_of(cls): cls for cls in public_classes()}
    assert {name for name in WORKERS if name not in found or is_read_only(found[name])} == set()


CONTAINERS = ("ops", "stored", "selections", "nodes", "outputs", "unread", "name")


def graph() -> Graph:
    g = Graph("net")
    g.output(ops.relu(g.input("x", (4, 6)) @ g.constant("w", np.ones((6, 4), "float32"))), "y")
    return g


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("make", [graph, lambda: Draft(graph())], ids=["Graph", "Draft"])
def test_a_graph_changes_by_its_methods_alone(make: Any, name: str) -> None:
    g = make()
    before = g.to_json()
    with pytest.raises(AttributeError, match=rf"{type(g).__name__}\.{name} is never assigned: the methods of"):
        setattr(g, name, {})
    with pytest.raises(AttributeError, match="is never assigned"):
        delattr(g, name)
    assert g.to_json() == before


def test_copies_of_a_graph_grow_on_their_own() -> None:
    g = graph()
    for other in (copy.deepcopy(g), pickle.loads(pickle.dumps(g)), copy.copy(g)):
        assert other.to_json() == g.to_json()
    other = copy.deepcopy(g)
    ops.relu(other.tensor("x"), name="more")
    assert "more" in other.nodes and "more" not in g.nodes


def test_plans_meshes_and_prepared_plans_are_never_changed() -> None:
    p = plan(graph(), Mesh((2,)))
    prepared = PreparedPlan(p, "numpy")
    values: list[Any] = [p, p.mesh, prepared, p.stages[0], p.graph.nodes["relu"], p.graph.stored["w"]]
    for value, name in zip(values, ("steps", "names", "shards", "sharding", "inputs", "shape"), strict=True):
        kept = getattr(value, name)
        with pytest.raises(AttributeError):
            setattr(value, name, type(kept)())
        assert getattr(value, name) is kept
