"""Calls with one wrong argument each: what is not admitted is refused by an error that names the argument.

A `Row` gives one right call of a function. Each of its arguments in turn is replaced by each of the `WRONG` values::

    Sett.count(start: int | None, stop: int | None)     right:  s.count(start=2, stop=9)
                                                        wrong:  s.count(start="x", stop=9), s.count(start=2, stop=1.5)

A value that the annotation admits may be taken or refused, any other must be refused. A refusal is an error that the
package raises on purpose: a TypeError or a ValueError, or one of those that the row adds. It names the argument, has at
most 500 characters and leaves the graphs among the arguments as they were.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import math
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

Admits = Callable[[Any], bool]


class Stranger:
    """A class of which no function has heard."""


WRONG: tuple[Any, ...] = (
    None,
    0,
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
    "x" * 10_000,
    b"",
    b"ab",
    Stranger(),
    Stranger,
    len,
    Ellipsis,
    slice(None),
    (),
    [],
    [None],
    [1.5],
    ["x"],
    [Stranger()],
    [0] * 300,
    {},
    {"x": 1},
    {"x": None},
    {7},
    np.array(2.0),
    np.array([1.5, 2.5]),
    np.array([Stranger()], object),
    np.zeros((2, 0)),
    iter(()),
)
"""What is neither a size, nor a sequence of sizes, nor a set, a region, a view, a tensor or a graph."""
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
    """Whether it is a row, or an iterator, which functions may take where they take sequences."""
    return hasattr(x, "__next__") or is_row(x, admits)


def is_collection(x: Any, admits: Admits) -> bool:
    return is_iterable(x, admits) or (isinstance(x, (set, frozenset, Mapping)) and all(map(admits, x)))


def is_hashable(x: Any) -> bool:
    """Whether it has a hash, which a tuple of lists has not."""
    try:
        hash(x)
    except TypeError:
        return False
    return True


def is_flag(x: Any) -> bool:
    return isinstance(x, (bool, np.bool_))


def is_dtype(x: Any) -> bool:
    """Whether NumPy makes a dtype of it."""
    try:
        np.dtype(x)
    except (TypeError, ValueError):
        return False
    return True


def is_number(x: Any) -> bool:
    own = isinstance(x, (int, float, np.integer, np.floating)) and not isinstance(x, bool)
    return own or (isinstance(x, np.ndarray) and not x.ndim and x.dtype.kind in "iuf")


ATOMS: dict[str, Admits] = {
    "None": lambda x: x is None,
    "NoneType": lambda x: x is None,
    "int": is_integer,
    "bool": lambda x: is_flag(x) or (type(x) is int and x in (0, 1)),  # truth values of ONNX
    "float": is_number,
    "str": lambda x: isinstance(x, str),
    "bytes": lambda x: isinstance(x, bytes),
    "Hashable": is_hashable,
    "Callable": callable,
    **dict.fromkeys(("ndarray", "NDArray"), lambda x: isinstance(x, np.ndarray)),
    "PathLike": lambda x: isinstance(x, os.PathLike),
    "type": lambda x: isinstance(x, type),
    "Any": lambda x: True,
    "object": lambda x: True,
}
"""Annotations of Python's own, and whether they admit a value."""
SEVERAL: dict[str, Callable[[Any, Admits], bool]] = {
    **dict.fromkeys(("Sequence", "list"), is_iterable),
    **dict.fromkeys(("Iterable", "Collection"), is_collection),
}
"""Annotations of what holds values of one kind."""


def alternatives(annotation: str, bar: str = "|") -> list[str]:
    """What stands between the bars of an annotation that are in no brackets.

    >>> alternatives("int | Sequence[int | None] | None")
    ['int', 'Sequence[int | None]', 'None']
    """
    found, depth = [""], 0
    for letter in annotation:
        depth += (letter == "[") - (letter == "]")
        if letter == bar and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [one.strip() for one in found]


def words_of(annotation: object) -> str:
    """An annotation as it is written, or would be; nothing of a function that takes its place."""
    if isinstance(annotation, str):
        return annotation
    return "" if inspect.isfunction(annotation) else inspect.formatannotation(annotation)


def admits(annotation: str, known: Mapping[str, Admits], names: Mapping[str, Any]) -> Admits:
    """What an annotation admits; `known` tells of some names, and `names` what others mean in its module."""
    every = [_admits_one(one, known, names) for one in alternatives(annotation)]
    return lambda x: any(one(x) for one in every)


def _admits_one(one: str, known: Mapping[str, Admits], names: Mapping[str, Any]) -> Admits:
    name, bracket, inside = one.strip("'\"").partition("[")
    if one in known:
        return known[one]
    name = name.rpartition(".")[2]
    if name in known:
        return known[name]
    parts = [] if name in ("Literal", "Callable") else alternatives(inside[:-1], ",")
    if name == "Literal":
        listed = ast.literal_eval(f"[{inside}")
        return lambda x: any(type(x) is type(each) and x == each for each in listed)
    if name in SEVERAL and bracket:
        item = admits(parts[0], known, names)
        return lambda x: SEVERAL[name](x, item)
    if name == "tuple" and bracket:
        return _admits_tuple([admits(part, known, names) for part in parts if part != "..."], parts[-1] == "...")
    if name in ("Mapping", "dict") and bracket:
        key, value = (admits(part, known, names) for part in parts)
        return lambda x: isinstance(x, Mapping) and all(key(k) and value(v) for k, v in x.items())
    if name in ATOMS:
        return ATOMS[name]
    return _admits_named(one.partition("[")[0].strip("'\""), known, names)


def _admits_tuple(items: Sequence[Admits], several: bool) -> Admits:
    if several:
        return lambda x: is_iterable(x, items[0])

    def admits_all(x: Any) -> bool:
        is_long = is_row(x, lambda _: True) and len(x) == len(items)
        return is_long and all(one(y) for one, y in zip(items, x, strict=True))

    return admits_all


def _admits_named(one: str, known: Mapping[str, Admits], names: Mapping[str, Any]) -> Admits:
    """A class admits its objects, a protocol what has its methods, and the name of an annotation what that admits."""
    first, *further = one.split(".")
    module, _, last = one.rpartition(".")
    meant = reduce(getattr, further, names[first]) if first in names else getattr(sys.modules.get(module), last, None)
    if meant is None:
        raise LookupError(f"no row says which values {one!r} admits")
    if not isinstance(meant, type) or inspect.isroutine(meant) or hasattr(meant, "__args__"):
        return admits(words_of(getattr(meant, "__value__", meant)), known, names)
    if getattr(meant, "_is_protocol", False):
        return callable if "__call__" in vars(meant) else lambda x: False
    return lambda x: isinstance(x, meant)


# ------------------------------------------------------------------------------------------------ one right call


@dataclass
class Row:
    """One right call.

    Parameters
    ----------
    call : callable
    given : callable
        Makes the right arguments by parameter name, those of ``*args`` as a sequence and of ``**kwargs`` as a mapping.
    takes : mapping
        What parameters admit, in place of the written annotations: others, or functions of a value.
    refuses : mapping
        Further values of a parameter, which must be refused though the annotation admits them.
    says : mapping
        Words, as a pattern, by which errors name a parameter; its name by default.
    raises : tuple of exceptions
        Documented errors beside TypeError and ValueError.
    by_type : bool
        Whether errors may name a parameter by the type of its value, and need not name it where it is admitted: for
        functions whose operands have no names, or whose arguments fit each other or not.
    skips : collection of str
        Parameters that are not replaced.
    known : mapping
        What names in annotations admit; others are looked up in the module of the call.
    """

    call: Callable[..., Any]
    given: Callable[[], dict[str, Any]] = dict
    takes: Mapping[str, str | Admits] = field(default_factory=dict)
    refuses: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    says: Mapping[str, str] = field(default_factory=dict)
    raises: tuple[type[Exception], ...] = ()
    by_type: bool = False
    skips: Collection[str] = ()
    known: Mapping[str, Admits] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.signature = list(inspect.signature(self.call).parameters.values())
        self.kept: dict[str, Any] | None = None

    def right(self) -> dict[str, Any]:
        """The right arguments, made anew where a call was taken, which may have changed them."""
        if self.kept is None:
            self.kept = self.given()
        return self.kept

    def parameters(self) -> list[inspect.Parameter]:
        """Those that are replaced."""
        return [p for p in self.signature if p.name not in self.skips and p.name != "self" and p.name[0] != "_"]

    def admits(self, parameter: inspect.Parameter) -> Admits:
        """What a parameter admits."""
        written = self.takes.get(parameter.name, parameter.annotation)
        if inspect.isfunction(written):
            return written
        call = inspect.unwrap(self.call)
        names = getattr(call, "__globals__", None) or vars(sys.modules[call.__module__])
        return admits(words_of(written), self.known, names)


def signature_of(call: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(call).parameters.values())


def ask(row: Row, given: Mapping[str, Any]) -> Any:
    """The call with arguments by name; a context that it gives is entered."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    positional = True
    for p in row.signature:
        if p.name not in given:
            positional = positional and p.kind is p.VAR_POSITIONAL
            continue
        value = given[p.name]
        if p.kind is p.VAR_POSITIONAL:
            args += value
        elif p.kind is p.VAR_KEYWORD:
            named |= value
        elif p.kind is p.POSITIONAL_ONLY or (positional and p.kind is not p.KEYWORD_ONLY):
            args.append(value)
        else:
            named[p.name] = value
    answer = row.call(*args, **named)
    if isinstance(answer, AbstractContextManager):
        with answer:
            pass
    return answer


def replacements(p: inspect.Parameter, value: Any, right: Any) -> Iterator[Any]:
    """The arguments with one replaced: of several that one parameter takes each in turn."""
    if p.kind is p.VAR_POSITIONAL:
        for k in range(max(1, len(right))):
            yield (*right[:k], value, *right[k + 1 :])
    elif p.kind is p.VAR_KEYWORD:
        for name in right:
            yield {**right, name: value}
    else:
        yield value


# ------------------------------------------------------------------------------------------------ what is wrong


def is_on_purpose(error: BaseException) -> bool:
    """Whether an error comes from a `raise` that stands in a package of ours: others are met by chance."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None or "/tapestry_" not in at.tb_frame.f_code.co_filename:
        return False
    return linecache.getline(at.tb_frame.f_code.co_filename, at.tb_lineno).lstrip().startswith("raise ")


def names_argument(said: str, name: str, words: str) -> bool:
    """Whether a message names an argument, in the singular or plural, or by words of its row."""
    own = f"{re.escape(name.removesuffix('s'))}s?"
    return re.search(rf"(?<![a-zA-Z_])(?:{own})(?![a-zA-Z_])" + (f"|{words}" if words else ""), said) is not None


def graphs_in(values: Any) -> list[Any]:
    """The graphs that stand among arguments, or behind tensors among them."""
    found = []
    for value in values:
        if isinstance(value, list | tuple):
            found += graphs_in(value)
        graph = value if hasattr(value, "selections") else getattr(value, "graph", None)
        if hasattr(graph, "selections"):
            found.append(graph)
    return found


def state_of(graphs: Sequence[Any]) -> list[tuple[list[str], ...]]:
    return [tuple(map(list, (g.stored, g.selections, g.nodes, g.outputs))) for g in graphs]


def check(row: Row, parameter: inspect.Parameter, value: Any, must: bool) -> str:
    """What is wrong with how a call with one wrong argument ends; empty where nothing is."""
    for replaced in replacements(parameter, value, row.right().get(parameter.name, ())):
        right = row.right()
        graphs = graphs_in(right.values())
        before = state_of(graphs)
        try:
            ask(row, {**right, parameter.name: replaced})
        except Exception as error:
            words = row.says.get(parameter.name, "")
            if row.by_type:
                words = f"{words or parameter.name}|{re.escape(type(value).__name__)}" if must else "."
            if fault := fault_of(error, parameter.name, words, row.raises):
                return fault
            if state_of(graphs) != before:
                return "the graph is changed"
        else:
            row.kept = None
            if must:
                return "is taken in silence"
    return ""


def fault_of(error: Exception, name: str, words: str = "", raises: tuple[type[Exception], ...] = ()) -> str:
    """What is wrong with an error; `words` name the argument beside its name."""
    said = str(error)
    if not isinstance(error, (TypeError, ValueError, *raises)) or (
        not is_on_purpose(error) and not isinstance(error, OSError)
    ):
        return f"dies of {type(error).__name__}: {said[:300]}"
    if not names_argument(said, name, words):
        return f"{type(error).__name__} does not name it: {said[:300]}"
    if len(said) > LONGEST and not isinstance(error, OSError):  # which has the path that was asked for
        return f"the message has {len(said)} characters: {said[:200]}"
    return ""


def faults_of(name: str, row: Row) -> list[str]:
    """All that is wrong with a function, one line for each wrong argument."""
    found = []
    for p in row.parameters():
        is_admitted = row.admits(p)
        takes_calls = "Callable" in words_of(row.takes.get(p.name, p.annotation))  # what a function raises is its own
        cases = [(value, not is_admitted(value)) for value in WRONG if not (takes_calls and callable(value))]
        cases += [(value, True) for value in row.refuses.get(p.name, ())]
        if p.default is not p.empty:
            cases = [(value, must) for value, must in cases if value is not p.default]
        for value, must in cases:
            if fault := check(row, p, value, must):
                shown = repr(value) if len(repr(value)) < 60 else f"{type(value).__name__} of {len(value)}"
                found.append(f"{name}: {p.name}={shown}: {fault}")
    return found
