"""Which plan costs least, and how is that proved?

From the ground up; each row stands on rows above it:

    arguments                names that the graph has, and what they ask for
    reduction  variants      values that no best assignment has; a graph with its expansions beside it
    elimination              least sums of tables
    along  tables            what devices exchange, as products along the axes of a mesh; sums of tables, and bounds
    pruning  cost            values that no sum below a plan's has; bytes and seconds of layouts, as numbers
    problem  splits          operators as variables, tensors as tables; cuts of axes that neighbors' views ask for
    derived  placing         layouts that a neighbor asks for; of the best plans the one that places the fewest bytes
    offers                   layouts that places of inputs and outputs say
    solving                  rounds of tables, plan and proof
    fusing  apart            neighbors in one block; equal operators that may better run twice
    memory  joint            bytes held at every moment; expansions and layouts as one sum of tables
    frontier  granted        sums of picoseconds within a cap on bytes; what expansions cost at best
    least  dominance         the memory that any plan needs; drops expansions that cannot win
    capped                   the best layouts that keep a memory cap
    planner                  `plan`: search, prove, lower
    pareto                   `pareto`: plans from the fastest to the smallest
"""

from tapestry_plan.search.pareto import pareto
from tapestry_plan.search.planner import plan
