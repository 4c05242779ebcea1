"""Which real arrays share memory?

Arrays as views of their device's memory, and groups of arrays that overlap.
"""
