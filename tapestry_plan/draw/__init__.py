"""What does a graph or a projection look like?

Graphs in layers, index spaces cut into parts, and the cells that each part reads and writes.
"""

from tapestry_plan.draw import graphs  # kept: graphs draw themselves through it
from tapestry_plan.draw.projections import show_projection
