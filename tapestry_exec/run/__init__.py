"""What happens at each step of a plan?

From the ground up; each row stands on rows above it:

    stores                          arrays that lie elsewhere, read and written by region
    check  evaluate  trace  room    before the first step; the unsharded run to compare with; timelines; free memory
    checkpoints/folders             how what devices hold lies on a disk
    checkpoints/lost                where it lies for the devices that are left
    settled  rehearsed              places that runs of a deployment find where the first one did; calls by heart
    results                         what a run gives, and how it is held against what was predicted
    backends                        the protocol of a backend, and their table
    interpreter                     the steps of one device's program
    together                        the same of several devices in one loop, when they know them by heart
    checkpoints/cuts  checkpoints/finished    what a device holds between two steps; what was saved, read by region
    prepared                        what is done once for a plan and a backend
    residents                       what stays on devices from run to run
    ways                            devices one after the other, or a thread for each
    alike                           what must be equal wherever devices of one plan run
    checkpoints/saving              who saves what devices hold, and runs that go on from there
    sessions                        devices of this process, for a run or for many
    deployment                      one run, or many where constants are placed once
    stages                          models whose shapes follow from values, one graph after the other
    parts                           what one device is told in another process, and how it does that
    generations                     all devices begin again when one is lost
    calibration                     what kernels and copies take, from the timelines of small plans
"""

from tapestry_exec.run import tuning
from tapestry_exec.run.alike import check_alike, digest_plan, find_versions, name_clock
from tapestry_exec.run.backends import (
    BACKENDS,
    Absorbed,
    Attrs,
    Backend,
    BackendUnavailable,
    Buffers,
    DeviceMemory,
    Exchanged,
    OrderingFault,
    Reads,
    Regions,
    Writes,
    load_backend,
    load_from_wing,
)
from tapestry_exec.run.calibration import calibrate
from tapestry_exec.run.check import InvalidPlan, check_plan
from tapestry_exec.run.checkpoints.finished import Checkpoint, open_checkpoint
from tapestry_exec.run.checkpoints.saving import Checkpoints, Savings, Start
from tapestry_exec.run.deployment import Deployment, deploy, run
from tapestry_exec.run.evaluate import difference, evaluate, hold_constants, read_array, read_arrays
from tapestry_exec.run.generations import GenerationEnded, Generations, find_first, list_sends
from tapestry_exec.run.interpreter import Counts, Interpreter, Parcel, StepFacts, Transport, count_flop, find_blocks
from tapestry_exec.run.parts import (
    DevicePart,
    Member,
    bring_together,
    join_cells,
    list_parts,
    list_placed,
    list_placements,
    make_portable,
)
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_exec.run.rehearsed import Rehearsal, are_same_ops
from tapestry_exec.run.residents import Residents
from tapestry_exec.run.results import Fault, Progress, ResultMismatch, RunResult, StepFailed, TransferMismatch
from tapestry_exec.run.room import (
    check_room,
    count_cores,
    find_core,
    free_nbytes,
    free_nbytes_of_each,
    list_own_cores,
)
from tapestry_exec.run.sessions import Deployed, LocalSession, Session, compare_placed, make_result
from tapestry_exec.run.settled import Timed
from tapestry_exec.run.stages import StagedResult, run_stages
from tapestry_exec.run.stores import DaskSource, Source, Target, Written, take_whole
from tapestry_exec.run.together import Ensemble, share_out, tell_devices
from tapestry_exec.run.trace import Phase, TraceEvent, Wait, write_trace
from tapestry_exec.run.tuning import DIFFERENCE_BOUND, MAX_WAIT_SECONDS
from tapestry_exec.run.ways import list_grouped, name_place, name_step, one_blas_thread
from tapestry_sets.limits import check_target, replace_file
