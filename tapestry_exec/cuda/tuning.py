"""Numbers of the GPU path: which of them bound work, and which are tuning.

How a launch deals 34 cells out where a tile has 10 and a launch at most 2 blocks (here 1,024 and 65,536):

```text
 cells    0123456789 0123456789 0123456789 0123
 tiles    [ tile 0 ] [ tile 1 ] [ tile 2 ] [ 3 ]    of THREADS · CELLS cells: thread t makes CELLS of them
 blocks     block 0    block 1    block 0   block 1   at most MAX_BLOCKS, which take tiles in turn
```

A convolution's block makes TALL channels of THREADS · CELLS · HEIGHT / TALL cells; a thread HEIGHT channels of CELLS.

Rates were measured on an H200; the other numbers are common choices for such kernels, not yet varied on one.
"""

# ------------------------------------------------------------- bounds: kernels.cu has the same, results do not change

TRANSFERS, GUARDS, PARTS = 10, 16, 32
"""Strided copies and their guards in one launch, and parts that are merged in one: what 4 KB of parameters hold."""
THREADS, CELLS = 256, 4
"""Threads of a block, and cells that each makes of a tile: 16 bytes at a time of the commonest dtypes."""
TILE = THREADS * CELLS
"""Cells of one block at a time."""
LANES = {"float32": 4, "float64": 2}
"""Dtypes of epilogues and convolutions, and how many cells 16 bytes hold."""
TALL = {"float32": (64, 16, 1), "float64": (32, 8, 1)}
"""Channels that a block of a convolution makes, by the kernels that there are."""
HEIGHT = {"float32": 8, "float64": 4}
"""Channels of one thread of these kernels, where there are so many; it makes `CELLS` cells of each."""

# ----------------------------------------------------------------------------- tuning: results do not change with them

MAX_BLOCKS = 1 << 16
"""Blocks of one launch: many times what a GPU runs at once; beyond, blocks take several tiles."""
SCATTER_THREADS, MAX_SHARES = 1 << 16, 256
"""Threads that a scatter should have at least, and parts of a lane at most: each walks through all updates."""
FEW_CHANNELS = 4
"""Up to so many channels a convolution makes one by one: a block of more would mostly make none."""
KEPT = 4096
"""Sets of copies, merges, scatters, … whose launches are remembered, of each kind."""
DIRECT_NBYTES = 64 * 1024
"""From so many contiguous bytes on, cells are moved as they lie, without being packed first."""
WORKSPACE_NBYTES = 32 * 1024 * 1024
"""What each device's products have as scratch memory: what cuBLAS takes by default on an H100 or H200."""
RING_NBYTES = 32 * 1024 * 1024
"""A ring for payloads holds so much at least, if what is ever moved is not less."""
RING_PAYLOADS = 16
"""It holds at most so many of the largest payload, where that is less than `RING_NBYTES`."""
MAX_TABLE_NBYTES = 256 * 1024 * 1024
"""Index tables of views that are not strided copies are kept on a GPU up to so many bytes."""
CLOCK_TRIES = 8
"""How often a device's clock is compared with the host's."""

# --------------------------------------------- rates: they choose between the direct convolution and cuBLAS's product

DIRECT_FLOP_PER_SECOND_OF_BLOCK = {"float32": 8.8e10, "float64": 4.4e10}
"""What one block of the direct convolution does on an H200 in float32, cells that it makes in vain counted (8.8e10 with
8 blocks of 3×3 as with 98, 9.6e10 with 7×7); half in float64."""
DIRECT_FLOP_PER_SECOND = {"float32": 1.5e13, "float64": 7.5e12}
"""What all of them do at most (1.4e13 with 196 blocks)."""
PRODUCT_FLOP_PER_SECOND = {"float32": 4.5e13, "float64": 4.5e13}
"""What cuBLAS's products of such sizes reach there."""
NBYTES_PER_SECOND = 4e12
"""What copies reach there, read and written."""
UNFOLDING_NBYTES_PER_SECOND = 1.3e12
"""Columns that are written there in a second, a cell at a time."""
LAUNCH_SECONDS = 2e-6
"""What a kernel takes at least, one of a graph's."""
UNFOLDED_NBYTES = 256 * 1024 * 1024
"""So many samples are unfolded at once as have columns of so many bytes, at least one; so many heads attended to."""
