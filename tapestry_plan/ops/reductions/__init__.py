"""Operators that fold axes."""
