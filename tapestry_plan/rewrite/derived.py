"""Operators made of other ones: a part, the states of a part, the merge of partial results.

Each is a declaration like any other, made from the declarations of the operators that it is of, and named after
them: ``part(linear)``, ``state(variance)``, ``merge(linear)``. What a node of it does is said
by the node's attributes, so graphs with derived operators are written and read as all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial, wraps
from operator import is_
from types import EllipsisType
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import (
    AROUND,
    DERIVED,
    Attrs,
    Form,
    Monoid,
    NotApplicable,
    Op,
    Operand,
    Shape,
    Shard,
    Signature,
    components_of,
    make_empty,
    merge_states,
    project,
    resolve,
)
from tapestry_plan.ops import number_axes
from tapestry_sets.limits import Public, quote
from tapestry_sets.regions import AffineMap, Box, IndexProjection

T = TypeVar("T")
PART_ATTRIBUTES = ("part.start", "part.shape", "part.of", "part.dtypes", "part.around")
MERGE_ATTRIBUTES = ("merge.dtype", "merge.result")


class Derived(Op, frozen=True, metaclass=Public):
    """An operator made of others.

    Parameters
    ----------
    form : str
        The word before the brackets of its name.
    of : tuple of Op
    """

    form: str = ""
    of: tuple[Op, ...] = ()

    def __reduce__(self) -> Any:
        """One that is as its form makes it is pickled by that and what it is made of."""
        is_made = self.form in DERIVED and DERIVED[self.form](*self.of) is self
        return (_derive_again, (self.form, self.of)) if is_made else super().__reduce__()


def _derive_again(form: str, of: tuple[Op, ...]) -> Op:
    return DERIVED[form](*of)


def derive_op(form: str, of: Sequence[Op], **fields: Any) -> Derived:
    """An operator made of others: it needs NumPy where one of them does."""
    host_only = any(op.host_only for op in of)
    return Derived(
        f"{form}({','.join(op.name for op in of)})", form=form, of=tuple(of), **{"host_only": host_only, **fields}
    )


def with_ops(op: Op, others: Mapping[str, Op]) -> Op:
    """The operator of this name among some others, or one made of them; itself where it is made of none.

    Parameters
    ----------
    op : Op
    others : mapping of str to Op
        By name.
    """
    if op.name in others:
        return others[op.name]
    if not isinstance(op, Derived) or op.form not in DERIVED:
        return op
    made = [with_ops(one, others) for one in op.of]
    return op if all(map(is_, made, op.of)) else DERIVED[op.form](*made)


def list_inside(op: Op) -> dict[str, Op]:
    """The operators that one is made of, by name, and those that these are made of."""
    found = dict[str, Op]()
    for one in op.of if isinstance(op, Derived) else ():
        found |= {one.name: one, **list_inside(one)}
    return found


def core_attributes(op: Op, attrs: Attrs) -> dict[str, Any]:
    """The attributes of the operator that a node's operator is made of."""
    return {key: value for key, value in attrs.items() if key in op.attributes}


def require_attributes(attrs: Attrs, names: Sequence[str]) -> None:
    """Raise ValueError for the first of some attributes that a node does not have."""
    missing = [key for key in names if key not in attrs]
    if missing:
        given = ", ".join(names)
        raise ValueError(f"the attribute {missing[0]} is missing; the rule that makes such nodes gives {given}")


def slices_within(box: Box, frame: Box) -> tuple[slice | EllipsisType, ...]:
    """Where a box lies in an array that has the cells of another one.

    The ellipsis keeps the one cell of rank 0 a view of the array: calls that are kept read it in later runs too.
    """
    return *(slice(a - o, a - o + n) for a, n, o in zip(box.start, box.shape, frame.start, strict=True)), ...


def once_for_attributes(make: Callable[..., T]) -> Callable[..., T]:
    """A function whose last argument are attributes; what it gave is kept for equal ones, but for those with lists."""

    @lru_cache(maxsize=4096)
    def kept(*given: Any) -> T:
        return make(*given[:-1], dict(given[-1]))

    @wraps(make)
    def found(*given: Any) -> T:
        key = tuple(given[-1].items())
        try:
            hash(key)
        except TypeError:  # an attribute that is a list
            return make(*given)
        return kept(*given[:-1], key)

    return found


@once_for_attributes
def signature_of(op: Op, shapes: tuple[Shape, ...], attrs: Attrs) -> Signature:
    """The signature of an operator over tensors that are extended already where its operands reach out of them."""
    return resolve(op.signature, shapes, attrs)[0]


# -- projections over other index spaces ---------------------------------------------------------------


def through(operand: Operand, change: Callable[[IndexProjection], IndexProjection]) -> Operand:
    """The operand with all of its projections changed."""
    return replace(operand, projection=change(operand.projection), also=tuple(map(change, operand.also)))


def move_projection(projection: IndexProjection, box: Box, origin: Sequence[int]) -> IndexProjection:
    """The projection of the index points of a box, counted from its start, to coordinates counted from an origin.

    Raises
    ------
    ValueError
        When the box begins inside a block of a split axis and ends outside that block.
    """
    rank, matrix = len(box.start), projection.map.matrix
    rows = [list(row[:rank]) for row in matrix]
    begins = [(k, value) for k, value in enumerate(_first(projection, box)) if value]
    offset = [
        b - o + sum(row[k] * value for k, value in begins)
        for row, b, o in zip(matrix, projection.map.offset, origin, strict=True)
    ]
    splits = []
    for number, (axis, q) in enumerate(projection.splits):
        at = rank + 2 * number
        within = box.start[axis] % q
        if within + box.shape[axis] <= q:  # one block: its number is fixed, the remainder counts on
            for row, old in zip(rows, matrix, strict=True):
                row[axis] += old[at + 1]
        elif within == 0:
            splits.append((axis, q))
            for row, old in zip(rows, matrix, strict=True):
                row += old[at : at + 2]
        else:
            raise NotApplicable(f"index points from {box.start[axis]} on begin inside a block of {q}; cut at multiples")
    return IndexProjection(
        AffineMap(tuple(map(tuple, rows)), tuple(offset), rank + 2 * len(splits)), projection.shape, tuple(splits)
    )


def _first(projection: IndexProjection, box: Box) -> tuple[int, ...]:
    """The first point of an index box, with the quotients and remainders of the splits."""
    more = [part for axis, q in projection.splits for part in divmod(box.start[axis], q)]
    return (*box.start, *more)


class Range(Struct, frozen=True):
    """An index axis in the derived operator: so many of its points, from `start` on, belong to one index point."""

    start: int
    extent: int


def substitute_axes(projection: IndexProjection, axes: Sequence[int | Range], rank: int) -> IndexProjection:
    """The projection over other index axes: each old axis is a new one, or a range that widens the block.

    Raises
    ------
    ValueError
        When the cells of a widened block are not a box.
    """
    old_rank, matrix = len(axes), projection.map.matrix
    splits = [(axis, q) for axis, q in projection.splits if isinstance(axes[axis], int)]
    columns: list[int | Range] = [*axes, *_split_columns(projection, axes, rank)]
    rows, offset, shape = [], [], []
    for c, old in enumerate(matrix):
        row, start = [0] * (rank + 2 * len(splits)), projection.map.offset[c]
        ranges = []
        for column, factor in zip(columns, old, strict=True):
            if isinstance(column, int):
                row[column] += factor
            elif factor:
                start += factor * column.start + min(0, factor * (column.extent - 1))
                ranges.append((abs(factor), column.extent))
        rows.append(tuple(row))
        offset.append(start)
        shape.append(_solid(projection.shape[c], ranges, c))
    for k in range(old_rank):
        found = axes[k]
        if isinstance(found, Range) and found.extent > 1 and sum(row[k] != 0 for row in matrix) > 1:
            raise NotApplicable(f"index axis {k} moves several coordinates at once; the block would not be a box")
    new_splits = tuple((axis, q) for axis, q in ((axes[a], q) for a, q in splits) if isinstance(axis, int))
    return IndexProjection(AffineMap(tuple(rows), tuple(offset), rank + 2 * len(splits)), tuple(shape), new_splits)


def _split_columns(projection: IndexProjection, axes: Sequence[int | Range], rank: int) -> list[int | Range]:
    """The columns of quotients and remainders: new columns, or ranges."""
    columns: list[int | Range] = []
    kept, old_rank = 0, len(axes)
    for number, (axis, q) in enumerate(projection.splits):
        found = axes[axis]
        if isinstance(found, int):
            columns += [rank + 2 * kept, rank + 2 * kept + 1]
            kept += 1
            continue
        at = old_rank + 2 * number
        used = [any(row[at + k] for row in projection.map.matrix) for k in range(2)]
        columns += _split_range(found, q, all(used))
    return columns


def _split_range(found: Range, q: int, together: bool) -> tuple[Range, Range]:
    """The quotients and the remainders of a range; where both are used, each of these with each of those."""
    block, within = divmod(found.start, q)
    blocks = Range(block, (found.start + found.extent - 1) // q - block + 1)
    if blocks.extent == 1:
        return blocks, Range(within, found.extent)
    if found.extent < q or (together and (within or found.extent % q)):
        raise NotApplicable(f"{found.extent} index points from {found.start} on are not whole blocks of {q}")
    return blocks, Range(0, q)


def _solid(width: int, ranges: Sequence[tuple[int, int]], coordinate: int) -> int:
    """How many cells a block has that steps over some ranges make wider; NotApplicable where it has gaps."""
    for step, count in sorted(ranges):
        if count > 1 and step > width:
            raise NotApplicable(
                f"coordinate {quote(coordinate)} is read in steps of {step}, {width} wide: not without gaps"
            )
        width += step * (count - 1)
    return width


# -- parts -----------------------------------------------------------------------------------------------


def window(signature: Signature, operand: int, box: Box, shape: Shape) -> Box | None:
    """The block of an input that an index box reads, cut to the tensor; at least a cell, for padding beside it."""
    found = signature.input_box(operand, box)
    if found is None:
        return None
    start = tuple(min(max(a, 0), n - 1) for a, n in zip(found.start, shape, strict=True))
    stop = (min(max(b, a + 1), n) for a, b, n in zip(start, found.stop, shape, strict=True))
    return Box.from_bounds(start, tuple(stop))


class Whole(Struct, frozen=True):
    """The operator application that a part is part of, and the part's index box."""

    op: Op
    attrs: Attrs
    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    signature: Signature
    box: Box

    @classmethod
    def of_part(cls, op: Op, attrs: Attrs) -> Whole:
        """Read the attributes of a node of ``part(op)``."""
        core = core_attributes(op, attrs)
        require_attributes(attrs, PART_ATTRIBUTES[:-1])
        shapes = tuple(map(tuple, attrs["part.of"]))
        box = Box(tuple(attrs["part.start"]), tuple(attrs["part.shape"]))
        if "part.around" in attrs:
            core[AROUND] = attrs["part.around"]
        signature = signature_of(op, shapes, core)
        if not signature.index.contains(box) or box.is_empty:
            raise ValueError(f"the part {quote(box)} is not in the index space of shape {quote(signature.index_shape)}")
        return cls(op, core, shapes, tuple(attrs["part.dtypes"]), signature, box)

    def part(self, box: Box) -> dict[str, Any]:
        """The attributes of a part."""
        where = (box.start, box.shape, self.shapes, self.dtypes)
        around = {"part.around": self.attrs[AROUND]} if AROUND in self.attrs else {}
        core = core_attributes(self.op, self.attrs)
        return {**core, **dict(zip(PART_ATTRIBUTES, where, strict=False)), **around}

    def windows(self, box: Box | None = None) -> tuple[Box | None, ...]:
        """The blocks that a part reads, cut to the tensors; None for an input that it does not read."""
        box = box or self.box
        return tuple(window(self.signature, k, box, shape) for k, shape in enumerate(self.shapes))

    def outputs(self, box: Box | None = None) -> tuple[Box, ...]:
        """The blocks that a part writes."""
        found = (operand.projection.bounding_box(box or self.box) for operand in self.signature.outputs)
        return tuple(found)

    def local(self, windows: Sequence[Box | None] | None = None) -> Signature:
        """The part's own signature: index points, cells and blocks counted from their starts."""
        windows = self.windows() if windows is None else windows
        axes = tuple(replace(axis, size=n) for axis, n in zip(self.signature.axes, self.box.shape, strict=True))

        def moved(operands: Sequence[Operand], blocks: Sequence[Box | None]) -> tuple[Operand, ...]:
            return tuple(
                through(operand, partial(move_projection, box=self.box, origin=found.start))
                for operand, found in zip(operands, blocks, strict=True)
                if found is not None
            )

        return Signature(axes, moved(self.signature.inputs, windows), moved(self.signature.outputs, self.outputs()))

    def shard(self, local: Shard) -> Shard:
        """The shard that the operator's block function gets for a part of this part."""
        index = local.index.shift(self.box.start)
        inputs: list[Box | None] = []
        given = iter(local.input_boxes)
        for found in self.windows():
            box = None if found is None else next(given)
            inputs.append(None if box is None or found is None else box.shift(found.start))
        outs = zip(local.output_boxes, self.outputs(), strict=True)
        boxes = tuple(box.shift(found.start) for box, found in outs)
        return Shard(index, self.signature, self.attrs, tuple(inputs), boxes, local.workspace)

    def operands(self, inputs: Sequence[Any]) -> list[Any]:
        """The input blocks at the operator's own positions."""
        given = iter(inputs)
        return [None if found is None else next(given) for found in self.windows()]


def _check_windows(shapes: Sequence[Shape], windows: Sequence[Box | None]) -> Sequence[Box | None]:
    """The windows, if these are the shapes of those that are read."""
    wanted = [found.shape for found in windows if found is not None]
    if list(map(tuple, shapes)) != wanted:
        raise ValueError(f"the inputs have shapes {quote(list(shapes))}; the part reads blocks of {quote(wanted)}")
    return windows


def _read_dtypes(op: Op, dtypes: Sequence[str], attrs: Attrs) -> Sequence[str]:
    """The dtypes of all operands of the whole, if a part's operands have those of the ones that it reads."""
    told: Sequence[str] = attrs["part.dtypes"]
    windows = _known_part(op, attrs)[0]
    wanted = [dtype for dtype, found in zip(told, windows, strict=True) if found is not None]
    if list(dtypes) != wanted:
        raise ValueError(f"the inputs have dtypes {quote(list(dtypes))}; the part reads {quote(wanted)}")
    return told


@once_for_attributes
def _known_part(op: Op, attrs: Attrs) -> tuple[tuple[Box | None, ...], Signature]:
    """What a part reads and its signature, made once for all parts that are alike: a network's layers repeat."""
    whole = Whole.of_part(op, attrs)
    windows = whole.windows()
    return windows, whole.local(windows)


@lru_cache(maxsize=1024)
def part_of(op: Op) -> Derived:
    """The operator that does a part of another one's work, on the blocks of the inputs which that part reads.

    Its block function is the operator's own, and is told which part of the whole it computes. So a part of a mean, a
    pool or a generator is right whatever its block function needs to know of the whole.

    Examples
    --------
    >>> from tapestry_plan.ir import BUILTIN_OPS
    >>> part_of(BUILTIN_OPS["linear"]).name
    'part(linear)'
    """

    def signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
        windows, local = _known_part(op, attrs)
        _check_windows(shapes, windows)
        return local

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        whole = Whole.of_part(op, shard.attrs)
        op.block(xp, whole.operands(inputs), outputs, whole.shard(shard))

    def work(shard: Shard) -> Form | None:
        whole = Whole.of_part(op, shard.attrs)
        # A form numbers the operator's own operands, of which the part may lack some.
        return None if None in whole.windows() else op.form_of(whole.shard(shard))

    def flop(signature: Signature, attrs: Attrs) -> float:
        whole = Whole.of_part(op, attrs)
        return op.flop_per_point(whole.signature, whole.attrs)

    return derive_op(
        "part",
        [op],
        signature=signature,
        block=block,
        flop=flop,
        reduction=op.reduction,
        dtype=lambda dtypes, attrs: op.dtype(_read_dtypes(op, dtypes, attrs), core_attributes(op, attrs)),
        workspace=lambda shard, itemsize: op.workspace(Whole.of_part(op, shard.attrs).shard(shard), itemsize),
        attributes=(*op.attributes, *PART_ATTRIBUTES),
        work=work,
        passes=None if op.passes is None else lambda signature, attrs: op.count_passes(*_whole_of_part(op, attrs)),
    )


# -- states and merges -----------------------------------------------------------------------------------


def _monoid(op: Op) -> Monoid:
    if op.monoid is None:
        raise ValueError(f"{op.name} does not say how partial results merge; declare its reduction")
    return op.monoid


@lru_cache(maxsize=1024)
def state_of(op: Op) -> Derived:
    """The operator that makes the states of a part of a reduction, an output for each component."""
    monoid = _monoid(op)

    def signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
        whole = Whole.of_part(op, attrs)
        local = whole.local(_check_windows(shapes, whole.windows()))
        count = len(monoid.components(whole.dtypes[0]))
        return without_axes(local, [a.name for a in whole.signature.axes if a.kind == "reduction"], count)

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        whole = Whole.of_part(op, shard.attrs)
        states = make_empty(xp, outputs[0].shape, monoid.state_dtype(whole.dtypes[0]))
        box = with_whole(shard.index, shard.signature, whole.local())
        local = replace(shard, index=box, output_boxes=shard.output_boxes[:1])
        op.block(xp, whole.operands(inputs), [states], whole.shard(local))
        for out, component in zip(outputs, components_of(states), strict=True):
            out[...] = component

    def flop(signature: Signature, attrs: Attrs) -> float:
        whole = Whole.of_part(op, attrs)
        points = whole.box.size / signature.index.size
        return op.flop_per_point(whole.signature, whole.attrs) * points

    return derive_op(
        "state",
        [op],
        signature=signature,
        block=block,
        flop=flop,
        dtype=lambda dtypes, attrs: monoid.components(_read_dtypes(op, dtypes, attrs)[0]),
        attributes=(*op.attributes, *PART_ATTRIBUTES),
    )


def without_axes(signature: Signature, names: Sequence[str], outputs: int | None = None) -> Signature:
    """The signature without some index axes, whose points one index point takes all; its first output several times."""
    kept = [axis for axis in signature.axes if axis.name not in names]
    axes = [kept.index(axis) if axis in kept else Range(0, axis.size) for axis in signature.axes]

    def widened(operand: Operand) -> Operand:
        start = tuple(name for name in operand.at_start_of if name not in names)
        return replace(through(operand, lambda p: substitute_axes(p, axes, len(kept))), at_start_of=start)

    outs = signature.outputs if outputs is None else signature.outputs[:1] * outputs
    return Signature(tuple(kept), tuple(map(widened, signature.inputs)), tuple(map(widened, outs)))


def with_whole(box: Box, signature: Signature, full: Signature) -> Box:
    """An index box of a signature without some axes in the index space that has them."""
    spans = {axis.name: (a, n) for axis, a, n in zip(signature.axes, box.start, box.shape, strict=True)}
    found = [spans.get(axis.name, (0, axis.size)) for axis in full.axes]
    return Box(tuple(a for a, _ in found), tuple(n for _, n in found))


@lru_cache(maxsize=1024)
def merge_of(op: Op) -> Derived:
    """The operator that merges partial results of another one, in their order.

    With the attributes ``merge.dtype`` (of the operand that was reduced) it merges states, component after component,
    and with ``merge.result`` it unwraps the last one to that dtype.
    """
    monoid = _monoid(op)

    def count(attrs: Attrs) -> int:
        return 1 if monoid.is_plain else len(monoid.components(attrs["merge.dtype"]))

    def outputs_of(attrs: Attrs) -> int:
        return 1 if "merge.result" in attrs else count(attrs)

    def signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
        if not shapes or len(set(shapes)) != 1 or len(shapes) % count(attrs):
            raise ValueError(
                f"partial results of shapes {quote(list(shapes))} given; they must be whole states of one shape"
            )
        axes = number_axes(shapes[0])
        cell = Operand(project(axes, [{axis.name: 1} for axis in axes]))
        return Signature(axes, (cell,) * len(shapes), (cell,) * outputs_of(attrs))

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        width = count(shard.attrs)
        states = [tuple(inputs[k : k + width]) for k in range(0, len(inputs), width)]
        state = merge_states(monoid, xp, states)
        if not monoid.is_plain and "merge.result" in shard.attrs:
            state = (monoid.unwrap(xp, state, core_attributes(op, shard.attrs)),)
        for out, component in zip(outputs, state, strict=True):
            out[...] = component

    def dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
        if monoid.is_plain:
            return (dtypes[0],)
        state, told = monoid.components(attrs["merge.dtype"]), attrs.get("merge.result")
        if tuple(dtypes) != state * (len(dtypes) // len(state)):
            raise ValueError(f"the inputs have dtypes {quote(list(dtypes))}; they must be states of {quote(state)}")
        result = monoid.result(attrs["merge.dtype"])
        if told not in (None, result):
            raise ValueError(f"the attribute merge.result is {quote(told)}; {op.name} gives {result}")
        return state if told is None else (result,)

    def flop(signature: Signature, attrs: Attrs) -> float:
        return len(signature.inputs) / count(attrs) - 1

    attributes = (*op.attributes, *MERGE_ATTRIBUTES)
    return derive_op("merge", [op], signature=signature, block=block, flop=flop, dtype=dtype, attributes=attributes)


def _whole_of_part(op: Op, attrs: Attrs) -> tuple[Signature, Attrs]:
    whole = Whole.of_part(op, attrs)
    return whole.signature, whole.attrs


DERIVED.update(part=part_of, state=state_of, merge=merge_of)
