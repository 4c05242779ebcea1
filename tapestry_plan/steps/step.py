"""What a device does: buffers in its arena, and the steps that fill, read and free them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.steps.layouts.mesh import align
from tapestry_sets.limits import Brief, tell_count
from tapestry_sets.regions import Box, Region
from tapestry_sets.views import Piece

T = TypeVar("T", bound=Struct)
HOST = -1
"""The place that graph inputs and constants come from; no device of the mesh.

Examples
--------
>>> from tapestry_plan import HOST, Graph, Mesh, plan
>>> g = Graph()
>>> _ = g.output(g.input("x", (4, 4)) + 1.0, "y")
>>> sorted({step.tensor for step in plan(g, Mesh(2)).steps if getattr(step, "src", None) == HOST})
['number', 'x']
"""


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous array of this shape."""
    strides = [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        strides[k] = strides[k + 1] * shape[k + 1]
    return tuple(strides)


class Within(Brief, Struct, frozen=True):
    """The place of a buffer inside that of another one of its device, the host: there its cells are read, too.

    Parameters
    ----------
    buffer : int
        Number of the host.
    strides : tuple of int
        Of the buffer's axes, in elements.
    """

    buffer: int
    strides: tuple[int, ...]


class Buffer(Brief, Struct, frozen=True):
    """A block of a tensor's coordinates in one device's arena.

    Parameters
    ----------
    id : int
        Number of the buffer in the plan.
    device : int
    tensor : str
        Whose cells it holds; for a block that an operator reads through selections, the selection's name.
    start, shape : tuple of int
        The box of coordinates that it holds, row-major. It may reach outside the tensor (padding).
    dtype : str
    offset, nbytes : int
        Place in the arena, in bytes; from the first to the last cell.
    part : int
        Which partial result of a sharded reduction it holds; -1 for complete values.
    fill : float, optional
        Value of the cells outside the tensor.
    within : Within, optional
        Where the place is part of another buffer's: its cells lie where that one has them (see `nest`).
    over : int, optional
        The first of the buffers that have its place, one after the other and cell for cell: the step that fills it is
        the last one to read the one before (see `list_overwritten`).
    """

    id: int
    device: int
    tensor: str
    start: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    offset: int
    nbytes: int
    part: int = -1
    fill: float | None = None
    within: Within | None = None
    over: int | None = None

    @property
    def box(self) -> Box:
        """The coordinates that the buffer holds."""
        return Box(self.start, self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Of its axes, in elements."""
        return row_major(self.shape) if self.within is None else self.within.strides

    @property
    def is_apart(self) -> bool:
        """Whether its place is its own as long as it lives."""
        return self.within is None and self.over is None

    @property
    def place(self) -> int:
        """The first of the buffers that have its place one after the other, maybe itself."""
        return self.id if self.over is None else self.over

    @property
    def room(self) -> int:
        """Bytes of the arena that it takes for itself: whole cache lines, none within another buffer."""
        return 0 if self.within is not None else align(self.nbytes)


class Alloc(Brief, Struct, frozen=True, tag="alloc"):
    """Take a buffer's place in its arena."""

    buffer: int


class Free(Brief, Struct, frozen=True, tag="free"):
    """Give a buffer's place back."""

    buffer: int


class Copy(Brief, Struct, frozen=True, tag="copy"):
    """Copy cells between buffers.

    Without a piece, `regions` are in the stored tensor's coordinates, the same in both buffers; between
    devices each region travels row-major. With a piece, source and target are on one device, the regions are
    boxes in the target's coordinates, and the source's cell is found through the piece's map.

    Parameters
    ----------
    node : str
        The operator on whose behalf the cells are copied.
    tensor : str
        Stored tensor that the cells belong to.
    src : int
        Source buffer, or HOST for a graph input or constant that is placed.
    dst : int
        Target buffer.
    regions : tuple of Region
    piece : Piece, optional
    again : bool
        From HOST: the device held these cells before, and gave their place up for others (see `spilled`).
    """

    node: str
    tensor: str
    src: int
    dst: int
    regions: tuple[Region, ...]
    piece: Piece | None = None
    again: bool = False


class Compute(Brief, Struct, frozen=True, tag="compute"):
    """Run one shard of an operator.

    Parameters
    ----------
    node : str
    device : int
    start, shape : tuple of int
        Index box of the shard.
    inputs : tuple of (int or None)
        Buffers that hold the input blocks, possibly larger than the block; None for an input not read.
    outputs : tuple of int
        Buffers that the shard fills.
    workspace : int or None
        Scratch buffer.
    pieces : tuple of (Piece or None)
        For each input the piece of its view through which the block is read where the buffer has it, strided: of a
        tensor that is turned, reversed, or read in part. None where the buffer holds the input's own coordinates; none
        at all where that is so of every input.
    """

    node: str
    device: int
    start: tuple[int, ...]
    shape: tuple[int, ...]
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    workspace: int | None = None
    pieces: tuple[Piece | None, ...] = ()

    @property
    def index(self) -> Box:
        """Index box of the shard."""
        return Box(self.start, self.shape)


class Reduce(Brief, Struct, frozen=True, tag="reduce"):
    """Merge partial results, in ascending order of their parts, over regions of the tensor.

    Parameters
    ----------
    node : str
        The operator on whose behalf the parts are merged.
    monoid : str
        Name of the operator's monoid.
    inputs : tuple of int
        Buffers of the parts, in merge order.
    output : int
        Buffer that gets the complete values.
    regions : tuple of Region
    fan_in : int, optional
        How many are merged at a time, in a tree; without it one after the other.
    """

    node: str
    monoid: str
    inputs: tuple[int, ...]
    output: int
    regions: tuple[Region, ...]
    fan_in: int | None = None


class Spill(Brief, Struct, frozen=True, tag="spill"):
    """Copy a whole buffer to host memory, where it is kept under the buffer's number.

    The buffer itself stays; a `Free` gives its place back.
    """

    buffer: int


class Fetch(Brief, Struct, frozen=True, tag="fetch"):
    """Fill a buffer with the spilled bytes of another one of the same device, box and dtype.

    Parameters
    ----------
    buffer : int
        Allocated, and nothing written to it yet.
    spilled : int
        The buffer that was spilled.
    keep : bool
        Whether the host keeps its copy, for a further `Fetch` or for the plan's outputs.
    """

    buffer: int
    spilled: int
    keep: bool = False


class Send(Brief, Struct, frozen=True, tag="send"):
    """Hand cells of a buffer to another device, in a program: they are packed at once, and nothing is waited for.

    Parameters
    ----------
    tag : int
        Which of the copies between the two devices it is: both have the same number.
    peer : int
        The device that they go to.
    node : str
        The operator on whose behalf the cells are copied.
    tensor : str
        Stored tensor that the cells belong to.
    src : int
        Source buffer.
    regions : tuple of Region
        In the stored tensor's coordinates; each travels row-major.
    """

    tag: int
    peer: int
    node: str
    tensor: str
    src: int
    regions: tuple[Region, ...]


class Recv(Brief, Struct, frozen=True, tag="recv"):
    """Wait for the cells that another device sends, and put them into a buffer; fields as those of `Send`."""

    tag: int
    peer: int
    node: str
    tensor: str
    dst: int
    regions: tuple[Region, ...]


Step = Alloc | Copy | Compute | Reduce | Free | Spill | Fetch
"""The steps of a plan, of all devices."""
ProgramStep = Step | Send | Recv
"""The steps of one device: its copies to and from others are cut in two."""
CollectiveKind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast"]


class Collective(Brief, Struct, frozen=True, tag="collective"):
    """One operation of a group of devices, as libraries such as NCCL have in one call, and the steps that do it.

    Parameters
    ----------
    kind : str
        "all_gather", "reduce_scatter", "all_reduce", "all_to_all" or "broadcast".
    group : tuple of int
        The devices, ascending; of a broadcast the one that sends comes first.
    axes : tuple of str
        The axes of the mesh that the group lies along: its devices differ on these and on no others, and are all that
        do. Empty for other groups.
    node, tensor : str
        As the steps have them.
    nbytes : int
        Bytes of one part: what one device sends to another.
    steps : tuple of ProgramStep
        The plan's own, in its order: they take places for what comes, copy, and merge parts. `opening`, `copies` and
        `closing`, one after the other, do the same. In a program those of one device.
    at : tuple of int
        Which of these are the copies between devices.
    """

    kind: CollectiveKind
    group: tuple[int, ...]
    axes: tuple[str, ...]
    node: str
    tensor: str
    nbytes: int
    steps: tuple[ProgramStep, ...]
    at: tuple[int, ...]

    @property
    def places(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Which of the steps are `opening`, `copies` and `closing`."""
        across = set(self.at)
        opening = (k for k, one in enumerate(self.steps) if isinstance(one, Alloc | Copy) and k not in across)
        closing = (k for k, one in enumerate(self.steps) if not isinstance(one, Alloc | Copy) and k not in across)
        return tuple(opening), self.at, tuple(closing)

    @property
    def opening(self) -> tuple[ProgramStep, ...]:
        """What each device does by itself before: it takes places, and copies what it has."""
        return tuple(self.steps[k] for k in self.places[0])

    @property
    def copies(self) -> tuple[Copy, ...]:
        """The copies between devices, of all of them."""
        return tuple(one for one in (self.steps[k] for k in self.at) if isinstance(one, Copy))

    @property
    def closing(self) -> tuple[ProgramStep, ...]:
        """What each device does by itself afterwards: it merges parts, and gives their places back."""
        return tuple(self.steps[k] for k in self.places[2])

    @property
    def nbytes_moved(self) -> int:
        """Bytes between devices, once for each receiving device, as the plan counts them."""
        return self.nbytes * len(self.at)


GroupedStep = ProgramStep | Collective
"""The steps of a plan or program, where those that are one operation of a group are one step."""


def ungroup(steps: Iterable[GroupedStep]) -> Iterator[ProgramStep]:
    """The steps of which collectives are made, in their places, and all others."""
    for step in steps:
        if isinstance(step, Collective):
            yield from step.steps
        else:
            yield step


READ: dict[type[Struct], tuple[str, ...]] = {
    Copy: ("src",),
    Compute: ("inputs",),
    Reduce: ("inputs",),
    Send: ("src",),
}
"""The fields of a step that say which buffers it reads."""
WRITTEN: dict[type[Struct], tuple[str, ...]] = {
    Copy: ("dst",),
    Compute: ("outputs", "workspace"),
    Reduce: ("output",),
    Recv: ("dst",),
}
"""The same of those that it writes."""
KEPT: dict[type[Struct], tuple[str, ...]] = {
    Alloc: ("buffer",),
    Free: ("buffer",),
    Spill: ("buffer",),
    Fetch: ("buffer", "spilled"),
}
"""The same of those whose place it takes or gives back, or whose bytes it brings away or back."""
OWN: dict[type[Struct], tuple[str, ...]] = {**KEPT, Copy: ("dst",), Reduce: ("output",)}
"""The same of one that lies on the device whose step it is."""


def list_buffers(step: GroupedStep, names: Mapping[type[Struct], Sequence[str]]) -> list[int]:
    """The buffers in some fields of a step, or of the steps of a collective."""
    if isinstance(step, Collective):
        return [number for one in step.steps for number in list_buffers(one, names)]
    values = (getattr(step, name) for name in names.get(type(step), ()))
    every = (n for value in values for n in (value if isinstance(value, tuple) else (value,)))
    return [n for n in every if n is not None and n != HOST]


def is_in_place(step: Copy, buffers: Mapping[int, Buffer]) -> bool:
    """Whether a copy moves nothing, as its source lies within its target: it tells when the cells are there."""
    within = buffers[step.src].within if step.src != HOST else None
    return within is not None and within.buffer == step.dst


def list_overtaken(steps: Iterable[ProgramStep], buffers: Mapping[int, Buffer]) -> dict[int, int]:
    """The buffers whose place others take while it is still theirs, each with the next one there."""
    found, latest = dict[int, int](), dict[int, int]()
    for step in steps:
        if isinstance(step, Alloc) and (first := buffers[step.buffer].over) is not None:
            found[latest.get(first, first)] = step.buffer
            latest[first] = step.buffer
    return found


def list_written(step: ProgramStep) -> list[int]:
    """The buffers that a step fills with cells, also with those that were spilled."""
    return [step.buffer] if isinstance(step, Fetch) else list_buffers(step, WRITTEN)


def renumber(step: T, numbers: Mapping[int, int]) -> T:
    """A step on the same buffers under other numbers; those that are not given stay."""
    if not numbers:
        return step
    if isinstance(step, Collective):
        return replace(step, steps=tuple(renumber(one, numbers) for one in step.steps))

    def new(value: Any) -> Any:
        return tuple(map(new, value)) if isinstance(value, tuple) else numbers.get(value, value)

    names = (name for table in (READ, WRITTEN, KEPT) for name in table.get(type(step), ()))
    return replace(step, **{name: new(getattr(step, name)) for name in names})


OutputBlock = tuple[int, Region]
"""Cells in a buffer, by its number."""


class Output(Brief, Struct, frozen=True):
    """Where a graph output lies when the plan has run.

    Parameters
    ----------
    name : str
        Label of the output.
    tensor : str
        The graph's tensor; when it is viewed through selections, the blocks are of its stored sources.
    shape, dtype
        Of the tensor.
    blocks : tuple of (int, Region)
        Buffers, on their devices or spilled to the host, and the cells of the buffer's stored tensor to take
        from each; disjoint, and together the whole of each stored tensor.
    replicas : tuple of (int, Region)
        Further places that the layout asked for fills with the same cells.
    """

    name: str
    tensor: str
    shape: tuple[int, ...]
    dtype: str
    blocks: tuple[OutputBlock, ...]
    replicas: tuple[OutputBlock, ...] = ()


class Written(Struct, frozen=True):
    """Steps as they are run: of all devices, or of some, and the buffers that they are about.

    Parameters
    ----------
    buffers : tuple of Buffer
    steps : tuple of ProgramStep
        In order.
    outputs : tuple of Output
        Where the graph's outputs lie afterwards.
    """

    buffers: tuple[Buffer, ...]
    steps: tuple[ProgramStep, ...]
    outputs: tuple[Output, ...]

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({tell_count(len(self.steps), 'step')}, "
            f"{tell_count(len(self.buffers), 'buffer')}, {tell_count(len(self.outputs), 'output')})"
        )
