"""Wing ops.random."""
