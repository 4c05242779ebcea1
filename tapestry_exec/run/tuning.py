"""The numbers of this wing: what decides whether results are equal, and what is only for messages.

The first decide whether `run(verify=True)` raises. They bound rounding: a cell that no copy reached is NaN and is found
whatever they are. The others change texts of errors alone.
"""

from tapestry_sets.limits import FrozenDict

# -- when results are equal ----------------------------------------------------------------------------------

DIFFERENCE_BOUND: FrozenDict[str, float] = FrozenDict(
    {
        "float16": 1e-2,
        "float32": 1e-4,
        "float64": 1e-10,
        "complex64": 1e-4,
        "complex128": 1e-10,
    }
)
"""Largest max|difference| / max|reference| that rounding is held to explain; 0 for all other dtypes."""
ROUNDINGS = 16
"""How many units in the last place of the largest number on the way a result may be off, where it cancels."""

# -- messages ------------------------------------------------------------------------------------------------

SHOWN_REGIONS = 8
"""How many regions of a step that failed are listed."""

# -- calibration ---------------------------------------------------------------------------------------------

CALIBRATION_RUNS = 7
"""How many times each kernel and copy is run, besides once before: the fastest counts."""
CALIBRATION_REPEATS = 10
"""How many kernels there are of each kind."""
COPIED_SIDES = (8, 64, 512, 2048)
"""Rows and columns of the square tensors of which quarters are sent: 64 bytes to 4 MiB."""
MIN_WORKING = 0.25
"""The least share of a kernel's time that is not taken for its start."""
