"""Which operators are better one, or twice?

Blocks of neighbors, operators that run again for late readers, and bounds where views are cut.
"""
