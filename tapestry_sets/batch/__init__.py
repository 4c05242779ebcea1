"""Which of many stripes, boxes or regions meet?

Columns of integers, and every pair of them answered at once, on any array library.
"""

from tapestry_sets.batch.batches import BoxArray, FirstCommon, StripeArray
from tapestry_sets.batch.kernels import answer_axis
from tapestry_sets.batch.region_arrays import RegionArray
