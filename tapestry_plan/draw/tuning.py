"""The numbers of this wing: what bounds the work of a picture, and how large and how detailed it is.

The first table bounds work: past it a space is drawn in outline. The others are a matter of taste: another value makes
another picture, of the same counts. The values were chosen by eye.
"""

# ------------------------------------------------------------------ bounds of work

MAX_LISTED = 4096
"""The longest axis whose cells are looked at one by one."""

MAX_MEMBERS = 256
"""At most so many products of all parts are looked at cell by cell, or drawn in outline."""

MAX_COMPARED = 1 << 14
"""At so many places and lengths at most blocks are compared with what follows them; networks ask for some hundreds."""

# ------------------------------------------------------------------ how much is shown

SHOWN_PARTS = 12
"""At most so many parts are drawn and listed; the counts say how many there are."""

SHOWN_TENSORS = 8
"""At most so many tensors of a plan are drawn that nobody named."""

ROWS, COLUMNS, PLANES = 40, 64, 12
"""A tensor is drawn cell by cell where its rows, columns and planes are no more than these."""

LINE_CELLS = 512
"""As `ROWS` and `COLUMNS`, for a tensor that varies along one axis: it is folded into lines."""

SHOWN_SPANS, DRAWN_SPANS = 4, 24
"""At most so many intervals of an axis are named in words, and drawn in outline; else their bounds are."""

OUTLINE = (96, 220, 120, 260)
"""Least and largest height, least and largest width of an outline, in pixels."""

SHOWN_NAME = 28
"""Characters of a name in a node; the text has all of them."""

SHOWN_NODES = 150
"""Graphs of more tensors, operators and selections are drawn with repeated blocks folded."""

SHOWN_DEVICES = 64
"""Meshes of more devices are told in words alone, and of a stage so many devices are drawn."""

SHOWN_READERS, SHOWN_STEPS = 8, 12
"""At most so many readers of a tensor, and steps of a derivation, are drawn and listed."""

WIDE, TALL, APART = 44, 28, 26
"""Pixels: the size of a device, and from one to the next."""

BAR = 120
"""Pixels of the longest bar."""

SHOWN_ITEMS = 1000
"""At most so many operators and selections of a folded graph are drawn and listed."""

MIN_SAVED = 4
"""A block is folded where its repetitions are at least so many operators and selections: its frame takes room, too."""

# ------------------------------------------------------------------ layers

MAX_RIGHT = 1400
"""Graphs whose layers are wider than this in all are drawn downwards without being asked."""

BETWEEN_LAYERS, BETWEEN_NODES, LANE = 36, 14, 6
"""Pixels between layers, between the nodes of a layer, and across an edge that passes a layer."""

SWEEPS = 4
"""How often the layers are ordered, there and back, and then placed."""
