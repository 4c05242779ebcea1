"""Numbers of this wing: what bytes hold that nobody wrote. No right result changes with them; a wrong one shows."""

POISON_FLOAT = 0xFF
"""In buffers of floats: all bits set is a NaN in every IEEE format."""
POISON_OTHER = 0xA5
"""In buffers of other cells: no small number, and no truth value."""
