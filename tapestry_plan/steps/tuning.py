"""The numbers of this wing: which of them are limits, and which are tuning.

Limits are part of what a plan is. Tuning changes which buffers `spill` evicts and where it places them: every value
makes a right plan, and more values move fewer bytes in more time. They were chosen on 120 random plans in four sizes of
memory each (see `eviction`).
"""

# -- limits --------------------------------------------------------------------------------------------------

MAX_STAGE_SECONDS = 1000.0
"""Longest modeled stage: sums over thousands of stages then stay within 64 bits. What takes longer counts as that."""
MAX_DEVICES = 4096
"""A mesh larger than this is refused: the plan's steps would not fit a machine's memory."""
KEPT_FORMS = 1 << 14
"""How many linear forms of pieces are kept: plans are made, and run, many times."""
MAX_TEAMS = 8
"""Of devices that differ, how many of the sets of the fastest ones are planned for, by each of their rates."""
ALIGNMENT_NBYTES = 64
"""Arenas are laid out in multiples of a cache line."""

MAX_PAIRED_REGIONS = 8
"""Regions of a copy up to which all are paired where its runs are counted; of more only those that are near."""
MAX_NEAR_TABLE = 1 << 20
"""Pairs of regions that are looked through at once for such."""
MAX_PLACED = 64
"""Blocks of an arena up to which orders of places are searched where simple ones find no places for them."""
MAX_PLACINGS = 2000
"""Times that a block is placed in such a search."""

# -- what a device and a link are taken for, unless the caller says more: a processor of a few cores --

FLOP_PER_SECOND, MEMORY_NBYTES_PER_SECOND = 1e11, 2e10
"""What a device computes, and moves within its memory."""
LAUNCH_SECONDS = 0.0
"""What it takes to start a computation: nothing that counts on a processor; 3 to 10 us on a GPU."""
LATENCY_SECONDS, NBYTES_PER_SECOND = 1e-6, 1e10
"""What a link takes before the first byte, and moves then."""

# -- tuning --------------------------------------------------------------------------------------------------

DISTANCE_EXPONENTS = (0.0, 1.0, 4.0)
"""How much the distance to the next use counts, against bytes, when a buffer is chosen for eviction."""
SLACKS = (0.0, 1 / 16, 1 / 8, 1 / 4)
"""Shares of the arena that are left aside when buffers are chosen before places are."""
NEAR_USES = (None, 0, 1, 2, 4, 8)
"""Within so many steps the last use of a buffer is near; None for places that do not depend on it."""
MAX_TOLD_PARTS = 4
"""Of a block of more operators the first and the last are named."""

TOLD_SHARDS = 20_000
"""Of a plan of so many stages, counted on each device, `explain` says what shards read, which needs the steps of all.

They are written in some 6 s; of more only where they are written already. It takes longer to compare shardings there.
"""
TOLD_DEVICES = 64
"""On so many devices `explain` says what other shardings take of memory that is limited, for which each has steps."""
TOLD_ROUNDS = 8
"""Operators of many rounds that are told one by one, of more the slowest."""
SHOWN_ROWS = 20
"""Transfers of a table, or of a stage that is explained, that are shown; of more the last line says how many."""
SHOWN_LINKS = 4
"""Links that an empty table of transfers names, over which other bytes go."""

TRIED_ORDERS = 24
"""So many orders of the factors of a mesh's axes are tried for an export; more than four prime factors have more."""

TOLD_CAUSES = 4
"""Of what makes another sharding dearer or cheaper so much is told; of more the last words say how many."""
