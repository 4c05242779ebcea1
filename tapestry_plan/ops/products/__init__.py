"""Wing ops.products."""
