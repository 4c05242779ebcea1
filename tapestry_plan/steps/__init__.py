"""What is a plan, step by step?

Meshes, layouts, lowering to explicit steps, places in memory, eviction, and the plan as a document.
"""

from tapestry_plan.steps.layout import Layout, list_layouts, parse_layout, sort_layouts
from tapestry_plan.steps.lowering import ChosenLayouts, lower, shard_of
from tapestry_plan.steps.mesh import Device, Link, Mesh, align
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
from tapestry_plan.steps.spill import least_memory, spill
from tapestry_plan.steps.tuning import ALIGNMENT_NBYTES
