"""Numbers of simulated devices: which of them bound what kernels may ask for, and which are tuning.

```text
 memory of a device     at multiples of ALIGNMENT_NBYTES, filled with POISON until something is written
 what is freed          kept up to MAX_FREED_NBYTES in all, so that a late use of it is told from a stray one
 a launch               at most MAX_THREADS in a block, MAX_SHARED_NBYTES of dynamic shared memory for each
```

Results do not change with those under "tuning"; no sweep is recorded.
"""

# ---------------------------------------------------------------------------------------- bounds: CUDA's, or its GPUs'

ALIGNMENT_NBYTES = 512
"""Of every allocation, as CUDA's."""
MAX_GPUS = 1024
"""Of a simulated machine: memory and streams are made for each at once."""
MAX_THREADS = 1024
"""Of a block, on every GPU."""
MAX_SHARED_NBYTES = 232448
"""Dynamic shared memory of a block on the largest GPUs."""
FEW_ARRAYS = 8
"""So many at most CuPy puts together one by one; of more it brings the addresses to a kernel."""
NUMBER_NBYTES = 128
"""Of the number by which ranks of NCCL find each other."""

# --------------------------------------------------------------------------------------------------------- tuning

POISON = 0xFF
"""What each byte of new memory holds: cells of floats are NaN."""
MEMORY_NBYTES = 1 << 34
"""What a simulated device says that it has."""
MAX_FREED_NBYTES = 1 << 27
"""Memory that was freed is kept up to so many bytes, so that a late use of it is found."""
LOOK_SECONDS = 1e-4
"""How long a simulated rank of NCCL sleeps before it looks again for another process."""
MESSAGE_NBYTES = 512
"""Room for what a kernel that fails says."""
