"""What does each choice cost?

Operators as variables, layouts as their values, tensors as tables of time and bytes, moments as rows of memory.
"""
