"""Which plan costs least, and how is that proved?

From the ground up; each row stands on rows above it:

    progress  garbage                    how much of planning is done; fewer full collections
    arguments                            names that the graph has, and what they ask for
    sums/reduction                       values that no best assignment has
    sums/minima                          sums and minima of tables over some of their axes
    sums/elimination  sums/tables        least sums of tables; sums of tables, and bounds
    sums/pruning                         values that no sum below a plan's has
    sums/frontier                        sums of picoseconds within a cap on bytes
    prices/moves                         which bytes move, between devices and within them
    prices/costs                         tensors as tables of time and bytes, over the layouts of operators
    prices/added                         more layouts, blocks of neighbors, kept choices, bytes held at every moment
    placing  moving                      of the best plans the one that places the fewest bytes; moves of one layout
    kept/comparing                       what other shardings of an operator cost, all else kept, and why
    solving                              rounds of tables, plan and proof
    neighbors/fusing                     which neighbors may be one block
    neighbors/apart                      equal operators that may better run twice
    neighbors/recomputing                results that may rather be computed again for late readers
    expansions/joint                     expansions and layouts as one sum of tables
    expansions/granted  caps/least       what expansions cost at best; the memory that any plan needs
    caps/needed                          memory in which not even one operator runs
    caps/capped  expansions/dominance    the best layouts that keep a memory cap; drops expansions that cannot win
    caps/by_memory                       the fastest plan, and those that need less memory
    writing                              chosen layouts as a plan
    neighbors/splitting                  bounds where readers of operators over split axes copy less
    kept/keeping                         plans that keep another one's choices
    kept/binding                         plans with the same choices at other sizes of a model
    posing                               what is asked for; each graph's problem, posed and solved
    expansions/expanding                 operators as their declarations expand them, where that is better
    planner                              `plan`: all of that in stages
    pareto                               `pareto`: plans from the fastest to the smallest
"""

from tapestry_plan.search.arguments import CapOptions, Options, ParetoOptions
from tapestry_plan.search.kept.binding import bind_plan, bind_to, is_bound_as, read_again, rewrite_again
from tapestry_plan.search.pareto import pareto
from tapestry_plan.search.planner import plan, plan_or_spill
from tapestry_plan.search.prices.costs import count_packed
from tapestry_plan.search.progress import Progress
