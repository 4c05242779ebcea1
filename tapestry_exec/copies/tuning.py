"""Numbers of this wing: three bounds that kernels share, and what only makes copies faster.

The bounds are those of the kernels' structs and indices: another value needs other kernels. The rest is tuning: another
value copies the same cells in another time. Each has a row under its name in
tests/bench/results/sweep_tuning.md.
"""

# --------------------------------------------------------------------------------------------------------- bounds

RANK = 8
"""Dimensions that a kernel takes."""
MAX_CELLS = 1 << 31
"""A kernel's indices are of 32 bits: larger boxes are cut."""
ITEM_NBYTES = 16
"""Of the largest item that a kernel moves at once."""

MAX_POINTS = 1 << 20
"""Points whose coordinates are listed at once where a view is not a strided copy."""

# --------------------------------------------------------------------------------------------------------- tuning

KEPT = 1 << 14
"""How many answers each function here remembers: plans are run many times."""
MAX_ITEM_NBYTES = 1 << 20
"""Runs of cells up to so many bytes are moved as one item; longer ones lose nothing to the loop over them."""
MAX_PACKED_ITEM_NBYTES = 1 << 15
"""The same of runs that are packed into memory of their own: longer ones NumPy copies faster cell by cell."""
WORTH_ANOTHER_COPY = 512
"""Beginning a copy takes about as long as so many turns of a loop."""

FEW_PACKED = 16
"""So few runs of cells are packed cell by cell: to see runs as cells takes longer."""
