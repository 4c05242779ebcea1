"""Operators that move windows over spatial axes: pools, convolutions, resizing."""
