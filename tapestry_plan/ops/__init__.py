"""Which operators come along?

One declaration each, by theme, and the array API standard for tensors of graphs.
"""

from tapestry_plan.ops import array_api, names
from tapestry_plan.ops.attention import attention
from tapestry_plan.ops.cells.activations import (
    celu,
    elu,
    erf,
    gelu,
    hard_sigmoid,
    hard_swish,
    mish,
    selu,
    silu,
    softplus,
    softsign,
    thresholded_relu,
)
from tapestry_plan.ops.cells.choices import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    cast,
    equal,
    greater,
    greater_equal,
    isinf,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
    shift_left,
    shift_right,
    where,
)
from tapestry_plan.ops.cells.elementwise import (
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atanh,
    ceil,
    clip,
    cos,
    cosh,
    div,
    exp,
    expm1,
    floor,
    leaky_relu,
    log,
    log1p,
    maximum,
    minimum,
    mod,
    mul,
    neg,
    prelu,
    reciprocal,
    relu,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    sub,
    sum_n,
    tan,
    tanh,
)
from tapestry_plan.ops.indexing import gather, gather_elements, gather_nd, one_hot, scatter_elements, scatter_nd
from tapestry_plan.ops.operands import numbered
from tapestry_plan.ops.products.contractions import einsum, prod
from tapestry_plan.ops.products.matrices import gemm, linear, matmul
from tapestry_plan.ops.random.generators import bernoulli, dropout, integers, normal, uniform
from tapestry_plan.ops.reductions.reductions import (
    global_average_pool,
    global_max_pool,
    reduce_all,
    reduce_any,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
)
from tapestry_plan.ops.reductions.statistics import (
    argmax,
    argmin,
    reduce_logsumexp,
    reduce_std,
    reduce_variance,
    reduce_with,
    reduction,
)
from tapestry_plan.ops.rows.normalizations import (
    batch_normalization,
    group_normalization,
    instance_normalization,
    layer_normalization,
    log_softmax,
    lrn,
    rms_normalization,
    softmax,
)
from tapestry_plan.ops.rows.scans import cumsum, top_k
from tapestry_plan.ops.windows.convolution import conv
from tapestry_plan.ops.windows.resizing import COORDINATES, MODES, NEAREST, depth_to_space, resize, space_to_depth
from tapestry_plan.ops.windows.transposed import conv_transpose
from tapestry_plan.ops.windows.windows import average_pool, lp_pool, max_pool, p_norm, sum_pool
