"""Operators, exact costs and the choice of shards."""

from tapestry_plan import ops as _ops  # noqa: F401  (fills the table of operators)
from tapestry_plan.graph import BUILTIN_OPS, Graph, Op, Selection, Shard, Source, Stored, Tensor, UnsupportedOp, concat
from tapestry_plan.mesh import Device, Link, Mesh
from tapestry_plan.search import InfeasiblePlan, plan
from tapestry_plan.shard_plan import (
    HOST,
    Alloc,
    Buffer,
    Compute,
    Copy,
    Free,
    Output,
    PlanVersionError,
    Reduce,
    ShardPlan,
    Stage,
    Step,
)
from tapestry_plan.signature import Axis, Operand, Signature, project
