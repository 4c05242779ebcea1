"""The numbers of this wing: which of them bound work, and which are tuning.

A bound refuses what is beyond it; another value changes no answer that is given, but for leaves: how many there are
says in which order an operator adds up, so another number gives other bits. Tuning changes how short the chains of
views are that `motion` returns, where a block's scratch memory begins, or how long equal constants are looked for,
never a cell. They were chosen by hand; no sweep over them is recorded.
"""

# -- bounds of work ------------------------------------------------------------------------------------------

MAX_REGIONS = 256
"""How many regions a message may have."""

LEAVES = 16
"""Into how many leaves at most the parallel axes of an operator are cut: each is a call of its block function."""

FEW_LEAVES = 8
"""And so where there is little work; a reduction axis is cut into so many too."""

LEAF_POINTS = 1 << 15
"""With so many index points for each of few leaves, the work is much."""

# -- tuning --------------------------------------------------------------------------------------------------

FEW_REGIONS = 32
"""Of so many regions a cascade is looked through for a shorter one."""
ALIGNMENT_NBYTES = 64
"""Scratch memory of each of two blocks in one begins at a multiple of so many bytes: a cache line."""
LOOKED_AT_NBYTES = 64
"""So many bytes of constants are compared before digests of all of them are …"""
LOOKED_AT_PLACES = 4
"""… at so many places: of one that is mapped from a file each takes a page."""
