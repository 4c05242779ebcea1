"""How does an operator of ONNX become operators and selections of a graph?

One function for each type, in a module for each family; the table that names them stands above.
"""
