"""The numbers of this wing: what bounds work, and what only chooses the faster of two ways.

The first table bounds what a question may cost, besides `limits`: another value changes which questions are refused
or how an explicit answer is cut, never what an answer holds. The second is tuning: another value changes time alone.
Bounds were chosen by hand; tests/bench/bench_sets.py runs through all of them. Each tuning number has a
row under its name in tests/bench/results/sweep_tuning.md: times at a quarter to four times its value, or why none.
"""

# ------------------------------------------------------------------ bounds of work

# Steps of a search, from one element or one pair of blocks to the next.
ISL_AFTER = 500
"""How many pairs of blocks a search of two nests may try before isl takes over."""
NEST_LEAPS = 500
"""How many times a search goes from set to set before isl takes over, lazy sets are listed or unions taken apart."""
LAZY_LEAPS = 50
"""How many times it goes from set to set, one of which is lazy, before their outer sets and lists are looked at."""
LEAPS_OF_MEMBERS = 20_000
"""How many members of unions may be asked on the way."""

# What is taken for one branch of the budget, some microseconds.
PAIRS_A_BRANCH = 64
"""Pairs of blocks of two nests that are counted together, as columns."""
BITS_A_BRANCH = 1 << 15
"""Bits of a mask."""
ENTRIES_A_BRANCH = 1 << 8
"""Entries of a table of a whole period."""
BITS_SCANNED_A_BRANCH = 1 << 16
"""Bits of tables that are met one stretch after another."""
ELEMENTS_A_BRANCH = 1 << 10
"""Elements that are listed, or looked up at a level of a nest."""
MEMBERS_A_BRANCH = 4
"""Members of unions that are asked for their next element, or how many they have."""

# Pieces of an explicit answer.
STEPS_A_PIECE = 4
"""How many blocks of two nests may be tried for each piece allowed."""
BLOCKS_A_PIECE = 40
"""How many blocks may be tried for each piece allowed, over all pairs of members of two unions."""
MIN_BLOCKS = 100_000
"""How many of these may be tried at least."""
PAIR = 32
"""A pair of members that is looked at takes as long as this many blocks."""
MET_PIECES = 4096
"""How many nests two of a conjunction may become on its last rung."""
MAX_SETTS = 200
"""How many setts a set may be where it can be held by its chain instead, and how many runs a nest."""
MAX_LISTED_SETTS = 500
"""How many setts a lazy set may become where a question about several is answered by listing it."""
MAX_LISTED = 1 << 21
"""How many elements of each set may be listed to answer a question about lazy sets."""
MAX_SCAN = 1 << 16
"""How many numbers may be taken to elements, or back, one by one."""

MAX_FILLS = 200
"""How many sets may be filled into one another: each question goes down all of them, call by call."""
MEET_DEPTH, SAMPLE_DEPTH = 10, 20
"""For how many fills common elements count there, and a sample: by the calls of a question, or more."""
MAX_ELEMENTS = 1 << 30
"""How many elements are listed as one array, of eight bytes each."""
LONG_SPAN = 1 << 22
"""Interleaved progressions up to this span are merged explicitly, whatever their copies."""

# How far two nests are looked at for one that is their union.
SPREAD = 64
"""How many blocks nests of several periods may have in a common one, for these to be merged there."""
MAX_SWEPT_BLOCKS = 1 << 20
"""How many blocks of two unions may be swept where a sample does not tell that what is left has too many pieces."""
MAX_LISTED_BLOCKS = 1 << 18
"""Unions of many members are taken apart into blocks without an inside where a common period has at most so many."""
SAMPLED_BLOCKS = 1 << 14
"""If they are not few, so many are listed, to foresee how many pieces an answer has."""
SAMPLED_PIECES = 64
"""Fewer pieces than this in what is listed tell nothing about the whole."""
MAX_MET_PAIRS = 16
"""Members of two unions that make more pairs than this are listed as blocks, if these are few, not met one by one."""
MAX_JOINED_MEMBERS = 64
"""Pairs of more members than this are not looked at for what makes one nest."""
NEARLY_ALL = 0.999999
"""Disjoint nests that hold at least this part of all integers, as floats say, are asked whether they hold every one."""
BRANCHES_AN_ATTEMPT = 20
"""An attempt to find one nest for two takes as long as this many branches."""
ORIGINS = 4
"""From how many blocks of each nest a common block is tried to begin."""
ATTEMPTS = 32
"""How many sets of items are looked at before two nests are taken to have no union that is a nest."""
PARTS = 12
"""How many blocks two items may be taken apart into, to be joined anew."""

RUN_BLOCKS = 8
"""Fewer blocks of a length than this are not looked at for long runs at distances known before."""
RUN_PERIODS = 8
"""How many such distances are tried."""

RESIDUES = 64
"""A whole common period is counted residue by residue where the gcd of the periods is at most this."""
PARTED = 2
"""In how many windows inside of one another a count is taken apart for an estimate of what it takes."""
FAR = 1e60
"""Estimates go no further: no budget is as large, and products of several fit floats."""
CLASSES = 64
"""Short periods inside of nests are taken apart into at most so many classes of integers."""
SAMPLED_PAIRS = 12
"""Of so many pairs of members of two unions it is told what counting all of them takes."""
MAX_TABLE = 1 << 24
"""Periods and blocks up to this length may be listed as an array, to count with; longer ones are counted in steps."""
CUT_BELOW = 1 << 28
"""Windows of up to this many elements are cut into shorter ones, and longer ones walked within the budget."""

# ------------------------------------------------------------------ tuning: the faster of two ways

# Bit masks, tables and transforms in the place of single steps.
MASK_BITS = 1024
"""Windows up to this length are decided by one AND of two bit masks."""
SHORT = 1 << 15
"""Windows up to this length are counted by one AND of two bit masks; of periods up to it the mask is kept."""
MASK_SPAN = 1 << 21
"""Windows up to this length are counted by bit masks of three nests or more."""
SUM_SPAN = 1 << 22
"""Sums of progressions up to this long are made as bit masks where their copies interleave."""
BITS_AN_ENTRY = 100
"""Bits of a mask that cost as much as an entry of a column: a block that is counted with others."""
BITS_A_CHOICE = 1 << 16
"""Bits of masks of whole unions, for a choice of their members that is counted by itself."""
PLACES_AN_ENTRY = 8
"""Places of tables of whole periods, for an entry."""
BITS_A_TURN = 2
"""Bits of two blocks that are correlated, for an entry."""
ENTRIES_A_ROUND, PYTHON_INTEGERS = 400, 20
"""What a round of columns costs besides its entries, and how many times as much an entry costs as a Python integer."""
LONG_BITS = 128
"""An entry of Python integers costs as much again for each so many bits of a period."""
ENTRIES_OF_STRIPES = 20
"""Entries that count two stripes in a window by sums; one of fewer blocks of the longer period, block by block."""
FEW_BLOCKS = 10
"""Of how many blocks a window of two stripes has to be for that."""
COLUMN = 1 << 13
"""How many entries are counted together: more do not stay near the processor."""
TABLED = 8
"""A table of all values that is this much shorter than a column is made first, and the column looked up in it."""
LISTED_RAMPS = 1 << 12
"""Sums of ramps with a step that is at most this long, or as the column is, are looked up in a list of all of them."""
HALVES = 64
"""How many ways to halve a conjunction are kept in view while the best is sought."""
RUN_LENGTH = 32
"""Common elements whose runs are this long on average are counted run by run rather than listed."""
MANY_BLOCKS = 8
"""Blocks of a window that are tried before a proof of disjointness is sought."""

# Any common element of two nests, or of two unions.
BLOCKS = 60
"""How many pairs of blocks of two nests are tried before an equation is asked."""
MEMBER_LEAPS = 8
"""How many times a search goes from union to union before members are compared."""
FEW_MEMBERS = 64
"""Unions of more members are not leapt through, but compared where their members' bounds meet."""
COUNTED = 2_000
"""What of the budget a count of two nests may take before an equation is asked."""
FEW_OPERANDS = 8
"""Of more sets than this that are met, equal ones are dropped."""
FEW_RUNS = 64
"""In so few runs a set is counted that is held by its chain, before other ways."""
FEW_PAIRS = 8
"""Unions are counted as such where their members make more pairs than this, else two by two."""
FEW_BRANCHES = 64
"""What of the budget a count may take before other ways are asked."""

# Elements listed whole, in halves, or one by one.
WALK_ABOVE = 1 << 20
"""Common elements are filtered from the smaller set up to this many, and sought one by one above it."""
DENSE, SHORT_LIST = 16, 1024
"""Of a window of at most so many times what is sought in it, and so many more, all elements are listed at once."""
CLOSE = 8
"""So many elements are taken one after the other where an element is sought by its number."""
