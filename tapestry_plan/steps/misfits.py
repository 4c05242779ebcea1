"""What a plan holds against its annotations, and its figures against its graph: documents can hold anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from tapestry_sets.limits import list_names, quote

if TYPE_CHECKING:  # it asks here whether what it read holds together
    from tapestry_plan.steps.shard_plan import ShardPlan


def find_misfit(value: Any, wanted: Any, where: str) -> str | None:
    """The first wrong type in a plan, in words; None when all are as declared: documents can hold anything.

    Examples
    --------
    >>> find_misfit((1, "2"), tuple[int, ...], "shape")
    "shape[1] is '2'; it must be an integer"
    """
    if wanted is Any or (type(value) is wanted and wanted in NUMBERS):  # as most are
        return None
    origin, args = _take_apart(wanted)
    if origin is Mapping:
        if isinstance(value, Mapping) and not isinstance(value, dict):  # made on demand, by the planner itself
            return None
        origin = dict
    if origin in (Union, UnionType):
        return _misfit_all(value, args, where)
    if origin is Literal:
        return None if value in args else f"{where} is {quote(value)}; it must be {' or '.join(map(repr, args))}"
    if origin in (tuple, dict) and not isinstance(value, origin):
        return f"{where} is {quote(value)}; it must be a {origin.__name__}"
    if origin is tuple:
        kinds = args[:1] * len(value) if args[1:] == (Ellipsis,) else args
        if len(kinds) != len(value):
            return f"{where} has {len(value)} items; it must have {len(kinds)}"
        return _first(find_misfit(*item, f"{where}[{k}]") for k, item in enumerate(zip(value, kinds, strict=True)))
    if origin is dict:
        keyed = f"a key of {where}"
        return _first(
            find_misfit(key, args[0], keyed)
            or (find_misfit(item, args[1], where) and find_misfit(item, args[1], f"{where}[{quote(key)}]"))
            for key, item in value.items()
        )
    if not isinstance(value, NUMBERS.get(wanted, wanted)) or (wanted in NUMBERS and isinstance(value, bool)):
        return f"{where} is {quote(value)}; it must be {NAMES.get(wanted, wanted.__name__)}"
    if wanted in NUMBERS:
        return None
    return _first(find_misfit(getattr(value, name), kind, f"{where}.{name}") for name, kind in _fields(wanted).items())


DECLARED = (
    "tapestry_plan.steps.shard_plan",
    "tapestry_plan.steps.stages",
    "tapestry_plan.steps.step",
    "tapestry_plan.steps.choices",
    "tapestry_plan.steps.layouts.layout",
    "tapestry_plan.steps.programs",
)
"""The modules of a plan's structures, which say by their annotations alone what they hold."""
NUMBERS = {int: (int, np.integer), float: (int, float, np.integer, np.floating)}
NAMES = {int: "an integer", float: "a number", str: "a text", NoneType: "None"}


def _misfit_all(value: Any, kinds: Sequence[Any], where: str) -> str | None:
    """What is wrong with a value that may be of several kinds, by the one that it comes nearest to."""
    for kind in kinds:
        if isinstance(value, _take_apart(kind)[0] or NUMBERS.get(kind, kind)):
            return find_misfit(value, kind, where)
    names = " or ".join(NAMES.get(kind, getattr(kind, "__name__", str(kind))) for kind in kinds)
    return f"{where} is {quote(value)}; it must be {names}"


@cache
def _take_apart(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """What a type is made of, such as tuple and (int, ...); asked for each number of a plan."""
    return get_origin(kind), get_args(kind)


@cache
def _fields(kind: type) -> dict[str, Any]:
    """The declared fields of a plan, and of the structures in it; other types have checked themselves."""
    return get_type_hints(kind) if kind.__module__ in DECLARED else {}


def _first(wrong: Iterable[str | None]) -> str | None:
    return next(filter(None, wrong), None)


# -- figures ---------------------------------------------------------------------------------------------

BY_DEVICE = ("nbytes_received", "nbytes_placed", "nbytes_spilled", "nbytes_local", "peak_nbytes", "flop")


def find_contradiction(plan: ShardPlan) -> str | None:
    """The first figure that cannot be of the plan's graph, choices and mesh, in words; None where all may be.

    What the figures are is not worked out: a run counts them.
    """
    return next(_list_contradictions(plan), None)


def _list_contradictions(plan: ShardPlan) -> Iterator[str]:
    size, graph = plan.mesh.size, plan.graph
    lists = [(f"plan.{name}", getattr(plan, name)) for name in BY_DEVICE]
    for k, stage in enumerate(plan.stages):
        lists += [(f"plan.stages[{k}].{name}", getattr(stage, name)) for name in ("nbytes_received", "flop")]
        if stage.work_seconds:
            lists.append((f"plan.stages[{k}].work_seconds", stage.work_seconds))
    if plan.limit_nbytes is not None:
        lists.append(("plan.limit_nbytes", plan.limit_nbytes))
    for name, entries in lists:
        if len(entries) != size:
            yield f"{name} has {len(entries)} entries; the mesh has {size} devices"
    for link in plan.nbytes_by_link:
        if not all(0 <= device < size for device in link):
            yield f"plan.nbytes_by_link has bytes from device {link[0]} to {link[1]}; the mesh has {size} devices"
    for name in plan.alternatives:
        if name not in graph.nodes:
            known = list_names(graph.nodes, name, "operators")
            yield f"plan.alternatives has {quote(name)}, which is not an operator of the graph; {known}"
    seen: dict[str, int] = {}
    for k, stage in enumerate(plan.stages):
        where, name = f"plan.stages[{k}]", stage.node
        if name in seen:
            yield f"{where} is of {quote(name)}, as plan.stages[{seen[name]}] is; each operator has one"
        seen[name] = k
        if name in graph.nodes:
            op, sharding = graph.nodes[name].op, plan.sharding[name]
            if stage.op != op:
                yield f"{where}.op is {quote(stage.op)}; {quote(name)} is {quote(op)}"
            if stage.sharding != sharding:
                told = f"the choices cut {quote(name)} into {quote(dict(sharding))}"
                yield f"{where}.sharding is {quote(dict(stage.sharding))}; {told}"
            if not stage.work_seconds:
                yield f"{where}.work_seconds is empty; {quote(name)} is computed, so each device has its seconds"
        elif stage.work_seconds:
            known = list_names(graph.nodes, name, "operators")
            yield f"{where} has work of {quote(name)}, which is not an operator of the graph; {known}"
    for name in graph.nodes:
        if name not in seen:
            yield f"plan.stages has none of operator {quote(name)}; each operator has one"
    yield from _list_wrong_sums(plan)


def _list_wrong_sums(plan: ShardPlan) -> Iterator[str]:
    """Figures that are sums of others, or stand for operators that are not there."""
    # Stages are whole picoseconds, as the plan is: floats of them add up to within a millionth of one each.
    seconds, graph = sum(stage.seconds for stage in plan.stages), plan.graph
    if abs(plan.seconds - seconds) > 5e-13 + 1e-9 * seconds:
        yield f"plan.seconds is {plan.seconds}; its stages take {seconds}"
    if not 0 <= plan.bound <= plan.seconds:
        yield f"plan.bound is {plan.bound}; it is 0 or more, and no more than plan.seconds, {plan.seconds}"
    inside = [pair.first for pair in plan.fused]
    for again, name in plan.recomputed.items():
        for each in (again, name):
            if each not in graph.nodes and each not in inside:
                known = list_names([*graph.nodes, *inside], each, "operators")
                yield f"plan.recomputed has {quote(each)}, which is not an operator of the graph; {known}"
