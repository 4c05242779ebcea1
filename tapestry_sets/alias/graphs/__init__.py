"""Alias graphs: tensors that may become memory, or views of one another."""
