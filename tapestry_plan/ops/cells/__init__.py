"""Wing ops.cells."""
