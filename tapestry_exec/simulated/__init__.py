"""Is the GPU path right, on a machine without one?

From the ground up; each row stands on rows above it:

    ordering  shim  tables     every order that the waits allow; CUDA's words for g++; what CuPy has
    rank_files                 messages between processes
    machine                    devices' memory, and who may act when
    arrays  memory  streams    CuPy's classes
    cublas  nccl               cuBLAS's calls, by addresses; messages between devices
    functions  kernels         CuPy's functions; raw kernels, compiled for the host
    namespace                  all of it under CuPy's name
    backend                    a backend that runs plans on it
"""

from tapestry_exec.simulated.backend import SimulatedBackend
