"""Numbers of this wing: all of them bound work.

Another value changes which sets are made explicit and which are refused, never what an answer holds. No sweep over
them is recorded; tests/bench/bench_sets.py and bench_alias.py run through them.
"""

MAX_GRIDS = 10_000
"""How many grids an explicit answer may have before `TooManyPieces` is raised."""
MAX_SCAN = 2_000_000
"""How many elements may be counted one by one, where nothing better answers."""
MAX_COPIES = 64
"""How many interleaved copies of a longer progression are merged explicitly; isl takes over beyond."""
