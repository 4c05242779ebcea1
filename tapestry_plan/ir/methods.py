"""Methods of tensors under NumPy's names, and what tensors say where values are asked for that they have not yet."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn, Self

import numpy as np

from tapestry_sets.limits import describe, quote

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "matmul": operator.matmul,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "left_shift": operator.lshift,
    "right_shift": operator.rshift,
}
"""Python's operators by the names of NumPy's functions, which its numbers call for them: ``np.float32(2) * x``."""

AS_TENSOR = "give a tensor of the graph, as g.constant(name, array) makes, or a number"


class ArrayMethods:
    """NumPy's methods: each is the function of that name in the array API's namespace."""

    __slots__ = ()

    name: str

    @abstractmethod
    def __array_namespace__(self, api_version: str | None = None) -> ModuleType:
        """The functions of the array API standard."""

    def _fold(self, fold: str, axis: int | Sequence[int] | None, **more: Any) -> Self:
        return getattr(self.__array_namespace__(), fold)(self, axis, **more)  # type: ignore[no-any-return]

    def sum(self, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Self:
        """The sum over the given axes, or over all; short integers and truth values are widened first.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> x = Graph().input("x", (4, 6), "int8")
        >>> x.sum(axis=1), x.sum().shape
        (Tensor('sum', (4,), int64), ())
        """
        return self._fold("sum", axis, keepdims=keepdims)

    def prod(self, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Self:
        """The product over the given axes, or over all; short integers and truth values are widened first.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> Graph().input("x", (4, 6)).prod(axis=0)
        Tensor('prod', (6,), float32)
        """
        return self._fold("prod", axis, keepdims=keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Self:
        """The mean over the given axes, or over all.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> Graph().input("x", (4, 6)).mean(axis=(0, 1), keepdims=True)
        Tensor('mean', (1, 1), float32)
        """
        return self._fold("mean", axis, keepdims=keepdims)

    def max(self, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Self:
        """The maximum over the given axes, or over all.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> Graph().input("x", (4, 6)).max(axis=-1)
        Tensor('max', (4,), float32)
        """
        return self._fold("max", axis, keepdims=keepdims)

    def min(self, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Self:
        """The minimum over the given axes, or over all.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> Graph().input("x", (4, 6)).min(axis=-1)
        Tensor('min', (4,), float32)
        """
        return self._fold("min", axis, keepdims=keepdims)

    def any(self, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Self:
        """Whether any cell is true, over the given axes or all; of truth values.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> (Graph().input("x", (4, 6)) > 0).any(axis=0)
        Tensor('any', (6,), bool)
        """
        return self._fold("any", axis, keepdims=keepdims)

    def all(self, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Self:
        """Whether all cells are true, over the given axes or all; of truth values.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> (Graph().input("x", (4, 6)) > 0).all()
        Tensor('all', (), bool)
        """
        return self._fold("all", axis, keepdims=keepdims)

    def var(
        self,
        axis: int | Sequence[int] | None = None,
        *,
        correction: float = 0,
        keepdims: bool = False,
        ddof: float | None = None,
    ) -> Self:
        """The mean squared distance from the mean; the sum is divided by the count less `correction`, or `ddof`.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> Graph().input("x", (4, 6)).var(axis=1, correction=1)
        Tensor('var', (4,), float32)
        """
        return self._fold("var", axis, correction=correction if ddof is None else ddof, keepdims=keepdims)

    def std(
        self,
        axis: int | Sequence[int] | None = None,
        *,
        correction: float = 0,
        keepdims: bool = False,
        ddof: float | None = None,
    ) -> Self:
        """The square root of the variance; see `var`.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> Graph().input("x", (4, 6)).std(axis=1, ddof=1)
        Tensor('std', (4,), float32)
        """
        return self._fold("std", axis, correction=correction if ddof is None else ddof, keepdims=keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Self:
        """The index of the largest value along an axis, by default of the flattened tensor.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> Graph().input("scores", (4, 1000)).argmax(axis=1)
        Tensor('argmax', (4,), int64)
        """
        return self._fold("argmax", axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Self:
        """The index of the smallest value along an axis, by default of the flattened tensor.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> Graph().input("distances", (4, 1000)).argmin(axis=1)
        Tensor('argmin', (4,), int64)
        """
        return self._fold("argmin", axis, keepdims=keepdims)

    def astype(self, dtype: Any) -> Self:
        """The values under another dtype.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> Graph().input("x", (4, 6), "int8").astype("float32")
        Tensor('astype', (4, 6), float32)
        """
        return self.__array_namespace__().astype(self, dtype)  # type: ignore[no-any-return]

    def clip(self, min: Any = None, max: Any = None) -> Self:
        """The values, those below `min` and above `max` replaced by these.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> Graph().input("x", (4, 6)).clip(0, 6)
        Tensor('clip', (4, 6), float32)
        """
        return self.__array_namespace__().clip(self, min, max)  # type: ignore[no-any-return]

    def round(self) -> Self:
        """The nearest whole numbers, halves to even ones.

        Examples
        --------
        >>> from tapestry_plan import Graph
        >>> Graph().input("x", (4, 6)).round()
        Tensor('round', (4, 6), float32)
        """
        return self.__array_namespace__().round(self)  # type: ignore[no-any-return]

    # -- values, which there are none of before a run --

    def _no_value(self, what: str, mend: str) -> NoReturn:
        raise TypeError(f"{what}: tensor {quote(self.name)} has no values before a run; {mend}")

    def __float__(self) -> float:
        self._no_value("float()", "tapestry_exec.evaluate(graph, arrays) gives those of the graph's outputs")

    def __int__(self) -> int:
        self._no_value("int()", "tapestry_exec.evaluate(graph, arrays) gives those of the graph's outputs")

    def __complex__(self) -> complex:
        self._no_value("complex()", "tapestry_exec.evaluate(graph, arrays) gives those of the graph's outputs")

    def __contains__(self, value: object) -> bool:
        self._no_value("in", "compare in the graph, as in xp.equal(x, value).any()")

    def __setitem__(self, key: object, value: object) -> NoReturn:
        raise TypeError(
            f"tensor {quote(self.name)} is never changed, so its cells cannot be assigned to; make a new one, "
            "as xp.where(mask, value, x) or xp.concat([…]) with xp = x.__array_namespace__()"
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Python's operators with NumPy's numbers; any other use of NumPy's functions is a TypeError."""
        named = _OPERATORS.get(ufunc.__name__)
        if method != "__call__" or named is None or kwargs:
            self._no_numpy(ufunc.__name__)
        for x in inputs:
            if isinstance(x, np.ndarray) and x.ndim:  # handed to Python's operator it would come back here
                raise TypeError(f"{ufunc.__name__}: {describe(x)} stands beside tensor {quote(self.name)}; {AS_TENSOR}")
        return named(*[x.item() if isinstance(x, np.generic | np.ndarray) else x for x in inputs])

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        self._no_numpy(function.__name__)

    def _no_numpy(self, name: str) -> NoReturn:
        xp = self.__array_namespace__()
        mend = f"write xp.{name}" if hasattr(xp, name) else "take what is in xp"
        raise TypeError(
            f"np.{name} is given tensor {quote(self.name)}, which has no values before a run; {mend}, with "
            "xp = x.__array_namespace__(), on tensors, and NumPy on arrays"
        )
