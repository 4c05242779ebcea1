"""What the Java Tapestry's ten constraints refuse, and the three faults that they let pass, each broken alone.

The names are those of crutcher/tapestry, java/src/main/java/loom/graph/constraints. Its nodes are our tensors,
operators and selections; its applications are shards: of an `Operation`, and the computations of a plan.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from tapestry_exec import InvalidPlan, check_plan, run
from tapestry_plan import (
    Axis,
    Graph,
    Mesh,
    Op,
    Operand,
    Operation,
    PlanVersionError,
    ShardPlan,
    Signature,
    UnsupportedOp,
    operation,
    plan,
    project,
)
from tapestry_plan.ir import ShardRegions
from tapestry_plan.ops import linear, relu
from tapestry_sets import AffineMap, Box, DisjointRegions, IndexProjection, Region
from tests.spilling import apart

Document = dict[str, Any]
Edit = Callable[[Document], Any]


def model() -> Graph:
    g = Graph()
    x, w, b = g.input("x", (4, 6)), g.input("w", (6, 4)), g.input("b", (4,))
    g.output(relu(linear(x, w, b, name="fc1"), name="act")[1:], "out")
    return g


@lru_cache(maxsize=1)
def a_plan() -> ShardPlan:
    fix = {"fc1": {"m": 2}, "act": {"i0": 2}}
    return apart(plan(model(), Mesh(2), fix=fix, placement="single", layout={"w": {0: 2}}))  # nothing is overwritten


def node(d: Document, name: str) -> Document:
    return next(entry for entry in d["order"] if name in (entry.get("node"), entry.get("select")))


def tensor(d: Document, name: str) -> Document:
    return next(entry for entry in d["tensors"] if entry["name"] == name)


def put(entry: Document, **fields: Any) -> None:
    entry.update(fields)


def step(d: Document, kind: str, name: str, at: int = 0) -> Document:
    return [s for s in d["steps"] if s["type"] == kind and s["node"] == name][at]


GRAPHS: list[tuple[str, str, Edit, str]] = [
    ("TypeSchemaConstraint", "tensor", lambda d: put(tensor(d, "x"), kind="variable"), "of kind 'variable'"),
    ("TypeSchemaConstraint", "operator", lambda d: put(node(d, "act"), op="rely"), "'rely' has no declaration"),
    ("TypeSchemaConstraint", "entry", lambda d: d["order"].append({"note": "n"}), "missing required field `type`"),
    (
        "TypeSchemaConstraint",
        "step of a selection",
        lambda d: put(node(d, "slice")["pieces"][0]["map"], steps=[{"rotate": 3}]),
        r"selection .slice.: Piece: Object missing required field `step`",
    ),
    ("NodeBodySchemaConstraint", "version", lambda d: put(d, format="tapestry-graph/9"), "this version reads"),
    ("NodeBodySchemaConstraint", "missing", lambda d: tensor(d, "x").pop("shape"), "missing required field `shape`"),
    ("NodeBodySchemaConstraint", "type", lambda d: put(tensor(d, "x"), shape="46"), "Expected `array`, got `str`"),
    ("NodeBodySchemaConstraint", "extent", lambda d: put(tensor(d, "x"), shape=[4, -6]), "extents are at least 1"),
    ("NodeBodySchemaConstraint", "attribute", lambda d: put(node(d, "act"), attrs={"alpha": 1}), "attribute 'alpha'"),
    ("unique ids", "tensors", lambda d: d["tensors"].append(dict(tensor(d, "x"))), "two tensors are called 'x'"),
    ("unique ids", "nodes", lambda d: d["order"].append(dict(node(d, "act"))), "two nodes are called 'act'"),
    ("unique ids", "selections", lambda d: d["order"].append(dict(node(d, "slice"))), "two selections are called"),
    ("unique ids", "both", lambda d: put(node(d, "slice"), select="x"), "a stored tensor and a selection are both"),
    (
        "OperationNodesSourcesAndResultsAreTensors",
        "an input is a node",
        lambda d: (put(node(d, "fc1"), node="first"), put(node(d, "act"), inputs=["first"])),
        "reads 'first', which no earlier node makes",
    ),
    (
        "OperationNodesSourcesAndResultsAreTensors",
        "an output is a selection",
        lambda d: put(node(d, "act"), outputs=["slice"]),
        "writes 'slice', which is not a stored tensor",
    ),
    (
        "OperationNodesSourcesAndResultsAreTensors",
        "an output is an input",
        lambda d: put(node(d, "act"), outputs=["x"]),
        "writes 'x', which is of kind 'input'",
    ),
    (
        "AllTensorsHaveExactlyOneSourceOperationConstraint",
        "none",
        lambda d: d["tensors"].append({"name": "t", "shape": [2], "dtype": "float32", "kind": "result"}),
        "'t' is a result, but no operator makes it",
    ),
    (
        "AllTensorsHaveExactlyOneSourceOperationConstraint",
        "two",
        lambda d: d["order"].append(
            {"type": "operator", "op": "negative", "node": "n", "attrs": {}, "inputs": ["act"], "outputs": ["fc1"]}
        ),
        "'fc1' is made by the nodes 'fc1' and 'n'",
    ),
    ("TensorDTypesAreValidConstraint", "unknown", lambda d: put(tensor(d, "x"), dtype="word"), "not a dtype of NumPy"),
    ("TensorDTypesAreValidConstraint", "mixed", lambda d: put(tensor(d, "w"), dtype="float64"), "cast them"),
    (
        "TensorDTypesAreValidConstraint",
        "of a result",
        lambda d: put(tensor(d, "act"), dtype="float16"),
        "'act' has dtype float16; it gives float32",
    ),
    (
        "ApplicationNodeSelectionsAreWellFormedConstraint",
        "rank",
        lambda d: put(node(d, "slice")["pieces"][0]["map"]["steps"][0], matrix=[[1, 0]], offset=[1]),
        "maps rank 2 to rank 1",
    ),
    (
        "ApplicationNodeSelectionsAreWellFormedConstraint",
        "bounds",
        lambda d: put(node(d, "slice")["pieces"][0]["map"]["steps"][0], offset=[2, 0]),
        r"cell \(2, 0\) reads \(4, 0\)",
    ),
    (
        "OperationReferenceAgreementConstraint",
        "an input that is not there",
        lambda d: put(node(d, "fc1"), inputs=["x", "w", "c"]),
        "reads 'c', which no earlier node makes",
    ),
    (
        "OperationReferenceAgreementConstraint",
        "an output that is not there",
        lambda d: put(d, outputs={"out": "y"}),
        "names tensor 'y', which does not exist",
    ),
    (
        "IPFSignatureAgreementConstraint",
        "fewer inputs than the signature",
        lambda d: put(node(d, "fc1"), inputs=["x"]),
        "'linear' does not take its operands",
    ),
    (
        "IPFSignatureAgreementConstraint",
        "more outputs than the signature",
        lambda d: (
            put(node(d, "act"), outputs=["act", "t"]),
            d["tensors"].append({"name": "t", "shape": [2], "dtype": "float32", "kind": "result"}),
        ),
        "2 outputs given, the signature has 1",
    ),
    (
        "IPFSignatureAgreementConstraint",
        "an output's shape",
        lambda d: put(tensor(d, "act"), shape=[4, 5]),
        "each cell must be written exactly once",
    ),
    (
        "ThereAreNoTensorOperationReferenceCyclesConstraint",
        "operators",
        lambda d: put(node(d, "fc1"), inputs=["act", "w", "b"]),
        "part of a cycle",
    ),
    (
        "ThereAreNoTensorOperationReferenceCyclesConstraint",
        "selections",
        lambda d: put(node(d, "slice"), inputs=["slice"]),
        "part of a cycle",
    ),
]


@pytest.mark.parametrize(("constraint", "case", "edit", "message"), GRAPHS, ids=[f"{a} {b}" for a, b, _, _ in GRAPHS])
def test_graph_documents(constraint: str, case: str, edit: Edit, message: str) -> None:
    document = json.loads(model().to_json())
    assert Graph.from_dict(copy.deepcopy(document)).to_json() == model().to_json()
    edit(document)
    with pytest.raises(ValueError, match=message):
        Graph.from_json(json.dumps(document))


def swap(d: Document, one: str, other: str) -> None:
    """Compute two operators in the wrong order, everything else as it is."""
    a = d["steps"].index(step(d, "compute", one))
    b = d["steps"].index(step(d, "compute", other))
    d["steps"][a], d["steps"][b] = d["steps"][b], d["steps"][a]


PLANS: list[tuple[str, str, Edit, str]] = [
    ("TypeSchemaConstraint", "step", lambda d: put(d["steps"][0], type="bring"), "bring"),
    ("unique ids", "buffers", lambda d: d["buffers"].append(d["buffers"][0]), "two buffers of this number"),
    (
        "ApplicationNodeSelectionsAreWellFormedConstraint",
        "rank",
        lambda d: put(step(d, "compute", "act"), start=[0], shape=[2]),
        "outside the index space",
    ),
    (
        "ApplicationNodeSelectionsAreWellFormedConstraint",
        "bounds",
        lambda d: put(step(d, "compute", "act", 1), start=[3, 0]),
        "outside the index space",
    ),
    (
        "OperationReferenceAgreementConstraint",
        "an operator that is not there",
        lambda d: put(step(d, "compute", "act"), node="acts"),
        "no operator 'acts'",
    ),
    (
        "OperationReferenceAgreementConstraint",
        "an operator without a computation",
        lambda d: d.update(steps=[s for s in d["steps"] if (s["type"], s.get("node")) != ("compute", "act")]),
        "of 'act' in buffer 12 on device 0, which holds only nothing",
    ),
    (
        "OperationReferenceAgreementConstraint",
        "a gap between the index boxes",
        lambda d: put(step(d, "compute", "act", 1), start=[3, 0], shape=[1, 4]),
        "of 'act' in buffer 13 on device 1, which holds only",
    ),
    (
        "OperationReferenceAgreementConstraint",
        "index boxes that overlap",
        lambda d: put(step(d, "compute", "act", 1), start=[1, 0], shape=[3, 4]),
        r"input 0 \('fc1'\) needs .*; buffer 11 is over",
    ),
    (
        "IPFSignatureAgreementConstraint",
        "fewer inputs than the signature",
        lambda d: step(d, "compute", "fc1")["inputs"].pop(),
        "2 inputs and 1 outputs do not fit the operands of",
    ),
    (
        "IPFSignatureAgreementConstraint",
        "a region that is not the projection of the index",
        lambda d: put(step(d, "copy", "fc1")["regions"][0], setts=[[[2, 4, 0]], []]),
        "reads .* of 'w' in buffer 6 on device 0, which holds only",
    ),
    (
        "ThereAreNoApplicationReferenceCyclesConstraint",
        "read before it is made",
        lambda d: swap(d, "fc1", "act"),
        "of 'fc1' in buffer 10 on device 0, which holds only nothing",
    ),
]


def planned(document: Document) -> bytes:
    """A plan's text, its SHA-256 made anew, so that only what it says can be noticed."""
    body = {key: value for key, value in document.items() if key != "sha256"}
    digest = hashlib.sha256(msgspec.json.encode(body, order="sorted")).hexdigest()
    return msgspec.json.encode({**body, "sha256": digest})


@pytest.mark.parametrize(("constraint", "case", "edit", "message"), PLANS, ids=[f"{a} {b}" for a, b, _, _ in PLANS])
def test_plan_documents(constraint: str, case: str, edit: Edit, message: str) -> None:
    document = json.loads(a_plan().with_steps().to_json())
    check_plan(ShardPlan.from_json(planned(document)))
    edit(document["explicit"])
    with pytest.raises((InvalidPlan, PlanVersionError, UnsupportedOp), match=message):
        check_plan(ShardPlan.from_json(planned(document)))


def sharded(cut: dict[str, int]) -> tuple[Operation, list[ShardRegions]]:
    op = operation(model(), "fc1")
    return op, list(op.shard(cut))


def test_shards_are_what_their_index_says() -> None:
    """IPFSignatureAgreementConstraint, and of shards that are the whole of the work: the three faults below."""
    op, shards = sharded({"m": 2, "k": 3})
    op.check_shards(shards)
    op.check_shards(shards[::-1])
    first = shards[0]
    wider = first.inputs[0] | Region.from_bounds((4, 6), (3, 5), (4, 6))
    for inputs, message in (
        ((wider, *first.inputs[1:]), "shard 0 says that input 0 is .* the projection of its index"),
        ((DisjointRegions((4, 6)), *first.inputs[1:]), "shard 0 says that input 0 is"),
        (first.inputs[:2], "shard 0 lists 2 inputs; the operator has 3"),
        ((DisjointRegions((4, 7)), *first.inputs[1:]), r"shard 0 has a region in the box .* of 'x'"),
        ((DisjointRegions((4,)), *first.inputs[1:]), r"shard 0 has a region in the box .* of 'x'"),
    ):
        with pytest.raises(ValueError, match=message):
            op.check_shards([replace(first, inputs=inputs), *shards[1:]])
    with pytest.raises(ValueError, match="shard 0 says that output 0 is"):
        op.check_shards([replace(first, outputs=(DisjointRegions((4, 4)),)), *shards[1:]])


def test_every_operation_has_a_shard() -> None:
    op, _ = sharded({})
    with pytest.raises(ValueError, match="there is none; the operator needs at least one"):
        op.check_shards([])


# ---------------------------------------------------------------------------------------- what the constraints miss


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([(0, 2), (2, 3)], r"no part has \(3, 0, 0\)"),
        ([(0, 2), (1, 4)], r"parts 0 and 1 both have \(1, 0, 0\)"),
        ([(0, 2), (2, 4), (2, 4)], r"parts 1 and 2 both have \(2, 0, 0\)"),
        ([(0, 2), (2, 5)], "outside"),
        ([(-1, 2), (2, 4)], "outside"),
    ],
)
def test_index_boxes_partition_the_index_space(bounds: list[tuple[int, int]], message: str) -> None:
    """The Java project compares what shards read and write, never their index boxes with the operator's."""
    op, _ = sharded({})
    made = [op.region(Box((a, 0, 0), (b - a, 4, 6))) for a, b in bounds]
    with pytest.raises(ValueError, match=message):
        op.check_shards(made)


@pytest.mark.parametrize(
    ("start", "shape", "placed", "message"),
    [
        (1, 3, True, r"index boxes computed of 'act': parts 0 and 1 both have \(1,\)"),
        (0, 2, True, r"index boxes computed of 'act': parts 0 and 1 both have \(0,\)"),
        (0, 4, False, r"the choices cut 'act' into"),
    ],
)
def test_index_boxes_of_a_plans_document(start: int, shape: int, placed: bool, message: str) -> None:
    """A replica that is computed in part only is not a partition, though nothing reads what is missing."""
    g = Graph()
    g.output(relu(g.input("x", (4,)), name="act"), "y")
    document = json.loads(apart(plan(g, Mesh(2), fix={"act": {}})).with_steps().to_json())
    check_plan(ShardPlan.from_json(planned(document)))
    put(step(document["explicit"], "compute", "act", 1), start=[start], shape=[shape])
    if not placed:
        put(document["choices"]["layouts"][0], parts=[2], cells=[[0], [1]])
    with pytest.raises(InvalidPlan if placed else PlanVersionError, match=message):
        check_plan(ShardPlan.from_json(planned(document)))


def test_a_reduction_without_one_of_its_parts() -> None:
    """Its outputs are covered all the same: only the index space tells."""
    op, shards = sharded({"k": 3})
    with pytest.raises(ValueError, match=r"no part has \(0, 0, 2\)"):
        op.check_shards([shards[0], shards[2]])


@pytest.mark.parametrize("n", [1, 10**9])
def test_coverage_is_exact(n: int) -> None:
    """[0, 3), [2, 4), [5, 8) has eight cells from 0 to 8 and does not cover [0, 8): sizes and bounds do not tell."""

    def signature(shapes: Any, attrs: Any) -> Signature:
        axes = (Axis("i", 8 * n),)
        return Signature(axes, (), (Operand(project(axes, [{"i": 1}])),))

    g = Graph()
    op_of = Op("ramp", signature, lambda xp, inputs, outputs, shard: outputs[0].fill(0), dtype=lambda d, a: ("int8",))
    g.op(op_of, name="y")
    op = operation(g, "y")
    made = [op.region(Box((a * n,), ((b - a) * n,))) for a, b in ((0, 3), (2, 4), (5, 8))]
    assert sum(shard.outputs[0].size for shard in made) == 8 * n
    with pytest.raises(ValueError, match=rf"parts 0 and 1 both have \({2 * n},\)"):
        op.check_shards(made)
    with pytest.raises(ValueError, match=rf"no part has \({4 * n},\)"):
        op.check_shards([made[0], op.region(Box((3 * n,), (n,))), made[2]])


@pytest.mark.parametrize("n", [4, 10**9])
def test_projections_of_mixed_sign_are_exact(n: int) -> None:
    """i - j over n×n spans [-(n-1), n): images by corners alone see [0, 1)."""
    axes = (Axis("i", n), Axis("j", n, "reduction"))
    difference = IndexProjection(AffineMap(((1, -1),), (0,)), (1,))
    index = Box.of((n, n))
    assert difference.bounding_box(index) == Box((1 - n,), (2 * n - 1,))
    assert difference.image(index).size == 2 * n - 1
    signature = Signature(axes, (Operand(difference),), (Operand(project(axes, [{"i": 1}])),))
    with pytest.raises(ValueError, match="outside the tensor"):
        signature.validate([(n,)], [(n,)], "diff")
    signature.validate([Box((1 - n,), (2 * n - 1,))], [(n,)], "diff")
    half = Box((0, 0), (n // 2, n))
    assert signature.input_region(0, half, Box((1 - n,), (2 * n - 1,))).size == n + n // 2 - 1


def test_the_model_of_these_documents_runs() -> None:
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=shape).astype("f4") for name, shape in (("x", (4, 6)), ("w", (6, 4)), ("b", (4,)))}
    found = run(a_plan(), arrays, verify=True).outputs["out"]
    want = np.maximum(arrays["x"] @ arrays["w"] + arrays["b"], 0)[1:]
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
