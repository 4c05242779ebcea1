"""Wing search."""

from tapestry_plan.search.planner import plan
