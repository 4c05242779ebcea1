"""Operands that do not fit are refused by name, and the graph stays as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapestry_plan import ops
from tapestry_plan.ir import BUILTIN_OPS, Graph, Tensor
from tests.cutting import run_cut


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "parts"),
    [
        ("add", [(2, 3), (4, 3)], {}, ["(2, 3)", "(4, 3)", "broadcast"]),
        ("add", [(2, 3)], {}, ["1 operand given", "takes 2"]),
        ("add_n", [], {}, ["0 operands"]),
        ("matmul", [(2, 3), (4, 5)], {}, ["3 columns (axis 1)", "4 rows (axis 0)"]),
        ("matmul", [(3,), (3, 5)], {}, ["rank 2 or more"]),
        ("linear", [(2, 3), (3, 5), (4,)], {}, ["the bias", "(4,)", "(5,)"]),
        ("linear", [(3,), (3, 5)], {}, ["operand 0", "rank 1", "rank 2 or more"]),
        ("linear", [(2, 3, 3), (2, 3, 5)], {}, ["operand 1", "rank 3", "rank 2"]),
        ("linear", [(7, 2, 4), (3, 5)], {}, ["(7, 2, 4) has 4 columns", "(3, 5) has 3 rows"]),
        ("gemm", [(2, 3), (3, 5), (3, 5)], {}, ["(3, 5)", "broadcast to (2, 5)"]),
        ("gemm", [(2, 3), (3, 5)], {"trans_b": True}, ["over 3 values", "over 5"]),
        ("conv", [(1, 3, 8, 8), (4, 2, 3, 3)], {}, ["groups is 1", "3 channels", "takes 2"]),
        ("conv", [(1, 4, 8, 8), (3, 2, 3, 3)], {"groups": 2}, ["groups is 2", "groups divide 3"]),
        ("conv", [(1, 4, 8, 8), (4, 4, 3)], {}, ["the weight", "rank 3", "rank 4"]),
        ("conv", [(4, 8), (4, 8)], {}, ["rank 2", "one to three spatial axes"]),
        ("conv", [(1, 1, 4, 4), (1, 1, 5, 5)], {}, ["(5, 5)", "(4, 4)", "pad more"]),
        ("conv", [(1, 1, 4, 4), (1, 1, 3, 3)], {"strides": 0}, ["strides is 0", ">= 1"]),
        ("conv", [(1, 1, 4, 4), (1, 1, 3, 3)], {"strides": (1, 1, 1)}, ["strides is (1, 1, 1)", "or 2 of"]),
        ("conv", [(1, 1, 4, 4), (1, 1, 3, 3)], {"pads": (0, -1)}, ["pads is (0, -1)"]),
        ("conv", [(1, 1, 4, 4), (1, 1, 3, 3), (2,)], {}, ["the bias", "(2,)", "(1,)"]),
        ("max_pool", [(1, 1, 4, 4)], {}, ["kernel is missing"]),
        ("max_pool", [(1, 1, 4, 4)], {"kernel": 2, "pads": 2}, ["pads of 2", "wholly"]),
        ("sum", [(2, 3)], {"axis": (2,)}, ["axis is 2", "-2 to 1"]),
        ("sum", [(2, 3)], {"axis": (1, -1)}, ["names an axis twice"]),
        ("batch_normalization", [(1, 3), (3,), (3,), (2,), (3,)], {}, ["the mean", "(2,)", "(3,)"]),
        ("local_response_normalization", [(1, 3, 2, 2)], {"size": 0}, ["size is 0"]),
        ("softmax", [(2, 3)], {"axis": 5}, ["axis is 5"]),
        ("layer_normalization", [(2, 3), (2,)], {}, ["the scale", "(2,)", "(3,)"]),
    ],
)
def test_operands_that_do_not_fit_are_named(op: str, shapes: Any, attrs: Any, parts: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        BUILTIN_OPS[op].signature(shapes, attrs)
    for part in parts:
        assert part in str(error.value)


def test_dtypes_are_not_mixed() -> None:
    g = Graph()
    with pytest.raises(ValueError, match="operand 1 is float64, operand 0 is float32"):
        ops.add(g.input("a", (2,), "float32"), g.input("b", (2,), "float64"))
    with pytest.raises(ValueError, match="operand 0 is int64, but the operator works on floating"):
        ops.exp(g.input("c", (2,), "int64"))
    assert not g.nodes
    with pytest.raises(ValueError, match=r"min 0.5 is not of dtype int64"):
        ops.clip(g.input("d", (2,), "int64"), 0.5)
    with pytest.raises(ValueError, match=r"alpha is 0\.5, but operand 0 is int64"):
        ops.gemm(*[g.input(name, (2, 2), "int64") for name in "ef"], alpha=0.5)
    with pytest.raises(ValueError, match="leave no number"):
        ops.clip(g.tensor("a"), float("nan"))
    assert ops.clip(g.tensor("a"), float("-inf"), 3).shape == (2,)


@pytest.mark.parametrize(("shape", "dtype"), [((2, 4), "uint8"), ((2, 2), "float32")])
def test_zeros_are_packed_or_one_for_each_block(shape: tuple[int, int], dtype: str) -> None:
    """Of 4 bits in 4 blocks; where only the operator is known, the run refuses what the function does."""
    g = Graph()
    operands = g.input("packed", (2, 4, 3), "uint8"), g.input("scales", (2, 4)), g.input("zeros", shape, dtype)
    says = rf"operand 2 has shape \(2, {shape[1]}\); zeros .* have \(2, {6 - shape[1]}\)"
    with pytest.raises(ValueError, match=says):
        ops.unpack_blocks(*operands)
    assert not g.nodes
    is_packed = dtype == "uint8"
    for said, why in ((is_packed, says), (not is_packed, rf"operand 2 is {dtype}"), (None, "without zeros_packed")):
        with pytest.raises(ValueError, match=why):
            g.op("unpack_blocks", *operands, bits=4, zeros_packed=said)
    assert not g.nodes


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda g, x, i: ops.maximum(x, i), "operand 1 is int64, operand 0 is float32; cast them"),
        (lambda g, x, i: ops.log(i), "works on floating numbers"),
        (lambda g, x, i: ops.logical_and(x, x), "works on truth values"),
        (lambda g, x, i: ops.bitwise_or(x, x), "works on integers or truth values"),
        (lambda g, x, i: ops.bitwise_left_shift(x, x), "bits of integers are shifted"),
        (lambda g, x, i: ops.isnan(i), "only floating numbers may be infinite"),
        (lambda g, x, i: ops.any(x, keepdims=True), "works on truth values"),
        (lambda g, x, i: ops.negative(g.input("u", (3,), "uint8")), "has no negative numbers"),
        (lambda g, x, i: ops.where(x, x, x), "a choice is made by truth values"),
        (lambda g, x, i: ops.where(ops.less(x, x), x, i), "operand 2 is int64, operand 1 is float32"),
        (lambda g, x, i: ops.astype(x, "word"), "dtype 'word' is not a dtype of NumPy"),
        (lambda g, x, i: ops.astype(x, "complex64"), "give one of real numbers"),
        (lambda g, x, i: ops.prelu(g.input("v", (6,)), x), r"the slope has shape \(4, 6\)"),
        (lambda g, x, i: ops.quantize(x, x, dtype="float32"), "numbers are quantized to integers of 16 bits or"),
        (lambda g, x, i: ops.quantize(x, x, dtype="int32"), "dtype is int32; numbers are quantized to integers of 16"),
        (lambda g, x, i: ops.quantize(x, i, dtype="int8"), "operand 1 is int64, but a scale is a floating number"),
        (lambda g, x, i: ops.quantize(x, x, i, dtype="int8"), "operand 2 is int64, a zero point .* is int8; cast it"),
        (
            lambda g, x, i: ops.quantize(x, g.input("q", (6,)), dtype="int8", axis=2),
            "axis is 2; a tensor of rank 2 has",
        ),
        (lambda g, x, i: ops.quantize(x, x, dtype="int8", precision="int8"), "precision is 'int8'; .* divided in"),
        (lambda g, x, i: ops.quantize(x < x, x, dtype="int8"), "operand 0 is bool; numbers are quantized"),
        (lambda g, x, i: ops.requantize(i, i, dtype="int8"), "operand 1 is int64, but a ratio is float32"),
        (lambda g, x, i: ops.requantize(i, x, dtype="float32"), "dtype is float32; sums are quantized to integers"),
        (lambda g, x, i: ops.dequantize(x, x), "operand 0 is float32; integers of 32 bits or fewer"),
        (lambda g, x, i: ops.dequantize(i, x), "operand 0 is int64; integers of 32 bits or fewer"),
        (
            lambda g, x, i: ops.dequantize(g.input("q", (4, 6), "int32"), x, dtype="int8"),
            "dtype is int8; what integers stand for",
        ),
        (
            lambda g, x, i: ops.dequantize(g.input("p", (4, 6), "int32"), x, g.input("q", (4, 6), "int8")),
            "operand 2 is int8, a zero point",
        ),
        (
            lambda g, x, i: ops.dequantize(g.input("q", (4, 6), "float8_e5m2"), x, i),
            "zero point, which .* have not; leave",
        ),
        (lambda g, x, i: ops.center(i, i), "operand 0 is int64 and dtype float32; the differences of integers of 16"),
        (
            lambda g, x, i: ops.center(g.input("q", (4, 6), "int8"), i),
            "operand 1 is int64, a zero point of integers of int8",
        ),
        (lambda g, x, i: ops.gelu(x, "fast"), "approximate='fast' must be"),
        (lambda g, x, i: ops.celu(x, 0), "alpha=0"),
        (lambda g, x, i: ops.einsum("ij,jk", x), "has 2 operands; 1 are given"),
        (lambda g, x, i: ops.einsum("ijk", x), "names 3 axes of operand 0, which has rank 2; name each"),
        (lambda g, x, i: ops.einsum("ij->ik", x), "the output names 'k', which no operand has"),
        (lambda g, x, i: ops.einsum("ij->ii", x), "names 'i' twice"),
        (lambda g, x, i: ops.einsum("ij,ij", x, x.T), "axis 'i' has 4 values, but 6 in operand 1"),
        (lambda g, x, i: ops.einsum("ii", x), r"axes 0 and 1 of \(4, 6\) are both 'i'"),
        (lambda g, x, i: ops.einsum("i2", x), "has '2' in 'i2'"),
        (lambda g, x, i: g.op("einsum", x, equation="ii"), "names 'i' twice in operand 0; give its diagonal"),
        (lambda g, x, i: ops.matrix_products(x, x), "must be equal"),
        (lambda g, x, i: ops.attention(x, x, x), "rank 4 is needed"),
        (lambda g, x, i: ops.take(x, x), "indices are integers"),
        (lambda g, x, i: ops.take(x, [7]), "7"),
        (lambda g, x, i: ops.take(x, i, axis=2), "axis is 2"),
        (lambda g, x, i: ops.take_along_axis(x, i, 1), "no more cells on any axis"),
        (lambda g, x, i: ops.gather_nd(x, i), "names from 1 to 2 axes"),
        (lambda g, x, i: ops.put_along_axis(x, x, x, reduction="mean"), "reduction is 'mean'"),
        (lambda g, x, i: ops.put_along_axis(x, g.input("j", (1, 6), "int64"), x), "one update for each index"),
        (lambda g, x, i: ops.scatter_nd(x, g.input("j", (3, 1), "int64"), x), r"\(3, 6\) is needed"),
        (lambda g, x, i: ops.one_hot(i, 0), "depth is 0"),
        (lambda g, x, i: ops.one_hot(x, 3), "indices are integers"),
        (lambda g, x, i: ops.one_hot(i, 3, dtype="word"), "not a dtype"),
        (lambda g, x, i: ops.top_k(x, 7), "k is 7; axis 1"),
        (lambda g, x, i: ops.resize(x), "give sizes or scales"),
        (lambda g, x, i: ops.resize(x, (3,)), "for each axis of the shape"),
        (lambda g, x, i: ops.resize(x, scales=(1, 0.1)), "sizes is"),
        (lambda g, x, i: ops.resize(x, (3, 3), mode="quintic"), "mode is 'quintic'"),
        (lambda g, x, i: ops.resize(x, (3, 3), part=[(0, 1)]), "give where it begins and ends on each axis"),
        (lambda g, x, i: ops.resize(i, (12,), mode="linear"), "interpolation works on floating"),
        (lambda g, x, i: ops.lp_pool(image(g)[0], 2, p=0), "p is 0; give an integer >= 1"),
        (lambda g, x, i: ops.lp_pool(g.input("k", (1, 1, 4), "int64"), 2), "works on floating numbers"),
        (lambda g, x, i: ops.depth_to_space(x, 2), "rank 4 is needed"),
        (lambda g, x, i: ops.space_to_depth(g.input("y", (1, 1, 3, 4)), 2), "must divide the spatial extents"),
        (lambda g, x, i: ops.group_normalization(*image(g), 3), "does not divide the 4 channels .*; give a divisor"),
        (lambda g, x, i: ops.rms_normalization(x, x), "the scale has shape"),
        (lambda g, x, i: ops.conv_transpose(image(g)[0], g.input("w", (3, 1, 2, 2))), "4 channels"),
        (
            lambda g, x, i: ops.conv_transpose(image(g)[0], g.input("w", (4, 1, 2, 2)), output_padding=1),
            "below the stride",
        ),
        (lambda g, x, i: ops.conv_transpose(image(g)[0], g.input("w", (4, 1, 2, 2)), pads=3), "pad by less"),
        (lambda g, x, i: attention_of(g, (1, 3, 5, 4), (1, 2, 5, 4)), "3 heads of queries share 2"),
        (lambda g, x, i: attention_of(g, (1, 2, 5, 4), (1, 2, 5, 3)), "batch and width must be equal"),
        (lambda g, x, i: attention_of(g, (1, 2, 5, 4), (1, 2, 5, 4), (5, 6)), "the mask has shape"),
        (lambda g, x, i: attention_of(g, (1, 2, 5, 4), (1, 2, 5, 4), (5, 5), "int64"), "the mask is int64"),
    ],
)
def test_wrong_operands_leave_the_graph_as_it_was(make: Any, message: str) -> None:
    g = Graph()
    x, i = g.input("x", (4, 6)), g.input("i", (6,), "int64")
    with pytest.raises((ValueError, IndexError), match=message):
        make(g, x, i)
    nodes = {node.op for node in g.nodes.values()} - {"less"}  # which makes one case's condition
    assert not nodes and all(s.label == "permute_dims" for s in g.selections.values())


def image(g: Graph) -> tuple[Tensor, Tensor, Tensor]:
    return g.input("x4", (2, 4, 5, 5)), g.input("scale", (4,)), g.input("bias", (4,))


def attention_of(g: Graph, q: Any, k: Any, mask: Any = None, dtype: str = "float32") -> Tensor:
    keys = g.input("k", k)
    return ops.attention(g.input("q", q), keys, keys, None if mask is None else g.input("mask", mask, dtype))


def test_an_index_out_of_range_is_refused_in_the_run() -> None:
    x, i = np.zeros((4, 3), np.float32), np.array([0, 4])
    with pytest.raises(IndexError, match="outside -4 … 3"):
        run_cut(BUILTIN_OPS["take"], {}, [x, i])
