"""Drafts: working copies of graphs that are edited place by place.

A draft knows who reads each tensor, so an edit costs what it changes, not what the graph is long, and every edit can
be taken back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import Graph, NotApplicable, Op, OpNode, Selection, Source, Stored, Tensor
from tapestry_sets.limits import FrozenDict, Public, put_fields, put_item, quote
from tapestry_sets.regions import AffineMap, Box, DisjointRegions
from tapestry_sets.views import Concat, ViewKind, piece_domain, sources_first, walk

_ABSENT: Any = object()


class Change(Struct, frozen=True, metaclass=Public):
    """One selection in a rewrite: the labels of its cascade before and after, nearest to memory first."""

    selection: str
    before: tuple[str, ...]
    after: tuple[str, ...]


class Rewrite(Struct, frozen=True, metaclass=Public):
    """A graph that computes the same as another one, and how it came about.

    Parameters
    ----------
    rule : str
        The name of the rewrite.
    graph : Graph
        The one given, if nothing changed.
    changes : tuple of Change
    """

    rule: str
    graph: Graph
    changes: tuple[Change, ...]


class Tile(Struct, frozen=True):
    """A box of a selection that reads one tensor, cell after cell.

    Parameters
    ----------
    box : Box
        Of the selection.
    tensor : str
    start : tuple of int
        The tensor's cell at the box's start.
    """

    box: Box
    tensor: str
    start: tuple[int, ...]


class Draft(Graph):
    """A graph that rules edit: what they add is found again by who reads it, and can be taken back.

    Parameters
    ----------
    graph : Graph
        Copied without its constants' values; never changed.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.name, graph.ops)
        put_fields(self, unread=FrozenDict(graph.unread), stored=FrozenDict(graph.stored))
        put_fields(self, nodes=FrozenDict(graph.nodes), selections=FrozenDict(graph.selections))
        put_fields(self, outputs=FrozenDict(graph.outputs), sizes=graph.sizes, folded=graph.folded)
        self._model = graph._model
        self._sources, self._signatures = dict(graph._sources), dict(graph._signatures)
        self._log: list[tuple[dict[str, Any], str, Any]] = []
        self._mark = 0
        self._scope = ""
        self._cut: dict[tuple[str, Box], str] = {}
        self._makers = {out: node.name for node in self.nodes.values() for out in node.outputs}
        self._readers: dict[str, dict[tuple[str, bool], None]] = {}
        items: list[OpNode | Selection] = [*self.nodes.values(), *self.selections.values()]
        for item in items:
            self._add(item)
        self._log.clear()

    # -- asking --

    def node(self, name: str) -> OpNode:
        """The operator node at a place.

        Raises
        ------
        NotApplicable
            When there is none of that name.
        """
        if name not in self.nodes:
            raise NotApplicable(f"there is no operator {quote(name)} in graph {quote(self.name)}")
        return self.nodes[name]

    def maker(self, tensor: str) -> OpNode | None:
        """The node that makes a stored tensor; None for inputs, constants and selections."""
        found = self._makers.get(tensor)
        return None if found is None else self.nodes[found]

    def readers(self, tensor: str) -> list[OpNode | Selection]:
        """The nodes and selections that read a tensor."""
        found = self._readers.get(tensor, {})
        items = (self.nodes.get(name) if is_node else self.selections.get(name) for name, is_node in found)
        return [item for item in items if item is not None]

    def is_output(self, tensor: str) -> bool:
        """Whether a tensor is a result of the graph."""
        return tensor in self.outputs.values()

    def _keep_source(self, name: str, source: Source) -> None:
        self._put(self._sources, name, source)

    # -- adding --

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Name the added nodes ``name.…``."""
        before, self._scope = self._scope, name
        try:
            yield
        finally:
            self._scope = before

    def _fresh(self, wanted: str, what: Any = "tensor") -> str:
        inside = not self._scope or wanted == self._scope or wanted.startswith(f"{self._scope}.")
        return super()._fresh(wanted if inside else f"{self._scope}.{wanted}", what)

    def find_free(self, wanted: str) -> str:
        """A name that no tensor has: the wanted one, or with the first free number after it."""
        return self._fresh(wanted)

    def check_free(self, name: str, what: Literal["node", "tensor"], argument: str) -> None:
        """Check that no other operator, or tensor, has a name that an argument of a rule gives.

        Raises
        ------
        NotApplicable
            Where one has it.
        """
        if super()._fresh(name, what) != name:
            is_there = "an operator" if what == "node" else "a tensor"
            raise NotApplicable(f"{quote(name)} is the name of {is_there} already; give {argument}= another one")

    def op(self, op: str | Op, *inputs: Tensor | None, name: str | None = None, **attrs: Any) -> Any:
        """As `Graph.op`."""
        before, known = len(self.nodes), len(self.ops)
        found = super().op(op, *inputs, name=name, **attrs)
        assert len(self.nodes) == before + 1, "one node was added"
        node = self.nodes[next(reversed(self.nodes))]
        self._log.append((self.nodes, node.name, _ABSENT))
        self._log.append((self._signatures, node.name, _ABSENT))
        if len(self.ops) > known:
            self._log.append((self.ops, node.op, _ABSENT))
        for out in node.outputs:
            self._put(self._makers, out, node.name)
        self._add(node)
        return found

    def add(self, op: str | Op, *inputs: Tensor | None, name: str, **attrs: Any) -> tuple[Tensor, ...]:
        """As `op`, with the results in a tuple also where there is one."""
        return as_tuple(self.op(op, *inputs, name=name, **attrs))

    def repeat(self, node: OpNode, name: str | None = None) -> tuple[str, ...]:
        """Add an operator like one that is there, on the same operands; its results."""
        name = self._fresh(name or node.name, "node")
        outs = []
        for k, out in enumerate(node.outputs):
            outs.append(self._fresh(name if len(node.outputs) == 1 else f"{name}.{k}"))
            self._new_tensor(dataclasses.replace(self.stored[out], name=outs[-1]))
            self._put(self._makers, outs[-1], name)
        made = replace(node, name=name, outputs=tuple(outs))
        self._put(self._signatures, name, self.signature(node.name))
        self._put(self.nodes, name, made)
        self._add(made)
        return made.outputs

    def look_at(self, selection: Selection, inputs: tuple[str, ...]) -> str:
        """Add the same view of other tensors, of the same shapes and dtypes; its name."""
        made = replace(selection, name=self._fresh(selection.name), inputs=inputs)
        self._put(self.selections, made.name, made)
        self._add(made)
        return made.name

    def reread(self, node: OpNode, inputs: tuple[str, ...]) -> None:
        """Let an operator read other tensors, of the same shapes and dtypes; views that nothing reads then are gone."""
        self._swap(node, inputs=inputs)
        self.sweep(node.inputs)

    def select(self, kind: ViewKind, *inputs: Tensor, name: str | None = None) -> Tensor:
        """As `Graph.select`."""
        found = super().select(kind, *inputs, name=name)
        self._log.append((self.selections, found.name, _ABSENT))
        self._add(self.selections[found.name])
        return found

    def _new_tensor(self, tensor: Stored) -> None:
        super()._new_tensor(tensor)
        self._log.append((self.stored, tensor.name, _ABSENT))

    def _add(self, item: OpNode | Selection) -> None:
        for name in item.inputs:
            self._put(self._readers.setdefault(name, {}), (item.name, isinstance(item, OpNode)), None)

    def slice(self, tensor: Tensor, box: Box) -> Tensor:
        """A box of a tensor, read from what the tensor is put together of, as far as that shows.

        A box inside one part of a concatenation is a box of that part; one across several parts is a concatenation
        of boxes of only those.
        """
        if box == Box.of(tensor.shape):
            return tensor
        known = self._cut.get((tensor.name, box))
        if known is None:
            known = self._cut[tensor.name, box] = self._slice(tensor, box).name
        return self.tensor(known)

    def _slice(self, tensor: Tensor, box: Box) -> Tensor:
        tiles = self.tiles(tensor.name) or ()
        parts = [(common, tile) for tile in tiles if (common := tile.box.intersect(box)) is not None]
        moving = {c for common, _ in parts for c in range(box.rank) if common.shape[c] != box.shape[c]}
        if not parts or len(moving) > 1:
            return tensor[tuple(slice(a, b) for a, b in zip(box.start, box.stop, strict=True))]
        pieces = [
            self.slice(self.tensor(tile.tensor), Box(_inside(tile, common), common.shape))
            for common, tile in sorted(parts, key=lambda part: part[0].start)
        ]
        return self.joined(pieces, moving.pop()) if moving else pieces[0]

    def joined(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors one after another along an axis; one alone is itself."""
        return tensors[0] if len(tensors) == 1 else self.select(Concat(axis), *tensors)

    def tiles(self, name: str) -> tuple[Tile, ...] | None:
        """The boxes that a selection is put together of, each a box of one tensor; None if it is not."""
        selection = self.selections.get(name)
        if selection is None:
            return None
        found = []
        for piece in selection.pieces:
            domain = piece_domain(piece, Box.of(selection.shape))
            bounds = domain.bounds()
            steps = piece.map.steps
            shifts = not steps or (len(steps) == 1 and isinstance(steps[0], AffineMap) and _is_shift(steps[0]))
            if piece.source < 0 or bounds is None or not shifts or not _is_box(domain):
                return None
            low, high = bounds
            found.append(Tile(Box.from_bounds(low, high), selection.inputs[piece.source], piece.map.apply(low)))
        return tuple(found)

    # -- changing --

    def _put(self, where: dict[Any, Any], key: Any, value: Any) -> None:
        self._log.append((where, key, where.get(key, _ABSENT)))
        put_item(where, key, value)

    def _drop(self, where: dict[Any, Any], key: Any) -> None:
        if key in where:
            self._log.append((where, key, dict.pop(where, key)))

    def replace(self, old: str, new: Tensor) -> None:
        """Let a new tensor be what an old one, with its name, was: for all that read it, and as an output.

        The node or selection that made the old one must be removed (`remove`) in the same edit.

        Raises
        ------
        NotApplicable
            When shapes or dtypes differ.
        """
        was = self.tensor(old)
        if (new.shape, new.dtype) != (was.shape, was.dtype):
            raise NotApplicable(
                f"{quote(old)} is {was.dtype}{quote(list(was.shape))}, what would stand for it "
                f"{new.dtype}{quote(list(new.shape))}"
            )
        if new.name == old:
            return
        self._redirect(old, new.name)

    def rename(self, tensor: str, name: str) -> None:
        """Give a tensor that is not an input or constant another name, which must be free."""
        assert name not in self.stored and name not in self.selections, "the name is free"
        if tensor in self.selections:
            self._swap(self.selections[tensor], name=name)
        else:
            node = self.nodes[self._makers[tensor]]
            outs = tuple(name if out == tensor else out for out in node.outputs)
            self._put(self.stored, name, dataclasses.replace(self.stored[tensor], name=name))
            self._drop(self.stored, tensor)
            self._put(self.nodes, node.name, replace(node, outputs=outs))
            self._drop(self._makers, tensor)
            self._put(self._makers, name, node.name)
        self._redirect(tensor, name)
        self._drop(self._sources, tensor)

    def _redirect(self, old: str, new: str) -> None:
        """Let all that reads a tensor read another one, and let outputs be that."""
        for item in self.readers(old):
            self._swap(item, inputs=tuple(new if name == old else name for name in item.inputs))
        for label in [label for label, name in self.outputs.items() if name == old]:
            self._put(self.outputs, label, new)
        self.forget(new)

    def _swap(self, item: OpNode | Selection, **fields: Any) -> None:
        """Put an item with other fields in place of one."""
        where: dict[str, Any] = self.nodes if isinstance(item, OpNode) else self.selections
        made = replace(item, **fields)
        self._unread(item)
        if made.name != item.name:
            self._drop(where, item.name)
        self._put(where, made.name, made)
        self._add(made)

    def _unread(self, item: OpNode | Selection) -> None:
        for name in item.inputs:
            self._drop(self._readers.get(name, {}), (item.name, isinstance(item, OpNode)))

    def forget(self, tensor: str) -> None:
        """Forget how selections over a tensor are read from memory."""

        def views(name: str) -> list[str]:
            return [item.name for item in self.readers(name) if isinstance(item, Selection)]

        for name in walk(tensor, views, key=str):
            self._drop(self._sources, name)

    def remove(self, node: str) -> None:
        """Take away a node whose outputs nothing reads, its outputs, and the selections that only it read."""
        item = self.nodes[node]
        self._unread(item)
        self._drop(self.nodes, node)
        self._drop(self._signatures, node)
        for out in item.outputs:
            assert not self.readers(out) and not self.is_output(out), "nothing reads what is removed"
            self._drop(self.stored, out)
            self._drop(self._makers, out)
            self._drop(self._sources, out)
        self.sweep(item.inputs)

    def sweep(self, names: Iterable[str]) -> None:
        """Take away selections that nothing reads."""
        stack = list(dict.fromkeys(names))
        while stack:
            name = stack.pop()
            selection = self.selections.get(name)
            if selection is not None and not self.readers(name) and not self.is_output(name):
                self.take(name)
                stack += selection.inputs

    def take(self, name: str) -> Selection:
        """Take a selection away, though something may read it."""
        selection = self.selections[name]
        self._unread(selection)
        self._drop(self.selections, name)
        self._drop(self._sources, name)
        return selection

    def become(self, node: str, outputs: Sequence[Tensor]) -> None:
        """Let tensors stand for the outputs of a node, under their names if this edit added them; remove the node."""
        olds, added = self.node(node).outputs, self._added_tensors()
        for old, new in zip(olds, outputs, strict=True):
            self.replace(old, new)
        self.remove(node)
        for old, new in zip(olds, outputs, strict=True):
            if new.name in added:
                self.rename(new.name, old)
                added.discard(new.name)

    def rename_node(self, node: str, name: str) -> None:
        """Give a node another name, which must be free."""
        assert name not in self.nodes, "the name is free"
        item = self.nodes[node]
        self._swap(item, name=name)
        if node in self._signatures:
            self._put(self._signatures, name, self._signatures[node])
            self._drop(self._signatures, node)
        for out in item.outputs:
            self._put(self._makers, out, name)

    def _added_tensors(self) -> set[str]:
        """The tensors that this edit added."""
        return {
            key
            for where, key, was in self._log[self._mark :]
            if was is _ABSENT and (where is self.stored or where is self.selections)
        }

    # -- all or nothing --

    @contextmanager
    def edit(self) -> Iterator[None]:
        """Take back everything that is done inside if it raises."""
        self._mark = len(self._log)
        self._numbered.clear()
        self._cut.clear()
        try:
            yield
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """Take back all changes since the last `edit` began."""
        while len(self._log) > self._mark:
            where, key, was = self._log.pop()
            if was is _ABSENT:
                dict.pop(where, key, None)
            else:
                put_item(where, key, was)

    def changes(self, at: str) -> tuple[Change, ...]:
        """The changes of the last edit: the operators and selections that went, and those that came."""
        before: dict[tuple[int, str], Any] = {}
        after: dict[tuple[int, str], Any] = {}
        for where, key, was in self._log[self._mark :]:
            if where is self.nodes or where is self.selections:
                before.setdefault((id(where), key), None if was is _ABSENT else was)
                after[id(where), key] = where.get(key)
        apart = [k for k, was in before.items() if was is None or after[k] is None or _word(was) != _word(after[k])]
        gone = tuple(_word(before[k]) for k in apart if before[k] is not None)
        come = tuple(_word(after[k]) for k in apart if after[k] is not None)
        if not apart and self.is_changed:  # the same operators and selections, but of others
            gone = come = tuple({_word(item): None for item in after.values()})
        return (Change(at, gone, come),) if gone or come else ()

    @property
    def is_changed(self) -> bool:
        """Whether the last edit changed a node, a selection or an output."""
        places = (self.nodes, self.selections, self.outputs)
        return any(where is place for where, _, _ in self._log[self._mark :] for place in places)

    def done(self) -> Graph:
        """The graph as it is now, nodes and selections after what they read; the draft is spent."""
        made = Graph(self.name, self.ops)
        put_fields(made, stored=self.stored, outputs=self.outputs, unread=self.unread, sizes=self.sizes)
        put_fields(made, folded=self.folded)
        made._model = self._model
        made._sources, made._signatures = self._sources, self._signatures

        def below(item: OpNode | Selection | None) -> list[OpNode | Selection | None]:
            if item is None:  # below the top are all, in the order in which they were added
                return [*reversed(self.selections.values()), *reversed(self.nodes.values())]
            found = (self.selections.get(name) or self.maker(name) for name in reversed(item.inputs))
            return [one for one in found if one is not None]

        for item in sources_first(None, below):
            if isinstance(item, OpNode):
                put_item(made.nodes, item.name, item)
            elif item is not None:
                put_item(made.selections, item.name, item)
        return made


def as_tuple(made: Any) -> tuple[Any, ...]:
    """The tensors of an operator or an expansion, in a tuple also where it is one."""
    return made if isinstance(made, tuple) else (made,)


def _inside(tile: Tile, box: Box) -> tuple[int, ...]:
    """Where a box inside a tile begins in the tile's tensor."""
    return tuple(a - o + s for a, o, s in zip(box.start, tile.box.start, tile.start, strict=True))


def _word(item: OpNode | Selection) -> str:
    return item.op if isinstance(item, OpNode) else item.label


def _is_box(cells: DisjointRegions) -> bool:
    return len(cells.members) == 1 and cells.members[0].is_box


def _is_shift(step: AffineMap) -> bool:
    return AffineMap(step.matrix, (0,) * step.out_rank, step.in_rank).is_identity
