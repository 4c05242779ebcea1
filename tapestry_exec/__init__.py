"""Run a plan, copying only what it needs, and count every byte."""

from typing import TYPE_CHECKING, Any

from tapestry_exec.run import (
    BACKENDS,
    DIFFERENCE_BOUND,
    Backend,
    BackendUnavailable,
    Checkpoint,
    Checkpoints,
    Deployment,
    DeviceMemory,
    Fault,
    InvalidPlan,
    Phase,
    ResultMismatch,
    RunResult,
    StagedResult,
    StepFailed,
    TraceEvent,
    TransferMismatch,
    Wait,
    calibrate,
    check_plan,
    deploy,
    difference,
    evaluate,
    load_from_wing,
    open_checkpoint,
    run,
    run_stages,
    write_trace,
)

if TYPE_CHECKING:  # loaded when they are asked for: see `__getattr__`
    from tapestry_exec.cuda import CupyBackend, KernelError, NcclBackend, NoDevicePath, RawKernel
    from tapestry_exec.dask import DaskBackend
    from tapestry_exec.mpi import MpiBackend
    from tapestry_exec.numpy import NumpyBackend, SerialBackend
    from tapestry_exec.onnxruntime import OnnxruntimeBackend
    from tapestry_exec.processes import ProcessBackend
    from tapestry_exec.simulated import SimulatedBackend

__all__ = [
    "BACKENDS",
    "DIFFERENCE_BOUND",
    "Backend",
    "BackendUnavailable",
    "Checkpoint",
    "Checkpoints",
    "CupyBackend",
    "DaskBackend",
    "Deployment",
    "DeviceMemory",
    "Fault",
    "InvalidPlan",
    "KernelError",
    "MpiBackend",
    "NcclBackend",
    "NoDevicePath",
    "NumpyBackend",
    "OnnxruntimeBackend",
    "Phase",
    "ProcessBackend",
    "RawKernel",
    "ResultMismatch",
    "RunResult",
    "SerialBackend",
    "SimulatedBackend",
    "StagedResult",
    "StepFailed",
    "TraceEvent",
    "TransferMismatch",
    "Wait",
    "calibrate",
    "check_plan",
    "deploy",
    "difference",
    "evaluate",
    "open_checkpoint",
    "run",
    "run_stages",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    """Names of the backends' wings, which are loaded here, through the table that names them."""
    return load_from_wing(name)


def __dir__() -> list[str]:
    return sorted(__all__)
