"""How do isl, sympy and MLIR say it?

Sets from isl, views of symbolic sizes, MLIR's affine maps as text; which chunks of a Zarr or Dask array are touched.
"""

from tapestry_sets.interop.chunks import Chunk, TouchedChunks, chunks
from tapestry_sets.interop.from_isl import from_isl
from tapestry_sets.interop.mlir import from_mlir, to_mlir
from tapestry_sets.interop.symbolic import SymbolicView, symbolic_allocate
from tapestry_sets.interop.symbolic_counts import distinct_count, overlap_condition, overlap_count
from tapestry_sets.interop.symbolic_expressions import NonAffineSize
