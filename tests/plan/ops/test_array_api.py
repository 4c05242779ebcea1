"""The array API's functions and operators on graph tensors, against NumPy on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapestry_exec import evaluate, run
from tapestry_plan import Graph, Mesh, Tensor, ops, plan
from tapestry_plan.ops import array_api

Array = np.ndarray
Call = Callable[..., Any]
RNG = np.random.default_rng(7)
X = RNG.normal(size=(3, 4, 5))
Y = RNG.normal(size=(4, 5)) + 0.1
U = RNG.uniform(0.1, 0.9, size=(3, 4))
K = RNG.integers(-9, 10, (3, 4))
J = RNG.integers(1, 5, (3, 4))
B = RNG.integers(0, 2, (3, 4)).astype(bool)
C = RNG.integers(0, 2, (3, 4)).astype(bool)


def said(call: Call, *arrays: Array) -> Any:
    """What a call on graph tensors computes."""
    g = Graph()
    tensors = [g.input(f"x{k}", a.shape, a.dtype.name) for k, a in enumerate(arrays)]
    made = call(array_api, *tensors)
    several = isinstance(made, (tuple, list))
    for k, tensor in enumerate(made if several else [made]):
        g.output(tensor, f"y{k}")
    found = evaluate(g, {f"x{k}": a for k, a in enumerate(arrays)})
    return [found[f"y{k}"] for k in range(len(found))] if several else found["y0"]


def agree(found: Any, wanted: Any) -> None:
    if isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for one, two in zip(found, wanted, strict=True):
            agree(one, two)
        return
    wanted = np.asarray(wanted)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


UNARY = "abs acos asin atan acosh asinh atanh ceil cos cosh exp expm1 floor isfinite isinf isnan log log1p negative"
UNARY += " positive reciprocal round sign sin sinh sqrt square tan tanh"


@pytest.mark.parametrize("name", UNARY.split())
def test_functions_of_one_tensor(name: str) -> None:
    x = U + 1 if name == "acosh" else U
    agree(said(lambda xp, t: getattr(xp, name)(t), x), getattr(np, name)(x))


BINARY = "add subtract multiply divide pow remainder maximum minimum equal not_equal less less_equal greater"
BINARY += " greater_equal logaddexp"


@pytest.mark.parametrize("name", BINARY.split())
def test_functions_of_two_tensors_or_a_number(name: str) -> None:
    function = getattr(np, name)
    a, b = (np.abs(X) + 0.2, np.abs(Y) + 0.2) if name == "pow" else (X, Y)
    agree(said(lambda xp, s, t: getattr(xp, name)(s, t), a, b), function(a, b))
    if name != "logaddexp":
        agree(said(lambda xp, s: getattr(xp, name)(s, 1.5), a), function(a, 1.5))
        agree(said(lambda xp, s: getattr(xp, name)(1.5, s), a), function(1.5, a))


@pytest.mark.parametrize(
    "name", ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"]
)
def test_bits(name: str) -> None:
    agree(said(lambda xp, s, t: getattr(xp, name)(s, t), K, J), getattr(np, name)(K, J))


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_truth_values(name: str) -> None:
    agree(said(lambda xp, s, t: getattr(xp, name)(s, t), B, C), getattr(np, name)(B, C))
    agree(said(lambda xp, s: xp.logical_not(s), B), ~B)
    agree(said(lambda xp, s: xp.bitwise_invert(s), K), ~K)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "min", "var", "std"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(name: str, axis: Any, keepdims: bool) -> None:
    wanted = getattr(np, name)(X, axis=axis, keepdims=keepdims)
    agree(said(lambda xp, t: getattr(xp, name)(t, axis=axis, keepdims=keepdims), X), wanted)


def test_more_reductions() -> None:
    agree(said(lambda xp, t: xp.any(t, axis=1), B), B.any(axis=1))
    agree(said(lambda xp, t: xp.all(t), B), B.all())
    agree(said(lambda xp, t: xp.argmax(t, axis=1), X), X.argmax(axis=1))
    agree(said(lambda xp, t: xp.argmin(t), X), X.argmin())
    agree(said(lambda xp, t: xp.var(t, axis=0, correction=1), X), X.var(axis=0, ddof=1))
    agree(said(lambda xp, t: xp.cumulative_sum(t, axis=1), X), X.cumsum(axis=1))


OTHERS: dict[str, tuple[Call, Call, tuple[Array, ...]]] = {
    "matmul": (lambda xp, a, b: xp.matmul(a, b), lambda a, b: a @ b, (X, Y.T.copy())),
    "matrix_transpose": (lambda xp, a: xp.matrix_transpose(a), lambda a: a.swapaxes(-1, -2), (X,)),
    "vecdot": (lambda xp, a, b: xp.vecdot(a, b), lambda a, b: (a * b).sum(-1), (X, Y)),
    "tensordot 2": (lambda xp, a, b: xp.tensordot(a, b), lambda a, b: np.tensordot(a, b), (X, Y)),
    "tensordot 0": (lambda xp, a, b: xp.tensordot(a, b, axes=0), lambda a, b: np.tensordot(a, b, 0), (U, Y)),
    "tensordot axes": (
        lambda xp, a, b: xp.tensordot(a, b, axes=((2, 0), (0, -1))),
        lambda a, b: np.tensordot(a, b, ((2, 0), (0, -1))),
        (X, RNG.normal(size=(5, 2, 3))),
    ),
    "where": (lambda xp, c, a, b: xp.where(c, a, b), np.where, (B, U, U + 1)),
    "clip": (lambda xp, a: xp.clip(a, -0.5, 0.5), lambda a: a.clip(-0.5, 0.5), (X,)),
    "astype": (lambda xp, a: xp.astype(a, xp.float32), lambda a: a.astype("float32"), (X,)),
    "floor_divide": (lambda xp, a: xp.floor_divide(a, 0.3), lambda a: np.floor(a / 0.3), (X,)),
    "reshape": (lambda xp, a: xp.reshape(a, (5, -1)), lambda a: a.reshape(5, -1), (X,)),
    "permute_dims": (lambda xp, a: xp.permute_dims(a, (2, 0, 1)), lambda a: a.transpose(2, 0, 1), (X,)),
    "broadcast_to": (lambda xp, a: xp.broadcast_to(a, (3, 4, 5)), lambda a: np.broadcast_to(a, (3, 4, 5)), (Y,)),
    "broadcast_arrays": (lambda xp, a, b: xp.broadcast_arrays(a, b), lambda a, b: np.broadcast_arrays(a, b), (X, Y)),
    "concat": (lambda xp, a, b: xp.concat([a, b], axis=1), lambda a, b: np.concatenate([a, b], 1), (U, U + 1)),
    "stack": (lambda xp, a, b: xp.stack([a, b], axis=1), lambda a, b: np.stack([a, b], 1), (U, U + 1)),
    "expand_dims": (lambda xp, a: xp.expand_dims(a, axis=1), lambda a: a[:, None], (X,)),
    "squeeze": (lambda xp, a: xp.squeeze(a[:, :1], 1), lambda a: a[:, 0], (X,)),
    "flip": (lambda xp, a: xp.flip(a, axis=1), lambda a: np.flip(a, 1), (X,)),
    "moveaxis": (lambda xp, a: xp.moveaxis(a, 0, -1), lambda a: np.moveaxis(a, 0, -1), (X,)),
    "repeat": (lambda xp, a: xp.repeat(a, 3, axis=1), lambda a: np.repeat(a, 3, 1), (U,)),
    "roll": (lambda xp, a: xp.roll(a, 2, axis=0), lambda a: np.roll(a, 2, 0), (U,)),
    "tile": (lambda xp, a: xp.tile(a, (2, 3)), lambda a: np.tile(a, (2, 3)), (U,)),
    "take": (lambda xp, a: xp.take(a, np.array([2, 0]), axis=1), lambda a: a.take([2, 0], 1), (U,)),
    "take of a tensor": (lambda xp, a, i: xp.take(a, i, axis=1), lambda a, i: a.take(i, 1), (U, np.array([3, 0, 3]))),
    "unstack": (lambda xp, a: xp.unstack(a, axis=1), lambda a: tuple(np.moveaxis(a, 1, 0)), (U,)),
    "zeros_like": (lambda xp, a: xp.zeros_like(a) + a, lambda a: a, (U,)),
    "ones_like": (lambda xp, a: xp.ones_like(a) + a, lambda a: a + 1, (U,)),
    "operators": (
        lambda xp, a, b: -(+a) + abs(b) * 2 - 1 / (a + 3) + a**2 % 0.7 + 2**b - (0.5 % (b + 1)),
        lambda a, b: -a + abs(b) * 2 - 1 / (a + 3) + a**2 % 0.7 + 2**b - (0.5 % (b + 1)),
        (U, U + 0.3),
    ),
    "comparisons": (
        lambda xp, a, b: ((a < b) & (a <= 0.5)) | ~(b > a) ^ (b >= 0.7),
        lambda a, b: ((a < b) & (a <= 0.5)) | ~(b > a) ^ (b >= 0.7),
        (U, U[::-1].copy()),
    ),
    "integers": (
        lambda xp, a, b: (a & b) | (a << b) ^ (a >> b) | ~a & 6,
        lambda a, b: (a & b) | (a << b) ^ (a >> b) | ~a & 6,
        (K, J),
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_the_others(case: str) -> None:
    call, reference, arrays = OTHERS[case]
    agree(said(call, *arrays), reference(*arrays))


def test_values_at_the_ends() -> None:
    ends = np.array([np.inf, -np.inf, 0.0, np.nan])
    with np.errstate(invalid="ignore"):
        agree(said(lambda xp, a, b: xp.logaddexp(a, b), ends, ends), np.logaddexp(ends, ends))
        agree(said(lambda xp, a, b: xp.logaddexp(a, b), ends, ends[::-1].copy()), np.logaddexp(ends, ends[::-1]))
    big = np.array([3e300, 0.0, -4.0])
    agree(said(lambda xp, a, b: xp.hypot(a, b), big, big[::-1].copy()), np.hypot(big, big[::-1]))


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "uint8", "int64"])
def test_short_integers_are_widened_to_be_summed(dtype: str) -> None:
    x = np.array([[1, 0, 1, 100], [1, 1, 1, 100]]).astype(dtype)
    for name in ("sum", "prod"):
        agree(said(lambda xp, t, name=name: getattr(xp, name)(t, axis=1), x), getattr(np, name)(x, axis=1))
    agree(said(lambda xp, t: xp.cumulative_sum(t, axis=1), x), np.cumsum(x, axis=1))
    agree(said(lambda xp, t: xp.count_nonzero(t, axis=0), x), np.count_nonzero(x, axis=0))


def test_quotients_rounded_down() -> None:
    a, b = np.array([1.0, -1.0, 7.5, -7.5]), np.array([0.1, 0.1, 2.0, 2.0])
    agree(said(lambda xp, s, t: s // t, a, b), a // b)
    agree(said(lambda xp, s, t: xp.floor_divide(s, t), K, J), K // J)


def test_the_rest() -> None:
    agree(said(lambda xp, a: xp.trunc(a), X), np.trunc(X))
    agree(said(lambda xp, a: xp.log2(a), U), np.log2(U))
    agree(said(lambda xp, a: xp.log10(a), U), np.log10(U))
    agree(said(lambda xp, a: xp.diff(a, axis=1, n=2), X), np.diff(X, axis=1, n=2))
    agree(said(lambda xp, c, a: xp.where(c, a, 0.5), B, U), np.where(B, U, 0.5))
    agree(said(lambda xp, c, a: xp.where(c, -1.0, a), B, U), np.where(B, -1.0, U))
    places = np.argsort(U, axis=1)
    agree(said(lambda xp, a, i: xp.take_along_axis(a, i, axis=1), U, places), np.take_along_axis(U, places, axis=1))


FROM_NOTHING: dict[str, tuple[Call, Call]] = {
    "zeros": (lambda xp, x: xp.zeros((2, 3), device=x.device), lambda x: np.zeros((2, 3))),
    "ones": (lambda xp, x: xp.ones(4, dtype=xp.int32, device=x.device), lambda x: np.ones(4, np.int32)),
    "empty": (lambda xp, x: xp.empty((), device=x.device), lambda x: np.zeros(())),
    "full": (lambda xp, x: xp.full((2, 2), 7, device=x.device), lambda x: np.full((2, 2), 7)),
    "arange": (lambda xp, x: xp.arange(2, 17, 3, device=x.device), lambda x: np.arange(2, 17, 3)),
    "arange to": (lambda xp, x: xp.arange(5, device=x.device), lambda x: np.arange(5)),
    "linspace": (lambda xp, x: xp.linspace(0, 1, 7, device=x.device), lambda x: np.linspace(0, 1, 7)),
    "eye": (lambda xp, x: xp.eye(3, 4, k=1, device=x.device), lambda x: np.eye(3, 4, 1)),
    "asarray": (lambda xp, x: xp.asarray([[1, 2], [3, 4]], device=x.device), lambda x: np.array([[1, 2], [3, 4]])),
    "asarray of a tensor": (lambda xp, x: xp.asarray(x, dtype="float32"), lambda x: x.astype("float32")),
    "tril": (lambda xp, x: xp.tril(x, k=1), lambda x: np.tril(x, 1)),
    "triu": (lambda xp, x: xp.triu(x, k=-1), lambda x: np.triu(x, -1)),
    "meshgrid": (lambda xp, x: xp.meshgrid(x[0], x[:, 0]), lambda x: np.meshgrid(x[0], x[:, 0])),
    "meshgrid ij": (
        lambda xp, x: xp.meshgrid(x[0], x[:, 0], x[1], indexing="ij"),
        lambda x: np.meshgrid(x[0], x[:, 0], x[1], indexing="ij"),
    ),
    "sort": (lambda xp, x: xp.sort(x, axis=0), lambda x: np.sort(x, axis=0)),
    "sort down": (lambda xp, x: xp.sort(x, descending=True), lambda x: np.sort(x)[:, ::-1]),
    "argsort": (lambda xp, x: xp.argsort(xp.round(x * 3)), lambda x: np.argsort(np.round(x * 3), stable=True)),
    "searchsorted": (
        lambda xp, x: xp.searchsorted(xp.sort(x[0]), x),
        lambda x: np.searchsorted(np.sort(x[0]), x),
    ),
    "searchsorted right": (
        lambda xp, x: xp.searchsorted(xp.sort(x[0]), x, side="right"),
        lambda x: np.searchsorted(np.sort(x[0]), x, side="right"),
    ),
}


@pytest.mark.parametrize("case", FROM_NOTHING)
def test_tensors_from_nothing_and_in_order(case: str) -> None:
    call, reference = FROM_NOTHING[case]
    agree(said(call, U), reference(U))


def test_what_is_said_of_dtypes() -> None:
    x = Graph().input("x", (2,), "int16")
    assert array_api.isdtype(x.dtype, "integral") and array_api.can_cast(x, "int32")
    assert array_api.iinfo(x).max == 32767 and array_api.finfo("float32").bits == 32
    assert array_api.result_type(x, np.float64) == np.float64


def test_a_model_is_written_as_in_numpy() -> None:
    """The same function on arrays and on tensors, which then shard, plan and run."""

    def model(xp: Any, x: Any, w: Any, b: Any, v: Any) -> Any:
        h = xp.maximum(x @ w + b, 0.0)
        h = (h - xp.mean(h, axis=1, keepdims=True)) / xp.std(h, axis=1, keepdims=True)
        z = xp.matmul(h, v)
        return xp.exp(z - xp.max(z, axis=-1, keepdims=True))

    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s) for s in ((8, 6), (6, 12), (12,), (12, 4))]
    g = Graph()
    tensors = [g.input(f"x{k}", a.shape, "float64") for k, a in enumerate(arrays)]
    xp = tensors[0].__array_namespace__()
    g.output(model(xp, *tensors), "y")
    for fix in ({}, {name: {g.signature(name).axes[0].name: 4} for name in g.nodes}):
        found = run(plan(g, Mesh((4,)), fix=fix), {f"x{k}": a for k, a in enumerate(arrays)}, verify=True)
        np.testing.assert_allclose(found.outputs["y"], model(np, *arrays), rtol=1e-10)


STANDARD = "abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atanh"
STANDARD += " bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor bool"
STANDARD += " broadcast_arrays broadcast_to can_cast ceil clip concat cos cosh count_nonzero cumulative_sum diff"
STANDARD += " divide e empty equal exp expand_dims expm1 eye finfo flip float32 float64 floor floor_divide full"
STANDARD += " full_like greater greater_equal hypot iinfo inf int8 int16 int32 int64 isdtype isfinite isinf isnan"
STANDARD += " less less_equal linspace log log1p log2 log10 logaddexp logical_and logical_not logical_or"
STANDARD += " logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum moveaxis multiply nan"
STANDARD += " negative newaxis not_equal ones ones_like permute_dims pi positive pow prod reciprocal remainder"
STANDARD += " repeat reshape result_type roll round searchsorted sign sin sinh sort sqrt square squeeze stack std"
STANDARD += " subtract sum take take_along_axis tan tanh tensordot tile tril triu trunc uint8 uint16 uint32 uint64"
STANDARD += " unstack var vecdot where zeros zeros_like"


def test_the_namespace_has_what_the_standard_names() -> None:
    tested = {*UNARY.split(), *BINARY.split(), *OTHERS}
    for name in STANDARD.split():
        assert hasattr(array_api, name)
    assert len(tested & set(STANDARD.split())) > 60


def test_the_namespace_and_the_operators_are_one() -> None:
    for name in {*STANDARD.split()} & {*vars(ops)}:
        assert getattr(ops, name) is getattr(array_api, name)
    x = Graph().input("x", (3, 4), "int32")
    assert ops.sum(x).dtype == ops.prod(x, 0).dtype == ops.cumulative_sum(x, 1).dtype == "int64"
    with pytest.raises(ValueError, match="divide whole ones by //"):
        ops.divide(x, x)
    assert x.graph.op("divide", x, x).dtype == "int32"  # as ONNX has it


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda xp, x: bool(x), TypeError, "has no truth value before a run"),
        (lambda xp, x: xp.add(1, 2), TypeError, "add: 1 of type int and 2 of type int are not tensors"),
        (lambda xp, x: xp.add(x, "a"), TypeError, "add: 'a' of type str stands beside tensor 'x'"),
        (lambda xp, x: x & 1, ValueError, "works on|integers|bits"),
        (lambda xp, x: xp.cumulative_sum(x), ValueError, "name the axis"),
        (lambda xp, x: xp.zeros((2,)), TypeError, "full: device is None; it must be the graph"),
        (lambda xp, x: xp.meshgrid(x[0], indexing="yx"), ValueError, "indexing must be one of .*, not 'yx'"),
        (lambda xp, x: xp.searchsorted(x[0], x, side="up"), ValueError, "side must be one of .*, not 'up'"),
        (lambda xp, x: xp.tril(x[0]), ValueError, "it needs 2 axes or more"),
        (lambda xp, x: xp.where(x > 0, 1, 2), TypeError, "where: 1 of type int and 2 of type int are not tensors"),
        (lambda xp, x: xp.astype(x, "int8") + 300, ValueError, "300 is beyond int8"),
        (lambda xp, x: xp.astype(x, "int32") / 2, ValueError, "divide whole ones by //"),
        (lambda xp, x: xp.exp("a"), TypeError, "exp: x must be a Tensor, not .*"),
        (
            lambda xp, x: xp.tensordot(x, x, axes=((0,), (1,))),
            ValueError,
            "differ in extent; what is summed over must be equal",
        ),
        (lambda xp, x: x.__array_namespace__("1999.01"), ValueError, "version '1999.01' is not known"),
    ],
)
def test_wrong_input(call: Call, error: type[Exception], message: str) -> None:
    g = Graph()
    x: Tensor = g.input("x", (3, 4))
    with pytest.raises(error, match=message):
        call(array_api, x)
    assert not {node.op for node in g.nodes.values()} - {"greater", "astype"}
