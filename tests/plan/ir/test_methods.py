"""Methods of tensors against NumPy's on arrays, and what is said where a tensor has no value yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_exec import evaluate
from tapestry_plan import Graph, Tensor, gradient, ops

RNG = np.random.default_rng(3)
ARRAYS = {
    "float64": RNG.normal(size=(2, 3, 4)),
    "int8": RNG.integers(-3, 4, (2, 3, 4), np.int8),
    "bool": RNG.integers(0, 2, (2, 3, 4)).astype(bool),
}


def computed(call: Callable[[Tensor], Tensor], array: np.ndarray) -> Any:
    g = Graph()
    g.output(call(g.input("x", array.shape, array.dtype.name)), "y")
    return evaluate(g, {"x": array})["y"]


FOLDS = ["sum", "prod", "mean", "min", "max", "var", "std", "any", "all", "argmax", "argmin"]
axes = st.one_of(st.none(), st.integers(-3, 2), st.lists(st.integers(0, 2), unique=True, min_size=1).map(tuple))


@given(axes, st.booleans(), st.sampled_from(FOLDS))
def test_methods_that_fold_axes_are_numpys(axis: Any, keepdims: bool, name: str) -> None:
    array = ARRAYS["bool" if name in ("any", "all") else "float64" if name in ("mean", "var", "std") else "int8"]
    axis = axis[0] if name.startswith("arg") and isinstance(axis, tuple) else axis
    found = computed(lambda x: getattr(x, name)(axis, keepdims=keepdims), array)
    wanted = np.asarray(getattr(array, name)(axis=axis, keepdims=keepdims))
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_other_methods_are_numpys() -> None:
    x = ARRAYS["float64"]
    np.testing.assert_array_equal(computed(lambda t: t.astype("float32"), x), x.astype("float32"))
    np.testing.assert_array_equal(computed(lambda t: t.clip(-0.5, 0.5), x), x.clip(-0.5, 0.5))
    np.testing.assert_array_equal(computed(lambda t: t.round(), x), x.round())
    np.testing.assert_allclose(computed(lambda t: t.std(1, ddof=1), x), x.std(1, ddof=1))
    np.testing.assert_allclose(computed(lambda t: t.var(correction=1), x), x.var(ddof=1))
    contracted = computed(lambda t: t.__array_namespace__().einsum("abc,adc->bd", t, t), x)
    np.testing.assert_allclose(contracted, np.einsum("abc,adc->bd", x, x), rtol=1e-12)


@pytest.mark.parametrize(
    "call", [lambda n, x: n * x, lambda n, x: x + n, lambda n, x: n - x, lambda n, x: x / n, lambda n, x: n < x]
)
@pytest.mark.parametrize("number", [np.float64(1.5), np.float32(0.25), np.int64(2), np.array(2.5)])
def test_numbers_of_numpy_are_numbers_on_either_side(call: Callable[[Any, Any], Any], number: Any) -> None:
    x = ARRAYS["float64"]
    np.testing.assert_allclose(computed(lambda t: call(number, t), x), call(number, x))


def setting(x: Any) -> None:
    x[0] = 1


MANY = np.ones((40, 60))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: gradient(x, "a"), ("gradient: wrt", "[x]")),
        (lambda x: gradient("a", [x]), ("gradient: y must be a Tensor, not 'a'",)),
        (float, ("float()", "'x'", "evaluate")),
        (int, ("int()", "'x'", "evaluate")),
        (complex, ("complex()", "'x'", "evaluate")),
        (bool, ("'x'", "where()")),
        (np.exp, ("np.exp", "'x'", "xp.exp")),
        (np.sum, ("np.sum", "'x'", "xp.sum")),
        (np.add.reduce, ("np.add", "'x'", "xp.add")),
        (lambda x: np.concatenate([x, x]), ("np.concatenate", "'x'", "xp")),
        (np.asarray, ("NumPy", "no values")),
        (setting, ("'x'", "never changed", "xp.where")),
        (lambda x: 1 in x, ("in: ", "'x'", "xp.equal")),
        (lambda x: x[x > 0], ("index", "'x'", "'greater'", "xp.where", "xp.take")),
        (lambda x: x[:, x], ("index", "'x'", "xp.where")),
        (lambda x: x + MANY, ("add", "(40, 60) and dtype float64", "g.constant")),
        (lambda x: MANY + x, ("add", "(40, 60) and dtype float64", "g.constant")),
        (lambda x: MANY @ x, ("matmul", "(40, 60) and dtype float64", "g.constant")),
        (lambda x: x * ["number"] * 1000, ("multiply", "list", "g.constant")),
    ],
)
def test_where_a_tensor_has_no_value_the_mend_is_said(call: Callable[[Tensor], Any], words: tuple[str, ...]) -> None:
    g = Graph()
    x = g.input("x", (4, 6))
    ops.relu(x)
    with pytest.raises(TypeError) as info:
        call(x)
    said = str(info.value)
    assert [word for word in words if word not in said] == [] and len(said) < 400
    assert "1., " not in said and len(g.nodes) <= 2
