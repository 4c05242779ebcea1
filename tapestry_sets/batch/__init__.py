"""Wing batch."""

from tapestry_sets.batch.batches import BoxArray, FirstCommon, RegionArray, StripeArray
from tapestry_sets.batch.columns import answer_axis
