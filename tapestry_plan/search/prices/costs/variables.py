"""What is asked for, and what has a layout: operators, sources, outputs and landings as variables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from math import inf
from typing import Any, Literal

import numpy as np
from msgspec import Struct, field

from tapestry_plan.ir import Axis, Graph, OpNode
from tapestry_plan.search.prices.costs.merging import ORDERS, Makers, list_whole
from tapestry_plan.search.prices.costs.tensors import Kind, Known, Variable
from tapestry_plan.search.progress import Meter
from tapestry_plan.search.sums.elimination import IntArray
from tapestry_plan.steps import (
    APART,
    Hosting,
    Hostings,
    IndexBlock,
    InfeasiblePlan,
    Layout,
    Mesh,
    Placed,
    Reads,
    Space,
    lay_tensor,
    list_candidates,
    list_hostings,
    list_spread,
    parse_layout,
    sort_layouts,
)
from tapestry_sets.limits import quote
from tapestry_sets.regions import Box

Whereabouts = Mapping[Any, Any] | Placed
"""Where a tensor is asked to lie: axis -> parts or mesh axes, or by device."""


class Asked(Struct, frozen=True):
    """The arguments of a problem besides its graph, as in `plan`, and the facts known of others with the same ones."""

    mesh: Mesh
    placement: Literal["free", "single"] = "free"
    layout: Mapping[str, Whereabouts] = {}
    fix: Mapping[str, Mapping[str, Any]] = {}
    forbid: Mapping[str, Mapping[str, Any]] = {}
    space: Space = "all"
    tie: Mapping[str, str] = {}
    known: Known = field(default_factory=Known)
    derived: Mapping[str, tuple[Layout, ...]] = {}
    """Operators by name: layouts that their neighbors ask for, beyond those of every operator."""
    fan_in: int | None = None
    """How many partial results are merged at a time, where the caller says so."""
    meter: Meter = field(default_factory=Meter)
    """Says how much of planning is done."""
    stop: float = inf
    """Of the monotonic clock: tables that are made from then on have no runs of messages, so that they are too low."""
    apart: bool = False
    """Whether no block lies in another one, as under a cap, so that all is copied that is not strided where it lies."""


class Declared:
    """The variables of a problem, each with the layouts that it may have.

    Parameters
    ----------
    graph : Graph
    asked : Asked
    """

    def __init__(self, graph: Graph, asked: Asked) -> None:
        self.graph, self.mesh, self.known, self.asked = graph, asked.mesh, asked.known, asked
        self.reads = Reads(graph, asked.known)
        self.order = self._list_operators()
        self.variables: list[Variable] = []
        self.position: dict[tuple[str, str], int] = {}
        self._declare_sources(asked)
        self._declare_operators(asked)
        self._declare_outputs(asked.layout)
        self._declare_landings()
        self.sizes = [len(variable.layouts) for variable in self.variables]

    @cached_property
    def hostings(self) -> Hostings:
        """Where tensors' blocks may be made."""
        return {} if self.asked.apart else list_hostings(self.graph)

    def _host(self, names: Iterable[str]) -> tuple[Hosting, ...]:
        """The same of some tensors."""
        return tuple(self.hostings.get(name, APART) for name in names)

    def _list_operators(self) -> list[OpNode]:
        """The operators, each after those that it depends on."""
        return self.graph.order()

    def _add(self, variable: Variable) -> None:
        self.position[variable.kind, variable.name] = len(self.variables)
        self.variables.append(variable)

    def _add_tensor(
        self, kind: Kind, name: str, wanted: Whereabouts | None, label: str, *, replicas: bool = False
    ) -> None:
        """Let a tensor have the layout that is asked for, under a name of its own, or any."""
        shape = self.graph.stored[name].shape
        axes = tuple(Axis(str(k), n) for k, n in enumerate(shape))  # of a tensor as an index space
        if wanted is None:
            options = list_candidates(shape, self.mesh, self.asked.space, replicas=replicas)
        else:
            options = (lay_tensor(wanted, shape, self.mesh, f"layout[{quote(label)}]"),)
        self._add(Variable(name, kind, axes, options))

    def _declare_sources(self, asked: Asked) -> None:
        labels = {source: label for label, source in asked.tie.items()}
        for name, tensor in self.graph.stored.items():
            if tensor.kind != "result" and (asked.placement == "single" or name in asked.layout or name in labels):
                wanted = asked.layout.get(name, asked.layout.get(labels[name]) if name in labels else None)
                self._add_tensor("source", name, wanted, name, replicas=name in labels)

    def _declare_operators(self, asked: Asked) -> None:
        for node in self.order:
            axes = self.graph.signature(node.name).axes
            if node.name in asked.fix:  # all other layouts need not be listed
                fixed = parse_layout(axes, asked.fix[node.name], self.mesh, f"fix[{quote(node.name)}]")
                options: tuple[Layout, ...] = self.known.fact(("fixed", fixed), partial(tuple, [fixed]))
            else:
                options = self._list_options(axes)
            if self.graph.ops[node.op].opaque:
                options = self.known.fact(("once", self.known.identity(options)), partial(_run_once, options))
            if node.name in asked.forbid:
                banned = parse_layout(axes, asked.forbid[node.name], self.mesh, f"forbid[{quote(node.name)}]").parts
                key = "allowed", self.known.identity(options), banned
                options = self.known.fact(key, partial(_leave_out, options, banned))
                if not options:
                    raise InfeasiblePlan(
                        f"operator {quote(node.name)}: forbid leaves no layout of its axes "
                        f"{quote([f'{a.name}={a.size}' for a in axes])} over {self.mesh.size} devices"
                    )
            if more := asked.derived.get(node.name):
                kept = tuple(each for each in more if each.keeps(axes))
                options = self._join_options(options, _run_once(kept) if self.graph.ops[node.op].opaque else kept)
            self._add(Variable(node.name, "operator", axes, options))

    def _list_options(self, axes: Sequence[Axis]) -> tuple[Layout, ...]:
        """Every layout of an index space: one object for all spaces of the same extents and names."""
        extents = tuple(axis.size for axis in axes)
        key = "options", extents, tuple(axis.name for axis in axes)
        rules = tuple(axis.parts for axis in axes)
        return self.known.fact((*key, rules), lambda: self._make_options(extents, axes))

    def _make_options(self, extents: tuple[int, ...], axes: Sequence[Axis]) -> tuple[Layout, ...]:
        found = list_candidates(extents, self.mesh, self.asked.space)
        return sort_layouts([each for each in found if each.keeps(axes)], axes)

    def _join_options(self, options: tuple[Layout, ...], more: tuple[Layout, ...]) -> tuple[Layout, ...]:
        """Some layouts and more: one object for the same ones."""
        return self.known.fact(("more", self.known.identity(options), more), lambda: (*options, *more))

    def _declare_outputs(self, layout: Mapping[str, Whereabouts]) -> None:
        """Outputs stay where they are made; partial results and asked-for layouts need a place of their own."""
        partial = self._in_parts()
        for label, source in self.asked.tie.items():  # one variable says where both lie
            self.position["output", self.graph.outputs[label]] = self.position["source", source]
        for label, name in self.graph.outputs.items():
            for stored in self.stored_of(label):
                wanted = layout.get(label) if stored == name else None
                if ("output", stored) not in self.position and (wanted is not None or stored in partial):
                    self._add_tensor("output", stored, wanted, label)
        labels = [label for label in (*layout, *self.asked.tie) if label in self.graph.outputs]
        self.asked_outputs = frozenset(self.graph.outputs[label] for label in labels)

    def _declare_landings(self) -> None:
        """Tensors may rest in a place of their own, in shares of all devices, before anybody reads them.

        Partial results are merged there, each cell once. What is complete is shared out, if the caller gave some
        devices less of it than others, or left some idle where it is made, so that not one of them sends it to all.
        """
        #   m:4 k:2 ──► parts 0, 1 ──┬─► each reader pulls all parts of what it needs
        #                            └─► landing: every device merges its share;  readers pull merged cells from there
        #
        #   x on 0 alone ──┬─► 0 sends all of it to 1, 2, 3:  3 n
        #                  └─► landing: 0 sends a quarter to each, and each sends its own to the others:  ¾ n + ½ n
        tied = {source for label, source in self.asked.tie.items() if label in self.asked.layout}
        for name in self.graph.stored:
            if ("source", name) in self.position and self._shares_out("source", name, {*self.asked.layout, *tied}):
                self._add_landing(name)
        for node in self.order:
            reductions = self.graph.signature(node.name).reductions
            layouts = self._variable("operator", node.name).layouts
            if any(option.count_parts(reductions) > 1 for option in layouts) or (
                self._shares_out("operator", node.name, self.asked.fix)
            ):
                for k, name in enumerate(node.outputs):
                    self._add_landing(name, self._list_merged(node, k))

    def _add_landing(self, name: str, more: Sequence[Layout] = ()) -> None:
        shape = self.graph.stored[name].shape
        axes = tuple(Axis(str(k), n) for k, n in enumerate(shape))
        self._add(Variable(name, "landing", axes, self._join_options(self._list_landings(shape), tuple(more))))

    def _list_merged(self, node: OpNode, output: int) -> tuple[Layout, ...]:
        """Layouts of a result in which each device has all that it has a part of, where stages may merge that."""
        signature, layouts = self.graph.signature(node.name), self._variable("operator", node.name).layouts
        shape = self.graph.stored[node.outputs[output]].shape
        itemsize = np.dtype(self.graph.written_dtypes(node.name)[output]).itemsize

        def found() -> tuple[Layout, ...]:
            spread = self._list_landings(shape)[1:]
            makers = Makers(signature.outputs[output], signature.reductions, layouts, spread, ORDERS)
            return list_whole(makers, shape, itemsize, self.mesh, self.asked.space)

        return self.known.fact(("merged", self.kind(node), output), found)

    def _shares_out(self, kind: Kind, name: str, asked: Collection[str]) -> bool:
        """Whether the caller said where something is, and gave some devices less of it than others, or no work."""
        if name not in asked:
            return False
        sizes = {
            0 if block is None else block.size if isinstance(block, Box) else block.cells.size
            for layout in self._variable(kind, name).layouts
            for block in layout.blocks
        }
        return len(sizes) > 1 if kind == "source" else 0 in sizes

    def _list_landings(self, shape: tuple[int, ...]) -> tuple[Layout, ...]:
        """No place, and the layouts in which as many devices as can be have a share of their own."""

        def made() -> tuple[Layout, ...]:
            nowhere = Layout(shape, (1,) * len(shape), (None,) * self.mesh.size)
            return nowhere, *list_spread(shape, self.mesh, self.asked.space)

        return self.known.fact(("landings", shape), made)

    def stored_of(self, label: str) -> Sequence[str]:
        """The stored tensors behind a graph output."""
        return self.graph.source(self.graph.outputs[label]).stored

    def stored_as(self, result: str) -> str:
        """The stored tensor that an operator's result is: itself."""
        return result

    def list_readings(self, node: OpNode) -> Sequence[Sequence[str]]:
        """The names that an operator reads, of each problem that this one stands for."""
        return [node.inputs]

    def _in_parts(self) -> set[str]:
        """The stored tensors that may be made as partial results."""
        out: set[str] = set()
        for node in self.order:
            reductions = self.graph.signature(node.name).reductions
            options = self._variable("operator", node.name).layouts
            if any(option.count_parts(reductions) > 1 for option in options):
                out.update(map(self.stored_as, node.outputs))
        return out

    def _variable(self, kind: str, name: str) -> Variable:
        return self.variables[self.position[kind, name]]

    def kind(self, node: OpNode) -> int:
        """A number for the structure of an operator, as `Reads.kind` has it, and of its layouts.

        Operators of one kind need, make and cost the same in the same layouts, whatever they and their tensors are
        called.
        """
        options = self.known.identity(self._variable("operator", node.name).layouts)
        return self.known.key(("kind", self.reads.kind(node), options))

    def _list_blocks(self, options: Sequence[Layout]) -> tuple[list[IndexBlock], IntArray]:
        """The blocks of some layouts, each once, and their places in that list by (layout, device); -1 where idle."""

        def made() -> tuple[list[IndexBlock], IntArray]:
            places: dict[IndexBlock, int] = {}
            rows = [[-1 if b is None else places.setdefault(b, len(places)) for b in o.blocks] for o in options]
            blocks = list(places)
            self.known.identity(blocks)  # kept, so that what operands see of them is worked out once
            return blocks, np.array(rows, np.int64)

        return self.known.fact(("blocks", self.known.identity(options)), made)

    def list_blocks(self, node: OpNode) -> tuple[list[IndexBlock], IntArray]:
        """The blocks of an operator's layouts, each once, and their places by (layout, device); -1 where idle."""
        return self._list_blocks(self._variable("operator", node.name).layouts)


def _run_once(options: Sequence[Layout]) -> tuple[Layout, ...]:
    """The layouts that run an opaque operator on one device, which may take long, each once."""
    return tuple(dict.fromkeys(each.seat_first() for each in options))


def _leave_out(options: Sequence[Layout], parts: tuple[int, ...]) -> tuple[Layout, ...]:
    """The layouts with other numbers of parts."""
    return tuple(option for option in options if option.parts != parts)
