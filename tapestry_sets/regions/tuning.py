"""The numbers of this wing; see `tapestry_sets.integers.tuning` for what the two tables mean."""

from tapestry_sets.integers import MAX_ELEMENTS as MAX_ELEMENTS

# ------------------------------------------------------------------ bounds of work

MAX_MISSING = 256
"""How many terms of a difference are looked at for an element, before elements are counted."""
ATTEMPT_SHARE = 4
"""The part of a budget, one of so many, that an attempt may take before another way is gone."""
MAX_PROGRESSIONS = 64
"""How many progressions the indices of one axis may be where they are held as such."""
MAX_RUNS = 4096
"""The same where they are runs of neighbors, which sweeps compare."""
MAX_COLUMN = 1 << 22
"""How many integers a column may hold that sums are written out as."""
MAX_BITS = 1 << 24
"""Of how many pairs of an index and a product it may be told at once whether one has the other."""
BITS_A_STEP = 1 << 10
"""How many such pairs are one step of a budget."""
MAX_INDEX = 1 << 61
"""How large an index may be that they are told of: int64 holds it and what is added on the way."""

MAX_LISTED = 1 << 15
"""Images that are not a small union of products are listed where the selection has at most so many blocks' cells."""

MAX_RANK = 1_000
"""Axes of an affine map that is made from their number alone: its matrix has their square."""

SHOWN_ENTRIES = 1 << 10
"""An affine map of more entries is not shown as a table."""
SHOWN_COORDINATES, SHOWN_POINTS, SHOWN_CELLS = 4, 6, 64
"""The picture of a projection has at most so many coordinates, index points, and cells of each."""
SHOWN_INDEX = 60
"""Characters of the index, and of the extents, in its title."""
CELL = 12
"""Pixels of a cell in it."""

# ------------------------------------------------------------------ tuning: the faster of two ways

MANY_PRODUCTS = 6
"""From this number on a point beside products is looked for by classes of indices; fewer are counted."""
FEW_PAIRS = 128
"""Up to so many pairs of regions are looked at one by one; of more, only those whose bounds meet."""
MASK_SPAN = 1 << 20
"""In boxes up to this size counting is quick, by bit masks."""
