"""Which cell does an index of a view read?

From the ground up; each row stands on rows above it, or beside it:

    pieces  hook  walks              where the cells of a box come from; what libraries answer; steps over views
    kinds  normal/patches            what one view does to shape and pieces; cells as digits
    subscript  ranked  products      x[…] as kinds; cells as row-major numbers, or as indices of each axis
    words  documents  spelling       NumPy's words; views in JSON, and as the code that makes them
    kept_answers                     what a view has been asked
    functions                        NumPy's functions of several views
    normal  adjoint                  pieces made few; where gradients go
    questions  view                  what a view is asked; the view itself
    variables                        memory of its own, from what a caller writes
"""

from tapestry_sets.views.adjoint import Term, assemble_at, scatter_terms
from tapestry_sets.views.documents import (
    kind_from_dict,
    kind_to_dict,
    piece_from_dict,
    piece_to_dict,
    region_from_dict,
    region_to_dict,
)
from tapestry_sets.views.functions import (
    broadcast_arrays,
    concatenate,
    fill_into,
    hstack,
    interleave,
    pad,
    repeat,
    roll,
    stack,
    tile,
    vstack,
)
from tapestry_sets.views.hook import InternalOverlap, MemoryQueries, Order, fill_memory
from tapestry_sets.views.kinds.choosing import AsStrided, Diagonal, Index, Sample, Slice, SlidingWindow, Take
from tapestry_sets.views.kinds.joining import Assembled, Concat, Fill, Interleave, Stack
from tapestry_sets.views.kinds.kind import ViewKind, axes_of, axis_of
from tapestry_sets.views.kinds.shaping import (
    Broadcast,
    ExpandDims,
    Flip,
    Pad,
    PermuteDims,
    Repeat,
    Reshape,
    Roll,
    Squeeze,
    Swizzle,
    Tile,
    Triangle,
)
from tapestry_sets.views.normal.patches import read_patches, strided_patch
from tapestry_sets.views.pieces import images, reading
from tapestry_sets.views.pieces.images import piece_domain, piece_image
from tapestry_sets.views.pieces.lookup import Lookup, runs_of
from tapestry_sets.views.pieces.maps import INT64_MAX, IndexMap, Relinearize, Shape, Step, put_extents
from tapestry_sets.views.pieces.partition import first_gap, first_shared
from tapestry_sets.views.pieces.piece import Guard, Piece, bounding_boxes, compose_pieces, identity_piece
from tapestry_sets.views.products import IndexProducts, read_index, reads_each_once
from tapestry_sets.views.variables import allocate
from tapestry_sets.views.view import Allocation, Derived, DType, View, check_color, sort_views, view_of
from tapestry_sets.views.walks import sources_first, walk
from tapestry_sets.views.words import Viewable, axis_tuple
