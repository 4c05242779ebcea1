"""Which device holds what, and over which links does it go?

Machines and meshes, layouts of index spaces, the cells of tensors that devices hold and read.
"""
