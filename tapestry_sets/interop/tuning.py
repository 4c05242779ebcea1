"""The numbers of this wing; see `tapestry_sets.integers.tuning` for what the two tables mean.

None of them has a benchmark; the tests of this wing run through all of them. The values were chosen by hand.
"""

# ------------------------------------------------------------------ bounds of work

MAX_OPERATIONS = 2 * 10**6
"""How many of its basic operations isl may take for a question: a second or two."""
MAX_LEVELS = 6
"""How deep a nest may become that is read from isl: counting in one takes twice as long with each level."""
MAX_CLASSES = 20_000
"""Into how many residue classes a count may be split."""
MAX_VALUES = 64
"""How many values of a digit may be looked at one by one."""
MAX_DEPTH = 100
"""How deep parentheses of MLIR's maps and of CuTe's layouts may be nested."""
MAX_DIGITS = 1000
"""How long a number in them may be."""
MAX_LISTED = 1 << 16
"""How many numbers of a layout may be looked at one by one: a fifth of a second."""

# ------------------------------------------------------------------ tuning: what shapes an expression, not its value

MAX_TOP_CLASSES = 64
"""Into how many classes of the symbols' residues the whole of a count is split, rather than each of its factors."""
