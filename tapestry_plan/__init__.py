"""Graphs of operators, exact costs, and plans that say what runs where."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tapestry_plan import draw, ops, report, rewrite
from tapestry_plan.autodiff import gradient
from tapestry_plan.ir import (
    MONOIDS,
    Attrs,
    Axis,
    Backward,
    Graph,
    Monoid,
    NoMonoid,
    Op,
    Operand,
    Operation,
    Shape,
    Shard,
    Signature,
    Tensor,
    UnsupportedOp,
    concat,
    count_shared,
    operation,
    project,
    same_graph,
)
from tapestry_plan.ops import operator
from tapestry_plan.search import pareto, plan
from tapestry_plan.steps import (
    HOST,
    Alternative,
    Device,
    Expansions,
    HeldBuffer,
    InfeasiblePlan,
    Link,
    MemoryUse,
    Mesh,
    MeshPlacement,
    NotExported,
    NotFound,
    Placed,
    PlanDifference,
    PlannedTransfer,
    PlannedTransfers,
    PlanVersionError,
    Shardings,
    ShardPlan,
    least_memory,
)
from tapestry_plan.symbolic import Crossovers, SymbolicTransfers, crossovers
from tapestry_sets.limits import quote

if TYPE_CHECKING:  # loaded when it is asked for: see `__getattr__`
    from tapestry_plan.jaxpr import from_jaxpr
    from tapestry_plan.onnx import load_onnx
    from tapestry_plan.report.widgets import OverlapExplorer as OverlapExplorer
    from tapestry_plan.report.widgets import PlanExplorer as PlanExplorer

__all__ = [
    "HOST",
    "MONOIDS",
    "Alternative",
    "Attrs",
    "Axis",
    "Backward",
    "Crossovers",
    "Device",
    "Expansions",
    "Graph",
    "HeldBuffer",
    "InfeasiblePlan",
    "Link",
    "MemoryUse",
    "Mesh",
    "MeshPlacement",
    "Monoid",
    "NoMonoid",
    "NotExported",
    "NotFound",
    "Op",
    "Operand",
    "Operation",
    "Placed",
    "PlanDifference",
    "PlanVersionError",
    "PlannedTransfer",
    "PlannedTransfers",
    "Shape",
    "Shard",
    "ShardPlan",
    "Shardings",
    "Signature",
    "SymbolicTransfers",
    "Tensor",
    "UnsupportedOp",
    "concat",
    "count_shared",
    "crossovers",
    "draw",
    "from_jaxpr",
    "gradient",
    "least_memory",
    "load_onnx",
    "operation",
    "operator",
    "ops",
    "pareto",
    "plan",
    "project",
    "report",
    "rewrite",
    "same_graph",
]


_WHERE = {
    "from_jaxpr": "tapestry_plan.jaxpr",
    "load_onnx": "tapestry_plan.onnx",
    "PlanExplorer": "tapestry_plan.report.widgets",
    "OverlapExplorer": "tapestry_plan.report.widgets",
}
"""Names that are loaded when they are asked for, with libraries that take long or, of widgets, may not be there."""


def __getattr__(name: str) -> Any:
    """The importer of ONNX models and the widgets, which are loaded here."""
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'tapestry_plan' has no attribute {quote(name)}")
