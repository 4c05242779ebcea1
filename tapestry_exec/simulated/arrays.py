"""Arrays of simulated devices: they behave as CuPy's do, strictness included, and NumPy computes.

What CuPy refuses is refused here: NumPy arrays as operands, implicit conversion to NumPy, structured and object dtypes.
Each operation tells the machine which bytes it reads and writes, in which stream. It takes effect at once; the
machine's checker proves that every other order that the program allows gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import BoundArguments, Parameter, Signature
from math import prod
from typing import Any, ClassVar, cast

import numpy as np
from msgspec import Struct
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from tapestry_exec.run import OrderingFault
from tapestry_exec.simulated.machine import COPY_KINDS, HostArray, Machine
from tapestry_exec.simulated.tables import METHODS, RENAMED
from tapestry_sets.limits import quote

KINDS = "biufc"
"""Kinds of the dtypes that device arrays have; the others raise ValueError."""


def bind(name: str, signature: Signature, args: Any, kwargs: Any) -> BoundArguments:
    """Arguments by their parameters' names; TypeError names CuPy's parameters where they do not fit."""
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}() {error}; CuPy's is {name}{signature}") from None


def refuse(value: Any) -> None:
    """Raise TypeError for a NumPy array among operands, as CuPy does."""
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}: device functions take no NumPy array; asarray it")


class Flags(Struct, frozen=True):
    """Memory layout of an array; it cannot be made read-only."""

    c_contiguous: bool
    f_contiguous: bool
    owndata: bool

    def __getitem__(self, name: str) -> bool:
        return bool(getattr(self, name.lower()))


def _view_property(name: str) -> Any:
    """What an array has of its view."""
    return property(lambda self: getattr(self._view, name))


class DeviceArray(NDArrayOperatorsMixin):
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

    machine: ClassVar[Machine]
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
        kind, dims = device_dtype(dtype), tuple(int(n) for n in np.atleast_1d(shape))
        self._owns = memptr is None
        self.data = self.machine.allocator(prod(dims) * kind.itemsize) if memptr is None else memptr
        self._view = self.machine.host_view(self.data, dims, kind, strides, order)
        check_places(self._view)

    # -- what it is --------------------------------------------------------------------------------------

    shape: tuple[int, ...] = _view_property("shape")
    strides: tuple[int, ...] = _view_property("strides")
    dtype: np.dtype[Any] = _view_property("dtype")
    ndim: int = _view_property("ndim")
    size: int = _view_property("size")
    itemsize: int = _view_property("itemsize")
    nbytes: int = _view_property("nbytes")

    def _review(self, view: HostArray) -> DeviceArray:
        """The array of another view of the same memory."""
        made = type(self).__new__(type(self))
        made._view, made._owns = view, False
        made.data = self.data + (address_of(view) - self.data.ptr) if view.size else self.data
        return made

    @property
    def flags(self) -> Flags:
        return Flags(self._view.flags.c_contiguous, self._view.flags.f_contiguous, self._owns)

    @property
    def T(self) -> DeviceArray:
        return self.transpose()

    @property
    def mT(self) -> DeviceArray:
        return self._review(self._view.mT)

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
        return (found if method == "__call__" else getattr(found, method))(*inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        found = self.machine.functions.get(function.__name__)
        return NotImplemented if found is None else found(*args, **kwargs)

    # -- to and from the host ----------------------------------------------------------------------------

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> HostArray:
        """The cells as a NumPy array; the host waits for the stream, unless `blocking` is false."""
        if out is not None and (out.dtype != self.dtype or out.shape != self.shape):
            raise ValueError(f"get: out is {out.dtype} {quote(out.shape)}, the array {self.dtype} {quote(self.shape)}")
        host: HostArray = np.empty(self.shape, self.dtype, "F" if order == "F" else "C") if out is None else out
        machine, queue = self.machine, self.machine.stream(stream)
        if not self.size:
            return host
        if blocking and queue.capture is not None:
            machine.wait_for_host("get", queue)
        source, into = self, host
        if not (self.flags.c_contiguous and host.flags.c_contiguous):  # through a contiguous copy, as CuPy does
            source, into = type(self)(self.shape, self.dtype), np.empty(self.shape, self.dtype)
            machine.submit("copy", [self._view], [source._view], lambda: np.copyto(source._view, self._view), queue)
        kind = COPY_KINDS["memcpyDeviceToHost"]
        machine.memcpy(address_of(into), source.data.ptr, self.nbytes, kind, queue, "get")
        if blocking:
            machine.wait_for_host("get", queue)
        if into is not host:
            host[...] = into
        return host

    def set(self, arr: HostArray, stream: Any = None) -> None:
        """Copy a NumPy array of the same shape and dtype here; without waiting if it lies in pinned memory."""
        if not isinstance(arr, np.ndarray):
            raise TypeError(f"Only numpy.ndarray can be set to cupy.ndarray, not {type(arr)}")
        if arr.dtype != self.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if arr.shape != self.shape:
            raise ValueError(f"Shape mismatch. Old shape: {quote(self.shape)}, new shape: {quote(arr.shape)}")
        if not (self.flags.c_contiguous or self.flags.f_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")
        if self.size:
            host = np.asarray(arr, order="C" if self.flags.c_contiguous else "F")
            queue, kind = self.machine.stream(stream), COPY_KINDS["memcpyHostToDevice"]
            self.machine.memcpy(self.data.ptr, address_of(host), host.nbytes, kind, queue, "set")

    def item(self) -> Any:
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    # -- cells -------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> DeviceArray:
        places, arrays = self._places(key)
        if not arrays:
            return self._review(self._cells(places))
        view, known = self._view, self._known(places)
        return cast(DeviceArray, self.compute("getitem", lambda: view[known()], [view, *(a._view for a in arrays)]))

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        places, arrays = self._places(key)
        given, read = host_of(value)
        if arrays:
            target, known = self._view, self._known(places)

            def put() -> None:
                at = known()
                check_repeated("setitem", np.arange(target.size).reshape(target.shape)[at], given)
                target[at] = given

        else:
            target = self._cells(places)
            if read and _same_cells(target, given):
                return

            def put() -> None:
                np.copyto(target, given, casting="unsafe")

        self.machine.submit("setitem", [*(a._view for a in arrays), *read], [target], put)

    def _cells(self, places: tuple[Any, ...]) -> HostArray:
        """The view's cells at an index without arrays, as a view."""
        return self._view[places if any(place is Ellipsis for place in places) else (*places, ...)]

    def _places(self, key: Any) -> tuple[tuple[Any, ...], list[DeviceArray]]:
        """An index with lists and NumPy arrays brought to the device, and the arrays in it."""
        places: list[Any] = []
        for place in key if isinstance(key, tuple) else (key,):
            if isinstance(place, list | np.ndarray | bool | np.bool_):
                place = self.machine.functions["asarray"](np.asarray(place))
            elif not (place is None or place is Ellipsis or isinstance(place, slice | DeviceArray)):
                place = int(place)
            places.append(place)
        arrays = [place for place in places if isinstance(place, DeviceArray)]
        if any(array.dtype == bool for array in arrays):
            self.machine.wait_for_host("indexing by truth values")
        return tuple(places), arrays

    def _known(self, places: tuple[Any, ...]) -> Callable[[], tuple[Any, ...]]:
        """An index by the values that its arrays have when it is called."""
        held = [host_of(place)[0] for place in places]
        return lambda: tuple(self.machine.indices(place) for place in held)

    def fill(self, value: Any) -> None:
        self[...] = value

    def view(self, dtype: Any = None, type: Any = None) -> DeviceArray:
        return self._review(self._view if dtype is None else self._view.view(device_dtype(dtype)))

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True
    ) -> DeviceArray:
        kind = device_dtype(dtype)
        if not copy and kind == self.dtype:
            return self
        view = self._view
        return cast(DeviceArray, self.compute("astype", lambda: view.astype(kind, casting=casting or "unsafe"), [view]))

    def reshape(self, *shape: Any, order: str = "C", copy: Any = None) -> DeviceArray:
        dims = shape[0] if len(shape) == 1 and not np.isscalar(shape[0]) else shape
        view = self._view
        return cast(DeviceArray, self.compute("reshape", lambda: view.reshape(dims), [view], source=self))

    def flatten(self, order: str = "C") -> DeviceArray:
        return cast(DeviceArray, self.compute("flatten", self._view.flatten, [self._view]))

    def transpose(self, *axes: Any) -> DeviceArray:
        return self._review(self._view.transpose(*axes))

    # -- computing ---------------------------------------------------------------------------------------

    @classmethod
    def call(cls, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Any, out: Any = None) -> Any:
        """Apply NumPy's function to device arrays: a view of one, a new array, or what is written to `out`."""
        held: list[DeviceArray] = []
        host_args = [cls._host(arg, held) for arg in args]
        host_kwargs = {key: cls._host(value, held) for key, value in kwargs.items()}
        reads = [array._view for array in held]
        if isinstance(out, tuple):
            (out,) = out
        if out is None:
            return cls.compute(name, lambda: function(*host_args, **host_kwargs), reads, held[0] if held else None)
        if not isinstance(out, DeviceArray):
            raise TypeError(f"{name}: out is {type(out).__name__}; it must be a device array")
        target = out._view
        cls.machine.submit(name, reads, [target], lambda: function(*host_args, **host_kwargs, out=target))
        return out

    @classmethod
    def _host(cls, value: Any, held: list[DeviceArray]) -> Any:
        if isinstance(value, DeviceArray):
            held.append(value)
            here, there = cls.machine.device, value.data.device_id
            if there != here and value.size:
                raise ValueError(
                    f"The device where the array resides ({there}) is different from the current device ({here}). "
                    "Peer access is not used here: copy it"
                )
            return value._view
        if isinstance(value, list | tuple):
            return type(value)(cls._host(one, held) for one in value)
        refuse(value)
        return value

    @classmethod
    def compute(
        cls, name: str, function: Callable[[], Any], reads: Sequence[HostArray], source: DeviceArray | None = None
    ) -> Any:
        """The result of a function as device arrays: views of the source, or new ones that the function writes."""
        with cls.machine.trying(), np.errstate(all="ignore"):
            found = function()
        if not isinstance(found, tuple | list):
            return cls._made(name, function, np.asarray(found), reads, source)
        parts = (
            cls._made(name, lambda k=k: function()[k], np.asarray(one), reads, source)  # type: ignore[misc]
            for k, one in enumerate(found)
        )
        return type(found)(parts)

    @classmethod
    def _made(
        cls,
        name: str,
        function: Callable[[], Any],
        found: HostArray,
        reads: Sequence[HostArray],
        source: DeviceArray | None,
    ) -> DeviceArray:
        if source is not None and found.size and np.may_share_memory(found, source._view):
            return source._review(found)
        made = cls(found.shape, found.dtype)
        target = made._view  # not the array itself: what is captured keeps no memory from going back to its pool
        is_captured = cls.machine.stream().capture is not None
        cls.machine.submit(name, reads, [target], lambda: np.copyto(target, function() if is_captured else found))
        return made


def host_of(value: Any) -> tuple[Any, list[HostArray]]:
    """An operand as NumPy's functions take it, and what of it is read in a device's memory."""
    return (value._view, [value._view]) if isinstance(value, DeviceArray) else (value, [])


def address_of(view: HostArray) -> int:
    """Where an array's first cell lies."""
    return cast(int, view.__array_interface__["data"][0])


def _same_cells(one: HostArray, two: HostArray) -> bool:
    return (address_of(one), one.shape, one.strides, one.dtype) == (address_of(two), two.shape, two.strides, two.dtype)


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


def _by_value(name: str) -> Callable[[DeviceArray], Any]:
    """What Python asks of one cell, whose value the host waits for."""
    return lambda self: getattr(self.get(), name)()


def _method(name: str, signature: Signature) -> Callable[..., Any]:
    def method(self: DeviceArray, *args: Any, **kwargs: Any) -> Any:
        given = bind(name, signature, args, kwargs).arguments
        return self.machine.functions[name](self, **{RENAMED.get((name, key), key): v for key, v in given.items()})

    first = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = Signature([first, *signature.parameters.values()])  # type: ignore[attr-defined]
    return method


for _name, _signature in METHODS.items():
    setattr(DeviceArray, _name, _method(_name, _signature))
for _name in ("__bool__", "__int__", "__float__", "__index__"):
    setattr(DeviceArray, _name, _by_value(_name))


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
    address = address_of(view)
    size = view.itemsize if view.dtype.kind != "c" else view.itemsize // 2
    if view.size and (address % size or any(s % size for s, n in zip(view.strides, view.shape, strict=True) if n > 1)):
        raise OrderingFault(
            f"cells of {view.dtype} at {address:#x} with strides {quote(view.strides)} do not lie at multiples of "
            f"{size} bytes; align them"
        )
