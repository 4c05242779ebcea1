"""What a value hands out live, or lets others assign: the walk of `test_handed_out.py` in each package's tests."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from tapestry_sets.limits import FrozenDict, put_item

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
    for name in vars(value) if hasattr(value, "__dict__") else ():
        if not name.startswith("_"):
            yield name, lambda name=name: getattr(value, name)
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


def assigned(x: object, name: str) -> bool:
    """Whether anybody may put another container in the place of one that a value shows, which is put back."""
    kept = inspect.getattr_static(x, name)
    if isinstance(kept, FunctionType | type | property):
        return False
    value = getattr(x, name)
    if not isinstance(value, Mapping | tuple | list | set | frozenset | np.ndarray):
        return False
    try:
        setattr(x, name, value)
    except AttributeError:
        return False
    return True


def live(root: object, passed_over: Collection[str] = ()) -> set[str]:
    """What is handed out live by a value and by what it hands out, or may be assigned, but for what is passed over."""
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
                    path = f"{type(x).__name__}.{name}"
                    if path in passed_over:
                        continue
                    if assigned(x, name):
                        found.add(f"{path} = …")
                    look(ask, path, depth + 1)

    look(lambda: root, type(root).__name__, 0)
    return found


@contextmanager
def row_of(table: dict[str, Any], name: str, row: object) -> Iterator[None]:
    """One row more, or another one, in a table that nobody can change."""
    before = dict(table)
    put_item(table, name, row)
    try:
        yield
    finally:
        dict.clear(table)
        dict.update(table, before)
