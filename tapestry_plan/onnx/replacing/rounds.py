"""Loops and Scans of too many rounds to put in place: what they do, and which axes of their tensors a plan may cut.

body ──► graph of one round ──► classes of axes that are walked together, by projections and views alone
              │                      │   a state before a round is tied to that behind it
              ▼                      ▼
         what a round does     index axes of one operator that runs all rounds, each over its part
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct

from tapestry_plan.ir import Graph, Operand, OpNode, Selection, Shape, Shard, Signature, Tensor
from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.nodes import Array, CheckedModel, Importing, Node, axes_of, is_number
from tapestry_plan.onnx.order import made_in, needed_of, read_nodes, sort
from tapestry_plan.onnx.replacing.bodies import rename
from tapestry_plan.onnx.replacing.lasting import Condition
from tapestry_sets.regions import AffineMap, Box, Region
from tapestry_sets.views import Assembled, Relinearize, allocate

PlaceNodes = Callable[[Importing, Sequence[Node]], None]
"""Adds nodes to the graph of an import, in turn; raises ValueError for those that it cannot."""
Cell = tuple[str, int]
"""An axis of a tensor, or of an operator's index space, by name and number."""
OUTSIDE = "outside of the body: "
"""Before the names of what the node itself reads and makes; no name of ONNX begins so."""


class Work(Struct, frozen=True):
    """What the rounds of a Loop or Scan do, as `ops.opaque` takes it.

    Parameters
    ----------
    inside : tuple of (times, is_contraction, flop, axes, operands)
        The operators of one round.
    rounds : int or None
        How many there are, None where that is not known.
    """

    inside: tuple[tuple[Any, ...], ...] = ()
    rounds: int | None = None


class CutRounds(Struct, frozen=True):
    """What a Loop or Scan is as an operator whose index axes are those that its rounds do not mix.

    Parameters
    ----------
    node : Node
        The Loop or Scan, with constants of its body outside of it where they have an index axis.
    constants : mapping of str to array
        These.
    follows : mapping of str to sequence of str
        Of what the node reads and makes, by name, the index axis that each of its axes follows, or "".
    shapes : mapping of str to shape
        Of what it makes, which ONNX's inference does not tell of a Loop.
    """

    node: Node
    constants: Mapping[str, Array]
    follows: Mapping[str, tuple[str, ...]]
    shapes: Mapping[str, Shape]


def find_cut(at: Importing, node: Node, place: PlaceNodes) -> tuple[CutRounds | None, Work]:
    """The index axes of a Loop or Scan, over which its rounds may run in parts, if there are any; and its work.

    The body is imported once, as a graph of one round. An axis of a tensor is in one class with an index axis of an
    operator where its coordinate is that index axis; views tie axes that they map as they are; states are tied to
    themselves a round later, and what is scanned to its slice. Whatever else touches an axis spoils its class. No
    operator is known by name.

    That the body, which ONNX's own runners are given, does on a part of the cells what it does there on all, is then
    seen by importing it again with smaller extents of the classes: node by node there must be the same operators with
    the attributes that the declarations have for blocks (`Op.attributes_of_blocks`), the same projections, views that
    read the same cells, and constants of the same bits. What this needs to be enough:

    - An importer is a function of shapes and of known values. Known values that the body makes of the shapes of unknown
      tensors (by Shape, Size and what follows from these) could be any function of the extents. Where there are such,
      all extents are tried, up to `tuning.TRIED_EXTENTS`, and else there is no cut. Without them an extent enters by an
      operator's own rule for shapes alone, which takes it over, clamps it, multiplies it, or refuses: 1, where
      broadcasting differs, and a half are tried, of each class alone and of all at once.
    - A constant of the body with an axis of a class would keep its extent: it is put outside, and cut as all operands
      are. One that follows from others spoils the class.
    - Operators that depend on where their cells lie (draws, ranges) say so by `Op.local`; those that do not say are
      taken to.
    """
    if node.operator not in ("Loop", "Scan") or node.captured is None:
        return None, Work()
    try:
        ports = _Ports.of(at, node)
        if ports is None:
            return None, Work()
        return _Finding(at, node, ports, place).find()
    except ValueError:  # of a body that cannot be imported at all, which is for who runs it whole to say
        return None, Work()


class _Ports(Struct, frozen=True):
    """What the body is given and makes, beside what the node reads and makes; with the axis that rounds are along.

    Parameters
    ----------
    body : onnx.GraphProto
    fixed : mapping of str to array
        Inputs of the body whose values are the same in each round.
    number : tuple of (str, shape)
        The number of a round, where the body is given it.
    states : list of (str, str, str, str)
        Of each state what the node reads and makes, and what the body does.
    slices, stacks : list of (str, str, int)
        Of each scanned input and output the node's tensor, the body's, and the axis.
    condition : str
        The body's output that says whether it goes on; empty for none.
    trips : int or None
        How many rounds there are at most; None where that is not known, nor whether there is one.
    """

    body: Any
    fixed: dict[str, Array]
    number: tuple[tuple[str, Shape], ...]
    states: list[tuple[str, str, str, str]]
    slices: list[tuple[str, str, int]]
    stacks: list[tuple[str, str, int]]
    condition: str
    trips: int | None

    @classmethod
    def of(cls, at: Importing, node: Node) -> _Ports | None:
        (body,) = [one.g for one in node.proto.attribute if one.name == "body"] or [None]
        if body is None or body.sparse_initializer:
            return None
        inputs, outputs = [one.name for one in body.input], [one.name for one in body.output]
        made = [*node.outputs, *[""] * (len(outputs) - len(node.outputs))]
        if node.operator == "Loop":
            return cls._of_loop(at, node, body, inputs, outputs, made)
        count = node.attrs["num_scan_inputs"]
        states = len(node.inputs) - count
        if len(inputs) != len(node.inputs) or len(outputs) < states or not 0 < count <= len(inputs):
            return None
        axes = node.attrs.get("scan_input_axes", [0] * count)
        back = node.attrs.get("scan_output_axes", [0] * (len(outputs) - states))
        node.attrs.get("scan_input_directions"), node.attrs.get("scan_output_directions")
        slices = [
            (name, own, axes_of([axis], len(at.shape(name)), "axis")[0])
            for name, own, axis in zip(node.inputs[states:], inputs[states:], axes, strict=True)
        ]
        ties = list(zip(node.inputs, made, inputs, outputs, strict=False))[:states]
        stacks = list(zip(made[states:], outputs[states:], back, strict=True))
        return cls(body, {}, (), ties, slices, stacks, "", at.shape(slices[0][0])[slices[0][2]])

    @classmethod
    def _of_loop(
        cls, at: Importing, node: Node, body: Any, inputs: list[str], outputs: list[str], made: list[str]
    ) -> _Ports | None:
        """None where there is no round: then none says what rounds would make."""
        trips, first = node.input(0), node.input(1)
        states = list(node.inputs[2:])
        if len(inputs) != 2 + len(states) or len(outputs) < 1 + len(states):
            return None
        if first and at.is_known(first) and not np.all(at.value(first)):
            return None
        count = int(at.value(trips).reshape(())) if trips and at.is_known(trips) else None
        if count is not None and count < 1:
            return None
        if first and not at.is_known(first):
            count = None
        dims = body.input[0].type.tensor_type.shape.dim
        ties = list(zip(states, made, inputs[2:], outputs[1:], strict=False))[: len(states)]
        more = outputs[1 + len(states) :]
        stacks = [(name, own, 0) for name, own in zip(made[len(states) :], more, strict=False)]
        fixed = {inputs[1]: np.ones([1] * len(body.input[1].type.tensor_type.shape.dim), bool)}
        number = ((inputs[0], (1,) * len(dims)),)
        return cls(body, fixed, number, ties, [], stacks, outputs[0], count)


class _OneRound(Struct, frozen=True):
    """The graph of one round."""

    graph: Graph
    named: dict[str, str]
    """The graph's tensor of each of the body's."""
    follows_shapes: bool
    """Whether known values were made of shapes."""
    condition: Array | None
    """Whether rounds go on, where that is known."""


class _Watching(Importing):
    """An import that notes whether a value became known that does not follow from known ones alone."""

    is_watching = False
    follows_shapes = False
    _is_of_known = False

    def bind(self, name: str, result: Tensor | Array) -> None:
        super().bind(name, result)
        if self.is_watching and isinstance(result, np.ndarray) and not self._is_of_known:
            self.follows_shapes = True

    def bind_computed(self, node: Node, name: str, result: Tensor | Array) -> None:
        self._is_of_known = all(not one or self.is_known(one) for one in (*node.inputs, *(node.captured or ())))
        try:
            super().bind_computed(node, name, result)
        finally:
            self._is_of_known = False


# -- classes of axes -----------------------------------------------------------------------------------------


class _Walked:
    """Axes that are walked together: a union-find, in which a class may be spoiled for good."""

    def __init__(self) -> None:
        self._above: dict[Cell, Cell] = {}
        self._spoiled: set[Cell] = set()

    def find(self, axis: Cell) -> Cell:
        path = [axis]
        while (above := self._above.get(path[-1])) is not None:
            path.append(above)
        self._above.update(dict.fromkeys(path[:-2], path[-1]))
        return path[-1]

    def join(self, one: Cell, other: Cell) -> None:
        a, b = self.find(one), self.find(other)
        if a != b:
            self._above[a] = b
            if a in self._spoiled:
                self._spoiled.add(b)

    def spoil(self, *axes: Cell) -> None:
        self._spoiled.update(map(self.find, axes))

    def is_kept(self, axis: Cell) -> bool:
        return self.find(axis) not in self._spoiled


def _wide(name: str, shape: Shape) -> Iterator[Cell]:
    """The axes of a tensor that have several cells."""
    return ((name, k) for k, n in enumerate(shape) if n > 1)


def join_operator(classes: _Walked, graph: Graph, node: OpNode) -> None:
    """Join the axes of an operator's operands and results that follow one index axis, and spoil all that do not."""
    signature = graph.signature(node.name)
    index = f"{node.name}()"  # of a tensor no name of ONNX's operators' importers ends so
    for k, axis in enumerate(signature.axes):
        if axis.kind == "reduction" or axis.parts != "any":
            classes.spoil((index, k))
    sides = (node.inputs, signature.inputs), (node.outputs, signature.outputs)
    for name, operand in ((name, one) for names, operands in sides for name, one in zip(names, operands, strict=True)):
        shape = graph.tensor(name).shape
        for k, n in enumerate(shape):
            followed = _followed(signature, operand, k, n)
            if followed is not None:
                classes.join((name, k), (index, followed))
                continue
            if n > 1:
                classes.spoil((name, k))
            classes.spoil(*((index, axis) for axis in _moving(signature, operand, k)))


def _moving(signature: Signature, operand: Operand, k: int) -> Iterator[int]:
    """The index axes with which an operand moves along its axis k."""
    for one in operand.projections:
        columns = [*range(len(signature.axes)), *(axis for axis, _ in one.splits for _ in range(2))]
        factors = zip(columns, one.map.matrix[k], strict=True)
        yield from (axis for axis, factor in factors if factor and signature.axes[axis].size > 1)


def _followed(signature: Signature, operand: Operand, k: int, n: int) -> int | None:
    """The index axis that the coordinate along axis k of an operand, of extent n, is; None where it is none."""
    if n == 1 or any(operand.origin):
        return None
    found = set[int | None]()
    for one in operand.projections:
        row = one.map.matrix[k]
        moved = [column for column, factor in enumerate(row) if factor]
        is_plain = len(moved) == 1 and row[moved[0]] == 1 and not one.map.offset[k] and one.shape[k] == 1
        is_plain = is_plain and moved[0] < len(signature.axes) and signature.axes[moved[0]].size == n
        uses = [other for other in one.map.matrix if moved and other[moved[0]]]
        is_split = moved and any(axis == moved[0] for axis, _ in one.splits)
        found.add(moved[0] if is_plain and len(uses) == 1 and not is_split else None)
    return found.pop() if len(found) == 1 else None


def join_view(classes: _Walked, graph: Graph, view: Selection) -> None:
    """Join the axes of a view with those of its sources that it maps as they are, and spoil all that it does not."""
    shapes = [graph.tensor(name).shape for name in view.inputs]
    for piece in view.pieces:
        mixed, carried = _carried(piece, view.shape)
        classes.spoil(*((view.name, k) for k in mixed))
        if piece.source < 0:
            continue
        source, shape = view.inputs[piece.source], shapes[piece.source]
        for k, n in enumerate(shape):
            axis = carried[k]
            if axis is not None and view.shape[axis] == n > 1:
                classes.join((view.name, axis), (source, k))
                continue
            if n > 1:
                classes.spoil((source, k))
            if axis is not None and view.shape[axis] > 1:
                classes.spoil((view.name, axis))


def _carried(piece: Any, shape: Shape) -> tuple[set[int], list[int | None]]:
    """Which of a view's axes a piece mixes or cuts, and for each coordinate of its source the axis that it is."""
    now: list[int | None] = list(range(len(shape)))
    mixed = set[int]()

    def heed(guards: Iterable[Any]) -> None:
        for guard in guards:
            region: Region = guard.region
            whole = Region.full(region.shape)
            for k, axis in enumerate(now):
                is_whole = not region.start[k] and region.setts[k] == whole.setts[k]
                if axis is not None and not (is_whole and region.shape[k] == shape[axis]):
                    mixed.add(axis)

    for prefix, step in enumerate(piece.map.steps):
        heed(one for one in piece.guards if one.prefix == prefix)
        after: list[int | None] = [None] * step.out_rank
        if isinstance(step, AffineMap):
            for row, (factors, offset) in enumerate(zip(step.matrix, step.offset, strict=True)):
                moved = [k for k, factor in enumerate(factors) if factor]
                if len(moved) == 1 and factors[moved[0]] == 1 and not offset:
                    after[row] = now[moved[0]]
                else:
                    mixed.update(axis for axis in (now[k] for k in moved) if axis is not None)
        elif isinstance(step, Relinearize):
            _renumber(step, now, after, mixed, shape)
        else:
            mixed.update(axis for axis in now if axis is not None)
        now = after
    heed(one for one in piece.guards if one.prefix == len(piece.map.steps))
    kept = [axis for axis in now if axis is not None]
    mixed.update(axis for axis in kept if kept.count(axis) > 1)
    return mixed, now


def _renumber(step: Relinearize, now: list[int | None], after: list[int | None], mixed: set[int], shape: Shape) -> None:
    """Follow the digits of one shape that are digits of another one."""
    old, new = step.from_shape, step.to_shape
    for k, axis in enumerate(now):
        if axis is None or old[k] == 1:
            continue
        found = [
            j
            for j, n in enumerate(new)
            if n == old[k] == shape[axis]
            and prod(new[:j]) == prod(old[:k])
            and prod(new[j + 1 :]) == prod(old[k + 1 :])
        ]
        if found:
            after[found[0]] = axis
        else:
            mixed.add(axis)


# -- one round -----------------------------------------------------------------------------------------------


class _Finding:
    """The search for the index axes of one node."""

    def __init__(self, at: Importing, node: Node, ports: _Ports, place: PlaceNodes) -> None:
        self._at, self._node, self._ports, self._place = at, node, ports, place
        self._captured = [name for name in node.captured or () if name]
        self._opset = at.opset
        self._stored = dict(_list_constants(ports.body))
        self._known = {name: at.value(name) for name in self._captured if at.is_known(name)} | self._stored
        self._names = {name: at.shape(name) for name in dict.fromkeys([*node.inputs, *self._captured]) if name}

    def find(self) -> tuple[CutRounds | None, Work]:
        lifted, kept_inside = frozenset[str](), frozenset[str]()
        while True:
            try:
                body = self._import_body(lifted, {})
            except ValueError:
                if not lifted:
                    raise
                lifted, kept_inside = frozenset(), kept_inside | lifted
                continue
            rounds = self._count_rounds(body)
            if rounds is None or rounds != self._ports.trips:
                self._check_states(body)
                return None, Work(_work_of(body.graph, {}), rounds)
            classes = self._join(body, lifted, kept_inside)
            more = self._constants_of(body, classes) - lifted - kept_inside
            if not more:
                break
            lifted |= more
        kept = self._proven(body, classes, lifted)
        numbers = {root: f"i{k}" for k, root in enumerate(kept)}
        cells = (*self._cells_of(body.graph),)
        named = {cell: numbers[root] for cell in cells if (root := classes.find(cell)) in numbers}
        work = Work(_work_of(body.graph, named), rounds)
        return self._cut(body, classes, numbers, lifted) if kept else None, work

    def _count_rounds(self, body: _OneRound) -> int | None:
        """How many rounds take place; None where that is not known."""
        trips = self._ports.trips
        if not self._ports.condition or trips is None:
            return trips
        if body.condition is not None:
            return trips if np.all(body.condition) else 1
        if trips > tuning.TRIED_ROUNDS:
            return None
        first = [self._number(name) for name in self._node.inputs[2:]]
        return Condition(self._ports.body, first, self._number, self._at.opsets).count_rounds(trips)

    def _check_states(self, body: _OneRound) -> None:
        """Refuse states of another shape behind a round: then other rounds do other things."""
        for _, _, before, after in self._ports.states:
            first, last = (body.named.get(name) for name in (before, after))
            if first is None or last is None or body.graph.tensor(first).shape != body.graph.tensor(last).shape:
                raise ValueError("a state has another shape behind a round")

    def _cells_of(self, graph: Graph) -> Iterator[Cell]:
        """All axes of several cells of a graph's tensors and operators."""
        for name in (*graph.stored, *graph.selections):
            yield from _wide(name, graph.tensor(name).shape)
        for name in graph.nodes:
            yield from _wide(f"{name}()", graph.signature(name).index_shape)

    def _number(self, name: str) -> Array | None:
        """The value of a tensor, if it is one number that is known."""
        value = self._known.get(name)
        value = self._at.value(name) if value is None and name and self._at.is_known(name) else value
        return value if value is not None and value.size == 1 else None

    def _shapes(self) -> dict[str, tuple[Shape, str]]:
        """What the body is given in each round."""
        ports, at = self._ports, self._at
        given = {own: (at.shape(name), at.dtype_of(name)) for name, _, own, _ in ports.states}
        for name, own, axis in ports.slices:
            shape = at.shape(name)
            given[own] = (*shape[:axis], *shape[axis + 1 :]), at.dtype_of(name)
        given |= {name: (shape, "int64") for name, shape in ports.number}
        given |= {name: (at.shape(name), at.dtype_of(name)) for name in self._captured if name not in self._known}
        return given

    def _import_body(self, lifted: frozenset[str], cut: Mapping[str, Shape]) -> _OneRound:
        """The graph of a round; with some shapes where `cut` says them, by names of the body."""
        from onnx import GraphProto, helper

        proto = GraphProto()
        proto.CopyFrom(self._ports.body)
        del proto.input[:], proto.value_info[:]
        held = [one for one in proto.initializer if one.name not in lifted]
        nodes = [one for one in proto.node if one.op_type != "Constant" or one.domain or one.output[0] not in lifted]
        del proto.initializer[:], proto.node[:]
        proto.initializer.extend(held)
        proto.node.extend(nodes)
        imports = [helper.make_opsetid(domain, version) for domain, version in self._at.opsets.items()]
        model = helper.make_model(proto, opset_imports=imports, ir_version=self._at.ir_version or None)
        inner = _Watching(CheckedModel(model, None, self._opset, 0), [], self._at.importers)
        nodes, wanted = sort(list(read_nodes(proto))), [one.name for one in proto.output]
        given = self._shapes() | {name: (self._known[name].shape, str(self._known[name].dtype)) for name in lifted}
        inner.taken.update(given, self._known, *((*one.inputs, *one.outputs) for one in nodes), made_in(proto))
        for name, array in (*self._ports.fixed.items(), *self._known.items()):
            if name not in lifted and name not in self._stored:
                inner.bind(name, array)
        for name, (shape, dtype) in given.items():
            inner.bind(name, inner.graph.input(name, cut.get(name, shape), dtype))
        needed = needed_of(nodes, wanted)
        inner.is_watching = True
        self._place(inner, needed)
        inner.is_watching = False
        named = {}
        for k, name in enumerate(wanted):
            if k or not self._ports.condition:
                named[name] = inner.tensor(name).name
                inner.graph.output(inner.tensor(name), f"{OUTSIDE}{k}")
        condition = inner.value(wanted[0]) if self._ports.condition and inner.is_known(wanted[0]) else None
        if self._ports.condition and condition is None:
            inner.graph.output(inner.tensor(wanted[0]), f"{OUTSIDE}{0}")
        named |= {name: tensor.name for name, tensor in inner.tensors.items()}
        inner.drop_unread_views()
        return _OneRound(inner.graph.done(), named, inner.follows_shapes, condition)

    def _join(self, body: _OneRound, lifted: frozenset[str], inside: frozenset[str]) -> _Walked:
        classes, graph = _Walked(), body.graph
        spared = {body.named.get(name) for name in self._known if name not in inside}
        for name, tensor in graph.stored.items():
            if tensor.kind == "constant" and name not in spared:
                classes.spoil(*_wide(name, tensor.shape))
        for node in graph.nodes.values():
            join_operator(classes, graph, node)
            self._check_locality(classes, graph, node)
        for view in graph.selections.values():
            join_view(classes, graph, view)
        self._tie(body, classes)
        names = [*graph.stored, *graph.selections, *(f"{OUTSIDE}{name}" for name in self._names)]
        for name in names:
            shape = self._names[name.removeprefix(OUTSIDE)] if name.startswith(OUTSIDE) else graph.tensor(name).shape
            roots = [classes.find(axis) for axis in _wide(name, shape)]
            classes.spoil(*(root for root in roots if roots.count(root) > 1))
        for name, shape in self._results(body).items():
            every = {classes.find(axis) for axis in self._outer_axes()}
            classes.spoil(*(every - {classes.find((f"{OUTSIDE}{name}", k)) for k in range(len(shape))}))
        return classes

    def _outer_axes(self) -> list[Cell]:
        return [axis for name, shape in self._names.items() for axis in _wide(f"{OUTSIDE}{name}", shape)]

    def _tie(self, body: _OneRound, classes: _Walked) -> None:
        graph, ports = body.graph, self._ports

        def tie(one: str, two: str, but: int = -1) -> None:
            """Axes of the node's tensor and of the body's, which lacks one."""
            shape = graph.tensor(two).shape
            for k, n in enumerate(shape):
                if n > 1:
                    classes.join((f"{OUTSIDE}{one}", k + (0 <= but <= k)), (two, k))
            if but >= 0:
                classes.spoil((f"{OUTSIDE}{one}", but))

        self._check_states(body)
        for reads, makes, before, after in ports.states:
            first, last = body.named[before], body.named[after]
            tie(reads, first)
            for k, n in enumerate(graph.tensor(first).shape):
                if n > 1:
                    classes.join((first, k), (last, k))
            if makes:
                tie(makes, last)
        for name, own, axis in ports.slices:
            if own in body.named:
                tie(name, body.named[own], axis)
        for name, own, axis in ports.stacks:
            if name:
                rank = len(graph.tensor(body.named[own]).shape) + 1
                tie(name, body.named[own], axis % rank)
        for name in self._captured:
            if name in body.named:
                tie(name, body.named[name])
        if ports.condition and body.condition is None:  # all parts are to make as many rounds
            last = graph.outputs[f"{OUTSIDE}{0}"]
            classes.spoil(*_wide(last, graph.tensor(last).shape))

    def _results(self, body: _OneRound) -> dict[str, Shape]:
        """The shapes of what the node makes."""
        trips = self._ports.trips
        assert trips is not None, "there is a cut of a known number of rounds alone"
        made = {name: body.graph.tensor(body.named[after]).shape for _, name, _, after in self._ports.states if name}
        for name, own, axis in self._ports.stacks:
            if name:
                shape = body.graph.tensor(body.named[own]).shape
                axis %= len(shape) + 1
                made[name] = (*shape[:axis], trips, *shape[axis:])
        return made

    def _check_locality(self, classes: _Walked, graph: Graph, node: OpNode) -> None:
        """Spoil the index axes along which an operator depends on where its cells lie."""
        signature, index = graph.signature(node.name), f"{node.name}()"
        for k, axis in enumerate(signature.axes):
            if axis.size > 1 and classes.is_kept((index, k)):
                for start, size in ((0, axis.size - 1), (1, axis.size - 1)):
                    box = _narrow(signature.index, {k: (start, size)})
                    if _attrs_of_part(graph, node, box) is None:
                        classes.spoil((index, k))

    def _constants_of(self, body: _OneRound, classes: _Walked) -> frozenset[str]:
        """Constants that have an axis of a class that is kept."""
        found = set()
        for name in self._known:
            tensor = body.graph.stored.get(body.named.get(name, ""))
            axes = () if tensor is None or tensor.kind != "constant" else _wide(tensor.name, tensor.shape)
            if any(map(classes.is_kept, self._live(classes, axes))):
                found.add(name)
        return frozenset(found)

    def _live(self, classes: _Walked, axes: Iterable[Cell]) -> Iterator[Cell]:
        """Those whose class is also one of what the node reads."""
        roots = {classes.find(axis) for axis in self._outer_axes()}
        return (axis for axis in axes if classes.find(axis) in roots)

    # -- the proof -------------------------------------------------------------------------------------------

    def _proven(self, body: _OneRound, classes: _Walked, lifted: frozenset[str]) -> dict[Cell, int]:
        """The classes, with their extents, over which the body does on parts what it does on all."""
        found: dict[Cell, int] = {}
        for name, k in self._outer_axes():
            if classes.is_kept((name, k)):
                found.setdefault(classes.find((name, k)), self._names[name.removeprefix(OUTSIDE)][k])
        if body.follows_shapes:
            tried = [dict(zip(found, each, strict=True)) for each in _all_extents(found.values())]
            return found if tried and all(self._agrees(body, classes, lifted, each) for each in tried) else {}

        def holds(some: Mapping[Cell, int]) -> bool:
            sizes = ({root: least(n) for root, n in some.items()} for least in (lambda n: 1, lambda n: -(-n // 2)))
            return all(self._agrees(body, classes, lifted, each) for each in sizes)

        found = {root: n for root, n in found.items() if holds({root: n})}
        return found if len(found) < 2 or holds(found) else {}

    def _agrees(self, body: _OneRound, classes: _Walked, lifted: frozenset[str], sizes: Mapping[Cell, int]) -> bool:
        """Whether the body over smaller extents of some classes is the same, cut."""

        def cut(name: str, shape: Shape) -> Shape:
            return tuple(sizes.get(classes.find((name, k)), n) if n > 1 else n for k, n in enumerate(shape))

        graph = body.graph
        given = {name: body.named[name] for name in (*self._shapes(), *lifted) if name in body.named}
        try:
            other = self._import_body(lifted, {own: cut(n, graph.tensor(n).shape) for own, n in given.items()})
        except ValueError:
            return False
        two = other.graph
        kinds = [
            (one.nodes.keys(), one.selections.keys(), one.stored.keys(), dict(one.outputs)) for one in (graph, two)
        ]
        if [list(one) for one in kinds[0]] != [list(one) for one in kinds[1]] or kinds[0][3] != kinds[1][3]:
            return False
        if not _are_same(body.condition, other.condition):
            return False
        for name in (*graph.stored, *graph.selections):
            one, another = graph.tensor(name), two.tensor(name)
            if another.shape != cut(name, one.shape) or another.dtype != one.dtype:
                return False
        for name, stored in graph.stored.items():
            if stored.kind != two.stored[name].kind:
                return False
            if stored.kind == "constant" and not _are_same(stored.data, two.stored[name].data):
                return False
        views = (_reads_same(graph, two, view, two.selections[view.name], cut) for view in graph.selections.values())
        nodes = (_does_same(graph, two, node, two.nodes[node.name]) for node in graph.nodes.values())
        return all(nodes) and all(views)

    # -- the operator ----------------------------------------------------------------------------------------

    def _cut(self, body: _OneRound, classes: _Walked, numbers: Mapping[Cell, str], lifted: frozenset[str]) -> CutRounds:
        outer = {name: name for name in lifted if name in self._captured}
        constants, names = {}, {}
        for name in sorted(lifted - outer.keys()):
            fresh = f"{self._node.name}.{name}"
            while fresh in self._at.taken or self._at.has(fresh):
                fresh += "_"
            self._at.taken.add(fresh)
            names[name], constants[fresh] = fresh, self._stored[name]
        node = _without(self._node, names)
        follows = {}

        def follow(name: str, label: str, shape: Shape) -> None:
            roots = [classes.find((label, k)) if n > 1 else None for k, n in enumerate(shape)]
            follows[name] = tuple(numbers.get(root, "") if root else "" for root in roots)

        for name, shape in (*self._names.items(), *self._results(body).items()):
            follow(name, f"{OUTSIDE}{name}", shape)
        for own, fresh in names.items():
            follow(fresh, body.named[own], constants[fresh].shape)
        return CutRounds(node, constants, follows, self._results(body))


def _work_of(graph: Graph, named: Mapping[Cell, str]) -> tuple[tuple[Any, ...], ...]:
    """What the operators of a round do, as `ops.opaque` takes it; `named` has index axes of all rounds by axis.

    One that runs others inside is these: so nested loops multiply. Those that do the same are told together.
    """

    def follow(name: str, axes: Iterable[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(named[name, k] for k in axes if (name, k) in named))

    found = Counter[tuple[Any, ...]]()
    for node in graph.nodes.values():
        signature, op, index = graph.signature(node.name), graph.ops[node.op], f"{node.name}()"
        inner = op.list_inner(signature, node.attrs)
        for one in inner:
            each = tuple((*counts, follow(index, axes)) for *counts, axes in one.operands)
            found[one.is_contraction, one.flop, follow(index, one.axes), each] += one.times
        if inner:
            continue
        passes = dict(zip(node.inputs, op.count_passes(signature, node.attrs), strict=True))
        sides, rank = dict[str, tuple[Any, ...]](), len(signature.axes)
        pairs = zip((*node.inputs, *node.outputs), (*signature.inputs, *signature.outputs), strict=True)
        for k, (name, operand) in enumerate(pairs):
            tensor = graph.tensor(name)
            is_packed = signature.is_contraction and k < len(node.inputs)
            points = prod(signature.axes[axis].size for axis in operand.index_axes)
            packed = points * sum(prod(one.shape) for one in operand.projections) if is_packed else 0
            cells = prod(tensor.shape) * passes.get(name, 1)
            sides[name] = cells, np.dtype(tensor.dtype).itemsize, packed, follow(name, range(len(tensor.shape)))
        flop = op.flop_per_point(signature, node.attrs) * signature.index.size
        found[signature.is_contraction, float(flop), follow(index, range(rank)), tuple(sides.values())] += 1
    return tuple((times, *work) for work, times in found.items())


def _all_extents(extents: Iterable[int]) -> list[tuple[int, ...]]:
    """All smaller extents, where these are few."""
    sizes = list(extents)
    return list(product(*(range(1, n + 1) for n in sizes))) if prod(sizes) <= tuning.TRIED_EXTENTS else []


def _narrow(box: Box, parts: Mapping[int, tuple[int, int]]) -> Box:
    start, shape = list(box.start), list(box.shape)
    for k, (first, size) in parts.items():
        start[k], shape[k] = first, size
    return Box(tuple(start), tuple(shape))


def _attrs_of_part(graph: Graph, node: OpNode, index: Box) -> dict[str, Any] | None:
    """The attributes with which an operator on the blocks of an index box alone does what it does there."""
    signature, op = graph.signature(node.name), graph.ops[node.op]
    inputs = tuple(signature.input_box(k, index) for k in range(len(node.inputs)))
    outputs = tuple(signature.output_box(k, index) or Box((), ()) for k in range(len(node.outputs)))
    if any(box is None for box in inputs):
        return None
    attrs = op.attributes_of_blocks(
        Shard(index, signature, node.attrs, inputs, outputs, None), [box.shape for box in inputs if box is not None]
    )
    return None if attrs is None else op.complete({key: one for key, one in attrs.items() if one is not None})


def _does_same(graph: Graph, other: Graph, node: OpNode, small: OpNode) -> bool:
    """Whether an operator of a smaller graph is the first part of another one's, and any other part too."""
    one, two = graph.signature(node.name), other.signature(small.name)
    if (node.op, node.inputs, node.outputs) != (small.op, small.inputs, small.outputs) or len(one.axes) != len(
        two.axes
    ):
        return False
    if graph.ops[node.op] is not other.ops[small.op]:
        return False
    sizes = [(a.size, b.size) for a, b in zip(one.axes, two.axes, strict=True)]
    if any(a < b for a, b in sizes) or [axis.kind for axis in one.axes] != [axis.kind for axis in two.axes]:
        return False
    wanted = graph.ops[node.op].complete(small.attrs)
    for is_last in (False, True):
        places = {k: ((a - b) * is_last, b) for k, (a, b) in enumerate(sizes)}
        if _without_work(_attrs_of_part(graph, node, _narrow(one.index, places))) != _without_work(wanted):
            return False
    wide = [k for k, axis in enumerate(two.axes) if axis.size > 1]
    pairs = zip((*one.inputs, *one.outputs), (*two.inputs, *two.outputs), strict=True)
    return all(_project_same(a, b, wide, len(one.axes)) for a, b in pairs)


def _without_work(attrs: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Attributes that say what an operator does, and not how much work that is."""
    return None if attrs is None else {key: value for key, value in attrs.items() if key != "inside"}


def _project_same(one: Operand, two: Operand, wide: Sequence[int], rank: int) -> bool:
    """Whether operands read alike over a smaller index space, whose axes of several points are `wide`."""
    if (one.pad, one.at_start_of, one.outside, one.origin) != (two.pad, two.at_start_of, two.outside, two.origin):
        return False
    if len(one.projections) != len(two.projections):
        return False
    for a, b in zip(one.projections, two.projections, strict=True):
        if (a.shape, a.splits, a.map.offset) != (b.shape, b.splits, b.map.offset):
            return False
        columns = [*wide, *range(rank, rank + 2 * len(a.splits))]
        rows = [[[row[k] for k in columns] for row in each.map.matrix] for each in (a, b)]
        if rows[0] != rows[1]:
            return False
    return True


def _reads_same(
    graph: Graph, other: Graph, view: Selection, small: Selection, cut: Callable[[str, Shape], Shape]
) -> bool:
    """Whether a view of a smaller graph is the first part of another one's."""
    if view.inputs != small.inputs:
        return False
    if not view.inputs:
        return view.pieces == small.pieces
    shapes = [graph.tensor(name).shape for name in view.inputs]
    memory = [allocate(shape) for shape in shapes]
    parts = [
        one[tuple(slice(n) for n in cut(name, shape))] if shape else one
        for one, name, shape in zip(memory, view.inputs, shapes, strict=True)
    ]
    whole = memory[0].apply(Assembled(view.shape, view.pieces, tuple(shapes)), *memory[1:])
    whole = whole[tuple(slice(n) for n in small.shape)] if small.shape else whole
    kind = Assembled(small.shape, small.pieces, tuple(one.shape for one in parts))
    return parts[0].apply(kind, *parts[1:]).same_view(whole)


def _are_same(one: Any, two: Any) -> bool:
    """Whether two arrays, or none, have the same bits."""
    if one is None or two is None:
        return one is two
    a, b = np.asarray(one), np.asarray(two)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _list_constants(body: Any) -> Iterator[tuple[str, Array]]:
    """The numbers that a body stores, by name: initializers and Constants."""
    from onnx import numpy_helper

    for one in body.initializer:
        array = numpy_helper.to_array(one)
        if is_number(array.dtype) and array.size > 1:
            yield one.name, array
    for node in body.node:
        values = [one.t for one in node.attribute if one.name == "value" and one.HasField("t")]
        if node.op_type == "Constant" and not node.domain and values:
            array = numpy_helper.to_array(values[0])
            if is_number(array.dtype) and array.size > 1:
                yield node.output[0], array


def _without(node: Node, names: Mapping[str, str]) -> Node:
    """A node whose body reads some of its constants from outside, under other names, and has no idle nodes.

    Nobody has seen what idle nodes do on parts, and ONNX's reference, sometimes ONNX Runtime too, runs them.
    """
    from onnx import NodeProto, helper

    proto = NodeProto()
    proto.CopyFrom(node.proto)
    (body,) = [one.g for one in proto.attribute if one.name == "body"]
    held = [one for one in body.initializer if one.name not in names]
    needed = needed_of(sort(list(read_nodes(body))), [value.name for value in body.output])
    nodes = [one.proto for one in needed if names.keys().isdisjoint(one.outputs)]
    kept = helper.make_graph(nodes, body.name, [], [], held)
    del body.initializer[:], body.node[:]
    body.initializer.extend(kept.initializer)
    body.node.extend(kept.node)
    rename(body.node, names)
    for value in body.output:
        value.name = names.get(value.name, value.name)
    (read,) = read_nodes(helper.make_graph([proto], node.name, [], []))
    made = Node(node.name, read.op_type, read.domain, read.inputs, node.outputs, node.attrs, read.proto, read.captured)
    return made


def open_extents(model: Any, follows: Mapping[str, Sequence[str]]) -> None:
    """Take the extents of index axes, and all that a body says of shapes, out of a model of one node."""
    for value in (*model.graph.input, *model.graph.output):
        dims = value.type.tensor_type.shape.dim
        for dim, axis in zip(dims, follows.get(value.name, ()), strict=False):
            if axis:
                dim.Clear()
    (node,) = model.graph.node
    for body in (one.g for one in node.attribute if one.name == "body"):
        del body.value_info[:]
        for value in (*body.input, *body.output):
            for dim in value.type.tensor_type.shape.dim:
                dim.Clear()
