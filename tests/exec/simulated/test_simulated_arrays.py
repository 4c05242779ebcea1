"""Arrays of simulated devices: CuPy's names and parameters, CuPy's refusals, NumPy's results."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_exec.run.backends import OrderingFault
from tapestry_exec.simulated import namespace as simulated
from tapestry_exec.simulated.tables import (
    CREATORS,
    FOLDED,
    FUNCTIONS,
    METHODS,
    SAME,
    SCATTERED,
    SUPPORTED_KEYWORDS,
    UFUNCS,
    WAITING,
)

XP = simulated.cupy(1)
OURS = {"cublas_library", "mark_block", "mark_host", "mark_moved", "checker", "special"}
"""What the simulated module has more than CuPy, for the backend's tests."""
INNER = {"machine", "call", "compute", "capture"}
"""Attributes of simulated classes that only the simulation uses."""


@pytest.fixture(scope="module")
def cupy() -> Any:
    """The real CuPy: it is imported without a driver; nothing here needs a GPU."""
    missing = "CuPy is not installed: pip install tapestry-tensor[cuda13]"
    return pytest.importorskip("cupy", reason=missing, exc_type=ImportError)


# -- names and parameters against CuPy itself -----------------------------------------------------------------

Parameter = tuple[str, bool, Any]
"""A parameter's name, whether it may be given by place, and its default."""
NONE = "no default"


def parameters_of(function: Any) -> tuple[list[Parameter], bool]:
    """A function's parameters without `self`, and whether it takes any keyword; Cython writes them into docstrings."""
    first = (function.__doc__ or "").strip().split("\n")[0]
    if inspect.isclass(function) and "(" in first:
        return described(first)
    try:
        signature = inspect.signature(function)
    except ValueError:
        return described(first)
    kinds = inspect.Parameter
    found = [
        (
            ("*" if p.kind is kinds.VAR_POSITIONAL else "") + p.name,
            p.kind is not kinds.KEYWORD_ONLY,
            NONE if p.default is kinds.empty else p.default,
        )
        for p in signature.parameters.values()
        if p.kind is not kinds.VAR_KEYWORD and p.name != "self"
    ]
    return found, any(p.kind is kinds.VAR_KEYWORD for p in signature.parameters.values())


def described(line: str) -> tuple[list[Parameter], bool]:
    """Parameters as a docstring's first line has them: ``name(type name=default, *, …) -> type``."""
    inner = line[line.index("(") + 1 : line.split(" -> ")[0].rindex(")")]
    found: list[Parameter] = []
    by_place, takes_any = True, False
    for part in filter(None, (part.strip() for part in inner.split(", "))):
        name, _, default = part.partition("=")
        name = name.split()[-1]
        if name.startswith("**"):
            takes_any = True
        elif name == "*":
            by_place = False
        elif name != "self":
            found.append((name, by_place, NONE if not default else value_of(default)))
    return found, takes_any


def value_of(text: str) -> Any:
    if text.startswith("_"):  # a name of CuPy's own
        return text
    return float if text == "float" else ast.literal_eval(text)


def test_parameters_are_read_from_docstrings() -> None:
    assert described("A.dot(self, T b, T out=None) -> T") == ([("b", True, NONE), ("out", True, None)], False)
    assert described("f(*args, int n=-1, *, order='C', **kwargs)") == (
        [("*args", True, NONE), ("n", True, -1), ("order", False, "C")],
        True,
    )


def check_parameters(name: str, ours: Any, theirs: Any) -> None:
    """All of ours are theirs: the same places, the same defaults."""
    mine, _ = parameters_of(ours)
    real, takes_any = parameters_of(theirs)
    places = [p for p, by_place, _ in real if by_place]
    defaults = {p: default for p, _, default in real}
    for k, (parameter, by_place, default) in enumerate(mine):
        if parameter not in defaults:
            assert takes_any and not parameter.startswith("*"), f"CuPy's {name} has no parameter {parameter}: {real}"
            continue
        assert repr(default) == repr(defaults[parameter]), f"{name}: {parameter} is {defaults[parameter]!r} in CuPy's"
        if by_place and not any(p.startswith("*") for p in places):
            assert places[k : k + 1] == [parameter], f"{name}: {parameter} is in another place in CuPy's: {real}"


@pytest.mark.parametrize("name", [*FUNCTIONS, *CREATORS, *WAITING])
def test_functions_have_cupys_parameters(cupy: Any, name: str) -> None:
    check_parameters(name, getattr(XP, name), getattr(cupy, name))


SPECIAL = ("empty", "empty_like", "asarray", "array", "ascontiguousarray", "asnumpy", "copyto", "put_along_axis")


@pytest.mark.parametrize("name", [*SPECIAL, "astype"])
def test_functions_of_their_own_have_cupys_parameters(cupy: Any, name: str) -> None:
    check_parameters(name, getattr(XP, name), getattr(cupy, name))


def test_every_name_of_the_module_is_cupys(cupy: Any) -> None:
    names = {name for name in vars(XP) if not name.startswith("_")}
    assert {name for name in names if not hasattr(cupy, name)} == OURS
    for name in SAME.split():
        ours, theirs = getattr(np, name), getattr(cupy, name)
        assert callable(theirs) if inspect.isroutine(ours) else ours is theirs or ours == theirs, name
    assert XP.__version__.split(".")[0] == cupy.__version__.split(".")[0]
    check_parameters("as_strided", XP.lib.stride_tricks.as_strided, cupy.lib.stride_tricks.as_strided)


@pytest.mark.parametrize("name", UFUNCS.split())
def test_ufuncs_are_cupys(cupy: Any, name: str) -> None:
    ours, theirs = getattr(XP, name), getattr(cupy, name)
    assert (ours.nin, ours.nout) == (theirs.nin, theirs.nout)
    for keyword in ("where", "order", "subok", "axis", "keepdims", "initial"):
        assert keyword not in SUPPORTED_KEYWORDS
        with pytest.raises(TypeError, match="Wrong arguments"):
            theirs(*[1] * theirs.nin, **{keyword: None})


def refuses(method: Callable[..., Any], count: int) -> bool:
    """Whether CuPy says of a method that it is not there yet, before it looks at its operands."""
    try:
        method(*[None] * count)
    except NotImplementedError:
        return True
    except (AttributeError, TypeError, ValueError):
        return False
    raise AssertionError("None is not an operand")


@pytest.mark.parametrize("name", UFUNCS.split())
def test_methods_of_ufuncs_that_cupy_has(cupy: Any, name: str) -> None:
    """Whatever is offered here is in CuPy; what is refused here may be."""
    ufunc = getattr(cupy, name)
    for method, count, offered in (("at", 3, SCATTERED), ("reduce", 1, FOLDED), ("accumulate", 1, FOLDED)):
        if name in offered:
            assert not refuses(getattr(ufunc, method), count), f"CuPy has no {name}.{method}"
        else:
            with pytest.raises(NotImplementedError):
                getattr(getattr(XP, name), method)(XP.zeros(3), *[0] * (count - 1))


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and name not in INNER]


KINDS = ("Stream", "Event", "Device", "MemoryPool", "MemoryPointer", "Memory", "Graph")


@pytest.mark.parametrize("name", ["ndarray", "RawModule", *KINDS])
def test_classes_have_cupys_methods(cupy: Any, name: str) -> None:
    ours, theirs = (getattr(space, name, None) or getattr(space.cuda, name) for space in (XP, cupy))
    check_parameters(name, ours.__init__, theirs)
    for method in public(ours):
        assert hasattr(theirs, method), f"CuPy's {name} has no {method}"
        if callable(getattr(ours, method)) and not isinstance(getattr(ours, method), ours):
            check_parameters(f"{name}.{method}", getattr(ours, method), getattr(theirs, method))


def test_what_cuda_offers_is_cupys(cupy: Any) -> None:
    for name, found in vars(XP.cuda).items():
        if name == "nccl" and not hasattr(cupy.cuda, name):
            continue  # which CuPy has where the library is; `test_nccl.py` compares it there
        assert hasattr(cupy.cuda, name), name
        if callable(found) and name not in KINDS:
            check_parameters(name, found, getattr(cupy.cuda, name))
    for name, found in vars(XP.cuda.runtime).items():
        real = getattr(cupy.cuda.runtime, name)
        if isinstance(found, int):
            assert found == real, name
        elif not inspect.isclass(found):
            check_parameters(name, found, real)
    assert issubclass(cupy.cuda.runtime.CUDARuntimeError, RuntimeError)
    assert issubclass(cupy.cuda.compiler.CompileException, Exception)
    assert "shared_mem=0" in cupy.RawKernel.__call__.__doc__


# -- results are NumPy's --------------------------------------------------------------------------------------

A = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
B = np.random.default_rng(2).normal(size=(4, 5)).astype(np.float32)
V, W = A[0].copy(), B[0].copy()
AT = np.array([[3, 0, 1, 1], [2, 2, 0, 3]])
ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "argpartition": ((V, 2), {}),
    "broadcast_to": ((V, (3, 5)), {}),
    "clip": ((A, -0.5, 0.5), {}),
    "concat": (([A, B],), {"axis": 1}),
    "concatenate": (([A, B],), {"axis": 0}),
    "dot": ((A, B.T.copy()), {}),
    "einsum": (("ij,kj->ik", A, B), {}),
    "expand_dims": ((A, 1), {}),
    "hstack": (([A, B],), {}),
    "vstack": (([A, B],), {}),
    "stack": (([A, B],), {"axis": 1}),
    "inner": ((V, W), {}),
    "isclose": ((A, A + 1e-9), {}),
    "kron": ((V, W), {}),
    "matmul": ((A, B.T.copy()), {}),
    "moveaxis": ((A, 0, 1), {}),
    "outer": ((V, W), {}),
    "pad": ((A, ((1, 2), (0, 3))), {"mode": "edge"}),
    "repeat": ((A, 3), {"axis": 1}),
    "reshape": ((A, (2, 10)), {}),
    "roll": ((A, 2), {"axis": 1}),
    "rollaxis": ((A, 1), {}),
    "searchsorted": ((np.sort(V), W), {"side": "right"}),
    "squeeze": ((A[:, :1].copy(),), {"axis": 1}),
    "swapaxes": ((A, 0, 1), {}),
    "take": ((A, AT), {"axis": 0}),
    "take_along_axis": ((A.T.copy(), AT), {"axis": 0}),
    "tensordot": ((A, B), {"axes": 2}),
    "tile": ((A, (2, 1)), {}),
    "vdot": ((V, W), {}),
    "where": ((A > 0, A, B), {}),
    "trace": ((A,), {"offset": 1}),
    "diag": ((V,), {"k": 1}),
    "count_nonzero": ((A > 0,), {}),
}


def on_device(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return XP.asarray(value)
    return [on_device(one) for one in value] if isinstance(value, list) else value


def compare(found: Any, wanted: Any) -> None:
    wanted = np.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert found.get().tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_give_numpys_results(name: str) -> None:
    args, kwargs = ARGUMENTS.get(name, ((A,), {}))
    compare(getattr(XP, name)(*map(on_device, args), **kwargs), getattr(np, name)(*args, **kwargs))


@pytest.mark.parametrize("name", UFUNCS.split())
def test_ufuncs_give_numpys_results(name: str) -> None:
    ufunc = getattr(np, name)
    kinds = {types.split("->")[0] for types in ufunc.types}
    dtype = next(kind for kind in ("f" * ufunc.nin, "i" * ufunc.nin, "fi", "d" * ufunc.nin) if kind in kinds)[0]
    args = [(np.abs(one) * 3 + 1).astype(dtype) for one in (A, B)][: ufunc.nin]
    if name == "ldexp":
        args[1] = args[1].astype(np.int32)
    with np.errstate(all="ignore"):
        wanted = ufunc(*args)
    compare(getattr(XP, name)(*map(on_device, args)), wanted)
    out = XP.empty(wanted.shape, wanted.dtype)
    assert getattr(XP, name)(*map(on_device, args), out=out) is out
    compare(out, wanted)


@pytest.mark.parametrize("name", METHODS)
def test_methods_give_numpys_results(name: str) -> None:
    args: dict[str, tuple[Any, ...]] = {
        "clip": (-0.5, 0.5),
        "dot": (B.T.copy(),),
        "repeat": (2,),
        "swapaxes": (0, 1),
        "searchsorted": (W,),
        "take": (AT, 0),
    }
    array = np.sort(V) if name == "searchsorted" else A
    given = args.get(name, ())
    wanted = np.ptp(array) if name == "ptp" else getattr(array, name)(*given)
    compare(getattr(on_device(array), name)(*map(on_device, given)), wanted)


OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift eq ne lt le gt ge"
SIGNS = "neg pos abs invert"


def test_operators_give_numpys_results() -> None:
    a, b = (A * 4).astype(np.int32), np.abs(B * 4).astype(np.int32) + 1
    for short in OPERATORS.split():
        one, two = (a, b.T.copy()) if short == "matmul" else (a, b)
        compare(getattr(on_device(one), f"__{short}__")(on_device(two)), getattr(one, f"__{short}__")(two))
    for short in SIGNS.split():
        compare(getattr(on_device(a), f"__{short}__")(), getattr(a, f"__{short}__")())
    c = on_device(a)
    c += 2
    c[1:] *= on_device(b)[1:]
    wanted = a + 2
    wanted[1:] *= b[1:]
    compare(c, wanted)
    compare(5 - c, 5 - wanted)


indices = st.one_of(
    st.integers(-4, 3),
    st.slices(4),
    st.just(Ellipsis),
    st.none(),
    st.lists(st.integers(-4, 3), min_size=1, max_size=3),
)


@given(index=indices, fill=st.integers(0, 9))
def test_indexing_is_numpys(index: Any, fill: int) -> None:
    host = np.arange(20, dtype=np.int64).reshape(4, 5)
    array = on_device(host)
    compare(array[index], host[index])
    array[index] = fill
    host[index] = fill
    compare(array, host)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("given", ["C", "F"])
def test_cells_come_from_the_host_and_go_there_in_any_order(order: str, given: str) -> None:
    array = XP.ndarray((4, 5), np.float32, order=order)
    array.set(np.array(A, order=given))
    assert array.flags["F_CONTIGUOUS"] == (order == "F")
    compare(array, A)
    np.testing.assert_array_equal(array.get(order=given), A)


def test_a_mask_is_waited_for() -> None:
    array = on_device(A)
    compare(array[array > 0], A[A > 0])
    array[array > 0] = 0
    compare(array, np.minimum(A, 0))


def test_views_share_memory_and_results_do_not() -> None:
    array = on_device(A)
    for view in (array.T, array[1:, ::2], array.reshape(5, 4), array.ravel(), XP.moveaxis(array, 0, 1), array[None]):
        assert array.data.ptr <= view.data.ptr < array.data.ptr + array.nbytes
    for made in (array + 0, array.copy(), array.T.ravel(), XP.flip(array).copy(), array[[0, 1]]):
        assert not array.data.ptr <= made.data.ptr < array.data.ptr + array.nbytes


# -- what CuPy refuses ----------------------------------------------------------------------------------------


def test_nothing_becomes_a_numpy_array_by_itself() -> None:
    array = on_device(A)
    for convert in (np.asarray, np.array, lambda x: np.frombuffer(x), lambda x: np.add(x, A), lambda x: A + x):
        with pytest.raises(TypeError):
            convert(array)
    for function in (XP.add, XP.maximum):
        with pytest.raises(TypeError, match=r"Unsupported type <class 'numpy.ndarray'>"):
            function(array, B)
    with pytest.raises(TypeError, match="Unsupported type"):
        XP.concatenate([array, B])
    with pytest.raises(ValueError, match=r"non-scalar numpy.ndarray cannot be used for fill"):
        array[...] = B
    with pytest.raises(ValueError, match=r"non-scalar numpy.ndarray cannot be used for copyto"):
        XP.copyto(array, B)
    assert isinstance(np.add(array, 1), XP.ndarray)
    assert isinstance(np.sum(array), XP.ndarray)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: XP.sum(x, where=x > 0), TypeError, r"sum\(\) got an unexpected keyword argument 'where'; CuPy's is"),
        (
            lambda x: x.clip(a_min=0),
            TypeError,
            r"clip\(\) got an unexpected keyword argument 'a_min'; CuPy's is",
        ),
        (lambda x: XP.sort(x, kind="heapsort"), ValueError, "kind can only be None or 'stable'"),
        (lambda x: XP.add(x), TypeError, "add takes 2 operands, 1 are given"),
        (lambda x: XP.add(x, 1, out=A), TypeError, "out is ndarray; it must be a device array"),
        (lambda x: XP.maximum.reduce(x), NotImplementedError, "`cupy_maximum.reduce` is not supported yet"),
        (lambda x: XP.add.at(x.astype(np.int64), 0, 1), TypeError, r"add\.at only supports \('int32'"),
        (lambda x: x.set(A.astype(np.float64)), TypeError, "float64 array cannot be set to float32 array"),
        (lambda x: x.set(A[:2]), ValueError, r"Shape mismatch. Old shape: \(4, 5\), new shape: \(2, 5\)"),
        (lambda x: x.set([1]), TypeError, "Only numpy.ndarray can be set"),
        (lambda x: x[:, ::2].set(A[:, ::2].copy()), RuntimeError, "Cannot set to non-contiguous array"),
        (lambda x: x.get(out=np.empty(3)), ValueError, "get: out is float64"),
        (lambda x: x.item(), ValueError, "can only convert an array of size 1"),
        (lambda x: XP.zeros(3, object), ValueError, "Unsupported dtype object"),
        (lambda x: XP.zeros(3, "f4,f4"), ValueError, "Unsupported dtype"),
        (lambda x: XP.asarray(np.array(["a"])), ValueError, "Unsupported dtype"),
        (lambda x: hash(x), TypeError, "unhashable"),
        (lambda x: list(x.sum()), TypeError, "iteration over a 0-d array"),
        (lambda x: XP.copyto(x.astype(np.int32), x), TypeError, "Cannot cast float32 to int32 in same_kind"),
    ],
)
def test_what_cupy_refuses(call: Callable[[Any], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(on_device(A))


def test_one_cell_gets_one_value() -> None:
    array = on_device(np.zeros((2, 3), np.float32))
    with pytest.raises(OrderingFault, match="setitem sets cell 1 "):
        array[[0, 0], [1, 1]] = on_device(np.array([1, 2], np.float32))
    array[[0, 0], [1, 1]] = 3
    array[[0, 0], [1, 1]] = on_device(np.array([np.nan, np.nan], np.float32))
    with pytest.raises(OrderingFault, match="put_along_axis sets cell 4 "):
        XP.put_along_axis(array, on_device(np.array([[0, 0], [1, 1]])), on_device(np.array([[1, 1], [1, 2.0]])), 1)
