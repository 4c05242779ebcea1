"""Blocks whose rows lie apart in memory: the bits of those that lie side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tapestry_plan import Graph
from tapestry_plan.ir import BUILTIN_OPS, Op
from tapestry_plan.steps import shard_of
from tapestry_sets import Box
from tests.cutting import Array, Case
from tests.operator_cases import CASES

Order = Callable[[int], Sequence[int]]
"""The axes but the last one, the outermost in memory first."""
ORDERS: tuple[Order, ...] = (lambda n: range(n), lambda n: range(n)[::-1])


def apart(array: Array, order: Order) -> Array:
    """The same cells where no two rows are neighbors, perhaps with axes in another order."""
    if array.ndim < 2:
        return array
    axes = [*order(array.ndim - 1), array.ndim - 1]
    around = np.full([array.shape[axis] + (2 if k else 0) for k, axis in enumerate(axes)], 7, array.dtype)
    inside = tuple(slice(1, 1 + array.shape[axis]) if k else slice(None) for k, axis in enumerate(axes))
    found = around[inside].transpose(np.argsort(axes))
    found[...] = array
    return found


def made(op: Op, attrs: dict[str, Any], arrays: Sequence[Array], lay: Any, lay_output: Any) -> list[bytes]:
    """What an operator's block function makes of whole operands, which lie as they are laid."""
    g = Graph()
    given = [g.input(f"x{k}", array.shape, array.dtype.name) for k, array in enumerate(arrays)]
    g.op(op, *given, name="it", **attrs)
    node = g.nodes["it"]
    signature = g.signature("it")
    shard = shard_of(g, node, signature.index)
    blocks: list[Array | None] = []
    for k, (array, box) in enumerate(zip(arrays, shard.input_boxes, strict=True)):
        if box is None:
            blocks.append(None)
            continue
        block = np.full(box.shape, signature.inputs[k].pad or 0, array.dtype)
        inside = box.intersect(Box.of(array.shape))
        if inside is not None:
            begin = [a - b for a, b in zip(inside.start, box.start, strict=True)]
            target = tuple(slice(a, a + n) for a, n in zip(begin, inside.shape, strict=True))
            block[target] = array[tuple(map(slice, inside.start, inside.stop))]
        blocks.append(lay(block))
    written = [
        lay_output(np.zeros(box.shape, g.stored[name].dtype))
        for name, box in zip(node.outputs, shard.output_boxes, strict=True)
    ]
    room = np.empty(g.ops[node.op].workspace(shard, written[0].dtype.itemsize) + 64, np.uint8)
    g.ops[node.op].block(np, blocks, written, shard.within(room))
    return [np.ascontiguousarray(array).tobytes() for array in written]


def check(op: Op, attrs: dict[str, Any], arrays: Sequence[Array]) -> None:
    plain: Any = lambda array: array  # noqa: E731 - beside the others
    wanted = made(op, attrs, arrays, plain, plain)
    for order in ORDERS:
        for lays in ((True, False), (False, True), (True, True)):
            ways = [(lambda array: apart(array, order)) if some else plain for some in lays]  # noqa: B023
            assert made(op, attrs, arrays, *ways) == wanted


ROWWISE = [case for case in CASES if BUILTIN_OPS[case.op].rows and case.shapes]


@pytest.mark.parametrize("case", ROWWISE, ids=str)
def test_rows_apart_change_no_bit(case: Case) -> None:
    for seed in range(2):
        check(BUILTIN_OPS[case.op], case.attrs, case.arrays(seed))


LARGE: dict[str, tuple[str, dict[str, Any], list[tuple[int, ...]]]] = {
    "a product": ("matmul", {}, [(70, 130), (130, 90)]),
    "products side by side": ("matmul", {}, [(3, 2, 33, 65), (3, 2, 65, 40)]),
    "one row": ("matmul", {}, [(1, 300), (300, 50)]),
    "one column": ("matmul", {}, [(60, 300), (300, 1)]),
    "linear": ("linear", {}, [(64, 192), (192, 80), (80,)]),
    "gemm": ("gemm", {}, [(64, 192), (192, 80), (64, 80)]),
    "attention": ("attention", {}, [(2, 4, 40, 16), (2, 4, 40, 16), (2, 4, 40, 16)]),
    "a pointwise convolution": ("conv", {}, [(2, 48, 27, 23), (64, 48, 1, 1), (64,)]),
    "a convolution": ("conv", {"pads": 1}, [(2, 32, 27, 23), (40, 32, 3, 3), (40,)]),
    "with strides": ("conv", {"pads": 1, "strides": 2}, [(1, 32, 27, 23), (40, 32, 3, 3)]),
    "depthwise": ("conv", {"pads": 1, "groups": 32}, [(1, 32, 27, 23), (32, 1, 3, 3)]),
    "softmax": ("softmax", {"axis": -1}, [(40, 30, 70)]),
    "softmax along rows": ("softmax", {"axis": 0}, [(40, 30, 70)]),
    "maxima of windows": ("max_pool", {"kernel": (3, 3), "strides": (2, 2), "pads": 1}, [(1, 16, 30, 29)]),
    "means of windows": ("average_pool", {"kernel": (3, 3), "strides": (2, 2)}, [(1, 16, 30, 29)]),
    "exponentials": ("exp", {}, [(33, 17, 101)]),
    "tanh": ("tanh", {}, [(33, 17, 101)]),
    "gelu": ("gelu", {}, [(33, 17, 101)]),
    "add": ("add", {}, [(33, 17, 101), (17, 101)]),
}


@pytest.mark.parametrize("name", LARGE)
def test_rows_of_large_blocks_apart_change_no_bit(name: str) -> None:
    """Where the BLAS has several kernels, and NumPy several loops."""
    word, attrs, shapes = LARGE[name]
    rng = np.random.default_rng(1)
    op = BUILTIN_OPS[word]
    assert op.rows
    check(op, attrs, [rng.standard_normal(shape).astype(np.float32) for shape in shapes])


def test_sums_over_rows_and_more_depend_on_how_rows_lie() -> None:
    """NumPy adds what lies side by side in pairs: so there is something to be careful about, and a check sees it."""
    found = []
    for case in CASES:
        if case.op in ("sum", "mean", "global_average_pool", "layer_normalization", "einsum"):
            assert not BUILTIN_OPS[case.op].rows
            try:
                check(BUILTIN_OPS[case.op], case.attrs, case.arrays(0))
            except AssertionError:
                found.append(case.op)
    assert {"sum", "global_average_pool", "layer_normalization"} <= set(found)
