"""Runs plans, copying only what they need."""

from tapestry_exec.check import InvalidPlan, check_plan
from tapestry_exec.evaluate import DIFFERENCE_BOUND, difference, evaluate
from tapestry_exec.gpus import KernelError, RawKernel
from tapestry_exec.on_cupy import BackendUnavailable, CupyBackend, NoDevicePath
from tapestry_exec.on_numpy import NumpyBackend
from tapestry_exec.on_simulated import SimulatedBackend
from tapestry_exec.run import (
    BACKENDS,
    Backend,
    DeviceMemory,
    ResultMismatch,
    Run,
    StepFailed,
    TransferMismatch,
    run,
)
from tapestry_exec.trace import Event, Phase, write_trace

__all__ = [
    "BACKENDS",
    "DIFFERENCE_BOUND",
    "Backend",
    "BackendUnavailable",
    "CupyBackend",
    "DeviceMemory",
    "Event",
    "InvalidPlan",
    "KernelError",
    "NoDevicePath",
    "NumpyBackend",
    "Phase",
    "RawKernel",
    "ResultMismatch",
    "Run",
    "SimulatedBackend",
    "StepFailed",
    "TransferMismatch",
    "check_plan",
    "difference",
    "evaluate",
    "run",
    "write_trace",
]
