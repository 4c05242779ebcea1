"""Operators that need a whole row: normalizations, scans and sorts."""
