"""Fusion: two operators in one block, which never stores the first one's result.

The operator made of them is named after both, ``fused(linear,relu)``. Its index space is the second one's; the first
one's projections are followed through what the second one reads of its result. Its axes are called as by the second
one, whose name it has in a graph: what is asked of that operator is asked in the same words of the block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import (
    BUILTIN_OPS,
    DERIVED,
    Activation,
    Addition,
    Attrs,
    Call,
    Correlation,
    Form,
    ListedBlock,
    MatrixProduct,
    NotApplicable,
    Op,
    Operand,
    Shape,
    Shard,
    Signature,
    is_in_place,
    list_calls,
)
from tapestry_plan.rewrite import tuning
from tapestry_plan.rewrite.derived import (
    Derived,
    Range,
    derive_op,
    once_for_attributes,
    require_attributes,
    signature_of,
    slices_within,
    substitute_axes,
    through,
    window,
    with_whole,
    without_axes,
)
from tapestry_sets.limits import Public, is_int, quote
from tapestry_sets.regions import Box, IndexProjection

T = TypeVar("T")
Room = tuple[Any, Any]
"""Scratch memory for a result, and an array of which one as large may lie instead, or None."""
Spare = tuple[Shape, int] | None
"""The shape of such an array, and bytes of each of its numbers."""
FUSED_ATTRIBUTES = tuple(f"fused.{key}" for key in ("first", "second", "of", "inputs", "at", "whole", "dtype"))


class Fusion(Struct, frozen=True, dict=True, metaclass=Public):
    """Two operators, the second of which reads the first one's result, as one.

    Parameters
    ----------
    first, second : Op
    first_signature, second_signature : Signature
        The second one's has all its operands, the result between the two included.
    first_attrs, second_attrs : mapping
    at : tuple of int
        The second one's operands that are the result between.
    shape : tuple of int
        Of the result between.
    dtype : str
        Of the result between.
    whole : frozenset of str
        Index axes of the second one that no part of the fused operator cuts.
    """

    first: Op
    second: Op
    first_signature: Signature
    second_signature: Signature
    first_attrs: Attrs
    second_attrs: Attrs
    at: tuple[int, ...]
    shape: Shape
    dtype: str
    whole: frozenset[str]

    @classmethod
    def of(cls, first: Op, second: Op, attrs: Attrs) -> Fusion:
        """Read the attributes of a node of ``fused(first,second)``."""
        require_attributes(attrs, FUSED_ATTRIBUTES)
        count, at = _read_places(attrs)
        shapes = tuple(map(tuple, attrs["fused.of"]))
        one, two = dict(attrs["fused.first"]), dict(attrs["fused.second"])
        for op, own in ((first, one), (second, two)):
            op.check_attributes(own, f"{op.name} in a block")
        made = signature_of(first, shapes[:count], one)
        if len(made.outputs) != 1:
            raise NotApplicable(f"{first.name} has {len(made.outputs)} outputs; only one can stay inside a block")
        between = made.outputs[0].projection.bounding_box(made.index).stop
        used = signature_of(second, tuple(_with_between(shapes[count:], at, between)), two)
        whole = frozenset(attrs["fused.whole"])
        return cls(first, second, made, used, one, two, at, between, attrs["fused.dtype"], whole)

    @cached_property
    def inner(self) -> Fusion | None:
        """The two operators that the first one is made of, if it is a block."""
        return open_block(self.first, self.first_attrs)

    def owners(self) -> tuple[int | None, ...]:
        """For each coordinate of the result between: the first one's index axis that counts it, None for none.

        Raises
        ------
        NotApplicable
            When the first operator writes no single cell, or whole axis, at each index point.
        """
        projection = self.first_signature.outputs[0].projection
        found: list[int | None] = []
        for row, b, n, extent in zip(
            projection.map.matrix, projection.map.offset, projection.shape, self.shape, strict=True
        ):
            terms = [(k, c) for k, c in enumerate(row) if c]
            if not terms and b == 0 and n == extent:
                found.append(None)
            elif len(terms) == 1 and terms[0][1] == 1 and b == 0 and n == 1 and not projection.splits:
                found.append(terms[0][0])
            else:
                raise NotApplicable(f"{self.first.name} writes coordinate {len(found)} in blocks, not cell by cell")
        return tuple(found)

    def reader(self) -> Operand:
        """How the second operator reads the result between."""
        operands = {self.second_signature.inputs[k] for k in self.at}
        if len(operands) != 1 or any(operand.also for operand in operands):
            raise NotApplicable(f"{self.second.name} reads operands {quote(list(self.at))} in different ways")
        return operands.pop()

    def unlike_cells(self) -> dict[str, str]:
        """Index axes of the second operator that do not count cells of the result between one by one, and why."""
        names = [axis.name for axis in self.second_signature.axes]
        projection, found = self.reader().projection, {}
        moves: set[str] = set()
        for c, (row, owner) in enumerate(zip(projection.map.matrix, self.owners(), strict=True)):
            used = {names[_axis_of(projection, k)] for k, factor in enumerate(row) if factor}
            moves |= used
            if owner is None:
                found.update(dict.fromkeys(used, f"{self.first.name} makes coordinate {c} as a whole"))
            elif used and not self._counts(row, c):
                found.update(dict.fromkeys(used, f"{self.second.name} reads coordinate {c} in windows or steps"))
        for axis in self.second_signature.axes:
            if axis.size > 1 and axis.name not in moves:
                found[axis.name] = f"each part along {axis.name} of {self.second.name} would compute all of it again"
        return found

    def _counts(self, row: Sequence[int], c: int) -> bool:
        """Whether one index axis counts all cells of coordinate c, in order."""
        projection = self.reader().projection
        terms = [(k, factor) for k, factor in enumerate(row) if factor]
        rank = len(self.second_signature.axes)
        if len(terms) != 1 or terms[0][0] >= rank or terms[0][1] != 1:
            return False
        sizes = self.second_signature.index_shape
        return not projection.map.offset[c] and projection.shape[c] == 1 and sizes[terms[0][0]] == self.shape[c]

    def operands_of_second(self, others: Sequence[T], between: T) -> list[T]:
        """What the second operator reads, in its order: its other operands, and the result between."""
        return _with_between(others, self.at, between)

    def cells(self, box: Box) -> Box | None:
        """The block of the result between that an index box of the second operator reads, cut to the tensor."""
        return window(self.second_signature, self.at[0], box, self.shape)

    def made_by(self, cells: Box) -> Box:
        """The index box of the first operator that makes a block."""
        spans = {o: (a, n) for o, a, n in zip(self.owners(), cells.start, cells.shape, strict=True) if o is not None}
        sizes = self.first_signature.index_shape
        found = [spans.get(k, (0, n)) for k, n in enumerate(sizes)]
        return Box(tuple(a for a, _ in found), tuple(n for _, n in found))

    def list_indices(self, index: Box, signature: Signature) -> tuple[Box | None, Box]:
        """The index boxes of both operators for one of the fused operator; None where only padding is read."""
        whole = with_whole(index, signature, self.second_signature)
        cells = self.cells(whole)
        return None if cells is None else self.made_by(cells), whole

    def signature(self) -> Signature:
        """Of the fused operator: the second one's index axes, the first one's operands and then the second one's.

        Raises
        ------
        NotApplicable
            When parts would not read exactly what they need.
        """
        unlike = self.unlike_cells()
        left = [name for name in unlike if name not in self.whole]
        if left:
            raise NotApplicable(unlike[left[0]])
        small = self.small
        cells = self.cells(self.second_signature.index)
        assert cells is not None, "the whole operator reads every operand"
        images: list[int | Range] = [Range(0, n) for n in self.first_signature.index_shape]
        reader = small.inputs[self.at[0]]
        for c, (owner, row) in enumerate(zip(self.owners(), reader.projection.map.matrix, strict=True)):
            if owner is not None:
                axis = next((k for k, factor in enumerate(row) if factor), None)
                images[owner] = Range(cells.start[c], cells.shape[c]) if axis is None else axis
        inputs = [
            replace(
                through(operand, lambda p: substitute_axes(p, images, len(small.axes))), at_start_of=reader.at_start_of
            )
            for operand in self.first_signature.inputs
        ]
        rest = [operand for k, operand in enumerate(small.inputs) if k not in self.at]
        return Signature(small.axes, (*inputs, *rest), small.outputs)

    @cached_property
    def small(self) -> Signature:
        """The second one's signature without the axes that no part cuts."""
        return without_axes(self.second_signature, sorted(self.whole))

    def _count_flop(self, which: int) -> float:
        """The work of all of the first operator, or of the second one."""
        op = (self.first, self.second)[which]
        signature = (self.first_signature, self.second_signature)[which]
        return op.flop_per_point(signature, (self.first_attrs, self.second_attrs)[which]) * signature.index.size

    def list_calls(self, xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> Iterator[Call]:
        """The calls of both block functions on a part of the fused operator, the result between in scratch memory."""
        itemsize = outputs[0].dtype.itemsize
        rooms, is_spared = self._recall(shard, "rooms", lambda: self._find_rooms(shard, itemsize))
        wanted, room = sum(map(_aligned, rooms)), shard.workspace
        if wanted > (0 if room is None else len(room)):
            # A plan has the rooms of the operators that it knows. One that a run puts in their place may need more.
            yield partial(self._run_elsewhere, xp, inputs, outputs, shard, wanted)
            return
        near, far, work = _cut(room, rooms)
        spare = outputs[0] if is_spared else None
        yield from self._list_in(xp, inputs, outputs, shard, (near, None), (far, spare), work)

    def _run_elsewhere(self, xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard, nbytes: int) -> None:
        for call in self.list_calls(xp, inputs, outputs, shard.within(xp.empty(nbytes, np.uint8))):
            call()

    def _list_in(
        self,
        xp: Any,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        shard: Shard,
        near: Room,
        far: Room,
        work: Any,
    ) -> Iterator[Call]:
        count = len(self.first_signature.inputs)
        one, two = self.plan(shard)
        between = None
        if one is not None:
            (out,), (room, spare) = one.output_boxes, near
            rooms = far, near
            if self._recall(shard, "overwrites", lambda: self._overwrites(two, out, outputs[0].dtype.itemsize)):
                made, rooms = outputs[0].view(self.dtype), (near, far)
            elif spare is not None and self._fits_in((spare.shape, spare.dtype.itemsize), out):
                made = spare.view(self.dtype)
            else:
                made = room[: out.size * self.itemsize].view(self.dtype).reshape(out.shape)
            if inner := self.inner:
                yield from inner._list_in(xp, inputs[:count], (made,), one, *rooms, work)
            else:
                yield from list_calls(self.first.block, xp, inputs[:count], (made,), one.within(work))
            wanted = two.input_boxes[self.at[0]]
            assert wanted is not None, "the first block runs, so the second one reads its result"
            if wanted.intersect(out) != wanted:
                yield partial(self._run_padded, xp, inputs[count:], made, outputs, shard, work)
                return
            between = _protect(made[slices_within(wanted, out)])
        operands = tuple(_with_between(inputs[count:], self.at, between))
        yield from list_calls(self.second.block, xp, operands, outputs, two.within(work))

    def _run_padded(
        self, xp: Any, others: Sequence[Any], made: Any, outputs: Sequence[Any], shard: Shard, work: Any
    ) -> None:
        """Run the second block on what the first one made, in its padding."""
        one, two = self.plan(shard)
        assert one is not None, "the first block made this"
        (box,), wanted = one.output_boxes, two.input_boxes[self.at[0]]
        assert wanted is not None, "the first block ran, so the second one reads its result"
        between = xp.full(wanted.shape, self.reader().pad, made.dtype)
        inside = wanted.intersect(box)
        if inside is not None:
            between[slices_within(inside, wanted)] = made[slices_within(inside, box)]
        self.second.block(xp, _with_between(others, self.at, _protect(between)), outputs, two.within(work))

    def count_rooms(self, shard: Shard, itemsize: int, near: Spare, far: Spare) -> tuple[int, int, int]:
        """Bytes of the two rooms of scratch memory in which results between lie by turns, and of the rest.

        ::

            a ─► near ─► b ─► far ─► c ─► near ─► d ─► output

        What is as large as the output lies there instead of in the far room, until the last operator writes it. An
        operator that reads each cell before it writes that one overwrites what it reads, and no room is taken::

            a ─► near ─► b ─► output ─► relu ─► output
        """
        one, two = self.plan(shard)
        last = self.second.workspace(two, itemsize)
        if one is None:
            return 0, 0, last
        (out,) = one.output_boxes
        if self._overwrites(two, out, itemsize):
            if inner := self.inner:
                there, here, first = inner.count_rooms(one, self.itemsize, near, far)
                return there, here, max(first, last)
            return 0, 0, max(self.first.workspace(one, self.itemsize), last)
        mine = 0 if self._fits_in(near, out) else out.size * self.itemsize
        if inner := self.inner:
            there, here, first = inner.count_rooms(one, self.itemsize, far, near)
            return max(mine, here), there, max(first, last)
        return mine, 0, max(self.first.workspace(one, self.itemsize), last)

    def _overwrites(self, two: Shard, out: Box, itemsize: int) -> bool:
        """Whether the second operator, a part of it, may write where it reads the block of the result between."""
        signature = self.second_signature
        return (
            all(is_in_place(self.second.block, k) for k in self.at)
            and itemsize == self.itemsize
            and not signature.reductions
            and len(signature.outputs) == 1
            and self.reader().projection == signature.outputs[0].projection
            and two.output_boxes == (out,)
            and all(two.input_boxes[k] == out for k in self.at)
        )

    def _fits_in(self, spare: Spare, out: Box) -> bool:
        """Whether a block of the result between may lie in an array of some shape."""
        return spare == (out.shape, self.itemsize)

    @property
    def itemsize(self) -> int:
        """Bytes of a number of the result between."""
        return np.dtype(self.dtype).itemsize

    def plan(self, shard: Shard) -> tuple[Shard | None, Shard]:
        """The shards of the two block functions: None of the first where only padding is read of what it makes."""
        return self._recall(shard, "blocks", lambda: self._plan_now(shard))

    def _recall(self, shard: Shard, what: str, make: Callable[[], T]) -> T:
        """What was worked out of a shard for these two operators: another run may have others in their places."""
        known: tuple[Fusion, T] | None = shard.known.get(what)
        if known is None or known[0] is not self:
            known = shard.known[what] = self, make()
        return known[1]

    def _find_rooms(self, shard: Shard, itemsize: int) -> tuple[tuple[int, int, int], bool]:
        spared = _find_spare(shard, itemsize)
        return self.count_rooms(shard, itemsize, None, spared), spared is not None

    def _plan_now(self, shard: Shard) -> tuple[Shard | None, Shard]:
        count = len(self.first_signature.inputs)
        box, index = self.list_indices(shard.index, shard.signature)
        wanted = self.second_signature.input_box(self.at[0], index)
        boxes = tuple(_with_between(shard.input_boxes[count:], self.at, wanted))
        two = Shard(index, self.second_signature, self.second_attrs, boxes, shard.output_boxes, None)
        if box is None:
            return None, two
        out = self.first_signature.outputs[0].projection.bounding_box(box)
        return Shard(box, self.first_signature, self.first_attrs, shard.input_boxes[:count], (out,), None), two

    def form(self, shard: Shard) -> Form | None:
        """The form of both, if the second one only ends the work of the first one."""
        one, two = self.plan(shard)
        if one is None:
            return None
        (out,) = one.output_boxes
        if any(two.input_boxes[k] != out for k in self.at) or two.output_boxes != (out,):
            return None
        begun, ended = self.first.form_of(one), self.second.form_of(two)
        if not isinstance(begun, MatrixProduct | Correlation) or begun.activation != "none":
            return None
        if isinstance(ended, Activation):
            return replace(begun, activation=ended.name)
        is_bias = isinstance(ended, Addition) and isinstance(begun, MatrixProduct) and len(self.at) == 1
        # Of the fused operator's inputs the second one's other operand is the last.
        return replace(begun, bias=len(one.input_boxes)) if is_bias and begun.bias is None else None


def _find_spare(shard: Shard, itemsize: int) -> Spare:
    """The output of a block, where results between may lie: not of a sum, whose parts may have other numbers."""
    return None if shard.signature.reductions else (shard.output_boxes[0].shape, itemsize)


def _read_places(attrs: Attrs) -> tuple[int, tuple[int, ...]]:
    """How many operands are the first operator's, and which of the second one's are the result between."""
    count, at, total = attrs["fused.inputs"], tuple(attrs["fused.at"]), len(attrs["fused.of"])
    if not is_int(count, 0, total):
        raise ValueError(f"the attribute fused.inputs is {quote(count)}; give a number of the {total} operands")
    last = total - count + len(at) - 1
    if not at or not all(is_int(k, 0, last) for k in at) or len(set(at)) < len(at):
        raise ValueError(f"the attribute fused.at is {quote(at)}; give different places from 0 to {last}")
    return count, at


def _with_between(others: Sequence[T], at: Sequence[int], between: T) -> list[T]:
    """What is given for the second operator's other operands, and for the result between at that one's places."""
    rest = iter(others)
    return [between if k in at else next(rest) for k in range(len(others) + len(at))]


def _protect(array: Any) -> Any:
    """An array of which nothing may be written, as all operands are in this process."""
    if isinstance(array, np.ndarray):
        array.setflags(write=False)
    return array


def _cut(workspace: Any, sizes: Sequence[int]) -> list[Any]:
    """Scratch memory in pieces of so many bytes, each beginning aligned."""
    begins = accumulate(map(_aligned, sizes), initial=0)
    return [workspace[at : at + n] for at, n in zip(begins, sizes, strict=False)]


def _aligned(nbytes: int) -> int:
    return -(-nbytes // tuning.ALIGNMENT_NBYTES) * tuning.ALIGNMENT_NBYTES


def _axis_of(projection: IndexProjection, column: int) -> int:
    """The index axis of a column, which may be a split's."""
    rank = projection.index_rank
    return column if column < rank else projection.splits[(column - rank) // 2][0]


_known_fusion = once_for_attributes(Fusion.of)
"""What a node's attributes say, worked out once for all of its shards."""
_known_signature = once_for_attributes(lambda *given: Fusion.of(*given).signature())


@lru_cache(maxsize=1024)
def fuse_ops(first: Op, second: Op) -> Derived:
    """The operator that runs two block functions one after the other, and never stores the tensor between them.

    Examples
    --------
    >>> from tapestry_plan.ir import BUILTIN_OPS
    >>> fuse_ops(BUILTIN_OPS["linear"], BUILTIN_OPS["relu"]).name
    'fused(linear,relu)'
    """
    for op in (first, second):
        if op.has_states:
            raise NotApplicable(f"{op.name} makes states that are unwrapped afterwards; its block has no result yet")

    def signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
        wanted = tuple(map(tuple, attrs.get("fused.of", ())))
        if tuple(map(tuple, shapes)) != wanted:
            raise ValueError(
                f"the inputs have shapes {quote(list(shapes))}; the operators were fused for {quote(list(wanted))}"
            )
        return _known_signature(first, second, attrs)

    def find(shard: Shard) -> Fusion:
        known: Fusion | None = shard.known.get("fusion")
        if known is None or known.first is not first or known.second is not second:
            known = shard.known["fusion"] = _known_fusion(first, second, shard.attrs)
        return known

    def calls(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> Iterator[Call]:
        return find(shard).list_calls(xp, inputs, outputs, shard)

    def flop(signature: Signature, attrs: Attrs) -> float:
        found = _known_fusion(first, second, attrs)
        return (found._count_flop(0) + found._count_flop(1)) / signature.index.size

    def work(shard: Shard) -> Form | None:
        return find(shard).form(shard)

    def dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
        count, at = _read_places(attrs)
        between = first.dtype(dtypes[:count], dict(attrs["fused.first"]))
        if between != (attrs["fused.dtype"],):
            made, told = ", ".join(between), quote(attrs["fused.dtype"])
            raise ValueError(f"the attribute fused.dtype is {told}; {first.name} gives {made}")
        operands = _with_between(dtypes[count:], at, attrs["fused.dtype"])
        return second.dtype(operands, dict(attrs["fused.second"]))

    def workspace(shard: Shard, itemsize: int) -> int:
        found = find(shard)
        return sum(map(_aligned, found.count_rooms(shard, itemsize, None, _find_spare(shard, itemsize))))

    def passes(signature: Signature, attrs: Attrs) -> list[int]:
        found = _known_fusion(first, second, attrs)
        before = first.count_passes(found.first_signature, found.first_attrs)
        after = second.count_passes(found.second_signature, found.second_attrs)
        return [*before, *(times for k, times in enumerate(after) if k not in found.at)]

    return derive_op(
        "fused",
        [first, second],
        signature=signature,
        block=ListedBlock(calls),
        flop=flop,
        reduction=second.reduction,
        dtype=dtype,
        workspace=workspace,
        attributes=FUSED_ATTRIBUTES,
        work=work,
        passes=None if first.passes is second.passes is None else passes,
        rows=first.rows and second.rows,
    )


DERIVED.update(fused=fuse_ops)


def open_block(op: Op, attrs: Attrs) -> Fusion | None:
    """The two operators that a block is made of; None for any other operator."""
    if not isinstance(op, Derived) or op.form != "fused":
        return None
    return _known_fusion(*op.of, attrs)


def is_builtin(op: Op, attrs: Attrs) -> bool:
    """Whether an operator, and each one in a block, is the one that the package knows by its name."""
    block = open_block(op, attrs)
    if block is None:
        return op is BUILTIN_OPS.get(op.name)
    return is_builtin(block.first, block.first_attrs) and is_builtin(block.second, block.second_attrs)
