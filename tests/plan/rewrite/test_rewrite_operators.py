"""Rewrites of every operator: sharded along every axis, expanded, and in one block with its neighbors."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tapestry_exec import evaluate
from tapestry_plan import Graph, Op, ops
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.rewrite import NotApplicable, Rule, compose, expand, find, fuse, key_blocks, shard
from tests.cutting import Case, backwards, close
from tests.operator_cases import CASES
from tests.rewriting import ROUNDING, Arrays, graph_of, same


def one_operator(case: Case, op: Op | None = None) -> tuple[Graph, Arrays]:
    arrays = {f"x{k}": array for k, array in enumerate(case.arrays(1))}
    g, tensors = graph_of(arrays)
    outs = g.op(op or case.op, *tensors, name="op", **case.attrs)
    for out in outs if isinstance(outs, tuple) else (outs,):
        g.output(out)
    return g, arrays


# -- shard: every operator -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_operator_is_sharded_along_every_axis(case: Case) -> None:
    g, arrays = one_operator(case)
    before, wanted = g.to_json(), evaluate(g, arrays)
    for axis in g.signature("op").axes:
        for parts in {min(2, axis.size), min(5, axis.size)}:
            h = shard.apply(g, "op", axis=axis.name, parts=parts, fan_in=2)
            assert sum(node.op == f"part({case.op})" for node in h.nodes.values()) >= parts
            h.validate()
            found = evaluate(h, arrays)
            for label, array in wanted.items():
                close(found[label], array, 2e-3 if array.dtype == np.float16 else ROUNDING)
    assert g.to_json() == before


@pytest.mark.heavy(3)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_names_and_orders_of_axes_change_no_shard(case: Case) -> None:
    """Another name and the index axes backwards: the same parts on the same slices, and the same bits."""
    op = BUILTIN_OPS[case.op]
    other = replace(op, name="other", signature=lambda shapes, attrs: backwards(op.signature(shapes, attrs)))
    (g, arrays), (turned, _) = one_operator(case), one_operator(case, other)
    for axis in g.signature("op").axes:
        if axis.size > 1:
            h, t = (shard.apply(graph, "op", axis=axis.name, parts=2) for graph in (g, turned))
            assert t.draw().text.replace("(other)", f"({case.op})") == h.draw().text
            one, two = evaluate(h, arrays), evaluate(t, arrays)
            assert all(np.array_equal(one[label], two[label], equal_nan=True) for label in one)


@pytest.mark.parametrize("case", [case for case in CASES if BUILTIN_OPS[case.op].expansions], ids=str)
def test_every_expansion_gives_the_same(case: Case) -> None:
    g, arrays = one_operator(case)
    for expansion in BUILTIN_OPS[case.op].expansions:
        try:
            h = expand.apply(g, "op", into=expansion.__name__)
        except NotApplicable:
            continue
        narrow = any(array.dtype == np.float16 for array in arrays.values())
        same(g, h, arrays, 4e-3 if narrow else 1e-4)


@pytest.mark.parametrize("op", ["linear", "gemm", "matmul", "softmax", "mean", "layer_normalization", "conv"])
def test_every_listed_operator_has_an_expansion_that_applies(op: str) -> None:
    for expansion in BUILTIN_OPS[op].expansions:
        graphs = [one_operator(case)[0] for case in CASES if case.op == op]
        assert any(find(g, expand, into=expansion.__name__) == ["op"] for g in graphs), expansion.__name__


@pytest.mark.heavy(2)
@pytest.mark.parametrize("case", [case for case in CASES if case.op == "attention"], ids=str)
def test_attention_is_expanded_and_taken_by_key_blocks(case: Case) -> None:
    """With masks, causal, and with shared heads of keys."""
    g, arrays = one_operator(case)
    h = same(g, expand.apply(g, "op", into="matmul_softmax_matmul"), arrays, ROUNDING)
    (at,) = find(h, key_blocks)
    keys = arrays["x1"].shape[2]
    for parts in {1, min(2, keys), keys}:
        same(g, key_blocks.apply(h, at, parts=parts), arrays, ROUNDING)


# -- two in one block ----------------------------------------------------------------------------------------

INEXACT = re.compile("not without gaps|are not whole blocks|in blocks, not cell by cell|as a whole|would not be a box")
"""Why two operators have no exact block: what is read has gaps, or is written several cells at a time."""


def composed(g: Graph, at: str, rule: Rule = compose) -> Graph | None:
    """The two operators as one; None if they are refused since their block would not be exact."""
    try:
        return rule.apply(g, at, operand=0)
    except NotApplicable as error:
        assert INEXACT.search(str(error)), error
        return None


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_operator_in_one_block_with_what_reads_it(case: Case) -> None:
    g, arrays = one_operator(case)
    if len(g.nodes["op"].outputs) > 1 or g.stored["op"].dtype == "bool":
        return
    dict.clear(g.outputs)
    g.output(g.op("abs", g.tensor("op"), name="after"))
    h = composed(g, "after", fuse)
    if h is None:
        assert case.op not in SIMPLE, "these write cell by cell"
        return
    assert same(g, h, arrays).nodes["after"].op == f"fused({case.op},abs)"
    for axis in h.signature("after").axes:
        if axis.size > 1:
            same(g, shard.apply(h, "after", axis=axis.name, parts=2), arrays, ROUNDING)


@pytest.mark.parametrize("case", [case for case in CASES if case.shapes], ids=str)
def test_every_operator_in_one_block_with_what_it_reads(case: Case) -> None:
    arrays = {f"x{k}": array for k, array in enumerate(case.arrays(1))}
    if arrays["x0"].dtype == bool:
        return
    g, (x, *rest) = graph_of(arrays)
    outs = g.op(case.op, g.op("abs", x, name="before"), *rest, name="op", **case.attrs)
    for out in outs if isinstance(outs, tuple) else (outs,):
        g.output(out)
    h = composed(g, "op")
    if h is None:
        assert case.op not in SIMPLE, "these read cell by cell"
        return
    assert same(g, h, arrays, 1e-6).nodes["op"].op == f"fused(abs,{case.op})" and list(h.nodes) == ["op"]
    for axis in h.signature("op").axes:
        if axis.size > 1:
            same(g, shard.apply(h, "op", axis=axis.name, parts=2), arrays, ROUNDING)


SIMPLE = {"linear", "gemm", "matmul", "einsum", "softmax", "add", "multiply", "exp", "relu", "sum", "max"}
"""Operators that no case refuses."""


# -- documents -------------------------------------------------------------------------------------------


def _attrs(document: Any, op: str) -> Any:
    return next(item["attrs"] for item in document["order"] if item.get("op") == op)


@pytest.mark.parametrize(
    ("op", "change", "message"),
    [
        ("fused(add,softmax)", {"fused.at": [-1]}, r"fused.at is \(-1,\); give different places from 0 to 0"),
        ("fused(add,softmax)", {"fused.at": [0, 0]}, "fused.at is .0, 0.; give different places from 0 to 1"),
        ("fused(add,softmax)", {"fused.at": []}, "fused.at is ..; give different places"),
        ("fused(add,softmax)", {"fused.inputs": 3}, "fused.inputs is 3; give a number of the 2 operands"),
        ("fused(add,softmax)", {"fused.dtype": "float64"}, "fused.dtype is 'float64'; add gives float32"),
        ("fused(add,softmax)", {"fused.second": [["axes", 1]]}, "softmax in a block: there is no attribute 'axes'"),
        ("fused(add,softmax)", {"fused.second": [["axis", 1.5]]}, "softmax in a block: axis must be an integer"),
        ("state(var)", {"part.dtypes": ["float64"]}, "inputs have dtypes .'float32'.; the part reads .'float64'."),
        ("state(var)", {"part.dtypes": []}, "does not take its operands and attributes"),
        ("part(matmul)", {"part.dtypes": ["float32", "float64"]}, "the part reads .'float32', 'float64'."),
        ("merge(var)", {"merge.result": "float64"}, "merge.result is 'float64'; var gives float32"),
        ("merge(logsumexp)", {"merge.dtype": "float64"}, "they must be states of .'float64', 'float64'."),
    ],
)
def test_attributes_of_derived_operators_are_checked_as_they_are_read(op: str, change: Any, message: str) -> None:
    """In a document they are what a rule wrote, or what somebody made of it."""
    g = Graph()
    x = g.input("x", (12, 12))
    g.output(ops.softmax(x + g.input("v", (12,)), axis=1), "y")
    for name in ("var", "logsumexp"):
        g.output(g.op(name, x, axis=0, name=name), name)
    g.output(x @ x, "z")
    h = fuse.apply(g, "softmax")
    for name, axis in (("var", "i0"), ("logsumexp", "i0"), ("matmul", "m")):
        h = shard.apply(h, name, axis=axis, parts=2)
    document = json.loads(h.to_json())
    assert Graph.from_json(json.dumps(document)).to_json() == h.to_json()
    _attrs(document, op).update(change)
    with pytest.raises(ValueError, match=message):
        Graph.from_json(json.dumps(document))
