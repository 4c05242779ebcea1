"""The numbers of this wing: how much a report shows, and how large it may be.

They bound what is shown, and none of what is counted: where one leaves something out, the report says how much.
"""

# ------------------------------------------------------------------ bounds of a file

MAX_NBYTES = 2_000_000
"""A report is at most so large; pictures of operators, and then rows of transfers, are left out until it is."""
COMPRESSION = 6
"""How hard gzip tries: at 9 a page is 3 % smaller, and takes a tenth of a report's time more (`bench_report`)."""
MAX_EXPLAINED = 160
"""At most so many different operators are explained: to compare shardings of one takes about 40 ms."""

MAX_EDGES = 1000
"""Of a graph with more edges those are left out beside which a path of others is; to lay them out takes minutes."""

# ------------------------------------------------------------------ how much is shown

SHOWN_DEVICES = 16
"""Rows and columns of the map of bytes, and rows of the table of devices; more are joined or counted."""
SHOWN_CURVES = 8
"""Devices with a curve of memory and with lanes of their own; of more the text says how many."""
NUMBERED_DEVICES = 4
"""Rows and columns up to which the map of bytes has room for the numbers themselves."""
SHOWN_SHARES = 8
"""Shardings that have a color of their own, the most frequent first."""
SHOWN_ALTERNATIVES = 12
"""Other shardings of an operator that have bars, the best first."""
SHOWN_TRANSFERS = 20_000
"""Rows of transfers in a file, the largest first."""
LISTED_TRANSFERS = 8
"""Rows of transfers where there is no script to ask for more."""
LISTED_OPERATORS = 12
"""Operators whose predicted and measured times are listed side by side, the slowest first."""
TOLD_BARS = 5
"""Bars of a lane in its description for those who hear it, the longest."""
SHOWN_NAME = 28
"""Characters of a name on a node of the graph; its panel has all of them."""
FIRST_READERS = 6
"""Inputs are drawn where no more than so many are read by operators that read no other's result."""
LISTED_BUFFERS = 8
"""Buffers in the table of a device's peak, the largest first."""
SHADES = 6
"""Steps of the color of the map of bytes, from nothing to the most; the styles have as many."""
FRAME_TALL = 900
"""Pixels that a report has in a notebook, from top to bottom."""
CURVE = (1000, 100)
"""Width and height of curves and lanes in coordinates of their own, which pages stretch."""
POINTS = 800
"""Points of a curve of memory: of more steps each range of them is drawn by the most that is held in it."""
NARROWEST = 1 / 1500
"""Share of a lane below which bars that touch are drawn as one."""

# ------------------------------------------------------------------ widgets

OFFERED_MESHES = ((1,), (2,), (3,), (4,), (2, 2), (6,), (8,), (2, 4), (2, 2, 2), (16,), (4, 4))
"""Meshes that a slider has beside the one that it begins with."""
LINK_FACTORS = (1 / 64, 1 / 16, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 16.0, 64.0)
"""How fast links are, as multiples of the mesh's own."""
MEMORY_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.4, 0.3)
"""Memory of each device, as shares of what the plan takes that has no limit."""
KEPT_PLANS = 64
"""Plans that an explorer keeps, so that a slider that goes back answers at once."""
STEPS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64)
"""Steps between cells that a slider offers."""
MAX_STARTS = 4096
"""Places of a slider of where a view begins."""
