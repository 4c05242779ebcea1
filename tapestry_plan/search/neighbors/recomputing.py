"""Results that wait long for a late reader, and may rather be computed again: candidates where memory is short.

::

    x ─► exp ─► t ─┬─► many operators ─┐           t waits until the last one; where x, which t is made of, waits
                   └───────────────────┴─► ·       anyway, or is smaller, t can be made again

What is made again costs its work once more, and what it reads may have to wait instead. So of an operator whose results
wait, what it reads must wait longer anyway, or be less than they are, or be cheap to make again too. Products are not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, pairwise
from math import prod

from msgspec import Struct

from tapestry_plan.ir import Graph, OpNode
from tapestry_plan.rewrite import Draft, list_readers, recompute
from tapestry_plan.search import tuning
from tapestry_plan.search.neighbors.fusing import is_product_node
from tapestry_plan.steps import list_stored
from tapestry_sets.limits import FrozenDict, put_fields


class Late(Struct, frozen=True):
    """Readers of an operator that come late, for which it may run again.

    Parameters
    ----------
    node : str
        The operator.
    by : tuple of str
        The readers, as they run.
    before : tuple of str
        What runs again for that too: makers of what the operator reads.
    saved : int
        Bytes of its results, less those that have to wait in their place, times operators that they wait for.
    """

    node: str
    by: tuple[str, ...]
    before: tuple[str, ...]
    saved: int


def list_late(graph: Graph, pinned: Collection[str] = ()) -> list[Late]:
    """What may run again for late readers, that which saves the most first."""
    return sorted(_Waiting(graph, pinned).list_late(), key=lambda late: -late.saved)[: tuning.MAX_LATE]


class _Waiting:
    """How long the tensors of a graph wait."""

    def __init__(self, graph: Graph, pinned: Collection[str]) -> None:
        self.graph, self.pinned = graph, pinned
        self.order = graph.order()
        self.maker = {out: node for node in self.order for out in node.outputs}
        self.last: dict[str, int] = {}
        """Where the last operator that reads a stored tensor stands; the end for outputs."""
        self.readers: dict[str, list[int]] = {node.name: [] for node in self.order}
        """Where those stand that read an operator's results."""
        for k, node in enumerate(self.order):
            read = list_stored(graph, node.inputs)
            self.last.update(dict.fromkeys(read, k))
            for name in {self.maker[tensor].name for tensor in read if tensor in self.maker}:
                self.readers[name].append(k)
        self.last.update(dict.fromkeys(list_stored(graph, graph.outputs.values()), len(self.order)))
        self.place = {node.name: k for k, node in enumerate(self.order)}

    def list_late(self) -> Iterator[Late]:
        for node in self.order:
            if self._is_cheap(node) and not any(self.last.get(out) == len(self.order) for out in node.outputs):
                for before, group in self._list_groups(node):
                    here = self.place[group[0]]
                    found = self._count_waiting(node, here, tuning.MAX_DEPTH)
                    saved = sum(map(self._size, node.outputs)) - found[0] if found else 0
                    if found and saved > 0:
                        yield Late(node.name, group, found[1], saved * (here - before))

    def _is_cheap(self, node: OpNode) -> bool:
        is_opaque = self.graph.ops[node.op].opaque
        return node.name not in self.pinned and not is_opaque and not is_product_node(self.graph, node)

    def _size(self, name: str) -> int:
        tensor = self.graph.stored[name]
        return prod(tensor.shape) * tensor.itemsize

    def _list_groups(self, node: OpNode) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Readers that run one right after the other, but for the first ones; and where those before them stand."""
        places = self.readers[node.name]
        starts = [k for k, (one, two) in enumerate(pairwise(places), 1) if two - one > 1]
        for start, end in zip(starts, [*starts, len(places)][1:], strict=True):
            yield places[start - 1], tuple(self.order[k].name for k in places[start:end])

    def _count_waiting(self, node: OpNode, here: int, depth: int) -> tuple[int, tuple[str, ...]] | None:
        """Bytes that must wait so that an operator can run again somewhere, and what runs again before it."""
        nbytes, again = 0, list[str]()
        for name in list_stored(self.graph, node.inputs):
            if self.graph.stored[name].kind == "constant" or self.last[name] >= here:
                continue
            least, makers = self._size(name), list[str]()
            maker = self.maker.get(name)
            if maker is not None and depth > 1 and self._is_cheap(maker):
                found = self._count_waiting(maker, here, depth - 1)
                if found and found[0] < least:
                    least, makers = found[0], [maker.name, *found[1]]
            nbytes += least
            again += makers
        return nbytes, tuple(dict.fromkeys(again))


def run_again(graph: Graph, some: Sequence[Late]) -> tuple[Graph, dict[str, str]]:
    """The graph in which operators run again for late readers; each that does, by name, with the one that it is like.

    They are in the order in which the rule `recompute` makes them.
    """
    draft, made = Draft(graph), dict[str, str]()
    for late in some:
        mine = dict[str, str]()
        for node, by in ((late.node, late.by), *((one, ()) for one in late.before)):
            readers = by or [again for again in mine.values() if again in list_readers(draft, node)]
            before = set(draft.nodes)
            recompute.on(draft, node, by=readers)
            (mine[node],) = set(draft.nodes) - before
            made[mine[node]] = node
    done = draft.done()
    order = [node.name for node in done.order() if node.name not in made]
    # What runs again does right before the first that reads it, makers of what it reads before it.
    for again in made:
        order.insert(order.index(min(list_readers(done, again), key=order.index)), again)
    put_fields(done, nodes=FrozenDict((name, done.nodes[name]) for name in order))
    return done, made


def list_subsets(late: Sequence[Late]) -> Iterator[tuple[Late, ...]]:
    """Which may run again together: every subset of few; of many all, and then each."""
    if len(late) <= tuning.MAX_LATE_TOGETHER:
        for many in range(1, len(late) + 1):
            yield from combinations(late, many)
        return
    yield tuple(late)
    yield from ((one,) for one in late)
