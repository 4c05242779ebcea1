"""The numbers of this wing: what bounds work, how views are written, and what only chooses the faster of two ways.

The first table bounds how far views are spelled out and simplified: beyond it, isl or the budget of `limits` decides,
or pieces stay as they are; no answer changes. The second chooses how a simplified view is written, of which kinds, and
with that time. The third is tuning: another value changes time alone. The first two were chosen by hand. Each tuning
number has a row under its name in tests/bench/results/sweep_tuning.md: times at a quarter to four times its value, or
why none.
"""

# ------------------------------------------------------------------ bounds of work

MAX_PATCHES = 1000
"""A view of more patches is not spelled out: what reads it sees it as memory of its own."""
MAX_STAGES = 16
"""How often patches may be of patches that are not spelled out."""
MAX_DIGIT = 64
"""How many values of a digit that moves along several axes are listed."""
SHORT_TABLE = 64
"""So many indices of a table are looked at for many different steps, before levels are sought in all of them."""
MAX_AROUND = 64
"""How often a set may go around a padded axis where it is cut at each turn; also indices that are tried for a cell."""
MAX_PARTS = 64
"""How many products of indices, one set an axis, the cells of a view may be where they are held as such."""
MAX_READ = 1024
"""How many they may be before those that differ on one axis alone are joined."""
MAX_CHAIN = 64
"""Longer chains of filled sets are not held."""
TABLE_TRIES = 1000
"""The budget within which pieces are composed to see whether two views read through one table."""
TRIES = 32
"""How often a view's products are taken through patches of patches, more than twice for each of them."""
COMPARED_PIECES = 40_000
"""The budget within which pieces are composed to compare two views."""
LISTED_CELLS = 1 << 20
"""Where patches take too long to compare, the cells of so many indices at most are listed."""
BRANCHES_A_COMPARISON = 16
"""Taking digits through a patch, to compare the cells of both, takes as long as so many branches of the budget."""
INLINED_PATCHES = 32
"""A patch of patches is spelled out where that takes at most so many more than twice these."""

MAX_READINGS = 16
"""A list of indices of more runs is a table: few runs are asked in closed form, and copied as blocks."""
MAX_REPEATED = 1 << 20
"""A table of so many indices at most stands for many runs of places that are each repeated as often."""

# ------------------------------------------------------------------ how a view is written

STRIDED_WORDS = 6
"""A strided view that takes more kinds is taken by its strides."""
SHORT_CHAIN = 2
"""Of so few kinds a chain can only be longer than the view's own kind over memory."""
LONG_CHAIN = 64
"""A chain of so many kinds is not simplified kind by kind."""

# ------------------------------------------------------------------ what is shown

SHOWN_SOURCES = 8
"""The code of a view names at most so many of its sources."""
SHOWN_KIND = 80
"""The characters that it gives a kind which has no word of its own."""

# ------------------------------------------------------------------ tuning

FOLDED_PIECES = 64
"""A view of more pieces is not folded for the sake of its strided form."""
FOLDED_COPIES = 16
"""So few patches are also folded another way: their copies one by one."""
LOOK_AHEAD = 4
"""How many neighbors may be the second of a row of equal patches."""
LOOPED_PATCHES = 64
"""Loops are looked for among at most so many patches."""
WALKED_KINDS = 16
"""So many kinds of a chain are gone through one by one to find the cell of an index."""
LONG_TABLE = 256
"""In so many indices what comes again is sought in their bytes first."""
TRIED_CYCLES = 16
"""So many places are looked at there."""
MANY_PIECES = 12
"""A view of more pieces is composed anew from its patches, if these are fewer."""
