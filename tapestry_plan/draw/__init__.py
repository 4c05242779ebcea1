"""What does a graph or a projection look like?

Graphs in layers, index spaces cut into parts, the cells that each part reads and writes, and where tensors lie.
"""

from tapestry_plan.draw import values  # kept: graphs and other values draw themselves through it
from tapestry_plan.draw.folding import Folded, Repeated, fold, unfold
from tapestry_plan.draw.placements import show_placement
from tapestry_plan.draw.projections import show_projection, show_spaces
