"""What happens at each step of a plan?

From the ground up; each row stands on rows above it:

    check  evaluate  trace  room    before the first step; the unsharded run to compare with; timelines; free memory
    backends                        the protocol of a backend, and their table
    prepared                        what is done once for a plan and a backend
    interpreter                     one loop over the steps
    calibration                     what kernels and copies take, from the timelines of small plans
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
from tapestry_exec.run.calibration import calibrate
from tapestry_exec.run.check import InvalidPlan, check_plan
from tapestry_exec.run.evaluate import difference, evaluate, read_array
from tapestry_exec.run.interpreter import ResultMismatch, RunResult, StepFailed, TransferMismatch, run
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_exec.run.room import check_room, free_nbytes
from tapestry_exec.run.trace import Phase, TraceEvent, check_target, replace_file, write_trace
from tapestry_exec.run.tuning import DIFFERENCE_BOUND
