"""Real arrays as views of the memory of their device, so that alias questions can be asked of them too.

An array is known by its address, its shape and its strides, and it is compared with others byte by byte. Where an
object speaks several protocols, the first of these is asked:

1. ``__array_interface__``: NumPy's arrays, read-only ones too, and what behaves like them;
2. ``__dlpack__``: PyTorch, JAX, CuPy and the like; the capsule is read and dropped, never consumed;
3. ``__cuda_array_interface__``: Numba, and arrays that cannot be exported by DLPack;
4. the buffer protocol: bytes, bytearray, memoryview, array.array, mmap, ctypes arrays, NumPy's scalars.

Each device has an address space of its own; that of the host, `MEMORY`, also holds the pinned and the managed memory
of GPUs. Arrays on CUDA and ROCm devices, CuPy's among them, have not yet been run on a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from operator import index, mul
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from tapestry_sets.digits import Levels, Strided
from tapestry_sets.limits import TooHard, as_items, compile_constructor, put_fields, quote
from tapestry_sets.views import Allocation, AsStrided, Shape, View, allocate, view_of

ADDRESSES = 1 << 64
"""How many bytes an address space has."""

MEMORY: Allocation = allocate((ADDRESSES,), name="memory")
"""The host's address space, one cell for each byte."""


class SpeaksArrayInterface(Protocol):
    """What NumPy reads as an array, by its address."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


class SpeaksDLPack(Protocol):
    """A tensor of PyTorch, JAX, CuPy and the like."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


class SpeaksCudaArrayInterface(Protocol):
    """An array on a GPU, such as one of Numba."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


class SpeaksBuffer(Protocol):
    """Python's own memory: bytes, bytearray, memoryview, array.array, mmap, ctypes arrays."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


class HasView(Protocol):
    """A tensor that stands for a view, as one of an alias graph does."""

    @property
    def view(self) -> View: ...


AnyArray: TypeAlias = (
    np.ndarray[Any, Any] | SpeaksArrayInterface | SpeaksDLPack | SpeaksCudaArrayInterface | SpeaksBuffer
)
"""An array of any library, or any other memory; see `as_view`."""

ViewLike: TypeAlias = View | HasView | AnyArray
"""What alias questions are asked of."""


class AtAddress(AsStrided):
    """A view of bytes by address, as `offset`, shape and strides; its last axis is the bytes of an element.

    The view holds the array whose bytes they are, so that its memory is not given to another.
    """

    owner: object
    __slots__ = ("owner",)

    def __init__(self, shape: Shape, strides: Shape, offset: int = 0, owner: object = None) -> None:
        super().__init__(shape, strides, offset)
        put_fields(self, owner=owner)


_at_address: Callable[[Shape, Shape, int, object], AtAddress] = compile_constructor(
    AtAddress, "shape", "strides", "offset", "owner"
)


class Layout(NamedTuple):
    """Where an array lies: an address space, and the numbers of an `AtAddress` view of it."""

    home: Allocation
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int


# ------------------------------------------------------------------------------------------------------ the view


def as_view(x: ViewLike) -> View:
    """Return a view as it is, and an array as a view of the memory of its device.

    Parameters
    ----------
    x : View or array
        Anything with ``__array_interface__``, ``__dlpack__``, ``__cuda_array_interface__`` or the buffer protocol.
        A tensor of PyTorch that requires a gradient is read as its ``detach()``, which is the same memory. Of a
        masked array the data are meant; its mask is an array of its own.

    Returns
    -------
    View
        For an array: of `MEMORY` or of a device's memory, with one more axis for the bytes of an element.

    Raises
    ------
    TypeError
        If `x` is neither.
    ValueError
        If the array holds Python objects, has no address, has elements that are not whole bytes or reaches beyond
        its address space; and what the array itself raises, as one that is freed does.

    Notes
    -----
    The view holds a reference to the array, not to its memory: as long as the view exists, the array's memory is
    not given to another, unless the array itself lets it go (``resize``, ``close``, ``Array.delete``, ``set_``).
    Then the view still has the old address, which says nothing any more.

    A lone scalar of NumPy is memory of its own, but ``a[0]`` of a structured array is a view of ``a``.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_sets import as_view
    >>> a = np.zeros((4, 6), np.float32)
    >>> view = as_view(a[:, ::-2])
    >>> view.shape, view.kind.strides
    ((4, 3, 4), (24, -8, 1))

    References
    ----------
    NumPy, "The array interface protocol", version 3; DLPack 1.1; Numba, "CUDA Array Interface", version 3; PEP 3118.
    """
    if isinstance(x, np.ndarray):
        if x.dtype.hasobject:
            raise _holds_objects(x)
        return _view(MEMORY, _address_of(x), x.shape, x.strides, x.itemsize, x)
    if isinstance(x, View):
        return x
    for protocol in PROTOCOLS:
        found = protocol(x)
        if found is not None:
            return _view(*found, x)
    inner = getattr(x, "view", None)
    if isinstance(inner, View):  # as a tensor of an alias graph has one
        return inner
    raise TypeError(
        f"as_view: {type(x).__name__} is neither a View nor an array: it has no __array_interface__, __dlpack__, "
        "__cuda_array_interface__ or buffer; np.asarray(x) makes an array of it, perhaps with memory of its own"
    )


def _view(
    home: Allocation, address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, owner: object
) -> View:
    """Return the view, once it is known to lie in its address space."""
    form = _form_of(address, shape, strides, itemsize)
    cells = (*shape, itemsize)
    kind = _at_address(cells, (*strides, 1), address, owner)
    return view_of(cells, kind, (home,), None if form is None else home, form)


def _form_of(address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Strided | None:
    """Return the bytes of an array by address, once they are known to be addresses; None if there are none."""
    if 0 in shape or not itemsize:
        return None
    low = high = address
    axes: list[Levels] = []
    for axis, n in enumerate(shape):
        by = strides[axis]
        axes.append(((n, by),))
        if by < 0:
            low += (n - 1) * by
        else:
            high += (n - 1) * by
    if low < 0 or high > ADDRESSES - itemsize:
        raise ValueError(
            f"as_view: shape {quote(shape)} with strides {quote(strides)} from address {address:#x} reaches from "
            f"{low} to {high + itemsize}, beyond the addresses [0, 2**64); make the view within a buffer"
        )
    axes.append(((itemsize, 1),))
    return address, tuple(axes)


def strided_form_of(x: ViewLike) -> tuple[Allocation, Strided] | None:
    """Return the memory and a strided form of the cells of a view or an array, None if none is at hand or it is empty.

    The short way of NumPy's arrays, which need no view for this.

    Raises
    ------
    TypeError, ValueError
        As for `as_view`.
    """
    if isinstance(x, np.ndarray):
        if x.dtype.hasobject:
            raise _holds_objects(x)
        form = _form_of(_address_of(x), x.shape, x.strides, x.itemsize)
        return None if form is None else (MEMORY, form)
    return (x if isinstance(x, View) else as_view(x)).strided_cells()


_HEAD = object.__basicsize__
"""The bytes at which every object of CPython begins; those of an array go on with the address of its data."""
_number_at = ctypes.c_size_t.from_address


def _address_of(x: np.ndarray[Any, Any]) -> int:
    """Return where the data of NumPy's array begin, in an eighth of the time that its array interface takes.

    It is the first field of NumPy's `PyArrayObject`, which all compiled modules read there.
    """
    return _number_at(id(x) + _HEAD).value


def read_view(x: Any, where: str) -> View:
    """Return a view, or an array as one; errors say which argument it is."""
    if isinstance(x, View):
        return x
    try:
        return as_view(x)
    except Exception as error:  # of whatever class an array raises that is freed, or on another device
        raise told(error, where) from error


def read_views(views: object, what: str) -> list[View]:
    """Return views, and arrays as such; errors say which of them it is."""
    if isinstance(views, View) or not isinstance(views, Iterable) or hasattr(views, "dtype"):
        kind = type(views).__name__
        raise TypeError(f"{what}: views must be a sequence of views and arrays, not one {kind}; write [a, b]")
    given = as_items(views, f"{what}: views", "sequence of views and arrays")
    return [read_view(x, f"{what}: views[{k}]") for k, x in enumerate(given)]


def told(error: Exception, where: str) -> Exception:
    """Return an error with a place before its message: TooHard, or of the built-in type that it is derived from."""
    builtin = (TooHard, TypeError, ValueError, BufferError, RuntimeError)
    kind = next((kind for kind in builtin if isinstance(error, kind)), RuntimeError)
    return kind(f"{where}: {str(error).removeprefix('as_view: ')}")


def _holds_objects(x: object) -> ValueError:
    return ValueError(
        f"as_view: {type(x).__name__} holds Python objects, that is references, not values; its memory says nothing. "
        "Give its fields or columns that hold numbers"
    )


def _no_address(x: object, why: str) -> ValueError:
    return ValueError(f"as_view: {type(x).__name__} gives no address: {why}; np.asarray(x) makes an array with one")


def _row_by_row(shape: Sequence[int], step: int) -> tuple[int, ...]:
    """Return the strides of elements that lie without gaps in C order."""
    return tuple(accumulate(shape[:0:-1], mul, initial=step))[: len(shape)][::-1]


# ------------------------------------------------------------------------------------------- the array interfaces


def _by_array_interface(x: object) -> Layout | None:
    """Return what ``__array_interface__`` tells, None without it; NumPy's scalars give a copy's there."""
    interface = getattr(x, "__array_interface__", None)
    if not isinstance(interface, dict) or isinstance(x, np.generic):
        return None
    data = interface.get("data")
    if isinstance(data, bytes):
        raise _no_address(x, "the 'data' of its __array_interface__ are the bytes of a copy")
    if isinstance(data, tuple):
        address = data[0]
    else:  # a buffer, or the object's own
        _, address, *_ = _buffer(x if data is None else data) or (None, None)
        if address is None:
            raise _no_address(x, f"the 'data' of its __array_interface__ are {quote(data)}")
        address += interface.get("offset", 0)
    return _checked(x, Layout(MEMORY, address, *_typed(x, interface)))


def _by_cuda_array_interface(x: object) -> Layout | None:
    interface = getattr(x, "__cuda_array_interface__", None)
    if not isinstance(interface, dict):
        return None
    address = interface["data"][0]
    return _checked(x, Layout(_cuda_home(x, address), address, *_typed(x, interface)))


def _typed(x: object, interface: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return shape, strides and the bytes of an element from an array interface."""
    typestr = interface["typestr"]
    if "O" in typestr or _names_objects(interface.get("descr", ())):
        raise _holds_objects(x)
    try:
        itemsize = np.dtype(typestr).itemsize
    except TypeError:
        raise ValueError(
            f"as_view: {type(x).__name__} has elements of type {quote(typestr)}, of which the bytes are not known; "
            "give a view of it as bytes"
        ) from None
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    return shape, _row_by_row(shape, itemsize) if strides is None else tuple(strides), itemsize


def _checked(x: object, found: Layout) -> Layout:
    """Return what a dictionary tells as plain integers, once it makes sense."""
    try:
        address, itemsize = index(found.address), index(found.itemsize)
        shape, strides = tuple(map(index, found.shape)), tuple(map(index, found.strides))
    except TypeError:
        raise TypeError(
            f"as_view: {type(x).__name__} gives numbers that are not integers: {quote(found[1:])}"
        ) from None
    if len(shape) != len(strides) or min(shape, default=0) < 0:
        raise ValueError(
            f"as_view: {type(x).__name__} gives shape {quote(shape)} and strides {quote(strides)}; one stride for "
            "each axis and extents >= 0 are needed"
        )
    return Layout(found.home, address, shape, strides, itemsize)


def _names_objects(descr: Iterable[Any]) -> bool:
    """Whether a field of a structured type, at any depth, holds Python objects."""
    kinds = [entry[1] for entry in descr if len(entry) > 1]
    return any("O" in kind if isinstance(kind, str) else _names_objects(kind) for kind in kinds)


# ---------------------------------------------------------------------------------------------------- the devices

HOST = frozenset({1, 3, 11, 13})
"""DLPack's devices whose addresses are the host's: CPU, memory pinned by CUDA and by ROCm, CUDA's managed memory."""
CUDA, ROCM = 2, 10
DEVICES = {
    CUDA: "cuda",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    9: "vpi",
    ROCM: "rocm",
    12: "extension device",
    14: "oneapi",
    15: "webgpu",
    16: "hexagon",
    17: "maia",
    18: "trainium",
}
"""DLPack's other device types."""
SPACES: dict[tuple[int, int], Allocation] = {}
"""The address space of each device that has been met."""


def _home(device_type: int, number: int) -> Allocation:
    """Return the address space of a device, by DLPack's numbers for it."""
    if device_type in HOST:
        return MEMORY
    found = SPACES.get((device_type, number))
    if found is None:
        name = f"{DEVICES.get(device_type, f'DLPack device type {device_type}')}:{number}"
        found = SPACES.setdefault((device_type, number), allocate((ADDRESSES,), name=name))
    return found


def _cuda_home(x: object, address: int) -> Allocation:
    """Return the address space of an array with ``__cuda_array_interface__``, which names no device.

    The array's ``__dlpack_device__`` does, else CUDA's driver, which knows all addresses of a process. Without both
    it is device 0.
    """
    ask = getattr(x, "__dlpack_device__", None)
    return _home(*(_device_of_address(address) if ask is None else map(int, ask())))


def _device_of_address(address: int) -> tuple[int, int]:
    """Return DLPack's numbers for the device on which CUDA's driver says that an address lies."""
    driver = _cuda_driver()
    if driver is None:
        return CUDA, 0
    managed, number = ctypes.c_int(0), ctypes.c_int(0)  # an attribute that cannot be told leaves its zero
    driver.cuPointerGetAttribute(ctypes.byref(managed), 8, ctypes.c_uint64(address))
    driver.cuPointerGetAttribute(ctypes.byref(number), 9, ctypes.c_uint64(address))
    return (13, 0) if managed.value else (CUDA, number.value)


def _cuda_driver() -> Any:
    """Return CUDA's driver library, None where there is none."""
    for name in ("libcuda.so.1", "nvcuda.dll"):
        with suppress(OSError):
            return ctypes.CDLL(name)
    return None


# --------------------------------------------------------------------------------------------------------- DLPack


class DLTensor(ctypes.Structure):
    """DLPack's tensor, as its C header has it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DLManagedTensorVersioned(ctypes.Structure):
    """DLPack's tensor with its version and flags; a ``DLManagedTensor`` without a version begins with the tensor."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


IS_COPIED, IS_PADDED = 2, 4
"""Flags: the data were copied for the export; elements of less than a byte lie in one byte each."""
NEWEST = (1, 1)
"""The version of DLPack that is read here."""

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


def _by_dlpack(x: object) -> Layout | None:
    """Return what a capsule of ``__dlpack__`` tells, None without it or where another protocol takes its place."""
    if not hasattr(x, "__dlpack__") or isinstance(x, type):
        return None
    if getattr(x, "requires_grad", False) is True and hasattr(x, "detach"):
        x = x.detach()  # PyTorch exports no tensor that requires a gradient
    try:
        capsule = _capsule(x)
    except Exception as error:
        if hasattr(x, "__cuda_array_interface__"):
            return None
        why = "is it freed, sparse or without memory? np.asarray(x) makes an array with memory of its own"
        raise told(error, f"as_view: {type(x).__name__}.__dlpack__ gives no address; {why}") from error
    return _layout(x, *_read(x, capsule))  # the capsule, when it is dropped, calls the exporter's deleter


def _capsule(x: Any) -> object:
    """Return the capsule of an array, without waiting for a GPU's work and without a copy where that can be said."""
    on_gpu = hasattr(x, "__dlpack_device__") and x.__dlpack_device__()[0] in (CUDA, ROCM)
    stream = {"stream": -1} if on_gpu else {}
    try:
        return x.__dlpack__(max_version=NEWEST, copy=False, **stream)
    except TypeError:  # the words of DLPack 1.0 are not known
        return x.__dlpack__(**stream)


def _read(x: object, capsule: object) -> tuple[DLTensor, int]:
    """Return the tensor in a capsule, and its flags."""
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = DLManagedTensorVersioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        if managed.major > NEWEST[0]:
            raise ValueError(
                f"as_view: {type(x).__name__} speaks version {managed.major}.{managed.minor} of DLPack; versions up to "
                f"{NEWEST[0]} can be read. np.from_dlpack(x) may read it"
            )
        return managed.tensor, managed.flags
    if _is_valid(capsule, b"dltensor"):
        return DLTensor.from_address(_pointer_of(capsule, b"dltensor")), 0
    raise ValueError(
        f"as_view: {type(x).__name__}.__dlpack__ returned no unused capsule of a tensor but {quote(capsule)}"
    )


def _layout(x: object, tensor: DLTensor, flags: int) -> Layout:
    if flags & IS_COPIED:
        raise _no_address(x, "its __dlpack__ exports a copy")
    bits = tensor.bits * tensor.lanes
    if flags & IS_PADDED:
        bits = -(-bits // 8) * 8
    if bits % 8:
        raise ValueError(
            f"as_view: {type(x).__name__} has elements of {bits} bits, which share bytes; give a view of it as bytes"
        )
    itemsize, shape = bits // 8, tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    if not tensor.data and 0 not in shape:
        raise _no_address(x, "its data are at address 0, as those of tensors without values are")
    if tensor.strides and tensor.ndim:
        strides = tuple([itemsize * by for by in tensor.strides[: tensor.ndim]])
    else:
        strides = _row_by_row(shape, itemsize)
    address = (tensor.data or 0) + tensor.byte_offset
    return Layout(_home(tensor.device_type, tensor.device_id), address, shape, strides, itemsize)


# ---------------------------------------------------------------------------------------------------- the buffers


WORDS = 16
"""More than a `Py_buffer` has, the first of which is the address."""
FULL_READ_ONLY = 0x11C
"""CPython's PyBUF_FULL_RO: any layout, with format."""

_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.restype, _get_buffer.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.restype, _release_buffer.argtypes = None, (ctypes.c_void_p,)
_has_buffer = ctypes.pythonapi.PyObject_CheckBuffer
_has_buffer.restype, _has_buffer.argtypes = ctypes.c_int, (ctypes.py_object,)


def _buffer(x: object) -> Layout | None:
    """Return what the buffer protocol tells, None without it; closed and released buffers raise ValueError."""
    if not _has_buffer(x):
        return None
    try:
        held = memoryview(x)  # type: ignore[arg-type]
    except Exception as error:
        why = "what is closed or released has no memory"
        raise told(error, f"as_view: {type(x).__name__} gives no buffer; {why}") from error
    words = (ctypes.c_void_p * WORDS)()
    with held:
        _get_buffer(held, words, FULL_READ_ONLY)
        _release_buffer(words)
        if "O" in "".join(held.format.split(":")[::2]):  # between colons are the names of fields
            raise _holds_objects(x)
        if any(by >= 0 for by in held.suboffsets or ()):
            raise _no_address(x, "its rows lie behind pointers")
        return Layout(MEMORY, words[0] or 0, held.shape or (), held.strides or (), held.itemsize)


PROTOCOLS: tuple[Callable[[object], Layout | None], ...] = (
    _by_array_interface,
    _by_dlpack,
    _by_cuda_array_interface,
    _buffer,
)
"""How an array is asked where it lies, the first that it speaks."""
