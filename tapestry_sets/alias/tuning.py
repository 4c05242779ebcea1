"""The numbers of this wing; see `tapestry_sets.integers.tuning` for what the two tables mean.

Bounds were chosen by hand; the rows of tests/bench/bench_alias.py run through all of them. Each tuning number has a row
under its name in tests/bench/results/sweep_tuning.md: times at a quarter to four times its value, or why none.
"""

from tapestry_sets.digits import MAX_SCAN as MAX_SCAN
from tapestry_sets.integers import MAX_SETTS as MAX_SETTS

# ------------------------------------------------------------------ bounds of work

MAX_LINES = 64
"""So many progressions an axis may have where cells between diagonals are counted pair by pair of these."""
MAX_PAIRS = 10_000
"""How many pairs of progressions are compared by equations."""
SAMPLE = 2_000
"""How many cells are tried for one in another view, where a set around those of a view is all that is held."""
TRIED = 48
"""How many common elements of the sets around two views are tried."""
MAX_BOXES = 1_000
"""How many products of indices are looked at for those that read a cell."""
MAX_CORNER_RANK = 10
"""Views of a higher rank have too many corners to look at."""
MAX_PRODUCTS = 12_000
"""How many products of progressions a set may be while it is pulled back."""
BIT_SPAN = 1 << 24
"""How far sums of steps some of which are equal may reach that are counted as bits of an integer: 2 MB."""
MAX_CLASSES = 64
"""Into how many remainders a progression is cut for one coordinate."""
MAX_COPIES = 8
"""Of a pattern whose copies lie within each other, how many are made one set of setts."""
MAX_WORK = 500_000_000
"""How many counts may be raised, some nanoseconds each."""
TURN_COST = 1_000
"""What it costs to look at one part in one block, in counts raised."""
LISTED_COST = 8
"""What a count of a deeper nest costs, in those of a stripe."""

FEW_COUNTED = 32
"""So few views that share no cell are counted, each with what they are to cover, before they are joined."""
MAX_BOXES_JOINED = 2048
"""Views that join strided ones are asked box by box while they join so many together: all pairs of these are looked at.
"""

MAX_RUNS = 1 << 18
"""So many runs of bytes are looked at for those that make fewer setts."""
MAX_JOINED = 1000
"""How many setts the bytes of several members may be where they are counted by joining sets."""

MIN_MEMBERS = 2
"""How many members must read a byte for it to be shared: what the word means, so no other value is right."""

MAX_POSITION = 1 << 61
"""Positions below this leave room for sums in int64; others are added as Python's integers."""

# ------------------------------------------------------------------ what is shown

SHOWN_REGIONS, SHOWN_STEPS = 6, 12
"""At most so many regions that a view reads, and steps of its chain, are in a table, which counts the others."""
SHOWN_ROWS = 20
"""How many groups, and how many members of each, a table lists."""
SHOWN_TENSORS = 200
"""A notebook shows the table of a graph of at most so many tensors."""
MAX_INDENT = 100
"""Spaces of indent for each level of a document."""
SHOWN_TEXT = 40
"""Characters of a kind that an error names; a longer one is cut."""

# ------------------------------------------------------------------ tuning: the faster of two ways

# One pair of views, and what is known of one.
FEW_SETTS = 8
"""A set that is held by its chain is listed at once if that takes so few setts."""
FEW_HELD = 64
"""A view of so few setts is not asked before its last renumbering."""
FEW_NUMBERS = 16
"""Of many parts, those of so few numbers are compared by these."""

# All pairs of many views.
MAX_MEMBERS = 8
"""Views of more nests than this are asked pair by pair."""
MAX_LEVELS = 8
"""So are views of deeper nests."""
LEAPS_AT_ONCE = 12
"""How many times a pair leaps before it is asked by itself."""
PAIRS_AT_ONCE = 1 << 16
"""How many pairs leap at once."""

# Many real arrays.
FEW_PARTS = 12
"""So few parts are asked pair by pair at once."""
MANY_SETTS = 64
"""A member whose bytes are more setts is one part, of which only the ends are known to the sorting."""
MAX_PERIODS = 2
"""How many periods are tried to tell parts apart, the most frequent first."""
MAX_TURNS = 12
"""How many times parts are told apart before those left together are asked pair by pair."""
FIRST_PAIRS = 1 << 12
"""How many pairs are looked at in one pass, at first."""
MAX_PAIRS_AT_ONCE = 1 << 18
"""The same, at most."""
FEW_BYTES = 1 << 28
"""Bytes of so short a span are sieved rather than joined as sets, where their parts are not boxes."""
FEW_JOINED = 64
"""How many different parts are joined as sets before they are sieved."""
SIEVE_BLOCK = 1 << 21
"""How many counts are kept at once."""
