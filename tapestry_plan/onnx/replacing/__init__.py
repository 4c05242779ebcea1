"""What stands in the place of a node?

Bodies, taken branches, local functions, known values, folded normalizations, and what runs whole.
"""
