"""Which points of a box does a set, or an affine map, reach?

Shapes, regions (products of setts), their unions and reshapes, affine maps and index projections.
"""

from tapestry_sets.regions.affine import (
    AffineMap,
    Box,
    ImplicitRegion,
    as_box,
    grid_hull,
    grid_of,
    grids_of,
    matrix_rank,
    regions_of,
)
from tapestry_sets.regions.projection import IndexProjection
from tapestry_sets.regions.region import Region
from tapestry_sets.regions.regions import DisjointRegions
from tapestry_sets.regions.reshaped import Reshaped, unflatten
