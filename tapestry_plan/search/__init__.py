"""Which plan costs least, and how is that proved?

Exact cost tables, the choice of layouts and expansions, elimination, dominance pruning, and `plan` itself.
"""

from tapestry_plan.search.planner import plan
