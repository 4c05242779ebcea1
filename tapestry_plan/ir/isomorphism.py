"""Isomorphism: are two graphs the same but for the names of their nodes and tensors?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field

from tapestry_plan.ir.graph import Graph
from tapestry_plan.ir.tensors import OpNode, Selection, Stored, sha256_of
from tapestry_sets.limits import check_arguments

Vertex = tuple[str, str]
"""A kind of thing, "tensor", "view" or "node", and its name."""

Colors = dict[Vertex, int]


@check_arguments
def same_graph(one: Graph, other: Graph) -> bool:
    """Whether two graphs differ in nothing but names, and the order in which they were written.

    What counts: names, shapes and dtypes of inputs; values of constants, not where they are kept; operators, by name,
    with their attributes; selections with their labels; what reads what; and which tensors are outputs, by label. A
    value that is computed twice is not the same as one that is used twice.

    Parameters
    ----------
    one, other : Graph

    Raises
    ------
    TypeError
        If an argument is not a graph.
    ValueError
        For a graph with a cycle, or that reads what it does not have.

    Examples
    --------
    >>> from tapestry_plan import Graph, same_graph
    >>> from tapestry_plan.ops import relu
    >>> def chain(*names):
    ...     g = Graph()
    ...     x = g.input("x", (4,))
    ...     for name in names:
    ...         x = relu(x, name=name)
    ...     g.output(x, "y")
    ...     return g
    >>> same_graph(chain("a", "b"), chain("c", "d")), same_graph(chain("a"), chain("a", "b"))
    (True, False)

    Notes
    -----
    Vertices are colored by what they are made of and then by what reads them, in one pass each way, and the colors
    are refined until they are stable. That is linear but for values that are computed several times alike: of these
    one after the other is matched by trial.
    """
    a, b = _Wiring.of(one), _Wiring.of(other)
    numbers: dict[Hashable, int] = {}
    return _match(a, b, a.passes(numbers), b.passes(numbers), numbers)


class _Wiring(Struct):
    """What each vertex is, what it reads in order, and by what and as which operand it is read."""

    marks: dict[Vertex, Hashable] = field(default_factory=dict)
    reads: dict[Vertex, list[tuple[int, Vertex]]] = field(default_factory=dict)
    read_by: dict[Vertex, list[tuple[int, Vertex]]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph) -> _Wiring:
        found = cls()
        labels: dict[str, list[str]] = {}
        for label, name in graph.outputs.items():
            labels.setdefault(name, []).append(label)
        for name, stored in graph.stored.items():
            found.marks["tensor", name] = (*_stored_mark(stored), *sorted(labels.get(name, ())))
        for name, view in graph.selections.items():
            found.marks["view", name] = (*mark_of(view), *sorted(labels.get(name, ())))
        for name, node in graph.nodes.items():
            found.marks["node", name] = mark_of(node)
        found._join(graph)
        return found

    def _join(self, graph: Graph) -> None:
        self.reads = {vertex: [] for vertex in self.marks}
        self.read_by = {vertex: [] for vertex in self.marks}
        items: list[tuple[str, OpNode | Selection]] = [("node", node) for node in graph.nodes.values()]
        items += [("view", view) for view in graph.selections.values()]
        for kind, item in items:
            for at, name in enumerate(item.inputs):
                self._edge(("view" if name in graph.selections else "tensor", name), at, (kind, item.name))
            for at, name in enumerate(item.outputs if isinstance(item, OpNode) else ()):
                self._edge((kind, item.name), at, ("tensor", name))

    def _edge(self, source: Vertex, at: int, target: Vertex) -> None:
        if source not in self.marks or target not in self.marks:
            raise ValueError(f"same_graph: {source} or {target} is named, but not in the graph; validate() it")
        self.reads[target].append((at, source))
        self.read_by[source].append((at, target))

    def _in_order(self) -> Iterator[Vertex]:
        """The vertices, each after those that it reads."""
        left = {vertex: len(reads) for vertex, reads in self.reads.items()}
        ready = [vertex for vertex, count in left.items() if not count]
        for vertex in ready:  # it grows meanwhile
            yield vertex
            for _, reader in self.read_by[vertex]:
                left[reader] -= 1
                if not left[reader]:
                    ready.append(reader)
        if len(ready) < len(self.marks):
            knot = next(vertex for vertex, count in left.items() if count)
            raise ValueError(f"same_graph: {knot} is on a cycle, or behind one; validate() the graph")

    def passes(self, numbers: dict[Hashable, int]) -> Colors:
        """Colors by all that a vertex is made of, and then by all that is made of it."""
        order = list(self._in_order())
        down: Colors = {}
        for vertex in order:
            reads = tuple((at, down[source]) for at, source in self.reads[vertex])
            down[vertex] = _number(numbers, ("down", vertex[0], self.marks[vertex], reads))
        both: Colors = {}
        for vertex in reversed(order):
            read_by = tuple(sorted((at, both[reader]) for at, reader in self.read_by[vertex]))
            both[vertex] = _number(numbers, ("both", down[vertex], read_by))
        return both

    def refine(self, colors: Colors, numbers: dict[Hashable, int]) -> Colors:
        """Colors that tell apart what has neighbors of different colors."""
        return {
            vertex: _number(
                numbers,
                (
                    "near",
                    color,
                    tuple((at, colors[source]) for at, source in self.reads[vertex]),
                    tuple(sorted((at, colors[reader]) for at, reader in self.read_by[vertex])),
                ),
            )
            for vertex, color in colors.items()
        }


def _match(a: _Wiring, b: _Wiring, one: Colors, other: Colors, numbers: dict[Hashable, int]) -> bool:
    """Whether the vertices can be matched, color by color, such that neighbors are."""
    trials: list[Iterator[tuple[Colors, Colors]]] = [iter([(one, other)])]
    while trials:
        colors = next(trials[-1], None)
        if colors is None:
            trials.pop()
            continue
        stable = _stable(a, b, *colors, numbers)
        if stable is None:
            continue
        sizes = Counter(stable[0].values())
        if len(sizes) == len(stable[0]):
            return True
        trials.append(_trials(*stable, sizes, numbers))
    return False


def _stable(
    a: _Wiring, b: _Wiring, one: Colors, other: Colors, numbers: dict[Hashable, int]
) -> tuple[Colors, Colors] | None:
    """Colors refined until they tell neighbors apart; None where the graphs have different ones."""
    count = 0
    while True:
        sizes = Counter(one.values())
        if sizes != Counter(other.values()):
            return None
        if len(sizes) == count:
            return one, other
        count = len(sizes)
        one, other = a.refine(one, numbers), b.refine(other, numbers)


def _trials(
    one: Colors, other: Colors, sizes: Counter[int], numbers: dict[Hashable, int]
) -> Iterator[tuple[Colors, Colors]]:
    """One vertex of a color that several have, matched with each of that color in the other graph."""
    color = min((c for c, n in sizes.items() if n > 1), key=lambda c: (sizes[c], c))
    chosen = next(vertex for vertex, c in one.items() if c == color)
    apart = _number(numbers, ("apart", color, len(numbers)))
    for candidate in [vertex for vertex, c in other.items() if c == color]:
        yield {**one, chosen: apart}, {**other, candidate: apart}


def _number(numbers: dict[Hashable, int], what: Hashable) -> int:
    return numbers.setdefault(what, len(numbers))


def mark_of(item: OpNode | Selection) -> tuple[Hashable, ...]:
    """What an operator or a selection is, whatever it is called and reads: equal for two that do the same."""
    if isinstance(item, OpNode):
        return (item.op, *_freeze(item.attrs))
    return (item.label, item.shape, item.dtype, item.pieces)


def _stored_mark(stored: Stored) -> tuple[Hashable, ...]:
    own: Hashable = ""
    if stored.kind == "input":
        own = stored.name
    if stored.kind == "constant":
        own = stored.sha256 or sha256_of(stored.data)
    return (stored.kind, own, stored.shape, stored.dtype)


def _freeze(value: Any) -> tuple[Hashable, ...]:
    """A value as a key that tells 1 from 1.0 and from True, and 0.0 from -0.0; NaN is itself."""
    if isinstance(value, Mapping):
        return ("mapping", *sorted((str(key), _freeze(one)) for key, one in value.items()))
    if isinstance(value, list | tuple):
        return ("list", *map(_freeze, value))
    if isinstance(value, np.generic):
        return _freeze(value.item())
    return (type(value).__name__, value.hex() if isinstance(value, float) else repr(value))
