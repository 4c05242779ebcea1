"""The parts of a graph: stored tensors, operators applied to them, and selections, which are never stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from tapestry_plan.ir.signature import Shape
from tapestry_sets.limits import FrozenDict, as_ints, hide_fields, quote
from tapestry_sets.views import Piece, identity_piece

Attrs = Mapping[str, Any]
"""Attributes of an operator, by name.

Examples
--------
>>> from tapestry_plan import Attrs, Graph
>>> def tell_axis(attrs: Attrs) -> str:
...     return f"along axis {attrs['axis']}"
>>> g = Graph()
>>> y = g.op("softmax", g.input("x", (4, 6)), axis=0)
>>> tell_axis(g.nodes["softmax"].attrs)
'along axis 0'
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor that has memory: a graph input, a constant, or an operator's output."""

    name: str
    shape: Shape
    dtype: str
    kind: Literal["input", "constant", "result"]
    data: NDArray[Any] | None = field(default=None, repr=False, compare=False)
    path: str | None = None
    sha256: str | None = None

    @property
    def itemsize(self) -> int:
        """Bytes of one cell."""
        return np.dtype(self.dtype).itemsize


class Unread(Struct, frozen=True):
    """An input of a model that its graph does not read: what a run is given for it is checked and put aside.

    Parameters
    ----------
    shape : tuple of int or None, optional
        None for an axis of any extent; without it, of any rank.
    dtype : str, optional
        Without it, any.
    sha256 : str, optional
        Of the cells in row-major order, where the value was known when the graph was made, which depends on it.
    """

    shape: tuple[int | None, ...] | None = None
    dtype: str | None = None
    sha256: str | None = None


class FoldedNodes(Struct, frozen=True):
    """What was computed when a model was read, by the one process that read it: no plan has its time, nor cuts it.

    Parameters
    ----------
    nodes : int
        Of the model, or that stand for some of it: all that they read was known. Constants, and those that only ask
        for a shape, are not among them.
    nbytes : int
        Of the graph's constants that these made.
    """

    nodes: int
    nbytes: int


class OpNode(Struct, frozen=True):
    """An operator applied to tensors."""

    name: str
    op: str
    attrs: Attrs
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        force_setattr(self, "attrs", FrozenDict(self.attrs))


class Selection(Struct, frozen=True):
    """A view between operators, in the normal form: it has neither placement nor memory."""

    name: str
    label: str
    inputs: tuple[str, ...]
    shape: Shape
    dtype: str
    pieces: tuple[Piece, ...]

    __repr__ = hide_fields("pieces")

    @property
    def outputs(self) -> tuple[str, ...]:
        """The tensors that it makes, as of an operator: the view."""
        return (self.name,)


class Source(Struct, frozen=True, dict=True):
    """A tensor read through a chain of selections: pieces over the stored tensors."""

    shape: Shape
    dtype: str
    stored: tuple[str, ...]
    pieces: tuple[Piece, ...]
    stored_shapes: tuple[Shape, ...]

    @cached_property
    def direct(self) -> bool:
        """Whether the tensor is the stored one itself, not just the beginning of it."""
        return self.stored_shapes == (self.shape,) and self.pieces == (identity_piece(len(self.shape)),)


def sha256_of(array: Any) -> str:
    """SHA-256 of an array's cells in row-major order."""
    import hashlib  # OpenSSL, loaded with the first constant, not with the package

    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def check_shape(shape: Sequence[int], what: str) -> Shape:
    found = as_ints(shape, f"{what}: shape")
    for axis, n in enumerate(found):
        if n < 1:
            mend = "" if n else ": leave a tensor out that has no cells"
            raise ValueError(f"{what}: axis {axis} of shape {quote(found)} is {n}; extents are at least 1{mend}")
    return found


_KINDS = {"S": "of bytes", "U": "of texts", "M": "of dates", "m": "of durations", "V": "of records or raw bytes"}


SHORT_FLOATS = frozenset(
    {
        "bfloat16",
        "float4_e2m1fn",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    }
)
SHORT_DTYPES = SHORT_FLOATS | {"int2", "int4", "uint2", "uint4"}
"""Dtypes of the package ml_dtypes: operators move them and cast them, and compute with none of them."""


def check_dtype(name: Any, where: str = "") -> str:
    """Return NumPy's name of a dtype; None, which NumPy takes for float64, is refused. `where` begins the error."""
    if isinstance(name, str) and name in SHORT_DTYPES:
        _need_ml_dtypes(name, where)
    try:
        dtype = None if name is None else np.dtype(name)
    except (TypeError, ValueError):
        dtype = None
    if dtype is not None and dtype.name in SHORT_DTYPES:
        return str(dtype.name)
    if dtype is None or not dtype.itemsize:
        raise ValueError(f"{where}dtype {quote(name)} is not a dtype of NumPy; give one such as 'float32'")
    if dtype.hasobject:
        raise ValueError(f"{where}dtype {quote(name)} holds objects; give numbers or booleans")
    if dtype.kind not in "biufc":
        raise ValueError(f"{where}dtype {quote(name)} is {_KINDS[dtype.kind]}; give numbers or booleans")
    return str(dtype.name)


def _need_ml_dtypes(name: str, where: str) -> None:
    """Import the package that tells NumPy its dtypes."""
    try:
        import ml_dtypes  # noqa: F401
    except ImportError:
        raise ValueError(f"{where}dtype {quote(name)} is of the package ml_dtypes, which is not installed") from None
