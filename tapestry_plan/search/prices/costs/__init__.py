"""What does each choice cost?

Operators as variables, layouts as their values, tensors as tables of time and bytes.
From the ground up; each row stands on rows above it:

    seconds  variants     modeled time; a graph with its expansions
    merging               what merging partial results in stages takes
    tensors               variables, stored tensors with who makes and reads them, known facts
    chosen  variables     what moves where layouts are chosen; what has a layout, and which it may have
    readings              what each layout makes, holds and reads, as numbers of regions
    work                  what operators do by themselves
    problem               tensors as tables, over all of these
"""

from tapestry_plan.search.prices.costs.chosen import Moved, find_cells
from tapestry_plan.search.prices.costs.merging import NEVER, ORDERS, Merges
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.seconds import (
    TICKS_PER_SECOND,
    compute_seconds,
    count_packed,
    find_product_share,
    is_product,
    to_ticks,
)
from tapestry_plan.search.prices.costs.tensors import Kind, Known, TensorCost, Use, Variable
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.search.prices.costs.variants import Given, Option, Variants
