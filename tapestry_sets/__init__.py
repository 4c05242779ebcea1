"""Exact integer sets, views and alias queries."""

from tapestry_sets.affine import AffineMap, Box, ImplicitRegion, IndexProjection
from tapestry_sets.maps import (
    Guard,
    IndexMap,
    Piece,
    Relinearize,
    compose_pieces,
    identity_piece,
    piece_domain,
    piece_image,
    region_from_dict,
    region_to_dict,
)
from tapestry_sets.nest import Run, TooHard, TooManyPieces
from tapestry_sets.region import Region, Regions, unflatten
from tapestry_sets.sett import Intersection, Sett, Setts, progression_set
from tapestry_sets.stripe import Stripe
from tapestry_sets.views import (
    Allocation,
    Broadcast,
    Concat,
    Diagonal,
    ExpandDims,
    Flip,
    Index,
    Interleave,
    Pad,
    Permute,
    Repeat,
    Reshape,
    Roll,
    Slice,
    Squeeze,
    Stack,
    Tile,
    View,
    ViewKind,
    Window,
    allocate,
    concatenate,
    interleave,
    pad,
    parse_index,
    repeat,
    roll,
    stack,
    tile,
)
