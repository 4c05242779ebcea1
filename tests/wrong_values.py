"""Values that are wrong for most arguments, and which of them an annotation admits: for walks of a public API.

A walk takes one right call of each function, and puts each wrong value in the place of each argument in turn::

    Sett.count(start: int | None, stop: int | None)     right:  s.count(start=2, stop=9)
                                                        wrong:  s.count(start="x", stop=9), s.count(start=2, stop=1.5)
"""

from __future__ import annotations

import linecache
import math
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from inspect import Parameter
from typing import Any

import numpy as np

Admits = Callable[[Any], bool]

WRONG: tuple[Any, ...] = (
    None,
    5,
    -1,
    True,
    10**30,
    1.5,
    2.0,
    math.nan,
    math.inf,
    1j,
    np.float64(2),
    np.True_,
    np.int64(3),
    "x",
    "",
    "5",
    b"",
    b"ab",
    object(),
    object,
    len,
    Ellipsis,
    slice(None),
    (),
    [],
    [None],
    [1.5],
    ["x"],
    [object()],
    {},
    {"x": 1},
    {7},
    [0] * 300,
    "long" * 200,
    np.array(2.0),
    np.array([1.5, 2.5]),
    np.array([object()], object),
    np.zeros((2, 0)),
    iter(()),
)
"""What is neither a size, nor a sequence of sizes, nor a set, a region or a view."""


LONGEST = 500
"""Characters of a message."""


# ------------------------------------------------------------------------------------------ what is admitted


def is_integer(x: Any) -> bool:
    """Whether it is an integer of Python or NumPy, no truth value."""
    return hasattr(x, "__index__") and not isinstance(x, (bool, np.bool_, type))


def is_row(x: Any, admits: Admits = is_integer) -> bool:
    """Whether it is a sequence, or an array of one axis, of such values: no text, and nothing without an order."""
    if isinstance(x, np.ndarray):
        return x.ndim == 1 and all(map(admits, x))
    return isinstance(x, Sequence) and not isinstance(x, (str, bytes)) and all(map(admits, x))


def is_iterable(x: Any, admits: Admits) -> bool:
    """Whether it is a row, or an iterator; this package takes iterators wherever it takes sequences."""
    return hasattr(x, "__next__") or is_row(x, admits)


def is_hashable(x: Any) -> bool:
    """Whether it has a hash, which a tuple of lists has not."""
    try:
        hash(x)
    except TypeError:
        return False
    return True


def is_flag(x: Any) -> bool:
    return isinstance(x, (bool, np.bool_))


ATOMS: dict[str, Admits] = {
    "None": lambda x: x is None,
    "int": is_integer,
    "bool": is_flag,
    "float": lambda x: isinstance(x, (int, float, np.integer)) and not isinstance(x, bool),
    "str": lambda x: isinstance(x, str),
    "bytes": lambda x: isinstance(x, bytes),
    "Hashable": is_hashable,
    "Any": lambda x: True,
}
"""Annotations of Python's own, and whether they admit a value."""
GENERIC: dict[str, Callable[[Any, Admits], bool]] = {
    "Sequence": is_iterable,
    "Iterable": is_iterable,
    "Collection": lambda x, admits: is_row(x, admits) or (isinstance(x, (set, Mapping)) and all(map(admits, x))),
    "tuple": lambda x, admits: isinstance(x, tuple) and not x,
    "Callable": lambda x, admits: callable(x),
    "Mapping": lambda x, admits: isinstance(x, Mapping) and not x,
}


def alternatives(annotation: str) -> list[str]:
    """What stands between the bars of an annotation that are in no brackets.

    >>> alternatives("int | Sequence[int | None] | None")
    ['int', 'Sequence[int | None]', 'None']
    """
    found, depth = [""], 0
    for letter in annotation.replace("'", ""):
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [one.strip() for one in found]


def admits(annotation: str, known: Mapping[str, Admits]) -> Admits:
    """What an annotation admits; `known` tells of names that are not Python's own."""
    return lambda x: any(_admits_one(one, x, known) for one in alternatives(annotation))


def _admits_one(one: str, x: Any, known: Mapping[str, Admits]) -> bool:
    one = one.removeprefix("collections.abc.")
    if one in known:
        return known[one](x)
    if one in ATOMS:
        return ATOMS[one](x)
    name, bracket, inside = one.partition("[")
    if bracket and name in GENERIC:
        return GENERIC[name](x, admits(inside[:-1], known))
    raise LookupError(f"no row says which values {one!r} admits")


# ------------------------------------------------------------------------------------------- what is answered


def is_raised_by(package: str, error: BaseException) -> bool:
    """Whether an error comes from a `raise` that stands in a package: others are met by chance."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    lines = (linecache.getline(last.filename, n).strip() for n in range(last.lineno or 0, (last.end_lineno or 0) + 1))
    return f"/{package}/" in last.filename and any(line.startswith("raise ") for line in lines)


ALSO = {
    "base": ["bits"],
    "boxes": ["Box"],
    "regions": ["Region"],
    "stripes": ["Stripe"],
    "axis1": ["axis"],
    "axis2": ["axis"],
    "k": ["member", "element"],
    "key": ["index", "indices"],
    "matrix": ["row", "rows"],
    "sections": ["indices"],
    "setts": ["Sett"],
    "z": ["element"],
}
"""Other words by which messages name a parameter."""


def names_argument(said: str, name: str, value: object) -> bool:
    """Whether a message names an argument, in the singular or plural, or else the type that its value has."""
    words = {name, name.removesuffix("s"), name + "s", *ALSO.get(name, ()), type(value).__name__}
    return any(re.search(rf"(?<!\w){re.escape(one)}(?!\w)", said) for one in words)


def call(function: Callable[..., Any], parameters: Sequence[Parameter], given: Mapping[str, Any]) -> Any:
    """Call a function with arguments by name, or by place in front of several of one name; enter a context."""
    several = [at for at, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL]
    before = [given[p.name] for p in parameters[: several[0]]] if several else []
    args = given.get(parameters[several[0]].name, ()) if several else ()
    named = {p.name: given[p.name] for p in parameters[(several[0] + 1 if several else 0) :] if p.name in given}
    answer = function(*before, *args, **named)
    if isinstance(answer, AbstractContextManager):
        with answer:
            pass
    return answer


def with_wrong(right: Mapping[str, Any], at: Parameter, wrong: Any) -> dict[str, Any]:
    """The arguments of a right call with one of them replaced; of several of one name, the first."""
    if at.kind is at.VAR_POSITIONAL:
        return {**right, at.name: (wrong, *right.get(at.name, ())[1:])}
    return {**right, at.name: wrong}


def fault_of(ask: Callable[[], object], name: str, wrong: Any, is_admitted: bool, package: str) -> str:
    """What is wrong with how a question with one other argument ends; empty where nothing is."""
    try:
        ask()
    except Exception as error:
        said = str(error)
        if not is_raised_by(package, error):
            return f"dies of {type(error).__name__}: {said}"
        if len(said) > LONGEST:
            return f"{len(said)} characters: {said}"
        if not is_admitted and not isinstance(error, TypeError | ValueError | IndexError):
            return f"a {type(error).__name__}: {said}"
        if not is_admitted and not names_argument(said, name, wrong):
            return f"does not name it: {said}"
        return ""
    return "" if is_admitted else "is taken in silence"
