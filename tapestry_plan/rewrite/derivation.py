"""Rewrites of graphs: rules that apply anywhere, a working copy that they edit, derivations that can be replayed.

A rule looks at a place of a graph and either edits the graph there, so that it computes what it did before, or
refuses with the reason. It edits a `Draft`: a graph that knows who reads each tensor, so that an edit costs what it
changes and not what the graph is long. `rewrite` makes a draft of its own for one rule; `Derivation.replay` makes one
for all of its steps. The graph given is never changed.

What no rule touches keeps its name. A tensor that a rule makes in another way keeps its name too, and so do outputs
and their labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from tapestry_plan.ir import Graph, Shown, finite, from_finite
from tapestry_plan.rewrite.draft import Draft, NotApplicable, Rewrite
from tapestry_sets.limits import (
    FrozenDict,
    Public,
    check_arguments,
    cut_text,
    freeze_dicts,
    list_names,
    put_item,
    quote,
    read_fields,
    read_json,
    tell_count,
)

DERIVATION_FORMAT = "tapestry-derivation/1"
ANEW = "write it anew with Derivation.to_json, from the program that made the steps with Derivation().then(...)"


# -- rules -----------------------------------------------------------------------------------------------


class Rule(Struct, frozen=True, metaclass=Public):
    """A rewrite that applies at places of graphs.

    Parameters
    ----------
    name : str
    requires : str
        What must hold at a place.
    keeps : str
        What is the same afterwards, and in which sense.
    edit : callable
        ``(draft, at, **arguments)``: edits the draft at a place, or raises NotApplicable where its conditions fail
        there. A ValueError says that an argument is wrong at any place; it reaches the caller, as faults do.
    places : callable
        The places of a graph that the rule looks at: its nodes by default.

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> from tapestry_plan.ops import linear
    >>> from tapestry_plan.rewrite import shard
    >>> g = Graph()
    >>> x, w = g.input("x", (100, 4)), g.input("w", (4, 6))
    >>> y = g.output(linear(x, w, name="y"))
    >>> print(shard.apply(g, "y", axis="batch", parts=2).draw())
    graph graph
      input    x: float32[100, 4]
      input    w: float32[4, 6]
      view     y.0.slice: [50, 4] = slice(x)
      op       y.0: [50, 6] = part(linear)(y.0.slice, w)
      view     y.1.slice: [50, 4] = slice(x)
      op       y.1: [50, 6] = part(linear)(y.1.slice, w)
      view     y: [100, 6] = concat(y.0, y.1)
      output   y = y

    References
    ----------
    Tapestry, "Sharding": rewrites; onnx-ir, passes: what a pass requires and ensures.
    """

    name: str
    requires: str
    keeps: str
    edit: Callable[..., None]
    places: Callable[[Graph], Iterable[str]] = attrgetter("nodes")

    @check_arguments
    def apply(self, graph: Graph, at: str, **arguments: Any) -> Graph:
        """A new graph in which the rule is applied at a place; the graph given stays as it is.

        Raises
        ------
        NotApplicable
            With the reason, when its conditions fail there.
        ValueError
            For an argument that would be wrong at any place.
        """
        return rewrite(graph, self, at, **arguments).graph

    def on(self, draft: Draft, at: str, **arguments: Any) -> None:
        """Apply the rule to a draft, wholly or not at all."""
        try:
            with draft.edit():
                self.edit(draft, at, **arguments)
        except NotApplicable as error:
            raise NotApplicable(f"{self.name} at {quote(at)}: {error}") from None


RULES: dict[str, Rule] = FrozenDict()
"""The rules by name; the module `tapestry_plan.rewrite.rules` fills it."""


def rule(
    requires: str, keeps: str, places: Callable[[Graph], Iterable[str]] = attrgetter("nodes")
) -> Callable[[Callable[..., None]], Rule]:
    """Make a rule of the function that edits a draft, under the function's name, and add it to `RULES`.

    What is asked of it is checked against the function's annotations: a wrong type is a TypeError that names it.
    """

    def made(edit: Callable[..., None]) -> Rule:
        found = Rule(edit.__name__, requires, keeps, check_arguments(edit), places)
        put_item(RULES, found.name, found)
        return found

    return made


@check_arguments
def rewrite(graph: Graph, rule: Rule, at: str, **arguments: Any) -> Rewrite:
    """Apply a rule at a place of a graph.

    Parameters
    ----------
    graph : Graph
        Not changed.
    rule : Rule
    at : str
        The place: a node, or for rules about selections a selection.
    **arguments
        The rule's own.

    Raises
    ------
    NotApplicable
        With the reason, when the rule's conditions fail there.
    ValueError
        For an argument that would be wrong at any place.
    """
    draft = Draft(graph)
    rule.on(draft, at, **arguments)
    return Rewrite(rule.name, draft.done() if draft.is_changed else graph, draft.changes(at))


@check_arguments
def find(graph: Graph, rule: Rule, **arguments: Any) -> list[str]:
    """The places of a graph at which a rule applies with the given arguments.

    Raises
    ------
    ValueError
        For an argument that would be wrong at any place.

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> from tapestry_plan.ops import linear, relu
    >>> from tapestry_plan.rewrite import shard
    >>> g = Graph()
    >>> _ = g.output(relu(linear(g.input("x", (4, 3)), g.input("w", (3, 5)), name="fc"), name="act"))
    >>> find(g, shard, axis="in", parts=2), find(g, shard, axis="i0", parts=2)
    (['fc'], ['act'])
    """
    draft, found = Draft(graph), []
    for at in list(rule.places(graph)):
        try:
            rule.on(draft, at, **arguments)
        except NotApplicable:
            continue
        draft.undo()
        found.append(at)
    return found


# -- derivations -----------------------------------------------------------------------------------------


class Applied(Struct, frozen=True, forbid_unknown_fields=True):
    """One step of a derivation: a rule, by name, at a place, with arguments."""

    rule: str
    at: str
    arguments: Mapping[str, Any]

    def __post_init__(self) -> None:
        force_setattr(self, "arguments", freeze_dicts(self.arguments))


class _Document(Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON document of a derivation."""

    format: str
    steps: tuple[Applied, ...]


class Derivation(Shown, Struct, frozen=True, metaclass=Public):
    """A sequence of rewrites that can be written down and applied again.

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> from tapestry_plan.ops import linear, relu
    >>> from tapestry_plan.rewrite import forward, shard
    >>> g = Graph()
    >>> _ = g.output(relu(linear(g.input("x", (4, 3)), g.input("w", (3, 5)), name="fc"), name="act"))
    >>> steps = Derivation().then(shard, "fc", axis="batch", parts=2).then(forward, "act")
    >>> [node.op for node in steps.replay(g).order()]
    ['part(linear)', 'part(linear)', 'part(relu)', 'part(relu)']
    >>> Derivation.from_json(steps.to_json()) == steps
    True
    """

    steps: tuple[Applied, ...] = ()

    def __repr__(self) -> str:
        count = len(self.steps)
        ends = (*self.steps[:1], *self.steps[1:][-1:])
        shown = f"{', …' if count > 2 else ''}, ".join(
            f"{cut_text(one.rule, 30)} at {cut_text(quote(one.at), 50)}" for one in ends
        )
        return f"Derivation({tell_count(count, 'step')}{': ' * bool(ends)}{shown})"

    @check_arguments
    def then(self, rule: Rule | str, at: str, **arguments: Any) -> Derivation:
        """The derivation with one more step."""
        name = rule if isinstance(rule, str) else rule.name
        plain = {key: from_finite(finite(value)) for key, value in sorted(arguments.items())}
        return Derivation((*self.steps, Applied(name, at, plain)))

    @check_arguments
    def replay(self, graph: Graph, rules: Mapping[str, Rule] | None = None) -> Graph:
        """Apply all steps to a graph, on one working copy.

        Parameters
        ----------
        graph : Graph
            Not changed.
        rules : mapping, optional
            Rules beyond those that come along, by name.

        Raises
        ------
        NotApplicable
            Naming the step that does not apply.
        ValueError
            For a step's argument that would be wrong at any place.
        """
        known = {**RULES, **(rules or {})}
        draft = Draft(graph)
        for number, step in enumerate(self.steps):
            if step.rule not in known:
                near = list_names(sorted(known), step.rule, "rules")
                raise NotApplicable(f"step {number}: there is no rule {quote(step.rule)}; {near}")
            try:
                known[step.rule].on(draft, step.at, **step.arguments)
            except NotApplicable as error:
                raise NotApplicable(f"step {number}: {error}") from None
        return draft.done()

    def to_json(self) -> str:
        """The derivation as a JSON document."""
        steps = [
            {"rule": s.rule, "at": s.at, "arguments": {k: finite(v) for k, v in s.arguments.items()}}
            for s in self.steps
        ]
        return msgspec.json.encode({"format": DERIVATION_FORMAT, "steps": steps}).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Derivation:
        """A derivation from its JSON document.

        Raises
        ------
        ValueError
            For text that is not JSON, another format or version, and where a field is missing, unknown or of the wrong
            type, with its place.
        """
        document = read_json(text, "derivation", DERIVATION_FORMAT, ANEW)
        read = read_fields(document, _Document, "derivation", ANEW)
        plain = ({key: from_finite(value) for key, value in step.arguments.items()} for step in read.steps)
        return cls(tuple(Applied(step.rule, step.at, given) for step, given in zip(read.steps, plain, strict=True)))
