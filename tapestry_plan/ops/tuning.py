"""Numbers of the operators: two bounds, and how much is worked on at once, so that it stays in a core's own cache.

Each of the latter has a row under its name in tests/bench/results/sweep_tuning.md.
"""

# ------------------------------------------------------------------ bounds

MAX_CELLS = 1 << 60
"""Cells of one tensor of random numbers: a counter numbers 2⁶⁴ groups of four words, and a number takes up to four."""

MAX_DENOMINATOR = 4096
"""A resizing's factor given as a floating number is the nearest fraction with no larger denominator."""

CUBIC = -0.75
"""The slope of cubic weights at distance 1 where none is given, as ONNX and PyTorch have it."""

KEPT_EVALUATORS = 64
"""Models of opaque operators whose sessions, or reference implementations, are kept for the next run."""

MAX_STEPS = 16
"""Steps of a recurrence up to which it is said as an operator for each of them, to be split by the cells of its state.
"""

OPAQUE_SECONDS = 600.0
"""How long an opaque operator with a Loop may run: what it costs is not known before, and it may have no end."""

# ------------------------------------------------------------------ tuning

TILE_CELLS = 1 << 18
"""Cells that the formula of an activation is applied to, or that are unpacked, at once: what it computes in between is
no larger."""

TILE_NBYTES = 1 << 21
"""Bytes of one tile of a convolution's unfolded windows, which are multiplied while they are in cache."""

TILE_COUNTERS = 1 << 14
"""Counters of random numbers that are worked on at once, with their words and what is between."""
