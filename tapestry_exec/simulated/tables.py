"""The functions of NumPy that CuPy has, with their parameters: no others are offered.

A line of a table is names of functions and then the parameters that each of them takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Signature, signature


def signatures_of(table: str) -> dict[str, Signature]:
    """Parameters by name, from a table.

    Examples
    --------
    >>> {name: str(parameters) for name, parameters in signatures_of("inner vdot (a, b)").items()}
    {'inner': '(a, b)', 'vdot': '(a, b)'}
    """
    lines = (line.split(" (") for line in table.strip().splitlines())
    return {name: signature(eval(f"lambda {given[:-1]}: None")) for names, given in lines for name in names.split()}


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

SUPPORTED_KEYWORDS = "out", "casting", "dtype"
"""Of functions cell by cell."""
FOLDED = "add", "multiply"
"""Functions whose `reduce` and `accumulate` CuPy has."""
SCATTERED = {
    "add": ("int32", "float16", "float32", "float64", "uint32", "uint64"),
    **dict.fromkeys(("maximum", "minimum"), ("int32", "float32", "float64", "uint32", "uint64")),
}
"""Functions whose `at` CuPy has, by atomic operations, in no certain order, and the dtypes that it takes."""

FUNCTIONS: Mapping[str, Signature] = signatures_of("""
all any amax amin max min nanmax nanmin ptp (a, axis=None, out=None, keepdims=False)
argmax argmin mean nansum prod sum (a, axis=None, dtype=None, out=None, keepdims=False)
std var (a, axis=None, dtype=None, out=None, ddof=0, keepdims=False)
median (a, axis=None, out=None, overwrite_input=False, keepdims=False)
cumprod cumsum (a, axis=None, dtype=None, out=None)
argsort sort (a, axis=-1, kind=None)
argpartition (a, kth, axis=-1)
searchsorted (a, v, side='left', sorter=None)
count_nonzero flip squeeze (a, axis=None)
diff (a, n=1, axis=-1, prepend=None, append=None)
clip (a, a_min, a_max, out=None)
nan_to_num (x, copy=True, nan=0.0, posinf=None, neginf=None)
round (a, decimals=0, out=None)
isclose (a, b, rtol=1e-05, atol=1e-08, equal_nan=False)
where (condition, x=None, y=None)
inner kron vdot (a, b)
dot outer (a, b, out=None)
matmul (*args, axes=None, axis=None, keepdims=False, casting='same_kind', dtype=None, out=None)
tensordot (a, b, axes=2)
einsum (*operands, dtype=None, optimize=False)
trace (a, offset=0, axis1=0, axis2=1, dtype=None, out=None)
diagonal (a, offset=0, axis1=0, axis2=1)
diag (v, k=0)
tril triu (m, k=0)
take (a, indices, axis=None, out=None)
take_along_axis (a, indices, axis)
concat concatenate stack (tup, axis=0, out=None, *, dtype=None, casting='same_kind')
hstack vstack (tup, *, dtype=None, casting='same_kind')
pad (array, pad_width, mode='constant', **kwargs)
repeat (a, repeats, axis=None)
roll (a, shift, axis=None)
tile (A, reps)
broadcast_to (array, shape)
copy (a, order='K')
reshape (a, newshape, order='C', *, copy=None)
ravel (a, order='C')
atleast_1d atleast_2d (*arys)
expand_dims (a, axis)
permute_dims transpose (a, axes=None)
matrix_transpose (x, /)
moveaxis (a, source, destination)
rollaxis (a, axis, start=0)
swapaxes (a, axis1, axis2)
""")
"""Functions of device arrays that NumPy has too."""

PRODUCTS = "matmul", "dot", "inner", "tensordot", "einsum"
"""Functions that CuPy computes by cuBLAS, for some dtypes and shapes: while a graph is captured they are refused."""

CREATORS: Mapping[str, Signature] = signatures_of("""
ones zeros (shape, dtype=float, order='C')
full (shape, fill_value, dtype=None, order='C')
ones_like zeros_like (a, dtype=None, order='K', subok=None, shape=None)
full_like (a, fill_value, dtype=None, order='K', subok=None, shape=None)
arange (start, stop=None, step=1, dtype=None)
linspace (start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0)
eye (N, M=None, k=0, dtype=float, order='C')
identity (n, dtype=float)
tri (N, M=None, k=0, dtype=float)
""")
"""Functions that make arrays; what they are like is not read."""

WAITING: Mapping[str, Signature] = signatures_of("""
argwhere flatnonzero nonzero (a)
unique (ar)
compress (condition, a, axis=None, out=None)
""")
"""Functions whose result's shape depends on values: the host waits for the device."""

SHARED = """
all any argsort cumprod cumsum diagonal dot max mean min ptp ravel repeat round searchsorted squeeze std sum swapaxes
take trace var
"""
"""Methods that have the parameters of the function of their name behind its first one."""
METHODS: Mapping[str, Signature] = {
    **{name: Signature([*FUNCTIONS[name].parameters.values()][1:]) for name in SHARED.split()},
    **signatures_of("""
argmax argmin (axis=None, out=None, dtype=None, keepdims=False)
clip (min=None, max=None, out=None)
copy (order='C')
prod (axis=None, dtype=None, out=None, keepdims=None)
"""),
}
"""Methods that are functions of the same name."""
RENAMED = {("clip", "min"): "a_min", ("clip", "max"): "a_max"}
"""Parameters of methods that are called otherwise in the functions."""

SAME = """
bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 intp pi e inf nan
newaxis dtype finfo iinfo issubdtype can_cast promote_types
"""
"""Names that mean the same in CuPy as in NumPy."""
