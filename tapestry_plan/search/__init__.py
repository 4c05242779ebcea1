"""Which plan costs least, and how is that proved?

From the ground up; each row stands on rows above it:

    reduction  variants      values that no best assignment has; a graph with its expansions beside it
    elimination              least sums of tables
    cost                     bytes and seconds of layouts, as numbers
    problem                  operators as variables, tensors as tables
    derived                  layouts that a neighbor asks for
    joint                    expansions and layouts as one sum of tables
    dominance                drops layouts that cannot win
    planner                  `plan`: search, prove, lower
"""

from tapestry_plan.search.planner import plan
