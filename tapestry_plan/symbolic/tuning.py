"""How far formulas are looked for, which decides whether there is one, never what it says."""

MAX_CLASSES = 64
"""Into how many classes of a size's remainders bytes are told apart, as where it is divided into parts."""
MAX_LEAST = 4096
"""From which size on, at most, each transfer must be one polynomial in each class."""
MAX_PASSES = 64
"""How many values of a digit are written out where the digit behind it counts in steps of the size."""
SAMPLES = (1, 2, 5, 9)
"""By how much the sizes exceed a plan's own at which its model is read, to see how its extents depend on the size."""
FAR = (4, 16, 64, 256, 1024, 4096)
"""By what a plan's own size is multiplied, and divided, to see where the model is otherwise than near that size."""
MIN_SAMPLES = 3
"""At how many sizes the model must be readable: two say how a number depends on the size, more confirm it."""
SHOWN_ROWS = 200
"""How many rows a table shows."""
KEPT_BOXES = 4096
"""How many boxes are kept as sets of isl."""
