"""Tensors of a graph as programs handle them: arithmetic adds operators, indexing adds selections."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from tapestry_plan.ir.arithmetic import Arithmetic
from tapestry_plan.ir.methods import AS_TENSOR, ArrayMethods
from tapestry_plan.ir.pictures import Shown
from tapestry_plan.ir.signature import Shape
from tapestry_plan.ir.tensors import Selection, Stored
from tapestry_sets.limits import Public, check_arguments, check_cell, cut_text, describe, quote
from tapestry_sets.views import Concat, Viewable, ViewKind

if TYPE_CHECKING:
    from tapestry_plan.ir.graph import Graph


class Tensor(Arithmetic, ArrayMethods, Viewable, Shown, Struct, frozen=True, metaclass=Public):
    """A tensor of a graph, stored or viewed; arithmetic adds operators, indexing adds selections.

    They come from a graph (`Graph.input`, `Graph.constant`) and from operators on tensors. They have a shape and a
    dtype, but no values before a run.

    Parameters
    ----------
    graph : Graph
    name : str

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> g = Graph()
    >>> x = g.input("x", (4, 6))
    >>> y = (x[:, ::2] + 1.0).sum(axis=1)
    >>> y, list(g.nodes), list(g.selections)
    (Tensor('sum', (4,), float32), ['add', 'sum'], ['slice'])
    """

    graph: Graph
    name: str

    def __repr__(self) -> str:
        return f"Tensor({cut_text(quote(self.name), 80)}, {cut_text(quote(self.shape), 80)}, {self.dtype})"

    def __eq__(self, other: object) -> bool:
        """Whether two tensors are the same one of a graph; a graph has no values that could be compared.

        Raises
        ------
        TypeError
            For a number: NumPy would compare the elements, which the function `equal` does.
        """
        if isinstance(other, bool | int | float | complex | np.generic):
            raise TypeError(
                f"tensor {quote(self.name)} has no values before a run, and == or != with {quote(other)} compares "
                "none; write xp.equal(x, y) or xp.not_equal(x, y) for tensors of truth values, with "
                "xp = x.__array_namespace__()"
            )
        if not isinstance(other, Tensor):
            return NotImplemented
        return self.graph is other.graph and self.name == other.name

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((id(self.graph), self.name))

    @property
    def shape(self) -> Shape:
        """Extents.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> Graph().input("x", (4, 6)).T.shape
        (6, 4)
        """
        return self._entry.shape

    @property
    def dtype(self) -> str:
        """NumPy's name of the dtype.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> x = Graph().input("x", (4, 6), "int8")
        >>> x.dtype, x.sum().dtype, (x > 2).dtype
        ('int8', 'int64', 'bool')
        """
        return self._entry.dtype

    @property
    def _entry(self) -> Selection | Stored:
        return self.graph.selections.get(self.name) or self.graph.stored[self.name]

    def __getitem__(self, key: Any) -> Tensor:
        """As of any view: integers, slices, Ellipsis, None and at most one array, but no tensor, which has no values.

        Raises
        ------
        TypeError
            For a tensor as an index, and where there are two arrays.
        """
        for one in key if isinstance(key, tuple) else (key,):
            if isinstance(one, Tensor):
                raise TypeError(
                    f"the index of tensor {quote(self.name)} is tensor {quote(one.name)}, which has no values before "
                    "a run; write xp.where(mask, x, other), or xp.take(x, indices), with xp = x.__array_namespace__()"
                )
        return super().__getitem__(key)

    def _call(self, op: str) -> Tensor:
        return self.graph.op(op, self)  # type: ignore[no-any-return]

    def _with(self, op: str, other: Tensor | float, swapped: bool = False) -> Tensor:
        """An operator on this tensor and another one, or a number, which becomes a constant of this dtype."""
        if not isinstance(other, Tensor):
            with self._all_or_nothing():
                return self._with(op, self._number(op, other, is_first=swapped), swapped)
        operands = (other, self) if swapped else (self, other)
        return self.graph.op(op, *operands)  # type: ignore[no-any-return]

    def _number(self, op: str, number: float, is_first: bool = False) -> Tensor:
        """A number, the first or second operand beside this tensor, as a constant of this tensor's dtype."""
        if isinstance(number, np.ndarray) and not number.ndim:
            number = number[()]  # an array of rank 0 is a number
        if not isinstance(number, int | float | np.integer | np.floating | np.bool_):
            raise TypeError(f"{op}: {describe(number)} stands beside tensor {quote(self.name)}; {AS_TENSOR}")
        if isinstance(number, bool | np.bool_) and self.dtype != "bool":  # as == of tensors gives, or a slip
            raise TypeError(
                f"{op}: {quote(number)} stands beside tensor {quote(self.name)} of {self.dtype}, and truth values go "
                "with tensors of truth values alone, as in the array API; write 1 or 0, or where(mask, x, other) with "
                "a mask made by equal(x, y) or x < y"
            )
        check_cell(number, np.dtype(self.dtype), f"{op}:")
        if op == "pow" and not is_first and number < 0 and np.dtype(self.dtype).kind == "i":
            raise ValueError(
                f"pow: {quote(number)} is a negative power of {self.dtype}, which no integers are; cast tensor "
                f"{quote(self.name)} to a floating dtype"
            )
        return self.graph.constant(self.graph._fresh("number"), np.asarray(number, self.dtype))

    @property
    def device(self) -> Graph:
        """The graph, which is the device in the array API's words.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> g = Graph()
        >>> x = g.input("x", (4, 6))
        >>> x.__array_namespace__().ones((2, 3), device=x.device).graph is g
        True
        """
        return self.graph

    def __array_namespace__(self, api_version: str | None = None) -> ModuleType:
        """The functions of the array API standard, for tensors of graphs."""
        if api_version not in (None, "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"__array_namespace__: version {quote(api_version)} is not known; 2024.12 is")
        return sys.modules["tapestry_plan.ops.array_api"]

    def _all_or_nothing(self) -> AbstractContextManager[None]:
        return self.graph._all_or_nothing()

    @check_arguments
    def apply(self, kind: ViewKind, *others: Tensor) -> Tensor:
        """This tensor, and others beside it, through a view kind, as a selection.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> from tapestry_sets.views import Flip
        >>> Graph().input("x", (4, 6)).apply(Flip((0,)))
        Tensor('flip', (4, 6), float32)
        """
        return self.graph.select(kind, self, *others)

    @check_arguments
    def view(self, kind: ViewKind, *others: Tensor, name: str | None = None) -> Tensor:
        """As `apply`, with a name.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> from tapestry_sets.views import Flip
        >>> Graph().input("x", (4, 6)).view(Flip((0,)), name="upside down")
        Tensor('upside down', (4, 6), float32)
        """
        return self.graph.select(kind, self, *others, name=name)


@check_arguments
def concat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors one after another along an axis, as a view: nothing is copied before an operator reads it.

    Parameters
    ----------
    tensors : sequence of Tensor
        Of one graph and dtype, and of one shape but for the axis.
    axis : int

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If there is none, or shapes or dtypes do not fit.

    Examples
    --------
    >>> from tapestry_plan import Graph, concat
    >>> g = Graph()
    >>> both = concat([g.input("x", (4, 6)), g.input("y", (4, 2))], axis=1)
    >>> both.shape, len(g.nodes)
    ((4, 8), 0)

    References
    ----------
    ONNX Concat; Array API concat.
    """
    if not tensors:
        raise ValueError("concat: no tensors given; give at least one")
    return tensors[0].graph.select(Concat(axis), *tensors)
