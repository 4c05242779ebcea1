"""What is a plan, step by step?

From the ground up; each row stands on rows above it:

    layouts/rates  arenas/offsets         what devices and links do in a second; places of buffers in an arena
    showing  asking/alternatives          how a plan shows itself, through what stands above; other shardings, in words
    layouts/machines  misfits             files of machines; what a plan holds, against annotations and graph
    layouts/mesh                          devices, by number and place
    layouts/layout  layouts/routes        which device holds what, and who sends it to whom
    layouts/cells  step                   sets of cells, cut and compared once; what a device does
    layouts/placed  residency             where a tensor lies, said device by device; what buffers have of it
    layouts/holders  layouts/reads        who holds a tensor, by device; which cells operators read
    layouts/local  layouts/merging        which blocks of views are not strided; parts merged in stages
    layouts/places  arenas/first_fit      where a block lies inside another one; an arena, filled as steps are written
    layouts/runs                          of how many pieces of memory the cells of a message are
    layouts/anew                          what is copied to be read, and what is made where it is read instead
    layouts/blocks  tags                  what blocks read, see and make; stages by name, and numbers of copies
    arenas/laying  arenas/overwriting     places, from steps; results that lie over what they are computed from
    arenas/nesting                        blocks that are made inside the block for which they would be copied
    choices  inside                       all that a plan decides; what devices compute of operators inside of blocks
    asking/lookups                        blocks and expansions of a plan, by operator
    documents                             plain data of plans and programs
    stages                                what each operator costs, which expansions and blocks were compared
    schedule                              when each step runs, where copies run beside work
    collectives                           steps that are one operation of a group
    lowering  arenas/timeline             a graph and its layouts as steps; when each buffer is used
    asking/transfers  asking/memory_use   what goes from device to device, and why; what arenas hold, step by step
    asking/reasons  asking/differences    what an operator's shards read, and from where; what plans have otherwise
    asking/tensors                        where inputs, constants and views lie, who reads them, what moves for these
    asking/explaining                     why an operator is sharded as it is
    programs  alike                       the steps of one device; devices that need as much memory as others
    arenas/packing                        arenas of written steps, laid out anew
    arenas/eviction                       which buffers leave a full arena, and when they come back
    arenas/spilling                       steps again, with less memory
    deriving                              from choices to steps, of all devices or of one
    exports/placements                    tensors in blocks along a mesh's axes
    exports/shardings                     the same in the words of JAX, PyTorch and Dask
    plan_document                         a plan in JSON
    shard_plan                            the plan
    arenas/spill  schemas                 a plan again, with less memory; what documents are, as JSON Schema
"""

from tapestry_plan.steps.alike import Alike, classify_devices, lower_alike
from tapestry_plan.steps.arenas.laying import Taking, lay_out, list_takings, move
from tapestry_plan.steps.arenas.offsets import assign_offsets
from tapestry_plan.steps.arenas.packing import KnownPlaces, Packed, pack
from tapestry_plan.steps.arenas.spill import least_memory, spill
from tapestry_plan.steps.arenas.spilling import InfeasiblePlan
from tapestry_plan.steps.asking.alternatives import Alternative, Cause, MemoryNeed, OnDemand, Sample, tell_seconds
from tapestry_plan.steps.asking.differences import ChangedOperator, ChangedTransfer, PlanDifference
from tapestry_plan.steps.asking.explaining import (
    Explanation,
    has_bound,
    tell_choice,
    tell_gap,
    tell_limit,
    tell_reasons,
    tell_standing,
    weigh_memory,
)
from tapestry_plan.steps.asking.lookups import tell_cut
from tapestry_plan.steps.asking.memory_use import HeldBuffer, MemoryUse
from tapestry_plan.steps.asking.transfers import (
    TRANSFER_COLUMNS,
    PlannedTransfer,
    PlannedTransfers,
    tell_cells,
    tell_producer,
)
from tapestry_plan.steps.choices import (
    Choices,
    check_choices,
    find_landing,
    find_last_place,
    list_given_out,
    list_placed,
    list_stages_of,
)
from tapestry_plan.steps.deriving import cut_program, derive_program, derive_steps
from tapestry_plan.steps.documents import PlanVersionError, seal, unseal
from tapestry_plan.steps.exports.placements import FineMesh, MeshPlacement, NotExported, TensorBlocks, cut_boxes
from tapestry_plan.steps.exports.shardings import Shardings, check_even, import_library
from tapestry_plan.steps.inside import take_apart, tell_block
from tapestry_plan.steps.layouts.anew import APART, Hosting, Hostings, count_copied, list_hosted, list_hostings
from tapestry_plan.steps.layouts.cells import Facts, unite
from tapestry_plan.steps.layouts.holders import project_bounds
from tapestry_plan.steps.layouts.layout import (
    Bounds,
    Layout,
    Lot,
    PeriodicBlock,
    SplitAxis,
    leave_out_even,
    list_candidates,
    list_spread,
    parse_layout,
    share_out,
    sort_layouts,
    tell_bounds,
    tell_rule,
    tell_sharding,
)
from tapestry_plan.steps.layouts.local import (
    Linear,
    count_local,
    find_strided,
    find_strides,
    is_padded,
    is_turned,
    is_written,
    linearize,
    may_pad,
    may_write,
)
from tapestry_plan.steps.layouts.machines import list_machines
from tapestry_plan.steps.layouts.merging import MergeOrder, MergeStage, PartTable, find_part_table, list_merge_stages
from tapestry_plan.steps.layouts.mesh import Mesh, Space, align
from tapestry_plan.steps.layouts.placed import Placed, lay_tensor
from tapestry_plan.steps.layouts.places import find_place, is_place, list_place
from tapestry_plan.steps.layouts.rates import Device, Link, tell_link
from tapestry_plan.steps.layouts.reads import (
    IndexBlock,
    Reads,
    list_images,
    list_seen,
    list_stored,
    list_viewed,
    pull_back,
)
from tapestry_plan.steps.layouts.routes import list_factors, list_senders, number_ports
from tapestry_plan.steps.layouts.runs import chain_axes, count_runs, list_near
from tapestry_plan.steps.lowering import Lowered, lower, shard_of
from tapestry_plan.steps.misfits import find_contradiction, find_misfit
from tapestry_plan.steps.programs import DeviceStep, Program, order_hoisted, split_steps
from tapestry_plan.steps.schedule import QueuedStep, Schedule, list_queued, run_queues
from tapestry_plan.steps.schemas import DocumentKind, describe_document, describe_type
from tapestry_plan.steps.shard_plan import NotFound, ShardPlan
from tapestry_plan.steps.showing import (
    DeviceCounts,
    MeasuredRun,
    fill_binding,
    fill_comparison,
    fill_formulas,
    fill_report,
    fill_weighing,
)
from tapestry_plan.steps.stages import Expansions, Fused, OpaqueCost, Stage, list_opaque, tell_folded
from tapestry_plan.steps.step import (
    HOST,
    READ,
    Alloc,
    Buffer,
    Collective,
    CollectiveKind,
    Compute,
    Copy,
    Fetch,
    Free,
    GroupedStep,
    Output,
    ProgramStep,
    Recv,
    Reduce,
    Send,
    Spill,
    Step,
    Within,
    Written,
    is_in_place,
    list_buffers,
    list_overtaken,
    list_written,
    row_major,
    ungroup,
)
from tapestry_plan.steps.tags import Tags, name_stage
from tapestry_plan.steps.tuning import ALIGNMENT_NBYTES, MAX_STAGE_SECONDS, TOLD_CAUSES
