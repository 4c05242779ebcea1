"""An operator that runs again for late readers, so that nothing has to keep its results in between: `unify`, reversed.

::

    x ─► relu ─► h ─┬─► product ─► … ─► gradient ─┐         h is kept all along
                    └─────────────────────────────┴─►
    x ─┬─► relu ─► h ─► product ─► … ─► gradient ─┐         x is, which may be needed anyway
       └────────────────────────► relu ─► h_1 ────┴─►
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tapestry_plan.ir import Graph
from tapestry_plan.rewrite.derivation import rule
from tapestry_plan.rewrite.draft import Draft, NotApplicable
from tapestry_sets.limits import list_names, quote


@rule(requires="an operator whose results several operators read", keeps="values to the bit")
def recompute(draft: Draft, at: str, by: Sequence[str] = (), name: str | None = None) -> None:
    """Let some readers of an operator's results read those of a second one like it.

    Parameters
    ----------
    at : str
        The operator.
    by : sequence of str
        The operators that read the second one, through the same views; by default all but the first.
    name : str, optional
        Of the second one, and of what it makes; no other may have it.
    """
    node, readers = draft.node(at), list_readers(draft, at)
    if len(readers) < 2:
        raise NotApplicable("no two operators read it")
    for one in by:
        if one not in readers:
            raise NotApplicable(f"{quote(one)} reads none of its results; {list_names(readers, one, 'readers')}")
    if name is not None:
        draft.check_free(name, "node", "name")
        for one in [name] if len(node.outputs) == 1 else [f"{name}.{k}" for k in range(len(node.outputs))]:
            draft.check_free(one, "tensor", "name")
    made = draft.repeat(node, name)
    again = dict(zip(node.outputs, made, strict=True))
    for one in by or readers[1:]:
        reader = draft.nodes[one]
        draft.reread(reader, tuple(_read_again(draft, tensor, again) for tensor in reader.inputs))


def list_readers(graph: Graph, at: str) -> list[str]:
    """The operators that read another one's results, through views or not, in the order of the graph."""
    made = set(graph.nodes[at].outputs)
    return [n.name for n in graph.nodes.values() if any(made & set(graph.source(t).stored) for t in n.inputs)]


def _read_again(draft: Draft, tensor: str, again: Mapping[str, str]) -> str:
    """A tensor with others in place of some, which are behind it."""
    if tensor in again:
        return again[tensor]
    selection = draft.selections.get(tensor)
    if selection is None or again.keys().isdisjoint(draft.source(tensor).stored):
        return tensor
    return draft.look_at(selection, tuple(_read_again(draft, one, again) for one in selection.inputs))
