"""Do views share memory, where, and how much?

Cells and the ladder of ways to decide about them, overlaps with witnesses, all pairs, real arrays, alias graphs.
"""

from tapestry_sets.alias.graphs.graph import AliasGraph
from tapestry_sets.alias.graphs.tensors import AliasTensor
from tapestry_sets.alias.ladder.cells import Cells
from tapestry_sets.alias.ladder.rungs import RUNGS, CellQuestion
from tapestry_sets.alias.memory.arrays import as_view
from tapestry_sets.alias.memory.groups import SharedGroup, SharedMemory, shared_memory
from tapestry_sets.alias.overlap import (
    Missing,
    Overlap,
    Witness,
    contains,
    find_missing,
    has_internal_overlap,
    internal_overlap,
    is_contiguous,
    origins,
    overlap,
    overlap_matrix,
    overlap_sizes,
    overlaps,
    same_elements,
)
from tapestry_sets.alias.pictures import OriginsTable, origins_table, show_views
from tapestry_sets.limits import Rung
