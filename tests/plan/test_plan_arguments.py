"""Every public function and method of tapestry_plan with each argument replaced by wrong values.

A new name in ``__all__``, or a new public method that takes arguments, needs a row here, or a reason why it has none.
Operators' operands and attributes are walked in tests/plan/ops.
"""

from __future__ import annotations

import inspect
import re
from functools import cache
from types import SimpleNamespace
from typing import Any, get_type_hints

import numpy as np
import pytest

import tapestry_plan
from tapestry_plan import (
    MONOIDS,
    Axis,
    Backward,
    Device,
    Graph,
    InfeasiblePlan,
    Link,
    Mesh,
    Monoid,
    NotExported,
    NotFound,
    Op,
    Operand,
    Operation,
    Placed,
    PlanVersionError,
    Shard,
    Shardings,
    ShardPlan,
    Signature,
    Tensor,
    UnsupportedOp,
    concat,
    count_shared,
    crossovers,
    draw,
    from_jaxpr,
    gradient,
    least_memory,
    load_onnx,
    operation,
    operator,
    ops,
    pareto,
    plan,
    project,
    same_graph,
)
from tapestry_sets.regions import Box
from tapestry_sets.views import PermuteDims
from tests.traced_functions import read, recorded
from tests.wrong_arguments import Row, ask, faults_of, is_dtype, signature_of

BOX = Box.of((4, 3, 6))
AXES = (Axis("h", 4), Axis("kh", 3, "reduction"))
READS = project(AXES, [{"h": 2, "kh": 1}])
HOLDS = Operand(project(AXES, [{"h": 1}]))
FILES = dict.fromkeys(("path", "path_or_model"), "path|No such file|File name too long|Is a directory|load_onnx")
NAMED = {"name": "name|no tensor|no operator|no index axis", "node": "node|no operator"}
RANKS = {"shape": "shape|rank"}
SIZES = {"shape": "shape|devices"}
OF_OPTIONS = {
    "Placed": lambda x: isinstance(x, Placed),
    "Space": lambda x: repr(x) in ("'mesh'", "'all'"),
}
"""Named where the options of plans are declared."""
EXTENTS = {"shape": (0, -1, (2, 0), (2, -1))}


def small() -> Graph:
    """Two operators and a view."""
    g = Graph()
    x, w = g.input("x", (4, 6)), g.constant("w", np.ones((6, 3), np.float32))
    y = ops.linear(x, w, name="fc")
    g.output(ops.relu(y.reshape(12), name="act"), "y")
    return g


def tensors() -> dict[str, Any]:
    g = Graph()
    return {"self": g.input("x", (4, 6)), "other": g.input("z", (4, 6))}


@cache
def planned() -> ShardPlan:
    return plan(small(), Mesh((2,)))


@cache
def text_of_plan() -> str:
    return planned().to_json()


@cache
def conv() -> Operation:
    g = Graph()
    ops.linear(g.input("x", (4, 6)), g.input("w", (6, 3)), name="fc")
    return operation(g, "fc")


def declare(block: Any, signature: Any = ops.operands.elementwise_signature, **fields: Any) -> Any:
    def doubled(x: Tensor, *, name: str | None = None) -> Tensor:
        """A function that is declared."""

    doubled.__annotations__ = {"x": Tensor, "name": str | None}
    made = operator(block=block, signature=signature, **fields)(doubled)
    return made(Graph().input("x", (3,)))


@cache
def model() -> bytes:
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (3, 4)) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    made: bytes = helper.make_model(graph).SerializeToString()
    return made


@cache
def opened() -> Graph:
    """A graph that knows the model that it was read from, whose rows are left open."""
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ("N", 4)) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    return load_onnx(helper.make_model(graph), shapes={"N": 4})


@cache
def open_plan() -> ShardPlan:
    return plan(opened(), Mesh((2,)))


def traced() -> Any:
    one = recorded()["layers"]
    return SimpleNamespace(jaxpr=read(one["jaxpr"]), consts=[])


def of_graph(**given: Any) -> Any:
    return lambda: {"self": small(), **given}


def of_tensor(**given: Any) -> Any:
    return lambda: {"self": tensors()["self"], **given}


def linear_signature() -> Signature:
    return conv().signature


def of_signature(**given: Any) -> Any:
    return lambda: {"self": linear_signature(), **given}


def fields_of_op() -> dict[str, Any]:
    add = ops.add.op
    return {"name": "plus", "signature": add.signature, "block": add.block}


def fields_of_monoid() -> dict[str, Any]:
    total = MONOIDS["sum"]
    return {name: getattr(total, name) for name in total.__struct_fields__}


ROWS: dict[str, Row] = {
    "Axis": Row(Axis, lambda: {"name": "h", "size": 4}, refuses={"size": (0, -1)}),
    "Axis.may_have": Row(Axis.may_have, lambda: {"self": Axis("h", 4, parts="equal"), "parts": 2}),
    "Backward.op": Row(
        Backward.op,
        lambda: (lambda x: {"self": Backward((x,), (), (), {}), "name": "relu", "inputs": (x,)})(small().tensor("x")),
        says={"name": "Graph.op: op |operator", "inputs": "inputs|0 operands"},
        skips=["attrs"],
    ),
    "Device": Row(Device, lambda: {"flop_per_second": 1e9}, refuses={"flop_per_second": (0, -1, float("nan"))}),
    "Graph": Row(Graph),
    "Graph.input": Row(Graph.input, of_graph(name="z", shape=(4, 6)), refuses=EXTENTS, takes={"dtype": is_dtype}),
    "Graph.constant": Row(Graph.constant, of_graph(name="z", array=np.ones(3)), takes={"array": "Any"}),
    "Graph.op": Row(
        Graph.op,
        lambda: (lambda g: {"self": g, "op": "relu", "inputs": (g.tensor("x"),), "attrs": {}})(small()),
        says={"op": r"\bop\b|operator", "inputs": "inputs|0 operands"},
    ),
    "Graph.select": Row(
        Graph.select,
        lambda: (lambda g: {"self": g, "kind": PermuteDims((1, 0)), "inputs": (g.tensor("x"),)})(small()),
    ),
    "Graph.output": Row(Graph.output, lambda: (lambda g: {"self": g, "tensor": g.tensor("x"), "name": "z"})(small())),
    "Graph.bind": Row(
        Graph.bind,
        lambda: {"self": opened(), "sizes": {"N": 3}},
        refuses={"sizes": ({"N": -1}, {"N": True}, {"M": 2}, {}, {"N": "x"})},
        says={"sizes": "sizes?|N|symbol"},
        skips=["more"],
    ),
    "Graph.tensor": Row(Graph.tensor, of_graph(name="x"), refuses={"name": ("none",)}, says=NAMED),
    "Graph.source": Row(Graph.source, of_graph(name="x"), refuses={"name": ("none",)}, says=NAMED),
    "Graph.signature": Row(Graph.signature, of_graph(node="fc"), refuses={"node": ("none",)}, says=NAMED),
    "Graph.written_dtypes": Row(Graph.written_dtypes, of_graph(name="fc"), refuses={"name": ("none",)}, says=NAMED),
    "Graph.draw": Row(Graph.draw, of_graph(shards={"fc": {"m": 2}}, direction="right")),
    "Graph.from_json": Row(Graph.from_json, lambda: {"text": small().to_json()}, says={"text": "text|document"}),
    "Graph.from_dict": Row(Graph.from_dict, lambda: {"document": small().to_dict()}),
    "Link": Row(Link, lambda: {"latency_seconds": 1e-6}, refuses={"nbytes_per_second": (0, -1)}),
    "Mesh": Row(
        Mesh,
        lambda: {"shape": (2, 2)},
        takes={"shape": "int | Sequence", "link": "Link | Sequence | Mapping | str", "names": "Sequence"},
        refuses=EXTENTS,
        says=SIZES,
    ),
    "Mesh.named": Row(Mesh.named, lambda: {"name": "h100x8"}, says={"name": "name|no machine"}),
    "Mesh.from_toml": Row(Mesh.from_toml, lambda: {"path": "none.toml"}, raises=(OSError,), says=FILES),
    "Mesh.regroup": Row(Mesh.regroup, lambda: {"self": Mesh((4,)), "shape": (2, 2)}, refuses=EXTENTS, says=SIZES),
    "Mesh.parse": Row(
        Mesh.parse, lambda: {"text": "2x2"}, refuses={"text": ("0", "2x", "")}, says={"text": "text|axis 0"}
    ),
    "Mesh.limit_memory": Row(Mesh.limit_memory, lambda: {"self": Mesh((4,)), "memory_nbytes": 4096}),
    "Mesh.coordinates": Row(Mesh.coordinates, lambda: {"self": Mesh((4,)), "device": 3}, refuses={"device": (-1, 4)}),
    "Monoid": Row(Monoid, fields_of_monoid),
    "Monoid.state_dtype": Row(Monoid.state_dtype, lambda: {"self": MONOIDS["variance"], "dtype": "float32"}),
    "Op": Row(Op, fields_of_op, refuses={"reduction": ("none",)}),
    "Op.flop_per_point": Row(
        Op.flop_per_point, lambda: {"self": ops.add.op, "signature": linear_signature(), "attrs": {}}
    ),
    "Op.count_passes": Row(Op.count_passes, lambda: {"self": ops.add.op, "signature": linear_signature(), "attrs": {}}),
    "Op.count_launches": Row(
        Op.count_launches,
        lambda: {"self": ops.add.op, "signature": linear_signature(), "attrs": {}, "points": 4},
    ),
    "Op.complete": Row(Op.complete, lambda: {"self": ops.add.op, "attrs": {}}),
    "Op.check_attributes": Row(
        Op.check_attributes,
        lambda: {"self": ops.softmax.op, "attrs": {"axis": 1}, "what": "softmax"},
        says={"attrs": "attr"},
    ),
    "Operand": Row(
        Operand,
        lambda: {"projection": READS},
        refuses={"outside": ("none",)},
    ),
    "Operand.bounding_box": Row(Operand.bounding_box, lambda: {"self": HOLDS, "box": Box.of((4, 3))}),
    "Operand.image": Row(Operand.image, lambda: {"self": HOLDS, "box": Box.of((4, 3)), "within": Box.of((4,))}),
    "Operand.images": Row(Operand.images, lambda: {"self": HOLDS, "boxes": [Box.of((4, 3))], "within": Box.of((4,))}),
    "Operation": Row(Operation, lambda: {"graph": conv().graph, "node": conv().node}),
    "Operation.region": Row(Operation.region, lambda: {"self": conv(), "index": BOX}),
    "Operation.shard": Row(
        Operation.shard,
        lambda: {"self": conv(), "parts": {"batch": 2}},
        refuses={"parts": ({"none": 2}, {"batch": 0}, {"batch": 9}, {"batch": 1.5}, {"batch": True}, {5: 1})},
        says={"parts": "parts|index axis"},
    ),
    "Operation.check_shards": Row(
        Operation.check_shards, lambda: {"self": conv(), "shards": conv().shard({"batch": 2})}
    ),
    "Shard.range": Row(Shard.range, lambda: {"self": Shard(BOX, linear_signature(), {}, (), (), None), "axis": "m"}),
    "Shard.within": Row(
        Shard.within, lambda: {"self": Shard(BOX, linear_signature(), {}, (), (), None), "workspace": None}
    ),
    "Shard.length": Row(Shard.length, lambda: {"self": Shard(BOX, linear_signature(), {}, (), (), None), "axis": "m"}),
    "Shard.extent": Row(Shard.extent, lambda: {"self": Shard(BOX, linear_signature(), {}, (), (), None), "axis": "m"}),
    "ShardPlan.bind": Row(
        ShardPlan.bind,
        lambda: {"self": open_plan(), "to": {"N": 6}},
        refuses={"to": ({"N": 0}, {"M": 2}, {}, {"N": 2.5})},
        says={"to": "to|size|N|symbol"},
        skips=["sizes"],
    ),
    "ShardPlan.symbolic_transfers": Row(
        ShardPlan.symbolic_transfers,
        lambda: {"self": open_plan(), "symbol": "N", "confirm": (6,)},
        refuses={"symbol": ("M",), "confirm": ((0,), (1,), (2.5,))},
        says={"confirm": "confirm|N"},
    ),
    "ShardPlan.diff": Row(ShardPlan.diff, lambda: {"self": planned(), "other": planned()}),
    "ShardPlan.explain": Row(ShardPlan.explain, lambda: {"self": planned(), "node": "fc"}, says=NAMED),
    "ShardPlan.from_json": Row(ShardPlan.from_json, lambda: {"text": text_of_plan()}, says={"text": "text|plan"}),
    "ShardPlan.program": Row(ShardPlan.program, lambda: {"self": planned(), "device": 0}, refuses={"device": (-1, 7)}),
    "Shardings.of_kind": Row(Shardings.of_kind, lambda: {"self": planned().to_dask_chunks(), "kind": "input"}),
    "ShardPlan.transfers": Row(
        ShardPlan.transfers, lambda: {"self": planned()}, refuses={"source": (-1, 7), "target": (-1, 7)}
    ),
    "ShardPlan.with_steps": Row(ShardPlan.with_steps, lambda: {"self": planned(), "steps": planned().steps}),
    "Signature": Row(Signature, lambda: {"axes": AXES, "inputs": (HOLDS,), "outputs": (HOLDS,)}),
    "Signature.axis": Row(Signature.axis, of_signature(name="m"), says=NAMED),
    "Signature.boxes": Row(
        Signature.boxes,
        of_signature(parts={"m": 2}, what="here"),
        refuses={"parts": ({"none": 2}, {"m": 0}, {"m": 9}, {"m": 1.5}, {"m": True})},
        says={"parts": "parts|index axis"},
        skips=["what"],
    ),
    "Signature.starts": Row(Signature.starts, of_signature(box=BOX, names=("k",)), says={"names": "names|index axis"}),
    "Signature.input_box": Row(Signature.input_box, of_signature(operand=0, box=BOX), refuses={"operand": (2, -1)}),
    "Signature.output_box": Row(Signature.output_box, of_signature(operand=0, box=BOX), refuses={"operand": (2, -1)}),
    "Signature.input_region": Row(
        Signature.input_region, of_signature(operand=0, box=BOX, shape=(4, 6)), refuses={"operand": (2, -1)}, says=RANKS
    ),
    "Signature.input_regions": Row(
        Signature.input_regions,
        of_signature(operand=0, boxes=[BOX], shape=(4, 6)),
        refuses={"operand": (2, -1)},
        says=RANKS,
    ),
    "Signature.output_regions": Row(
        Signature.output_regions,
        of_signature(operand=0, boxes=[BOX], shape=(4, 3)),
        refuses={"operand": (1, -1)},
        says=RANKS,
    ),
    "Signature.input_shared": Row(
        Signature.input_shared,
        of_signature(operand=0, one=BOX, other=BOX, shape=(4, 6)),
        refuses={"operand": (2, -1)},
        says=RANKS,
    ),
    "Signature.reads_where_it_writes": Row(
        Signature.reads_where_it_writes, of_signature(operand=0), refuses={"operand": (2, -1)}
    ),
    "Signature.reversed": Row(Signature.reversed, of_signature(name="k"), says=NAMED),
    "Signature.validate": Row(
        Signature.validate,
        of_signature(input_shapes=[(4, 6), (6, 3)], output_shapes=[(4, 3)], what="fc"),
        says={"input_shapes": "input", "output_shapes": "output"},
        skips=["what"],
    ),
    "Tensor.apply": Row(Tensor.apply, of_tensor(kind=PermuteDims((1, 0)), others=()), takes={"kind": "ViewKind"}),
    "Tensor.view": Row(Tensor.view, of_tensor(kind=PermuteDims((1, 0)), others=())),
    **{
        f"Tensor.{name}": Row(getattr(Tensor, name), of_tensor(axis=1), says={"ddof": "correction"})
        for name in ("sum", "prod", "mean", "max", "min", "var", "std", "argmax", "argmin")
    },
    **{
        f"Tensor.{name}": Row(getattr(Tensor, name), lambda: {"self": ops.greater(tensors()["self"], 0), "axis": 1})
        for name in ("any", "all")
    },
    "Tensor.astype": Row(Tensor.astype, of_tensor(dtype="int32"), takes={"dtype": is_dtype}),
    "Tensor.clip": Row(Tensor.clip, of_tensor(min=0, max=1), takes=dict.fromkeys(("min", "max"), "float | None")),
    "concat": Row(concat, lambda: {"tensors": [small().tensor("x")], "axis": 0}, refuses={"axis": (2, -3)}),
    "count_shared": Row(
        count_shared, lambda: {"op": conv(), "axis": "m", "parts": 2}, refuses={"parts": (0, -1, 9), "axis": ("none",)}
    ),
    "crossovers": Row(
        crossovers,
        lambda: {"plans": [open_plan()], "symbol": "N", "sizes": (4, 5)},
        takes={"search": "bool | Callable", "progress": "Callable | None"},
        refuses={
            "plans": ([], [planned()], planned()),
            "symbol": ("M",),
            "sizes": ((), (0,), (2.5,)),
            "by": ("none",),
            "search": (None, lambda g: None, lambda g: planned()),
        },
        says={"plans": "plan", "sizes": "size", "search": "search"},
    ),
    "gradient": Row(
        gradient,
        lambda: (lambda g: {"y": g.tensor("act").sum(), "wrt": [g.tensor("x")]})(small()),
    ),
    "Placed": Row(
        Placed,
        lambda: {"by_device": {0: ...}},
        refuses={"by_device": ({"a": ...}, {0: 3})},
        says={"by_device": "Placed"},
    ),
    "least_memory": Row(least_memory, lambda: {"plan": planned()}),
    "from_jaxpr": Row(
        from_jaxpr,
        lambda: {"jaxpr": traced()},
        takes={"jaxpr": "ClosedJaxpr"},
        known={"ClosedJaxpr": lambda x: hasattr(x, "jaxpr")},
        refuses={"jaxpr": (5, None, "x"), "names": (["x"], ["a", "b", "a"])},
    ),
    "load_onnx": Row(
        load_onnx,
        lambda: {"path_or_model": model()},
        takes={"path_or_model": "str | bytes"},
        raises=(OSError,),
        says=FILES,
    ),
    "operation": Row(operation, lambda: {"graph": small(), "name": "fc"}, refuses={"name": ("none",)}, says=NAMED),
    "operator": Row(
        declare,
        lambda: {"block": ops.relu.op.block},
        takes={"block": "Callable", "signature": "Callable"},
        says={"signature": "signature|Stranger"},
        skips=["fields"],
    ),
    "pareto": Row(
        pareto,
        lambda: {"graph": small(), "mesh": Mesh((2,)), "points": 1},
        takes={"progress": "Callable | None"},
        raises=(InfeasiblePlan,),
        known=OF_OPTIONS,
        refuses={
            "points": (-1, 0, 101, 10**18),
            "fan_in": (-1, 0, 1),
            "placement": ("none",),
            "space": ("none",),
            "layout": ({"x": {0: 1.5}}, {"x": {"q": 2}}, {"x": {None: 2}}),
            "fix": ({"fc": {"m": 1.5}}, {"fc": {"none": 2}}),
            "forbid": ({"fc": {"m": 1.5}}, {"none": {"m": 2}}),
            "tie": ({"y": "none"}, {"y": 5}, {5: "x"}),
            "expand": (["none"], [5]),
        },
    ),
    "plan": Row(
        plan,
        lambda: {"graph": small(), "mesh": Mesh((2,))},
        takes={"progress": "Callable | None"},
        raises=(InfeasiblePlan, NotFound),
        known=OF_OPTIONS,
        refuses={
            "memory_nbytes": (-1,),
            "seed": (-1,),
            "fan_in": (-1, 0, 1),
            "placement": ("none",),
            "space": ("none",),
            "layout": ({"x": {0: 1.5}}, {"x": {"q": 2}}, {"x": {9: 2}}, {"x": {None: 2}}, {"x": {0: "none"}}),
            "fix": ({"fc": {"m": 1.5}}, {"fc": {"none": 2}}, {"fc": {5: 2}}, {"fc": {"m": 0}}, {"fc": {"m": None}}),
            "forbid": ({"fc": {"m": 1.5}}, {"fc": {"none": 2}}, {"fc": {5: 2}}, {"none": {"m": 2}}),
            "tie": ({"y": "none"}, {"y": 5}, {5: "x"}),
            "expand": (["none"], [5]),
        },
    ),
    "project": Row(
        project,
        lambda: {"axes": AXES, "start": [{"h": 2, "kh": 1}], "shape": (1,), "splits": {"h": 2}},
        refuses={"splits": ({"none": 2}, {"h": 0}, {"h": 1.5}), "start": ([{"none": 1}], [{"h": 1.5}])},
        says={"axes": "axes|axis", "start": "start|coordinate", "splits": "split"},
    ),
    "same_graph": Row(same_graph, lambda: {"one": small(), "other": small()}, says={"one": "graph", "other": "graph"}),
    "draw.fold": Row(draw.fold, lambda: {"graph": small()}, says={"graph": "graph"}),
    "draw.unfold": Row(draw.unfold, lambda: {"parts": draw.fold(small())}, says={"parts": "parts"}),
    "draw.show_placement": Row(
        draw.show_placement,
        lambda: {"plan": planned(), "names": ["x"]},
        refuses={"names": (["none"], [5])},
        says={"names": "names|not an input"},
    ),
    "draw.show_projection": Row(
        draw.show_projection,
        lambda: {"op": conv(), "parts": {"m": 2}},
        refuses={"parts": ({"none": 2}, {"m": 0}, {"m": 1.5}, [5])},
        says={"parts": "part|index axis"},
    ),
    "draw.draw_spaces": Row(
        draw.draw_spaces,
        lambda: {"op": conv(), "parts": [BOX]},
        refuses={"parts": ([5], [])},
        says={"parts": "part"},
    ),
    "ops.reduce_with": Row(
        ops.reduce_with, lambda: {"monoid": MONOIDS["sum"], "x": tensors()["self"], "axis": 1}, refuses={"axis": (2,)}
    ),
    "ops.reduction": Row(ops.reduction, lambda: {"monoid": MONOIDS["sum"], "name": "total"}),
    "ops.depth_to_space": Row(
        ops.depth_to_space, lambda: {"x": Graph().input("x", (1, 4, 2, 2)), "block": 2}, refuses={"block": (0, -1, 3)}
    ),
    "ops.space_to_depth": Row(
        ops.space_to_depth, lambda: {"x": Graph().input("x", (1, 4, 2, 2)), "block": 2}, refuses={"block": (0, -1, 3)}
    ),
    "ops.p_norm": Row(
        ops.p_norm,
        lambda: {"x": tensors()["self"], "p": 2, "total": ops.sum},
        refuses={"p": (0, -1)},
        says={"total": "."},
    ),
    "ops.lp_pool": Row(
        ops.lp_pool,
        lambda: {"x": Graph().input("x", (1, 4, 4, 4)), "kernel": 2, "window": {"strides": 2}},
        takes={"window": "int | Sequence"},
        says={"window": "strides", "kernel": "kernel|a window of"},
        refuses={"p": (0, -1), "kernel": (0, -1)},
    ),
}
"""By name: functions, constructors and methods."""

NOT_WALKED = {
    "Alternative": "the planner makes it",
    "Backward": "made for each call of an adjoint",
    "Crossovers": "the function crossovers makes it",
    "Expansions": "the planner makes it",
    "Shard": "made for each call of a block",
    "ShardPlan": "plan and from_json make it",
    "Tensor": "graphs make it, one for each operator",
    "Op.attributes_of_blocks": "for backends, of shards that were checked",
    "Op.count_flop": "for plans and runs, of shards that were checked",
    "Op.list_inner": "for plans, of nodes that were checked",
    "Op.form_of": "for backends, of shards that were checked",
    "HeldBuffer": "plans make it",
    "MemoryUse": "plans make it",
    "PlannedTransfer": "plans make it",
    "PlannedTransfers": "plans make it",
    "PlanDifference": "plans make it",
    "MeshPlacement": "plans make it",
    "Shardings": "plans make it",
    "SymbolicTransfers": "plans make it",
    "ShardPlan.report": "writes files; tests/plan/report/test_report.py",
    "ShardPlan.to_jax": "takes a mesh of JAX, which need not be there; tests/plan/steps/test_exports.py",
    "Shardings.get": "a mapping's: takes any name",
    "Shardings.map": "takes a function",
    "PlannedTransfers.tell_elsewhere": "takes what writes bytes alone; tests/exec/cli/test_saved_plans.py",
    "PlannedTransfers.nbytes_by": "takes names alone; tests/plan/steps/test_planned_transfers.py",
    "Monoid.reduced": "works on arrays of any library",
    "Operand.from_exprs": "takes expressions of sympy; tests/plan/ir/test_signature.py",
    "Signature.from_exprs": "takes expressions of sympy; tests/plan/ir/test_signature.py",
    "ops.encode_model": "takes a message of another library; tests/plan/onnx/test_whole.py",
    "ops.check_reference": "takes what ops.encode_model gives",
    "ops.is_in_runtime": "of any name it says no",
    "ops.run_by_all": "takes what ops.run_model takes, in a process of its own",
    "ops.run_model": "behind the block of ops.opaque, whose attributes were checked",
    "SymbolicTransfers.confirm": "takes the plan that it was made of; tests/plan/symbolic/test_symbolic_transfers.py",
    "ops.add_op": "Graph.op behind the functions of operators",
    "ops.number_axes": "for signatures, which get shapes that Graph.op has checked",
    "ops.operator": "the operator of tapestry_plan",
}
ERRORS = (InfeasiblePlan, NotExported, NotFound, PlanVersionError, UnsupportedOp, Warning)


def methods_of(cls: type) -> list[str]:
    """The public methods that a class itself, or a base of tapestry_plan, defines, and that take arguments."""
    found = []
    for base in cls.__mro__:
        for name, each in vars(base).items():
            function = getattr(each, "__func__", each)
            if (
                base.__module__.startswith("tapestry_plan")
                and not name.startswith("_")
                and inspect.isfunction(function)
            ):
                found += [name] * (len(signature_of(function)) > 1)
    return list(dict.fromkeys(found))


def exported() -> list[str]:
    """Every public function, constructor and method, as rows are named."""
    found = []
    for name in tapestry_plan.__all__:
        each = getattr(tapestry_plan, name)
        if inspect.isclass(each) and hasattr(each, "__mro__") and not issubclass(each, ERRORS):
            found += [name, *(f"{name}.{method}" for method in methods_of(each))]
        elif inspect.isfunction(each):
            found.append(name)
    found += [f"draw.{name}" for name, each in vars(draw).items() if inspect.isfunction(each)]
    found += [f"ops.{name}" for name, each in vars(ops).items() if inspect.isfunction(each) and not hasattr(each, "op")]
    return found


def test_each_exported_name_is_walked() -> None:
    found = {name for name in exported() if name not in ("Attrs", "Shape")}
    missing = found - ROWS.keys() - NOT_WALKED.keys()
    assert not missing, f"give a row that calls it, or a reason in NOT_WALKED: {sorted(missing)}"
    assert not (ROWS.keys() | NOT_WALKED.keys()) - found, sorted((ROWS.keys() | NOT_WALKED.keys()) - found)
    assert not ROWS.keys() & NOT_WALKED.keys()


@pytest.mark.parametrize("name", ROWS)
def test_a_wrong_argument_is_refused_by_name(name: str) -> None:
    row = ROWS[name]
    if name != "Mesh.from_toml":  # whose file is not there
        ask(row, row.given())
    assert not faults_of(name, row)


def test_options_of_plans_are_seen_by_name() -> None:
    """They are declared once; each function that plans has them with their defaults, and its docstring says them."""
    of_plan, of_pareto = (inspect.signature(function).parameters for function in (plan, pareto))
    assert set(of_plan) ^ set(of_pareto) == {"memory_nbytes", "like", "points"}
    for name in of_plan.keys() & of_pareto.keys():
        assert of_plan[name] == of_pareto[name]
    assert [*of_plan][:2] == ["graph", "mesh"] and of_plan["fuse"].kind is inspect.Parameter.KEYWORD_ONLY
    assert get_type_hints(plan)["fan_in"] == get_type_hints(pareto)["fan_in"] == int | None
    for function in (plan, pareto):
        doc = inspect.getdoc(function) or ""
        told = re.split(r",|\n| : ", doc.partition("Parameters\n")[2].partition("Returns\n")[0])
        assert set(inspect.signature(function).parameters) <= set(map(str.strip, told))
    with pytest.raises(TypeError, match=r"plan\(\) got an unexpected keyword argument 'layot'"):
        plan(small(), Mesh((2,)), layot={})  # type: ignore[call-arg]
