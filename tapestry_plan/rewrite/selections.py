"""Rewrites of selections: shorter cascades, and cascades cut between holder and consumer.

Each is a plain function that takes a graph and returns a `Rewrite`: a new graph that computes the same, and what
changed. The graph given stays as it is.
"""

from __future__ import annotations

from tapestry_plan.ir import Graph, Tensor
from tapestry_plan.rewrite.draft import Change, Draft, Rewrite
from tapestry_plan.rewrite.motion import (
    DeviceName,
    Placement,
    check_selection,
    list_cascade,
    motion,
    selected_view,
    shorten,
)
from tapestry_sets.limits import check_arguments
from tapestry_sets.views import Allocation, Derived, View, sort_views


@check_arguments
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
    check_selection(graph, name, "simplify_selection")
    draft = Draft(graph)
    changes = simplify_in(draft, name)
    return Rewrite("simplify_selection", draft.done() if changes else graph, changes)


@check_arguments
def simplify_selections(graph: Graph) -> Rewrite:
    """Return a graph in which `simplify_selection` has been done to each selection at the end of a cascade."""
    draft = Draft(graph)
    changes = tuple(change for name in _ends(graph) if name in draft.selections for change in simplify_in(draft, name))
    return Rewrite("simplify_selections", draft.done() if changes else graph, changes)


def simplify_in(draft: Draft, name: str) -> tuple[Change, ...]:
    """Make a selection of a draft the shortest cascade; return the change, nothing where it was the shortest."""
    before, changed = _labels(draft, name), False
    while name in draft.selections:  # a cascade built anew may itself have a shorter one
        view = selected_view(draft, name)
        simple = shorten(view)
        if simple is view:
            break
        _rebuild(draft, name, simple)
        changed = True
    return (Change(name, before, _labels(draft, name)),) if changed else ()


@check_arguments
def move_selection(graph: Graph, name: str, placement: Placement, consumer: DeviceName) -> Rewrite:
    """Return a graph in which the holders of a selection pack its cells and the consumer unpacks them; see `motion`.

    Raises
    ------
    ValueError, TooManyPieces
        As `motion` does.
    """
    draft = Draft(graph)
    move_in(draft, name, placement, consumer)
    return Rewrite("move_selection", draft.done(), (Change(name, _labels(graph, name), _labels(draft, name)),))


def move_in(draft: Draft, name: str, placement: Placement, consumer: DeviceName) -> None:
    """Let the holders of a draft's selection pack its cells and the consumer unpack them."""
    _rebuild(draft, name, motion(draft, name, placement, consumer).composed())


def _labels(graph: Graph, name: str) -> tuple[str, ...]:
    return tuple(graph.selections[n].label for n in list_cascade(graph, name) if n in graph.selections)


def _ends(graph: Graph) -> list[str]:
    """The selections that an operator reads, that are outputs, or that no other selection reads."""
    read = {name for node in graph.nodes.values() for name in node.inputs} | set(graph.outputs.values())
    inner = {name for selection in graph.selections.values() for name in selection.inputs}
    return [name for name in graph.selections if name in read or name not in inner]


def _rebuild(draft: Draft, name: str, view: View) -> None:
    """Put another cascade, a view of memory under the names of stored tensors, in place of a selection."""
    if isinstance(view, Allocation):
        draft.replace(name, draft.tensor(view.name))
        draft.sweep([name])
        return
    old = draft.take(name)
    tensors: dict[int, Tensor] = {}
    for v in sort_views(view):
        if isinstance(v, Derived):
            below = [tensors[id(source)] for source in v.sources]
            tensors[id(v)] = draft.select(v.kind, *below, name=name if v is view else f"{name}.{len(tensors)}")
        else:
            assert isinstance(v, Allocation), "something stands for each allocation"
            tensors[id(v)] = draft.tensor(v.name)
    draft.forget(name)
    draft.sweep(old.inputs)
