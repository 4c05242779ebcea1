"""The numbers of this wing: what is shown, and when. No answer changes with them."""

SHOWN_VIEWS = 32
"""The picture of an overlap shows up to so many views."""
SHOWN_AFTER = 0.2
"""Runs and plans are shown once they have taken so many seconds."""
SQUARE = (4, 6)
"""Extents of a matrix in examples of operators."""
IMAGE = (2, 4, 6, 6)
"""Extents of images in examples of operators: samples, channels, rows, columns."""
PARTS_TOLD = 3
"""Of an operator of ONNX, how many operators that an example becomes are listed."""
PIPED_WIDTH = 110
"""Columns of the words around a table that no terminal shows."""
PIPED_CELL = 60
"""Cells of such a table that are longer widen no column: what is behind them in their row stands further right."""
REASONED = 3
"""Of so many operators it is printed beside a plan why they are sharded so; of all others `--explain` says it."""
REASONED_SHARDS = 2_500
"""Beside a plan of more shards, counted on each device, none is said: others are compared anew, which takes a third of
the time of planning; 3 s for 1,200 shards.
"""

LONG_WAIT = 0.01
"""Seconds that devices stood still for another one are printed where they are more than this share of the run's."""
MAX_SIZES = 1000
"""At how many sizes of a model plans may be bound in one call."""
