"""Wing ops.reductions."""
