"""Is the GPU path right, on a machine without one?

Streams, memory, arrays and kernels of simulated devices, under a checker of every order that the waits allow.
"""

from tapestry_exec.simulated.backend import SimulatedBackend
