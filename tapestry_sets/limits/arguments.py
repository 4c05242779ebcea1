"""Arguments as callers write them: checked, and turned into Python's own.

Each check is given the words that name the argument, such as ``"Stripe: on"``. Whatever has a wrong type is refused by
`wrong_type`, in one form of words: ``Stripe: on must be an integer, not 1.5 of type float``. What is refused is shown
by `quote`, so that no message is longer than a few lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from numbers import Integral, Real
from operator import index
from typing import Any, TypeGuard, TypeVar

import numpy as np

from tapestry_sets.limits.printable import quote

T = TypeVar("T")


def wrong_type(value: object, words: str, what: str, mend: str = "") -> TypeError:
    """Return the error for a value that has another type than it must have.

    Examples
    --------
    >>> str(wrong_type("7", "an integer", "Stripe: on", "write int(…)"))
    "Stripe: on must be an integer, not '7' of type str; write int(…)"
    """
    return TypeError(f"{what} must be {words}, not {describe(value)}{'; ' * bool(mend)}{mend}")


def describe(value: object) -> str:
    """Return what an error calls a value: an array by shape and dtype, not by its values.

    Examples
    --------
    >>> describe("x"), describe(True), describe(np.zeros((2, 3)))
    ("'x' of type str", 'the truth value True', 'an array of shape (2, 3) and dtype float64')
    """
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype.name}"
    if value is None:
        return "None"
    if isinstance(value, bool | np.bool_):
        return f"the truth value {quote(value)}"
    return f"{quote(value)} of type {type(value).__name__}"


def add_article(name: str) -> str:
    """Return a name with "a" or "an" in front.

    Examples
    --------
    >>> add_article("Operand"), add_article("Box")
    ('an Operand', 'a Box')
    """
    return f"a{'n' * (name[:1].lower() in tuple('aeio'))} {name}"


def as_int(value: object, what: str) -> int:
    """Return `value` as a Python integer, or say what must be an integer.

    Parameters
    ----------
    value : object
        A Python or NumPy integer. Booleans and floats are refused: they are more often a slip than a size.
    what : str
        How the error message names the value, such as ``"Stripe: on"``.

    Returns
    -------
    int

    Raises
    ------
    TypeError
        If `value` is a bool or not an integer.

    Examples
    --------
    >>> as_int(np.int32(7), "size")
    7
    """
    if type(value) is int:
        return value
    if isinstance(value, (bool, np.bool_)):
        raise wrong_type(value, "an integer", what, f"write int({quote(value)}) if meant")
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        raise wrong_type(value, "an integer", what) from None


def is_int(value: object, least: float = -inf, most: float = inf) -> TypeGuard[int]:
    """Return whether a value is an integer of Python, not a truth value, from `least` to `most`.

    Examples
    --------
    >>> is_int(3, 1), is_int(0, 1), is_int(True), is_int(3.0)
    (True, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def as_number(value: object, what: str) -> float:
    """Return a number as Python's own, an int or a float: documents hold no others. Truth values are refused.

    Examples
    --------
    >>> as_number(np.float32(0.5), "pad: value"), as_number(np.array(3), "pad: value")
    (0.5, 3)
    """
    if isinstance(value, np.ndarray) and not value.ndim and value.dtype.kind in "iuf":
        value = value.item()
    if not isinstance(value, Real) or isinstance(value, bool):
        raise wrong_type(value, "a number", what)
    if isinstance(value, Integral):
        value = int(value)
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{what} is {quote(value)}, which is beyond a float; it must be less") from None
    return value if type(value) is int else number


def as_text(value: object, what: str) -> str:
    """Return a string as Python's own."""
    if not isinstance(value, str):
        raise wrong_type(value, "a string", what)
    return str(value) if isinstance(value, np.str_) else value


def as_items(values: Iterable[T], what: str, kind: str = "sequence") -> tuple[T, ...]:
    """Return the items of a sequence or another iterable, or raise an error that names the argument.

    Text and bytes are refused, which stand for themselves, and so are dicts and sets, whose order says nothing.

    Parameters
    ----------
    values : iterable
    what : str
        How the error message names it.
    kind : str
        What the message says that it must be, such as ``"sequence of regions"``.
    """
    if type(values) is tuple:
        return values
    if not isinstance(values, _UNORDERED):
        try:
            return tuple(values)
        except TypeError:
            if hasattr(values, "__next__"):
                raise  # what its items are made from
    raise wrong_type(values, f"a {kind}", what) from None


_UNORDERED = (str, bytes, bytearray, Mapping, set, frozenset)


def as_ints(values: Iterable[object], what: str) -> tuple[int, ...]:
    """Return a sequence of integers as a tuple, or raise an error that names the argument that is wrong."""
    found: tuple[object, ...]
    if type(values) is tuple:
        found = values
    else:
        ndim: object = getattr(values, "ndim", None)
        if ndim and isinstance(values, Iterable):
            # a view in the place of its shape has rows, maybe more than anyone can list: the first one tells
            for v in values:
                as_int(v, f"{what}[0]")
                break
        found = as_items(values, what, "sequence of integers, one for each axis")
    for v in found:
        if type(v) is not int:
            return tuple(as_int(v, f"{what}[{axis}]") for axis, v in enumerate(found))
    return found  # type: ignore[return-value]  # every one has been looked at


def check_type(value: object, kinds: type[T] | tuple[type[T], ...], what: str, mend: str = "") -> T:
    """Return a value of a type, or of one of several, or raise an error that names the argument and the types.

    Examples
    --------
    >>> check_type("a", str, "rename: name")
    'a'
    >>> check_type(5, (str, bytes), "from_json: text")
    Traceback (most recent call last):
        ...
    TypeError: from_json: text must be a str or a bytes, not 5 of type int
    """
    if isinstance(value, kinds):
        return value
    every = kinds if isinstance(kinds, tuple) else (kinds,)
    raise wrong_type(value, " or ".join(add_article(kind.__name__) for kind in every), what, mend)


def check_flag(value: object, what: str) -> bool:
    """Return a truth value, which 0 and 1 are too: a text such as "no" would count as true."""
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise wrong_type(value, "True or False", what)


def extents_of(args: Sequence[int | Sequence[int]], what: str) -> tuple[int, ...]:
    """Return a shape that a caller gives as one sequence, or as several integers, as in ``reshape(12, 1)``.

    Examples
    --------
    >>> extents_of(((12, 1),), "shape"), extents_of((12, 1), "shape"), extents_of((12,), "shape")
    ((12, 1), (12, 1), (12,))
    """
    if not args:
        raise TypeError(f"{what} is not given; give it as one sequence or as integers, and (()) for rank 0")
    if len(args) == 1 and (type(args[0]) is tuple or isinstance(args[0], Iterable)):
        return as_ints(args[0], what)
    return as_ints(args, what)


def check_positive(value: object, what: str) -> int:
    """Return an integer that must be at least 1."""
    n = as_int(value, what)
    if n < 1:
        raise ValueError(f"{what} must be at least 1, not {n}")
    return n


def check_extent(value: object, what: str) -> int:
    """Return an integer that must be at least 0."""
    n = as_int(value, what)
    if n < 0:
        raise ValueError(f"{what} must be at least 0, not {n}")
    return n


def check_range(start: object, stop: object, verb: str) -> tuple[int, int]:
    """Return the ends of a range, start <= stop: one that is reversed is more often a slip than an empty set."""
    lo, hi = as_int(start, f"{verb}: start"), as_int(stop, f"{verb}: stop")
    if hi < lo:
        raise ValueError(f"{verb}: stop must be >= start, not start={lo}, stop={hi}; an empty range has start == stop")
    return lo, hi


def check_cell(number: float, dtype: np.dtype[Any], what: str) -> None:
    """Raise ValueError for a number that a cell of some dtype does not hold; floats are rounded, not made infinite.

    Examples
    --------
    >>> check_cell(0.1, np.dtype("float32"), "pad: value")
    >>> check_cell(1.5, np.dtype("int32"), "pad: value")
    Traceback (most recent call last):
    ...
    ValueError: pad: value 1.5 is not of dtype int32; cast the tensor or round the number
    """
    if isinstance(number, np.generic):
        number = number.item()  # which compares without being cast
    if dtype.kind in "iu":
        is_whole = number == number and abs(number) != inf and int(number) == number
        is_within = is_whole and np.iinfo(dtype).min <= number <= np.iinfo(dtype).max
    elif dtype.kind == "f":
        is_whole, is_within = True, abs(number) == inf or not abs(number) > float(np.finfo(dtype).max)
    else:
        is_whole = is_within = dtype.kind != "b" or number in (0, 1)
    if not is_whole:
        raise ValueError(f"{what} {quote(number)} is not of dtype {dtype}; cast the tensor or round the number")
    if not is_within:
        raise ValueError(f"{what} {quote(number)} is beyond {dtype}; cast the tensor to a wider dtype")
