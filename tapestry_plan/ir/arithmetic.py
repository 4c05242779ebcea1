"""Arithmetic: Python's operators on tensors of a graph, each of which adds an operator to the graph."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import NoReturn, Self

import numpy as np


class Arithmetic:
    """What a tensor is to Python's operators; a subclass says how an operator is added to its graph."""

    __slots__ = ()

    name: str

    @property
    def dtype(self) -> str:
        """NumPy's name of the dtype."""
        raise NotImplementedError

    def _call(self, op: str) -> Self:
        """An operator on this tensor alone."""
        raise NotImplementedError

    def _with(self, op: str, other: Self | float, swapped: bool = False) -> Self:
        """An operator on this tensor and another one, or a number, which becomes a constant of this dtype."""
        raise NotImplementedError

    def _all_or_nothing(self) -> AbstractContextManager[None]:
        """Take back what was added to the graph, if not all of it can be."""
        raise NotImplementedError

    def __add__(self, other: Self | float) -> Self:
        return self._with("add", other)

    def __radd__(self, other: float) -> Self:
        return self._with("add", other, swapped=True)

    def __sub__(self, other: Self | float) -> Self:
        return self._with("subtract", other)

    def __rsub__(self, other: float) -> Self:
        return self._with("subtract", other, swapped=True)

    def __mul__(self, other: Self | float) -> Self:
        return self._with("multiply", other)

    def __rmul__(self, other: float) -> Self:
        return self._with("multiply", other, swapped=True)

    def _need_fractions(self) -> None:
        """Raise ValueError unless the dtype is floating: quotients of whole numbers are rounded by `//`."""
        if np.dtype(self.dtype).kind != "f":
            raise ValueError(
                f"/: {self.name!r} is {self.dtype}; cast it to floating numbers, or divide whole ones by //"
            )

    def __truediv__(self, other: Self | float) -> Self:
        self._need_fractions()
        return self._with("divide", other)

    def __rtruediv__(self, other: float) -> Self:
        self._need_fractions()
        return self._with("divide", other, swapped=True)

    def __floordiv__(self, other: Self | float) -> Self:
        """The quotient rounded down, as Python has it: what is left is `%`."""
        with self._all_or_nothing():
            whole = (self - self % other)._with("divide", other)
            return whole._call("round") if np.dtype(self.dtype).kind == "f" else whole

    def __neg__(self) -> Self:
        return self._call("negative")

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self._call("abs")

    def __pow__(self, other: Self | float) -> Self:
        return self._with("pow", other)

    def __rpow__(self, other: float) -> Self:
        return self._with("pow", other, swapped=True)

    def __mod__(self, other: Self | float) -> Self:
        return self._with("remainder", other)

    def __rmod__(self, other: float) -> Self:
        return self._with("remainder", other, swapped=True)

    def __lt__(self, other: Self | float) -> Self:
        return self._with("less", other)

    def __le__(self, other: Self | float) -> Self:
        return self._with("less_equal", other)

    def __gt__(self, other: Self | float) -> Self:
        return self._with("greater", other)

    def __ge__(self, other: Self | float) -> Self:
        return self._with("greater_equal", other)

    def _bits(self, name: str, other: Self | float, swapped: bool = False) -> Self:
        """A word for bits: of truth values the logical one."""
        return self._with(f"{'logical' if self.dtype == 'bool' else 'bitwise'}_{name}", other, swapped)

    def __and__(self, other: Self | float) -> Self:
        return self._bits("and", other)

    def __rand__(self, other: float) -> Self:
        return self._bits("and", other, swapped=True)

    def __or__(self, other: Self | float) -> Self:
        return self._bits("or", other)

    def __ror__(self, other: float) -> Self:
        return self._bits("or", other, swapped=True)

    def __xor__(self, other: Self | float) -> Self:
        return self._bits("xor", other)

    def __rxor__(self, other: float) -> Self:
        return self._bits("xor", other, swapped=True)

    def __invert__(self) -> Self:
        return self._call("logical_not" if self.dtype == "bool" else "bitwise_invert")

    def __lshift__(self, other: Self | float) -> Self:
        return self._with("bitwise_left_shift", other)

    def __rshift__(self, other: Self | float) -> Self:
        return self._with("bitwise_right_shift", other)

    def __matmul__(self, other: Self) -> Self:
        return self._with("matmul", other)

    def __bool__(self) -> NoReturn:
        raise TypeError(f"tensor {self.name!r} has no truth value before a run; compare in the graph, with where()")
