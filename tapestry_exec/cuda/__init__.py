"""Wing cuda."""

from tapestry_exec.cuda.backend import CupyBackend, NoDevicePath
from tapestry_exec.cuda.gpus import KernelError, RawKernel
