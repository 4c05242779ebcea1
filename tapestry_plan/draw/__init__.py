"""What does a graph or a projection look like?

Graphs in layers, index spaces cut into parts, the cells that each part reads and writes, and where tensors lie.

Examples
--------
>>> from tapestry_plan import Graph, draw, operation, ops
>>> g = Graph()
>>> _ = ops.relu(g.input("x", (2, 6)), name="act")
>>> picture = draw.show_projection(operation(g, "act"), {"i1": 2})
>>> for line in picture.text.splitlines()[1:8]:
...     print(line)
index space: i0 2, i1 6; 2 parts
axis i0 down, axis i1 across
  0 2 4
0 111222
1 111222
1  [:, 0:3]: 6 of 12 cells
2  [:, 3:6]: 6 of 12 cells
"""

from tapestry_plan.draw import values  # kept: graphs and other values draw themselves through it
from tapestry_plan.draw.folding import Folded, Repeated, fold, unfold
from tapestry_plan.draw.placements import show_placement
from tapestry_plan.draw.projections import draw_spaces, show_projection
