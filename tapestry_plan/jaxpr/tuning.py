"""How far traced functions are taken apart."""

MAX_EQUATIONS = 100_000
"""Equations of a traced function, with its loops unrolled."""
