"""What is an operator, a view between two, a graph?

From the ground up; each row stands on rows above it:

    arithmetic  methods  forms  monoids  pictures    signs, NumPy's methods, a block's work, merges, a hook
    open_axes                                        sizes by symbol
                     signature                         index axes and projections
        boundary  cover  selection  tensors            padding, exact partitions, views, what a graph is made of
        blocks  document  handles  sources             what is computed of a shard; JSON; tensors in programs; views
                        op                             the declaration of an operator
                     checking                          whether a graph holds together
                       graph                           operators, tensors and selections, and adds them
               operation  isomorphism                  shards of an operator; whether two graphs are the same
"""

from tapestry_plan.ir.blocks import (
    Block,
    Call,
    CellBlock,
    InPlaceBlock,
    ListedBlock,
    Shard,
    UpdateBlock,
    begin_as,
    is_in_place,
    list_calls,
    once_for_shard,
    same_anywhere,
)
from tapestry_plan.ir.boundary import AROUND, resolve
from tapestry_plan.ir.cover import NoPartition, check_partition
from tapestry_plan.ir.document import GRAPH_FORMAT, GraphDocument, finite, from_finite
from tapestry_plan.ir.forms import (
    Activation,
    Addition,
    Attention,
    Correlation,
    Form,
    MatrixProduct,
    Normalization,
    RandomCells,
    Scatter,
    Softmax,
)
from tapestry_plan.ir.graph import Graph
from tapestry_plan.ir.handles import Tensor, concat
from tapestry_plan.ir.isomorphism import mark_of, same_graph
from tapestry_plan.ir.monoids import (
    MONOIDS,
    Monoid,
    NoMonoid,
    States,
    check_monoid,
    components_of,
    make_empty,
    merge_states,
)
from tapestry_plan.ir.op import (
    BUILTIN_OPS,
    DERIVED,
    Adjoint,
    Backward,
    DtypeNotTaken,
    Expansion,
    InnerWork,
    NotApplicable,
    Op,
    UnsupportedOp,
    shares_of,
    take_no_workspace,
)
from tapestry_plan.ir.open_axes import AtSizes, freeze_sizes, read_sizes, tell_sizes
from tapestry_plan.ir.operation import Operation, ShardRegions, count_shared, operation
from tapestry_plan.ir.pictures import Parts, Pictures, Shown, fill_pictures
from tapestry_plan.ir.selection import check_pieces, check_selection, domain_of
from tapestry_plan.ir.signature import (
    Axis,
    LinearForm,
    Operand,
    Shape,
    Signature,
    cells_of,
    is_coarse,
    parts_of,
    project,
)
from tapestry_plan.ir.sources import find_written_dtype, map_makers
from tapestry_plan.ir.tensors import (
    SHORT_DTYPES,
    SHORT_FLOATS,
    Attrs,
    FoldedNodes,
    OpNode,
    Selection,
    Source,
    Stored,
    Unread,
    check_dtype,
    check_shape,
    sha256_of,
)
