"""Wing ops.rows."""
