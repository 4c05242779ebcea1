"""Block functions: what an operator computes of one part of its index space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial, wraps
from typing import Any, Protocol, TypeVar

import numpy as np
from msgspec import Struct

from tapestry_plan.ir.signature import Shape, Signature
from tapestry_plan.ir.tensors import Attrs
from tapestry_sets.limits import Public
from tapestry_sets.regions import Box

T = TypeVar("T")
Call = Callable[[], object]
"""A part of a block's work on arrays that it holds: a product, a sum, a copy."""


class Shard(Struct, frozen=True, dict=True, metaclass=Public):
    """A block function's part of the work.

    Parameters
    ----------
    index : Box
        The part of the index space to compute.
    signature : Signature
        Of the whole operator.
    attrs : mapping
        The operator's attributes.
    input_boxes : tuple of Box or None
        Coordinates of the input blocks in their tensors; None for an input that this part does not read.
    output_boxes : tuple of Box
        Coordinates of the output blocks.
    workspace : array of uint8
        As many bytes as the operator declared, or more; its content is undefined.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import run
    >>> from tapestry_plan import Graph, Mesh, Op, ops, plan
    >>> def copy_and_tell(xp, inputs, outputs, shard):
    ...     outputs[0][...] = inputs[0]
    ...     print("rows", shard.range("i0"), "of", shard.extent("i0"))
    >>> g = Graph()
    >>> told = Op("told", ops.relu.op.signature, copy_and_tell)
    >>> _ = g.output(g.op(told, g.input("x", (6, 2))), "y")
    >>> p = plan(g, Mesh(2), fix={"told": {"i0": 2}})
    >>> result = run(p, {"x": np.ones((6, 2), np.float32)}, backend="serial")
    rows (0, 3) of 6
    rows (3, 6) of 6
    """

    index: Box
    signature: Signature
    attrs: Attrs
    input_boxes: tuple[Box | None, ...]
    output_boxes: tuple[Box, ...]
    workspace: Any

    @cached_property
    def known(self) -> dict[Any, Any]:
        """What was worked out of this part, whatever its workspace: each run of a plan asks again."""
        return {}

    def within(self, workspace: Any) -> Shard:
        """This part with a workspace; what is known of it is known of both."""
        made = Shard(self.index, self.signature, self.attrs, self.input_boxes, self.output_boxes, workspace)
        made.__dict__["known"] = self.known
        return made

    def range(self, axis: str) -> tuple[int, int]:
        """Begin and end of this part along an index axis, by name."""
        k = self.signature.axis(axis)
        return self.index.start[k], self.index.start[k] + self.index.shape[k]

    def length(self, axis: str) -> int:
        """Index points of this part along an axis, by name."""
        return self.index.shape[self.signature.axis(axis)]

    def extent(self, axis: str) -> int:
        """Index points of the whole operator along an axis, by name."""
        return self.signature.axes[self.signature.axis(axis)].size


def once_for_shard(make: Callable[[Shard], T]) -> Callable[[Shard], T]:
    """A function of a shard, but for its workspace, whose answer is kept with the shard."""

    @wraps(make)
    def found(shard: Shard) -> T:
        known = shard.known
        if make not in known:
            known[make] = make(shard)
        made: T = known[make]
        return made

    return found


def same_anywhere(shard: Shard, shapes: Sequence[Shape]) -> Attrs:
    """The attributes of a shard's blocks, of operators that give the same wherever their cells lie: the node's own."""
    return shard.attrs


class Block(Protocol):
    """Computes one shard: reads the input blocks, writes the output blocks in place, keeps nothing."""

    def __call__(self, xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard, /) -> None: ...


class ListedBlock(Struct, frozen=True):
    """A block that lists the calls that do its work, so that who runs it on the same arrays again keeps them.

    Views of small blocks take as long to make as their numbers to compute.

    Parameters
    ----------
    calls : callable
        ``(xp, inputs, outputs, shard) -> calls``, done in order, each before the next one is asked for. What they are
        depends on where arrays lie, and never on numbers in them: of an array that must be copied to be reshaped, a
        call makes the copy.
    """

    calls: Callable[[Any, Sequence[Any], Sequence[Any], Shard], Iterable[Call]]

    def __call__(self, xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard, /) -> None:
        for call in self.calls(xp, inputs, outputs, shard):
            call()


class CellBlock(Struct, frozen=True):
    """A block that computes from the cells alone, wherever in their tensors they lie.

    What it is applied to may so be renumbered: where each point also reads and writes one cell of each operand, the
    work is the same on reshaped operands.

    Parameters
    ----------
    write : callable
        ``(xp, outputs, inputs, attrs)``.
    in_place : bool
        Whether the output may lie where an operand of its shape and dtype size does: each cell is read there before it
        is written, and not afterwards.
    begins_as : int, optional
        The only operand that it may lie at: its cells are those of the output until others are written (`begin_as`).
    """

    write: Callable[[Any, Sequence[Any], Sequence[Any], Attrs], None]
    in_place: bool = False
    begins_as: int | None = None

    def __call__(self, xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard, /) -> None:
        self.write(xp, outputs, inputs, shard.attrs)


class UpdateBlock(Struct, frozen=True):
    """A block that begins with the cells of an operand, and then writes others into some of them.

    So nothing is copied where the output lies where that operand does, as in a cache that stays from run to run.

    Parameters
    ----------
    write : callable
        ``(xp, inputs, outputs, shard)``; the output has the operand's cells, which are not read from there.
    begins_as : int
        The operand, of the output's shape and dtype.
    """

    write: Block
    begins_as: int = 0

    def __call__(self, xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard, /) -> None:
        begin_as(xp, outputs[0], inputs[self.begins_as])
        self.write(xp, inputs, outputs, shard)


def begin_as(xp: Any, out: Any, x: Any) -> None:
    """Give an output the cells of an operand that broadcasts to it; nothing where it lies where the operand does."""
    if (out.shape, out.strides, _find_address(out)) != (x.shape, x.strides, _find_address(x)):
        xp.copyto(out, x)


def _find_address(array: Any) -> int:
    """Where an array of NumPy or of a GPU's library begins."""
    place = array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.data.ptr
    return int(place)


class InPlaceBlock(Struct, frozen=True):
    """A block that runs another one, and keeps its promises of where the output may lie (see `is_in_place`)."""

    run: Block
    promised: Block

    def __call__(self, xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard, /) -> None:
        self.run(xp, inputs, outputs, shard)


def list_calls(block: Block, xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> Iterable[Call]:
    """The calls that run a block on arrays: of one that lists none, one call of all of it."""
    if isinstance(block, ListedBlock):
        return block.calls(xp, inputs, outputs, shard)
    if isinstance(block, CellBlock):
        return (partial(block.write, xp, outputs, inputs, shard.attrs),)
    return (partial(block, xp, inputs, outputs, shard),)


def is_in_place(block: Block, operand: int) -> bool:
    """Whether a block promises that its output may lie where it reads an operand (see `CellBlock`, `UpdateBlock`).

    Examples
    --------
    >>> from tapestry_plan import ops
    >>> from tapestry_plan.ir import BUILTIN_OPS
    >>> {name: [is_in_place(BUILTIN_OPS[name].block, k) for k in range(3)] for name in ("add", "where", "scatter_nd")}
    {'add': [True, True, True], 'where': [False, False, True], 'scatter_nd': [True, False, False]}
    """
    match block:
        case InPlaceBlock():
            return is_in_place(block.promised, operand)
        case CellBlock():
            return block.in_place or block.begins_as == operand
        case UpdateBlock():
            return block.begins_as == operand
        case _:
            return False
