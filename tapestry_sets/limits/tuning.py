"""The numbers of this wing: the bounds of work that callers may set with `limits`, and how long a value is shown."""

# ------------------------------------------------------------------ bounds of work, unless `limits` says otherwise

MAX_PIECES = 10_000
"""Setts or regions of an explicit answer; beyond, `TooManyPieces` is raised."""
BUDGET = 100_000
"""Branches of a question, some microseconds each; beyond, the next way is gone; the last raises `TooHard`."""

# ------------------------------------------------------------------ what is shown

SHOWN_TEXT = 70
"""Characters of a value that an error names; a longer one is cut."""
