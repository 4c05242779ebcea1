"""How do GPUs run a plan, through CuPy?

From the ground up; each row stands on rows above it, or beside it:

    kernels  lanes  paths   raw kernels; queues ordered by events; a raw kernel or a block function?
    cublas                  products of matrices, by cuBLAS's own calls
    gpus  payloads          devices and compiled kernels; packed cells on their way
    namespace               what block functions are given for NumPy
    recording               a run as a graph of launches
    device                  one device's memory and lanes
    backend                 what a run asks of all devices
    nccl                    the same, where devices exchange through NCCL
    ranks                   one of these devices, whose others are in other processes
"""

from tapestry_exec.cuda.backend import CupyBackend, NoDevicePath
from tapestry_exec.cuda.gpus import KernelError, RawKernel
from tapestry_exec.cuda.kernels.structs import Launch
from tapestry_exec.cuda.nccl import NcclBackend
from tapestry_exec.cuda.ranks import NcclRank
