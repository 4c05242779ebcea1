"""Do views share memory, where, and how much?

From the ground up; each row stands on rows above it:

    ladder                                cells of a view, and the rungs that decide about two
    memory/arrays  memory/sieve           arrays as views; how many times each byte is read
    every_pair  one_view  memory/parts    all pairs of views; one view that reads a cell twice; runs of many arrays
    covering                              what several views read together: exactly once, a gap, twice
    reshaping                             is a reshape a view, or a copy?
    overlap                               what users ask of two views or arrays
    graphs  memory/groups  pictures       editable graphs of views; groups of arrays; drawings
"""

from tapestry_sets.alias.covering import Coverage, Missing, Twice, covers
from tapestry_sets.alias.graphs.graph import AliasGraph
from tapestry_sets.alias.graphs.tensors import AliasTensor
from tapestry_sets.alias.ladder.cells import Cells
from tapestry_sets.alias.ladder.rungs import RUNGS, CellQuestion
from tapestry_sets.alias.memory.arrays import as_view
from tapestry_sets.alias.memory.groups import SharedGroup, SharedMemory, shared_memory
from tapestry_sets.alias.overlap import (
    Overlap,
    Witness,
    contains,
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
from tapestry_sets.alias.reshaping import ReshapeView, reshape_is_view
from tapestry_sets.limits import Rung
