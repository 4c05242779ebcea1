"""Signatures: the index space of an operator and the projections of its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import prod
from typing import Literal

from tapestry_sets import AffineMap, Box, IndexProjection, Region, Regions

Form = Mapping[str, int]
"""A linear form over index axes, e.g. ``{"h": 2, "kh": 1, "": -3}`` for 2·h + kh − 3.

``"c//"`` and ``"c%"`` name the quotient and the remainder of a split axis ``c``."""


@dataclass(frozen=True, slots=True)
class Axis:
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
    """

    name: str
    size: int
    kind: Literal["parallel", "reduction"] = "parallel"
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Operand:
    """How an operator reads or writes one tensor.

    Parameters
    ----------
    projection : IndexProjection
        From the index space to the tensor's coordinates.
    pad : float, optional
        The value read outside the tensor. Without it, reading outside is an error.
    at_start_of : tuple of str
        Reduction axes at whose beginning only the operand is read (the bias of a convolution: added once,
        by the part that starts the reduction).
    extents : tuple of int, optional
        The tensor's shape, for block functions that must know where it ends.
    """

    projection: IndexProjection
    pad: float | None = None
    at_start_of: tuple[str, ...] = ()
    extents: tuple[int, ...] | None = None


def project(
    axes: Sequence[Axis],
    start: Sequence[Form],
    shape: Sequence[int] | None = None,
    splits: Mapping[str, int] | None = None,
) -> IndexProjection:
    """An index projection from linear forms that name the axes.

    Parameters
    ----------
    axes : sequence of Axis
        The index space.
    start : sequence of Form
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
    >>> axes = (Axis("h", 4), Axis("kh", 3, "reduction"))
    >>> project(axes, [{"h": 2, "kh": 1, "": -1}])([1, 0]).start
    (1,)
    """
    split_items = tuple((splits or {}).items())
    columns = [axis.name for axis in axes]
    for name, _ in split_items:
        columns += [f"{name}//", f"{name}%"]
    position = {name: k for k, name in enumerate(columns)}
    rows = []
    offset = []
    for coordinate, form in enumerate(start):
        unknown = [name for name in form if name and name not in position]
        if unknown:
            raise ValueError(
                f"project: coordinate {coordinate} uses {unknown[0]!r}, which is none of the columns "
                f"{columns}; name an axis of the index space or declare a split"
            )
        row = [0] * len(columns)
        for name, coefficient in form.items():
            if name:
                row[position[name]] = coefficient
        rows.append(tuple(row))
        offset.append(form.get("", 0))
    names = [axis.name for axis in axes]
    return IndexProjection(
        AffineMap(tuple(rows), tuple(offset)),
        tuple(shape) if shape is not None else (1,) * len(rows),
        tuple((names.index(name), q) for name, q in split_items),
    )


@dataclass(frozen=True)
class Signature:
    """What an operator touches: its index space and the projections of its operands.

    Which shards are possible, what each reads and writes, and what neighbours share follow from this alone.

    Parameters
    ----------
    axes : tuple of Axis
        The index space, in the order in which a mesh is laid over it.
    inputs, outputs : tuple of Operand
        One for each operand, in order.

    References
    ----------
    Tapestry, "Index Projection Functions": P(i) = box(start: A·i + b, shape: s).
    """

    axes: tuple[Axis, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]

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

    def axis(self, name: str) -> int:
        """Position of the axis called `name`; ValueError when there is none."""
        for k, axis in enumerate(self.axes):
            if name in (axis.name, axis.alias):
                return k
        raise ValueError(f"there is no index axis {name!r}; the axes are {[a.name for a in self.axes]}")

    def starts(self, box: Box, names: tuple[str, ...]) -> bool:
        """Whether `box` begins at 0 along every axis of `names`."""
        return all(box.start[self.axis(name)] == 0 for name in names)

    def input_box(self, operand: int, box: Box) -> Box | None:
        """The block that the operator reads of an input for an index box; None when it reads nothing.

        The block may reach outside the tensor where the operand declares a padding.
        """
        declared = self.inputs[operand]
        if box.size == 0 or not self.starts(box, declared.at_start_of):
            return None
        return declared.projection.bounding_box(box)

    def input_region(self, operand: int, box: Box, shape: tuple[int, ...]) -> Regions:
        """The exact cells of an input, a tensor of the given shape, that an index box reads."""
        declared = self.inputs[operand]
        if box.size == 0 or not self.starts(box, declared.at_start_of):
            return Regions(shape)
        image = declared.projection.image(box, within=shape)
        if not isinstance(image, Regions):
            raise ValueError(
                f"input {operand}: the projection's image of {box} is no union of products; "
                "give each coordinate of the projection index axes of its own"
            )
        return image

    def output_box(self, operand: int, box: Box) -> Box | None:
        """The block of an output that an index box writes, None for an empty index box."""
        return self.outputs[operand].projection.bounding_box(box) if box.size else None

    def validate(
        self, input_shapes: Sequence[tuple[int, ...]], output_shapes: Sequence[tuple[int, ...]], what: str
    ) -> None:
        """Check the signature against the operands' shapes.

        Raises
        ------
        ValueError
            When counts or ranks differ, an input is read outside its tensor without a padding, or an output
            is not written exactly once everywhere.
        """
        for role, operands, shapes in (
            ("input", self.inputs, input_shapes),
            ("output", self.outputs, output_shapes),
        ):
            if len(operands) != len(shapes):
                raise ValueError(f"{what}: {len(shapes)} {role}s given, the signature has {len(operands)}")
            for k, (operand, shape) in enumerate(zip(operands, shapes, strict=True)):
                if len(operand.projection.shape) != len(shape):
                    raise ValueError(
                        f"{what}: {role} {k} has shape {shape}, rank {len(shape)}; "
                        f"its projection has rank {len(operand.projection.shape)}"
                    )
        self._validate_inputs(input_shapes, what)
        self._validate_outputs(output_shapes, what)

    def _validate_inputs(self, shapes: Sequence[tuple[int, ...]], what: str) -> None:
        for k, (operand, shape) in enumerate(zip(self.inputs, shapes, strict=True)):
            box = operand.projection.bounding_box(self.index)
            if operand.pad is None and not Box.of(shape).contains(box):
                raise ValueError(
                    f"{what}: input {k} of shape {shape} is read in {box}, outside the tensor; "
                    "declare a padding value or a smaller index space"
                )

    def _validate_outputs(self, shapes: Sequence[tuple[int, ...]], what: str) -> None:
        parallel = prod(axis.size for axis in self.axes if axis.kind == "parallel")
        for k, (operand, shape) in enumerate(zip(self.outputs, shapes, strict=True)):
            matrix = operand.projection.map.matrix
            if any(row[axis] for row in matrix for axis in self.reductions):
                raise ValueError(f"{what}: output {k} moves along a reduction axis; only parallel axes may")
            image = operand.projection.image(self.index, within=shape)
            cells = prod(shape)
            # As many (index point, cell) pairs as cells, and every cell reached: each is written exactly once.
            written = parallel * prod(operand.projection.shape)
            box = operand.projection.bounding_box(self.index)
            inside = Box.of(shape).contains(box)
            if not isinstance(image, Regions) or image.size != cells or written != cells or not inside:
                raise ValueError(
                    f"{what}: output {k} of shape {shape} [{cells} cells] is written {written} times in {box}, "
                    "but each cell must be written exactly once"
                )


@lru_cache(maxsize=65_536)
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


def cells_of(box: Box, shape: tuple[int, ...]) -> Regions:
    """The cells of `box` that lie in a tensor of the given shape."""
    inside = box.intersect(Box.of(shape))
    return Regions(shape) if inside is None else Regions(shape, (inside.to_region(shape),))


def whole_of(shape: tuple[int, ...]) -> Regions:
    """Every cell of a tensor of the given shape."""
    return Regions(shape, (Region.full(shape),))
