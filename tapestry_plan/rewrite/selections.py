"""Rewrites of selections: shorter cascades, and cascades cut between holder and consumer.

Each is a plain function that takes a graph and returns a `Rewrite`: a new graph that computes the same, and what
changed. The graph given stays as it is.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import Graph, Tensor
from tapestry_plan.rewrite.motion import (
    DeviceName,
    Placement,
    list_cascade,
    motion,
    selected_view,
    selection_named,
    shorten,
)
from tapestry_sets.views import Allocation, Derived, View, sort_views


class Change(Struct, frozen=True):
    """What a rewrite did to one selection: the labels of its cascade before and after, nearest to memory first."""

    selection: str
    before: tuple[str, ...]
    after: tuple[str, ...]


class Rewrite(Struct, frozen=True):
    """A graph that computes what another one does, and how it came about.

    Parameters
    ----------
    rule : str
        The name of the rewrite.
    graph : Graph
        The one given, if nothing changed.
    changes : tuple of Change
    """

    rule: str
    graph: Graph
    changes: tuple[Change, ...]


def simplify_selection(graph: Graph, name: str) -> Rewrite:
    """Return a graph in which a selection is the shortest cascade of atomic selections over stored tensors.

    Slices go below what copies and joins, so that only cells that are seen are read; parts of one tensor that are
    joined in order become one part; what changes nothing goes away. Cells stay the same, and so do the names of the
    selection, of the tensors and of the operators; `graph` is not changed. Of two cascades of one length the one with
    fewer cells in between counts as shorter.

    Raises
    ------
    ValueError
        If the graph has no selection of that name.

    Examples
    --------
    >>> from tapestry_plan import concat
    >>> g = Graph()
    >>> x, y = g.input("x", (8, 6)), g.input("y", (8, 6))
    >>> found = simplify_selection(g, g.output(concat([x, y], 1)[2:, 1:4]).name)
    >>> found.changes
    (Change(selection='slice', before=('concat', 'slice'), after=('slice',)),)
    >>> print(found.graph.draw())
    graph graph
      input    x: float32[8, 6]
      input    y: float32[8, 6]
      view     slice: [6, 3] = slice(x)
      output   slice = slice
    """
    selection_named(graph, name, "simplify_selection")
    made = graph
    while name in made.selections:  # a cascade built anew may itself have a shorter one
        view = selected_view(made, name)
        simple = shorten(view)
        if simple is view:
            break
        made = _replace(made, name, simple)
    if made is graph:
        return Rewrite("simplify_selection", graph, ())
    return Rewrite("simplify_selection", made, (Change(name, _labels(graph, name), _labels(made, name)),))


def simplify_selections(graph: Graph) -> Rewrite:
    """Return a graph in which `simplify_selection` has been done to each selection at the end of a cascade."""
    changes: list[Change] = []
    made = graph
    for name in _ends(graph):
        if name in made.selections:
            found = simplify_selection(made, name)
            made, changes = found.graph, [*changes, *found.changes]
    return Rewrite("simplify_selections", made, tuple(changes))


def move_selection(graph: Graph, name: str, placement: Placement, consumer: DeviceName) -> Rewrite:
    """Return a graph in which a selection is what its holders pack and what the consumer makes of that; see `motion`.

    Raises
    ------
    ValueError, TooManyPieces
        As `motion` does.
    """
    made = _replace(graph, name, motion(graph, name, placement, consumer).composed())
    return Rewrite("move_selection", made, (Change(name, _labels(graph, name), _labels(made, name)),))


def _labels(graph: Graph, name: str) -> tuple[str, ...]:
    return tuple(graph.selections[n].label for n in list_cascade(graph, name) if n in graph.selections)


def _ends(graph: Graph) -> list[str]:
    """The selections that an operator reads, that are outputs, or that no other selection reads."""
    read = {name for node in graph.nodes.values() for name in node.inputs} | set(graph.outputs.values())
    inner = {name for selection in graph.selections.values() for name in selection.inputs}
    return [name for name in graph.selections if name in read or name not in inner]


def _replace(graph: Graph, name: str, view: View) -> Graph:
    """The graph with another cascade, a view of memory under the names of stored tensors, in place of a selection."""
    made = Graph(graph.name, graph.ops)
    made.stored, made.nodes, made.outputs = dict(graph.stored), dict(graph.nodes), dict(graph.outputs)
    made.selections = {n: s for n, s in graph.selections.items() if n != name}
    tensors: dict[int, Tensor] = {}
    for v in sort_views(view):
        if isinstance(v, Allocation):
            tensors[id(v)] = made.tensor(v.name)
        else:
            assert isinstance(v, Derived), "something stands for each allocation"
            below = [tensors[id(source)] for source in v.sources]
            tensors[id(v)] = made.select(v.kind, *below, name=name if v is view else f"{name}.{len(tensors)}")
    if isinstance(view, Allocation):
        _redirect(made, name, view.name)
    _drop_unread(made, graph, name)
    return made


def _drop_unread(made: Graph, graph: Graph, name: str) -> None:
    """Take away the selections that only the old cascade of `name` read."""
    before, readers = _readers(graph), _readers(made)
    for below in reversed(list_cascade(graph, name)):
        if below in made.selections and before[below] and not readers[below]:
            readers.subtract(made.selections.pop(below).inputs)


def _readers(graph: Graph) -> Counter[str]:
    """How often each tensor is read, by operators, selections and as an output."""
    nodes = (name for node in graph.nodes.values() for name in node.inputs)
    selections = (name for selection in graph.selections.values() for name in selection.inputs)
    return Counter([*graph.outputs.values(), *nodes, *selections])


def _redirect(graph: Graph, old: str, new: str) -> None:
    """Let whatever reads one tensor read another."""

    def names(inputs: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in inputs)

    graph.nodes = {n: replace(node, inputs=names(node.inputs)) for n, node in graph.nodes.items()}
    graph.selections = {n: replace(s, inputs=names(s.inputs)) for n, s in graph.selections.items()}
    graph.outputs = {label: new if name == old else name for label, name in graph.outputs.items()}
