"""Functions on simulated arrays: CuPy's, with CuPy's parameters and no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from inspect import BoundArguments, Signature
from math import prod
from typing import Any

import numpy as np

from tapestry_exec.simulated import tables
from tapestry_exec.simulated.arrays import (
    DeviceArray,
    bind,
    check_repeated,
    device_dtype,
    host_of,
    refuse,
)
from tapestry_exec.simulated.machine import HostArray
from tapestry_exec.simulated.tuning import FEW_ARRAYS

Arrays = type[DeviceArray]
"""The arrays of one machine."""


class Ufunc:
    """A function cell by cell, with the keywords that CuPy's have."""

    def __init__(self, arrays: Arrays, name: str, library: Any = np) -> None:
        self._arrays, self._numpy = arrays, getattr(library, name)
        self.__name__ = name
        self.nin, self.nout = self._numpy.nin, self._numpy.nout

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply it; `out`, `casting` and `dtype` are its only keywords."""
        unknown = [key for key in kwargs if key not in tables.SUPPORTED_KEYWORDS]
        if unknown:
            raise TypeError(f"Wrong arguments {unknown}: {self.__name__} takes {tables.SUPPORTED_KEYWORDS}")
        *inputs, out = args if len(args) > self.nin else (*args, kwargs.pop("out", None))
        if len(inputs) != self.nin:
            raise TypeError(f"{self.__name__} takes {self.nin} operands, {len(inputs)} are given")
        return self._arrays.call(self.__name__, self._numpy, inputs, kwargs, out)

    def at(self, a: DeviceArray, indices: Any, b: Any = None) -> None:
        """Combine cells with values, in no certain order.

        Raises
        ------
        NotImplementedError, TypeError
            For functions and dtypes that CuPy does not do so.
        """
        self._check_has("at", tables.SCATTERED)
        if a.dtype.name not in tables.SCATTERED[self.__name__]:
            raise TypeError(f"{self.__name__}.at only supports {tables.SCATTERED[self.__name__]} as data type")
        refuse(b)
        places, arrays = a._places(indices)
        (value, read), target, known = host_of(b), a._view, a._known(places)
        reads = [target, *(one._view for one in arrays), *read]
        a.machine.submit(f"{self.__name__}.at", reads, [target], lambda: self._combine(target, known(), value))

    def _combine(self, target: HostArray, places: Any, value: Any) -> None:
        """Combine in an order of its own, which the machine's seed says."""
        numbers = np.arange(target.size).reshape(target.shape)[places]
        each = np.broadcast_to(np.asarray(value), numbers.shape).ravel()
        turn = self._arrays.machine.shuffled(numbers.size)
        self._numpy.at(target, np.unravel_index(numbers.ravel()[turn], target.shape), each[turn])

    def reduce(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """Fold an axis."""
        return self._fold("reduce", array, out, axis=axis, dtype=dtype, keepdims=keepdims)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """Running results along an axis."""
        return self._fold("accumulate", array, out, axis=axis, dtype=dtype)

    def _fold(self, how: str, array: Any, out: Any, **kwargs: Any) -> Any:
        self._check_has(how, tables.FOLDED)
        return self._arrays.call(f"{self.__name__}.{how}", getattr(self._numpy, how), [array], kwargs, out)

    def _check_has(self, method: str, names: Sequence[str] | Mapping[str, Any]) -> None:
        if self.__name__ not in names:
            raise NotImplementedError(f"`cupy_{self.__name__}.{method}` is not supported yet")


def functions_of(arrays: Arrays) -> dict[str, Any]:
    """The functions of arrays of a machine, by name."""
    found: dict[str, Any] = {name: Ufunc(arrays, name) for name in tables.UFUNCS.split()}
    for table, call in ((tables.FUNCTIONS, _apply), (tables.CREATORS, _create), (tables.WAITING, _wait)):
        found |= {name: _with_parameters(arrays, name, signature, call) for name, signature in table.items()}
    return found | _making(arrays) | _writing(arrays)


def _with_parameters(arrays: Arrays, name: str, signature: Signature, call: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes CuPy's parameters and no others."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return call(arrays, name, bind(name, signature, args, kwargs))

    function.__name__ = name
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _apply(arrays: Arrays, name: str, bound: BoundArguments) -> Any:
    """Apply NumPy's function, but for what CuPy does in another way."""
    machine, given = arrays.machine, bound.arguments
    if name == "where" and "x" not in given:
        return machine.functions["nonzero"](*bound.args)
    if name in ("argsort", "sort") and given.get("kind") not in (None, "stable"):
        raise ValueError("kind can only be None or 'stable'")
    if name in tables.PRODUCTS and is_by_cublas(name, given) and machine.is_capturing(machine.stream()):
        raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")
    out = given.pop("out", None)
    function = getattr(np, name)
    if len(given.get("tup", ())) > FEW_ARRAYS:  # their addresses are brought
        machine.functions["asarray"](np.zeros(len(given["tup"]), np.int64))
    if name == "take" and isinstance(given["indices"], list | tuple):
        given["indices"] = machine.functions["asarray"](given["indices"])
    if name.startswith("take"):
        return arrays.call(
            name,
            lambda a, at, *more, **kwargs: function(a, machine.indices(at), *more, **kwargs),
            bound.args,
            bound.kwargs,
            out,
        )
    return arrays.call(name, function, bound.args, bound.kwargs, out)


def is_by_cublas(name: str, given: Mapping[str, Any]) -> bool:
    """Whether CuPy has cuBLAS compute a product, of floating-point or complex cells: else kernels of its own do.

    Parameters
    ----------
    name : str
        One of `PRODUCTS`.
    given : mapping
        Its arguments by their names, those of ``*args`` as a tuple.
    """
    operands = given.get("args") or given.get("operands") or (given["a"], given["b"])
    arrays = [one for one in operands if isinstance(one, DeviceArray)]
    if not all(one.size for one in arrays) or np.result_type(*(one.dtype for one in arrays)).kind not in "fc":
        return False
    if name == "einsum":
        return has_contraction(operands)
    if max(one.ndim for one in arrays) > 2 and name == "matmul":
        return True
    if min(one.ndim for one in arrays) == 0:
        return False
    a, b = arrays
    axes = given.get("axes", 2) if name == "tensordot" else 1
    folded = range(a.ndim - axes, a.ndim) if isinstance(axes, int) else np.atleast_1d(axes[0])
    depth = prod(a.shape[int(axis)] for axis in folded)
    return a.size * b.size != depth * depth  # of one cell, it is a sum of products


def has_contraction(operands: Sequence[Any]) -> bool:
    """Whether an einsum sums over a label that several operands have.

    Examples
    --------
    >>> [has_contraction((text, 0, 0)) for text in ("ij,jk->ik", "ij,ij", "ij,ij->ij", "ij,kl->ik")]
    [True, True, False, False]
    """
    inputs: list[Any]
    if isinstance(operands[0], str):
        text, _, kept = operands[0].replace(" ", "").replace("...", "").partition("->")
        inputs, out = text.split(","), set(kept)
    else:
        count = len(operands) // 2
        inputs, out = list(operands[1 : 2 * count : 2]), set(operands[-1] if len(operands) % 2 else ())
    counts = Counter(label for labels in inputs for label in set(labels) if label is not Ellipsis)
    return any(count > 1 and label not in out for label, count in counts.items())


def _create(arrays: Arrays, name: str, bound: BoundArguments) -> Any:
    """Make an array as NumPy's function does; of what it is like only the dtype and the shape are read."""
    given = bound.arguments
    if given.get("dtype") is not None:
        device_dtype(given["dtype"])
    if name.endswith("_like"):
        refuse(given["a"])
        given["a"] = np.broadcast_to(np.zeros((), given["a"].dtype), given["a"].shape)
    refuse(given.get("fill_value"))
    filled = BoundArguments(bound.signature, {key: value for key, value in given.items() if value is not None})
    return arrays.compute(name, lambda: getattr(np, name)(*filled.args, **filled.kwargs), [])


def _wait(arrays: Arrays, name: str, bound: BoundArguments) -> Any:
    """Apply NumPy's function when the values are there."""
    arrays.machine.wait_for_host(name)
    return arrays.call(name, getattr(np, name), bound.args, bound.kwargs)


def _making(arrays: Arrays) -> dict[str, Any]:
    """Functions that make arrays without computing, and those to and from the host."""

    def empty(shape: Any, dtype: Any = float, order: str = "C") -> DeviceArray:
        return arrays(shape, dtype, order=order)

    def empty_like(
        prototype: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
    ) -> DeviceArray:
        return arrays(prototype.shape if shape is None else shape, dtype or prototype.dtype)

    def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: bool = False) -> Any:
        if isinstance(a, arrays):
            return a if dtype is None else a.astype(dtype, copy=False)
        host = np.asarray(a, dtype)
        made = arrays(host.shape, host.dtype)
        machine = arrays.machine
        if not (host.ndim and host.size and machine.is_capturing(machine.stream())):
            made.set(host)
            return made
        staged = machine.cuda.alloc_pinned_memory(host.nbytes)
        cells = np.frombuffer(staged, host.dtype, host.size).reshape(host.shape)
        cells[...] = host
        made.set(cells)
        machine.free(staged.mem)  # others are given it
        return made

    def array(obj: Any, dtype: Any = None, copy: bool = True, order: str = "K", *, blocking: bool = False) -> Any:
        made = asarray(obj, dtype)
        if made is not obj:
            return made
        return made.copy() if copy or (order == "C" and not made.flags.c_contiguous) else made

    def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
        made = asarray(a, dtype)
        return made if made.flags.c_contiguous else made.copy()

    def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> HostArray:
        return a.get(stream, order, out, blocking) if isinstance(a, arrays) else np.asarray(a)

    made = empty, empty_like, asarray, array, ascontiguousarray, asnumpy
    return {function.__name__: function for function in made}


def _writing(arrays: Arrays) -> dict[str, Any]:
    """Functions that write into an array, and those of dtypes."""

    def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = None) -> None:
        if isinstance(src, np.ndarray):
            if src.size != 1:
                raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
            src = src.reshape(())[()]
        refuse(where)
        (value, read), (mask, read_too), target = host_of(src), host_of(where), dst._view
        beside = [] if where is None else [target]  # cells that are left alone must be there
        if isinstance(value, np.ndarray | np.generic) and not np.can_cast(value.dtype, dst.dtype, casting):
            raise TypeError(f"Cannot cast {value.dtype} to {dst.dtype} in {casting} casting mode")

        def put() -> None:
            np.copyto(target, value, casting="unsafe", where=True if mask is None else mask)

        arrays.machine.submit("copyto", [*read, *read_too, *beside], [target], put)

    def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> None:
        refuse(values)
        (value, read), target, places = host_of(values), arr._view, indices._view

        def put() -> None:
            numbers = np.arange(target.size).reshape(target.shape)
            at = arrays.machine.indices(places)
            check_repeated("put_along_axis", np.take_along_axis(numbers, at, axis), value)
            np.put_along_axis(target, at, value, axis)

        arrays.machine.submit("put_along_axis", [places, *read], [target], put)

    def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
        return np.result_type(*(host_of(one)[0] for one in arrays_and_dtypes))

    def astype(x: Any, dtype: Any, /, *, copy: bool = True) -> Any:
        return x.astype(dtype, copy=copy)

    return {function.__name__: function for function in (copyto, put_along_axis, result_type, astype)}


def as_strided(x: DeviceArray, shape: Any = None, strides: Any = None) -> DeviceArray:
    """A view with any shape and strides that stay in the memory."""
    return type(x)(x.shape if shape is None else shape, x.dtype, x.data, x.strides if strides is None else strides)
