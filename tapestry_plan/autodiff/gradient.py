"""Gradients: reverse mode over a graph, as more of the same graph, so that backward passes shard, plan and run too.

An operator's declaration says what its inputs receive (`Op.adjoint`), or how it is said in operators that do
(`Op.expansions`). A selection needs no word for any view kind: each cell of its source receives the sum of what the
view's cells that read it have, which follows from the view's pieces (`tapestry_sets.views.scatter_terms`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import cast

import numpy as np

from tapestry_plan.autodiff.adjoints import Through
from tapestry_plan.ir import Backward, Graph, NotApplicable, OpNode, Selection, Tensor
from tapestry_sets.limits import check_arguments, drop_item, quote
from tapestry_sets.regions import Region
from tapestry_sets.views import Reshape, Term, assemble_at, scatter_terms


@check_arguments(wrt="as [x]")
def gradient(y: Tensor, wrt: Sequence[Tensor], seed: Tensor | None = None) -> tuple[Tensor, ...]:
    """Add operators to a graph that compute the gradient of a tensor with respect to others.

    Parameters
    ----------
    y : Tensor
        Of a floating dtype; of one cell, unless `seed` is given.
    wrt : sequence of Tensor
        Of floating dtypes; inputs, constants or results.
    seed : Tensor, optional
        Of y's shape: the gradient of something else with respect to y. By default ones.

    Returns
    -------
    tuple of Tensor
        One for each of `wrt`, of its shape; zeros where y does not depend on it.

    Raises
    ------
    TypeError
        If `y` or one of `wrt` is not a tensor.
    ValueError
        If y has several cells and no seed is given, or a dtype is not floating; the graph is unchanged then.
    NotApplicable
        If an operator on the way declares neither an adjoint nor an expansion that has one; the graph is unchanged
        then too.

    Examples
    --------
    >>> from tapestry_plan import Graph, gradient, ops
    >>> g = Graph()
    >>> x = g.input("x", (2, 3))
    >>> (dx,) = gradient(ops.sum(x[:, 1:] * x[:, 1:]), [x])
    >>> dx.shape
    (2, 3)

    References
    ----------
    Griewank, Walther, "Evaluating Derivatives", 2008: reverse mode.
    """
    _check(y, wrt, seed)
    graph = y.graph
    with graph._all_or_nothing():
        kept = graph.nodes.keys() | graph.stored.keys() | graph.selections.keys()
        found = _Reverse(graph, wrt).run(y, seed)
        _drop_unread(graph, kept, found)
        return found


def _drop_unread(graph: Graph, kept: set[str], wanted: Sequence[Tensor]) -> None:
    """Take back what adjoints added for inputs that nobody asked about."""
    read = {tensor.name for tensor in wanted}
    for item in reversed(list(graph._ordered())):
        if item.name in kept or read.intersection(item.outputs):
            read.update(item.inputs)
            continue
        graph._remove(item)
    for name in [name for name in graph.stored if name not in kept and name not in read]:
        if graph.stored[name].kind == "constant":
            drop_item(graph.stored, name)


def _check(y: Tensor, wrt: Sequence[Tensor], seed: Tensor | None) -> None:
    if not wrt:
        raise ValueError("gradient: wrt is empty; name at least one tensor")
    for what, tensor in (("y", y), *((f"wrt[{k}]", t) for k, t in enumerate(wrt)), ("seed", seed)):
        if tensor is None:
            continue
        if tensor.graph is not y.graph:
            raise ValueError(
                f"gradient: {what} {quote(tensor.name)} belongs to another graph than y; give tensors of one"
            )
        if np.dtype(tensor.dtype).kind != "f":
            raise ValueError(
                f"gradient: {what} {quote(tensor.name)} is {tensor.dtype}; only floating numbers have gradients"
            )
    if seed is None and y.size != 1:
        raise ValueError(
            f"gradient: y {quote(y.name)} has shape {quote(y.shape)}; reduce it to one cell, or give a seed of its "
            "shape"
        )
    if seed is not None and (seed.shape, seed.dtype) != (y.shape, y.dtype):
        raise ValueError(
            f"gradient: the seed is {seed.dtype}{quote(seed.shape)}, y is {y.dtype}{quote(y.shape)}; they must agree"
        )


class _Reverse:
    """One backward pass: what each tensor has received so far.

    Parameters
    ----------
    graph : Graph
    wrt : sequence of Tensor
    ends : bool
        Whether nothing goes on from `wrt` to what these are made of.
    """

    def __init__(self, graph: Graph, wrt: Sequence[Tensor], ends: bool = False) -> None:
        self.graph, self.wrt = graph, wrt
        self.ends = {t.name for t in wrt} if ends else set()
        self.received: dict[str, list[Tensor]] = {}
        self.totals: dict[str, Tensor | None] = {}

    def run(self, y: Tensor, seed: Tensor | None) -> tuple[Tensor, ...]:
        order = list(self.graph._ordered())
        depends = self._dependent(order, {t.name for t in self.wrt})
        self.received[y.name] = [seed if seed is not None else self._constant(y, 1.0)]
        for item in reversed(order):
            made = set(item.outputs)
            if made & depends and made & self.received.keys() and not made & self.ends:
                self._pass(item, depends)
        totals = [self._total(t.name) for t in self.wrt]
        return tuple(self._constant(t, 0.0) if g is None else g for t, g in zip(self.wrt, totals, strict=True))

    def _dependent(self, order: Iterable[OpNode | Selection], wrt: set[str]) -> set[str]:
        """Tensors that depend on one of `wrt`, these included."""
        found = set(wrt)
        for item in order:
            if found.intersection(item.inputs):
                found.update(item.outputs)
        return found

    def _constant(self, like: Tensor, value: float) -> Tensor:
        """One value in a tensor's shape: a constant of one cell, broadcast."""
        one = self.graph.constant(self.graph._fresh(f"{value:g}"), np.array(value, like.dtype))
        return one.broadcast_to(like.shape) if like.shape else one

    def _total(self, name: str) -> Tensor | None:
        """The sum of all that a tensor has received."""
        if name not in self.totals:
            self.totals[name] = _sum(self.received.get(name, ()))
        return self.totals[name]

    def _give(self, name: str, grad: Tensor | None) -> None:
        if grad is not None:
            self.received.setdefault(name, []).append(_sum_to(grad, self.graph.tensor(name).shape))

    def _pass(self, item: OpNode | Selection, depends: set[str]) -> None:
        """Hand the gradients of an item's outputs on to its inputs."""
        if isinstance(item, Selection):
            grad = self._total(item.name)
            assert grad is not None, "asked only where something was received"
            for k, name in enumerate(item.inputs):
                if name in depends:
                    self._give(name, _scatter(grad, item, k, self.graph.tensor(name).shape))
            return
        grads = tuple(self._total(name) for name in item.outputs)
        inputs = tuple(self.graph.tensor(name) for name in item.inputs)
        given = self._adjoint(item, inputs, grads)
        if len(given) != len(inputs):
            raise ValueError(
                f"gradient: the adjoint of {quote(item.op)} gives {len(given)} gradients for {len(inputs)} inputs"
            )
        for tensor, grad in zip(inputs, given, strict=True):
            if tensor.name in depends and np.dtype(tensor.dtype).kind == "f":
                self._give(tensor.name, grad)

    def _adjoint(
        self, node: OpNode, inputs: tuple[Tensor, ...], grads: tuple[Tensor | None, ...]
    ) -> Sequence[Tensor | None]:
        """What the inputs of a node receive: by the adjoint of its operator, or through an expansion."""
        op = self.graph.ops[node.op]
        outputs = tuple(self.graph.tensor(name) for name in node.outputs)
        if isinstance(op.adjoint, Through):
            return self._through(op.adjoint.expansion(inputs, node.attrs), inputs, grads)
        if op.adjoint is not None:
            return op.adjoint(Backward(inputs, outputs, grads, node.attrs))
        reasons = []
        for expansion in op.expansions:
            try:
                with self.graph._all_or_nothing():
                    return self._through(expansion(inputs, node.attrs), inputs, grads)
            except NotApplicable as error:
                reasons.append(f"{expansion.__name__}: {error}")
        why = f", and no expansion has one ({'; '.join(reasons)})" if reasons else " and no expansion"
        raise NotApplicable(
            f"gradient: operator {quote(node.op)} of node {quote(node.name)} declares no adjoint{why}; give its Op an "
            "adjoint"
        )

    def _through(
        self, made: Tensor | tuple[Tensor, ...], inputs: tuple[Tensor, ...], grads: tuple[Tensor | None, ...]
    ) -> list[Tensor | None]:
        """Gradients of a node's inputs through its expansion, which reads the same tensors."""
        outputs = made if isinstance(made, tuple) else (made,)
        totals: dict[str, list[Tensor]] = {tensor.name: [] for tensor in inputs}
        wanted = list({t.name: t for t in inputs if np.dtype(t.dtype).kind == "f"}.values())
        for out, grad in zip(outputs, grads, strict=True):
            if grad is not None:
                for tensor, found in zip(wanted, _Reverse(self.graph, wanted, ends=True).run(out, grad), strict=True):
                    totals[tensor.name].append(found)
        names = [tensor.name for tensor in inputs]  # one that comes twice receives what all its places do, once
        return [_sum(totals[name]) if names.index(name) == k else None for k, name in enumerate(names)]


def _sum(parts: Sequence[Tensor]) -> Tensor | None:
    """The sum of gradients; None of no gradients."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return cast(Tensor, parts[0].graph.op("add_n", *parts))


def _sum_to(grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A gradient summed over the axes along which an operand was broadcast."""
    if grad.shape == shape:
        return grad
    lead = len(grad.shape) - len(shape)
    over = [k for k, n in enumerate(grad.shape) if k < lead or (shape[k - lead] == 1 and n > 1)]
    made: Tensor = grad.graph.op("sum", grad, axis=tuple(over), keepdims=True) if over else grad
    if made.size != prod(shape):
        raise ValueError(
            f"gradient: a gradient has shape {quote(grad.shape)}, which does not sum to the operand's {quote(shape)}"
        )
    return made.reshape(shape)


# -- selections ---------------------------------------------------------------------------------------------


def _scatter(grad: Tensor, view: Selection, source: int, shape: tuple[int, ...]) -> Tensor | None:
    """What a selection's source receives: for each cell the sum over the view's cells that read it."""
    #  source  a b c d    view  a b    gradient g: a receives g00, b g01 + g10, c g11 + g20, d g21:
    #                           b c    the columns of g, each in its own place, are two tensors, which are added.
    #                           c d
    # Terms whose places do not meet fill one tensor, as a view; only tensors that do meet need arithmetic.
    terms = scatter_terms(view.pieces, view.shape, shape, source)
    return _sum([_place(grad, group, shape) for group in _in_groups(terms)])


def _in_groups(terms: Sequence[Term]) -> list[list[Term]]:
    """Terms whose places are disjoint, together."""
    groups: list[list[Term]] = []
    for term in terms:
        for group in groups:
            if all(term.place.isdisjoint(other.place) for other in group):
                group.append(term)
                break
        else:
            groups.append([term])
    return groups


def _place(grad: Tensor, terms: Sequence[Term], shape: tuple[int, ...]) -> Tensor:
    """The values of disjoint terms in their places, zeros elsewhere."""
    places = _lay_out([term.place for term in terms], shape)
    sources = []
    for term, place in zip(terms, places, strict=True):
        read = grad.apply(term.read)
        if term.summed:
            read = grad.graph.op("sum", read, axis=term.summed, keepdims=False)
        sources.append(read.reshape(place.counts))
    whole = sources[0].apply(assemble_at(places), *sources[1:])
    return whole.apply(Reshape(shape))


def _lay_out(places: Sequence[Region], shape: tuple[int, ...]) -> list[Region]:
    """Places among a tensor's cells as products along its axes, where each of them is one; else by number, as given."""
    found: list[Region] = []
    for place in places:
        members = place.reshape(shape).members
        if len(members) != 1 or not members[0].rank:
            return list(places)
        found += members
    return found
