"""Wing cuda."""

from tapestry_exec.cuda.backend import CupyBackend, NoDevicePath
from tapestry_exec.cuda.gpus import KernelError, RawKernel

__all__ = ["CupyBackend", "KernelError", "NoDevicePath", "RawKernel"]
