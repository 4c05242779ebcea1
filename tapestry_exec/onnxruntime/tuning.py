"""Numbers of this wing: which blocks are worth a session. No result changes with them but by rounding."""

MIN_POINTS = 4096
"""Index points that a block must have: below, NumPy's call takes less than a session's."""
KEPT_SESSIONS = 4096
"""Sessions that a backend keeps for steps of the same blocks."""
