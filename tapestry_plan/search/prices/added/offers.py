"""Layouts that asked-for places say: an operator that is cut as what it reads lies has nothing to fetch.

Where a tensor lies in uneven parts, or in an order of devices of its own, the layouts that every operator has move
some of it. So an operator next to it is offered the same parts, and those next to that one::

    layout x: rows 3 + 5, on devices 1, 0          x ──► exp ──► · w ──► y
    offered                                               i0: 3 + 5   m: 3 + 5, both on devices 1, 0

Which index axis follows which axis of a tensor is read off the projections: it counts its cells one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from math import prod

from msgspec.structs import replace

from tapestry_plan.ir import Operand, OpNode
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.costs import Problem
from tapestry_plan.steps import Layout, leave_out_even, list_candidates


def offer_asked(problem: Problem, pinned: Collection[str]) -> dict[str, tuple[Layout, ...]]:
    """Return for operators, by name, the layouts that places of inputs and outputs say beyond those that they have.

    Parameters
    ----------
    problem : Problem
    pinned : collection of str
        Operators whose layouts the caller gave.

    Returns
    -------
    dict of str to tuple of Layout
        At most `tuning.MAX_DERIVED` for each operator.
    """
    queue = deque(_list_places(problem))
    if not queue:
        return {}
    graph = problem.graph
    around: dict[str, list[tuple[OpNode, Operand]]] = {}
    known: dict[str, frozenset[Layout]] = {}
    for node in problem.order:
        known[node.name] = frozenset(problem.variables[problem.position["operator", node.name]].layouts)
        for tensor, operand in _list_operands(problem, node):
            around.setdefault(tensor, []).append((node, operand))
    found: dict[str, dict[Layout, None]] = {}
    while queue:
        tensor, layout = queue.popleft()
        for node, operand in around.get(tensor, ()):
            made = _follow_tensor(graph.signature(node.name).index_shape, operand, layout)
            mine = found.setdefault(node.name, {})
            if made is None or node.name in pinned or made in known[node.name] or made in mine:
                continue
            if len(mine) < tuning.MAX_DERIVED:
                mine[made] = None
                for other, its in _list_operands(problem, node):
                    there = _lay_operand(graph.stored[other].shape, its, made)
                    if there is not None:
                        queue.append((other, there))
    return {name: tuple(each) for name, each in found.items() if each}


def asks_for_others(problem: Problem) -> bool:
    """Whether places are asked for that are cut otherwise than the space of layouts has it."""
    return any(
        layout not in list_candidates(layout.extents, problem.mesh, problem.asked.space)
        for _, layout in _list_places(problem)
    )


def _list_places(problem: Problem) -> Iterator[tuple[str, Layout]]:
    """Inputs and outputs by name, with the layouts that are asked for of them, where these are one part a device."""
    for one in problem.variables:
        if one.kind in ("source", "output") and len(one.layouts) == 1 and not one.layouts[0].lots:
            yield problem.stored_as(one.name), one.layouts[0]


def _list_operands(problem: Problem, node: OpNode) -> list[tuple[str, Operand]]:
    """The stored tensors that an operator reads as they are, and those that it makes, with how it touches them."""
    signature = problem.graph.signature(node.name)
    found = [(problem.stored_as(name), made) for name, made in zip(node.outputs, signature.outputs, strict=True)]
    for names in problem.list_readings(node):
        sources = (problem.graph.source(name) for name in names)
        reads = zip(sources, signature.inputs, strict=True)
        found += [(problem.stored_as(source.stored[0]), operand) for source, operand in reads if source.direct]
    return found


def _follow_axes(operand: Operand, sizes: Sequence[int], shape: Sequence[int]) -> list[int | None]:
    """The index axis that counts the cells of each axis of a tensor one by one, None where there is none such."""
    projection, found = operand.projection, list[int | None]()
    for row, offset, extent, n in zip(
        projection.map.matrix, projection.map.offset, projection.shape, shape, strict=True
    ):
        used = [k for k, factor in enumerate(row) if factor]
        counts = len(used) == 1 and used[0] < len(sizes) and row[used[0]] == 1 and offset == 0 and extent == 1
        found.append(used[0] if counts and sizes[used[0]] == n else None)
    return found


def _follow_tensor(sizes: tuple[int, ...], operand: Operand, layout: Layout) -> Layout | None:
    """The layout of an index space whose parts touch what devices have of a tensor; None if no axes say that."""
    if operand.also or layout.digits:
        return None
    axes = _follow_axes(operand, sizes, layout.extents)
    cut = {k: c for c, k in enumerate(axes) if k is not None and layout.parts[c] > 1}
    if len(cut) < sum(n > 1 for n in layout.parts):
        return None
    return _pick(layout, sizes, [cut.get(k) for k in range(len(sizes))])


def _lay_operand(shape: tuple[int, ...], operand: Operand, layout: Layout) -> Layout | None:
    """The layout of a tensor of which each device has what its part touches; None where that is said otherwise."""
    if operand.also:
        return None
    axes = _follow_axes(operand, layout.extents, shape)
    if any(n > 1 and k not in axes for k, n in enumerate(layout.parts)) or len(set(axes) - {None}) < len(
        [k for k in axes if k is not None]
    ):
        return None  # replicas, or partial results, of parts
    return _pick(layout, shape, axes)


def _pick(layout: Layout, extents: tuple[int, ...], axes: Sequence[int | None]) -> Layout:
    """The layout of another space, of which each axis is cut as one of these, or whole."""
    parts = tuple(1 if c is None else layout.parts[c] for c in axes)
    cells = tuple(None if cell is None else tuple(0 if c is None else cell[c] for c in axes) for cell in layout.cells)
    sizes = tuple((n,) if c is None else layout.sizes[c] for c, n in zip(axes, extents, strict=True) if layout.sizes)
    assert prod(parts) <= prod(layout.parts), "each axis is taken once"
    return replace(layout, extents=extents, parts=parts, cells=cells, sizes=leave_out_even(extents, sizes))
