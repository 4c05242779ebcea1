"""What an operator says of its blocks alone: applied to them it gives what the shard does."""

from __future__ import annotations

import numpy as np
import pytest

from tapestry_exec import evaluate
from tapestry_plan import Graph, Op, Tensor
from tapestry_plan.ir import BUILTIN_OPS
from tests.cutting import Case, input_block
from tests.exec.cuda.test_blocks_on_cupy import on, shards_of
from tests.operator_cases import CASES

LOCAL = [case for case in CASES if BUILTIN_OPS[case.op].local is not None]


def cuts(case: Case) -> list[dict[str, int]]:
    """The whole, and each axis in three parts, by itself."""
    axes = BUILTIN_OPS[case.op].signature(list(case.shapes), case.attrs).axes
    return [{}, *({axis.name: min(3, axis.size)} for axis in axes if axis.size > 1)]


@pytest.mark.heavy(2)
@pytest.mark.parametrize("case", LOCAL, ids=str)
def test_an_operator_on_blocks_alone_gives_the_shard(case: Case) -> None:
    op, arrays = BUILTIN_OPS[case.op], case.arrays(6)
    for cut in cuts(case):
        for shard in shards_of(op, case.attrs, arrays, cut):
            blocks = [input_block(shard.signature, k, shard.index, array)[1] for k, array in enumerate(arrays)]
            if any(block is None for block in blocks):
                continue
            attrs = op.attributes_of_blocks(shard, [block.shape for block in blocks])
            if attrs is None:
                continue
            g = Graph()
            given = [g.input(f"x{k}", block.shape, block.dtype.name) for k, block in enumerate(blocks)]
            try:
                made = g.op(op, *given, **{key: value for key, value in attrs.items() if value is not None})
            except ValueError:
                continue  # an operator of other shapes: over its own blocks it is none
            every = (made,) if isinstance(made, Tensor) else made
            if _index_shape(g) != shard.index.shape:
                continue
            for k, one in enumerate(every):
                g.output(one, f"y{k}")
            found = evaluate(g, {f"x{k}": np.array(block, order="C") for k, block in enumerate(blocks)})
            for one, wanted in zip(found.values(), on(np, op, shard, arrays), strict=True):
                np.testing.assert_allclose(one, wanted, rtol=2e-3 if one.dtype == np.float16 else 1e-5, atol=1e-6)


def _index_shape(g: Graph) -> tuple[int, ...]:
    """That of a graph's only operator."""
    (name,) = g.nodes
    return g.signature(name).index_shape


def test_every_such_operator_has_cases_that_are_tried() -> None:
    """Whole, an operator on its blocks alone is itself: no case of these is passed over."""
    names = {op.name for op in BUILTIN_OPS.values() if op.local is not None}
    assert names == {case.op for case in LOCAL} and len(names) >= 15
    found = {case.op for case in LOCAL if (op := BUILTIN_OPS[case.op]).local is not None and _is_tried(op, case)}
    assert found == names


def _is_tried(op: Op, case: Case) -> bool:
    arrays = case.arrays(6)
    (shard,) = shards_of(op, case.attrs, arrays, {})
    blocks = [input_block(shard.signature, k, shard.index, array)[1] for k, array in enumerate(arrays)]
    attrs = op.attributes_of_blocks(shard, [block.shape for block in blocks if block is not None])
    if attrs is None:
        return False
    g = Graph()
    given = [g.input(f"x{k}", block.shape, block.dtype.name) for k, block in enumerate(blocks) if block is not None]
    g.op(op, *given, **{key: value for key, value in attrs.items() if value is not None})
    return _index_shape(g) == shard.index.shape


def test_a_mean_over_fewer_cells_at_the_edge_depends_on_where_it_lies() -> None:
    op = BUILTIN_OPS["average_pool"]
    shapes = [(1, 2, 6, 6)]
    attrs = op.complete({"kernel": 3, "pads": 1})
    for counted, is_local in ((True, True), (False, False)):
        given = {**attrs, "count_include_pad": counted}
        (shard,) = shards_of(op, given, [np.zeros(shapes[0], np.float32)], {})
        assert (op.attributes_of_blocks(shard, shapes) is not None) == is_local
