"""Pictures of graphs and of projections."""

from tapestry_plan.draw import graphs  # kept: graphs draw themselves through it
from tapestry_plan.draw.projections import show_projection
