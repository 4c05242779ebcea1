"""How do GPUs run a plan, through CuPy?

Lanes of work ordered by events, raw kernels and the choice between them, payloads, recorded runs.
"""

from tapestry_exec.cuda.backend import CupyBackend, NoDevicePath
from tapestry_exec.cuda.gpus import KernelError, RawKernel
from tapestry_exec.cuda.kernels.structs import Launch
