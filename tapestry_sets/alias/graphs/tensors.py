"""The tensors of an alias graph, and what two of them share: handles that ask the graph's plain views.

A tensor is its graph and a number there. NumPy's words add views of it to the graph.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias

from tapestry_sets.alias.graphs.nodes import Node, kind_text, view_node
from tapestry_sets.alias.overlap import Overlap, overlap, overlaps
from tapestry_sets.limits import Frozen, cut_text, mend_calls, put_fields, quote
from tapestry_sets.regions import DisjointRegions
from tapestry_sets.views import InternalOverlap, Order, View, Viewable, ViewKind, check_color

if TYPE_CHECKING:
    from tapestry_sets.alias.graphs.graph import AliasGraph

TensorRef: TypeAlias = "AliasTensor | int | str"
"""A tensor of a graph, its number or its name."""


@mend_calls
class AliasTensor(Viewable, Frozen):
    """A tensor of an alias graph: NumPy's words add views of it to the graph. Made by `AliasGraph`.

    Parameters
    ----------
    graph : AliasGraph
    id : int
        Its number there. Tensors are equal if they are the same one.

    Examples
    --------
    >>> from tapestry_sets.alias import AliasGraph
    >>> g = AliasGraph()
    >>> a = g.allocate((4, 6), name="a")
    >>> a[1:].reshape(9, 2)
    AliasTensor(2: Reshape((9, 2)) of 1, shape (9, 2))

    References
    ----------
    poprithms, memory/alias: Tensor.
    """

    __slots__ = ("graph", "id")

    graph: AliasGraph
    id: int

    def __init__(self, graph: AliasGraph, id: int) -> None:
        put_fields(self, graph=graph, id=id)

    __contains__ = None  # a tensor has places, not values: `3 in tensor` has no meaning

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AliasTensor) and self.graph is other.graph and self.id == other.id

    def __hash__(self) -> int:
        return hash((id(self.graph), self.id))

    def __repr__(self) -> str:
        node = self._node
        name = f" {cut_text(quote(node.name), 50)}" if node.name else ""
        what = "allocation" if node.kind is None else f"{kind_text(node.kind)} of {', '.join(map(str, node.inputs))}"
        return f"AliasTensor({self.id}{name}: {cut_text(what, 60)}, shape {cut_text(quote(node.shape), 50)})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        bundle = self.view._repr_mimebundle_(include, exclude)
        return bundle | {"text/plain": f"{self!r}\n{bundle['text/plain']}"}

    @property
    def _node(self) -> Node:
        return self.graph._nodes[self.id]

    # -- the node -----------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> AliasGraph().allocate((4, 6))[1:].shape
        (3, 6)
        """
        return self._node.shape

    @property
    def itemsize(self) -> int:
        """Bytes of a cell.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> AliasGraph().allocate((4, 6), dtype="float32").T.itemsize
        4
        """
        return self._node.itemsize

    @property
    def name(self) -> str:
        """Its name in the graph, "" if it has none.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> AliasGraph().allocate((4, 6), name="w").name
        'w'
        """
        return self._node.name

    @property
    def kind(self) -> ViewKind | None:
        """The view kind that makes it of `ins`; None for an allocation.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> w = AliasGraph().allocate((4, 6))
        >>> w.kind, type(w.T.kind).__name__
        (None, 'PermuteDims')
        """
        return self._node.kind

    @property
    def is_allocation(self) -> bool:
        """Whether it is memory of its own.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> w = AliasGraph().allocate((4, 6))
        >>> w.is_allocation, w.T.is_allocation
        (True, False)
        """
        return self._node.kind is None

    @property
    def color(self) -> Hashable:
        """The color of an allocation; None for a view, whose `colors` are those of the allocations that it reads.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> AliasGraph().allocate((4, 6), color="weights").color
        'weights'
        """
        return self._node.color

    @property
    def ins(self) -> tuple[AliasTensor, ...]:
        """The tensors that it is a view of, as often as it takes them.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> w = AliasGraph().allocate((4, 6), name="w")
        >>> [t.name for t in w[1:].ins]
        ['w']
        """
        return tuple(AliasTensor(self.graph, i) for i in self._node.inputs)

    @property
    def outs(self) -> tuple[AliasTensor, ...]:
        """The tensors that are views of it, each once.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> w = AliasGraph().allocate((4, 6), name="w")
        >>> rows, columns = w[1:], w[:, 1:]
        >>> w.outs == (rows, columns)
        True
        """
        return tuple(AliasTensor(self.graph, i) for i in sorted(self.graph._outs[self.id]))

    @property
    def view(self) -> View:
        """The plain view, as the graph stands now.

        After an edit of what it reads, or of itself, the tensor is another plain view, and its allocations may be
        others: compare plain views only if they were taken from the graph between the same edits.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> AliasGraph().allocate((4, 6), name="w")[1:].view
        w[1:]
        """
        return self.graph._view(self.id)

    # -- views of it --------------------------------------------------------------------------------------

    def apply(self, kind: ViewKind, *others: AliasTensor) -> AliasTensor:
        """Add the view of a kind over this tensor and others.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> from tapestry_sets.views import Flip
        >>> AliasGraph().allocate((4, 6), name="w").apply(Flip((0,))).shape
        (4, 6)
        """
        for k, other in enumerate(others, 1):
            if not isinstance(other, AliasTensor):
                raise TypeError(f"{kind_text(kind)}: source {k} is a {type(other).__name__}, not an AliasTensor")
        numbers = tuple(self.graph._number(t) for t in (self, *others))
        return self.graph._append(view_node(self.graph._nodes, kind, numbers))

    def _all_or_nothing(self) -> AbstractContextManager[None]:
        return self.graph._all_or_nothing()

    def clone(self, color: Hashable = None) -> AliasTensor:
        """Return a tensor of the same layout over new memory; see `AliasGraph.clone`.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> w = AliasGraph().allocate((4, 6), name="w")
        >>> again = w[::2].clone()
        >>> again.shape, again.overlaps(w)
        ((2, 6), False)
        """
        return self.graph.clone(self, color)

    # -- edits --------------------------------------------------------------------------------------------

    def to_allocation(self, color: Hashable = None) -> AliasTensor:
        """Make this tensor memory of its own; see `AliasGraph.to_allocation`.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> w = AliasGraph().allocate((4, 6), name="w")
        >>> rows = w[::2]
        >>> rows.overlaps(w), rows.to_allocation().overlaps(w)  # as a copy would have it
        (True, False)
        """
        return self.graph.to_allocation(self, color)

    def to_view(self, kind: ViewKind, *inputs: TensorRef) -> AliasTensor:
        """Make this tensor a view of others; see `AliasGraph.to_view`.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> from tapestry_sets.views import Flip
        >>> g = AliasGraph()
        >>> w, other = g.allocate((4, 6), name="w"), g.allocate((4, 6), name="other")
        >>> other.to_view(Flip((0,)), w).overlaps(w)
        True
        """
        return self.graph.to_view(self, kind, *inputs)

    def to_identity(self, source: TensorRef) -> AliasTensor:
        """Make this tensor the same as another one; see `AliasGraph.to_identity`.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> g = AliasGraph()
        >>> w, tied = g.allocate((4, 6), name="w"), g.allocate((4, 6), name="tied")
        >>> tied.to_identity(w).same_elements(w)
        True
        """
        return self.graph.to_identity(self, source)

    def recolor(self, color: Hashable) -> AliasTensor:
        """Give this allocation another color; see `AliasGraph.recolor`.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> AliasGraph().allocate((4, 6)).recolor("weights").color
        'weights'
        """
        return self.graph.recolor(self, color)

    def rename(self, name: str) -> AliasTensor:
        """Give this tensor another name; see `AliasGraph.rename`.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> AliasGraph().allocate((4, 6), name="w").rename("v").name
        'v'
        """
        return self.graph.rename(self, name)

    # -- questions ----------------------------------------------------------------------------------------

    def _of(self, other: object, what: str) -> View:
        if not isinstance(other, AliasTensor):
            raise TypeError(f"AliasTensor.{what}: the other is a {type(other).__name__}, not a tensor of the graph")
        return self.graph._view(self.graph._number(other))

    def overlaps(self, other: AliasTensor) -> bool:
        """Return whether both tensors read a common cell.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> w = AliasGraph().allocate((4, 6))
        >>> w[::2].overlaps(w[1::2]), w[::2].overlaps(w.T)
        (False, True)
        """
        return overlaps(self.view, self._of(other, "overlaps"))

    def overlap(self, other: AliasTensor) -> Overlap[AliasTensor]:
        """Return the cells that both tensors share: size, bytes, regions and a witness.

        Examples
        --------
        >>> from tapestry_sets.alias import AliasGraph
        >>> g = AliasGraph()
        >>> a = g.allocate((24,), name="a", dtype="float32")
        >>> o = a.reshape(4, 6)[:, 3:6].overlap(a[0::7])
        >>> o.size, o.nbytes, o.witness
        (1, 4, Witness(a=(3, 0), b=(3,), cell=(21,)))
        >>> o.regions[a].size
        1
        """
        found = overlap(self.view, self._of(other, "overlap"))
        return Overlap(self, other, tuple((self._home(a), x, y) for a, x, y in found.shared))

    def contains(self, other: AliasTensor) -> bool:
        """Return whether this tensor reads every cell that `other` reads.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> w = AliasGraph().allocate((4, 6))
        >>> w[1:].contains(w[2]), w[1:].contains(w)
        (True, False)
        """
        return self.view.contains(self._of(other, "contains"))

    def same_elements(self, other: AliasTensor) -> bool:
        """Return whether both tensors read the same cells, in whatever order and number.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> w = AliasGraph().allocate((4, 6))
        >>> w.T.same_elements(w)
        True
        """
        return self.view.same_elements(self._of(other, "same_elements"))

    def internal_overlap(self) -> InternalOverlap | None:
        """Return a cell that the tensor reads at two of its indices, and these; None if there is none.

        Examples
        --------
        >>> from tapestry_sets.alias import AliasGraph
        >>> g = AliasGraph()
        >>> a = g.allocate((10,), name="a")
        >>> windows = a.sliding_windows(3)
        >>> found = windows.internal_overlap()
        >>> found.a != found.b, found.allocation.name, windows[found.a].same_elements(windows[found.b])
        (True, 'a', True)
        """
        found = self.view.internal_overlap()
        return None if found is None else found._replace(allocation=self._home(found.allocation))

    def has_internal_overlap(self) -> bool:
        """Return whether the tensor reads some cell at two of its indices.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> AliasGraph().allocate((8,)).sliding_windows(3).has_internal_overlap()
        True
        """
        return self.view.has_internal_overlap()

    def is_contiguous(self, order: Order | None = None) -> bool:
        """Return whether the cells that it reads are one gapless run of one allocation; see `View.is_contiguous`.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> w = AliasGraph().allocate((4, 6))
        >>> w[1:].is_contiguous(), w[:, 1:].is_contiguous()
        (True, False)
        """
        return self.view.is_contiguous(order)

    def origins(self) -> dict[AliasTensor, DisjointRegions]:
        """Return the cells that it reads of each allocation.

        Raises
        ------
        TooManyPieces
            If they need more regions than can be written out.

        Examples
        --------
        >>> from tapestry_sets.alias import AliasGraph
        >>> g = AliasGraph()
        >>> a = g.allocate((4, 6), name="a")
        >>> print(a[:, 1:5:3].origins()[a])
        .1..1.
        .1..1.
        .1..1.
        .1..1.

        References
        ----------
        poprithms, memory/alias: Graph::allocRegions.
        """
        return {self._home(a): regions for a, regions in self.view.origins().items()}

    def _home(self, allocation: Hashable) -> AliasTensor:
        return AliasTensor(self.graph, self.graph._homes[allocation])

    def colors(self) -> frozenset[Hashable]:
        """Return the colors of the allocations that it reads.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> AliasGraph().allocate((4, 6), color="weights").T.colors()
        frozenset({'weights'})
        """
        return self.view.colors()

    def has_color(self, color: Hashable) -> bool:
        """Return whether it reads an allocation of this color.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> AliasGraph().allocate((4, 6), color="weights").T.has_color("weights")
        True
        """
        return check_color(color, "has_color") in self.view.colors()

    def aliases(self) -> tuple[AliasTensor, ...]:
        """Return all tensors of the graph that share a cell with this one; see `AliasGraph.aliases`.

        Examples
        --------
        >>> from tapestry_sets import AliasGraph
        >>> w = AliasGraph().allocate((4, 6), name="w")
        >>> even, odd = w[::2], w[1::2]
        >>> even.aliases() == (w, even)
        True
        """
        return self.graph.aliases(self)
