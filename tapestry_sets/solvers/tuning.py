"""The numbers of this wing: all of them bound work; see `tapestry_sets.integers.tuning` for what that means.

Another value changes which questions are refused, never an answer. The values were chosen by hand.
"""

# isl's basic operations.
BUILD_OPERATIONS = 10**7
"""How many of its basic operations isl may take to read and compose sets and maps: a second or two."""
MAX_OPERATIONS = 50_000
"""How many it may take for a question about one chain of maps; where it needs more, each takes the longer."""
COUNT_OPERATIONS = 10_000
"""The same where points are counted."""
LIST_OPERATIONS = 10**6
"""The same where points that have been counted are listed."""
NEST_OPERATIONS = 15_000
"""How many of isl's operations one question about nests may take: a second or less; long numbers take longest."""

# Linear equations.
FIRST_SEARCHED = 60
"""How many remainders are tried before a proof is looked for that there is no solution."""
FIRST_COUNTED = 6
"""How many remainders are tried where two views' common numbers are counted, before they are taken for nests."""
SEARCHED = 500
"""How many remainders are tried then, before isl takes over."""
FEW_REMAINDERS = 3
"""A place to cut an equation where so few remainders are possible is taken before others are looked at; a proof that
there is no solution looks at no more."""
SUMS_A_BRANCH = 100
"""So many sums are listed for a branch of the budget, where solutions are counted in halves."""
BRANCHES_A_REMAINDER = 4
"""A remainder of a count is taken for this many branches of the budget."""
