"""Arrays of simulated devices: they behave as CuPy's do, strictness included, and NumPy computes.

What CuPy refuses is refused here: NumPy arrays as operands, implicit conversion to NumPy, structured and object dtypes.
Each operation tells the machine which bytes it reads and writes, in which stream. It takes effect at once; the
machine's checker proves that every other order that the program allows gives the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import prod
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from tapestry_exec.run import OrderingFault

HostArray = NDArray[Any]
KINDS = "biufc"
"""Kinds of the dtypes that device arrays have; the others raise ValueError."""


class ArrayMachine(Protocol):
    """What arrays ask of the machine whose memory they lie in."""

    functions: dict[str, Any]

    def allocate(self, nbytes: int) -> Any: ...
    def host_view(
        self, data: Any, dims: tuple[int, ...], dtype: np.dtype[Any], strides: Any, order: str
    ) -> HostArray: ...
    def upload(self, host: HostArray, view: HostArray, stream: Any) -> None: ...
    def download(self, view: HostArray, host: HostArray, stream: Any, blocking: bool) -> None: ...
    def indices(self, indices: Any) -> Any: ...
    def shuffled(self, size: int) -> NDArray[np.intp]: ...
    def wait_for_host(self, why: str, stream: Any = None) -> None: ...
    def stream(self, given: Any = None) -> Any: ...
    def is_capturing(self, stream: Any) -> bool: ...
    def compute(
        self, name: str, function: Callable[[], Any], reads: Sequence[HostArray], source: Any = None
    ) -> Any: ...
    def call(
        self, name: str, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], out: Any
    ) -> Any: ...
    def submit(
        self,
        name: str,
        reads: Sequence[HostArray],
        writes: Sequence[HostArray],
        run: Callable[[], Any],
        stream: Any = None,
    ) -> None: ...


@cache
def signature_of(text: str) -> tuple[str, inspect.Signature]:
    """The name and the parameters of a function from a line of a table."""
    name, parameters = text.split("(", 1)
    return name, inspect.signature(eval(f"lambda {parameters[:-1]}: None"))


def bound(name: str, signature: inspect.Signature, args: Any, kwargs: Any) -> inspect.BoundArguments:
    """Arguments by their parameters' names; TypeError names CuPy's parameters where they do not fit."""
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}() {error}; CuPy's is {name}{signature}") from None


def refuse(value: Any) -> None:
    """Raise TypeError for a NumPy array among operands, as CuPy does."""
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}: a NumPy array is no operand of device functions; asarray it")


class Flags:
    """Memory layout of an array; it cannot be made read-only."""

    __slots__ = ("c_contiguous", "f_contiguous", "owndata")

    def __init__(self, view: HostArray, owndata: bool) -> None:
        self.c_contiguous: bool = view.flags.c_contiguous
        self.f_contiguous: bool = view.flags.f_contiguous
        self.owndata = owndata

    def __getitem__(self, name: str) -> bool:
        return cast(bool, getattr(self, name.lower()))


class DeviceArray:
    """An array in memory of a simulated device, with CuPy's constructor and methods.

    Parameters
    ----------
    shape : int or sequence of int
    dtype : dtype
        Of numbers or truth values.
    memptr : MemoryPointer, optional
        Where the first cell lies; by default in new memory of the current device's allocator.
    strides : sequence of int, optional
        In bytes.
    order : "C" or "F"

    Raises
    ------
    OrderingFault
        When cells would lie outside of the allocation, or not at multiples of their size.
    """

    machine: ClassVar[ArrayMachine]
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        shape: int | Sequence[int],
        dtype: Any = float,
        memptr: Any = None,
        strides: Sequence[int] | None = None,
        order: str = "C",
    ) -> None:
        kind = device_dtype(dtype)
        dims = (int(shape),) if np.ndim(shape) == 0 else tuple(int(n) for n in shape)  # type: ignore[arg-type, union-attr]
        self._owns = memptr is None
        self.data = self.machine.allocate(prod(dims) * kind.itemsize) if memptr is None else memptr
        self._view = self.machine.host_view(self.data, dims, kind, strides, order)

    # -- what it is --------------------------------------------------------------------------------------

    @classmethod
    def around(cls, view: HostArray, data: Any) -> DeviceArray:
        """The array of a view of a device's memory, which `data` keeps."""
        made = cls.__new__(cls)
        made._view, made.data, made._owns = view, data, False
        return made

    def _same_memory(self, view: HostArray) -> DeviceArray:
        address = int(view.__array_interface__["data"][0])
        data = self.data if not view.size else self.data + (address - self.data.ptr)
        return type(self).around(view, data)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._view.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self._view.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._view.dtype

    @property
    def ndim(self) -> int:
        return self._view.ndim

    @property
    def size(self) -> int:
        return self._view.size

    @property
    def itemsize(self) -> int:
        return self._view.itemsize

    @property
    def nbytes(self) -> int:
        return self._view.nbytes

    @property
    def flags(self) -> Flags:
        return Flags(self._view, self._owns)

    @property
    def device(self) -> Any:
        return self.data.device

    @property
    def T(self) -> DeviceArray:
        return self._same_memory(self._view.T)

    @property
    def mT(self) -> DeviceArray:
        return self.swapaxes(-1, -2)

    def __repr__(self) -> str:
        return f"<device array of shape {self.shape}, {self.dtype}, on device {self.data.device_id}>"

    def __len__(self) -> int:
        return len(self._view)

    def __iter__(self) -> Iterator[DeviceArray]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[k] for k in range(len(self)))

    # -- not NumPy ---------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: Any = None) -> HostArray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed: use get()")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        found = self.machine.functions.get(ufunc.__name__)
        if found is None or method not in ("__call__", "at", "reduce", "accumulate"):
            return NotImplemented
        out = kwargs.pop("out", None)
        if out is not None:
            kwargs["out"] = out[0]
        return (found if method == "__call__" else getattr(found, method))(*inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        found = self.machine.functions.get(function.__name__)
        return NotImplemented if found is None else found(*args, **kwargs)

    # -- to and from the host ----------------------------------------------------------------------------

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> HostArray:
        """The cells as a NumPy array; the host waits for the stream, unless `blocking` is false."""
        if out is not None and (out.dtype != self.dtype or out.shape != self.shape):
            raise ValueError(f"get: out is {out.dtype} {out.shape}, the array {self.dtype} {self.shape}")
        host: HostArray = np.empty(self.shape, self.dtype, "F" if order == "F" else "C") if out is None else out
        self.machine.download(self._view, host, stream, blocking)
        return host

    def set(self, arr: HostArray, stream: Any = None) -> None:
        """Copy a NumPy array of the same shape and dtype here; without waiting if it lies in pinned memory."""
        if not isinstance(arr, np.ndarray):
            raise TypeError(f"Only numpy.ndarray can be set to cupy.ndarray, not {type(arr)}")
        if arr.dtype != self.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if arr.shape != self.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        if not (self.flags.c_contiguous or self.flags.f_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")
        self.machine.upload(arr, self._view, stream)

    def item(self) -> Any:
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __index__(self) -> int:
        return self.get().__index__()

    # -- cells -------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> DeviceArray:
        places, arrays = self._places(key)
        if not arrays:
            view = self._view[(*places, ...) if Ellipsis not in [p for p in places if p is Ellipsis] else places]
            return self._same_memory(view)
        if any(array.dtype == bool for array in arrays):
            self.machine.wait_for_host("indexing by truth values")
        view, known = self._view, self._known(places)
        made: DeviceArray = self.machine.compute("getitem", lambda: view[known()], [view, *(a._view for a in arrays)])
        return made

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        places, arrays = self._places(key)
        given = value._view if isinstance(value, DeviceArray) else value
        reads = [a._view for a in arrays] + ([given] if isinstance(value, DeviceArray) else [])
        if any(array.dtype == bool for array in arrays):
            self.machine.wait_for_host("indexing by truth values")
        if arrays:
            target, known = self._view, self._known(places)

            def put() -> None:
                at = known()
                check_repeated("setitem", np.arange(target.size).reshape(target.shape)[at], given)
                target[at] = given

        else:
            target = self._view[(*places, ...) if not any(p is Ellipsis for p in places) else places]
            if isinstance(value, DeviceArray) and _same_cells(target, given):
                return

            def put() -> None:
                np.copyto(target, given, casting="unsafe")

        self.machine.submit("setitem", reads, [target], put)

    def _places(self, key: Any) -> tuple[tuple[Any, ...], list[DeviceArray]]:
        """An index with lists and NumPy arrays brought to the device, and the arrays in it."""
        places: list[Any] = []
        for place in key if isinstance(key, tuple) else (key,):
            if isinstance(place, list | np.ndarray | bool | np.bool_):
                place = self.machine.functions["asarray"](np.asarray(place))
            elif not (place is None or place is Ellipsis or isinstance(place, slice | DeviceArray)):
                place = int(place)
            places.append(place)
        return tuple(places), [place for place in places if isinstance(place, DeviceArray)]

    def _known(self, places: tuple[Any, ...]) -> Callable[[], tuple[Any, ...]]:
        """An index by the values that its arrays have when it is called."""
        machine = self.machine
        held = [place._view if isinstance(place, DeviceArray) else place for place in places]
        return lambda: tuple(machine.indices(place) for place in held)

    def fill(self, value: Any) -> None:
        self[...] = value

    def view(self, dtype: Any = None, type: Any = None) -> DeviceArray:
        return self._same_memory(self._view if dtype is None else self._view.view(device_dtype(dtype)))

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True
    ) -> DeviceArray:
        kind = device_dtype(dtype)
        if not copy and kind == self.dtype:
            return self
        how: Any = casting or "unsafe"
        view = self._view
        return cast(DeviceArray, self.machine.compute("astype", lambda: view.astype(kind, casting=how), [view]))

    def reshape(self, *shape: Any, order: str = "C", copy: Any = None) -> DeviceArray:
        dims = shape[0] if len(shape) == 1 and not np.isscalar(shape[0]) else shape
        view = self._view
        return self._reviewed("reshape", lambda: view.reshape(dims))

    def ravel(self, order: str = "C") -> DeviceArray:
        return self._reviewed("ravel", self._view.ravel)

    def flatten(self, order: str = "C") -> DeviceArray:
        return self._reviewed("flatten", self._view.flatten)

    def copy(self, order: str = "C") -> DeviceArray:
        return self._reviewed("copy", self._view.copy)

    def _reviewed(self, name: str, function: Callable[[], HostArray]) -> DeviceArray:
        return cast(DeviceArray, self.machine.compute(name, function, [self._view], source=self))

    def transpose(self, *axes: Any) -> DeviceArray:
        return self._same_memory(self._view.transpose(*axes))

    def swapaxes(self, axis1: int, axis2: int) -> DeviceArray:
        return self._same_memory(self._view.swapaxes(axis1, axis2))

    def squeeze(self, axis: Any = None) -> DeviceArray:
        return self._same_memory(self._view.squeeze(axis))

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> DeviceArray:
        return self._same_memory(self._view.diagonal(offset, axis1, axis2))


def _same_cells(one: HostArray, two: HostArray) -> bool:
    return (
        one.__array_interface__["data"] == two.__array_interface__["data"]
        and one.shape == two.shape
        and one.strides == two.strides
        and one.dtype == two.dtype
    )


def device_dtype(dtype: Any) -> np.dtype[Any]:
    """A dtype that device arrays can have.

    Raises
    ------
    ValueError
        For structured, object and text dtypes.
    """
    kind: np.dtype[Any] = np.dtype(dtype)
    if kind.kind not in KINDS or kind.names is not None:
        raise ValueError(f"Unsupported dtype {kind}")
    return kind


METHODS = """
all(axis=None, out=None, keepdims=False)
any(axis=None, out=None, keepdims=False)
argmax(axis=None, out=None, dtype=None, keepdims=False)
argmin(axis=None, out=None, dtype=None, keepdims=False)
argsort(axis=-1, kind=None)
clip(min=None, max=None, out=None)
cumprod(axis=None, dtype=None, out=None)
cumsum(axis=None, dtype=None, out=None)
dot(b, out=None)
max(axis=None, out=None, keepdims=False)
mean(axis=None, dtype=None, out=None, keepdims=False)
min(axis=None, out=None, keepdims=False)
prod(axis=None, dtype=None, out=None, keepdims=None)
ptp(axis=None, out=None, keepdims=False)
repeat(repeats, axis=None)
round(decimals=0, out=None)
searchsorted(v, side='left', sorter=None)
std(axis=None, dtype=None, out=None, ddof=0, keepdims=False)
sum(axis=None, dtype=None, out=None, keepdims=False)
take(indices, axis=None, out=None)
trace(offset=0, axis1=0, axis2=1, dtype=None, out=None)
var(axis=None, dtype=None, out=None, ddof=0, keepdims=False)
"""
"""Methods that are functions of the same name, with the parameters of CuPy's methods."""
RENAMED = {("clip", "min"): "a_min", ("clip", "max"): "a_max"}
"""Parameters of methods that are called otherwise in the functions."""

OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
SIGNS = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}


def _operator(name: str) -> Callable[..., Any]:
    return lambda self, *others: self.machine.functions[name](self, *others)


def _method(text: str) -> tuple[str, Callable[..., Any]]:
    name, signature = signature_of(text)

    def method(self: DeviceArray, *args: Any, **kwargs: Any) -> Any:
        given = bound(name, signature, args, kwargs).arguments
        return self.machine.functions[name](self, **{RENAMED.get((name, key), key): v for key, v in given.items()})

    method.__name__ = name
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[first, *signature.parameters.values()]
    )
    return name, method


def _turned(name: str) -> Callable[[DeviceArray, Any], Any]:
    return lambda self, other: self.machine.functions[name](other, self)


def _in_place(name: str) -> Callable[[DeviceArray, Any], Any]:
    return lambda self, other: self.machine.functions[name](self, other, out=self)


for _line in METHODS.strip().splitlines():
    setattr(DeviceArray, *_method(_line))
for _short, _name in (*OPERATORS.items(), *COMPARISONS.items(), *SIGNS.items()):
    setattr(DeviceArray, f"__{_short}__", _operator(_name))
for _short, _name in OPERATORS.items():
    setattr(DeviceArray, f"__r{_short}__", _turned(_name))
    setattr(DeviceArray, f"__i{_short}__", _in_place(_name))


def check_repeated(name: str, numbers: NDArray[np.intp], values: Any) -> None:
    """Raise OrderingFault where cells, given by number, are set to several values: nothing says which comes last."""
    each = np.broadcast_to(np.asarray(values), numbers.shape).ravel()
    turn = np.argsort(numbers, axis=None, kind="stable")
    ordered, wanted = numbers.ravel()[turn], each[turn]
    a, b = wanted[1:], wanted[:-1]
    again = (ordered[1:] == ordered[:-1]) & (a != b) & ((a == a) | (b == b))
    if again.any():
        cell = int(ordered[1:][again][0])
        raise OrderingFault(
            f"{name} sets cell {cell} (row-major) to several values in no certain order: give each cell one value"
        )


def check_places(view: HostArray) -> None:
    """Raise OrderingFault for cells that do not lie at multiples of their size: a GPU cannot read such."""
    address = int(view.__array_interface__["data"][0])
    size = view.itemsize if view.dtype.kind != "c" else view.itemsize // 2
    if view.size and (address % size or any(s % size for s, n in zip(view.strides, view.shape, strict=True) if n > 1)):
        raise OrderingFault(
            f"cells of {view.dtype} at {address:#x} with strides {view.strides} do not lie at multiples of {size} "
            "bytes; align them"
        )
