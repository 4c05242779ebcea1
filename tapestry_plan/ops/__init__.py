"""Which operators come along?

One function each, whose signature is the declaration (see `operator`): an index space and projections, a dtype rule,
the flop of an index point, the merge of partial results and a block function. An operator is added in the module of its
theme and nowhere else; a graph takes declarations of its own. From the ground up, each row stands on rows above it:

    operands  random/philox  evaluators              axes and dtypes; a counter's numbers; who runs a model whole
    declaration  windows/window                      the decorator; how windows lie
    cells  indexing  random/generators  expansions   cell by cell, by index; operators said in other ones
    products  recurrent  reductions  rows  windows   themes, whose declarations list expansions
    quantized                                        integers that stand for numbers
    opaque                                           what runs whole
    attention  array_api                             made of the themes; the standard's names for all of them

Examples
--------
>>> from tapestry_plan import Graph, ops
>>> g = Graph()
>>> x, w = g.input("x", (8, 16)), g.input("w", (16, 4))
>>> ops.softmax(ops.linear(x, w, name="scores"), axis=-1)
Tensor('softmax', (8, 4), float32)
>>> ops.softmax.op, ops.linear.op.monoid
(Op('softmax'), Monoid('sum'))
"""

from tapestry_plan.ir import BUILTIN_OPS, Op
from tapestry_plan.ops import array_api, expansions, operands, quantized, recurrent
from tapestry_plan.ops.attention import *
from tapestry_plan.ops.cells.activations import *
from tapestry_plan.ops.cells.bits import *
from tapestry_plan.ops.cells.bounds import *
from tapestry_plan.ops.cells.choices import *
from tapestry_plan.ops.cells.curves import *
from tapestry_plan.ops.cells.elementwise import *
from tapestry_plan.ops.declaration import Operator, add_op, operator
from tapestry_plan.ops.evaluators import RANDOM_OPS, check_reference, encode_model, is_in_runtime, run_by_all, run_model
from tapestry_plan.ops.indexing import *
from tapestry_plan.ops.opaque import *
from tapestry_plan.ops.operands import number_axes
from tapestry_plan.ops.products.contractions import *
from tapestry_plan.ops.products.matrices import *
from tapestry_plan.ops.quantized import *
from tapestry_plan.ops.random.generators import *
from tapestry_plan.ops.recurrent import *
from tapestry_plan.ops.reductions.reductions import *
from tapestry_plan.ops.reductions.statistics import *
from tapestry_plan.ops.rows.normalizations import *
from tapestry_plan.ops.rows.scans import *
from tapestry_plan.ops.windows.convolution import *
from tapestry_plan.ops.windows.resizing import *
from tapestry_plan.ops.windows.transposed import *
from tapestry_plan.ops.windows.windows import *

dict.update(
    BUILTIN_OPS,
    {each.op.name: each.op for each in list(globals().values()) if isinstance(getattr(each, "op", None), Op)},
)

BESIDE_OPERATORS = frozenset(
    {
        *("Operator", "add_op", "number_axes", "operator", "reduce_with", "reduction"),
        *("depth_to_space", "space_to_depth", "lp_pool", "p_norm", "COORDINATES", "MODES", "NEAREST"),
        *("RANDOM_OPS", "check_reference", "encode_model", "is_in_runtime", "run_by_all", "run_model"),
    }
)
"""What the door has beside operators: what declares them, functions made of several, and the words of `resize`.

Examples
--------
>>> from tapestry_plan import ops
>>> sorted(ops.BESIDE_OPERATORS)[-3:]
['run_by_all', 'run_model', 'space_to_depth']
"""

# `import *` also brings what the modules import for themselves, such as `math.isfinite`: no part of the door.
for _name in [
    name
    for name, each in globals().items()
    if not name.startswith("_")
    and name not in {"BESIDE_OPERATORS", *BESIDE_OPERATORS}
    and not isinstance(getattr(each, "op", None), Op)
    and getattr(each, "__name__", "") != f"{__name__}.{name}"  # a module of the wing
]:
    del globals()[_name]
