"""Motion: where to evaluate selections, which cells must travel, and shorter cascades.

A cascade of selections over stored tensors is one view. Seen so, it can be cut in two: what narrows (select, stride,
slice, permute, flip) is done by the device that holds the data, what widens or joins (broadcast, repeat, pad,
windows, concat, interleave) by the device that consumes it, and each cell travels once. All of it is derived from the
pieces of the view; no kind is named, so that one from outside the package is cut as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from itertools import accumulate, pairwise
from math import prod
from typing import TypeVar

from msgspec import Struct

from tapestry_plan.ir import Graph, NotApplicable, Shape
from tapestry_plan.rewrite import tuning
from tapestry_sets.alias import overlap
from tapestry_sets.limits import OPEN, Public, TooManyPieces, ask_one, check_arguments, hide_fields, limits, quote
from tapestry_sets.regions import Box, DisjointRegions, Region
from tapestry_sets.views import (
    Allocation,
    Derived,
    Piece,
    View,
    Viewable,
    allocate,
    concatenate,
    fill_into,
    pad,
    sort_views,
    sources_first,
)

DeviceName = Hashable
Share = Box | Region | DisjointRegions
Placement = Mapping[str, DeviceName | Mapping[DeviceName, Share]]
"""For each stored tensor the device that holds it, or for each device the cells that it holds."""
V = TypeVar("V", bound=Viewable)


# ------------------------------------------------------------------------------------------------ what is read


class Selected(Struct, frozen=True):
    """The kind of a selection of a graph: its pieces, which were checked when it was added, and its label."""

    label: str
    shape: Shape
    parts: tuple[Piece, ...]

    def out_shape(self, shapes: tuple[Shape, ...]) -> Shape:
        """The shape."""
        return self.shape

    def pieces(self, shapes: tuple[Shape, ...]) -> tuple[Piece, ...]:
        """The pieces."""
        return self.parts


@check_arguments
def selected_view(graph: Graph, name: str) -> View:
    """Return a tensor of a graph as a view of memory: one allocation for each stored tensor, under its name.

    All that `tapestry_sets` can be asked of views can so be asked of selections.

    Parameters
    ----------
    graph : Graph
    name : str

    Raises
    ------
    ValueError
        If the graph has no tensor of that name.

    Examples
    --------
    >>> from tapestry_sets import overlaps
    >>> g = Graph()
    >>> x = g.input("x", (8, 8))
    >>> view = selected_view(g, x[::2].T.name)
    >>> view.shape, [memory.name for memory in view.allocations]
    ((8, 4), ['x'])
    >>> selected_view(g, x[2:4].broadcast_to((3, 2, 8)).name).has_internal_overlap()
    True
    """
    graph.tensor(name)
    return view_once(graph, name, {})


def view_once(graph: Graph, name: str, made: dict[str, View]) -> View:
    """A tensor of a graph as a view, of those that are made already, by name; new ones come to them."""
    for at in list_cascade(graph, name):
        if at in made:
            continue
        selection = graph.selections.get(at)
        if selection is None:
            stored = graph.stored[at]
            made[at] = allocate(stored.shape, name=at, dtype=stored.dtype)
        else:
            kind = Selected(selection.label, selection.shape, selection.pieces)
            made[at] = Derived(selection.shape, kind, tuple(made[n] for n in selection.inputs))
    return made[name]


def list_cascade(graph: Graph, name: str) -> list[str]:
    """The tensors below one and itself, each once, nearest to memory first."""
    return sources_first(name, lambda n: graph.selections[n].inputs if n in graph.selections else (), key=str)


def check_selection(graph: Graph, name: str, what: str) -> None:
    """Raise NotApplicable, which begins with `what`, if a graph has no selection of that name."""
    if name in graph.stored:
        raise NotApplicable(f"{what}: {quote(name)} is a stored tensor, not a selection; give one of those")
    if name not in graph.selections:
        raise NotApplicable(f"{what}: {graph._no_tensor(name)}")


# ---------------------------------------------------------------------------------------------- what has to travel


class Message(Struct, frozen=True):
    """Cells of one tensor on their way from the device that holds them to the consumer, each cell once.

    Parameters
    ----------
    tensor : str
    holder, consumer : hashable
        Devices.
    pack : View
        Over `home`: what the holder evaluates and sends, cell after cell in row-major order.
    home : Allocation
        The tensor at its holder.
    arrived : Allocation
        The message at the consumer, of the shape of `pack`.
    size : int
        How many different cells the consumer needs, counted on sets.
    """

    tensor: str
    holder: DeviceName
    consumer: DeviceName
    pack: View
    home: Allocation
    arrived: Allocation
    size: int

    __repr__ = hide_fields("home", "arrived")

    @property
    def nbytes(self) -> int:
        """Bytes that travel."""
        return self.size * self.home.itemsize


class Motion(Struct, frozen=True, metaclass=Public):
    """A selection in two parts: the cells that the holders of its tensors send, and the consumer's view of them.

    Each different remote cell travels once. Fewer bytes cannot do: no device but its holders knows the value of a
    cell, each cell of a stored tensor may have any value, and the view shows every one of them; so its bytes have to
    reach the consumer, and nothing else does.

    Parameters
    ----------
    name : str
        Of the selection.
    consumer : hashable
        The device that needs the view.
    messages : tuple of Message
        One for each pair of holder and tensor.
    local : tuple of Allocation
        The tensors of which the consumer reads cells that it holds, in their own coordinates.
    unpack : View
        Over `local` and what arrived: the selection's view.
    """

    name: str
    consumer: DeviceName
    messages: tuple[Message, ...]
    local: tuple[Allocation, ...]
    unpack: View

    @property
    def nbytes(self) -> int:
        """Bytes that travel: the least that can."""
        return sum(message.nbytes for message in self.messages)

    @property
    def nbytes_by_link(self) -> dict[tuple[DeviceName, DeviceName], int]:
        """Bytes for each (holder, consumer)."""
        total: Counter[tuple[DeviceName, DeviceName]] = Counter()
        for message in self.messages:
            total[message.holder, message.consumer] += message.nbytes
        return dict(total)

    def composed(self) -> View:
        """Return the view of unpacked packed cells, over the tensors: cell by cell the selection."""
        arrived: dict[Allocation, View] = {m.arrived: m.pack for m in self.messages}
        return replay(self.unpack, {**arrived, **{a: a for a in self.local}})


@check_arguments(placement="give a mapping from tensors to devices")
def motion(graph: Graph, name: str, placement: Placement, consumer: DeviceName) -> Motion:
    """Return the cells that holders of a selection's tensors send to a consumer, and how it makes the view of them.

    Parameters
    ----------
    graph : Graph
    name : str
        Of a selection.
    placement : mapping
        For each stored tensor that is read the device that holds it, or a mapping from devices to the cells that they
        hold. Where several hold a cell, the consumer's own copy is read, else the first one's.
    consumer : hashable

    Raises
    ------
    ValueError
        If there is no such selection, a tensor that it reads has no place, or no device holds a cell that it reads.
    TooManyPieces
        If a message needs more regions than can be written out.

    Examples
    --------
    >>> g = Graph()
    >>> x = g.input("x", (4, 10**9, 2))
    >>> rows = x[1, ::2].T.broadcast_to((8, 2, 5 * 10**8))
    >>> found = motion(g, rows.name, {"x": 0}, consumer=1)
    >>> found.nbytes, found.messages[0].pack.shape, found.unpack.shape
    (4000000000, (1, 2, 500000000), (8, 2, 500000000))

    References
    ----------
    Tapestry, "Tensor View Selections": the selection is sent to the tensor's holder, and the selected block back.
    """
    check_selection(graph, name, "motion")
    view = selected_view(graph, name)
    simple = view.simplify()
    below = [a for a in sort_views(simple) if isinstance(a, Allocation)]
    unpacked: dict[int, View] = {id(a): a for a in below}
    messages: list[Message] = []
    for home, cells in view.cells.items():
        holder = _holder(home, placement)
        if holder == consumer:
            continue
        pack = None if holder is _SEVERAL else _narrowest(simple, home, cells.size)
        if pack is not None:
            message = _message(home, holder, consumer, pack, cells.size)
            unpacked[id(pack)] = message.arrived
            messages.append(message)
        else:
            shares = _shares(view, name, home, placement[home.name], consumer)
            unpacked[id(home)], sent = _by_regions(home, shares, consumer)
            messages += sent
    if view.cells:  # of what is not read nothing need be there
        base = messages[0].arrived if messages else next(iter(view.cells))
        unpacked |= {id(a): _zeros(base, a.shape) for a in below if a not in view.cells}
    unpack = _replay(simple, unpacked)
    if len(sort_views(unpack)) <= len(sort_views(simple)) + 4 * tuning.FEW_REGIONS:
        unpack = unpack.simplify()
    arrived = {message.arrived for message in messages}
    local = tuple(a for a in sort_views(unpack) if isinstance(a, Allocation) and a not in arrived)
    return Motion(name, consumer, tuple(messages), local, unpack)


_SEVERAL = object()
"""Stands for the holder of a tensor that has several."""


def _holder(home: Allocation, placement: Placement) -> DeviceName:
    """The device that holds a tensor."""
    if home.name not in placement:
        raise ValueError(
            f"motion: the placement has no device for tensor {quote(home.name)}; it names {quote(list(placement))}"
        )
    held = placement[home.name]
    return _SEVERAL if isinstance(held, Mapping) else held


def _message(home: Allocation, holder: DeviceName, consumer: DeviceName, pack: View, size: int) -> Message:
    assert pack.size == size, "each cell travels once"
    arrived = allocate(pack.shape, name=f"{home.name} from {holder}", itemsize=home.itemsize)
    return Message(home.name, holder, consumer, pack, home, arrived, size)


def _narrowest(view: View, home: Allocation, size: int) -> View | None:
    """The last view in the chain of a view that all reads of a tensor go through and that has `size` cells.

    As many different cells of the tensor are read: so it shows these, each once, and nothing else. It is made of this
    tensor alone.
    """
    #          ┌── flip ──┐             ways from the view to `slice`: 2, from there to the tensor: 1; from the view
    #   view ──┤          ├── slice ── tensor      to the tensor: 2. All ways lead through `slice`, as 2 · 1 = 2,
    #          └── pad ───┘             and only half of them through `flip`, as 1 · 1 < 2.
    order = sort_views(view)
    above = dict.fromkeys(map(id, order), 0)  # how many ways lead from the view to each below it
    above[id(view)] = 1
    for v in reversed(order):
        for source in v.sources:
            above[id(source)] += above[id(v)]
    below: dict[int, int] = {}  # and from each to the tensor
    alone: dict[int, bool] = {}
    for v in order:
        below[id(v)] = int(v is home) + sum(below[id(source)] for source in v.sources)
        alone[id(v)] = all(alone[id(source)] for source in v.sources) if v.sources else v is home
    for v in reversed(order):
        if v.size == size and alone[id(v)] and above[id(v)] * below[id(v)] == below[id(view)]:
            return v
    return None


# ---------------------------------------------------------------------------------------------------- by regions


def _shares(
    view: View, name: str, home: Allocation, held: object, consumer: DeviceName
) -> list[tuple[DeviceName, DisjointRegions]]:
    """The cells of a tensor that a view reads, by the device that provides them, as regions of one box.

    That is the tensor's, or its row-major numbers', whichever needs fewer regions. The consumer's own come first.
    """
    rest = _fewest(home, view)
    given = held if isinstance(held, Mapping) else {held: Region.full(home.shape)}
    found = []
    for device in sorted(given, key=lambda d: d != consumer):
        share = _share(given[device], home, device)
        own = rest & (share if share.shape == rest.shape else share.reshape(rest.shape).explicit())
        rest = rest - own
        found.append((device, own))
    if rest:
        first = Region.full(rest.shape) & rest
        missing = home.reshape(rest.shape).sample(first.members[0])
        witness = overlap(view, missing).witness
        assert witness is not None, "some cell is read"
        raise ValueError(
            f"motion: cell {witness.cell} of tensor {quote(home.name)}, which cell {witness.a} of {quote(name)} "
            "reads, is held by no device of the placement"
        )
    return [(device, own) for device, own in found if own]


def _share(cells: object, home: Allocation, device: DeviceName) -> Region | DisjointRegions:
    where = f"motion: what device {quote(device)} holds of tensor {quote(home.name)}"
    if isinstance(cells, Box):
        if not Box.of(home.shape).contains(cells):
            raise ValueError(f"{where} is {quote(cells)}, which reaches outside its shape {quote(home.shape)}")
        return cells.to_region(home.shape)
    if not isinstance(cells, Region | DisjointRegions):
        raise TypeError(f"{where} is a {type(cells).__name__}; give a Box, a Region or DisjointRegions")
    if cells.shape != home.shape or any(cells.start):
        raise ValueError(
            f"{where} is in a box of shape {quote(cells.shape)} from {quote(cells.start)}; its shape is "
            f"{quote(home.shape)}"
        )
    return cells


def _fewest(home: Allocation, view: View) -> DisjointRegions:
    """The cells of a tensor that a view reads, as regions of its box or, where those are fewer, of its numbers'."""
    cells = view.cells[home]
    row = (home.size,)
    many = f"more than {tuning.MAX_REGIONS}"
    numbers = ask_one((TooManyPieces,), cells.explicit)
    if numbers is not OPEN:
        found = DisjointRegions(row, [Region(row, [sett]) for sett in numbers.members])
        many = str(len(found))
        if len(found) <= tuning.MAX_REGIONS:
            with limits(max_pieces=4 * len(found) + 4):
                regions = ask_one((TooManyPieces,), cells.regions)
            return found if regions is OPEN or len(regions) > len(found) else regions
    raise TooManyPieces(
        f"motion: the cells of tensor {quote(home.name)} of shape {quote(home.shape)} that are needed are {many} "
        f"regions, and a message may have {tuning.MAX_REGIONS}; move a selection below this one that shows each of "
        "its cells once, and do the rest where it arrives"
    )


def _by_regions(
    home: Allocation, shares: list[tuple[DeviceName, DisjointRegions]], consumer: DeviceName
) -> tuple[View, list[Message]]:
    """What stands for a tensor at the consumer, from its own cells and what others send; other cells are 0.

    Each message has the cells in the order of the tensor, region after region, where they are several in one row.
    """
    box = shares[0][1].shape
    rows = home if box == home.shape else home.reshape(box)
    places: list[Region] = []
    parts: list[View] = []
    messages = []
    for device, cells in shares:
        each: list[View] = [rows.sample(region) for region in cells.members]
        if device != consumer:
            pack = each[0] if len(each) == 1 else concatenate([one.ravel() for one in each])
            pack = pack.simplify() if len(each) <= tuning.FEW_REGIONS else pack
            message = _message(home, device, consumer, pack, cells.size)
            messages.append(message)
            each = _split(message.arrived, cells)
        places += cells.members
        parts += each
    for region in (Region.full(box) - DisjointRegions(box, places)).members:
        places.append(region)
        parts.append(_zeros(parts[0], region.counts))
    return fill_into(places, parts).reshape(home.shape), messages


def _zeros(base: View, shape: Shape) -> View:
    """A view that reads nothing of `base`."""
    return pad(base.ravel()[:0], ((0, prod(shape)),)).reshape(shape)


def _split(arrived: Allocation, cells: DisjointRegions) -> list[View]:
    """The parts of a message, one for each region."""
    if len(cells) == 1:
        return [arrived]
    ends = accumulate((region.size for region in cells.members), initial=0)
    return [arrived[a:b].reshape(r.counts) for (a, b), r in zip(pairwise(ends), cells.members, strict=True)]


# -------------------------------------------------------------------------------------------- chains of kinds


def replay(view: View, sources: Mapping[Allocation, V]) -> V:
    """Apply a view's kinds to other sources in the place of its allocations.

    Parameters
    ----------
    view : View
    sources : mapping
        For each allocation below the view what stands for it: views, tensors of a graph, anything that view kinds
        can be applied to.

    Raises
    ------
    ValueError
        If nothing stands for an allocation.

    Examples
    --------
    >>> g = Graph()
    >>> x, a = g.input("x", (4, 6)), allocate((4, 6))
    >>> replay(a[1:].T, {a: x}).shape, list(g.selections)
    ((6, 3), ['slice', 'permute_dims'])
    """
    below = [a for a in sort_views(view) if isinstance(a, Allocation)]
    for a in below:
        if a not in sources:
            raise ValueError(f"replay: nothing stands for {quote(a)}; sources has {quote(list(sources))}")
    return _replay(view, {id(a): sources[a] for a in below})


def _replay(view: View, made: Mapping[int, V]) -> V:
    """As `replay`, with what stands for views, not only allocations, by their identity."""
    found = dict(made)
    for v in sort_views(view):
        if id(v) not in found:
            assert isinstance(v, Derived), "something stands for each allocation"
            first, *others = [found[id(source)] for source in v.sources]
            found[id(v)] = first.apply(v.kind, *others)
    return found[id(view)]


def shorten(view: View) -> View:
    """Return the view itself, or the same view of the same memory as a shorter chain of kinds, if there is one.

    Of two chains of as many kinds the one with fewer cells in between is shorter.

    Examples
    --------
    >>> a = allocate((4, 6))
    >>> shorten(a.T.T) is a
    True
    """
    other = view.simplify()
    return other if _length(other) < _length(view) else view


def _length(view: View) -> tuple[int, int]:
    """How many kinds a view is made of, and how many cells the views below it have."""
    made = [v for v in sort_views(view) if isinstance(v, Derived)]
    return len(made), sum(v.size for v in made) - view.size
