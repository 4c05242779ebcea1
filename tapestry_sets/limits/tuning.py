"""The numbers of this wing: the bounds of work that callers may set with `limits`, and how long a value is shown."""

# ------------------------------------------------------------------ bounds of work, unless `limits` says otherwise

MAX_PIECES = 10_000
"""Setts or regions of an explicit answer; beyond, `TooManyPieces` is raised."""
BUDGET = 100_000
"""Branches of a question, some microseconds each; beyond, the next way is gone; the last raises `TooHard`."""

# ------------------------------------------------------------------ what is shown

SHOWN_TEXT = 200
"""Characters of a value that a message shows; a longer one is cut."""
SHOWN_BITS = 650
"""Of an integer whose digits are shown; of a longer one, about which power of two it is."""
SHOWN_ENTRIES = 16
"""Of an array whose values are shown; of a larger one, the shape and dtype."""
SHOWN_DEPTH = 6
"""How deeply containers in containers are shown."""
SHOWN_NAMES = 8
"""Of known names, where a wrong one was given: of more, the three nearest and how many there are."""
COMPARED_TEXT = 100
"""Characters of two names that are compared for how near they are."""
COMPARED_NAMES = 2_000
"""Names of which the three nearest are found however far they are; of more, among those that are somewhat like it."""
WRITTEN = 240
"""Characters of a formula that a decision has; of a longer one there is none."""
SHOWN_FIELD = 40
"""Characters of each field in the repr of a value whose fields do not all stand in one line."""
