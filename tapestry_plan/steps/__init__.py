"""Wing steps."""

from tapestry_plan.steps.layout import Layout, asked_layout, in_order, layouts, row_major
from tapestry_plan.steps.lowering import Chosen, lower
from tapestry_plan.steps.mesh import ALIGNMENT_NBYTES, Device, Link, Mesh, aligned
from tapestry_plan.steps.shard_plan import (
    HOST,
    Alloc,
    Alternative,
    Buffer,
    Compute,
    Copy,
    Expansions,
    Fetch,
    Free,
    InfeasiblePlan,
    Output,
    PlanVersionError,
    Reduce,
    ShardPlan,
    Spill,
    Stage,
    Step,
)
from tapestry_plan.steps.spill import least_memory, spilled

__all__ = [
    "ALIGNMENT_NBYTES",
    "HOST",
    "Alloc",
    "Alternative",
    "Buffer",
    "Chosen",
    "Compute",
    "Copy",
    "Device",
    "Expansions",
    "Fetch",
    "Free",
    "InfeasiblePlan",
    "Layout",
    "Link",
    "Mesh",
    "Output",
    "PlanVersionError",
    "Reduce",
    "ShardPlan",
    "Spill",
    "Stage",
    "Step",
    "aligned",
    "asked_layout",
    "in_order",
    "layouts",
    "least_memory",
    "lower",
    "row_major",
    "spilled",
]
