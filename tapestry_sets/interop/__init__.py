"""How do isl, sympy, MLIR and CuTe say it?

Sets from isl, views of symbolic sizes, MLIR's affine maps and CuTe's layouts as text; which chunks of a Zarr or Dask
array are touched.
"""

from tapestry_sets.interop.chunks import Chunk, TouchedChunks, chunks
from tapestry_sets.interop.cute import from_cute, to_cute
from tapestry_sets.interop.cute_layouts import CuteLayout
from tapestry_sets.interop.from_isl import from_isl
from tapestry_sets.interop.mlir import from_mlir, to_mlir
from tapestry_sets.interop.symbolic import SymbolicView, symbolic_allocate
from tapestry_sets.interop.symbolic_counts import distinct_count, overlap_condition, overlap_count
from tapestry_sets.interop.symbolic_expressions import NonAffineSize
from tapestry_sets.interop.symbolic_polynomials import FinerClasses, count_polynomial
