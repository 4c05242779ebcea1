"""Which strided copies move a region?

Regions and views as nested strides between two arrays, and the same for kernels.
"""

from tapestry_exec.copies.arrays import (
    Array,
    Pairs,
    Strips,
    aligned_bytes,
    block_of,
    fill_cells,
    index_pairs,
    make_contiguous,
    pack,
    read_only,
    read_piece,
    read_view,
    slices_of,
    strided_copies,
    strided_view,
    unpack,
)
from tapestry_exec.copies.kernel_forms import GuardedDigits, normal_digits, normal_forms, widen
from tapestry_exec.copies.strided import (
    Transfer,
    between,
    domain_of,
    fill_transfers,
    lay_block,
    members_of,
    outside,
    pack_transfers,
    through,
    together,
    unpack_transfers,
)
from tapestry_exec.copies.tuning import ITEM_NBYTES, MAX_CELLS, RANK
