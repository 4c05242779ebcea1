"""How do JAX, PyTorch and Dask say where a plan's tensors lie?

Placements along the axes of the mesh, and the words that each library has for them.
"""
