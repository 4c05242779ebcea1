"""Types of what a plan holds, against its annotations: documents can hold anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from tapestry_sets.limits import quote


def find_misfit(value: Any, wanted: Any, where: str) -> str | None:
    """The first wrong type in a plan, in words; None when all are as declared: documents can hold anything.

    Examples
    --------
    >>> find_misfit((1, "2"), tuple[int, ...], "shape")
    "shape[1] is '2'; it must be an integer"
    """
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
        return _first(
            find_misfit(key, args[0], f"a key of {where}") or find_misfit(item, args[1], f"{where}[{quote(key)}]")
            for key, item in value.items()
        )
    if not isinstance(value, NUMBERS.get(wanted, wanted)) or (wanted in NUMBERS and isinstance(value, bool)):
        return f"{where} is {quote(value)}; it must be {NAMES.get(wanted, wanted.__name__)}"
    if wanted in NUMBERS:
        return None
    return _first(find_misfit(getattr(value, name), kind, f"{where}.{name}") for name, kind in _fields(wanted).items())


DECLARED = (
    "tapestry_plan.steps.shard_plan",
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
