"""What happens at each step of a plan?

Checks before the first step, the interpreter, the unsharded run to compare with, traces, and the table of backends.
"""

from tapestry_exec.run.backends import (
    BACKENDS,
    Attrs,
    Backend,
    BackendUnavailable,
    Buffers,
    DeviceMemory,
    OrderingFault,
    Reads,
    Regions,
    Writes,
    load_from_wing,
)
from tapestry_exec.run.check import InvalidPlan, check_plan
from tapestry_exec.run.evaluate import difference, evaluate, read_array
from tapestry_exec.run.interpreter import ResultMismatch, RunResult, StepFailed, TransferMismatch, run
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_exec.run.trace import Phase, TraceEvent, check_target, replace_file, write_trace
from tapestry_exec.run.tuning import DIFFERENCE_BOUND
