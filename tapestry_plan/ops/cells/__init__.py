"""Operators that work cell by cell."""
