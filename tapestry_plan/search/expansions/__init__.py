"""Which operators are better done as several?

What expansions cost at best, which of them cannot win, and which are taken.
"""
