"""Numbers of this wing: tuning, where another value gives the same answer at another speed.

They were chosen by hand on tests/bench/bench_batch.py.
"""

PAIRS_AT_ONCE = 1 << 15
"""How many pairs are answered in one pass: what bounds the memory, and keeps a pass in a core's own cache."""
MAX_TABLE = 1 << 20
"""How many pairs of different periods are tabulated at most."""
