"""The problem that the planner minimizes: layouts as variables, exact costs as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from math import prod
from typing import Any, Literal, Self, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from tapestry_plan.ir import Axis, Graph, OpNode, Stored, cells_of
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.chosen import Moved, count_each, find_merge
from tapestry_plan.search.prices.merging import ORDERS, Makers, Merges, list_orders, list_whole, price_merges
from tapestry_plan.search.prices.numbering import list_classes
from tapestry_plan.search.prices.operands import BOX, FLAT, FREE, HOSTED, PADDED, PARTED, OperandBlocks
from tapestry_plan.search.prices.regions import RegionTable
from tapestry_plan.search.prices.seconds import (
    assembly_ticks,
    compute_seconds,
    count_packed,
    find_product_share,
    merge_ticks,
    to_ticks,
    transfer_ticks,
)
from tapestry_plan.search.prices.tensors import Kind, Known, TensorCost, Use, Variable, hold_parts, hold_whole
from tapestry_plan.search.prices.transfers import Held, count_transfers
from tapestry_plan.search.prices.variants import Given
from tapestry_plan.search.progress import Meter
from tapestry_plan.search.sums.elimination import Factor, IntArray
from tapestry_plan.search.sums.reduction import cut_table
from tapestry_plan.search.sums.tables import Tables, list_scope
from tapestry_plan.steps import (
    APART,
    Hosting,
    Hostings,
    IndexBlock,
    InfeasiblePlan,
    Layout,
    MergeOrder,
    Mesh,
    Placed,
    Reads,
    Space,
    align,
    count_copied,
    is_padded,
    is_turned,
    lay_tensor,
    list_candidates,
    list_hosted,
    list_hostings,
    list_images,
    list_seen,
    list_spread,
    list_stored,
    list_viewed,
    may_pad,
    may_write,
    name_stage,
    parse_layout,
    sort_layouts,
    unite,
)
from tapestry_sets.limits import quote
from tapestry_sets.regions import Box, DisjointRegions

T = TypeVar("T")
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
    apart: bool = False
    """Whether no block lies in another one, as under a cap, so that all is copied that is not strided where it lies."""


class Problem:
    """The choice of layouts as variables and exact cost tables.

    Parameters
    ----------
    graph : Graph
    asked : Asked
    """

    is_sum = True
    """Whether what a choice costs is the sum of its entries of the tables, where all are exact."""

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
        self.counted_alone: dict[int, list[TensorCost]] = {}
        """Tensors around a variable whose consumers are counted one by one."""
        self.shared: list[Factor] = []
        """Tables that are exact."""
        self.listed = Tables([])
        """All tables that were made last."""
        self.entries = tuning.MAX_FACTOR_ENTRIES
        """Of one tensor's tables; where more are needed its consumers are counted one by one."""
        whole = self._tensor_costs()
        self.made: dict[int, list[TensorCost]] = {}
        for cost in whole:
            self.made.setdefault(cost.producer, []).append(cost)
            self._settle_landing(cost)
        self.tensors = [part for cost in whole for part in ([cost] if cost.landing else cost.split())]

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

    @cached_property
    def compute(self) -> list[IntArray]:
        """Modeled picoseconds of each layout of each variable: of operators' work."""
        return [self._compute_ticks(v) for v in range(len(self.variables))]

    # -- variables ---------------------------------------------------------------------------------------

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
            if any(prod(option.parts[a] for a in reductions) > 1 for option in layouts) or (
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
            if any(prod(option.parts[a] for a in reductions) > 1 for option in options):
                out.update(map(self.stored_as, node.outputs))
        return out

    def _variable(self, kind: str, name: str) -> Variable:
        return self.variables[self.position[kind, name]]

    # -- regions -----------------------------------------------------------------------------------------

    def needs(self, node: OpNode, box: Box | None) -> dict[str, DisjointRegions]:
        """The exact cells of each stored tensor that an index box of an operator reads."""
        names = list_stored(self.graph, node.inputs)
        if box is None:
            return {}
        key = "needs", self.kind(node), box
        return dict(zip(names, self.known.fact(key, lambda: self._needs_now(node, box)), strict=True))

    def _needs_now(self, node: OpNode, box: Box) -> tuple[DisjointRegions, ...]:
        out: dict[str, list[DisjointRegions]] = {name: [] for name in list_stored(self.graph, node.inputs)}
        for operand in range(len(node.inputs)):
            for stored, region in self.reads.of_operand(node, operand, box).items():
                out[stored].append(region)
        return tuple(unite(regions, self.graph.stored[name].shape) for name, regions in out.items())

    def kind(self, node: OpNode) -> int:
        """A number for the structure of an operator, as `Reads.kind` has it, and of its layouts.

        Operators of one kind need, make and cost the same in the same layouts, whatever they and their tensors are
        called.
        """
        options = self.known.identity(self._variable("operator", node.name).layouts)
        return self.known.key(("kind", self.reads.kind(node), options))

    # -- costs -------------------------------------------------------------------------------------------

    def _tensor_costs(self) -> list[TensorCost]:
        """Tables for every stored tensor that can move: made by an operator, or given a place of its own."""
        for tensor in self.graph.stored.values():
            if tensor.shape not in self.known.tables:
                self.known.tables[tensor.shape] = RegionTable(tensor.shape)
        self.tables = {name: self.known.tables[tensor.shape] for name, tensor in self.graph.stored.items()}
        self.uses: dict[str, list[Use]] = {name: [] for name in self.graph.stored}
        costs = self._list_costs()
        for k, node in enumerate(self.order):
            self.asked.meter.tell("costs", k, 2 * len(self.order))
            self._add_uses(node)
        self._add_outputs()
        for cost in costs:
            cost.uses = self.uses[cost.tensor.name]
            if cost.tensor.name not in self.asked_outputs:
                cost.only_partial = frozenset(
                    k for k, use in enumerate(cost.uses) if self.variables[use.variable].kind == "output"
                )
        return costs

    def _list_costs(self) -> list[TensorCost]:
        """The stored tensors as their producers make them, in the order of the graph, without consumers yet."""
        makers = {out: (node, k) for node in self.order for k, out in enumerate(node.outputs)}
        costs = []
        for name, tensor in self.graph.stored.items():
            if prod(tensor.shape) > tuning.MAX_CELLS:
                raise ValueError(f"tensor {quote(name)} of shape {quote(tensor.shape)} has more than 2**60 cells")
            if name in makers:
                costs.append(self._cost_of(*makers[name], self.graph.stored[self.stored_as(name)]))
            elif ("source", name) in self.position:
                costs.append(self._cost_of_source(tensor, self.position["source", name]))
        return costs

    def _cost_of_source(self, tensor: Stored, at: int) -> TensorCost:
        table = self.tables[tensor.name]
        held = hold_whole(self.known, table, self.number_held(self.variables[at]))
        landing = self._find_landing(tensor.name)
        return TensorCost(tensor, table, at, held, tensor.itemsize, landing=landing, shares=landing is not None)

    def _cost_of(self, node: OpNode, output: int, tensor: Stored) -> TensorCost:
        at = self.position["operator", node.name]
        written = np.dtype(self.graph.written_dtypes(node.name)[output]).itemsize
        held = self.known.fact(("made", self.kind(node), output), lambda: self._number_made(node, output, tensor))
        landing = self._find_landing(node.outputs[output])
        shares = landing is not None and self._shares_out("operator", node.name, self.asked.fix)
        merges = None if landing is None else self._price_merges(node, output, held, landing, written)
        table = self.tables[tensor.name]
        return TensorCost(tensor, table, at, held, written, landing=landing, shares=shares, merges=merges)

    def _price_merges(self, node: OpNode, output: int, held: Held, landing: Use, itemsize: int) -> Merges | None:
        """What merging in stages takes; None where no stages are."""
        orders = list_orders(self.graph.ops[node.op].monoid, self.asked.fan_in)
        rests, table = self.variables[landing.variable].layouts, self.tables[node.outputs[output]]
        layouts = self.variables[self.position["operator", node.name]].layouts

        def made() -> Merges | None:
            signature = self.graph.signature(node.name)
            makers = Makers(signature.outputs[output], signature.reductions, layouts, rests, orders)
            return price_merges(makers, table, held, landing.numbers, itemsize, self.mesh, self.asked.fan_in)

        return self.known.fact(("merges", self.kind(node), output, self.known.identity(rests), orders), made)

    def _find_landing(self, name: str) -> Use | None:
        """Where a tensor may land."""
        place = self.position.get(("landing", name))
        return None if place is None else Use(place, self.number_held(self.variables[place]))

    def _add_outputs(self) -> None:
        for name in self.graph.stored:
            position = self.position.get(("output", name))
            if position is not None:
                self.uses[name].append(self._output_use(name, position))

    def _output_use(self, name: str, position: int, given: Given = ()) -> Use:
        """A tensor brought to where it lies at the end: a place of its own, or that of the input that it is tied to."""
        place = self.variables[position]
        return Use(position, self.number_held(place), given, tied=name if place.kind == "source" else "")

    def _number_made(self, node: OpNode, output: int, tensor: Stored) -> Held:
        signature = self.graph.signature(node.name)
        table = self.tables[tensor.name]
        options = self._variable("operator", node.name).layouts
        made = partial(signature.output_regions, output, shape=tensor.shape)
        regions = list_images(signature, signature.outputs[output], self._list_blocks(options)[0], made)
        empty = table.number(DisjointRegions(tensor.shape))
        cut = signature.reductions
        parts = [prod(option.parts[a] for a in cut) for option in options]
        which = np.array([option.number_parts(cut) for option in options])
        return hold_parts(self.known, self._number_blocks(options, table, regions), np.array(parts), which, empty)

    def number_held(self, variable: Variable) -> IntArray:
        """Region numbers of what the layouts of a source or an output hold, by (layout, device)."""
        shape, table = self.graph.stored[variable.name].shape, self.tables[variable.name]

        key = "tensor", shape, self.known.identity(variable.layouts)

        def numbered() -> IntArray:
            blocks, _ = self._list_blocks(variable.layouts)
            cells = [cells_of(block, shape) if isinstance(block, Box) else block.cells for block in blocks]
            return self._number_blocks(variable.layouts, table, cells)

        return self.known.fact(key, numbered)

    def _add_uses(self, node: OpNode) -> None:
        at = self.position["operator", node.name]
        for use, name in self._list_uses(node, at):
            self.uses[name].append(use)

    def _list_uses(self, node: OpNode, at: int, given: Given = ()) -> Iterator[tuple[Use, str]]:
        """How an operator reads each stored tensor behind its inputs."""
        viewed = list_viewed(self.graph, node.inputs)
        for name, numbers in self._number_read(node).items():
            apart, ways, loose = (
                self.number_apart(node, name),
                self._list_ways(node, name),
                self._list_loose(node, name),
            )
            yield Use(at, numbers, given, viewed=name in viewed, apart=apart, ways=ways, loose=loose), name

    def _number_read(self, node: OpNode) -> dict[str, IntArray]:
        """Region numbers of what an operator reads of stored tensors through its inputs, by (layout, device)."""
        found = self.known.fact(("read", self.kind(node)), lambda: self._number_read_now(node))
        return dict(zip(list_stored(self.graph, node.inputs), found, strict=True))

    def _number_read_now(self, node: OpNode) -> tuple[IntArray, ...]:
        options = self._variable("operator", node.name).layouts
        blocks, _ = self._list_blocks(options)
        read: dict[str, list[list[DisjointRegions]]] = {name: [] for name in list_stored(self.graph, node.inputs)}
        for operand, name in enumerate(node.inputs):
            found = self.reads.of_blocks(node, operand, blocks)
            for k, stored in enumerate(self.graph.source(name).stored):
                read[stored].append([regions[k] for regions in found])
        out = []
        for name, lists in read.items():
            shape = self.graph.stored[name].shape
            regions = lists[0] if len(lists) == 1 else [unite(some, shape) for some in zip(*lists, strict=True)]
            out.append(self._number_blocks(options, self.tables[name], regions))
        return tuple(out)

    def number_apart(self, node: OpNode, stored: str) -> tuple[IntArray, ...]:
        """Region numbers of what each operand of an operator reads of a tensor; none where only one reads it."""
        reading = [k for k, name in enumerate(node.inputs) if stored in self.graph.source(name).stored]
        if len(reading) < 2:
            return ()
        options = self._variable("operator", node.name).layouts
        blocks, _ = self._list_blocks(options)

        def made() -> tuple[IntArray, ...]:
            out = []
            for k in reading:
                at = self.graph.source(node.inputs[k]).stored.index(stored)
                found = [regions[at] for regions in self.reads.of_blocks(node, k, blocks)]
                out.append(self._number_blocks(options, self.tables[stored], found))
            return tuple(out)

        behind = list_stored(self.graph, node.inputs).index(stored)
        return self.known.fact(("apart", self.kind(node), behind), made)

    def list_blocks(self, node: OpNode) -> tuple[list[IndexBlock], IntArray]:
        """The blocks of an operator's layouts, each once, and their places by (layout, device); -1 where idle."""
        return self._list_blocks(self._variable("operator", node.name).layouts)

    def _list_ways(self, node: OpNode, stored: str) -> tuple[IntArray, ...]:
        """For each operand that reads a tensor how it has its block, by layout and device; none where all lie apart."""
        reading = [k for k, name in enumerate(node.inputs) if stored in self.graph.source(name).stored]
        (hosting,) = self._host([stored])
        read = list_stored(self.graph, node.inputs)

        def made() -> tuple[IntArray, ...]:
            found = [self._list_ways_of(node, k, stored, hosting) for k in reading]
            return tuple(map(self.known.share, found)) if any(each.any() for each in found) else ()

        is_several = stored in self._padded_twice
        return self.known.fact(("ways", self.kind(node), read.index(stored), self._host(read), is_several), made)

    @cached_property
    def _padded_twice(self) -> frozenset[str]:
        """The tensors that several operands read with padding, of which one block may serve another."""
        counts: Counter[str] = Counter()
        for node in self.order:
            for k in range(len(node.inputs)):
                if may_pad(self.reads, node, k):
                    counts.update({names[k] for names in self.list_readings(node) if names[k] in self.graph.stored})
        return frozenset(name for name, count in counts.items() if count > 1)

    def _list_ways_of(self, node: OpNode, operand: int, stored: str, hosting: Hosting) -> IntArray:
        """The same of one operand."""
        blocks, places = self.list_blocks(node)
        signature, source = self.graph.signature(node.name), self.graph.source(node.inputs[operand])
        declared = signature.inputs[operand]
        every = (PARTED * hosting.rows | FLAT) if hosting.gathered else 0
        ways = np.full(len(blocks) + 1, every, np.int64)  # the last one is of idle devices
        seen = list_seen(signature, declared, blocks)
        if source.direct and may_pad(self.reads, node, operand):
            numbers = {block: self._number_box(node, operand, block, stored) for block in dict.fromkeys(seen)}
            for k, block in enumerate(seen):
                if (number := numbers[block]) is not None:
                    ways[k] = (ways[k] & ~FLAT) | PADDED | number << BOX
        elif not source.direct and hosting.viewed and may_write(self.reads, node, operand):
            hostings = self._host(source.stored)
            at = source.stored.index(stored)
            hosted = {
                block: list_hosted(self.reads, node, operand, block, hostings)[at] for block in dict.fromkeys(seen)
            }
            for k, block in enumerate(seen):
                if hosted[block]:
                    ways[k] = (ways[k] & ~FLAT) | HOSTED
        return ways[places]

    def _number_box(self, node: OpNode, operand: int, block: IndexBlock, stored: str) -> int | None:
        """The number of the box of a block that is padded; None for others."""
        if not is_padded(self.reads, node, operand, block):
            return None
        signature = self.graph.signature(node.name)
        box = signature.input_box(operand, block) if isinstance(block, Box) else None
        assert box is not None, "it is padded"
        if stored not in self._padded_twice:
            return 0
        return self.tables[stored].number_box(signature.inputs[operand].pad, box)

    def _list_loose(self, node: OpNode, stored: str) -> tuple[IntArray, ...]:
        """For each operand that reads a tensor on which axes its buffer reaches further than the cells that it takes.

        Axes are bits of a number, by layout and device. None where runs take no time.
        """
        reading = [k for k, name in enumerate(node.inputs) if stored in self.graph.source(name).stored]
        if not self.mesh.prices_runs or not any(self.graph.source(node.inputs[k]).direct for k in reading):
            return ()

        def made() -> tuple[IntArray, ...]:
            blocks, places = self._list_blocks(self._variable("operator", node.name).layouts)
            found = []
            for k in reading:
                # What is behind a view is brought into the box around it.
                direct = self.graph.source(node.inputs[k]).direct
                each = [self._find_loose(node, k, stored, block) if direct else 0 for block in blocks]
                found.append(self.known.share(np.array([*each, 0], np.int64)[places]))
            return tuple(found) if any(each.any() for each in found) else ()

        behind = list_stored(self.graph, node.inputs).index(stored)
        return self.known.fact(("loose", self.kind(node), behind), made)

    def _find_loose(self, node: OpNode, operand: int, stored: str, block: IndexBlock) -> int:
        """The axes, as bits, on which an operand's block reaches further than the cells of a tensor that it takes."""
        if not isinstance(block, Box):  # only operators that work cell by cell have others: these take just their cells
            return 0
        box = self.graph.signature(node.name).input_box(operand, block)
        bounds = self.reads.of_operand(node, operand, block)[stored].bounds()
        if box is None or bounds is None:
            return 0
        sides = zip(box.start, box.stop, *bounds, strict=True)
        return sum((low < first or end < high) << axis for axis, (low, high, first, end) in enumerate(sides))

    def _list_blocks(self, options: Sequence[Layout]) -> tuple[list[IndexBlock], IntArray]:
        """The blocks of some layouts, each once, and their places in that list by (layout, device); -1 where idle."""

        def made() -> tuple[list[IndexBlock], IntArray]:
            places: dict[IndexBlock, int] = {}
            rows = [[-1 if b is None else places.setdefault(b, len(places)) for b in o.blocks] for o in options]
            return list(places), np.array(rows, np.int64)

        return self.known.fact(("blocks", self.known.identity(options)), made)

    def _number_blocks(
        self, options: Sequence[Layout], table: RegionTable, regions: Sequence[DisjointRegions]
    ) -> IntArray:
        """Numbers by (layout, device) of the regions of the layouts' blocks; equal ones are one array."""
        numbers = [table.number(region) for region in (*regions, DisjointRegions(table.shape))]
        return self.known.share(np.array(numbers, np.int64)[self._list_blocks(options)[1]])

    def _compute_ticks(self, at: int) -> IntArray:
        """Modeled compute time of each layout."""
        variable = self.variables[at]
        if variable.kind != "operator":
            return self.known.share(np.zeros(len(variable.layouts), np.int64))
        node = self.graph.nodes[variable.name]
        return self._node_ticks(node, self._number_read(node))

    def _node_ticks(self, node: OpNode, read: Mapping[str, IntArray]) -> IntArray:
        """Modeled compute time of an operator in each layout: the slowest device's arithmetic or memory traffic."""
        key = "ticks", self.kind(node), self._host(list_stored(self.graph, node.inputs))
        return self.known.fact(key, lambda: self._node_ticks_now(node, read, self.mesh))

    def count_fastest(self, node: OpNode, read: Mapping[str, IntArray]) -> IntArray:
        """The same if all devices were as fast as any of them: no layout takes less."""
        if not self.mesh.differs:
            return self.known.fact(
                ("bare", self.kind(node)), lambda: self._node_ticks_now(node, read, self.mesh, False)
            )
        mesh = replace(self.mesh, device=self.mesh.fastest)
        return self.known.fact(("fastest", self.kind(node)), lambda: self._node_ticks_now(node, read, mesh, False))

    def count_bare(self, at: int) -> IntArray:
        """Modeled compute time of each layout of an operator, by position, without what it copies."""
        node = self.graph.nodes[self.variables[at].name]
        read = self._number_read(node)
        return self.known.fact(("bare", self.kind(node)), lambda: self._node_ticks_now(node, read, self.mesh, False))

    def count_copied(self, node: OpNode, rows: slice = slice(None), inside: Collection[str] = ()) -> IntArray:
        """Bytes that each device writes anew to read views, by layout and device, but for some tensors.

        What is priced tensor by tensor, with what moves, is not among them (`_list_ways`).
        """
        outside = [k for k, name in enumerate(node.inputs) if name not in inside]
        layouts = self.variables[self.position["operator", node.name]].layouts
        nbytes = np.zeros(self._list_blocks(layouts)[1][rows].shape, np.int64)
        turned = self.known.fact(
            ("turned", self.known.identity(layouts)), lambda: any(is_turned(layout.digits) for layout in layouts)
        )
        for operand in outside:
            if turned or may_write(self.reads, node, operand):
                nbytes += self._count_operand(node, operand, rows)
        return nbytes

    def count_packed(self, node: OpNode, rows: slice = slice(None)) -> IntArray:
        """Bytes of operands that each device packs where an operator is a contraction, by layout and device."""
        blocks, places = self._list_blocks(self.variables[self.position["operator", node.name]].layouts)
        op, signature = self.graph.ops[node.op], self.graph.signature(node.name)
        itemsizes = [np.dtype(self.graph.source(name).dtype).itemsize for name in node.inputs]

        def count() -> IntArray:
            # over digits of axes work operators that go cell by cell, which are none
            boxes = (block if isinstance(block, Box) else None for block in blocks)
            each = [count_packed(op, node.attrs, signature, itemsizes, box) if box else 0 for box in boxes]
            return np.array([*each, 0], np.int64)

        packed: IntArray = self.known.fact(("packed", self.kind(node)), count)
        return packed[places[rows]]

    def _count_operand(self, node: OpNode, operand: int, rows: slice) -> IntArray:
        """The same of one operand, some of whose blocks may have to be written anew."""
        layouts = self.variables[self.position["operator", node.name]].layouts
        blocks, places = self._list_blocks(layouts)
        key = "written anew", self.kind(node), operand, self._host(self.graph.source(node.inputs[operand]).stored)
        if key in self.known.facts or len(places[rows]) == len(places):
            every: IntArray = self.known.fact(key, lambda: self._count_blocks(node, operand, blocks, places))
            return every[rows]
        return self._count_blocks(node, operand, blocks, places[rows])

    def _count_blocks(self, node: OpNode, operand: int, blocks: Sequence[IndexBlock], places: IntArray) -> IntArray:
        """Bytes that devices write anew for an operand, where they have blocks by number."""
        signature = self.graph.signature(node.name)
        nbytes = np.zeros(len(blocks) + 1, np.int64)  # the last one is of idle devices
        wanted = np.unique(places[places >= 0])
        seen = list_seen(signature, signature.inputs[operand], [blocks[k] for k in wanted.tolist()])
        hostings = self._host(self.graph.source(node.inputs[operand]).stored)
        each = {block: count_copied(self.reads, node, operand, block, hostings) for block in dict.fromkeys(seen)}
        nbytes[wanted] = [each[block] for block in seen]
        return nbytes[places]

    def _node_ticks_now(self, node: OpNode, read: Mapping[str, IntArray], mesh: Mesh, copies: bool = True) -> IntArray:
        seconds = self._count_seconds(node, read, mesh, slice(None), copies).max(axis=1)
        return to_ticks(seconds) + self._unwrap_ticks(node, mesh)

    def _unwrap_ticks(self, node: OpNode, mesh: Mesh) -> IntArray:
        """Modeled time to make values of states that no part is missing of, as a mean and squares: a launch each."""
        layouts = self.variables[at := self.position["operator", node.name]].layouts
        if not self.graph.ops[node.op].has_states:
            return np.zeros(len(layouts), np.int64)
        (cost, *_), rates = self.made[at], mesh.devices
        cells = cost.table.sizes(cost.held.numbers)
        each = [
            device.launch_seconds + n * cost.part_itemsize / device.memory_nbytes_per_second
            for device, n in zip(rates, cells.T, strict=True)
        ]
        slowest = np.where(cells > 0, np.stack(each, axis=1), 0.0).max(axis=1)
        return to_ticks(np.where(cost.held.parts > 1, 0.0, slowest))

    def count_seconds(self, node: OpNode, row: int) -> tuple[float, ...]:
        """Modeled seconds of each device's own work, in one layout of an operator."""
        found = self._count_seconds(node, self._number_read(node), self.mesh, slice(row, row + 1))
        return tuple(found[0].tolist())

    def _count_seconds(
        self, node: OpNode, read: Mapping[str, IntArray], mesh: Mesh, rows: slice, copies: bool = True
    ) -> NDArray[np.float64]:
        """Modeled seconds of each device's own work, by layout and device."""
        at = self.position["operator", node.name]
        layouts = self.variables[at].layouts[rows]
        op, signature = self.graph.ops[node.op], self.graph.signature(node.name)
        per_point = op.flop_per_point(signature, node.attrs)
        nbytes = np.zeros((len(layouts), self.mesh.size), np.int64)
        for _, mine in self._list_traffic(at, read, rows):
            nbytes += mine
        flop = [[float(per_point * box.size) if box else 0.0 for box in one.boxes] for one in layouts]
        idle = [[box is None for box in one.boxes] for one in layouts]
        launches: Any = 1
        if op.points_per_launch is not None:
            points = ((box.size if box else 0 for box in one.boxes) for one in layouts)
            launches = np.array([[op.count_launches(signature, node.attrs, n) for n in row] for row in points])
        cells = sum(prod(self.graph.source(name).shape) for name in (*node.inputs, *node.outputs))
        product = find_product_share(op, node.attrs, signature, per_point * signature.index.size, cells)
        operands = len(node.inputs) + len(node.outputs)
        flops = np.reshape(flop, nbytes.shape)
        copied = self.count_copied(node, rows) if copies else 0
        packed = self.count_packed(node, rows) if mesh.prices_packing else 0
        each = compute_seconds(
            flops, nbytes, mesh, launches, operands=operands, product=product, copied=copied, packed=packed
        )
        return np.where(np.reshape(idle, nbytes.shape), 0.0, each)

    def _list_traffic(self, at: int, read: Mapping[str, IntArray], rows: slice) -> Iterator[tuple[str, IntArray]]:
        """What an operator reads and writes of each tensor, in bytes by layout and device."""
        for name, numbers in read.items():
            yield name, self.tables[name].sizes(numbers[rows]) * self.graph.stored[name].itemsize
        op = self.graph.ops[self.graph.nodes[self.variables[at].name].op]
        for cost in self.made[at]:
            parts = cost.held.parts[rows]
            itemsizes = cost.itemsizes(parts + 1 if op.has_states else parts)  # states are written, also of one part
            yield cost.tensor.name, cost.table.sizes(cost.held.numbers[rows]) * itemsizes[:, None]

    def count_traffic(self, node: OpNode) -> dict[str, IntArray]:
        """The same for all layouts, by tensor."""
        at = self.position["operator", node.name]
        return dict(self._list_traffic(at, self._number_read(node), slice(None)))

    def list_needed(self, node: OpNode) -> Iterator[IntArray]:
        """Bytes that lie on each device at once where an operator runs, by layout."""
        yield sum(map(align, self.count_traffic(node).values()), np.zeros((1, 1), np.int64))

    @cached_property
    def own(self) -> list[Factor]:
        """What each variable costs by itself."""
        return self._own_tables()

    def restrict(self, kept: Sequence[IntArray]) -> Self:
        """The same problem with some layouts of each variable, by ascending number, as its only ones."""
        share, cuts = self.known.share, dict[tuple[int, ...], tuple[IntArray, IntArray]]()
        kept = [share(values) for values in kept]

        def cut(factor: Factor) -> Factor:
            return cut_table(factor, [kept[v] for v in factor.scope], cuts)

        def cut_use(use: Use) -> Use:
            return use.cut(kept[use.variable], share)

        def cut_cost(cost: TensorCost) -> TensorCost:
            values = kept[cost.producer]
            held = Held(*(share(rows[values]) for rows in (cost.held.numbers, cost.held.parts, cost.held.groups)))
            uses = [cut_use(use) for use in cost.uses]
            made = {consumers: cut(factor) for consumers, factor in cost.made.items()}
            landing = cost.landing and cut_use(cost.landing)
            merges = cost.merges and cost.landing and cost.merges.restrict(values, kept[cost.landing.variable], share)
            return replace(cost, held=held, uses=uses, made=made, landing=landing, merges=merges)

        made = copy(self)
        made.__dict__.pop("touching", None)
        own = list(zip(self.variables, self.compute, kept, strict=False))
        made.variables = [replace(v, layouts=tuple(v.layouts[k] for k in values)) for v, _, values in own]
        made.sizes = [len(values) for values in kept]
        made.compute = [share(ticks[values]) for _, ticks, values in own]
        made.own = [cut(factor) for factor in self.own]
        made.tensors = [cut_cost(cost) for cost in self.tensors]
        made.counted_alone, made.shared = {}, []
        made.listed = Tables([], weights=dict(self.listed.weights))
        return made

    def around(self, operators: Collection[int]) -> tuple[Self, list[int]]:
        """The tables of some operators alone, and their variables, with those of where what they read or make lies."""
        chosen = set(operators)
        made = copy(self)
        made.__dict__.pop("touching", None)
        made.tensors = [cost for cost in self.tensors if not chosen.isdisjoint(cost.variables)]
        near = {at for cost in made.tensors for at in cost.variables if self.variables[at].kind != "operator"}
        free = chosen | near
        made.own = [factor for factor in self.own if not free.isdisjoint(factor.scope)]
        return made, sorted(free)

    def factors(self, entries: int = tuning.MAX_FACTOR_ENTRIES) -> tuple[list[Factor], list[Factor]]:
        """The cost tables: those to search with, and those that bound every plan from below.

        They are the same list where every tensor's consumers can be counted jointly, in tables of so many entries.
        Other tensors' consumers are counted one by one, as if nothing had arrived for another. Together they take no
        less than the largest of them: where only the counting of many devices would take long, a table has that. Where
        that table would be too large too, the search has their sum, and the bound a mean of them.
        """
        self.counted_alone, self.entries = {}, entries
        tables = Tables(list(self.own), weights=self.listed.weights)
        count = len(self.tensors)
        for k, cost in enumerate(self.tensors):
            self.asked.meter.tell("costs", count + k, 2 * count)
            self._add_tables(cost, tables)
        self.shared, self.listed = tables.shared, tables
        search = tables.shared + tables.alone
        return search, tables.list_bound(self.known) if tables.alone else search

    def count_entries(self) -> int:
        """Entries of all tables of `factors`, of alike ones once; very many where some would be too large."""
        self.entries = tuning.MAX_FACTOR_ENTRIES
        found: dict[tuple[object, ...], int] = {}
        for cost in self.tensors:
            if not self._fits(cost, range(len(cost.uses))):
                return tuning.MAX_ENTRIES
            key: tuple[object, ...] = self._said(cost)
            entries = self.sizes[cost.producer]
            for use in (*([cost.landing] if cost.landing else []), *cost.uses):
                key, entries = (*key, id(use.numbers)), entries * self.sizes[use.variable]
                found[key] = entries
        return sum(found.values())

    def _own_tables(self) -> list[Factor]:
        """What each variable costs by itself: an operator's work."""
        return [self._own_table(at, ticks) for at, ticks in enumerate(self.compute)]

    def _own_table(self, at: int, ticks: IntArray) -> Factor:
        return Factor((at,), ticks, self.known.share(np.zeros_like(ticks)))

    def _add_tables(self, cost: TensorCost, tables: Tables) -> None:
        """What is moved for one tensor, consumer by consumer: each table has all those before it, if that fits."""
        uses = range(len(cost.uses))
        tables.shared += self._landing_tables(cost)
        if all(self._fits(cost, uses[: k + 1]) for k in uses):
            tables.shared += [self._factor(cost, uses[: k + 1]) for k in uses]
            return
        single = self.list_alone(cost)
        if prod(self.sizes[v] for v in list_scope(single)) <= self.entries:
            tables.count_largest(single, self.sizes, self.known)
        else:
            tables.count_alone(single)
        landing = [cost.landing] if cost.landing else []
        for v in (cost.producer, *(use.variable for use in (*landing, *cost.uses))):
            self.counted_alone.setdefault(v, []).append(cost)

    def _settle_landing(self, cost: TensorCost) -> None:
        """Let a tensor land nowhere where the tables would be too large with it.

        What is shared out lands wherever each consumer alone can be counted with it: so that all have it takes longest.
        """
        if cost.landing is not None:
            consumers = [self.sizes[use.variable] for use in cost.uses]
            around = self.sizes[cost.producer] * self.sizes[cost.landing.variable]
            many = len(consumers) > tuning.MAX_JOINT_CONSUMERS and not cost.shares
            if many or around * (max(consumers, default=1) if cost.shares else prod(consumers)) > self._count_room(
                cost
            ):
                cost.landing = None

    def _count_room(self, cost: TensorCost) -> int:
        """Entries of a table with a place to land: of what is complete those that are counted from device to device.

        What nobody reads is not shared out.
        """
        counted = tuning.MAX_COUNTED_PAIRS // self.mesh.size**2 if cost.uses else 0
        return min(tuning.MAX_FACTOR_ENTRIES, counted) if cost.shares else tuning.MAX_FACTOR_ENTRIES

    def _fits(self, cost: TensorCost, consumers: Sequence[int], choices: Iterable[int] = ()) -> bool:
        """Whether consumers can be counted jointly: they are few, and so are the entries of their table.

        A table of one of them is made in any case.
        """
        consumers = self._list_meeting(cost, consumers)
        if len(consumers) <= 1:
            return True
        scope = [cost.producer, *(cost.uses[k].variable for k in consumers), *choices]
        scope += [cost.landing.variable] if cost.landing else []
        entries = prod(self.sizes[v] for v in scope)
        most = min(self.entries, tuning.MAX_COUNTED_PAIRS // self.mesh.size**2)
        return len(consumers) <= tuning.MAX_JOINT_CONSUMERS and entries <= most

    def _factor(self, cost: TensorCost, consumers: Sequence[int]) -> Factor:
        """What the last of some consumers costs, given the producer, where its results land, and those before it."""
        key = self._list_meeting(cost, consumers)
        if key not in cost.made:
            cost.made[key] = self._make_factor(cost, key)
        return cost.made[key]

    def _factor_alone(self, cost: TensorCost, consumer: int) -> Factor:
        """What a consumer costs if there were no other: no more than it and they cost together.

        What the first one gathers may hold what the device made, and serve others then, so that nobody copies it.
        """
        if len(cost.uses) == 1 or not any(way.any() for use in cost.uses for way in use.ways):
            return self._factor(cost, [consumer])
        loose = cost.made.get((-1 - consumer,))
        if loose is None:
            uses = list(cost.uses)
            uses[consumer] = uses[consumer].loosen(self.known.share, FREE)
            loose = cost.made[-1 - consumer,] = self._make_factor(replace(cost, uses=uses), [consumer])
        return loose

    def count_pairs(self, cost: TensorCost, consumer: int) -> IntArray:
        """Picoseconds in which one consumer, by number, has a tensor, by layout of who makes it and of itself."""
        return self._make_tables(cost, [cost.uses[consumer]], whole=True)[0]

    def _list_meeting(self, cost: TensorCost, consumers: Sequence[int]) -> tuple[int, ...]:
        """The last of some consumers, and those before it that read cells which it reads too."""
        if not consumers:
            return ()
        *before, last = consumers
        read = cost.uses[last].numbers

        def meets(k: int) -> bool:
            key = "meets", cost.tensor.shape, id(cost.uses[k].numbers), id(read)
            return self.known.fact(key, lambda: cost.share_cells(cost.uses[k], cost.uses[last]))

        return (*(k for k in before if meets(k)), last)

    def _landing_tables(self, cost: TensorCost) -> list[Factor]:
        """What is moved to where a tensor lands."""
        return [self._factor(cost, ())] if cost.landing else []

    def _make_factor(self, cost: TensorCost, consumers: Sequence[int]) -> Factor:
        uses = [cost.uses[k] for k in consumers]
        landing = [cost.landing] if cost.landing else []
        whole = bool(consumers) and consumers[-1] not in cost.only_partial
        scope = [cost.producer, *(use.variable for use in (*landing, *uses))]
        order = sorted(range(len(scope)), key=scope.__getitem__)
        said = *self._said(cost), whole, len(landing), *(use.structure for use in (*landing, *uses))

        def made() -> tuple[IntArray, IntArray]:
            if cost.landing is None:
                return self._make_tables(cost, uses, whole)
            if not uses:
                both = self._count_at_once(cost, landing[0])
                if cost.merges is not None:
                    both = cost.merges.take_better(*both)
                return np.where(cost.lands, both[0], 0), np.where(cost.lands, both[1], 0)
            return self._join_landing(cost, cost.landing, uses, whole)

        def ordered() -> tuple[IntArray, IntArray]:
            ticks, nbytes = self.known.fact(("tables", *said), made)
            return ticks.transpose(order), nbytes.transpose(order)

        # Alike tables are one object in each order of their axes, so that elimination knows them.
        return Factor(tuple(scope[a] for a in order), *self.known.fact(("factor", *said, *order), ordered))

    def _count_at_once(self, cost: TensorCost, landing: Use) -> tuple[IntArray, IntArray]:
        """The tables of a tensor's landing, in one stage."""
        key = "at once", *self._said(cost), landing.structure
        return self.known.fact(key, lambda: self._make_tables(cost, [landing], whole=True))

    def list_merged(self, cost: TensorCost) -> NDArray[np.bool_]:
        """Whether a tensor's parts are merged in stages where it lands, by layouts of producer and landing."""
        assert cost.merges is not None and cost.landing is not None, "it may be"
        better = cost.merges.list_better(*self._count_at_once(cost, cost.landing))
        found: NDArray[np.bool_] = better & cost.lands[: len(better)]
        return found

    def _join_landing(
        self, cost: TensorCost, landing: Use, uses: Sequence[Use], whole: bool
    ) -> tuple[IntArray, IntArray]:
        """The tables of a consumer with a second axis, where the tensor lands: what landed is read from there."""
        may, lands = cost.lands.any(axis=1), cost.lands.any(axis=0)
        both = self._make_tables(cost, uses, whole)
        out = [np.repeat(near[:, None], len(landing.numbers), axis=1) for near in both]
        if lands.any():
            rested = replace(cost, held=hold_whole(self.known, cost.table, landing.numbers[lands]))
            in_parts, complete = may & (cost.held.parts > 1), np.flatnonzero(may & (cost.held.parts == 1))
            if in_parts.any():
                for table, far in zip(out, self._make_tables(rested, uses, whole), strict=True):
                    table[np.ix_(in_parts, lands)] = far
            if complete.size:  # what a device had before it has still: it is as if it had received it first
                had = Use(cost.producer, self.known.share(cost.held.numbers[complete]))
                twice = [use.double(self.known.share) for use in uses]
                for table, far in zip(out, self._make_tables(rested, [had, *twice], whole), strict=True):
                    table[np.ix_(complete, lands)] = far.swapaxes(0, 1)
        return out[0], out[1]

    def _said(self, cost: TensorCost) -> tuple[int | tuple[int, ...], ...]:
        """All that the tables of a tensor depend on besides its consumers: arrays are shared, so ids say which."""
        return cost.structure

    def _make_tables(self, cost: TensorCost, uses: Sequence[Use], whole: bool) -> tuple[IntArray, IntArray]:
        """Ticks and bytes of the last of some uses, by layout of the producer and of each use in turn.

        `whole` says whether it wants the tensor too where it is not in partial results.
        """
        made, devices = cost.held, self.mesh.size
        held_rows, held_class = list_classes(np.column_stack([made.numbers, made.groups, made.parts]))
        held = Held(held_rows[:, :devices], held_rows[:, -1], held_rows[:, devices:-1])
        needs, blocks, classes = zip(*map(_list_taken, uses), strict=True)
        sizes = cost.tensor.itemsize, cost.part_itemsize
        found = count_transfers(cost.table, held, needs, self.mesh, blocks, sizes)
        parts = held.parts[:, None]
        itemsize = cost.itemsizes(parts)
        ticks = transfer_ticks(found.busiest, found.rounds, found.runs, itemsize, self.mesh)
        ticks += merge_ticks(found.fresh, parts, itemsize, self.mesh)
        copying = assembly_ticks(found.assembled, self.mesh)
        nbytes = found.cells * itemsize
        if not whole:
            ticks, nbytes, copying = (np.where(parts == 1, 0, each) for each in (ticks, nbytes, copying))
        columns = found.columns[np.ix_(*classes)]
        free = [use.free for use in uses[:-1]]
        if all(each is None for each in free):
            return (ticks + copying)[held_class][:, columns], nbytes[held_class][:, columns]
        # What has arrived where consumers before have it for free is not known: that may have all of a block.
        known = np.ones((1,) * len(uses), np.int64)
        for k, each in enumerate(free):
            known = known if each is None else known * (1 - each.reshape(-1, *(1,) * (len(uses) - 1 - k)))
        ticks = ticks[held_class][:, columns] + copying[held_class][:, columns] * known
        return ticks, nbytes[held_class][:, columns]

    # -- the chosen layouts ------------------------------------------------------------------------------

    def count_cost(self, choice: Sequence[int]) -> tuple[int, int]:
        """Picoseconds and bytes of the chosen layouts."""
        moved = self.count_moved(choice).values()
        work = sum(int(ticks[value]) for ticks, value in zip(self.compute, choice, strict=True))
        return work + sum(m.ticks for m in moved), sum(int(m.nbytes.sum()) for m in moved)

    def count_moved(self, choice: Sequence[int]) -> dict[tuple[str, str], Moved]:
        """For each (tensor, consumer): the bytes that move, as chosen."""
        return {
            (cost.tensor.name, label): moved for cost in self.tensors for label, moved in self.list_moved(cost, choice)
        }

    def list_moved(self, cost: TensorCost, choice: Sequence[int]) -> Iterator[tuple[str, Moved]]:
        """What moves of one tensor, by the stages in which it lands, and by consumer."""
        name, every = cost.tensor.name, self.count_moved_of(cost, choice)
        stages = len(every) - len(cost.uses)
        for number, moved in enumerate(every[:stages], 1):
            yield name_stage("landing", name, number if number < stages else None), moved
        for use, moved in zip(cost.uses, every[stages:], strict=True):
            consumer = self.variables[use.variable]
            place = f"output {use.tied}" if use.tied else f"{consumer.kind} {consumer.name}"
            yield consumer.name if consumer.kind == "operator" else place, moved

    def count_moved_of(self, cost: TensorCost, choice: Sequence[int]) -> tuple[Moved, ...]:
        """What moves of one tensor in the stages in which it lands, and for each consumer."""
        return count_each(cost, choice, self._said(cost), self.mesh, self.known)

    def find_merge(self, cost: TensorCost, choice: Sequence[int]) -> MergeOrder | None:
        """Which parts are merged first where a tensor lands in stages, as chosen; None where all are merged at once."""
        return find_merge(cost, choice, self.mesh) if cost.lands_in(choice) else None

    def list_alone(self, cost: TensorCost) -> list[Factor]:
        """What each consumer of a tensor would receive if there were no other."""
        return [self._factor_alone(cost, k) for k in range(len(cost.uses))]

    def list_joined(self, choice: Sequence[int]) -> dict[str, str]:
        """The operators that are in one block with one that they read, as chosen, each with that one: none."""
        return {}

    @cached_property
    def touching(self) -> list[list[Factor]]:
        """For each variable the exact tables that it is in."""
        out: list[list[Factor]] = [[] for _ in self.sizes]
        for factor in self.shared:
            for v in factor.scope:
                out[v].append(factor)
        return out


def _list_taken(use: Use) -> tuple[IntArray, OperandBlocks, IntArray]:
    """What a consumer needs, and what its operands take, by class of its layouts; and the class of each."""
    every = (use.numbers, *use.apart, *use.ways, *use.loose)
    rows, classes = list_classes(np.column_stack(every))
    need, *others = np.split(rows, len(every), axis=1)
    first, second = len(use.apart), len(use.apart) + len(use.ways)
    blocks = OperandBlocks(tuple(others[:first]) or (need,), tuple(others[first:second]), tuple(others[second:]))
    return need, blocks, classes


def _run_once(options: Sequence[Layout]) -> tuple[Layout, ...]:
    """The layouts that run an opaque operator on one device, which may take long, each once."""
    return tuple(dict.fromkeys(each.seat_first() for each in options))


def _leave_out(options: Sequence[Layout], parts: tuple[int, ...]) -> tuple[Layout, ...]:
    """The layouts with other numbers of parts."""
    return tuple(option for option in options if option.parts != parts)
