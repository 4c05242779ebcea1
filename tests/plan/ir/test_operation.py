"""Shards and shared cells of single operators, against cells listed from their definitions."""

from __future__ import annotations

from itertools import pairwise, product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_plan import Graph, Operation, operation
from tapestry_plan.ir import count_shared
from tapestry_plan.ops import conv, linear


def convolution(size: int, kernel: int, stride: int, pad: int, dilation: int) -> Operation | None:
    if (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 < 2:
        return None
    g = Graph()
    pads, strides, dilations = (pad,) * 4, (stride, 1), (dilation, 1)
    x, w = g.input("x", (1, 2, size, 9)), g.input("w", (3, 2, kernel, 1))
    conv(x, w, strides=strides, pads=pads, dilations=dilations, name="conv")
    return operation(g, "conv")


@given(st.integers(3, 20), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.integers(1, 3), st.data())
def test_shards_read_what_their_windows_read(size, kernel, stride, pad, dilation, data) -> None:  # type: ignore[no-untyped-def]
    op = convolution(size, kernel, stride, pad, dilation)
    if op is None:
        return
    height = op.signature.axes[2].size
    parts = data.draw(st.integers(1, height))
    rows_of = []
    for part in op.shard({"h": parts}):
        h0, n = part.index.start[2], part.index.shape[2]
        rows = {h * stride + k * dilation - pad for h, k in product(range(h0, h0 + n), range(kernel))}
        rows = {r for r in rows if 0 <= r < size}
        assert {point[2] for point in part.inputs[0].points().tolist()} == rows
        assert part.inputs[0].size == 2 * len(rows) * 9
        assert part.outputs[0].size == 3 * n * op.signature.axes[3].size
        rows_of.append(rows)
    if parts > 1:
        most = max(len(a & b) for a, b in pairwise(rows_of))
        assert count_shared(op, "h", parts)[0] == 2 * 9 * most


@given(st.data(), st.integers(1, 2), st.booleans())
def test_parts_along_any_axes_are_each_its_own_region(data: st.DataObject, groups: int, bias: bool) -> None:
    """Many at once, cell for cell as the definition of a convolution has them."""
    g = Graph()
    operands = [g.input("x", (3, 4, 5, 4)), g.input("w", (4, 4 // groups, 3, 2))]
    operands += [g.input("b", (4,))] if bias else []
    conv(*operands, strides=(2, 1), pads=(1, 1, 0, 1), groups=groups, name="conv")
    op = operation(g, "conv")
    cut = {axis.name: data.draw(st.integers(1, min(3, axis.size))) for axis in op.signature.axes}
    shards = op.shard(cut)
    assert len(shards) == prod(cut.values())
    for part in data.draw(st.lists(st.sampled_from(shards), max_size=3)):
        (n, c, h, w, ci, kh, kw) = (range(a, b) for a, b in zip(part.index.start, part.index.stop, strict=True))
        per = 4 // groups
        x = {
            (b, o * groups // 4 * per + i, 2 * y + k - 1, z + m - 1)
            for b, o, y, z, i, k, m in product(n, c, h, w, ci, kh, kw)
            if 0 <= 2 * y + k - 1 < 5 and 0 <= z + m - 1 < 4
        }
        begins = (ci.start, kh.start, kw.start) == (0, 0, 0)
        wanted = [x, set(product(c, ci, kh, kw)), *([{(o,) for o in c if begins}] if bias else [])]
        assert [{tuple(cell) for cell in cells.points().tolist()} for cells in part.inputs] == wanted
        assert {tuple(cell) for cell in part.outputs[0].points().tolist()} == set(product(n, c, h, w))
    op.check_shards(shards)


def test_halo_rows_follow_the_published_formula() -> None:
    """max(0, (K − 1)·d + 1 − s) rows between neighbors while they fit the shard and the window is solid."""
    for kernel, stride in product((1, 3, 5), (1, 2)):
        op = convolution(64, kernel, stride, 0, 1)
        assert op is not None
        assert count_shared(op, "h")[0] == 2 * 9 * max(0, kernel - stride)


def test_parts_by_two_axes_come_row_major() -> None:
    g = Graph()
    linear(g.input("x", (8, 6)), g.input("w", (6, 4)), g.input("b", (4,)), name="fc1")
    parts = operation(g, "fc1").shard({"batch": 2, "in": 2})
    assert [part.index.start for part in parts] == [(0, 0, 0), (0, 0, 3), (4, 0, 0), (4, 0, 3)]
    assert [part.inputs[2].size for part in parts] == [4, 0, 4, 0]  # the bias goes with the first part of `in`


@pytest.mark.parametrize(
    ("parts", "message"), [({"q": 2}, "no index axis"), ({"m": 0}, "0 parts"), ({"m": 9}, "9 parts")]
)
def test_wrong_cuts(parts: dict[str, int], message: str) -> None:
    g = Graph()
    linear(g.input("x", (8, 6)), g.input("w", (6, 4)), name="fc1")
    with pytest.raises(ValueError, match=message):
        operation(g, "fc1").shard(parts)
    with pytest.raises(ValueError, match="no operator"):
        operation(g, "fc2")
