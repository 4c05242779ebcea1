"""Arithmetic: Python's operators on tensors of a graph, each of which adds an operator to the graph."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Self, TypeVar

import numpy as np

from tapestry_sets.limits import quote

T = TypeVar("T", bound="Arithmetic")
Name = str | Callable[[Any], str]
"""The operator's name, or how it follows from the tensor."""


def _forth(name: Name) -> Callable[[T, T | float], T]:
    """Python's operator on a tensor and another one, or a number."""

    def method(self: T, other: T | float) -> T:
        return self._with(name if isinstance(name, str) else name(self), other)

    return method


def _back(name: Name) -> Callable[[T, float], T]:
    """Python's operator on a number and a tensor."""

    def method(self: T, other: float) -> T:
        return self._with(name if isinstance(name, str) else name(self), other, swapped=True)

    return method


def _quotient(x: Arithmetic) -> str:
    x._need_fractions()
    return "divide"


def _of_bits(word: str) -> Callable[[Arithmetic], str]:
    """A word for bits: of truth values the logical one."""
    return lambda x: f"{'logical' if x.dtype == 'bool' else 'bitwise'}_{word}"


class Arithmetic:
    """Python's operators on tensors; a subclass says how an operator is added to its graph."""

    __slots__ = ()

    name: str

    @property
    @abstractmethod
    def dtype(self) -> str:
        """NumPy's name of the dtype."""

    @abstractmethod
    def _call(self, op: str) -> Self:
        """An operator on this tensor alone."""

    @abstractmethod
    def _with(self, op: str, other: Self | float, swapped: bool = False) -> Self:
        """An operator on this tensor and another one, or a number, which becomes a constant of this dtype."""

    @abstractmethod
    def _number(self, op: str, number: float) -> Self:
        """A number, an operand of an operator beside this tensor, as a constant of this tensor's dtype."""

    @abstractmethod
    def _all_or_nothing(self) -> AbstractContextManager[None]:
        """Take back what was added to the graph, if not all of it can be."""

    def _need_fractions(self) -> None:
        """Raise ValueError unless the dtype is floating: quotients of whole numbers are rounded by `//`."""
        if np.dtype(self.dtype).kind != "f":
            raise ValueError(
                f"/: {quote(self.name)} is {self.dtype}; cast it to floating numbers, or divide whole ones by //"
            )

    __add__, __radd__ = _forth("add"), _back("add")
    __sub__, __rsub__ = _forth("subtract"), _back("subtract")
    __mul__, __rmul__ = _forth("multiply"), _back("multiply")
    __truediv__, __rtruediv__ = _forth(_quotient), _back(_quotient)
    __pow__, __rpow__ = _forth("pow"), _back("pow")
    __mod__, __rmod__ = _forth("remainder"), _back("remainder")
    __and__, __rand__ = _forth(_of_bits("and")), _back(_of_bits("and"))
    __or__, __ror__ = _forth(_of_bits("or")), _back(_of_bits("or"))
    __xor__, __rxor__ = _forth(_of_bits("xor")), _back(_of_bits("xor"))
    __lshift__, __rlshift__ = _forth("bitwise_left_shift"), _back("bitwise_left_shift")
    __rshift__, __rrshift__ = _forth("bitwise_right_shift"), _back("bitwise_right_shift")
    __matmul__ = _forth("matmul")
    __lt__ = _forth("less")
    __le__ = _forth("less_equal")
    __gt__ = _forth("greater")
    __ge__ = _forth("greater_equal")

    def __floordiv__(self, other: Self | float) -> Self:
        """The quotient rounded down, as Python has it, beside the remainder `%`.

        It is NaN where the divisor is a floating number that is 0 or infinite.
        """
        if isinstance(other, int | float | np.number) and (other == 0 or abs(other) == math.inf):
            raise ValueError(f"//: the divisor is {other}; give a finite number other than 0")
        with self._all_or_nothing():
            whole = (self - self % other)._with("divide", other)
            return whole._call("round") if np.dtype(self.dtype).kind == "f" else whole

    def __rfloordiv__(self, other: float) -> Self:
        """A number divided by the values, rounded down."""
        with self._all_or_nothing():
            return self._number("floor_divide", other) // self

    def __neg__(self) -> Self:
        return self._call("negative")

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self._call("abs")

    def __invert__(self) -> Self:
        return self._call("logical_not" if self.dtype == "bool" else "bitwise_invert")

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"tensor {quote(self.name)} has no truth value before a run; compare in the graph, with where()"
        )
