"""The numbers of this wing: what is shown, and when. No answer changes with them."""

SHOWN_VIEWS = 32
"""The picture of an overlap shows up to so many views."""
SHOWN_AFTER = 1.0
"""Runs and plans are shown once they have taken so many seconds."""
PIPED_WIDTH = 110
"""Columns of a table that no terminal shows."""
