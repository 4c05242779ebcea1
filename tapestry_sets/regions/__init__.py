"""Which points of a box does a set, or an affine map, reach?

From the ground up; each row stands on rows above it, or beside it:

    axis  axis_sets  shapes   one axis of a region, and indices read on one; shapes as callers write them
    axis_gaps  affine_words   an index of each axis that is in none of many products; affine maps in words
    axis_products  near       products of indices read, and unions of few; regions whose bounds meet
    rowmajor  points          row-major numbers; the questions that every form answers
    region                    a product of setts
    regions                   unions that share no point
    reshaped  affine          renumbered regions; boxes, affine maps and their images
    coordinates               one coordinate of a projection
    projection_pictures       what a few index points touch, drawn
    projection                what index boxes read
"""

from tapestry_sets.regions import axis_gaps, axis_products, axis_sets
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
from tapestry_sets.regions.axis import nest_of_steps
from tapestry_sets.regions.axis_products import AxisSets
from tapestry_sets.regions.axis_sets import AxisSet
from tapestry_sets.regions.projection import IndexProjection
from tapestry_sets.regions.region import Region
from tapestry_sets.regions.regions import DisjointRegions, unite
from tapestry_sets.regions.reshaped import Reshaped, unflatten
from tapestry_sets.regions.rowmajor import flat
from tapestry_sets.regions.shapes import BoxKey, length, select_ranges, spell_out
