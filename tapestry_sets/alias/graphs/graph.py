"""Alias graphs: tensors that are memory or views of one another, and may be changed into each other afterwards.

The graph holds nodes only. Every question about cells goes to plain views, which are built from the nodes when a
question is asked and kept until an edit changes what they read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from tapestry_sets.alias import tuning
from tapestry_sets.alias.graphs import nodes as alias_nodes
from tapestry_sets.alias.graphs.nodes import Node, kind_text, view_node
from tapestry_sets.alias.graphs.tensors import AliasTensor, TensorRef
from tapestry_sets.alias.overlap import overlap_matrix, overlaps
from tapestry_sets.draw import align, as_html, yes_or_no
from tapestry_sets.limits import (
    OPEN,
    REFUSALS,
    as_int,
    as_items,
    ask_one,
    check_flag,
    check_type,
    list_names,
    mend_calls,
    quote,
)
from tapestry_sets.regions import DisjointRegions
from tapestry_sets.views import (
    Allocation,
    DType,
    Shape,
    Slice,
    View,
    ViewKind,
    allocate,
    check_color,
    pad,
    sources_first,
    view_of,
    walk,
)

# ---------------------------------------------------------------------------------------------------- the graph


@mend_calls
class AliasGraph:
    """An ordered graph of tensors, each one memory of its own or a view of others; it can be edited.

    Tensors are numbered in the order in which they were added and may have names of their own. `graph[number]` and
    `graph[name]` give them; every method takes a tensor, its number or its name. An edit either gives another valid
    graph or raises and leaves the graph as it was.

    Two graphs are equal if they have the same nodes in the same order: kinds and inputs, shapes, item sizes and
    colors. Names are for people: they do not count.

    Examples
    --------
    >>> from tapestry_sets import AliasGraph
    >>> from tapestry_sets.views import concatenate
    >>> g = AliasGraph()
    >>> a, b = g.allocate((2, 5), name="a"), g.allocate((3, 5), name="b", color="input")
    >>> both = concatenate([a, b]).rename("both")
    >>> column = both[:, 1]
    >>> print(g.table())
    id  name  kind              ins   shape   outs  color    self-overlap  aliased to
    0   a     allocation              (2, 5)  2     0        no            0, 2, 3
    1   b     allocation              (3, 5)  2     'input'  no            1-3
    2   both  Concat(0)         0, 1  (5, 5)  3              no            0-3
    3         Index(((1, 1),))  2     (5,)                   no            0-3
    """

    __slots__ = ("_homes", "_names", "_nodes", "_outs", "_views")
    __hash__ = None  # type: ignore[assignment]  # it changes

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._outs: list[set[int]] = []
        self._names: dict[str, int] = {}
        # what a built view reads is built too: where there is none, none above it has one
        self._views: list[View | None] = []
        self._homes: dict[Hashable, int] = {}

    # -- tensors ------------------------------------------------------------------------------------------

    def allocate(
        self,
        shape: int | Sequence[int],
        name: str = "",
        dtype: DType | None = None,
        itemsize: int | None = None,
        color: Hashable = 0,
    ) -> AliasTensor:
        """Add a tensor with memory of its own.

        Parameters
        ----------
        shape, dtype, itemsize
            As for `allocate` of a plain view.
        name : str, optional
            Not the name of another tensor of the graph.
        color : hashable, optional
            A mark of the user's own; see `AliasTensor.colors`.

        Raises
        ------
        ValueError
            If an extent is negative, the name is taken, or `dtype` and `itemsize` disagree.

        References
        ----------
        poprithms, memory/alias: Graph::allocate.
        """
        made = allocate(shape, None, dtype, itemsize, check_color(color, "allocate"))
        return self._append(Node(made.shape, made.itemsize, None, (), color, self._free_name(name)))

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[AliasTensor]:
        return (AliasTensor(self, i) for i in range(len(self._nodes)))

    def __getitem__(self, key: TensorRef) -> AliasTensor:
        """Return the tensor of a number (from the end if negative) or of a name.

        Raises
        ------
        KeyError
            If no tensor has that name.
        IndexError
            If there is no such number.
        ValueError
            For a tensor of another graph.
        """
        return AliasTensor(self, self._number(key))

    def __contains__(self, key: object) -> bool:
        if isinstance(key, str):
            return key in self._names
        return isinstance(key, AliasTensor) and key.graph is self

    def __eq__(self, other: object) -> bool:
        return self._nodes == other._nodes if isinstance(other, AliasGraph) else NotImplemented

    def __repr__(self) -> str:
        allocations = sum(node.kind is None for node in self._nodes)
        return f"AliasGraph({len(self)} tensors, {allocations} of them allocations)"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        if not 0 < len(self) <= tuning.SHOWN_TENSORS:
            return {"text/plain": repr(self)}
        rows = self._rows()
        return {"text/plain": "\n".join([repr(self), *align(rows)]), "text/html": as_html(rows)}

    def copy(self) -> AliasGraph:
        """Return a graph of the same nodes, with the same names, and memory of its own."""
        return AliasGraph._of(self._nodes)

    __copy__ = copy

    def __reduce__(self) -> tuple[Any, ...]:
        return AliasGraph._of, (self._nodes,)

    @classmethod
    def _of(cls, nodes: Sequence[Node]) -> AliasGraph:
        made = cls()
        made._add_all(nodes)
        return made

    def grow(
        self,
        wanted: Iterable[str],
        inputs_of: Callable[[str], Iterable[str]],
        make: Callable[[str, tuple[AliasTensor, ...]], AliasTensor],
    ) -> tuple[AliasTensor, ...]:
        """Add the wanted tensors of another graph, by name, and those that they alias and that are not here yet.

        Parameters
        ----------
        wanted : iterable of str
            Names in the other graph.
        inputs_of : callable
            ``(name) -> names``: what that tensor aliases.
        make : callable
            ``(name, inputs) -> AliasTensor``: adds one tensor to this graph; it is given the name. Called once for
            each name that the graph lacks, inputs first.

        Returns
        -------
        tuple of AliasTensor
            The wanted tensors.

        Raises
        ------
        ValueError
            If a tensor aliases itself through others, or `make` gives a tensor that is not new; the graph is then as
            it was.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> g = AliasGraph()
        >>> program = {"x": [], "y": ["x"], "z": ["y"]}
        >>> grown = g.grow(["y"], program.get, lambda name, ins: ins[0].flip() if ins else g.allocate((4,)))
        >>> [t.name for t in g]
        ['x', 'y']

        References
        ----------
        poprithms, memory/alias: JitGrower.
        """
        names = _checked_names(wanted, "wanted")
        for what, function in (("inputs_of", inputs_of), ("make", make)):
            if not callable(function):
                raise TypeError(
                    f"grow: {what} must be a function, not {quote(function)} of type {type(function).__name__}"
                )
        with self._all_or_nothing():
            for name, inputs in _in_order(names, inputs_of, self._names):
                before = len(self)
                made = self[make(name, tuple(self[k] for k in inputs))]
                if made.id < before or made.name:
                    raise ValueError(
                        f"grow: make gave {quote(made)} for {quote(name)}; it must be a new tensor without a name"
                    )
                self.rename(made, name)
        return tuple(self[name] for name in names)

    # -- questions ----------------------------------------------------------------------------------------

    def aliases(self, tensor: TensorRef) -> tuple[AliasTensor, ...]:
        """Return all tensors that share a cell with this one, itself included if it has cells, in ascending order.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> g = AliasGraph()
        >>> a = g.allocate((6,))
        >>> even, odd = a[::2], a[1::2]
        >>> [t.id for t in g.aliases(even)]
        [0, 1]

        References
        ----------
        poprithms, memory/alias: Graph::allAliases, Tensor::getNonDisjoint.
        """
        view = self._view(self._number(tensor))
        near: set[int] = set()
        for allocation in view.cells:
            near.update(walk(self._homes[allocation], self._outs.__getitem__, key=int))
        return tuple(AliasTensor(self, j) for j in sorted(near) if overlaps(view, self._view(j)))

    def all_aliases(self) -> dict[AliasTensor, tuple[AliasTensor, ...]]:
        """Return for each tensor what `aliases` does, all pairs at once.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> g = AliasGraph()
        >>> a = g.allocate((6,))
        >>> even, odd = a[::2], a[1::2]
        >>> {t.id: [u.id for u in them] for t, them in g.all_aliases().items()}
        {0: [0, 1, 2], 1: [0, 1], 2: [0, 2]}

        References
        ----------
        poprithms, memory/alias: Graph::allAliasesMap.
        """
        found: dict[int, tuple[AliasTensor, ...]] = {}
        for group in self._groups():
            tensors = [AliasTensor(self, i) for i in group]
            matrix = overlap_matrix([self._view(i) for i in group])
            for i, row in zip(group, matrix, strict=True):
                found[i] = tuple([tensors[k] for k in np.flatnonzero(row).tolist()])
        return {AliasTensor(self, i): found[i] for i in range(len(self))}

    # -- edits --------------------------------------------------------------------------------------------

    def to_allocation(self, tensor: TensorRef, color: Hashable = None) -> AliasTensor:
        """Make a view memory of its own; its readers follow. Of an allocation only the color may change.

        Parameters
        ----------
        tensor : AliasTensor, int or str
        color : hashable, optional
            By default an allocation keeps its own, and what was a view has 0.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> g = AliasGraph()
        >>> a = g.allocate((6,))
        >>> b = a[::2]
        >>> c = b.flip()
        >>> g.to_allocation(b).overlaps(a), c.overlaps(b)
        (False, True)

        References
        ----------
        poprithms, memory/alias: Graph::toAllocation.
        """
        i = self._number(tensor)
        node = self._nodes[i]
        if color is None:
            color = node.color if node.kind is None else 0
        self._replace(i, node.replace(kind=None, inputs=(), color=check_color(color, "to_allocation")))
        return AliasTensor(self, i)

    def to_view(self, tensor: TensorRef, kind: ViewKind, *inputs: TensorRef) -> AliasTensor:
        """Make a tensor a view of others, which may stand anywhere in the graph; its readers follow.

        Parameters
        ----------
        tensor : AliasTensor, int or str
            An allocation, or a view that shall be another one.
        kind : ViewKind
            What it makes of the inputs must have the tensor's shape.
        *inputs : AliasTensor, int or str
            Tensors of its item size that do not read it themselves.

        Raises
        ------
        ValueError
            If the kind does not fit the inputs, shapes or item sizes differ, or an input reads the tensor; the graph
            is unchanged.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> from tapestry_sets.views import Concat
        >>> g = AliasGraph()
        >>> a, b = g.allocate((3, 4)), g.allocate((6, 4))
        >>> g.to_view(b, Concat(0), a, a).has_internal_overlap()
        True

        References
        ----------
        poprithms, memory/alias: Graph::allocationToConcat, allocationToSettsample, allocationToDimshuffle,
        allocationToReshape, allocationToExpand, allocationToReverse.
        """
        i = self._number(tensor)
        numbers = tuple(self._number(x) for x in inputs)
        node, made = self._nodes[i], view_node(self._nodes, kind, numbers)
        if (made.shape, made.itemsize) != (node.shape, node.itemsize):
            raise ValueError(
                f"to_view: {quote(AliasTensor(self, i))} has shape {quote(node.shape)} and {node.itemsize} bytes a "
                f"cell, but {kind_text(kind)} of {quote(list(numbers))} has {quote(made.shape)} and {made.itemsize}; "
                "they must agree"
            )
        for j in numbers:
            path = self._path(j, i)
            if path:
                reads = " reads ".join(map(str, path))
                raise ValueError(f"to_view: tensor {i} cannot be a view of tensor {j}, for {reads}: that is a cycle")
        self._replace(i, made.replace(name=node.name))
        return AliasTensor(self, i)

    def to_identity(self, tensor: TensorRef, source: TensorRef) -> AliasTensor:
        """Make a tensor the same as another one of its shape; its readers follow.

        Raises
        ------
        ValueError
            As for `to_view`.

        References
        ----------
        poprithms, memory/alias: Graph::toIdentity, Tensor::toIdentityFrom.
        """
        return self.to_view(tensor, Slice(()), source)

    def recolor(self, tensor: TensorRef, color: Hashable) -> AliasTensor:
        """Give an allocation another color.

        Raises
        ------
        ValueError
            If the tensor is a view: its colors are those of the allocations that it reads.
        """
        i = self._number(tensor)
        if self._nodes[i].kind is not None:
            under = [j for j in self._under(i) if self._nodes[j].kind is None]
            raise ValueError(f"recolor: tensor {i} is a view; colors belong to allocations, here to {quote(under)}")
        self._replace(i, self._nodes[i].replace(color=check_color(color, "recolor")))
        return AliasTensor(self, i)

    def rename(self, tensor: TensorRef, name: str) -> AliasTensor:
        """Give a tensor another name, or none ("").

        Raises
        ------
        ValueError
            If another tensor has that name.
        """
        i = self._number(tensor)
        node = self._nodes[i]
        if not isinstance(name, str) or name != node.name:
            self._replace(i, node.replace(name=self._free_name(name)))
        return AliasTensor(self, i)

    # -- more tensors of old ones -------------------------------------------------------------------------

    def clone(self, tensor: TensorRef, color: Hashable = None) -> AliasTensor:
        """Add a copy of a tensor and of all that it reads: the same layout over new memory.

        Parameters
        ----------
        tensor : AliasTensor, int or str
        color : hashable, optional
            Of all the new allocations; by default each has its pattern's.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> g = AliasGraph()
        >>> a = g.allocate((4, 6))
        >>> b = a[:, ::2].clone()
        >>> b.id, b.shape, b.overlaps(a)
        (3, (4, 3), False)

        References
        ----------
        poprithms, memory/alias: Graph::clone, CloneColorMethod.
        """
        i = self._number(tensor)
        made: dict[int, int] = {}
        for j in self._under(i):
            node = self._nodes[j]
            fresh = node.replace(inputs=tuple(made[k] for k in node.inputs), name="")
            if node.kind is None and color is not None:
                fresh = fresh.replace(color=check_color(color, "clone"))
            made[j] = self._append(fresh).id
        return AliasTensor(self, made[i])

    def pad(
        self,
        tensor: TensorRef,
        widths: int | Sequence[int] | Sequence[Sequence[int]] | Mapping[int, Any],
        color: Hashable = 0,
        shared: bool = True,
    ) -> AliasTensor:
        """Add memory around a tensor, and return the whole.

        This is `pad` of a tensor with new memory of this graph as `padding`.

        Parameters
        ----------
        tensor : AliasTensor, int or str
        widths : int, (before, after), or one (before, after) for each axis
        color : hashable, optional
            Of the new allocations.
        shared : bool
            Whether all cells around are one new scalar, or each is another new cell.

        Returns
        -------
        AliasTensor
            The tensor itself if all widths are 0.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> g = AliasGraph()
        >>> a = g.allocate((5, 5))
        >>> g.pad(a, 1).has_internal_overlap(), g.pad(a, ((1, 2), (1, 3)), shared=False).has_internal_overlap()
        (True, False)

        References
        ----------
        poprithms, memory/alias: Graph::pad, BroadcastPadding.
        """
        out = self[tensor]
        check_flag(shared, "AliasGraph.pad: shared")
        new = partial(self.allocate, itemsize=out.itemsize, color=color)
        cells: list[AliasTensor] = []

        def block(shape: Shape) -> AliasTensor:
            if not shared:
                return new(shape)
            if not cells:
                cells.append(new(()))
            return cells[0].broadcast_to(shape)

        return pad(out, widths, padding=block)

    # -- tables and text ----------------------------------------------------------------------------------

    def table(self, origins: bool = False, bitwise: bool = False) -> str:
        """Return the graph as text: a row for each tensor.

        Parameters
        ----------
        origins : bool
            Whether to add the regions that each tensor reads of each allocation.
        bitwise : bool
            Whether to draw those regions cell by cell, where they are small enough, rather than write their setts.

        Returns
        -------
        str
            "?" stands where an answer takes more than the `limits` allow.

        References
        ----------
        poprithms, memory/alias: Graph::verboseString, appendSettwiseOrigins, appendBitwiseOrigins.
        """
        check_flag(origins, "AliasGraph.table: origins"), check_flag(bitwise, "AliasGraph.table: bitwise")
        text = "\n".join(align(self._rows()))
        return f"{text}\n\n{self._origins_text(bitwise)}" if origins or bitwise else text

    def _rows(self) -> Sequence[tuple[str, ...]]:
        """The table's rows, the head first."""
        found = ask_one(REFUSALS, self.all_aliases)
        aliases = {} if found is OPEN else {t.id: _ranges([u.id for u in x]) for t, x in found.items()}
        rows = [("id", "name", "kind", "ins", "shape", "outs", "color", "self-overlap", "aliased to")]
        for i, node in enumerate(self._nodes):
            kind = "allocation" if node.kind is None else kind_text(node.kind)
            color = repr(node.color) if node.kind is None else ""
            ins, outs = ", ".join(map(str, node.inputs)), _ranges(sorted(self._outs[i]))
            twice, among = yes_or_no(self._view(i).has_internal_overlap), aliases.get(i, "?")
            rows.append((str(i), node.name, kind, ins, str(node.shape), outs, color, twice, among))
        return rows

    def _origins_text(self, bitwise: bool) -> str:
        rows = [("id", "regions read of allocations")]
        for t in self:
            read = ask_one(REFUSALS, t.origins)
            rows.append((str(t.id), "?" if read is OPEN else "\n".join(_regions_rows(read, bitwise))))
        return "\n".join(align(rows))

    # -- JSON ---------------------------------------------------------------------------------------------

    def to_json(self, indent: int | None = None) -> str:
        """Return the graph as a JSON document; `from_json` gives an equal graph, with the same names.

        A kind that is not of this library is written as its pieces: it comes back as another kind of the same view.

        Raises
        ------
        TypeError
            If a color is not None, a string, a number, a bool or a tuple of such.
        """
        width = None if indent is None else as_int(indent, "AliasGraph.to_json: indent")
        if width is not None and not 0 <= width <= tuning.MAX_INDENT:
            raise ValueError(f"AliasGraph.to_json: indent must be in [0, {tuning.MAX_INDENT}], not {quote(width)}")
        return alias_nodes.to_json(self._nodes, width)

    @classmethod
    def from_json(cls, text: str | bytes) -> AliasGraph:
        """Return the graph of a JSON document of `to_json`.

        Raises
        ------
        ValueError
            For text that is not JSON, another format or version, and a graph that does not hold together; the message
            names the place.
        """
        return cls._of(alias_nodes.from_json(text))

    # -- nodes --------------------------------------------------------------------------------------------

    def _number(self, tensor: TensorRef) -> int:
        if isinstance(tensor, AliasTensor):
            if tensor.graph is not self:
                raise ValueError(f"{quote(tensor)} belongs to another graph; views join tensors of one graph")
            return tensor.id
        if isinstance(tensor, str):
            if tensor not in self._names:
                known = list_names(self._names, tensor, "names")
                raise KeyError(f"the graph has no tensor {quote(tensor)}; {known}")
            return self._names[tensor]
        try:
            i = as_int(tensor, "a tensor's number")
        except TypeError:
            mend = f"give a tensor, number or name, not a {type(tensor).__name__}"
            raise TypeError(f"{quote(tensor)} is not a tensor of the graph; {mend}") from None
        if not -len(self) <= i < len(self):
            raise IndexError(f"the graph has no tensor {i}: it has {len(self)}")
        return i % len(self)

    def _free_name(self, name: str) -> str:
        if not isinstance(name, str):
            raise TypeError(f"name {quote(name)} is a {type(name).__name__}; give a string, empty for none")
        if name in self._names:
            raise ValueError(f"name {quote(name)} is taken by tensor {self._names[name]}; give another one")
        return name

    def _append(self, node: Node) -> AliasTensor:
        self._add_all([node])
        return AliasTensor(self, len(self) - 1)

    def _add_all(self, nodes: Sequence[Node]) -> None:
        """Add nodes, some of which may read later ones."""
        first = len(self._nodes)
        self._nodes += nodes
        self._outs += [set() for _ in nodes]
        self._views += [None] * len(nodes)
        for i, node in enumerate(nodes, first):
            self._join(i, node)

    def _join(self, i: int, node: Node) -> None:
        """Enter a node's name, and the node as an output of its inputs."""
        if node.name:
            self._names[node.name] = i
        for j in node.inputs:
            self._outs[j].add(i)

    def _replace(self, i: int, node: Node) -> None:
        """Put another node in a place, and forget the plain views of it and of what reads it."""
        old = self._nodes[i]
        self._names.pop(old.name, None)
        for j in old.inputs:
            self._outs[j].discard(i)
        self._join(i, node)
        self._nodes[i] = node
        if node != old or node.kind is None:  # a view's name is not in the plain views
            self._forget(i)

    def _forget(self, i: int) -> None:
        for j in walk(i, lambda j: [k for k in self._outs[j] if self._views[k] is not None], key=int):
            view, self._views[j] = self._views[j], None
            if isinstance(view, Allocation):
                del self._homes[view]

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Take back the tensors that were added, if one cannot be."""
        before = len(self._nodes)
        try:
            yield
        except BaseException:
            for i in range(len(self._nodes) - 1, before - 1, -1):
                self._replace(i, self._nodes[i].replace(kind=None, inputs=(), name=""))
            del self._nodes[before:], self._outs[before:], self._views[before:]
            raise

    # -- walks over the nodes -----------------------------------------------------------------------------

    def _under(self, i: int, built: bool = False) -> list[int]:
        """Tensor i and what it reads, inputs first; with `built`, only those that have no plain view yet."""

        def below(j: int) -> list[int]:
            inputs = self._nodes[j].inputs[::-1]
            return [k for k in inputs if not (built and self._views[k] is not None)]

        return sources_first(i, below, key=int)

    def _path(self, start: int, goal: int) -> list[int]:
        """Tensors from start to goal, each of which reads the next; empty if start does not read goal."""
        reader = {start: start}
        for j in walk(start, lambda j: self._nodes[j].inputs, key=int):
            for k in self._nodes[j].inputs:
                reader.setdefault(k, j)
        path = [goal] if goal in reader else []
        while path and path[-1] != start:
            path.append(reader[path[-1]])
        return path[::-1]

    def _groups(self) -> list[list[int]]:
        """The tensors by memory that they might share: those of different groups read different allocations."""
        groups: list[list[int]] = []
        seen: set[int] = set()
        for i in range(len(self)):
            if i not in seen:
                groups.append(sorted(walk(i, lambda j: {*self._nodes[j].inputs, *self._outs[j]}, key=int)))
                seen.update(groups[-1])
        return groups

    def _view(self, i: int) -> View:
        """The plain view of a tensor as the graph stands."""
        found = self._views[i]
        if found is not None:
            return found
        for j in self._under(i, built=True):
            node = self._nodes[j]
            if node.kind is None:
                made = allocate(node.shape, node.name or f"[{j}]", itemsize=node.itemsize, color=node.color)
                self._views[j] = made
                self._homes[made] = j
            else:
                self._views[j] = view_of(node.shape, node.kind, tuple(self._view(k) for k in node.inputs))
        return self._view(i)


# -------------------------------------------------------------------------------------------- reading arguments


def _checked_names(names: Iterable[str], what: str) -> tuple[str, ...]:
    """Names of tensors."""
    found = as_items(names, f"grow: {what}", "sequence of names")
    for k, name in enumerate(found):
        check_type(name, str, f"grow: {what}[{k}]")
    return found


def _in_order(
    wanted: Sequence[str], inputs_of: Callable[[str], Iterable[str]], known: dict[str, int]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The wanted names and what they need, inputs first, without what is known; with each its inputs."""
    open_: dict[str, tuple[str, ...]] = {}
    stack = [(name, False) for name in reversed(wanted)]
    while stack:
        name, ready = stack.pop()
        if ready:
            yield name, open_.pop(name)
        elif name in open_:
            raise ValueError(f"grow: {quote(name)} aliases itself through {quote(list(open_))}; that is a cycle")
        elif name not in known:
            open_[name] = _checked_names(inputs_of(name), f"inputs_of({name!r})")
            stack.append((name, True))
            stack += [(k, False) for k in reversed(open_[name])]


# ------------------------------------------------------------------------------------------------------- tables


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers, with three or more in a row as first-last.

    >>> _ranges([0, 1, 2, 3, 5, 6])
    '0-3, 5, 6'
    """
    in_a_row = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    runs = [[n for _, n in run] for _, run in in_a_row]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _regions_rows(origins: dict[AliasTensor, DisjointRegions], bitwise: bool) -> list[str]:
    rows = []
    for t, regions in sorted(origins.items(), key=lambda item: item[0].id):
        head = f"[{t.id}{f' {t.name}' if t.name else ''}] {t.shape}"
        if bitwise:
            rows += [head, *str(regions).splitlines()]
        else:
            setts = [f"({', '.join(map(repr, region.setts))})" for region in regions.members]
            rows.append(f"{head}: {', '.join(setts)}")
    return rows
