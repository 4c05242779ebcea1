"""Products of matrices, and of tensors over a joint index space."""
