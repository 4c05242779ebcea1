"""Which bytes move, between devices and within them?

Regions as numbers, and cells needed minus cells held: nothing here knows of operators, choices or time.
From the ground up; each row stands on rows above it:

    numbering  operands    rows that are few different ones; how operands have their blocks of a tensor
    along  runs            what devices exchange along the axes of a mesh; in how many pieces of memory
    regions  exchange      sizes of what regions have in common; what devices send to each other
    copied                 copies within a device
    transfers              bytes of all classes of layouts
"""

from tapestry_plan.search.prices.moves.numbering import list_classes
from tapestry_plan.search.prices.moves.operands import (
    ANYHOW,
    BESIDE,
    BOX,
    FLAT,
    FREE,
    HOSTED,
    PADDED,
    PARTED,
    OperandBlocks,
)
from tapestry_plan.search.prices.moves.regions import RegionTable
from tapestry_plan.search.prices.moves.runs import count_box_runs
from tapestry_plan.search.prices.moves.transfers import Held, count_transfers
