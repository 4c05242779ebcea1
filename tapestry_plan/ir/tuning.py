"""The numbers of this wing: what bounds work and documents, and what only remembers answers.

The first table bounds what is asked or written: another value refuses other graphs, or writes constants elsewhere. The
second is tuning: another value changes time and memory alone. They were chosen by hand; no sweep is recorded.
"""

# ------------------------------------------------------------------ bounds

MAX_COPIES = 1024
"""How often a tensor may repeat along an axis: each copy is a piece of a view."""

CARRIED_NBYTES = 4096
"""Constants without a file of up to so many bytes, such as numbers in formulas, are in a graph's document."""

# ------------------------------------------------------------------ tuning

KEPT_CHECKS = 4096
"""How many verdicts are kept: the layers of a network use the same kinds on the same shapes."""

KEPT_CUTS = 1 << 16
"""How many cuts of axes into even parts are kept."""
