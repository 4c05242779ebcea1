"""Operators on operands of any shape, cut in any way, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_exec import evaluate
from tapestry_plan import Graph
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.ops import einsum
from tapestry_plan.ops.operands import common_shape
from tests.cutting import any_cut, broadcastable, close, run_cut


@given(st.data())
def test_elementwise_with_any_shapes_and_any_cut(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), max_size=4).map(tuple), "shape")
    shapes = [broadcastable(data, shape) for _ in range(2)]
    arrays = [np.random.default_rng(k).normal(size=s) for k, s in enumerate(shapes)]
    op = BUILTIN_OPS["subtract"]
    signature = op.signature(shapes, {})
    (actual,) = run_cut(op, {}, arrays, any_cut(data, signature))
    np.testing.assert_array_equal(actual, arrays[0] - arrays[1])


@given(st.data())
def test_matmul_with_any_shapes_and_any_cut(data: st.DataObject) -> None:
    batch = data.draw(st.lists(st.integers(1, 3), max_size=2).map(tuple), "batch")
    m, n, k = data.draw(st.tuples(*[st.integers(1, 6)] * 3), "m n k")
    shapes = [(*broadcastable(data, batch), m, k), (*broadcastable(data, batch), k, n)]
    arrays = [np.random.default_rng(k).normal(size=s) for k, s in enumerate(shapes)]
    op = BUILTIN_OPS["matmul"]
    (actual,) = run_cut(op, {}, arrays, any_cut(data, op.signature(shapes, {})))
    close(actual, arrays[0] @ arrays[1], 1e-12)


@given(st.data(), st.sampled_from(["sum", "mean", "max"]), st.booleans())
def test_reductions_over_any_axes_and_any_cut(data: st.DataObject, fold: str, keepdims: bool) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), max_size=4).map(tuple), "shape")
    ranks = st.sets(st.sampled_from(range(len(shape)))) if shape else st.just(set())
    axes = tuple(data.draw(ranks, "axes"))
    x = np.random.default_rng(7).normal(size=shape)
    op, attrs = BUILTIN_OPS[fold], {"axis": axes, "keepdims": keepdims}
    (actual,) = run_cut(op, attrs, [x], any_cut(data, op.signature([shape], attrs)))
    wanted = getattr(np, fold)(x, axis=axes, keepdims=keepdims)
    close(actual, np.asarray(wanted), 1e-12)


@given(st.data())
def test_einsum_of_any_equation_and_any_cut(data: st.DataObject) -> None:
    sizes = {letter: data.draw(st.integers(1, 4), letter) for letter in "abcD"}
    letters = st.lists(st.sampled_from("abcD"), unique=True, max_size=4)
    terms = data.draw(st.lists(letters.map("".join), min_size=1, max_size=3), "terms")
    known = sorted({letter for term in terms for letter in term})
    output = "".join(data.draw(st.permutations(known)))[: data.draw(st.integers(0, len(known)), "kept")]
    equation = ",".join(terms) + (f"->{output}" if data.draw(st.booleans(), "explicit") else "")
    arrays = [np.random.default_rng(k).normal(size=[sizes[c] for c in term]) for k, term in enumerate(terms)]
    op, attrs = BUILTIN_OPS["einsum"], {"equation": equation}
    signature = op.signature([array.shape for array in arrays], attrs)
    (actual,) = run_cut(op, attrs, arrays, any_cut(data, signature))
    close(actual, np.asarray(np.einsum(equation, *arrays)), 1e-12)


@given(st.data())
def test_einsum_with_dots_and_any_cut(data: st.DataObject) -> None:
    dots = data.draw(st.lists(st.integers(1, 3), max_size=2).map(tuple), "dots")
    shapes = [(*broadcastable(data, dots), 2, 3), (*broadcastable(data, dots), 3, 4)]
    results = ["->...ik", "", "->k...", "->i...j"]
    equation = "...ij,...jk" + data.draw(st.sampled_from(results), "result")
    arrays = [np.random.default_rng(k).normal(size=shape) for k, shape in enumerate(shapes)]
    op, attrs = BUILTIN_OPS["einsum"], {"equation": equation}
    (actual,) = run_cut(op, attrs, arrays, any_cut(data, op.signature(shapes, attrs)))
    close(actual, np.asarray(np.einsum(equation, *arrays)), 1e-12)


@given(st.sampled_from(["ii->i", "ii", "iji->j", "iij->ji", "iii->i", "ij,iij->j", "aabb->ab", "aab,bb"]))
def test_a_letter_that_comes_twice_is_a_diagonal(equation: str) -> None:
    terms = equation.split("->")[0].split(",")
    arrays = {f"x{k}": np.random.default_rng(k).normal(size=(3,) * len(term)) for k, term in enumerate(terms)}
    g = Graph()
    g.output(einsum(equation, *(g.input(name, a.shape, "float64") for name, a in arrays.items())), "y")
    np.testing.assert_allclose(evaluate(g, arrays)["y"], np.einsum(equation, *arrays.values()), atol=1e-12)


@given(st.data())
def test_prod_then_sum_is_matmul(data: st.DataObject) -> None:
    batch = data.draw(st.lists(st.integers(1, 3), max_size=2).map(tuple), "batch")
    m, n, k = data.draw(st.tuples(*[st.integers(1, 5)] * 3), "m n k")
    shapes = [(*broadcastable(data, batch), m, k), (*broadcastable(data, batch), k, n)]
    arrays = [np.random.default_rng(k).normal(size=s) for k, s in enumerate(shapes)]
    op = BUILTIN_OPS["matrix_products"]
    (products,) = run_cut(op, {}, arrays, any_cut(data, op.signature(shapes, {})))
    close(products.sum(-1), arrays[0] @ arrays[1], 1e-12)


@given(st.data(), st.sampled_from(["min", "prod", "any", "all"]), st.booleans())
def test_other_reductions_over_any_axes_and_any_cut(data: st.DataObject, fold: str, keepdims: bool) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), max_size=3).map(tuple), "shape")
    ranks = st.sets(st.sampled_from(range(len(shape)))) if shape else st.just(set())
    axes = tuple(data.draw(ranks, "axes"))
    x = np.random.default_rng(7).normal(size=shape)
    x = np.asarray(x > 0) if fold in ("any", "all") else x
    op, attrs = BUILTIN_OPS[fold], {"axis": axes, "keepdims": keepdims}
    (actual,) = run_cut(op, attrs, [x], any_cut(data, op.signature([shape], attrs)))
    close(actual, np.asarray(getattr(np, fold)(x, axis=axes, keepdims=keepdims)), 1e-12)


@given(st.data())
def test_gather_and_gather_elements_with_any_shapes_and_any_cut(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), "shape")
    axis = data.draw(st.integers(-len(shape), len(shape) - 1), "axis")
    rng, n = np.random.default_rng(7), shape[axis]
    x = rng.normal(size=shape)
    indices = rng.integers(-n, n, data.draw(st.lists(st.integers(1, 4), max_size=2).map(tuple), "indices"))
    op = BUILTIN_OPS["take"]
    signature = op.signature([shape, indices.shape], {"axis": axis})
    (actual,) = run_cut(op, {"axis": axis}, [x, indices], any_cut(data, signature))
    np.testing.assert_array_equal(actual, np.take(x, indices, axis))
    extents = list(shape)
    extents[axis] = data.draw(st.integers(1, 5), "extent")
    indices = rng.integers(-n, n, extents)
    op = BUILTIN_OPS["take_along_axis"]
    signature = op.signature([shape, indices.shape], {"axis": axis})
    (actual,) = run_cut(op, {"axis": axis}, [x, indices], any_cut(data, signature))
    np.testing.assert_array_equal(actual, np.take_along_axis(x, indices, axis))


@given(st.data(), st.sampled_from(["none", "add", "mul", "min", "max"]))
def test_scatter_elements_with_any_shapes_and_any_cut(data: st.DataObject, reduction: str) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), "shape")
    axis = data.draw(st.integers(0, len(shape) - 1), "axis")
    extents = [data.draw(st.integers(1, n), "extent") for n in shape]
    rng = np.random.default_rng(7)
    x, updates = rng.normal(size=shape), rng.normal(size=extents)
    # without repetition, since then any of the updates may stay
    order = rng.permuted(np.broadcast_to(np.arange(shape[axis]), (*np.delete(extents, axis), shape[axis])), axis=-1)
    indices = np.moveaxis(order[..., : extents[axis]], -1, axis).astype(np.int64)
    wanted = x.copy()
    ways = {"none": lambda a, b: b, "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
    combine = ways[reduction]
    for at in np.ndindex(*extents):
        cell = (*at[:axis], indices[at], *at[axis + 1 :])
        wanted[cell] = combine(wanted[cell], updates[at])
    op, attrs = BUILTIN_OPS["put_along_axis"], {"axis": axis, "reduction": reduction}
    signature = op.signature([x.shape, indices.shape, updates.shape], attrs)
    (actual,) = run_cut(op, attrs, [x, indices, updates], any_cut(data, signature))
    np.testing.assert_array_equal(actual, wanted)


@given(st.data(), st.booleans(), st.integers(1, 4))
def test_top_k_keeps_the_order_of_equals_in_any_cut(data: st.DataObject, largest: bool, k: int) -> None:
    shape = tuple(data.draw(st.lists(st.integers(4, 6), min_size=1, max_size=3), "shape"))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1), "axis")
    x = np.random.default_rng(k).integers(0, 4, shape)
    op, attrs = BUILTIN_OPS["top_k"], {"k": k, "axis": axis, "largest": largest}
    values, places = run_cut(op, attrs, [x], any_cut(data, op.signature([shape], attrs)))
    order = np.argsort(-x if largest else x, axis, kind="stable")
    wanted = order.take(range(k), axis)
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, axis))


@given(st.data(), st.booleans(), st.booleans())
def test_cumsum_in_any_cut(data: st.DataObject, exclusive: bool, reverse: bool) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3), "shape"))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1), "axis")
    x = np.random.default_rng(1).integers(-9, 9, shape)
    op, attrs = BUILTIN_OPS["cumulative_sum"], {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    (actual,) = run_cut(op, attrs, [x], any_cut(data, op.signature([shape], attrs)))
    turned = np.flip(x, axis) if reverse else x
    wanted = np.cumsum(turned, axis) - (turned if exclusive else 0)
    np.testing.assert_array_equal(actual, np.flip(wanted, axis) if reverse else wanted)


@given(st.data(), st.booleans())
def test_attention_with_any_heads_and_any_cut(data: st.DataObject, causal: bool) -> None:
    batch, heads, group, queries, keys, width = data.draw(st.tuples(*[st.integers(1, 4)] * 6), "extents")
    shapes = [(batch, heads * group, queries, width), (batch, heads, keys, width), (batch, heads, keys, 3)]
    mask = broadcastable(data, (batch, heads * group, queries, keys))
    arrays = [np.random.default_rng(k).normal(size=s) for k, s in enumerate([*shapes, *([mask] if mask else [])])]
    op, attrs = BUILTIN_OPS["attention"], {"causal": causal}
    signature = op.signature([array.shape for array in arrays], attrs)
    (actual,) = run_cut(op, attrs, arrays, any_cut(data, signature))
    q, (k, v) = arrays[0], (a.repeat(group, 1) for a in arrays[1:3])
    scores = np.einsum("bhsd,bhtd->bhst", q, k) / np.sqrt(width) + (arrays[3] if mask else 0)
    scores = np.where(causal & (np.arange(keys) > np.arange(queries)[:, None]), -np.inf, scores)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    close(actual, np.einsum("bhst,bhte->bhse", shares / shares.sum(-1, keepdims=True), v), 1e-12)


@given(st.lists(st.lists(st.sampled_from([1, 2, 3, 5]), max_size=3).map(tuple), min_size=1, max_size=3))
@example([(2**32, 2**32), (2**32, 2**32)])
@example([(2**40, 1), (2**41,)])
def test_shapes_broadcast_as_numpys_and_at_any_size(shapes: list[tuple[int, ...]]) -> None:
    small = [tuple(min(n, 7 + n % 5) for n in shape) for shape in shapes]  # 2**32, 2**40 and 2**41 stay different
    try:
        wanted = np.broadcast_shapes(*small)
    except ValueError:
        with pytest.raises(ValueError, match="do not broadcast"):
            common_shape(shapes)
        return
    assert tuple(min(n, 7 + n % 5) for n in common_shape(shapes)) == wanted
