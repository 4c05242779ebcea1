"""What does each choice cost?

Layers, each entered through its door:

    moves    bytes that devices exchange and copy
    costs    operators as variables, layouts as their values, tensors as tables of time and bytes
    added    more layouts, blocks of neighbors, kept choices, memory
"""
