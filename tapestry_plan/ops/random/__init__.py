"""Random tensors: each cell is a function of a seed and its number."""
