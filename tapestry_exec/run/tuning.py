"""The numbers of this wing: what decides whether results are equal, how devices run, and what is only for messages.

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
"""Largest max|difference| / max|reference| that rounding is held to explain; 0 for all other dtypes.

Examples
--------
>>> from tapestry_exec import DIFFERENCE_BOUND
>>> DIFFERENCE_BOUND["float32"]
0.0001
"""
ROUNDINGS = 16
"""How many units in the last place of the largest number on the way a result may be off, where it cancels."""

# -- devices side by side ------------------------------------------------------------------------------------

MAX_WAIT_SECONDS = 600.0
"""How long a device waits for cells of another one, before it says so: longer than any block takes."""
UNEVEN = 1.1
"""How much more than the mean a process or thread of several devices may have to do."""
ROUGH_FLOP_PER_SECOND = 2e10
"""The rate of arithmetic of one core, roughly."""
ROUGH_NBYTES_PER_SECOND = 5e9
"""The rate at which one core goes through memory, roughly."""

# -- messages ------------------------------------------------------------------------------------------------

SHOWN_REGIONS = 8
"""How many regions of a step that failed are listed."""

# -- calibration ---------------------------------------------------------------------------------------------

CALIBRATION_RUNS = 7
"""How many times each kernel is run, besides once before: the fastest counts."""
COPY_RUNS = 25
"""The same of copies, which are short: what else a machine does shows most in these."""
CALIBRATION_REPEATS = 10
"""How many kernels there are of each kind."""
CALIBRATED_PRODUCTS: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = (
    ("matmul", (512, 512), (512, 512)),
    ("matmul", (32, 768), (768, 2304)),
    ("conv", (1, 64, 28, 28), (64, 64, 3, 3)),
    ("matmul", (128, 768), (768, 768)),
    ("conv", (1, 256, 14, 14), (256, 256, 1, 1)),
    ("matmul", (16, 1024), (1024, 1024)),
    ("conv", (1, 256, 7, 7), (256, 256, 3, 3)),
    ("matmul", (64, 512), (512, 1024)),
    ("conv", (1, 64, 56, 56), (64, 64, 1, 1)),
    ("matmul", (8, 128, 64), (8, 64, 128)),
)
"""Products and convolutions, with what they read: of many rows to each weight and of few, as parts of networks have."""
TRIED_RATES = 400
"""How many rates of arithmetic are tried, from 1/20 of the highest measured one to 20 times that."""
COPIED_SHAPES = (
    *((8, 8, 8), (512, 512, 512), (2048, 56, 2), (64, 64, 64), (8192, 56, 2), (256, 256, 256), (4096, 56, 8)) * 2,
    *((1024, 256, 256), (16384, 28, 2), (1024, 128, 32)) * 2,
    (2048, 2048, 2048),
)
"""Tensors of which parts are sent, as rows, their length, and how many columns are read: 64 bytes to 4 MiB.

Runs have 4 bytes to 4 KiB. Short ones lie as far apart as in the planes of a network, each in a line of the cache.
"""
MIN_WORKING = 0.25
"""The least share of a kernel's time that is not taken for its start."""

# -- constants in files --------------------------------------------------------------------------------------

MAPPED_NBYTES = 1 << 16
"""Bytes from which a file of one array is mapped: each process reads of it what it needs."""

# -- arrays elsewhere ----------------------------------------------------------------------------------------

ASKED_NBYTES = 32 << 20
"""How many bytes Zarr is asked for at once, or one chunk: it holds a call's chunks beside the cells they become."""

# -- checkpoints ---------------------------------------------------------------------------------------------

SUMMED_NBYTES = 1 << 20
"""Bytes that are written, and summed, at once: they stay in a cache meanwhile, and the system takes large pages."""
OWN_FILE_NBYTES = 8 << 20
"""Bytes from which a buffer has a file of its own: writing them takes ten times as long as making and describing it."""
ROW_NBYTES = 4096
"""Rows of small buffers are so many bytes long, or a multiple: so those of several writers mostly are of one length."""
LOOKS_A_RUN = 32
"""How often, at most, the devices of a run ask whether so many seconds are over: each time costs 20 us a device."""
