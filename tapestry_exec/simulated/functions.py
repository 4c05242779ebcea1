"""Functions on simulated arrays: CuPy's, with CuPy's parameters and no others."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, cast

import numpy as np

from tapestry_exec.simulated.arrays import (
    DeviceArray,
    HostArray,
    bound,
    check_repeated,
    device_dtype,
    refuse,
    signature_of,
)
from tapestry_exec.simulated.machine import Machine

UFUNCS = """
abs absolute acos acosh add arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh
bitwise_and bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor cbrt ceil
conjugate copysign cos cosh deg2rad degrees divide equal exp exp2 expm1 fabs float_power floor floor_divide fmax fmin
fmod gcd greater greater_equal heaviside hypot invert isfinite isinf isnan lcm ldexp left_shift less less_equal log
log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor maximum minimum mod multiply
negative nextafter not_equal positive pow power rad2deg radians reciprocal remainder right_shift rint sign signbit sin
sinh sqrt square subtract tan tanh true_divide trunc
"""
"""Functions of NumPy that CuPy has, cell by cell, with one output."""

FOLDED = ("add", "multiply")
"""Functions whose `reduce` and `accumulate` CuPy has."""
SCATTERED = {
    "add": ("int32", "float16", "float32", "float64", "uint32", "uint64"),
    "maximum": ("int32", "float32", "float64", "uint32", "uint64"),
    "minimum": ("int32", "float32", "float64", "uint32", "uint64"),
}
"""Functions whose `at` CuPy has, by atomic operations, in no certain order, and the dtypes that it takes."""

FUNCTIONS = """
all(a, axis=None, out=None, keepdims=False)
any(a, axis=None, out=None, keepdims=False)
amax(a, axis=None, out=None, keepdims=False)
amin(a, axis=None, out=None, keepdims=False)
argmax(a, axis=None, dtype=None, out=None, keepdims=False)
argmin(a, axis=None, dtype=None, out=None, keepdims=False)
argsort(a, axis=-1, kind=None)
argpartition(a, kth, axis=-1)
atleast_1d(*arys)
atleast_2d(*arys)
broadcast_to(array, shape)
clip(a, a_min, a_max, out=None)
concat(tup, axis=0, out=None, *, dtype=None, casting='same_kind')
concatenate(tup, axis=0, out=None, *, dtype=None, casting='same_kind')
copy(a, order='K')
count_nonzero(a, axis=None)
cumprod(a, axis=None, dtype=None, out=None)
cumsum(a, axis=None, dtype=None, out=None)
diag(v, k=0)
diagonal(a, offset=0, axis1=0, axis2=1)
diff(a, n=1, axis=-1, prepend=None, append=None)
dot(a, b, out=None)
einsum(*operands, dtype=None, optimize=False)
expand_dims(a, axis)
flip(a, axis=None)
hstack(tup, *, dtype=None, casting='same_kind')
inner(a, b)
isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False)
kron(a, b)
matmul(*args, axes=None, axis=None, keepdims=False, casting='same_kind', dtype=None, out=None)
matrix_transpose(x, /)
max(a, axis=None, out=None, keepdims=False)
mean(a, axis=None, dtype=None, out=None, keepdims=False)
median(a, axis=None, out=None, overwrite_input=False, keepdims=False)
min(a, axis=None, out=None, keepdims=False)
moveaxis(a, source, destination)
nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None)
nanmax(a, axis=None, out=None, keepdims=False)
nanmin(a, axis=None, out=None, keepdims=False)
nansum(a, axis=None, dtype=None, out=None, keepdims=False)
outer(a, b, out=None)
pad(array, pad_width, mode='constant', **kwargs)
permute_dims(a, axes=None)
prod(a, axis=None, dtype=None, out=None, keepdims=False)
ptp(a, axis=None, out=None, keepdims=False)
ravel(a, order='C')
repeat(a, repeats, axis=None)
reshape(a, newshape, order='C', *, copy=None)
roll(a, shift, axis=None)
rollaxis(a, axis, start=0)
round(a, decimals=0, out=None)
searchsorted(a, v, side='left', sorter=None)
sort(a, axis=-1, kind=None)
squeeze(a, axis=None)
stack(tup, axis=0, out=None, *, dtype=None, casting='same_kind')
std(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False)
sum(a, axis=None, dtype=None, out=None, keepdims=False)
swapaxes(a, axis1, axis2)
take(a, indices, axis=None, out=None)
take_along_axis(a, indices, axis)
tensordot(a, b, axes=2)
tile(A, reps)
trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None)
transpose(a, axes=None)
tril(m, k=0)
triu(m, k=0)
var(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False)
vdot(a, b)
vstack(tup, *, dtype=None, casting='same_kind')
where(condition, x=None, y=None)
"""
"""Functions of device arrays that NumPy has too, with CuPy's parameters; no others are offered."""

PRODUCTS = "matmul", "dot", "inner", "tensordot", "einsum"
"""Functions that CuPy computes by cuBLAS, for some dtypes and shapes: while a graph is captured they are refused."""

CREATORS = """
arange(start, stop=None, step=1, dtype=None)
eye(N, M=None, k=0, dtype=float, order='C')
full(shape, fill_value, dtype=None, order='C')
full_like(a, fill_value, dtype=None, order='K', subok=None, shape=None)
identity(n, dtype=float)
linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0)
ones(shape, dtype=float, order='C')
ones_like(a, dtype=None, order='K', subok=None, shape=None)
tri(N, M=None, k=0, dtype=float)
zeros(shape, dtype=float, order='C')
zeros_like(a, dtype=None, order='K', subok=None, shape=None)
"""
"""Functions that make arrays, with CuPy's parameters; what they are like is not read."""

WAITING = ("flatnonzero(a)", "argwhere(a)", "nonzero(a)", "unique(ar)", "compress(condition, a, axis=None, out=None)")
"""Functions whose result's shape depends on values: the host waits for the device."""

SAME = """
bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 intp pi e inf nan
newaxis dtype finfo iinfo issubdtype can_cast promote_types
"""
"""Names that mean the same in CuPy as in NumPy."""

SUPPORTED_KEYWORDS = ("out", "casting", "dtype")


class Ufunc:
    """A function cell by cell, with the keywords that CuPy's have."""

    def __init__(self, machine: Machine, name: str, library: Any = np) -> None:
        self._machine, self._numpy = machine, getattr(library, name)
        self.__name__ = name
        self.nin, self.nout = self._numpy.nin, self._numpy.nout

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply it; `out`, `casting` and `dtype` are its only keywords."""
        unknown = [key for key in kwargs if key not in SUPPORTED_KEYWORDS]
        if unknown:
            raise TypeError(f"Wrong arguments {unknown}: {self.__name__} takes {SUPPORTED_KEYWORDS}")
        *inputs, out = args if len(args) > self.nin else (*args, kwargs.pop("out", None))
        if len(inputs) != self.nin:
            raise TypeError(f"{self.__name__} takes {self.nin} operands, {len(inputs)} are given")
        return self._machine.call(self.__name__, self._numpy, inputs, kwargs, out)

    def at(self, a: DeviceArray, indices: Any, b: Any = None) -> None:
        """Combine cells with values, in no certain order.

        Raises
        ------
        NotImplementedError, TypeError
            For functions and dtypes that CuPy does not do so.
        """
        if self.__name__ not in SCATTERED:
            raise NotImplementedError(f"`cupy_{self.__name__}.at` is not supported yet")
        if a.dtype.name not in SCATTERED[self.__name__]:
            raise TypeError(f"{self.__name__}.at only supports {SCATTERED[self.__name__]} as data type")
        refuse(b)
        places, arrays = a._places(indices)
        value = b._view if isinstance(b, DeviceArray) else b
        reads = [a._view, *(one._view for one in arrays), *([value] if isinstance(b, DeviceArray) else [])]
        target, known = a._view, a._known(places)
        self._machine.submit(f"{self.__name__}.at", reads, [target], lambda: self._combine(target, known(), value))

    def _combine(self, target: HostArray, places: Any, value: Any) -> None:
        """Combine in an order of its own, which the machine's seed says."""
        numbers = np.arange(target.size).reshape(target.shape)[places]
        each = np.broadcast_to(np.asarray(value), numbers.shape).ravel()
        turn = self._machine.shuffled(numbers.size)
        self._numpy.at(target, np.unravel_index(numbers.ravel()[turn], target.shape), each[turn])

    def reduce(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """Fold an axis."""
        if self.__name__ not in FOLDED:
            raise NotImplementedError(f"`cupy_{self.__name__}.reduce` is not supported yet")
        return self._machine.call(
            f"{self.__name__}.reduce",
            self._numpy.reduce,
            [array],
            {"axis": axis, "dtype": dtype, "keepdims": keepdims},
            out,
        )

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """Running results along an axis."""
        if self.__name__ not in FOLDED:
            raise NotImplementedError(f"`cupy_{self.__name__}.accumulate` is not supported yet")
        name = f"{self.__name__}.accumulate"
        return self._machine.call(name, self._numpy.accumulate, [array], {"axis": axis, "dtype": dtype}, out)


def functions_of(machine: Machine, array: type[DeviceArray]) -> dict[str, Any]:
    """The functions of arrays of a machine, by name."""
    found: dict[str, Any] = {name: Ufunc(machine, name) for name in UFUNCS.split()}
    for line in FUNCTIONS.strip().splitlines():
        name, signature = signature_of(line)
        found[name] = _checked(machine, name, signature, _numpy_function(machine, name))
    for line in CREATORS.strip().splitlines():
        name, signature = signature_of(line)
        found[name] = _creator(machine, name, signature)
    for line in WAITING:
        name, signature = signature_of(line)
        found[name] = _waiting(machine, name, signature)
    return found | _making(machine, array) | _writing(machine, array)


def _numpy_function(machine: Machine, name: str) -> Callable[..., Any]:
    """NumPy's function, but for what CuPy does in another way."""
    if name == "take":
        return lambda a, indices, axis=None, out=None: np.take(a, machine.indices(indices), axis, out)
    if name == "take_along_axis":
        return lambda a, indices, axis: np.take_along_axis(a, machine.indices(indices), axis)
    return cast("Callable[..., Any]", getattr(np, name))


def _checked(
    machine: Machine, name: str, signature: inspect.Signature, function: Callable[..., Any]
) -> Callable[..., Any]:
    """A function that takes CuPy's parameters and no others."""

    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(bound(name, signature, args, kwargs).arguments)
        if name == "where" and "x" not in given:
            return machine.functions["nonzero"](*args)
        if name in ("argsort", "sort") and given.get("kind") not in (None, "stable"):
            raise ValueError("kind can only be None or 'stable'")
        out = given.pop("out", None)
        inspect_args = inspect.BoundArguments(signature, given)
        if name in PRODUCTS and is_by_cublas(name, given) and machine.is_capturing(machine.stream()):
            raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")
        return machine.call(name, function, list(inspect_args.args), inspect_args.kwargs, out)

    call.__name__ = name
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


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


def _creator(machine: Machine, name: str, signature: inspect.Signature) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        wanted = bound(name, signature, args, kwargs).arguments
        if wanted.get("dtype") is not None:
            device_dtype(wanted["dtype"])
        if name.endswith("_like"):  # only what it is like is asked for, which its dtype and shape say
            like: Any = wanted["a"]
            refuse(like)
            wanted["a"] = np.broadcast_to(np.zeros((), like._view.dtype), like.shape)
        refuse(wanted.get("fill_value"))
        given = {key: value for key, value in wanted.items() if value is not None}
        filled = inspect.BoundArguments(signature, given)
        return machine.compute(name, lambda: getattr(np, name)(*filled.args, **filled.kwargs), [])

    call.__name__ = name
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _waiting(machine: Machine, name: str, signature: inspect.Signature) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        found = bound(name, signature, args, kwargs)
        machine.wait_for_host(name)
        return machine.call(name, getattr(np, name), list(found.args), found.kwargs, None)

    call.__name__ = name
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _making(machine: Machine, array: type[DeviceArray]) -> dict[str, Any]:
    """Functions that make arrays without computing, and those to and from the host."""

    def empty(shape: Any, dtype: Any = float, order: str = "C") -> DeviceArray:
        return array(shape, dtype, order=order)

    def empty_like(
        prototype: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
    ) -> DeviceArray:
        return array(prototype.shape if shape is None else shape, dtype or prototype.dtype)

    def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: bool = False) -> Any:
        if isinstance(a, array):
            return a if dtype is None else a.astype(dtype, copy=False)
        host = np.asarray(a, dtype)
        made = array(host.shape, host.dtype)
        machine.upload(host, made._view, None)
        return made

    def array_(
        obj: Any,
        dtype: Any = None,
        copy: bool = True,
        order: str = "K",
        subok: bool = False,
        ndmin: int = 0,
        *,
        blocking: bool = False,
    ) -> Any:
        made = asarray(obj, dtype)
        return made.copy() if copy and made is obj else made

    def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
        made = asarray(a, dtype)
        return made if made.flags.c_contiguous else made.copy()

    def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> HostArray:
        if isinstance(a, array):
            return a.get(stream, order, out, blocking)
        return np.asarray(a)

    made = empty, empty_like, asarray, array_, ascontiguousarray, asnumpy
    return {function.__name__.rstrip("_"): function for function in made}


def _writing(machine: Machine, array: type[DeviceArray]) -> dict[str, Any]:
    """Functions that write into an array, and those of dtypes."""

    def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = None) -> None:
        if isinstance(src, np.ndarray):
            if src.size != 1:
                raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
            src = src.reshape(())[()]
        refuse(where)
        value = src._view if isinstance(src, array) else src
        mask: Any = True if where is None else where._view if isinstance(where, array) else where
        reads = [one._view for one in (src, where) if isinstance(one, array)]
        if where is not None:
            reads.append(dst._view)  # cells that are left alone must be there
        if isinstance(value, np.ndarray | np.generic) and not np.can_cast(value.dtype, dst.dtype, casting):
            raise TypeError(f"Cannot cast {value.dtype} to {dst.dtype} in {casting} casting mode")
        target = dst._view
        machine.submit("copyto", reads, [target], lambda: np.copyto(target, value, casting="unsafe", where=mask))

    def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> None:
        value = values._view if isinstance(values, array) else values
        refuse(values)
        reads = [indices._view, *([value] if isinstance(values, array) else [])]

        target, places = arr._view, indices._view

        def put() -> None:
            numbers = np.arange(target.size).reshape(target.shape)
            at = machine.indices(places)
            check_repeated("put_along_axis", np.take_along_axis(numbers, at, axis), value)
            np.put_along_axis(target, at, value, axis)

        machine.submit("put_along_axis", reads, [target], put)

    def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
        found: np.dtype[Any] = np.result_type(*(x._view if isinstance(x, array) else x for x in arrays_and_dtypes))
        return found

    def astype(x: Any, dtype: Any, /, *, copy: bool = True) -> Any:
        return x.astype(dtype, copy=copy)

    return {function.__name__: function for function in (copyto, put_along_axis, result_type, astype)}


def as_strided(x: DeviceArray, shape: Any = None, strides: Any = None) -> DeviceArray:
    """A view with any shape and strides that stay in the memory."""
    return type(x)(x.shape if shape is None else shape, x.dtype, x.data, x.strides if strides is None else strides)
