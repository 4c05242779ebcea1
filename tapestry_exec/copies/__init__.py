"""Which strided copies move a region?

Regions and views as nested strides between two arrays, and the same for kernels.
"""

from tapestry_exec.copies.arrays import (
    aligned_bytes,
    block_of,
    contiguous,
    fill_cells,
    index_pairs,
    pack,
    read_only,
    read_piece,
    read_view,
    slices_of,
    strided_copies,
    strided_view,
    unpack,
)
from tapestry_exec.copies.nests import ITEM_NBYTES, MOST_CELLS, RANK, Nest, normal_forms, normal_nests, widened
from tapestry_exec.copies.strided import (
    Ints,
    Transfer,
    between,
    domain_of,
    filled,
    outside,
    packed,
    row_major,
    through,
    together,
    unpacked,
)
