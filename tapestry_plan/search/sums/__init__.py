"""Which values make a sum of tables least?

Elimination, bounds and pruning of sums of tables, of numbers alone: nothing here knows of graphs.
"""
