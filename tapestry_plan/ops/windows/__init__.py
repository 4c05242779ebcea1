"""Wing ops.windows."""
