"""Calls with one wrong argument each: what is not admitted is refused by an error that names the argument.

A `Row` gives one right call of a function. Each of its arguments in turn is replaced by each of the `WRONG` values,
and `check` calls it: a value that the annotation admits may be taken or refused, any other must be refused. A refusal
is a TypeError or a ValueError, or one of the errors that the row adds, names the argument, has at most 500 characters
and leaves the graphs among the arguments as they were.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class Stranger:
    """A class of which no function has heard."""


WRONG: tuple[Any, ...] = (
    None,
    True,
    5,
    -1,
    0,
    1.5,
    float("nan"),
    "x",
    "x" * 10_000,
    b"",
    [],
    {},
    Stranger(),
    Stranger,
    np.array([Stranger()], object),
    [0] * 10_000,
    ["x"],
    {"x": None},
)
TYPES: Mapping[type, str] = {
    bool: "bool",
    int: "int|float",
    float: "float",
    str: "str|Literal",
    bytes: "bytes",
    list: "Sequence|Iterable|Collection|list|tuple",
    dict: "Mapping|dict|Attrs|Iterable",
    np.ndarray: "ndarray|NDArray",
    Stranger: "Stranger",
    type: "type|Callable|Block",
    type(None): "None",
}
"""For each type of the wrong values the words of annotations that may admit it."""
ANYTHING = r"\b(?:Any|object)\b"


@dataclass
class Row:
    """One right call.

    Parameters
    ----------
    call : callable
    given : callable
        Makes the right arguments by parameter name, those of ``*args`` as a sequence and of ``**kwargs`` as a mapping.
    takes : mapping
        Annotations in place of the written ones, by parameter: what the documented protocol admits.
    refuses : mapping
        Further values of a parameter, which must be refused though the annotation admits them.
    says : mapping
        Words, as a pattern, by which errors name a parameter; its name by default.
    raises : tuple of exceptions
        Documented errors beside TypeError and ValueError.
    skips : sequence of str
        Parameters that are not replaced, such as a tensor operand that another test walks.
    """

    call: Callable[..., Any]
    given: Callable[[], dict[str, Any]] = dict
    takes: Mapping[str, str] = field(default_factory=dict)
    refuses: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    says: Mapping[str, str] = field(default_factory=dict)
    raises: tuple[type[Exception], ...] = ()
    skips: Sequence[str] = ()

    def parameters(self) -> list[inspect.Parameter]:
        """Those that are replaced."""
        return [p for p in signature_of(self.call) if p.name not in self.skips and p.name != "self"]

    def annotation(self, parameter: inspect.Parameter) -> str:
        """The words of a parameter's annotation, the aliases of its module spelled out."""
        written = self.takes.get(parameter.name, parameter.annotation)
        if parameter.name in self.takes or not isinstance(written, str):
            return str(written)
        names = getattr(inspect.unwrap(self.call), "__globals__", {})
        try:
            return f"{written} {eval(written, dict(names))}"
        except NameError:  # imported for type checkers alone
            return written


def signature_of(call: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(call).parameters.values())


def ask(row: Row, given: Mapping[str, Any]) -> Any:
    """The call with arguments by name."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    positional = True
    for p in signature_of(row.call):
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
    return row.call(*args, **named)


def replacements(p: inspect.Parameter, value: Any, right: Any) -> Iterator[Any]:
    """The arguments with one replaced: of several that one parameter takes each in turn."""
    if p.kind is p.VAR_POSITIONAL:
        for k in range(len(right)):
            yield (*right[:k], value, *right[k + 1 :])
    elif p.kind is p.VAR_KEYWORD:
        for name in right:
            yield {**right, name: value}
    else:
        yield value


def admits(annotation: str, value: Any) -> bool:
    """Whether an annotation, by its words, may admit a value of this type."""
    if re.search(ANYTHING, annotation):
        return True
    if type(value) is int and value in (0, 1) and "bool" in annotation:
        return True  # NumPy's truth values
    kind = next(kind for kind in TYPES if isinstance(value, kind) and (kind is not int or not isinstance(value, bool)))
    return re.search(rf"\b(?:{TYPES[kind]})\b", annotation) is not None


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
    right = row.given()
    for replaced in replacements(parameter, value, right.get(parameter.name, ())):
        graphs = graphs_in(right.values())
        before = state_of(graphs)
        try:
            ask(row, {**right, parameter.name: replaced})
        except (TypeError, ValueError, *row.raises) as error:
            said = str(error)
            word = row.says.get(parameter.name, rf"(?<![a-zA-Z]){parameter.name}(?![a-zA-Z])")
            if not re.search(word, said):
                return f"{type(error).__name__} does not name it: {said[:300]}"
            if len(said) > 500 and not isinstance(error, OSError):  # which has the path that was asked for
                return f"the message has {len(said)} characters: {said[:200]}"
            if state_of(graphs) != before:
                return "the graph is changed"
        except Exception as error:
            return f"dies of {type(error).__name__}: {str(error)[:300]}"
        else:
            if must:
                return "is taken in silence"
    return ""


def faults_of(name: str, row: Row) -> list[str]:
    """All that is wrong with a function, one line for each wrong argument."""
    found = []
    for p in row.parameters():
        annotation = row.annotation(p)
        cases = [(value, not admits(annotation, value)) for value in WRONG]
        cases += [(value, True) for value in row.refuses.get(p.name, ())]
        if p.default is not p.empty:
            cases = [(value, must) for value, must in cases if value is not p.default]
        for value, must in cases:
            if fault := check(row, p, value, must):
                shown = repr(value) if len(repr(value)) < 60 else f"{type(value).__name__} of {len(value)}"
                found.append(f"{name}: {p.name}={shown}: {fault}")
    return found
