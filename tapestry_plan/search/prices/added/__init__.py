"""What is added to a problem?

More layouts for its variables, a plan's choices kept, neighbors in one block, moments as rows of memory.
None of these knows of another; each row stands on rows above it:

    splits  derived  offers    cuts that neighbors' views ask for; layouts that a neighbor, or an asked-for place, says
    kept  blocks  memory       a plan's own choices, some operators open; neighbors as one; bytes held at every moment
"""

from tapestry_plan.search.prices.added.blocks import FusedProblem, Pick, can_join, take_out
from tapestry_plan.search.prices.added.derived import derive_layouts
from tapestry_plan.search.prices.added.kept import KeptProblem
from tapestry_plan.search.prices.added.memory import Memory, MemoryOfEach, MemoryOfMany
from tapestry_plan.search.prices.added.offers import asks_for_others, offer_asked
from tapestry_plan.search.prices.added.splits import Split, add_offered, asks_for_splits, derive_splits, offer_cuts
