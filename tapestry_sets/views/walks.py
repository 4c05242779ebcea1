"""Walks over the things below something else; they do not recurse, as chains may be thousands of kinds long."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def walk(start: T, after: Callable[[T], Iterable[T]], key: Callable[[T], Hashable] = id) -> Iterator[T]:
    """Yield a start and all that can be reached from it, each once: one before what comes after it.

    Parameters
    ----------
    start : object
    after : callable
        What comes after one; of several the last is gone to first.
    key : callable
        What tells one from another.

    Examples
    --------
    >>> list(walk(12, lambda n: [d for d in (2, 3) if n % d == 0], key=int))
    [12, 3, 2]
    """
    seen: set[Hashable] = set()
    stack = [start]
    while stack:
        x = stack.pop()
        if key(x) not in seen:
            seen.add(key(x))
            yield x
            stack += after(x)


def sources_first(top: T, below: Callable[[T], Iterable[T]], key: Callable[[T], Hashable] = id) -> list[T]:
    """Return a top and all that stands below it, each once: all that stands below one comes before it.

    Examples
    --------
    >>> sources_first(12, lambda n: [n // d for d in (2, 3) if n % d == 0], key=int)
    [1, 2, 4, 3, 6, 12]
    """
    order: dict[Hashable, T] = {}
    stack = [(top, False)]
    while stack:
        x, ready = stack.pop()
        if ready:
            order[key(x)] = x
        elif key(x) not in order:
            stack.append((x, True))
            stack += [(y, False) for y in below(x)]
    return list(order.values())
