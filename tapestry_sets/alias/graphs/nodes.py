"""The nodes of an alias graph, each memory or a view of others by number, and their JSON form."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from graphlib import CycleError, TopologicalSorter
from math import isfinite
from typing import Annotated, Any

import msgspec

from tapestry_sets.alias import tuning
from tapestry_sets.limits import Value, cut_text, put_fields, quote, read_fields, read_json
from tapestry_sets.views import Shape, ViewKind, kind_from_dict, kind_to_dict

FORMAT = "tapestry-alias-graph/3"
MEND = "write the graph anew with AliasGraph.to_json"


class Node(Value):
    """A tensor of an alias graph; names do not count in comparisons.

    Parameters
    ----------
    shape : tuple of int
    itemsize : int
        Bytes of a cell.
    kind : ViewKind or None
        What it makes of its inputs; None for memory of its own.
    inputs : tuple of int
        Numbers of the nodes that it reads.
    color : hashable
        Of memory; None for a view.
    name : str
        Empty for none.
    """

    __slots__ = ("color", "inputs", "itemsize", "kind", "name", "shape")
    __match_args__ = ("shape", "itemsize", "kind", "inputs", "color")

    shape: Shape
    itemsize: int
    kind: ViewKind | None
    inputs: tuple[int, ...]
    color: Hashable
    name: str

    def __init__(
        self, shape: Shape, itemsize: int, kind: ViewKind | None, inputs: tuple[int, ...], color: Hashable, name: str
    ) -> None:
        put_fields(self, shape=shape, itemsize=itemsize, kind=kind, inputs=inputs, color=color, name=name)

    def replace(self, **fields: Any) -> Node:
        """Return a node with some other fields."""
        return Node(**{name: getattr(self, name) for name in self.__slots__} | fields)


def view_node(nodes: Sequence[Node], kind: ViewKind, inputs: tuple[int, ...]) -> Node:
    """Return the node of a kind over others, if they fit.

    Raises
    ------
    TypeError
        If `kind` is not a view kind.
    ValueError
        If there is no input, item sizes differ, or the shapes do not fit the kind.
    """
    if not isinstance(kind, ViewKind):
        raise TypeError(f"{quote(kind)} is not a view kind: it lacks out_shape and pieces")
    if not inputs:
        raise ValueError(f"{kind_text(kind)}: a view needs at least one input")
    sizes = [nodes[j].itemsize for j in inputs]
    if len(set(sizes)) > 1:
        raise ValueError(
            f"{kind_text(kind)}: inputs {quote(list(inputs))} have {quote(sizes)} bytes a cell; they must agree"
        )
    shape = tuple(kind.out_shape(tuple(nodes[j].shape for j in inputs)))
    return Node(shape, sizes[0], kind, inputs, None, "")


def kind_text(kind: ViewKind) -> str:
    """Return a kind as its class and the values of its fields, cut if long.

    Examples
    --------
    >>> from tapestry_sets.views import Concat
    >>> kind_text(Concat(1))
    'Concat(1)'
    """
    values: list[object] = [getattr(kind, name) for name in getattr(type(kind), "__match_args__", ())]
    text = f"{type(kind).__name__}({', '.join(map(quote, values))})"
    return cut_text(text, tuning.SHOWN_TEXT)


# ------------------------------------------------------------------------------------------------------- writing

Numbers = tuple[Annotated[int, msgspec.Meta(ge=0)], ...]


class MemoryEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node of its own memory in a document."""

    name: str
    shape: Numbers
    itemsize: Annotated[int, msgspec.Meta(ge=1)]
    color: Any


class ViewEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A view in a document."""

    name: str
    shape: Numbers
    kind: dict[str, Any]
    inputs: Numbers


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An alias graph."""

    format: str
    nodes: list[dict[str, Any]]


def to_json(nodes: Sequence[Node], indent: int | None = None) -> str:
    """Return nodes as a JSON document.

    Raises
    ------
    TypeError
        If a color has no JSON form; the message names the place.
    """
    import json  # where a document is written: few callers do

    entries = [_node_dict(nodes, i) for i in range(len(nodes))]
    return json.dumps({"format": FORMAT, "nodes": entries}, indent=indent, allow_nan=False)


def _node_dict(nodes: Sequence[Node], i: int) -> dict[str, Any]:
    node = nodes[i]
    out: dict[str, Any] = {"name": node.name, "shape": list(node.shape)}
    if node.kind is None:
        return out | {"itemsize": node.itemsize, "color": _color_to_json(node.color, f"nodes[{i}].color")}
    kind = kind_to_dict(node.kind, [nodes[j].shape for j in node.inputs])
    return out | {"kind": kind, "inputs": list(node.inputs)}


def _color_to_json(color: Hashable, where: str) -> Any:
    if color is None or type(color) in (str, int, bool) or (type(color) is float and isfinite(color)):
        return color
    if type(color) is tuple:
        return [_color_to_json(c, f"{where}[{k}]") for k, c in enumerate(color)]
    raise TypeError(
        f"{where}: {quote(color)} has no JSON form; use None, strings, bools, finite numbers, or tuples of them, as "
        "colors"
    )


# ------------------------------------------------------------------------------------------------------- reading


def from_json(text: str | bytes) -> list[Node]:
    """Return the nodes of a document of `to_json`.

    Raises
    ------
    ValueError
        For text that is not JSON, another format or version, and nodes that do not hold together; the message names
        the place.
    """
    document = read_json(text, "an alias graph's JSON", FORMAT, MEND, refuse_twins=True)
    found = read_fields(document, Document, "an alias graph's JSON", MEND)
    nodes = [_read_node(value, f"nodes[{i}]", len(found.nodes)) for i, value in enumerate(found.nodes)]
    _check_names(nodes)
    for i in _readers_last(nodes):
        _complete(nodes, i)
    return nodes


def _color_of_json(value: Any, where: str) -> Hashable:
    if isinstance(value, dict):
        raise ValueError(f"{where}: must be null, a string, a number, a bool, or a list of such, not {quote(value)}")
    if isinstance(value, list):
        return tuple(_color_of_json(v, f"{where}[{k}]") for k, v in enumerate(value))
    return value  # type: ignore[no-any-return]


def _read_node(value: dict[str, Any], where: str, count: int) -> Node:
    """A node whose own fields are right; the item size of a view is not known yet."""
    if "kind" not in value:
        memory = read_fields(value, MemoryEntry, where)
        color = _color_of_json(memory.color, f"{where}.color")
        return Node(memory.shape, memory.itemsize, None, (), color, memory.name)
    view = read_fields(value, ViewEntry, where)
    beyond = next((k for k, j in enumerate(view.inputs) if j >= count), None)
    if beyond is not None:
        raise ValueError(f"{where}.inputs[{beyond}]: must be a node's number below {count}, not {view.inputs[beyond]}")
    try:
        kind = kind_from_dict(view.kind)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}.kind: {error}") from None
    return Node(view.shape, 0, kind, view.inputs, None, view.name)


def _check_names(nodes: Sequence[Node]) -> None:
    first: dict[str, int] = {}
    for i, node in enumerate(nodes):
        if node.name and first.setdefault(node.name, i) < i:
            raise ValueError(f"nodes[{i}].name: {quote(node.name)} is the name of nodes[{first[node.name]}] too")


def _readers_last(nodes: Sequence[Node]) -> list[int]:
    """The nodes in an order in which each stands behind its inputs; a ValueError names a cycle."""
    try:
        return list(TopologicalSorter({i: node.inputs for i, node in enumerate(nodes)}).static_order())
    except CycleError as error:
        cycle = error.args[1][::-1]
        shown = " reads ".join(map(str, cycle[:10])) + (" …" if len(cycle) > 10 else "")
        where = f"nodes[{cycle[0]}].inputs[{nodes[cycle[0]].inputs.index(cycle[1])}]"
        raise ValueError(f"{where}: {shown}: that is a cycle") from None


def _complete(nodes: list[Node], i: int) -> None:
    """Check a view's shape, and give it its inputs' item size."""
    node = nodes[i]
    if node.kind is None:
        return
    try:
        made = view_node(nodes, node.kind, node.inputs)
    except (ValueError, IndexError) as error:
        raise ValueError(f"nodes[{i}].inputs: {error}") from None
    if made.shape != node.shape:
        given, right = list(node.shape), list(made.shape)
        raise ValueError(f"nodes[{i}].shape: is {given}, but the kind makes {right} of its inputs")
    nodes[i] = made.replace(name=node.name)
