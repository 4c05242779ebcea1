"""Numbers of this wing: a bound of memory, and tuning, where another value gives the same answer at another speed.

The latter has a row under its name in tests/bench/results/sweep_tuning.md: times at a quarter to four times its value.
"""

# ------------------------------------------------------------------ bounds of work

MAX_TABLE = 1 << 20
"""How many pairs of different periods are tabulated at most; beyond, what depends on them is found pair by pair."""

# ------------------------------------------------------------------ tuning

PAIRS_AT_ONCE = 1 << 13
"""How many pairs are answered in one pass: what bounds the memory, and keeps a pass in a core's own cache."""
