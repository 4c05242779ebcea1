"""Signatures: the index space of an operator and the projections of its operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise, product
from math import prod
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import tuning
from tapestry_plan.ir.pictures import Shown
from tapestry_sets.limits import (
    Public,
    check_arguments,
    check_fields,
    conform,
    cut_text,
    is_int,
    kind_of,
    list_names,
    quote,
    tell_count,
)
from tapestry_sets.regions import AffineMap, Box, DisjointRegions, IndexProjection

Shape = tuple[int, ...]
"""Extents of a tensor, the first axis first.

Examples
--------
>>> from math import prod
>>> from tapestry_plan import Graph, Shape
>>> def count_cells(shape: Shape) -> int:
...     return prod(shape)
>>> count_cells(Graph().input("x", (4, 6)).shape)
24
"""
Outside = Literal["forbid", "wrap", "from_end", "edge", "reflect", "symmetric"]
"""What an operand reads outside its tensor, where it declares no padding value."""

Coordinate = Any
"""A sympy expression or an int, the block's start; or a pair of it and the block's extent."""

LinearForm = Mapping[str, int]
"""A linear form over index axes, e.g. ``{"h": 2, "kh": 1, "": -3}`` for 2·h + kh − 3.

``"c//"`` and ``"c%"`` name the quotient and the remainder of a split axis ``c``."""


class Axis(Struct, frozen=True, metaclass=Public):
    """One axis of an index space.

    Parameters
    ----------
    name : str
        The field's name of the axis (``m n k``, ``n c h w``, ``ci kh kw``, ``i0 i1 …``).
    size : int
        Number of index points along the axis, at least 1.
    kind : "parallel" or "reduction"
        A parallel axis may be split freely; the parts of a reduction axis give partial results to merge.
    alias : str
        A second name that users may say, e.g. ``batch`` for the ``m`` of a linear operator.
    parts : "any", "equal" or "one"
        Into how many parts a plan may cut it: any number, as even as possible; numbers that divide its size; or none.

    Examples
    --------
    >>> from tapestry_plan import Axis
    >>> k = Axis("k", 6, "reduction")
    >>> k.may_have(4), k.may_have(7), Axis("g", 6, parts="equal").may_have(4)
    (True, False, False)
    """

    name: str
    size: int
    kind: Literal["parallel", "reduction"] = "parallel"
    alias: str = ""
    parts: Literal["any", "equal", "one"] = "any"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.size < 1:
            raise ValueError(f"Axis {quote(self.name)}: size is {self.size}; it must be at least 1")

    @check_arguments
    def may_have(self, parts: int) -> bool:
        """Whether a plan may cut the axis into so many parts.

        Examples
        --------
        >>> from tapestry_plan import Axis
        >>> Axis("g", 6, parts="equal").may_have(3), Axis("g", 6, parts="equal").may_have(4)
        (True, False)
        """
        if not 1 <= parts <= self.size:
            return False
        return parts == 1 or self.parts == "any" or (self.parts == "equal" and self.size % parts == 0)


class Operand(Struct, frozen=True, metaclass=Public):
    """How an operator reads or writes one tensor.

    Parameters
    ----------
    projection : IndexProjection
        From the index space to the tensor's coordinates.
    pad : float, optional
        The value read outside the tensor.
    at_start_of : tuple of str
        Reduction axes at whose beginning only the operand is read (the bias of a convolution: added once,
        by the part that starts the reduction).
    extents : tuple of int, optional
        The tensor's shape, for block functions that must know where it ends.
    also : tuple of IndexProjection
        Further projections through which an input is read: its region is the union, its block the box around.
    outside : Outside
        What is read outside the tensor, where no `pad` is declared: "forbid", an error, by default; "wrap", the
        tensor repeated; "from_end", as NumPy's negative indices; "edge", "reflect" and "symmetric", as `numpy.pad`.
    origin : tuple of int
        Coordinates of the tensor's first cell in the projection's space; zeros by default.

    Raises
    ------
    ValueError
        When ranks differ, an unknown policy is given, or both a policy and a padding value.

    Examples
    --------
    The butterfly reads two cells at a time, from both ends:

    >>> from sympy import symbols
    >>> from tapestry_plan import Operand
    >>> from tapestry_sets import Box
    >>> i = symbols("i", integer=True)
    >>> x = Operand.from_exprs([i], [i], [7 - i])
    >>> x.bounding_box(Box.of((2,))), x.image(Box.of((2,)), Box.of((8,))).size
    (Box(start=(0,), shape=(8,)), 4)
    """

    projection: IndexProjection
    pad: float | None = None
    at_start_of: tuple[str, ...] = ()
    extents: tuple[int, ...] | None = None
    also: tuple[IndexProjection, ...] = ()
    outside: Outside = "forbid"
    origin: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        rank = len(self.projection.shape)
        for k, more in enumerate(self.also):
            if (len(more.shape), more.index_rank) != (rank, self.projection.index_rank):
                raise ValueError(
                    f"Operand: projection {k + 1} goes from rank {more.index_rank} to rank {len(more.shape)}, "
                    f"projection 0 from rank {self.projection.index_rank} to rank {rank}; they must be equal"
                )
        if self.pad is not None and self.outside != "forbid":
            raise ValueError(f"Operand: pad={self.pad} and outside={quote(self.outside)} are two policies; declare one")
        if self.origin and len(self.origin) != rank:
            raise ValueError(
                f"Operand: origin {quote(self.origin)} has rank {len(self.origin)}, the projection rank {rank}"
            )

    @classmethod
    def from_exprs(cls, index: Sequence[Any], *reads: Sequence[Coordinate], **fields: Any) -> Operand:
        """An operand from sympy expressions of the index symbols.

        Parameters
        ----------
        index : sequence of sympy.Symbol
            The index axes, in order.
        *reads : sequence of Coordinate
            One list of coordinates for each projection: expressions, or pairs (expression, extent of the block).
        **fields
            Further fields of the operand, by name.
        """
        if not reads:
            raise ValueError("Operand.from_exprs: no projection is given; give a list of coordinates")
        made = []
        for coordinates in reads:
            pairs = [c if isinstance(c, tuple) else (c, 1) for c in coordinates]
            start, shape = [expr for expr, _ in pairs], [extent for _, extent in pairs]
            made.append(IndexProjection.from_exprs(index, start=start, shape=shape))
        return cls(made[0], also=tuple(made[1:]), **fields)

    @property
    def projections(self) -> tuple[IndexProjection, ...]:
        """All projections through which the operand is read."""
        return (self.projection, *self.also)

    @property
    def index_axes(self) -> frozenset[int]:
        """The index axes along which its cells are others."""
        out = set()
        for one in self.projections:
            columns = [*range(one.index_rank), *(axis for axis, _ in one.splits for _ in range(2))]  # c//q and c%q
            out |= {columns[k] for row in one.map.matrix for k, factor in enumerate(row) if factor}
        return frozenset(out)

    @check_arguments
    def bounding_box(self, box: Box) -> Box:
        """The smallest box around all that an index box, which must not be empty, touches."""
        bounds = self.projection.bounding_box(box)
        for more in self.also:
            bounds = bounds.hull(more.bounding_box(box))
        return bounds

    @check_arguments
    def image(self, box: Box, within: Box) -> DisjointRegions:
        """The exact cells of a tensor, which occupies the box `within`, that an index box touches.

        Raises
        ------
        ValueError
            When they are not a union of products.
        """
        return self.images([box], within)[0]

    @check_arguments
    def images(self, boxes: Sequence[Box], within: Box) -> list[DisjointRegions]:
        """The exact cells that each of many index boxes touches, as `image` has them."""
        found = _products(self.projection.images(boxes, within), boxes)
        for more in self.also:
            found = [a | b for a, b in zip(found, _products(more.images(boxes, within), boxes), strict=True)]
        return found


@check_arguments
def project(
    axes: Sequence[Axis],
    start: Sequence[LinearForm],
    shape: Sequence[int] | None = None,
    splits: Mapping[str, int] | None = None,
) -> IndexProjection:
    """An index projection from linear forms that name the axes.

    Parameters
    ----------
    axes : sequence of Axis
        The index space.
    start : sequence of LinearForm
        One linear form for each coordinate of the tensor; the key ``""`` is the constant.
    shape : sequence of int, optional
        Extents of the box at each index point; all ones by default.
    splits : mapping of str to int, optional
        Axis name to divisor q, for forms that use ``"c//"`` and ``"c%"``.

    Raises
    ------
    ValueError
        When a form names an axis that the index space lacks.

    Examples
    --------
    >>> from tapestry_plan import Axis, project
    >>> axes = (Axis("h", 4), Axis("kh", 3, "reduction"))
    >>> project(axes, [{"h": 2, "kh": 1, "": -1}])([1, 0]).start
    (1,)
    """
    if shape is not None and len(shape) != len(start):
        raise ValueError(f"project: shape has {len(shape)} extents, start {len(start)} coordinates; give one for each")
    split_items = tuple((splits or {}).items())
    columns = [axis.name for axis in axes]
    for name, _ in split_items:
        if name not in columns[: len(axes)]:
            raise ValueError(
                f"project: splits has {quote(name)}, which is not one of the axes; "
                + list_names(columns[: len(axes)], name, "axes")
            )
        columns += [f"{name}//", f"{name}%"]
    for coordinate, form in enumerate(start):
        unknown = [name for name in form if name and name not in columns]
        if unknown:
            raise ValueError(
                f"project: coordinate {quote(coordinate)} uses {quote(unknown[0])}, which is not one of the columns: "
                f"name an axis of the index space or declare a split; {list_names(columns, unknown[0], 'columns')}"
            )
    rows = tuple([tuple([form.get(name, 0) for name in columns]) for form in start])
    names = [axis.name for axis in axes]
    return IndexProjection(
        AffineMap(rows, tuple([form.get("", 0) for form in start]), len(columns)),
        tuple(shape) if shape is not None else (1,) * len(rows),
        tuple([(names.index(name), q) for name, q in split_items]),
    )


class Signature(Shown, Struct, frozen=True, dict=True, metaclass=Public):
    """An operator's index space and the projections of its operands.

    Which shards are possible, what each reads and writes, and what neighbors share follow from this alone.

    Parameters
    ----------
    axes : tuple of Axis
        The index space, in the order in which a mesh is laid over it.
    inputs, outputs : tuple of Operand
        One for each operand, in order.

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> from tapestry_sets import Box
    >>> g = Graph()
    >>> y = g.input("x", (8, 6)) @ g.input("w", (6, 4))
    >>> made = g.signature("matmul")
    >>> made
    Signature(m:8, n:4, k:6 summed; 2 inputs, 1 output)
    >>> made.input_box(1, Box((4, 0, 0), (4, 2, 6)))  # what the lower rows and the left columns read of w
    Box(start=(0, 0), shape=(6, 2))

    References
    ----------
    Tapestry, "Index Projection Functions": P(i) = box(start: A·i + b, shape: s).
    """

    axes: tuple[Axis, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]

    def __repr__(self) -> str:
        summed = {"reduction": " summed"}
        axes = ", ".join(f"{axis.name}:{axis.size}{summed.get(axis.kind, '')}" for axis in self.axes)
        return (
            f"Signature({cut_text(axes, 120) or 'one point'}; {tell_count(len(self.inputs), 'input')}, "
            f"{tell_count(len(self.outputs), 'output')})"
        )

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def from_exprs(
        cls,
        axes: Mapping[Any, int],
        inputs: Sequence[Sequence[Any] | Operand],
        outputs: Sequence[Sequence[Any] | Operand],
        reductions: Sequence[Any] = (),
    ) -> Signature:
        """A signature from sympy symbols.

        Parameters
        ----------
        axes : mapping of sympy.Symbol to int
            Index axes and their sizes, in order.
        inputs, outputs : sequence of operands
            An operand is a list of coordinates: expressions, or pairs (expression, extent of the block). A list of
            such lists is one operand that is read through several projections. What is declared beyond projections
            comes as an `Operand`, see `Operand.from_exprs`.
        reductions : sequence of sympy.Symbol
            Those of the axes that are reduced.

        Raises
        ------
        ValueError
            For expressions that are not affine in the axes, and reductions that are not axes.

        Examples
        --------
        Linear, of 8 rows, 4 outputs and 6 inputs, and a butterfly of 8 cells:

        >>> from sympy import symbols
        >>> from tapestry_plan import Signature
        >>> from tapestry_sets import Box
        >>> m, n, k = symbols("m n k", integer=True)
        >>> linear = Signature.from_exprs({m: 8, n: 4, k: 6}, [[m, k], [k, n]], [[m, n]], reductions=[k])
        >>> linear.validate([(8, 6), (6, 4)], [(8, 4)], "linear")
        >>> butterfly = Signature.from_exprs({m: 8}, [[[m], [7 - m]]], [[m]])
        >>> butterfly.input_region(0, Box.of((2,)), (8,)).size
        4
        """
        foreign = [symbol for symbol in reductions if symbol not in axes]
        if foreign:
            raise ValueError(
                f"from_exprs: the reduction {foreign[0]} is not one of the axes; {list_names(axes, foreign[0], 'axes')}"
            )
        index = list(axes)

        def read(operand: Sequence[Any] | Operand) -> Operand:
            if isinstance(operand, Operand):
                return operand
            several = bool(operand) and all(isinstance(one, list) for one in operand)
            return Operand.from_exprs(index, *(operand if several else (operand,)))

        made = tuple(
            Axis(str(symbol), size, "reduction" if symbol in reductions else "parallel")
            for symbol, size in axes.items()
        )
        return cls(made, tuple(map(read, inputs)), tuple(map(read, outputs)))

    @cached_property
    def index_shape(self) -> tuple[int, ...]:
        """Extents of the index space."""
        return tuple(axis.size for axis in self.axes)

    @cached_property
    def index(self) -> Box:
        """The whole index space as a box."""
        return Box.of(self.index_shape)

    @cached_property
    def reductions(self) -> tuple[int, ...]:
        """Positions of the reduction axes."""
        return tuple(k for k, axis in enumerate(self.axes) if axis.kind == "reduction")

    @cached_property
    def is_contraction(self) -> bool:
        """Whether the operator sums over an axis along which it reads several operands."""
        reads = [each.index_axes for each in self.inputs]
        return any(sum(axis in mine for mine in reads) > 1 for axis in self.reductions)

    def axis(self, name: str) -> int:
        """Position of the axis called `name`; ValueError when there is none.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> g = Graph()
        >>> _ = g.input("x", (8, 6)) @ g.input("w", (6, 4))
        >>> g.signature("matmul").axis("k")
        2
        """
        if type(name) is not str:
            name = conform(name, kind_of(str), "Signature.axis: name")
        for k, axis in enumerate(self.axes):
            if name in (axis.name, axis.alias):
                return k
        known = list_names([axis.name for axis in self.axes], name, "axes")
        raise ValueError(f"there is no index axis {quote(name)}; {known}")

    @check_arguments
    def boxes(self, parts: Mapping[str, int], what: str) -> Iterator[Box]:
        """Index boxes as even as possible, so many along each named axis, in row-major order; `what` begins errors.

        Raises
        ------
        ValueError
            For an unknown axis, and for less than one part or more parts than index points.
        """
        counts = [1] * len(self.axes)
        for name, count in parts.items():
            k = self.axis(name)
            size = self.axes[k].size
            if not is_int(count, 1, size):
                raise ValueError(
                    f"{what}: {count} parts of axis {quote(name)}, which has {size} index points; give a number from "
                    f"1 to {size}"
                )
            counts[k] = count
        cuts = (parts_of(axis.size, n) for axis, n in zip(self.axes, counts, strict=True))
        return (
            Box.from_bounds(tuple(lo for lo, _ in chosen), tuple(hi for _, hi in chosen)) for chosen in product(*cuts)
        )

    @check_arguments
    def starts(self, box: Box, names: tuple[str, ...]) -> bool:
        """Whether `box` begins at 0 along every axis of `names`."""
        return all(box.start[self.axis(name)] == 0 for name in names)

    @check_arguments
    def input_box(self, operand: int, box: Box) -> Box | None:
        """The block that the operator reads of an input for an index box; None when it reads nothing.

        It is the box around all that is read, and may reach outside the tensor where the operand declares a padding.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> from tapestry_sets import Box
        >>> g = Graph()
        >>> _ = g.input("x", (8, 6)) @ g.input("w", (6, 4))
        >>> g.signature("matmul").input_box(0, Box((4, 0, 0), (4, 2, 6)))
        Box(start=(4, 0), shape=(4, 6))
        """
        declared = _operand(self.inputs, operand, "input")
        if box.size == 0 or not self.starts(box, declared.at_start_of):
            return None
        return declared.bounding_box(box)

    @check_arguments
    def input_region(self, operand: int, box: Box, shape: tuple[int, ...] | Box) -> DisjointRegions:
        """The exact cells of an input that an index box reads.

        Parameters
        ----------
        operand : int
            Number of the input.
        box : Box
            Part of the index space.
        shape : tuple of int or Box
            The tensor's shape, or the box that it occupies, which may start anywhere.
        """
        return self.input_regions(operand, [box], shape)[0]

    @check_arguments
    def input_regions(self, operand: int, boxes: Sequence[Box], shape: tuple[int, ...] | Box) -> list[DisjointRegions]:
        """The exact cells of an input that each of many index boxes reads, as `input_region` has them."""
        declared, frame = _operand(self.inputs, operand, "input"), _frame(shape)
        names = declared.at_start_of
        reading = [box for box in boxes if box.size and self.starts(box, names)] if names else boxes
        try:
            images = declared.images(reading, frame)
        except ValueError as error:
            raise ValueError(f"input {operand}: {error}") from None
        if reading is boxes:
            return images
        left = iter(images)
        nothing = DisjointRegions(frame.shape, (), frame.start)
        return [next(left) if box.size and self.starts(box, names) else nothing for box in boxes]

    @check_arguments
    def input_shared(self, operand: int, one: Box, other: Box, shape: tuple[int, ...] | Box) -> DisjointRegions:
        """The exact cells of an input that two index boxes both read."""
        return self.input_region(operand, one, shape) & self.input_region(operand, other, shape)

    @check_arguments
    def output_regions(self, operand: int, boxes: Sequence[Box], shape: tuple[int, ...] | Box) -> list[DisjointRegions]:
        """The exact cells of an output that each of many index boxes writes."""
        declared = _operand(self.outputs, operand, "output")
        try:
            return declared.images(boxes, _frame(shape))
        except ValueError as error:
            raise ValueError(f"output {operand}: {error}") from None

    @check_arguments
    def reversed(self, name: str) -> Signature:
        """The signature that counts an index axis backwards: the same regions for the mirrored index.

        Raises
        ------
        ValueError
            For an unknown axis, one that an operand splits unevenly, and one at whose start only an operand is read.

        Examples
        --------
        >>> from tapestry_plan import Axis, Operand, Signature, project
        >>> from tapestry_sets import Box
        >>> axes = (Axis("h", 4),)
        >>> rows = Signature(axes, (Operand(project(axes, [{"h": 2, "": -1}], [3])),), ())
        >>> rows.reversed("h").input_box(0, Box((0,), (1,))) == rows.input_box(0, Box((3,), (1,)))
        True
        """
        k = self.axis(name)
        for number, operand in enumerate(self.inputs):
            if any(self.axis(axis) == k for axis in operand.at_start_of):
                raise ValueError(
                    f"reversed: input {number} is read at the start of {quote(name)} only, which would be its end; "
                    "reverse another axis"
                )

        def mirrored(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
            turned = [[p.reversed(k, self.axes[k].size) for p in operand.projections] for operand in operands]
            return tuple(
                replace(operand, projection=first, also=tuple(rest))
                for operand, (first, *rest) in zip(operands, turned, strict=True)
            )

        return Signature(self.axes, mirrored(self.inputs), mirrored(self.outputs))

    def check_coherence(self) -> None:
        """Check that neighboring index points touch neighboring blocks of every operand.

        Neighbors are points of the parallel axes, each with the whole of the reduction; their blocks are the boxes
        around what they touch, and neighbors where these overlap or adjoin. An operator may be valid and not
        coherent, as a pooling whose stride exceeds its window: its shards are exact, but not of solid regions.

        Raises
        ------
        ValueError
            Naming the operand, two index points and the blocks between which there is a gap.

        References
        ----------
        Tapestry, "Index Projection Functions": coherent index ranges map to coherent regions.
        """
        for role, operands in (("input", self.inputs), ("output", self.outputs)):
            for number, operand in enumerate(operands):
                for projection in operand.projections:
                    blocks = self._blocks(projection)
                    found = blocks.first_incoherence(self.index_shape)
                    if found is None:
                        continue
                    axis, point = found
                    following = tuple(x + (j == axis) for j, x in enumerate(point))
                    raise ValueError(
                        f"{role} {number}: the index points {quote(point)} and {quote(following)}, neighbors along "
                        f"axis {quote(self.axes[axis].name)}, touch {blocks(point)} and {blocks(following)}, which "
                        "leave a gap between them; coherent blocks overlap or adjoin"
                    )

    def _blocks(self, projection: IndexProjection) -> IndexProjection:
        """The projection from the parallel axes alone to the box around what a point touches over the reduction."""
        fixed = self._reduction_columns(projection)
        inner = Box.of(tuple(n if k in self.reductions else 1 for k, n in enumerate(self.index_shape)))
        around = projection.bounding_box(inner)
        matrix = tuple(tuple(0 if k in fixed else c for k, c in enumerate(row)) for row in projection.map.matrix)
        return IndexProjection(AffineMap(matrix, around.start, projection.map.in_rank), around.shape, projection.splits)

    @check_arguments
    def output_box(self, operand: int, box: Box) -> Box | None:
        """The block of an output that an index box writes, None for an empty index box.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> from tapestry_sets import Box
        >>> g = Graph()
        >>> _ = g.input("x", (8, 6)) @ g.input("w", (6, 4))
        >>> g.signature("matmul").output_box(0, Box((4, 0, 0), (4, 2, 6)))
        Box(start=(4, 0), shape=(4, 2))
        """
        return _operand(self.outputs, operand, "output").projection.bounding_box(box) if box.size else None

    @check_arguments
    def reads_where_it_writes(self, operand: int) -> bool:
        """Whether each index point reads of an input just the cells that it writes of the only output.

        Examples
        --------
        >>> from tapestry_plan import Graph, ops
        >>> g = Graph()
        >>> x = g.input("x", (1, 6))
        >>> _ = x + g.input("bias", (6,)), ops.softmax(x, name="shares")
        >>> [g.signature(name).reads_where_it_writes(0) for name in ("add", "shares")]
        [True, True]
        >>> g.signature("add").reads_where_it_writes(1)
        False
        """
        read, others = _operand(self.inputs, operand, "input"), self.outputs[1:]
        one, two = read.projection, self.outputs[0].projection
        if others or read.also or one.splits or two.splits or one.shape != two.shape:
            return one == two and not others and not read.also
        wide = [k for k, axis in enumerate(self.axes) if axis.size > 1]  # along others all points are at 0
        rows = ([[row[k] for k in wide] for row in each.map.matrix] for each in (one, two))
        return one.map.offset == two.map.offset and next(rows) == next(rows)

    @check_arguments
    def validate(
        self, input_shapes: Sequence[tuple[int, ...] | Box], output_shapes: Sequence[tuple[int, ...] | Box], what: str
    ) -> None:
        """Check the signature against the operands' shapes, or the boxes that they occupy.

        Raises
        ------
        ValueError
            When counts or ranks differ, an input is read outside its tensor without a padding, or an output
            is not written exactly once everywhere.
        """
        self._validate_axes(what)
        inputs, outputs = [_frame(shape) for shape in input_shapes], [_frame(shape) for shape in output_shapes]
        for role, operands, frames in (("input", self.inputs, inputs), ("output", self.outputs, outputs)):
            if len(operands) != len(frames):
                raise ValueError(f"{what}: {len(frames)} {role}s given, the signature has {len(operands)}")
            for k, (operand, frame) in enumerate(zip(operands, frames, strict=True)):
                projection = operand.projection
                if len(projection.shape) != frame.rank:
                    raise ValueError(
                        f"{what}: {role} {k} has shape {quote(frame.shape)}, rank {frame.rank}; "
                        f"its projection has rank {len(projection.shape)}"
                    )
                if projection.index_rank not in (-1, len(self.axes)):
                    raise ValueError(
                        f"{what}: the projection of {role} {k} takes index points of rank {projection.index_rank}; "
                        f"the index space has {len(self.axes)} axes"
                    )
        self._validate_inputs(inputs, what)
        self._validate_outputs(outputs, what)

    def _validate_axes(self, what: str) -> None:
        names = [name for axis in self.axes for name in dict.fromkeys((axis.name, axis.alias)) if name]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{what}: two index axes are called {quote(twice)}; give each axis names of its own")

    def _validate_inputs(self, frames: Sequence[Box], what: str) -> None:
        for k, (operand, frame) in enumerate(zip(self.inputs, frames, strict=True)):
            for name in operand.at_start_of:
                self.axis(name)
            box = operand.bounding_box(self.index)
            if operand.pad is None and operand.outside == "forbid" and not frame.contains(box):
                place = f"shape {frame.shape}" if not any(frame.start) else f"box {frame}"
                raise ValueError(
                    f"{what}: input {k} of {place} is read in {quote(box)}, outside the tensor; "
                    "declare a padding value or a policy, or a smaller index space"
                )

    def _validate_outputs(self, frames: Sequence[Box], what: str) -> None:
        parallel = prod(axis.size for axis in self.axes if axis.kind == "parallel")
        for k, (operand, frame) in enumerate(zip(self.outputs, frames, strict=True)):
            if operand.also or operand.outside != "forbid" or operand.pad is not None:
                raise ValueError(
                    f"{what}: output {k} has {len(operand.projections)} projections, "
                    f"outside={quote(operand.outside)} and "
                    f"pad={operand.pad}; an output is written through one projection and nowhere outside"
                )
            matrix = operand.projection.map.matrix
            if any(row[column] for row in matrix for column in self._reduction_columns(operand.projection)):
                raise ValueError(f"{what}: output {k} moves along a reduction axis; only parallel axes may")
            image = operand.projection.image(self.index, within=frame)
            cells = frame.size
            # As many (index point, cell) pairs as cells, and every cell reached: each is written exactly once.
            written = parallel * prod(operand.projection.shape)
            box = operand.projection.bounding_box(self.index)
            inside = frame.contains(box)
            if not isinstance(image, DisjointRegions) or image.size != cells or written != cells or not inside:
                raise ValueError(
                    f"{what}: output {k} of shape {quote(frame.shape)} [{quote(cells)} cells] is written "
                    f"{written} times in {quote(box)}, "
                    "but each cell must be written exactly once"
                )

    def _reduction_columns(self, projection: IndexProjection) -> list[int]:
        """Columns of a projection's matrix that move with a reduction axis, the parts of a split one included."""
        columns = list(self.reductions)
        for s, (axis, _) in enumerate(projection.splits):
            if axis in self.reductions:
                columns += [len(self.axes) + 2 * s, len(self.axes) + 2 * s + 1]
        return columns


def is_coarse(signature: Signature) -> bool:
    """Whether a point of the index space reads or writes several cells of a tensor, which no shard can part.

    Examples
    --------
    >>> from tapestry_plan.ir import BUILTIN_OPS
    >>> [is_coarse(BUILTIN_OPS[op].signature([(4, 6)], {})) for op in ("softmax", "relu", "sum")]
    [True, False, False]
    """
    operands = (*signature.inputs, *signature.outputs)
    return any(prod(projection.shape) > 1 for operand in operands for projection in operand.projections)


def _operand(operands: tuple[Operand, ...], number: int, role: str) -> Operand:
    if not 0 <= number < len(operands):
        raise ValueError(f"operand is {number}; the signature has {len(operands)} {role}s, numbered from 0")
    return operands[number]


@lru_cache(maxsize=tuning.KEPT_CUTS)
def parts_of(size: int, parts: int) -> tuple[tuple[int, int], ...]:
    """Cut [0, size) into parts as even as possible, larger ones first.

    Examples
    --------
    >>> parts_of(7, 3)
    ((0, 3), (3, 5), (5, 7))
    """
    base, extra = divmod(size, parts)
    cuts = [0]
    for k in range(parts):
        cuts.append(cuts[-1] + base + (k < extra))
    return tuple(pairwise(cuts))


def cells_of(box: Box, shape: tuple[int, ...] | Box) -> DisjointRegions:
    """The cells of `box` that lie in a tensor of the given shape, or that occupies the given box."""
    frame = _frame(shape)
    inside = box.intersect(frame)
    return DisjointRegions(frame.shape, () if inside is None else (inside.to_region(frame),), frame.start)


def _products(images: Sequence[Any], boxes: Sequence[Box]) -> list[DisjointRegions]:
    for image, box in zip(images, boxes, strict=True):
        if not isinstance(image, DisjointRegions):
            raise ValueError(
                f"the projection's image of {quote(box)} is not a union of products; "
                "give each coordinate of the projection index axes of its own"
            )
    return list(images)


def _frame(shape: Sequence[int] | Box) -> Box:
    return shape if isinstance(shape, Box) else Box.of(shape)
