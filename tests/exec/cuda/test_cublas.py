"""Products of matrices by cuBLAS, called by addresses: on a stand-in for it and, with `-m gpu`, on the real one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_exec import CupyBackend
from tapestry_exec.cuda import cublas
from tapestry_exec.cuda.cublas import KINDS, Handle, Operand, Products, StackOfMatrices, lay_products
from tapestry_exec.cuda.gpus import Current
from tapestry_exec.cuda.namespace import Namespace, NotRecordable
from tapestry_exec.simulated import namespace as simulated


@pytest.fixture(scope="module", params=["simulated", pytest.param("real", marks=pytest.mark.gpu)])
def cupy(request: pytest.FixtureRequest) -> Any:
    return simulated.cupy(1) if request.param == "simulated" else CupyBackend().cupy


@pytest.fixture(scope="module")
def xp(cupy: Any) -> Namespace:
    stream = cupy.cuda.get_current_stream()
    return Namespace(cupy, Current(), partial(Handle, cupy, stream, False))


Array = Any
Stack = tuple[tuple[int, ...], tuple[int, ...], bool, frozenset[int]]
"""Extents of an operand, the order in which they lie in memory, whether more lies beside each, and what is reversed."""


@st.composite
def stacks(draw: st.DrawFn) -> tuple[Stack, Stack, Stack]:
    """Two operands whose extents are broadcast, and the result, each in an order of its own."""
    rows, columns, depth = (draw(st.sampled_from([1, 2, 3, 5])) for _ in range(3))
    whole = tuple(draw(st.lists(st.sampled_from([1, 2, 3]), max_size=3)))
    made: list[Stack] = []
    for ends in ((rows, depth), (depth, columns), (rows, columns)):
        more = whole
        if len(made) < 2:
            more = tuple(draw(st.sampled_from([1, n])) for n in whole[draw(st.integers(0, len(whole))) :])
        shape = more + ends
        turned = draw(st.frozensets(st.integers(0, 4), max_size=2))
        made.append((shape, tuple(draw(st.permutations(range(len(shape))))), draw(st.booleans()), turned))
    whole = np.broadcast_shapes(made[0][0][:-2], made[1][0][:-2])
    shape, order, beside, turned = made[2]
    shape = (*whole, *shape[-2:])
    order = tuple(k for k in order if k < len(shape))
    return made[0], made[1], (shape, order, beside, turned)


def laid(stack: Stack, cells: Array) -> Array:
    """An array of these cells in a larger one, with its extents in memory in another order."""
    shape, order, beside, turned = stack
    room = np.full([shape[k] + beside for k in order], 99, cells.dtype)
    within = room[tuple(slice(shape[k]) for k in order)].transpose(np.argsort(order))
    within = within[tuple(slice(None, None, -1) if k in turned else slice(None) for k in range(len(shape)))]
    within[...] = cells.reshape(shape)
    return within


def on_device(cupy: Any, array: Array) -> Any:
    """The same cells at the same strides on the device."""
    base = array if array.base is None else array.base
    base = base if base.base is None else base.base
    moved = cupy.asarray(base)
    offset = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return cupy.ndarray(array.shape, array.dtype, moved.data + offset, array.strides)


def integers(shape: Sequence[int], dtype: str, seed: int) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


NONE: frozenset[int] = frozenset()
SMALL = ((2, 3), (0, 1), False, NONE), ((3, 2), (0, 1), False, NONE), ((2, 2), (0, 1), False, NONE)
BACKWARDS = frozenset([0])
TURNED = (
    ((3, 2, 2), (0, 1, 2), False, BACKWARDS),
    ((3, 2, 2), (0, 1, 2), False, NONE),
    ((3, 2, 2), (0, 1, 2), True, NONE),
)


@given(stacks(), st.sampled_from(sorted(KINDS)))
@example(SMALL, "float16")
@example(
    (((3, 1, 2), (0, 1, 2), False, NONE), ((2, 2), (1, 0), True, NONE), ((3, 1, 2), (0, 1, 2), False, NONE)), "float32"
)
@example(
    (((2, 2, 3), (0, 2, 1), True, NONE), ((2, 3, 2), (2, 1, 0), True, NONE), ((2, 2, 2), (0, 2, 1), True, NONE)),
    "float64",
)
@example(TURNED, "float32")
def test_products_are_numpys(cupy: Any, xp: Namespace, stack: tuple[Stack, Stack, Stack], dtype: str) -> None:
    """Of small integers every order of sums has the same bits; nothing beside the result is written."""
    host = [laid(one, integers(one[0], dtype, k)) for k, one in enumerate(stack)]
    a, b, out = (on_device(cupy, array) for array in host)
    whole = host[2].base.copy() if host[2].base is not None else None
    assert xp.matmul(a, b, out=out) is out
    wanted = np.matmul(host[0], host[1])
    np.testing.assert_array_equal(cupy.asnumpy(out), wanted)
    np.testing.assert_array_equal(cupy.asnumpy(xp.matmul(a, b)), wanted)
    assert whole is not None
    host[2][...] = wanted
    root = host[2].base if host[2].base.base is None else host[2].base.base
    lies = cupy.ndarray(root.shape, root.dtype, out.data + (_at(root) - _at(host[2])), root.strides)
    np.testing.assert_array_equal(cupy.asnumpy(lies), root)


def _at(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize(("left", "right"), [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((4, 2, 3), (3,))])
def test_vectors(cupy: Any, xp: Namespace, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    one, two = integers(left, "float32", 1), integers(right, "float32", 2)
    found = xp.matmul(cupy.asarray(one), cupy.asarray(two))
    np.testing.assert_array_equal(cupy.asnumpy(found), one @ two)
    assert found.shape == (one @ two).shape


def test_nothing_to_sum_is_zero_and_nothing_to_make_is_nothing(cupy: Any, xp: Namespace) -> None:
    zero = xp.matmul(cupy.zeros((2, 0), np.float32), cupy.zeros((0, 3), np.float32))
    np.testing.assert_array_equal(cupy.asnumpy(zero), np.zeros((2, 3)))
    assert xp.matmul(cupy.zeros((0, 4), np.float32), cupy.zeros((4, 3), np.float32)).shape == (0, 3)


def test_operands_that_do_not_fit_are_told(cupy: Any, xp: Namespace) -> None:
    two, three = cupy.zeros((2, 2), np.float32), cupy.zeros((3, 3), np.float32)
    for one, other in ((2, 3), (3, 2)):
        with pytest.raises(ValueError, match=f"{one} columns, {other} rows"):
            xp.matmul({2: two, 3: three}[one], {2: two, 3: three}[other])
    with pytest.raises(ValueError, match=r"out has shape \(3, 3\)"):
        xp.matmul(two, two, out=three)


@pytest.mark.parametrize(
    "text",
    ["ij,jk->ik", "bij,bjk->bik", "bhqd,bhkd->bhqk", "ij,ij->ij", "ij,jk,kl->li", "ii,ij->j", "ij,kl->", "aij,j->ia"],
)
def test_contractions_are_numpys(cupy: Any, xp: Namespace, text: str) -> None:
    extents = dict(zip("abhijklqd", (2, 3, 2, 4, 5, 3, 2, 3, 4), strict=True))
    host = [
        integers([extents[letter] for letter in term], "float64", k)
        for k, term in enumerate(text.split("->")[0].split(","))
    ]
    found = xp.einsum(text, *(cupy.asarray(array) for array in host), optimize=True)
    np.testing.assert_array_equal(cupy.asnumpy(found), np.einsum(text, *host))


@pytest.mark.parametrize(
    ("text", "dtype"), [("ij,jk", "float32"), ("...ij,jk->...ik", "float32"), ("ij,jk->ik", "int64")]
)
def test_contractions_that_are_left_to_cupy_are_numpys(cupy: Any, xp: Namespace, text: str, dtype: str) -> None:
    one, two = integers((2, 3), dtype, 1), integers((3, 4), dtype, 2)
    found = xp.einsum(text, cupy.asarray(one), cupy.asarray(two))
    np.testing.assert_array_equal(cupy.asnumpy(found), np.einsum(text, one, two))


@pytest.mark.parametrize(
    ("shapes", "dtype"), [(((2, 3), (3, 4)), "int64"), (((2, 1), (3, 4)), "float32")], ids=["integers", "broadcast"]
)
def test_contractions_that_are_no_products_are_left_to_cupy(
    shapes: tuple[tuple[int, ...], ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Namespace, "matmul", lambda *given: pytest.fail("a product was made"))
    stand_in = simulated.cupy(1)
    xp = Namespace(stand_in, Current(), lambda: pytest.fail("cuBLAS was opened"))
    one, two = (integers(shape, dtype, k) for k, shape in enumerate(shapes))
    found = xp.einsum("ij,jk->ik", stand_in.asarray(one), stand_in.asarray(two))
    np.testing.assert_array_equal(stand_in.asnumpy(found), np.einsum("ij,jk->ik", one, two))


@pytest.mark.parametrize(("text", "calls"), [("ij,jk->ik", 1), ("ij,jk,kl->li", 2), ("ij,jk,kl,lm->im", 3)])
def test_a_contraction_is_a_product_for_each_operand_more(
    text: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a call of cuBLAS, which a graph holds; CuPy's own are refused there."""
    stand_in, made = simulated.cupy(1), list[str]()
    multiply = Handle.multiply
    monkeypatch.setattr(Handle, "multiply", lambda *given: made.append("one") or multiply(*given))
    xp = Namespace(stand_in, Current(), partial(Handle, stand_in, stand_in.cuda.get_current_stream(), False))
    xp.einsum(text, *(stand_in.ones((2, 2), np.float32) for _ in text.split("->")[0].split(",")))
    assert len(made) == calls


def test_the_library_is_the_one_that_cupy_has_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name of CUDA's version, once CuPy has loaded it."""
    opened: list[str] = []

    class Calls:
        def __getattr__(self, name: str) -> Any:
            made = SimpleNamespace()
            setattr(self, name, made)
            return made

    def load() -> None:
        opened.append("CuPy's")

    cuda = SimpleNamespace(get_cublas_handle=load, runtime=SimpleNamespace(runtimeGetVersion=lambda: 13020))
    monkeypatch.setattr("ctypes.CDLL", lambda name: opened.append(name) or Calls())
    found = cublas.library_of(SimpleNamespace(cuda=cuda))
    assert opened == ["CuPy's", "libcublas.so.13"]
    assert {name: getattr(found, name).argtypes for name in cublas.ARGUMENTS} == cublas.ARGUMENTS


def test_the_cheapest_pairs_are_contracted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """From left to right the first two would make n^4 cells; nothing larger than the operands is made."""
    stand_in, made = simulated.cupy(1), list[int]()
    product = Namespace.matmul
    monkeypatch.setattr(
        Namespace, "matmul", lambda self, a, b, out=None: made.append((x := product(self, a, b, out)).size) or x
    )
    xp = Namespace(stand_in, Current(), partial(Handle, stand_in, stand_in.cuda.get_current_stream(), False))
    host = [integers((9, 9), "float32", k) for k in range(3)]
    found = xp.einsum("ai,bj,ab->ij", *map(stand_in.asarray, host), optimize=True)
    np.testing.assert_array_equal(stand_in.asnumpy(found), np.einsum("ai,bj,ab->ij", *host))
    assert made == [81, 81]


def test_options_of_a_contraction_are_cupys(cupy: Any, xp: Namespace) -> None:
    one = cupy.ones((3, 3), np.float16)
    try:
        found = xp.einsum("ij,jk->ik", one, one, dtype="float32")
    except TypeError:
        return  # what CuPy does not take
    assert found.dtype == np.float32


def test_a_result_that_lies_where_an_operand_does_is_made_beside_first(cupy: Any, xp: Namespace) -> None:
    """cuBLAS writes while it reads, which its stand-in refuses."""
    host = integers((4, 4), "float32", 1)
    one = cupy.asarray(host)
    xp.matmul(one, one, out=one)
    np.testing.assert_array_equal(cupy.asnumpy(one), host @ host)
    rows = integers((7, 4), "float32", 2)
    whole, factor = cupy.asarray(rows), cupy.asarray(host)
    xp.matmul(whole[:4], factor, out=whole[3:])  # one row of theirs is the same
    np.testing.assert_array_equal(cupy.asnumpy(whole), np.concatenate([rows[:3], rows[:4] @ host]))


def test_unlike_sums_are_told_and_empty_ones_are_zero(cupy: Any, xp: Namespace) -> None:
    with pytest.raises(ValueError, match=r"are summed over \(2, 6\) and \(3, 4\)"):
        xp.tensordot(cupy.ones((2, 6), np.float32), cupy.ones((3, 4), np.float32), axes=([0, 1], [0, 1]))
    assert xp.tensordot(cupy.zeros((0, 3), np.float32), cupy.ones((3, 4), np.float32), axes=1).shape == (0, 4)


@pytest.mark.parametrize(("left", "right"), [((3,), (3,)), ((2, 3), (3, 2)), ((2, 2, 3), (3,))])
def test_dot_is_numpys(cupy: Any, xp: Namespace, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    one, two = integers(left, "float32", 1), integers(right, "float32", 2)
    np.testing.assert_array_equal(cupy.asnumpy(xp.dot(cupy.asarray(one), cupy.asarray(two))), np.dot(one, two))


@pytest.mark.parametrize(
    ("left", "right", "calls"), [((3,), (3,), 1), ((2, 3), (3, 2), 1), ((3,), (3, 2), 1), ((2, 2, 3), (3,), 0)]
)
def test_dots_of_vectors_and_matrices_are_products(
    left: tuple[int, ...], right: tuple[int, ...], calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in, made = simulated.cupy(1), list[str]()
    multiply = Handle.multiply
    monkeypatch.setattr(Handle, "multiply", lambda *given: made.append("one") or multiply(*given))
    xp = Namespace(stand_in, Current(), partial(Handle, stand_in, stand_in.cuda.get_current_stream(), False))
    xp.dot(stand_in.ones(left, np.float32), stand_in.ones(right, np.float32))
    assert len(made) == calls


@pytest.mark.parametrize("axes", [1, 2, ([0], [1]), ([1, 2], [2, 0])])
def test_tensordot_is_numpys(cupy: Any, xp: Namespace, axes: Any) -> None:
    shapes = {1: ((2, 3, 4), (4, 5)), 2: ((2, 3, 4), (3, 4, 5))}
    left, right = shapes.get(axes, ((4, 2, 3), (3, 4, 2))) if isinstance(axes, int) else ((4, 2, 3), (3, 4, 2))
    one, two = integers(left, "float32", 1), integers(right, "float32", 2)
    found = xp.tensordot(cupy.asarray(one), cupy.asarray(two), axes=axes)
    np.testing.assert_array_equal(cupy.asnumpy(found), np.tensordot(one, two, axes=axes))


@pytest.mark.parametrize("dtypes", [("int64", "int64"), ("float32", "float64"), ("float64", "float32")])
def test_other_dtypes_are_cupys(cupy: Any, xp: Namespace, dtypes: tuple[str, str]) -> None:
    one, two = integers((3, 3), dtypes[0], 1), integers((3, 3), dtypes[1], 2)
    found = cupy.asnumpy(xp.matmul(cupy.asarray(one), cupy.asarray(two)))
    np.testing.assert_array_equal(found, one @ two)
    assert found.dtype == (one @ two).dtype


def test_a_result_of_another_dtype_is_converted(cupy: Any, xp: Namespace) -> None:
    one, out = integers((3, 3), "float32", 1), cupy.zeros((3, 3), np.float64)
    xp.matmul(cupy.asarray(one), cupy.asarray(one), out=out)
    np.testing.assert_array_equal(cupy.asnumpy(out), one @ one)


def test_numbers_are_no_matrices(cupy: Any, xp: Namespace) -> None:
    one, number = cupy.zeros((2, 2), np.float32), cupy.zeros((), np.float32)
    for operands in ((one, number), (number, one)):
        with pytest.raises(ValueError):
            xp.matmul(*operands)


def test_arrays_of_the_host_are_refused_while_a_run_is_recorded(cupy: Any) -> None:
    current = Current()
    xp = Namespace(cupy, current, lambda: pytest.fail("no product is made"))
    here = xp.asarray(np.arange(3))
    current.is_recording = True
    assert xp.asarray(here) is here
    with pytest.raises(NotRecordable, match="calls asarray for ndarray while the run is recorded"):
        xp.asarray(np.arange(3))


def test_products_are_captured(cupy: Any) -> None:
    """CuPy's own are refused while a stream is captured; these give the same when the graph is launched again."""
    stream = cupy.cuda.Stream(non_blocking=True)
    xp = Namespace(cupy, Current(), partial(Handle, cupy, stream, False))
    one, two = integers((4, 5), "float32", 1), integers((5, 3), "float32", 2)
    with stream:
        a, b, out = cupy.asarray(one), cupy.asarray(two), cupy.zeros((4, 3), np.float32)
        xp.matmul(a, b, out=out)
        stream.synchronize()
        stream.begin_capture()
        xp.matmul(a, b, out=out)
        graph = stream.end_capture()
        a[...] = 2 * a
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(cupy.asnumpy(out), 2 * one @ two)


def test_cublas_is_not_opened_while_a_run_is_recorded(cupy: Any) -> None:
    current = Current()
    current.is_recording = True
    xp = Namespace(cupy, current, lambda: pytest.fail("it was opened"))
    with pytest.raises(NotRecordable, match="cuBLAS was not opened before"):
        xp.matmul(cupy.zeros((2, 2), np.float32), cupy.zeros((2, 2), np.float32))


def test_without_the_library_products_are_cupys(cupy: Any) -> None:
    def missing() -> Handle:
        raise OSError("libcublas.so.99: cannot open shared object file")

    xp, one = Namespace(cupy, Current(), missing), integers((3, 3), "float32", 1)
    for _ in range(2):
        np.testing.assert_array_equal(cupy.asnumpy(xp.matmul(cupy.asarray(one), cupy.asarray(one))), one @ one)


def test_what_cublas_refuses_is_told(cupy: Any) -> None:
    handle = Handle(cupy, cupy.cuda.get_current_stream(), False)
    cells = cupy.zeros(16, np.float32)
    flat = Operand(0, 1)
    wrong = Products(4, 4, 4, (flat, flat, flat), (0, 0, 0), 1, ((0, 0, 0),), False)
    with pytest.raises(RuntimeError, match="cuBLAS refuses cublasGemmStridedBatchedEx: its error 7"):
        handle.multiply(wrong, "float32", *[cells.data.ptr] * 3)


ROWS: StackOfMatrices = (3, 4, 5), (20, 5, 1)


@pytest.mark.parametrize(
    ("a", "b", "out", "calls"),
    [
        (ROWS, ((5, 6), (6, 1)), ((3, 4, 6), (24, 6, 1)), (12, 1, 1)),  # one matrix of all rows
        (ROWS, ((3, 5, 6), (30, 6, 1)), ((3, 4, 6), (24, 6, 1)), (4, 3, 1)),  # a stack
        (((2, 3, 4, 5), (60, 20, 5, 1)), ((3, 5, 6), (30, 6, 1)), ((2, 3, 4, 6), (72, 24, 6, 1)), (4, 3, 2)),
        (((4, 5), (1, 4)), ((5, 6), (1, 5)), ((4, 6), (6, 1)), (4, 1, 1)),  # both transposed
        (((4, 5), (5, 1)), ((5, 6), (6, 1)), ((4, 6), (1, 4)), (6, 1, 1)),  # the result, too: in the other order
        (((9, 2, 4, 5), (40, 5, 10, 1)), ((9, 2, 5, 4), (40, 5, 1, 10)), ((9, 2, 4, 4), (32, 16, 4, 1)), (4, 9, 2)),
        (
            ((4, 5), (5, 1)),
            ((3, 5, 6), (30, 6, 1)),
            ((3, 4, 6), (24, 6, 1)),
            (4, 3, 1),
        ),  # one matrix for all of a stack
        (((3, 4, 5), (-20, 5, 1)), ((3, 5, 6), (30, 6, 1)), ((3, 4, 6), (24, 6, 1)), (4, 1, 3)),  # one by one backwards
    ],
)
def test_how_many_calls_are_made(
    a: StackOfMatrices, b: StackOfMatrices, out: StackOfMatrices, calls: tuple[int, int, int]
) -> None:
    found = lay_products(a, b, out)
    assert found is not None and (found.rows, found.batch, len(found.starts)) == calls


def test_cells_that_lie_apart_are_copied_first() -> None:
    assert lay_products(((4, 5), (20, 2)), ((5, 6), (6, 1)), ((4, 6), (6, 1))) is None
    assert lay_products(((2**31, 5), (5, 1)), ((5, 6), (6, 1)), ((2**31, 6), (6, 1))) is None
