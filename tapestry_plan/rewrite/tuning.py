"""The numbers of this wing: which of them bound work, and which are tuning.

A bound refuses what is beyond it; another value changes no answer that is given. Tuning changes how short the chains of
views are that `motion` returns, or where a block's scratch memory begins, never a cell. They were chosen by hand; no
sweep over them is recorded.
"""

# -- bounds of work ------------------------------------------------------------------------------------------

MAX_REGIONS = 256
"""How many regions a message may have."""

# -- tuning --------------------------------------------------------------------------------------------------

FEW_REGIONS = 32
"""Of so many regions a cascade is looked through for a shorter one."""
ALIGNMENT_NBYTES = 64
"""Scratch memory of each of two blocks in one begins at a multiple of so many bytes: a cache line."""
